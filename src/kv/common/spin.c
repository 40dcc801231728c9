#include "kv/common/spin.h"

#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { DISTRUST_MAX = 10 }; /* one try in 1,024 waits: its cost vanishes, a change is noticed */

static const uint64_t roomy_ns = 50 * HW_US; /* a few loopback round trips */
/* What an answer takes when every other client has to be woken before us: whoever spins for less
 * than that finds that spinning does not pay, sleeps, and makes it true for the others. */
static const uint64_t crowded_ns_each = 3 * HW_US;
static const uint64_t crowded_ns_max = 200 * HW_US;
/* With so many threads a core the other side most likely needs ours: only an answer that comes at
 * once is worth waiting for.  Not so on many cores, where those who are answered in time are enough
 * to keep a daemon busy; if they slept, it would be busy with wake-ups. */
enum { THRONG = 4, FEW_CORES = 4 };
static const uint64_t brief_ns = 4 * HW_US;        /* or for each that has the floor */
static const uint64_t trust_again_ns = 16 * HW_MS; /* far more than the spins that it may cost */
static const uint64_t interrupted_ns = 20 * HW_US; /* no look takes that long by itself */

void kv_spin_init(struct kv_spin *s, enum rpc_wait_mode mode)
{
    cpu_set_t cpus;
    /* Of the process: a thread that was pinned to a core of its own may well spin on it. */
    int cores = sched_getaffinity(getpid(), sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    *s = (struct kv_spin){.mode = mode, .cores = (uint32_t)cores};
}

static bool spin_failed(struct kv_spin *s, unsigned weight)
{
    unsigned distrust = s->distrust + weight;
    s->distrust = (uint8_t)(distrust > DISTRUST_MAX ? DISTRUST_MAX : distrust);
    s->rest = 1u << s->distrust;
    s->spinning = false;
    return false;
}

/* Where everybody sleeps, one that spins alone waits in vain: the daemon is busy waking the others.
 * So all try again at about the same time, and if there is room for it they all stay awake. */
static void trust_again(struct kv_spin *s, uint64_t now)
{
    uint64_t window = now / trust_again_ns;
    if (s->window == window)
        return;
    s->window = window;
    s->distrust = 0;
    s->rest = 0;
}

static bool begin(struct kv_spin *s, uint64_t now)
{
    if (s->cores < 2)
        return false;
    trust_again(s, now);
    if (s->rest > 0 && s->floor == 0) {
        s->rest--;
        return false;
    }
    s->spinning = true;
    s->since_ns = s->last_ns = now;
    return true;
}

bool kv_spin_throng(const struct kv_spin *s)
{
    return s->crowd > THRONG * s->cores;
}

static uint64_t limit(const struct kv_spin *s)
{
    if (s->floor > 0)
        return s->floor * brief_ns;
    if (s->crowd <= s->cores)
        return roomy_ns;
    if (kv_spin_throng(s) && s->cores <= FEW_CORES)
        return brief_ns;
    uint64_t ns = s->crowd * crowded_ns_each;
    return ns < roomy_ns ? roomy_ns : ns > crowded_ns_max ? crowded_ns_max : ns;
}

bool kv_spin_on(struct kv_spin *s, uint64_t now)
{
    if (s->mode != RPC_WAIT_ADAPTIVE)
        return s->mode == RPC_WAIT_BUSY;
    if (!s->spinning)
        return begin(s, now);
    if (now - s->last_ns > interrupted_ns)
        return spin_failed(s, 2);
    s->last_ns = now;
    if (now - s->since_ns >= limit(s))
        return spin_failed(s, 1);
    return true;
}

int kv_sleep(int epoll, struct epoll_event *events, int max, uint64_t timeout_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(timeout_ns / HW_SEC),
                          .tv_nsec = (long)(timeout_ns % HW_SEC)};
    int n = epoll_pwait2(epoll, events, max, timeout_ns == HW_NEVER ? NULL : &ts, NULL);
    if (n >= 0 || errno != ENOSYS)
        return n;
    bool for_ever = timeout_ns >= UINT64_C(1) << 40;
    return epoll_wait(epoll, events, max, for_ever ? -1 : (int)((timeout_ns + HW_MS - 1) / HW_MS));
}
