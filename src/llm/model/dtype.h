/* llm/model/dtype.h - how the numbers of a tensor are stored: the GGUF types that the engine
 * computes with.
 *
 * Quantised rows are sequences of blocks; a row's length is a multiple of the block's.  Layouts
 * (little-endian, no padding; d, dmin binary16):
 *
 *   Q8_0  32 values  34 bytes   d, 32 x i8                               x = d * q
 *   Q4_0  32 values  18 bytes   d, 16 bytes: low nibbles are values 0..15, high ones 16..31
 *                                                                        x = d * (q - 8)
 *   Q4_K 256 values 144 bytes   d, dmin, 12 bytes of eight 6-bit (scale, min) pairs, 128 bytes of
 *                               nibbles in four groups of 64 values      x = d*sc*q - dmin*m
 *   Q6_K 256 values 210 bytes   128 bytes low nibbles, 64 bytes high pairs, 16 x i8 scales, d
 *                                                                        x = d * sc * (q - 32)
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
    LLM_Q8_0 = 8,
    LLM_Q4_K = 12,
    LLM_Q6_K = 14,
    LLM_BF16 = 30,
};

/* Whether the engine knows a number that a file holds. */
bool llm_dtype_known(uint32_t number);

/* "F32", "Q4_K", as people write them; "?" for an unknown number.  And back: false when unknown. */
const char *llm_dtype_name(enum llm_dtype dtype);
bool llm_dtype_parse(const char *name, enum llm_dtype *out);

/* Values in a block (1 for the plain types) and the bytes of one. */
uint32_t llm_dtype_block(enum llm_dtype dtype);
uint32_t llm_dtype_block_bytes(enum llm_dtype dtype);

/* Bytes of count values, a multiple of the block.  Never overflows for count below 2^48. */
uint64_t llm_dtype_bytes(enum llm_dtype dtype, uint64_t count);

/* The reference conversions: count is a multiple of the block.  Quantising picks, for each block,
 * the scale that the format's own definition names; decoding is exact. */
void llm_dtype_to_f32(enum llm_dtype dtype, float *dst, const void *src, size_t count);
void llm_dtype_from_f32(enum llm_dtype dtype, void *dst, const float *src, size_t count);

#endif
