/* venus/client/device/snapshot.h - what a server told about one physical device when it was opened.
 *
 * Blobs stay encoded and are decoded into the chain that the program gives, at each query.
 *
 * Trust: a server's bytes.  vnc_snapshot_parse checks the frame and the counts; a blob that turns
 * out to be malformed when it is decoded is an error of the query.
 * Threads: any; constant once parsed.
 * Lifetime: create/destroy; the bytes are the caller's and outlive it. */
#ifndef HAWSER_VENUS_CLIENT_DEVICE_SNAPSHOT_H
#define HAWSER_VENUS_CLIENT_DEVICE_SNAPSHOT_H

#include <vulkan/vulkan_core.h>

#include "wire/dec.h"

enum {
    VNC_SNAPSHOT_QUEUE_FAMILIES_MAX = 64, /* as the server's */
    VNC_SNAPSHOT_FORMATS_MAX = 4096,      /* the registry has about 250 */
    VNC_SNAPSHOT_EXTENSIONS_MAX = 1024,   /* the registry has fewer than 500 */
};

struct vnc_blob {
    const uint8_t *data;
    uint32_t len;
};

struct vnc_format_blob {
    VkFormat format;
    struct vnc_blob blob;
};

struct vnc_snapshot {
    struct vnc_blob properties, features, memory;
    struct vnc_blob *families;
    uint32_t family_count;
    struct vnc_format_blob *formats;
    uint32_t format_count;
    VkExtensionProperties *extensions; /* the driver's */
    uint32_t extension_count;
};

/* Reads one device.  NULL when out of memory or when the input fails, which its error tells. */
struct vnc_snapshot *vnc_snapshot_parse(struct wire_dec *in);
void vnc_snapshot_destroy(struct vnc_snapshot *snapshot);

/* Each decodes into the program's structure and its chain; 0 or a negative errno. */
int vnc_snapshot_properties(const struct vnc_snapshot *s, VkPhysicalDeviceProperties2 *out);
int vnc_snapshot_features(const struct vnc_snapshot *s, VkPhysicalDeviceFeatures2 *out);
int vnc_snapshot_memory(const struct vnc_snapshot *s, VkPhysicalDeviceMemoryProperties2 *out);
int vnc_snapshot_family(const struct vnc_snapshot *s, uint32_t family,
                        VkQueueFamilyProperties2 *out);
/* -ENOENT when the server does not know the format. */
int vnc_snapshot_format(const struct vnc_snapshot *s, VkFormat format, VkFormatProperties2 *out);

#endif
