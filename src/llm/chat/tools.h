/* llm/chat/tools.h - tool calls in an assistant's text, as OpenAI's clients expect them.
 *
 * A parser takes the text as it is generated.  Text that may begin a call is held back until it is
 * clear; what is no call comes out as content.  Forms:
 *   HERMES   <tool_call>{"name": ..., "arguments": {...}}</tool_call>, several
 *   LLAMA    {"name": ..., "parameters": {...}} as the whole text, several with ';' between,
 *            after <|python_tag|> or not
 *   MISTRAL  [TOOL_CALLS] and an array of {"name", "arguments", "id"}, or NAME[ARGS]{...}
 *   TAGGED   <function=NAME>{...}</function>, several
 *
 * Trust: a model's text is any bytes.  A call that is no JSON, or names none of the tools, is
 * content. Threads: one at a time.  Lifetime: create/destroy. */
#ifndef HAWSER_LLM_CHAT_TOOLS_H
#define HAWSER_LLM_CHAT_TOOLS_H

#include "base/attr.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum llm_tools_form {
    LLM_TOOLS_NONE, /* calls are not looked for */
    LLM_TOOLS_HERMES,
    LLM_TOOLS_LLAMA,
    LLM_TOOLS_MISTRAL,
    LLM_TOOLS_TAGGED,
};

enum {
    LLM_TOOL_CALLS_MAX = 128,          /* of one answer */
    LLM_TOOL_CALL_BYTES_MAX = 1 << 20, /* of one call; longer is content */
};

/* By what the template contains. */
enum llm_tools_form llm_tools_form_of(const char *text, size_t bytes);

struct llm_tools;

/* tools: the request's array, whose names are the ones that can be called; NULL: any name.
 * 0 or -ENOMEM. */
int llm_tools_create(enum llm_tools_form form, const json_t *tools,
                     struct llm_tools **out) MUST_CHECK;
void llm_tools_destroy(struct llm_tools *tools);

/* More of the answer.  *content: what is clear to be content now, valid until the next call; may be
 * empty.  0 or -ENOMEM. */
int llm_tools_feed(struct llm_tools *tools, const char *text, size_t bytes, const char **content,
                   size_t *content_bytes) MUST_CHECK;
/* The answer is over: what was held back is a call, or content as above. */
int llm_tools_end(struct llm_tools *tools, const char **content, size_t *content_bytes) MUST_CHECK;

/* The calls that are complete so far; index below the count.  Each is {"id", "type": "function",
 * "function": {"name", "arguments"}}, arguments a string of JSON.  Borrowed. */
size_t llm_tools_count(const struct llm_tools *tools);
json_t *llm_tools_call(const struct llm_tools *tools, size_t index);

#endif
