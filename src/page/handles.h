/* page/handles.h - the handle cache: device handles that are used again.
 *
 * A map spends most of its time on creating handles.  A take makes only what the cache lacks, and a
 * give releases what is too much for it.
 *
 * Each handle counts against the shared limit from its creation to its release.  While the limit is
 * exceeded, the cache stays empty.  When one process of the group is short of memory, all of them
 * empty their caches.
 *
 * Threads: any.
 * Lifetime: create/destroy; the backend and the limit outlive the cache.  Handles that were taken
 * and not given back are the taker's to release. */
#ifndef HAWSER_PAGE_HANDLES_H
#define HAWSER_PAGE_HANDLES_H

#include "page/backend/backend.h"
#include "page/limit.h"

struct page_handles_config {
    struct page_backend *backend;
    struct page_limit *limit; /* NULL: none */
    uint64_t piece_bytes;
    uint32_t high; /* handles that are cached at most; 0: no cache */
};

struct page_handles_stats {
    uint64_t created, released;
    uint64_t reused; /* taken from the cache */
    uint32_t kept;   /* in the cache now */
};

struct page_handles;

/* 0 or -ENOMEM. */
int page_handles_create(const struct page_handles_config *config, struct page_handles **out,
                        struct page_error *why) MUST_CHECK;
/* Releases the cached handles. */
void page_handles_destroy(struct page_handles *p);

/* All `count` handles or none.  0, -ENOMEM, -ENOSPC (the limit), -EIO; *made is how many there were
 * when it failed. */
int page_handles_take(struct page_handles *p, page_handle *handles, size_t count, size_t *made,
                      struct page_error *why) MUST_CHECK;
void page_handles_give(struct page_handles *p, const page_handle *handles, size_t count);

/* Releases what is kept beyond `keep` handles; how many that were. */
size_t page_handles_trim(struct page_handles *p, uint32_t keep);

void page_handles_stats(struct page_handles *p, struct page_handles_stats *out);

#endif
