/* llm/engine/sampler.h - from logits to a token: greedy, or drawn with temperature, top-k and
 * top-p.
 *
 * The same logits, options and seed give the same tokens on every machine and at either end of a
 * wire: candidates have one order (larger logit first, then smaller token), e^x is our own
 * (llm/engine/arith.h), sums are taken in that order in binary64, and random numbers are
 * base/rng.h's.
 *
 * Order of the filters: the top_k largest; of them the smallest front whose probabilities reach
 * top_p; of those one is drawn.
 *
 * Trust: any floats; a NaN counts as minus infinity.
 * Threads: one at a time.  Lifetime: create/destroy. */
#ifndef HAWSER_LLM_ENGINE_SAMPLER_H
#define HAWSER_LLM_ENGINE_SAMPLER_H

#include "base/attr.h"

#include <stdint.h>

struct llm_sampling {
    float temperature; /* 0: greedy, the largest logit, of equals the smallest token */
    uint32_t top_k;    /* 0: all */
    float top_p;       /* 1 or more: all; 0: the same as top_k 1 */
    uint64_t seed;
};

struct llm_sampler;

/* 0, -EINVAL (a negative temperature or top_p, or one that is no number), -ENOMEM. */
int llm_sampler_create(const struct llm_sampling *options, uint32_t vocab,
                       struct llm_sampler **out) MUST_CHECK;
void llm_sampler_destroy(struct llm_sampler *sampler);

/* Uses one random number a call, also when greedy: the count of tokens tells the state. */
uint32_t llm_sampler_next(struct llm_sampler *sampler, const float *logits);
/* The state after so many calls of next. */
void llm_sampler_skip(struct llm_sampler *sampler, uint64_t count);

#endif
