/* transfers.c - differential programs: copies, blits, resolves and clears of images. */
#include "vkt_image.h"

#include <string.h>

static const VkImageLayout SRC = VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL,
                           DST = VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL;
static const VkImageSubresourceLayers COLOR = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1};

/* A patterned source and a cleared target, ready to be read from and written to. */
struct pair {
    struct vkt_image from, to;
};

static struct pair pair(VkFormat from, VkFormat to)
{
    struct pair made = {vkt_image_2d(from, 32, 32, 0), vkt_image_2d(to, 48, 24, 0)};
    const VkClearColorValue grey = {.float32 = {0.5f, 0.5f, 0.5f, 0.5f}};
    VkImageSubresourceRange range = vkt_range(&made.to);
    vkt_image_fill(&made.from, 13, SRC);
    VkCommandBuffer command = vkt_begin();
    vkt_transition(command, &made.to, VK_IMAGE_LAYOUT_UNDEFINED, DST);
    vkCmdClearColorImage(command, made.to.handle, DST, &grey, 1, &range);
    vkt_finish(command);
    return made;
}

static void copy(void)
{
    vkt_open();
    struct pair p = pair(VK_FORMAT_R8G8B8A8_UNORM, VK_FORMAT_R8G8B8A8_UNORM);
    const VkImageCopy regions[] = {
        {COLOR, {0, 0, 0}, COLOR, {1, 1, 0}, {8, 8, 1}},
        {COLOR, {31, 31, 0}, COLOR, {47, 23, 0}, {1, 1, 1}},
        {COLOR, {3, 20, 0}, COLOR, {20, 2, 0}, {17, 11, 1}},
    };
    VkCommandBuffer command = vkt_begin();
    vkCmdCopyImage(command, p.from.handle, SRC, p.to.handle, DST, VKT_COUNT(regions), regions);
    vkt_finish(command);
    vkt_out_image("to", &p.to, DST);
}

static void copy_between_formats(void)
{
    vkt_open();
    struct pair p = pair(VK_FORMAT_R8G8B8A8_UNORM, VK_FORMAT_R32_SFLOAT);
    const VkImageCopy region = {COLOR, {0, 0, 0}, COLOR, {0, 0, 0}, {32, 24, 1}};
    VkCommandBuffer command = vkt_begin();
    vkCmdCopyImage(command, p.from.handle, SRC, p.to.handle, DST, 1, &region);
    vkt_finish(command);
    vkt_out_image("to", &p.to, DST); /* bits, not values */
}

static void copy_layers_to_depth(void)
{
    vkt_open();
    struct vkt_image layers = vkt_image((VkImageCreateInfo){
        .imageType = VK_IMAGE_TYPE_2D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = {16, 16, 1},
        .arrayLayers = 4,
    });
    struct vkt_image solid = vkt_image((VkImageCreateInfo){
        .imageType = VK_IMAGE_TYPE_3D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = {16, 16, 4},
    });
    vkt_image_fill(&layers, 1, SRC);
    const VkImageCopy region = {.srcSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 4},
                                .dstSubresource = COLOR,
                                .extent = {16, 16, 4}};
    VkCommandBuffer command = vkt_begin();
    vkt_transition(command, &solid, VK_IMAGE_LAYOUT_UNDEFINED, DST);
    vkCmdCopyImage(command, layers.handle, SRC, solid.handle, DST, 1, &region);
    vkt_finish(command);
    vkt_out_image("solid", &solid, DST);
}

static void copy_with_pitch(void)
{
    vkt_open();
    struct pair p = pair(VK_FORMAT_R8G8B8A8_UNORM, VK_FORMAT_R8G8B8A8_UNORM);
    struct vkt_buffer buffer = vkt_buffer(64 << 10, 0, VKT_COHERENT);
    /* Out with gaps between rows, in again from the middle. */
    const VkBufferImageCopy out = {12, 50, 40, COLOR, {4, 4, 0}, {20, 20, 1}},
                            in = {12 + 50 * 4 + 8, 50, 0, COLOR, {2, 3, 0}, {10, 10, 1}};
    VkCommandBuffer command = vkt_begin();
    vkCmdCopyImageToBuffer(command, p.from.handle, SRC, buffer.handle, 1, &out);
    vkt_barrier(command);
    vkCmdCopyBufferToImage(command, buffer.handle, p.to.handle, DST, 1, &in);
    vkt_finish(command);
    vkt_out_buffer("buffer", &buffer);
    vkt_out_image("to", &p.to, DST);
}

static void copy2(void)
{
    vkt_open();
    struct pair p = pair(VK_FORMAT_R8G8B8A8_UNORM, VK_FORMAT_R8G8B8A8_UNORM);
    struct vkt_buffer buffer = vkt_buffer(4096, 0, VKT_COHERENT);
    const VkImageCopy2 region = {
        VK_STRUCTURE_TYPE_IMAGE_COPY_2, NULL, COLOR, {1, 2, 0}, COLOR, {3, 4, 0}, {12, 13, 1}};
    const VkCopyImageInfo2 images = {VK_STRUCTURE_TYPE_COPY_IMAGE_INFO_2,
                                     NULL,
                                     p.from.handle,
                                     SRC,
                                     p.to.handle,
                                     DST,
                                     1,
                                     &region};
    const VkBufferImageCopy2 part = {.sType = VK_STRUCTURE_TYPE_BUFFER_IMAGE_COPY_2,
                                     .imageSubresource = COLOR,
                                     .imageExtent = {32, 32, 1}};
    const VkCopyImageToBufferInfo2 out = {VK_STRUCTURE_TYPE_COPY_IMAGE_TO_BUFFER_INFO_2,
                                          NULL,
                                          p.from.handle,
                                          SRC,
                                          buffer.handle,
                                          1,
                                          &part};
    VkBufferImageCopy2 back_part = part;
    back_part.imageOffset.x = 30;
    back_part.imageExtent = (VkExtent3D){16, 8, 1};
    const VkCopyBufferToImageInfo2 back = {VK_STRUCTURE_TYPE_COPY_BUFFER_TO_IMAGE_INFO_2,
                                           NULL,
                                           buffer.handle,
                                           p.to.handle,
                                           DST,
                                           1,
                                           &back_part};
    VkCommandBuffer command = vkt_begin();
    vkCmdCopyImage2(command, &images);
    vkCmdCopyImageToBuffer2(command, &out);
    vkt_barrier(command);
    vkCmdCopyBufferToImage2(command, &back);
    vkt_finish(command);
    vkt_out_buffer("buffer", &buffer);
    vkt_out_image("to", &p.to, DST);
}

static void blit(VkFilter filter)
{
    vkt_open();
    const VkFormatFeatureFlags need =
        VK_FORMAT_FEATURE_BLIT_SRC_BIT | VK_FORMAT_FEATURE_BLIT_DST_BIT;
    if (!vkt_format_has(VK_FORMAT_R8G8B8A8_UNORM, need) ||
        !vkt_format_has(VK_FORMAT_R16G16B16A16_SFLOAT, need))
        vkt_skip("no blits");
    struct pair p = pair(VK_FORMAT_R8G8B8A8_UNORM, VK_FORMAT_R16G16B16A16_SFLOAT);
    const VkImageBlit regions[] = {
        {COLOR, {{0, 0, 0}, {32, 32, 1}}, COLOR, {{0, 0, 0}, {20, 24, 1}}},
        {COLOR, {{24, 8, 0}, {8, 16, 1}}, COLOR, {{20, 0, 0}, {48, 24, 1}}}, /* mirrored */
    };
    VkCommandBuffer command = vkt_begin();
    vkCmdBlitImage(command, p.from.handle, SRC, p.to.handle, DST, VKT_COUNT(regions), regions,
                   filter);
    vkt_finish(command);
    vkt_out_image("to", &p.to, DST);
}

static void blit_nearest(void)
{
    blit(VK_FILTER_NEAREST);
}

static void blit_linear(void)
{
    blit(VK_FILTER_LINEAR);
}

static void mip_chain(void)
{
    vkt_open();
    struct vkt_image image = vkt_image((VkImageCreateInfo){
        .imageType = VK_IMAGE_TYPE_2D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = {64, 64, 1},
        .mipLevels = 7,
    });
    vkt_image_fill(&image, 77, VK_IMAGE_LAYOUT_GENERAL);
    VkCommandBuffer command = vkt_begin();
    for (uint32_t level = 1; level < 7; level++) {
        VkExtent3D from = vkt_level_extent(&image, level - 1), to = vkt_level_extent(&image, level);
        const VkImageBlit2 region = {
            .sType = VK_STRUCTURE_TYPE_IMAGE_BLIT_2,
            .srcSubresource = vkt_layers(&image, level - 1),
            .srcOffsets = {{0, 0, 0}, {(int32_t)from.width, (int32_t)from.height, 1}},
            .dstSubresource = vkt_layers(&image, level),
            .dstOffsets = {{0, 0, 0}, {(int32_t)to.width, (int32_t)to.height, 1}},
        };
        const VkBlitImageInfo2 info = {VK_STRUCTURE_TYPE_BLIT_IMAGE_INFO_2,
                                       NULL,
                                       image.handle,
                                       VK_IMAGE_LAYOUT_GENERAL,
                                       image.handle,
                                       VK_IMAGE_LAYOUT_GENERAL,
                                       1,
                                       &region,
                                       VK_FILTER_LINEAR};
        vkCmdBlitImage2(command, &info);
        vkt_barrier(command);
    }
    vkt_finish(command);
    vkt_out_image("image", &image, VK_IMAGE_LAYOUT_GENERAL);
}

/* --- clears ----------------------------------------------------------------------------------- */

static void clear_color(void)
{
    vkt_open();
    struct vkt_image image = vkt_image((VkImageCreateInfo){
        .imageType = VK_IMAGE_TYPE_2D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = {16, 16, 1},
        .mipLevels = 4,
        .arrayLayers = 3,
    });
    const VkImageSubresourceRange whole = vkt_range(&image),
                                  parts[] = {{VK_IMAGE_ASPECT_COLOR_BIT, 1, 2, 1, 1},
                                             {VK_IMAGE_ASPECT_COLOR_BIT, 3, VK_REMAINING_MIP_LEVELS,
                                              0, VK_REMAINING_ARRAY_LAYERS}};
    const VkClearColorValue base = {.float32 = {0.1f, 0.2f, 0.3f, 0.4f}},
                            other = {.float32 = {2.0f, -1.0f, 0.5f, 1.0f}}; /* is clamped */
    VkCommandBuffer command = vkt_begin();
    vkt_transition(command, &image, VK_IMAGE_LAYOUT_UNDEFINED, DST);
    vkCmdClearColorImage(command, image.handle, DST, &base, 1, &whole);
    vkt_barrier(command);
    vkCmdClearColorImage(command, image.handle, DST, &other, 2, parts);
    vkt_finish(command);
    vkt_out_image("image", &image, DST);
}

static void clear_depth_stencil(void)
{
    vkt_open();
    struct vkt_image image = vkt_image_2d(VK_FORMAT_D32_SFLOAT_S8_UINT, 16, 16,
                                          VK_IMAGE_USAGE_DEPTH_STENCIL_ATTACHMENT_BIT);
    VkImageSubresourceRange both = vkt_range(&image), stencil = both;
    stencil.aspectMask = VK_IMAGE_ASPECT_STENCIL_BIT;
    const VkClearDepthStencilValue first = {0.375f, 200}, second = {0.0f, 17};
    VkCommandBuffer command = vkt_begin();
    vkt_transition(command, &image, VK_IMAGE_LAYOUT_UNDEFINED, DST);
    vkCmdClearDepthStencilImage(command, image.handle, DST, &first, 1, &both);
    vkt_barrier(command);
    vkCmdClearDepthStencilImage(command, image.handle, DST, &second, 1, &stencil);
    vkt_finish(command);
    vkt_out_image("image", &image, DST);
}

static void resolve(void)
{
    vkt_open();
    struct vkt_image many = vkt_image((VkImageCreateInfo){
        .imageType = VK_IMAGE_TYPE_2D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = {32, 32, 1},
        .samples = VK_SAMPLE_COUNT_4_BIT,
        .usage = VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT,
    });
    struct vkt_image one = vkt_image_2d(VK_FORMAT_R8G8B8A8_UNORM, 32, 32, 0);
    const VkClearColorValue a = {.float32 = {1, 0.25f, 0, 1}}, b = {.float32 = {0, 0, 0, 0}};
    VkImageSubresourceRange range = vkt_range(&many);
    const VkImageResolve part = {COLOR, {4, 4, 0}, COLOR, {8, 2, 0}, {20, 20, 1}};
    const VkImageResolve2 corner = {.sType = VK_STRUCTURE_TYPE_IMAGE_RESOLVE_2,
                                    .srcSubresource = COLOR,
                                    .dstSubresource = COLOR,
                                    .extent = {4, 2, 1}};
    const VkResolveImageInfo2 info = {VK_STRUCTURE_TYPE_RESOLVE_IMAGE_INFO_2,
                                      NULL,
                                      many.handle,
                                      SRC,
                                      one.handle,
                                      DST,
                                      1,
                                      &corner};
    VkCommandBuffer command = vkt_begin();
    vkt_transition(command, &many, VK_IMAGE_LAYOUT_UNDEFINED, DST);
    vkt_transition(command, &one, VK_IMAGE_LAYOUT_UNDEFINED, DST);
    vkCmdClearColorImage(command, many.handle, DST, &a, 1, &range);
    vkCmdClearColorImage(command, one.handle, DST, &b, 1, &range);
    vkt_transition(command, &many, DST, SRC);
    vkt_barrier(command);
    vkCmdResolveImage(command, many.handle, SRC, one.handle, DST, 1, &part);
    vkCmdResolveImage2(command, &info);
    vkt_finish(command);
    vkt_out_image("one", &one, DST);
}

/* Into the same pages, with and without gaps: what the program leaves there, and between rows. */
static void copy_again(void)
{
    enum { WIDTH = 256, HEIGHT = 128, BYTES = 4 * WIDTH * HEIGHT, ROUNDS = 12 };
    vkt_open();
    struct vkt_image image = vkt_image_2d(VK_FORMAT_R8G8B8A8_UNORM, WIDTH, HEIGHT, 0);
    struct vkt_buffer back = vkt_buffer(2 * BYTES, 0, VKT_COHERENT);
    VkImageSubresourceRange all = vkt_range(&image);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t gap = i % 6 == 5 ? 44 : 0;
        const VkBufferImageCopy out = {
            i < ROUNDS / 2 ? 0 : 100, gap ? WIDTH + gap : 0, 0, COLOR, {0}, {WIDTH, HEIGHT, 1}};
        float shade = (float)(i + 1) / ROUNDS;
        VkClearColorValue color = {.float32 = {shade, 1 - shade, shade / 2, shade}};
        memset(back.map, (int)i, i % 3 ? 2 * BYTES : BYTES / 2);
        VkCommandBuffer command = vkt_begin();
        vkt_transition(command, &image, VK_IMAGE_LAYOUT_UNDEFINED, DST);
        vkCmdClearColorImage(command, image.handle, DST, &color, 1, &all);
        vkt_transition(command, &image, DST, SRC);
        vkt_finish(command);
        command = vkt_begin();
        vkCmdCopyImageToBuffer(command, image.handle, SRC, back.handle, 1, &out);
        vkt_barrier(command);
        vkt_finish(command);
        vkt_out("back", back.map, 2 * BYTES);
    }
}

static const struct vkt_case cases[] = {
    {"copy", copy, NULL},
    {"copy_between_formats", copy_between_formats, NULL},
    {"copy_layers_to_depth", copy_layers_to_depth, NULL},
    {"copy_with_pitch", copy_with_pitch, NULL},
    {"copy_again", copy_again, NULL},
    {"copy2", copy2, NULL},
    {"blit_nearest", blit_nearest, NULL},
    {"blit_linear", blit_linear, NULL},
    {"mip_chain", mip_chain, NULL},
    {"clear_color", clear_color, NULL},
    {"clear_depth_stencil", clear_depth_stencil, NULL},
    {"resolve", resolve, NULL},
};

VKT_MAIN(cases)
