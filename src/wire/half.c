#include "wire/half.h"

#include "wire/simd.h"

/* binary32: 1 sign, 8 exponent (bias 127), 23 fraction.  binary16: 1, 5 (bias 15), 10. */
enum {
    F32_INF = 0x7f800000,
    F16_INF = 0x7c00,
    F16_QUIET = 0x0200,
    F32_QUIET = 0x00400000,
    FRAC_DROP = 23 - 10,
    REBIAS = 127 - 15,
    F32_HALF_MIN_NORMAL = (REBIAS + 1) << 23, /* 2^-14 */
    F32_HALF_OVERFLOW = 0x47800000,           /* 2^16: infinity whatever the rounding */
};

/* value / 2^drop to nearest, ties to even. */
static uint32_t shift_round_even(uint32_t value, unsigned drop)
{
    uint32_t odd = (value >> drop) & 1;
    return (value + (UINT32_C(1) << (drop - 1)) - 1 + odd) >> drop;
}

uint16_t wire_half_from_bits(uint32_t f32)
{
    uint16_t sign = (uint16_t)(f32 >> 16 & 0x8000);
    uint32_t mag = f32 & 0x7fffffff;
    if (mag > F32_INF)
        return (uint16_t)(sign | F16_INF | F16_QUIET | (mag >> FRAC_DROP & 0x3ff));
    if (mag >= F32_HALF_OVERFLOW)
        return sign | F16_INF;
    /* A carry out of the fraction steps the exponent, up to infinity: just what is wanted. */
    if (mag >= F32_HALF_MIN_NORMAL)
        return (uint16_t)(sign | shift_round_even(mag - (REBIAS << 23), FRAC_DROP));
    uint32_t exp = mag >> 23;
    if (exp < REBIAS - 10) /* below half of the smallest subnormal, 2^-25 */
        return sign;
    uint32_t frac = (mag & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | shift_round_even(frac, REBIAS + 1 + FRAC_DROP - exp));
}

uint32_t wire_half_to_bits(uint16_t f16)
{
    uint32_t sign = (uint32_t)(f16 & 0x8000) << 16;
    uint32_t mag = f16 & 0x7fff;
    if (mag > F16_INF)
        return sign | F32_INF | F32_QUIET | mag << FRAC_DROP;
    if (mag == F16_INF)
        return sign | F32_INF;
    if (mag >= 0x400)
        return sign | ((mag << FRAC_DROP) + (REBIAS << 23));
    if (mag == 0)
        return sign;
    /* A subnormal: move the leading one to the place of the implied bit. */
    unsigned up = (unsigned)__builtin_clz(mag) - 21;
    return sign | ((mag << up & 0x3ff) << FRAC_DROP) | (REBIAS + 1 - up) << 23;
}

void wire_half_from_f32(void *dst, const void *src, size_t count)
{
    wire_simd()->half_from_f32(dst, src, count);
}

void wire_half_to_f32(void *dst, const void *src, size_t count)
{
    wire_simd()->half_to_f32(dst, src, count);
}
