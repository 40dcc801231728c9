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

struct vnc_range;
struct vnc_ranges;
struct vnc_batch; /* one under way: private */

struct vnc_queue {
    struct vn_object object;
    struct vnc_device *device;
    uint32_t family, index;
    VkDeviceQueueCreateFlags flags;
    /* Release by the push handler, after memory and semaphores are as the batch left them;
     * acquire by whoever answers the program from it. */
    _Atomic uint64_t done;
    _Atomic int32_t result; /* the first failure, sticky; stored before done */
    /* Batches up to `unseen` may be reported done before they are, those up to `early` were
     * (docs/design/fences.md).  Relaxed: they say nothing about memory. */
    _Atomic uint64_t unseen, early;
    pthread_mutex_t lock; /* guards the rest */
    uint64_t submitted;   /* number of the last batch */
    uint64_t visible;     /* number of the last batch whose effects the host can see */
    uint64_t plain;       /* of the last that is more than a few bytes for buffers */
    uint64_t chained;     /* of the last that waits for other queues, by a semaphore */
    uint64_t told;        /* of the last that the server will report */
    uint64_t waiting;     /* of the last that may wait for the host */
    uint64_t raised;      /* of the last whose semaphores have been raised before it was done */
    struct vnc_batch *first, **last;
};

void vnc_queue_init(struct vnc_queue *queue);
void vnc_queue_fini(struct vnc_queue *queue);

/* From a push.  `arrived` is called for ranges whose pages were awaited, before anybody can see
 * that the batch is done. */
void vnc_queue_done(struct vnc_queue *queue, uint64_t number, VkResult result,
                    void (*arrived)(void *user, const struct vnc_range *pages), void *user);

static inline bool vnc_queue_has_done(const struct vnc_queue *queue, uint64_t number)
{
    return atomic_load_explicit(&queue->done, memory_order_acquire) >= number;
}

/* The same, or reported done before it is. */
static inline bool vnc_queue_has_reported(const struct vnc_queue *queue, uint64_t number)
{
    return vnc_queue_has_done(queue, number) ||
           atomic_load_explicit(&queue->early, memory_order_relaxed) >= number;
}

uint64_t vnc_queue_submitted(struct vnc_queue *queue);
/* See vnc_device_is_working. */
bool vnc_queue_is_working(struct vnc_queue *queue);
/* The program asks whether a batch is done.  If it may be told so before it is, it is, and the
 * server hears of it. */
void vnc_queue_look(struct vnc_queue *queue, uint64_t number);
/* The same for the batch that brings a timeline to the value, if there is one. */
struct vnc_semaphore;
void vnc_queue_look_for(struct vnc_queue *queue, const struct vnc_semaphore *semaphore,
                        uint64_t value);
/* Submits what writes nothing that the program can see.  Who waits for it needs vnc_queue_has_done.
 */
VkResult vnc_queue_submit_own(struct vnc_queue *queue, const VkSubmitInfo *info) MUST_CHECK;
/* Sees to it that the server reports a batch, which it does on its own only where it knows that
 * somebody waits. */
void vnc_queue_ask(struct vnc_queue *queue, uint64_t number);
/* The same at once: threads that began to wait for the batch's fence before it was submitted sleep,
 * and do not look again. */
void vnc_queue_tell_waiters(struct vnc_queue *queue, uint64_t number);
/* Whether work under way, which the program believes done, reads some of these merged ranges. */
bool vnc_queue_has_readers(struct vnc_device *device, const struct vnc_ranges *ranges);
/* Before the program's bytes for them: has the server wait for such work. */
void vnc_queue_put_waits(struct vnc_device *device, const struct vnc_ranges *ranges,
                         struct wire_enc *e);
/* Whether work under way can write some of that mapped memory. */
bool vnc_queue_can_write(struct vnc_queue *queue, uint64_t memory);
/* The same of merged ranges. */
bool vnc_queue_can_write_in(struct vnc_queue *queue, const struct vnc_ranges *ranges);
/* Whether work is under way whose effects the host can see. */
bool vnc_queue_is_watched(struct vnc_queue *queue);

/* Asks for ranges now.  VK_SUCCESS or VK_ERROR_DEVICE_LOST. */
VkResult vnc_device_read(struct vnc_device *device, const struct vnc_ranges *ranges) MUST_CHECK;
/* What batches under way may still change, read now. */
VkResult vnc_device_read_back(struct vnc_device *device) MUST_CHECK;

extern const struct vnc_entry vnc_entries_queue[];

#endif
