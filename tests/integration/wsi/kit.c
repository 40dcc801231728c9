#include "kit.h"

#include <stdlib.h>
#include <string.h>

enum { PIXEL_BYTES = 4, NO_ALPHA = 0xffffff };

xcb_connection_t *wsi_c;

static VkSurfaceKHR surfaces[WSI_OBJECTS_MAX];
static VkSwapchainKHR chains[WSI_OBJECTS_MAX];
static uint32_t surface_count, chain_count;

/* ---- instance ---- */

static bool instance_has(const char *name)
{
    VkExtensionProperties found[64];
    uint32_t count = VKT_COUNT(found);
    VKT_EXPECT(vkEnumerateInstanceExtensionProperties(NULL, &count, found) >= 0);
    for (uint32_t i = 0; i < count; i++) {
        if (!strcmp(found[i].extensionName, name))
            return true;
    }
    return false;
}

/* vkt's own instance cannot present. */
static void replace_instance(void)
{
    /* The last is needed for some device extensions, and not everywhere. */
    const char *const extensions[] = {
        VK_KHR_SURFACE_EXTENSION_NAME, VK_KHR_XCB_SURFACE_EXTENSION_NAME,
        VK_KHR_GET_SURFACE_CAPABILITIES_2_EXTENSION_NAME, VK_EXT_HEADLESS_SURFACE_EXTENSION_NAME,
        VK_EXT_SURFACE_MAINTENANCE_1_EXTENSION_NAME};
    const bool all = instance_has(VK_EXT_SURFACE_MAINTENANCE_1_EXTENSION_NAME);
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                             .pApplicationName = "wsi",
                             .apiVersion = VK_API_VERSION_1_3};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &app,
                                 .enabledExtensionCount = VKT_COUNT(extensions) - !all,
                                 .ppEnabledExtensionNames = extensions};
    vkDestroyInstance(vkt.instance, NULL);
    vkt.instance = VK_NULL_HANDLE;
    VKT(vkCreateInstance(&info, NULL, &vkt.instance));
    uint32_t count = 1;
    VkResult result = vkEnumeratePhysicalDevices(vkt.instance, &count, &vkt.physical);
    VKT_EXPECT(result >= 0 && count == 1);
}

void wsi_open(void)
{
    wsi_open_with(NULL, VK_KHR_SWAPCHAIN_MUTABLE_FORMAT_EXTENSION_NAME, NULL);
}

void wsi_open_with(void *features, const char *extension, const char *second)
{
    wsi_c = xcb_connect(NULL, NULL);
    if (xcb_connection_has_error(wsi_c))
        vkt_skip("no display");
    replace_instance();
    VKT_OPEN_WITH(features, VK_KHR_SWAPCHAIN_EXTENSION_NAME, extension, second);
}

void wsi_close(void)
{
    VKT(vkDeviceWaitIdle(vkt.device));
    while (chain_count > 0)
        vkDestroySwapchainKHR(vkt.device, chains[--chain_count], NULL);
    while (surface_count > 0)
        vkDestroySurfaceKHR(vkt.instance, surfaces[--surface_count], NULL);
    xcb_disconnect(wsi_c);
}

/* ---- windows ---- */

static xcb_visualid_t visual_of(const xcb_screen_t *screen, uint8_t depth)
{
    xcb_depth_iterator_t d = xcb_screen_allowed_depths_iterator(screen);
    for (; d.rem; xcb_depth_next(&d)) {
        if (d.data->depth == depth && xcb_depth_visuals_length(d.data) > 0)
            return xcb_depth_visuals(d.data)[0].visual_id;
    }
    vkt_skip("no visual of depth %d", depth);
}

void wsi_sync(void)
{
    free(xcb_get_input_focus_reply(wsi_c, xcb_get_input_focus(wsi_c), NULL));
}

struct wsi_window wsi_window(int16_t x, int16_t y, uint16_t width, uint16_t height, uint8_t depth)
{
    const xcb_screen_t *screen = xcb_setup_roots_iterator(xcb_get_setup(wsi_c)).data;
    struct wsi_window window = {xcb_generate_id(wsi_c), width, height, depth};
    xcb_visualid_t visual = visual_of(screen, depth);
    xcb_colormap_t colors = xcb_generate_id(wsi_c);
    xcb_create_colormap(wsi_c, XCB_COLORMAP_ALLOC_NONE, colors, screen->root, visual);
    const uint32_t values[] = {screen->black_pixel, screen->black_pixel, 1, colors};
    xcb_create_window(wsi_c, depth, window.id, screen->root, x, y, width, height, 0,
                      XCB_WINDOW_CLASS_INPUT_OUTPUT, visual,
                      XCB_CW_BACK_PIXEL | XCB_CW_BORDER_PIXEL | XCB_CW_OVERRIDE_REDIRECT |
                          XCB_CW_COLORMAP,
                      values);
    xcb_map_window(wsi_c, window.id);
    wsi_sync();
    return window;
}

void wsi_resize(struct wsi_window *window, uint16_t width, uint16_t height)
{
    const uint32_t values[] = {width, height};
    xcb_configure_window(wsi_c, window->id, XCB_CONFIG_WINDOW_WIDTH | XCB_CONFIG_WINDOW_HEIGHT,
                         values);
    wsi_sync();
    window->width = width;
    window->height = height;
}

VkSurfaceKHR wsi_surface(const struct wsi_window *window)
{
    VkXcbSurfaceCreateInfoKHR info = {.sType = VK_STRUCTURE_TYPE_XCB_SURFACE_CREATE_INFO_KHR,
                                      .connection = wsi_c,
                                      .window = window->id};
    VkSurfaceKHR surface;
    VKT(vkCreateXcbSurfaceKHR(vkt.instance, &info, NULL, &surface));
    VkBool32 supported = VK_FALSE;
    VKT(vkGetPhysicalDeviceSurfaceSupportKHR(vkt.physical, vkt.family, surface, &supported));
    VKT_EXPECT(supported);
    VKT_EXPECT(surface_count < WSI_OBJECTS_MAX);
    surfaces[surface_count++] = surface;
    return surface;
}

/* ---- swapchains ---- */

VkSwapchainCreateInfoKHR wsi_chain_info(VkSurfaceKHR surface, VkExtent2D extent,
                                        VkPresentModeKHR mode)
{
    return (VkSwapchainCreateInfoKHR){
        .sType = VK_STRUCTURE_TYPE_SWAPCHAIN_CREATE_INFO_KHR,
        .surface = surface,
        .minImageCount = 3,
        .imageFormat = VK_FORMAT_B8G8R8A8_UNORM,
        .imageColorSpace = VK_COLOR_SPACE_SRGB_NONLINEAR_KHR,
        .imageExtent = extent,
        .imageArrayLayers = 1,
        .imageUsage = VK_IMAGE_USAGE_TRANSFER_DST_BIT | VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT,
        .preTransform = VK_SURFACE_TRANSFORM_IDENTITY_BIT_KHR,
        .compositeAlpha = VK_COMPOSITE_ALPHA_INHERIT_BIT_KHR,
        .presentMode = mode,
        .clipped = VK_TRUE,
    };
}

struct wsi_chain wsi_chain(const VkSwapchainCreateInfoKHR *info)
{
    struct wsi_chain chain = {.extent = info->imageExtent, .count = WSI_IMAGES_MAX};
    VKT(vkCreateSwapchainKHR(vkt.device, info, NULL, &chain.handle));
    VKT_EXPECT(chain_count < WSI_OBJECTS_MAX);
    chains[chain_count++] = chain.handle;
    VKT(vkGetSwapchainImagesKHR(vkt.device, chain.handle, &chain.count, chain.images));
    chain.staging =
        vkt_buffer((VkDeviceSize)info->imageExtent.width * info->imageExtent.height * PIXEL_BYTES,
                   0, VKT_COHERENT);
    return chain;
}

/* ---- pictures ---- */

static uint32_t pixel_at(const struct wsi_picture *p, uint32_t x, uint32_t y)
{
    bool inside = x >= p->x && y >= p->y && x - p->x < p->width && y - p->y < p->height;
    uint32_t hash =
        (x * 73856093u) ^ (y * 19349663u) ^ ((inside ? p->part_seed : p->seed) * 83492791u);
    return (hash ^ (hash >> 13)) * 2654435761u;
}

static void transition(VkCommandBuffer command, VkImage image, VkImageLayout from, VkImageLayout to)
{
    VkImageMemoryBarrier barrier = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
        .srcAccessMask = from == VK_IMAGE_LAYOUT_UNDEFINED ? 0 : VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = from == VK_IMAGE_LAYOUT_UNDEFINED ? VK_ACCESS_TRANSFER_WRITE_BIT : 0,
        .oldLayout = from,
        .newLayout = to,
        .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .image = image,
        .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1}};
    vkCmdPipelineBarrier(command, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0,
                         0, NULL, 0, NULL, 1, &barrier);
}

void wsi_fill(struct wsi_chain *chain, VkImage image, const struct wsi_picture *picture)
{
    uint32_t *pixels = chain->staging.map;
    for (uint32_t y = 0; y < chain->extent.height; y++)
        for (uint32_t x = 0; x < chain->extent.width; x++)
            *pixels++ = pixel_at(picture, x, y);
    VkBufferImageCopy region = {.imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
                                .imageExtent = {chain->extent.width, chain->extent.height, 1}};
    VkCommandBuffer command = vkt_begin();
    transition(command, image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL);
    vkCmdCopyBufferToImage(command, chain->staging.handle, image,
                           VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1, &region);
    transition(command, image, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL,
               VK_IMAGE_LAYOUT_PRESENT_SRC_KHR);
    vkt_finish(command);
}

static void hold_one(struct wsi_chain *chain)
{
    VkFence fence = vkt_fence(false);
    uint32_t index;
    VkResult result = vkAcquireNextImageKHR(vkt.device, chain->handle, VKT_WAIT_NS, VK_NULL_HANDLE,
                                            fence, &index);
    if (result != VK_SUBOPTIMAL_KHR)
        vkt_check(result, "vkAcquireNextImageKHR");
    vkt_wait(fence);
    chain->held[chain->held_count++] = index;
}

uint32_t wsi_take(struct wsi_chain *chain)
{
    if (chain->held_count == 0)
        hold_one(chain);
    return chain->held[--chain->held_count];
}

VkResult wsi_present(uint32_t count, const VkSwapchainKHR *handles, const uint32_t *indices,
                     VkSemaphore wait)
{
    VkPresentInfoKHR info = {.sType = VK_STRUCTURE_TYPE_PRESENT_INFO_KHR,
                             .waitSemaphoreCount = wait ? 1 : 0,
                             .pWaitSemaphores = &wait,
                             .swapchainCount = count,
                             .pSwapchains = handles,
                             .pImageIndices = indices};
    return vkQueuePresentKHR(vkt.queue, &info);
}

VkResult wsi_show(struct wsi_chain *chain, const struct wsi_picture *picture)
{
    uint32_t index = wsi_take(chain);
    wsi_fill(chain, chain->images[index], picture);
    return wsi_present(1, &chain->handle, &index, VK_NULL_HANDLE);
}

void wsi_settle(struct wsi_chain *chain)
{
    while (chain->held_count < chain->count)
        hold_one(chain);
}

bool wsi_shows(const struct wsi_window *window, const struct wsi_chain *chain,
               const struct wsi_picture *picture)
{
    uint32_t width = window->width < chain->extent.width ? window->width : chain->extent.width;
    uint32_t height = window->height < chain->extent.height ? window->height : chain->extent.height;
    xcb_get_image_reply_t *reply =
        xcb_get_image_reply(wsi_c,
                            xcb_get_image(wsi_c, XCB_IMAGE_FORMAT_Z_PIXMAP, window->id, 0, 0,
                                          (uint16_t)width, (uint16_t)height, UINT32_MAX),
                            NULL);
    VKT_EXPECT(reply != NULL);
    uint32_t mask = window->depth == 32 ? UINT32_MAX : NO_ALPHA;
    const uint8_t *at = xcb_get_image_data(reply);
    bool same = true;
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++, at += PIXEL_BYTES) {
            uint32_t pixel;
            memcpy(&pixel, at, sizeof(pixel));
            same = same && (pixel & mask) == (pixel_at(picture, x, y) & mask);
        }
    }
    free(reply);
    return same;
}
