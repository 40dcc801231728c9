/* kv/store/policy.h - which block to evict when room is needed.
 *
 *   lru       the least recently used one
 *   s3fifo    new blocks enter a small queue (half of the weight).  A block that is not used there
 *             leaves it without pushing anything out of the main queue.  The store remembers it as
 *             a ghost; if it comes back soon, it goes straight to the main queue
 *
 * A client that reads everything once empties lru; s3fifo keeps half.  docs/benchmarks.md has the
 * hit rates by which the default was chosen.
 *
 * Items are numbers from 0 to `items` - 1 that the caller assigns; each is in at most once.
 *
 * Threads: one.  Lifetime: create/destroy. */
#ifndef HAWSER_KV_STORE_POLICY_H
#define HAWSER_KV_STORE_POLICY_H

#include "base/attr.h"
#include "kv/common/memory.h"

#include <stdbool.h>
#include <stdint.h>

enum kv_policy_kind { KV_POLICY_S3FIFO, KV_POLICY_LRU, KV_POLICY_KINDS };
extern const char *const kv_policy_names[KV_POLICY_KINDS + 1]; /* NULL ends it */

enum { KV_POLICY_NONE = UINT32_MAX };

struct kv_policy;

/* 0, -EINVAL, -ENOMEM. */
int kv_policy_create(enum kv_policy_kind kind, uint32_t items, const struct kv_memory *memory,
                     struct kv_policy **out) MUST_CHECK;
void kv_policy_destroy(struct kv_policy *policy);

/* `hash` stands for the key, so that an item that comes back is recognised. */
void kv_policy_add(struct kv_policy *policy, uint32_t item, uint64_t hash, uint64_t weight);
void kv_policy_use(struct kv_policy *policy, uint32_t item);
/* Not an eviction: leaves no ghost. */
void kv_policy_remove(struct kv_policy *policy, uint32_t item);

/* True for an item that cannot be evicted now. */
typedef bool kv_policy_held_fn(void *user, uint32_t item);

/* Chooses an item that is not held and removes it; KV_POLICY_NONE when every one is held. */
uint32_t kv_policy_evict(struct kv_policy *policy, kv_policy_held_fn *held, void *user);

#endif
