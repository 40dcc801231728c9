/* sync.c - differential programs: fences, binary and timeline semaphores. */
#include "vkt.h"

#include <pthread.h>

enum { WORDS = 1024, BYTES = WORDS * 4 };

static struct vkt_buffer data;
static struct vkt_kernel kernel;

/* A device, a buffer and a kernel that steps it. */
static void prepare(void)
{
    vkt_open();
    data = vkt_storage(BYTES, NULL);
    kernel = vkt_kernel("step.comp", "s", 4);
    vkt_kernel_bind(&kernel, 0, &data);
}

static VkCommandBuffer stepping(uint32_t add)
{
    VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    vkt_record(command, 0);
    vkt_barrier(command);
    vkt_kernel_record(command, &kernel, &add, WORDS / 64);
    VKT(vkEndCommandBuffer(command));
    return command;
}

/* --- fences ----------------------------------------------------------------------------------- */

static void fence_status(void)
{
    prepare();
    VkFence fence = vkt_fence(false), ready = vkt_fence(true);
    vkt_out_result("new", vkGetFenceStatus(vkt.device, fence));
    vkt_out_result("made signaled", vkGetFenceStatus(vkt.device, ready));
    vkt_out_result("no time", vkWaitForFences(vkt.device, 1, &fence, VK_TRUE, 0));
    vkt_submit(stepping(1), fence);
    vkt_wait(fence);
    vkt_out_result("after wait", vkGetFenceStatus(vkt.device, fence));
    VKT(vkResetFences(vkt.device, 2, (VkFence[]){fence, ready}));
    vkt_out_result("reset", vkGetFenceStatus(vkt.device, fence));
    vkt_out_result("both reset", vkGetFenceStatus(vkt.device, ready));
    vkt_out_buffer("data", &data);
}

static void fence_polled(void)
{
    prepare();
    VkFence fence = vkt_fence(false);
    vkt_submit(stepping(2), fence);
    VkResult result;
    while ((result = vkGetFenceStatus(vkt.device, fence)) == VK_NOT_READY)
        ;
    vkt_out_result("done", result);
    vkt_out_buffer("data", &data);
}

static void fence_timeout(void)
{
    prepare();
    VkFence fence = vkt_fence(false); /* nothing will signal it */
    vkt_out_result("timeout", vkWaitForFences(vkt.device, 1, &fence, VK_TRUE, 2000000));
    vkt_submit(NULL, fence);
    vkt_out_result("empty submit", vkWaitForFences(vkt.device, 1, &fence, VK_TRUE, VKT_WAIT_NS));
}

static void wait_any_all(void)
{
    prepare();
    VkFence fences[3] = {vkt_fence(false), vkt_fence(false), vkt_fence(false)};
    vkt_submit(stepping(1), fences[1]);
    vkt_out_result("any", vkWaitForFences(vkt.device, 3, fences, VK_FALSE, VKT_WAIT_NS));
    vkt_out_result("not all", vkWaitForFences(vkt.device, 3, fences, VK_TRUE, 1000000));
    vkt_submit(stepping(2), fences[0]);
    vkt_submit(stepping(3), fences[2]);
    vkt_out_result("all", vkWaitForFences(vkt.device, 3, fences, VK_TRUE, VKT_WAIT_NS));
    vkt_out_buffer("data", &data);
}

static void fence_of_all_before(void)
{
    prepare();
    for (uint32_t i = 0; i < 20; i++)
        vkt_submit(stepping(i), VK_NULL_HANDLE);
    VkFence fence = vkt_fence(false);
    VKT(vkQueueSubmit(vkt.queue, 0, NULL, fence));
    vkt_wait(fence);
    vkt_out_buffer("data", &data);
}

static void ignored_pointers(void)
{
    prepare();
    VkCommandBuffer command = stepping(6);
    VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .pWaitSemaphores = (const VkSemaphore *)(uintptr_t)16, /* none of these is read */
        .pWaitDstStageMask = (const VkPipelineStageFlags *)(uintptr_t)16,
        .commandBufferCount = 1,
        .pCommandBuffers = &command,
        .pSignalSemaphores = (const VkSemaphore *)(uintptr_t)16,
    };
    VkFence fence = vkt_fence(false);
    VKT(vkQueueSubmit(vkt.queue, 1, &info, fence));
    vkt_wait(fence);
    vkt_out_buffer("data", &data);
}

static void idle(void)
{
    prepare();
    vkt_submit(stepping(4), VK_NULL_HANDLE);
    VKT(vkQueueWaitIdle(vkt.queue));
    vkt_out_buffer("queue", &data);
    vkt_submit(stepping(5), VK_NULL_HANDLE);
    VKT(vkDeviceWaitIdle(vkt.device));
    vkt_out_buffer("device", &data);
}

/* --- binary semaphores ------------------------------------------------------------------------ */

static void binary_chain(void)
{
    prepare();
    enum { LINKS = 8 };
    VkSemaphore semaphores[LINKS + 1];
    for (int i = 0; i <= LINKS; i++)
        semaphores[i] = vkt_semaphore();
    const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkFence fence = vkt_fence(false);
    for (uint32_t i = 0; i < LINKS; i++) {
        VkCommandBuffer command = stepping(i * 3);
        VkSubmitInfo info = {
            .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
            .waitSemaphoreCount = i > 0,
            .pWaitSemaphores = &semaphores[i],
            .pWaitDstStageMask = &stage,
            .commandBufferCount = 1,
            .pCommandBuffers = &command,
            .signalSemaphoreCount = i + 1 < LINKS,
            .pSignalSemaphores = &semaphores[i + 1],
        };
        VKT(vkQueueSubmit(vkt.queue, 1, &info, i + 1 == LINKS ? fence : VK_NULL_HANDLE));
    }
    vkt_wait(fence);
    vkt_out_buffer("data", &data);
}

static void batches(void)
{
    prepare();
    /* Several batches in one call, linked by a semaphore that is then used again. */
    VkSemaphore semaphore = vkt_semaphore();
    const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkCommandBuffer commands[4];
    for (uint32_t i = 0; i < 4; i++)
        commands[i] = stepping(100 + i);
    for (int round = 0; round < 3; round++) {
        VkSubmitInfo infos[2] = {
            {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
             .commandBufferCount = 2,
             .pCommandBuffers = commands,
             .signalSemaphoreCount = 1,
             .pSignalSemaphores = &semaphore},
            {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
             .waitSemaphoreCount = 1,
             .pWaitSemaphores = &semaphore,
             .pWaitDstStageMask = &stage,
             .commandBufferCount = 2,
             .pCommandBuffers = commands + 2},
        };
        VkFence fence = vkt_fence(false);
        VKT(vkQueueSubmit(vkt.queue, 2, infos, fence));
        vkt_wait(fence);
    }
    vkt_out_buffer("data", &data);
}

/* More of them than a message takes, in one call. */
static void many_batches(void)
{
    prepare();
    enum { COMMANDS = 4, EMPTY = 2732, BATCHES = COMMANDS * (EMPTY + 1) };
    static VkSubmitInfo infos[BATCHES];
    VkCommandBuffer commands[COMMANDS];
    for (uint32_t i = 0; i < COMMANDS; i++)
        commands[i] = stepping(200 + i);
    for (uint32_t i = 0; i < BATCHES; i++)
        infos[i] = (VkSubmitInfo){.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                  .commandBufferCount = i % (EMPTY + 1) == EMPTY,
                                  .pCommandBuffers = &commands[i / (EMPTY + 1)]};
    VkFence fence = vkt_fence(false);
    VKT(vkQueueSubmit(vkt.queue, BATCHES, infos, fence));
    vkt_wait(fence);
    vkt_out_buffer("data", &data);
}

/* --- timeline semaphores ---------------------------------------------------------------------- */

static void submit_timeline(VkQueue queue, VkCommandBuffer command, VkSemaphore semaphore,
                            uint64_t wait, uint64_t signal)
{
    VkSemaphoreSubmitInfo waits = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
        .semaphore = semaphore,
        .value = wait,
        .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
    };
    VkSemaphoreSubmitInfo signals = waits;
    signals.value = signal;
    VkCommandBufferSubmitInfo work = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO,
        .commandBuffer = command,
    };
    VkSubmitInfo2 info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
        .waitSemaphoreInfoCount = wait > 0,
        .pWaitSemaphoreInfos = &waits,
        .commandBufferInfoCount = 1,
        .pCommandBufferInfos = &work,
        .signalSemaphoreInfoCount = 1,
        .pSignalSemaphoreInfos = &signals,
    };
    VKT(vkQueueSubmit2(queue, 1, &info, VK_NULL_HANDLE));
}

static VkResult wait_for(VkSemaphore semaphore, uint64_t value, uint64_t timeout)
{
    VkSemaphoreWaitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
        .semaphoreCount = 1,
        .pSemaphores = &semaphore,
        .pValues = &value,
    };
    return vkWaitSemaphores(vkt.device, &info, timeout);
}

static void signal_host(VkSemaphore semaphore, uint64_t value)
{
    VkSemaphoreSignalInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO,
        .semaphore = semaphore,
        .value = value,
    };
    VKT(vkSignalSemaphore(vkt.device, &info));
}

static void out_counter(const char *name, VkSemaphore semaphore)
{
    uint64_t value;
    VKT(vkGetSemaphoreCounterValue(vkt.device, semaphore, &value));
    vkt_out_u64(name, value);
}

static void timeline_device(void)
{
    prepare();
    VkSemaphore timeline = vkt_timeline(5);
    out_counter("initial", timeline);
    for (uint64_t i = 0; i < 6; i++)
        submit_timeline(vkt.queue, stepping((uint32_t)i), timeline, 5 + i * 10, 5 + (i + 1) * 10);
    VKT(wait_for(timeline, 65, VKT_WAIT_NS));
    out_counter("final", timeline);
    vkt_out_buffer("data", &data);
}

static void timeline_host(void)
{
    prepare();
    VkSemaphore timeline = vkt_timeline(0);
    vkt_out_result("too early", wait_for(timeline, 1, 1000000));
    signal_host(timeline, 1);
    vkt_out_result("signaled", wait_for(timeline, 1, 0));
    signal_host(timeline, UINT64_C(1) << 30);
    out_counter("high", timeline);
}

static void wait_before_signal(void)
{
    prepare();
    VkSemaphore timeline = vkt_timeline(0);
    /* The work waits for the host, and the CPU writes before it lets go. */
    submit_timeline(vkt.queue, stepping(9), timeline, 1, 2);
    for (uint32_t i = 0; i < WORDS; i++)
        ((volatile uint32_t *)data.map)[i] = i * 17;
    signal_host(timeline, 1);
    VKT(wait_for(timeline, 2, VKT_WAIT_NS));
    vkt_out_buffer("data", &data);
}

struct release {
    VkSemaphore semaphore;
    uint64_t value;
};

static void *release_later(void *argument)
{
    const struct release *release = argument;
    signal_host(release->semaphore, release->value);
    return NULL;
}

static void signal_from_thread(void)
{
    prepare();
    VkSemaphore timeline = vkt_timeline(0);
    struct release release = {timeline, 7};
    submit_timeline(vkt.queue, stepping(1), timeline, 7, 8);
    pthread_t thread;
    VKT_EXPECT(pthread_create(&thread, NULL, release_later, &release) == 0);
    VKT(wait_for(timeline, 8, VKT_WAIT_NS));
    pthread_join(thread, NULL);
    out_counter("final", timeline);
    vkt_out_buffer("data", &data);
}

static void timeline_wait_any(void)
{
    prepare();
    VkSemaphore pair[2] = {vkt_timeline(0), vkt_timeline(0)};
    const uint64_t values[2] = {3, 4};
    VkSemaphoreWaitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
        .flags = VK_SEMAPHORE_WAIT_ANY_BIT,
        .semaphoreCount = 2,
        .pSemaphores = pair,
        .pValues = values,
    };
    vkt_out_result("none", vkWaitSemaphores(vkt.device, &info, 1000000));
    submit_timeline(vkt.queue, stepping(6), pair[1], 0, 4);
    vkt_out_result("second", vkWaitSemaphores(vkt.device, &info, VKT_WAIT_NS));
    out_counter("first", pair[0]);
    vkt_out_buffer("data", &data);
}

static void mixed_semaphores(void)
{
    prepare();
    /* Old-style submits that carry timeline values beside binary semaphores. */
    VkSemaphore timeline = vkt_timeline(0), binary = vkt_semaphore();
    const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkCommandBuffer first = stepping(1), second = stepping(2);
    const uint64_t signals[2] = {0, 11}, nothing[1] = {0};
    VkTimelineSemaphoreSubmitInfo values = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .signalSemaphoreValueCount = 2,
        .pSignalSemaphoreValues = signals,
    };
    VkTimelineSemaphoreSubmitInfo unused = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .waitSemaphoreValueCount = 1,
        .pWaitSemaphoreValues = nothing,
    };
    const VkSubmitInfo infos[2] = {
        {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
         .pNext = &values,
         .commandBufferCount = 1,
         .pCommandBuffers = &first,
         .signalSemaphoreCount = 2,
         .pSignalSemaphores = (VkSemaphore[]){binary, timeline}},
        {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
         .pNext = &unused,
         .waitSemaphoreCount = 1,
         .pWaitSemaphores = &binary,
         .pWaitDstStageMask = &stage,
         .commandBufferCount = 1,
         .pCommandBuffers = &second},
    };
    VkFence fence = vkt_fence(false);
    VKT(vkQueueSubmit(vkt.queue, 2, infos, fence));
    vkt_wait(fence);
    out_counter("timeline", timeline);
    vkt_out_buffer("data", &data);
}

static void across_queues(void)
{
    prepare();
    VKT_NEED(vkt.queue_count > 1);
    /* A storage buffer of one family: both queues must be of it. */
    VKT_NEED(vkt.queues[0].family == vkt.queues[1].family);
    VkSemaphore timeline = vkt_timeline(0);
    /* All of the second queue first: each of its submits waits for one that comes later. */
    for (uint64_t value = 2; value < 9; value += 2)
        submit_timeline(vkt.queues[1].handle, stepping((uint32_t)value), timeline, value,
                        value + 1);
    for (uint64_t value = 1; value < 9; value += 2)
        submit_timeline(vkt.queues[0].handle, stepping((uint32_t)value), timeline, value,
                        value + 1);
    signal_host(timeline, 1);
    VKT(wait_for(timeline, 9, VKT_WAIT_NS));
    vkt_out_buffer("data", &data);
}

/* A device is a group of one: batches say which of it executes what. */
static void device_group(void)
{
    prepare();
    const uint32_t mask = 1, index = 0;
    VkDeviceGroupSubmitInfo plain = {.sType = VK_STRUCTURE_TYPE_DEVICE_GROUP_SUBMIT_INFO,
                                     .commandBufferCount = 1,
                                     .pCommandBufferDeviceMasks = &mask};
    VkDeviceGroupSubmitInfo waiting = plain, signalling = plain;
    signalling.signalSemaphoreCount = 1;
    signalling.pSignalSemaphoreDeviceIndices = &index;
    waiting.waitSemaphoreCount = 1;
    waiting.pWaitSemaphoreDeviceIndices = &index;
    const VkDeviceGroupSubmitInfo *groups[] = {&plain, &signalling, &waiting};
    const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkSemaphore semaphore = vkt_semaphore();
    VkFence fence = vkt_fence(false);
    for (uint32_t i = 0; i < VKT_COUNT(groups); i++) {
        VkCommandBuffer command = stepping(i + 1);
        VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                             .pNext = groups[i],
                             .waitSemaphoreCount = groups[i]->waitSemaphoreCount,
                             .pWaitSemaphores = &semaphore,
                             .pWaitDstStageMask = &stage,
                             .commandBufferCount = 1,
                             .pCommandBuffers = &command,
                             .signalSemaphoreCount = groups[i]->signalSemaphoreCount,
                             .pSignalSemaphores = &semaphore};
        VKT(vkQueueSubmit(vkt.queue, 1, &info, i == 2 ? fence : VK_NULL_HANDLE));
    }
    vkt_wait(fence);
    vkt_out_buffer("data", &data);
}

static const struct vkt_case cases[] = {
    {"fence_status", fence_status, NULL},
    {"fence_polled", fence_polled, NULL},
    {"fence_timeout", fence_timeout, NULL},
    {"wait_any_all", wait_any_all, NULL},
    {"fence_of_all_before", fence_of_all_before, NULL},
    {"ignored_pointers", ignored_pointers, NULL},
    {"idle", idle, NULL},
    {"binary_chain", binary_chain, NULL},
    {"batches", batches, NULL},
    {"many_batches", many_batches, NULL},
    {"timeline_device", timeline_device, NULL},
    {"timeline_host", timeline_host, NULL},
    {"wait_before_signal", wait_before_signal, NULL},
    {"signal_from_thread", signal_from_thread, NULL},
    {"timeline_wait_any", timeline_wait_any, NULL},
    {"mixed_semaphores", mixed_semaphores, NULL},
    {"across_queues", across_queues, NULL},
    {"device_group", device_group, NULL},
};

VKT_MAIN(cases)
