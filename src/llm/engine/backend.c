#include "llm/engine/backend.h"

#include <string.h>

const struct llm_backend_ops *const llm_backends[] = {&llm_backend_cpu, &llm_backend_vulkan,
                                                      &llm_backend_reference, NULL};

const char *const llm_math_names[] = {"exact", "fast", NULL};

const struct llm_backend_ops *llm_backend_find(const char *name)
{
    for (size_t i = 0; llm_backends[i]; i++) {
        if (strcmp(llm_backends[i]->name, name) == 0)
            return llm_backends[i];
    }
    return NULL;
}
