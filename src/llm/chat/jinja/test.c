/* The tests of Jinja: `value is name(arguments)`. */
#include "llm/chat/jinja/node.h"

#include <errno.h>
#include <string.h>

static bool is_cased(struct llm_run *run, struct tval v, enum llm_text_case how)
{
    struct tval text = llm_tval_to_string(run, v);
    struct tval same = llm_text_case(run, text, how);
    struct tval other =
        llm_text_case(run, text, how == LLM_TEXT_UPPER ? LLM_TEXT_LOWER : LLM_TEXT_UPPER);
    return llm_tval_equal(run, same, text) && !llm_tval_equal(run, other, text);
}

static bool same_object(struct llm_run *run, struct tval a, struct tval b)
{
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case TVAL_UNDEFINED:
    case TVAL_NONE:
        return true;
    case TVAL_BOOL:
        return a.b == b.b;
    case TVAL_INT:
        return a.i == b.i;
    case TVAL_STRING:
        return llm_tval_equal(run, a, b);
    default:
        return a.list == b.list;
    }
}

static bool remainder_is(struct llm_run *run, struct tval v, struct tval by, int64_t wanted)
{
    return llm_tval_equal(run, llm_tval_binary(run, '%', v, by), tval_int(wanted));
}

static bool is_sequence(struct tval v)
{
    return v.kind == TVAL_STRING || v.kind == TVAL_DICT || v.kind == TVAL_UNDEFINED ||
           (v.kind == TVAL_LIST && v.sub <= TVAL_SEQ_RANGE);
}

/* Tests of one value without arguments: 1, 0, or -1 for another name. */
static int plain(struct llm_run *run, struct tval name, struct tval v)
{
    if (llm_tval_is(name, "defined"))
        return v.kind != TVAL_UNDEFINED;
    if (llm_tval_is(name, "undefined"))
        return v.kind == TVAL_UNDEFINED;
    if (llm_tval_is(name, "none"))
        return v.kind == TVAL_NONE;
    if (llm_tval_is(name, "boolean"))
        return v.kind == TVAL_BOOL;
    if (llm_tval_is(name, "true"))
        return v.kind == TVAL_BOOL && v.b;
    if (llm_tval_is(name, "false"))
        return v.kind == TVAL_BOOL && !v.b;
    if (llm_tval_is(name, "integer"))
        return v.kind == TVAL_INT;
    if (llm_tval_is(name, "float"))
        return v.kind == TVAL_FLOAT;
    if (llm_tval_is(name, "number"))
        return tval_is_number(v);
    if (llm_tval_is(name, "string"))
        return v.kind == TVAL_STRING;
    if (llm_tval_is(name, "mapping"))
        return v.kind == TVAL_DICT;
    if (llm_tval_is(name, "iterable"))
        return llm_tval_iterable(v);
    if (llm_tval_is(name, "sequence"))
        return is_sequence(v);
    if (llm_tval_is(name, "callable"))
        return v.kind == TVAL_MACRO || v.kind == TVAL_FUNCTION || v.kind == TVAL_METHOD ||
               v.kind == TVAL_UNDEFINED || v.kind == TVAL_LOOP;
    if (llm_tval_is(name, "escaped"))
        return v.kind == TVAL_STRING && v.sub;
    if (llm_tval_is(name, "upper"))
        return is_cased(run, v, LLM_TEXT_UPPER);
    if (llm_tval_is(name, "lower"))
        return is_cased(run, v, LLM_TEXT_LOWER);
    if (llm_tval_is(name, "odd"))
        return remainder_is(run, v, tval_int(2), 1);
    if (llm_tval_is(name, "even"))
        return remainder_is(run, v, tval_int(2), 0);
    return -1;
}

/* Tests against one argument, as above. */
static int against(struct llm_run *run, struct tval name, struct tval v, struct tval other)
{
    static const char *const orders[] = {
        "lt", "<", "lessthan", "le", "<=", "gt", ">", "greaterthan", "ge", ">="};
    if (llm_tval_is(name, "in"))
        return llm_tval_contains(run, other, v);
    if (llm_tval_is(name, "eq") || llm_tval_is(name, "==") || llm_tval_is(name, "equalto"))
        return llm_tval_equal(run, v, other);
    if (llm_tval_is(name, "ne") || llm_tval_is(name, "!="))
        return !llm_tval_equal(run, v, other);
    if (llm_tval_is(name, "sameas"))
        return same_object(run, v, other);
    if (llm_tval_is(name, "divisibleby"))
        return remainder_is(run, v, other, 0);
    for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
        if (!llm_tval_is(name, orders[i]))
            continue;
        int order = llm_tval_order(run, v, other);
        return i < 3 ? order < 0 : i < 5 ? order <= 0 : i < 8 ? order > 0 : order >= 0;
    }
    return -1;
}

bool llm_test_apply(struct llm_run *run, const char *name, size_t bytes, struct tval v,
                    const struct targs *args)
{
    struct tval_list *given = args->positional.list;
    struct tval called = tval_text(name, bytes);
    int result = -1;
    if (args->named.dict->count || given->count > 1) {
        llm_run_fail(run, -EINVAL, "the test '%.*s' does not take these arguments", (int)bytes,
                     name);
        return false;
    }
    if (given->count == 0)
        result = plain(run, called, v);
    else
        result = against(run, called, v, given->items[0]);
    if (result < 0 && !run->err)
        llm_run_fail(run, -EINVAL, "no test named '%.*s' with %u arguments", (int)bytes, name,
                     given->count);
    return result > 0;
}
