/* kv/store/extents.h - which parts of an arena are in use: a good-fit allocator with its data
 * outside.
 *
 * Clients may read the arena, so the allocator keeps nothing in it.  Holes are listed by size
 * class, 32 classes to each power of two (two-level segregated fit).  A request takes the first
 * hole of the smallest class whose holes all suffice; the rest stays a hole.  Taking and giving are
 * O(1), and two free neighbours are one hole.
 *
 * Waste inside an extent: sizes are rounded up to a class, so less than 1/32 of the size or a
 * granule, whichever is more.  Multiples of a power of two up to 32 of them waste nothing.  Waste
 * outside: extents never move, since clients read them, so holes can be too small; the caller
 * evicts until one fits.  Extents of one size, the usual case, fit each other's holes exactly.
 *
 * Threads: one.  Lifetime: create/destroy. */
#ifndef HAWSER_KV_STORE_EXTENTS_H
#define HAWSER_KV_STORE_EXTENTS_H

#include "base/attr.h"
#include "kv/common/memory.h"

#include <stdbool.h>
#include <stdint.h>

enum { KV_GRANULE = 64 }; /* extents start on cache lines */

#define KV_ARENA_MAX (UINT64_C(1) << 37) /* granules are counted in 31 bits */

struct kv_extents;

/* For at most `extents` at a time.  0, -EINVAL, -ENOMEM. */
int kv_extents_create(uint64_t bytes, uint32_t extents, const struct kv_memory *memory,
                      struct kv_extents **out) MUST_CHECK;
void kv_extents_destroy(struct kv_extents *extents);

/* What `bytes` take once rounded up; bytes > 0. */
uint64_t kv_extents_size(uint64_t bytes);
/* 0, or -ENOSPC when no hole fits or every extent is in use.  *id is for kv_extents_give. */
int kv_extents_take(struct kv_extents *extents, uint64_t bytes, uint32_t *id,
                    uint64_t *offset) MUST_CHECK;
void kv_extents_give(struct kv_extents *extents, uint32_t id);

uint64_t kv_extents_used(const struct kv_extents *extents);
/* Whether the data structure is consistent; for tests. */
bool kv_extents_sound(const struct kv_extents *extents);

#endif
