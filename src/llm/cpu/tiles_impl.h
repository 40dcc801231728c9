/* llm/cpu/tiles_impl.h - private to src/llm: two or more rows of activations times weights in
 * blocks, for the sets "neon" and "i8mm".  Included once by each.
 *
 * Four rows of weights are unpacked once into a panel; four rows of activations form a group.  Both
 * are interleaved in pieces of as many bytes as an instruction multiplies, so that an operand is
 * one load.  A tile is 4 x 4 results in four registers; a group of one or two rows uses two of
 * them.
 *
 * With products of byte matrices (Armv8.6's SMMLA: 2 x 8 times 8 x 2) a register holds two rows by
 * two columns, [w0 a0, w0 a1, w1 a0, w1 a1] and so on.  With dot products (SDOT: 4 x 4 times 4) it
 * holds a column.
 *
 * Threads: any. */
#ifndef HAWSER_LLM_CPU_TILES_IMPL_H
#define HAWSER_LLM_CPU_TILES_IMPL_H

#include "llm/cpu/neon_impl.h"

#include <assert.h>

/* The registers of a tile.  Below, `used` of them are computed, 2 or 4; a constant after inlining.
 */
struct ints {
    int32x4_t t[4];
};
struct floats {
    float32x4_t t[4];
};

/* ---- what an instruction takes ---- */

#ifdef __ARM_FEATURE_MATMUL_INT8

enum { PIECE = 8, SPREAD = 8 };

/* 16 values of each of four rows. */
INLINE void put_rows(int8_t (*dst)[4][PIECE], const int8x16_t rows[4])
{
    for (int r = 0; r < 4; r += 2) {
        int64x2_t a = vreinterpretq_s64_s8(rows[r]), b = vreinterpretq_s64_s8(rows[r + 1]);
        vst1q_s8(dst[0][r], vreinterpretq_s8_s64(vzip1q_s64(a, b)));
        vst1q_s8(dst[1][r], vreinterpretq_s8_s64(vzip2q_s64(a, b)));
    }
}

/* One for each row of weights, as w_floats reads them: each twice. */
INLINE void put_spread(float dst[SPREAD], float32x4_t four)
{
    vst1q_f32(dst, vzip1q_f32(four, four));
    vst1q_f32(dst + 4, vzip2q_f32(four, four));
}

/* As register i needs them: what belongs to rows of weights, ... */
INLINE float32x4_t w_floats(const float spread[SPREAD], int i)
{
    return vld1q_f32(spread + 4 * (i % 2));
}

INLINE int32x4_t w_ints(int32x4_t four, int i)
{
    return i % 2 ? vzip2q_s32(four, four) : vzip1q_s32(four, four);
}

/* ... and what belongs to rows of activations. */
INLINE int32x4_t a_ints(int32x4_t four, int i)
{
    int32x2_t pair = i < 2 ? vget_low_s32(four) : vget_high_s32(four);
    return vcombine_s32(pair, pair);
}

INLINE float32x4_t times_a(float32x4_t w, float32x4_t four, int i)
{
    float32x2_t pair = i < 2 ? vget_low_f32(four) : vget_high_f32(four);
    return vmulq_f32(w, vcombine_f32(pair, pair));
}

INLINE void add_products(struct ints *sum, const int8_t w[4][PIECE], const int8_t a[4][PIECE],
                         int used)
{
    int8x16_t w01 = vld1q_s8(w[0]), w23 = vld1q_s8(w[2]);
    for (int i = 0; i < used; i += 2) {
        int8x16_t act = vld1q_s8(a[i]);
        sum->t[i] = vmmlaq_s32(sum->t[i], w01, act);
        sum->t[i + 1] = vmmlaq_s32(sum->t[i + 1], w23, act);
    }
}

/* Column i of the results: four rows of weights by one of activations. */
INLINE float32x4_t column(struct floats tile, int i)
{
    float32x4_t even = tile.t[i / 2 * 2], odd = tile.t[i / 2 * 2 + 1];
    return i % 2 ? vuzp2q_f32(even, odd) : vuzp1q_f32(even, odd);
}

#else

enum { PIECE = 4, SPREAD = 4 };

INLINE void put_rows(int8_t (*dst)[4][PIECE], const int8x16_t rows[4])
{
    int32x4_t r[4];
    for (int i = 0; i < 4; i++)
        r[i] = vreinterpretq_s32_s8(rows[i]);
    int64x2_t a0 = vreinterpretq_s64_s32(vtrn1q_s32(r[0], r[1]));
    int64x2_t a1 = vreinterpretq_s64_s32(vtrn2q_s32(r[0], r[1]));
    int64x2_t b0 = vreinterpretq_s64_s32(vtrn1q_s32(r[2], r[3]));
    int64x2_t b1 = vreinterpretq_s64_s32(vtrn2q_s32(r[2], r[3]));
    vst1q_s8(dst[0][0], vreinterpretq_s8_s64(vtrn1q_s64(a0, b0)));
    vst1q_s8(dst[1][0], vreinterpretq_s8_s64(vtrn1q_s64(a1, b1)));
    vst1q_s8(dst[2][0], vreinterpretq_s8_s64(vtrn2q_s64(a0, b0)));
    vst1q_s8(dst[3][0], vreinterpretq_s8_s64(vtrn2q_s64(a1, b1)));
}

INLINE void put_spread(float dst[SPREAD], float32x4_t four)
{
    vst1q_f32(dst, four);
}

INLINE float32x4_t w_floats(const float spread[SPREAD], int i)
{
    (void)i;
    return vld1q_f32(spread);
}

INLINE int32x4_t w_ints(int32x4_t four, int i)
{
    (void)i;
    return four;
}

INLINE int32x4_t a_ints(int32x4_t four, int i)
{
    return vdupq_n_s32(four[i]);
}

INLINE float32x4_t times_a(float32x4_t w, float32x4_t four, int i)
{
    return vmulq_n_f32(w, four[i]);
}

INLINE void add_products(struct ints *sum, const int8_t w[4][PIECE], const int8_t a[4][PIECE],
                         int used)
{
    int8x16_t rows = vld1q_s8(w[0]), acts = vld1q_s8(a[0]);
    sum->t[0] = vdotq_laneq_s32(sum->t[0], rows, acts, 0);
    sum->t[1] = vdotq_laneq_s32(sum->t[1], rows, acts, 1);
    if (used == 2)
        return;
    sum->t[2] = vdotq_laneq_s32(sum->t[2], rows, acts, 2);
    sum->t[3] = vdotq_laneq_s32(sum->t[3], rows, acts, 3);
}

INLINE float32x4_t column(struct floats tile, int i)
{
    return tile.t[i];
}

#endif

/* ---- groups and panels ---- */

struct acts32 {
    float scale[4];
    int32_t sum[4];
    int8_t values[32 / PIECE][4][PIECE]; /* piece, row */
};

struct acts256 {
    float scale[4];
    int16_t sums[16][4]; /* of 16 values; group, row */
    int8_t values[256 / PIECE][4][PIECE];
};

struct panel32 {
    float scale[SPREAD], min[SPREAD];
    int8_t values[32 / PIECE][4][PIECE];
};

struct panel256 {
    float scale[SPREAD], min[SPREAD];
    int32_t scales[16][4]; /* group, row; groups of 32: eight scales, then eight minima */
    int32_t minima[16][4]; /* of groups of 16 */
    int8_t values[256 / PIECE][4][PIECE];
};

_Static_assert(sizeof(struct acts32) <= LLM_GROUP * sizeof(struct llm_q32), "a group has room");
_Static_assert(sizeof(struct acts256) <= LLM_GROUP * sizeof(struct llm_q256), "a group has room");
_Static_assert(sizeof(struct panel32) <= LLM_GROUP * 32 * sizeof(float), "a panel has room");
_Static_assert(sizeof(struct panel256) <= LLM_GROUP * 256 * sizeof(float), "a panel has room");

/* ---- activations ---- */

static void scatter(int8_t (*dst)[4][PIECE], uint32_t row, const int8_t *src, int pieces)
{
    for (int p = 0; p < pieces; p++)
        memcpy(dst[p][row], src + PIECE * p, PIECE);
}

/* Missing rows of a group are zeros; their results are not stored. */
static void group32(struct acts32 *dst, const float *src, uint32_t width, uint32_t rows)
{
    if (rows < LLM_GROUP)
        memset(dst, 0, width / 32 * sizeof *dst);
    for (uint32_t at = 0; at < width; at += 32, dst++) {
        for (uint32_t r = 0; r < rows; r++) {
            struct llm_q32 block;
            llm_neon_prepare(LLM_ACT_Q32, &block, src + (size_t)r * width + at, 32, 1);
            dst->scale[r] = block.scale;
            dst->sum[r] = block.sum;
            scatter(dst->values, r, block.values, 32 / PIECE);
        }
    }
}

static void group256(struct acts256 *dst, const float *src, uint32_t width, uint32_t rows)
{
    if (rows < LLM_GROUP)
        memset(dst, 0, width / 256 * sizeof *dst);
    for (uint32_t at = 0; at < width; at += 256, dst++) {
        for (uint32_t r = 0; r < rows; r++) {
            struct llm_q256 block;
            llm_neon_prepare(LLM_ACT_Q256, &block, src + (size_t)r * width + at, 256, 1);
            dst->scale[r] = block.scale;
            for (int j = 0; j < 16; j++)
                dst->sums[j][r] = block.sums[j];
            scatter(dst->values, r, block.values, 256 / PIECE);
        }
    }
}

/* See llm_kernels.prepare; act is of weights in blocks. */
static void tiles_prepare(enum llm_act act, void *dst, const float *src, uint32_t width,
                          uint32_t rows, uint32_t count)
{
    if (count == 1)
        llm_neon_prepare(act, dst, src, width, rows);
    else if (act == LLM_ACT_Q32)
        group32(dst, src, width, rows);
    else
        group256(dst, src, width, rows);
}

/* ---- weights into panels ---- */

/* Bytes j of four rows become dst[j]. */
INLINE void put_scales(int32_t (*dst)[4], const int8x16_t rows[4])
{
    int8x16_t even0 = vzip1q_s8(rows[0], rows[2]), even1 = vzip2q_s8(rows[0], rows[2]);
    int8x16_t odd0 = vzip1q_s8(rows[1], rows[3]), odd1 = vzip2q_s8(rows[1], rows[3]);
    int8x16_t fours[4] = {vzip1q_s8(even0, odd0), vzip2q_s8(even0, odd0), vzip1q_s8(even1, odd1),
                          vzip2q_s8(even1, odd1)};
    for (int i = 0; i < 4; i++, dst += 4) {
        int16x8_t low = vmovl_s8(vget_low_s8(fours[i])), high = vmovl_high_s8(fours[i]);
        vst1q_s32(dst[0], vmovl_s16(vget_low_s16(low)));
        vst1q_s32(dst[1], vmovl_high_s16(low));
        vst1q_s32(dst[2], vmovl_s16(vget_low_s16(high)));
        vst1q_s32(dst[3], vmovl_high_s16(high));
    }
}

/* 32 values of each of four rows, from their number 32 i on. */
INLINE void put_values(enum llm_dtype dtype, int8_t (*dst)[4][PIECE], const uint8_t *const w[4],
                       size_t at, int i)
{
    const uint8x16_t bias = vdupq_n_u8(llm_format(dtype).bias);
    int8x16_t parts[2][4];
    for (int r = 0; r < 4; r++) {
        struct llm_raw raw = llm_raw32(dtype, w[r] + at, i);
        parts[0][r] = vreinterpretq_s8_u8(vsubq_u8(raw.part[0], bias));
        parts[1][r] = vreinterpretq_s8_u8(vsubq_u8(raw.part[1], bias));
    }
    put_rows(dst, parts[0]);
    put_rows(dst + 16 / PIECE, parts[1]);
}

INLINE void put_scale_and_min(enum llm_dtype dtype, float scale[SPREAD], float min[SPREAD],
                              const uint8_t *const w[4], size_t at)
{
    const struct llm_format f = llm_format(dtype);
    if (dtype == LLM_MXFP4) {
        for (int r = 0; r < SPREAD; r++)
            scale[r] = llm_block_scale(dtype, w[r * 4 / SPREAD] + at);
    } else {
        put_spread(scale, load4_halves(w, at + f.scale_at));
    }
    if (f.has_min)
        put_spread(min, load4_halves(w, at + f.min_at));
}

INLINE void unpack_32(enum llm_dtype dtype, struct panel32 *panel, const uint8_t *const w[4],
                      uint32_t width, struct next_rows next)
{
    const struct llm_format f = llm_format(dtype);
    for (size_t at = 0; width; width -= 32, at += f.bytes, panel++) {
        next_lines(next, at, f.bytes);
        put_scale_and_min(dtype, panel->scale, panel->min, w, at);
        put_values(dtype, panel->values, w, at, 0);
    }
}

/* Scales and minima; six bits are the same as signed bytes. */
INLINE void put_inner(enum llm_dtype dtype, struct panel256 *panel, const uint8_t *const w[4],
                      size_t at)
{
    const struct llm_format f = llm_format(dtype);
    int8x16_t scales[4], minima[4];
    for (int r = 0; r < 4; r++) {
        struct llm_scales s;
        llm_scales(dtype, &s, w[r] + at);
        if (f.group == 32) {
            scales[r] =
                vcombine_s8(vld1_s8(s.scales),
                            f.has_min ? vreinterpret_s8_u8(vld1_u8(s.minima)) : vdup_n_s8(0));
        } else {
            scales[r] = vld1q_s8(s.scales);
            if (f.has_min)
                minima[r] = vreinterpretq_s8_u8(vld1q_u8(s.minima));
        }
    }
    put_scales(panel->scales, scales);
    if (f.group == 16 && f.has_min)
        put_scales(panel->minima, minima);
}

INLINE void unpack_256(enum llm_dtype dtype, struct panel256 *panel, const uint8_t *const w[4],
                       uint32_t width, struct next_rows next)
{
    const struct llm_format f = llm_format(dtype);
    for (size_t at = 0; width; width -= 256, at += f.bytes, panel++) {
        hint_lines(next, at, f.bytes);
        put_scale_and_min(dtype, panel->scale, panel->min, w, at);
        put_inner(dtype, panel, w, at);
        LLM_UNROLL
        for (int i = 0; i < 8; i++)
            put_values(dtype, panel->values + 32 / PIECE * i, w, at, i);
    }
}

#define UNPACK(type, values_of_block)                                                              \
    static void unpack_##type(void *panel, const uint8_t *const w[4], uint32_t width,              \
                              struct next_rows next)                                               \
    {                                                                                              \
        unpack_##values_of_block(LLM_##type, panel, w, width, next);                               \
    }
#define UNPACK_32(type) UNPACK(type, 32)
#define UNPACK_256(type) UNPACK(type, 256)
LLM_TYPES_32(UNPACK_32)
LLM_TYPES_256(UNPACK_256)

typedef void unpack4_fn(void *panel, const uint8_t *const w[4], uint32_t width,
                        struct next_rows next);
static unpack4_fn *const unpacks[] = {
#define UNPACK_ENTRY(type) [LLM_##type] = unpack_##type,
    LLM_TYPES_32(UNPACK_ENTRY) LLM_TYPES_256(UNPACK_ENTRY)};

/* ---- tiles ---- */

INLINE struct ints multiply(const int8_t (*w)[4][PIECE], const int8_t (*a)[4][PIECE], int pieces,
                            int used)
{
    struct ints sum;
    for (int i = 0; i < used; i++)
        sum.t[i] = zeros_for(vreinterpretq_u8_s8(vld1q_s8(w[0][0])));
    for (int p = 0; p < pieces; p++)
        add_products(&sum, w[p], a[p], used);
    return sum;
}

/* acc += sums * (four scales of weights x those of activations). */
INLINE void scale_into(struct floats *acc, struct ints sums, const float w[SPREAD],
                       const float a[4], int used)
{
    float32x4_t four = vld1q_f32(a);
    for (int i = 0; i < used; i++)
        acc->t[i] =
            vfmaq_f32(acc->t[i], vcvtq_f32_s32(sums.t[i]), times_a(w_floats(w, i), four, i));
}

/* Stores as many columns as there are rows of activations. */
static void store_tile(const struct llm_mul *m, uint32_t row, uint32_t col, struct floats acc)
{
    float32x4_t cols[LLM_GROUP] = {column(acc, 0), column(acc, 1), column(acc, 2), column(acc, 3)};
    for (uint32_t c = 0; c < LLM_GROUP && col + c < m->count; c++)
        store4(m, row, col + c, cols[c]);
}

/* One value for each row of activations, as a tile. */
INLINE struct ints sums_of(int32x4_t four, int used)
{
    struct ints tile;
    for (int i = 0; i < used; i++)
        tile.t[i] = a_ints(four, i);
    return tile;
}

INLINE struct floats tile32(const struct panel32 *w, const struct acts32 *a, uint32_t width,
                            bool has_min, int used)
{
    struct floats acc = {{{0}}};
    for (; width; width -= 32, w++, a++) {
        scale_into(&acc, multiply(w->values, a->values, 32 / PIECE, used), w->scale, a->scale,
                   used);
        if (has_min)
            scale_into(&acc, sums_of(vld1q_s32(a->sum), used), w->min, a->scale, used);
    }
    return acc;
}

/* total += sums * (one scale for each row of weights). */
INLINE void weigh(struct ints *total, struct ints sums, const int32_t scales[4], int used)
{
    int32x4_t four = vld1q_s32(scales);
    for (int i = 0; i < used; i++)
        total->t[i] = vmlaq_s32(total->t[i], sums.t[i], w_ints(four, i));
}

/* Minus the products of the minima and the activations' sums. */
INLINE struct ints minima(const struct panel256 *w, const struct acts256 *a, int group, int used)
{
    struct ints total = {{{0}}};
    for (int j = 0; j < 256 / group; j++) {
        int32x4_t sums = group == 16
                             ? vmovl_s16(vld1_s16(a->sums[j]))
                             : vaddl_s16(vld1_s16(a->sums[2 * j]), vld1_s16(a->sums[2 * j + 1]));
        weigh(&total, sums_of(vnegq_s32(sums), used), group == 16 ? w->minima[j] : w->scales[8 + j],
              used);
    }
    return total;
}

INLINE struct floats tile256(const struct panel256 *w, const struct acts256 *a, uint32_t width,
                             int group, bool has_min, int used)
{
    struct floats acc = {{{0}}};
    int pieces = group / PIECE;
    for (; width; width -= 256, w++, a++) {
        struct ints total = {{{0}}};
        for (int j = 0; j < 256 / group; j++)
            weigh(&total, multiply(w->values + pieces * j, a->values + pieces * j, pieces, used),
                  w->scales[j], used);
        scale_into(&acc, total, w->scale, a->scale, used);
        if (has_min)
            scale_into(&acc, minima(w, a, group, used), w->min, a->scale, used);
    }
    return acc;
}

INLINE struct floats tile(const struct llm_mul *m, const void *acts, int used)
{
    const struct llm_format f = llm_format(m->dtype);
    const void *panel = m->panel;
    if (f.values == 32)
        return f.has_min ? tile32(panel, acts, m->width, true, used)
                         : tile32(panel, acts, m->width, false, used);
    if (f.group == 32)
        return f.has_min ? tile256(panel, acts, m->width, 32, true, used)
                         : tile256(panel, acts, m->width, 32, false, used);
    return f.has_min ? tile256(panel, acts, m->width, 16, true, used)
                     : tile256(panel, acts, m->width, 16, false, used);
}

/* The products of the panel with the group that begins at activation row `col`. */
static struct floats tile_at(const struct llm_mul *m, uint32_t col)
{
    const void *group = m->acts + col / LLM_GROUP * m->group_bytes;
    return m->count - col <= 2 ? tile(m, group, 2) : tile(m, group, 4);
}

static void tiles_mul(const struct llm_mul *m, bool hints)
{
    unpack4_fn *unpack = unpacks[m->dtype];
    assert(unpack);
    for (uint32_t row = 0; row < m->rows; row += 4) {
        const uint8_t *w[4];
        adjacent_rows(m, row, w, 4);
        unpack(m->panel, w, m->width, next_rows(m, row, hints));
        for (uint32_t col = 0; col < m->count; col += LLM_GROUP)
            store_tile(m, row, col, tile_at(m, col));
    }
}

#endif
