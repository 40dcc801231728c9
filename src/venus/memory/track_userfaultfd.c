/* Asynchronous write-protection: the first write to a protected page clears its mark inside the
 * kernel and goes on; a scan reports pages without the mark and sets it again, under the page
 * table's lock.  Pages that do not exist have no mark and are not reported, so a fresh mapping
 * needs no preparation: the write that creates a page also leaves it reported.
 *
 * A fault for each page costs a program that rewrites megabytes, a staging buffer say, more than
 * copying them.  So a span that two collections in a row found written as a whole is left open: its
 * pages are compared at each collection instead.  The first that finds it unchanged protects it,
 * and compares once more: what was written before shows then, what is written later is marked.
 *
 * A span that the owner writes, a buffer that is read back say, is left open too: protecting it
 * after each time interrupts every core that runs the program, which costs more than comparing.  It
 * stays open until a collection finds it unchanged with no write of the owner's since the last, or
 * until the owner is finished with all of it at once, when comparing costs more. */
#include "venus/memory/track.h"

#include <errno.h>
#include <stdlib.h>

enum {
    /* Below this a fault each costs less than the call that spares them, and a comparison at the
     * next collection less than the call that marks them clean. */
    UNLOCK_PAGES_MIN = 4,
    SPAN_BYTES = VN_TRACK_SPAN,
    SPAN_PAGES = SPAN_BYTES / VN_PAGE_BYTES,
};

/* Sets of spans, all that lie in the mapping as a whole. */
struct spans {
    struct vn_pageset written; /* as a whole, at the last collection */
    struct vn_pageset open;
    struct vn_pageset owned; /* open, and written by the owner since the last collection */
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
    vn_pageset_fini(&spans->owned);
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
        err = vn_pageset_init(&spans->owned, count);
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

static int protect(struct vn_track *track, size_t off, size_t len, bool on)
{
    return vn_kernel_protect(track->kernel, (uintptr_t)track->base + off, len, on);
}

static int open_span(struct vn_track *track, size_t at)
{
    struct spans *spans = track->state;
    size_t off = at * SPAN_BYTES, left = track->size - off;
    if (vn_pageset_has(&spans->open, at))
        return 0;
    int err = protect(track, off, left < SPAN_BYTES ? left : SPAN_BYTES, false);
    if (!err)
        vn_pageset_add(&spans->open, at);
    return err;
}

static int unlock(struct vn_track *track, size_t off, size_t len)
{
    struct spans *spans = track->state;
    int err = 0;
    if (len < UNLOCK_PAGES_MIN * track->kernel->page)
        return 0;
    for (size_t at = off / SPAN_BYTES; !err && at * SPAN_BYTES < off + len; at++) {
        err = open_span(track, at);
        vn_pageset_add(&spans->owned, at);
    }
    return err;
}

/* Of open spans nothing is forgotten: they are compared anyway.  A few pages stay marked: what one
 * step gives back is often a page that the next one changes again. */
static int relock(struct vn_track *track, size_t off, size_t len)
{
    struct spans *spans = track->state;
    if (len < UNLOCK_PAGES_MIN * track->kernel->page)
        return -EAGAIN;
    size_t first = off / SPAN_BYTES, count = (off + len - 1) / SPAN_BYTES + 1 - first;
    bool whole = off % SPAN_BYTES == 0 && len % SPAN_BYTES == 0;
    if (!whole && vn_pageset_run(&spans->open, first, count) == count)
        return -EALREADY;
    int err = protect(track, off, len, true);
    for (size_t at = first; !err && whole && at < first + count; at++) {
        vn_pageset_remove(&spans->open, at);
        vn_pageset_remove(&spans->owned, at);
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

/* Part of an open span, or all of it. */
static int take_open(struct vn_track *track, size_t off, size_t len, struct vn_pageset *written)
{
    struct spans *spans = track->state;
    size_t at = off / SPAN_BYTES;
    bool owned = vn_pageset_has(&spans->owned, at);
    vn_pageset_remove(&spans->owned, at);
    if (add_different(track, off, len, written) || owned || len < SPAN_BYTES)
        return 0;
    int err = protect(track, off, len, true);
    if (err)
        return err;
    vn_pageset_remove(&spans->open, at);
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
            err = open_span(track, at);
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
