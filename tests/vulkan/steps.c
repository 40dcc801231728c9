/* steps.c - differential programs: a GPU that is fed in steps.
 *
 * Each step writes inputs that earlier work has read, waits only for that work, and submits work
 * that reads them and writes where the host cannot see it: so fences and timelines are early
 * (docs/design/fences.md), and inputs arrive while steps are under way.  A seed gives the steps.
 * What the steps leave behind depends on every word of every input, and on their order. */
#include "vkt.h"

#include <string.h>

enum {
    INPUTS = 3,
    PARTS = 7, /* of an input; they share pages */
    SLOTS = 5, /* what is recorded together */
    COMMANDS = 3,
    READS = 3, /* of a command buffer */
    STEPS = 250,
    STATE_BYTES = 1 << 16,
    SMALL = 1000, /* travels in place of its copy */
};

struct part {
    VkDeviceSize at, bytes;
    uint32_t number; /* of the last step that reads it */
};

struct input {
    struct vkt_buffer buffer;
    struct part parts[PARTS];
};

struct slot {
    VkCommandBuffer commands[COMMANDS];
    VkDescriptorSet sets[COMMANDS * READS];
    uint32_t count, set_count;
    uint32_t used; /* bits of parts */
    uint32_t number;
    VkFence fence;
};

/* A step that was submitted. */
struct step {
    uint32_t queue, slot;
    bool fence, timeline;
};

static const enum vkt_memory kinds[INPUTS] = {VKT_COHERENT, VKT_CACHED, VKT_COHERENT};
static const VkDeviceSize sizes[INPUTS] = {20000, 9000, 600000};
static struct input inputs[INPUTS];
static struct slot slots[SLOTS];
static struct step steps[STEPS + 1]; /* the first is number 1 */
static struct vkt_buffer sums;       /* of the device */
static struct vkt_kernel kernel;
static VkQueue queues[2];
static VkSemaphore timeline, turns_to[2]; /* binary, of the queue that waits: one waits at a time */
static uint32_t queue_count, queue;       /* of the next step */
static uint32_t submitted, waited;
static bool skipping; /* waits are for less than what is signalled */
static uint32_t state;

static uint32_t pick(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)state * below) >> 32);
}

/* --- what there is -------------------------------------------------------------------------- */

static void make_input(struct input *input, uint32_t i)
{
    VkDeviceSize alignment = vkt.props.limits.minStorageBufferOffsetAlignment, at = 0;
    input->buffer = vkt_buffer(sizes[i], VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, kinds[i]);
    for (uint32_t p = 0; p < PARTS; p++) {
        VkDeviceSize end = sizes[i] * (p + 1) / PARTS;
        end = p == PARTS - 1 ? sizes[i] : (end - pick(500)) / alignment * alignment;
        input->parts[p] = (struct part){at, end - at, 0};
        at = end;
    }
}

static void make_slot(struct slot *slot)
{
    VkCommandPool pool =
        vkt_command_pool(vkt.family, VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT);
    *slot = (struct slot){.fence = vkt_fence(false)};
    for (uint32_t i = 0; i < COMMANDS; i++)
        slot->commands[i] = vkt_command(pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    for (uint32_t i = 0; i < COMMANDS * READS; i++)
        slot->sets[i] = vkt_set(kernel.set_layout, "ss");
}

static void make(uint32_t seed)
{
    VKT_NEED(vkt.f12.timelineSemaphore);
    vkt_open();
    state = seed;
    submitted = waited = queue_count = queue = 0;
    for (uint32_t i = 0; i < vkt.queue_count && queue_count < VKT_COUNT(queues); i++) {
        if (vkt.queues[i].family == vkt.family)
            queues[queue_count++] = vkt.queues[i].handle;
    }
    kernel = vkt_kernel("gather.comp", "ss", 4);
    timeline = vkt_timeline(0);
    for (uint32_t i = 0; i < VKT_COUNT(turns_to); i++)
        turns_to[i] = vkt_semaphore();
    sums = vkt_buffer(STATE_BYTES, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, VKT_DEVICE);
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, sums.handle, 0, VK_WHOLE_SIZE, 0);
    vkt_finish(command);
    for (uint32_t i = 0; i < INPUTS; i++)
        make_input(&inputs[i], i);
    for (uint32_t i = 0; i < SLOTS; i++)
        make_slot(&slots[i]);
}

/* --- waiting -------------------------------------------------------------------------------- */

/* By the first step from this one on that tells; false where none does. */
static bool wait_for_step(uint32_t number)
{
    for (; number <= submitted; number++) {
        const struct step *step = &steps[number];
        const struct slot *slot = &slots[step->slot];
        if (step->fence && slot->number == number) {
            vkt_wait(slot->fence);
            break;
        }
        if (step->timeline) {
            VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                        .semaphoreCount = 1,
                                        .pSemaphores = &timeline,
                                        .pValues =
                                            &(uint64_t){2 * number - (skipping ? pick(2) : 0)}};
            VKT(vkWaitSemaphores(vkt.device, &info, VKT_WAIT_NS));
            break;
        }
    }
    waited = number <= submitted ? number : waited;
    return number <= submitted;
}

/* Who has waited for a step has waited for all before it: queues take turns by semaphores. */
static void wait_for(uint32_t number)
{
    if (number <= waited || (pick(4) && wait_for_step(number)))
        return;
    if (pick(2)) {
        VKT(vkDeviceWaitIdle(vkt.device));
        waited = submitted;
    } else {
        VKT(vkQueueWaitIdle(queues[steps[number].queue]));
        waited = number;
    }
}

/* --- steps ---------------------------------------------------------------------------------- */

static void record_copy(VkCommandBuffer command, const struct input *from, const struct part *part,
                        VkDeviceSize most)
{
    VkDeviceSize bytes = part->bytes < most ? part->bytes : most;
    VkDeviceSize at = pick((uint32_t)(part->bytes - bytes) + 1);
    vkCmdCopyBuffer(command, from->buffer.handle, sums.handle, 1,
                    &(VkBufferCopy){part->at + at, pick(STATE_BYTES - (uint32_t)bytes), bytes});
}

static void record_read(struct slot *slot, VkCommandBuffer command, uint32_t how)
{
    uint32_t i = pick(INPUTS), p = pick(PARTS), add = pick(100);
    const struct part *part = &inputs[i].parts[p];
    slot->used |= 1u << (i * PARTS + p);
    if (how < 2) {
        record_copy(command, &inputs[i], part, how ? SMALL : STATE_BYTES / 2);
        return;
    }
    struct vkt_kernel own = kernel;
    own.set = slot->sets[slot->set_count++];
    vkt_write_buffer(own.set, 0, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, inputs[i].buffer.handle,
                     part->at, part->bytes);
    vkt_write_buffer(own.set, 1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, sums.handle, 0, VK_WHOLE_SIZE);
    vkt_kernel_record(command, &own, &add, 1 + (uint32_t)part->bytes / 256);
}

/* Small copies alone, or a few reads. */
static void record(struct slot *slot)
{
    slot->used = slot->set_count = 0;
    slot->count = 1 + pick(COMMANDS);
    for (uint32_t i = 0; i < slot->count; i++) {
        bool small = pick(4) == 0;
        vkt_record(slot->commands[i], 0);
        vkt_barrier(slot->commands[i]);
        for (uint32_t j = 1 + pick(READS); j > 0; j--) {
            record_read(slot, slot->commands[i], small ? 1 : pick(4));
            vkt_barrier(slot->commands[i]);
        }
        VKT(vkEndCommandBuffer(slot->commands[i]));
    }
}

static void write_part(const struct input *input, const struct part *part)
{
    char *bytes = (char *)input->buffer.map + part->at;
    uint32_t how = pick(4), at = pick((uint32_t)part->bytes), left = (uint32_t)part->bytes - at;
    if (how == 0)
        vkt_pattern(bytes, part->bytes, pick(1000));
    else if (how == 1)
        memset(bytes + at, (int)pick(256), 1 + pick(left));
    else
        bytes[at] = (char)pick(256);
    vkt_flush(&input->buffer);
}

static void write_inputs(const struct slot *slot)
{
    for (uint32_t i = 0; i < INPUTS * PARTS; i++) {
        const struct part *part = &inputs[i / PARTS].parts[i % PARTS];
        if ((slot->used & 1u << i) && pick(4)) {
            wait_for(part->number);
            write_part(&inputs[i / PARTS], part);
        }
    }
}

/* Behind the step before, by a semaphore where that was on another queue. */
static void submit(struct slot *slot)
{
    uint32_t number = ++submitted, next = pick(queue_count);
    struct step *step = &steps[number], *before = &steps[number - 1];
    *step = (struct step){queue, (uint32_t)(slot - slots), pick(2), pick(3) == 0};
    bool turned = number > 1 && before->queue != queue, turns = next != queue;
    bool by_binary = turned && !before->timeline;
    uint64_t awaited = 2 * (uint64_t)number - 2 - (by_binary || !skipping ? 0 : pick(2));
    uint64_t brings = 2 * (uint64_t)number;
    VkTimelineSemaphoreSubmitInfo numbers = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .waitSemaphoreValueCount = turned,
        .pWaitSemaphoreValues = &awaited,
        .signalSemaphoreValueCount = step->timeline || turns,
        .pSignalSemaphoreValues = &brings,
    };
    VkSubmitInfo infos[COMMANDS];
    uint32_t count = pick(2) ? slot->count : 1;
    for (uint32_t i = 0; i < count; i++)
        infos[i] = (VkSubmitInfo){.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                  .commandBufferCount = count == 1 ? slot->count : 1,
                                  .pCommandBuffers = &slot->commands[i]};
    infos[0].pNext = &numbers;
    infos[0].waitSemaphoreCount = turned;
    infos[0].pWaitSemaphores = by_binary ? &turns_to[queue] : &timeline;
    infos[0].pWaitDstStageMask = &(VkPipelineStageFlags){VK_PIPELINE_STAGE_ALL_COMMANDS_BIT};
    infos[count - 1].pNext = &numbers;
    infos[count - 1].signalSemaphoreCount = step->timeline || turns;
    infos[count - 1].pSignalSemaphores = step->timeline ? &timeline : &turns_to[next];
    VKT(vkQueueSubmit(queues[queue], count, infos, step->fence ? slot->fence : VK_NULL_HANDLE));
    queue = next;
}

static void run_step(void)
{
    struct slot *slot = &slots[pick(SLOTS)];
    wait_for(slot->number);
    if (slot->number && steps[slot->number].fence) {
        vkt_wait(slot->fence); /* also where a timeline has told */
        VKT(vkResetFences(vkt.device, 1, &slot->fence));
    }
    if (!slot->count || pick(2))
        record(slot);
    write_inputs(slot);
    submit(slot);
    slot->number = submitted;
    for (uint32_t i = 0; i < INPUTS * PARTS; i++) {
        if (slot->used & 1u << i)
            inputs[i / PARTS].parts[i % PARTS].number = submitted;
    }
}

static void run(uint32_t seed)
{
    make(seed);
    for (uint32_t i = 1; i <= STEPS; i++) {
        run_step();
        if (i % 50)
            continue;
        wait_for(submitted);
        VKT(vkDeviceWaitIdle(vkt.device));
        vkt_out_buffer("sums", &sums);
    }
}

static void first(void)
{
    run(1);
}

static void second(void)
{
    run(2);
}

static void skipped_values(void)
{
    skipping = true;
    run(3);
    skipping = false;
}

static const struct vkt_case cases[] = {
    {"first", first, NULL},
    {"second", second, NULL},
    {"skipped_values", skipped_values, "Debian 12's layer waits 10 s for such a value"},
};
VKT_MAIN(cases)
