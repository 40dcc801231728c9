/* Asynchronous write-protection: the first write to a protected page clears its mark inside the
 * kernel and goes on; a scan reports pages without the mark and sets it again, under the page
 * table's lock.  Pages that do not exist have no mark and are not reported, so a fresh mapping
 * needs no preparation: the write that creates a page also leaves it reported. */
#include "venus/memory/track.h"

/* Below this many pages a fault each costs less than the call that spares them. */
enum { UNLOCK_PAGES_MIN = 4 };

static bool works(const struct vn_kernel *kernel)
{
    return kernel->uffd >= 0;
}

static int init(struct vn_track *track)
{
    return vn_kernel_watch(track->kernel, (uintptr_t)track->base, track->size, false);
}

static void fini(struct vn_track *track)
{
    (void)track; /* unmapping ends the watch */
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

static int take(struct vn_track *track, size_t off, size_t len, struct vn_pageset *written)
{
    struct taking taking = {.track = track, .written = written};
    return vn_kernel_take_written(track->kernel, (uintptr_t)track->base + off, len, add_span,
                                  &taking);
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

const struct vn_track_ops vn_track_userfaultfd = {
    .name = "userfaultfd",
    .works = works,
    .init = init,
    .fini = fini,
    .take = take,
    .unlock = unlock,
    .relock = relock,
};
