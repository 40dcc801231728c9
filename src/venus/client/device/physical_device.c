/* Queries of physical devices; see physical_device.h. */
#include "venus/client/device/physical_device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/units.h"
#include "venus/client/memory/recycled.h"
#include "venus/client/perf.h"
#include "venus/common/physical.h"
#include "vn_client.gen.h"

static struct vnc_physical_device *physical_of(VkPhysicalDevice handle)
{
    return VNC_OBJECT(vnc_physical_device, handle);
}

/* A snapshot that cannot be read is found out when the program asks; it gets what was read. */
static void check(const struct vnc_physical_device *device, int rc)
{
    if (rc)
        vnc_link_lose(device->link, "its description of a device cannot be read");
}

/* ---- creation ---- */

static bool offers(const struct vn_extension_info *extension, const struct vnc_snapshot *s)
{
    if (!extension->device || !vnc_icd_has_extension(extension))
        return false;
    return extension->client_only ||
           (extension->offered &&
            vn_extension_among(s->extensions, s->extension_count, extension->name));
}

static uint32_t driver_version(const struct vnc_snapshot *s,
                               const struct vn_extension_info *extension)
{
    const VkExtensionProperties *found =
        vn_extension_among(s->extensions, s->extension_count, extension->name);
    return found ? found->specVersion : extension->version;
}

bool vnc_physical_device_renders_samples(const struct vnc_physical_device *device)
{
    VkPhysicalDeviceMultisampledRenderToSingleSampledFeaturesEXT samples = {
        .sType =
            VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MULTISAMPLED_RENDER_TO_SINGLE_SAMPLED_FEATURES_EXT};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &samples};
    return vn_extension_among(device->snapshot->extensions, device->snapshot->extension_count,
                              VK_EXT_MULTISAMPLED_RENDER_TO_SINGLE_SAMPLED_EXTENSION_NAME) &&
           vnc_snapshot_features(device->snapshot, &features) == 0 &&
           samples.multisampledRenderToSingleSampled;
}

/* Descriptors reach the server on a Unix socket only, and memory that others write must not be
 * mapped: both ends' copies would differ. */
static bool is_possible(const struct vnc_physical_device *device, const char *extension)
{
    if (strcmp(extension, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME) == 0)
        return vnc_link_passes_fds(device->link) && vnc_memory_types_unmappable(&device->types);
    if (strcmp(extension, VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME) == 0 ||
        strcmp(extension, VK_KHR_EXTERNAL_FENCE_FD_EXTENSION_NAME) == 0)
        return vnc_link_passes_fds(device->link);
#ifdef VK_EXT_multisampled_render_to_swapchain
    if (strcmp(extension, VK_EXT_MULTISAMPLED_RENDER_TO_SWAPCHAIN_EXTENSION_NAME) == 0)
        return vnc_physical_device_renders_samples(device);
#endif
    return true;
}

static int choose_extensions(struct vnc_physical_device *device)
{
    device->extensions = calloc(vn_extension_count, sizeof(*device->extensions));
    if (!device->extensions)
        return -ENOMEM;
    for (size_t i = 0; i < vn_extension_count; i++) {
        const struct vn_extension_info *extension = &vn_extension_table[i];
        if (!offers(extension, device->snapshot) || !is_possible(device, extension->name))
            continue;
        VkExtensionProperties *out = &device->extensions[device->extension_count++];
        snprintf(out->extensionName, sizeof(out->extensionName), "%s", extension->name);
        out->specVersion = driver_version(device->snapshot, extension);
    }
    return 0;
}

static int choose_memory_types(struct vnc_physical_device *device)
{
    VkPhysicalDeviceMemoryProperties2 memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    const VkPhysicalDeviceMemoryProperties *driver = &memory.memoryProperties;
    int rc = vnc_snapshot_memory(device->snapshot, &memory);
    if (rc)
        return rc;
    if (driver->memoryTypeCount > VK_MAX_MEMORY_TYPES ||
        driver->memoryHeapCount > VK_MAX_MEMORY_HEAPS)
        return -EPROTO;
    for (uint32_t i = 0; i < driver->memoryTypeCount; i++) {
        if (driver->memoryTypes[i].heapIndex >= driver->memoryHeapCount)
            return -EPROTO;
    }
    bool visible;
    hw_env_bool("VENUS_HOST_VISIBLE_DEVICE_MEMORY", device->instance->maps_device_memory, &visible);
    vnc_memory_types_init(&device->types, driver, visible);
    return 0;
}

/* The server learns from a timeline semaphore that a batch is done. */
static int check_support(struct vnc_physical_device *device, const char *name,
                         char why[RPC_WHY_CHARS])
{
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &timeline};
    int rc = vnc_snapshot_features(device->snapshot, &features);
    if (rc)
        return rc;
    if (VK_API_VERSION_VARIANT(device->api_version) != 0 ||
        device->api_version < VK_API_VERSION_1_1) {
        snprintf(why, RPC_WHY_CHARS, "%.200s has Vulkan %u.%u only; 1.1 is needed", name,
                 VK_API_VERSION_MAJOR(device->api_version),
                 VK_API_VERSION_MINOR(device->api_version));
        return -ENOTSUP;
    }
    if (!timeline.timelineSemaphore) {
        snprintf(why, RPC_WHY_CHARS, "%.200s has no timeline semaphores", name);
        return -ENOTSUP;
    }
    return 0;
}

/* Alignments that mapped memory is kept by; Vulkan bounds them by far less. */
static bool is_alignment(uint64_t value)
{
    const uint64_t most = 1 << 20;
    return value > 0 && value <= most && (value & (value - 1)) == 0;
}

static int fill(struct vnc_physical_device *device, char why[RPC_WHY_CHARS])
{
    VkPhysicalDeviceProperties2 properties = {.sType =
                                                  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    int rc = vnc_snapshot_properties(device->snapshot, &properties);
    if (rc)
        return rc;
    device->limits = properties.properties.limits;
    if (!is_alignment(device->limits.minMemoryMapAlignment) ||
        !is_alignment(device->limits.nonCoherentAtomSize))
        return -EPROTO;
    device->api_version = properties.properties.apiVersion;
    device->queue_family_count = device->snapshot->family_count;
    rc = check_support(device, properties.properties.deviceName, why);
    if (device->api_version > vnc_icd_version())
        device->api_version = vnc_icd_version();
    if (!rc)
        rc = choose_memory_types(device);
    return rc ? rc : choose_extensions(device);
}

int vnc_physical_device_create(struct vnc_instance *instance, struct vnc_link *link, uint64_t id,
                               uint32_t index, struct vnc_snapshot *snapshot,
                               struct vnc_physical_device **out, char why[RPC_WHY_CHARS])
{
    struct vnc_physical_device *device = calloc(1, sizeof(*device));
    if (!device)
        return -ENOMEM;
    device->object = (struct vn_object){.loader = VNC_LOADER_MAGIC,
                                        .id = id,
                                        .client = vnc_link_client(link),
                                        .type = VK_OBJECT_TYPE_PHYSICAL_DEVICE};
    device->instance = instance;
    device->link = link;
    device->index = index;
    device->snapshot = snapshot;
    vnc_memo_init(&device->queries);
    vnc_budget_init(&device->budget);
    int rc = fill(device, why);
    if (rc) {
        device->snapshot = NULL;
        vnc_physical_device_destroy(device);
        return rc;
    }
    *out = device;
    return 0;
}

void vnc_physical_device_destroy(struct vnc_physical_device *device)
{
    if (!device)
        return;
    vnc_memo_fini(&device->queries);
    vnc_budget_fini(&device->budget);
    vnc_snapshot_destroy(device->snapshot);
    free(device->extensions);
    free(device);
}

bool vnc_physical_device_has(const struct vnc_physical_device *device, const char *extension)
{
    return vn_extension_among(device->extensions, device->extension_count, extension) != NULL;
}

/* ---- properties and features ---- */

#ifdef VK_EXT_host_image_copy
/* What a program asks about host image copies, in one of the two structures that have it. */
struct host_copy {
    uint32_t *src_count, *dst_count;
    VkPhysicalDeviceHostImageCopyPropertiesEXT asked;
    uint8_t *uuid;
};

#define HOST_COPY(found)                                                                           \
    (struct host_copy)                                                                             \
    {                                                                                              \
        &(found)->copySrcLayoutCount, &(found)->copyDstLayoutCount,                                \
            {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_HOST_IMAGE_COPY_PROPERTIES_EXT,            \
             .copySrcLayoutCount = (found)->copySrcLayoutCount,                                    \
             .pCopySrcLayouts = (found)->pCopySrcLayouts,                                          \
             .copyDstLayoutCount = (found)->copyDstLayoutCount,                                    \
             .pCopyDstLayouts = (found)->pCopyDstLayouts},                                         \
            (found)->optimalTilingLayoutUUID                                                       \
    }

/* Before the snapshot is laid over it: the program's counts are the room that its arrays have. */
static uint32_t find_host_copies(const VkPhysicalDeviceProperties2 *out, struct host_copy found[2])
{
    uint32_t count = 0;
    VkPhysicalDeviceHostImageCopyPropertiesEXT *own = (void *)vn_chain_find(
        out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_HOST_IMAGE_COPY_PROPERTIES_EXT);
    if (own)
        found[count++] = HOST_COPY(own);
#ifdef VK_VERSION_1_4
    VkPhysicalDeviceVulkan14Properties *core =
        (void *)vn_chain_find(out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_4_PROPERTIES);
    if (core)
        found[count++] = HOST_COPY(core);
#endif
    return count;
}

/* Arrays of outputs are not in the snapshot: the server is asked. */
static void ask_host_copy(const struct vnc_physical_device *device, VkPhysicalDevice handle,
                          struct host_copy *copy)
{
    /* How memory is laid out for copies with MEMCPY; see memory/host_copy.c. */
    static const uint8_t packed[VK_UUID_SIZE] = "hawser packed";
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                       .pNext = &copy->asked};
    struct wire_enc *e = vnc_link_begin(device->link);
    struct vn_decoder reply;
    if (!e)
        return;
    vn_enc_cmd_vkGetPhysicalDeviceProperties2(e, handle, &all);
    if (vnc_link_call(device->link, &reply) != VK_SUCCESS)
        return;
    vn_dec_reply_vkGetPhysicalDeviceProperties2(&reply, handle, &all);
    if (vnc_link_finish(device->link, &reply) != VK_SUCCESS)
        return;
    *copy->src_count = copy->asked.copySrcLayoutCount;
    *copy->dst_count = copy->asked.copyDstLayoutCount;
    memcpy(copy->uuid, packed, sizeof(packed));
}
#endif

static VKAPI_ATTR void VKAPI_CALL get_properties2(VkPhysicalDevice handle,
                                                  VkPhysicalDeviceProperties2 *out)
{
    const struct vnc_physical_device *device = physical_of(handle);
#ifdef VK_EXT_host_image_copy
    struct host_copy copies[2];
    uint32_t copy_count = find_host_copies(out, copies);
    if (!vnc_physical_device_has(device, VK_EXT_HOST_IMAGE_COPY_EXTENSION_NAME))
        copy_count = 0;
#endif
    check(device, vnc_snapshot_properties(device->snapshot, out));
    out->properties.apiVersion = device->api_version;
#ifdef VK_EXT_host_image_copy
    for (uint32_t i = 0; i < copy_count; i++)
        ask_host_copy(device, handle, &copies[i]);
#endif
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT *host = (void *)vn_chain_find(
        out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT);
    if (host)
        host->minImportedHostPointerAlignment = (VkDeviceSize)sysconf(_SC_PAGESIZE);
#ifdef VK_EXT_map_memory_placed
    VkPhysicalDeviceMapMemoryPlacedPropertiesEXT *placed = (void *)vn_chain_find(
        out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAP_MEMORY_PLACED_PROPERTIES_EXT);
    if (placed)
        placed->minPlacedMemoryMapAlignment = (VkDeviceSize)sysconf(_SC_PAGESIZE);
#endif
#ifdef VK_KHR_maintenance7
    /* It does not travel: its elements are chains of their own.  No driver that we know has any. */
    VkPhysicalDeviceLayeredApiPropertiesListKHR *layers = (void *)vn_chain_find(
        out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_LAYERED_API_PROPERTIES_LIST_KHR);
    if (layers)
        layers->layeredApiCount = 0;
#endif
}

static VKAPI_ATTR void VKAPI_CALL get_properties(VkPhysicalDevice handle,
                                                 VkPhysicalDeviceProperties *out)
{
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    get_properties2(handle, &all);
    *out = all.properties;
}

/* Each is all that its structure has. */
static void set_present_features(const struct vnc_physical_device *device,
                                 VkPhysicalDeviceFeatures2 *out)
{
    static const VkStructureType always[] = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PRESENT_ID_FEATURES_KHR,
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PRESENT_WAIT_FEATURES_KHR,
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SWAPCHAIN_MAINTENANCE_1_FEATURES_EXT,
#ifdef VK_KHR_present_wait2
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PRESENT_ID_2_FEATURES_KHR,
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PRESENT_WAIT_2_FEATURES_KHR,
#endif
    };
    struct feature {
        VkStructureType type;
        void *next;
        VkBool32 is_there;
    };
    for (size_t i = 0; i < ARRAY_LEN(always); i++) {
        struct feature *found = (void *)vn_chain_find(out->pNext, always[i]);
        if (found)
            found->is_there = VK_TRUE;
    }
#ifdef VK_EXT_multisampled_render_to_swapchain
    struct feature *samples = (void *)vn_chain_find(
        out->pNext,
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MULTISAMPLED_RENDER_TO_SWAPCHAIN_FEATURES_EXT);
    if (samples)
        samples->is_there = vnc_physical_device_renders_samples(device);
#else
    (void)device;
#endif
}

/* Of extensions that live at the client, and of one that is offered only when asked for. */
static void set_own_features(const struct vnc_physical_device *device,
                             VkPhysicalDeviceFeatures2 *out)
{
    VkPhysicalDeviceFaultFeaturesEXT *fault =
        (void *)vn_chain_find(out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FAULT_FEATURES_EXT);
    if (fault) {
        fault->deviceFault = VK_TRUE;
        fault->deviceFaultVendorBinary = VK_FALSE;
    }
    set_present_features(device, out);
#ifdef VK_EXT_map_memory_placed
    VkPhysicalDeviceMapMemoryPlacedFeaturesEXT *placed = (void *)vn_chain_find(
        out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAP_MEMORY_PLACED_FEATURES_EXT);
    if (placed) {
        placed->memoryMapPlaced = placed->memoryUnmapReserve = VK_TRUE;
        placed->memoryMapRangePlaced = VK_FALSE;
    }
#endif
    VkPhysicalDeviceDescriptorBufferFeaturesEXT *buffers = (void *)vn_chain_find(
        out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DESCRIPTOR_BUFFER_FEATURES_EXT);
    if (buffers && !vnc_physical_device_has(device, VK_EXT_DESCRIPTOR_BUFFER_EXTENSION_NAME))
        *buffers = (VkPhysicalDeviceDescriptorBufferFeaturesEXT){.sType = buffers->sType,
                                                                 .pNext = buffers->pNext};
}

static VKAPI_ATTR void VKAPI_CALL get_features2(VkPhysicalDevice handle,
                                                VkPhysicalDeviceFeatures2 *out)
{
    const struct vnc_physical_device *device = physical_of(handle);
    check(device, vnc_snapshot_features(device->snapshot, out));
    vn_mask_features(out);
    set_own_features(device, out);
}

static VKAPI_ATTR void VKAPI_CALL get_features(VkPhysicalDevice handle,
                                               VkPhysicalDeviceFeatures *out)
{
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    get_features2(handle, &all);
    *out = all.features;
}

/* ---- extensions and layers ---- */

VkResult vnc_fit(uint32_t have, uint32_t *count, const void *array, uint32_t *copied)
{
    uint32_t fits = *count < have ? *count : have;
    *copied = array ? fits : 0;
    *count = array ? fits : have;
    return *count < have ? VK_INCOMPLETE : VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL enumerate_extensions(VkPhysicalDevice handle,
                                                           const char *layer, uint32_t *count,
                                                           VkExtensionProperties *out)
{
    const struct vnc_physical_device *device = physical_of(handle);
    uint32_t copied;
    if (layer)
        return VK_ERROR_LAYER_NOT_PRESENT;
    VkResult result = vnc_fit(device->extension_count, count, out, &copied);
    for (uint32_t i = 0; i < copied; i++)
        out[i] = device->extensions[i];
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL enumerate_layers(VkPhysicalDevice handle, uint32_t *count,
                                                       VkLayerProperties *out)
{
    (void)handle, (void)out;
    *count = 0;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_tools(VkPhysicalDevice handle, uint32_t *count,
                                                VkPhysicalDeviceToolProperties *out)
{
    (void)handle, (void)out;
    *count = 0;
    return VK_SUCCESS;
}

/* ---- memory ---- */

/* False when the server is lost: it has none left. */
static bool ask_budget(const struct vnc_physical_device *device, VkPhysicalDevice handle,
                       VkPhysicalDeviceMemoryBudgetPropertiesEXT *driver)
{
    VkPhysicalDeviceMemoryProperties2 memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = driver};
    struct wire_enc *e = vnc_link_begin(device->link);
    struct vn_decoder reply;
    if (!e)
        return false;
    vn_enc_cmd_vkGetPhysicalDeviceMemoryProperties2(e, handle, &memory);
    if (vnc_link_call(device->link, &reply) != VK_SUCCESS)
        return false;
    vn_dec_reply_vkGetPhysicalDeviceMemoryProperties2(&reply, handle, &memory);
    return vnc_link_finish(device->link, &reply) == VK_SUCCESS;
}

static void get_budget(struct vnc_physical_device *device, VkPhysicalDevice handle,
                       VkPhysicalDeviceMemoryBudgetPropertiesEXT *out)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT driver = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    uint64_t now = hw_now_ns(), changes = vnc_budget_changes(&device->budget);
    bool keeps = vnc_perf(VNC_PERF_KEPT_BUDGETS) && !vnc_link_client(device->link)->sync &&
                 !vnc_link_is_lost(device->link);
    if (!keeps || !vnc_budget_find(&device->budget, now, &driver)) {
        if (ask_budget(device, handle, &driver))
            vnc_budget_keep(&device->budget, now, hw_now_ns(), changes, &driver);
        else
            memset(driver.heapBudget, 0, sizeof(driver.heapBudget));
    }
    vnc_memory_types_budget(&device->types, &driver, out);
    vnc_recycled_leave_out(device, out);
}

static VKAPI_ATTR void VKAPI_CALL get_memory(VkPhysicalDevice handle,
                                             VkPhysicalDeviceMemoryProperties *out)
{
    *out = physical_of(handle)->types.offered;
}

static VKAPI_ATTR void VKAPI_CALL get_memory2(VkPhysicalDevice handle,
                                              VkPhysicalDeviceMemoryProperties2 *out)
{
    struct vnc_physical_device *device = physical_of(handle);
    check(device, vnc_snapshot_memory(device->snapshot, out));
    out->memoryProperties = device->types.offered;
    VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = (void *)vn_chain_find(
        out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT);
    if (budget && vnc_physical_device_has(device, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME))
        get_budget(device, handle, budget);
}

/* ---- queue families ---- */

enum { QUEUE_NOT_OFFERED = 0x20 | 0x40 | 0x100 }; /* video and optical flow: left out */

static VKAPI_ATTR void VKAPI_CALL get_families2(VkPhysicalDevice handle, uint32_t *count,
                                                VkQueueFamilyProperties2 *out)
{
    const struct vnc_physical_device *device = physical_of(handle);
    uint32_t copied;
    (void)vnc_fit(device->queue_family_count, count, out, &copied);
    for (uint32_t i = 0; i < copied; i++) {
        check(device, vnc_snapshot_family(device->snapshot, i, &out[i]));
        out[i].queueFamilyProperties.queueFlags &= ~(VkQueueFlags)QUEUE_NOT_OFFERED;
    }
}

static VKAPI_ATTR void VKAPI_CALL get_families(VkPhysicalDevice handle, uint32_t *count,
                                               VkQueueFamilyProperties *out)
{
    VkQueueFamilyProperties2 all[VNC_SNAPSHOT_QUEUE_FAMILIES_MAX];
    uint32_t room =
        out && *count < VNC_SNAPSHOT_QUEUE_FAMILIES_MAX ? *count : VNC_SNAPSHOT_QUEUE_FAMILIES_MAX;
    for (uint32_t i = 0; i < VNC_SNAPSHOT_QUEUE_FAMILIES_MAX; i++)
        all[i] = (VkQueueFamilyProperties2){.sType = VK_STRUCTURE_TYPE_QUEUE_FAMILY_PROPERTIES_2};
    get_families2(handle, &room, all);
    for (uint32_t i = 0; out && i < room; i++)
        out[i] = all[i].queueFamilyProperties;
    *count = room;
}

/* ---- formats ---- */

static VKAPI_ATTR void VKAPI_CALL get_format2(VkPhysicalDevice handle, VkFormat format,
                                              VkFormatProperties2 *out)
{
    const struct vnc_physical_device *device = physical_of(handle);
    int rc = vnc_snapshot_format(device->snapshot, format, out);
    if (rc != -ENOENT) {
        check(device, rc);
        return;
    }
    out->formatProperties = (VkFormatProperties){0};
    VkFormatProperties3 *more =
        (void *)vn_chain_find(out->pNext, VK_STRUCTURE_TYPE_FORMAT_PROPERTIES_3);
    if (more)
        more->linearTilingFeatures = more->optimalTilingFeatures = more->bufferFeatures = 0;
}

static VKAPI_ATTR void VKAPI_CALL get_format(VkPhysicalDevice handle, VkFormat format,
                                             VkFormatProperties *out)
{
    VkFormatProperties2 all = {.sType = VK_STRUCTURE_TYPE_FORMAT_PROPERTIES_2};
    get_format2(handle, format, &all);
    *out = all.formatProperties;
}

const struct vnc_entry vnc_entries_physical_device[] = {
    VNC_ENTRY(vkGetPhysicalDeviceProperties, get_properties),
    VNC_ENTRY(vkGetPhysicalDeviceProperties2, get_properties2),
    VNC_ENTRY(vkGetPhysicalDeviceFeatures, get_features),
    VNC_ENTRY(vkGetPhysicalDeviceFeatures2, get_features2),
    VNC_ENTRY(vkEnumerateDeviceExtensionProperties, enumerate_extensions),
    VNC_ENTRY(vkEnumerateDeviceLayerProperties, enumerate_layers),
    VNC_ENTRY(vkGetPhysicalDeviceToolProperties, get_tools),
    VNC_ENTRY(vkGetPhysicalDeviceMemoryProperties, get_memory),
    VNC_ENTRY(vkGetPhysicalDeviceMemoryProperties2, get_memory2),
    VNC_ENTRY(vkGetPhysicalDeviceQueueFamilyProperties, get_families),
    VNC_ENTRY(vkGetPhysicalDeviceQueueFamilyProperties2, get_families2),
    VNC_ENTRY(vkGetPhysicalDeviceFormatProperties, get_format),
    VNC_ENTRY(vkGetPhysicalDeviceFormatProperties2, get_format2),
    {NULL, NULL},
};
