/* kv/redis/reply.h - answers of a Redis server (RESP2), read one after the other from a stream.
 *
 * A value is read straight into the caller's memory.  After an error the stream has no known place
 * any more: close it.
 *
 * Trust: none in the server; lines, lengths and depth are bounded.  Threads: one at a time.
 * Lifetime: init by the caller; nothing to end. */
#ifndef HAWSER_KV_REDIS_REPLY_H
#define HAWSER_KV_REDIS_REPLY_H

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    KV_REDIS_LINE_MAX = 512,       /* an error's text is the longest */
    KV_REDIS_ARRAY_MAX = 16384,    /* slots: a cluster cannot have more ranges of them */
    KV_REDIS_DEPTH_MAX = 8,        /* CLUSTER SLOTS needs 4 */
    KV_REDIS_READ_AHEAD = 16 << 10 /* of small answers; values are not read through it */
};

#define KV_REDIS_BULK_MAX (UINT32_C(65) << 20) /* a block and what we put before it */

/* Bytes read (> 0), or a negative errno. */
typedef ssize_t kv_redis_read_fn(void *user, void *to, size_t len);

struct kv_redis_reader {
    kv_redis_read_fn *read;
    void *user;
    size_t at, end;
    uint8_t ahead[KV_REDIS_READ_AHEAD];
};

enum kv_redis_kind {
    KV_REDIS_STATUS,
    KV_REDIS_ERROR,
    KV_REDIS_INTEGER,
    KV_REDIS_BULK,
    KV_REDIS_NIL,
    KV_REDIS_ARRAY
};

struct kv_redis_reply {
    enum kv_redis_kind kind;
    int64_t number;               /* the integer; bytes of the bulk, which follow; elements */
    char text[KV_REDIS_LINE_MAX]; /* of a status or an error; else "" */
};

void kv_redis_reader_init(struct kv_redis_reader *reader, kv_redis_read_fn *read, void *user);
/* The next answer, or element of one.  0, -EPROTO, or what read gave. */
int kv_redis_next(struct kv_redis_reader *reader, struct kv_redis_reply *out) MUST_CHECK;
/* The bytes of a bulk, all of them, in as many calls as the caller likes; `last`: and its end. */
int kv_redis_bulk(struct kv_redis_reader *reader, void *to, size_t len, bool last) MUST_CHECK;
/* What follows the head of an answer: a bulk's bytes, an array's elements. */
int kv_redis_skip(struct kv_redis_reader *reader, const struct kv_redis_reply *head) MUST_CHECK;

/* One range of the answer to CLUSTER SLOTS.  host "": the server that was asked. */
struct kv_redis_range {
    uint16_t first, last;
    char host[256];
    uint16_t port;
};
typedef int kv_redis_range_fn(void *user, const struct kv_redis_range *range);
/* Calls `each` for each range, until it fails.  0, what `each` gave, -EPROTO, -EOPNOTSUPP for a
 * server that is in no cluster, -EACCES, or what read gave. */
int kv_redis_ranges(struct kv_redis_reader *reader, kv_redis_range_fn *each, void *user) MUST_CHECK;

/* "MOVED 3999 10.0.0.2:6381" and "ASK ..."; host as above.  0 or -EPROTO. */
int kv_redis_redirect(const char *text, struct kv_redis_range *out) MUST_CHECK;

enum { KV_REDIS_SLOTS = 16384 };
/* Of a key without braces. */
uint16_t kv_redis_slot(const void *key, size_t len);

#endif
