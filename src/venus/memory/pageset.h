/* venus/memory/pageset.h - a set of pages of one region, as bits.
 *
 * A page is VN_PAGE_BYTES, the unit of the wire, so that both ends count the same way.  Host pages
 * are whole multiples of it.
 *
 * Trust: none needed.  Threads: the owner's lock.  Lifetime: init/fini. */
#ifndef HAWSER_VENUS_MEMORY_PAGESET_H
#define HAWSER_VENUS_MEMORY_PAGESET_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

enum { VN_PAGE_BYTES = 4096 };

/* Pages of one region: 1 TiB, more than any device has, and a set of it is still 32 MiB. */
#define VN_PAGES_MAX ((size_t)1 << 28)

struct vn_pageset {
    uint64_t *words;
    size_t pages;
    size_t count; /* members */
};

/* An empty set.  0, -ENOMEM, or -EINVAL past VN_PAGES_MAX. */
int vn_pageset_init(struct vn_pageset *set, size_t pages) MUST_CHECK;
void vn_pageset_fini(struct vn_pageset *set);

static inline bool vn_pageset_has(const struct vn_pageset *set, size_t page)
{
    assert(page < set->pages);
    return set->count && (set->words[page / 64] >> page % 64 & 1);
}

static inline void vn_pageset_add(struct vn_pageset *set, size_t page)
{
    assert(page < set->pages);
    uint64_t bit = UINT64_C(1) << page % 64;
    set->count += !(set->words[page / 64] & bit);
    set->words[page / 64] |= bit;
}

static inline void vn_pageset_remove(struct vn_pageset *set, size_t page)
{
    if (vn_pageset_has(set, page)) {
        set->words[page / 64] &= ~(UINT64_C(1) << page % 64);
        set->count--;
    }
}

void vn_pageset_add_span(struct vn_pageset *set, size_t first, size_t count);
void vn_pageset_remove_span(struct vn_pageset *set, size_t first, size_t count);

/* The first member from `from` on; set->pages when there is none. */
size_t vn_pageset_next(const struct vn_pageset *set, size_t from);

/* Members from `first` on without a gap, at most `most`. */
size_t vn_pageset_run(const struct vn_pageset *set, size_t first, size_t most);

#endif
