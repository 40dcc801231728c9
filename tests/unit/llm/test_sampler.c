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

static struct llm_sampler *make_of(const struct llm_sampling *options)
{
    struct llm_sampler *s;
    assert_int_equal(llm_sampler_create(options, VOCAB, &s), 0);
    return s;
}

static void min_p_leaves_those_near_the_likeliest(void **state)
{
    (void)state;
    uint32_t counts[VOCAB] = {0};
    /* 1 and 3 are the likeliest; 5 has e^-1 of their probability, 2 has e^-2 = 0.14 */
    struct llm_sampling options = {.temperature = 1, .top_p = 1, .min_p = 0.3f, .seed = 4};
    count_draws(make_of(&options), counts);
    for (uint32_t i = 0; i < VOCAB; i++)
        assert_true((counts[i] > 0) == (i == 1 || i == 3 || i == 5));
}

static void penalties_count_what_was_sampled(void **state)
{
    (void)state;
    /* Greedy: 1 and 3 have 3, 5 has 2, 2 has 1. */
    struct llm_sampling presence = {.presence = 1.5f}, frequency = {.frequency = 0.6f};
    struct llm_sampling repetition = {.repetition = 2};
    const uint32_t by_presence[] = {1, 3, 5, 1, 1}, by_frequency[] = {1, 3, 1, 3, 5, 1};
    const uint32_t prompt[] = {1, 3, 3};
    struct llm_sampler *s = make_of(&presence);
    for (int i = 0; i < 5; i++)
        assert_int_equal(llm_sampler_next(s, logits), by_presence[i]);
    llm_sampler_destroy(s);
    s = make_of(&frequency);
    for (int i = 0; i < 6; i++)
        assert_int_equal(llm_sampler_next(s, logits), by_frequency[i]);
    llm_sampler_destroy(s);
    s = make_of(&presence); /* a prompt was not sampled */
    llm_sampler_begin(s, prompt, 3, 0);
    assert_int_equal(llm_sampler_next(s, logits), 1);
    llm_sampler_destroy(s);
    s = make_of(&repetition); /* but repeats */
    llm_sampler_begin(s, prompt, 3, 0);
    assert_int_equal(llm_sampler_next(s, logits), 5);
    llm_sampler_destroy(s);
}

static void biases_move_logits(void **state)
{
    (void)state;
    const struct llm_bias biases[] = {{1, -100}, {3, -INFINITY}, {4, 2.5f}};
    const struct llm_bias outside = {VOCAB, 1};
    struct llm_sampling options = {.biases = biases, .bias_count = 3};
    struct llm_sampler *s = make_of(&options);
    assert_int_equal(llm_sampler_next(s, logits), 5);
    llm_sampler_destroy(s);
    options = (struct llm_sampling){.biases = &outside, .bias_count = 1};
    assert_int_equal(llm_sampler_create(&options, VOCAB, &s), -EINVAL);
}

/* Another sampler that is given the tokens so far goes on as the first. */
static void the_tokens_and_their_count_tell_the_state(void **state)
{
    (void)state;
    enum { ALL = 40, PROMPT = 3 };
    struct llm_sampling options = {.temperature = 1.5f,
                                   .top_p = 0.95f,
                                   .min_p = 0.01f,
                                   .seed = 8,
                                   .presence = 0.2f,
                                   .frequency = 0.1f,
                                   .repetition = 1.2f};
    uint32_t tokens[PROMPT + ALL] = {2, 2, 6};
    struct llm_sampler *s = make_of(&options);
    llm_sampler_begin(s, tokens, PROMPT, 0);
    for (int i = 0; i < ALL; i++)
        tokens[PROMPT + i] = llm_sampler_next(s, logits);
    llm_sampler_destroy(s);
    for (uint32_t had = 0; had < ALL; had += 7) {
        s = make_of(&options);
        llm_sampler_begin(s, tokens, PROMPT + had, had);
        for (uint32_t i = had; i < ALL; i++)
            assert_int_equal(llm_sampler_next(s, logits), tokens[PROMPT + i]);
        llm_sampler_destroy(s);
    }
}

/* Allows every token once: the lowest first. */
static void mask_lower(void *user, float *to, uint32_t vocab)
{
    for (uint32_t i = 0; i < vocab; i++)
        to[i] = i == *(uint32_t *)user ? to[i] : -INFINITY;
}

static void accept_next(void *user, uint32_t token)
{
    uint32_t *next = user;
    *next = token + 1;
}

static void a_mask_forbids_tokens(void **state)
{
    (void)state;
    static const struct llm_mask_ops mask = {mask_lower, accept_next};
    const uint32_t had[] = {0, 1};
    for (int warm = 0; warm < 2; warm++) {
        struct llm_sampling options = {.temperature = (float)warm, .top_p = 1};
        struct llm_sampler *s = make_of(&options);
        uint32_t next = 0;
        assert_int_equal(llm_sampler_set_mask(s, &mask, &next), 0);
        llm_sampler_begin(s, had, 2, 2);
        for (uint32_t i = 2; i < VOCAB; i++)
            assert_int_equal(llm_sampler_next(s, logits), i);
        assert_true(llm_sampler_next(s, logits) < VOCAB); /* nothing is left: all are */
        llm_sampler_destroy(s);
    }
}

static void logprobs_are_logarithms_of_probabilities(void **state)
{
    (void)state;
    struct llm_logprob top[VOCAB];
    float of, broken[VOCAB] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    double sum = 0, total = 0;
    for (int i = 0; i < VOCAB; i++)
        total += exp((double)logits[i]);
    assert_int_equal(llm_logprobs(logits, VOCAB, 2, &of, top, VOCAB), VOCAB);
    assert_true(fabs((double)of - (1 - log(total))) < 1e-5);
    for (int i = 0; i < VOCAB; i++)
        sum += exp((double)top[i].logprob);
    assert_true(fabs(sum - 1) < 1e-5);
    assert_int_equal(top[0].token, 1);
    assert_int_equal(top[1].token, 3);
    assert_int_equal(llm_logprobs(logits, VOCAB, 2, &of, top, 0), 0);
    assert_int_equal(llm_logprobs(broken, VOCAB, 2, &of, top, 1), 1);
    assert_true(of == LLM_LOGPROB_MIN && top[0].logprob == LLM_LOGPROB_MIN);
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
        cmocka_unit_test(min_p_leaves_those_near_the_likeliest),
        cmocka_unit_test(penalties_count_what_was_sampled),
        cmocka_unit_test(biases_move_logits),
        cmocka_unit_test(the_tokens_and_their_count_tell_the_state),
        cmocka_unit_test(a_mask_forbids_tokens),
        cmocka_unit_test(logprobs_are_logarithms_of_probabilities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
