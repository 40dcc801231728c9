#include "kv/store/claims.h"

#include <assert.h>
#include <errno.h>

enum { NONE = KV_CLAIM_NONE };

struct claim {
    struct kv_claim_list *holder; /* NULL: free */
    uint64_t expires_ns;
    uint32_t generation; /* of this claim, or of the next one where it is free; from 1 */
    uint32_t entry;
    uint32_t held_prev, held_next; /* of one holder */
    uint32_t due_prev, due_next;   /* of all, by time; free: the next free one */
};

struct kv_claims {
    struct kv_memory memory;
    uint64_t lasts_ns;
    uint32_t place_count, taken, spare, due_first, due_last;
    struct claim claims[];
};

int kv_claims_create(uint32_t count, uint64_t lasts_ns, const struct kv_memory *memory,
                     struct kv_claims **out)
{
    if (count < 1 || count >= NONE)
        return -EINVAL;
    struct kv_claims *c =
        memory->alloc(memory->user, sizeof(*c) + (size_t)count * sizeof(struct claim));
    if (!c)
        return -ENOMEM;
    c->memory = *memory;
    c->lasts_ns = lasts_ns;
    c->place_count = count;
    c->due_first = c->due_last = NONE;
    for (uint32_t i = 0; i < count; i++)
        c->claims[i] = (struct claim){.generation = 1, .due_next = i + 1 < count ? i + 1 : NONE};
    *out = c;
    return 0;
}

void kv_claims_destroy(struct kv_claims *c)
{
    if (c)
        c->memory.release(c->memory.user, c);
}

static void due_add(struct kv_claims *c, uint32_t at, uint64_t now)
{
    struct claim *l = &c->claims[at];
    l->expires_ns = now + c->lasts_ns;
    if (l->holder->lasting)
        return;
    l->due_next = NONE;
    l->due_prev = c->due_last;
    *(c->due_last == NONE ? &c->due_first : &c->claims[c->due_last].due_next) = at;
    c->due_last = at;
}

static void due_remove(struct kv_claims *c, uint32_t at)
{
    struct claim *l = &c->claims[at];
    if (l->holder->lasting)
        return;
    *(l->due_prev == NONE ? &c->due_first : &c->claims[l->due_prev].due_next) = l->due_next;
    *(l->due_next == NONE ? &c->due_last : &c->claims[l->due_next].due_prev) = l->due_prev;
}

uint32_t kv_claims_take(struct kv_claims *c, struct kv_claim_list *holder, uint32_t entry,
                        uint64_t now)
{
    uint32_t at = c->spare;
    if (at == NONE)
        return NONE;
    struct claim *l = &c->claims[at];
    c->spare = l->due_next;
    c->taken++;
    l->holder = holder;
    l->entry = entry;
    l->held_prev = NONE;
    l->held_next = holder->first;
    if (holder->first != NONE)
        c->claims[holder->first].held_prev = at;
    holder->first = at;
    holder->count++;
    due_add(c, at, now);
    return at;
}

void kv_claims_drop(struct kv_claims *c, uint32_t at)
{
    struct claim *l = &c->claims[at];
    assert(at < c->place_count && l->holder);
    due_remove(c, at);
    *(l->held_prev == NONE ? &l->holder->first : &c->claims[l->held_prev].held_next) = l->held_next;
    if (l->held_next != NONE)
        c->claims[l->held_next].held_prev = l->held_prev;
    l->holder->count--;
    l->holder = NULL;
    l->generation += l->generation == UINT32_MAX ? 2 : 1; /* never 0 */
    l->due_next = c->spare;
    c->spare = at;
    c->taken--;
}

void kv_claims_renew(struct kv_claims *c, uint32_t at, uint64_t now)
{
    assert(at < c->place_count && c->claims[at].holder);
    due_remove(c, at);
    due_add(c, at, now);
}

uint64_t kv_claims_handle(const struct kv_claims *c, uint32_t at)
{
    return (uint64_t)c->claims[at].generation << 32 | at;
}

int kv_claims_find(const struct kv_claims *c, const struct kv_claim_list *holder, uint64_t handle,
                   uint32_t *place)
{
    uint32_t at = (uint32_t)handle, generation = (uint32_t)(handle >> 32);
    if (at >= c->place_count || generation == 0 || generation > c->claims[at].generation)
        return -EINVAL;
    const struct claim *l = &c->claims[at];
    if (generation < l->generation)
        return -ESTALE;
    if (l->holder != holder)
        return -EINVAL; /* another holder's, or not given yet */
    *place = at;
    return 0;
}

uint32_t kv_claims_entry(const struct kv_claims *c, uint32_t at)
{
    assert(at < c->place_count && c->claims[at].holder);
    return c->claims[at].entry;
}

uint64_t kv_claims_expires_ns(const struct kv_claims *c, uint32_t at)
{
    return c->claims[at].expires_ns;
}

uint32_t kv_claims_next(const struct kv_claims *c)
{
    return c->due_first;
}

uint32_t kv_claims_count(const struct kv_claims *c)
{
    return c->taken;
}
