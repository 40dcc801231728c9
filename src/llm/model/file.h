/* llm/model/file.h - a model file, opened, checked and described: GGUF v2 and v3, and llama2.c's
 * format.
 *
 * Whatever the file's own format, what is seen here is GGUF's: tensors by GGUF names
 * ("blk.3.attn_q.weight"), one struct llm_config, one vocabulary (llm/tokenizer/vocab.h).
 *
 * Trust: the file is hostile.  Every count, length, offset, type and dimension is checked against
 * its limit, against the file's size and against each other before it is used; tensors neither
 * overlap nor leave the file; what the architecture needs is there with the right shape.  A file
 * that passes cannot make the engine read outside its mapping.
 * The mapping is the file itself: whoever may write it must not cut it short while it is open.
 * Threads: an open file is read-only; any thread.
 * Lifetime: open/close; names and data live as long as the file. */
#ifndef HAWSER_LLM_MODEL_FILE_H
#define HAWSER_LLM_MODEL_FILE_H

#include "base/attr.h"
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
    LLM_WHY_CHARS = 256,       /* a sentence: what, why, remedy */
};

enum llm_arch { LLM_LLAMA, LLM_QWEN2, LLM_GPTJ, LLM_GPT2, LLM_ARCHS };

const char *llm_arch_name(enum llm_arch arch); /* "llama", as in general.architecture */
bool llm_arch_parse(const char *name, enum llm_arch *out);

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
    bool tied_output;       /* no output.weight: the embedding serves */
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

struct llm_file;

/* Maps the file read-only.  0; -ENOENT, -EACCES and the like; -EPROTO (not a model, or damaged;
 * why says what and where); -EOPNOTSUPP (a fine file that the engine cannot run: why names the
 * architecture, type or feature); -ENOMEM.  why holds LLM_WHY_CHARS. */
int llm_file_open(const char *path, struct llm_file **out, char *why) MUST_CHECK;

/* The same from memory, which stays the caller's and outlives the file.  -EINVAL when it does not
 * begin at a multiple of 8. */
int llm_file_parse(const void *bytes, uint64_t size, struct llm_file **out, char *why) MUST_CHECK;
void llm_file_close(struct llm_file *file);

const struct llm_config *llm_file_config(const struct llm_file *file);
const char *llm_file_name(const struct llm_file *file);   /* general.name, or "" */
const char *llm_file_format(const struct llm_file *file); /* "GGUF v3", "llama2.c" */

uint32_t llm_file_tensor_count(const struct llm_file *file);
const struct llm_tensor *llm_file_tensor(const struct llm_file *file, uint32_t i);
const struct llm_tensor *llm_file_find(const struct llm_file *file, const char *name); /* or NULL */

/* The whole mapping: what a client that ships its weights sends, and llm_file_parse takes. */
const void *llm_file_bytes(const struct llm_file *file, uint64_t *size);

#endif
