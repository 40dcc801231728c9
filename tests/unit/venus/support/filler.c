/* Pseudo-random content; see filler.h. */
#include "filler.h"

#include <assert.h>
#include <string.h>

#define GARBAGE ((void *)0x5a5a5a5a5a5a5a5a)

static struct object *slot(struct objects *objects, uint64_t id)
{
    uint64_t at = (id * 0x9e3779b97f4a7c15u) >> 40;
    for (uint32_t i = 0; i < OBJECTS_MAX; i++) {
        struct object *o = &objects->slots[(at + i) % OBJECTS_MAX];
        if (o->base.id == id || o->base.id == 0)
            return o;
    }
    return NULL;
}

struct vn_object *objects_add(struct objects *objects, uint64_t id, uint32_t type)
{
    struct object *o = slot(objects, id);
    assert(o && id);
    if (o->base.id == 0)
        o->base = (struct vn_object){.id = id, .type = type};
    return &o->base;
}

void *objects_lookup(void *objects, uint64_t id, uint32_t type)
{
    struct object *o = slot(objects, id);
    return o && o->base.id == id && o->base.type == type && !o->is_poisoned ? o : NULL;
}

bool objects_is_poisoned(void *objects, uint64_t id, uint32_t type)
{
    struct object *o = slot(objects, id);
    return o && o->base.id == id && o->base.type == type && o->is_poisoned;
}

bool objects_id_is_fresh(void *objects, uint64_t id)
{
    struct object *o = id ? slot(objects, id) : NULL;
    return o && !o->live;
}

int objects_created(void *objects, uint32_t type, uint64_t id, void *handle)
{
    struct object *o = slot(objects, id);
    if (!handle && o && o->base.id == 0)
        o->base = (struct vn_object){.id = id, .type = type};
    if (!o || (handle && o != handle) || o->base.type != type || o->live)
        return -1;
    o->live = true;
    o->is_poisoned = !handle;
    return 0;
}

uint64_t fill_u64(struct filler *f)
{
    return hw_rng_u64(&f->rng);
}

uint32_t fill_below(struct filler *f, uint64_t n)
{
    return (uint32_t)hw_rng_below(&f->rng, n);
}

uint32_t fill_count(struct filler *f)
{
    return fill_below(f, FILL_COUNT_MAX + 1);
}

void fill_bytes(struct filler *f, void *dst, size_t len)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)dst)[i] = (uint8_t)fill_u64(f);
}

void fill_chars(struct filler *f, char *dst, size_t cap)
{
    uint32_t len = fill_below(f, cap < 40 ? cap : 40);
    memset(dst, 0, cap);
    for (uint32_t i = 0; i < len; i++)
        dst[i] = (char)('a' + fill_below(f, 26));
}

char *fill_string(struct filler *f)
{
    char *text = fill_alloc(f, 16, 1);
    fill_chars(f, text, 16);
    return text;
}

const char *const *fill_strings(struct filler *f, uint64_t count)
{
    const char **texts = fill_array(f, count, sizeof(*texts), false);
    for (uint64_t i = 0; fill_real(f, texts) && i < count; i++)
        texts[i] = fill_string(f);
    return texts;
}

void *fill_alloc(struct filler *f, uint64_t count, size_t size)
{
    void *memory = hw_arena_calloc(f->arena, count ? count : 1, size);
    assert(memory);
    return memory;
}

void *fill_array(struct filler *f, uint64_t count, size_t size, bool maybe)
{
    if (count == 0)
        return GARBAGE;
    if (maybe && fill_below(f, 4) == 0)
        return NULL;
    return fill_alloc(f, count, size);
}

bool fill_real(struct filler *f, const void *ptr)
{
    (void)f;
    return ptr && ptr != GARBAGE;
}

void *fill_garbage(struct filler *f)
{
    (void)f;
    return GARBAGE;
}

void *fill_handle(struct filler *f, uint32_t type)
{
    uint64_t id = ((uint64_t)type << 8) + 1 + fill_below(f, 3);
    return objects_add(f->objects, id, type);
}

void *fill_maybe(struct filler *f, uint32_t type)
{
    return fill_below(f, 4) ? fill_handle(f, type) : NULL;
}

void *fill_new(struct filler *f, uint32_t type)
{
    return f->make ? f->make(f, type) : objects_add(f->objects, f->next_id++, type);
}

void *fill_chain(struct filler *f, const uint32_t *stypes, uint32_t count, fill_node_fn *node)
{
    if (f->depth >= FILL_CHAIN_DEPTH_MAX)
        return NULL;
    VkBaseOutStructure *first = NULL, **link = &first;
    uint32_t length = fill_below(f, count < 3 ? count + 1 : 4);
    uint32_t start = fill_below(f, count);
    f->depth++;
    for (uint32_t i = 0; i < length; i++) {
        *link = node(f, stypes[(start + i) % count]);
        assert(*link);
        link = &(*link)->pNext;
    }
    f->depth--;
    return first;
}

void fill_specialization_fits(VkSpecializationInfo *s)
{
    VkSpecializationMapEntry *entries = (VkSpecializationMapEntry *)(uintptr_t)s->pMapEntries;
    for (uint32_t i = 0; i < s->mapEntryCount; i++) {
        entries[i].offset %= (uint32_t)s->dataSize + 1;
        entries[i].size %= s->dataSize - entries[i].offset + 1;
    }
}
