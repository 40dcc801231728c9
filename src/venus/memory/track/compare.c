/* No protection at all: every page that holds memory is compared.  Nothing can interfere with it,
 * and each take reads everything ever touched twice.
 *
 * Of memory that the program mapped itself, pages without memory may have content, too (those of a
 * file), and other mappings may write there: all of it is compared. */
#include "venus/memory/track/track.h"

struct taking {
    const struct vn_track *track;
    struct vn_pageset *written;
};

static void compare_span(void *user, uintptr_t addr, size_t len)
{
    struct taking *taking = user;
    size_t first = (addr - (uintptr_t)taking->track->base) / VN_PAGE_BYTES;
    for (size_t page = first; page < first + len / VN_PAGE_BYTES; page++) {
        if (taking->track->differs(taking->track->user, page))
            vn_pageset_add(taking->written, page);
    }
}

static int take(struct vn_track *track, size_t off, size_t len, struct vn_pageset *written)
{
    struct taking taking = {.track = track, .written = written};
    return vn_kernel_populated(track->kernel, (uintptr_t)track->base + off, len, compare_span,
                               &taking);
}

const struct vn_track_ops vn_track_compare = {
    .name = "compare",
    .take = take,
};

static int take_all(struct vn_track *track, size_t off, size_t len, struct vn_pageset *written)
{
    struct taking taking = {.track = track, .written = written};
    compare_span(&taking, (uintptr_t)track->base + off, len);
    return 0;
}

const struct vn_track_ops vn_track_borrowed = {
    .name = "compare",
    .take = take_all,
};
