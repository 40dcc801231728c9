#include "llm/vulkan/device.h"

#include "base/clock.h"
#include "base/units.h"
#include "base/visible.h"
#include "llm/model/why.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOADER "libvulkan.so.1"
#define WAIT_NS (120 * HW_SEC) /* a device that takes longer for a step is lost */

enum {
    DEVICES_MAX = 16,
    FAMILIES_MAX = 16,
    PUSH_BYTES = 128,     /* Vulkan's minimum; the shaders use up to 124 */
    SHARED_BYTES = 16384, /* Vulkan's minimum; mul_frame.glsl uses all */
    GROUP_THREADS = 256,  /* norm.comp */
    SPIN_CORES = 4,       /* with fewer, a spinning thread takes another's core */
};

#define NAP_MIN_NS HW_MS             /* a shorter sleep is not worth waking late */
#define SPIN_MARGIN_NS (200 * HW_US) /* steps vary, and get longer with the sequence */

/* ---- errors ---- */

static const char *result_name(VkResult result)
{
    switch (result) {
    case VK_TIMEOUT:
        return "the device does not answer";
    case VK_ERROR_OUT_OF_HOST_MEMORY:
        return "out of host memory";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
        return "out of device memory";
    case VK_ERROR_DEVICE_LOST:
        return "the device was lost";
    case VK_ERROR_INITIALIZATION_FAILED:
        return "initialisation failed";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
        return "no driver is installed";
    default:
        return "unexpected result";
    }
}

int llm_vk_fail(const char *call, VkResult result, char *why)
{
    bool memory = result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY;
    return llm_why(why, memory ? -ENOMEM : -EIO, "%s: %s (%d)", call, result_name(result), result);
}

/* ---- the instance ---- */

static int make_instance(struct llm_vk_device *d, char *why)
{
    PFN_vkCreateInstance create =
        (PFN_vkCreateInstance)d->vk.GetInstanceProcAddr(NULL, "vkCreateInstance");
    if (!create)
        return llm_why(why, -ENODEV, "%s is no Vulkan loader", LOADER);
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                             .pApplicationName = "hawser llm",
                             .apiVersion = VK_API_VERSION_1_3};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &app};
    VkResult result = create(&info, NULL, &d->instance);
    if (result)
        return llm_why(why, -ENODEV, "no Vulkan here: %s (%d); install a GPU's driver or Mesa's",
                       result_name(result), result);
    return 0;
}

static int load_instance(struct llm_vk_device *d, char *why)
{
    d->library = dlopen(LOADER, RTLD_NOW | RTLD_LOCAL);
    if (!d->library)
        return llm_why(why, -ENODEV, "no Vulkan loader here: install %s", LOADER);
    *(void **)&d->vk.GetInstanceProcAddr = dlsym(d->library, "vkGetInstanceProcAddr");
    if (!d->vk.GetInstanceProcAddr)
        return llm_why(why, -ENODEV, "%s is no Vulkan loader", LOADER);
    int rc = make_instance(d, why);
    if (rc)
        return rc;
#define X(name)                                                                                    \
    d->vk.name = (PFN_vk##name)d->vk.GetInstanceProcAddr(d->instance, "vk" #name);                 \
    if (!d->vk.name)                                                                               \
        return llm_why(why, -ENODEV, "the Vulkan loader has no vk" #name);
    LLM_VK_INSTANCE_CALLS(X)
#undef X
    return 0;
}

/* ---- the device ---- */

struct candidate {
    VkPhysicalDevice device;
    VkPhysicalDeviceProperties properties;
    uint32_t family;
    bool has_clock;
    int place; /* among those that may be used */
};

/* A family that computes; preferably one without graphics. */
static bool find_family(const struct llm_vk_device *d, struct candidate *c)
{
    VkQueueFamilyProperties families[FAMILIES_MAX];
    uint32_t count = FAMILIES_MAX;
    bool found = false;
    d->vk.GetPhysicalDeviceQueueFamilyProperties(c->device, &count, families);
    for (uint32_t i = 0; i < count; i++) {
        bool only = !(families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT);
        if (!(families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) || (found && !only))
            continue;
        c->family = i;
        c->has_clock = families[i].timestampValidBits > 0;
        found = true;
        if (only)
            break;
    }
    return found;
}

static bool can_serve(const struct llm_vk_device *d, struct candidate *c)
{
    const VkPhysicalDeviceLimits *limits = &c->properties.limits;
    VkPhysicalDeviceBufferDeviceAddressFeatures addresses = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &addresses};
    VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
    VkPhysicalDeviceProperties2 named = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                         .pNext = &id};
    d->vk.GetPhysicalDeviceProperties(c->device, &c->properties);
    if (c->properties.apiVersion < VK_API_VERSION_1_2 ||
        limits->maxPushConstantsSize < PUSH_BYTES ||
        limits->maxComputeSharedMemorySize < SHARED_BYTES ||
        limits->maxComputeWorkGroupInvocations < GROUP_THREADS ||
        limits->maxComputeWorkGroupSize[0] < GROUP_THREADS)
        return false;
    d->vk.GetPhysicalDeviceFeatures2(c->device, &features);
    d->vk.GetPhysicalDeviceProperties2(c->device, &named);
    c->place = hw_visible_place(id.deviceUUID);
    if (c->place < 0)
        return false;
    return addresses.bufferDeviceAddress && find_family(d, c);
}

/* As the user has ordered them, else by type. */
static int rank(const struct candidate *c)
{
    if (hw_visible_are_chosen())
        return c->place;
    switch (c->properties.deviceType) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
        return 0;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
        return 1;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return 2;
    default:
        return 3;
    }
}

/* Inserts a candidate after those that are as good. */
static void insert(struct candidate *all, uint32_t count, const struct candidate *one)
{
    uint32_t at = count;
    for (; at > 0 && rank(&all[at - 1]) > rank(one); at--)
        all[at] = all[at - 1];
    all[at] = *one;
}

static int choose_device(struct llm_vk_device *d, uint32_t index, bool *has_clock, char *why)
{
    VkPhysicalDevice devices[DEVICES_MAX];
    struct candidate good[DEVICES_MAX];
    uint32_t count = DEVICES_MAX, good_count = 0;
    VkResult result = d->vk.EnumeratePhysicalDevices(d->instance, &count, devices);
    if (result < 0)
        return llm_why(why, -ENODEV, "no Vulkan device: %s (%d)", result_name(result), result);
    for (uint32_t i = 0; i < count; i++) {
        struct candidate c = {.device = devices[i]};
        if (can_serve(d, &c))
            insert(good, good_count++, &c);
    }
    if (good_count == 0)
        return llm_why(
            why, -ENODEV,
            "none of %u Vulkan devices has Vulkan 1.2 with buffer addresses%s; install a "
            "newer driver",
            count, hw_visible_are_chosen() ? " and was chosen" : "");
    const struct candidate *chosen = &good[index % good_count];
    d->physical = chosen->device;
    d->properties = chosen->properties;
    d->family = chosen->family;
    *has_clock = chosen->has_clock;
    return 0;
}

/* Off switches, for comparison; a malformed value is warned about and ignored. */
static bool is_on(const char *name)
{
    bool on = true;
    (void)hw_env_bool(name, true, &on);
    return on;
}

/* ---- matrix units ---- */

#ifdef LLM_VK_HAS_TILES
enum { TILE_SIDE = 16, EXTENSIONS_MAX = 1024, SHAPES_MAX = 256 };

static bool has_extension(const struct llm_vk_device *d, const char *name)
{
    PFN_vkEnumerateDeviceExtensionProperties list =
        (PFN_vkEnumerateDeviceExtensionProperties)d->vk.GetInstanceProcAddr(
            d->instance, "vkEnumerateDeviceExtensionProperties");
    VkExtensionProperties *all = calloc(EXTENSIONS_MAX, sizeof *all);
    uint32_t count = EXTENSIONS_MAX;
    bool found = false;
    if (all && list && list(d->physical, NULL, &count, all) >= 0)
        for (uint32_t i = 0; i < count && !found; i++)
            found = strcmp(all[i].extensionName, name) == 0;
    free(all);
    return found;
}

/* Products of halves, summed as `sum`. */
static bool is_shape(const VkCooperativeMatrixPropertiesKHR *p, VkComponentTypeKHR sum)
{
    return p->MSize == TILE_SIDE && p->NSize == TILE_SIDE && p->KSize == TILE_SIDE &&
           p->AType == VK_COMPONENT_TYPE_FLOAT16_KHR && p->BType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
           p->CType == sum && p->ResultType == sum && p->scope == VK_SCOPE_SUBGROUP_KHR;
}

/* Products are summed in binary32; attend_tile.comp has such sums as halves, too. */
static bool has_shapes(const struct llm_vk_device *d)
{
    PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR list =
        (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)d->vk.GetInstanceProcAddr(
            d->instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    VkCooperativeMatrixPropertiesKHR all[SHAPES_MAX];
    uint32_t count = SHAPES_MAX;
    bool floats = false, halves = false;
    for (uint32_t i = 0; i < SHAPES_MAX; i++)
        all[i] = (VkCooperativeMatrixPropertiesKHR){
            .sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
    if (!list || list(d->physical, &count, all) < 0)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        floats = floats || is_shape(&all[i], VK_COMPONENT_TYPE_FLOAT32_KHR);
        halves = halves || is_shape(&all[i], VK_COMPONENT_TYPE_FLOAT16_KHR);
    }
    return floats && halves;
}

static bool can_tile(struct llm_vk_device *d)
{
    /* The tiles are divided among subgroups of one size, which shuffle and vote. */
    const VkSubgroupFeatureFlags needs = VK_SUBGROUP_FEATURE_BASIC_BIT |
                                         VK_SUBGROUP_FEATURE_SHUFFLE_BIT |
                                         VK_SUBGROUP_FEATURE_VOTE_BIT;
    VkPhysicalDeviceSubgroupSizeControlProperties size = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
    VkPhysicalDeviceSubgroupProperties subgroup = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES, .pNext = &size};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &subgroup};
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
    VkPhysicalDeviceVulkan12Features two = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &matrix};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &two};
    const VkPhysicalDeviceLimits *limits = &d->properties.limits;
    if (d->properties.apiVersion < VK_API_VERSION_1_3 ||
        !has_extension(d, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME))
        return false;
    d->vk.GetPhysicalDeviceProperties2(d->physical, &properties);
    d->vk.GetPhysicalDeviceFeatures2(d->physical, &features);
    d->subgroup = subgroup.subgroupSize;
    return matrix.cooperativeMatrix && two.shaderFloat16 && two.vulkanMemoryModel &&
           size.minSubgroupSize == size.maxSubgroupSize &&
           (subgroup.supportedOperations & needs) == needs &&
           LLM_VK_TILE_SUBGROUPS * d->subgroup <= limits->maxComputeWorkGroupInvocations &&
           limits->maxComputeSharedMemorySize >= LLM_VK_TILE_SHARED && has_shapes(d);
}
static const char no_tiles[] =
    "fast arithmetic needs matrix units (VK_KHR_cooperative_matrix, "
    "tiles of 16 x 16 halves), which "
    "%s does not have, or has with subgroups of varying size; use --math exact";
#else
static const char no_tiles[] = "fast arithmetic on %s needs a build with glslc 2023.3 or newer; "
                               "build Hawser anew with one, or "
                               "use --math exact";

static bool can_tile(struct llm_vk_device *d)
{
    (void)d;
    return false;
}
#endif

/* The largest allocation and buffer, and whether there are integer dot products. */
static void learn_facts(struct llm_vk_device *d)
{
    bool is_1_3 = d->properties.apiVersion >= VK_API_VERSION_1_3;
    VkPhysicalDeviceMaintenance4Properties four = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
    VkPhysicalDeviceMaintenance3Properties three = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES,
        .pNext = is_1_3 ? &four : NULL};
    VkPhysicalDeviceProperties2 chain = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                         .pNext = &three};
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = is_1_3 ? &dot : NULL};
    d->vk.GetPhysicalDeviceProperties2(d->physical, &chain);
    d->vk.GetPhysicalDeviceFeatures2(d->physical, &features);
    d->vk.GetPhysicalDeviceMemoryProperties(d->physical, &d->memory);
    d->allocation_max = three.maxMemoryAllocationSize;
    if (four.maxBufferSize && four.maxBufferSize < d->allocation_max)
        d->allocation_max = four.maxBufferSize;
    d->has_dot = dot.shaderIntegerDotProduct && is_on("HAWSER_LLM_DOT");
    d->replays = is_on("HAWSER_LLM_REPLAY");
}

static int make_device(struct llm_vk_device *d, char *why)
{
    float priority = 1;
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES,
        .shaderIntegerDotProduct = VK_TRUE};
    VkPhysicalDeviceVulkan12Features two = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .pNext = d->has_dot ? &dot : NULL,
        .bufferDeviceAddress = VK_TRUE,
        .shaderFloat16 = d->has_tiles,
        .vulkanMemoryModel = d->has_tiles};
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueFamilyIndex = d->family,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = &two,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue};
#ifdef LLM_VK_HAS_TILES
    const char *names[] = {VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME};
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
        .pNext = &two,
        .cooperativeMatrix = VK_TRUE};
    if (d->has_tiles) {
        info.pNext = &matrix;
        info.enabledExtensionCount = 1;
        info.ppEnabledExtensionNames = names;
    }
#endif
    VkResult result = d->vk.CreateDevice(d->physical, &info, NULL, &d->device);
    if (result)
        return llm_vk_fail("vkCreateDevice", result, why);
#define X(name)                                                                                    \
    d->vk.name = (PFN_vk##name)d->vk.GetDeviceProcAddr(d->device, "vk" #name);                     \
    if (!d->vk.name)                                                                               \
        return llm_why(why, -ENODEV, "the Vulkan device has no vk" #name);
    LLM_VK_DEVICE_CALLS(X)
#undef X
    d->counts = (hw_driver_counts_fn *)d->vk.GetDeviceProcAddr(d->device, HW_DRIVER_COUNTS_NAME);
    d->vk.GetDeviceQueue(d->device, d->family, 0, &d->queue);
    return 0;
}

static int make_commands(struct llm_vk_device *d, bool has_clock, char *why)
{
    VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                    .queueFamilyIndex = d->family};
    VkQueryPoolCreateInfo stamps = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                    .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                    .queryCount = 2};
    VkResult result = VK_SUCCESS;
    for (uint32_t i = 0; i < LLM_VK_COMMANDS && result == VK_SUCCESS; i++)
        result = d->vk.CreateFence(d->device, &fence, NULL, &d->fences[i]);
    if (result == VK_SUCCESS)
        result = d->vk.CreateCommandPool(d->device, &pool, NULL, &d->pool);
    if (result == VK_SUCCESS) {
        VkCommandBufferAllocateInfo all = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                           .commandPool = d->pool,
                                           .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                           .commandBufferCount = LLM_VK_COMMANDS};
        result = d->vk.AllocateCommandBuffers(d->device, &all, d->buffers);
    }
    if (result == VK_SUCCESS && has_clock)
        result = d->vk.CreateQueryPool(d->device, &stamps, NULL, &d->stamps);
    return result ? llm_vk_fail("setting up a queue", result, why) : 0;
}

int llm_vk_device_open(struct llm_vk_device *d, uint32_t index, bool fast, char *why)
{
    bool has_clock = false;
    *d = (struct llm_vk_device){0};
    int rc = load_instance(d, why);
    if (rc == 0)
        rc = choose_device(d, index, &has_clock, why);
    if (rc)
        return rc;
    learn_facts(d);
    d->has_tiles = fast && can_tile(d);
    if (fast && !d->has_tiles)
        return llm_why(why, -EOPNOTSUPP, no_tiles, d->properties.deviceName);
    rc = make_device(d, why);
    return rc ? rc : make_commands(d, has_clock, why);
}

void llm_vk_device_close(struct llm_vk_device *d)
{
    if (d->queue) { /* then all functions are loaded */
        d->vk.DestroyQueryPool(d->device, d->stamps, NULL);
        d->vk.DestroyCommandPool(d->device, d->pool, NULL);
        for (uint32_t i = 0; i < LLM_VK_COMMANDS; i++)
            d->vk.DestroyFence(d->device, d->fences[i], NULL);
    }
    if (d->device && d->vk.DestroyDevice)
        d->vk.DestroyDevice(d->device, NULL);
    if (d->instance && d->vk.DestroyInstance)
        d->vk.DestroyInstance(d->instance, NULL);
    if (d->library)
        dlclose(d->library);
}

/* ---- submissions ---- */

int llm_vk_record(struct llm_vk_device *d, enum llm_vk_commands which, char *why)
{
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    d->commands = d->buffers[which];
    VkResult result = d->vk.BeginCommandBuffer(d->commands, &info);
    if (result)
        return llm_vk_fail("vkBeginCommandBuffer", result, why);
    llm_vk_barrier(d);
    return 0;
}

int llm_vk_end(struct llm_vk_device *d, char *why)
{
    VkResult result = d->vk.EndCommandBuffer(d->commands);
    return result ? llm_vk_fail("vkEndCommandBuffer", result, why) : 0;
}

/* A thread that sleeps until the end wakes about 0.1 ms late, which is much of a token.  So where
 * the expected time is known and there is a spare core, it sleeps for most of that time and then
 * spins. */
static VkResult wait_for_fence(struct llm_vk_device *d, VkFence fence, uint64_t expected_ns)
{
    VkResult result = VK_NOT_READY;
    if (expected_ns && hw_cores() >= SPIN_CORES) {
        uint64_t start = hw_now_ns(), most = expected_ns + expected_ns / 4 + SPIN_MARGIN_NS;
        uint64_t nap_ns = expected_ns / 4 * 3;
        struct timespec nap = {(time_t)(nap_ns / HW_SEC), (long)(nap_ns % HW_SEC)};
        if (nap_ns > NAP_MIN_NS)
            (void)nanosleep(&nap, NULL);
        while ((result = d->vk.GetFenceStatus(d->device, fence)) == VK_NOT_READY &&
               hw_now_ns() - start < most)
            hw_cpu_relax();
    }
    if (result == VK_NOT_READY)
        result = d->vk.WaitForFences(d->device, 1, &fence, VK_TRUE, WAIT_NS);
    return result;
}

int llm_vk_start(struct llm_vk_device *d, enum llm_vk_commands which, char *why)
{
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .commandBufferCount = 1,
                         .pCommandBuffers = &d->buffers[which]};
    assert(!d->runs[which]);
    if (d->lost)
        return llm_why(why, -EIO, "the device was lost before; open the model again");
    VkResult result = d->vk.QueueSubmit(d->queue, 1, &info, d->fences[which]);
    d->lost = result != VK_SUCCESS;
    d->runs[which] = !d->lost;
    return result ? llm_vk_fail("a submission", result, why) : 0;
}

int llm_vk_wait(struct llm_vk_device *d, enum llm_vk_commands which, uint64_t expected_ns,
                char *why)
{
    if (!d->runs[which])
        return 0;
    VkResult result = wait_for_fence(d, d->fences[which], expected_ns);
    if (result == VK_SUCCESS)
        result = d->vk.ResetFences(d->device, 1, &d->fences[which]);
    d->runs[which] = false;
    d->lost = result != VK_SUCCESS;
    return result ? llm_vk_fail("a submission", result, why) : 0;
}

void llm_vk_barrier(struct llm_vk_device *d)
{
    VkPipelineStageFlags stages =
        VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    VkAccessFlags writes = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
    VkAccessFlags reads = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;
    VkMemoryBarrier all = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                           .srcAccessMask = writes,
                           .dstAccessMask = writes | reads};
    d->vk.CmdPipelineBarrier(d->commands, stages, stages, 0, 1, &all, 0, NULL, 0, NULL);
}

void llm_vk_host_barrier(struct llm_vk_device *d)
{
    VkMemoryBarrier all = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                           .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                           .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    d->vk.CmdPipelineBarrier(d->commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
                             VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &all, 0, NULL, 0, NULL);
}
