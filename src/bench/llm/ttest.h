/* bench/llm/ttest.h - means with their intervals, and whether two series that were run in pairs
 * differ.
 *
 * Student's t, two-sided.  Threads: any; no state. */
#ifndef HAWSER_BENCH_LLM_TTEST_H
#define HAWSER_BENCH_LLM_TTEST_H

#include <stddef.h>

/* mean +- half is the 95% interval; half is NaN below two values, both are NaN without any. */
struct ttest_mean {
    double mean, half;
};
struct ttest_mean ttest_mean(const double *values, size_t count);

/* The probability of differences as large as these if a[i] and b[i] did not differ; NaN below two
 * pairs, 1 when all are equal. */
double ttest_paired(const double *a, const double *b, size_t count);

/* P(|T| > t) for df degrees of freedom, and the t for which it is p (0 < p < 1). */
double ttest_two_sided(double t, double df);
double ttest_quantile(double p, double df);

#endif
