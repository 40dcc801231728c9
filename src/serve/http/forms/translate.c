#include "serve/http/forms/translate.h"

#include <string.h>

bool http_refuse(struct http_error *why, const char *field, const char *expected)
{
    (void)http_error_set(why, 400, field, NULL, "'%s' must be %s", field, expected);
    return false;
}

bool http_no_memory(struct http_error *why)
{
    (void)http_error_set(why, 503, NULL, NULL, "out of memory");
    return false;
}

json_t *http_field(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

const char *http_word(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

bool http_put(json_t *object, const char *name, json_t *value, struct http_error *why)
{
    return json_object_set_new(object, name, value) == 0 || http_no_memory(why);
}

bool http_append(json_t *list, json_t *value, struct http_error *why)
{
    return json_array_append_new(list, value) == 0 || http_no_memory(why);
}

json_t *http_each(const json_t *list, json_t *(*of)(json_t *item))
{
    json_t *made = json_is_array(list) ? json_array() : NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_array_append_new(made, of(json_array_get(list, i)))) {
            json_decref(made);
            return NULL;
        }
    }
    return made;
}

json_t *http_text_part(json_t *from, const char *member)
{
    json_t *text = json_object_get(from, member);
    return json_is_string(text) ? json_pack("{s:s, s:O}", "type", "text", "text", text) : NULL;
}

static json_t *block_of(json_t *from)
{
    return strcmp(http_word(from, "type"), "text") == 0 ? http_text_part(from, "text") : NULL;
}

json_t *http_texts(json_t *content, json_t *(*of)(json_t *part))
{
    return json_is_string(content) ? json_incref(content) : http_each(content, of ? of : block_of);
}

json_t *http_chat_begin(const json_t *asked, struct http_error *why)
{
    static const char *const same[] = {"model",
                                       "temperature",
                                       "top_p",
                                       "top_k",
                                       "min_p",
                                       "presence_penalty",
                                       "seed",
                                       "frequency_penalty",
                                       "logit_bias",
                                       "repetition_penalty",
                                       "repeat_penalty",
                                       "ignore_eos",
                                       "stop_token_ids",
                                       "stop",
                                       "stream",
                                       "grammar",
                                       "chat_template_kwargs",
                                       "reasoning_format"};
    json_t *chat = json_object();
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        json_t *value = http_field(asked, same[i]);
        if (value && !http_put(chat, same[i], json_incref(value), why)) {
            json_decref(chat);
            return NULL;
        }
    }
    if (!chat)
        (void)http_no_memory(why);
    return chat;
}

bool http_chat_call(json_t *message, json_t *id, json_t *name, json_t *arguments,
                    struct http_error *why)
{
    if (!json_object_get(message, "tool_calls") &&
        !http_put(message, "tool_calls", json_array(), why)) {
        json_decref(arguments);
        return false;
    }
    return http_append(json_object_get(message, "tool_calls"),
                       json_pack("{s:O, s:s, s:{s:O, s:o}}", "id", id, "type", "function",
                                 "function", "name", name, "arguments", arguments),
                       why);
}

bool http_chat_format(json_t *chat, json_t *format, struct http_error *why)
{
    /* The schema stands beside its type there, and one level deeper here. */
    return !format || http_put(chat, "response_format",
                               json_pack("{s:s, s:O}", "type", http_word(format, "type"),
                                         "json_schema", format),
                               why);
}
