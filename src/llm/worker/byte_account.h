/* llm/worker/byte_account.h - the bytes of a connection, by class.
 *
 * A connection counts the bytes that its socket wrote and read, framing included.  A client has one
 * call under way at a time: after the call it adds the growth of both counters to the class of that
 * message.  A worker adds payloads to their classes and framing to control.  After a mark the
 * classes add up to the connection's totals; the handshake, heartbeats and credit are counted by
 * the next mark.
 *
 * Threads: one at a time.  Lifetime: a value, zero at the start. */
#ifndef HAWSER_LLM_WORKER_BYTE_ACCOUNT_H
#define HAWSER_LLM_WORKER_BYTE_ACCOUNT_H

#include "rpc/stats.h"

#include <stdint.h>

enum llm_class {
    LLM_WEIGHTS,
    LLM_TOKENS,
    LLM_LOGITS,
    LLM_KV_REGULAR, /* whole caches */
    LLM_KV_DELTA,   /* only what the other side lacks */
    LLM_CONTROL,
    LLM_CLASSES
};

struct llm_byte_account {
    uint64_t sent[LLM_CLASSES], received[LLM_CLASSES];
    uint64_t seen_sent, seen_received; /* counted so far */
};

const char *llm_class_name(enum llm_class c); /* "weights", "kv_regular" */

/* Adds the payload of one message; the next mark counts its framing.  For an end that may find
 * several messages in one read. */
void llm_byte_account_sent(struct llm_byte_account *account, enum llm_class c, uint64_t bytes);
void llm_byte_account_received(struct llm_byte_account *account, enum llm_class c, uint64_t bytes);

/* Adds all bytes since the last mark that no call above has counted. */
void llm_byte_account_mark(struct llm_byte_account *account, const struct rpc_stats *stats,
                           enum llm_class sent, enum llm_class received);

uint64_t llm_byte_account_bytes(const struct llm_byte_account *account,
                                enum llm_class c); /* both ways */
uint64_t llm_byte_account_total(const struct llm_byte_account *account);

#endif
