/* early.c - differential programs: what a program may do once it was told that work is done.
 *
 * A remote driver may say so before it is true where the host could not tell
 * (docs/design/fences.md); these programs try to tell. */
#include "vkt.h"

#include <stdlib.h>
#include <string.h>

enum {
    WORDS = 1024,
    BYTES = WORDS * 4,
    SLOTS = 64, /* parts of a device buffer, each filled by a submission of its own */
    LARGE_WORDS = 1 << 20,
    REPEATS = 2000,
};

static const VkBufferUsageFlags storage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;

static bool by_timeline; /* in place of fences */

/* The host raises it afterwards: that is legal once its value was seen. */
static void run_with_timeline(VkQueue queue, VkCommandBuffer command)
{
    VkSemaphore timeline = vkt_timeline(0);
    uint64_t value = 0;
    VkTimelineSemaphoreSubmitInfo values = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .signalSemaphoreValueCount = 1,
        .pSignalSemaphoreValues = &(uint64_t){5},
    };
    VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .pNext = &values,
        .commandBufferCount = 1,
        .pCommandBuffers = &command,
        .signalSemaphoreCount = 1,
        .pSignalSemaphores = &timeline,
    };
    VKT(vkQueueSubmit(queue, 1, &info, VK_NULL_HANDLE));
    VkSemaphoreWaitInfo until = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                 .semaphoreCount = 1,
                                 .pSemaphores = &timeline,
                                 .pValues = &(uint64_t){3}};
    VKT(vkWaitSemaphores(vkt.device, &until, VKT_WAIT_NS));
    VkSemaphoreSignalInfo raise = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = timeline, .value = 6};
    VKT(vkSignalSemaphore(vkt.device, &raise));
    VKT(vkGetSemaphoreCounterValue(vkt.device, timeline, &value));
    VKT_EXPECT(value == 6);
}

/* Submits to the queue and waits for a fence of its own. */
static void run_on(VkQueue queue, VkCommandBuffer command)
{
    VKT(vkEndCommandBuffer(command));
    if (by_timeline) {
        run_with_timeline(queue, command);
        return;
    }
    VkFence fence = vkt_fence(false);
    VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = 1,
        .pCommandBuffers = &command,
    };
    VKT(vkQueueSubmit(queue, 1, &info, fence));
    vkt_wait(fence);
}

static VkCommandBuffer begin(void)
{
    VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    vkt_record(command, 0);
    return command;
}

static void copy_to_slot(VkCommandBuffer command, VkBuffer from, VkBuffer to, uint32_t slot)
{
    VkBufferCopy region = {.dstOffset = (VkDeviceSize)slot * BYTES, .size = BYTES};
    vkCmdCopyBuffer(command, from, to, 1, &region);
}

/* Slot i must hold pattern i. */
static void expect_slots(const struct vkt_buffer *buffer)
{
    static uint32_t want[WORDS];
    struct vkt_buffer staging = vkt_buffer(buffer->size, 0, VKT_COHERENT);
    VkCommandBuffer command = vkt_begin();
    vkt_barrier(command);
    vkt_copy(command, buffer, &staging);
    vkt_finish(command);
    for (uint32_t i = 0; i < SLOTS; i++) {
        vkt_pattern(want, BYTES, i);
        if (memcmp(want, (uint8_t *)staging.map + (size_t)i * BYTES, BYTES) != 0)
            vkt_fail("slot %u holds something else", i);
    }
    vkt_out("slots", staging.map, staging.size);
}

static uint32_t stepped(uint32_t word, uint32_t times)
{
    while (times-- > 0)
        word = word * 1664525u + 1013904223u;
    return word;
}

static void expect_stepped(const struct vkt_buffer *buffer, uint32_t times)
{
    const uint32_t *words = buffer->map, want = stepped(0, times);
    for (uint32_t i = 0; i < buffer->size / 4; i++)
        VKT_EXPECT(words[i] == want);
}

/* It steps from zero; memory of the device holds anything at first. */
static struct vkt_kernel stepper(const struct vkt_buffer *buffer)
{
    if (!buffer->map) {
        VkCommandBuffer command = vkt_begin();
        vkCmdFillBuffer(command, buffer->handle, 0, VK_WHOLE_SIZE, 0);
        vkt_finish(command);
    }
    struct vkt_kernel kernel = vkt_kernel("step.comp", "s", 4);
    vkt_kernel_bind(&kernel, 0, buffer);
    return kernel;
}

static void record_step(VkCommandBuffer command, const struct vkt_kernel *kernel, uint32_t words)
{
    vkt_barrier(command);
    vkt_kernel_record(command, kernel, &(uint32_t){0}, words / 64);
}

/* --- the host's memory ------------------------------------------------------------------------ */

static void staging_rewritten(void)
{
    vkt_open();
    struct vkt_buffer staging = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct vkt_buffer device = vkt_buffer(SLOTS * BYTES, 0, VKT_DEVICE);
    for (uint32_t i = 0; i < SLOTS; i++) {
        vkt_pattern(staging.map, BYTES, i);
        VkCommandBuffer command = begin();
        copy_to_slot(command, staging.handle, device.handle, i);
        run_on(vkt.queue, command);
        memset(staging.map, 0xee, BYTES);
    }
    expect_slots(&device);
}

/* The same without a new recording in between, and with flushes. */
static void recorded_once(void)
{
    vkt_open();
    struct vkt_buffer staging = vkt_buffer(BYTES, 0, VKT_CACHED);
    struct vkt_buffer device = vkt_buffer(SLOTS * BYTES, 0, VKT_DEVICE);
    VkCommandBuffer commands[SLOTS];
    VkFence fence = vkt_fence(false);
    for (uint32_t i = 0; i < SLOTS; i++) {
        commands[i] = begin();
        copy_to_slot(commands[i], staging.handle, device.handle, i);
        VKT(vkEndCommandBuffer(commands[i]));
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        vkt_pattern(staging.map, BYTES, i);
        vkt_flush(&staging);
        vkt_submit(commands[i], fence);
        vkt_wait(fence);
        VKT(vkResetFences(vkt.device, 1, &fence));
        memset(staging.map, (int)i, BYTES);
        vkt_flush(&staging);
    }
    expect_slots(&device);
}

/* What a dispatch reads of the host's memory: its size, and a buffer that is declared readonly. */
static void indirect_rewritten(void)
{
    vkt_open();
    struct vkt_buffer counts = vkt_buffer(sizeof(VkDispatchIndirectCommand),
                                          VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT, VKT_COHERENT);
    struct vkt_buffer source = vkt_storage(BYTES, NULL);
    struct vkt_buffer device = vkt_buffer(BYTES, storage, VKT_DEVICE);
    struct vkt_kernel kernel = vkt_kernel("mix.comp", "ss", 4);
    vkt_kernel_bind(&kernel, 0, &source);
    vkt_kernel_bind(&kernel, 1, &device);
    VkDispatchIndirectCommand *groups = counts.map;
    for (uint32_t i = WORDS / 64; i > 0; i--) {
        *groups = (VkDispatchIndirectCommand){i, 1, 1};
        vkt_pattern(source.map, BYTES, i);
        VkCommandBuffer command = begin();
        vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
        vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1,
                                &kernel.set, 0, NULL);
        vkCmdPushConstants(command, kernel.layout, VK_SHADER_STAGE_ALL, 0, 4, &i);
        vkCmdDispatchIndirect(command, counts.handle, 0);
        run_on(vkt.queue, command);
        *groups = (VkDispatchIndirectCommand){0, 0, 0};
        memset(source.map, 0, BYTES);
    }
    vkt_out_buffer("device", &device);
}

/* --- objects ---------------------------------------------------------------------------------- */

static void source_destroyed(void)
{
    vkt_open();
    struct vkt_buffer device = vkt_buffer(SLOTS * BYTES, 0, VKT_DEVICE);
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = BYTES,
        .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT,
    };
    for (uint32_t i = 0; i < SLOTS; i++) {
        VkBuffer source;
        VkMemoryRequirements needs;
        VkDeviceMemory memory;
        void *map;
        VKT(vkCreateBuffer(vkt.device, &info, NULL, &source));
        vkGetBufferMemoryRequirements(vkt.device, source, &needs);
        VkMemoryAllocateInfo allocate = {
            .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
            .allocationSize = needs.size,
            .memoryTypeIndex = vkt_memory_type(needs.memoryTypeBits, VKT_COHERENT),
        };
        VKT(vkAllocateMemory(vkt.device, &allocate, NULL, &memory));
        VKT(vkBindBufferMemory(vkt.device, source, memory, 0));
        VKT(vkMapMemory(vkt.device, memory, 0, VK_WHOLE_SIZE, 0, &map));
        vkt_pattern(map, BYTES, i);
        VkCommandBuffer command = begin();
        copy_to_slot(command, source, device.handle, i);
        run_on(vkt.queue, command);
        vkDestroyBuffer(vkt.device, source, NULL);
        vkFreeMemory(vkt.device, memory, NULL);
    }
    expect_slots(&device);
}

static void commands_reset(void)
{
    vkt_open();
    struct vkt_buffer staging = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct vkt_buffer device = vkt_buffer(SLOTS * BYTES, 0, VKT_DEVICE);
    VkCommandPool pool =
        vkt_command_pool(vkt.family, VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT);
    VkCommandBuffer command = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    for (uint32_t i = 0; i < SLOTS; i++) {
        vkt_pattern(staging.map, BYTES, i);
        vkt_record(command, 0);
        copy_to_slot(command, staging.handle, device.handle, i);
        run_on(vkt.queue, command);
        switch (i % 4) {
        case 0: /* begun again, as it is */
            break;
        case 1:
            VKT(vkResetCommandBuffer(command, VK_COMMAND_BUFFER_RESET_RELEASE_RESOURCES_BIT));
            break;
        case 2:
            VKT(vkResetCommandPool(vkt.device, pool, 0));
            break;
        default:
            vkFreeCommandBuffers(vkt.device, pool, 1, &command);
            command = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
        }
    }
    expect_slots(&device);
}

static void pool_destroyed(void)
{
    vkt_open();
    struct vkt_buffer staging = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct vkt_buffer device = vkt_buffer(SLOTS * BYTES, 0, VKT_DEVICE);
    VkCommandPoolCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .queueFamilyIndex = vkt.family,
    };
    for (uint32_t i = 0; i < SLOTS; i++) {
        VkCommandPool pool;
        VKT(vkCreateCommandPool(vkt.device, &info, NULL, &pool));
        vkt_pattern(staging.map, BYTES, i);
        VkCommandBuffer command = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
        vkt_record(command, 0);
        copy_to_slot(command, staging.handle, device.handle, i);
        run_on(vkt.queue, command);
        vkDestroyCommandPool(vkt.device, pool, NULL);
    }
    expect_slots(&device);
}

/* Each round a slot of the device's buffer, from the host's through a set that is used again. */
static void set_updated(void)
{
    vkt_open();
    struct vkt_buffer sources[2] = {vkt_storage(BYTES, NULL), vkt_storage(BYTES, NULL)};
    struct vkt_buffer device = vkt_buffer(SLOTS * BYTES, storage, VKT_DEVICE);
    struct vkt_kernel kernel = vkt_kernel("mix.comp", "ss", 4);
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct vkt_buffer *source = &sources[i % 2];
        vkt_pattern(source->map, BYTES, i);
        vkt_kernel_bind(&kernel, 0, source);
        vkt_write_buffer(kernel.set, 1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, device.handle,
                         (VkDeviceSize)i * BYTES, BYTES);
        VkCommandBuffer command = begin();
        vkt_kernel_record(command, &kernel, &(uint32_t){i + 1}, WORDS / 64);
        run_on(vkt.queue, command);
    }
    vkt_out_buffer("device", &device);
}

static VkDescriptorSet set_of(VkDescriptorPool pool, VkDescriptorSetLayout layout)
{
    VkDescriptorSetAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
        .descriptorPool = pool,
        .descriptorSetCount = 1,
        .pSetLayouts = &layout,
    };
    VkDescriptorSet set;
    VKT(vkAllocateDescriptorSets(vkt.device, &info, &set));
    return set;
}

/* Sets freed with their pool, and pipelines destroyed. */
static void set_and_pipeline_gone(void)
{
    vkt_open();
    struct vkt_buffer device = vkt_buffer(BYTES, storage, VKT_DEVICE);
    VkDescriptorSetLayout layout = vkt_set_layout("s", 0);
    VkPipelineLayout pipeline_layout = vkt_layout(layout, 8);
    VkComputePipelineCreateInfo pipeline_info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = vkt_shader("fill.comp"),
                  .pName = "main"},
        .layout = pipeline_layout,
    };
    VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1};
    VkDescriptorPoolCreateInfo pool_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
        .maxSets = 1,
        .poolSizeCount = 1,
        .pPoolSizes = &size,
    };
    VkDescriptorPool pool;
    VKT(vkCreateDescriptorPool(vkt.device, &pool_info, NULL, &pool));
    VKT_KEEP(DESCRIPTOR_POOL, pool);
    for (uint32_t i = 0; i < 8; i++) {
        struct vkt_kernel kernel = {.layout = pipeline_layout, .push_bytes = 8};
        kernel.set = set_of(pool, layout);
        vkt_kernel_bind(&kernel, 0, &device);
        VKT(vkCreateComputePipelines(vkt.device, VK_NULL_HANDLE, 1, &pipeline_info, NULL,
                                     &kernel.pipeline));
        VkCommandBuffer command = begin();
        vkt_barrier(command);
        vkt_kernel_record(command, &kernel, (uint32_t[]){i, i + 1}, WORDS / 64 - i);
        run_on(vkt.queue, command);
        VKT(vkResetDescriptorPool(vkt.device, pool, 0));
        vkDestroyPipeline(vkt.device, kernel.pipeline, NULL);
    }
    vkt_out_buffer("device", &device);
}

/* --- later work ------------------------------------------------------------------------------- */

/* A fence that was waited for stands between two submissions, with no barrier in either. */
static void fence_without_barrier(void)
{
    vkt_open();
    struct vkt_buffer device = vkt_buffer(LARGE_WORDS * 4, storage, VKT_DEVICE);
    struct vkt_buffer result = vkt_buffer(LARGE_WORDS * 4, 0, VKT_COHERENT);
    struct vkt_kernel kernel = stepper(&device);
    VkCommandBuffer command = begin();
    vkCmdFillBuffer(command, device.handle, 0, VK_WHOLE_SIZE, 0);
    run_on(vkt.queue, command);
    command = begin();
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
    vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1,
                            &kernel.set, 0, NULL);
    vkCmdPushConstants(command, kernel.layout, VK_SHADER_STAGE_ALL, 0, 4, &(uint32_t){0});
    vkCmdDispatch(command, LARGE_WORDS / 64, 1, 1);
    VKT(vkEndCommandBuffer(command));
    VkFence fence = vkt_fence(false);
    for (uint32_t i = 0; i < 32; i++) {
        vkt_submit(command, fence);
        vkt_wait(fence);
        VKT(vkResetFences(vkt.device, 1, &fence));
    }
    command = begin();
    vkt_copy(command, &device, &result);
    run_on(vkt.queue, command);
    vkt_invalidate(&result);
    expect_stepped(&result, 32);
    vkt_out("result", result.map, result.size);
}

/* Many waits that need nothing from the server: neither end may run away from the other. */
static void many_repeats(void)
{
    vkt_open();
    struct vkt_buffer device = vkt_buffer(BYTES, storage, VKT_DEVICE);
    struct vkt_buffer result = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct vkt_kernel kernel = stepper(&device);
    VkCommandBuffer command = begin();
    vkCmdFillBuffer(command, device.handle, 0, VK_WHOLE_SIZE, 0);
    run_on(vkt.queue, command);
    command = begin();
    record_step(command, &kernel, WORDS);
    VKT(vkEndCommandBuffer(command));
    VkFence fence = vkt_fence(false);
    for (uint32_t i = 0; i < REPEATS; i++) {
        vkt_submit(command, fence);
        while (vkGetFenceStatus(vkt.device, fence) == VK_NOT_READY)
            ;
        VKT(vkResetFences(vkt.device, 1, &fence));
    }
    command = begin();
    vkt_barrier(command);
    vkt_copy(command, &device, &result);
    run_on(vkt.queue, command);
    expect_stepped(&result, REPEATS);
    vkt_out("result", result.map, result.size);
}

/* Visible and invisible work behind one fence, in every order, in one submission and in two. */
static void mixed(void)
{
    vkt_open();
    struct vkt_buffer mapped = vkt_storage(LARGE_WORDS * 4, NULL);
    struct vkt_buffer device = vkt_buffer(LARGE_WORDS * 4, storage, VKT_DEVICE);
    struct vkt_kernel visible = stepper(&mapped), invisible = stepper(&device);
    for (uint32_t i = 0; i < 8; i++) {
        VkCommandBuffer first = begin(), second = begin();
        record_step(first, i & 1 ? &visible : &invisible, LARGE_WORDS);
        record_step(second, i & 1 ? &invisible : &visible, LARGE_WORDS);
        VKT(vkEndCommandBuffer(first));
        VKT(vkEndCommandBuffer(second));
        VkSubmitInfo infos[2] = {{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                  .commandBufferCount = 1,
                                  .pCommandBuffers = &first},
                                 {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                  .commandBufferCount = 1,
                                  .pCommandBuffers = &second}};
        VkFence fence = vkt_fence(false);
        if (i & 2)
            VKT(vkQueueSubmit(vkt.queue, 2, infos, fence));
        else
            VKT(vkQueueSubmit(vkt.queue, 1, &infos[0], VK_NULL_HANDLE));
        if (!(i & 2))
            VKT(vkQueueSubmit(vkt.queue, 1, &infos[1], i & 4 ? VK_NULL_HANDLE : fence));
        if ((i & 6) == 4)
            VKT(vkQueueSubmit(vkt.queue, 0, NULL, fence));
        vkt_wait(fence);
        expect_stepped(&mapped, i + 1);
    }
    vkt_out_buffer("mapped", &mapped);
}

static void idle_then_read(bool whole_device)
{
    vkt_open();
    struct vkt_buffer staging = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct vkt_buffer device = vkt_buffer(SLOTS * BYTES, 0, VKT_DEVICE);
    for (uint32_t i = 0; i < SLOTS; i++) {
        vkt_pattern(staging.map, BYTES, i);
        VkCommandBuffer command = begin();
        copy_to_slot(command, staging.handle, device.handle, i);
        VKT(vkEndCommandBuffer(command));
        vkt_submit(command, VK_NULL_HANDLE);
        VKT(whole_device ? vkDeviceWaitIdle(vkt.device) : vkQueueWaitIdle(vkt.queue));
        memset(staging.map, 0, BYTES);
        vkFreeCommandBuffers(vkt.device, vkt.pool, 1, &command);
    }
    expect_slots(&device);
}

static void queue_idle(void)
{
    idle_then_read(false);
}

static void device_idle(void)
{
    idle_then_read(true);
}

/* --- what the host can see -------------------------------------------------------------------- */

static void fence_after_query(void)
{
    VKT_NEED(vkt.f10.pipelineStatisticsQuery);
    vkt_open();
    struct vkt_buffer device = vkt_buffer(LARGE_WORDS * 4, storage, VKT_DEVICE);
    struct vkt_kernel kernel = stepper(&device);
    VkQueryPoolCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
        .queryType = VK_QUERY_TYPE_PIPELINE_STATISTICS,
        .queryCount = 1,
        .pipelineStatistics = VK_QUERY_PIPELINE_STATISTIC_COMPUTE_SHADER_INVOCATIONS_BIT,
    };
    VkQueryPool queries;
    VKT(vkCreateQueryPool(vkt.device, &info, NULL, &queries));
    VKT_KEEP(QUERY_POOL, queries);
    for (uint32_t i = 1; i <= 8; i++) {
        uint64_t count = 0;
        VkCommandBuffer command = begin();
        vkCmdResetQueryPool(command, queries, 0, 1);
        vkCmdBeginQuery(command, queries, 0, 0);
        record_step(command, &kernel, LARGE_WORDS / i);
        vkCmdEndQuery(command, queries, 0);
        run_on(vkt.queue, command);
        vkt_out_result("query", vkGetQueryPoolResults(vkt.device, queries, 0, 1, sizeof(count),
                                                      &count, 8, VK_QUERY_RESULT_64_BIT));
        vkt_out_u64("invocations", count);
    }
}

static void fence_after_event(void)
{
    vkt_open();
    struct vkt_buffer device = vkt_buffer(LARGE_WORDS * 4, storage, VKT_DEVICE);
    struct vkt_kernel kernel = stepper(&device);
    VkEventCreateInfo info = {.sType = VK_STRUCTURE_TYPE_EVENT_CREATE_INFO};
    VkEvent event;
    VKT(vkCreateEvent(vkt.device, &info, NULL, &event));
    VKT_KEEP(EVENT, event);
    for (uint32_t i = 0; i < 8; i++) {
        VkCommandBuffer command = begin();
        record_step(command, &kernel, LARGE_WORDS);
        if (i & 1)
            vkCmdResetEvent(command, event, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT);
        else
            vkCmdSetEvent(command, event, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT);
        run_on(vkt.queue, command);
        vkt_out_result("event", vkGetEventStatus(vkt.device, event));
    }
}

/* A value that the device signals is there after the fence; work that waits for the host's is not
 * done before it. */
static void fence_with_timeline(void)
{
    VKT_NEED(vkt.f12.timelineSemaphore);
    vkt_open();
    struct vkt_buffer device = vkt_buffer(LARGE_WORDS * 4, storage, VKT_DEVICE);
    struct vkt_buffer staging = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct vkt_kernel kernel = stepper(&device);
    VkSemaphore timeline = vkt_timeline(0);
    VkCommandBuffer command = begin();
    record_step(command, &kernel, LARGE_WORDS);
    VKT(vkEndCommandBuffer(command));
    VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    for (uint64_t i = 0; i < 8; i++) {
        uint64_t wait = 2 * i + 1, signal = 2 * i + 2, value = 0;
        VkTimelineSemaphoreSubmitInfo values = {
            .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
            .waitSemaphoreValueCount = 1,
            .pWaitSemaphoreValues = &wait,
            .signalSemaphoreValueCount = 1,
            .pSignalSemaphoreValues = &signal,
        };
        VkSubmitInfo info = {
            .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
            .pNext = &values,
            .waitSemaphoreCount = 1,
            .pWaitSemaphores = &timeline,
            .pWaitDstStageMask = &stage,
            .commandBufferCount = 1,
            .pCommandBuffers = &command,
            .signalSemaphoreCount = 1,
            .pSignalSemaphores = &timeline,
        };
        VkFence fence = vkt_fence(false);
        VKT(vkQueueSubmit(vkt.queue, 1, &info, fence));
        vkt_out_result("before", vkGetFenceStatus(vkt.device, fence));
        vkt_pattern(staging.map, BYTES, (uint32_t)i);
        VkSemaphoreSignalInfo go = {
            .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = timeline, .value = wait};
        VKT(vkSignalSemaphore(vkt.device, &go));
        vkt_wait(fence);
        VkSemaphoreWaitInfo until = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                     .semaphoreCount = 1,
                                     .pSemaphores = &timeline,
                                     .pValues = &signal};
        VKT(vkWaitSemaphores(vkt.device, &until,
                             VKT_WAIT_NS)); /* drivers may signal it a bit later */
        VKT(vkGetSemaphoreCounterValue(vkt.device, timeline, &value));
        vkt_out_u64("value", value);
    }
    vkt_out_buffer("device", &device);
}

/* --- writes that are hard to see -------------------------------------------------------------- */

struct push {
    VkDeviceAddress first, target;
    uint32_t count, padding;
};

static VkDeviceAddress address_of(const struct vkt_buffer *buffer)
{
    VkBufferDeviceAddressInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
        .buffer = buffer->handle,
    };
    return vkGetBufferDeviceAddress(vkt.device, &info);
}

/* No descriptor names what the kernel writes. */
static void written_by_address(void)
{
    VKT_NEED(vkt.f12.bufferDeviceAddress);
    vkt_open();
    const VkBufferUsageFlags usage = storage | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    struct vkt_buffer node = vkt_buffer(256, usage, VKT_COHERENT);
    struct vkt_buffer target = vkt_buffer(LARGE_WORDS * 4, usage, VKT_COHERENT);
    struct vkt_kernel kernel = vkt_kernel("address.comp", "", sizeof(struct push));
    struct push push = {address_of(&node), address_of(&target), LARGE_WORDS, 0};
    memcpy(node.map, &push.first, sizeof(push.first)); /* a ring of one */
    for (uint32_t i = 1; i <= 4; i++) {
        ((uint32_t *)node.map)[2] = i;
        VkCommandBuffer command = begin();
        vkt_kernel_record(command, &kernel, &push, 1);
        run_on(vkt.queue, command);
        const uint32_t *words = target.map;
        VKT_EXPECT(words[0] == i && words[LARGE_WORDS - 1] == i);
    }
    vkt_out_buffer("target", &target);
}

static void written_by_secondary(void)
{
    vkt_open();
    struct vkt_buffer mapped = vkt_storage(LARGE_WORDS * 4, NULL);
    struct vkt_kernel kernel = stepper(&mapped);
    VkCommandBuffer secondary = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_SECONDARY);
    VkCommandBufferInheritanceInfo inheritance = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO};
    VkCommandBufferBeginInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .pInheritanceInfo = &inheritance,
    };
    VKT(vkBeginCommandBuffer(secondary, &info));
    record_step(secondary, &kernel, LARGE_WORDS);
    VKT(vkEndCommandBuffer(secondary));
    for (uint32_t i = 1; i <= 4; i++) {
        VkCommandBuffer command = begin();
        vkCmdExecuteCommands(command, 1, &secondary);
        run_on(vkt.queue, command);
        expect_stepped(&mapped, i);
    }
    vkt_out_buffer("mapped", &mapped);
}

/* One shader, two buffers of the host: what it may write is seen with the fence, what it may only
 * read is the program's again. */
static void readonly_and_not(void)
{
    vkt_open();
    struct vkt_buffer source = vkt_storage(BYTES, NULL), target = vkt_storage(BYTES, NULL);
    struct vkt_buffer device = vkt_buffer(BYTES, storage, VKT_DEVICE);
    struct vkt_kernel kernel = vkt_kernel("mix.comp", "ss", 4);
    vkt_kernel_bind(&kernel, 0, &source);
    for (uint32_t i = 0; i < 16; i++) {
        bool to_host = i % 3 == 2;
        vkt_kernel_bind(&kernel, 1, to_host ? &target : &device);
        vkt_pattern(source.map, BYTES, i);
        VkCommandBuffer command = begin();
        vkt_barrier(command);
        vkt_kernel_record(command, &kernel, &(uint32_t){i}, WORDS / 64);
        run_on(vkt.queue, command);
        uint32_t first = ((uint32_t *)source.map)[1];
        memset(source.map, 0xff, BYTES);
        VKT_EXPECT(!to_host || ((uint32_t *)target.map)[1] == first * i + 1);
    }
    vkt_out_buffer("target", &target);
    vkt_out_buffer("device", &device);
}

/* Memory that the host could map, and does once the fence says that it may look. */
static void mapped_afterwards(void)
{
    vkt_open();
    for (uint32_t i = 0; i < 8; i++) {
        VkBuffer buffer = vkt_buffer_only(LARGE_WORDS * 4, storage);
        VkMemoryRequirements needs;
        void *map;
        vkGetBufferMemoryRequirements(vkt.device, buffer, &needs);
        VkDeviceMemory memory = vkt_allocate(needs, VKT_COHERENT, NULL);
        VKT(vkBindBufferMemory(vkt.device, buffer, memory, 0));
        VkCommandBuffer command = begin();
        vkCmdFillBuffer(command, buffer, 0, VK_WHOLE_SIZE, 0x01010101u * i);
        vkt_barrier(command);
        run_on(vkt.queue, command);
        VKT(vkMapMemory(vkt.device, memory, 0, VK_WHOLE_SIZE, 0, &map));
        vkt_out("filled", map, LARGE_WORDS * 4);
    }
}

/* --- two queues ------------------------------------------------------------------------------- */

struct second {
    VkQueue queue;
    VkCommandPool pool;
};

static struct second second_queue(void)
{
    for (uint32_t i = 0; i < vkt.queue_count; i++) {
        const struct vkt_queue *queue = &vkt.queues[i];
        if (queue->handle != vkt.queue && queue->family == vkt.family)
            return (struct second){queue->handle, vkt_command_pool(queue->family, 0)};
    }
    vkt_skip("no second queue of the family");
}

static VkCommandBuffer begin_in(VkCommandPool pool)
{
    VkCommandBuffer command = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    vkt_record(command, 0);
    return command;
}

/* Uploaded by one queue and used by the other, with a fence in between and nothing else. */
static void other_queue(void)
{
    vkt_open();
    struct second second = second_queue();
    struct vkt_buffer staging = vkt_buffer(LARGE_WORDS * 4, 0, VKT_COHERENT);
    struct vkt_buffer device = vkt_buffer(LARGE_WORDS * 4, 0, VKT_DEVICE);
    struct vkt_buffer result = vkt_buffer(LARGE_WORDS * 4, 0, VKT_COHERENT);
    for (uint32_t i = 0; i < 16; i++) {
        vkt_pattern(staging.map, LARGE_WORDS * 4, i);
        VkCommandBuffer command = begin();
        vkt_copy(command, &staging, &device);
        run_on(vkt.queue, command);
        command = begin_in(second.pool);
        vkt_copy(command, &device, &result);
        vkt_barrier(command);
        run_on(second.queue, command);
        VKT_EXPECT(memcmp(staging.map, result.map, LARGE_WORDS * 4) == 0);
    }
    vkt_out_buffer("result", &result);
}

static void submit_with(VkQueue queue, const VkSubmitInfo2 *info, VkFence fence)
{
    VKT(vkQueueSubmit2(queue, 1, info, fence));
}

static VkSemaphoreSubmitInfo at(VkSemaphore semaphore, uint64_t value)
{
    return (VkSemaphoreSubmitInfo){
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
        .semaphore = semaphore,
        .value = value,
        .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
    };
}

static VkCommandBufferSubmitInfo the(VkCommandBuffer command)
{
    VKT(vkEndCommandBuffer(command));
    return (VkCommandBufferSubmitInfo){.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO,
                                       .commandBuffer = command};
}

/* The fence is of work that nobody sees; but that waits for work of the other queue that writes
 * the host's memory and, `held`, waits itself for the host. */
static void through_semaphore(bool held)
{
    VKT_NEED(vkt.f13.synchronization2);
    VKT_NEED(vkt.f12.timelineSemaphore);
    vkt_open();
    struct second second = second_queue();
    struct vkt_buffer mapped = vkt_storage(LARGE_WORDS * 4, NULL);
    struct vkt_buffer staging = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct vkt_buffer device = vkt_buffer(BYTES, storage, VKT_DEVICE);
    struct vkt_kernel visible = stepper(&mapped), invisible = stepper(&device);
    VkSemaphore timeline = vkt_timeline(0);
    for (uint32_t i = 1; i <= 8; i++) {
        VkSemaphore binary = vkt_semaphore();
        VkFence fence = vkt_fence(false);
        VkCommandBuffer first = begin_in(second.pool), last = begin();
        record_step(first, &visible, LARGE_WORDS);
        record_step(last, &invisible, WORDS);
        VkSemaphoreSubmitInfo go = at(timeline, i), link = at(binary, 0);
        VkCommandBufferSubmitInfo first_info = the(first), last_info = the(last);
        VkSubmitInfo2 producer = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                                  .waitSemaphoreInfoCount = held,
                                  .pWaitSemaphoreInfos = &go,
                                  .commandBufferInfoCount = 1,
                                  .pCommandBufferInfos = &first_info,
                                  .signalSemaphoreInfoCount = 1,
                                  .pSignalSemaphoreInfos = &link};
        VkSubmitInfo2 consumer = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                                  .waitSemaphoreInfoCount = 1,
                                  .pWaitSemaphoreInfos = &link,
                                  .commandBufferInfoCount = 1,
                                  .pCommandBufferInfos = &last_info};
        submit_with(second.queue, &producer, VK_NULL_HANDLE);
        submit_with(vkt.queue, &consumer, fence);
        if (held) {
            VkSemaphoreSignalInfo signal = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO,
                                            .semaphore = timeline,
                                            .value = i};
            vkt_out_result("before", vkGetFenceStatus(vkt.device, fence));
            vkt_pattern(staging.map, BYTES, i);
            vkt_flush(&staging);
            VKT(vkSignalSemaphore(vkt.device, &signal));
        }
        vkt_wait(fence);
        expect_stepped(&mapped, i);
    }
    vkt_out_buffer("mapped", &mapped);
}

static void chained_queues(void)
{
    through_semaphore(false);
}

static void chained_to_host(void)
{
    through_semaphore(true);
}

/* --- the same with timelines ------------------------------------------------------------------ */

/* Work that the host cannot see is not waited for. */
static void timeline_steps(void)
{
    VKT_NEED(vkt.f12.timelineSemaphore);
    vkt_open();
    struct vkt_buffer device = vkt_buffer(LARGE_WORDS * 4, storage, VKT_DEVICE);
    struct vkt_buffer staging = vkt_buffer(LARGE_WORDS * 4, 0, VKT_COHERENT);
    struct vkt_kernel kernel = stepper(&device);
    bool waits = getenv("VENUS_SYNC") || getenv("VENUS_EARLY_FENCE") ||
                 getenv("VENUS_HOST_VISIBLE_DEVICE_MEMORY");
    for (uint32_t i = 0; i < 8; i++) {
        VkCommandBuffer command = begin();
        record_step(command, &kernel, LARGE_WORDS);
        VKT(vkEndCommandBuffer(command));
        uint64_t exchanges = vkt_exchanges();
        run_with_timeline(vkt.queue, command);
        VKT_EXPECT(waits || vkt_exchanges() == exchanges);
    }
    VkCommandBuffer command = vkt_begin();
    vkt_copy(command, &device, &staging);
    vkt_finish(command);
    expect_stepped(&staging, 8);
}

#define BY_TIMELINE(name)                                                                          \
    static void timeline_##name(void)                                                              \
    {                                                                                              \
        VKT_NEED(vkt.f12.timelineSemaphore);                                                       \
        by_timeline = true;                                                                        \
        name();                                                                                    \
        by_timeline = false;                                                                       \
    }
BY_TIMELINE(staging_rewritten)
BY_TIMELINE(source_destroyed)
BY_TIMELINE(commands_reset)
BY_TIMELINE(set_and_pipeline_gone)
BY_TIMELINE(fence_after_query)
BY_TIMELINE(mapped_afterwards)

static const struct vkt_case cases[] = {
    {"staging_rewritten", staging_rewritten, NULL},
    {"recorded_once", recorded_once, NULL},
    {"indirect_rewritten", indirect_rewritten, NULL},
    {"source_destroyed", source_destroyed, NULL},
    {"commands_reset", commands_reset, NULL},
    {"pool_destroyed", pool_destroyed, NULL},
    {"set_updated", set_updated, NULL},
    {"set_and_pipeline_gone", set_and_pipeline_gone, NULL},
    {"fence_without_barrier", fence_without_barrier, NULL},
    {"many_repeats", many_repeats, NULL},
    {"mixed", mixed, NULL},
    {"queue_idle", queue_idle, NULL},
    {"device_idle", device_idle, NULL},
    {"fence_after_query", fence_after_query, NULL},
    {"fence_after_event", fence_after_event, NULL},
    {"fence_with_timeline", fence_with_timeline, NULL},
    {"written_by_address", written_by_address, NULL},
    {"written_by_secondary", written_by_secondary, NULL},
    {"readonly_and_not", readonly_and_not, NULL},
    {"mapped_afterwards", mapped_afterwards, NULL},
    {"other_queue", other_queue, NULL},
    {"chained_queues", chained_queues, NULL},
    {"chained_to_host", chained_to_host, NULL},
    {"timeline_steps", timeline_steps, NULL},
    {"timeline_staging_rewritten", timeline_staging_rewritten, NULL},
    {"timeline_source_destroyed", timeline_source_destroyed, NULL},
    {"timeline_commands_reset", timeline_commands_reset, NULL},
    {"timeline_set_and_pipeline_gone", timeline_set_and_pipeline_gone, NULL},
    {"timeline_fence_after_query", timeline_fence_after_query, NULL},
    {"timeline_mapped_afterwards", timeline_mapped_afterwards, NULL},
};

VKT_MAIN(cases)
