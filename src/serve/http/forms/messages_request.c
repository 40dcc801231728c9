/* A request of Anthropic's Messages API as one of the chat's: what the rest of the front knows.
 *
 * Each function adds a part to the chat's request and answers false after a refusal. */
#include "serve/http/request.h"

#include "base/text/gather.h"
#include "serve/http/forms/translate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A message under way. */
struct place {
    json_t *messages; /* the chat's, so far */
    json_t *message;  /* the next one of them */
    size_t index, block;
    struct http_error *why;
};

static bool refuse_block(const struct place *at, const char *expected)
{
    (void)http_error_set(at->why, 400, "messages", NULL, "'messages[%zu].content[%zu]' must be %s",
                         at->index, at->block, expected);
    return false;
}

/* ---- messages ---- */

static bool add_text(struct place *at, json_t *block)
{
    json_t *part = http_text_part(block, "text");
    return part ? http_append(json_object_get(at->message, "content"), part, at->why)
                : refuse_block(at, "{\"type\": \"text\", \"text\": ...} with a string");
}

static bool add_use(struct place *at, json_t *block)
{
    json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name"),
           *input = json_object_get(block, "input");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_object(input))
        return refuse_block(at, "a tool_use with strings as its id and name, and an object as its "
                                "input");
    return http_chat_call(at->message, id, name, json_incref(input), at->why);
}

/* A content as a list of parts: a new reference. */
static json_t *parts_of(json_t *content)
{
    return json_is_string(content) ? json_pack("[{s:s, s:O}]", "type", "text", "text", content)
                                   : json_incref(content);
}

/* Templates know no failed calls: the content says it.  Takes the texts. */
static json_t *failed(json_t *texts)
{
    json_t *said = json_pack("[{s:s, s:s}]", "type", "text", "text", "Error:"),
           *more = parts_of(texts);
    if (json_array_extend(said, more)) {
        json_decref(said);
        said = NULL;
    }
    json_decref(more);
    json_decref(texts);
    return said;
}

/* A message of its own. */
static bool add_result(struct place *at, json_t *block)
{
    json_t *content = http_field(block, "content");
    json_t *texts = content ? http_texts(content, NULL) : json_string("");
    if (!texts || !http_word(block, "tool_use_id")[0]) {
        json_decref(texts);
        return refuse_block(at, "a tool_result with a string as its tool_use_id, and a string or "
                                "blocks of text as its content");
    }
    if (json_is_true(json_object_get(block, "is_error")))
        texts = failed(texts);
    return http_append(at->messages,
                       json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id",
                                 json_object_get(block, "tool_use_id"), "content", texts),
                       at->why);
}

/* That of other servers may be encrypted, and is left out. */
static bool add_thinking(struct place *at, json_t *block)
{
    json_t *text = json_object_get(block, "thinking");
    return !http_word(block, "thinking")[0] ||
           http_put(at->message, "reasoning_content", json_incref(text), at->why);
}

static bool add_block(struct place *at, json_t *block)
{
    static const struct {
        const char *type, *role; /* NULL: any */
        bool (*add)(struct place *at, json_t *block);
    } kinds[] = {{"text", NULL, add_text},
                 {"tool_use", "assistant", add_use},
                 {"tool_result", "user", add_result},
                 {"thinking", "assistant", add_thinking},
                 {"redacted_thinking", "assistant", add_thinking}};
    const char *role = http_word(at->message, "role");
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (strcmp(http_word(block, "type"), kinds[i].type) == 0 &&
            (!kinds[i].role || strcmp(role, kinds[i].role) == 0))
            return kinds[i].add(at, block);
    }
    return refuse_block(at, strcmp(role, "assistant") == 0
                                ? "text, a tool_use or thinking"
                                : "text or a tool_result: this server reads nothing but text");
}

/* What the message has beside its content, to an earlier one of the assistant. */
static bool add_rest(json_t *earlier, const json_t *message)
{
    json_t *calls = json_object_get(message, "tool_calls"),
           *before = json_object_get(earlier, "tool_calls");
    const char *had = http_word(earlier, "reasoning_content"),
               *thought = http_word(message, "reasoning_content");
    if (calls &&
        (before ? json_array_extend(before, calls) : json_object_set(earlier, "tool_calls", calls)))
        return false;
    return !*thought ||
           json_object_set_new(earlier, "reasoning_content",
                               json_sprintf("%s%s%s", had, *had ? "\n\n" : "", thought)) == 0;
}

/* The message under way, to the one before where both are of one role: as Anthropic's API has it,
 * and since many templates take nothing but turns. */
static bool add_turn(struct place *at)
{
    json_t *earlier = json_array_get(at->messages, json_array_size(at->messages) - 1);
    if (strcmp(http_word(earlier, "role"), http_word(at->message, "role")) != 0)
        return http_append(at->messages, at->message, at->why);
    json_t *parts = parts_of(json_object_get(earlier, "content")),
           *more = parts_of(json_object_get(at->message, "content"));
    bool fine = parts && json_array_extend(parts, more) == 0 &&
                json_object_set(earlier, "content", parts) == 0 && add_rest(earlier, at->message);
    json_decref(parts);
    json_decref(more);
    json_decref(at->message);
    return fine || http_no_memory(at->why);
}

/* Results come before what else the user says. */
static bool add_message(struct place *at, const json_t *from)
{
    const char *role = http_word(from, "role");
    json_t *content = json_object_get(from, "content");
    size_t before = json_array_size(at->messages);
    if ((strcmp(role, "user") && strcmp(role, "assistant") && strcmp(role, "system")) ||
        (!json_is_string(content) && !json_is_array(content))) {
        (void)http_error_set(at->why, 400, "messages", NULL,
                             "'messages[%zu]' must have the role user or assistant, and a string "
                             "or a list of blocks as its content",
                             at->index);
        return false;
    }
    at->message = json_pack("{s:s, s:o}", "role", role, "content",
                            json_is_string(content) ? json_incref(content) : json_array());
    bool fine = at->message || http_no_memory(at->why);
    for (at->block = 0; fine && at->block < json_array_size(content); at->block++)
        fine = add_block(at, json_array_get(content, at->block));
    bool only_results = json_array_size(at->messages) > before &&
                        json_array_size(json_object_get(at->message, "content")) == 0;
    if (fine && !only_results)
        return add_turn(at);
    json_decref(at->message);
    return fine;
}

/* Parts as one text, as a prompt joins them.  NULL: no memory. */
static json_t *joined(json_t *parts)
{
    struct hw_gathered text;
    FILE *out = hw_gather(&text);
    for (size_t i = 0; out && i < json_array_size(parts); i++)
        fprintf(out, "%s%s", i ? "\n" : "", http_word(json_array_get(parts, i), "text"));
    json_t *string = hw_gather_end(out, &text) == 0 ? json_stringn(text.text, text.len) : NULL;
    free(text.text);
    return string;
}

/* A last message of the assistant is what the answer begins with. */
static bool read_beginning(json_t *chat, json_t *messages, struct http_error *why)
{
    size_t count = json_array_size(messages);
    json_t *last = json_array_get(messages, count - 1), *said = json_object_get(last, "content");
    if (strcmp(http_word(last, "role"), "assistant") != 0)
        return true;
    if (json_object_get(last, "tool_calls"))
        return http_refuse(why, "messages",
                           "a list that ends with the user's message, or with text of the "
                           "assistant, which the answer continues");
    return http_put(chat, "prefill", json_is_string(said) ? json_incref(said) : joined(said),
                    why) &&
           json_array_remove(messages, count - 1) == 0;
}

static bool read_messages(const json_t *asked, json_t *chat, struct http_error *why)
{
    struct place at = {.messages = json_array(), .why = why};
    json_t *system = http_field(asked, "system"), *messages = http_field(asked, "messages");
    if (!http_put(chat, "messages", at.messages, why))
        return false;
    if (json_array_size(messages) == 0)
        return http_refuse(why, "messages", "a list of at least one message");
    if (system) {
        json_t *texts = http_texts(system, NULL);
        if (!texts)
            return http_refuse(why, "system", "a string or a list of blocks of text");
        if (!http_append(at.messages, json_pack("{s:s, s:o}", "role", "system", "content", texts),
                         why))
            return false;
    }
    for (; at.index < json_array_size(messages); at.index++) {
        if (!add_message(&at, json_array_get(messages, at.index)))
            return false;
    }
    return read_beginning(chat, at.messages, why);
}

/* ---- the rest ---- */

static json_t *function_of(json_t *tool)
{
    const char *type = http_word(tool, "type");
    if (!http_word(tool, "name")[0] || (*type && strcmp(type, "custom") != 0))
        return NULL;
    return json_pack("{s:s, s:{s:O, s:O*, s:O*}}", "type", "function", "function", "name",
                     json_object_get(tool, "name"), "description", http_field(tool, "description"),
                     "parameters", http_field(tool, "input_schema"));
}

static bool read_tools(const json_t *asked, json_t *chat, struct http_error *why)
{
    json_t *tools = http_field(asked, "tools");
    return !tools || json_object_set_new(chat, "tools", http_each(tools, function_of)) == 0 ||
           http_refuse(why, "tools",
                       "a list of {\"name\": ..., \"input_schema\": ...}; this server has no tools "
                       "of its own");
}

static bool read_tool_choice(const json_t *asked, json_t *chat, struct http_error *why)
{
    static const char *const words[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    const json_t *choice = http_field(asked, "tool_choice");
    const char *type = http_word(choice, "type");
    json_t *chosen = NULL;
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strcmp(type, words[i][0]) == 0)
            chosen = json_string(words[i][1]);
    }
    if (strcmp(type, "tool") == 0)
        chosen = json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name",
                           http_word(choice, "name"));
    if (choice && !chosen)
        return http_refuse(why, "tool_choice",
                           "an object with type \"auto\", \"any\", \"none\", or \"tool\" and a "
                           "name");
    bool one = json_is_true(json_object_get(choice, "disable_parallel_tool_use"));
    return !choice || (http_put(chat, "tool_choice", chosen, why) &&
                       http_put(chat, "parallel_tool_calls", json_boolean(!one), why));
}

/* Published templates know it by one of two names. */
static bool read_thinking(const json_t *asked, json_t *chat, struct http_error *why)
{
    const json_t *thinking = http_field(asked, "thinking");
    const char *type = http_word(thinking, "type");
    bool on = strcmp(type, "enabled") == 0, off = strcmp(type, "disabled") == 0;
    if (!on && !off) /* left to the model */
        return !thinking || strcmp(type, "adaptive") == 0 ||
               http_refuse(why, "thinking",
                           "an object with type \"enabled\", \"disabled\" or \"adaptive\"");
    json_t *variables = json_pack("{s:b, s:b}", "enable_thinking", on, "thinking", on);
    json_t *given = json_object_get(chat, "chat_template_kwargs");
    if (json_is_object(given))
        (void)json_object_update(variables, given);
    return http_put(chat, "chat_template_kwargs", variables, why);
}

json_t *http_messages_to_chat(const json_t *asked, bool counted, struct http_error *why)
{
    json_t *max = http_field(asked, "max_tokens"), *stops = http_field(asked, "stop_sequences"),
           *format = http_field(http_field(asked, "output_config"), "format"),
           *chat = http_chat_begin(asked, why);
    if (!format)
        format = http_field(asked, "output_format"); /* its name while it was in beta */
    bool fine = chat && (max || counted || http_refuse(why, "max_tokens", "given"));
    if (fine && max && !counted)
        fine = http_put(chat, "max_tokens", json_incref(max), why);
    if (fine && stops)
        fine = http_put(chat, "stop", json_incref(stops), why);
    if (fine && read_messages(asked, chat, why) && read_tools(asked, chat, why) &&
        read_tool_choice(asked, chat, why) && read_thinking(asked, chat, why) &&
        http_chat_format(chat, format, why))
        return chat;
    json_decref(chat);
    return NULL;
}
