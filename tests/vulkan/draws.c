/* draws.c - differential programs: draws, the state around them and every graphics stage. */
#include "vkt_image.h"

#include <string.h>

struct vertex {
    float position[3];
    float color[4];
};

static const struct vertex vertices[] = {
    {{-0.9f, -0.9f, 0.1f}, {1, 0, 0, 1}},    {{0.7f, -0.8f, 0.3f}, {0, 1, 0, 1}},
    {{-0.6f, 0.8f, 0.5f}, {0, 0, 1, 1}},     {{0.9f, 0.6f, 0.7f}, {1, 1, 0, 0.5f}},
    {{0.2f, 0.95f, 0.2f}, {1, 0, 1, 0.25f}}, {{-0.1f, -0.2f, 0.9f}, {0, 1, 1, 0.75f}},
};
static const float offsets[][2] = {{0, 0}, {0.3f, -0.2f}, {-0.5f, 0.1f}};
static const uint16_t indices[] = {0, 1, 2, 2, 1, 3, 0xffff, 3, 4, 5};

static const VkVertexInputBindingDescription bindings[] = {
    {0, sizeof(struct vertex), VK_VERTEX_INPUT_RATE_VERTEX},
    {1, sizeof(offsets[0]), VK_VERTEX_INPUT_RATE_INSTANCE},
};
static const VkVertexInputAttributeDescription attributes[] = {
    {0, 0, VK_FORMAT_R32G32B32_SFLOAT, offsetof(struct vertex, position)},
    {1, 0, VK_FORMAT_R32G32B32A32_SFLOAT, offsetof(struct vertex, color)},
    {2, 1, VK_FORMAT_R32G32_SFLOAT, 0},
};
static const VkPipelineVertexInputStateCreateInfo vertex_input = {
    .sType = VK_STRUCTURE_TYPE_PIPELINE_VERTEX_INPUT_STATE_CREATE_INFO,
    .vertexBindingDescriptionCount = VKT_COUNT(bindings),
    .pVertexBindingDescriptions = bindings,
    .vertexAttributeDescriptionCount = VKT_COUNT(attributes),
    .pVertexAttributeDescriptions = attributes,
};

/* A target, the buffers and a pipeline that a case may change before it is made. */
struct scene {
    struct vkt_target target;
    struct vkt_buffer mesh, instances, index, arguments;
    struct vkt_pipeline wanted;
};

/* Of the device that is open. */
static struct scene scene_here(VkFormat depth_format)
{
    struct scene made = {
        .target = vkt_target(depth_format, VK_SAMPLE_COUNT_1_BIT),
        .mesh = vkt_buffer(sizeof(vertices), VK_BUFFER_USAGE_VERTEX_BUFFER_BIT, VKT_COHERENT),
        .instances = vkt_buffer(sizeof(offsets), VK_BUFFER_USAGE_VERTEX_BUFFER_BIT, VKT_COHERENT),
        .index = vkt_buffer(256, VK_BUFFER_USAGE_INDEX_BUFFER_BIT, VKT_COHERENT),
        .arguments = vkt_buffer(256, VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT, VKT_COHERENT),
    };
    memcpy(made.mesh.map, vertices, sizeof(vertices));
    memcpy(made.instances.map, offsets, sizeof(offsets));
    memcpy(made.index.map, indices, sizeof(indices));
    made.wanted = (struct vkt_pipeline){
        .shaders = {"mesh.vert", "shade.frag"},
        .layout = vkt_layout(VK_NULL_HANDLE, 0),
        .pass = made.target.pass,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
        .vertices = &vertex_input,
    };
    return made;
}

static struct scene scene(VkFormat depth_format)
{
    vkt_open();
    return scene_here(depth_format);
}

static VkCommandBuffer scene_begin(const struct scene *scene)
{
    VkCommandBuffer command = vkt_begin();
    vkt_target_begin(command, &scene->target, VK_SUBPASS_CONTENTS_INLINE);
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_GRAPHICS, vkt_pipeline(&scene->wanted));
    const VkBuffer buffers[] = {scene->mesh.handle, scene->instances.handle};
    const VkDeviceSize starts[] = {0, 0};
    vkCmdBindVertexBuffers(command, 0, 2, buffers, starts);
    vkCmdBindIndexBuffer(command, scene->index.handle, 0, VK_INDEX_TYPE_UINT16);
    return command;
}

static void scene_end(VkCommandBuffer command, const struct scene *scene)
{
    vkCmdEndRenderPass(command);
    vkt_finish(command);
    vkt_out_target("target", &scene->target);
}

/* --- kinds of draws --------------------------------------------------------------------------- */

static void plain(void)
{
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    VkCommandBuffer command = scene_begin(&s);
    vkCmdDraw(command, 3, 1, 0, 0);
    vkCmdDraw(command, 3, 1, 3, 1);
    scene_end(command, &s);
}

static void instanced(void)
{
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    VkCommandBuffer command = scene_begin(&s);
    vkCmdDraw(command, 3, 2, 2, 1);
    scene_end(command, &s);
}

static void indexed(void)
{
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    VkCommandBuffer command = scene_begin(&s);
    vkCmdDrawIndexed(command, 6, 1, 0, 0, 0);
    vkCmdDrawIndexed(command, 3, 1, 0, 2, 2); /* a vertex offset */
    scene_end(command, &s);
}

static void indexed_wide(void)
{
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    const uint32_t wide[] = {5, 4, 3, 1, 2, 3};
    memcpy((char *)s.index.map + 64, wide, sizeof(wide));
    VkCommandBuffer command = scene_begin(&s);
    vkCmdBindIndexBuffer(command, s.index.handle, 64, VK_INDEX_TYPE_UINT32);
    vkCmdDrawIndexed(command, 6, 1, 0, 0, 0);
    scene_end(command, &s);
}

static void indirect(void)
{
    VKT_NEED(vkt.f10.multiDrawIndirect);
    VKT_NEED(vkt.f10.drawIndirectFirstInstance);
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    const VkDrawIndirectCommand draws[] = {{3, 1, 0, 0}, {3, 2, 3, 1}};
    const VkDrawIndexedIndirectCommand indexed_draw = {3, 1, 3, 1, 2};
    memcpy((char *)s.arguments.map + 16, draws, sizeof(draws));
    memcpy((char *)s.arguments.map + 128, &indexed_draw, sizeof(indexed_draw));
    VkCommandBuffer command = scene_begin(&s);
    vkCmdDrawIndirect(command, s.arguments.handle, 16, 2, sizeof(draws[0]));
    vkCmdDrawIndexedIndirect(command, s.arguments.handle, 128, 1, 0);
    scene_end(command, &s);
}

static void indirect_count(void)
{
    VKT_NEED(vkt.f12.drawIndirectCount);
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    const VkDrawIndirectCommand draws[] = {{3, 1, 0, 0}, {3, 1, 1, 0}, {3, 1, 3, 0}};
    const uint32_t count = 2;
    memcpy(s.arguments.map, draws, sizeof(draws));
    memcpy((char *)s.arguments.map + 200, &count, sizeof(count));
    VkCommandBuffer command = scene_begin(&s);
    vkCmdDrawIndirectCount(command, s.arguments.handle, 0, s.arguments.handle, 200, 3,
                           sizeof(draws[0]));
    scene_end(command, &s);
}

/* --- topologies ------------------------------------------------------------------------------- */

static void draw_topology(VkPrimitiveTopology topology)
{
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    s.wanted.topology = topology;
    VkCommandBuffer command = scene_begin(&s);
    vkCmdDraw(command, 6, 1, 0, 0);
    scene_end(command, &s);
}

/* Draws that the program keeps in larger structures of its own, with a stride to step over them. */
struct own_draw {
    uint32_t before;
    union {
        VkMultiDrawInfoEXT plain;
        VkMultiDrawIndexedInfoEXT indexed;
    };
    uint32_t behind[4];
};

static struct scene multi_scene(void)
{
    VkPhysicalDeviceMultiDrawFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MULTI_DRAW_FEATURES_EXT, .multiDraw = VK_TRUE};
    VKT_OPEN_WITH(&features, VK_EXT_MULTI_DRAW_EXTENSION_NAME);
    return scene_here(VK_FORMAT_UNDEFINED);
}

static void multi_draw(void)
{
    struct scene s = multi_scene();
    PFN_vkCmdDrawMultiEXT draw = VKT_PROC(vkCmdDrawMultiEXT);
    const struct own_draw wide[] = {{.before = 9, .plain = {0, 3}, .behind = {8, 8, 8, 8}},
                                    {.before = 9, .plain = {2, 3}, .behind = {8, 8, 8, 8}},
                                    {.before = 9, .plain = {3, 3}, .behind = {8, 8, 8, 8}}};
    const VkMultiDrawInfoEXT narrow[] = {{1, 3}, {3, 3}};
    VkCommandBuffer command = scene_begin(&s);
    draw(command, VKT_COUNT(wide), &wide[0].plain, 1, 0, sizeof(wide[0]));
    draw(command, VKT_COUNT(narrow), narrow, 1, 1, sizeof(narrow[0]));
    draw(command, 1, &wide[1].plain, 2, 1, 0);
    draw(command, 0, NULL, 1, 0, sizeof(narrow[0]));
    scene_end(command, &s);
}

static void multi_draw_indexed(void)
{
    struct scene s = multi_scene();
    PFN_vkCmdDrawMultiIndexedEXT draw = VKT_PROC(vkCmdDrawMultiIndexedEXT);
    const struct own_draw wide[] = {{.before = 9, .indexed = {0, 3, 0}, .behind = {8, 8, 8, 8}},
                                    {.before = 9, .indexed = {3, 3, 1}, .behind = {8, 8, 8, 8}},
                                    {.before = 9, .indexed = {7, 3, 0}, .behind = {8, 8, 8, 8}}};
    const VkMultiDrawIndexedInfoEXT narrow[] = {{0, 3, 2}, {3, 3, 0}};
    const int32_t offset = 1;
    VkCommandBuffer command = scene_begin(&s);
    draw(command, VKT_COUNT(wide), &wide[0].indexed, 1, 0, sizeof(wide[0]), NULL);
    draw(command, VKT_COUNT(narrow), narrow, 1, 1, sizeof(narrow[0]), NULL);
    draw(command, VKT_COUNT(wide), &wide[0].indexed, 1, 2, sizeof(wide[0]), &offset);
    scene_end(command, &s);
}

static void points(void)
{
    VKT_NEED(vkt.f10.largePoints);
    draw_topology(VK_PRIMITIVE_TOPOLOGY_POINT_LIST);
}

static void lines(void)
{
    draw_topology(VK_PRIMITIVE_TOPOLOGY_LINE_LIST);
}

static void line_strip(void)
{
    draw_topology(VK_PRIMITIVE_TOPOLOGY_LINE_STRIP);
}

static void triangle_strip(void)
{
    draw_topology(VK_PRIMITIVE_TOPOLOGY_TRIANGLE_STRIP);
}

static void triangle_fan(void)
{
    draw_topology(VK_PRIMITIVE_TOPOLOGY_TRIANGLE_FAN);
}

static void restart(void)
{
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    s.wanted.topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_STRIP;
    s.wanted.restart = true;
    VkCommandBuffer command = scene_begin(&s);
    vkCmdDrawIndexed(command, VKT_COUNT(indices), 1, 0, 0, 0);
    scene_end(command, &s);
}

/* --- rasterisation and output state ----------------------------------------------------------- */

static void wireframe(void)
{
    VKT_NEED(vkt.f10.fillModeNonSolid);
    VKT_NEED(vkt.f10.wideLines);
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    VkPipelineRasterizationStateCreateInfo raster = vkt_raster();
    raster.polygonMode = VK_POLYGON_MODE_LINE;
    raster.lineWidth = 2.0f;
    s.wanted.raster = &raster;
    VkCommandBuffer command = scene_begin(&s);
    vkCmdDraw(command, 6, 1, 0, 0);
    scene_end(command, &s);
}

static void culled(void)
{
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    VkPipelineRasterizationStateCreateInfo raster = vkt_raster();
    raster.cullMode = VK_CULL_MODE_BACK_BIT;
    raster.frontFace = VK_FRONT_FACE_CLOCKWISE;
    s.wanted.raster = &raster;
    VkCommandBuffer command = scene_begin(&s);
    vkCmdDraw(command, 3, 1, 1, 0); /* faces away */
    vkCmdDraw(command, 3, 1, 3, 0);
    scene_end(command, &s);
}

static void blended(void)
{
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    VkPipelineColorBlendAttachmentState over = vkt_overwrite();
    over.blendEnable = VK_TRUE;
    over.srcColorBlendFactor = VK_BLEND_FACTOR_CONSTANT_COLOR;
    over.dstColorBlendFactor = VK_BLEND_FACTOR_ONE_MINUS_SRC_ALPHA;
    over.colorBlendOp = VK_BLEND_OP_ADD;
    over.srcAlphaBlendFactor = VK_BLEND_FACTOR_ONE;
    over.dstAlphaBlendFactor = VK_BLEND_FACTOR_DST_ALPHA;
    over.alphaBlendOp = VK_BLEND_OP_REVERSE_SUBTRACT;
    over.colorWriteMask &= ~(VkColorComponentFlags)VK_COLOR_COMPONENT_G_BIT;
    VkPipelineColorBlendStateCreateInfo blend = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO,
        .attachmentCount = 1,
        .pAttachments = &over,
    };
    s.wanted.blend = &blend;
    s.wanted.dynamic_count = 1;
    s.wanted.dynamic = &(const VkDynamicState){VK_DYNAMIC_STATE_BLEND_CONSTANTS};
    VkCommandBuffer command = scene_begin(&s);
    vkCmdSetBlendConstants(command, (const float[4]){0.9f, 0.8f, 0.7f, 0.6f});
    vkCmdDraw(command, 6, 3, 0, 0);
    scene_end(command, &s);
}

static void logic(void)
{
    VKT_NEED(vkt.f10.logicOp);
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    VkPipelineColorBlendAttachmentState all = vkt_overwrite();
    VkPipelineColorBlendStateCreateInfo blend = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO,
        .logicOpEnable = VK_TRUE,
        .logicOp = VK_LOGIC_OP_XOR,
        .attachmentCount = 1,
        .pAttachments = &all,
    };
    s.wanted.blend = &blend;
    VkCommandBuffer command = scene_begin(&s);
    vkCmdDraw(command, 6, 2, 0, 0);
    scene_end(command, &s);
}

static void depth_tested(void)
{
    struct scene s = scene(VK_FORMAT_D32_SFLOAT);
    const VkPipelineDepthStencilStateCreateInfo depth = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_DEPTH_STENCIL_STATE_CREATE_INFO,
        .depthTestEnable = VK_TRUE,
        .depthWriteEnable = VK_TRUE,
        .depthCompareOp = VK_COMPARE_OP_LESS_OR_EQUAL,
    };
    VkPipelineRasterizationStateCreateInfo raster = vkt_raster();
    raster.depthBiasEnable = VK_TRUE;
    raster.depthBiasConstantFactor = 1000.0f;
    raster.depthBiasSlopeFactor = 0.5f;
    s.wanted.depth = &depth;
    s.wanted.raster = &raster;
    VkCommandBuffer command = scene_begin(&s);
    vkCmdDraw(command, 3, 3, 3, 0);
    vkCmdDraw(command, 3, 3, 0, 0);
    scene_end(command, &s);
}

static void stencilled(void)
{
    struct scene s = scene(VK_FORMAT_D32_SFLOAT_S8_UINT);
    const VkStencilOpState count = {
        .failOp = VK_STENCIL_OP_INVERT,
        .passOp = VK_STENCIL_OP_INCREMENT_AND_WRAP,
        .depthFailOp = VK_STENCIL_OP_ZERO,
        .compareOp = VK_COMPARE_OP_GREATER_OR_EQUAL,
        .compareMask = 0x7f,
        .writeMask = 0x3f,
        .reference = 4,
    };
    const VkPipelineDepthStencilStateCreateInfo depth = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_DEPTH_STENCIL_STATE_CREATE_INFO,
        .stencilTestEnable = VK_TRUE,
        .front = count,
        .back = count,
    };
    s.wanted.depth = &depth;
    VkCommandBuffer command = scene_begin(&s);
    vkCmdDraw(command, 6, 3, 0, 0);
    scene_end(command, &s);
}

static void viewport_and_scissor(void)
{
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    const VkDynamicState dynamic[] = {VK_DYNAMIC_STATE_VIEWPORT, VK_DYNAMIC_STATE_SCISSOR,
                                      VK_DYNAMIC_STATE_LINE_WIDTH};
    s.wanted.dynamic_count = VKT_COUNT(dynamic);
    s.wanted.dynamic = dynamic;
    VkCommandBuffer command = scene_begin(&s);
    vkCmdSetLineWidth(command, 1.0f);
    for (int i = 0; i < 4; i++) {
        float at = (float)i * 7.5f;
        vkCmdSetViewport(command, 0, 1, &(VkViewport){at, 30.0f - at, 20.0f, -18.0f, 0, 1});
        vkCmdSetScissor(command, 0, 1, &(VkRect2D){{i * 8, 3}, {7, 26}});
        vkCmdDraw(command, 6, 1, 0, 0);
    }
    scene_end(command, &s);
}

static void dynamic_everything(void)
{
    struct scene s = scene(VK_FORMAT_D32_SFLOAT_S8_UINT);
    const VkDynamicState dynamic[] = {VK_DYNAMIC_STATE_CULL_MODE,
                                      VK_DYNAMIC_STATE_FRONT_FACE,
                                      VK_DYNAMIC_STATE_PRIMITIVE_TOPOLOGY,
                                      VK_DYNAMIC_STATE_VERTEX_INPUT_BINDING_STRIDE,
                                      VK_DYNAMIC_STATE_DEPTH_TEST_ENABLE,
                                      VK_DYNAMIC_STATE_DEPTH_WRITE_ENABLE,
                                      VK_DYNAMIC_STATE_DEPTH_COMPARE_OP,
                                      VK_DYNAMIC_STATE_STENCIL_TEST_ENABLE,
                                      VK_DYNAMIC_STATE_STENCIL_OP,
                                      VK_DYNAMIC_STATE_STENCIL_REFERENCE,
                                      VK_DYNAMIC_STATE_STENCIL_COMPARE_MASK,
                                      VK_DYNAMIC_STATE_STENCIL_WRITE_MASK,
                                      VK_DYNAMIC_STATE_RASTERIZER_DISCARD_ENABLE,
                                      VK_DYNAMIC_STATE_DEPTH_BIAS_ENABLE,
                                      VK_DYNAMIC_STATE_PRIMITIVE_RESTART_ENABLE};
    s.wanted.dynamic_count = VKT_COUNT(dynamic);
    s.wanted.dynamic = dynamic;
    VkCommandBuffer command = scene_begin(&s);
    const VkBuffer buffers[] = {s.mesh.handle, s.instances.handle};
    const VkDeviceSize starts[] = {sizeof(struct vertex), 0},
                       sizes[] = {sizeof(struct vertex) * 5, sizeof(offsets)},
                       strides[] = {sizeof(struct vertex), sizeof(offsets[0])};
    const VkStencilFaceFlags faces = VK_STENCIL_FACE_FRONT_AND_BACK;
    vkCmdBindVertexBuffers2(command, 0, 2, buffers, starts, sizes, strides);
    vkCmdSetCullMode(command, VK_CULL_MODE_NONE);
    vkCmdSetFrontFace(command, VK_FRONT_FACE_CLOCKWISE);
    vkCmdSetPrimitiveTopology(command, VK_PRIMITIVE_TOPOLOGY_TRIANGLE_STRIP);
    vkCmdSetPrimitiveRestartEnable(command, VK_FALSE);
    vkCmdSetDepthTestEnable(command, VK_TRUE);
    vkCmdSetDepthWriteEnable(command, VK_TRUE);
    vkCmdSetDepthCompareOp(command, VK_COMPARE_OP_LESS);
    vkCmdSetDepthBiasEnable(command, VK_FALSE);
    vkCmdSetStencilTestEnable(command, VK_TRUE);
    vkCmdSetStencilOp(command, faces, VK_STENCIL_OP_KEEP, VK_STENCIL_OP_REPLACE,
                      VK_STENCIL_OP_DECREMENT_AND_CLAMP, VK_COMPARE_OP_ALWAYS);
    vkCmdSetStencilReference(command, faces, 42);
    vkCmdSetStencilCompareMask(command, faces, 0xff);
    vkCmdSetStencilWriteMask(command, faces, 0xff);
    vkCmdSetRasterizerDiscardEnable(command, VK_FALSE);
    vkCmdDraw(command, 5, 1, 0, 0);
    vkCmdSetRasterizerDiscardEnable(command, VK_TRUE); /* nothing comes of this one */
    vkCmdDraw(command, 5, 1, 0, 1);
    scene_end(command, &s);
}

/* Under rasterizer discard nothing of the later states is read, whatever the pointers hold. */
static void discard(const void *multisample)
{
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    const void *garbage = (const void *)(uintptr_t)16;
    VkPipelineRasterizationStateCreateInfo raster = vkt_raster();
    raster.rasterizerDiscardEnable = VK_TRUE;
    const VkPipelineShaderStageCreateInfo stage = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
        .stage = VK_SHADER_STAGE_VERTEX_BIT,
        .module = vkt_shader("mesh.vert"),
        .pName = "main",
    };
    const VkPipelineInputAssemblyStateCreateInfo assembly = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_INPUT_ASSEMBLY_STATE_CREATE_INFO,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
    };
    VkGraphicsPipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO,
        .stageCount = 1,
        .pStages = &stage,
        .pVertexInputState = &vertex_input,
        .pInputAssemblyState = &assembly,
        .pTessellationState = garbage,
        .pViewportState = garbage,
        .pRasterizationState = &raster,
        .pMultisampleState = multisample,
        .pDepthStencilState = garbage,
        .pColorBlendState = garbage,
        .layout = s.wanted.layout,
        .renderPass = s.target.pass,
        .basePipelineHandle = (VkPipeline)garbage,
    };
    VkPipeline pipeline;
    VKT(vkCreateGraphicsPipelines(vkt.device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline));
    VKT_KEEP(PIPELINE, pipeline);
    VkCommandBuffer command = scene_begin(&s);
    vkCmdDraw(command, 3, 1, 0, 0);
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline);
    vkCmdDraw(command, 6, 3, 0, 0);
    scene_end(command, &s);
}

static void ignored_state(void)
{
    discard(NULL);
}

static void ignored_multisample(void)
{
    discard((const void *)(uintptr_t)16);
}

/* --- more stages ------------------------------------------------------------------------------ */

static void geometry(void)
{
    VKT_NEED(vkt.f10.geometryShader);
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    s.wanted.shaders[1] = "grow.geom";
    s.wanted.shaders[2] = "shade.frag";
    VkCommandBuffer command = scene_begin(&s);
    vkCmdDraw(command, 6, 1, 0, 0);
    scene_end(command, &s);
}

static void tessellated(void)
{
    VKT_NEED(vkt.f10.tessellationShader);
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    s.wanted.shaders[1] = "split.tesc";
    s.wanted.shaders[2] = "split.tese";
    s.wanted.shaders[3] = "shade.frag";
    s.wanted.topology = VK_PRIMITIVE_TOPOLOGY_PATCH_LIST;
    s.wanted.patch_points = 3;
    VkCommandBuffer command = scene_begin(&s);
    vkCmdDraw(command, 6, 1, 0, 0);
    scene_end(command, &s);
}

static void textured(void)
{
    struct scene s = scene(VK_FORMAT_UNDEFINED);
    struct vkt_image image = vkt_image((VkImageCreateInfo){
        .imageType = VK_IMAGE_TYPE_2D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = {64, 64, 1},
        .mipLevels = 7,
        .usage = VK_IMAGE_USAGE_SAMPLED_BIT,
    });
    vkt_image_fill(&image, 12, VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL);
    VkDescriptorSetLayout set_layout = vkt_set_layout("c", 0);
    VkDescriptorSet set = vkt_set(set_layout, "c");
    vkt_write_image(set, 0, vkt_type('c'),
                    vkt_sampler(VK_FILTER_LINEAR, VK_SAMPLER_ADDRESS_MODE_REPEAT), image.view,
                    VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL);
    s.wanted.shaders[1] = "textured.frag";
    s.wanted.layout = vkt_layout(set_layout, 0);
    VkCommandBuffer command = scene_begin(&s);
    vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_GRAPHICS, s.wanted.layout, 0, 1, &set,
                            0, NULL);
    vkCmdDraw(command, 6, 1, 0, 0);
    scene_end(command, &s);
}

/* ---- younger extensions ---- */

#ifdef VK_KHR_device_address_commands
static VkDeviceAddressRangeKHR range_of(const struct vkt_buffer *buffer)
{
    VkBufferDeviceAddressInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                      .buffer = buffer->handle};
    return (VkDeviceAddressRangeKHR){vkGetBufferDeviceAddress(vkt.device, &info), buffer->size};
}

static void put_addressed(struct vkt_buffer *buffer, VkBufferUsageFlags usage, const void *bytes,
                          size_t size)
{
    *buffer = vkt_buffer(256, usage | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT, VKT_COHERENT);
    memcpy(buffer->map, bytes, size);
}

/* Everything that is drawn is found by address. */
static void by_address(void)
{
    VkPhysicalDeviceDeviceAddressCommandsFeaturesKHR features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DEVICE_ADDRESS_COMMANDS_FEATURES_KHR};
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &features};
    vkGetPhysicalDeviceFeatures2(vkt.physical, &all);
    VKT_NEED(features.deviceAddressCommands);
    VKT_OPEN_WITH(&features, VK_KHR_DEVICE_ADDRESS_COMMANDS_EXTENSION_NAME);
    struct scene s = scene_here(VK_FORMAT_UNDEFINED);
    const VkDrawIndexedIndirectCommand draws[] = {{6, 1, 0, 0, 0}, {3, 1, 0, 2, 2}};
    put_addressed(&s.mesh, VK_BUFFER_USAGE_VERTEX_BUFFER_BIT, vertices, sizeof(vertices));
    put_addressed(&s.instances, VK_BUFFER_USAGE_VERTEX_BUFFER_BIT, offsets, sizeof(offsets));
    put_addressed(&s.index, VK_BUFFER_USAGE_INDEX_BUFFER_BIT, indices, sizeof(indices));
    put_addressed(&s.arguments, VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT, draws, sizeof(draws));
    VkBindVertexBuffer3InfoKHR buffers[2];
    const struct vkt_buffer *const bound[] = {&s.mesh, &s.instances};
    for (uint32_t i = 0; i < VKT_COUNT(bound); i++) {
        VkDeviceAddressRangeKHR range = range_of(bound[i]);
        buffers[i] =
            (VkBindVertexBuffer3InfoKHR){.sType = VK_STRUCTURE_TYPE_BIND_VERTEX_BUFFER_3_INFO_KHR,
                                         .addressRange = {range.address, range.size, 0}};
    }
    VkBindIndexBuffer3InfoKHR index = {.sType = VK_STRUCTURE_TYPE_BIND_INDEX_BUFFER_3_INFO_KHR,
                                       .addressRange = range_of(&s.index),
                                       .indexType = VK_INDEX_TYPE_UINT16};
    VkDrawIndirect2InfoKHR draw = {
        .sType = VK_STRUCTURE_TYPE_DRAW_INDIRECT_2_INFO_KHR,
        .addressRange = {range_of(&s.arguments).address, sizeof(draws), sizeof(draws[0])},
        .drawCount = VKT_COUNT(draws)};
    VkCommandBuffer command = vkt_begin();
    vkt_target_begin(command, &s.target, VK_SUBPASS_CONTENTS_INLINE);
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_GRAPHICS, vkt_pipeline(&s.wanted));
    VKT_PROC(vkCmdBindVertexBuffers3KHR)(command, 0, VKT_COUNT(buffers), buffers);
    VKT_PROC(vkCmdBindIndexBuffer3KHR)(command, &index);
    VKT_PROC(vkCmdDrawIndexedIndirect2KHR)(command, &draw);
    scene_end(command, &s);
}
#endif

#ifdef VK_EXT_primitive_restart_index
static void restart_index(void)
{
    VkPhysicalDevicePrimitiveRestartIndexFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PRIMITIVE_RESTART_INDEX_FEATURES_EXT};
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &features};
    vkGetPhysicalDeviceFeatures2(vkt.physical, &all);
    VKT_NEED(features.primitiveRestartIndex);
    VKT_OPEN_WITH(&features, VK_EXT_PRIMITIVE_RESTART_INDEX_EXTENSION_NAME);
    struct scene s = scene_here(VK_FORMAT_UNDEFINED);
    const uint16_t strips[] = {0, 1, 2, 77, 3, 4, 5};
    memcpy(s.index.map, strips, sizeof(strips));
    s.wanted.topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_STRIP;
    s.wanted.restart = VK_TRUE;
    VkCommandBuffer command = scene_begin(&s);
    VKT_PROC(vkCmdSetPrimitiveRestartIndexEXT)(command, 77);
    vkCmdDrawIndexed(command, VKT_COUNT(strips), 1, 0, 0, 0);
    scene_end(command, &s);
}
#endif

#define YOUNGER "the layer may be older than the extension"

static const struct vkt_case cases[] = {
#ifdef VK_KHR_device_address_commands
    {"by_address", by_address, YOUNGER},
#endif
#ifdef VK_EXT_primitive_restart_index
    {"restart_index", restart_index, YOUNGER},
#endif
    {"plain", plain, NULL},
    {"instanced", instanced, NULL},
    {"indexed", indexed, NULL},
    {"indexed_wide", indexed_wide, NULL},
    {"indirect", indirect, NULL},
    {"indirect_count", indirect_count, NULL},
    {"multi_draw", multi_draw, NULL},
    {"multi_draw_indexed", multi_draw_indexed, NULL},
    {"points", points, NULL},
    {"lines", lines, NULL},
    {"line_strip", line_strip, NULL},
    {"triangle_strip", triangle_strip, NULL},
    {"triangle_fan", triangle_fan, NULL},
    {"restart", restart, NULL},
    {"wireframe", wireframe, NULL},
    {"culled", culled, NULL},
    {"blended", blended, NULL},
    {"logic", logic, NULL},
    {"depth_tested", depth_tested, NULL},
    {"stencilled", stencilled, NULL},
    {"viewport_and_scissor", viewport_and_scissor, NULL},
    {"dynamic_everything", dynamic_everything, NULL},
    {"ignored_state", ignored_state, NULL},
    {"ignored_multisample", ignored_multisample, "legal, but layers of 1.3.239 read the pointer"},
    {"geometry", geometry, NULL},
    {"tessellated", tessellated, NULL},
    {"textured", textured, NULL},
};

VKT_MAIN(cases)
