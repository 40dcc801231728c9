/* Memory, queues and semaphores behind the generated fake driver; see venus_gpu.h. */
#include "venus_gpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "unit/venus/support/fake.h"
#include "vn_fake.gen.h"

enum {
    FILLER_BYTES = 64 << 20, /* outputs of the commands of one message */
    ENTRIES_MAX = 2048,      /* names of commands; the registry has about 700 */
    ALIGNMENT = 4096,        /* of mapped memory, as drivers align it */
};

struct gpu_object {
    struct vn_object base; /* what the generated driver encodes */
    struct gpu_object *next, **link;
    struct gpu_object *device; /* of memory and queues */

    uint8_t *bytes; /* of memory */
    size_t size;
    bool mapped;

    uint32_t family, index; /* of a queue; index also of a device, physical or not */
    bool counted;           /* a queue: the server has made its semaphore for it */

    bool counts; /* a semaphore: that one */

    uint64_t submitted, reached; /* of a semaphore: what is to be signalled, and what was */
    uint32_t delay;
    bool lost;
};

static struct {
    pthread_mutex_t lock; /* guards all but the fake driver's part: queue threads wait and read */
    struct gpu_object *objects;
    uint64_t next_id;
    struct gpu_object *asked_for; /* a queue whose semaphore comes next */
    uint64_t memory_bytes, memory_limit;
    struct gpu_mood mood;
    struct hw_rng rng;
    struct fake fake;
    struct hw_arena arena;
    struct wire_enc seen;
    struct objects named; /* by outputs */
    struct vn_driver driver;
} gpu = {.lock = PTHREAD_MUTEX_INITIALIZER};

void gpu_require(bool holds)
{
    if (!holds)
        abort();
}

static struct gpu_object *object_of(const void *handle)
{
    return (struct gpu_object *)(uintptr_t)handle;
}

void *gpu_make(uint32_t type)
{
    struct gpu_object *object = calloc(1, sizeof(*object));
    gpu_require(object);
    pthread_mutex_lock(&gpu.lock);
    object->base = (struct vn_object){.id = ++gpu.next_id, .type = type};
    object->next = gpu.objects;
    object->link = &gpu.objects;
    if (object->next)
        object->next->link = &object->next;
    gpu.objects = object;
    pthread_mutex_unlock(&gpu.lock);
    return object;
}

static void *make(struct filler *f, uint32_t type)
{
    (void)f;
    return gpu_make(type);
}

/* With the lock. */
static void end(struct gpu_object *object)
{
    *object->link = object->next;
    if (object->next)
        object->next->link = object->link;
    gpu.memory_bytes -= object->size;
    free(object->bytes);
    free(object);
}

static void end_handle(const void *handle)
{
    pthread_mutex_lock(&gpu.lock);
    if (handle)
        end(object_of(handle));
    pthread_mutex_unlock(&gpu.lock);
}

void gpu_destroyed(uint32_t type, void *handle)
{
    bool by_driver = type == VK_OBJECT_TYPE_DEVICE || type == VK_OBJECT_TYPE_DEVICE_MEMORY ||
                     type == VK_OBJECT_TYPE_SEMAPHORE;
    if (!by_driver)
        end_handle(handle);
}

/* ---- physical devices ---- */

static bool is_old(const void *device)
{
    return object_of(device)->index == 1;
}

static VKAPI_ATTR void VKAPI_CALL get_properties(VkPhysicalDevice physical,
                                                 VkPhysicalDeviceProperties *out)
{
    fake_vkGetPhysicalDeviceProperties(physical, out);
    out->apiVersion = is_old(physical) ? VK_API_VERSION_1_1 : VK_API_VERSION_1_3;
}

static VKAPI_ATTR void VKAPI_CALL get_memory_properties(VkPhysicalDevice physical,
                                                        VkPhysicalDeviceMemoryProperties *out)
{
    (void)vn_id(physical);
    *out = (VkPhysicalDeviceMemoryProperties){
        .memoryTypeCount = GPU_MEMORY_TYPES,
        .memoryTypes = {{VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0},
                        {VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                         0},
                        {VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT, 0}},
        .memoryHeapCount = 1,
        .memoryHeaps = {{.size = gpu.memory_limit}},
    };
}

/* ---- devices and queues ---- */

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
                                                    const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator,
                                                    VkDevice *out)
{
    VkResult result = fake_vkCreateDevice(physical, info, allocator, out);
    if (result >= 0)
        object_of(*out)->index = object_of(physical)->index;
    return result;
}

static VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice device,
                                                 const VkAllocationCallbacks *allocator)
{
    fake_vkDestroyDevice(device, allocator);
    pthread_mutex_lock(&gpu.lock);
    for (struct gpu_object *o = gpu.objects, *next; o; o = next) {
        next = o->next;
        if (o->device != object_of(device))
            continue;
        gpu_require(o->base.type == VK_OBJECT_TYPE_QUEUE);
        end(o);
    }
    end(object_of(device));
    pthread_mutex_unlock(&gpu.lock);
}

static VkQueue find_queue(VkDevice device, uint32_t family, uint32_t index)
{
    struct gpu_object *o = gpu.objects;
    while (o && !(o->base.type == VK_OBJECT_TYPE_QUEUE && o->device == object_of(device) &&
                  o->family == family && o->index == index))
        o = o->next;
    if (!o) {
        o = gpu_make(VK_OBJECT_TYPE_QUEUE);
        o->device = object_of(device);
        o->family = family;
        o->index = index;
    }
    gpu.asked_for = o->counted ? NULL : o;
    return (VkQueue)(void *)o;
}

static VKAPI_ATTR void VKAPI_CALL get_queue(VkDevice device, uint32_t family, uint32_t index,
                                            VkQueue *out)
{
    *out = find_queue(device, family, index);
}

static VKAPI_ATTR void VKAPI_CALL get_queue2(VkDevice device, const VkDeviceQueueInfo2 *info,
                                             VkQueue *out)
{
    /* Queues of other flags are others. */
    *out = find_queue(device, info->queueFamilyIndex ^ (info->flags << 16), info->queueIndex);
}

/* ---- memory ---- */

static VKAPI_ATTR VkResult VKAPI_CALL allocate_memory(VkDevice device,
                                                      const VkMemoryAllocateInfo *info,
                                                      const VkAllocationCallbacks *allocator,
                                                      VkDeviceMemory *out)
{
    VkResult result = fake_vkAllocateMemory(device, info, allocator, out);
    if (result < 0)
        return result;
    struct gpu_object *memory = object_of(*out);
    pthread_mutex_lock(&gpu.lock);
    gpu_require(info->allocationSize <= gpu.memory_limit - gpu.memory_bytes);
    gpu.memory_bytes += info->allocationSize;
    memory->device = object_of(device);
    memory->size = info->allocationSize;
    gpu_require(posix_memalign((void **)&memory->bytes, ALIGNMENT, memory->size + 1) == 0);
    memset(memory->bytes, 0xa5, memory->size);
    pthread_mutex_unlock(&gpu.lock);
    return result;
}

static VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice device, VkDeviceMemory memory,
                                              const VkAllocationCallbacks *allocator)
{
    fake_vkFreeMemory(device, memory, allocator);
    end_handle(memory);
}

static VKAPI_ATTR VkResult VKAPI_CALL map_memory(VkDevice device, VkDeviceMemory handle,
                                                 VkDeviceSize offset, VkDeviceSize size,
                                                 VkMemoryMapFlags flags, void **out)
{
    (void)vn_id(device), (void)flags;
    struct gpu_object *memory = object_of(handle);
    gpu_require(offset == 0 && size == VK_WHOLE_SIZE && !memory->mapped);
    if (gpu.mood.result < 0)
        return gpu.mood.result;
    pthread_mutex_lock(&gpu.lock);
    memory->mapped = true;
    pthread_mutex_unlock(&gpu.lock);
    *out = memory->bytes;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL sync_caches(VkDevice device, uint32_t count,
                                                  const VkMappedMemoryRange *ranges)
{
    gpu_require(vn_id(device) != 0);
    pthread_mutex_lock(&gpu.lock);
    for (uint32_t i = 0; i < count; i++)
        gpu_require(object_of(ranges[i].memory)->mapped);
    pthread_mutex_unlock(&gpu.lock);
    return VK_SUCCESS;
}

/* With the lock: what a batch did, here and there in all that is mapped.  A device writes while the
 * server reads, so ThreadSanitizer is not to look. */
__attribute__((no_sanitize("thread"))) static void write_memory(void)
{
    for (struct gpu_object *o = gpu.objects; o; o = o->next) {
        if (o->mapped && o->size)
            o->bytes[hw_rng_below(&gpu.rng, o->size)] ^= (uint8_t)hw_rng_u64(&gpu.rng);
    }
}

/* ---- semaphores and submissions ---- */

static VKAPI_ATTR VkResult VKAPI_CALL create_semaphore(VkDevice device,
                                                       const VkSemaphoreCreateInfo *info,
                                                       const VkAllocationCallbacks *allocator,
                                                       VkSemaphore *out)
{
    struct gpu_object *queue = gpu.asked_for;
    VkResult result = fake_vkCreateSemaphore(device, info, allocator, out);
    gpu.asked_for = NULL;
    if (result >= 0 && queue)
        queue->counted = object_of(*out)->counts = true;
    return result;
}

static VKAPI_ATTR void VKAPI_CALL destroy_semaphore(VkDevice device, VkSemaphore semaphore,
                                                    const VkAllocationCallbacks *allocator)
{
    fake_vkDestroySemaphore(device, semaphore, allocator);
    end_handle(semaphore);
}

/* One step of the device on the way to a value; with the lock. */
static VkResult step(struct gpu_object *semaphore, uint64_t value)
{
    if (semaphore->lost)
        return VK_ERROR_DEVICE_LOST;
    if (semaphore->reached >= value)
        return VK_SUCCESS;
    gpu_require(value <= semaphore->submitted);
    if (semaphore->delay > 0) {
        semaphore->delay--;
        return VK_TIMEOUT;
    }
    semaphore->reached = value;
    write_memory();
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_semaphores(VkDevice device,
                                                      const VkSemaphoreWaitInfo *info,
                                                      uint64_t timeout_ns)
{
    (void)timeout_ns;
    gpu_require(vn_id(device) != 0 && info->semaphoreCount == 1);
    pthread_mutex_lock(&gpu.lock);
    VkResult result = step(object_of(info->pSemaphores[0]), info->pValues[0]);
    pthread_mutex_unlock(&gpu.lock);
    return result;
}

/* No thread of this GPU goes on behind a batch. */
static VKAPI_ATTR VkResult VKAPI_CALL wait_idle(VkDevice device)
{
    gpu_require(vn_id(device) != 0);
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL semaphore_value(VkDevice device, VkSemaphore semaphore,
                                                      uint64_t *out)
{
    gpu_require(vn_id(device) != 0);
    pthread_mutex_lock(&gpu.lock);
    *out = object_of(semaphore)->reached;
    pthread_mutex_unlock(&gpu.lock);
    return VK_SUCCESS;
}

/* The last signal of a batch is the server's own, unless nobody waits for the batch. */
static void submit_one(VkSemaphore handle, uint64_t value)
{
    struct gpu_object *semaphore = object_of(handle);
    pthread_mutex_lock(&gpu.lock);
    gpu_require(value > semaphore->submitted);
    semaphore->submitted = value;
    semaphore->delay += gpu.mood.delay;
    semaphore->lost |= gpu.mood.lost;
    if (!semaphore->delay)
        (void)step(semaphore, value);
    pthread_mutex_unlock(&gpu.lock);
}

static bool is_counted(const VkSemaphore *signals, uint32_t count)
{
    return count > 0 && signals[count - 1] && object_of(signals[count - 1])->counts;
}

static uint64_t last_value(const void *chain, uint32_t waits, uint32_t signals)
{
    const VkBaseInStructure *node = chain;
    while (node && node->sType != VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO)
        node = node->pNext;
    gpu_require(node);
    const VkTimelineSemaphoreSubmitInfo *info = (const VkTimelineSemaphoreSubmitInfo *)node;
    gpu_require(signals > 0 && info->signalSemaphoreValueCount == signals &&
                info->waitSemaphoreValueCount == waits);
    return info->pSignalSemaphoreValues[signals - 1];
}

/* One that other processes may share, or none. */
static bool is_fence(VkFence fence)
{
    return !fence || object_of(fence)->base.type == VK_OBJECT_TYPE_FENCE;
}

static VKAPI_ATTR VkResult VKAPI_CALL queue_submit(VkQueue queue, uint32_t count,
                                                   const VkSubmitInfo *infos, VkFence fence)
{
    gpu_require(count > 0 && is_fence(fence));
    VkResult result = fake_vkQueueSubmit(queue, count, infos, fence);
    for (uint32_t i = 0; i < count && result >= 0; i++) {
        const VkSubmitInfo *info = &infos[i];
        uint32_t signals = info->signalSemaphoreCount;
        if (!is_counted(info->pSignalSemaphores, signals))
            continue;
        uint64_t value = last_value(info->pNext, info->waitSemaphoreCount, signals);
        submit_one(info->pSignalSemaphores[signals - 1], value);
    }
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL queue_submit2(VkQueue queue, uint32_t count,
                                                    const VkSubmitInfo2 *infos, VkFence fence)
{
    gpu_require(count > 0 && is_fence(fence));
    VkResult result = fake_vkQueueSubmit2(queue, count, infos, fence);
    for (uint32_t i = 0; i < count && result >= 0; i++) {
        uint32_t signals = infos[i].signalSemaphoreInfoCount;
        const VkSemaphoreSubmitInfo *last =
            signals ? &infos[i].pSignalSemaphoreInfos[signals - 1] : NULL;
        if (last && is_counted(&last->semaphore, 1))
            submit_one(last->semaphore, last->value);
    }
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_sparse(VkQueue queue, uint32_t count,
                                                  const VkBindSparseInfo *infos, VkFence fence)
{
    gpu_require(count > 0 && is_fence(fence));
    VkResult result = fake_vkQueueBindSparse(queue, count, infos, fence);
    for (uint32_t i = 0; i < count && result >= 0; i++) {
        const VkBindSparseInfo *info = &infos[i];
        uint32_t signals = info->signalSemaphoreCount;
        if (!is_counted(info->pSignalSemaphores, signals))
            continue;
        uint64_t value = last_value(info->pNext, info->waitSemaphoreCount, signals);
        submit_one(info->pSignalSemaphores[signals - 1], value);
    }
    return result;
}

/* ---- queries ---- */

static VKAPI_ATTR VkResult VKAPI_CALL query_results(VkDevice device, VkQueryPool pool,
                                                    uint32_t first, uint32_t count, size_t size,
                                                    void *out, VkDeviceSize stride,
                                                    VkQueryResultFlags flags)
{
    (void)first, (void)count, (void)stride, (void)flags;
    gpu_require(vn_id(device) != 0 && vn_id(pool) != 0);
    pthread_mutex_lock(&gpu.lock);
    VkResult result = gpu.mood.result;
    if (size > 0)
        memset(out, (int)hw_rng_below(&gpu.rng, 256), size);
    pthread_mutex_unlock(&gpu.lock);
    return result;
}

/* ---- functions by name ---- */

struct entry {
    const char *name;
    size_t at; /* in struct vn_driver */
};

static struct {
    struct entry entries[ENTRIES_MAX];
    size_t count;
    size_t next; /* after the last one found: a device's functions are all loaded in one order */
} names;

static PFN_vkVoidFunction note_name(void *data, const char *name)
{
    (void)data;
    gpu_require(names.count < ENTRIES_MAX);
    names.entries[names.count++].name = name;
    return (PFN_vkVoidFunction)(uintptr_t)names.count;
}

/* Loads a table of numbers instead of functions: each tells which name went where. */
static void note_names(void)
{
    struct vn_driver numbers;
    uintptr_t number;
    vn_driver_load(&numbers, note_name, NULL);
    for (size_t at = 0; at < sizeof(numbers); at += sizeof(number)) {
        memcpy(&number, (const char *)&numbers + at, sizeof(number));
        names.entries[number - 1].at = at;
    }
}

static PFN_vkVoidFunction function_at(size_t at)
{
    PFN_vkVoidFunction function;
    memcpy(&function, (const char *)&gpu.driver + at, sizeof(function));
    return function;
}

/* What the server asks for by name and no client may call.  Queue threads call them beside the
 * executor, so none may be the generated driver's, which records its calls for one thread. */
static const struct {
    const char *name;
    PFN_vkVoidFunction function;
} own[] = {
    {"vkMapMemory", (PFN_vkVoidFunction)map_memory},
    {"vkFlushMappedMemoryRanges", (PFN_vkVoidFunction)sync_caches},
    {"vkInvalidateMappedMemoryRanges", (PFN_vkVoidFunction)sync_caches},
    {"vkDeviceWaitIdle", (PFN_vkVoidFunction)wait_idle},
    {"vkWaitSemaphores", (PFN_vkVoidFunction)wait_semaphores},
};

static PFN_vkVoidFunction find_own(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        if (strcmp(name, own[i].name) == 0)
            return own[i].function;
    }
    return NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_function(VkDevice device,
                                                                    const char *name)
{
    gpu_require(vn_id(device) != 0);
    if (is_old(device) && (strncmp(name, "vkQueueSubmit2", 14) == 0 || strstr(name, "DebugUtils")))
        return NULL;
    for (size_t i = 0; i < names.count; i++) {
        const struct entry *entry = &names.entries[(names.next + i) % names.count];
        if (strcmp(entry->name, name) == 0) {
            names.next += i + 1;
            return function_at(entry->at);
        }
    }
    return find_own(name);
}

/* ---- life ---- */

static void prepare_driver(void)
{
    gpu.driver = fake_driver;
    gpu.driver.vkAllocateMemory = allocate_memory;
    gpu.driver.vkCreateDevice = create_device;
    gpu.driver.vkDestroyDevice = destroy_device;
    gpu.driver.vkCreateSemaphore = create_semaphore;
    gpu.driver.vkDestroySemaphore = destroy_semaphore;
    gpu.driver.vkFreeMemory = free_memory;
    gpu.driver.vkGetDeviceQueue = get_queue;
    gpu.driver.vkGetDeviceQueue2 = get_queue2;
    gpu.driver.vkGetPhysicalDeviceMemoryProperties = get_memory_properties;
    gpu.driver.vkGetPhysicalDeviceProperties = get_properties;
    gpu.driver.vkGetQueryPoolResults = query_results;        /* queue threads call it */
    gpu.driver.vkGetSemaphoreCounterValue = semaphore_value; /* and this */
    gpu.driver.vkQueueBindSparse = bind_sparse;
    gpu.driver.vkQueueSubmit = queue_submit;
    gpu.driver.vkQueueSubmit2 = queue_submit2;
    note_names();
    for (size_t i = 0; i < names.count; i++)
        gpu_require(!find_own(names.entries[i].name)); /* or it belongs above */
}

void gpu_start(uint64_t memory_limit)
{
    if (names.count == 0) {
        prepare_driver();
        hw_arena_init(&gpu.arena, FILLER_BYTES);
        wire_enc_init(&gpu.seen, WIRE_MESSAGE_MAX);
    }
    memset(&gpu.named, 0, sizeof(gpu.named));
    gpu.next_id = 0;
    gpu.memory_limit = memory_limit;
    hw_rng_seed(&gpu.rng, 1);
    gpu.fake = (struct fake){.filler = {.arena = &gpu.arena, .objects = &gpu.named, .make = make},
                             .seen = &gpu.seen};
    hw_rng_seed(&gpu.fake.filler.rng, 1);
    fake_now = &gpu.fake;
    gpu_set_mood(&(struct gpu_mood){0});
}

void gpu_stop(void)
{
    pthread_mutex_lock(&gpu.lock);
    while (gpu.objects)
        end(gpu.objects);
    gpu_require(gpu.memory_bytes == 0);
    pthread_mutex_unlock(&gpu.lock);
}

void gpu_open(struct vns_instance *instance)
{
    *instance = (struct vns_instance){
        .driver = gpu.driver,
        .handle = gpu_make(VK_OBJECT_TYPE_INSTANCE),
        .version = VK_API_VERSION_1_3,
        .get_device = get_device_function,
        .devices = calloc(GPU_PHYSICAL_DEVICES, sizeof(*instance->devices)),
        .device_count = GPU_PHYSICAL_DEVICES,
    };
    gpu_require(instance->devices);
    for (uint32_t i = 0; i < GPU_PHYSICAL_DEVICES; i++) {
        struct gpu_object *physical = gpu_make(VK_OBJECT_TYPE_PHYSICAL_DEVICE);
        physical->index = i;
        instance->devices[i] = (VkPhysicalDevice)(void *)physical;
    }
}

void gpu_set_mood(const struct gpu_mood *mood)
{
    pthread_mutex_lock(&gpu.lock);
    gpu.mood = *mood;
    pthread_mutex_unlock(&gpu.lock);
    gpu.fake.result = mood->result;
    hw_arena_reset(&gpu.arena);
    wire_enc_reset(&gpu.seen);
}
