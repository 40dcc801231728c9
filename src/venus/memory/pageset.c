#include "venus/memory/pageset.h"

#include <errno.h>
#include <stdlib.h>

int vn_pageset_init(struct vn_pageset *set, size_t pages)
{
    if (pages == 0 || pages > VN_PAGES_MAX)
        return -EINVAL;
    uint64_t *words = calloc((pages + 63) / 64, sizeof(*words));
    if (!words)
        return -ENOMEM;
    *set = (struct vn_pageset){.words = words, .pages = pages};
    return 0;
}

void vn_pageset_fini(struct vn_pageset *set)
{
    free(set->words);
    *set = (struct vn_pageset){0};
}

void vn_pageset_add_span(struct vn_pageset *set, size_t first, size_t count)
{
    assert(first <= set->pages && count <= set->pages - first);
    for (size_t page = first; page < first + count; page++)
        vn_pageset_add(set, page);
}

size_t vn_pageset_next(const struct vn_pageset *set, size_t from)
{
    if (set->count == 0 || from >= set->pages)
        return set->pages;
    size_t at = from / 64;
    uint64_t word = set->words[at] & (UINT64_MAX << from % 64);
    while (!word) {
        if (++at >= (set->pages + 63) / 64)
            return set->pages;
        word = set->words[at];
    }
    return at * 64 + (size_t)__builtin_ctzll(word);
}

size_t vn_pageset_run(const struct vn_pageset *set, size_t first, size_t most)
{
    size_t n = 0;
    while (n < most && first + n < set->pages && vn_pageset_has(set, first + n))
        n++;
    return n;
}
