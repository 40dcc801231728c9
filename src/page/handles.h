/* page/handles.h - the handle cache: device handles made ahead of need and used again.
 *
 * A map spends most of its time on creating handles.  The reserve thread makes handles when fewer
 * than `low` are cached, and releases those above `high`.  Without the thread a take makes what is
 * missing and a give releases what is too much.
 *
 * Each handle counts against the shared limit from its creation to its release.  While the limit is
 * exceeded, the cache stays empty.  When one process of the group is short of memory, all of them
 * empty their caches.
 *
 * Threads: any.  A take waits for the reserve thread only when the device has no more memory: the
 * handle that the thread is making may be the one that is missing.
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
    uint32_t low, high; /* handles; high 0: no cache */
    uint32_t step;      /* handles that the reserve thread makes in one step; at least 1 */
    bool reserve_thread;
};

struct page_handles_stats {
    uint64_t created, released; /* by all callers and the reserve thread */
    uint64_t reused;            /* taken from the cache */
    uint64_t made_ahead;        /* by the reserve thread */
    uint32_t kept;              /* in the cache now */
};

struct page_handles;

/* 0, -EINVAL (low above high), -ENOMEM, or the errno of the thread. */
int page_handles_create(const struct page_handles_config *config, struct page_handles **out,
                        struct page_error *why) MUST_CHECK;
/* Stops the reserve thread and releases the cached handles. */
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
