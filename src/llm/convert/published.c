#include "llm/convert/published.h"

#include "base/attr.h"

#include <string.h>

/* clang-format off */
#define NUMBER(to_, ...)     {.to = to_, .from = {__VA_ARGS__}}
#define NUMBER_MAYBE(to_, ...) {.to = to_, .from = {__VA_ARGS__}, .optional = true}
#define REAL(to_, ...)       {.to = to_, .from = {__VA_ARGS__}, .form = LLM_PUB_REAL}
#define REAL_MAYBE(to_, ...) {.to = to_, .from = {__VA_ARGS__}, .form = LLM_PUB_REAL, .optional = true}
#define ROPE_BASE(value)                                                                           \
    {.to = "rope.freq_base",                                                                       \
     .from = {"rope_theta", "rope_parameters/rope_theta",                                          \
              "rope_parameters/full_attention/rope_theta"},                                        \
     .form = LLM_PUB_REAL,                                                                         \
     .otherwise = value}
#define SHAPE                                                                                      \
    NUMBER("block_count", "num_hidden_layers"),                                                    \
    NUMBER("context_length", "max_position_embeddings"),                                           \
    NUMBER("embedding_length", "hidden_size"),                                                     \
    NUMBER("attention.head_count", "num_attention_heads"),                                         \
    {.to = "attention.head_count_kv", .from = {"num_key_value_heads"},                             \
     .like = "num_attention_heads", .times = 1},                                                   \
    NUMBER_MAYBE("attention.key_length", "head_dim"),                                              \
    NUMBER_MAYBE("attention.value_length", "head_dim")
#define FEED_FORWARD NUMBER("feed_forward_length", "intermediate_size")
#define RMS_EPSILON  REAL("attention.layer_norm_rms_epsilon", "rms_norm_eps")
#define EXPERTS_USED NUMBER("expert_used_count", "num_experts_per_tok", "experts_per_token")
#define WINDOW       NUMBER_MAYBE("attention.sliding_window", "sliding_window")

static const struct llm_pub_key llama_keys[] = {
    SHAPE, FEED_FORWARD, RMS_EPSILON, ROPE_BASE(10000), {NULL}};

static const struct llm_pub_key mistral_keys[] = {
    SHAPE, FEED_FORWARD, RMS_EPSILON, ROPE_BASE(10000), WINDOW, {NULL}};

static const struct llm_pub_key ministral3_keys[] = {
    SHAPE, FEED_FORWARD, RMS_EPSILON, ROPE_BASE(1000000), WINDOW,
    REAL_MAYBE("attention.temperature_scale", "rope_parameters/llama_4_scaling_beta"), {NULL}};

static const struct llm_pub_key mixtral_keys[] = {
    SHAPE, FEED_FORWARD, RMS_EPSILON, ROPE_BASE(1000000), WINDOW, EXPERTS_USED,
    NUMBER("expert_count", "num_local_experts"), {NULL}};

static const struct llm_pub_key qwen3moe_keys[] = {
    SHAPE, FEED_FORWARD, RMS_EPSILON, ROPE_BASE(10000), EXPERTS_USED,
    NUMBER("expert_count", "num_experts", "num_local_experts"),
    NUMBER("expert_feed_forward_length", "moe_intermediate_size"), {NULL}};

static const struct llm_pub_key olmoe_keys[] = {
    SHAPE, FEED_FORWARD, ROPE_BASE(10000), EXPERTS_USED,
    {.to = "attention.layer_norm_rms_epsilon", .from = {"rms_norm_eps"}, .form = LLM_PUB_REAL,
     .otherwise = 1e-5},
    NUMBER("expert_count", "num_experts"), {NULL}};

/* config.json of Gemma leaves out what is its class's default. */
#define GEMMA_SHAPE(context_, heads_, kv_heads_)                                                   \
    NUMBER("block_count", "num_hidden_layers"),                                                    \
    NUMBER("embedding_length", "hidden_size"),                                                     \
    FEED_FORWARD,                                                                                  \
    {.to = "context_length", .from = {"max_position_embeddings"}, .otherwise = context_},          \
    {.to = "attention.head_count", .from = {"num_attention_heads"}, .otherwise = heads_},          \
    {.to = "attention.head_count_kv", .from = {"num_key_value_heads"}, .otherwise = kv_heads_},    \
    {.to = "attention.key_length", .from = {"head_dim"}, .otherwise = 256},                        \
    {.to = "attention.value_length", .from = {"head_dim"}, .otherwise = 256},                      \
    {.to = "attention.layer_norm_rms_epsilon", .from = {"rms_norm_eps"}, .form = LLM_PUB_REAL,     \
     .otherwise = 1e-6},                                                                           \
    {.to = "attention.scale", .from = {"query_pre_attn_scalar"}, .form = LLM_PUB_ROOT_INVERSE,     \
     .otherwise = 256},                                                                            \
    {.to = "attention.sliding_window", .from = {"sliding_window"}, .otherwise = 4096}

static const struct llm_pub_key gemma2_keys[] = {
    GEMMA_SHAPE(8192, 8, 4), ROPE_BASE(10000),
    REAL_MAYBE("attn_logit_softcapping", "attn_logit_softcapping"),
    REAL_MAYBE("final_logit_softcapping", "final_logit_softcapping"), {NULL}};

static const struct llm_pub_key gemma3_keys[] = {
    GEMMA_SHAPE(131072, 8, 4), ROPE_BASE(1000000),
    {.to = "rope.freq_base_swa",
     .from = {"rope_local_base_freq", "rope_parameters/sliding_attention/rope_theta"},
     .form = LLM_PUB_REAL, .otherwise = 10000},
    REAL_MAYBE("attn_logit_softcapping", "attn_logit_softcapping"),
    REAL_MAYBE("final_logit_softcapping", "final_logit_softcapping"), {NULL}};

static const struct llm_pub_key phi3_keys[] = {
    SHAPE, FEED_FORWARD, RMS_EPSILON, ROPE_BASE(10000), WINDOW,
    {.to = "rope.dimension_count",
     .from = {"partial_rotary_factor", "rope_parameters/partial_rotary_factor"},
     .form = LLM_PUB_PART_OF_HEAD, .optional = true}, {NULL}};

#define GRANITE_SCALES                                                                             \
    REAL("embedding_scale", "embedding_multiplier"),                                               \
    REAL("residual_scale", "residual_multiplier"),                                                 \
    REAL("logit_scale", "logits_scaling"),                                                         \
    REAL("attention.scale", "attention_multiplier")

static const struct llm_pub_key granite_keys[] = {
    SHAPE, FEED_FORWARD, RMS_EPSILON, ROPE_BASE(10000), GRANITE_SCALES, {NULL}};

static const struct llm_pub_key qwen2moe_keys[] = {
    SHAPE, FEED_FORWARD, RMS_EPSILON, ROPE_BASE(10000), EXPERTS_USED,
    NUMBER("expert_count", "num_experts"),
    NUMBER("expert_feed_forward_length", "moe_intermediate_size"),
    NUMBER("expert_shared_feed_forward_length", "shared_expert_intermediate_size"), {NULL}};

static const struct llm_pub_key granitemoe_keys[] = {
    SHAPE, FEED_FORWARD, RMS_EPSILON, ROPE_BASE(10000), GRANITE_SCALES, EXPERTS_USED,
    NUMBER("expert_count", "num_local_experts"),
    NUMBER_MAYBE("expert_shared_feed_forward_length", "shared_intermediate_size"), {NULL}};

static const struct llm_pub_key starcoder2_keys[] = {
    SHAPE, FEED_FORWARD, ROPE_BASE(10000), WINDOW,
    {.to = "attention.layer_norm_epsilon", .from = {"norm_epsilon"}, .form = LLM_PUB_REAL,
     .otherwise = 1e-5}, {NULL}};

static const struct llm_pub_key gpt_oss_keys[] = {
    SHAPE, FEED_FORWARD, RMS_EPSILON, ROPE_BASE(150000), EXPERTS_USED,
    NUMBER("expert_count", "num_local_experts", "num_experts"),
    NUMBER("expert_feed_forward_length", "intermediate_size"),
    NUMBER("attention.sliding_window", "sliding_window"), {NULL}};
/* clang-format on */

static const struct llm_pub_key gptj_keys[] = {
    {.to = "block_count", .from = {"n_layer"}},
    {.to = "context_length", .from = {"n_positions"}},
    {.to = "embedding_length", .from = {"n_embd"}},
    {.to = "feed_forward_length", .from = {"n_inner"}, .like = "n_embd", .times = 4},
    {.to = "attention.head_count", .from = {"n_head"}},
    {.to = "attention.layer_norm_epsilon",
     .from = {"layer_norm_epsilon"},
     .form = LLM_PUB_REAL,
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
     .form = LLM_PUB_REAL,
     .otherwise = 1e-5},
    {NULL},
};

/* clang-format off */
#define LAYER "model.layers.%u."
#define COPY(from, to)       {from, to, LLM_PUB_COPY, false}
#define COPY_MAYBE(from, to) {from, to, LLM_PUB_COPY, true}
#define IN(from, to)         {LAYER from, "blk.%u." to, LLM_PUB_COPY, false}
#define IN_MAYBE(from, to)   {LAYER from, "blk.%u." to, LLM_PUB_COPY, true}
#define IN_AS(how, from, to) {LAYER from, "blk.%u." to, LLM_PUB_##how, false}
#define IN_AS_MAYBE(how, from, to) {LAYER from, "blk.%u." to, LLM_PUB_##how, true}
#define EMBEDDING                                                                                  \
    COPY("model.embed_tokens.weight", "token_embd.weight"),                                        \
    {LAYER "self_attn.rotary_emb.inv_freq", NULL, LLM_PUB_IGNORE, true}
#define FRAME                                                                                      \
    EMBEDDING,                                                                                     \
    COPY("model.norm.weight", "output_norm.weight"),                                               \
    COPY_MAYBE("lm_head.weight", "output.weight"),                                                 \
    IN("input_layernorm.weight", "attn_norm.weight")
#define FFN_NORM IN("post_attention_layernorm.weight", "ffn_norm.weight")
#define ATTENTION                                                                                  \
    IN("self_attn.q_proj.weight", "attn_q.weight"),                                                \
    IN("self_attn.k_proj.weight", "attn_k.weight"),                                                \
    IN("self_attn.v_proj.weight", "attn_v.weight"),                                                \
    IN("self_attn.o_proj.weight", "attn_output.weight")
#define QKV_BIASES                                                                                 \
    IN("self_attn.q_proj.bias", "attn_q.bias"),                                                    \
    IN("self_attn.k_proj.bias", "attn_k.bias"),                                                    \
    IN("self_attn.v_proj.bias", "attn_v.bias")
#define ATTENTION_IN_PAIRS                                                                         \
    IN_AS(PAIRS_Q, "self_attn.q_proj.weight", "attn_q.weight"),                                    \
    {LAYER "self_attn.q_proj.bias", "blk.%u.attn_q.bias", LLM_PUB_PAIRS_Q, true},                  \
    IN_AS(PAIRS_K, "self_attn.k_proj.weight", "attn_k.weight"),                                    \
    {LAYER "self_attn.k_proj.bias", "blk.%u.attn_k.bias", LLM_PUB_PAIRS_K, true},                  \
    IN("self_attn.v_proj.weight", "attn_v.weight"),                                                \
    IN_MAYBE("self_attn.v_proj.bias", "attn_v.bias"),                                              \
    IN("self_attn.o_proj.weight", "attn_output.weight"),                                           \
    IN_MAYBE("self_attn.o_proj.bias", "attn_output.bias")
#define HEAD_NORMS                                                                                 \
    IN("self_attn.q_norm.weight", "attn_q_norm.weight"),                                           \
    IN("self_attn.k_norm.weight", "attn_k_norm.weight")
#define FFN_GATED                                                                                  \
    IN("mlp.gate_proj.weight", "ffn_gate.weight"),                                                 \
    IN("mlp.up_proj.weight", "ffn_up.weight"),                                                     \
    IN("mlp.down_proj.weight", "ffn_down.weight")
#define FFN_EXPERTS                                                                                \
    IN_AS(AS_F32, "mlp.gate.weight", "ffn_gate_inp.weight"),                                       \
    IN("mlp.experts.%e.gate_proj.weight", "ffn_gate_exps.weight"),                                 \
    IN("mlp.experts.%e.up_proj.weight", "ffn_up_exps.weight"),                                     \
    IN("mlp.experts.%e.down_proj.weight", "ffn_down_exps.weight")

static const struct llm_pub_tensor llama_tensors[] = {
    FRAME, FFN_NORM, ATTENTION_IN_PAIRS, FFN_GATED,
    IN_MAYBE("mlp.gate_proj.bias", "ffn_gate.bias"), IN_MAYBE("mlp.up_proj.bias", "ffn_up.bias"),
    IN_MAYBE("mlp.down_proj.bias", "ffn_down.bias"), {NULL}};

static const struct llm_pub_tensor mixtral_tensors[] = {
    FRAME, FFN_NORM, ATTENTION_IN_PAIRS,
    IN_AS(AS_F32, "block_sparse_moe.gate.weight", "ffn_gate_inp.weight"),
    IN("block_sparse_moe.experts.%e.w1.weight", "ffn_gate_exps.weight"),
    IN("block_sparse_moe.experts.%e.w3.weight", "ffn_up_exps.weight"),
    IN("block_sparse_moe.experts.%e.w2.weight", "ffn_down_exps.weight"), {NULL}};

static const struct llm_pub_tensor qwen2_tensors[] = {
    FRAME, FFN_NORM, ATTENTION, QKV_BIASES, FFN_GATED, {NULL}};

static const struct llm_pub_tensor qwen3_tensors[] = {
    FRAME, FFN_NORM, ATTENTION, HEAD_NORMS, FFN_GATED, {NULL}};

static const struct llm_pub_tensor qwen3moe_tensors[] = {
    FRAME, FFN_NORM, ATTENTION, HEAD_NORMS, FFN_EXPERTS, {NULL}};

static const struct llm_pub_tensor qwen2moe_tensors[] = {
    FRAME, FFN_NORM, ATTENTION, QKV_BIASES, FFN_EXPERTS,
    IN("mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"),
    IN("mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"),
    IN("mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"),
    IN_AS(AS_F32, "mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"), {NULL}};

static const struct llm_pub_tensor granitemoe_tensors[] = {
    FRAME, FFN_NORM, ATTENTION_IN_PAIRS,
    IN_AS(AS_F32, "block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight"),
    IN_AS(ROWS_1, "block_sparse_moe.input_linear.weight", "ffn_gate_exps.weight"),
    IN_AS(ROWS_2, "block_sparse_moe.input_linear.weight", "ffn_up_exps.weight"),
    IN("block_sparse_moe.output_linear.weight", "ffn_down_exps.weight"),
    IN_AS_MAYBE(ROWS_1, "shared_mlp.input_linear.weight", "ffn_gate_shexp.weight"),
    IN_AS_MAYBE(ROWS_2, "shared_mlp.input_linear.weight", "ffn_up_shexp.weight"),
    IN_MAYBE("shared_mlp.output_linear.weight", "ffn_down_shexp.weight"), {NULL}};

/* The embedding is the output; some files repeat it. */
#define GEMMA                                                                                      \
    EMBEDDING,                                                                                     \
    {"lm_head.weight", NULL, LLM_PUB_IGNORE, true},                                                \
    {"model.norm.weight", "output_norm.weight", LLM_PUB_PLUS_ONE, false},                          \
    IN_AS(PLUS_ONE, "input_layernorm.weight", "attn_norm.weight"),                                 \
    IN_AS(PLUS_ONE, "post_attention_layernorm.weight", "post_attention_norm.weight"),              \
    IN_AS(PLUS_ONE, "pre_feedforward_layernorm.weight", "ffn_norm.weight"),                        \
    IN_AS(PLUS_ONE, "post_feedforward_layernorm.weight", "post_ffw_norm.weight"),                  \
    ATTENTION, FFN_GATED

static const struct llm_pub_tensor gemma2_tensors[] = {GEMMA, {NULL}};

static const struct llm_pub_tensor gemma3_tensors[] = {
    GEMMA, IN_AS(PLUS_ONE, "self_attn.q_norm.weight", "attn_q_norm.weight"),
    IN_AS(PLUS_ONE, "self_attn.k_norm.weight", "attn_k_norm.weight"), {NULL}};

static const struct llm_pub_tensor phi3_tensors[] = {
    FRAME, FFN_NORM, IN("self_attn.qkv_proj.weight", "attn_qkv.weight"),
    IN("self_attn.o_proj.weight", "attn_output.weight"),
    IN("mlp.gate_up_proj.weight", "ffn_up.weight"), IN("mlp.down_proj.weight", "ffn_down.weight"),
    {NULL}};

static const struct llm_pub_tensor starcoder2_tensors[] = {
    FRAME, FFN_NORM, ATTENTION, QKV_BIASES, COPY("model.norm.bias", "output_norm.bias"),
    IN("input_layernorm.bias", "attn_norm.bias"),
    IN("post_attention_layernorm.bias", "ffn_norm.bias"),
    IN("self_attn.o_proj.bias", "attn_output.bias"), IN("mlp.c_fc.weight", "ffn_up.weight"),
    IN("mlp.c_fc.bias", "ffn_up.bias"), IN("mlp.c_proj.weight", "ffn_down.weight"),
    IN("mlp.c_proj.bias", "ffn_down.bias"), {NULL}};

static const struct llm_pub_tensor gpt_oss_tensors[] = {
    FRAME, IN("post_attention_layernorm.weight", "post_attention_norm.weight"), ATTENTION, QKV_BIASES,
    IN("self_attn.o_proj.bias", "attn_output.bias"), IN("self_attn.sinks", "attn_sinks.weight"),
    IN_AS(AS_F32, "mlp.router.weight", "ffn_gate_inp.weight"),
    IN("mlp.router.bias", "ffn_gate_inp.bias"),
    IN_AS(MX_EVEN, "mlp.experts.gate_up_proj_blocks", "ffn_gate_exps.weight"),
    IN_AS(MX_ODD, "mlp.experts.gate_up_proj_blocks", "ffn_up_exps.weight"),
    IN_AS(MX, "mlp.experts.down_proj_blocks", "ffn_down_exps.weight"),
    IN_AS(EVEN, "mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias"),
    IN_AS(ODD, "mlp.experts.gate_up_proj_bias", "ffn_up_exps.bias"),
    IN_AS(AS_F32, "mlp.experts.down_proj_bias", "ffn_down_exps.bias"), {NULL}};
/* clang-format on */

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

static const struct llm_pub_must silu[] = {{"hidden_act", "silu", false}, {NULL}};

static const struct llm_pub_must qwen[] = {
    {"hidden_act", "silu", false}, {"use_sliding_window", "false", false}, {NULL}};

static const struct llm_pub_must qwen3moe_musts[] = {
    {"hidden_act", "silu", false},    {"use_sliding_window", "false", false},
    {"norm_topk_prob", "true", true}, {"decoder_sparse_step", "1", false},
    {"mlp_only_layers", "[]", false}, {NULL},
};

static const struct llm_pub_must qwen2moe_musts[] = {
    {"hidden_act", "silu", false},      {"use_sliding_window", "false", false},
    {"norm_topk_prob", "false", false}, {"decoder_sparse_step", "1", false},
    {"mlp_only_layers", "[]", false},   {NULL},
};

static const struct llm_pub_must granitemoe_musts[] = {
    {"hidden_act", "silu", false}, {"position_embedding_type", "rope", false}, {NULL}};

static const struct llm_pub_must olmoe_musts[] = {
    {"hidden_act", "silu", false},
    {"norm_topk_prob", "false", false},
    {"clip_qkv", "null", false},
    {NULL},
};

static const struct llm_pub_must gemma_musts[] = {
    {"hidden_activation", "gelu_pytorch_tanh", false},
    {"sliding_window_pattern", "6", false},
    {"_sliding_window_pattern", "6", false},
    {"use_bidirectional_attention", "false", false},
    {"tie_word_embeddings", "true", false},
    {NULL},
};

static const struct llm_pub_must starcoder2_musts[] = {
    {"hidden_act", "gelu_pytorch_tanh", false}, {"use_bias", "true", false}, {NULL}};

static const struct llm_pub_must gpt_oss_musts[] = {
    {"hidden_act", "silu", false}, {"swiglu_limit", "7", false}, {NULL}};

static const struct llm_pub_must gpt_musts[] = {
    {"activation_function", "gelu_new", false},
    {"scale_attn_by_inverse_layer_idx", "false", false},
    {NULL},
};

/* clang-format off */
static const struct llm_pub all[] = {
    {"llama", "llama", "model.", llama_keys, llama_tensors, silu},
    {"mistral", "llama", "model.", mistral_keys, llama_tensors, silu},
    {"mixtral", "llama", "model.", mixtral_keys, mixtral_tensors, silu},
    {"ministral3", "mistral3", "model.", ministral3_keys, llama_tensors, silu},
    {"qwen2", "qwen2", "model.", llama_keys, qwen2_tensors, qwen},
    {"qwen3", "qwen3", "model.", llama_keys, qwen3_tensors, qwen},
    {"qwen3_moe", "qwen3moe", "model.", qwen3moe_keys, qwen3moe_tensors, qwen3moe_musts},
    {"gemma2", "gemma2", "model.", gemma2_keys, gemma2_tensors, gemma_musts},
    {"gemma3", "gemma3", "model.", gemma3_keys, gemma3_tensors, gemma_musts},
    {"gemma3_text", "gemma3", "model.", gemma3_keys, gemma3_tensors, gemma_musts},
    {"phi3", "phi3", "model.", phi3_keys, phi3_tensors, silu},
    {"olmoe", "olmoe", "model.", olmoe_keys, qwen3moe_tensors, olmoe_musts},
    {"granite", "granite", "model.", granite_keys, llama_tensors, silu},
    {"qwen2_moe", "qwen2moe", "model.", qwen2moe_keys, qwen2moe_tensors, qwen2moe_musts},
    {"granitemoe", "granitemoe", "model.", granitemoe_keys, granitemoe_tensors, granitemoe_musts},
    {"granitemoeshared", "granitemoe", "model.", granitemoe_keys, granitemoe_tensors, granitemoe_musts},
    {"starcoder2", "starcoder2", "model.", starcoder2_keys, starcoder2_tensors, starcoder2_musts},
    {"gpt_oss", "gpt-oss", "model.", gpt_oss_keys, gpt_oss_tensors, gpt_oss_musts},
    {"gptj", "gptj", "transformer.", gptj_keys, gptj_tensors, gpt_musts},
    {"gpt2", "gpt2", "transformer.", gpt2_keys, gpt2_tensors, gpt_musts},
};
/* clang-format on */

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
#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?"
#define CAPITALS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SIGNS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define SIGNS2 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"
#define BLANKS "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
    static const struct {
        const char *pattern, *name;
    } known[] = {
        {ENDINGS "|" LETTERS "\\p{L}+|\\p{N}{1,3}" SIGNS BLANKS, "llama-bpe"},
        {ENDINGS "|" LETTERS "\\p{L}+|\\p{N}" SIGNS BLANKS, "qwen2"},
        {LETTERS CAPITALS "*" SMALL "+" ENDINGS "?|" LETTERS CAPITALS "+" SMALL "*" ENDINGS
                          "?|\\p{N}{1,3}" SIGNS2 BLANKS,
         "gpt-4o"},
        {LETTERS CAPITALS "*" SMALL "+|" LETTERS CAPITALS "+" SMALL "*|\\p{N}" SIGNS2 BLANKS,
         "tekken"},
        {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
         "gpt-2"},
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (strcmp(known[i].pattern, pattern) == 0)
            return known[i].name;
    }
    return NULL;
}
