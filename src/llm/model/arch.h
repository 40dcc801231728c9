/* llm/model/arch.h - what each architecture computes and which tensors it needs, as tables.
 *
 * Private to src/llm.  A row has a tensor's name as llama.cpp's converter writes it ("blk.%u."
 * before those of a layer), its shape in terms of struct llm_config, and whether a file may lack
 * it. config.c checks files against the rows; synth.c writes files by them.
 *
 * Threads: any; constant. */
#ifndef HAWSER_LLM_MODEL_ARCH_H
#define HAWSER_LLM_MODEL_ARCH_H

#include "llm/model/shape.h"

enum llm_dim {
    LLM_DIM_NONE, /* the tensor has one dimension */
    LLM_DIM_WIDTH,
    LLM_DIM_Q,   /* heads * head_dim */
    LLM_DIM_KV,  /* kv_heads * head_dim */
    LLM_DIM_QKV, /* both: Q, then K, then V */
    LLM_DIM_FFN,
    LLM_DIM_VOCAB,
    LLM_DIM_CONTEXT,
    LLM_DIM_ROPE_HALF,
};

struct llm_arch_tensor {
    const char *name; /* without "blk.%u."; NULL ends a table */
    enum llm_dim row, rows;
    bool per_layer;
    bool optional;
};

struct llm_arch_info {
    const char *name;
    bool norm_is_rms;
    bool rope_is_neox;
    bool ffn_is_gated;
    bool parallel_residual;
    bool learned_positions;
    const struct llm_arch_tensor *tensors;
};

const struct llm_arch_info *llm_arch_info(enum llm_arch arch);

/* 1 for LLM_DIM_NONE. */
uint64_t llm_dim_value(const struct llm_config *config, enum llm_dim dim);

/* The full name of a row's tensor; layer is ignored for a tensor of the whole model. */
void llm_arch_tensor_name(const struct llm_arch_tensor *row, uint32_t layer,
                          char name[LLM_NAME_CHARS]);

/* The row that a name belongs to, for any of the model's layers; NULL: none. */
const struct llm_arch_tensor *llm_arch_row_of(const struct llm_config *config, const char *name);

#endif
