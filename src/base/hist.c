#include "base/hist.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t bucket_low(uint32_t bucket)
{
    assert(bucket < HW_HIST_BUCKETS);
    if (bucket < 2 * HW_HIST_SUB)
        return bucket;
    uint32_t shift = (bucket >> HW_HIST_SUB_BITS) - 1;
    return (uint64_t)(bucket - (shift << HW_HIST_SUB_BITS)) << shift;
}

static uint64_t bucket_high(uint32_t bucket)
{
    return bucket + 1 == HW_HIST_BUCKETS ? UINT64_MAX : bucket_low(bucket + 1) - 1;
}

int hw_hist_init(struct hw_hist *hist)
{
    uint64_t *buckets = calloc(HW_HIST_BUCKETS, sizeof *buckets);
    if (!buckets)
        return -ENOMEM;
    *hist = (struct hw_hist){.min = UINT64_MAX, .buckets = buckets};
    return 0;
}

int hw_hist_init_linear(struct hw_hist *hist, uint64_t width, uint32_t count)
{
    if (width == 0 || count == 0 || count > HW_HIST_LINEAR_MAX)
        return -EINVAL;
    uint64_t *linear = calloc(count, sizeof *linear);
    if (!linear)
        return -ENOMEM;
    int rc = hw_hist_init(hist);
    if (rc < 0) {
        free(linear);
        return rc;
    }
    hist->linear = linear;
    hist->linear_width = width;
    hist->linear_count = count;
    return 0;
}

void hw_hist_fini(struct hw_hist *hist)
{
    free(hist->buckets);
    free(hist->linear);
    memset(hist, 0, sizeof *hist);
}

void hw_hist_reset(struct hw_hist *hist)
{
    hist->count = 0;
    hist->min = UINT64_MAX;
    hist->max = 0;
    hist->sum = 0;
    memset(hist->buckets, 0, HW_HIST_BUCKETS * sizeof *hist->buckets);
    if (hist->linear)
        memset(hist->linear, 0, hist->linear_count * sizeof *hist->linear);
}

int hw_hist_merge(struct hw_hist *into, const struct hw_hist *from)
{
    assert(into != from);
    if (into->linear &&
        (into->linear_width != from->linear_width || into->linear_count != from->linear_count))
        return -EINVAL;
    into->count += from->count;
    into->sum += from->sum;
    if (from->min < into->min)
        into->min = from->min;
    if (from->max > into->max)
        into->max = from->max;
    for (uint32_t i = 0; i < HW_HIST_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
    if (into->linear)
        for (uint32_t i = 0; i < into->linear_count; i++)
            into->linear[i] += from->linear[i];
    return 0;
}

bool hw_hist_next(const struct hw_hist *hist, uint32_t *at, struct hw_hist_range *range_out)
{
    while (*at < HW_HIST_BUCKETS && hist->buckets[*at] == 0)
        ++*at;
    if (*at >= HW_HIST_BUCKETS)
        return false;
    *range_out = (struct hw_hist_range){bucket_low(*at), bucket_high(*at), hist->buckets[*at]};
    /* The outermost values are known exactly. */
    if (range_out->low < hist->min)
        range_out->low = hist->min;
    if (range_out->high > hist->max)
        range_out->high = hist->max;
    ++*at;
    return true;
}

uint64_t hw_hist_percentile(const struct hw_hist *hist, double p)
{
    if (hist->count == 0)
        return 0;
    if (!(p > 0))
        return hist->min;
    if (p >= 100)
        return hist->max;
    /* Nearest rank, from 1.  Where doubles cannot hold the count the rank is off by far less than
     * what a percentile means. */
    double wanted = ceil(p / 100 * (double)hist->count);
    uint64_t rank = wanted < 1 ? 1 : wanted >= 0x1p64 ? hist->count : (uint64_t)wanted;
    uint64_t seen = 0;
    struct hw_hist_range range;
    for (uint32_t at = 0; hw_hist_next(hist, &at, &range);) {
        seen += range.count;
        if (seen >= rank)
            return range.low + (range.high - range.low) / 2;
    }
    return hist->max;
}

double hw_hist_mean(const struct hw_hist *hist)
{
    return hist->count == 0 ? 0 : (double)hist->sum / (double)hist->count;
}

uint64_t hw_hist_count_below(const struct hw_hist *hist, uint64_t edge)
{
    uint64_t below = 0;
    if (hist->linear && edge % hist->linear_width == 0 &&
        edge / hist->linear_width <= hist->linear_count) {
        for (uint64_t i = 0; i < edge / hist->linear_width; i++)
            below += hist->linear[i];
        return below;
    }
    struct hw_hist_range range;
    for (uint32_t at = 0; hw_hist_next(hist, &at, &range) && range.low < edge;) {
        if (range.high < edge) {
            below += range.count;
            continue;
        }
        unsigned __int128 width = (unsigned __int128)(range.high - range.low) + 1;
        below += (uint64_t)((unsigned __int128)range.count * (edge - range.low) / width);
    }
    return below;
}
