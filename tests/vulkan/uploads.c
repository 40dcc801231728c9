/* uploads.c - differential programs: large writes, made again and again, with the same bytes and
 * with nearly the same, while the GPU writes beside them.  A server that remembers uploads may not
 * show.
 */
#include "vkt.h"

#include <string.h>

enum {
    PAGE = 4096,
    PIECE = 1 << 20,                     /* that a server may know by its contents */
    BYTES = 2 * PIECE + 5 * PAGE + 1236, /* pieces, a rest of pages, a rest of a page */
    PATTERNS = 3,
    ROUNDS = 3,
};

struct copier {
    struct vkt_buffer staging, device;
    VkCommandBuffer command;
    VkFence fence;
};

static struct copier copier(VkDeviceSize bytes)
{
    struct copier made = {
        .staging = vkt_buffer(bytes, 0, VKT_COHERENT),
        .device = vkt_buffer(bytes, 0, VKT_DEVICE),
        .command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY),
        .fence = vkt_fence(false),
    };
    vkt_record(made.command, 0);
    vkt_copy(made.command, &made.staging, &made.device);
    vkt_barrier(made.command);
    VKT(vkEndCommandBuffer(made.command));
    return made;
}

static void copy_up(const struct copier *copier)
{
    vkt_submit(copier->command, copier->fence);
    vkt_wait(copier->fence);
    VKT(vkResetFences(vkt.device, 1, &copier->fence));
}

/* Each pattern several times: later ones are known. */
static void staged(void)
{
    vkt_open();
    struct copier up = copier(BYTES);
    for (uint32_t i = 0; i < PATTERNS * ROUNDS; i++) {
        vkt_pattern(up.staging.map, BYTES / 4 * 4, i % PATTERNS);
        copy_up(&up);
        vkt_out_buffer("device", &up.device);
    }
}

/* Matrices of few values, as masks are; rows of several lengths, so that borders fall everywhere,
 * and a word of its own in some. */
static void few_values(void)
{
    vkt_open();
    struct copier up = copier(BYTES);
    uint32_t *words = up.staging.map;
    for (uint32_t width = 500; width < 3000; width += 700) {
        for (uint32_t i = 0; i < BYTES / 4; i++)
            words[i] = i % width < i / width ? 0 : 0xff800000;
        words[width * 77 + 5] = width;
        copy_up(&up);
        vkt_out_buffer("device", &up.device);
    }
}

/* Nothing is looked at in between, so that the waits are early and the staging memory is rewritten
 * while the copy before may be under way. */
static void rewritten_at_once(void)
{
    vkt_open();
    struct copier up = copier(BYTES);
    struct vkt_buffer all = vkt_buffer((VkDeviceSize)BYTES * PATTERNS * ROUNDS, 0, VKT_DEVICE);
    for (uint32_t i = 0; i < PATTERNS * ROUNDS; i++) {
        vkt_pattern(up.staging.map, BYTES / 4 * 4, 7 + i % PATTERNS);
        VkCommandBuffer command = vkt_begin();
        VkBufferCopy region = {.dstOffset = (VkDeviceSize)i * BYTES, .size = BYTES};
        vkCmdCopyBuffer(command, up.staging.handle, all.handle, 1, &region);
        vkt_finish(command);
    }
    vkt_out_buffer("all", &all);
}

/* Known but for one byte, in each place where pieces meet. */
static void nearly_known(void)
{
    vkt_open();
    struct copier up = copier(BYTES);
    const size_t places[] = {0, PAGE - 1, PIECE - 1, PIECE, 2 * PIECE + 1, BYTES - 1};
    for (uint32_t i = 0; i < VKT_COUNT(places); i++) {
        vkt_pattern(up.staging.map, BYTES / 4 * 4, 20);
        copy_up(&up);
        ((unsigned char *)up.staging.map)[places[i]] ^= 0x55;
        copy_up(&up);
        vkt_out_buffer("device", &up.device);
    }
}

/* The host writes what it wrote before over what the GPU made of it. */
static void restored(void)
{
    vkt_open();
    struct vkt_buffer buffer = vkt_storage(BYTES / 4 * 4, NULL);
    struct vkt_kernel kernel = vkt_kernel("step.comp", "s", 4);
    const uint32_t add = 1;
    vkt_kernel_bind(&kernel, 0, &buffer);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        vkt_pattern(buffer.map, buffer.size, 30);
        vkt_kernel_run(&kernel, &add, (uint32_t)(buffer.size / 4 + 63) / 64);
        vkt_out_buffer("stepped", &buffer);
    }
}

/* While the GPU writes every other page, the host writes known bytes into those between, and then
 * submits: its pages make no run, or one that it may not claim to have as a whole. */
static void beside_the_gpu(void)
{
    vkt_open();
    struct vkt_buffer from = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct vkt_buffer both = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct copier up = copier(PAGE);
    vkt_pattern(from.map, BYTES / 4 * 4, 40);
    VkFence fence = vkt_fence(false);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
        vkt_record(command, 0);
        VkBufferCopy half = {.srcOffset = i * 4, .dstOffset = PIECE, .size = PIECE};
        vkCmdCopyBuffer(command, from.handle, both.handle, 1, &half);
        vkt_barrier(command);
        VKT(vkEndCommandBuffer(command));
        vkt_submit(command, fence);
        vkt_pattern(both.map, PIECE, 50 + i % 2); /* the first half */
        copy_up(&up);                             /* sends it, with the GPU's half under way */
        vkt_wait(fence);
        VKT(vkResetFences(vkt.device, 1, &fence));
        vkt_out_buffer("both", &both);
    }
}

/* One byte in each page of known pieces is the GPU's, which the host never writes. */
static void strides(void)
{
    vkt_open();
    struct vkt_buffer from = vkt_buffer(PAGE, 0, VKT_COHERENT);
    struct vkt_buffer both = vkt_buffer(PIECE, 0, VKT_COHERENT);
    static VkBufferCopy bytes[PIECE / PAGE];
    memset(from.map, 0xa5, PAGE);
    for (uint32_t i = 0; i < VKT_COUNT(bytes); i++)
        bytes[i] = (VkBufferCopy){.srcOffset = i, .dstOffset = i * PAGE + 9, .size = 1};
    for (uint32_t i = 0; i < 2 * ROUNDS; i++) {
        VkCommandBuffer command = vkt_begin();
        vkCmdCopyBuffer(command, from.handle, both.handle, VKT_COUNT(bytes), bytes);
        vkt_finish(command);
        for (uint32_t page = 0; page < VKT_COUNT(bytes); page++)
            memset((char *)both.map + page * PAGE + 10, (int)(i % 2 + page), PAGE - 10);
        struct vkt_buffer seen = vkt_buffer(PIECE, 0, VKT_DEVICE);
        command = vkt_begin();
        vkt_copy(command, &both, &seen);
        vkt_finish(command);
        vkt_out_buffer("seen", &seen);
        vkt_out_buffer("both", &both);
    }
}

/* The same while the host writes the rest again, and submits: its copy of the GPU's bytes is old.
 */
static void crossing(void)
{
    vkt_open();
    struct vkt_buffer both = vkt_buffer(PIECE, 0, VKT_COHERENT);
    struct vkt_buffer seen = vkt_buffer(PIECE, 0, VKT_DEVICE);
    struct vkt_buffer from = vkt_buffer(PAGE, 0, VKT_COHERENT);
    static VkBufferCopy words[PIECE / PAGE];
    VkFence fence = vkt_fence(false);
    for (uint32_t i = 0; i < VKT_COUNT(words); i++)
        words[i] = (VkBufferCopy){.srcOffset = i * 4, .dstOffset = i * PAGE, .size = 4};
    for (uint32_t i = 0; i < 4 * ROUNDS; i++) {
        vkt_pattern(from.map, PAGE, 60 + i % 2);
        VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
        vkt_record(command, 0);
        vkCmdCopyBuffer(command, from.handle, both.handle, VKT_COUNT(words), words);
        vkt_barrier(command);
        VKT(vkEndCommandBuffer(command));
        vkt_submit(command, fence);
        for (uint32_t page = 0; page < VKT_COUNT(words); page++)
            memset((char *)both.map + page * PAGE + 4, (int)(page + i / 2 % 2), PAGE - 4);
        command = vkt_begin();
        vkt_copy(command, &both, &seen);
        vkt_finish(command);
        vkt_wait(fence);
        VKT(vkResetFences(vkt.device, 1, &fence));
        vkt_out_buffer("seen", &seen);
        vkt_out_buffer("both", &both);
    }
}

/* Staging memory that was filled again and again is written by the GPU, one word in each page of
 * its second half, while the host writes the next; then by the host alone, and at last by nobody.
 */
static void staging_becomes_a_target(void)
{
    vkt_open();
    struct copier up = copier(PIECE);
    struct vkt_buffer from = vkt_buffer(PAGE, 0, VKT_COHERENT);
    static VkBufferCopy words[PIECE / PAGE / 2];
    VkFence fence = vkt_fence(false);
    uint32_t *map = up.staging.map;
    vkt_pattern(from.map, PAGE, 80);
    for (uint32_t i = 0; i < VKT_COUNT(words); i++)
        words[i] =
            (VkBufferCopy){.srcOffset = i * 4, .dstOffset = PIECE / 2 + i * PAGE + 8, .size = 4};
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < (round < 2 ? ROUNDS + 1 : 1); i++) {
            vkt_pattern(map, PIECE, 70 + 10 * round + i);
            copy_up(&up);
            vkt_out_buffer("filled", &up.device);
        }
        if (round)
            vkt_pattern(map, PIECE, 99); /* not sent yet when the GPU's work is submitted */
        VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
        vkt_record(command, 0);
        vkCmdCopyBuffer(command, from.handle, up.staging.handle, VKT_COUNT(words), words);
        vkt_barrier(command);
        VKT(vkEndCommandBuffer(command));
        vkt_submit(command, fence);
        for (size_t page = 0; page < PIECE / PAGE; page++)
            map[page * PAGE / 4 + 3] = (uint32_t)page;
        vkt_wait(fence);
        VKT(vkResetFences(vkt.device, 1, &fence));
        vkt_out_buffer("both", &up.staging);
        copy_up(&up);
        vkt_out_buffer("both at the device", &up.device);
        map[PIECE / 8] ^= 1;
        copy_up(&up);
        copy_up(&up);
        vkt_out_buffer("at last", &up.device);
    }
}

/* A large readback is on its way down while a large upload goes up, and nobody waits between. */
static void both_ways(void)
{
    enum { LARGE = 24 << 20 };
    vkt_open();
    struct copier up = copier(LARGE);
    struct vkt_buffer down = vkt_buffer(LARGE, 0, VKT_COHERENT);
    VkCommandBuffer back = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    VkFence fence = vkt_fence(false);
    vkt_record(back, 0);
    vkt_copy(back, &up.device, &down);
    vkt_barrier(back);
    VKT(vkEndCommandBuffer(back));
    vkt_pattern(up.staging.map, LARGE, 110);
    copy_up(&up);
    for (uint32_t i = 0; i < 2 * ROUNDS; i++) {
        vkt_submit(back, fence);
        vkt_pattern(up.staging.map, LARGE, 111 + i);
        vkt_submit(up.command, up.fence);
        vkt_wait(up.fence);
        vkt_wait(fence);
        VKT(vkResetFences(vkt.device, 2, (VkFence[]){up.fence, fence}));
        vkt_out_buffer("down", &down);
    }
}

static const struct vkt_case cases[] = {
    {"staged", staged, NULL},
    {"few_values", few_values, NULL},
    {"rewritten_at_once", rewritten_at_once, NULL},
    {"nearly_known", nearly_known, NULL},
    {"restored", restored, NULL},
    {"beside_the_gpu", beside_the_gpu, NULL},
    {"strides", strides, NULL},
    {"crossing", crossing, NULL},
    {"staging_becomes_a_target", staging_becomes_a_target, NULL},
    {"both_ways", both_ways, NULL},
};

VKT_MAIN(cases)
