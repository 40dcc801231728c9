/* Pipelines that are compiled beside the stream, on a driver whose compiler does as it is told. */
#include "unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "duet.h"
#include "venus/common/object.h"
#include "venus/common/protocol.h"
#include "venus/server/session/state.h"

enum {
    DEVICE = 1,
    MODULE,
    LAYOUT,
    CACHE,
    FIRST, /* pipeline; and so on */
    WINDOW = 1 << 20,
};

/* ---- the driver ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned compiling, meet; /* compilers inside; how many must be before one may leave */
    unsigned compiled, modules_destroyed, layouts_destroyed;
    bool module_dead_while_used;
    VkResult result;
} gpu;

static int
    handles[VNS_PIPELINE_JOBS_MAX + 16]; /* their addresses are handles; of pipelines from 4 */

static VKAPI_ATTR VkResult VKAPI_CALL compile(VkDevice device, VkPipelineCache cache,
                                              uint32_t count,
                                              const VkComputePipelineCreateInfo *infos,
                                              const VkAllocationCallbacks *allocator,
                                              VkPipeline *out)
{
    (void)device, (void)cache, (void)infos, (void)allocator;
    pthread_mutex_lock(&gpu.lock);
    gpu.compiling++;
    pthread_cond_broadcast(&gpu.changed);
    while (gpu.compiling < gpu.meet)
        pthread_cond_wait(&gpu.changed, &gpu.lock);
    gpu.module_dead_while_used |= gpu.modules_destroyed > 0;
    for (uint32_t i = 0; i < count; i++)
        out[i] = gpu.result < 0 ? VK_NULL_HANDLE : (VkPipeline)(void *)&handles[4 + gpu.compiled++];
    VkResult result = gpu.result;
    pthread_mutex_unlock(&gpu.lock);
    return result;
}

static VKAPI_ATTR void VKAPI_CALL destroy_module(VkDevice device, VkShaderModule module,
                                                 const VkAllocationCallbacks *allocator)
{
    (void)device, (void)module, (void)allocator;
    pthread_mutex_lock(&gpu.lock);
    gpu.modules_destroyed++;
    pthread_mutex_unlock(&gpu.lock);
}

static VKAPI_ATTR void VKAPI_CALL destroy_layout(VkDevice device, VkPipelineLayout layout,
                                                 const VkAllocationCallbacks *allocator)
{
    (void)device, (void)layout, (void)allocator;
    gpu.layouts_destroyed++;
}

static VKAPI_ATTR void VKAPI_CALL destroy_pipeline(VkDevice device, VkPipeline pipeline,
                                                   const VkAllocationCallbacks *allocator)
{
    (void)device, (void)pipeline, (void)allocator;
}

static VKAPI_ATTR VkResult VKAPI_CALL cache_data(VkDevice device, VkPipelineCache cache,
                                                 size_t *size, void *data)
{
    (void)device, (void)cache, (void)data;
    *size = gpu.compiled; /* what a cache would know */
    return VK_SUCCESS;
}

/* ---- a session ---- */

static struct duet duet;
static struct vns_session *session;
static struct vns_device device;

static void add(uint32_t type, uint64_t id, void *handle)
{
    assert_int_equal(vns_objects_add(&session->objects, type, id, handle, &device, NULL), 0);
}

static void start_with(unsigned threads)
{
    gpu.compiling = gpu.meet = gpu.compiled = gpu.modules_destroyed = gpu.layouts_destroyed = 0;
    gpu.module_dead_while_used = false;
    gpu.result = VK_SUCCESS;
    session = calloc(1, sizeof(*session));
    assert_non_null(session);
    duet_start(&duet, WINDOW, 0);
    vns_channel_fini(&duet.channel); /* the session has its own */
    assert_int_equal(vns_channel_init(&session->channel, duet.ep, NULL, NULL), 0);
    device = (struct vns_device){.handle = (VkDevice)(void *)&handles[0],
                                 .driver = {.vkCreateComputePipelines = compile,
                                            .vkDestroyShaderModule = destroy_module,
                                            .vkDestroyPipelineLayout = destroy_layout,
                                            .vkDestroyPipeline = destroy_pipeline,
                                            .vkGetPipelineCacheData = cache_data}};
    hw_arena_init(&session->arena, VN_ARENA_MAX);
    vns_objects_init(&session->objects, 1000, VNS_PIPELINE_JOBS_MAX + 2);
    assert_int_equal(vns_stream_init(session), 0);
    assert_int_equal(vns_pipelines_create(threads, &session->pipelines), 0);
    add(VK_OBJECT_TYPE_DEVICE, DEVICE, &handles[0]);
    add(VK_OBJECT_TYPE_SHADER_MODULE, MODULE, &handles[1]);
    add(VK_OBJECT_TYPE_PIPELINE_LAYOUT, LAYOUT, &handles[2]);
    add(VK_OBJECT_TYPE_PIPELINE_CACHE, CACHE, &handles[3]);
}

static int end(void **state)
{
    (void)state;
    vns_pipelines_finish(session);
    vns_pipelines_destroy(session->pipelines);
    vns_objects_fini(&session->objects);
    vn_keymap_fini(&session->classes);
    free(session->named.things);
    hw_arena_fini(&session->arena);
    vns_channel_fini(&session->channel);
    assert_int_equal(vns_channel_init(&duet.channel, duet.ep, NULL, NULL), 0);
    free(session);
    duet_end(&duet);
    return 0;
}

/* ---- what a client sends ---- */

static struct vn_object object(uint64_t id, uint32_t type)
{
    return (struct vn_object){.id = id, .type = type};
}

static void put_create_with(struct wire_enc *e, uint64_t id, VkPipelineCache cache,
                            const VkSpecializationInfo *constants)
{
    struct vn_object d = object(DEVICE, VK_OBJECT_TYPE_DEVICE);
    struct vn_object module = object(MODULE, VK_OBJECT_TYPE_SHADER_MODULE);
    struct vn_object layout = object(LAYOUT, VK_OBJECT_TYPE_PIPELINE_LAYOUT);
    struct vn_object pipeline = object(id, VK_OBJECT_TYPE_PIPELINE);
    VkPipeline out = (VkPipeline)(void *)&pipeline;
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = (VkShaderModule)(void *)&module,
                  .pName = "main",
                  .pSpecializationInfo = constants},
        .layout = (VkPipelineLayout)(void *)&layout,
    };
    vn_enc_cmd_vkCreateComputePipelines(e, (VkDevice)(void *)&d, cache, 1, &info, NULL, &out);
}

static void put_create(struct wire_enc *e, uint64_t id, VkPipelineCache cache)
{
    put_create_with(e, id, cache, NULL);
}

/* Executes what was put. */
static void execute(struct wire_enc *e, struct wire_enc *reply)
{
    assert_int_equal(wire_enc_error(e), 0);
    assert_int_equal(vns_stream_execute(session, wire_enc_data(e), wire_enc_len(e), reply), 0);
    wire_enc_reset(e);
}

static struct vns_thing *pipeline(uint64_t id)
{
    return vns_objects_find(&session->objects, id, VK_OBJECT_TYPE_PIPELINE);
}

static void destroy(struct wire_enc *e, uint32_t type, uint64_t id)
{
    struct vn_object d = object(DEVICE, VK_OBJECT_TYPE_DEVICE), it = object(id, type);
    VkDevice from = (VkDevice)(void *)&d;
    if (type == VK_OBJECT_TYPE_SHADER_MODULE)
        vn_enc_cmd_vkDestroyShaderModule(e, from, (VkShaderModule)(void *)&it, NULL);
    else if (type == VK_OBJECT_TYPE_PIPELINE_LAYOUT)
        vn_enc_cmd_vkDestroyPipelineLayout(e, from, (VkPipelineLayout)(void *)&it, NULL);
    else
        vn_enc_cmd_vkDestroyPipeline(e, from, (VkPipeline)(void *)&it, NULL);
}

/* The push says that a pipeline's creation has ended. */
static void expect_told(size_t index, uint64_t id)
{
    duet_wait(&duet, index + 1);
    assert_int_equal(duet.pushes[index].method, VN_PUSH_COMPILED);
    assert_int_equal(duet.pushes[index].len, 8);
    assert_int_equal(wire_load64(duet.pushes[index].head), id);
}

/* ---- tests ---- */

/* Neither compiler ends before both have begun: in stream order the first would never. */
static void two_compile_at_the_same_time(void **state)
{
    (void)state;
    struct wire_enc e;
    start_with(2);
    gpu.meet = 2;
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    put_create(&e, FIRST, VK_NULL_HANDLE);
    put_create(&e, FIRST + 1, VK_NULL_HANDLE);
    execute(&e, NULL);
    vns_pipelines_finish(session);
    assert_non_null(pipeline(FIRST)->handle);
    assert_non_null(pipeline(FIRST + 1)->handle);
    assert_ptr_not_equal(pipeline(FIRST)->handle, pipeline(FIRST + 1)->handle);
    wire_enc_fini(&e);
}

static void who_needs_one_waits_for_that_one(void **state)
{
    (void)state;
    struct wire_enc e;
    start_with(VNS_PIPELINES_LAZY);
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    put_create(&e, FIRST, VK_NULL_HANDLE);
    put_create(&e, FIRST + 1, VK_NULL_HANDLE);
    put_create(&e, FIRST + 2, VK_NULL_HANDLE);
    execute(&e, NULL);
    assert_int_equal(gpu.compiled, 0);
    destroy(&e, VK_OBJECT_TYPE_PIPELINE, FIRST + 1);
    execute(&e, NULL);
    assert_int_equal(gpu.compiled, 1);
    assert_null(pipeline(FIRST + 1));
    assert_non_null(pipeline(FIRST)->compile);
    assert_non_null(pipeline(FIRST + 2)->compile);
    wire_enc_fini(&e);
}

/* Programs destroy modules as soon as they have made their pipelines of them. */
static void what_a_job_uses_lives_until_it_is_done(void **state)
{
    (void)state;
    struct wire_enc e;
    start_with(VNS_PIPELINES_LAZY);
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    put_create(&e, FIRST, VK_NULL_HANDLE);
    put_create(&e, FIRST + 1, VK_NULL_HANDLE);
    destroy(&e, VK_OBJECT_TYPE_SHADER_MODULE, MODULE);
    destroy(&e, VK_OBJECT_TYPE_PIPELINE_LAYOUT, LAYOUT);
    execute(&e, NULL);
    assert_null(vns_objects_find(&session->objects, MODULE, VK_OBJECT_TYPE_UNKNOWN));
    assert_int_equal(gpu.compiled, 0);
    assert_int_equal(gpu.modules_destroyed, 0);
    destroy(&e, VK_OBJECT_TYPE_PIPELINE, FIRST);
    execute(&e, NULL);
    assert_int_equal(gpu.modules_destroyed, 0); /* the other still needs it */
    vns_pipelines_finish(session);
    assert_int_equal(gpu.modules_destroyed, 1);
    assert_int_equal(gpu.layouts_destroyed, 1);
    assert_false(gpu.module_dead_while_used);
    wire_enc_fini(&e);
}

static void one_that_is_answered_is_made_in_its_place(void **state)
{
    (void)state;
    struct wire_enc e, reply;
    start_with(VNS_PIPELINES_LAZY);
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    wire_enc_init(&reply, WIRE_MESSAGE_MAX);
    put_create(&e, FIRST, VK_NULL_HANDLE);
    execute(&e, &reply);
    assert_int_equal(gpu.compiled, 1);
    assert_non_null(pipeline(FIRST)->handle);
    expect_told(0, FIRST);
    wire_enc_fini(&reply);
    wire_enc_fini(&e);
}

/* Its module is void: no compiler sees it, and somebody may wait for it. */
static void one_that_is_skipped_is_told_too(void **state)
{
    (void)state;
    struct wire_enc e;
    start_with(2);
    vns_objects_find(&session->objects, MODULE, VK_OBJECT_TYPE_UNKNOWN)->handle = NULL;
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    put_create(&e, FIRST, VK_NULL_HANDLE);
    execute(&e, NULL);
    assert_int_equal(gpu.compiled, 0);
    expect_told(0, FIRST);
    wire_enc_fini(&e);
}

/* What the program reads of a cache is what it would read in stream order. */
static void who_reads_a_cache_finds_all_that_went_into_it(void **state)
{
    (void)state;
    struct wire_enc e, reply;
    struct vn_object d = object(DEVICE, VK_OBJECT_TYPE_DEVICE);
    struct vn_object cache = object(CACHE, VK_OBJECT_TYPE_PIPELINE_CACHE);
    size_t size = 0;
    start_with(VNS_PIPELINES_LAZY);
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    wire_enc_init(&reply, WIRE_MESSAGE_MAX);
    put_create(&e, FIRST, (VkPipelineCache)(void *)&cache);
    put_create(&e, FIRST + 1, (VkPipelineCache)(void *)&cache);
    execute(&e, NULL);
    assert_int_equal(gpu.compiled, 0);
    vn_enc_cmd_vkGetPipelineCacheData(&e, (VkDevice)(void *)&d, (VkPipelineCache)(void *)&cache,
                                      &size, NULL);
    execute(&e, &reply);
    assert_int_equal(gpu.compiled, 2);
    wire_enc_fini(&reply);
    wire_enc_fini(&e);
}

static void a_cache_of_the_programs_own_care_serves_one_at_a_time(void **state)
{
    (void)state;
    struct wire_enc e;
    struct vn_object cache = object(CACHE, VK_OBJECT_TYPE_PIPELINE_CACHE);
    start_with(VNS_PIPELINES_LAZY);
    vns_objects_find(&session->objects, CACHE, VK_OBJECT_TYPE_PIPELINE_CACHE)->exclusive = true;
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    put_create(&e, FIRST, (VkPipelineCache)(void *)&cache);
    put_create(&e, FIRST + 1, (VkPipelineCache)(void *)&cache);
    execute(&e, NULL);
    assert_int_equal(gpu.compiled, 1);
    wire_enc_fini(&e);
}

static void jobs_are_bounded(void **state)
{
    (void)state;
    struct wire_enc e;
    start_with(VNS_PIPELINES_LAZY);
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    for (uint64_t i = 0; i < VNS_PIPELINE_JOBS_MAX + 2; i++)
        put_create(&e, FIRST + i, VK_NULL_HANDLE);
    execute(&e, NULL);
    assert_int_equal(gpu.compiled, 2);
    wire_enc_fini(&e);
}

/* A client may say a lot in one create info. */
static void bytes_of_jobs_are_bounded(void **state)
{
    (void)state;
    enum { BYTES = 8 << 20, CREATIONS = 3 * VNS_PIPELINE_BYTES_MAX / BYTES };
    VkSpecializationInfo constants = {.dataSize = BYTES, .pData = calloc(1, BYTES)};
    struct wire_enc e;
    assert_non_null(constants.pData);
    start_with(VNS_PIPELINES_LAZY);
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    for (uint64_t i = 0; i < CREATIONS; i++) {
        put_create_with(&e, FIRST + i, VK_NULL_HANDLE, &constants);
        execute(&e, NULL);
        size_t waiting = i + 1 - gpu.compiled;
        assert_true(waiting * BYTES <= VNS_PIPELINE_BYTES_MAX + BYTES);
    }
    assert_true(gpu.compiled >= CREATIONS / 2);
    wire_enc_fini(&e);
    free((void *)(uintptr_t)constants.pData);
}

static void a_failure_is_told_and_leaves_a_void_id(void **state)
{
    (void)state;
    struct wire_enc e;
    start_with(2);
    gpu.result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    put_create(&e, FIRST, VK_NULL_HANDLE);
    execute(&e, NULL);
    duet_wait(&duet, 1);
    assert_int_equal(duet.pushes[0].method, VN_PUSH_FAILED);
    assert_int_equal(wire_load32(duet.pushes[0].head), VN_CMD_vkCreateComputePipelines);
    assert_int_equal((int32_t)wire_load32(duet.pushes[0].head + 4), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    expect_told(1, FIRST);
    vns_pipelines_finish(session);
    assert_non_null(pipeline(FIRST));
    assert_null(pipeline(FIRST)->handle);
    assert_null(pipeline(FIRST)->compile);
    wire_enc_fini(&e);
}

int main(void)
{
    pthread_mutex_init(&gpu.lock, NULL);
    pthread_cond_init(&gpu.changed, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(two_compile_at_the_same_time, end),
        cmocka_unit_test_teardown(who_needs_one_waits_for_that_one, end),
        cmocka_unit_test_teardown(what_a_job_uses_lives_until_it_is_done, end),
        cmocka_unit_test_teardown(one_that_is_answered_is_made_in_its_place, end),
        cmocka_unit_test_teardown(one_that_is_skipped_is_told_too, end),
        cmocka_unit_test_teardown(who_reads_a_cache_finds_all_that_went_into_it, end),
        cmocka_unit_test_teardown(a_cache_of_the_programs_own_care_serves_one_at_a_time, end),
        cmocka_unit_test_teardown(jobs_are_bounded, end),
        cmocka_unit_test_teardown(bytes_of_jobs_are_bounded, end),
        cmocka_unit_test_teardown(a_failure_is_told_and_leaves_a_void_id, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
