/* images.c - differential programs: images of every shape, their views and layouts. */
#include "vkt_image.h"

#include <stdlib.h>
#include <string.h>

static const VkImageLayout SRC = VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL;

/* Fills the image and reads it back; both ways pass through the driver's own tiling. */
static void round_trip(VkImageCreateInfo info)
{
    vkt_open();
    struct vkt_image image = vkt_image(info);
    vkt_image_fill(&image, 7, SRC);
    vkt_out_image("image", &image, SRC);
}

static void one_d(void)
{
    round_trip((VkImageCreateInfo){
        .imageType = VK_IMAGE_TYPE_1D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = {100, 1, 1},
        .mipLevels = 7,
        .arrayLayers = 3,
    });
}

static void two_d(void)
{
    round_trip((VkImageCreateInfo){
        .imageType = VK_IMAGE_TYPE_2D,
        .format = VK_FORMAT_R32_SFLOAT,
        .extent = {37, 19, 1},
    });
}

static void three_d(void)
{
    round_trip((VkImageCreateInfo){
        .imageType = VK_IMAGE_TYPE_3D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = {16, 12, 9},
        .mipLevels = 5,
    });
}

static void cube(void)
{
    round_trip((VkImageCreateInfo){
        .flags = VK_IMAGE_CREATE_CUBE_COMPATIBLE_BIT,
        .imageType = VK_IMAGE_TYPE_2D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = {16, 16, 1},
        .arrayLayers = 6,
        .usage = VK_IMAGE_USAGE_SAMPLED_BIT,
    });
}

static void array_mipmapped(void)
{
    round_trip((VkImageCreateInfo){
        .imageType = VK_IMAGE_TYPE_2D,
        .format = VK_FORMAT_R16G16B16A16_SFLOAT,
        .extent = {64, 32, 1},
        .mipLevels = 7,
        .arrayLayers = 5,
        .usage = VK_IMAGE_USAGE_SAMPLED_BIT,
    });
}

static void linear(void)
{
    vkt_open();
    struct vkt_image image = vkt_image((VkImageCreateInfo){
        .imageType = VK_IMAGE_TYPE_2D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = {33, 5, 1},
        .tiling = VK_IMAGE_TILING_LINEAR,
    });
    VkImageSubresource part = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0};
    VkSubresourceLayout layout;
    vkGetImageSubresourceLayout(vkt.device, image.handle, &part, &layout);
    vkt_out_u64("offset", layout.offset);
    vkt_out_u64("row", layout.rowPitch);
    uint64_t exchanges = vkt_exchanges();
    VkSubresourceLayout again;
    vkGetImageSubresourceLayout(vkt.device, image.handle, &part, &again);
    VKT_EXPECT(memcmp(&again, &layout, sizeof(layout)) == 0);
    VKT_EXPECT(vkt_exchanges() == exchanges); /* it was asked before */
    vkt_image_fill(&image, 3, VK_IMAGE_LAYOUT_GENERAL);
    char *map;
    VKT(vkMapMemory(vkt.device, image.memory, 0, VK_WHOLE_SIZE, 0, (void **)&map));
    for (uint32_t row = 0; row < 5; row++)
        vkt_out("row", map + layout.offset + row * layout.rowPitch, 33 * 4);
    memset(map + layout.offset, 0x5c, 33 * 4); /* the CPU writes texels */
    vkt_out_image("image", &image, VK_IMAGE_LAYOUT_GENERAL);
}

/* A linear texture that the program writes through *map and devices only read. */
static VkImage read_only_image(VkImageUsageFlags usage, void **map, VkDeviceSize *bytes)
{
    VkImageCreateInfo info = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                              .imageType = VK_IMAGE_TYPE_2D,
                              .format = VK_FORMAT_R8G8B8A8_UNORM,
                              .extent = {16, 16, 1},
                              .mipLevels = 1,
                              .arrayLayers = 1,
                              .samples = VK_SAMPLE_COUNT_1_BIT,
                              .tiling = VK_IMAGE_TILING_LINEAR,
                              .usage = usage,
                              .initialLayout = VK_IMAGE_LAYOUT_PREINITIALIZED};
    VkImage texture;
    VKT(vkCreateImage(vkt.device, &info, NULL, &texture));
    VKT_KEEP(IMAGE, texture);
    VkMemoryRequirements needs;
    vkGetImageMemoryRequirements(vkt.device, texture, &needs);
    VkDeviceMemory memory = vkt_allocate(needs, VKT_COHERENT, NULL);
    VKT(vkBindImageMemory(vkt.device, texture, memory, 0));
    VKT(vkMapMemory(vkt.device, memory, 0, VK_WHOLE_SIZE, 0, map));
    *bytes = needs.size;
    return texture;
}

/* Work that writes other images is not waited for because of it. */
static void sampled_only(void)
{
    vkt_open();
    void *map;
    VkDeviceSize bytes;
    (void)read_only_image(VK_IMAGE_USAGE_SAMPLED_BIT, &map, &bytes);
    vkt_pattern(map, bytes, 1);
    struct vkt_image other =
        vkt_image_2d(VK_FORMAT_R8G8B8A8_UNORM, 16, 16, VK_IMAGE_USAGE_SAMPLED_BIT);
    for (uint32_t i = 0; i < 3; i++) {
        VkCommandBuffer command = vkt_begin();
        vkt_transition(command, &other, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL);
        VkImageSubresourceRange all = vkt_range(&other);
        vkCmdClearColorImage(command, other.handle, VK_IMAGE_LAYOUT_GENERAL,
                             &(VkClearColorValue){.float32 = {(float)i / 3, 0, 1, 1}}, 1, &all);
        uint64_t exchanges = vkt_exchanges();
        vkt_finish(command);
        VKT_EXPECT(getenv("VENUS_SYNC") || vkt_exchanges() == exchanges);
    }
    vkt_out_image("cleared", &other, VK_IMAGE_LAYOUT_GENERAL);
}

/* What the program writes there between submissions reaches a copy and a shader. */
static void read_only_rewritten(void)
{
    vkt_open();
    void *map;
    VkDeviceSize bytes;
    VkImage texture =
        read_only_image(VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT, &map, &bytes);
    struct vkt_buffer copy =
        vkt_buffer(16 * 16 * 4, VK_BUFFER_USAGE_TRANSFER_DST_BIT, VKT_COHERENT);
    const VkBufferImageCopy region = {.imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
                                      .imageExtent = {16, 16, 1}};
    VkImageMemoryBarrier ready = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_HOST_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT,
        .oldLayout = VK_IMAGE_LAYOUT_PREINITIALIZED,
        .newLayout = VK_IMAGE_LAYOUT_GENERAL,
        .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .image = texture,
        .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1},
    };
    for (uint32_t i = 0; i < 3; i++) {
        vkt_pattern(map, bytes, i);
        VkCommandBuffer command = vkt_begin();
        vkCmdPipelineBarrier(command, VK_PIPELINE_STAGE_HOST_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0,
                             0, NULL, 0, NULL, 1, &ready);
        vkCmdCopyImageToBuffer(command, texture, VK_IMAGE_LAYOUT_GENERAL, copy.handle, 1, &region);
        vkt_barrier(command);
        vkt_finish(command);
        ready.oldLayout = VK_IMAGE_LAYOUT_GENERAL;
        vkt_out_buffer("copied", &copy);
    }
}

static void storage(void)
{
    vkt_open();
    struct vkt_image image = vkt_image_2d(VK_FORMAT_R32_UINT, 40, 24, VK_IMAGE_USAGE_STORAGE_BIT);
    struct vkt_kernel kernel = vkt_kernel("image_write.comp", "i", 0);
    vkt_write_image(kernel.set, 0, vkt_type('i'), VK_NULL_HANDLE, image.view,
                    VK_IMAGE_LAYOUT_GENERAL);
    VkCommandBuffer command = vkt_begin();
    vkt_transition(command, &image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL);
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
    vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1,
                            &kernel.set, 0, NULL);
    vkCmdDispatch(command, 5, 3, 1);
    vkt_finish(command);
    vkt_out_image("image", &image, VK_IMAGE_LAYOUT_GENERAL);
}

static void storage_atomics(void)
{
    vkt_open();
    if (!vkt_format_has(VK_FORMAT_R32_UINT, VK_FORMAT_FEATURE_STORAGE_IMAGE_ATOMIC_BIT))
        vkt_skip("no image atomics");
    struct vkt_image image = vkt_image_2d(VK_FORMAT_R32_UINT, 9, 8, VK_IMAGE_USAGE_STORAGE_BIT);
    struct vkt_kernel kernel = vkt_kernel("image_atomic.comp", "i", 0);
    vkt_write_image(kernel.set, 0, vkt_type('i'), VK_NULL_HANDLE, image.view,
                    VK_IMAGE_LAYOUT_GENERAL);
    const VkClearColorValue zero = {.uint32 = {0}};
    VkImageSubresourceRange range = vkt_range(&image);
    VkCommandBuffer command = vkt_begin();
    vkt_transition(command, &image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL);
    vkCmdClearColorImage(command, image.handle, VK_IMAGE_LAYOUT_GENERAL, &zero, 1, &range);
    vkt_barrier(command);
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
    vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1,
                            &kernel.set, 0, NULL);
    vkCmdDispatch(command, 8, 1, 1);
    vkt_finish(command);
    vkt_out_image("image", &image, VK_IMAGE_LAYOUT_GENERAL);
}

/* A written view of another format, of one layer and one level. */
static void views(void)
{
    vkt_open();
    struct vkt_image image = vkt_image((VkImageCreateInfo){
        .flags = VK_IMAGE_CREATE_MUTABLE_FORMAT_BIT,
        .imageType = VK_IMAGE_TYPE_2D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = {32, 32, 1},
        .mipLevels = 3,
        .arrayLayers = 4,
        .usage = VK_IMAGE_USAGE_STORAGE_BIT,
    });
    vkt_image_fill(&image, 2, VK_IMAGE_LAYOUT_GENERAL);
    VkImageViewCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,
        .image = image.handle,
        .viewType = VK_IMAGE_VIEW_TYPE_2D,
        .format = VK_FORMAT_R32_UINT,
        .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 1, 1, 2, 1},
    };
    VkImageView view;
    VKT(vkCreateImageView(vkt.device, &info, NULL, &view));
    VKT_KEEP(IMAGE_VIEW, view);
    struct vkt_kernel kernel = vkt_kernel("image_write.comp", "i", 0);
    vkt_write_image(kernel.set, 0, vkt_type('i'), VK_NULL_HANDLE, view, VK_IMAGE_LAYOUT_GENERAL);
    vkt_kernel_run(&kernel, NULL, 2); /* the upper half of its 16 by 16 texels */
    vkt_out_image("image", &image, VK_IMAGE_LAYOUT_GENERAL);
}

static void transitions(void)
{
    vkt_open();
    struct vkt_image image =
        vkt_image_2d(VK_FORMAT_R8G8B8A8_UNORM, 24, 24,
                     VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT);
    vkt_image_fill(&image, 9, VK_IMAGE_LAYOUT_GENERAL);
    const VkImageLayout path[] = {VK_IMAGE_LAYOUT_GENERAL,
                                  VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL,
                                  VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL,
                                  VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL,
                                  VK_IMAGE_LAYOUT_READ_ONLY_OPTIMAL,
                                  SRC};
    VkCommandBuffer command = vkt_begin();
    for (size_t i = 0; i + 1 < VKT_COUNT(path); i++)
        vkt_transition(command, &image, path[i], path[i + 1]);
    vkt_finish(command);
    vkt_out_image("image", &image, SRC); /* contents survive every layout */
}

static void barriers2(void)
{
    vkt_open();
    struct vkt_image image = vkt_image_2d(VK_FORMAT_R8G8B8A8_UNORM, 16, 16, 0);
    const VkClearColorValue color = {.float32 = {0.2f, 0.4f, 0.6f, 0.8f}};
    VkImageSubresourceRange range = vkt_range(&image);
    VkImageMemoryBarrier2 to_dst = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER_2,
        .dstStageMask = VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT,
        .dstAccessMask = VK_ACCESS_2_TRANSFER_WRITE_BIT,
        .newLayout = VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL,
        .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .image = image.handle,
        .subresourceRange = range,
    };
    VkImageMemoryBarrier2 to_src = to_dst;
    to_src.srcStageMask = VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT;
    to_src.srcAccessMask = VK_ACCESS_2_TRANSFER_WRITE_BIT;
    to_src.dstAccessMask = VK_ACCESS_2_TRANSFER_READ_BIT;
    to_src.oldLayout = VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL;
    to_src.newLayout = SRC;
    VkDependencyInfo dependency = {
        .sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
        .imageMemoryBarrierCount = 1,
        .pImageMemoryBarriers = &to_dst,
    };
    VkCommandBuffer command = vkt_begin();
    vkCmdPipelineBarrier2(command, &dependency);
    vkCmdClearColorImage(command, image.handle, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, &color, 1,
                         &range);
    dependency.pImageMemoryBarriers = &to_src;
    vkCmdPipelineBarrier2(command, &dependency);
    vkt_finish(command);
    vkt_out_image("image", &image, SRC);
}

static void bound_together(void)
{
    vkt_open();
    /* Two images in one memory, bound in one call. */
    VkImageCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
        .imageType = VK_IMAGE_TYPE_2D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = {20, 20, 1},
        .mipLevels = 1,
        .arrayLayers = 1,
        .samples = VK_SAMPLE_COUNT_1_BIT,
        .usage = VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT,
    };
    struct vkt_image images[2];
    VkMemoryRequirements needs;
    for (int i = 0; i < 2; i++) {
        images[i] = (struct vkt_image){.info = info, .aspect = VK_IMAGE_ASPECT_COLOR_BIT};
        VKT(vkCreateImage(vkt.device, &info, NULL, &images[i].handle));
        VKT_KEEP(IMAGE, images[i].handle);
        vkGetImageMemoryRequirements(vkt.device, images[i].handle, &needs);
    }
    VkDeviceSize second = (needs.size + needs.alignment - 1) / needs.alignment * needs.alignment;
    needs.size += second;
    VkDeviceMemory memory = vkt_allocate(needs, VKT_DEVICE, NULL);
    const VkBindImageMemoryInfo binds[] = {
        {VK_STRUCTURE_TYPE_BIND_IMAGE_MEMORY_INFO, NULL, images[0].handle, memory, second},
        {VK_STRUCTURE_TYPE_BIND_IMAGE_MEMORY_INFO, NULL, images[1].handle, memory, 0},
    };
    VKT(vkBindImageMemory2(vkt.device, 2, binds));
    for (uint32_t i = 0; i < 2; i++)
        vkt_image_fill(&images[i], 40 + i, SRC);
    vkt_out_image("first", &images[0], SRC);
    vkt_out_image("second", &images[1], SRC);
}

static const struct vkt_case cases[] = {
    {"one_d", one_d, NULL},
    {"two_d", two_d, NULL},
    {"three_d", three_d, NULL},
    {"cube", cube, NULL},
    {"array_mipmapped", array_mipmapped, NULL},
    {"linear", linear, NULL},
    {"sampled_only", sampled_only, NULL},
    {"read_only_rewritten", read_only_rewritten, NULL},
    {"storage", storage, NULL},
    {"storage_atomics", storage_atomics, NULL},
    {"views", views, NULL},
    {"transitions", transitions, NULL},
    {"barriers2", barriers2, NULL},
    {"bound_together", bound_together, NULL},
};

VKT_MAIN(cases)
