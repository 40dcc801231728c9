/* What a hostile server says of its GPUs: the answer to OPEN, which a Vulkan program's process
 * reads when it makes its instance, and answers to what is asked later.  Whatever comes, the
 * instance is made, every query of its devices writes no more than the program gave room for, and
 * all can be taken down.
 *
 * The input is {u16 bytes, the answer to OPEN}, and the rest answers every other call. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fuzz.h"
#include "rpc/client.h"
#include "server.h"
#include "venus/client/icd.h"
#include "venus/memory/track/kernel.h"
#include "wire/le.h"

enum { DEVICES_MAX = 3, FAMILIES_MAX = 3, EXTENSIONS_MAX = 8, LAYOUTS_MAX = 4 };

#define ENTRY(name) ((PFN_##name)vnc_icd_entry(vn_command_find(#name)))

/* ---- queries of a device ---- */

static void ask_properties(VkPhysicalDevice device)
{
    VkImageLayout src[LAYOUTS_MAX], dst[LAYOUTS_MAX];
    VkPhysicalDeviceHostImageCopyPropertiesEXT copies = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_HOST_IMAGE_COPY_PROPERTIES_EXT,
        .copySrcLayoutCount = LAYOUTS_MAX,
        .pCopySrcLayouts = src,
        .copyDstLayoutCount = LAYOUTS_MAX,
        .pCopyDstLayouts = dst};
    VkPhysicalDeviceDriverProperties driver = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES, .pNext = &copies};
    VkPhysicalDeviceVulkan11Properties more = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &driver};
    VkPhysicalDeviceProperties2 out = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                       .pNext = &more};
    ENTRY(vkGetPhysicalDeviceProperties2)(device, &out);
    require(memchr(out.properties.deviceName, 0, sizeof(out.properties.deviceName)) != NULL);
    require(memchr(driver.driverName, 0, sizeof(driver.driverName)) != NULL);
    require(copies.copySrcLayoutCount <= LAYOUTS_MAX && copies.copyDstLayoutCount <= LAYOUTS_MAX);
}

static void ask_features(VkPhysicalDevice device)
{
    VkPhysicalDeviceVulkan12Features more = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceFeatures2 out = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &more};
    ENTRY(vkGetPhysicalDeviceFeatures2)(device, &out);
}

static void ask_memory(VkPhysicalDevice device)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 out = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &budget};
    ENTRY(vkGetPhysicalDeviceMemoryProperties2)(device, &out);
    const VkPhysicalDeviceMemoryProperties *m = &out.memoryProperties;
    require(m->memoryTypeCount <= VK_MAX_MEMORY_TYPES && m->memoryHeapCount <= VK_MAX_MEMORY_HEAPS);
    for (uint32_t i = 0; i < m->memoryTypeCount; i++)
        require(m->memoryTypes[i].heapIndex < m->memoryHeapCount);
}

static void ask_families(VkPhysicalDevice device)
{
    VkQueueFamilyProperties old[FAMILIES_MAX];
    VkQueueFamilyProperties2 out[FAMILIES_MAX];
    uint32_t count = FAMILIES_MAX;
    for (int i = 0; i < FAMILIES_MAX; i++)
        out[i] = (VkQueueFamilyProperties2){.sType = VK_STRUCTURE_TYPE_QUEUE_FAMILY_PROPERTIES_2};
    ENTRY(vkGetPhysicalDeviceQueueFamilyProperties2)(device, &count, out);
    require(count <= FAMILIES_MAX);
    ENTRY(vkGetPhysicalDeviceQueueFamilyProperties)(device, &count, old);
    require(count <= FAMILIES_MAX);
}

static void ask_formats(VkPhysicalDevice device)
{
    for (VkFormat format = VK_FORMAT_UNDEFINED; format <= VK_FORMAT_R4G4_UNORM_PACK8; format++) {
        VkFormatProperties3 more = {.sType = VK_STRUCTURE_TYPE_FORMAT_PROPERTIES_3};
        VkFormatProperties2 out = {.sType = VK_STRUCTURE_TYPE_FORMAT_PROPERTIES_2, .pNext = &more};
        ENTRY(vkGetPhysicalDeviceFormatProperties2)(device, format, &out);
    }
}

static void ask_extensions(VkPhysicalDevice device)
{
    VkExtensionProperties out[EXTENSIONS_MAX];
    uint32_t count = EXTENSIONS_MAX;
    (void)ENTRY(vkEnumerateDeviceExtensionProperties)(device, NULL, &count, out);
    require(count <= EXTENSIONS_MAX);
    for (uint32_t i = 0; i < count; i++)
        require(memchr(out[i].extensionName, 0, sizeof(out[i].extensionName)) != NULL);
}

static void use_device(VkPhysicalDevice physical)
{
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue};
    VkDevice device;
    if (ENTRY(vkCreateDevice)(physical, &info, NULL, &device) == VK_SUCCESS)
        ENTRY(vkDestroyDevice)(device, NULL);
}

static void ask_all(VkPhysicalDevice device)
{
    ask_properties(device);
    ask_features(device);
    ask_memory(device);
    ask_families(device);
    ask_formats(device);
    ask_extensions(device);
    use_device(device);
}

/* ---- an instance ---- */

static void say_nothing(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

/* A session that was kept for the next instance would be another input's. */
static void prepare(void)
{
    static struct vn_kernel *kernel; /* kept, since looking what it can do takes long */
    if (kernel)
        return;
    require(vn_kernel_ref(&kernel) == 0);
    hw_log_set_sink(say_nothing, NULL);
    require(setenv("VENUS_SERVERS", "127.0.0.1:1", 1) == 0);
    require(setenv("VENUS_PERF", "no_kept_sessions", 1) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    VkPhysicalDevice devices[DEVICES_MAX];
    uint32_t count = DEVICES_MAX;
    VkInstance instance;
    if (size < 2)
        return 0;
    size_t len = wire_load16(data), left = size - 2;
    len = len < left ? len : left;
    prepare();
    server_answer(0, data + 2, len);
    require(ENTRY(vkCreateInstance)(&info, NULL, &instance) == VK_SUCCESS);
    server_answer(0, data + 2 + len, left - len);
    (void)ENTRY(vkEnumeratePhysicalDevices)(instance, &count, devices);
    require(count <= DEVICES_MAX);
    for (uint32_t i = 0; i < count; i++)
        ask_all(devices[i]);
    ENTRY(vkDestroyInstance)(instance, NULL);
    server_end();
    return 0;
}
