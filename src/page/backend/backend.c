#include "page/backend/backend.h"

#include <string.h>

const struct page_backend_ops *const page_backends[] = {
    &page_backend_host, &page_backend_cuda, &page_backend_vulkan, &page_backend_null, NULL};

const struct page_backend_ops *page_backend_find(const char *name)
{
    for (const struct page_backend_ops *const *b = page_backends; *b; b++) {
        if (strcmp((*b)->name, name) == 0)
            return *b;
    }
    return NULL;
}
