/* Opening libwayland-client; see libwayland.h. */
#include "venus/client/present/libwayland.h"

#include "base/log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

static struct vnc_wayland table;
static bool loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define LIBRARY "libwayland-client.so.0"
#define SYMBOL(name)                                                                               \
    {                                                                                              \
#name, (void **)&table.name                                                                \
    }

static void open_library(void)
{
    static const struct {
        const char *name;
        void **place;
    } symbols[] = {
        SYMBOL(wl_display_create_queue),  SYMBOL(wl_display_dispatch_queue_pending),
        SYMBOL(wl_display_flush),         SYMBOL(wl_display_get_error),
        SYMBOL(wl_display_get_fd),        SYMBOL(wl_display_prepare_read_queue),
        SYMBOL(wl_display_read_events),   SYMBOL(wl_display_roundtrip_queue),
        SYMBOL(wl_display_cancel_read),   SYMBOL(wl_event_queue_destroy),
        SYMBOL(wl_proxy_add_listener),    SYMBOL(wl_proxy_create_wrapper),
        SYMBOL(wl_proxy_destroy),         SYMBOL(wl_proxy_get_version),
        SYMBOL(wl_proxy_marshal_flags),   SYMBOL(wl_proxy_set_queue),
        SYMBOL(wl_proxy_wrapper_destroy), SYMBOL(wl_buffer_interface),
        SYMBOL(wl_callback_interface),    SYMBOL(wl_registry_interface),
        SYMBOL(wl_shm_interface),         SYMBOL(wl_shm_pool_interface),
    };
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        hw_warn(HW_CAT_VULKAN, "windows cannot be shown: %s", dlerror());
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
        *symbols[i].place = dlsym(handle, symbols[i].name);
        if (!*symbols[i].place) {
            hw_warn(HW_CAT_VULKAN, "windows cannot be shown: " LIBRARY " has no %s; 1.20 is needed",
                    symbols[i].name);
            return;
        }
    }
    loaded = true;
}

const struct vnc_wayland *vnc_wayland(void)
{
    pthread_once(&once, open_library);
    return loaded ? &table : NULL;
}
