/* A request of the Responses API as one of the chat's: what the rest of the front knows.
 *
 * Each function adds a part to the chat's request and answers false after a refusal. */
#include "serve/http/request.h"

#include "serve/http/forms/translate.h"

#include <string.h>

/* ---- input ---- */

static json_t *part_of(json_t *from)
{
    const char *type = http_word(from, "type");
    bool text =
        !strcmp(type, "input_text") || !strcmp(type, "output_text") || !strcmp(type, "text");
    return text                           ? http_text_part(from, "text")
           : strcmp(type, "refusal") == 0 ? http_text_part(from, "refusal")
                                          : NULL;
}

/* A string, or parts of text. */
static bool read_content(size_t item, json_t *content, json_t **out, struct http_error *why)
{
    *out = http_texts(content, part_of);
    if (!*out)
        (void)http_error_set(why, 400, "input", NULL,
                             "'input[%zu]' must have a string or a list of parts as its content: "
                             "parts of type \"input_text\" and \"output_text\", with their text",
                             item);
    return *out;
}

static bool add_message(size_t item, const json_t *from, json_t *messages, struct http_error *why)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant"};
    const char *role = http_word(from, "role");
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
    bool goes_on = strcmp(role, "assistant") == 0 && http_field(last, "reasoning_content") &&
                   !http_field(last, "content") && !http_field(last, "tool_calls");
    if (goes_on)
        return http_put(last, "content", content, why);
    return http_append(messages, json_pack("{s:s, s:o}", "role", role, "content", content), why);
}

/* Begins the assistant's message, which the next items complete: templates show it to the model
 * between a call and its result.  That of other servers may be encrypted, and is left out. */
static bool add_reasoning(const json_t *from, json_t *messages, struct http_error *why)
{
    json_t *text = json_object_get(json_array_get(json_object_get(from, "content"), 0), "text");
    return !json_is_string(text) || http_append(messages,
                                                json_pack("{s:s, s:n, s:O}", "role", "assistant",
                                                          "content", "reasoning_content", text),
                                                why);
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
    if (strcmp(http_word(last, "role"), "assistant") != 0) {
        last = json_pack("{s:s, s:n}", "role", "assistant", "content");
        if (!http_append(messages, last, why))
            return false;
    }
    return http_chat_call(last, id, name, json_incref(arguments), why);
}

static bool add_result(size_t item, const json_t *from, json_t *messages, struct http_error *why)
{
    json_t *id = json_object_get(from, "call_id"), *content;
    if (!read_content(item, json_object_get(from, "output"), &content, why))
        return false;
    json_t *message =
        json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id",
                  json_is_string(id) ? json_string_value(id) : "", "content", content);
    return http_append(messages, message, why);
}

static bool add_item(size_t item, const json_t *from, json_t *messages, struct http_error *why)
{
    const char *type = http_word(from, "type");
    if (strcmp(type, "message") == 0 || (!*type && http_word(from, "role")[0]))
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
    json_t *instructions = http_field(asked, "instructions"), *input = http_field(asked, "input");
    json_t *messages = json_array();
    bool fine = http_put(chat, "messages", messages, why);
    if (instructions && !json_is_string(instructions))
        return http_refuse(why, "instructions", "a string");
    if (!json_is_string(input) && json_array_size(input) == 0)
        return http_refuse(why, "input", "a string or a list of items");
    if (fine && instructions)
        fine = http_append(messages,
                           json_pack("{s:s, s:O}", "role", "system", "content", instructions), why);
    if (fine && json_is_string(input))
        return http_append(messages, json_pack("{s:s, s:O}", "role", "user", "content", input),
                           why);
    for (size_t i = 0; fine && i < json_array_size(input); i++)
        fine = add_item(i, json_array_get(input, i), messages, why);
    return fine;
}

/* ---- the rest ---- */

/* The chat's form of a function: its members one level deeper.  NULL: it is none. */
static json_t *function_of(json_t *flat)
{
    static const char *const members[] = {"name", "description", "parameters", "strict"};
    json_t *function = json_object();
    if (strcmp(http_word(flat, "type"), "function") != 0 || !http_word(flat, "name")[0]) {
        json_decref(function);
        return NULL;
    }
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        if (http_field(flat, members[i]))
            json_object_set(function, members[i], http_field(flat, members[i]));
    }
    return json_pack("{s:s, s:o}", "type", "function", "function", function);
}

static bool read_tools(const json_t *asked, json_t *chat, struct http_error *why)
{
    json_t *tools = http_field(asked, "tools"), *choice = http_field(asked, "tool_choice");
    if (tools && json_object_set_new(chat, "tools", http_each(tools, function_of)))
        return http_refuse(
            why, "tools",
            "a list of {\"type\": \"function\", \"name\": ...}; this server has no tools "
            "of its own");
    if (strcmp(http_word(choice, "type"), "allowed_tools") == 0)
        choice = json_pack("{s:{s:s, s:o?}}", "allowed_tools", "mode", http_word(choice, "mode"),
                           "tools", http_each(http_field(choice, "tools"), function_of));
    else if (json_is_object(choice))
        choice = function_of(choice);
    else
        json_incref(choice);
    if (http_field(asked, "tool_choice") && json_object_set_new(chat, "tool_choice", choice))
        return http_refuse(
            why, "tool_choice",
            "\"none\", \"auto\", \"required\", {\"type\": \"function\", \"name\": ...} "
            "or {\"type\": \"allowed_tools\", ...}");
    return true;
}

static bool read_logprobs(const json_t *asked, json_t *chat)
{
    const json_t *include = http_field(asked, "include");
    bool wanted = json_integer_value(http_field(asked, "top_logprobs")) > 0;
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *what = json_string_value(json_array_get(include, i));
        wanted = wanted || (what && strcmp(what, "message.output_text.logprobs") == 0);
    }
    return json_object_set_new(chat, "logprobs", json_boolean(wanted)) == 0;
}

/* What would be missed in the answer if it were ignored as unknown fields are. */
static bool check_unserved(const json_t *asked, struct http_error *why)
{
    if (http_field(asked, "previous_response_id"))
        return http_refuse(why, "previous_response_id",
                           "left out: answers are not stored; send the conversation as 'input'");
    if (http_field(asked, "conversation"))
        return http_refuse(why, "conversation",
                           "left out: conversations are not stored; send this one as 'input'");
    if (http_field(asked, "prompt"))
        return http_refuse(why, "prompt", "left out: no prompts are stored here");
    if (json_is_true(http_field(asked, "background")))
        return http_refuse(why, "background", "left out: answers are not stored");
    return true;
}

json_t *http_responses_to_chat(const json_t *asked, struct http_error *why)
{
    static const char *const same[] = {"parallel_tool_calls", "top_logprobs", "max_output_tokens"};
    json_t *chat = http_chat_begin(asked, why);
    json_t *effort = http_field(http_field(asked, "reasoning"), "effort");
    bool fine = chat != NULL;
    if (fine && effort)
        fine = http_put(chat, "reasoning_effort", json_incref(effort), why);
    for (size_t i = 0; fine && i < ARRAY_LEN(same); i++) {
        if (http_field(asked, same[i]))
            fine = http_put(chat, same[i], json_incref(http_field(asked, same[i])), why);
    }
    if (fine && check_unserved(asked, why) && read_input(asked, chat, why) &&
        read_tools(asked, chat, why) &&
        http_chat_format(chat, http_field(http_field(asked, "text"), "format"), why) &&
        (read_logprobs(asked, chat) || http_no_memory(why)))
        return chat;
    json_decref(chat);
    return NULL;
}
