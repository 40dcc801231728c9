/* table.c - the strategies, by name. */
#include "page/broadcast/broadcast.h"

#include <string.h>

/* clang-format off */
const struct page_strategy *const page_strategies[] = {
    &page_strategy_seq,
    &page_strategy_thread,
    &page_strategy_async,
    &page_strategy_epoll,
    &page_strategy_shm,
    NULL,
};
/* clang-format on */

const struct page_strategy *page_strategy_find(const char *name)
{
    for (const struct page_strategy *const *s = page_strategies; *s; s++) {
        if (strcmp((*s)->name, name) == 0)
            return *s;
    }
    return NULL;
}
