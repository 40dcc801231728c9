/* Debug messengers; see debug.h. */
#include "venus/client/device/debug.h"

#include <pthread.h>
#include <stdlib.h>

#include "venus/client/device/instance.h"
#include "venus/client/locks.h"
#include "vn_client.gen.h"

/* One messenger or one report callback. */
struct listener {
    struct vn_object object;
    struct listener *next;
    bool only_changing; /* chained to VkInstanceCreateInfo */
    VkDebugUtilsMessageSeverityFlagsEXT severities;
    VkDebugUtilsMessageTypeFlagsEXT types;
    PFN_vkDebugUtilsMessengerCallbackEXT messenger;
    VkDebugReportFlagsEXT flags;
    PFN_vkDebugReportCallbackEXT report;
    void *user;
};

struct vnc_debug {
    pthread_mutex_t lock; /* guards the list and the flag, and is held around callbacks */
    struct listener *first;
    bool changing;
};

static struct listener *listener_new(struct vnc_debug *debug, uint32_t type, void *user)
{
    struct listener *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    l->object.type = type;
    l->user = user;
    pthread_mutex_lock(&debug->lock);
    l->next = debug->first;
    debug->first = l;
    pthread_mutex_unlock(&debug->lock);
    return l;
}

static void listener_free(struct vnc_debug *debug, struct listener *l)
{
    pthread_mutex_lock(&debug->lock);
    struct listener **at = &debug->first;
    while (*at && *at != l)
        at = &(*at)->next;
    if (*at)
        *at = l->next;
    pthread_mutex_unlock(&debug->lock);
    free(l);
}

static struct listener *add_messenger(struct vnc_debug *debug,
                                      const VkDebugUtilsMessengerCreateInfoEXT *info)
{
    struct listener *l =
        listener_new(debug, VK_OBJECT_TYPE_DEBUG_UTILS_MESSENGER_EXT, info->pUserData);
    if (l) {
        l->severities = info->messageSeverity;
        l->types = info->messageType;
        l->messenger = info->pfnUserCallback;
    }
    return l;
}

static struct listener *add_report(struct vnc_debug *debug,
                                   const VkDebugReportCallbackCreateInfoEXT *info)
{
    struct listener *l =
        listener_new(debug, VK_OBJECT_TYPE_DEBUG_REPORT_CALLBACK_EXT, info->pUserData);
    if (l) {
        l->flags = info->flags;
        l->report = info->pfnCallback;
    }
    return l;
}

static bool add_chained(struct vnc_debug *debug, const void *chain)
{
    for (const VkBaseInStructure *s = chain; s; s = s->pNext) {
        struct listener *l;
        if (s->sType == VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT)
            l = add_messenger(debug, (const void *)s);
        else if (s->sType == VK_STRUCTURE_TYPE_DEBUG_REPORT_CALLBACK_CREATE_INFO_EXT)
            l = add_report(debug, (const void *)s);
        else
            continue;
        if (!l)
            return false;
        l->only_changing = true;
    }
    return true;
}

struct vnc_debug *vnc_debug_create(const void *chain)
{
    struct vnc_debug *debug = calloc(1, sizeof(*debug));
    if (!debug)
        return NULL;
    vnc_lock_init(&debug->lock);
    debug->changing = true;
    if (!add_chained(debug, chain)) {
        vnc_debug_destroy(debug);
        return NULL;
    }
    return debug;
}

void vnc_debug_destroy(struct vnc_debug *debug)
{
    if (!debug)
        return;
    while (debug->first)
        listener_free(debug, debug->first);
    vnc_lock_fini(&debug->lock);
    free(debug);
}

void vnc_debug_set_changing(struct vnc_debug *debug, bool changing)
{
    pthread_mutex_lock(&debug->lock);
    debug->changing = changing;
    pthread_mutex_unlock(&debug->lock);
}

/* ---- telling ---- */

static VkDebugReportFlagsEXT report_flag(uint32_t severity, uint32_t types)
{
    if (severity & VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT)
        return VK_DEBUG_REPORT_ERROR_BIT_EXT;
    if (severity & VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT)
        return types & VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT
                   ? VK_DEBUG_REPORT_PERFORMANCE_WARNING_BIT_EXT
                   : VK_DEBUG_REPORT_WARNING_BIT_EXT;
    if (severity & VK_DEBUG_UTILS_MESSAGE_SEVERITY_INFO_BIT_EXT)
        return VK_DEBUG_REPORT_INFORMATION_BIT_EXT;
    return VK_DEBUG_REPORT_DEBUG_BIT_EXT;
}

static bool hears(const struct vnc_debug *debug, const struct listener *l)
{
    return debug->changing || !l->only_changing;
}

static void tell_messengers(struct vnc_debug *debug, uint32_t severity, uint32_t types,
                            const VkDebugUtilsMessengerCallbackDataEXT *data)
{
    for (struct listener *l = debug->first; l; l = l->next) {
        if (l->messenger && hears(debug, l) && (l->severities & severity) && (l->types & types))
            (void)l->messenger((VkDebugUtilsMessageSeverityFlagBitsEXT)severity, types, data,
                               l->user);
    }
}

void vnc_debug_message(struct vnc_debug *debug, uint32_t severity, uint32_t types, int32_t number,
                       const char *name, const char *text)
{
    VkDebugUtilsMessengerCallbackDataEXT data = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CALLBACK_DATA_EXT,
        .pMessageIdName = name,
        .messageIdNumber = number,
        .pMessage = text};
    VkDebugReportFlagsEXT flag = report_flag(severity, types);
    pthread_mutex_lock(&debug->lock);
    tell_messengers(debug, severity, types, &data);
    for (struct listener *l = debug->first; l; l = l->next) {
        if (l->report && hears(debug, l) && (l->flags & flag))
            (void)l->report(flag, VK_DEBUG_REPORT_OBJECT_TYPE_UNKNOWN_EXT, 0, 0, number, name, text,
                            l->user);
    }
    pthread_mutex_unlock(&debug->lock);
}

/* ---- entrypoints ---- */

static struct vnc_debug *debug_of(VkInstance instance)
{
    return VNC_OBJECT(vnc_instance, instance)->debug;
}

static VKAPI_ATTR VkResult VKAPI_CALL
create_messenger(VkInstance instance, const VkDebugUtilsMessengerCreateInfoEXT *info,
                 const VkAllocationCallbacks *allocator, VkDebugUtilsMessengerEXT *out)
{
    (void)allocator;
    struct listener *l = add_messenger(debug_of(instance), info);
    *out = VNC_HANDLE(VkDebugUtilsMessengerEXT, l);
    return l ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
}

static VKAPI_ATTR void VKAPI_CALL destroy_messenger(VkInstance instance,
                                                    VkDebugUtilsMessengerEXT messenger,
                                                    const VkAllocationCallbacks *allocator)
{
    (void)allocator;
    if (messenger)
        listener_free(debug_of(instance), VNC_OBJECT(listener, messenger));
}

static VKAPI_ATTR void VKAPI_CALL submit_message(VkInstance instance,
                                                 VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                 VkDebugUtilsMessageTypeFlagsEXT types,
                                                 const VkDebugUtilsMessengerCallbackDataEXT *data)
{
    struct vnc_debug *debug = debug_of(instance);
    pthread_mutex_lock(&debug->lock);
    tell_messengers(debug, (uint32_t)severity, types, data);
    pthread_mutex_unlock(&debug->lock);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_report(VkInstance instance,
                                                    const VkDebugReportCallbackCreateInfoEXT *info,
                                                    const VkAllocationCallbacks *allocator,
                                                    VkDebugReportCallbackEXT *out)
{
    (void)allocator;
    struct listener *l = add_report(debug_of(instance), info);
    *out = VNC_HANDLE(VkDebugReportCallbackEXT, l);
    return l ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
}

static VKAPI_ATTR void VKAPI_CALL destroy_report(VkInstance instance,
                                                 VkDebugReportCallbackEXT callback,
                                                 const VkAllocationCallbacks *allocator)
{
    (void)allocator;
    if (callback)
        listener_free(debug_of(instance), VNC_OBJECT(listener, callback));
}

static VKAPI_ATTR void VKAPI_CALL report_message(VkInstance instance, VkDebugReportFlagsEXT flags,
                                                 VkDebugReportObjectTypeEXT type, uint64_t object,
                                                 size_t location, int32_t code, const char *prefix,
                                                 const char *text)
{
    struct vnc_debug *debug = debug_of(instance);
    pthread_mutex_lock(&debug->lock);
    for (struct listener *l = debug->first; l; l = l->next) {
        if (l->report && hears(debug, l) && (l->flags & flags))
            (void)l->report(flags, type, object, location, code, prefix, text, l->user);
    }
    pthread_mutex_unlock(&debug->lock);
}

/* ---- names ---- */

/* Whether the server knows objects of this type; an instance has several servers. */
static bool is_at_server(VkObjectType type)
{
    switch ((uint32_t)type) {
    case VK_OBJECT_TYPE_INSTANCE:
    case VK_OBJECT_TYPE_FENCE:
    case VK_OBJECT_TYPE_SURFACE_KHR:
    case VK_OBJECT_TYPE_SWAPCHAIN_KHR:
    case VK_OBJECT_TYPE_DEBUG_UTILS_MESSENGER_EXT:
    case VK_OBJECT_TYPE_DEBUG_REPORT_CALLBACK_EXT:
    case VK_OBJECT_TYPE_PRIVATE_DATA_SLOT:
    case VK_OBJECT_TYPE_DESCRIPTOR_UPDATE_TEMPLATE:
    case VK_OBJECT_TYPE_DEFERRED_OPERATION_KHR:
        return false;
    default:
        return true;
    }
}

static VKAPI_ATTR VkResult VKAPI_CALL set_name(VkDevice device,
                                               const VkDebugUtilsObjectNameInfoEXT *info)
{
    struct vnc_link *link = vnc_link_of(device);
    if (!is_at_server(info->objectType))
        return VK_SUCCESS;
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return VK_ERROR_DEVICE_LOST;
    vn_enc_cmd_vkSetDebugUtilsObjectNameEXT(e, device, info);
    return vnc_link_post(link);
}

static VKAPI_ATTR VkResult VKAPI_CALL set_tag(VkDevice device,
                                              const VkDebugUtilsObjectTagInfoEXT *info)
{
    struct vnc_link *link = vnc_link_of(device);
    if (!is_at_server(info->objectType))
        return VK_SUCCESS;
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return VK_ERROR_DEVICE_LOST;
    vn_enc_cmd_vkSetDebugUtilsObjectTagEXT(e, device, info);
    return vnc_link_post(link);
}

const struct vnc_entry vnc_entries_debug[] = {
    VNC_ENTRY(vkCreateDebugUtilsMessengerEXT, create_messenger),
    VNC_ENTRY(vkDestroyDebugUtilsMessengerEXT, destroy_messenger),
    VNC_ENTRY(vkSubmitDebugUtilsMessageEXT, submit_message),
    VNC_ENTRY(vkCreateDebugReportCallbackEXT, create_report),
    VNC_ENTRY(vkDestroyDebugReportCallbackEXT, destroy_report),
    VNC_ENTRY(vkDebugReportMessageEXT, report_message),
    VNC_ENTRY(vkSetDebugUtilsObjectNameEXT, set_name),
    VNC_ENTRY(vkSetDebugUtilsObjectTagEXT, set_tag),
    {NULL, NULL},
};
