/* See trace.h. */
#include "venus/client/submit/trace.h"

#include "base/log.h"
#include "base/units.h"
#include "venus/client/locks.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

enum { EVERY = 100 };

struct calls {
    uint64_t count, ns, max_ns, bytes;
};

static pthread_mutex_t lock; /* guards the rest; made with the first look at the knob */
static struct calls submits, waits;
static struct vnc_invalidate_counts since_wait;
static uint64_t bytes_since_wait, largest_since_wait;

static bool enabled;

static void read_knob(void)
{
    (void)hw_env_bool("VENUS_TRACE_MEM", false, &enabled);
    vnc_lock_init(&lock);
}

bool vnc_trace_is_on(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_knob);
    return enabled;
}

static void count(struct calls *calls, uint64_t ns, uint64_t bytes)
{
    calls->count++;
    calls->ns += ns;
    calls->bytes += bytes;
    if (ns > calls->max_ns)
        calls->max_ns = ns;
}

static double mean_us(const struct calls *calls)
{
    return (double)calls->ns / (double)calls->count / 1e3;
}

void vnc_trace_map(const struct vnc_memory *memory)
{
    if (vnc_trace_is_on())
        hw_log_write(HW_CAT_MEMORY, HW_LOG_INFO, "trace map: handle=0x%" PRIx64 " size=%" PRIu64,
                     memory->object.id, (uint64_t)memory->size);
}

void vnc_trace_submit(uint64_t ns, const struct vnc_invalidate_counts *counts)
{
    if (!vnc_trace_is_on())
        return;
    pthread_mutex_lock(&lock);
    count(&submits, ns, 0);
    since_wait.eligible += counts->eligible;
    since_wait.skipped_large += counts->skipped_large;
    since_wait.skipped_handle += counts->skipped_handle;
    if (submits.count % EVERY == 0)
        hw_log_write(HW_CAT_MEMORY, HW_LOG_INFO,
                     "trace vkQueueSubmit: calls=%" PRIu64 " avg_us=%.1f max_us=%.1f",
                     submits.count, mean_us(&submits), (double)submits.max_ns / 1e3);
    pthread_mutex_unlock(&lock);
}

void vnc_trace_delta(size_t bytes)
{
    if (!vnc_trace_is_on())
        return;
    pthread_mutex_lock(&lock);
    bytes_since_wait += bytes;
    if (bytes > largest_since_wait)
        largest_since_wait = bytes;
    pthread_mutex_unlock(&lock);
}

/* Merging never skips memory that the program has written: skipped_dirty stays 0. */
static void print_wait(void)
{
    char cap[24] = "none";
    if (vnc_invalidate_cap() != UINT64_MAX)
        snprintf(cap, sizeof(cap), "%" PRIu64, vnc_invalidate_cap());
    hw_log_write(HW_CAT_MEMORY, HW_LOG_INFO,
                 "trace wait: eligible=%" PRIu64 " bytes=%" PRIu64 " largest=%" PRIu64
                 " skipped_dirty=0 skipped_large=%" PRIu64 " skipped_handle=%" PRIu64 " cap=%s",
                 since_wait.eligible, bytes_since_wait, largest_since_wait,
                 since_wait.skipped_large, since_wait.skipped_handle, cap);
}

void vnc_trace_wait(uint64_t ns)
{
    if (!vnc_trace_is_on())
        return;
    pthread_mutex_lock(&lock);
    count(&waits, ns, bytes_since_wait);
    print_wait();
    since_wait = (struct vnc_invalidate_counts){0};
    bytes_since_wait = largest_since_wait = 0;
    if (waits.count % EVERY == 0)
        hw_log_write(HW_CAT_MEMORY, HW_LOG_INFO,
                     "trace vkWaitForFences: calls=%" PRIu64 " avg_us=%.1f avg_bytes=%" PRIu64
                     " max_us=%.1f",
                     waits.count, mean_us(&waits), waits.bytes / waits.count,
                     (double)waits.max_ns / 1e3);
    pthread_mutex_unlock(&lock);
}
