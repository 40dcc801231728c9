/* serve/http/request.h - a request in OpenAI's form, from JSON to checked fields.
 *
 * A field that is missing or null has its default; one of another type or out of range is refused
 * with a message that names it, and so is one that would be missed in the answer (unserved.c);
 * other fields that nobody knows are ignored, as OpenAI's servers do.
 *
 * Trust: any bytes.  Threads: any.  Lifetime: parse/fini; strings point into `json`. */
#ifndef HAWSER_SERVE_HTTP_REQUEST_H
#define HAWSER_SERVE_HTTP_REQUEST_H

#include "llm/worker/generate.h"
#include "serve/http/answer/text.h"
#include "serve/http/error.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    HTTP_BODY_BYTES_MAX = 16 << 20, /* the longest text, with escapes */
    HTTP_CHOICES_MAX = 64,          /* prompts times n: as many as a step takes */
    HTTP_INPUTS_MAX = 2048,         /* of one request for embeddings, as OpenAI's */
    HTTP_MAX_TOKENS_DEFAULT = 16    /* of a completion, as OpenAI's; a chat goes on to the end */
};

/* Those from HTTP_RESPONSES on are forms of a chat, and their requests become one. */
enum http_api {
    HTTP_COMPLETIONS,
    HTTP_CHAT,
    HTTP_EMBEDDINGS,
    HTTP_RESPONSES,
    HTTP_MESSAGES,
    HTTP_COUNT_TOKENS /* of a request of HTTP_MESSAGES */
};

enum http_format { HTTP_FORMAT_TEXT, HTTP_FORMAT_JSON, HTTP_FORMAT_SCHEMA };

/* Text, or tokens where text is NULL. */
struct http_prompt {
    const char *text;
    size_t bytes;
    uint32_t *tokens;
    uint32_t token_count;
};

struct http_request {
    json_t *json;       /* the whole body */
    json_t *asked;      /* of a form of a chat: from which json was made; else NULL */
    enum http_api form; /* as the client asks */
    enum http_api api;  /* the same, or the chat that it became */
    const char *model;  /* NULL: not named */
    struct http_prompt *prompts;
    uint32_t prompt_count;
    const json_t *messages;     /* chat */
    const char *prefill;        /* chat: what the answer begins with; NULL: nothing */
    const json_t *variables;    /* chat: for the template; NULL: none */
    bool keep_reasoning;        /* chat: reasoning stays in the text */
    const json_t *tools;        /* chat: NULL: none */
    bool must_call;             /* the answer is calls of tools, and nothing else */
    bool parallel_calls;        /* an answer may have several */
    const char *must_call_name; /* of a function; NULL: any */
    struct llm_sampling sampling;
    struct llm_bias *biases;
    bool has_seed;
    uint32_t max_tokens; /* 0: of a chat as many as fit, of a completion none */
    uint32_t n;
    bool stream, include_usage, echo;
    bool logprobs;
    uint32_t top_logprobs;
    struct http_stops stops;
    struct http_prompt stop_tokens; /* that end a text, beside the model's */
    bool ignore_end;                /* an end token of the model ends no text */
    enum http_format format;
    const json_t *schema; /* HTTP_FORMAT_SCHEMA */
    bool base64;          /* embeddings: not as numbers */
    uint32_t dimensions;  /* embeddings: that the client expects; 0: any */
    const char *grammar;  /* GBNF, as llama.cpp's clients send it; NULL: none */
};

/* 0, or -1 and why; *out is written only on 0. */
int http_request_parse(const char *body, size_t bytes, enum http_api api, struct http_request *out,
                       struct http_error *why) MUST_CHECK;
void http_request_fini(struct http_request *r);
/* Whether an allocation of jansson's has failed in this thread since this was asked last. */
bool http_json_failed(void);
/* Whether it asks for nothing that would be missed if it were ignored; else why. */
bool http_request_is_served(const json_t *asked, struct http_error *why);
/* What the client calls a field of a chat. */
const char *http_request_name(const struct http_request *r, const char *name);
/* A request of the Responses API as one of a chat: a new reference, or NULL and why. */
json_t *http_responses_to_chat(const json_t *asked, struct http_error *why);
/* The same of the Messages API; counted: only its prompt is wanted. */
json_t *http_messages_to_chat(const json_t *asked, bool counted, struct http_error *why);

/* /tokenize: {"prompt" or "content": text, "add_special_tokens": bool}.
 * /detokenize: {"tokens": [...]}. */
struct http_tokenize {
    json_t *json;
    const char *model;
    struct http_prompt prompt;
    bool add_special;
};
int http_tokenize_parse(const char *body, size_t bytes, bool reverse, struct http_tokenize *out,
                        struct http_error *why) MUST_CHECK;
void http_tokenize_fini(struct http_tokenize *r);

#endif
