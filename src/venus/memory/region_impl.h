/* venus/memory/region_impl.h - private to src/venus/memory: a region from inside.
 *
 * region.c is about pages that are here, demand.c about those that are at the server.
 *
 * Trust, Threads, Lifetime: see region.h. */
#ifndef HAWSER_VENUS_MEMORY_REGION_IMPL_H
#define HAWSER_VENUS_MEMORY_REGION_IMPL_H

#include <pthread.h>

#include "venus/memory/region.h"
#include "venus/memory/shadow.h"
#include "venus/memory/track/pager.h"

struct vn_region {
    pthread_mutex_t lock; /* all that follows but the memory itself */
    struct vn_kernel *kernel;
    struct vn_track track;
    struct vn_shadow shadow;
    struct vn_pageset pending;   /* to be encoded */
    struct vn_pageset missing;   /* dropped; the server has them */
    struct vn_pageset requested; /* missing and asked for */
    struct vn_pageset populated; /* whose shadow copy has memory */
    struct vn_pageset whole;     /* sent as a whole the last time */
    struct vn_pageset
        unshadowed; /* whose shadow copy is not what the server has; see vn_region_take_whole */
    uint8_t *memory;
    size_t bytes; /* of memory: size in whole host pages */

    /* Missing pages that the program had written: by page, what they held, and in the mask which
     * bytes of it an answer of the server may lack.  Those that differ from the shadow copy are yet
     * to be sent. */
    struct vn_change **saved; /* from the first one on */
    struct vn_pageset is_saved;
    struct vn_pages sending; /* whose shadow copy vn_region_take_whole gave out */

    vn_fetch_fn *fetch;
    void *user;
    size_t ahead;      /* pages that the next fetch may bring */
    size_t ahead_from; /* where it is, if the program reads on */
    struct vn_pager_client client;
    bool has_pager;
};

bool vn_region_is_foreign(const struct vn_region *region);

/* The host pages that hold the range; false past the end. */
bool vn_region_widen(const struct vn_region *region, size_t *off, size_t *len);

/* ---- demand.c; all under the lock ---- */

/* Puts what the program wrote into pages before they were dropped, as far as there is room.  The
 * changes put; *more: there was no room for all. */
size_t vn_demand_encode(struct vn_region *region, struct vn_delta_out *out, size_t budget,
                        bool *more);

/* The server will have these n bytes of a page that is missing now. */
void vn_demand_sent(struct vn_region *region, size_t page, const uint8_t *bytes, size_t n);

void vn_demand_fini(struct vn_region *region);

#endif
