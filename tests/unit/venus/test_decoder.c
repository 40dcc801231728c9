/* What a peer may send: unknown structures, endless chains, wrong ids, counts that lie. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/venus/support/fake.h"

struct world {
    struct objects *objects;
    struct hw_arena arena;
    struct vn_decoder d;
    struct wire_enc e, seen, reply;
    struct fake fake;
    struct vn_exec x;
    uint64_t ended[4];
    uint32_t end_count, skips, failures;
    uint32_t last_skipped;
};

static struct world *world_now(void)
{
    return CONTAINER_OF(fake_now, struct world, fake);
}

static void on_failed(void *objects, uint32_t command, VkResult result)
{
    (void)objects, (void)command, (void)result;
    world_now()->failures++;
}

static void on_destroyed(void *objects, uint32_t type, uint64_t id)
{
    struct world *w = world_now();
    (void)objects, (void)type;
    assert_true(w->end_count < ARRAY_LEN(w->ended));
    w->ended[w->end_count++] = id;
}

static void on_skipped(void *objects, uint32_t command)
{
    (void)objects;
    world_now()->skips++;
    world_now()->last_skipped = command;
}

static int setup(void **state)
{
    static const struct vn_decoder_ops ops = {.lookup = objects_lookup,
                                              .is_poisoned = objects_is_poisoned};
    static const struct vn_exec_ops exec_ops = {.id_is_fresh = objects_id_is_fresh,
                                                .created = objects_created,
                                                .destroyed = on_destroyed,
                                                .failed = on_failed,
                                                .skipped = on_skipped};
    static const struct vn_hooks hooks;
    struct world *w = calloc(1, sizeof(*w));
    w->objects = calloc(1, sizeof(*w->objects));
    hw_arena_init(&w->arena, VN_ARENA_MAX);
    vn_decoder_init(&w->d, &w->arena, &ops, w->objects);
    wire_enc_init(&w->e, WIRE_MESSAGE_MAX);
    wire_enc_init(&w->seen, WIRE_MESSAGE_MAX);
    wire_enc_init(&w->reply, WIRE_MESSAGE_MAX);
    w->fake.seen = &w->seen;
    w->fake.filler = (struct filler){.arena = &w->arena, .objects = w->objects, .next_id = 100};
    hw_rng_seed(&w->fake.filler.rng, 1);
    w->x = (struct vn_exec){.driver = &fake_driver,
                            .hooks = &hooks,
                            .ops = &exec_ops,
                            .objects = w->objects,
                            .reply = &w->reply};
    fake_now = &w->fake;
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    hw_arena_fini(&w->arena);
    wire_enc_fini(&w->e);
    wire_enc_fini(&w->seen);
    wire_enc_fini(&w->reply);
    free(w->objects);
    free(w);
    return 0;
}

static int run(struct world *w)
{
    assert_int_equal(wire_enc_error(&w->e), 0);
    return fake_session(&w->x, &w->d, wire_enc_data(&w->e), wire_enc_len(&w->e));
}

static VkDevice device(struct world *w)
{
    return (VkDevice)objects_add(w->objects, 1, VK_OBJECT_TYPE_DEVICE);
}

static VkCommandPool pool(struct world *w)
{
    return (VkCommandPool)objects_add(w->objects, 9, VK_OBJECT_TYPE_COMMAND_POOL);
}

static void test_an_unknown_structure_is_stepped_over(void **state)
{
    struct world *w = *state;
    VkMemoryPriorityAllocateInfoEXT priority = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_PRIORITY_ALLOCATE_INFO_EXT, .priority = 0.5f};
    wire_put_u32(&w->e, 0x7ffffff0);
    wire_put_u32(&w->e, 3);
    wire_put_bytes(&w->e, "abc", 3);
    vn_enc_chain(&w->e, &priority);
    vn_decoder_feed(&w->d, wire_enc_data(&w->e), wire_enc_len(&w->e));
    VkMemoryPriorityAllocateInfoEXT *chain = vn_dec_chain(&w->d);
    assert_int_equal(vn_decoder_end(&w->d), 0);
    assert_int_equal(w->d.unknown_stypes, 1);
    assert_int_equal(chain->sType, priority.sType);
    assert_true(chain->priority == 0.5f);
    assert_null(chain->pNext);
}

static void test_a_structure_with_a_wrong_length_is_refused(void **state)
{
    struct world *w = *state;
    for (uint32_t len = 3; len <= 5; len++) {
        wire_enc_reset(&w->e);
        wire_put_u32(&w->e, VK_STRUCTURE_TYPE_MEMORY_PRIORITY_ALLOCATE_INFO_EXT);
        wire_put_u32(&w->e, len);
        wire_put_bytes(&w->e, "abcdefgh", len);
        wire_put_u32(&w->e, VN_CHAIN_END);
        vn_decoder_feed(&w->d, wire_enc_data(&w->e), wire_enc_len(&w->e));
        (void)vn_dec_chain(&w->d);
        assert_int_equal(vn_decoder_end(&w->d), len == 4 ? 0 : -EPROTO);
    }
}

static void test_a_chain_has_a_limit(void **state)
{
    struct world *w = *state;
    for (int length = VN_CHAIN_MAX; length <= VN_CHAIN_MAX + 1; length++) {
        wire_enc_reset(&w->e);
        for (int i = 0; i < length; i++) {
            wire_put_u32(&w->e, VK_STRUCTURE_TYPE_MEMORY_PRIORITY_ALLOCATE_INFO_EXT);
            wire_put_u32(&w->e, 4);
            wire_put_f32(&w->e, 1);
        }
        wire_put_u32(&w->e, VN_CHAIN_END);
        vn_decoder_feed(&w->d, wire_enc_data(&w->e), wire_enc_len(&w->e));
        (void)vn_dec_chain(&w->d);
        assert_int_equal(vn_decoder_end(&w->d), length == VN_CHAIN_MAX ? 0 : -EMSGSIZE);
    }
}

static void test_chains_within_chains_have_a_limit(void **state)
{
    struct world *w = *state;
    VkSubpassDescriptionDepthStencilResolve resolve[VN_DEPTH_MAX + 1] = {0};
    VkAttachmentReference2 reference[VN_DEPTH_MAX + 1] = {0};
    for (int depth = 1; depth <= VN_DEPTH_MAX + 1; depth++) {
        int last = depth - 1;
        resolve[last].sType = VK_STRUCTURE_TYPE_SUBPASS_DESCRIPTION_DEPTH_STENCIL_RESOLVE;
        reference[last].sType = VK_STRUCTURE_TYPE_ATTACHMENT_REFERENCE_2;
        if (last > 0) {
            resolve[last - 1].pDepthStencilResolveAttachment = &reference[last - 1];
            reference[last - 1].pNext = &resolve[last];
        }
        wire_enc_reset(&w->e);
        vn_enc_chain(&w->e, resolve);
        vn_decoder_feed(&w->d, wire_enc_data(&w->e), wire_enc_len(&w->e));
        (void)vn_dec_chain(&w->d);
        assert_int_equal(vn_decoder_end(&w->d), depth <= VN_DEPTH_MAX ? 0 : -EMSGSIZE);
    }
}

static void test_room_for_more_than_an_answer_costs_the_command_only(void **state)
{
    struct world *w = *state;
    VkDevice dev = device(w);
    struct vn_object *set = objects_add(w->objects, 5, VK_OBJECT_TYPE_PIPELINE);
    size_t size = (size_t)1 << 40;
    uint8_t data[1];
    wire_enc_reset(&w->e);
    vn_enc_cmd_vkGetRayTracingShaderGroupHandlesKHR(&w->e, dev, (VkPipeline)set, 0, 1, size, data);
    assert_int_equal(run(w), 0);
    assert_int_equal(w->skips, 1);
    assert_int_equal(w->fake.calls, 0);
    wire_enc_reset(&w->e);
    VkPipelineExecutableInternalRepresentationKHR texts[2];
    for (int i = 0; i < 2; i++)
        texts[i] = (VkPipelineExecutableInternalRepresentationKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR,
            .dataSize = VN_OUTPUT_MAX / 2,
            .pData = data};
    VkPipelineExecutableInfoKHR which = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
                                         .pipeline = (VkPipeline)set};
    uint32_t count = 2;
    vn_enc_cmd_vkGetPipelineExecutableInternalRepresentationsKHR(&w->e, dev, &which, &count, texts);
    assert_int_equal(run(w), 0);
    assert_int_equal(w->skips, 2);
    assert_int_equal(w->fake.calls, 0);
}

static void test_commands_with_unknown_and_wrong_ids_are_skipped(void **state)
{
    struct world *w = *state;
    VkDevice dev = device(w);
    struct vn_object stranger = {.id = 77};
    struct vn_object *image = objects_add(w->objects, 5, VK_OBJECT_TYPE_IMAGE);
    VkMemoryRequirements out;
    vn_enc_cmd_vkGetBufferMemoryRequirements(&w->e, dev, (VkBuffer)&stranger, &out);
    assert_int_equal(run(w), 0);
    assert_int_equal(w->d.bad_id, 77);
    wire_enc_reset(&w->e);
    vn_enc_cmd_vkGetBufferMemoryRequirements(&w->e, dev, (VkBuffer)image, &out);
    assert_int_equal(run(w), 0);
    assert_int_equal(w->d.bad_id, 5);
    assert_int_equal(w->skips, 2);
    wire_enc_reset(&w->e);
    vn_enc_cmd_vkGetBufferMemoryRequirements(&w->e, dev, NULL, &out);
    assert_int_equal(run(w), -EPROTO);
    assert_int_equal(w->fake.calls, 0);
}

static void test_an_id_is_given_once(void **state)
{
    struct world *w = *state;
    VkEventCreateInfo info = {.sType = VK_STRUCTURE_TYPE_EVENT_CREATE_INFO};
    VkEvent event = (VkEvent)objects_add(w->objects, 100, VK_OBJECT_TYPE_EVENT);
    vn_enc_cmd_vkCreateEvent(&w->e, device(w), &info, NULL, &event);
    assert_int_equal(run(w), 0);
    assert_int_equal(run(w), -EEXIST);
    assert_int_equal(w->fake.calls, 1);
}

/* A buffer whose creation failed at the driver; the client's handle for its id. */
static VkBuffer void_buffer(struct world *w, uint64_t id, struct vn_object *handle)
{
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
    VkBuffer buffer = (VkBuffer)handle;
    *handle = (struct vn_object){.id = id, .type = VK_OBJECT_TYPE_BUFFER};
    w->fake.result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    wire_enc_reset(&w->e);
    vn_enc_cmd_vkCreateBuffer(&w->e, device(w), &info, NULL, &buffer);
    assert_int_equal(run(w), 0);
    assert_int_equal(w->failures, 1);
    assert_true(objects_is_poisoned(w->objects, id, VK_OBJECT_TYPE_BUFFER));
    w->fake.result = VK_SUCCESS;
    w->fake.calls = 0;
    wire_enc_reset(&w->e);
    wire_enc_reset(&w->reply);
    return buffer;
}

static void test_a_command_on_a_void_id_is_skipped(void **state)
{
    struct world *w = *state;
    struct vn_object handle, view_handle = {.id = 301};
    VkBuffer buffer = void_buffer(w, 300, &handle);
    VkBufferViewCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO,
                                   .buffer = buffer};
    VkBufferView view = (VkBufferView)&view_handle;
    vn_enc_cmd_vkCreateBufferView(&w->e, device(w), &info, NULL, &view);
    assert_int_equal(run(w), 0);
    assert_int_equal(w->fake.calls, 0);
    assert_int_equal(w->skips, 1);
    assert_int_equal(w->last_skipped, VN_CMD_vkCreateBufferView);
    assert_int_equal(w->failures, 1); /* the buffer's; a skip is none */
    assert_true(objects_is_poisoned(w->objects, 301, VK_OBJECT_TYPE_BUFFER_VIEW));
    vn_decoder_feed(&w->d, wire_enc_data(&w->reply), wire_enc_len(&w->reply));
    assert_int_equal(vn_dec_reply_vkCreateBufferView(&w->d, device(w), &info, NULL, &view),
                     VK_ERROR_UNKNOWN);
    assert_int_equal(vn_decoder_end(&w->d), 0);
    assert_null(view);
}

static void test_what_follows_a_skipped_command_is_executed(void **state)
{
    struct world *w = *state;
    struct vn_object handle;
    VkBuffer buffer = void_buffer(w, 300, &handle);
    VkMemoryRequirements out;
    vn_enc_cmd_vkGetBufferMemoryRequirements(&w->e, device(w), buffer, &out);
    vn_enc_cmd_vkTrimCommandPool(&w->e, device(w), pool(w), 0);
    assert_int_equal(run(w), 0);
    assert_int_equal(w->skips, 1);
    assert_int_equal(w->fake.calls, 1);
}

static void test_a_void_id_of_another_type_is_unknown(void **state)
{
    struct world *w = *state;
    struct vn_object handle;
    VkMemoryRequirements out;
    (void)void_buffer(w, 300, &handle);
    vn_enc_cmd_vkGetImageMemoryRequirements(&w->e, device(w), (VkImage)&handle, &out);
    assert_int_equal(run(w), 0);
    assert_int_equal(w->d.bad_id, 300);
    assert_int_equal(w->skips, 1);
}

static void test_a_void_id_can_be_destroyed(void **state)
{
    struct world *w = *state;
    struct vn_object handle;
    VkBuffer buffer = void_buffer(w, 300, &handle);
    vn_enc_cmd_vkDestroyBuffer(&w->e, device(w), buffer, NULL);
    assert_int_equal(run(w), 0);
    assert_int_equal(w->fake.calls, 0);
    assert_int_equal(w->skips, 0);
    assert_int_equal(w->end_count, 1);
    assert_int_equal(w->ended[0], 300);
}

static void test_void_ids_do_not_keep_their_neighbours_alive(void **state)
{
    struct world *w = *state;
    VkCommandBuffer commands[] = {
        (VkCommandBuffer)objects_add(w->objects, 10, VK_OBJECT_TYPE_COMMAND_BUFFER),
        (VkCommandBuffer)objects_add(w->objects, 11, VK_OBJECT_TYPE_COMMAND_BUFFER)};
    assert_int_equal(objects_created(w->objects, VK_OBJECT_TYPE_COMMAND_BUFFER, 11, NULL), 0);
    vn_enc_cmd_vkFreeCommandBuffers(&w->e, device(w), pool(w), 2, commands);
    assert_int_equal(run(w), 0);
    assert_int_equal(w->fake.calls, 1);
    assert_int_equal(w->end_count, 2);
    /* The driver got the first and null. */
    struct wire_enc want;
    wire_enc_init(&want, WIRE_MESSAGE_MAX);
    commands[1] = NULL;
    vn_enc_cmd_vkFreeCommandBuffers(&want, device(w), pool(w), 2, commands);
    assert_int_equal(wire_enc_len(&want), wire_enc_len(&w->seen));
    assert_memory_equal(wire_enc_data(&want), wire_enc_data(&w->seen), wire_enc_len(&want));
    wire_enc_fini(&want);
}

static void test_bytes_behind_a_command_are_refused(void **state)
{
    struct world *w = *state;
    vn_enc_cmd_vkTrimCommandPool(&w->e, device(w), pool(w), 0);
    wire_put_u8(&w->e, 0);
    wire_fill_u32(&w->e, 4, (uint32_t)wire_enc_len(&w->e) - 8);
    assert_int_equal(run(w), -EPROTO);
    assert_int_equal(w->fake.calls, 0);
}

static void test_a_count_that_lies_allocates_nothing(void **state)
{
    struct world *w = *state;
    size_t hole = vn_put_command(&w->e, VN_CMD_vkMergePipelineCaches);
    wire_put_u64(&w->e, vn_id(device(w)));
    wire_put_u64(&w->e, vn_id(objects_add(w->objects, 7, VK_OBJECT_TYPE_PIPELINE_CACHE)));
    wire_put_u32(&w->e, UINT32_MAX);
    wire_put_u8(&w->e, 1);
    wire_put_u64(&w->e, 7);
    wire_fill_len(&w->e, hole);
    assert_int_equal(run(w), -EPROTO);
    assert_true(w->arena.held <= HW_ARENA_BLOCK_MIN);
}

static void test_an_array_that_must_be_there_is_demanded(void **state)
{
    struct world *w = *state;
    size_t hole = vn_put_command(&w->e, VN_CMD_vkMergePipelineCaches);
    wire_put_u64(&w->e, vn_id(device(w)));
    wire_put_u64(&w->e, vn_id(objects_add(w->objects, 7, VK_OBJECT_TYPE_PIPELINE_CACHE)));
    wire_put_u32(&w->e, 1);
    wire_put_u8(&w->e, 0);
    wire_fill_len(&w->e, hole);
    assert_int_equal(run(w), -EPROTO);
    assert_int_equal(w->fake.calls, 0);
}

/* A driver steps over the elements by the stride that it is given. */
static void test_a_stride_is_the_servers_own(void **state)
{
    struct world *w = *state;
    const struct {
        VkMultiDrawInfoEXT draw;
        uint32_t other[3];
    } draws[] = {{{1, 2}, {0}}, {{3, 4}, {0}}};
    struct vn_args_vkCmdDrawMultiEXT a = {0};
    vn_enc_cmd_vkCmdDrawMultiEXT(&w->e, NULL, 2, &draws[0].draw, 1, 0, sizeof(draws[0]));
    uint8_t *bytes = (uint8_t *)(uintptr_t)wire_enc_data(&w->e);
    assert_int_equal(wire_load32(bytes + 8 + 12), sizeof(VkMultiDrawInfoEXT));
    wire_store32(bytes + 8 + 12, 1 << 20);
    vn_decoder_feed(&w->d, bytes + 8, wire_enc_len(&w->e) - 8);
    w->d.command_buffer = &a;
    vn_dec_args_vkCmdDrawMultiEXT(&w->d, &a);
    assert_int_equal(vn_decoder_end(&w->d), 0);
    assert_int_equal(a.stride, sizeof(VkMultiDrawInfoEXT));
    assert_int_equal(a.pVertexInfo[1].firstVertex, 3);
    assert_int_equal(a.pVertexInfo[1].vertexCount, 4);
}

/* A driver writes queries by count and stride; dataSize is the client's word. */
static void test_results_have_room_for_all_that_a_driver_writes(void **state)
{
    struct world *w = *state;
    uint32_t data[2] = {1, 2};
    void *pool = objects_add(w->objects, 7, VK_OBJECT_TYPE_QUERY_POOL);
    vn_enc_cmd_vkGetQueryPoolResults(&w->e, device(w), pool, 0, 100, sizeof(data), data, 4096, 0);
    struct vn_args_vkGetQueryPoolResults a = {0};
    vn_decoder_feed(&w->d, (const uint8_t *)wire_enc_data(&w->e) + 8, wire_enc_len(&w->e) - 8);
    vn_dec_args_vkGetQueryPoolResults(&w->d, &a);
    assert_int_equal(vn_decoder_end(&w->d), 0);
    assert_memory_equal(a.pData, data, sizeof(data));
    assert_true(w->arena.held > 99 * 4096 + VN_QUERY_BYTES);
    wire_enc_reset(&w->e);
    vn_enc_cmd_vkGetQueryPoolResults(&w->e, device(w), pool, 0, 2, sizeof(data), data, UINT64_MAX,
                                     0);
    assert_int_equal(run(w), 0);
    assert_int_equal(w->skips, 1);
    assert_int_equal(w->fake.calls, 0);
}

static void test_a_constant_outside_its_data_costs_the_pipeline(void **state)
{
    struct world *w = *state;
    for (uint32_t offset = 4; offset <= 5; offset++) {
        uint32_t data[2] = {0};
        VkSpecializationMapEntry entry = {.offset = offset, .size = 4};
        VkSpecializationInfo info = {1, &entry, sizeof(data), data};
        struct vn_decoder *d = &w->d;
        wire_enc_reset(&w->e);
        vn_enc_VkSpecializationInfo(&w->e, &info);
        vn_decoder_feed(d, wire_enc_data(&w->e), wire_enc_len(&w->e));
        vn_dec_VkSpecializationInfo(d, &info);
        assert_int_equal(vn_decoder_end(d), 0);
        assert_int_equal(d->poisoned, offset == 5);
    }
}

static void test_an_unknown_command_is_named(void **state)
{
    struct world *w = *state;
    wire_put_u32(&w->e, 0x12345678);
    wire_put_u32(&w->e, 0);
    assert_int_equal(run(w), -ENOSYS);
    wire_enc_reset(&w->e);
    wire_put_u32(&w->e, VN_CMD_vkTrimCommandPool);
    wire_put_u32(&w->e, 100);
    assert_int_equal(run(w), -EPROTO);
}

static void test_two_call_arrays_say_what_the_driver_said(void **state)
{
    struct world *w = *state;
    VkPhysicalDevice gpu =
        (VkPhysicalDevice)objects_add(w->objects, 3, VK_OBJECT_TYPE_PHYSICAL_DEVICE);
    VkPhysicalDeviceFragmentShadingRateKHR rates[2] = {
        {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FRAGMENT_SHADING_RATE_KHR},
        {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FRAGMENT_SHADING_RATE_KHR}};
    uint32_t count = 2;
    w->fake.result = VK_INCOMPLETE;
    vn_enc_cmd_vkGetPhysicalDeviceFragmentShadingRatesKHR(&w->e, gpu, &count, rates);
    assert_int_equal(run(w), 0);
    vn_decoder_feed(&w->d, wire_enc_data(&w->reply), wire_enc_len(&w->reply));
    assert_int_equal(
        vn_dec_reply_vkGetPhysicalDeviceFragmentShadingRatesKHR(&w->d, gpu, &count, rates),
        VK_INCOMPLETE);
    assert_int_equal(vn_decoder_end(&w->d), 0);
    assert_true(count <= 2);
    /* A server that claims more than there is room for is not believed. */
    wire_enc_reset(&w->reply);
    wire_put_u32(&w->reply, VK_SUCCESS);
    wire_put_u64(&w->reply, 3);
    count = 2;
    vn_decoder_feed(&w->d, wire_enc_data(&w->reply), wire_enc_len(&w->reply));
    (void)vn_dec_reply_vkGetPhysicalDeviceFragmentShadingRatesKHR(&w->d, gpu, &count, rates);
    assert_int_equal(vn_decoder_end(&w->d), -EPROTO);
    assert_int_equal(count, 0);
}

static void test_an_output_keeps_the_links_of_the_program(void **state)
{
    struct world *w = *state;
    VkPhysicalDevice gpu =
        (VkPhysicalDevice)objects_add(w->objects, 3, VK_OBJECT_TYPE_PHYSICAL_DEVICE);
    VkBaseOutStructure unknown = {.sType = (VkStructureType)0x7ffffff0};
    VkPhysicalDeviceIDProperties ids = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES,
                                        .pNext = &unknown};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &ids};
    static const uint8_t zeros[VK_UUID_SIZE];
    vn_enc_cmd_vkGetPhysicalDeviceProperties2(&w->e, gpu, &properties);
    assert_int_equal(run(w), 0);
    vn_decoder_feed(&w->d, wire_enc_data(&w->reply), wire_enc_len(&w->reply));
    vn_dec_reply_vkGetPhysicalDeviceProperties2(&w->d, gpu, &properties);
    assert_int_equal(vn_decoder_end(&w->d), 0);
    assert_ptr_equal(properties.pNext, &ids);
    assert_ptr_equal(ids.pNext, &unknown);
    assert_memory_not_equal(ids.deviceUUID, zeros, VK_UUID_SIZE);
}

/* A driver of an older version: it has only the name that the extension gave. */
static PFN_vkVoidFunction old_driver(void *data, const char *name)
{
    int *asked = data;
    (*asked)++;
    return strcmp(name, "vkCmdBeginRenderingKHR") == 0
               ? (PFN_vkVoidFunction)fake_driver.vkCmdBeginRendering
               : NULL;
}

static void test_a_driver_is_asked_for_every_name_of_a_command(void **state)
{
    struct vn_driver driver;
    int asked = 0;
    (void)state;
    vn_driver_load(&driver, old_driver, &asked);
    assert_ptr_equal(driver.vkCmdBeginRendering, fake_driver.vkCmdBeginRendering);
    assert_ptr_equal(driver.vkCmdBeginRenderingKHR, fake_driver.vkCmdBeginRendering);
    assert_null(driver.vkCreateBuffer);
    assert_true(asked > 0);
}

static const struct vn_driver *no_driver(void *objects, const void *handle)
{
    assert_ptr_equal(handle, objects_lookup(objects, 1, VK_OBJECT_TYPE_DEVICE));
    return NULL;
}

static void test_each_device_has_its_own_driver(void **state)
{
    struct world *w = *state;
    struct vn_exec_ops ops = *w->x.ops;
    ops.driver_of = no_driver;
    w->x.ops = &ops;
    vn_enc_cmd_vkTrimCommandPool(&w->e, device(w), pool(w), 0);
    assert_int_equal(run(w), -ENOSYS);
    assert_int_equal(w->fake.calls, 0);
}

/* As a server does with what follows a recorded command that failed. */
static void test_a_command_that_its_caller_skips_reaches_no_driver(void **state)
{
    struct world *w = *state;
    vn_enc_cmd_vkTrimCommandPool(&w->e, device(w), pool(w), 0);
    vn_decoder_feed(&w->d, wire_enc_data(&w->e) + 8, wire_enc_len(&w->e) - 8);
    w->d.poisoned = true;
    assert_int_equal(vn_dispatch(&w->x, VN_CMD_vkTrimCommandPool, &w->d), 0);
    assert_int_equal(w->fake.calls, 0);
    assert_int_equal(w->skips, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_an_unknown_structure_is_stepped_over),
        TEST(test_a_structure_with_a_wrong_length_is_refused),
        TEST(test_a_chain_has_a_limit),
        TEST(test_chains_within_chains_have_a_limit),
        TEST(test_room_for_more_than_an_answer_costs_the_command_only),
        TEST(test_commands_with_unknown_and_wrong_ids_are_skipped),
        TEST(test_an_id_is_given_once),
        TEST(test_a_command_on_a_void_id_is_skipped),
        TEST(test_what_follows_a_skipped_command_is_executed),
        TEST(test_a_command_that_its_caller_skips_reaches_no_driver),
        TEST(test_a_void_id_of_another_type_is_unknown),
        TEST(test_a_void_id_can_be_destroyed),
        TEST(test_void_ids_do_not_keep_their_neighbours_alive),
        TEST(test_bytes_behind_a_command_are_refused),
        TEST(test_a_count_that_lies_allocates_nothing),
        TEST(test_an_array_that_must_be_there_is_demanded),
        TEST(test_a_stride_is_the_servers_own),
        TEST(test_results_have_room_for_all_that_a_driver_writes),
        TEST(test_a_constant_outside_its_data_costs_the_pipeline),
        TEST(test_an_unknown_command_is_named),
        TEST(test_two_call_arrays_say_what_the_driver_said),
        TEST(test_an_output_keeps_the_links_of_the_program),
        TEST(test_a_driver_is_asked_for_every_name_of_a_command),
        TEST(test_each_device_has_its_own_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
