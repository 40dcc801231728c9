/* venus/common/physical.h - what a physical device is asked for its snapshot.
 *
 * The tables are generated from the registry and spec/policy.json.
 *
 * Trust: the caller's own structures.  Threads: any; constant.
 * Lifetime: constants; a built chain is the arena's. */
#ifndef HAWSER_VENUS_COMMON_PHYSICAL_H
#define HAWSER_VENUS_COMMON_PHYSICAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <vulkan/vulkan_core.h>

#include "base/arena.h"

struct vn_chain_node {
    uint32_t stype;
    uint32_t bytes;
    bool has_arrays; /* pointers that a driver follows */
};

/* A structure (first) and all that the registry chains to it and that travel. */
struct vn_chain {
    const struct vn_chain_node *nodes;
    size_t count;
};

extern const struct vn_chain vn_chain_VkPhysicalDeviceProperties2;
extern const struct vn_chain vn_chain_VkPhysicalDeviceFeatures2;
extern const struct vn_chain vn_chain_VkPhysicalDeviceMemoryProperties2; /* without the budget */
extern const struct vn_chain vn_chain_VkQueueFamilyProperties2;
extern const struct vn_chain vn_chain_VkFormatProperties2;

/* The whole chain, zeroed but for the bodies of what is chained, whose bytes are `fill`; a body
 * with pointers is zeroed too.  NULL when the arena is full. */
void *vn_chain_build(const struct vn_chain *chain, struct hw_arena *arena, uint8_t fill);
/* Unlinks from first what a driver wrote to in neither: zeros and marks were given to it with
 * bodies of 0 and of `fill`, and both have all nodes of the table. */
void vn_chain_keep_written(const struct vn_chain *chain, void *zeros, const void *marks,
                           uint8_t fill);
/* Arrays that a driver would fill stay behind: their counts become 0. */
void vn_chain_forget_arrays(void *chain);

/* Turns off the features that are not offered whatever the driver says, in a chain that begins
 * with VkPhysicalDeviceFeatures2. */
void vn_mask_features(void *chain);

/* A format may have several rows, one after the other: a device that has the version or the
 * extension of one of them may be asked for it. */
struct vn_format_info {
    VkFormat format;
    uint32_t version;      /* UINT32_MAX: of no version */
    const char *extension; /* NULL: of no extension */
};

extern const struct vn_format_info vn_format_table[];
extern const size_t vn_format_count;

/* The texel block of a format, as copies between memory and images have it. */
struct vn_format_block {
    VkFormat format;
    uint8_t bytes;
    uint8_t width, height, depth;       /* in texels */
    uint8_t depth_bytes, stencil_bytes; /* of these aspects; 0: the format has none */
    struct {
        uint8_t bytes, width_divisor, height_divisor;
    } planes[3]; /* of multi-planar formats */
};

extern const struct vn_format_block vn_block_table[];
extern const size_t vn_block_count;

/* What one aspect of an image is made of. */
struct vn_block {
    uint32_t bytes;
    uint32_t width, height, depth;
    uint32_t width_divisor, height_divisor; /* of a plane; else 1 */
};

/* False for a format that is not in the registry, or has no such aspect. */
bool vn_block_of(VkFormat format, VkImageAspectFlags aspect, struct vn_block *out);

/* The one of that name in a list; NULL: none. */
const VkExtensionProperties *vn_extension_among(const VkExtensionProperties *list, uint32_t count,
                                                const char *name);

#endif
