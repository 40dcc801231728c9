/* llm/worker/ledger.h - bytes of a connection by what they were for.
 *
 * A connection counts what its socket wrote and read, framing included.  A client has one call at a
 * time: after each the growth of both counters is booked to the class of that message, framing
 * included.  A worker books payloads, and framing as control.  Either way the classes add up to the
 * connection's own totals after a mark; what travels between messages (the handshake, heartbeats,
 * credit) is booked with the next mark.
 *
 * Threads: one at a time.  Lifetime: a value, zeroed at the start. */
#ifndef HAWSER_LLM_WORKER_LEDGER_H
#define HAWSER_LLM_WORKER_LEDGER_H

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

struct llm_ledger {
    uint64_t sent[LLM_CLASSES], received[LLM_CLASSES];
    uint64_t seen_sent, seen_received; /* booked so far */
};

const char *llm_class_name(enum llm_class c); /* "weights", "kv_regular" */

/* Books the payload of one message, for an end that may find several messages in one read: what is
 * around them is booked by the next mark. */
void llm_ledger_sent(struct llm_ledger *ledger, enum llm_class c, uint64_t bytes);
void llm_ledger_received(struct llm_ledger *ledger, enum llm_class c, uint64_t bytes);

/* Books all that was sent and received since the last mark and is not booked yet. */
void llm_ledger_mark(struct llm_ledger *ledger, const struct rpc_stats *stats, enum llm_class sent,
                     enum llm_class received);

uint64_t llm_ledger_bytes(const struct llm_ledger *ledger, enum llm_class c); /* both ways */
uint64_t llm_ledger_total(const struct llm_ledger *ledger);

#endif
