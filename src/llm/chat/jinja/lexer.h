/* llm/chat/jinja/lexer.h - a template's text as tokens.
 *
 * Private to src/llm/chat.  Whitespace control is done here: "-" and "+" at the ends of tags,
 * trim_blocks (a newline after a tag goes) and lstrip_blocks (blanks before a tag on its line go).
 *
 * Trust: any UTF-8.  Threads: one.  Lifetime: tokens live in the caller's arena. */
#ifndef HAWSER_LLM_CHAT_JINJA_LEXER_H
#define HAWSER_LLM_CHAT_JINJA_LEXER_H

#include "base/arena.h"

#include <stdint.h>

enum token_type {
    TOKEN_END,
    TOKEN_TEXT,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_OUTPUT_BEGIN,
    TOKEN_OUTPUT_END,
    TOKEN_NAME,
    TOKEN_STRING, /* unescaped */
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR, /* text is the operator */
};

struct token {
    uint8_t type;
    uint32_t line;
    uint32_t bytes;
    const char *text;
    int64_t i;
    double f;
};

/* 0; -EINVAL, -EOPNOTSUPP, -ENOMEM with why.  *tokens ends with TOKEN_END. */
int llm_template_tokens(struct hw_arena *arena, const char *text, size_t bytes,
                        const struct token **tokens, char *why);

#endif
