#include "base/order.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void hw_sort(double *values, size_t count)
{
    qsort(values, count, sizeof *values, ascending);
}

double hw_percentile(const double *sorted, size_t count, double p)
{
    assert(count > 0 && p >= 0 && p <= 100);
    double rank = (double)(count - 1) * p / 100;
    size_t low = (size_t)rank;
    size_t high = low + 1 < count ? low + 1 : low;
    return sorted[low] + (sorted[high] - sorted[low]) * (rank - (double)low);
}

double hw_median(double *values, size_t count)
{
    hw_sort(values, count);
    return hw_percentile(values, count, 50);
}

/* ---- the largest ---- */

static bool comes_first(struct hw_ranked a, struct hw_ranked b)
{
    return a.value > b.value || (a.value == b.value && a.index < b.index);
}

/* A heap whose top comes last of all in it. */
static void sink(struct hw_ranked *heap, uint32_t count, uint32_t at)
{
    struct hw_ranked moved = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && comes_first(heap[child], heap[child + 1]))
            child++;
        if (!comes_first(moved, heap[child]))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static struct hw_ranked ranked(const float *values, uint32_t i)
{
    return (struct hw_ranked){.value = isnan(values[i]) ? -INFINITY : values[i], .index = i};
}

uint32_t hw_top(const float *values, uint32_t count, uint32_t k, struct hw_ranked *out)
{
    uint32_t kept = k < count ? k : count;
    for (uint32_t i = 0; i < kept; i++)
        out[i] = ranked(values, i);
    for (uint32_t at = kept / 2; at > 0; at--)
        sink(out, kept, at - 1);
    for (uint32_t i = kept; kept > 0 && i < count; i++) {
        struct hw_ranked r = ranked(values, i);
        if (comes_first(r, out[0])) {
            out[0] = r;
            sink(out, kept, 0);
        }
    }
    for (uint32_t left = kept; left > 1;) {
        struct hw_ranked last = out[0];
        out[0] = out[--left];
        out[left] = last;
        sink(out, left, 0);
    }
    return kept;
}
