/* base/clock.h - monotonic time, cheap enough for every message.
 *
 * Threads: any.  hw_now_ns reads the CPU's constant-rate counter where it has one (a few
 * nanoseconds) and clock_gettime otherwise; it never goes back on one thread.  Values count
 * from an arbitrary start and are comparable within one process only. */
#ifndef HAWSER_BASE_CLOCK_H
#define HAWSER_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define HW_US UINT64_C(1000)
#define HW_MS UINT64_C(1000000)
#define HW_SEC UINT64_C(1000000000)
#define HW_NEVER UINT64_MAX

uint64_t hw_now_ns(void);

/* When ns have passed; HW_NEVER: never. */
static inline uint64_t hw_after(uint64_t ns)
{
    uint64_t now = hw_now_ns();
    return ns < HW_NEVER - now ? now + ns : HW_NEVER;
}

/* A duration as system calls take it. */
static inline struct timespec hw_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / HW_SEC), .tv_nsec = (long)(ns % HW_SEC)};
}

/* Wall clock as "2026-01-31T12:00:00Z" in buf[21]. */
enum { HW_UTC_CHARS = 21 };
void hw_utc(char buf[HW_UTC_CHARS]);

/* Cores that this process may use, whatever the calling thread is pinned to; at least 1. */
unsigned hw_cores(void);

/* One iteration of a spin loop: tells the core to let its sibling run. */
static inline void hw_cpu_relax(void)
{
#if defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#elif defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

#endif
