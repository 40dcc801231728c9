#include "unit.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/hist.h"
#include "base/rng.h"

enum { VALUES = 20000 };

static uint64_t uniform(struct hw_rng *rng)
{
    return hw_rng_below(rng, 100000);
}

static uint64_t exponential(struct hw_rng *rng)
{
    return (uint64_t)(-log(1 - hw_rng_double(rng)) * 15000);
}

static uint64_t bimodal(struct hw_rng *rng)
{
    return hw_rng_below(rng, 5) == 0 ? 6000 + hw_rng_below(rng, 2000)
                                     : 14000 + hw_rng_below(rng, 1500);
}

static uint64_t every_magnitude(struct hw_rng *rng)
{
    return hw_rng_u64(rng) >> hw_rng_below(rng, 64);
}

static uint64_t constant(struct hw_rng *rng)
{
    (void)rng;
    return 123457;
}

static uint64_t tiny(struct hw_rng *rng)
{
    return hw_rng_below(rng, 3);
}

static uint64_t near_the_end(struct hw_rng *rng)
{
    return UINT64_MAX - hw_rng_below(rng, 1000);
}

static uint64_t heavy_tail(struct hw_rng *rng)
{
    return (uint64_t)(1000 / pow(1 - hw_rng_double(rng), 2));
}

static uint64_t (*const distributions[])(struct hw_rng *) = {
    uniform, exponential, bimodal, every_magnitude, constant, tiny, near_the_end, heavy_tail,
};

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void check_percentile(const struct hw_hist *hist, const uint64_t *sorted, size_t count,
                             double p)
{
    double rank = ceil(p / 100 * (double)count);
    size_t at = rank < 1 ? 0 : (size_t)rank - 1;
    double want = (double)sorted[at], got = (double)hw_hist_percentile(hist, p);
    if (fabs(got - want) > want * 0.01)
        fail_msg("p%g: %g, sorted values say %g", p, got, want);
}

static void percentiles_are_within_one_percent_of_sorted_values(void **state)
{
    (void)state;
    uint64_t *values = calloc(VALUES, sizeof *values);
    struct hw_rng rng;
    hw_rng_seed(&rng, 5);
    for (size_t d = 0; d < ARRAY_LEN(distributions); d++) {
        struct hw_hist hist;
        assert_int_equal(hw_hist_init(&hist), 0);
        unsigned __int128 sum = 0;
        for (size_t i = 0; i < VALUES; i++) {
            values[i] = distributions[d](&rng);
            sum += values[i];
            hw_hist_record(&hist, values[i]);
        }
        qsort(values, VALUES, sizeof *values, by_value);
        for (double p = 0.05; p < 100; p += 0.05)
            check_percentile(&hist, values, VALUES, p);
        check_percentile(&hist, values, VALUES, 99.99);
        assert_int_equal(hw_hist_percentile(&hist, 0), values[0]);
        assert_int_equal(hw_hist_percentile(&hist, 100), values[VALUES - 1]);
        assert_int_equal(hist.count, VALUES);
        assert_int_equal(hist.min, values[0]);
        assert_int_equal(hist.max, values[VALUES - 1]);
        assert_true(hist.sum == sum);
        hw_hist_fini(&hist);
    }
    free(values);
}

static void every_bucket_edge_is_within_its_bucket(void **state)
{
    (void)state;
    struct hw_hist hist;
    assert_int_equal(hw_hist_init(&hist), 0);
    for (int bit = 0; bit < 64; bit++) {
        for (int delta = -2; delta <= 2; delta++) {
            uint64_t value = (UINT64_C(1) << bit) + (uint64_t)delta;
            hw_hist_reset(&hist);
            hw_hist_record(&hist, 0);
            hw_hist_record(&hist, value);
            hw_hist_record(&hist, UINT64_MAX);
            double got = (double)hw_hist_percentile(&hist, 50);
            assert_true(fabs(got - (double)value) <= (double)value * 0.004);
        }
    }
    hw_hist_fini(&hist);
}

static void empty_and_single_values_are_exact(void **state)
{
    (void)state;
    struct hw_hist hist;
    assert_int_equal(hw_hist_init(&hist), 0);
    assert_int_equal(hw_hist_percentile(&hist, 50), 0);
    assert_true(hw_hist_mean(&hist) == 0);
    hw_hist_record(&hist, 1000003);
    assert_int_equal(hw_hist_percentile(&hist, 50), 1000003);
    assert_int_equal(hw_hist_percentile(&hist, -5), 1000003);
    assert_int_equal(hw_hist_percentile(&hist, 1e9), 1000003);
    assert_int_equal(hw_hist_percentile(&hist, NAN), 1000003);
    assert_true(hw_hist_mean(&hist) == 1000003);
    hw_hist_reset(&hist);
    assert_int_equal(hist.count, 0);
    assert_int_equal(hw_hist_percentile(&hist, 50), 0);
    hw_hist_fini(&hist);
}

static bool same(const struct hw_hist *a, const struct hw_hist *b)
{
    return a->count == b->count && a->min == b->min && a->max == b->max && a->sum == b->sum &&
           memcmp(a->buckets, b->buckets, HW_HIST_BUCKETS * sizeof *a->buckets) == 0 &&
           memcmp(a->linear, b->linear, a->linear_count * sizeof *a->linear) == 0;
}

static void merge_is_the_same_as_recording_all(void **state)
{
    (void)state;
    struct hw_hist part[3], all, merged;
    struct hw_rng rng;
    hw_rng_seed(&rng, 6);
    assert_int_equal(hw_hist_init_linear(&all, 1000, 50), 0);
    assert_int_equal(hw_hist_init_linear(&merged, 1000, 50), 0);
    for (int i = 0; i < 3; i++) { /* the last stays empty */
        assert_int_equal(hw_hist_init_linear(&part[i], 1000, 50), 0);
        for (int n = 0; i < 2 && n < 5000; n++) {
            uint64_t value = every_magnitude(&rng);
            hw_hist_record(&part[i], value);
            hw_hist_record(&all, value);
        }
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hw_hist_merge(&merged, &part[i]), 0);
        hw_hist_fini(&part[i]);
    }
    assert_true(same(&merged, &all));
    hw_hist_fini(&all);
    hw_hist_fini(&merged);
}

static void merge_refuses_another_linear_part(void **state)
{
    (void)state;
    struct hw_hist plain, linear;
    assert_int_equal(hw_hist_init(&plain), 0);
    assert_int_equal(hw_hist_init_linear(&linear, 1000, 50), 0);
    hw_hist_record(&plain, 5);
    hw_hist_record(&linear, 5);
    assert_int_equal(hw_hist_merge(&linear, &plain), -EINVAL);
    assert_int_equal(linear.count, 1);
    assert_int_equal(hw_hist_merge(&plain, &linear), 0);
    assert_int_equal(plain.count, 2);
    hw_hist_fini(&plain);
    hw_hist_fini(&linear);
}

static void limits_of_the_linear_part_are_kept(void **state)
{
    (void)state;
    struct hw_hist hist;
    assert_int_equal(hw_hist_init_linear(&hist, 0, 10), -EINVAL);
    assert_int_equal(hw_hist_init_linear(&hist, 10, 0), -EINVAL);
    assert_int_equal(hw_hist_init_linear(&hist, 10, HW_HIST_LINEAR_MAX + 1), -EINVAL);
}

static void count_below_is_exact_at_bucket_edges(void **state)
{
    (void)state;
    struct hw_hist hist;
    assert_int_equal(hw_hist_init(&hist), 0);
    for (uint64_t v = 0; v < 4096; v++)
        hw_hist_record(&hist, v);
    for (uint64_t edge = 0; edge <= 4096; edge += 32)
        assert_int_equal(hw_hist_count_below(&hist, edge), edge);
    assert_int_equal(hw_hist_count_below(&hist, UINT64_MAX), 4096);
    hw_hist_fini(&hist);
}

static void linear_part_counts_below_its_edges_exactly(void **state)
{
    (void)state;
    struct hw_hist hist;
    assert_int_equal(hw_hist_init_linear(&hist, 1000, 100), 0);
    hw_hist_record_many(&hist, 3999, 4);
    hw_hist_record_many(&hist, 4000, 19086);
    hw_hist_record_many(&hist, 6001, 7);
    assert_int_equal(hw_hist_count_below(&hist, 4000), 4);
    assert_int_equal(hw_hist_count_below(&hist, 5000), 4 + 19086);
    assert_int_equal(hw_hist_count_below(&hist, 7000), 4 + 19086 + 7);
    hw_hist_fini(&hist);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_are_within_one_percent_of_sorted_values),
        cmocka_unit_test(every_bucket_edge_is_within_its_bucket),
        cmocka_unit_test(empty_and_single_values_are_exact),
        cmocka_unit_test(merge_is_the_same_as_recording_all),
        cmocka_unit_test(merge_refuses_another_linear_part),
        cmocka_unit_test(limits_of_the_linear_part_are_kept),
        cmocka_unit_test(count_below_is_exact_at_bucket_edges),
        cmocka_unit_test(linear_part_counts_below_its_edges_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
