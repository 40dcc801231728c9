/* llm/model/dtype.h - how the numbers of a tensor are stored: the GGUF types that the engine
 * computes with.
 *
 * Quantised rows are sequences of blocks; a row's length is a multiple of the block's.  Layouts
 * (little-endian, no padding; d, dmin binary16):
 *
 *   Q8_0   32 values  34 bytes   d, 32 x i8                               x = d * q
 *   Q4_0   32 values  18 bytes   d, 16 bytes: low nibbles are values 0..15, high ones 16..31
 *                                                                         x = d * (q - 8)
 *   Q4_1   32 values  20 bytes   d, m, nibbles as in Q4_0                 x = d * q + m
 *   Q5_0   32 values  22 bytes   d, 32 fifth bits, nibbles                x = d * (q - 16)
 *   Q5_1   32 values  24 bytes   d, m, 32 fifth bits, nibbles             x = d * q + m
 *   IQ4_NL 32 values  18 bytes   d, nibbles that index a table            x = d * table[q]
 *   MXFP4  32 values  17 bytes   exponent e, nibbles that are E2M1 floats x = 2^(e - 127) * q
 *   Q2_K  256 values  84 bytes   16 bytes of 4-bit (scale, min), 64 bytes of pairs, d, dmin
 *                                                                         x = d*sc*q - dmin*m
 *   Q3_K  256 values 110 bytes   32 bytes of third bits, 64 bytes of pairs, 12 bytes of 6-bit
 *                                scales, d                                x = d * (sc-32) * (q-4)
 *   Q4_K  256 values 144 bytes   d, dmin, 12 bytes of eight 6-bit (scale, min) pairs, 128 bytes of
 *                                nibbles in four groups of 64 values      x = d*sc*q - dmin*m
 *   Q5_K  256 values 176 bytes   as Q4_K, with 32 bytes of fifth bits before the nibbles
 *   Q6_K  256 values 210 bytes   128 bytes low nibbles, 64 bytes high pairs, 16 x i8 scales, d
 *                                                                         x = d * sc * (q - 32)
 *   IQ4_XS 256 values 136 bytes  d, eight 6-bit scales in 6 bytes, nibbles that index the table
 *                                of IQ4_NL                                x = d*(sc-32)*table[q]
 *
 * Trust: sizes are the caller's; block counts are checked where a file is opened.
 * Threads: any; no state. */
#ifndef HAWSER_LLM_MODEL_DTYPE_H
#define HAWSER_LLM_MODEL_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers are GGUF's. */
enum llm_dtype {
    LLM_F32 = 0,
    LLM_F16 = 1,
    LLM_Q4_0 = 2,
    LLM_Q4_1 = 3,
    LLM_Q5_0 = 6,
    LLM_Q5_1 = 7,
    LLM_Q8_0 = 8,
    LLM_Q2_K = 10,
    LLM_Q3_K = 11,
    LLM_Q4_K = 12,
    LLM_Q5_K = 13,
    LLM_Q6_K = 14,
    LLM_IQ4_NL = 20,
    LLM_IQ4_XS = 23,
    LLM_BF16 = 30,
    LLM_MXFP4 = 39,
};

enum {
    LLM_DTYPES = 16,             /* how many there are */
    LLM_DTYPE_NAMES_CHARS = 160, /* for a list of all */
};

/* Whether the engine knows a number that a file holds. */
bool llm_dtype_known(uint32_t number);

/* The i-th of LLM_DTYPES. */
enum llm_dtype llm_dtype_at(size_t i);

/* "F32", "Q4_K", as people write them; "?" for an unknown number.  And back: false when unknown. */
const char *llm_dtype_name(enum llm_dtype dtype);
bool llm_dtype_parse(const char *name, enum llm_dtype *out);
/* "F32, F16, ... and IQ4_XS", for messages; returns text. */
const char *llm_dtype_names(char text[LLM_DTYPE_NAMES_CHARS]);

/* Values in a block (1 for the plain types) and the bytes of one. */
uint32_t llm_dtype_block(enum llm_dtype dtype);
uint32_t llm_dtype_block_bytes(enum llm_dtype dtype);

/* Bytes of count values, a multiple of the block.  Never overflows for count below 2^48. */
uint64_t llm_dtype_bytes(enum llm_dtype dtype, uint64_t count);

/* The reference conversions: count is a multiple of the block.  Decoding is exact.  from takes each
 * block's scale from its range; fit searches for the scale with the smallest squared error, which
 * takes some 20 times as long, and is the same as from for F32, F16, BF16, Q8_0 and Q4_0. */
void llm_dtype_to_f32(enum llm_dtype dtype, float *dst, const void *src, size_t count);
void llm_dtype_from_f32(enum llm_dtype dtype, void *dst, const float *src, size_t count);
void llm_dtype_fit_f32(enum llm_dtype dtype, void *dst, const float *src, size_t count);

#endif
