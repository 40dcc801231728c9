/* Open addressing with linear probes; see idmap.h. */
#include "venus/client/idmap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct vn_idmap_slot {
    uint64_t id; /* 0: never used */
    void *value; /* NULL with an id: removed */
};

void vn_idmap_fini(struct vn_idmap *map)
{
    free(map->slots);
    *map = (struct vn_idmap){0};
}

/* The slot of the id, or the one where a search for it ends. */
static struct vn_idmap_slot *find(const struct vn_idmap *map, uint64_t id)
{
    /* Fibonacci hashing: ids are in a row, and so are their neighbours' slots not. */
    size_t at = (size_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (map->cap - 1);
    while (map->slots[at].id && map->slots[at].id != id)
        at = (at + 1) & (map->cap - 1);
    return &map->slots[at];
}

static int grow(struct vn_idmap *map)
{
    struct vn_idmap next = {.cap = 64};
    while (next.cap < map->live * 4)
        next.cap *= 2;
    next.slots = calloc(next.cap, sizeof(*next.slots));
    if (!next.slots)
        return -ENOMEM;
    for (size_t i = 0; i < map->cap; i++) {
        if (map->slots[i].value)
            *find(&next, map->slots[i].id) = map->slots[i];
    }
    next.used = next.live = map->live;
    free(map->slots);
    *map = next;
    return 0;
}

int vn_idmap_put(struct vn_idmap *map, uint64_t id, void *value)
{
    assert(id && value);
    if ((map->used + 1) * 2 > map->cap && grow(map))
        return -ENOMEM;
    struct vn_idmap_slot *slot = find(map, id);
    assert(!slot->value);
    map->used += slot->id == 0;
    map->live++;
    *slot = (struct vn_idmap_slot){id, value};
    return 0;
}

void *vn_idmap_get(const struct vn_idmap *map, uint64_t id)
{
    return map->cap && id ? find(map, id)->value : NULL;
}

void *vn_idmap_remove(struct vn_idmap *map, uint64_t id)
{
    if (!map->cap || !id)
        return NULL;
    struct vn_idmap_slot *slot = find(map, id);
    void *value = slot->value;
    map->live -= value != NULL;
    slot->value = NULL;
    return value;
}
