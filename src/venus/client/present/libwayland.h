/* venus/client/present/libwayland.h - libwayland-client, opened when a program first has a window.
 *
 * The driver is loaded into programs of machines without Wayland, too, so it is linked with none of
 * its libraries.  A program that has a window has them.  What is declared here is the library's
 * stable interface, so that a build needs none of its headers.
 *
 * Trust: the program's own.  Threads: any.  Lifetime: the process. */
#ifndef HAWSER_VENUS_CLIENT_PRESENT_LIBWAYLAND_H
#define HAWSER_VENUS_CLIENT_PRESENT_LIBWAYLAND_H

#include <stdint.h>

struct wl_display;
struct wl_proxy; /* any object of the protocol, a display too */
struct wl_event_queue;
struct wl_interface;

/* Requests of the protocol, by object. */
enum {
    VNC_WL_DISPLAY_GET_REGISTRY = 1,
    VNC_WL_REGISTRY_BIND = 0,
    VNC_WL_SHM_CREATE_POOL = 0,
    VNC_WL_POOL_CREATE_BUFFER = 0,
    VNC_WL_POOL_DESTROY = 1,
    VNC_WL_BUFFER_DESTROY = 0,
    VNC_WL_SURFACE_ATTACH = 1,
    VNC_WL_SURFACE_DAMAGE = 2,
    VNC_WL_SURFACE_FRAME = 3,
    VNC_WL_SURFACE_COMMIT = 6,
    VNC_WL_SURFACE_DAMAGE_BUFFER = 9,       /* since version 4 */
    VNC_WL_SURFACE_DAMAGE_BUFFER_SINCE = 4, /* that version */
    VNC_WL_MARSHAL_DESTROY = 1,             /* a flag: the request ends its object */
};

/* Formats of pixels: words in our own byte order. */
enum { VNC_WL_ARGB8888 = 0, VNC_WL_XRGB8888 = 1 };

struct vnc_wayland {
    struct wl_event_queue *(*wl_display_create_queue)(struct wl_display *display);
    int (*wl_display_dispatch_queue_pending)(struct wl_display *display,
                                             struct wl_event_queue *queue);
    int (*wl_display_flush)(struct wl_display *display);
    int (*wl_display_get_error)(struct wl_display *display);
    int (*wl_display_get_fd)(struct wl_display *display);
    int (*wl_display_prepare_read_queue)(struct wl_display *display, struct wl_event_queue *queue);
    int (*wl_display_read_events)(struct wl_display *display);
    int (*wl_display_roundtrip_queue)(struct wl_display *display, struct wl_event_queue *queue);
    void (*wl_display_cancel_read)(struct wl_display *display);
    void (*wl_event_queue_destroy)(struct wl_event_queue *queue);
    int (*wl_proxy_add_listener)(struct wl_proxy *proxy, void (**functions)(void), void *data);
    void *(*wl_proxy_create_wrapper)(void *proxy);
    void (*wl_proxy_destroy)(struct wl_proxy *proxy);
    uint32_t (*wl_proxy_get_version)(struct wl_proxy *proxy);
    struct wl_proxy *(*wl_proxy_marshal_flags)(struct wl_proxy *proxy, uint32_t request,
                                               const struct wl_interface *made, uint32_t version,
                                               uint32_t flags, ...);
    void (*wl_proxy_set_queue)(struct wl_proxy *proxy, struct wl_event_queue *queue);
    void (*wl_proxy_wrapper_destroy)(void *wrapper);
    const struct wl_interface *wl_buffer_interface;
    const struct wl_interface *wl_callback_interface;
    const struct wl_interface *wl_registry_interface;
    const struct wl_interface *wl_shm_interface;
    const struct wl_interface *wl_shm_pool_interface;
};

/* NULL when there is no libwayland-client that has all of it; said once in the log. */
const struct vnc_wayland *vnc_wayland(void);

#endif
