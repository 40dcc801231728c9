/* Pipelines whose stages have their code inline, in the place of a module: they are created without
 * an answer, and it is known what they write.  Who binds one that is not compiled yet waits for it
 * where other threads record, too. */
#include "rig.h"

#include <stdatomic.h>

#include "base/clock.h"
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

/* ---- binding ---- */

struct recorder {
    struct rig *rig;
    struct vn_object *pool;
    struct vnc_command_buffer *commands;
    struct vnc_pipeline *pipeline; /* to bind; NULL: none */
    _Atomic bool bound;            /* or answered */
};

static void *record(void *arg)
{
    struct recorder *r = arg;
    VkCommandBuffer commands = VNC_HANDLE(VkCommandBuffer, r->commands);
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    assert_int_equal(RIG_COMMAND(vkBeginCommandBuffer)(commands, &info), VK_SUCCESS);
    if (r->pipeline)
        RIG_COMMAND(vkCmdBindPipeline)
    (commands, VK_PIPELINE_BIND_POINT_COMPUTE, VNC_HANDLE(VkPipeline, r->pipeline));
    atomic_store_explicit(&r->bound, true, memory_order_release);
    return NULL;
}

static void recorder_make(struct rig *rig, struct recorder *r)
{
    struct vn_object *device = &rig->device->object;
    *r = (struct recorder){.rig = rig};
    r->pool = vnc_object_create(rig->link, VK_OBJECT_TYPE_COMMAND_POOL, device);
    r->commands = vnc_object_create(rig->link, VK_OBJECT_TYPE_COMMAND_BUFFER, device);
}

static void recorder_free(struct recorder *r)
{
    vnc_object_destroy((struct vn_object *)r->commands);
    vnc_object_destroy(r->pool);
}

static void record_in_a_thread(struct recorder *r)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, record, r), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void who_records_alone_waits_for_no_compiler(void **state)
{
    struct rig *rig = *state;
    struct recorder first, second;
    uint32_t words[40];
    VkShaderModuleCreateInfo code = code_of(5, words);
    VkPipeline handle;
    recorder_make(rig, &first);
    recorder_make(rig, &second);
    assert_int_equal(create_compute(rig, &code, &handle), VK_SUCCESS);
    first.pipeline = second.pipeline = VNC_OBJECT(vnc_pipeline, handle);
    record_in_a_thread(&first);  /* nobody says that it is compiled */
    record_in_a_thread(&second); /* which goes on with the work of the first */
    assert_int_equal(rig_sent(rig).exchanges, 0);
    recorder_free(&second);
    recorder_free(&first);
    vnc_object_destroy(&first.pipeline->object);
}

/* It is seen to wait by what the wait sends: the creation. */
static void who_records_beside_others_waits_for_the_compiler(void **state)
{
    struct rig *rig = *state;
    struct recorder own, other;
    uint32_t words[40];
    VkShaderModuleCreateInfo code = code_of(5, words);
    VkPipeline handle;
    pthread_t thread;
    recorder_make(rig, &own);
    recorder_make(rig, &other);
    record(&own);
    record_in_a_thread(&other);
    record(&own);
    assert_int_equal(create_compute(rig, &code, &handle), VK_SUCCESS);
    other.pipeline = VNC_OBJECT(vnc_pipeline, handle);
    atomic_store_explicit(&other.bound, false, memory_order_relaxed);
    assert_int_equal(pthread_create(&thread, NULL, record, &other), 0);
    uint64_t deadline = hw_now_ns() + RIG_PATIENCE_MS * HW_MS;
    while (!rig_was_told(rig)) {
        assert_false(atomic_load_explicit(&other.bound, memory_order_acquire));
        assert_true(hw_now_ns() < deadline);
        sched_yield();
    }
    assert_false(atomic_load_explicit(&other.bound, memory_order_acquire));
    rig_report_compiled(rig, other.pipeline->object.id);
    assert_int_equal(pthread_join(thread, NULL), 0);
    own.pipeline = other.pipeline;
    record(&own); /* it is known now */
    assert_int_equal(rig_sent(rig).exchanges, 1);
    recorder_free(&other);
    recorder_free(&own);
    vnc_object_destroy(&own.pipeline->object);
}

/* ---- asking ---- */

static void *ask(void *arg)
{
    struct recorder *r = arg;
    PFN_vkGetPipelineExecutableStatisticsKHR statistics =
        (PFN_vkGetPipelineExecutableStatisticsKHR)rig_entry(vnc_entries_pipeline,
                                                            "vkGetPipelineExecutableStatisticsKHR");
    VkPipelineExecutableInfoKHR info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
                                        .pipeline = VNC_HANDLE(VkPipeline, r->pipeline)};
    uint32_t count;
    (void)statistics(VNC_HANDLE(VkDevice, r->rig->device), &info, &count, NULL); /* no answer */
    atomic_store_explicit(&r->bound, true, memory_order_release);
    return NULL;
}

/* At the server the question would wait for the one compiler, and the other creation behind it. */
static void a_question_waits_here_while_others_compile(void **state)
{
    struct rig *rig = *state;
    struct recorder one = {.rig = rig};
    uint32_t words[40];
    VkShaderModuleCreateInfo code = code_of(5, words);
    VkPipeline handle, other;
    pthread_t thread;
    assert_int_equal(create_compute(rig, &code, &handle), VK_SUCCESS);
    assert_int_equal(create_compute(rig, &code, &other), VK_SUCCESS);
    one.pipeline = VNC_OBJECT(vnc_pipeline, handle);
    assert_int_equal(pthread_create(&thread, NULL, ask, &one), 0);
    uint64_t deadline = hw_now_ns() + RIG_PATIENCE_MS * HW_MS;
    while (!rig_was_told(rig)) { /* of the creations, without a question behind them */
        assert_false(rig_was_asked(rig));
        assert_true(hw_now_ns() < deadline);
        sched_yield();
    }
    assert_false(atomic_load_explicit(&one.bound, memory_order_acquire));
    rig_report_compiled(rig, one.pipeline->object.id);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(rig_was_asked(rig));
    vnc_object_destroy(VNC_OBJECT(vn_object, other));
    vnc_object_destroy(&one.pipeline->object);
}

/* Nothing else would end the wait: the connection lives. */
static void a_server_that_cannot_be_read_ends_the_wait(void **state)
{
    struct rig *rig = *state;
    struct recorder one = {.rig = rig};
    uint32_t words[40];
    VkShaderModuleCreateInfo code = code_of(5, words);
    VkPipeline handle, other;
    pthread_t thread;
    assert_int_equal(create_compute(rig, &code, &handle), VK_SUCCESS);
    assert_int_equal(create_compute(rig, &code, &other), VK_SUCCESS);
    one.pipeline = VNC_OBJECT(vnc_pipeline, handle);
    assert_int_equal(pthread_create(&thread, NULL, ask, &one), 0);
    while (!rig_was_told(rig))
        sched_yield();
    rig_babble(rig);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(vnc_link_is_lost(rig->link));
    vnc_object_destroy(VNC_OBJECT(vn_object, other));
    vnc_object_destroy(&one.pipeline->object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(inline_compute_code_is_read, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(inline_graphics_code_is_read, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(an_entry_that_is_missing_is_asked_about, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(a_stage_without_code_is_asked_about, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(who_records_alone_waits_for_no_compiler, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(who_records_beside_others_waits_for_the_compiler, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(a_question_waits_here_while_others_compile, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(a_server_that_cannot_be_read_ends_the_wait, rig_start,
                                        rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
