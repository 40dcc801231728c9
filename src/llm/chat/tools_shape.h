/* llm/chat/tools_shape.h - how a form of tool calls is written, for its parser and its grammar.
 *
 * Private to src/llm/chat.  Threads: read-only.  Lifetime: static. */
#ifndef HAWSER_LLM_CHAT_TOOLS_SHAPE_H
#define HAWSER_LLM_CHAT_TOOLS_SHAPE_H

#include "llm/chat/tools.h"

enum {
    TOOLS_ID_CHARS = 9,         /* of a call */
    TOOLS_NAME_BYTES_MAX = 256, /* of a function; OpenAI allows 64 */
};

struct tools_shape {
    const char *tells[2]; /* a template that holds one of these is for this form */
    /* What a parser looks for: */
    const char *open;       /* before a call or a list of calls */
    const char *after_name; /* between a bare name and arguments; NULL: calls are objects */
    const char *close;      /* NULL: none */
    bool list;              /* calls may be a JSON array */
    bool parameters;        /* a call may be <function=NAME> and a tag for each parameter */
    bool whole_text;        /* calls are the whole answer, and `open` may be missing */
    /* What a grammar produces; \1 the name, \2 the arguments, \3 an id or nothing: */
    const char *begin, *call, *between, *end; /* between NULL: one call only */
};

const struct tools_shape *llm_tools_shape(enum llm_tools_form form);

#endif
