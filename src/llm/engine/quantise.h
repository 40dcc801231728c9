/* llm/engine/quantise.h - activations rounded for the weights' type: to 8 bits, or to binary16.
 *
 * A block's scale is its largest magnitude / 127, its values are x / scale rounded to the nearest,
 * ties to even.  Weights in blocks of 32 are multiplied with blocks of 32, weights in blocks of 256
 * with blocks of 256; both carry sums for the minima and offsets.  F16 weights are multiplied with
 * activations rounded to binary16: the products are exact in binary32, and some CPUs fuse the
 * addition.
 *
 * Trust: any floats; a NaN becomes some value.  Threads: any. */
#ifndef HAWSER_LLM_ENGINE_QUANTISE_H
#define HAWSER_LLM_ENGINE_QUANTISE_H

#include "llm/model/type/blocks.h"

enum { LLM_Q32_VALUES = 32, LLM_Q256_VALUES = 256, LLM_Q256_SUMS = 16 };

struct llm_q32 {
    float scale;
    int32_t sum; /* of values */
    int8_t values[LLM_Q32_VALUES];
};

struct llm_q256 {
    float scale;
    int16_t sums[LLM_Q256_SUMS]; /* of 16 values each */
    int8_t values[LLM_Q256_VALUES];
};

/* The form of activations for a type of weights. */
enum llm_act { LLM_ACT_F32, LLM_ACT_F16, LLM_ACT_Q32, LLM_ACT_Q256, LLM_ACTS };

static inline enum llm_act llm_act_of(enum llm_dtype dtype)
{
    switch (llm_format(dtype).values) {
    case LLM_Q32_VALUES:
        return LLM_ACT_Q32;
    case LLM_Q256_VALUES:
        return LLM_ACT_Q256;
    default:
        return dtype == LLM_F16 ? LLM_ACT_F16 : LLM_ACT_F32;
    }
}

/* The reference: count is a multiple of the block. */
void llm_quantise32(struct llm_q32 *dst, const float *src, size_t count);
void llm_quantise256(struct llm_q256 *dst, const float *src, size_t count);
/* To binary16 and back. */
void llm_round_f16(float *dst, const float *src, size_t count);

/* Bytes of `count` values so stored; LLM_ACT_F16 as floats. */
size_t llm_act_bytes(enum llm_act act, size_t count);

/* The product of one row of weights, as a file holds it, and one row of activations of its kind:
 * the definition that all kernels follow.  count is a multiple of the block.
 *
 *   F32, F16, BF16   eight lanes, each a chain of fused multiply-adds in order (llm/engine/arith.h)
 *   others           block after block, acc = fma(integer sum of the block, weight's scale *
 *                    activations' scale, acc); types with minima then add them the same way */
float llm_dot(enum llm_dtype dtype, const void *weights, const void *acts, size_t count);

#endif
