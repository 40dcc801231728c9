/* llm/chat/chat.h - from messages, as OpenAI's clients send them, to a model's prompt and tokens.
 *
 * Trust: messages, tools and variables are a client's, the template is a file's; what is wrong with
 * messages is said with the path of the field.  Threads: any once created.  Lifetime:
 * create/destroy; a chat of a file lives within its file. */
#ifndef HAWSER_LLM_CHAT_CHAT_H
#define HAWSER_LLM_CHAT_CHAT_H

#include "llm/chat/template.h"
#include "llm/chat/tools.h"
#include "llm/tokenizer/vocab.h"

enum { LLM_CHAT_MESSAGES_MAX = 4096 }; /* of one conversation */

struct llm_chat;

/* The template of the file (tokenizer.chat_template, and tokenizer.chat_template.tool_use for
 * requests with tools).  fallback: ChatML where the file has none.
 * 0; -ENOENT (no template and no fallback); otherwise as llm_template_parse. */
int llm_chat_create(const struct llm_file *file, const struct llm_vocab *vocab, bool fallback,
                    struct llm_chat **out, char *why) MUST_CHECK;
/* The same from metadata, which may be NULL: none. */
struct gguf;
int llm_chat_create_gguf(const struct gguf *gguf, const struct llm_vocab *vocab, bool fallback,
                         struct llm_chat **out, char *why) MUST_CHECK;
/* The same from a template's text.  bos, eos: the texts of these tokens; copied. */
int llm_chat_create_text(const char *text, size_t bytes, const char *bos, const char *eos,
                         struct llm_chat **out, char *why) MUST_CHECK;
void llm_chat_destroy(struct llm_chat *chat);

bool llm_chat_is_fallback(const struct llm_chat *chat); /* the file had no template */
/* How the model writes tool calls, told from the template. */
enum llm_tools_form llm_chat_tools_form(const struct llm_chat *chat);
/* Content begins with a mark: where it does, no call can begin. */
bool llm_chat_marks_content(const struct llm_chat *chat);

/* What a model writes around its reasoning, before the answer. */
struct llm_chat_marks {
    const char *open, *close;
    const char *drop[4]; /* around parts of the answer, which are no content; reasoning may then
                            also follow such a part */
    const char *tell;    /* a template that holds it is of such a model; NULL: `close` */
    const char *next;    /* begins a message after reasoning; NULL: the answer follows at once */
    const char *content; /* begins content, after that or a prompt; NULL: nothing does */
};
/* Told from the template, too.  NULL: the model does not reason; else static. */
const struct llm_chat_marks *llm_chat_reasoning(const struct llm_chat *chat);
/* The prompt ends within reasoning: the model does not write the opening mark again. */
bool llm_chat_ends_open(const struct llm_chat_marks *marks, const char *prompt, size_t bytes);
/* As llm_vocab_piece, but a control token within the marks has its name as its text. */
const char *llm_chat_piece(const struct llm_chat_marks *marks, const struct llm_vocab *vocab,
                           uint32_t token, size_t *bytes);

struct llm_chat_request {
    const json_t *messages;  /* an array */
    const json_t *tools;     /* an array or NULL */
    const json_t *variables; /* more of the template's variables: an object or NULL */
    bool open;               /* the prompt ends where the assistant's answer begins */
    const char *answer;      /* content that it begins with, without reasoning; NULL: nothing */
    int64_t time_now;        /* seconds since 1970 */
};

/* Checks the messages (without a template, too): 0 or -EINVAL, and why names the field. */
int llm_chat_check(const json_t *messages, const json_t *tools, char *why) MUST_CHECK;

/* *out: *bytes bytes and a NUL, to be freed with free().  0; -EINVAL (a wrong field, or the
 * template refused the conversation); otherwise as llm_template_render. */
int llm_chat_prompt(const struct llm_chat *chat, const struct llm_chat_request *request, char **out,
                    size_t *bytes, char *why) MUST_CHECK;

/* A prompt's tokens: names of control tokens become those tokens, and the text begins with one bos
 * where the vocabulary wants one, never with two.  As llm_vocab_encode. */
int64_t llm_chat_encode(const struct llm_vocab *vocab, const char *prompt, size_t bytes,
                        uint32_t *tokens, size_t room);

#endif
