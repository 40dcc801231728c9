/* llm/tokenizer/pretok.h - cuts text into the words that byte-level BPE works in.
 *
 * A rule is one or more stages; each cuts the pieces of the stage before.  A stage is a list of
 * patterns: at each position the first match is taken; characters that match none form one piece.
 * Patterns are functions equivalent to the vocabularies' regular expressions.
 *
 * Private to src/llm.  Trust: text is any bytes; a byte that is not UTF-8 is a character of
 * class LLM_CHAR_OTHER.  Time is linear in the text, except that each pattern may scan a run of
 * blanks again.
 * Threads: any; no state. */
#ifndef HAWSER_LLM_TOKENIZER_PRETOK_H
#define HAWSER_LLM_TOKENIZER_PRETOK_H

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>

struct llm_pretok {
    const char *name; /* as in tokenizer.ggml.pre */
    bool adds_bos;    /* when the file does not say */
    bool whole_words; /* a word that is a token is that token, whatever the merges make of it */
    const struct llm_pretok_stage *stages;
};

/* NULL: not known.  An empty name is "default", as in files from before the key. */
const struct llm_pretok *llm_pretok_find(const char *name, size_t bytes);

/* The i-th name that is known; NULL past the end. */
const char *llm_pretok_name(size_t i);

/* Calls word for each, in order; together they are the text.  A word's negative errno ends the
 * walk and is returned. */
int llm_pretok_split(const struct llm_pretok *rule, const char *text, size_t bytes,
                     int (*word)(void *user, const char *text, size_t bytes),
                     void *user) MUST_CHECK;

#endif
