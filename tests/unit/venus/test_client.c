/* Generated entrypoints against a server in the same process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/venus/support/fake.h"
#include "venus/common/shader.h"
#include "vn_client.gen.h"

enum { FIRST_ID = 1 << 30 };

/* A client and its server.  The fake driver creates the objects that the client expects, since
 * both count ids from the same start. */
struct world {
    struct vn_client client; /* first: the ops get it back */
    struct objects *objects;
    struct hw_arena arenas[2];
    struct fake fake;
    struct wire_enc message, seen, reply, stream;
    struct vn_object *device, *command_buffer;
    uint64_t next_id;
    int posts, calls, live, failed, out_of_objects;
    unsigned effects; /* of the last recorded command */
    int recorded;     /* commands whose recording was ended */
    int ending;       /* objects of which the client was told before they were destroyed */
    bool lost;
    bool out_of_memory; /* for messages */
    int loses;
};

static struct wire_enc *record(struct vn_client *c, struct vn_object *command_buffer,
                               unsigned effects)
{
    struct world *w = (struct world *)c;
    w->effects = effects;
    return command_buffer == w->command_buffer ? &w->stream : NULL;
}

static void recorded(struct vn_client *c, struct vn_object *command_buffer)
{
    (void)command_buffer;
    ((struct world *)c)->recorded++;
}

static void queries(struct vn_client *c, struct vn_object *command_buffer, struct vn_object *pool,
                    uint32_t first, uint32_t count, bool written)
{
    (void)c, (void)command_buffer, (void)pool, (void)first, (void)count, (void)written;
}

static void ending(struct vn_client *c, struct vn_object *device, uint64_t count,
                   struct vn_object *const *objects)
{
    struct world *w = (struct world *)c;
    assert_ptr_equal(device, w->device);
    for (uint64_t i = 0; i < count; i++)
        w->ending += objects[i] != NULL;
}

static struct wire_enc *begin(struct vn_client *c)
{
    struct world *w = (struct world *)c;
    wire_enc_reset(&w->message);
    return w->lost ? NULL : &w->message;
}

static void on_failed(void *objects, uint32_t command, VkResult result)
{
    (void)objects, (void)command, (void)result;
    CONTAINER_OF(fake_now, struct world, fake)->failed++;
}

static void on_destroyed(void *objects, uint32_t type, uint64_t id)
{
    (void)objects, (void)type, (void)id;
}

static void dropped(void *objects, void *handle)
{
    (void)objects, (void)handle;
    CONTAINER_OF(fake_now, struct world, fake)->live--;
}

static const struct vn_decoder_ops decoder_ops = {.lookup = objects_lookup, .dropped = dropped};

static VkResult serve(struct world *w, const struct wire_enc *e, struct wire_enc *reply)
{
    static const struct vn_hooks hooks;
    static const struct vn_exec_ops ops = {.id_is_fresh = objects_id_is_fresh,
                                           .created = objects_created,
                                           .destroyed = on_destroyed,
                                           .failed = on_failed};
    struct vn_exec x = {.driver = &fake_driver,
                        .hooks = &hooks,
                        .ops = &ops,
                        .objects = w->objects,
                        .reply = reply};
    struct vn_decoder d;
    vn_decoder_init(&d, &w->arenas[1], &decoder_ops, w->objects);
    d.command_buffer = w->command_buffer;
    assert_int_equal(wire_enc_error(e), 0);
    wire_enc_reset(&w->seen);
    return fake_session(&x, &d, wire_enc_data(e), wire_enc_len(e)) ? VK_ERROR_DEVICE_LOST
                                                                   : VK_SUCCESS;
}

static VkResult post(struct vn_client *c, struct wire_enc *e)
{
    struct world *w = (struct world *)c;
    if (w->out_of_memory)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    w->posts++;
    return serve(w, e, NULL);
}

static void lose(struct vn_client *c)
{
    ((struct world *)c)->loses++;
}

static VkResult call(struct vn_client *c, struct wire_enc *e, struct vn_decoder *reply)
{
    struct world *w = (struct world *)c;
    if (w->out_of_memory)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    w->calls++;
    wire_enc_reset(&w->reply);
    VkResult result = serve(w, e, &w->reply);
    vn_decoder_init(reply, &w->arenas[0], &decoder_ops, w->objects);
    vn_decoder_feed(reply, wire_enc_data(&w->reply), wire_enc_len(&w->reply));
    return result;
}

static VkResult finish(struct vn_client *c, struct vn_decoder *reply)
{
    (void)c;
    return vn_decoder_end(reply) ? VK_ERROR_DEVICE_LOST : VK_SUCCESS;
}

static struct vn_object *object_new(struct vn_client *c, uint32_t type, struct vn_object *parent)
{
    struct world *w = (struct world *)c;
    assert_ptr_equal(parent, w->device);
    if (w->out_of_objects && --w->out_of_objects == 0)
        return NULL;
    struct vn_object *o = objects_add(w->objects, w->next_id++, type);
    o->client = c;
    w->live++;
    return o;
}

static void object_free(struct vn_client *c, struct vn_object *object)
{
    assert_non_null(object);
    ((struct world *)c)->live--;
}

static const struct vn_client_ops client_ops = {.record = record,
                                                .recorded = recorded,
                                                .queries = queries,
                                                .ending = ending,
                                                .begin = begin,
                                                .post = post,
                                                .lose = lose,
                                                .call = call,
                                                .finish = finish,
                                                .object_new = object_new,
                                                .object_free = object_free};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    w->client.ops = &client_ops;
    w->objects = calloc(1, sizeof(*w->objects));
    hw_arena_init(&w->arenas[0], VN_ARENA_MAX);
    hw_arena_init(&w->arenas[1], VN_ARENA_MAX);
    wire_enc_init(&w->message, WIRE_MESSAGE_MAX);
    wire_enc_init(&w->seen, WIRE_MESSAGE_MAX);
    wire_enc_init(&w->reply, WIRE_MESSAGE_MAX);
    wire_enc_init(&w->stream, WIRE_MESSAGE_MAX);
    w->next_id = FIRST_ID;
    w->fake.seen = &w->seen;
    w->fake.filler =
        (struct filler){.arena = &w->arenas[0], .objects = w->objects, .next_id = FIRST_ID};
    hw_rng_seed(&w->fake.filler.rng, 1);
    w->device = objects_add(w->objects, 1, VK_OBJECT_TYPE_DEVICE);
    w->command_buffer = objects_add(w->objects, 2, VK_OBJECT_TYPE_COMMAND_BUFFER);
    w->device->client = w->command_buffer->client = &w->client;
    fake_now = &w->fake;
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    hw_arena_fini(&w->arenas[0]);
    hw_arena_fini(&w->arenas[1]);
    wire_enc_fini(&w->message);
    wire_enc_fini(&w->seen);
    wire_enc_fini(&w->reply);
    wire_enc_fini(&w->stream);
    free(w->objects);
    free(w);
    return 0;
}

static const VkBufferCreateInfo buffer_info = {
    .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
    .size = 4096,
    .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
    .pQueueFamilyIndices = (const uint32_t *)1, /* ignored: the sharing is exclusive */
};

static void test_a_create_is_posted_and_its_object_is_there(void **state)
{
    struct world *w = *state;
    VkBuffer buffer = VK_NULL_HANDLE;
    assert_int_equal(vn_vkCreateBuffer((VkDevice)w->device, &buffer_info, NULL, &buffer),
                     VK_SUCCESS);
    assert_int_equal(w->posts, 1);
    assert_int_equal(w->calls, 0);
    assert_int_equal(w->fake.calls, 1);
    assert_ptr_equal(objects_lookup(w->objects, FIRST_ID, VK_OBJECT_TYPE_BUFFER), buffer);
    vn_vkDestroyBuffer((VkDevice)w->device, buffer, NULL);
    assert_int_equal(w->ending, 1);
    assert_int_equal(w->fake.calls, 2);
    assert_int_equal(w->live, 0);
}

static void test_destroying_nothing_sends_nothing(void **state)
{
    struct world *w = *state;
    vn_vkDestroyBuffer((VkDevice)w->device, VK_NULL_HANDLE, NULL);
    assert_int_equal(w->posts, 0);
}

static void test_a_failed_post_is_told_to_the_server_only(void **state)
{
    struct world *w = *state;
    VkBuffer buffer;
    w->fake.result = VK_ERROR_OUT_OF_HOST_MEMORY;
    assert_int_equal(vn_vkCreateBuffer((VkDevice)w->device, &buffer_info, NULL, &buffer),
                     VK_SUCCESS);
    assert_int_equal(w->failed, 1);
}

static void test_sync_mode_tells_the_failure_and_drops_the_object(void **state)
{
    struct world *w = *state;
    VkBuffer buffer;
    w->client.sync = true;
    w->fake.result = VK_ERROR_OUT_OF_HOST_MEMORY;
    assert_int_equal(vn_vkCreateBuffer((VkDevice)w->device, &buffer_info, NULL, &buffer),
                     VK_ERROR_OUT_OF_HOST_MEMORY);
    assert_int_equal(w->calls, 1);
    assert_null(buffer);
    assert_int_equal(w->live, 0);
}

static void test_memory_is_allocated_by_a_call(void **state)
{
    struct world *w = *state;
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = 1 << 20};
    VkDeviceMemory memory;
    w->fake.result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    assert_int_equal(vn_vkAllocateMemory((VkDevice)w->device, &info, NULL, &memory),
                     VK_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(w->calls, 1);
    assert_int_equal(w->live, 0);
}

static void test_pipelines_are_called_when_the_program_acts_on_the_result(void **state)
{
    struct world *w = *state;
    struct vn_shader_entry entry = {.model = 5, .name = (char[]){"main"}};
    struct vn_shader shader = {.entry_count = 1, .entries = &entry};
    struct vn_object *module = objects_add(w->objects, 3, VK_OBJECT_TYPE_SHADER_MODULE);
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = (VkShaderModule)module,
                  .pName = "main"}};
    VkPipeline pipeline;
    VkDevice device = (VkDevice)w->device;
    module->facts = &shader;
    assert_int_equal(vn_vkCreateComputePipelines(device, NULL, 1, &info, NULL, &pipeline), 0);
    assert_int_equal(w->posts, 1);
    info.flags = VK_PIPELINE_CREATE_FAIL_ON_PIPELINE_COMPILE_REQUIRED_BIT;
    w->fake.result = VK_PIPELINE_COMPILE_REQUIRED;
    assert_int_equal(vn_vkCreateComputePipelines(device, NULL, 1, &info, NULL, &pipeline),
                     VK_PIPELINE_COMPILE_REQUIRED);
    assert_int_equal(w->calls, 1);
}

static void test_pipelines_of_doubtful_shaders_are_called(void **state)
{
    struct world *w = *state;
    struct vn_shader_entry entry = {.model = 5, .name = (char[]){"other"}};
    struct vn_shader shader = {.entry_count = 1, .entries = &entry};
    struct vn_object *module = objects_add(w->objects, 3, VK_OBJECT_TYPE_SHADER_MODULE);
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = (VkShaderModule)module,
                  .pName = "main"}};
    VkPipeline pipeline;
    VkDevice device = (VkDevice)w->device;
    w->fake.result = VK_ERROR_UNKNOWN;
    assert_int_equal(vn_vkCreateComputePipelines(device, NULL, 1, &info, NULL, &pipeline),
                     VK_ERROR_UNKNOWN); /* code that could not be read */
    module->facts = &shader;
    assert_int_equal(vn_vkCreateComputePipelines(device, NULL, 1, &info, NULL, &pipeline),
                     VK_ERROR_UNKNOWN); /* an entry point that is not there */
    assert_int_equal(w->calls, 2);
}

static void test_running_out_of_objects_undoes_the_rest(void **state)
{
    struct world *w = *state;
    VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandBufferCount = 3};
    VkCommandBuffer buffers[3];
    w->out_of_objects = 3;
    assert_int_equal(vn_vkAllocateCommandBuffers((VkDevice)w->device, &info, buffers),
                     VK_ERROR_OUT_OF_HOST_MEMORY);
    assert_int_equal(w->live, 0);
    assert_int_equal(w->posts, 0);
    for (int i = 0; i < 3; i++)
        assert_null(buffers[i]);
}

static void test_commands_are_recorded_and_run_later(void **state)
{
    struct world *w = *state;
    VkCommandBuffer commands = (VkCommandBuffer)w->command_buffer;
    vn_vkCmdDispatch(commands, 1, 2, 3);
    vn_vkCmdDispatch(commands, 4, 5, 6);
    assert_int_equal(w->recorded, 2);
    assert_int_equal(w->effects, 0); /* what is bound is the client's to follow */
    assert_int_equal(w->posts + w->calls, 0);
    assert_int_equal(w->fake.calls, 0);
    assert_int_equal(serve(w, &w->stream, NULL), VK_SUCCESS);
    assert_int_equal(w->fake.calls, 2);
    assert_int_equal(wire_enc_len(&w->seen), wire_enc_len(&w->stream));
    assert_memory_equal(wire_enc_data(&w->seen), wire_enc_data(&w->stream),
                        wire_enc_len(&w->stream));
}

static void test_recorded_commands_outside_a_stream_are_refused(void **state)
{
    struct world *w = *state;
    vn_vkCmdDispatch((VkCommandBuffer)w->command_buffer, 1, 2, 3);
    w->command_buffer = NULL;
    assert_int_equal(serve(w, &w->stream, NULL), VK_ERROR_DEVICE_LOST);
    assert_int_equal(w->fake.calls, 0);
}

static void test_a_call_brings_its_outputs(void **state)
{
    struct world *w = *state;
    struct vn_object *buffer = objects_add(w->objects, 7, VK_OBJECT_TYPE_BUFFER);
    VkMemoryRequirements requirements = {0};
    vn_vkGetBufferMemoryRequirements((VkDevice)w->device, (VkBuffer)buffer, &requirements);
    assert_int_equal(w->calls, 1);
    assert_true(requirements.size != 0 && requirements.alignment != 0);
}

static void test_a_lost_server_is_an_error_from_all(void **state)
{
    struct world *w = *state;
    VkDevice device = (VkDevice)w->device;
    struct vn_object *pool = objects_add(w->objects, 7, VK_OBJECT_TYPE_COMMAND_POOL);
    struct vn_object *image = objects_add(w->objects, 8, VK_OBJECT_TYPE_IMAGE);
    VkBuffer buffer;
    VkSubresourceLayout layout;
    w->lost = true;
    assert_int_equal(vn_vkCreateBuffer(device, &buffer_info, NULL, &buffer), VK_ERROR_DEVICE_LOST);
    assert_null(buffer);
    assert_int_equal(w->live, 0);
    assert_int_equal(vn_vkResetCommandPool(device, (VkCommandPool)pool, 0), VK_ERROR_DEVICE_LOST);
    vn_vkGetImageSubresourceLayout(device, (VkImage)image, &(VkImageSubresource){0}, &layout);
    vn_vkDestroyCommandPool(device, (VkCommandPool)pool, NULL);
    assert_int_equal(w->posts + w->calls, 0);
}

static void test_no_memory_for_a_message(void **state)
{
    struct world *w = *state;
    VkDevice device = (VkDevice)w->device;
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
    struct vn_object *pool = objects_add(w->objects, 7, VK_OBJECT_TYPE_QUERY_POOL);
    VkBuffer buffer;
    VkDeviceMemory memory;
    w->out_of_memory = true;
    assert_int_equal(vn_vkCreateBuffer(device, &buffer_info, NULL, &buffer),
                     VK_ERROR_OUT_OF_HOST_MEMORY);
    assert_int_equal(vn_vkAllocateMemory(device, &info, NULL, &memory),
                     VK_ERROR_OUT_OF_HOST_MEMORY);
    assert_true(!buffer && !memory);
    assert_int_equal(w->live, 0);
    assert_int_equal(w->loses, 0);
    vn_vkResetQueryPool(device, (VkQueryPool)pool, 0, 1);
    assert_int_equal(w->loses, 1);
}

static void test_the_table_knows_every_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < vn_command_count; i++) {
        const struct vn_command_info *info = &vn_command_table[i];
        assert_ptr_equal(vn_command_find(info->name), info);
        const struct vn_command_info *canonical = vn_command_find(info->canonical);
        assert_non_null(canonical);
        assert_int_equal(canonical->id, info->id);
        assert_int_equal(info->class >= VN_CLASS_LOCAL, info->id == 0);
        if (info->id)
            assert_string_equal(vn_command_name(info->id), info->canonical);
        if (info->class < VN_CLASS_SNAPSHOT || info->class == VN_CLASS_REFUSE)
            assert_non_null(vn_client_entry(info->name));
        else
            assert_null(vn_client_entry(info->name));
    }
    assert_null(vn_command_find("vkNoSuchCommand"));
    assert_null(vn_command_name(0));
    assert_ptr_equal(vn_client_entry("vkCmdBeginRenderingKHR"), vn_vkCmdBeginRendering);
    assert_string_equal(vn_command_find("vkCmdBeginRendering")->origins[0], "VK_VERSION_1_3");
}

static void test_only_what_may_cross_a_network_is_offered(void **state)
{
    (void)state;
    assert_int_equal(vn_extension_find("VK_KHR_push_descriptor")->offered, true);
    assert_int_equal(vn_extension_find("VK_KHR_external_semaphore_fd")->offered, true);
    assert_int_equal(vn_extension_find("VK_KHR_external_semaphore_win32")->offered, false);
    assert_int_equal(vn_extension_find("VK_KHR_xcb_surface")->client_only, true);
    assert_null(vn_extension_find("VK_NO_such_extension"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_create_is_posted_and_its_object_is_there),
        TEST(test_destroying_nothing_sends_nothing),
        TEST(test_a_failed_post_is_told_to_the_server_only),
        TEST(test_sync_mode_tells_the_failure_and_drops_the_object),
        TEST(test_memory_is_allocated_by_a_call),
        TEST(test_pipelines_are_called_when_the_program_acts_on_the_result),
        TEST(test_pipelines_of_doubtful_shaders_are_called),
        TEST(test_running_out_of_objects_undoes_the_rest),
        TEST(test_commands_are_recorded_and_run_later),
        TEST(test_recorded_commands_outside_a_stream_are_refused),
        TEST(test_a_call_brings_its_outputs),
        TEST(test_a_lost_server_is_an_error_from_all),
        TEST(test_no_memory_for_a_message),
        cmocka_unit_test(test_the_table_knows_every_name),
        cmocka_unit_test(test_only_what_may_cross_a_network_is_offered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
