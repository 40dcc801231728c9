/* random.c - differential programs: what nobody thought of.
 *
 * A seed gives a list of steps, the same in all places: record a few commands, submit them, submit
 * them again, write and read mapped memory that no work uses, wait in several ways, free memory and
 * allocate as much again.  Buffers lie side by side in their memory, so that the host and the
 * device write the same pages at a time. */
#include "vkt.h"

#include <string.h>

enum {
    BUFFERS = 20, /* a bit each */
    MEMORIES = 4,
    PARTS = BUFFERS / MEMORIES,
    SLOTS = 6,
    SETS = 4, /* of a slot and kernel */
    OPS = 6,
    SMALL = 400, /* words */
    LARGE = 60000,
    STEPS = 400,
};

struct part {
    VkBuffer buffer;
    VkDeviceSize size;
    char *map;       /* NULL: of the device */
    uint64_t number; /* of the last submission that uses it */
};

struct slot {
    VkCommandBuffer command;
    VkDescriptorSet sets[SETS];
    uint32_t set_count;
    uint32_t used; /* bits of parts */
    uint64_t number;
    bool recorded;
};

struct range {
    VkDeviceSize at, bytes;
};

static const enum vkt_memory kinds[MEMORIES] = {VKT_COHERENT, VKT_DEVICE, VKT_COHERENT,
                                                VKT_COHERENT};
static VkDeviceMemory memories[MEMORIES];
static struct part parts[BUFFERS]; /* of the first memory, of the second... */
static struct slot slots[SLOTS];
static struct vkt_kernel kernel;
static VkSemaphore done, host; /* timelines */
static uint64_t submitted, waited, signalled;
static uint32_t state;

static uint32_t pick(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return below ? (uint32_t)(((uint64_t)state * below) >> 32) : 0;
}

/* Of words. */
static struct range part_of(const struct part *part, VkDeviceSize alignment)
{
    VkDeviceSize at = (VkDeviceSize)pick((uint32_t)part->size / 4) * 4 / alignment * alignment;
    VkDeviceSize left = part->size - at;
    return (struct range){at, pick(3) ? 4 + (VkDeviceSize)pick((uint32_t)left / 4) * 4 : left};
}

static struct range clipped(struct range range, VkDeviceSize size)
{
    if (range.bytes > size - range.at)
        range.bytes = size - range.at;
    return range;
}

/* --- what there is -------------------------------------------------------------------------- */

static void make_buffer(struct part *part)
{
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = part->size,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT,
    };
    VKT(vkCreateBuffer(vkt.device, &info, NULL, &part->buffer));
}

/* A memory and the buffers in it. */
static void make(uint32_t m)
{
    struct part *first = &parts[m * PARTS];
    VkMemoryRequirements all = {.memoryTypeBits = UINT32_MAX}, needs;
    VkDeviceSize offsets[PARTS];
    for (uint32_t i = 0; i < PARTS; i++) {
        make_buffer(&first[i]);
        vkGetBufferMemoryRequirements(vkt.device, first[i].buffer, &needs);
        offsets[i] = (all.size + needs.alignment - 1) / needs.alignment * needs.alignment;
        all.size = offsets[i] + needs.size;
        all.memoryTypeBits &= needs.memoryTypeBits;
    }
    VkMemoryAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .allocationSize = all.size,
        .memoryTypeIndex = vkt_memory_type(all.memoryTypeBits, kinds[m]),
    };
    VKT(vkAllocateMemory(vkt.device, &info, NULL, &memories[m]));
    void *map = NULL;
    if (kinds[m] != VKT_DEVICE)
        VKT(vkMapMemory(vkt.device, memories[m], 0, VK_WHOLE_SIZE, 0, &map));
    for (uint32_t i = 0; i < PARTS; i++) {
        VKT(vkBindBufferMemory(vkt.device, first[i].buffer, memories[m], offsets[i]));
        first[i].map = map ? (char *)map + offsets[i] : NULL;
        VkCommandBuffer command = vkt_begin();
        vkCmdFillBuffer(command, first[i].buffer, 0, VK_WHOLE_SIZE, i);
        vkt_finish(command);
    }
}

/* Memory may go before its buffers. */
static void destroy(uint32_t m, bool memory_first)
{
    if (memory_first)
        vkFreeMemory(vkt.device, memories[m], NULL);
    for (uint32_t i = m * PARTS; i < (m + 1) * PARTS; i++)
        vkDestroyBuffer(vkt.device, parts[i].buffer, NULL);
    if (!memory_first)
        vkFreeMemory(vkt.device, memories[m], NULL);
}

static void make_slots(void)
{
    VkCommandPool pool =
        vkt_command_pool(vkt.family, VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT);
    for (uint32_t i = 0; i < SLOTS; i++) {
        slots[i].command = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
        for (uint32_t j = 0; j < SETS; j++)
            slots[i].sets[j] = vkt_set(kernel.set_layout, "ss");
    }
}

/* --- waiting -------------------------------------------------------------------------------- */

static void wait_for(uint64_t number)
{
    VkSemaphoreWaitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
        .semaphoreCount = 1,
        .pSemaphores = &done,
        .pValues = &number,
    };
    if (number <= waited)
        return;
    uint32_t how = pick(4);
    if (how == 0)
        VKT(vkQueueWaitIdle(vkt.queue));
    else if (how == 1)
        VKT(vkDeviceWaitIdle(vkt.device));
    else
        VKT(vkWaitSemaphores(vkt.device, &info, VKT_WAIT_NS));
    waited = how < 2 ? submitted : number;
}

/* --- commands ------------------------------------------------------------------------------- */

static void record_copy(VkCommandBuffer command, const struct part *from, const struct part *to)
{
    struct range source = part_of(from, 4);
    VkDeviceSize at = (VkDeviceSize)pick((uint32_t)to->size / 4) * 4;
    struct range target = clipped((struct range){at, source.bytes}, to->size);
    uint32_t odd = target.bytes > 4 ? pick(3) : 0; /* bytes at both ends that stay */
    vkCmdCopyBuffer(command, from->buffer, to->buffer, 1,
                    &(VkBufferCopy){source.at + odd, at + odd, target.bytes - 2 * odd});
}

static void record_update(VkCommandBuffer command, const struct part *part)
{
    uint32_t words[64];
    struct range range = clipped((struct range){part_of(part, 4).at, sizeof(words)}, part->size);
    vkt_pattern(words, sizeof(words), pick(1000));
    vkCmdUpdateBuffer(command, part->buffer, range.at, range.bytes, words);
}

static void record_kernel(struct slot *slot, const struct part *from, const struct part *to)
{
    if (slot->set_count == SETS)
        return;
    VkDeviceSize alignment = vkt.props.limits.minStorageBufferOffsetAlignment;
    struct vkt_kernel own = kernel;
    own.set = slot->sets[slot->set_count++];
    struct range read = part_of(from, alignment), write = part_of(to, alignment);
    vkt_write_buffer(own.set, 0, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, from->buffer, read.at,
                     read.bytes);
    vkt_write_buffer(own.set, 1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, to->buffer, write.at,
                     pick(2) ? write.bytes : VK_WHOLE_SIZE);
    uint32_t factor = pick(100), groups = 1 + pick((uint32_t)write.bytes / 256);
    vkt_kernel_record(slot->command, &own, &factor, groups);
}

static void record_op(struct slot *slot)
{
    uint32_t from = pick(BUFFERS), to = (from + 1 + pick(BUFFERS - 1)) % BUFFERS;
    struct range range = part_of(&parts[to], 4);
    switch (pick(5)) {
    case 0:
    case 1:
        record_copy(slot->command, &parts[from], &parts[to]);
        break;
    case 2:
        vkCmdFillBuffer(slot->command, parts[to].buffer, range.at, range.bytes, pick(1 << 30));
        break;
    case 3:
        record_update(slot->command, &parts[to]);
        break;
    default:
        record_kernel(slot, &parts[from], &parts[to]);
    }
    vkt_barrier(slot->command);
    slot->used |= 1u << from | 1u << to;
}

static void record(struct slot *slot)
{
    wait_for(slot->number);
    slot->used = slot->set_count = 0;
    vkt_record(slot->command, 0);
    vkt_barrier(slot->command);
    for (uint32_t i = 1 + pick(OPS); i > 0; i--)
        record_op(slot);
    VKT(vkEndCommandBuffer(slot->command));
    slot->recorded = true;
}

/* --- steps ---------------------------------------------------------------------------------- */

static void write_part(const struct part *part)
{
    struct range range = part_of(part, 1);
    if (!part->map)
        return;
    switch (pick(3)) {
    case 0:
        memset(part->map, (int)pick(256), part->size);
        break;
    case 1:
        vkt_pattern(part->map + range.at, range.bytes, pick(1000));
        break;
    default:
        for (uint32_t i = 0; i < 20; i++)
            part->map[pick((uint32_t)part->size)] = (char)i;
    }
}

/* Waits for the host's value, unless it is 0. */
static void submit(struct slot *slot, uint64_t value)
{
    submitted++;
    VkTimelineSemaphoreSubmitInfo values = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .waitSemaphoreValueCount = 1,
        .pWaitSemaphoreValues = &value,
        .signalSemaphoreValueCount = 1,
        .pSignalSemaphoreValues = &submitted,
    };
    VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .pNext = &values,
        .waitSemaphoreCount = value ? 1 : 0,
        .pWaitSemaphores = &host,
        .pWaitDstStageMask = &(VkPipelineStageFlags){VK_PIPELINE_STAGE_ALL_COMMANDS_BIT},
        .commandBufferCount = 1,
        .pCommandBuffers = &slot->command,
        .signalSemaphoreCount = 1,
        .pSignalSemaphores = &done,
    };
    VKT(vkQueueSubmit(vkt.queue, 1, &info, VK_NULL_HANDLE));
    slot->number = submitted;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        if (slot->used & (1u << i))
            parts[i].number = submitted;
    }
}

/* What the host writes behind a submission that waits for it. */
static void submit_before_write(struct slot *slot)
{
    wait_for(submitted);
    submit(slot, ++signalled);
    for (uint32_t i = 0; i < 3; i++)
        write_part(&parts[pick(BUFFERS)]);
    VKT(vkSignalSemaphore(vkt.device, &(VkSemaphoreSignalInfo){
                                          .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO,
                                          .semaphore = host,
                                          .value = signalled,
                                      }));
}

static void step_slot(void)
{
    struct slot *slot = &slots[pick(SLOTS)];
    if (!slot->recorded || pick(2))
        record(slot);
    wait_for(slot->number);
    if (pick(4))
        submit(slot, 0);
    else
        submit_before_write(slot);
}

static void step_part(void)
{
    const struct part *part = &parts[pick(BUFFERS)];
    if (pick(2)) {
        wait_for(part->number);
        struct range range = part_of(part, 1);
        if (part->map)
            vkt_out("read", part->map + range.at, range.bytes);
    } else if (part->number <= waited) {
        write_part(part);
    }
}

/* What is recorded with the buffers is not valid any more. */
static void step_memory(void)
{
    const uint32_t m = pick(MEMORIES), bits = ((1u << PARTS) - 1) << m * PARTS;
    for (uint32_t i = m * PARTS; i < (m + 1) * PARTS; i++)
        wait_for(parts[i].number);
    for (uint32_t i = 0; i < SLOTS; i++)
        slots[i].recorded = slots[i].recorded && !(slots[i].used & bits);
    destroy(m, pick(2));
    make(m);
}

static void run(uint32_t seed)
{
    VKT_NEED(vkt.f12.timelineSemaphore);
    vkt_open();
    memset(parts, 0, sizeof parts);
    memset(slots, 0, sizeof slots);
    submitted = waited = signalled = 0;
    state = seed;
    kernel = vkt_kernel("mix.comp", "ss", 4);
    done = vkt_timeline(0);
    host = vkt_timeline(0);
    make_slots();
    for (uint32_t i = 0; i < BUFFERS; i++)
        parts[i].size = 4 * (VkDeviceSize)(1 + pick(pick(3) ? SMALL : LARGE));
    for (uint32_t i = 0; i < MEMORIES; i++)
        make(i);
    for (uint32_t i = 0; i < STEPS; i++) {
        if (pick(40) == 0)
            step_memory();
        else if (pick(3) == 0)
            step_slot();
        else
            step_part();
    }
    wait_for(submitted);
    for (uint32_t i = 0; i < BUFFERS; i++)
        vkt_out_buffer("part", &(struct vkt_buffer){.handle = parts[i].buffer,
                                                    .size = parts[i].size,
                                                    .map = parts[i].map});
    VKT(vkDeviceWaitIdle(vkt.device));
    for (uint32_t i = 0; i < MEMORIES; i++)
        destroy(i, true);
}

static void first(void)
{
    run(1);
}

static void second(void)
{
    run(2);
}

static void third(void)
{
    run(3);
}

static const struct vkt_case cases[] = {
    {"first", first, NULL},
    {"second", second, NULL},
    {"third", third, NULL},
};
VKT_MAIN(cases)
