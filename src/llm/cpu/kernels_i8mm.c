/* The set "i8mm": "neon", plus two things.  Two or more rows of activations use products of byte
 * matrices (Armv8.6's SMMLA: 2 x 8 times 8 x 2).  F16 uses products of halves added to floats
 * (FMLAL; fused, so equal to widening both first).
 *
 * Four rows of weights are unpacked once into a panel; four rows of activations form a group.  Both
 * are interleaved in pieces of eight bytes, so that an operand is one load.  A tile is 4 x 4
 * results in four registers, [w0 a0, w0 a1, w1 a0, w1 a1] and so on; a group of one or two rows
 * uses half of it. */
#include "llm/cpu/neon_impl.h"
#include "wire/half.h"

#include <assert.h>

enum { PIECE = 8 };

struct acts32 {
    float scale[4];
    int32_t sum[4];
    int8_t values[4][4][PIECE]; /* piece, row */
};

struct acts256 {
    float scale[4];
    int16_t sums[16][4]; /* of 16 values; group, row */
    int8_t values[32][4][PIECE];
};

struct panel32 {
    float scale[8], min[8]; /* each twice, as the registers of a tile have them */
    int8_t values[4][4][PIECE];
};

struct panel256 {
    float scale[8], min[8];
    int32_t scales[16][4]; /* group, row; groups of 32: eight scales, then eight minima */
    int32_t minima[16][4]; /* of groups of 16 */
    int8_t values[32][4][PIECE];
};

_Static_assert(sizeof(struct acts32) <= LLM_GROUP * sizeof(struct llm_q32), "a group has room");
_Static_assert(sizeof(struct acts256) <= LLM_GROUP * sizeof(struct llm_q256), "a group has room");
_Static_assert(sizeof(struct panel32) <= LLM_GROUP * 32 * sizeof(float), "a panel has room");
_Static_assert(sizeof(struct panel256) <= LLM_GROUP * 256 * sizeof(float), "a panel has room");

/* ---- activations ---- */

static void scatter(int8_t (*dst)[4][PIECE], uint32_t row, const int8_t *src, int pieces)
{
    for (int p = 0; p < pieces; p++)
        vst1_s8(dst[p][row], vld1_s8(src + PIECE * p));
}

/* Missing rows of a group are zeros; their results are not stored. */
static void prepare32(struct acts32 *dst, const float *src, uint32_t width, uint32_t rows)
{
    if (rows < LLM_GROUP)
        memset(dst, 0, width / 32 * sizeof *dst);
    for (uint32_t at = 0; at < width; at += 32, dst++) {
        for (uint32_t r = 0; r < rows; r++) {
            struct llm_q32 block;
            llm_neon_prepare(LLM_ACT_Q32, &block, src + (size_t)r * width + at, 32, 1);
            dst->scale[r] = block.scale;
            dst->sum[r] = block.sum;
            scatter(dst->values, r, block.values, 4);
        }
    }
}

static void prepare256(struct acts256 *dst, const float *src, uint32_t width, uint32_t rows)
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
            scatter(dst->values, r, block.values, 32);
        }
    }
}

static void i8mm_prepare(enum llm_act act, void *dst, const float *src, uint32_t width,
                         uint32_t rows, uint32_t count)
{
    if (act == LLM_ACT_F16)
        wire_half_from_f32(dst, src, (size_t)width * rows);
    else if (count == 1)
        llm_neon_prepare(act, dst, src, width, rows);
    else if (act == LLM_ACT_Q32)
        prepare32(dst, src, width, rows);
    else
        prepare256(dst, src, width, rows);
}

/* ---- weights into panels ---- */

/* 16 values of each of two neighbouring rows. */
INLINE void put_pair(int8_t (*dst)[4][PIECE], int row, int8x16_t a, int8x16_t b)
{
    int64x2_t x = vreinterpretq_s64_s8(a), y = vreinterpretq_s64_s8(b);
    vst1q_s8(dst[0][row], vreinterpretq_s8_s64(vzip1q_s64(x, y)));
    vst1q_s8(dst[1][row], vreinterpretq_s8_s64(vzip2q_s64(x, y)));
}

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
    for (int r = 0; r < 4; r += 2) {
        struct llm_raw a = llm_raw32(dtype, w[r] + at, i), b = llm_raw32(dtype, w[r + 1] + at, i);
        for (int p = 0; p < 2; p++)
            put_pair(dst + 2 * p, r, vreinterpretq_s8_u8(vsubq_u8(a.part[p], bias)),
                     vreinterpretq_s8_u8(vsubq_u8(b.part[p], bias)));
    }
}

/* Four values, each twice. */
INLINE void put_twice(float dst[8], float32x4_t four)
{
    vst1q_f32(dst, vzip1q_f32(four, four));
    vst1q_f32(dst + 4, vzip2q_f32(four, four));
}

INLINE void put_scale_and_min(enum llm_dtype dtype, float scale[8], float min[8],
                              const uint8_t *const w[4], size_t at)
{
    const struct llm_format f = llm_format(dtype);
    if (dtype == LLM_MXFP4) {
        for (int r = 0; r < 8; r++)
            scale[r] = llm_block_scale(dtype, w[r / 2] + at);
    } else {
        put_twice(scale, load4_halves(w, at + f.scale_at));
    }
    if (f.has_min)
        put_twice(min, load4_halves(w, at + f.min_at));
}

INLINE void unpack_32(enum llm_dtype dtype, struct panel32 *panel, const uint8_t *const w[4],
                      uint32_t width, const volatile uint8_t *next)
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
                       uint32_t width, const volatile uint8_t *next)
{
    const struct llm_format f = llm_format(dtype);
    for (size_t at = 0; width; width -= 256, at += f.bytes, panel++) {
        ask_lines(next, at, f.bytes);
        put_scale_and_min(dtype, panel->scale, panel->min, w, at);
        put_inner(dtype, panel, w, at);
        LLM_UNROLL
        for (int i = 0; i < 8; i++)
            put_values(dtype, panel->values + 4 * i, w, at, i);
    }
}

#define UNPACK(type, values_of_block)                                                              \
    static void unpack_##type(void *panel, const uint8_t *const w[4], uint32_t width,              \
                              const volatile uint8_t *next)                                        \
    {                                                                                              \
        unpack_##values_of_block(LLM_##type, panel, w, width, next);                               \
    }
#define UNPACK_32(type) UNPACK(type, 32)
#define UNPACK_256(type) UNPACK(type, 256)
LLM_TYPES_32(UNPACK_32)
LLM_TYPES_256(UNPACK_256)

typedef void unpack4_fn(void *panel, const uint8_t *const w[4], uint32_t width,
                        const volatile uint8_t *next);
static unpack4_fn *const unpacks[] = {
#define UNPACK_ENTRY(type) [LLM_##type] = unpack_##type,
    LLM_TYPES_32(UNPACK_ENTRY) LLM_TYPES_256(UNPACK_ENTRY)};

/* ---- tiles ---- */

/* The registers of a tile, two for each pair of rows of activations.  Below, `pairs` of them are
 * computed, 1 or 2; a constant after inlining. */
struct ints {
    int32x4_t t[4];
};
struct floats {
    float32x4_t t[4];
};

INLINE struct ints multiply(const int8_t (*w)[4][PIECE], const int8_t (*a)[4][PIECE], int pieces,
                            int pairs)
{
    struct ints sum;
    for (int p = 0; p < pieces; p++) {
        int8x16_t w01 = vld1q_s8(w[p][0]), w23 = vld1q_s8(w[p][2]);
        for (int i = 0; i < pairs; i++) {
            int8x16_t act = vld1q_s8(a[p][2 * i]);
            if (p == 0) {
                sum.t[2 * i] = zeros_for(vreinterpretq_u8_s8(act));
                sum.t[2 * i + 1] = zeros_for(vreinterpretq_u8_s8(w23));
            }
            sum.t[2 * i] = vmmlaq_s32(sum.t[2 * i], w01, act);
            sum.t[2 * i + 1] = vmmlaq_s32(sum.t[2 * i + 1], w23, act);
        }
    }
    return sum;
}

/* acc += sums * (four scales of weights x those of activations). */
INLINE void scale_into(struct floats *acc, struct ints sums, const float w[8], const float a[4],
                       int pairs)
{
    float32x4_t w01 = vld1q_f32(w), w23 = vld1q_f32(w + 4);
    for (int i = 0; i < pairs; i++) {
        float32x2_t pair = vld1_f32(a + 2 * i);
        float32x4_t as = vcombine_f32(pair, pair), *t = acc->t + 2 * i;
        t[0] = vfmaq_f32(t[0], vcvtq_f32_s32(sums.t[2 * i]), vmulq_f32(w01, as));
        t[1] = vfmaq_f32(t[1], vcvtq_f32_s32(sums.t[2 * i + 1]), vmulq_f32(w23, as));
    }
}

/* Stores as many columns as there are rows of activations. */
static void store_tile(const struct llm_mul *m, uint32_t row, uint32_t col, struct floats acc)
{
    float32x4_t cols[LLM_GROUP] = {vuzp1q_f32(acc.t[0], acc.t[1]), vuzp2q_f32(acc.t[0], acc.t[1]),
                                   vuzp1q_f32(acc.t[2], acc.t[3]), vuzp2q_f32(acc.t[2], acc.t[3])};
    for (uint32_t c = 0; c < LLM_GROUP && col + c < m->count; c++)
        store4(m, row, col + c, cols[c]);
}

/* acc += (sums of activations) * (minima of weights x scales of activations). */
INLINE void min_into(struct floats *acc, const struct panel32 *w, const struct acts32 *a, int pairs)
{
    struct ints sums = {{{0}}};
    for (int i = 0; i < pairs; i++) {
        int32x2_t pair = vld1_s32(a->sum + 2 * i);
        sums.t[2 * i] = sums.t[2 * i + 1] = vcombine_s32(pair, pair);
    }
    scale_into(acc, sums, w->min, a->scale, pairs);
}

INLINE struct floats tile32(const struct panel32 *w, const struct acts32 *a, uint32_t width,
                            bool has_min, int pairs)
{
    struct floats acc = {{{0}}};
    for (; width; width -= 32, w++, a++) {
        scale_into(&acc, multiply(w->values, a->values, 4, pairs), w->scale, a->scale, pairs);
        if (has_min)
            min_into(&acc, w, a, pairs);
    }
    return acc;
}

/* total += sums * (one scale for each row of weights). */
INLINE void weigh(struct ints *total, struct ints sums, const int32_t scales[4], int pairs)
{
    int32x4_t s = vld1q_s32(scales), s01 = vzip1q_s32(s, s), s23 = vzip2q_s32(s, s);
    for (int i = 0; i < pairs; i++) {
        total->t[2 * i] = vmlaq_s32(total->t[2 * i], sums.t[2 * i], s01);
        total->t[2 * i + 1] = vmlaq_s32(total->t[2 * i + 1], sums.t[2 * i + 1], s23);
    }
}

/* Minus sums of activations, as a tile. */
INLINE struct ints taken(const int32x4_t sums, int pairs)
{
    int32x4_t less = vnegq_s32(sums);
    struct ints tile = {{{0}}};
    tile.t[0] = tile.t[1] = vcombine_s32(vget_low_s32(less), vget_low_s32(less));
    if (pairs > 1)
        tile.t[2] = tile.t[3] = vcombine_s32(vget_high_s32(less), vget_high_s32(less));
    return tile;
}

/* Subtracts the products of the minima and the activations' sums. */
INLINE struct ints minima(const struct panel256 *w, const struct acts256 *a, int group, int pairs)
{
    struct ints total = {{{0}}};
    for (int j = 0; j < 256 / group; j++) {
        int32x4_t sums = group == 16
                             ? vmovl_s16(vld1_s16(a->sums[j]))
                             : vaddl_s16(vld1_s16(a->sums[2 * j]), vld1_s16(a->sums[2 * j + 1]));
        weigh(&total, taken(sums, pairs), group == 16 ? w->minima[j] : w->scales[8 + j], pairs);
    }
    return total;
}

INLINE struct floats tile256(const struct panel256 *w, const struct acts256 *a, uint32_t width,
                             int group, bool has_min, int pairs)
{
    struct floats acc = {{{0}}};
    int pieces = group / PIECE;
    for (; width; width -= 256, w++, a++) {
        struct ints total = {{{0}}};
        for (int j = 0; j < 256 / group; j++)
            weigh(&total, multiply(w->values + pieces * j, a->values + pieces * j, pieces, pairs),
                  w->scales[j], pairs);
        scale_into(&acc, total, w->scale, a->scale, pairs);
        if (has_min)
            scale_into(&acc, minima(w, a, group, pairs), w->min, a->scale, pairs);
    }
    return acc;
}

INLINE struct floats tile(const struct llm_mul *m, const void *acts, int pairs)
{
    const struct llm_format f = llm_format(m->dtype);
    const void *panel = m->panel;
    if (f.values == 32)
        return f.has_min ? tile32(panel, acts, m->width, true, pairs)
                         : tile32(panel, acts, m->width, false, pairs);
    if (f.group == 32)
        return f.has_min ? tile256(panel, acts, m->width, 32, true, pairs)
                         : tile256(panel, acts, m->width, 32, false, pairs);
    return f.has_min ? tile256(panel, acts, m->width, 16, true, pairs)
                     : tile256(panel, acts, m->width, 16, false, pairs);
}

/* The products of the panel with the group that begins at activation row `col`. */
static struct floats tile_at(const struct llm_mul *m, uint32_t col)
{
    const void *group = m->acts + col / LLM_GROUP * m->group_bytes;
    return m->count - col <= 2 ? tile(m, group, 1) : tile(m, group, 2);
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
                          const uint8_t *const w[4], const uint8_t *x, const volatile uint8_t *next)
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
                          const uint8_t *const w[4], const uint8_t *x, const volatile uint8_t *next)
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
        const volatile uint8_t *next = next_rows(m, row);
        const uint8_t *w[4];
        uint32_t col = 0;
        rows4(m, row, w);
        for (; col + 2 <= m->count; col += 2, next = NULL)
            halves_by_two(m, row, col, w, half_row(m, col), next);
        if (col < m->count)
            halves_by_one(m, row, col, w, half_row(m, col), next);
    }
}

static void i8mm_mul(const struct llm_mul *m)
{
    if (m->dtype == LLM_F16) {
        mul_halves(m);
        return;
    }
    if (m->count == 1 || llm_act_of(m->dtype) == LLM_ACT_F32) {
        llm_neon_mul(m);
        return;
    }
    unpack4_fn *unpack = unpacks[m->dtype];
    assert(unpack);
    for (uint32_t row = 0; row < m->rows; row += 4) {
        const uint8_t *w[4];
        rows4(m, row, w);
        unpack(m->panel, w, m->width, next_rows(m, row));
        for (uint32_t col = 0; col < m->count; col += LLM_GROUP)
            store_tile(m, row, col, tile_at(m, col));
    }
}

const struct llm_kernels llm_kernels_i8mm = {
    .name = "i8mm",
    .prepare = i8mm_prepare,
    .mul = i8mm_mul,
    .attend = llm_neon_attend,
    .norm = llm_neon_norm,
    .activate = llm_neon_activate,
};
