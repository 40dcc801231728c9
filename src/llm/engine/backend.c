#include "llm/engine/backend.h"

#include <stdio.h>
#include <string.h>

/* Plus one whenever a change makes other bits: stored KV is not mixed then, nor are stages. */
enum { ARITHMETIC = 4 };

const struct llm_backend_ops *const llm_backends[] = {&llm_backend_cpu, &llm_backend_vulkan,
                                                      &llm_backend_reference, NULL};

const char *const llm_backend_names[] = {"cpu", "vulkan", "reference", NULL};
const char *const llm_math_names[] = {"exact", "fast", NULL};

const struct llm_backend_ops *llm_backend_find(const char *name)
{
    for (size_t i = 0; llm_backends[i]; i++) {
        if (strcmp(llm_backends[i]->name, name) == 0)
            return llm_backends[i];
    }
    return NULL;
}

void llm_backend_arithmetic(const struct llm_backend *b, char text[LLM_ARITHMETIC_CHARS])
{
    if (b->ops->exact)
        snprintf(text, LLM_ARITHMETIC_CHARS, "exact %d", ARITHMETIC);
    else
        snprintf(text, LLM_ARITHMETIC_CHARS, "%s %d: %.*s", b->ops->name, ARITHMETIC,
                 LLM_ARITHMETIC_CHARS - 48, b->device);
}
