/* serve/devices.h - the Vulkan devices of this machine, found without linking the loader.
 *
 * Drivers are loaded in a child process: one that crashes or hangs costs a note, not the server,
 * and a machine without Vulkan still serves.
 *
 * Trust: drivers are this machine's; the child's answer is bounded all the same.
 * Threads: call before starting any (it forks).  Lifetime: values. */
#ifndef HAWSER_SERVE_DEVICES_H
#define HAWSER_SERVE_DEVICES_H

#include "base/attr.h"
#include "base/visible.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SERVE_DEVICES_MAX = 16, /* GPUs in the largest machines, as Vulkan's own limit on heaps */
    SERVE_HEAPS_MAX = 16,
    SERVE_DEVICE_TEXT = 256 /* VK_MAX_PHYSICAL_DEVICE_NAME_SIZE */
};

struct serve_heap {
    uint64_t bytes;
    bool device_local;
};

struct serve_device {
    char name[SERVE_DEVICE_TEXT];
    char driver[SERVE_DEVICE_TEXT]; /* name and version in words; "" when the driver says none */
    uint32_t type;                  /* VkPhysicalDeviceType */
    uint32_t api_version;           /* VK_MAKE_API_VERSION */
    uint32_t vendor_id, device_id;
    uint32_t index; /* among all of this machine */
    uint8_t uuid[HW_UUID_BYTES];
    bool has_uuid; /* a Vulkan 1.0 driver has none */
    uint32_t heap_count;
    struct serve_heap heaps[SERVE_HEAPS_MAX];
};

struct serve_devices {
    uint32_t count;
    struct serve_device items[SERVE_DEVICES_MAX];
    char note[SERVE_DEVICE_TEXT]; /* why there are none; "" when there are */
};

/* Never fails: what goes wrong is told in out->note. */
void serve_devices_find(struct serve_devices *out);

/* Keeps the devices that are wanted, in that order: by index, or by a part of the name, which may
 * be of several.  Sessions and models use those only, from now on.  0; -ENODEV, -ENOMEM, and why.
 */
int serve_devices_choose(struct serve_devices *devices, char *const *wanted, size_t count,
                         char why[SERVE_DEVICE_TEXT]) MUST_CHECK;

const char *serve_device_type_name(uint32_t type);

#endif
