/* Walks the tree of a template. */
#include "llm/chat/jinja/node.h"
#include "llm/chat/template.h"

#include <errno.h>
#include <string.h>
#include <time.h>

enum { RANGE_MAX = 100000 }; /* as jinja2's sandbox */

struct variable {
    struct variable *next;
    const char *name;
    uint32_t bytes;
    struct tval value;
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct frame {
    struct llm_run *run;
    struct scope *scope;
    struct tval captured; /* the text of a block for its filters */
    uint32_t loops;
};

enum function { FUNCTION_RANGE, FUNCTION_NAMESPACE, FUNCTION_DICT, FUNCTION_RAISE, FUNCTION_TIME };

static struct tval eval(struct frame *f, const struct node *node);
static enum flow execute(struct frame *f, const struct node *node);

static struct variable *find_variable(struct scope *scope, const char *name, size_t bytes)
{
    for (struct variable *v = scope->variables; v; v = v->next) {
        if (v->bytes == bytes && memcmp(v->name, name, bytes) == 0)
            return v;
    }
    return NULL;
}

static void assign(struct llm_run *run, struct scope *scope, const char *name, size_t bytes,
                   struct tval value)
{
    struct variable *v = find_variable(scope, name, bytes);
    if (!v) {
        v = llm_run_alloc(run, sizeof *v);
        if (!v)
            return;
        *v = (struct variable){.next = scope->variables, .name = name, .bytes = (uint32_t)bytes};
        scope->variables = v;
    }
    v->value = value;
}

static struct tval builtin(struct llm_run *run, const struct node *node)
{
    static const char *const names[] = {"range", "namespace", "dict", "raise_exception",
                                        "strftime_now"};
    static const char *const refused[] = {"cycler", "joiner", "lipsum"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        bool is = strlen(names[i]) == node->name_bytes &&
                  memcmp(names[i], node->name, node->name_bytes) == 0;
        if (is && (i != FUNCTION_TIME || run->has_time))
            return (struct tval){.kind = TVAL_FUNCTION, .sub = (uint8_t)i};
    }
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        if (strlen(refused[i]) == node->name_bytes &&
            memcmp(refused[i], node->name, node->name_bytes) == 0)
            return llm_run_fail(run, -EOPNOTSUPP, "the function '%s' is not supported", refused[i]);
    }
    return (struct tval){.kind = TVAL_UNDEFINED, .text = node->name, .bytes = node->name_bytes};
}

static struct tval lookup(struct frame *f, const struct node *node)
{
    for (struct scope *scope = f->scope; scope; scope = scope->parent) {
        struct variable *v = find_variable(scope, node->name, node->name_bytes);
        if (v)
            return v->value;
    }
    return builtin(f->run, node);
}

static struct scope *new_scope(struct llm_run *run, struct scope *parent)
{
    struct scope *scope = llm_run_alloc(run, sizeof *scope);
    if (scope)
        scope->parent = parent;
    return scope;
}

static void bind(struct frame *f, const struct node *target, struct tval value)
{
    struct llm_run *run = f->run;
    if (run->err)
        return;
    if (target->type == NODE_NAME) {
        assign(run, f->scope, target->name, target->name_bytes, value);
    } else if (target->type == NODE_NAMESPACE) {
        struct tval to = lookup(f, target);
        if (to.kind != TVAL_NAMESPACE) {
            llm_run_fail(run, -EINVAL, "cannot assign attribute on non-namespace object");
            return;
        }
        llm_tval_set(run, to, target->value, value);
    } else {
        struct tval_list *items = llm_tval_iterate(run, value);
        uint32_t at = 0;
        const struct node *name = target->a;
        for (; name && at < items->count; name = name->next)
            bind(f, name, items->items[at++]);
        if (!run->err && (name || at < items->count))
            llm_run_fail(run, -EINVAL, "wrong number of values to unpack");
    }
}

static void eval_args(struct frame *f, const struct node *node, struct targs *args)
{
    args->positional = llm_tval_list(f->run, TVAL_SEQ_LIST);
    args->named = llm_tval_dict(f->run, TVAL_DICT);
    for (; node && !f->run->err; node = node->next) {
        if (node->type == NODE_KEYWORD)
            llm_tval_set(f->run, args->named, tval_text(node->name, node->name_bytes),
                         eval(f, node->a));
        else
            llm_tval_push(f->run, args->positional, eval(f, node));
    }
}

bool llm_targs_bind(struct llm_run *run, const struct targs *args, const char *what,
                    const char *spec, struct tval *places)
{
    uint32_t count = 0, named = 0;
    if (run->err)
        return false;
    for (const char *at = spec; *at; count++) {
        size_t n = strcspn(at, " ");
        struct tval *given = llm_tval_get(run, args->named, tval_text(at, n));
        named += given != NULL;
        places[count] = count < args->positional.list->count ? args->positional.list->items[count]
                        : given                              ? *given
                                                             : tval_undefined();
        if (given && count < args->positional.list->count)
            llm_run_fail(run, -EINVAL, "%s got multiple values for argument '%.*s'", what, (int)n,
                         at);
        at += n + (at[n] == ' ');
    }
    if (args->positional.list->count > count)
        llm_run_fail(run, -EINVAL, "%s takes %u arguments, %u were given", what, count,
                     args->positional.list->count);
    if (named < args->named.dict->count)
        llm_run_fail(run, -EINVAL, "%s got an unexpected keyword argument", what);
    return !run->err;
}

static struct tval make_range(struct llm_run *run, const struct targs *args)
{
    struct tval places[3];
    if (!llm_targs_bind(run, args, "range()", "start stop step", places))
        return tval_undefined();
    for (uint32_t i = 0; i < args->positional.list->count; i++) {
        if (!tval_is_whole(places[i]))
            return llm_run_fail(run, -EINVAL, "'%s' object cannot be interpreted as an integer",
                                llm_tval_type(places[i]));
    }
    if (args->positional.list->count == 0)
        return llm_run_fail(run, -EINVAL, "range expected at least 1 argument, got 0");
    bool one = args->positional.list->count == 1;
    int64_t from = one ? 0 : tval_whole(places[0]), to = tval_whole(places[one ? 0 : 1]);
    int64_t by = args->positional.list->count == 3 ? tval_whole(places[2]) : 1;
    if (by == 0)
        return llm_run_fail(run, -EINVAL, "range() arg 3 must not be zero");
    struct tval list = llm_tval_list(run, TVAL_SEQ_RANGE);
    for (int64_t i = from; (by > 0 ? i < to : i > to) && !run->err;) {
        if (list.list->count == RANGE_MAX)
            return llm_run_fail(run, -E2BIG, "range of more than %d numbers", RANGE_MAX);
        llm_tval_push(run, list, tval_int(i));
        if (__builtin_add_overflow(i, by, &i))
            break;
    }
    return list;
}

/* namespace() and dict(): a mapping or pairs first, then names. */
static struct tval make_dict(struct llm_run *run, const struct targs *args, enum tval_kind kind)
{
    struct tval dict = llm_tval_dict(run, kind);
    for (uint32_t i = 0; i < args->positional.list->count && !run->err; i++) {
        struct tval from = args->positional.list->items[i];
        if (from.kind != TVAL_DICT || i > 0)
            return llm_run_fail(run, -EOPNOTSUPP, "%s() of something else than one mapping",
                                kind == TVAL_DICT ? "dict" : "namespace");
        for (uint32_t k = 0; k < from.dict->count && !run->err; k++)
            llm_tval_set(run, dict, from.dict->pairs[k].key, from.dict->pairs[k].value);
    }
    for (uint32_t k = 0; !run->err && k < args->named.dict->count; k++)
        llm_tval_set(run, dict, args->named.dict->pairs[k].key, args->named.dict->pairs[k].value);
    return dict;
}

static struct tval format_time(struct llm_run *run, const struct targs *args)
{
    struct tval format;
    if (!llm_targs_bind(run, args, "strftime_now()", "format", &format))
        return tval_undefined();
    if (format.kind != TVAL_STRING || format.bytes > 256)
        return llm_run_fail(run, -EINVAL, "strftime_now() takes a short format");
    char copy[260], text[1024];
    memcpy(copy, format.text, format.bytes);
    memcpy(copy + format.bytes, "|", 2); /* so that an empty result is told from a failure */
    time_t now = (time_t)run->time_now;
    struct tm tm;
    size_t n = gmtime_r(&now, &tm) ? strftime(text, sizeof text, copy, &tm) : 0;
    if (n == 0)
        return llm_run_fail(run, -EINVAL, "strftime_now() cannot show the time so");
    struct tbuf buf = {0};
    llm_tbuf_put(run, &buf, text, n - 1);
    return llm_tbuf_string(&buf);
}

static struct tval call_function(struct llm_run *run, enum function which, const struct targs *args)
{
    struct tval message;
    switch (which) {
    case FUNCTION_RANGE:
        return make_range(run, args);
    case FUNCTION_NAMESPACE:
        return make_dict(run, args, TVAL_NAMESPACE);
    case FUNCTION_DICT:
        return make_dict(run, args, TVAL_DICT);
    case FUNCTION_TIME:
        return format_time(run, args);
    case FUNCTION_RAISE:
        break;
    }
    if (!llm_targs_bind(run, args, "raise_exception()", "message", &message))
        return tval_undefined();
    message = llm_tval_to_string(run, message);
    return llm_run_fail(run, -EINVAL, "%.*s", (int)message.bytes, message.text);
}

/* Runs statements with their output in a text of its own. */
static struct tval capture(struct frame *f, const struct node *body)
{
    struct tbuf text = {0}, *outer = f->run->out;
    f->run->out = &text;
    execute(f, body);
    f->run->out = outer;
    return llm_tbuf_string(&text);
}

static struct tval call_macro(struct llm_run *run, const struct tval_macro *macro,
                              const struct targs *args)
{
    const struct node *node = macro->node;
    struct frame inner = {.run = run, .scope = new_scope(run, macro->scope)};
    uint32_t place = 0, named = 0;
    struct tval text = tval_undefined();
    uint32_t line = run->line;
    if (!llm_run_enter(run))
        return text;
    bool block = node->type == NODE_CALL_BLOCK;
    for (const struct node *p = block ? node->b : node->a; p && !run->err; p = p->next, place++) {
        struct tval value =
            (struct tval){.kind = TVAL_UNDEFINED, .text = p->name, .bytes = p->name_bytes};
        struct tval *given = llm_tval_get(run, args->named, tval_text(p->name, p->name_bytes));
        named += given != NULL;
        if (place < args->positional.list->count)
            value = args->positional.list->items[place];
        else if (given)
            value = *given;
        else if (p->a)
            value = eval(&inner, p->a);
        assign(run, inner.scope, p->name, p->name_bytes, value);
    }
    struct tval *caller = block ? NULL : llm_tval_get(run, args->named, llm_tval_c("caller"));
    if (caller && named < args->named.dict->count) {
        assign(run, inner.scope, "caller", 6, *caller);
        named++;
    }
    if (!run->err && (place < args->positional.list->count || named < args->named.dict->count))
        llm_run_fail(run, -EINVAL, "macro '%.*s' got an argument that it does not take",
                     (int)node->name_bytes, node->name ? node->name : "");
    if (!run->err)
        text = capture(&inner, node->body);
    run->line = line;
    llm_run_leave(run);
    return text;
}

static struct tval call_value(struct llm_run *run, struct tval callee, const struct targs *args)
{
    if (!llm_run_step(run, 0))
        return tval_undefined();
    switch (callee.kind) {
    case TVAL_MACRO:
        return call_macro(run, callee.macro, args);
    case TVAL_FUNCTION:
        return call_function(run, callee.sub, args);
    case TVAL_METHOD:
        return llm_method_call(run, callee.method, args);
    case TVAL_UNDEFINED:
        return llm_run_fail(run, -EINVAL, "'%.*s' is undefined", (int)callee.bytes,
                            callee.text ? callee.text : "");
    default:
        return llm_run_fail(run, -EINVAL, "'%s' object is not callable", llm_tval_type(callee));
    }
}

static struct tval eval_call(struct frame *f, const struct node *node)
{
    struct targs args;
    struct tval callee = eval(f, node->a);
    eval_args(f, node->b, &args);
    return call_value(f->run, callee, &args);
}

static struct tval eval_items(struct frame *f, const struct node *node)
{
    struct tval list =
        llm_tval_list(f->run, node->type == NODE_LIST ? TVAL_SEQ_LIST : TVAL_SEQ_TUPLE);
    for (const struct node *item = node->a; item && !f->run->err; item = item->next)
        llm_tval_push(f->run, list, eval(f, item));
    return list;
}

static struct tval eval_dict(struct frame *f, const struct node *node)
{
    struct tval dict = llm_tval_dict(f->run, TVAL_DICT);
    for (const struct node *key = node->a; key && !f->run->err; key = key->next->next) {
        struct tval name = eval(f, key);
        llm_tval_set(f->run, dict, name, eval(f, key->next));
    }
    return dict;
}

static bool compare(struct llm_run *run, enum compare_op op, struct tval a, struct tval b)
{
    switch (op) {
    case CMP_EQ:
        return llm_tval_equal(run, a, b);
    case CMP_NE:
        return !llm_tval_equal(run, a, b);
    case CMP_IN:
        return llm_tval_contains(run, b, a);
    case CMP_NOT_IN:
        return !llm_tval_contains(run, b, a);
    default:
        break;
    }
    int order = llm_tval_order(run, a, b);
    /* NaN is neither less nor more nor equal. */
    if (tval_is_number(a) && tval_is_number(b) && order == 0 && !llm_tval_equal(run, a, b))
        return false;
    return op == CMP_LT   ? order < 0
           : op == CMP_LE ? order <= 0
           : op == CMP_GT ? order > 0
                          : order >= 0;
}

static struct tval eval_compare(struct frame *f, const struct node *node)
{
    struct tval left = eval(f, node->a);
    for (const struct node *operand = node->b; operand; operand = operand->next) {
        struct tval right = eval(f, operand->a);
        if (f->run->err || !compare(f->run, (enum compare_op)operand->op, left, right))
            return tval_bool(false);
        left = right;
    }
    return tval_bool(true);
}

static struct tval eval_concat(struct frame *f, const struct node *node)
{
    struct tbuf buf = {0};
    struct tval a = eval(f, node->a), b = eval(f, node->b);
    llm_tval_str(f->run, &buf, a);
    llm_tval_str(f->run, &buf, b);
    return llm_tbuf_string(&buf);
}

static struct tval eval_item(struct frame *f, const struct node *node)
{
    struct tval of = eval(f, node->a);
    if (node->b->type != NODE_SLICE)
        return llm_tval_item(f->run, of, eval(f, node->b));
    struct tval from = eval(f, node->b->a), to = eval(f, node->b->b), by = eval(f, node->b->c);
    return f->run->err ? tval_undefined() : llm_tval_slice(f->run, of, from, to, by);
}

static struct tval eval_filter(struct frame *f, const struct node *node)
{
    struct targs args;
    struct tval value = eval(f, node->a);
    eval_args(f, node->b, &args);
    if (f->run->err)
        return tval_undefined();
    return llm_filter_apply(f->run, node->name, node->name_bytes, value, &args);
}

static struct tval eval_test(struct frame *f, const struct node *node)
{
    struct targs args;
    struct tval value = eval(f, node->a);
    eval_args(f, node->b, &args);
    if (f->run->err)
        return tval_undefined();
    return tval_bool(llm_test_apply(f->run, node->name, node->name_bytes, value, &args));
}

static struct tval eval_choice(struct frame *f, const struct node *node)
{
    if (llm_tval_truth(eval(f, node->b)))
        return eval(f, node->a);
    return node->c ? eval(f, node->c) : tval_undefined();
}

static struct tval eval_node(struct frame *f, const struct node *node)
{
    struct tval a;
    switch (node->type) {
    case NODE_CONST:
        return node->value;
    case NODE_NAME:
        return lookup(f, node);
    case NODE_CAPTURED:
        return f->captured;
    case NODE_LIST:
    case NODE_TUPLE:
        return eval_items(f, node);
    case NODE_DICT:
        return eval_dict(f, node);
    case NODE_ATTRIBUTE:
        return llm_tval_attribute(f->run, eval(f, node->a), node->name, node->name_bytes);
    case NODE_ITEM:
        return eval_item(f, node);
    case NODE_CALL:
        return eval_call(f, node);
    case NODE_FILTER:
        return eval_filter(f, node);
    case NODE_TEST:
        return eval_test(f, node);
    case NODE_BINARY:
        a = eval(f, node->a);
        return llm_tval_binary(f->run, node->op, a, eval(f, node->b));
    case NODE_CONCAT:
        return eval_concat(f, node);
    case NODE_COMPARE:
        return eval_compare(f, node);
    case NODE_AND:
        a = eval(f, node->a);
        return llm_tval_truth(a) ? eval(f, node->b) : a;
    case NODE_OR:
        a = eval(f, node->a);
        return llm_tval_truth(a) ? a : eval(f, node->b);
    case NODE_NOT:
        return tval_bool(!llm_tval_truth(eval(f, node->a)));
    case NODE_NEGATE:
        return llm_tval_negate(f->run, eval(f, node->a));
    case NODE_PLUS:
        a = eval(f, node->a);
        return tval_is_number(a) ? llm_tval_binary(f->run, '+', tval_int(0), a)
                                 : llm_tval_negate(f->run, a);
    case NODE_CHOICE:
        return eval_choice(f, node);
    default:
        return llm_run_fail(f->run, -EINVAL, "an expression that has no value");
    }
}

static struct tval eval(struct frame *f, const struct node *node)
{
    struct tval v = tval_undefined();
    if (!llm_run_step(f->run, 0) || !llm_run_enter(f->run))
        return v;
    v = eval_node(f, node);
    llm_run_leave(f->run);
    return f->run->err ? tval_undefined() : v;
}

/* The items of a for loop that its condition lets through. */
static struct tval_list *loop_items(struct frame *f, const struct node *node)
{
    struct llm_run *run = f->run;
    struct tval_list *all = llm_tval_iterate(run, eval(f, node->b));
    struct tval passed = llm_tval_list(run, TVAL_SEQ_LIST);
    for (uint32_t i = 0; i < all->count && !run->err; i++) {
        struct tval item = all->items[i];
        if (node->c) {
            struct frame inner = *f;
            inner.scope = new_scope(run, f->scope);
            if (!inner.scope)
                break;
            bind(&inner, node->a, item);
            if (!llm_tval_truth(eval(&inner, node->c)))
                continue;
        }
        llm_tval_push(run, passed, item);
    }
    return run->err ? NULL : passed.list;
}

static void execute_for(struct frame *f, const struct node *node)
{
    struct llm_run *run = f->run;
    struct tval_list *items = loop_items(f, node);
    struct tval_loop *loop = llm_run_alloc(run, sizeof *loop);
    if (!loop)
        return;
    *loop = (struct tval_loop){.items = items, .depth = f->loops};
    enum flow flow = FLOW_ON;
    for (uint32_t i = 0; i < items->count && flow != FLOW_BREAK && llm_run_step(run, 0); i++) {
        struct frame inner = *f;
        inner.loops++;
        inner.scope = new_scope(run, f->scope);
        if (!inner.scope)
            return;
        loop->index = i;
        assign(run, inner.scope, "loop", 4, (struct tval){.kind = TVAL_LOOP, .loop = loop});
        bind(&inner, node->a, items->items[i]);
        flow = execute(&inner, node->body);
    }
    if (!run->err && items->count == 0 && node->other) {
        struct frame inner = *f;
        inner.scope = new_scope(run, f->scope);
        if (inner.scope)
            execute(&inner, node->other);
    }
}

static void define_macro(struct frame *f, const struct node *node)
{
    struct tval_macro *macro = llm_run_alloc(f->run, sizeof *macro);
    if (!macro)
        return;
    *macro = (struct tval_macro){.node = node, .scope = f->scope};
    assign(f->run, f->scope, node->name, node->name_bytes,
           (struct tval){.kind = TVAL_MACRO, .macro = macro});
}

/* {% call %}: the macro finds the block as caller(). */
static void execute_call(struct frame *f, const struct node *node)
{
    struct targs args;
    struct tval_macro *block = llm_run_alloc(f->run, sizeof *block);
    struct tval callee = eval(f, node->a->a);
    eval_args(f, node->a->b, &args);
    if (f->run->err)
        return;
    *block = (struct tval_macro){.node = node, .scope = f->scope};
    llm_tval_set(f->run, args.named, llm_tval_c("caller"),
                 (struct tval){.kind = TVAL_MACRO, .macro = block});
    llm_tval_str(f->run, f->run->out, call_value(f->run, callee, &args));
}

static struct tval filtered_block(struct frame *f, const struct node *node)
{
    struct frame inner = *f;
    inner.scope = new_scope(f->run, f->scope);
    if (!inner.scope)
        return tval_undefined();
    inner.captured = capture(&inner, node->body);
    return eval(&inner, node->b);
}

static void execute_scope(struct frame *f, const struct node *node)
{
    struct frame inner = *f;
    inner.scope = new_scope(f->run, f->scope);
    if (!inner.scope)
        return;
    /* Values are those of the scope around. */
    for (const struct node *set = node->a; set && !f->run->err; set = set->next)
        bind(&inner, set->a, eval(f, set->b));
    execute(&inner, node->body);
}

static enum flow execute_one(struct frame *f, const struct node *node)
{
    struct llm_run *run = f->run;
    switch (node->type) {
    case NODE_TEXT:
        llm_tbuf_put(run, run->out, node->value.text, node->value.bytes);
        break;
    case NODE_OUTPUT:
        llm_tval_str(run, run->out, eval(f, node->a));
        break;
    case NODE_IF:
        return execute(f, llm_tval_truth(eval(f, node->a)) ? node->b : node->c);
    case NODE_FOR:
        execute_for(f, node);
        break;
    case NODE_SET:
        bind(f, node->a, eval(f, node->b));
        break;
    case NODE_SET_BLOCK:
        bind(f, node->a, filtered_block(f, node));
        break;
    case NODE_FILTER_BLOCK:
        llm_tval_str(run, run->out, filtered_block(f, node));
        break;
    case NODE_MACRO:
        define_macro(f, node);
        break;
    case NODE_CALL_BLOCK:
        execute_call(f, node);
        break;
    case NODE_SCOPE:
        execute_scope(f, node);
        break;
    case NODE_BREAK:
        return FLOW_BREAK;
    case NODE_CONTINUE:
        return FLOW_CONTINUE;
    default:
        llm_run_fail(run, -EINVAL, "a statement that is none");
        break;
    }
    return FLOW_ON;
}

static enum flow execute(struct frame *f, const struct node *node)
{
    enum flow flow = FLOW_ON;
    if (!llm_run_enter(f->run))
        return flow;
    for (; node && flow == FLOW_ON && llm_run_step(f->run, 0); node = node->next) {
        f->run->line = node->line;
        flow = execute_one(f, node);
    }
    llm_run_leave(f->run);
    return flow;
}

void llm_template_run(struct llm_run *run, const struct llm_template *t, const json_t *variables)
{
    struct scope scope = {0};
    struct frame frame = {.run = run, .scope = &scope};
    struct tval all = llm_tval_from_json(run, variables);
    if (!run->err && all.kind != TVAL_DICT) {
        llm_run_fail(run, -EINVAL, "the variables are no object");
        return;
    }
    for (uint32_t i = 0; !run->err && i < all.dict->count; i++) {
        struct tval_pair *pair = &all.dict->pairs[i];
        if (llm_tval_is(pair->key, "time_now") && tval_is_whole(pair->value)) {
            run->has_time = true;
            run->time_now = tval_whole(pair->value);
            continue;
        }
        assign(run, &scope, pair->key.text, pair->key.bytes, pair->value);
    }
    if (!run->err)
        execute(&frame, t->body);
}
