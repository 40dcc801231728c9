#include "lincheck.h"

#include <assert.h>
#include <stdlib.h>

/* Depth-first over "these operations have happened and the key holds this", each such state once.
 *
 * Where a known read fits, it happens now: it changes nothing, and later it might not fit.  A read
 * of unknown end need not happen at all, and removals of unknown end are all alike: of those that
 * may happen the first is as good as any. */
enum { STATES_AT_FIRST = 1 << 12 }; /* a power of two; half of them are used before it grows */

struct search {
    const struct lin_op *ops;
    uint32_t count;
    uint64_t required; /* operations that did happen */
    struct state {
        uint64_t done, value;
        uint32_t round; /* of the check that left it here */
    } * seen;           /* open addressing */
    uint32_t room, states, round;
};

static int by_time(const void *a, const void *b)
{
    const struct lin_op *x = a, *y = b;
    return (x->asked > y->asked) - (x->asked < y->asked);
}

/* Where the state is, or belongs. */
static struct state *place_of(const struct search *s, uint64_t done, uint64_t value)
{
    uint64_t h = (done * UINT64_C(0x9e3779b97f4a7c15)) ^ (value * UINT64_C(0xbf58476d1ce4e5b9));
    uint32_t i = (uint32_t)(h >> 32) & (s->room - 1);
    while (s->seen[i].round == s->round && (s->seen[i].done != done || s->seen[i].value != value))
        i = (i + 1) & (s->room - 1);
    return &s->seen[i];
}

static void grow(struct search *s)
{
    struct state *old = s->seen;
    uint32_t room = s->room;
    s->room = room ? 2 * room : STATES_AT_FIRST;
    s->seen = calloc(s->room, sizeof(*s->seen));
    if (!s->seen)
        abort();
    for (uint32_t i = 0; i < room; i++)
        if (old[i].round == s->round)
            *place_of(s, old[i].done, old[i].value) = old[i];
    free(old);
}

/* True when the state is new. */
static bool remember(struct search *s, uint64_t done, uint64_t value)
{
    if (2 * s->states >= s->room)
        grow(s);
    struct state *at = place_of(s, done, value);
    if (at->round == s->round)
        return false;
    *at = (struct state){done, value, s->round};
    s->states++;
    return true;
}

/* Whether it may happen now, and what the key holds then. */
static bool apply(const struct lin_op *op, uint64_t value, uint64_t *after)
{
    bool known = op->answered != LIN_NEVER;
    *after = value;
    switch (op->kind) {
    case LIN_READ:
        return value == op->value;
    case LIN_WRITE:
        *after = op->value;
        return true;
    case LIN_REMOVE:
        *after = LIN_ABSENT;
        return !known || (op->value == LIN_ABSENT) == (value == LIN_ABSENT);
    case LIN_RESET:
        *after = LIN_ABSENT;
        return true;
    }
    return false;
}

static bool is_open(const struct search *s, uint32_t i, uint64_t done)
{
    return !(done >> i & 1) && (s->ops[i].kind != LIN_READ || s->required >> i & 1);
}

static bool search(struct search *s, uint64_t done, uint64_t value)
{
    if ((done & s->required) == s->required)
        return true;
    if (!remember(s, done, value))
        return false;
    bool removed = false; /* one of the removals of unknown end was tried */
    /* Nothing may come before an operation that ended before it was asked. */
    uint64_t first_end = LIN_NEVER;
    for (uint32_t i = 0; i < s->count; i++)
        if (!(done >> i & 1) && s->ops[i].answered < first_end)
            first_end = s->ops[i].answered;
    for (uint32_t i = 0; i < s->count && s->ops[i].asked <= first_end; i++)
        if (is_open(s, i, done) && s->ops[i].kind == LIN_READ && s->ops[i].value == value)
            return search(s, done | UINT64_C(1) << i, value);
    for (uint32_t i = 0; i < s->count && s->ops[i].asked <= first_end; i++) {
        uint64_t after;
        bool any = s->ops[i].kind == LIN_REMOVE && !(s->required >> i & 1);
        if (!is_open(s, i, done) || (any && removed) || !apply(&s->ops[i], value, &after))
            continue;
        removed |= any;
        if (search(s, done | UINT64_C(1) << i, after))
            return true;
    }
    return false;
}

bool lin_check(struct lin_op *ops, uint32_t count)
{
    assert(count <= LIN_OPS_MAX);
    static struct search s; /* keeps its table */
    s = (struct search){
        .ops = ops, .count = count, .seen = s.seen, .room = s.room, .round = s.round + 1};
    qsort(ops, count, sizeof(*ops), by_time);
    for (uint32_t i = 0; i < count; i++)
        if (ops[i].answered != LIN_NEVER)
            s.required |= UINT64_C(1) << i;
    return search(&s, 0, LIN_ABSENT);
}
