#include "base/clock.h"

#include <assert.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

static uint64_t gettime_ns(void)
{
    struct timespec t;
    int rc = clock_gettime(CLOCK_MONOTONIC, &t);
    assert(rc == 0);
    (void)rc;
    return (uint64_t)t.tv_sec * HW_SEC + (uint64_t)t.tv_nsec;
}

#if defined(__aarch64__)

/* The generic timer runs at a constant, architecturally readable rate, synchronised across
 * cores.  ns = count * mult >> 20; the product is 128 bits wide, so it cannot overflow. */
static uint64_t mult_20;

__attribute__((constructor)) static void clock_calibrate(void)
{
    uint64_t hz;
    __asm__("mrs %0, cntfrq_el0" : "=r"(hz));
    if (hz >= 1000000)
        mult_20 = (HW_SEC << 20) / hz;
}

uint64_t hw_now_ns(void)
{
    if (__builtin_expect(mult_20 == 0, 0))
        return gettime_ns();
    uint64_t count;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
    return (uint64_t)(((unsigned __int128)count * mult_20) >> 20);
}

#else

uint64_t hw_now_ns(void)
{
    return gettime_ns();
}

#endif

void hw_utc(char buf[HW_UTC_CHARS])
{
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(buf, HW_UTC_CHARS, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

unsigned hw_cores(void)
{
    cpu_set_t cpus[16]; /* 16,384: the kernel refuses a set for fewer than it may have */
    return sched_getaffinity(getpid(), sizeof cpus, cpus) == 0
               ? (unsigned)CPU_COUNT_S(sizeof cpus, cpus)
               : 1;
}
