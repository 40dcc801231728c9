/* The set "neon": arm64 with dot products of bytes (Armv8.2).
 *
 * Four rows of weights are taken at once.  The lanes of one register hold their sums, so that
 * scaling, accumulating and storing cost one instruction for all four. */
#include "llm/cpu/tiles_impl.h"

enum { TILE_COLS = 3 }; /* of activations: 4 x 3 x 2 accumulators leave room for the operands */

/* next: see next_rows. */
typedef float32x4_t dot4(const uint8_t *const w[4], const void *acts, uint32_t width,
                         struct next_rows next);

/* ---- F32, F16, BF16 ---- */

/* Eight weights from index k on. */
INLINE void load8(enum llm_dtype dtype, const uint8_t *w, uint32_t k, float32x4_t v[2])
{
    if (dtype == LLM_F32) {
        v[0] = vreinterpretq_f32_u8(vld1q_u8(w + 4 * k));
        v[1] = vreinterpretq_f32_u8(vld1q_u8(w + 4 * k + 16));
        return;
    }
    uint8x16_t bits = vld1q_u8(w + 2 * k);
    if (dtype == LLM_F16) {
        float16x8_t half = vreinterpretq_f16_u8(bits);
        v[0] = vcvt_f32_f16(vget_low_f16(half));
        v[1] = vcvt_high_f32_f16(half);
    } else {
        uint16x8_t top = vreinterpretq_u16_u8(bits);
        v[0] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(top), 16));
        v[1] = vreinterpretq_f32_u32(vshll_high_n_u16(top, 16));
    }
}

INLINE float load1(enum llm_dtype dtype, const uint8_t *w, uint32_t k)
{
    uint8_t padded[32] = {0};
    float32x4_t v[2];
    size_t bytes = dtype == LLM_F32 ? 4 : 2;
    memcpy(padded, w + bytes * k, bytes);
    load8(dtype, padded, 0, v);
    return vgetq_lane_f32(v[0], 0);
}

/* The terms past the last whole eight. */
INLINE void add_tail(enum llm_dtype dtype, const uint8_t *w, const float *x, uint32_t k,
                     uint32_t width, float32x4_t lanes[2])
{
    float v[LLM_LANES];
    vst1q_f32(v, lanes[0]);
    vst1q_f32(v + 4, lanes[1]);
    for (; k < width; k++)
        v[k % LLM_LANES] = fmaf(load1(dtype, w, k), x[k], v[k % LLM_LANES]);
    lanes[0] = vld1q_f32(v);
    lanes[1] = vld1q_f32(v + 4);
}

/* A value for each of four rows, by name: an array of accumulators would live in memory. */
struct four {
    float32x4_t r0, r1, r2, r3;
};

INLINE void put_four(float32x4_t lanes[4][2], struct four low, struct four high)
{
    float32x4_t all[4][2] = {
        {low.r0, high.r0}, {low.r1, high.r1}, {low.r2, high.r2}, {low.r3, high.r3}};
    memcpy(lanes, all, sizeof all);
}

/* Two lanes' registers for one row, advanced by eight weights. */
INLINE void add8(enum llm_dtype dtype, const uint8_t *w, uint32_t k, const float32x4_t x[2],
                 float32x4_t *low, float32x4_t *high)
{
    float32x4_t v[2];
    load8(dtype, w, k, v);
    *low = vfmaq_f32(*low, v[0], x[0]);
    *high = vfmaq_f32(*high, v[1], x[1]);
}

INLINE float32x4_t dot4_plain(enum llm_dtype dtype, const uint8_t *const w[4], const float *x,
                              uint32_t width, struct next_rows next)
{
    const uint8_t *w0 = w[0], *w1 = w[1], *w2 = w[2], *w3 = w[3];
    struct four low = {{0}}, high = {{0}};
    uint32_t k = 0;
    for (; k + 8 <= width; k += 8) {
        float32x4_t act[2] = {vld1q_f32(x + k), vld1q_f32(x + k + 4)};
        next_lines(next, (dtype == LLM_F32 ? 4 : 2) * (size_t)k, dtype == LLM_F32 ? 32 : 16);
        add8(dtype, w0, k, act, &low.r0, &high.r0);
        add8(dtype, w1, k, act, &low.r1, &high.r1);
        add8(dtype, w2, k, act, &low.r2, &high.r2);
        add8(dtype, w3, k, act, &low.r3, &high.r3);
    }
    float32x4_t lanes[4][2];
    put_four(lanes, low, high);
    for (int r = 0; k < width && r < 4; r++)
        add_tail(dtype, w[r], x, k, width, lanes[r]);
    return reduce4((const float32x4_t(*)[2])lanes);
}

static float32x4_t dot4_f32(const uint8_t *const w[4], const void *acts, uint32_t width,
                            struct next_rows next)
{
    return dot4_plain(LLM_F32, w, acts, width, next);
}

static float32x4_t dot4_f16(const uint8_t *const w[4], const void *acts, uint32_t width,
                            struct next_rows next)
{
    return dot4_plain(LLM_F16, w, acts, width, next);
}

static float32x4_t dot4_bf16(const uint8_t *const w[4], const void *acts, uint32_t width,
                             struct next_rows next)
{
    return dot4_plain(LLM_BF16, w, acts, width, next);
}

/* Four rows as floats, one after the other. */
INLINE void widen4(enum llm_dtype dtype, const uint8_t *const w[4], float *panel, uint32_t width)
{
    for (int r = 0; r < 4; r++, panel += width) {
        uint32_t k = 0;
        for (; k + 8 <= width; k += 8) {
            float32x4_t v[2];
            load8(dtype, w[r], k, v);
            vst1q_f32(panel + k, v[0]);
            vst1q_f32(panel + k + 4, v[1]);
        }
        for (; k < width; k++)
            panel[k] = load1(dtype, w[r], k);
    }
}

/* The lanes of four rows of weights by TILE_COLS rows of activations. */
struct tile {
    float32x4_t lanes[TILE_COLS][4][2];
};

INLINE struct four load_four(const float *w, size_t width)
{
    return (struct four){vld1q_f32(w), vld1q_f32(w + width), vld1q_f32(w + 2 * width),
                         vld1q_f32(w + 3 * width)};
}

INLINE struct four add_four(struct four acc, struct four w, const float *x)
{
    float32x4_t act = vld1q_f32(x);
    return (struct four){vfmaq_f32(acc.r0, w.r0, act), vfmaq_f32(acc.r1, w.r1, act),
                         vfmaq_f32(acc.r2, w.r2, act), vfmaq_f32(acc.r3, w.r3, act)};
}

/* The whole eights, half by half, so that four rows of weights and all accumulators fit the
 * registers. */
static void tile_sums(const float *w, const float *x, size_t width, uint32_t eights,
                      struct tile *out)
{
    struct four low0 = {{0}}, low1 = {{0}}, low2 = {{0}};
    struct four high0 = {{0}}, high1 = {{0}}, high2 = {{0}};
    for (; eights > 0; eights--, w += 8, x += 8) {
        struct four rows = load_four(w, width);
        low0 = add_four(low0, rows, x);
        low1 = add_four(low1, rows, x + width);
        low2 = add_four(low2, rows, x + 2 * width);
        rows = load_four(w + 4, width);
        high0 = add_four(high0, rows, x + 4);
        high1 = add_four(high1, rows, x + width + 4);
        high2 = add_four(high2, rows, x + 2 * width + 4);
    }
    put_four(out->lanes[0], low0, high0);
    put_four(out->lanes[1], low1, high1);
    put_four(out->lanes[2], low2, high2);
}

/* Four rows of the panel times TILE_COLS rows of activations. */
static void dots_plain(const float *panel, const float *x, uint32_t width,
                       float32x4_t out[TILE_COLS])
{
    uint32_t done = width / LLM_LANES * LLM_LANES;
    struct tile tile;
    tile_sums(panel, x, width, width / LLM_LANES, &tile);
    for (uint32_t c = 0; c < TILE_COLS; c++, x += width) {
        for (uint32_t r = 0; done < width && r < 4; r++)
            add_tail(LLM_F32, (const uint8_t *)(const void *)(panel + (size_t)r * width), x, done,
                     width, tile.lanes[c][r]);
        out[c] = reduce4((const float32x4_t(*)[2])tile.lanes[c]);
    }
}

/* Four rows of the panel times one row of activations. */
static float32x4_t dot_plain(const float *panel, const float *x, uint32_t width)
{
    const uint8_t *w[4];
    for (int r = 0; r < 4; r++)
        w[r] = (const uint8_t *)(const void *)(panel + (size_t)r * width);
    return dot4_f32(w, x, width, no_rows);
}

static void widen(enum llm_dtype dtype, const uint8_t *const w[4], float *panel, uint32_t width)
{
    if (dtype == LLM_F16)
        widen4(LLM_F16, w, panel, width);
    else if (dtype == LLM_BF16)
        widen4(LLM_BF16, w, panel, width);
    else
        widen4(LLM_F32, w, panel, width);
}

static void mul_tiles(const struct llm_mul *m)
{
    for (uint32_t row = 0; row < m->rows; row += 4) {
        const uint8_t *w[4];
        const float *x = (const float *)(const void *)m->acts;
        uint32_t col = 0;
        adjacent_rows(m, row, w, 4);
        widen(m->dtype, w, m->panel, m->width);
        for (; col + TILE_COLS <= m->count; col += TILE_COLS, x += (size_t)TILE_COLS * m->width) {
            float32x4_t sums[TILE_COLS];
            dots_plain(m->panel, x, m->width, sums);
            for (uint32_t c = 0; c < TILE_COLS; c++)
                store4(m, row, col + c, sums[c]);
        }
        for (; col < m->count; col++, x += m->width)
            store4(m, row, col, dot_plain(m->panel, x, m->width));
    }
}

/* ---- blocks ---- */

INLINE float32x4_t load4_scales(enum llm_dtype dtype, const uint8_t *const w[4], size_t at)
{
    if (dtype != LLM_MXFP4)
        return load4_halves(w, at + llm_format(dtype).scale_at);
    const float scales[4] = {llm_block_e8m0_half(w[0][at]), llm_block_e8m0_half(w[1][at]),
                             llm_block_e8m0_half(w[2][at]), llm_block_e8m0_half(w[3][at])};
    return vld1q_f32(scales);
}

INLINE int32x4_t dot16(int32x4_t sum, struct llm_raw raw, int part, const int8_t *acts)
{
    return vdotq_s32(sum, vreinterpretq_s8_u8(raw.part[part]), vld1q_s8(acts));
}

INLINE float32x4_t dot4_32(enum llm_dtype dtype, const uint8_t *const w[4], const void *acts,
                           uint32_t width, struct next_rows next)
{
    const struct llm_format f = llm_format(dtype);
    const struct llm_q32 *x = acts;
    float32x4_t acc = vdupq_n_f32(0);
    for (size_t at = 0; width; width -= 32, at += f.bytes, x++) {
        int32x4_t sums[4];
        next_lines(next, at, f.bytes);
        for (int r = 0; r < 4; r++) {
            struct llm_raw raw = llm_raw32(dtype, w[r] + at, 0);
            sums[r] =
                dot16(dot16(zeros_for(raw.part[0]), raw, 0, x->values), raw, 1, x->values + 16);
        }
        int32x4_t sum = sum4(sums);
        if (f.bias) /* raw values are too large by it */
            sum = vmlsq_s32(sum, vld1q_dup_s32(&x->sum), vdupq_n_s32(f.bias));
        float32x4_t scale = vmulq_n_f32(load4_scales(dtype, w, at), x->scale);
        acc = vfmaq_f32(acc, vcvtq_f32_s32(sum), scale);
        if (f.has_min)
            acc = vfmaq_n_f32(acc, vmulq_n_f32(load4_halves(w, at + f.min_at), x->scale),
                              (float)x->sum);
    }
    return acc;
}

/* The scales as words, of which a lane multiplies a vector. */
INLINE void widen_scales(int32x4_t words[4], const int8_t scales[16], int count)
{
    for (int i = 0; i < count; i += 8) {
        int16x8_t eight = vmovl_s8(vld1_s8(scales + i));
        words[i / 4] = vmovl_s16(vget_low_s16(eight));
        words[i / 4 + 1] = vmovl_high_s16(eight);
    }
}

/* The sum over groups of (scale or minimum) * (sum of activations), in four lanes. */
INLINE int32x4_t weigh_sums(const int16x8_t *factors, const int16x8_t *sums, int count)
{
    int32x4_t total = vmull_s16(vget_low_s16(factors[0]), vget_low_s16(sums[0]));
    total = vmlal_high_s16(total, factors[0], sums[0]);
    if (count == 16) {
        total = vmlal_s16(total, vget_low_s16(factors[1]), vget_low_s16(sums[1]));
        total = vmlal_high_s16(total, factors[1], sums[1]);
    }
    return total;
}

INLINE int32x4_t products256(enum llm_dtype dtype, const uint8_t *block, const int8_t *a,
                             const struct llm_scales *s)
{
    const struct llm_format f = llm_format(dtype);
    int32x4_t total = vdupq_n_s32(0), scales[4];
    widen_scales(scales, s->scales, 256 / f.group);
    LLM_UNROLL
    for (int i = 0; i < 8; i++, a += 32) {
        struct llm_raw raw = llm_raw32(dtype, block, i);
        if (f.group == 32) {
            total += dot16(dot16(zeros_for(raw.part[0]), raw, 0, a), raw, 1, a + 16) *
                     scales[i / 4][i % 4];
        } else {
            total += dot16(zeros_for(raw.part[0]), raw, 0, a) * scales[i / 2][2 * i % 4];
            total += dot16(zeros_for(raw.part[1]), raw, 1, a + 16) * scales[i / 2][2 * i % 4 + 1];
        }
    }
    return total;
}

INLINE float32x4_t dot4_256(enum llm_dtype dtype, const uint8_t *const w[4], const void *acts,
                            uint32_t width, struct next_rows next)
{
    const struct llm_format f = llm_format(dtype);
    const struct llm_q256 *x = acts;
    float32x4_t acc = vdupq_n_f32(0);
    for (size_t at = 0; width; width -= 256, at += f.bytes, x++) {
        int16x8_t sums[2] = {vld1q_s16(x->sums), vld1q_s16(x->sums + 8)};
        int32x4_t products[4], minima[4];
        if (f.group == 32)
            sums[0] = vpaddq_s16(sums[0], sums[1]);
        hint_lines(next, at, f.bytes);
        for (int r = 0; r < 4; r++) {
            struct llm_scales s;
            llm_scales(dtype, &s, w[r] + at);
            products[r] = products256(dtype, w[r] + at, x->values, &s);
            if (f.bias) {
                int8x16_t all = vld1q_s8(s.scales);
                int16x8_t wide[2] = {vmovl_s8(vget_low_s8(all)), vmovl_high_s8(all)};
                products[r] -= weigh_sums(wide, sums, 256 / f.group) * (int)f.bias;
            }
            if (f.has_min) {
                uint8x16_t all = vld1q_u8(s.minima);
                int16x8_t wide[2] = {vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(all))),
                                     vreinterpretq_s16_u16(vmovl_high_u8(all))};
                minima[r] = weigh_sums(wide, sums, 256 / f.group);
            }
        }
        float32x4_t scale = vmulq_n_f32(load4_scales(dtype, w, at), x->scale);
        acc = vfmaq_f32(acc, vcvtq_f32_s32(sum4(products)), scale);
        if (f.has_min)
            acc = vfmaq_f32(acc, vcvtq_f32_s32(vnegq_s32(sum4(minima))),
                            vmulq_n_f32(load4_halves(w, at + f.min_at), x->scale));
    }
    return acc;
}

#define DOT4(type, width_of_block)                                                                 \
    static float32x4_t dot4_##type(const uint8_t *const w[4], const void *acts, uint32_t width,    \
                                   struct next_rows next)                                          \
    {                                                                                              \
        return dot4_##width_of_block(LLM_##type, w, acts, width, next);                            \
    }
#define DOT4_32(type) DOT4(type, 32)
#define DOT4_256(type) DOT4(type, 256)
LLM_TYPES_32(DOT4_32)
LLM_TYPES_256(DOT4_256)

/* ---- mul ---- */

static dot4 *const dots[] = {[LLM_F32] = dot4_f32,
                             [LLM_F16] = dot4_f16,
                             [LLM_BF16] = dot4_bf16,
#define DOT4_ENTRY(type) [LLM_##type] = dot4_##type,
                             LLM_TYPES_32(DOT4_ENTRY) LLM_TYPES_256(DOT4_ENTRY)};

void llm_neon_mul(const struct llm_mul *m, bool hints)
{
    bool plain = llm_format(m->dtype).values == 0;
    if (plain && m->count >= TILE_COLS) {
        mul_tiles(m);
        return;
    }
    dot4 *dot = dots[m->dtype];
    assert(dot);
    for (uint32_t row = 0; row < m->rows; row += 4) {
        const uint8_t *w[4];
        adjacent_rows(m, row, w, 4);
        struct next_rows next = next_rows(m, row, hints);
        for (uint32_t c = 0; c < m->count; c++)
            store4(m, row, c, dot(w, m->acts + c * (m->group_bytes / LLM_GROUP), m->width, next));
    }
}

/* ---- activations ---- */

INLINE float largest(const float *src, uint32_t count)
{
    float32x4_t most = vdupq_n_f32(0);
    for (uint32_t i = 0; i < count; i += 4)
        most = vmaxnmq_f32(most, vabsq_f32(vld1q_f32(src + i)));
    return vmaxnmvq_f32(most);
}

INLINE int8x16_t round16(const float *src, float inverse)
{
    const float32x4_t rounder = vdupq_n_f32(LLM_ROUNDER);
    uint16x8_t halves[2];
    for (int i = 0; i < 2; i++, src += 8) {
        float32x4_t a = vaddq_f32(vmulq_n_f32(vld1q_f32(src), inverse), rounder);
        float32x4_t b = vaddq_f32(vmulq_n_f32(vld1q_f32(src + 4), inverse), rounder);
        halves[i] = vmovn_high_u32(vmovn_u32(vreinterpretq_u32_f32(a)), vreinterpretq_u32_f32(b));
    }
    return vreinterpretq_s8_u8(vmovn_high_u16(vmovn_u16(halves[0]), halves[1]));
}

INLINE float round_block(int8_t *dst, const float *src, uint32_t count)
{
    float most = largest(src, count);
    float inverse = most > 0 ? 127.0f / most : 0;
    for (uint32_t i = 0; i < count; i += 16)
        vst1q_s8(dst + i, round16(src + i, inverse));
    return most / 127.0f;
}

static void prepare32(struct llm_q32 *dst, const float *src, uint64_t count)
{
    for (; count; count -= 32, src += 32, dst++) {
        dst->scale = round_block(dst->values, src, 32);
        dst->sum = vaddlvq_s8(vld1q_s8(dst->values)) + vaddlvq_s8(vld1q_s8(dst->values + 16));
    }
}

static void prepare256(struct llm_q256 *dst, const float *src, uint64_t count)
{
    for (; count; count -= 256, src += 256, dst++) {
        dst->scale = round_block(dst->values, src, 256);
        for (int i = 0; i < LLM_Q256_SUMS; i++)
            dst->sums[i] = vaddlvq_s8(vld1q_s8(dst->values + 16 * i));
    }
}

void llm_neon_prepare(enum llm_act act, void *dst, const float *src, uint32_t width, uint32_t rows)
{
    if (act == LLM_ACT_F16)
        llm_round_f16(dst, src, (uint64_t)width * rows);
    else if (act == LLM_ACT_Q32)
        prepare32(dst, src, (uint64_t)width * rows);
    else
        prepare256(dst, src, (uint64_t)width * rows);
}

/* ---- attention ---- */

enum { SLICE = 32 }; /* values of a head whose sums stay in registers, for TILE_COLS queries */

/* Scores of one query for the first `count` of four positions. */
static void put_scores(const struct llm_attention *a, uint32_t head, uint32_t j, uint32_t count,
                       float32x4_t sums)
{
    float four[4];
    vst1q_f32(four, vmulq_n_f32(sums, a->scale));
    memcpy(attention_scores(a, head) + j, four, count * sizeof *four);
}

/* Widening K once for all queries; one alone would only write it and read it back. */
static void score4(const struct llm_attention *a, const uint8_t *const k[4], uint32_t j,
                   uint32_t count)
{
    const float *q = a->q;
    uint32_t h = 0;
    if (a->group == 1) {
        put_scores(a, 0, j, count, dot4_f16(k, q, a->head_dim, no_rows));
        return;
    }
    widen4(LLM_F16, k, a->panel, a->head_dim);
    for (; h + TILE_COLS <= a->group; h += TILE_COLS, q += (size_t)TILE_COLS * a->head_dim) {
        float32x4_t sums[TILE_COLS];
        dots_plain(a->panel, q, a->head_dim, sums);
        for (uint32_t c = 0; c < TILE_COLS; c++)
            put_scores(a, h + c, j, count, sums[c]);
    }
    for (; h < a->group; h++, q += a->head_dim)
        put_scores(a, h, j, count, dot_plain(a->panel, q, a->head_dim));
}

static void score(const struct llm_attention *a)
{
    for (uint32_t j = 0; j < a->positions; j += 4) {
        const uint8_t *k[4];
        uint32_t count = a->positions - j < 4 ? a->positions - j : 4;
        for (uint32_t i = 0; i < 4; i++)
            k[i] = attention_row(a, a->k, j + (i < count ? i : count - 1));
        score4(a, k, j, count);
    }
}

/* `heads` and `values` are constants in each use. */
INLINE void weigh_slice(const struct llm_attention *a, uint32_t head, uint32_t heads, uint32_t at,
                        uint32_t values, const float *inverse)
{
    const float *weights = attention_scores(a, head);
    float32x4_t sums[TILE_COLS][SLICE / 4] = {{{0}}};
    for (uint32_t j = 0; j < a->positions; j++) {
        const uint8_t *v = attention_row(a, a->v, j);
        LLM_UNROLL
        for (uint32_t i = 0; i < values / 4; i += 2) {
            float32x4_t eight[2];
            load8(LLM_F16, v, at + 4 * i, eight);
            for (uint32_t h = 0; h < heads; h++) {
                float weight = weights[(size_t)h * a->positions + j];
                sums[h][i] = vfmaq_n_f32(sums[h][i], eight[0], weight);
                sums[h][i + 1] = vfmaq_n_f32(sums[h][i + 1], eight[1], weight);
            }
        }
    }
    for (uint32_t h = 0; h < heads; h++) {
        float *out = a->out + (size_t)(head + h) * a->head_dim + at;
        for (uint32_t i = 0; i < values / 4; i++)
            vst1q_f32(out + 4 * i, vmulq_n_f32(sums[h][i], inverse[h]));
    }
}

static void weigh_one(const struct llm_attention *a, uint32_t head, uint32_t at, float inverse)
{
    const float *weights = attention_scores(a, head);
    float sum = 0;
    for (uint32_t j = 0; j < a->positions; j++)
        sum = fmaf(weights[j], load1(LLM_F16, attention_row(a, a->v, j), at), sum);
    a->out[(size_t)head * a->head_dim + at] = sum * inverse;
}

INLINE void weigh_values(const struct llm_attention *a, uint32_t head, uint32_t heads, uint32_t at,
                         uint32_t values, const float *inverse)
{
    if (heads == TILE_COLS)
        weigh_slice(a, head, TILE_COLS, at, values, inverse);
    else if (heads == 2)
        weigh_slice(a, head, 2, at, values, inverse);
    else
        weigh_slice(a, head, 1, at, values, inverse);
}

/* At most TILE_COLS heads. */
static void weigh_heads(const struct llm_attention *a, uint32_t head, uint32_t heads)
{
    float inverse[TILE_COLS];
    for (uint32_t h = 0; h < heads; h++)
        inverse[h] = 1.0f / attention_weights(a, head + h);
    uint32_t at = 0;
    for (; at + SLICE <= a->head_dim; at += SLICE)
        weigh_values(a, head, heads, at, SLICE, inverse);
    for (; at + 8 <= a->head_dim; at += 8)
        weigh_values(a, head, heads, at, 8, inverse);
    for (; at < a->head_dim; at++) {
        for (uint32_t h = 0; h < heads; h++)
            weigh_one(a, head + h, at, inverse[h]);
    }
}

void llm_neon_attend(const struct llm_attention *a)
{
    score(a);
    for (uint32_t head = 0; head < a->group; head += TILE_COLS)
        weigh_heads(a, head, a->group - head < TILE_COLS ? a->group - head : TILE_COLS);
}

void llm_neon_norm(const struct llm_norm *norm)
{
    elementwise_norm(norm);
}

void llm_neon_activate(enum llm_activation kind, float *x, const float *gate_by, uint64_t count)
{
    elementwise_activate(kind, x, gate_by, count);
}

static void neon_prepare(enum llm_act act, void *dst, const float *src, uint32_t width,
                         uint32_t rows, uint32_t count)
{
    if (act == LLM_ACT_F16)
        llm_neon_prepare(act, dst, src, width, rows);
    else
        tiles_prepare(act, dst, src, width, rows, count);
}

static void neon_mul(const struct llm_mul *m)
{
    if (m->count == 1 || llm_format(m->dtype).values == 0)
        llm_neon_mul(m, true);
    else
        tiles_mul(m, true);
}

const struct llm_kernels llm_kernels_neon = {
    .name = "neon",
    .prepare = neon_prepare,
    .mul = neon_mul,
    .attend = llm_neon_attend,
    .norm = llm_neon_norm,
    .activate = llm_neon_activate,
};
