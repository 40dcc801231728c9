/* Comparison, spared where it can be: a page that was found unchanged IDLE_TAKES times in a row
 * loses its write access, and is not looked at again until a write to it faults.
 *
 * Pages start open and those in use stay open, because a system call that writes into a protected
 * page fails with EFAULT and there is no way to mend that afterwards. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "venus/memory/track/segv.h"
#include "venus/memory/track/track.h"

enum {
    IDLE_TAKES = 16, /* a buffer used every frame or token never comes near it */
    LOCKED = 255,
    OPENING = 254,  /* about to be writable, perhaps is already: to be looked at */
    LOOK_OVER = 64, /* locked pages: asking about them costs less than another system call */
    OPEN_BYTES =
        64 << 10, /* given back at a fault: a program that fills a buffer faults once each */
};

struct guard {
    struct vn_segv_area area; /* first: the handler finds the guard by it */
    size_t page;
    /* Takes without change, for each host page, or LOCKED or OPENING.  Relaxed: those two come and
     * go under the lock of segv.h only; other values belong to whoever is in take. */
    _Atomic uint8_t idle[];
};

static uint8_t idle_of(const struct guard *guard, size_t i)
{
    return atomic_load_explicit(&guard->idle[i], memory_order_relaxed);
}

static void set_idle(struct guard *guard, size_t i, uint8_t takes)
{
    atomic_store_explicit(&guard->idle[i], takes, memory_order_relaxed);
}

static void replace_idle(struct guard *guard, size_t first, size_t count, uint8_t from, uint8_t to)
{
    for (size_t i = first; i < first + count; i++) {
        if (idle_of(guard, i) == from)
            set_idle(guard, i, to);
    }
}

/* Under the lock.  The pages are marked before they can be written: another thread may write as
 * soon as the kernel lets it, without a fault of its own, and a collection after that write must
 * not take the page for locked. */
static bool open_range(struct guard *guard, size_t first, size_t count)
{
    replace_idle(guard, first, count, LOCKED, OPENING);
    atomic_thread_fence(memory_order_seq_cst); /* the marks before the kernel's page tables */
    void *start = (void *)(guard->area.start + first * guard->page);
    bool opened = mprotect(start, count * guard->page, PROT_READ | PROT_WRITE) == 0;
    replace_idle(guard, first, count, OPENING, opened ? 0 : LOCKED);
    return opened;
}

/* Under the lock.  Where the kernel has no room for another mapping, all of the area is opened,
 * which only ever joins mappings. */
static bool open_pages(struct guard *guard, size_t first, size_t count)
{
    size_t all = (guard->area.end - guard->area.start) / guard->page;
    return open_range(guard, first, count) || open_range(guard, 0, all);
}

/* Under the lock.  Opens the cluster of the page, if the page is locked. */
static bool open_cluster(struct guard *guard, size_t i)
{
    if (idle_of(guard, i) != LOCKED)
        return true; /* another thread's fault has opened it */
    size_t cluster = OPEN_BYTES / guard->page ? OPEN_BYTES / guard->page : 1;
    size_t pages = (guard->area.end - guard->area.start) / guard->page;
    size_t first = i / cluster * cluster;
    return open_pages(guard, first, pages - first < cluster ? pages - first : cluster);
}

static bool on_fault(struct vn_segv_area *area, uintptr_t addr)
{
    struct guard *guard = (struct guard *)area;
    return open_cluster(guard, (addr - area->start) / guard->page);
}

static bool works(const struct vn_kernel *kernel)
{
    (void)kernel;
    return true;
}

static int init(struct vn_track *track)
{
    size_t pages = track->size / track->kernel->page;
    struct guard *guard = calloc(1, sizeof(*guard) + pages);
    if (!guard)
        return -ENOMEM;
    guard->area.start = (uintptr_t)track->base;
    guard->area.end = guard->area.start + track->size;
    guard->area.fault = on_fault;
    guard->page = track->kernel->page;
    int err = vn_segv_add(&guard->area);
    if (err) {
        free(guard);
        return err;
    }
    track->state = guard;
    return 0;
}

static void fini(struct vn_track *track)
{
    struct guard *guard = track->state;
    vn_segv_remove(&guard->area);
    free(guard);
}

/* --- taking -------------------------------------------------------------------------------- */

struct taking {
    struct vn_track *track;
    struct guard *guard;
    struct vn_pageset *written;
    size_t idle_first, idle_count; /* pages about to lose write access */
};

static bool compare_host_page(struct taking *taking, size_t i)
{
    size_t per = taking->guard->page / VN_PAGE_BYTES;
    bool differs = false;
    for (size_t page = i * per; page < (i + 1) * per; page++) {
        if (taking->track->differs(taking->track->user, page)) {
            vn_pageset_add(taking->written, page);
            differs = true;
        }
    }
    return differs;
}

/* Locks first and compares after: a write before the lock shows in the comparison, and a write
 * after it faults. */
static void lock_idle(struct taking *taking)
{
    struct guard *guard = taking->guard;
    size_t first = taking->idle_first, count = taking->idle_count;
    taking->idle_count = 0;
    if (count == 0)
        return;
    sigset_t saved;
    vn_segv_lock(&saved);
    void *start = (void *)(guard->area.start + first * guard->page);
    bool locked = mprotect(start, count * guard->page, PROT_READ) == 0;
    for (size_t i = first; i < first + count; i++)
        set_idle(guard, i, locked ? LOCKED : 0);
    vn_segv_unlock(&saved);
    for (size_t i = first; locked && i < first + count; i++)
        compare_host_page(taking, i);
}

static void look_at(struct taking *taking, size_t i)
{
    uint8_t idle = idle_of(taking->guard, i);
    if (idle == LOCKED)
        return;
    bool differs = compare_host_page(taking, i);
    if (idle == OPENING)
        return; /* whoever opens it sets what comes next */
    idle = differs ? 0 : (uint8_t)(idle + 1);
    if (idle < IDLE_TAKES) {
        set_idle(taking->guard, i, idle);
        return;
    }
    if (taking->idle_first + taking->idle_count != i)
        lock_idle(taking);
    if (taking->idle_count == 0)
        taking->idle_first = i;
    taking->idle_count++;
}

static void look_at_span(void *user, uintptr_t addr, size_t len)
{
    struct taking *taking = user;
    size_t first = (addr - taking->guard->area.start) / taking->guard->page;
    for (size_t i = first; i < first + len / taking->guard->page; i++)
        look_at(taking, i);
}

/* The next span of pages that are not all locked, from i on: short runs of locked pages are looked
 * over rather than asked about separately. */
static size_t open_span(const struct guard *guard, size_t i, size_t end, size_t *first)
{
    while (i < end && idle_of(guard, i) == LOCKED)
        i++;
    *first = i;
    size_t stop = i;
    for (size_t locked = 0; i < end && locked < LOOK_OVER; i++) {
        locked = idle_of(guard, i) == LOCKED ? locked + 1 : 0;
        if (!locked)
            stop = i + 1;
    }
    return stop;
}

static int take(struct vn_track *track, size_t off, size_t len, struct vn_pageset *written)
{
    struct guard *guard = track->state;
    struct taking taking = {.track = track, .guard = guard, .written = written};
    int err = vn_segv_check();
    size_t first, end = (off + len) / guard->page, i = off / guard->page;
    while (!err && (i = open_span(guard, i, end, &first)) > first)
        err = vn_kernel_populated(track->kernel, guard->area.start + first * guard->page,
                                  (i - first) * guard->page, look_at_span, &taking);
    lock_idle(&taking);
    return err;
}

static int begin_write(struct vn_track *track, size_t off, size_t len)
{
    struct guard *guard = track->state;
    bool opened = true;
    for (size_t i = off / guard->page; opened && i < (off + len) / guard->page; i++) {
        sigset_t saved;
        if (idle_of(guard, i) != LOCKED)
            continue;
        vn_segv_lock(&saved);
        opened = open_cluster(guard, i);
        vn_segv_unlock(&saved);
    }
    return opened ? 0 : -ENOMEM;
}

const struct vn_track_ops vn_track_mprotect = {
    .name = "mprotect",
    .works = works,
    .init = init,
    .fini = fini,
    .take = take,
    .begin_write = begin_write,
};
