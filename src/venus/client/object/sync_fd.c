/* Semaphores and fences that processes share; see sync_fd.h. */
#include "venus/client/object/sync_fd.h"

#include "venus/client/device/physical_device.h"
#include "venus/client/object/sync.h"
#include "vn_client.gen.h"

#include <unistd.h>

static const VkExternalSemaphoreHandleTypeFlags semaphore_types =
    VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT | VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_SYNC_FD_BIT;
static const VkExternalFenceHandleTypeFlags fence_types =
    VK_EXTERNAL_FENCE_HANDLE_TYPE_OPAQUE_FD_BIT | VK_EXTERNAL_FENCE_HANDLE_TYPE_SYNC_FD_BIT;

/* ---- what there is ---- */

static VKAPI_ATTR void VKAPI_CALL
get_semaphore_properties(VkPhysicalDevice handle, const VkPhysicalDeviceExternalSemaphoreInfo *info,
                         VkExternalSemaphoreProperties *out)
{
    out->exportFromImportedHandleTypes = out->compatibleHandleTypes = 0;
    out->externalSemaphoreFeatures = 0;
    if (!(info->handleType & semaphore_types) ||
        !vnc_physical_device_has(VNC_OBJECT(vnc_physical_device, handle),
                                 VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME))
        return;
    vn_vkGetPhysicalDeviceExternalSemaphoreProperties(handle, info, out);
    out->exportFromImportedHandleTypes &= semaphore_types;
    out->compatibleHandleTypes &= semaphore_types;
}

static VKAPI_ATTR void VKAPI_CALL
get_fence_properties(VkPhysicalDevice handle, const VkPhysicalDeviceExternalFenceInfo *info,
                     VkExternalFenceProperties *out)
{
    out->exportFromImportedHandleTypes = out->compatibleHandleTypes = 0;
    out->externalFenceFeatures = 0;
    if (!(info->handleType & fence_types) ||
        !vnc_physical_device_has(VNC_OBJECT(vnc_physical_device, handle),
                                 VK_KHR_EXTERNAL_FENCE_FD_EXTENSION_NAME))
        return;
    vn_vkGetPhysicalDeviceExternalFenceProperties(handle, info, out);
    out->exportFromImportedHandleTypes &= fence_types;
    out->compatibleHandleTypes &= fence_types;
}

/* ---- exports ---- */

static VKAPI_ATTR VkResult VKAPI_CALL get_semaphore_fd(VkDevice device,
                                                       const VkSemaphoreGetFdInfoKHR *info,
                                                       int *out)
{
    struct vnc_link *link = vnc_link_of(device);
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    atomic_store_explicit(&VNC_OBJECT(vnc_semaphore, info->semaphore)->shared, true,
                          memory_order_relaxed);
    vn_enc_cmd_vkGetSemaphoreFdKHR(e, device, info, out);
    return vnc_link_call_for_fd(link, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL get_fence_fd(VkDevice device, const VkFenceGetFdInfoKHR *info,
                                                   int *out)
{
    struct vnc_link *link = vnc_link_of(device);
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    vn_enc_cmd_vkGetFenceFdKHR(e, device, info, out);
    return vnc_link_call_for_fd(link, out);
}

/* ---- imports ---- */

/* A sync file that is signalled may be -1; nothing else may. */
static bool is_none(int fd, bool sync_file)
{
    return fd < (sync_file ? -1 : 0);
}

/* Sends the command that was put, with its descriptor. */
static VkResult give_fd(struct vnc_link *link, int fd)
{
    struct vn_decoder reply;
    VkResult result = vnc_link_call_with_fd(link, fd, &reply);
    if (result == VK_SUCCESS) {
        result = (VkResult)wire_get_u32(&reply.in);
        if (vnc_link_finish(link, &reply) != VK_SUCCESS)
            result = VK_ERROR_DEVICE_LOST;
    }
    if (result == VK_SUCCESS && fd >= 0)
        close(fd); /* the server's driver has its own of the same */
    return result == VK_ERROR_DEVICE_LOST ? VK_ERROR_OUT_OF_HOST_MEMORY : result;
}

static VKAPI_ATTR VkResult VKAPI_CALL import_semaphore(VkDevice device,
                                                       const VkImportSemaphoreFdInfoKHR *info)
{
    struct vnc_link *link = vnc_link_of(device);
    struct vnc_semaphore *semaphore = VNC_OBJECT(vnc_semaphore, info->semaphore);
    if (is_none(info->fd, info->handleType == VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_SYNC_FD_BIT))
        return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    struct wire_enc *e = vnc_link_begin_alone(link);
    if (!e)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    semaphore->external = true;
    atomic_store_explicit(&semaphore->shared, true, memory_order_relaxed);
    vn_enc_cmd_vkImportSemaphoreFdKHR(e, device, info);
    return give_fd(link, info->fd);
}

/* From now on the fence lives at the server.  An import ends whatever state it had. */
static VkResult move_fence(VkDevice device, struct vnc_fence *fence)
{
    const VkFenceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    struct vnc_link *link = vnc_link_of(device);
    struct wire_enc *e = vnc_link_begin(link);
    VkFence handle = VNC_HANDLE(VkFence, fence);
    if (!e)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    vn_enc_cmd_vkCreateFence(e, device, &info, NULL, &handle);
    VkResult result = vnc_link_post(link);
    fence->external = result == VK_SUCCESS;
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL import_fence(VkDevice device,
                                                   const VkImportFenceFdInfoKHR *info)
{
    struct vnc_link *link = vnc_link_of(device);
    struct vnc_fence *fence = VNC_OBJECT(vnc_fence, info->fence);
    if (is_none(info->fd, info->handleType == VK_EXTERNAL_FENCE_HANDLE_TYPE_SYNC_FD_BIT))
        return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    if (!fence->external && move_fence(device, fence) != VK_SUCCESS)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    struct wire_enc *e = vnc_link_begin_alone(link);
    if (!e)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    vn_enc_cmd_vkImportFenceFdKHR(e, device, info);
    return give_fd(link, info->fd);
}

const struct vnc_entry vnc_entries_sync_fd[] = {
    VNC_ENTRY(vkGetPhysicalDeviceExternalSemaphoreProperties, get_semaphore_properties),
    VNC_ENTRY(vkGetPhysicalDeviceExternalFenceProperties, get_fence_properties),
    VNC_ENTRY(vkGetSemaphoreFdKHR, get_semaphore_fd),
    VNC_ENTRY(vkGetFenceFdKHR, get_fence_fd),
    VNC_ENTRY(vkImportSemaphoreFdKHR, import_semaphore),
    VNC_ENTRY(vkImportFenceFdKHR, import_fence),
    {NULL, NULL},
};
