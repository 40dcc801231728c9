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
};

enum llm_arch { LLM_LLAMA, LLM_QWEN2, LLM_GPTJ, LLM_GPT2, LLM_ARCHS };

const char *llm_arch_name(enum llm_arch arch); /* "llama", as in general.architecture */

/* The shape of a model.  Every field is set and consistent once a file is open. */
struct llm_config {
    enum llm_arch arch;
    uint32_t layers;
    uint32_t width;    /* of the residual stream */
    uint32_t heads;    /* of queries */
    uint32_t kv_heads; /* divides heads */
    uint32_t head_dim; /* of keys and values */
    uint32_t ffn;
    uint32_t vocab;
    uint32_t context;
    uint32_t rope_dims; /* 0: learned positions */
    float rope_base;
    float rope_scale; /* linear: positions are divided by it */
    float norm_eps;
    bool norm_is_rms;
    bool rope_is_neox; /* pairs (i, i + rope_dims / 2), else (2i, 2i + 1) */
    bool ffn_is_gated;
    bool parallel_residual; /* gptj: attention and feed-forward read the same normed input */
    bool tied_output;       /* no output.weight: the embedding is used */
};

/* dims[0] is a row's length, dims[1] the number of rows, as GGUF counts; those past dim_count
 * are 1. Tensors of one dimension (norms, biases, rope_freqs.weight) are F32.  data is at a
 * multiple of 4 bytes, in GGUF of 8 at least.
 *
 * A llama or qwen2 file may hold rope_freqs.weight, rope_dims / 2 numbers that each pair's angle is
 * divided by; a llama file may hold biases of attn_q, attn_k, attn_v and attn_output, a qwen2 file
 * always holds the first three.  docs/reference/file-formats.md lists the tensors of each
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
