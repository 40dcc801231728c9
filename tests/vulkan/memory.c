/* memory.c - differential programs: mapped memory, shared byte by byte by the CPU and the GPU. */
#include "vkt.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = 4096, BYTES = WORDS * 4 };

/* A generator step over the whole buffer, in a command buffer that can be submitted again. */
struct stepper {
    struct vkt_kernel kernel;
    VkCommandBuffer command;
    VkFence fence;
};

static struct stepper stepper(const struct vkt_buffer *buffer)
{
    struct stepper made = {
        .kernel = vkt_kernel("step.comp", "s", 4),
        .command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY),
        .fence = vkt_fence(false),
    };
    const uint32_t add = 1;
    vkt_kernel_bind(&made.kernel, 0, buffer);
    vkt_record(made.command, 0);
    vkt_kernel_record(made.command, &made.kernel, &add, (uint32_t)(buffer->size / 4 + 63) / 64);
    VKT(vkEndCommandBuffer(made.command));
    return made;
}

static void step(const struct stepper *stepper)
{
    vkt_submit(stepper->command, stepper->fence);
    vkt_wait(stepper->fence);
    VKT(vkResetFences(vkt.device, 1, &stepper->fence));
}

static void coherent(void)
{
    vkt_open();
    struct vkt_buffer buffer = vkt_storage(BYTES, NULL);
    struct stepper run = stepper(&buffer);
    uint32_t *words = buffer.map;
    for (uint32_t i = 0; i < 10; i++) {
        words[i * 100] ^= i; /* what the CPU writes between submits is part of the result */
        step(&run);
    }
    vkt_out_buffer("stepped", &buffer);
}

static void non_coherent(void)
{
    vkt_open();
    struct vkt_buffer buffer = vkt_buffer(BYTES, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, VKT_CACHED);
    struct stepper run = stepper(&buffer);
    vkt_pattern(buffer.map, BYTES, 1);
    for (uint32_t i = 0; i < 5; i++) {
        vkt_flush(&buffer);
        step(&run);
        vkt_invalidate(&buffer);
        ((uint32_t *)buffer.map)[i] += 1000;
    }
    vkt_out_buffer("stepped", &buffer);
}

static void atoms(void)
{
    vkt_open();
    /* Ranges of one atom, several a call. */
    struct vkt_buffer buffer = vkt_buffer(BYTES, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, VKT_CACHED);
    struct vkt_buffer copy = vkt_buffer(BYTES, 0, VKT_COHERENT);
    VkDeviceSize atom = vkt.props.limits.nonCoherentAtomSize;
    VkMappedMemoryRange ranges[3];
    for (uint32_t i = 0; i < 3; i++) {
        ranges[i] = (VkMappedMemoryRange){
            .sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE,
            .memory = buffer.memory,
            .offset = (1 + i * 3) * atom,
            .size = atom,
        };
        memset((char *)buffer.map + ranges[i].offset, (int)(0x10 + i), atom);
    }
    VKT(vkFlushMappedMemoryRanges(vkt.device, 3, ranges));
    VkCommandBuffer command = vkt_begin();
    vkt_copy(command, &buffer, &copy);
    vkt_barrier(command);
    vkCmdFillBuffer(command, buffer.handle, ranges[1].offset, atom, 0x77777777);
    vkt_finish(command);
    VKT(vkInvalidateMappedMemoryRanges(vkt.device, 3, ranges));
    vkt_out_buffer("copy", &copy);
    vkt_out_buffer("buffer", &buffer);
}

static void persistent(void)
{
    vkt_open();
    struct vkt_buffer buffer = vkt_storage(BYTES, NULL);
    struct stepper run = stepper(&buffer);
    uint32_t *words = buffer.map, sum = 0;
    for (uint32_t i = 0; i < 300; i++) {
        words[(i * 37) % WORDS] = sum;
        step(&run);
        sum = sum * 31 + words[(i * 91) % WORDS];
    }
    vkt_out_u64("sum", sum);
    vkt_out_buffer("stepped", &buffer);
}

static void neighbours(void)
{
    vkt_open();
    /* While the GPU writes the even words of each page, the CPU writes the odd ones. */
    struct vkt_buffer from = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct vkt_buffer both = vkt_buffer(BYTES, 0, VKT_COHERENT);
    vkt_pattern(from.map, BYTES, 5);
    static VkBufferCopy even[WORDS / 2];
    for (uint32_t i = 0; i < WORDS / 2; i++)
        even[i] = (VkBufferCopy){i * 8, i * 8, 4};
    VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    vkt_record(command, 0);
    vkCmdCopyBuffer(command, from.handle, both.handle, WORDS / 2, even);
    vkt_barrier(command);
    VKT(vkEndCommandBuffer(command));
    VkFence fence = vkt_fence(false);
    vkt_submit(command, fence);
    volatile uint32_t *words = both.map;
    for (uint32_t i = 1; i < WORDS; i += 2)
        words[i] = i * 0x01010101u;
    vkt_wait(fence);
    vkt_out_buffer("both", &both);
    for (uint32_t i = 1; i < WORDS; i += 2)
        VKT_EXPECT(words[i] == i * 0x01010101u);
}

static void neighbour_bytes(void)
{
    vkt_open();
    /* The same with single bytes: no word belongs to one side. */
    struct vkt_buffer from = vkt_buffer(PAGE, 0, VKT_COHERENT);
    struct vkt_buffer both = vkt_buffer(PAGE, 0, VKT_COHERENT);
    memset(from.map, 0xcd, PAGE);
    static VkBufferCopy thirds[PAGE / 3];
    for (uint32_t i = 0; i < PAGE / 3; i++)
        thirds[i] = (VkBufferCopy){i * 3, i * 3, 1};
    VkCommandBuffer command = vkt_begin();
    vkCmdCopyBuffer(command, from.handle, both.handle, PAGE / 3, thirds);
    vkt_barrier(command);
    VKT(vkEndCommandBuffer(command));
    VkFence fence = vkt_fence(false);
    vkt_submit(command, fence);
    volatile unsigned char *bytes = both.map;
    for (uint32_t i = 1; i < PAGE; i += 3)
        bytes[i] = (unsigned char)i;
    vkt_wait(fence);
    vkt_out_buffer("both", &both);
}

static void sub_ranges(void)
{
    vkt_open();
    VkBuffer buffer = vkt_buffer_only(BYTES, 0);
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(vkt.device, buffer, &needs);
    VkDeviceMemory memory = vkt_allocate(needs, VKT_COHERENT, NULL);
    VKT(vkBindBufferMemory(vkt.device, buffer, memory, 0));
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, buffer, 0, VK_WHOLE_SIZE, 0x0badf00d);
    vkt_finish(command);
    const struct {
        VkDeviceSize offset, size;
    } ranges[] = {{0, 1}, {4095, 2}, {5000, 3000}, {BYTES - 7, 7}, {1, VK_WHOLE_SIZE}};
    for (size_t i = 0; i < VKT_COUNT(ranges); i++) {
        unsigned char *map;
        VKT(vkMapMemory(vkt.device, memory, ranges[i].offset, ranges[i].size, 0, (void **)&map));
        map[0] = (unsigned char)(0xa0 + i);
        /* The pointer minus the offset keeps minMemoryMapAlignment. */
        uintptr_t base = (uintptr_t)map - (uintptr_t)ranges[i].offset;
        VKT_EXPECT(base % vkt.props.limits.minMemoryMapAlignment == 0);
        vkUnmapMemory(vkt.device, memory);
    }
    void *all;
    VKT(vkMapMemory(vkt.device, memory, 0, VK_WHOLE_SIZE, 0, &all));
    vkt_out("buffer", all, BYTES);
}

static void remapped(void)
{
    vkt_open();
    struct vkt_buffer buffer = vkt_storage(BYTES, NULL);
    struct stepper run = stepper(&buffer);
    for (uint32_t i = 0; i < 50; i++) {
        vkUnmapMemory(vkt.device, buffer.memory);
        if (i % 2)
            step(&run); /* unmapped memory changes too */
        VKT(vkMapMemory(vkt.device, buffer.memory, 0, VK_WHOLE_SIZE, 0, &buffer.map));
        ((uint32_t *)buffer.map)[i] += i;
    }
    vkt_out_buffer("stepped", &buffer);
}

/* Mapped memory that nobody has touched. */
static struct vkt_buffer untouched(VkDeviceSize size, VkBufferUsageFlags usage)
{
    struct vkt_buffer made = {.handle = vkt_buffer_only(size, usage), .size = size};
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(vkt.device, made.handle, &needs);
    made.memory = vkt_allocate(needs, VKT_COHERENT, NULL);
    VKT(vkBindBufferMemory(vkt.device, made.handle, made.memory, 0));
    VKT(vkMapMemory(vkt.device, made.memory, 0, VK_WHOLE_SIZE, 0, &made.map));
    return made;
}

static void large_sparse_touches(void)
{
    vkt_open();
    enum { LARGE = 64 << 20, STRIDE = (1 << 20) + 4, FILLED = (32 << 20) + (64 << 10) };
    struct vkt_buffer large = untouched(LARGE, 0);
    struct vkt_buffer found = vkt_buffer(PAGE, 0, VKT_COHERENT);
    VkBufferCopy touched[LARGE / STRIDE];
    for (uint32_t i = 0; i < VKT_COUNT(touched); i++) {
        VkDeviceSize at = (VkDeviceSize)i * STRIDE;
        memset((char *)large.map + at, (int)i, 3);
        ((char *)large.map)[at + 3] = 'x';
        touched[i] = (VkBufferCopy){at, i * 4, 4};
    }
    VkCommandBuffer command = vkt_begin();
    vkCmdCopyBuffer(command, large.handle, found.handle, VKT_COUNT(touched), touched);
    vkCmdFillBuffer(command, large.handle, FILLED, 4096, 0x42424242);
    vkt_finish(command);
    vkt_out_buffer("found", &found);
    vkt_out("filled", (char *)large.map + FILLED, 4096);
}

/* All of it is bound, again and again, and shaders write a little.  The host writes beside that,
 * and elsewhere, while they do; a copy reads what both wrote. */
static void large_binding(void)
{
    vkt_open();
    enum { LARGE = 64 << 20, STEPPED = 5000, ELSEWHERE = (48 << 20) + 100, ROUNDS = 7 };
    struct vkt_buffer large = untouched(LARGE, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT);
    struct vkt_buffer found = vkt_buffer(3 * PAGE, 0, VKT_COHERENT);
    struct vkt_kernel kernel = vkt_kernel("step.comp", "s", 4);
    VkFence fence = vkt_fence(false);
    vkt_kernel_bind(&kernel, 0, &large);
    char *bytes = large.map;
    vkt_pattern(bytes, 2 * PAGE, 1);
    vkt_pattern(bytes + ELSEWHERE, PAGE, 2);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        VkCommandBuffer command = vkt_begin();
        vkt_kernel_record(command, &kernel, &round, STEPPED / 256);
        VKT(vkEndCommandBuffer(command));
        vkt_submit(command, fence);
        memset(bytes + 2 * PAGE - 9, (int)round, 9);
        memset(bytes + ELSEWHERE + round * 40, (int)round, 33);
        vkt_wait(fence);
        VKT(vkResetFences(vkt.device, 1, &fence));
        vkt_out("stepped", bytes, 2 * PAGE);
        command = vkt_begin();
        vkCmdCopyBuffer(command, large.handle, found.handle, 1, &(VkBufferCopy){0, 0, 2 * PAGE});
        vkCmdCopyBuffer(command, large.handle, found.handle, 1,
                        &(VkBufferCopy){ELSEWHERE, 2 * PAGE, PAGE});
        vkt_finish(command);
        vkt_out_buffer("found", &found);
    }
}

static void suballocated(void)
{
    vkt_open();
    enum { PARTS = 8, PART = 1500 };
    VkBuffer parts[PARTS];
    VkMemoryRequirements needs = {0};
    for (int i = 0; i < PARTS; i++) {
        parts[i] = vkt_buffer_only(PART, 0);
        vkGetBufferMemoryRequirements(vkt.device, parts[i], &needs);
    }
    VkDeviceSize stride = (needs.size + needs.alignment - 1) / needs.alignment * needs.alignment;
    VkMemoryRequirements all = needs;
    all.size = stride * PARTS;
    VkDeviceMemory memory = vkt_allocate(all, VKT_COHERENT, NULL);
    VkBindBufferMemoryInfo binds[PARTS];
    for (int i = 0; i < PARTS; i++)
        binds[i] = (VkBindBufferMemoryInfo){VK_STRUCTURE_TYPE_BIND_BUFFER_MEMORY_INFO, NULL,
                                            parts[i], memory, stride * (unsigned)i};
    VKT(vkBindBufferMemory2(vkt.device, PARTS, binds));
    VkCommandBuffer command = vkt_begin();
    for (int i = 0; i < PARTS; i++)
        vkCmdFillBuffer(command, parts[i], 0, PART & ~3, 0x01010101u * (unsigned)i);
    vkt_finish(command);
    char *map;
    VKT(vkMapMemory(vkt.device, memory, 0, VK_WHOLE_SIZE, 0, (void **)&map));
    for (int i = 0; i < PARTS; i++)
        vkt_out("part", map + stride * (unsigned)i, PART & ~3);
}

static void dedicated(void)
{
    vkt_open();
    VkBuffer buffer = vkt_buffer_only(BYTES, 0);
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(vkt.device, buffer, &needs);
    VkMemoryDedicatedAllocateInfo only = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO,
        .buffer = buffer,
    };
    VkDeviceMemory memory = vkt_allocate(needs, VKT_COHERENT, &only);
    VKT(vkBindBufferMemory(vkt.device, buffer, memory, 0));
    void *map;
    VKT(vkMapMemory(vkt.device, memory, 0, BYTES, 0, &map));
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, buffer, 0, BYTES, 0xdedededeu);
    vkt_finish(command);
    vkt_out("buffer", map, BYTES);
}

static void read_into(void)
{
    vkt_open();
    /* The kernel writes mapped memory on the program's behalf, and reads it too. */
    struct vkt_buffer buffer = vkt_storage(BYTES, NULL);
    struct stepper run = stepper(&buffer);
    static char text[3000];
    vkt_pattern(text, sizeof(text), 8);
    int fd = memfd_create("vkt", MFD_CLOEXEC);
    VKT_EXPECT(fd >= 0);
    VKT_EXPECT(write(fd, text, sizeof(text)) == (ssize_t)sizeof(text));
    VKT_EXPECT(pread(fd, (char *)buffer.map + 100, sizeof(text), 0) == (ssize_t)sizeof(text));
    step(&run);
    VKT_EXPECT(pread(fd, (char *)buffer.map + 9001, 1000, 7) == 1000);
    step(&run);
    VKT_EXPECT(pwrite(fd, buffer.map, BYTES, 0) == BYTES);
    static char back[BYTES];
    VKT_EXPECT(pread(fd, back, BYTES, 0) == BYTES);
    close(fd);
    vkt_out("written", back, BYTES);
    VKT_EXPECT(!memcmp(back, buffer.map, BYTES));
}

static sigjmp_buf recovered;

static void on_segv(int number)
{
    siglongjmp(recovered, number);
}

/* A fault of the program's own must reach its handler; returns whether it did. */
static bool faults(volatile char *nowhere)
{
    if (sigsetjmp(recovered, 1))
        return true;
    *nowhere = 1;
    return false;
}

static void own_handler(void)
{
    struct sigaction action = {.sa_handler = on_segv}, before;
    char *nowhere = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VKT_EXPECT(nowhere != MAP_FAILED);
    vkt_open();
    struct vkt_buffer buffer = vkt_storage(BYTES, NULL);
    struct stepper run = stepper(&buffer);
    step(&run);
    VKT_EXPECT(sigaction(SIGSEGV, &action, &before) == 0);
    uint32_t caught = 0;
    for (uint32_t i = 0; i < 5; i++) {
        ((uint32_t *)buffer.map)[i * 800] = i;
        caught += faults(nowhere);
        step(&run);
    }
    VKT_EXPECT(sigaction(SIGSEGV, &before, NULL) == 0);
    ((uint32_t *)buffer.map)[4000] = 4000;
    step(&run);
    munmap(nowhere, PAGE);
    vkt_out_u64("caught", caught);
    vkt_out_buffer("stepped", &buffer);
}

static void forked(void)
{
    vkt_open();
    struct vkt_buffer buffer = vkt_storage(BYTES, NULL);
    struct stepper run = stepper(&buffer);
    step(&run);
    ((uint32_t *)buffer.map)[7] = 7;
    /* The child makes no Vulkan call and leaves the mapping alone; the parent goes on. */
    pid_t child = fork();
    VKT_EXPECT(child >= 0);
    if (child == 0)
        _exit(5);
    ((uint32_t *)buffer.map)[2000] = 2000;
    step(&run);
    int status = 0;
    VKT_EXPECT(waitpid(child, &status, 0) == child);
    vkt_out_u64("child", (uint64_t)WEXITSTATUS(status));
    step(&run);
    vkt_out_buffer("stepped", &buffer);
}

/* A program that watches coherent memory without any call must see the GPU's write. */
static void polled(void)
{
    vkt_open();
    struct vkt_buffer buffer = vkt_buffer(PAGE, 0, VKT_COHERENT);
    volatile uint32_t *words = buffer.map;
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, buffer.handle, 0, PAGE, 0x900dd06);
    vkt_barrier(command);
    VKT(vkEndCommandBuffer(command));
    vkt_submit(command, VK_NULL_HANDLE);
    while (words[PAGE / 4 - 1] != 0x900dd06)
        ;
    VKT(vkQueueWaitIdle(vkt.queue));
    vkt_out_buffer("buffer", &buffer);
}

static void staging_ring(void)
{
    vkt_open();
    /* A staging ring: each part is rewritten as soon as its fence is done. */
    enum { RING = 4, PART = 2048, TURNS = 40 };
    struct vkt_buffer ring = vkt_buffer(RING * PART, 0, VKT_COHERENT);
    struct vkt_buffer total = vkt_buffer(TURNS * PART, 0, VKT_DEVICE);
    VkFence fences[RING];
    VkCommandBuffer commands[RING];
    for (int i = 0; i < RING; i++) {
        fences[i] = vkt_fence(true);
        commands[i] = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    }
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        uint32_t part = turn % RING;
        vkt_wait(fences[part]);
        VKT(vkResetFences(vkt.device, 1, &fences[part]));
        vkt_pattern((char *)ring.map + part * PART, PART, turn);
        vkt_record(commands[part], VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
        vkCmdCopyBuffer(commands[part], ring.handle, total.handle, 1,
                        &(VkBufferCopy){part * PART, turn * PART, PART});
        vkt_barrier(commands[part]);
        VKT(vkEndCommandBuffer(commands[part]));
        vkt_submit(commands[part], fences[part]);
    }
    VKT(vkQueueWaitIdle(vkt.queue));
    vkt_out_buffer("total", &total);
}

static void requirements(void)
{
    vkt_open();
    VkBuffer buffer = vkt_buffer_only(BYTES, 0);
    VkBufferMemoryRequirementsInfo2 about = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_REQUIREMENTS_INFO_2,
        .buffer = buffer,
    };
    VkMemoryDedicatedRequirements only = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_REQUIREMENTS,
    };
    VkMemoryRequirements2 needs = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2,
        .pNext = &only,
    };
    vkGetBufferMemoryRequirements2(vkt.device, &about, &needs);
    vkt_out_u64("size", needs.memoryRequirements.size);
    vkt_out_u64("alignment", needs.memoryRequirements.alignment);
    vkt_out_u64("prefers", only.prefersDedicatedAllocation);
    vkt_out_u64("requires", only.requiresDedicatedAllocation);
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = 12345,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
    };
    VkDeviceBufferMemoryRequirements planned = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_BUFFER_MEMORY_REQUIREMENTS,
        .pCreateInfo = &info,
    };
    vkGetDeviceBufferMemoryRequirements(vkt.device, &planned, &needs);
    vkt_out_u64("planned", needs.memoryRequirements.size);
    static const VkDeviceSize sizes[] = {1, 1000, 65537, (64 << 20) + 3, 300 << 20};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes);
         i++) { /* a driver may want large ones alone */
        about.buffer = vkt_buffer_only(sizes[i], 0);
        vkGetBufferMemoryRequirements2(vkt.device, &about, &needs);
        vkt_out_u64("size", needs.memoryRequirements.size);
        vkt_out_u64("prefers", only.prefersDedicatedAllocation);
    }
}

/* What the host left in memory that the device then writes: a copy, and a fill of part of it.  The
 * second round has the first one's bytes behind it at both ends. */
static void left_behind(void)
{
    enum { LEFT = 8192 };
    vkt_open();
    struct vkt_buffer from = vkt_buffer(LEFT, 0, VKT_DEVICE);
    struct vkt_buffer to = vkt_buffer(LEFT, 0, VKT_COHERENT);
    for (uint32_t round = 0; round < 3; round++) {
        memset(to.map, 0xc0 + (int)round, LEFT);
        VkCommandBuffer command = vkt_begin();
        vkCmdFillBuffer(command, from.handle, 0, VK_WHOLE_SIZE, 0x01020304u + round);
        vkt_barrier(command);
        VkBufferCopy part = {.srcOffset = 0, .dstOffset = 60, .size = LEFT / 2};
        vkCmdCopyBuffer(command, from.handle, to.handle, 1, &part);
        vkCmdFillBuffer(command, to.handle, LEFT - 256, 128, 0xc0c0c0c0u);
        vkt_finish(command);
        vkt_out("left", to.map, LEFT);
    }
}

/* What the host writes while the device writes its neighbours, and what it writes into memory that
 * the device rewrites a part of: other work comes before the work that reads it. */
static void read_later(void)
{
    enum { LATER = 256 << 10, ROUNDS = 4 };
    vkt_open();
    struct vkt_buffer later = vkt_buffer(LATER, 0, VKT_COHERENT);
    struct vkt_buffer copy = vkt_buffer(LATER, 0, VKT_COHERENT);
    struct vkt_buffer other = vkt_storage(BYTES, NULL);
    struct stepper run = stepper(&other);
    VkFence fence = vkt_fence(false);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        vkt_pattern(later.map, LATER, round);
        VkCommandBuffer command = vkt_begin();
        vkt_copy(command, &later, &copy);
        vkt_finish(command);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        volatile uint32_t *words = later.map;
        words[LATER / 4 - 1] = 0x1000 + round;
        VkCommandBuffer fill = vkt_begin();
        vkCmdFillBuffer(fill, later.handle, 0, LATER / 2, round);
        vkt_barrier(fill);
        VKT(vkEndCommandBuffer(fill));
        vkt_submit(fill, fence);
        for (uint32_t i = LATER / 8; i < LATER / 4 - 1; i += 777)
            words[i] = round * 0x10001 + i;
        vkt_wait(fence);
        VKT(vkResetFences(vkt.device, 1, &fence));
        step(&run);
        VkCommandBuffer command = vkt_begin();
        vkt_copy(command, &later, &copy);
        vkt_finish(command);
        vkt_out("copy", copy.map, LATER);
    }
    vkt_out_buffer("other", &other);
}

/* What a call is given lies in memory that the device has just written. */
static void arguments(void)
{
    enum { ROOM = 2 * PAGE };
    vkt_open();
    struct vkt_buffer from = vkt_buffer(ROOM, 0, VKT_COHERENT);
    struct vkt_buffer to = vkt_buffer(ROOM, 0, VKT_COHERENT);
    VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    VkPipelineCache caches[4];
    VKT(vkCreatePipelineCache(vkt.device, &info, NULL, &caches[0]));
    for (uint32_t i = 1; i < VKT_COUNT(caches); i++) {
        size_t size = ROOM;
        VKT(vkGetPipelineCacheData(vkt.device, caches[i - 1], &size, from.map));
        VkCommandBuffer command = vkt_begin();
        vkCmdCopyBuffer(command, from.handle, to.handle, 1, &(VkBufferCopy){.size = ROOM});
        vkt_finish(command);
        info.initialDataSize = size;
        info.pInitialData = to.map;
        VKT(vkCreatePipelineCache(vkt.device, &info, NULL, &caches[i]));
        /* And an answer goes there. */
        size = ROOM;
        VKT(vkGetPipelineCacheData(vkt.device, caches[i], &size, to.map));
        vkt_out("header", to.map, 16);
    }
    for (uint32_t i = 0; i < VKT_COUNT(caches); i++)
        vkDestroyPipelineCache(vkt.device, caches[i], NULL);
}

/* Copies all of `from` to `to`, at an offset, behind a step of it. */
static VkCommandBuffer read_back_command(const struct stepper *run, const struct vkt_buffer *from,
                                         const struct vkt_buffer *to, VkDeviceSize offset)
{
    const uint32_t add = 1;
    VkBufferCopy region = {0, offset, from->size};
    VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    vkt_record(command, 0);
    vkt_kernel_record(command, &run->kernel, &add, (uint32_t)(from->size / 4 + 63) / 64);
    vkCmdCopyBuffer(command, from->handle, to->handle, 1, &region);
    vkt_barrier(command);
    VKT(vkEndCommandBuffer(command));
    return command;
}

/* Memory of the device holds anything at first. */
static struct vkt_buffer zeros(VkDeviceSize size)
{
    struct vkt_buffer made = vkt_buffer(size, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, VKT_DEVICE);
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, made.handle, 0, VK_WHOLE_SIZE, 0);
    vkt_barrier(command);
    vkt_finish(command);
    return made;
}

static void wait_and_reset(VkFence fence)
{
    vkt_wait(fence);
    VKT(vkResetFences(vkt.device, 1, &fence));
}

/* Into the same pages, with all that may come between: what the program leaves there, batches that
 * read the pages on, or write them, and the program's own changes. */
static void read_again(void)
{
    enum { LARGE = 128 << 10, ROUNDS = 18 };
    vkt_open();
    struct vkt_buffer from = zeros(LARGE), onward = zeros(LARGE + PAGE);
    struct vkt_buffer back = vkt_storage(LARGE + PAGE, NULL);
    struct stepper run = stepper(&from), over = stepper(&back);
    VkCommandBuffer even = read_back_command(&run, &from, &back, 0);
    VkCommandBuffer odd = read_back_command(&run, &from, &back, 100);
    VkCommandBuffer on = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    vkt_record(on, 0);
    vkt_copy(on, &back, &onward);
    vkt_barrier(on);
    VKT(vkEndCommandBuffer(on));
    uint8_t *bytes = back.map;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        if (i % 3 == 1)
            memset(bytes + 5 * PAGE, (int)i, LARGE / 2);
        vkt_submit(i < ROUNDS / 2 ? even : odd, run.fence);
        if (i % 7 == 5)
            vkt_submit(on, VK_NULL_HANDLE); /* reads what the other is about to write */
        wait_and_reset(run.fence);
        vkt_out("back", bytes, LARGE + PAGE);
        if (i % 8 == 6) {
            bytes[i * PAGE] ^= 1;
            vkt_submit(on, run.fence);
            wait_and_reset(run.fence);
        }
        if (i % 9 == 8)
            step(&over);
        if (i % 7 == 5 || i % 8 == 6)
            vkt_out_buffer("onward", &onward);
    }
}

/* The host hears by an event, which the next batch sets, that the bytes are there. */
static void read_again_at_an_event(void)
{
    enum { LARGE = 128 << 10, ROUNDS = 8 };
    vkt_open();
    struct vkt_buffer from = zeros(LARGE), other = zeros(LARGE);
    struct vkt_buffer back = vkt_buffer(LARGE, 0, VKT_COHERENT);
    struct stepper run = stepper(&from), long_run = stepper(&other);
    VkCommandBuffer command = read_back_command(&run, &from, &back, 0);
    VkEventCreateInfo info = {.sType = VK_STRUCTURE_TYPE_EVENT_CREATE_INFO};
    VkEvent event;
    VKT(vkCreateEvent(vkt.device, &info, NULL, &event));
    VKT_KEEP(EVENT, event);
    const uint32_t add = 1;
    VkCommandBuffer tells = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    vkt_record(tells, 0);
    vkCmdSetEvent(tells, event, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT);
    for (int i = 0; i < 20; i++) /* and goes on for a while */
        vkt_kernel_record(tells, &long_run.kernel, &add, LARGE / 4 / 64);
    VKT(vkEndCommandBuffer(tells));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        memset(back.map, (int)i, LARGE);
        vkt_submit(command, VK_NULL_HANDLE);
        vkt_submit(tells, run.fence);
        VkResult status;
        while ((status = vkGetEventStatus(vkt.device, event)) == VK_EVENT_RESET)
            ;
        vkt_out_result("event", status);
        vkt_out("back", back.map, LARGE);
        wait_and_reset(run.fence);
        vkt_out("at the end", back.map, LARGE);
        VKT(vkResetEvent(vkt.device, event));
    }
}

/* A batch that waits for the host: until then the pages are the program's. */
static void read_again_behind_the_host(void)
{
    enum { LARGE = 128 << 10, ROUNDS = 4 };
    vkt_open();
    VKT_NEED(vkt.f12.timelineSemaphore);
    struct vkt_buffer from = zeros(LARGE), back = vkt_buffer(LARGE, 0, VKT_COHERENT);
    struct stepper run = stepper(&from);
    VkCommandBuffer command = read_back_command(&run, &from, &back, 0);
    VkSemaphore timeline = vkt_timeline(0);
    uint8_t *bytes = back.map;
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        VkTimelineSemaphoreSubmitInfo values = {
            .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
            .waitSemaphoreValueCount = 1,
            .pWaitSemaphoreValues = &i};
        VkPipelineStageFlags all = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
        VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .pNext = &values,
                               .waitSemaphoreCount = 1,
                               .pWaitSemaphores = &timeline,
                               .pWaitDstStageMask = &all,
                               .commandBufferCount = 1,
                               .pCommandBuffers = &command};
        VkSemaphoreSignalInfo signal = {
            .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = timeline, .value = i};
        VKT(vkQueueSubmit(vkt.queue, 1, &submit, run.fence));
        memset(bytes, (int)i, LARGE);
        vkt_out("before", bytes, LARGE);
        VKT(vkSignalSemaphore(vkt.device, &signal));
        wait_and_reset(run.fence);
        vkt_out("after", bytes, LARGE);
    }
}

/* Much that the device wrote, read from both ends and in the middle, with writes of the host. */
static void large_reads(void)
{
    enum { LARGE = 3 << 20, HOLE = 777777 };
    vkt_open();
    struct vkt_buffer buffer = vkt_buffer(LARGE, 0, VKT_COHERENT);
    uint8_t *map = buffer.map;
    uint64_t sum = 0;
    for (uint32_t round = 0; round < 3; round++) {
        map[HOLE] = (uint8_t)round;
        VkCommandBuffer command = vkt_begin();
        vkCmdFillBuffer(command, buffer.handle, 0, HOLE / 4 * 4, 0x03020100u + round);
        vkCmdFillBuffer(command, buffer.handle, HOLE / 4 * 4 + 4, VK_WHOLE_SIZE, ~round);
        vkt_finish(command);
        for (size_t at = LARGE; at > LARGE / 2; at -= 1000)
            sum = sum * 31 + map[at - 1];
        map[LARGE / 2 + 1] = (uint8_t)(9 + round);
        vkt_out_u64("backwards", sum);
        vkt_out("all", map, LARGE);
    }
}

#ifdef VK_EXT_map_memory_placed

/* Mapped where the program wants it, again and again, between work that writes it: the same as a
 * twin that stays where it is. */
static void placed(void)
{
    VkPhysicalDeviceMapMemoryPlacedFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAP_MEMORY_PLACED_FEATURES_EXT};
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &features};
    VKT_NEED(vkt_has_extension(VK_EXT_MAP_MEMORY_PLACED_EXTENSION_NAME));
    vkGetPhysicalDeviceFeatures2(vkt.physical, &all);
    VKT_NEED(features.memoryMapPlaced && features.memoryUnmapReserve);
    features.memoryMapRangePlaced = VK_FALSE;
    VKT_OPEN_WITH(&features, VK_EXT_MAP_MEMORY_PLACED_EXTENSION_NAME,
                  VK_KHR_MAP_MEMORY_2_EXTENSION_NAME);
    PFN_vkMapMemory2KHR map2 = VKT_PROC(vkMapMemory2KHR);
    PFN_vkUnmapMemory2KHR unmap2 = VKT_PROC(vkUnmapMemory2KHR);
    struct vkt_buffer buffer = vkt_storage(BYTES, NULL), twin = vkt_storage(BYTES, NULL);
    struct stepper run = stepper(&buffer), twin_run = stepper(&twin);
    uint32_t *twin_words = twin.map;
    const size_t room = 16 * BYTES, aligned = 64 << 10;
    uint8_t *reserved =
        mmap(NULL, room + aligned, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    VKT_EXPECT(reserved != MAP_FAILED);
    uint8_t *place = reserved + (-(uintptr_t)reserved & (aligned - 1));
    vkUnmapMemory(vkt.device, buffer.memory);
    for (uint32_t turn = 0; turn < 8; turn++) {
        VkMemoryMapPlacedInfoEXT at = {.sType = VK_STRUCTURE_TYPE_MEMORY_MAP_PLACED_INFO_EXT,
                                       .pPlacedAddress = place + turn % 2 * 8 * (size_t)BYTES};
        VkMemoryMapInfoKHR info = {.sType = VK_STRUCTURE_TYPE_MEMORY_MAP_INFO_KHR,
                                   .pNext = turn % 4 == 3 ? NULL : &at,
                                   .flags = turn % 4 == 3 ? 0 : VK_MEMORY_MAP_PLACED_BIT_EXT,
                                   .memory = buffer.memory,
                                   .size = VK_WHOLE_SIZE};
        uint32_t *words;
        VKT(map2(vkt.device, &info, (void **)&words));
        VKT_EXPECT(turn % 4 == 3 || (void *)words == at.pPlacedAddress);
        words[turn * 500] ^= turn;
        twin_words[turn * 500] ^= turn;
        step(&run);
        step(&twin_run);
        VKT_EXPECT(memcmp(words, twin_words, BYTES) == 0);
        words[turn * 500 + 1] += 3; /* sent after it was unmapped */
        twin_words[turn * 500 + 1] += 3;
        VkMemoryUnmapInfoKHR out = {.sType = VK_STRUCTURE_TYPE_MEMORY_UNMAP_INFO_KHR,
                                    .flags = turn % 4 == 3 ? 0 : VK_MEMORY_UNMAP_RESERVE_BIT_EXT,
                                    .memory = buffer.memory};
        VKT(unmap2(vkt.device, &out));
        step(&run);
        step(&twin_run);
    }
    VKT(vkMapMemory(vkt.device, buffer.memory, 0, VK_WHOLE_SIZE, 0, &buffer.map));
    vkt_out_buffer("stepped", &buffer);
    VKT_EXPECT(memcmp(buffer.map, twin_words, BYTES) == 0);
    VKT_EXPECT(munmap(reserved, room + aligned) == 0);
}

#endif

/* ---- memory of the program ---- */

#define HOST VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT

/* A storage buffer over memory of whole pages that the program has. */
static struct vkt_buffer import(void *at, VkDeviceSize size)
{
    PFN_vkGetMemoryHostPointerPropertiesEXT ask = VKT_PROC(vkGetMemoryHostPointerPropertiesEXT);
    VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, .handleTypes = HOST};
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .pNext = &external,
                               .size = size,
                               .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    struct vkt_buffer buffer = {.size = size, .map = at};
    VKT(vkCreateBuffer(vkt.device, &info, NULL, &buffer.handle));
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(vkt.device, buffer.handle, &needs);
    VkMemoryHostPointerPropertiesEXT types = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    VKT(ask(vkt.device, HOST, at, &types));
    VkImportMemoryHostPointerInfoEXT pointer = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .handleType = HOST,
        .pHostPointer = at};
    VkMemoryAllocateInfo allocate = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .pNext = &pointer,
        .allocationSize = size,
        .memoryTypeIndex =
            vkt_memory_type(needs.memoryTypeBits & types.memoryTypeBits, VKT_COHERENT)};
    VKT(vkAllocateMemory(vkt.device, &allocate, NULL, &buffer.memory));
    VKT(vkBindBufferMemory(vkt.device, buffer.handle, buffer.memory, 0));
    return buffer;
}

static void end_import(struct vkt_buffer *buffer)
{
    vkDestroyBuffer(vkt.device, buffer->handle, NULL);
    vkFreeMemory(vkt.device, buffer->memory, NULL);
}

static void open_importing(void)
{
    VKT_NEED(vkt_has_extension(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME));
    VkPhysicalDeviceExternalBufferInfo asked = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
        .handleType = HOST};
    VkExternalBufferProperties answer = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES};
    vkGetPhysicalDeviceExternalBufferProperties(vkt.physical, &asked, &answer);
    VKT_NEED(answer.externalMemoryProperties.externalMemoryFeatures &
             VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT);
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                       .pNext = &host};
    vkGetPhysicalDeviceProperties2(vkt.physical, &all);
    VKT_NEED(BYTES % host.minImportedHostPointerAlignment == 0);
    VKT_OPEN_WITH(NULL, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
}

static uint8_t *fresh(size_t bytes, int flags, int fd)
{
    uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    VKT_EXPECT(at != MAP_FAILED);
    return at;
}

/* What the program wrote before the import, between submissions and by another mapping. */
static void imported(void)
{
    open_importing();
    int fd = memfd_create("vkt", MFD_CLOEXEC);
    VKT_EXPECT(fd >= 0 && ftruncate(fd, BYTES) == 0);
    uint32_t *other = (uint32_t *)(void *)fresh(BYTES, MAP_SHARED, fd);
    vkt_pattern(other, BYTES, 4);
    struct {
        const char *name;
        int flags, fd;
    } kinds[] = {{"anonymous", MAP_PRIVATE | MAP_ANONYMOUS, -1},
                 {"file", MAP_PRIVATE, fd}, /* no page of it was ever touched here */
                 {"shared", MAP_SHARED, fd}};
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        uint8_t *at = fresh(BYTES, kinds[k].flags, kinds[k].fd);
        if (kinds[k].fd < 0)
            vkt_pattern(at, BYTES / 2, 3);
        struct vkt_buffer buffer = import(at, BYTES);
        struct stepper run = stepper(&buffer);
        for (uint32_t i = 0; i < 10; i++) {
            step(&run);
            ((uint32_t *)(void *)at)[i * 100] ^= i;
            if (k == 2)
                other[i * 300 + 5] += i;
        }
        step(&run);
        vkt_out(kinds[k].name, at, BYTES);
        VKT_EXPECT(k != 2 || memcmp(at, other, BYTES) == 0);
        at[7]++; /* the next work does not see it */
        end_import(&buffer);
        vkt_out("afterwards", at, BYTES);
        VKT_EXPECT(munmap(at, BYTES) == 0);
    }
    VKT_EXPECT(munmap(other, BYTES) == 0 && close(fd) == 0);
}

/* As players move frames: a new import for each, of memory that overlaps, filled in part. */
static void imported_frames(void)
{
    enum { FRAME = 512 << 10, ROWS = 100 };
    open_importing();
    uint8_t *at = fresh((size_t)2 * FRAME, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    struct vkt_buffer device = vkt_buffer(FRAME, 0, VKT_DEVICE);
    for (uint32_t turn = 0; turn < 6; turn++) {
        VkCommandBuffer command = vkt_begin();
        vkt_pattern(at + (size_t)turn * PAGE, FRAME, turn);
        struct vkt_buffer from = import(at + (size_t)turn * PAGE, FRAME);
        vkt_copy(command, &from, &device);
        vkt_finish(command);
        end_import(&from);
        memset(at, (int)turn, (size_t)2 * FRAME);
        struct vkt_buffer to = import(at + FRAME / 2, FRAME);
        struct vkt_buffer head = import(at, FRAME);
        VkBufferCopy all = {0, turn * 3, FRAME - turn * 3};
        VkBufferCopy row = {100, 1000 + turn, ROWS};
        command = vkt_begin();
        vkCmdCopyBuffer(command, device.handle, to.handle, 1, &all);
        vkt_barrier(command);
        vkCmdCopyBuffer(command, device.handle, head.handle, 1, &row);
        vkt_barrier(command);
        vkt_finish(command);
        vkt_out("frame", at, (size_t)2 * FRAME);
        end_import(&to);
        end_import(&head);
    }
    VKT_EXPECT(munmap(at, (size_t)2 * FRAME) == 0);
}

/* As programs with a staging buffer for each step: what is allocated again is new to the host and
 * to the device, and only the first allocation of a kind is waited for. */
static void allocated_again(void)
{
    vkt_open();
    struct vkt_buffer seen = vkt_buffer(BYTES, 0, VKT_CACHED);
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(vkt.device, seen.handle, &needs);
    const enum vkt_memory kinds[] = {VKT_COHERENT, VKT_DEVICE, VKT_CACHED};
    for (uint32_t i = 0; i < 12; i++) {
        VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                     .allocationSize = needs.size,
                                     .memoryTypeIndex =
                                         vkt_memory_type(needs.memoryTypeBits, kinds[i % 3])};
        struct vkt_buffer used = {.handle = vkt_buffer_only(BYTES, 0), .size = BYTES};
        uint64_t exchanges = vkt_exchanges();
        VKT(vkAllocateMemory(vkt.device, &info, NULL, &used.memory));
        VKT_EXPECT(i < 3 || getenv("VENUS_SYNC") || vkt_exchanges() == exchanges);
        VKT(vkBindBufferMemory(vkt.device, used.handle, used.memory, 0));
        VkCommandBuffer command = vkt_begin();
        if (i % 3 == 1) {
            vkCmdFillBuffer(command, used.handle, 0, VK_WHOLE_SIZE, i);
            vkt_barrier(command);
        } else if (i < 6) { /* later it is mapped when the device has copied what is there */
            VKT(vkMapMemory(vkt.device, used.memory, 0, VK_WHOLE_SIZE, 0, &used.map));
            ((uint32_t *)used.map)[i] = i;
        }
        vkt_copy(command, &used, &seen);
        vkt_finish(command);
        if (i >= 6 && i % 3 != 1)
            VKT(vkMapMemory(vkt.device, used.memory, 0, VK_WHOLE_SIZE, 0, &used.map));
        if (i % 3 == 1)
            vkt_out_buffer("filled", &seen);
        else
            VKT_EXPECT(memcmp(used.map, seen.map, BYTES) == 0);
        if (used.map)
            memset(used.map, (int)i + 1, BYTES); /* nobody reads it any more */
        vkFreeMemory(vkt.device, used.memory, NULL);
    }
}

struct submitter {
    pthread_mutex_t lock; /* of the queue */
    _Atomic bool wanted;  /* by the other thread: who locks again at once would starve it */
    _Atomic bool stop;
};

static void *submit_nothing(void *user)
{
    struct submitter *submitter = user;
    const VkSubmitInfo nothing = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO};
    while (!submitter->stop) {
        pthread_mutex_lock(&submitter->lock);
        VKT(vkQueueSubmit(vkt.queue, 1, &nothing, VK_NULL_HANDLE));
        VKT(vkQueueWaitIdle(vkt.queue));
        pthread_mutex_unlock(&submitter->lock);
        do
            sched_yield();
        while (submitter->wanted);
    }
    return NULL;
}

static void copy_alone(struct submitter *submitter, const struct vkt_buffer *from,
                       const struct vkt_buffer *to)
{
    submitter->wanted = true;
    pthread_mutex_lock(&submitter->lock);
    submitter->wanted = false;
    VkCommandBuffer command = vkt_begin();
    vkt_copy(command, from, to);
    vkt_finish(command);
    pthread_mutex_unlock(&submitter->lock);
}

/* Imports while another thread submits: zeros stay zeros, whatever the driver's memory held. */
static void imported_meanwhile(void)
{
    enum { SMALL = 64 << 10 };
    static const uint8_t zeros[SMALL];
    open_importing();
    uint8_t *at = fresh(2 * SMALL, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    struct vkt_buffer out = vkt_buffer(SMALL, 0, VKT_COHERENT);
    struct submitter submitter = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    VKT_EXPECT(pthread_create(&thread, NULL, submit_nothing, &submitter) == 0);
    for (uint32_t turn = 0; turn < 100; turn++) {
        vkt_pattern(at + SMALL, SMALL, turn);
        struct vkt_buffer full = import(at + SMALL, SMALL);
        copy_alone(&submitter, &full, &out);
        VKT_EXPECT(memcmp(out.map, at + SMALL, SMALL) == 0);
        end_import(&full);
        struct vkt_buffer empty = import(at, SMALL);
        copy_alone(&submitter, &empty, &out);
        VKT_EXPECT(memcmp(out.map, zeros, SMALL) == 0);
        end_import(&empty);
        VKT_EXPECT(memcmp(at, zeros, SMALL) == 0);
    }
    submitter.stop = true;
    VKT_EXPECT(pthread_join(thread, NULL) == 0);
    VKT_EXPECT(munmap(at, 2 * SMALL) == 0);
}

/* An image over the program's memory, between what else is there. */
static void imported_image(void)
{
    enum { SIDE = 48 };
    open_importing();
    const VkImageUsageFlags usage = VK_IMAGE_USAGE_TRANSFER_DST_BIT;
    VkPhysicalDeviceExternalImageFormatInfo of_host = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_IMAGE_FORMAT_INFO, .handleType = HOST};
    VkPhysicalDeviceImageFormatInfo2 asked = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_IMAGE_FORMAT_INFO_2,
        .pNext = &of_host,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .type = VK_IMAGE_TYPE_2D,
        .tiling = VK_IMAGE_TILING_LINEAR,
        .usage = usage};
    VkExternalImageFormatProperties external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_IMAGE_FORMAT_PROPERTIES};
    VkImageFormatProperties2 answer = {.sType = VK_STRUCTURE_TYPE_IMAGE_FORMAT_PROPERTIES_2,
                                       .pNext = &external};
    VkResult result = vkGetPhysicalDeviceImageFormatProperties2(vkt.physical, &asked, &answer);
    vkt_out_result("supported", result);
    vkt_out_u64("features", external.externalMemoryProperties.externalMemoryFeatures);
    VKT_NEED(result == VK_SUCCESS && external.externalMemoryProperties.externalMemoryFeatures &
                                         VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT);
    uint8_t *at = fresh(BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    vkt_pattern(at, BYTES, 6);
    struct vkt_buffer host = import(at, BYTES);
    VkExternalMemoryImageCreateInfo handle = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMAGE_CREATE_INFO, .handleTypes = HOST};
    VkImageCreateInfo info = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                              .pNext = &handle,
                              .imageType = VK_IMAGE_TYPE_2D,
                              .format = VK_FORMAT_R8G8B8A8_UNORM,
                              .extent = {SIDE, SIDE, 1},
                              .mipLevels = 1,
                              .arrayLayers = 1,
                              .samples = VK_SAMPLE_COUNT_1_BIT,
                              .tiling = VK_IMAGE_TILING_LINEAR,
                              .usage = usage};
    VkImage image;
    VKT(vkCreateImage(vkt.device, &info, NULL, &image));
    VkMemoryRequirements needs;
    vkGetImageMemoryRequirements(vkt.device, image, &needs);
    VKT_NEED(needs.size <= BYTES);
    VKT(vkBindImageMemory(vkt.device, image, host.memory, 0));
    const VkImageSubresourceRange all = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
    for (uint32_t turn = 0; turn < 3; turn++) {
        VkClearColorValue color = {.float32 = {(float)turn / 4, 0.5f, 1, 0}};
        VkCommandBuffer command = vkt_begin();
        VkImageMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
                                        .dstAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                        .newLayout = VK_IMAGE_LAYOUT_GENERAL,
                                        .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
                                        .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
                                        .image = image,
                                        .subresourceRange = all};
        vkCmdPipelineBarrier(command, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
                             VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 0, NULL, 0, NULL, 1, &barrier);
        vkCmdClearColorImage(command, image, VK_IMAGE_LAYOUT_GENERAL, &color, 1, &all);
        vkt_barrier(command);
        vkt_finish(command);
        VkSubresourceLayout layout;
        vkGetImageSubresourceLayout(
            vkt.device, image, &(VkImageSubresource){VK_IMAGE_ASPECT_COLOR_BIT, 0, 0}, &layout);
        for (uint32_t y = 0; y < SIDE; y++)
            vkt_out("row", at + layout.offset + y * layout.rowPitch, (size_t)SIDE * 4);
        memset(at, (int)turn, BYTES);
    }
    vkDestroyImage(vkt.device, image, NULL);
    end_import(&host);
    VKT_EXPECT(munmap(at, BYTES) == 0);
}

static const struct vkt_case cases[] = {
    {"left_behind", left_behind, NULL},
    {"coherent", coherent, NULL},
    {"non_coherent", non_coherent, NULL},
    {"atoms", atoms, NULL},
    {"persistent", persistent, NULL},
    {"neighbours", neighbours, NULL},
    {"neighbour_bytes", neighbour_bytes, NULL},
    {"sub_ranges", sub_ranges, NULL},
    {"remapped", remapped, NULL},
    {"large_sparse_touches", large_sparse_touches, NULL},
    {"large_binding", large_binding, NULL},
    {"suballocated", suballocated, NULL},
    {"dedicated", dedicated, NULL},
    {"read_into", read_into, NULL},
    {"own_handler", own_handler, NULL},
    {"forked", forked, NULL},
    {"polled", polled, NULL},
    {"staging_ring", staging_ring, NULL},
    {"requirements", requirements, NULL},
    {"arguments", arguments, NULL},
    {"read_later", read_later, NULL},
    {"large_reads", large_reads, NULL},
    {"read_again", read_again, NULL},
    {"read_again_at_an_event", read_again_at_an_event, NULL},
    {"read_again_behind_the_host", read_again_behind_the_host, NULL},
    {"allocated_again", allocated_again, NULL},
    {"imported", imported, NULL},
    {"imported_frames", imported_frames, NULL},
    {"imported_meanwhile", imported_meanwhile, NULL},
    {"imported_image", imported_image, NULL},
#ifdef VK_EXT_map_memory_placed
    {"placed", placed, "the layer may be older than the extension"},
#endif
};

VKT_MAIN(cases)
