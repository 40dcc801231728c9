#include "llm/chat/template.h"

#include "llm/chat/jinja/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TREE_BYTES_MAX = 64 << 20 }; /* some 40 bytes for each byte of text, and spare */

int llm_template_parse(const char *text, size_t bytes, struct llm_template **out, char *why)
{
    if (bytes > LLM_TEMPLATE_BYTES_MAX)
        return llm_why(why, -E2BIG, "the chat template has %zu bytes, at most %d are taken", bytes,
                       LLM_TEMPLATE_BYTES_MAX);
    struct llm_template *t = calloc(1, sizeof *t);
    if (!t)
        return llm_why(why, -ENOMEM, "out of memory");
    hw_arena_init(&t->arena, TREE_BYTES_MAX);
    int err = llm_template_tree(t, text, bytes, why);
    if (err) {
        llm_template_free(t);
        return err;
    }
    *out = t;
    return 0;
}

void llm_template_free(struct llm_template *t)
{
    if (!t)
        return;
    hw_arena_fini(&t->arena);
    free(t);
}

int llm_template_render(const struct llm_template *t, const json_t *variables, char **out,
                        size_t *bytes, char *why)
{
    struct tbuf text = {0};
    struct llm_run run = {.why = why, .out = &text, .line = 1};
    hw_arena_init(&run.arena, LLM_TEMPLATE_MEMORY_MAX);
    llm_template_run(&run, t, variables);
    int err = run.err;
    char *copy = err ? NULL : malloc(text.len + 1);
    if (copy) {
        if (text.len)
            memcpy(copy, text.data, text.len);
        copy[text.len] = 0;
        *out = copy;
        *bytes = text.len;
    } else if (!err) {
        err = llm_why(why, -ENOMEM, "out of memory");
    }
    hw_arena_fini(&run.arena);
    return err;
}
