#include "unit.h"

#include "base/rng.h"

static void seed_zero_gives_the_published_splitmix_states(void **state)
{
    (void)state;
    struct hw_rng rng;
    hw_rng_seed(&rng, 0);
    assert_int_equal(rng.s[0], 0xe220a8397b1dcdaf);
    assert_int_equal(rng.s[1], 0x6e789e6aa1b965f4);
    assert_int_equal(rng.s[2], 0x06c45d188009454f);
}

static void known_state_gives_the_published_numbers(void **state)
{
    (void)state;
    struct hw_rng rng = {{1, 2, 3, 4}};
    static const uint64_t want[] = {11520, 0, 1509978240, UINT64_C(1215971899390074240)};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_int_equal(hw_rng_u64(&rng), want[i]);
}

static void same_seed_same_numbers(void **state)
{
    (void)state;
    struct hw_rng a, b, c;
    hw_rng_seed(&a, 42);
    hw_rng_seed(&b, 42);
    hw_rng_seed(&c, 43);
    int differ = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t n = hw_rng_u64(&a);
        assert_int_equal(n, hw_rng_u64(&b));
        differ += n != hw_rng_u64(&c);
    }
    assert_int_equal(differ, 1000);
}

static void below_stays_below_and_is_even(void **state)
{
    (void)state;
    struct hw_rng rng;
    int seen[7] = {0};
    hw_rng_seed(&rng, 1);
    for (int i = 0; i < 70000; i++)
        seen[hw_rng_below(&rng, 7)]++;
    for (int i = 0; i < 7; i++)
        assert_in_range(seen[i], 9500, 10500);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(hw_rng_below(&rng, 1), 0);
        assert_true(hw_rng_below(&rng, UINT64_MAX) < UINT64_MAX);
    }
}

/* With n at three quarters of 2^64 a plain remainder would put two thirds of the results, not
 * half, into the lower half. */
static void below_is_unbiased_for_huge_ranges(void **state)
{
    (void)state;
    struct hw_rng rng;
    hw_rng_seed(&rng, 2);
    uint64_t n = UINT64_C(3) << 62;
    int low = 0;
    for (int i = 0; i < 20000; i++)
        low += hw_rng_below(&rng, n) < n / 2;
    assert_in_range(low, 9600, 10400);
}

static void double_is_in_unit_interval(void **state)
{
    (void)state;
    struct hw_rng rng;
    double sum = 0;
    hw_rng_seed(&rng, 3);
    for (int i = 0; i < 10000; i++) {
        double d = hw_rng_double(&rng);
        assert_true(d >= 0 && d < 1);
        sum += d;
    }
    assert_true(sum > 4850 && sum < 5150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seed_zero_gives_the_published_splitmix_states),
        cmocka_unit_test(known_state_gives_the_published_numbers),
        cmocka_unit_test(same_seed_same_numbers),
        cmocka_unit_test(below_stays_below_and_is_even),
        cmocka_unit_test(below_is_unbiased_for_huge_ranges),
        cmocka_unit_test(double_is_in_unit_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
