#include "unit.h"

#include "base/order.h"
#include "base/rng.h"

#include <math.h>

static void a_median_is_the_middle_or_between_the_two(void **state)
{
    (void)state;
    double one[] = {7}, odd[] = {9, 1, 5}, even[] = {8, 2, 4, 6};
    assert_true(hw_median(one, 1) == 7);
    assert_true(hw_median(odd, 3) == 5);
    assert_true(odd[0] == 1 && odd[2] == 9);
    assert_true(hw_median(even, 4) == 5);
}

static void a_percentile_lies_between_the_values_around_its_rank(void **state)
{
    (void)state;
    const double sorted[] = {10, 20, 30, 40, 50};
    assert_true(hw_percentile(sorted, 5, 0) == 10);
    assert_true(hw_percentile(sorted, 5, 100) == 50);
    assert_true(hw_percentile(sorted, 5, 75) == 40);
    assert_true(fabs(hw_percentile(sorted, 5, 95) - 48) < 1e-9);
    assert_true(hw_percentile(sorted, 1, 95) == 10);
}

/* What comes at `place` of the whole order, found by counting. */
static uint32_t at_place(const float *values, uint32_t count, uint32_t place)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t before = 0;
        for (uint32_t j = 0; j < count; j++)
            before += values[j] > values[i] || (values[j] == values[i] && j < i);
        if (before == place)
            return i;
    }
    return UINT32_MAX;
}

static void the_largest_come_in_order_whatever_k_is(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    float values[COUNT];
    struct hw_ranked top[COUNT + 5];
    struct hw_rng rng;
    hw_rng_seed(&rng, 3);
    for (uint32_t i = 0; i < COUNT; i++)
        values[i] = (float)hw_rng_below(&rng, 20); /* many are equal */
    for (uint32_t k = 0; k <= COUNT + 5; k++) {
        uint32_t n = hw_top(values, COUNT, k, top);
        assert_int_equal(n, k < COUNT ? k : COUNT);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(top[i].index, at_place(values, COUNT, i));
            assert_true(top[i].value == values[top[i].index]);
        }
    }
}

static void no_number_is_the_smallest(void **state)
{
    (void)state;
    const float values[] = {NAN, 1, NAN, -INFINITY, 2};
    struct hw_ranked top[5];
    assert_int_equal(hw_top(values, 5, 5, top), 5);
    static const uint32_t order[] = {4, 1, 0, 2, 3};
    for (int i = 0; i < 5; i++)
        assert_int_equal(top[i].index, order[i]);
    assert_true(isinf(top[2].value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_median_is_the_middle_or_between_the_two),
        cmocka_unit_test(a_percentile_lies_between_the_values_around_its_rank),
        cmocka_unit_test(the_largest_come_in_order_whatever_k_is),
        cmocka_unit_test(no_number_is_the_smallest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
