/* The sampler: greedy, filters, the same draws everywhere, and logits that are no numbers. */
#include "unit.h"

#include "llm/engine/sampler.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>

enum { VOCAB = 8, DRAWS = 20000 };

static const float logits[VOCAB] = {0, 3, 1, 3, -1, 2, -2, 0.5f};

static struct llm_sampler *make(float temperature, uint32_t top_k, float top_p, uint64_t seed)
{
    struct llm_sampling options = {
        .temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = seed};
    struct llm_sampler *sampler;
    assert_int_equal(llm_sampler_create(&options, VOCAB, &sampler), 0);
    return sampler;
}

static void greedy_takes_the_largest_and_the_first_of_equals(void **state)
{
    (void)state;
    struct llm_sampler *s = make(0, 0, 1, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(llm_sampler_next(s, logits), 1);
    llm_sampler_destroy(s);
}

static void count_draws(struct llm_sampler *s, uint32_t counts[VOCAB])
{
    for (int i = 0; i < DRAWS; i++) {
        uint32_t token = llm_sampler_next(s, logits);
        assert_true(token < VOCAB);
        counts[token]++;
    }
    llm_sampler_destroy(s);
}

static void draws_follow_the_probabilities(void **state)
{
    (void)state;
    uint32_t counts[VOCAB] = {0};
    double total = 0;
    count_draws(make(0.7f, 0, 1, 5), counts);
    for (int i = 0; i < VOCAB; i++)
        total += exp((double)logits[i] / 0.7);
    for (int i = 0; i < VOCAB; i++) {
        double want = DRAWS * exp((double)logits[i] / 0.7) / total;
        assert_true(fabs(counts[i] - want) < 5 * sqrt(want) + 5); /* five deviations */
    }
}

static void filters_leave_the_likeliest(void **state)
{
    (void)state;
    uint32_t by_k[VOCAB] = {0}, by_p[VOCAB] = {0}, both[VOCAB] = {0}, one[VOCAB] = {0};
    count_draws(make(1, 3, 1, 5), by_k);
    count_draws(make(1, 0, 0.8f, 5), by_p); /* 1 and 3 have 0.74 together, with 5 it is 0.88 */
    count_draws(make(1, 3, 0.5f, 5), both); /* of the three, 1 and 3 pass one half */
    count_draws(make(1, 0, 0, 5), one);
    for (uint32_t i = 0; i < VOCAB; i++) {
        bool first = i == 1, top2 = first || i == 3, top3 = top2 || i == 5;
        assert_true((by_k[i] > 0) == top3);
        assert_true((by_p[i] > 0) == top3);
        assert_true((both[i] > 0) == top2);
        assert_true((one[i] > 0) == first);
    }
}

static void a_seed_fixes_all_draws(void **state)
{
    (void)state;
    /* Found once: another machine, compiler or version must draw the same. */
    static const uint32_t golden[] = {1, 3, 3, 2, 7, 5, 5, 5, 5, 3, 3, 1,
                                      5, 1, 5, 2, 3, 5, 3, 3, 1, 1, 3, 3};
    struct llm_sampler *a = make(1.3f, 6, 0.95f, 42), *b = make(1.3f, 6, 0.95f, 42);
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        uint32_t token = llm_sampler_next(a, logits);
        assert_int_equal(token, llm_sampler_next(b, logits));
        assert_int_equal(token, golden[i]);
    }
    llm_sampler_destroy(a);
    llm_sampler_destroy(b);
}

static void any_floats_yield_a_token(void **state)
{
    (void)state;
    float odd[VOCAB] = {NAN, NAN, 1, INFINITY, -INFINITY, NAN, 2, 0}, nan[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        nan[i] = NAN;
    struct llm_sampler *greedy = make(0, 0, 1, 1), *drawn = make(1, 4, 0.9f, 1);
    assert_int_equal(llm_sampler_next(greedy, odd), 3);
    assert_int_equal(llm_sampler_next(greedy, nan), 0);
    for (int i = 0; i < 50; i++) {
        assert_true(llm_sampler_next(drawn, odd) < VOCAB);
        assert_true(llm_sampler_next(drawn, nan) < VOCAB);
    }
    llm_sampler_destroy(greedy);
    llm_sampler_destroy(drawn);
}

static void unfit_options_are_refused(void **state)
{
    (void)state;
    struct llm_sampler *s;
    struct llm_sampling cold = {.temperature = -1, .top_p = 1}, no = {.temperature = NAN};
    struct llm_sampling part = {.temperature = 1, .top_p = -0.5f}, fine = {.top_p = 1};
    assert_int_equal(llm_sampler_create(&cold, VOCAB, &s), -EINVAL);
    assert_int_equal(llm_sampler_create(&no, VOCAB, &s), -EINVAL);
    assert_int_equal(llm_sampler_create(&part, VOCAB, &s), -EINVAL);
    assert_int_equal(llm_sampler_create(&fine, 0, &s), -EINVAL);
    llm_sampler_destroy(NULL);
}

/* More tokens than are put in order at first, all alike: half of them are left, the lower ones. */
static void many_tokens_of_one_probability_are_all_considered(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    struct llm_sampling options = {.temperature = 1, .top_p = 0.5f, .seed = 7};
    static const float alike[MANY];
    struct llm_sampler *s;
    uint32_t largest = 0;
    assert_int_equal(llm_sampler_create(&options, MANY, &s), 0);
    for (int i = 0; i < DRAWS; i++) {
        uint32_t token = llm_sampler_next(s, alike);
        largest = token > largest ? token : largest;
    }
    assert_in_range(largest, MANY / 2 - 10, MANY / 2);
    llm_sampler_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_largest_and_the_first_of_equals),
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(filters_leave_the_likeliest),
        cmocka_unit_test(a_seed_fixes_all_draws),
        cmocka_unit_test(any_floats_yield_a_token),
        cmocka_unit_test(unfit_options_are_refused),
        cmocka_unit_test(many_tokens_of_one_probability_are_all_considered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
