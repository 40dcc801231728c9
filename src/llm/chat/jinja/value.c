#include "llm/chat/jinja/value.h"

#include "base/text/utf8.h"
#include "llm/chat/template.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct tval llm_run_fail(struct llm_run *run, int err, const char *fmt, ...)
{
    if (!run->err) {
        char text[LLM_WHY_CHARS];
        va_list args;
        va_start(args, fmt);
        vsnprintf(text, sizeof text, fmt, args);
        va_end(args);
        run->err = err;
        llm_why_set(run->why, "line %u of the chat template: %s", run->line, text);
    }
    return tval_undefined();
}

bool llm_run_step(struct llm_run *run, uint64_t work)
{
    run->steps += work + 1;
    if (run->steps > LLM_TEMPLATE_STEPS_MAX)
        llm_run_fail(run, -E2BIG, "it takes more than %d steps", LLM_TEMPLATE_STEPS_MAX);
    return !run->err;
}

bool llm_run_compare(struct llm_run *run, size_t bytes)
{
    return bytes < 64 || llm_run_step(run, bytes / 16);
}

bool llm_run_enter(struct llm_run *run)
{
    if (run->err)
        return false;
    if (run->depth >= LLM_TEMPLATE_DEPTH_MAX) {
        llm_run_fail(run, -E2BIG, "nested deeper than %d", LLM_TEMPLATE_DEPTH_MAX);
        return false;
    }
    run->depth++;
    return true;
}

void llm_run_leave(struct llm_run *run)
{
    assert(run->depth > 0);
    run->depth--;
}

void *llm_run_alloc(struct llm_run *run, size_t bytes)
{
    if (run->err)
        return NULL;
    void *p = hw_arena_calloc(&run->arena, 1, bytes);
    if (!p) {
        bool full = run->arena.held + bytes >= LLM_TEMPLATE_MEMORY_MAX - HW_ARENA_BLOCK_MAX;
        llm_run_fail(run, full ? -E2BIG : -ENOMEM,
                     full ? "it takes more than %d MiB of memory" : "out of memory (limit %d MiB)",
                     LLM_TEMPLATE_MEMORY_MAX >> 20);
    }
    return p;
}

void llm_tbuf_put(struct llm_run *run, struct tbuf *buf, const char *data, size_t bytes)
{
    if (run->err || !bytes || !llm_run_step(run, bytes / 16))
        return;
    if (bytes > LLM_TEMPLATE_OUTPUT_MAX - buf->len) {
        llm_run_fail(run, -E2BIG, "a text is longer than %d MiB", LLM_TEMPLATE_OUTPUT_MAX >> 20);
        return;
    }
    if (buf->len + bytes > buf->room) {
        size_t room = buf->room * 2 > buf->len + bytes ? buf->room * 2 : buf->len + bytes + 32;
        char *grown = llm_run_alloc(run, room);
        if (!grown)
            return;
        if (buf->len)
            memcpy(grown, buf->data, buf->len);
        buf->data = grown;
        buf->room = room;
    }
    memcpy(buf->data + buf->len, data, bytes);
    buf->len += bytes;
}

void llm_tbuf_puts(struct llm_run *run, struct tbuf *buf, const char *text)
{
    llm_tbuf_put(run, buf, text, strlen(text));
}

void llm_tbuf_code(struct llm_run *run, struct tbuf *buf, uint32_t code)
{
    char out[4];
    size_t n = 0;
    if (code < 0x80) {
        out[n++] = (char)code;
    } else if (code < 0x800) {
        out[n++] = (char)(0xc0 | code >> 6);
    } else if (code < 0x10000) {
        out[n++] = (char)(0xe0 | code >> 12);
        out[n++] = (char)(0x80 | (code >> 6 & 0x3f));
    } else {
        out[n++] = (char)(0xf0 | code >> 18);
        out[n++] = (char)(0x80 | (code >> 12 & 0x3f));
        out[n++] = (char)(0x80 | (code >> 6 & 0x3f));
    }
    if (code >= 0x80)
        out[n++] = (char)(0x80 | (code & 0x3f));
    llm_tbuf_put(run, buf, out, n);
}

struct tval llm_tbuf_string(const struct tbuf *buf)
{
    return tval_text(buf->len ? buf->data : "", buf->len);
}

struct tval llm_tval_c(const char *text)
{
    return tval_text(text, strlen(text));
}

bool llm_tval_is(struct tval v, const char *text)
{
    return v.kind == TVAL_STRING && v.bytes == strlen(text) && memcmp(v.text, text, v.bytes) == 0;
}

struct tval llm_tval_list(struct llm_run *run, enum tval_sequence sub)
{
    struct tval_list *list = llm_run_alloc(run, sizeof *list);
    return list ? (struct tval){.kind = TVAL_LIST, .sub = (uint8_t)sub, .list = list}
                : tval_undefined();
}

void llm_tval_push(struct llm_run *run, struct tval v, struct tval item)
{
    if (!llm_run_step(run, 0))
        return;
    assert(v.kind == TVAL_LIST);
    struct tval_list *list = v.list;
    if (list->count == list->room) {
        uint32_t room = list->room ? list->room * 2 : 4;
        struct tval *items = llm_run_alloc(run, room * sizeof *items);
        if (!items)
            return;
        if (list->count)
            memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = item;
}

struct tval llm_tval_dict(struct llm_run *run, enum tval_kind kind)
{
    assert(kind == TVAL_DICT || kind == TVAL_NAMESPACE);
    struct tval_dict *dict = llm_run_alloc(run, sizeof *dict);
    return dict ? (struct tval){.kind = (uint8_t)kind, .dict = dict} : tval_undefined();
}

static bool hashable(struct llm_run *run, struct tval key)
{
    bool can = key.kind != TVAL_DICT &&
               !(key.kind == TVAL_LIST && key.sub != TVAL_SEQ_TUPLE && key.sub != TVAL_SEQ_RANGE);
    if (can && key.kind == TVAL_LIST && key.sub == TVAL_SEQ_TUPLE) {
        if (!llm_run_enter(run))
            return false;
        for (uint32_t i = 0; can && i < key.list->count; i++)
            can = hashable(run, key.list->items[i]);
        llm_run_leave(run);
    }
    if (!can)
        llm_run_fail(run, -EINVAL, "unhashable type: '%s'", llm_tval_type(key));
    return can;
}

struct tval *llm_tval_get(struct llm_run *run, struct tval v, struct tval key)
{
    if (run->err || !hashable(run, key))
        return NULL;
    struct tval_dict *dict = v.dict;
    if (!llm_run_step(run, dict->count / 8))
        return NULL;
    for (uint32_t i = 0; i < dict->count; i++) {
        if (llm_tval_equal(run, dict->pairs[i].key, key))
            return &dict->pairs[i].value;
    }
    return NULL;
}

static void append_pair(struct llm_run *run, struct tval_dict *dict, struct tval key,
                        struct tval value)
{
    if (dict->count == dict->room) {
        uint32_t room = dict->room ? dict->room * 2 : 4;
        struct tval_pair *pairs = llm_run_alloc(run, room * sizeof *pairs);
        if (!pairs)
            return;
        if (dict->count)
            memcpy(pairs, dict->pairs, dict->count * sizeof *pairs);
        dict->pairs = pairs;
        dict->room = room;
    }
    dict->pairs[dict->count++] = (struct tval_pair){key, value};
}

void llm_tval_set(struct llm_run *run, struct tval v, struct tval key, struct tval value)
{
    struct tval *old = llm_tval_get(run, v, key);
    if (run->err)
        return;
    if (old)
        *old = value;
    else
        append_pair(run, v.dict, key, value);
}

static struct tval object_of_json(struct llm_run *run, const json_t *json)
{
    struct tval dict = llm_tval_dict(run, TVAL_DICT);
    /* jansson's iterators take no const. */
    json_t *object = (json_t *)json;
    for (void *at = json_object_iter(object); at && llm_run_step(run, 0);
         at = json_object_iter_next(object, at)) {
        /* No key is there twice, so none is looked for. */
        const char *key = json_object_iter_key(at);
        append_pair(run, dict.dict, llm_tval_c(key),
                    llm_tval_from_json(run, json_object_iter_value(at)));
    }
    return dict;
}

struct tval llm_tval_from_json(struct llm_run *run, const json_t *json)
{
    struct tval v = tval_none();
    if (!json || !llm_run_step(run, 0) || !llm_run_enter(run))
        return v;
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        v = object_of_json(run, json);
        break;
    case JSON_ARRAY:
        v = llm_tval_list(run, TVAL_SEQ_LIST);
        for (size_t i = 0; !run->err && i < json_array_size(json); i++)
            llm_tval_push(run, v, llm_tval_from_json(run, json_array_get(json, i)));
        break;
    case JSON_STRING:
        v = tval_text(json_string_value(json), json_string_length(json));
        break;
    case JSON_INTEGER:
        v = tval_int(json_integer_value(json));
        break;
    case JSON_REAL:
        v = tval_float(json_real_value(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        v = tval_bool(json_is_true(json));
        break;
    case JSON_NULL:
        break;
    }
    llm_run_leave(run);
    return run->err ? tval_undefined() : v;
}

const char *llm_tval_type(struct tval v)
{
    static const char *const sequences[] = {"list",        "tuple",      "range",   "dict_keys",
                                            "dict_values", "dict_items", "iterator"};
    static const char *const kinds[] = {
        [TVAL_UNDEFINED] = "Undefined", [TVAL_NONE] = "NoneType",
        [TVAL_BOOL] = "bool",           [TVAL_INT] = "int",
        [TVAL_FLOAT] = "float",         [TVAL_STRING] = "str",
        [TVAL_DICT] = "dict",           [TVAL_MACRO] = "Macro",
        [TVAL_NAMESPACE] = "Namespace", [TVAL_FUNCTION] = "function",
        [TVAL_METHOD] = "method",       [TVAL_LOOP] = "LoopContext",
    };
    return v.kind == TVAL_LIST ? sequences[v.sub] : kinds[v.kind];
}

bool llm_tval_truth(struct tval v)
{
    switch (v.kind) {
    case TVAL_UNDEFINED:
    case TVAL_NONE:
        return false;
    case TVAL_BOOL:
        return v.b;
    case TVAL_INT:
        return v.i != 0;
    case TVAL_FLOAT:
        return v.f != 0;
    case TVAL_STRING:
        return v.bytes > 0;
    case TVAL_LIST:
        return v.sub == TVAL_SEQ_ITERATOR || v.list->count > 0;
    case TVAL_DICT:
        return v.dict->count > 0;
    default:
        return true;
    }
}

static bool same_lists(struct llm_run *run, struct tval a, struct tval b)
{
    if (a.list == b.list)
        return true;
    /* Views of a dict and iterators are equal to themselves only. */
    if (a.sub != b.sub || a.sub > TVAL_SEQ_RANGE || a.list->count != b.list->count)
        return false;
    for (uint32_t i = 0; i < a.list->count; i++) {
        if (!llm_tval_equal(run, a.list->items[i], b.list->items[i]))
            return false;
    }
    return true;
}

static bool same_dicts(struct llm_run *run, struct tval a, struct tval b)
{
    if (a.dict->count != b.dict->count)
        return false;
    for (uint32_t i = 0; i < a.dict->count; i++) {
        struct tval *other = llm_tval_get(run, b, a.dict->pairs[i].key);
        if (!other || !llm_tval_equal(run, a.dict->pairs[i].value, *other))
            return false;
    }
    return true;
}

bool llm_tval_equal(struct llm_run *run, struct tval a, struct tval b)
{
    if (tval_is_whole(a) && tval_is_whole(b))
        return tval_whole(a) == tval_whole(b);
    if (tval_is_number(a) && tval_is_number(b))
        return tval_number(a) == tval_number(b);
    if (a.kind != b.kind)
        return false;
    if (a.kind == TVAL_STRING)
        return a.bytes == b.bytes && llm_run_compare(run, a.bytes) &&
               memcmp(a.text, b.text, a.bytes) == 0;
    if (a.kind == TVAL_UNDEFINED || a.kind == TVAL_NONE)
        return true;
    if (a.kind == TVAL_FUNCTION)
        return a.sub == b.sub;
    if (a.kind != TVAL_LIST && a.kind != TVAL_DICT)
        return a.list == b.list; /* one object, whatever it is */
    if (!llm_run_step(run, 0) || !llm_run_enter(run))
        return false;
    bool same = a.kind == TVAL_LIST ? same_lists(run, a, b) : same_dicts(run, a, b);
    llm_run_leave(run);
    return same;
}

static int sign(double a, double b)
{
    return a < b ? -1 : a > b;
}

int llm_tval_order(struct llm_run *run, struct tval a, struct tval b)
{
    if (tval_is_whole(a) && tval_is_whole(b))
        return tval_whole(a) < tval_whole(b) ? -1 : tval_whole(a) > tval_whole(b);
    if (tval_is_number(a) && tval_is_number(b))
        return sign(tval_number(a), tval_number(b));
    if (a.kind == TVAL_STRING && b.kind == TVAL_STRING) {
        /* The order of UTF-8's bytes is that of code points. */
        size_t n = a.bytes < b.bytes ? a.bytes : b.bytes;
        int order = llm_run_compare(run, n) ? memcmp(a.text, b.text, n) : 0;
        return order ? (order < 0 ? -1 : 1) : sign(a.bytes, b.bytes);
    }
    if (a.kind == TVAL_UNDEFINED || b.kind == TVAL_UNDEFINED) {
        struct tval u = a.kind == TVAL_UNDEFINED ? a : b;
        llm_run_fail(run, -EINVAL, "'%.*s' is undefined", (int)u.bytes, u.text ? u.text : "");
        return 0;
    }
    if (a.kind == TVAL_LIST && b.kind == TVAL_LIST && a.sub == b.sub && a.sub <= TVAL_SEQ_TUPLE) {
        if (!llm_run_enter(run))
            return 0;
        int order = 0;
        uint32_t i = 0;
        for (; i < a.list->count && i < b.list->count && order == 0 && llm_run_step(run, 0); i++) {
            if (!llm_tval_equal(run, a.list->items[i], b.list->items[i]))
                order = llm_tval_order(run, a.list->items[i], b.list->items[i]);
        }
        llm_run_leave(run);
        return order ? order : sign(a.list->count, b.list->count);
    }
    llm_run_fail(run, -EINVAL, "'%s' and '%s' have no order", llm_tval_type(a), llm_tval_type(b));
    return 0;
}

bool llm_tval_contains(struct llm_run *run, struct tval container, struct tval item)
{
    if (run->err)
        return false;
    switch (container.kind) {
    case TVAL_STRING:
        if (item.kind != TVAL_STRING) {
            llm_run_fail(run, -EINVAL, "'in <string>' requires string as left operand, not %s",
                         llm_tval_type(item));
            return false;
        }
        llm_run_step(run, container.bytes / 16);
        return item.bytes == 0 ||
               memmem(container.text, container.bytes, item.text, item.bytes) != NULL;
    case TVAL_DICT:
        return llm_tval_get(run, container, item) != NULL;
    default: {
        struct tval_list *list = llm_tval_iterate(run, container);
        for (uint32_t i = 0; i < list->count && llm_run_step(run, 0); i++) {
            if (llm_tval_equal(run, list->items[i], item))
                return true;
        }
        return false;
    }
    }
}

int64_t llm_tval_length(struct llm_run *run, struct tval v)
{
    if (v.kind == TVAL_STRING) {
        llm_run_step(run, v.bytes / 16);
        return llm_text_length(v.text, v.bytes);
    }
    if (v.kind == TVAL_LIST && v.sub != TVAL_SEQ_ITERATOR)
        return v.list->count;
    if (v.kind == TVAL_DICT)
        return v.dict->count;
    if (v.kind == TVAL_UNDEFINED)
        return 0;
    if (v.kind == TVAL_LOOP)
        return v.loop->items->count;
    llm_run_fail(run, -EINVAL, "object of type '%s' has no len()", llm_tval_type(v));
    return -1;
}

bool llm_tval_iterable(struct tval v)
{
    return v.kind == TVAL_STRING || v.kind == TVAL_LIST || v.kind == TVAL_DICT ||
           v.kind == TVAL_UNDEFINED || v.kind == TVAL_LOOP;
}

static struct tval_list *characters(struct llm_run *run, struct tval text)
{
    struct tval list = llm_tval_list(run, TVAL_SEQ_LIST);
    for (size_t at = 0; at < text.bytes && !run->err;) {
        uint32_t code;
        size_t n = hw_utf8_next(text.text + at, text.bytes - at, &code);
        llm_tval_push(run, list, tval_text(text.text + at, n));
        at += n;
    }
    return list.list;
}

struct tval_list *llm_tval_iterate(struct llm_run *run, struct tval v)
{
    static struct tval_list empty; /* never written: nobody pushes to what is iterated */
    if (run->err || v.kind == TVAL_UNDEFINED)
        return &empty;
    if (v.kind == TVAL_LIST) {
        if (v.sub != TVAL_SEQ_ITERATOR)
            return v.list;
        bool spent = v.list->spent;
        v.list->spent = true;
        return spent ? &empty : v.list;
    }
    if (v.kind == TVAL_STRING) {
        struct tval_list *list = characters(run, v);
        return run->err ? &empty : list;
    }
    if (v.kind == TVAL_DICT) {
        struct tval list = llm_tval_list(run, TVAL_SEQ_LIST);
        for (uint32_t i = 0; !run->err && i < v.dict->count; i++)
            llm_tval_push(run, list, v.dict->pairs[i].key);
        return run->err ? &empty : list.list;
    }
    llm_run_fail(run, -EINVAL, "'%s' object is not iterable", llm_tval_type(v));
    return &empty;
}
