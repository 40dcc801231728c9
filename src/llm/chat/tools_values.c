#include "llm/chat/tools_values.h"

#include "base/attr.h"
#include "base/text/gather.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text under way; `at` never passes `end`. */
struct input {
    const char *text;
    size_t at, end;
    const char *mark; /* loose: what quotes; tree: what stands before a tag */
    unsigned depth;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void skip_blanks(struct input *in)
{
    while (in->at < in->end && is_blank(in->text[in->at]))
        in->at++;
}

static bool is_at(const struct input *in, size_t at, const char *token)
{
    size_t n = strlen(token);
    return in->end - at >= n && memcmp(in->text + at, token, n) == 0;
}

static bool take(struct input *in, const char *token)
{
    bool there = is_at(in, in->at, token);
    in->at += there ? strlen(token) : 0;
    return there;
}

/* ---- words ---- */

/* The schema allows a string.  As deep as a request may be. */
static bool takes_text(const json_t *schema)
{
    static const char *const lists[] = {"anyOf", "oneOf", "enum", "type"};
    const json_t *type = json_object_get(schema, "type");
    if (json_is_string(type))
        return strcmp(json_string_value(type), "string") == 0;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        const json_t *list = json_object_get(schema, lists[i]);
        for (size_t k = 0; k < json_array_size(list); k++) {
            const json_t *one = json_array_get(list, k);
            const char *word = json_string_value(one);
            if (word ? list != type || strcmp(word, "string") == 0 : takes_text(one))
                return true;
        }
    }
    return false;
}

static json_t *python_word(const char *text, size_t bytes)
{
    if (bytes == 4 && memcmp(text, "True", 4) == 0)
        return json_true();
    if (bytes == 5 && memcmp(text, "False", 5) == 0)
        return json_false();
    return bytes == 4 && memcmp(text, "None", 4) == 0 ? json_null() : json_stringn(text, bytes);
}

json_t *llm_tools_value(const json_t *schema, const char *text, size_t bytes)
{
    if (bytes > 0 && text[0] == '\n')
        text++, bytes--;
    if (bytes > 0 && text[bytes - 1] == '\n')
        bytes--;
    if (takes_text(schema))
        return json_stringn(text, bytes);
    json_t *value = json_loadb(text, bytes, JSON_DECODE_ANY, NULL);
    if (value || json_object_size(schema) == 0)
        return value ? value : json_stringn(text, bytes);
    return python_word(text, bytes);
}

/* ---- loose ---- */

static bool ends_string(const struct input *in, size_t at)
{
    while (at < in->end && is_blank(in->text[at]))
        at++;
    return at == in->end || strchr(",:=)]}", in->text[at]);
}

/* The rest of a string that a character quotes, with JSON's escapes and that of the character; or
 * as it stands, where they are no escapes. */
static json_t *quoted(struct input *in, char quote)
{
    struct hw_gathered json;
    size_t from = in->at;
    FILE *out = hw_gather(&json);
    if (!out)
        return NULL;
    fputc('"', out);
    while (in->at < in->end && !(in->text[in->at] == quote && ends_string(in, in->at + 1))) {
        char c = in->text[in->at++];
        bool escape = c == '\\' && in->at < in->end;
        if (escape)
            c = in->text[in->at++];
        if (escape && c == '\n') /* Python goes on in the next line */
            continue;
        bool control = (unsigned char)c < 0x20;
        if (c == '"' || (escape && c != '\''))
            fputs(control ? "\\\\" : "\\", out);
        if (control)
            fprintf(out, "\\u%04x", (unsigned)c);
        else
            fputc(c, out);
    }
    fputc('"', out);
    json_t *string = NULL;
    if (hw_gather_end(out, &json) == 0 && in->at < in->end) {
        string = json_loadb(json.text, json.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        if (!string)
            string = json_stringn(in->text + from, in->at - from);
        in->at++;
    }
    free(json.text);
    return string;
}

/* A string, if one begins here; otherwise NULL and *bare. */
static json_t *loose_string(struct input *in, bool *bare)
{
    char c = in->at < in->end ? in->text[in->at] : '\0';
    *bare = false;
    if (in->mark && take(in, in->mark)) {
        const char *from = in->text + in->at;
        const char *end = memmem(from, in->end - in->at, in->mark, strlen(in->mark));
        if (end)
            in->at = (size_t)(end - in->text) + strlen(in->mark);
        return end ? json_stringn(from, (size_t)(end - from)) : NULL;
    }
    *bare = c != '"' && c != '\'';
    if (*bare)
        return NULL;
    in->at++;
    return quoted(in, c);
}

/* Text without quotes, up to one of `ends`. */
static size_t run(struct input *in, const char *ends, const char **from)
{
    *from = in->text + in->at;
    while (in->at < in->end && !strchr(ends, in->text[in->at]))
        in->at++;
    size_t n = (size_t)(in->text + in->at - *from);
    while (n > 0 && is_blank((*from)[n - 1]))
        n--;
    return n;
}

static json_t *loose_value(struct input *in);

/* A list, or an object: up to `last`.  NULL: it is something else. */
static json_t *loose_items(struct input *in, char last)
{
    json_t *items = last == ']' ? json_array() : json_object();
    bool fine = items && ++in->depth <= TOOLS_VALUES_DEPTH_MAX;
    skip_blanks(in);
    while (fine && in->at < in->end && in->text[in->at] != last) {
        const char *key = NULL;
        size_t bytes = 0;
        bool bare = true;
        json_t *name = last == ']' ? NULL : loose_string(in, &bare);
        if (name)
            key = json_string_value(name), bytes = json_string_length(name);
        else if (bare && last != ']')
            bytes = run(in, ":=,)}", &key);
        skip_blanks(in);
        fine = last == ']' || (bytes > 0 && (take(in, ":") || take(in, "=")));
        json_t *value = fine ? loose_value(in) : NULL;
        fine = value && (last == ']' ? json_array_append_new(items, value)
                                     : json_object_setn_new(items, key, bytes, value)) == 0;
        json_decref(name);
        skip_blanks(in);
        fine = fine && in->at < in->end && (take(in, ",") || in->text[in->at] == last);
        skip_blanks(in);
    }
    in->depth--;
    if (fine && in->at < in->end) {
        in->at++;
        return items;
    }
    json_decref(items);
    return NULL;
}

static json_t *loose_value(struct input *in)
{
    bool bare;
    const char *from;
    skip_blanks(in);
    if (take(in, "["))
        return loose_items(in, ']');
    if (take(in, "{"))
        return loose_items(in, '}');
    json_t *string = loose_string(in, &bare);
    size_t n = bare ? run(in, ",)]}", &from) : 0;
    if (!bare)
        return string;
    json_t *value = json_loadb(from, n, JSON_DECODE_ANY, NULL);
    return value ? value : python_word(from, n);
}

json_t *llm_tools_loose(const char *text, size_t *bytes, char last, const char *quote)
{
    struct input in = {.text = text, .end = *bytes, .mark = quote};
    json_t *items = loose_items(&in, last);
    *bytes = in.at;
    return items;
}

/* ---- tree ---- */

static const json_t *schema_of(const json_t *schema, const char *key)
{
    const json_t *properties = json_object_get(schema, "properties");
    return properties ? json_object_get(properties, key) : json_object_get(schema, "items");
}

static json_t *tree_value(struct input *in, const json_t *schema);

/* One element; false: it is something else. */
static bool tree_element(struct input *in, const json_t *schema, json_t *object, json_t *items)
{
    char key[256];
    const char *from;
    size_t n = take(in, in->mark) && take(in, "<") ? run(in, ">", &from) : 0;
    if (n == 0 || n >= sizeof(key) || !take(in, ">"))
        return false;
    memcpy(key, from, n);
    key[n] = '\0';
    json_t *value = tree_value(in, schema_of(schema, key));
    bool kept = value && json_object_set(object, key, value) == 0; /* false: no UTF-8 */
    if (json_array_append_new(items, value) || !kept)
        return false;
    return take(in, in->mark) && take(in, "</") && take(in, key) && take(in, ">");
}

/* Items of a list have a name that a member may have, too. */
static bool is_list(const struct input *in, const json_t *object, const json_t *schema)
{
    bool root = in->depth == 0;
    return !root && json_object_size(object) == 1 && json_object_get(object, "item") &&
           !json_object_get(json_object_get(schema, "properties"), "item");
}

static json_t *tree_value(struct input *in, const json_t *schema)
{
    const char *end = memmem(in->text + in->at, in->end - in->at, in->mark, strlen(in->mark));
    size_t text = in->at, stop = end ? (size_t)(end - in->text) : in->end;
    in->at = stop;
    if (!end || is_at(in, stop + strlen(in->mark), "</"))
        return llm_tools_value(schema, in->text + text, stop - text);
    for (; text < stop; text++) {
        if (!is_blank(in->text[text]))
            return NULL;
    }
    json_t *object = json_object(), *items = json_array();
    bool fine = object && items && ++in->depth <= TOOLS_VALUES_DEPTH_MAX;
    while (fine && is_at(in, in->at, in->mark) && !is_at(in, in->at + strlen(in->mark), "</")) {
        fine = tree_element(in, schema, object, items);
        size_t before = in->at;
        skip_blanks(in);
        in->at = is_at(in, in->at, in->mark) || in->at == in->end ? in->at : before;
    }
    in->depth--;
    json_t *value = fine ? json_incref(is_list(in, object, schema) ? items : object) : NULL;
    json_decref(object);
    json_decref(items);
    return value;
}

json_t *llm_tools_tree(const char *text, size_t bytes, const char *mark, const json_t *properties)
{
    struct input in = {.text = text, .end = bytes, .mark = mark};
    json_t *schema = json_pack("{s:O*}", "properties", properties), *value = json_object();
    skip_blanks(&in);
    if (in.at < in.end) {
        json_decref(value);
        value = is_at(&in, in.at, mark) ? tree_value(&in, schema) : NULL;
    }
    json_decref(schema);
    if (json_is_object(value) && in.at == in.end)
        return value;
    json_decref(value);
    return NULL;
}
