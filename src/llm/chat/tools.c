#include "llm/chat/tools.h"

#include "base/grow.h"
#include "base/text/gather.h"
#include "llm/chat/tools_shape.h"
#include "llm/chat/tools_values.h"
#include "llm/tokenizer/vocab_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

const char *llm_tools_piece(enum llm_tools_form form, const struct llm_vocab *vocab, uint32_t token,
                            size_t *bytes)
{
    const struct tools_shape *s = llm_tools_shape(form);
    const char *const texts[] = {s->open[0],  s->open[1],  s->open[2],
                                 s->heads[0], s->heads[1], s->tag,
                                 s->tag_end,  s->close[0], s->close[1],
                                 s->close[2], s->tree,     s->loose ? s->loose + 1 : NULL};
    return llm_vocab_mark(vocab, token, texts, ARRAY_LEN(texts), bytes);
}

/* ---- the parser ---- */

/* Takes from its front without moving the rest. */
struct buffer {
    char *text;
    size_t bytes, room;
    size_t gone; /* before the text, which are in the room */
};

struct call {
    char *id, *name;
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
    json_t *names; /* object: of each function that can be called the parameters; NULL: any */
    struct call *calls;
    size_t call_count;
    enum state state;
    struct place place;
    bool list;             /* the call is one of a list */
    bool bare;             /* the call is no object: a name and arguments */
    struct buffer held;    /* text that is not decided */
    struct buffer content; /* what the last call of feed or end gave out */
    size_t of_prompt;      /* the first bytes that are held are the prompt's */
    size_t looked;         /* bytes that the last look read as arguments */
    size_t wasted;         /* those of looks that found no call */
    bool after_call;       /* blanks that follow are not content */
    bool plain;            /* all else is content */
};

static int put(struct buffer *b, const char *more, size_t n)
{
    if (n == 0)
        return 0;
    if (b->gone) {
        memmove(b->text - b->gone, b->text, b->bytes);
        b->text -= b->gone;
        b->gone = 0;
    }
    if (!hw_grow(&b->text, &b->room, b->bytes + n, 1))
        return -ENOMEM;
    memcpy(b->text + b->bytes, more, n);
    b->bytes += n;
    return 0;
}

int llm_tools_create(enum llm_tools_form form, const json_t *tools, struct llm_tools **out)
{
    struct llm_tools *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    t->shape = llm_tools_shape(form);
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
    t->of_prompt = t->shape->prompt ? strlen(t->shape->prompt) : 0;
    if (failed || put(&t->held, t->shape->prompt, t->of_prompt)) {
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
        free(t->calls[i].id);
        free(t->calls[i].name);
        free(t->calls[i].arguments.text);
    }
    free(t->calls);
    json_decref(t->names);
    free(t->held.gone ? t->held.text - t->held.gone : t->held.text);
    free(t->content.text);
    free(t);
}

void llm_tools_begin_in_content(struct llm_tools *t)
{
    t->held.bytes = t->of_prompt = 0;
}

static void drop(struct buffer *b, size_t n)
{
    if (n == 0)
        return;
    b->bytes -= n;
    b->text += n;
    b->gone += n;
}

/* The first n bytes that are held are content. */
static int give_out(struct llm_tools *t, size_t n)
{
    size_t skip = n < t->of_prompt ? n : t->of_prompt;
    int err = put(&t->content, t->held.text + skip, n - skip);
    t->of_prompt -= skip;
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

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static size_t skip_blanks(const struct buffer *b, size_t at)
{
    while (at < b->bytes && is_blank(b->text[at]))
        at++;
    return at;
}

/* ---- calls ---- */

/* Mistral's templates take ids of nine letters and digits only. */
static char *make_id(const struct tools_shape *shape, const char *name, size_t number)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    uint8_t random[TOOLS_ID_CHARS];
    struct hw_gathered id;
    FILE *out = hw_gather(&id);
    if (!out)
        return NULL;
    if (!shape->id && getrandom(random, sizeof random, 0) != sizeof random)
        memset(random, 0, sizeof random);
    for (size_t i = 0; !shape->id && i < TOOLS_ID_CHARS; i++)
        fputc(letters[random[i] % (sizeof letters - 1)], out);
    for (const char *c = shape->id; c && *c; c++) {
        if (*c == '\1')
            fputs(name, out);
        else if (*c == '\2')
            fprintf(out, "%zu", number);
        else
            fputc(*c, out);
    }
    return hw_gather_end(out, &id) ? NULL : id.text;
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
    struct call *call = &grown[t->call_count];
    call->id = call->name ? make_id(t->shape, call->name, t->call_count) : NULL;
    if (!call->id) {
        free(call->name);
        return -ENOMEM;
    }
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
    t->looked += n;
    if (place.depth > 0)
        return undecided(ended);
    json_t *value = json_loadb(t->held.text + at, n, 0, NULL);
    int rc = value ? add_object(t, value) : 0;
    json_decref(value);
    if (rc <= 0)
        return rc ? rc : LOOK_CONTENT;
    drop(&t->held, at + n);
    t->state = STATE_LIST;
    return LOOK_CALL;
}

/* Whether the held text has mark at `at`, or what may become it. */
static bool may_begin(const struct llm_tools *t, size_t at, const char *mark)
{
    size_t n = strlen(mark), left = t->held.bytes - at;
    return memcmp(t->held.text + at, mark, left < n ? left : n) == 0;
}

/* ---- patterns ---- */

struct span {
    size_t at, bytes;
};

enum { PATTERN_NAME = 1, PATTERN_VALUE, PATTERN_KEY, PATTERN_ANY };

static bool is_literal(char c)
{
    return (unsigned char)c > PATTERN_ANY && c != ' ';
}

/* Names of functions are ASCII; OpenAI allows letters, digits, '_' and '-'. */
static size_t name_run(const char *text, size_t bytes, char stop)
{
    size_t n = 0;
    bytes = bytes > TOOLS_NAME_BYTES_MAX ? TOOLS_NAME_BYTES_MAX + 1 : bytes;
    while (n < bytes && !strchr("{}\"\n<> \t\r", text[n]) && (unsigned char)text[n] < 0x80 &&
           text[n] != stop)
        n++;
    return n;
}

/* Bytes before the literal text that `pattern` begins with; where that is not there, those that are
 * certainly before it.  Looks no further than these can be `most`, and one. */
static size_t run_to(const char *pattern, const char *text, size_t bytes, size_t most, bool *there)
{
    size_t n = 0;
    while (is_literal(pattern[n]))
        n++;
    bytes = bytes > most + n ? most + n : bytes;
    const char *found = memmem(text, bytes, pattern, n);
    *there = found != NULL;
    return found ? (size_t)(found - text) : bytes - (bytes < n ? bytes : n - 1);
}

/* Reads the text from *at to end.  LOOK_CALL: the pattern fits, and *at is behind it. */
static enum look match(const char *pattern, const char *text, size_t end, size_t *at,
                       struct span found[PATTERN_ANY + 1])
{
    for (const char *p = pattern; *p; p++) {
        size_t from = *at;
        if (*p == ' ') {
            while (*at < end && is_blank(text[*at]))
                ++*at;
            continue;
        }
        if (from == end)
            return LOOK_WAIT;
        if (is_literal(*p)) {
            if (text[from] != *p)
                return LOOK_CONTENT;
            ++*at;
            continue;
        }
        bool there = true;
        size_t most = *p == PATTERN_VALUE ? SIZE_MAX / 2 : TOOLS_NAME_BYTES_MAX;
        size_t n = *p == PATTERN_NAME ? name_run(text + from, end - from, p[1])
                                      : run_to(p + 1, text + from, end - from, most, &there);
        if (n > most)
            return LOOK_CONTENT;
        if (!there || from + n == end)
            return LOOK_WAIT;
        found[(size_t)*p] = (struct span){from, n};
        *at = from + n;
    }
    return LOOK_CALL;
}

/* ---- calls that are a name and arguments ---- */

/* The arguments from `at` to `end`; NULL: something else is among them. */
static json_t *tagged_arguments(const struct llm_tools *t, const struct span *name, size_t at,
                                size_t end)
{
    const char *text = t->held.text;
    json_t *arguments = json_object();
    char *function = copy_name(text + name->at, name->bytes);
    const json_t *schemas = function ? json_object_get(t->names, function) : NULL;
    if (function && t->shape->tree) {
        json_decref(arguments);
        free(function);
        return llm_tools_tree(text + at, end - at, t->shape->tree, schemas);
    }
    while (arguments && (at = skip_blanks(&t->held, at)) < end) {
        struct span found[PATTERN_ANY + 1] = {0};
        if (match(t->shape->tag, text, end, &at, found) != LOOK_CALL) {
            json_decref(arguments);
            arguments = NULL;
            break;
        }
        const struct span *key = &found[PATTERN_KEY], *value = &found[PATTERN_VALUE];
        char *copy = copy_name(text + key->at, key->bytes);
        /* A value that is no UTF-8 is left out. */
        if (copy)
            (void)json_object_set_new(
                arguments, copy,
                llm_tools_value(json_object_get(schemas, copy), text + value->at, value->bytes));
        free(copy);
    }
    free(function);
    return arguments;
}

/* A call up to `end`; takes the arguments.  LOOK_* or -ENOMEM. */
static int add_whole(struct llm_tools *t, const struct span *name, json_t *arguments, size_t end)
{
    if (!arguments)
        return LOOK_CONTENT;
    char *json = json_dumps(arguments, 0);
    json_decref(arguments);
    int err = json ? add_call(t, t->held.text + name->at, name->bytes) : -ENOMEM;
    if (!err)
        err = put(&t->calls[t->call_count - 1].arguments, json, strlen(json));
    free(json);
    if (err)
        return err;
    drop(&t->held, end);
    t->state = t->list ? STATE_LIST : STATE_CLOSE;
    return LOOK_CALL;
}

/* A call whose name is known and whose arguments are tags from `at` on: taken as a whole.  LOOK_*
 * or -ENOMEM. */
static int look_tagged(struct llm_tools *t, const struct span *name, size_t at, bool ended)
{
    const char *text = t->held.text, *tag_end = t->shape->tag_end;
    const char *end = memmem(text + at, t->held.bytes - at, tag_end, strlen(tag_end));
    t->looked += end ? (size_t)(end - text) - at : t->held.bytes - at;
    if (!end)
        return undecided(ended);
    json_t *arguments = tagged_arguments(t, name, at, (size_t)(end - text));
    return add_whole(t, name, arguments, (size_t)(end - text) + strlen(tag_end));
}

/* The same of arguments as llm_tools_loose reads them. */
static int look_loose(struct llm_tools *t, const struct span *name, size_t at, bool ended)
{
    const char *text = t->held.text, *close = t->shape->close[0];
    size_t bytes = t->held.bytes - at;
    const char *end = memmem(text + at, bytes, close, strlen(close));
    if (!end && !ended)
        return LOOK_WAIT;
    if (end)
        bytes = (size_t)(end - text) - at;
    t->looked += bytes;
    json_t *arguments = llm_tools_loose(text + at, &bytes, t->shape->loose[0],
                                        t->shape->loose[1] ? t->shape->loose + 1 : NULL);
    return add_whole(t, name, arguments, at + bytes);
}

/* A call that begins as one of the form's heads, at `at`.  LOOK_* or -ENOMEM. */
static int look_named(struct llm_tools *t, const char *head, size_t at, bool ended)
{
    struct span found[PATTERN_ANY + 1] = {0};
    const struct span *name = &found[PATTERN_NAME];
    enum look fits = match(head, t->held.text, t->held.bytes, &at, found);
    if (fits != LOOK_CALL)
        return fits == LOOK_WAIT ? (int)undecided(ended) : LOOK_CONTENT;
    if (!is_known_at(t, name->at, name->bytes))
        return LOOK_CONTENT;
    at = skip_blanks(&t->held, at);
    if (at == t->held.bytes)
        return undecided(ended);
    if (t->shape->loose)
        return look_loose(t, name, at, ended);
    if (t->held.text[at] != '{')
        return t->shape->tag_end ? look_tagged(t, name, at, ended) : LOOK_CONTENT;
    t->bare = head[0] != '{';
    int err = begin_call(t, name->at, name->bytes, at);
    return err ? err : LOOK_CALL;
}

/* A call in any of the form's ways. */
static int look_one(struct llm_tools *t, size_t at, bool ended)
{
    bool wait = false;
    for (size_t i = 0; i < ARRAY_LEN(t->shape->heads) && t->shape->heads[i]; i++) {
        int found = look_named(t, t->shape->heads[i], at, ended);
        if (found < 0 || found == LOOK_CALL)
            return found;
        wait = wait || found == LOOK_WAIT;
    }
    t->bare = false;
    int found = t->held.text[at] == '{' ? look_object(t, at, ended) : (int)LOOK_CONTENT;
    return found == LOOK_CONTENT && wait ? (int)LOOK_WAIT : found;
}

/* Which of the form's opening marks, from the k-th on, the text may have at `at`; or how many there
 * are. */
static size_t opening(const struct llm_tools *t, size_t k, size_t at)
{
    while (k < TOOLS_MARKS_MAX && !(t->shape->open[k] && may_begin(t, at, t->shape->open[k])))
        k++;
    return k;
}

/* A call or a list of calls, after marks that may open it. */
static int look_call(struct llm_tools *t, size_t at, bool ended)
{
    for (size_t k = 0;;) {
        size_t next = opening(t, k, at), blanks = t->shape->prompt ? at : skip_blanks(&t->held, at);
        if (blanks == t->held.bytes)
            return undecided(ended);
        if (next == TOOLS_MARKS_MAX) {
            next = opening(t, k, blanks);
            at = blanks;
        }
        if (next == TOOLS_MARKS_MAX)
            break;
        at += strlen(t->shape->open[next]);
        if (at > t->held.bytes)
            return undecided(ended);
        k = next + 1;
    }
    t->list = t->shape->list && t->held.text[at] == '[';
    if (t->list)
        at = skip_blanks(&t->held, at + 1);
    return at == t->held.bytes ? (int)undecided(ended) : look_one(t, at, ended);
}

/* ---- states: 1 to go on, 0 for more text, or -ENOMEM ---- */

/* Llama writes calls as the whole text, with ';' between and perhaps a tag before. */
static int look_whole_text(struct llm_tools *t, bool ended)
{
    size_t at = skip_blanks(&t->held, 0);
    if (at < t->held.bytes && t->call_count > 0 && t->held.text[at] == ';')
        at = skip_blanks(&t->held, at + 1);
    if (at == t->held.bytes) {
        if (ended && t->call_count > 0)
            drop(&t->held, at);
        return undecided(ended);
    }
    return look_call(t, at, ended);
}

static int on_text(struct llm_tools *t, bool ended)
{
    size_t at = 0;
    if (t->plain)
        return give_out(t, t->held.bytes);
    if (t->after_call && !t->shape->whole_text) {
        while (at < t->held.bytes && is_blank(t->held.text[at]) &&
               opening(t, 0, at) == TOOLS_MARKS_MAX)
            at++;
        drop(&t->held, at);
        t->after_call = t->held.bytes == 0 || is_blank(t->held.text[0]);
        at = 0;
    }
    while (!t->shape->whole_text && at < t->held.bytes && opening(t, 0, at) == TOOLS_MARKS_MAX)
        at++;
    int err = give_out(t, at);
    if (err || t->held.bytes == 0)
        return err;
    t->looked = 0;
    int found = t->shape->whole_text ? look_whole_text(t, ended) : look_call(t, 0, ended);
    if (found == LOOK_CALL)
        t->of_prompt = 0;
    if (found < 0 || found == LOOK_CALL)
        return found < 0 ? found : 1;
    if (found == LOOK_WAIT && t->held.bytes <= LLM_TOOL_CALL_BYTES_MAX)
        return 0;
    const char *mark = t->shape->text;
    if (mark && t->held.bytes >= strlen(mark) && may_begin(t, 0, mark)) {
        drop(&t->held, strlen(mark));
        t->of_prompt = 0;
        return 1;
    }
    /* No call: its first byte is content, and the rest is looked at again, but not for ever. */
    t->wasted += t->looked;
    t->plain = t->shape->whole_text || t->wasted > TOOLS_WASTED_BYTES_MAX;
    if (t->after_call && t->held.bytes && !t->plain)
        drop(&t->held, 1);
    else if (t->held.bytes)
        err = give_out(t, 1);
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
    t->state = STATE_LIST;
    return 1;
}

/* Some forms write one object after the other without a list. */
static int on_list(struct llm_tools *t, bool ended)
{
    size_t at = skip_blanks(&t->held, 0);
    if (t->list && at < t->held.bytes && t->held.text[at] == ',')
        at = skip_blanks(&t->held, at + 1);
    if (at == t->held.bytes)
        return 0;
    int found = LOOK_CONTENT;
    bool begins = t->held.text[at] == '{' || (t->shape->loose && t->held.text[at] != ']');
    if (begins && t->call_count < LLM_TOOL_CALLS_MAX && (t->list || !t->shape->whole_text))
        found = look_one(t, at, ended);
    else if (t->list && t->held.text[at] == ']')
        drop(&t->held, at + 1);
    if (found < 0 || (found == LOOK_WAIT && t->held.bytes <= LLM_TOOL_CALL_BYTES_MAX))
        return found < 0 ? found : 0;
    if (found != LOOK_CALL)
        t->state = STATE_CLOSE;
    return 1;
}

static int on_close(struct llm_tools *t, bool ended)
{
    size_t at = skip_blanks(&t->held, 0);
    if (t->shape->close[0] && at == t->held.bytes && !ended)
        return 0;
    for (size_t i = 0; i < TOOLS_MARKS_MAX && t->shape->close[i]; i++) {
        size_t n = strlen(t->shape->close[i]), left = t->held.bytes - at;
        if (!may_begin(t, at, t->shape->close[i]))
            continue;
        if (left < n && !ended)
            return 0;
        drop(&t->held, left < n ? t->held.bytes : at + n);
        return 1;
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
