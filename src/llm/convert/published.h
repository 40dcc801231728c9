/* llm/convert/published.h - private to src/llm: how models are published, as tables.
 *
 * For each model_type of config.json: which of its keys become which of GGUF's, and which of its
 * tensors become which of GGUF's.  A new architecture is a table.
 *
 * Threads: any; constant. */
#ifndef HAWSER_LLM_CONVERT_PUBLISHED_H
#define HAWSER_LLM_CONVERT_PUBLISHED_H

#include <stdbool.h>
#include <stdint.h>

enum { LLM_PUB_ALIASES = 2 };

/* A number of config.json.  Without one: the value of the key `like`, times `times`, or, with like
 * NULL, `otherwise`; both 0: the key must be there. */
struct llm_pub_key {
    const char *to; /* without the architecture's name and dot; NULL ends a table */
    const char *from[LLM_PUB_ALIASES];
    bool is_real;
    const char *like;
    uint32_t times;
    double otherwise;
    bool optional; /* left out where there is none */
};

enum llm_pub_how {
    LLM_PUB_COPY,
    LLM_PUB_AS_F32,    /* whatever it is stored as */
    LLM_PUB_TRANSPOSE, /* stored as (inputs, outputs) */
    LLM_PUB_PAIRS_Q, /* rows of a head: halves become adjacent pairs, as GGUF's llama turns them */
    LLM_PUB_PAIRS_K, /* the same, of the heads of keys */
    LLM_PUB_IGNORE,
};

/* %u stands for the layer. */
struct llm_pub_tensor {
    const char *from; /* NULL ends a table */
    const char *to;
    enum llm_pub_how how;
    bool optional;
};

struct llm_pub {
    const char *model_type; /* of config.json */
    const char *arch;       /* of GGUF */
    const char *prefix;     /* that names in a file may lack */
    const struct llm_pub_key *keys;
    const struct llm_pub_tensor *tensors;
};

/* NULL: not known. */
const struct llm_pub *llm_pub_find(const char *model_type);
/* The i-th; NULL past the end. */
const struct llm_pub *llm_pub_at(uint32_t i);

/* The name of tokenizer.ggml.pre for a Split pattern of tokenizer.json; NULL: not known. */
const char *llm_pub_pretok(const char *pattern);

#endif
