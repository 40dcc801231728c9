/* pending.c - differential programs: command buffers that are recorded, reset and freed right after
 * a wait which a remote driver may end early.  Their work takes longer than what follows, so that
 * the device is still at it (docs/design/fences.md). */
#include "vkt.h"

enum {
    WORDS = 1 << 17,
    ROUNDS = 10,
    STEPS_MAX = 3,
    STEPS_LONG = 10, /* some milliseconds on a software GPU */
    SMALL_WORDS = 64,
};

/* ---- a buffer of the device's, in which every word takes as many steps as were recorded ---- */

struct walk {
    struct vkt_buffer device;
    struct vkt_kernel kernel;
    VkFence fence;
    uint32_t steps;
};

static struct walk walk(void)
{
    struct walk made = {
        .device = vkt_buffer(WORDS * 4, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, VKT_DEVICE),
        .kernel = vkt_kernel("step.comp", "s", 4),
        .fence = vkt_fence(false),
    };
    vkt_kernel_bind(&made.kernel, 0, &made.device);
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, made.device.handle, 0, VK_WHOLE_SIZE, 0);
    vkt_finish(command);
    return made;
}

static void record_steps(struct walk *w, VkCommandBuffer command, uint32_t steps)
{
    for (uint32_t i = 0; i < steps; i++) {
        vkt_barrier(command);
        vkt_kernel_record(command, &w->kernel, &(uint32_t){0}, WORDS / 64);
    }
}

/* The host can see nothing of it. */
static void run(struct walk *w, VkCommandBuffer command, uint32_t steps)
{
    vkt_submit(command, w->fence);
    vkt_wait(w->fence);
    VKT(vkResetFences(vkt.device, 1, &w->fence));
    w->steps += steps;
}

static void record_and_run(struct walk *w, VkCommandBuffer command, uint32_t steps,
                           VkCommandBufferUsageFlags flags)
{
    vkt_record(command, flags);
    record_steps(w, command, steps);
    VKT(vkEndCommandBuffer(command));
    run(w, command, steps);
}

static uint32_t stepped(uint32_t word, uint32_t steps)
{
    while (steps-- > 0)
        word = word * 1664525u + 1013904223u;
    return word;
}

/* The first words have taken steps from another beginning on. */
static void expect_words(const struct walk *w, uint32_t first, uint32_t others)
{
    struct vkt_buffer back = vkt_buffer(WORDS * 4, 0, VKT_COHERENT);
    const uint32_t *words = back.map;
    VkCommandBuffer command = vkt_begin();
    vkt_barrier(command);
    vkt_copy(command, &w->device, &back);
    vkt_finish(command);
    for (uint32_t i = 0; i < WORDS; i++)
        VKT_EXPECT(words[i] == (i < SMALL_WORDS ? first : others));
    vkt_out("back", back.map, back.size);
}

static void expect_all(const struct walk *w)
{
    uint32_t word = stepped(0, w->steps);
    expect_words(w, word, word);
}

/* Long and short ones in turn, some of them twice in a row. */
static uint32_t steps_of(uint32_t round)
{
    return round % 2 ? STEPS_LONG : 1 + round / 4 % STEPS_MAX;
}

static VkCommandPool pool_for(VkCommandPoolCreateFlags flags)
{
    return vkt_command_pool(vkt.family, flags);
}

/* ---- cases ---- */

static void one_buffer(VkCommandBufferUsageFlags usage)
{
    vkt_open();
    struct walk w = walk();
    VkCommandPool pool = pool_for(0);
    VkCommandBuffer command = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        record_and_run(&w, command, steps_of(i), usage);
        VKT(vkResetCommandPool(vkt.device, pool, 0));
    }
    expect_all(&w);
}

static void pool_reset(void)
{
    one_buffer(0);
}

static void pool_reset_once(void)
{
    one_buffer(VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
}

/* The same body again and again: the driver's command buffer may be submitted as it is, once it is
 * not pending any more. */
static void same_body(void)
{
    vkt_open();
    struct walk w = walk();
    VkCommandPool pool = pool_for(0);
    VkCommandBuffer command = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    for (uint32_t i = 0; i < ROUNDS / 2; i++) {
        record_and_run(&w, command, STEPS_LONG, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
        VKT(vkResetCommandPool(vkt.device, pool, 0));
    }
    expect_all(&w);
}

static void every_reset(void)
{
    vkt_open();
    struct walk w = walk();
    VkCommandPool pool = pool_for(VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT);
    VkCommandBuffer command = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        record_and_run(&w, command, STEPS_LONG - i / 5, 0);
        switch (i % 5) {
        case 0: /* begun again, as it is */
            break;
        case 1:
            VKT(vkResetCommandBuffer(command, 0));
            break;
        case 2:
            VKT(vkResetCommandPool(vkt.device, pool, VK_COMMAND_POOL_RESET_RELEASE_RESOURCES_BIT));
            break;
        case 3:
            vkTrimCommandPool(vkt.device, pool, 0);
            break;
        default:
            vkFreeCommandBuffers(vkt.device, pool, 1, &command);
            command = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
        }
    }
    expect_all(&w);
}

/* Many buffers of a pool, each waited for; then all are recorded again at once. */
static void crowd(void)
{
    enum { BUFFERS = 12 };
    vkt_open();
    struct walk w = walk();
    VkCommandPool pool = pool_for(0);
    VkCommandBuffer commands[BUFFERS];
    for (uint32_t i = 0; i < BUFFERS; i++)
        commands[i] = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < BUFFERS; i++)
            record_and_run(&w, commands[i], 1 + (round + i) % STEPS_MAX, 0);
        VKT(vkResetCommandPool(vkt.device, pool, 0));
    }
    expect_all(&w);
}

/* Two of one submission are recorded again, one after the other. */
static void pair(void)
{
    vkt_open();
    struct walk w = walk();
    VkCommandPool pool = pool_for(0);
    VkCommandBuffer commands[2] = {vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY),
                                   vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY)};
    VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = 2,
        .pCommandBuffers = commands,
    };
    for (uint32_t i = 0; i < ROUNDS / 2; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            vkt_record(commands[k], 0);
            record_steps(&w, commands[k], STEPS_LONG - i % 3 - k);
            VKT(vkEndCommandBuffer(commands[k]));
            w.steps += STEPS_LONG - i % 3 - k;
        }
        VKT(vkQueueSubmit(vkt.queue, 1, &info, w.fence));
        vkt_wait(w.fence);
        VKT(vkResetFences(vkt.device, 1, &w.fence));
        VKT(vkResetCommandPool(vkt.device, pool, 0));
    }
    expect_all(&w);
}

/* A small copy into what is being written, which may travel with its bytes. */
static void small_copy(void)
{
    vkt_open();
    struct walk w = walk();
    struct vkt_buffer staging = vkt_buffer(SMALL_WORDS * 4, 0, VKT_COHERENT);
    VkCommandPool pool = pool_for(VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT);
    VkCommandBuffer command = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    uint32_t first = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        record_and_run(&w, command, steps_of(i), 0);
        VKT(vkResetCommandPool(vkt.device, pool, 0));
        for (uint32_t k = 0; k < SMALL_WORDS; k++)
            ((uint32_t *)staging.map)[k] = i;
        vkt_record(command, 0);
        vkCmdCopyBuffer(command, staging.handle, w.device.handle, 1,
                        &(VkBufferCopy){.size = SMALL_WORDS * 4});
        VKT(vkEndCommandBuffer(command));
        run(&w, command, 0);
        first = i;
    }
    record_and_run(&w, command, 1, 0);
    expect_words(&w, stepped(first, 1), stepped(0, w.steps));
}

/* The end of a large copy, from memory that is written again at once, by a command buffer that
 * carries work in between. */
static void large_copy(void)
{
    enum { LARGE_BYTES = 16 << 20, TAIL_WORDS = 1024, TAIL_BYTES = TAIL_WORDS * 4 };
    vkt_open();
    struct walk w = walk();
    struct vkt_buffer staging = vkt_buffer(LARGE_BYTES, 0, VKT_COHERENT);
    struct vkt_buffer device = vkt_buffer(LARGE_BYTES, 0, VKT_DEVICE);
    struct vkt_buffer tails = vkt_buffer(ROUNDS * TAIL_BYTES, 0, VKT_DEVICE);
    struct vkt_buffer result = vkt_buffer(ROUNDS * TAIL_BYTES, 0, VKT_COHERENT);
    VkCommandPool pool = pool_for(VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT);
    VkCommandBuffer command = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    uint32_t *tail = (uint32_t *)staging.map + (LARGE_BYTES - TAIL_BYTES) / 4;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        for (uint32_t k = 0; k < TAIL_WORDS; k++)
            tail[k] = i * TAIL_WORDS + k;
        vkt_record(command, 0);
        vkCmdCopyBuffer(command, staging.handle, device.handle, 1,
                        &(VkBufferCopy){.size = LARGE_BYTES});
        vkt_barrier(command);
        vkCmdCopyBuffer(command, staging.handle, tails.handle, 1,
                        &(VkBufferCopy){.srcOffset = LARGE_BYTES - TAIL_BYTES,
                                        .dstOffset = (VkDeviceSize)i * TAIL_BYTES,
                                        .size = TAIL_BYTES});
        VKT(vkEndCommandBuffer(command));
        run(&w, command, 0);
        if (i % 3 == 2)
            record_and_run(&w, command, 1, 0);
    }
    VkCommandBuffer back = vkt_begin();
    vkt_barrier(back);
    vkt_copy(back, &tails, &result);
    vkt_finish(back);
    for (uint32_t k = 0; k < ROUNDS * TAIL_WORDS; k++)
        VKT_EXPECT(((const uint32_t *)result.map)[k] == k);
    expect_all(&w);
}

/* ---- secondary ones ---- */

static void record_secondary(struct walk *w, VkCommandBuffer secondary, uint32_t steps)
{
    VkCommandBufferInheritanceInfo inheritance = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO};
    VkCommandBufferBeginInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .pInheritanceInfo = &inheritance,
    };
    VKT(vkBeginCommandBuffer(secondary, &info));
    record_steps(w, secondary, steps);
    VKT(vkEndCommandBuffer(secondary));
}

static void execute(struct walk *w, VkCommandBuffer primary, VkCommandBuffer secondary,
                    uint32_t steps)
{
    vkt_record(primary, 0);
    vkCmdExecuteCommands(primary, 1, &secondary);
    VKT(vkEndCommandBuffer(primary));
    run(w, primary, steps);
}

/* Recorded again while it is part of what is pending. */
static void secondary_recorded(void)
{
    vkt_open();
    struct walk w = walk();
    VkCommandPool pool = pool_for(VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT);
    VkCommandBuffer primary = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    VkCommandBuffer secondary = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_SECONDARY);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        record_secondary(&w, secondary, steps_of(i));
        execute(&w, primary, secondary, steps_of(i));
        if (i % 3 == 2)
            VKT(vkResetCommandPool(vkt.device, pool, 0));
    }
    expect_all(&w);
}

/* Executed by one primary after the other, which it may be only when it is not pending. */
static void secondary_shared(void)
{
    vkt_open();
    struct walk w = walk();
    VkCommandBuffer secondary = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_SECONDARY);
    VkCommandBuffer primaries[2] = {vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY),
                                    vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY)};
    record_secondary(&w, secondary, STEPS_LONG);
    for (uint32_t i = 0; i < ROUNDS / 2; i++)
        execute(&w, primaries[i % 2], secondary, STEPS_LONG);
    expect_all(&w);
}

static const struct vkt_case cases[] = {
    {"pool_reset", pool_reset, NULL},
    {"pool_reset_once", pool_reset_once, NULL},
    {"same_body", same_body, NULL},
    {"every_reset", every_reset, NULL},
    {"crowd", crowd, NULL},
    {"pair", pair, NULL},
    {"small_copy", small_copy, NULL},
    {"large_copy", large_copy, NULL},
    {"secondary_recorded", secondary_recorded, NULL},
    {"secondary_shared", secondary_shared, NULL},
};

VKT_MAIN(cases)
