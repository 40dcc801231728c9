/* From tokens to a tree, by recursive descent in the order of jinja2's precedence. */
#include "llm/chat/jinja/lexer.h"
#include "llm/chat/jinja/node.h"
#include "llm/chat/template.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct parser {
    struct hw_arena *arena;
    const struct token *at;
    uint32_t depth;
    uint32_t loops; /* for statements around */
    char *why;
    int err;
};

static struct node *fail(struct parser *p, int err, const char *what)
{
    if (!p->err)
        p->err = llm_why(p->why, err, "line %u of the chat template: %s", p->at->line, what);
    return NULL;
}

static struct node *unexpected(struct parser *p, const char *wanted)
{
    char text[LLM_WHY_CHARS];
    bool ended = p->at->type == TOKEN_END || p->at->type == TOKEN_BLOCK_END ||
                 p->at->type == TOKEN_OUTPUT_END;
    snprintf(text, sizeof text, "%.*s where %s is expected", ended ? 10 : (int)p->at->bytes,
             ended ? "it ends" : p->at->text, wanted);
    return fail(p, -EINVAL, text);
}

static struct node *make(struct parser *p, enum node_type type)
{
    struct node *node = p->err ? NULL : hw_arena_calloc(p->arena, 1, sizeof *node);
    if (!node)
        return fail(p, -ENOMEM, "out of memory");
    node->type = (uint8_t)type;
    node->line = p->at->line;
    return node;
}

static struct node *make_binary(struct parser *p, enum node_type type, struct node *a,
                                struct node *b)
{
    struct node *node = make(p, type);
    if (node) {
        node->a = a;
        node->b = b;
    }
    return node;
}

static bool enter(struct parser *p)
{
    if (p->depth >= LLM_TEMPLATE_NESTING_MAX)
        fail(p, -E2BIG, "nested too deep");
    if (p->err)
        return false;
    p->depth++;
    return true;
}

static bool is_op(const struct token *token, const char *op)
{
    return token->type == TOKEN_OPERATOR && strcmp(token->text, op) == 0;
}

static bool is_name(const struct token *token, const char *name)
{
    return token->type == TOKEN_NAME && token->bytes == strlen(name) &&
           memcmp(token->text, name, token->bytes) == 0;
}

static void next(struct parser *p)
{
    if (p->at->type != TOKEN_END)
        p->at++;
}

static bool skip_op(struct parser *p, const char *op)
{
    bool is = is_op(p->at, op);
    if (is)
        next(p);
    return is;
}

static bool skip_name(struct parser *p, const char *name)
{
    bool is = is_name(p->at, name);
    if (is)
        next(p);
    return is;
}

static void expect_op(struct parser *p, const char *op)
{
    if (!p->err && !skip_op(p, op))
        unexpected(p, op);
}

static void take_name(struct parser *p, struct node *node)
{
    if (!node)
        return;
    if (p->at->type != TOKEN_NAME) {
        unexpected(p, "a name");
        return;
    }
    node->name = p->at->text;
    node->name_bytes = p->at->bytes;
    next(p);
}

/* Appends to a list of siblings whose tail is *tail. */
static void append(struct node ***tail, struct node *node)
{
    if (!node)
        return;
    **tail = node;
    *tail = &node->next;
}

static struct node *expression(struct parser *p);
static struct node *disjunction(struct parser *p);
static struct node *unary(struct parser *p, bool with_filter);
static struct node *primary(struct parser *p);
static struct node *postfix(struct parser *p, struct node *node);

static struct node *arguments(struct parser *p)
{
    struct node *first = NULL, **tail = &first;
    bool named = false;
    expect_op(p, "(");
    while (!p->err && !is_op(p->at, ")")) {
        if (is_op(p->at, "*") || is_op(p->at, "**"))
            return fail(p, -EOPNOTSUPP, "* before an argument");
        if (p->at->type == TOKEN_NAME && is_op(p->at + 1, "=")) {
            struct node *keyword = make(p, NODE_KEYWORD);
            take_name(p, keyword);
            next(p);
            struct node *value = expression(p);
            if (keyword)
                keyword->a = value;
            append(&tail, keyword);
            named = true;
        } else if (named) {
            return fail(p, -EINVAL, "an argument without a name after one with a name");
        } else {
            append(&tail, expression(p));
        }
        if (!skip_op(p, ","))
            break;
    }
    expect_op(p, ")");
    return first;
}

/* Items up to a closing bracket; pairs: "key: value". */
static struct node *items(struct parser *p, const char *close, bool pairs)
{
    struct node *first = NULL, **tail = &first;
    while (!p->err && !is_op(p->at, close)) {
        append(&tail, expression(p));
        if (pairs) {
            expect_op(p, ":");
            append(&tail, expression(p));
        }
        if (!skip_op(p, ","))
            break;
    }
    expect_op(p, close);
    return first;
}

static struct node *constant(struct parser *p, struct tval value)
{
    struct node *node = make(p, NODE_CONST);
    if (node)
        node->value = value;
    return node;
}

static struct node *strings(struct parser *p)
{
    size_t bytes = 0;
    const struct token *first = p->at;
    while (p->at->type == TOKEN_STRING) {
        bytes += p->at->bytes;
        next(p);
    }
    if (p->at == first + 1)
        return constant(p, tval_text(first->text, first->bytes));
    char *joined = hw_arena_alloc(p->arena, bytes + 1, 1);
    if (!joined)
        return fail(p, -ENOMEM, "out of memory");
    size_t at = 0;
    for (; first < p->at; at += first++->bytes)
        memcpy(joined + at, first->text, first->bytes);
    return constant(p, tval_text(joined, bytes));
}

enum {
    TUPLE_TARGET = 1,  /* names only */
    TUPLE_NO_IF = 2,   /* `if` is not part of it */
    TUPLE_BRACKETS = 4 /* may be empty */
};

static bool tuple_ends(const struct parser *p, int how)
{
    return p->at->type == TOKEN_OUTPUT_END || p->at->type == TOKEN_BLOCK_END || is_op(p->at, ")") ||
           ((how & TUPLE_TARGET) && is_name(p->at, "in")) ||
           ((how & TUPLE_NO_IF) && is_name(p->at, "recursive"));
}

/* One expression, or several with commas between. */
static struct node *tuple(struct parser *p, int how)
{
    struct node *first = NULL, **tail = &first;
    bool is_tuple = false;
    while (!p->err) {
        if (first)
            expect_op(p, ",");
        if (tuple_ends(p, how))
            break;
        append(&tail, how & TUPLE_TARGET  ? primary(p)
                      : how & TUPLE_NO_IF ? disjunction(p)
                                          : expression(p));
        if (!is_op(p->at, ","))
            break;
        is_tuple = true;
    }
    if (first && !is_tuple)
        return first;
    if (!first && !(how & TUPLE_BRACKETS))
        return unexpected(p, "an expression");
    return make_binary(p, NODE_TUPLE, first, NULL);
}

static struct node *named(struct parser *p)
{
    if (skip_name(p, "true") || skip_name(p, "True"))
        return constant(p, tval_bool(true));
    if (skip_name(p, "false") || skip_name(p, "False"))
        return constant(p, tval_bool(false));
    if (skip_name(p, "none") || skip_name(p, "None"))
        return constant(p, tval_none());
    struct node *node = make(p, NODE_NAME);
    take_name(p, node);
    return node;
}

static struct node *primary(struct parser *p)
{
    struct node *node = NULL;
    const struct token *token = p->at;
    if (!enter(p))
        return NULL;
    switch (token->type) {
    case TOKEN_NAME:
        node = named(p);
        break;
    case TOKEN_STRING:
        node = strings(p);
        break;
    case TOKEN_INT:
    case TOKEN_FLOAT:
        next(p);
        node = constant(p, token->type == TOKEN_INT ? tval_int(token->i) : tval_float(token->f));
        break;
    default:
        if (skip_op(p, "(")) {
            node = tuple(p, TUPLE_BRACKETS);
            expect_op(p, ")");
        } else if (skip_op(p, "[")) {
            node = make_binary(p, NODE_LIST, items(p, "]", false), NULL);
        } else if (skip_op(p, "{")) {
            node = make_binary(p, NODE_DICT, items(p, "}", true), NULL);
        } else {
            unexpected(p, "an expression");
        }
    }
    p->depth--;
    return node;
}

/* What stands in brackets after a value. */
static struct node *subscript(struct parser *p)
{
    struct node *ends[3] = {NULL, NULL, NULL};
    if (!is_op(p->at, ":")) {
        struct node *index = expression(p);
        if (!is_op(p->at, ":"))
            return index;
        ends[0] = index;
    }
    for (int i = 1; i < 3 && skip_op(p, ":"); i++) {
        if (!is_op(p->at, ":") && !is_op(p->at, "]"))
            ends[i] = expression(p);
    }
    struct node *slice = make(p, NODE_SLICE);
    for (int i = 0; i < 3; i++) {
        if (!ends[i])
            ends[i] = constant(p, tval_none());
    }
    if (slice) {
        slice->a = ends[0];
        slice->b = ends[1];
        slice->c = ends[2];
    }
    return slice;
}

static struct node *attribute(struct parser *p, struct node *of)
{
    if (p->at->type == TOKEN_INT) {
        struct node *index = constant(p, tval_int(p->at->i));
        next(p);
        return make_binary(p, NODE_ITEM, of, index);
    }
    struct node *node = make_binary(p, NODE_ATTRIBUTE, of, NULL);
    take_name(p, node);
    return node;
}

static struct node *call(struct parser *p, struct node *callee)
{
    struct node *node = make_binary(p, NODE_CALL, callee, NULL);
    struct node *args = arguments(p);
    if (node)
        node->b = args;
    return node;
}

static struct node *postfix(struct parser *p, struct node *node)
{
    while (!p->err) {
        if (skip_op(p, ".")) {
            node = attribute(p, node);
        } else if (skip_op(p, "[")) {
            struct node *index = subscript(p);
            expect_op(p, "]");
            node = make_binary(p, NODE_ITEM, node, index);
        } else if (is_op(p->at, "(")) {
            node = call(p, node);
        } else {
            break;
        }
    }
    return node;
}

static struct node *filter(struct parser *p, struct node *value)
{
    struct node *node = make_binary(p, NODE_FILTER, value, NULL);
    take_name(p, node);
    if (node && is_op(p->at, "("))
        node->b = arguments(p);
    return node;
}

static bool begins_argument(const struct parser *p)
{
    const struct token *token = p->at;
    if (token->type == TOKEN_NAME)
        return !is_name(token, "else") && !is_name(token, "or") && !is_name(token, "and");
    return token->type == TOKEN_STRING || token->type == TOKEN_INT || token->type == TOKEN_FLOAT ||
           is_op(token, "[") || is_op(token, "{");
}

static struct node *test(struct parser *p, struct node *value)
{
    bool negated = skip_name(p, "not");
    struct node *node = make_binary(p, NODE_TEST, value, NULL);
    take_name(p, node);
    if (!node || p->err)
        return NULL;
    if (is_op(p->at, "(")) {
        node->b = arguments(p);
    } else if (begins_argument(p)) {
        if (is_name(p->at, "is"))
            return fail(p, -EINVAL, "two tests in a row");
        node->b = postfix(p, primary(p));
    }
    return negated ? make_binary(p, NODE_NOT, node, NULL) : node;
}

static struct node *filters(struct parser *p, struct node *node)
{
    while (!p->err) {
        if (skip_op(p, "|"))
            node = filter(p, node);
        else if (skip_name(p, "is"))
            node = test(p, node);
        else if (is_op(p->at, "("))
            node = call(p, node);
        else
            break;
    }
    return node;
}

static struct node *unary(struct parser *p, bool with_filter)
{
    struct node *node;
    if (!enter(p))
        return NULL;
    if (skip_op(p, "-"))
        node = make_binary(p, NODE_NEGATE, unary(p, false), NULL);
    else if (skip_op(p, "+"))
        node = make_binary(p, NODE_PLUS, unary(p, false), NULL);
    else
        node = primary(p);
    node = postfix(p, node);
    if (with_filter)
        node = filters(p, node);
    p->depth--;
    return node;
}

static struct node *arithmetic(struct parser *p, struct node *left, char op, struct node *right)
{
    struct node *node = make_binary(p, NODE_BINARY, left, right);
    if (node)
        node->op = op;
    return node;
}

static struct node *power(struct parser *p)
{
    struct node *left = unary(p, true);
    while (!p->err && skip_op(p, "**"))
        left = arithmetic(p, left, 'p', unary(p, true));
    return left;
}

static struct node *product(struct parser *p)
{
    struct node *left = power(p);
    while (!p->err) {
        char op = is_op(p->at, "*")    ? '*'
                  : is_op(p->at, "/")  ? '/'
                  : is_op(p->at, "//") ? 'f'
                  : is_op(p->at, "%")  ? '%'
                                       : 0;
        if (!op)
            break;
        next(p);
        left = arithmetic(p, left, op, power(p));
    }
    return left;
}

static struct node *concatenation(struct parser *p)
{
    struct node *left = product(p);
    while (!p->err && skip_op(p, "~"))
        left = make_binary(p, NODE_CONCAT, left, product(p));
    return left;
}

static struct node *sum(struct parser *p)
{
    struct node *left = concatenation(p);
    while (!p->err && (is_op(p->at, "+") || is_op(p->at, "-"))) {
        char op = p->at->text[0];
        next(p);
        left = arithmetic(p, left, op, concatenation(p));
    }
    return left;
}

static int comparison_op(struct parser *p)
{
    static const char *const ops[] = {"==", "!=", "<", "<=", ">", ">="};
    for (int i = 0; i < (int)ARRAY_LEN(ops); i++) {
        if (skip_op(p, ops[i]))
            return i;
    }
    if (skip_name(p, "in"))
        return CMP_IN;
    if (is_name(p->at, "not") && is_name(p->at + 1, "in")) {
        next(p);
        next(p);
        return CMP_NOT_IN;
    }
    return -1;
}

static struct node *comparison(struct parser *p)
{
    struct node *left = sum(p), *first = NULL, **tail = &first;
    for (int op; !p->err && (op = comparison_op(p)) >= 0;) {
        struct node *operand = make_binary(p, NODE_OPERAND, NULL, NULL);
        struct node *right = sum(p);
        if (!operand)
            return NULL;
        operand->op = (char)op;
        operand->a = right;
        append(&tail, operand);
    }
    return first ? make_binary(p, NODE_COMPARE, left, first) : left;
}

static struct node *negation(struct parser *p)
{
    if (!enter(p))
        return NULL;
    struct node *node =
        skip_name(p, "not") ? make_binary(p, NODE_NOT, negation(p), NULL) : comparison(p);
    p->depth--;
    return node;
}

static struct node *conjunction(struct parser *p)
{
    struct node *left = negation(p);
    while (!p->err && skip_name(p, "and"))
        left = make_binary(p, NODE_AND, left, negation(p));
    return left;
}

static struct node *disjunction(struct parser *p)
{
    struct node *left = conjunction(p);
    while (!p->err && skip_name(p, "or"))
        left = make_binary(p, NODE_OR, left, conjunction(p));
    return left;
}

static struct node *expression(struct parser *p)
{
    if (!enter(p))
        return NULL;
    struct node *value = disjunction(p);
    while (!p->err && skip_name(p, "if")) {
        struct node *choice = make_binary(p, NODE_CHOICE, value, disjunction(p));
        struct node *other = skip_name(p, "else") ? expression(p) : NULL;
        if (choice)
            choice->c = other;
        value = choice;
    }
    p->depth--;
    return value;
}

static void end_of_tag(struct parser *p)
{
    if (p->err)
        return;
    if (p->at->type != TOKEN_BLOCK_END)
        unexpected(p, "the end of the tag");
    next(p);
}

/* Statements up to a tag that begins with one of `ends` (names with spaces between); that name is
 * taken, and its index in the list stored. */
static struct node *statements(struct parser *p, const char *ends, int *which);

static struct node *body_until(struct parser *p, const char *end)
{
    int which;
    end_of_tag(p);
    struct node *body = statements(p, end, &which);
    end_of_tag(p);
    return body;
}

static struct node *if_statement(struct parser *p)
{
    struct node *node = make(p, NODE_IF);
    if (!node || !enter(p))
        return NULL;
    int which = 2;
    node->a = tuple(p, TUPLE_NO_IF);
    end_of_tag(p);
    node->b = statements(p, "elif else endif", &which);
    if (!p->err && which == 0)
        node->c = if_statement(p);
    else if (!p->err && which == 1)
        node->c = body_until(p, "endif");
    else
        end_of_tag(p);
    p->depth--;
    return node;
}

/* Checks that a tree can be assigned to. */
static struct node *target(struct parser *p, struct node *node)
{
    if (p->err || !node)
        return NULL;
    if (node->type == NODE_TUPLE || node->type == NODE_LIST) {
        for (struct node *item = node->a; item; item = item->next)
            target(p, item);
    } else if (node->type != NODE_NAME && node->type != NODE_NAMESPACE) {
        return fail(p, -EINVAL, "an assignment to something that is no name");
    }
    return p->err ? NULL : node;
}

static struct node *for_statement(struct parser *p)
{
    struct node *node = make(p, NODE_FOR);
    int which = 1;
    if (!node)
        return NULL;
    node->a = target(p, tuple(p, TUPLE_TARGET));
    if (!p->err && !skip_name(p, "in"))
        return unexpected(p, "in");
    node->b = tuple(p, TUPLE_NO_IF);
    if (skip_name(p, "if"))
        node->c = expression(p);
    if (is_name(p->at, "recursive"))
        return fail(p, -EOPNOTSUPP, "a recursive for loop");
    end_of_tag(p);
    p->loops++;
    node->body = statements(p, "else endfor", &which);
    p->loops--;
    if (!p->err && which == 0)
        node->other = body_until(p, "endfor");
    else
        end_of_tag(p);
    return node;
}

static struct node *captured(struct parser *p)
{
    struct node *node = make(p, NODE_CAPTURED);
    while (!p->err && skip_op(p, "|"))
        node = filter(p, node);
    return node;
}

/* The body of a macro and its like: a loop around it does not go on inside. */
static struct node *closed_body(struct parser *p, const char *end)
{
    uint32_t loops = p->loops;
    p->loops = 0;
    struct node *body = body_until(p, end);
    p->loops = loops;
    return body;
}

static struct node *set_target(struct parser *p)
{
    if (p->at->type != TOKEN_NAME || !is_op(p->at + 1, "."))
        return target(p, tuple(p, TUPLE_TARGET));
    struct node *node = make(p, NODE_NAMESPACE);
    take_name(p, node);
    next(p);
    struct node member = {0};
    take_name(p, &member);
    if (node)
        node->value = tval_text(member.name, member.name_bytes);
    return node;
}

static struct node *set_statement(struct parser *p)
{
    struct node *node = make(p, NODE_SET);
    struct node *to = set_target(p);
    if (!node || p->err)
        return NULL;
    node->a = to;
    if (skip_op(p, "=")) {
        node->b = tuple(p, 0);
        end_of_tag(p);
    } else {
        node->type = NODE_SET_BLOCK;
        node->b = captured(p);
        node->body = closed_body(p, "endset");
    }
    return node;
}

static struct node *parameters(struct parser *p)
{
    struct node *first = NULL, **tail = &first;
    expect_op(p, "(");
    while (!p->err && !is_op(p->at, ")")) {
        struct node *parameter = make(p, NODE_PARAMETER);
        take_name(p, parameter);
        if (parameter && skip_op(p, "="))
            parameter->a = expression(p);
        append(&tail, parameter);
        if (!skip_op(p, ","))
            break;
    }
    expect_op(p, ")");
    return first;
}

static struct node *macro_statement(struct parser *p)
{
    struct node *node = make(p, NODE_MACRO);
    take_name(p, node);
    if (!node || p->err)
        return NULL;
    node->a = parameters(p);
    node->body = closed_body(p, "endmacro");
    return node;
}

static struct node *call_statement(struct parser *p)
{
    struct node *node = make(p, NODE_CALL_BLOCK);
    if (!node)
        return NULL;
    if (is_op(p->at, "("))
        node->b = parameters(p);
    node->a = expression(p);
    if (!p->err && node->a->type != NODE_CALL)
        return unexpected(p, "a call");
    node->body = closed_body(p, "endcall");
    return node;
}

static struct node *filter_statement(struct parser *p)
{
    struct node *node = make(p, NODE_FILTER_BLOCK);
    if (!node)
        return NULL;
    node->b = filter(p, make(p, NODE_CAPTURED));
    while (!p->err && skip_op(p, "|"))
        node->b = filter(p, node->b);
    node->body = closed_body(p, "endfilter");
    return node;
}

static struct node *with_statement(struct parser *p)
{
    struct node *node = make(p, NODE_SCOPE);
    if (!node)
        return NULL;
    struct node **tail = &node->a;
    while (!p->err && p->at->type != TOKEN_BLOCK_END) {
        struct node *set = make(p, NODE_SET);
        struct node *to = target(p, primary(p));
        expect_op(p, "=");
        if (!set || p->err)
            return NULL;
        set->a = to;
        set->b = expression(p);
        append(&tail, set);
        if (!skip_op(p, ","))
            break;
    }
    node->body = body_until(p, "endwith");
    return node;
}

static struct node *generation_statement(struct parser *p)
{
    struct node *node = make(p, NODE_SCOPE);
    struct node *body = closed_body(p, "endgeneration");
    if (node)
        node->body = body;
    return node;
}

static struct node *jump_statement(struct parser *p, enum node_type type)
{
    if (!p->loops)
        return fail(p, -EINVAL, "break or continue outside of a loop");
    struct node *node = make(p, type);
    end_of_tag(p);
    return node;
}

static struct node *statement(struct parser *p)
{
    static const struct {
        const char *name;
        struct node *(*parse)(struct parser *p);
    } table[] = {
        {"if", if_statement},     {"for", for_statement},
        {"set", set_statement},   {"macro", macro_statement},
        {"call", call_statement}, {"filter", filter_statement},
        {"with", with_statement}, {"generation", generation_statement},
    };
    static const char *const refused[] = {"block", "extends", "include",    "import", "from",
                                          "do",    "print",   "autoescape", "trans",  "debug"};
    char text[LLM_WHY_CHARS];
    if (skip_name(p, "break"))
        return jump_statement(p, NODE_BREAK);
    if (skip_name(p, "continue"))
        return jump_statement(p, NODE_CONTINUE);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (skip_name(p, table[i].name))
            return table[i].parse(p);
    }
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        if (is_name(p->at, refused[i])) {
            snprintf(text, sizeof text, "the tag '%s' is not supported", refused[i]);
            return fail(p, -EOPNOTSUPP, text);
        }
    }
    return unexpected(p, "the name of a tag");
}

/* The index of the name at hand in a list of names with spaces between; -1. */
static int index_in(const struct token *token, const char *names)
{
    int index = 0;
    if (token->type != TOKEN_NAME)
        return -1;
    for (const char *at = names; at && *at; index++) {
        size_t n = strcspn(at, " ");
        if (n == token->bytes && memcmp(at, token->text, n) == 0)
            return index;
        at += n + (at[n] == ' ');
    }
    return -1;
}

static struct node *output(struct parser *p)
{
    struct node *node = make(p, NODE_OUTPUT);
    next(p);
    struct node *value = tuple(p, 0);
    if (!p->err && p->at->type != TOKEN_OUTPUT_END)
        return unexpected(p, "}}");
    next(p);
    if (node)
        node->a = value;
    return node;
}

static struct node *statements(struct parser *p, const char *ends, int *which)
{
    struct node *first = NULL, **tail = &first;
    if (!enter(p))
        return NULL;
    while (!p->err) {
        if (p->at->type == TOKEN_TEXT) {
            struct node *text = make(p, NODE_TEXT);
            if (text)
                text->value = tval_text(p->at->text, p->at->bytes);
            append(&tail, text);
            next(p);
        } else if (p->at->type == TOKEN_OUTPUT_BEGIN) {
            append(&tail, output(p));
        } else if (p->at->type == TOKEN_BLOCK_BEGIN) {
            next(p);
            *which = index_in(p->at, ends);
            if (*which >= 0) {
                next(p);
                break;
            }
            append(&tail, statement(p));
        } else {
            if (*ends)
                unexpected(p, ends);
            break;
        }
    }
    p->depth--;
    return first;
}

int llm_template_tree(struct llm_template *t, const char *text, size_t bytes, char *why)
{
    struct parser p = {.arena = &t->arena, .why = why};
    int which;
    int err = llm_template_tokens(&t->arena, text, bytes, &p.at, why);
    if (err)
        return err;
    t->body = statements(&p, "", &which);
    return p.err;
}
