#include "llm/chat/schema.h"

#include "base/text/utf8.h"
#include "llm/chat/grammar.h"
#include "llm/chat/jinja/value.h"
#include "llm/chat/pattern.h"
#include "llm/chat/schema_impl.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Between two parts: a blank or a short line, or for programs a blank only. */
static const char wide_space[] = "ws ::= \" \"? | \"\\n\" [ \\t]{0,20}\n";
static const char narrow_space[] = "ws ::= \" \"?\n";

/* What every grammar may name. */
static const char base_rules[] =
    "hex ::= [0-9a-fA-F]\n"
    "char ::= [^\"\\\\\\x00-\\x1f] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" ([0-9a-cA-CeEfF] hex{3} | "
    "[dD] "
    "[0-7] hex{2}))\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
    "number ::= integer (\".\" [0-9]{1,16})? ([eE] [+-]? [0-9]{1,2})?\n"
    "boolean ::= \"true\" | \"false\"\n"
    "null ::= \"null\"\n"
    "value ::= object | array | string | number | boolean | null\n"
    "member ::= string \":\" ws value\n"
    "object ::= \"{\" ws (member (\",\" ws member)*)? ws \"}\"\n"
    "array ::= \"[\" ws (value (\",\" ws value)*)? ws \"]\"\n";

void llm_schema_fail(struct schema_builder *b, int err, const char *keyword, const char *what)
{
    if (!b->err)
        b->err = llm_why(b->why, err, "the JSON schema's \"%s\": %s", keyword, what);
}

static void check_text(struct schema_builder *b, const struct schema_text *t)
{
    if (t->failed)
        llm_schema_fail(b, -ENOMEM, "type", "out of memory");
    if (t->bytes > LLM_GBNF_BYTES_MAX)
        llm_schema_fail(b, -E2BIG, "properties", "the grammar becomes too large");
}

/* Writes a rule of its own; body is given up.  Returns its number. */
static uint32_t add_rule(struct schema_builder *b, uint32_t number, struct schema_text *body)
{
    llm_schema_putf(&b->out, "r%u ::= ", number);
    llm_schema_put(&b->out, body->data ? body->data : "", body->bytes);
    llm_schema_puts(&b->out, "\n");
    if (body->failed)
        llm_schema_fail(b, -ENOMEM, "type", "out of memory");
    check_text(b, &b->out);
    free(body->data);
    *body = (struct schema_text){0};
    return number;
}

static void build(struct schema_builder *b, const json_t *schema, struct schema_text *t);

/* The rule of a schema within another. */
static uint32_t rule_of(struct schema_builder *b, const json_t *schema)
{
    struct schema_text body = {0};
    uint32_t number = b->rules++;
    build(b, schema, &body);
    return add_rule(b, number, &body);
}

static void put_literal_json(struct schema_builder *b, struct schema_text *t, const json_t *value)
{
    char *text = NULL;
    if (json_is_real(value)) {
        /* As people write it: jansson writes 0.1 with 17 digits. */
        char shortest[32];
        llm_tval_float_repr(json_real_value(value), shortest);
        llm_schema_literal(t, shortest, strlen(shortest));
        return;
    }
    text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text) {
        llm_schema_fail(b, -ENOMEM, "enum", "out of memory");
        return;
    }
    llm_schema_literal(t, text, strlen(text));
    free(text);
}

static bool is_whole(double value)
{
    return value > -0x1p63 && value < 0x1p63 && value == (double)(int64_t)value;
}

static bool whole_of(struct schema_builder *b, const json_t *schema, const char *keyword,
                     int64_t *out)
{
    const json_t *value = json_object_get(schema, keyword);
    if (!value || b->err)
        return false;
    if (json_is_integer(value))
        *out = json_integer_value(value);
    else if (json_is_real(value) && is_whole(json_real_value(value)))
        *out = (int64_t)json_real_value(value);
    else
        llm_schema_fail(b, -EINVAL, keyword, "a whole number is needed");
    return !b->err;
}

/* A count such as minItems, between 0 and what a grammar repeats. */
static int64_t count_of(struct schema_builder *b, const json_t *schema, const char *keyword,
                        int64_t absent)
{
    int64_t value = absent;
    if (whole_of(b, schema, keyword, &value) && (value < 0 || value > LLM_GRAMMAR_REPEAT_MAX))
        llm_schema_fail(b, -E2BIG, keyword, "more than 4096, or negative");
    return value;
}

static void put_times(struct schema_text *t, int64_t least, int64_t most)
{
    if (most < 0)
        llm_schema_putf(t, "{%lld,}", (long long)least);
    else
        llm_schema_putf(t, "{%lld,%lld}", (long long)least, (long long)most);
}

/* ---- strings ---- */

/* False: a format without a grammar says nothing about what is valid, as JSON Schema has it. */
static bool build_format(const char *format, struct schema_text *t)
{
    static const char date[] =
        "[0-9]{4} \"-\" (\"0\" [1-9] | \"1\" [0-2]) \"-\" (\"0\" [1-9] | [12] "
        "[0-9] | \"3\" [01])";
    static const char time[] =
        "([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9] \":\" [0-5] [0-9] (\".\" "
        "[0-9]{1,9})? (\"Z\" | [+-] ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] "
        "[0-9])";
    static const char uuid[] = "hex{8} \"-\" hex{4} \"-\" hex{4} \"-\" hex{4} \"-\" hex{12}";
    static const char octet[] =
        "([0-9] | [1-9] [0-9] | \"1\" [0-9]{2} | \"2\" [0-4] [0-9] | \"25\" "
        "[0-5])";
    static const char quote[] = "\"\\\"\"";
    if (strcmp(format, "date") == 0)
        llm_schema_putf(t, "%s %s %s", quote, date, quote);
    else if (strcmp(format, "time") == 0)
        llm_schema_putf(t, "%s %s %s", quote, time, quote);
    else if (strcmp(format, "date-time") == 0)
        llm_schema_putf(t, "%s %s \"T\" %s %s", quote, date, time, quote);
    else if (strcmp(format, "uuid") == 0)
        llm_schema_putf(t, "%s %s %s", quote, uuid, quote);
    else if (strcmp(format, "ipv4") == 0)
        llm_schema_putf(t, "%s %s \".\" %s \".\" %s \".\" %s %s", quote, octet, octet, octet, octet,
                        quote);
    else
        return false;
    return true;
}

static void build_string(struct schema_builder *b, const json_t *schema, struct schema_text *t)
{
    const json_t *pattern = json_object_get(schema, "pattern");
    const char *format = json_string_value(json_object_get(schema, "format"));
    struct schema_text formatted = {0};
    if (format && !build_format(format, &formatted))
        format = NULL;
    int64_t least = count_of(b, schema, "minLength", 0),
            most = count_of(b, schema, "maxLength", -1);
    bool sized = least > 0 || most >= 0;
    if ((pattern && (format || sized)) || (format && sized)) {
        llm_schema_fail(b, -EOPNOTSUPP, pattern ? "pattern" : "format",
                        "not together with another limit of the string");
    } else if (pattern) {
        char what[LLM_WHY_CHARS];
        llm_schema_puts(t, "\"\\\"\" ");
        int err = json_is_string(pattern) ? llm_pattern_gbnf(json_string_value(pattern),
                                                             json_string_length(pattern), t, what)
                                          : llm_why(what, -EINVAL, "a string is needed");
        if (err)
            llm_schema_fail(b, err, "pattern", what);
        llm_schema_puts(t, " \"\\\"\"");
    } else if (format) {
        llm_schema_put(t, formatted.data ? formatted.data : "", formatted.bytes);
    } else if (sized) {
        if (most >= 0 && most < least)
            llm_schema_fail(b, -EINVAL, "maxLength", "less than minLength");
        llm_schema_puts(t, "\"\\\"\" char");
        put_times(t, least, most);
        llm_schema_puts(t, " \"\\\"\"");
    } else {
        llm_schema_puts(t, "string");
    }
    if (formatted.failed)
        llm_schema_fail(b, -ENOMEM, "format", "out of memory");
    free(formatted.data);
}

/* ---- numbers ---- */

static void put_digits(struct schema_text *t, char first, char last)
{
    if (first == last)
        llm_schema_putf(t, "\"%c\"", first);
    else
        llm_schema_putf(t, "[%c-%c]", first, last);
}

static void put_any_digits(struct schema_text *t, size_t count)
{
    if (count)
        llm_schema_putf(t, " [0-9]{%zu}", count);
}

/* Numbers of as many digits as low and high, which lie between them.  NULL: no bound. */
static void put_between(struct schema_text *t, const char *low, const char *high, size_t digits)
{
    if (digits == 0) {
        llm_schema_puts(t, "\"\"");
        return;
    }
    if (!low && !high) {
        llm_schema_putf(t, "[0-9]{%zu}", digits);
        return;
    }
    char a = low ? *low : '0', z = high ? *high : '9';
    llm_schema_puts(t, "(");
    bool some = false;
    if (low && high && a == z) {
        put_digits(t, a, a);
        llm_schema_puts(t, " ");
        put_between(t, low + 1, high + 1, digits - 1);
        llm_schema_puts(t, ")");
        return;
    }
    if (low) {
        put_digits(t, a, a);
        llm_schema_puts(t, " ");
        put_between(t, low + 1, NULL, digits - 1);
        some = true;
    }
    char first = (char)(a + (low != NULL)), last = (char)(z - (high != NULL));
    if (first <= last) {
        llm_schema_puts(t, some ? " | " : "");
        put_digits(t, first, last);
        put_any_digits(t, digits - 1);
        some = true;
    }
    if (high) {
        llm_schema_puts(t, some ? " | " : "");
        put_digits(t, z, z);
        llm_schema_puts(t, " ");
        put_between(t, NULL, high + 1, digits - 1);
    }
    llm_schema_puts(t, ")");
}

enum { DIGITS_MAX = 16 }; /* of a number without a bound, as in base_rules */

/* Numbers from low on, up to high; UINT64_MAX: no bound. */
static void put_magnitudes(struct schema_text *t, uint64_t low, uint64_t high)
{
    char a[24], z[24];
    int from = snprintf(a, sizeof a, "%llu", (unsigned long long)low);
    int to = high == UINT64_MAX ? 0 : snprintf(z, sizeof z, "%llu", (unsigned long long)high);
    bool bounded = to > 0;
    int longest = bounded ? to : from > DIGITS_MAX ? from : DIGITS_MAX;
    for (int n = from; n <= longest; n++) {
        if (n > from)
            llm_schema_puts(t, " | ");
        if (n > from && !(bounded && n == to)) {
            llm_schema_puts(t, "[1-9]");
            put_any_digits(t, (size_t)n - 1);
        } else {
            /* Of more digits than low: none begins with 0. */
            char one[24];
            memset(one, '0', sizeof one);
            one[0] = '1';
            put_between(t, n == from ? a : one, bounded && n == to ? z : NULL, (size_t)n);
        }
    }
}

/* Of a number: whole ones; `above` and `below` say that the bound itself is outside. */
struct bounds {
    int64_t low, high;
    bool has_low, has_high, above, below;
};

/* False: there are none, or they are wrong. */
static bool read_bounds(struct schema_builder *b, const json_t *schema, struct bounds *r)
{
    int64_t strict;
    *r = (struct bounds){.low = INT64_MIN + 1, .high = INT64_MAX};
    r->has_low = whole_of(b, schema, "minimum", &r->low);
    r->has_high = whole_of(b, schema, "maximum", &r->high);
    if (whole_of(b, schema, "exclusiveMinimum", &strict) && (!r->has_low || strict >= r->low)) {
        r->low = strict;
        r->has_low = r->above = true;
    }
    if (whole_of(b, schema, "exclusiveMaximum", &strict) && (!r->has_high || strict <= r->high)) {
        r->high = strict;
        r->has_high = r->below = true;
    }
    bool some = r->has_low || r->has_high;
    if (some &&
        (r->low == INT64_MIN || r->low > r->high || (r->low == r->high && (r->above || r->below))))
        llm_schema_fail(b, -EINVAL, "minimum", "above the maximum, or out of range");
    return some && !b->err;
}

static void build_integer(struct schema_builder *b, const json_t *schema, struct schema_text *t)
{
    struct bounds r;
    if (!read_bounds(b, schema, &r)) {
        llm_schema_puts(t, "integer");
        return;
    }
    int64_t low = r.low + r.above, high = r.high - r.below;
    if (low > high) {
        llm_schema_fail(b, -EINVAL, "minimum", "above the maximum, or out of range");
        return;
    }
    bool negative = low < 0, positive = high >= 0;
    llm_schema_puts(t, "(");
    if (negative) {
        llm_schema_puts(t, "\"-\" (");
        put_magnitudes(t, high < 0 ? (uint64_t)-high : 1, r.has_low ? (uint64_t)-low : UINT64_MAX);
        llm_schema_puts(t, ")");
    }
    if (positive) {
        llm_schema_puts(t, negative ? " | " : "");
        put_magnitudes(t, low > 0 ? (uint64_t)low : 0, r.has_high ? (uint64_t)high : UINT64_MAX);
    }
    llm_schema_puts(t, ")");
}

/* Numbers from low, or above it, to high, or below it; UINT64_MAX: no bound.  They have so few
 * digits after the point that rounding does not take them past a bound. */
static void put_numbers(struct schema_text *t, uint64_t low, bool above, uint64_t high, bool below)
{
    uint64_t first = low + above;
    const char * or = "";
    if (first < high) {
        llm_schema_puts(t, "(");
        put_magnitudes(t, first, high == UINT64_MAX ? high : high - 1);
        llm_schema_puts(t, ") (\".\" [0-9]{1,9})?");
        or = " | ";
    }
    if (above) {
        llm_schema_putf(t, "%s\"%llu.\" \"0\"{0,8} [1-9] [0-9]{0,8}", or, (unsigned long long)low);
        or = " | ";
    }
    if (high != UINT64_MAX && high >= first && !below)
        llm_schema_putf(t, "%s\"%llu\" (\".\" \"0\"{1,9})?", or, (unsigned long long)high);
}

static void build_number(struct schema_builder *b, const json_t *schema, struct schema_text *t)
{
    struct bounds r;
    if (!read_bounds(b, schema, &r)) {
        llm_schema_puts(t, "number");
        return;
    }
    bool negative = r.low<0, positive = r.high> 0 || (r.high == 0 && !r.below);
    bool from_low = r.low >= 0, to_high = r.high <= 0;
    llm_schema_puts(t, "(");
    if (negative) {
        llm_schema_puts(t, "\"-\" (");
        put_numbers(t, to_high ? (uint64_t)-r.high : 0, to_high && r.below,
                    r.has_low ? (uint64_t)-r.low : UINT64_MAX, r.above);
        llm_schema_puts(t, ")");
    }
    if (positive) {
        llm_schema_puts(t, negative ? " | " : "");
        put_numbers(t, from_low ? (uint64_t)r.low : 0, from_low && r.above,
                    r.has_high ? (uint64_t)r.high : UINT64_MAX, r.below);
    }
    llm_schema_puts(t, ")");
}

/* ---- arrays and objects ---- */

static void build_array(struct schema_builder *b, const json_t *schema, struct schema_text *t)
{
    const json_t *items = json_object_get(schema, "items");
    const json_t *prefix = json_object_get(schema, "prefixItems");
    int64_t least = count_of(b, schema, "minItems", 0), most = count_of(b, schema, "maxItems", -1);
    if (json_is_true(json_object_get(schema, "uniqueItems")))
        llm_schema_fail(b, -EOPNOTSUPP, "uniqueItems", "not supported");
    if (most >= 0 && most < least)
        llm_schema_fail(b, -EINVAL, "maxItems", "less than minItems");
    llm_schema_puts(t, "\"[\" ws ");
    if (prefix) {
        size_t count = json_array_size(prefix);
        if (count == 0 || (items && !json_is_false(items)) || (size_t)least > count ||
            (most >= 0 && (size_t)most < count))
            llm_schema_fail(b, -EOPNOTSUPP, "prefixItems", "only as the whole of an array");
        for (size_t i = 0; i < count && !b->err; i++)
            llm_schema_putf(t, "%sr%u ", i ? "\",\" ws " : "",
                            rule_of(b, json_array_get(prefix, i)));
    } else if (most != 0) {
        char item[16] = "value";
        if (items && !b->err)
            snprintf(item, sizeof item, "r%u", rule_of(b, items));
        llm_schema_putf(t, "(%s (\",\" ws %s)", item, item);
        put_times(t, least > 0 ? least - 1 : 0, most > 0 ? most - 1 : most);
        llm_schema_puts(t, least > 0 ? ") " : ")? ");
    }
    llm_schema_puts(t, "ws \"]\"");
}

/* The names that share their first `at` bytes, of names[] in sorted order, and the rule for what
 * follows those bytes in a key that is none of them. */
struct trie_node {
    size_t first, last, at;
    uint32_t number;
};

/* Adds the node's rule, and the nodes after its next characters to todo[].  Returns their number.
 */
static size_t add_trie_node(struct schema_builder *b, const char *const *names,
                            struct trie_node node, struct trie_node *todo)
{
    struct schema_text body = {0}, class = {0};
    bool ends_here = names[node.first][node.at] == 0;
    size_t count = 0;
    for (size_t i = node.first + ends_here; i < node.last;) {
        const char *next = names[i] + node.at;
        uint32_t code;
        size_t n = hw_utf8_next(next, strnlen(next, 4), &code), first = i;
        if (code < 0x20 || code == '"' || code == '\\')
            llm_schema_fail(b, -EOPNOTSUPP, "additionalProperties",
                            "not with quotes or controls in names");
        while (i < node.last && strncmp(names[i] + node.at, next, n) == 0)
            i++;
        todo[count] = (struct trie_node){first, i, node.at + n, b->rules++};
        llm_schema_literal(&body, next, n);
        llm_schema_putf(&body, " r%u | ", todo[count++].number);
        llm_schema_class_char(&class, code);
    }
    llm_schema_puts(&body, "[^\"\\\\\\x00-\\x1f");
    llm_schema_put(&body, class.data ? class.data : "", class.bytes);
    llm_schema_puts(&body, ends_here ? "] char*" : "] char* | \"\"");
    if (class.failed)
        llm_schema_fail(b, -ENOMEM, "additionalProperties", "out of memory");
    if (body.bytes + b->out.bytes > LLM_GBNF_BYTES_MAX)
        llm_schema_fail(b, -E2BIG, "additionalProperties",
                        "the names of the properties are too long");
    free(class.data);
    add_rule(b, node.number, &body);
    return count;
}

/* Rules for a key that is none of the names, which are sorted: one for each beginning of a name, as
 * groups within each other would nest as deep as a name is long.  Returns the number of the first.
 */
static uint32_t add_other_key(struct schema_builder *b, const char *const *names, size_t count)
{
    /* No two of these have a name in common, so there are at most `count`. */
    struct trie_node *todo = calloc(count, sizeof *todo);
    uint32_t number = b->rules++;
    if (!todo) {
        llm_schema_fail(b, -ENOMEM, "additionalProperties", "out of memory");
        return number;
    }
    todo[0] = (struct trie_node){.last = count, .number = number};
    for (size_t left = 1; left && !b->err;) {
        struct trie_node node = todo[--left];
        left += add_trie_node(b, names, node, todo + left);
    }
    free(todo);
    return number;
}

static int order_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A rule for one member that the schema does not name: "key": value. */
static uint32_t other_member(struct schema_builder *b, const json_t *properties,
                             const json_t *additional)
{
    size_t count = 0, room = json_object_size(properties);
    const char **names = calloc(room + 1, sizeof *names);
    struct schema_text body = {0};
    uint32_t number = b->rules++;
    char value[16] = "value";
    if (!names)
        llm_schema_fail(b, -ENOMEM, "additionalProperties", "out of memory");
    for (void *at = names ? json_object_iter((json_t *)properties) : NULL; at;
         at = json_object_iter_next((json_t *)properties, at)) {
        names[count++] = json_object_iter_key(at);
    }
    if (json_is_object(additional))
        snprintf(value, sizeof value, "r%u", rule_of(b, additional));
    llm_schema_puts(&body, "\"\\\"\" ");
    if (count && !b->err) {
        qsort(names, count, sizeof *names, order_names);
        llm_schema_putf(&body, "r%u", add_other_key(b, names, count));
    } else {
        llm_schema_puts(&body, "char*");
    }
    llm_schema_putf(&body, " \"\\\":\" ws %s", value);
    free(names);
    return add_rule(b, number, &body);
}

/* `"name": value` */
static void put_member(struct schema_builder *b, struct schema_text *t, const char *name,
                       const json_t *schema)
{
    json_t *key = json_string(name);
    if (!key) {
        llm_schema_fail(b, -ENOMEM, "properties", "out of memory");
        return;
    }
    put_literal_json(b, t, key);
    json_decref(key);
    llm_schema_putf(t, " \":\" ws r%u", rule_of(b, schema));
}

/* Rules for the members from each property on, the last first: `after` where a member stands
 * before, so that a comma is needed, and `first` where none does. */
struct tail {
    uint32_t after, first;
};

static struct tail build_end(struct schema_builder *b, const json_t *properties,
                             const json_t *additional, bool open)
{
    struct schema_text after = {0}, first = {0};
    struct tail end = {.after = b->rules, .first = b->rules + 1};
    b->rules += 2;
    if (open) {
        uint32_t other = other_member(b, properties, additional);
        llm_schema_putf(&after, "(\",\" ws r%u)*", other);
        llm_schema_putf(&first, "(r%u (\",\" ws r%u)*)?", other, other);
    } else {
        llm_schema_puts(&after, "\"\"");
        llm_schema_puts(&first, "\"\"");
    }
    add_rule(b, end.after, &after);
    add_rule(b, end.first, &first);
    return end;
}

static struct tail build_property(struct schema_builder *b, const char *name, const json_t *schema,
                                  bool required, struct tail rest)
{
    struct schema_text member = {0}, after = {0}, first = {0};
    struct tail here = {.after = b->rules, .first = b->rules + 1};
    uint32_t number = b->rules + 2;
    b->rules += 3;
    put_member(b, &member, name, schema);
    add_rule(b, number, &member);
    llm_schema_putf(&after, "\",\" ws r%u r%u", number, rest.after);
    llm_schema_putf(&first, "r%u r%u", number, rest.after);
    if (!required) {
        llm_schema_putf(&after, " | r%u", rest.after);
        llm_schema_putf(&first, " | r%u", rest.first);
    }
    add_rule(b, here.after, &after);
    add_rule(b, here.first, &first);
    return here;
}

/* The names that are required, as an object's; NULL after an error. */
static json_t *read_required(struct schema_builder *b, const json_t *properties,
                             const json_t *required, bool open)
{
    json_t *names = json_object();
    if (required && !json_is_array(required))
        llm_schema_fail(b, -EINVAL, "required", "an array of strings is needed");
    for (size_t i = 0; names && i < json_array_size(required) && !b->err; i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (!name)
            llm_schema_fail(b, -EINVAL, "required", "an array of strings is needed");
        else if (!json_object_get(properties, name))
            llm_schema_fail(b, open ? -EOPNOTSUPP : -EINVAL, "required", "names no property");
        else if (json_object_set_new(names, name, json_true()))
            llm_schema_fail(b, -ENOMEM, "required", "out of memory");
    }
    if (!names)
        llm_schema_fail(b, -ENOMEM, "required", "out of memory");
    return names;
}

static void build_members(struct schema_builder *b, const json_t *properties,
                          const json_t *required, const json_t *additional, bool open,
                          struct schema_text *t)
{
    void **order = calloc(json_object_size(properties) + 1, sizeof *order);
    if (!order) {
        llm_schema_fail(b, -ENOMEM, "properties", "out of memory");
        return;
    }
    size_t n = 0;
    for (void *at = json_object_iter((json_t *)properties); at;
         at = json_object_iter_next((json_t *)properties, at))
        order[n++] = at;
    struct tail tail = build_end(b, properties, additional, open);
    while (n-- > 0 && !b->err) {
        const char *name = json_object_iter_key(order[n]);
        tail = build_property(b, name, json_object_iter_value(order[n]),
                              json_object_get(required, name) != NULL, tail);
    }
    free(order);
    llm_schema_putf(t, "\"{\" ws r%u ws \"}\"", tail.first);
}

static void build_object(struct schema_builder *b, const json_t *schema, struct schema_text *t)
{
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *additional = json_object_get(schema, "additionalProperties");
    size_t count = json_object_size(properties);
    bool open = additional ? !json_is_false(additional) : count == 0;
    if (properties && !json_is_object(properties))
        llm_schema_fail(b, -EINVAL, "properties", "an object is needed");
    json_t *required = read_required(b, properties, json_object_get(schema, "required"), open);
    if (count == 0 && open && !json_is_object(additional))
        llm_schema_puts(t, "object");
    else if (!b->err)
        build_members(b, properties, required, additional, open, t);
    json_decref(required);
}

/* ---- whole schemas ---- */

static void build_type(struct schema_builder *b, const char *type, const json_t *schema,
                       struct schema_text *t)
{
    static const struct {
        const char *name;
        void (*build)(struct schema_builder *b, const json_t *schema, struct schema_text *t);
    } types[] = {{"string", build_string},
                 {"integer", build_integer},
                 {"number", build_number},
                 {"array", build_array},
                 {"object", build_object}};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (strcmp(type, types[i].name) == 0) {
            types[i].build(b, schema, t);
            return;
        }
    }
    if (strcmp(type, "boolean") == 0 || strcmp(type, "null") == 0)
        llm_schema_puts(t, type);
    else
        llm_schema_fail(b, -EINVAL, "type", "not a type of JSON");
}

/* What limits the values of a schema, and the type it is about; NULL: of any. */
static const struct limit {
    const char *keyword, *type;
} limits[] = {{"properties", "object"},
              {"required", "object"},
              {"additionalProperties", "object"},
              {"items", "array"},
              {"prefixItems", "array"},
              {"minItems", "array"},
              {"maxItems", "array"},
              {"uniqueItems", "array"},
              {"pattern", "string"},
              {"minLength", "string"},
              {"maxLength", "string"},
              {"minimum", "number"},
              {"maximum", "number"},
              {"exclusiveMinimum", "number"},
              {"exclusiveMaximum", "number"},
              {"type", NULL},
              {"const", NULL},
              {"enum", NULL},
              {"$ref", NULL},
              {"allOf", NULL},
              {"anyOf", NULL},
              {"oneOf", NULL}};

/* The type that other keywords tell; NULL: any. */
static const char *implied_type(const json_t *schema)
{
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        if (limits[i].type && json_object_get(schema, limits[i].keyword))
            return limits[i].type;
    }
    return json_object_get(schema, "format") ? "string" : NULL;
}

/* Another limit than `keyword`; NULL: there is none. */
static const char *limit_beside(const json_t *schema, const char *keyword)
{
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        if (strcmp(limits[i].keyword, keyword) != 0 && json_object_get(schema, limits[i].keyword))
            return limits[i].keyword;
    }
    return NULL;
}

/* A part of a pointer that names a member or an item; NULL: there is none. */
static const json_t *part_of(const json_t *at, const char *name)
{
    char *end;
    if (!json_is_array(at))
        return json_object_get(at, name);
    unsigned long index = strtoul(name, &end, 10);
    return isdigit((unsigned char)name[0]) && !*end ? json_array_get(at, index) : NULL;
}

/* "%xx" to a byte, in place.  False: an escape is bad, or of the byte that no name has. */
static bool decode_percent(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        unsigned byte = (unsigned char)*from;
        if (byte == '%') {
            if (!isxdigit((unsigned char)from[1]) || !isxdigit((unsigned char)from[2]) ||
                sscanf(from + 1, "%2x", &byte) != 1 || byte == 0)
                return false;
            from += 2;
        }
        *to++ = (char)byte;
    }
    *to = '\0';
    return true;
}

/* "~1" to '/' and "~0" to '~', in place. */
static bool decode_tilde(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        bool escaped = *from == '~';
        from += escaped;
        if (escaped && *from != '0' && *from != '1')
            return false;
        *to++ = !escaped ? *from : *from == '1' ? '/' : '~';
    }
    *to = '\0';
    return true;
}

/* A pointer as a URI has it (RFC 6901, section 6): bytes may be written as %xx. */
const json_t *llm_schema_resolve(struct schema_builder *b, const char *ref)
{
    const json_t *at = b->root;
    char *pointer = strdup(ref[0] ? ref + 1 : ""), *rest = pointer;
    bool fine = pointer && decode_percent(pointer);
    if (!pointer)
        llm_schema_fail(b, -ENOMEM, "$ref", "out of memory");
    else if (fine && (ref[0] != '#' || (pointer[0] && pointer[0] != '/')))
        llm_schema_fail(b, -EOPNOTSUPP, "$ref", "only \"#\" and \"#/...\" are supported");
    (void)strsep(&rest, "/"); /* what is before the first */
    for (char *name; fine && at && (name = strsep(&rest, "/"));) {
        fine = decode_tilde(name);
        at = part_of(at, name);
    }
    if (!fine)
        llm_schema_fail(b, -EINVAL, "$ref", "it has an escape other than %01 to %FF, ~0 and ~1");
    else if (!at)
        llm_schema_fail(b, -EINVAL, "$ref", "there is no such definition");
    free(pointer);
    return b->err ? NULL : at;
}

static void build_ref(struct schema_builder *b, const json_t *schema, struct schema_text *t)
{
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    if (!ref) {
        llm_schema_fail(b, -EINVAL, "$ref", "a string is needed");
        return;
    }
    const json_t *known = json_object_get(b->refs, ref);
    uint32_t number = known ? (uint32_t)json_integer_value(known) : b->rules++;
    if (!known) {
        const json_t *target = llm_schema_resolve(b, ref);
        struct schema_text body = {0};
        if (json_object_set_new(b->refs, ref, json_integer(number)))
            llm_schema_fail(b, -ENOMEM, "$ref", "out of memory");
        if (target)
            build(b, target, &body);
        add_rule(b, number, &body);
    }
    llm_schema_putf(t, "r%u", number);
}

/* ---- schemas that are merged ---- */

/* What the schema says beside the keyword, and its parts from `first` to `end`, as one schema. */
static void build_merged(struct schema_builder *b, const json_t *schema, const char *keyword,
                         size_t first, size_t end, struct schema_text *t)
{
    const json_t *parts = json_object_get(schema, keyword);
    json_t *all = json_object(), *rest = json_copy((json_t *)schema);
    b->merging = parts ? keyword : "$ref";
    if (all && rest) {
        (void)json_object_del(rest, keyword);
        llm_schema_merge(b, all, rest);
        for (size_t i = first; i < end && !b->err; i++)
            llm_schema_merge(b, all, json_array_get(parts, i));
        if (!b->err)
            build(b, all, t);
    } else {
        llm_schema_fail(b, -ENOMEM, keyword, "out of memory");
    }
    json_decref(all);
    json_decref(rest);
}

/* Whether a part, or what it refers to, says all that the schema says beside the keyword: then it
 * is a rule that may refer to itself. */
static bool says_all(struct schema_builder *b, const json_t *part, const json_t *schema,
                     const char *keyword)
{
    const json_t *ref = json_object_get(part, "$ref");
    b->merging = keyword;
    if (json_is_string(ref))
        part = llm_schema_resolve(b, json_string_value(ref));
    for (size_t i = 0; i < ARRAY_LEN(limits) && !b->err; i++) {
        const json_t *said = json_object_get(schema, limits[i].keyword);
        if (said && strcmp(limits[i].keyword, keyword) != 0 &&
            !llm_schema_same(b, json_object_get(part, limits[i].keyword), said))
            return false;
    }
    return !b->err;
}

static bool check_choices(struct schema_builder *b, const json_t *choices, const char *keyword)
{
    if (!json_is_array(choices) || json_array_size(choices) == 0)
        llm_schema_fail(b, -EINVAL, keyword, "an array that is not empty is needed");
    return !b->err;
}

/* Alternatives: anyOf and oneOf.  Other limits of the schema are merged into each. */
static void build_choices(struct schema_builder *b, const json_t *schema, const char *keyword,
                          struct schema_text *t)
{
    const json_t *choices = json_object_get(schema, keyword);
    bool alone = !limit_beside(schema, keyword);
    if (!check_choices(b, choices, keyword))
        return;
    llm_schema_puts(t, "(");
    for (size_t i = 0; i < json_array_size(choices) && !b->err; i++) {
        struct schema_text body = {0};
        uint32_t number = b->rules++;
        if (alone || says_all(b, json_array_get(choices, i), schema, keyword))
            build(b, json_array_get(choices, i), &body);
        else
            build_merged(b, schema, keyword, i, i + 1, &body);
        llm_schema_putf(t, "%sr%u", i ? " | " : "", add_rule(b, number, &body));
    }
    llm_schema_puts(t, ")");
}

static void build_all(struct schema_builder *b, const json_t *schema, struct schema_text *t)
{
    const json_t *parts = json_object_get(schema, "allOf");
    if (parts && !json_is_array(parts))
        llm_schema_fail(b, -EINVAL, "allOf", "an array is needed");
    if (json_array_size(parts) == 1 && !limit_beside(schema, "allOf"))
        build(b, json_array_get(parts, 0), t);
    else if (!b->err)
        build_merged(b, schema, "allOf", 0, json_array_size(parts), t);
}

static bool is_of(const json_t *value, const json_t *types)
{
    bool whole =
        json_is_integer(value) || (json_is_real(value) && is_whole(json_real_value(value)));
    return !types || (json_is_string(value) && llm_schema_names_type(types, "string")) ||
           (whole && llm_schema_names_type(types, "integer")) ||
           (json_is_number(value) && llm_schema_names_type(types, "number")) ||
           (json_is_boolean(value) && llm_schema_names_type(types, "boolean")) ||
           (json_is_null(value) && llm_schema_names_type(types, "null")) ||
           (json_is_array(value) && llm_schema_names_type(types, "array")) ||
           (json_is_object(value) && llm_schema_names_type(types, "object"));
}

/* Values: those of const or enum that are of the schema's type. */
static void build_values(struct schema_builder *b, const json_t *schema, const char *keyword,
                         const json_t *values, struct schema_text *t)
{
    const json_t *type = json_object_get(schema, "type");
    size_t count = 0;
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        const char *other = limits[i].keyword;
        if (strcmp(other, keyword) != 0 && strcmp(other, "type") != 0 &&
            json_object_get(schema, other))
            llm_schema_fail(b, -EOPNOTSUPP, other, "not together with const or enum");
    }
    if (!check_choices(b, values, keyword))
        return;
    llm_schema_puts(t, "(");
    for (size_t i = 0; i < json_array_size(values) && !b->err; i++) {
        if (!is_of(json_array_get(values, i), type))
            continue;
        llm_schema_puts(t, count++ ? " | " : "");
        put_literal_json(b, t, json_array_get(values, i));
    }
    llm_schema_puts(t, ")");
    if (count == 0)
        llm_schema_fail(b, -EINVAL, keyword, "no value is of the type");
}

static void build_constant(struct schema_builder *b, const json_t *schema, struct schema_text *t)
{
    json_t *values = json_pack("[O]", json_object_get(schema, "const"));
    if (values)
        build_values(b, schema, "const", values, t);
    else
        llm_schema_fail(b, -ENOMEM, "const", "out of memory");
    json_decref(values);
}

/* ---- keywords ---- */

/* Names of members that must be strings, as they are: some programs write it. */
static bool says_nothing(const json_t *schema, const char *keyword)
{
    const json_t *names = json_object_get(schema, "propertyNames");
    const char *type = json_string_value(json_object_get(names, "type"));
    return strcmp(keyword, "propertyNames") == 0 && type && strcmp(type, "string") == 0 &&
           json_object_size(names) == 1;
}

static void refuse_unsupported(struct schema_builder *b, const json_t *schema)
{
    static const char *const keywords[] = {
        "not",
        "if",
        "then",
        "else",
        "contains",
        "minContains",
        "maxContains",
        "multipleOf",
        "dependentSchemas",
        "dependentRequired",
        "dependencies",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "unevaluatedProperties",
        "unevaluatedItems",
        "additionalItems",
        "$dynamicRef",
        "$recursiveRef",
    };
    for (size_t i = 0; i < ARRAY_LEN(keywords); i++) {
        if (json_object_get(schema, keywords[i]) && !says_nothing(schema, keywords[i]))
            llm_schema_fail(b, -EOPNOTSUPP, keywords[i], "not supported");
    }
}

static void build_types(struct schema_builder *b, const json_t *schema, const json_t *types,
                        struct schema_text *t)
{
    llm_schema_puts(t, "(");
    for (size_t i = 0; i < json_array_size(types) && !b->err; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        struct schema_text body = {0};
        uint32_t number = b->rules++;
        build_type(b, type ? type : "", schema, &body);
        llm_schema_putf(t, "%sr%u", i ? " | " : "", add_rule(b, number, &body));
    }
    llm_schema_puts(t, ")");
}

static void build_keywords(struct schema_builder *b, const json_t *schema, struct schema_text *t)
{
    const json_t *type = json_object_get(schema, "type");
    const json_t *ref = json_object_get(schema, "$ref");
    refuse_unsupported(b, schema);
    if (b->err)
        return;
    if (ref && (!limit_beside(schema, "$ref") || says_all(b, schema, schema, "$ref")))
        build_ref(b, schema, t);
    else if (ref || json_object_get(schema, "allOf"))
        build_all(b, schema, t);
    else if (json_object_get(schema, "const"))
        build_constant(b, schema, t);
    else if (json_object_get(schema, "enum"))
        build_values(b, schema, "enum", json_object_get(schema, "enum"), t);
    else if (json_object_get(schema, "anyOf"))
        build_choices(b, schema, "anyOf", t);
    else if (json_object_get(schema, "oneOf"))
        build_choices(b, schema, "oneOf", t);
    else if (json_is_array(type) && json_array_size(type))
        build_types(b, schema, type, t);
    else if (json_is_string(type))
        build_type(b, json_string_value(type), schema, t);
    else if (type)
        llm_schema_fail(b, -EINVAL, "type", "a string or an array of strings is needed");
    else if (implied_type(schema))
        build_type(b, implied_type(schema), schema, t);
    else
        llm_schema_puts(t, "value");
}

static void build(struct schema_builder *b, const json_t *schema, struct schema_text *t)
{
    if (b->err)
        return;
    if (++b->depth > LLM_SCHEMA_DEPTH_MAX)
        llm_schema_fail(b, -E2BIG, "type", "schemas nested deeper than 64");
    if (json_is_true(schema))
        llm_schema_puts(t, "value");
    else if (json_is_object(schema))
        build_keywords(b, schema, t);
    else
        llm_schema_fail(b, -EINVAL, "type", "a schema is an object or true");
    check_text(b, t);
    b->depth--;
}

int llm_schema_rules(const json_t *const *schemas, size_t count, bool narrow,
                     struct schema_text *out, char *why)
{
    struct schema_builder b = {.why = why};
    llm_schema_puts(&b.out, narrow ? narrow_space : wide_space);
    llm_schema_puts(&b.out, base_rules);
    for (size_t i = 0; i < count && !b.err; i++) {
        struct schema_text body = {0};
        b.root = schemas[i];
        b.refs = json_object();
        if (!b.refs)
            llm_schema_fail(&b, -ENOMEM, "type", "out of memory");
        else if (schemas[i])
            build(&b, schemas[i], &body);
        else
            llm_schema_puts(&body, "object");
        llm_schema_putf(&b.out, "schema-%zu ::= ", i);
        llm_schema_put(&b.out, body.data ? body.data : "", body.bytes);
        llm_schema_puts(&b.out, "\n");
        if (body.failed)
            llm_schema_fail(&b, -ENOMEM, "type", "out of memory");
        check_text(&b, &b.out);
        free(body.data);
        json_decref(b.refs);
    }
    if (b.err) {
        free(b.out.data);
        return b.err;
    }
    *out = b.out;
    return 0;
}

int llm_schema_grammar(const json_t *schema, char **gbnf, size_t *bytes, char *why)
{
    struct schema_text out;
    int err = llm_schema_rules(&schema, 1, false, &out, why);
    if (err)
        return err;
    llm_schema_puts(&out, "root ::= ws schema-0 ws\n");
    return llm_schema_take(&out, gbnf, bytes, why);
}
