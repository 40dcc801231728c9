/* Answers of Anthropic's Messages API: the same choice as a chat's, written as blocks.
 *
 * Blocks follow each other: one ends before the next begins.  A call that was cut off, or whose
 * arguments are no JSON, is begun in a stream, and is not in a whole answer. */
#include "serve/http/impl.h"

#include <string.h>

/* begin: as long as nothing is there. */
static json_t *usage_of(const struct http_exchange *x, bool begin)
{
    const struct http_sequence *s = &x->choices[0].sequence;
    json_int_t cached = begin ? 0 : s->shared;
    return json_pack("{s:I, s:i, s:I, s:I}", "input_tokens", (json_int_t)x->prompt_tokens - cached,
                     "cache_creation_input_tokens", 0, "cache_read_input_tokens", cached,
                     "output_tokens", begin ? 0 : (json_int_t)s->token_count - s->prompt_count);
}

/* The arguments of a call.  A client's library takes nothing but an object; NULL: they are
 * something else.  A number beyond 64 bits makes all of its call floats: as those of JavaScript
 * are. */
static json_t *input_of(const struct http_choice *choice, size_t call)
{
    const char *text;
    size_t bytes = llm_tools_arguments(choice->tools, call, &text);
    json_t *input = bytes ? json_loadb(text, bytes, JSON_ALLOW_NUL, NULL) : json_object();
    if (!input)
        input = json_loadb(text, bytes, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    if (json_is_object(input))
        return input;
    json_decref(input);
    return NULL;
}

static bool has_call(const struct http_choice *choice)
{
    json_t *input = NULL;
    for (size_t i = 0; !input && i < http_whole_calls(choice); i++)
        input = input_of(choice, i);
    json_decref(input);
    return input != NULL;
}

static const char *reason_of(const struct http_choice *choice)
{
    if (choice->finish == HTTP_FINISH_LENGTH)
        return "max_tokens";
    if (choice->finish != HTTP_FINISH_STOP)
        return NULL;
    return has_call(choice) ? "tool_use" : choice->text.stopped ? "stop_sequence" : "end_turn";
}

static const char *stop_of(const struct http_choice *choice)
{
    return choice->text.stopped ? choice->exchange->request.stops.items[choice->text.stop].bytes
                                : NULL;
}

/* kind: "text" or "thinking", which has that member, too. */
static json_t *text_block(const char *kind, const char *text, size_t bytes)
{
    json_t *block = json_pack("{s:s, s:o}", "type", kind, kind, json_stringn(text, bytes));
    if (strcmp(kind, "thinking") == 0)
        json_object_set_new(block, "signature", json_string(""));
    return block;
}

/* Takes the input. */
static json_t *call_block(const struct http_choice *choice, size_t call, json_t *input)
{
    json_t *whole = llm_tools_call(choice->tools, call, true);
    json_t *function = json_object_get(whole, "function");
    json_t *block =
        json_pack("{s:s, s:O, s:O, s:o}", "type", "tool_use", "id", json_object_get(whole, "id"),
                  "name", json_object_get(function, "name"), "input", input);
    json_decref(whole);
    return block;
}

static json_t *content_of(const struct http_choice *choice)
{
    const struct http_text *text = http_choice_text(choice), *thought = &choice->reasoning;
    json_t *content = json_array();
    if (thought->len)
        json_array_append_new(content, text_block("thinking", thought->text, thought->len));
    if (text->len)
        json_array_append_new(content, text_block("text", text->text, text->len));
    for (size_t i = 0; i < http_whole_calls(choice); i++) {
        json_t *input = input_of(choice, i);
        if (input)
            json_array_append_new(content, call_block(choice, i, input));
    }
    return content;
}

static json_t *message_of(const struct http_exchange *x, bool begin)
{
    const struct http_choice *choice = &x->choices[0];
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s?, s:s?, s:o}", "id", x->name, "type", "message",
                     "role", "assistant", "model", x->model->name, "content",
                     begin ? json_array() : content_of(choice), "stop_reason",
                     begin ? NULL : reason_of(choice), "stop_sequence",
                     begin ? NULL : stop_of(choice), "usage", usage_of(x, begin));
}

json_t *http_messages_whole(const struct http_exchange *x)
{
    return message_of(x, false);
}

/* ---- events ---- */

static void end_block(struct http_choice *choice)
{
    struct http_exchange *x = choice->exchange;
    if (choice->block)
        http_put_event(x, "content_block_stop",
                       json_pack("{s:I}", "index", (json_int_t)x->events - 1));
    choice->block = NULL;
}

/* Takes the block. */
static void begin_block(struct http_choice *choice, const char *kind, json_t *block)
{
    struct http_exchange *x = choice->exchange;
    end_block(choice);
    choice->block = kind;
    http_put_event(
        x, "content_block_start",
        json_pack("{s:I, s:o}", "index", (json_int_t)x->events++, "content_block", block));
}

static void put_delta(const struct http_choice *choice, const char *type, const char *member,
                      const char *text, size_t bytes)
{
    struct http_exchange *x = choice->exchange;
    http_put_event(x, "content_block_delta",
                   json_pack("{s:I, s:{s:s, s:o}}", "index", (json_int_t)x->events - 1, "delta",
                             "type", type, member, json_stringn(text, bytes)));
}

static void put_text(struct http_choice *choice, const char *kind, const char *delta,
                     const struct http_text *from, size_t *sent)
{
    const char *text;
    size_t bytes = http_take_text(from, sent, &text);
    if (bytes && choice->block != kind)
        begin_block(choice, kind, text_block(kind, "", 0));
    if (bytes)
        put_delta(choice, delta, kind, text, bytes);
}

static void put_calls(struct http_choice *choice, size_t count)
{
    for (size_t i = choice->calls_begun ? choice->calls_begun - 1 : 0; i < count; i++) {
        const char *text;
        size_t bytes;
        if (http_take_call(choice, i, &text, &bytes))
            begin_block(choice, "tool_use", call_block(choice, i, json_object()));
        if (bytes)
            put_delta(choice, "input_json_delta", "partial_json", text, bytes);
    }
}

static void put_end(struct http_choice *choice)
{
    struct http_exchange *x = choice->exchange;
    end_block(choice);
    if (x->error.status) {
        http_put_event(x, "error", http_error_json(&x->error, true));
    } else {
        http_put_event(x, "message_delta",
                       json_pack("{s:{s:s?, s:s?}, s:o}", "delta", "stop_reason", reason_of(choice),
                                 "stop_sequence", stop_of(choice), "usage", usage_of(x, false)));
        http_put_event(x, "message_stop", json_object());
    }
    choice->finish_sent = x->done_sent = true;
}

void http_messages_events(struct http_exchange *x)
{
    static const char thinking[] = "thinking", text[] = "text";
    struct http_choice *choice = &x->choices[0];
    if (!choice->begun) {
        choice->begun = true;
        http_put_event(x, "message_start", json_pack("{s:o}", "message", message_of(x, true)));
        http_put_event(x, "ping", json_object());
    }
    put_calls(choice, choice->calls_begun); /* the rest of one: before what follows it */
    put_text(choice, thinking, "thinking_delta", &choice->reasoning, &choice->reasoning_sent);
    put_text(choice, text, "text_delta", http_choice_text(choice), &choice->text_sent);
    put_calls(choice, choice->tools ? llm_tools_count(choice->tools) : 0);
    if (choice->finish != HTTP_FINISH_NONE)
        put_end(choice);
}
