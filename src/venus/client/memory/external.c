/* Memory that processes share; see external.h. */
#include "venus/client/memory/external.h"

#include "base/log.h"
#include "venus/client/device/physical_device.h"
#include "venus/common/chain.h"
#include "vn_client.gen.h"

#include <unistd.h>

#define OFFERED VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT
#define HOST VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT

/* ---- what there is ---- */

bool vnc_external_has(const struct vnc_physical_device *device,
                      VkExternalMemoryHandleTypeFlagBits type)
{
    return type == HOST ||
           (type == OFFERED &&
            vnc_physical_device_has(device, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME));
}

void vnc_external_offer(VkExternalMemoryProperties *properties)
{
    properties->compatibleHandleTypes &= OFFERED | HOST;
    properties->exportFromImportedHandleTypes &= OFFERED;
}

static VKAPI_ATTR void VKAPI_CALL
get_buffer_properties(VkPhysicalDevice handle, const VkPhysicalDeviceExternalBufferInfo *info,
                      VkExternalBufferProperties *out)
{
    out->externalMemoryProperties = (VkExternalMemoryProperties){0};
    if (info->handleType == HOST) {
        out->externalMemoryProperties = (VkExternalMemoryProperties){
            .externalMemoryFeatures = VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT,
            .compatibleHandleTypes = HOST};
        return;
    }
    if (!vnc_external_has(VNC_OBJECT(vnc_physical_device, handle), info->handleType))
        return;
    vn_vkGetPhysicalDeviceExternalBufferProperties(handle, info, out);
    vnc_external_offer(&out->externalMemoryProperties);
}

/* ---- allocation ---- */

static const VkImportMemoryFdInfoKHR *find_import(const void *chain)
{
    const VkImportMemoryFdInfoKHR *import =
        vn_chain_find(chain, VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR);
    return import && import->handleType ? import : NULL;
}

bool vnc_external_is_chained(const struct vnc_physical_device *device, const void *chain)
{
    if (!chain || !vnc_external_has(device, OFFERED))
        return false;
    const VkExternalMemoryBufferCreateInfo *buffer =
        vn_chain_find(chain, VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO);
    const VkExternalMemoryImageCreateInfo *image =
        vn_chain_find(chain, VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMAGE_CREATE_INFO);
    const VkExportMemoryAllocateInfo *export =
        vn_chain_find(chain, VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO);
    return (buffer && buffer->handleTypes & ~(VkFlags)HOST) ||
           (image && image->handleTypes & ~(VkFlags)HOST) || (export && export->handleTypes) ||
           find_import(chain);
}

static VkResult import_fd(VkDevice device, const VkMemoryAllocateInfo *info, int fd,
                          VkDeviceMemory *out)
{
    struct vnc_link *link = vnc_device_link(VNC_OBJECT(vnc_device, device));
    if (fd < 0)
        return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    if (!vn_client_new(device, VK_OBJECT_TYPE_DEVICE_MEMORY, 1, out))
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    struct wire_enc *e = vnc_link_begin_alone(link);
    struct vn_decoder reply;
    VkResult asked = VK_ERROR_DEVICE_LOST;
    if (e) {
        vn_enc_cmd_vkAllocateMemory(e, device, info, NULL, out);
        asked = vnc_link_call_with_fd(link, fd, &reply);
    }
    VkResult result = asked;
    if (asked == VK_SUCCESS) {
        result = vn_dec_reply_vkAllocateMemory(&reply, device, info, NULL, out);
        if (vnc_link_finish(link, &reply) != VK_SUCCESS)
            result = VK_ERROR_DEVICE_LOST;
    }
    if (asked != VK_SUCCESS || result == VK_ERROR_DEVICE_LOST)
        vn_client_undo(vnc_link_client(link), 1, out);
    if (result == VK_SUCCESS)
        close(fd); /* the server's driver has its own of the same */
    return result;
}

VkResult vnc_external_allocate(VkDevice handle, const VkMemoryAllocateInfo *info, bool host_visible,
                               VkDeviceMemory *out)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    const VkImportMemoryFdInfoKHR *import = find_import(info->pNext);
    if (host_visible) {
        hw_warn(HW_CAT_MEMORY,
                "memory that is shared with other processes cannot be mapped: take a "
                "type without HOST_VISIBLE");
        return import ? VK_ERROR_INVALID_EXTERNAL_HANDLE : VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    if (import && import->handleType != OFFERED)
        return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    atomic_store_explicit(&device->shares_memory, true, memory_order_relaxed);
    return import ? import_fd(handle, info, import->fd, out)
                  : vn_vkAllocateMemory(handle, info, NULL, out);
}

/* ---- memory of the program ---- */

void *vnc_external_host_pointer(const void *chain)
{
    const VkImportMemoryHostPointerInfoEXT *import =
        vn_chain_find(chain, VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT);
    return import && import->handleType == HOST ? import->pHostPointer : NULL;
}

/* The server compares what stands behind the pointer, so the GPU's own memory only where there is
 * nothing else. */
bool vnc_external_is_host_type(const struct vnc_physical_device *device, uint32_t type)
{
    const VkMemoryPropertyFlags needed =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkPhysicalDeviceMemoryProperties *offered = &device->types.offered;
    bool others = false;
    for (uint32_t i = 0; i < offered->memoryTypeCount; i++) {
        VkMemoryPropertyFlags flags = offered->memoryTypes[i].propertyFlags;
        others |= (flags & needed) == needed && !(flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
    }
    VkMemoryPropertyFlags flags = offered->memoryTypes[type].propertyFlags;
    return (flags & needed) == needed && !(others && flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
}

static VKAPI_ATTR VkResult VKAPI_CALL get_host_properties(VkDevice handle,
                                                          VkExternalMemoryHandleTypeFlagBits type,
                                                          const void *pointer,
                                                          VkMemoryHostPointerPropertiesEXT *out)
{
    const struct vnc_physical_device *physical = VNC_OBJECT(vnc_device, handle)->physical;
    out->memoryTypeBits = 0;
    if (type != HOST || (uintptr_t)pointer % (uintptr_t)sysconf(_SC_PAGESIZE))
        return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    for (uint32_t i = 0; i < physical->types.offered.memoryTypeCount; i++)
        out->memoryTypeBits |= (uint32_t)vnc_external_is_host_type(physical, i) << i;
    return VK_SUCCESS;
}

/* ---- descriptors ---- */

static VKAPI_ATTR VkResult VKAPI_CALL get_fd(VkDevice handle, const VkMemoryGetFdInfoKHR *info,
                                             int *out)
{
    struct vnc_link *link = vnc_device_link(VNC_OBJECT(vnc_device, handle));
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    vn_enc_cmd_vkGetMemoryFdKHR(e, handle, info, out);
    return vnc_link_call_for_fd(link, out);
}

/* Of opaque descriptors nothing can be asked, and there are no others. */
static VKAPI_ATTR VkResult VKAPI_CALL get_fd_properties(VkDevice device,
                                                        VkExternalMemoryHandleTypeFlagBits type,
                                                        int fd, VkMemoryFdPropertiesKHR *out)
{
    (void)device, (void)type, (void)fd, (void)out;
    return VK_ERROR_INVALID_EXTERNAL_HANDLE;
}

const struct vnc_entry vnc_entries_external[] = {
    VNC_ENTRY(vkGetPhysicalDeviceExternalBufferProperties, get_buffer_properties),
    VNC_ENTRY(vkGetMemoryHostPointerPropertiesEXT, get_host_properties),
    VNC_ENTRY(vkGetMemoryFdKHR, get_fd),
    VNC_ENTRY(vkGetMemoryFdPropertiesKHR, get_fd_properties),
    {NULL, NULL},
};
