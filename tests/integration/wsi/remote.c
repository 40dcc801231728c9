/* What a remote GPU must do, and cannot be compared with Mesa's software driver. */
#include "kit.h"

#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 203, HEIGHT = 157 };

static const VkExtent2D extent = {WIDTH, HEIGHT};

/* ---- images of one's own; natively this ends in a segmentation fault of the driver ---- */

static VkImage alias_of(const VkSwapchainCreateInfoKHR *info, VkSwapchainKHR chain, uint32_t index)
{
    VkImageSwapchainCreateInfoKHR of = {.sType = VK_STRUCTURE_TYPE_IMAGE_SWAPCHAIN_CREATE_INFO_KHR,
                                        .swapchain = chain};
    VkImageCreateInfo image = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                               .pNext = &of,
                               .imageType = VK_IMAGE_TYPE_2D,
                               .format = info->imageFormat,
                               .extent = {info->imageExtent.width, info->imageExtent.height, 1},
                               .mipLevels = 1,
                               .arrayLayers = 1,
                               .samples = VK_SAMPLE_COUNT_1_BIT,
                               .tiling = VK_IMAGE_TILING_OPTIMAL,
                               .usage = info->imageUsage};
    VkImage alias;
    VKT(vkCreateImage(vkt.device, &image, NULL, &alias));
    VKT_KEEP(IMAGE, alias);
    VkBindImageMemorySwapchainInfoKHR memory = {
        .sType = VK_STRUCTURE_TYPE_BIND_IMAGE_MEMORY_SWAPCHAIN_INFO_KHR,
        .swapchain = chain,
        .imageIndex = index};
    VkBindImageMemoryInfo bind = {
        .sType = VK_STRUCTURE_TYPE_BIND_IMAGE_MEMORY_INFO, .pNext = &memory, .image = alias};
    VKT(vkBindImageMemory2(vkt.device, 1, &bind));
    return alias;
}

static void alias_of_image(void)
{
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSwapchainCreateInfoKHR info =
        wsi_chain_info(wsi_surface(&window), extent, VK_PRESENT_MODE_FIFO_KHR);
    struct wsi_chain chain = wsi_chain(&info);
    struct wsi_picture picture = {.seed = 8};
    uint32_t index = wsi_take(&chain);
    wsi_fill(&chain, alias_of(&info, chain.handle, index), &picture);
    VKT(wsi_present(1, &chain.handle, &index, VK_NULL_HANDLE));
    wsi_settle(&chain);
    vkt_out_u64("shown", wsi_shows(&window, &chain, &picture));
    wsi_close();
}

/* ---- waiting for what is shown: not offered natively ---- */

static VkResult present_with(struct wsi_chain *chain, const struct wsi_picture *picture,
                             const void *chained)
{
    uint32_t index = wsi_take(chain);
    wsi_fill(chain, chain->images[index], picture);
    VkPresentInfoKHR info = {.sType = VK_STRUCTURE_TYPE_PRESENT_INFO_KHR,
                             .pNext = chained,
                             .swapchainCount = 1,
                             .pSwapchains = &chain->handle,
                             .pImageIndices = &index};
    return vkQueuePresentKHR(vkt.queue, &info);
}

static void presents_are_waited_for(void)
{
    VkPhysicalDevicePresentWaitFeaturesKHR features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PRESENT_WAIT_FEATURES_KHR};
    VkPhysicalDevicePresentIdFeaturesKHR ids = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PRESENT_ID_FEATURES_KHR, .pNext = &features};
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &ids};
    vkGetPhysicalDeviceFeatures2(vkt.physical, &all);
    vkt_out_u64("present id", ids.presentId);
    vkt_out_u64("present wait", features.presentWait);
    VKT_EXPECT(vkt_has_extension(VK_KHR_PRESENT_ID_EXTENSION_NAME));
    wsi_open_with(&ids, VK_KHR_PRESENT_WAIT_EXTENSION_NAME, NULL);
    PFN_vkWaitForPresentKHR wait = VKT_PROC(vkWaitForPresentKHR);
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSwapchainCreateInfoKHR info =
        wsi_chain_info(wsi_surface(&window), extent, VK_PRESENT_MODE_FIFO_KHR);
    struct wsi_chain chain = wsi_chain(&info);
    for (uint64_t id = 10; id <= 60; id += 10) {
        struct wsi_picture picture = {.seed = (uint32_t)id};
        VkPresentIdKHR chained = {
            .sType = VK_STRUCTURE_TYPE_PRESENT_ID_KHR, .swapchainCount = 1, .pPresentIds = &id};
        VKT(present_with(&chain, &picture, &chained));
        VKT(wait(vkt.device, chain.handle, id, VKT_WAIT_NS));
        VKT_EXPECT(wsi_shows(&window, &chain, &picture));
    }
    vkt_out_result("an id that is past", wait(vkt.device, chain.handle, 15, 0));
    vkt_out_result("an id to come", wait(vkt.device, chain.handle, 61, 1000));
    wsi_close();
}

/* The same by the newer extensions, which tell more of a surface. */
#ifdef VK_KHR_present_wait2
static VkResult wait2(const struct wsi_chain *chain, uint64_t id, uint64_t timeout)
{
    VkPresentWait2InfoKHR info = {
        .sType = VK_STRUCTURE_TYPE_PRESENT_WAIT_2_INFO_KHR, .presentId = id, .timeout = timeout};
    return VKT_PROC(vkWaitForPresent2KHR)(vkt.device, chain->handle, &info);
}

static void out_present2(VkSurfaceKHR surface)
{
    VkSurfaceCapabilitiesPresentWait2KHR waits = {
        .sType = VK_STRUCTURE_TYPE_SURFACE_CAPABILITIES_PRESENT_WAIT_2_KHR};
    VkSurfaceCapabilitiesPresentId2KHR ids = {
        .sType = VK_STRUCTURE_TYPE_SURFACE_CAPABILITIES_PRESENT_ID_2_KHR, .pNext = &waits};
    VkSurfaceCapabilities2KHR caps = {.sType = VK_STRUCTURE_TYPE_SURFACE_CAPABILITIES_2_KHR,
                                      .pNext = &ids};
    VkPhysicalDeviceSurfaceInfo2KHR about = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SURFACE_INFO_2_KHR, .surface = surface};
    VKT(vkGetPhysicalDeviceSurfaceCapabilities2KHR(vkt.physical, &about, &caps));
    vkt_out_u64("surface ids", ids.presentId2Supported);
    vkt_out_u64("surface waits", waits.presentWait2Supported);
}

static void presents_are_waited_for2(void)
{
    VkPhysicalDevicePresentWait2FeaturesKHR features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PRESENT_WAIT_2_FEATURES_KHR};
    VkPhysicalDevicePresentId2FeaturesKHR ids = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PRESENT_ID_2_FEATURES_KHR, .pNext = &features};
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &ids};
    vkGetPhysicalDeviceFeatures2(vkt.physical, &all);
    vkt_out_u64("present id", ids.presentId2);
    vkt_out_u64("present wait", features.presentWait2);
    wsi_open_with(&ids, VK_KHR_PRESENT_ID_2_EXTENSION_NAME, VK_KHR_PRESENT_WAIT_2_EXTENSION_NAME);
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSurfaceKHR surface = wsi_surface(&window);
    out_present2(surface);
    VkSwapchainCreateInfoKHR info = wsi_chain_info(surface, extent, VK_PRESENT_MODE_FIFO_KHR);
    info.flags =
        VK_SWAPCHAIN_CREATE_PRESENT_ID_2_BIT_KHR | VK_SWAPCHAIN_CREATE_PRESENT_WAIT_2_BIT_KHR;
    struct wsi_chain chain = wsi_chain(&info);
    for (uint64_t id = 10; id <= 60; id += 10) {
        struct wsi_picture picture = {.seed = (uint32_t)id};
        VkPresentId2KHR chained = {
            .sType = VK_STRUCTURE_TYPE_PRESENT_ID_2_KHR, .swapchainCount = 1, .pPresentIds = &id};
        VKT(present_with(&chain, &picture, &chained));
        VKT(wait2(&chain, id, VKT_WAIT_NS));
        VKT_EXPECT(wsi_shows(&window, &chain, &picture));
    }
    vkt_out_result("an id that is past", wait2(&chain, 15, 0));
    vkt_out_result("an id to come", wait2(&chain, 61, 1000));
    wsi_close();
}
#endif

/* ---- a server that dies ---- */

static void out_fault(void)
{
    PFN_vkGetDeviceFaultInfoEXT get = VKT_PROC(vkGetDeviceFaultInfoEXT);
    VkDeviceFaultCountsEXT counts = {.sType = VK_STRUCTURE_TYPE_DEVICE_FAULT_COUNTS_EXT};
    VKT(get(vkt.device, &counts, NULL));
    VkDeviceFaultInfoEXT info = {.sType = VK_STRUCTURE_TYPE_DEVICE_FAULT_INFO_EXT};
    VKT(get(vkt.device, &counts, &info));
    printf("fault %s\n", info.description);
}

/* Says "ready" once there is something to see, then presents until that fails. */
static void lost_server(void)
{
    VkPhysicalDeviceFaultFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FAULT_FEATURES_EXT, .deviceFault = VK_TRUE};
    wsi_open_with(&features, VK_EXT_DEVICE_FAULT_EXTENSION_NAME, NULL);
    out_fault();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSwapchainCreateInfoKHR info =
        wsi_chain_info(wsi_surface(&window), extent, VK_PRESENT_MODE_FIFO_KHR);
    struct wsi_chain chain = wsi_chain(&info);
    struct wsi_picture picture = {.seed = 6};
    for (uint32_t i = 0; i < chain.count; i++)
        VKT(wsi_show(&chain, &picture));
    wsi_settle(&chain);
    while (chain.held_count > 0) {
        uint32_t index = wsi_take(&chain);
        VKT(wsi_present(1, &chain.handle, &index, VK_NULL_HANDLE));
    }
    VkSemaphore acquired = vkt_semaphore();
    printf("ready\n");
    fflush(stdout);
    VkResult result = VK_SUCCESS;
    while (result == VK_SUCCESS) {
        uint32_t index;
        result = vkAcquireNextImageKHR(vkt.device, chain.handle, VKT_WAIT_NS, acquired,
                                       VK_NULL_HANDLE, &index);
        if (result == VK_SUCCESS)
            result = wsi_present(1, &chain.handle, &index, acquired);
    }
    vkt_out_result("ended with", result);
    out_fault();
    vkt_out_u64("still shown", wsi_shows(&window, &chain, &picture));
    vkDestroySwapchainKHR(vkt.device, chain.handle, NULL);
    vkt_out_u64("shown after destruction", wsi_shows(&window, &chain, &picture));
    fflush(stdout);
    _Exit(0); /* the rest of the kit expects a device that works */
}

static const struct vkt_case cases[] = {
    {"alias_of_image", alias_of_image, NULL},
    {"presents_are_waited_for", presents_are_waited_for, NULL},
#ifdef VK_KHR_present_wait2
    {"presents_are_waited_for2", presents_are_waited_for2, NULL},
#endif
    {"lost_server", lost_server, NULL},
};

VKT_MAIN(cases)
