/* again.c - differential programs: what is recorded again as it was, and what only looks so.
 *
 * A driver that keeps recordings may leave out a repetition, never a change.  The kernel's step
 * counts its runs (step.comp), so one that is lost, doubled or stale shows.  See also
 * again_sets.c. */
#include "vkt_image.h"

#include <pthread.h>
#include <string.h>

enum {
    WORDS = 256,
    BYTES = WORDS * 4,
    GROUPS = WORDS / 64,
    ROUNDS = 10,
    THREADS = 4,
};

static const VkCommandBufferUsageFlags once = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;

static struct vkt_buffer data, other;
static struct vkt_kernel kernel;

static void prepare(void)
{
    vkt_open();
    data = vkt_storage(BYTES, NULL);
    other = vkt_storage(BYTES, NULL);
    kernel = vkt_kernel("step.comp", "s", 4);
    vkt_kernel_bind(&kernel, 0, &data);
}

static void out_both(void)
{
    vkt_out_buffer("data", &data);
    vkt_out_buffer("other", &other);
}

static void step_into(VkCommandBuffer command, uint32_t add)
{
    vkt_barrier(command);
    vkt_kernel_record(command, &kernel, &add, GROUPS);
}

static void record_step(VkCommandBuffer command, VkCommandBufferUsageFlags flags, uint32_t add)
{
    vkt_record(command, flags);
    step_into(command, add);
    VKT(vkEndCommandBuffer(command));
}

static void submit_all(uint32_t count, const VkCommandBuffer *commands)
{
    VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = count,
        .pCommandBuffers = commands,
    };
    VkFence fence = vkt_fence(false);
    VKT(vkQueueSubmit(vkt.queue, 1, &info, fence));
    vkt_wait(fence);
}

static void run_step(VkCommandBuffer command, uint32_t add)
{
    record_step(command, 0, add);
    submit_all(1, &command);
}

static VkCommandBuffer primary(VkCommandPool pool)
{
    return vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
}

/* --- resets ----------------------------------------------------------------------------------- */

/* How a command buffer becomes one that can be recorded. */
enum way {
    BY_POOL,
    BY_POOL_RELEASED,
    BY_POOL_TRIMMED,
    BY_BUFFER,
    BY_BUFFER_RELEASED,
    BY_BEGINNING
};

static void reset(enum way way, VkCommandPool pool, VkCommandBuffer command)
{
    switch (way) {
    case BY_POOL:
        VKT(vkResetCommandPool(vkt.device, pool, 0));
        break;
    case BY_POOL_RELEASED:
        VKT(vkResetCommandPool(vkt.device, pool, VK_COMMAND_POOL_RESET_RELEASE_RESOURCES_BIT));
        break;
    case BY_POOL_TRIMMED:
        VKT(vkResetCommandPool(vkt.device, pool, 0));
        vkTrimCommandPool(vkt.device, pool, 0);
        break;
    case BY_BUFFER:
        VKT(vkResetCommandBuffer(command, 0));
        break;
    case BY_BUFFER_RELEASED:
        VKT(vkResetCommandBuffer(command, VK_COMMAND_BUFFER_RESET_RELEASE_RESOURCES_BIT));
        break;
    case BY_BEGINNING:
        break;
    }
}

static VkCommandPool pool_for(enum way way)
{
    return vkt_command_pool(vkt.family,
                            way >= BY_BUFFER ? VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT : 0);
}

static void repeat(VkCommandBufferUsageFlags flags)
{
    for (enum way way = BY_POOL; way <= BY_BEGINNING; way++) {
        VkCommandPool pool = pool_for(way);
        VkCommandBuffer command = primary(pool);
        for (int i = 0; i < ROUNDS; i++) {
            record_step(command, flags, 7);
            submit_all(1, &command);
            reset(way, pool, command);
        }
        vkt_out_buffer("data", &data);
    }
}

/* One-time or not is part of what is recorded: neither stands for the other. */
static void repeat_in_turn(void)
{
    VkCommandBuffer command = primary(vkt.pool);
    for (int i = 0; i < ROUNDS; i++) {
        record_step(command, i % 4 < 2 ? once : 0, 7);
        submit_all(1, &command);
        if (i % 4 >= 2) /* recorded so that it may be */
            submit_all(1, &command);
    }
    vkt_out_buffer("data", &data);
}

static void repeated(void)
{
    prepare();
    repeat(0);
    repeat(once);
    repeat_in_turn();
}

static void changed_and_back(void)
{
    static const uint32_t adds[] = {1, 1, 1, 2, 2, 1, 1, 3, 3, 3, 1, 2, 1, 2, 1, 1};
    prepare();
    for (enum way way = BY_POOL; way <= BY_BEGINNING; way++) {
        VkCommandPool pool = pool_for(way);
        VkCommandBuffer commands[2] = {primary(pool), primary(pool)};
        for (size_t i = 0; i < VKT_COUNT(adds); i++) {
            record_step(commands[0], 0, adds[i]);
            record_step(commands[1], once, adds[VKT_COUNT(adds) - 1 - i]);
            submit_all(2, commands);
            reset(way, pool, commands[0]);
            if (way == BY_BUFFER || way == BY_BUFFER_RELEASED)
                reset(way, pool, commands[1]);
        }
        vkt_out_buffer("data", &data);
    }
}

/* One of three repeats, one never does, and one comes back when a driver may have given it up. */
static void idle_for_long(void)
{
    enum { RESETS = 160 };
    prepare();
    VkCommandPool pool = vkt_command_pool(vkt.family, 0);
    VkCommandBuffer commands[3] = {primary(pool), primary(pool), primary(pool)};
    for (uint32_t i = 0; i < RESETS; i++) {
        bool all = i < 3 || i == RESETS / 2 || i >= RESETS - 2;
        record_step(commands[0], 0, 1);
        record_step(commands[1], 0, 100 + i);
        if (all)
            record_step(commands[2], 0, 3);
        submit_all(all ? 3 : 2, commands);
        VKT(vkResetCommandPool(vkt.device, pool, 0));
    }
    vkt_out_buffer("data", &data);
}

/* A reset with nothing recorded since the last one, and recordings that are never submitted. */
static void reset_without_use(void)
{
    prepare();
    VkCommandPool pool = vkt_command_pool(vkt.family, 0);
    VkCommandBuffer commands[2] = {primary(pool), primary(pool)};
    for (uint32_t i = 0; i < ROUNDS; i++) {
        record_step(commands[0], 0, 1);
        record_step(commands[1], 0, 2);
        if (i % 3 != 1)
            submit_all(2, commands);
        for (uint32_t k = 0; k <= i % 3; k++)
            VKT(vkResetCommandPool(vkt.device, pool, 0));
    }
    run_step(commands[1], 1);
    run_step(commands[0], 2);
    vkt_out_buffer("data", &data);
}

static void freed_and_allocated(void)
{
    prepare();
    VkCommandBuffer commands[2] = {primary(vkt.pool), primary(vkt.pool)};
    for (uint32_t i = 0; i < ROUNDS; i++) {
        run_step(commands[0], 5);
        run_step(commands[0], 5);
        run_step(commands[1], 6);
        vkFreeCommandBuffers(vkt.device, vkt.pool, 2 - i % 2, commands);
        commands[0] = primary(vkt.pool);
        if (i % 2 == 0)
            commands[1] = primary(vkt.pool);
    }
    vkt_out_buffer("data", &data);
}

static void submitted_twice(void)
{
    prepare();
    VkCommandBuffer command = primary(vkt.pool);
    for (int i = 0; i < ROUNDS; i++) {
        record_step(command, VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT, 4);
        vkt_submit(command, VK_NULL_HANDLE);
        vkt_submit(command, VK_NULL_HANDLE);
        VKT(vkQueueWaitIdle(vkt.queue));
    }
    vkt_out_buffer("data", &data);
}

/* --- secondaries ------------------------------------------------------------------------------ */

static void record_secondary(VkCommandBuffer command, uint32_t add)
{
    VkCommandBufferInheritanceInfo inherit = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO,
    };
    VkCommandBufferBeginInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .pInheritanceInfo = &inherit,
    };
    VKT(vkBeginCommandBuffer(command, &info));
    step_into(command, add);
    VKT(vkEndCommandBuffer(command));
}

static void record_primary(VkCommandBuffer command, VkCommandBuffer part, uint32_t add)
{
    vkt_record(command, 0);
    step_into(command, add);
    vkCmdExecuteCommands(command, 1, &part);
    VKT(vkEndCommandBuffer(command));
}

/* Either changes, both or none; in one pool, so that a reset is for both, or in two. */
static void change_either(void)
{
    for (int pools = 1; pools <= 2; pools++) {
        VkCommandPool pool = vkt_command_pool(vkt.family, 0);
        VkCommandPool of_part = pools == 1 ? pool : vkt_command_pool(vkt.family, 0);
        VkCommandBuffer command = primary(pool);
        VkCommandBuffer part = vkt_command(of_part, VK_COMMAND_BUFFER_LEVEL_SECONDARY);
        for (uint32_t i = 0; i < 12; i++) {
            record_secondary(part, i < 4 || i > 7 ? 1 : i);
            record_primary(command, part, i < 8 ? 2 : i);
            submit_all(1, &command);
            vkt_out_buffer("data", &data);
            VKT(vkResetCommandPool(vkt.device, pool, 0));
            if (pools == 2)
                VKT(vkResetCommandPool(vkt.device, of_part, 0));
        }
    }
}

/* The primary's bytes name a set only through the secondary. */
static void change_set(void)
{
    VkCommandPool pool = vkt_command_pool(vkt.family, 0);
    VkCommandBuffer command = primary(pool);
    VkCommandBuffer part = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_SECONDARY);
    for (uint32_t i = 0; i < 8; i++) {
        vkt_kernel_bind(&kernel, 0, i / 2 % 2 ? &other : &data);
        record_secondary(part, 1);
        vkt_record(command, i % 4 == 3 ? once : 0);
        vkCmdExecuteCommands(command, 1, &part);
        VKT(vkEndCommandBuffer(command));
        submit_all(1, &command);
        out_both();
        VKT(vkResetCommandPool(vkt.device, pool, 0));
    }
}

static void secondaries(void)
{
    prepare();
    change_either();
    change_set();
}

/* --- long bodies ------------------------------------------------------------------------------ */

enum {
    LONG = 100,       /* fills: some KiB, that a driver may work on before they are all recorded */
    VERY_LONG = 7500, /* some hundred KiB, more than a driver may want to keep */
    UPDATES = 4,
    UPDATE_MAX = 65536,
    UPDATE_BYTES = 65420, /* of each: with the rest of the body six words less than 256 KiB */
};

static struct vkt_buffer wide;

/* Fill i writes word i; fill `odd` another value. */
static void record_fills(VkCommandBuffer command, uint32_t count, uint32_t odd)
{
    vkt_barrier(command);
    for (uint32_t i = 0; i < count; i++)
        vkCmdFillBuffer(command, wide.handle, 4 * (VkDeviceSize)i, 4, i == odd ? ~i : i);
    vkt_barrier(command);
}

static void run_fills(VkCommandBuffer command, uint32_t count, uint32_t odd)
{
    memset(wide.map, 0xee, (size_t)wide.size);
    vkt_record(command, 0);
    record_fills(command, count, odd);
    VKT(vkEndCommandBuffer(command));
    submit_all(1, &command);
    vkt_out_buffer("wide", &wide);
}

static void repeat_fills(uint32_t count)
{
    wide = vkt_storage(4 * (VkDeviceSize)count, NULL);
    VkCommandBuffer command = primary(vkt.pool);
    const uint32_t odd[] = {count,     count, 0, count, count / 2, count / 2,
                            count - 1, count, 0, 0,     count - 1, count};
    for (size_t i = 0; i < VKT_COUNT(odd); i++)
        run_fills(command, count, odd[i]);
    run_fills(command, count - 1, count); /* how the last one began */
    run_fills(command, count, count);
}

static void long_bodies(void)
{
    vkt_open();
    repeat_fills(LONG);
    repeat_fills(VERY_LONG);
}

/* A recording of updates with the bytes of `words`, the first of them longer by `tail` bytes. */
static void record_updates(VkCommandBuffer command, const uint32_t *words, VkDeviceSize tail)
{
    vkt_record(command, 0);
    for (uint32_t i = 0; i < UPDATES; i++) {
        vkt_barrier(command);
        vkCmdUpdateBuffer(command, wide.handle, 0, UPDATE_BYTES + (i ? 0 : tail), words);
    }
    vkt_barrier(command);
    vkt_barrier(command); /* so that the rest is words too */
    VKT(vkEndCommandBuffer(command));
}

/* Bodies around 256 KiB in steps of a word, each twice: the last that may be kept, the first that
 * may not, and what is in between if a limit were counted in two ways. */
static void bodies_at_a_limit(void)
{
    enum { STEPS = 16 };
    static uint32_t words[UPDATE_MAX / 4];
    vkt_open();
    wide = vkt_storage(UPDATE_MAX, NULL);
    VkCommandBuffer command = primary(vkt.pool);
    for (uint32_t i = 0; i < 2 * STEPS; i++) {
        vkt_pattern(words, UPDATE_MAX, i / 2);
        record_updates(command, words, 4 * (VkDeviceSize)(i / 2));
        submit_all(1, &command);
        if (i % 2)
            vkt_out_buffer("wide", &wide);
    }
}

/* More than 32 MiB of them, of which some are recorded again. */
static void many_bodies(void)
{
    enum { MANY = 132 };
    static uint32_t words[UPDATE_MAX / 4];
    VkCommandBuffer commands[MANY];
    vkt_open();
    wide = vkt_storage(UPDATE_MAX, NULL);
    for (uint32_t i = 0; i < MANY; i++) {
        commands[i] = primary(vkt.pool);
        words[i] = i;
        record_updates(commands[i], words, 0);
    }
    for (uint32_t i = 0; i < MANY; i += 13) {
        submit_all(1, &commands[i]);
        vkt_out_buffer("wide", &wide);
        record_updates(commands[i], words, 0); /* all words */
        submit_all(1, &commands[i]);
        vkt_out_buffer("wide", &wide);
    }
}

/* Given up in the middle, with what was kept or with something else, then recorded as before. */
static void abandoned(void)
{
    vkt_open();
    wide = vkt_storage(4 * LONG, NULL);
    for (enum way way = BY_POOL; way <= BY_BUFFER; way += BY_BUFFER) {
        VkCommandPool pool = pool_for(way);
        VkCommandBuffer command = primary(pool), bystander = primary(pool);
        for (uint32_t i = 0; i < 6; i++) {
            run_fills(command, LONG, LONG);
            run_fills(bystander, LONG / 2, 3);
            reset(way, pool, command);
            vkt_record(command, 0);
            record_fills(command, LONG - 10, i % 2 ? 0 : LONG);
            reset(way, pool, command); /* while recording */
            if (way == BY_BUFFER)
                reset(way, pool, bystander);
            if (i % 3 == 2) { /* never recorded since: the next one begins anew all the same */
                reset(way, pool, command);
                reset(way, pool, bystander);
            }
        }
        run_fills(bystander, LONG / 2, 3);
        run_fills(command, LONG, LONG);
    }
}

/* --- staging copies --------------------------------------------------------------------------- */

static void record_copy(VkCommandBuffer command, const struct vkt_buffer *from,
                        const struct vkt_buffer *to)
{
    vkt_record(command, once);
    vkt_copy(command, from, to);
    VKT(vkEndCommandBuffer(command));
}

/* The same copy of other bytes each time, in turn with work in the same command buffer. */
static void staging_copies(void)
{
    prepare();
    struct vkt_buffer from = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct vkt_buffer to = vkt_buffer(BYTES, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, VKT_DEVICE);
    vkt_kernel_bind(&kernel, 0, &to);
    VkCommandBuffer commands[2] = {primary(vkt.pool), primary(vkt.pool)};
    for (uint32_t i = 0; i < 2 * ROUNDS; i++) {
        vkt_pattern(from.map, BYTES, i);
        record_copy(commands[0], &from, &to);
        if (i % 4 < 2) { /* alone, then work in its place */
            submit_all(1, commands);
            run_step(commands[0], 6);
        } else { /* with work behind it */
            record_step(commands[1], 0, 6);
            submit_all(2, commands);
        }
        vkt_out_buffer("to", &to);
    }
}

/* What it reads when it is executed is not part of it. */
static void read_size(void)
{
    struct vkt_buffer size = vkt_buffer(sizeof(VkDispatchIndirectCommand),
                                        VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT, VKT_COHERENT);
    VkCommandBuffer command = primary(vkt.pool);
    const uint32_t add = 2;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        *(VkDispatchIndirectCommand *)size.map = (VkDispatchIndirectCommand){i % GROUPS, 1, 1};
        vkt_record(command, 0);
        vkt_barrier(command);
        vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
        vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1,
                                &kernel.set, 0, NULL);
        vkCmdPushConstants(command, kernel.layout, VK_SHADER_STAGE_ALL, 0, sizeof(add), &add);
        vkCmdDispatchIndirect(command, size.handle, 0);
        vkt_barrier(command);
        VKT(vkEndCommandBuffer(command));
        submit_all(1, &command);
        vkt_out_buffer("data", &data);
    }
}

/* What it writes the host sees, as if it had been sent. */
static void clear_image(void)
{
    enum { SIDE = 16 };
    struct vkt_image image = vkt_image((VkImageCreateInfo){
        .imageType = VK_IMAGE_TYPE_2D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = {SIDE, SIDE, 1},
        .tiling = VK_IMAGE_TILING_LINEAR,
    });
    const VkImageSubresource part = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0};
    const VkImageSubresourceRange range = vkt_range(&image);
    const VkClearColorValue color = {.float32 = {0, 1, 0, 1}};
    VkSubresourceLayout layout;
    vkGetImageSubresourceLayout(vkt.device, image.handle, &part, &layout);
    char *map;
    VKT(vkMapMemory(vkt.device, image.memory, 0, VK_WHOLE_SIZE, 0, (void **)&map));
    VkCommandBuffer command = primary(vkt.pool);
    for (uint32_t i = 0; i < 4; i++) {
        memset(map + layout.offset, 0x5c, SIDE * 4);
        vkt_record(command, 0);
        vkt_transition(command, &image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL);
        vkCmdClearColorImage(command, image.handle, VK_IMAGE_LAYOUT_GENERAL, &color, 1, &range);
        vkt_barrier(command);
        VKT(vkEndCommandBuffer(command));
        submit_all(1, &command);
        vkt_out("row", map + layout.offset, SIDE * 4);
    }
}

static void reads_and_writes(void)
{
    prepare();
    read_size();
    clear_image();
}

/* --- threads ---------------------------------------------------------------------------------- */

struct worker {
    pthread_t thread;
    VkCommandPool pool;
    VkCommandBuffer commands[2];
    struct vkt_buffer data;
    struct vkt_kernel kernel;
    VkFence fence;
};

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;

static void worker_init(struct worker *worker)
{
    worker->pool = vkt_command_pool(vkt.family, 0);
    worker->data = vkt_storage(BYTES, NULL);
    worker->kernel = vkt_kernel("step.comp", "s", 4);
    worker->fence = vkt_fence(false);
    for (int i = 0; i < 2; i++)
        worker->commands[i] = primary(worker->pool);
}

static void *repeat_in_thread(void *argument)
{
    struct worker *worker = argument;
    for (uint32_t i = 0; i < 3 * ROUNDS; i++) {
        vkt_kernel_bind(&worker->kernel, 0, &worker->data);
        VkCommandBuffer command = worker->commands[i % 5 == 4];
        const uint32_t add = i % 7 == 6 ? i : 1;
        vkt_record(command, once);
        vkt_barrier(command);
        vkt_kernel_record(command, &worker->kernel, &add, GROUPS);
        VKT(vkEndCommandBuffer(command));
        pthread_mutex_lock(&queue_lock); /* a queue is externally synchronised */
        vkt_submit(command, worker->fence);
        pthread_mutex_unlock(&queue_lock);
        vkt_wait(worker->fence);
        VKT(vkResetFences(vkt.device, 1, &worker->fence));
        VKT(vkResetCommandPool(vkt.device, worker->pool, 0));
    }
    return NULL;
}

static void threads(void)
{
    static struct worker workers[THREADS];
    vkt_open();
    for (int i = 0; i < THREADS; i++)
        worker_init(&workers[i]);
    for (int i = 0; i < THREADS; i++)
        VKT_EXPECT(pthread_create(&workers[i].thread, NULL, repeat_in_thread, &workers[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        vkt_out_buffer("data", &workers[i].data);
}

static const struct vkt_case cases[] = {
    {"repeated", repeated, NULL},
    {"changed_and_back", changed_and_back, NULL},
    {"idle_for_long", idle_for_long, NULL},
    {"reset_without_use", reset_without_use, NULL},
    {"freed_and_allocated", freed_and_allocated, NULL},
    {"submitted_twice", submitted_twice, NULL},
    {"secondaries", secondaries, NULL},
    {"long_bodies", long_bodies, NULL},
    {"bodies_at_a_limit", bodies_at_a_limit, NULL},
    {"many_bodies", many_bodies, NULL},
    {"abandoned", abandoned, NULL},
    {"staging_copies", staging_copies, NULL},
    {"reads_and_writes", reads_and_writes, NULL},
    {"threads", threads, NULL},
};

VKT_MAIN(cases)
