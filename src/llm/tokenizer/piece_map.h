/* llm/tokenizer/piece_map.h - from the text of a token to its number.
 *
 * Private to src/llm.  Trust: texts are the file's; of equal ones the first added is found.  The
 * hash has a random seed, so that a file cannot put all its texts into one bucket.
 * Threads: one while adding, then any.  Lifetime: init/fini; texts are borrowed. */
#ifndef HAWSER_LLM_TOKENIZER_PIECE_MAP_H
#define HAWSER_LLM_TOKENIZER_PIECE_MAP_H

#include "llm/model/format/gguf.h"

struct llm_piece_map { /* private */
    struct gguf_string *texts;
    uint32_t *tokens;
    uint64_t seed;
    uint32_t mask; /* buckets - 1, at least twice the entries */
};

/* For at most count entries, up to LLM_VOCAB_MAX.  0, -ENOMEM. */
int llm_piece_map_init(struct llm_piece_map *map, uint32_t count) MUST_CHECK;
void llm_piece_map_fini(struct llm_piece_map *map);
void llm_piece_map_add(struct llm_piece_map *map, struct gguf_string text, uint32_t token);
/* -1: not there. */
int32_t llm_piece_map_find(const struct llm_piece_map *map, const char *text, size_t bytes);

#endif
