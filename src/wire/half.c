#include "wire/half.h"

#include <string.h>

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#include <stdbool.h>
#endif

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

/* ---- vectors: whole blocks of values; each call returns how many it converted ---- */

enum { BLOCK = 8 };

#if defined(__aarch64__)

/* Loads and stores are of bytes: they take any alignment. */
static size_t blocks_from_f32(uint8_t *dst, const uint8_t *src, size_t count)
{
    size_t i = 0;
    for (; count - i >= BLOCK; i += BLOCK) {
        float32x4_t lo = vreinterpretq_f32_u8(vld1q_u8(src + 4 * i));
        float32x4_t hi = vreinterpretq_f32_u8(vld1q_u8(src + 4 * i + 16));
        float16x8_t halves = vcvt_high_f16_f32(vcvt_f16_f32(lo), hi);
        vst1q_u8(dst + 2 * i, vreinterpretq_u8_f16(halves));
    }
    return i;
}

static size_t blocks_to_f32(uint8_t *dst, const uint8_t *src, size_t count)
{
    size_t i = 0;
    for (; count - i >= BLOCK; i += BLOCK) {
        float16x8_t halves = vreinterpretq_f16_u8(vld1q_u8(src + 2 * i));
        vst1q_u8(dst + 4 * i, vreinterpretq_u8_f32(vcvt_f32_f16(vget_low_f16(halves))));
        vst1q_u8(dst + 4 * i + 16, vreinterpretq_u8_f32(vcvt_high_f32_f16(halves)));
    }
    return i;
}

#elif defined(__x86_64__)

/* Compiled for those functions alone: the binary still starts on a CPU without them. */
#define F16C __attribute__((target("avx2,f16c")))

/* The builtin also asks whether the kernel saves the registers; it does not know F16C. */
static bool f16c_runs(void)
{
    static atomic_int known; /* 0: not yet.  Relaxed: every thread finds the same. */
    int runs = atomic_load_explicit(&known, memory_order_relaxed);
    if (!runs) {
        unsigned eax, ebx, ecx, edx;
        bool has = __builtin_cpu_supports("avx2") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) &&
                   (ecx & bit_F16C);
        runs = has ? 1 : -1;
        atomic_store_explicit(&known, runs, memory_order_relaxed);
    }
    return runs > 0;
}

F16C static size_t f16c_from_f32(uint8_t *dst, const uint8_t *src, size_t count)
{
    size_t i = 0;
    for (; count - i >= BLOCK; i += BLOCK) {
        __m256 v = _mm256_loadu_ps((const void *)(src + 4 * i));
        _mm_storeu_si128((void *)(dst + 2 * i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
    return i;
}

F16C static size_t f16c_to_f32(uint8_t *dst, const uint8_t *src, size_t count)
{
    size_t i = 0;
    for (; count - i >= BLOCK; i += BLOCK) {
        __m128i halves = _mm_loadu_si128((const void *)(src + 2 * i));
        _mm256_storeu_ps((void *)(dst + 4 * i), _mm256_cvtph_ps(halves));
    }
    return i;
}

static size_t blocks_from_f32(uint8_t *dst, const uint8_t *src, size_t count)
{
    return count >= BLOCK && f16c_runs() ? f16c_from_f32(dst, src, count) : 0;
}

static size_t blocks_to_f32(uint8_t *dst, const uint8_t *src, size_t count)
{
    return count >= BLOCK && f16c_runs() ? f16c_to_f32(dst, src, count) : 0;
}

#else
#define blocks_from_f32(dst, src, count) 0
#define blocks_to_f32(dst, src, count) 0
#endif

void wire_half_from_f32(void *dst, const void *src, size_t count)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    for (size_t i = blocks_from_f32(d, s, count); i < count; i++) {
        uint32_t f32;
        memcpy(&f32, s + 4 * i, sizeof(f32));
        uint16_t f16 = wire_half_from_bits(f32);
        memcpy(d + 2 * i, &f16, sizeof(f16));
    }
}

void wire_half_to_f32(void *dst, const void *src, size_t count)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    for (size_t i = blocks_to_f32(d, s, count); i < count; i++) {
        uint16_t f16;
        memcpy(&f16, s + 2 * i, sizeof(f16));
        uint32_t f32 = wire_half_to_bits(f16);
        memcpy(d + 4 * i, &f32, sizeof(f32));
    }
}
