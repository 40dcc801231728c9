/* share.c - a program that keeps a GPU busy, and counts what it has done for it.
 *
 * The device fills a buffer that nobody reads, over and over, with work waiting behind the work
 * under way.  Says how often for each line "count". */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "kit.h"

enum {
    DEPTH = 32,      /* submissions at a time: none has to wait for the program */
    FILLS = 8,       /* of one submission, */
    BYTES = 1 << 20, /* each: together hundreds of microseconds and more */
};

struct filler {
    pthread_t thread;
    struct gpu gpu;
    VkInstance instance;
    VkBuffer buffer;
    VkDeviceMemory memory;
    VkCommandBuffer commands;
    VkFence fences[DEPTH];
};

static atomic_bool stop;
static atomic_ulong done;

/* Never mapped, so that nothing of it travels. */
static void open_buffer(struct filler *f)
{
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = BYTES,
                               .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkMemoryAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                     .allocationSize = 2 * BYTES,
                                     .memoryTypeIndex = kit_coherent_type(f->gpu.physical)};
    VKT(vkCreateBuffer(f->gpu.device, &info, NULL, &f->buffer));
    VKT(vkAllocateMemory(f->gpu.device, &allocate, NULL, &f->memory));
    VKT(vkBindBufferMemory(f->gpu.device, f->buffer, f->memory, 0));
}

static void open_filler(struct filler *f)
{
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                      .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
    VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    f->instance = kit_open_first(&f->gpu);
    open_buffer(f);
    f->commands = kit_command(&f->gpu);
    VKT(vkBeginCommandBuffer(f->commands, &begin));
    for (uint32_t i = 0; i < FILLS; i++) {
        vkCmdFillBuffer(f->commands, f->buffer, 0, BYTES, i);
        vkt_barrier(f->commands);
    }
    VKT(vkEndCommandBuffer(f->commands));
    for (uint32_t i = 0; i < DEPTH; i++)
        VKT(vkCreateFence(f->gpu.device, &fence, NULL, &f->fences[i]));
}

static void close_filler(struct filler *f)
{
    for (uint32_t i = 0; i < DEPTH; i++)
        vkDestroyFence(f->gpu.device, f->fences[i], NULL);
    vkDestroyBuffer(f->gpu.device, f->buffer, NULL);
    vkFreeMemory(f->gpu.device, f->memory, NULL);
    kit_close_all(&f->gpu, f->instance);
}

static void await(const struct filler *f, VkFence fence)
{
    VKT(vkWaitForFences(f->gpu.device, 1, &fence, VK_TRUE, UINT64_MAX));
    VKT(vkResetFences(f->gpu.device, 1, &fence));
    atomic_fetch_add(&done, 1);
}

static void *fill(void *arg)
{
    const struct filler *f = arg;
    uint64_t count = 0;
    for (; !stop; count++) {
        VkFence fence = f->fences[count % DEPTH];
        if (count >= DEPTH)
            await(f, fence);
        VKT(kit_submit(&f->gpu, f->commands, fence));
    }
    for (uint64_t i = count > DEPTH ? count - DEPTH : 0; i < count; i++)
        await(f, f->fences[i % DEPTH]);
    return NULL;
}

static void busy(void)
{
    static struct filler filler;
    char line[16];
    open_filler(&filler);
    VKT_EXPECT(pthread_create(&filler.thread, NULL, fill, &filler) == 0);
    while (fgets(line, sizeof(line), stdin) && strcmp(line, "count\n") == 0)
        kit_say("%lu", atomic_load(&done));
    stop = true;
    VKT_EXPECT(pthread_join(filler.thread, NULL) == 0);
    close_filler(&filler);
}

static const struct kit_case cases[] = {{"busy", busy}};

KIT_MAIN(cases)
