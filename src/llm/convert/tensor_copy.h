/* llm/convert/tensor_copy.h - private to src/llm: one tensor of a GGUF file from tensors as they
 * are published, some rows at a time.
 *
 * Trust: shapes and types of the sources are hostile; describe checks them, write relies on it.
 * Threads: any.  Lifetime: sources outlive the copy. */
#ifndef HAWSER_LLM_CONVERT_TENSOR_COPY_H
#define HAWSER_LLM_CONVERT_TENSOR_COPY_H

#include "llm/convert/published.h"
#include "llm/convert/safetensors.h"
#include "llm/model/format/gguf_write.h"

/* Several parts are the experts of a stacked tensor, all of one shape and type. */
struct llm_copy {
    enum llm_pub_how how;
    const struct llm_st_tensor *const *parts;
    uint32_t part_count;
    const struct llm_st_tensor *scales; /* of MXFP4 */
};

/* Sets all of *to but its name.  0; -EPROTO, -EOPNOTSUPP: why names the tensor. */
int llm_copy_describe(const struct llm_copy *copy, struct llm_tensor *to, char *why) MUST_CHECK;

/* Writes the data of *to, as described; head_dim is for rows in pairs.  progress gets the bytes
 * written since its last call.  0, -ENOMEM; the writer keeps its own errors. */
int llm_copy_write(const struct llm_copy *copy, const struct llm_tensor *to, uint32_t head_dim,
                   struct gguf_writer *w, void (*progress)(void *user, uint64_t bytes), void *user,
                   char *why) MUST_CHECK;

#endif
