/* llm/cpu/x86_impl.h - private to src/llm: the kernels of the sets "avx2" and "avx512",
 * each of which compiles them for its CPU.
 *
 * Many rows of activations share tiles: of blocks (x86_tiles_impl.h), or of floats, where a
 * register holds the eight lanes of one row of weights, or of two.  For one or two rows of
 * activations, four rows of floats are taken at once, as in kernels_neon.c. */
#ifndef HAWSER_LLM_CPU_X86_IMPL_H
#define HAWSER_LLM_CPU_X86_IMPL_H

#include "llm/cpu/x86_tiles_impl.h"

/* ---- blocks: few rows of activations ----
 *
 * Each block of weights is multiplied as soon as it is unpacked, so that a panel would only be
 * written and read back. */

INLINE void fused_32(enum llm_dtype dtype, llm_block block, struct columns *columns, uint32_t width,
                     struct next_rows next, int cols)
{
    const size_t values = offsetof(struct llm_q32, values), step = sizeof(struct llm_q32);
    const size_t bytes = llm_format(dtype).bytes;
    floats acc[COLS];
    LLM_UNROLL
    for (int c = 0; c < cols; c++)
        acc[c] = splat(0);
    for (uint32_t b = 0; b < width / 32; b++) {
        struct panel32 one;
        ints sum[COLS];
        next_lines_of(next, ROWS, bytes * b, bytes);
        put_block_32(dtype, &one, block);
        llm_rows_advance(&block, bytes);
        multiply(dtype, sum, columns, one.values, step * b + values, 8, cols);
        add_block_32(dtype, acc, sum, &one, columns, b, cols);
    }
    memcpy(columns->sums, acc, (size_t)cols * sizeof *acc);
}

INLINE void fused_256(enum llm_dtype dtype, llm_block block, struct columns *columns,
                      uint32_t width, struct next_rows next, int cols)
{
    const size_t bytes = llm_format(dtype).bytes;
    const int group = llm_format(dtype).group;
    floats acc[COLS];
    LLM_UNROLL
    for (int c = 0; c < cols; c++)
        acc[c] = splat(0);
    for (uint32_t b = 0; b < width / 256; b++) {
        const size_t at = sizeof(struct llm_q256) * b + offsetof(struct llm_q256, values);
        struct panel256 one;
        ints total[COLS];
        LLM_UNROLL
        for (int c = 0; c < cols; c++)
            total[c] = splat_int(0);
        next_lines_of(next, ROWS, bytes * b, bytes);
        put_scale_and_min(dtype, one.scale, one.min, block);
        put_inner(dtype, &one, block);
        LLM_UNROLL
        for (int i = 0; i < 8; i++) {
            uint8_t values[8][ROWS][4];
            put_values(dtype, values, block, i);
            LLM_UNROLL
            for (int from = 0; from < 32; from += group) {
                ints sum[COLS], scale = load_ints(one.scales[(32 * i + from) / group]);
                multiply(dtype, sum, columns, (const uint8_t(*)[ROWS][4])values + from / 4,
                         at + 32 * (size_t)i + (size_t)from, group / 4, cols);
                LLM_UNROLL
                for (int c = 0; c < cols; c++)
                    total[c] += sum[c] * scale;
            }
        }
        add_block_256(dtype, acc, total, &one, columns, b, cols);
        llm_rows_advance(&block, bytes);
    }
    memcpy(columns->sums, acc, (size_t)cols * sizeof *acc);
}

typedef void fused_fn(llm_block block, struct columns *columns, uint32_t width,
                      struct next_rows next);

#define FUSED_OF(type, values_of_block, name, cols)                                                \
    static void name##_##type(llm_block block, struct columns *columns, uint32_t width,            \
                              struct next_rows next)                                               \
    {                                                                                              \
        fused_##values_of_block(LLM_##type, block, columns, width, next, cols);                    \
    }
#define FUSED(type, values_of_block)                                                               \
    FUSED_OF(type, values_of_block, one_col, 1)                                                    \
    FUSED_OF(type, values_of_block, few_cols, FUSED_COLS)
#define FUSED_32(type) FUSED(type, 32)
#define FUSED_256(type) FUSED(type, 256)
LLM_TYPES_32(FUSED_32)
LLM_TYPES_256(FUSED_256)

static fused_fn *const fused[][2] = {
#define FUSED_ENTRY(type) [LLM_##type] = {one_col_##type, few_cols_##type},
    LLM_TYPES_32(FUSED_ENTRY) LLM_TYPES_256(FUSED_ENTRY)};

static void mul_fused(const struct llm_mul *m)
{
    struct columns columns;
    for (uint32_t c = 0; c < COLS; c++)
        columns.acts[c] = act_row(m, c < m->count ? c : m->count - 1);
    fused_fn *dots = fused[m->dtype][m->count > 1];
    assert(dots);
    for (uint32_t row = 0; row < m->rows; row += ROWS) {
        dots(block_at(m, row), &columns, m->width, next_rows_of(m, row, ROWS, true));
        for (uint32_t c = 0; c < m->count; c++)
            store_lanes(m, row, c, columns.sums[c]);
    }
}

/* ---- F32, F16, BF16 ---- */

INLINE __m256 load8(enum llm_dtype dtype, const uint8_t *w, uint32_t k)
{
    if (dtype == LLM_F32)
        return _mm256_loadu_ps((const float *)(const void *)(w + 4 * k));
    __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)(w + 2 * k));
    if (dtype == LLM_F16)
        return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

INLINE float load1(enum llm_dtype dtype, const uint8_t *w, uint32_t k)
{
    uint8_t padded[32] = {0};
    size_t bytes = dtype == LLM_F32 ? 4 : 2;
    memcpy(padded, w + bytes * k, bytes);
    return _mm256_cvtss_f32(load8(dtype, padded, 0));
}

/* llm_sum8 of four rows' lanes. */
INLINE __m128 reduce4(const __m256 lanes[4])
{
    __m128 s[4];
    for (int r = 0; r < 4; r++)
        s[r] = _mm_add_ps(_mm256_castps256_ps128(lanes[r]), _mm256_extractf128_ps(lanes[r], 1));
    __m128 ab = _mm_add_ps(_mm_movelh_ps(s[0], s[1]), _mm_movehl_ps(s[1], s[0]));
    __m128 cd = _mm_add_ps(_mm_movelh_ps(s[2], s[3]), _mm_movehl_ps(s[3], s[2]));
    return _mm_add_ps(_mm_shuffle_ps(ab, cd, 0x88), _mm_shuffle_ps(ab, cd, 0xdd));
}

enum { PLAIN_VECTORS = 4, PLAIN_ROWS = PLAIN_VECTORS * ROWS / LLM_LANES };
_Static_assert((int)PLAIN_ROWS <= (int)LLM_PANEL_ROWS, "a panel has room");

/* PLAIN_ROWS rows as floats: eight of each side by side, then what is left of each. */
INLINE void widen_rows(enum llm_dtype dtype, const uint8_t *const w[PLAIN_ROWS], float *panel,
                       uint32_t width)
{
    uint32_t k = 0;
    for (; k + LLM_LANES <= width; k += LLM_LANES) {
        for (int r = 0; r < PLAIN_ROWS; r++, panel += LLM_LANES)
            _mm256_storeu_ps(panel, load8(dtype, w[r], k));
    }
    for (int r = 0; r < PLAIN_ROWS; r++) {
        for (uint32_t i = k; i < width; i++)
            *panel++ = load1(dtype, w[r], i);
    }
}

static void widen(enum llm_dtype dtype, const uint8_t *const w[PLAIN_ROWS], float *panel,
                  uint32_t width)
{
    if (dtype == LLM_F16)
        widen_rows(LLM_F16, w, panel, width);
    else if (dtype == LLM_BF16)
        widen_rows(LLM_BF16, w, panel, width);
    else
        widen_rows(LLM_F32, w, panel, width);
}

/* The terms past the last whole eight, which w holds. */
static void add_tail(float lanes[PLAIN_ROWS][LLM_LANES], const float *w, const float *x,
                     uint32_t count)
{
    for (int r = 0; r < PLAIN_ROWS; r++, w += count) {
        for (uint32_t i = 0; i < count; i++)
            lanes[r][i] = fmaf(w[i], x[i], lanes[r][i]);
    }
}

/* The panel times `cols` rows of activations, x_width apart; sums of row r at out[c][r]. */
INLINE void plain_tile(const float *w, const float *x, size_t x_width, uint32_t width, int cols,
                       float (*out)[PLAIN_ROWS])
{
    floats acc[PLAIN_COLS][PLAIN_VECTORS] = {{{0}}};
    for (uint32_t eights = width / LLM_LANES; eights > 0; eights--, x += LLM_LANES) {
        floats acts[PLAIN_COLS];
        LLM_UNROLL
        for (int c = 0; c < cols; c++)
            acts[c] = load_lanes(x + c * x_width);
        LLM_UNROLL
        for (int v = 0; v < PLAIN_VECTORS; v++, w += ROWS) {
            floats rows = load_floats(w);
            LLM_UNROLL
            for (int c = 0; c < cols; c++)
                acc[c][v] = fma_floats(rows, acts[c], acc[c][v]);
        }
    }
    for (int c = 0; c < cols; c++, x += x_width) {
        float lanes[PLAIN_ROWS][LLM_LANES];
        memcpy(lanes, acc[c], sizeof lanes);
        if (width % LLM_LANES)
            add_tail(lanes, w, x, width % LLM_LANES);
        for (int r = 0; r < PLAIN_ROWS; r += 4) {
            __m256 four[4];
            memcpy(four, lanes[r], sizeof four);
            _mm_storeu_ps(out[c] + r, reduce4(four));
        }
    }
}

/* At most PLAIN_COLS rows of activations. */
static void plain_dots(const float *panel, const float *x, uint32_t width, uint32_t cols,
                       float (*out)[PLAIN_ROWS])
{
    if (cols == PLAIN_COLS) {
        plain_tile(panel, x, width, width, PLAIN_COLS, out);
        return;
    }
    for (; cols >= 2; cols -= 2, x += 2 * (size_t)width, out += 2)
        plain_tile(panel, x, width, width, 2, out);
    if (cols)
        plain_tile(panel, x, width, width, 1, out);
}

static void mul_plain(const struct llm_mul *m)
{
    uint32_t step = rows_in_cache(m, PLAIN_COLS);
    for (uint32_t first = 0; first < m->count; first += step) {
        uint32_t end = m->count - first < step ? m->count : first + step;
        for (uint32_t row = 0; row < m->rows; row += PLAIN_ROWS) {
            const uint8_t *w[PLAIN_ROWS];
            adjacent_rows(m, row, w, PLAIN_ROWS);
            widen(m->dtype, w, m->panel, m->width);
            for (uint32_t col = first; col < end; col += PLAIN_COLS) {
                uint32_t cols = end - col < PLAIN_COLS ? end - col : PLAIN_COLS;
                float sums[PLAIN_COLS][PLAIN_ROWS];
                plain_dots(m->panel, (const float *)(const void *)act_row(m, col), m->width, cols,
                           sums);
                for (uint32_t c = 0; c < cols; c++)
                    store_rows(m, row, col + c, sums[c], PLAIN_ROWS);
            }
        }
    }
}

/* next: see next_rows. */
typedef __m128 dot4(const uint8_t *const w[4], const void *acts, uint32_t width,
                    struct next_rows next);

/* ---- F32, F16, BF16 ---- */

/* Lanes with the terms past the last whole eight. */
INLINE __m256 add_rest(enum llm_dtype dtype, __m256 acc, const uint8_t *w, const float *x,
                       uint32_t k, uint32_t width)
{
    float lanes[LLM_LANES];
    _mm256_storeu_ps(lanes, acc);
    for (; k < width; k++)
        lanes[k % LLM_LANES] = fmaf(load1(dtype, w, k), x[k], lanes[k % LLM_LANES]);
    return _mm256_loadu_ps(lanes);
}

INLINE __m128 dot4_plain(enum llm_dtype dtype, const uint8_t *const w[4], const float *x,
                         uint32_t width, struct next_rows next)
{
    __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
    uint32_t k = 0;
    for (; k + 8 <= width; k += 8) {
        __m256 act = _mm256_loadu_ps(x + k);
        next_lines(next, (dtype == LLM_F32 ? 4 : 2) * (size_t)k, dtype == LLM_F32 ? 32 : 16);
        a = _mm256_fmadd_ps(load8(dtype, w[0], k), act, a);
        b = _mm256_fmadd_ps(load8(dtype, w[1], k), act, b);
        c = _mm256_fmadd_ps(load8(dtype, w[2], k), act, c);
        d = _mm256_fmadd_ps(load8(dtype, w[3], k), act, d);
    }
    __m256 lanes[4] = {a, b, c, d};
    for (int r = 0; k < width && r < 4; r++)
        lanes[r] = add_rest(dtype, lanes[r], w[r], x, k, width);
    return reduce4(lanes);
}

static __m128 dot4_f32(const uint8_t *const w[4], const void *acts, uint32_t width,
                       struct next_rows next)
{
    return dot4_plain(LLM_F32, w, acts, width, next);
}

static __m128 dot4_f16(const uint8_t *const w[4], const void *acts, uint32_t width,
                       struct next_rows next)
{
    return dot4_plain(LLM_F16, w, acts, width, next);
}

static __m128 dot4_bf16(const uint8_t *const w[4], const void *acts, uint32_t width,
                        struct next_rows next)
{
    return dot4_plain(LLM_BF16, w, acts, width, next);
}

/* ---- mul ---- */

static void x86_mul(const struct llm_mul *m)
{
    if (llm_format(m->dtype).values) {
        mul_groups(m, m->count <= FUSED_COLS ? mul_fused : mul_panels);
        return;
    }
    if (m->count > 2) {
        mul_plain(m);
        return;
    }
    dot4 *dot = m->dtype == LLM_F16 ? dot4_f16 : m->dtype == LLM_BF16 ? dot4_bf16 : dot4_f32;
    for (uint32_t row = 0; row < m->rows; row += 4) {
        const uint8_t *w[4];
        struct next_rows next = next_rows(m, row, true);
        adjacent_rows(m, row, w, 4);
        for (uint32_t c = 0; c < m->count; c++) {
            float sums[4];
            _mm_storeu_ps(sums, dot(w, act_row(m, c), m->width, c ? no_rows : next));
            store_rows(m, row, c, sums, 4);
        }
    }
}

/* The reference's loops, vectorised by the compiler. */
static float round_block(int8_t *dst, const float *src, uint32_t count)
{
    float most = 0;
    for (uint32_t i = 0; i < count; i++)
        most = fabsf(src[i]) > most ? fabsf(src[i]) : most;
    float inverse = most > 0 ? 127.0f / most : 0;
    for (uint32_t i = 0; i < count; i++)
        dst[i] = (int8_t)(llm_bits(src[i] * inverse + LLM_ROUNDER) & 0xff);
    return most / 127.0f;
}

static int32_t sum_of(const int8_t *values, uint32_t count)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += values[i];
    return sum;
}

static void prepare32(struct llm_q32 *dst, const float *src, uint64_t count)
{
    for (; count; count -= 32, src += 32, dst++) {
        dst->scale = round_block(dst->values, src, 32);
        dst->sum = sum_of(dst->values, 32);
    }
}

static void prepare256(struct llm_q256 *dst, const float *src, uint64_t count)
{
    for (; count; count -= 256, src += 256, dst++) {
        dst->scale = round_block(dst->values, src, 256);
        for (int i = 0; i < LLM_Q256_SUMS; i++)
            dst->sums[i] = (int16_t)sum_of(dst->values + 16 * i, 16);
    }
}

static void x86_prepare(enum llm_act act, void *dst, const float *src, uint32_t width,
                        uint32_t rows, uint32_t count)
{
    (void)count;
    if (act == LLM_ACT_F16)
        llm_round_f16(dst, src, (uint64_t)width * rows);
    else if (act == LLM_ACT_Q32)
        prepare32(dst, src, (uint64_t)width * rows);
    else
        prepare256(dst, src, (uint64_t)width * rows);
}

/* ---- attention ---- */

/* Scores of one query for the first `count` of some positions. */
static void put_scores(const struct llm_attention *a, uint32_t query, uint32_t j, uint32_t count,
                       const float *sums)
{
    float *scores = attention_scores(a, query) + j;
    for (uint32_t i = 0; i < count; i++)
        scores[i] = sums[i] * a->scale;
}

/* The rows of K from position j on; those past the last repeat it.  Returns how many there are. */
INLINE uint32_t keys_at(const struct llm_attention *a, uint32_t j, const uint8_t *k[],
                        uint32_t count)
{
    uint32_t left = attention_span(a) - j < count ? attention_span(a) - j : count;
    for (uint32_t i = 0; i < count; i++)
        k[i] = attention_row(a, a->k, j + (i < left ? i : left - 1));
    return left;
}

/* One or two queries: K would only be written and read back. */
static void score_few(const struct llm_attention *a, const float *queries)
{
    for (uint32_t j = 0; j < attention_span(a); j += 4) {
        const uint8_t *k[4];
        uint32_t count = keys_at(a, j, k, 4);
        for (uint32_t h = 0; h < a->rows * a->group; h++) {
            float four[4];
            _mm_storeu_ps(four,
                          dot4_f16(k, queries + (size_t)h * a->head_dim, a->head_dim, no_rows));
            put_scores(a, h, j, count, four);
        }
    }
}

/* Of queries that do not see all of some positions, scores are computed and not used. */
static void score(const struct llm_attention *a, const float *queries)
{
    uint32_t total = a->rows * a->group;
    for (uint32_t j = 0; j < attention_span(a); j += PLAIN_ROWS) {
        const uint8_t *k[PLAIN_ROWS];
        uint32_t count = keys_at(a, j, k, PLAIN_ROWS);
        widen(LLM_F16, k, a->panel, a->head_dim);
        uint32_t h = j < a->positions ? 0 : (j + 1 - a->positions) * a->group;
        for (; h < total; h += PLAIN_COLS) {
            uint32_t cols = total - h < PLAIN_COLS ? total - h : PLAIN_COLS;
            float sums[PLAIN_COLS][PLAIN_ROWS];
            plain_dots(a->panel, queries + (size_t)h * a->head_dim, a->head_dim, cols, sums);
            for (uint32_t c = 0; c < cols; c++)
                put_scores(a, h + c, j, count, sums[c]);
        }
    }
}

/* The queries of all rows side by side. */
static const float *gather_queries(const struct llm_attention *a)
{
    size_t count = (size_t)a->group * a->head_dim;
    for (uint32_t r = 0; r < a->rows && a->rows > 1; r++)
        memcpy(a->queries + r * count, a->q + (size_t)r * a->q_width, count * sizeof(float));
    return a->rows > 1 ? a->queries : a->q;
}

static float *result_of(const struct llm_attention *a, uint32_t query)
{
    return a->out + (size_t)(query / a->group) * a->q_width +
           (size_t)(query % a->group) * a->head_dim;
}

INLINE floats load_halves(const uint8_t *w)
{
#if LLM_ROWS == 16
    return (floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)w));
#else
    return (floats)load8(LLM_F16, w, 0);
#endif
}

/* Values of a head whose sums stay in registers, for HEADS queries. */
enum { HEADS = PLAIN_COLS, SLICE = 4 * ROWS };

/* Adds V of the j-th position, by their weights of it, to the sums of queries from to end - 1. */
INLINE void weigh_position(const struct llm_attention *a, floats sums[HEADS][SLICE / ROWS],
                           const float *weights, uint32_t from, uint32_t end, uint32_t at,
                           uint32_t vectors, uint32_t j)
{
    const uint8_t *v = attention_row(a, a->v, j) + 2 * (size_t)at;
    const size_t span = attention_span(a);
    LLM_UNROLL
    for (uint32_t i = 0; i < vectors; i++) {
        floats values = load_halves(v + 2 * ROWS * (size_t)i);
        LLM_UNROLL
        for (uint32_t h = from; h < end; h++)
            sums[h][i] = fma_floats(splat(weights[h * span + j]), values, sums[h][i]);
    }
}

/* `heads` and `vectors` are constants in each use. */
INLINE void weigh_slice(const struct llm_attention *a, uint32_t query, uint32_t heads, uint32_t at,
                        uint32_t vectors, const float *inverse)
{
    const float *weights = attention_scores(a, query);
    uint32_t common = a->positions + query / a->group; /* that all of the queries see */
    floats sums[HEADS][SLICE / ROWS];
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t i = 0; i < vectors; i++)
            sums[h][i] = splat(0);
    }
    for (uint32_t j = 0; j < common; j++)
        weigh_position(a, sums, weights, 0, heads, at, vectors, j);
    LLM_UNROLL
    for (uint32_t h = 1; h < heads; h++) {
        for (uint32_t j = common; j < a->positions + (query + h) / a->group; j++)
            weigh_position(a, sums, weights, h, h + 1, at, vectors, j);
    }
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t i = 0; i < vectors; i++) {
            floats values = sums[h][i] * splat(inverse[h]);
            memcpy(result_of(a, query + h) + at + (size_t)ROWS * i, &values, sizeof values);
        }
    }
}

static void weigh_one(const struct llm_attention *a, uint32_t query, uint32_t at, float inverse)
{
    const float *weights = attention_scores(a, query);
    float sum = 0;
    for (uint32_t j = 0; j < a->positions + query / a->group; j++)
        sum = fmaf(weights[j], load1(LLM_F16, attention_row(a, a->v, j), at), sum);
    result_of(a, query)[at] = sum * inverse;
}

/* `heads` is a constant in each use. */
INLINE void weigh_heads(const struct llm_attention *a, uint32_t query, uint32_t heads)
{
    float inverse[HEADS];
    uint32_t at = 0;
    for (uint32_t h = 0; h < heads; h++)
        inverse[h] = 1.0f / attention_weights(a, query + h);
    for (; at + SLICE <= a->head_dim; at += SLICE)
        weigh_slice(a, query, heads, at, SLICE / ROWS, inverse);
    for (; at + ROWS <= a->head_dim; at += ROWS)
        weigh_slice(a, query, heads, at, 1, inverse);
    for (; at < a->head_dim; at++) {
        for (uint32_t h = 0; h < heads; h++)
            weigh_one(a, query + h, at, inverse[h]);
    }
}

static void x86_attend(const struct llm_attention *a)
{
    uint32_t query = 0, total = a->rows * a->group;
    (total < 3 ? score_few : score)(a, gather_queries(a));
    for (; total - query >= HEADS; query += HEADS)
        weigh_heads(a, query, HEADS);
    for (; total - query >= 3; query += 3)
        weigh_heads(a, query, 3);
    if (total - query == 2)
        weigh_heads(a, query, 2);
    else if (total - query == 1)
        weigh_heads(a, query, 1);
}

static void x86_norm(const struct llm_norm *norm)
{
    elementwise_norm(norm);
}

static void x86_activate(enum llm_activation kind, float *x, const float *gate_by, uint64_t count)
{
    elementwise_activate(kind, x, gate_by, count);
}

#endif
