/* Devices of a client; see device.h. */
#include "venus/server/session/device.h"

#include <stdlib.h>
#include <string.h>

#include "venus/common/commands.h"
#include "venus/server/memory/bus.h"
#include "venus/server/submit/queue.h"

enum { FAMILIES_MAX = 64 }; /* of a GPU; those that are sold have up to eight */

static const char timeline_extension[] = VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME;

static VkBaseOutStructure *find_in_chain(const void *chain, VkStructureType type)
{
    VkBaseOutStructure *node = (VkBaseOutStructure *)(uintptr_t)chain;
    while (node && node->sType != type)
        node = node->pNext;
    return node;
}

/* ---- the timeline feature ---- */

static bool want_timeline(VkDeviceCreateInfo *info, struct hw_arena *arena)
{
    VkPhysicalDeviceVulkan12Features *all = (VkPhysicalDeviceVulkan12Features *)find_in_chain(
        info->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
    if (all) {
        all->timelineSemaphore = VK_TRUE;
        return true;
    }
    VkPhysicalDeviceTimelineSemaphoreFeatures *own =
        (VkPhysicalDeviceTimelineSemaphoreFeatures *)find_in_chain(
            info->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES);
    if (!own) {
        own = hw_arena_calloc(arena, 1, sizeof(*own));
        if (!own)
            return false;
        own->sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES;
        own->pNext = (void *)(uintptr_t)info->pNext;
        info->pNext = own;
    }
    own->timelineSemaphore = VK_TRUE;
    return true;
}

static bool is_enabled(const VkDeviceCreateInfo *info, const char *name)
{
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
        if (strcmp(info->ppEnabledExtensionNames[i], name) == 0)
            return true;
    }
    return false;
}

static bool add_extension(VkDeviceCreateInfo *info, const char *name, struct hw_arena *arena)
{
    uint32_t count = info->enabledExtensionCount;
    const char **names = hw_arena_calloc(arena, (size_t)count + 1, sizeof(*names));
    if (!names)
        return false;
    if (count)
        memcpy(names, info->ppEnabledExtensionNames, count * sizeof(*names));
    names[count] = name;
    info->ppEnabledExtensionNames = names;
    info->enabledExtensionCount = count + 1;
    return true;
}

/* Extensions that may travel: others would give the device what the wire cannot carry. */
static bool extensions_travel(const VkDeviceCreateInfo *info)
{
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
        const struct vn_extension_info *known = vn_extension_find(info->ppEnabledExtensionNames[i]);
        if (!known || !known->device || !known->offered || known->client_only)
            return false;
    }
    return true;
}

static VkResult complete(const struct vns_instance *instance, VkPhysicalDevice physical,
                         VkDeviceCreateInfo *info, struct hw_arena *arena)
{
    VkPhysicalDeviceProperties properties;
    if (!extensions_travel(info))
        return VK_ERROR_EXTENSION_NOT_PRESENT;
    instance->driver.vkGetPhysicalDeviceProperties(physical, &properties);
    bool core =
        properties.apiVersion >= VK_API_VERSION_1_2 && instance->version >= VK_API_VERSION_1_2;
    if (!want_timeline(info, arena) || (!core && !is_enabled(info, timeline_extension) &&
                                        !add_extension(info, timeline_extension, arena)))
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    info->enabledLayerCount = 0;
    return VK_SUCCESS;
}

/* ---- life ---- */

static bool note_families(struct vns_device *device, const VkDeviceCreateInfo *info)
{
    device->families = calloc((size_t)info->queueCreateInfoCount + 1, sizeof(*device->families));
    if (!device->families)
        return false;
    device->family_count = info->queueCreateInfoCount;
    for (uint32_t i = 0; i < info->queueCreateInfoCount; i++) {
        const VkDeviceQueueCreateInfo *queue = &info->pQueueCreateInfos[i];
        device->families[i] =
            (struct vns_queue_family){queue->queueFamilyIndex, queue->queueCount, queue->flags, 0};
    }
    return true;
}

static void note_operations(const struct vns_instance *instance, VkPhysicalDevice physical,
                            struct vns_device *device)
{
    VkQueueFamilyProperties all[FAMILIES_MAX] = {{0}};
    uint32_t count = ARRAY_LEN(all);
    instance->driver.vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, all);
    for (uint32_t i = 0; i < device->family_count; i++) {
        uint32_t family = device->families[i].family;
        device->families[i].can = family < ARRAY_LEN(all) ? all[family].queueFlags : 0;
    }
}

static VkResult load(const struct vns_instance *instance, struct vns_device *device)
{
    vns_instance_load_device(instance, device->handle, &device->driver);
#define LOAD(member, name)                                                                         \
    if (!device->member)                                                                           \
    device->member = (PFN_##name)instance->get_device(device->handle, #name)
    LOAD(map_memory, vkMapMemory);
    LOAD(flush_memory, vkFlushMappedMemoryRanges);
    LOAD(invalidate_memory, vkInvalidateMappedMemoryRanges);
    LOAD(wait_idle, vkDeviceWaitIdle);
    LOAD(wait_semaphores, vkWaitSemaphores);
    LOAD(wait_semaphores, vkWaitSemaphoresKHR);
    LOAD(semaphore_value, vkGetSemaphoreCounterValue);
    LOAD(semaphore_value, vkGetSemaphoreCounterValueKHR);
#undef LOAD
    return device->map_memory && device->wait_semaphores && device->semaphore_value
               ? VK_SUCCESS
               : VK_ERROR_FEATURE_NOT_PRESENT;
}

VkResult vns_device_create(const struct vns_instance *instance, VkPhysicalDevice physical,
                           VkDeviceCreateInfo *info, struct hw_arena *arena,
                           struct vns_device **out)
{
    struct vns_device *device = calloc(1, sizeof(*device));
    if (!device || !note_families(device, info)) {
        free(device);
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    device->physical = physical;
    VkResult result = complete(instance, physical, info, arena);
    if (result == VK_SUCCESS)
        result = instance->driver.vkCreateDevice(physical, info, NULL, &device->handle);
    if (result < 0) {
        free(device->families);
        free(device);
        return result;
    }
    pthread_mutex_init(&device->reporting, NULL);
    result = load(instance, device);
    if (result < 0) {
        vns_device_destroy(device);
        return result;
    }
    instance->driver.vkGetPhysicalDeviceMemoryProperties(physical, &device->memory);
    note_operations(instance, physical, device);
    *out = device;
    return VK_SUCCESS;
}

void vns_device_stop(struct vns_device *device)
{
    vns_bus_destroy(device->bus, device); /* the executor has waited for each copy */
    device->bus = NULL;
    if (device->queues)
        (void)device->wait_idle(device->handle); /* a failure is nobody's news: the device goes */
    while (device->queues)
        vns_queue_destroy(device->queues);
}

void vns_device_destroy(struct vns_device *device)
{
    vns_device_stop(device);
    device->driver.vkDestroyDevice(device->handle, NULL);
    pthread_mutex_destroy(&device->reporting);
    free(device->families);
    free(device);
}

static bool has_queue(const struct vns_device *device, const VkDeviceQueueInfo2 *info)
{
    for (uint32_t i = 0; i < device->family_count; i++) {
        const struct vns_queue_family *family = &device->families[i];
        if (family->family == info->queueFamilyIndex && family->flags == info->flags)
            return info->queueIndex < family->count;
    }
    return false;
}

VkQueue vns_device_get_queue(const struct vns_device *device, const VkDeviceQueueInfo2 *info)
{
    VkQueue queue = VK_NULL_HANDLE;
    if (!has_queue(device, info))
        return VK_NULL_HANDLE;
    if (info->flags || info->pNext)
        device->driver.vkGetDeviceQueue2(device->handle, info, &queue);
    else
        device->driver.vkGetDeviceQueue(device->handle, info->queueFamilyIndex, info->queueIndex,
                                        &queue);
    return queue;
}
