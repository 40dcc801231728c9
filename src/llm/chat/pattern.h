/* llm/chat/pattern.h - a simple regular expression as GBNF, for the strings of a JSON schema.
 *
 * Literals, ., classes, \d \w \s, groups, alternatives, * + ? {m,n}, ^ at the beginning, $ at the
 * end; without them the rest of the string is free.  Others are refused by name.
 *
 * Trust: a pattern is a client's.  Threads: any. */
#ifndef HAWSER_LLM_CHAT_PATTERN_H
#define HAWSER_LLM_CHAT_PATTERN_H

#include "llm/chat/schema_text.h"
#include "llm/model/why.h"

/* Appends an expression for the inside of a JSON string.  0; -EINVAL; -EOPNOTSUPP; -E2BIG. */
int llm_pattern_gbnf(const char *pattern, size_t bytes, struct schema_text *t,
                     char *why) MUST_CHECK;

#endif
