/* Halves against their definition, and arrays of them against single values: same bytes, nothing
 * beyond them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/half.h"
#include "wire/shuffle.h"

enum {
    COUNT_MAX = 200, /* several of the widest block, and every remainder */
    ALIGN_MAX = 5,
    ROOM = COUNT_MAX * 4 + ALIGN_MAX + 1,
    GUARD = 0xc3,
};

static uint64_t random_state = 1;

static uint32_t random_u32(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 32);
}

static void shuffle_follows_its_definition(void **state)
{
    (void)state;
    for (size_t elem = 1; elem <= 9; elem++) {
        for (size_t count = 0; count <= 100; count++) { /* more than the vectors of any CPU */
            uint8_t src[900], dst[900], back[900];
            for (size_t i = 0; i < count * elem; i++)
                src[i] = (uint8_t)random_u32();
            wire_shuffle(dst, src, count, elem);
            for (size_t i = 0; i < count; i++)
                for (size_t b = 0; b < elem; b++)
                    assert_int_equal(dst[b * count + i], src[i * elem + b]);
            wire_unshuffle(back, dst, count, elem);
            assert_memory_equal(back, src, count * elem);
        }
    }
}

/* Each value by itself, which no vector takes. */
static void from_one_by_one(void *dst, const void *src, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t f32;
        memcpy(&f32, (const uint8_t *)src + 4 * i, sizeof(f32));
        memcpy((uint8_t *)dst + 2 * i, &(uint16_t){wire_half_from_bits(f32)}, sizeof(uint16_t));
    }
}

static void to_one_by_one(void *dst, const void *src, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t f16;
        memcpy(&f16, (const uint8_t *)src + 2 * i, sizeof(f16));
        memcpy((uint8_t *)dst + 4 * i, &(uint32_t){wire_half_to_bits(f16)}, sizeof(uint32_t));
    }
}

typedef void transform(void *dst, const void *src, size_t count);

static void compare(transform *fast, transform *ref, size_t in_bytes, size_t out_bytes)
{
    static uint8_t src[ROOM], want[ROOM], got[ROOM];
    for (size_t i = 0; i < sizeof(src); i++)
        src[i] = (uint8_t)random_u32();
    for (size_t count = 0; count <= COUNT_MAX; count++) {
        for (size_t align = 0; align <= ALIGN_MAX; align++) {
            memset(want, GUARD, sizeof(want));
            memset(got, GUARD, sizeof(got));
            const uint8_t *in = src + (ROOM - count * in_bytes) % (ALIGN_MAX + 1);
            assert_true(count * out_bytes + align < ROOM);
            ref(want + align, in, count);
            fast(got + align, in, count);
            assert_memory_equal(got, want, sizeof(got));
        }
    }
}

static void arrays_of_any_length_and_place_are_as_single_values(void **state)
{
    (void)state;
    compare(wire_half_from_f32, from_one_by_one, 4, 2);
    compare(wire_half_to_f32, to_one_by_one, 2, 4);
}

/* The value of a half, from the format's definition and independent of the conversion. */
static double half_value(uint16_t h)
{
    int exp = h >> 10 & 31;
    int frac = h & 0x3ff;
    double v = exp ? ldexp(1024 + frac, exp - 25) : ldexp(frac, -24);
    return h & 0x8000 ? -v : v;
}

static void all_halves_widen_exactly_and_return(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= UINT16_MAX; h++) {
        uint32_t bits = wire_half_to_bits((uint16_t)h);
        float f;
        memcpy(&f, &bits, sizeof(f));
        bool is_nan = (h & 0x7c00) == 0x7c00 && (h & 0x3ff);
        if (is_nan)
            assert_true(isnan(f));
        else if ((h & 0x7fff) == 0x7c00)
            assert_true(isinf(f));
        else
            assert_true((double)f == half_value((uint16_t)h));
        assert_int_equal(bits >> 31, h >> 15);
        assert_int_equal(wire_half_from_bits(bits), is_nan ? h | 0x200 : h);
    }
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

/* Between each two neighbouring halves: the midpoint goes to the even one, and the floats next
 * to the midpoint to the nearer one. */
static void floats_round_to_nearest_ties_to_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double low = half_value((uint16_t)h);
        double high = half_value((uint16_t)(h + 1)); /* past 65504 the scale goes on to 65536 */
        uint32_t mid = bits_of((float)((low + high) / 2));
        uint16_t even = (uint16_t)(h & 1 ? h + 1 : h);
        assert_int_equal(wire_half_from_bits(mid), even);
        assert_int_equal(wire_half_from_bits(mid - 1), h);
        assert_int_equal(wire_half_from_bits(mid + 1), h + 1);
        assert_int_equal(wire_half_from_bits(mid | 0x80000000), even | 0x8000);
    }
}

static void floats_beyond_the_scale_become_zero_or_infinity(void **state)
{
    (void)state;
    assert_int_equal(wire_half_from_bits(bits_of(0.0f)), 0);
    assert_int_equal(wire_half_from_bits(bits_of(-0.0f)), 0x8000);
    assert_int_equal(wire_half_from_bits(1), 0);
    assert_int_equal(wire_half_from_bits(bits_of(65519.996f)), 0x7bff);
    assert_int_equal(wire_half_from_bits(bits_of(65520.0f)), 0x7c00);
    assert_int_equal(wire_half_from_bits(bits_of(-1e30f)), 0xfc00);
    assert_int_equal(wire_half_from_bits(bits_of(INFINITY)), 0x7c00);
    assert_int_equal(wire_half_from_bits(0x7f800001), 0x7e00); /* the payload bit is lost */
    assert_int_equal(wire_half_from_bits(0xffc02000), 0xfe01);
}

/* Every exponent and sign, with fractions around each rounding decision and at random. */
static void arrays_round_as_single_values(void **state)
{
    (void)state;
    enum { PER_EXP = 64, N = 512 * PER_EXP };
    uint32_t *floats = malloc(N * sizeof(*floats));
    uint16_t *want = malloc(N * sizeof(*want)), *got = malloc(N * sizeof(*got));
    assert_true(floats && want && got);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t near = (UINT32_C(1) << (i % 23)) - 1 + (i / 23) % 3;
        uint32_t frac = i % 2 ? random_u32() : near;
        floats[i] = i / PER_EXP << 23 | (frac & 0x7fffff);
    }
    from_one_by_one(want, floats, N);
    wire_half_from_f32(got, floats, N);
    assert_memory_equal(got, want, N * sizeof(*got));
    free(floats);
    free(want);
    free(got);
}

static void arrays_widen_all_halves_as_single_values(void **state)
{
    (void)state;
    enum { N = 65536 };
    uint16_t *halves = malloc(N * sizeof(*halves));
    uint32_t *want = malloc(N * sizeof(*want)), *got = malloc(N * sizeof(*got));
    assert_true(halves && want && got);
    for (uint32_t h = 0; h < N; h++)
        halves[h] = (uint16_t)h;
    to_one_by_one(want, halves, N);
    wire_half_to_f32(got, halves, N);
    assert_memory_equal(got, want, N * sizeof(*got));
    free(halves);
    free(want);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shuffle_follows_its_definition),
        cmocka_unit_test(arrays_of_any_length_and_place_are_as_single_values),
        cmocka_unit_test(all_halves_widen_exactly_and_return),
        cmocka_unit_test(floats_round_to_nearest_ties_to_even),
        cmocka_unit_test(floats_beyond_the_scale_become_zero_or_infinity),
        cmocka_unit_test(arrays_round_as_single_values),
        cmocka_unit_test(arrays_widen_all_halves_as_single_values),
    };
    return cmocka_run_group_tests_name("wire/half", tests, NULL, NULL);
}
