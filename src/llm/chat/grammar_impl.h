/* llm/chat/grammar_impl.h - a grammar as a matcher sees it.
 *
 * Private to src/llm/chat: gbnf.c makes it, matcher.c walks it.  Threads: read-only.
 * Lifetime: as llm/chat/grammar.h. */
#ifndef HAWSER_LLM_CHAT_GRAMMAR_IMPL_H
#define HAWSER_LLM_CHAT_GRAMMAR_IMPL_H

#include "llm/chat/grammar.h"

enum element_kind {
    ELEMENT_END,  /* of an alternative */
    ELEMENT_BYTE, /* value: the byte */
    ELEMENT_SET,  /* value: index into sets */
    ELEMENT_RULE, /* value: index into rules */
};

struct element {
    uint32_t kind : 2;
    uint32_t value : 30;
};

/* A control token has no text.  To a matcher it is these bytes: the first is in no UTF-8, and no
 * piece of text that holds it can match. */
enum { GRAMMAR_TOKEN_BYTES = 5, GRAMMAR_TOKEN_MARK = 0xff };

static inline void grammar_token(uint32_t token, uint8_t out[GRAMMAR_TOKEN_BYTES])
{
    out[0] = GRAMMAR_TOKEN_MARK;
    for (int i = 1; i < GRAMMAR_TOKEN_BYTES; i++, token >>= 8)
        out[i] = (uint8_t)token;
}

struct byte_set {
    uint64_t bits[4];
};

static inline bool byte_set_has(const struct byte_set *set, unsigned byte)
{
    return set->bits[byte / 64] >> (byte % 64) & 1;
}

struct grammar_rule {
    uint32_t first, count; /* of starts */
};

struct llm_grammar {
    struct element *elements;
    uint32_t element_count;
    size_t element_room;
    struct byte_set *sets;
    uint32_t set_count;
    size_t set_room;
    struct grammar_rule *rules;
    uint32_t rule_count;
    size_t rule_room;
    uint32_t *starts; /* of alternatives, in elements; those of a rule are together */
    uint32_t start_count;
    size_t start_room;
    uint32_t root;
    uint8_t class_of[256]; /* bytes of one class are never told apart */
    uint32_t class_count;
};

#endif
