/* Asynchronous write-protection.  The first write to a protected page removes the protection inside
 * the kernel; a scan reports unprotected pages and protects them again, under the page table's
 * lock. Pages that do not exist are not reported.  The write that creates a page leaves it
 * unprotected, so a fresh mapping needs no preparation.
 *
 * A fault for each page costs a program that rewrites megabytes more than copying them does.  So
 * spans of 256 KiB are tracked or untracked.  Pages of an untracked span are unprotected, and each
 * collection compares them.  A span becomes untracked when a collection finds all of it written, as
 * far as it looks, or when the owner writes several pages of it in a row.  It is tracked again
 * after some collections found it unchanged: it is protected and then compared once more, so that a
 * write before the protection shows and a later one is reported. */
#include "venus/memory/track/track.h"

#include <errno.h>
#include <stdlib.h>

enum {
    SPAN_BYTES = 256 << 10,
    /* Pages in a row that the owner writes, and pages of a span that a collection finds written,
     * before the span is untracked: fewer faults cost less than comparing 256 KiB. */
    PAGES_MIN = 4,
    /* Collections that find a span unchanged before it is tracked again; 1 where the program wrote
     * it for the first time.  A comparison costs a tenth of the faults, and programs may write the
     * same bytes again. */
    IDLE_MAX = 8,
};

struct span {
    uint8_t left;    /* 0: tracked; else collections that may yet find it unchanged */
    bool was_before; /* untracked once before */
};

struct state {
    size_t untracked; /* spans */
    size_t write_end; /* where the owner's last write ended, and how long its run is */
    size_t write_bytes;
    struct span spans[];
};

static bool works(const struct vn_kernel *kernel)
{
    return kernel->uffd >= 0;
}

static void fini(struct vn_track *track)
{
    free(track->state); /* unmapping ends the watch */
}

static int init(struct vn_track *track)
{
    size_t count = (track->size + SPAN_BYTES - 1) / SPAN_BYTES;
    struct state *state = calloc(1, sizeof(*state) + count * sizeof(struct span));
    if (!state)
        return -ENOMEM;
    int err = vn_kernel_watch(track->kernel, (uintptr_t)track->base, track->size, false);
    if (err)
        free(state);
    else
        track->state = state;
    return err;
}

static int protect(struct vn_track *track, size_t at, bool on)
{
    size_t off = at * SPAN_BYTES, left = track->size - off;
    return vn_kernel_protect(track->kernel, (uintptr_t)track->base + off,
                             left < SPAN_BYTES ? left : SPAN_BYTES, on);
}

static int untrack(struct vn_track *track, size_t at)
{
    struct state *state = track->state;
    struct span *span = &state->spans[at];
    if (span->left)
        return 0;
    int err = protect(track, at, false);
    if (!err) {
        span->left = span->was_before ? IDLE_MAX : 1;
        span->was_before = true;
        state->untracked++;
    }
    return err;
}

static int begin_write(struct vn_track *track, size_t off, size_t len)
{
    struct state *state = track->state;
    if (off == state->write_end)
        state->write_bytes += len;
    else if (off + len != state->write_end) /* the same page again changes nothing */
        state->write_bytes = len;
    state->write_end = off + len;
    if (state->write_bytes < PAGES_MIN * track->kernel->page)
        return 0;
    int err = 0;
    for (size_t at = off / SPAN_BYTES; !err && at * SPAN_BYTES < off + len; at++) {
        err = untrack(track, at);
        if (!err)
            state->spans[at].left = IDLE_MAX + 1; /* the next collection does not count */
    }
    return err;
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

/* An untracked span, or a part of it. */
static int take_untracked(struct vn_track *track, size_t off, size_t len,
                          struct vn_pageset *written)
{
    struct state *state = track->state;
    size_t at = off / SPAN_BYTES, start = at * SPAN_BYTES, left = track->size - start;
    struct span *span = &state->spans[at];
    if (add_different(track, off, len, written))
        span->left = IDLE_MAX;
    else if (span->left > 1)
        span->left--;
    else {
        int err = protect(track, at, true);
        if (err)
            return err;
        span->left = 0;
        state->untracked--;
        (void)add_different(track, start, left < SPAN_BYTES ? left : SPAN_BYTES, written);
    }
    return 0;
}

struct taking {
    const struct vn_track *track;
    struct vn_pageset *written;
};

static void add_pages(void *user, uintptr_t addr, size_t len)
{
    struct taking *taking = user;
    size_t off = addr - (uintptr_t)taking->track->base;
    vn_pageset_add_span(taking->written, off / VN_PAGE_BYTES, len / VN_PAGE_BYTES);
}

/* Tracked spans; untracks those that are found written, as far as the range goes. */
static int take_tracked(struct vn_track *track, size_t off, size_t len, struct vn_pageset *written)
{
    struct taking taking = {.track = track, .written = written};
    int err = vn_kernel_take_written(track->kernel, (uintptr_t)track->base + off, len, add_pages,
                                     &taking);
    for (size_t end = off + len, stop; !err && off < end; off = stop) {
        size_t at = off / SPAN_BYTES;
        stop = (at + 1) * SPAN_BYTES < end ? (at + 1) * SPAN_BYTES : end;
        size_t pages = (stop - off) / VN_PAGE_BYTES;
        if (pages >= PAGES_MIN && vn_pageset_run(written, off / VN_PAGE_BYTES, pages) == pages)
            err = untrack(track, at);
    }
    return err;
}

static int take(struct vn_track *track, size_t off, size_t len, struct vn_pageset *written)
{
    const struct state *state = track->state;
    size_t end = off + len;
    int err = 0;
    for (size_t stop; !err && off < end; off = stop) {
        size_t at = off / SPAN_BYTES;
        bool tracked = state->spans[at].left == 0;
        stop = tracked && state->untracked == 0 ? end : (at + 1) * SPAN_BYTES;
        while (tracked && stop < end && state->spans[stop / SPAN_BYTES].left == 0)
            stop += SPAN_BYTES;
        stop = stop < end ? stop : end;
        err = (tracked ? take_tracked : take_untracked)(track, off, stop - off, written);
    }
    return err;
}

const struct vn_track_ops vn_track_userfaultfd = {
    .name = "userfaultfd",
    .works = works,
    .init = init,
    .fini = fini,
    .take = take,
    .begin_write = begin_write,
};
