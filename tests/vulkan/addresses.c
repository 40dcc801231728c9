/* addresses.c - differential programs: device addresses, and sparse memory. */
#include "vkt_image.h"

#include <stdlib.h>
#include <string.h>

static VkDeviceAddress address_of(const struct vkt_buffer *buffer)
{
    VkBufferDeviceAddressInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
        .buffer = buffer->handle,
    };
    VkDeviceAddress address = vkGetBufferDeviceAddress(vkt.device, &info);
    VKT_EXPECT(address != 0);
    return address;
}

struct node {
    VkDeviceAddress next;
    uint32_t value, padding;
};

struct push {
    VkDeviceAddress first, target;
    uint32_t count, padding;
};

enum { NODES = 16 };

/* A ring of nodes, each in a buffer of its own kind, is followed from `first`. */
static void follow(enum vkt_memory kind)
{
    VKT_NEED(vkt.f12.bufferDeviceAddress);
    vkt_open();
    const VkBufferUsageFlags usage =
        VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    struct vkt_buffer nodes[NODES], target = vkt_buffer(1024, usage, kind);
    for (int i = 0; i < NODES; i++)
        nodes[i] = vkt_buffer(1024, usage, kind);
    uint64_t exchanges = vkt_exchanges();
    VkDeviceAddress first = address_of(&nodes[2]), last = address_of(&target) + 16;
    VKT_EXPECT(vkt_exchanges() == exchanges); /* they came with the memory */
    VkCommandBuffer command = vkt_begin();
    for (uint32_t i = 0; i < NODES; i++) {
        struct node node = {.next = address_of(&nodes[(i * 5 + 3) % NODES]), .value = i * i + 1};
        vkCmdUpdateBuffer(command, nodes[i].handle, 0, sizeof(node), &node);
    }
    vkCmdFillBuffer(command, target.handle, 0, VK_WHOLE_SIZE, 0);
    vkt_barrier(command);
    struct vkt_kernel kernel = vkt_kernel("address.comp", "", sizeof(struct push));
    struct push push = {first, last, NODES * 2, 0};
    vkt_kernel_record(command, &kernel, &push, 1);
    vkt_finish(command);
    vkt_out_buffer("target", &target);
}

static void device_memory(void)
{
    follow(VKT_DEVICE);
}

static void mapped_memory(void)
{
    follow(VKT_COHERENT);
}

/* A large pool that work writes by address in a few places: the host writes other bytes of the same
 * page meanwhile, and reads; a copy reads it, small and large; a copy writes a part of it. */
static void large_pool(void)
{
    enum { BYTES = 12 << 20, ROUNDS = 3, WRITTEN = 40, MINE = WRITTEN * 4 + 8, BACK = 3 << 20 };
    VKT_NEED(vkt.f12.bufferDeviceAddress);
    vkt_open();
    const VkBufferUsageFlags usage =
        VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    struct vkt_buffer pool = vkt_buffer(BYTES, usage, VKT_COHERENT);
    struct vkt_buffer copy = vkt_buffer(BYTES, 0, VKT_DEVICE),
                      node = vkt_buffer(256, usage, VKT_COHERENT);
    struct vkt_kernel kernel = vkt_kernel("address.comp", "", sizeof(struct push));
    unsigned char *bytes = pool.map;
    *(struct node *)node.map = (struct node){.next = address_of(&node), .value = 0x01020304};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        VkDeviceSize at = (5 + 3 * round) * 4096 * 100 + 1024;
        for (uint32_t i = 0; i < 2 && round < 2; i++) { /* so often that nobody expects less */
            vkt_pattern(bytes, BYTES, 30 + 2 * round + i);
            VkCommandBuffer command = vkt_begin();
            vkt_copy(command, &pool, &copy);
            vkt_finish(command);
        }
        VkCommandBuffer command = vkt_begin();
        struct push push = {address_of(&node), address_of(&pool) + at, WRITTEN, 0};
        vkt_kernel_record(command, &kernel, &push, 1);
        VKT(vkEndCommandBuffer(command));
        VkFence fence = vkt_fence(false);
        vkt_submit(command, fence);
        memset(bytes + at + MINE, 0x5a, 99);
        memset(bytes + 2 * at, 0x5b, 9999);
        vkt_wait(fence);
        vkt_out("written", bytes + at, 4096);
        command = vkt_begin();
        vkCmdCopyBuffer(command, pool.handle, copy.handle, 1,
                        &(VkBufferCopy){at - 512, 256, 2048}); /* no page of it is looked at */
        vkCmdCopyBuffer(command, pool.handle, copy.handle, 1, &(VkBufferCopy){0, 8192, BACK});
        vkt_barrier(command);
        vkCmdCopyBuffer(command, copy.handle, pool.handle, 1,
                        &(VkBufferCopy){256, BYTES - BACK - 1000, BACK});
        vkt_finish(command);
        vkt_out("back", bytes + BYTES - BACK - 1000, BACK);
        vkt_out("all", bytes, BYTES);
        vkt_out_buffer("copy", &copy);
    }
}

/* Work writes by address, round after round, into places of a large pool that the host reads and
 * writes: other bytes of the same pages, while the work is under way, and whole pages between. */
static void same_places(void)
{
    enum { BYTES = 9 << 20, ROUNDS = 12, PLACES = 3, WRITTEN = 40, MINE = 4 * WRITTEN + 8 };
    const size_t places[PLACES] = {100, 2 * 4096 - 4 * 7, 5 << 20}; /* the second in two pages */
    VKT_NEED(vkt.f12.bufferDeviceAddress);
    vkt_open();
    const VkBufferUsageFlags usage =
        VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    struct vkt_buffer pool = vkt_buffer(BYTES, usage, VKT_COHERENT);
    struct vkt_buffer node = vkt_buffer(256, usage, VKT_COHERENT),
                      copy = vkt_buffer(BYTES, 0, VKT_DEVICE);
    struct vkt_kernel kernel = vkt_kernel("address.comp", "", sizeof(struct push));
    unsigned char *bytes = pool.map;
    VkFence fence = vkt_fence(false);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        size_t at = places[round % 5 % PLACES];
        *(struct node *)node.map = (struct node){address_of(&node), 0x01010101 * (round + 1)};
        struct push push = {address_of(&node), address_of(&pool) + at / 4 * 4, WRITTEN, 0};
        VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
        vkt_record(command, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
        vkt_kernel_record(command, &kernel, &push, 1);
        VKT(vkEndCommandBuffer(command));
        vkt_submit(command, fence);
        memset(bytes + at + MINE, (int)(round + 0x60), 77);
        vkt_wait(fence);
        VKT(vkResetFences(vkt.device, 1, &fence));
        for (uint32_t i = 0; i < PLACES && round % 4 != 3; i++)
            vkt_out("place", bytes + places[i], 3000);
        if (round % 4 == 1)
            vkt_pattern(bytes, 96 << 10, round);
        if (round % 6 == 4) {
            command = vkt_begin();
            vkt_copy(command, &pool, &copy);
            vkt_finish(command);
            vkt_out_buffer("copy", &copy);
        }
    }
    vkt_out("all", bytes, BYTES);
}

/* What is read by address is rewritten as soon as the wait is over, also where nothing that the
 * host can see was written. */
static void read_only(void)
{
    enum { WORDS = 4096, BYTES = 4 * WORDS, ROUNDS = 4 };
    VKT_NEED(vkt.f12.bufferDeviceAddress);
    vkt_open();
    struct vkt_buffer from =
        vkt_buffer(BYTES, VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT, VKT_COHERENT);
    struct vkt_buffer seen = vkt_storage(BYTES, NULL);
    struct vkt_buffer unseen = vkt_buffer(BYTES, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, VKT_DEVICE);
    struct vkt_kernel to_seen = vkt_kernel("peek.comp", "s", sizeof(VkDeviceAddress));
    struct vkt_kernel to_unseen = vkt_kernel("peek.comp", "s", sizeof(VkDeviceAddress));
    VkDeviceAddress address = address_of(&from);
    vkt_kernel_bind(&to_seen, 0, &seen);
    vkt_kernel_bind(&to_unseen, 0, &unseen);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        vkt_pattern(from.map, BYTES, 2 * i);
        vkt_kernel_run(&to_unseen, &address, WORDS / 64);
        vkt_pattern(from.map, BYTES, 2 * i + 1);
        vkt_kernel_run(&to_seen, &address, WORDS / 64);
        vkt_out_buffer("seen", &seen);
        vkt_out_buffer("unseen", &unseen);
    }
}

static void addresses_stay(void)
{
    VKT_NEED(vkt.f12.bufferDeviceAddress);
    vkt_open();
    const VkBufferUsageFlags usage = VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    struct vkt_buffer one = vkt_buffer(4096, usage, VKT_DEVICE);
    struct vkt_buffer two = vkt_buffer(4096, usage, VKT_DEVICE);
    VkDeviceAddress first = address_of(&one), second = address_of(&two);
    VKT_EXPECT(first == address_of(&one));
    VKT_EXPECT(first + 4096 <= second || second + 4096 <= first);
    vkt_out_u64("equal", first == second);
}

/* --- sparse memory ---------------------------------------------------------------------------- */

static VkQueue sparse_queue(void)
{
    VkQueueFamilyProperties families[32];
    uint32_t count = 32;
    vkGetPhysicalDeviceQueueFamilyProperties(vkt.physical, &count, families);
    for (uint32_t i = 0; i < vkt.queue_count; i++)
        if (families[vkt.queues[i].family].queueFlags & VK_QUEUE_SPARSE_BINDING_BIT)
            return vkt.queues[i].handle;
    vkt_skip("no queue for sparse binding");
}

static VkBuffer sparse_buffer(VkBufferCreateFlags flags, VkDeviceSize size)
{
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .flags = flags,
        .size = size,
        .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
    };
    VkBuffer buffer;
    VKT(vkCreateBuffer(vkt.device, &info, NULL, &buffer));
    VKT_KEEP(BUFFER, buffer);
    return buffer;
}

static void bind_and_wait(VkQueue queue, VkBuffer buffer, const VkSparseMemoryBind *binds,
                          uint32_t count)
{
    VkSparseBufferMemoryBindInfo list = {buffer, count, binds};
    VkBindSparseInfo info = {
        .sType = VK_STRUCTURE_TYPE_BIND_SPARSE_INFO,
        .bufferBindCount = 1,
        .pBufferBinds = &list,
    };
    VkFence fence = vkt_fence(false);
    VKT(vkQueueBindSparse(queue, 1, &info, fence));
    vkt_wait(fence);
}

enum { SPARSE_BYTES = 1 << 19, SPARSE_BLOCKS_MAX = 64 };

/* Two memories behind one buffer, in exchanged order. */
static void sparse_binding(void)
{
    VKT_NEED(vkt.f10.sparseBinding);
    vkt_open();
    VkQueue queue = sparse_queue();
    VkBuffer buffer = sparse_buffer(VK_BUFFER_CREATE_SPARSE_BINDING_BIT, SPARSE_BYTES);
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(vkt.device, buffer, &needs);
    VkDeviceSize half = needs.size / 2 / needs.alignment * needs.alignment;
    VkDeviceSize rest = needs.size - half;
    VkMemoryRequirements part = {rest, needs.alignment, needs.memoryTypeBits};
    VkDeviceMemory one = vkt_allocate(part, VKT_DEVICE, NULL);
    VkDeviceMemory two = vkt_allocate(part, VKT_DEVICE, NULL);
    const VkSparseMemoryBind binds[] = {{0, half, two, 0, 0}, {half, rest, one, 0, 0}};
    bind_and_wait(queue, buffer, binds, 2);
    struct vkt_buffer whole = {.handle = buffer, .size = SPARSE_BYTES};
    struct vkt_buffer source = vkt_buffer(SPARSE_BYTES, 0, VKT_COHERENT);
    vkt_pattern(source.map, SPARSE_BYTES, 12);
    VkCommandBuffer command = vkt_begin();
    vkt_copy(command, &source, &whole);
    vkt_finish(command);
    vkt_out_buffer("whole", &whole);
}

/* The memory behind the buffer is mapped: the host writes it, a copy reads it through the buffer, a
 * fill writes it so, and the host reads. */
static void sparse_mapped(void)
{
    VKT_NEED(vkt.f10.sparseBinding);
    vkt_open();
    VkQueue queue = sparse_queue();
    VkBuffer buffer = sparse_buffer(VK_BUFFER_CREATE_SPARSE_BINDING_BIT, SPARSE_BYTES);
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(vkt.device, buffer, &needs);
    VkDeviceMemory memory = vkt_allocate(needs, VKT_COHERENT, NULL);
    bind_and_wait(queue, buffer, &(VkSparseMemoryBind){0, needs.size, memory, 0, 0}, 1);
    void *map;
    VKT(vkMapMemory(vkt.device, memory, 0, VK_WHOLE_SIZE, 0, &map));
    struct vkt_buffer sparse = {.handle = buffer, .size = SPARSE_BYTES};
    struct vkt_buffer found = vkt_buffer(SPARSE_BYTES, 0, VKT_COHERENT);
    for (uint32_t round = 0; round < 2; round++) {
        vkt_pattern(map, SPARSE_BYTES, 20 + round);
        VkCommandBuffer command = vkt_begin();
        vkt_copy(command, &sparse, &found);
        vkt_finish(command);
        vkt_out_buffer("copied", &found);
    }
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, buffer, 4096, 4096, 0x600df00d);
    vkt_finish(command);
    vkt_out("filled", map, SPARSE_BYTES);
}

/* Only the middle is there; then it is moved. */
static void sparse_residency(void)
{
    VKT_NEED(vkt.f10.sparseResidencyBuffer);
    vkt_open();
    VkQueue queue = sparse_queue();
    VkBuffer buffer = sparse_buffer(
        VK_BUFFER_CREATE_SPARSE_BINDING_BIT | VK_BUFFER_CREATE_SPARSE_RESIDENCY_BIT, SPARSE_BYTES);
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(vkt.device, buffer, &needs);
    VkDeviceSize block = needs.alignment;
    VkMemoryRequirements part = {block, block, needs.memoryTypeBits};
    VkDeviceMemory memory = vkt_allocate(part, VKT_DEVICE, NULL);
    bind_and_wait(queue, buffer, &(VkSparseMemoryBind){block, block, memory, 0, 0}, 1);
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, buffer, block, block, 0x600df00d);
    vkt_finish(command);
    const VkSparseMemoryBind moved[] = {{block, block, VK_NULL_HANDLE, 0, 0},
                                        {2 * block, block, memory, 0, 0}};
    bind_and_wait(queue, buffer, moved, 2);
    struct vkt_buffer found = vkt_buffer(block, 0, VKT_COHERENT);
    command = vkt_begin();
    vkCmdCopyBuffer(command, buffer, found.handle, 1, &(VkBufferCopy){2 * block, 0, block});
    vkt_finish(command);
    vkt_out_u64("block", block);
    vkt_out_buffer("moved", &found);
}

/* A sparse image whose blocks are bound one by one, in reverse. */
static void sparse_image(void)
{
    VKT_NEED(vkt.f10.sparseResidencyImage2D);
    vkt_open();
    VkQueue queue = sparse_queue();
    struct vkt_image image = {
        .aspect = VK_IMAGE_ASPECT_COLOR_BIT,
        .info = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                 .flags = VK_IMAGE_CREATE_SPARSE_BINDING_BIT | VK_IMAGE_CREATE_SPARSE_RESIDENCY_BIT,
                 .imageType = VK_IMAGE_TYPE_2D,
                 .format = VK_FORMAT_R8G8B8A8_UNORM,
                 .extent = {256, 256, 1},
                 .mipLevels = 1,
                 .arrayLayers = 1,
                 .samples = VK_SAMPLE_COUNT_1_BIT,
                 .usage = VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT},
    };
    VKT(vkCreateImage(vkt.device, &image.info, NULL, &image.handle));
    VKT_KEEP(IMAGE, image.handle);
    VkMemoryRequirements needs;
    vkGetImageMemoryRequirements(vkt.device, image.handle, &needs);
    VkSparseImageMemoryRequirements about[4];
    uint32_t count = 4;
    vkGetImageSparseMemoryRequirements(vkt.device, image.handle, &count, about);
    VKT_EXPECT(count == 1);  /* colour only */
    uint32_t many = 2 << 20; /* room for more than an answer holds */
    VkSparseImageMemoryRequirements *room = calloc(many, sizeof(*room));
    VKT_EXPECT(room != NULL);
    vkGetImageSparseMemoryRequirements(vkt.device, image.handle, &many, room);
    VKT_EXPECT(many == 1 && !memcmp(room, about, sizeof(*room)));
    free(room);
    VkExtent3D block = about[0].formatProperties.imageGranularity;
    if (256 % block.width || 256 % block.height || about[0].imageMipTailFirstLod == 0)
        vkt_skip("no whole blocks in the image");
    vkt_out("block", &block, sizeof(block));
    uint32_t columns = 256 / block.width, blocks = columns * (256 / block.height);
    VKT_EXPECT(blocks <= SPARSE_BLOCKS_MAX);
    VkDeviceMemory memory = vkt_allocate(needs, VKT_DEVICE, NULL);
    VkSparseImageMemoryBind binds[SPARSE_BLOCKS_MAX];
    for (uint32_t i = 0; i < blocks; i++)
        binds[i] = (VkSparseImageMemoryBind){
            .subresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0},
            .offset = {(int32_t)(i % columns * block.width), (int32_t)(i / columns * block.height),
                       0},
            .extent = block,
            .memory = memory,
            .memoryOffset = (blocks - 1 - i) * needs.alignment,
        };
    VkSparseImageMemoryBindInfo list = {image.handle, blocks, binds};
    VkBindSparseInfo info = {
        .sType = VK_STRUCTURE_TYPE_BIND_SPARSE_INFO,
        .imageBindCount = 1,
        .pImageBinds = &list,
    };
    VkFence fence = vkt_fence(false);
    VKT(vkQueueBindSparse(queue, 1, &info, fence));
    vkt_wait(fence);
    vkt_image_fill(&image, 23, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL);
    vkt_out_image("image", &image, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL);
}

static void sparse_image_formats(void)
{
    VKT_NEED(vkt.f10.sparseResidencyImage2D);
    VkSparseImageFormatProperties list[8];
    uint32_t count = 8;
    vkGetPhysicalDeviceSparseImageFormatProperties(
        vkt.physical, VK_FORMAT_R8G8B8A8_UNORM, VK_IMAGE_TYPE_2D, VK_SAMPLE_COUNT_1_BIT,
        VK_IMAGE_USAGE_SAMPLED_BIT, VK_IMAGE_TILING_OPTIMAL, &count, list);
    vkt_out_u64("count", count);
    for (uint32_t i = 0; i < count; i++)
        vkt_out("granularity", &list[i].imageGranularity, sizeof(list[i].imageGranularity));
}

static const struct vkt_case cases[] = {
    {"device_memory", device_memory, NULL},
    {"mapped_memory", mapped_memory, NULL},
    {"large_pool", large_pool, NULL},
    {"same_places", same_places, NULL},
    {"read_only", read_only, NULL},
    {"addresses_stay", addresses_stay, NULL},
    {"sparse_binding", sparse_binding, NULL},
    {"sparse_mapped", sparse_mapped, NULL},
    {"sparse_residency", sparse_residency, NULL},
    {"sparse_image", sparse_image, NULL},
    {"sparse_image_formats", sparse_image_formats, NULL},
};

VKT_MAIN(cases)
