/* kv/common/message.h - what daemons say to each other, inside copyrpc's calls.
 *
 *   JOIN                 version u32, ranks u32, daemons u32, rank u32, index u32, incarnation u64,
 *                        member u64 (its id; 0: a rank), copies u32 (of each block)
 *     its answer         incarnation u64, member u64: who answers; -EEXIST: a daemon of that name
 *                        or rank is connected, and has another incarnation
 *   GET, DELETE          key: hi u64, lo u64
 *   PUT                  key, then the value to the end of the message
 *     their answers      result u8, then the value (GET that found it) to the end
 *
 * Trust: decoders take anything and answer -EPROTO for what is short, long or out of range.
 * Threads: any.  Lifetime: decoded values point into the message. */
#ifndef HAWSER_KV_COMMON_MESSAGE_H
#define HAWSER_KV_COMMON_MESSAGE_H

#include "kv/common/kv.h"

#include <stdbool.h>

enum {
    KV_METHOD_GET = KV_GET, /* the method of an operation is its number */
    KV_METHOD_PUT = KV_PUT,
    KV_METHOD_DELETE = KV_DELETE,
    KV_METHOD_JOIN = 16,
    KV_JOIN_VERSION = 9, /* 9: a COMMIT is put off by 0 ns */
    KV_JOIN_BYTES = 40,
    KV_JOINED_BYTES = 16
};

struct kv_join {
    uint32_t ranks, daemons, rank, index;
    uint64_t incarnation; /* random, new with each start of a daemon */
    uint64_t member;
    uint32_t copies;
};

void kv_join_encode(const struct kv_join *join, uint8_t out[KV_JOIN_BYTES]);
/* 0, -EPROTO, -EPROTONOSUPPORT (another version). */
int kv_join_decode(const uint8_t *data, size_t len, struct kv_join *out) MUST_CHECK;

struct kv_joined {
    uint64_t incarnation, member;
};

void kv_joined_encode(const struct kv_joined *joined, uint8_t out[KV_JOINED_BYTES]);
/* 0 or -EPROTO. */
int kv_joined_decode(const uint8_t *data, size_t len, struct kv_joined *out) MUST_CHECK;

struct kv_value_request {
    enum kv_op op;
    struct kv_key key;
    const uint8_t *value;
    uint32_t value_len;
};

void kv_key_encode(struct kv_key key, uint8_t out[KV_KEY_BYTES]);
/* 0 or -EPROTO: an unknown method, a short key, bytes behind a key alone, a value past
 * KV_VALUE_MAX. */
int kv_value_request_decode(uint32_t method, const uint8_t *data, size_t len,
                            struct kv_value_request *out) MUST_CHECK;

struct kv_value_answer {
    enum kv_result result;
    const uint8_t *value;
    uint32_t value_len;
};
/* 0 or -EPROTO: also a value with any other result than KV_OK, and results that only the asking
 * side can find (KV_PEER_LOST, KV_TIMEOUT). */
int kv_value_answer_decode(const uint8_t *data, size_t len, struct kv_value_answer *out) MUST_CHECK;

/* What a call that ended with `status` (not 0) means for the client; connected: the connection has
 * not ended. */
enum kv_result kv_result_of_status(int status, bool connected);

#endif
