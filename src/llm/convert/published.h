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

enum { LLM_PUB_ALIASES = 3 };

/* What is made of a number of config.json. */
enum llm_pub_form {
    LLM_PUB_WHOLE, /* a whole number */
    LLM_PUB_REAL,
    LLM_PUB_ROOT_INVERSE, /* 1 / sqrt(x) */
    LLM_PUB_PART_OF_HEAD, /* x of a head's dimensions, a whole number */
};

/* A number of config.json; "a/b" is b of the object a.  Without one: the value of the key `like`,
 * times `times`, or, with like NULL, `otherwise`; both 0: the key must be there. */
struct llm_pub_key {
    const char *to; /* without the architecture's name and dot; NULL ends a table */
    const char *from[LLM_PUB_ALIASES];
    enum llm_pub_form form;
    const char *like;
    uint32_t times;
    double otherwise;
    bool optional; /* left out where there is none */
};

/* A setting of config.json for which the engine knows one value only: a text, a number, true,
 * false, null or [] as JSON spells it.  It may be missing, unless it is `required`: what a missing
 * one stands for is then another value. */
struct llm_pub_must {
    const char *key; /* NULL ends a table */
    const char *value;
    bool required;
};

enum llm_pub_how {
    LLM_PUB_COPY,
    LLM_PUB_AS_F32,    /* whatever it is stored as */
    LLM_PUB_PLUS_ONE,  /* a norm that is stored as what it differs from 1 */
    LLM_PUB_TRANSPOSE, /* stored as (inputs, outputs) */
    LLM_PUB_PAIRS_Q, /* rows of a head: halves become adjacent pairs, as GGUF's llama turns them */
    LLM_PUB_PAIRS_K, /* the same, of the heads of keys */
    LLM_PUB_EVEN,    /* of biases (experts, 2 * n): every other, from the first, as F32 */
    LLM_PUB_ODD,     /* from the second */
    LLM_PUB_ROWS_1,  /* the first half of a matrix' rows, of each of a stack */
    LLM_PUB_ROWS_2,  /* the second */
    LLM_PUB_MX,      /* MXFP4 as "..._blocks" and "..._scales": (experts, rows, blocks[, 16]) */
    LLM_PUB_MX_EVEN, /* the same, every other row */
    LLM_PUB_MX_ODD,
    LLM_PUB_IGNORE,
};

/* %u stands for the layer, %e for the expert: experts are stacked in one tensor. */
struct llm_pub_tensor {
    const char *from; /* NULL ends a table */
    const char *to;
    enum llm_pub_how how;
    bool optional;
};

struct llm_pub {
    const char *model_type;         /* of config.json */
    const char *arch;               /* of GGUF */
    const char *prefix;             /* that names in a file may lack */
    const struct llm_pub_key *keys; /* the number of layers first */
    const struct llm_pub_tensor *tensors;
    const struct llm_pub_must *musts;
};

/* NULL: not known. */
const struct llm_pub *llm_pub_find(const char *model_type);
/* The i-th; NULL past the end. */
const struct llm_pub *llm_pub_at(uint32_t i);

/* The name of tokenizer.ggml.pre for a Split pattern of tokenizer.json; NULL: not known. */
const char *llm_pub_pretok(const char *pattern);

#endif
