/* venus/server/submit/update.h - bytes that go into buffers by a command buffer of our own.
 *
 * In place of submissions of nothing but small copies, whose bytes the client sends.  Those that
 * come together are submitted together.  A queue has its own few command buffers, each recorded
 * again once its batches are done.  Everything submitted to the queue before is done when the bytes
 * are written, and everything behind waits for them.
 *
 * Trust: buffers are the client's, offsets and sizes are held against what a command takes.
 * Threads: the executor's.  Lifetime: with the queue; the work must be done at destroy. */
#ifndef HAWSER_VENUS_SERVER_SUBMIT_UPDATE_H
#define HAWSER_VENUS_SERVER_SUBMIT_UPDATE_H

#include <vulkan/vulkan_core.h>

#include "base/attr.h"

struct vns_queue;
struct vns_updater;

struct vns_update {
    VkBuffer buffer;
    VkDeviceSize offset, size; /* multiples of 4; up to VN_UPDATE_BYTES */
    const void *bytes;
};

/* Records the updates of the batch with this number, if any.  VK_SUCCESS, or what the driver said.
 */
VkResult vns_update_add(struct vns_queue *queue, const struct vns_update *updates, uint32_t count,
                        uint64_t number) MUST_CHECK;
/* Submits what was recorded, if anything: the queue's semaphore will reach the last number.
 * Likewise. */
VkResult vns_update_submit(struct vns_queue *queue) MUST_CHECK;

void vns_updater_destroy(struct vns_updater *updater, const struct vns_queue *queue);

#endif
