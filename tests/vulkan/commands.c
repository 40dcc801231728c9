/* commands.c - differential programs: command pools and buffers, threads. */
#include "vkt.h"

#include <pthread.h>
#include <stdlib.h>

enum { WORDS = 1024, BYTES = WORDS * 4, THREADS = 4 };

static struct vkt_buffer data;
static struct vkt_kernel kernel;

static void prepare(void)
{
    vkt_open();
    data = vkt_storage(BYTES, NULL);
    kernel = vkt_kernel("step.comp", "s", 4);
    vkt_kernel_bind(&kernel, 0, &data);
}

static void step_into(VkCommandBuffer command, uint32_t add)
{
    vkt_barrier(command);
    vkt_kernel_record(command, &kernel, &add, WORDS / 64);
}

static VkCommandBuffer stepping(VkCommandPool pool, uint32_t add, VkCommandBufferUsageFlags flags)
{
    VkCommandBuffer command = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    vkt_record(command, flags);
    step_into(command, add);
    VKT(vkEndCommandBuffer(command));
    return command;
}

static void submit_and_wait(VkCommandBuffer command)
{
    VkFence fence = vkt_fence(false);
    vkt_submit(command, fence);
    vkt_wait(fence);
}

static void one_time(void)
{
    prepare();
    for (uint32_t i = 0; i < 5; i++) {
        VkCommandBuffer command =
            stepping(vkt.pool, i, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
        submit_and_wait(command);
        vkFreeCommandBuffers(vkt.device, vkt.pool, 1, &command);
    }
    vkt_out_buffer("data", &data);
}

static void resubmitted(void)
{
    prepare();
    VkCommandBuffer command = stepping(vkt.pool, 3, 0);
    for (int i = 0; i < 10; i++)
        submit_and_wait(command);
    vkt_out_buffer("data", &data);
}

static void simultaneous(void)
{
    prepare();
    VkCommandBuffer command = stepping(vkt.pool, 4, VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT);
    for (int i = 0; i < 10; i++) /* all pending at once */
        vkt_submit(command, VK_NULL_HANDLE);
    VkCommandBuffer twice[2] = {command, command};
    VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = 2,
        .pCommandBuffers = twice,
    };
    VKT(vkQueueSubmit(vkt.queue, 1, &info, VK_NULL_HANDLE));
    VKT(vkQueueWaitIdle(vkt.queue));
    vkt_out_buffer("data", &data);
}

static void reset_buffer(void)
{
    prepare();
    VkCommandBuffer command = stepping(vkt.pool, 1, 0);
    submit_and_wait(command);
    VKT(vkResetCommandBuffer(command, VK_COMMAND_BUFFER_RESET_RELEASE_RESOURCES_BIT));
    vkt_record(command, 0);
    step_into(command, 2);
    VKT(vkEndCommandBuffer(command));
    submit_and_wait(command);
    vkt_record(command, 0); /* beginning again resets as well */
    step_into(command, 3);
    VKT(vkEndCommandBuffer(command));
    submit_and_wait(command);
    vkt_out_buffer("data", &data);
}

static void abandoned(void)
{
    prepare();
    /* Recorded, never submitted, recorded otherwise: nothing of it may remain. */
    VkCommandBuffer command = stepping(vkt.pool, 77, 0);
    VKT(vkResetCommandBuffer(command, 0));
    vkt_record(command, 0);
    vkCmdFillBuffer(command, data.handle, 0, 64, 1);
    VKT(vkResetCommandBuffer(command, 0)); /* while recording */
    vkt_record(command, 0);
    step_into(command, 5);
    VKT(vkEndCommandBuffer(command));
    submit_and_wait(command);
    vkt_out_buffer("data", &data);
}

/* Long enough that a driver may have begun to work on it. */
static void record_long(VkCommandBuffer command, uint32_t value)
{
    vkt_record(command, 0);
    for (VkDeviceSize i = 0; i < 400; i++)
        vkCmdFillBuffer(command, data.handle, 4 * i, 4, value);
}

static void abandoned_when_long(void)
{
    prepare();
    VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    record_long(command, 1);
    VKT(vkResetCommandBuffer(command, 0)); /* while recording */
    record_long(command, 2);
    VKT(vkEndCommandBuffer(command));
    VKT(vkResetCommandBuffer(command, VK_COMMAND_BUFFER_RESET_RELEASE_RESOURCES_BIT));
    VkCommandBuffer freed = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    record_long(freed, 3);
    vkFreeCommandBuffers(vkt.device, vkt.pool, 1, &freed);
    VkCommandPool pool = vkt_command_pool(vkt.family, 0);
    VkCommandBuffer other = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    record_long(other, 4);
    VKT(vkResetCommandPool(vkt.device, pool, 0));
    vkt_record(other, 0);
    step_into(other, 5);
    VKT(vkEndCommandBuffer(other));
    submit_and_wait(other);
    vkt_record(command, 0);
    step_into(command, 6);
    VKT(vkEndCommandBuffer(command));
    submit_and_wait(command);
    vkt_out_buffer("data", &data);
}

static void reset_pool(void)
{
    prepare();
    VkCommandPool pool = vkt_command_pool(vkt.family, VK_COMMAND_POOL_CREATE_TRANSIENT_BIT);
    VkCommandBuffer commands[3];
    for (uint32_t i = 0; i < 3; i++)
        commands[i] = stepping(pool, i, 0);
    for (int i = 0; i < 3; i++)
        submit_and_wait(commands[i]);
    VKT(vkResetCommandPool(vkt.device, pool, 0));
    for (uint32_t i = 0; i < 3; i++) {
        vkt_record(commands[i], 0);
        step_into(commands[i], 10 + i);
        VKT(vkEndCommandBuffer(commands[i]));
        submit_and_wait(commands[i]);
    }
    VKT(vkResetCommandPool(vkt.device, pool, VK_COMMAND_POOL_RESET_RELEASE_RESOURCES_BIT));
    vkTrimCommandPool(vkt.device, pool, 0);
    submit_and_wait(stepping(pool, 20, 0));
    vkt_out_buffer("data", &data);
}

static VkCommandBuffer secondary(uint32_t add, VkCommandBufferUsageFlags flags)
{
    VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_SECONDARY);
    VkCommandBufferInheritanceInfo inherit = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO,
    };
    VkCommandBufferBeginInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = flags,
        .pInheritanceInfo = &inherit,
    };
    VKT(vkBeginCommandBuffer(command, &info));
    step_into(command, add);
    VKT(vkEndCommandBuffer(command));
    return command;
}

static void secondaries(void)
{
    prepare();
    VkCommandBuffer parts[3];
    for (uint32_t i = 0; i < 3; i++)
        parts[i] = secondary(i + 1, VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT);
    VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    vkt_record(command, 0);
    step_into(command, 100);
    vkCmdExecuteCommands(command, 3, parts);
    vkCmdExecuteCommands(command, 1, &parts[1]);
    step_into(command, 200); /* binds again: state does not survive a secondary */
    VKT(vkEndCommandBuffer(command));
    submit_and_wait(command);
    submit_and_wait(command);
    vkt_out_buffer("data", &data);
}

static void ignored_inheritance(void)
{
    prepare();
    VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    VkCommandBufferBeginInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .pInheritanceInfo = (const VkCommandBufferInheritanceInfo *)(uintptr_t)16, /* not read */
    };
    VKT(vkBeginCommandBuffer(command, &info));
    step_into(command, 8);
    VKT(vkEndCommandBuffer(command));
    submit_and_wait(command);
    vkt_out_buffer("data", &data);
}

static void many_in_one_submit(void)
{
    prepare();
    enum { MANY = 100 };
    VkCommandBuffer commands[MANY];
    for (uint32_t i = 0; i < MANY; i++)
        commands[i] = stepping(vkt.pool, i * i, 0);
    VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = MANY,
        .pCommandBuffers = commands,
    };
    VkFence fence = vkt_fence(false);
    VKT(vkQueueSubmit(vkt.queue, 1, &info, fence));
    vkt_wait(fence);
    vkt_out_buffer("data", &data);
}

static void long_recording(void)
{
    prepare();
    /* Thousands of commands in one buffer. */
    VkCommandBuffer command = vkt_begin();
    for (uint32_t i = 0; i < 4000; i++)
        vkCmdUpdateBuffer(command, data.handle, (i % WORDS) * 4, 4, &i), vkt_barrier(command);
    vkt_finish(command);
    vkt_out_buffer("data", &data);
}

/* --- threads ---------------------------------------------------------------------------------- */

struct worker {
    pthread_t thread;
    VkCommandPool pool;
    VkCommandBuffer commands[20];
    struct vkt_buffer data;
    struct vkt_kernel kernel;
    VkFence fence;
    pthread_mutex_t *queue_lock;
};

static void worker_init(struct worker *worker, pthread_mutex_t *queue_lock)
{
    worker->pool = vkt_command_pool(vkt.family, 0);
    worker->data = vkt_storage(BYTES, NULL);
    worker->kernel = vkt_kernel("step.comp", "s", 4);
    vkt_kernel_bind(&worker->kernel, 0, &worker->data);
    worker->fence = vkt_fence(false);
    worker->queue_lock = queue_lock;
}

static void *record_all(void *argument)
{
    struct worker *worker = argument;
    for (uint32_t i = 0; i < VKT_COUNT(worker->commands); i++) {
        VkCommandBuffer command = vkt_command(worker->pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
        vkt_record(command, 0);
        vkt_barrier(command);
        vkt_kernel_record(command, &worker->kernel, &i, WORDS / 64);
        VKT(vkEndCommandBuffer(command));
        worker->commands[i] = command;
    }
    return NULL;
}

static void *record_and_submit(void *argument)
{
    struct worker *worker = argument;
    record_all(worker);
    for (size_t i = 0; i < VKT_COUNT(worker->commands); i++) {
        pthread_mutex_lock(worker->queue_lock); /* a queue is externally synchronised */
        vkt_submit(worker->commands[i], worker->fence);
        pthread_mutex_unlock(worker->queue_lock);
        vkt_wait(worker->fence);
        VKT(vkResetFences(vkt.device, 1, &worker->fence));
    }
    return NULL;
}

static void run_workers(struct worker *workers, void *(*body)(void *))
{
    static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
    for (int i = 0; i < THREADS; i++)
        worker_init(&workers[i], &queue_lock);
    for (int i = 0; i < THREADS; i++)
        VKT_EXPECT(pthread_create(&workers[i].thread, NULL, body, &workers[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
}

static void threads_record(void)
{
    vkt_open();
    static struct worker workers[THREADS];
    run_workers(workers, record_all);
    for (int i = 0; i < THREADS; i++) {
        VkSubmitInfo info = {
            .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
            .commandBufferCount = VKT_COUNT(workers[i].commands),
            .pCommandBuffers = workers[i].commands,
        };
        VKT(vkQueueSubmit(vkt.queue, 1, &info, workers[i].fence));
    }
    for (int i = 0; i < THREADS; i++) {
        vkt_wait(workers[i].fence);
        vkt_out_buffer("data", &workers[i].data);
    }
}

static void threads_submit(void)
{
    vkt_open();
    static struct worker workers[THREADS];
    run_workers(workers, record_and_submit);
    for (int i = 0; i < THREADS; i++)
        vkt_out_buffer("data", &workers[i].data);
}

static void *make_and_break(void *argument)
{
    struct worker *worker = argument;
    for (uint32_t i = 0; i < 200; i++) {
        VkBufferCreateInfo info = {
            .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
            .size = 64 + i,
            .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT,
        };
        VkBuffer buffer;
        VKT(vkCreateBuffer(vkt.device, &info, NULL, &buffer));
        VkMemoryRequirements needs;
        vkGetBufferMemoryRequirements(vkt.device, buffer, &needs);
        ((uint32_t *)worker->data.map)[i] = (uint32_t)needs.size;
        vkDestroyBuffer(vkt.device, buffer, NULL);
    }
    return NULL;
}

static void threads_create(void)
{
    vkt_open();
    static struct worker workers[THREADS];
    run_workers(workers, make_and_break);
    for (int i = 0; i < THREADS; i++)
        vkt_out_buffer("sizes", &workers[i].data);
}

/* --- what ends while it is recorded ----------------------------------------------------------- */

/* A layout like the kernel's, which nobody keeps. */
static VkPipelineLayout brief_layout(void)
{
    const VkPushConstantRange range = {VK_SHADER_STAGE_ALL, 0, 4};
    VkPipelineLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                       .setLayoutCount = 1,
                                       .pSetLayouts = &kernel.set_layout,
                                       .pushConstantRangeCount = 1,
                                       .pPushConstantRanges = &range};
    VkPipelineLayout layout;
    VKT(vkCreatePipelineLayout(vkt.device, &info, NULL, &layout));
    return layout;
}

static void use_layout(VkCommandBuffer command, VkPipelineLayout layout, uint32_t add)
{
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
    vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &kernel.set, 0,
                            NULL);
    vkCmdPushConstants(command, layout, VK_SHADER_STAGE_ALL, 0, 4, &add);
}

/* Vulkan forbids it, drivers do not mind. */
static void ended_layout(void)
{
    prepare();
    VkCommandBuffer command = vkt_begin();
    for (uint32_t i = 1; i < 4; i++) {
        VkPipelineLayout layout = brief_layout();
        use_layout(command, layout, i);
        vkDestroyPipelineLayout(vkt.device, layout, NULL);
        vkCmdDispatch(command, WORDS / 64, 1, 1);
        vkt_barrier(command);
    }
    vkt_finish(command);
    vkt_out_buffer("data", &data);
}

struct recorder {
    pthread_t thread;
    VkCommandBuffer command;
    VkPipelineLayout layout;
    pthread_barrier_t *used;
};

static void *record_on(void *argument)
{
    const struct recorder *r = argument;
    use_layout(r->command, r->layout, 1);
    pthread_barrier_wait(r->used);
    for (uint32_t i = 0; i < 2000; i++)
        vkt_barrier(r->command);
    vkCmdDispatch(r->command, WORDS / 64, 1, 1);
    vkt_barrier(r->command);
    return NULL;
}

/* Layouts end in one thread while others go on recording. */
static void ended_by_others(void)
{
    prepare();
    struct recorder recorders[THREADS];
    pthread_barrier_t used;
    pthread_barrier_init(&used, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        VkCommandPool pool = vkt_command_pool(vkt.family, 0);
        recorders[i] =
            (struct recorder){.command = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY),
                              .layout = brief_layout(),
                              .used = &used};
        vkt_record(recorders[i].command, 0);
        if (pthread_create(&recorders[i].thread, NULL, record_on, &recorders[i]))
            vkt_fail("no thread");
    }
    pthread_barrier_wait(&used);
    for (int i = 0; i < THREADS; i++)
        vkDestroyPipelineLayout(vkt.device, recorders[i].layout, NULL);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(recorders[i].thread, NULL);
        VKT(vkEndCommandBuffer(recorders[i].command));
        submit_and_wait(recorders[i].command);
    }
    pthread_barrier_destroy(&used);
    vkt_out_buffer("data", &data);
}

/* More than a server takes at once. */
static void large_recording(void)
{
    enum { LARGE_BYTES = 12 << 20, UPDATE_BYTES = 32 };
    vkt_open();
    struct vkt_buffer to = vkt_storage(LARGE_BYTES, NULL);
    uint8_t *bytes = malloc(LARGE_BYTES);
    VKT_EXPECT(bytes != NULL);
    vkt_pattern(bytes, LARGE_BYTES, 3);
    VkCommandBuffer command = vkt_begin();
    for (uint32_t at = 0; at < LARGE_BYTES; at += UPDATE_BYTES)
        vkCmdUpdateBuffer(command, to.handle, at, UPDATE_BYTES, bytes + at);
    vkt_barrier(command);
    vkt_finish(command);
    free(bytes);
    vkt_out_buffer("data", &to);
}

/* Recordings of a copy each, which are long since they wait for much. */
static void large_submission(void)
{
    enum { BUFFERS = 400, BARRIERS = 4096 };
    vkt_open();
    struct vkt_buffer from = vkt_storage(BYTES, NULL), to = vkt_storage(BYTES, NULL);
    static VkMemoryBarrier barriers[BARRIERS];
    static VkCommandBuffer commands[BUFFERS];
    for (uint32_t i = 0; i < BARRIERS; i++)
        barriers[i] = (VkMemoryBarrier){.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER};
    vkt_pattern(from.map, BYTES, 4);
    for (uint32_t i = 0; i < BUFFERS; i++) {
        commands[i] = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
        vkt_record(commands[i], 0);
        vkCmdCopyBuffer(commands[i], from.handle, to.handle, 1, &(VkBufferCopy){4 * i, 4 * i, 4});
        vkCmdPipelineBarrier(commands[i], VK_PIPELINE_STAGE_TRANSFER_BIT,
                             VK_PIPELINE_STAGE_TRANSFER_BIT, 0, BARRIERS, barriers, 0, NULL, 0,
                             NULL);
        VKT(vkEndCommandBuffer(commands[i]));
    }
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .commandBufferCount = BUFFERS,
                         .pCommandBuffers = commands};
    VKT(vkQueueSubmit(vkt.queue, 1, &info, VK_NULL_HANDLE));
    VKT(vkQueueWaitIdle(vkt.queue));
    vkt_out_buffer("data", &to);
}

/* A command that no message holds costs its recording at most, never the device. */
static void oversized_command(void)
{
    enum { REGIONS = 900000 };
    vkt_open();
    struct vkt_buffer from = vkt_storage(BYTES, NULL), to = vkt_storage(BYTES, NULL);
    VkBufferCopy *regions = malloc(REGIONS * sizeof(*regions));
    VKT_EXPECT(regions != NULL);
    for (uint32_t i = 0; i < REGIONS; i++)
        regions[i] = (VkBufferCopy){4 * (i % WORDS), 4 * (i % WORDS), 4};
    VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    vkt_record(command, 0);
    vkCmdCopyBuffer(command, from.handle, to.handle, REGIONS, regions);
    VkResult result = vkEndCommandBuffer(command);
    VKT_EXPECT(result == VK_SUCCESS || result == VK_ERROR_OUT_OF_HOST_MEMORY);
    free(regions);
    VKT(vkResetCommandBuffer(command, 0));
    vkt_record(command, 0);
    vkCmdFillBuffer(command, to.handle, 0, BYTES, 7);
    vkt_barrier(command);
    VKT(vkEndCommandBuffer(command));
    submit_and_wait(command);
    vkt_out_buffer("data", &to);
}

static const struct vkt_case cases[] = {
    {"one_time", one_time, NULL},
    {"resubmitted", resubmitted, NULL},
    {"simultaneous", simultaneous, NULL},
    {"reset_buffer", reset_buffer, NULL},
    {"abandoned", abandoned, NULL},
    {"abandoned_when_long", abandoned_when_long, NULL},
    {"reset_pool", reset_pool, NULL},
    {"secondaries", secondaries, NULL},
    {"ignored_inheritance", ignored_inheritance, NULL},
    {"many_in_one_submit", many_in_one_submit, NULL},
    {"long_recording", long_recording, NULL},
    {"large_recording", large_recording, NULL},
    {"large_submission", large_submission, NULL},
    {"oversized_command", oversized_command, NULL},
    {"threads_record", threads_record, NULL},
    {"threads_submit", threads_submit, NULL},
    {"threads_create", threads_create, NULL},
    {"ended_layout", ended_layout, "a layout ends while a recording uses it"},
    {"ended_by_others", ended_by_others, "layouts end while recordings use them"},
};

VKT_MAIN(cases)
