#include "llm/chat/jinja/lexer.h"

#include "base/text/utf8.h"
#include "llm/chat/jinja/value.h"
#include "llm/model/why.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lexer {
    struct hw_arena *arena;
    const char *text; /* newlines are "\n" only */
    size_t bytes, at;
    uint32_t line;
    bool line_starts; /* the last token ended with a newline, or there was none */
    char brackets[64];
    uint32_t depth;
    struct token *tokens;
    size_t count, room;
    char *why;
    int err;
};

static int fail(struct lexer *l, int err, const char *what)
{
    if (!l->err)
        l->err = llm_why(l->why, err, "line %u of the chat template: %s", l->line, what);
    return l->err;
}

static void *alloc(struct lexer *l, size_t bytes)
{
    void *p = hw_arena_alloc(l->arena, bytes + 1, 8);
    if (!p)
        fail(l, -ENOMEM, "out of memory");
    return p;
}

static struct token *add(struct lexer *l, enum token_type type, const char *text, size_t bytes)
{
    static struct token nowhere;
    if (l->count == l->room) {
        size_t room = l->room ? l->room * 2 : 64;
        struct token *tokens = alloc(l, room * sizeof *tokens);
        if (!tokens)
            return &nowhere;
        if (l->count)
            memcpy(tokens, l->tokens, l->count * sizeof *tokens);
        l->tokens = tokens;
        l->room = room;
    }
    struct token *token = &l->tokens[l->count++];
    *token = (struct token){
        .type = (uint8_t)type, .line = l->line, .text = text, .bytes = (uint32_t)bytes};
    return token;
}

static bool at_text(const struct lexer *l, const char *text)
{
    size_t n = strlen(text);
    return l->bytes - l->at >= n && memcmp(l->text + l->at, text, n) == 0;
}

static void advance(struct lexer *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        l->line += l->text[l->at + i] == '\n';
    l->at += n;
}

static size_t space_at(const struct lexer *l)
{
    uint32_t code;
    if (l->at >= l->bytes)
        return 0;
    size_t n = hw_utf8_next(l->text + l->at, l->bytes - l->at, &code);
    return llm_text_is_space(code) ? n : 0;
}

static void skip_space(struct lexer *l)
{
    for (size_t n; (n = space_at(l)) > 0;)
        advance(l, n);
}

/* Past the end of a tag, whose mark is "%}", "}}" or "#}"; false if it is not here.  trims: whether
 * a newline after it goes. */
static bool take_end(struct lexer *l, const char *mark, bool trims)
{
    char minus[4] = {'-', mark[0], mark[1], 0}, plus[4] = {'+', mark[0], mark[1], 0};
    if (at_text(l, minus)) {
        advance(l, 3);
        skip_space(l);
    } else if (trims && at_text(l, plus)) {
        advance(l, 3);
    } else if (at_text(l, mark)) {
        advance(l, 2);
        if (trims && at_text(l, "\n"))
            advance(l, 1);
    } else {
        return false;
    }
    l->line_starts = l->text[l->at - 1] == '\n';
    return true;
}

/* The text before a tag, less what whitespace control takes. */
static void add_text(struct lexer *l, const char *text, size_t bytes, char control, bool output)
{
    struct tval v = tval_text(text, bytes);
    if (control == '-') {
        struct llm_run none = {0};
        v = llm_text_strip(&none, v, tval_none(), LLM_TEXT_RIGHT);
    } else if (control != '+' && !output) {
        const char *newline = memrchr(text, '\n', bytes);
        size_t line = newline ? (size_t)(newline + 1 - text) : 0;
        struct llm_run none = {0};
        struct tval rest = tval_text(text + line, bytes - line);
        if ((line > 0 || l->line_starts) &&
            llm_text_strip(&none, rest, tval_none(), LLM_TEXT_RIGHT).bytes == 0)
            v.bytes = (uint32_t)line;
    }
    if (v.bytes)
        add(l, TOKEN_TEXT, v.text, v.bytes);
}

/* {% raw %}: true if it is here; the text up to endraw is added. */
static bool take_raw(struct lexer *l)
{
    struct lexer probe = *l;
    probe.at += 2;
    if (probe.at < probe.bytes && (probe.text[probe.at] == '-' || probe.text[probe.at] == '+'))
        probe.at++;
    skip_space(&probe);
    if (!at_text(&probe, "raw"))
        return false;
    probe.at += 3;
    skip_space(&probe);
    /* jinja2 keeps the newline after raw. */
    bool strips = at_text(&probe, "-%}");
    if (!strips && !at_text(&probe, "%}"))
        return false;
    advance(l, probe.at - l->at + (strips ? 3 : 2));
    if (strips)
        skip_space(l);
    size_t start = l->at;
    l->line_starts = l->text[l->at - 1] == '\n';
    for (; l->at < l->bytes; advance(l, 1)) {
        if (!at_text(l, "{%"))
            continue;
        probe = *l;
        probe.at += 2;
        char control = probe.at < probe.bytes ? probe.text[probe.at] : 0;
        if (control == '-' || control == '+')
            probe.at++;
        skip_space(&probe);
        if (!at_text(&probe, "endraw"))
            continue;
        probe.at += 6;
        skip_space(&probe);
        struct lexer after = probe;
        if (!take_end(&after, "%}", true))
            continue;
        add_text(l, l->text + start, l->at - start, control, false);
        advance(l, after.at - l->at);
        l->line_starts = after.line_starts;
        return true;
    }
    fail(l, -EINVAL, "raw is not ended");
    return true;
}

static void take_comment(struct lexer *l)
{
    for (advance(l, 2); l->at < l->bytes; advance(l, 1)) {
        if (take_end(l, "#}", true))
            return;
    }
    fail(l, -EINVAL, "a comment is not ended");
}

static uint32_t hex_of(struct lexer *l, const char *text, size_t bytes, size_t digits)
{
    uint32_t code = 0;
    for (size_t i = 0; i < digits; i++) {
        if (i >= bytes || !isxdigit((unsigned char)text[i])) {
            fail(l, -EINVAL, "a bad escape in a string");
            return 0;
        }
        char c = (char)tolower((unsigned char)text[i]);
        code = code * 16 + (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        fail(l, -EINVAL, "an escape that is no character");
        return 0;
    }
    return code;
}

/* One escape after a backslash into buf; returns the bytes it takes. */
static size_t unescape(struct lexer *l, struct llm_run *run, struct tbuf *buf, const char *text,
                       size_t bytes)
{
    static const char names[] = "abfnrtv\\'\"", values[] = "\a\b\f\n\r\t\v\\'\"";
    const char *named = strchr(names, text[0]);
    size_t digits = text[0] == 'x' ? 2 : text[0] == 'u' ? 4 : text[0] == 'U' ? 8 : 0;
    if (named && *named) {
        llm_tbuf_put(run, buf, &values[named - names], 1);
        return 1;
    }
    if (text[0] == '\n')
        return 1;
    if (digits) {
        llm_tbuf_code(run, buf, hex_of(l, text + 1, bytes - 1, digits));
        return 1 + digits;
    }
    if (text[0] >= '0' && text[0] <= '7') {
        uint32_t code = 0;
        size_t n = 0;
        for (; n < 3 && n < bytes && text[n] >= '0' && text[n] <= '7'; n++)
            code = code * 8 + (uint32_t)(text[n] - '0');
        llm_tbuf_code(run, buf, code);
        return n;
    }
    if (text[0] == 'N')
        fail(l, -EOPNOTSUPP, "\\N in a string");
    llm_tbuf_puts(run, buf, "\\"); /* Python keeps what it does not know */
    return 0;
}

static void take_string(struct lexer *l)
{
    char quote = l->text[l->at];
    size_t end = l->at + 1;
    while (end < l->bytes && l->text[end] != quote)
        end += l->text[end] == '\\' ? 2 : 1;
    if (end >= l->bytes) {
        fail(l, -EINVAL, "a string is not ended");
        return;
    }
    const char *text = l->text + l->at + 1;
    size_t bytes = end - l->at - 1;
    /* The template's own arena holds the text, borrowed for the time of the copy. */
    struct llm_run run = {.arena = *l->arena, .why = l->why, .line = l->line};
    struct tbuf buf = {0};
    for (size_t i = 0; i < bytes && !l->err && !run.err;) {
        if (text[i] == '\\' && i + 1 < bytes) {
            i += 1 + unescape(l, &run, &buf, text + i + 1, bytes - i - 1);
        } else {
            llm_tbuf_put(&run, &buf, text + i, 1);
            i++;
        }
    }
    *l->arena = run.arena;
    if (run.err)
        l->err = run.err;
    struct tval v = llm_tbuf_string(&buf);
    add(l, TOKEN_STRING, v.text, v.bytes);
    advance(l, end + 1 - l->at);
}

static bool is_name_char(char c, bool first)
{
    return isalpha((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80 ||
           (!first && isdigit((unsigned char)c));
}

/* Digits of a base with single underscores between them; returns how many characters. */
static size_t digits_at(const char *text, size_t bytes, const char *digits)
{
    size_t n = 0;
    while (n < bytes &&
           (strchr(digits, tolower((unsigned char)text[n])) ||
            (text[n] == '_' && n > 0 && n + 1 < bytes &&
             strchr(digits, tolower((unsigned char)text[n + 1])))) &&
           text[n])
        n++;
    return n;
}

static void take_number(struct lexer *l)
{
    static const char tens[] = "0123456789";
    const char *text = l->text + l->at;
    size_t left = l->bytes - l->at, n;
    char base_mark = left > 1 ? (char)tolower((unsigned char)text[1]) : 0;
    const char *set = base_mark == 'x' ? "0123456789abcdef" : base_mark == 'o' ? "01234567" : "01";
    int base = base_mark == 'x' ? 16 : base_mark == 'o' ? 8 : base_mark == 'b' ? 2 : 10;
    bool is_float = false;
    if (text[0] == '0' && base != 10 && left > 2 && digits_at(text + 2, left - 2, set) > 0) {
        n = 2 + digits_at(text + 2, left - 2, set);
    } else {
        base = 10;
        n = digits_at(text, left, tens);
        if (n + 1 < left && text[n] == '.' && isdigit((unsigned char)text[n + 1])) {
            n += 1 + digits_at(text + n + 1, left - n - 1, tens);
            is_float = true;
        }
        size_t e = n;
        if (e < left && (text[e] == 'e' || text[e] == 'E')) {
            e++;
            if (e < left && (text[e] == '+' || text[e] == '-'))
                e++;
            if (digits_at(text + e, left - e, tens)) {
                n = e + digits_at(text + e, left - e, tens);
                is_float = true;
            }
        }
    }
    char copy[128];
    size_t length = 0;
    for (size_t i = base == 10 ? 0 : 2; i < n && length + 1 < sizeof copy; i++) {
        if (text[i] != '_')
            copy[length++] = text[i];
    }
    copy[length] = 0;
    if (n >= sizeof copy) {
        fail(l, -EOPNOTSUPP, "a number of more than 127 digits");
        return;
    }
    struct token *token = add(l, is_float ? TOKEN_FLOAT : TOKEN_INT, text, n);
    errno = 0;
    if (is_float)
        token->f = strtod(copy, NULL);
    else
        token->i = strtoll(copy, NULL, base);
    if (!is_float && errno == ERANGE)
        fail(l, -EOPNOTSUPP, "a whole number of more than 64 bits");
    else if (!is_float && base == 10 && n > 1 && text[0] == '0' && token->i != 0)
        fail(l, -EINVAL, "a number begins with 0");
    advance(l, n);
}

static void take_operator(struct lexer *l)
{
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (size_t i = 0; i < ARRAY_LEN(operators); i++) {
        const char *op = operators[i];
        if (!at_text(l, op))
            continue;
        if (*op == '[' || *op == '(' || *op == '{') {
            if (l->depth == sizeof l->brackets) {
                fail(l, -E2BIG, "brackets nested deeper than 64");
                return;
            }
            l->brackets[l->depth++] = *op == '[' ? ']' : *op == '(' ? ')' : '}';
        } else if (*op == ']' || *op == ')' || *op == '}') {
            if (!l->depth || l->brackets[--l->depth] != *op) {
                fail(l, -EINVAL, "a closing bracket without its opening one");
                return;
            }
        }
        add(l, TOKEN_OPERATOR, op, strlen(op));
        advance(l, strlen(op));
        return;
    }
    fail(l, -EINVAL, "an unexpected character in a tag");
}

/* The inside of a tag up to its end. */
static void take_tag(struct lexer *l, bool output)
{
    const char *end = output ? "}}" : "%}";
    add(l, output ? TOKEN_OUTPUT_BEGIN : TOKEN_BLOCK_BEGIN, "", 0);
    advance(l, 2);
    if (l->at < l->bytes && (l->text[l->at] == '-' || l->text[l->at] == '+'))
        advance(l, 1);
    l->depth = 0;
    while (!l->err) {
        skip_space(l);
        if (l->at >= l->bytes) {
            fail(l, -EINVAL, "a tag is not ended");
            return;
        }
        uint32_t line = l->line;
        if (l->depth == 0 && take_end(l, end, !output)) {
            add(l, output ? TOKEN_OUTPUT_END : TOKEN_BLOCK_END, "", 0)->line = line;
            return;
        }
        char c = l->text[l->at];
        if (c == '\'' || c == '"') {
            take_string(l);
        } else if (isdigit((unsigned char)c)) {
            take_number(l);
        } else if (is_name_char(c, true)) {
            size_t n = 1;
            while (l->at + n < l->bytes && is_name_char(l->text[l->at + n], false))
                n++;
            add(l, TOKEN_NAME, l->text + l->at, n);
            advance(l, n);
        } else {
            take_operator(l);
        }
    }
}

/* A copy with "\n" for every kind of newline, less one at the end. */
static int copy_text(struct lexer *l, const char *text, size_t bytes)
{
    char *copy = alloc(l, bytes);
    if (!copy)
        return l->err;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n')
            continue;
        copy[l->bytes++] = text[i] == '\r' ? '\n' : text[i];
    }
    for (size_t at = 0; at < l->bytes;) {
        uint32_t code;
        size_t n = hw_utf8_next(copy + at, l->bytes - at, &code);
        if (code == HW_UTF8_REPLACEMENT && n == 1)
            return fail(l, -EINVAL, "not UTF-8");
        at += n;
    }
    if (l->bytes && copy[l->bytes - 1] == '\n')
        l->bytes--;
    l->text = copy;
    return 0;
}

int llm_template_tokens(struct hw_arena *arena, const char *text, size_t bytes,
                        const struct token **tokens, char *why)
{
    struct lexer l = {.arena = arena, .line = 1, .line_starts = true, .why = why};
    if (copy_text(&l, text, bytes))
        return l.err;
    while (l.at < l.bytes && !l.err) {
        size_t start = l.at;
        while (l.at < l.bytes && !at_text(&l, "{%") && !at_text(&l, "{{") && !at_text(&l, "{#"))
            l.at++;
        if (l.at == l.bytes) {
            l.at = start;
            add(&l, TOKEN_TEXT, l.text + start, l.bytes - start);
            break;
        }
        size_t end = l.at;
        char kind = l.text[l.at + 1], control = l.at + 2 < l.bytes ? l.text[l.at + 2] : 0;
        l.at = start;
        add_text(&l, l.text + start, end - start, control, kind == '{');
        advance(&l, end - start);
        if (kind == '#')
            take_comment(&l);
        else if (kind == '{' || !take_raw(&l))
            take_tag(&l, kind == '{');
    }
    add(&l, TOKEN_END, "", 0);
    *tokens = l.tokens;
    return l.err;
}
