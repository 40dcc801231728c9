#include "lincheck.h"

#include <assert.h>
#include <stdlib.h>

/* Depth-first over "these operations have happened and the key holds this", each such state once.
 */
enum { STATES_MAX = 1 << 16 };

struct search {
    const struct lin_op *ops;
    uint32_t count;
    uint64_t required; /* operations that did happen */
    struct state {
        uint64_t done, value;
        uint32_t round; /* of the check that left it here */
    } * seen;           /* open addressing, STATES_MAX * 2 */
    uint32_t states, round;
    bool gave_up;
};

static int by_time(const void *a, const void *b)
{
    const struct lin_op *x = a, *y = b;
    return (x->asked > y->asked) - (x->asked < y->asked);
}

/* True when the state is new. */
static bool remember(struct search *s, uint64_t done, uint64_t value)
{
    uint64_t h = (done * UINT64_C(0x9e3779b97f4a7c15)) ^ (value * UINT64_C(0xbf58476d1ce4e5b9));
    uint32_t i = (uint32_t)(h >> 32) % (2 * STATES_MAX);
    for (; s->seen[i].round == s->round; i = (i + 1) % (2 * STATES_MAX))
        if (s->seen[i].done == done && s->seen[i].value == value)
            return false;
    if (++s->states >= STATES_MAX) {
        s->gave_up = true;
        return false;
    }
    s->seen[i] = (struct state){done, value, s->round};
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

static bool search(struct search *s, uint64_t done, uint64_t value)
{
    if ((done & s->required) == s->required)
        return true;
    if (!remember(s, done, value))
        return false;
    /* Nothing may come before an operation that ended before it was asked. */
    uint64_t first_end = LIN_NEVER;
    for (uint32_t i = 0; i < s->count; i++)
        if (!(done >> i & 1) && s->ops[i].answered < first_end)
            first_end = s->ops[i].answered;
    for (uint32_t i = 0; i < s->count && s->ops[i].asked <= first_end; i++) {
        uint64_t after;
        if (done >> i & 1 || !apply(&s->ops[i], value, &after))
            continue;
        if (search(s, done | UINT64_C(1) << i, after))
            return true;
    }
    return false;
}

enum lin_verdict lin_check(struct lin_op *ops, uint32_t count)
{
    assert(count <= LIN_OPS_MAX);
    static struct state seen[2 * STATES_MAX];
    static uint32_t round;
    struct search s = {.ops = ops, .count = count, .seen = seen, .round = ++round};
    qsort(ops, count, sizeof(*ops), by_time);
    for (uint32_t i = 0; i < count; i++)
        if (ops[i].answered != LIN_NEVER)
            s.required |= UINT64_C(1) << i;
    bool found = search(&s, 0, LIN_ABSENT);
    return found ? LIN_YES : s.gave_up ? LIN_TOO_LONG : LIN_NO;
}
