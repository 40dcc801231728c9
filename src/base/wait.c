#include "base/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    PENALTY_MAX = 10,        /* a spin in 1,024 waits: its cost vanishes, a change is noticed */
    BUDGETS_A_PERIOD = 320,  /* a period has at most seven spins in vain: 2% of its time */
    LONG_SPIN_CORES = 4,     /* both ends, what they wait for, and one for the others */
    FEW_CORES = 4,           /* more can keep a server busy while some of the threads spin */
    THREADS_A_CORE = 4,      /* with more the other side most likely needs this core */
    INTERRUPTED_BUDGETS = 4, /* a long spin meets small delays: a part of its budget is none */
};

/* A scheduler's slice is longer, sixteen looks by system call are shorter. */
static const uint64_t interrupted_ns = 50 * HW_US;
/* What waking one thread takes.  A spin that is too short for all the others fails, the thread
 * sleeps, and so makes waiting longer for the others. */
static const uint64_t wake_ns = 3 * HW_US;
static const uint64_t wake_all_ns_max = 200 * HW_US;

void hw_wait_init_cores(struct hw_wait *w, uint64_t budget_ns, uint32_t cores)
{
    bool is_long = budget_ns > HW_SPIN_NS && budget_ns != HW_NEVER;
    if (is_long && cores < LONG_SPIN_CORES)
        budget_ns = HW_SPIN_NS;
    *w = (struct hw_wait){.budget_ns = budget_ns, .cores = cores};
}

void hw_wait_init(struct hw_wait *w, uint64_t budget_ns)
{
    hw_wait_init_cores(w, budget_ns, hw_cores());
}

bool hw_wait_overcommitted(const struct hw_wait *w)
{
    return w->threads > THREADS_A_CORE * w->cores;
}

static uint64_t budget(const struct hw_wait *w)
{
    if (w->threads <= w->cores)
        return w->budget_ns;
    if (hw_wait_overcommitted(w) && w->cores <= FEW_CORES)
        return HW_SPIN_BRIEF_NS;
    uint64_t all = w->threads * wake_ns;
    if (all > wake_all_ns_max)
        all = wake_all_ns_max;
    return all > w->budget_ns ? all : w->budget_ns;
}

static void start_over_each_period(struct hw_wait *w, uint64_t now_ns)
{
    uint64_t period = now_ns / (BUDGETS_A_PERIOD * w->budget_ns);
    if (w->period == period)
        return;
    w->period = period;
    w->penalty = 0;
    w->skip = 0;
}

static bool begin(struct hw_wait *w, uint64_t now_ns)
{
    if (w->cores < 2)
        return false;
    start_over_each_period(w, now_ns);
    if (w->skip > 0) {
        w->skip--;
        return false;
    }
    w->spinning = true;
    w->since_ns = w->last_ns = now_ns;
    return true;
}

static bool give_up(struct hw_wait *w, unsigned weight)
{
    unsigned penalty = w->penalty + weight;
    w->penalty = (uint8_t)(penalty > PENALTY_MAX ? PENALTY_MAX : penalty);
    w->skip = UINT32_C(1) << w->penalty;
    w->spinning = false;
    return false;
}

bool hw_wait_spin(struct hw_wait *w, uint64_t now_ns)
{
    if (w->budget_ns == 0 || w->budget_ns == HW_NEVER)
        return w->budget_ns == HW_NEVER;
    if (!w->spinning)
        return begin(w, now_ns);
    uint64_t part = w->budget_ns / INTERRUPTED_BUDGETS;
    if (now_ns - w->last_ns > (part > interrupted_ns ? part : interrupted_ns))
        return give_up(w, 2);
    w->last_ns = now_ns;
    if (now_ns - w->since_ns >= budget(w))
        return give_up(w, 1);
    return true;
}

void hw_wait_pause(const struct hw_wait *w)
{
    if (w->threads > w->cores)
        sched_yield();
    else
        hw_cpu_relax();
}

/* ---- sleeping ---- */

int hw_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns, enum hw_futex kind)
{
    struct timespec limit = hw_timespec(timeout_ns);
    int op = kind == HW_FUTEX_PRIVATE ? FUTEX_WAIT_PRIVATE : FUTEX_WAIT;
    long rc = syscall(SYS_futex, word, op, seen, timeout_ns == HW_NEVER ? NULL : &limit, NULL, 0);
    return rc < 0 && errno == ETIMEDOUT ? -ETIMEDOUT : 0;
}

void hw_futex_wake(_Atomic uint32_t *word, int count, enum hw_futex kind)
{
    int op = kind == HW_FUTEX_PRIVATE ? FUTEX_WAKE_PRIVATE : FUTEX_WAKE;
    syscall(SYS_futex, word, op, count, NULL, NULL, 0);
}

int hw_epoll_wait(int epoll, struct epoll_event *events, int max, uint64_t timeout_ns)
{
    struct timespec limit = hw_timespec(timeout_ns);
    int n = epoll_pwait2(epoll, events, max, timeout_ns == HW_NEVER ? NULL : &limit, NULL);
    if (n >= 0 || errno != ENOSYS)
        return n;
    bool for_ever = timeout_ns >= UINT64_C(1) << 40; /* about what an int of milliseconds holds */
    return epoll_wait(epoll, events, max, for_ever ? -1 : (int)((timeout_ns + HW_MS - 1) / HW_MS));
}

bool hw_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns)
{
    uint64_t now = hw_now_ns(), left = until_ns > now ? until_ns - now : 0;
    struct timespec t;
    if (left > HW_NEVER / 2) /* centuries, and the sum below must fit */
        return pthread_cond_wait(cond, lock) == 0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t = hw_timespec((uint64_t)t.tv_sec * HW_SEC + (uint64_t)t.tv_nsec + left);
    return pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &t) != ETIMEDOUT;
}

bool hw_is_eventfd(int fd)
{
    char link[64], target[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, target, sizeof(target) - 1);
    if (n < 0)
        return false;
    target[n] = '\0';
    return strcmp(target, "anon_inode:[eventfd]") == 0 &&
           fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0;
}

/* ---- waking ---- */

/* The kernel's struct sched_attr as it began; its header cannot stand beside glibc's. */
struct sched {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

/* The shortest slice that Linux gives; a thread that wakes runs before one whose slice is longer.
 */
static const uint64_t soon_ns = 100 * HW_US;

void hw_wake_soon(void)
{
    struct sched attr = {.size = sizeof attr};
    if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) || attr.policy != SCHED_OTHER ||
        attr.nice < 0) /* which the flag below would take from what it starts */
        return;
    attr.runtime = soon_ns;
    attr.flags |= SCHED_FLAG_RESET_ON_FORK;
    /* Where it is refused, answers only come later. */
    (void)syscall(SYS_sched_setattr, 0, &attr, 0);
}
