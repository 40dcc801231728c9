/* Logical devices; see device.h. */
#include "venus/client/device/device.h"

#include "venus/client/device/physical_device.h"
#include "venus/client/locks.h"
#include "venus/client/memory/recycled.h"
#include "venus/client/memory/upload.h"
#include "venus/client/submit/queue.h"
#include "venus/common/commands.h"
#include "vn_client.gen.h"

#include <stdlib.h>

VkResult vnc_device_status(const struct vnc_device *device)
{
    if (vnc_link_is_lost(vnc_device_link(device)) ||
        vnc_pushes_failed(device->pushes, device->object.id))
        return VK_ERROR_DEVICE_LOST;
    for (uint32_t i = 0; i < device->queue_count; i++) {
        if (atomic_load_explicit(&device->queues[i]->result, memory_order_relaxed))
            return VK_ERROR_DEVICE_LOST;
    }
    return VK_SUCCESS;
}

bool vnc_device_is_watched(const struct vnc_device *device)
{
    for (uint32_t i = 0; i < device->queue_count; i++) {
        if (vnc_queue_is_watched(device->queues[i]))
            return true;
    }
    return false;
}

bool vnc_device_is_busy(struct vnc_device *device)
{
    vnc_link_poll(vnc_device_link(device));
    return vnc_device_is_watched(device);
}

bool vnc_device_is_working(const struct vnc_device *device)
{
    for (uint32_t i = 0; i < device->queue_count; i++) {
        if (vnc_queue_is_working(device->queues[i]))
            return true;
    }
    return false;
}

/* ---- creation ---- */

static void device_free(struct vnc_device *device)
{
    vnc_pushes_remove_device(device->pushes, device->object.id);
    for (uint32_t i = 0; i < device->queue_count; i++) {
        vnc_pushes_remove_queue(device->pushes, device->queues[i]);
        vnc_object_destroy(&device->queues[i]->object);
    }
    for (uint32_t i = 0; i < device->extension_count; i++)
        free(device->extensions[i]);
    free(device->queues);
    free(device->extensions);
    vn_delta_codec_destroy(device->codec);
    vnc_upload_destroy(device->upload);
    vnc_memo_fini(&device->requirements);
    pthread_cond_destroy(&device->sent);
    vnc_lock_fini(&device->lock);
    vnc_lock_fini(&device->recordings_lock);
    vnc_object_destroy(&device->object);
}

static struct vnc_device *device_new(struct vnc_physical_device *physical)
{
    struct vnc_device *device =
        vnc_object_create(physical->link, VK_OBJECT_TYPE_DEVICE, &physical->object);
    if (!device)
        return NULL;
    device->physical = physical;
    device->pushes = vnc_link_pushes(physical->link);
    vnc_memo_init(&device->requirements);
    vnc_lock_init(&device->lock);
    vnc_lock_init(&device->recordings_lock);
    pthread_cond_init(&device->sent, NULL);
    if (vn_delta_codec_create(physical->near ? 0 : VN_DELTA_ZSTD_MIN, &device->codec) ||
        vnc_upload_create(physical->upload_key, &device->upload)) {
        device_free(device);
        return NULL;
    }
    vn_delta_codec_watch(device->codec, vnc_link_is_behind, physical->link);
    return device;
}

static VkResult keep_extensions(struct vnc_device *device, const VkDeviceCreateInfo *info)
{
    device->extensions =
        calloc(info->enabledExtensionCount ? info->enabledExtensionCount : 1, sizeof(char *));
    if (!device->extensions)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
        if (!vnc_physical_device_has(device->physical, info->ppEnabledExtensionNames[i]))
            return VK_ERROR_EXTENSION_NOT_PRESENT;
        char *name = strdup(info->ppEnabledExtensionNames[i]);
        if (!name)
            return VK_ERROR_OUT_OF_HOST_MEMORY;
        device->extensions[device->extension_count++] = name;
    }
    return VK_SUCCESS;
}

static VkResult add_queue(struct vnc_device *device, const VkDeviceQueueCreateInfo *info,
                          uint32_t index)
{
    struct vnc_queue *queue =
        vnc_object_create(vnc_device_link(device), VK_OBJECT_TYPE_QUEUE, &device->object);
    if (!queue)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    if (vnc_pushes_add_queue(device->pushes, queue)) {
        vnc_object_destroy(&queue->object);
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    queue->family = info->queueFamilyIndex;
    queue->index = index;
    queue->flags = info->flags;
    device->queues[device->queue_count++] = queue;
    return VK_SUCCESS;
}

static VkResult make_queues(struct vnc_device *device, const VkDeviceCreateInfo *info)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < info->queueCreateInfoCount; i++)
        total += info->pQueueCreateInfos[i].queueCount;
    device->queues = calloc(total ? total : 1, sizeof(struct vnc_queue *));
    if (!device->queues)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    VkResult result = VK_SUCCESS;
    for (uint32_t i = 0; i < info->queueCreateInfoCount; i++)
        for (uint32_t j = 0; result == VK_SUCCESS && j < info->pQueueCreateInfos[i].queueCount; j++)
            result = add_queue(device, &info->pQueueCreateInfos[i], j);
    return result;
}

/* Leaves out what lives at the client.  The list is the caller's to free. */
static const char **driver_extensions(const VkDeviceCreateInfo *info, uint32_t *count)
{
    const char **names =
        calloc(info->enabledExtensionCount ? info->enabledExtensionCount : 1, sizeof(*names));
    *count = 0;
    for (uint32_t i = 0; names && i < info->enabledExtensionCount; i++) {
        if (!vn_extension_find(info->ppEnabledExtensionNames[i])->client_only)
            names[(*count)++] = info->ppEnabledExtensionNames[i];
    }
    return names;
}

static VkResult call_create(struct vnc_device *device, const VkDeviceCreateInfo *info)
{
    struct vnc_link *link = vnc_device_link(device);
    VkPhysicalDevice physical = VNC_HANDLE(VkPhysicalDevice, device->physical);
    VkDevice handle = VNC_HANDLE(VkDevice, device);
    VkDeviceCreateInfo driver_info = *info;
    const char **names = driver_extensions(info, &driver_info.enabledExtensionCount);
    if (!names)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    driver_info.ppEnabledExtensionNames = names;
    struct wire_enc *e = vnc_link_begin(link);
    if (!e) {
        free(names);
        return VK_ERROR_DEVICE_LOST;
    }
    vn_enc_cmd_vkCreateDevice(e, physical, &driver_info, NULL, &handle);
    free(names);
    struct vn_decoder reply;
    VkResult result = vnc_link_call(link, &reply);
    if (result != VK_SUCCESS)
        return result;
    reply.ops = &(const struct vn_decoder_ops){0}; /* the device is ours to free */
    result = vn_dec_reply_vkCreateDevice(&reply, physical, &driver_info, NULL, &handle);
    return vnc_link_finish(link, &reply) == VK_SUCCESS ? result : VK_ERROR_DEVICE_LOST;
}

/* The server gives each queue the id that it has here. */
static VkResult tell_queues(struct vnc_device *device)
{
    struct vnc_link *link = vnc_device_link(device);
    VkDevice handle = VNC_HANDLE(VkDevice, device);
    for (uint32_t i = 0; i < device->queue_count; i++) {
        VkQueue queue = VNC_HANDLE(VkQueue, device->queues[i]);
        struct wire_enc *e = vnc_link_begin(link);
        if (!e)
            return VK_ERROR_DEVICE_LOST;
        VkDeviceQueueInfo2 info = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_INFO_2,
                                   .flags = device->queues[i]->flags,
                                   .queueFamilyIndex = device->queues[i]->family,
                                   .queueIndex = device->queues[i]->index};
        if (info.flags)
            vn_enc_cmd_vkGetDeviceQueue2(e, handle, &info, &queue);
        else
            vn_enc_cmd_vkGetDeviceQueue(e, handle, info.queueFamilyIndex, info.queueIndex, &queue);
        VkResult result = vnc_link_post(link);
        if (result != VK_SUCCESS)
            return result;
    }
    return VK_SUCCESS;
}

static void send_destroy(struct vnc_device *device, const VkAllocationCallbacks *allocator)
{
    struct vnc_link *link = vnc_device_link(device);
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return;
    vn_enc_cmd_vkDestroyDevice(e, VNC_HANDLE(VkDevice, device), allocator);
    (void)vnc_link_send(link);
}

/* A device whose queues have no ids here is of no use to anybody. */
static VkResult call_create_with_queues(struct vnc_device *device, const VkDeviceCreateInfo *info)
{
    VkResult result = call_create(device, info);
    if (result != VK_SUCCESS)
        return result;
    result = tell_queues(device);
    if (result != VK_SUCCESS)
        send_destroy(device, NULL);
    return result;
}

static bool enables_views(const VkDeviceCreateInfo *info)
{
    const VkPhysicalDeviceVulkan11Features *all =
        vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES);
    const VkPhysicalDeviceMultiviewFeatures *one =
        vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MULTIVIEW_FEATURES);
    return (all && all->multiview) || (one && one->multiview);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
                                                    const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator,
                                                    VkDevice *out)
{
    (void)allocator;
    struct vnc_device *device = device_new(VNC_OBJECT(vnc_physical_device, physical));
    if (!device)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    device->has_views = enables_views(info);
    VkResult result = keep_extensions(device, info);
    if (result == VK_SUCCESS)
        result = make_queues(device, info);
    if (result == VK_SUCCESS)
        result = call_create_with_queues(device, info);
    if (result != VK_SUCCESS) {
        device_free(device);
        return result;
    }
    *out = VNC_HANDLE(VkDevice, device);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice handle,
                                                 const VkAllocationCallbacks *allocator)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    if (!device)
        return;
    (void)vnc_recycled_free(device);
    send_destroy(device, allocator);
    device_free(device);
}

/* ---- queues ---- */

static VKAPI_ATTR void VKAPI_CALL get_device_queue2(VkDevice handle, const VkDeviceQueueInfo2 *info,
                                                    VkQueue *out)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    *out = VK_NULL_HANDLE;
    for (uint32_t i = 0; i < device->queue_count; i++) {
        struct vnc_queue *queue = device->queues[i];
        if (queue->family == info->queueFamilyIndex && queue->index == info->queueIndex &&
            queue->flags == info->flags)
            *out = VNC_HANDLE(VkQueue, queue);
    }
}

static VKAPI_ATTR void VKAPI_CALL get_device_queue(VkDevice device, uint32_t family, uint32_t index,
                                                   VkQueue *out)
{
    VkDeviceQueueInfo2 info = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_INFO_2,
                               .queueFamilyIndex = family,
                               .queueIndex = index};
    get_device_queue2(device, &info, out);
}

const struct vnc_entry vnc_entries_device[] = {
    VNC_ENTRY(vkCreateDevice, create_device),
    VNC_ENTRY(vkDestroyDevice, destroy_device),
    VNC_ENTRY(vkGetDeviceQueue, get_device_queue),
    VNC_ENTRY(vkGetDeviceQueue2, get_device_queue2),
    {NULL, NULL},
};
