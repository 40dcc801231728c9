/* passes.c - differential programs: render passes and dynamic rendering. */
#include "vkt_image.h"

struct push {
    float color[4];
    float depth;
};

static const VkImageLayout SRC = VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL,
                           COLOR = VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL,
                           DEPTH = VK_IMAGE_LAYOUT_DEPTH_STENCIL_ATTACHMENT_OPTIMAL;
static const VkRect2D AREA = {.extent = {VKT_TARGET_SIZE, VKT_TARGET_SIZE}};

static struct vkt_image attachment(VkFormat format, VkImageUsageFlags more, uint32_t layers)
{
    bool color = vkt_aspect(format) == VK_IMAGE_ASPECT_COLOR_BIT;
    return vkt_image((VkImageCreateInfo){
        .imageType = VK_IMAGE_TYPE_2D,
        .format = format,
        .extent = {VKT_TARGET_SIZE, VKT_TARGET_SIZE, 1},
        .arrayLayers = layers,
        .usage = more | (color ? VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT
                               : VK_IMAGE_USAGE_DEPTH_STENCIL_ATTACHMENT_BIT),
    });
}

static void draw(VkCommandBuffer command, VkPipeline pipeline, VkPipelineLayout layout,
                 struct push push)
{
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline);
    vkCmdPushConstants(command, layout, VK_SHADER_STAGE_ALL, 0, sizeof(push), &push);
    vkCmdDraw(command, 3, 1, 0, 0);
}

static VkFramebuffer framebuffer(VkRenderPass pass, uint32_t count, const VkImageView *views,
                                 uint32_t layers)
{
    VkFramebufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_FRAMEBUFFER_CREATE_INFO,
        .renderPass = pass,
        .attachmentCount = count,
        .pAttachments = views,
        .width = VKT_TARGET_SIZE,
        .height = VKT_TARGET_SIZE,
        .layers = layers,
    };
    VkFramebuffer made;
    VKT(vkCreateFramebuffer(vkt.device, &info, NULL, &made));
    VKT_KEEP(FRAMEBUFFER, made);
    return made;
}

static VkRenderPass render_pass(VkRenderPassCreateInfo info)
{
    info.sType = VK_STRUCTURE_TYPE_RENDER_PASS_CREATE_INFO;
    VkRenderPass pass;
    VKT(vkCreateRenderPass(vkt.device, &info, NULL, &pass));
    VKT_KEEP(RENDER_PASS, pass);
    return pass;
}

static const VkSubpassDependency AFTER = {
    .srcSubpass = 0,
    .dstSubpass = VK_SUBPASS_EXTERNAL,
    .srcStageMask = VK_PIPELINE_STAGE_ALL_GRAPHICS_BIT,
    .dstStageMask = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
    .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
    .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT,
};

static VkAttachmentDescription described(VkFormat format, VkAttachmentLoadOp load,
                                         VkImageLayout before)
{
    return (VkAttachmentDescription){
        .format = format,
        .samples = VK_SAMPLE_COUNT_1_BIT,
        .loadOp = load,
        .storeOp = VK_ATTACHMENT_STORE_OP_STORE,
        .stencilLoadOp = load,
        .stencilStoreOp = VK_ATTACHMENT_STORE_OP_STORE,
        .initialLayout = before,
        .finalLayout = SRC,
    };
}

/* --- render passes ---------------------------------------------------------------------------- */

static void only_clears(void)
{
    vkt_open();
    struct vkt_target target = vkt_target(VK_FORMAT_D32_SFLOAT, VK_SAMPLE_COUNT_1_BIT);
    VkCommandBuffer command = vkt_begin();
    vkt_target_begin(command, &target, VK_SUBPASS_CONTENTS_INLINE);
    vkCmdEndRenderPass(command);
    vkt_finish(command);
    vkt_out_target("target", &target);
}

static void clear_attachments(void)
{
    vkt_open();
    struct vkt_target target = vkt_target(VK_FORMAT_D32_SFLOAT_S8_UINT, VK_SAMPLE_COUNT_1_BIT);
    const VkClearAttachment clears[] = {
        {VK_IMAGE_ASPECT_COLOR_BIT, 0, {.color.float32 = {1, 0, 1, 0}}},
        {VK_IMAGE_ASPECT_DEPTH_BIT | VK_IMAGE_ASPECT_STENCIL_BIT, 0, {.depthStencil = {0.5f, 99}}}};
    const VkClearRect rects[] = {{{{2, 3}, {10, 5}}, 0, 1}, {{{20, 20}, {12, 12}}, 0, 1}};
    VkCommandBuffer command = vkt_begin();
    vkt_target_begin(command, &target, VK_SUBPASS_CONTENTS_INLINE);
    vkCmdClearAttachments(command, VKT_COUNT(clears), clears, VKT_COUNT(rects), rects);
    vkCmdEndRenderPass(command);
    vkt_finish(command);
    vkt_out_target("target", &target);
}

static void loaded(void)
{
    vkt_open();
    /* What was there is kept outside the render area and under what is drawn inside. */
    struct vkt_image image = attachment(VK_FORMAT_R8G8B8A8_UNORM, 0, 1);
    vkt_image_fill(&image, 5, SRC);
    VkAttachmentDescription kept =
        described(VK_FORMAT_R8G8B8A8_UNORM, VK_ATTACHMENT_LOAD_OP_LOAD, SRC);
    VkAttachmentReference reference = {0, COLOR};
    VkSubpassDescription subpass = {.colorAttachmentCount = 1, .pColorAttachments = &reference};
    const VkSubpassDependency before = {
        .srcSubpass = VK_SUBPASS_EXTERNAL,
        .srcStageMask = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
        .dstStageMask = VK_PIPELINE_STAGE_ALL_GRAPHICS_BIT,
        .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT,
    };
    VkRenderPass pass = render_pass((VkRenderPassCreateInfo){
        .attachmentCount = 1,
        .pAttachments = &kept,
        .subpassCount = 1,
        .pSubpasses = &subpass,
        .dependencyCount = 2,
        .pDependencies = (const VkSubpassDependency[]){before, AFTER},
    });
    VkPipelineLayout layout = vkt_layout(VK_NULL_HANDLE, sizeof(struct push));
    VkDynamicState dynamic = VK_DYNAMIC_STATE_SCISSOR;
    VkPipeline pipeline = vkt_pipeline(&(struct vkt_pipeline){
        .shaders = {"screen.vert", "pushed.frag"},
        .layout = layout,
        .pass = pass,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
        .dynamic_count = 1,
        .dynamic = &dynamic,
    });
    VkRenderPassBeginInfo begin = {
        .sType = VK_STRUCTURE_TYPE_RENDER_PASS_BEGIN_INFO,
        .renderPass = pass,
        .framebuffer = framebuffer(pass, 1, &image.view, 1),
        .renderArea = {{4, 4}, {20, 10}},
    };
    VkCommandBuffer command = vkt_begin();
    vkCmdBeginRenderPass(command, &begin, VK_SUBPASS_CONTENTS_INLINE);
    vkCmdSetScissor(command, 0, 1, &(VkRect2D){{6, 5}, {9, 9}});
    draw(command, pipeline, layout, (struct push){{0.2f, 0.9f, 0.1f, 1}, 0});
    vkCmdEndRenderPass(command);
    vkt_finish(command);
    vkt_out_image("image", &image, SRC);
}

/* Two subpasses: the second reads what the first drew at the same pixel. */
static VkRenderPass two_subpasses(void)
{
    const VkAttachmentDescription both[] = {
        described(VK_FORMAT_R8G8B8A8_UNORM, VK_ATTACHMENT_LOAD_OP_CLEAR, 0),
        described(VK_FORMAT_R8G8B8A8_UNORM, VK_ATTACHMENT_LOAD_OP_CLEAR, 0)};
    const VkAttachmentReference drawn = {0, COLOR},
                                read = {0, VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL},
                                last = {1, COLOR};
    const VkSubpassDescription subpasses[] = {
        {.colorAttachmentCount = 1, .pColorAttachments = &drawn},
        {.inputAttachmentCount = 1,
         .pInputAttachments = &read,
         .colorAttachmentCount = 1,
         .pColorAttachments = &last},
    };
    VkSubpassDependency after = AFTER;
    after.srcSubpass = 1;
    const VkSubpassDependency dependencies[] = {
        {0, 1, VK_PIPELINE_STAGE_COLOR_ATTACHMENT_OUTPUT_BIT, VK_PIPELINE_STAGE_FRAGMENT_SHADER_BIT,
         VK_ACCESS_COLOR_ATTACHMENT_WRITE_BIT, VK_ACCESS_INPUT_ATTACHMENT_READ_BIT,
         VK_DEPENDENCY_BY_REGION_BIT},
        AFTER,
        after,
    };
    return render_pass((VkRenderPassCreateInfo){
        .attachmentCount = 2,
        .pAttachments = both,
        .subpassCount = 2,
        .pSubpasses = subpasses,
        .dependencyCount = VKT_COUNT(dependencies),
        .pDependencies = dependencies,
    });
}

static void input_attachment(void)
{
    vkt_open();
    struct vkt_image first =
        attachment(VK_FORMAT_R8G8B8A8_UNORM, VK_IMAGE_USAGE_INPUT_ATTACHMENT_BIT, 1);
    struct vkt_image second = attachment(VK_FORMAT_R8G8B8A8_UNORM, 0, 1);
    VkRenderPass pass = two_subpasses();
    VkDescriptorSetLayout set_layout = vkt_set_layout("a", 0);
    VkDescriptorSet set = vkt_set(set_layout, "a");
    vkt_write_image(set, 0, vkt_type('a'), VK_NULL_HANDLE, first.view,
                    VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL);
    VkPipelineLayout layout = vkt_layout(set_layout, sizeof(struct push));
    struct vkt_pipeline wanted = {
        .shaders = {"screen.vert", "pushed.frag"},
        .layout = layout,
        .pass = pass,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
    };
    VkPipeline draws = vkt_pipeline(&wanted);
    wanted.shaders[1] = "fetch_input.frag";
    wanted.subpass = 1;
    VkPipeline reads = vkt_pipeline(&wanted);
    const VkClearValue clears[2] = {{.color.float32 = {0}}, {.color.float32 = {0}}};
    VkRenderPassBeginInfo begin = {
        .sType = VK_STRUCTURE_TYPE_RENDER_PASS_BEGIN_INFO,
        .renderPass = pass,
        .framebuffer = framebuffer(pass, 2, (const VkImageView[]){first.view, second.view}, 1),
        .renderArea = AREA,
        .clearValueCount = 2,
        .pClearValues = clears,
    };
    VkCommandBuffer command = vkt_begin();
    vkCmdBeginRenderPass(command, &begin, VK_SUBPASS_CONTENTS_INLINE);
    draw(command, draws, layout, (struct push){{0.3f, 0.6f, 0.9f, 1}, 0});
    vkCmdNextSubpass(command, VK_SUBPASS_CONTENTS_INLINE);
    vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_GRAPHICS, layout, 0, 1, &set, 0, NULL);
    draw(command, reads, layout, (struct push){{0}, 0});
    vkCmdEndRenderPass(command);
    vkt_finish(command);
    vkt_out_image("first", &first, SRC);
    vkt_out_image("second", &second, SRC);
}

static void multisampled(void)
{
    vkt_open();
    struct vkt_target target = vkt_target(VK_FORMAT_D32_SFLOAT, VK_SAMPLE_COUNT_4_BIT);
    VkPipelineLayout layout = vkt_layout(VK_NULL_HANDLE, sizeof(struct push));
    VkPipeline pipeline = vkt_pipeline(&(struct vkt_pipeline){
        .shaders = {"screen.vert", "pushed.frag"},
        .layout = layout,
        .pass = target.pass,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
        .samples = VK_SAMPLE_COUNT_4_BIT,
        .dynamic_count = 1,
        .dynamic = &(const VkDynamicState){VK_DYNAMIC_STATE_VIEWPORT},
    });
    VkCommandBuffer command = vkt_begin();
    vkt_target_begin(command, &target, VK_SUBPASS_CONTENTS_INLINE);
    /* A viewport that is no whole number of pixels gives edges to resolve. */
    vkCmdSetViewport(command, 0, 1, &(VkViewport){3.3f, 2.7f, 13.1f, 11.9f, 0, 1});
    draw(command, pipeline, layout, (struct push){{0.9f, 0.8f, 0.1f, 1}, 0.5f});
    vkCmdEndRenderPass(command);
    vkt_finish(command);
    vkt_out_target("resolved", &target);
}

static void two_attachments(void)
{
    vkt_open();
    struct vkt_image images[2] = {attachment(VK_FORMAT_R8G8B8A8_UNORM, 0, 1),
                                  attachment(VK_FORMAT_R32G32B32A32_SFLOAT, 0, 1)};
    const VkAttachmentDescription both[] = {
        described(VK_FORMAT_R8G8B8A8_UNORM, VK_ATTACHMENT_LOAD_OP_CLEAR, 0),
        described(VK_FORMAT_R32G32B32A32_SFLOAT, VK_ATTACHMENT_LOAD_OP_CLEAR, 0)};
    const VkAttachmentReference references[] = {{0, COLOR}, {1, COLOR}};
    VkSubpassDescription subpass = {.colorAttachmentCount = 2, .pColorAttachments = references};
    VkRenderPass pass = render_pass((VkRenderPassCreateInfo){
        .attachmentCount = 2,
        .pAttachments = both,
        .subpassCount = 1,
        .pSubpasses = &subpass,
        .dependencyCount = 1,
        .pDependencies = &AFTER,
    });
    VkPipelineLayout layout = vkt_layout(VK_NULL_HANDLE, sizeof(struct push));
    VkPipeline pipeline = vkt_pipeline(&(struct vkt_pipeline){
        .shaders = {"screen.vert", "two.frag"},
        .layout = layout,
        .pass = pass,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
        .colors = 2,
    });
    const VkClearValue clears[2] = {{.color.float32 = {0}}, {.color.float32 = {9, 9, 9, 9}}};
    VkRenderPassBeginInfo begin = {
        .sType = VK_STRUCTURE_TYPE_RENDER_PASS_BEGIN_INFO,
        .renderPass = pass,
        .framebuffer =
            framebuffer(pass, 2, (const VkImageView[]){images[0].view, images[1].view}, 1),
        .renderArea = AREA,
        .clearValueCount = 2,
        .pClearValues = clears,
    };
    VkCommandBuffer command = vkt_begin();
    vkCmdBeginRenderPass(command, &begin, VK_SUBPASS_CONTENTS_INLINE);
    draw(command, pipeline, layout, (struct push){{0.4f, 0.3f, 0.2f, 0.1f}, 0});
    vkCmdEndRenderPass(command);
    vkt_finish(command);
    vkt_out_image("first", &images[0], SRC);
    vkt_out_image("second", &images[1], SRC);
}

static VkRenderPass render_pass2(VkFormat format)
{
    VkAttachmentDescription2 description = {
        .sType = VK_STRUCTURE_TYPE_ATTACHMENT_DESCRIPTION_2,
        .format = format,
        .samples = VK_SAMPLE_COUNT_1_BIT,
        .loadOp = VK_ATTACHMENT_LOAD_OP_CLEAR,
        .storeOp = VK_ATTACHMENT_STORE_OP_STORE,
        .stencilLoadOp = VK_ATTACHMENT_LOAD_OP_DONT_CARE,
        .stencilStoreOp = VK_ATTACHMENT_STORE_OP_DONT_CARE,
        .finalLayout = SRC,
    };
    VkAttachmentReference2 reference = {VK_STRUCTURE_TYPE_ATTACHMENT_REFERENCE_2, NULL, 0, COLOR,
                                        VK_IMAGE_ASPECT_COLOR_BIT};
    VkSubpassDescription2 subpass = {.sType = VK_STRUCTURE_TYPE_SUBPASS_DESCRIPTION_2,
                                     .colorAttachmentCount = 1,
                                     .pColorAttachments = &reference};
    VkSubpassDependency2 after = {.sType = VK_STRUCTURE_TYPE_SUBPASS_DEPENDENCY_2,
                                  .dstSubpass = VK_SUBPASS_EXTERNAL,
                                  .srcStageMask = AFTER.srcStageMask,
                                  .dstStageMask = AFTER.dstStageMask,
                                  .srcAccessMask = AFTER.srcAccessMask,
                                  .dstAccessMask = AFTER.dstAccessMask};
    VkRenderPassCreateInfo2 info = {.sType = VK_STRUCTURE_TYPE_RENDER_PASS_CREATE_INFO_2,
                                    .attachmentCount = 1,
                                    .pAttachments = &description,
                                    .subpassCount = 1,
                                    .pSubpasses = &subpass,
                                    .dependencyCount = 1,
                                    .pDependencies = &after};
    VkRenderPass pass;
    VKT(vkCreateRenderPass2(vkt.device, &info, NULL, &pass));
    VKT_KEEP(RENDER_PASS, pass);
    return pass;
}

static VkFramebuffer imageless_framebuffer(VkRenderPass pass, const struct vkt_image *like)
{
    VkFramebufferAttachmentImageInfo image = {
        .sType = VK_STRUCTURE_TYPE_FRAMEBUFFER_ATTACHMENT_IMAGE_INFO,
        .usage = like->info.usage,
        .width = VKT_TARGET_SIZE,
        .height = VKT_TARGET_SIZE,
        .layerCount = 1,
        .viewFormatCount = 1,
        .pViewFormats = &like->info.format,
    };
    VkFramebufferAttachmentsCreateInfo shapes = {
        .sType = VK_STRUCTURE_TYPE_FRAMEBUFFER_ATTACHMENTS_CREATE_INFO,
        .attachmentImageInfoCount = 1,
        .pAttachmentImageInfos = &image,
    };
    VkFramebufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_FRAMEBUFFER_CREATE_INFO,
        .pNext = &shapes,
        .flags = VK_FRAMEBUFFER_CREATE_IMAGELESS_BIT,
        .renderPass = pass,
        .attachmentCount = 1,
        .pAttachments = (const VkImageView *)(uintptr_t)16, /* not read */
        .width = VKT_TARGET_SIZE,
        .height = VKT_TARGET_SIZE,
        .layers = 1,
    };
    VkFramebuffer made;
    VKT(vkCreateFramebuffer(vkt.device, &info, NULL, &made));
    VKT_KEEP(FRAMEBUFFER, made);
    return made;
}

static void imageless2(void)
{
    VKT_NEED(vkt.f12.imagelessFramebuffer);
    vkt_open();
    struct vkt_image image = attachment(VK_FORMAT_R8G8B8A8_UNORM, 0, 1);
    VkRenderPass pass = render_pass2(image.info.format);
    VkRenderPassAttachmentBeginInfo views = {
        .sType = VK_STRUCTURE_TYPE_RENDER_PASS_ATTACHMENT_BEGIN_INFO,
        .attachmentCount = 1,
        .pAttachments = &image.view,
    };
    const VkClearValue clear = {.color.float32 = {0.6f, 0.1f, 0.7f, 1}};
    VkRenderPassBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_RENDER_PASS_BEGIN_INFO,
                                   .pNext = &views,
                                   .renderPass = pass,
                                   .framebuffer = imageless_framebuffer(pass, &image),
                                   .renderArea = AREA,
                                   .clearValueCount = 1,
                                   .pClearValues = &clear};
    const VkSubpassBeginInfo contents = {VK_STRUCTURE_TYPE_SUBPASS_BEGIN_INFO, NULL,
                                         VK_SUBPASS_CONTENTS_INLINE};
    const VkSubpassEndInfo end = {VK_STRUCTURE_TYPE_SUBPASS_END_INFO, NULL};
    VkCommandBuffer command = vkt_begin();
    vkCmdBeginRenderPass2(command, &begin, &contents);
    vkCmdEndRenderPass2(command, &end);
    vkt_finish(command);
    vkt_out_image("image", &image, SRC);
    VkExtent2D granularity;
    vkGetRenderAreaGranularity(vkt.device, pass, &granularity);
    vkt_out("granularity", &granularity, sizeof(granularity));
    uint64_t exchanges = vkt_exchanges();
    VkExtent2D again;
    vkGetRenderAreaGranularity(vkt.device, pass, &again);
    VKT_EXPECT(again.width == granularity.width && again.height == granularity.height);
    VKT_EXPECT(vkt_exchanges() == exchanges); /* it was asked before */
}

static void multiview(void)
{
    VKT_NEED(vkt.f11.multiview);
    vkt_open();
    struct vkt_image image = attachment(VK_FORMAT_R8G8B8A8_UNORM, 0, 3);
    VkAttachmentDescription description =
        described(VK_FORMAT_R8G8B8A8_UNORM, VK_ATTACHMENT_LOAD_OP_CLEAR, 0);
    VkAttachmentReference reference = {0, COLOR};
    VkSubpassDescription subpass = {.colorAttachmentCount = 1, .pColorAttachments = &reference};
    const uint32_t mask = 5; /* the first and the third layer */
    VkRenderPassMultiviewCreateInfo views = {
        .sType = VK_STRUCTURE_TYPE_RENDER_PASS_MULTIVIEW_CREATE_INFO,
        .subpassCount = 1,
        .pViewMasks = &mask,
    };
    VkRenderPass pass = render_pass((VkRenderPassCreateInfo){
        .pNext = &views,
        .attachmentCount = 1,
        .pAttachments = &description,
        .subpassCount = 1,
        .pSubpasses = &subpass,
        .dependencyCount = 1,
        .pDependencies = &AFTER,
    });
    VkPipelineLayout layout = vkt_layout(VK_NULL_HANDLE, 0);
    VkPipeline pipeline = vkt_pipeline(&(struct vkt_pipeline){
        .shaders = {"view.vert", "shade.frag"},
        .layout = layout,
        .pass = pass,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
    });
    const VkClearValue clear = {.color.float32 = {0, 0, 1, 1}};
    VkRenderPassBeginInfo begin = {
        .sType = VK_STRUCTURE_TYPE_RENDER_PASS_BEGIN_INFO,
        .renderPass = pass,
        .framebuffer = framebuffer(pass, 1, &image.view, 1),
        .renderArea = AREA,
        .clearValueCount = 1,
        .pClearValues = &clear,
    };
    VkCommandBuffer command = vkt_begin();
    vkCmdBeginRenderPass(command, &begin, VK_SUBPASS_CONTENTS_INLINE);
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline);
    vkCmdDraw(command, 3, 1, 0, 0);
    vkCmdEndRenderPass(command);
    vkt_finish(command);
    for (uint32_t layer = 0; layer < 3; layer += 2) {
        struct vkt_buffer out = vkt_buffer(VKT_TARGET_SIZE * VKT_TARGET_SIZE * 4, 0, VKT_COHERENT);
        VkBufferImageCopy region = {
            .imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, layer, 1},
            .imageExtent = {VKT_TARGET_SIZE, VKT_TARGET_SIZE, 1},
        };
        command = vkt_begin();
        vkCmdCopyImageToBuffer(command, image.handle, SRC, out.handle, 1, &region);
        vkt_finish(command);
        vkt_out_buffer("layer", &out);
    }
}

/* --- secondary command buffers in a pass ------------------------------------------------------ */

static void secondary_in_pass(void)
{
    vkt_open();
    struct vkt_target target = vkt_target(VK_FORMAT_UNDEFINED, VK_SAMPLE_COUNT_1_BIT);
    VkPipelineLayout layout = vkt_layout(VK_NULL_HANDLE, sizeof(struct push));
    VkPipeline pipeline = vkt_pipeline(&(struct vkt_pipeline){
        .shaders = {"screen.vert", "pushed.frag"},
        .layout = layout,
        .pass = target.pass,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
    });
    VkCommandBufferInheritanceInfo inherit = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO,
        .renderPass = target.pass,
        .framebuffer = target.framebuffer,
    };
    VkCommandBufferBeginInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = VK_COMMAND_BUFFER_USAGE_RENDER_PASS_CONTINUE_BIT,
        .pInheritanceInfo = &inherit,
    };
    VkCommandBuffer part = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_SECONDARY);
    VKT(vkBeginCommandBuffer(part, &info));
    draw(part, pipeline, layout, (struct push){{0.1f, 0.5f, 0.9f, 1}, 0});
    VKT(vkEndCommandBuffer(part));
    VkCommandBuffer command = vkt_begin();
    vkt_target_begin(command, &target, VK_SUBPASS_CONTENTS_SECONDARY_COMMAND_BUFFERS);
    vkCmdExecuteCommands(command, 1, &part);
    vkCmdEndRenderPass(command);
    vkt_finish(command);
    vkt_out_target("target", &target);
}

/* --- dynamic rendering ------------------------------------------------------------------------ */

/* Colour and depth without a render pass. */
struct loose {
    struct vkt_image color, depth;
    VkPipelineRenderingCreateInfo formats;
    VkFormat color_format;
    VkPipelineLayout layout;
    VkPipeline pipeline;
};

/* Tests depth. */
static struct vkt_pipeline loose_wanted(const struct loose *loose)
{
    static const VkPipelineDepthStencilStateCreateInfo depth = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_DEPTH_STENCIL_STATE_CREATE_INFO,
        .depthTestEnable = VK_TRUE,
        .depthWriteEnable = VK_TRUE,
        .depthCompareOp = VK_COMPARE_OP_LESS,
    };
    return (struct vkt_pipeline){
        .shaders = {"screen.vert", "pushed.frag"},
        .layout = loose->layout,
        .next = &loose->formats,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
        .depth = &depth,
    };
}

static void loose_init(struct loose *loose)
{
    loose->color_format = VK_FORMAT_R8G8B8A8_UNORM;
    loose->color = attachment(loose->color_format, 0, 1);
    loose->depth = attachment(VK_FORMAT_D32_SFLOAT, 0, 1);
    loose->formats = (VkPipelineRenderingCreateInfo){
        .sType = VK_STRUCTURE_TYPE_PIPELINE_RENDERING_CREATE_INFO,
        .colorAttachmentCount = 1,
        .pColorAttachmentFormats = &loose->color_format,
        .depthAttachmentFormat = VK_FORMAT_D32_SFLOAT,
    };
    loose->layout = vkt_layout(VK_NULL_HANDLE, sizeof(struct push));
    struct vkt_pipeline wanted = loose_wanted(loose);
    loose->pipeline = vkt_pipeline(&wanted);
}

static void loose_begin(VkCommandBuffer command, const struct loose *loose, VkRenderingFlags flags)
{
    VkRenderingAttachmentInfo color = {
        .sType = VK_STRUCTURE_TYPE_RENDERING_ATTACHMENT_INFO,
        .imageView = loose->color.view,
        .imageLayout = COLOR,
        .loadOp = VK_ATTACHMENT_LOAD_OP_CLEAR,
        .storeOp = VK_ATTACHMENT_STORE_OP_STORE,
        .clearValue = {.color.float32 = {0.1f, 0.1f, 0.1f, 1}},
    };
    VkRenderingAttachmentInfo depth = color;
    depth.imageView = loose->depth.view;
    depth.imageLayout = DEPTH;
    depth.clearValue.depthStencil.depth = 0.75f;
    VkRenderingInfo info = {
        .sType = VK_STRUCTURE_TYPE_RENDERING_INFO,
        .flags = flags,
        .renderArea = AREA,
        .layerCount = 1,
        .colorAttachmentCount = 1,
        .pColorAttachments = &color,
        .pDepthAttachment = &depth,
    };
    vkCmdBeginRendering(command, &info);
}

static void loose_out(VkCommandBuffer command, const struct loose *loose)
{
    vkt_finish(command);
    vkt_out_image("color", &loose->color, COLOR);
    vkt_out_image("depth", &loose->depth, DEPTH);
}

static VkCommandBuffer loose_start(struct loose *loose)
{
    loose_init(loose);
    VkCommandBuffer command = vkt_begin();
    vkt_transition(command, &loose->color, VK_IMAGE_LAYOUT_UNDEFINED, COLOR);
    vkt_transition(command, &loose->depth, VK_IMAGE_LAYOUT_UNDEFINED, DEPTH);
    return command;
}

static VkCommandBuffer loose_prepare(struct loose *loose)
{
    VKT_NEED(vkt.f13.dynamicRendering);
    vkt_open();
    return loose_start(loose);
}

static void draw_in_front_and_behind(VkCommandBuffer command, const struct loose *loose)
{
    loose_begin(command, loose, 0);
    draw(command, loose->pipeline, loose->layout, (struct push){{1, 0, 0, 1}, 0.5f});
    draw(command, loose->pipeline, loose->layout, (struct push){{0, 1, 0, 1}, 0.6f}); /* hidden */
    vkCmdEndRendering(command);
    loose_out(command, loose);
}

static void dynamic_rendering(void)
{
    struct loose loose;
    VkCommandBuffer command = loose_prepare(&loose);
    draw_in_front_and_behind(command, &loose);
}

static VkPipeline loose_part(const struct loose *loose, VkGraphicsPipelineLibraryFlagsEXT which,
                             const VkPipelineRenderingCreateInfo *formats)
{
    const VkGraphicsPipelineLibraryCreateInfoEXT library = {
        .sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_LIBRARY_CREATE_INFO_EXT,
        .pNext = formats,
        .flags = which,
    };
    struct vkt_pipeline wanted = loose_wanted(loose);
    wanted.next = &library;
    wanted.flags = VK_PIPELINE_CREATE_LIBRARY_BIT_KHR;
    if (which == VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_OUTPUT_INTERFACE_BIT_EXT)
        wanted.shaders[0] = NULL;
    return vkt_pipeline(&wanted);
}

/* The part with the fragment shader tests depth; only that with the outputs states formats. */
static void linked_for_rendering(void)
{
    VkPhysicalDeviceGraphicsPipelineLibraryFeaturesEXT libraries = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_GRAPHICS_PIPELINE_LIBRARY_FEATURES_EXT};
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &libraries};
    vkGetPhysicalDeviceFeatures2(vkt.physical, &all);
    VKT_NEED(vkt.f13.dynamicRendering && libraries.graphicsPipelineLibrary);
    VKT_OPEN_WITH(&libraries, VK_KHR_PIPELINE_LIBRARY_EXTENSION_NAME,
                  VK_EXT_GRAPHICS_PIPELINE_LIBRARY_EXTENSION_NAME);
    struct loose loose;
    VkCommandBuffer command = loose_start(&loose);
    const VkPipelineRenderingCreateInfo none = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_RENDERING_CREATE_INFO};
    const VkPipeline parts[] = {
        loose_part(&loose,
                   VK_GRAPHICS_PIPELINE_LIBRARY_VERTEX_INPUT_INTERFACE_BIT_EXT |
                       VK_GRAPHICS_PIPELINE_LIBRARY_PRE_RASTERIZATION_SHADERS_BIT_EXT |
                       VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_SHADER_BIT_EXT,
                   &none),
        loose_part(&loose, VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_OUTPUT_INTERFACE_BIT_EXT,
                   &loose.formats),
    };
    VkPipelineLibraryCreateInfoKHR linked = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LIBRARY_CREATE_INFO_KHR,
        .libraryCount = VKT_COUNT(parts),
        .pLibraries = parts,
    };
    VkGraphicsPipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO,
        .pNext = &linked,
        .layout = loose.layout,
    };
    VKT(vkCreateGraphicsPipelines(vkt.device, VK_NULL_HANDLE, 1, &info, NULL, &loose.pipeline));
    VKT_KEEP(PIPELINE, loose.pipeline);
    draw_in_front_and_behind(command, &loose);
}

static void suspended(void)
{
    struct loose loose;
    VkCommandBuffer command = loose_prepare(&loose);
    loose_begin(command, &loose, VK_RENDERING_SUSPENDING_BIT);
    draw(command, loose.pipeline, loose.layout, (struct push){{1, 0, 0, 1}, 0.5f});
    vkCmdEndRendering(command);
    loose_begin(command, &loose, VK_RENDERING_RESUMING_BIT);
    draw(command, loose.pipeline, loose.layout, (struct push){{0, 0, 1, 1}, 0.25f});
    vkCmdEndRendering(command);
    loose_out(command, &loose);
}

static void secondary_in_rendering(void)
{
    struct loose loose;
    VkCommandBuffer command = loose_prepare(&loose);
    VkCommandBufferInheritanceRenderingInfo rendering = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_RENDERING_INFO,
        .colorAttachmentCount = 1,
        .pColorAttachmentFormats = &loose.color_format,
        .depthAttachmentFormat = VK_FORMAT_D32_SFLOAT,
        .rasterizationSamples = VK_SAMPLE_COUNT_1_BIT,
    };
    VkCommandBufferInheritanceInfo inherit = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO,
        .pNext = &rendering,
    };
    VkCommandBufferBeginInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = VK_COMMAND_BUFFER_USAGE_RENDER_PASS_CONTINUE_BIT,
        .pInheritanceInfo = &inherit,
    };
    VkCommandBuffer part = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_SECONDARY);
    VKT(vkBeginCommandBuffer(part, &info));
    draw(part, loose.pipeline, loose.layout, (struct push){{0.5f, 0.5f, 0, 1}, 0.125f});
    VKT(vkEndCommandBuffer(part));
    loose_begin(command, &loose, VK_RENDERING_CONTENTS_SECONDARY_COMMAND_BUFFERS_BIT);
    vkCmdExecuteCommands(command, 1, &part);
    vkCmdEndRendering(command);
    loose_out(command, &loose);
}

static const struct vkt_case cases[] = {
    {"only_clears", only_clears, NULL},
    {"clear_attachments", clear_attachments, NULL},
    {"loaded", loaded, NULL},
    {"input_attachment", input_attachment, NULL},
    {"multisampled", multisampled, NULL},
    {"two_attachments", two_attachments, NULL},
    {"imageless2", imageless2, NULL},
    {"multiview", multiview, NULL},
    {"secondary_in_pass", secondary_in_pass, NULL},
    {"dynamic_rendering", dynamic_rendering, NULL},
    {"linked_for_rendering", linked_for_rendering, NULL},
    {"suspended", suspended, NULL},
    {"secondary_in_rendering", secondary_in_rendering, NULL},
};

VKT_MAIN(cases)
