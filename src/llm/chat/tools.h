/* llm/chat/tools.h - tool calls in an assistant's text, as OpenAI's clients expect them.
 *
 * A parser takes the text as it is generated.  Text that may begin a call is held back until it is
 * clear; what is no call comes out as content.  Once the function's name and the key of its
 * arguments are there, it is a call: its arguments come out as they are generated, and are JSON
 * only if the model wrote JSON.  A call that is written in another order is taken as a whole.
 * A form is a row of tools_shape.c: marks before a call, then an object {"name", "arguments"}, or
 * the name and arguments in JSON, or the name and a tag for each argument; the last comes out as a
 * whole.
 * The grammar of a form makes a model write calls of the request's functions and nothing else.
 *
 * Trust: a model's text is any bytes, of which arguments are given out only if they are UTF-8.
 * What names none of the tools is content.  Threads: one at a time.  Lifetime: create/destroy. */
#ifndef HAWSER_LLM_CHAT_TOOLS_H
#define HAWSER_LLM_CHAT_TOOLS_H

#include "base/attr.h"
#include "llm/tokenizer/vocab.h"

#include <jansson.h>

enum llm_tools_form {
    LLM_TOOLS_NONE, /* calls are not looked for */
    /* A template that shows marks of several is told by the first of these: */
    LLM_TOOLS_HARMONY,
    LLM_TOOLS_DSML,
    LLM_TOOLS_DEEPSEEK_FENCED,
    LLM_TOOLS_DEEPSEEK,
    LLM_TOOLS_KIMI,
    LLM_TOOLS_KIMI_TAGGED,
    LLM_TOOLS_SOLAR,
    LLM_TOOLS_HUNYUAN,
    LLM_TOOLS_GLM,
    LLM_TOOLS_MINIMAX_TREE,
    LLM_TOOLS_MINIMAX,
    LLM_TOOLS_SEED,
    LLM_TOOLS_MINICPM,
    LLM_TOOLS_GEMMA,
    LLM_TOOLS_LFM,
    LLM_TOOLS_APERTUS,
    LLM_TOOLS_GIGACHAT,
    LLM_TOOLS_APRIEL,
    LLM_TOOLS_HERMES,
    LLM_TOOLS_LINES,
    LLM_TOOLS_MISTRAL_NAMED,
    LLM_TOOLS_MISTRAL,
    LLM_TOOLS_TAGGED,
    LLM_TOOLS_GRANITE,
    LLM_TOOLS_NEMOTRON,
    LLM_TOOLS_FUNCTOOLS,
    LLM_TOOLS_COMMAND,
    LLM_TOOLS_COMMAND_FENCED,
    LLM_TOOLS_RECIPIENT,
    LLM_TOOLS_LLAMA,
    LLM_TOOLS_FORMS, /* how many there are */
};

enum {
    LLM_TOOL_CALLS_MAX = 128,          /* of one answer */
    LLM_TOOL_CALL_BYTES_MAX = 1 << 20, /* of one call; what is longer is content */
};

/* By what the template contains. */
enum llm_tools_form llm_tools_form_of(const char *text, size_t bytes);

/* Answers of this form have marks without calls, too: they are looked for without tools. */
bool llm_tools_marks_text(enum llm_tools_form form);

struct llm_tools;

/* tools: the request's array, whose names are the ones that can be called; NULL: any name.
 * 0 or -ENOMEM. */
int llm_tools_create(enum llm_tools_form form, const json_t *tools,
                     struct llm_tools **out) MUST_CHECK;
void llm_tools_destroy(struct llm_tools *tools);
/* Before any text: the prompt ends within content, not where an answer begins. */
void llm_tools_begin_in_content(struct llm_tools *tools);

/* More of the answer.  *content: what is clear to be content now, valid until the next call; may be
 * empty.  0 or -ENOMEM. */
int llm_tools_feed(struct llm_tools *tools, const char *text, size_t bytes, const char **content,
                   size_t *content_bytes) MUST_CHECK;
/* The answer is over: what was held back is a call, or content as above. */
int llm_tools_end(struct llm_tools *tools, const char **content, size_t *content_bytes) MUST_CHECK;

/* The calls so far; index below the count.  All but the last are complete, and that one is after
 * llm_tools_end unless the answer was cut off in its arguments.  A call is {"id", "type":
 * "function", "function": {"name", "arguments"}}, arguments a string, which is empty with `begin`.
 * A new reference, or NULL. */
size_t llm_tools_count(const struct llm_tools *tools);
/* Those whose arguments are complete. */
size_t llm_tools_whole(const struct llm_tools *tools);
json_t *llm_tools_call(const struct llm_tools *tools, size_t index, bool begin);
/* The arguments of a call so far: bytes; *text is valid until the next call. */
size_t llm_tools_arguments(const struct llm_tools *tools, size_t index, const char **text);

/* As llm_vocab_piece, but a control token within a mark of the form has its name as its text. */
const char *llm_tools_piece(enum llm_tools_form form, const struct llm_vocab *vocab, uint32_t token,
                            size_t *bytes);

/* A grammar, in GBNF, of answers that call functions of `tools`.  name: only this one, once; NULL:
 * any, and several where `parallel` and the form allow it.  *gbnf: *bytes bytes and a NUL, to be
 * freed with free().  0; -EINVAL or -EOPNOTSUPP (why names the function and the keyword of its
 * parameters); -ENOENT (no function has this name); -E2BIG; -ENOMEM. */
int llm_tools_grammar(enum llm_tools_form form, const struct llm_vocab *vocab, const json_t *tools,
                      const char *name, bool parallel, char **gbnf, size_t *bytes,
                      char *why) MUST_CHECK;

#endif
