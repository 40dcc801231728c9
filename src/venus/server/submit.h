/* venus/server/submit.h - submissions with one more signal in some batches: our own.
 *
 * Batch i also signals the semaphore with values[i], after all its work, unless that is 0.  Ours is
 * the first signal: once another queue goes on because of one of the others, ours has come.  The
 * infos are decoded ones: arrays are copied, chained structures that count semaphores are written
 * in place.  Where there is no batch the result has one, empty but for the signal.
 *
 * Trust: the infos are a peer's, but decoded and bounded.  Threads: one at a time per arena.
 * Lifetime: the result is the arena's.  NULL when the arena is full. */
#ifndef HAWSER_VENUS_SERVER_SUBMIT_H
#define HAWSER_VENUS_SERVER_SUBMIT_H

#include <vulkan/vulkan_core.h>

#include "base/arena.h"

struct vn_signal {
    VkSemaphore semaphore;  /* a timeline */
    const uint64_t *values; /* one a batch */
};

VkSubmitInfo *vn_submit_infos(struct hw_arena *arena, const VkSubmitInfo *infos, uint32_t count,
                              const struct vn_signal *signal);
VkSubmitInfo2 *vn_submit_infos2(struct hw_arena *arena, const VkSubmitInfo2 *infos, uint32_t count,
                                const struct vn_signal *signal);
VkBindSparseInfo *vn_submit_sparse(struct hw_arena *arena, const VkBindSparseInfo *infos,
                                   uint32_t count, const struct vn_signal *signal);

#endif
