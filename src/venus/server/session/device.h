/* venus/server/session/device.h - a VkDevice of the client, and what we need of it for ourselves.
 *
 * Every device gets the timelineSemaphore feature, since batches are counted with one semaphore a
 * queue; a program cannot see it.
 *
 * Trust: the create info and queue numbers are a peer's and are held against the device.
 * Threads: made, changed and destroyed by the executor; completion threads read what does not
 * change.  Lifetime: create/destroy. */
#ifndef HAWSER_VENUS_SERVER_SESSION_DEVICE_H
#define HAWSER_VENUS_SERVER_SESSION_DEVICE_H

#include <pthread.h>

#include "base/arena.h"
#include "venus/server/session/driver.h"
#include "venus/server/session/facts.h"

struct vns_bus;
struct vns_queue;

struct vns_queue_family {
    uint32_t family;
    uint32_t count;
    VkDeviceQueueCreateFlags flags;
    VkQueueFlags can;
};

struct vns_device {
    VkDevice handle;
    VkPhysicalDevice physical;
    unsigned gpu; /* the number of it, the same in all sessions of a server */
    uint64_t id;
    struct vn_driver driver;
    PFN_vkMapMemory map_memory;
    PFN_vkFlushMappedMemoryRanges flush_memory;
    PFN_vkInvalidateMappedMemoryRanges invalidate_memory;
    PFN_vkDeviceWaitIdle wait_idle;
    PFN_vkWaitSemaphores wait_semaphores;
    PFN_vkGetSemaphoreCounterValue semaphore_value;
    VkPhysicalDeviceMemoryProperties memory;
    struct vns_queue_family *families; /* as created */
    uint32_t family_count;
    pthread_mutex_t reporting; /* held while one queue reports; guards the list of queues, which the
                                  executor alone changes */
    struct vns_queue *queues;  /* that the client asked for */
    uint64_t submissions;      /* so far; tells whether memory can have been written */
    uint64_t idle_since;       /* as many submissions: the driver has waited for all of them */
    struct vns_facts facts;
    struct vns_bus *bus;     /* from the first copy on */
    struct vns_device *next; /* the session's list */
};

/* Creates the device with what we add; info is decoded and may be written.  VK_SUCCESS and *out, or
 * what the driver said. */
VkResult vns_device_create(const struct vns_instance *instance, VkPhysicalDevice physical,
                           VkDeviceCreateInfo *info, struct hw_arena *arena,
                           struct vns_device **out) MUST_CHECK;
/* Ends the queues' threads once their work is done, and the driver's with it. */
void vns_device_stop(struct vns_device *device);
/* The same, and the device. */
void vns_device_destroy(struct vns_device *device);

/* The queue of the driver; NULL when the device was not created with it. */
VkQueue vns_device_get_queue(const struct vns_device *device, const VkDeviceQueueInfo2 *info);

#endif
