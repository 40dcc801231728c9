/* Asynchronous write-protection: the first write to a protected page clears its mark inside the
 * kernel and goes on; a scan reports pages without the mark and sets it again, under the page
 * table's lock.  Pages that do not exist have no mark and are not reported, so a fresh mapping
 * needs no preparation: the write that creates a page also leaves it reported.
 *
 * A fault for each page costs a program that rewrites megabytes, a staging buffer say, more than
 * copying them.  So a span that a collection finds written, as far as it looks, is left open: its
 * pages are compared at each collection instead.  Once it is found unchanged, or unchanged for a
 * while where it was written more than once, it is protected and compared once more: what was
 * written before shows then, what is written later is marked.
 *
 * A span that the owner writes, a buffer that is read back say, is left open too: protecting it
 * after each time interrupts every core that runs the program, which costs more than comparing.  It
 * stays open until a collection finds it unchanged with no write of the owner's since the last, or
 * until the owner is finished with all of it at once, when comparing costs more. */
#include "venus/memory/track/track.h"

#include <errno.h>
#include <stdlib.h>

enum {
    /* Below this a fault each costs less than the call that spares them, and a comparison at the
     * next collection less than the call that marks them clean. */
    UNLOCK_PAGES_MIN = 4,
    SPAN_BYTES = VN_TRACK_SPAN,
    /* Of a span that a collection reaches into, the least that is worth to be spared faults. */
    SPAN_PART_PAGES = 4,
    /* Collections that find a span unchanged before it is protected, where it was written again
     * since it was opened first.  Comparing it costs a tenth of the faults of writing it, and a
     * program may write the same bytes again. */
    IDLE_MAX = 8,
};

/* Sets of spans. */
struct spans {
    struct vn_pageset open;
    struct vn_pageset owned; /* open, and written by the owner since the last collection */
    struct vn_pageset again; /* were open before */
    uint8_t *left;           /* of each open one: collections that may find it unchanged */
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
    vn_pageset_fini(&spans->open);
    vn_pageset_fini(&spans->owned);
    vn_pageset_fini(&spans->again);
    free(spans->left);
    free(spans);
}

static int init(struct vn_track *track)
{
    struct spans *spans = calloc(1, sizeof(*spans));
    if (!spans)
        return -ENOMEM;
    track->state = spans;
    size_t count = track->size / SPAN_BYTES + 1;
    int err = vn_pageset_init(&spans->open, count);
    if (!err)
        err = vn_pageset_init(&spans->owned, count);
    if (!err)
        err = vn_pageset_init(&spans->again, count);
    if (!err) {
        spans->left = calloc(count, 1);
        err = spans->left ? 0 : -ENOMEM;
    }
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

/* What lies in the mapping of a span. */
static size_t span_bytes(const struct vn_track *track, size_t at)
{
    size_t left = track->size - at * SPAN_BYTES;
    return left < SPAN_BYTES ? left : SPAN_BYTES;
}

static int open_span(struct vn_track *track, size_t at)
{
    struct spans *spans = track->state;
    if (vn_pageset_has(&spans->open, at))
        return 0;
    int err = protect(track, at * SPAN_BYTES, span_bytes(track, at), false);
    if (!err) {
        vn_pageset_add(&spans->open, at);
        spans->left[at] = vn_pageset_has(&spans->again, at) ? IDLE_MAX : 1;
        vn_pageset_add(&spans->again, at);
    }
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
    if (add_different(track, off, len, written) || owned)
        spans->left[at] = IDLE_MAX;
    else
        spans->left[at]--;
    if (spans->left[at])
        return 0;
    size_t start = at * SPAN_BYTES, bytes = span_bytes(track, at);
    int err = protect(track, start, bytes, true);
    if (err)
        return err;
    vn_pageset_remove(&spans->open, at);
    (void)add_different(track, start, bytes, written);
    return 0;
}

static int open_written(struct vn_track *track, size_t off, size_t end,
                        const struct vn_pageset *written)
{
    int err = 0;
    for (size_t stop; !err && off < end; off = stop) {
        size_t at = off / SPAN_BYTES;
        stop = (at + 1) * SPAN_BYTES < end ? (at + 1) * SPAN_BYTES : end;
        size_t pages = (stop - off) / VN_PAGE_BYTES;
        if (pages >= SPAN_PART_PAGES &&
            vn_pageset_run(written, off / VN_PAGE_BYTES, pages) == pages)
            err = open_span(track, at);
    }
    return err;
}

static int take_marked(struct vn_track *track, size_t off, size_t len, struct vn_pageset *written)
{
    struct taking taking = {.track = track, .written = written};
    int err =
        vn_kernel_take_written(track->kernel, (uintptr_t)track->base + off, len, add_span, &taking);
    return err ? err : open_written(track, off, off + len, written);
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
