/* Opening libxcb; see xcb.h. */
#include "venus/client/present/xcb.h"

#include "base/log.h"

#include <dlfcn.h>
#include <pthread.h>

static struct vnc_xcb table;
static bool loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* All or nothing. */
static bool load(const char *library, const char *const *names, void **const *places, size_t count)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        hw_info(HW_CAT_VULKAN, "%s", dlerror());
        return false;
    }
    bool complete = true;
    for (size_t i = 0; complete && i < count; i++) {
        *places[i] = dlsym(handle, names[i]);
        complete = *places[i] != NULL;
        if (!complete)
            hw_info(HW_CAT_VULKAN, "%s has no %s", library, names[i]);
    }
    for (size_t i = 0; !complete && i < count; i++)
        *places[i] = NULL;
    return complete;
}

#define NAME(name) #name,
#define PLACE(name) (void **)&table.name,

static void open_all(void)
{
    static const char *const names[] = {VNC_XCB_FUNCTIONS(NAME)};
    static void **const places[] = {VNC_XCB_FUNCTIONS(PLACE)};
    static const char *const shm_names[] = {VNC_XCB_SHM_FUNCTIONS(NAME)};
    static void **const shm_places[] = {VNC_XCB_SHM_FUNCTIONS(PLACE)};
    static const char *const display_name = "XGetXCBConnection";
    static void **const display_place = (void **)&table.of_display;
    loaded = load("libxcb.so.1", names, places, ARRAY_LEN(names));
    if (!loaded) {
        hw_warn(HW_CAT_VULKAN, "windows cannot be shown: libxcb.so.1 cannot be used");
        return;
    }
    (void)load("libxcb-shm.so.0", shm_names, shm_places, ARRAY_LEN(shm_names));
    (void)load("libX11-xcb.so.1", &display_name, &display_place, 1);
}

const struct vnc_xcb *vnc_xcb(void)
{
    pthread_once(&once, open_all);
    return loaded ? &table : NULL;
}
