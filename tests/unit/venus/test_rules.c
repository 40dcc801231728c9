/* What Vulkan ignores is never followed: garbage there encodes like nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "vn_commands.gen.h"

#define GARBAGE ((void *)0x5a5a5a5a5a5a5a5a)

static struct vn_object sampler = {.id = 11}, view = {.id = 12}, pass = {.id = 13};

static size_t encoded(const VkWriteDescriptorSet *write, struct wire_enc *e)
{
    wire_enc_reset(e);
    vn_enc_VkWriteDescriptorSet(e, write);
    assert_int_equal(wire_enc_error(e), 0);
    return wire_enc_len(e);
}

/* The ids of the first image, which follow 24 bytes of values and a presence byte. */
static uint64_t image_id(const struct wire_enc *e, int which)
{
    return wire_load64(wire_enc_data(e) + 25 + 8 * which);
}

static void test_a_write_reads_only_what_its_type_names(void **state)
{
    VkDescriptorImageInfo image = {.sampler = GARBAGE, .imageView = (VkImageView)&view};
    VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                  .descriptorCount = 1,
                                  .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_IMAGE,
                                  .pImageInfo = &image,
                                  .pBufferInfo = GARBAGE,
                                  .pTexelBufferView = GARBAGE};
    struct wire_enc e;
    (void)state;
    wire_enc_init(&e, 4096);
    encoded(&write, &e);
    assert_int_equal(image_id(&e, 0), 0);
    assert_int_equal(image_id(&e, 1), 12);
    image = (VkDescriptorImageInfo){.sampler = (VkSampler)&sampler, .imageView = GARBAGE};
    write.descriptorType = VK_DESCRIPTOR_TYPE_SAMPLER;
    encoded(&write, &e);
    assert_int_equal(image_id(&e, 0), 11);
    assert_int_equal(image_id(&e, 1), 0);
    write.pImageInfo = GARBAGE;
    write.descriptorType = VK_DESCRIPTOR_TYPE_INLINE_UNIFORM_BLOCK;
    assert_int_equal(encoded(&write, &e), 24 + 3 + 4);
    wire_enc_fini(&e);
}

static void test_a_descriptor_of_an_image_reads_no_sampler(void **state)
{
    const VkDescriptorType types[] = {VK_DESCRIPTOR_TYPE_SAMPLED_IMAGE,
                                      VK_DESCRIPTOR_TYPE_STORAGE_IMAGE,
                                      VK_DESCRIPTOR_TYPE_INPUT_ATTACHMENT};
    VkDescriptorImageInfo image = {.sampler = GARBAGE, .imageView = (VkImageView)&view};
    VkDescriptorGetInfoEXT info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_GET_INFO_EXT};
    struct wire_enc e;
    (void)state;
    wire_enc_init(&e, 4096);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        info.type = types[i];
        info.data.pSampledImage = &image; /* as are the pointers of the other two */
        wire_enc_reset(&e);
        vn_enc_VkDescriptorGetInfoEXT(&e, &info);
        assert_int_equal(wire_enc_error(&e), 0);
        /* Behind the type and a presence byte. */
        assert_int_equal(wire_load64(wire_enc_data(&e) + 5), 0);
        assert_int_equal(wire_load64(wire_enc_data(&e) + 13), 12);
    }
    wire_enc_fini(&e);
}

static void test_a_pushed_write_does_not_read_its_set(void **state)
{
    struct vn_object commands = {.id = 1}, layout = {.id = 2};
    VkDescriptorBufferInfo buffer = {.range = 4};
    VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                  .dstSet = GARBAGE,
                                  .descriptorCount = 1,
                                  .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                  .pBufferInfo = &buffer};
    struct wire_enc e;
    (void)state;
    wire_enc_init(&e, 4096);
    vn_enc_cmd_vkCmdPushDescriptorSetKHR(&e, (VkCommandBuffer)&commands, 0,
                                         (VkPipelineLayout)&layout, 0, 1, &write);
    assert_int_equal(wire_enc_error(&e), 0);
    wire_enc_fini(&e);
}

static void test_inheritance_is_read_for_secondary_buffers_only(void **state)
{
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                     .pInheritanceInfo = GARBAGE};
    VkCommandBufferInheritanceInfo inheritance = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO,
        .renderPass = GARBAGE,
        .framebuffer = GARBAGE};
    struct vn_object primary = {.id = 1}, secondary = {.id = 2, .flags = VN_OBJECT_SECONDARY};
    struct wire_enc e;
    (void)state;
    wire_enc_init(&e, 4096);
    vn_enc_cmd_vkBeginCommandBuffer(&e, (VkCommandBuffer)&primary, &info);
    size_t without = wire_enc_len(&e);
    info.pInheritanceInfo = &inheritance;
    wire_enc_reset(&e);
    vn_enc_cmd_vkBeginCommandBuffer(&e, (VkCommandBuffer)&secondary, &info);
    assert_true(wire_enc_len(&e) > without);
    assert_int_equal(wire_enc_error(&e), 0);
    wire_enc_fini(&e);
}

static bool reads(const VkGraphicsPipelineCreateInfo *info, enum vn_graphics_part part)
{
    return vn_graphics_reads(info, part);
}

static void test_rasterizer_discard_hides_what_follows_it(void **state)
{
    VkPipelineRasterizationStateCreateInfo raster = {.rasterizerDiscardEnable = VK_TRUE};
    VkDynamicState discard = VK_DYNAMIC_STATE_RASTERIZER_DISCARD_ENABLE;
    VkPipelineDynamicStateCreateInfo dynamic = {.dynamicStateCount = 1, .pDynamicStates = &discard};
    VkGraphicsPipelineCreateInfo info = {.pRasterizationState = &raster,
                                         .renderPass = (VkRenderPass)&pass};
    (void)state;
    assert_true(reads(&info, VN_RASTERIZATION));
    assert_false(reads(&info, VN_VIEWPORT));
    assert_false(reads(&info, VN_MULTISAMPLE));
    assert_false(reads(&info, VN_DEPTH_STENCIL));
    assert_false(reads(&info, VN_COLOR_BLEND));
    info.pDynamicState = &dynamic;
    assert_true(reads(&info, VN_VIEWPORT));
    assert_true(reads(&info, VN_COLOR_BLEND));
}

static void test_state_without_attachments_is_not_read(void **state)
{
    VkPipelineRenderingCreateInfo rendering = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_RENDERING_CREATE_INFO, .colorAttachmentCount = 1};
    VkGraphicsPipelineCreateInfo info = {.pNext = &rendering};
    struct vn_render_pass_facts *facts = calloc(1, sizeof(*facts) + sizeof(facts->subpasses[0]));
    (void)state;
    assert_true(reads(&info, VN_COLOR_BLEND));
    assert_false(reads(&info, VN_DEPTH_STENCIL));
    facts->count = 1;
    facts->subpasses[0].depth_stencil = true;
    pass.facts = facts;
    info.renderPass = (VkRenderPass)&pass;
    assert_false(reads(&info, VN_COLOR_BLEND));
    assert_true(reads(&info, VN_DEPTH_STENCIL));
    pass.facts = NULL;
    assert_true(reads(&info, VN_COLOR_BLEND));
    free(facts);
}

/* An absent VkPipelineRenderingCreateInfo has no attachments; libraries do not say. */
static void test_a_pipeline_without_a_render_pass_has_no_attachments(void **state)
{
    VkGraphicsPipelineLibraryCreateInfoEXT library = {
        .sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_LIBRARY_CREATE_INFO_EXT,
        .flags = VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_SHADER_BIT_EXT |
                 VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_OUTPUT_INTERFACE_BIT_EXT};
    VkGraphicsPipelineCreateInfo info = {0};
    (void)state;
    assert_false(reads(&info, VN_COLOR_BLEND));
    assert_false(reads(&info, VN_DEPTH_STENCIL));
    assert_true(reads(&info, VN_MULTISAMPLE));
    info.pNext = &library;
    assert_true(reads(&info, VN_COLOR_BLEND));
    assert_true(reads(&info, VN_DEPTH_STENCIL));
}

/* Blender chains zeros there: the formats are those of the part with the output interface. */
static void test_formats_of_a_library_without_outputs_hide_no_depth(void **state)
{
    VkPipelineRenderingCreateInfo rendering = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_RENDERING_CREATE_INFO};
    VkGraphicsPipelineLibraryCreateInfoEXT library = {
        .sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_LIBRARY_CREATE_INFO_EXT,
        .pNext = &rendering,
        .flags = VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_SHADER_BIT_EXT};
    VkGraphicsPipelineCreateInfo info = {.pNext = &library};
    (void)state;
    assert_true(reads(&info, VN_DEPTH_STENCIL));
    library.flags |= VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_OUTPUT_INTERFACE_BIT_EXT;
    assert_false(reads(&info, VN_DEPTH_STENCIL));
}

static void test_stages_decide_about_vertices_and_tessellation(void **state)
{
    VkPipelineShaderStageCreateInfo stage = {.stage = VK_SHADER_STAGE_VERTEX_BIT};
    VkDynamicState input = VK_DYNAMIC_STATE_VERTEX_INPUT_EXT;
    VkPipelineDynamicStateCreateInfo dynamic = {.dynamicStateCount = 1, .pDynamicStates = &input};
    VkGraphicsPipelineCreateInfo info = {.stageCount = 1, .pStages = &stage};
    (void)state;
    assert_true(reads(&info, VN_VERTEX_INPUT));
    assert_false(reads(&info, VN_TESSELLATION));
    info.pDynamicState = &dynamic;
    assert_false(reads(&info, VN_VERTEX_INPUT));
    assert_true(reads(&info, VN_INPUT_ASSEMBLY));
    stage.stage = VK_SHADER_STAGE_TESSELLATION_CONTROL_BIT;
    assert_true(reads(&info, VN_TESSELLATION));
    stage.stage = VK_SHADER_STAGE_MESH_BIT_EXT;
    assert_false(reads(&info, VN_INPUT_ASSEMBLY));
}

static void test_a_library_reads_its_own_part(void **state)
{
    VkGraphicsPipelineLibraryCreateInfoEXT library = {
        .sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_LIBRARY_CREATE_INFO_EXT,
        .flags = VK_GRAPHICS_PIPELINE_LIBRARY_VERTEX_INPUT_INTERFACE_BIT_EXT};
    VkPipelineLibraryCreateInfoKHR linked = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LIBRARY_CREATE_INFO_KHR, .libraryCount = 1};
    VkGraphicsPipelineCreateInfo info = {.pNext = &library,
                                         .stageCount = 1,
                                         .pStages = GARBAGE,
                                         .pRasterizationState = GARBAGE,
                                         .renderPass = GARBAGE};
    (void)state;
    for (int part = VN_STAGES; part <= VN_RENDER_PASS; part++) {
        bool expected = part == VN_VERTEX_INPUT || part == VN_INPUT_ASSEMBLY;
        assert_int_equal(reads(&info, (enum vn_graphics_part)part), expected);
    }
    info.pNext = &linked;
    for (int part = VN_STAGES; part <= VN_RENDER_PASS; part++)
        assert_int_equal(reads(&info, (enum vn_graphics_part)part), part == VN_LAYOUT);
}

/* Some drivers go through the stages of a part that has none. */
static void test_stages_of_a_part_without_shaders_are_not_counted(void **state)
{
    VkGraphicsPipelineLibraryCreateInfoEXT library = {
        .sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_LIBRARY_CREATE_INFO_EXT,
        .flags = VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_OUTPUT_INTERFACE_BIT_EXT};
    const VkGraphicsPipelineCreateInfo none = {
        .sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO, .pNext = &library};
    VkGraphicsPipelineCreateInfo info = none;
    info.stageCount = 2;
    info.pStages = GARBAGE;
    struct wire_enc a, b;
    (void)state;
    wire_enc_init(&a, WIRE_MESSAGE_MAX);
    wire_enc_init(&b, WIRE_MESSAGE_MAX);
    vn_enc_VkGraphicsPipelineCreateInfo(&a, &info);
    vn_enc_VkGraphicsPipelineCreateInfo(&b, &none);
    assert_int_equal(wire_enc_error(&a), 0);
    assert_int_equal(wire_enc_len(&a), wire_enc_len(&b));
    assert_memory_equal(wire_enc_data(&a), wire_enc_data(&b), wire_enc_len(&b));
    wire_enc_fini(&a);
    wire_enc_fini(&b);
}

static void test_dynamic_viewports_are_not_read(void **state)
{
    const VkDynamicState states[] = {VK_DYNAMIC_STATE_VIEWPORT, VK_DYNAMIC_STATE_SAMPLE_MASK_EXT,
                                     VK_DYNAMIC_STATE_SCISSOR_WITH_COUNT};
    VkPipelineDynamicStateCreateInfo dynamic = {.dynamicStateCount = 3, .pDynamicStates = states};
    VkGraphicsPipelineCreateInfo info = {.pDynamicState = &dynamic};
    VkPipelineViewportStateCreateInfo viewport = {.pViewports = GARBAGE, .pScissors = GARBAGE};
    VkPipelineMultisampleStateCreateInfo samples = {.pSampleMask = GARBAGE};
    VkPipelineColorBlendStateCreateInfo blend = {.pAttachments = GARBAGE};
    (void)state;
    assert_null(vn_clean_viewport_state(&info, viewport).pViewports);
    assert_null(vn_clean_viewport_state(&info, viewport).pScissors);
    assert_null(vn_clean_multisample_state(&info, samples).pSampleMask);
    assert_non_null(vn_clean_blend_state(&info, blend).pAttachments);
    info.pDynamicState = NULL;
    assert_non_null(vn_clean_viewport_state(&info, viewport).pViewports);
    assert_non_null(vn_clean_viewport_state(&info, viewport).pScissors);
}

/* Factors are the equation's; operations that are advanced are only part of them. */
static void test_blending_is_read_unless_all_of_it_is_dynamic(void **state)
{
    VkDynamicState states[] = {VK_DYNAMIC_STATE_COLOR_BLEND_ENABLE_EXT,
                               VK_DYNAMIC_STATE_COLOR_WRITE_MASK_EXT,
                               VK_DYNAMIC_STATE_COLOR_BLEND_ADVANCED_EXT};
    VkPipelineDynamicStateCreateInfo dynamic = {.dynamicStateCount = 3, .pDynamicStates = states};
    VkGraphicsPipelineCreateInfo info = {.pDynamicState = &dynamic};
    VkPipelineColorBlendStateCreateInfo blend = {.attachmentCount = 1, .pAttachments = GARBAGE};
    (void)state;
    assert_ptr_equal(vn_clean_blend_state(&info, blend).pAttachments, GARBAGE);
    states[2] = VK_DYNAMIC_STATE_COLOR_BLEND_EQUATION_EXT;
    assert_ptr_not_equal(vn_clean_blend_state(&info, blend).pAttachments, GARBAGE);
}

/* Structures in the chains of a pipeline are judged by the pipeline. */
static void test_dynamic_state_in_chains_is_not_read(void **state)
{
    const VkDynamicState states[] = {VK_DYNAMIC_STATE_DISCARD_RECTANGLE_EXT,
                                     VK_DYNAMIC_STATE_SAMPLE_LOCATIONS_EXT};
    VkPipelineDynamicStateCreateInfo dynamic = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_DYNAMIC_STATE_CREATE_INFO,
        .dynamicStateCount = 2,
        .pDynamicStates = states};
    VkPipelineSampleLocationsStateCreateInfoEXT locations = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SAMPLE_LOCATIONS_STATE_CREATE_INFO_EXT,
        .sampleLocationsEnable = VK_TRUE,
        .sampleLocationsInfo = {
            .pNext = GARBAGE, .sampleLocationsCount = 9, .pSampleLocations = GARBAGE}};
    VkPipelineMultisampleStateCreateInfo samples = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_MULTISAMPLE_STATE_CREATE_INFO, .pNext = &locations};
    VkPipelineDiscardRectangleStateCreateInfoEXT rectangles = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_DISCARD_RECTANGLE_STATE_CREATE_INFO_EXT,
        .discardRectangleCount = 2,
        .pDiscardRectangles = GARBAGE};
    VkPipelineRenderingCreateInfo rendering = {.sType =
                                                   VK_STRUCTURE_TYPE_PIPELINE_RENDERING_CREATE_INFO,
                                               .pNext = &rectangles,
                                               .colorAttachmentCount = UINT32_MAX,
                                               .pColorAttachmentFormats = GARBAGE};
    VkGraphicsPipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO,
                                         .pNext = &rendering,
                                         .pMultisampleState = &samples,
                                         .pDynamicState = &dynamic,
                                         .renderPass = (VkRenderPass)&pass};
    struct wire_enc e;
    (void)state;
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    vn_enc_VkGraphicsPipelineCreateInfo(&e, &info);
    assert_int_equal(wire_enc_error(&e), 0);
    wire_enc_fini(&e);
    assert_true(vn_reads_formats()); /* outside of a pipeline all is read */
    assert_false(vn_parent_sets(VK_DYNAMIC_STATE_DISCARD_RECTANGLE_EXT));
}

static void test_ignored_counts_cost_nothing(void **state)
{
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .queueFamilyIndexCount = UINT32_MAX,
                               .pQueueFamilyIndices = GARBAGE};
    const VkBufferCreateInfo none = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
    struct wire_enc a, b;
    (void)state;
    wire_enc_init(&a, WIRE_MESSAGE_MAX);
    wire_enc_init(&b, WIRE_MESSAGE_MAX);
    vn_enc_VkBufferCreateInfo(&a, &info);
    vn_enc_VkBufferCreateInfo(&b, &none);
    assert_int_equal(wire_enc_error(&a), 0);
    assert_int_equal(wire_enc_len(&a), wire_enc_len(&b));
    assert_memory_equal(wire_enc_data(&a), wire_enc_data(&b), wire_enc_len(&b));
    wire_enc_reset(&a);
    vn_put_words(&a, NULL, UINT64_MAX, 4);
    assert_int_equal(wire_enc_error(&a), 0);
    wire_enc_fini(&a);
    wire_enc_fini(&b);
}

static void test_a_base_pipeline_is_read_by_derivatives_only(void **state)
{
    struct {
        uint32_t type;
        const void *next;
        uint64_t flags;
    } wide = {.type = 1000470005, .flags = VK_PIPELINE_CREATE_DERIVATIVE_BIT};
    (void)state;
    assert_true(vn_is_derivative(VK_PIPELINE_CREATE_DERIVATIVE_BIT, NULL, -1));
    assert_false(vn_is_derivative(VK_PIPELINE_CREATE_DERIVATIVE_BIT, NULL, 0));
    assert_false(vn_is_derivative(0, NULL, -1));
    assert_true(vn_is_derivative(0, &wide, -1));
}

static void test_a_buffer_is_plain_if_usages_alone_are_chained(void **state)
{
    struct {
        uint32_t type;
        const void *next;
        uint64_t flags;
    } wide = {.type = 1000470006, .flags = 0x20};
    VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO};
    VkBufferCreateInfo info = {.usage = 3};
    (void)state;
    assert_int_equal(vn_plain_usage(&info), 3);
    info.sharingMode = VK_SHARING_MODE_CONCURRENT;
    assert_int_equal(vn_plain_usage(&info), 0);
    assert_true(vn_has_plain_address(&info));
    info = (VkBufferCreateInfo){.usage = 3, .pNext = &wide};
    assert_int_equal(vn_plain_usage(&info), 0x20);
    assert_true(vn_has_plain_address(&info));
    wide.flags |= UINT64_C(1) << 32;
    assert_int_equal(vn_plain_usage(&info), 0);
    assert_true(vn_has_plain_address(&info));
    wide.next = &external;
    assert_false(vn_has_plain_address(&info));
    info = (VkBufferCreateInfo){.usage = 3, .flags = VK_BUFFER_CREATE_SPARSE_BINDING_BIT};
    assert_int_equal(vn_plain_usage(&info), 0);
    assert_false(vn_has_plain_address(&info));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_write_reads_only_what_its_type_names),
        cmocka_unit_test(test_a_descriptor_of_an_image_reads_no_sampler),
        cmocka_unit_test(test_a_pushed_write_does_not_read_its_set),
        cmocka_unit_test(test_inheritance_is_read_for_secondary_buffers_only),
        cmocka_unit_test(test_rasterizer_discard_hides_what_follows_it),
        cmocka_unit_test(test_state_without_attachments_is_not_read),
        cmocka_unit_test(test_a_pipeline_without_a_render_pass_has_no_attachments),
        cmocka_unit_test(test_formats_of_a_library_without_outputs_hide_no_depth),
        cmocka_unit_test(test_stages_decide_about_vertices_and_tessellation),
        cmocka_unit_test(test_a_library_reads_its_own_part),
        cmocka_unit_test(test_stages_of_a_part_without_shaders_are_not_counted),
        cmocka_unit_test(test_dynamic_viewports_are_not_read),
        cmocka_unit_test(test_blending_is_read_unless_all_of_it_is_dynamic),
        cmocka_unit_test(test_dynamic_state_in_chains_is_not_read),
        cmocka_unit_test(test_ignored_counts_cost_nothing),
        cmocka_unit_test(test_a_base_pipeline_is_read_by_derivatives_only),
        cmocka_unit_test(test_a_buffer_is_plain_if_usages_alone_are_chained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
