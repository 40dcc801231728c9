/* page/handles.h - handles made ahead of need and used again: creating one is what a map waits for.
 *
 * Between the low and the high mark handles are kept; the reserve thread makes more when fewer than
 * `low` are left, and gives those above `high` back.  Without the reserve thread a take makes what
 * is missing and a give releases what is too much.  Each handle counts against the shared limit
 * from its creation to its release; while the limit is exceeded nothing is kept and nothing is
 * made, and when one process of the group is short, all give up what they only keep.
 *
 * Threads: any.  A take waits for a driver call of the reserve thread only when the device has no
 * more memory: then what the reserve thread has in hand may be what is missing. Lifetime:
 * create/destroy; the backend and the limit outlive the cache.  Handles that were taken and not
 * given back are the taker's to release. */
#ifndef HAWSER_PAGE_HANDLES_H
#define HAWSER_PAGE_HANDLES_H

#include "page/backend/backend.h"
#include "page/limit.h"

struct page_handles_config {
    struct page_backend *backend;
    struct page_limit *limit; /* NULL: none */
    uint64_t piece_bytes;
    uint32_t low, high; /* handles; high 0: nothing is kept, every handle is made and released */
    uint32_t step; /* that the reserve thread makes at a time before it looks again; at least 1 */
    bool reserve_thread;
};

struct page_handles_stats {
    uint64_t created, released; /* by anybody */
    uint64_t reused;            /* takes that were served from what was kept */
    uint64_t made_ahead;        /* by the reserve thread */
    uint32_t kept;              /* now */
};

struct page_handles;

/* 0, -EINVAL (low above high), -ENOMEM, or the errno of the thread. */
int page_handles_create(const struct page_handles_config *config, struct page_handles **out,
                        struct page_error *why) MUST_CHECK;
/* Stops the reserve thread at once and releases what is kept. */
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
