/* page/backend/null.c - does nothing, to measure the cost of everything but the driver. */
#include "page/backend/backend.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NULL_MEMORY_BYTES (UINT64_C(64) << 30) /* a common GPU; nothing is taken */

struct null_backend {
    struct page_backend base;
    uint64_t piece_bytes;
    _Atomic uint64_t live; /* relaxed: only itself */
    _Atomic uint64_t next;
};

static int null_open(const struct page_backend_config *config, struct page_backend **out,
                     struct page_error *why)
{
    struct null_backend *n = calloc(1, sizeof *n);
    if (!n)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    n->base.ops = &page_backend_null;
    n->base.facts = (struct page_facts){.granularity = 1,
                                        .memory_bytes = config->memory_bytes ? config->memory_bytes
                                                                             : NULL_MEMORY_BYTES,
                                        .stray = PAGE_STRAY_STRICT};
    snprintf(n->base.facts.device, sizeof n->base.facts.device, "nothing");
    *out = &n->base;
    return 0;
}

static void null_close(struct page_backend *b)
{
    free(b);
}

static int null_reserve(struct page_backend *b, uint64_t range_bytes, uint64_t piece_bytes,
                        struct page_error *why)
{
    (void)range_bytes;
    (void)why;
    ((struct null_backend *)b)->piece_bytes = piece_bytes;
    return 0;
}

static int null_create(struct page_backend *b, page_handle *out, struct page_error *why)
{
    struct null_backend *n = (struct null_backend *)b;
    uint64_t live = atomic_fetch_add_explicit(&n->live, 1, memory_order_relaxed);
    if (live >= b->facts.memory_bytes / n->piece_bytes) {
        atomic_fetch_sub_explicit(&n->live, 1, memory_order_relaxed);
        return page_fail(why, -ENOMEM, 0, "all %llu pieces of the null device are taken",
                         (unsigned long long)live);
    }
    *out = 1 + atomic_fetch_add_explicit(&n->next, 1, memory_order_relaxed);
    return 0;
}

static void null_release(struct page_backend *b, page_handle handle)
{
    (void)handle;
    atomic_fetch_sub_explicit(&((struct null_backend *)b)->live, 1, memory_order_relaxed);
}

static int null_change(struct page_backend *b, const struct page_bind *binds, size_t count,
                       size_t *failed, struct page_error *why)
{
    (void)b, (void)binds, (void)count, (void)failed, (void)why;
    return 0;
}

static int null_finish(struct page_backend *b, struct page_error *why)
{
    (void)b, (void)why;
    return 0;
}

static int null_copy(struct page_backend *b, uint64_t offset, void *data, size_t len, bool in,
                     struct page_error *why)
{
    (void)b, (void)offset, (void)why;
    if (!in)
        memset(data, 0, len);
    return 0;
}

const struct page_backend_ops page_backend_null = {
    .name = "null",
    .open = null_open,
    .close = null_close,
    .reserve = null_reserve,
    .create = null_create,
    .release = null_release,
    .bind = null_change,
    .unbind = null_change,
    .finish = null_finish,
    .copy = null_copy,
};
