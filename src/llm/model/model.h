/* llm/model/model.h - what an open file is made of, shared by the readers of the formats.
 *
 * Private to src/llm: file.c opens and finds, one reader a format fills in what it read
 * (config.c with gguf.c, llama2c.c), vocab.c asks for the metadata.
 *
 * Lifetime: of the file. */
#ifndef HAWSER_LLM_MODEL_MODEL_H
#define HAWSER_LLM_MODEL_MODEL_H

#include "llm/model/gguf.h"

enum { LLM_MODEL_NAME_CHARS = 128 }; /* a longer general.name is cut */

/* The outcome of a reader.  tensors points at gguf.tensors or own_tensors. */
struct llm_model {
    struct llm_config config;
    char name[LLM_MODEL_NAME_CHARS];
    char format[24];
    bool has_metadata; /* gguf is set */
    struct gguf gguf;
    struct llm_tensor_table own_tensors;
    const struct llm_tensor_table *tensors;
};

/* The configuration that the metadata describes.  0, -EPROTO, -EOPNOTSUPP. */
int llm_config_read(const struct gguf *gguf, struct llm_config *config, char *why) MUST_CHECK;

/* Whether the tensors are those of the configuration: all that it needs, nothing that it does not
 * know, each of the right shape.  0, -EPROTO, -EOPNOTSUPP. */
int llm_config_check_tensors(const struct llm_config *config,
                             const struct llm_tensor_table *tensors, char *why) MUST_CHECK;

/* llama2.c's legacy format: what the header says must be what the size of the file is.
 * 0, -EPROTO, -ENOMEM.  Fills config, own_tensors and tensors; on an error nothing is held. */
int llm_llama2c_read(struct llm_model *model, const void *bytes, uint64_t size,
                     char *why) MUST_CHECK;

struct llm_file;
/* For the vocabulary: the metadata, or NULL in a format that has none. */
const struct gguf *llm_file_metadata(const struct llm_file *file);

#endif
