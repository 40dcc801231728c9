/* llm/cpu/x86_impl.h - private to src/llm: the kernels of the sets "avx2", "avx512" and "amx",
 * each of which compiles them for its CPU.
 *
 * For one or two rows of activations, four rows of floats are taken at once, as in kernels_neon.c.
 */
#ifndef HAWSER_LLM_CPU_X86_IMPL_H
#define HAWSER_LLM_CPU_X86_IMPL_H

#include "llm/cpu/x86_tiles_impl.h"

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
        mul_blocks(m);
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
static void put_scores(const struct llm_attention *a, uint32_t head, uint32_t j, uint32_t count,
                       const float *sums)
{
    float *scores = attention_scores(a, head) + j;
    for (uint32_t i = 0; i < count; i++)
        scores[i] = sums[i] * a->scale;
}

/* The rows of K from position j on; those past the last repeat it.  Returns how many there are. */
INLINE uint32_t keys_at(const struct llm_attention *a, uint32_t j, const uint8_t *k[],
                        uint32_t count)
{
    uint32_t left = a->positions - j < count ? a->positions - j : count;
    for (uint32_t i = 0; i < count; i++)
        k[i] = attention_row(a, a->k, j + (i < left ? i : left - 1));
    return left;
}

/* One or two queries: K would only be written and read back. */
static void score_few(const struct llm_attention *a)
{
    for (uint32_t j = 0; j < a->positions; j += 4) {
        const uint8_t *k[4];
        uint32_t count = keys_at(a, j, k, 4);
        for (uint32_t h = 0; h < a->group; h++) {
            float four[4];
            _mm_storeu_ps(four, dot4_f16(k, a->q + (size_t)h * a->head_dim, a->head_dim, no_rows));
            put_scores(a, h, j, count, four);
        }
    }
}

static void score(const struct llm_attention *a)
{
    for (uint32_t j = 0; j < a->positions; j += PLAIN_ROWS) {
        const uint8_t *k[PLAIN_ROWS];
        uint32_t count = keys_at(a, j, k, PLAIN_ROWS);
        widen(LLM_F16, k, a->panel, a->head_dim);
        for (uint32_t h = 0; h < a->group; h += PLAIN_COLS) {
            uint32_t cols = a->group - h < PLAIN_COLS ? a->group - h : PLAIN_COLS;
            float sums[PLAIN_COLS][PLAIN_ROWS];
            plain_dots(a->panel, a->q + (size_t)h * a->head_dim, a->head_dim, cols, sums);
            for (uint32_t c = 0; c < cols; c++)
                put_scores(a, h + c, j, count, sums[c]);
        }
    }
}

/* Values of a head whose sums stay in registers, for HEADS queries. */
enum { HEADS = 3, SLICE = 32 };

/* `heads` and `values` are constants in each use. */
INLINE void weigh_slice(const struct llm_attention *a, uint32_t head, uint32_t heads, uint32_t at,
                        uint32_t values, const float *inverse)
{
    const float *weights = attention_scores(a, head);
    __m256 sums[HEADS][SLICE / 8];
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t i = 0; i < values / 8; i++)
            sums[h][i] = _mm256_setzero_ps();
    }
    for (uint32_t j = 0; j < a->positions; j++) {
        const uint8_t *v = attention_row(a, a->v, j);
        LLM_UNROLL
        for (uint32_t i = 0; i < values / 8; i++) {
            __m256 eight = load8(LLM_F16, v, at + 8 * i);
            LLM_UNROLL
            for (uint32_t h = 0; h < heads; h++)
                sums[h][i] = _mm256_fmadd_ps(_mm256_set1_ps(weights[(size_t)h * a->positions + j]),
                                             eight, sums[h][i]);
        }
    }
    for (uint32_t h = 0; h < heads; h++) {
        float *out = a->out + (size_t)(head + h) * a->head_dim + at;
        for (uint32_t i = 0; i < values / 8; i++)
            _mm256_storeu_ps(out + 8 * i, _mm256_mul_ps(sums[h][i], _mm256_set1_ps(inverse[h])));
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

/* `heads` is a constant in each use. */
INLINE void weigh_heads(const struct llm_attention *a, uint32_t head, uint32_t heads)
{
    float inverse[HEADS];
    uint32_t at = 0;
    for (uint32_t h = 0; h < heads; h++)
        inverse[h] = 1.0f / attention_weights(a, head + h);
    for (; at + SLICE <= a->head_dim; at += SLICE)
        weigh_slice(a, head, heads, at, SLICE, inverse);
    for (; at + 8 <= a->head_dim; at += 8)
        weigh_slice(a, head, heads, at, 8, inverse);
    for (; at < a->head_dim; at++) {
        for (uint32_t h = 0; h < heads; h++)
            weigh_one(a, head + h, at, inverse[h]);
    }
}

static void x86_attend(const struct llm_attention *a)
{
    uint32_t head = 0;
    (a->group < 3 ? score_few : score)(a);
    for (; a->group - head >= HEADS; head += HEADS)
        weigh_heads(a, head, HEADS);
    if (a->group - head == 2)
        weigh_heads(a, head, 2);
    else if (a->group - head == 1)
        weigh_heads(a, head, 1);
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
