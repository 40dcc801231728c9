/* Operators, items, attributes and slices of values. */
#include "llm/chat/jinja/node.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

static struct tval wrong_types(struct llm_run *run, const char *op, struct tval a, struct tval b)
{
    struct tval u = a.kind == TVAL_UNDEFINED ? a : b;
    if (u.kind == TVAL_UNDEFINED)
        return llm_run_fail(run, -EINVAL, "'%.*s' is undefined", (int)u.bytes,
                            u.text ? u.text : "");
    return llm_run_fail(run, -EINVAL, "unsupported operand type(s) for %s: '%s' and '%s'", op,
                        llm_tval_type(a), llm_tval_type(b));
}

static struct tval too_large(struct llm_run *run)
{
    return llm_run_fail(run, -EOPNOTSUPP, "a whole number of more than 64 bits");
}

static struct tval add_strings(struct llm_run *run, struct tval a, struct tval b)
{
    struct tbuf buf = {0};
    bool markup = a.sub || b.sub;
    if (markup) {
        a = llm_text_escape(run, a);
        b = llm_text_escape(run, b);
    }
    llm_tbuf_put(run, &buf, a.text, a.bytes);
    llm_tbuf_put(run, &buf, b.text, b.bytes);
    struct tval sum = llm_tbuf_string(&buf);
    sum.sub = markup;
    return sum;
}

static struct tval add_lists(struct llm_run *run, struct tval a, struct tval b)
{
    struct tval sum = llm_tval_list(run, a.sub);
    for (uint32_t i = 0; !run->err && i < a.list->count; i++)
        llm_tval_push(run, sum, a.list->items[i]);
    for (uint32_t i = 0; !run->err && i < b.list->count; i++)
        llm_tval_push(run, sum, b.list->items[i]);
    return sum;
}

static struct tval repeat(struct llm_run *run, struct tval v, int64_t times)
{
    struct tbuf buf = {0};
    struct tval list = v.kind == TVAL_LIST ? llm_tval_list(run, v.sub) : tval_undefined();
    for (int64_t n = 0; n < times && llm_run_step(run, 0); n++) {
        if (v.kind == TVAL_STRING)
            llm_tbuf_put(run, &buf, v.text, v.bytes);
        for (uint32_t i = 0; v.kind == TVAL_LIST && !run->err && i < v.list->count; i++)
            llm_tval_push(run, list, v.list->items[i]);
    }
    if (v.kind == TVAL_LIST)
        return list;
    struct tval text = llm_tbuf_string(&buf);
    text.sub = v.sub;
    return text;
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

static double float_modulo(double a, double b)
{
    double r = fmod(a, b);
    if (r != 0 && (r < 0) != (b < 0))
        r += b;
    return r == 0 ? copysign(0, b) : r;
}

static struct tval whole_power(struct llm_run *run, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    if (exponent < 0) {
        if (base == 0)
            return llm_run_fail(run, -EINVAL, "0.0 cannot be raised to a negative power");
        return tval_float(pow((double)base, (double)exponent));
    }
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
            return too_large(run);
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base))
            return too_large(run);
    }
    return tval_int(result);
}

static struct tval whole_binary(struct llm_run *run, char op, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool over = false;
    if ((op == '/' || op == 'f' || op == '%') && b == 0)
        return llm_run_fail(run, -EINVAL, "division by zero");
    switch (op) {
    case '+':
        over = __builtin_add_overflow(a, b, &result);
        break;
    case '-':
        over = __builtin_sub_overflow(a, b, &result);
        break;
    case '*':
        over = __builtin_mul_overflow(a, b, &result);
        break;
    case '/':
        return tval_float((double)a / (double)b);
    case 'f':
        over = a == INT64_MIN && b == -1;
        result = over ? 0 : floor_divide(a, b);
        break;
    case '%':
        /* INT64_MIN % -1 overflows in C. */
        result = b == -1 ? 0 : a - b * floor_divide(a, b);
        break;
    default:
        assert(op == 'p');
        return whole_power(run, a, b);
    }
    return over ? too_large(run) : tval_int(result);
}

static struct tval float_binary(struct llm_run *run, char op, double a, double b)
{
    if ((op == '/' || op == 'f' || op == '%') && b == 0)
        return llm_run_fail(run, -EINVAL, "division by zero");
    switch (op) {
    case '+':
        return tval_float(a + b);
    case '-':
        return tval_float(a - b);
    case '*':
        return tval_float(a * b);
    case '/':
        return tval_float(a / b);
    case 'f': {
        /* As Python: from the remainder, so that // and % agree. */
        double r = float_modulo(a, b), q = (a - r) / b;
        return tval_float(q == 0 ? copysign(0, a / b) : floor(q) + (q - floor(q) > 0.5));
    }
    case '%':
        return tval_float(float_modulo(a, b));
    default:
        assert(op == 'p');
        if (a < 0 && b != floor(b))
            return llm_run_fail(run, -EOPNOTSUPP, "a complex number");
        if (a == 0 && b < 0)
            return llm_run_fail(run, -EINVAL, "0.0 cannot be raised to a negative power");
        double result = pow(a, b);
        if (isinf(result) && !isinf(a) && !isinf(b))
            return llm_run_fail(run, -EINVAL, "Numerical result out of range");
        return tval_float(result);
    }
}

struct tval llm_tval_binary(struct llm_run *run, char op, struct tval a, struct tval b)
{
    char name[3] = {op == 'f' ? '/' : op == 'p' ? '*' : op, op == 'f' ? '/' : op == 'p' ? '*' : 0};
    bool sequences = a.kind == TVAL_LIST && a.sub <= TVAL_SEQ_TUPLE;
    if (!llm_run_step(run, 0))
        return tval_undefined();
    if (tval_is_whole(a) && tval_is_whole(b))
        return whole_binary(run, op, tval_whole(a), tval_whole(b));
    if (tval_is_number(a) && tval_is_number(b))
        return float_binary(run, op, tval_number(a), tval_number(b));
    if (op == '+' && a.kind == TVAL_STRING && b.kind == TVAL_STRING)
        return add_strings(run, a, b);
    if (op == '+' && sequences && b.kind == TVAL_LIST && a.sub == b.sub)
        return add_lists(run, a, b);
    if (op == '%' && a.kind == TVAL_STRING)
        return llm_run_fail(run, -EOPNOTSUPP, "a text %% values is not supported");
    if (op == '*' && (a.kind == TVAL_STRING || sequences) && tval_is_whole(b))
        return repeat(run, a, tval_whole(b));
    if (op == '*' && tval_is_whole(a) &&
        (b.kind == TVAL_STRING || (b.kind == TVAL_LIST && b.sub <= TVAL_SEQ_TUPLE)))
        return repeat(run, b, tval_whole(a));
    return wrong_types(run, name, a, b);
}

struct tval llm_tval_negate(struct llm_run *run, struct tval v)
{
    if (v.kind == TVAL_FLOAT)
        return tval_float(-v.f);
    if (!tval_is_whole(v))
        return wrong_types(run, "unary -", v, v);
    return tval_whole(v) == INT64_MIN ? too_large(run) : tval_int(-tval_whole(v));
}

static struct tval missing(struct llm_run *run, struct tval of, const char *name, size_t bytes)
{
    (void)run;
    if (of.kind == TVAL_UNDEFINED)
        return llm_run_fail(run, -EINVAL, "'%.*s' is undefined", (int)of.bytes,
                            of.text ? of.text : "");
    return (struct tval){.kind = TVAL_UNDEFINED, .text = name, .bytes = (uint32_t)bytes};
}

/* loop.index and its like; true if the name is one. */
static bool loop_attribute(struct tval_loop *loop, const char *name, size_t bytes, struct tval *out)
{
    uint32_t count = loop->items->count, at = loop->index;
    const struct {
        const char *name;
        struct tval value;
    } table[] = {
        {"index", tval_int((int64_t)at + 1)},
        {"index0", tval_int(at)},
        {"revindex", tval_int((int64_t)count - at)},
        {"revindex0", tval_int((int64_t)count - at - 1)},
        {"first", tval_bool(at == 0)},
        {"last", tval_bool(at + 1 == count)},
        {"length", tval_int(count)},
        {"depth", tval_int((int64_t)loop->depth + 1)},
        {"depth0", tval_int(loop->depth)},
        {"previtem", at > 0 ? loop->items->items[at - 1] : tval_undefined()},
        {"nextitem", at + 1 < count ? loop->items->items[at + 1] : tval_undefined()},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (strlen(table[i].name) == bytes && memcmp(table[i].name, name, bytes) == 0) {
            *out = table[i].value;
            return true;
        }
    }
    return false;
}

/* An attribute in Python's sense: a method, a member of a namespace, a field of loop. */
static bool find_attribute(struct llm_run *run, struct tval v, const char *name, size_t bytes,
                           struct tval *out)
{
    if (v.kind == TVAL_NAMESPACE) {
        struct tval *member = llm_tval_get(run, v, tval_text(name, bytes));
        if (member)
            *out = *member;
        return member != NULL;
    }
    if (v.kind == TVAL_LOOP && loop_attribute(v.loop, name, bytes, out))
        return true;
    const char *found = llm_method_find(v, name, bytes);
    if (!found)
        return false;
    struct tval_method *method = llm_run_alloc(run, sizeof *method);
    if (method)
        *method = (struct tval_method){.self = v, .name = found};
    *out = method ? (struct tval){.kind = TVAL_METHOD, .method = method} : tval_undefined();
    return true;
}

/* An item by index or key; false where Python raises. */
static bool find_item(struct llm_run *run, struct tval v, struct tval key, struct tval *out)
{
    if (v.kind == TVAL_DICT) {
        struct tval *value = llm_tval_get(run, v, key);
        if (value)
            *out = *value;
        return value != NULL;
    }
    bool indexed = v.kind == TVAL_STRING || (v.kind == TVAL_LIST && v.sub <= TVAL_SEQ_RANGE);
    if (!indexed || !tval_is_whole(key))
        return false;
    int64_t at = tval_whole(key), count = llm_tval_length(run, v);
    if (at < 0)
        at += count;
    if (at < 0 || at >= count)
        return false;
    if (v.kind == TVAL_LIST) {
        *out = v.list->items[at];
        return true;
    }
    size_t from = llm_text_offset(v.text, v.bytes, (uint64_t)at);
    size_t n = llm_text_offset(v.text + from, v.bytes - from, 1);
    llm_run_step(run, v.bytes / 16);
    *out = tval_text(v.text + from, n);
    return true;
}

struct tval llm_tval_attribute(struct llm_run *run, struct tval v, const char *name, size_t bytes)
{
    struct tval out = tval_undefined();
    if (run->err)
        return out;
    if (find_attribute(run, v, name, bytes, &out) ||
        find_item(run, v, tval_text(name, bytes), &out))
        return out;
    return run->err ? tval_undefined() : missing(run, v, name, bytes);
}

struct tval llm_tval_item(struct llm_run *run, struct tval v, struct tval key)
{
    struct tval out = tval_undefined();
    if (run->err)
        return out;
    if (find_item(run, v, key, &out))
        return out;
    if (!run->err && key.kind == TVAL_STRING && find_attribute(run, v, key.text, key.bytes, &out))
        return out;
    bool named = key.kind == TVAL_STRING;
    return run->err ? tval_undefined()
                    : missing(run, v, named ? key.text : "item", named ? key.bytes : 4);
}

/* One end of a slice as Python clamps it. */
static int64_t slice_end(struct tval v, int64_t absent, int64_t count, bool backwards)
{
    if (!tval_is_whole(v))
        return absent;
    int64_t at = tval_whole(v);
    if (at < 0)
        at = at < -count ? (backwards ? -1 : 0) : at + count;
    else if (at >= count)
        at = backwards ? count - 1 : count;
    return at;
}

struct tval llm_tval_slice(struct llm_run *run, struct tval v, struct tval from, struct tval to,
                           struct tval step)
{
    bool sequence = v.kind == TVAL_LIST && v.sub <= TVAL_SEQ_RANGE;
    const struct tval *ends[] = {&from, &to, &step};
    if (v.kind == TVAL_UNDEFINED)
        return missing(run, v, "", 0);
    if (v.kind != TVAL_STRING && !sequence)
        return llm_run_fail(run, -EINVAL, "'%s' object has no slices", llm_tval_type(v));
    for (int i = 0; i < 3; i++) {
        if (!tval_is_whole(*ends[i]) && ends[i]->kind != TVAL_NONE)
            return llm_run_fail(run, -EINVAL, "slice indices must be integers or None");
    }
    int64_t by = tval_is_whole(step) ? tval_whole(step) : 1;
    int64_t count = llm_tval_length(run, v);
    if (by == 0)
        return llm_run_fail(run, -EINVAL, "slice step cannot be zero");
    int64_t first = slice_end(from, by < 0 ? count - 1 : 0, count, by < 0);
    int64_t last = slice_end(to, by < 0 ? -1 : count, count, by < 0);
    if (by > count)
        by = count + 1;
    if (by < -count)
        by = -count - 1;
    if (v.kind == TVAL_STRING && by == 1) {
        size_t start = llm_text_offset(v.text, v.bytes, (uint64_t)first);
        size_t n = last > first
                       ? llm_text_offset(v.text + start, v.bytes - start, (uint64_t)(last - first))
                       : 0;
        struct tval text = tval_text(v.text + start, n);
        text.sub = v.sub;
        return text;
    }
    struct tval_list *items = llm_tval_iterate(run, v);
    struct tval out = llm_tval_list(run, v.kind == TVAL_LIST ? v.sub : TVAL_SEQ_LIST);
    struct tbuf buf = {0};
    for (int64_t i = first; (by > 0 ? i < last : i > last) && !run->err; i += by) {
        if (v.kind == TVAL_STRING)
            llm_tbuf_put(run, &buf, items->items[i].text, items->items[i].bytes);
        else
            llm_tval_push(run, out, items->items[i]);
    }
    return v.kind == TVAL_STRING ? llm_tbuf_string(&buf) : out;
}
