/* kv/common/spin.h - whether to look once more or to sleep.
 *
 * Spinning pays when the other side runs on another core meanwhile.  Without a second core nobody
 * spins.  With one, a wait spins for 50 us; in a crowd of more threads than cores for as long as
 * waking all of it would take, if that is longer; and in a throng of more than four threads a core,
 * where cores are few, hardly at all.  Each fruitless spin doubles the number of waits that
 * go straight to sleep, and one that was interrupted counts double; every so often all is forgiven,
 * for all at about the same time, so that a crowd does not stay asleep for ever.  A client that has
 * the floor (kv/common/region.h) spins every time, but only as long as those who have it with it
 * may take.
 *
 * Threads: one at a time.  Lifetime: a value. */
#ifndef HAWSER_KV_COMMON_SPIN_H
#define HAWSER_KV_COMMON_SPIN_H

#include "base/clock.h"
#include "rpc/rpc.h"

#include <stdbool.h>
#include <stdint.h>

struct kv_spin {
    enum rpc_wait_mode mode;
    uint32_t cores; /* that this process may run on */
    uint32_t crowd; /* threads that take part, 0: not known */
    uint32_t rest;  /* waits that sleep at once */
    uint32_t floor; /* clients that have the floor, this one among them; 0: it has not */
    uint8_t distrust;
    bool spinning;
    uint64_t since_ns, last_ns;
    uint64_t window; /* of time, since when it is trusted */
};

void kv_spin_init(struct kv_spin *spin, enum rpc_wait_mode mode);
/* What was waited for has come. */
static inline void kv_spin_won(struct kv_spin *spin)
{
    if (spin->spinning && spin->distrust > 0)
        spin->distrust--;
    spin->spinning = false;
}
/* Whether threads are far more than cores. */
bool kv_spin_throng(const struct kv_spin *spin);
/* Ends a wait without a verdict: it will sleep for a reason of its own. */
static inline void kv_spin_end(struct kv_spin *spin)
{
    spin->spinning = false;
}
/* After a fruitless look: true to look again, false to sleep now.  The first call begins a wait. */
bool kv_spin_on(struct kv_spin *spin, uint64_t now_ns);

struct epoll_event;
/* epoll_wait with a limit in nanoseconds; HW_NEVER: none. */
int kv_sleep(int epoll, struct epoll_event *events, int max, uint64_t timeout_ns);

#endif
