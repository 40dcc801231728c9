/* llm/tokenizer/merge.h - joins adjacent symbols, the best pair first, until no pair can be joined.
 *
 * Both kinds of tokenizer do this after the text is cut into characters or bytes.  n symbols take
 * at most n - 1 joins, also when the rules have cycles.  O(n log n).
 *
 * Private to src/llm.  Trust: symbols are ours; rules come from a file through find.
 * Threads: one a merger.  Lifetime: a zeroed struct is empty; fini frees what it grew. */
#ifndef HAWSER_LLM_TOKENIZER_MERGE_H
#define HAWSER_LLM_TOKENIZER_MERGE_H

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LLM_MERGE_NONE = -1 };

struct llm_symbol {
    uint32_t start, bytes;   /* in the text; 0 bytes: joined to its left neighbour */
    int32_t token;           /* LLM_MERGE_NONE: it is none */
    uint32_t previous, next; /* UINT32_MAX: the end */
};

struct llm_join {
    double cost; /* the lowest goes first; of equals the leftmost */
    uint32_t token;
};

/* Whether two neighbours can be joined, and into what. */
typedef bool (*llm_merge_find)(const void *user, const struct llm_symbol *left,
                               const struct llm_symbol *right, struct llm_join *out);

struct llm_merger {
    struct llm_symbol *symbols;
    uint32_t count;
    size_t room;
    struct llm_candidate *heap; /* private */
    uint32_t heap_count;
    size_t heap_room;
};

void llm_merger_fini(struct llm_merger *merger);
/* Keeps the memory for the next text. */
void llm_merger_clear(struct llm_merger *merger);

/* Appends a symbol that follows the last one.  0, -ENOMEM. */
int llm_merger_add(struct llm_merger *merger, uint32_t start, uint32_t bytes,
                   int32_t token) MUST_CHECK;

/* 0, -ENOMEM.  Then symbols[0] and on by next are what is left. */
int llm_merger_run(struct llm_merger *merger, llm_merge_find find, const void *user) MUST_CHECK;

#endif
