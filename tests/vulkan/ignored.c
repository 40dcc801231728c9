/* ignored.c - differential programs: garbage where Vulkan says that it is ignored. */
#include "vkt_image.h"

#include <string.h>

/* Whoever follows it ends the process. */
#define GARBAGE ((void *)(uintptr_t)16)

static void families(void)
{
    vkt_open();
    VkBufferCreateInfo buffer_info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                      .size = 1024,
                                      .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT,
                                      .sharingMode = VK_SHARING_MODE_EXCLUSIVE,
                                      .queueFamilyIndexCount = UINT32_MAX,
                                      .pQueueFamilyIndices = GARBAGE};
    VkBuffer buffer;
    VkResult result = vkCreateBuffer(vkt.device, &buffer_info, NULL, &buffer);
    vkt_out_result("buffer", result);
    if (result == VK_SUCCESS)
        VKT_KEEP(BUFFER, buffer);
    VkImageCreateInfo image_info = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                                    .imageType = VK_IMAGE_TYPE_2D,
                                    .format = VK_FORMAT_R8G8B8A8_UNORM,
                                    .extent = {16, 16, 1},
                                    .mipLevels = 1,
                                    .arrayLayers = 1,
                                    .samples = VK_SAMPLE_COUNT_1_BIT,
                                    .usage = VK_IMAGE_USAGE_TRANSFER_DST_BIT,
                                    .queueFamilyIndexCount = UINT32_MAX,
                                    .pQueueFamilyIndices = GARBAGE};
    VkImage image;
    result = vkCreateImage(vkt.device, &image_info, NULL, &image);
    vkt_out_result("image", result);
    if (result == VK_SUCCESS)
        VKT_KEEP(IMAGE, image);
}

/* --- drawing ---------------------------------------------------------------------------------- */

struct push {
    float color[4];
    float depth;
};

static const VkRect2D AREA = {.extent = {VKT_TARGET_SIZE, VKT_TARGET_SIZE}};
static const VkImageLayout COLOR = VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL;

static void draw(VkCommandBuffer command, VkPipeline pipeline, VkPipelineLayout layout)
{
    const struct push push = {{0.25f, 0.5f, 0.75f, 0.5f}, 0.5f};
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline);
    vkCmdPushConstants(command, layout, VK_SHADER_STAGE_ALL, 0, sizeof(push), &push);
    vkCmdDraw(command, 3, 1, 0, 0);
}

/* A render pass says what the formats are. */
static void formats(void)
{
    vkt_open();
    struct vkt_target target = vkt_target(VK_FORMAT_UNDEFINED, VK_SAMPLE_COUNT_1_BIT);
    VkPipelineRenderingCreateInfo rendering = {.sType =
                                                   VK_STRUCTURE_TYPE_PIPELINE_RENDERING_CREATE_INFO,
                                               .colorAttachmentCount = 3,
                                               .pColorAttachmentFormats = GARBAGE};
    struct vkt_pipeline wanted = {.shaders = {"screen.vert", "pushed.frag"},
                                  .layout = vkt_layout(VK_NULL_HANDLE, sizeof(struct push)),
                                  .pass = target.pass,
                                  .next = &rendering,
                                  .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST};
    VkPipeline pipeline = vkt_pipeline(&wanted);
    VkCommandBuffer command = vkt_begin();
    vkt_target_begin(command, &target, VK_SUBPASS_CONTENTS_INLINE);
    draw(command, pipeline, wanted.layout);
    vkCmdEndRenderPass(command);
    vkt_finish(command);
    vkt_out_target("target", &target);
}

struct loose {
    struct vkt_image color;
    VkFormat format;
    VkPipelineLayout layout;
    VkPipeline pipeline;
};

static struct loose loose(void)
{
    VKT_NEED(vkt.f13.dynamicRendering);
    vkt_open();
    struct loose made = {.format = VK_FORMAT_R8G8B8A8_UNORM,
                         .layout = vkt_layout(VK_NULL_HANDLE, sizeof(struct push))};
    made.color = vkt_image_2d(made.format, VKT_TARGET_SIZE, VKT_TARGET_SIZE,
                              VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT);
    VkPipelineRenderingCreateInfo rendering = {.sType =
                                                   VK_STRUCTURE_TYPE_PIPELINE_RENDERING_CREATE_INFO,
                                               .colorAttachmentCount = 1,
                                               .pColorAttachmentFormats = &made.format};
    made.pipeline = vkt_pipeline(&(struct vkt_pipeline){
        .shaders = {"screen.vert", "pushed.frag"},
        .layout = made.layout,
        .next = &rendering,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
    });
    return made;
}

/* Of an attachment without a view nothing else is read. */
static void resolve(void)
{
    struct loose l = loose();
    VkRenderingAttachmentInfo attachment = {.sType = VK_STRUCTURE_TYPE_RENDERING_ATTACHMENT_INFO,
                                            .imageView = l.color.view,
                                            .imageLayout = COLOR,
                                            .loadOp = VK_ATTACHMENT_LOAD_OP_CLEAR,
                                            .storeOp = VK_ATTACHMENT_STORE_OP_STORE,
                                            .resolveImageView = GARBAGE};
    VkRenderingAttachmentInfo none = {.sType = VK_STRUCTURE_TYPE_RENDERING_ATTACHMENT_INFO,
                                      .resolveMode = VK_RESOLVE_MODE_SAMPLE_ZERO_BIT,
                                      .resolveImageView = GARBAGE};
    VkRenderingInfo info = {.sType = VK_STRUCTURE_TYPE_RENDERING_INFO,
                            .renderArea = AREA,
                            .layerCount = 1,
                            .colorAttachmentCount = 1,
                            .pColorAttachments = &attachment,
                            .pDepthAttachment = &none,
                            .pStencilAttachment = &none};
    VkCommandBuffer command = vkt_begin();
    vkt_transition(command, &l.color, VK_IMAGE_LAYOUT_UNDEFINED, COLOR);
    vkCmdBeginRendering(command, &info);
    draw(command, l.pipeline, l.layout);
    vkCmdEndRendering(command);
    vkt_finish(command);
    vkt_out_image("color", &l.color, COLOR);
}

/* What a command buffer inherits is read inside render passes only. */
static void inheritance(void)
{
    vkt_open();
    struct vkt_buffer buffer = vkt_buffer(1024, 0, VKT_COHERENT);
    VkCommandBufferInheritanceRenderingInfo rendering = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_RENDERING_INFO,
        .colorAttachmentCount = UINT32_MAX,
        .pColorAttachmentFormats = GARBAGE};
    VkCommandBufferInheritanceInfo inherit = {.sType =
                                                  VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO,
                                              .pNext = &rendering,
                                              .renderPass = GARBAGE,
                                              .framebuffer = GARBAGE};
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                     .pInheritanceInfo = &inherit};
    VkCommandBuffer part = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_SECONDARY);
    VKT(vkBeginCommandBuffer(part, &info));
    vkCmdFillBuffer(part, buffer.handle, 0, VK_WHOLE_SIZE, 0x12345678);
    VKT(vkEndCommandBuffer(part));
    VkCommandBuffer command = vkt_begin();
    vkCmdExecuteCommands(command, 1, &part);
    vkt_barrier(command);
    vkt_finish(command);
    vkt_out_buffer("filled", &buffer);
}

/* Blend state that is dynamic as a whole. */
static void blending(const VkPipelineColorBlendAttachmentState *attachments)
{
    VkPhysicalDeviceExtendedDynamicState3FeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTENDED_DYNAMIC_STATE_3_FEATURES_EXT,
        .extendedDynamicState3ColorBlendEnable = VK_TRUE,
        .extendedDynamicState3ColorBlendEquation = VK_TRUE,
        .extendedDynamicState3ColorWriteMask = VK_TRUE};
    VKT_OPEN_WITH(&features, VK_EXT_EXTENDED_DYNAMIC_STATE_3_EXTENSION_NAME);
    struct vkt_target target = vkt_target(VK_FORMAT_UNDEFINED, VK_SAMPLE_COUNT_1_BIT);
    const VkDynamicState dynamic[] = {VK_DYNAMIC_STATE_COLOR_BLEND_ENABLE_EXT,
                                      VK_DYNAMIC_STATE_COLOR_BLEND_EQUATION_EXT,
                                      VK_DYNAMIC_STATE_COLOR_WRITE_MASK_EXT};
    const VkPipelineColorBlendStateCreateInfo blend = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO,
        .attachmentCount = 1,
        .pAttachments = attachments};
    struct vkt_pipeline wanted = {.shaders = {"screen.vert", "pushed.frag"},
                                  .layout = vkt_layout(VK_NULL_HANDLE, sizeof(struct push)),
                                  .pass = target.pass,
                                  .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
                                  .blend = &blend,
                                  .dynamic_count = VKT_COUNT(dynamic),
                                  .dynamic = dynamic};
    VkPipeline pipeline = vkt_pipeline(&wanted);
    const VkBool32 enable = VK_TRUE;
    const VkColorBlendEquationEXT equation = {.srcColorBlendFactor = VK_BLEND_FACTOR_SRC_ALPHA,
                                              .dstColorBlendFactor =
                                                  VK_BLEND_FACTOR_ONE_MINUS_SRC_ALPHA,
                                              .srcAlphaBlendFactor = VK_BLEND_FACTOR_ONE};
    const VkColorComponentFlags mask = VK_COLOR_COMPONENT_R_BIT | VK_COLOR_COMPONENT_A_BIT;
    VkCommandBuffer command = vkt_begin();
    vkt_target_begin(command, &target, VK_SUBPASS_CONTENTS_INLINE);
    VKT_PROC(vkCmdSetColorBlendEnableEXT)(command, 0, 1, &enable);
    VKT_PROC(vkCmdSetColorBlendEquationEXT)(command, 0, 1, &equation);
    VKT_PROC(vkCmdSetColorWriteMaskEXT)(command, 0, 1, &mask);
    draw(command, pipeline, wanted.layout);
    vkCmdEndRenderPass(command);
    vkt_finish(command);
    vkt_out_target("target", &target);
}

static void blend_stated(void)
{
    const VkPipelineColorBlendAttachmentState stated = {.colorWriteMask = 15};
    blending(&stated);
}

static void blend_garbage(void)
{
    blending(GARBAGE);
}

/* The enables are valid though they are dynamic: NVIDIA 580 reads them. */
static void write_enables(void)
{
    VkPhysicalDeviceColorWriteEnableFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COLOR_WRITE_ENABLE_FEATURES_EXT,
        .colorWriteEnable = VK_TRUE};
    VKT_OPEN_WITH(&features, VK_EXT_COLOR_WRITE_ENABLE_EXTENSION_NAME);
    struct vkt_target target = vkt_target(VK_FORMAT_UNDEFINED, VK_SAMPLE_COUNT_1_BIT);
    const VkDynamicState dynamic = VK_DYNAMIC_STATE_COLOR_WRITE_ENABLE_EXT;
    const VkBool32 stated = VK_FALSE, enable = VK_TRUE;
    const VkPipelineColorBlendAttachmentState attachment = vkt_overwrite();
    const VkPipelineColorWriteCreateInfoEXT writes = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_COLOR_WRITE_CREATE_INFO_EXT,
        .attachmentCount = 1,
        .pColorWriteEnables = &stated};
    const VkPipelineColorBlendStateCreateInfo blend = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO,
        .pNext = &writes,
        .attachmentCount = 1,
        .pAttachments = &attachment};
    struct vkt_pipeline wanted = {.shaders = {"screen.vert", "pushed.frag"},
                                  .layout = vkt_layout(VK_NULL_HANDLE, sizeof(struct push)),
                                  .pass = target.pass,
                                  .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
                                  .blend = &blend,
                                  .dynamic_count = 1,
                                  .dynamic = &dynamic};
    VkPipeline pipeline = vkt_pipeline(&wanted);
    VkCommandBuffer command = vkt_begin();
    vkt_target_begin(command, &target, VK_SUBPASS_CONTENTS_INLINE);
    VKT_PROC(vkCmdSetColorWriteEnableEXT)(command, 1, &enable);
    draw(command, pipeline, wanted.layout);
    vkCmdEndRenderPass(command);
    vkt_finish(command);
    vkt_out_target("target", &target);
}

static const struct vkt_case cases[] = {
    {"families", families, NULL},
    {"formats", formats, "legal, but layers of 1.3.239 read the pointer"},
    {"resolve", resolve, "legal, but layers of 1.3.239 look the view up"},
    {"inheritance", inheritance, "legal, but layers of 1.3.239 read the pointer"},
    {"blend_stated", blend_stated, NULL},
    {"blend_garbage", blend_garbage, "legal, but layers of 1.3.239 read the pointer"},
    {"write_enables", write_enables, NULL},
};

VKT_MAIN(cases)
