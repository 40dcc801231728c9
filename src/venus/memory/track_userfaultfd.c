/* Asynchronous write-protection: the first write to a protected page clears its mark inside the
 * kernel and goes on; a scan reports pages without the mark and sets it again, under the page
 * table's lock.  Pages that do not exist have no mark and are not reported, so a fresh mapping
 * needs no preparation: the write that creates a page also leaves it reported.
 *
 * A fault for each page costs a program that rewrites megabytes, a staging buffer say, more than
 * copying them.  So a span that two collections in a row found written as a whole is left open: its
 * pages are compared at each collection instead.  The first that finds it unchanged protects it,
 * and compares once more: what was written before shows then, what is written later is marked. */
#include "venus/memory/track.h"

#include <errno.h>
#include <stdlib.h>

enum {
    UNLOCK_PAGES_MIN = 4, /* below this a fault each costs less than the call that spares them */
    SPAN_BYTES = 256 << 10,
    SPAN_PAGES = SPAN_BYTES / VN_PAGE_BYTES,
};

/* Sets of spans, all that lie in the mapping as a whole. */
struct spans {
    struct vn_pageset written; /* as a whole, at the last collection */
    struct vn_pageset open;
};

static bool works(const struct vn_kernel *kernel)
{
    return kernel->uffd >= 0;
}

static void fini(struct vn_track *track)
{
    struct spans *spans = track->state; /* unmapping ends the watch */
    if (!spans)
        return;
    vn_pageset_fini(&spans->written);
    vn_pageset_fini(&spans->open);
    free(spans);
}

static int init(struct vn_track *track)
{
    struct spans *spans = calloc(1, sizeof(*spans));
    if (!spans)
        return -ENOMEM;
    track->state = spans;
    size_t count = track->size / SPAN_BYTES + 1;
    int err = vn_pageset_init(&spans->written, count);
    if (!err)
        err = vn_pageset_init(&spans->open, count);
    if (!err)
        err = vn_kernel_watch(track->kernel, (uintptr_t)track->base, track->size, false);
    if (err) {
        fini(track);
        track->state = NULL;
    }
    return err;
}

struct taking {
    const struct vn_track *track;
    struct vn_pageset *written;
};

static void add_span(void *user, uintptr_t addr, size_t len)
{
    struct taking *taking = user;
    size_t off = addr - (uintptr_t)taking->track->base;
    vn_pageset_add_span(taking->written, off / VN_PAGE_BYTES, len / VN_PAGE_BYTES);
}

static int unlock(struct vn_track *track, size_t off, size_t len)
{
    if (len < UNLOCK_PAGES_MIN * track->kernel->page)
        return 0;
    return vn_kernel_protect(track->kernel, (uintptr_t)track->base + off, len, false);
}

static int relock(struct vn_track *track, size_t off, size_t len)
{
    return vn_kernel_protect(track->kernel, (uintptr_t)track->base + off, len, true);
}

/* Adds the pages of [off, off + len) that differ; whether any does. */
static bool add_different(struct vn_track *track, size_t off, size_t len,
                          struct vn_pageset *written)
{
    bool any = false;
    for (size_t page = off / VN_PAGE_BYTES; page < (off + len) / VN_PAGE_BYTES; page++) {
        if (track->differs(track->user, page)) {
            vn_pageset_add(written, page);
            any = true;
        }
    }
    return any;
}

/* Part of an open span, or all of it. */
static int take_open(struct vn_track *track, size_t off, size_t len, struct vn_pageset *written)
{
    struct spans *spans = track->state;
    if (add_different(track, off, len, written) || len < SPAN_BYTES)
        return 0;
    int err = relock(track, off, len);
    if (err)
        return err;
    vn_pageset_remove(&spans->open, off / SPAN_BYTES);
    (void)add_different(track, off, len, written);
    return 0;
}

/* Remembers which spans were written as a whole; opens those that were the last time, too. */
static int note_spans(struct vn_track *track, size_t off, size_t end,
                      const struct vn_pageset *written)
{
    struct spans *spans = track->state;
    int err = 0;
    for (size_t at = (off + SPAN_BYTES - 1) / SPAN_BYTES; !err && (at + 1) * SPAN_BYTES <= end;
         at++) {
        bool whole = vn_pageset_run(written, at * SPAN_PAGES, SPAN_PAGES) == SPAN_PAGES;
        if (!whole) {
            vn_pageset_remove(&spans->written, at);
        } else if (!vn_pageset_has(&spans->written, at)) {
            vn_pageset_add(&spans->written, at);
        } else {
            err = unlock(track, at * SPAN_BYTES, SPAN_BYTES);
            if (!err)
                vn_pageset_add(&spans->open, at);
        }
    }
    return err;
}

static int take_marked(struct vn_track *track, size_t off, size_t len, struct vn_pageset *written)
{
    struct taking taking = {.track = track, .written = written};
    int err =
        vn_kernel_take_written(track->kernel, (uintptr_t)track->base + off, len, add_span, &taking);
    return err ? err : note_spans(track, off, off + len, written);
}

static int take(struct vn_track *track, size_t off, size_t len, struct vn_pageset *written)
{
    const struct spans *spans = track->state;
    size_t end = off + len;
    int err = 0;
    while (!err && off < end) {
        size_t span = off / SPAN_BYTES;
        size_t next = vn_pageset_next(&spans->open, span);
        bool open = next == span;
        size_t stop = (open ? span + 1 : next) * SPAN_BYTES;
        if (stop > end || (!open && next == spans->open.pages))
            stop = end;
        err = (open ? take_open : take_marked)(track, off, stop - off, written);
        off = stop;
    }
    return err;
}

const struct vn_track_ops vn_track_userfaultfd = {
    .name = "userfaultfd",
    .works = works,
    .init = init,
    .fini = fini,
    .take = take,
    .unlock = unlock,
    .relock = relock,
};
