/* Methods of strings, lists, dicts and `loop`. */
#include "llm/chat/jinja/node.h"

#include "base/text/utf8.h"

#include <errno.h>
#include <string.h>

struct call {
    struct llm_run *run;
    struct tval self;
    const struct targs *args;
    const char *name;
    int how; /* which of several methods this is, as the tables below say */
};

/* Of `how`: find() and its sisters, and what looks at one end of a text. */
enum { LEFT = 0, RIGHT = 1, MUST_FIND = 2 };

static bool bind(const struct call *c, const char *spec, struct tval *places)
{
    return llm_targs_bind(c->run, c->args, c->name, spec, places);
}

/* An argument that must be a string. */
static bool bind_text(const struct call *c, const char *spec, struct tval *text)
{
    if (!bind(c, spec, text))
        return false;
    if (text->kind != TVAL_STRING)
        llm_run_fail(c->run, -EINVAL, "%s() argument 1 must be str, not %s", c->name,
                     llm_tval_type(*text));
    return text->kind == TVAL_STRING;
}

static struct tval str_strip(const struct call *c)
{
    struct tval chars;
    if (!bind(c, "chars", &chars))
        return tval_undefined();
    if (chars.kind != TVAL_STRING && chars.kind != TVAL_NONE && chars.kind != TVAL_UNDEFINED)
        return llm_run_fail(c->run, -EINVAL, "%s arg must be None or str", c->name);
    return llm_text_strip(c->run, c->self, chars, c->how);
}

static void reverse(struct tval list)
{
    for (uint32_t i = 0, k = list.list->count; i + 1 < k; i++) {
        struct tval swap = list.list->items[i];
        list.list->items[i] = list.list->items[--k];
        list.list->items[k] = swap;
    }
}

/* Where `part` is in text[from..to), from the left or the right; SIZE_MAX: nowhere. */
static size_t find(struct llm_run *run, struct tval text, struct tval part, size_t from, size_t to,
                   bool right)
{
    if (part.bytes > to - from)
        return SIZE_MAX;
    if (!right) {
        const char *found = part.bytes ? memmem(text.text + from, to - from, part.text, part.bytes)
                                       : text.text + from;
        return found ? (size_t)(found - text.text) : SIZE_MAX;
    }
    for (size_t at = to - part.bytes + 1; at > from; at--) {
        const char *here = text.text + at - 1;
        if (part.bytes && *here != *part.text)
            continue;
        if (!llm_run_compare(run, part.bytes) || memcmp(here, part.text, part.bytes) == 0)
            return at - 1;
    }
    return SIZE_MAX;
}

static struct tval split_blanks(const struct call *c, int64_t most, bool right)
{
    struct llm_run *run = c->run;
    struct tval list = llm_tval_list(run, TVAL_SEQ_LIST);
    struct tval rest = llm_text_strip(run, c->self, tval_none(), LLM_TEXT_LEFT | LLM_TEXT_RIGHT);
    if (most == 0) /* only the side that is read from loses its blanks */
        rest = llm_text_strip(run, c->self, tval_none(), right ? LLM_TEXT_RIGHT : LLM_TEXT_LEFT);
    while (rest.bytes && !run->err && most != 0) {
        size_t from = 0, to = rest.bytes;
        for (size_t at = 0; at < rest.bytes;) {
            uint32_t code;
            size_t n = hw_utf8_next(rest.text + at, rest.bytes - at, &code);
            bool space = llm_text_is_space(code);
            if (space && !right) {
                to = at;
                break;
            }
            at += n;
            if (space)
                from = at;
        }
        llm_tval_push(run, list, tval_text(rest.text + from, to - from));
        if (right)
            rest.bytes = (uint32_t)from;
        else
            rest = tval_text(rest.text + to, rest.bytes - to);
        rest = llm_text_strip(run, rest, tval_none(), right ? LLM_TEXT_RIGHT : LLM_TEXT_LEFT);
        most -= most > 0;
    }
    /* What is left keeps its blanks at the far end. */
    if (rest.bytes && !run->err) {
        if (right)
            rest = tval_text(c->self.text, (size_t)(rest.text + rest.bytes - c->self.text));
        else
            rest.bytes = (uint32_t)(c->self.text + c->self.bytes - rest.text);
        llm_tval_push(run, list, rest);
    }
    if (right && !run->err)
        reverse(list);
    return list;
}

static struct tval str_split(const struct call *c)
{
    bool right = c->how == RIGHT;
    struct tval p[2];
    struct llm_run *run = c->run;
    if (!bind(c, "sep maxsplit", p))
        return tval_undefined();
    int64_t most = tval_is_whole(p[1]) ? tval_whole(p[1]) : -1;
    if (p[0].kind == TVAL_NONE || p[0].kind == TVAL_UNDEFINED)
        return split_blanks(c, most, right);
    if (p[0].kind != TVAL_STRING)
        return llm_run_fail(run, -EINVAL, "must be str or None, not %s", llm_tval_type(p[0]));
    if (p[0].bytes == 0)
        return llm_run_fail(run, -EINVAL, "empty separator");
    struct tval list = llm_tval_list(run, TVAL_SEQ_LIST);
    size_t from = 0, to = c->self.bytes;
    llm_run_step(run, c->self.bytes / 16);
    while (most != 0 && !run->err) {
        size_t at = find(run, c->self, p[0], from, to, right);
        if (at == SIZE_MAX)
            break;
        size_t after = at + p[0].bytes;
        llm_tval_push(run, list,
                      right ? tval_text(c->self.text + after, to - after)
                            : tval_text(c->self.text + from, at - from));
        if (right)
            to = at;
        else
            from = after;
        most -= most > 0;
    }
    llm_tval_push(run, list, tval_text(c->self.text + from, to - from));
    if (right && !run->err)
        reverse(list);
    return list;
}

static struct tval str_partition(const struct call *c)
{
    bool right = c->how == RIGHT;
    struct tval sep, tuple = llm_tval_list(c->run, TVAL_SEQ_TUPLE);
    if (!bind_text(c, "sep", &sep))
        return tval_undefined();
    if (sep.bytes == 0)
        return llm_run_fail(c->run, -EINVAL, "empty separator");
    llm_run_step(c->run, c->self.bytes / 16);
    size_t at = find(c->run, c->self, sep, 0, c->self.bytes, right);
    bool found = at != SIZE_MAX;
    struct tval empty = llm_tval_c("");
    size_t after = found ? at + sep.bytes : 0;
    struct tval left = found ? tval_text(c->self.text, at) : right ? empty : c->self;
    struct tval rest = found   ? tval_text(c->self.text + after, c->self.bytes - after)
                       : right ? c->self
                               : empty;
    llm_tval_push(c->run, tuple, left);
    llm_tval_push(c->run, tuple, found ? sep : empty);
    llm_tval_push(c->run, tuple, rest);
    return tuple;
}

static bool has_affix(struct llm_run *run, struct tval text, struct tval affix, bool at_end)
{
    return affix.kind == TVAL_STRING && affix.bytes <= text.bytes &&
           llm_run_compare(run, affix.bytes) &&
           memcmp(text.text + (at_end ? text.bytes - affix.bytes : 0), affix.text, affix.bytes) ==
               0;
}

static struct tval str_has_affix(const struct call *c)
{
    bool at_end = c->how == RIGHT;
    struct tval affix;
    if (!bind(c, "prefix", &affix))
        return tval_undefined();
    if (affix.kind == TVAL_STRING)
        return tval_bool(has_affix(c->run, c->self, affix, at_end));
    if (affix.kind != TVAL_LIST || affix.sub != TVAL_SEQ_TUPLE)
        return llm_run_fail(c->run, -EINVAL, "%s first arg must be str or a tuple of str, not %s",
                            c->name, llm_tval_type(affix));
    for (uint32_t i = 0; i < affix.list->count; i++) {
        if (has_affix(c->run, c->self, affix.list->items[i], at_end))
            return tval_bool(true);
    }
    return tval_bool(false);
}

static struct tval str_remove_affix(const struct call *c)
{
    struct tval affix;
    bool at_end = c->how == RIGHT;
    if (!bind_text(c, at_end ? "suffix" : "prefix", &affix))
        return tval_undefined();
    size_t n = has_affix(c->run, c->self, affix, at_end) ? affix.bytes : 0;
    return tval_text(c->self.text + (at_end ? 0 : n), c->self.bytes - n);
}

static struct tval str_replace(const struct call *c)
{
    struct tval p[3];
    if (!bind(c, "old new count", p))
        return tval_undefined();
    if (p[0].kind != TVAL_STRING || p[1].kind != TVAL_STRING)
        return llm_run_fail(c->run, -EINVAL, "replace() arguments must be str");
    return llm_text_replace(c->run, c->self, p[0], p[1],
                            tval_is_whole(p[2]) ? tval_whole(p[2]) : -1);
}

static struct tval str_case(const struct call *c)
{
    if (!bind(c, "", NULL))
        return tval_undefined();
    return llm_text_case(c->run, c->self, (enum llm_text_case)c->how);
}

static struct tval str_find(const struct call *c)
{
    struct tval part;
    if (!bind_text(c, "sub", &part))
        return tval_undefined();
    size_t at = find(c->run, c->self, part, 0, c->self.bytes, c->how & RIGHT);
    llm_run_step(c->run, c->self.bytes / 16);
    if (at == SIZE_MAX && (c->how & MUST_FIND))
        return llm_run_fail(c->run, -EINVAL, "substring not found");
    return tval_int(at == SIZE_MAX ? -1 : (int64_t)llm_text_length(c->self.text, at));
}

static struct tval str_count(const struct call *c)
{
    struct tval part;
    if (!bind_text(c, "sub", &part))
        return tval_undefined();
    if (part.bytes == 0)
        return tval_int((int64_t)llm_text_length(c->self.text, c->self.bytes) + 1);
    int64_t count = 0;
    llm_run_step(c->run, c->self.bytes / 16);
    for (size_t at = 0; llm_run_step(c->run, 0); count++) {
        at = find(c->run, c->self, part, at, c->self.bytes, false);
        if (at == SIZE_MAX)
            break;
        at += part.bytes;
    }
    return tval_int(count);
}

static struct tval str_join(const struct call *c)
{
    struct tval items;
    struct tbuf buf = {0};
    if (!bind(c, "iterable", &items))
        return tval_undefined();
    struct tval_list *list = llm_tval_iterate(c->run, items);
    for (uint32_t i = 0; i < list->count && !c->run->err; i++) {
        struct tval v = list->items[i];
        if (v.kind != TVAL_STRING)
            return llm_run_fail(c->run, -EINVAL,
                                "sequence item %u: expected str instance, %s found", i,
                                llm_tval_type(v));
        if (i)
            llm_tbuf_put(c->run, &buf, c->self.text, c->self.bytes);
        llm_tbuf_put(c->run, &buf, v.text, v.bytes);
    }
    return llm_tbuf_string(&buf);
}

static struct tval str_splitlines(const struct call *c)
{
    struct tval keep;
    if (!bind(c, "keepends", &keep))
        return tval_undefined();
    return llm_text_lines(c->run, c->self, llm_tval_truth(keep));
}

static struct tval str_format(const struct call *c)
{
    return llm_tval_format(c->run, c->self, c->args->positional, c->args->named);
}

static bool is_digit(uint32_t code)
{
    return code >= '0' && code <= '9';
}

/* isdigit() or isspace(). */
static struct tval str_is_all(const struct call *c)
{
    bool all = c->self.bytes > 0;
    for (size_t at = 0; at < c->self.bytes && all;) {
        uint32_t code;
        at += hw_utf8_next(c->self.text + at, c->self.bytes - at, &code);
        all = c->how == ' ' ? llm_text_is_space(code) : is_digit(code);
    }
    llm_run_step(c->run, c->self.bytes / 16);
    return tval_bool(all);
}

static struct tval str_is_case(const struct call *c)
{
    const char *test = c->name + 2; /* "isupper" is the test "upper" */
    struct targs none = {.positional = llm_tval_list(c->run, TVAL_SEQ_LIST),
                         .named = llm_tval_dict(c->run, TVAL_DICT)};
    if (c->run->err)
        return tval_undefined();
    return tval_bool(llm_test_apply(c->run, test, strlen(test), c->self, &none));
}

static struct tval dict_view(const struct call *c)
{
    enum tval_sequence which = (enum tval_sequence)c->how;
    struct tval list = llm_tval_list(c->run, which);
    if (!bind(c, "", NULL))
        return tval_undefined();
    for (uint32_t i = 0; i < c->self.dict->count && !c->run->err; i++) {
        const struct tval_pair *pair = &c->self.dict->pairs[i];
        struct tval item = which == TVAL_SEQ_KEYS ? pair->key : pair->value;
        if (which == TVAL_SEQ_ITEMS) {
            item = llm_tval_list(c->run, TVAL_SEQ_TUPLE);
            llm_tval_push(c->run, item, pair->key);
            llm_tval_push(c->run, item, pair->value);
        }
        llm_tval_push(c->run, list, item);
    }
    return list;
}

static struct tval dict_get(const struct call *c)
{
    struct tval p[2];
    uint32_t count = c->args->positional.list->count;
    if (!bind(c, "key default", p))
        return tval_undefined();
    if (count == 0)
        return llm_run_fail(c->run, -EINVAL, "get expected at least 1 argument, got 0");
    struct tval *value = llm_tval_get(c->run, c->self, p[0]);
    return value ? *value : count > 1 ? p[1] : tval_none();
}

static struct tval dict_copy(const struct call *c)
{
    struct tval copy = llm_tval_dict(c->run, TVAL_DICT);
    for (uint32_t i = 0; i < c->self.dict->count && !c->run->err; i++)
        llm_tval_set(c->run, copy, c->self.dict->pairs[i].key, c->self.dict->pairs[i].value);
    return copy;
}

static struct tval list_append(const struct call *c)
{
    struct tval item;
    if (!bind(c, "object", &item))
        return tval_undefined();
    llm_tval_push(c->run, c->self, item);
    return tval_none();
}

static struct tval list_pop(const struct call *c)
{
    struct tval index;
    struct tval_list *list = c->self.list;
    if (!bind(c, "index", &index))
        return tval_undefined();
    int64_t at = tval_is_whole(index) ? tval_whole(index) : -1;
    if (at < 0)
        at += list->count;
    if (at < 0 || at >= list->count)
        return llm_run_fail(c->run, -EINVAL, "pop index out of range");
    struct tval item = list->items[at];
    list->count--;
    memmove(list->items + at, list->items + at + 1, (list->count - (size_t)at) * sizeof item);
    llm_run_step(c->run, list->count / 16);
    return item;
}

static struct tval list_index(const struct call *c)
{
    struct tval wanted;
    if (!bind(c, "value", &wanted))
        return tval_undefined();
    for (uint32_t i = 0; i < c->self.list->count && llm_run_step(c->run, 0); i++) {
        if (llm_tval_equal(c->run, c->self.list->items[i], wanted))
            return tval_int(i);
    }
    return llm_run_fail(c->run, -EINVAL, "the value is not in the list");
}

static struct tval list_count(const struct call *c)
{
    struct tval wanted;
    int64_t count = 0;
    if (!bind(c, "value", &wanted))
        return tval_undefined();
    for (uint32_t i = 0; i < c->self.list->count && llm_run_step(c->run, 0); i++)
        count += llm_tval_equal(c->run, c->self.list->items[i], wanted);
    return tval_int(count);
}

static struct tval loop_cycle(const struct call *c)
{
    struct tval_list *values = c->args->positional.list;
    if (values->count == 0)
        return llm_run_fail(c->run, -EINVAL, "no items for cycling given");
    return values->items[c->self.loop->index % values->count];
}

static struct tval loop_changed(const struct call *c)
{
    struct tval now = c->args->positional;
    bool same = c->self.loop->changed.kind == TVAL_LIST &&
                llm_tval_equal(c->run, c->self.loop->changed, now);
    c->self.loop->changed = now;
    return tval_bool(!same);
}

static struct tval unsupported(const struct call *c)
{
    return llm_run_fail(c->run, -EOPNOTSUPP, "the method %s.%s() is not supported",
                        llm_tval_type(c->self), c->name);
}

struct method {
    const char *name;
    struct tval (*call)(const struct call *c);
    int how;
};

static const struct method str_methods[] = {
    {"capitalize", str_case, LLM_TEXT_CAPITALIZE},
    {"count", str_count},
    {"endswith", str_has_affix, RIGHT},
    {"find", str_find, LEFT},
    {"format", str_format},
    {"index", str_find, LEFT | MUST_FIND},
    {"isdigit", str_is_all, '0'},
    {"islower", str_is_case},
    {"isspace", str_is_all, ' '},
    {"isupper", str_is_case},
    {"join", str_join},
    {"lower", str_case, LLM_TEXT_LOWER},
    {"lstrip", str_strip, LLM_TEXT_LEFT},
    {"partition", str_partition, LEFT},
    {"removeprefix", str_remove_affix, LEFT},
    {"removesuffix", str_remove_affix, RIGHT},
    {"replace", str_replace},
    {"rfind", str_find, RIGHT},
    {"rpartition", str_partition, RIGHT},
    {"rsplit", str_split, RIGHT},
    {"rstrip", str_strip, LLM_TEXT_RIGHT},
    {"split", str_split, LEFT},
    {"splitlines", str_splitlines},
    {"startswith", str_has_affix, LEFT},
    {"strip", str_strip, LLM_TEXT_LEFT | LLM_TEXT_RIGHT},
    {"title", str_case, LLM_TEXT_TITLE},
    {"upper", str_case, LLM_TEXT_UPPER},
    {0},
};

static const struct method list_methods[] = {
    {"append", list_append}, {"count", list_count}, {"index", list_index}, {"pop", list_pop}, {0}};

static const struct method tuple_methods[] = {{"count", list_count}, {"index", list_index}, {0}};

static const struct method dict_methods[] = {{"copy", dict_copy},
                                             {"get", dict_get},
                                             {"items", dict_view, TVAL_SEQ_ITEMS},
                                             {"keys", dict_view, TVAL_SEQ_KEYS},
                                             {"values", dict_view, TVAL_SEQ_VALUES},
                                             {0}};

static const struct method loop_methods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}, {0}};

/* What Python has and templates do not use is refused, so that it is not taken for undefined. */
static const char *const str_refused[] = {
    "casefold",  "center",    "encode",       "expandtabs", "format_map",  "isalnum", "isalpha",
    "isascii",   "isdecimal", "isidentifier", "isnumeric",  "isprintable", "istitle", "ljust",
    "maketrans", "rindex",    "rjust",        "swapcase",   "translate",   "zfill",   NULL};
static const char *const list_refused[] = {"clear",  "copy",    "extend", "insert",
                                           "remove", "reverse", "sort",   NULL};
static const char *const dict_refused[] = {"clear",      "fromkeys", "pop", "popitem",
                                           "setdefault", "update",   NULL};

struct methods {
    const struct method *rows;
    const char *const *refused;
};

static struct methods methods_of(struct tval self)
{
    static const struct method no_rows[] = {{0}};
    static const char *const none[] = {NULL};
    switch (self.kind) {
    case TVAL_STRING:
        return (struct methods){str_methods, str_refused};
    case TVAL_LIST:
        if (self.sub == TVAL_SEQ_LIST)
            return (struct methods){list_methods, list_refused};
        return (struct methods){self.sub == TVAL_SEQ_TUPLE ? tuple_methods : no_rows, none};
    case TVAL_DICT:
        return (struct methods){dict_methods, dict_refused};
    case TVAL_LOOP:
        return (struct methods){loop_methods, none};
    default:
        return (struct methods){no_rows, none};
    }
}

static bool is_named(const char *method, const char *name, size_t bytes)
{
    return strlen(method) == bytes && memcmp(method, name, bytes) == 0;
}

const char *llm_method_find(struct tval self, const char *name, size_t bytes)
{
    struct methods all = methods_of(self);
    for (; all.rows->name; all.rows++) {
        if (is_named(all.rows->name, name, bytes))
            return all.rows->name;
    }
    for (; *all.refused; all.refused++) {
        if (is_named(*all.refused, name, bytes))
            return *all.refused;
    }
    return NULL;
}

struct tval llm_method_call(struct llm_run *run, const struct tval_method *method,
                            const struct targs *args)
{
    struct call c = {.run = run, .self = method->self, .args = args, .name = method->name};
    if (!llm_run_step(run, 0))
        return tval_undefined();
    for (const struct method *m = methods_of(method->self).rows; m->name; m++) {
        if (m->name != method->name)
            continue;
        c.how = m->how;
        return m->call(&c);
    }
    return unsupported(&c);
}
