/* base/order.h - medians, percentiles and the largest of an array.
 *
 * For small arrays of measurements, and for the logits of a token; base/hist.h counts large numbers
 * of measurements without keeping them.
 *
 * Threads: any, on different arrays. */
#ifndef HAWSER_BASE_ORDER_H
#define HAWSER_BASE_ORDER_H

#include <stddef.h>
#include <stdint.h>

/* Ascending. */
void hw_sort(double *values, size_t count);
/* Of sorted values, p from 0 to 100, interpolated between the two around the rank.  count > 0. */
double hw_percentile(const double *sorted, size_t count, double p);
/* Sorts the values.  The mean of the two in the middle when count is even.  count > 0. */
double hw_median(double *values, size_t count);

struct hw_ranked {
    float value;
    uint32_t index;
};

/* The k largest of the values into out[k], largest first; of equal ones the lower index first.  NaN
 * counts as -INFINITY, and is shown so.  Returns how many: the smaller of k and count. */
uint32_t hw_top(const float *values, uint32_t count, uint32_t k, struct hw_ranked *out);

#endif
