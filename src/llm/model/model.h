/* llm/model/model.h - the parts of an open file, shared by the readers of the formats.
 *
 * Private to src/llm: file.c opens files; the reader of each format fills in the struct (config.c
 * with gguf.c, llama2c.c); vocab.c uses the metadata.
 *
 * Lifetime: of the file. */
#ifndef HAWSER_LLM_MODEL_MODEL_H
#define HAWSER_LLM_MODEL_MODEL_H

#include "llm/model/format/gguf.h"

enum { LLM_MODEL_NAME_CHARS = 128 }; /* a longer general.name is cut */

/* What a reader yields.  tensors points at gguf.tensors or own_tensors. */
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

/* Checks that the tensors are exactly those of the configuration, each with the right shape.  0,
 * -EPROTO, -EOPNOTSUPP. */
int llm_config_check_tensors(const struct llm_config *config,
                             const struct llm_tensor_table *tensors, char *why) MUST_CHECK;

/* llama2.c's legacy format: the header must agree with the file's size.  0, -EPROTO, -ENOMEM. Fills
 * config, own_tensors and tensors; on an error nothing is allocated. */
int llm_llama2c_read(struct llm_model *model, const void *bytes, uint64_t size,
                     char *why) MUST_CHECK;

struct llm_file;
/* For the vocabulary: the metadata, or NULL in a format that has none. */
const struct gguf *llm_file_metadata(const struct llm_file *file);

#endif
