/* Swapchains: images that are made at the server and shown here; see wsi.h. */
#include "venus/client/present/swapchain.h"

#include "base/clock.h"
#include "venus/client/object/local.h"
#include "venus/client/object/sync.h"
#include "venus/client/present/image.h"
#include "venus/client/present/presenter.h"
#include "venus/client/present/wsi.h"

#include <stdlib.h>

enum {
    IMAGES_MAX = 64,     /* programs ask for 2 to 8; each costs twice its size */
    SWAPCHAINS_MAX = 64, /* of one present; each is a window */
};

struct vnc_swapchain {
    struct vn_object object; /* id 0: it never travels */
    struct vnc_device *device;
    VkExtent2D extent;
    uint32_t wanted, count; /* of images; less only while they are made */
    VkPresentModeKHR mode;  /* of the last present; as the images, the program's to order */
    struct vnc_wsi_image *images;
    bool shown;                    /* images have pictures */
    struct vnc_wsi_copies *copies; /* one for each queue family; made at its first present */
    struct vnc_presenter *presenter;
    _Atomic(struct vnc_queue *) last; /* that presented; relaxed: any queue of the device will do */
};

static struct vnc_swapchain *swapchain_of(VkSwapchainKHR handle)
{
    return VNC_OBJECT(vnc_swapchain, handle);
}

static VkDevice handle_of(const struct vnc_swapchain *swapchain)
{
    return VNC_HANDLE(VkDevice, swapchain->device);
}

VkDeviceMemory vnc_swapchain_memory(VkSwapchainKHR handle, uint32_t index)
{
    const struct vnc_swapchain *swapchain = swapchain_of(handle);
    return index < swapchain->count ? swapchain->images[index].memory : VK_NULL_HANDLE;
}

/* ---- waiting for a batch ---- */

struct batch_wait {
    struct vnc_device *device;
    struct vnc_queue *queue;
    uint64_t number;
};

/* A failed device ends the wait, too: nothing else would. */
static bool is_decided(void *user)
{
    struct batch_wait *wait = user;
    return vnc_queue_has_done(wait->queue, wait->number) ||
           vnc_device_status(wait->device) != VK_SUCCESS;
}

static VkResult wait_for_batch(void *user, struct vnc_queue *queue, uint64_t number)
{
    struct batch_wait wait = {user, queue, number};
    VkResult result = vnc_link_wait(vnc_device_link(wait.device), is_decided, &wait, HW_NEVER);
    return result == VK_SUCCESS ? vnc_device_status(wait.device) : result;
}

/* ---- creation ---- */

void vnc_swapchain_image_info(VkImageCreateInfo *info)
{
    info->flags |= VK_IMAGE_CREATE_ALIAS_BIT;
    info->usage |= VK_IMAGE_USAGE_TRANSFER_SRC_BIT;
}

/* The image that VkSwapchainCreateInfoKHR implies. */
static VkImageCreateInfo image_info(const VkSwapchainCreateInfoKHR *info)
{
    VkImageCreateInfo image = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
        .imageType = VK_IMAGE_TYPE_2D,
        .format = info->imageFormat,
        .extent = {info->imageExtent.width, info->imageExtent.height, 1},
        .mipLevels = 1,
        .arrayLayers = info->imageArrayLayers,
        .samples = VK_SAMPLE_COUNT_1_BIT,
        .tiling = VK_IMAGE_TILING_OPTIMAL,
        .usage = info->imageUsage,
        .sharingMode = info->imageSharingMode,
        .queueFamilyIndexCount = info->queueFamilyIndexCount,
        .pQueueFamilyIndices = info->pQueueFamilyIndices,
        .initialLayout = VK_IMAGE_LAYOUT_UNDEFINED,
    };
    if (info->flags & VK_SWAPCHAIN_CREATE_MUTABLE_FORMAT_BIT_KHR)
        image.flags |= VK_IMAGE_CREATE_MUTABLE_FORMAT_BIT | VK_IMAGE_CREATE_EXTENDED_USAGE_BIT;
#ifdef VK_EXT_multisampled_render_to_swapchain
    if (info->flags & VK_SWAPCHAIN_CREATE_MULTISAMPLED_RENDER_TO_SINGLE_SAMPLED_BIT_EXT)
        image.flags |= VK_IMAGE_CREATE_MULTISAMPLED_RENDER_TO_SINGLE_SAMPLED_BIT_EXT;
#endif
    vnc_swapchain_image_info(&image);
    return image;
}

static VkResult make_images(struct vnc_swapchain *swapchain, const VkSwapchainCreateInfoKHR *info)
{
    VkImageCreateInfo image = image_info(info);
    VkImageFormatListCreateInfo formats;
    const VkImageFormatListCreateInfo *given =
        vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_IMAGE_FORMAT_LIST_CREATE_INFO);
    if (given && info->flags & VK_SWAPCHAIN_CREATE_MUTABLE_FORMAT_BIT_KHR) {
        formats = *given;
        formats.pNext = NULL;
        image.pNext = &formats;
    }
    VkResult result = VK_SUCCESS;
    for (; result == VK_SUCCESS && swapchain->count < swapchain->wanted; swapchain->count++)
        result = vnc_wsi_image_init(&swapchain->images[swapchain->count], handle_of(swapchain),
                                    &image, swapchain->shown);
    return result;
}

static VkResult start_presenter(struct vnc_swapchain *swapchain, struct vnc_canvas *canvas)
{
    const uint8_t *pictures[IMAGES_MAX];
    for (uint32_t i = 0; i < swapchain->count; i++)
        pictures[i] = swapchain->images[i].picture;
    struct vnc_presenter_params params = {
        .count = swapchain->count,
        .canvas = canvas,
        .pictures = pictures,
        .wait = wait_for_batch,
        .user = swapchain->device,
    };
    return vnc_presenter_create(&params, &swapchain->presenter);
}

static void swapchain_free(struct vnc_swapchain *swapchain)
{
    VkDevice device = handle_of(swapchain);
    vnc_private_data_forget(&swapchain->object);
    vnc_presenter_destroy(swapchain->presenter); /* what is under way ends here */
    uint32_t families = swapchain->device->physical->queue_family_count;
    for (uint32_t i = 0; swapchain->copies && i < families; i++)
        vnc_wsi_copies_fini(&swapchain->copies[i], device);
    for (uint32_t i = 0; i < swapchain->count; i++)
        vnc_wsi_image_fini(&swapchain->images[i], device);
    free(swapchain->copies);
    free(swapchain->images);
    free(swapchain);
}

/* Also when it is in MAILBOX only later on. */
static bool may_overtake(const VkSwapchainCreateInfoKHR *info)
{
    const VkSwapchainPresentModesCreateInfoEXT *modes =
        vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_SWAPCHAIN_PRESENT_MODES_CREATE_INFO_EXT);
    bool found = info->presentMode == VK_PRESENT_MODE_MAILBOX_KHR;
    for (uint32_t i = 0; modes && i < modes->presentModeCount; i++)
        found = found || modes->pPresentModes[i] == VK_PRESENT_MODE_MAILBOX_KHR;
    return found;
}

static struct vnc_swapchain *swapchain_new(struct vnc_device *device,
                                           const VkSwapchainCreateInfoKHR *info)
{
    struct vnc_swapchain *swapchain = calloc(1, sizeof(*swapchain));
    if (!swapchain)
        return NULL;
    swapchain->object.type = VK_OBJECT_TYPE_SWAPCHAIN_KHR;
    swapchain->object.id = vnc_link_ids(vnc_link_of(device), 1); /* for private data */
    swapchain->object.client = device->object.client;
    swapchain->device = device;
    swapchain->extent = info->imageExtent;
    swapchain->wanted = info->minImageCount;
    swapchain->mode = info->presentMode;
    if (may_overtake(info) && swapchain->wanted < VNC_MAILBOX_IMAGES_MIN)
        swapchain->wanted = VNC_MAILBOX_IMAGES_MIN;
    swapchain->images = calloc(swapchain->wanted, sizeof(*swapchain->images));
    swapchain->copies = calloc(device->physical->queue_family_count, sizeof(*swapchain->copies));
    if (swapchain->images && swapchain->copies)
        return swapchain;
    swapchain_free(swapchain);
    return NULL;
}

static VkResult fill_swapchain(struct vnc_swapchain *swapchain,
                               const VkSwapchainCreateInfoKHR *info)
{
    const struct vnc_surface *surface = VNC_OBJECT(vnc_surface, info->surface);
    struct vnc_canvas *canvas = NULL;
    VkResult result = VK_SUCCESS;
    if (surface->ops->canvas)
        result = surface->ops->canvas(surface, info, &canvas);
    if (result != VK_SUCCESS)
        return result;
    swapchain->shown = canvas != NULL;
    result = make_images(swapchain, info);
    if (result == VK_SUCCESS)
        result = start_presenter(swapchain, canvas);
    if (result != VK_SUCCESS && canvas)
        canvas->ops->destroy(canvas);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_swapchain(VkDevice handle,
                                                       const VkSwapchainCreateInfoKHR *info,
                                                       const VkAllocationCallbacks *allocator,
                                                       VkSwapchainKHR *out)
{
    (void)allocator;
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    /* Retired even when the new one cannot be made. */
    if (info->oldSwapchain)
        vnc_presenter_retire(swapchain_of(info->oldSwapchain)->presenter);
    VkResult result = vnc_device_status(device);
    if (result != VK_SUCCESS)
        return result;
    if (info->minImageCount > IMAGES_MAX)
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    struct vnc_swapchain *swapchain = swapchain_new(device, info);
    if (!swapchain)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    result = fill_swapchain(swapchain, info);
    if (result != VK_SUCCESS) {
        swapchain_free(swapchain);
        return result;
    }
    *out = VNC_HANDLE(VkSwapchainKHR, swapchain);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_swapchain(VkDevice device, VkSwapchainKHR handle,
                                                    const VkAllocationCallbacks *allocator)
{
    (void)device, (void)allocator;
    if (handle)
        swapchain_free(swapchain_of(handle));
}

static VKAPI_ATTR VkResult VKAPI_CALL get_images(VkDevice device, VkSwapchainKHR handle,
                                                 uint32_t *count, VkImage *out)
{
    (void)device;
    const struct vnc_swapchain *swapchain = swapchain_of(handle);
    if (!out) {
        *count = swapchain->count;
        return VK_SUCCESS;
    }
    if (*count > swapchain->count)
        *count = swapchain->count;
    for (uint32_t i = 0; i < *count; i++)
        out[i] = swapchain->images[i].image;
    return *count < swapchain->count ? VK_INCOMPLETE : VK_SUCCESS;
}

/* ---- acquiring ---- */

/* A queue of the device; one that presents has the least to wait for. */
static struct vnc_queue *queue_for_signal(struct vnc_swapchain *swapchain)
{
    struct vnc_queue *queue = atomic_load_explicit(&swapchain->last, memory_order_relaxed);
    for (uint32_t i = 0; !queue && i < swapchain->device->queue_count; i++) {
        if (swapchain->device->queues[i]->flags == 0)
            queue = swapchain->device->queues[i];
    }
    return queue;
}

/* Binary semaphores and external fences live at the server, where only a batch signals them. */
static VkResult signal_there(struct vnc_swapchain *swapchain, VkSemaphore semaphore, VkFence fence)
{
    struct vnc_queue *queue = queue_for_signal(swapchain);
    if (!queue)
        return VK_ERROR_DEVICE_LOST;
    VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .signalSemaphoreCount = semaphore != VK_NULL_HANDLE,
                           .pSignalSemaphores = &semaphore};
    return VNC_WSI_CALL(vkQueueSubmit)(VNC_HANDLE(VkQueue, queue), 1, &submit, fence);
}

static VKAPI_ATTR VkResult VKAPI_CALL acquire2(VkDevice handle,
                                               const VkAcquireNextImageInfoKHR *info,
                                               uint32_t *index)
{
    struct vnc_swapchain *swapchain = swapchain_of(info->swapchain);
    VkResult result = vnc_device_status(VNC_OBJECT(vnc_device, handle));
    if (result != VK_SUCCESS)
        return result;
    result = vnc_presenter_acquire(swapchain->presenter, info->timeout, index);
    if (result != VK_SUCCESS)
        return result;
    /* The copy of the picture was done before the image became free. */
    struct vnc_fence *fence = VNC_OBJECT(vnc_fence, info->fence);
    bool there = fence && fence->external;
    if (info->semaphore || there)
        result = signal_there(swapchain, info->semaphore, there ? info->fence : VK_NULL_HANDLE);
    if (result != VK_SUCCESS) /* the program does not know that it has the image */
        (void)vnc_presenter_release(swapchain->presenter, 1, index);
    else if (fence && !there)
        vnc_fence_signal(fence);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL acquire(VkDevice device, VkSwapchainKHR swapchain,
                                              uint64_t timeout, VkSemaphore semaphore,
                                              VkFence fence, uint32_t *index)
{
    VkAcquireNextImageInfoKHR info = {.sType = VK_STRUCTURE_TYPE_ACQUIRE_NEXT_IMAGE_INFO_KHR,
                                      .swapchain = swapchain,
                                      .timeout = timeout,
                                      .semaphore = semaphore,
                                      .fence = fence};
    return acquire2(device, &info, index);
}

/* ---- presenting ---- */

static VkResult find_copy(struct vnc_swapchain *swapchain, uint32_t family, uint32_t index,
                          VkCommandBuffer *out)
{
    struct vnc_wsi_copies *copies = &swapchain->copies[family];
    VkResult result = VK_SUCCESS;
    if (!copies->commands)
        result = vnc_wsi_copies_init(copies, handle_of(swapchain), family, swapchain->images,
                                     swapchain->count, swapchain->extent);
    if (result == VK_SUCCESS)
        *out = copies->commands[index];
    return result;
}

/* One batch: all copies, behind all semaphores. */
static VkResult submit_copies(struct vnc_queue *queue, const VkPresentInfoKHR *info)
{
    VkCommandBuffer commands[SWAPCHAINS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < info->swapchainCount; i++) {
        struct vnc_swapchain *swapchain = swapchain_of(info->pSwapchains[i]);
        if (!swapchain->shown)
            continue;
        VkResult result =
            find_copy(swapchain, queue->family, info->pImageIndices[i], &commands[count++]);
        if (result != VK_SUCCESS)
            return result;
    }
    VkPipelineStageFlags *stages =
        calloc(info->waitSemaphoreCount ? info->waitSemaphoreCount : 1, sizeof(*stages));
    if (!stages)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < info->waitSemaphoreCount; i++)
        stages[i] = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .waitSemaphoreCount = info->waitSemaphoreCount,
                           .pWaitSemaphores = info->pWaitSemaphores,
                           .pWaitDstStageMask = stages,
                           .commandBufferCount = count,
                           .pCommandBuffers = commands};
    VkResult result = vnc_queue_submit_own(queue, &submit);
    free(stages);
    return result;
}

/* What is chained to a present: arrays of as many as it has swapchains. */
struct extras {
    const uint64_t *ids;
    const VkSwapchainPresentModeInfoEXT *modes;
    const VkSwapchainPresentFenceInfoEXT *fences;
};

static const uint64_t *ids_of(const VkPresentInfoKHR *info)
{
    const VkPresentIdKHR *ids = vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_PRESENT_ID_KHR);
#ifdef VK_KHR_present_id2
    const VkPresentId2KHR *newer = vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_PRESENT_ID_2_KHR);
    if (newer)
        return newer->pPresentIds;
#endif
    return ids ? ids->pPresentIds : NULL;
}

static struct extras extras_of(const VkPresentInfoKHR *info)
{
    return (struct extras){
        .ids = ids_of(info),
        .modes = vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_SWAPCHAIN_PRESENT_MODE_INFO_EXT),
        .fences = vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_SWAPCHAIN_PRESENT_FENCE_INFO_EXT),
    };
}

static VkResult present_one(struct vnc_queue *queue, uint64_t number, const VkPresentInfoKHR *info,
                            const struct extras *extras, uint32_t i)
{
    struct vnc_swapchain *swapchain = swapchain_of(info->pSwapchains[i]);
    if (extras->modes)
        swapchain->mode = extras->modes->pPresentModes[i];
    /* Once the picture is copied, nothing of the program's is read any more. */
    struct vnc_fence *fence =
        extras->fences ? VNC_OBJECT(vnc_fence, extras->fences->pFences[i]) : NULL;
    if (fence && fence->external)
        (void)VNC_WSI_CALL(vkQueueSubmit)(VNC_HANDLE(VkQueue, queue), 0, NULL,
                                          extras->fences->pFences[i]);
    else if (fence && vnc_fence_submitted(fence, queue, number))
        vnc_queue_tell_waiters(queue, number);
    atomic_store_explicit(&swapchain->last, queue, memory_order_relaxed);
    const struct vnc_present present = {
        .queue = queue,
        .number = number,
        .id = extras->ids ? extras->ids[i] : 0,
        .mode = swapchain->mode,
    };
    return vnc_presenter_present(swapchain->presenter, info->pImageIndices[i], &present);
}

static VKAPI_ATTR VkResult VKAPI_CALL queue_present(VkQueue handle, const VkPresentInfoKHR *info)
{
    struct vnc_queue *queue = VNC_OBJECT(vnc_queue, handle);
    VkResult submitted = info->swapchainCount <= SWAPCHAINS_MAX ? submit_copies(queue, info)
                                                                : VK_ERROR_OUT_OF_HOST_MEMORY;
    uint64_t number = vnc_queue_submitted(queue); /* or a later one: done when that is */
    vnc_queue_ask(queue, number);
    const struct extras extras = extras_of(info);
    VkResult all = submitted;
    for (uint32_t i = 0; i < info->swapchainCount; i++) {
        VkResult result = submitted;
        if (result == VK_SUCCESS)
            result = present_one(queue, number, info, &extras, i);
        if (info->pResults)
            info->pResults[i] = result;
        if (all == VK_SUCCESS)
            all = result;
    }
    return all;
}

/* ---- waiting for what is shown, and giving back what is not ---- */

static VKAPI_ATTR VkResult VKAPI_CALL wait_for_present(VkDevice device, VkSwapchainKHR swapchain,
                                                       uint64_t id, uint64_t timeout)
{
    VkResult result = vnc_presenter_wait(swapchain_of(swapchain)->presenter, id, timeout);
    VkResult status = vnc_device_status(VNC_OBJECT(vnc_device, device));
    return status != VK_SUCCESS ? status : result;
}

#ifdef VK_KHR_present_wait2
static VKAPI_ATTR VkResult VKAPI_CALL wait_for_present2(VkDevice device, VkSwapchainKHR swapchain,
                                                        const VkPresentWait2InfoKHR *info)
{
    return wait_for_present(device, swapchain, info->presentId, info->timeout);
}
#endif

static VKAPI_ATTR VkResult VKAPI_CALL release_images(VkDevice device,
                                                     const VkReleaseSwapchainImagesInfoEXT *info)
{
    (void)device;
    return vnc_presenter_release(swapchain_of(info->swapchain)->presenter, info->imageIndexCount,
                                 info->pImageIndices);
}

/* Of colours that no surface of ours has. */
static VKAPI_ATTR void VKAPI_CALL set_hdr_metadata(VkDevice device, uint32_t count,
                                                   const VkSwapchainKHR *swapchains,
                                                   const VkHdrMetadataEXT *metadata)
{
    (void)device, (void)count, (void)swapchains, (void)metadata;
}

/* ---- device groups: each is one device ---- */

static VKAPI_ATTR VkResult VKAPI_CALL
get_group_capabilities(VkDevice device, VkDeviceGroupPresentCapabilitiesKHR *out)
{
    (void)device;
    memset(out->presentMask, 0, sizeof(out->presentMask));
    out->presentMask[0] = 1;
    out->modes = VK_DEVICE_GROUP_PRESENT_MODE_LOCAL_BIT_KHR;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_group_modes(VkDevice device, VkSurfaceKHR surface,
                                                      VkDeviceGroupPresentModeFlagsKHR *out)
{
    (void)device, (void)surface;
    *out = VK_DEVICE_GROUP_PRESENT_MODE_LOCAL_BIT_KHR;
    return VK_SUCCESS;
}

const struct vnc_entry vnc_entries_wsi_swapchain[] = {
    VNC_ENTRY(vkCreateSwapchainKHR, create_swapchain),
    VNC_ENTRY(vkDestroySwapchainKHR, destroy_swapchain),
    VNC_ENTRY(vkGetSwapchainImagesKHR, get_images),
    VNC_ENTRY(vkAcquireNextImageKHR, acquire),
    VNC_ENTRY(vkAcquireNextImage2KHR, acquire2),
    VNC_ENTRY(vkQueuePresentKHR, queue_present),
    VNC_ENTRY(vkWaitForPresentKHR, wait_for_present),
#ifdef VK_KHR_present_wait2
    VNC_ENTRY(vkWaitForPresent2KHR, wait_for_present2),
#endif
    VNC_ENTRY(vkSetHdrMetadataEXT, set_hdr_metadata),
    VNC_ENTRY(vkReleaseSwapchainImagesEXT, release_images),
    VNC_ENTRY(vkGetDeviceGroupPresentCapabilitiesKHR, get_group_capabilities),
    VNC_ENTRY(vkGetDeviceGroupSurfacePresentModesKHR, get_group_modes),
    {NULL, NULL},
};
