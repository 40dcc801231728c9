/* venus/client/present/image.h - images of a swapchain, and the copies that bring them to the
 * client.
 *
 * An image is an ordinary one, made through our own entry points.  Beside it there is a buffer in
 * mapped memory: a batch that copies the one to the other makes the picture appear here when it is
 * done, of which only changed bytes travel.
 *
 * Trust: the program's own.
 * Threads: one at a time, as Vulkan orders a swapchain.
 * Lifetime: init/fini; no batch that uses it is under way at fini. */
#ifndef HAWSER_VENUS_CLIENT_PRESENT_IMAGE_H
#define HAWSER_VENUS_CLIENT_PRESENT_IMAGE_H

#include "venus/client/memory/memory.h"

struct vnc_wsi_image {
    VkImage image;
    VkDeviceMemory memory;
    VkBuffer buffer; /* and the rest: only where there is something to show */
    VkDeviceMemory buffer_memory;
    void *picture; /* rows without gaps */
};

/* info is copied; `shown`: with a picture.  On failure nothing is left. */
VkResult vnc_wsi_image_init(struct vnc_wsi_image *image, VkDevice device,
                            const VkImageCreateInfo *info, bool shown) MUST_CHECK;
void vnc_wsi_image_fini(struct vnc_wsi_image *image, VkDevice device);

/* The copies of all images, for the queues of one family. */
struct vnc_wsi_copies {
    VkCommandPool pool;
    VkCommandBuffer *commands; /* one for each image */
};

VkResult vnc_wsi_copies_init(struct vnc_wsi_copies *copies, VkDevice device, uint32_t family,
                             const struct vnc_wsi_image *images, uint32_t count,
                             VkExtent2D extent) MUST_CHECK;
void vnc_wsi_copies_fini(struct vnc_wsi_copies *copies, VkDevice device);

/* Entry points of ours by name. */
#define VNC_WSI_CALL(command) ((PFN_##command)vnc_icd_entry(vn_command_find(#command)))

#endif
