/* extensions.c - differential programs: device extensions that programs rely on. */
#include "vkt_image.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS = 256, BYTES = WORDS * 4, GROUPS = WORDS / 64 };

/* Fills `features` from the device; the chain is then what the device is opened with. */
static void ask(void *features)
{
    VkPhysicalDeviceFeatures2 all = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
        .pNext = features,
    };
    vkGetPhysicalDeviceFeatures2(vkt.physical, &all);
}

static void conditional_rendering(void)
{
    VkPhysicalDeviceConditionalRenderingFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_CONDITIONAL_RENDERING_FEATURES_EXT};
    ask(&features);
    VKT_NEED(features.conditionalRendering);
    VKT_OPEN_WITH(&features, VK_EXT_CONDITIONAL_RENDERING_EXTENSION_NAME);
    PFN_vkCmdBeginConditionalRenderingEXT begin = VKT_PROC(vkCmdBeginConditionalRenderingEXT);
    PFN_vkCmdEndConditionalRenderingEXT end = VKT_PROC(vkCmdEndConditionalRenderingEXT);
    struct vkt_buffer conditions =
        vkt_buffer(64, VK_BUFFER_USAGE_CONDITIONAL_RENDERING_BIT_EXT, VKT_COHERENT);
    memcpy(conditions.map, (const uint32_t[]){0, 1, 0, 7}, 16);
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = vkt_kernel("step.comp", "s", 4);
    vkt_kernel_bind(&kernel, 0, &out);
    VkCommandBuffer command = vkt_begin();
    for (uint32_t i = 0; i < 8; i++) {
        VkConditionalRenderingBeginInfoEXT info = {
            .sType = VK_STRUCTURE_TYPE_CONDITIONAL_RENDERING_BEGIN_INFO_EXT,
            .buffer = conditions.handle,
            .offset = i % 4 * 4,
            .flags = i < 4 ? 0 : VK_CONDITIONAL_RENDERING_INVERTED_BIT_EXT,
        };
        begin(command, &info);
        vkt_kernel_record(command, &kernel, &i, GROUPS);
        end(command);
    }
    vkt_finish(command);
    vkt_out_buffer("out", &out);
}

/* --- transform feedback ----------------------------------------------------------------------- */

static void capture(VkPipeline pipeline, const struct vkt_target *target,
                    const struct vkt_buffer *captured, const struct vkt_buffer *counter)
{
    PFN_vkCmdBindTransformFeedbackBuffersEXT bind = VKT_PROC(vkCmdBindTransformFeedbackBuffersEXT);
    PFN_vkCmdBeginTransformFeedbackEXT begin = VKT_PROC(vkCmdBeginTransformFeedbackEXT);
    PFN_vkCmdEndTransformFeedbackEXT end = VKT_PROC(vkCmdEndTransformFeedbackEXT);
    const VkDeviceSize start = 64, size = captured->size - 64;
    VkCommandBuffer command = vkt_begin();
    vkt_target_begin(command, target, VK_SUBPASS_CONTENTS_INLINE);
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline);
    bind(command, 0, 1, &captured->handle, &start, &size);
    begin(command, 0, 0, NULL, NULL);
    vkCmdDraw(command, 5, 2, 3, 0);
    end(command, 0, 1, &counter->handle, NULL);
    vkCmdEndRenderPass(command);
    vkt_finish(command);
}

static void transform_feedback(void)
{
    VkPhysicalDeviceTransformFeedbackFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TRANSFORM_FEEDBACK_FEATURES_EXT};
    ask(&features);
    VKT_NEED(features.transformFeedback);
    VKT_OPEN_WITH(&features, VK_EXT_TRANSFORM_FEEDBACK_EXTENSION_NAME);
    struct vkt_target target = vkt_target(VK_FORMAT_UNDEFINED, VK_SAMPLE_COUNT_1_BIT);
    struct vkt_buffer captured =
        vkt_buffer(1024, VK_BUFFER_USAGE_TRANSFORM_FEEDBACK_BUFFER_BIT_EXT, VKT_COHERENT);
    struct vkt_buffer counter =
        vkt_buffer(16, VK_BUFFER_USAGE_TRANSFORM_FEEDBACK_COUNTER_BUFFER_BIT_EXT, VKT_COHERENT);
    VkPipelineRasterizationStateCreateInfo raster = vkt_raster();
    raster.rasterizerDiscardEnable = VK_TRUE;
    VkPipeline pipeline = vkt_pipeline(&(struct vkt_pipeline){
        .shaders = {"capture.vert"},
        .layout = vkt_layout(VK_NULL_HANDLE, 0),
        .pass = target.pass,
        .topology = VK_PRIMITIVE_TOPOLOGY_POINT_LIST,
        .raster = &raster,
    });
    capture(pipeline, &target, &captured, &counter);
    vkt_out_buffer("captured", &captured);
    vkt_out_buffer("counter", &counter);
}

/* --- descriptors ------------------------------------------------------------------------------ */

static void null_descriptor(void)
{
    VkPhysicalDeviceRobustness2FeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ROBUSTNESS_2_FEATURES_EXT};
    ask(&features);
    VKT_NEED(features.nullDescriptor);
    VKT_OPEN_WITH(&features, VK_EXT_ROBUSTNESS_2_EXTENSION_NAME);
    /* Nothing is bound to the input: it has no length, and the output stays as it is. */
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    vkt_pattern(out.map, BYTES, 2);
    struct vkt_kernel kernel = vkt_kernel("mix.comp", "ss", 4);
    vkt_write_buffer(kernel.set, 0, vkt_type('s'), VK_NULL_HANDLE, 0, VK_WHOLE_SIZE);
    vkt_kernel_bind(&kernel, 1, &out);
    vkt_kernel_run(&kernel, &(const uint32_t){3}, GROUPS);
    vkt_out_buffer("out", &out);
}

static void custom_border(void)
{
    VkPhysicalDeviceCustomBorderColorFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_CUSTOM_BORDER_COLOR_FEATURES_EXT};
    ask(&features);
    VKT_NEED(features.customBorderColors);
    VKT_OPEN_WITH(&features, VK_EXT_CUSTOM_BORDER_COLOR_EXTENSION_NAME);
    VkSamplerCustomBorderColorCreateInfoEXT border = {
        .sType = VK_STRUCTURE_TYPE_SAMPLER_CUSTOM_BORDER_COLOR_CREATE_INFO_EXT,
        .customBorderColor = {.float32 = {0.1f, 0.2f, 0.3f, 0.4f}},
        .format = VK_FORMAT_R8G8B8A8_UNORM,
    };
    VkSamplerCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_SAMPLER_CREATE_INFO,
        .pNext = &border,
        .addressModeU = VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER,
        .addressModeV = VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER,
        .addressModeW = VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER,
        .borderColor = VK_BORDER_COLOR_FLOAT_CUSTOM_EXT,
    };
    VkSampler sampler;
    VKT(vkCreateSampler(vkt.device, &info, NULL, &sampler));
    VKT_KEEP(SAMPLER, sampler);
    struct vkt_image image =
        vkt_image_2d(VK_FORMAT_R8G8B8A8_UNORM, 8, 8, VK_IMAGE_USAGE_SAMPLED_BIT);
    vkt_image_fill(&image, 4, VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL);
    struct vkt_buffer out = vkt_storage(32 * 32 * 16, NULL);
    struct vkt_kernel kernel = vkt_kernel("sample.comp", "cs", 4);
    vkt_write_image(kernel.set, 0, vkt_type('c'), sampler, image.view,
                    VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL);
    vkt_write_buffer(kernel.set, 1, vkt_type('s'), out.handle, 0, VK_WHOLE_SIZE);
    vkt_kernel_run(&kernel, &(const float){0}, 4); /* the upper rows: mostly border */
    vkt_out_buffer("out", &out);
}

/* --- pipelines in parts ----------------------------------------------------------------------- */

struct push {
    float color[4];
    float depth;
};

/* One of the four parts of a graphics pipeline. */
static VkPipeline part(VkGraphicsPipelineLibraryFlagsEXT which, VkGraphicsPipelineCreateInfo info)
{
    VkGraphicsPipelineLibraryCreateInfoEXT library = {
        .sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_LIBRARY_CREATE_INFO_EXT,
        .flags = which,
    };
    info.sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO;
    info.pNext = &library;
    info.flags = VK_PIPELINE_CREATE_LIBRARY_BIT_KHR;
    VkPipeline made;
    VKT(vkCreateGraphicsPipelines(vkt.device, VK_NULL_HANDLE, 1, &info, NULL, &made));
    VKT_KEEP(PIPELINE, made);
    return made;
}

static VkPipelineShaderStageCreateInfo stage(VkShaderStageFlagBits which, const char *shader)
{
    return (VkPipelineShaderStageCreateInfo){
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
        .stage = which,
        .module = vkt_shader(shader),
        .pName = "main",
    };
}

/* The same with code in the module's place. */
static VkPipelineShaderStageCreateInfo inlined(VkShaderStageFlagBits which,
                                               const VkShaderModuleCreateInfo *code)
{
    return (VkPipelineShaderStageCreateInfo){
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
        .pNext = code,
        .stage = which,
        .pName = "main",
    };
}

static VkPipeline linked(const struct vkt_target *target, VkPipelineLayout layout,
                         VkPipelineShaderStageCreateInfo vertex,
                         VkPipelineShaderStageCreateInfo fragment)
{
    const VkPipelineVertexInputStateCreateInfo input = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_VERTEX_INPUT_STATE_CREATE_INFO};
    const VkPipelineInputAssemblyStateCreateInfo assembly = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_INPUT_ASSEMBLY_STATE_CREATE_INFO,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST};
    const VkViewport viewport = {0, 0, VKT_TARGET_SIZE, VKT_TARGET_SIZE / 2, 0, 1};
    const VkRect2D scissor = {.extent = {VKT_TARGET_SIZE, VKT_TARGET_SIZE}};
    const VkPipelineViewportStateCreateInfo views = {
        VK_STRUCTURE_TYPE_PIPELINE_VIEWPORT_STATE_CREATE_INFO, NULL, 0, 1, &viewport, 1, &scissor};
    const VkPipelineRasterizationStateCreateInfo raster = vkt_raster();
    const VkPipelineMultisampleStateCreateInfo samples = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_MULTISAMPLE_STATE_CREATE_INFO,
        .rasterizationSamples = VK_SAMPLE_COUNT_1_BIT};
    const VkPipelineColorBlendAttachmentState plain = vkt_overwrite();
    const VkPipelineColorBlendStateCreateInfo blend = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO,
        .attachmentCount = 1,
        .pAttachments = &plain};
    const VkPipeline parts[] = {
        part(VK_GRAPHICS_PIPELINE_LIBRARY_VERTEX_INPUT_INTERFACE_BIT_EXT,
             (VkGraphicsPipelineCreateInfo){.pVertexInputState = &input,
                                            .pInputAssemblyState = &assembly}),
        part(VK_GRAPHICS_PIPELINE_LIBRARY_PRE_RASTERIZATION_SHADERS_BIT_EXT,
             (VkGraphicsPipelineCreateInfo){.stageCount = 1,
                                            .pStages = &vertex,
                                            .pViewportState = &views,
                                            .pRasterizationState = &raster,
                                            .layout = layout,
                                            .renderPass = target->pass}),
        part(VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_SHADER_BIT_EXT,
             (VkGraphicsPipelineCreateInfo){.stageCount = 1,
                                            .pStages = &fragment,
                                            .pMultisampleState = &samples,
                                            .layout = layout,
                                            .renderPass = target->pass}),
        part(VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_OUTPUT_INTERFACE_BIT_EXT,
             (VkGraphicsPipelineCreateInfo){.pMultisampleState = &samples,
                                            .pColorBlendState = &blend,
                                            .renderPass = target->pass}),
    };
    VkPipelineLibraryCreateInfoKHR libraries = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LIBRARY_CREATE_INFO_KHR,
        .libraryCount = VKT_COUNT(parts),
        .pLibraries = parts,
    };
    VkGraphicsPipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO,
        .pNext = &libraries,
        .layout = layout,
    };
    VkPipeline made;
    VKT(vkCreateGraphicsPipelines(vkt.device, VK_NULL_HANDLE, 1, &info, NULL, &made));
    VKT_KEEP(PIPELINE, made);
    return made;
}

static void open_with_libraries(void)
{
    VkPhysicalDeviceGraphicsPipelineLibraryFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_GRAPHICS_PIPELINE_LIBRARY_FEATURES_EXT};
    ask(&features);
    VKT_NEED(features.graphicsPipelineLibrary);
    VKT_OPEN_WITH(&features, VK_KHR_PIPELINE_LIBRARY_EXTENSION_NAME,
                  VK_EXT_GRAPHICS_PIPELINE_LIBRARY_EXTENSION_NAME);
}

static void draw_with(VkPipeline pipeline, VkPipelineLayout layout, const struct vkt_target *target)
{
    const struct push push = {{0.9f, 0.1f, 0.4f, 1}, 0};
    VkCommandBuffer command = vkt_begin();
    vkt_target_begin(command, target, VK_SUBPASS_CONTENTS_INLINE);
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline);
    vkCmdPushConstants(command, layout, VK_SHADER_STAGE_ALL, 0, sizeof(push), &push);
    vkCmdDraw(command, 3, 1, 0, 0);
    vkCmdEndRenderPass(command);
    vkt_finish(command);
    vkt_out_target("target", target);
}

static void pipeline_library(void)
{
    open_with_libraries();
    struct vkt_target target = vkt_target(VK_FORMAT_UNDEFINED, VK_SAMPLE_COUNT_1_BIT);
    VkPipelineLayout layout = vkt_layout(VK_NULL_HANDLE, sizeof(struct push));
    VkPipeline pipeline = linked(&target, layout, stage(VK_SHADER_STAGE_VERTEX_BIT, "screen.vert"),
                                 stage(VK_SHADER_STAGE_FRAGMENT_BIT, "pushed.frag"));
    draw_with(pipeline, layout, &target);
}

/* Stages without modules: nobody waits for such pipelines either. */
static void inline_shaders(void)
{
    open_with_libraries();
    struct vkt_target target = vkt_target(VK_FORMAT_UNDEFINED, VK_SAMPLE_COUNT_1_BIT);
    VkPipelineLayout layout = vkt_layout(VK_NULL_HANDLE, sizeof(struct push));
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = vkt_kernel("fill.comp", "s", 8);
    vkt_kernel_bind(&kernel, 0, &out);
    VkShaderModuleCreateInfo codes[] = {vkt_code("screen.vert"), vkt_code("pushed.frag"),
                                        vkt_code("step.comp")};
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = inlined(VK_SHADER_STAGE_COMPUTE_BIT, &codes[2]),
        .layout = kernel.layout,
    };
    uint64_t exchanges = vkt_exchanges();
    VkPipeline pipeline = linked(&target, layout, inlined(VK_SHADER_STAGE_VERTEX_BIT, &codes[0]),
                                 inlined(VK_SHADER_STAGE_FRAGMENT_BIT, &codes[1]));
    VKT(vkCreateComputePipelines(vkt.device, VK_NULL_HANDLE, 1, &info, NULL, &kernel.pipeline));
    VKT_KEEP(PIPELINE, kernel.pipeline);
    VKT_EXPECT(getenv("VENUS_SYNC") || vkt_exchanges() == exchanges);
    for (size_t i = 0; i < VKT_COUNT(codes); i++)
        free((void *)codes[i].pCode);
    draw_with(pipeline, layout, &target);
    vkt_kernel_run(&kernel, (const uint32_t[]){1, 5}, GROUPS);
    vkt_out_buffer("out", &out);
}

/* --- names that programs ask for and need not use ----------------------------------------------
 */

/* Handles of another operating system: no driver here has them. */
static void ask_for_foreign_handles(void)
{
    VkPhysicalDeviceExternalBufferInfo about = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
        .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_BIT};
    VkExternalBufferProperties buffer = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES};
    vkGetPhysicalDeviceExternalBufferProperties(vkt.physical, &about, &buffer);
    vkt_out_u64("buffers", buffer.externalMemoryProperties.externalMemoryFeatures);
    VkPhysicalDeviceExternalSemaphoreInfo semaphore = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_SEMAPHORE_INFO,
        .handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32_BIT};
    VkExternalSemaphoreProperties semaphores = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_PROPERTIES};
    vkGetPhysicalDeviceExternalSemaphoreProperties(vkt.physical, &semaphore, &semaphores);
    vkt_out_u64("semaphores", semaphores.externalSemaphoreFeatures);
    VkPhysicalDeviceExternalFenceInfo fence = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_FENCE_INFO,
        .handleType = VK_EXTERNAL_FENCE_HANDLE_TYPE_OPAQUE_WIN32_BIT};
    VkExternalFenceProperties fences = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_FENCE_PROPERTIES};
    vkGetPhysicalDeviceExternalFenceProperties(vkt.physical, &fence, &fences);
    vkt_out_u64("fences", fences.externalFenceFeatures);
    VkPhysicalDeviceExternalImageFormatInfo external = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_IMAGE_FORMAT_INFO,
        .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_BIT};
    VkPhysicalDeviceImageFormatInfo2 image = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_IMAGE_FORMAT_INFO_2,
        .pNext = &external,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .type = VK_IMAGE_TYPE_2D,
        .tiling = VK_IMAGE_TILING_OPTIMAL,
        .usage = VK_IMAGE_USAGE_SAMPLED_BIT};
    VkExternalImageFormatProperties images = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_IMAGE_FORMAT_PROPERTIES};
    VkImageFormatProperties2 found = {.sType = VK_STRUCTURE_TYPE_IMAGE_FORMAT_PROPERTIES_2,
                                      .pNext = &images};
    (void)vkGetPhysicalDeviceImageFormatProperties2(vkt.physical, &image, &found);
    vkt_out_u64("images", images.externalMemoryProperties.externalMemoryFeatures);
}

/* A buffer, its memory, a semaphore and a fence that may be exported as nothing. */
static void external_names(void)
{
    VKT_OPEN_WITH(NULL, VK_KHR_EXTERNAL_MEMORY_EXTENSION_NAME,
                  VK_KHR_EXTERNAL_SEMAPHORE_EXTENSION_NAME, VK_KHR_EXTERNAL_FENCE_EXTENSION_NAME,
                  VK_EXT_QUEUE_FAMILY_FOREIGN_EXTENSION_NAME);
    ask_for_foreign_handles();
    VkExternalMemoryBufferCreateInfo no_handles = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO};
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .pNext = &no_handles,
                               .size = BYTES,
                               .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkBuffer buffer;
    VKT(vkCreateBuffer(vkt.device, &info, NULL, &buffer));
    VKT_KEEP(BUFFER, buffer);
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(vkt.device, buffer, &needs);
    VkExportMemoryAllocateInfo export = {.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO};
    VkMemoryAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                     .pNext = &export,
                                     .allocationSize = needs.size,
                                     .memoryTypeIndex =
                                         vkt_memory_type(needs.memoryTypeBits, VKT_DEVICE)};
    VkDeviceMemory memory;
    VKT(vkAllocateMemory(vkt.device, &allocate, NULL, &memory));
    VKT_KEEP(DEVICE_MEMORY, memory);
    VKT(vkBindBufferMemory(vkt.device, buffer, memory, 0));
    VkExportSemaphoreCreateInfo export_semaphore = {
        .sType = VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO};
    VkSemaphoreCreateInfo semaphore_info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                            .pNext = &export_semaphore};
    VkSemaphore semaphore;
    VKT(vkCreateSemaphore(vkt.device, &semaphore_info, NULL, &semaphore));
    VKT_KEEP(SEMAPHORE, semaphore);
    VkExportFenceCreateInfo export_fence = {.sType = VK_STRUCTURE_TYPE_EXPORT_FENCE_CREATE_INFO};
    VkFenceCreateInfo fence_info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO,
                                    .pNext = &export_fence};
    VkFence fence;
    VKT(vkCreateFence(vkt.device, &fence_info, NULL, &fence));
    VKT_KEEP(FENCE, fence);
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, buffer, 0, BYTES, 0x600dcafe);
    VkMemoryBarrier written = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                               .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                               .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT};
    vkCmdPipelineBarrier(command, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0,
                         1, &written, 0, NULL, 0, NULL);
    vkCmdCopyBuffer(command, buffer, out.handle, 1, &(VkBufferCopy){0, 0, BYTES});
    VKT(vkEndCommandBuffer(command));
    VkPipelineStageFlags all = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkSubmitInfo submits[] = {{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .commandBufferCount = 1,
                               .pCommandBuffers = &command,
                               .signalSemaphoreCount = 1,
                               .pSignalSemaphores = &semaphore},
                              {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .waitSemaphoreCount = 1,
                               .pWaitSemaphores = &semaphore,
                               .pWaitDstStageMask = &all}};
    VKT(vkQueueSubmit(vkt.queue, 2, submits, fence));
    vkt_wait(fence);
    vkt_out_buffer("out", &out);
}

/* Hidden unless asked for: features and extension must agree. */
static void descriptor_buffer_is_consistent(void)
{
    VkPhysicalDeviceDescriptorBufferFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DESCRIPTOR_BUFFER_FEATURES_EXT};
    ask(&features);
    VKT_EXPECT(features.descriptorBuffer ==
               vkt_has_extension(VK_EXT_DESCRIPTOR_BUFFER_EXTENSION_NAME));
    vkt_out_u64("consistent", 1);
}

/* --- copies by the host ------------------------------------------------------------------------
 */

#define YOUNGER "the layer may be older than the extension"

#ifdef VK_EXT_host_image_copy

static void open_host_copies(void)
{
    static VkPhysicalDeviceHostImageCopyFeaturesEXT features;
    features = (VkPhysicalDeviceHostImageCopyFeaturesEXT){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_HOST_IMAGE_COPY_FEATURES_EXT};
    VKT_NEED(vkt_has_extension(VK_EXT_HOST_IMAGE_COPY_EXTENSION_NAME));
    ask(&features);
    VKT_NEED(features.hostImageCopy);
    VKT_OPEN_WITH(&features, VK_EXT_HOST_IMAGE_COPY_EXTENSION_NAME);
}

static struct vkt_image host_image(VkImageCreateInfo info)
{
    info.usage |= VK_IMAGE_USAGE_HOST_TRANSFER_BIT_EXT | VK_IMAGE_USAGE_SAMPLED_BIT;
    return vkt_image(info);
}

static void host_transition(const struct vkt_image *image, VkImageLayout from, VkImageLayout to)
{
    VkHostImageLayoutTransitionInfoEXT info = {
        .sType = VK_STRUCTURE_TYPE_HOST_IMAGE_LAYOUT_TRANSITION_INFO_EXT,
        .image = image->handle,
        .oldLayout = from,
        .newLayout = to,
        .subresourceRange = vkt_range(image)};
    VKT(VKT_PROC(vkTransitionImageLayoutEXT)(vkt.device, 1, &info));
}

/* What a copy takes of an image: a part of one level, in memory with gaps. */
struct place {
    VkImageSubresourceLayers layers;
    VkOffset3D offset;
    VkExtent3D extent;
    uint32_t row, height;
    VkHostImageCopyFlagsEXT flags;
};

static void host_write(const struct vkt_image *image, const struct place *p, const void *bytes)
{
    VkMemoryToImageCopyEXT copy = {.sType = VK_STRUCTURE_TYPE_MEMORY_TO_IMAGE_COPY_EXT,
                                   .pHostPointer = bytes,
                                   .memoryRowLength = p->row,
                                   .memoryImageHeight = p->height,
                                   .imageSubresource = p->layers,
                                   .imageOffset = p->offset,
                                   .imageExtent = p->extent};
    VkCopyMemoryToImageInfoEXT info = {.sType = VK_STRUCTURE_TYPE_COPY_MEMORY_TO_IMAGE_INFO_EXT,
                                       .flags = p->flags,
                                       .dstImage = image->handle,
                                       .dstImageLayout = VK_IMAGE_LAYOUT_GENERAL,
                                       .regionCount = 1,
                                       .pRegions = &copy};
    VKT(VKT_PROC(vkCopyMemoryToImageEXT)(vkt.device, &info));
}

static void host_read(const struct vkt_image *image, const struct place *p, void *bytes)
{
    VkImageToMemoryCopyEXT copy = {.sType = VK_STRUCTURE_TYPE_IMAGE_TO_MEMORY_COPY_EXT,
                                   .pHostPointer = bytes,
                                   .memoryRowLength = p->row,
                                   .memoryImageHeight = p->height,
                                   .imageSubresource = p->layers,
                                   .imageOffset = p->offset,
                                   .imageExtent = p->extent};
    VkCopyImageToMemoryInfoEXT info = {.sType = VK_STRUCTURE_TYPE_COPY_IMAGE_TO_MEMORY_INFO_EXT,
                                       .flags = p->flags,
                                       .srcImage = image->handle,
                                       .srcImageLayout = VK_IMAGE_LAYOUT_GENERAL,
                                       .regionCount = 1,
                                       .pRegions = &copy};
    VKT(VKT_PROC(vkCopyImageToMemoryEXT)(vkt.device, &info));
}

static void *scratch(size_t bytes)
{
    void *made = calloc(1, bytes);
    VKT_EXPECT(made != NULL);
    return made;
}

/* Written by the host, read by the device; and a part of it by the host, into memory with gaps. */
static void host_copy_one(const char *name, VkImageCreateInfo info, uint32_t block_bytes,
                          uint32_t block, VkImageAspectFlags aspect)
{
    struct vkt_image image = host_image(info);
    host_transition(&image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL);
    VkExtent3D all = image.info.extent;
    uint32_t layers = image.info.arrayLayers, gap = 3 * block;
    struct place whole = {.layers = {aspect, 0, 0, layers},
                          .extent = all,
                          .row = (all.width + block - 1) / block * block + gap,
                          .height = (all.height + block - 1) / block * block + block};
    size_t bytes =
        (size_t)(whole.row / block) * (whole.height / block) * all.depth * layers * block_bytes;
    uint8_t *memory = scratch(bytes);
    vkt_pattern(memory, bytes / 4 * 4, block_bytes);
    if (aspect == VK_IMAGE_ASPECT_DEPTH_BIT) { /* floats between 0 and 1 stay as they are */
        for (size_t i = 0; i + 4 <= bytes; i += 4)
            memcpy(memory + i, &(float){(float)(i % 1021) / 1024.0f}, 4);
    }
    host_write(&image, &whole, memory);
    struct place part = whole;
    part.offset = (VkOffset3D){(int32_t)block, (int32_t)block, all.depth > 1};
    part.extent =
        (VkExtent3D){all.width - block, all.height - block, all.depth > 1 ? all.depth - 1 : 1};
    memset(memory, 0xee, bytes);
    host_read(&image, &part, memory);
    vkt_out(name, memory, bytes);
    if (aspect != VK_IMAGE_ASPECT_STENCIL_BIT && aspect != VK_IMAGE_ASPECT_DEPTH_BIT)
        vkt_out_image(name, &image, VK_IMAGE_LAYOUT_GENERAL);
    free(memory);
}

static void host_copies(void)
{
    open_host_copies();
    const VkImageAspectFlags color = VK_IMAGE_ASPECT_COLOR_BIT;
    host_copy_one("small",
                  (VkImageCreateInfo){.format = VK_FORMAT_R8G8B8A8_UNORM, .extent = {13, 7, 1}}, 4,
                  1, color);
    host_copy_one("bytes", (VkImageCreateInfo){.format = VK_FORMAT_R8_UNORM, .extent = {61, 9, 1}},
                  1, 1, color);
    host_copy_one(
        "rows",
        (VkImageCreateInfo){.format = VK_FORMAT_R32G32B32A32_SFLOAT, .extent = {301, 257, 1}}, 16,
        1, color);
    host_copy_one("layers",
                  (VkImageCreateInfo){.format = VK_FORMAT_R8G8B8A8_UNORM,
                                      .extent = {100, 100, 1},
                                      .arrayLayers = 9},
                  4, 1, color);
    host_copy_one("slices",
                  (VkImageCreateInfo){.imageType = VK_IMAGE_TYPE_3D,
                                      .format = VK_FORMAT_R8G8B8A8_UNORM,
                                      .extent = {40, 40, 50}},
                  4, 1, color);
    if (vkt_format_has(VK_FORMAT_BC1_RGB_UNORM_BLOCK, VK_FORMAT_FEATURE_SAMPLED_IMAGE_BIT))
        host_copy_one(
            "blocks",
            (VkImageCreateInfo){.format = VK_FORMAT_BC1_RGB_UNORM_BLOCK, .extent = {60, 36, 1}}, 8,
            4, color);
    host_copy_one("depth",
                  (VkImageCreateInfo){.format = VK_FORMAT_D32_SFLOAT, .extent = {33, 17, 1}}, 4, 1,
                  VK_IMAGE_ASPECT_DEPTH_BIT);
}

/* In the layout of MEMCPY, which is the driver's own: what is read so can be written so. */
static void host_copy_memcpy(void)
{
    open_host_copies();
    VkImageCreateInfo info = {.format = VK_FORMAT_R8G8B8A8_UNORM, .extent = {70, 30, 1}};
    struct vkt_image from = host_image(info), to = host_image(info);
    vkt_image_fill(&from, 5, VK_IMAGE_LAYOUT_GENERAL);
    host_transition(&to, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL);
    VkSubresourceHostMemcpySizeEXT size = {.sType =
                                               VK_STRUCTURE_TYPE_SUBRESOURCE_HOST_MEMCPY_SIZE_EXT};
    VkSubresourceLayout2EXT layout = {.sType = VK_STRUCTURE_TYPE_SUBRESOURCE_LAYOUT_2_EXT,
                                      .pNext = &size};
    VkImageSubresource2EXT subresource = {.sType = VK_STRUCTURE_TYPE_IMAGE_SUBRESOURCE_2_EXT,
                                          .imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0}};
    VKT_PROC(vkGetImageSubresourceLayout2EXT)(vkt.device, from.handle, &subresource, &layout);
    VKT_EXPECT(size.size >= 70 * 30 * 4);
    struct place all = {.layers = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
                        .extent = info.extent,
                        .flags = VK_HOST_IMAGE_COPY_MEMCPY_EXT};
    void *memory = scratch((size_t)size.size);
    host_read(&from, &all, memory);
    host_write(&to, &all, memory);
    free(memory);
    vkt_out_image("to", &to, VK_IMAGE_LAYOUT_GENERAL);
    VkImageCopy2 copy = {.sType = VK_STRUCTURE_TYPE_IMAGE_COPY_2,
                         .srcSubresource = all.layers,
                         .srcOffset = {10, 3, 0},
                         .dstSubresource = all.layers,
                         .dstOffset = {0, 20, 0},
                         .extent = {50, 9, 1}};
    VkCopyImageToImageInfoEXT image_copy = {.sType = VK_STRUCTURE_TYPE_COPY_IMAGE_TO_IMAGE_INFO_EXT,
                                            .srcImage = from.handle,
                                            .srcImageLayout = VK_IMAGE_LAYOUT_GENERAL,
                                            .dstImage = to.handle,
                                            .dstImageLayout = VK_IMAGE_LAYOUT_GENERAL,
                                            .regionCount = 1,
                                            .pRegions = &copy};
    VKT(VKT_PROC(vkCopyImageToImageEXT)(vkt.device, &image_copy));
    vkt_out_image("both", &to, VK_IMAGE_LAYOUT_GENERAL);
}

/* Between the host's copies and the host's own accesses to an image in mapped memory, which rewrite
 * all of it. */
static void host_copy_mapped(void)
{
    enum { SIDE = 256, ROW = SIDE * 4, ALL = SIDE * ROW };
    open_host_copies();
    struct vkt_image image = host_image((VkImageCreateInfo){.format = VK_FORMAT_R8G8B8A8_UNORM,
                                                            .extent = {SIDE, SIDE, 1},
                                                            .tiling = VK_IMAGE_TILING_LINEAR});
    VkSubresourceLayout layout;
    vkGetImageSubresourceLayout(vkt.device, image.handle,
                                &(VkImageSubresource){VK_IMAGE_ASPECT_COLOR_BIT, 0, 0}, &layout);
    uint8_t *map;
    VKT(vkMapMemory(vkt.device, image.memory, 0, VK_WHOLE_SIZE, 0, (void **)&map));
    map += layout.offset;
    host_transition(&image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL);
    struct place all = {.layers = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
                        .extent = image.info.extent};
    uint8_t *pixels = scratch(ALL), *back = scratch(ALL);
    for (uint32_t turn = 0; turn < 6; turn++) {
        vkt_pattern(pixels, ALL, 2 * turn);
        host_write(&image, &all, pixels);
        for (size_t y = 0; y < SIDE; y++)
            VKT_EXPECT(memcmp(map + y * layout.rowPitch, pixels + y * ROW, ROW) == 0);
        vkt_pattern(pixels, ALL, 2 * turn + 1);
        for (size_t y = 0; y < SIDE; y++)
            memcpy(map + y * layout.rowPitch, pixels + y * ROW, ROW);
        host_read(&image, &all, back);
        VKT_EXPECT(memcmp(back, pixels, ALL) == 0);
    }
    free(pixels);
    free(back);
    vkt_out_image("image", &image, VK_IMAGE_LAYOUT_GENERAL);
}

/* A fence may be reported before the device is done, where the host can see nothing of its work. */
static void host_copy_behind_work(void)
{
    enum { SIDE = 256, TURNS = 12 };
    open_host_copies();
    struct vkt_image image = host_image(
        (VkImageCreateInfo){.format = VK_FORMAT_R8G8B8A8_UNORM, .extent = {SIDE, SIDE, 1}});
    host_transition(&image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_GENERAL);
    struct place corner = {.layers = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1}, .extent = {4, 4, 1}};
    VkImageSubresourceRange range = vkt_range(&image);
    for (uint32_t turn = 1; turn <= TURNS; turn++) {
        VkClearColorValue value = {.float32 = {(float)turn / 255.0f, 0.0f, 1.0f, 1.0f}};
        VkCommandBuffer command = vkt_begin();
        for (int i = 0; i < 8; i++) {
            vkCmdClearColorImage(command, image.handle, VK_IMAGE_LAYOUT_GENERAL, &value, 1, &range);
            vkt_barrier(command);
        }
        vkt_finish(command);
        uint8_t pixels[64];
        host_read(&image, &corner, pixels);
        for (size_t i = 0; i < sizeof(pixels); i += 4)
            VKT_EXPECT(pixels[i] == turn && pixels[i + 2] == 255);
        memset(pixels, (int)(200 + turn), sizeof(pixels));
        host_write(&image, &corner, pixels);
    }
    vkt_out_image("image", &image, VK_IMAGE_LAYOUT_GENERAL);
}

/* The layouts that it works with, and that the arrays of both structures are filled as asked. */
static void host_copy_layouts(void)
{
    VKT_NEED(vkt_has_extension(VK_EXT_HOST_IMAGE_COPY_EXTENSION_NAME));
    VkPhysicalDeviceHostImageCopyPropertiesEXT host = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_HOST_IMAGE_COPY_PROPERTIES_EXT};
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                       .pNext = &host};
    vkGetPhysicalDeviceProperties2(vkt.physical, &all);
    vkt_out_u64("src", host.copySrcLayoutCount);
    vkt_out_u64("dst", host.copyDstLayoutCount);
    vkt_out_u64("identical", host.identicalMemoryTypeRequirements);
    VkImageLayout src[64] = {0}, dst[64] = {0};
    VKT_EXPECT(host.copySrcLayoutCount > 1 && host.copySrcLayoutCount <= VKT_COUNT(src) &&
               host.copyDstLayoutCount <= VKT_COUNT(dst));
    host.pCopySrcLayouts = src;
    host.pCopyDstLayouts = dst;
    host.copySrcLayoutCount--;
    vkGetPhysicalDeviceProperties2(vkt.physical, &all);
    vkt_out_u64("src", host.copySrcLayoutCount);
    vkt_out("layouts", src, sizeof(src));
    vkt_out("layouts", dst, sizeof(dst));
#ifdef VK_VERSION_1_4
    VkPhysicalDeviceVulkan14Properties core = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_4_PROPERTIES};
    all.pNext = &core;
    VKT_NEED(vkt.props.apiVersion >= VK_API_VERSION_1_4);
    vkGetPhysicalDeviceProperties2(vkt.physical, &all);
    vkt_out_u64("src", core.copySrcLayoutCount);
    vkt_out_u64("dst", core.copyDstLayoutCount);
#endif
}

#endif

#ifdef VK_KHR_maintenance5
/* Of an image or of one to come: asked for once. */
static void subresource_layouts(void)
{
    VkPhysicalDeviceMaintenance5FeaturesKHR features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_5_FEATURES_KHR,
        .maintenance5 = VK_TRUE};
    VKT_NEED(vkt_has_extension(VK_KHR_MAINTENANCE_5_EXTENSION_NAME));
    VKT_OPEN_WITH(&features, VK_KHR_MAINTENANCE_5_EXTENSION_NAME);
    uint64_t exchanges = 0;
    for (uint32_t i = 0; i < 4; i++) {
        VkImageCreateInfo info = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                                  .imageType = VK_IMAGE_TYPE_2D,
                                  .format = VK_FORMAT_R8G8B8A8_UNORM,
                                  .extent = {33 + 100 * (i % 2), 5, 1},
                                  .mipLevels = 1,
                                  .arrayLayers = 1,
                                  .samples = VK_SAMPLE_COUNT_1_BIT,
                                  .tiling = VK_IMAGE_TILING_LINEAR,
                                  .usage = VK_IMAGE_USAGE_TRANSFER_SRC_BIT};
        VkImage image;
        VKT(vkCreateImage(vkt.device, &info, NULL, &image));
        VKT_KEEP(IMAGE, image);
        VkImageSubresource2KHR part = {.sType = VK_STRUCTURE_TYPE_IMAGE_SUBRESOURCE_2_KHR,
                                       .imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0}};
        VkDeviceImageSubresourceInfoKHR planned = {
            .sType = VK_STRUCTURE_TYPE_DEVICE_IMAGE_SUBRESOURCE_INFO_KHR,
            .pCreateInfo = &info,
            .pSubresource = &part};
        VkSubresourceLayout2KHR layout = {.sType = VK_STRUCTURE_TYPE_SUBRESOURCE_LAYOUT_2_KHR},
                                again = layout;
        VKT_PROC(vkGetDeviceImageSubresourceLayoutKHR)(vkt.device, &planned, &layout);
        VKT_PROC(vkGetImageSubresourceLayout2KHR)(vkt.device, image, &part, &again);
        vkt_out("planned", &layout.subresourceLayout, sizeof(layout.subresourceLayout));
        vkt_out("created", &again.subresourceLayout, sizeof(again.subresourceLayout));
        if (i == 1)
            exchanges = vkt_exchanges();
    }
    VKT_EXPECT(getenv("VENUS_SYNC") || vkt_exchanges() == exchanges);
}

/* Usages that are chained: from the second buffer on nobody waits for what it needs, nor for its
 * address. */
static void usage_flags(void)
{
    VkPhysicalDeviceMaintenance5FeaturesKHR features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_5_FEATURES_KHR,
        .maintenance5 = VK_TRUE};
    VKT_NEED(vkt_has_extension(VK_KHR_MAINTENANCE_5_EXTENSION_NAME));
    VKT_NEED(vkt.f12.bufferDeviceAddress);
    VKT_OPEN_WITH(&features, VK_KHR_MAINTENANCE_5_EXTENSION_NAME);
    struct vkt_buffer memory =
        vkt_buffer(1 << 20, VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT, VKT_DEVICE);
    for (uint32_t i = 0; i < 3; i++) {
        VkBufferUsageFlags2CreateInfoKHR usage = {
            .sType = VK_STRUCTURE_TYPE_BUFFER_USAGE_FLAGS_2_CREATE_INFO_KHR,
            .usage =
                VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
        VkBufferCreateInfo info = {
            .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .pNext = &usage, .size = 1000};
        uint64_t exchanges = vkt_exchanges();
        VkBuffer buffer;
        VKT(vkCreateBuffer(vkt.device, &info, NULL, &buffer));
        VKT_KEEP(BUFFER, buffer);
        VkMemoryRequirements needs;
        vkGetBufferMemoryRequirements(vkt.device, buffer, &needs);
        vkt_out_u64("size", needs.size);
        vkt_out_u64("alignment", needs.alignment);
        VKT(vkBindBufferMemory(vkt.device, buffer, memory.memory, i * needs.alignment));
        VkBufferDeviceAddressInfo at[] = {
            {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = memory.handle},
            {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = buffer}};
        VKT_EXPECT(vkGetBufferDeviceAddress(vkt.device, &at[1]) ==
                   vkGetBufferDeviceAddress(vkt.device, &at[0]) + i * needs.alignment);
        VKT_EXPECT(i == 0 || getenv("VENUS_SYNC") || vkt_exchanges() == exchanges);
    }
}

static void granularity(void)
{
    VkPhysicalDeviceMaintenance5FeaturesKHR features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_5_FEATURES_KHR,
        .maintenance5 = VK_TRUE};
    VKT_NEED(vkt_has_extension(VK_KHR_MAINTENANCE_5_EXTENSION_NAME));
    VKT_OPEN_WITH(&features, VK_KHR_MAINTENANCE_5_EXTENSION_NAME);
    PFN_vkGetRenderingAreaGranularityKHR get = VKT_PROC(vkGetRenderingAreaGranularityKHR);
    const VkFormat formats[] = {VK_FORMAT_R8G8B8A8_UNORM, VK_FORMAT_R16G16B16A16_SFLOAT};
    uint64_t exchanges = 0;
    for (uint32_t i = 0; i < 4; i++) {
        VkRenderingAreaInfoKHR info = {.sType = VK_STRUCTURE_TYPE_RENDERING_AREA_INFO_KHR,
                                       .colorAttachmentCount = 1 + i % 2,
                                       .pColorAttachmentFormats = formats};
        VkExtent2D granularity;
        get(vkt.device, &info, &granularity);
        vkt_out("granularity", &granularity, sizeof(granularity));
        if (i == 1)
            exchanges = vkt_exchanges();
    }
    VKT_EXPECT(vkt_exchanges() == exchanges); /* both were asked before */
}
#endif

static const struct vkt_case cases[] = {
    {"conditional_rendering", conditional_rendering, NULL},
    {"transform_feedback", transform_feedback, NULL},
    {"null_descriptor", null_descriptor, NULL},
    {"custom_border", custom_border, NULL},
    {"pipeline_library", pipeline_library, NULL},
    {"inline_shaders", inline_shaders, NULL},
    {"external_names", external_names, NULL},
    {"descriptor_buffer_is_consistent", descriptor_buffer_is_consistent, NULL},
#ifdef VK_EXT_host_image_copy
    {"host_copies", host_copies, YOUNGER},
    {"host_copy_memcpy", host_copy_memcpy, YOUNGER},
    {"host_copy_mapped", host_copy_mapped, YOUNGER},
    {"host_copy_behind_work", host_copy_behind_work, YOUNGER},
    {"host_copy_layouts", host_copy_layouts, YOUNGER},
#endif
#ifdef VK_KHR_maintenance5
    {"subresource_layouts", subresource_layouts, YOUNGER},
    {"usage_flags", usage_flags, YOUNGER},
    {"granularity", granularity, YOUNGER},
#endif
};

VKT_MAIN(cases)
