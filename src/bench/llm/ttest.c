#include "bench/llm/ttest.h"

#include <math.h>

/* The continued fraction of the incomplete beta function, by Lentz's method. */
static double beta_fraction(double x, double a, double b)
{
    enum { TERMS_MAX = 300 }; /* a hundred are enough for every df below a million */
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double value = d;
    for (int m = 1; m <= TERMS_MAX; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        double before = value;
        for (int i = 0; i < 2; i++) {
            double term = i ? odd : even;
            d = 1 + term * d;
            c = 1 + term / c;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = fabs(c) < tiny ? tiny : c;
            value *= c * d;
        }
        if (fabs(value - before) <= 1e-15 * fabs(value))
            break;
    }
    return value;
}

static double incomplete_beta(double x, double a, double b)
{
    if (x <= 0 || x >= 1)
        return x <= 0 ? 0 : 1;
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    if (x < (a + 1) / (a + b + 2))
        return front * beta_fraction(x, a, b) / a;
    return 1 - front * beta_fraction(1 - x, b, a) / b;
}

double ttest_two_sided(double t, double df)
{
    return incomplete_beta(df / (df + t * t), df / 2, 0.5);
}

double ttest_quantile(double p, double df)
{
    double low = 0, high = 1;
    while (ttest_two_sided(high, df) > p && high < 1e12)
        high *= 2;
    for (int i = 0; i < 200; i++) {
        double middle = (low + high) / 2;
        *(ttest_two_sided(middle, df) > p ? &low : &high) = middle;
    }
    return (low + high) / 2;
}

struct ttest_mean ttest_mean(const double *values, size_t count)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    struct ttest_mean out = {count ? sum / (double)count : NAN, NAN};
    if (count < 2)
        return out;
    for (size_t i = 0; i < count; i++)
        squares += (values[i] - out.mean) * (values[i] - out.mean);
    double error = sqrt(squares / (double)(count - 1) / (double)count);
    out.half = ttest_quantile(0.05, (double)(count - 1)) * error;
    return out;
}

double ttest_paired(const double *a, const double *b, size_t count)
{
    double sum = 0, squares = 0;
    if (count < 2)
        return NAN;
    for (size_t i = 0; i < count; i++)
        sum += a[i] - b[i];
    double mean = sum / (double)count;
    for (size_t i = 0; i < count; i++)
        squares += (a[i] - b[i] - mean) * (a[i] - b[i] - mean);
    double error = sqrt(squares / (double)(count - 1) / (double)count);
    if (error == 0)
        return mean == 0 ? 1 : 0;
    return ttest_two_sided(mean / error, (double)(count - 1));
}
