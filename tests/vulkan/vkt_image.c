/* vkt_image.c - images, render targets and graphics pipelines of the differential programs. */
#include "vkt_image.h"

#include <stdio.h>
#include <string.h>

/* --- formats ---------------------------------------------------------------------------------- */

VkImageAspectFlags vkt_aspect(VkFormat format)
{
    switch (format) {
    case VK_FORMAT_D16_UNORM:
    case VK_FORMAT_X8_D24_UNORM_PACK32:
    case VK_FORMAT_D32_SFLOAT:
        return VK_IMAGE_ASPECT_DEPTH_BIT;
    case VK_FORMAT_S8_UINT:
        return VK_IMAGE_ASPECT_STENCIL_BIT;
    case VK_FORMAT_D16_UNORM_S8_UINT:
    case VK_FORMAT_D24_UNORM_S8_UINT:
    case VK_FORMAT_D32_SFLOAT_S8_UINT:
        return VK_IMAGE_ASPECT_DEPTH_BIT | VK_IMAGE_ASPECT_STENCIL_BIT;
    default:
        return VK_IMAGE_ASPECT_COLOR_BIT;
    }
}

/* Sizes of the formats that these programs read back; a depth and stencil format counts as its
 * depth aspect does in a buffer. */
static uint32_t texel_bytes(VkFormat format)
{
    switch (format) {
    case VK_FORMAT_R8_UNORM:
    case VK_FORMAT_R8_SNORM:
    case VK_FORMAT_R8_UINT:
    case VK_FORMAT_R8_SINT:
    case VK_FORMAT_S8_UINT:
        return 1;
    case VK_FORMAT_R8G8_UNORM:
    case VK_FORMAT_R8G8_UINT:
    case VK_FORMAT_R5G6B5_UNORM_PACK16:
    case VK_FORMAT_A1R5G5B5_UNORM_PACK16:
    case VK_FORMAT_R4G4B4A4_UNORM_PACK16:
    case VK_FORMAT_R16_UNORM:
    case VK_FORMAT_R16_UINT:
    case VK_FORMAT_R16_SINT:
    case VK_FORMAT_R16_SFLOAT:
    case VK_FORMAT_D16_UNORM:
    case VK_FORMAT_D16_UNORM_S8_UINT:
        return 2;
    case VK_FORMAT_R16G16B16A16_UNORM:
    case VK_FORMAT_R16G16B16A16_UINT:
    case VK_FORMAT_R16G16B16A16_SINT:
    case VK_FORMAT_R16G16B16A16_SFLOAT:
    case VK_FORMAT_R32G32_UINT:
    case VK_FORMAT_R32G32_SINT:
    case VK_FORMAT_R32G32_SFLOAT:
        return 8;
    case VK_FORMAT_R32G32B32A32_UINT:
    case VK_FORMAT_R32G32B32A32_SINT:
    case VK_FORMAT_R32G32B32A32_SFLOAT:
        return 16;
    default:
        return 4;
    }
}

bool vkt_format_has(VkFormat format, VkFormatFeatureFlags optimal)
{
    VkFormatProperties properties;
    vkGetPhysicalDeviceFormatProperties(vkt.physical, format, &properties);
    return (properties.optimalTilingFeatures & optimal) == optimal;
}

/* --- images ----------------------------------------------------------------------------------- */

static VkImageViewType view_type(const VkImageCreateInfo *info)
{
    bool array = info->arrayLayers > 1;
    if (info->flags & VK_IMAGE_CREATE_CUBE_COMPATIBLE_BIT)
        return info->arrayLayers > 6 ? VK_IMAGE_VIEW_TYPE_CUBE_ARRAY : VK_IMAGE_VIEW_TYPE_CUBE;
    if (info->imageType == VK_IMAGE_TYPE_1D)
        return array ? VK_IMAGE_VIEW_TYPE_1D_ARRAY : VK_IMAGE_VIEW_TYPE_1D;
    if (info->imageType == VK_IMAGE_TYPE_3D)
        return VK_IMAGE_VIEW_TYPE_3D;
    return array ? VK_IMAGE_VIEW_TYPE_2D_ARRAY : VK_IMAGE_VIEW_TYPE_2D;
}

static void fill_in(VkImageCreateInfo *info)
{
    info->sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO;
    if (info->imageType == VK_IMAGE_TYPE_1D && info->extent.height > 1)
        info->imageType = VK_IMAGE_TYPE_2D;
    if (!info->extent.height)
        info->extent.height = 1;
    if (!info->extent.depth)
        info->extent.depth = 1;
    if (!info->mipLevels)
        info->mipLevels = 1;
    if (!info->arrayLayers)
        info->arrayLayers = 1;
    if (!info->samples)
        info->samples = VK_SAMPLE_COUNT_1_BIT;
    info->usage |= VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT;
}

static void need_image(const VkImageCreateInfo *info)
{
    VkImageFormatProperties offered;
    VkResult result =
        vkGetPhysicalDeviceImageFormatProperties(vkt.physical, info->format, info->imageType,
                                                 info->tiling, info->usage, info->flags, &offered);
    if (result == VK_ERROR_FORMAT_NOT_SUPPORTED || !(offered.sampleCounts & info->samples) ||
        offered.maxMipLevels < info->mipLevels || offered.maxArrayLayers < info->arrayLayers)
        vkt_skip("no image of format %d, usage %#x, samples %u", (int)info->format, info->usage,
                 (unsigned)info->samples);
    vkt_check(result, "vkGetPhysicalDeviceImageFormatProperties");
}

static VkImageView make_view(const struct vkt_image *image)
{
    VkImageViewCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,
        .image = image->handle,
        .viewType = view_type(&image->info),
        .format = image->info.format,
        .subresourceRange = vkt_range(image),
    };
    VkImageView view;
    VKT(vkCreateImageView(vkt.device, &info, NULL, &view));
    VKT_KEEP(IMAGE_VIEW, view);
    return view;
}

struct vkt_image vkt_image(VkImageCreateInfo info)
{
    const VkImageUsageFlags viewless =
        VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT;
    fill_in(&info);
    need_image(&info);
    struct vkt_image image = {.info = info, .aspect = vkt_aspect(info.format)};
    VKT(vkCreateImage(vkt.device, &info, NULL, &image.handle));
    VKT_KEEP(IMAGE, image.handle);
    VkMemoryRequirements needs;
    vkGetImageMemoryRequirements(vkt.device, image.handle, &needs);
    enum vkt_memory kind = info.tiling == VK_IMAGE_TILING_LINEAR ? VKT_COHERENT : VKT_DEVICE;
    image.memory = vkt_allocate(needs, kind, NULL);
    VKT(vkBindImageMemory(vkt.device, image.handle, image.memory, 0));
    if (info.usage & ~viewless)
        image.view = make_view(&image);
    return image;
}

struct vkt_image vkt_image_2d(VkFormat format, uint32_t width, uint32_t height,
                              VkImageUsageFlags usage)
{
    return vkt_image((VkImageCreateInfo){
        .imageType = VK_IMAGE_TYPE_2D,
        .format = format,
        .extent = {width, height, 1},
        .usage = usage,
    });
}

VkImageSubresourceRange vkt_range(const struct vkt_image *image)
{
    return (VkImageSubresourceRange){image->aspect, 0, image->info.mipLevels, 0,
                                     image->info.arrayLayers};
}

VkImageSubresourceLayers vkt_layers(const struct vkt_image *image, uint32_t level)
{
    return (VkImageSubresourceLayers){image->aspect, level, 0, image->info.arrayLayers};
}

static uint32_t halved(uint32_t size, uint32_t level)
{
    return size >> level ? size >> level : 1;
}

VkExtent3D vkt_level_extent(const struct vkt_image *image, uint32_t level)
{
    VkExtent3D base = image->info.extent;
    return (VkExtent3D){halved(base.width, level), halved(base.height, level),
                        halved(base.depth, level)};
}

void vkt_transition(VkCommandBuffer command, const struct vkt_image *image, VkImageLayout from,
                    VkImageLayout to)
{
    VkImageMemoryBarrier barrier = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT,
        .oldLayout = from,
        .newLayout = to,
        .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
        .image = image->handle,
        .subresourceRange = vkt_range(image),
    };
    vkCmdPipelineBarrier(command, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
                         VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0, 0, NULL, 0, NULL, 1, &barrier);
}

static size_t level_bytes(const struct vkt_image *image, uint32_t level)
{
    VkExtent3D extent = vkt_level_extent(image, level);
    return (size_t)extent.width * extent.height * extent.depth * image->info.arrayLayers *
           texel_bytes(image->info.format);
}

static VkBufferImageCopy whole_level(const struct vkt_image *image, uint32_t level,
                                     VkImageAspectFlags aspect)
{
    VkBufferImageCopy region = {
        .imageSubresource = vkt_layers(image, level),
        .imageExtent = vkt_level_extent(image, level),
    };
    region.imageSubresource.aspectMask = aspect;
    return region;
}

void vkt_image_fill(const struct vkt_image *image, uint32_t seed, VkImageLayout to)
{
    VkCommandBuffer command = vkt_begin();
    vkt_transition(command, image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL);
    for (uint32_t level = 0; level < image->info.mipLevels; level++) {
        size_t bytes = level_bytes(image, level);
        struct vkt_buffer staging = vkt_buffer((bytes + 3) & ~(size_t)3, 0, VKT_COHERENT);
        vkt_pattern(staging.map, staging.size, seed + level);
        VkBufferImageCopy region = whole_level(image, level, image->aspect);
        vkCmdCopyBufferToImage(command, staging.handle, image->handle,
                               VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1, &region);
    }
    vkt_transition(command, image, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, to);
    vkt_finish(command);
}

/* The top byte of a 24-bit depth in a buffer is nobody's. */
static void drop_undefined(VkFormat format, VkImageAspectFlags aspect, struct vkt_buffer *texels)
{
    bool padded = format == VK_FORMAT_X8_D24_UNORM_PACK32 || format == VK_FORMAT_D24_UNORM_S8_UINT;
    uint32_t *words = texels->map;
    if (padded && aspect == VK_IMAGE_ASPECT_DEPTH_BIT)
        for (size_t i = 0; i < texels->size / sizeof(*words); i++)
            words[i] &= 0xffffff;
}

static void out_level(const char *name, const struct vkt_image *image, VkImageLayout from,
                      uint32_t level, VkImageAspectFlags aspect)
{
    struct vkt_buffer staging = vkt_buffer(level_bytes(image, level), 0, VKT_COHERENT);
    VkBufferImageCopy region = whole_level(image, level, aspect);
    VkCommandBuffer command = vkt_begin();
    vkt_transition(command, image, from, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL);
    vkCmdCopyImageToBuffer(command, image->handle, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL,
                           staging.handle, 1, &region);
    vkt_transition(command, image, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, from);
    vkt_finish(command);
    drop_undefined(image->info.format, aspect, &staging);
    char label[96];
    snprintf(label, sizeof(label), "%s.%s%u", name,
             aspect == VK_IMAGE_ASPECT_STENCIL_BIT ? "stencil" : "level", level);
    size_t texels = staging.size / texel_bytes(image->info.format);
    vkt_out(label, staging.map, aspect == VK_IMAGE_ASPECT_STENCIL_BIT ? texels : staging.size);
}

void vkt_out_image(const char *name, const struct vkt_image *image, VkImageLayout from)
{
    const VkImageAspectFlags aspects[] = {VK_IMAGE_ASPECT_COLOR_BIT, VK_IMAGE_ASPECT_DEPTH_BIT,
                                          VK_IMAGE_ASPECT_STENCIL_BIT};
    for (uint32_t level = 0; level < image->info.mipLevels; level++)
        for (size_t i = 0; i < VKT_COUNT(aspects); i++)
            if (image->aspect & aspects[i])
                out_level(name, image, from, level, aspects[i]);
}

VkSampler vkt_sampler(VkFilter filter, VkSamplerAddressMode mode)
{
    VkSamplerCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_SAMPLER_CREATE_INFO,
        .magFilter = filter,
        .minFilter = filter,
        .mipmapMode = filter == VK_FILTER_LINEAR ? VK_SAMPLER_MIPMAP_MODE_LINEAR
                                                 : VK_SAMPLER_MIPMAP_MODE_NEAREST,
        .addressModeU = mode,
        .addressModeV = mode,
        .addressModeW = mode,
        .maxLod = VK_LOD_CLAMP_NONE,
        .borderColor = VK_BORDER_COLOR_FLOAT_OPAQUE_WHITE,
    };
    VkSampler sampler;
    VKT(vkCreateSampler(vkt.device, &info, NULL, &sampler));
    VKT_KEEP(SAMPLER, sampler);
    return sampler;
}

/* --- render targets --------------------------------------------------------------------------- */

static VkAttachmentDescription cleared(VkFormat format, VkSampleCountFlagBits samples)
{
    return (VkAttachmentDescription){
        .format = format,
        .samples = samples,
        .loadOp = VK_ATTACHMENT_LOAD_OP_CLEAR,
        .storeOp = VK_ATTACHMENT_STORE_OP_STORE,
        .stencilLoadOp = VK_ATTACHMENT_LOAD_OP_CLEAR,
        .stencilStoreOp = VK_ATTACHMENT_STORE_OP_STORE,
        .initialLayout = VK_IMAGE_LAYOUT_UNDEFINED,
        .finalLayout = VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL,
    };
}

static VkRenderPass target_pass(const struct vkt_target *target)
{
    VkAttachmentDescription attachments[3];
    uint32_t count = 0;
    VkAttachmentReference color = {count, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL}, depth, resolve;
    attachments[count++] = cleared(target->color.info.format, target->color.info.samples);
    if (target->has_depth) {
        depth = (VkAttachmentReference){count, VK_IMAGE_LAYOUT_DEPTH_STENCIL_ATTACHMENT_OPTIMAL};
        attachments[count++] = cleared(target->depth.info.format, target->depth.info.samples);
    }
    if (target->has_resolve) {
        resolve = (VkAttachmentReference){count, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL};
        attachments[count++] = cleared(target->resolved.info.format, VK_SAMPLE_COUNT_1_BIT);
    }
    VkSubpassDescription subpass = {
        .pipelineBindPoint = VK_PIPELINE_BIND_POINT_GRAPHICS,
        .colorAttachmentCount = 1,
        .pColorAttachments = &color,
        .pResolveAttachments = target->has_resolve ? &resolve : NULL,
        .pDepthStencilAttachment = target->has_depth ? &depth : NULL,
    };
    VkSubpassDependency after = {
        .srcSubpass = 0,
        .dstSubpass = VK_SUBPASS_EXTERNAL,
        .srcStageMask = VK_PIPELINE_STAGE_ALL_GRAPHICS_BIT,
        .dstStageMask = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
        .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT,
    };
    VkRenderPassCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_RENDER_PASS_CREATE_INFO,
        .attachmentCount = count,
        .pAttachments = attachments,
        .subpassCount = 1,
        .pSubpasses = &subpass,
        .dependencyCount = 1,
        .pDependencies = &after,
    };
    VkRenderPass pass;
    VKT(vkCreateRenderPass(vkt.device, &info, NULL, &pass));
    VKT_KEEP(RENDER_PASS, pass);
    return pass;
}

static struct vkt_image target_image(VkFormat format, VkSampleCountFlagBits samples)
{
    bool color = vkt_aspect(format) == VK_IMAGE_ASPECT_COLOR_BIT;
    return vkt_image((VkImageCreateInfo){
        .imageType = VK_IMAGE_TYPE_2D,
        .format = format,
        .extent = {VKT_TARGET_SIZE, VKT_TARGET_SIZE, 1},
        .samples = samples,
        .usage = color ? VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT
                       : VK_IMAGE_USAGE_DEPTH_STENCIL_ATTACHMENT_BIT,
    });
}

struct vkt_target vkt_target(VkFormat depth_format, VkSampleCountFlagBits samples)
{
    struct vkt_target target = {
        .color = target_image(VK_FORMAT_R8G8B8A8_UNORM, samples),
        .has_depth = depth_format != VK_FORMAT_UNDEFINED,
        .has_resolve = samples != VK_SAMPLE_COUNT_1_BIT,
    };
    VkImageView views[3] = {target.color.view};
    uint32_t count = 1;
    if (target.has_depth) {
        target.depth = target_image(depth_format, samples);
        views[count++] = target.depth.view;
    }
    if (target.has_resolve) {
        target.resolved = target_image(VK_FORMAT_R8G8B8A8_UNORM, VK_SAMPLE_COUNT_1_BIT);
        views[count++] = target.resolved.view;
    }
    target.pass = target_pass(&target);
    VkFramebufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_FRAMEBUFFER_CREATE_INFO,
        .renderPass = target.pass,
        .attachmentCount = count,
        .pAttachments = views,
        .width = VKT_TARGET_SIZE,
        .height = VKT_TARGET_SIZE,
        .layers = 1,
    };
    VKT(vkCreateFramebuffer(vkt.device, &info, NULL, &target.framebuffer));
    VKT_KEEP(FRAMEBUFFER, target.framebuffer);
    return target;
}

void vkt_target_begin(VkCommandBuffer command, const struct vkt_target *target,
                      VkSubpassContents contents)
{
    const VkClearValue color = {.color.float32 = {0.125f, 0.25f, 0.5f, 1.0f}},
                       depth = {.depthStencil = {1.0f, 3}};
    VkClearValue clears[3] = {color, target->has_depth ? depth : color, color};
    VkRenderPassBeginInfo info = {
        .sType = VK_STRUCTURE_TYPE_RENDER_PASS_BEGIN_INFO,
        .renderPass = target->pass,
        .framebuffer = target->framebuffer,
        .renderArea.extent = {VKT_TARGET_SIZE, VKT_TARGET_SIZE},
        .clearValueCount = VKT_COUNT(clears),
        .pClearValues = clears,
    };
    vkCmdBeginRenderPass(command, &info, contents);
}

void vkt_out_target(const char *name, const struct vkt_target *target)
{
    const VkImageLayout layout = VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL;
    char label[64];
    vkt_out_image(name, target->has_resolve ? &target->resolved : &target->color, layout);
    if (target->has_depth && !target->has_resolve) {
        snprintf(label, sizeof(label), "%s.depth", name);
        vkt_out_image(label, &target->depth, layout);
    }
}

/* --- pipelines -------------------------------------------------------------------------------- */

VkPipelineRasterizationStateCreateInfo vkt_raster(void)
{
    return (VkPipelineRasterizationStateCreateInfo){
        .sType = VK_STRUCTURE_TYPE_PIPELINE_RASTERIZATION_STATE_CREATE_INFO,
        .lineWidth = 1.0f,
    };
}

VkPipelineColorBlendAttachmentState vkt_overwrite(void)
{
    return (VkPipelineColorBlendAttachmentState){
        .colorWriteMask = VK_COLOR_COMPONENT_R_BIT | VK_COLOR_COMPONENT_G_BIT |
                          VK_COLOR_COMPONENT_B_BIT | VK_COLOR_COMPONENT_A_BIT,
    };
}

static VkShaderStageFlagBits stage_of(const char *shader)
{
    static const struct {
        const char *suffix;
        VkShaderStageFlagBits stage;
    } stages[] = {
        {".vert", VK_SHADER_STAGE_VERTEX_BIT},
        {".tesc", VK_SHADER_STAGE_TESSELLATION_CONTROL_BIT},
        {".tese", VK_SHADER_STAGE_TESSELLATION_EVALUATION_BIT},
        {".geom", VK_SHADER_STAGE_GEOMETRY_BIT},
        {".frag", VK_SHADER_STAGE_FRAGMENT_BIT},
    };
    for (size_t i = 0; i < VKT_COUNT(stages); i++)
        if (strstr(shader, stages[i].suffix))
            return stages[i].stage;
    vkt_fail("%s: no graphics stage", shader);
}

static uint32_t load_stages(const struct vkt_pipeline *wanted,
                            VkPipelineShaderStageCreateInfo *stages)
{
    uint32_t count = 0;
    for (; count < VKT_STAGES_MAX && wanted->shaders[count]; count++)
        stages[count] = (VkPipelineShaderStageCreateInfo){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
            .stage = stage_of(wanted->shaders[count]),
            .module = vkt_shader(wanted->shaders[count]),
            .pName = "main",
            .pSpecializationInfo = wanted->constants,
        };
    return count;
}

VkPipeline vkt_pipeline(const struct vkt_pipeline *wanted)
{
    VkPipelineShaderStageCreateInfo stages[VKT_STAGES_MAX];
    const VkPipelineVertexInputStateCreateInfo no_vertices = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_VERTEX_INPUT_STATE_CREATE_INFO,
    };
    VkPipelineInputAssemblyStateCreateInfo assembly = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_INPUT_ASSEMBLY_STATE_CREATE_INFO,
        .topology = wanted->topology,
        .primitiveRestartEnable = wanted->restart,
    };
    VkPipelineTessellationStateCreateInfo patches = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_TESSELLATION_STATE_CREATE_INFO,
        .patchControlPoints = wanted->patch_points,
    };
    const VkViewport viewport = {0, 0, VKT_TARGET_SIZE, VKT_TARGET_SIZE, 0, 1};
    const VkRect2D scissor = {.extent = {VKT_TARGET_SIZE, VKT_TARGET_SIZE}};
    VkPipelineViewportStateCreateInfo viewports = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_VIEWPORT_STATE_CREATE_INFO,
        .viewportCount = 1,
        .pViewports = &viewport,
        .scissorCount = 1,
        .pScissors = &scissor,
    };
    VkPipelineRasterizationStateCreateInfo raster = vkt_raster();
    VkPipelineMultisampleStateCreateInfo multisample = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_MULTISAMPLE_STATE_CREATE_INFO,
        .rasterizationSamples = wanted->samples ? wanted->samples : VK_SAMPLE_COUNT_1_BIT,
    };
    const VkPipelineDepthStencilStateCreateInfo no_depth = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_DEPTH_STENCIL_STATE_CREATE_INFO,
    };
    VkPipelineColorBlendAttachmentState plain[VKT_COLORS_MAX];
    for (size_t i = 0; i < VKT_COLORS_MAX; i++)
        plain[i] = vkt_overwrite();
    VkPipelineColorBlendStateCreateInfo blend = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO,
        .attachmentCount = wanted->colors ? wanted->colors : 1,
        .pAttachments = plain,
    };
    VkPipelineDynamicStateCreateInfo dynamic = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_DYNAMIC_STATE_CREATE_INFO,
        .dynamicStateCount = wanted->dynamic_count,
        .pDynamicStates = wanted->dynamic,
    };
    VkGraphicsPipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO,
        .pNext = wanted->next,
        .flags = wanted->flags,
        .stageCount = load_stages(wanted, stages),
        .pStages = stages,
        .pVertexInputState = wanted->vertices ? wanted->vertices : &no_vertices,
        .pInputAssemblyState = &assembly,
        .pTessellationState = wanted->patch_points ? &patches : NULL,
        .pViewportState = &viewports,
        .pRasterizationState = wanted->raster ? wanted->raster : &raster,
        .pMultisampleState = &multisample,
        .pDepthStencilState = wanted->depth ? wanted->depth : &no_depth,
        .pColorBlendState = wanted->blend ? wanted->blend : &blend,
        .pDynamicState = wanted->dynamic_count ? &dynamic : NULL,
        .layout = wanted->layout,
        .renderPass = wanted->pass,
        .subpass = wanted->subpass,
    };
    VkPipeline pipeline;
    VKT(vkCreateGraphicsPipelines(vkt.device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline));
    VKT_KEEP(PIPELINE, pipeline);
    return pipeline;
}
