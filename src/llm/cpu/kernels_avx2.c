/* The set "avx2": x86-64 with AVX2, FMA and F16C.
 *
 * As in kernels_neon.c, four rows of weights are taken at once, so that one register holds their
 * sums when they are scaled and stored.  Bytes are multiplied as unsigned x signed: the sign of a
 * signed weight moves to the activation.  A pair of products fits 16 bits: 2 x 128 x 127. */
#include "llm/cpu/elementwise.h"
#include "llm/cpu/kernels_impl.h"

#include <assert.h>
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

typedef __m128 dot4(const uint8_t *const w[4], const void *acts, uint32_t width);

/* ---- common ---- */

INLINE float half_at(const uint8_t *p)
{
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    return _cvtsh_ss(bits);
}

INLINE __m128 load4_halves(const uint8_t *const w[4], size_t at)
{
    return _mm_setr_ps(half_at(w[0] + at), half_at(w[1] + at), half_at(w[2] + at),
                       half_at(w[3] + at));
}

INLINE __m256i load256(const void *p)
{
    return _mm256_loadu_si256(p);
}

/* The sums of each of four vectors. */
INLINE __m128i sum4(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

/* Sums of four products each of unsigned weights and signed activations. */
INLINE __m256i dot_unsigned(__m256i w, __m256i a)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(w, a), _mm256_set1_epi16(1));
}

INLINE __m256i dot_signed(__m256i w, __m256i a)
{
    return dot_unsigned(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
}

static void store4(const struct llm_mul *m, uint32_t row, uint32_t col, __m128 sums)
{
    float *out = m->out + (size_t)col * m->out_width + row, values[4];
    _mm_storeu_ps(values, sums);
    for (uint32_t i = 0; i < 4 && row + i < m->rows; i++)
        out[i] = mul_finish(m, row + i, out + i, values[i]);
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

INLINE float finish_plain(enum llm_dtype dtype, __m256 acc, const uint8_t *w, const float *x,
                          uint32_t k, uint32_t width)
{
    float lanes[LLM_LANES];
    _mm256_storeu_ps(lanes, acc);
    for (; k < width; k++)
        lanes[k % LLM_LANES] = fmaf(load1(dtype, w, k), x[k], lanes[k % LLM_LANES]);
    return llm_sum8(lanes);
}

INLINE __m128 dot4_plain(enum llm_dtype dtype, const uint8_t *const w[4], const float *x,
                         uint32_t width)
{
    __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
    uint32_t k = 0;
    for (; k + 8 <= width; k += 8) {
        __m256 act = _mm256_loadu_ps(x + k);
        a = _mm256_fmadd_ps(load8(dtype, w[0], k), act, a);
        b = _mm256_fmadd_ps(load8(dtype, w[1], k), act, b);
        c = _mm256_fmadd_ps(load8(dtype, w[2], k), act, c);
        d = _mm256_fmadd_ps(load8(dtype, w[3], k), act, d);
    }
    return _mm_setr_ps(
        finish_plain(dtype, a, w[0], x, k, width), finish_plain(dtype, b, w[1], x, k, width),
        finish_plain(dtype, c, w[2], x, k, width), finish_plain(dtype, d, w[3], x, k, width));
}

static __m128 dot4_f32(const uint8_t *const w[4], const void *acts, uint32_t width)
{
    return dot4_plain(LLM_F32, w, acts, width);
}

static __m128 dot4_f16(const uint8_t *const w[4], const void *acts, uint32_t width)
{
    return dot4_plain(LLM_F16, w, acts, width);
}

static __m128 dot4_bf16(const uint8_t *const w[4], const void *acts, uint32_t width)
{
    return dot4_plain(LLM_BF16, w, acts, width);
}

/* ---- Q8_0, Q4_0 ---- */

static __m128 dot4_q8_0(const uint8_t *const w[4], const void *acts, uint32_t width)
{
    const struct llm_q32 *x = acts;
    __m128 acc = _mm_setzero_ps();
    for (size_t at = 0; width; width -= 32, at += 34, x++) {
        __m256i a = load256(x->values);
        __m128i sums =
            sum4(dot_signed(load256(w[0] + at + 2), a), dot_signed(load256(w[1] + at + 2), a),
                 dot_signed(load256(w[2] + at + 2), a), dot_signed(load256(w[3] + at + 2), a));
        __m128 scale = _mm_mul_ps(load4_halves(w, at), _mm_set1_ps(x->scale));
        acc = _mm_fmadd_ps(_mm_cvtepi32_ps(sums), scale, acc);
    }
    return acc;
}

/* 32 nibbles as bytes: the low ones of 16 bytes, then the high ones. */
INLINE __m256i nibbles(const uint8_t *p)
{
    __m128i q = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m256i both = _mm256_set_m128i(_mm_srli_epi16(q, 4), q);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

static __m128 dot4_q4_0(const uint8_t *const w[4], const void *acts, uint32_t width)
{
    const struct llm_q32 *x = acts;
    __m128 acc = _mm_setzero_ps();
    for (size_t at = 0; width; width -= 32, at += 18, x++) {
        __m256i a = load256(x->values);
        __m128i sums =
            sum4(dot_unsigned(nibbles(w[0] + at + 2), a), dot_unsigned(nibbles(w[1] + at + 2), a),
                 dot_unsigned(nibbles(w[2] + at + 2), a), dot_unsigned(nibbles(w[3] + at + 2), a));
        sums = _mm_sub_epi32(sums, _mm_set1_epi32(8 * x->sum));
        __m128 scale = _mm_mul_ps(load4_halves(w, at), _mm_set1_ps(x->scale));
        acc = _mm_fmadd_ps(_mm_cvtepi32_ps(sums), scale, acc);
    }
    return acc;
}

/* ---- Q4_K, Q6_K ---- */

/* Sums of scaled products and of minima times sums; the lanes of each vector add up to the sum. */
static void parts_q4_k(const uint8_t *block, const struct llm_q256 *x, __m256i *products,
                       __m256i *offsets)
{
    uint8_t scales[8], minima[8];
    const __m256i low = _mm256_set1_epi8(15);
    __m256i total = _mm256_setzero_si256();
    q4k_scales(block, scales, minima);
    for (int g = 0; g < 4; g++) {
        __m256i q = load256(block + 16 + 32 * g), high = _mm256_srli_epi16(q, 4);
        __m256i s0 = dot_unsigned(_mm256_and_si256(q, low), load256(x->values + 64 * g));
        __m256i s1 = dot_unsigned(_mm256_and_si256(high, low), load256(x->values + 64 * g + 32));
        total = _mm256_add_epi32(total, _mm256_mullo_epi32(s0, _mm256_set1_epi32(scales[2 * g])));
        total =
            _mm256_add_epi32(total, _mm256_mullo_epi32(s1, _mm256_set1_epi32(scales[2 * g + 1])));
    }
    __m256i sums = _mm256_madd_epi16(load256(x->sums), _mm256_set1_epi16(1)); /* pairs */
    __m256i m = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)minima));
    *products = total;
    *offsets = _mm256_mullo_epi32(sums, m);
}

static __m128 dot4_q4_k(const uint8_t *const w[4], const void *acts, uint32_t width)
{
    const struct llm_q256 *x = acts;
    __m128 acc = _mm_setzero_ps();
    for (size_t at = 0; width; width -= 256, at += 144, x++) {
        __m256i p[4], o[4];
        for (int r = 0; r < 4; r++)
            parts_q4_k(w[r] + at, x, &p[r], &o[r]);
        __m128 scale = _mm_mul_ps(load4_halves(w, at), _mm_set1_ps(x->scale));
        __m128 min = _mm_mul_ps(load4_halves(w, at + 2), _mm_set1_ps(x->scale));
        __m128i taken = _mm_sub_epi32(_mm_setzero_si128(), sum4(o[0], o[1], o[2], o[3]));
        acc = _mm_fmadd_ps(_mm_cvtepi32_ps(sum4(p[0], p[1], p[2], p[3])), scale, acc);
        acc = _mm_fmadd_ps(_mm_cvtepi32_ps(taken), min, acc);
    }
    return acc;
}

/* Run `run` of a half of a block: 32 values, not yet lowered by 32. */
INLINE __m256i q6_run(const uint8_t *block, int half, int run)
{
    __m256i l = load256(block + 64 * half + 32 * (run % 2));
    __m256i h = load256(block + 128 + 32 * half);
    __m256i low = _mm256_and_si256(run < 2 ? l : _mm256_srli_epi16(l, 4), _mm256_set1_epi8(15));
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(h, 2 * run), _mm256_set1_epi8(3));
    return _mm256_or_si256(low, _mm256_slli_epi16(high, 4));
}

static __m256i products_q6_k(const uint8_t *block, const struct llm_q256 *x)
{
    const int8_t *scales = (const int8_t *)block + 192;
    __m256i total = _mm256_setzero_si256();
    for (int i = 0; i < 8; i++) {
        __m256i s = dot_unsigned(q6_run(block, i / 4, i % 4), load256(x->values + 32 * i));
        __m256i scale =
            _mm256_set_m128i(_mm_set1_epi32(scales[2 * i + 1]), _mm_set1_epi32(scales[2 * i]));
        total = _mm256_add_epi32(total, _mm256_mullo_epi32(s, scale));
    }
    __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)scales));
    __m256i lowered = _mm256_madd_epi16(wide, load256(x->sums));
    return _mm256_sub_epi32(total, _mm256_slli_epi32(lowered, 5));
}

static __m128 dot4_q6_k(const uint8_t *const w[4], const void *acts, uint32_t width)
{
    const struct llm_q256 *x = acts;
    __m128 acc = _mm_setzero_ps();
    for (size_t at = 0; width; width -= 256, at += 210, x++) {
        __m128i sums = sum4(products_q6_k(w[0] + at, x), products_q6_k(w[1] + at, x),
                            products_q6_k(w[2] + at, x), products_q6_k(w[3] + at, x));
        __m128 scale = _mm_mul_ps(load4_halves(w, at + 208), _mm_set1_ps(x->scale));
        acc = _mm_fmadd_ps(_mm_cvtepi32_ps(sums), scale, acc);
    }
    return acc;
}

/* ---- types unpacked to bytes ---- */

static __m128 dot4_w32(const void *const rows[4], const void *acts, uint32_t width)
{
    const struct llm_w32 *w[4] = {rows[0], rows[1], rows[2], rows[3]};
    const struct llm_q32 *x = acts;
    __m128 acc = _mm_setzero_ps();
    for (uint32_t b = 0; b < width / 32; b++, x++) {
        __m256i a = load256(x->values);
        __m128i sums =
            sum4(dot_signed(load256(w[0][b].values), a), dot_signed(load256(w[1][b].values), a),
                 dot_signed(load256(w[2][b].values), a), dot_signed(load256(w[3][b].values), a));
        __m128 by = _mm_set1_ps(x->scale);
        __m128 scale = _mm_setr_ps(w[0][b].scale, w[1][b].scale, w[2][b].scale, w[3][b].scale);
        __m128 min = _mm_setr_ps(w[0][b].min, w[1][b].min, w[2][b].min, w[3][b].min);
        acc = _mm_fmadd_ps(_mm_cvtepi32_ps(sums), _mm_mul_ps(scale, by), acc);
        acc = _mm_fmadd_ps(_mm_set1_ps((float)x->sum), _mm_mul_ps(min, by), acc);
    }
    return acc;
}

INLINE __m256i products_w256(const struct llm_w256 *w, const int8_t *a)
{
    __m256i total = _mm256_setzero_si256();
    for (int i = 0; i < 8; i++) {
        __m256i s = dot_signed(load256(w->values + 32 * i), load256(a + 32 * i));
        __m256i scale = _mm256_set_m128i(_mm_set1_epi32(w->scales[2 * i + 1]),
                                         _mm_set1_epi32(w->scales[2 * i]));
        total = _mm256_add_epi32(total, _mm256_mullo_epi32(s, scale));
    }
    return total;
}

/* Minus the minima times the activations' sums. */
INLINE __m256i minima_w256(const struct llm_w256 *w, const int16_t sums[16])
{
    __m128i m = _mm_loadu_si128((const __m128i *)(const void *)w->minima);
    __m256i taken = _mm256_madd_epi16(_mm256_cvtepu8_epi16(m), load256(sums));
    return _mm256_sub_epi32(_mm256_setzero_si256(), taken);
}

INLINE __m128 dot4_w256(const void *const rows[4], const void *acts, uint32_t width, bool has_min)
{
    const struct llm_w256 *w[4] = {rows[0], rows[1], rows[2], rows[3]};
    const struct llm_q256 *x = acts;
    __m128 acc = _mm_setzero_ps();
    for (uint32_t b = 0; b < width / 256; b++, x++) {
        __m128i sums = sum4(products_w256(&w[0][b], x->values), products_w256(&w[1][b], x->values),
                            products_w256(&w[2][b], x->values), products_w256(&w[3][b], x->values));
        __m128 by = _mm_set1_ps(x->scale);
        __m128 scale = _mm_setr_ps(w[0][b].scale, w[1][b].scale, w[2][b].scale, w[3][b].scale);
        acc = _mm_fmadd_ps(_mm_cvtepi32_ps(sums), _mm_mul_ps(scale, by), acc);
        if (has_min) {
            __m128 min = _mm_setr_ps(w[0][b].min, w[1][b].min, w[2][b].min, w[3][b].min);
            sums = sum4(minima_w256(&w[0][b], x->sums), minima_w256(&w[1][b], x->sums),
                        minima_w256(&w[2][b], x->sums), minima_w256(&w[3][b], x->sums));
            acc = _mm_fmadd_ps(_mm_cvtepi32_ps(sums), _mm_mul_ps(min, by), acc);
        }
    }
    return acc;
}

static void mul_unpacked(const struct llm_mul *m, enum llm_form form)
{
    for (uint32_t row = 0; row < m->rows; row += 4) {
        const void *w[4];
        unpack4(m, row, w);
        for (uint32_t c = 0; c < m->count; c++) {
            const uint8_t *acts = m->acts + c * (m->group_bytes / LLM_GROUP);
            store4(m, row, c,
                   form == LLM_FORM_W32    ? dot4_w32(w, acts, m->width)
                   : form == LLM_FORM_W256 ? dot4_w256(w, acts, m->width, false)
                                           : dot4_w256(w, acts, m->width, true));
        }
    }
}

/* ---- mul ---- */

static dot4 *const dots[] = {
    [LLM_F32] = dot4_f32,   [LLM_F16] = dot4_f16,   [LLM_BF16] = dot4_bf16, [LLM_Q8_0] = dot4_q8_0,
    [LLM_Q4_0] = dot4_q4_0, [LLM_Q4_K] = dot4_q4_k, [LLM_Q6_K] = dot4_q6_k,
};

static void avx2_mul(const struct llm_mul *m)
{
    enum llm_form form = llm_block_form(m->dtype);
    if (form != LLM_FORM_NONE) {
        mul_unpacked(m, form);
        return;
    }
    dot4 *dot = dots[m->dtype];
    assert(dot);
    for (uint32_t row = 0; row < m->rows; row += 4) {
        const uint8_t *w[4];
        rows4(m, row, w);
        for (uint32_t c = 0; c < m->count; c++)
            store4(m, row, c, dot(w, m->acts + c * (m->group_bytes / LLM_GROUP), m->width));
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

static void avx2_prepare(enum llm_act act, void *dst, const float *src, uint32_t width,
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

static void score(const struct llm_attention *a, const float *q, float *scores)
{
    for (uint32_t j = 0; j < a->positions; j += 4) {
        const uint8_t *k[4];
        float four[4];
        for (uint32_t i = 0; i < 4; i++)
            k[i] = attention_row(a, a->k, j + i < a->positions ? j + i : a->positions - 1);
        _mm_storeu_ps(four, _mm_mul_ps(dot4_f16(k, q, a->head_dim), _mm_set1_ps(a->scale)));
        for (uint32_t i = 0; i < 4 && j + i < a->positions; i++)
            scores[j + i] = four[i];
    }
}

static void weigh(const struct llm_attention *a, float inverse, float *out)
{
    uint32_t at = 0;
    for (; at + 8 <= a->head_dim; at += 8) {
        __m256 sum = _mm256_setzero_ps();
        for (uint32_t j = 0; j < a->positions; j++)
            sum = _mm256_fmadd_ps(_mm256_set1_ps(a->scores[j]),
                                  load8(LLM_F16, attention_row(a, a->v, j), at), sum);
        _mm256_storeu_ps(out + at, _mm256_mul_ps(sum, _mm256_set1_ps(inverse)));
    }
    for (; at < a->head_dim; at++) {
        float sum = 0;
        for (uint32_t j = 0; j < a->positions; j++)
            sum = fmaf(a->scores[j], load1(LLM_F16, attention_row(a, a->v, j), at), sum);
        out[at] = sum * inverse;
    }
}

static void avx2_attend(const struct llm_attention *a)
{
    for (uint32_t h = 0; h < a->group; h++) {
        score(a, a->q + (size_t)h * a->head_dim, a->scores);
        float inverse = 1.0f / attention_weights(a, h);
        weigh(a, inverse, a->out + (size_t)h * a->head_dim);
    }
}

static void avx2_norm(const struct llm_norm *norm)
{
    elementwise_norm(norm);
}

static void avx2_activate(enum llm_activation kind, float *x, const float *gate_by, uint64_t count)
{
    elementwise_activate(kind, x, gate_by, count);
}

const struct llm_kernels llm_kernels_avx2 = {
    .name = "avx2",
    .prepare = avx2_prepare,
    .mul = avx2_mul,
    .attend = avx2_attend,
    .norm = avx2_norm,
    .activate = avx2_activate,
};
