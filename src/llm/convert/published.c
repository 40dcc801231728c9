#include "llm/convert/published.h"

#include "base/attr.h"

#include <string.h>

static const struct llm_pub_key llama_keys[] = {
    {.to = "block_count", .from = {"num_hidden_layers"}},
    {.to = "context_length", .from = {"max_position_embeddings"}},
    {.to = "embedding_length", .from = {"hidden_size"}},
    {.to = "feed_forward_length", .from = {"intermediate_size"}},
    {.to = "attention.head_count", .from = {"num_attention_heads"}},
    {.to = "attention.head_count_kv",
     .from = {"num_key_value_heads"},
     .like = "num_attention_heads",
     .times = 1},
    {.to = "attention.key_length", .from = {"head_dim"}, .optional = true},
    {.to = "attention.value_length", .from = {"head_dim"}, .optional = true},
    {.to = "attention.layer_norm_rms_epsilon", .from = {"rms_norm_eps"}, .is_real = true},
    {.to = "rope.freq_base", .from = {"rope_theta"}, .is_real = true, .otherwise = 10000},
    {NULL},
};

static const struct llm_pub_key gptj_keys[] = {
    {.to = "block_count", .from = {"n_layer"}},
    {.to = "context_length", .from = {"n_positions"}},
    {.to = "embedding_length", .from = {"n_embd"}},
    {.to = "feed_forward_length", .from = {"n_inner"}, .like = "n_embd", .times = 4},
    {.to = "attention.head_count", .from = {"n_head"}},
    {.to = "attention.layer_norm_epsilon",
     .from = {"layer_norm_epsilon"},
     .is_real = true,
     .otherwise = 1e-5},
    {.to = "rope.dimension_count", .from = {"rotary_dim"}},
    {NULL},
};

static const struct llm_pub_key gpt2_keys[] = {
    {.to = "block_count", .from = {"n_layer"}},
    {.to = "context_length", .from = {"n_positions", "n_ctx"}},
    {.to = "embedding_length", .from = {"n_embd"}},
    {.to = "feed_forward_length", .from = {"n_inner"}, .like = "n_embd", .times = 4},
    {.to = "attention.head_count", .from = {"n_head"}},
    {.to = "attention.layer_norm_epsilon",
     .from = {"layer_norm_epsilon"},
     .is_real = true,
     .otherwise = 1e-5},
    {NULL},
};

#define LAYER "model.layers.%u."
#define LLAMA_FRAME                                                                                \
    {"model.embed_tokens.weight", "token_embd.weight", LLM_PUB_COPY, false},                       \
        {"model.norm.weight", "output_norm.weight", LLM_PUB_COPY, false},                          \
        {"lm_head.weight", "output.weight", LLM_PUB_COPY, true},                                   \
        {LAYER "self_attn.rotary_emb.inv_freq", NULL, LLM_PUB_IGNORE, true},                       \
        {LAYER "input_layernorm.weight", "blk.%u.attn_norm.weight", LLM_PUB_COPY, false},          \
        {LAYER "self_attn.v_proj.weight", "blk.%u.attn_v.weight", LLM_PUB_COPY, false},            \
        {LAYER "self_attn.v_proj.bias", "blk.%u.attn_v.bias", LLM_PUB_COPY, true},                 \
        {LAYER "self_attn.o_proj.weight", "blk.%u.attn_output.weight", LLM_PUB_COPY, false},       \
        {LAYER "post_attention_layernorm.weight", "blk.%u.ffn_norm.weight", LLM_PUB_COPY, false},  \
        {LAYER "mlp.gate_proj.weight", "blk.%u.ffn_gate.weight", LLM_PUB_COPY, false},             \
        {LAYER "mlp.up_proj.weight", "blk.%u.ffn_up.weight", LLM_PUB_COPY, false},                 \
    {                                                                                              \
        LAYER "mlp.down_proj.weight", "blk.%u.ffn_down.weight", LLM_PUB_COPY, false                \
    }

static const struct llm_pub_tensor llama_tensors[] = {
    LLAMA_FRAME,
    {LAYER "self_attn.q_proj.weight", "blk.%u.attn_q.weight", LLM_PUB_PAIRS_Q, false},
    {LAYER "self_attn.q_proj.bias", "blk.%u.attn_q.bias", LLM_PUB_PAIRS_Q, true},
    {LAYER "self_attn.k_proj.weight", "blk.%u.attn_k.weight", LLM_PUB_PAIRS_K, false},
    {LAYER "self_attn.k_proj.bias", "blk.%u.attn_k.bias", LLM_PUB_PAIRS_K, true},
    {LAYER "self_attn.o_proj.bias", "blk.%u.attn_output.bias", LLM_PUB_COPY, true},
    {NULL},
};

static const struct llm_pub_tensor qwen2_tensors[] = {
    LLAMA_FRAME,
    {LAYER "self_attn.q_proj.weight", "blk.%u.attn_q.weight", LLM_PUB_COPY, false},
    {LAYER "self_attn.q_proj.bias", "blk.%u.attn_q.bias", LLM_PUB_COPY, false},
    {LAYER "self_attn.k_proj.weight", "blk.%u.attn_k.weight", LLM_PUB_COPY, false},
    {LAYER "self_attn.k_proj.bias", "blk.%u.attn_k.bias", LLM_PUB_COPY, false},
    {NULL},
};

#define H "transformer.h.%u."

static const struct llm_pub_tensor gptj_tensors[] = {
    {"transformer.wte.weight", "token_embd.weight", LLM_PUB_COPY, false},
    {"transformer.ln_f.weight", "output_norm.weight", LLM_PUB_COPY, false},
    {"transformer.ln_f.bias", "output_norm.bias", LLM_PUB_COPY, false},
    {"lm_head.weight", "output.weight", LLM_PUB_COPY, false},
    {"lm_head.bias", "output.bias", LLM_PUB_COPY, false},
    {H "attn.bias", NULL, LLM_PUB_IGNORE, true},
    {H "attn.masked_bias", NULL, LLM_PUB_IGNORE, true},
    {H "ln_1.weight", "blk.%u.attn_norm.weight", LLM_PUB_COPY, false},
    {H "ln_1.bias", "blk.%u.attn_norm.bias", LLM_PUB_COPY, false},
    {H "attn.q_proj.weight", "blk.%u.attn_q.weight", LLM_PUB_COPY, false},
    {H "attn.k_proj.weight", "blk.%u.attn_k.weight", LLM_PUB_COPY, false},
    {H "attn.v_proj.weight", "blk.%u.attn_v.weight", LLM_PUB_COPY, false},
    {H "attn.out_proj.weight", "blk.%u.attn_output.weight", LLM_PUB_COPY, false},
    {H "mlp.fc_in.weight", "blk.%u.ffn_up.weight", LLM_PUB_COPY, false},
    {H "mlp.fc_in.bias", "blk.%u.ffn_up.bias", LLM_PUB_COPY, false},
    {H "mlp.fc_out.weight", "blk.%u.ffn_down.weight", LLM_PUB_COPY, false},
    {H "mlp.fc_out.bias", "blk.%u.ffn_down.bias", LLM_PUB_COPY, false},
    {NULL},
};

static const struct llm_pub_tensor gpt2_tensors[] = {
    {"transformer.wte.weight", "token_embd.weight", LLM_PUB_COPY, false},
    {"transformer.wpe.weight", "position_embd.weight", LLM_PUB_AS_F32, false},
    {"transformer.ln_f.weight", "output_norm.weight", LLM_PUB_COPY, false},
    {"transformer.ln_f.bias", "output_norm.bias", LLM_PUB_COPY, false},
    {"lm_head.weight", "output.weight", LLM_PUB_COPY, true},
    {H "attn.bias", NULL, LLM_PUB_IGNORE, true},
    {H "attn.masked_bias", NULL, LLM_PUB_IGNORE, true},
    {H "ln_1.weight", "blk.%u.attn_norm.weight", LLM_PUB_COPY, false},
    {H "ln_1.bias", "blk.%u.attn_norm.bias", LLM_PUB_COPY, false},
    {H "attn.c_attn.weight", "blk.%u.attn_qkv.weight", LLM_PUB_TRANSPOSE, false},
    {H "attn.c_attn.bias", "blk.%u.attn_qkv.bias", LLM_PUB_COPY, false},
    {H "attn.c_proj.weight", "blk.%u.attn_output.weight", LLM_PUB_TRANSPOSE, false},
    {H "attn.c_proj.bias", "blk.%u.attn_output.bias", LLM_PUB_COPY, false},
    {H "ln_2.weight", "blk.%u.ffn_norm.weight", LLM_PUB_COPY, false},
    {H "ln_2.bias", "blk.%u.ffn_norm.bias", LLM_PUB_COPY, false},
    {H "mlp.c_fc.weight", "blk.%u.ffn_up.weight", LLM_PUB_TRANSPOSE, false},
    {H "mlp.c_fc.bias", "blk.%u.ffn_up.bias", LLM_PUB_COPY, false},
    {H "mlp.c_proj.weight", "blk.%u.ffn_down.weight", LLM_PUB_TRANSPOSE, false},
    {H "mlp.c_proj.bias", "blk.%u.ffn_down.bias", LLM_PUB_COPY, false},
    {NULL},
};

static const struct llm_pub all[] = {
    {"llama", "llama", "model.", llama_keys, llama_tensors},
    {"mistral", "llama", "model.", llama_keys, llama_tensors},
    {"qwen2", "qwen2", "model.", llama_keys, qwen2_tensors},
    {"gptj", "gptj", "transformer.", gptj_keys, gptj_tensors},
    {"gpt2", "gpt2", "transformer.", gpt2_keys, gpt2_tensors},
};

const struct llm_pub *llm_pub_at(uint32_t i)
{
    return i < ARRAY_LEN(all) ? &all[i] : NULL;
}

const struct llm_pub *llm_pub_find(const char *model_type)
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (strcmp(all[i].model_type, model_type) == 0)
            return &all[i];
    }
    return NULL;
}

const char *llm_pub_pretok(const char *pattern)
{
    static const struct {
        const char *pattern, *name;
    } known[] = {
        {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
         "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         "llama-bpe"},
        {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
         "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         "qwen2"},
        {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
         "gpt-2"},
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (strcmp(known[i].pattern, pattern) == 0)
            return known[i].name;
    }
    return NULL;
}
