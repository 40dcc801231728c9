/* venus/memory/track/pager.h - the thread that the kernel tells of accesses to missing pages.
 *
 * Trust: none needed.
 * Threads: any may attach and detach, but not from within `fault`.  One thread serves all clients:
 * while `fault` waits for one page, others wait too.  It must take no lock whose holder may touch a
 * missing page.
 * Lifetime: the thread runs while a client is attached.  In a child after fork there is none, and
 * the parent's clients are not to be detached. */
#ifndef HAWSER_VENUS_MEMORY_TRACK_PAGER_H
#define HAWSER_VENUS_MEMORY_TRACK_PAGER_H

#include "venus/memory/track/kernel.h"

struct vn_pager_client {
    uintptr_t start;
    uintptr_t end;
    void (*fault)(struct vn_pager_client *client, uintptr_t addr);
    struct vn_pager_client *next; /* private */
};

/* 0, or a negative errno when no thread can be had.  kernel->serves_kernel is set. */
int vn_pager_attach(struct vn_kernel *kernel, struct vn_pager_client *client) MUST_CHECK;

/* Returns once `fault` does not run for the client and will not again. */
void vn_pager_detach(struct vn_pager_client *client);

#endif
