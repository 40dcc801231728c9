/* base/looks.h - time that may count against a peer: only while its judge looked.
 *
 * A judge that did not run, because its machine slept, its process was stopped or the scheduler
 * starved it, wakes to a clock that has moved on.  The peer was not silent for that long: its judge
 * was deaf.  So a judge looks every so often, and a look that comes late counts for little.
 *
 *     hw_looks_init(&looks, window / 4, now);
 *     ...
 *     looked = hw_looks_at(&looks, now);
 *     if (... something has arrived ...)
 *         heard = looked;
 *     if (looked - heard >= window)
 *         ... the peer is silent ...
 *
 * Threads: one at a time.  Lifetime: a value. */
#ifndef HAWSER_BASE_LOOKS_H
#define HAWSER_BASE_LOOKS_H

#include "base/clock.h"

#include <assert.h>

struct hw_looks {
    uint64_t every_ns; /* the longest the judge means to sleep; HW_NEVER: all time counts */
    uint64_t last_ns;
    uint64_t missed_ns; /* that does not count */
};

static inline void hw_looks_init(struct hw_looks *l, uint64_t every_ns, uint64_t now_ns)
{
    assert(every_ns > 0);
    *l = (struct hw_looks){.every_ns = every_ns, .last_ns = now_ns};
}

/* A look: now_ns without all that was missed, which never goes back.  Of what lies before a late
 * look, half an interval counts: a judge that is always late still finds a dead peer, after twice
 * as many looks. */
static inline uint64_t hw_looks_at(struct hw_looks *l, uint64_t now_ns)
{
    if (now_ns < l->last_ns)
        now_ns = l->last_ns; /* two threads' clocks differ a little */
    uint64_t gap = now_ns - l->last_ns, half = l->every_ns / 2;
    if (l->every_ns != HW_NEVER && gap > l->every_ns + half)
        l->missed_ns += gap - half;
    l->last_ns = now_ns;
    return now_ns - l->missed_ns;
}

#endif
