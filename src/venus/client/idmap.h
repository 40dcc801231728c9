/* venus/client/idmap.h - from ids to pointers.
 *
 * Trust: ids may be a peer's.  Threads: the owner's lock.  Lifetime: a zeroed map is empty; fini
 * frees the table, not what it points to. */
#ifndef HAWSER_VENUS_CLIENT_IDMAP_H
#define HAWSER_VENUS_CLIENT_IDMAP_H

#include "base/attr.h"

#include <stddef.h>
#include <stdint.h>

struct vn_idmap { /* private */
    struct vn_idmap_slot *slots;
    size_t cap;  /* a power of two, or 0 */
    size_t used; /* removed ones included */
    size_t live;
};

void vn_idmap_fini(struct vn_idmap *map);
/* id is not 0 and not in the map; value is not NULL.  0 or -ENOMEM. */
int vn_idmap_put(struct vn_idmap *map, uint64_t id, void *value) MUST_CHECK;
/* NULL when there is none. */
void *vn_idmap_get(const struct vn_idmap *map, uint64_t id);
/* What was there, or NULL. */
void *vn_idmap_remove(struct vn_idmap *map, uint64_t id);

#endif
