/* venus/client/present/xcb.h - libxcb, opened when a program first has a window.
 *
 * The driver is loaded into programs of machines without X, too, so it is linked with none of its
 * libraries.  A program that has a window has them.
 *
 * Trust: the program's own.  Threads: any.  Lifetime: the process. */
#ifndef HAWSER_VENUS_CLIENT_PRESENT_XCB_H
#define HAWSER_VENUS_CLIENT_PRESENT_XCB_H

#include <stdbool.h>
#include <xcb/shm.h>
#include <xcb/xcb.h>
#include <xcb/xcbext.h>

#define VNC_XCB_FUNCTIONS(F)                                                                       \
    F(xcb_connection_has_error)                                                                    \
    F(xcb_copy_area_checked)                                                                       \
    F(xcb_create_gc_checked)                                                                       \
    F(xcb_create_pixmap_checked)                                                                   \
    F(xcb_depth_next)                                                                              \
    F(xcb_depth_visuals)                                                                           \
    F(xcb_depth_visuals_length)                                                                    \
    F(xcb_discard_reply)                                                                           \
    F(xcb_flush)                                                                                   \
    F(xcb_free_gc_checked)                                                                         \
    F(xcb_free_pixmap_checked)                                                                     \
    F(xcb_generate_id)                                                                             \
    F(xcb_get_extension_data)                                                                      \
    F(xcb_get_file_descriptor)                                                                     \
    F(xcb_get_geometry)                                                                            \
    F(xcb_get_geometry_reply)                                                                      \
    F(xcb_get_maximum_request_length)                                                              \
    F(xcb_get_setup)                                                                               \
    F(xcb_get_window_attributes)                                                                   \
    F(xcb_get_window_attributes_reply)                                                             \
    F(xcb_poll_for_special_event)                                                                  \
    F(xcb_put_image_checked)                                                                       \
    F(xcb_register_for_special_xge)                                                                \
    F(xcb_request_check)                                                                           \
    F(xcb_screen_allowed_depths_iterator)                                                          \
    F(xcb_screen_next)                                                                             \
    F(xcb_send_request)                                                                            \
    F(xcb_setup_pixmap_formats)                                                                    \
    F(xcb_setup_pixmap_formats_length)                                                             \
    F(xcb_setup_roots_iterator)                                                                    \
    F(xcb_unregister_for_special_event)

#define VNC_XCB_SHM_FUNCTIONS(F)                                                                   \
    F(xcb_shm_attach_fd_checked)                                                                   \
    F(xcb_shm_detach_checked)                                                                      \
    F(xcb_shm_id)                                                                                  \
    F(xcb_shm_put_image_checked)                                                                   \
    F(xcb_shm_query_version)                                                                       \
    F(xcb_shm_query_version_reply)

struct vnc_xcb {
#define VNC_XCB_MEMBER(name) __typeof__(name) *name;
    VNC_XCB_FUNCTIONS(VNC_XCB_MEMBER)
    VNC_XCB_SHM_FUNCTIONS(VNC_XCB_MEMBER) /* all NULL without libxcb-shm */
#undef VNC_XCB_MEMBER
    xcb_connection_t *(*of_display)(void *display); /* NULL without libX11-xcb */
};

/* NULL when there is no libxcb; said once in the log. */
const struct vnc_xcb *vnc_xcb(void);

#endif
