/* The backend `reference`: it defines what every op yields, with one plain loop each. */
#include "llm/cpu/ram.h"
#include "llm/engine/arith.h"
#include "llm/engine/quantise.h"
#include "llm/model/why.h"
#include "wire/half.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct reference {
    struct llm_ram ram;
    void *scratch; /* activations of one row, quantised; scores of one head */
    size_t scratch_bytes;
};

static struct reference *self_of(struct llm_backend *b)
{
    return (struct reference *)b;
}

static const struct llm_batch *batch_of(struct llm_backend *b)
{
    assert(self_of(b)->ram.batch);
    return self_of(b)->ram.batch;
}

static int ref_open(const struct llm_backend_config *config, struct llm_backend **out, char *why)
{
    (void)config;
    struct reference *self = calloc(1, sizeof *self);
    if (!self)
        return llm_why(why, -ENOMEM, "no memory for the backend");
    self->ram.base.ops = &llm_backend_reference;
    snprintf(self->ram.base.device, sizeof self->ram.base.device, "plain C");
    *out = &self->ram.base;
    return 0;
}

static void ref_close(struct llm_backend *b)
{
    free(self_of(b)->scratch);
    free(b);
}

/* NULL without memory: the step then fails. */
static void *scratch(struct llm_backend *b, size_t bytes)
{
    struct reference *self = self_of(b);
    if (bytes > self->scratch_bytes) {
        void *larger = realloc(self->scratch, bytes);
        if (!larger) {
            self->ram.error = -ENOMEM;
            return NULL;
        }
        self->scratch = larger;
        self->scratch_bytes = bytes;
    }
    return self->scratch;
}

static void ref_embed(struct llm_backend *b, const struct llm_op_embed *op)
{
    for (uint32_t r = 0; r < batch_of(b)->rows; r++)
        llm_ram_embed(batch_of(b), op, r);
}

static void ref_pick(struct llm_backend *b, const struct llm_op_pick *op)
{
    llm_ram_pick(batch_of(b), op);
}

static void ref_rope(struct llm_backend *b, const struct llm_op_rope *op)
{
    for (uint32_t r = 0; r < batch_of(b)->rows; r++)
        llm_ram_rope(batch_of(b), op, r);
}

static void ref_append(struct llm_backend *b, const struct llm_op_append *op)
{
    for (uint32_t r = 0; r < batch_of(b)->rows; r++)
        llm_ram_append(batch_of(b), op, r);
}

static float mean_of(const float *x, uint32_t width)
{
    float lanes[LLM_LANES] = {0};
    for (uint32_t i = 0; i < width; i++)
        lanes[i % LLM_LANES] += x[i];
    return llm_sum8(lanes) / (float)width;
}

static float mean_square(const float *x, float about, uint32_t width)
{
    float lanes[LLM_LANES] = {0};
    for (uint32_t i = 0; i < width; i++)
        lanes[i % LLM_LANES] = fmaf(x[i] - about, x[i] - about, lanes[i % LLM_LANES]);
    return llm_sum8(lanes) / (float)width;
}

static void ref_norm(struct llm_backend *b, const struct llm_op_norm *op)
{
    (void)b;
    const float *weight = llm_ram_floats(op->weight);
    const float *bias = op->bias.buffer ? llm_ram_floats(op->bias) : NULL;
    for (uint32_t r = 0; r < op->rows; r++) {
        const float *in = llm_ram_floats(op->in) + (size_t)r * op->width;
        float *out = llm_ram_floats(op->out) + (size_t)r * op->width;
        float mean = op->is_rms ? 0 : mean_of(in, op->width);
        float scale = 1.0f / sqrtf(mean_square(in, mean, op->width) + op->eps);
        for (uint32_t i = 0; i < op->width; i++) {
            float y = (in[i] - mean) * scale * weight[i];
            out[i] = bias ? y + bias[i] : y;
        }
    }
}

/* The activations of one row in the form that the weights need; NULL without memory. */
static const void *acts_for(struct llm_backend *b, enum llm_dtype dtype, const float *in,
                            size_t width)
{
    enum llm_act act = llm_act_of(dtype);
    if (act == LLM_ACT_F32)
        return in;
    void *acts = scratch(b, llm_act_bytes(act, width));
    if (acts && act == LLM_ACT_F16)
        llm_round_f16(acts, in, width);
    else if (acts && act == LLM_ACT_Q32)
        llm_quantise32(acts, in, width);
    else if (acts)
        llm_quantise256(acts, in, width);
    return acts;
}

static void ref_matmul_row(struct llm_backend *b, const struct llm_op_matmul *op,
                           const struct llm_matmul_part *part, uint32_t row)
{
    const struct llm_weight *w = part->weight;
    bool routed = op->experts.chosen.buffer != NULL;
    uint32_t count = routed ? w->count / op->experts.count : w->count;
    uint32_t first = routed ? llm_ram_words(op->experts.chosen)[row] * count : 0;
    uint32_t in_row = routed ? row / op->experts.share : row;
    const float *bias = llm_ram_maybe(part->bias);
    float *out = llm_ram_floats(part->out) + (size_t)row * count;
    const float *in = llm_ram_floats(op->in) + (size_t)in_row * w->width;
    const void *acts = acts_for(b, w->dtype, in, w->width);
    for (uint32_t j = 0; acts && j < count; j++) {
        float y = llm_dot(w->dtype, llm_ram_row(w, first + j), acts, w->width);
        y = bias ? y + bias[first + j] : y;
        out[j] = part->accumulate ? out[j] + y : y;
    }
}

static void ref_matmul(struct llm_backend *b, const struct llm_op_matmul *op)
{
    for (uint32_t p = 0; p < op->part_count; p++) {
        for (uint32_t r = 0; r < op->rows; r++)
            ref_matmul_row(b, op, &op->parts[p], r);
    }
}

static const uint8_t *kv_at(const struct llm_batch *batch, const struct llm_op_attend *op,
                            uint32_t row, unsigned v, uint32_t position, uint32_t head)
{
    uint32_t page = llm_ram_pages(batch, op->layer, row)[position / LLM_KV_POSITIONS];
    const uint8_t *at = llm_ram_kv(op->kv, v, page, position % LLM_KV_POSITIONS);
    return at + (size_t)head * op->head_dim * sizeof(uint16_t);
}

/* Scores become e^(score - largest); returns their sum, with that of the sink. */
static float exponentials(float *scores, uint32_t count, const float *sink)
{
    float lanes[LLM_LANES] = {0}, most = sink && *sink > scores[0] ? *sink : scores[0];
    for (uint32_t j = 1; j < count; j++)
        most = scores[j] > most ? scores[j] : most;
    for (uint32_t j = 0; j < count; j++) {
        scores[j] = llm_exp(scores[j] - most);
        lanes[j % LLM_LANES] += scores[j];
    }
    return sink ? llm_sum8(lanes) + llm_exp(*sink - most) : llm_sum8(lanes);
}

static void attend_head(const struct llm_batch *batch, const struct llm_op_attend *op, uint32_t row,
                        uint32_t head, float *scores)
{
    uint32_t dim = op->head_dim, first = llm_ram_first(op, batch->positions[row]);
    uint32_t count = batch->positions[row] + 1 - first;
    uint32_t kv_head = head / (op->heads / op->kv_heads);
    size_t at = ((size_t)row * op->heads + head) * dim;
    const float *q = llm_ram_floats(op->q) + at;
    float *out = llm_ram_floats(op->out) + at;
    for (uint32_t j = 0; j < count; j++)
        scores[j] = llm_soft_cap(
            op->scale * llm_dot(LLM_F16, kv_at(batch, op, row, 0, first + j, kv_head), q, dim),
            op->cap);
    const float *sinks = llm_ram_maybe(op->sinks);
    float inverse = 1.0f / exponentials(scores, count, sinks ? sinks + head : NULL);
    for (uint32_t i = 0; i < dim; i++) {
        float sum = 0;
        for (uint32_t j = 0; j < count; j++) {
            float v;
            const uint8_t *row_v = kv_at(batch, op, row, 1, first + j, kv_head);
            wire_half_to_f32(&v, row_v + i * sizeof(uint16_t), 1);
            sum = fmaf(scores[j], v, sum);
        }
        out[i] = sum * inverse;
    }
}

static void ref_attend(struct llm_backend *b, const struct llm_op_attend *op)
{
    const struct llm_batch *batch = batch_of(b);
    for (uint32_t r = 0; r < batch->rows; r++) {
        float *scores = scratch(b, ((size_t)batch->positions[r] + 1) * sizeof *scores);
        for (uint32_t h = 0; scores && h < op->heads; h++)
            attend_head(batch, op, r, h, scores);
    }
}

static void ref_activate(struct llm_backend *b, const struct llm_op_activate *op)
{
    (void)b;
    size_t count = (size_t)op->rows * op->width;
    float *x = llm_ram_floats(op->x);
    const float *gate_by = llm_activation_is_gated(op->kind) ? llm_ram_floats(op->gate_by) : NULL;
    for (size_t i = 0; i < count; i++) {
        switch (op->kind) {
        case LLM_SILU_GATED:
            x[i] = llm_silu(x[i]) * gate_by[i];
            break;
        case LLM_GELU:
            x[i] = llm_gelu(x[i]);
            break;
        case LLM_GELU_GATED:
            x[i] = llm_gelu(x[i]) * gate_by[i];
            break;
        case LLM_SILU_CLAMPED:
            x[i] = llm_silu_clamped(x[i], gate_by[i]);
            break;
        case LLM_SIGMOID:
            x[i] = llm_sigmoid(x[i]);
            break;
        }
    }
}

static void ref_route(struct llm_backend *b, const struct llm_op_route *op)
{
    for (uint32_t r = 0; r < batch_of(b)->rows; r++)
        llm_ram_route(op, r);
}

static void ref_add(struct llm_backend *b, const struct llm_op_add *op)
{
    for (uint32_t r = 0; r < batch_of(b)->rows; r++)
        llm_ram_add(op, r);
}

static void ref_scale(struct llm_backend *b, const struct llm_op_scale *op)
{
    (void)b;
    for (uint32_t r = 0; r < op->rows; r++)
        llm_ram_scale(op, r);
}

const struct llm_backend_ops llm_backend_reference = {
    .name = "reference",
    .exact = true,
    .open = ref_open,
    .close = ref_close,
    LLM_RAM_CALLS,
    .embed = ref_embed,
    .pick = ref_pick,
    .norm = ref_norm,
    .matmul = ref_matmul,
    .rope = ref_rope,
    .append = ref_append,
    .attend = ref_attend,
    .activate = ref_activate,
    .route = ref_route,
    .add = ref_add,
    .scale = ref_scale,
};
