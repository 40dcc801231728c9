/* Ids to pointers; see keymap.h. */
#include "venus/common/keymap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum { ROOM_FIRST = 64 };

void vn_keymap_init(struct vn_keymap *map)
{
    *map = (struct vn_keymap){0};
}

void vn_keymap_fini(struct vn_keymap *map)
{
    free(map->slots);
    *map = (struct vn_keymap){0};
}

/* The high bits of the product depend on all bits of the key. */
static size_t place(const struct vn_keymap *map, uint64_t key)
{
    uint64_t h = key * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(h ^ h >> 32) & (map->room - 1);
}

/* The slot that holds the key, or the empty one where it would go. */
static size_t find(const struct vn_keymap *map, uint64_t key)
{
    size_t i = place(map, key);
    while (map->slots[i].key && map->slots[i].key != key)
        i = (i + 1) & (map->room - 1);
    return i;
}

void *vn_keymap_get(const struct vn_keymap *map, uint64_t key)
{
    return map->room && key ? map->slots[find(map, key)].value : NULL;
}

static int grow(struct vn_keymap *map)
{
    struct vn_keymap larger = {.room = map->room ? map->room * 2 : ROOM_FIRST, .count = map->count};
    larger.slots = calloc(larger.room, sizeof(*larger.slots));
    if (!larger.slots)
        return -ENOMEM;
    for (size_t i = 0; i < map->room; i++) {
        if (map->slots[i].key)
            larger.slots[find(&larger, map->slots[i].key)] = map->slots[i];
    }
    free(map->slots);
    *map = larger;
    return 0;
}

int vn_keymap_put(struct vn_keymap *map, uint64_t key, void *value)
{
    assert(key && value);
    if ((map->count + 1) * 2 > map->room && grow(map))
        return -ENOMEM;
    struct vn_keymap_slot *slot = &map->slots[find(map, key)];
    map->count += slot->key == 0;
    *slot = (struct vn_keymap_slot){key, value};
    return 0;
}

void *vn_keymap_take(struct vn_keymap *map, uint64_t key)
{
    if (!map->room || !key)
        return NULL;
    size_t hole = find(map, key);
    void *value = map->slots[hole].value;
    if (!map->slots[hole].key)
        return NULL;
    /* What probed past the hole on its way moves back into it. */
    for (size_t i = (hole + 1) & (map->room - 1); map->slots[i].key;
         i = (i + 1) & (map->room - 1)) {
        size_t home = place(map, map->slots[i].key);
        if (((i - home) & (map->room - 1)) >= ((i - hole) & (map->room - 1))) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    map->slots[hole] = (struct vn_keymap_slot){0};
    map->count--;
    return value;
}

void *vn_keymap_next(const struct vn_keymap *map, size_t *at)
{
    while (*at < map->room) {
        const struct vn_keymap_slot *slot = &map->slots[(*at)++];
        if (slot->key)
            return slot->value;
    }
    return NULL;
}
