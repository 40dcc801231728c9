/* Grammars of tool calls: what a form writes, with the names and the parameters of a request. */
#include "llm/chat/schema.h"
#include "llm/chat/schema_text.h"
#include "llm/chat/tools_shape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct writer {
    const struct tools_shape *shape;
    const struct llm_vocab *vocab; /* NULL: no marks are tokens */
    struct schema_text *out;
};

/* If the name of a control token begins at text: writes the token and yields the name's bytes; else
 * 0. */
static size_t put_mark(const struct writer *w, const char *text)
{
    const char *end = strchr("<[", *text) ? strchr(text, *text == '<' ? '>' : ']') : NULL;
    const char *tree = w->shape->tree;
    size_t n = end ? (size_t)(end - text) + 1 : 0, bytes;
    if (tree && strncmp(text, tree, strlen(tree)) == 0)
        n = strlen(tree);
    uint32_t token;
    if (n == 0 || !w->vocab || llm_vocab_encode(w->vocab, text, n, &token, 1) != 1)
        return 0;
    (void)llm_vocab_piece(w->vocab, token, false, &bytes);
    if (bytes > 0)
        return 0;
    llm_schema_putf(w->out, "<[%u]> ", token);
    return n;
}

/* A place where something of the request is written. */
static bool is_place(char c)
{
    return c >= '\1' && c <= '\3';
}

/* A piece of a form: literals, marks, and a function's name and arguments in their places. */
static void put_form(const struct writer *w, const char *text, const char *name, size_t schema)
{
    while (text && *text) {
        size_t n = put_mark(w, text);
        if (n == 0 && !is_place(*text)) {
            do
                n++;
            while (text[n] && !is_place(text[n]) && text[n] != '<' && text[n] != '[');
            llm_schema_literal(w->out, text, n);
            llm_schema_puts(w->out, " ");
        } else if (n == 0) {
            n = 1;
            if (*text == '\1')
                llm_schema_literal(w->out, name, strlen(name));
            else if (*text == '\2')
                llm_schema_putf(w->out, " schema-%zu ", schema);
            else
                llm_schema_putf(w->out, "(\", \\\"id\\\": \\\"\" [a-zA-Z0-9]{%d} \"\\\"\")? ",
                                TOOLS_ID_CHARS);
        }
        text += n;
    }
}

static const json_t *function_at(const json_t *tools, size_t index)
{
    return json_object_get(json_array_get(tools, index), "function");
}

static const char *name_at(const json_t *tools, size_t index)
{
    return json_string_value(json_object_get(function_at(tools, index), "name"));
}

/* Says which function's parameters were refused. */
static int blame(const json_t *tools, const json_t *const *schemas, size_t count, int err,
                 char *why)
{
    for (size_t i = 0; i < count && err != -ENOMEM; i++) {
        struct schema_text text;
        char cause[LLM_WHY_CHARS];
        int alone = llm_schema_rules(&schemas[i], 1, true, &text, cause);
        if (alone)
            return llm_why(why, alone, "the parameters of the function '%.64s': %s",
                           name_at(tools, i), cause);
        free(text.data);
    }
    return err;
}

static void put_root(const struct writer *w, const json_t *tools, const char *name, bool parallel)
{
    const struct tools_shape *shape = w->shape;
    bool first = true;
    llm_schema_puts(w->out, "call ::= ");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        if (name && strcmp(name_at(tools, i), name) != 0)
            continue;
        llm_schema_puts(w->out, first ? "" : " | ");
        put_form(w, shape->call, name_at(tools, i), i);
        first = false;
    }
    llm_schema_puts(w->out, "\nroot ::= ");
    put_form(w, shape->begin, NULL, 0);
    llm_schema_puts(w->out, "call ");
    if (!name && parallel && shape->between) {
        llm_schema_puts(w->out, "(");
        put_form(w, shape->between, NULL, 0);
        llm_schema_putf(w->out, "call){0,%d} ", LLM_TOOL_CALLS_MAX - 1);
    }
    put_form(w, shape->end, NULL, 0);
    llm_schema_puts(w->out, "\n");
}

int llm_tools_grammar(enum llm_tools_form form, const struct llm_vocab *vocab, const json_t *tools,
                      const char *name, bool parallel, char **gbnf, size_t *bytes, char *why)
{
    static const char nothing[] = "{\"type\": \"object\", \"additionalProperties\": false}";
    size_t count = json_array_size(tools), named = 0;
    for (size_t i = 0; i < count; i++) {
        if (!name_at(tools, i))
            return llm_why(why, -EINVAL, "tools[%zu].function.name: a string is needed", i);
        named += !name || strcmp(name_at(tools, i), name) == 0;
    }
    if (named == 0)
        return llm_why(why, -ENOENT, "no function of 'tools' has the name '%.64s'",
                       name ? name : "");
    const json_t **schemas = calloc(count, sizeof *schemas);
    json_t *empty = json_loads(nothing, 0, NULL);
    if (!schemas || !empty) {
        free(schemas);
        json_decref(empty);
        return llm_why(why, -ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        schemas[i] = json_object_get(function_at(tools, i), "parameters");
        if (!schemas[i] || json_is_null(schemas[i]) || json_object_size(schemas[i]) == 0)
            schemas[i] = empty;
    }
    struct schema_text out;
    int err = llm_schema_rules(schemas, count, true, &out, why);
    if (err) {
        err = blame(tools, schemas, count, err, why);
    } else {
        struct writer w = {.shape = llm_tools_shape(form), .vocab = vocab, .out = &out};
        put_root(&w, tools, name, parallel);
        err = llm_schema_take(&out, gbnf, bytes, why);
    }
    free(schemas);
    json_decref(empty);
    return err;
}
