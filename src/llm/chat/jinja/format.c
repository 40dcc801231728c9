/* text % values and text.format(). */
#include "llm/chat/jinja/value.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH_MAX = 4096 }; /* of a field */

/* [[fill]align][sign][0][width][,][.precision][type], as both forms come down to. */
struct spec {
    char fill[4];
    size_t fill_bytes;
    char align; /* '<', '>', '^' or 0 */
    char sign;  /* '+', ' ' or 0 */
    char type;  /* 0: str() */
    bool commas;
    int width, precision; /* precision -1: absent */
};

static void put_padded(struct llm_run *run, struct tbuf *buf, struct tval text,
                       const struct spec *s, char align)
{
    int length = (int)llm_text_length(text.text, text.bytes);
    int pad = s->width > length ? s->width - length : 0;
    int left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    for (int i = 0; i < left; i++)
        llm_tbuf_put(run, buf, s->fill, s->fill_bytes);
    llm_tbuf_put(run, buf, text.text, text.bytes);
    for (int i = left; i < pad; i++)
        llm_tbuf_put(run, buf, s->fill, s->fill_bytes);
}

/* Digits with a comma after every third from the right. */
static struct tval group(struct llm_run *run, const char *digits)
{
    struct tbuf buf = {0};
    size_t n = strcspn(digits, ".e");
    for (size_t i = 0; i < n; i++) {
        llm_tbuf_put(run, &buf, digits + i, 1);
        if (i + 1 < n && (n - i - 1) % 3 == 0)
            llm_tbuf_puts(run, &buf, ",");
    }
    llm_tbuf_puts(run, &buf, digits + n);
    return llm_tbuf_string(&buf);
}

static void put_number(struct llm_run *run, struct tbuf *buf, struct tval v, const struct spec *s)
{
    char digits[512];
    bool whole = tval_is_whole(v) && (!s->type || strchr("dixXo", s->type));
    bool negative = whole ? tval_whole(v) < 0 : tval_number(v) < 0;
    int precision = s->precision < 0 ? 6 : s->precision;
    if (whole) {
        uint64_t magnitude = negative ? 0 - (uint64_t)tval_whole(v) : (uint64_t)tval_whole(v);
        snprintf(digits, sizeof digits,
                 s->type == 'x'   ? "%lx"
                 : s->type == 'X' ? "%lX"
                 : s->type == 'o' ? "%lo"
                                  : "%lu",
                 (unsigned long)magnitude);
    } else {
        double magnitude = negative ? -tval_number(v) : tval_number(v);
        if (s->type == 'f' || s->type == 'F')
            snprintf(digits, sizeof digits, "%.*f", precision, magnitude);
        else if (s->type == 'e')
            snprintf(digits, sizeof digits, "%.*e", precision, magnitude);
        else if (s->type == 'g')
            snprintf(digits, sizeof digits, "%.*g", precision, magnitude);
        else if (s->type == '%')
            snprintf(digits, sizeof digits, "%.*f%%", precision, magnitude * 100);
        else
            llm_tval_float_repr(magnitude, digits);
    }
    struct tval text = s->commas ? group(run, digits) : llm_tval_c(digits);
    char sign[2] = {negative ? '-' : s->sign, 0};
    struct spec inner = *s;
    struct tbuf all = {0};
    if (s->fill[0] == '0' && s->fill_bytes == 1 && s->align == '=') {
        llm_tbuf_puts(run, buf, sign);
        inner.width -= (int)strlen(sign);
        put_padded(run, buf, text, &inner, '>');
        return;
    }
    llm_tbuf_puts(run, &all, sign);
    llm_tbuf_put(run, &all, text.text, text.bytes);
    put_padded(run, buf, llm_tbuf_string(&all), s, s->align ? s->align : '>');
}

static void put_value(struct llm_run *run, struct tbuf *buf, struct tval v, const struct spec *s)
{
    bool number = s->type ? strchr("dixXofFeg%", s->type) != NULL : tval_is_number(v);
    if (s->type && s->type != 's' && !number) {
        llm_run_fail(run, -EOPNOTSUPP, "the format code '%c' is not supported", s->type);
    } else if (number && v.kind != TVAL_BOOL && !tval_is_number(v)) {
        llm_run_fail(run, -EINVAL, "format code '%c' for a value of type '%s'", s->type,
                     llm_tval_type(v));
    } else if (number && (s->type || v.kind != TVAL_BOOL) &&
               !(v.kind == TVAL_FLOAT && s->type && strchr("dixXo", s->type))) {
        if (s->type == 0 && s->precision >= 0)
            llm_run_fail(run, -EOPNOTSUPP, "a precision without a format code");
        put_number(run, buf, v, s);
    } else if (number && v.kind == TVAL_FLOAT) {
        llm_run_fail(run, -EINVAL, "format code '%c' for a value of type 'float'", s->type);
    } else {
        struct tval text = llm_tval_to_string(run, v);
        if (s->precision >= 0)
            text.bytes = (uint32_t)llm_text_offset(text.text, text.bytes, (uint64_t)s->precision);
        put_padded(run, buf, text, s, s->align ? s->align : '<');
    }
}

static size_t read_int(const char *text, size_t bytes, int *out)
{
    size_t n = 0;
    int value = 0;
    for (; n < bytes && isdigit((unsigned char)text[n]); n++)
        value = value > WIDTH_MAX ? value : value * 10 + (text[n] - '0');
    *out = value;
    return n;
}

static bool bounded(struct llm_run *run, const struct spec *s)
{
    if (s->width > WIDTH_MAX || s->precision > 100)
        llm_run_fail(run, -E2BIG, "a field wider than %d", WIDTH_MAX);
    return !run->err;
}

/* A spec of str.format(). */
static bool read_spec(struct llm_run *run, struct tval text, struct spec *s)
{
    const char *t = text.text;
    size_t n = text.bytes, at = 0, fill = n ? llm_text_offset(t, n, 1) : 0;
    *s = (struct spec){.fill = " ", .fill_bytes = 1, .precision = -1};
    if (fill < n && memchr("<>^=", t[fill], 4)) {
        memcpy(s->fill, t, fill);
        s->fill_bytes = fill;
        s->align = t[fill];
        at = fill + 1;
    } else if (n && memchr("<>^=", t[0], 4)) {
        s->align = t[0];
        at = 1;
    }
    if (at < n && memchr("+- ", t[at], 3)) {
        s->sign = t[at] == '-' ? 0 : t[at];
        at++;
    }
    if (at < n && t[at] == '0') {
        if (!s->align) {
            s->align = '=';
            memcpy(s->fill, "0", 2);
            s->fill_bytes = 1;
        }
        at++;
    }
    at += read_int(t + at, n - at, &s->width);
    if (at < n && t[at] == ',') {
        s->commas = true;
        at++;
    }
    if (at < n && t[at] == '.') {
        at++;
        at += read_int(t + at, n - at, &s->precision);
    }
    if (at < n)
        s->type = t[at++];
    if (at < n)
        llm_run_fail(run, -EINVAL, "Invalid format specifier");
    return bounded(run, s);
}

/* The value that "{name.a[0]" names.  next: the place of the next "{}". */
static struct tval field_value(struct llm_run *run, struct tval field, struct tval args,
                               struct tval named, uint32_t *next)
{
    size_t n = 0;
    int index = 0;
    struct tval v;
    while (n < field.bytes && field.text[n] != '.' && field.text[n] != '[')
        n++;
    bool number = n > 0 && read_int(field.text, n, &index) == n;
    if (n == 0)
        index = (int)(*next)++;
    if (n == 0 || number) {
        if ((uint32_t)index >= args.list->count)
            return llm_run_fail(run, -EINVAL, "Replacement index %d out of range", index);
        v = args.list->items[index];
    } else {
        struct tval *found = llm_tval_get(run, named, tval_text(field.text, n));
        if (!found)
            return llm_run_fail(run, -EINVAL, "format() has no value for '%.*s'", (int)n,
                                field.text);
        v = *found;
    }
    if (n < field.bytes)
        return llm_run_fail(run, -EOPNOTSUPP, "an attribute or index in a format");
    return v;
}

struct tval llm_tval_format(struct llm_run *run, struct tval format, struct tval args,
                            struct tval named)
{
    struct tbuf buf = {0};
    uint32_t next = 0;
    const char *t = format.text;
    for (size_t at = 0; at < format.bytes && !run->err;) {
        bool twice = at + 1 < format.bytes && t[at + 1] == t[at];
        if ((t[at] == '{' || t[at] == '}') && twice) {
            llm_tbuf_put(run, &buf, t + at, 1);
            at += 2;
        } else if (t[at] == '}') {
            return llm_run_fail(run, -EINVAL, "Single '}' encountered in format string");
        } else if (t[at] != '{') {
            llm_tbuf_put(run, &buf, t + at, 1);
            at++;
        } else {
            const char *end = memchr(t + at, '}', format.bytes - at);
            if (!end)
                return llm_run_fail(run, -EINVAL, "expected '}' before end of string");
            struct tval field = tval_text(t + at + 1, (size_t)(end - (t + at + 1)));
            const char *colon = memchr(field.text, ':', field.bytes);
            struct tval text =
                colon ? tval_text(colon + 1, (size_t)(end - colon - 1)) : llm_tval_c("");
            if (colon)
                field.bytes = (uint32_t)(colon - field.text);
            if (memchr(text.text, '{', text.bytes) || memchr(field.text, '!', field.bytes))
                return llm_run_fail(run, -EOPNOTSUPP, "a conversion or a field within a field");
            struct tval v = field_value(run, field, args, named, &next);
            struct spec spec;
            if (!run->err && read_spec(run, text, &spec))
                put_value(run, &buf, v, &spec);
            at = (size_t)(end + 1 - t);
        }
    }
    return llm_tbuf_string(&buf);
}

static bool is_tuple(struct tval values)
{
    return values.kind == TVAL_LIST && values.sub == TVAL_SEQ_TUPLE;
}

/* "(name)" and its value; returns the bytes it takes, 0 after an error. */
static size_t named_value(struct llm_run *run, const char *t, size_t n, struct tval values,
                          struct tval *v)
{
    const char *end = memchr(t, ')', n);
    if (!end || values.kind != TVAL_DICT) {
        llm_run_fail(run, -EINVAL, "format requires a mapping");
        return 0;
    }
    struct tval *found = llm_tval_get(run, values, tval_text(t + 1, (size_t)(end - t - 1)));
    if (!found) {
        llm_run_fail(run, -EINVAL, "the mapping has no value for a format");
        return 0;
    }
    *v = *found;
    return (size_t)(end + 1 - t);
}

static bool next_value(struct llm_run *run, struct tval values, uint32_t *next, struct tval *v)
{
    bool has = is_tuple(values) ? *next < values.list->count : *next == 0;
    if (!has) {
        llm_run_fail(run, -EINVAL, "not enough arguments for format string");
        return false;
    }
    *v = is_tuple(values) ? values.list->items[*next] : values;
    (*next)++;
    return true;
}

/* Flags, width and precision; returns the bytes they take. */
static size_t read_percent_spec(const char *t, size_t n, struct spec *s)
{
    size_t at = 0;
    for (; at < n && memchr("-+ 0", t[at], 4); at++) {
        if (t[at] == '-')
            s->align = '<';
        else if (t[at] == '0' && s->align != '<') {
            s->align = '=';
            s->fill[0] = '0';
        } else if (t[at] != '0')
            s->sign = t[at];
    }
    at += read_int(t + at, n - at, &s->width);
    if (at < n && t[at] == '.') {
        at++;
        at += read_int(t + at, n - at, &s->precision);
    }
    return at;
}

/* The value as its type prints it: 's' and 'r' as text, 'd', 'i' and 'u' whole. */
static void put_percent_value(struct llm_run *run, struct tbuf *buf, struct tval v, struct spec s)
{
    if (s.type == 's' || s.type == 'r') {
        struct tbuf text = {0};
        if (s.type == 'r')
            llm_tval_repr(run, &text, v);
        else
            llm_tval_str(run, &text, v);
        v = llm_tbuf_string(&text);
        if (s.align == '=') {
            s.align = '>';
            s.fill[0] = ' ';
        }
        s.type = 's';
    } else if (strchr("diu", s.type)) {
        s.type = 'd';
        if (v.kind == TVAL_FLOAT)
            v = tval_int((int64_t)(v.f > 9e18 || v.f < -9e18 ? 0 : v.f));
    }
    put_value(run, buf, v, &s);
}

/* One "%(name)05.2f" after its percent sign; returns the bytes it takes. */
static size_t percent_field(struct llm_run *run, struct tbuf *buf, const char *t, size_t n,
                            struct tval values, uint32_t *next)
{
    struct spec s = {.fill = " ", .fill_bytes = 1, .align = '>', .precision = -1};
    struct tval v = tval_undefined();
    bool named = n && t[0] == '(';
    size_t at = named ? named_value(run, t, n, values, &v) : 0;
    if (run->err)
        return n;
    at += read_percent_spec(t + at, n - at, &s);
    if (at >= n || !bounded(run, &s)) {
        llm_run_fail(run, -EINVAL, "incomplete format");
        return n;
    }
    s.type = t[at++];
    if (s.type == '%')
        llm_tbuf_puts(run, buf, "%");
    else if (named || next_value(run, values, next, &v))
        put_percent_value(run, buf, v, s);
    return at;
}

struct tval llm_tval_percent(struct llm_run *run, struct tval format, struct tval values)
{
    struct tbuf buf = {0};
    uint32_t next = 0;
    for (size_t at = 0; at < format.bytes && !run->err;) {
        const char *t = format.text + at;
        at++;
        if (*t == '%')
            at += percent_field(run, &buf, t + 1, format.bytes - at, values, &next);
        else
            llm_tbuf_put(run, &buf, t, 1);
    }
    bool spare = is_tuple(values) ? next < values.list->count
                                  : next == 0 && values.kind != TVAL_DICT &&
                                        values.kind != TVAL_LIST && values.kind != TVAL_UNDEFINED;
    if (spare)
        llm_run_fail(run, -EINVAL, "not all arguments converted during string formatting");
    return llm_tbuf_string(&buf);
}
