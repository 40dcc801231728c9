/* Comparison, spared where that is possible.  A page that IDLE_TAKES collections in a row found
 * unchanged loses its write access, and is not looked at again until a write to it faults.
 *
 * Pages start open, and those in use stay open: a system call that writes into a protected page
 * fails with EFAULT, and nothing can undo that afterwards. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "venus/memory/track/segv.h"
#include "venus/memory/track/track.h"

enum {
    IDLE_TAKES = 16, /* a buffer used every frame or token never comes near it */
    PROTECTED = 255,
    OPENING = 254,  /* about to be writable, or is already: to be compared */
    LOOK_OVER = 64, /* protected pages in a row: a system call costs more than asking about them */
    OPEN_BYTES =
        64 << 10, /* given back at a fault: a program that fills a buffer faults once each */
};

struct state {
    struct vn_segv_area area; /* first: the handler finds the rest by it */
    size_t page;
    /* Takes without change, for each host page, or PROTECTED or OPENING.  Relaxed: those two come
     * and go under the lock of segv.h only; other values belong to whoever is in take. */
    _Atomic uint8_t idle[];
};

static uint8_t idle_of(const struct state *state, size_t i)
{
    return atomic_load_explicit(&state->idle[i], memory_order_relaxed);
}

static void set_idle(struct state *state, size_t i, uint8_t takes)
{
    atomic_store_explicit(&state->idle[i], takes, memory_order_relaxed);
}

static void replace_idle(struct state *state, size_t first, size_t count, uint8_t from, uint8_t to)
{
    for (size_t i = first; i < first + count; i++) {
        if (idle_of(state, i) == from)
            set_idle(state, i, to);
    }
}

/* Under the lock.  The pages are marked before they can be written: another thread may write,
 * without a fault, as soon as the kernel allows it, and a collection after that write must look at
 * them. */
static bool open_range(struct state *state, size_t first, size_t count)
{
    replace_idle(state, first, count, PROTECTED, OPENING);
    atomic_thread_fence(memory_order_seq_cst); /* the marks before the kernel's page tables */
    void *start = (void *)(state->area.start + first * state->page);
    bool opened = mprotect(start, count * state->page, PROT_READ | PROT_WRITE) == 0;
    replace_idle(state, first, count, OPENING, opened ? 0 : PROTECTED);
    return opened;
}

/* Under the lock.  Where the kernel has no room for another mapping, all of the area is opened:
 * that only joins mappings. */
static bool open_pages(struct state *state, size_t first, size_t count)
{
    size_t all = (state->area.end - state->area.start) / state->page;
    return open_range(state, first, count) || open_range(state, 0, all);
}

/* Under the lock.  Opens the cluster of a protected page. */
static bool open_cluster(struct state *state, size_t i)
{
    if (idle_of(state, i) != PROTECTED)
        return true; /* another thread's fault has opened it */
    size_t cluster = OPEN_BYTES / state->page ? OPEN_BYTES / state->page : 1;
    size_t pages = (state->area.end - state->area.start) / state->page;
    size_t first = i / cluster * cluster;
    return open_pages(state, first, pages - first < cluster ? pages - first : cluster);
}

static bool on_fault(struct vn_segv_area *area, uintptr_t addr)
{
    struct state *state = (struct state *)area;
    return open_cluster(state, (addr - area->start) / state->page);
}

static int init(struct vn_track *track)
{
    size_t pages = track->size / track->kernel->page;
    struct state *state = calloc(1, sizeof(*state) + pages);
    if (!state)
        return -ENOMEM;
    state->area.start = (uintptr_t)track->base;
    state->area.end = state->area.start + track->size;
    state->area.fault = on_fault;
    state->page = track->kernel->page;
    int err = vn_segv_add(&state->area);
    if (err) {
        free(state);
        return err;
    }
    track->state = state;
    return 0;
}

static void fini(struct vn_track *track)
{
    struct state *state = track->state;
    vn_segv_remove(&state->area);
    free(state);
}

/* --- taking -------------------------------------------------------------------------------- */

struct taking {
    struct vn_track *track;
    struct state *state;
    struct vn_pageset *written;
    size_t idle_first, idle_count; /* pages about to lose write access */
};

static bool compare_host_page(struct taking *taking, size_t i)
{
    size_t per = taking->state->page / VN_PAGE_BYTES;
    bool differs = false;
    for (size_t page = i * per; page < (i + 1) * per; page++) {
        if (taking->track->differs(taking->track->user, page)) {
            vn_pageset_add(taking->written, page);
            differs = true;
        }
    }
    return differs;
}

/* Protects first and compares then: an earlier write shows in the comparison, a later one faults.
 */
static void protect_idle(struct taking *taking)
{
    struct state *state = taking->state;
    size_t first = taking->idle_first, count = taking->idle_count;
    taking->idle_count = 0;
    if (count == 0)
        return;
    sigset_t saved;
    vn_segv_lock(&saved);
    void *start = (void *)(state->area.start + first * state->page);
    bool protected = mprotect(start, count * state->page, PROT_READ) == 0;
    for (size_t i = first; i < first + count; i++)
        set_idle(state, i, protected ? PROTECTED : 0);
    vn_segv_unlock(&saved);
    for (size_t i = first; protected && i < first + count; i++)
        compare_host_page(taking, i);
}

static void look_at(struct taking *taking, size_t i)
{
    uint8_t idle = idle_of(taking->state, i);
    if (idle == PROTECTED)
        return;
    bool differs = compare_host_page(taking, i);
    if (idle == OPENING)
        return; /* the thread that makes it writable sets the next value */
    idle = differs ? 0 : (uint8_t)(idle + 1);
    if (idle < IDLE_TAKES) {
        set_idle(taking->state, i, idle);
        return;
    }
    if (taking->idle_first + taking->idle_count != i)
        protect_idle(taking);
    if (taking->idle_count == 0)
        taking->idle_first = i;
    taking->idle_count++;
}

static void look_at_span(void *user, uintptr_t addr, size_t len)
{
    struct taking *taking = user;
    size_t first = (addr - taking->state->area.start) / taking->state->page;
    for (size_t i = first; i < first + len / taking->state->page; i++)
        look_at(taking, i);
}

/* The next span from i on with writable pages; it includes short runs of protected pages. */
static size_t open_span(const struct state *state, size_t i, size_t end, size_t *first)
{
    while (i < end && idle_of(state, i) == PROTECTED)
        i++;
    *first = i;
    size_t stop = i;
    for (size_t skipped = 0; i < end && skipped < LOOK_OVER; i++) {
        skipped = idle_of(state, i) == PROTECTED ? skipped + 1 : 0;
        if (!skipped)
            stop = i + 1;
    }
    return stop;
}

static int take(struct vn_track *track, size_t off, size_t len, struct vn_pageset *written)
{
    struct state *state = track->state;
    struct taking taking = {.track = track, .state = state, .written = written};
    int err = vn_segv_check();
    size_t first, end = (off + len) / state->page, i = off / state->page;
    while (!err && (i = open_span(state, i, end, &first)) > first)
        err = vn_kernel_populated(track->kernel, state->area.start + first * state->page,
                                  (i - first) * state->page, look_at_span, &taking);
    protect_idle(&taking);
    return err;
}

static int begin_write(struct vn_track *track, size_t off, size_t len)
{
    struct state *state = track->state;
    bool opened = true;
    for (size_t i = off / state->page; opened && i < (off + len) / state->page; i++) {
        sigset_t saved;
        if (idle_of(state, i) != PROTECTED)
            continue;
        vn_segv_lock(&saved);
        opened = open_cluster(state, i);
        vn_segv_unlock(&saved);
    }
    return opened ? 0 : -ENOMEM;
}

const struct vn_track_ops vn_track_mprotect = {
    .name = "mprotect",
    .init = init,
    .fini = fini,
    .take = take,
    .begin_write = begin_write,
};
