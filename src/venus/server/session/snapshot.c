/* Asking a driver about its devices; see snapshot.h. */
#include "venus/server/session/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "venus/common/physical.h"

enum {
    MARK = 0xaa,
    /* Two chains of every properties or features structure take some 50 KiB. */
    ARENA_MAX = 16 << 20,
};

struct asker {
    const struct vn_driver *driver;
    VkPhysicalDevice device;
    uint32_t version;
    VkExtensionProperties *extensions;
    uint32_t extension_count;
    struct hw_arena arena;
    struct wire_enc *e;
};

typedef void ask_fn(struct asker *a, void *chain, uint32_t which);
typedef void put_fn(struct wire_enc *e, const void *chain);

/* The chain that the driver filled, without what it does not know; NULL when out of memory. */
static void *ask(struct asker *a, const struct vn_chain *chain, ask_fn *fn, uint32_t which)
{
    hw_arena_reset(&a->arena);
    VkBaseOutStructure *zeros = vn_chain_build(chain, &a->arena, 0);
    VkBaseOutStructure *marks = vn_chain_build(chain, &a->arena, MARK);
    if (!zeros || !marks)
        return NULL;
    if (a->version < VK_API_VERSION_1_1) {
        zeros->pNext = NULL;
        fn(a, zeros, which);
        return zeros;
    }
    fn(a, zeros, which);
    fn(a, marks, which);
    vn_chain_keep_written(chain, zeros, marks, MARK);
    vn_chain_forget_arrays(zeros);
    return zeros;
}

static int put_blob(struct asker *a, const struct vn_chain *chain, ask_fn *fn, uint32_t which,
                    put_fn *put)
{
    const void *answer = ask(a, chain, fn, which);
    if (!answer)
        return -ENOMEM;
    size_t hole = wire_put_hole_u32(a->e);
    put(a->e, answer);
    wire_fill_len(a->e, hole);
    return wire_enc_error(a->e);
}

static void ask_properties(struct asker *a, void *chain, uint32_t which)
{
    VkPhysicalDeviceProperties2 *out = chain;
    (void)which;
    if (a->version < VK_API_VERSION_1_1)
        a->driver->vkGetPhysicalDeviceProperties(a->device, &out->properties);
    else
        a->driver->vkGetPhysicalDeviceProperties2(a->device, out);
    if (out->properties.apiVersion > VK_HEADER_VERSION_COMPLETE)
        out->properties.apiVersion = VK_HEADER_VERSION_COMPLETE;
}

static void ask_features(struct asker *a, void *chain, uint32_t which)
{
    VkPhysicalDeviceFeatures2 *out = chain;
    (void)which;
    if (a->version < VK_API_VERSION_1_1)
        a->driver->vkGetPhysicalDeviceFeatures(a->device, &out->features);
    else
        a->driver->vkGetPhysicalDeviceFeatures2(a->device, out);
}

static void ask_memory(struct asker *a, void *chain, uint32_t which)
{
    VkPhysicalDeviceMemoryProperties2 *out = chain;
    (void)which;
    if (a->version < VK_API_VERSION_1_1)
        a->driver->vkGetPhysicalDeviceMemoryProperties(a->device, &out->memoryProperties);
    else
        a->driver->vkGetPhysicalDeviceMemoryProperties2(a->device, out);
}

static void ask_format(struct asker *a, void *chain, uint32_t which)
{
    VkFormatProperties2 *out = chain;
    if (a->version < VK_API_VERSION_1_1)
        a->driver->vkGetPhysicalDeviceFormatProperties(a->device, (VkFormat)which,
                                                       &out->formatProperties);
    else
        a->driver->vkGetPhysicalDeviceFormatProperties2(a->device, (VkFormat)which, out);
}

/* A driver fills families in order, so the one that is asked about is the last of which + 1. */
static void ask_queue_family(struct asker *a, void *chain, uint32_t which)
{
    uint32_t count = which + 1;
    if (a->version < VK_API_VERSION_1_1) {
        VkQueueFamilyProperties all[VNS_SNAPSHOT_QUEUE_FAMILIES_MAX];
        a->driver->vkGetPhysicalDeviceQueueFamilyProperties(a->device, &count, all);
        ((VkQueueFamilyProperties2 *)chain)->queueFamilyProperties = all[which];
        return;
    }
    VkQueueFamilyProperties2 all[VNS_SNAPSHOT_QUEUE_FAMILIES_MAX];
    for (uint32_t i = 0; i < count; i++)
        all[i] = (VkQueueFamilyProperties2){.sType = VK_STRUCTURE_TYPE_QUEUE_FAMILY_PROPERTIES_2};
    all[which] = *(VkQueueFamilyProperties2 *)chain;
    a->driver->vkGetPhysicalDeviceQueueFamilyProperties2(a->device, &count, all);
    *(VkQueueFamilyProperties2 *)chain = all[which];
}

#define PUT(type)                                                                                  \
    static void put_##type(struct wire_enc *e, const void *chain)                                  \
    {                                                                                              \
        vn_enc_out_##type(e, chain);                                                               \
    }
PUT(VkPhysicalDeviceProperties2)
PUT(VkPhysicalDeviceFeatures2)
PUT(VkPhysicalDeviceMemoryProperties2)
PUT(VkQueueFamilyProperties2)
PUT(VkFormatProperties2)
#undef PUT

static int put_queue_families(struct asker *a)
{
    uint32_t count = 0;
    a->driver->vkGetPhysicalDeviceQueueFamilyProperties(a->device, &count, NULL);
    if (count > VNS_SNAPSHOT_QUEUE_FAMILIES_MAX)
        count = VNS_SNAPSHOT_QUEUE_FAMILIES_MAX;
    wire_put_u32(a->e, count);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++)
        rc = put_blob(a, &vn_chain_VkQueueFamilyProperties2, ask_queue_family, i,
                      put_VkQueueFamilyProperties2);
    return rc;
}

static int put_formats(struct asker *a)
{
    size_t hole = wire_put_hole_u32(a->e);
    uint32_t count = 0;
    VkFormat last = VK_FORMAT_UNDEFINED; /* which is never asked for */
    for (size_t i = 0; i < vn_format_count; i++) {
        const struct vn_format_info *row = &vn_format_table[i];
        bool known = row->extension ? vn_extension_among(a->extensions, a->extension_count,
                                                         row->extension) != NULL
                                    : row->version <= a->version;
        if (row->format == last || !known)
            continue;
        last = row->format;
        count++;
        wire_put_u32(a->e, (uint32_t)row->format);
        int rc = put_blob(a, &vn_chain_VkFormatProperties2, ask_format, (uint32_t)row->format,
                          put_VkFormatProperties2);
        if (rc)
            return rc;
    }
    wire_fill_u32(a->e, hole, count);
    return 0;
}

/* Of what the driver has, what this server carries: its registry may be older than the driver. */
static void put_extensions(struct asker *a)
{
    size_t hole = wire_put_hole_u32(a->e);
    uint32_t count = 0;
    for (uint32_t i = 0; i < a->extension_count; i++) {
        const struct vn_extension_info *known = vn_extension_find(a->extensions[i].extensionName);
        if (!known || !known->device || !known->offered)
            continue;
        count++;
        wire_put_str(a->e, a->extensions[i].extensionName);
        wire_put_u32(a->e, a->extensions[i].specVersion);
    }
    wire_fill_u32(a->e, hole, count);
}

static int find_extensions(struct asker *a)
{
    a->extension_count = VNS_SNAPSHOT_EXTENSIONS_MAX;
    a->extensions = calloc(VNS_SNAPSHOT_EXTENSIONS_MAX, sizeof(*a->extensions));
    if (!a->extensions)
        return -ENOMEM;
    VkResult result = a->driver->vkEnumerateDeviceExtensionProperties(
        a->device, NULL, &a->extension_count, a->extensions);
    return result < 0 ? -EIO : 0;
}

static int put_device(struct asker *a)
{
    VkPhysicalDeviceProperties properties;
    a->driver->vkGetPhysicalDeviceProperties(a->device, &properties);
    a->version = properties.apiVersion;
    int rc = find_extensions(a);
    if (!rc)
        rc = put_blob(a, &vn_chain_VkPhysicalDeviceProperties2, ask_properties, 0,
                      put_VkPhysicalDeviceProperties2);
    if (!rc)
        rc = put_blob(a, &vn_chain_VkPhysicalDeviceFeatures2, ask_features, 0,
                      put_VkPhysicalDeviceFeatures2);
    if (!rc)
        rc = put_blob(a, &vn_chain_VkPhysicalDeviceMemoryProperties2, ask_memory, 0,
                      put_VkPhysicalDeviceMemoryProperties2);
    if (!rc)
        rc = put_queue_families(a);
    if (!rc)
        rc = put_formats(a);
    if (!rc)
        put_extensions(a);
    return rc ? rc : wire_enc_error(a->e);
}

static bool is_complete(const struct vn_driver *d)
{
    return d->vkGetPhysicalDeviceProperties && d->vkGetPhysicalDeviceProperties2 &&
           d->vkGetPhysicalDeviceFeatures && d->vkGetPhysicalDeviceFeatures2 &&
           d->vkGetPhysicalDeviceMemoryProperties && d->vkGetPhysicalDeviceMemoryProperties2 &&
           d->vkGetPhysicalDeviceQueueFamilyProperties &&
           d->vkGetPhysicalDeviceQueueFamilyProperties2 && d->vkGetPhysicalDeviceFormatProperties &&
           d->vkGetPhysicalDeviceFormatProperties2 && d->vkEnumerateDeviceExtensionProperties;
}

int vns_snapshot_encode(const struct vn_driver *driver, uint32_t instance_version,
                        const VkPhysicalDevice *devices, uint32_t count, struct wire_enc *e)
{
    if (!is_complete(driver))
        return -ENOSYS;
    wire_put_u32(e, instance_version);
    wire_put_u32(e, count);
    int rc = wire_enc_error(e);
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        struct asker a = {.driver = driver, .device = devices[i], .e = e};
        hw_arena_init(&a.arena, ARENA_MAX);
        rc = put_device(&a);
        hw_arena_fini(&a.arena);
        free(a.extensions);
    }
    return rc;
}
