#include "serve/devices.h"

#include "base/clock.h"
#include "base/process/child.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#define FIND_TIMEOUT_NS (20 * HW_SEC) /* a GPU wakes up in seconds; a hung driver never answers */

struct vk {
    PFN_vkGetInstanceProcAddr get;
    VkInstance instance;
    PFN_vkDestroyInstance destroy;
    PFN_vkEnumeratePhysicalDevices enumerate;
    PFN_vkGetPhysicalDeviceProperties properties;
    PFN_vkGetPhysicalDeviceProperties2 properties2; /* NULL with a 1.0 loader */
    PFN_vkGetPhysicalDeviceMemoryProperties memory;
};

const char *serve_device_type_name(uint32_t type)
{
    static const char *const names[] = {"other", "integrated GPU", "discrete GPU", "virtual GPU",
                                        "CPU"};
    return type < ARRAY_LEN(names) ? names[type] : "unknown";
}

/* ---- in the child ---- */

/* Object pointer to function pointer: POSIX guarantees it, C does not; this is its idiom. */
static PFN_vkGetInstanceProcAddr load_entry(void)
{
    PFN_vkGetInstanceProcAddr entry = NULL;
    void *loader = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (loader)
        *(void **)&entry = dlsym(loader, "vkGetInstanceProcAddr");
    return entry;
}

static VkResult open_instance(struct vk *vk)
{
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                             .pApplicationName = "hawser",
                             .apiVersion = VK_API_VERSION_1_0};
    /* Only a loader that has this call knows any version above 1.0. */
    if (vk->get(NULL, "vkEnumerateInstanceVersion"))
        app.apiVersion = VK_API_VERSION_1_3;
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &app};
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)vk->get(NULL, "vkCreateInstance");
    if (!create)
        return VK_ERROR_INITIALIZATION_FAILED;
    VkResult result = create(&info, NULL, &vk->instance);
    if (result != VK_SUCCESS)
        return result;
#define LOAD(member, name) vk->member = (PFN_##name)vk->get(vk->instance, #name)
    LOAD(destroy, vkDestroyInstance);
    LOAD(enumerate, vkEnumeratePhysicalDevices);
    LOAD(properties, vkGetPhysicalDeviceProperties);
    LOAD(properties2, vkGetPhysicalDeviceProperties2);
    LOAD(memory, vkGetPhysicalDeviceMemoryProperties);
#undef LOAD
    return VK_SUCCESS;
}

static void describe_uuid(const struct vk *vk, VkPhysicalDevice handle, struct serve_device *out)
{
    VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
    VkPhysicalDeviceProperties2 chain = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                         .pNext = &id};
    if (out->api_version < VK_API_VERSION_1_1 || !vk->properties2)
        return;
    vk->properties2(handle, &chain);
    memcpy(out->uuid, id.deviceUUID, sizeof(out->uuid));
    out->has_uuid = true;
}

static void describe_driver(const struct vk *vk, VkPhysicalDevice handle, struct serve_device *out)
{
    VkPhysicalDeviceDriverProperties driver = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
    VkPhysicalDeviceProperties2 chain = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                         .pNext = &driver};
    if (out->api_version < VK_API_VERSION_1_2 || !vk->properties2)
        return;
    vk->properties2(handle, &chain);
    snprintf(out->driver, sizeof(out->driver), "%.100s %.150s", driver.driverName,
             driver.driverInfo);
}

static void describe(const struct vk *vk, VkPhysicalDevice handle, struct serve_device *out)
{
    VkPhysicalDeviceProperties p;
    vk->properties(handle, &p);
    snprintf(out->name, sizeof(out->name), "%s", p.deviceName);
    out->type = (uint32_t)p.deviceType;
    out->api_version = p.apiVersion;
    out->vendor_id = p.vendorID;
    out->device_id = p.deviceID;
    describe_driver(vk, handle, out);
    describe_uuid(vk, handle, out);

    VkPhysicalDeviceMemoryProperties m;
    vk->memory(handle, &m);
    for (uint32_t i = 0; i < m.memoryHeapCount && i < SERVE_HEAPS_MAX; i++) {
        out->heaps[i].bytes = m.memoryHeaps[i].size;
        out->heaps[i].device_local = m.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
        out->heap_count = i + 1;
    }
}

static void list_devices(struct serve_devices *out)
{
    struct vk vk = {.get = load_entry()};
    if (!vk.get) {
        snprintf(out->note, sizeof(out->note), "no Vulkan loader (libvulkan.so.1) on this machine");
        return;
    }
    VkResult result = open_instance(&vk);
    if (result != VK_SUCCESS) {
        snprintf(out->note, sizeof(out->note), "no Vulkan driver starts (VkResult %d)", result);
        return;
    }
    VkPhysicalDevice handles[SERVE_DEVICES_MAX];
    uint32_t count = SERVE_DEVICES_MAX;
    result = vk.enumerate(vk.instance, &count, handles);
    if (result < 0 || count == 0)
        snprintf(out->note, sizeof(out->note), "Vulkan finds no device (VkResult %d)", result);
    else
        out->count = count;
    for (uint32_t i = 0; i < out->count; i++)
        describe(&vk, handles[i], &out->items[i]);
    for (uint32_t i = 0; i < out->count; i++)
        out->items[i].index = i;
    vk.destroy(vk.instance, NULL);
}

static void say_devices(int fd, void *user)
{
    (void)user;
    struct serve_devices *found = calloc(1, sizeof(*found));
    if (!found)
        return;
    list_devices(found);
    for (size_t at = 0; at < sizeof(*found);) {
        ssize_t n = write(fd, (const char *)found + at, sizeof(*found) - at);
        if (n < 0 && errno != EINTR)
            return;
        at += n > 0 ? (size_t)n : 0;
    }
}

/* ---- in the parent ---- */

static void bound(struct serve_devices *out)
{
    if (out->count > SERVE_DEVICES_MAX)
        out->count = SERVE_DEVICES_MAX;
    out->note[SERVE_DEVICE_TEXT - 1] = '\0';
    for (uint32_t i = 0; i < out->count; i++) {
        struct serve_device *d = &out->items[i];
        d->name[SERVE_DEVICE_TEXT - 1] = d->driver[SERVE_DEVICE_TEXT - 1] = '\0';
        if (d->heap_count > SERVE_HEAPS_MAX)
            d->heap_count = SERVE_HEAPS_MAX;
    }
}

static void fail(struct serve_devices *out, const char *note)
{
    memset(out, 0, sizeof(*out));
    snprintf(out->note, sizeof(out->note), "%s", note);
}

void serve_devices_find(struct serve_devices *out)
{
    ssize_t n = hw_child_try(say_devices, NULL, FIND_TIMEOUT_NS, out, sizeof(*out));
    if (n == (ssize_t)sizeof(*out))
        bound(out);
    else if (n == -ETIMEDOUT)
        fail(out, "a Vulkan driver did not answer in 20 s; VK_DRIVER_FILES can leave it out");
    else if (n >= 0 || n == -EFAULT)
        fail(out, "a Vulkan driver crashed while it was loaded; VK_DRIVER_FILES can leave it out");
    else
        fail(out, "cannot look for devices: no pipe or no process for it");
}

/* ---- choosing ---- */

static bool is_wanted(const struct serve_device *d, const char *wanted)
{
    if (wanted[strspn(wanted, "0123456789")] == '\0')
        return strtoul(wanted, NULL, 10) == d->index;
    return strcasestr(d->name, wanted) != NULL;
}

static bool has_index(const struct serve_devices *all, uint32_t index)
{
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->items[i].index == index)
            return true;
    }
    return false;
}

static int allow(const struct serve_devices *chosen, char why[SERVE_DEVICE_TEXT])
{
    uint8_t uuids[SERVE_DEVICES_MAX][HW_UUID_BYTES];
    for (uint32_t i = 0; i < chosen->count; i++) {
        const struct serve_device *d = &chosen->items[i];
        if (!d->has_uuid) {
            snprintf(why, SERVE_DEVICE_TEXT, "%.180s has no UUID: its driver is of Vulkan 1.0",
                     d->name);
            return -ENODEV;
        }
        memcpy(uuids[i], d->uuid, HW_UUID_BYTES);
    }
    int rc = hw_visible_choose(uuids, chosen->count);
    if (rc)
        snprintf(why, SERVE_DEVICE_TEXT, "%s", strerror(-rc));
    return rc;
}

int serve_devices_choose(struct serve_devices *devices, char *const *wanted, size_t count,
                         char why[SERVE_DEVICE_TEXT])
{
    struct serve_devices *chosen = calloc(1, sizeof(*chosen));
    if (!chosen) {
        snprintf(why, SERVE_DEVICE_TEXT, "out of memory");
        return -ENOMEM;
    }
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++) {
        bool found = false;
        for (uint32_t k = 0; k < devices->count; k++) {
            const struct serve_device *d = &devices->items[k];
            found |= is_wanted(d, wanted[i]);
            if (is_wanted(d, wanted[i]) && !has_index(chosen, d->index))
                chosen->items[chosen->count++] = *d;
        }
        if (!found && devices->count == 0)
            snprintf(why, SERVE_DEVICE_TEXT, "there is no device: %.200s", devices->note);
        else if (!found)
            snprintf(why, SERVE_DEVICE_TEXT,
                     "there is no device '%.60s'; there are 0 to %u, which serve prints without "
                     "--device",
                     wanted[i], devices->count - 1);
        rc = found ? 0 : -ENODEV;
    }
    if (rc == 0)
        rc = allow(chosen, why);
    if (rc == 0)
        *devices = *chosen;
    free(chosen);
    return rc;
}
