#include "llm/engine/pooling.h"

#include "llm/model/model.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

/* llama.cpp's numbers. */
enum { TYPE_NONE, TYPE_MEAN, TYPE_CLS, TYPE_LAST };

enum llm_pooling llm_pooling_of(const struct llm_file *file)
{
    char key[80], why[LLM_WHY_CHARS];
    uint32_t type = TYPE_NONE;
    size_t bytes = 0;
    const char *arch = llm_file_text(file, "general.architecture", &bytes);
    if (!arch || bytes > sizeof key - sizeof ".pooling_type")
        return LLM_POOL_MEAN;
    snprintf(key, sizeof key, "%.*s.pooling_type", (int)bytes, arch);
    if (!gguf_find(llm_file_metadata(file), key))
        return LLM_POOL_MEAN;
    if (gguf_get_u32(llm_file_metadata(file), key, &type, why))
        return LLM_POOL_NONE;
    switch (type) {
    case TYPE_NONE:
    case TYPE_MEAN:
        return LLM_POOL_MEAN;
    case TYPE_CLS:
        return LLM_POOL_FIRST;
    case TYPE_LAST:
        return LLM_POOL_LAST;
    default:
        return LLM_POOL_NONE;
    }
}

void llm_pool_add(enum llm_pooling pooling, double *sums, const float *states, uint32_t width,
                  uint32_t first, uint32_t rows, uint32_t all)
{
    assert(pooling != LLM_POOL_NONE && first + rows <= all);
    uint32_t from = pooling == LLM_POOL_LAST ? all - 1 : 0;
    uint32_t to = pooling == LLM_POOL_FIRST ? 1 : all;
    for (uint32_t r = 0; r < rows; r++) {
        if (first + r < from || first + r >= to)
            continue;
        for (uint32_t i = 0; i < width; i++)
            sums[i] += (double)states[(size_t)r * width + i];
    }
}

void llm_pool_finish(const double *sums, uint32_t width, float *vector)
{
    double squares = 0;
    for (uint32_t i = 0; i < width; i++)
        squares += sums[i] * sums[i];
    double inverse = squares > 0 && isfinite(squares) ? 1 / sqrt(squares) : 0;
    for (uint32_t i = 0; i < width; i++)
        vector[i] = inverse > 0 ? (float)(sums[i] * inverse) : 0;
}
