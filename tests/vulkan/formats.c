/* formats.c - differential programs: one colour in every format, and bytes unchanged in each. */
#include "vkt_image.h"

#include <stdio.h>
#include <string.h>

static const VkImageLayout DST = VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL;

static const VkFormat floating[] = {VK_FORMAT_R8_UNORM,
                                    VK_FORMAT_R8_SNORM,
                                    VK_FORMAT_R8G8_UNORM,
                                    VK_FORMAT_R8G8B8A8_UNORM,
                                    VK_FORMAT_R8G8B8A8_SNORM,
                                    VK_FORMAT_R8G8B8A8_SRGB,
                                    VK_FORMAT_B8G8R8A8_UNORM,
                                    VK_FORMAT_B8G8R8A8_SRGB,
                                    VK_FORMAT_A2B10G10R10_UNORM_PACK32,
                                    VK_FORMAT_R5G6B5_UNORM_PACK16,
                                    VK_FORMAT_A1R5G5B5_UNORM_PACK16,
                                    VK_FORMAT_R4G4B4A4_UNORM_PACK16,
                                    VK_FORMAT_R16_UNORM,
                                    VK_FORMAT_R16_SFLOAT,
                                    VK_FORMAT_R16G16B16A16_UNORM,
                                    VK_FORMAT_R16G16B16A16_SFLOAT,
                                    VK_FORMAT_R32_SFLOAT,
                                    VK_FORMAT_R32G32_SFLOAT,
                                    VK_FORMAT_R32G32B32A32_SFLOAT,
                                    VK_FORMAT_B10G11R11_UFLOAT_PACK32};
static const VkFormat whole[] = {
    VK_FORMAT_R8_UINT,           VK_FORMAT_R8_SINT,           VK_FORMAT_R8G8_UINT,
    VK_FORMAT_R8G8B8A8_UINT,     VK_FORMAT_R16_UINT,          VK_FORMAT_R16_SINT,
    VK_FORMAT_R16G16B16A16_UINT, VK_FORMAT_R16G16B16A16_SINT, VK_FORMAT_R32_UINT,
    VK_FORMAT_R32_SINT,          VK_FORMAT_R32G32_UINT,       VK_FORMAT_R32G32_SINT,
    VK_FORMAT_R32G32B32A32_UINT, VK_FORMAT_R32G32B32A32_SINT};
static const VkFormat depths[] = {VK_FORMAT_D16_UNORM,         VK_FORMAT_X8_D24_UNORM_PACK32,
                                  VK_FORMAT_D32_SFLOAT,        VK_FORMAT_S8_UINT,
                                  VK_FORMAT_D24_UNORM_S8_UINT, VK_FORMAT_D32_SFLOAT_S8_UINT};

/* Clears an image of each format that the device can clear, and prints its bytes. */
static void cleared(const VkFormat *formats, size_t count, VkClearColorValue color)
{
    vkt_open();
    for (size_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "format%d", (int)formats[i]);
        if (!vkt_format_has(formats[i], VK_FORMAT_FEATURE_TRANSFER_DST_BIT)) {
            vkt_out_u64(name, 0);
            continue;
        }
        struct vkt_image image = vkt_image_2d(formats[i], 4, 4, 0);
        VkImageSubresourceRange range = vkt_range(&image);
        VkCommandBuffer command = vkt_begin();
        vkt_transition(command, &image, VK_IMAGE_LAYOUT_UNDEFINED, DST);
        vkCmdClearColorImage(command, image.handle, DST, &color, 1, &range);
        vkt_finish(command);
        vkt_out_image(name, &image, DST);
    }
}

static void cleared_floating(void)
{
    cleared(floating, VKT_COUNT(floating),
            (VkClearColorValue){.float32 = {0.3f, 0.71f, 0.123456f, 0.9f}});
}

static void cleared_whole(void)
{
    cleared(whole, VKT_COUNT(whole), (VkClearColorValue){.uint32 = {1, 200, 3000, 4000000}});
}

static void cleared_depths(void)
{
    vkt_open();
    for (size_t i = 0; i < VKT_COUNT(depths); i++) {
        char name[32];
        snprintf(name, sizeof(name), "format%d", (int)depths[i]);
        if (!vkt_format_has(depths[i], VK_FORMAT_FEATURE_DEPTH_STENCIL_ATTACHMENT_BIT |
                                           VK_FORMAT_FEATURE_TRANSFER_SRC_BIT)) {
            vkt_out_u64(name, 0);
            continue;
        }
        struct vkt_image image =
            vkt_image_2d(depths[i], 4, 4, VK_IMAGE_USAGE_DEPTH_STENCIL_ATTACHMENT_BIT);
        VkImageSubresourceRange range = vkt_range(&image);
        const VkClearDepthStencilValue value = {0.6180339f, 0xa5};
        VkCommandBuffer command = vkt_begin();
        vkt_transition(command, &image, VK_IMAGE_LAYOUT_UNDEFINED, DST);
        vkCmdClearDepthStencilImage(command, image.handle, DST, &value, 1, &range);
        vkt_finish(command);
        vkt_out_image(name, &image, DST);
    }
}

/* Bytes go through every copyable format unchanged. */
static void copied(void)
{
    vkt_open();
    for (size_t i = 0; i < VKT_COUNT(whole); i++) {
        char name[32];
        snprintf(name, sizeof(name), "format%d", (int)whole[i]);
        if (!vkt_format_has(whole[i], VK_FORMAT_FEATURE_TRANSFER_SRC_BIT |
                                          VK_FORMAT_FEATURE_TRANSFER_DST_BIT))
            continue;
        struct vkt_image image = vkt_image_2d(whole[i], 13, 7, 0);
        vkt_image_fill(&image, (uint32_t)i, DST);
        vkt_out_image(name, &image, DST);
    }
}

static void compressed(void)
{
    VKT_NEED(vkt.f10.textureCompressionBC);
    vkt_open();
    /* Decoded by sampling, since a block has no texels to read back. */
    struct vkt_image image =
        vkt_image_2d(VK_FORMAT_BC1_RGBA_UNORM_BLOCK, 32, 32, VK_IMAGE_USAGE_SAMPLED_BIT);
    struct vkt_buffer blocks = vkt_buffer(8 * 8 * 8, 0, VKT_COHERENT);
    vkt_pattern(blocks.map, blocks.size, 5);
    const VkBufferImageCopy region = {.imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
                                      .imageExtent = {32, 32, 1}};
    struct vkt_buffer out = vkt_storage(32 * 32 * 16, NULL);
    struct vkt_kernel kernel = vkt_kernel("sample.comp", "cs", 4);
    VkSampler sampler = vkt_sampler(VK_FILTER_NEAREST, VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_EDGE);
    vkt_write_image(kernel.set, 0, vkt_type('c'), sampler, image.view,
                    VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL);
    vkt_write_buffer(kernel.set, 1, vkt_type('s'), out.handle, 0, VK_WHOLE_SIZE);
    const float step = 0;
    VkCommandBuffer command = vkt_begin();
    vkt_transition(command, &image, VK_IMAGE_LAYOUT_UNDEFINED, DST);
    vkCmdCopyBufferToImage(command, blocks.handle, image.handle, DST, 1, &region);
    vkt_transition(command, &image, DST, VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL);
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
    vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1,
                            &kernel.set, 0, NULL);
    vkCmdPushConstants(command, kernel.layout, VK_SHADER_STAGE_ALL, 0, 4, &step);
    vkCmdDispatch(command, 4, 4, 1);
    vkt_finish(command);
    vkt_out_buffer("texels", &out);
}

/* The answer about what is not supported is all zeros, whatever was there before. */
static void unsupported(void)
{
    static const VkFormat asked[] = {VK_FORMAT_R8G8B8A8_UNORM, VK_FORMAT_R64G64B64A64_SFLOAT,
                                     VK_FORMAT_ASTC_12x12_SRGB_BLOCK, VK_FORMAT_D32_SFLOAT};
    for (size_t i = 0; i < VKT_COUNT(asked); i++) {
        VkPhysicalDeviceImageFormatInfo2 info = {
            .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_IMAGE_FORMAT_INFO_2,
            .format = asked[i],
            .type = VK_IMAGE_TYPE_2D,
            .tiling = VK_IMAGE_TILING_OPTIMAL,
            .usage = VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT};
        VkImageFormatProperties plain;
        VkImageFormatProperties2 chained = {.sType = VK_STRUCTURE_TYPE_IMAGE_FORMAT_PROPERTIES_2};
        memset(&plain, 0xa5, sizeof(plain));
        memset(&chained.imageFormatProperties, 0xa5, sizeof(plain));
        vkt_out_result("1.0", vkGetPhysicalDeviceImageFormatProperties(
                                  vkt.physical, info.format, info.type, info.tiling, info.usage,
                                  info.flags, &plain));
        vkt_out("plain", &plain, sizeof(plain));
        vkt_out_result("1.1",
                       vkGetPhysicalDeviceImageFormatProperties2(vkt.physical, &info, &chained));
        vkt_out("chained", &chained.imageFormatProperties, sizeof(plain));
    }
}

static const struct vkt_case cases[] = {
    {"cleared_floating", cleared_floating, NULL},
    {"cleared_whole", cleared_whole, NULL},
    {"cleared_depths", cleared_depths, NULL},
    {"copied", copied, NULL},
    {"compressed", compressed, NULL},
    {"unsupported", unsupported, NULL},
};

VKT_MAIN(cases)
