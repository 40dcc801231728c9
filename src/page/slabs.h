/* page/slabs.h - hands out pages that are too small to be mapped one by one.
 *
 * A slab is a run of pages that are mapped together; page p lies in slab p / run.  A slab is mapped
 * while one of its pages is in use, and a few stay mapped as a reserve, which a caller gets without
 * a broadcast.  When the limit is lowered below that, slabs are unmapped as they empty.  Pages come
 * from the lowest slab that has one, so that the others empty and go back to the device.  Every
 * mapped slab counts against the limit.
 *
 * Trust: ids that come back are asserted.
 * Threads: one at a time.  Lifetime: create/destroy; destroy unmaps the reserve, and the caller
 * gives all pages back before. */
#ifndef HAWSER_PAGE_SLABS_H
#define HAWSER_PAGE_SLABS_H

#include "page/limit.h"

struct page_trace;

/* Whole or not at all, as page_group_map and page_tensors_map are. */
typedef int page_slabs_change(void *user, const uint32_t *slabs, size_t count,
                              struct page_error *why);

struct page_slabs_config {
    uint32_t pages;
    uint32_t run; /* pages of a slab; divides pages */
    page_slabs_change *map, *unmap;
    void *user;
    uint32_t reserve;         /* slabs that stay mapped when their pages are free, at most */
    struct page_limit *limit; /* NULL: none */
    uint64_t slab_bytes;      /* of memory */
    struct page_trace *trace; /* that gets what is mapped and unmapped; NULL: none */
};

struct page_slabs_stats {
    uint32_t used;     /* pages */
    uint32_t mapped;   /* slabs with a page in use */
    uint32_t reserved; /* slabs that are mapped and empty */
};

struct page_slabs;

/* 0, -EINVAL, -ENOMEM. */
int page_slabs_create(const struct page_slabs_config *config, struct page_slabs **out,
                      struct page_error *why) MUST_CHECK;
void page_slabs_destroy(struct page_slabs *s);

/* All `count` pages, mapped, or none.  -ENOSPC when there are not so many or the limit forbids it,
 * -E2BIG past PAGE_BATCH_MAX, or what map answered. */
int page_slabs_take(struct page_slabs *s, uint32_t *ids_out, size_t count,
                    struct page_error *why) MUST_CHECK;
/* What unmap answered; also then the pages are no longer the caller's. */
int page_slabs_give(struct page_slabs *s, const uint32_t *ids, size_t count,
                    struct page_error *why) MUST_CHECK;

/* Unmaps the reserve.  0, or what unmap answered. */
int page_slabs_trim(struct page_slabs *s, struct page_error *why);

void page_slabs_stats(const struct page_slabs *s, struct page_slabs_stats *out);

#endif
