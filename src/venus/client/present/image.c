/* Images of swapchains; see image.h. */
#include "venus/client/present/image.h"

#include <stdlib.h>

/* ---- memory ---- */

/* The first type with all of `wanted`, else with all of `needed`; UINT32_MAX when there is none. */
static uint32_t choose_type(const struct vnc_device *device, uint32_t bits,
                            VkMemoryPropertyFlags needed, VkMemoryPropertyFlags wanted)
{
    const VkPhysicalDeviceMemoryProperties *types = &device->physical->types.offered;
    uint32_t found = UINT32_MAX;
    for (uint32_t i = types->memoryTypeCount; i-- > 0;) {
        VkMemoryPropertyFlags flags = types->memoryTypes[i].propertyFlags;
        bool better = found == UINT32_MAX || (flags & wanted) == wanted ||
                      (types->memoryTypes[found].propertyFlags & wanted) != wanted;
        if ((bits & (1u << i)) && (flags & needed) == needed && better)
            found = i;
    }
    return found;
}

static VkResult allocate(VkDevice device, const VkMemoryRequirements *requirements,
                         VkMemoryPropertyFlags needed, VkMemoryPropertyFlags wanted,
                         VkDeviceMemory *out)
{
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = requirements->size};
    info.memoryTypeIndex =
        choose_type(VNC_OBJECT(vnc_device, device), requirements->memoryTypeBits, needed, wanted);
    if (info.memoryTypeIndex == UINT32_MAX)
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    return VNC_WSI_CALL(vkAllocateMemory)(device, &info, NULL, out);
}

/* ---- images ---- */

static VkResult make_image(struct vnc_wsi_image *image, VkDevice device,
                           const VkImageCreateInfo *info)
{
    VkResult result = VNC_WSI_CALL(vkCreateImage)(device, info, NULL, &image->image);
    if (result != VK_SUCCESS)
        return result;
    VkMemoryRequirements requirements;
    VNC_WSI_CALL(vkGetImageMemoryRequirements)(device, image->image, &requirements);
    /* Not dedicated to it: the program may bind images of its own to the memory. */
    result =
        allocate(device, &requirements, 0, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, &image->memory);
    if (result != VK_SUCCESS)
        return result;
    return VNC_WSI_CALL(vkBindImageMemory)(device, image->image, image->memory, 0);
}

/* Nothing is ever written there from this side, so submissions need not look for changes. */
static void stop_collecting(VkDevice handle, VkDeviceMemory memory)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    pthread_mutex_lock(&device->lock);
    VNC_OBJECT(vnc_memory, memory)->tracked = false;
    pthread_mutex_unlock(&device->lock);
}

static VkResult make_picture(struct vnc_wsi_image *image, VkDevice device, VkDeviceSize bytes)
{
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = bytes,
                               .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkResult result = VNC_WSI_CALL(vkCreateBuffer)(device, &info, NULL, &image->buffer);
    if (result != VK_SUCCESS)
        return result;
    VkMemoryRequirements requirements;
    VNC_WSI_CALL(vkGetBufferMemoryRequirements)(device, image->buffer, &requirements);
    result = allocate(device, &requirements,
                      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                      VK_MEMORY_PROPERTY_HOST_CACHED_BIT, &image->buffer_memory);
    if (result == VK_SUCCESS)
        result = VNC_WSI_CALL(vkBindBufferMemory)(device, image->buffer, image->buffer_memory, 0);
    if (result == VK_SUCCESS)
        result = VNC_WSI_CALL(vkMapMemory)(device, image->buffer_memory, 0, VK_WHOLE_SIZE, 0,
                                           &image->picture);
    if (result == VK_SUCCESS)
        stop_collecting(device, image->buffer_memory);
    return result;
}

VkResult vnc_wsi_image_init(struct vnc_wsi_image *image, VkDevice device,
                            const VkImageCreateInfo *info, bool shown)
{
    *image = (struct vnc_wsi_image){0};
    VkResult result = make_image(image, device, info);
    if (result == VK_SUCCESS && shown)
        result =
            make_picture(image, device, (VkDeviceSize)info->extent.width * info->extent.height * 4);
    if (result != VK_SUCCESS)
        vnc_wsi_image_fini(image, device);
    return result;
}

void vnc_wsi_image_fini(struct vnc_wsi_image *image, VkDevice device)
{
    VNC_WSI_CALL(vkDestroyImage)(device, image->image, NULL);
    VNC_WSI_CALL(vkDestroyBuffer)(device, image->buffer, NULL);
    VNC_WSI_CALL(vkFreeMemory)(device, image->memory, NULL);
    VNC_WSI_CALL(vkFreeMemory)(device, image->buffer_memory, NULL);
    *image = (struct vnc_wsi_image){0};
}

/* ---- copies ---- */

/* Before the copy; with a buffer: after it, for the host to read that. */
static void put_layout_change(VkCommandBuffer commands, VkImage image, VkImageLayout from,
                              VkImageLayout to, const VkBufferMemoryBarrier *buffer)
{
    VkImageMemoryBarrier barrier = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
        .srcAccessMask = buffer ? 0 : VK_ACCESS_MEMORY_WRITE_BIT,
        .dstAccessMask = buffer ? 0 : VK_ACCESS_TRANSFER_READ_BIT,
        .oldLayout = from,
        .newLayout = to,
        .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .image = image,
        .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1},
    };
    /* The program's semaphores are waited for at all stages, so this chains with them. */
    VkPipelineStageFlags next =
        buffer ? VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT
               : VK_PIPELINE_STAGE_TRANSFER_BIT;
    PFN_vkCmdPipelineBarrier put = VNC_WSI_CALL(vkCmdPipelineBarrier);
    put(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, next, 0, 0, NULL, buffer ? 1 : 0, buffer, 1,
        &barrier);
}

static VkResult record_copy(VkCommandBuffer commands, const struct vnc_wsi_image *image,
                            VkExtent2D extent)
{
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkResult result = VNC_WSI_CALL(vkBeginCommandBuffer)(commands, &begin);
    if (result != VK_SUCCESS)
        return result;
    VkBufferImageCopy region = {.imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
                                .imageExtent = {extent.width, extent.height, 1}};
    VkBufferMemoryBarrier buffer = {.sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER,
                                    .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                    .dstAccessMask = VK_ACCESS_HOST_READ_BIT,
                                    .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
                                    .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
                                    .buffer = image->buffer,
                                    .size = VK_WHOLE_SIZE};
    put_layout_change(commands, image->image, VK_IMAGE_LAYOUT_PRESENT_SRC_KHR,
                      VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, NULL);
    PFN_vkCmdCopyImageToBuffer copy = VNC_WSI_CALL(vkCmdCopyImageToBuffer);
    copy(commands, image->image, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, image->buffer, 1, &region);
    put_layout_change(commands, image->image, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL,
                      VK_IMAGE_LAYOUT_PRESENT_SRC_KHR, &buffer);
    return VNC_WSI_CALL(vkEndCommandBuffer)(commands);
}

VkResult vnc_wsi_copies_init(struct vnc_wsi_copies *copies, VkDevice device, uint32_t family,
                             const struct vnc_wsi_image *images, uint32_t count, VkExtent2D extent)
{
    VkCommandPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .queueFamilyIndex = family};
    copies->commands = calloc(count, sizeof(*copies->commands));
    if (!copies->commands)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    VkResult result = VNC_WSI_CALL(vkCreateCommandPool)(device, &info, NULL, &copies->pool);
    if (result == VK_SUCCESS) {
        VkCommandBufferAllocateInfo buffers = {.sType =
                                                   VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                               .commandPool = copies->pool,
                                               .commandBufferCount = count};
        result = VNC_WSI_CALL(vkAllocateCommandBuffers)(device, &buffers, copies->commands);
    }
    for (uint32_t i = 0; result == VK_SUCCESS && i < count; i++)
        result = record_copy(copies->commands[i], &images[i], extent);
    if (result != VK_SUCCESS)
        vnc_wsi_copies_fini(copies, device);
    return result;
}

void vnc_wsi_copies_fini(struct vnc_wsi_copies *copies, VkDevice device)
{
    VNC_WSI_CALL(vkDestroyCommandPool)(device, copies->pool, NULL);
    free(copies->commands);
    *copies = (struct vnc_wsi_copies){0};
}
