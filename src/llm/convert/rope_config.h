/* llm/convert/rope_config.h - private to src/llm: rope scaling of config.json as GGUF has it.
 *
 * linear and yarn are numbers; Llama 3's way and longrope are factors, which become tensors.
 *
 * Trust: config is hostile.  Threads: any.  Lifetime: fini frees the factors. */
#ifndef HAWSER_LLM_CONVERT_ROPE_CONFIG_H
#define HAWSER_LLM_CONVERT_ROPE_CONFIG_H

#include "llm/model/format/gguf_write.h"

#include <jansson.h>

enum { LLM_ROPE_SETS = 2 };

struct llm_rope_factors {
    struct {
        const char *name; /* of the tensor */
        float *values;
        uint32_t count;
    } sets[LLM_ROPE_SETS];
    uint32_t count;
};

/* Writes the pairs and sets the factors; fini also after an error.  0; -EPROTO, -EOPNOTSUPP (why
 * names what), -ENOMEM. */
int llm_rope_config_write(struct gguf_writer *w, const char *arch, const json_t *config,
                          struct llm_rope_factors *factors, char *why) MUST_CHECK;
void llm_rope_factors_fini(struct llm_rope_factors *factors);

#endif
