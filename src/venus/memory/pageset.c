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

/* The pages of [*at, end) that share a word, as a mask of it; *at moves behind them. */
static uint64_t next_mask(size_t *at, size_t end)
{
    size_t low = *at % 64, n = end - *at < 64 - low ? end - *at : 64 - low;
    *at += n;
    return UINT64_MAX >> (64 - n) << low;
}

void vn_pageset_add_span(struct vn_pageset *set, size_t first, size_t count)
{
    assert(first <= set->pages && count <= set->pages - first);
    for (size_t at = first, end = first + count; at < end;) {
        uint64_t *word = &set->words[at / 64], mask = next_mask(&at, end);
        set->count += (size_t)__builtin_popcountll(mask & ~*word);
        *word |= mask;
    }
}

void vn_pageset_remove_span(struct vn_pageset *set, size_t first, size_t count)
{
    assert(first <= set->pages && count <= set->pages - first);
    if (set->count == 0)
        return;
    for (size_t at = first, end = first + count; at < end;) {
        uint64_t *word = &set->words[at / 64], mask = next_mask(&at, end);
        set->count -= (size_t)__builtin_popcountll(mask & *word);
        *word &= ~mask;
    }
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
    if (set->count == 0 || first >= set->pages)
        return 0;
    if (most > set->pages - first)
        most = set->pages - first;
    size_t n = 0;
    while (n < most) {
        size_t at = first + n;
        uint64_t gaps = ~set->words[at / 64] >> at % 64;
        if (gaps) {
            n += (size_t)__builtin_ctzll(gaps);
            break;
        }
        n += 64 - at % 64;
    }
    return n < most ? n : most;
}
