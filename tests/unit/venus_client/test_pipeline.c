/* Pipelines whose stages have their code inline, in the place of a module: they are created without
 * an answer, and it is known what they write. */
#include "rig.h"

#include "venus/client/object/pipeline.h"

enum {
    /* Ids of the module. */
    UINT = 1,
    BLOCK, /* struct {uint} */
    POINTER,
    BUFFER,
    MAIN,
    BOUND,
};

#define OP(op, words) ((uint32_t)(words) << 16 | (op))
enum { MAIN_0 = 0x6e69616d }; /* "main" */

/* A storage buffer at set 2, binding 3; entry "main" of a model. */
static VkShaderModuleCreateInfo code_of(uint32_t model, uint32_t code[40])
{
    const uint32_t words[] = {
        0x07230203, 0x00010300, 0,      BOUND,  0, /* header */
        OP(14, 3),  0,          1,                 /* OpMemoryModel */
        OP(15, 5),  model,      MAIN,   MAIN_0, 0, /* OpEntryPoint */
        OP(71, 4),  BUFFER,     34,     2,         /* OpDecorate DescriptorSet */
        OP(71, 4),  BUFFER,     33,     3,         /* OpDecorate Binding */
        OP(21, 4),  UINT,       32,     0,         /* OpTypeInt */
        OP(30, 3),  BLOCK,      UINT,              /* OpTypeStruct */
        OP(32, 4),  POINTER,    12,     BLOCK,     /* OpTypePointer StorageBuffer */
        OP(59, 4),  POINTER,    BUFFER, 12,        /* OpVariable */
    };
    memcpy(code, words, sizeof(words));
    return (VkShaderModuleCreateInfo){.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                      .codeSize = sizeof(words),
                                      .pCode = code};
}

static VkPipelineShaderStageCreateInfo stage(VkShaderStageFlagBits which, const void *chain)
{
    return (VkPipelineShaderStageCreateInfo){
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
        .pNext = chain,
        .stage = which,
        .pName = "main"};
}

static VkResult create_compute(struct rig *rig, const void *chain, VkPipeline *out)
{
    PFN_vkCreateComputePipelines create =
        (PFN_vkCreateComputePipelines)rig_entry(vnc_entries_pipeline, "vkCreateComputePipelines");
    VkComputePipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                                        .stage = stage(VK_SHADER_STAGE_COMPUTE_BIT, chain)};
    return create(VNC_HANDLE(VkDevice, rig->device), VK_NULL_HANDLE, 1, &info, NULL, out);
}

static void inline_compute_code_is_read(void **state)
{
    struct rig *rig = *state;
    uint32_t words[40];
    VkShaderModuleCreateInfo code = code_of(5, words);
    VkPipeline handle;
    assert_int_equal(create_compute(rig, &code, &handle), VK_SUCCESS); /* the rig answers nothing */
    assert_int_equal(rig_sent(rig).exchanges, 0);
    struct vnc_pipeline *pipeline = VNC_OBJECT(vnc_pipeline, handle);
    assert_true(pipeline->known);
    assert_int_equal(pipeline->write_count, 1);
    assert_int_equal(pipeline->writes[0].set, 2);
    assert_int_equal(pipeline->writes[0].binding, 3);
    assert_false(pipeline->uses_addresses || pipeline->uses_images);
    vnc_object_destroy(&pipeline->object);
}

static void inline_graphics_code_is_read(void **state)
{
    struct rig *rig = *state;
    PFN_vkCreateGraphicsPipelines create =
        (PFN_vkCreateGraphicsPipelines)rig_entry(vnc_entries_pipeline, "vkCreateGraphicsPipelines");
    uint32_t words[2][40];
    VkShaderModuleCreateInfo codes[] = {code_of(0, words[0]), code_of(4, words[1])};
    VkPipelineShaderStageCreateInfo stages[] = {stage(VK_SHADER_STAGE_VERTEX_BIT, &codes[0]),
                                                stage(VK_SHADER_STAGE_FRAGMENT_BIT, &codes[1])};
    VkGraphicsPipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO,
                                         .stageCount = 2,
                                         .pStages = stages};
    VkPipeline handle;
    assert_int_equal(
        create(VNC_HANDLE(VkDevice, rig->device), VK_NULL_HANDLE, 1, &info, NULL, &handle),
        VK_SUCCESS);
    assert_int_equal(rig_sent(rig).exchanges, 0);
    vnc_object_destroy(VNC_OBJECT(vn_object, handle));
}

/* An entry point that the code does not have: the driver may refuse it, so it is asked. */
static void an_entry_that_is_missing_is_asked_about(void **state)
{
    struct rig *rig = *state;
    uint32_t words[40];
    VkShaderModuleCreateInfo code = code_of(4, words);
    VkPipeline handle;
    assert_int_equal(create_compute(rig, &code, &handle), VK_ERROR_DEVICE_LOST);
    assert_true(rig_was_asked(rig));
}

/* As where the stage has an identifier alone. */
static void a_stage_without_code_is_asked_about(void **state)
{
    struct rig *rig = *state;
    VkPipeline handle;
    assert_int_equal(create_compute(rig, NULL, &handle), VK_ERROR_DEVICE_LOST);
    assert_true(rig_was_asked(rig));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(inline_compute_code_is_read, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(inline_graphics_code_is_read, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(an_entry_that_is_missing_is_asked_about, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(a_stage_without_code_is_asked_about, rig_start, rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
