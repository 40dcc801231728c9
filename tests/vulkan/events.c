/* events.c - differential programs: events, set by the host and by the device. */
#include "vkt.h"

enum { BYTES = 1024 };

static VkEvent event(VkEventCreateFlags flags)
{
    VkEventCreateInfo info = {.sType = VK_STRUCTURE_TYPE_EVENT_CREATE_INFO, .flags = flags};
    VkEvent made;
    VKT(vkCreateEvent(vkt.device, &info, NULL, &made));
    VKT_KEEP(EVENT, made);
    return made;
}

static void host_only(void)
{
    vkt_open();
    VkEvent one = event(0);
    vkt_out_result("new", vkGetEventStatus(vkt.device, one));
    VKT(vkSetEvent(vkt.device, one));
    vkt_out_result("set", vkGetEventStatus(vkt.device, one));
    VKT(vkResetEvent(vkt.device, one));
    vkt_out_result("reset", vkGetEventStatus(vkt.device, one));
}

static void device_sets(void)
{
    vkt_open();
    VkEvent one = event(0), two = event(0);
    VKT(vkSetEvent(vkt.device, two));
    VkCommandBuffer command = vkt_begin();
    vkCmdSetEvent(command, one, VK_PIPELINE_STAGE_TRANSFER_BIT);
    vkCmdResetEvent(command, two, VK_PIPELINE_STAGE_TRANSFER_BIT);
    vkt_finish(command);
    vkt_out_result("one", vkGetEventStatus(vkt.device, one));
    vkt_out_result("two", vkGetEventStatus(vkt.device, two));
}

static void device_waits(void)
{
    vkt_open();
    struct vkt_buffer a = vkt_buffer(BYTES, 0, VKT_COHERENT),
                      b = vkt_buffer(BYTES, 0, VKT_COHERENT);
    VkEvent done = event(0);
    VkMemoryBarrier written = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT,
    };
    const VkPipelineStageFlags transfer = VK_PIPELINE_STAGE_TRANSFER_BIT;
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, a.handle, 0, BYTES, 0x13579bdf);
    vkCmdSetEvent(command, done, transfer);
    vkCmdWaitEvents(command, 1, &done, transfer, transfer, 1, &written, 0, NULL, 0, NULL);
    vkt_copy(command, &a, &b);
    vkt_finish(command);
    vkt_out_buffer("b", &b);
}

static void device_waits2(void)
{
    vkt_open();
    struct vkt_buffer a = vkt_buffer(BYTES, 0, VKT_COHERENT),
                      b = vkt_buffer(BYTES, 0, VKT_COHERENT);
    VkEvent done = event(VK_EVENT_CREATE_DEVICE_ONLY_BIT);
    VkMemoryBarrier2 written = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
        .srcStageMask = VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT,
        .srcAccessMask = VK_ACCESS_2_TRANSFER_WRITE_BIT,
        .dstStageMask = VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT,
        .dstAccessMask = VK_ACCESS_2_TRANSFER_READ_BIT,
    };
    VkDependencyInfo dependency = {
        .sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
        .memoryBarrierCount = 1,
        .pMemoryBarriers = &written,
    };
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, a.handle, 0, BYTES, 0x2468ace0);
    vkCmdSetEvent2(command, done, &dependency);
    vkCmdWaitEvents2(command, 1, &done, &dependency);
    vkt_copy(command, &a, &b);
    vkCmdResetEvent2(command, done, VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT);
    vkt_finish(command);
    vkt_out_buffer("b", &b);
}

/* What the host wrote and set with nothing under way is there for work that is submitted then. */
static void host_sets_before(void)
{
    vkt_open();
    struct vkt_buffer a = vkt_buffer(BYTES, 0, VKT_COHERENT),
                      b = vkt_buffer(BYTES, 0, VKT_COHERENT);
    VkEvent go = event(0);
    VkMemoryBarrier written = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_HOST_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT,
    };
    for (uint32_t i = 0; i < 3; i++) {
        VkCommandBuffer command = vkt_begin();
        vkCmdWaitEvents(command, 1, &go, VK_PIPELINE_STAGE_HOST_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT,
                        1, &written, 0, NULL, 0, NULL);
        vkt_copy(command, &a, &b);
        vkt_barrier(command);
        vkt_pattern(a.map, BYTES, 30 + i);
        VKT(vkSetEvent(vkt.device, go));
        vkt_finish(command);
        vkt_out_buffer("b", &b);
        VKT(vkResetEvent(vkt.device, go));
    }
    vkt_out_result("at the end", vkGetEventStatus(vkt.device, go));
}

/* Work that was submitted waits; the host writes memory, sets the event, and the work sees both. */
static void host_sets_while_waiting(void)
{
    vkt_open();
    struct vkt_buffer a = vkt_buffer(BYTES, 0, VKT_COHERENT),
                      b = vkt_buffer(BYTES, 0, VKT_COHERENT);
    VkEvent go = event(0);
    VkMemoryBarrier written = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_HOST_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT,
    };
    VkCommandBuffer command = vkt_begin();
    vkCmdWaitEvents(command, 1, &go, VK_PIPELINE_STAGE_HOST_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 1,
                    &written, 0, NULL, 0, NULL);
    vkt_copy(command, &a, &b);
    vkt_barrier(command);
    VKT(vkEndCommandBuffer(command));
    VkFence fence = vkt_fence(false);
    vkt_submit(command, fence);
    vkt_out_result("waiting", vkGetFenceStatus(vkt.device, fence));
    vkt_pattern(a.map, BYTES, 21);
    VKT(vkSetEvent(vkt.device, go));
    vkt_wait(fence);
    vkt_out_buffer("b", &b);
}

/* The host watches the device's progress. */
static void host_polls(void)
{
    vkt_open();
    VkEvent reached = event(0);
    struct vkt_buffer a = vkt_buffer(BYTES, 0, VKT_COHERENT);
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, a.handle, 0, BYTES, 0x0f0f0f0f);
    vkt_barrier(command);
    vkCmdSetEvent(command, reached, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT);
    VKT(vkEndCommandBuffer(command));
    vkt_submit(command, VK_NULL_HANDLE);
    VkResult result;
    while ((result = vkGetEventStatus(vkt.device, reached)) == VK_EVENT_RESET)
        ;
    vkt_out_result("reached", result);
    VKT(vkQueueWaitIdle(vkt.queue));
    vkt_out_buffer("a", &a);
}

static const struct vkt_case cases[] = {
    {"host_only", host_only, NULL},
    {"device_sets", device_sets, NULL},
    {"device_waits", device_waits, NULL},
    {"device_waits2", device_waits2, NULL},
    {"host_sets_before", host_sets_before, NULL},
    {"host_sets_while_waiting", host_sets_while_waiting, NULL},
    {"host_polls", host_polls, NULL},
};

VKT_MAIN(cases)
