/* vkt.c - cases, output and the device of the Vulkan differential programs. */
#include "vkt.h"

#include "base/driver_counts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

enum {
    EXIT_SKIP = 77,       /* Meson's and automake's "skipped" */
    DEVICES_MAX = 16,     /* more GPUs than a machine holds */
    FAMILIES_MAX = 32,    /* drivers report fewer than ten */
    EXTENSIONS_MAX = 512, /* drivers report fewer than 300 */
    SHOWN_BYTES = 32,     /* of each result, so that a difference can be read */
};

struct vkt vkt;

static struct {
    VkObjectType type;
    uint64_t handle;
} kept[VKT_KEPT_MAX];
static size_t kept_count;

static bool together;     /* several cases are run by this process */
static jmp_buf next_case; /* where it goes on after one that is skipped */

/* --- ending ----------------------------------------------------------------------------------- */

void vkt_fail(const char *format, ...)
{
    va_list args;
    fflush(stdout);
    fputs("fail: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    _Exit(1); /* other threads may be inside the driver: no destructor may run */
}

void vkt_skip(const char *format, ...)
{
    va_list args;
    fputs("skip: ", stdout);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
    if (together)
        longjmp(next_case, 1);
    _Exit(EXIT_SKIP);
}

#define NAME_OF(code)                                                                              \
    case code:                                                                                     \
        return #code

static const char *result_name(VkResult result)
{
    switch (result) {
        NAME_OF(VK_SUCCESS);
        NAME_OF(VK_NOT_READY);
        NAME_OF(VK_TIMEOUT);
        NAME_OF(VK_EVENT_SET);
        NAME_OF(VK_EVENT_RESET);
        NAME_OF(VK_INCOMPLETE);
        NAME_OF(VK_ERROR_OUT_OF_HOST_MEMORY);
        NAME_OF(VK_ERROR_OUT_OF_DEVICE_MEMORY);
        NAME_OF(VK_ERROR_INITIALIZATION_FAILED);
        NAME_OF(VK_ERROR_DEVICE_LOST);
        NAME_OF(VK_ERROR_MEMORY_MAP_FAILED);
        NAME_OF(VK_ERROR_LAYER_NOT_PRESENT);
        NAME_OF(VK_ERROR_EXTENSION_NOT_PRESENT);
        NAME_OF(VK_ERROR_FEATURE_NOT_PRESENT);
        NAME_OF(VK_ERROR_INCOMPATIBLE_DRIVER);
        NAME_OF(VK_ERROR_TOO_MANY_OBJECTS);
        NAME_OF(VK_ERROR_FORMAT_NOT_SUPPORTED);
        NAME_OF(VK_ERROR_FRAGMENTED_POOL);
        NAME_OF(VK_ERROR_UNKNOWN);
        NAME_OF(VK_ERROR_OUT_OF_POOL_MEMORY);
        NAME_OF(VK_ERROR_INVALID_EXTERNAL_HANDLE);
        NAME_OF(VK_ERROR_FRAGMENTATION);
        NAME_OF(VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS);
        NAME_OF(VK_ERROR_INVALID_SHADER_NV);
        NAME_OF(VK_PIPELINE_COMPILE_REQUIRED);
    default:
        return "unnamed VkResult";
    }
}

void vkt_check(VkResult result, const char *call)
{
    if (result != VK_SUCCESS)
        vkt_fail("%s: %s (%d)", call, result_name(result), (int)result);
}

void vkt_expect(bool holds, const char *what)
{
    if (!holds)
        vkt_fail("not so: %s", what);
}

/* --- output ----------------------------------------------------------------------------------- */

void vkt_out(const char *name, const void *bytes, size_t length)
{
    const unsigned char *data = bytes;
    printf("%s %zu %016llx ", name, length, (unsigned long long)XXH64(bytes, length, 0));
    for (size_t i = 0; i < length && i < SHOWN_BYTES; i++)
        printf("%02x", data[i]);
    putchar('\n');
}

void vkt_out_u64(const char *name, uint64_t value)
{
    printf("%s %llu\n", name, (unsigned long long)value);
}

void vkt_out_result(const char *name, VkResult result)
{
    printf("%s %s\n", name, result_name(result));
}

/* --- objects to destroy ----------------------------------------------------------------------- */

void vkt_keep(VkObjectType type, uint64_t handle)
{
    if (kept_count == VKT_KEPT_MAX)
        vkt_fail("more than %d objects", VKT_KEPT_MAX);
    kept[kept_count].type = type;
    kept[kept_count++].handle = handle;
}

#define DESTROYS(type, object)                                                                     \
    case VK_OBJECT_TYPE_##type:                                                                    \
        vkDestroy##object(vkt.device, (Vk##object)handle, NULL);                                   \
        break

static void destroy(VkObjectType type, uint64_t handle)
{
    switch (type) {
        DESTROYS(BUFFER, Buffer);
        DESTROYS(BUFFER_VIEW, BufferView);
        DESTROYS(IMAGE, Image);
        DESTROYS(IMAGE_VIEW, ImageView);
        DESTROYS(SAMPLER, Sampler);
        DESTROYS(SHADER_MODULE, ShaderModule);
        DESTROYS(PIPELINE, Pipeline);
        DESTROYS(PIPELINE_CACHE, PipelineCache);
        DESTROYS(PIPELINE_LAYOUT, PipelineLayout);
        DESTROYS(DESCRIPTOR_SET_LAYOUT, DescriptorSetLayout);
        DESTROYS(DESCRIPTOR_POOL, DescriptorPool);
        DESTROYS(DESCRIPTOR_UPDATE_TEMPLATE, DescriptorUpdateTemplate);
        DESTROYS(COMMAND_POOL, CommandPool);
        DESTROYS(FENCE, Fence);
        DESTROYS(SEMAPHORE, Semaphore);
        DESTROYS(EVENT, Event);
        DESTROYS(QUERY_POOL, QueryPool);
        DESTROYS(RENDER_PASS, RenderPass);
        DESTROYS(FRAMEBUFFER, Framebuffer);
        DESTROYS(SAMPLER_YCBCR_CONVERSION, SamplerYcbcrConversion);
        DESTROYS(PRIVATE_DATA_SLOT, PrivateDataSlot);
    case VK_OBJECT_TYPE_DEVICE_MEMORY:
        vkFreeMemory(vkt.device, (VkDeviceMemory)handle, NULL);
        break;
    default:
        vkt_fail("vkt_keep does not know object type %d", (int)type);
    }
}

/* --- instance and device ---------------------------------------------------------------------- */

static bool instance_has(const char *name)
{
    static VkExtensionProperties list[EXTENSIONS_MAX];
    uint32_t count = EXTENSIONS_MAX;
    VKT(vkEnumerateInstanceExtensionProperties(NULL, &count, list));
    for (uint32_t i = 0; i < count; i++)
        if (!strcmp(list[i].extensionName, name))
            return true;
    return false;
}

static void choose_device(void)
{
    const char *wanted = getenv("VKT_DEVICE");
    unsigned long index = wanted ? strtoul(wanted, NULL, 10) : 0;
    VkPhysicalDevice devices[DEVICES_MAX];
    uint32_t count = DEVICES_MAX;
    VKT(vkEnumeratePhysicalDevices(vkt.instance, &count, devices));
    if (index >= count)
        vkt_skip("no device %lu: %u found", index, count);
    vkt.physical = devices[index];
}

static void query_device(void)
{
    vkGetPhysicalDeviceProperties(vkt.physical, &vkt.props);
    if (vkt.props.apiVersion < VK_API_VERSION_1_3)
        vkt_skip("no Vulkan 1.3");
    vkGetPhysicalDeviceMemoryProperties(vkt.physical, &vkt.memory);
    vkt.f11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
    vkt.f11.pNext = &vkt.f12;
    vkt.f12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    vkt.f12.pNext = &vkt.f13;
    vkt.f13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
    VkPhysicalDeviceFeatures2 all = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
        .pNext = &vkt.f11,
    };
    vkGetPhysicalDeviceFeatures2(vkt.physical, &all);
    vkt.f10 = all.features;
}

static void open_instance(void)
{
    const char *const extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME};
    vkt.debug_utils = instance_has(extensions[0]);
    VkApplicationInfo app = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
        .pApplicationName = "vkt",
        .apiVersion = VK_API_VERSION_1_3,
    };
    VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .pApplicationInfo = &app,
        .enabledExtensionCount = vkt.debug_utils,
        .ppEnabledExtensionNames = extensions,
    };
    VkResult result = vkCreateInstance(&info, NULL, &vkt.instance);
    if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
        vkt_skip("no Vulkan driver");
    vkt_check(result, "vkCreateInstance");
    choose_device();
}

bool vkt_has_extension(const char *name)
{
    static VkExtensionProperties list[EXTENSIONS_MAX];
    uint32_t count = EXTENSIONS_MAX;
    VKT(vkEnumerateDeviceExtensionProperties(vkt.physical, NULL, &count, list));
    for (uint32_t i = 0; i < count; i++)
        if (!strcmp(list[i].extensionName, name))
            return true;
    return false;
}

uint64_t vkt_exchanges(void)
{
    hw_driver_counts_fn *get =
        (hw_driver_counts_fn *)vkGetDeviceProcAddr(vkt.device, HW_DRIVER_COUNTS_NAME);
    struct hw_driver_counts counts = {0};
    if (get)
        get(vkt.device, &counts);
    return counts.exchanges;
}

PFN_vkVoidFunction vkt_proc(const char *name)
{
    PFN_vkVoidFunction found = vkGetDeviceProcAddr(vkt.device, name);
    if (!found)
        found = vkGetInstanceProcAddr(vkt.instance, name);
    if (!found)
        vkt_fail("%s has no address", name);
    return found;
}

/* Fills infos with up to two queues of each family; returns how many families are used. */
static uint32_t plan_queues(VkDeviceQueueCreateInfo *infos)
{
    static const float priorities[2] = {1.0f, 1.0f};
    VkQueueFamilyProperties families[FAMILIES_MAX];
    uint32_t count = FAMILIES_MAX, used = 0;
    vkGetPhysicalDeviceQueueFamilyProperties(vkt.physical, &count, families);
    for (uint32_t i = 0; i < count && vkt.queue_count + 2 <= VKT_QUEUES_MAX; i++) {
        if (!(families[i].queueFlags & (VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT)))
            continue;
        uint32_t queues = families[i].queueCount < 2 ? families[i].queueCount : 2;
        infos[used++] = (VkDeviceQueueCreateInfo){
            .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
            .queueFamilyIndex = i,
            .queueCount = queues,
            .pQueuePriorities = priorities,
        };
        for (uint32_t q = 0; q < queues; q++)
            vkt.queues[vkt.queue_count++] =
                (struct vkt_queue){.family = i, .flags = families[i].queueFlags};
    }
    return used;
}

static void take_queues(void)
{
    for (uint32_t i = 0; i < vkt.queue_count; i++) {
        struct vkt_queue *queue = &vkt.queues[i];
        uint32_t index = i > 0 && queue[-1].family == queue->family;
        vkGetDeviceQueue(vkt.device, queue->family, index, &queue->handle);
    }
    const VkQueueFlags both = VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT;
    for (uint32_t i = 0; i < vkt.queue_count && !vkt.queue; i++) {
        if ((vkt.queues[i].flags & both) == both) {
            vkt.queue = vkt.queues[i].handle;
            vkt.family = vkt.queues[i].family;
        }
    }
    if (!vkt.queue)
        vkt_skip("no queue for graphics and compute");
}

void vkt_open_with(void *features, const char *const *extensions)
{
    uint32_t count = 0;
    for (; extensions[count]; count++)
        if (!vkt_has_extension(extensions[count]))
            vkt_skip("no %s", extensions[count]);
    VkDeviceQueueCreateInfo queues[VKT_QUEUES_MAX];
    vkt.f13.pNext = features;
    VkPhysicalDeviceFeatures2 all = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
        .pNext = &vkt.f11,
        .features = vkt.f10,
    };
    VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .pNext = &all,
        .queueCreateInfoCount = plan_queues(queues),
        .pQueueCreateInfos = queues,
        .enabledExtensionCount = count,
        .ppEnabledExtensionNames = extensions,
    };
    VKT(vkCreateDevice(vkt.physical, &info, NULL, &vkt.device));
    take_queues();
    vkt.pool = vkt_command_pool(vkt.family, VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT);
}

void vkt_open(void)
{
    vkt_open_with(NULL, (const char *const[]){NULL});
}

/* The instance stays, and nothing else of the case. */
static void close_device(void)
{
    if (vkt.device)
        VKT(vkDeviceWaitIdle(vkt.device));
    while (kept_count > 0) {
        kept_count--;
        destroy(kept[kept_count].type, kept[kept_count].handle);
    }
    if (vkt.device)
        vkDestroyDevice(vkt.device, NULL);
    vkt = (struct vkt){
        .instance = vkt.instance, .physical = vkt.physical, .debug_utils = vkt.debug_utils};
}

/* --- main ------------------------------------------------------------------------------------- */

static const struct vkt_case *find_case(const char *name, const struct vkt_case *cases,
                                        size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(name, cases[i].name))
            return &cases[i];
    return NULL;
}

static void list_cases(const struct vkt_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        printf("%s%s%s\n", cases[i].name, cases[i].invalid ? " " : "",
               cases[i].invalid ? cases[i].invalid : "");
}

static void run_case(const struct vkt_case *one)
{
    if (together)
        printf("== %s\n", one->name);
    fflush(stdout); /* or a process that the case forks says it again */
    if (!setjmp(next_case)) {
        query_device();
        one->run();
    }
    close_device();
}

int vkt_main(int argc, char **argv, const struct vkt_case *cases, size_t count)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s --list | CASE...\n", argv[0]);
        return 2;
    }
    if (!strcmp(argv[1], "--list")) {
        list_cases(cases, count);
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        if (!find_case(argv[i], cases, count)) {
            fprintf(stderr, "%s: no case %s\n", argv[0], argv[i]);
            return 2;
        }
    }
    open_instance();
    together = argc > 2;
    for (int i = 1; i < argc; i++)
        run_case(find_case(argv[i], cases, count));
    vkDestroyInstance(vkt.instance, NULL);
    return 0;
}
