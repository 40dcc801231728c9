/* llm/chat/tools_values.h - arguments of calls that are not written as JSON, as JSON.
 *
 * Private to src/llm/chat.  Trust: a model's text is any bytes; depth is bounded.  Threads: any.
 * Lifetime: none. */
#ifndef HAWSER_LLM_CHAT_TOOLS_VALUES_H
#define HAWSER_LLM_CHAT_TOOLS_VALUES_H

#include <jansson.h>

enum { TOOLS_VALUES_DEPTH_MAX = 32 };

/* The value of a parameter: text where the schema (NULL: none) allows that, else JSON if it is any,
 * or one of Python's words, which templates show. */
json_t *llm_tools_value(const json_t *schema, const char *text, size_t bytes);

/* KEY: VALUE or KEY = VALUE, with commas between, up to `last`, ')' or '}': values as of JSON or
 * Python, keys and strings also between `quote` (NULL: none).  A quote that nothing ends after is
 * part of its string.  *bytes: of the text, then those taken, with `last`.  NULL: it is something
 * else. */
json_t *llm_tools_loose(const char *text, size_t *bytes, char last, const char *quote);

/* <KEY>VALUE</KEY>, each tag after `mark`; a value is text, or again such a list, which of items is
 * an array unless its schema has a member of that name.  properties: schemas of the keys.  NULL: it
 * is something else. */
json_t *llm_tools_tree(const char *text, size_t bytes, const char *mark, const json_t *properties);

#endif
