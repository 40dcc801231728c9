/* venus/memory/region_impl.h - private to src/venus/memory: a region from inside.
 *
 * region.c is about pages that are here, demand.c about pages that are at the server.
 *
 * Every set of pages is read and changed under the lock.
 *
 * set        | a member is a page that             | added by           | removed by
 * -----------|-------------------------------------|--------------------|------------------
 * pending    | may differ from what the server     | collect, expect,   | encode, take_whole,
 *            | has: it is to be sent               | fill               | sent, drop
 * whole      | was sent as a whole the last time;  | take_whole         | encode, expect, drop
 *            | its shadow copy has memory          |                    |
 * unshadowed | has a stale shadow copy: it is to   | take_whole, if in  | encode, apply, store,
 *            | be sent as a whole                  | `whole` before;    | take_whole
 *            |                                     | arrived            |
 * returned   | came from the server as a whole,    | store; create, if  | collect, expect, move,
 *            | and nobody has looked at it since   | borrowed           | store with no news
 * awaited    | a device rewrites: what the program | await              | arrived
 *            | wrote there is not sent any more    |                    |
 * missing    | was dropped: the server has it, and | drop               | fill, lose
 *            | an access to it waits               |                    |
 * requested  | is missing, with a fetch under way  | the pager          | fill, lose
 *
 * No page becomes unshadowed or awaited in a region that can drop pages: of a missing page nothing
 * but the shadow copy is left.  An awaited page is not pending.
 *
 * Trust, Threads, Lifetime: see region.h. */
#ifndef HAWSER_VENUS_MEMORY_REGION_IMPL_H
#define HAWSER_VENUS_MEMORY_REGION_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "venus/memory/region.h"
#include "venus/memory/shadow.h"
#include "venus/memory/track/pager.h"

struct vn_region {
    atomic_uint refs;     /* its own, and one for each place; the last frees the mapping */
    pthread_mutex_t lock; /* all that follows but the memory itself */
    struct vn_kernel *kernel;
    struct vn_track track;
    struct vn_shadow shadow;
    uint8_t *memory; /* the mapping */
    size_t bytes;    /* of the mapping: size in whole host pages */
    bool borrowed;   /* the mapping is the program's */
    bool moves;
    size_t alignment;
    enum vn_track_method method;
    struct vn_pageset pending, whole, unshadowed, returned, awaited, missing, requested;
    bool needs_shadow; /* unshadowed pages that had returned were looked at: none is awaited */

    /* By page, NULL for most: the unsent writes of a missing page.  The mask names the bytes that
     * an answer of the server may lack; of these, the ones that differ from the shadow copy are to
     * be sent.  The array is made with its first member. */
    struct vn_change **saved;
    size_t saved_count;
    struct vn_pages sending; /* whose shadow copies the caller of take_whole is sending */

    vn_fetch_fn *fetch;
    void *user;
    size_t ahead;      /* pages that the next fetch may bring */
    size_t ahead_from; /* where it is, if the program reads on */
    struct vn_pager_client client;
    bool has_pager;
};

/* Takes the lock; false in a child after fork, where the region is the parent's. */
bool vn_region_enter(struct vn_region *region);

/* The host pages that hold the range; false past the end. */
bool vn_region_widen(const struct vn_region *region, size_t *off, size_t *len);

/* ---- demand.c; all under the lock ---- */

/* The first page from `page` on that has saved writes, sent or not; the number of pages when none
 * has. */
size_t vn_demand_next_saved(const struct vn_region *region, size_t page);

/* Puts those that were not sent; false: there are none. */
bool vn_demand_put(struct vn_region *region, struct vn_delta_out *out, size_t page);

/* Whole pages of the server's for a run of missing ones.  0, -EPROTO for a part of a host page, or
 * as vn_region_apply. */
int vn_demand_store(struct vn_region *region, size_t page, size_t run,
                    const uint8_t *bytes) MUST_CHECK;

void vn_demand_fini(struct vn_region *region);

#endif
