/* page/alloc.h - the allocator of page ids.
 *
 *   free       not mapped
 *   reserved   mapped and not in use: given to a caller without a broadcast
 *   reclaimed  withdrawn because the shared limit was lowered; free again when it is raised
 *
 * A freed page goes to the reserve while that has room, else it is unmapped.
 *
 * Trust: ids that come back are checked.
 * Threads: one at a time.
 * Lifetime: create/destroy; destroy unmaps the reserve, not what is in use. */
#ifndef HAWSER_PAGE_ALLOC_H
#define HAWSER_PAGE_ALLOC_H

#include "page/limit.h"

/* Whole or not at all, as page_group_map and page_tensors_map are. */
typedef int page_alloc_change(void *user, const uint32_t *ids, size_t count,
                              struct page_error *why);

struct page_alloc_config {
    uint32_t pages;
    page_alloc_change *map, *unmap;
    void *user;
    uint32_t reserve;         /* freed pages that stay mapped */
    struct page_limit *limit; /* NULL: none */
    uint64_t id_bytes;        /* memory of one id at all workers, for the limit */
};

struct page_alloc_stats {
    uint32_t used, free, reserved, reclaimed;
};

struct page_alloc;

/* 0, -EINVAL (a reserve of more than all pages), -ENOMEM. */
int page_alloc_create(const struct page_alloc_config *config, struct page_alloc **out,
                      struct page_error *why) MUST_CHECK;
void page_alloc_destroy(struct page_alloc *a);

/* All `count` pages, mapped, or none.  -ENOSPC when there are not so many, -E2BIG past
 * PAGE_BATCH_MAX, or what map answered. */
int page_alloc_pages(struct page_alloc *a, uint32_t *ids_out, size_t count,
                     struct page_error *why) MUST_CHECK;
/* -ENOENT, and nothing is freed, when one of them is not in use.  What unmap answered otherwise:
 * the pages are no longer the caller's then either, and stay reserved. */
int page_alloc_free(struct page_alloc *a, const uint32_t *ids, size_t count,
                    struct page_error *why) MUST_CHECK;

/* Unmaps the reserve.  0, or what unmap answered. */
int page_alloc_trim(struct page_alloc *a, struct page_error *why);

void page_alloc_stats(struct page_alloc *a, struct page_alloc_stats *out);

#endif
