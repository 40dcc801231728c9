/* llm/engine/arith.h - the arithmetic that every backend on a CPU shares, to the last bit.
 *
 * The same floats on every machine: only IEEE additions, multiplications, divisions, square roots
 * and fused multiply-adds, each written where it happens (the build forbids the compiler to fuse
 * others: -ffp-contract=off), and sums in one order:
 *
 *   a sum over k keeps eight lanes; term k goes to lane k % 8, lanes are added as llm_sum8 says.
 *
 * Eight lanes are two NEON registers or one AVX2 register: vector code has the same order.
 *
 * Trust: any floats; infinities and NaNs yield some float.  Threads: any (values). */
#ifndef HAWSER_LLM_ENGINE_ARITH_H
#define HAWSER_LLM_ENGINE_ARITH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LLM_LANES = 8 };

static inline float llm_sum8(const float v[LLM_LANES])
{
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

static inline uint32_t llm_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float llm_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Adding and subtracting this rounds to an integer, ties to even, for |x| below 2^22; the sum's low
 * bits hold the integer.  There is no conversion, which would be undefined for a NaN. */
#define LLM_ROUNDER 12582912.0f

/* e^x within 2 units in the last place; x is clamped to where the result is a normal number. */
static inline float llm_exp(float x)
{
    x = x < -87.3f ? -87.3f : x;
    x = x > 88.3f ? 88.3f : x;
    float shifted = fmaf(x, 1.44269504f, LLM_ROUNDER);
    float n = shifted - LLM_ROUNDER;
    float r = fmaf(n, -0.693359375f, x); /* ln 2 in two parts: the first product is exact */
    r = fmaf(n, 2.12194440e-4f, r);
    float p = fmaf(r, 1.3981999507e-3f, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r * r, r) + 1.0f;
    uint32_t exponent = llm_bits(shifted) - llm_bits(LLM_ROUNDER) + 127u;
    return p * llm_float(exponent << 23);
}

static inline float llm_silu(float x)
{
    return x / (1.0f + llm_exp(-x));
}

static inline float llm_sigmoid(float x)
{
    return 1.0f / (1.0f + llm_exp(-x));
}

/* The tanh form: x/2 (1 + tanh u) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3). */
static inline float llm_gelu(float x)
{
    float u2 = 1.59576912f * (x * fmaf(0.044715f, x * x, 1.0f));
    return x / (1.0f + llm_exp(-u2));
}

/* 1 - 2 / (1 + e^2x): within 2^-22 of tanh. */
static inline float llm_tanh(float x)
{
    return 1.0f - 2.0f / (1.0f + llm_exp(2.0f * x));
}

/* A soft limit: cap * tanh(x / cap); cap 0: none. */
static inline float llm_soft_cap(float x, float cap)
{
    return cap != 0 ? cap * llm_tanh(x / cap) : x;
}

/* silu with a slope of 1.702, both factors clamped: as gpt-oss has it. */
static inline float llm_silu_clamped(float x, float gate_by)
{
    x = x < 7.0f ? x : 7.0f;
    gate_by = gate_by < 7.0f ? gate_by : 7.0f;
    gate_by = gate_by > -7.0f ? gate_by : -7.0f;
    return x / (1.0f + llm_exp(-1.702f * x)) * (1.0f + gate_by);
}

#endif
