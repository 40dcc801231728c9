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
    LLM_DIM_HEAD,
    LLM_DIM_HEADS,
    LLM_DIM_FFN,
    LLM_DIM_FFN_TWICE, /* gate, then up */
    LLM_DIM_SHARED_FFN,
    LLM_DIM_VOCAB,
    LLM_DIM_CONTEXT,
    LLM_DIM_ROPE_HALF,
    LLM_DIM_EXPERTS,
};

/* In which files of the architecture a tensor is. */
enum llm_presence {
    LLM_ALWAYS,
    LLM_MAYBE,
    LLM_IF_DENSE,
    LLM_MAYBE_DENSE,
    LLM_IF_EXPERTS,
    LLM_IF_SHARED, /* a shared expert */
};

struct llm_arch_tensor {
    const char *name; /* without "blk.%u."; NULL ends a table */
    enum llm_dim row, rows;
    bool per_layer;
    enum llm_presence presence;
    bool stacked; /* rows x experts, one matrix or bias after the other */
};

/* Whether the row belongs to files of this configuration, and whether a file may lack it. */
bool llm_arch_tensor_applies(const struct llm_config *config, const struct llm_arch_tensor *row);
bool llm_arch_tensor_is_optional(const struct llm_arch_tensor *row);
/* Norms, biases and factors: F32, whatever the type of the matrices. */
bool llm_arch_tensor_is_vector(const struct llm_arch_tensor *row);

struct llm_arch_info {
    const char *name;
    bool norm_is_rms;
    bool rope_is_neox;
    bool parallel_residual;
    bool learned_positions;
    enum llm_activation activation;
    bool has_experts; /* always; with experts_optional: where the file says so */
    bool experts_optional;
    bool has_shared_expert; /* always; with shared_optional: where the file says so */
    bool shared_optional;
    bool experts_normed;
    bool embeds_by_width; /* embeddings are multiplied by sqrt(width) */
    bool window_unscaled; /* rope scaling is not for layers with a window */
    float window_base;    /* of rope in layers with a window; 0: as in the others */
    uint32_t window;      /* where the file does not say; 0: none */
    uint32_t window_period;
    uint32_t rope_skip;     /* as in llm_config */
    bool turns_in_window;   /* where there are windows, only layers with one turn */
    uint32_t wide_heads_at; /* with so many layers scores are divided by sqrt(width / heads) */
    bool has_caps;          /* soft limits; where the file does not say: */
    float attend_cap, logit_cap;
    bool has_multipliers; /* of embeddings, residuals, logits and attention */
    bool logits_times;    /* the file's scale of logits multiplies them, else divides */
    bool has_temperature;
    const struct llm_arch_tensor *tensors;
};

const struct llm_arch_info *llm_arch_info(enum llm_arch arch);

/* Sets what follows from config->arch alone. */
void llm_arch_set(struct llm_config *config);
/* Then, once the windows are known: which layers do not turn. */
void llm_arch_set_skip(struct llm_config *config);
/* And once the sizes are known: the scale of attention. */
void llm_arch_set_scale(struct llm_config *config);

/* 1 for LLM_DIM_NONE. */
uint64_t llm_dim_value(const struct llm_config *config, enum llm_dim dim);

/* The shape of a row's tensor, as struct llm_tensor has it. */
void llm_arch_tensor_dims(const struct llm_config *config, const struct llm_arch_tensor *row,
                          uint64_t dims[LLM_DIMS_MAX]);

/* The full name of a row's tensor; layer is ignored for a tensor of the whole model. */
void llm_arch_tensor_name(const struct llm_arch_tensor *row, uint32_t layer,
                          char name[LLM_NAME_CHARS]);

/* The row that a name belongs to, for any of the model's layers; NULL: none. */
const struct llm_arch_tensor *llm_arch_row_of(const struct llm_config *config, const char *name);

#endif
