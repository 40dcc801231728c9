/* What the loader calls, and finding functions by name; see icd.h. */
#include "venus/client/icd.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/driver_counts.h"
#include "base/units.h"
#include "venus/client/device/debug.h"
#include "venus/client/device/device.h"
#include "venus/client/device/image_formats.h"
#include "venus/client/device/instance.h"
#include "venus/client/device/physical_device.h"
#include "venus/client/memory/external.h"
#include "venus/client/memory/memory.h"
#include "venus/client/object/descriptor.h"
#include "venus/client/object/descriptor_layout.h"
#include "venus/client/object/local.h"
#include "venus/client/object/pipeline.h"
#include "venus/client/object/query.h"
#include "venus/client/object/sync.h"
#include "venus/client/object/sync_fd.h"
#include "venus/client/present/wsi.h"
#include "venus/client/record/command.h"
#include "venus/client/submit/queue.h"
#include "vn_client.gen.h"

#define EXPORTED __attribute__((visibility("default")))

enum {
    INTERFACE_MIN = 5, /* below it a loader refuses programs that ask for 1.1 */
    INTERFACE_MAX = 7,
};

VKAPI_ATTR VkResult VKAPI_CALL vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version);
VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance,
                                                                   const char *name);
VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetPhysicalDeviceProcAddr(VkInstance instance,
                                                                         const char *name);

static const struct vnc_entry *const tables[] = {
    vnc_entries_icd,
    vnc_entries_instance,
    vnc_entries_physical_device,
    vnc_entries_image_formats,
    vnc_entries_debug,
    vnc_entries_device,
    vnc_entries_fault,
    vnc_entries_queue,
    vnc_entries_sync,
    vnc_entries_sync_fd,
    vnc_entries_memory,
    vnc_entries_resource,
    vnc_entries_host_copy,
    vnc_entries_external,
    vnc_entries_command,
    vnc_entries_descriptor,
    vnc_entries_descriptor_layout,
    vnc_entries_pipeline,
    vnc_entries_query,
    vnc_entries_answers,
    vnc_entries_render_pass,
    vnc_entries_private_data,
    vnc_entries_deferred,
    vnc_entries_wsi_surface,
    vnc_entries_wsi_x11,
    vnc_entries_wsi_wayland,
    vnc_entries_wsi_swapchain,
    vnc_entries_wsi_alias,
};

/* By row of the generated tables; filled once. */
static PFN_vkVoidFunction functions[VN_COMMAND_ROWS];
static bool extensions[VN_EXTENSION_ROWS];
static uint32_t offered_version;
static pthread_once_t filled = PTHREAD_ONCE_INIT;

static PFN_vkVoidFunction *function_of(const char *name)
{
    const struct vn_command_info *command = vn_command_find(name);
    return command ? &functions[command - vn_command_table] : NULL;
}

/* The first origin is the extension that brought a command; the others need that one, too. */
static bool all_commands_are_there(const char *extension)
{
    for (size_t i = 0; i < vn_command_count; i++) {
        if (strcmp(vn_command_table[i].origins[0], extension) == 0 && !functions[i])
            return false;
    }
    return true;
}

static bool is_complete(const struct vn_extension_info *extension)
{
    if (!extension->offered && !extension->client_only)
        return false;
    bool wanted = true;
    if (extension->knob)
        hw_env_bool(extension->knob, false, &wanted);
    if (!wanted)
        return false;
    return all_commands_are_there(extension->name);
}

bool vnc_icd_in_version(const struct vn_command_info *command, uint32_t version)
{
    for (const char *const *origin = command->origins; *origin; origin++) {
        unsigned major, minor;
        if (sscanf(*origin, "VK_VERSION_%u_%u", &major, &minor) == 2)
            return VK_MAKE_API_VERSION(0, major, minor, 0) <= version;
    }
    return false;
}

/* A version with a command missing is lowered to the one before. */
static uint32_t complete_version(void)
{
    uint32_t version = VK_HEADER_VERSION_COMPLETE;
    for (size_t i = 0; i < vn_command_count; i++) {
        while (!functions[i] && VK_API_VERSION_MINOR(version) > 0 &&
               vnc_icd_in_version(&vn_command_table[i], version))
            version = VK_MAKE_API_VERSION(0, 1, VK_API_VERSION_MINOR(version) - 1,
                                          VK_API_VERSION_PATCH(version));
    }
    return version;
}

static void fill(void)
{
    assert(vn_command_count == VN_COMMAND_ROWS && vn_extension_count == VN_EXTENSION_ROWS);
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        for (const struct vnc_entry *e = tables[i]; e->name; e++) {
            /* A table may be written with a name that this registry made an alias. */
            const struct vn_command_info *command = vn_command_find(e->name);
            if (command)
                *function_of(command->canonical) = e->function;
        }
    }
    for (size_t i = 0; i < vn_command_count; i++) {
        PFN_vkVoidFunction written = *function_of(vn_command_table[i].canonical);
        functions[i] = written ? written : vn_client_entry(vn_command_table[i].name);
    }
    for (size_t i = 0; i < vn_extension_count; i++)
        extensions[i] = is_complete(&vn_extension_table[i]);
    offered_version = complete_version();
}

uint32_t vnc_icd_version(void)
{
    pthread_once(&filled, fill);
    return offered_version;
}

PFN_vkVoidFunction vnc_icd_entry(const struct vn_command_info *command)
{
    pthread_once(&filled, fill);
    return functions[command - vn_command_table];
}

bool vnc_icd_has_extension(const struct vn_extension_info *extension)
{
    pthread_once(&filled, fill);
    return extensions[extension - vn_extension_table];
}

/* ---- versions and extensions ---- */

static bool is_of_extension(const struct vn_command_info *command, uint32_t count,
                            char *const *enabled)
{
    for (const char *const *origin = command->origins; *origin; origin++) {
        for (uint32_t i = 0; i < count; i++) {
            if (strcmp(*origin, enabled[i]) == 0)
                return true;
        }
    }
    return false;
}

static bool is_of_any_device_extension(const struct vn_command_info *command)
{
    for (const char *const *origin = command->origins; *origin; origin++) {
        const struct vn_extension_info *extension = vn_extension_find(*origin);
        if (extension && extension->device && vnc_icd_has_extension(extension))
            return true;
    }
    return false;
}

/* ---- vkGet*ProcAddr ---- */

static bool instance_has(const struct vnc_instance *instance, const struct vn_command_info *command)
{
    if (command->level == VN_LEVEL_GLOBAL)
        return false;
    /* A device may have a later version than its instance asked for. */
    uint32_t version =
        command->level == VN_LEVEL_INSTANCE ? instance->api_version : vnc_icd_version();
    if (vnc_icd_in_version(command, version))
        return true;
    return is_of_extension(command, instance->extension_count, instance->extensions) ||
           (command->level != VN_LEVEL_INSTANCE && is_of_any_device_extension(command));
}

static PFN_vkVoidFunction find_for_loader(const char *name)
{
    if (strcmp(name, "vk_icdNegotiateLoaderICDInterfaceVersion") == 0)
        return (PFN_vkVoidFunction)vk_icdNegotiateLoaderICDInterfaceVersion;
    if (strcmp(name, "vk_icdGetPhysicalDeviceProcAddr") == 0)
        return (PFN_vkVoidFunction)vk_icdGetPhysicalDeviceProcAddr;
    return NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_proc(VkInstance instance,
                                                                  const char *name)
{
    const struct vn_command_info *command = vn_command_find(name);
    if (!command)
        return NULL;
    bool found = strcmp(name, "vkGetInstanceProcAddr") == 0 ||
                 (instance ? instance_has(VNC_OBJECT(vnc_instance, instance), command)
                           : command->level == VN_LEVEL_GLOBAL);
    return found ? vnc_icd_entry(command) : NULL;
}

static void get_counts(void *device, struct hw_driver_counts *out)
{
    vnc_link_counts(vnc_device_link(VNC_OBJECT(vnc_device, device)), out);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_proc(VkDevice handle, const char *name)
{
    if (strcmp(name, HW_DRIVER_COUNTS_NAME) == 0)
        return (PFN_vkVoidFunction)get_counts;
    const struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    const struct vn_command_info *command = vn_command_find(name);
    if (!command || command->level != VN_LEVEL_DEVICE)
        return NULL;
    const struct vnc_instance *instance = device->physical->instance;
    uint32_t version = device->physical->api_version;
    if (version > instance->api_version)
        version = instance->api_version;
    bool found = vnc_icd_in_version(command, version) ||
                 is_of_extension(command, device->extension_count, device->extensions) ||
                 is_of_extension(command, instance->extension_count, instance->extensions);
    return found ? vnc_icd_entry(command) : NULL;
}

/* The commands that are called before there is a handle have no table of their own. */
const struct vnc_entry vnc_entries_icd[] = {
    VNC_ENTRY(vkGetInstanceProcAddr, get_instance_proc),
    VNC_ENTRY(vkGetDeviceProcAddr, get_device_proc),
    {NULL, NULL},
};

/* ---- the loader ---- */

EXPORTED VKAPI_ATTR VkResult VKAPI_CALL vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version)
{
    if (*version < INTERFACE_MIN)
        return VK_ERROR_INCOMPATIBLE_DRIVER;
    if (*version > INTERFACE_MAX)
        *version = INTERFACE_MAX;
    return VK_SUCCESS;
}

EXPORTED VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance,
                                                                            const char *name)
{
    PFN_vkVoidFunction found = find_for_loader(name);
    return found ? found : get_instance_proc(instance, name);
}

EXPORTED VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL
vk_icdGetPhysicalDeviceProcAddr(VkInstance instance, const char *name)
{
    const struct vn_command_info *command = vn_command_find(name);
    if (!command || command->level != VN_LEVEL_PHYSICAL_DEVICE)
        return NULL;
    return get_instance_proc(instance, name);
}
