/* venus/client/submit/queue.h - submissions, numbered by batch, and what is known to be done.
 *
 * Trust: the program's own; numbers in pushes are the server's and only ever move forward.
 * Threads: Vulkan lets one thread at a time submit to a queue; waits and pushes come from any.
 * Lifetime: with its device. */
#ifndef HAWSER_VENUS_CLIENT_SUBMIT_QUEUE_H
#define HAWSER_VENUS_CLIENT_SUBMIT_QUEUE_H

#include "venus/client/device/device.h"
#include "venus/client/icd.h"

#include <stdatomic.h>

struct vn_ranges;
struct vn_batch; /* one under way: private */

struct vn_queue {
    struct vn_object object;
    struct vn_device *device;
    uint32_t family, index;
    VkDeviceQueueCreateFlags flags;
    /* Release by the push handler, after memory and semaphores are as the batch left them;
     * acquire by whoever answers the program from it. */
    _Atomic uint64_t done;
    _Atomic int32_t result; /* the first failure, sticky; stored before done */
    /* Batches up to `unseen` may be reported done before they are, those up to `early` were
     * (docs/early-fences.md).  Relaxed: they say nothing about memory. */
    _Atomic uint64_t unseen, early;
    pthread_mutex_t lock; /* guards the rest */
    uint64_t submitted;   /* number of the last batch */
    uint64_t visible;     /* number of the last batch whose effects the host can see */
    uint64_t plain;       /* of the last that is more than a few bytes for buffers */
    uint64_t chained;     /* of the last that waits for a binary semaphore: for other queues */
    uint64_t told;        /* of the last that the server will report */
    struct vn_batch *first, **last;
};

void vn_queue_init(struct vn_queue *queue);
void vn_queue_fini(struct vn_queue *queue);

/* From a push. */
void vn_queue_done(struct vn_queue *queue, uint64_t number, VkResult result);

static inline bool vn_queue_has_done(const struct vn_queue *queue, uint64_t number)
{
    return atomic_load_explicit(&queue->done, memory_order_acquire) >= number;
}

/* The same, or reported done before it is. */
static inline bool vn_queue_has_reported(const struct vn_queue *queue, uint64_t number)
{
    return vn_queue_has_done(queue, number) ||
           atomic_load_explicit(&queue->early, memory_order_relaxed) >= number;
}

uint64_t vn_queue_submitted(struct vn_queue *queue);
/* See vn_device_is_working. */
bool vn_queue_is_working(struct vn_queue *queue);
/* The program asks whether a batch is done.  If it may be told so before it is, it is, and the
 * server hears of it. */
void vn_queue_look(struct vn_queue *queue, uint64_t number);
/* Sees to it that the server reports a batch, which it does on its own only where it knows that
 * somebody waits. */
void vn_queue_ask(struct vn_queue *queue, uint64_t number);
/* Whether work under way can write some of that mapped memory. */
bool vn_queue_can_write(struct vn_queue *queue, uint64_t memory);
/* Whether work is under way whose effects the host can see. */
bool vn_queue_is_watched(struct vn_queue *queue);

/* Asks for ranges now.  VK_SUCCESS or VK_ERROR_DEVICE_LOST. */
VkResult vn_device_read(struct vn_device *device, const struct vn_ranges *ranges) MUST_CHECK;
/* What batches under way may still change, read now. */
VkResult vn_device_read_back(struct vn_device *device) MUST_CHECK;

extern const struct vn_entry vn_entries_queue[];

#endif
