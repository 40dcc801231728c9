/* venus/client/present/swapchain.h - what other files ask of a swapchain.
 *
 * Trust: the program's own.  Threads: any; constant once created.  Lifetime: of the handle. */
#ifndef HAWSER_VENUS_CLIENT_PRESENT_SWAPCHAIN_H
#define HAWSER_VENUS_CLIENT_PRESENT_SWAPCHAIN_H

#include "venus/client/icd.h"

/* The memory of an image; VK_NULL_HANDLE when there is no such image. */
VkDeviceMemory vnc_swapchain_memory(VkSwapchainKHR swapchain, uint32_t index);

/* What images get beside what the program asks for, so that they can be copied and shared. */
void vnc_swapchain_image_info(VkImageCreateInfo *info);

#endif
