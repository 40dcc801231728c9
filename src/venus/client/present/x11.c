/* Windows of X11; see surface.h.
 *
 * Changed pixels go into a pixmap, and each show copies all of the pixmap to the window: what other
 * windows covered meanwhile is whole again, although only changes travel.
 *
 * The connection is the program's.  Every request is a checked one, so that errors (of a window
 * that the program destroyed, say) come back here and not to the program's event loop or to Xlib's
 * error handler, which ends the process. */
#include "venus/client/present/pace.h"
#include "venus/client/present/surface.h"
#include "venus/client/present/wsi.h"
#include "venus/client/present/xcb.h"

#include "base/log.h"
#include "base/units.h"

#include <X11/Xlib.h>
#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vulkan/vulkan_xcb.h>
#include <vulkan/vulkan_xlib.h>

enum {
    EXTENT_MAX = INT16_MAX, /* coordinates of the protocol */
    /* Of one put: small enough that the program's own requests get through in between. */
    PUT_BYTES_MAX = 256 << 10,
    /* A PutImage has 24 bytes of head, and 4 more for a long length. */
    PUT_HEAD_BYTES = 28,
};

struct x11_canvas {
    struct vnc_canvas canvas;
    const struct vnc_xcb *xcb;
    xcb_connection_t *c;
    xcb_window_t window;
    uint8_t depth;
    xcb_pixmap_t pixmap;
    xcb_gcontext_t gc;
    xcb_shm_seg_t segment; /* 0: pixels travel through the connection */
    size_t bytes;          /* of the picture */
    uint8_t *rows;         /* PUT_BYTES_MAX of them, for puts of less than a row's width */
    struct vnc_pace *pace; /* from the first paced show on */
};

/* ---- what can be shown on which visuals ---- */

static const xcb_visualtype_t *find_visual(const struct vnc_xcb *xcb, xcb_connection_t *c,
                                           xcb_visualid_t id, uint8_t *depth)
{
    xcb_screen_iterator_t screen = xcb->xcb_setup_roots_iterator(xcb->xcb_get_setup(c));
    for (; screen.rem; xcb->xcb_screen_next(&screen)) {
        xcb_depth_iterator_t d = xcb->xcb_screen_allowed_depths_iterator(screen.data);
        for (; d.rem; xcb->xcb_depth_next(&d)) {
            const xcb_visualtype_t *visuals = xcb->xcb_depth_visuals(d.data);
            for (int i = 0; i < xcb->xcb_depth_visuals_length(d.data); i++) {
                if (visuals[i].visual_id == id) {
                    *depth = d.data->depth;
                    return &visuals[i];
                }
            }
        }
    }
    return NULL;
}

/* Pixels of that depth are words in our own byte order. */
static bool pixels_are_words(const struct vnc_xcb *xcb, xcb_connection_t *c, uint8_t depth)
{
    const xcb_setup_t *setup = xcb->xcb_get_setup(c);
    const xcb_format_t *formats = xcb->xcb_setup_pixmap_formats(setup);
    for (int i = 0; i < xcb->xcb_setup_pixmap_formats_length(setup); i++) {
        if (formats[i].depth == depth)
            return formats[i].bits_per_pixel == 8 * VNC_PIXEL_BYTES &&
                   formats[i].scanline_pad == 8 * VNC_PIXEL_BYTES &&
                   setup->image_byte_order == XCB_IMAGE_ORDER_LSB_FIRST;
    }
    return false;
}

static void judge_visual(const struct vnc_xcb *xcb, xcb_connection_t *c, xcb_visualid_t id,
                         struct vnc_surface_look *out)
{
    uint8_t depth = 0;
    const xcb_visualtype_t *visual = find_visual(xcb, c, id, &depth);
    if (!visual || (depth != 24 && depth != 32) || !pixels_are_words(xcb, c, depth))
        return;
    bool direct = visual->_class == XCB_VISUAL_CLASS_TRUE_COLOR ||
                  visual->_class == XCB_VISUAL_CLASS_DIRECT_COLOR;
    bool blue_first = visual->red_mask == 0xff0000 && visual->blue_mask == 0xff;
    bool red_first = visual->red_mask == 0xff && visual->blue_mask == 0xff0000;
    out->presentable = direct && visual->green_mask == 0xff00 && (blue_first || red_first);
    out->red_first = red_first;
    out->alpha = depth == 32;
}

static VkBool32 visual_is_presentable(xcb_connection_t *c, xcb_visualid_t visual)
{
    const struct vnc_xcb *xcb = vnc_xcb();
    struct vnc_surface_look look = {0};
    if (xcb && c && !xcb->xcb_connection_has_error(c))
        judge_visual(xcb, c, visual, &look);
    return look.presentable;
}

/* ---- the surface ---- */

static VkResult x11_look(const struct vnc_surface *surface, struct vnc_surface_look *out)
{
    const struct vnc_xcb *xcb = vnc_xcb();
    xcb_connection_t *c = surface->connection;
    *out = (struct vnc_surface_look){0};
    xcb_get_geometry_cookie_t asked_size = xcb->xcb_get_geometry(c, surface->window);
    xcb_get_window_attributes_cookie_t asked = xcb->xcb_get_window_attributes(c, surface->window);
    xcb_generic_error_t *no_size = NULL, *error = NULL;
    xcb_get_geometry_reply_t *size = xcb->xcb_get_geometry_reply(c, asked_size, &no_size);
    xcb_get_window_attributes_reply_t *attributes =
        xcb->xcb_get_window_attributes_reply(c, asked, &error);
    VkResult result = VK_ERROR_SURFACE_LOST_KHR;
    if (size && attributes) {
        out->extent = (VkExtent2D){size->width, size->height};
        judge_visual(xcb, c, attributes->visual, out);
        result = VK_SUCCESS;
    }
    free(size);
    free(attributes);
    free(no_size);
    free(error);
    return result;
}

/* ---- memory shared with the display server ---- */

/* Descriptors pass over Unix sockets only; on any other connection trying would break it. */
static bool can_pass_descriptors(const struct vnc_xcb *xcb, xcb_connection_t *c)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof(peer);
    if (getpeername(xcb->xcb_get_file_descriptor(c), (struct sockaddr *)&peer, &len))
        return false;
    return peer.ss_family == AF_UNIX;
}

static bool server_takes_descriptors(const struct vnc_xcb *xcb, xcb_connection_t *c)
{
    bool wanted;
    hw_env_bool("VENUS_PRESENT_SHM", true, &wanted);
    if (!wanted || !xcb->xcb_shm_id || !can_pass_descriptors(xcb, c))
        return false;
    const xcb_query_extension_reply_t *extension = xcb->xcb_get_extension_data(c, xcb->xcb_shm_id);
    if (!extension || !extension->present)
        return false;
    xcb_shm_query_version_reply_t *version =
        xcb->xcb_shm_query_version_reply(c, xcb->xcb_shm_query_version(c), NULL);
    bool takes = version && (version->major_version > 1 || version->minor_version >= 2);
    free(version);
    return takes;
}

static bool succeeded(const struct x11_canvas *canvas, xcb_void_cookie_t cookie)
{
    xcb_generic_error_t *error = canvas->xcb->xcb_request_check(canvas->c, cookie);
    bool ok = !error && !canvas->xcb->xcb_connection_has_error(canvas->c);
    free(error);
    return ok;
}

/* Maps the picture from memory that the server has too; false: it cannot be shared. */
static bool share_picture(struct x11_canvas *canvas)
{
    if (!server_takes_descriptors(canvas->xcb, canvas->c))
        return false;
    int fd = memfd_create("hawser-picture", MFD_CLOEXEC);
    if (fd < 0)
        return false;
    void *pixels = MAP_FAILED;
    if (ftruncate(fd, (off_t)canvas->bytes) == 0)
        pixels = mmap(NULL, canvas->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pixels == MAP_FAILED) {
        close(fd);
        return false;
    }
    xcb_shm_seg_t segment = canvas->xcb->xcb_generate_id(canvas->c);
    /* Takes the descriptor. */
    if (!succeeded(canvas, canvas->xcb->xcb_shm_attach_fd_checked(canvas->c, segment, fd, true))) {
        munmap(pixels, canvas->bytes);
        return false;
    }
    canvas->segment = segment;
    canvas->canvas.picture.pixels = pixels;
    return true;
}

static bool own_picture(struct x11_canvas *canvas)
{
    hw_info(HW_CAT_VULKAN, "pictures go through the X connection: no memory to share with it");
    canvas->canvas.picture.pixels = calloc(1, canvas->bytes);
    canvas->rows = malloc(PUT_BYTES_MAX);
    return canvas->canvas.picture.pixels && canvas->rows;
}

/* ---- showing ---- */

static void forget_reply(const struct x11_canvas *canvas, xcb_void_cookie_t cookie)
{
    canvas->xcb->xcb_discard_reply(canvas->c, cookie.sequence);
}

static void put_shared(struct x11_canvas *canvas, const struct vnc_rect *r)
{
    const struct vnc_picture *p = &canvas->canvas.picture;
    forget_reply(canvas, canvas->xcb->xcb_shm_put_image_checked(
                             canvas->c, canvas->pixmap, canvas->gc, (uint16_t)p->width,
                             (uint16_t)p->height, (uint16_t)r->x, (uint16_t)r->y,
                             (uint16_t)r->width, (uint16_t)r->height, (int16_t)r->x, (int16_t)r->y,
                             canvas->depth, XCB_IMAGE_FORMAT_Z_PIXMAP, false, canvas->segment, 0));
}

static uint32_t rows_of_a_put(const struct x11_canvas *canvas, size_t row_bytes)
{
    size_t most = (size_t)canvas->xcb->xcb_get_maximum_request_length(canvas->c) * 4;
    most = most > PUT_BYTES_MAX + PUT_HEAD_BYTES ? PUT_BYTES_MAX : most - PUT_HEAD_BYTES;
    return (uint32_t)(most / row_bytes);
}

static void put_rows(struct x11_canvas *canvas, const struct vnc_rect *r)
{
    const struct vnc_picture *p = &canvas->canvas.picture;
    size_t bytes = (size_t)r->width * VNC_PIXEL_BYTES;
    for (uint32_t i = 0; i < r->height; i++) {
        size_t at = ((size_t)(r->y + i) * p->width + r->x) * VNC_PIXEL_BYTES;
        memcpy(canvas->rows + i * bytes, p->pixels + at, bytes);
    }
    forget_reply(canvas, canvas->xcb->xcb_put_image_checked(
                             canvas->c, XCB_IMAGE_FORMAT_Z_PIXMAP, canvas->pixmap, canvas->gc,
                             (uint16_t)r->width, (uint16_t)r->height, (int16_t)r->x, (int16_t)r->y,
                             0, canvas->depth, (uint32_t)(r->height * bytes), canvas->rows));
}

static void put_through(struct x11_canvas *canvas, const struct vnc_rect *r)
{
    uint32_t most = rows_of_a_put(canvas, (size_t)r->width * VNC_PIXEL_BYTES);
    assert(most > 0);
    for (uint32_t done = 0; done < r->height; done += most) {
        uint32_t rows = r->height - done < most ? r->height - done : most;
        put_rows(canvas, &(struct vnc_rect){r->x, r->y + done, r->width, rows});
    }
}

static VkResult x11_show(struct vnc_canvas *base, const struct vnc_rects *rects)
{
    struct x11_canvas *canvas = CONTAINER_OF(base, struct x11_canvas, canvas);
    const struct vnc_xcb *xcb = canvas->xcb;
    const struct vnc_picture *p = &base->picture;
    if (base->paced) {
        if (!canvas->pace)
            canvas->pace = vnc_pace_create(xcb, canvas->c, canvas->window);
        (void)vnc_pace_wait(canvas->pace);
    }
    for (uint32_t i = 0; i < rects->count; i++) {
        if (canvas->segment)
            put_shared(canvas, &rects->items[i]);
        else
            put_through(canvas, &rects->items[i]);
    }
    forget_reply(canvas,
                 xcb->xcb_copy_area_checked(canvas->c, canvas->pixmap, canvas->window, canvas->gc,
                                            0, 0, 0, 0, (uint16_t)p->width, (uint16_t)p->height));
    /* Its answer says that the server has read the picture, and what became of the window. */
    xcb_generic_error_t *error = NULL;
    xcb_get_geometry_reply_t *size = xcb->xcb_get_geometry_reply(
        canvas->c, xcb->xcb_get_geometry(canvas->c, canvas->window), &error);
    VkResult result = VK_ERROR_SURFACE_LOST_KHR;
    if (size) /* of another size: as Mesa has it, so that programs make a new swapchain */
        result = size->width == p->width && size->height == p->height ? VK_SUCCESS
                                                                      : VK_ERROR_OUT_OF_DATE_KHR;
    free(size);
    free(error);
    return result;
}

/* ---- life of a canvas ---- */

static void x11_canvas_destroy(struct vnc_canvas *base)
{
    struct x11_canvas *canvas = CONTAINER_OF(base, struct x11_canvas, canvas);
    const struct vnc_xcb *xcb = canvas->xcb;
    vnc_pace_destroy(canvas->pace);
    if (canvas->gc)
        forget_reply(canvas, xcb->xcb_free_gc_checked(canvas->c, canvas->gc));
    if (canvas->pixmap)
        forget_reply(canvas, xcb->xcb_free_pixmap_checked(canvas->c, canvas->pixmap));
    if (canvas->segment) {
        forget_reply(canvas, xcb->xcb_shm_detach_checked(canvas->c, canvas->segment));
        munmap(base->picture.pixels, canvas->bytes);
    } else {
        free(base->picture.pixels);
    }
    xcb->xcb_flush(canvas->c);
    free(canvas->rows);
    free(canvas);
}

static const struct vnc_canvas_ops canvas_ops = {.show = x11_show, .destroy = x11_canvas_destroy};

/* The window is gone when they cannot be made. */
static bool make_pixmap(struct x11_canvas *canvas)
{
    const struct vnc_xcb *xcb = canvas->xcb;
    xcb_get_geometry_reply_t *size = xcb->xcb_get_geometry_reply(
        canvas->c, xcb->xcb_get_geometry(canvas->c, canvas->window), NULL);
    if (!size)
        return false;
    canvas->depth = size->depth;
    free(size);
    xcb_pixmap_t pixmap = xcb->xcb_generate_id(canvas->c);
    xcb_gcontext_t gc = xcb->xcb_generate_id(canvas->c);
    xcb_void_cookie_t made = xcb->xcb_create_pixmap_checked(
        canvas->c, canvas->depth, pixmap, canvas->window, (uint16_t)canvas->canvas.picture.width,
        (uint16_t)canvas->canvas.picture.height);
    /* Without events for each copy, which the program would have to skip. */
    const uint32_t exposures = false;
    xcb_void_cookie_t made_gc = xcb->xcb_create_gc_checked(canvas->c, gc, canvas->window,
                                                           XCB_GC_GRAPHICS_EXPOSURES, &exposures);
    if (succeeded(canvas, made))
        canvas->pixmap = pixmap;
    if (succeeded(canvas, made_gc))
        canvas->gc = gc;
    return canvas->pixmap && canvas->gc;
}

static VkResult x11_canvas(const struct vnc_surface *surface, const VkSwapchainCreateInfoKHR *info,
                           struct vnc_canvas **out)
{
    VkExtent2D extent = info->imageExtent;
    if (extent.width > EXTENT_MAX || extent.height > EXTENT_MAX)
        return VK_ERROR_INITIALIZATION_FAILED;
    struct x11_canvas *canvas = calloc(1, sizeof(*canvas));
    if (!canvas)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    canvas->canvas.ops = &canvas_ops;
    canvas->canvas.picture.width = extent.width;
    canvas->canvas.picture.height = extent.height;
    canvas->xcb = vnc_xcb();
    canvas->c = surface->connection;
    canvas->window = surface->window;
    canvas->bytes = (size_t)extent.width * extent.height * VNC_PIXEL_BYTES;
    VkResult result = VK_SUCCESS;
    if (!make_pixmap(canvas))
        result = VK_ERROR_SURFACE_LOST_KHR;
    else if (!share_picture(canvas) && !own_picture(canvas))
        result = VK_ERROR_OUT_OF_HOST_MEMORY;
    if (result != VK_SUCCESS)
        x11_canvas_destroy(&canvas->canvas);
    else
        *out = &canvas->canvas;
    return result;
}

static const struct vnc_surface_ops surface_ops = {.look = x11_look, .canvas = x11_canvas};

/* ---- entry points ---- */

static VkResult create_surface(xcb_connection_t *c, xcb_window_t window, VkSurfaceKHR *out)
{
    if (!vnc_xcb() || !c)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    struct vnc_surface *surface = calloc(1, sizeof(*surface));
    if (!surface)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    surface->object.type = VK_OBJECT_TYPE_SURFACE_KHR;
    surface->ops = &surface_ops;
    surface->connection = c;
    surface->window = window;
    *out = VNC_HANDLE(VkSurfaceKHR, surface);
    return VK_SUCCESS;
}

static xcb_connection_t *connection_of(Display *display)
{
    const struct vnc_xcb *xcb = vnc_xcb();
    return xcb && xcb->of_display ? xcb->of_display(display) : NULL;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_xcb_surface(VkInstance instance,
                                                         const VkXcbSurfaceCreateInfoKHR *info,
                                                         const VkAllocationCallbacks *allocator,
                                                         VkSurfaceKHR *out)
{
    (void)instance, (void)allocator;
    return create_surface(info->connection, info->window, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_xlib_surface(VkInstance instance,
                                                          const VkXlibSurfaceCreateInfoKHR *info,
                                                          const VkAllocationCallbacks *allocator,
                                                          VkSurfaceKHR *out)
{
    (void)instance, (void)allocator;
    return create_surface(connection_of(info->dpy), (xcb_window_t)info->window, out);
}

static VKAPI_ATTR VkBool32 VKAPI_CALL get_xcb_support(VkPhysicalDevice device, uint32_t family,
                                                      xcb_connection_t *c, xcb_visualid_t visual)
{
    return vnc_surface_family_presents(device, family) && visual_is_presentable(c, visual);
}

static VKAPI_ATTR VkBool32 VKAPI_CALL get_xlib_support(VkPhysicalDevice device, uint32_t family,
                                                       Display *display, VisualID visual)
{
    return get_xcb_support(device, family, connection_of(display), (xcb_visualid_t)visual);
}

const struct vnc_entry vnc_entries_wsi_x11[] = {
    VNC_ENTRY(vkCreateXcbSurfaceKHR, create_xcb_surface),
    VNC_ENTRY(vkCreateXlibSurfaceKHR, create_xlib_surface),
    VNC_ENTRY(vkGetPhysicalDeviceXcbPresentationSupportKHR, get_xcb_support),
    VNC_ENTRY(vkGetPhysicalDeviceXlibPresentationSupportKHR, get_xlib_support),
    {NULL, NULL},
};
