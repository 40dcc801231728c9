/* base/hist.h - log-linear histogram of unsigned 64-bit values, most often nanoseconds.
 *
 * Count, minimum, maximum and sum are exact.  Each power of two is cut into 128 equal buckets and
 * a percentile answers the middle of its bucket, so it is within 1/256 (0.4%) of the value that
 * nearest-rank would pick from the sorted values.  The memory is fixed, 58 KiB, for any values.
 *
 * For tables with fixed-width buckets (1 us, as in latency reports) a histogram can also keep an
 * exact linear part: hw_hist_init_linear.
 *
 * Threads: one writer; no thread reads while it writes.  One histogram a thread, merged at the end.
 * Lifetime: init/fini; the struct is the caller's, the buckets are on the heap. */
#ifndef HAWSER_BASE_HIST_H
#define HAWSER_BASE_HIST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"

enum {
    HW_HIST_SUB_BITS = 7, /* 128 buckets an octave; 6 would also hold 1%, with nothing to spare */
    HW_HIST_SUB = 1 << HW_HIST_SUB_BITS,
    HW_HIST_BUCKETS = (64 - HW_HIST_SUB_BITS + 1) * HW_HIST_SUB,
    HW_HIST_LINEAR_MAX = 1 << 16, /* 512 KiB a histogram: a table of 65 ms in 1 us lines */
};

/* Fields are private but for count, min and max: min is UINT64_MAX while count is 0. */
struct hw_hist {
    uint64_t count;
    uint64_t min;
    uint64_t max;
    unsigned __int128 sum; /* 2^64 values of 2^64 fit */
    uint64_t *buckets;
    uint64_t *linear; /* NULL without a linear part */
    uint64_t linear_width;
    uint32_t linear_count;
};

/* 0 or -ENOMEM. */
int hw_hist_init(struct hw_hist *hist) MUST_CHECK;
/* Also counts exactly in `count` buckets of `width` from 0: 0, -EINVAL (a zero, or more than
 * HW_HIST_LINEAR_MAX), -ENOMEM. */
int hw_hist_init_linear(struct hw_hist *hist, uint64_t width, uint32_t count) MUST_CHECK;
void hw_hist_fini(struct hw_hist *hist);
/* Forgets every value, keeps the memory. */
void hw_hist_reset(struct hw_hist *hist);

static inline uint32_t hw_hist_bucket(uint64_t value)
{
    if (value < HW_HIST_SUB)
        return (uint32_t)value;
    uint32_t shift = 63u - (uint32_t)__builtin_clzll(value) - HW_HIST_SUB_BITS;
    return (shift << HW_HIST_SUB_BITS) + (uint32_t)(value >> shift);
}

static inline void hw_hist_record_many(struct hw_hist *hist, uint64_t value, uint64_t times)
{
    if (UNLIKELY(times == 0))
        return;
    hist->count += times;
    hist->sum += (unsigned __int128)value * times;
    if (value < hist->min)
        hist->min = value;
    if (value > hist->max)
        hist->max = value;
    hist->buckets[hw_hist_bucket(value)] += times;
    if (hist->linear) {
        uint64_t at = value / hist->linear_width;
        if (at < hist->linear_count)
            hist->linear[at] += times;
    }
}

static inline void hw_hist_record(struct hw_hist *hist, uint64_t value)
{
    hw_hist_record_many(hist, value, 1);
}

/* Adds what `from` holds; the same as recording all its values in `into`.  -EINVAL, and nothing
 * is changed, when `into` has a linear part and `from` has not the same one. */
int hw_hist_merge(struct hw_hist *into, const struct hw_hist *from) MUST_CHECK;

/* p from 0 to 100, clamped; 0 gives the minimum, 100 the maximum; 0 when empty. */
uint64_t hw_hist_percentile(const struct hw_hist *hist, double p);
/* 0 when empty. */
double hw_hist_mean(const struct hw_hist *hist);

/* Walks the non-empty log-linear buckets upwards: start with *at = 0, stop at false.
 * Values in [low, high] (inclusive) were seen `count` times. */
struct hw_hist_range {
    uint64_t low, high, count;
};
bool hw_hist_next(const struct hw_hist *hist, uint32_t *at, struct hw_hist_range *range_out);

/* How many values were below `edge`: exact where the linear part has that edge, else the bucket
 * that holds the edge counts in proportion. */
uint64_t hw_hist_count_below(const struct hw_hist *hist, uint64_t edge);

#endif
