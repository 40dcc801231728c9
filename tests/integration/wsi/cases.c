/* What programs see of presentation: run natively and remotely, the output must be the same. */
#include "kit.h"

#include <pthread.h>
#include <stdio.h>

enum { WIDTH = 203, HEIGHT = 157 }; /* no multiple of anything */

static const VkExtent2D extent = {WIDTH, HEIGHT};

static struct wsi_picture whole(uint32_t seed)
{
    return (struct wsi_picture){.seed = seed};
}

/* vkt has no names for these. */
static void out_result(const char *name, VkResult result)
{
    if (result == VK_ERROR_OUT_OF_DATE_KHR)
        printf("%s out of date\n", name);
    else if (result == VK_ERROR_SURFACE_LOST_KHR)
        printf("%s surface lost\n", name);
    else if (result == VK_SUBOPTIMAL_KHR)
        printf("%s suboptimal\n", name);
    else
        vkt_out_result(name, result);
}

/* ---- what is offered ---- */

static void out_capabilities(VkSurfaceKHR surface)
{
    VkSurfaceCapabilitiesKHR caps;
    VKT(vkGetPhysicalDeviceSurfaceCapabilitiesKHR(vkt.physical, surface, &caps));
    vkt_out_u64("min images", caps.minImageCount);
    vkt_out_u64("max images", caps.maxImageCount);
    vkt_out_u64("width", caps.currentExtent.width);
    vkt_out_u64("height", caps.currentExtent.height);
    vkt_out_u64("layers", caps.maxImageArrayLayers);
    vkt_out_u64("transforms", caps.supportedTransforms);
    vkt_out_u64("transform", caps.currentTransform);
    vkt_out_u64("alpha", caps.supportedCompositeAlpha);
    vkt_out_u64("usage", caps.supportedUsageFlags);
}

static void out_formats(VkSurfaceKHR surface)
{
    VkSurfaceFormatKHR formats[16];
    uint32_t count = VKT_COUNT(formats);
    VKT(vkGetPhysicalDeviceSurfaceFormatsKHR(vkt.physical, surface, &count, formats));
    for (uint32_t i = 0; i < count; i++) {
        vkt_out_u64("format", formats[i].format);
        vkt_out_u64("color space", formats[i].colorSpace);
    }
    count = 1;
    vkt_out_result("one format",
                   vkGetPhysicalDeviceSurfaceFormatsKHR(vkt.physical, surface, &count, formats));
}

static void offers(void)
{
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSurfaceKHR surface = wsi_surface(&window);
    out_capabilities(surface);
    out_formats(surface);
    VkPresentModeKHR modes[16];
    uint32_t count = VKT_COUNT(modes);
    VKT(vkGetPhysicalDeviceSurfacePresentModesKHR(vkt.physical, surface, &count, modes));
    for (uint32_t i = 0; i < count; i++)
        vkt_out_u64("mode", modes[i]);
    wsi_resize(&window, 99, 98);
    out_capabilities(surface);
    wsi_close();
}

static void offers_with_alpha(void)
{
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 32);
    VkSurfaceKHR surface = wsi_surface(&window);
    out_capabilities(surface);
    out_formats(surface);
    wsi_close();
}

static void offers_to_groups(void)
{
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSurfaceKHR surface = wsi_surface(&window);
    VkDeviceGroupPresentCapabilitiesKHR caps = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_GROUP_PRESENT_CAPABILITIES_KHR};
    VKT(vkGetDeviceGroupPresentCapabilitiesKHR(vkt.device, &caps));
    vkt_out_u64("mask", caps.presentMask[0]);
    vkt_out_u64("others", caps.presentMask[1]);
    vkt_out_u64("modes", caps.modes);
    VkDeviceGroupPresentModeFlagsKHR modes;
    VKT(vkGetDeviceGroupSurfacePresentModesKHR(vkt.device, surface, &modes));
    vkt_out_u64("surface modes", modes);
    VkRect2D rect;
    uint32_t count = 1;
    VKT(vkGetPhysicalDevicePresentRectanglesKHR(vkt.physical, surface, &count, &rect));
    vkt_out("rectangle", &rect, sizeof(rect));
    wsi_close();
}

/* ---- frames ---- */

static void show_frames(VkPresentModeKHR mode)
{
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSwapchainCreateInfoKHR info = wsi_chain_info(wsi_surface(&window), extent, mode);
    struct wsi_chain chain = wsi_chain(&info);
    vkt_out_u64("images", chain.count);
    struct wsi_picture picture = whole(0);
    for (uint32_t frame = 1; frame <= 12; frame++) {
        picture = whole(frame);
        vkt_out_result("present", wsi_show(&chain, &picture));
    }
    wsi_settle(&chain);
    vkt_out_u64("shows the last", wsi_shows(&window, &chain, &picture));
    wsi_close();
}

static void frames_fifo(void)
{
    show_frames(VK_PRESENT_MODE_FIFO_KHR);
}

static void frames_relaxed(void)
{
    show_frames(VK_PRESENT_MODE_FIFO_RELAXED_KHR);
}

static void frames_mailbox(void)
{
    show_frames(VK_PRESENT_MODE_MAILBOX_KHR);
}

static void frames_immediate(void)
{
    show_frames(VK_PRESENT_MODE_IMMEDIATE_KHR);
}

static void frames_with_alpha(void)
{
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 32);
    VkSwapchainCreateInfoKHR info =
        wsi_chain_info(wsi_surface(&window), extent, VK_PRESENT_MODE_FIFO_KHR);
    struct wsi_chain chain = wsi_chain(&info);
    struct wsi_picture picture = whole(5);
    VKT(wsi_show(&chain, &picture));
    wsi_settle(&chain);
    vkt_out_u64("shown", wsi_shows(&window, &chain, &picture));
    wsi_close();
}

/* One pixel, an edge, a corner, nothing: what is left out must have been the same. */
static void small_changes(void)
{
    static const struct wsi_picture pictures[] = {
        {.seed = 1},
        {1, 2, 0, 0, 1, 1},
        {1, 3, WIDTH - 1, HEIGHT - 1, 1, 1},
        {1, 4, 63, 63, 2, 2},
        {1, 5, 0, 100, WIDTH, 1},
        {1, 5, 0, 100, WIDTH, 1},
        {1, 6, 101, 0, 1, HEIGHT},
        {.seed = 7},
    };
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSwapchainCreateInfoKHR info =
        wsi_chain_info(wsi_surface(&window), extent, VK_PRESENT_MODE_FIFO_KHR);
    struct wsi_chain chain = wsi_chain(&info);
    for (size_t i = 0; i < VKT_COUNT(pictures); i++) {
        VKT(wsi_show(&chain, &pictures[i]));
        wsi_settle(&chain);
        vkt_out_u64("shown", wsi_shows(&window, &chain, &pictures[i]));
    }
    wsi_close();
}

/* More than fits one request where pixels go through the connection. */
static void large_window(void)
{
    enum { LARGE_WIDTH = 701, LARGE_HEIGHT = 499 };
    static const struct wsi_picture pictures[] = {
        {.seed = 1}, {1, 2, 650, 3, 40, 490}, {1, 3, 5, 430, 690, 60}};
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, LARGE_WIDTH, LARGE_HEIGHT, 24);
    VkSwapchainCreateInfoKHR info =
        wsi_chain_info(wsi_surface(&window), (VkExtent2D){LARGE_WIDTH, LARGE_HEIGHT},
                       VK_PRESENT_MODE_IMMEDIATE_KHR);
    info.minImageCount = 5;
    struct wsi_chain chain = wsi_chain(&info);
    vkt_out_u64("images", chain.count);
    for (size_t i = 0; i < VKT_COUNT(pictures); i++) {
        VKT(wsi_show(&chain, &pictures[i]));
        wsi_settle(&chain);
        vkt_out_u64("shown", wsi_shows(&window, &chain, &pictures[i]));
    }
    wsi_close();
}

/* What another window covered is whole again after the next present, though nothing changed. */
static void covered_window(void)
{
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSwapchainCreateInfoKHR info =
        wsi_chain_info(wsi_surface(&window), extent, VK_PRESENT_MODE_FIFO_KHR);
    struct wsi_chain chain = wsi_chain(&info);
    struct wsi_picture picture = whole(3);
    VKT(wsi_show(&chain, &picture));
    wsi_settle(&chain);
    struct wsi_window other = wsi_window(50, 50, 60, 60, 24);
    xcb_destroy_window(wsi_c, other.id);
    wsi_sync();
    vkt_out_u64("whole after cover", wsi_shows(&window, &chain, &picture));
    VKT(wsi_show(&chain, &picture));
    wsi_settle(&chain);
    vkt_out_u64("whole after present", wsi_shows(&window, &chain, &picture));
    wsi_close();
}

static void two_windows(void)
{
    wsi_open();
    struct wsi_window windows[2] = {wsi_window(0, 0, WIDTH, HEIGHT, 24),
                                    wsi_window(300, 0, WIDTH, HEIGHT, 24)};
    struct wsi_chain pair[2];
    VkSwapchainKHR handles[2];
    uint32_t indices[2];
    struct wsi_picture pictures[2] = {whole(1), whole(2)};
    for (int i = 0; i < 2; i++) {
        VkSwapchainCreateInfoKHR info =
            wsi_chain_info(wsi_surface(&windows[i]), extent, VK_PRESENT_MODE_FIFO_KHR);
        pair[i] = wsi_chain(&info);
        handles[i] = pair[i].handle;
        indices[i] = wsi_take(&pair[i]);
        wsi_fill(&pair[i], pair[i].images[indices[i]], &pictures[i]);
    }
    vkt_out_result("present", wsi_present(2, handles, indices, VK_NULL_HANDLE));
    for (int i = 0; i < 2; i++) {
        wsi_settle(&pair[i]);
        vkt_out_u64("shown", wsi_shows(&windows[i], &pair[i], &pictures[i]));
    }
    wsi_close();
}

/* ---- acquiring ---- */

static void acquire_runs_out(void)
{
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSwapchainCreateInfoKHR info =
        wsi_chain_info(wsi_surface(&window), extent, VK_PRESENT_MODE_FIFO_KHR);
    struct wsi_chain chain = wsi_chain(&info);
    vkt_out_u64("images", chain.count);
    wsi_settle(&chain);
    VkFence fence = vkt_fence(false);
    uint32_t index;
    vkt_out_result("at once", vkAcquireNextImageKHR(vkt.device, chain.handle, 0, VK_NULL_HANDLE,
                                                    fence, &index));
    vkt_out_result("soon", vkAcquireNextImageKHR(vkt.device, chain.handle, 1000000, VK_NULL_HANDLE,
                                                 fence, &index));
    vkt_out_result("fence", vkGetFenceStatus(vkt.device, fence));
    wsi_close();
}

static void acquire_with_semaphore(void)
{
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSwapchainCreateInfoKHR info =
        wsi_chain_info(wsi_surface(&window), extent, VK_PRESENT_MODE_FIFO_KHR);
    struct wsi_chain chain = wsi_chain(&info);
    VkSemaphore acquired = vkt_semaphore(), painted = vkt_semaphore();
    VkAcquireNextImageInfoKHR next = {.sType = VK_STRUCTURE_TYPE_ACQUIRE_NEXT_IMAGE_INFO_KHR,
                                      .swapchain = chain.handle,
                                      .timeout = VKT_WAIT_NS,
                                      .semaphore = acquired,
                                      .deviceMask = 1};
    struct wsi_picture picture = whole(0);
    for (uint32_t frame = 0; frame < 5; frame++) {
        uint32_t index;
        VKT(vkAcquireNextImage2KHR(vkt.device, &next, &index));
        VkPipelineStageFlags stage = VK_PIPELINE_STAGE_TRANSFER_BIT;
        VkSubmitInfo wait = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                             .waitSemaphoreCount = 1,
                             .pWaitSemaphores = &acquired,
                             .pWaitDstStageMask = &stage};
        VKT(vkQueueSubmit(vkt.queue, 1, &wait, VK_NULL_HANDLE));
        picture = whole(frame);
        wsi_fill(&chain, chain.images[index], &picture);
        VkSubmitInfo signal = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .signalSemaphoreCount = 1,
                               .pSignalSemaphores = &painted};
        VKT(vkQueueSubmit(vkt.queue, 1, &signal, VK_NULL_HANDLE));
        VKT(wsi_present(1, &chain.handle, &index, painted));
    }
    wsi_settle(&chain);
    vkt_out_u64("shown", wsi_shows(&window, &chain, &picture));
    wsi_close();
}

/* Acquiring is not a use of a queue: a program may submit meanwhile. */
struct submitter {
    pthread_mutex_t queue;
    bool stop; /* under queue */
};

static void *submit_until_stopped(void *arg)
{
    struct submitter *s = arg;
    VkSubmitInfo nothing = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO};
    for (;;) {
        pthread_mutex_lock(&s->queue);
        bool stop = s->stop;
        if (!stop)
            VKT(vkQueueSubmit(vkt.queue, 1, &nothing, VK_NULL_HANDLE));
        pthread_mutex_unlock(&s->queue);
        if (stop)
            return NULL;
    }
}

static void acquire_beside_submits(void)
{
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSwapchainCreateInfoKHR info =
        wsi_chain_info(wsi_surface(&window), extent, VK_PRESENT_MODE_FIFO_KHR);
    struct wsi_chain chain = wsi_chain(&info);
    struct wsi_picture picture = whole(3);
    wsi_settle(&chain);
    for (uint32_t i = 0; i < chain.count; i++)
        VKT(wsi_show(&chain, &picture));
    struct submitter submitter = {.queue = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    VKT_EXPECT(pthread_create(&thread, NULL, submit_until_stopped, &submitter) == 0);
    for (uint32_t frame = 0; frame < 30; frame++) {
        VkSemaphore acquired = vkt_semaphore();
        uint32_t index;
        VKT(vkAcquireNextImageKHR(vkt.device, chain.handle, VKT_WAIT_NS, acquired, VK_NULL_HANDLE,
                                  &index));
        pthread_mutex_lock(&submitter.queue);
        VKT(wsi_present(1, &chain.handle, &index, acquired));
        pthread_mutex_unlock(&submitter.queue);
    }
    pthread_mutex_lock(&submitter.queue);
    submitter.stop = true;
    pthread_mutex_unlock(&submitter.queue);
    pthread_join(thread, NULL);
    wsi_settle(&chain);
    vkt_out_u64("shown", wsi_shows(&window, &chain, &picture));
    wsi_close();
}

/* ---- windows that change ---- */

/* How soon a program hears of it depends on when the server is asked, so: until it does. */
static VkResult show_until_failure(struct wsi_chain *chain)
{
    VkResult result = VK_SUCCESS;
    while (result == VK_SUCCESS) {
        uint32_t index;
        VkFence fence = vkt_fence(false);
        if (chain->held_count > 0)
            index = wsi_take(chain);
        else
            result = vkAcquireNextImageKHR(vkt.device, chain->handle, VKT_WAIT_NS, VK_NULL_HANDLE,
                                           fence, &index);
        if (result != VK_SUCCESS)
            break;
        struct wsi_picture picture = whole(9);
        wsi_fill(chain, chain->images[index], &picture);
        result = wsi_present(1, &chain->handle, &index, VK_NULL_HANDLE);
    }
    return result;
}

static void resized_window(void)
{
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSurfaceKHR surface = wsi_surface(&window);
    VkSwapchainCreateInfoKHR info = wsi_chain_info(surface, extent, VK_PRESENT_MODE_FIFO_KHR);
    struct wsi_chain chain = wsi_chain(&info);
    struct wsi_picture picture = whole(1);
    VKT(wsi_show(&chain, &picture));
    wsi_settle(&chain);
    wsi_resize(&window, 180, 190);
    out_result("old chain", show_until_failure(&chain));
    info.oldSwapchain = chain.handle;
    info.imageExtent = (VkExtent2D){180, 190};
    struct wsi_chain next = wsi_chain(&info);
    out_result("new chain", wsi_show(&next, &picture));
    wsi_settle(&next);
    vkt_out_u64("shown", wsi_shows(&window, &next, &picture));
    wsi_close();
}

static void destroyed_window(void)
{
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSurfaceKHR surface = wsi_surface(&window);
    VkSwapchainCreateInfoKHR info = wsi_chain_info(surface, extent, VK_PRESENT_MODE_FIFO_KHR);
    struct wsi_chain chain = wsi_chain(&info);
    struct wsi_picture picture = whole(1);
    VKT(wsi_show(&chain, &picture));
    wsi_settle(&chain);
    xcb_destroy_window(wsi_c, window.id);
    wsi_sync();
    VkSurfaceCapabilitiesKHR caps;
    VkBool32 supported;
    uint32_t count = 0;
    out_result("capabilities",
               vkGetPhysicalDeviceSurfaceCapabilitiesKHR(vkt.physical, surface, &caps));
    out_result("support",
               vkGetPhysicalDeviceSurfaceSupportKHR(vkt.physical, vkt.family, surface, &supported));
    out_result("formats",
               vkGetPhysicalDeviceSurfaceFormatsKHR(vkt.physical, surface, &count, NULL));
    out_result("old chain", show_until_failure(&chain));
    VkSwapchainKHR made;
    out_result("new chain", vkCreateSwapchainKHR(vkt.device, &info, NULL, &made));
    vkt_out_u64("no event came", xcb_poll_for_event(wsi_c) == NULL);
    wsi_close();
}

static void retired_chain(void)
{
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSwapchainCreateInfoKHR info =
        wsi_chain_info(wsi_surface(&window), extent, VK_PRESENT_MODE_FIFO_KHR);
    struct wsi_chain old = wsi_chain(&info);
    struct wsi_picture picture = whole(1);
    VKT(wsi_show(&old, &picture));
    wsi_settle(&old);
    info.oldSwapchain = old.handle;
    struct wsi_chain next = wsi_chain(&info);
    for (uint32_t frame = 2; frame < 6; frame++) {
        picture = whole(frame);
        VKT(wsi_show(&next, &picture));
    }
    wsi_settle(&next);
    vkt_out_u64("shown", wsi_shows(&window, &next, &picture));
    wsi_close();
}

/* ---- views of other formats ---- */

static void mutable_format(void)
{
    const VkFormat formats[] = {VK_FORMAT_B8G8R8A8_UNORM, VK_FORMAT_B8G8R8A8_SRGB};
    VkImageFormatListCreateInfo list = {.sType = VK_STRUCTURE_TYPE_IMAGE_FORMAT_LIST_CREATE_INFO,
                                        .viewFormatCount = VKT_COUNT(formats),
                                        .pViewFormats = formats};
    wsi_open();
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSwapchainCreateInfoKHR info =
        wsi_chain_info(wsi_surface(&window), extent, VK_PRESENT_MODE_FIFO_KHR);
    info.pNext = &list;
    info.flags = VK_SWAPCHAIN_CREATE_MUTABLE_FORMAT_BIT_KHR;
    struct wsi_chain chain = wsi_chain(&info);
    for (size_t i = 0; i < VKT_COUNT(formats); i++) {
        VkImageViewCreateInfo view = {.sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,
                                      .image = chain.images[0],
                                      .viewType = VK_IMAGE_VIEW_TYPE_2D,
                                      .format = formats[i],
                                      .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1}};
        VkImageView handle;
        vkt_out_result("view", vkCreateImageView(vkt.device, &view, NULL, &handle));
        vkDestroyImageView(vkt.device, handle, NULL);
    }
    struct wsi_picture picture = whole(4);
    VKT(wsi_show(&chain, &picture));
    wsi_settle(&chain);
    vkt_out_u64("shown", wsi_shows(&window, &chain, &picture));
    wsi_close();
}

/* ---- without a window ---- */

static void headless(void)
{
    wsi_open();
    VkHeadlessSurfaceCreateInfoEXT of = {.sType =
                                             VK_STRUCTURE_TYPE_HEADLESS_SURFACE_CREATE_INFO_EXT};
    VkSurfaceKHR surface;
    VKT(VKT_PROC(vkCreateHeadlessSurfaceEXT)(vkt.instance, &of, NULL, &surface));
    VkSurfaceCapabilitiesKHR caps;
    VKT(vkGetPhysicalDeviceSurfaceCapabilitiesKHR(vkt.physical, surface, &caps));
    vkt_out_u64("any width", caps.currentExtent.width);
    VkSwapchainCreateInfoKHR info = wsi_chain_info(surface, extent, VK_PRESENT_MODE_FIFO_KHR);
    info.compositeAlpha = VK_COMPOSITE_ALPHA_OPAQUE_BIT_KHR;
    info.minImageCount = caps.minImageCount;
    struct wsi_chain chain = wsi_chain(&info);
    for (uint32_t frame = 0; frame < 20; frame++) {
        struct wsi_picture picture = whole(frame);
        vkt_out_result("present", wsi_show(&chain, &picture));
    }
    wsi_close();
    vkDestroySurfaceKHR(vkt.instance, surface, NULL);
}

/* A swapchain is an object like others, also where it lives at the client. */
static void private_data(void)
{
    wsi_open();
    VKT_NEED(vkt.f13.privateData);
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSwapchainCreateInfoKHR info =
        wsi_chain_info(wsi_surface(&window), extent, VK_PRESENT_MODE_FIFO_KHR);
    struct wsi_chain first = wsi_chain(&info);
    VkPrivateDataSlotCreateInfo slot_info = {.sType =
                                                 VK_STRUCTURE_TYPE_PRIVATE_DATA_SLOT_CREATE_INFO};
    VkPrivateDataSlot slot;
    VKT(vkCreatePrivateDataSlot(vkt.device, &slot_info, NULL, &slot));
    VKT_KEEP(PRIVATE_DATA_SLOT, slot);
    VKT(vkSetPrivateData(vkt.device, VK_OBJECT_TYPE_SWAPCHAIN_KHR, (uint64_t)first.handle, slot,
                         1234567));
    uint64_t value = 0;
    vkGetPrivateData(vkt.device, VK_OBJECT_TYPE_SWAPCHAIN_KHR, (uint64_t)first.handle, slot,
                     &value);
    vkt_out_u64("first", value);
    info.oldSwapchain = first.handle;
    struct wsi_chain second = wsi_chain(&info);
    vkGetPrivateData(vkt.device, VK_OBJECT_TYPE_SWAPCHAIN_KHR, (uint64_t)second.handle, slot,
                     &value);
    vkt_out_u64("second", value);
    wsi_close();
}

/* ---- VK_EXT_swapchain_maintenance1 ---- */

static void out_compatible_modes(VkSurfaceKHR surface)
{
    VkSurfacePresentModeEXT mode = {.sType = VK_STRUCTURE_TYPE_SURFACE_PRESENT_MODE_EXT,
                                    .presentMode = VK_PRESENT_MODE_MAILBOX_KHR};
    VkPhysicalDeviceSurfaceInfo2KHR about = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SURFACE_INFO_2_KHR,
        .pNext = &mode,
        .surface = surface};
    VkPresentModeKHR modes[8];
    VkSurfacePresentModeCompatibilityEXT compatible = {
        .sType = VK_STRUCTURE_TYPE_SURFACE_PRESENT_MODE_COMPATIBILITY_EXT,
        .presentModeCount = VKT_COUNT(modes),
        .pPresentModes = modes};
    VkSurfaceCapabilities2KHR caps = {.sType = VK_STRUCTURE_TYPE_SURFACE_CAPABILITIES_2_KHR,
                                      .pNext = &compatible};
    VKT(vkGetPhysicalDeviceSurfaceCapabilities2KHR(vkt.physical, &about, &caps));
    for (uint32_t i = 0; i < compatible.presentModeCount; i++)
        vkt_out_u64("compatible", modes[i]);
    vkt_out_u64("min images", caps.surfaceCapabilities.minImageCount);
}

/* Shows the picture in that mode, with a fence. */
static void show_in_mode(struct wsi_chain *chain, const struct wsi_picture *picture,
                         VkPresentModeKHR mode)
{
    VkFence fence = vkt_fence(false);
    VkSwapchainPresentModeInfoEXT modes = {.sType =
                                               VK_STRUCTURE_TYPE_SWAPCHAIN_PRESENT_MODE_INFO_EXT,
                                           .swapchainCount = 1,
                                           .pPresentModes = &mode};
    VkSwapchainPresentFenceInfoEXT fences = {.sType =
                                                 VK_STRUCTURE_TYPE_SWAPCHAIN_PRESENT_FENCE_INFO_EXT,
                                             .pNext = &modes,
                                             .swapchainCount = 1,
                                             .pFences = &fence};
    uint32_t index = wsi_take(chain);
    wsi_fill(chain, chain->images[index], picture);
    VkPresentInfoKHR info = {.sType = VK_STRUCTURE_TYPE_PRESENT_INFO_KHR,
                             .pNext = &fences,
                             .swapchainCount = 1,
                             .pSwapchains = &chain->handle,
                             .pImageIndices = &index};
    vkt_out_result("present", vkQueuePresentKHR(vkt.queue, &info));
    vkt_wait(fence);
}

static void maintained_chain(void)
{
    VkPhysicalDeviceSwapchainMaintenance1FeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SWAPCHAIN_MAINTENANCE_1_FEATURES_EXT,
        .swapchainMaintenance1 = VK_TRUE};
    wsi_open_with(&features, VK_EXT_SWAPCHAIN_MAINTENANCE_1_EXTENSION_NAME, NULL);
    PFN_vkReleaseSwapchainImagesEXT release = VKT_PROC(vkReleaseSwapchainImagesEXT);
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSurfaceKHR surface = wsi_surface(&window);
    out_compatible_modes(surface);
    const VkPresentModeKHR modes[] = {VK_PRESENT_MODE_FIFO_KHR, VK_PRESENT_MODE_IMMEDIATE_KHR};
    VkSwapchainPresentModesCreateInfoEXT both = {
        .sType = VK_STRUCTURE_TYPE_SWAPCHAIN_PRESENT_MODES_CREATE_INFO_EXT,
        .presentModeCount = VKT_COUNT(modes),
        .pPresentModes = modes};
    VkSwapchainCreateInfoKHR info = wsi_chain_info(surface, extent, modes[0]);
    info.pNext = &both;
    struct wsi_chain chain = wsi_chain(&info);
    /* More often than there are images: each comes back. */
    for (uint32_t i = 0; i < 3 * chain.count; i++) {
        uint32_t index = wsi_take(&chain);
        VkReleaseSwapchainImagesInfoEXT back = {
            .sType = VK_STRUCTURE_TYPE_RELEASE_SWAPCHAIN_IMAGES_INFO_EXT,
            .swapchain = chain.handle,
            .imageIndexCount = 1,
            .pImageIndices = &index};
        VKT(release(vkt.device, &back));
    }
    struct wsi_picture picture = whole(0);
    for (uint32_t i = 0; i < 4; i++) {
        picture = whole(i);
        show_in_mode(&chain, &picture, modes[i % 2]);
    }
    wsi_settle(&chain);
    vkt_out_u64("shown", wsi_shows(&window, &chain, &picture));
    wsi_close();
}

/* ---- VK_EXT_multisampled_render_to_swapchain ---- */

#ifdef VK_EXT_multisampled_render_to_swapchain
static void out_flags(VkSurfaceKHR surface)
{
    VkPhysicalDeviceSurfaceInfo2KHR about = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SURFACE_INFO_2_KHR, .surface = surface};
    VkSwapchainFlagsSurfaceCapabilitiesEXT flags = {
        .sType = VK_STRUCTURE_TYPE_SWAPCHAIN_FLAGS_SURFACE_CAPABILITIES_EXT};
    VkSurfaceCapabilities2KHR caps = {.sType = VK_STRUCTURE_TYPE_SURFACE_CAPABILITIES_2_KHR,
                                      .pNext = &flags};
    VKT(vkGetPhysicalDeviceSurfaceCapabilities2KHR(vkt.physical, &about, &caps));
    vkt_out_u64("samples", flags.swapchainSupportedFlags &
                               VK_SWAPCHAIN_CREATE_MULTISAMPLED_RENDER_TO_SINGLE_SAMPLED_BIT_EXT);
}

/* Clears the image with four samples a pixel. */
static void clear_samples(VkCommandBuffer command, VkImage image, VkImageView view)
{
    VkImageMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
                                    .dstAccessMask = VK_ACCESS_COLOR_ATTACHMENT_WRITE_BIT,
                                    .newLayout = VK_IMAGE_LAYOUT_GENERAL,
                                    .image = image,
                                    .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1}};
    vkCmdPipelineBarrier(command, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT,
                         VK_PIPELINE_STAGE_COLOR_ATTACHMENT_OUTPUT_BIT, 0, 0, NULL, 0, NULL, 1,
                         &barrier);
    VkMultisampledRenderToSingleSampledInfoEXT samples = {
        .sType = VK_STRUCTURE_TYPE_MULTISAMPLED_RENDER_TO_SINGLE_SAMPLED_INFO_EXT,
        .multisampledRenderToSingleSampledEnable = VK_TRUE,
        .rasterizationSamples = VK_SAMPLE_COUNT_4_BIT};
    VkRenderingAttachmentInfo color = {.sType = VK_STRUCTURE_TYPE_RENDERING_ATTACHMENT_INFO,
                                       .imageView = view,
                                       .imageLayout = VK_IMAGE_LAYOUT_GENERAL,
                                       .loadOp = VK_ATTACHMENT_LOAD_OP_CLEAR,
                                       .storeOp = VK_ATTACHMENT_STORE_OP_STORE,
                                       .clearValue.color.float32 = {0.25f, 0.5f, 0.75f, 1}};
    VkRenderingInfo rendering = {.sType = VK_STRUCTURE_TYPE_RENDERING_INFO,
                                 .pNext = &samples,
                                 .renderArea = {{0, 0}, extent},
                                 .layerCount = 1,
                                 .colorAttachmentCount = 1,
                                 .pColorAttachments = &color};
    vkCmdBeginRendering(command, &rendering);
    vkCmdEndRendering(command);
}

static void samples_in_chain(void)
{
    VkPhysicalDeviceMultisampledRenderToSingleSampledFeaturesEXT single = {
        .sType =
            VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MULTISAMPLED_RENDER_TO_SINGLE_SAMPLED_FEATURES_EXT};
    VkPhysicalDeviceMultisampledRenderToSwapchainFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MULTISAMPLED_RENDER_TO_SWAPCHAIN_FEATURES_EXT,
        .pNext = &single};
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &features};
    vkGetPhysicalDeviceFeatures2(vkt.physical, &all);
    VKT_NEED(features.multisampledRenderToSwapchain && vkt.f13.dynamicRendering);
    wsi_open_with(&features, VK_EXT_MULTISAMPLED_RENDER_TO_SWAPCHAIN_EXTENSION_NAME,
                  VK_EXT_MULTISAMPLED_RENDER_TO_SINGLE_SAMPLED_EXTENSION_NAME);
    struct wsi_window window = wsi_window(0, 0, WIDTH, HEIGHT, 24);
    VkSurfaceKHR surface = wsi_surface(&window);
    out_flags(surface);
    VkSwapchainCreateInfoKHR info = wsi_chain_info(surface, extent, VK_PRESENT_MODE_FIFO_KHR);
    info.flags = VK_SWAPCHAIN_CREATE_MULTISAMPLED_RENDER_TO_SINGLE_SAMPLED_BIT_EXT;
    info.imageUsage |= VK_IMAGE_USAGE_TRANSFER_SRC_BIT;
    struct wsi_chain chain = wsi_chain(&info);
    uint32_t index = wsi_take(&chain);
    VkImageViewCreateInfo view = {.sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,
                                  .image = chain.images[index],
                                  .viewType = VK_IMAGE_VIEW_TYPE_2D,
                                  .format = info.imageFormat,
                                  .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1}};
    VkImageView handle;
    VKT(vkCreateImageView(vkt.device, &view, NULL, &handle));
    VkCommandBuffer command = vkt_begin();
    clear_samples(command, chain.images[index], handle);
    vkt_barrier(command);
    struct vkt_buffer out = vkt_buffer(4 * WIDTH * HEIGHT, 0, VKT_COHERENT);
    VkBufferImageCopy region = {.imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
                                .imageExtent = {WIDTH, HEIGHT, 1}};
    vkCmdCopyImageToBuffer(command, chain.images[index], VK_IMAGE_LAYOUT_GENERAL, out.handle, 1,
                           &region);
    vkt_finish(command);
    vkt_out_buffer("image", &out);
    vkDestroyImageView(vkt.device, handle, NULL);
    wsi_close();
}
#endif

static const struct vkt_case cases[] = {
    {"offers", offers, NULL},
    {"offers_with_alpha", offers_with_alpha, NULL},
    {"offers_to_groups", offers_to_groups, NULL},
    {"frames_fifo", frames_fifo, NULL},
    {"frames_relaxed", frames_relaxed, NULL},
    {"frames_mailbox", frames_mailbox, NULL},
    {"frames_immediate", frames_immediate, NULL},
    {"frames_with_alpha", frames_with_alpha, NULL},
    {"small_changes", small_changes, NULL},
    {"large_window", large_window, NULL},
    {"covered_window", covered_window, NULL},
    {"two_windows", two_windows, NULL},
    {"acquire_runs_out", acquire_runs_out, NULL},
    {"acquire_with_semaphore", acquire_with_semaphore, NULL},
    {"acquire_beside_submits", acquire_beside_submits, NULL},
    {"resized_window", resized_window, NULL},
    {"destroyed_window", destroyed_window, "a surface without a window supports nothing"},
    {"retired_chain", retired_chain, NULL},
    {"mutable_format", mutable_format, NULL},
    {"private_data", private_data, NULL},
    {"headless", headless, NULL},
    {"maintained_chain", maintained_chain, NULL},
#ifdef VK_EXT_multisampled_render_to_swapchain
    {"samples_in_chain", samples_in_chain, "the layer may be older than the extension"},
#endif
};

VKT_MAIN(cases)
