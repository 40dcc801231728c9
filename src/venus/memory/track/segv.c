#include "venus/memory/track/segv.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "base/clock.h"

enum {
    BELOW_MAX =
        4,       /* handlers a program has been seen to install, one on another; the rest repeat */
    SPINS = 100, /* before giving the core to the holder of the lock */
};

static pthread_mutex_t admin = PTHREAD_MUTEX_INITIALIZER; /* add, remove, check */
static atomic_flag spin = ATOMIC_FLAG_INIT;               /* acquire and release; what follows */
static struct vn_segv_area **areas;                       /* by address */
static size_t area_count, area_room;
static struct sigaction below[BELOW_MAX]; /* the program's handlers, the latest last */
static size_t below_count;

/* The forwarding that this thread is in.  A program's handler may call the handler that it
 * replaced, which is ours: same context, deeper frame.  Then the next handler below is the right
 * one. */
static _Thread_local struct {
    void *context;
    uintptr_t frame;
    size_t level;
} forwarding __attribute__((tls_model("initial-exec")));

/* --- the lock ------------------------------------------------------------------------------ */

static void spin_lock(void)
{
    for (unsigned tries = 0; atomic_flag_test_and_set_explicit(&spin, memory_order_acquire);) {
        if (++tries < SPINS)
            hw_cpu_relax();
        else
            sched_yield();
    }
}

static void spin_unlock(void)
{
    atomic_flag_clear_explicit(&spin, memory_order_release);
}

void vn_segv_lock(sigset_t *saved)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, saved);
    spin_lock();
}

void vn_segv_unlock(const sigset_t *saved)
{
    spin_unlock();
    pthread_sigmask(SIG_SETMASK, saved, NULL);
}

static sigset_t fork_mask; /* under both locks */

static void before_fork(void)
{
    pthread_mutex_lock(&admin);
    sigset_t saved;
    vn_segv_lock(&saved);
    fork_mask = saved;
}

static void after_fork(void)
{
    sigset_t saved = fork_mask;
    vn_segv_unlock(&saved);
    pthread_mutex_unlock(&admin);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

/* --- the handler --------------------------------------------------------------------------- */

/* The place of the first area that ends past addr. */
static size_t place_of(uintptr_t addr)
{
    size_t lo = 0, hi = area_count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (areas[mid]->end > addr)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static bool allow(uintptr_t addr)
{
    size_t at = place_of(addr);
    if (at == area_count || addr < areas[at]->start)
        return false;
    return areas[at]->fault(areas[at], addr);
}

static void die_by_default(int sig, bool sent)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigaction(sig, &plain, NULL);
    if (sent)
        raise(sig); /* pending until we return; a fault happens again by itself */
}

static void forward(const struct sigaction *to, int sig, siginfo_t *info, void *context)
{
    bool sent = info->si_code <= 0;
    if (!(to->sa_flags & SA_SIGINFO) && to->sa_handler == SIG_IGN && sent)
        return;
    if (!(to->sa_flags & SA_SIGINFO) && (to->sa_handler == SIG_DFL || to->sa_handler == SIG_IGN)) {
        die_by_default(sig, sent);
        return;
    }
    sigset_t mask = ((ucontext_t *)context)->uc_sigmask;
    sigorset(&mask, &mask, &to->sa_mask);
    if (!(to->sa_flags & SA_NODEFER))
        sigaddset(&mask, sig);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (to->sa_flags & SA_SIGINFO)
        to->sa_sigaction(sig, info, context);
    else
        to->sa_handler(sig);
}

/* Under the lock: the handler `level` places below the topmost. */
static struct sigaction handler_below(size_t level)
{
    if (level >= below_count)
        return (struct sigaction){.sa_handler = SIG_DFL};
    struct sigaction *to = &below[below_count - 1 - level];
    struct sigaction found = *to;
    if (found.sa_flags & (int)SA_RESETHAND)
        *to = (struct sigaction){.sa_handler = SIG_DFL};
    return found;
}

static void on_segv(int sig, siginfo_t *info, void *context)
{
    int saved = errno;
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    bool nested = forwarding.context == context && frame < forwarding.frame;
    size_t level = nested ? forwarding.level + 1 : 0;
    struct sigaction to;
    spin_lock();
    bool allowed = info->si_code == SEGV_ACCERR && allow((uintptr_t)info->si_addr);
    if (!allowed)
        to = handler_below(level);
    spin_unlock();
    errno = saved;
    if (allowed)
        return;
    forwarding.context = context;
    forwarding.frame = frame;
    forwarding.level = level;
    forward(&to, sig, info, context);
}

/* --- areas --------------------------------------------------------------------------------- */

static bool is_ours(const struct sigaction *action)
{
    return action->sa_flags & SA_SIGINFO && action->sa_sigaction == on_segv;
}

static bool is_same(const struct sigaction *a, const struct sigaction *b)
{
    return a->sa_flags == b->sa_flags &&
           (a->sa_flags & SA_SIGINFO ? a->sa_sigaction == b->sa_sigaction
                                     : a->sa_handler == b->sa_handler);
}

/* A handler seen before moves to the top; the oldest goes when there are too many. */
static void push_below(const struct sigaction *action)
{
    sigset_t saved;
    vn_segv_lock(&saved);
    size_t at = 0;
    while (at < below_count && !is_same(&below[at], action))
        at++;
    if (at == below_count && below_count < BELOW_MAX)
        below_count++;
    else if (at == below_count)
        at = 0;
    size_t after = below_count - 1 - at;
    memmove(&below[at], &below[at + 1], after * sizeof(below[0]));
    below[below_count - 1] = *action;
    vn_segv_unlock(&saved);
}

static int put_on_top(void)
{
    struct sigaction found;
    if (sigaction(SIGSEGV, NULL, &found))
        return -errno;
    if (is_ours(&found))
        return 0;
    push_below(&found); /* before the swap: a fault right after it must find it */
    struct sigaction ours = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigfillset(&ours.sa_mask);
    struct sigaction replaced;
    if (sigaction(SIGSEGV, &ours, &replaced))
        return -errno;
    if (!is_ours(&replaced) && !is_same(&replaced, &found))
        push_below(&replaced);
    return 0;
}

int vn_segv_check(void)
{
    pthread_mutex_lock(&admin);
    int err = put_on_top();
    pthread_mutex_unlock(&admin);
    return err;
}

static int insert(struct vn_segv_area *area)
{
    struct vn_segv_area **bigger = NULL, **old = NULL;
    if (area_count == area_room) {
        bigger = malloc((area_room * 2 + 16) * sizeof(*bigger));
        if (!bigger)
            return -ENOMEM;
    }
    sigset_t saved;
    vn_segv_lock(&saved);
    if (bigger) {
        if (area_count)
            memcpy(bigger, areas, area_count * sizeof(*bigger));
        old = areas;
        areas = bigger;
        area_room = area_room * 2 + 16;
    }
    size_t at = place_of(area->start);
    memmove(&areas[at + 1], &areas[at], (area_count - at) * sizeof(*areas));
    areas[at] = area;
    area_count++;
    vn_segv_unlock(&saved);
    free(old);
    return 0;
}

int vn_segv_add(struct vn_segv_area *area)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    assert(area->start < area->end);
    pthread_mutex_lock(&admin);
    int err = put_on_top();
    if (!err)
        err = insert(area);
    pthread_mutex_unlock(&admin);
    return err;
}

/* Restores the program's handler, unless it has put another on ours and may call ours. */
static void take_off(void)
{
    struct sigaction found;
    if (sigaction(SIGSEGV, NULL, &found) || !is_ours(&found) || below_count == 0)
        return;
    if (sigaction(SIGSEGV, &below[below_count - 1], NULL) == 0)
        below_count = 0;
}

void vn_segv_remove(struct vn_segv_area *area)
{
    pthread_mutex_lock(&admin);
    struct vn_segv_area **old = NULL;
    sigset_t saved;
    vn_segv_lock(&saved);
    size_t at = place_of(area->start);
    assert(at < area_count && areas[at] == area);
    area_count--;
    memmove(&areas[at], &areas[at + 1], (area_count - at) * sizeof(*areas));
    if (area_count == 0) {
        take_off();
        old = areas;
        areas = NULL;
        area_room = 0;
    }
    vn_segv_unlock(&saved);
    free(old);
    pthread_mutex_unlock(&admin);
}
