/* llm/chat/grammar.h - grammars that say which tokens may come next.
 *
 * GBNF as llama.cpp's users know it: rules `name ::= ...`, "literals", [classes], ., groups,
 * alternatives, * + ? {m} {m,} {m,n}, # comments, <[NUMBER]> for a control token; the text is a
 * sentence of the rule `root`.
 * Characters become bytes of UTF-8, so a token may end within a character.
 *
 * A matcher is a set of stacks of places in the grammar, kept as states of an automaton that grows
 * as it is used.  A mask walks all pieces of the vocabulary in sorted order, so that a common
 * prefix is matched once, and is remembered with its state.
 *
 * Trust: a grammar is a client's; its size, its nesting and what a matcher holds are bounded, left
 * recursion is refused.
 * Threads: a grammar and pieces are read-only, for any thread; a matcher is for one at a time.
 * Lifetime: create/destroy; a matcher lives within its grammar and pieces. */
#ifndef HAWSER_LLM_CHAT_GRAMMAR_H
#define HAWSER_LLM_CHAT_GRAMMAR_H

#include "llm/model/why.h"
#include "llm/tokenizer/vocab.h"

enum {
    LLM_GBNF_BYTES_MAX = 256 << 10,     /* of its text */
    LLM_GRAMMAR_ELEMENTS_MAX = 1 << 18, /* after repetitions are written out: 2 MiB */
    LLM_GRAMMAR_RULES_MAX = 1 << 16,    /* groups and repetitions included */
    LLM_GRAMMAR_REPEAT_MAX = 4096,      /* of {m,n} */
    LLM_GRAMMAR_NESTING_MAX = 64,       /* of groups */
    LLM_MATCHER_STATES_MAX = 2048,      /* kept; then only the present one is, 1 KiB each */
    LLM_MATCHER_STACKS_MAX = 4096,      /* of one state: how ambiguous a text may be */
    LLM_MATCHER_DEPTH_MAX = 4096,       /* of a stack: how deep a text may nest */
    LLM_MATCHER_MASKS_MAX = 128,        /* remembered; 19 KiB each for 150,000 tokens */
    LLM_MATCHER_WORK_MAX = 1 << 21,     /* places visited for one mask: some 0.1 s.  Then a token
                                         * counts as one that cannot come */
};

struct llm_grammar;

/* 0; -EINVAL (why names line and cause); -E2BIG (a bound); -EOPNOTSUPP; -ENOMEM. */
int llm_grammar_parse(const char *text, size_t bytes, struct llm_grammar **out,
                      char *why) MUST_CHECK;
/* 1: some text is complete; 0: each goes on for ever, as by a schema that is nothing but a
 * reference to itself; -ENOMEM. */
int llm_grammar_ends(const struct llm_grammar *grammar);
void llm_grammar_destroy(struct llm_grammar *grammar);

struct llm_pieces; /* the tokens of a vocabulary in the order of their bytes */

/* 0 or -ENOMEM. */
int llm_pieces_create(const struct llm_vocab *vocab, struct llm_pieces **out) MUST_CHECK;
void llm_pieces_destroy(struct llm_pieces *pieces);

struct llm_matcher;

/* pieces: NULL where only bytes are matched.  0 or -ENOMEM. */
int llm_matcher_create(const struct llm_grammar *grammar, const struct llm_pieces *pieces,
                       struct llm_matcher **out) MUST_CHECK;
void llm_matcher_destroy(struct llm_matcher *m);

/* Goes on with bytes.  False, and only the end can follow, when they are not in the language or a
 * bound is reached. */
bool llm_matcher_feed(struct llm_matcher *m, const char *text, size_t bytes);
bool llm_matcher_may_end(const struct llm_matcher *m); /* the text is complete as it is */
bool llm_matcher_is_dead(const struct llm_matcher *m); /* nothing but the end can follow */

/* What a sampler's mask hook calls: logits of tokens that cannot come become minus infinity.  End
 * tokens can come when the text is complete, or when nothing else can. */
void llm_matcher_mask(struct llm_matcher *m, float *logits, uint32_t vocab);
/* A token was sampled. */
void llm_matcher_accept(struct llm_matcher *m, uint32_t token);

#endif
