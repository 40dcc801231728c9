/* Deferred operations: none is ever deferred, so each is complete as soon as it exists. */
#include "venus/client/object/local.h"
#include "venus/client/object/objects.h"

static VKAPI_ATTR VkResult VKAPI_CALL create(VkDevice device,
                                             const VkAllocationCallbacks *allocator,
                                             VkDeferredOperationKHR *out)
{
    (void)allocator;
    struct vn_object *operation = vnc_object_create(
        vnc_link_of(device), VK_OBJECT_TYPE_DEFERRED_OPERATION_KHR, (struct vn_object *)device);
    *out = VNC_HANDLE(VkDeferredOperationKHR, operation);
    return operation ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
}

static VKAPI_ATTR void VKAPI_CALL destroy(VkDevice device, VkDeferredOperationKHR operation,
                                          const VkAllocationCallbacks *allocator)
{
    (void)device;
    (void)allocator;
    vnc_object_destroy(VNC_OBJECT(vn_object, operation));
}

static VKAPI_ATTR uint32_t VKAPI_CALL concurrency(VkDevice device, VkDeferredOperationKHR operation)
{
    (void)device;
    (void)operation;
    return 0;
}

static VKAPI_ATTR VkResult VKAPI_CALL complete(VkDevice device, VkDeferredOperationKHR operation)
{
    (void)device;
    (void)operation;
    return VK_SUCCESS;
}

const struct vnc_entry vnc_entries_deferred[] = {
    VNC_ENTRY(vkCreateDeferredOperationKHR, create),
    VNC_ENTRY(vkDestroyDeferredOperationKHR, destroy),
    VNC_ENTRY(vkGetDeferredOperationMaxConcurrencyKHR, concurrency),
    VNC_ENTRY(vkGetDeferredOperationResultKHR, complete),
    VNC_ENTRY(vkDeferredOperationJoinKHR, complete),
    {NULL, NULL},
};
