/* A request of the Responses API as one of the chat's: what the rest of the front knows.
 *
 * Each function adds a part to the chat's request and answers false after a refusal. */
#include "serve/http/request.h"

#include <stdlib.h>
#include <string.h>

static bool refuse(struct http_error *why, const char *field, const char *expected)
{
    (void)http_error_set(why, 400, field, NULL, "'%s' must be %s", field, expected);
    return false;
}

static bool no_memory(struct http_error *why)
{
    (void)http_error_set(why, 500, NULL, NULL, "out of memory");
    return false;
}

static const char *word(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* NULL: missing or null. */
static json_t *field(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

/* ---- input ---- */

/* Parts of text; *out is new. */
static bool read_parts(size_t item, const json_t *parts, json_t **out, struct http_error *why)
{
    json_t *texts = json_array();
    for (size_t i = 0; texts && i < json_array_size(parts); i++) {
        json_t *part = json_array_get(parts, i);
        const char *type = word(part, "type");
        bool refusal = strcmp(type, "refusal") == 0;
        json_t *text = json_object_get(part, refusal ? "refusal" : "text");
        if (!json_is_string(text) || (!refusal && strcmp(type, "input_text") &&
                                      strcmp(type, "output_text") && strcmp(type, "text"))) {
            json_decref(texts);
            (void)http_error_set(why, 400, "input", NULL,
                                 "'input[%zu].content[%zu]' must be text: parts of type "
                                 "\"input_text\" and \"output_text\", not \"%.40s\"",
                                 item, i, type);
            return false;
        }
        if (json_array_append_new(texts, json_pack("{s:s, s:O}", "type", "text", "text", text))) {
            json_decref(texts);
            texts = NULL;
        }
    }
    *out = texts;
    return texts || no_memory(why);
}

/* A string, or parts of text. */
static bool read_content(size_t item, json_t *content, json_t **out, struct http_error *why)
{
    if (json_is_array(content))
        return read_parts(item, content, out, why);
    if (!json_is_string(content)) {
        (void)http_error_set(why, 400, "input", NULL,
                             "'input[%zu]' must have a string or a list of parts as its content",
                             item);
        return false;
    }
    *out = json_incref(content);
    return true;
}

static bool add_message(size_t item, const json_t *from, json_t *messages, struct http_error *why)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant"};
    const char *role = word(from, "role");
    json_t *content;
    size_t known = 0;
    while (known < ARRAY_LEN(roles) && strcmp(role, roles[known]) != 0)
        known++;
    if (known == ARRAY_LEN(roles)) {
        (void)http_error_set(why, 400, "input", NULL,
                             "'input[%zu].role' must be system, developer, user or assistant",
                             item);
        return false;
    }
    if (!read_content(item, json_object_get(from, "content"), &content, why))
        return false;
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    bool goes_on = strcmp(role, "assistant") == 0 && field(last, "reasoning_content") &&
                   !field(last, "content") && !field(last, "tool_calls");
    if (goes_on)
        return json_object_set_new(last, "content", content) == 0 || no_memory(why);
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content", content);
    return json_array_append_new(messages, message) == 0 || no_memory(why);
}

/* Begins the assistant's message, which the next items complete: templates show it to the model
 * between a call and its result.  That of other servers may be encrypted, and is left out. */
static bool add_reasoning(const json_t *from, json_t *messages, struct http_error *why)
{
    json_t *text = json_object_get(json_array_get(json_object_get(from, "content"), 0), "text");
    json_t *message = json_is_string(text) ? json_pack("{s:s, s:n, s:O}", "role", "assistant",
                                                       "content", "reasoning_content", text)
                                           : NULL;
    return !json_is_string(text) || json_array_append_new(messages, message) == 0 || no_memory(why);
}

/* Calls that follow each other, or an answer, are one message of the assistant. */
static bool add_call(size_t item, const json_t *from, json_t *messages, struct http_error *why)
{
    json_t *id = json_object_get(from, "call_id"), *name = json_object_get(from, "name"),
           *arguments = json_object_get(from, "arguments");
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(arguments)) {
        (void)http_error_set(why, 400, "input", NULL,
                             "'input[%zu]' must have strings as its call_id, name and arguments",
                             item);
        return false;
    }
    if (strcmp(word(last, "role"), "assistant") != 0) {
        last = json_pack("{s:s, s:n}", "role", "assistant", "content");
        if (json_array_append_new(messages, last))
            return no_memory(why);
    }
    if (!json_object_get(last, "tool_calls") &&
        json_object_set_new(last, "tool_calls", json_array()))
        return no_memory(why);
    json_t *call = json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function",
                             "name", name, "arguments", arguments);
    return json_array_append_new(json_object_get(last, "tool_calls"), call) == 0 || no_memory(why);
}

static bool add_result(size_t item, const json_t *from, json_t *messages, struct http_error *why)
{
    json_t *id = json_object_get(from, "call_id"), *content;
    if (!read_content(item, json_object_get(from, "output"), &content, why))
        return false;
    json_t *message =
        json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id",
                  json_is_string(id) ? json_string_value(id) : "", "content", content);
    return json_array_append_new(messages, message) == 0 || no_memory(why);
}

static bool add_item(size_t item, const json_t *from, json_t *messages, struct http_error *why)
{
    const char *type = word(from, "type");
    if (strcmp(type, "message") == 0 || (!*type && word(from, "role")[0]))
        return add_message(item, from, messages, why);
    if (strcmp(type, "function_call") == 0)
        return add_call(item, from, messages, why);
    if (strcmp(type, "function_call_output") == 0)
        return add_result(item, from, messages, why);
    if (strcmp(type, "reasoning") == 0)
        return add_reasoning(from, messages, why);
    bool refers = strcmp(type, "item_reference") == 0;
    (void)http_error_set(why, 400, "input", NULL,
                         "'input[%zu]' must be a message, a function_call or its output%s", item,
                         refers ? ": no items are stored here to refer to; a client that is told "
                                  "\"store\": false sends them"
                                : "");
    return false;
}

static bool read_input(const json_t *asked, json_t *chat, struct http_error *why)
{
    json_t *instructions = field(asked, "instructions"), *input = field(asked, "input");
    json_t *messages = json_array();
    bool fine = json_object_set_new(chat, "messages", messages) == 0 || no_memory(why);
    if (instructions && !json_is_string(instructions))
        return refuse(why, "instructions", "a string");
    if (!json_is_string(input) && json_array_size(input) == 0)
        return refuse(why, "input", "a string or a list of items");
    if (fine && instructions)
        fine = json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "system", "content",
                                                         instructions)) == 0 ||
               no_memory(why);
    if (fine && json_is_string(input))
        return json_array_append_new(
                   messages, json_pack("{s:s, s:O}", "role", "user", "content", input)) == 0 ||
               no_memory(why);
    for (size_t i = 0; fine && i < json_array_size(input); i++)
        fine = add_item(i, json_array_get(input, i), messages, why);
    return fine;
}

/* ---- the rest ---- */

/* The chat's form of a function: its members one level deeper.  NULL: it is none. */
static json_t *function_of(const json_t *flat)
{
    static const char *const members[] = {"name", "description", "parameters", "strict"};
    json_t *function = json_object();
    if (strcmp(word(flat, "type"), "function") != 0 || !word(flat, "name")[0]) {
        json_decref(function);
        return NULL;
    }
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        if (field(flat, members[i]))
            json_object_set(function, members[i], field(flat, members[i]));
    }
    return json_pack("{s:s, s:o}", "type", "function", "function", function);
}

static json_t *functions_of(const json_t *list)
{
    json_t *functions = json_array();
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_array_append_new(functions, function_of(json_array_get(list, i)))) {
            json_decref(functions);
            return NULL;
        }
    }
    return functions;
}

static bool read_tools(const json_t *asked, json_t *chat, struct http_error *why)
{
    json_t *tools = field(asked, "tools"), *choice = field(asked, "tool_choice");
    if (tools && (!json_is_array(tools) || json_object_set_new(chat, "tools", functions_of(tools))))
        return refuse(why, "tools",
                      "a list of {\"type\": \"function\", \"name\": ...}; this server has no tools "
                      "of its own");
    if (strcmp(word(choice, "type"), "allowed_tools") == 0)
        choice = json_pack("{s:{s:s, s:o?}}", "allowed_tools", "mode", word(choice, "mode"),
                           "tools", functions_of(field(choice, "tools")));
    else if (json_is_object(choice))
        choice = function_of(choice);
    else
        json_incref(choice);
    if (field(asked, "tool_choice") && json_object_set_new(chat, "tool_choice", choice))
        return refuse(why, "tool_choice",
                      "\"none\", \"auto\", \"required\", {\"type\": \"function\", \"name\": ...} "
                      "or {\"type\": \"allowed_tools\", ...}");
    return true;
}

static bool read_format(const json_t *asked, json_t *chat, struct http_error *why)
{
    json_t *format = field(field(asked, "text"), "format");
    if (!format)
        return true;
    /* The schema's name and the rest stand beside its type. */
    json_t *nested = json_pack("{s:s, s:O}", "type", word(format, "type"), "json_schema", format);
    return json_object_set_new(chat, "response_format", nested) == 0 || no_memory(why);
}

static bool read_logprobs(const json_t *asked, json_t *chat)
{
    const json_t *include = field(asked, "include");
    bool wanted = json_integer_value(field(asked, "top_logprobs")) > 0;
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *what = json_string_value(json_array_get(include, i));
        wanted = wanted || (what && strcmp(what, "message.output_text.logprobs") == 0);
    }
    return json_object_set_new(chat, "logprobs", json_boolean(wanted)) == 0;
}

/* What would be missed in the answer if it were ignored as unknown fields are. */
static bool check_unserved(const json_t *asked, struct http_error *why)
{
    if (field(asked, "previous_response_id"))
        return refuse(why, "previous_response_id",
                      "left out: answers are not stored; send the conversation as 'input'");
    if (field(asked, "conversation"))
        return refuse(why, "conversation",
                      "left out: conversations are not stored; send this one as 'input'");
    if (field(asked, "prompt"))
        return refuse(why, "prompt", "left out: no prompts are stored here");
    if (json_is_true(field(asked, "background")))
        return refuse(why, "background", "left out: answers are not stored");
    return true;
}

json_t *http_responses_to_chat(const json_t *asked, struct http_error *why)
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
                                       "stop",
                                       "stream",
                                       "grammar",
                                       "parallel_tool_calls",
                                       "top_logprobs",
                                       "max_output_tokens",
                                       "chat_template_kwargs",
                                       "reasoning_format"};
    json_t *chat = json_object();
    bool fine = chat != NULL || no_memory(why);
    for (size_t i = 0; fine && i < ARRAY_LEN(same); i++) {
        if (field(asked, same[i]) && json_object_set(chat, same[i], field(asked, same[i])))
            fine = no_memory(why);
    }
    if (fine && check_unserved(asked, why) && read_input(asked, chat, why) &&
        read_tools(asked, chat, why) && read_format(asked, chat, why) &&
        (read_logprobs(asked, chat) || no_memory(why)))
        return chat;
    json_decref(chat);
    return NULL;
}
