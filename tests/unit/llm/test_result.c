/* What a semantic step yields: the exact top k, and logits in the codec that pays. */
#include "unit.h"

#include "base/rng.h"
#include "llm/worker/result.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 5000 };

static float logits[VOCAB], got[VOCAB];
static struct llm_packer here, there;
static struct wire_enc enc;

static int setup(void **state)
{
    (void)state;
    struct hw_rng rng;
    hw_rng_seed(&rng, 5);
    for (int i = 0; i < VOCAB; i++)
        logits[i] = (float)(hw_rng_double(&rng) * 10 - 5);
    wire_enc_init(&enc, 1 << 20);
    return llm_packer_init(&here) || llm_packer_init(&there);
}

static int teardown(void **state)
{
    (void)state;
    wire_enc_fini(&enc);
    llm_packer_fini(&here);
    llm_packer_fini(&there);
    return 0;
}

static size_t put(const struct llm_wish *wish)
{
    wire_enc_reset(&enc);
    assert_int_equal(llm_result_put(&there, wish, logits, VOCAB, &enc), 0);
    return wire_enc_len(&enc);
}

static int get(const struct llm_wish *wish, size_t len, uint32_t vocab)
{
    struct wire_dec d;
    wire_dec_init(&d, wire_enc_data(&enc), len);
    return llm_result_get(&here, wish, &d, got, vocab);
}

static void sampling_from_the_top_k_is_exact(void **state)
{
    (void)state;
    struct llm_wish wish = {.kind = LLM_WISH_TOP_K, .top_k = 50};
    struct llm_sampling sampling = {.temperature = 0.8f, .top_k = 50, .top_p = 0.95f, .seed = 9};
    struct llm_sampler *all, *some;
    logits[17] = logits[4000] = 6; /* a tie at the top */
    assert_int_equal(get(&wish, put(&wish), VOCAB), 0);
    assert_int_equal(llm_sampler_create(&sampling, VOCAB, &all), 0);
    assert_int_equal(llm_sampler_create(&sampling, VOCAB, &some), 0);
    for (int i = 0; i < 200; i++)
        assert_int_equal(llm_sampler_next(all, logits), llm_sampler_next(some, got));
    llm_sampler_destroy(all);
    llm_sampler_destroy(some);
}

static void the_top_k_of_equals_are_the_first(void **state)
{
    (void)state;
    struct llm_wish wish = {.kind = LLM_WISH_TOP_K, .top_k = 3};
    for (int i = 0; i < VOCAB; i++)
        logits[i] = i % 2 ? NAN : 1;
    assert_int_equal(put(&wish), 3 * 5);
    assert_int_equal(get(&wish, 15, VOCAB), 0);
    for (int i = 0; i < VOCAB; i++)
        assert_true(i < 6 && i % 2 == 0 ? got[i] == 1 : got[i] == -INFINITY);
    wish.top_k = LLM_TOP_K_MAX;
    assert_int_equal(get(&wish, put(&wish), VOCAB), 0);
}

static void logits_survive_packing(void **state)
{
    (void)state;
    for (uint64_t rate = 0; rate < 3; rate++) {
        struct llm_wish wish = {.kind = LLM_WISH_LOGITS, .link_rate = rate * 1000};
        for (int i = 0; i < 3; i++) {
            assert_int_equal(get(&wish, put(&wish), VOCAB), 0);
            assert_memory_equal(got, logits, sizeof got);
        }
    }
}

static void loss_is_a_choice(void **state)
{
    (void)state;
    struct llm_wish lossy = {.kind = LLM_WISH_LOGITS, .lossy = true};
    struct llm_wish exact = {.kind = LLM_WISH_LOGITS};
    size_t len = put(&lossy);
    assert_true(len < VOCAB * 2 + 64);
    assert_int_equal(get(&lossy, len, VOCAB), 0);
    for (int i = 0; i < VOCAB; i++)
        assert_true(fabsf(got[i] - logits[i]) < 0.01f);
    assert_int_equal(get(&exact, len, VOCAB), -EPROTO); /* a worker that loses unasked */
}

static void a_slow_link_packs_and_a_fast_one_does_not(void **state)
{
    (void)state;
    assert_false(llm_packing_pays(0.5, 0, 0));
    assert_true(llm_packing_pays(0.5, 2, 10 * 1000 * 1000));           /* 100 ns a byte */
    assert_false(llm_packing_pays(0.5, 2, UINT64_C(10) * 1000000000)); /* 0.1 ns a byte */
    assert_false(llm_packing_pays(1, 0.1, 1000));                      /* nothing saved */
    struct llm_wish slow = {.kind = LLM_WISH_LOGITS, .link_rate = 1000};
    for (int i = 0; i < VOCAB; i++)
        logits[i] = (float)(i % 7);
    for (int i = 0; i < 3; i++)
        assert_true(put(&slow) < VOCAB); /* a quarter of the plain bytes at most */
    struct llm_wish fast = {.kind = LLM_WISH_LOGITS, .link_rate = UINT64_MAX};
    put(&fast); /* a trial, perhaps */
    assert_true(put(&fast) > VOCAB * sizeof(float));
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    struct llm_wish top = {.kind = LLM_WISH_TOP_K, .top_k = 3};
    struct llm_wish all = {.kind = LLM_WISH_LOGITS};
    size_t len = put(&top);
    assert_int_equal(get(&top, len - 1, VOCAB), -EPROTO);
    assert_int_equal(get(&all, len, VOCAB), -EPROTO);
    top.top_k = 4;
    assert_int_equal(get(&top, len, VOCAB), -EPROTO);
    top.top_k = 3;
    assert_int_equal(get(&top, len, 3), -EPROTO); /* tokens past the vocabulary */
    len = put(&all);
    assert_true(get(&all, len, VOCAB - 1) < 0);
    assert_int_equal(get(&all, len - 1, VOCAB), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sampling_from_the_top_k_is_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(the_top_k_of_equals_are_the_first, setup, teardown),
        cmocka_unit_test_setup_teardown(logits_survive_packing, setup, teardown),
        cmocka_unit_test_setup_teardown(loss_is_a_choice, setup, teardown),
        cmocka_unit_test_setup_teardown(a_slow_link_packs_and_a_fast_one_does_not, setup, teardown),
        cmocka_unit_test_setup_teardown(nonsense_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
