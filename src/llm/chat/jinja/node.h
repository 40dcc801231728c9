/* llm/chat/jinja/node.h - a template as a tree.
 *
 * Private to src/llm/chat.  parse.c makes it, eval.c walks it.  Threads: read-only once parsed.
 * Lifetime: the arena of its template. */
#ifndef HAWSER_LLM_CHAT_JINJA_NODE_H
#define HAWSER_LLM_CHAT_JINJA_NODE_H

#include "llm/chat/jinja/value.h"

enum node_type {
    /* Statements; `next` is the following one. */
    NODE_TEXT,         /* value */
    NODE_OUTPUT,       /* a: expression */
    NODE_IF,           /* a: condition, b: body, c: else (an if for elif) */
    NODE_FOR,          /* a: target, b: iterable, c: condition, body, other: else */
    NODE_SET,          /* a: target, b: expression */
    NODE_SET_BLOCK,    /* a: target, b: filters around NODE_CAPTURED, body */
    NODE_FILTER_BLOCK, /* b, body as above */
    NODE_MACRO,        /* name, a: parameters (NODE_PARAMETER), body */
    NODE_CALL_BLOCK,   /* a: call, b: parameters, body */
    NODE_SCOPE,        /* body: with and generation; a: targets (NODE_SET) */
    NODE_BREAK,
    NODE_CONTINUE,
    /* Expressions; `next` is the following argument or item. */
    NODE_CONST,
    NODE_NAME,
    NODE_CAPTURED,  /* the text of the block around */
    NODE_LIST,      /* a: items */
    NODE_TUPLE,     /* a: items */
    NODE_DICT,      /* a: key, value, key, value ... */
    NODE_ATTRIBUTE, /* a, name */
    NODE_ITEM,      /* a, b */
    NODE_SLICE,     /* of NODE_ITEM's b: a, b, c, each may be NODE_CONST none */
    NODE_CALL,      /* a: callee, b: arguments */
    NODE_FILTER,    /* name, a: value, b: arguments */
    NODE_TEST,      /* name, a: value, b: arguments */
    NODE_KEYWORD,   /* an argument: name, a */
    NODE_PARAMETER, /* name, a: default or NULL */
    NODE_BINARY,    /* op, a, b */
    NODE_CONCAT,    /* a, b */
    NODE_COMPARE,   /* a, then b: chain of NODE_OPERAND */
    NODE_OPERAND,   /* op, a */
    NODE_AND,
    NODE_OR,
    NODE_NOT,
    NODE_NEGATE,
    NODE_PLUS,
    NODE_CHOICE,    /* a if b else c */
    NODE_NAMESPACE, /* a target: name.attribute (value holds the attribute) */
};

enum compare_op { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };

struct node {
    uint8_t type;
    char op; /* NODE_BINARY: as llm_tval_binary; NODE_OPERAND: enum compare_op */
    uint32_t line;
    const char *name;
    uint32_t name_bytes;
    struct tval value;
    struct node *a, *b, *c, *body, *other, *next;
};

struct scope {
    struct scope *parent;
    struct variable *variables;
};

struct llm_template {
    struct hw_arena arena;
    struct node *body;
};

/* An argument list that was evaluated. */
struct targs {
    struct tval positional; /* list */
    struct tval named;      /* dict */
};

/* parse.c: 0 or a negative errno. */
int llm_template_tree(struct llm_template *t, const char *text, size_t bytes, char *why);
/* eval.c */
void llm_template_run(struct llm_run *run, const struct llm_template *t, const json_t *variables);
/* filter.c; unknown names fail the run. */
struct tval llm_filter_apply(struct llm_run *run, const char *name, size_t bytes, struct tval v,
                             const struct targs *args);
/* test.c */
bool llm_test_apply(struct llm_run *run, const char *name, size_t bytes, struct tval v,
                    const struct targs *args);
/* method.c; NULL: the type has no such method.  The static name of it otherwise. */
const char *llm_method_find(struct tval self, const char *name, size_t bytes);
struct tval llm_method_call(struct llm_run *run, const struct tval_method *method,
                            const struct targs *args);
/* Puts arguments in the places of a call's parameters; spec names them with spaces between.  Absent
 * ones are undefined.  False, with a failed run, for an argument that has no place. */
bool llm_targs_bind(struct llm_run *run, const struct targs *args, const char *what,
                    const char *spec, struct tval *places);

#endif
