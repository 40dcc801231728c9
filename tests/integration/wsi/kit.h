/* kit.h - windows and swapchains for the presentation cases, over vkt.h.
 *
 * Trust: none needed.  Threads: one.  Lifetime: the case's; swapchains and surfaces are destroyed
 * by wsi_close.  Errors end the process, as vkt's do. */
#ifndef HAWSER_TESTS_WSI_KIT_H
#define HAWSER_TESTS_WSI_KIT_H

#include <xcb/xcb.h>

#include "../../vulkan/vkt.h"
#include <vulkan/vulkan_xcb.h>

enum {
    WSI_IMAGES_MAX = 16,  /* of a swapchain; drivers here make 3 to 5 */
    WSI_OBJECTS_MAX = 16, /* surfaces and swapchains of a case */
};

extern xcb_connection_t *wsi_c;

/* The display (a case is skipped without one), an instance that can present, and a device. */
void wsi_open(void);
/* The same with an extension besides and its features, or two (NULL: one); a case is skipped
 * without them. */
void wsi_open_with(void *features, const char *extension, const char *second);
/* Destroys swapchains, then surfaces. */
void wsi_close(void);

struct wsi_window {
    xcb_window_t id;
    uint16_t width, height;
    uint8_t depth;
};

/* Mapped at x, y and known to the server; depth 24 or 32. */
struct wsi_window wsi_window(int16_t x, int16_t y, uint16_t width, uint16_t height, uint8_t depth);
void wsi_resize(struct wsi_window *window, uint16_t width, uint16_t height);
/* Waits until the server has done all that was asked of it. */
void wsi_sync(void);
VkSurfaceKHR wsi_surface(const struct wsi_window *window);

struct wsi_chain {
    VkSwapchainKHR handle;
    VkExtent2D extent;
    uint32_t count;
    VkImage images[WSI_IMAGES_MAX];
    uint32_t held[WSI_IMAGES_MAX]; /* acquired and not presented */
    uint32_t held_count;
    struct vkt_buffer staging;
};

VkSwapchainCreateInfoKHR wsi_chain_info(VkSurfaceKHR surface, VkExtent2D extent,
                                        VkPresentModeKHR mode);
struct wsi_chain wsi_chain(const VkSwapchainCreateInfoKHR *info);

/* Pixels of a picture: noise from the seed in the part given, the first seed's elsewhere. */
struct wsi_picture {
    uint32_t seed, part_seed;
    uint32_t x, y, width, height;
};

/* Acquires (unless an image is held), fills the image and presents it. */
VkResult wsi_show(struct wsi_chain *chain, const struct wsi_picture *picture);
/* The parts of wsi_show. */
uint32_t wsi_take(struct wsi_chain *chain);
void wsi_fill(struct wsi_chain *chain, VkImage image, const struct wsi_picture *picture);
VkResult wsi_present(uint32_t count, const VkSwapchainKHR *chains, const uint32_t *indices,
                     VkSemaphore wait);
/* Holds every image: then whatever was presented has been shown. */
void wsi_settle(struct wsi_chain *chain);
/* Whether the window shows exactly that, in the part that picture and window share. */
bool wsi_shows(const struct wsi_window *window, const struct wsi_chain *chain,
               const struct wsi_picture *picture);

#endif
