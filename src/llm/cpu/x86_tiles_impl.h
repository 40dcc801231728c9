/* llm/cpu/x86_tiles_impl.h - private to src/llm: many rows of activations times weights in blocks,
 * for the sets "avx2", "avx512" and "amx".  Included once by each.
 *
 * In a tile of weights in blocks, a register holds one sum for each of ROWS rows of weights, and
 * four bytes of each row side by side (llm/model/type/rows.h), which one instruction multiplies
 * with four bytes of one row of activations.  So sums of a block are scaled for all rows at once,
 * and no lanes are added.  The weights are unsigned there if the instruction needs it; what they
 * are too large by is taken back through the activations' sums.  The rows of activations share a
 * panel of unpacked rows.  AMX multiplies ROWS rows of the same panel with as many rows of
 * activations, a group of values at a time.
 *
 * Threads: any. */
#ifndef HAWSER_LLM_CPU_X86_TILES_IMPL_H
#define HAWSER_LLM_CPU_X86_TILES_IMPL_H

#include "llm/cpu/elementwise.h"
#include "llm/cpu/kernels_impl.h"

#include <assert.h>
#include <immintrin.h>

enum { ROWS = LLM_ROWS };

/* Parts of inner loops, some with a parameter that is a constant in each use. */
#define INLINE static inline __attribute__((always_inline))

/* ---- what the instructions take ---- */

#if LLM_ROWS == 16

enum { PLAIN_COLS = 6, CACHE_SHARE = 1 << 20 };
typedef int32_t ints __attribute__((vector_size(64)));
typedef float floats __attribute__((vector_size(64)));

INLINE ints splat_int(int32_t x)
{
    return (ints)_mm512_set1_epi32(x);
}

INLINE floats splat(float x)
{
    return (floats)_mm512_set1_ps(x);
}

INLINE floats load_lanes(const float *x)
{
    return (floats)_mm512_broadcast_f32x8(_mm256_loadu_ps(x));
}

INLINE floats fma_floats(floats a, floats b, floats c)
{
    return (floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

/* Products of four bytes each. */
INLINE ints add_products(ints sum, ints w, ints a, bool has_sign)
{
    (void)has_sign;
    return (ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)a);
}

/* Products of two words each. */
INLINE ints add_pairs(ints sum, ints w, ints a)
{
    return (ints)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)w, (__m512i)a);
}

#else

enum { PLAIN_COLS = 3, CACHE_SHARE = 512 << 10 };
typedef int32_t ints __attribute__((vector_size(32)));
typedef float floats __attribute__((vector_size(32)));

INLINE ints splat_int(int32_t x)
{
    return (ints)_mm256_set1_epi32(x);
}

INLINE floats splat(float x)
{
    return (floats)_mm256_set1_ps(x);
}

INLINE floats load_lanes(const float *x)
{
    return (floats)_mm256_loadu_ps(x);
}

INLINE floats fma_floats(floats a, floats b, floats c)
{
    return (floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

/* Sums of four products each of unsigned weights and signed activations.  A pair of products has 16
 * bits: weights are at most 128. */
INLINE __m256i dot_unsigned(__m256i w, __m256i a)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(w, a), _mm256_set1_epi16(1));
}

/* The sign of a weight moves to the activation. */
INLINE __m256i dot_signed(__m256i w, __m256i a)
{
    return dot_unsigned(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
}

/* gcc would keep products in memory, to add them later. */
INLINE ints add_now(ints sum, __m256i products)
{
    sum += (ints)products;
    __asm__ volatile("" : "+x"(sum));
    return sum;
}

INLINE ints add_products(ints sum, ints w, ints a, bool has_sign)
{
    return add_now(sum, has_sign ? dot_signed((__m256i)w, (__m256i)a)
                                 : dot_unsigned((__m256i)w, (__m256i)a));
}

INLINE ints add_pairs(ints sum, ints w, ints a)
{
    return add_now(sum, _mm256_madd_epi16((__m256i)w, (__m256i)a));
}

#endif

INLINE ints load_ints(const void *p)
{
    ints v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE floats load_floats(const float *p)
{
    floats v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE ints splat_four_bytes(const void *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return splat_int(four);
}

/* ---- rows and results ---- */

static const uint8_t *act_row(const struct llm_mul *m, uint32_t col)
{
    return m->acts + col * (m->group_bytes / LLM_GROUP);
}

/* The sums of rows from `row` on and one row of activations; those of missing rows are not stored.
 */
static void store_rows(const struct llm_mul *m, uint32_t row, uint32_t col, const float *sums,
                       uint32_t count)
{
    float *out = m->out + (size_t)col * m->out_width + row;
    uint32_t stored = m->rows - row < count ? m->rows - row : count;
    for (uint32_t i = 0; i < stored; i++)
        out[i] = mul_finish(m, row + i, out + i, sums[i]);
}

/* ROWS rows from `row` on, in groups of four.  A last group that is not full begins earlier; groups
 * past it repeat it.  A matrix of fewer rows has one. */
static llm_block block_at(const struct llm_mul *m, uint32_t row)
{
    llm_block block = {.stride = m->rows < 4 ? 0 : m->row_bytes};
    assert(m->rows >= 4 || m->rows == 1);
    for (uint32_t i = 0; i < ROWS / 4; i++, row += 4) {
        uint32_t first = m->rows < 4 ? 0 : row + 4 <= m->rows ? row : m->rows - 4;
        block.group[i] = m->weight + first * m->row_bytes;
    }
    return block;
}

/* Stores what lanes of rows from `row` on hold, as block_at has them. */
static void store_lanes(const struct llm_mul *m, uint32_t row, uint32_t col, floats lanes)
{
    float sums[ROWS];
    uint32_t stored = m->rows - row < ROWS ? m->rows - row : ROWS, rest = stored % 4;
    memcpy(sums, &lanes, sizeof sums);
    if (rest)
        memmove(sums + stored - rest, sums + stored - rest + (4 - rest), rest * sizeof *sums);
    store_rows(m, row, col, sums, stored);
}

/* Activations of so many rows stay in the second cache while all weights pass.  A multiple of
 * `unit`. */
static uint32_t rows_in_cache(const struct llm_mul *m, uint32_t unit)
{
    uint64_t rows = CACHE_SHARE / (m->group_bytes / LLM_GROUP) / unit * unit;
    return rows > m->count ? m->count : rows < 4 * unit ? 4 * unit : (uint32_t)rows;
}

/* ---- blocks: panels ---- */

struct panel32 {
    float scale[ROWS], min[ROWS];
    uint8_t values[8][ROWS][4];
};

struct panel256 {
    float scale[ROWS], min[ROWS];
    int16_t taken[8][ROWS][2]; /* by which sums of 16 activations are multiplied, then taken */
#ifdef LLM_AMX
    uint8_t high[64][ROWS][4], low[64][ROWS][4]; /* of values times the scales of their groups */
#else
    int32_t scales[16][ROWS]; /* of groups */
    uint8_t values[64][ROWS][4];
#endif
};

_Static_assert(sizeof(struct panel32) <= 32 * LLM_PANEL_ROWS * sizeof(float), "a panel has room");
_Static_assert(sizeof(struct panel256) <= 256 * LLM_PANEL_ROWS * sizeof(float), "and so");

/* What is subtracted from raw values, modulo 256.  AMX multiplies signed bytes, VNNI unsigned ones,
 * AVX2 both. */
INLINE int values_less(enum llm_dtype dtype)
{
#if defined(LLM_AMX)
    return llm_format(dtype).bias;
#elif LLM_ROWS == 16
    return llm_format(dtype).has_sign ? 128 : 0;
#else
    (void)dtype;
    return 0;
#endif
}

/* What the values are too large by then. */
INLINE int values_bias(enum llm_dtype dtype)
{
    int less = values_less(dtype);
    return llm_format(dtype).has_sign ? less : llm_format(dtype).bias - less;
}

/* 32 values of each row, from their number 32 i on. */
INLINE void put_values(enum llm_dtype dtype, uint8_t (*dst)[ROWS][4], llm_block block, int i)
{
    struct llm_raw raw = llm_raw32(dtype, block, i);
    for (int p = 0; p < 8; p++) {
        llm_raw_part part = raw.part[p] - (uint8_t)values_less(dtype);
        memcpy(dst[p], &part, sizeof part);
    }
}

/* The binary16 values in the low halves of words. */
INLINE void put_halves(float dst[ROWS], llm_word words)
{
#if LLM_ROWS == 16
    _mm512_storeu_ps(dst, _mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)words)));
#else
    __m256i low = (__m256i)(words & 0xffff);
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
    _mm256_storeu_ps(dst, _mm256_cvtph_ps(_mm256_castsi256_si128(packed)));
#endif
}

INLINE void put_scale_and_min(enum llm_dtype dtype, float scale[ROWS], float min[ROWS],
                              llm_block block)
{
    const struct llm_format f = llm_format(dtype);
    const size_t at = f.scale_at + 4 > f.bytes ? f.bytes - 4u : f.scale_at;
    llm_word words = llm_rows_word(block, at, f.bytes);
    if (dtype == LLM_MXFP4) { /* as llm_block_e8m0_half */
        llm_word e = words & 0xff, small = (llm_word)(e < 2);
        words = (small & ((e & 1) + 1) * 0x200000) | (~small & (e - 1) << 23);
        memcpy(scale, &words, sizeof words);
        return;
    }
    put_halves(scale, words >> 8 * (f.scale_at - at));
    if (f.has_min)
        put_halves(min, words >> 16);
    assert(!f.has_min || (at == f.scale_at && f.min_at == at + 2));
}

INLINE void put_block_32(enum llm_dtype dtype, struct panel32 *panel, llm_block block)
{
    put_scale_and_min(dtype, panel->scale, panel->min, block);
    put_values(dtype, panel->values, block, 0);
}

/* Signed bytes i and j of each word, as its halves. */
INLINE llm_halves two_bytes(llm_word words, int i, int j)
{
    return (llm_halves)llm_rows_choose((llm_vector)words, 128, i, 128, j) >> 8;
}

/* Factors of 16 sums in pairs; those of groups of 32 twice each. */
INLINE void put_taken(int16_t (*dst)[ROWS][2], const llm_word *factors, int times, int group)
{
    for (int j = 0; j < 8; j++) {
        llm_halves pair = group == 32 ? two_bytes(factors[j / 4], j % 4, j % 4)
                                      : two_bytes(factors[j / 2], j % 2 * 2, j % 2 * 2 + 1);
        pair *= (int16_t)times;
        memcpy(dst[j], &pair, sizeof pair);
    }
}

/* Minima have six bits at most: signed bytes are the same. */
INLINE void put_minima(enum llm_dtype dtype, struct panel256 *panel, const struct llm_scales *s)
{
    const struct llm_format f = llm_format(dtype);
    if (f.has_min)
        put_taken(panel->taken, s->minima, 1, f.group);
    else if (values_bias(dtype))
        put_taken(panel->taken, s->scales, values_bias(dtype), f.group);
}

#ifdef LLM_AMX

/* 32 values of each row times the scales of their groups, which 16 bits hold: high bytes are
 * signed, low ones are not. */
INLINE void put_products(enum llm_dtype dtype, struct panel256 *panel, llm_block block,
                         const struct llm_scales *s, int i)
{
    const __mmask64 odd_bytes = 0xaaaaaaaaaaaaaaaa;
    struct llm_raw raw = llm_raw32(dtype, block, i);
    for (int p = 0; p < 8; p++) {
        int g = (32 * i + 4 * p) / llm_format(dtype).group;
        __m512i scale = (__m512i)two_bytes(s->scales[g / 4], g % 4, g % 4);
        __m512i part = (__m512i)(raw.part[p] - (uint8_t)values_less(dtype));
        __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(part, 8), 8);
        __m512i odd = _mm512_srai_epi16(part, 8);
        even = _mm512_mullo_epi16(even, scale);
        odd = _mm512_mullo_epi16(odd, scale);
        _mm512_storeu_si512(panel->high[8 * i + p],
                            _mm512_mask_blend_epi8(odd_bytes, _mm512_srli_epi16(even, 8), odd));
        _mm512_storeu_si512(panel->low[8 * i + p],
                            _mm512_mask_blend_epi8(odd_bytes, even, _mm512_slli_epi16(odd, 8)));
    }
}

INLINE void put_block_256(enum llm_dtype dtype, struct panel256 *panel, llm_block block)
{
    struct llm_scales s;
    llm_scales(dtype, &s, block);
    put_scale_and_min(dtype, panel->scale, panel->min, block);
    put_minima(dtype, panel, &s);
    LLM_UNROLL
    for (int i = 0; i < 8; i++)
        put_products(dtype, panel, block, &s, i);
}

#else

INLINE void put_inner(enum llm_dtype dtype, struct panel256 *panel, llm_block block)
{
    struct llm_scales s;
    llm_scales(dtype, &s, block);
    for (int g = 0; g < 256 / llm_format(dtype).group; g++) {
        ints scale = (ints)(s.scales[g / 4] << (24 - g % 4 * 8)) >> 24;
        memcpy(panel->scales[g], &scale, sizeof scale);
    }
    put_minima(dtype, panel, &s);
}

INLINE void put_block_256(enum llm_dtype dtype, struct panel256 *panel, llm_block block)
{
    put_scale_and_min(dtype, panel->scale, panel->min, block);
    put_inner(dtype, panel, block);
    LLM_UNROLL
    for (int i = 0; i < 8; i++)
        put_values(dtype, panel->values + 8 * i, block, i);
}

#endif

#define UNPACK(type, values_of_block)                                                              \
    static void unpack_##type(void *panel, llm_block block, uint32_t width)                        \
    {                                                                                              \
        struct panel##values_of_block *to = panel;                                                 \
        for (; width; width -= values_of_block) {                                                  \
            put_block_##values_of_block(LLM_##type, to++, block);                                  \
            llm_rows_advance(&block, llm_format(LLM_##type).bytes);                                \
        }                                                                                          \
    }
#define UNPACK_32(type) UNPACK(type, 32)
#define UNPACK_256(type) UNPACK(type, 256)
LLM_TYPES_32(UNPACK_32)
LLM_TYPES_256(UNPACK_256)

typedef void unpack_fn(void *panel, llm_block block, uint32_t width);
static unpack_fn *const unpacks[] = {
#define UNPACK_ENTRY(type) [LLM_##type] = unpack_##type,
    LLM_TYPES_32(UNPACK_ENTRY) LLM_TYPES_256(UNPACK_ENTRY)};

/* ---- blocks: tiles ----
 *
 * `like` is a type of the same traits; it, and `cols`, are constants after inlining. */

#ifdef LLM_AMX
enum { COLS = 16, FEW_COLS = 4, FUSED_COLS = 4 };
#else
enum { COLS = ROWS / 2, FEW_COLS = COLS / 2, FUSED_COLS = 4 };
#endif

/* The panel times rows of activations, `stride` bytes apart; those past the last repeat it. */
struct columns {
    const uint8_t *acts[COLS];
    size_t stride;
    floats sums[COLS];
#ifdef LLM_AMX
    ints products[2][2][COLS]; /* slot; high and low bytes */
#endif
};

/* The sums of `pieces` of w and the activations' values from byte `at` on.  One column has several
 * sums, which need not wait for one another. */
INLINE void multiply(enum llm_dtype like, ints sum[COLS], const struct columns *columns,
                     const uint8_t (*w)[ROWS][4], size_t at, int pieces, int cols)
{
    const int chains = cols == 1 ? 4 : 1;
    ints parts[COLS];
    LLM_UNROLL
    for (int c = 0; c < cols * chains; c++)
        parts[c] = splat_int(0);
    LLM_UNROLL
    for (int p = 0; p < pieces; p++) {
        ints rows = load_ints(w[p]);
        LLM_UNROLL
        for (int c = 0; c < cols; c++)
            parts[c + p % chains] = add_products(parts[c + p % chains], rows,
                                                 splat_four_bytes(columns->acts[c] + at + 4 * p),
                                                 llm_format(like).has_sign);
    }
    LLM_UNROLL
    for (int c = 0; c < cols; c++)
        sum[c] = parts[c];
    if (chains > 1)
        sum[0] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

/* start and then finish yield the sums of a block.  The next one, of the other slot, may start
 * before. */
#ifdef LLM_AMX

/* What the instructions read lies within it.  A bound, since clang takes no operand without one. */
struct tile_bytes {
    uint8_t bytes[1 << 20];
};

/* The sums of a block of 32; `at` is where the activations' values are. */
INLINE void start_32(struct columns *columns, int slot, const struct panel32 *w, size_t at)
{
    ints(*to)[2][COLS] = &columns->products[slot];
    /* By hand: the intrinsics would say that all memory changes, and sums would not stay in
     * registers. */
    __asm__ volatile("tilezero %%tmm0\n\t"
                     "tileloadd (%1, %2, 1), %%tmm2\n\t"
                     "tileloadd (%3, %4, 1), %%tmm4\n\t"
                     "tdpbssd %%tmm4, %%tmm2, %%tmm0\n\t"
                     "tilestored %%tmm0, (%5, %4, 1)"
                     : "=m"(*to)
                     : "r"(columns->acts[0] + at), "r"(columns->stride), "r"(w->values),
                       "r"(sizeof *w->values), "r"(to),
                       "m"(*(const struct tile_bytes *)columns->acts[0]),
                       "m"(*(const struct tile_bytes *)(const void *)w));
}

INLINE void finish_32(enum llm_dtype like, ints sum[COLS], const struct columns *columns, int slot,
                      const struct panel32 *w, size_t at, int cols)
{
    (void)like, (void)w, (void)at;
    LLM_UNROLL
    for (int c = 0; c < cols; c++)
        sum[c] = columns->products[slot][0][c];
}

/* 64 values of each row. */
#define TILE_STEP(k, acts, high, low)                                                              \
    "tileloadd 64*" #k "(%1, %2, 1), %%" #acts "\n\t"                                              \
    "tileloadd 1024*" #k "(%3, %5, 1), %%" #high "\n\t"                                            \
    "tdpbssd %%" #high ", %%" #acts ", %%tmm0\n\t"                                                 \
    "tileloadd 1024*" #k "(%4, %5, 1), %%" #low "\n\t"                                             \
    "tdpbsud %%" #low ", %%" #acts ", %%tmm1\n\t"
/* None waits for the registers of the one before. */
#define TILE_STEPS                                                                                 \
    TILE_STEP(0, tmm2, tmm4, tmm5)                                                                 \
    TILE_STEP(1, tmm3, tmm6, tmm7)                                                                 \
    TILE_STEP(2, tmm2, tmm4, tmm5)                                                                 \
    TILE_STEP(3, tmm3, tmm6, tmm7)

/* The sums of a block of 256: of high bytes, and of low ones. */
INLINE void start_256(struct columns *columns, int slot, const struct panel256 *w, size_t at)
{
    ints(*to)[2][COLS] = &columns->products[slot];
    __asm__ volatile("tilezero %%tmm0\n\t"
                     "tilezero %%tmm1\n\t" TILE_STEPS "tilestored %%tmm0, (%6, %5, 1)\n\t"
                     "tilestored %%tmm1, 1024(%6, %5, 1)"
                     : "=m"(*to)
                     : "r"(columns->acts[0] + at), "r"(columns->stride), "r"(w->high), "r"(w->low),
                       "r"(sizeof *w->high), "r"(to),
                       "m"(*(const struct tile_bytes *)columns->acts[0]),
                       "m"(*(const struct tile_bytes *)(const void *)w));
}
_Static_assert(sizeof(ints[COLS]) == 1024 && sizeof(uint8_t[16][ROWS][4]) == 1024, "as above");

INLINE void finish_256(enum llm_dtype like, ints total[COLS], const struct columns *columns,
                       int slot, const struct panel256 *w, size_t at, int cols)
{
    (void)like, (void)w, (void)at;
    LLM_UNROLL
    for (int c = 0; c < cols; c++)
        total[c] = columns->products[slot][0][c] * 256 + columns->products[slot][1][c];
}

/* Tiles of so many values of each row of weights, and of so many rows of activations. */
static void configure(enum llm_dtype dtype, uint32_t cols)
{
    const uint8_t values = llm_format(dtype).values == 256 ? 64 : 32, rows = (uint8_t)cols;
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1,
                .row_bytes = {64, 64, values, values, 64, 64, 64, 64},
                .rows = {rows, rows, rows, rows, values / 4, values / 4, values / 4, values / 4}};
    __asm__ volatile("" : : "r"(&config) : "memory"); /* gcc 12 believes that 8 bytes are read */
    _tile_loadconfig(&config);
}

#else

INLINE void start_32(struct columns *columns, int slot, const struct panel32 *w, size_t at)
{
    (void)columns, (void)slot, (void)w, (void)at;
}

INLINE void finish_32(enum llm_dtype like, ints sum[COLS], const struct columns *columns, int slot,
                      const struct panel32 *w, size_t at, int cols)
{
    (void)slot;
    multiply(like, sum, columns, w->values, at, 8, cols);
}

INLINE void start_256(struct columns *columns, int slot, const struct panel256 *w, size_t at)
{
    (void)columns, (void)slot, (void)w, (void)at;
}

/* The groups' products, each times its scale. */
INLINE void finish_256(enum llm_dtype like, ints total[COLS], const struct columns *columns,
                       int slot, const struct panel256 *w, size_t at, int cols)
{
    const int group = llm_format(like).group, pieces = group / 4;
    (void)slot;
    LLM_UNROLL
    for (int c = 0; c < cols; c++)
        total[c] = splat_int(0);
    for (int g = 0; g < 256 / group; g++, at += (size_t)group) {
        ints sum[COLS], scale = load_ints(w->scales[g]);
        multiply(like, sum, columns, w->values + pieces * g, at, pieces, cols);
        LLM_UNROLL
        for (int c = 0; c < cols; c++)
            total[c] += sum[c] * scale;
    }
}

#endif

INLINE floats to_floats(ints v)
{
    return __builtin_convertvector(v, floats);
}

/* acc += sums of a block, scaled, and its minima. */
INLINE void add_block_32(enum llm_dtype like, floats acc[COLS], ints sum[COLS],
                         const struct panel32 *w, const struct columns *columns, uint32_t block,
                         int cols)
{
    floats scale = load_floats(w->scale);
    LLM_UNROLL
    for (int c = 0; c < cols; c++) {
        const struct llm_q32 *x = (const struct llm_q32 *)(const void *)columns->acts[c] + block;
        floats by = splat(x->scale);
        if (values_bias(like))
            sum[c] -= splat_int(values_bias(like) * x->sum);
        acc[c] = fma_floats(to_floats(sum[c]), scale * by, acc[c]);
        if (llm_format(like).has_min)
            acc[c] = fma_floats(splat((float)x->sum), load_floats(w->min) * by, acc[c]);
    }
}

INLINE void tile_32(enum llm_dtype like, const struct panel32 *w, struct columns *columns,
                    uint32_t blocks, int cols)
{
    const size_t values = offsetof(struct llm_q32, values), step = sizeof(struct llm_q32);
    floats acc[COLS];
    LLM_UNROLL
    for (int c = 0; c < cols; c++)
        acc[c] = splat(0);
    start_32(columns, 0, w, values);
    for (uint32_t b = 0; b < blocks; b++, w++) {
        ints sum[COLS];
        if (b + 1 < blocks)
            start_32(columns, (b + 1) % 2, w + 1, step * (b + 1) + values);
        finish_32(like, sum, columns, b % 2, w, step * b + values, cols);
        add_block_32(like, acc, sum, w, columns, b, cols);
    }
    memcpy(columns->sums, acc, (size_t)cols * sizeof *acc);
}

/* The activations' sums times what is taken for each. */
INLINE void multiply_sums(ints taken[COLS], const struct panel256 *w,
                          const struct llm_q256 *const x[COLS], int cols)
{
    LLM_UNROLL
    for (int c = 0; c < cols; c++)
        taken[c] = splat_int(0);
    LLM_UNROLL
    for (int j = 0; j < 8; j++) {
        ints pairs = load_ints(w->taken[j]);
        LLM_UNROLL
        for (int c = 0; c < cols; c++)
            taken[c] = add_pairs(taken[c], pairs, splat_four_bytes(x[c]->sums + 2 * j));
    }
}

/* acc += sums of a block, scaled, and its minima. */
INLINE void add_block_256(enum llm_dtype like, floats acc[COLS], ints total[COLS],
                          const struct panel256 *w, const struct columns *columns, uint32_t block,
                          int cols)
{
    const bool has_min = llm_format(like).has_min;
    const struct llm_q256 *x[COLS];
    ints taken[COLS];
    LLM_UNROLL
    for (int c = 0; c < cols; c++)
        x[c] = (const struct llm_q256 *)(const void *)columns->acts[c] + block;
    if (has_min || values_bias(like))
        multiply_sums(taken, w, x, cols);
    floats scale = load_floats(w->scale);
    LLM_UNROLL
    for (int c = 0; c < cols; c++) {
        floats by = splat(x[c]->scale);
        ints sum = values_bias(like) ? total[c] - taken[c] : total[c];
        acc[c] = fma_floats(to_floats(sum), scale * by, acc[c]);
        if (has_min)
            acc[c] = fma_floats(to_floats(-taken[c]), load_floats(w->min) * by, acc[c]);
    }
}

INLINE void tile_256(enum llm_dtype like, const struct panel256 *w, struct columns *columns,
                     uint32_t blocks, int cols)
{
    const size_t values = offsetof(struct llm_q256, values), step = sizeof(struct llm_q256);
    floats acc[COLS];
    LLM_UNROLL
    for (int c = 0; c < cols; c++)
        acc[c] = splat(0);
    start_256(columns, 0, w, values);
    for (uint32_t b = 0; b < blocks; b++, w++) {
        ints total[COLS];
        if (b + 1 < blocks)
            start_256(columns, (b + 1) % 2, w + 1, step * (b + 1) + values);
        finish_256(like, total, columns, b % 2, w, step * b + values, cols);
        add_block_256(like, acc, total, w, columns, b, cols);
    }
    memcpy(columns->sums, acc, (size_t)cols * sizeof *acc);
}

typedef void tile_fn(const void *panel, struct columns *columns, uint32_t width);

/* All columns, or few. */
#define TILE(like, values_of_block)                                                                \
    static void tile_##like(const void *panel, struct columns *columns, uint32_t width)            \
    {                                                                                              \
        tile_##values_of_block(LLM_##like, panel, columns, width / values_of_block, COLS);         \
    }                                                                                              \
    static void few_##like(const void *panel, struct columns *columns, uint32_t width)             \
    {                                                                                              \
        tile_##values_of_block(LLM_##like, panel, columns, width / values_of_block, FEW_COLS);     \
    }

TILE(Q8_0, 32)
TILE(Q4_0, 32)
TILE(Q5_0, 32)
TILE(Q4_1, 32)
TILE(Q2_K, 256)
TILE(Q4_K, 256)
TILE(Q6_K, 256)
TILE(IQ4_XS, 256)

struct tile_pair {
    tile_fn *all, *few;
};
#define TILE_OF(type, like) [LLM_##type] = {tile_##like, few_##like}
static const struct tile_pair tiles[] = {
    TILE_OF(Q8_0, Q8_0),     TILE_OF(IQ4_NL, Q8_0), TILE_OF(MXFP4, Q8_0), TILE_OF(Q4_0, Q4_0),
    TILE_OF(Q5_0, Q5_0),     TILE_OF(Q4_1, Q4_1),   TILE_OF(Q5_1, Q4_1),  TILE_OF(Q2_K, Q2_K),
    TILE_OF(Q3_K, Q6_K),     TILE_OF(Q4_K, Q4_K),   TILE_OF(Q5_K, Q4_K),  TILE_OF(Q6_K, Q6_K),
    TILE_OF(IQ4_XS, IQ4_XS),
};

/* Where the tile of column `col` begins.  AMX has tiles of one size: the last one goes back. */
static uint32_t tile_begin(const struct llm_mul *m, uint32_t col, uint32_t end)
{
#ifdef LLM_AMX
    uint32_t cols = m->count < COLS ? m->count : COLS;
    return end - col < cols ? end - cols : col;
#else
    (void)m, (void)end;
    return col;
#endif
}

/* Columns first to end - 1 of ROWS rows. */
static void tile_rows(const struct llm_mul *m, uint32_t row, uint32_t first, uint32_t end)
{
    struct columns columns = {.stride = m->group_bytes / LLM_GROUP};
    for (uint32_t col = first; col < end;) {
        uint32_t begin = tile_begin(m, col, end);
        uint32_t cols = end - begin < COLS ? end - begin : COLS;
        for (uint32_t c = 0; c < COLS; c++)
            columns.acts[c] = act_row(m, begin + (c < cols ? c : cols - 1));
        (cols <= FEW_COLS ? tiles[m->dtype].few : tiles[m->dtype].all)(m->panel, &columns,
                                                                       m->width);
        for (; col < begin + cols; col++)
            store_lanes(m, row, col, columns.sums[col - begin]);
    }
}

static void mul_panels(const struct llm_mul *m)
{
    uint32_t step = rows_in_cache(m, COLS);
#ifdef LLM_AMX
    configure(m->dtype, m->count < COLS ? m->count : COLS);
#endif
    for (uint32_t first = 0; first < m->count; first += step) {
        uint32_t end = m->count - first < step ? m->count : first + step;
        for (uint32_t row = 0; row < m->rows; row += ROWS) {
            unpacks[m->dtype](m->panel, block_at(m, row), m->width);
            tile_rows(m, row, first, end);
        }
    }
#ifdef LLM_AMX
    _tile_release();
#endif
}

/* mul takes rows in groups of four, or one. */
static void mul_groups(const struct llm_mul *m, void (*mul)(const struct llm_mul *))
{
    if (m->rows >= 4) {
        mul(m);
        return;
    }
    struct llm_mul one = *m; /* fewer than a group: each by itself */
    one.rows = 1;
    for (uint32_t row = 0; row < m->rows; row++) {
        mul(&one);
        one.weight += m->row_bytes;
        one.out++;
        one.bias = m->bias ? one.bias + 1 : NULL;
    }
}

#endif
