/* venus/client/device/snapshot.h - what a server told about one physical device when it was opened.
 *
 * Blobs stay encoded and are decoded into the chain that the program gives, at each query.
 *
 * Trust: a server's bytes.  vn_snapshot_parse checks the frame and the counts; a blob that turns
 * out to be malformed when it is decoded is an error of the query.
 * Threads: any; constant once parsed.
 * Lifetime: create/destroy; the bytes are the caller's and outlive it. */
#ifndef HAWSER_VENUS_CLIENT_DEVICE_SNAPSHOT_H
#define HAWSER_VENUS_CLIENT_DEVICE_SNAPSHOT_H

#include <vulkan/vulkan_core.h>

#include "wire/dec.h"

enum {
    VN_SNAPSHOT_QUEUE_FAMILIES_MAX = 64, /* as the server's */
    VN_SNAPSHOT_FORMATS_MAX = 4096,      /* the registry has about 250 */
    VN_SNAPSHOT_EXTENSIONS_MAX = 1024,   /* the registry has fewer than 500 */
};

struct vn_blob {
    const uint8_t *data;
    uint32_t len;
};

struct vn_format_blob {
    VkFormat format;
    struct vn_blob blob;
};

struct vn_snapshot {
    struct vn_blob properties, features, memory;
    struct vn_blob *families;
    uint32_t family_count;
    struct vn_format_blob *formats;
    uint32_t format_count;
    VkExtensionProperties *extensions; /* the driver's */
    uint32_t extension_count;
};

/* Reads one device.  NULL when out of memory or when the input fails, which its error tells. */
struct vn_snapshot *vn_snapshot_parse(struct wire_dec *in);
void vn_snapshot_destroy(struct vn_snapshot *snapshot);

/* Each decodes into the program's structure and its chain; 0 or a negative errno. */
int vn_snapshot_properties(const struct vn_snapshot *s, VkPhysicalDeviceProperties2 *out);
int vn_snapshot_features(const struct vn_snapshot *s, VkPhysicalDeviceFeatures2 *out);
int vn_snapshot_memory(const struct vn_snapshot *s, VkPhysicalDeviceMemoryProperties2 *out);
int vn_snapshot_family(const struct vn_snapshot *s, uint32_t family, VkQueueFamilyProperties2 *out);
/* -ENOENT when the server does not know the format. */
int vn_snapshot_format(const struct vn_snapshot *s, VkFormat format, VkFormatProperties2 *out);

#endif
