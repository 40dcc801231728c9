/* cli/devices.h - the Vulkan devices of this machine, found without linking the loader.
 *
 * Drivers are loaded in a child process: one that crashes or hangs costs a note, not the server,
 * and a machine without Vulkan still serves.
 *
 * Trust: drivers are this machine's; the child's answer is bounded all the same.
 * Threads: call before starting any (it forks).  Lifetime: values. */
#ifndef HAWSER_CLI_DEVICES_H
#define HAWSER_CLI_DEVICES_H

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CLI_DEVICES_MAX = 16, /* GPUs in the largest machines, as Vulkan's own limit on heaps */
    CLI_HEAPS_MAX = 16,
    CLI_DEVICE_TEXT = 256 /* VK_MAX_PHYSICAL_DEVICE_NAME_SIZE */
};

struct cli_heap {
    uint64_t bytes;
    bool device_local;
};

struct cli_device {
    char name[CLI_DEVICE_TEXT];
    char driver[CLI_DEVICE_TEXT]; /* name and version in words; "" when the driver says none */
    uint32_t type;                /* VkPhysicalDeviceType */
    uint32_t api_version;         /* VK_MAKE_API_VERSION */
    uint32_t vendor_id, device_id;
    uint32_t heap_count;
    struct cli_heap heaps[CLI_HEAPS_MAX];
};

struct cli_devices {
    uint32_t count;
    struct cli_device items[CLI_DEVICES_MAX];
    char note[CLI_DEVICE_TEXT]; /* why there are none; "" when there are */
};

/* Never fails: what goes wrong is told in out->note. */
void cli_devices_find(struct cli_devices *out);

const char *cli_device_type_name(uint32_t type);

#endif
