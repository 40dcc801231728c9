/* A window whose compositor reads slowly: it has nothing to say before it has all of a picture. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vulkan/vulkan.h>
#include <vulkan/vulkan_wayland.h>

#include "venus/client/present/libwayland.h"
#include "venus/client/present/surface.h"
#include "venus/client/present/wsi.h"

enum {
    COMMIT_BYTES = 4 << 20, /* more than a socket holds */
    BUFFERS = 4,
    SHOWS = 12,
    SIZE = 16,
};

/* Objects of the protocol: only where they lie matters. */
enum { DISPLAY, REGISTRY, SHM, POOL, SURFACE, FRAME, QUEUE, BUFFER, OBJECTS = BUFFER + BUFFERS };
static char objects[OBJECTS];

#define OBJECT(number) ((void *)&objects[number])

typedef void event_fn(void);

static struct {
    int ends[2];   /* the program's, the compositor's */
    size_t unsent; /* of what was requested */
    event_fn **registry_events, **buffer_events;
    void *canvas, *buffers[BUFFERS];
    int made, attached; /* buffers */
    int committed[SHOWS], commits, released;
    int news; /* commits that the compositor has */
} wl;

/* ---- the library, over a socket ---- */

static struct wl_proxy *marshal(struct wl_proxy *proxy, uint32_t request,
                                const struct wl_interface *made, uint32_t version, uint32_t flags,
                                ...)
{
    (void)made, (void)version, (void)flags;
    char *object = (char *)proxy;
    if (object == OBJECT(SURFACE) && request == VNC_WL_SURFACE_ATTACH) {
        va_list args;
        va_start(args, flags);
        wl.attached = (int)(va_arg(args, char *) - (char *)OBJECT(BUFFER));
        va_end(args);
    } else if (object == OBJECT(SURFACE) && request == VNC_WL_SURFACE_COMMIT) {
        wl.unsent += COMMIT_BYTES;
        wl.committed[wl.commits++] = wl.attached;
    } else if (object == OBJECT(SURFACE) && request == VNC_WL_SURFACE_FRAME) {
        return OBJECT(FRAME);
    } else if (object == OBJECT(POOL) && request == VNC_WL_POOL_CREATE_BUFFER) {
        return OBJECT(BUFFER + wl.made++);
    } else if (object == OBJECT(DISPLAY) || object == OBJECT(REGISTRY) || object == OBJECT(SHM)) {
        return (struct wl_proxy *)(object + 1); /* what each makes is the next */
    }
    return NULL;
}

static int flush(struct wl_display *display)
{
    static const char bytes[64 << 10];
    (void)display;
    while (wl.unsent) {
        size_t len = wl.unsent < sizeof(bytes) ? wl.unsent : sizeof(bytes);
        ssize_t sent = send(wl.ends[0], bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0)
            return -1;
        wl.unsent -= (size_t)sent;
    }
    return 0;
}

static int read_events(struct wl_display *display)
{
    char bytes[SHOWS];
    (void)display;
    ssize_t got = recv(wl.ends[0], bytes, sizeof(bytes), MSG_DONTWAIT);
    wl.news += got > 0 ? (int)got : 0;
    return 0;
}

/* A picture releases the one before it. */
static int dispatch(struct wl_display *display, struct wl_event_queue *queue)
{
    (void)display, (void)queue;
    while (wl.released + 1 < wl.news) {
        int buffer = wl.committed[wl.released++];
        ((void (*)(void *, struct wl_proxy *))wl.buffer_events[0])(wl.buffers[buffer],
                                                                   OBJECT(BUFFER + buffer));
    }
    return 0;
}

static int add_listener(struct wl_proxy *proxy, event_fn **functions, void *data)
{
    char *object = (char *)proxy;
    if (object == OBJECT(REGISTRY)) {
        wl.registry_events = functions;
        wl.canvas = data;
    } else if (object >= (char *)OBJECT(BUFFER)) {
        wl.buffer_events = functions;
        wl.buffers[object - (char *)OBJECT(BUFFER)] = data;
    }
    return 0;
}

static int roundtrip(struct wl_display *display, struct wl_event_queue *queue)
{
    (void)display, (void)queue;
    ((void (*)(void *, struct wl_proxy *, uint32_t, const char *, uint32_t))wl.registry_events[0])(
        wl.canvas, OBJECT(REGISTRY), 1, "wl_shm", 1);
    return 0;
}

static struct wl_event_queue *create_queue(struct wl_display *display)
{
    (void)display;
    return OBJECT(QUEUE);
}

static int no_error(struct wl_display *display)
{
    (void)display;
    return 0;
}

static int get_fd(struct wl_display *display)
{
    (void)display;
    return wl.ends[0];
}

static int prepare_read(struct wl_display *display, struct wl_event_queue *queue)
{
    (void)display, (void)queue;
    return 0;
}

static void *wrapper(void *proxy)
{
    return proxy;
}

static uint32_t version_of(struct wl_proxy *proxy)
{
    (void)proxy;
    return VNC_WL_SURFACE_DAMAGE_BUFFER_SINCE;
}

static void set_queue(struct wl_proxy *proxy, struct wl_event_queue *queue)
{
    (void)proxy, (void)queue;
}

static void forget_display(struct wl_display *display)
{
    (void)display;
}

static void forget_queue(struct wl_event_queue *queue)
{
    (void)queue;
}

static void forget_proxy(struct wl_proxy *proxy)
{
    (void)proxy;
}

static void forget_wrapper(void *proxy)
{
    (void)proxy;
}

const struct vnc_wayland *__wrap_vnc_wayland(void);

const struct vnc_wayland *__wrap_vnc_wayland(void)
{
    static const struct vnc_wayland table = {
        .wl_display_create_queue = create_queue,
        .wl_display_dispatch_queue_pending = dispatch,
        .wl_display_flush = flush,
        .wl_display_get_error = no_error,
        .wl_display_get_fd = get_fd,
        .wl_display_prepare_read_queue = prepare_read,
        .wl_display_read_events = read_events,
        .wl_display_roundtrip_queue = roundtrip,
        .wl_display_cancel_read = forget_display,
        .wl_event_queue_destroy = forget_queue,
        .wl_proxy_add_listener = add_listener,
        .wl_proxy_create_wrapper = wrapper,
        .wl_proxy_destroy = forget_proxy,
        .wl_proxy_get_version = version_of,
        .wl_proxy_marshal_flags = marshal,
        .wl_proxy_set_queue = set_queue,
        .wl_proxy_wrapper_destroy = forget_wrapper,
    };
    return &table;
}

/* ---- the compositor ---- */

static void *compose(void *arg)
{
    static char bytes[64 << 10];
    size_t have = 0;
    ssize_t got;
    (void)arg;
    while ((got = recv(wl.ends[1], bytes, sizeof(bytes), 0)) > 0) {
        for (have += (size_t)got; have >= COMMIT_BYTES; have -= COMMIT_BYTES)
            (void)!send(wl.ends[1], "", 1, MSG_NOSIGNAL);
    }
    return NULL;
}

/* ---- the test ---- */

static struct vnc_surface *make_surface(void)
{
    const struct vnc_entry *entry = vnc_entries_wsi_wayland;
    while (strcmp(entry->name, "vkCreateWaylandSurfaceKHR") != 0)
        entry++;
    const VkWaylandSurfaceCreateInfoKHR info = {
        .sType = VK_STRUCTURE_TYPE_WAYLAND_SURFACE_CREATE_INFO_KHR,
        .display = OBJECT(DISPLAY),
        .surface = OBJECT(SURFACE)};
    VkSurfaceKHR surface;
    assert_int_equal(
        ((PFN_vkCreateWaylandSurfaceKHR)entry->function)(VK_NULL_HANDLE, &info, NULL, &surface),
        VK_SUCCESS);
    return VNC_OBJECT(vnc_surface, surface);
}

static void what_a_slow_compositor_lacks_is_sent(void **state)
{
    (void)state;
    pthread_t compositor;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, wl.ends), 0);
    assert_int_equal(pthread_create(&compositor, NULL, compose, NULL), 0);
    struct vnc_surface *surface = make_surface();
    const VkSwapchainCreateInfoKHR info = {.sType = VK_STRUCTURE_TYPE_SWAPCHAIN_CREATE_INFO_KHR,
                                           .imageExtent = {SIZE, SIZE},
                                           .compositeAlpha = VK_COMPOSITE_ALPHA_OPAQUE_BIT_KHR};
    struct vnc_canvas *canvas;
    assert_int_equal(surface->ops->canvas(surface, &info, &canvas), VK_SUCCESS);
    assert_int_equal(wl.made, BUFFERS);
    const struct vnc_rects none = {0};
    for (int i = 0; i < SHOWS; i++)
        assert_int_equal(canvas->ops->show(canvas, &none), VK_SUCCESS);
    assert_int_equal(wl.commits, SHOWS);
    canvas->ops->destroy(canvas);
    shutdown(wl.ends[0], SHUT_RDWR);
    pthread_join(compositor, NULL);
    close(wl.ends[0]);
    close(wl.ends[1]);
    free(surface);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_a_slow_compositor_lacks_is_sent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
