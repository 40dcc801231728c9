/* kernels_i8mm.c - the set "i8mm": "neon", for four or more rows of activations the products of
 * byte matrices (Armv8.6's SMMLA: 2 x 8 times 8 x 2), and for F16 those of halves added to floats
 * (FMLAL: fused, so the same as widening both first).
 *
 * Four rows of weights are unpacked once into a panel and four rows of activations are prepared as
 * one group, both in pieces of eight bytes, row beside row: an operand is then one load.  A tile is
 * 4 x 4 results in four registers, [w0 a0, w0 a1, w1 a0, w1 a1] and so on. */
#include "llm/neon_impl.h"
#include "wire/half.h"

#include <assert.h>

enum { PIECE = 8 };

struct acts32 {
    float scale[4];
    int8_t values[4][4][PIECE]; /* piece, row */
};

struct acts256 {
    float scale[4];
    int32_t sums[8][4]; /* of 32 values; sub-block, row */
    int8_t values[32][4][PIECE];
};

struct panel32 {
    float scale[4];
    int8_t values[4][4][PIECE];
};

struct panel256 {
    float scale[4], min[4];
    int32_t scales[16][4]; /* sub-block, row */
    int32_t minima[8][4];
    int8_t values[32][4][PIECE];
};

_Static_assert(sizeof(struct acts32) <= LLM_GROUP * sizeof(struct llm_q32), "a group has room");
_Static_assert(sizeof(struct acts256) <= LLM_GROUP * sizeof(struct llm_q256), "a group has room");
_Static_assert(sizeof(struct panel32) <= LLM_GROUP * 32 * sizeof(float), "a panel has room");
_Static_assert(sizeof(struct panel256) <= LLM_GROUP * 256 * sizeof(float), "a panel has room");

/* ---- activations ---- */

static void scatter(int8_t (*dst)[4][PIECE], int row, const int8_t *src, int pieces)
{
    for (int p = 0; p < pieces; p++)
        vst1_s8(dst[p][row], vld1_s8(src + PIECE * p));
}

static void prepare32(struct acts32 *dst, const float *src, uint32_t width)
{
    for (uint32_t at = 0; at < width; at += 32, dst++) {
        for (int r = 0; r < 4; r++) {
            struct llm_q32 block;
            llm_neon_prepare(LLM_ACT_Q32, &block, src + (size_t)r * width + at, 32, 1);
            dst->scale[r] = block.scale;
            scatter(dst->values, r, block.values, 4);
        }
    }
}

static void prepare256(struct acts256 *dst, const float *src, uint32_t width)
{
    for (uint32_t at = 0; at < width; at += 256, dst++) {
        for (int r = 0; r < 4; r++) {
            struct llm_q256 block;
            llm_neon_prepare(LLM_ACT_Q256, &block, src + (size_t)r * width + at, 256, 1);
            dst->scale[r] = block.scale;
            for (int j = 0; j < 8; j++)
                dst->sums[j][r] = block.sums[2 * j] + block.sums[2 * j + 1];
            scatter(dst->values, r, block.values, 32);
        }
    }
}

static void i8mm_prepare(enum llm_act act, void *dst, const float *src, uint32_t width,
                         uint32_t rows)
{
    if (act == LLM_ACT_F16)
        wire_half_from_f32(dst, src, (size_t)width * rows);
    else if (rows < LLM_GROUP)
        llm_neon_prepare(act, dst, src, width, rows);
    else if (act == LLM_ACT_Q32)
        prepare32(dst, src, width);
    else
        prepare256(dst, src, width);
}

/* ---- weights into panels ---- */

static void put16(int8_t (*dst)[4][PIECE], int row, int8x16_t v)
{
    vst1_s8(dst[0][row], vget_low_s8(v));
    vst1_s8(dst[1][row], vget_high_s8(v));
}

static void unpack_q8_0(struct panel32 *panel, const uint8_t *const w[4], uint32_t width)
{
    for (size_t at = 0; width; width -= 32, at += 34, panel++) {
        vst1q_f32(panel->scale, load4_halves(w, at));
        for (int r = 0; r < 4; r++)
            scatter(panel->values, r, (const int8_t *)w[r] + at + 2, 4);
    }
}

static void unpack_q4_0(struct panel32 *panel, const uint8_t *const w[4], uint32_t width)
{
    const int8x16_t eight = vdupq_n_s8(8);
    for (size_t at = 0; width; width -= 32, at += 18, panel++) {
        vst1q_f32(panel->scale, load4_halves(w, at));
        for (int r = 0; r < 4; r++) {
            uint8x16_t q = vld1q_u8(w[r] + at + 2);
            int8x16_t low = vreinterpretq_s8_u8(vandq_u8(q, vdupq_n_u8(15)));
            int8x16_t high = vreinterpretq_s8_u8(vshrq_n_u8(q, 4));
            put16(panel->values, r, vsubq_s8(low, eight));
            put16(panel->values + 2, r, vsubq_s8(high, eight));
        }
    }
}

static void unpack_q4_k(struct panel256 *panel, const uint8_t *const w[4], uint32_t width)
{
    for (size_t at = 0; width; width -= 256, at += 144, panel++) {
        vst1q_f32(panel->scale, load4_halves(w, at));
        vst1q_f32(panel->min, load4_halves(w, at + 2));
        for (int r = 0; r < 4; r++) {
            uint8_t scales[8], minima[8];
            q4k_scales(w[r] + at, scales, minima);
            for (int j = 0; j < 8; j++) {
                panel->scales[j][r] = scales[j];
                panel->minima[j][r] = minima[j];
            }
            for (int i = 0; i < 8; i++) {
                uint8x16_t q = vld1q_u8(w[r] + at + 16 + 16 * i);
                int8_t(*to)[4][PIECE] = panel->values + 8 * (i / 2) + 2 * (i % 2);
                put16(to, r, vreinterpretq_s8_u8(vandq_u8(q, vdupq_n_u8(15))));
                put16(to + 4, r, vreinterpretq_s8_u8(vshrq_n_u8(q, 4)));
            }
        }
    }
}

/* Both 16s of each of the four runs of one half of a block, from the nibbles and pairs they share.
 */
static void unpack_q6_half(int8_t (*to)[4][PIECE], int row, const uint8_t *low, const uint8_t *high)
{
    const uint8x16_t nibble = vdupq_n_u8(15), pair = vdupq_n_u8(0x30);
    const int8x16_t lower = vdupq_n_s8(32);
    for (int side = 0; side < 2; side++, to += 2) {
        uint8x16_t l0 = vld1q_u8(low + 16 * side), l1 = vld1q_u8(low + 32 + 16 * side);
        uint8x16_t h = vld1q_u8(high + 16 * side);
        uint8x16_t runs[4] = {
            vorrq_u8(vandq_u8(l0, nibble), vandq_u8(vshlq_n_u8(h, 4), pair)),
            vorrq_u8(vandq_u8(l1, nibble), vandq_u8(vshlq_n_u8(h, 2), pair)),
            vorrq_u8(vshrq_n_u8(l0, 4), vandq_u8(h, pair)),
            vorrq_u8(vshrq_n_u8(l1, 4), vandq_u8(vshrq_n_u8(h, 2), pair)),
        };
        for (int run = 0; run < 4; run++)
            put16(to + 4 * run, row, vsubq_s8(vreinterpretq_s8_u8(runs[run]), lower));
    }
}

static void unpack_q6_k(struct panel256 *panel, const uint8_t *const w[4], uint32_t width)
{
    for (size_t at = 0; width; width -= 256, at += 210, panel++) {
        vst1q_f32(panel->scale, load4_halves(w, at + 208));
        for (int r = 0; r < 4; r++) {
            const uint8_t *block = w[r] + at;
            for (int g = 0; g < 16; g++)
                panel->scales[g][r] = (int8_t)block[192 + g];
            unpack_q6_half(panel->values, r, block, block + 128);
            unpack_q6_half(panel->values + 16, r, block + 64, block + 160);
        }
    }
}

/* ---- tiles ---- */

/* The four registers of a tile. */
struct ints {
    int32x4_t t[4];
};
struct floats {
    float32x4_t t[4];
};

static inline struct ints multiply(const int8_t (*w)[4][PIECE], const int8_t (*a)[4][PIECE],
                                   int pieces)
{
    struct ints sum = {{{0}}};
    for (int p = 0; p < pieces; p++) {
        int8x16_t w01 = vld1q_s8(w[p][0]), w23 = vld1q_s8(w[p][2]);
        int8x16_t a01 = vld1q_s8(a[p][0]), a23 = vld1q_s8(a[p][2]);
        sum.t[0] = vmmlaq_s32(sum.t[0], w01, a01);
        sum.t[1] = vmmlaq_s32(sum.t[1], w01, a23);
        sum.t[2] = vmmlaq_s32(sum.t[2], w23, a01);
        sum.t[3] = vmmlaq_s32(sum.t[3], w23, a23);
    }
    return sum;
}

/* acc += sums * (four scales of weights x four of activations). */
static inline void scale_into(struct floats *acc, struct ints sums, const float w[4],
                              const float a[4])
{
    float32x4_t ws = vld1q_f32(w), as = vld1q_f32(a);
    float32x4_t w01 = vzip1q_f32(ws, ws), w23 = vzip2q_f32(ws, ws);
    float32x4_t a01 = vcombine_f32(vget_low_f32(as), vget_low_f32(as));
    float32x4_t a23 = vcombine_f32(vget_high_f32(as), vget_high_f32(as));
    acc->t[0] = vfmaq_f32(acc->t[0], vcvtq_f32_s32(sums.t[0]), vmulq_f32(w01, a01));
    acc->t[1] = vfmaq_f32(acc->t[1], vcvtq_f32_s32(sums.t[1]), vmulq_f32(w01, a23));
    acc->t[2] = vfmaq_f32(acc->t[2], vcvtq_f32_s32(sums.t[2]), vmulq_f32(w23, a01));
    acc->t[3] = vfmaq_f32(acc->t[3], vcvtq_f32_s32(sums.t[3]), vmulq_f32(w23, a23));
}

static void store_tile(const struct llm_mul *m, uint32_t row, uint32_t col, struct floats acc)
{
    store4(m, row, col, vuzp1q_f32(acc.t[0], acc.t[2]));
    store4(m, row, col + 1, vuzp2q_f32(acc.t[0], acc.t[2]));
    store4(m, row, col + 2, vuzp1q_f32(acc.t[1], acc.t[3]));
    store4(m, row, col + 3, vuzp2q_f32(acc.t[1], acc.t[3]));
}

static struct floats tile32(const struct panel32 *w, const struct acts32 *a, uint32_t width)
{
    struct floats acc = {{{0}}};
    for (; width; width -= 32, w++, a++)
        scale_into(&acc, multiply(w->values, a->values, 4), w->scale, a->scale);
    return acc;
}

/* total += sums * (one scale for each row of weights). */
static inline void weigh(struct ints *total, struct ints sums, const int32_t scales[4])
{
    int32x4_t s = vld1q_s32(scales);
    int32x4_t s01 = vzip1q_s32(s, s), s23 = vzip2q_s32(s, s);
    total->t[0] = vmlaq_s32(total->t[0], sums.t[0], s01);
    total->t[1] = vmlaq_s32(total->t[1], sums.t[1], s01);
    total->t[2] = vmlaq_s32(total->t[2], sums.t[2], s23);
    total->t[3] = vmlaq_s32(total->t[3], sums.t[3], s23);
}

/* What the minima take away: minus their products with the activations' sums. */
static inline struct ints minima(const struct panel256 *w, const struct acts256 *a)
{
    struct ints total = {{{0}}};
    for (int j = 0; j < 8; j++) {
        int32x4_t s = vnegq_s32(vld1q_s32(a->sums[j]));
        int32x4_t s01 = vcombine_s32(vget_low_s32(s), vget_low_s32(s));
        int32x4_t s23 = vcombine_s32(vget_high_s32(s), vget_high_s32(s));
        weigh(&total, (struct ints){{s01, s23, s01, s23}}, w->minima[j]);
    }
    return total;
}

static struct floats tile_q4_k(const struct panel256 *w, const struct acts256 *a, uint32_t width)
{
    struct floats acc = {{{0}}};
    for (; width; width -= 256, w++, a++) {
        struct ints total = {{{0}}};
        for (int j = 0; j < 8; j++)
            weigh(&total, multiply(w->values + 4 * j, a->values + 4 * j, 4), w->scales[j]);
        scale_into(&acc, total, w->scale, a->scale);
        scale_into(&acc, minima(w, a), w->min, a->scale);
    }
    return acc;
}

static struct floats tile_q6_k(const struct panel256 *w, const struct acts256 *a, uint32_t width)
{
    struct floats acc = {{{0}}};
    for (; width; width -= 256, w++, a++) {
        struct ints total = {{{0}}};
        for (int g = 0; g < 16; g++)
            weigh(&total, multiply(w->values + 2 * g, a->values + 2 * g, 2), w->scales[g]);
        scale_into(&acc, total, w->scale, a->scale);
    }
    return acc;
}

static void unpack(const struct llm_mul *m, uint32_t row)
{
    const uint8_t *w[4];
    rows4(m, row, w);
    switch (m->dtype) {
    case LLM_Q8_0:
        unpack_q8_0(m->panel, w, m->width);
        break;
    case LLM_Q4_0:
        unpack_q4_0(m->panel, w, m->width);
        break;
    case LLM_Q4_K:
        unpack_q4_k(m->panel, w, m->width);
        break;
    default:
        assert(m->dtype == LLM_Q6_K);
        unpack_q6_k(m->panel, w, m->width);
    }
}

static struct floats tile(const struct llm_mul *m, const void *group)
{
    if (llm_act_of(m->dtype) == LLM_ACT_Q32)
        return tile32(m->panel, group, m->width);
    return m->dtype == LLM_Q4_K ? tile_q4_k(m->panel, group, m->width)
                                : tile_q6_k(m->panel, group, m->width);
}

/* ---- F16 ---- */

enum { HALF_COLS = 3 };

/* Four rows of weights by some rows of activations: both registers of lanes of each. */
struct halves {
    float32x4_t low[4], high[4];
};

static inline float16x8_t load_halves(const void *p)
{
    return vreinterpretq_f16_u8(vld1q_u8(p));
}

static inline __attribute__((always_inline)) struct halves
add_halves(struct halves acc, float16x8_t w0, float16x8_t w1, float16x8_t w2, float16x8_t w3,
           float16x8_t x)
{
    return (struct halves){
        {vfmlalq_low_f16(acc.low[0], w0, x), vfmlalq_low_f16(acc.low[1], w1, x),
         vfmlalq_low_f16(acc.low[2], w2, x), vfmlalq_low_f16(acc.low[3], w3, x)},
        {vfmlalq_high_f16(acc.high[0], w0, x), vfmlalq_high_f16(acc.high[1], w1, x),
         vfmlalq_high_f16(acc.high[2], w2, x), vfmlalq_high_f16(acc.high[3], w3, x)}};
}

/* The terms past the last whole eight, then llm_sum8 of each row. */
static void finish_halves(const struct llm_mul *m, uint32_t row, uint32_t col,
                          const uint8_t *const w[4], const uint8_t *x, struct halves acc)
{
    float sums[4];
    for (int r = 0; r < 4; r++) {
        float lanes[LLM_LANES], a, b;
        vst1q_f32(lanes, acc.low[r]);
        vst1q_f32(lanes + 4, acc.high[r]);
        for (uint32_t k = m->width / LLM_LANES * LLM_LANES; k < m->width; k++) {
            wire_half_to_f32(&a, w[r] + 2 * k, 1);
            wire_half_to_f32(&b, x + 2 * k, 1);
            lanes[k % LLM_LANES] = fmaf(a, b, lanes[k % LLM_LANES]);
        }
        sums[r] = llm_sum8(lanes);
    }
    store4(m, row, col, vld1q_f32(sums));
}

static void halves_by_one(const struct llm_mul *m, uint32_t row, uint32_t col,
                          const uint8_t *const w[4], const uint8_t *x)
{
    const volatile uint8_t *next = next_rows(m, row);
    struct halves acc = {{{0}}, {{0}}};
    const uint8_t *w0 = w[0], *w1 = w[1], *w2 = w[2], *w3 = w[3];
    for (size_t at = 0; at + 16 <= 2 * (size_t)m->width; at += 16) {
        next_lines(next, at, 16);
        acc = add_halves(acc, load_halves(w0 + at), load_halves(w1 + at), load_halves(w2 + at),
                         load_halves(w3 + at), load_halves(x + at));
    }
    finish_halves(m, row, col, w, x, acc);
}

static void halves_by_three(const struct llm_mul *m, uint32_t row, uint32_t col,
                            const uint8_t *const w[4], const uint8_t *x, size_t stride)
{
    struct halves a = {{{0}}, {{0}}}, b = a, c = a;
    const uint8_t *w0 = w[0], *w1 = w[1], *w2 = w[2], *w3 = w[3];
    for (size_t at = 0; at + 16 <= 2 * (size_t)m->width; at += 16) {
        float16x8_t v0 = load_halves(w0 + at), v1 = load_halves(w1 + at);
        float16x8_t v2 = load_halves(w2 + at), v3 = load_halves(w3 + at);
        a = add_halves(a, v0, v1, v2, v3, load_halves(x + at));
        b = add_halves(b, v0, v1, v2, v3, load_halves(x + stride + at));
        c = add_halves(c, v0, v1, v2, v3, load_halves(x + 2 * stride + at));
    }
    finish_halves(m, row, col, w, x, a);
    finish_halves(m, row, col + 1, w, x + stride, b);
    finish_halves(m, row, col + 2, w, x + 2 * stride, c);
}

/* Rows of a group lie one after the other as halves; groups have room for floats. */
static const uint8_t *half_row(const struct llm_mul *m, uint32_t col)
{
    return m->acts + col / LLM_GROUP * m->group_bytes + (size_t)(col % LLM_GROUP) * 2 * m->width;
}

static void mul_halves(const struct llm_mul *m)
{
    for (uint32_t row = 0; row < m->rows; row += 4) {
        const uint8_t *w[4];
        rows4(m, row, w);
        for (uint32_t col = 0; col < m->count;) {
            bool three = col % LLM_GROUP == 0 && col + HALF_COLS <= m->count;
            if (three)
                halves_by_three(m, row, col, w, half_row(m, col), 2 * (size_t)m->width);
            else
                halves_by_one(m, row, col, w, half_row(m, col));
            col += three ? HALF_COLS : 1;
        }
    }
}

static void i8mm_mul(const struct llm_mul *m)
{
    if (m->dtype == LLM_F16) {
        mul_halves(m);
        return;
    }
    uint32_t groups = m->count / LLM_GROUP, rest = m->count % LLM_GROUP;
    if (groups == 0 || llm_act_of(m->dtype) == LLM_ACT_F32) {
        llm_neon_mul(m);
        return;
    }
    for (uint32_t row = 0; row < m->rows; row += 4) {
        unpack(m, row);
        for (uint32_t g = 0; g < groups; g++)
            store_tile(m, row, LLM_GROUP * g, tile(m, m->acts + g * m->group_bytes));
    }
    if (rest == 0)
        return;
    struct llm_mul last = *m;
    last.acts += groups * m->group_bytes;
    last.out += (size_t)groups * LLM_GROUP * m->out_width;
    last.count = rest;
    llm_neon_mul(&last);
}

const struct llm_kernels llm_kernels_i8mm = {
    .name = "i8mm",
    .prepare = i8mm_prepare,
    .mul = i8mm_mul,
    .attend = llm_neon_attend,
    .norm = llm_neon_norm,
    .silu = llm_neon_silu,
    .gelu = llm_neon_gelu,
};
