#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "base/rng.h"
#include "llm/model/dtype.h"

static const enum llm_dtype all[] = {LLM_F32,  LLM_F16,  LLM_BF16, LLM_Q8_0,
                                     LLM_Q4_0, LLM_Q4_K, LLM_Q6_K};

enum { COUNT = 2048 };

static void fill(float *x, uint64_t seed, float scale)
{
    struct hw_rng rng;
    hw_rng_seed(&rng, seed);
    for (size_t i = 0; i < COUNT; i++)
        x[i] = scale * (float)(2 * hw_rng_double(&rng) - 1);
}

static void names_and_numbers_lead_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        enum llm_dtype found;
        assert_true(llm_dtype_known((uint32_t)all[i]));
        assert_true(llm_dtype_parse(llm_dtype_name(all[i]), &found));
        assert_int_equal(found, all[i]);
    }
    enum llm_dtype untouched = LLM_BF16;
    assert_false(llm_dtype_known(13));
    assert_false(llm_dtype_known(UINT32_MAX));
    assert_false(llm_dtype_parse("Q5_K", &untouched));
    assert_int_equal(untouched, LLM_BF16);
    assert_string_equal(llm_dtype_name((enum llm_dtype)13), "?");
}

static void sizes_are_the_formats(void **state)
{
    (void)state;
    assert_int_equal(llm_dtype_bytes(LLM_F32, 5), 20);
    assert_int_equal(llm_dtype_bytes(LLM_F16, 5), 10);
    assert_int_equal(llm_dtype_bytes(LLM_BF16, 5), 10);
    assert_int_equal(llm_dtype_bytes(LLM_Q8_0, 64), 68);
    assert_int_equal(llm_dtype_bytes(LLM_Q4_0, 64), 36);
    assert_int_equal(llm_dtype_bytes(LLM_Q4_K, 512), 288);
    assert_int_equal(llm_dtype_bytes(LLM_Q6_K, 512), 420);
}

/* Half a step of the coarsest scale that a block of such values gets, and what rounding the scale
 * itself adds. */
static float bound_of(enum llm_dtype dtype, float scale)
{
    switch (dtype) {
    case LLM_F32:
        return 0;
    case LLM_F16:
        return scale * 0x1p-11f;
    case LLM_BF16:
        return scale * 0x1p-8f;
    case LLM_Q8_0:
        return scale / 127 * 0.6f;
    case LLM_Q4_0:
        return scale / 8 * 1.05f; /* the positive end is a step short */
    case LLM_Q4_K:
        return 2 * scale / 15 * 0.75f;
    case LLM_Q6_K:
        return scale / 32 * 1.1f; /* as Q4_0 */
    }
    return 0;
}

static void a_round_trip_stays_within_the_formats_bound(void **state)
{
    (void)state;
    static float x[COUNT], y[COUNT];
    static uint8_t bytes[COUNT * 4];
    const float scales[] = {1e-2f, 1, 300};
    for (size_t t = 0; t < ARRAY_LEN(all); t++) {
        for (size_t s = 0; s < ARRAY_LEN(scales); s++) {
            fill(x, t * 10 + s, scales[s]);
            llm_dtype_from_f32(all[t], bytes, x, COUNT);
            llm_dtype_to_f32(all[t], y, bytes, COUNT);
            float bound = bound_of(all[t], scales[s]), worst = 0;
            for (size_t i = 0; i < COUNT; i++)
                worst = fmaxf(worst, fabsf(x[i] - y[i]));
            if (worst > bound)
                fail_msg("%s at scale %g: error %g, bound %g", llm_dtype_name(all[t]),
                         (double)scales[s], (double)worst, (double)bound);
        }
    }
}

static void zeros_stay_zeros(void **state)
{
    (void)state;
    static const float zeros[COUNT];
    static float y[COUNT];
    static uint8_t bytes[COUNT * 4];
    for (size_t t = 0; t < ARRAY_LEN(all); t++) {
        memset(bytes, 0xa5, sizeof(bytes));
        llm_dtype_from_f32(all[t], bytes, zeros, COUNT);
        llm_dtype_to_f32(all[t], y, bytes, COUNT);
        for (size_t i = 0; i < COUNT; i++)
            assert_true(y[i] == 0); /* of either sign */
    }
}

static void only_the_blocks_bytes_are_written(void **state)
{
    (void)state;
    static float x[COUNT];
    fill(x, 3, 1);
    for (size_t t = 0; t < ARRAY_LEN(all); t++) {
        size_t count = 256, bytes = (size_t)llm_dtype_bytes(all[t], count);
        uint8_t *block = malloc(bytes); /* of just the size: a sanitizer sees more */
        float *back = malloc(count * sizeof(float));
        assert_non_null(block);
        assert_non_null(back);
        llm_dtype_from_f32(all[t], block, x, count);
        llm_dtype_to_f32(all[t], back, block, count);
        free(block);
        free(back);
    }
}

static void blocks_decode_as_the_layout_says(void **state)
{
    (void)state;
    float y[256];
    uint8_t q8[34] = {0x00, 0x3c, 1, 0xff}; /* d = 1 */
    llm_dtype_to_f32(LLM_Q8_0, y, q8, 32);
    assert_true(y[0] == 1 && y[1] == -1 && y[2] == 0);

    uint8_t q4[18] = {0x00, 0x40, 0x9f}; /* d = 2; low 15, high 9 */
    llm_dtype_to_f32(LLM_Q4_0, y, q4, 32);
    assert_true(y[0] == 14 && y[16] == 2 && y[1] == -16);

    uint8_t q4k[144] = {0x00, 0x3c, 0x00, 0x3c}; /* d = dmin = 1 */
    q4k[4 + 1] = 3;                              /* scale of the second 32 */
    q4k[4 + 5] = 2;                              /* its min */
    q4k[4 + 8] = 0x51;                           /* scale 1 and min 5 of the fifth */
    q4k[4 + 0] = 0x40;                           /* on top: 16 of the fifth's scale */
    q4k[16] = 0x70;                              /* value 32: 7 */
    q4k[16 + 64] = 0x02;                         /* value 128: 2 */
    llm_dtype_to_f32(LLM_Q4_K, y, q4k, 256);
    assert_true(y[32] == 3 * 7 - 2);
    assert_true(y[33] == -2);
    assert_true(y[128] == 17 * 2 - 5);

    uint8_t q6k[210] = {0};
    q6k[208] = 0x00, q6k[209] = 0x3c;   /* d = 1 */
    q6k[192 + 2] = 1, q6k[192 + 6] = 2; /* scales of 32..47 and of 96..111 */
    q6k[32] = 0x5a;                     /* low of value 32: 10, of value 96: 5 */
    q6k[128] = 0x84;                    /* high of value 32: 1, of value 96: 2 */
    llm_dtype_to_f32(LLM_Q6_K, y, q6k, 256);
    assert_true(y[32] == 16 + 10 - 32);
    assert_true(y[96] == 2 * (32 + 5 - 32));
}

static void bf16_rounds_to_even_and_keeps_nan(void **state)
{
    (void)state;
    const uint32_t bits[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x7f800001, 0xff800000};
    const uint16_t expected[] = {0x3f80, 0x3f82, 0x3f81, 0x7fc0, 0xff80};
    float x[5];
    uint16_t y[5];
    memcpy(x, bits, sizeof(bits));
    llm_dtype_from_f32(LLM_BF16, y, x, 5);
    assert_memory_equal(y, expected, sizeof(expected));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_numbers_lead_back),
        cmocka_unit_test(sizes_are_the_formats),
        cmocka_unit_test(a_round_trip_stays_within_the_formats_bound),
        cmocka_unit_test(zeros_stay_zeros),
        cmocka_unit_test(only_the_blocks_bytes_are_written),
        cmocka_unit_test(blocks_decode_as_the_layout_says),
        cmocka_unit_test(bf16_rounds_to_even_and_keeps_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
