/* tests/unit/llm/model.h - small random models, in files that are gone once they are open.
 *
 * A model that cannot be made fails the test.  Lifetime: closed with llm_file_close. */
#ifndef HAWSER_TESTS_LLM_MODEL_H
#define HAWSER_TESTS_LLM_MODEL_H

#include "llm/model/file.h"

enum {
    MODEL_VOCAB = 300,
    MODEL_DEEP_LAYERS = 6,
};

/* Two layers, wide enough for the blocks of every type. */
struct llm_file *model_wide(enum llm_arch arch, enum llm_dtype dtype, uint32_t ffn,
                            uint32_t context);

/* MODEL_DEEP_LAYERS narrow layers: many, and soon moved. */
struct llm_file *model_deep(uint32_t context, uint64_t seed);

#endif
