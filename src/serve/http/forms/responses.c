/* Answers of the Responses API: the same choice as a chat's, written as items and typed events.
 *
 * Items come in the order in which they begin, reasoning before all others.  A message ends with
 * the answer; calls end before it, and one that was cut off never does, and is not in the answer.
 */
#include "serve/http/impl.h"

#include <stdio.h>
#include <string.h>

/* ---- items ---- */

/* KIND_ and the random part of the answer's name. */
static json_t *item_id(const struct http_choice *choice, const char *kind)
{
    return json_sprintf("%s_%s", kind, strchr(choice->exchange->name, '_') + 1);
}

static json_t *call_id(const struct http_choice *choice, size_t call)
{
    json_t *whole = llm_tools_call(choice->tools, call, true);
    json_t *id = json_sprintf("fc_%s", json_string_value(json_object_get(whole, "id")));
    json_decref(whole);
    return id;
}

static json_t *text_part(const struct http_choice *choice, bool empty)
{
    const struct http_text *text = http_choice_text(choice);
    size_t len = empty ? 0 : text->len;
    uint32_t due = empty ? 0 : http_logprobs_due(choice, 0, choice->text.len, true);
    return json_pack("{s:s, s:[], s:o, s:o}", "type", "output_text", "annotations", "logprobs",
                     http_chat_logprobs(choice, 0, due), "text",
                     json_stringn(len ? text->text : "", len));
}

static const char *status_of(const struct http_choice *choice)
{
    switch (choice->finish) {
    case HTTP_FINISH_NONE:
        return "in_progress";
    case HTTP_FINISH_STOP:
        return "completed";
    case HTTP_FINISH_LENGTH:
        return "incomplete";
    default:
        return "failed";
    }
}

static json_t *message_item(const struct http_choice *choice)
{
    bool ended = choice->finish != HTTP_FINISH_NONE;
    json_t *content = ended ? json_pack("[o]", text_part(choice, false)) : json_array();
    return json_pack("{s:o, s:s, s:s, s:s, s:o}", "id", item_id(choice, "msg"), "type", "message",
                     "role", "assistant", "status",
                     choice->finish == HTTP_FINISH_ERROR ? "incomplete" : status_of(choice),
                     "content", content);
}

static json_t *reasoning_part(const struct http_choice *choice, bool empty)
{
    return json_pack(
        "{s:s, s:o}", "type", "reasoning_text", "text",
        json_stringn(empty ? "" : choice->reasoning.text, empty ? 0 : choice->reasoning.len));
}

static json_t *reasoning_item(const struct http_choice *choice, bool begin)
{
    return json_pack("{s:o, s:s, s:[], s:o, s:s}", "id", item_id(choice, "rs"), "type", "reasoning",
                     "summary", "content",
                     begin ? json_array() : json_pack("[o]", reasoning_part(choice, false)),
                     "status", begin ? "in_progress" : "completed");
}

static json_t *call_item(const struct http_choice *choice, size_t call, bool begin)
{
    json_t *whole = llm_tools_call(choice->tools, call, begin);
    json_t *function = json_object_get(whole, "function");
    json_t *item = json_pack("{s:o, s:s, s:O, s:O, s:O, s:s}", "id", call_id(choice, call), "type",
                             "function_call", "call_id", json_object_get(whole, "id"), "name",
                             json_object_get(function, "name"), "arguments",
                             json_object_get(function, "arguments"), "status",
                             begin ? "in_progress" : "completed");
    json_decref(whole);
    return item;
}

/* An answer without calls has a message, if an empty one. */
static bool has_message(const struct http_choice *choice)
{
    return http_choice_text(choice)->len > 0 || choice->begun ||
           (http_whole_calls(choice) == 0 && !choice->exchange->request.must_call);
}

static size_t place_of_message(const struct http_choice *choice)
{
    return choice->message_at + (choice->reasoning.len > 0);
}

static size_t place_of_call(const struct http_choice *choice, size_t call)
{
    return call + (choice->begun && choice->message_at <= call) + (choice->reasoning.len > 0);
}

/* The items that are complete. */
static json_t *output_of(const struct http_choice *choice)
{
    json_t *output = json_array();
    size_t calls = http_whole_calls(choice);
    if (choice->reasoning.len)
        json_array_append_new(output, reasoning_item(choice, false));
    for (size_t i = 0; i <= calls; i++) {
        if (has_message(choice) &&
            (i == choice->message_at || (i == calls && choice->message_at > calls)))
            json_array_append_new(output, message_item(choice));
        if (i < calls)
            json_array_append_new(output, call_item(choice, i, false));
    }
    return output;
}

/* ---- the answer ---- */

static json_t *usage_of(const struct http_exchange *x)
{
    const struct http_sequence *s = &x->choices[0].sequence;
    json_int_t generated = (json_int_t)s->token_count - s->prompt_count;
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens",
                     (json_int_t)x->prompt_tokens, "input_tokens_details", "cached_tokens",
                     (json_int_t)s->shared, "output_tokens", generated, "output_tokens_details",
                     "reasoning_tokens", (json_int_t)x->choices[0].reasoning_tokens, "total_tokens",
                     (json_int_t)x->prompt_tokens + generated);
}

/* A field of the request, or what is meant where it has none; takes `otherwise`. */
static void put_field(json_t *answer, const struct http_exchange *x, const char *name,
                      json_t *otherwise)
{
    json_t *value = json_object_get(x->request.asked, name);
    bool given = value && !json_is_null(value);
    if (given)
        json_object_set(answer, name, value);
    else
        json_object_set(answer, name, otherwise);
    json_decref(otherwise);
}

/* begin: nothing is there yet. */
static json_t *response_of(const struct http_exchange *x, bool begin)
{
    const struct http_choice *choice = &x->choices[0];
    bool cut = !begin && choice->finish == HTTP_FINISH_LENGTH;
    bool failed = !begin && choice->finish == HTTP_FINISH_ERROR;
    json_t *answer = json_pack(
        "{s:s, s:s, s:I, s:s, s:s, s:o, s:o, s:o, s:b, s:n, s:b, s:o}", "id", x->name, "object",
        "response", "created_at", (json_int_t)x->created, "model", x->model->name, "status",
        begin ? "in_progress" : status_of(choice), "error",
        failed ? json_pack("{s:s, s:o}", "code", "server_error", "message",
                           http_error_message(&x->error))
               : json_null(),
        "incomplete_details", cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null(),
        "output", begin ? json_array() : output_of(choice), "background", 0, "previous_response_id",
        "store", 0, "usage", begin ? json_null() : usage_of(x));
    if (!answer)
        return NULL;
    put_field(answer, x, "instructions", json_null());
    put_field(answer, x, "max_output_tokens", json_null());
    put_field(answer, x, "metadata", json_object());
    put_field(answer, x, "parallel_tool_calls", json_true());
    put_field(answer, x, "reasoning", json_pack("{s:n, s:n}", "effort", "summary"));
    put_field(answer, x, "temperature", json_real(1));
    put_field(answer, x, "text", json_pack("{s:{s:s}}", "format", "type", "text"));
    put_field(answer, x, "tool_choice", json_string("auto"));
    put_field(answer, x, "tools", json_array());
    put_field(answer, x, "top_p", json_real(1));
    put_field(answer, x, "truncation", json_string("disabled"));
    put_field(answer, x, "user", json_null());
    return answer;
}

json_t *http_responses_whole(const struct http_exchange *x)
{
    return response_of(x, false);
}

/* ---- events ---- */

/* Takes the members. */
static void put_event(struct http_exchange *x, const char *type, json_t *members)
{
    json_object_set_new(members, "sequence_number", json_integer((json_int_t)x->events++));
    http_put_event(x, type, members);
}

static void put_item(struct http_exchange *x, const char *type, size_t at, json_t *item)
{
    put_event(x, type, json_pack("{s:I, s:o}", "output_index", (json_int_t)at, "item", item));
}

/* About the only part of an item: which one, and one or two members more; takes them. */
static void put_part_of(const struct http_choice *choice, const char *type, const char *kind,
                        size_t at, const char *name, json_t *value, const char *other,
                        json_t *other_value)
{
    put_event(choice->exchange, type,
              json_pack("{s:o, s:I, s:i, s:o, s:o*}", "item_id", item_id(choice, kind),
                        "output_index", (json_int_t)at, "content_index", 0, name, value, other,
                        other_value));
}

static void put_part(const struct http_choice *choice, const char *type, const char *name,
                     json_t *value, const char *other, json_t *other_value)
{
    put_part_of(choice, type, "msg", place_of_message(choice), name, value, other, other_value);
}

/* end: what follows is there, or the end. */
static void put_reasoning(struct http_choice *choice, bool end)
{
    struct http_exchange *x = choice->exchange;
    const struct http_text *text = &choice->reasoning;
    const char *more;
    size_t bytes = http_take_text(text, &choice->reasoning_sent, &more);
    if (!choice->reasoning_begun && text->shown > 0) {
        choice->reasoning_begun = true;
        put_item(x, "response.output_item.added", 0, reasoning_item(choice, true));
        put_part_of(choice, "response.content_part.added", "rs", 0, "part",
                    reasoning_part(choice, true), "", NULL);
    }
    if (bytes && !choice->reasoning_ended)
        put_part_of(choice, "response.reasoning_text.delta", "rs", 0, "delta",
                    json_stringn(more, bytes), "", NULL);
    if (!end || !choice->reasoning_begun || choice->reasoning_ended)
        return;
    choice->reasoning_ended = true;
    put_part_of(choice, "response.reasoning_text.done", "rs", 0, "text",
                json_stringn(text->text, text->len), "", NULL);
    put_part_of(choice, "response.content_part.done", "rs", 0, "part",
                reasoning_part(choice, false), "", NULL);
    put_item(x, "response.output_item.done", 0, reasoning_item(choice, false));
}

static void put_message_begin(struct http_choice *choice)
{
    choice->message_at = choice->calls_begun;
    choice->begun = true;
    put_event(choice->exchange, "response.output_item.added",
              json_pack("{s:I, s:{s:o, s:s, s:s, s:s, s:[]}}", "output_index",
                        (json_int_t)place_of_message(choice), "item", "id", item_id(choice, "msg"),
                        "type", "message", "role", "assistant", "status", "in_progress",
                        "content"));
    put_part(choice, "response.content_part.added", "part", text_part(choice, true), "", NULL);
}

static void put_delta(struct http_choice *choice, bool last)
{
    const char *more;
    size_t bytes = http_take_text(http_choice_text(choice), &choice->text_sent, &more);
    uint32_t due = http_logprobs_due(choice, choice->logprobs_sent, choice->text.shown, last);
    if (bytes == 0 && (!choice->begun || due == choice->logprobs_sent))
        return; /* logprobs of a call wait for a text */
    if (!choice->begun)
        put_message_begin(choice);
    put_part(choice, "response.output_text.delta", "delta", json_stringn(more, bytes), "logprobs",
             http_chat_logprobs(choice, choice->logprobs_sent, due));
    choice->logprobs_sent = due;
}

static void put_message_end(struct http_choice *choice)
{
    const struct http_text *text = http_choice_text(choice);
    json_t *part = text_part(choice, false);
    json_t *logprobs = json_incref(json_object_get(part, "logprobs"));
    put_part(choice, "response.output_text.done", "text",
             json_stringn(text->len ? text->text : "", text->len), "logprobs", logprobs);
    put_part(choice, "response.content_part.done", "part", part, "", NULL);
    put_item(choice->exchange, "response.output_item.done", place_of_message(choice),
             message_item(choice));
}

static void put_arguments(const struct http_choice *choice, size_t call, const char *type,
                          const char *member, const char *text, size_t len)
{
    put_event(choice->exchange, type,
              json_pack("{s:o, s:I, s:o}", "item_id", call_id(choice, call), "output_index",
                        (json_int_t)place_of_call(choice, call), member, json_stringn(text, len)));
}

static void put_call(struct http_choice *choice, size_t call)
{
    struct http_exchange *x = choice->exchange;
    const char *text;
    size_t bytes;
    if (http_take_call(choice, call, &text, &bytes))
        put_item(x, "response.output_item.added", place_of_call(choice, call),
                 call_item(choice, call, true));
    if (bytes)
        put_arguments(choice, call, "response.function_call_arguments.delta", "delta", text, bytes);
    if (call >= http_whole_calls(choice))
        return;
    bytes = llm_tools_arguments(choice->tools, call, &text);
    put_arguments(choice, call, "response.function_call_arguments.done", "arguments", text, bytes);
    put_item(x, "response.output_item.done", place_of_call(choice, call),
             call_item(choice, call, false));
    choice->calls_ended = call + 1;
}

static void put_end(struct http_choice *choice)
{
    struct http_exchange *x = choice->exchange;
    char type[32];
    if (!choice->begun && has_message(choice))
        put_message_begin(choice);
    if (choice->begun)
        put_message_end(choice);
    snprintf(type, sizeof(type), "response.%s", status_of(choice));
    put_event(x, type, json_pack("{s:o}", "response", response_of(x, false)));
    choice->finish_sent = x->done_sent = true;
}

void http_responses_events(struct http_exchange *x)
{
    struct http_choice *choice = &x->choices[0];
    bool last = choice->finish != HTTP_FINISH_NONE;
    if (x->events == 0) {
        put_event(x, "response.created", json_pack("{s:o}", "response", response_of(x, true)));
        put_event(x, "response.in_progress", json_pack("{s:o}", "response", response_of(x, true)));
    }
    put_reasoning(choice, last || (choice->answer && llm_answer_has_thought(choice->answer)));
    put_delta(choice, last);
    for (size_t i = choice->calls_ended; choice->tools && i < llm_tools_count(choice->tools); i++)
        put_call(choice, i);
    if (last)
        put_end(choice);
}
