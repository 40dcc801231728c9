/* page/tensors.h - the K and V tensors of all layers: one virtual range, pages mapped on demand.
 *
 * A batch of map or unmap happens whole or not at all, with a code for each id.  The last batch can
 * be undone.  An unmap therefore keeps the memory and its content until the next batch or commit.
 * The content of a page that has just been mapped is undefined.
 *
 * Trust: ids are checked; a driver's failure is an answer.  When undoing fails as well, the range
 * is in doubt and every later batch answers -ENOTRECOVERABLE.
 * Threads: one at a time, except trim and stats.  Lifetime: create/destroy. */
#ifndef HAWSER_PAGE_TENSORS_H
#define HAWSER_PAGE_TENSORS_H

#include "page/backend/backend.h"
#include "page/geometry.h"
#include "page/handles.h"
#include "page/limit.h"

struct page_tensors_config {
    const struct page_backend_ops *backend;
    struct page_backend_config device;
    uint32_t layers;
    uint64_t page_bytes; /* 0: PAGE_BYTES_DEFAULT */
    enum page_layout layout;
    struct page_limit *limit; /* NULL: none; claimed by the caller, outlives the tensors */

    bool async_sched; /* before an unmap the backend waits for the device's work */
    bool no_reuse;    /* memory that was unmapped is not kept for the next map */
};

struct page_tensors;

/* 0, -ENODEV (no such device here), -EINVAL, -ENOMEM or another negative errno, and why. */
int page_tensors_create(const struct page_tensors_config *config, struct page_tensors **out,
                        struct page_error *why) MUST_CHECK;
void page_tensors_destroy(struct page_tensors *t);

const struct page_geometry *page_tensors_geometry(const struct page_tensors *t);
const struct page_facts *page_tensors_facts(const struct page_tensors *t);
/* Where the range begins if the backend has addresses, else 0. */
uint64_t page_tensors_address(const struct page_tensors *t);

/* The outcome's rc.  Every code is PAGE_DONE on 0; otherwise nothing has changed, the ids that were
 * to blame have their code and the others PAGE_SKIPPED. */
int page_tensors_map(struct page_tensors *t, const uint32_t *ids, size_t count,
                     struct page_outcome *out) MUST_CHECK;
int page_tensors_unmap(struct page_tensors *t, const uint32_t *ids, size_t count,
                       struct page_outcome *out) MUST_CHECK;
/* Unmaps whatever is mapped, for good.  0, or as unmap; then the rest is still mapped. */
int page_tensors_clear(struct page_tensors *t, struct page_outcome *out);
/* Undoes the last batch, once.  -ENOENT when there is none. */
int page_tensors_undo(struct page_tensors *t, struct page_outcome *out) MUST_CHECK;
/* Makes the last batch final: it can no longer be undone. */
void page_tensors_commit(struct page_tensors *t);

bool page_tensors_is_mapped(const struct page_tensors *t, uint32_t id);
uint32_t page_tensors_mapped(const struct page_tensors *t); /* how many ids are */

/* Empties the handle cache and returns the bytes released.  From any thread. */
uint64_t page_tensors_trim(struct page_tensors *t);
void page_tensors_stats(struct page_tensors *t, struct page_handles_stats *out);

/* For tests and for moving pages: within one page of one tensor.  -EFAULT for a page that is not
 * mapped where such a page must not be touched. */
struct page_place {
    uint32_t layer;
    unsigned kv;
    uint32_t id;
    uint64_t offset; /* in the page */
};
int page_tensors_read(struct page_tensors *t, const struct page_place *at, void *dst, size_t len,
                      struct page_error *why) MUST_CHECK;
int page_tensors_write(struct page_tensors *t, const struct page_place *at, const void *src,
                       size_t len, struct page_error *why) MUST_CHECK;

#endif
