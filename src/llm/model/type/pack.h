/* llm/model/type/pack.h - private to src/llm: floats to blocks, for the types whose scales can be
 * searched.
 *
 * tries 0 takes each block's scale from its range.  With more, so many scales on either side of
 * that one are tried, and the one with the smallest squared error is kept.  Values are then rounded
 * to the nearest that the stored scales allow.
 *
 * Trust: any floats; infinities and NaNs yield some block.  Threads: any; no state. */
#ifndef HAWSER_LLM_MODEL_TYPE_PACK_H
#define HAWSER_LLM_MODEL_TYPE_PACK_H

#include "llm/model/dtype.h"

/* One block of the type. */
typedef void llm_pack(uint8_t *dst, const float *src, int tries);

llm_pack llm_pack_q4_1, llm_pack_q5_0, llm_pack_q5_1, llm_pack_iq4_nl, llm_pack_mxfp4;
llm_pack llm_pack_q2_k, llm_pack_q3_k, llm_pack_q4_k, llm_pack_q5_k, llm_pack_q6_k, llm_pack_iq4_xs;

/* Rounds to binary16 at p; returns the stored value, by which the rest of a block is scaled. */
float llm_pack_half(uint8_t *p, float value);
/* The value of the largest magnitude, with its sign. */
float llm_pack_extreme(const float *x, size_t count);

/* value rounded to the nearest integer, ties to even, within low..high, which are small; a NaN
 * becomes low. */
static inline int llm_pack_round(float value, int low, int high)
{
    const float rounder = 12582912.0f; /* 1.5 * 2^23: the sum has no room for a fraction */
    float within = value > (float)low ? value : (float)low;
    within = within < (float)high ? within : (float)high;
    return (int)(within + rounder - rounder);
}

/* 0 for 0. */
static inline float llm_pack_inverse(float scale)
{
    return scale != 0 ? 1 / scale : 0;
}

#endif
