/* The set "i8mm": "neon", plus two things.  Tiles use products of byte matrices.  F16 uses products
 * of halves added to floats (FMLAL; fused, so equal to widening both first). */
#include "llm/cpu/tiles_impl.h"
#include "wire/half.h"

static void i8mm_prepare(enum llm_act act, void *dst, const float *src, uint32_t width,
                         uint32_t rows, uint32_t count)
{
    if (act == LLM_ACT_F16)
        wire_half_from_f32(dst, src, (size_t)width * rows);
    else
        tiles_prepare(act, dst, src, width, rows, count);
}

/* ---- F16 ---- */

/* Four rows of weights by one row of activations: both registers of lanes of each.  Passed by
 * value, so that they stay in registers. */
struct halves {
    float32x4_t low[4], high[4];
};

INLINE float16x8_t load_halves(const void *p)
{
    return vreinterpretq_f16_u8(vld1q_u8(p));
}

INLINE struct halves add_halves(struct halves acc, float16x8_t w0, float16x8_t w1, float16x8_t w2,
                                float16x8_t w3, float16x8_t x)
{
    return (struct halves){
        {vfmlalq_low_f16(acc.low[0], w0, x), vfmlalq_low_f16(acc.low[1], w1, x),
         vfmlalq_low_f16(acc.low[2], w2, x), vfmlalq_low_f16(acc.low[3], w3, x)},
        {vfmlalq_high_f16(acc.high[0], w0, x), vfmlalq_high_f16(acc.high[1], w1, x),
         vfmlalq_high_f16(acc.high[2], w2, x), vfmlalq_high_f16(acc.high[3], w3, x)}};
}

/* The terms past the last whole eight. */
static void add_half_tail(float32x4_t lanes[2], const uint8_t *w, const uint8_t *x, uint32_t width)
{
    float v[LLM_LANES], a, b;
    vst1q_f32(v, lanes[0]);
    vst1q_f32(v + 4, lanes[1]);
    for (uint32_t k = width / LLM_LANES * LLM_LANES; k < width; k++) {
        wire_half_to_f32(&a, w + 2 * k, 1);
        wire_half_to_f32(&b, x + 2 * k, 1);
        v[k % LLM_LANES] = fmaf(a, b, v[k % LLM_LANES]);
    }
    lanes[0] = vld1q_f32(v);
    lanes[1] = vld1q_f32(v + 4);
}

INLINE void finish_halves(const struct llm_mul *m, uint32_t row, uint32_t col,
                          const uint8_t *const w[4], const uint8_t *x, struct halves acc)
{
    float32x4_t lanes[4][2] = {{acc.low[0], acc.high[0]},
                               {acc.low[1], acc.high[1]},
                               {acc.low[2], acc.high[2]},
                               {acc.low[3], acc.high[3]}};
    for (int r = 0; m->width % LLM_LANES && r < 4; r++)
        add_half_tail(lanes[r], w[r], x, m->width);
    store4(m, row, col, reduce4((const float32x4_t(*)[2])lanes));
}

static void halves_by_one(const struct llm_mul *m, uint32_t row, uint32_t col,
                          const uint8_t *const w[4], const uint8_t *x, struct next_rows next)
{
    struct halves acc = {{{0}}, {{0}}};
    const uint8_t *w0 = w[0], *w1 = w[1], *w2 = w[2], *w3 = w[3];
    for (size_t at = 0; at + 16 <= 2 * (size_t)m->width; at += 16) {
        next_lines(next, at, 16);
        acc = add_halves(acc, load_halves(w0 + at), load_halves(w1 + at), load_halves(w2 + at),
                         load_halves(w3 + at), load_halves(x + at));
    }
    finish_halves(m, row, col, w, x, acc);
}

/* Three would not fit the registers, and gain nothing: additions are the limit. */
static void halves_by_two(const struct llm_mul *m, uint32_t row, uint32_t col,
                          const uint8_t *const w[4], const uint8_t *x, struct next_rows next)
{
    struct halves a = {{{0}}, {{0}}}, b = a;
    const uint8_t *w0 = w[0], *w1 = w[1], *w2 = w[2], *w3 = w[3], *y = x + 2 * (size_t)m->width;
    for (size_t at = 0; at + 16 <= 2 * (size_t)m->width; at += 16) {
        float16x8_t v0 = load_halves(w0 + at), v1 = load_halves(w1 + at);
        float16x8_t v2 = load_halves(w2 + at), v3 = load_halves(w3 + at);
        next_lines(next, at, 16);
        a = add_halves(a, v0, v1, v2, v3, load_halves(x + at));
        b = add_halves(b, v0, v1, v2, v3, load_halves(y + at));
    }
    finish_halves(m, row, col, w, x, a);
    finish_halves(m, row, col + 1, w, y, b);
}

/* Rows of a group are contiguous halves; a group has room for floats. */
static const uint8_t *half_row(const struct llm_mul *m, uint32_t col)
{
    return m->acts + col / LLM_GROUP * m->group_bytes + (size_t)(col % LLM_GROUP) * 2 * m->width;
}

static void mul_halves(const struct llm_mul *m)
{
    for (uint32_t row = 0; row < m->rows; row += 4) {
        struct next_rows next = next_rows(m, row, false);
        const uint8_t *w[4];
        uint32_t col = 0;
        adjacent_rows(m, row, w, 4);
        for (; col + 2 <= m->count; col += 2, next.at = NULL)
            halves_by_two(m, row, col, w, half_row(m, col), next);
        if (col < m->count)
            halves_by_one(m, row, col, w, half_row(m, col), next);
    }
}

static void i8mm_mul(const struct llm_mul *m)
{
    if (m->dtype == LLM_F16)
        mul_halves(m);
    else if (m->count == 1 || llm_act_of(m->dtype) == LLM_ACT_F32)
        llm_neon_mul(m, false);
    else
        tiles_mul(m, false);
}

const struct llm_kernels llm_kernels_i8mm = {
    .name = "i8mm",
    .prepare = i8mm_prepare,
    .mul = i8mm_mul,
    .attend = llm_neon_attend,
    .norm = llm_neon_norm,
    .activate = llm_neon_activate,
};
