/* lost.c - programs whose server goes away while they are in the middle of something.
 *
 * Each says "ready" once it is there, and "ended" when the trouble has reached it.  Then every call
 * that can say so must say that the device is lost, mapped memory must still be there, all must be
 * destroyed, and (the test has put the server back by then) a new instance must work. */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kit.h"

enum {
    BEFORE = 0x600df00d,        /* what mapped memory holds when the server goes */
    UPLOAD_BYTES = 16 << 20,    /* more than sockets and windows hold: the upload is under way */
    CALLS_LOST_AT_LEAST = 1000, /* of a loop that goes on for a while after the loss */
};

struct scene {
    VkInstance instance;
    struct gpu gpu;
    VkSemaphore never; /* what waits for its value 1 waits for ever */
    VkFence fence;     /* of such work */
    VkEvent event;
    VkQueryPool queries;
    VkDeviceMemory unmapped;
    struct buffer large;
};

static void scene_open(struct scene *s)
{
    VkPhysicalDevice devices[KIT_DEVICES_MAX];
    VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    VkEventCreateInfo event = {.sType = VK_STRUCTURE_TYPE_EVENT_CREATE_INFO};
    VkQueryPoolCreateInfo queries = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                     .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                     .queryCount = 1};
    s->instance = kit_instance();
    VKT_EXPECT(kit_devices(s->instance, devices) > 0);
    kit_open(&s->gpu, devices[0]);
    VkDevice device = s->gpu.device;
    s->never = kit_timeline(&s->gpu);
    VKT(vkCreateFence(device, &fence, NULL, &s->fence));
    VKT(vkCreateEvent(device, &event, NULL, &s->event));
    VKT(vkCreateQueryPool(device, &queries, NULL, &s->queries));
    VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                   .allocationSize = 4096,
                                   .memoryTypeIndex = kit_coherent_type(s->gpu.physical)};
    VKT(vkAllocateMemory(device, &memory, NULL, &s->unmapped));
    kit_buffer_open(&s->gpu, &s->large, UPLOAD_BYTES);
    kit_must_work(&s->gpu, BEFORE);
}

static void scene_close(struct scene *s)
{
    VkDevice device = s->gpu.device;
    kit_buffer_close(&s->gpu, &s->large);
    vkFreeMemory(device, s->unmapped, NULL);
    vkDestroyQueryPool(device, s->queries, NULL);
    vkDestroyEvent(device, s->event, NULL);
    vkDestroyFence(device, s->fence, NULL);
    vkDestroySemaphore(device, s->never, NULL);
    kit_close(&s->gpu);
    vkDestroyInstance(s->instance, NULL);
}

/* ---- after the loss ---- */

#define LOST(call)                                                                                 \
    do {                                                                                           \
        VkResult result_ = (call);                                                                 \
        if (result_ != VK_ERROR_DEVICE_LOST)                                                       \
            vkt_fail("%s: %d, though the device is lost", #call, (int)result_);                    \
    } while (0)
#define FAILS(call)                                                                                \
    do {                                                                                           \
        VkResult result_ = (call);                                                                 \
        if (result_ >= 0)                                                                          \
            vkt_fail("%s: %d, though the device is lost", #call, (int)result_);                    \
    } while (0)

static VkResult wait_for_value(const struct scene *s, uint64_t value)
{
    VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                .semaphoreCount = 1,
                                .pSemaphores = &s->never,
                                .pValues = &value};
    return vkWaitSemaphores(s->gpu.device, &wait, UINT64_MAX);
}

static VkResult query(const struct scene *s, VkQueryResultFlags flags)
{
    uint64_t value;
    return vkGetQueryPoolResults(s->gpu.device, s->queries, 0, 1, sizeof(value), &value,
                                 sizeof(value), flags | VK_QUERY_RESULT_64_BIT);
}

static void expect_waits_are_lost(struct scene *s)
{
    VkDevice device = s->gpu.device;
    uint64_t value;
    VkSemaphoreSignalInfo signal = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = s->never, .value = 1};
    LOST(kit_submit(&s->gpu, s->gpu.commands, VK_NULL_HANDLE));
    LOST(vkWaitForFences(device, 1, &s->fence, VK_TRUE, UINT64_MAX));
    LOST(vkWaitForFences(device, 1, &s->fence, VK_TRUE, 0));
    LOST(vkGetFenceStatus(device, s->fence));
    LOST(vkQueueWaitIdle(s->gpu.queue));
    LOST(vkDeviceWaitIdle(device));
    LOST(wait_for_value(s, 1));
    LOST(vkGetSemaphoreCounterValue(device, s->never, &value));
    LOST(vkSignalSemaphore(device, &signal));
    LOST(vkGetEventStatus(device, s->event));
    LOST(query(s, 0));
    LOST(query(s, VK_QUERY_RESULT_WAIT_BIT));
}

static void expect_creations_fail(const struct scene *s)
{
    VkDevice device = s->gpu.device, other_device;
    VkBuffer buffer;
    VkDeviceMemory memory;
    VkCommandBuffer commands;
    VkSemaphore semaphore;
    void *map;
    VkBufferCreateInfo buffer_info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                      .size = 64,
                                      .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkMemoryAllocateInfo memory_info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                        .allocationSize = 64};
    VkCommandBufferAllocateInfo commands_info = {.sType =
                                                     VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                                 .commandPool = s->gpu.pool,
                                                 .commandBufferCount = 1};
    VkSemaphoreCreateInfo semaphore_info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO};
    FAILS(vkCreateBuffer(device, &buffer_info, NULL, &buffer));
    FAILS(vkAllocateMemory(device, &memory_info, NULL, &memory));
    FAILS(vkAllocateCommandBuffers(device, &commands_info, &commands));
    FAILS(vkCreateSemaphore(device, &semaphore_info, NULL, &semaphore));
    FAILS(vkMapMemory(device, s->unmapped, 0, VK_WHOLE_SIZE, 0, &map));
    FAILS(kit_try_device(s->gpu.physical, &other_device));
}

/* What returns nothing, or may not say that a device is lost, must come back all the same. */
static void expect_the_rest_returns(const struct scene *s)
{
    VkPhysicalDeviceProperties properties;
    VkMemoryRequirements needs;
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkMappedMemoryRange range = {.sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE,
                                 .memory = s->gpu.out.memory,
                                 .size = VK_WHOLE_SIZE};
    vkGetPhysicalDeviceProperties(s->gpu.physical, &properties);
    VKT_EXPECT(properties.apiVersion >= VK_API_VERSION_1_3);
    vkGetBufferMemoryRequirements(s->gpu.device, s->gpu.out.handle, &needs);
    (void)vkFlushMappedMemoryRanges(s->gpu.device, 1, &range);
    (void)vkInvalidateMappedMemoryRanges(s->gpu.device, 1, &range);
    (void)vkBeginCommandBuffer(s->gpu.commands, &begin);
    vkCmdFillBuffer(s->gpu.commands, s->gpu.out.handle, 0, VK_WHOLE_SIZE, 1);
    (void)vkEndCommandBuffer(s->gpu.commands);
    (void)vkResetCommandPool(s->gpu.device, s->gpu.pool, 0);
    (void)vkSetEvent(s->gpu.device, s->event);
}

static void expect_memory_is_there(const struct scene *s, uint32_t value)
{
    for (uint32_t i = 0; i < KIT_WORDS; i++)
        VKT_EXPECT(s->gpu.out.map[i] == value);
    memset(s->gpu.out.map, 0, KIT_BYTES);
    VKT_EXPECT(s->gpu.out.map[KIT_WORDS - 1] == 0);
}

static void finish(struct scene *s)
{
    expect_waits_are_lost(s);
    expect_creations_fail(s);
    expect_the_rest_returns(s);
    expect_memory_is_there(s, BEFORE);
    scene_close(s);
    kit_say("lost");
    kit_await("again");
    kit_check_new_instance(BEFORE + 1);
    kit_say("works");
}

/* ---- in the middle of what ---- */

/* Nothing: the program learns of it with its next call, whichever that is. */
static void between(void)
{
    struct scene s;
    scene_open(&s);
    kit_say("ready");
    kit_await("go");
    expect_creations_fail(&s);
    kit_say("ended");
    finish(&s);
}

static void blocked_scene(struct scene *s)
{
    scene_open(s);
    VKT(kit_submit_after(&s->gpu, s->never, 1, s->fence));
    kit_say("ready");
}

static void fence(void)
{
    struct scene s;
    blocked_scene(&s);
    LOST(vkWaitForFences(s.gpu.device, 1, &s.fence, VK_TRUE, UINT64_MAX));
    kit_say("ended");
    finish(&s);
}

static void idle(void)
{
    struct scene s;
    blocked_scene(&s);
    LOST(vkQueueWaitIdle(s.gpu.queue));
    kit_say("ended");
    finish(&s);
}

static void semaphore(void)
{
    struct scene s;
    blocked_scene(&s);
    LOST(wait_for_value(&s, 2));
    kit_say("ended");
    finish(&s);
}

/* Several threads wait at once, each for something else: one of them reads for all. */
static void *wait_for_fence(void *arg)
{
    struct scene *s = arg;
    LOST(vkWaitForFences(s->gpu.device, 1, &s->fence, VK_TRUE, UINT64_MAX));
    return NULL;
}

static void *wait_for_semaphore(void *arg)
{
    LOST(wait_for_value(arg, 2));
    return NULL;
}

static void *wait_for_device(void *arg)
{
    LOST(vkDeviceWaitIdle(((struct scene *)arg)->gpu.device));
    return NULL;
}

static void together(void)
{
    void *(*const waits[])(void *) = {wait_for_fence, wait_for_semaphore, wait_for_device,
                                      wait_for_fence};
    pthread_t threads[VKT_COUNT(waits)];
    struct scene s;
    blocked_scene(&s);
    for (size_t i = 0; i < VKT_COUNT(waits); i++)
        VKT_EXPECT(pthread_create(&threads[i], NULL, waits[i], &s) == 0);
    for (size_t i = 0; i < VKT_COUNT(waits); i++)
        VKT_EXPECT(pthread_join(threads[i], NULL) == 0);
    kit_say("ended");
    finish(&s);
}

static void query_wait(void)
{
    struct scene s;
    scene_open(&s);
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VKT(vkBeginCommandBuffer(s.gpu.commands, &begin));
    vkCmdResetQueryPool(s.gpu.commands, s.queries, 0, 1);
    VKT(vkEndCommandBuffer(s.gpu.commands));
    VKT(kit_submit(&s.gpu, s.gpu.commands, VK_NULL_HANDLE));
    VKT(vkQueueWaitIdle(s.gpu.queue));
    kit_say("ready");
    LOST(query(&s, VK_QUERY_RESULT_WAIT_BIT));
    kit_say("ended");
    finish(&s);
}

/* Between two looks: a program that polls has something else to look at, too. */
static void look_elsewhere(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    VKT_EXPECT(poll(&in, 1, 1) == 0);
}

static void poll_fence(void)
{
    struct scene s;
    VkResult result;
    blocked_scene(&s);
    while ((result = vkGetFenceStatus(s.gpu.device, s.fence)) == VK_NOT_READY)
        look_elsewhere();
    LOST(result);
    kit_say("ended");
    finish(&s);
}

static void poll_value(void)
{
    struct scene s;
    VkResult result;
    uint64_t value = 0;
    blocked_scene(&s);
    while ((result = vkGetSemaphoreCounterValue(s.gpu.device, s.never, &value)) == VK_SUCCESS) {
        VKT_EXPECT(value == 0);
        look_elsewhere();
    }
    LOST(result);
    kit_say("ended");
    finish(&s);
}

static void poll_event(void)
{
    struct scene s;
    VkResult result;
    blocked_scene(&s);
    while ((result = vkGetEventStatus(s.gpu.device, s.event)) == VK_EVENT_RESET)
        look_elsewhere();
    LOST(result);
    kit_say("ended");
    finish(&s);
}

static void loop(void)
{
    struct scene s;
    VkResult result;
    scene_open(&s);
    kit_say("ready");
    while ((result = kit_work(&s.gpu, BEFORE)) == VK_SUCCESS)
        ;
    LOST(result);
    for (uint32_t i = 0; i < CALLS_LOST_AT_LEAST; i++)
        LOST(kit_submit(&s.gpu, s.gpu.commands, VK_NULL_HANDLE));
    kit_say("ended");
    finish(&s);
}

/* New bytes in every word, so that all of them must travel. */
static void upload(void)
{
    struct scene s;
    VkResult result = VK_SUCCESS;
    scene_open(&s);
    kit_say("ready");
    for (uint32_t round = 0; result == VK_SUCCESS; round++) {
        vkt_pattern(s.large.map, s.large.size, round);
        result = kit_submit(&s.gpu, VK_NULL_HANDLE, VK_NULL_HANDLE);
    }
    LOST(result);
    kit_say("ended");
    finish(&s);
}

static VkResult fill_large(struct scene *s, uint32_t value)
{
    VkResult result = kit_record_fill(s->gpu.commands, &s->large, value);
    if (result == VK_SUCCESS)
        result = kit_submit(&s->gpu, s->gpu.commands, s->gpu.fence);
    if (result == VK_SUCCESS)
        result = vkWaitForFences(s->gpu.device, 1, &s->gpu.fence, VK_TRUE, UINT64_MAX);
    return result == VK_SUCCESS ? vkResetFences(s->gpu.device, 1, &s->gpu.fence) : result;
}

/* The access to memory that the server has newer bytes for: it waits for them, and ends. */
static void pages(void)
{
    struct scene s;
    VkResult result;
    setenv("VENUS_FETCH", "all", 1);
    scene_open(&s);
    kit_say("ready");
    for (uint32_t round = 1; (result = fill_large(&s, round)) == VK_SUCCESS; round++) {
        for (size_t i = 0; i < s.large.size / 4; i += 512)
            VKT_EXPECT(s.large.map[i] == round || s.large.map[i] == 0); /* 0: lost meanwhile */
    }
    LOST(result);
    kit_say("ended");
    finish(&s);
}

/* Nothing of this work can be seen, so its fences are signalled before it is done: what becomes of
 * it is told by a later call. */
static void early(void)
{
    struct scene s;
    VkResult result;
    scene_open(&s);
    kit_say("ready");
    while ((result = kit_submit(&s.gpu, VK_NULL_HANDLE, s.fence)) == VK_SUCCESS &&
           (result = vkWaitForFences(s.gpu.device, 1, &s.fence, VK_TRUE, UINT64_MAX)) == VK_SUCCESS)
        VKT(vkResetFences(s.gpu.device, 1, &s.fence));
    LOST(result);
    kit_say("ended");
    finish(&s);
}

static const struct kit_case cases[] = {
    {"between", between},       {"fence", fence},           {"idle", idle},
    {"semaphore", semaphore},   {"query-wait", query_wait}, {"poll-fence", poll_fence},
    {"poll-value", poll_value}, {"poll-event", poll_event}, {"loop", loop},
    {"upload", upload},         {"together", together},     {"early", early},
    {"pages", pages},
};

KIT_MAIN(cases)
