/* Methods of strings, lists, dicts and `loop`. */
#include "llm/chat/jinja/node.h"

#include "base/utf8.h"

#include <errno.h>
#include <string.h>

struct call {
    struct llm_run *run;
    struct tval self;
    const struct targs *args;
    const char *name;
};

static bool bind(const struct call *c, const char *spec, struct tval *places)
{
    return llm_targs_bind(c->run, c->args, c->name, spec, places);
}

/* Text arguments: the first `needed` must be there, those that are there must be strings. */
static bool bind_text(const struct call *c, const char *spec, struct tval *places, uint32_t count,
                      uint32_t needed)
{
    if (!bind(c, spec, places))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        bool absent = places[i].kind == TVAL_UNDEFINED && i >= needed;
        if (places[i].kind != TVAL_STRING && !absent) {
            llm_run_fail(c->run, -EINVAL, "%s() argument %u must be str, not %s", c->name, i + 1,
                         llm_tval_type(places[i]));
            return false;
        }
    }
    return true;
}

static struct tval strip(const struct call *c, int sides)
{
    struct tval chars;
    if (!bind(c, "chars", &chars))
        return tval_undefined();
    if (chars.kind != TVAL_STRING && chars.kind != TVAL_NONE && chars.kind != TVAL_UNDEFINED)
        return llm_run_fail(c->run, -EINVAL, "%s arg must be None or str", c->name);
    return llm_text_strip(c->run, c->self, chars, sides);
}

static struct tval str_strip(const struct call *c)
{
    return strip(c, LLM_TEXT_LEFT | LLM_TEXT_RIGHT);
}

static struct tval str_lstrip(const struct call *c)
{
    return strip(c, LLM_TEXT_LEFT);
}

static struct tval str_rstrip(const struct call *c)
{
    return strip(c, LLM_TEXT_RIGHT);
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
static size_t find(struct tval text, struct tval part, size_t from, size_t to, bool right)
{
    if (part.bytes > to - from)
        return SIZE_MAX;
    if (!right) {
        const char *found = part.bytes ? memmem(text.text + from, to - from, part.text, part.bytes)
                                       : text.text + from;
        return found ? (size_t)(found - text.text) : SIZE_MAX;
    }
    for (size_t at = to - part.bytes + 1; at > from; at--) {
        if (memcmp(text.text + at - 1, part.text, part.bytes) == 0)
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

static struct tval split(const struct call *c, bool right)
{
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
        size_t at = find(c->self, p[0], from, to, right);
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

static struct tval str_split(const struct call *c)
{
    return split(c, false);
}

static struct tval str_rsplit(const struct call *c)
{
    return split(c, true);
}

static struct tval partition(const struct call *c, bool right)
{
    struct tval sep, tuple = llm_tval_list(c->run, TVAL_SEQ_TUPLE);
    if (!bind_text(c, "sep", &sep, 1, 1))
        return tval_undefined();
    if (sep.bytes == 0)
        return llm_run_fail(c->run, -EINVAL, "empty separator");
    size_t at = find(c->self, sep, 0, c->self.bytes, right);
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

static struct tval str_partition(const struct call *c)
{
    return partition(c, false);
}

static struct tval str_rpartition(const struct call *c)
{
    return partition(c, true);
}

static bool has_affix(struct tval text, struct tval affix, bool at_end)
{
    return affix.kind == TVAL_STRING && affix.bytes <= text.bytes &&
           memcmp(text.text + (at_end ? text.bytes - affix.bytes : 0), affix.text, affix.bytes) ==
               0;
}

static struct tval affixed(const struct call *c, bool at_end)
{
    struct tval affix;
    if (!bind(c, "prefix", &affix))
        return tval_undefined();
    if (affix.kind == TVAL_STRING)
        return tval_bool(has_affix(c->self, affix, at_end));
    if (affix.kind != TVAL_LIST || affix.sub != TVAL_SEQ_TUPLE)
        return llm_run_fail(c->run, -EINVAL, "%s first arg must be str or a tuple of str, not %s",
                            c->name, llm_tval_type(affix));
    for (uint32_t i = 0; i < affix.list->count; i++) {
        if (has_affix(c->self, affix.list->items[i], at_end))
            return tval_bool(true);
    }
    return tval_bool(false);
}

static struct tval str_startswith(const struct call *c)
{
    return affixed(c, false);
}

static struct tval str_endswith(const struct call *c)
{
    return affixed(c, true);
}

static struct tval str_removeprefix(const struct call *c)
{
    struct tval affix;
    if (!bind_text(c, "prefix", &affix, 1, 1))
        return tval_undefined();
    size_t n = has_affix(c->self, affix, false) ? affix.bytes : 0;
    return tval_text(c->self.text + n, c->self.bytes - n);
}

static struct tval str_removesuffix(const struct call *c)
{
    struct tval affix;
    if (!bind_text(c, "suffix", &affix, 1, 1))
        return tval_undefined();
    return tval_text(c->self.text,
                     c->self.bytes - (has_affix(c->self, affix, true) ? affix.bytes : 0));
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

static struct tval change_case(const struct call *c, enum llm_text_case how)
{
    if (!bind(c, "", NULL))
        return tval_undefined();
    return llm_text_case(c->run, c->self, how);
}

static struct tval str_upper(const struct call *c)
{
    return change_case(c, LLM_TEXT_UPPER);
}

static struct tval str_lower(const struct call *c)
{
    return change_case(c, LLM_TEXT_LOWER);
}

static struct tval str_title(const struct call *c)
{
    return change_case(c, LLM_TEXT_TITLE);
}

static struct tval str_capitalize(const struct call *c)
{
    return change_case(c, LLM_TEXT_CAPITALIZE);
}

static struct tval position(const struct call *c, bool right, bool must)
{
    struct tval part;
    if (!bind_text(c, "sub", &part, 1, 1))
        return tval_undefined();
    size_t at = find(c->self, part, 0, c->self.bytes, right);
    llm_run_step(c->run, c->self.bytes / 16);
    if (at == SIZE_MAX && must)
        return llm_run_fail(c->run, -EINVAL, "substring not found");
    return tval_int(at == SIZE_MAX ? -1 : (int64_t)llm_text_length(c->self.text, at));
}

static struct tval str_find(const struct call *c)
{
    return position(c, false, false);
}

static struct tval str_rfind(const struct call *c)
{
    return position(c, true, false);
}

static struct tval str_index(const struct call *c)
{
    return position(c, false, true);
}

static struct tval str_count(const struct call *c)
{
    struct tval part;
    if (!bind_text(c, "sub", &part, 1, 1))
        return tval_undefined();
    if (part.bytes == 0)
        return tval_int((int64_t)llm_text_length(c->self.text, c->self.bytes) + 1);
    int64_t count = 0;
    for (size_t at = 0; llm_run_step(c->run, 0); count++) {
        at = find(c->self, part, at, c->self.bytes, false);
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

static struct tval every_char(const struct call *c, bool (*passes)(uint32_t code))
{
    bool all = c->self.bytes > 0;
    for (size_t at = 0; at < c->self.bytes && all;) {
        uint32_t code;
        at += hw_utf8_next(c->self.text + at, c->self.bytes - at, &code);
        all = passes(code);
    }
    llm_run_step(c->run, c->self.bytes / 16);
    return tval_bool(all);
}

static bool is_digit(uint32_t code)
{
    return code >= '0' && code <= '9';
}

static struct tval str_isdigit(const struct call *c)
{
    return every_char(c, is_digit);
}

static struct tval str_isspace(const struct call *c)
{
    return every_char(c, llm_text_is_space);
}

static struct tval is_case(const struct call *c, const char *test)
{
    struct targs none = {.positional = llm_tval_list(c->run, TVAL_SEQ_LIST),
                         .named = llm_tval_dict(c->run, TVAL_DICT)};
    if (c->run->err)
        return tval_undefined();
    return tval_bool(llm_test_apply(c->run, test, strlen(test), c->self, &none));
}

static struct tval str_isupper(const struct call *c)
{
    return is_case(c, "upper");
}

static struct tval str_islower(const struct call *c)
{
    return is_case(c, "lower");
}

static struct tval view(const struct call *c, enum tval_sequence which)
{
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

static struct tval dict_items(const struct call *c)
{
    return view(c, TVAL_SEQ_ITEMS);
}

static struct tval dict_keys(const struct call *c)
{
    return view(c, TVAL_SEQ_KEYS);
}

static struct tval dict_values(const struct call *c)
{
    return view(c, TVAL_SEQ_VALUES);
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

/* What Python has and templates do not use is refused, so that it is not taken for undefined. */
static struct tval unsupported(const struct call *c)
{
    return llm_run_fail(c->run, -EOPNOTSUPP, "the method %s.%s() is not supported",
                        llm_tval_type(c->self), c->name);
}

struct method {
    const char *name;
    struct tval (*call)(const struct call *c);
};

static const struct method str_methods[] = {
    {"capitalize", str_capitalize},
    {"count", str_count},
    {"endswith", str_endswith},
    {"find", str_find},
    {"format", str_format},
    {"index", str_index},
    {"isdigit", str_isdigit},
    {"islower", str_islower},
    {"isspace", str_isspace},
    {"isupper", str_isupper},
    {"join", str_join},
    {"lower", str_lower},
    {"lstrip", str_lstrip},
    {"partition", str_partition},
    {"removeprefix", str_removeprefix},
    {"removesuffix", str_removesuffix},
    {"replace", str_replace},
    {"rfind", str_rfind},
    {"rpartition", str_rpartition},
    {"rsplit", str_rsplit},
    {"rstrip", str_rstrip},
    {"split", str_split},
    {"splitlines", str_splitlines},
    {"startswith", str_startswith},
    {"strip", str_strip},
    {"title", str_title},
    {"upper", str_upper},
    {"casefold", unsupported},
    {"center", unsupported},
    {"encode", unsupported},
    {"expandtabs", unsupported},
    {"format_map", unsupported},
    {"isalnum", unsupported},
    {"isalpha", unsupported},
    {"isascii", unsupported},
    {"isdecimal", unsupported},
    {"isidentifier", unsupported},
    {"isnumeric", unsupported},
    {"isprintable", unsupported},
    {"istitle", unsupported},
    {"ljust", unsupported},
    {"maketrans", unsupported},
    {"rindex", unsupported},
    {"rjust", unsupported},
    {"swapcase", unsupported},
    {"translate", unsupported},
    {"zfill", unsupported},
    {0},
};

static const struct method list_methods[] = {
    {"append", list_append},  {"count", list_count},   {"index", list_index},
    {"pop", list_pop},        {"clear", unsupported},  {"copy", unsupported},
    {"extend", unsupported},  {"insert", unsupported}, {"remove", unsupported},
    {"reverse", unsupported}, {"sort", unsupported},   {0},
};

static const struct method tuple_methods[] = {{"count", list_count}, {"index", list_index}, {0}};

static const struct method dict_methods[] = {
    {"copy", dict_copy},         {"get", dict_get},       {"items", dict_items},
    {"keys", dict_keys},         {"values", dict_values}, {"clear", unsupported},
    {"fromkeys", unsupported},   {"pop", unsupported},    {"popitem", unsupported},
    {"setdefault", unsupported}, {"update", unsupported}, {0},
};

static const struct method loop_methods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}, {0}};

static const struct method no_methods[] = {{0}};

static const struct method *methods_of(struct tval self)
{
    switch (self.kind) {
    case TVAL_STRING:
        return str_methods;
    case TVAL_LIST:
        return self.sub == TVAL_SEQ_LIST    ? list_methods
               : self.sub == TVAL_SEQ_TUPLE ? tuple_methods
                                            : no_methods;
    case TVAL_DICT:
        return dict_methods;
    case TVAL_LOOP:
        return loop_methods;
    default:
        return no_methods;
    }
}

const char *llm_method_find(struct tval self, const char *name, size_t bytes)
{
    for (const struct method *m = methods_of(self); m->name; m++) {
        if (strlen(m->name) == bytes && memcmp(m->name, name, bytes) == 0)
            return m->name;
    }
    return NULL;
}

struct tval llm_method_call(struct llm_run *run, const struct tval_method *method,
                            const struct targs *args)
{
    const struct call c = {.run = run, .self = method->self, .args = args, .name = method->name};
    if (!llm_run_step(run, 0))
        return tval_undefined();
    for (const struct method *m = methods_of(method->self); m->name; m++) {
        if (m->name == method->name)
            return m->call(&c);
    }
    return unsupported(&c);
}
