/* venus/client/device/device.h - a logical device: its queues, its mapped memory, what it enabled.
 *
 * Trust: the program's own.
 * Threads: as Vulkan; lists have a lock of their own.
 * Lifetime: from vkCreateDevice to vkDestroyDevice. */
#ifndef HAWSER_VENUS_CLIENT_DEVICE_DEVICE_H
#define HAWSER_VENUS_CLIENT_DEVICE_DEVICE_H

#include "venus/client/device/instance.h"
#include "venus/client/icd.h"
#include "venus/client/link/pushes.h"
#include "venus/client/object/memo.h"
#include "venus/memory/delta.h"

#include <pthread.h>

struct vn_queue;
struct vn_memory;
struct vn_resource;
struct vn_upload;

struct vn_device {
    struct vn_object object;
    struct vn_physical_device *physical;
    struct vn_pushes *pushes;
    struct vn_queue **queues; /* all that were asked for at creation */
    uint32_t queue_count;
    char **extensions; /* enabled */
    uint32_t extension_count;
    struct vn_delta_codec *codec; /* for deltas out; under the stream's lock */
    struct vn_upload *upload;     /* likewise; NULL: nothing is asked or kept */
    struct vn_memo requirements;  /* of buffers and images, by how they were created */

    pthread_mutex_t lock;            /* guards the lists below */
    struct vn_memory *visible;       /* host-visible: what deltas are collected from, once mapped */
    struct vn_resource *shared;      /* host-visible resources that commands need not name to write:
                                        images, and buffers whose address was taken */
    struct vn_memory *shared_memory; /* bound sparsely: likewise */
    /* Submissions so far; relaxed: read by the thread that made them, or that was told of them. */
    _Atomic uint64_t submissions;
};

static inline struct vn_link *vn_device_link(const struct vn_device *device)
{
    return device->physical->link;
}

bool vn_device_has_extension(const struct vn_device *device, const char *name);

/* VK_SUCCESS, or VK_ERROR_DEVICE_LOST once the server is lost, a queue failed or a posted command
 * did. */
VkResult vn_device_status(const struct vn_device *device);

/* Whether work whose effects the host can see is under way on any queue; takes in news first. */
bool vn_device_is_busy(struct vn_device *device);
/* Whether any work is under way, as far as has been heard, but for a few bytes for buffers. */
bool vn_device_is_working(const struct vn_device *device);

extern const struct vn_entry vn_entries_device[];

#endif
