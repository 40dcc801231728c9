/* llm/engine/split.h - private to src/llm: what of a model one tensor-parallel worker computes.
 *
 * Workers split outputs and never sums: each computes some heads and some rows of every matrix,
 * over the whole input.  An input that several workers computed is gathered before it is used.  So
 * each value is computed by one worker, in the order that a single worker has: the bits are the
 * same.
 *
 * Threads: as llm/engine/backend.h.  Lifetime: values. */
#ifndef HAWSER_LLM_ENGINE_SPLIT_H
#define HAWSER_LLM_ENGINE_SPLIT_H

#include "llm/engine/backend.h"

enum { LLM_SPLIT_UNIT = 16 }; /* rows of a matrix that stay together: a cache line of results */

/* Some of the rows of a matrix, or of the columns of its results. */
struct llm_share {
    uint32_t first, count;
};

/* The share of a rank: whole units, but for the last of all. */
static inline struct llm_share llm_share_of(uint32_t count, uint32_t unit, uint32_t rank,
                                            uint32_t ranks)
{
    uint64_t units = ((uint64_t)count + unit - 1) / unit;
    uint64_t first = units * rank / ranks * unit, end = units * (rank + 1) / ranks * unit;
    end = end < count ? end : count;
    return (struct llm_share){.first = (uint32_t)first, .count = (uint32_t)(end - first)};
}

/* Each rank has `rows` rows of its share of `width` values at `place`; then each has all values
 * there, or only rank 0 has. */
struct llm_gather {
    struct llm_place place;
    uint32_t rows, width, unit;
    bool first_only;
};

struct llm_split {
    uint32_t rank, ranks;
    /* Within a step; an op.  0, or a negative errno and why: the step has failed. */
    int (*gather)(void *user, const struct llm_gather *op, char *why);
    void *user;
};

#endif
