/* llm/model/shape.h - the shape of a model: its architecture, its sizes, its tensors, and their
 * limits.
 *
 * Trust: values of an open file (llm/model/file.h) are checked.  Threads: any.  Lifetime: values.
 */
#ifndef HAWSER_LLM_MODEL_SHAPE_H
#define HAWSER_LLM_MODEL_SHAPE_H

#include "llm/model/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LLM_DIMS_MAX = 4,
    LLM_NAME_CHARS = 64,       /* GGUF's own bound on tensor names, with the final 0 */
    LLM_TENSORS_MAX = 65536,   /* the largest published models have some 3,000 */
    LLM_LAYERS_MAX = 1024,     /* as PAGE_LAYERS_MAX */
    LLM_WIDTH_MAX = 1 << 20,   /* of any row: published feed-forwards reach 60,000 */
    LLM_VOCAB_MAX = 1 << 21,   /* published vocabularies reach 260,000 */
    LLM_CONTEXT_MAX = 1 << 24, /* positions; published models reach 10 million */
    LLM_EXPERTS_MAX = 1024,    /* of a layer: published models reach 512; a workgroup holds them */
    LLM_EXPERTS_USED_MAX = 64, /* of a row: published models reach 32 */
};

enum llm_arch {
    LLM_LLAMA,
    LLM_QWEN2,
    LLM_GPTJ,
    LLM_GPT2,
    LLM_QWEN3,
    LLM_QWEN3MOE,
    LLM_GEMMA2,
    LLM_GEMMA3,
    LLM_PHI3,
    LLM_OLMOE,
    LLM_MISTRAL3,
    LLM_GRANITE,
    LLM_STARCODER2,
    LLM_GPT_OSS,
    LLM_QWEN2MOE,
    LLM_GRANITEMOE,
    LLM_GEMMA,
    LLM_GLM4,
    LLM_SEED_OSS,
    LLM_EXAONE,
    LLM_SMOLLM3,
    LLM_INTERNLM2,
    LLM_ERNIE4_5,
    LLM_OLMO2,
    LLM_EXAONE4,
    LLM_COHERE2,
    LLM_COMMAND_R,
    LLM_ARCHS
};

/* Of the feed-forward, and the last of a shared expert's weight; llm/engine/backend.h defines each.
 */
enum llm_activation { LLM_SILU_GATED, LLM_GELU, LLM_GELU_GATED, LLM_SILU_CLAMPED, LLM_SIGMOID };

static inline bool llm_activation_is_gated(enum llm_activation kind)
{
    return kind != LLM_GELU && kind != LLM_SIGMOID;
}

const char *llm_arch_name(enum llm_arch arch); /* "llama", as in general.architecture */

/* The shape of a model.  Every field is set and consistent once a file is open. */
struct llm_config {
    enum llm_arch arch;
    uint32_t layers;
    uint32_t width;    /* of the residual stream */
    uint32_t heads;    /* of queries */
    uint32_t kv_heads; /* divides heads */
    uint32_t head_dim; /* of keys and values */
    uint32_t ffn;      /* of each expert where there are experts */
    uint32_t vocab;
    uint32_t context;
    uint32_t experts;      /* of a layer; 0: one dense feed-forward */
    uint32_t experts_used; /* by a row; 0 without experts */
    uint32_t shared_ffn;   /* of the expert that all rows meet; 0: there is none */
    bool experts_normed;   /* weights of the chosen experts add up to 1 */
    float experts_scale;   /* of their weights */
    uint32_t rope_dims;    /* 0: learned positions */
    float rope_base;
    float rope_base_window;  /* of layers with a window */
    float rope_scale;        /* angles are divided by it */
    float rope_scale_window; /* those of layers with a window */
    bool rope_is_yarn;       /* divided only where a pair turns slowly: llm/engine/rope.h */
    float yarn_fast, yarn_slow, yarn_log;
    float rope_magnitude;   /* of sines and cosines */
    uint32_t rope_original; /* positions that the model was first made for */
    uint32_t rope_skip;     /* every so many layers the last does not turn; 0: all do */
    uint32_t window;        /* positions that a row sees, its own included; 0: all */
    uint32_t window_period; /* every so many layers the last sees all positions; 0: none does */
    float attend_scale;     /* of the products of queries and keys */
    float attend_cap;       /* their soft limit; 0: none */
    float temperature;      /* queries grow by it with log(1 + position / rope_original); 0: not */
    float embed_scale, residual_scale, logit_scale;
    float logit_cap; /* soft limit of logits; 0: none */
    float norm_eps;
    enum llm_activation activation;
    bool norm_is_rms;
    bool rope_is_neox;      /* pairs (i, i + rope_dims / 2), else (2i, 2i + 1) */
    bool ffn_is_gated;      /* by the activation */
    bool parallel_residual; /* gptj: attention and feed-forward read the same normed input */
    bool tied_output;       /* no output.weight: the embedding is used */
};

/* Whether a layer's rows see the last config->window positions only. */
static inline bool llm_layer_slides(const struct llm_config *config, uint32_t layer)
{
    uint32_t period = config->window_period;
    return config->window && (period == 0 || layer % period != period - 1);
}

/* dims[0] is a row's length, dims[1] the number of rows, dims[2] that of experts, as GGUF counts;
 * those past dim_count are 1.  Norms, biases and factors are F32.  data is at a multiple of 4
 * bytes, in GGUF of 8 at least.  docs/reference/file-formats.md lists the tensors of each
 * architecture; a file with any other tensor is refused. */
struct llm_tensor {
    char name[LLM_NAME_CHARS];
    enum llm_dtype dtype;
    uint32_t dim_count;
    uint64_t dims[LLM_DIMS_MAX];
    uint64_t bytes;
    const void *data;
};

#endif
