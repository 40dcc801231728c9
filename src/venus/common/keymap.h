/* venus/common/keymap.h - 64-bit keys to pointers: ids to objects, driver handles to devices.
 *
 * Open addressing with linear probing; removal moves what follows, so that there are no graves.
 *
 * Trust: keys may be a peer's: they are hashed with a multiplier, and the caller bounds how many
 * there are.  Threads: one at a time.  Lifetime: init/fini; values are the caller's. */
#ifndef HAWSER_VENUS_COMMON_KEYMAP_H
#define HAWSER_VENUS_COMMON_KEYMAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

struct vn_keymap_slot {
    uint64_t key; /* 0: empty */
    void *value;
};

struct vn_keymap { /* private */
    struct vn_keymap_slot *slots;
    size_t room; /* a power of two, or 0 */
    size_t count;
};

/* Allocates nothing. */
void vn_keymap_init(struct vn_keymap *map);
void vn_keymap_fini(struct vn_keymap *map);

/* NULL when there is none. */
void *vn_keymap_get(const struct vn_keymap *map, uint64_t key);
/* key is not 0, value not NULL; replaces.  0 or -ENOMEM. */
int vn_keymap_put(struct vn_keymap *map, uint64_t key, void *value) MUST_CHECK;
/* The value that was there, or NULL. */
void *vn_keymap_take(struct vn_keymap *map, uint64_t key);

static inline size_t vn_keymap_count(const struct vn_keymap *map)
{
    return map->count;
}

/* The values, in no order: *at begins with 0.  NULL past the last.  The map must not change in
 * between. */
void *vn_keymap_next(const struct vn_keymap *map, size_t *at);

#endif
