#include "llm/engine/quantise.h"

#include "llm/engine/arith.h"
#include "wire/half.h"

#include <assert.h>

/* ---- activations ---- */

static float largest(const float *src, size_t count)
{
    float most = 0;
    for (size_t i = 0; i < count; i++) {
        float magnitude = fabsf(src[i]);
        most = magnitude > most ? magnitude : most;
    }
    return most;
}

/* Rounds a block; returns its scale. */
static float round_block(int8_t *dst, const float *src, size_t count)
{
    float most = largest(src, count);
    float inverse = most > 0 ? 127.0f / most : 0;
    for (size_t i = 0; i < count; i++)
        dst[i] = (int8_t)(llm_bits(src[i] * inverse + LLM_ROUNDER) & 0xff);
    return most / 127.0f;
}

static int32_t sum_of(const int8_t *values, size_t count)
{
    int32_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return sum;
}

void llm_quantise32(struct llm_q32 *dst, const float *src, size_t count)
{
    assert(count % LLM_Q32_VALUES == 0);
    for (; count; count -= LLM_Q32_VALUES, src += LLM_Q32_VALUES, dst++) {
        dst->scale = round_block(dst->values, src, LLM_Q32_VALUES);
        dst->sum = sum_of(dst->values, LLM_Q32_VALUES);
    }
}

void llm_quantise256(struct llm_q256 *dst, const float *src, size_t count)
{
    assert(count % LLM_Q256_VALUES == 0);
    for (; count; count -= LLM_Q256_VALUES, src += LLM_Q256_VALUES, dst++) {
        dst->scale = round_block(dst->values, src, LLM_Q256_VALUES);
        for (size_t i = 0; i < LLM_Q256_SUMS; i++)
            dst->sums[i] = (int16_t)sum_of(dst->values + 16 * i, 16);
    }
}

void llm_round_f16(float *dst, const float *src, size_t count)
{
    enum { RUN = 64 }; /* values at a time */
    uint16_t halves[RUN];
    for (size_t done = 0; done < count; done += RUN) {
        size_t run = count - done < RUN ? count - done : RUN;
        wire_half_from_f32(halves, src + done, run);
        wire_half_to_f32(dst + done, halves, run);
    }
}

size_t llm_act_bytes(enum llm_act act, size_t count)
{
    switch (act) {
    case LLM_ACT_Q32:
        return count / LLM_Q32_VALUES * sizeof(struct llm_q32);
    case LLM_ACT_Q256:
        return count / LLM_Q256_VALUES * sizeof(struct llm_q256);
    default:
        return count * sizeof(float);
    }
}

/* ---- products ---- */

static float dot_plain(enum llm_dtype dtype, const uint8_t *w, const float *x, size_t count)
{
    enum { RUN = 64 }; /* values decoded at a time; a multiple of the lanes */
    float lanes[LLM_LANES] = {0}, values[RUN];
    size_t bytes = llm_dtype_block_bytes(dtype);
    for (size_t done = 0; done < count; done += RUN) {
        size_t run = count - done < RUN ? count - done : RUN;
        llm_dtype_to_f32(dtype, values, w + done * bytes, run);
        for (size_t i = 0; i < run; i++)
            lanes[i % LLM_LANES] = fmaf(values[i], x[done + i], lanes[i % LLM_LANES]);
    }
    return llm_sum8(lanes);
}

static float dot_w32(enum llm_dtype dtype, const uint8_t *w, const struct llm_q32 *x, size_t count)
{
    struct llm_format f = llm_format(dtype);
    float acc = 0;
    for (; count; count -= 32, w += f.bytes, x++) {
        struct llm_w32 block;
        int32_t sum = 0;
        llm_unpack32(dtype, &block, w, 32);
        for (size_t i = 0; i < 32; i++)
            sum += block.values[i] * x->values[i];
        acc = fmaf((float)sum, block.scale * x->scale, acc);
        if (f.has_min)
            acc = fmaf((float)x->sum, block.min * x->scale, acc);
    }
    return acc;
}

static float dot_w256(enum llm_dtype dtype, const uint8_t *w, const struct llm_q256 *x,
                      size_t count)
{
    struct llm_format f = llm_format(dtype);
    float acc = 0;
    for (; count; count -= 256, w += f.bytes, x++) {
        struct llm_w256 block;
        int32_t products = 0, minima = 0;
        llm_unpack256(dtype, &block, w, 256);
        for (size_t g = 0; g < 16; g++) {
            int32_t sum = 0;
            for (size_t i = 16 * g; i < 16 * g + 16; i++)
                sum += block.values[i] * x->values[i];
            products += block.inner.scales[g] * sum;
            minima += block.inner.minima[g] * x->sums[g];
        }
        acc = fmaf((float)products, block.scale * x->scale, acc);
        if (f.has_min)
            acc = fmaf((float)-minima, block.min * x->scale, acc);
    }
    return acc;
}

float llm_dot(enum llm_dtype dtype, const void *weights, const void *acts, size_t count)
{
    switch (llm_format(dtype).values) {
    case LLM_Q32_VALUES:
        return dot_w32(dtype, weights, acts, count);
    case LLM_Q256_VALUES:
        return dot_w256(dtype, weights, acts, count);
    default:
        return dot_plain(dtype, weights, acts, count);
    }
}
