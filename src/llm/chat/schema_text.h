/* llm/chat/schema_text.h - text of a grammar under construction.
 *
 * Private to src/llm/chat.  A failed allocation is kept in `failed`, and later calls do nothing.
 * Threads: one.  Lifetime: the caller frees data. */
#ifndef HAWSER_LLM_CHAT_SCHEMA_TEXT_H
#define HAWSER_LLM_CHAT_SCHEMA_TEXT_H

#include "base/attr.h"
#include "llm/model/why.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct schema_text {
    char *data; /* ends with a NUL that bytes does not count */
    size_t bytes, room;
    bool failed;
};

void llm_schema_put(struct schema_text *t, const char *data, size_t bytes);
void llm_schema_puts(struct schema_text *t, const char *text);
void llm_schema_putf(struct schema_text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Text as a literal of GBNF, quotes included. */
void llm_schema_literal(struct schema_text *t, const char *text, size_t bytes);
/* Gives the text up: 0; -E2BIG for more than a grammar's limit; -ENOMEM. */
int llm_schema_take(struct schema_text *t, char **gbnf, size_t *bytes, char *why) MUST_CHECK;
/* A character within a class. */
void llm_schema_class_char(struct schema_text *t, uint32_t code);

#endif
