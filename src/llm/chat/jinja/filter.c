/* The filters of Jinja: `value | name(arguments)`. */
#include "llm/chat/jinja/node.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct call {
    struct llm_run *run;
    struct tval v;
    const struct targs *args;
    const char *name;
    int how; /* which of several filters this is, as the table below says */
};

enum { REJECT = 1, BY_ATTRIBUTE = 2 }; /* of select and its sisters */

static bool bind(const struct call *c, const char *spec, struct tval *places)
{
    return llm_targs_bind(c->run, c->args, c->name, spec, places);
}

static bool given(struct tval v)
{
    return v.kind != TVAL_UNDEFINED;
}

static struct tval wrong(const struct call *c, const char *what)
{
    return llm_run_fail(c->run, -EINVAL, "the filter %s: %s", c->name, what);
}

static struct tval text_of(const struct call *c)
{
    return llm_tval_to_string(c->run, c->v);
}

/* An attribute's path: "a.b.0" or a number. */
static struct tval follow(struct llm_run *run, struct tval v, struct tval path)
{
    if (path.kind != TVAL_STRING)
        return llm_tval_item(run, v, path);
    for (size_t at = 0; at <= path.bytes && !run->err;) {
        const char *dot = memchr(path.text + at, '.', path.bytes - at);
        size_t n = dot ? (size_t)(dot - path.text) - at : path.bytes - at;
        struct tval part = tval_text(path.text + at, n);
        bool number = n > 0 && n < 10 && strspn(part.text, "0123456789") >= n;
        v = llm_tval_item(run, v, number ? tval_int(strtoll(part.text, NULL, 10)) : part);
        at += n + 1;
    }
    return v;
}

static struct tval filter_trim(const struct call *c)
{
    struct tval chars;
    if (!bind(c, "chars", &chars))
        return chars;
    if (given(chars) && chars.kind != TVAL_STRING && chars.kind != TVAL_NONE)
        return wrong(c, "chars is no string");
    return llm_text_strip(c->run, text_of(c), chars, LLM_TEXT_LEFT | LLM_TEXT_RIGHT);
}

static struct tval filter_length(const struct call *c)
{
    int64_t n = llm_tval_length(c->run, c->v);
    return c->run->err ? tval_undefined() : tval_int(n);
}

static struct tval spaces(struct llm_run *run, struct tval width)
{
    return llm_tval_binary(run, '*', llm_tval_c(" "), width);
}

static struct tval filter_tojson(const struct call *c)
{
    struct tval p[4];
    if (!bind(c, "ensure_ascii indent separators sort_keys", p))
        return tval_undefined();
    struct tjson how = {.ascii = llm_tval_truth(p[0]), .sort_keys = llm_tval_truth(p[3])};
    how.indented = given(p[1]) && p[1].kind != TVAL_NONE;
    if (how.indented)
        how.indent = p[1].kind == TVAL_STRING ? p[1] : spaces(c->run, p[1]);
    how.item = llm_tval_c(how.indented ? "," : ", ");
    how.key = llm_tval_c(": ");
    if (given(p[2]) && p[2].kind != TVAL_NONE) {
        struct tval_list *pair = llm_tval_iterate(c->run, p[2]);
        if (pair->count != 2 || pair->items[0].kind != TVAL_STRING ||
            pair->items[1].kind != TVAL_STRING)
            return wrong(c, "separators are not two strings");
        how.item = pair->items[0];
        how.key = pair->items[1];
    }
    struct tbuf buf = {0};
    llm_tval_json(c->run, &buf, c->v, &how);
    return llm_tbuf_string(&buf);
}

static struct tval filter_join(const struct call *c)
{
    struct tval p[2];
    struct tbuf buf = {0};
    if (!bind(c, "d attribute", p))
        return tval_undefined();
    struct tval between = given(p[0]) ? llm_tval_to_string(c->run, p[0]) : llm_tval_c("");
    struct tval_list *items = llm_tval_iterate(c->run, c->v);
    for (uint32_t i = 0; i < items->count && !c->run->err; i++) {
        bool path = given(p[1]) && p[1].kind != TVAL_NONE;
        if (i)
            llm_tbuf_put(c->run, &buf, between.text, between.bytes);
        llm_tval_str(c->run, &buf, path ? follow(c->run, items->items[i], p[1]) : items->items[i]);
    }
    return llm_tbuf_string(&buf);
}

static struct tval filter_replace(const struct call *c)
{
    struct tval p[3];
    if (!bind(c, "old new count", p))
        return tval_undefined();
    if (!given(p[0]) || !given(p[1]))
        return wrong(c, "old and new are needed");
    int64_t count = tval_is_whole(p[2]) ? tval_whole(p[2]) : -1;
    return llm_text_replace(c->run, text_of(c), llm_tval_to_string(c->run, p[0]),
                            llm_tval_to_string(c->run, p[1]), count);
}

static struct tval filter_case(const struct call *c)
{
    return llm_text_case(c->run, text_of(c), (enum llm_text_case)c->how);
}

/* Jinja's words are told apart by blanks and opening brackets, unlike Python's. */
static struct tval filter_title(const struct call *c)
{
    struct tval text = text_of(c);
    struct tbuf buf = {0};
    size_t at = 0;
    while (at < text.bytes && !c->run->err) {
        size_t end = at, n;
        while (end < text.bytes) {
            struct tval one = tval_text(text.text + end, 1);
            bool splits = strchr("-({[<", text.text[end]) != NULL ||
                          llm_text_strip(c->run, one, tval_none(), LLM_TEXT_LEFT).bytes == 0;
            if (splits)
                break;
            end++;
        }
        if (end == at) {
            llm_tbuf_put(c->run, &buf, text.text + at, 1);
            at++;
            continue;
        }
        n = llm_text_offset(text.text + at, end - at, 1);
        struct tval first = llm_text_case(c->run, tval_text(text.text + at, n), LLM_TEXT_UPPER);
        struct tval rest =
            llm_text_case(c->run, tval_text(text.text + at + n, end - at - n), LLM_TEXT_LOWER);
        llm_tbuf_put(c->run, &buf, first.text, first.bytes);
        llm_tbuf_put(c->run, &buf, rest.text, rest.bytes);
        at = end;
    }
    return llm_tbuf_string(&buf);
}

static struct tval filter_first(const struct call *c)
{
    struct tval_list *items = llm_tval_iterate(c->run, c->v);
    return items->count ? items->items[0] : tval_undefined();
}

static struct tval filter_last(const struct call *c)
{
    if (c->v.kind == TVAL_LIST && c->v.sub == TVAL_SEQ_ITERATOR)
        return wrong(c, "'generator' object is not reversible");
    struct tval_list *items = llm_tval_iterate(c->run, c->v);
    return items->count ? items->items[items->count - 1] : tval_undefined();
}

static struct tval filter_default(const struct call *c)
{
    struct tval p[2];
    if (!bind(c, "default_value boolean", p))
        return tval_undefined();
    if (c->v.kind == TVAL_UNDEFINED || (llm_tval_truth(p[1]) && !llm_tval_truth(c->v)))
        return c->args->positional.list->count || c->args->named.dict->count ? p[0]
                                                                             : llm_tval_c("");
    return c->v;
}

static struct tval iterator(const struct call *c)
{
    return llm_tval_list(c->run, TVAL_SEQ_ITERATOR);
}

/* Of nothing (None, too) map, select and reject make an empty iterator. */
static struct tval_list *items_if_any(const struct call *c)
{
    return llm_tval_iterate(c->run, llm_tval_truth(c->v) ? c->v : tval_undefined());
}

/* Arguments from number `from` on, with the names, for a filter or test that is called for each. */
static struct targs rest_of(const struct call *c, uint32_t from)
{
    struct targs rest = {.positional = llm_tval_list(c->run, TVAL_SEQ_LIST),
                         .named = c->args->named};
    for (uint32_t i = from; !c->run->err && i < c->args->positional.list->count; i++)
        llm_tval_push(c->run, rest.positional, c->args->positional.list->items[i]);
    return rest;
}

static struct tval filter_map(const struct call *c)
{
    struct tval out = iterator(c), p[2];
    struct tval_list *items = items_if_any(c);
    struct tval_list *positional = c->args->positional.list;
    if (positional->count == 0 && !bind(c, "attribute default", p))
        return tval_undefined();
    struct targs rest = rest_of(c, 1);
    for (uint32_t i = 0; i < items->count && !c->run->err; i++) {
        struct tval value;
        if (positional->count == 0) {
            value = follow(c->run, items->items[i], p[0]);
            if (value.kind == TVAL_UNDEFINED && given(p[1]))
                value = p[1];
        } else if (positional->items[0].kind != TVAL_STRING) {
            return wrong(c, "its first argument names no filter");
        } else {
            value = llm_filter_apply(c->run, positional->items[0].text, positional->items[0].bytes,
                                     items->items[i], &rest);
        }
        llm_tval_push(c->run, out, value);
    }
    return out;
}

static struct tval filter_select(const struct call *c)
{
    bool wanted = !(c->how & REJECT), by_attribute = c->how & BY_ATTRIBUTE;
    struct tval out = iterator(c);
    struct tval_list *items = items_if_any(c);
    struct tval_list *positional = c->args->positional.list;
    uint32_t test = by_attribute ? 1 : 0;
    if (by_attribute && positional->count == 0)
        return wrong(c, "missing parameter for attribute name");
    struct targs rest = rest_of(c, test + 1);
    if (positional->count > test && positional->items[test].kind != TVAL_STRING)
        return wrong(c, "the name of a test is needed");
    for (uint32_t i = 0; i < items->count && !c->run->err; i++) {
        struct tval v = items->items[i];
        if (by_attribute)
            v = follow(c->run, v, positional->items[0]);
        bool passes = positional->count > test
                          ? llm_test_apply(c->run, positional->items[test].text,
                                           positional->items[test].bytes, v, &rest)
                          : llm_tval_truth(v);
        if (passes == wanted)
            llm_tval_push(c->run, out, items->items[i]);
    }
    return out;
}

static struct tval copy_items(const struct call *c, struct tval out)
{
    struct tval_list *items = llm_tval_iterate(c->run, c->v);
    for (uint32_t i = 0; i < items->count && !c->run->err; i++)
        llm_tval_push(c->run, out, items->items[i]);
    return out;
}

static struct tval filter_list(const struct call *c)
{
    return copy_items(c, llm_tval_list(c->run, TVAL_SEQ_LIST));
}

static struct tval pair_of(struct llm_run *run, const struct tval_pair *pair)
{
    struct tval tuple = llm_tval_list(run, TVAL_SEQ_TUPLE);
    llm_tval_push(run, tuple, pair->key);
    llm_tval_push(run, tuple, pair->value);
    return tuple;
}

static struct tval filter_items(const struct call *c)
{
    struct tval out = iterator(c);
    if (c->v.kind == TVAL_UNDEFINED)
        return out;
    if (c->v.kind != TVAL_DICT)
        return wrong(c, "Can only get item pairs from a mapping.");
    for (uint32_t i = 0; i < c->v.dict->count && !c->run->err; i++)
        llm_tval_push(c->run, out, pair_of(c->run, &c->v.dict->pairs[i]));
    return out;
}

/* What sorting compares: an attribute of the item, in lower case unless case counts. */
static struct tval sort_key(struct llm_run *run, struct tval item, struct tval path, bool exact)
{
    if (given(path) && path.kind != TVAL_NONE)
        item = follow(run, item, path);
    return item.kind == TVAL_STRING && !exact ? llm_text_case(run, item, LLM_TEXT_LOWER) : item;
}

/* A stable merge sort of list->items by keys. */
static void merge_sort(struct llm_run *run, struct tval *items, struct tval *keys, uint32_t count,
                       bool reverse)
{
    struct tval *items_to = llm_run_alloc(run, (count + 1) * sizeof *items_to);
    struct tval *keys_to = llm_run_alloc(run, (count + 1) * sizeof *keys_to);
    for (uint64_t width = 1; width < count && !run->err; width *= 2) {
        for (uint64_t from = 0; from < count && !run->err; from += 2 * width) {
            uint64_t middle = from + width < count ? from + width : count;
            uint64_t end = from + 2 * width < count ? from + 2 * width : count;
            uint64_t a = from, b = middle;
            for (uint64_t k = from; k < end && llm_run_step(run, 0); k++) {
                bool second = a >= middle;
                if (a < middle && b < end) {
                    int order = llm_tval_order(run, keys[b], keys[a]);
                    second = reverse ? order > 0 : order < 0;
                }
                uint64_t pick = second ? b++ : a++;
                items_to[k] = items[pick];
                keys_to[k] = keys[pick];
            }
        }
        if (!run->err) {
            memcpy(items, items_to, count * sizeof *items);
            memcpy(keys, keys_to, count * sizeof *keys);
        }
    }
}

static struct tval sort_list(const struct call *c, struct tval list, struct tval path, bool exact,
                             bool reverse)
{
    uint32_t count = c->run->err ? 0 : list.list->count;
    struct tval *keys = llm_run_alloc(c->run, (count + 1) * sizeof *keys);
    for (uint32_t i = 0; i < count && !c->run->err; i++)
        keys[i] = sort_key(c->run, list.list->items[i], path, exact);
    if (!c->run->err)
        merge_sort(c->run, list.list->items, keys, count, reverse);
    return list;
}

static struct tval filter_sort(const struct call *c)
{
    struct tval p[3];
    if (!bind(c, "reverse case_sensitive attribute", p))
        return tval_undefined();
    return sort_list(c, filter_list(c), p[2], llm_tval_truth(p[1]), llm_tval_truth(p[0]));
}

static struct tval filter_dictsort(const struct call *c)
{
    struct tval p[3];
    if (!bind(c, "case_sensitive by reverse", p))
        return tval_undefined();
    if (c->v.kind != TVAL_DICT)
        return wrong(c, "the value is no mapping");
    struct tval list = llm_tval_list(c->run, TVAL_SEQ_LIST);
    for (uint32_t i = 0; i < c->v.dict->count && !c->run->err; i++)
        llm_tval_push(c->run, list, pair_of(c->run, &c->v.dict->pairs[i]));
    bool by_value = llm_tval_is(p[1], "value");
    if (given(p[1]) && !by_value && !llm_tval_is(p[1], "key"))
        return wrong(c, "You can only sort by either \"key\" or \"value\"");
    return sort_list(c, list, tval_int(by_value), llm_tval_truth(p[0]), llm_tval_truth(p[2]));
}

static struct tval filter_unique(const struct call *c)
{
    struct tval p[2], out = iterator(c), seen = llm_tval_dict(c->run, TVAL_DICT);
    if (!bind(c, "case_sensitive attribute", p))
        return tval_undefined();
    struct tval_list *items = llm_tval_iterate(c->run, c->v);
    for (uint32_t i = 0; i < items->count && !c->run->err; i++) {
        struct tval key = sort_key(c->run, items->items[i], p[1], llm_tval_truth(p[0]));
        if (llm_tval_get(c->run, seen, key))
            continue;
        llm_tval_set(c->run, seen, key, tval_none());
        llm_tval_push(c->run, out, items->items[i]);
    }
    return out;
}

static struct tval filter_extreme(const struct call *c)
{
    struct tval p[2], best = tval_undefined(), best_key = tval_undefined();
    if (!bind(c, "case_sensitive attribute", p))
        return best;
    struct tval_list *items = llm_tval_iterate(c->run, c->v);
    for (uint32_t i = 0; i < items->count && !c->run->err; i++) {
        struct tval key = sort_key(c->run, items->items[i], p[1], llm_tval_truth(p[0]));
        if (i == 0 || llm_tval_order(c->run, key, best_key) == c->how) {
            best = items->items[i];
            best_key = key;
        }
    }
    return best;
}

static struct tval filter_sum(const struct call *c)
{
    struct tval p[2];
    if (!bind(c, "attribute start", p))
        return tval_undefined();
    struct tval total = given(p[1]) ? p[1] : tval_int(0);
    if (total.kind == TVAL_STRING)
        return wrong(c, "sum() can't sum strings");
    struct tval_list *items = llm_tval_iterate(c->run, c->v);
    for (uint32_t i = 0; i < items->count && !c->run->err; i++) {
        bool path = given(p[0]) && p[0].kind != TVAL_NONE;
        struct tval v = path ? follow(c->run, items->items[i], p[0]) : items->items[i];
        total = llm_tval_binary(c->run, '+', total, v);
    }
    return total;
}

static struct tval filter_reverse(const struct call *c)
{
    if (c->v.kind == TVAL_STRING)
        return llm_tval_slice(c->run, c->v, tval_none(), tval_none(), tval_int(-1));
    struct tval list = filter_list(c);
    struct tval out = iterator(c);
    for (uint32_t i = c->run->err ? 0 : list.list->count; i > 0; i--)
        llm_tval_push(c->run, out, list.list->items[i - 1]);
    return out;
}

/* A number as Python's int() or float() reads text; false if it is none. */
static bool read_number(struct llm_run *run, struct tval v, int base, bool whole, struct tval *out)
{
    char copy[64];
    size_t n = 0;
    struct tval text = llm_text_strip(run, v, tval_none(), LLM_TEXT_LEFT | LLM_TEXT_RIGHT);
    if (text.bytes == 0 || text.bytes >= sizeof copy || text.text[0] == '_' ||
        text.text[text.bytes - 1] == '_')
        return false;
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.text[i] == '_' && text.text[i - 1] != '_')
            continue;
        copy[n++] = text.text[i];
    }
    copy[n] = 0;
    char *end;
    errno = 0;
    if (whole) {
        *out = tval_int(strtoll(copy, &end, base));
        if (errno == ERANGE)
            llm_run_fail(run, -EOPNOTSUPP, "a whole number of more than 64 bits");
    } else {
        if (strpbrk(copy, "xXpP("))
            return false;
        *out = tval_float(strtod(copy, &end));
    }
    return end == copy + n && copy[0] != ' ';
}

static struct tval filter_int(const struct call *c)
{
    struct tval p[2], number;
    if (!bind(c, "default base", p))
        return tval_undefined();
    if (c->v.kind == TVAL_UNDEFINED)
        return wrong(c, "the value is undefined");
    int base = tval_is_whole(p[1]) ? (int)tval_whole(p[1]) : 10;
    struct tval fallback = given(p[0]) ? p[0] : tval_int(0);
    if (base != 0 && (base < 2 || base > 36))
        return fallback;
    if (tval_is_whole(c->v))
        return tval_int(tval_whole(c->v));
    if (c->v.kind == TVAL_STRING) {
        if (read_number(c->run, c->v, base, true, &number))
            return number;
        if (!read_number(c->run, c->v, 0, false, &number))
            return fallback;
    } else if (c->v.kind == TVAL_FLOAT) {
        number = c->v;
    } else {
        return fallback;
    }
    if (isnan(number.f) || isinf(number.f))
        return fallback;
    if (fabs(number.f) >= 9.2e18)
        return llm_run_fail(c->run, -EOPNOTSUPP, "a whole number of more than 64 bits");
    return tval_int((int64_t)number.f);
}

static struct tval filter_float(const struct call *c)
{
    struct tval fallback, number;
    if (!bind(c, "default", &fallback))
        return tval_undefined();
    if (c->v.kind == TVAL_UNDEFINED)
        return wrong(c, "the value is undefined");
    if (tval_is_number(c->v))
        return tval_float(tval_number(c->v));
    if (c->v.kind == TVAL_STRING && read_number(c->run, c->v, 0, false, &number))
        return number;
    return given(fallback) ? fallback : tval_float(0);
}

static struct tval filter_abs(const struct call *c)
{
    if (!tval_is_number(c->v))
        return wrong(c, "the value is no number");
    return tval_number(c->v) < 0    ? llm_tval_negate(c->run, c->v)
           : c->v.kind == TVAL_BOOL ? tval_int(c->v.b)
                                    : c->v;
}

static struct tval filter_round(const struct call *c)
{
    struct tval p[2];
    if (!bind(c, "precision method", p))
        return tval_undefined();
    if (!tval_is_number(c->v))
        return wrong(c, "the value is no number");
    int64_t precision = tval_is_whole(p[0]) ? tval_whole(p[0]) : 0;
    if (precision < -300 || precision > 300)
        return wrong(c, "precision out of range");
    bool up = llm_tval_is(p[1], "ceil"), down = llm_tval_is(p[1], "floor");
    if (given(p[1]) && !up && !down && !llm_tval_is(p[1], "common"))
        return wrong(c, "method must be common, ceil or floor");
    double scale = pow(10, (double)precision), value = tval_number(c->v);
    if (up || down)
        return tval_float((up ? ceil(value * scale) : floor(value * scale)) / scale);
    if (tval_is_whole(c->v) && precision >= 0)
        return tval_int(tval_whole(c->v));
    if (precision < 0) {
        double rounded =
            nearbyint(value / pow(10, (double)-precision)) * pow(10, (double)-precision);
        return tval_is_whole(c->v) ? tval_int((int64_t)rounded) : tval_float(rounded);
    }
    /* printf rounds the exact binary value, as Python does. */
    char text[700];
    snprintf(text, sizeof text, "%.*f", (int)precision, value);
    return tval_float(strtod(text, NULL));
}

static struct tval filter_indent(const struct call *c)
{
    struct tval p[3];
    struct tbuf buf = {0};
    if (!bind(c, "width first blank", p))
        return tval_undefined();
    if (c->v.kind != TVAL_STRING)
        return wrong(c, "the value is no string");
    struct tval width = given(p[0]) ? p[0] : tval_int(4);
    struct tval margin = width.kind == TVAL_STRING ? width : spaces(c->run, width);
    bool first = llm_tval_truth(p[1]), blank = llm_tval_truth(p[2]);
    struct tval text =
        llm_tval_binary(c->run, '+', tval_text(c->v.text, c->v.bytes), llm_tval_c("\n"));
    struct tval lines = llm_text_lines(c->run, text, false);
    for (uint32_t i = 0; !c->run->err && i < lines.list->count; i++) {
        struct tval line = lines.list->items[i];
        if (i)
            llm_tbuf_puts(c->run, &buf, "\n");
        if (i ? blank || line.bytes : first)
            llm_tbuf_put(c->run, &buf, margin.text, margin.bytes);
        llm_tbuf_put(c->run, &buf, line.text, line.bytes);
    }
    struct tval out = llm_tbuf_string(&buf);
    out.sub = c->v.sub;
    return out;
}

static struct tval filter_safe(const struct call *c)
{
    struct tval text = text_of(c);
    text.sub = 1;
    return text;
}

static struct tval filter_escape(const struct call *c)
{
    return llm_text_escape(c->run, text_of(c));
}

static struct tval filter_attr(const struct call *c)
{
    struct tval name;
    if (!bind(c, "name", &name))
        return tval_undefined();
    if (name.kind != TVAL_STRING)
        return wrong(c, "the name is no string");
    /* Attributes only: a member of a dict is none. */
    if (c->v.kind == TVAL_DICT && !llm_method_find(c->v, name.text, name.bytes))
        return tval_undefined();
    return llm_tval_attribute(c->run, c->v, name.text, name.bytes);
}

struct tval llm_filter_apply(struct llm_run *run, const char *name, size_t bytes, struct tval v,
                             const struct targs *args)
{
    static const struct {
        const char *name;
        struct tval (*apply)(const struct call *c);
        int how;
    } table[] = {
        {"abs", filter_abs},
        {"attr", filter_attr},
        {"capitalize", filter_case, LLM_TEXT_CAPITALIZE},
        {"count", filter_length},
        {"d", filter_default},
        {"default", filter_default},
        {"dictsort", filter_dictsort},
        {"e", filter_escape},
        {"escape", filter_escape},
        {"first", filter_first},
        {"float", filter_float},
        {"indent", filter_indent},
        {"int", filter_int},
        {"items", filter_items},
        {"join", filter_join},
        {"last", filter_last},
        {"length", filter_length},
        {"list", filter_list},
        {"lower", filter_case, LLM_TEXT_LOWER},
        {"map", filter_map},
        {"max", filter_extreme, 1},
        {"min", filter_extreme, -1},
        {"reject", filter_select, REJECT},
        {"rejectattr", filter_select, REJECT | BY_ATTRIBUTE},
        {"replace", filter_replace},
        {"reverse", filter_reverse},
        {"round", filter_round},
        {"safe", filter_safe},
        {"select", filter_select},
        {"selectattr", filter_select, BY_ATTRIBUTE},
        {"sort", filter_sort},
        {"string", text_of},
        {"sum", filter_sum},
        {"title", filter_title},
        {"tojson", filter_tojson},
        {"trim", filter_trim},
        {"unique", filter_unique},
        {"upper", filter_case, LLM_TEXT_UPPER},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (strlen(table[i].name) != bytes || memcmp(table[i].name, name, bytes) != 0)
            continue;
        const struct call c = {
            .run = run, .v = v, .args = args, .name = table[i].name, .how = table[i].how};
        if (!llm_run_step(run, 0) || !llm_run_enter(run))
            return tval_undefined();
        struct tval result = table[i].apply(&c);
        llm_run_leave(run);
        return run->err ? tval_undefined() : result;
    }
    return llm_run_fail(run, -EOPNOTSUPP, "the filter '%.*s' is not supported", (int)bytes, name);
}
