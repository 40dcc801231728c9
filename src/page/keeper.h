/* page/keeper.h - a thread that does small pieces of work ahead of need, and stops at once.
 *
 * Threads: start and stop from one; wake from any, also under the caller's locks.  The step runs on
 * the keeper's thread with no lock of the keeper held.
 * Lifetime: start/stop; the struct is the caller's.  Stop waits for the step under way at most. */
#ifndef HAWSER_PAGE_KEEPER_H
#define HAWSER_PAGE_KEEPER_H

#include "base/attr.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* One bounded piece of work, a driver call or so.  True: there is more. */
typedef bool page_keeper_step(void *user);

struct page_keeper { /* private */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    page_keeper_step *step;
    void *user;
    uint64_t period_ns;
    bool running, stop, woken;
};

/* Steps while there is more, then sleeps until woken, or for period_ns (0: until woken).
 * 0 or a negative errno; stopping a keeper that did not start is harmless. */
int page_keeper_start(struct page_keeper *k, page_keeper_step *step, void *user,
                      uint64_t period_ns) MUST_CHECK;
void page_keeper_wake(struct page_keeper *k);
void page_keeper_stop(struct page_keeper *k);

#endif
