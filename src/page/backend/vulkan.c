/* page/backend/vulkan.c - pages of any GPU with Vulkan's sparse binding.
 *
 * The range is one sparse buffer, or several where a buffer may not be that large.  Binding a batch
 * is one vkQueueBindSparse and the wait for it.  Handles are pieces of larger allocations (slabs),
 * because drivers limit the number of allocations.  The loader is opened at run time. */
#include "base/grow.h"
#include "page/backend/backend.h"

#include "base/clock.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#define SLAB_BYTES (UINT64_C(32) << 20)   /* 4096 allocations, the least a driver has: 128 GiB */
#define STAGING_BYTES (UINT64_C(4) << 20) /* contents move through it */
#define WAIT_NS (30 * HW_SEC)             /* a device that takes longer is lost */

enum {
    SLAB_PIECES_MAX = 64, /* of a slab: a bit each */
    DEVICES_MAX = 16,
    FAMILIES_MAX = 16
};

#define VK_INSTANCE_CALLS(X)                                                                       \
    X(DestroyInstance)                                                                             \
    X(EnumeratePhysicalDevices)                                                                    \
    X(GetPhysicalDeviceProperties2)                                                                \
    X(GetPhysicalDeviceFeatures)                                                                   \
    X(GetPhysicalDeviceMemoryProperties)                                                           \
    X(GetPhysicalDeviceQueueFamilyProperties)                                                      \
    X(CreateDevice)                                                                                \
    X(GetDeviceProcAddr)

#define VK_DEVICE_CALLS(X)                                                                         \
    X(DestroyDevice)                                                                               \
    X(GetDeviceQueue)                                                                              \
    X(DeviceWaitIdle)                                                                              \
    X(CreateBuffer)                                                                                \
    X(DestroyBuffer)                                                                               \
    X(GetBufferMemoryRequirements)                                                                 \
    X(AllocateMemory)                                                                              \
    X(FreeMemory)                                                                                  \
    X(BindBufferMemory)                                                                            \
    X(MapMemory)                                                                                   \
    X(QueueBindSparse)                                                                             \
    X(QueueSubmit)                                                                                 \
    X(CreateFence)                                                                                 \
    X(DestroyFence)                                                                                \
    X(ResetFences)                                                                                 \
    X(WaitForFences)                                                                               \
    X(CreateCommandPool)                                                                           \
    X(DestroyCommandPool)                                                                          \
    X(AllocateCommandBuffers)                                                                      \
    X(BeginCommandBuffer)                                                                          \
    X(EndCommandBuffer)                                                                            \
    X(CmdCopyBuffer)                                                                               \
    X(CmdPipelineBarrier)

struct vk_api {
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
#define X(name) PFN_vk##name name;
    VK_INSTANCE_CALLS(X)
    VK_DEVICE_CALLS(X)
#undef X
};

struct slab {
    VkDeviceMemory memory; /* VK_NULL_HANDLE: this entry is free */
    uint64_t used;         /* a bit a piece */
};

struct vulkan_backend {
    struct page_backend base;
    void *library;
    struct vk_api vk;
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    uint32_t family, memory_type, staging_type;
    uint64_t buffer_max, space_max;
    bool joined, residency;

    uint64_t range_bytes, piece_bytes, chunk_bytes;
    VkBuffer *chunks; /* the range, chunk_bytes each but for the last */
    uint32_t chunk_count;
    VkSparseMemoryBind *binds; /* of the batch at hand */
    VkSparseBufferMemoryBindInfo *infos;
    size_t binds_room;

    VkFence fence;
    VkCommandPool pool;
    VkCommandBuffer commands;
    VkBuffer staging;
    VkDeviceMemory staging_memory;
    void *staging_map;

    pthread_mutex_t lock; /* guards the slabs; never held across a call of the driver */
    struct slab *slabs;
    uint32_t slab_count;
    size_t slab_room;
    uint32_t slab_pieces;      /* of a slab */
    uint64_t taken, taken_max; /* pieces */
};

static struct vulkan_backend *vulkan_of(struct page_backend *b)
{
    return (struct vulkan_backend *)b;
}

static const char *result_name(VkResult result)
{
    switch (result) {
    case VK_TIMEOUT:
        return "VK_TIMEOUT";
    case VK_ERROR_OUT_OF_HOST_MEMORY:
        return "VK_ERROR_OUT_OF_HOST_MEMORY";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
        return "VK_ERROR_OUT_OF_DEVICE_MEMORY";
    case VK_ERROR_DEVICE_LOST:
        return "VK_ERROR_DEVICE_LOST";
    case VK_ERROR_TOO_MANY_OBJECTS:
        return "VK_ERROR_TOO_MANY_OBJECTS";
    case VK_ERROR_INITIALIZATION_FAILED:
        return "VK_ERROR_INITIALIZATION_FAILED";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
        return "no Vulkan driver is installed; install a GPU's or Mesa's";
    default:
        return "VkResult";
    }
}

static int fail(int rc, const char *call, VkResult result, struct page_error *why)
{
    return page_fail(why, rc, result, "%s: %s (%d)", call, result_name(result), result);
}

/* ---- the device ---- */

static int load_instance(struct vulkan_backend *v, const char *library, struct page_error *why)
{
    v->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!v->library)
        return page_fail(why, -ENODEV, 0, "no Vulkan loader here: cannot open %s", library);
    *(void **)&v->vk.GetInstanceProcAddr = dlsym(v->library, "vkGetInstanceProcAddr");
    PFN_vkCreateInstance create = NULL;
    if (v->vk.GetInstanceProcAddr)
        create = (PFN_vkCreateInstance)v->vk.GetInstanceProcAddr(NULL, "vkCreateInstance");
    if (!create)
        return page_fail(why, -ENODEV, 0, "%s is no Vulkan loader", library);
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                             .pApplicationName = "hawser pages",
                             .apiVersion = VK_API_VERSION_1_3};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &app};
    VkResult result = create(&info, NULL, &v->instance);
    if (result)
        return fail(-ENODEV, "vkCreateInstance", result, why);
#define X(name)                                                                                    \
    v->vk.name = (PFN_vk##name)v->vk.GetInstanceProcAddr(v->instance, "vk" #name);                 \
    if (!v->vk.name)                                                                               \
        return page_fail(why, -ENODEV, 0, "the Vulkan loader has no vk" #name);
    VK_INSTANCE_CALLS(X)
#undef X
    return 0;
}

/* The first queue family that binds and copies; false when there is none. */
static bool find_family(const struct vulkan_backend *v, VkPhysicalDevice device, uint32_t *out)
{
    VkQueueFamilyProperties families[FAMILIES_MAX];
    uint32_t count = FAMILIES_MAX;
    v->vk.GetPhysicalDeviceQueueFamilyProperties(device, &count, families);
    for (uint32_t i = 0; i < count; i++) {
        VkQueueFlags copies = VK_QUEUE_TRANSFER_BIT | VK_QUEUE_COMPUTE_BIT | VK_QUEUE_GRAPHICS_BIT;
        if ((families[i].queueFlags & VK_QUEUE_SPARSE_BINDING_BIT) &&
            (families[i].queueFlags & copies)) {
            *out = i;
            return true;
        }
    }
    return false;
}

static int choose_device(struct vulkan_backend *v, uint32_t wanted, struct page_error *why)
{
    VkPhysicalDevice all[DEVICES_MAX], usable[DEVICES_MAX];
    uint32_t families[DEVICES_MAX], count = DEVICES_MAX, good = 0;
    VkResult result = v->vk.EnumeratePhysicalDevices(v->instance, &count, all);
    if (result < 0)
        return fail(-ENODEV, "vkEnumeratePhysicalDevices", result, why);
    for (uint32_t i = 0; i < count; i++) {
        VkPhysicalDeviceFeatures features;
        v->vk.GetPhysicalDeviceFeatures(all[i], &features);
        if (features.sparseBinding && find_family(v, all[i], &families[good]))
            usable[good++] = all[i];
    }
    if (good == 0)
        return page_fail(why, -ENODEV, 0, "none of %u Vulkan devices has sparse binding", count);
    v->physical = usable[wanted % good];
    v->family = families[wanted % good];
    return 0;
}

static int make_device(struct vulkan_backend *v, struct page_error *why)
{
    VkPhysicalDeviceFeatures has, wants = {.sparseBinding = VK_TRUE};
    float priority = 1;
    v->vk.GetPhysicalDeviceFeatures(v->physical, &has);
    v->residency = has.sparseResidencyBuffer;
    wants.sparseResidencyBuffer = has.sparseResidencyBuffer;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueFamilyIndex = v->family,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue,
                               .pEnabledFeatures = &wants};
    VkResult result = v->vk.CreateDevice(v->physical, &info, NULL, &v->device);
    if (result)
        return fail(-ENODEV, "vkCreateDevice", result, why);
#define X(name)                                                                                    \
    v->vk.name = (PFN_vk##name)v->vk.GetDeviceProcAddr(v->device, "vk" #name);                     \
    if (!v->vk.name)                                                                               \
        return page_fail(why, -ENODEV, 0, "the Vulkan device has no vk" #name);
    VK_DEVICE_CALLS(X)
#undef X
    v->vk.GetDeviceQueue(v->device, v->family, 0, &v->queue);
    return 0;
}

static VkResult make_buffer(struct vulkan_backend *v, uint64_t bytes, bool sparse, VkBuffer *out)
{
    VkBufferCreateFlags flags = VK_BUFFER_CREATE_SPARSE_BINDING_BIT;
    if (v->residency)
        flags |= VK_BUFFER_CREATE_SPARSE_RESIDENCY_BIT;
    VkBufferUsageFlags usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .flags = sparse ? flags : 0,
                               .size = bytes,
                               .usage = sparse ? usage | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT : usage,
                               .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
    return v->vk.CreateBuffer(v->device, &info, NULL, out);
}

/* A memory type of `bits` with all of `flags`, else any of `bits`. */
static uint32_t memory_type(const VkPhysicalDeviceMemoryProperties *m, uint32_t bits,
                            VkMemoryPropertyFlags flags)
{
    for (uint32_t i = 0; i < m->memoryTypeCount; i++) {
        if ((bits >> i & 1) && (m->memoryTypes[i].propertyFlags & flags) == flags)
            return i;
    }
    return bits ? (uint32_t)__builtin_ctz(bits) : 0;
}

static int learn_facts(struct vulkan_backend *v, uint64_t memory_bytes, struct page_error *why)
{
    VkPhysicalDeviceMaintenance4Properties four = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
    VkPhysicalDeviceProperties2 chain = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                         .pNext = &four};
    VkPhysicalDeviceMemoryProperties memory;
    VkMemoryRequirements needs;
    VkBuffer probe;
    struct page_facts *f = &v->base.facts;
    v->vk.GetPhysicalDeviceProperties2(v->physical, &chain);
    v->vk.GetPhysicalDeviceMemoryProperties(v->physical, &memory);
    VkResult result = make_buffer(v, PAGE_BYTES_DEFAULT, true, &probe);
    if (result)
        return fail(-EIO, "vkCreateBuffer", result, why);
    v->vk.GetBufferMemoryRequirements(v->device, probe, &needs);
    v->vk.DestroyBuffer(v->device, probe, NULL);
    v->memory_type =
        memory_type(&memory, needs.memoryTypeBits, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
    v->staging_type =
        memory_type(&memory, UINT32_MAX,
                    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
    v->space_max = chain.properties.limits.sparseAddressSpaceSize;
    v->buffer_max = four.maxBufferSize ? four.maxBufferSize : v->space_max;
    uint64_t heap = memory.memoryHeaps[memory.memoryTypes[v->memory_type].heapIndex].size;
    f->granularity = needs.alignment;
    f->memory_bytes = memory_bytes && memory_bytes < heap ? memory_bytes : heap;
    bool strict = v->residency && chain.properties.sparseProperties.residencyNonResidentStrict;
    f->stray = strict ? PAGE_STRAY_STRICT : PAGE_STRAY_FAULTS;
    snprintf(f->device, sizeof f->device, "%.120s", chain.properties.deviceName);
    return 0;
}

/* What reading and writing contents takes. */
static int make_staging(struct vulkan_backend *v, struct page_error *why)
{
    VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                    .queueFamilyIndex = v->family};
    VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                   .allocationSize = STAGING_BYTES,
                                   .memoryTypeIndex = v->staging_type};
    VkResult result = v->vk.CreateFence(v->device, &fence, NULL, &v->fence);
    if (result == VK_SUCCESS)
        result = v->vk.CreateCommandPool(v->device, &pool, NULL, &v->pool);
    if (result == VK_SUCCESS) {
        VkCommandBufferAllocateInfo commands = {.sType =
                                                    VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                                .commandPool = v->pool,
                                                .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                                .commandBufferCount = 1};
        result = v->vk.AllocateCommandBuffers(v->device, &commands, &v->commands);
    }
    if (result == VK_SUCCESS)
        result = make_buffer(v, STAGING_BYTES, false, &v->staging);
    if (result == VK_SUCCESS)
        result = v->vk.AllocateMemory(v->device, &memory, NULL, &v->staging_memory);
    if (result == VK_SUCCESS)
        result = v->vk.BindBufferMemory(v->device, v->staging, v->staging_memory, 0);
    if (result == VK_SUCCESS)
        result =
            v->vk.MapMemory(v->device, v->staging_memory, 0, STAGING_BYTES, 0, &v->staging_map);
    return result ? fail(-EIO, "setting up copies", result, why) : 0;
}

static void destroy_objects(struct vulkan_backend *v)
{
    (void)v->vk.DeviceWaitIdle(v->device);
    for (uint32_t i = 0; i < v->chunk_count; i++)
        v->vk.DestroyBuffer(v->device, v->chunks[i], NULL);
    for (uint32_t i = 0; i < v->slab_count; i++)
        v->vk.FreeMemory(v->device, v->slabs[i].memory, NULL);
    v->vk.DestroyBuffer(v->device, v->staging, NULL);
    v->vk.FreeMemory(v->device, v->staging_memory, NULL);
    v->vk.DestroyCommandPool(v->device, v->pool, NULL);
    v->vk.DestroyFence(v->device, v->fence, NULL);
}

static void vulkan_close(struct page_backend *b)
{
    struct vulkan_backend *v = vulkan_of(b);
    if (v->device && v->queue)
        destroy_objects(v);
    if (v->device && v->vk.DestroyDevice)
        v->vk.DestroyDevice(v->device, NULL);
    if (v->instance && v->vk.DestroyInstance)
        v->vk.DestroyInstance(v->instance, NULL);
    if (v->library)
        dlclose(v->library);
    pthread_mutex_destroy(&v->lock);
    free(v->chunks);
    free(v->binds);
    free(v->infos);
    free(v->slabs);
    free(v);
}

static int vulkan_open(const struct page_backend_config *config, struct page_backend **out,
                       struct page_error *why)
{
    struct vulkan_backend *v = calloc(1, sizeof *v);
    if (!v)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    v->base.ops = &page_backend_vulkan;
    v->joined = !config->not_joined;
    pthread_mutex_init(&v->lock, NULL);
    int rc = load_instance(v, config->library ? config->library : "libvulkan.so.1", why);
    if (rc == 0)
        rc = choose_device(v, config->device, why);
    if (rc == 0)
        rc = make_device(v, why);
    if (rc == 0)
        rc = learn_facts(v, config->memory_bytes, why);
    if (rc == 0)
        rc = make_staging(v, why);
    if (rc) {
        vulkan_close(&v->base);
        return rc;
    }
    *out = &v->base;
    return 0;
}

/* ---- the range ---- */

static int make_chunks(struct vulkan_backend *v, struct page_error *why)
{
    uint64_t count = (v->range_bytes + v->chunk_bytes - 1) / v->chunk_bytes;
    v->chunks = calloc(count, sizeof *v->chunks);
    v->infos = calloc(count, sizeof *v->infos);
    if (!v->chunks || !v->infos)
        return page_fail(why, -ENOMEM, 0, "out of memory");
    for (uint64_t at = 0; at < v->range_bytes; at += v->chunk_bytes) {
        uint64_t left = v->range_bytes - at;
        VkResult result = make_buffer(v, left < v->chunk_bytes ? left : v->chunk_bytes, true,
                                      &v->chunks[v->chunk_count]);
        if (result)
            return fail(-ENOMEM, "vkCreateBuffer", result, why);
        v->chunk_count++;
    }
    return 0;
}

static int vulkan_reserve(struct page_backend *b, uint64_t range_bytes, uint64_t piece_bytes,
                          struct page_error *why)
{
    struct vulkan_backend *v = vulkan_of(b);
    assert(!v->chunks && piece_bytes % b->facts.granularity == 0);
    if (range_bytes > v->space_max || piece_bytes > v->buffer_max)
        return page_fail(why, -E2BIG, 0, "%llu MiB of sparse addresses; the device has %llu",
                         (unsigned long long)(range_bytes >> 20),
                         (unsigned long long)(v->space_max >> 20));
    uint64_t slab_pieces = SLAB_BYTES / piece_bytes;
    v->slab_pieces = slab_pieces < 1                 ? 1
                     : slab_pieces > SLAB_PIECES_MAX ? SLAB_PIECES_MAX
                                                     : (uint32_t)slab_pieces;
    v->range_bytes = range_bytes;
    v->piece_bytes = piece_bytes;
    v->chunk_bytes = v->buffer_max / piece_bytes * piece_bytes;
    v->taken_max = b->facts.memory_bytes / piece_bytes;
    return make_chunks(v, why);
}

/* ---- handles: slab * SLAB_PIECES_MAX + piece + 1 ---- */

/* A free piece of a slab that is there; 0 when there is none. */
static page_handle take_slot(struct vulkan_backend *v)
{
    uint64_t all = v->slab_pieces == 64 ? UINT64_MAX : (UINT64_C(1) << v->slab_pieces) - 1;
    for (uint32_t i = 0; i < v->slab_count; i++) {
        struct slab *s = &v->slabs[i];
        if (!s->memory || s->used == all)
            continue;
        uint32_t piece = (uint32_t)__builtin_ctzll(~s->used);
        s->used |= UINT64_C(1) << piece;
        return (page_handle)i * SLAB_PIECES_MAX + piece + 1;
    }
    return 0;
}

/* Puts new memory into the table with its first piece taken; 0 when out of memory. */
static page_handle add_slab(struct vulkan_backend *v, VkDeviceMemory memory)
{
    uint32_t i = 0;
    while (i < v->slab_count && v->slabs[i].memory)
        i++;
    if (!hw_grow(&v->slabs, &v->slab_room, (size_t)i + 1, sizeof *v->slabs))
        return 0;
    v->slabs[i] = (struct slab){.memory = memory, .used = 1};
    if (i == v->slab_count)
        v->slab_count++;
    return (page_handle)i * SLAB_PIECES_MAX + 1;
}

static int create_slab(struct vulkan_backend *v, page_handle *out, struct page_error *why)
{
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = v->slab_pieces * v->piece_bytes,
                                 .memoryTypeIndex = v->memory_type};
    VkDeviceMemory memory;
    VkResult result = v->vk.AllocateMemory(v->device, &info, NULL, &memory);
    if (result)
        return fail(-ENOMEM, "vkAllocateMemory", result, why);
    pthread_mutex_lock(&v->lock);
    page_handle handle = add_slab(v, memory);
    pthread_mutex_unlock(&v->lock);
    if (!handle) {
        v->vk.FreeMemory(v->device, memory, NULL);
        return page_fail(why, -ENOMEM, 0, "out of memory");
    }
    *out = handle;
    return 0;
}

static int vulkan_create(struct page_backend *b, page_handle *out, struct page_error *why)
{
    struct vulkan_backend *v = vulkan_of(b);
    pthread_mutex_lock(&v->lock);
    bool full = v->taken >= v->taken_max;
    page_handle handle = full ? 0 : take_slot(v);
    v->taken += !full;
    pthread_mutex_unlock(&v->lock);
    if (full)
        return page_fail(why, -ENOMEM, 0, "all %llu pieces of %s are taken",
                         (unsigned long long)v->taken_max, b->facts.device);
    int rc = handle ? 0 : create_slab(v, &handle, why);
    if (rc) {
        pthread_mutex_lock(&v->lock);
        v->taken--;
        pthread_mutex_unlock(&v->lock);
        return rc;
    }
    *out = handle;
    return 0;
}

static void vulkan_release(struct page_backend *b, page_handle handle)
{
    struct vulkan_backend *v = vulkan_of(b);
    VkDeviceMemory empty = VK_NULL_HANDLE;
    pthread_mutex_lock(&v->lock);
    struct slab *s = &v->slabs[(handle - 1) / SLAB_PIECES_MAX];
    assert(s->used >> (handle - 1) % SLAB_PIECES_MAX & 1);
    s->used &= ~(UINT64_C(1) << (handle - 1) % SLAB_PIECES_MAX);
    v->taken--;
    if (s->used == 0) {
        empty = s->memory;
        s->memory = VK_NULL_HANDLE;
    }
    pthread_mutex_unlock(&v->lock);
    v->vk.FreeMemory(v->device, empty, NULL);
}

/* ---- binding ---- */

static int make_room(struct vulkan_backend *v, size_t count)
{
    if (count <= v->binds_room)
        return 0;
    VkSparseMemoryBind *more = realloc(v->binds, count * sizeof *more);
    if (!more)
        return -ENOMEM;
    v->binds = more;
    v->binds_room = count;
    return 0;
}

static VkSparseMemoryBind sparse_bind(struct vulkan_backend *v, const struct page_bind *bind,
                                      bool bound)
{
    VkSparseMemoryBind out = {.resourceOffset = bind->offset % v->chunk_bytes,
                              .size = v->piece_bytes};
    if (!bound)
        return out;
    pthread_mutex_lock(&v->lock);
    out.memory = v->slabs[(bind->handle - 1) / SLAB_PIECES_MAX].memory;
    pthread_mutex_unlock(&v->lock);
    out.memoryOffset = (bind->handle - 1) % SLAB_PIECES_MAX * v->piece_bytes;
    return out;
}

/* Whether `next` goes on where `last` ends, in the range and, if bound, in the same memory. */
static bool goes_on(const VkSparseMemoryBind *last, const VkSparseMemoryBind *next)
{
    return last->resourceOffset + last->size == next->resourceOffset &&
           last->memory == next->memory &&
           (!next->memory || last->memoryOffset + last->size == next->memoryOffset);
}

/* One submission for all, which are sorted and so lie together by chunk; a run is one bind. */
static VkResult submit_binds(struct vulkan_backend *v, const struct page_bind *binds, size_t count,
                             bool bound)
{
    uint32_t infos = 0, used = 0;
    uint64_t last = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        uint64_t chunk = binds[i].offset / v->chunk_bytes;
        VkSparseMemoryBind bind = sparse_bind(v, &binds[i], bound);
        if (chunk == last && goes_on(&v->binds[used - 1], &bind)) {
            v->binds[used - 1].size += bind.size;
            continue;
        }
        if (chunk != last)
            v->infos[infos++] = (VkSparseBufferMemoryBindInfo){.buffer = v->chunks[chunk],
                                                               .pBinds = &v->binds[used]};
        v->binds[used++] = bind;
        v->infos[infos - 1].bindCount++;
        last = chunk;
    }
    VkBindSparseInfo info = {.sType = VK_STRUCTURE_TYPE_BIND_SPARSE_INFO,
                             .bufferBindCount = infos,
                             .pBufferBinds = v->infos};
    VkResult result = v->vk.ResetFences(v->device, 1, &v->fence);
    if (result == VK_SUCCESS)
        result = v->vk.QueueBindSparse(v->queue, 1, &info, v->fence);
    return result ? result : v->vk.WaitForFences(v->device, 1, &v->fence, VK_TRUE, WAIT_NS);
}

static VkResult change_all(struct vulkan_backend *v, const struct page_bind *binds, size_t count,
                           bool bound, size_t *failed)
{
    size_t step = v->joined ? count : 1;
    VkResult result = VK_SUCCESS;
    for (*failed = 0; *failed < count && result == VK_SUCCESS;) {
        result = submit_binds(v, binds + *failed, step, bound);
        if (result == VK_SUCCESS)
            *failed += step;
    }
    return result;
}

/* A submission that failed may have done any part of its work, so all is undone. */
static int change(struct vulkan_backend *v, const struct page_bind *binds, size_t count, bool bound,
                  size_t *failed, struct page_error *why)
{
    size_t scrap;
    if (make_room(v, count)) {
        *failed = 0;
        return page_fail(why, -EIO, 0, "out of memory for %zu binds", count);
    }
    VkResult result = change_all(v, binds, count, bound, failed);
    if (result == VK_SUCCESS)
        return 0;
    int rc = fail(-EIO, "vkQueueBindSparse", result, why);
    if (change_all(v, binds, count, !bound, &scrap))
        why->rc = rc = -ENOTRECOVERABLE;
    return rc;
}

static int vulkan_bind(struct page_backend *b, const struct page_bind *binds, size_t count,
                       size_t *failed, struct page_error *why)
{
    return change(vulkan_of(b), binds, count, true, failed, why);
}

static int vulkan_unbind(struct page_backend *b, const struct page_bind *binds, size_t count,
                         size_t *failed, struct page_error *why)
{
    return change(vulkan_of(b), binds, count, false, failed, why);
}

static int vulkan_finish(struct page_backend *b, struct page_error *why)
{
    struct vulkan_backend *v = vulkan_of(b);
    VkResult result = v->vk.DeviceWaitIdle(v->device);
    return result ? fail(-EIO, "vkDeviceWaitIdle", result, why) : 0;
}

/* ---- contents ---- */

static VkResult copy_staged(struct vulkan_backend *v, uint64_t offset, uint64_t len, bool in)
{
    VkBuffer chunk = v->chunks[offset / v->chunk_bytes];
    VkBufferCopy region = {.srcOffset = in ? 0 : offset % v->chunk_bytes,
                           .dstOffset = in ? offset % v->chunk_bytes : 0,
                           .size = len};
    VkMemoryBarrier to_host = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                               .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                               .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                      .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .commandBufferCount = 1,
                           .pCommandBuffers = &v->commands};
    VkResult result = v->vk.BeginCommandBuffer(v->commands, &begin);
    if (result)
        return result;
    v->vk.CmdCopyBuffer(v->commands, in ? v->staging : chunk, in ? chunk : v->staging, 1, &region);
    v->vk.CmdPipelineBarrier(v->commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
                             VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host, 0, NULL, 0, NULL);
    result = v->vk.EndCommandBuffer(v->commands);
    if (result == VK_SUCCESS)
        result = v->vk.ResetFences(v->device, 1, &v->fence);
    if (result == VK_SUCCESS)
        result = v->vk.QueueSubmit(v->queue, 1, &submit, v->fence);
    return result ? result : v->vk.WaitForFences(v->device, 1, &v->fence, VK_TRUE, WAIT_NS);
}

static int vulkan_copy(struct page_backend *b, uint64_t offset, void *data, size_t len, bool in,
                       struct page_error *why)
{
    struct vulkan_backend *v = vulkan_of(b);
    for (size_t at = 0, n; at < len; at += n) {
        n = len - at < STAGING_BYTES ? len - at : STAGING_BYTES;
        if (in)
            memcpy(v->staging_map, (uint8_t *)data + at, n);
        VkResult result = copy_staged(v, offset + at, n, in);
        if (result)
            return fail(-EIO, "vkCmdCopyBuffer", result, why);
        if (!in)
            memcpy((uint8_t *)data + at, v->staging_map, n);
    }
    return 0;
}

const struct page_backend_ops page_backend_vulkan = {
    .name = "vulkan",
    .open = vulkan_open,
    .close = vulkan_close,
    .reserve = vulkan_reserve,
    .create = vulkan_create,
    .release = vulkan_release,
    .bind = vulkan_bind,
    .unbind = vulkan_unbind,
    .finish = vulkan_finish,
    .copy = vulkan_copy,
};
