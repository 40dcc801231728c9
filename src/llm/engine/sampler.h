/* llm/engine/sampler.h - from logits to a token: greedy, or drawn with temperature and filters.
 *
 * The same logits, options and seed give the same tokens on every machine and at either end of a
 * wire: candidates have one order (larger logit first, then smaller token), e^x is our own
 * (llm/engine/arith.h), sums are taken in that order in binary64, and random numbers are
 * base/rng.h's.
 *
 * Logits are changed in this order: biases, penalties, the mask.  Order of the filters: the top_k
 * largest; of them the smallest front whose probabilities reach top_p; of those, the ones that have
 * at least min_p of the largest's probability; of those one is drawn.
 *
 * The state is told by the options, the tokens so far and how many of them were sampled: another
 * sampler that is given those goes on with the same tokens.
 *
 * Trust: any floats; a NaN counts as minus infinity.
 * Threads: one at a time.  Lifetime: create/destroy. */
#ifndef HAWSER_LLM_ENGINE_SAMPLER_H
#define HAWSER_LLM_ENGINE_SAMPLER_H

#include "base/attr.h"

#include <stdint.h>

enum {
    LLM_BIASES_MAX = 1024,     /* OpenAI's clients may send 300 */
    LLM_TOP_LOGPROBS_MAX = 32, /* OpenAI's clients may ask for 20 */
};

struct llm_bias { /* added to the logit of a token */
    uint32_t token;
    float bias;
};

/* Zero in every field is a greedy sampler. */
struct llm_sampling {
    float temperature; /* 0: greedy, the largest logit, of equals the smallest token */
    uint32_t top_k;    /* 0: all */
    float top_p;       /* 1 or more: all; 0: the same as top_k 1 */
    uint64_t seed;
    float min_p;      /* 0: all */
    float presence;   /* subtracted from the logit of a token that was sampled before */
    float frequency;  /* subtracted for each time that it was */
    float repetition; /* 0 or 1: none; else the logit of a token that was sampled or is in the
                       * prompt is divided by it where positive, else multiplied */
    const struct llm_bias *biases; /* the caller's; a sampler copies them */
    uint32_t bias_count;
};

/* Forbids tokens: a grammar, for example. */
struct llm_mask_ops {
    /* Makes the logits of tokens that may not come next minus infinity.  If it leaves none, the
     * sampler chooses among all. */
    void (*mask)(void *user, float *logits, uint32_t vocab);
    /* A token was sampled, now or by an earlier sampler of the same text. */
    void (*accept)(void *user, uint32_t token);
};

#define LLM_LOGPROB_MIN (-9999.0f) /* of what cannot come; OpenAI's clients know it */

struct llm_logprob {
    uint32_t token;
    float logprob;
};

struct llm_sampler;

/* 0, -EINVAL (an option that is negative or no number where its meaning forbids it, or a bias of a
 * token past the vocabulary), -ENOMEM. */
int llm_sampler_create(const struct llm_sampling *options, uint32_t vocab,
                       struct llm_sampler **out) MUST_CHECK;
void llm_sampler_destroy(struct llm_sampler *sampler);

/* Uses one random number a call, also when greedy: the count of tokens tells the state. */
uint32_t llm_sampler_next(struct llm_sampler *sampler, const float *logits);
/* The state after so many calls of next, for options without penalties and mask. */
void llm_sampler_skip(struct llm_sampler *sampler, uint64_t count);
/* Before the first next: the text begins with these tokens, of which the last `sampled` were
 * sampled.  Tokens past the vocabulary are not allowed. */
void llm_sampler_begin(struct llm_sampler *sampler, const uint32_t *tokens, uint32_t count,
                       uint32_t sampled);
/* Before begin and the first next.  user outlives the sampler.  0 or -ENOMEM. */
int llm_sampler_set_mask(struct llm_sampler *sampler, const struct llm_mask_ops *ops,
                         void *user) MUST_CHECK;

/* Logarithms of probabilities as the model gives them, at temperature 1, before anything above
 * changes them.  of: of that token.  top: of the largest, in order; their count, at most `room` and
 * LLM_TOP_LOGPROBS_MAX. */
uint32_t llm_logprobs(const float *logits, uint32_t vocab, uint32_t token, float *of,
                      struct llm_logprob *top, uint32_t room);

#endif
