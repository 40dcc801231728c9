/* base/wait.h - how a thread waits: spin for a while, then sleep.
 *
 * A spin saves the wake-up of a sleeper, and pays when the other side runs on another core
 * meanwhile.  A wait therefore spins for at most its budget, and only where the process may use a
 * second core.  Each spin in vain doubles the number of waits that sleep at once; a spin that was
 * interrupted, because another thread wanted the core, counts twice.  After 320 budgets the waiter
 * starts over.  Waiters with the same budget do so at the same time: one that spins alone, while
 * the other side is busy waking sleepers, would learn nothing.
 *
 * Where more threads take part than there are cores, a spin lasts as long as waking all of them
 * may take, and hw_wait_pause yields the core.  With more than four threads a core, and few cores,
 * a spin is very short: the other side most likely needs this core.
 *
 *     while (!came()) {
 *         if (!hw_wait_spin(&w, hw_now_ns())) {
 *             ... sleep ...
 *             break;
 *         }
 *         hw_wait_pause(&w);
 *     }
 *     hw_wait_came(&w);
 *
 * Threads: a waiter belongs to one thread at a time.  Lifetime: a value. */
#ifndef HAWSER_BASE_WAIT_H
#define HAWSER_BASE_WAIT_H

#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define HW_SPIN_NS (50 * HW_US)      /* the default budget: a few loopback round trips */
#define HW_SPIN_BRIEF_NS (4 * HW_US) /* for an answer that comes at once or not soon */

struct hw_wait {
    uint64_t budget_ns; /* at most; 0: sleep at once, HW_NEVER: never sleep */
    uint32_t cores;     /* that the process may use */
    uint32_t threads;   /* caller: that take part, this one among them; 0: no more than cores */

    uint8_t penalty;   /* grows with spins in vain */
    bool spinning;     /* in the middle of a wait */
    uint32_t skip;     /* waits to go before the next spin */
    uint64_t since_ns; /* start of this spin */
    uint64_t last_ns;  /* the last look at the clock */
    uint64_t period;   /* of 320 budgets, by the clock */
};

/* budget_ns: 0 never spins, HW_NEVER never sleeps.  A budget above HW_SPIN_NS asks for four cores
 * and is HW_SPIN_NS where there are fewer.  Counts the cores of the process, not of the thread: a
 * thread that is pinned to a core of its own may spin on it. */
void hw_wait_init(struct hw_wait *w, uint64_t budget_ns);
/* The same for a given number of cores. */
void hw_wait_init_cores(struct hw_wait *w, uint64_t budget_ns, uint32_t cores);

/* After a look in vain: true to look again, false to sleep now.  The first call begins a wait. */
bool hw_wait_spin(struct hw_wait *w, uint64_t now_ns);
/* What the thread waited for has come, by spinning or after a sleep. */
static inline void hw_wait_came(struct hw_wait *w)
{
    if (w->spinning && w->penalty > 0)
        w->penalty--;
    w->spinning = false;
}
/* Ends a wait that says nothing about spinning, such as one whose time limit was short. */
static inline void hw_wait_stop(struct hw_wait *w)
{
    w->spinning = false;
}

/* Between two looks: lets the core's sibling run, or yields where threads outnumber cores. */
void hw_wait_pause(const struct hw_wait *w);
/* More than four threads a core. */
bool hw_wait_overcommitted(const struct hw_wait *w);

enum { HW_LOOKS_A_CLOCK = 16 }; /* a clock read costs as much as a look at shared memory */

/* Spins until came(user), for at most the budget and *left_ns, from which the time spent is taken.
 * True when it came.  False: sleep for up to *left_ns; came may not have been called at all. */
static inline bool hw_wait_until(struct hw_wait *w, bool (*came)(void *user), void *user,
                                 uint64_t *left_ns)
{
    uint64_t start = hw_now_ns(), now = start;
    int looks = w->threads > w->cores ? 1 : HW_LOOKS_A_CLOCK;
    while (now - start < *left_ns) {
        if (!hw_wait_spin(w, now))
            break;
        for (int i = 0; i < looks; i++) {
            if (came(user)) {
                hw_wait_came(w);
                return true;
            }
            hw_wait_pause(w);
        }
        now = hw_now_ns();
    }
    hw_wait_stop(w);
    if (*left_ns != HW_NEVER)
        *left_ns -= now - start < *left_ns ? now - start : *left_ns;
    return false;
}

/* ---- sleeping, with limits in nanoseconds; HW_NEVER: none ---- */

/* Whether a futex is used by threads of one process or of several. */
enum hw_futex { HW_FUTEX_PRIVATE, HW_FUTEX_SHARED };

/* Sleeps while *word is `seen`; may also return early.  0 or -ETIMEDOUT. */
int hw_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns, enum hw_futex kind);
void hw_futex_wake(_Atomic uint32_t *word, int count, enum hw_futex kind);

struct epoll_event;
/* As epoll_wait. */
int hw_epoll_wait(int epoll, struct epoll_event *events, int max, uint64_t timeout_ns);

/* An eventfd, which does not block from now on: for descriptors that a peer sent. */
bool hw_is_eventfd(int fd);

/* As pthread_cond_wait, at most until hw_now_ns() is until_ns; false when it is. */
bool hw_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns);

/* The calling thread does little when it wakes, and somebody waits for that: from now on it runs
 * before threads that compute, which else keep their core for milliseconds.  It gets no more of the
 * cores than before, and what it starts is not changed.  Before Linux 6.12 nothing changes. */
void hw_wake_soon(void);

#endif
