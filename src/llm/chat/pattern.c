#include "llm/chat/pattern.h"

#include "base/text/utf8.h"
#include "llm/chat/grammar.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

struct reader {
    const char *text;
    size_t bytes, at;
    struct schema_text *t;
    uint32_t nesting;
    char *why;
    int err;
};

static void fail(struct reader *r, int err, const char *what)
{
    if (!r->err)
        r->err = llm_why(r->why, err, "%s", what);
}

static char peek(const struct reader *r)
{
    return r->at < r->bytes ? r->text[r->at] : 0;
}

static bool more(const struct reader *r)
{
    return !r->err && r->at < r->bytes;
}

/* The inside of a class for \d, \w, \s; NULL for another letter. */
static const char *shorthand(char c)
{
    return c == 'd' ? "0-9" : c == 'w' ? "a-zA-Z0-9_" : c == 's' ? " " : NULL;
}

/* A character after a backslash that stands for itself or a control character. */
static uint32_t escaped(struct reader *r)
{
    char c = peek(r);
    r->at++;
    if (c == 0 || isalnum((unsigned char)c)) {
        fail(r, -EOPNOTSUPP, "an escape that is not \\d, \\w, \\s or a sign");
        return '?';
    }
    return (unsigned char)c;
}

/* A character as it stands in JSON. */
static void put_char(struct reader *r, uint32_t code, const char *bytes, size_t n)
{
    if (code == '"' || code == '\\') {
        char pair[2] = {'\\', (char)code};
        llm_schema_literal(r->t, pair, 2);
    } else if (code < 0x20) {
        fail(r, -EOPNOTSUPP, "a control character");
    } else {
        llm_schema_literal(r->t, bytes, n);
    }
}

static uint32_t class_char(struct reader *r)
{
    uint32_t code;
    if (!more(r)) {
        fail(r, -EINVAL, "a class that is not ended");
        return '?';
    }
    if (peek(r) == '\\') {
        r->at++;
        return escaped(r);
    }
    r->at += hw_utf8_next(r->text + r->at, r->bytes - r->at, &code);
    return code;
}

static void take_class(struct reader *r)
{
    r->at++;
    bool negated = peek(r) == '^';
    r->at += negated;
    llm_schema_puts(r->t, negated ? "[^\"\\\\\\x00-\\x1f" : "[");
    bool empty = true;
    for (; more(r) && peek(r) != ']'; empty = false) {
        char after = r->at + 1 < r->bytes ? r->text[r->at + 1] : 0;
        if (peek(r) == '\\' && shorthand(after)) {
            llm_schema_puts(r->t, shorthand(after));
            r->at += 2;
            continue;
        }
        uint32_t first = class_char(r), last = first;
        after = r->at + 1 < r->bytes ? r->text[r->at + 1] : 0;
        if (peek(r) == '-' && after != ']') {
            r->at++;
            last = class_char(r);
        }
        if (first > last)
            fail(r, -EINVAL, "a range whose end is before its beginning");
        /* These take two characters in JSON. */
        if (!negated &&
            ((first <= '"' && last >= '"') || (first <= '\\' && last >= '\\') || first < 0x20))
            fail(r, -EOPNOTSUPP, "a quote, a backslash or a control character in a class");
        llm_schema_class_char(r->t, first);
        llm_schema_puts(r->t, "-");
        llm_schema_class_char(r->t, last);
    }
    if (!more(r) || empty)
        fail(r, -EINVAL, "a class that is empty or not ended");
    r->at++;
    llm_schema_puts(r->t, "]");
}

static void take_alternatives(struct reader *r);

static void take_group(struct reader *r)
{
    r->at++;
    if (peek(r) == '?') {
        if (r->at + 1 >= r->bytes || r->text[r->at + 1] != ':')
            fail(r, -EOPNOTSUPP, "a group that begins with (? but not (?:");
        r->at += 2;
    }
    if (++r->nesting > LLM_GRAMMAR_NESTING_MAX / 2)
        fail(r, -E2BIG, "groups nested too deep");
    llm_schema_puts(r->t, "(");
    take_alternatives(r);
    llm_schema_puts(r->t, ")");
    if (!r->err && peek(r) != ')')
        fail(r, -EINVAL, "a group that is not ended");
    r->at++;
    r->nesting--;
}

static void take_escape(struct reader *r)
{
    r->at++;
    const char *class = shorthand(peek(r));
    if (class) {
        llm_schema_putf(r->t, "[%s]", class);
        r->at++;
        return;
    }
    char c = (char)escaped(r);
    put_char(r, (unsigned char)c, &c, 1);
}

/* * + ? {m,n} are written in GBNF as they are here. */
static void take_repetition(struct reader *r)
{
    char c = peek(r);
    if (c == '*' || c == '+' || c == '?') {
        llm_schema_put(r->t, &c, 1);
        r->at++;
    } else if (c == '{') {
        const char *end = memchr(r->text + r->at, '}', r->bytes - r->at);
        size_t n = end ? (size_t)(end + 1 - (r->text + r->at)) : 0;
        if (!n || n > 12 || strspn(r->text + r->at + 1, "0123456789,") != n - 2) {
            fail(r, -EINVAL, "a repetition that is not {m}, {m,} or {m,n}");
            return;
        }
        llm_schema_put(r->t, r->text + r->at, n);
        r->at += n;
    } else {
        return;
    }
    c = peek(r);
    if (c == '?' || c == '+')
        fail(r, -EOPNOTSUPP, "a lazy or possessive repetition");
}

static void take_sequence(struct reader *r)
{
    llm_schema_puts(r->t, "\"\"");
    while (more(r) && peek(r) != '|' && peek(r) != ')') {
        char c = peek(r);
        llm_schema_puts(r->t, " ");
        if (c == '[') {
            take_class(r);
        } else if (c == '(') {
            take_group(r);
        } else if (c == '\\') {
            take_escape(r);
        } else if (c == '.') {
            llm_schema_puts(r->t, "char");
            r->at++;
        } else if (strchr("*+?{^$", c)) {
            fail(r, -EOPNOTSUPP, "^ or $ within, or a repetition of nothing");
        } else {
            uint32_t code;
            size_t n = hw_utf8_next(r->text + r->at, r->bytes - r->at, &code);
            put_char(r, code, r->text + r->at, n);
            r->at += n;
        }
        if (!r->err)
            take_repetition(r);
    }
}

static void take_alternatives(struct reader *r)
{
    take_sequence(r);
    while (more(r) && peek(r) == '|') {
        llm_schema_puts(r->t, " | ");
        r->at++;
        take_sequence(r);
    }
}

int llm_pattern_gbnf(const char *pattern, size_t bytes, struct schema_text *t, char *why)
{
    struct reader r = {.text = pattern, .bytes = bytes, .t = t, .why = why};
    bool from_start = bytes && pattern[0] == '^';
    size_t slashes = 0;
    while (slashes + 1 < bytes && pattern[bytes - 2 - slashes] == '\\')
        slashes++;
    bool to_end = bytes && pattern[bytes - 1] == '$' && slashes % 2 == 0;
    r.at = from_start;
    r.bytes -= to_end;
    llm_schema_puts(t, from_start ? "(" : "char* (");
    take_alternatives(&r);
    if (!r.err && r.at < r.bytes)
        fail(&r, -EINVAL, "a closing bracket without its opening one");
    /* Anchors bind to their own alternative only. */
    if (!r.err && (from_start || to_end) && memchr(pattern, '|', bytes) && r.nesting == 0) {
        uint32_t depth = 0;
        for (size_t i = 0; i < bytes; i++) {
            if (pattern[i] == '\\')
                i++;
            else if (pattern[i] == '(' || pattern[i] == '[')
                depth++;
            else if (pattern[i] == ')' || pattern[i] == ']')
                depth -= depth > 0;
            else if (pattern[i] == '|' && depth == 0)
                fail(&r, -EOPNOTSUPP, "^ or $ beside alternatives; put them into a group");
        }
    }
    llm_schema_puts(t, to_end ? ")" : ") char*");
    return r.err;
}
