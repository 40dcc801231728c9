/* llm/engine/pooling.h - one vector for a text, from the hidden states of its rows.
 *
 * The states are those of the last layer, after the output norm.  A model's file says how they
 * become one vector ("<architecture>.pooling_type", llama.cpp's numbers); a file that does not say
 * gets the mean.  The vector has length 1.
 *
 * Sums are binary64 and in the order of rows: a text has the same vector in any batch.
 *
 * Threads: any.  Lifetime: values. */
#ifndef HAWSER_LLM_ENGINE_POOLING_H
#define HAWSER_LLM_ENGINE_POOLING_H

#include "llm/model/file.h"

enum llm_pooling {
    LLM_POOL_MEAN,  /* of all rows */
    LLM_POOL_FIRST, /* row: "cls" */
    LLM_POOL_LAST,
    LLM_POOL_NONE, /* the model ranks texts, or pools in a way that is not known here */
};

enum llm_pooling llm_pooling_of(const struct llm_file *file);

/* Adds rows first to first + rows, of `all`, to the sums. */
void llm_pool_add(enum llm_pooling pooling, double *sums, const float *states, uint32_t width,
                  uint32_t first, uint32_t rows, uint32_t all);
/* The vector of the sums; zeros where their length is 0 or no number. */
void llm_pool_finish(const double *sums, uint32_t width, float *vector);

#endif
