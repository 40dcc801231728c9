/* kv/store/store.h - one daemon's share of the keys: a hash map in fixed memory.
 *
 * Open addressing, one cache line an entry: key, length, and the value itself if it is short; a
 * longer value has an allocation of its own.  The table has its full size from the start, so no
 * request waits for a rehash; the kernel gives its pages as they are touched.  Removing moves later
 * entries back, so there are no tombstones.
 *
 * Trust: keys and values may be anything; the table's secret keeps a client from choosing keys that
 * collide.  Threads: one.  Lifetime: create/destroy. */
#ifndef HAWSER_KV_STORE_STORE_H
#define HAWSER_KV_STORE_STORE_H

#include "kv/common/kv.h"
#include "kv/common/memory.h"

enum {
    KV_STORE_INLINE = 40,           /* what a 64-byte entry has room for */
    KV_STORE_ENTRIES_MAX = 1 << 26, /* 4 GiB of table */
    KV_STORE_ENTRIES_MIN = 16
};

struct kv_store_config {
    uint64_t bytes;     /* of all values together; a put past it is KV_FULL */
    uint32_t entries;   /* most keys; rounded up so that the table is at most 7/8 full */
    uint32_t value_max; /* at most KV_VALUE_MAX */
    uint64_t secret;    /* random */
    struct kv_memory memory;
};

struct kv_store;

/* 0, -EINVAL, -ENOMEM. */
int kv_store_create(const struct kv_store_config *config, struct kv_store **out) MUST_CHECK;
void kv_store_destroy(struct kv_store *store);

/* KV_OK or KV_MISS.  The value lies in the store until its next change. */
enum kv_result kv_store_get(const struct kv_store *store, struct kv_key key, const void **value,
                            uint32_t *len);
/* KV_OK, KV_FULL (limits, or out of memory) or KV_TOO_LARGE; without KV_OK nothing is changed. */
enum kv_result kv_store_put(struct kv_store *store, struct kv_key key, const void *value,
                            uint32_t len);
/* KV_OK or KV_MISS. */
enum kv_result kv_store_delete(struct kv_store *store, struct kv_key key);

struct kv_outcome {
    enum kv_result result;
    const void *value; /* of a get, as kv_store_get has it */
    uint32_t len;
};
/* One of the three above; KV_REFUSED: another operation. */
struct kv_outcome kv_store_execute(struct kv_store *store, enum kv_op op, struct kv_key key,
                                   const void *value, uint32_t len);

/* Prefetches the entry's cache line, for a request that is served a little later. */
void kv_store_prefetch(const struct kv_store *store, struct kv_key key);

uint64_t kv_store_bytes(const struct kv_store *store);
uint32_t kv_store_count(const struct kv_store *store);

#endif
