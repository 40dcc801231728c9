/* page/reserve.h - the reserve thread: does work ahead of need, in small steps.
 *
 * page/handles.h makes handles with it, page/alloc.h maps pages.
 *
 * Threads: start and stop from one; wake from any, also under the caller's locks.  A step runs on
 * the reserve thread, without a lock of this file.
 * Lifetime: start/stop; the struct is the caller's.  Stop waits for the step under way. */
#ifndef HAWSER_PAGE_RESERVE_H
#define HAWSER_PAGE_RESERVE_H

#include "base/attr.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* One bounded piece of work, such as a driver call.  True: there is more. */
typedef bool page_reserve_step(void *user);

struct page_reserve { /* private */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    page_reserve_step *step;
    void *user;
    uint64_t period_ns;
    bool running, stop, woken;
};

/* Steps while there is more, then sleeps until woken, or for period_ns (0: until woken).
 * 0 or a negative errno.  Stop is harmless after a start that failed. */
int page_reserve_start(struct page_reserve *k, page_reserve_step *step, void *user,
                       uint64_t period_ns) MUST_CHECK;
void page_reserve_wake(struct page_reserve *k);
void page_reserve_stop(struct page_reserve *k);

#endif
