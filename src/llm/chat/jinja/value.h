/* llm/chat/jinja/value.h - the values of a template under way: Python's types, as far as Jinja
 * shows them.
 *
 * Private to src/llm/chat.  All memory is the run's arena, so nothing is freed by itself.  The
 * first error is kept in the run; later calls then do nothing and yield undefined, and loops end
 * when llm_run_step() says false.
 *
 * Threads: one at a time for each run.  Lifetime: values live as long as their run. */
#ifndef HAWSER_LLM_CHAT_JINJA_VALUE_H
#define HAWSER_LLM_CHAT_JINJA_VALUE_H

#include "base/arena.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum tval_kind {
    TVAL_UNDEFINED,
    TVAL_NONE,
    TVAL_BOOL,
    TVAL_INT,
    TVAL_FLOAT,
    TVAL_STRING,
    TVAL_LIST,
    TVAL_DICT,
    TVAL_NAMESPACE, /* a dict whose members can be set */
    TVAL_MACRO,
    TVAL_FUNCTION, /* range, namespace and their like */
    TVAL_METHOD,   /* of a string, list or dict */
    TVAL_LOOP,     /* `loop` within a for */
};

/* What Python would call a value of kind list. */
enum tval_sequence {
    TVAL_SEQ_LIST,
    TVAL_SEQ_TUPLE,
    TVAL_SEQ_RANGE,
    TVAL_SEQ_KEYS,
    TVAL_SEQ_VALUES,
    TVAL_SEQ_ITEMS,
    TVAL_SEQ_ITERATOR, /* can be read once */
};

struct tval_list;
struct tval_dict;
struct tval_method;
struct tval_loop;
struct node;

struct tval {
    uint8_t kind;
    uint8_t sub;    /* list: enum tval_sequence; string: 1 for markup; function: which */
    uint32_t bytes; /* of a string or of an undefined value's name */
    union {
        bool b;
        int64_t i;
        double f;
        const char *text; /* string; undefined: its name, or NULL */
        struct tval_list *list;
        struct tval_dict *dict; /* and namespace */
        struct tval_macro *macro;
        struct tval_method *method;
        struct tval_loop *loop;
    };
};

struct tval_list {
    struct tval *items;
    uint32_t count, room;
    bool spent; /* an iterator that was read */
};

struct tval_pair {
    struct tval key, value;
};

struct tval_dict {
    struct tval_pair *pairs; /* in the order of insertion */
    uint32_t count, room;
};

struct tval_method {
    struct tval self;
    const char *name;
};

struct tval_macro {
    const struct node *node;
    struct scope *scope; /* where it was defined */
};

struct tval_loop {
    struct tval_list *items;
    uint32_t index;
    uint32_t depth;
    struct tval changed; /* what loop.changed() saw last */
};

struct tbuf {
    char *data;
    size_t len, room;
};

struct llm_run {
    struct hw_arena arena;
    char *why;
    int err;       /* the first, sticky */
    uint32_t line; /* of the statement under way */
    uint32_t depth;
    uint64_t steps;
    struct tbuf *out;
    bool has_time;
    int64_t time_now;
};

/* Keeps the first error; yields undefined, so that it can stand in a return. */
struct tval llm_run_fail(struct llm_run *run, int err, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Charges work; false once the run has failed or reached its bound. */
bool llm_run_step(struct llm_run *run, uint64_t work);
/* The same for bytes that are compared; a few are part of the step that compares them. */
bool llm_run_compare(struct llm_run *run, size_t bytes);
/* Bounds nesting; each true is followed by a leave. */
bool llm_run_enter(struct llm_run *run);
void llm_run_leave(struct llm_run *run);
/* NULL after an error.  Zeroed. */
void *llm_run_alloc(struct llm_run *run, size_t bytes);

void llm_tbuf_put(struct llm_run *run, struct tbuf *buf, const char *data, size_t bytes);
void llm_tbuf_puts(struct llm_run *run, struct tbuf *buf, const char *text);
/* A code point as UTF-8. */
void llm_tbuf_code(struct llm_run *run, struct tbuf *buf, uint32_t code);
struct tval llm_tbuf_string(const struct tbuf *buf);

static inline struct tval tval_none(void)
{
    return (struct tval){.kind = TVAL_NONE};
}
static inline struct tval tval_undefined(void)
{
    return (struct tval){.kind = TVAL_UNDEFINED};
}
static inline struct tval tval_bool(bool b)
{
    return (struct tval){.kind = TVAL_BOOL, .b = b};
}
static inline struct tval tval_int(int64_t i)
{
    return (struct tval){.kind = TVAL_INT, .i = i};
}
static inline struct tval tval_float(double f)
{
    return (struct tval){.kind = TVAL_FLOAT, .f = f};
}
/* text must live as long as the run. */
static inline struct tval tval_text(const char *text, size_t bytes)
{
    return (struct tval){.kind = TVAL_STRING, .text = text, .bytes = (uint32_t)bytes};
}
struct tval llm_tval_c(const char *text);
static inline bool tval_is_number(struct tval v)
{
    return v.kind == TVAL_INT || v.kind == TVAL_FLOAT || v.kind == TVAL_BOOL;
}
static inline bool tval_is_whole(struct tval v) /* an int, as Python counts booleans */
{
    return v.kind == TVAL_INT || v.kind == TVAL_BOOL;
}
static inline int64_t tval_whole(struct tval v)
{
    return v.kind == TVAL_BOOL ? v.b : v.i;
}
static inline double tval_number(struct tval v)
{
    return v.kind == TVAL_FLOAT ? v.f : (double)tval_whole(v);
}
bool llm_tval_is(struct tval v, const char *text); /* a string with this text */

struct tval llm_tval_list(struct llm_run *run, enum tval_sequence sub);
void llm_tval_push(struct llm_run *run, struct tval list, struct tval item);
struct tval llm_tval_dict(struct llm_run *run, enum tval_kind kind);
/* NULL: not there, or the key cannot be one (which fails the run). */
struct tval *llm_tval_get(struct llm_run *run, struct tval dict, struct tval key);
void llm_tval_set(struct llm_run *run, struct tval dict, struct tval key, struct tval value);
struct tval llm_tval_from_json(struct llm_run *run, const json_t *json);

const char *llm_tval_type(struct tval v); /* Python's name of the type */
bool llm_tval_truth(struct tval v);
bool llm_tval_equal(struct llm_run *run, struct tval a, struct tval b);
/* -1, 0, 1; fails for types that have no order. */
int llm_tval_order(struct llm_run *run, struct tval a, struct tval b);
bool llm_tval_contains(struct llm_run *run, struct tval container, struct tval item);
/* len(): -1 and a failed run where Python has none. */
int64_t llm_tval_length(struct llm_run *run, struct tval v);
/* What a for loop would see; an empty list after an error.  The list may be the value's own. */
struct tval_list *llm_tval_iterate(struct llm_run *run, struct tval v);
bool llm_tval_iterable(struct tval v);

/* str(), repr(), json.dumps(). */
void llm_tval_str(struct llm_run *run, struct tbuf *buf, struct tval v);
void llm_tval_repr(struct llm_run *run, struct tbuf *buf, struct tval v);
struct tval llm_tval_to_string(struct llm_run *run, struct tval v);
struct tjson {
    bool ascii, sort_keys, indented;
    struct tval indent;    /* a string: one level; used if indented */
    struct tval item, key; /* separators */
};
void llm_tval_json(struct llm_run *run, struct tbuf *buf, struct tval v, const struct tjson *how);
/* repr() of a float. */
void llm_tval_float_repr(double f, char text[32]);

/* Operators: + - * / f (//) % p (**). */
struct tval llm_tval_binary(struct llm_run *run, char op, struct tval a, struct tval b);
struct tval llm_tval_negate(struct llm_run *run, struct tval v);
/* a[i], a.i as the sandbox reads them: undefined where there is none. */
struct tval llm_tval_item(struct llm_run *run, struct tval v, struct tval key);
struct tval llm_tval_attribute(struct llm_run *run, struct tval v, const char *name, size_t bytes);
struct tval llm_tval_slice(struct llm_run *run, struct tval v, struct tval from, struct tval to,
                           struct tval step);
/* text.format(): format.c */
struct tval llm_tval_format(struct llm_run *run, struct tval format, struct tval args,
                            struct tval named);

/* Characters: text.c */
bool llm_text_is_space(uint32_t code);
bool llm_text_is_printable(uint32_t code);
uint32_t llm_text_length(const char *text, size_t bytes);
/* Bytes from the start of text to character number n, at most bytes. */
size_t llm_text_offset(const char *text, size_t bytes, uint64_t n);
enum { LLM_TEXT_LEFT = 1, LLM_TEXT_RIGHT = 2 };
/* strip(): chars is a string of characters or none for white space. */
struct tval llm_text_strip(struct llm_run *run, struct tval text, struct tval chars, int sides);
enum llm_text_case { LLM_TEXT_UPPER, LLM_TEXT_LOWER, LLM_TEXT_CAPITALIZE, LLM_TEXT_TITLE };
struct tval llm_text_case(struct llm_run *run, struct tval text, enum llm_text_case how);
struct tval llm_text_replace(struct llm_run *run, struct tval text, struct tval old,
                             struct tval with, int64_t count);
/* &<>"' as HTML wants them. */
struct tval llm_text_escape(struct llm_run *run, struct tval text);
/* str.splitlines(). */
struct tval llm_text_lines(struct llm_run *run, struct tval text, bool keep_ends);

#endif
