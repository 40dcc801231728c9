/* The loader, and one instance; see driver.h. */
#include "venus/server/session/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/visible.h"
#include "venus/common/commands.h"
#include "venus/common/physical.h"
#include "venus/common/protocol.h"

static const char validation_layer[] = "VK_LAYER_KHRONOS_validation";

/* The one conversion of a VkResult that failed. */
static int errno_of(VkResult result)
{
    switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
        return -ENOMEM;
    case VK_ERROR_INCOMPATIBLE_DRIVER:
        return -ENODEV;
    case VK_ERROR_LAYER_NOT_PRESENT:
    case VK_ERROR_EXTENSION_NOT_PRESENT:
    case VK_ERROR_FEATURE_NOT_PRESENT:
        return -ENOTSUP;
    default:
        return -EIO;
    }
}

/* Object pointer to function pointer: POSIX guarantees it, C does not; this is its idiom. */
static PFN_vkGetInstanceProcAddr open_loader(char why[VNS_WHY_CHARS])
{
    PFN_vkGetInstanceProcAddr get = NULL;
    void *loader = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (loader)
        *(void **)&get = dlsym(loader, "vkGetInstanceProcAddr");
    if (!get)
        snprintf(why, VNS_WHY_CHARS, "no Vulkan loader (libvulkan.so.1) at the server");
    return get;
}

static uint32_t loader_version(PFN_vkGetInstanceProcAddr get)
{
    uint32_t version = VK_API_VERSION_1_0;
    PFN_vkEnumerateInstanceVersion enumerate =
        (PFN_vkEnumerateInstanceVersion)get(NULL, "vkEnumerateInstanceVersion");
    if (enumerate && enumerate(&version) != VK_SUCCESS)
        version = VK_API_VERSION_1_0;
    return version;
}

/* ---- extensions ---- */

struct names {
    const char **names;
    uint32_t count;
};

/* What the loader and its drivers offer. */
static VkExtensionProperties *loader_extensions(PFN_vkGetInstanceProcAddr get, uint32_t *count)
{
    PFN_vkEnumerateInstanceExtensionProperties enumerate =
        (PFN_vkEnumerateInstanceExtensionProperties)get(NULL,
                                                        "vkEnumerateInstanceExtensionProperties");
    *count = 0;
    if (!enumerate || enumerate(NULL, count, NULL) < 0)
        return NULL;
    VkExtensionProperties *found = calloc(*count + 1, sizeof(*found));
    if (!found || enumerate(NULL, count, found) < 0)
        *count = 0;
    return found;
}

static bool is_named(const struct names *list, const char *name)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (strcmp(list->names[i], name) == 0)
            return true;
    }
    return false;
}

/* Those that the client asked for, that may travel, and that the loader has. */
static int choose_extensions(PFN_vkGetInstanceProcAddr get, const VkInstanceCreateInfo *info,
                             bool validate, struct names *out)
{
    uint32_t count;
    VkExtensionProperties *found = loader_extensions(get, &count);
    *out = (struct names){.names = calloc((size_t)info->enabledExtensionCount + 1, sizeof(char *))};
    if (!found || !out->names) {
        free(found);
        free(out->names);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
        const char *name = info->ppEnabledExtensionNames[i];
        const struct vn_extension_info *known = vn_extension_find(name);
        if (known && known->offered && !known->device && !known->client_only &&
            vn_extension_among(found, count, name) && !is_named(out, name))
            out->names[out->count++] = known->name;
    }
    if (vn_extension_among(found, count, VK_EXT_DEBUG_UTILS_EXTENSION_NAME) &&
        !is_named(out, VK_EXT_DEBUG_UTILS_EXTENSION_NAME) && validate)
        out->names[out->count++] = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    free(found);
    return 0;
}

/* ---- messages ---- */

struct listener {
    vns_message_fn *message;
    void *user;
};

static struct listener listener; /* one instance a process */

static VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                 VkDebugUtilsMessageTypeFlagsEXT types,
                                                 const VkDebugUtilsMessengerCallbackDataEXT *data,
                                                 void *user)
{
    (void)user;
    listener.message(listener.user, severity, types, data->messageIdNumber,
                     data->pMessageIdName ? data->pMessageIdName : "",
                     data->pMessage ? data->pMessage : "");
    return VK_FALSE;
}

static VkDebugUtilsMessengerCreateInfoEXT messenger_info(void)
{
    return (VkDebugUtilsMessengerCreateInfoEXT){
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                           VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT |
                       VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
        .pfnUserCallback = on_message,
    };
}

/* ---- the instance ---- */

static PFN_vkVoidFunction get_of_instance(void *data, const char *name)
{
    const struct vns_instance *instance = data;
    return instance->get_instance(instance->handle, name);
}

static VkResult create(struct vns_instance *instance, const VkInstanceCreateInfo *wanted,
                       const struct names *extensions, bool validate)
{
    const char *layers[] = {validation_layer};
    VkDebugUtilsMessengerCreateInfoEXT messenger = messenger_info();
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO};
    if (wanted->pApplicationInfo)
        app = *wanted->pApplicationInfo;
    app.apiVersion = instance->version;
    VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .pNext = validate ? &messenger : NULL,
        .pApplicationInfo = &app,
        .enabledLayerCount = validate ? 1 : 0,
        .ppEnabledLayerNames = layers,
        .enabledExtensionCount = extensions->count,
        .ppEnabledExtensionNames = extensions->names,
    };
    PFN_vkCreateInstance create_instance =
        (PFN_vkCreateInstance)instance->get_instance(NULL, "vkCreateInstance");
    return create_instance ? create_instance(&info, NULL, &instance->handle)
                           : VK_ERROR_INITIALIZATION_FAILED;
}

static VkResult start_messenger(struct vns_instance *instance)
{
    VkDebugUtilsMessengerCreateInfoEXT info = messenger_info();
    PFN_vkCreateDebugUtilsMessengerEXT create_messenger =
        (PFN_vkCreateDebugUtilsMessengerEXT)instance->get_instance(
            instance->handle, "vkCreateDebugUtilsMessengerEXT");
    return create_messenger ? create_messenger(instance->handle, &info, NULL, &instance->messenger)
                            : VK_ERROR_EXTENSION_NOT_PRESENT;
}

static int place_of(const struct vns_instance *instance, VkPhysicalDevice device)
{
    VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
    VkPhysicalDeviceProperties2 chain = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                         .pNext = &id};
    if (!instance->driver.vkGetPhysicalDeviceProperties2)
        return -1;
    instance->driver.vkGetPhysicalDeviceProperties2(device, &chain);
    return hw_visible_place(id.deviceUUID);
}

/* Those that the server was told to offer, in that order. */
static void keep_visible(struct vns_instance *instance)
{
    VkPhysicalDevice kept[VN_DEVICES_MAX];
    int places[VN_DEVICES_MAX];
    uint32_t count = 0;
    if (!hw_visible_are_chosen())
        return;
    for (uint32_t i = 0; i < instance->device_count; i++) {
        int place = place_of(instance, instance->devices[i]);
        uint32_t at = count;
        if (place < 0)
            continue;
        for (; at > 0 && places[at - 1] > place; at--) {
            places[at] = places[at - 1];
            kept[at] = kept[at - 1];
        }
        places[at] = place;
        kept[at] = instance->devices[i];
        count++;
    }
    memcpy(instance->devices, kept, count * sizeof(*kept));
    instance->device_count = count;
}

static VkResult list_devices(struct vns_instance *instance)
{
    uint32_t count = VN_DEVICES_MAX;
    instance->devices = calloc(count, sizeof(*instance->devices));
    if (!instance->devices)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    VkResult result =
        instance->driver.vkEnumeratePhysicalDevices(instance->handle, &count, instance->devices);
    instance->device_count = result < 0 ? 0 : count;
    if (result >= 0)
        keep_visible(instance);
    return result;
}

static uint32_t choose_version(uint32_t loader, const VkInstanceCreateInfo *info)
{
    uint32_t wanted = info->pApplicationInfo ? info->pApplicationInfo->apiVersion : 0;
    if (wanted < VK_API_VERSION_1_1)
        wanted = VK_API_VERSION_1_1;
    /* Only a 1.0 loader minds a version above its own. */
    return loader < VK_API_VERSION_1_1 ? VK_API_VERSION_1_0 : wanted;
}

static VkResult start(struct vns_instance *instance, const VkInstanceCreateInfo *info,
                      const struct vns_instance_params *params, const struct names *extensions)
{
    VkResult result = create(instance, info, extensions, params->validate);
    if (result < 0)
        return result;
    instance->get_device =
        (PFN_vkGetDeviceProcAddr)instance->get_instance(instance->handle, "vkGetDeviceProcAddr");
    vn_driver_load(&instance->driver, get_of_instance, instance);
    if (params->validate)
        result = start_messenger(instance);
    return result < 0 ? result : list_devices(instance);
}

int vns_instance_open(struct vns_instance *instance, const VkInstanceCreateInfo *info,
                      const struct vns_instance_params *params, char why[VNS_WHY_CHARS])
{
    struct names extensions;
    *instance = (struct vns_instance){.get_instance = open_loader(why)};
    if (!instance->get_instance)
        return -ENOENT;
    instance->version = choose_version(loader_version(instance->get_instance), info);
    listener = (struct listener){params->message, params->user};
    int rc = choose_extensions(instance->get_instance, info, params->validate, &extensions);
    if (rc) {
        snprintf(why, VNS_WHY_CHARS, "the server is out of memory");
        return rc;
    }
    VkResult result = start(instance, info, params, &extensions);
    free(extensions.names);
    if (result < 0) {
        snprintf(why, VNS_WHY_CHARS, "%s at the server (VkResult %d)",
                 result == VK_ERROR_LAYER_NOT_PRESENT ? "no validation layer is installed"
                                                      : "no Vulkan driver starts",
                 result);
        return errno_of(result);
    }
    return 0;
}

void vns_instance_close(struct vns_instance *instance)
{
    PFN_vkDestroyDebugUtilsMessengerEXT destroy_messenger =
        (PFN_vkDestroyDebugUtilsMessengerEXT)instance->get_instance(
            instance->handle, "vkDestroyDebugUtilsMessengerEXT");
    if (instance->messenger && destroy_messenger)
        destroy_messenger(instance->handle, instance->messenger, NULL);
    instance->driver.vkDestroyInstance(instance->handle, NULL);
    free(instance->devices);
    *instance = (struct vns_instance){0};
}

/* ---- devices ---- */

struct device_getter {
    const struct vns_instance *instance;
    VkDevice device;
};

static PFN_vkVoidFunction get_of_device(void *data, const char *name)
{
    const struct device_getter *getter = data;
    const struct vn_command_info *command = vn_command_find(name);
    if (command && command->level != VN_LEVEL_DEVICE)
        return NULL; /* a device has none of these, and a layer warns of the question */
    return getter->instance->get_device(getter->device, name);
}

void vns_instance_load_device(const struct vns_instance *instance, VkDevice device,
                              struct vn_driver *driver)
{
    struct device_getter getter = {instance, device};
    vn_driver_load(driver, get_of_device, &getter);
}
