/* Answers in OpenAI's form.  json_pack's "o" takes a reference, also when it fails. */
#include "base/text/gather.h"
#include "serve/http/impl.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *finish_name(const struct http_choice *choice)
{
    switch (choice->finish) {
    case HTTP_FINISH_STOP:
        return http_whole_calls(choice) > 0 ? "tool_calls" : "stop";
    case HTTP_FINISH_LENGTH:
        return "length";
    default:
        return NULL;
    }
}

/* null where none was asked for. */
static json_t *logprobs_of(const struct http_choice *choice, uint32_t from, uint32_t to)
{
    const struct http_request *r = &choice->exchange->request;
    if (!r->logprobs)
        return json_null();
    return r->api == HTTP_CHAT
               ? json_pack("{s:o, s:n}", "content", http_chat_logprobs(choice, from, to), "refusal")
               : http_text_logprobs(choice, from, to);
}

/* ---- parts ---- */

static json_t *usage_of(const struct http_exchange *x)
{
    uint64_t generated = 0, shared = 0, reasoning = 0;
    for (uint32_t i = 0; i < x->choice_count; i++) {
        const struct http_sequence *s = &x->choices[i].sequence;
        generated += s->token_count - s->prompt_count;
        reasoning += x->choices[i].reasoning_tokens;
        if (i % x->request.n == 0)
            shared += s->shared;
    }
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I}}", "prompt_tokens",
                     (json_int_t)x->prompt_tokens, "completion_tokens", (json_int_t)generated,
                     "total_tokens", (json_int_t)(x->prompt_tokens + generated),
                     "prompt_tokens_details", "cached_tokens", (json_int_t)shared,
                     "completion_tokens_details", "reasoning_tokens", (json_int_t)reasoning);
}

static json_t *envelope(const struct http_exchange *x, const char *object, json_t *choices)
{
    char fingerprint[24];
    const uint8_t *h = x->model->hash;
    snprintf(fingerprint, sizeof(fingerprint), "hawser-%02x%02x%02x%02x", h[0], h[1], h[2], h[3]);
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", x->name, "object", object, "created",
                     (json_int_t)x->created, "model", x->model->name, "system_fingerprint",
                     fingerprint, "choices", choices);
}

/* A completion's text, after its prompt where that is to be repeated. */
static json_t *completion_text(const struct http_choice *choice, size_t from, size_t to, bool echo)
{
    const struct http_prompt *prompt = &choice->exchange->request.prompts[choice->prompt];
    const struct http_model *m = choice->sequence.model;
    struct hw_gathered text;
    size_t len;
    if (!echo)
        return json_stringn(choice->text.text ? choice->text.text + from : "", to - from);
    FILE *out = hw_gather(&text);
    if (out && prompt->text)
        fwrite(prompt->text, 1, prompt->bytes, out);
    for (uint32_t i = 0; out && !prompt->text && i < prompt->token_count; i++) {
        size_t bytes;
        const char *piece = llm_vocab_piece(m->vocab, prompt->tokens[i], i == 0, &bytes);
        fwrite(piece, 1, bytes, out);
    }
    if (out && to > from)
        fwrite(choice->text.text + from, 1, to - from, out);
    char *clean =
        hw_gather_end(out, &text) == 0 ? http_text_clean(text.text, text.len, &len) : NULL;
    json_t *string = clean ? json_stringn(clean, len) : NULL;
    free(clean);
    free(text.text);
    return string;
}

/* ---- a whole answer ---- */

static json_t *whole_choice(const struct http_choice *choice)
{
    const struct http_request *r = &choice->exchange->request;
    json_t *logprobs = logprobs_of(choice, 0, http_logprobs_due(choice, 0, choice->text.len, true));
    if (r->api == HTTP_COMPLETIONS)
        return json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)choice->index, "text",
                         completion_text(choice, 0, choice->text.len, r->echo), "logprobs",
                         logprobs, "finish_reason", finish_name(choice));
    const struct http_text *text = http_choice_text(choice);
    /* One that was cut off is left out: its arguments are no JSON. */
    size_t calls = http_whole_calls(choice);
    json_t *message = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content",
                                (calls || r->must_call) && text->len == 0
                                    ? json_null()
                                    : json_stringn(text->text ? text->text : "", text->len),
                                "refusal");
    if (choice->reasoning.len)
        json_object_set_new(message, "reasoning_content",
                            json_stringn(choice->reasoning.text, choice->reasoning.len));
    json_t *list = calls ? json_array() : NULL;
    for (size_t i = 0; i < calls; i++)
        json_array_append_new(list, llm_tools_call(choice->tools, i, false));
    if (list)
        json_object_set_new(message, "tool_calls", list);
    return json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)choice->index, "message",
                     message, "logprobs", logprobs, "finish_reason", finish_name(choice));
}

char *http_answer_whole(const struct http_exchange *x, size_t *len)
{
    if (x->request.asked)
        return http_json_text(x->request.form == HTTP_RESPONSES ? http_responses_whole(x)
                                                                : http_messages_whole(x),
                              len);
    json_t *choices = json_array();
    for (uint32_t i = 0; i < x->choice_count; i++)
        json_array_append_new(choices, whole_choice(&x->choices[i]));
    json_t *answer =
        envelope(x, x->request.api == HTTP_CHAT ? "chat.completion" : "text_completion", choices);
    json_object_set_new(answer, "usage", usage_of(x));
    return http_json_text(answer, len);
}

/* ---- chunks ---- */

static void put_escape(struct wire_enc *out, unsigned char c)
{
    char escape[8];
    const char *short_ones = "\"\"\\\\\bb\ff\nn\rr\tt";
    for (; *short_ones; short_ones += 2) {
        if ((unsigned char)short_ones[0] == c) {
            snprintf(escape, sizeof(escape), "\\%c", short_ones[1]);
            http_put_text(out, escape);
            return;
        }
    }
    snprintf(escape, sizeof(escape), "\\u%04x", c);
    http_put_text(out, escape);
}

/* A JSON string of UTF-8. */
static void put_string(struct wire_enc *out, const char *text, size_t len)
{
    size_t from = 0;
    http_put_text(out, "\"");
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        wire_put_bytes(out, text + from, i - from);
        put_escape(out, c);
        from = i + 1;
    }
    wire_put_bytes(out, text + from, len - from);
    http_put_text(out, "\"");
}

/* What all chunks of an answer begin with, up to their choices: made once. */
static void put_chunk_begin(struct wire_enc *out, struct http_exchange *x)
{
    if (!x->chunk_begin) {
        const char *object =
            x->request.api == HTTP_CHAT ? "chat.completion.chunk" : "text_completion";
        x->chunk_begin = http_json_text(envelope(x, object, json_array()), &x->chunk_begin_len);
        if (x->chunk_begin)
            x->chunk_begin_len -= 2; /* "]}" */
    }
    http_put_text(out, "data: ");
    if (x->chunk_begin)
        wire_put_bytes(out, x->chunk_begin, x->chunk_begin_len);
    else
        wire_enc_fail(out, -ENOMEM);
}

static void put_chunk_end(struct wire_enc *out, const struct http_exchange *x, bool has_choice)
{
    http_put_text(out, "]");
    if (x->request.include_usage)
        http_put_text(out, ",\"usage\":");
    if (x->request.include_usage && has_choice)
        http_put_text(out, "null");
    else if (x->request.include_usage)
        http_put_json(out, usage_of(x));
    http_put_text(out, "}\n\n");
}

/* A chunk of the text, or of a delta's member, alone: one for each token, so without a tree. */
static void put_text_chunk(struct wire_enc *out, const struct http_choice *choice,
                           const char *member, const char *text, size_t len)
{
    struct http_exchange *x = choice->exchange;
    bool chat = x->request.api == HTTP_CHAT;
    char index[32];
    snprintf(index, sizeof(index), "{\"index\":%u,", choice->index);
    put_chunk_begin(out, x);
    http_put_text(out, index);
    http_put_text(out, chat ? "\"delta\":{\"" : "\"");
    http_put_text(out, member);
    http_put_text(out, "\":");
    put_string(out, text, len);
    http_put_text(out, chat ? "},\"logprobs\":null,\"finish_reason\":null}"
                            : ",\"logprobs\":null,\"finish_reason\":null}");
    put_chunk_end(out, x, true);
}

/* Any other; choice NULL: the usage, without a choice. */
static void put_chunk(struct wire_enc *out, struct http_exchange *x, json_t *choice)
{
    put_chunk_begin(out, x);
    if (choice)
        http_put_json(out, choice);
    put_chunk_end(out, x, choice != NULL);
}

static json_t *chunk_choice(const struct http_choice *choice, json_t *part, json_t *logprobs,
                            const char *finish)
{
    bool chat = choice->exchange->request.api == HTTP_CHAT;
    return json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)choice->index,
                     chat ? "delta" : "text", part, "logprobs", logprobs, "finish_reason", finish);
}

/* Who speaks, before what is said; or the prompt again. */
static void put_begin(struct wire_enc *out, struct http_choice *choice)
{
    const struct http_request *r = &choice->exchange->request;
    uint32_t logprobs = choice->prompt_logprobs;
    choice->begun = true;
    json_t *part = NULL;
    if (r->api == HTTP_CHAT)
        part = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
    else if (r->echo)
        part = completion_text(choice, 0, 0, true);
    if (part)
        put_chunk(out, choice->exchange,
                  chunk_choice(choice, part,
                               logprobs ? logprobs_of(choice, 0, logprobs) : json_null(), NULL));
    choice->logprobs_sent = logprobs;
}

static void put_call(struct wire_enc *out, const struct http_choice *choice, size_t index,
                     json_t *call)
{
    json_object_set_new(call, "index", json_integer((json_int_t)index));
    put_chunk(out, choice->exchange,
              chunk_choice(choice, json_pack("{s:[o]}", "tool_calls", call), json_null(), NULL));
}

/* Each call begins with its name; then its arguments come as they are generated. */
static void put_calls(struct wire_enc *out, struct http_choice *choice)
{
    size_t count = choice->tools ? llm_tools_count(choice->tools) : 0;
    for (size_t i = choice->calls_begun ? choice->calls_begun - 1 : 0; i < count; i++) {
        const char *text;
        size_t bytes;
        if (http_take_call(choice, i, &text, &bytes))
            put_call(out, choice, i, llm_tools_call(choice->tools, i, true));
        if (bytes)
            put_call(out, choice, i,
                     json_pack("{s:{s:o}}", "function", "arguments", json_stringn(text, bytes)));
    }
}

static void put_choice(struct wire_enc *out, struct http_choice *choice)
{
    struct http_exchange *x = choice->exchange;
    bool last = choice->finish != HTTP_FINISH_NONE, chat = x->request.api == HTTP_CHAT;
    const char *text;
    uint32_t due = http_logprobs_due(choice, choice->logprobs_sent, choice->text.shown, last);
    if (choice->finish_sent || (!last && !http_choice_has_news(choice)))
        return;
    if (!choice->begun)
        put_begin(out, choice);
    size_t bytes = http_take_text(&choice->reasoning, &choice->reasoning_sent, &text);
    if (bytes)
        put_text_chunk(out, choice, "reasoning_content", text, bytes);
    bytes = http_take_text(http_choice_text(choice), &choice->text_sent, &text);
    if (bytes && !x->request.logprobs) {
        put_text_chunk(out, choice, chat ? "content" : "text", text, bytes);
    } else if (bytes || due > choice->logprobs_sent) {
        json_t *part = json_stringn(text, bytes);
        json_t *logprobs = logprobs_of(choice, choice->logprobs_sent, due);
        if (chat && bytes) {
            part = json_pack("{s:o}", "content", part);
        } else if (chat) { /* of a tool call, which follows */
            json_decref(part);
            part = json_object();
        }
        put_chunk(out, x, chunk_choice(choice, part, logprobs, NULL));
    }
    choice->logprobs_sent = due;
    put_calls(out, choice);
    if (last && finish_name(choice)) {
        json_t *nothing = chat ? json_object() : json_string("");
        put_chunk(out, x, chunk_choice(choice, nothing, json_null(), finish_name(choice)));
    }
    choice->finish_sent = last;
}

static void put_end(struct wire_enc *out, struct http_exchange *x)
{
    if (x->error.status) {
        http_put_text(out, "data: ");
        http_put_json(out, http_error_json(&x->error, false));
        http_put_text(out, "\n\n");
    } else {
        if (x->request.include_usage)
            put_chunk(out, x, NULL);
        http_put_text(out, "data: [DONE]\n\n");
    }
    x->done_sent = true;
}

void http_answer_chunks(struct http_exchange *x)
{
    wire_enc_reset(&x->out);
    if (x->done_sent)
        return;
    if (x->request.asked) {
        (x->request.form == HTTP_RESPONSES ? http_responses_events : http_messages_events)(x);
        return;
    }
    for (uint32_t i = 0; i < x->choice_count; i++)
        put_choice(&x->out, &x->choices[i]);
    if (x->open == 0)
        put_end(&x->out, x);
}

/* ---- others ---- */

/* No worker has its weights on a device: the next request waits for them. */
static bool is_aside(const struct http_front *f, const struct http_model *m)
{
    bool found = false;
    for (size_t i = 0; i < f->worker_count; i++) {
        const struct http_worker *w = &f->workers[i];
        int k = w->state == HTTP_WORKER_UP ? http_worker_model(w, m) : -1;
        if (k >= 0 && !w->served.models[k].is_aside)
            return false;
        found |= k >= 0;
    }
    return found;
}

static json_t *describe_model(const struct http_front *f, const struct http_model *m)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:I, s:b}", "id", m->name, "object", "model", "created",
                     (json_int_t)m->created, "owned_by", "hawser", "max_model_len",
                     (json_int_t)http_model_context(f, m), "weights_aside", is_aside(f, m));
}

char *http_answer_models(struct http_front *f, size_t *len)
{
    http_models_wait(f, NULL);
    json_t *list = json_array();
    for (size_t i = 0; i < f->model_count; i++) {
        if (http_model_is_up(f, f->models[i]))
            json_array_append_new(list, describe_model(f, f->models[i]));
    }
    return http_json_text(json_pack("{s:s, s:o}", "object", "list", "data", list), len);
}

char *http_answer_model(const struct http_front *f, const struct http_model *m, size_t *len)
{
    return http_json_text(describe_model(f, m), len);
}

char *http_answer_error(const struct http_error *e, bool anthropic, size_t *len)
{
    return http_json_text(http_error_json(e, anthropic), len);
}

char *http_answer_count(const struct http_exchange *x, size_t *len)
{
    return http_json_text(json_pack("{s:I}", "input_tokens", (json_int_t)x->prompt_tokens), len);
}
