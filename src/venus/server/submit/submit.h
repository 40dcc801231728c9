/* venus/server/submit/submit.h - submissions with more signals in some batches: our own.
 *
 * Batch i also signals the semaphore with values[i], after all its work and what else it signals,
 * unless that is 0; where it signals something else, `before` as well, before that.  The order is
 * that of the arrays, which drivers keep to though Vulkan does not ask them to.  The
 * infos are decoded ones: arrays are copied, chained structures that count semaphores are written
 * in place.  Where there is no batch the result has one, empty but for the signal.
 *
 * Trust: the infos are a peer's, but decoded and bounded.  Threads: one at a time per arena.
 * Lifetime: the result is the arena's.  NULL when the arena is full. */
#ifndef HAWSER_VENUS_SERVER_SUBMIT_SUBMIT_H
#define HAWSER_VENUS_SERVER_SUBMIT_SUBMIT_H

#include <vulkan/vulkan_core.h>

#include "base/arena.h"
#include "base/attr.h"

struct vns_signal {
    VkSemaphore before;     /* a timeline or NULL */
    VkSemaphore semaphore;  /* a timeline */
    const uint64_t *values; /* one a batch */
};

VkSubmitInfo *vns_submit_infos(struct hw_arena *arena, const VkSubmitInfo *infos, uint32_t count,
                               const struct vns_signal *signal);
VkSubmitInfo2 *vns_submit_infos2(struct hw_arena *arena, const VkSubmitInfo2 *infos, uint32_t count,
                                 const struct vns_signal *signal);
VkBindSparseInfo *vns_submit_sparse(struct hw_arena *arena, const VkBindSparseInfo *infos,
                                    uint32_t count, const struct vns_signal *signal);

/* A batch of our own, with or without commands: it waits for one timeline semaphore or signals one,
 * NULL for neither. */
struct vns_own_batch {
    VkCommandBuffer commands;
    VkSemaphore wait, signal;
    uint64_t value; /* of either */
};

/* What the driver said. */
VkResult vns_submit_own(PFN_vkQueueSubmit submit, VkQueue queue,
                        const struct vns_own_batch *batch) MUST_CHECK;

#endif
