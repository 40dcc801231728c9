#include "llm/model/arch.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define WHOLE(name, row, rows)                                                                     \
    {                                                                                              \
        name, row, rows, false, false                                                              \
    }
#define WHOLE_MAYBE(name, row, rows)                                                               \
    {                                                                                              \
        name, row, rows, false, true                                                               \
    }
#define LAYER(name, row, rows)                                                                     \
    {                                                                                              \
        name, row, rows, true, false                                                               \
    }
#define LAYER_MAYBE(name, row, rows)                                                               \
    {                                                                                              \
        name, row, rows, true, true                                                                \
    }

static const struct llm_arch_tensor llama_tensors[] = {
    WHOLE("token_embd.weight", LLM_DIM_WIDTH, LLM_DIM_VOCAB),
    WHOLE("output_norm.weight", LLM_DIM_WIDTH, LLM_DIM_NONE),
    WHOLE_MAYBE("output.weight", LLM_DIM_WIDTH, LLM_DIM_VOCAB),
    WHOLE_MAYBE("rope_freqs.weight", LLM_DIM_ROPE_HALF, LLM_DIM_NONE),
    LAYER("attn_norm.weight", LLM_DIM_WIDTH, LLM_DIM_NONE),
    LAYER("attn_q.weight", LLM_DIM_WIDTH, LLM_DIM_Q),
    LAYER("attn_k.weight", LLM_DIM_WIDTH, LLM_DIM_KV),
    LAYER("attn_v.weight", LLM_DIM_WIDTH, LLM_DIM_KV),
    LAYER("attn_output.weight", LLM_DIM_Q, LLM_DIM_WIDTH),
    LAYER_MAYBE("attn_q.bias", LLM_DIM_Q, LLM_DIM_NONE),
    LAYER_MAYBE("attn_k.bias", LLM_DIM_KV, LLM_DIM_NONE),
    LAYER_MAYBE("attn_v.bias", LLM_DIM_KV, LLM_DIM_NONE),
    LAYER_MAYBE("attn_output.bias", LLM_DIM_WIDTH, LLM_DIM_NONE),
    LAYER("ffn_norm.weight", LLM_DIM_WIDTH, LLM_DIM_NONE),
    LAYER("ffn_gate.weight", LLM_DIM_WIDTH, LLM_DIM_FFN),
    LAYER("ffn_up.weight", LLM_DIM_WIDTH, LLM_DIM_FFN),
    LAYER("ffn_down.weight", LLM_DIM_FFN, LLM_DIM_WIDTH),
    {NULL},
};

static const struct llm_arch_tensor qwen2_tensors[] = {
    WHOLE("token_embd.weight", LLM_DIM_WIDTH, LLM_DIM_VOCAB),
    WHOLE("output_norm.weight", LLM_DIM_WIDTH, LLM_DIM_NONE),
    WHOLE_MAYBE("output.weight", LLM_DIM_WIDTH, LLM_DIM_VOCAB),
    WHOLE_MAYBE("rope_freqs.weight", LLM_DIM_ROPE_HALF, LLM_DIM_NONE),
    LAYER("attn_norm.weight", LLM_DIM_WIDTH, LLM_DIM_NONE),
    LAYER("attn_q.weight", LLM_DIM_WIDTH, LLM_DIM_Q),
    LAYER("attn_k.weight", LLM_DIM_WIDTH, LLM_DIM_KV),
    LAYER("attn_v.weight", LLM_DIM_WIDTH, LLM_DIM_KV),
    LAYER("attn_q.bias", LLM_DIM_Q, LLM_DIM_NONE),
    LAYER("attn_k.bias", LLM_DIM_KV, LLM_DIM_NONE),
    LAYER("attn_v.bias", LLM_DIM_KV, LLM_DIM_NONE),
    LAYER("attn_output.weight", LLM_DIM_Q, LLM_DIM_WIDTH),
    LAYER("ffn_norm.weight", LLM_DIM_WIDTH, LLM_DIM_NONE),
    LAYER("ffn_gate.weight", LLM_DIM_WIDTH, LLM_DIM_FFN),
    LAYER("ffn_up.weight", LLM_DIM_WIDTH, LLM_DIM_FFN),
    LAYER("ffn_down.weight", LLM_DIM_FFN, LLM_DIM_WIDTH),
    {NULL},
};

static const struct llm_arch_tensor gptj_tensors[] = {
    WHOLE("token_embd.weight", LLM_DIM_WIDTH, LLM_DIM_VOCAB),
    WHOLE("output_norm.weight", LLM_DIM_WIDTH, LLM_DIM_NONE),
    WHOLE("output_norm.bias", LLM_DIM_WIDTH, LLM_DIM_NONE),
    WHOLE("output.weight", LLM_DIM_WIDTH, LLM_DIM_VOCAB),
    WHOLE("output.bias", LLM_DIM_VOCAB, LLM_DIM_NONE),
    LAYER("attn_norm.weight", LLM_DIM_WIDTH, LLM_DIM_NONE),
    LAYER("attn_norm.bias", LLM_DIM_WIDTH, LLM_DIM_NONE),
    LAYER("attn_q.weight", LLM_DIM_WIDTH, LLM_DIM_Q),
    LAYER("attn_k.weight", LLM_DIM_WIDTH, LLM_DIM_KV),
    LAYER("attn_v.weight", LLM_DIM_WIDTH, LLM_DIM_KV),
    LAYER("attn_output.weight", LLM_DIM_Q, LLM_DIM_WIDTH),
    LAYER("ffn_up.weight", LLM_DIM_WIDTH, LLM_DIM_FFN),
    LAYER("ffn_up.bias", LLM_DIM_FFN, LLM_DIM_NONE),
    LAYER("ffn_down.weight", LLM_DIM_FFN, LLM_DIM_WIDTH),
    LAYER("ffn_down.bias", LLM_DIM_WIDTH, LLM_DIM_NONE),
    {NULL},
};

static const struct llm_arch_tensor gpt2_tensors[] = {
    WHOLE("token_embd.weight", LLM_DIM_WIDTH, LLM_DIM_VOCAB),
    WHOLE("position_embd.weight", LLM_DIM_WIDTH, LLM_DIM_CONTEXT),
    WHOLE("output_norm.weight", LLM_DIM_WIDTH, LLM_DIM_NONE),
    WHOLE("output_norm.bias", LLM_DIM_WIDTH, LLM_DIM_NONE),
    WHOLE_MAYBE("output.weight", LLM_DIM_WIDTH, LLM_DIM_VOCAB),
    LAYER("attn_norm.weight", LLM_DIM_WIDTH, LLM_DIM_NONE),
    LAYER("attn_norm.bias", LLM_DIM_WIDTH, LLM_DIM_NONE),
    LAYER("attn_qkv.weight", LLM_DIM_WIDTH, LLM_DIM_QKV),
    LAYER("attn_qkv.bias", LLM_DIM_QKV, LLM_DIM_NONE),
    LAYER("attn_output.weight", LLM_DIM_Q, LLM_DIM_WIDTH),
    LAYER("attn_output.bias", LLM_DIM_WIDTH, LLM_DIM_NONE),
    LAYER("ffn_norm.weight", LLM_DIM_WIDTH, LLM_DIM_NONE),
    LAYER("ffn_norm.bias", LLM_DIM_WIDTH, LLM_DIM_NONE),
    LAYER("ffn_up.weight", LLM_DIM_WIDTH, LLM_DIM_FFN),
    LAYER("ffn_up.bias", LLM_DIM_FFN, LLM_DIM_NONE),
    LAYER("ffn_down.weight", LLM_DIM_FFN, LLM_DIM_WIDTH),
    LAYER("ffn_down.bias", LLM_DIM_WIDTH, LLM_DIM_NONE),
    {NULL},
};

static const struct llm_arch_info infos[LLM_ARCHS] = {
    [LLM_LLAMA] = {.name = "llama",
                   .norm_is_rms = true,
                   .ffn_is_gated = true,
                   .tensors = llama_tensors},
    [LLM_QWEN2] = {.name = "qwen2",
                   .norm_is_rms = true,
                   .rope_is_neox = true,
                   .ffn_is_gated = true,
                   .tensors = qwen2_tensors},
    [LLM_GPTJ] = {.name = "gptj", .parallel_residual = true, .tensors = gptj_tensors},
    [LLM_GPT2] = {.name = "gpt2", .learned_positions = true, .tensors = gpt2_tensors},
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
    case LLM_DIM_FFN:
        return c->ffn;
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
        if (candidate && strcmp(candidate, row->name) == 0)
            return row;
    }
    return NULL;
}
