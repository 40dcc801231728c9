#include "llm/model/arch.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
#define WHOLE(name, row, rows)       {name, LLM_DIM_##row, LLM_DIM_##rows, false, LLM_ALWAYS, false}
#define WHOLE_MAYBE(name, row, rows) {name, LLM_DIM_##row, LLM_DIM_##rows, false, LLM_MAYBE, false}
#define LAYER(name, row, rows)       {name, LLM_DIM_##row, LLM_DIM_##rows, true, LLM_ALWAYS, false}
#define LAYER_MAYBE(name, row, rows) {name, LLM_DIM_##row, LLM_DIM_##rows, true, LLM_MAYBE, false}
#define DENSE(name, row, rows)       {name, LLM_DIM_##row, LLM_DIM_##rows, true, LLM_IF_DENSE, false}
#define DENSE_MAYBE(name, row, rows) {name, LLM_DIM_##row, LLM_DIM_##rows, true, LLM_MAYBE_DENSE, false}
#define ROUTER(name, row, rows)      {name, LLM_DIM_##row, LLM_DIM_##rows, true, LLM_IF_EXPERTS, false}
#define EXPERTS(name, row, rows)     {name, LLM_DIM_##row, LLM_DIM_##rows, true, LLM_IF_EXPERTS, true}
#define SHARED(name, row, rows)      {name, LLM_DIM_##row, LLM_DIM_##rows, true, LLM_IF_SHARED, false}

/* ---- parts that architectures share ---- */

#define EMBEDDING                                                                                  \
    WHOLE("token_embd.weight", WIDTH, VOCAB),                                                      \
    WHOLE("output_norm.weight", WIDTH, NONE)
#define OUTPUT_MAYBE_TIED WHOLE_MAYBE("output.weight", WIDTH, VOCAB)
#define OUTPUT            WHOLE("output.weight", WIDTH, VOCAB)
#define OUTPUT_NORM_BIAS  WHOLE("output_norm.bias", WIDTH, NONE)
#define ROPE_FACTORS                                                                               \
    WHOLE_MAYBE("rope_freqs.weight", ROPE_HALF, NONE),                                             \
    WHOLE_MAYBE("rope_factors_long.weight", ROPE_HALF, NONE),                                      \
    WHOLE_MAYBE("rope_factors_short.weight", ROPE_HALF, NONE)
#define NORMS                                                                                      \
    LAYER("attn_norm.weight", WIDTH, NONE),                                                        \
    LAYER("ffn_norm.weight", WIDTH, NONE)
#define NORM_BIASES                                                                                \
    LAYER("attn_norm.bias", WIDTH, NONE),                                                          \
    LAYER("ffn_norm.bias", WIDTH, NONE)
#define ATTENTION                                                                                  \
    LAYER("attn_q.weight", WIDTH, Q),                                                              \
    LAYER("attn_k.weight", WIDTH, KV),                                                             \
    LAYER("attn_v.weight", WIDTH, KV),                                                             \
    LAYER("attn_output.weight", Q, WIDTH)
#define ATTENTION_JOINED                                                                           \
    LAYER("attn_qkv.weight", WIDTH, QKV),                                                          \
    LAYER("attn_output.weight", Q, WIDTH)
#define QKV_BIASES                                                                                 \
    LAYER("attn_q.bias", Q, NONE),                                                                 \
    LAYER("attn_k.bias", KV, NONE),                                                                \
    LAYER("attn_v.bias", KV, NONE)
#define ATTENTION_BIASES_MAYBE                                                                     \
    LAYER_MAYBE("attn_q.bias", Q, NONE),                                                           \
    LAYER_MAYBE("attn_k.bias", KV, NONE),                                                          \
    LAYER_MAYBE("attn_v.bias", KV, NONE),                                                          \
    LAYER_MAYBE("attn_output.bias", WIDTH, NONE)
#define HEAD_NORMS                                                                                 \
    LAYER("attn_q_norm.weight", HEAD, NONE),                                                       \
    LAYER("attn_k_norm.weight", HEAD, NONE)
#define POST_NORMS                                                                                 \
    LAYER("post_attention_norm.weight", WIDTH, NONE),                                              \
    LAYER("post_ffw_norm.weight", WIDTH, NONE)
#define FFN_GATED                                                                                  \
    LAYER("ffn_gate.weight", WIDTH, FFN),                                                          \
    LAYER("ffn_up.weight", WIDTH, FFN),                                                            \
    LAYER("ffn_down.weight", FFN, WIDTH)
#define FFN_PLAIN                                                                                  \
    LAYER("ffn_up.weight", WIDTH, FFN),                                                            \
    LAYER("ffn_up.bias", FFN, NONE),                                                               \
    LAYER("ffn_down.weight", FFN, WIDTH),                                                          \
    LAYER("ffn_down.bias", WIDTH, NONE)
#define FFN_GATED_IF_DENSE                                                                         \
    DENSE("ffn_gate.weight", WIDTH, FFN),                                                          \
    DENSE("ffn_up.weight", WIDTH, FFN),                                                            \
    DENSE("ffn_down.weight", FFN, WIDTH),                                                          \
    DENSE_MAYBE("ffn_gate.bias", FFN, NONE),                                                       \
    DENSE_MAYBE("ffn_up.bias", FFN, NONE),                                                         \
    DENSE_MAYBE("ffn_down.bias", WIDTH, NONE)
#define FFN_EXPERTS                                                                                \
    ROUTER("ffn_gate_inp.weight", WIDTH, EXPERTS),                                                 \
    EXPERTS("ffn_gate_exps.weight", WIDTH, FFN),                                                   \
    EXPERTS("ffn_up_exps.weight", WIDTH, FFN),                                                     \
    EXPERTS("ffn_down_exps.weight", FFN, WIDTH)
#define FFN_SHARED                                                                                 \
    SHARED("ffn_gate_shexp.weight", WIDTH, SHARED_FFN),                                            \
    SHARED("ffn_up_shexp.weight", WIDTH, SHARED_FFN),                                              \
    SHARED("ffn_down_shexp.weight", SHARED_FFN, WIDTH)
#define END {NULL}

/* ---- architectures ---- */

static const struct llm_arch_tensor llama_tensors[] = {
    EMBEDDING, OUTPUT_MAYBE_TIED, ROPE_FACTORS, NORMS, ATTENTION, ATTENTION_BIASES_MAYBE,
    FFN_GATED_IF_DENSE, FFN_EXPERTS, END};

static const struct llm_arch_tensor qwen2_tensors[] = {
    EMBEDDING, OUTPUT_MAYBE_TIED, WHOLE_MAYBE("rope_freqs.weight", ROPE_HALF, NONE), NORMS, ATTENTION,
    QKV_BIASES, FFN_GATED, END};

static const struct llm_arch_tensor gptj_tensors[] = {
    EMBEDDING, OUTPUT_NORM_BIAS, OUTPUT, WHOLE("output.bias", VOCAB, NONE),
    LAYER("attn_norm.weight", WIDTH, NONE), LAYER("attn_norm.bias", WIDTH, NONE), ATTENTION, FFN_PLAIN,
    END};

static const struct llm_arch_tensor gpt2_tensors[] = {
    EMBEDDING, WHOLE("position_embd.weight", WIDTH, CONTEXT), OUTPUT_NORM_BIAS, OUTPUT_MAYBE_TIED, NORMS,
    NORM_BIASES, ATTENTION_JOINED, LAYER("attn_qkv.bias", QKV, NONE),
    LAYER("attn_output.bias", WIDTH, NONE), FFN_PLAIN, END};

static const struct llm_arch_tensor qwen3_tensors[] = {
    EMBEDDING, OUTPUT_MAYBE_TIED, NORMS, ATTENTION, HEAD_NORMS, FFN_GATED, END};

static const struct llm_arch_tensor qwen3moe_tensors[] = {
    EMBEDDING, OUTPUT_MAYBE_TIED, NORMS, ATTENTION, HEAD_NORMS, FFN_EXPERTS, END};

static const struct llm_arch_tensor gemma_tensors[] = {EMBEDDING, NORMS, ATTENTION, FFN_GATED, END};

static const struct llm_arch_tensor gemma2_tensors[] = {
    EMBEDDING, NORMS, ATTENTION, POST_NORMS, FFN_GATED, END};

static const struct llm_arch_tensor gemma3_tensors[] = {
    EMBEDDING, OUTPUT_MAYBE_TIED, NORMS, ATTENTION, HEAD_NORMS, POST_NORMS, FFN_GATED, END};

static const struct llm_arch_tensor phi3_tensors[] = {
    EMBEDDING, OUTPUT_MAYBE_TIED, WHOLE_MAYBE("rope_factors_long.weight", ROPE_HALF, NONE),
    WHOLE_MAYBE("rope_factors_short.weight", ROPE_HALF, NONE), NORMS, ATTENTION_JOINED,
    LAYER("ffn_up.weight", WIDTH, FFN_TWICE), LAYER("ffn_down.weight", FFN, WIDTH), END};

static const struct llm_arch_tensor olmoe_tensors[] = {
    EMBEDDING, OUTPUT, NORMS, ATTENTION, LAYER("attn_q_norm.weight", Q, NONE),
    LAYER("attn_k_norm.weight", KV, NONE), FFN_EXPERTS, END};

static const struct llm_arch_tensor starcoder2_tensors[] = {
    EMBEDDING, OUTPUT_NORM_BIAS, OUTPUT_MAYBE_TIED, NORMS, NORM_BIASES, ATTENTION, QKV_BIASES,
    LAYER("attn_output.bias", WIDTH, NONE), FFN_PLAIN, END};

static const struct llm_arch_tensor gpt_oss_tensors[] = {
    EMBEDDING, OUTPUT, LAYER("attn_norm.weight", WIDTH, NONE),
    LAYER("post_attention_norm.weight", WIDTH, NONE), ATTENTION, QKV_BIASES,
    LAYER("attn_output.bias", WIDTH, NONE), LAYER("attn_sinks.weight", HEADS, NONE), FFN_EXPERTS,
    ROUTER("ffn_gate_inp.bias", EXPERTS, NONE), EXPERTS("ffn_gate_exps.bias", FFN, NONE),
    EXPERTS("ffn_up_exps.bias", FFN, NONE), EXPERTS("ffn_down_exps.bias", WIDTH, NONE), END};

static const struct llm_arch_tensor qwen2moe_tensors[] = {
    EMBEDDING, OUTPUT, NORMS, ATTENTION, QKV_BIASES, FFN_EXPERTS, FFN_SHARED,
    SHARED("ffn_gate_inp_shexp.weight", WIDTH, NONE), END};

static const struct llm_arch_tensor granitemoe_tensors[] = {
    EMBEDDING, OUTPUT_MAYBE_TIED, ROPE_FACTORS, NORMS, ATTENTION, LAYER_MAYBE("attn_output.bias", WIDTH, NONE),
    FFN_EXPERTS, FFN_SHARED, END};

static const struct llm_arch_tensor glm4_tensors[] = {
    EMBEDDING, OUTPUT_MAYBE_TIED, NORMS, ATTENTION, ATTENTION_BIASES_MAYBE, POST_NORMS,
    LAYER("ffn_up.weight", WIDTH, FFN_TWICE), LAYER("ffn_down.weight", FFN, WIDTH), END};

static const struct llm_arch_tensor seed_oss_tensors[] = {
    EMBEDDING, OUTPUT_MAYBE_TIED, LAYER("attn_norm.weight", WIDTH, NONE),
    LAYER("post_attention_norm.weight", WIDTH, NONE), ATTENTION, ATTENTION_BIASES_MAYBE, FFN_GATED, END};

static const struct llm_arch_tensor olmo2_tensors[] = {
    EMBEDDING, OUTPUT, ATTENTION, LAYER("attn_q_norm.weight", Q, NONE), LAYER("attn_k_norm.weight", KV, NONE),
    POST_NORMS, FFN_GATED, END};

static const struct llm_arch_tensor exaone4_tensors[] = {
    EMBEDDING, OUTPUT_MAYBE_TIED, WHOLE_MAYBE("rope_freqs.weight", ROPE_HALF, NONE), ATTENTION, HEAD_NORMS,
    POST_NORMS, FFN_GATED, END};

static const struct llm_arch_tensor cohere_tensors[] = {
    EMBEDDING, LAYER("attn_norm.weight", WIDTH, NONE), ATTENTION, ATTENTION_BIASES_MAYBE, FFN_GATED, END};
/* clang-format on */

static const struct llm_arch_info infos[LLM_ARCHS] = {
    [LLM_LLAMA] = {.name = "llama",
                   .norm_is_rms = true,
                   .experts_optional = true,
                   .experts_normed = true,
                   .tensors = llama_tensors},
    [LLM_QWEN2] = {.name = "qwen2",
                   .norm_is_rms = true,
                   .rope_is_neox = true,
                   .tensors = qwen2_tensors},
    [LLM_GPTJ] = {.name = "gptj",
                  .parallel_residual = true,
                  .activation = LLM_GELU,
                  .tensors = gptj_tensors},
    [LLM_GPT2] = {.name = "gpt2",
                  .learned_positions = true,
                  .activation = LLM_GELU,
                  .tensors = gpt2_tensors},
    [LLM_QWEN3] = {.name = "qwen3",
                   .norm_is_rms = true,
                   .rope_is_neox = true,
                   .tensors = qwen3_tensors},
    [LLM_QWEN3MOE] = {.name = "qwen3moe",
                      .norm_is_rms = true,
                      .rope_is_neox = true,
                      .has_experts = true,
                      .experts_normed = true,
                      .tensors = qwen3moe_tensors},
    [LLM_GEMMA2] = {.name = "gemma2",
                    .norm_is_rms = true,
                    .rope_is_neox = true,
                    .activation = LLM_GELU_GATED,
                    .embeds_by_width = true,
                    .window = 4096,
                    .window_period = 2,
                    .wide_heads_at = 46,
                    .has_caps = true,
                    .attend_cap = 50,
                    .logit_cap = 30,
                    .tensors = gemma2_tensors},
    [LLM_GEMMA3] = {.name = "gemma3",
                    .norm_is_rms = true,
                    .rope_is_neox = true,
                    .activation = LLM_GELU_GATED,
                    .embeds_by_width = true,
                    .window_unscaled = true,
                    .window_base = 10000,
                    .window_period = 6,
                    .wide_heads_at = 62,
                    .has_caps = true,
                    .tensors = gemma3_tensors},
    [LLM_PHI3] = {.name = "phi3",
                  .norm_is_rms = true,
                  .rope_is_neox = true,
                  .tensors = phi3_tensors},
    [LLM_OLMOE] = {.name = "olmoe",
                   .norm_is_rms = true,
                   .rope_is_neox = true,
                   .has_experts = true,
                   .tensors = olmoe_tensors},
    [LLM_MISTRAL3] = {.name = "mistral3",
                      .norm_is_rms = true,
                      .experts_optional = true,
                      .experts_normed = true,
                      .has_temperature = true,
                      .tensors = llama_tensors},
    [LLM_GRANITE] = {.name = "granite",
                     .norm_is_rms = true,
                     .has_multipliers = true,
                     .tensors = llama_tensors},
    [LLM_STARCODER2] = {.name = "starcoder2",
                        .rope_is_neox = true,
                        .activation = LLM_GELU,
                        .tensors = starcoder2_tensors},
    [LLM_GPT_OSS] = {.name = "gpt-oss",
                     .norm_is_rms = true,
                     .rope_is_neox = true,
                     .activation = LLM_SILU_CLAMPED,
                     .has_experts = true,
                     .experts_normed = true,
                     .window_period = 2,
                     .tensors = gpt_oss_tensors},
    [LLM_QWEN2MOE] = {.name = "qwen2moe",
                      .norm_is_rms = true,
                      .rope_is_neox = true,
                      .has_experts = true,
                      .has_shared_expert = true,
                      .tensors = qwen2moe_tensors},
    [LLM_GRANITEMOE] = {.name = "granitemoe",
                        .norm_is_rms = true,
                        .has_multipliers = true,
                        .has_experts = true,
                        .experts_normed = true,
                        .shared_optional = true,
                        .tensors = granitemoe_tensors},
    [LLM_GEMMA] = {.name = "gemma",
                   .norm_is_rms = true,
                   .rope_is_neox = true,
                   .activation = LLM_GELU_GATED,
                   .embeds_by_width = true,
                   .tensors = gemma_tensors},
    [LLM_GLM4] = {.name = "glm4", .norm_is_rms = true, .tensors = glm4_tensors},
    [LLM_SEED_OSS] = {.name = "seed_oss",
                      .norm_is_rms = true,
                      .rope_is_neox = true,
                      .tensors = seed_oss_tensors},
    [LLM_EXAONE] = {.name = "exaone",
                    .norm_is_rms = true,
                    .rope_is_neox = true,
                    .tensors = llama_tensors},
    [LLM_SMOLLM3] = {.name = "smollm3",
                     .norm_is_rms = true,
                     .rope_skip = 4,
                     .tensors = llama_tensors},
    [LLM_INTERNLM2] = {.name = "internlm2", .norm_is_rms = true, .tensors = llama_tensors},
    [LLM_ERNIE4_5] = {.name = "ernie4_5", .norm_is_rms = true, .tensors = llama_tensors},
    [LLM_OLMO2] = {.name = "olmo2",
                   .norm_is_rms = true,
                   .rope_is_neox = true,
                   .window_unscaled = true,
                   .window_period = 4,
                   .tensors = olmo2_tensors},
    [LLM_EXAONE4] = {.name = "exaone4",
                     .norm_is_rms = true,
                     .rope_is_neox = true,
                     .window_period = 4,
                     .turns_in_window = true,
                     .tensors = exaone4_tensors},
    [LLM_COHERE2] = {.name = "cohere2",
                     .parallel_residual = true,
                     .window_period = 4,
                     .turns_in_window = true,
                     .logits_times = true,
                     .tensors = cohere_tensors},
    [LLM_COMMAND_R] = {.name = "command-r",
                       .parallel_residual = true,
                       .logits_times = true,
                       .tensors = cohere_tensors},
};

const struct llm_arch_info *llm_arch_info(enum llm_arch arch)
{
    assert(arch >= 0 && arch < LLM_ARCHS);
    return &infos[arch];
}

const char *llm_arch_name(enum llm_arch arch)
{
    return llm_arch_info(arch)->name;
}

void llm_arch_set(struct llm_config *c)
{
    const struct llm_arch_info *info = llm_arch_info(c->arch);
    c->norm_is_rms = info->norm_is_rms;
    c->rope_is_neox = info->rope_is_neox;
    c->activation = info->activation;
    c->ffn_is_gated = llm_activation_is_gated(info->activation);
    c->parallel_residual = info->parallel_residual;
    c->experts_normed = info->experts_normed;
    c->window_period = info->window_period;
    c->rope_skip = info->rope_skip;
    c->experts_scale = c->embed_scale = c->residual_scale = c->logit_scale = 1;
    c->rope_scale = c->rope_scale_window = c->rope_magnitude = 1;
    c->attend_cap = info->attend_cap;
    c->logit_cap = info->logit_cap;
    c->window = info->window;
    c->yarn_fast = 32;
    c->yarn_slow = 1;
}

void llm_arch_set_skip(struct llm_config *c)
{
    if (llm_arch_info(c->arch)->turns_in_window)
        c->rope_skip = c->window ? c->window_period : 0;
}

void llm_arch_set_scale(struct llm_config *c)
{
    const struct llm_arch_info *info = llm_arch_info(c->arch);
    bool wide = info->wide_heads_at && c->layers == info->wide_heads_at;
    c->attend_scale = 1.0f / sqrtf((float)(wide ? c->width / c->heads : c->head_dim));
    if (info->embeds_by_width)
        c->embed_scale = sqrtf((float)c->width);
}

bool llm_arch_tensor_applies(const struct llm_config *config, const struct llm_arch_tensor *row)
{
    if (row->presence == LLM_IF_EXPERTS)
        return config->experts > 0;
    if (row->presence == LLM_IF_SHARED)
        return config->shared_ffn > 0;
    return config->experts == 0 ||
           (row->presence != LLM_IF_DENSE && row->presence != LLM_MAYBE_DENSE);
}

bool llm_arch_tensor_is_optional(const struct llm_arch_tensor *row)
{
    return row->presence == LLM_MAYBE || row->presence == LLM_MAYBE_DENSE;
}

bool llm_arch_tensor_is_vector(const struct llm_arch_tensor *row)
{
    return row->rows == LLM_DIM_NONE;
}

uint64_t llm_dim_value(const struct llm_config *c, enum llm_dim dim)
{
    switch (dim) {
    case LLM_DIM_NONE:
        return 1;
    case LLM_DIM_WIDTH:
        return c->width;
    case LLM_DIM_Q:
        return (uint64_t)c->heads * c->head_dim;
    case LLM_DIM_KV:
        return (uint64_t)c->kv_heads * c->head_dim;
    case LLM_DIM_QKV:
        return ((uint64_t)c->heads + 2 * (uint64_t)c->kv_heads) * c->head_dim;
    case LLM_DIM_HEAD:
        return c->head_dim;
    case LLM_DIM_HEADS:
        return c->heads;
    case LLM_DIM_FFN:
        return c->ffn;
    case LLM_DIM_FFN_TWICE:
        return 2 * (uint64_t)c->ffn;
    case LLM_DIM_SHARED_FFN:
        return c->shared_ffn;
    case LLM_DIM_EXPERTS:
        return c->experts;
    case LLM_DIM_VOCAB:
        return c->vocab;
    case LLM_DIM_CONTEXT:
        return c->context;
    case LLM_DIM_ROPE_HALF:
        return c->rope_dims / 2;
    }
    assert(!"a dimension of the table");
    return 0;
}

/* A stacked bias has the experts as its second dimension. */
void llm_arch_tensor_dims(const struct llm_config *config, const struct llm_arch_tensor *row,
                          uint64_t dims[LLM_DIMS_MAX])
{
    uint64_t experts = row->stacked ? config->experts : 1;
    bool vector = llm_arch_tensor_is_vector(row);
    dims[0] = llm_dim_value(config, row->row);
    dims[1] = vector ? experts : llm_dim_value(config, row->rows);
    dims[2] = vector ? 1 : experts;
    dims[3] = 1;
}

void llm_arch_tensor_name(const struct llm_arch_tensor *row, uint32_t layer,
                          char name[LLM_NAME_CHARS])
{
    if (row->per_layer)
        snprintf(name, LLM_NAME_CHARS, "blk.%u.%s", layer, row->name);
    else
        snprintf(name, LLM_NAME_CHARS, "%s", row->name);
}

/* "blk.12.attn_q.weight" to "attn_q.weight"; NULL for a name that is not of a layer of the model.
 */
static const char *strip_layer(const struct llm_config *config, const char *name)
{
    unsigned layer;
    int taken = 0;
    char again[LLM_NAME_CHARS];
    if (sscanf(name, "blk.%4u.%n", &layer, &taken) != 1 || taken == 0 || layer >= config->layers)
        return NULL;
    /* Numbers have one spelling: "blk.+1." and "blk.01." are other names. */
    snprintf(again, sizeof(again), "blk.%u.%s", layer, name + taken);
    return strcmp(again, name) == 0 ? name + taken : NULL;
}

const struct llm_arch_tensor *llm_arch_row_of(const struct llm_config *config, const char *name)
{
    const char *in_layer = strip_layer(config, name);
    for (const struct llm_arch_tensor *row = infos[config->arch].tensors; row->name; row++) {
        const char *candidate = row->per_layer ? in_layer : name;
        if (candidate && llm_arch_tensor_applies(config, row) && strcmp(candidate, row->name) == 0)
            return row;
    }
    return NULL;
}
