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

static float half_at(const uint8_t *p)
{
    return llm_float(wire_half_to_bits((uint16_t)(p[0] | p[1] << 8)));
}

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

static float dot_q8_0(const uint8_t *w, const struct llm_q32 *x, size_t count)
{
    float acc = 0;
    for (; count; count -= 32, w += 34, x++) {
        int32_t sum = 0;
        for (size_t i = 0; i < 32; i++)
            sum += (int8_t)w[2 + i] * x->values[i];
        acc = fmaf((float)sum, half_at(w) * x->scale, acc);
    }
    return acc;
}

static float dot_q4_0(const uint8_t *w, const struct llm_q32 *x, size_t count)
{
    float acc = 0;
    for (; count; count -= 32, w += 18, x++) {
        int32_t sum = -8 * x->sum;
        for (size_t i = 0; i < 16; i++)
            sum += (w[2 + i] & 15) * x->values[i] + (w[2 + i] >> 4) * x->values[16 + i];
        acc = fmaf((float)sum, half_at(w) * x->scale, acc);
    }
    return acc;
}

static float dot_w32(enum llm_dtype dtype, const uint8_t *w, const struct llm_q32 *x, size_t count)
{
    float acc = 0;
    for (uint32_t bytes = llm_dtype_block_bytes(dtype); count; count -= 32, w += bytes, x++) {
        struct llm_w32 block;
        int32_t sum = 0;
        llm_unpack32(dtype, &block, w, 32);
        for (size_t i = 0; i < 32; i++)
            sum += block.values[i] * x->values[i];
        acc = fmaf((float)sum, block.scale * x->scale, acc);
        acc = fmaf((float)x->sum, block.min * x->scale, acc);
    }
    return acc;
}

static float dot_w256(enum llm_dtype dtype, const uint8_t *w, const struct llm_q256 *x,
                      size_t count)
{
    float acc = 0;
    for (uint32_t bytes = llm_dtype_block_bytes(dtype); count; count -= 256, w += bytes, x++) {
        struct llm_w256 block;
        int32_t products = 0, minima = 0;
        llm_unpack256(dtype, &block, w, 256);
        for (size_t g = 0; g < 16; g++) {
            int32_t sum = 0;
            for (size_t i = 16 * g; i < 16 * g + 16; i++)
                sum += block.values[i] * x->values[i];
            products += block.scales[g] * sum;
            minima += block.minima[g] * x->sums[g];
        }
        acc = fmaf((float)products, block.scale * x->scale, acc);
        if (llm_block_form(dtype) == LLM_FORM_W256_MIN)
            acc = fmaf((float)-minima, block.min * x->scale, acc);
    }
    return acc;
}

/* Pair j of the eight 6-bit scales and minima: the first four have bytes of their own, the others
 * their low nibbles in bytes 8..11 and their high bits on top of the first four's. */
static void scale_and_min(const uint8_t *packed, size_t j, int32_t *scale, int32_t *min)
{
    if (j < 4) {
        *scale = packed[j] & 63;
        *min = packed[j + 4] & 63;
    } else {
        *scale = (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
        *min = packed[j + 4] >> 4 | packed[j] >> 6 << 4;
    }
}

static float dot_q4_k(const uint8_t *w, const struct llm_q256 *x, size_t count)
{
    float acc = 0;
    for (; count; count -= 256, w += 144, x++) {
        int32_t products = 0, minima = 0;
        for (size_t j = 0; j < 8; j++) {
            const uint8_t *q = w + 16 + 32 * (j / 2);
            const int8_t *a = x->values + 32 * j;
            int32_t scale, min, sum = 0;
            scale_and_min(w + 4, j, &scale, &min);
            for (size_t i = 0; i < 32; i++)
                sum += (q[i] >> 4 * (j % 2) & 15) * a[i];
            products += scale * sum;
            minima += min * (x->sums[2 * j] + x->sums[2 * j + 1]);
        }
        acc = fmaf((float)products, half_at(w) * x->scale, acc);
        acc = fmaf((float)-minima, half_at(w + 2) * x->scale, acc);
    }
    return acc;
}

/* Value i of a Q6_K block: halves of 128; in each, four runs of 32 share 64 bytes of low nibbles
 * and 32 bytes of high pairs. */
static int32_t q6_at(const uint8_t *w, size_t i)
{
    size_t half = i / 128, run = i % 128 / 32, at = i % 32;
    int32_t low = w[64 * half + 32 * (run % 2) + at] >> 4 * (run / 2) & 15;
    int32_t high = w[128 + 32 * half + at] >> 2 * run & 3;
    return (low | high << 4) - 32;
}

static float dot_q6_k(const uint8_t *w, const struct llm_q256 *x, size_t count)
{
    float acc = 0;
    for (; count; count -= 256, w += 210, x++) {
        int32_t products = 0;
        for (size_t g = 0; g < 16; g++) {
            int32_t sum = 0;
            for (size_t i = 16 * g; i < 16 * g + 16; i++)
                sum += q6_at(w, i) * x->values[i];
            products += (int8_t)w[192 + g] * sum;
        }
        acc = fmaf((float)products, half_at(w + 208) * x->scale, acc);
    }
    return acc;
}

float llm_dot(enum llm_dtype dtype, const void *weights, const void *acts, size_t count)
{
    switch (dtype) {
    case LLM_Q8_0:
        return dot_q8_0(weights, acts, count);
    case LLM_Q4_0:
        return dot_q4_0(weights, acts, count);
    case LLM_Q4_K:
        return dot_q4_k(weights, acts, count);
    case LLM_Q6_K:
        return dot_q6_k(weights, acts, count);
    default:
        break;
    }
    switch (llm_block_form(dtype)) {
    case LLM_FORM_NONE:
        return dot_plain(dtype, weights, acts, count);
    case LLM_FORM_W32:
        return dot_w32(dtype, weights, acts, count);
    default:
        return dot_w256(dtype, weights, acts, count);
    }
}
