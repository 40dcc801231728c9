/* What a hostile server tells a Vulkan program's process: pushes for mapped memory, queues and
 * debug messengers, and answers to what the driver asks.  The driver's own link reads them, from a
 * server in this thread.  Whatever comes, calls end with a VkResult, no more work counts as done
 * than was submitted, and all can be taken down.
 *
 * The input is a row of records {u8 kind, u16 bytes, bytes}.  A kind below CALL is a push of that
 * method, with HELD one that arrives with what comes next.  Another is one of `calls`, which is
 * answered with the bytes, with FAILS by an error, and with SILENT not at all.
 *
 * Ids: the device 1, queues 2 and 3, the fence 4, the timeline 5, a query pool 6, mapped memory 7,
 * 8, whose pages can be dropped where the kernel lets us, and 9, whose whole pages are awaited; a
 * pipeline 10. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "fuzz.h"
#include "rpc/client.h"
#include "server.h"
#include "venus/client/device/debug.h"
#include "venus/client/device/device.h"
#include "venus/client/device/image_formats.h"
#include "venus/client/memory/fetch.h"
#include "venus/client/memory/memory.h"
#include "venus/client/object/objects.h"
#include "venus/client/object/query.h"
#include "venus/client/object/sync.h"
#include "venus/client/submit/queue.h"
#include "venus/common/protocol.h"
#include "wire/le.h"

enum {
    CALL = 0x80, /* of a kind */
    HELD = 0x40,
    FAILS = 0x40,
    SILENT = 0x20,
    METHODS = 0x10,
    HEAD = 3, /* bytes of a record before its own */

    QUEUES = 2,
    MEMORIES = 3,
    MEMORY_BYTES = 5 * VN_PAGE_BYTES + 1000,
    QUERIES = 3,
    FOUND_MAX = 3, /* sparse formats */

    GUARD_BYTES = 1 << 20,
};

static struct {
    struct vnc_debug *debug;
    struct vnc_pushes *pushes;
    struct vnc_link *link;
    struct vnc_physical_device physical;
    struct vnc_device *device;
    struct vnc_queue *queues[QUEUES];
    struct vnc_fence *fence;
    struct vnc_semaphore *timeline;
    struct vn_object *query_pool, *pipeline;
    struct vnc_memory *memories[MEMORIES];
    uint64_t value; /* of the timeline, as submitted */
} rig;

static PFN_vkVoidFunction entry(const struct vnc_entry *table, const char *name)
{
    while (strcmp(table->name, name) != 0)
        table++;
    return table->function;
}
#define ENTRY(table, name) ((PFN_##name)entry(vnc_entries_##table, #name))
#define DEVICE VNC_HANDLE(VkDevice, rig.device)
#define PHYSICAL VNC_HANDLE(VkPhysicalDevice, &rig.physical)

/* ---- what the program does ---- */

static void read_news(void)
{
    vnc_link_poll(rig.link);
}

static void submit_to(struct vnc_queue *queue, VkFence fence)
{
    VkSemaphore signal = VNC_HANDLE(VkSemaphore, rig.timeline);
    uint64_t value = ++rig.value;
    VkTimelineSemaphoreSubmitInfo values = {.sType =
                                                VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                            .signalSemaphoreValueCount = 1,
                                            .pSignalSemaphoreValues = &value};
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .pNext = &values,
                         .signalSemaphoreCount = 1,
                         .pSignalSemaphores = &signal};
    (void)ENTRY(queue, vkQueueSubmit)(VNC_HANDLE(VkQueue, queue), 1, &info, fence);
}

static void submit(void)
{
    submit_to(rig.queues[1], VK_NULL_HANDLE);
}

static void submit_with_fence(void)
{
    VkFence fence = VNC_HANDLE(VkFence, rig.fence);
    (void)ENTRY(sync, vkResetFences)(DEVICE, 1, &fence);
    submit_to(rig.queues[0], fence);
}

static void wait_for_fence(void)
{
    VkFence fence = VNC_HANDLE(VkFence, rig.fence);
    (void)ENTRY(sync, vkGetFenceStatus)(DEVICE, fence);
    (void)ENTRY(sync, vkWaitForFences)(DEVICE, 1, &fence, VK_TRUE, 0);
}

static void look_at_timeline(void)
{
    uint64_t value = 0;
    (void)ENTRY(sync, vkGetSemaphoreCounterValue)(DEVICE, VNC_HANDLE(VkSemaphore, rig.timeline),
                                                  &value);
    require(value <= rig.value);
}

/* Not to missing pages: nobody would bring them. */
static void write_memory(void)
{
    for (int i = 0; i < MEMORIES; i++) {
        uint8_t *bytes = vn_region_memory(rig.memories[i]->region);
        for (size_t at = 100; at < MEMORY_BYTES; at += 2 * VN_PAGE_BYTES) {
            if (vn_region_has(rig.memories[i]->region, at, 1))
                bytes[at]++;
        }
    }
}

static void flush_memory(void)
{
    (void)ENTRY(memory, vkFlushMappedMemoryRanges)(DEVICE, 0, NULL);
}

static void read_memory(void)
{
    VkMappedMemoryRange range = {.sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE,
                                 .memory = VNC_HANDLE(VkDeviceMemory, rig.memories[0]),
                                 .size = VK_WHOLE_SIZE};
    (void)ENTRY(memory, vkInvalidateMappedMemoryRanges)(DEVICE, 1, &range);
}

static void allocate_memory(void)
{
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = VN_PAGE_BYTES};
    VkDeviceMemory memory = VK_NULL_HANDLE;
    void *data;
    if (ENTRY(memory, vkAllocateMemory)(DEVICE, &info, NULL, &memory) != VK_SUCCESS) {
        vnc_object_destroy(VNC_OBJECT(vn_object, memory)); /* a server may say both */
        return;
    }
    if (ENTRY(memory, vkMapMemory)(DEVICE, memory, 0, VK_WHOLE_SIZE, 0, &data) == VK_SUCCESS)
        memset(data, 1, VN_PAGE_BYTES);
    ENTRY(memory, vkFreeMemory)(DEVICE, memory, NULL);
}

static void ask_requirements(void)
{
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = 1000,
                               .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
    VkMemoryRequirements out;
    VkBuffer buffer;
    if (ENTRY(resource, vkCreateBuffer)(DEVICE, &info, NULL, &buffer) != VK_SUCCESS)
        return; /* it was not even sent */
    ENTRY(resource, vkGetBufferMemoryRequirements)(DEVICE, buffer, &out);
    vnc_object_destroy(VNC_OBJECT(vn_object, buffer));
}

static void ask_queries(void)
{
    uint64_t data[2 * QUERIES];
    (void)ENTRY(query, vkGetQueryPoolResults)(
        DEVICE, VNC_HANDLE(VkQueryPool, rig.query_pool), 0, QUERIES, sizeof(data), data,
        sizeof(data) / QUERIES, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WITH_AVAILABILITY_BIT);
}

static void ask_format(void)
{
    VkImageFormatProperties out;
    (void)ENTRY(image_formats, vkGetPhysicalDeviceImageFormatProperties)(
        PHYSICAL, VK_FORMAT_R8G8B8A8_UNORM, VK_IMAGE_TYPE_2D, VK_IMAGE_TILING_OPTIMAL,
        VK_IMAGE_USAGE_SAMPLED_BIT, 0, &out);
}

static void ask_format2(void)
{
    VkPhysicalDeviceImageFormatInfo2 info = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_IMAGE_FORMAT_INFO_2,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .type = VK_IMAGE_TYPE_2D,
        .usage = VK_IMAGE_USAGE_SAMPLED_BIT};
    VkExternalImageFormatProperties external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_IMAGE_FORMAT_PROPERTIES};
    VkImageFormatProperties2 out = {.sType = VK_STRUCTURE_TYPE_IMAGE_FORMAT_PROPERTIES_2,
                                    .pNext = &external};
    (void)ENTRY(image_formats, vkGetPhysicalDeviceImageFormatProperties2)(PHYSICAL, &info, &out);
}

static void ask_sparse(void)
{
    VkSparseImageFormatProperties out[FOUND_MAX];
    uint32_t count = FOUND_MAX;
    ENTRY(image_formats, vkGetPhysicalDeviceSparseImageFormatProperties)
    (PHYSICAL, VK_FORMAT_R8G8B8A8_UNORM, VK_IMAGE_TYPE_2D, VK_SAMPLE_COUNT_1_BIT,
     VK_IMAGE_USAGE_SAMPLED_BIT, VK_IMAGE_TILING_OPTIMAL, &count, out);
    require(count <= FOUND_MAX);
}

static void ask_sparse2(void)
{
    VkPhysicalDeviceSparseImageFormatInfo2 info = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SPARSE_IMAGE_FORMAT_INFO_2,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .type = VK_IMAGE_TYPE_2D,
        .samples = VK_SAMPLE_COUNT_1_BIT,
        .usage = VK_IMAGE_USAGE_SAMPLED_BIT};
    VkSparseImageFormatProperties2 out[FOUND_MAX];
    uint32_t count = FOUND_MAX;
    for (int i = 0; i < FOUND_MAX; i++)
        out[i] = (VkSparseImageFormatProperties2){
            .sType = VK_STRUCTURE_TYPE_SPARSE_IMAGE_FORMAT_PROPERTIES_2};
    ENTRY(image_formats, vkGetPhysicalDeviceSparseImageFormatProperties2)
    (PHYSICAL, &info, &count, out);
    require(count <= FOUND_MAX);
}

static void ask_fault(void)
{
    VkDeviceFaultCountsEXT counts;
    VkDeviceFaultInfoEXT info;
    require(ENTRY(fault, vkGetDeviceFaultInfoEXT)(DEVICE, &counts, &info) == VK_SUCCESS);
    require(memchr(info.description, 0, sizeof(info.description)) != NULL);
}

static void (*const calls[])(void) = {
    read_news,    submit,      submit_with_fence, wait_for_fence,   look_at_timeline, write_memory,
    flush_memory, read_memory, allocate_memory,   ask_requirements, ask_queries,      ask_format,
    ask_format2,  ask_sparse,  ask_sparse2,       ask_fault,
};

/* ---- the driver, as far as a link needs it ---- */

/* The program reads what it is told. */
static VKAPI_ATTR VkBool32 VKAPI_CALL hear(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                           VkDebugUtilsMessageTypeFlagsEXT types,
                                           const VkDebugUtilsMessengerCallbackDataEXT *data,
                                           void *user)
{
    (void)severity, (void)types, (void)user;
    require(strlen(data->pMessage) <= WIRE_STR_MAX && strlen(data->pMessageIdName) < 256);
    return VK_FALSE;
}

static void connect_link(void)
{
    VkDebugUtilsMessengerCreateInfoEXT messenger = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity = UINT32_MAX,
        .messageType = UINT32_MAX,
        .pfnUserCallback = hear};
    struct rpc_addr addr;
    char why[RPC_WHY_CHARS];
    rig.debug = vnc_debug_create(&messenger);
    rig.pushes = vnc_pushes_create(rig.debug);
    require(rig.debug && rig.pushes && rpc_addr_parse("127.0.0.1:1", &addr, why) == 0);
    require(vnc_link_create(&addr, NULL, rig.pushes, &rig.link, why) == 0);
}

static void make_device(void)
{
    static struct vnc_format_blob formats[] = {{.format = VK_FORMAT_R8_UNORM},
                                               {.format = VK_FORMAT_R8G8B8A8_UNORM}};
    static struct vnc_snapshot snapshot = {.formats = formats, .format_count = ARRAY_LEN(formats)};
    struct vnc_memory_types *types = &rig.physical.types;
    rig.physical.link = rig.link;
    rig.physical.snapshot = &snapshot;
    vnc_memo_init(&rig.physical.queries);
    vnc_budget_init(&rig.physical.budget);
    types->offered.memoryTypeCount = 1;
    types->offered.memoryTypes[0].propertyFlags = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
    rig.device = vnc_object_create(rig.link, VK_OBJECT_TYPE_DEVICE, &rig.physical.object);
    require(rig.device != NULL);
    rig.device->physical = &rig.physical;
    rig.device->pushes = rig.pushes;
    rig.device->queues = rig.queues;
    rig.device->queue_count = QUEUES;
    pthread_mutex_init(&rig.device->lock, NULL);
    pthread_cond_init(&rig.device->sent, NULL);
    vnc_memo_init(&rig.device->requirements);
    require(vn_delta_codec_create(0, &rig.device->codec) == 0);
}

static void *make_object(VkObjectType type)
{
    void *object = vnc_object_create(rig.link, type, &rig.device->object);
    require(object != NULL);
    return object;
}

static struct vnc_memory *make_memory(vn_fetch_fn *fetch, bool moves)
{
    struct vnc_memory *memory = make_object(VK_OBJECT_TYPE_DEVICE_MEMORY);
    struct vn_region_params params = {.size = MEMORY_BYTES,
                                      .method = fetch ? VN_TRACK_AUTO : VN_TRACK_COMPARE,
                                      .fetch = fetch,
                                      .user = memory,
                                      .moves = moves};
    require(vn_region_create(&params, &memory->region) == 0);
    memory->size = MEMORY_BYTES;
    memory->host_visible = memory->tracked = true;
    memory->demand_paged = vn_region_can_drop(memory->region);
    memory->next_visible = rig.device->visible;
    rig.device->visible = memory;
    require(vnc_pushes_add_memory(rig.pushes, memory) == 0);
    return memory;
}

/* Between pages that nobody may touch. */
static uint8_t *guarded;

static void guard(void *at, size_t bytes)
{
    guarded = mmap(at, bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1, 0);
    require(guarded != MAP_FAILED);
}

static void start(void)
{
    memset(&rig, 0, sizeof(rig));
    guard(guarded, 2 * GUARD_BYTES);
    connect_link();
    make_device();
    for (int i = 0; i < QUEUES; i++) {
        rig.queues[i] = make_object(VK_OBJECT_TYPE_QUEUE);
        require(vnc_pushes_add_queue(rig.pushes, rig.queues[i]) == 0);
    }
    rig.fence = make_object(VK_OBJECT_TYPE_FENCE);
    rig.timeline = make_object(VK_OBJECT_TYPE_SEMAPHORE);
    rig.timeline->timeline = true;
    VkQueryPoolCreateInfo queries = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                     .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                     .queryCount = QUERIES};
    VkQueryPool pool;
    require(ENTRY(query, vkCreateQueryPool)(DEVICE, &queries, NULL, &pool) == VK_SUCCESS);
    rig.query_pool = VNC_OBJECT(vn_object, pool);
    rig.memories[0] = make_memory(NULL, true);
    rig.memories[1] = make_memory(vnc_fetch_pages, false);
    rig.memories[2] = make_memory(NULL, false);
    vn_region_await(rig.memories[2]->region, 0, MEMORY_BYTES / VN_PAGE_BYTES * VN_PAGE_BYTES);
    require(vn_region_move(rig.memories[0]->region, guarded + GUARD_BYTES, false) == 0);
    rig.pipeline = make_object(VK_OBJECT_TYPE_PIPELINE);
}

static void end(void)
{
    for (int i = 0; i < QUEUES; i++) {
        require(rig.queues[i]->done <= vnc_queue_submitted(rig.queues[i]));
        vnc_pushes_remove_queue(rig.pushes, rig.queues[i]);
        vnc_object_destroy(&rig.queues[i]->object);
    }
    for (int i = 0; i < MEMORIES; i++) {
        vnc_pushes_remove_memory(rig.pushes, rig.memories[i]);
        vn_region_destroy(rig.memories[i]->region);
        vnc_object_destroy(&rig.memories[i]->object);
    }
    vnc_object_destroy(&rig.fence->object);
    vnc_object_destroy(&rig.timeline->object);
    vnc_object_destroy(rig.query_pool);
    vnc_object_destroy(rig.pipeline);
    vnc_memo_fini(&rig.device->requirements);
    vn_delta_codec_destroy(rig.device->codec);
    pthread_cond_destroy(&rig.device->sent);
    pthread_mutex_destroy(&rig.device->lock);
    vnc_object_destroy(&rig.device->object);
    vnc_memo_fini(&rig.physical.queries);
    vnc_budget_fini(&rig.physical.budget);
    vnc_link_destroy(rig.link);
    vnc_pushes_destroy(rig.pushes);
    vnc_debug_destroy(rig.debug);
    server_end();
}

/* ---- records ---- */

static void call(uint8_t kind, const uint8_t *data, size_t len)
{
    if (kind & SILENT)
        server_answer_nothing();
    else
        server_answer(kind & FAILS ? -EIO : 0, data, len);
    calls[(kind & 0x1f) % ARRAY_LEN(calls)]();
}

static void take(uint8_t kind, const uint8_t *data, size_t len)
{
    if (kind & CALL) {
        call(kind, data, len);
        return;
    }
    server_push(VN_METHOD_FIRST + kind % METHODS, data, len);
    if (!(kind & HELD))
        read_news();
}

static void say_nothing(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vn_kernel *kernel; /* kept, since looking what it can do takes long */
    if (!kernel) {
        hw_log_set_sink(say_nothing, NULL);
        require(vn_kernel_ref(&kernel) == 0);
    }
    start();
    while (size >= HEAD) {
        size_t len = wire_load16(data + 1), left = size - HEAD;
        len = len < left ? len : left;
        take(data[0], data + HEAD, len);
        data += HEAD + len;
        size = left - len;
    }
    read_news();
    end();
    return 0;
}
