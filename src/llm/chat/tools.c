#include "llm/chat/tools.h"

#include "base/grow.h"
#include "llm/chat/tools_shape.h"
#include "llm/tokenizer/vocab_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* \1 is the function's name, \2 its arguments, \3 an id that may be left out. */
static const struct tools_shape shapes[] = {
    [LLM_TOOLS_NONE] = {.tells = {NULL}},
    [LLM_TOOLS_HERMES] = {.tells = {"<tool_call>"},
                          .open = "<tool_call>",
                          .close = "</tool_call>",
                          .list = true,
                          .parameters = true, /* Qwen 3 Coder */
                          .call = "<tool_call>\n{\"name\": \"\1\", \"arguments\": \2}\n"
                                  "</tool_call>",
                          .between = "\n"},
    /* Its templates refuse an answer with several calls. */
    [LLM_TOOLS_LLAMA] = {.tells = {"<|python_tag|>", "\"parameters\": "},
                         .open = "<|python_tag|>",
                         .whole_text = true,
                         .list = true,
                         .call = "{\"name\": \"\1\", \"parameters\": \2}"},
    [LLM_TOOLS_MISTRAL] = {.tells = {"[TOOL_CALLS]"},
                           .open = "[TOOL_CALLS]",
                           .after_name = "[ARGS]",
                           .list = true,
                           .begin = "[TOOL_CALLS][",
                           .call = "{\"name\": \"\1\", \"arguments\": \2\3}",
                           .between = ", ",
                           .end = "]"},
    [LLM_TOOLS_MISTRAL_NAMED] = {.tells = {"[ARGS]"},
                                 .open = "[TOOL_CALLS]",
                                 .after_name = "[ARGS]",
                                 .list = true,
                                 .call = "[TOOL_CALLS]\1[ARGS]\2",
                                 .between = ""},
    [LLM_TOOLS_TAGGED] = {.tells = {"<function="},
                          .open = "<function=",
                          .after_name = ">",
                          .close = "</function>",
                          .call = "<function=\1>\2</function>",
                          .between = "\n"},
    [LLM_TOOLS_GRANITE] = {.tells = {"<|tool_call|>"}, /* Phi-4 mini, too, which closes it */
                           .open = "<|tool_call|>",
                           .close = "<|/tool_call|>",
                           .list = true,
                           .begin = "<|tool_call|>[",
                           .call = "{\"name\": \"\1\", \"arguments\": \2}",
                           .between = ", ",
                           .end = "]"},
    [LLM_TOOLS_NEMOTRON] = {.tells = {"<TOOLCALL>"},
                            .open = "<TOOLCALL>",
                            .close = "</TOOLCALL>",
                            .list = true,
                            .begin = "<TOOLCALL>[",
                            .call = "{\"name\": \"\1\", \"arguments\": \2}",
                            .between = ", ",
                            .end = "]</TOOLCALL>"},
    [LLM_TOOLS_APRIEL] = {.tells = {"<tool_calls>["},
                          .open = "<tool_calls>",
                          .close = "</tool_calls>",
                          .list = true,
                          .begin = "<tool_calls>[",
                          .call = "{\"name\": \"\1\", \"arguments\": \2}",
                          .between = ", ",
                          .end = "]</tool_calls>"},
    [LLM_TOOLS_COMMAND] = {.tells = {"<|START_ACTION|>"},
                           .open = "<|START_ACTION|>",
                           .close = "<|END_ACTION|>",
                           .list = true,
                           .begin = "<|START_ACTION|>[\n",
                           .call = "    {\"tool_call_id\": \"0\", \"tool_name\": \"\1\", "
                                   "\"parameters\": \2}",
                           .between = ",\n",
                           .end = "\n]<|END_ACTION|>"},
};

const struct tools_shape *llm_tools_shape(enum llm_tools_form form)
{
    return &shapes[form];
}

enum llm_tools_form llm_tools_form_of(const char *text, size_t bytes)
{
    /* A template that shows several marks is told by the first of these. */
    static const enum llm_tools_form order[] = {
        LLM_TOOLS_APRIEL,   LLM_TOOLS_HERMES,  LLM_TOOLS_MISTRAL_NAMED,
        LLM_TOOLS_MISTRAL,  LLM_TOOLS_TAGGED,  LLM_TOOLS_GRANITE,
        LLM_TOOLS_NEMOTRON, LLM_TOOLS_COMMAND, LLM_TOOLS_LLAMA};
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        const char *const *tells = shapes[order[i]].tells;
        for (size_t k = 0; k < ARRAY_LEN(shapes[0].tells) && tells[k]; k++) {
            if (memmem(text, bytes, tells[k], strlen(tells[k])))
                return order[i];
        }
    }
    return LLM_TOOLS_NONE;
}

const char *llm_tools_piece(enum llm_tools_form form, const struct llm_vocab *vocab, uint32_t token,
                            size_t *bytes)
{
    const char *piece = llm_vocab_piece(vocab, token, false, bytes);
    const char *marks[] = {shapes[form].open, shapes[form].after_name, shapes[form].close};
    for (size_t i = 0; *bytes == 0 && token < vocab->count && i < ARRAY_LEN(marks); i++) {
        const struct gguf_string *name = &vocab->tokens[token].text;
        if (marks[i] && name->bytes == strlen(marks[i]) &&
            memcmp(name->text, marks[i], name->bytes) == 0) {
            *bytes = name->bytes;
            return marks[i];
        }
    }
    return piece;
}

/* ---- the parser ---- */

struct buffer {
    char *text;
    size_t bytes, room;
};

struct call {
    char id[TOOLS_ID_CHARS + 1];
    char *name;
    struct buffer arguments;
};

/* Where in a JSON value. */
struct place {
    size_t depth;
    bool string, escape;
};

enum state {
    STATE_TEXT,      /* content, until a call opens */
    STATE_ARGUMENTS, /* of the last call */
    STATE_OBJECT,    /* after them, within the call's object */
    STATE_LIST,      /* between the calls of a list */
    STATE_CLOSE,     /* before what closes a call */
};

struct llm_tools {
    const struct tools_shape *shape;
    enum llm_tools_form form;
    json_t *names; /* object: of each function that can be called the parameters; NULL: any */
    struct call *calls;
    size_t call_count;
    enum state state;
    struct place place;
    bool list;             /* the call is one of a list */
    bool bare;             /* the call is no object: a name and arguments */
    struct buffer held;    /* text that is not decided */
    struct buffer content; /* what the last call of feed or end gave out */
    bool after_call;       /* blanks that follow are not content */
    bool plain;            /* all else is content */
};

int llm_tools_create(enum llm_tools_form form, const json_t *tools, struct llm_tools **out)
{
    struct llm_tools *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    t->form = form;
    t->shape = &shapes[form];
    t->plain = form == LLM_TOOLS_NONE;
    t->names = tools ? json_object() : NULL;
    bool failed = tools && !t->names;
    for (size_t i = 0; !failed && i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        const json_t *parameters = json_object_get(function, "parameters");
        const json_t *kinds = json_object_get(parameters, "properties");
        failed = name &&
                 json_object_set_new(t->names, name, kinds ? json_deep_copy(kinds) : json_object());
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
    for (size_t i = 0; i < t->call_count; i++) {
        free(t->calls[i].name);
        free(t->calls[i].arguments.text);
    }
    free(t->calls);
    json_decref(t->names);
    free(t->held.text);
    free(t->content.text);
    free(t);
}

static int put(struct buffer *b, const char *more, size_t n)
{
    if (n == 0)
        return 0;
    if (!hw_grow(&b->text, &b->room, b->bytes + n, 1))
        return -ENOMEM;
    memcpy(b->text + b->bytes, more, n);
    b->bytes += n;
    return 0;
}

static void drop(struct buffer *b, size_t n)
{
    b->bytes -= n;
    if (b->bytes)
        memmove(b->text, b->text + n, b->bytes);
}

/* The first n bytes that are held are content. */
static int give_out(struct llm_tools *t, size_t n)
{
    int err = put(&t->content, t->held.text, n);
    if (!err)
        drop(&t->held, n);
    return err;
}

/* ---- JSON ---- */

/* Goes on to the end of the value, or of the text: bytes taken. */
static size_t walk(struct place *p, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (p->escape)
            p->escape = false;
        else if (p->string && c == '\\')
            p->escape = true;
        else if (c == '"')
            p->string = !p->string;
        else if (p->string)
            continue;
        else if (c == '{' || c == '[')
            p->depth++;
        else if ((c == '}' || c == ']') && --p->depth == 0)
            return i + 1;
    }
    return bytes;
}

static size_t skip_blanks(const struct buffer *b, size_t at)
{
    while (at < b->bytes && (b->text[at] == ' ' || b->text[at] == '\n' || b->text[at] == '\r' ||
                             b->text[at] == '\t'))
        at++;
    return at;
}

/* ---- calls ---- */

/* Mistral's templates take ids of nine letters and digits only. */
static void make_id(char id[TOOLS_ID_CHARS + 1])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    uint8_t random[TOOLS_ID_CHARS];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        memset(random, 0, sizeof random);
    for (size_t i = 0; i < TOOLS_ID_CHARS; i++)
        id[i] = letters[random[i] % (sizeof letters - 1)];
    id[TOOLS_ID_CHARS] = 0;
}

static bool is_known(const struct llm_tools *t, const char *name)
{
    return !t->names || json_object_get(t->names, name);
}

/* Not strndup: AddressSanitizer lets that read the byte behind the name, where there may be none.
 */
static char *copy_name(const char *name, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    if (copy) {
        memcpy(copy, name, bytes);
        copy[bytes] = '\0';
    }
    return copy;
}

static int add_call(struct llm_tools *t, const char *name, size_t bytes)
{
    struct call *grown = realloc(t->calls, (t->call_count + 1) * sizeof *grown);
    if (!grown)
        return -ENOMEM;
    t->calls = grown;
    grown[t->call_count] = (struct call){.name = copy_name(name, bytes)};
    if (!grown[t->call_count].name)
        return -ENOMEM;
    make_id(grown[t->call_count].id);
    t->call_count++;
    return 0;
}

/* A call that is there as a whole: 1; 0 if it is no call; -ENOMEM. */
static int add_object(struct llm_tools *t, const json_t *object)
{
    const json_t *function = json_object_get(object, "function");
    const json_t *from = json_is_object(function) ? function : object;
    const char *name = json_string_value(json_object_get(from, "name"));
    const json_t *arguments = json_object_get(from, "arguments");
    if (!arguments)
        arguments = json_object_get(from, "parameters");
    if (!name && json_is_string(function))
        name = json_string_value(function);
    if (!name)
        name = json_string_value(json_object_get(object, "tool_name"));
    if (!name || !is_known(t, name) ||
        (arguments && !json_is_object(arguments) && !json_is_string(arguments)))
        return 0;
    char *text = !arguments                  ? strdup("{}")
                 : json_is_string(arguments) ? strdup(json_string_value(arguments))
                                             : json_dumps(arguments, 0);
    int err = text ? add_call(t, name, strlen(name)) : -ENOMEM;
    if (!err)
        err = put(&t->calls[t->call_count - 1].arguments, text, strlen(text));
    free(text);
    return err ? err : 1;
}

/* What a look at the held text says. */
enum look {
    LOOK_WAIT,    /* more text decides */
    LOOK_CONTENT, /* no call */
    LOOK_CALL,    /* a call begins; the state has changed */
};

static enum look undecided(bool ended)
{
    return ended ? LOOK_CONTENT : LOOK_WAIT;
}

/* A call whose name is known and whose arguments begin at `at`: from here on it is one. */
static int begin_call(struct llm_tools *t, size_t name, size_t name_bytes, size_t at)
{
    int err = add_call(t, t->held.text + name, name_bytes);
    if (err)
        return err;
    drop(&t->held, at);
    t->state = STATE_ARGUMENTS;
    t->place = (struct place){0};
    return 0;
}

static bool is_known_at(const struct llm_tools *t, size_t name, size_t bytes)
{
    char copy[TOOLS_NAME_BYTES_MAX + 1];
    if (bytes == 0 || bytes > TOOLS_NAME_BYTES_MAX)
        return false;
    memcpy(copy, t->held.text + name, bytes);
    copy[bytes] = 0;
    return strlen(copy) == bytes && is_known(t, copy);
}

/* Takes `token` after blanks; false: it is not there, and *short_of says whether it may come. */
static bool take(const struct llm_tools *t, size_t *at, const char *token, bool *short_of)
{
    size_t from = skip_blanks(&t->held, *at), n = strlen(token), left = t->held.bytes - from;
    if (memcmp(t->held.text + from, token, left < n ? left : n) != 0)
        return false;
    *short_of = left < n;
    *at = from + n;
    return left >= n;
}

/* {"name": "NAME", "arguments": { or "parameters".  LOOK_CONTENT: it is written another way. */
static enum look look_head(const struct llm_tools *t, size_t at, size_t *name, size_t *name_bytes,
                           size_t *arguments)
{
    bool more = false;
    if (!take(t, &at, "{", &more) || !take(t, &at, "\"name\"", &more) ||
        !take(t, &at, ":", &more) || !take(t, &at, "\"", &more))
        return more ? LOOK_WAIT : LOOK_CONTENT;
    const char *quote = memchr(t->held.text + at, '"', t->held.bytes - at);
    if (!quote)
        return t->held.bytes - at > TOOLS_NAME_BYTES_MAX ? LOOK_CONTENT : LOOK_WAIT;
    *name = at;
    *name_bytes = (size_t)(quote - t->held.text) - at;
    if (!is_known_at(t, *name, *name_bytes) || memchr(t->held.text + at, '\\', *name_bytes))
        return LOOK_CONTENT;
    at += *name_bytes + 1;
    if (!take(t, &at, ",", &more))
        return more ? LOOK_WAIT : LOOK_CONTENT;
    size_t key = at;
    if (!take(t, &at, "\"arguments\"", &more)) {
        bool other = false;
        at = key;
        if (!take(t, &at, "\"parameters\"", &other))
            return more || other ? LOOK_WAIT : LOOK_CONTENT;
    }
    if (!take(t, &at, ":", &more) || !take(t, &at, "{", &more))
        return more ? LOOK_WAIT : LOOK_CONTENT;
    *arguments = at - 1;
    return LOOK_CALL;
}

/* A call as an object, at `at`.  LOOK_* or -ENOMEM. */
static int look_object(struct llm_tools *t, size_t at, bool ended)
{
    size_t name = 0, name_bytes = 0, arguments = 0;
    enum look found = look_head(t, at, &name, &name_bytes, &arguments);
    if (found == LOOK_CALL) {
        int err = begin_call(t, name, name_bytes, arguments);
        return err ? err : LOOK_CALL;
    }
    if (found == LOOK_WAIT)
        return undecided(ended);
    struct place place = {0};
    size_t n = walk(&place, t->held.text + at, t->held.bytes - at);
    if (place.depth > 0)
        return undecided(ended);
    json_t *value = json_loadb(t->held.text + at, n, 0, NULL);
    int rc = value ? add_object(t, value) : 0;
    json_decref(value);
    if (rc <= 0)
        return rc ? rc : LOOK_CONTENT;
    drop(&t->held, at + n);
    t->state = t->list ? STATE_LIST : STATE_CLOSE;
    return LOOK_CALL;
}

/* NAME[ARGS]{ or NAME>{ at `at`. */
static int look_named(struct llm_tools *t, size_t at, bool ended)
{
    const char *stop = t->shape->after_name;
    const char *found = memmem(t->held.text + at, t->held.bytes - at, stop, strlen(stop));
    size_t limit = found ? (size_t)(found - t->held.text) : t->held.bytes;
    for (size_t i = at; i < limit; i++) {
        /* Names of functions are ASCII; OpenAI allows letters, digits, '_' and '-'. */
        if (strchr("{}\"\n<>", t->held.text[i]) || (unsigned char)t->held.text[i] >= 0x80 ||
            limit - at > TOOLS_NAME_BYTES_MAX)
            return LOOK_CONTENT;
    }
    if (!found)
        return undecided(ended);
    size_t from = skip_blanks(&t->held, limit + strlen(stop));
    if (from == t->held.bytes)
        return undecided(ended);
    if (t->held.text[from] != '{' || !is_known_at(t, at, limit - at))
        return LOOK_CONTENT;
    t->bare = true;
    int err = begin_call(t, at, limit - at, from);
    return err ? err : LOOK_CALL;
}

/* Whether the held text has mark at `at`, or what may become it. */
static bool may_begin(const struct llm_tools *t, size_t at, const char *mark)
{
    size_t n = strlen(mark), left = t->held.bytes - at;
    return memcmp(t->held.text + at, mark, left < n ? left : n) == 0;
}

/* The value of a parameter: text where the schema says so, else JSON if it is any. */
static json_t *tagged_value(const json_t *schema, const char *text, size_t bytes)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    if (bytes > 0 && text[0] == '\n')
        text++, bytes--;
    if (bytes > 0 && text[bytes - 1] == '\n')
        bytes--;
    json_t *value =
        type && strcmp(type, "string") == 0 ? NULL : json_loadb(text, bytes, JSON_DECODE_ANY, NULL);
    return value ? value : json_stringn(text, bytes);
}

/* What lies between the tags, and where it ends; NULL: it is not there. */
static const char *between(const char *from, const char *end, const char *open, const char *close,
                           size_t *bytes)
{
    const char *at = memmem(from, (size_t)(end - from), open, strlen(open));
    at = at ? at + strlen(open) : NULL;
    const char *to = at ? memmem(at, (size_t)(end - at), close, strlen(close)) : NULL;
    *bytes = to ? (size_t)(to - at) : 0;
    return to ? at : NULL;
}

static json_t *tagged_arguments(const struct llm_tools *t, const char *name, const char *from,
                                const char *end)
{
    json_t *arguments = json_object();
    size_t key_bytes, bytes;
    const char *key, *value;
    while ((key = between(from, end, "<parameter=", ">", &key_bytes)) &&
           (value = between(key + key_bytes, end, ">", "</parameter>", &bytes))) {
        char *copy = copy_name(key, key_bytes);
        const json_t *schema = json_object_get(json_object_get(t->names, name), copy ? copy : "");
        /* A value that is no UTF-8 is left out. */
        if (copy)
            (void)json_object_set_new(arguments, copy, tagged_value(schema, value, bytes));
        free(copy);
        from = value + bytes;
    }
    return arguments;
}

/* <function=NAME>, its parameters, </function> at `at`: taken as a whole.  LOOK_* or -ENOMEM. */
static int look_tagged(struct llm_tools *t, size_t at, bool ended)
{
    static const char open[] = "<function=", close[] = "</function>";
    if (!may_begin(t, at, open))
        return LOOK_CONTENT;
    const char *text = t->held.text;
    const char *end = memmem(text + at, t->held.bytes - at, close, sizeof close - 1);
    if (!end)
        return undecided(ended);
    size_t name_bytes;
    const char *name = between(text + at, end, open, ">", &name_bytes);
    if (!name || !is_known_at(t, (size_t)(name - text), name_bytes))
        return LOOK_CONTENT;
    int err = add_call(t, name, name_bytes);
    if (err)
        return err;
    struct call *call = &t->calls[t->call_count - 1];
    json_t *arguments = tagged_arguments(t, call->name, name + name_bytes, end);
    char *json = arguments ? json_dumps(arguments, 0) : NULL;
    err = json ? put(&call->arguments, json, strlen(json)) : -ENOMEM;
    free(json);
    json_decref(arguments);
    if (err)
        return err;
    drop(&t->held, (size_t)(end - text) + sizeof close - 1);
    t->state = STATE_CLOSE;
    return LOOK_CALL;
}

/* A call after what opens it. */
static int look_call(struct llm_tools *t, size_t at, bool ended)
{
    at = skip_blanks(&t->held, at);
    if (at == t->held.bytes)
        return undecided(ended);
    bool list = t->shape->list && t->held.text[at] == '[';
    if (list) {
        at = skip_blanks(&t->held, at + 1);
        if (at == t->held.bytes)
            return undecided(ended);
    }
    t->list = list;
    t->bare = false;
    if (t->held.text[at] == '{' && (list || !t->shape->after_name || t->shape->list))
        return look_object(t, at, ended);
    if (!list && t->shape->parameters)
        return look_tagged(t, at, ended);
    return list || !t->shape->after_name ? LOOK_CONTENT : look_named(t, at, ended);
}

/* ---- states: 1 to go on, 0 for more text, or -ENOMEM ---- */

/* Llama writes calls as the whole text, with ';' between and perhaps a tag before. */
static int look_whole_text(struct llm_tools *t, bool ended)
{
    size_t at = skip_blanks(&t->held, 0), n = strlen(t->shape->open);
    if (at < t->held.bytes && t->call_count > 0 && t->held.text[at] == ';')
        at = skip_blanks(&t->held, at + 1);
    if (at == t->held.bytes) {
        if (ended && t->call_count > 0)
            drop(&t->held, at);
        return undecided(ended);
    }
    if (may_begin(t, at, t->shape->open)) {
        if (t->held.bytes - at < n)
            return undecided(ended);
        at += n;
    }
    return look_call(t, at, ended);
}

static int on_text(struct llm_tools *t, bool ended)
{
    const char *open = t->shape->open;
    size_t at = 0;
    if (t->plain)
        return give_out(t, t->held.bytes);
    if (t->after_call && !t->shape->whole_text) {
        drop(&t->held, skip_blanks(&t->held, 0));
        t->after_call = t->held.bytes == 0;
    }
    while (!t->shape->whole_text && at < t->held.bytes && !may_begin(t, at, open))
        at++;
    int err = give_out(t, at);
    if (err || t->held.bytes == 0)
        return err;
    int found;
    if (t->shape->whole_text)
        found = look_whole_text(t, ended);
    else if (t->held.bytes < strlen(open))
        found = undecided(ended);
    else
        found = look_call(t, strlen(open), ended);
    if (found < 0 || found == LOOK_CALL)
        return found < 0 ? found : 1;
    if (found == LOOK_WAIT && t->held.bytes <= LLM_TOOL_CALL_BYTES_MAX)
        return 0;
    /* No call: its first byte is content, and the rest is looked at again. */
    t->plain = t->shape->whole_text;
    err = t->held.bytes ? give_out(t, 1) : 0;
    return err ? err : 1;
}

static int on_arguments(struct llm_tools *t)
{
    struct buffer *arguments = &t->calls[t->call_count - 1].arguments;
    size_t n = walk(&t->place, t->held.text, t->held.bytes);
    int err = put(arguments, t->held.text, n);
    if (err)
        return err;
    drop(&t->held, n);
    if (arguments->bytes > LLM_TOOL_CALL_BYTES_MAX) {
        t->plain = true;
        t->state = STATE_TEXT;
    } else if (t->place.depth == 0) {
        t->place.depth = 1;
        t->state = t->bare ? STATE_CLOSE : STATE_OBJECT;
    }
    return t->state != STATE_ARGUMENTS;
}

static int on_object(struct llm_tools *t)
{
    drop(&t->held, walk(&t->place, t->held.text, t->held.bytes));
    if (t->place.depth > 0)
        return 0;
    t->state = t->list ? STATE_LIST : STATE_CLOSE;
    return 1;
}

static int on_list(struct llm_tools *t, bool ended)
{
    size_t at = skip_blanks(&t->held, 0);
    if (at < t->held.bytes && t->held.text[at] == ',')
        at = skip_blanks(&t->held, at + 1);
    if (at == t->held.bytes)
        return 0;
    int found = LOOK_CONTENT;
    if (t->held.text[at] == '{' && t->call_count < LLM_TOOL_CALLS_MAX)
        found = look_object(t, at, ended);
    else if (t->held.text[at] == ']')
        drop(&t->held, at + 1);
    if (found < 0 || found == LOOK_WAIT)
        return found < 0 ? found : t->held.bytes > LLM_TOOL_CALL_BYTES_MAX;
    if (found == LOOK_CONTENT)
        t->state = STATE_CLOSE;
    return 1;
}

static int on_close(struct llm_tools *t, bool ended)
{
    const char *close = t->shape->close;
    size_t at = skip_blanks(&t->held, 0);
    if (close && at == t->held.bytes && !ended)
        return 0;
    if (close && may_begin(t, at, close)) {
        size_t n = strlen(close), left = t->held.bytes - at;
        if (left < n && !ended)
            return 0;
        drop(&t->held, left < n ? t->held.bytes : at + n);
    }
    t->state = STATE_TEXT;
    t->after_call = true;
    t->plain = t->call_count >= LLM_TOOL_CALLS_MAX;
    return 1;
}

static int step(struct llm_tools *t, bool ended)
{
    switch (t->state) {
    case STATE_TEXT:
        return on_text(t, ended);
    case STATE_ARGUMENTS:
        return on_arguments(t);
    case STATE_OBJECT:
        return on_object(t);
    case STATE_LIST:
        return on_list(t, ended);
    case STATE_CLOSE:
        return on_close(t, ended);
    }
    return 0;
}

static int turn(struct llm_tools *t, bool ended, const char **content, size_t *content_bytes)
{
    int rc = 1;
    t->content.bytes = 0;
    while (rc > 0 && t->held.bytes > 0)
        rc = step(t, ended);
    if (rc < 0)
        return rc;
    *content = t->content.bytes ? t->content.text : "";
    *content_bytes = t->content.bytes;
    return 0;
}

int llm_tools_feed(struct llm_tools *t, const char *text, size_t bytes, const char **content,
                   size_t *content_bytes)
{
    int err = put(&t->held, text, bytes);
    return err ? err : turn(t, false, content, content_bytes);
}

int llm_tools_end(struct llm_tools *t, const char **content, size_t *content_bytes)
{
    return turn(t, true, content, content_bytes);
}

size_t llm_tools_count(const struct llm_tools *t)
{
    return t->call_count;
}

size_t llm_tools_whole(const struct llm_tools *t)
{
    return t->call_count - (t->state == STATE_ARGUMENTS);
}

size_t llm_tools_arguments(const struct llm_tools *t, size_t index, const char **text)
{
    assert(index < t->call_count);
    const struct buffer *arguments = &t->calls[index].arguments;
    *text = arguments->bytes ? arguments->text : "";
    return arguments->bytes;
}

json_t *llm_tools_call(const struct llm_tools *t, size_t index, bool begin)
{
    const char *text;
    size_t bytes = llm_tools_arguments(t, index, &text);
    const struct call *call = &t->calls[index];
    json_t *arguments = json_stringn(text, begin ? 0 : bytes);
    return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", call->id, "type", "function", "function",
                     "name", call->name, "arguments", arguments);
}
