/* llm/cpu/elementwise.h - private to src/llm: loops that the compiler vectorises.
 *
 * Each set of kernels includes this and is compiled for its own CPU.  The order of additions is
 * fixed, so the results are those of reference.c with any compiler.
 *
 * Threads: any. */
#ifndef HAWSER_LLM_CPU_ELEMENTWISE_H
#define HAWSER_LLM_CPU_ELEMENTWISE_H

#include "llm/cpu/kernels.h"
#include "llm/engine/arith.h"
#include "llm/engine/backend.h"

static inline void elementwise_activate(enum llm_activation kind, float *restrict x,
                                        const float *restrict gate_by, uint64_t count)
{
    if (kind == LLM_SILU_GATED) {
        for (uint64_t i = 0; i < count; i++)
            x[i] = llm_silu(x[i]) * gate_by[i];
    } else if (kind == LLM_GELU) {
        for (uint64_t i = 0; i < count; i++)
            x[i] = llm_gelu(x[i]);
    } else if (kind == LLM_GELU_GATED) {
        for (uint64_t i = 0; i < count; i++)
            x[i] = llm_gelu(x[i]) * gate_by[i];
    } else if (kind == LLM_SIGMOID) {
        for (uint64_t i = 0; i < count; i++)
            x[i] = llm_sigmoid(x[i]);
    } else {
        for (uint64_t i = 0; i < count; i++)
            x[i] = llm_silu_clamped(x[i], gate_by[i]);
    }
}

static inline float lanes_sum(const float *x, uint32_t count)
{
    float lanes[LLM_LANES] = {0};
    uint32_t i = 0;
    for (; count - i >= LLM_LANES; i += LLM_LANES) {
        for (uint32_t l = 0; l < LLM_LANES; l++)
            lanes[l] += x[i + l];
    }
    for (; i < count; i++)
        lanes[i % LLM_LANES] += x[i];
    return llm_sum8(lanes);
}

static inline float lanes_square(const float *x, float about, uint32_t count)
{
    float lanes[LLM_LANES] = {0};
    uint32_t i = 0;
    for (; count - i >= LLM_LANES; i += LLM_LANES) {
        for (uint32_t l = 0; l < LLM_LANES; l++)
            lanes[l] = fmaf(x[i + l] - about, x[i + l] - about, lanes[l]);
    }
    for (; i < count; i++)
        lanes[i % LLM_LANES] = fmaf(x[i] - about, x[i] - about, lanes[i % LLM_LANES]);
    return llm_sum8(lanes);
}

static inline void elementwise_norm(const struct llm_norm *n)
{
    float mean = n->is_rms ? 0 : lanes_sum(n->in, n->width) / (float)n->width;
    float square = lanes_square(n->in, mean, n->width) / (float)n->width;
    float scale = 1.0f / sqrtf(square + n->eps);
    for (uint32_t i = 0; i < n->width; i++) {
        float y = (n->in[i] - mean) * scale * n->weight[i];
        n->out[i] = n->bias ? y + n->bias[i] : y;
    }
}

/* Positions that the last row sees. */
static inline uint32_t attention_span(const struct llm_attention *a)
{
    return a->positions + a->rows - 1;
}

/* Of a query: those of a row follow each other. */
static inline float *attention_scores(const struct llm_attention *a, uint32_t query)
{
    return a->scores + (size_t)query * attention_span(a);
}

/* A query's scores become e^(score - largest), capped before if the model says so; returns their
 * sum, with that of the sink. */
static inline float attention_weights(const struct llm_attention *a, uint32_t query)
{
    float *scores = attention_scores(a, query);
    const float *sink = a->sinks ? &a->sinks[query % a->group] : NULL;
    uint32_t positions = a->positions + query / a->group;
    for (uint32_t j = 0; j < positions && a->cap != 0; j++)
        scores[j] = llm_soft_cap(scores[j], a->cap);
    float most = sink && *sink > scores[0] ? *sink : scores[0];
    for (uint32_t j = 1; j < positions; j++)
        most = scores[j] > most ? scores[j] : most;
    for (uint32_t j = 0; j < positions; j++)
        scores[j] = llm_exp(scores[j] - most);
    float sum = lanes_sum(scores, positions);
    return sink ? sum + llm_exp(*sink - most) : sum;
}

/* K or V of the j-th position that the rows see. */
static inline const uint8_t *attention_row(const struct llm_attention *a, const uint8_t *base,
                                           uint32_t j)
{
    uint32_t position = a->first + j;
    return base + a->pages[position / LLM_KV_POSITIONS] * a->page_stride +
           position % LLM_KV_POSITIONS * a->row_stride;
}

/* The last part of a row's sum in a set's mul. */
static inline float mul_finish(const struct llm_mul *m, uint32_t row, const float *out, float sum)
{
    float y = m->bias ? sum + m->bias[row] : sum;
    return m->accumulate ? *out + y : y;
}

#endif
