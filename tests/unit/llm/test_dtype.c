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
#include "golden_blocks.h"
#include "llm/model/dtype.h"

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
    for (size_t i = 0; i < LLM_DTYPES; i++) {
        enum llm_dtype found;
        assert_true(llm_dtype_known((uint32_t)llm_dtype_at(i)));
        assert_true(llm_dtype_parse(llm_dtype_name(llm_dtype_at(i)), &found));
        assert_int_equal(found, llm_dtype_at(i));
    }
    enum llm_dtype untouched = LLM_BF16;
    assert_false(llm_dtype_known(15));
    assert_false(llm_dtype_known(UINT32_MAX));
    assert_false(llm_dtype_parse("Q8_K", &untouched));
    assert_int_equal(untouched, LLM_BF16);
    assert_string_equal(llm_dtype_name((enum llm_dtype)15), "?");
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
    assert_int_equal(llm_dtype_bytes(LLM_Q4_1, 64), 40);
    assert_int_equal(llm_dtype_bytes(LLM_Q5_0, 64), 44);
    assert_int_equal(llm_dtype_bytes(LLM_Q5_1, 64), 48);
    assert_int_equal(llm_dtype_bytes(LLM_IQ4_NL, 64), 36);
    assert_int_equal(llm_dtype_bytes(LLM_MXFP4, 64), 34);
    assert_int_equal(llm_dtype_bytes(LLM_Q2_K, 512), 168);
    assert_int_equal(llm_dtype_bytes(LLM_Q3_K, 512), 220);
    assert_int_equal(llm_dtype_bytes(LLM_Q5_K, 512), 352);
    assert_int_equal(llm_dtype_bytes(LLM_IQ4_XS, 512), 272);
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
    case LLM_Q4_1:
        return 2 * scale / 15 * 0.55f;
    case LLM_Q5_0:
        return scale / 16 * 1.05f; /* as Q4_0 */
    case LLM_Q5_1:
        return 2 * scale / 31 * 0.55f;
    case LLM_IQ4_NL: /* half of the widest gap, or the positive end */
    case LLM_IQ4_XS:
        return scale / 127 * 18;
    case LLM_MXFP4: /* 6 to 8 become 6 */
        return scale / 4 * 1.05f;
    case LLM_Q2_K:
        return 2 * scale / 3 * 0.75f;
    case LLM_Q3_K:
        return scale / 4 * 1.1f;
    case LLM_Q5_K:
        return 2 * scale / 31 * 0.85f;
    }
    return 0;
}

static void a_round_trip_stays_within_the_formats_bound(void **state)
{
    (void)state;
    static float x[COUNT], y[COUNT];
    static uint8_t bytes[COUNT * 4];
    const float scales[] = {1e-2f, 1, 300};
    for (size_t t = 0; t < LLM_DTYPES; t++) {
        for (size_t s = 0; s < ARRAY_LEN(scales); s++) {
            fill(x, t * 10 + s, scales[s]);
            llm_dtype_from_f32(llm_dtype_at(t), bytes, x, COUNT);
            llm_dtype_to_f32(llm_dtype_at(t), y, bytes, COUNT);
            float bound = bound_of(llm_dtype_at(t), scales[s]), worst = 0;
            for (size_t i = 0; i < COUNT; i++)
                worst = fmaxf(worst, fabsf(x[i] - y[i]));
            if (worst > bound)
                fail_msg("%s at scale %g: error %g, bound %g", llm_dtype_name(llm_dtype_at(t)),
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
    for (size_t t = 0; t < LLM_DTYPES; t++) {
        memset(bytes, 0xa5, sizeof(bytes));
        llm_dtype_from_f32(llm_dtype_at(t), bytes, zeros, COUNT);
        llm_dtype_to_f32(llm_dtype_at(t), y, bytes, COUNT);
        for (size_t i = 0; i < COUNT; i++)
            assert_true(y[i] == 0); /* of either sign */
    }
}

static void only_the_blocks_bytes_are_written(void **state)
{
    (void)state;
    static float x[COUNT];
    fill(x, 3, 1);
    for (size_t t = 0; t < LLM_DTYPES; t++) {
        size_t count = 256, bytes = (size_t)llm_dtype_bytes(llm_dtype_at(t), count);
        uint8_t *block = malloc(bytes); /* of just the size: a sanitizer sees more */
        float *back = malloc(count * sizeof(float));
        assert_non_null(block);
        assert_non_null(back);
        llm_dtype_from_f32(llm_dtype_at(t), block, x, count);
        llm_dtype_to_f32(llm_dtype_at(t), back, block, count);
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

/* About normal; no product, so nothing can be fused. */
static void draw_golden(float x[256])
{
    uint32_t state = 1;
    for (int i = 0; i < 256; i++) {
        x[i] = 0;
        for (int j = 0; j < 4; j++) {
            state = state * 1664525u + 1013904223u;
            x[i] += (float)(state >> 8) / 16777216.0f - 0.5f;
        }
    }
}

static double squared_error(const float *x, const float *y)
{
    double error = 0;
    for (int i = 0; i < 256; i++)
        error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return error;
}

static void read_hex(const char *text, uint8_t *bytes, size_t count)
{
    assert_int_equal(strlen(text), 2 * count);
    for (size_t i = 0; i < count; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], 0};
        bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
}

/* ggml may fuse a product and a sum: the last bit of a value may differ. */
static void blocks_of_ggml_decode_to_its_numbers(void **state)
{
    (void)state;
    float x[256], y[256];
    uint8_t bytes[512];
    draw_golden(x);
    for (size_t g = 0; g < ARRAY_LEN(golden_blocks); g++) {
        const struct golden_block *golden = &golden_blocks[g];
        read_hex(golden->bytes, bytes, (size_t)llm_dtype_bytes(golden->dtype, 256));
        llm_dtype_to_f32(golden->dtype, y, bytes, 256);
        for (int i = 0; i < 16; i++) {
            double off = fabs((double)y[17 * i] - (double)golden->values[i]);
            if (off > 3e-7 * fmax(1, fabs((double)golden->values[i])))
                fail_msg("%s: value %d is %.9g, in ggml %.9g", llm_dtype_name(golden->dtype),
                         17 * i, (double)y[17 * i], (double)golden->values[i]);
        }
        double error = squared_error(x, y);
        if (fabs(error - golden->error) > 1e-5 * golden->error)
            fail_msg("%s: squared error %.9g, in ggml %.9g", llm_dtype_name(golden->dtype), error,
                     golden->error);
    }
}

static void searched_scales_are_no_worse_than_those_of_ggml(void **state)
{
    (void)state;
    float x[256], y[256];
    uint8_t bytes[512];
    draw_golden(x);
    for (size_t g = 0; g < ARRAY_LEN(golden_blocks); g++) {
        const struct golden_block *golden = &golden_blocks[g];
        llm_dtype_from_f32(golden->dtype, bytes, x, 256);
        llm_dtype_to_f32(golden->dtype, y, bytes, 256);
        double plain = squared_error(x, y);
        llm_dtype_fit_f32(golden->dtype, bytes, x, 256);
        llm_dtype_to_f32(golden->dtype, y, bytes, 256);
        double fit = squared_error(x, y);
        if (fit > plain || fit > golden->error)
            fail_msg("%s: squared error %g, from the range %g, in ggml %g",
                     llm_dtype_name(golden->dtype), fit, plain, golden->error);
    }
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
        cmocka_unit_test(blocks_of_ggml_decode_to_its_numbers),
        cmocka_unit_test(searched_scales_are_no_worse_than_those_of_ggml),
        cmocka_unit_test(bf16_rounds_to_even_and_keeps_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
