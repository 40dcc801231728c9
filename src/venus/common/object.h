/* venus/common/object.h - what a Vulkan handle points to at the client, and its id on the wire.
 *
 * A handle that the program holds is the address of a struct vn_object, which the client embeds
 * at the start of its own objects.  Ids are 64 bits, chosen by the client, never reused; 0 is
 * VK_NULL_HANDLE.  At the server handles are the driver's, and ids are looked up.
 *
 * Threads: the fields here are written before the handle is given out and never after.
 * Lifetime: the client's. */
#ifndef HAWSER_VENUS_COMMON_OBJECT_H
#define HAWSER_VENUS_COMMON_OBJECT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <vulkan/vulkan_core.h>

#include "base/attr.h"

/* Handles of both kinds are pointers; 32-bit programs would need another table. */
static_assert(sizeof(void *) == 8 && sizeof(VkBuffer) == sizeof(void *), "64-bit hosts only");

struct vn_client;

enum vn_object_flags {
    VN_OBJECT_SECONDARY = 1 << 0, /* a command buffer of the secondary level */
};

struct vn_object {
    uintptr_t loader; /* the loader's word; only dispatchable handles use it */
    uint64_t id;
    struct vn_client *client;
    uint32_t type;     /* VkObjectType */
    uint32_t flags;    /* enum vn_object_flags */
    const void *facts; /* what rules.h asks: of a render pass, struct vn_render_pass_facts */
};

static inline const struct vn_object *vn_object_of(const void *handle)
{
    return handle;
}

static inline uint64_t vn_id(const void *handle)
{
    return handle ? vn_object_of(handle)->id : 0;
}

#endif
