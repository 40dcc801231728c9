/* llm/model/layers.h - a set of a model's layers, and the rule when to evict which.
 *
 * Trust: the parsers take a user's text.
 * Threads: any (no state).  Lifetime: values; zero is the empty set. */
#ifndef HAWSER_LLM_MODEL_LAYERS_H
#define HAWSER_LLM_MODEL_LAYERS_H

#include "base/attr.h"
#include "llm/model/shape.h"

#include <stdbool.h>
#include <stdint.h>

enum { LLM_LAYER_WORDS = LLM_LAYERS_MAX / 64 };

struct llm_layers {
    uint64_t words[LLM_LAYER_WORDS];
};

static inline bool llm_layers_has(const struct llm_layers *set, uint32_t layer)
{
    return set->words[layer / 64] >> layer % 64 & 1;
}

static inline void llm_layers_add(struct llm_layers *set, uint32_t layer)
{
    set->words[layer / 64] |= UINT64_C(1) << layer % 64;
}

static inline void llm_layers_remove(struct llm_layers *set, uint32_t layer)
{
    set->words[layer / 64] &= ~(UINT64_C(1) << layer % 64);
}

static inline void llm_layers_join(struct llm_layers *set, const struct llm_layers *other)
{
    for (int i = 0; i < LLM_LAYER_WORDS; i++)
        set->words[i] |= other->words[i];
}

/* The first `count` layers. */
static inline struct llm_layers llm_layers_first(uint32_t count)
{
    struct llm_layers set = {0};
    for (uint32_t l = 0; l < count; l++)
        llm_layers_add(&set, l);
    return set;
}

static inline uint32_t llm_layers_count(const struct llm_layers *set)
{
    uint32_t count = 0;
    for (int i = 0; i < LLM_LAYER_WORDS; i++)
        count += (uint32_t)__builtin_popcountll(set->words[i]);
    return count;
}

/* Of `count` layers: "all"; "0,2-4"; "25%", that share of them from the end.  0 or -EINVAL. */
int llm_layers_parse(const char *text, size_t len, uint32_t count,
                     struct llm_layers *out) MUST_CHECK;

/* "LAYERS@N": evict these layers after every Nth token; without "@N" after each. */
struct llm_evict_rule {
    struct llm_layers layers;
    uint32_t at; /* 0: never */
};
int llm_evict_rule_parse(const char *text, uint32_t count, struct llm_evict_rule *out) MUST_CHECK;

#endif
