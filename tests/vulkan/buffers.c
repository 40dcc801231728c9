/* buffers.c - differential programs: copies, fills and updates of buffers. */
#include "vkt.h"

#include <string.h>

enum { BYTES = 4096 };

static void regions(void)
{
    vkt_open();
    struct vkt_buffer from = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct vkt_buffer to = vkt_buffer(BYTES, 0, VKT_COHERENT);
    vkt_pattern(from.map, BYTES, 1);
    /* Odd offsets and sizes: copies know no alignment. */
    const VkBufferCopy list[] = {{0, 1, 3}, {17, 101, 1}, {1000, 2047, 1025}, {4095, 4095, 1}};
    VkCommandBuffer command = vkt_begin();
    vkCmdCopyBuffer(command, from.handle, to.handle, VKT_COUNT(list), list);
    vkt_finish(command);
    VKT_EXPECT(!memcmp((char *)to.map + 2047, (char *)from.map + 1000, 1025));
    vkt_out_buffer("to", &to);
}

static void device_local(void)
{
    vkt_open();
    struct vkt_buffer from = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct vkt_buffer local = vkt_buffer(BYTES, 0, VKT_DEVICE);
    vkt_pattern(from.map, BYTES, 2);
    VkCommandBuffer command = vkt_begin();
    vkt_copy(command, &from, &local);
    vkt_finish(command);
    vkt_out_buffer("local", &local);
}

static void copy2(void)
{
    vkt_open();
    struct vkt_buffer from = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct vkt_buffer to = vkt_buffer(BYTES, 0, VKT_COHERENT);
    vkt_pattern(from.map, BYTES, 3);
    const VkBufferCopy2 list[] = {
        {VK_STRUCTURE_TYPE_BUFFER_COPY_2, NULL, 5, 0, 100},
        {VK_STRUCTURE_TYPE_BUFFER_COPY_2, NULL, 0, 200, 11},
    };
    VkCopyBufferInfo2 info = {
        .sType = VK_STRUCTURE_TYPE_COPY_BUFFER_INFO_2,
        .srcBuffer = from.handle,
        .dstBuffer = to.handle,
        .regionCount = VKT_COUNT(list),
        .pRegions = list,
    };
    VkCommandBuffer command = vkt_begin();
    vkCmdCopyBuffer2(command, &info);
    vkt_finish(command);
    vkt_out_buffer("to", &to);
}

static void fill(void)
{
    vkt_open();
    struct vkt_buffer buffer = vkt_buffer(BYTES, 0, VKT_COHERENT);
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, buffer.handle, 16, 64, 0x01234567);
    vkt_barrier(command);
    vkCmdFillBuffer(command, buffer.handle, 2048, VK_WHOLE_SIZE, 0xfedcba98);
    vkt_finish(command);
    vkt_out_buffer("filled", &buffer);
}

static void update(void)
{
    vkt_open();
    enum { UPDATE_MAX = 65536 };
    static unsigned char bytes[UPDATE_MAX];
    struct vkt_buffer buffer = vkt_buffer(2 * UPDATE_MAX, 0, VKT_COHERENT);
    VkCommandBuffer command = vkt_begin();
    vkt_pattern(bytes, sizeof(bytes), 4);
    vkCmdUpdateBuffer(command, buffer.handle, 4, sizeof(bytes), bytes);
    memset(bytes, 0xee, sizeof(bytes)); /* the command keeps its own copy */
    vkt_barrier(command);
    vkCmdUpdateBuffer(command, buffer.handle, 100000, 8, bytes);
    vkt_finish(command);
    vkt_out_buffer("updated", &buffer);
}

static void ignored_pointers(void)
{
    vkt_open();
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = 1001,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
        .sharingMode = VK_SHARING_MODE_EXCLUSIVE,
        .queueFamilyIndexCount = 7, /* not read: the buffer is not shared */
        .pQueueFamilyIndices = (const uint32_t *)(uintptr_t)16,
    };
    VkBuffer buffer;
    VKT(vkCreateBuffer(vkt.device, &info, NULL, &buffer));
    VKT_KEEP(BUFFER, buffer);
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(vkt.device, buffer, &needs);
    vkt_out_u64("size", needs.size);
    vkt_out_u64("alignment", needs.alignment);
}

static void barriers2(void)
{
    vkt_open();
    struct vkt_buffer a = vkt_buffer(BYTES, 0, VKT_COHERENT);
    struct vkt_buffer b = vkt_buffer(BYTES, 0, VKT_COHERENT);
    VkBufferMemoryBarrier2 written = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER_2,
        .srcStageMask = VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT,
        .srcAccessMask = VK_ACCESS_2_TRANSFER_WRITE_BIT,
        .dstStageMask = VK_PIPELINE_STAGE_2_COPY_BIT,
        .dstAccessMask = VK_ACCESS_2_TRANSFER_READ_BIT,
        .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .buffer = a.handle,
        .size = VK_WHOLE_SIZE,
    };
    VkDependencyInfo dependency = {
        .sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
        .bufferMemoryBarrierCount = 1,
        .pBufferMemoryBarriers = &written,
    };
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, a.handle, 0, VK_WHOLE_SIZE, 0x5a5a0001);
    vkCmdPipelineBarrier2(command, &dependency);
    vkt_copy(command, &a, &b);
    vkt_finish(command);
    vkt_out_buffer("copied", &b);
}

static void overlaid(void)
{
    vkt_open();
    /* Two buffers over one range of memory, and a third behind them. */
    VkBuffer one = vkt_buffer_only(1024, 0), two = vkt_buffer_only(1024, 0),
             third = vkt_buffer_only(1024, 0);
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(vkt.device, one, &needs);
    VkDeviceSize behind = (1024 + needs.alignment - 1) / needs.alignment * needs.alignment;
    needs.size = behind + needs.size;
    VkDeviceMemory memory = vkt_allocate(needs, VKT_COHERENT, NULL);
    VKT(vkBindBufferMemory(vkt.device, one, memory, 0));
    VKT(vkBindBufferMemory(vkt.device, two, memory, 0));
    VKT(vkBindBufferMemory(vkt.device, third, memory, behind));
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, one, 0, 1024, 0x11223344);
    vkt_barrier(command);
    vkCmdFillBuffer(command, two, 512, 256, 0x55667788);
    vkt_barrier(command);
    vkCmdCopyBuffer(command, one, third, 1, &(VkBufferCopy){256, 0, 768});
    vkCmdFillBuffer(command, third, 768, 256, 0);
    vkt_finish(command);
    void *map;
    VKT(vkMapMemory(vkt.device, memory, 0, VK_WHOLE_SIZE, 0, &map));
    vkt_out("two", map, 1024);
    vkt_out("third", (char *)map + behind, 1024);
}

static const struct vkt_case cases[] = {
    {"regions", regions, NULL},     {"device_local", device_local, NULL},
    {"copy2", copy2, NULL},         {"fill", fill, NULL},
    {"update", update, NULL},       {"ignored_pointers", ignored_pointers, NULL},
    {"barriers2", barriers2, NULL}, {"overlaid", overlaid, NULL},
};

VKT_MAIN(cases)
