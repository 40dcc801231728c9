/* Windows of Wayland; see surface.h.
 *
 * Pictures go through memory shared with the compositor (wl_shm).  The compositor reads a buffer
 * until it releases it, so a canvas has several, each with a list of what changed since it was
 * filled last.  A paced show waits until the compositor wants the next picture (wl_surface.frame).
 *
 * The connection and the surface are the program's.  Events of our objects come to a queue of our
 * own, so that the program's dispatching and ours do not meet. */
#include "venus/client/present/libwayland.h"
#include "venus/client/present/surface.h"
#include "venus/client/present/wsi.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vulkan/vulkan_wayland.h>

enum {
    EXTENT_MAX = 32767, /* a picture of 4 GiB; the protocol has signed words */
    BUFFERS = 4,        /* one shown, one on its way there, one read, one for us */
    /* The compositor never asks a hidden window for its next picture, but the program goes on. */
    PACE_MS = 100,
};

struct shm_buffer {
    struct wl_proxy *proxy;
    bool busy; /* the compositor reads it */
    uint8_t *pixels;
    bool stale;             /* all of it is */
    struct vnc_rects older; /* else what was not yet copied to it */
};

struct wayland_canvas {
    struct vnc_canvas canvas;
    const struct vnc_wayland *lib;
    struct wl_display *display;
    struct wl_event_queue *queue;
    struct wl_proxy *surface; /* the program's, as seen from our queue */
    struct wl_proxy *shm;
    struct wl_proxy *frame; /* asked for and not answered; NULL: none is */
    size_t bytes;           /* of a picture */
    uint8_t *memory;        /* of all buffers */
    struct shm_buffer buffers[BUFFERS];
};

/* ---- events ---- */

/* The first functions of a listener, as the library calls them. */
typedef void event_fn(void);

static void on_global(void *data, struct wl_proxy *registry, uint32_t name, const char *interface,
                      uint32_t version)
{
    struct wayland_canvas *canvas = data;
    const uint32_t wanted = 1;
    (void)version;
    if (!canvas->shm && strcmp(interface, "wl_shm") == 0)
        canvas->shm = canvas->lib->wl_proxy_marshal_flags(registry, VNC_WL_REGISTRY_BIND,
                                                          canvas->lib->wl_shm_interface, wanted, 0,
                                                          name, interface, wanted, NULL);
}

static void on_global_remove(void *data, struct wl_proxy *registry, uint32_t name)
{
    (void)data, (void)registry, (void)name;
}

static void on_release(void *data, struct wl_proxy *buffer)
{
    struct shm_buffer *released = data;
    (void)buffer;
    released->busy = false;
}

static void on_frame(void *data, struct wl_proxy *callback, uint32_t time)
{
    struct wayland_canvas *canvas = data;
    (void)time;
    canvas->lib->wl_proxy_destroy(callback);
    canvas->frame = NULL;
}

static event_fn *registry_events[] = {(event_fn *)on_global, (event_fn *)on_global_remove};
static event_fn *buffer_events[] = {(event_fn *)on_release};
static event_fn *frame_events[] = {(event_fn *)on_frame};

/* Sends what has gathered, and waits until there is something to read: as poll.  A compositor that
 * reads slowly takes bit by bit, and may have nothing to say before it has all. */
static int send_and_wait(struct wayland_canvas *canvas, int timeout_ms)
{
    const struct vnc_wayland *lib = canvas->lib;
    struct pollfd fd = {.fd = lib->wl_display_get_fd(canvas->display)};
    for (;;) {
        bool rest = lib->wl_display_flush(canvas->display) < 0 && errno == EAGAIN;
        fd.events = rest ? POLLIN | POLLOUT : POLLIN;
        int ready = poll(&fd, 1, timeout_ms);
        if (ready <= 0 || fd.revents != POLLOUT)
            return ready;
    }
}

/* Reads what is there, or waits for it; negative: the connection is broken.  Other threads may read
 * at the same time: whoever does brings everybody's events to their queues. */
static int read_events(struct wayland_canvas *canvas, int timeout_ms)
{
    const struct vnc_wayland *lib = canvas->lib;
    while (lib->wl_display_prepare_read_queue(canvas->display, canvas->queue)) {
        if (lib->wl_display_dispatch_queue_pending(canvas->display, canvas->queue) < 0)
            return -EPIPE;
        timeout_ms = 0; /* there was news */
    }
    int ready = send_and_wait(canvas, timeout_ms);
    if (ready <= 0)
        lib->wl_display_cancel_read(canvas->display);
    else if (lib->wl_display_read_events(canvas->display))
        return -EPIPE;
    int rc = lib->wl_display_dispatch_queue_pending(canvas->display, canvas->queue);
    return rc < 0 || lib->wl_display_get_error(canvas->display) ? -EPIPE : 0;
}

/* ---- buffers ---- */

static struct shm_buffer *find_free(struct wayland_canvas *canvas)
{
    for (int i = 0; i < BUFFERS; i++) {
        if (!canvas->buffers[i].busy)
            return &canvas->buffers[i];
    }
    return NULL;
}

static void note_older(struct shm_buffer *buffer, const struct vnc_rects *rects)
{
    if (buffer->stale || buffer->older.count + rects->count > VNC_RECTS_MAX) {
        buffer->stale = true;
        return;
    }
    memcpy(buffer->older.items + buffer->older.count, rects->items,
           rects->count * sizeof(rects->items[0]));
    buffer->older.count += rects->count;
}

static void copy_rect(const struct vnc_picture *picture, uint8_t *pixels, const struct vnc_rect *r)
{
    for (uint32_t row = r->y; row < r->y + r->height; row++) {
        size_t at = ((size_t)row * picture->width + r->x) * VNC_PIXEL_BYTES;
        memcpy(pixels + at, picture->pixels + at, (size_t)r->width * VNC_PIXEL_BYTES);
    }
}

static void refresh(struct wayland_canvas *canvas, struct shm_buffer *buffer)
{
    const struct vnc_picture *picture = &canvas->canvas.picture;
    if (buffer->stale)
        memcpy(buffer->pixels, picture->pixels, canvas->bytes);
    for (uint32_t i = 0; !buffer->stale && i < buffer->older.count; i++)
        copy_rect(picture, buffer->pixels, &buffer->older.items[i]);
    buffer->stale = false;
    buffer->older.count = 0;
}

/* ---- showing ---- */

static void request(struct wayland_canvas *canvas, uint32_t number, const struct vnc_rect *r)
{
    canvas->lib->wl_proxy_marshal_flags(
        canvas->surface, number, NULL, canvas->lib->wl_proxy_get_version(canvas->surface), 0,
        (int32_t)r->x, (int32_t)r->y, (int32_t)r->width, (int32_t)r->height);
}

/* Old compositors know damage in coordinates of the surface only, whose scale is the program's. */
static void tell_damage(struct wayland_canvas *canvas, const struct vnc_rects *rects)
{
    uint32_t version = canvas->lib->wl_proxy_get_version(canvas->surface);
    if (version < VNC_WL_SURFACE_DAMAGE_BUFFER_SINCE) {
        request(canvas, VNC_WL_SURFACE_DAMAGE, &(struct vnc_rect){0, 0, INT32_MAX, INT32_MAX});
        return;
    }
    for (uint32_t i = 0; i < rects->count; i++)
        request(canvas, VNC_WL_SURFACE_DAMAGE_BUFFER, &rects->items[i]);
}

static void commit(struct wayland_canvas *canvas, struct shm_buffer *buffer,
                   const struct vnc_rects *rects)
{
    const struct vnc_wayland *lib = canvas->lib;
    struct wl_proxy *surface = canvas->surface;
    uint32_t version = lib->wl_proxy_get_version(surface);
    lib->wl_proxy_marshal_flags(surface, VNC_WL_SURFACE_ATTACH, NULL, version, 0, buffer->proxy, 0,
                                0);
    tell_damage(canvas, rects);
    if (!canvas->frame) {
        canvas->frame = lib->wl_proxy_marshal_flags(surface, VNC_WL_SURFACE_FRAME,
                                                    lib->wl_callback_interface, version, 0, NULL);
        if (canvas->frame)
            lib->wl_proxy_add_listener(canvas->frame, frame_events, canvas);
    }
    lib->wl_proxy_marshal_flags(surface, VNC_WL_SURFACE_COMMIT, NULL, version, 0);
    (void)lib->wl_display_flush(canvas->display);
    buffer->busy = true;
}

/* Until the compositor wants the next picture. */
static int pace(struct wayland_canvas *canvas)
{
    uint64_t until = hw_now_ns() + PACE_MS * HW_MS;
    int rc = 0;
    while (rc == 0 && canvas->frame) {
        uint64_t now = hw_now_ns();
        if (now >= until)
            break;
        rc = read_events(canvas, (int)((until - now) / HW_MS) + 1);
    }
    return rc;
}

static VkResult wayland_show(struct vnc_canvas *base, const struct vnc_rects *rects)
{
    struct wayland_canvas *canvas = CONTAINER_OF(base, struct wayland_canvas, canvas);
    int rc = base->paced ? pace(canvas) : read_events(canvas, 0);
    struct shm_buffer *buffer = NULL;
    while (rc == 0 && !(buffer = find_free(canvas)))
        rc = read_events(canvas, -1);
    if (rc)
        return VK_ERROR_SURFACE_LOST_KHR;
    for (int i = 0; i < BUFFERS; i++)
        note_older(&canvas->buffers[i], rects);
    refresh(canvas, buffer);
    commit(canvas, buffer, rects);
    return VK_SUCCESS;
}

/* ---- life of a canvas ---- */

static void wayland_canvas_destroy(struct vnc_canvas *base)
{
    struct wayland_canvas *canvas = CONTAINER_OF(base, struct wayland_canvas, canvas);
    const struct vnc_wayland *lib = canvas->lib;
    for (int i = 0; i < BUFFERS; i++) {
        if (canvas->buffers[i].proxy)
            lib->wl_proxy_marshal_flags(canvas->buffers[i].proxy, VNC_WL_BUFFER_DESTROY, NULL, 1,
                                        VNC_WL_MARSHAL_DESTROY);
    }
    if (canvas->frame)
        lib->wl_proxy_destroy(canvas->frame);
    if (canvas->shm)
        lib->wl_proxy_destroy(canvas->shm);
    if (canvas->surface)
        lib->wl_proxy_wrapper_destroy(canvas->surface);
    if (canvas->queue)
        lib->wl_event_queue_destroy(canvas->queue);
    (void)lib->wl_display_flush(canvas->display);
    if (canvas->memory)
        munmap(canvas->memory, canvas->bytes * BUFFERS);
    free(base->picture.pixels);
    free(canvas);
}

static const struct vnc_canvas_ops canvas_ops = {.show = wayland_show,
                                                 .destroy = wayland_canvas_destroy};

/* What the registry of the compositor has of ours, seen from our queue. */
static bool bind_globals(struct wayland_canvas *canvas)
{
    const struct vnc_wayland *lib = canvas->lib;
    struct wl_proxy *display = lib->wl_proxy_create_wrapper(canvas->display);
    if (!display)
        return false;
    lib->wl_proxy_set_queue(display, canvas->queue);
    struct wl_proxy *registry = lib->wl_proxy_marshal_flags(display, VNC_WL_DISPLAY_GET_REGISTRY,
                                                            lib->wl_registry_interface, 1, 0, NULL);
    lib->wl_proxy_wrapper_destroy(display);
    if (!registry)
        return false;
    lib->wl_proxy_add_listener(registry, registry_events, canvas);
    int rc = lib->wl_display_roundtrip_queue(canvas->display, canvas->queue);
    lib->wl_proxy_destroy(registry);
    return rc >= 0 && canvas->shm;
}

/* One piece of memory for all buffers; the descriptor and the pool are needed no longer then. */
static bool make_buffers(struct wayland_canvas *canvas, uint32_t format)
{
    const struct vnc_wayland *lib = canvas->lib;
    const struct vnc_picture *picture = &canvas->canvas.picture;
    size_t all = canvas->bytes * BUFFERS;
    int fd = all <= INT32_MAX ? memfd_create("hawser-pictures", MFD_CLOEXEC) : -1;
    if (fd < 0)
        return false;
    void *memory = MAP_FAILED;
    if (ftruncate(fd, (off_t)all) == 0)
        memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct wl_proxy *pool = NULL;
    if (memory != MAP_FAILED) {
        canvas->memory = memory;
        pool =
            lib->wl_proxy_marshal_flags(canvas->shm, VNC_WL_SHM_CREATE_POOL,
                                        lib->wl_shm_pool_interface, 1, 0, NULL, fd, (int32_t)all);
    }
    bool made = pool != NULL;
    for (int i = 0; made && i < BUFFERS; i++) {
        struct shm_buffer *buffer = &canvas->buffers[i];
        buffer->pixels = canvas->memory + canvas->bytes * (size_t)i;
        buffer->stale = true;
        buffer->proxy = lib->wl_proxy_marshal_flags(
            pool, VNC_WL_POOL_CREATE_BUFFER, lib->wl_buffer_interface, 1, 0, NULL,
            (int32_t)(canvas->bytes * (size_t)i), (int32_t)picture->width, (int32_t)picture->height,
            (int32_t)(picture->width * VNC_PIXEL_BYTES), format);
        made =
            buffer->proxy && lib->wl_proxy_add_listener(buffer->proxy, buffer_events, buffer) == 0;
    }
    if (pool)
        lib->wl_proxy_marshal_flags(pool, VNC_WL_POOL_DESTROY, NULL, 1, VNC_WL_MARSHAL_DESTROY);
    close(fd);
    return made;
}

static VkResult fill(struct wayland_canvas *canvas, const struct vnc_surface *surface,
                     VkCompositeAlphaFlagBitsKHR alpha)
{
    const struct vnc_wayland *lib = canvas->lib;
    canvas->canvas.picture.pixels = calloc(1, canvas->bytes);
    canvas->queue = lib->wl_display_create_queue(canvas->display);
    canvas->surface = lib->wl_proxy_create_wrapper(surface->native);
    if (!canvas->canvas.picture.pixels || !canvas->queue || !canvas->surface)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    lib->wl_proxy_set_queue(canvas->surface, canvas->queue);
    if (!bind_globals(canvas))
        return VK_ERROR_SURFACE_LOST_KHR;
    bool opaque = alpha == VK_COMPOSITE_ALPHA_OPAQUE_BIT_KHR;
    return make_buffers(canvas, opaque ? VNC_WL_XRGB8888 : VNC_WL_ARGB8888)
               ? VK_SUCCESS
               : VK_ERROR_OUT_OF_HOST_MEMORY;
}

static VkResult wayland_canvas(const struct vnc_surface *surface,
                               const VkSwapchainCreateInfoKHR *info, struct vnc_canvas **out)
{
    VkExtent2D extent = info->imageExtent;
    if (extent.width > EXTENT_MAX || extent.height > EXTENT_MAX)
        return VK_ERROR_INITIALIZATION_FAILED;
    struct wayland_canvas *canvas = calloc(1, sizeof(*canvas));
    if (!canvas)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    canvas->canvas.ops = &canvas_ops;
    canvas->canvas.picture.width = extent.width;
    canvas->canvas.picture.height = extent.height;
    canvas->lib = vnc_wayland();
    canvas->display = surface->connection;
    canvas->bytes = (size_t)extent.width * extent.height * VNC_PIXEL_BYTES;
    VkResult result = fill(canvas, surface, info->compositeAlpha);
    if (result != VK_SUCCESS)
        wayland_canvas_destroy(&canvas->canvas);
    else
        *out = &canvas->canvas;
    return result;
}

/* ---- the surface ---- */

/* A window has the size of what is shown in it. */
static VkResult wayland_look(const struct vnc_surface *surface, struct vnc_surface_look *out)
{
    *out = (struct vnc_surface_look){.presentable = true,
                                     .extent = {UINT32_MAX, UINT32_MAX},
                                     .alpha = true,
                                     .opaque = true,
                                     .composited = true};
    bool broken = vnc_wayland()->wl_display_get_error(surface->connection) != 0;
    return broken ? VK_ERROR_SURFACE_LOST_KHR : VK_SUCCESS;
}

static const struct vnc_surface_ops surface_ops = {.look = wayland_look, .canvas = wayland_canvas};

static VKAPI_ATTR VkResult VKAPI_CALL
create_wayland_surface(VkInstance instance, const VkWaylandSurfaceCreateInfoKHR *info,
                       const VkAllocationCallbacks *allocator, VkSurfaceKHR *out)
{
    (void)instance, (void)allocator;
    struct vnc_surface *surface = vnc_wayland() ? calloc(1, sizeof(*surface)) : NULL;
    if (!surface)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    surface->object.type = VK_OBJECT_TYPE_SURFACE_KHR;
    surface->ops = &surface_ops;
    surface->connection = info->display;
    surface->native = info->surface;
    *out = VNC_HANDLE(VkSurfaceKHR, surface);
    return VK_SUCCESS;
}

static VKAPI_ATTR VkBool32 VKAPI_CALL get_wayland_support(VkPhysicalDevice device, uint32_t family,
                                                          struct wl_display *display)
{
    (void)display;
    return vnc_surface_family_presents(device, family) && vnc_wayland();
}

const struct vnc_entry vnc_entries_wsi_wayland[] = {
    VNC_ENTRY(vkCreateWaylandSurfaceKHR, create_wayland_surface),
    VNC_ENTRY(vkGetPhysicalDeviceWaylandPresentationSupportKHR, get_wayland_support),
    {NULL, NULL},
};
