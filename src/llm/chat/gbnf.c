/* GBNF to a grammar of bytes. */
#include "base/grow.h"
#include "base/text/utf8.h"
#include "llm/chat/grammar_impl.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Elements of an alternative under way. */
struct sequence {
    struct element *items;
    uint32_t count;
    size_t room;
};

struct named {
    const char *name;
    size_t bytes;
    uint32_t rule;
    uint32_t line; /* of its first use, for one that is never defined */
    bool defined;
};

struct parser {
    const char *text;
    size_t bytes, at;
    uint32_t line;
    struct llm_grammar *g;
    struct named *names;
    uint32_t name_count;
    size_t name_room;
    uint32_t *buckets; /* of names by hash: 1 + index, 0: empty */
    uint32_t bucket_mask;
    uint32_t nesting;
    char *why;
    int err;
};

static void fail(struct parser *p, int err, const char *what)
{
    if (!p->err)
        p->err = llm_why(p->why, err, "line %u of the grammar: %s", p->line, what);
}

/* Makes room for one more; false after an error. */
static bool grow(struct parser *p, void *items, uint32_t count, size_t *room, size_t size,
                 uint32_t max)
{
    if (!p->err && count >= max)
        fail(p, -E2BIG, "the grammar is too large");
    if (!p->err && !hw_grow(items, room, (size_t)count + 1, size))
        fail(p, -ENOMEM, "out of memory");
    return !p->err;
}

static void put(struct parser *p, struct sequence *s, enum element_kind kind, uint32_t value)
{
    if (grow(p, &s->items, s->count, &s->room, sizeof *s->items, LLM_GRAMMAR_ELEMENTS_MAX))
        s->items[s->count++] = (struct element){.kind = kind, .value = value};
}

static uint32_t new_rule(struct parser *p)
{
    struct llm_grammar *g = p->g;
    if (!grow(p, &g->rules, g->rule_count, &g->rule_room, sizeof *g->rules, LLM_GRAMMAR_RULES_MAX))
        return 0;
    g->rules[g->rule_count] = (struct grammar_rule){0};
    return g->rule_count++;
}

/* Alternatives of one rule are added one after the other, with none of another rule between. */
static void add_alternative(struct parser *p, uint32_t rule, const struct element *items,
                            uint32_t count)
{
    struct llm_grammar *g = p->g;
    if (!grow(p, &g->starts, g->start_count, &g->start_room, sizeof *g->starts,
              LLM_GRAMMAR_ELEMENTS_MAX))
        return;
    if (g->rules[rule].count == 0)
        g->rules[rule].first = g->start_count;
    assert(g->rules[rule].first + g->rules[rule].count == g->start_count);
    g->starts[g->start_count++] = g->element_count;
    g->rules[rule].count++;
    for (uint32_t i = 0; i <= count; i++) {
        if (!grow(p, &g->elements, g->element_count, &g->element_room, sizeof *g->elements,
                  LLM_GRAMMAR_ELEMENTS_MAX))
            return;
        g->elements[g->element_count++] =
            i < count ? items[i] : (struct element){.kind = ELEMENT_END};
    }
}

static uint32_t add_set(struct parser *p, const struct byte_set *set)
{
    struct llm_grammar *g = p->g;
    for (uint32_t i = g->set_count; i > 0 && g->set_count - i < 64; i--) {
        if (memcmp(&g->sets[i - 1], set, sizeof *set) == 0)
            return i - 1;
    }
    if (!grow(p, &g->sets, g->set_count, &g->set_room, sizeof *g->sets, LLM_GRAMMAR_ELEMENTS_MAX))
        return 0;
    g->sets[g->set_count] = *set;
    return g->set_count++;
}

/* ---- text ---- */

static bool at_end(const struct parser *p)
{
    return p->err || p->at >= p->bytes;
}

static char peek(const struct parser *p)
{
    return p->at < p->bytes ? p->text[p->at] : 0;
}

static void skip(struct parser *p)
{
    p->line += peek(p) == '\n';
    p->at++;
}

static void skip_space(struct parser *p, bool newlines)
{
    while (!at_end(p)) {
        char c = peek(p);
        if (c == '#') {
            while (!at_end(p) && peek(p) != '\n')
                skip(p);
        } else if (c == ' ' || c == '\t' || c == '\r' || (newlines && c == '\n')) {
            skip(p);
        } else {
            return;
        }
    }
}

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_';
}

static struct named *take_name(struct parser *p)
{
    size_t start = p->at;
    while (!at_end(p) && is_name_char(peek(p)))
        skip(p);
    size_t n = p->at - start;
    if (n == 0) {
        fail(p, -EINVAL, "the name of a rule is expected");
        return NULL;
    }
    uint32_t at = 2166136261u;
    for (size_t i = 0; i < n; i++)
        at = (at ^ (unsigned char)p->text[start + i]) * 16777619u;
    for (at &= p->bucket_mask; p->buckets[at]; at = (at + 1) & p->bucket_mask) {
        struct named *known = &p->names[p->buckets[at] - 1];
        if (known->bytes == n && memcmp(known->name, p->text + start, n) == 0)
            return known;
    }
    uint32_t rule = new_rule(p);
    if (!grow(p, &p->names, p->name_count, &p->name_room, sizeof *p->names, LLM_GRAMMAR_RULES_MAX))
        return NULL;
    p->names[p->name_count] =
        (struct named){.name = p->text + start, .bytes = n, .rule = rule, .line = p->line};
    p->buckets[at] = p->name_count + 1;
    return &p->names[p->name_count++];
}

static uint32_t take_hex(struct parser *p, int digits)
{
    uint32_t code = 0;
    for (int i = 0; i < digits; i++) {
        char c = (char)tolower((unsigned char)peek(p));
        if (!isxdigit((unsigned char)c)) {
            fail(p, -EINVAL, "hexadecimal digits are expected");
            return 0;
        }
        code = code * 16 + (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
        skip(p);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        fail(p, -EINVAL, "an escape that is no character");
    return code;
}

/* One character of a literal or a class, escapes included. */
static uint32_t take_char(struct parser *p)
{
    static const char escapes[] = "nrt\\\"[]-^", values[] = "\n\r\t\\\"[]-^";
    if (at_end(p)) {
        fail(p, -EINVAL, "it ends within a literal or a class");
        return 0;
    }
    if (peek(p) != '\\') {
        uint32_t code;
        size_t n = hw_utf8_next(p->text + p->at, p->bytes - p->at, &code);
        if (n == 1 && code == HW_UTF8_REPLACEMENT)
            fail(p, -EINVAL, "not UTF-8");
        while (n--)
            skip(p);
        return code;
    }
    skip(p);
    char c = peek(p);
    if (at_end(p)) {
        fail(p, -EINVAL, "it ends within an escape");
        return 0;
    }
    skip(p);
    const char *found = c ? strchr(escapes, c) : NULL;
    if (found)
        return (unsigned char)values[found - escapes];
    if (c == 'x' || c == 'u' || c == 'U')
        return take_hex(p, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    fail(p, -EINVAL, "an unknown escape");
    return 0;
}

static int encode(uint32_t code, uint8_t out[4])
{
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    int n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (uint8_t)(0x80 | (code & 0x3f));
    out[0] = (uint8_t)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | code);
    return n;
}

static void take_literal(struct parser *p, struct sequence *s)
{
    skip(p);
    while (!p->err && (at_end(p) || peek(p) != '"')) {
        uint8_t bytes[4];
        int n = encode(take_char(p), bytes);
        for (int i = 0; i < n; i++)
            put(p, s, ELEMENT_BYTE, bytes[i]);
    }
    if (!p->err)
        skip(p);
}

/* <[NUMBER]>: a control token, as bytes that no text has. */
static void take_token(struct parser *p, struct sequence *s)
{
    uint64_t token = 0;
    size_t from = p->at + 2, at = from;
    while (at < p->bytes && isdigit((unsigned char)p->text[at]) && token <= UINT32_MAX)
        token = token * 10 + (uint64_t)(p->text[at++] - '0');
    if (p->bytes - p->at < 2 || p->text[p->at + 1] != '[' || at == from || token > UINT32_MAX ||
        p->bytes - at < 2 || memcmp(p->text + at, "]>", 2) != 0) {
        fail(p, -EOPNOTSUPP, "a token is written <[NUMBER]>; tokens by name are not supported");
        return;
    }
    p->at = at + 2;
    uint8_t bytes[GRAMMAR_TOKEN_BYTES];
    grammar_token((uint32_t)token, bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        put(p, s, ELEMENT_BYTE, bytes[i]);
}

/* ---- classes ---- */

struct range {
    uint32_t first, last;
};

static int order_ranges(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

static void put_range(struct parser *p, struct sequence *s, unsigned first, unsigned last)
{
    struct byte_set set = {{0}};
    if (first == last) {
        put(p, s, ELEMENT_BYTE, first);
        return;
    }
    for (unsigned b = first; b <= last; b++)
        set.bits[b / 64] |= 1ULL << (b % 64);
    put(p, s, ELEMENT_SET, add_set(p, &set));
}

/* Alternatives for characters of two bytes and more, each a product of ranges of bytes. */
static void add_wide(struct parser *p, uint32_t rule, uint32_t first, uint32_t last)
{
    static const uint32_t limits[] = {0x7ff, 0xffff, 0x10ffff};
    if (first > last || p->err)
        return;
    for (int i = 0; i < 2; i++) {
        if (first <= limits[i] && last > limits[i]) {
            add_wide(p, rule, first, limits[i]);
            add_wide(p, rule, limits[i] + 1, last);
            return;
        }
    }
    uint8_t from[4], to[4];
    int n = encode(first, from);
    encode(last, to);
    for (int i = 1; i < n; i++) {
        uint32_t mask = (1u << (6 * i)) - 1;
        if ((first & ~mask) == (last & ~mask))
            continue;
        if (first & mask) {
            add_wide(p, rule, first, first | mask);
            add_wide(p, rule, (first | mask) + 1, last);
            return;
        }
        if ((last & mask) != mask) {
            add_wide(p, rule, first, (last & ~mask) - 1);
            add_wide(p, rule, last & ~mask, last);
            return;
        }
    }
    struct sequence s = {0};
    for (int i = 0; i < n; i++)
        put_range(p, &s, from[i], to[i]);
    if (!p->err)
        add_alternative(p, rule, s.items, s.count);
    free(s.items);
}

/* Sorts and joins; negated: what lies between.  Returns how many there are now. */
static uint32_t tidy(struct range *ranges, uint32_t count, bool negated)
{
    uint32_t kept = 0, next = 0;
    qsort(ranges, count, sizeof *ranges, order_ranges);
    for (uint32_t i = 0; i < count; i++) {
        if (kept && ranges[i].first <= ranges[kept - 1].last + 1) {
            if (ranges[i].last > ranges[kept - 1].last)
                ranges[kept - 1].last = ranges[i].last;
        } else {
            ranges[kept++] = ranges[i];
        }
    }
    if (!negated)
        return kept;
    uint32_t out = 0;
    for (uint32_t i = 0; i < kept; i++) {
        struct range taken = ranges[i];
        if (taken.first > next)
            ranges[out++] = (struct range){next, taken.first - 1};
        next = taken.last + 1;
    }
    if (next <= 0x10ffff)
        ranges[out++] = (struct range){next, 0x10ffff}; /* there is room for one more */
    return out;
}

static void put_class(struct parser *p, struct sequence *s, const struct range *ranges,
                      uint32_t count)
{
    struct byte_set ascii = {{0}};
    bool narrow = false, wide = false;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t c = ranges[i].first; c <= ranges[i].last && c < 0x80; c++) {
            ascii.bits[c / 64] |= 1ULL << (c % 64);
            narrow = true;
        }
        wide |= ranges[i].last >= 0x80;
    }
    if (!wide && !narrow) {
        fail(p, -EINVAL, "a class without a character");
    } else if (!wide) {
        put(p, s, ELEMENT_SET, add_set(p, &ascii));
    } else {
        uint32_t rule = new_rule(p);
        if (narrow) {
            struct element one = {.kind = ELEMENT_SET, .value = add_set(p, &ascii)};
            add_alternative(p, rule, &one, 1);
        }
        for (uint32_t i = 0; i < count; i++) {
            uint32_t first = ranges[i].first < 0x80 ? 0x80 : ranges[i].first;
            uint32_t last = ranges[i].last;
            /* Surrogates are no characters. */
            add_wide(p, rule, first, last < 0xd7ff ? last : 0xd7ff);
            add_wide(p, rule, first > 0xe000 ? first : 0xe000, last);
        }
        put(p, s, ELEMENT_RULE, rule);
    }
}

static void take_class(struct parser *p, struct sequence *s)
{
    struct range *ranges = NULL;
    uint32_t count = 0;
    size_t room = 0;
    skip(p);
    bool negated = peek(p) == '^';
    if (negated)
        skip(p);
    while (!p->err && (at_end(p) || peek(p) != ']')) {
        uint32_t first = take_char(p), last = first;
        if (peek(p) == '-' && p->at + 1 < p->bytes && p->text[p->at + 1] != ']') {
            skip(p);
            last = take_char(p);
            if (last < first)
                fail(p, -EINVAL, "a range whose end is before its beginning");
        }
        /* Room for one more than there are, for the complement. */
        if (grow(p, &ranges, count + 1, &room, sizeof *ranges, LLM_GRAMMAR_ELEMENTS_MAX))
            ranges[count++] = (struct range){first, last};
    }
    if (!p->err) {
        skip(p);
        struct range all = {0, 0x10ffff};
        if (count == 0)
            put_class(p, s, &all, negated ? 1 : 0);
        else
            put_class(p, s, ranges, tidy(ranges, count, negated));
    }
    free(ranges);
}

/* ---- rules ---- */

static void take_alternatives(struct parser *p, uint32_t rule, bool nested);

static int take_count(struct parser *p)
{
    int value = 0;
    if (!isdigit((unsigned char)peek(p))) {
        fail(p, -EINVAL, "a number is expected in {}");
        return 0;
    }
    while (isdigit((unsigned char)peek(p))) {
        value = value * 10 + (peek(p) - '0');
        skip(p);
        if (value > LLM_GRAMMAR_REPEAT_MAX) {
            fail(p, -E2BIG, "a repetition of more than 4096");
            return 0;
        }
    }
    return value;
}

/* Replaces items[from..] by `least` to `most` of them; most -1: any number. */
static void repeat(struct parser *p, struct sequence *s, uint32_t from, int least, int most)
{
    uint32_t item = new_rule(p);
    if (p->err)
        return;
    /* An empty literal has no items. */
    add_alternative(p, item, s->items ? s->items + from : NULL, s->count - from);
    s->count = from;
    for (int i = 0; i < least; i++)
        put(p, s, ELEMENT_RULE, item);
    if (most < 0) {
        uint32_t more = new_rule(p);
        struct element again[] = {{ELEMENT_RULE, item}, {ELEMENT_RULE, more}};
        if (p->err)
            return;
        add_alternative(p, more, again, 2);
        add_alternative(p, more, NULL, 0);
        put(p, s, ELEMENT_RULE, more);
        return;
    }
    /* Each optional item is followed by the next one. */
    uint32_t inner = 0;
    for (int i = least; i < most && !p->err; i++) {
        uint32_t optional = new_rule(p);
        struct element some[] = {{ELEMENT_RULE, item}, {ELEMENT_RULE, inner}};
        if (p->err)
            return;
        add_alternative(p, optional, some, i == least ? 1 : 2);
        add_alternative(p, optional, NULL, 0);
        inner = optional;
    }
    if (most > least)
        put(p, s, ELEMENT_RULE, inner);
}

static void take_repetition(struct parser *p, struct sequence *s, uint32_t from)
{
    char c = peek(p);
    int least = c == '+' ? 1 : 0, most = c == '?' ? 1 : -1;
    skip(p);
    if (c == '{') {
        skip_space(p, true);
        least = most = take_count(p);
        skip_space(p, true);
        if (peek(p) == ',') {
            skip(p);
            skip_space(p, true);
            most = peek(p) == '}' ? -1 : take_count(p);
            skip_space(p, true);
        }
        if (!p->err && peek(p) != '}')
            fail(p, -EINVAL, "} is expected");
        skip(p);
        if (!p->err && most >= 0 && most < least)
            fail(p, -EINVAL, "a repetition whose most is less than its least");
    }
    if (!p->err)
        repeat(p, s, from, least, most);
}

/* Whether a name here begins the next rule. */
static bool next_rule_begins(const struct parser *p)
{
    struct parser probe = *p;
    while (!at_end(&probe) && is_name_char(peek(&probe)))
        skip(&probe);
    skip_space(&probe, true);
    return probe.bytes - probe.at >= 3 && memcmp(probe.text + probe.at, "::=", 3) == 0;
}

static void take_group(struct parser *p, struct sequence *s)
{
    skip(p);
    if (++p->nesting > LLM_GRAMMAR_NESTING_MAX)
        fail(p, -E2BIG, "groups nested deeper than 64");
    uint32_t rule = new_rule(p);
    skip_space(p, true);
    take_alternatives(p, rule, true);
    if (!p->err && peek(p) != ')')
        fail(p, -EINVAL, ") is expected");
    skip(p);
    p->nesting--;
    put(p, s, ELEMENT_RULE, rule);
}

static void take_sequence(struct parser *p, struct sequence *s, bool nested)
{
    static const struct range all = {0, 0x10ffff};
    uint32_t last = UINT32_MAX; /* where the last item begins */
    while (!at_end(p)) {
        char c = peek(p);
        if (c == '"' || c == '[' || c == '.' || c == '(' || c == '<' || is_name_char(c)) {
            if (is_name_char(c) && !nested && next_rule_begins(p))
                return;
            last = s->count;
        }
        if (c == '"') {
            take_literal(p, s);
        } else if (c == '[') {
            take_class(p, s);
        } else if (c == '.') {
            skip(p);
            put_class(p, s, &all, 1);
        } else if (c == '(') {
            take_group(p, s);
        } else if (is_name_char(c)) {
            struct named *name = take_name(p);
            if (name)
                put(p, s, ELEMENT_RULE, name->rule);
        } else if (c == '*' || c == '+' || c == '?' || c == '{') {
            if (last == UINT32_MAX)
                fail(p, -EINVAL, "a repetition of nothing");
            else
                take_repetition(p, s, last);
        } else if (c == '<') {
            take_token(p, s);
        } else if (c == '!') {
            fail(p, -EOPNOTSUPP, "a token that must not come is not supported");
        } else {
            return;
        }
        skip_space(p, true);
    }
}

static void take_alternatives(struct parser *p, uint32_t rule, bool nested)
{
    /* Kept until all are read: groups within add rules of their own. */
    struct sequence all = {0};
    uint32_t *ends = NULL;
    uint32_t count = 0;
    size_t room = 0;
    for (bool more = true; more && !p->err;) {
        take_sequence(p, &all, nested);
        if (grow(p, &ends, count, &room, sizeof *ends, LLM_GRAMMAR_ELEMENTS_MAX))
            ends[count++] = all.count;
        more = !at_end(p) && peek(p) == '|';
        if (more) {
            skip(p);
            skip_space(p, true);
        }
    }
    for (uint32_t i = 0, from = 0; i < count && !p->err; from = ends[i++])
        add_alternative(p, rule, all.items ? all.items + from : NULL, ends[i] - from);
    free(all.items);
    free(ends);
}

static void take_rule(struct parser *p)
{
    struct named *name = take_name(p);
    skip_space(p, false);
    if (p->err)
        return;
    if (p->bytes - p->at < 3 || memcmp(p->text + p->at, "::=", 3) != 0) {
        fail(p, -EINVAL, "::= is expected");
        return;
    }
    if (name->defined) {
        fail(p, -EINVAL, "a rule is defined twice");
        return;
    }
    name->defined = true;
    uint32_t rule = name->rule; /* the table of names may move */
    p->at += 3;
    skip_space(p, true);
    take_alternatives(p, rule, false);
    skip_space(p, true);
}

/* ---- left recursion ---- */

struct cycle_search {
    const struct llm_grammar *g;
    bool *nullable;
    uint32_t *index, *low, *component, *stack;
    uint32_t count, top, components;
    bool *on_stack;
};

static bool element_is_nullable(const struct cycle_search *s, struct element e)
{
    return e.kind == ELEMENT_RULE && s->nullable[e.value];
}

/* What find_rules keeps: where each rule is used, and what each alternative still lacks. */
struct uses {
    uint32_t *first;       /* of a rule: an element that names it; UINT32_MAX: none */
    uint32_t *next;        /* of an element: the next one that names the same rule */
    uint32_t *alternative; /* of an element */
    uint32_t *lacks;       /* of an alternative: elements that are not known to be of that kind */
    uint32_t *rule;        /* of an alternative */
    uint32_t *todo;        /* rules of that kind whose uses were not looked at */
};

static void index_uses(const struct llm_grammar *g, bool empty, struct uses *u)
{
    memset(u->first, 0xff, g->rule_count * sizeof *u->first);
    for (uint32_t r = 0; r < g->rule_count; r++) {
        for (uint32_t a = g->rules[r].first; a < g->rules[r].first + g->rules[r].count; a++) {
            u->rule[a] = r;
            for (uint32_t at = g->starts[a]; g->elements[at].kind != ELEMENT_END; at++) {
                struct element e = g->elements[at];
                u->lacks[a] += empty || e.kind == ELEMENT_RULE;
                u->alternative[at] = a;
                if (e.kind == ELEMENT_RULE) {
                    u->next[at] = u->first[e.value];
                    u->first[e.value] = at;
                }
            }
        }
    }
}

/* The rules that some text ends: the empty one, or any.  False: no memory. */
static bool find_rules(const struct llm_grammar *g, bool empty, bool *found)
{
    size_t room =
        2 * (size_t)g->rule_count + 2 * (size_t)g->element_count + 2 * (size_t)g->start_count + 1;
    uint32_t *memory = calloc(room, sizeof *memory);
    if (!memory)
        return false;
    struct uses u = {.first = memory};
    u.todo = u.first + g->rule_count;
    u.next = u.todo + g->rule_count;
    u.alternative = u.next + g->element_count;
    u.lacks = u.alternative + g->element_count;
    u.rule = u.lacks + g->start_count;
    index_uses(g, empty, &u);
    uint32_t count = 0;
    for (uint32_t a = 0; a < g->start_count; a++) {
        if (u.lacks[a] == 0 && !found[u.rule[a]]) {
            found[u.rule[a]] = true;
            u.todo[count++] = u.rule[a];
        }
    }
    while (count) {
        uint32_t rule = u.todo[--count];
        for (uint32_t at = u.first[rule]; at != UINT32_MAX; at = u.next[at]) {
            uint32_t a = u.alternative[at];
            if (--u.lacks[a] == 0 && !found[u.rule[a]]) {
                found[u.rule[a]] = true;
                u.todo[count++] = u.rule[a];
            }
        }
    }
    free(memory);
    return true;
}

/* Where a search stands in one rule: the next element to look at, over all its alternatives. */
struct place {
    uint32_t rule, alternative, at;
};

/* The next rule that can be at the left end; UINT32_MAX when there is none. */
static uint32_t next_left(const struct cycle_search *s, struct place *place, bool *tail)
{
    const struct grammar_rule *rule = &s->g->rules[place->rule];
    while (place->alternative < rule->count) {
        uint32_t start = s->g->starts[rule->first + place->alternative];
        struct element e = s->g->elements[start + place->at];
        bool reachable =
            place->at == 0 || element_is_nullable(s, s->g->elements[start + place->at - 1]);
        if (e.kind != ELEMENT_RULE || !reachable) {
            place->alternative++;
            place->at = 0;
            continue;
        }
        *tail = s->g->elements[start + place->at + 1].kind == ELEMENT_END;
        place->at++;
        return e.value;
    }
    return UINT32_MAX;
}

/* Tarjan's components, with a stack of our own: grammars nest as deep as they are long. */
static void find_components(struct cycle_search *s, struct place *path)
{
    for (uint32_t root = 0; root < s->g->rule_count; root++) {
        uint32_t depth = 0;
        if (s->index[root])
            continue;
        path[depth++] = (struct place){.rule = root};
        s->index[root] = s->low[root] = ++s->count;
        s->stack[s->top++] = root;
        s->on_stack[root] = true;
        while (depth) {
            struct place *place = &path[depth - 1];
            uint32_t rule = place->rule;
            bool tail;
            uint32_t next = next_left(s, place, &tail);
            if (next == UINT32_MAX) {
                if (s->low[rule] == s->index[rule]) {
                    uint32_t popped;
                    do {
                        popped = s->stack[--s->top];
                        s->on_stack[popped] = false;
                        s->component[popped] = s->components;
                    } while (popped != rule);
                    s->components++;
                }
                depth--;
                if (depth && s->low[rule] < s->low[path[depth - 1].rule])
                    s->low[path[depth - 1].rule] = s->low[rule];
            } else if (!s->index[next]) {
                s->index[next] = s->low[next] = ++s->count;
                s->stack[s->top++] = next;
                s->on_stack[next] = true;
                path[depth++] = (struct place){.rule = next};
            } else if (s->on_stack[next] && s->index[next] < s->low[rule]) {
                s->low[rule] = s->index[next];
            }
        }
    }
}

/* A rule that comes back to itself at its left end, with something left to do after it, would make
 * a stack grow without a byte read. */
static void refuse_left_recursion(struct parser *p)
{
    uint32_t n = p->g->rule_count;
    struct cycle_search s = {.g = p->g};
    struct place *path = calloc(n + 1, sizeof *path);
    s.nullable = calloc(n, 1);
    s.on_stack = calloc(n, 1);
    s.index = calloc(4 * (size_t)n, sizeof *s.index);
    if (path && s.nullable && s.on_stack && s.index && find_rules(p->g, true, s.nullable)) {
        s.low = s.index + n;
        s.component = s.low + n;
        s.stack = s.component + n;
        find_components(&s, path);
        for (uint32_t r = 0; r < n && !p->err; r++) {
            struct place place = {.rule = r};
            bool tail;
            for (uint32_t to; (to = next_left(&s, &place, &tail)) != UINT32_MAX;) {
                if (!tail && s.component[to] == s.component[r])
                    p->err = llm_why(p->why, -EINVAL,
                                     "the grammar is left-recursive; write a rule that begins "
                                     "with itself as a repetition");
            }
        }
    } else {
        fail(p, -ENOMEM, "out of memory");
    }
    free(path);
    free(s.nullable);
    free(s.on_stack);
    free(s.index);
}

static void check_names(struct parser *p)
{
    bool root = false;
    for (uint32_t i = 0; i < p->name_count && !p->err; i++) {
        const struct named *name = &p->names[i];
        if (!name->defined)
            p->err = llm_why(p->why, -EINVAL, "line %u of the grammar: there is no rule '%.*s'",
                             name->line, (int)(name->bytes < 60 ? name->bytes : 60), name->name);
        if (name->bytes == 4 && memcmp(name->name, "root", 4) == 0) {
            p->g->root = name->rule;
            root = true;
        }
    }
    if (!p->err && !root)
        p->err = llm_why(p->why, -EINVAL, "the grammar has no rule 'root'");
}

/* Splits the classes of bytes into those that a set has and has not. */
static void split_classes(struct llm_grammar *g, const struct byte_set *set)
{
    int16_t with[256];
    bool without[256] = {false};
    memset(with, 0xff, sizeof with);
    for (unsigned byte = 0; byte < 256; byte++)
        without[g->class_of[byte]] |= !byte_set_has(set, byte);
    for (unsigned byte = 0; byte < 256; byte++) {
        uint8_t class = g->class_of[byte];
        if (!byte_set_has(set, byte) || !without[class])
            continue;
        if (with[class] < 0)
            with[class] = (int16_t)g->class_count++;
        g->class_of[byte] = (uint8_t)with[class];
    }
}

static void find_classes(struct llm_grammar *g)
{
    struct byte_set named = {{0}};
    g->class_count = 1;
    for (uint32_t i = 0; i < g->set_count; i++)
        split_classes(g, &g->sets[i]);
    for (uint32_t i = 0; i < g->element_count; i++) {
        unsigned byte = g->elements[i].value;
        if (g->elements[i].kind != ELEMENT_BYTE || byte_set_has(&named, byte))
            continue;
        struct byte_set one = {{0}};
        one.bits[byte / 64] = 1ULL << (byte % 64);
        named.bits[byte / 64] |= one.bits[byte / 64];
        split_classes(g, &one);
    }
    assert(g->class_count <= 256);
}

int llm_grammar_parse(const char *text, size_t bytes, struct llm_grammar **out, char *why)
{
    if (bytes > LLM_GBNF_BYTES_MAX)
        return llm_why(why, -E2BIG, "the grammar has %zu bytes, at most %d are taken", bytes,
                       LLM_GBNF_BYTES_MAX);
    struct llm_grammar *g = calloc(1, sizeof *g);
    if (!g)
        return llm_why(why, -ENOMEM, "out of memory");
    struct parser p = {.text = text, .bytes = bytes, .line = 1, .g = g, .why = why};
    /* At least twice as many as there can be names. */
    p.bucket_mask = 63;
    while (p.bucket_mask < bytes)
        p.bucket_mask = p.bucket_mask * 2 + 1;
    p.buckets = calloc((size_t)p.bucket_mask + 1, sizeof *p.buckets);
    if (!p.buckets)
        fail(&p, -ENOMEM, "out of memory");
    skip_space(&p, true);
    while (!at_end(&p))
        take_rule(&p);
    if (!p.err)
        check_names(&p);
    if (!p.err)
        refuse_left_recursion(&p);
    free(p.names);
    free(p.buckets);
    if (p.err) {
        llm_grammar_destroy(g);
        return p.err;
    }
    find_classes(g);
    *out = g;
    return 0;
}

int llm_grammar_ends(const struct llm_grammar *g)
{
    bool *ends = calloc(g->rule_count, 1);
    int rc = ends && find_rules(g, false, ends) ? ends[g->root] : -ENOMEM;
    free(ends);
    return rc;
}

void llm_grammar_destroy(struct llm_grammar *g)
{
    if (!g)
        return;
    free(g->elements);
    free(g->sets);
    free(g->rules);
    free(g->starts);
    free(g);
}
