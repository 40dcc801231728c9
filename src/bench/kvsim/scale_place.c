/* scale_place.c - the owners of every block in every view.
 *
 * Only the first view is placed by looking at all members for each block.  By rendezvous hashing
 * the owners after a join are the best of those before and the one that joins, and a leave matters
 * to the leaver's own blocks alone: tests hold that to placing all again. */
#include "bench/kvsim/scale_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kv_block_key kv_scale_key(uint32_t id)
{
    struct kv_block_key key;
    int rc = kv_block_key_set(&key, &id, sizeof(id));
    assert(rc == 0);
    (void)rc;
    return key;
}

static struct kv_member member_of(uint32_t n)
{
    struct kv_member m = {0};
    snprintf(m.name, sizeof(m.name), "member-%05u", n);
    m.id = kv_member_id(m.name);
    return m;
}

/* The members of one view, by name, and their numbers. */
struct present {
    uint32_t count;
    struct kv_member *members;
    uint32_t *numbers;
};

static void present_add(struct present *p, uint32_t number)
{
    assert(p->count == 0 || p->numbers[p->count - 1] < number);
    p->members[p->count] = member_of(number);
    p->numbers[p->count++] = number;
}

static void present_remove(struct present *p, uint32_t number)
{
    uint32_t at = 0;
    while (p->numbers[at] != number)
        at++;
    p->count--;
    memmove(&p->members[at], &p->members[at + 1], (p->count - at) * sizeof(p->members[0]));
    memmove(&p->numbers[at], &p->numbers[at + 1], (p->count - at) * sizeof(p->numbers[0]));
}

static void place(const struct present *p, uint32_t id, uint32_t copies, uint32_t *out)
{
    struct kv_block_key key = kv_scale_key(id);
    uint32_t owners[KV_COPIES_MAX];
    uint32_t n = kv_owners_among(p->members, p->count, kv_block_hash(&key), copies, owners);
    for (uint32_t i = 0; i < copies; i++)
        out[i] = i < n ? p->numbers[owners[i]] : KV_SCALE_NOBODY;
}

/* The best of those before, which are not in the order of their names, and of who joins, which is
 * the last in it. */
static void place_joined(const uint32_t *before, uint32_t id, uint32_t copies, uint32_t joiner,
                         uint32_t *out)
{
    struct kv_member members[KV_COPIES_MAX + 1];
    uint32_t numbers[KV_COPIES_MAX + 1];
    struct present few = {.members = members, .numbers = numbers};
    uint32_t low = before[0], high = before[copies - 1];
    if (low > high) { /* also where the second is nobody, which is the highest number */
        low = before[copies - 1];
        high = before[0];
    }
    present_add(&few, low);
    if (high != low && high != KV_SCALE_NOBODY)
        present_add(&few, high);
    present_add(&few, joiner);
    place(&few, id, copies, out);
}

static void place_step(const struct kv_scale_map *m, uint32_t view, const struct present *p,
                       const struct kv_scale_step *step)
{
    for (uint32_t id = 0; id < m->ids; id++) {
        const uint32_t *before = kv_scale_owners(m, view - 1, id);
        uint32_t *out = m->owners + ((size_t)view * m->ids + id) * m->copies;
        if (step->change == KV_SCALE_JOIN)
            place_joined(before, id, m->copies, step->member, out);
        else if (before[0] == step->member || before[m->copies - 1] == step->member)
            place(p, id, m->copies, out);
        else
            memcpy(out, before, m->copies * sizeof(*out));
    }
}

static void place_all(const struct kv_scale_map *m, struct present *p, uint32_t members,
                      const struct kv_scale_step *steps)
{
    for (uint32_t i = 0; i < members; i++)
        present_add(p, i);
    for (uint32_t id = 0; id < m->ids; id++)
        place(p, id, m->copies, m->owners + (size_t)id * m->copies);
    for (uint32_t view = 1; view < m->views; view++) {
        const struct kv_scale_step *step = &steps[view - 1];
        if (step->change == KV_SCALE_JOIN)
            present_add(p, step->member);
        else
            present_remove(p, step->member);
        place_step(m, view, p, step);
    }
}

int kv_scale_map_init(struct kv_scale_map *m, uint32_t ids, uint32_t copies, uint32_t members,
                      const struct kv_scale_step *steps, uint32_t count)
{
    size_t most = (size_t)members + count;
    struct present p = {.members = calloc(most, sizeof(p.members[0])),
                        .numbers = calloc(most, sizeof(p.numbers[0]))};
    struct kv_scale_map map = {.ids = ids, .copies = copies, .views = count + 1};
    map.owners = calloc((size_t)map.views * ids * copies, sizeof(*map.owners));
    bool ok = p.members && p.numbers && map.owners;
    if (ok) {
        place_all(&map, &p, members, steps);
        *m = map;
    } else {
        free(map.owners);
    }
    free(p.members);
    free(p.numbers);
    return ok ? 0 : -ENOMEM;
}

void kv_scale_map_fini(struct kv_scale_map *m)
{
    free(m->owners);
}
