#include "llm/chat/chat.h"

#include "base/text/gather.h"
#include "llm/chat/tools_shape.h"
#include "llm/model/model.h"
#include "llm/tokenizer/vocab_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char chatml[] =
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + "
    "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% endif %}";

/* Qwen, DeepSeek and most others; Mistral; Cohere; ByteDance; Tencent; MiniMax M3; Google; and
 * those whose answers are messages of their own. */
static const struct llm_chat_marks reasoning_marks[] = {
    {.open = "<think>", .close = "</think>"},
    {.open = "[THINK]", .close = "[/THINK]"},
    {.open = "<|START_THINKING|>", .close = "<|END_THINKING|>"},
    {.open = "<seed:think>", .close = "</seed:think>"},
    {.tell = ":opensource", .open = "<think:opensource>", .close = "</think:opensource>"},
    {.open = "<mm:think>", .close = "</mm:think>"},
    {.open = "<|channel>thought", .close = "<channel|>"},
    {.tell = "<|channel|>analysis",
     .open = "<|channel|>analysis<|message|>",
     .close = "<|end|>",
     .next = "<|start|>assistant",
     .content = "<|channel|>final<|message|>",
     .drop = {"<|start|>assistant", "<|channel|>final<|message|>",
              "<|channel|>commentary<|message|>", "<|end|>"}},
    {.tell = "<|tool_call:begin|>",
     .open = "<|think|>",
     .close = "<|end|>",
     .next = "<|begin|>assistant",
     .content = "<|content|>",
     .drop = {"<|begin|>assistant", "<|content|>", "<|end|>"}},
    {.tell = "<|open|>",
     .open = "<|open|>think<|sep|>",
     .close = "<|close|>think<|sep|>",
     .content = "<|open|>response<|sep|>",
     .drop = {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"}},
};

struct llm_chat {
    struct llm_template *plain;
    struct llm_template *with_tools; /* NULL: the plain one */
    char *no_tools;                  /* why the file's own template for tools cannot be used */
    char *bos, *eos;
    bool fallback;
    bool knows_developer; /* the template tells it from system */
    enum llm_tools_form form;
    const struct llm_chat_marks *reasoning; /* NULL: none */
};

static int new_chat(const char *bos, const char *eos, struct llm_chat **out, char *why)
{
    struct llm_chat *chat = calloc(1, sizeof *chat);
    if (chat) {
        chat->bos = strdup(bos);
        chat->eos = strdup(eos);
    }
    if (!chat || !chat->bos || !chat->eos) {
        llm_chat_destroy(chat);
        return llm_why(why, -ENOMEM, "out of memory");
    }
    *out = chat;
    return 0;
}

void llm_chat_destroy(struct llm_chat *chat)
{
    if (!chat)
        return;
    llm_template_free(chat->plain);
    llm_template_free(chat->with_tools);
    free(chat->no_tools);
    free(chat->bos);
    free(chat->eos);
    free(chat);
}

static int set_template(struct llm_chat *chat, const char *text, size_t bytes, char *why)
{
    int err = llm_template_parse(text, bytes, &chat->plain, why);
    if (err)
        return err;
    chat->form = llm_tools_form_of(text, bytes);
    for (size_t i = 0; i < ARRAY_LEN(reasoning_marks) && !chat->reasoning; i++) {
        const struct llm_chat_marks *marks = &reasoning_marks[i];
        const char *tell = marks->tell ? marks->tell : marks->close;
        if (memmem(text, bytes, tell, strlen(tell)))
            chat->reasoning = marks;
    }
    chat->knows_developer = memmem(text, bytes, "developer", 9) != NULL;
    return 0;
}

int llm_chat_create_text(const char *text, size_t bytes, const char *bos, const char *eos,
                         struct llm_chat **out, char *why)
{
    struct llm_chat *chat;
    int err = new_chat(bos, eos, &chat, why);
    if (err)
        return err;
    err = set_template(chat, text, bytes, why);
    if (err)
        llm_chat_destroy(chat);
    else
        *out = chat;
    return err;
}

/* The text of a token as the file spells it; "" for none. */
static const char *token_text(const struct llm_vocab *vocab, int32_t token, char copy[256])
{
    copy[0] = 0;
    if (vocab && token >= 0 && (uint32_t)token < vocab->count)
        snprintf(copy, 256, "%.*s", (int)vocab->tokens[token].text.bytes,
                 vocab->tokens[token].text.text);
    return copy;
}

static int set_tool_template(struct llm_chat *chat, const struct gguf *gguf, char *why)
{
    struct gguf_string text;
    int err = gguf_get_string(gguf, "tokenizer.chat_template.tool_use", &text, why);
    if (err)
        return err == -ENOENT ? 0 : err;
    err = llm_template_parse(text.text, text.bytes, &chat->with_tools, why);
    if (!err)
        chat->form = llm_tools_form_of(text.text, text.bytes);
    if (!err || err == -ENOMEM)
        return err;
    /* Chats without tools do not need it. */
    chat->no_tools = strdup(why);
    return chat->no_tools ? 0 : llm_why(why, -ENOMEM, "out of memory");
}

static int set_file_template(struct llm_chat *chat, const struct gguf *gguf, bool fallback,
                             char *why)
{
    struct gguf_string text;
    int err = gguf ? gguf_get_string(gguf, "tokenizer.chat_template", &text, why) : -ENOENT;
    if (err == -ENOENT && fallback) {
        chat->fallback = true;
        return set_template(chat, chatml, sizeof chatml - 1, why);
    }
    if (err == -ENOENT)
        return llm_why(why, err, "the model has no chat template (tokenizer.chat_template)");
    if (!err)
        err = set_template(chat, text.text, text.bytes, why);
    return err ? err : set_tool_template(chat, gguf, why);
}

int llm_chat_create_gguf(const struct gguf *gguf, const struct llm_vocab *vocab, bool fallback,
                         struct llm_chat **out, char *why)
{
    struct llm_chat *chat;
    char bos[256], eos[256];
    int err = new_chat(token_text(vocab, vocab ? vocab->bos : -1, bos),
                       token_text(vocab, vocab ? vocab->eos : -1, eos), &chat, why);
    if (err)
        return err;
    err = set_file_template(chat, gguf, fallback, why);
    if (err)
        llm_chat_destroy(chat);
    else
        *out = chat;
    return err;
}

int llm_chat_create(const struct llm_file *file, const struct llm_vocab *vocab, bool fallback,
                    struct llm_chat **out, char *why)
{
    return llm_chat_create_gguf(llm_file_metadata(file), vocab, fallback, out, why);
}

bool llm_chat_is_fallback(const struct llm_chat *chat)
{
    return chat->fallback;
}

enum llm_tools_form llm_chat_tools_form(const struct llm_chat *chat)
{
    return chat->form;
}

const struct llm_chat_marks *llm_chat_reasoning(const struct llm_chat *chat)
{
    return chat->reasoning;
}

bool llm_chat_marks_content(const struct llm_chat *chat)
{
    return (chat->reasoning && chat->reasoning->content) || llm_tools_shape(chat->form)->text;
}

bool llm_chat_ends_open(const struct llm_chat_marks *marks, const char *prompt, size_t bytes)
{
    size_t n = strlen(marks->open);
    while (bytes > 0 && strchr(" \n\r\t", prompt[bytes - 1]))
        bytes--;
    return bytes >= n && memcmp(prompt + bytes - n, marks->open, n) == 0;
}

const char *llm_chat_piece(const struct llm_chat_marks *marks, const struct llm_vocab *vocab,
                           uint32_t token, size_t *bytes)
{
    const char *const texts[] = {marks->open,    marks->close,   marks->drop[0],
                                 marks->drop[1], marks->drop[2], marks->drop[3]};
    return llm_vocab_mark(vocab, token, texts, ARRAY_LEN(texts), bytes);
}

/* ---- checks ---- */

static int check_parts(const json_t *parts, size_t message, char *why)
{
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!type)
            return llm_why(why, -EINVAL, "messages[%zu].content[%zu].type: a string is needed",
                           message, i);
        if (strcmp(type, "text") != 0 && strcmp(type, "input_text") != 0)
            return llm_why(why, -EINVAL,
                           "messages[%zu].content[%zu].type: \"%.40s\" is not supported, only text",
                           message, i, type);
        if (!json_is_string(json_object_get(part, "text")))
            return llm_why(why, -EINVAL, "messages[%zu].content[%zu].text: a string is needed",
                           message, i);
    }
    return 0;
}

static int check_calls(const json_t *calls, size_t message, char *why)
{
    if (!json_is_array(calls))
        return llm_why(why, -EINVAL, "messages[%zu].tool_calls: an array is needed", message);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");
        const json_t *arguments = json_object_get(function, "arguments");
        if (!json_is_string(json_object_get(function, "name")))
            return llm_why(why, -EINVAL,
                           "messages[%zu].tool_calls[%zu].function.name: a string is needed",
                           message, i);
        if (!json_is_string(arguments) && !json_is_object(arguments))
            return llm_why(
                why, -EINVAL,
                "messages[%zu].tool_calls[%zu].function.arguments: JSON in a string is needed",
                message, i);
    }
    return 0;
}

static int check_message(const json_t *message, size_t i, char *why)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    const json_t *content = json_object_get(message, "content");
    const json_t *calls = json_object_get(message, "tool_calls");
    const char *role = json_string_value(json_object_get(message, "role"));
    size_t known = 0;
    if (!json_is_object(message))
        return llm_why(why, -EINVAL, "messages[%zu]: an object is needed", i);
    if (!role)
        return llm_why(why, -EINVAL, "messages[%zu].role: a string is needed", i);
    while (known < ARRAY_LEN(roles) && strcmp(role, roles[known]) != 0)
        known++;
    if (known == ARRAY_LEN(roles))
        return llm_why(why, -EINVAL,
                       "messages[%zu].role: \"%.40s\" is none of system, developer, user, "
                       "assistant, tool",
                       i, role);
    if (calls && !json_is_null(calls)) {
        if (strcmp(role, "assistant") != 0)
            return llm_why(why, -EINVAL, "messages[%zu].tool_calls: only an assistant has them", i);
        int err = check_calls(calls, i, why);
        if (err)
            return err;
    }
    if (json_is_array(content))
        return check_parts(content, i, why);
    bool may_lack = strcmp(role, "assistant") == 0 && (!content || json_is_null(content));
    if (!json_is_string(content) && !may_lack)
        return llm_why(why, -EINVAL,
                       "messages[%zu].content: a string or an array of text parts is needed", i);
    return 0;
}

static int check_tools(const json_t *tools, char *why)
{
    if (!tools || json_is_null(tools))
        return 0;
    if (!json_is_array(tools))
        return llm_why(why, -EINVAL, "tools: an array is needed");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const char *type = json_string_value(json_object_get(tool, "type"));
        const json_t *function = json_object_get(tool, "function");
        if (!type || strcmp(type, "function") != 0)
            return llm_why(why, -EINVAL, "tools[%zu].type: only \"function\" is supported", i);
        if (!json_is_string(json_object_get(function, "name")))
            return llm_why(why, -EINVAL, "tools[%zu].function.name: a string is needed", i);
        const json_t *parameters = json_object_get(function, "parameters");
        if (parameters && !json_is_object(parameters) && !json_is_null(parameters))
            return llm_why(why, -EINVAL, "tools[%zu].function.parameters: an object is needed", i);
    }
    return 0;
}

int llm_chat_check(const json_t *messages, const json_t *tools, char *why)
{
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return llm_why(why, -EINVAL, "messages: an array of at least one message is needed");
    if (json_array_size(messages) > LLM_CHAT_MESSAGES_MAX)
        return llm_why(why, -EINVAL, "messages: %zu are more than %d", json_array_size(messages),
                       LLM_CHAT_MESSAGES_MAX);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        int err = check_message(json_array_get(messages, i), i, why);
        if (err)
            return err;
    }
    return check_tools(tools, why);
}

/* ---- messages as templates want them ---- */

/* Templates differ in these; an attempt is one choice. */
struct choice {
    bool arguments_as_text; /* of tool calls, not as an object */
    bool empty_content;     /* "" for an assistant's null */
};

/* Text parts become one string, with newlines between. */
static json_t *joined_parts(const json_t *parts)
{
    size_t bytes = 0, at = 0, count = json_array_size(parts);
    for (size_t i = 0; i < count; i++)
        bytes += json_string_length(json_object_get(json_array_get(parts, i), "text")) + 1;
    char *text = malloc(bytes + 1);
    if (!text)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        const json_t *part = json_object_get(json_array_get(parts, i), "text");
        if (i)
            text[at++] = '\n';
        memcpy(text + at, json_string_value(part), json_string_length(part));
        at += json_string_length(part);
    }
    json_t *string = json_stringn_nocheck(text, at);
    free(text);
    return string;
}

static int set_arguments(json_t *message, const struct choice *choice)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *function = json_object_get(json_array_get(calls, i), "function");
        const json_t *arguments = json_object_get(function, "arguments");
        json_t *other = NULL;
        if (json_is_string(arguments) && !choice->arguments_as_text) {
            other =
                json_loadb(json_string_value(arguments), json_string_length(arguments), 0, NULL);
            if (!json_is_object(other)) { /* a model's broken call stays as it was */
                json_decref(other);
                continue;
            }
        } else if (json_is_object(arguments) && choice->arguments_as_text) {
            char *text = json_dumps(arguments, JSON_ENSURE_ASCII);
            other = text ? json_string(text) : NULL;
            free(text);
            if (!other)
                return -ENOMEM;
        } else {
            continue;
        }
        if (json_object_set_new(function, "arguments", other))
            return -ENOMEM;
    }
    return 0;
}

static int shape_message(const struct llm_chat *chat, json_t *message, const struct choice *choice)
{
    json_t *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    bool absent = !content || json_is_null(content);
    if (json_is_array(content) && json_object_set_new(message, "content", joined_parts(content)))
        return -ENOMEM;
    if (absent && choice->empty_content && json_object_set_new(message, "content", json_string("")))
        return -ENOMEM;
    /* gpt-oss' template calls reasoning `thinking`, and refuses it beside a content. */
    json_t *thought = json_object_get(message, "reasoning_content");
    if (json_is_string(thought) && json_string_length(json_object_get(message, "content")) == 0 &&
        !json_object_get(message, "thinking") && json_object_set(message, "thinking", thought))
        return -ENOMEM;
    if (!chat->knows_developer && strcmp(role, "developer") == 0 &&
        json_object_set_new(message, "role", json_string("system")))
        return -ENOMEM;
    return set_arguments(message, choice);
}

static json_t *variables_of(const struct llm_chat *chat, const struct llm_chat_request *request,
                            const struct choice *choice)
{
    json_t *all = request->variables ? json_copy((json_t *)request->variables) : json_object();
    json_t *messages = json_deep_copy(request->messages);
    int err = all && messages ? 0 : -ENOMEM;
    for (size_t i = 0; !err && i < json_array_size(messages); i++)
        err = shape_message(chat, json_array_get(messages, i), choice);
    if (!err)
        err = json_object_set(all, "messages", messages) |
              json_object_set_new(all, "add_generation_prompt", json_boolean(request->open)) |
              json_object_set_new(all, "bos_token", json_string(chat->bos)) |
              json_object_set_new(all, "eos_token", json_string(chat->eos)) |
              json_object_set_new(all, "time_now", json_integer(request->time_now));
    if (!err && request->tools && json_array_size(request->tools))
        err = json_object_set(all, "tools", (json_t *)request->tools);
    json_decref(messages);
    if (err) {
        json_decref(all);
        return NULL;
    }
    return all;
}

static int attempt(const struct llm_chat *chat, const struct llm_chat_request *request,
                   const struct choice *choice, char **out, size_t *bytes, char *why)
{
    bool tools = request->tools && json_array_size(request->tools);
    if (tools && chat->no_tools)
        return llm_why(why, -EINVAL, "tools: the model's template for them: %s", chat->no_tools);
    json_t *variables = variables_of(chat, request, choice);
    if (!variables)
        return llm_why(why, -ENOMEM, "out of memory");
    int err = llm_template_render(tools && chat->with_tools ? chat->with_tools : chat->plain,
                                  variables, out, bytes, why);
    json_decref(variables);
    return err;
}

/* Whether a choice can matter: some message has calls, or lacks a content. */
static void find_choices(const json_t *messages, bool *calls, bool *empty)
{
    *calls = *empty = false;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const json_t *content = json_object_get(message, "content");
        *calls |= json_array_size(json_object_get(message, "tool_calls")) > 0;
        *empty |= !content || json_is_null(content);
    }
}

static bool ends_with(const char *text, size_t bytes, const char *end)
{
    size_t n = strlen(end);
    return bytes >= n && memcmp(text + bytes - n, end, n) == 0;
}

/* What stands between a prompt and content: no reasoning, and a mark of a form that has one.  A
 * template that writes lines writes an empty reasoning so, too. */
static void put_marks(FILE *out, const struct llm_chat *chat, const char *prompt, size_t bytes)
{
    const struct llm_chat_marks *marks = chat->reasoning;
    const struct tools_shape *shape = llm_tools_shape(chat->form);
    if (marks && llm_chat_ends_open(marks, prompt, bytes)) {
        const char *line = ends_with(prompt, bytes, "\n") ? "\n" : "";
        fprintf(out, "%s%s%s%s%s", line, marks->close, line, line, marks->next ? marks->next : "");
    }
    if (marks && marks->content && !ends_with(prompt, bytes, marks->content))
        fputs(marks->content, out);
    if (shape->text && ends_with(prompt, bytes, shape->prompt))
        fputs(shape->text + strlen(shape->prompt), out);
}

/* What the answer begins with, after a prompt that may hold any bytes. */
static int add_answer(const struct llm_chat *chat, const char *answer, char **prompt, size_t *bytes,
                      char *why)
{
    struct hw_gathered whole;
    FILE *out = hw_gather(&whole);
    if (!out)
        return llm_why(why, -ENOMEM, "out of memory");
    fwrite(*prompt, 1, *bytes, out);
    put_marks(out, chat, *prompt, *bytes);
    fputs(answer, out);
    if (hw_gather_end(out, &whole))
        return llm_why(why, -ENOMEM, "out of memory");
    free(*prompt);
    *prompt = whole.text;
    *bytes = whole.len;
    return 0;
}

static int render(const struct llm_chat *chat, const struct llm_chat_request *request, char **out,
                  size_t *bytes, char *why)
{
    bool calls, empty;
    char ignored[LLM_WHY_CHARS];
    int err = -EINVAL;
    /* The first refusal is the one to tell; the other ways are tried where they differ. */
    find_choices(request->messages, &calls, &empty);
    for (int i = 0; i < 4; i++) {
        struct choice choice = {.arguments_as_text = i & 2, .empty_content = i & 1};
        if ((choice.arguments_as_text && !calls) || (choice.empty_content && !empty))
            continue;
        int result = attempt(chat, request, &choice, out, bytes, i == 0 ? why : ignored);
        if (result != -EINVAL)
            return i > 0 && result ? llm_why(why, result, "%s", ignored) : result;
        err = result;
    }
    return err;
}

int llm_chat_prompt(const struct llm_chat *chat, const struct llm_chat_request *request, char **out,
                    size_t *bytes, char *why)
{
    char *prompt = NULL;
    int err = llm_chat_check(request->messages, request->tools, why);
    if (!err && request->variables && !json_is_object(request->variables))
        err = llm_why(why, -EINVAL, "the template's variables are no object");
    if (!err)
        err = render(chat, request, &prompt, bytes, why);
    if (!err && request->answer)
        err = add_answer(chat, request->answer, &prompt, bytes, why);
    if (err)
        free(prompt);
    else
        *out = prompt;
    return err;
}

int64_t llm_chat_encode(const struct llm_vocab *vocab, const char *prompt, size_t bytes,
                        uint32_t *tokens, size_t room)
{
    int32_t bos = llm_vocab_bos(vocab);
    if (bos < 0 || !llm_vocab_adds_bos(vocab))
        return llm_vocab_encode(vocab, prompt, bytes, tokens, room);
    uint32_t first = (uint32_t)bos + 1, *rest = room > 1 ? tokens + 1 : &first;
    int64_t count = llm_vocab_encode(vocab, prompt, bytes, rest, room > 1 ? room - 1 : 1);
    if (count < 0)
        return count;
    bool has_bos = count > 0 && *rest == (uint32_t)bos;
    if (has_bos && room && (uint64_t)count >= room) /* too many for the room after one more */
        return llm_vocab_encode(vocab, prompt, bytes, tokens, room);
    if (has_bos && room)
        memmove(tokens, rest, (size_t)count * sizeof *tokens);
    else if (room)
        tokens[0] = (uint32_t)bos;
    return count + !has_bos;
}
