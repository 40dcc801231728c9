/* str(), repr() and json.dumps() of values. */
#include "base/text/utf8.h"
#include "llm/chat/jinja/value.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest digits that read back as f, in the form that Python prints. */
void llm_tval_float_repr(double f, char text[32])
{
    if (isnan(f) || isinf(f)) {
        snprintf(text, 32, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    char digits[32];
    int precision = 0;
    do
        snprintf(digits, sizeof digits, "%.*e", precision, f);
    while (strtod(digits, NULL) != f && ++precision < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        char *mantissa_end = strchr(digits, 'e');
        snprintf(text, 32, "%.*se%c%02d", (int)(mantissa_end - digits), digits,
                 exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    int decimals = precision - exponent;
    snprintf(text, 32, "%.*f", decimals > 1 ? decimals : 1, f);
}

static void put_quoted(struct llm_run *run, struct tbuf *buf, struct tval v)
{
    bool has_single = memchr(v.text, '\'', v.bytes), has_double = memchr(v.text, '"', v.bytes);
    char quote = has_single && !has_double ? '"' : '\'';
    llm_tbuf_put(run, buf, &quote, 1);
    for (size_t at = 0; at < v.bytes && !run->err;) {
        uint32_t code;
        size_t n = hw_utf8_next(v.text + at, v.bytes - at, &code);
        char escape[16] = "";
        if (code == (unsigned char)quote || code == '\\')
            snprintf(escape, sizeof escape, "\\%c", (char)code);
        else if (code == '\n' || code == '\r' || code == '\t')
            snprintf(escape, sizeof escape, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
        else if (!llm_text_is_printable(code))
            snprintf(escape, sizeof escape,
                     code < 0x100     ? "\\x%02x"
                     : code < 0x10000 ? "\\u%04x"
                                      : "\\U%08x",
                     code);
        if (*escape)
            llm_tbuf_puts(run, buf, escape);
        else
            llm_tbuf_put(run, buf, v.text + at, n);
        at += n;
    }
    llm_tbuf_put(run, buf, &quote, 1);
}

static void put_list(struct llm_run *run, struct tbuf *buf, struct tval v)
{
    static const char *const opens[] = {
        "[", "(", "range(", "dict_keys([", "dict_values([", "dict_items(["};
    static const char *const closes[] = {"]", ")", ")", "])", "])", "])"};
    if (v.sub == TVAL_SEQ_ITERATOR || v.sub == TVAL_SEQ_RANGE) {
        llm_run_fail(run, -EOPNOTSUPP, "a %s is printed; use the filter list first",
                     llm_tval_type(v));
        return;
    }
    llm_tbuf_puts(run, buf, opens[v.sub]);
    for (uint32_t i = 0; i < v.list->count && !run->err; i++) {
        if (i)
            llm_tbuf_puts(run, buf, ", ");
        llm_tval_repr(run, buf, v.list->items[i]);
    }
    if (v.sub == TVAL_SEQ_TUPLE && v.list->count == 1)
        llm_tbuf_puts(run, buf, ",");
    llm_tbuf_puts(run, buf, closes[v.sub]);
}

static void put_dict(struct llm_run *run, struct tbuf *buf, struct tval v)
{
    llm_tbuf_puts(run, buf, "{");
    for (uint32_t i = 0; i < v.dict->count && !run->err; i++) {
        if (i)
            llm_tbuf_puts(run, buf, ", ");
        llm_tval_repr(run, buf, v.dict->pairs[i].key);
        llm_tbuf_puts(run, buf, ": ");
        llm_tval_repr(run, buf, v.dict->pairs[i].value);
    }
    llm_tbuf_puts(run, buf, "}");
}

void llm_tval_repr(struct llm_run *run, struct tbuf *buf, struct tval v)
{
    char text[32];
    if (!llm_run_step(run, 0) || !llm_run_enter(run))
        return;
    switch (v.kind) {
    case TVAL_UNDEFINED:
        llm_tbuf_puts(run, buf, "Undefined");
        break;
    case TVAL_NONE:
        llm_tbuf_puts(run, buf, "None");
        break;
    case TVAL_BOOL:
        llm_tbuf_puts(run, buf, v.b ? "True" : "False");
        break;
    case TVAL_INT:
        snprintf(text, sizeof text, "%lld", (long long)v.i);
        llm_tbuf_puts(run, buf, text);
        break;
    case TVAL_FLOAT:
        llm_tval_float_repr(v.f, text);
        llm_tbuf_puts(run, buf, text);
        break;
    case TVAL_STRING:
        if (v.sub)
            llm_tbuf_puts(run, buf, "Markup(");
        put_quoted(run, buf, v);
        if (v.sub)
            llm_tbuf_puts(run, buf, ")");
        break;
    case TVAL_LIST:
        put_list(run, buf, v);
        break;
    case TVAL_NAMESPACE:
        llm_tbuf_puts(run, buf, "<Namespace ");
        put_dict(run, buf, v);
        llm_tbuf_puts(run, buf, ">");
        break;
    case TVAL_DICT:
        put_dict(run, buf, v);
        break;
    default:
        llm_run_fail(run, -EOPNOTSUPP, "a %s is printed", llm_tval_type(v));
        break;
    }
    llm_run_leave(run);
}

void llm_tval_str(struct llm_run *run, struct tbuf *buf, struct tval v)
{
    if (v.kind == TVAL_STRING)
        llm_tbuf_put(run, buf, v.text, v.bytes);
    else if (v.kind != TVAL_UNDEFINED)
        llm_tval_repr(run, buf, v);
}

struct tval llm_tval_to_string(struct llm_run *run, struct tval v)
{
    struct tbuf buf = {0};
    if (v.kind == TVAL_STRING)
        return v;
    llm_tval_str(run, &buf, v);
    return llm_tbuf_string(&buf);
}

static void put_json_code(struct llm_run *run, struct tbuf *buf, uint32_t code)
{
    char escape[16];
    if (code > 0xffff) {
        code -= 0x10000;
        snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd800 + (code >> 10),
                 0xdc00 + (code & 0x3ff));
    } else {
        snprintf(escape, sizeof escape, "\\u%04x", code);
    }
    llm_tbuf_puts(run, buf, escape);
}

static void put_json_string(struct llm_run *run, struct tbuf *buf, struct tval v, bool ascii)
{
    static const char names[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
    llm_tbuf_puts(run, buf, "\"");
    for (size_t at = 0; at < v.bytes && !run->err;) {
        uint32_t code;
        size_t n = hw_utf8_next(v.text + at, v.bytes - at, &code);
        const char *named = code && code < 0x80 ? strchr(names, (int)code) : NULL;
        if (named) {
            char escape[2] = {'\\', letters[named - names]};
            llm_tbuf_put(run, buf, escape, 2);
        } else if (code < 0x20 || (ascii && code > 0x7e)) {
            put_json_code(run, buf, code);
        } else {
            llm_tbuf_put(run, buf, v.text + at, n);
        }
        at += n;
    }
    llm_tbuf_puts(run, buf, "\"");
}

static void put_line(struct llm_run *run, struct tbuf *buf, const struct tjson *how, uint32_t depth)
{
    if (!how->indented)
        return;
    llm_tbuf_puts(run, buf, "\n");
    for (uint32_t i = 0; i < depth && !run->err; i++)
        llm_tbuf_put(run, buf, how->indent.text, how->indent.bytes);
}

static void put_json(struct llm_run *run, struct tbuf *buf, struct tval v, const struct tjson *how,
                     uint32_t depth);

/* A name as json.dumps makes one from a key. */
static void put_json_key(struct llm_run *run, struct tbuf *buf, struct tval key,
                         const struct tjson *how)
{
    if (key.kind == TVAL_STRING) {
        put_json_string(run, buf, key, how->ascii);
    } else if (key.kind == TVAL_NONE || tval_is_number(key)) {
        llm_tbuf_puts(run, buf, "\"");
        put_json(run, buf, key, how, 0);
        llm_tbuf_puts(run, buf, "\"");
    } else {
        llm_run_fail(run, -EINVAL, "keys must be str, int, float, bool or None, not %s",
                     llm_tval_type(key));
    }
}

/* The pairs of a dict in the order of their keys; insertion, since dicts are small. */
static struct tval_pair *sorted_pairs(struct llm_run *run, const struct tval_dict *dict)
{
    struct tval_pair *pairs = llm_run_alloc(run, (dict->count + 1) * sizeof *pairs);
    for (uint32_t i = 0; i < dict->count && !run->err; i++) {
        uint32_t at = i;
        for (; at > 0 && llm_run_step(run, 0) &&
               llm_tval_order(run, dict->pairs[i].key, pairs[at - 1].key) < 0;
             at--)
            pairs[at] = pairs[at - 1];
        if (!run->err)
            pairs[at] = dict->pairs[i];
    }
    return run->err ? NULL : pairs;
}

static void put_json_dict(struct llm_run *run, struct tbuf *buf, struct tval v,
                          const struct tjson *how, uint32_t depth)
{
    struct tval_pair *pairs = how->sort_keys ? sorted_pairs(run, v.dict) : v.dict->pairs;
    llm_tbuf_puts(run, buf, "{");
    for (uint32_t i = 0; i < v.dict->count && !run->err; i++) {
        if (i)
            llm_tbuf_put(run, buf, how->item.text, how->item.bytes);
        put_line(run, buf, how, depth + 1);
        put_json_key(run, buf, pairs[i].key, how);
        llm_tbuf_put(run, buf, how->key.text, how->key.bytes);
        put_json(run, buf, pairs[i].value, how, depth + 1);
    }
    if (v.dict->count)
        put_line(run, buf, how, depth);
    llm_tbuf_puts(run, buf, "}");
}

static void put_json_list(struct llm_run *run, struct tbuf *buf, struct tval v,
                          const struct tjson *how, uint32_t depth)
{
    if (v.sub > TVAL_SEQ_TUPLE) {
        llm_run_fail(run, -EINVAL, "Object of type %s is not JSON serializable", llm_tval_type(v));
        return;
    }
    llm_tbuf_puts(run, buf, "[");
    for (uint32_t i = 0; i < v.list->count && !run->err; i++) {
        if (i)
            llm_tbuf_put(run, buf, how->item.text, how->item.bytes);
        put_line(run, buf, how, depth + 1);
        put_json(run, buf, v.list->items[i], how, depth + 1);
    }
    if (v.list->count)
        put_line(run, buf, how, depth);
    llm_tbuf_puts(run, buf, "]");
}

static void put_json(struct llm_run *run, struct tbuf *buf, struct tval v, const struct tjson *how,
                     uint32_t depth)
{
    if (!llm_run_step(run, 0) || !llm_run_enter(run))
        return;
    switch (v.kind) {
    case TVAL_NONE:
        llm_tbuf_puts(run, buf, "null");
        break;
    case TVAL_BOOL:
        llm_tbuf_puts(run, buf, v.b ? "true" : "false");
        break;
    case TVAL_FLOAT:
        if (isnan(v.f) || isinf(v.f))
            llm_tbuf_puts(run, buf, isnan(v.f) ? "NaN" : v.f > 0 ? "Infinity" : "-Infinity");
        else
            llm_tval_repr(run, buf, v);
        break;
    case TVAL_INT:
        llm_tval_repr(run, buf, v);
        break;
    case TVAL_STRING:
        put_json_string(run, buf, v, how->ascii);
        break;
    case TVAL_LIST:
        put_json_list(run, buf, v, how, depth);
        break;
    case TVAL_DICT:
        put_json_dict(run, buf, v, how, depth);
        break;
    default:
        llm_run_fail(run, -EINVAL, "Object of type %s is not JSON serializable", llm_tval_type(v));
        break;
    }
    llm_run_leave(run);
}

void llm_tval_json(struct llm_run *run, struct tbuf *buf, struct tval v, const struct tjson *how)
{
    put_json(run, buf, v, how, 0);
}
