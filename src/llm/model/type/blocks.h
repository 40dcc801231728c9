/* llm/model/type/blocks.h - private to src/llm: what the blocks of quantised weights hold.
 *
 * A type is a row of llm_format, a case of llm_raw32, and for blocks of 256 one of llm_scales.  All
 * else is made from these: floats, unpacked blocks, and the products of every set of kernels.  With
 * a constant type a call leaves a few instructions; functions are inline, so that each set
 * compiles them for its own CPU.
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
#elif defined(__F16C__)
#include <immintrin.h>
#endif

#define LLM_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define LLM_UNROLL _Pragma("unroll")
#else
#define LLM_UNROLL _Pragma("GCC unroll 16")
#endif

/* The types in blocks of 32, and of 256: X(type) for each. */
#define LLM_TYPES_32(X) X(Q8_0) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(IQ4_NL) X(MXFP4)
#define LLM_TYPES_256(X) X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_XS)

/* x = scale * scales[i / group] * (raw[i] - bias), and with a minimum
 *   blocks of 32    + min
 *   blocks of 256   - min * minima[i / group]
 * Blocks of 32 have no scales inside. */
struct llm_format {
    uint16_t values, bytes; /* of a block; values 0: a type without blocks */
    uint8_t scale_at;       /* binary16; MXFP4: a byte that is an exponent */
    uint8_t min_at;         /* binary16 */
    bool has_min;
    bool has_sign; /* raw values are signed bytes; else they are below 64 */
    uint8_t bias;
    uint8_t group;
};

LLM_INLINE struct llm_format llm_format(enum llm_dtype dtype)
{
    switch (dtype) {
    case LLM_Q8_0:
        return (struct llm_format){.values = 32, .bytes = 34, .has_sign = true, .group = 32};
    case LLM_Q4_0:
        return (struct llm_format){.values = 32, .bytes = 18, .bias = 8, .group = 32};
    case LLM_Q4_1:
        return (struct llm_format){
            .values = 32, .bytes = 20, .has_min = true, .min_at = 2, .group = 32};
    case LLM_Q5_0:
        return (struct llm_format){.values = 32, .bytes = 22, .bias = 16, .group = 32};
    case LLM_Q5_1:
        return (struct llm_format){
            .values = 32, .bytes = 24, .has_min = true, .min_at = 2, .group = 32};
    case LLM_IQ4_NL:
        return (struct llm_format){.values = 32, .bytes = 18, .has_sign = true, .group = 32};
    case LLM_MXFP4:
        return (struct llm_format){.values = 32, .bytes = 17, .has_sign = true, .group = 32};
    case LLM_Q2_K:
        return (struct llm_format){
            .values = 256, .bytes = 84, .scale_at = 80, .has_min = true, .min_at = 82, .group = 16};
    case LLM_Q3_K:
        return (struct llm_format){
            .values = 256, .bytes = 110, .scale_at = 108, .bias = 4, .group = 16};
    case LLM_Q4_K:
        return (struct llm_format){
            .values = 256, .bytes = 144, .has_min = true, .min_at = 2, .group = 32};
    case LLM_Q5_K:
        return (struct llm_format){
            .values = 256, .bytes = 176, .has_min = true, .min_at = 2, .group = 32};
    case LLM_Q6_K:
        return (struct llm_format){
            .values = 256, .bytes = 210, .scale_at = 208, .bias = 32, .group = 16};
    case LLM_IQ4_XS:
        return (struct llm_format){.values = 256, .bytes = 136, .has_sign = true, .group = 32};
    default:
        return (struct llm_format){0};
    }
}

/* ---- scales of blocks ---- */

LLM_INLINE float llm_block_half(const uint8_t *p)
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
LLM_INLINE float llm_block_e8m0_half(uint8_t e)
{
    uint32_t bits = e < 2 ? UINT32_C(0x200000) << e : (uint32_t)(e - 1) << 23;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

LLM_INLINE float llm_block_scale(enum llm_dtype dtype, const uint8_t *block)
{
    return dtype == LLM_MXFP4 ? llm_block_e8m0_half(*block)
                              : llm_block_half(block + llm_format(dtype).scale_at);
}

/* ---- 32 raw values ---- */

/* Bytes of one block, or with LLM_ROWS of a block of each of so many rows. */
#if defined(LLM_ROWS)
#include "llm/model/type/rows.h"
#else

typedef const uint8_t *llm_block;
typedef uint32_t llm_word;
typedef uint8_t llm_bytes16 __attribute__((vector_size(16)));
typedef llm_bytes16 llm_raw_part;

enum { LLM_RAW_PARTS = 2 };
struct llm_raw {
    llm_raw_part part[LLM_RAW_PARTS];
};

LLM_INLINE struct llm_raw llm_raw_load(llm_block b, size_t at)
{
    struct llm_raw v;
    for (int i = 0; i < LLM_RAW_PARTS; i++) /* each by itself: it stays in a register */
        memcpy(&v.part[i], b + at + 16 * i, sizeof(v.part[i]));
    return v;
}

/* The low nibbles of 16 bytes, then the high ones. */
LLM_INLINE struct llm_raw llm_raw_nibbles(llm_block b, size_t at)
{
    struct llm_raw v;
    llm_bytes16 q;
    memcpy(&q, b + at, sizeof(q));
    v.part[0] = q & 15;
    v.part[1] = q >> 4;
    return v;
}

/* Through a table of 16. */
LLM_INLINE struct llm_raw llm_raw_lookup(struct llm_raw v, const int8_t table[16])
{
#if defined(__aarch64__)
    for (int i = 0; i < LLM_RAW_PARTS; i++)
        v.part[i] = (llm_raw_part)vqtbl1q_s8(vld1q_s8(table), (uint8x16_t)v.part[i]);
#else
    for (int i = 0; i < 32; i++)
        v.part[i / 16][i % 16] = (uint8_t)table[v.part[i / 16][i % 16]];
#endif
    return v;
}

/* Bit i of 32 is worth 16 in value i. */
LLM_INLINE struct llm_raw llm_raw_fifth_bits(llm_block b, size_t at, size_t bytes)
{
    static const uint8_t each[32] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128,
                                     1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    struct llm_raw v, bit = llm_raw_load(each, 0);
    (void)bytes;
#if defined(__aarch64__)
    static const uint8_t byte[32] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                     2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
    uint8x16_t all = vreinterpretq_u8_u32(vdupq_n_u32(wire_load32(b + at)));
    v = llm_raw_load(byte, 0);
    for (int i = 0; i < LLM_RAW_PARTS; i++)
        v.part[i] = vqtbl1q_u8(all, v.part[i]);
#else
    for (int i = 0; i < 32; i++)
        v.part[i / 16][i % 16] = b[at + (size_t)i / 8];
#endif
    for (int i = 0; i < LLM_RAW_PARTS; i++)
        v.part[i] = (llm_raw_part)((v.part[i] & bit.part[i]) != 0) & 16;
    return v;
}

#endif

LLM_INLINE struct llm_raw llm_raw_or(struct llm_raw a, struct llm_raw b)
{
    for (int i = 0; i < LLM_RAW_PARTS; i++)
        a.part[i] |= b.part[i];
    return a;
}

/* `width` bits of each byte from bit `from` on, moved to bit `to`. */
LLM_INLINE struct llm_raw llm_raw_bits(struct llm_raw v, int from, int width, int to)
{
    uint8_t mask = (uint8_t)(((1 << width) - 1) << to);
    for (int i = 0; i < LLM_RAW_PARTS; i++) {
#if defined(LLM_ROWS) /* no shifts of bytes there */
        llm_word w = (llm_word)v.part[i];
        v.part[i] = (llm_raw_part)(from > to ? w >> (from - to) : w << (to - from)) & mask;
#else
        if (from > to)
            v.part[i] = v.part[i] >> (from - to);
        else if (from < to)
            v.part[i] = v.part[i] << (to - from);
        if (to != 0 || from + width != 8) /* else the shift has cleared the others */
            v.part[i] &= mask;
#endif
    }
    return v;
}

/* `width` bits, 2 or 4, of each byte of low from bit `from` on, below `top` bits of high. */
LLM_INLINE struct llm_raw llm_raw_join(struct llm_raw low, int from, int width, struct llm_raw high,
                                       int high_from, int top)
{
#if defined(__aarch64__)
    for (int i = 0; i < LLM_RAW_PARTS; i++) {
        uint8x16_t below = from ? low.part[i] >> from : low.part[i];
        uint8x16_t above = high_from ? high.part[i] >> high_from : high.part[i];
        low.part[i] = width == 2 ? vsliq_n_u8(below, above, 2) : vsliq_n_u8(below, above, 4);
        if (high_from + top != 8)
            low.part[i] &= (uint8_t)((1 << (width + top)) - 1);
    }
    return low;
#else
    return llm_raw_or(llm_raw_bits(low, from, width, 0), llm_raw_bits(high, high_from, top, width));
#endif
}

/* What the nibbles of IQ4_NL and IQ4_XS, and of MXFP4 stand for. */
extern const int8_t llm_values_iq4[16];
extern const int8_t llm_values_mxfp4[16];

/* Raw values 32 i to 32 i + 31 of a block. */
LLM_INLINE struct llm_raw llm_raw32(enum llm_dtype dtype, llm_block block, int i)
{
    switch (dtype) {
    case LLM_Q8_0:
        return llm_raw_load(block, 2);
    case LLM_Q4_0:
        return llm_raw_nibbles(block, 2);
    case LLM_Q4_1:
        return llm_raw_nibbles(block, 4);
    case LLM_Q5_0:
        return llm_raw_or(llm_raw_nibbles(block, 6), llm_raw_fifth_bits(block, 2, 22));
    case LLM_Q5_1:
        return llm_raw_or(llm_raw_nibbles(block, 8), llm_raw_fifth_bits(block, 4, 24));
    case LLM_IQ4_NL:
        return llm_raw_lookup(llm_raw_nibbles(block, 2), llm_values_iq4);
    case LLM_MXFP4:
        return llm_raw_lookup(llm_raw_nibbles(block, 1), llm_values_mxfp4);
    case LLM_Q2_K:
        return llm_raw_bits(llm_raw_load(block, 16 + i / 4 * 32), i % 4 * 2, 2, 0);
    case LLM_Q3_K:
        return llm_raw_join(llm_raw_load(block, 32 + i / 4 * 32), i % 4 * 2, 2,
                            llm_raw_load(block, 0), i, 1);
    case LLM_Q4_K:
        return llm_raw_bits(llm_raw_load(block, 16 + i / 2 * 32), i % 2 * 4, 4, 0);
    case LLM_Q5_K:
        return llm_raw_or(llm_raw_bits(llm_raw_load(block, 48 + i / 2 * 32), i % 2 * 4, 4, 0),
                          llm_raw_bits(llm_raw_load(block, 16), i, 1, 4));
    case LLM_Q6_K: /* halves of 128: four runs of 32 share 64 bytes of nibbles, 32 of pairs */
        return llm_raw_join(llm_raw_load(block, i / 4 * 64 + i % 2 * 32), i % 4 / 2 * 4, 4,
                            llm_raw_load(block, 128 + i / 4 * 32), i % 4 * 2, 2);
    default:
        assert(dtype == LLM_IQ4_XS);
        return llm_raw_lookup(llm_raw_nibbles(block, 8 + 16 * i), llm_values_iq4);
    }
}

/* ---- scales inside blocks of 256 ---- */

/* 256 / group of each, in bytes; has_min says whether minima are set. */
struct llm_scales {
#if defined(LLM_ROWS)
    llm_word scales[4], minima[4];
#else
    int8_t scales[16];
    uint8_t minima[16];
#endif
};

/* Eight scales and eight minima of six bits in 12 bytes: the first four of each have bytes of their
 * own; the others have their low nibbles in bytes 8..11 and their high pairs on top of the first
 * eight bytes. */
LLM_INLINE void llm_scales_six_bits(struct llm_scales *s, llm_word a, llm_word b, llm_word c)
{
    const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x03030303;
    const llm_word scales[2] = {a & six, (c & four) | (a >> 6 & two) << 4};
    const llm_word minima[2] = {b & six, (c >> 4 & four) | (b >> 6 & two) << 4};
    memcpy(s->scales, scales, sizeof(scales));
    memcpy(s->minima, minima, sizeof(minima));
}

/* Bytes below 64, each less 32 without borrowing from its neighbour. */
LLM_INLINE void llm_scales_less_32(struct llm_scales *s, llm_word *words, size_t bytes)
{
    const uint32_t tops = 0x80808080;
    for (size_t i = 0; i < bytes / sizeof(*words); i++)
        words[i] = ((words[i] | tops) - 0x20202020) ^ tops;
    memcpy(s->scales, words, bytes);
}

/* 16 scales of six bits in 12 bytes, plus 32: low nibbles in bytes 0..7, first the low halves of
 * the bytes, then the high ones; high pairs in bytes 8..11, scale j's at bit 2 (j / 4) of byte
 * 8 + j % 4. */
LLM_INLINE void llm_scales_q3_k(struct llm_scales *s, llm_word a, llm_word b, llm_word c)
{
    const uint32_t four = 0x0f0f0f0f, two = 0x03030303;
    llm_word words[4] = {
        (a & four) | (c & two) << 4,
        (b & four) | (c >> 2 & two) << 4,
        (a >> 4 & four) | (c >> 4 & two) << 4,
        (b >> 4 & four) | (c >> 6 & two) << 4,
    };
    llm_scales_less_32(s, words, sizeof(words));
}

/* Eight scales of six bits, plus 32: nibbles in four bytes, pairs in two. */
LLM_INLINE void llm_scales_iq4_xs(struct llm_scales *s, llm_word low, llm_word high)
{
    llm_word words[2];
    for (int i = 0; i < 2; i++) {
        llm_word a = low >> 16 * i & 0xffff, b = high >> 8 * i & 0xff;
        a = (a | a << 8) & 0x00ff00ff;
        b = (b | b << 12) & 0x000f000f;
        words[i] = ((a | a << 4) & 0x0f0f0f0f) | ((b | b << 6) & 0x03030303) << 4;
    }
    llm_scales_less_32(s, words, sizeof(words));
}

LLM_INLINE void llm_scales(enum llm_dtype dtype, struct llm_scales *s, llm_block block)
{
#if defined(LLM_ROWS)
    llm_word w[4];
    const size_t from = dtype == LLM_Q6_K ? 192 : dtype == LLM_Q3_K ? 92 : 0;
    llm_rows_words(w, block, from);
    const llm_word a = w[1], b = w[2], c = w[3], high = w[0] >> 16;
#else
    llm_bytes16 q, low;
    const size_t from = dtype == LLM_Q3_K ? 96 : 4;
    const uint32_t a = wire_load32(block + from), b = wire_load32(block + from + 4),
                   c = wire_load32(block + from + 8), high = wire_load16(block + 2);
#endif
    switch (dtype) {
    case LLM_Q2_K:
#if defined(LLM_ROWS)
        for (int i = 0; i < 4; i++) {
            s->scales[i] = w[i] & 0x0f0f0f0f;
            s->minima[i] = w[i] >> 4 & 0x0f0f0f0f;
        }
#else
        memcpy(&q, block, sizeof(q));
        low = q & 15;
        q >>= 4;
        memcpy(s->scales, &low, sizeof(low));
        memcpy(s->minima, &q, sizeof(q));
#endif
        return;
    case LLM_Q3_K:
        llm_scales_q3_k(s, a, b, c);
        return;
    case LLM_Q4_K:
    case LLM_Q5_K:
        llm_scales_six_bits(s, a, b, c);
        return;
    case LLM_Q6_K:
#if defined(LLM_ROWS)
        memcpy(s->scales, w, sizeof(w));
#else
        memcpy(s->scales, block + 192, sizeof(s->scales));
#endif
        return;
    default:
        assert(dtype == LLM_IQ4_XS);
        llm_scales_iq4_xs(s, a, high);
    }
}

#if !defined(LLM_ROWS)

/* ---- unpacked blocks ---- */

/* x = scale * value + min */
struct llm_w32 {
    float scale, min;
    int8_t values[32];
};

/* x = scale * scales[i / 16] * values[i] - min * minima[i / 16] */
struct llm_w256 {
    float scale, min;
    struct llm_scales inner;
    int8_t values[256];
};

LLM_INLINE void llm_unpack_values(enum llm_dtype dtype, int8_t *dst, const uint8_t *block, int i)
{
    struct llm_raw raw = llm_raw32(dtype, block, i);
    for (int p = 0; p < LLM_RAW_PARTS; p++)
        raw.part[p] -= llm_format(dtype).bias;
    memcpy(dst, raw.part, sizeof(raw.part));
}

LLM_INLINE void llm_unpack_block32(enum llm_dtype dtype, struct llm_w32 *dst, const uint8_t *block)
{
    struct llm_format f = llm_format(dtype);
    dst->scale = llm_block_scale(dtype, block);
    dst->min = f.has_min ? llm_block_half(block + f.min_at) : 0;
    llm_unpack_values(dtype, dst->values, block, 0);
}

LLM_INLINE void llm_unpack_block256(enum llm_dtype dtype, struct llm_w256 *dst,
                                    const uint8_t *block)
{
    struct llm_format f = llm_format(dtype);
    struct llm_scales s = {{0}, {0}};
    llm_scales(dtype, &s, block);
    dst->scale = llm_block_scale(dtype, block);
    dst->min = f.has_min ? llm_block_half(block + f.min_at) : 0;
    for (int i = 0; i < 16; i++) {
        dst->inner.scales[i] = s.scales[16 * i / f.group];
        dst->inner.minima[i] = s.minima[16 * i / f.group];
    }
    LLM_UNROLL
    for (int i = 0; i < 8; i++)
        llm_unpack_values(dtype, dst->values + 32 * i, block, i);
}

/* Rows: count is a multiple of the block. */
static inline void llm_unpack32(enum llm_dtype dtype, struct llm_w32 *dst, const uint8_t *src,
                                size_t count)
{
    switch (dtype) {
#define LLM_CASE(type)                                                                             \
    case LLM_##type:                                                                               \
        for (; count; count -= 32, src += llm_format(LLM_##type).bytes, dst++)                     \
            llm_unpack_block32(LLM_##type, dst, src);                                              \
        return;
        LLM_TYPES_32(LLM_CASE)
#undef LLM_CASE
    default:
        assert(!"a type in blocks of 32");
    }
}

static inline void llm_unpack256(enum llm_dtype dtype, struct llm_w256 *dst, const uint8_t *src,
                                 size_t count)
{
    switch (dtype) {
#define LLM_CASE(type)                                                                             \
    case LLM_##type:                                                                               \
        for (; count; count -= 256, src += llm_format(LLM_##type).bytes, dst++)                    \
            llm_unpack_block256(LLM_##type, dst, src);                                             \
        return;
        LLM_TYPES_256(LLM_CASE)
#undef LLM_CASE
    default:
        assert(!"a type in blocks of 256");
    }
}

#endif

#endif
