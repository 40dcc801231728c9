/* venus/client/present/surface.h - where pictures are shown: a window of the program, or nowhere.
 *
 * A surface answers what swapchains may look like; a canvas shows the pictures of one swapchain.
 *
 * Trust: the program's own; answers of its display server are checked.
 * Threads: a surface any; a canvas one at a time.
 * Lifetime: of the handle; the program keeps its window and connection while there is a surface,
 * and the surface while there is a swapchain. */
#ifndef HAWSER_VENUS_CLIENT_PRESENT_SURFACE_H
#define HAWSER_VENUS_CLIENT_PRESENT_SURFACE_H

#include "venus/client/object/objects.h"
#include "venus/client/present/tiles.h"

/* As Mesa: one more than in other modes, for a picture that may be overtaken. */
enum { VNC_MAILBOX_IMAGES_MIN = 4 };

struct vnc_surface_look {
    bool presentable;  /* we know how to show pictures there */
    VkExtent2D extent; /* both UINT32_MAX: any */
    bool alpha;        /* its pixels have alpha */
    bool opaque;       /* or none, as the swapchain likes; without alpha they never have */
    bool composited;   /* nothing is shown while it is drawn: there is no IMMEDIATE */
    bool red_first;    /* in memory: R8G8B8A8; else B8G8R8A8 */
    bool any_order;    /* both */
};

struct vnc_canvas;

struct vnc_canvas_ops {
    /* Shows canvas->picture, of which rects changed since the last time.  VK_SUCCESS,
     * VK_ERROR_OUT_OF_DATE_KHR when the window has another size now, VK_ERROR_SURFACE_LOST_KHR. */
    VkResult (*show)(struct vnc_canvas *canvas, const struct vnc_rects *rects);
    void (*destroy)(struct vnc_canvas *canvas);
};

struct vnc_canvas {
    const struct vnc_canvas_ops *ops;
    struct vnc_picture picture; /* what was shown; the caller's to change between two shows */
    bool paced;                 /* the next show may wait until the window is due for a picture */
};

struct vnc_surface;

struct vnc_surface_ops {
    /* VK_SUCCESS or VK_ERROR_SURFACE_LOST_KHR. */
    VkResult (*look)(const struct vnc_surface *surface, struct vnc_surface_look *out);
    /* NULL for a surface that shows nothing. */
    VkResult (*canvas)(const struct vnc_surface *surface, const VkSwapchainCreateInfoKHR *info,
                       struct vnc_canvas **out);
};

struct vnc_surface {
    struct vn_object object; /* id 0: it never travels */
    const struct vnc_surface_ops *ops;
    /* The window; unused without one. */
    void *connection;
    uint32_t window; /* of X11 */
    void *native;    /* of Wayland */
};

/* Whether queues of the family can present: to any surface or to none. */
bool vnc_surface_family_presents(VkPhysicalDevice device, uint32_t family);

#endif
