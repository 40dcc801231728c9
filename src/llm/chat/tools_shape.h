/* llm/chat/tools_shape.h - how a form of tool calls is written, for its parser and its grammar.
 *
 * A pattern is text in which ' ' stands for any blanks or none, and a control character for
 * what is found there: \1 the function's name, \2 the value of an argument, \3 its key, \4
 * anything; the last three end where the text after them begins.
 *
 * Private to src/llm/chat.  Threads: read-only.  Lifetime: static. */
#ifndef HAWSER_LLM_CHAT_TOOLS_SHAPE_H
#define HAWSER_LLM_CHAT_TOOLS_SHAPE_H

#include "llm/chat/tools.h"

enum {
    TOOLS_ID_CHARS = 9,         /* of a call */
    TOOLS_NAME_BYTES_MAX = 256, /* of a function; OpenAI allows 64 */
    TOOLS_MARKS_MAX = 3,        /* of a kind, in a form */
    /* Read as arguments of what turned out to be no call, in an answer: a model that is as wrong as
     * that writes no calls, and a text of openings would be read once for each. */
    TOOLS_WASTED_BYTES_MAX = 4 * LLM_TOOL_CALL_BYTES_MAX,
};

struct tools_shape {
    const char *tells[2]; /* a template that holds these is for this form */
    bool tells_alone;     /* one of these is enough */
    /* What a parser looks for: */
    const char *open[TOOLS_MARKS_MAX];  /* one of these begins a call or a list of calls; those
                                           after it in this order may follow */
    const char *heads[2];               /* patterns, then, up to arguments; or calls are objects */
    const char *tag;                    /* the pattern of an argument; NULL: arguments are JSON */
    const char *tree;                   /* arguments are llm_tools_tree's, with this mark */
    const char *tag_end;                /* after the last of them */
    const char *loose;                  /* arguments are llm_tools_loose's: what ends them, then
                                           what quotes; `close` comes for certain */
    const char *close[TOOLS_MARKS_MAX]; /* any of these may follow a call */
    const char *id;                     /* of a call: \1 the name, \2 its number; NULL: random */
    const char *prompt;                 /* a mark that the prompt ends with, which the model goes on
                                           from without blanks */
    const char *text;                   /* with this mark no call begins, and it is no content */
    bool list;                          /* calls may be a JSON array */
    bool whole_text;                    /* calls are the whole answer, and `open` may be missing */
    /* What a grammar produces; \1 the name, \2 the arguments, \3 an id or nothing: */
    const char *begin, *call, *between, *end; /* between NULL: one call only */
};

const struct tools_shape *llm_tools_shape(enum llm_tools_form form);

#endif
