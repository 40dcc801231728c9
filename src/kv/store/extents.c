#include "kv/store/extents.h"

#include <assert.h>
#include <errno.h>

enum {
    SPLIT_BITS = 5, /* 32 classes to a power of two */
    SPLIT = 1 << SPLIT_BITS,
    CLASSES = 32 * SPLIT,
    WORDS = CLASSES / 64,
    NONE = UINT32_MAX
};

/* A run of granules, in use or a hole. */
struct run {
    uint32_t start, count;
    uint32_t before, after;          /* neighbours in the arena */
    uint32_t class_prev, class_next; /* a hole: others of its class; an unused run: next unused */
    bool hole;
};

struct kv_extents {
    struct kv_memory memory;
    uint32_t granules, used;
    uint32_t spare; /* runs that describe nothing */
    uint32_t run_count;
    uint64_t occupied[WORDS]; /* bit c: holes[c] is not empty */
    uint32_t holes[CLASSES];
    struct run runs[];
};

/* ---- classes ---- */

static uint32_t class_of(uint32_t granules)
{
    if (granules < SPLIT)
        return granules;
    uint32_t top = 31 - (uint32_t)__builtin_clz(granules);
    return (top - SPLIT_BITS + 1) * SPLIT + ((granules >> (top - SPLIT_BITS)) & (SPLIT - 1));
}

/* Up to the smallest size of a class. */
static uint32_t round_up(uint64_t bytes)
{
    assert(bytes > 0 && bytes <= KV_ARENA_MAX);
    uint32_t granules = (uint32_t)((bytes + KV_GRANULE - 1) / KV_GRANULE);
    if (granules < SPLIT)
        return granules;
    uint32_t step = UINT32_C(1) << (31 - (uint32_t)__builtin_clz(granules) - SPLIT_BITS);
    return (granules + step - 1) / step * step;
}

uint64_t kv_extents_size(uint64_t bytes)
{
    return (uint64_t)round_up(bytes) * KV_GRANULE;
}

/* ---- holes ---- */

static void hole_add(struct kv_extents *e, uint32_t at)
{
    struct run *r = &e->runs[at];
    uint32_t c = class_of(r->count);
    r->hole = true;
    r->class_prev = NONE;
    r->class_next = e->holes[c];
    if (e->holes[c] != NONE)
        e->runs[e->holes[c]].class_prev = at;
    e->holes[c] = at;
    e->occupied[c / 64] |= UINT64_C(1) << (c % 64);
}

static void hole_remove(struct kv_extents *e, uint32_t at)
{
    struct run *r = &e->runs[at];
    uint32_t c = class_of(r->count);
    assert(r->hole);
    r->hole = false;
    *(r->class_prev == NONE ? &e->holes[c] : &e->runs[r->class_prev].class_next) = r->class_next;
    if (r->class_next != NONE)
        e->runs[r->class_next].class_prev = r->class_prev;
    if (e->holes[c] == NONE)
        e->occupied[c / 64] &= ~(UINT64_C(1) << (c % 64));
}

static uint32_t find_hole(const struct kv_extents *e, uint32_t granules)
{
    uint32_t c = class_of(granules);
    uint64_t word = e->occupied[c / 64] & (UINT64_MAX << (c % 64));
    for (uint32_t i = c / 64;;) {
        if (word)
            return e->holes[i * 64 + (uint32_t)__builtin_ctzll(word)];
        if (++i == WORDS)
            return NONE;
        word = e->occupied[i];
    }
}

static void run_free(struct kv_extents *e, uint32_t at)
{
    e->runs[at].class_next = e->spare;
    e->spare = at;
}

/* Splits a run: the part past `granules` becomes a hole. */
static void split(struct kv_extents *e, uint32_t at, uint32_t granules)
{
    struct run *r = &e->runs[at];
    uint32_t rest = e->spare;
    assert(rest != NONE && granules < r->count);
    struct run *s = &e->runs[rest];
    e->spare = s->class_next;
    *s = (struct run){.start = r->start + granules,
                      .count = r->count - granules,
                      .before = at,
                      .after = r->after};
    if (r->after != NONE)
        e->runs[r->after].before = rest;
    r->after = rest;
    r->count = granules;
    hole_add(e, rest);
}

/* Merges the run after `at` into it. */
static void absorb_next(struct kv_extents *e, uint32_t at)
{
    struct run *r = &e->runs[at];
    uint32_t gone = r->after;
    r->count += e->runs[gone].count;
    r->after = e->runs[gone].after;
    if (r->after != NONE)
        e->runs[r->after].before = at;
    run_free(e, gone);
}

/* ---- calls ---- */

int kv_extents_create(uint64_t bytes, uint32_t extents, const struct kv_memory *memory,
                      struct kv_extents **out)
{
    if (bytes < KV_GRANULE || bytes > KV_ARENA_MAX || extents < 1 || extents > UINT32_MAX / 4)
        return -EINVAL;
    /* Two holes are never neighbours. */
    uint32_t runs = 2 * extents + 1;
    struct kv_extents *e =
        memory->alloc(memory->user, sizeof(*e) + (size_t)runs * sizeof(struct run));
    if (!e)
        return -ENOMEM;
    e->memory = *memory;
    e->granules = (uint32_t)(bytes / KV_GRANULE);
    e->run_count = runs;
    e->spare = NONE;
    for (uint32_t i = runs; i-- > 1;)
        run_free(e, i);
    for (uint32_t c = 0; c < CLASSES; c++)
        e->holes[c] = NONE;
    e->runs[0] = (struct run){.count = e->granules, .before = NONE, .after = NONE};
    hole_add(e, 0);
    *out = e;
    return 0;
}

void kv_extents_destroy(struct kv_extents *e)
{
    if (e)
        e->memory.release(e->memory.user, e);
}

int kv_extents_take(struct kv_extents *e, uint64_t bytes, uint32_t *id, uint64_t *offset)
{
    uint32_t granules = round_up(bytes);
    uint32_t at = find_hole(e, granules);
    if (at == NONE || (e->runs[at].count > granules && e->spare == NONE))
        return -ENOSPC;
    hole_remove(e, at);
    if (e->runs[at].count > granules)
        split(e, at, granules);
    e->used += granules;
    *id = at;
    *offset = (uint64_t)e->runs[at].start * KV_GRANULE;
    return 0;
}

void kv_extents_give(struct kv_extents *e, uint32_t id)
{
    assert(id < e->run_count && !e->runs[id].hole);
    e->used -= e->runs[id].count;
    uint32_t after = e->runs[id].after, before = e->runs[id].before;
    if (after != NONE && e->runs[after].hole) {
        hole_remove(e, after);
        absorb_next(e, id);
    }
    if (before != NONE && e->runs[before].hole) {
        hole_remove(e, before);
        absorb_next(e, before);
        id = before;
    }
    hole_add(e, id);
}

uint64_t kv_extents_used(const struct kv_extents *e)
{
    return (uint64_t)e->used * KV_GRANULE;
}

bool kv_extents_sound(const struct kv_extents *e)
{
    uint32_t end = 0, used = 0,
             at = 0; /* run 0 is always the first: only later ones are absorbed */
    for (bool hole = false; at != NONE; at = e->runs[at].after) {
        const struct run *r = &e->runs[at];
        if (r->start != end || r->count == 0 || (hole && r->hole))
            return false;
        end += r->count;
        used += r->hole ? 0 : r->count;
        hole = r->hole;
    }
    return end == e->granules && used == e->used;
}
