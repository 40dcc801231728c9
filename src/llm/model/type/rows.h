/* llm/model/type/rows.h - private to src/llm: bytes of blocks of several rows side by side, for the
 * kernels of x86-64.  Included by blocks.h where LLM_ROWS is defined: 8 with AVX2, 16 with AVX-512.
 *
 * A vector has four bytes of each row, in the order of rows: what one instruction multiplies with
 * four bytes of activations.  Bytes are brought into that order before they are taken apart, so
 * that what is done for each type in blocks.h is done for all rows at once.
 *
 * Trust: sizes are the caller's; no byte past a block is read.  Threads: any; no state. */
#ifndef HAWSER_LLM_MODEL_TYPE_ROWS_H
#define HAWSER_LLM_MODEL_TYPE_ROWS_H

/* The same block of each row: those of a group are `stride` bytes apart.  Few pointers, since all
 * are in use at a time. */
typedef struct {
    const uint8_t *group[LLM_ROWS / 4];
    size_t stride;
} llm_block;

LLM_INLINE void llm_rows_advance(llm_block *b, size_t bytes)
{
    for (int i = 0; i < LLM_ROWS / 4; i++)
        b->group[i] += bytes;
}

typedef uint8_t llm_raw_part __attribute__((vector_size(4 * LLM_ROWS)));
typedef uint32_t llm_word __attribute__((vector_size(4 * LLM_ROWS)));
typedef int16_t llm_halves __attribute__((vector_size(4 * LLM_ROWS)));

/* 32 values: part i has values 4i to 4i + 3. */
enum { LLM_RAW_PARTS = 8 };
struct llm_raw {
    llm_raw_part part[LLM_RAW_PARTS];
};

LLM_INLINE __m128i llm_rows_load(llm_block b, size_t at, int group, size_t row)
{
    return _mm_loadu_si128((const __m128i *)(const void *)(b.group[group] + at + row * b.stride));
}

#if LLM_ROWS == 16
typedef __m512i llm_vector;
#define LLM_V(operation) _mm512_##operation

/* 16 bytes of the same row of each group. */
LLM_INLINE llm_vector llm_rows_lanes(llm_block b, size_t at, size_t row)
{
    __m512i v = _mm512_castsi128_si512(llm_rows_load(b, at, 0, row));
    v = _mm512_inserti32x4(v, llm_rows_load(b, at, 1, row), 1);
    v = _mm512_inserti32x4(v, llm_rows_load(b, at, 2, row), 2);
    return _mm512_inserti32x4(v, llm_rows_load(b, at, 3, row), 3);
}

LLM_INLINE llm_vector llm_rows_splat(__m128i v)
{
    return _mm512_broadcast_i32x4(v);
}
#else
typedef __m256i llm_vector;
#define LLM_V(operation) _mm256_##operation

LLM_INLINE llm_vector llm_rows_lanes(llm_block b, size_t at, size_t row)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(llm_rows_load(b, at, 0, row)),
                                   llm_rows_load(b, at, 1, row), 1);
}

LLM_INLINE llm_vector llm_rows_splat(__m128i v)
{
    return _mm256_broadcastsi128_si256(v);
}
#endif

/* 16 bytes of each row: word i is in dst[i]. */
LLM_INLINE void llm_rows_words(llm_word dst[4], llm_block b, size_t at)
{
    llm_vector r[4];
    for (size_t i = 0; i < 4; i++)
        r[i] = llm_rows_lanes(b, at, i);
    llm_vector low0 = LLM_V(unpacklo_epi32)(r[0], r[1]), low1 = LLM_V(unpacklo_epi32)(r[2], r[3]);
    llm_vector high0 = LLM_V(unpackhi_epi32)(r[0], r[1]), high1 = LLM_V(unpackhi_epi32)(r[2], r[3]);
    dst[0] = (llm_word)LLM_V(unpacklo_epi64)(low0, low1);
    dst[1] = (llm_word)LLM_V(unpackhi_epi64)(low0, low1);
    dst[2] = (llm_word)LLM_V(unpacklo_epi64)(high0, high1);
    dst[3] = (llm_word)LLM_V(unpackhi_epi64)(high0, high1);
}

/* The word at byte `at` of a block of `bytes`; what is loaded with it lies in the block. */
LLM_INLINE llm_word llm_rows_word(llm_block b, size_t at, size_t bytes)
{
    llm_word words[4];
    if (at + 16 <= bytes) {
        llm_rows_words(words, b, at);
        return words[0];
    }
    llm_rows_words(words, b, at - 12);
    return words[3];
}

/* For each word of v, bytes i of it in the order of control's bytes; 128: zero. */
LLM_INLINE llm_vector llm_rows_choose(llm_vector v, int c0, int c1, int c2, int c3)
{
    const __m128i control = _mm_setr_epi8(
        (char)c0, (char)c1, (char)c2, (char)c3, (char)(c0 + 4), (char)(c1 + 4), (char)(c2 + 4),
        (char)(c3 + 4), (char)(c0 + 8), (char)(c1 + 8), (char)(c2 + 8), (char)(c3 + 8),
        (char)(c0 + 12), (char)(c1 + 12), (char)(c2 + 12), (char)(c3 + 12));
    return LLM_V(shuffle_epi8)(v, llm_rows_splat(control));
}

LLM_INLINE struct llm_raw llm_raw_load(llm_block b, size_t at)
{
    struct llm_raw v;
    llm_rows_words((llm_word *)v.part, b, at);
    llm_rows_words((llm_word *)(v.part + 4), b, at + 16);
    return v;
}

LLM_INLINE struct llm_raw llm_raw_nibbles(llm_block b, size_t at)
{
    struct llm_raw v;
    llm_word words[4];
    llm_rows_words(words, b, at);
    for (int i = 0; i < 4; i++) {
        v.part[i] = (llm_raw_part)words[i] & 15;
        v.part[4 + i] = (llm_raw_part)(words[i] >> 4) & 15;
    }
    return v;
}

LLM_INLINE struct llm_raw llm_raw_lookup(struct llm_raw v, const int8_t table[16])
{
    llm_vector values = llm_rows_splat(_mm_loadu_si128((const __m128i *)(const void *)table));
    for (int i = 0; i < LLM_RAW_PARTS; i++)
        v.part[i] = (llm_raw_part)LLM_V(shuffle_epi8)(values, (llm_vector)v.part[i]);
    return v;
}

LLM_INLINE struct llm_raw llm_raw_fifth_bits(llm_block b, size_t at, size_t bytes)
{
    struct llm_raw v;
    llm_vector all = (llm_vector)llm_rows_word(b, at, bytes);
    for (int i = 0; i < LLM_RAW_PARTS; i++) {
        const llm_raw_part each =
            (llm_raw_part)LLM_V(set1_epi32)(i % 2 ? (int)0x80402010 : 0x08040201);
        llm_raw_part byte = (llm_raw_part)llm_rows_choose(all, i / 2, i / 2, i / 2, i / 2);
        v.part[i] = (llm_raw_part)((byte & each) != 0) & 16;
    }
    return v;
}

#endif
