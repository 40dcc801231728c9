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

struct vnc_queue;
struct vnc_memory;
struct vnc_resource;
struct vnc_upload;

struct vnc_device {
    struct vn_object object;
    struct vnc_physical_device *physical;
    struct vnc_pushes *pushes;
    struct vnc_queue **queues; /* all that were asked for at creation */
    uint32_t queue_count;
    char **extensions; /* enabled */
    uint32_t extension_count;
    bool has_views;               /* a render pass may have several */
    struct vn_delta_codec *codec; /* for deltas out; under the stream's lock */
    struct vnc_upload *upload;    /* likewise; NULL: nothing is asked or kept */
    struct vnc_memo requirements; /* of buffers, images and set layouts, by how they are created */

    pthread_mutex_t lock;        /* guards the lists below; not held while anything is sent */
    pthread_cond_t sent;         /* a memory of theirs is not being sent any more */
    struct vnc_memory *visible;  /* host-visible: what deltas are collected from, once mapped */
    struct vnc_resource *shared; /* host-visible resources that commands need not name to reach:
                                   images, and buffers whose address was taken */
    struct vnc_memory *shared_memory; /* bound sparsely: likewise */
    struct vnc_memory *recycled;      /* freed, the newest first: see client/memory/recycled.h */
    pthread_mutex_t recordings_lock;  /* guards the list below, and reading the recordings in it */
    struct vnc_command_buffer *recordings; /* begun and not ended */
    /* Submissions so far.  Relaxed: it changes, and a map looks at it, under the stream's lock.  An
     * old value that was read before an allocation makes that map wait, and no more. */
    _Atomic uint64_t submissions;
    _Atomic uint64_t retired; /* resources and memories that were destroyed */
    _Atomic bool updates;     /* were put since a recording sent them; relaxed: it is about speed */
    /* It has had memory that other processes may use, so a wait is over when the work is.  Relaxed:
     * a program allocates before it submits what uses the memory. */
    _Atomic bool shares_memory;
};

static inline struct vnc_link *vnc_device_link(const struct vnc_device *device)
{
    return device->physical->link;
}

/* VK_SUCCESS, or VK_ERROR_DEVICE_LOST once the server is lost, a queue failed or a posted command
 * did. */
VkResult vnc_device_status(const struct vnc_device *device);

/* Whether work whose effects the host can see is under way on any queue, as far as has been heard.
 */
bool vnc_device_is_watched(const struct vnc_device *device);
/* The same; takes in news first. */
bool vnc_device_is_busy(struct vnc_device *device);
/* Whether any work is under way, as far as has been heard, but for a few bytes for buffers. */
bool vnc_device_is_working(const struct vnc_device *device);

extern const struct vnc_entry vnc_entries_device[];
extern const struct vnc_entry vnc_entries_fault[]; /* VK_EXT_device_fault */

#endif
