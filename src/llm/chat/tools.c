#include "llm/chat/tools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char llama_tag[] = "<|python_tag|>";

struct llm_tools {
    enum llm_tools_form form;
    json_t *names; /* object: a member for each name that can be called; NULL: any */
    json_t *calls; /* array */
    char *held;    /* text that may be a call */
    size_t held_bytes, held_room;
    char *content; /* what the last call gave out */
    size_t content_bytes, content_room;
    bool after_call; /* blanks that follow are not content */
    bool began;      /* LLAMA: content was given out, so no call can begin any more */
    bool plain;      /* a call was too long or there are too many: all else is content */
};

/* What begins a call. */
static const char *opening(enum llm_tools_form form)
{
    return form == LLM_TOOLS_HERMES    ? "<tool_call>"
           : form == LLM_TOOLS_MISTRAL ? "[TOOL_CALLS]"
           : form == LLM_TOOLS_TAGGED  ? "<function="
                                       : "";
}

enum llm_tools_form llm_tools_form_of(const char *text, size_t bytes)
{
    static const struct {
        const char *mark;
        enum llm_tools_form form;
    } marks[] = {
        {"<tool_call>", LLM_TOOLS_HERMES},     {"[TOOL_CALLS]", LLM_TOOLS_MISTRAL},
        {"<function=", LLM_TOOLS_TAGGED},      {llama_tag, LLM_TOOLS_LLAMA},
        {"\"parameters\": ", LLM_TOOLS_LLAMA},
    };
    for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
        if (memmem(text, bytes, marks[i].mark, strlen(marks[i].mark)))
            return marks[i].form;
    }
    return LLM_TOOLS_NONE;
}

int llm_tools_create(enum llm_tools_form form, const json_t *tools, struct llm_tools **out)
{
    struct llm_tools *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    t->form = form;
    t->calls = json_array();
    t->names = tools ? json_object() : NULL;
    bool failed = !t->calls || (tools && !t->names);
    for (size_t i = 0; !failed && i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        failed = name && json_object_set_new(t->names, name, json_true());
    }
    if (failed) {
        llm_tools_destroy(t);
        return -ENOMEM;
    }
    *out = t;
    return 0;
}

void llm_tools_destroy(struct llm_tools *t)
{
    if (!t)
        return;
    json_decref(t->calls);
    json_decref(t->names);
    free(t->held);
    free(t->content);
    free(t);
}

static int put(char **text, size_t *bytes, size_t *room, const char *more, size_t n)
{
    if (n == 0)
        return 0;
    if (*bytes + n > *room) {
        size_t grown = (*bytes + n) * 2;
        char *p = realloc(*text, grown);
        if (!p)
            return -ENOMEM;
        *text = p;
        *room = grown;
    }
    memcpy(*text + *bytes, more, n);
    *bytes += n;
    return 0;
}

static int give_out(struct llm_tools *t, const char *text, size_t n)
{
    return put(&t->content, &t->content_bytes, &t->content_room, text, n);
}

static void drop_held(struct llm_tools *t, size_t n)
{
    t->held_bytes -= n;
    if (t->held_bytes)
        memmove(t->held, t->held + n, t->held_bytes);
}

/* ---- calls ---- */

static json_t *make_call(struct llm_tools *t, const char *name, const json_t *arguments,
                         const char *id)
{
    char made[32];
    char *text =
        json_is_string(arguments) ? strdup(json_string_value(arguments)) : json_dumps(arguments, 0);
    if (!text)
        return NULL;
    /* Mistral's templates take an id of nine letters and digits only. */
    snprintf(made, sizeof made, "call%05zu", json_array_size(t->calls));
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id ? id : made, "type", "function",
                             "function", "name", name, "arguments", text);
    free(text);
    return call;
}

/* Adds {"name", "arguments" or "parameters"}: 1; 0 if it is no call; -ENOMEM. */
static int add_object(struct llm_tools *t, const json_t *object, json_t *to)
{
    const json_t *function = json_object_get(object, "function");
    const json_t *from = json_is_object(function) ? function : object;
    const char *name = json_string_value(json_object_get(from, "name"));
    const json_t *arguments = json_object_get(from, "arguments");
    const char *id = json_string_value(json_object_get(object, "id"));
    if (!arguments)
        arguments = json_object_get(from, "parameters");
    if (!name && json_is_string(function))
        name = json_string_value(function);
    if (!name || (t->names && !json_object_get(t->names, name)) ||
        (arguments && !json_is_object(arguments) && !json_is_string(arguments)))
        return 0;
    json_t *empty = arguments ? NULL : json_object();
    json_t *call = make_call(t, name, arguments ? arguments : empty, id);
    json_decref(empty);
    if (!call)
        return -ENOMEM;
    return json_array_append_new(to, call) ? -ENOMEM : 1;
}

/* The end of the JSON value that begins at text[0]: its bytes, or 0 while it is not there. */
static size_t json_end(const char *text, size_t bytes)
{
    size_t depth = 0;
    bool string = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                string = false;
        } else if (c == '"') {
            string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (depth == 0)
                return 0;
            if (--depth == 0)
                return i + 1;
        }
    }
    return 0;
}

static size_t skip_blanks(const char *text, size_t bytes, size_t at)
{
    while (at < bytes &&
           (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t'))
        at++;
    return at;
}

/* What a look at the held text says: bytes of a call that was added, or */
enum { LOOK_WAIT = 0, LOOK_CONTENT = -1 };

/* One object or an array of them, parsed and added.  Bytes, or as above, or -ENOMEM. */
static long add_json(struct llm_tools *t, size_t at, const char *end_mark, bool ended)
{
    const char *text = t->held;
    at = skip_blanks(text, t->held_bytes, at);
    if (at == t->held_bytes)
        return ended ? LOOK_CONTENT : LOOK_WAIT;
    if (text[at] != '{' && text[at] != '[')
        return LOOK_CONTENT;
    size_t n = json_end(text + at, t->held_bytes - at);
    if (!n)
        return ended ? LOOK_CONTENT : LOOK_WAIT;
    size_t end = at + n;
    if (end_mark) {
        size_t mark = strlen(end_mark), from = skip_blanks(text, t->held_bytes, end);
        size_t have = t->held_bytes - from;
        if (memcmp(text + from, end_mark, have < mark ? have : mark) != 0)
            return LOOK_CONTENT;
        if (have < mark && !ended)
            return LOOK_WAIT;
        end = have < mark ? t->held_bytes : from + mark;
    }
    json_t *value = json_loadb(text + at, n, 0, NULL), *added = json_array();
    int result = value && added ? 1 : value ? -ENOMEM : 0;
    if (json_is_array(value)) {
        for (size_t i = 0; result > 0 && i < json_array_size(value); i++)
            result = add_object(t, json_array_get(value, i), added);
        if (json_array_size(value) == 0)
            result = 0;
    } else if (result > 0) {
        result = add_object(t, value, added);
    }
    if (result > 0 && json_array_extend(t->calls, added))
        result = -ENOMEM;
    json_decref(value);
    json_decref(added);
    return result > 0 ? (long)end : result == 0 ? LOOK_CONTENT : -ENOMEM;
}

/* A name up to `stop`, then the arguments: NAME[ARGS]{...}, <function=NAME>{...}</function>. */
static long add_named(struct llm_tools *t, size_t at, const char *stop, const char *end_mark,
                      bool ended)
{
    char *found = memmem(t->held + at, t->held_bytes - at, stop, strlen(stop));
    size_t limit = found ? (size_t)(found - t->held) : t->held_bytes;
    for (size_t i = at; i < limit; i++) {
        /* Names of functions are ASCII; OpenAI allows letters, digits, '_' and '-'. */
        if (strchr("{}\"\n<>", t->held[i]) || (unsigned char)t->held[i] >= 0x80 || limit - at > 256)
            return LOOK_CONTENT;
    }
    if (!found)
        return ended ? LOOK_CONTENT : LOOK_WAIT;
    char name[260];
    size_t from = limit + strlen(stop), start = skip_blanks(t->held, t->held_bytes, from);
    snprintf(name, sizeof name, "%.*s", (int)(limit - at), t->held + at);
    if (start == t->held_bytes)
        return ended ? LOOK_CONTENT : LOOK_WAIT;
    size_t n = t->held[start] == '{' ? json_end(t->held + start, t->held_bytes - start) : 0;
    if (!n)
        return ended || t->held[start] != '{' ? LOOK_CONTENT : LOOK_WAIT;
    size_t end = start + n;
    if (end_mark) {
        size_t mark = strlen(end_mark), after = skip_blanks(t->held, t->held_bytes, end);
        size_t have = t->held_bytes - after;
        if (memcmp(t->held + after, end_mark, have < mark ? have : mark) != 0)
            return LOOK_CONTENT;
        if (have < mark && !ended)
            return LOOK_WAIT;
        end = have < mark ? t->held_bytes : after + mark;
    }
    json_t *arguments = json_loadb(t->held + start, n, 0, NULL);
    if (!arguments)
        return LOOK_CONTENT;
    json_t *call = NULL;
    if (!t->names || json_object_get(t->names, name))
        call = make_call(t, name, arguments, NULL);
    json_decref(arguments);
    if (!call)
        return !t->names || json_object_get(t->names, name) ? -ENOMEM : LOOK_CONTENT;
    return json_array_append_new(t->calls, call) ? -ENOMEM : (long)end;
}

/* Whether text[0..bytes) is mark or the beginning of it. */
static bool may_begin(const char *text, size_t bytes, const char *mark)
{
    size_t n = strlen(mark);
    return memcmp(text, mark, bytes < n ? bytes : n) == 0;
}

/* Looks at held text that begins with (a part of) the opening. */
static long look(struct llm_tools *t, bool ended)
{
    const char *open = opening(t->form);
    size_t n = strlen(open);
    if (t->held_bytes < n)
        return ended ? LOOK_CONTENT : LOOK_WAIT;
    if (t->form == LLM_TOOLS_HERMES)
        return add_json(t, n, "</tool_call>", ended);
    if (t->form == LLM_TOOLS_TAGGED)
        return add_named(t, n, ">", "</function>", ended);
    size_t at = skip_blanks(t->held, t->held_bytes, n);
    if (at < t->held_bytes && t->held[at] != '[' && t->held[at] != '{')
        return add_named(t, at, "[ARGS]", NULL, ended);
    return add_json(t, n, NULL, ended);
}

/* Llama writes calls as the whole text. */
static long look_llama(struct llm_tools *t, bool ended)
{
    size_t at = skip_blanks(t->held, t->held_bytes, 0), n = sizeof llama_tag - 1;
    size_t calls = json_array_size(t->calls);
    if (at < t->held_bytes && calls > 0 && t->held[at] == ';')
        at = skip_blanks(t->held, t->held_bytes, at + 1);
    if (at == t->held_bytes)
        return !ended ? LOOK_WAIT : calls ? (long)t->held_bytes : LOOK_CONTENT;
    if (may_begin(t->held + at, t->held_bytes - at, llama_tag)) {
        if (t->held_bytes - at < n)
            return ended ? LOOK_CONTENT : LOOK_WAIT;
        at += n;
    }
    return add_json(t, at, NULL, ended);
}

/* Gives out text up to where a call may begin; returns whether one may be at the front now. */
static int release(struct llm_tools *t)
{
    const char *open = opening(t->form);
    size_t at = 0;
    if (t->form == LLM_TOOLS_NONE || t->plain || t->began)
        at = t->held_bytes;
    else if (t->form != LLM_TOOLS_LLAMA)
        while (at < t->held_bytes && !may_begin(t->held + at, t->held_bytes - at, open))
            at++;
    int err = give_out(t, t->held, at);
    if (!err)
        drop_held(t, at);
    return err;
}

static int scan(struct llm_tools *t, bool ended)
{
    for (;;) {
        if (t->after_call && t->form != LLM_TOOLS_LLAMA) {
            drop_held(t, skip_blanks(t->held, t->held_bytes, 0));
            t->after_call = t->held_bytes == 0;
        }
        int err = release(t);
        if (err || t->held_bytes == 0)
            return err;
        long found = t->form == LLM_TOOLS_LLAMA ? look_llama(t, ended) : look(t, ended);
        if (found == -ENOMEM)
            return -ENOMEM;
        if (found == LOOK_WAIT && t->held_bytes <= LLM_TOOL_CALL_BYTES_MAX)
            return 0;
        if (found > 0) {
            drop_held(t, (size_t)found);
            t->plain = json_array_size(t->calls) >= LLM_TOOL_CALLS_MAX;
            t->after_call = true;
            continue;
        }
        /* No call: its first byte is content, and the rest is looked at again. */
        if (t->form == LLM_TOOLS_LLAMA) {
            t->began = true;
            continue;
        }
        err = give_out(t, t->held, 1);
        if (err)
            return err;
        drop_held(t, 1);
    }
}

static int turn(struct llm_tools *t, bool ended, const char **content, size_t *content_bytes)
{
    t->content_bytes = 0;
    int err = scan(t, ended);
    if (err)
        return err;
    *content = t->content_bytes ? t->content : "";
    *content_bytes = t->content_bytes;
    return 0;
}

int llm_tools_feed(struct llm_tools *t, const char *text, size_t bytes, const char **content,
                   size_t *content_bytes)
{
    int err = put(&t->held, &t->held_bytes, &t->held_room, text, bytes);
    return err ? err : turn(t, false, content, content_bytes);
}

int llm_tools_end(struct llm_tools *t, const char **content, size_t *content_bytes)
{
    return turn(t, true, content, content_bytes);
}

size_t llm_tools_count(const struct llm_tools *t)
{
    return json_array_size(t->calls);
}

json_t *llm_tools_call(const struct llm_tools *t, size_t index)
{
    return json_array_get(t->calls, index);
}
