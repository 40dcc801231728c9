/* llm/model/type/blocks.h - private to src/llm: blocks of weights unpacked to bytes.
 *
 * The types below have no kernels of their own.  A block becomes one of two forms, which every set
 * of kernels multiplies, so that a new type needs an unpacking function and a row in
 * llm_block_form.  Functions are inline: each set compiles them for its own CPU.
 *
 * Trust: sizes are the caller's; blocks may hold any bytes.  Threads: any; no state. */
#ifndef HAWSER_LLM_MODEL_TYPE_BLOCKS_H
#define HAWSER_LLM_MODEL_TYPE_BLOCKS_H

#include "llm/model/dtype.h"
#include "wire/half.h"
#include "wire/le.h"

#include <assert.h>
#include <string.h>
#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__SSSE3__)
#include <immintrin.h>
#endif

/* x = scale * value + min */
struct llm_w32 {
    float scale, min;
    int8_t values[32];
};

/* x = scale * scales[i / 16] * values[i] - min * minima[i / 16] */
struct llm_w256 {
    float scale, min;
    int8_t scales[16];
    uint8_t minima[16];
    int8_t values[256];
};

/* MIN: with minima.  W32 always has them. */
enum llm_form { LLM_FORM_NONE, LLM_FORM_W32, LLM_FORM_W256, LLM_FORM_W256_MIN };

static inline enum llm_form llm_block_form(enum llm_dtype dtype)
{
    switch (dtype) {
    case LLM_Q4_1:
    case LLM_Q5_0:
    case LLM_Q5_1:
    case LLM_IQ4_NL:
    case LLM_MXFP4:
        return LLM_FORM_W32;
    case LLM_Q3_K:
    case LLM_IQ4_XS:
        return LLM_FORM_W256;
    case LLM_Q2_K:
    case LLM_Q5_K:
        return LLM_FORM_W256_MIN;
    default:
        return LLM_FORM_NONE;
    }
}

/* What the nibbles of IQ4_NL and IQ4_XS, and of MXFP4 stand for. */
extern const int8_t llm_values_iq4[16];
extern const int8_t llm_values_mxfp4[16];

static inline float llm_block_half(const uint8_t *p)
{
#if defined(__aarch64__)
    __fp16 half;
    memcpy(&half, p, sizeof(half));
    return (float)half;
#elif defined(__F16C__)
    return _cvtsh_ss(wire_load16(p));
#else
    uint32_t bits = wire_half_to_bits(wire_load16(p));
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
#endif
}

/* 2^(e - 128): half of what E8M0 says, because the table of MXFP4 holds doubled values. */
static inline float llm_block_e8m0_half(uint8_t e)
{
    uint32_t bits = e < 2 ? UINT32_C(0x200000) << e : (uint32_t)(e - 1) << 23;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* ---- parts ---- */

/* 16 bytes at once, in the compiler's own vectors: it does not find them in loops over bytes, which
 * may overlap. */
typedef uint8_t llm_bytes16 __attribute__((vector_size(16)));

static inline llm_bytes16 llm_load16(const void *p)
{
    llm_bytes16 v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline void llm_store16(int8_t *p, llm_bytes16 v)
{
    memcpy(p, &v, sizeof(v));
}

/* Low nibbles of 16 bytes, then the high ones. */
static inline void llm_block_nibbles(int8_t dst[32], const uint8_t *src)
{
    llm_bytes16 q = llm_load16(src);
    llm_store16(dst, q & 15);
    llm_store16(dst + 16, q >> 4);
}

/* The same through a table of 16. */
static inline void llm_block_lookup(int8_t dst[32], const uint8_t *src, const int8_t table[16])
{
#if defined(__aarch64__)
    uint8x16_t q = vld1q_u8(src);
    int8x16_t values = vld1q_s8(table);
    vst1q_s8(dst, vqtbl1q_s8(values, vandq_u8(q, vdupq_n_u8(15))));
    vst1q_s8(dst + 16, vqtbl1q_s8(values, vshrq_n_u8(q, 4)));
#elif defined(__SSSE3__)
    __m128i q = _mm_loadu_si128((const __m128i *)(const void *)src), low = _mm_set1_epi8(15);
    __m128i values = _mm_loadu_si128((const __m128i *)(const void *)table);
    _mm_storeu_si128((__m128i *)(void *)dst, _mm_shuffle_epi8(values, _mm_and_si128(q, low)));
    _mm_storeu_si128((__m128i *)(void *)(dst + 16),
                     _mm_shuffle_epi8(values, _mm_and_si128(_mm_srli_epi16(q, 4), low)));
#else
    for (int i = 0; i < 16; i++) {
        dst[i] = table[src[i] & 15];
        dst[16 + i] = table[src[i] >> 4];
    }
#endif
}

/* Bit i of 32 is worth 16 in value i. */
static inline void llm_block_fifth_bits(int8_t values[32], const uint8_t bits[4])
{
    const llm_bytes16 each = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    for (int i = 0; i < 2; i++) {
        uint8_t a = bits[2 * i], b = bits[2 * i + 1];
        llm_bytes16 both = {a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b};
        llm_bytes16 set = (llm_bytes16)((both & each) == each) & 16;
        llm_store16(values + 16 * i, llm_load16(values + 16 * i) | set);
    }
}

/* Eight 6-bit scales and eight 6-bit minima in 12 bytes, as in Q4_K and Q5_K: the first four of
 * each have bytes of their own; the others have their low nibbles in bytes 8..11 and their high
 * pairs on top of the first eight bytes. */
static inline void llm_block_six_bits(const uint8_t *packed, uint8_t scales[8], uint8_t minima[8])
{
    for (int i = 0; i < 4; i++) {
        scales[i] = packed[i] & 63;
        minima[i] = packed[i + 4] & 63;
        scales[i + 4] = (uint8_t)((packed[i + 8] & 15) | (packed[i] >> 6) << 4);
        minima[i + 4] = (uint8_t)(packed[i + 8] >> 4 | (packed[i + 4] >> 6) << 4);
    }
}

/* ---- blocks of 32 ---- */

static inline void llm_block_q4_1(struct llm_w32 *dst, const uint8_t *src)
{
    dst->scale = llm_block_half(src);
    dst->min = llm_block_half(src + 2);
    llm_block_nibbles(dst->values, src + 4);
}

static inline void llm_block_q5_0(struct llm_w32 *dst, const uint8_t *src)
{
    dst->scale = llm_block_half(src);
    dst->min = 0;
    llm_block_nibbles(dst->values, src + 6);
    llm_block_fifth_bits(dst->values, src + 2);
    llm_store16(dst->values, llm_load16(dst->values) - 16);
    llm_store16(dst->values + 16, llm_load16(dst->values + 16) - 16);
}

static inline void llm_block_q5_1(struct llm_w32 *dst, const uint8_t *src)
{
    dst->scale = llm_block_half(src);
    dst->min = llm_block_half(src + 2);
    llm_block_nibbles(dst->values, src + 8);
    llm_block_fifth_bits(dst->values, src + 4);
}

static inline void llm_block_iq4_nl(struct llm_w32 *dst, const uint8_t *src)
{
    dst->scale = llm_block_half(src);
    dst->min = 0;
    llm_block_lookup(dst->values, src + 2, llm_values_iq4);
}

static inline void llm_block_mxfp4(struct llm_w32 *dst, const uint8_t *src)
{
    dst->scale = llm_block_e8m0_half(src[0]);
    dst->min = 0;
    llm_block_lookup(dst->values, src + 1, llm_values_mxfp4);
}

/* ---- blocks of 256 ---- */

/* Pairs of bits in two groups of 32 bytes: values 128 g + 32 r + i have bits 2 r of byte i. */
static inline void llm_block_pairs(int8_t dst[256], const uint8_t *src)
{
    for (int i = 0; i < 16; i++) /* of 16 values */
        llm_store16(dst + 16 * i, llm_load16(src + i / 8 * 32 + i % 2 * 16) >> (i / 2 % 4 * 2) & 3);
}

static inline void llm_block_q2_k(struct llm_w256 *dst, const uint8_t *src)
{
    dst->scale = llm_block_half(src + 80);
    dst->min = llm_block_half(src + 82);
    for (int i = 0; i < 16; i++) {
        dst->scales[i] = (int8_t)(src[i] & 15);
        dst->minima[i] = (uint8_t)(src[i] >> 4);
    }
    llm_block_pairs(dst->values, src + 16);
}

/* 16 six-bit scales in 12 bytes: low nibbles in bytes 0..7, first the low halves of the bytes, then
 * the high ones; high pairs in bytes 8..11, scale j's at bit 2 (j / 4) of byte 8 + j % 4. */
static inline void llm_block_q3_k_scales(int8_t dst[16], const uint8_t *packed)
{
    for (int j = 0; j < 16; j++) {
        int low = packed[j % 8] >> 4 * (j / 8) & 15, high = packed[8 + j % 4] >> 2 * (j / 4) & 3;
        dst[j] = (int8_t)((low | high << 4) - 32);
    }
}

static inline void llm_block_q3_k(struct llm_w256 *dst, const uint8_t *src)
{
    dst->scale = llm_block_half(src + 108);
    dst->min = 0;
    llm_block_q3_k_scales(dst->scales, src + 96);
    memset(dst->minima, 0, sizeof(dst->minima));
    llm_block_pairs(dst->values, src + 32);
    for (int i = 0; i < 16; i++) { /* a bit that is not set lowers the value by 4 */
        llm_bytes16 third = llm_load16(src + i % 2 * 16) >> (i / 2) & 1;
        llm_store16(dst->values + 16 * i, llm_load16(dst->values + 16 * i) + (third << 2) - 4);
    }
}

static inline void llm_block_q5_k(struct llm_w256 *dst, const uint8_t *src)
{
    uint8_t scales[8], minima[8];
    llm_block_six_bits(src + 4, scales, minima);
    dst->scale = llm_block_half(src);
    dst->min = llm_block_half(src + 2);
    for (int i = 0; i < 16; i++) {
        dst->scales[i] = (int8_t)scales[i / 2];
        dst->minima[i] = minima[i / 2];
    }
    for (int i = 0; i < 16; i++) {
        llm_bytes16 fifth = llm_load16(src + 16 + i % 2 * 16) >> (i / 2) & 1;
        llm_bytes16 q = llm_load16(src + 48 + i / 4 * 32 + i % 2 * 16) >> (i / 2 % 2 * 4) & 15;
        llm_store16(dst->values + 16 * i, q | fifth << 4);
    }
}

static inline void llm_block_iq4_xs(struct llm_w256 *dst, const uint8_t *src)
{
    uint16_t high = wire_load16(src + 2);
    dst->scale = llm_block_half(src);
    dst->min = 0;
    memset(dst->minima, 0, sizeof(dst->minima));
    for (int i = 0; i < 8; i++) {
        int low = src[4 + i / 2] >> 4 * (i % 2) & 15;
        dst->scales[2 * i] = dst->scales[2 * i + 1] =
            (int8_t)((low | (high >> 2 * i & 3) << 4) - 32);
        llm_block_lookup(dst->values + 32 * i, src + 8 + 16 * i, llm_values_iq4);
    }
}

/* ---- rows: count is a multiple of the block ---- */

#define LLM_BLOCK_ROW(unpack, values, bytes)                                                       \
    for (; count; count -= (values), src += (bytes), dst++)                                        \
    unpack(dst, src)

static inline void llm_unpack32(enum llm_dtype dtype, struct llm_w32 *dst, const uint8_t *src,
                                size_t count)
{
    switch (dtype) {
    case LLM_Q4_1:
        LLM_BLOCK_ROW(llm_block_q4_1, 32, 20);
        break;
    case LLM_Q5_0:
        LLM_BLOCK_ROW(llm_block_q5_0, 32, 22);
        break;
    case LLM_Q5_1:
        LLM_BLOCK_ROW(llm_block_q5_1, 32, 24);
        break;
    case LLM_IQ4_NL:
        LLM_BLOCK_ROW(llm_block_iq4_nl, 32, 18);
        break;
    default:
        assert(dtype == LLM_MXFP4);
        LLM_BLOCK_ROW(llm_block_mxfp4, 32, 17);
    }
}

static inline void llm_unpack256(enum llm_dtype dtype, struct llm_w256 *dst, const uint8_t *src,
                                 size_t count)
{
    switch (dtype) {
    case LLM_Q2_K:
        LLM_BLOCK_ROW(llm_block_q2_k, 256, 84);
        break;
    case LLM_Q3_K:
        LLM_BLOCK_ROW(llm_block_q3_k, 256, 110);
        break;
    case LLM_Q5_K:
        LLM_BLOCK_ROW(llm_block_q5_k, 256, 176);
        break;
    default:
        assert(dtype == LLM_IQ4_XS);
        LLM_BLOCK_ROW(llm_block_iq4_xs, 256, 136);
    }
}

#undef LLM_BLOCK_ROW

#endif
