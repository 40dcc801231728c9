/* Deferred operations: none is ever deferred, so each is complete as soon as it exists. */
#include "venus/client/object/local.h"
#include "venus/client/object/objects.h"

static VKAPI_ATTR VkResult VKAPI_CALL create(VkDevice device,
                                             const VkAllocationCallbacks *allocator,
                                             VkDeferredOperationKHR *out)
{
    (void)allocator;
    struct vn_object *operation = vn_object_create(
        vn_link_of(device), VK_OBJECT_TYPE_DEFERRED_OPERATION_KHR, (struct vn_object *)device);
    *out = VN_HANDLE(VkDeferredOperationKHR, operation);
    return operation ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
}

static VKAPI_ATTR void VKAPI_CALL destroy(VkDevice device, VkDeferredOperationKHR operation,
                                          const VkAllocationCallbacks *allocator)
{
    (void)device;
    (void)allocator;
    vn_object_destroy(VN_OBJECT(vn_object, operation));
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

const struct vn_entry vn_entries_deferred[] = {
    VN_ENTRY(vkCreateDeferredOperationKHR, create),
    VN_ENTRY(vkDestroyDeferredOperationKHR, destroy),
    VN_ENTRY(vkGetDeferredOperationMaxConcurrencyKHR, concurrency),
    VN_ENTRY(vkGetDeferredOperationResultKHR, complete),
    VN_ENTRY(vkDeferredOperationJoinKHR, complete),
    {NULL, NULL},
};
