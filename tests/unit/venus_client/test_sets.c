/* Which descriptor sets are allocated without an answer: those for which Vulkan promises that the
 * pool has room.  A driver may refuse the others, and the program is told so. */
#include "rig.h"

#include "venus/client/object/descriptor.h"
#include "venus/client/object/descriptor_layout.h"
#include "venus/client/object/objects.h"
#include "vn_client.gen.h"

#define DESCRIPTOR(name) ((PFN_##name)rig_entry(vnc_entries_descriptor, #name))

enum { MOST = 8 };

struct sets {
    struct rig *rig;
    VkDevice device;
    VkDescriptorSetLayout one, two; /* storage buffers */
    VkDescriptorPool pool;
};

static VkDescriptorSetLayout layout_of(struct rig *rig, VkDescriptorType type, uint32_t count)
{
    VkDescriptorSetLayoutBinding binding = {
        .descriptorType = type, .descriptorCount = count, .stageFlags = VK_SHADER_STAGE_ALL};
    VkDescriptorSetLayoutCreateInfo info = {.sType =
                                                VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                            .bindingCount = 1,
                                            .pBindings = &binding};
    PFN_vkCreateDescriptorSetLayout create = (PFN_vkCreateDescriptorSetLayout)rig_entry(
        vnc_entries_descriptor_layout, "vkCreateDescriptorSetLayout");
    VkDescriptorSetLayout layout;
    assert_int_equal(create(VNC_HANDLE(VkDevice, rig->device), &info, NULL, &layout), VK_SUCCESS);
    return layout;
}

static VkDescriptorPool pool_of(struct rig *rig, const void *chain,
                                VkDescriptorPoolCreateFlags flags, VkDescriptorType type,
                                uint32_t count)
{
    VkDescriptorPoolSize size = {type, count};
    VkDescriptorPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                       .pNext = chain,
                                       .flags = VK_DESCRIPTOR_POOL_CREATE_FREE_DESCRIPTOR_SET_BIT |
                                                flags,
                                       .maxSets = MOST,
                                       .poolSizeCount = 1,
                                       .pPoolSizes = &size};
    VkDescriptorPool pool;
    assert_int_equal(
        DESCRIPTOR(vkCreateDescriptorPool)(VNC_HANDLE(VkDevice, rig->device), &info, NULL, &pool),
        VK_SUCCESS);
    return pool;
}

static void start(struct sets *s, struct rig *rig, VkDescriptorPoolCreateFlags flags)
{
    VkDescriptorType type = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    *s = (struct sets){rig, VNC_HANDLE(VkDevice, rig->device), layout_of(rig, type, 1),
                       layout_of(rig, type, 2), pool_of(rig, NULL, flags, type, MOST)};
}

static void end(struct sets *s)
{
    vnc_object_destroy(VNC_OBJECT(vn_object, s->pool));
    vnc_object_destroy(VNC_OBJECT(vn_object, s->two));
    vnc_object_destroy(VNC_OBJECT(vn_object, s->one));
}

static VkResult allocate(const struct sets *s, VkDescriptorSetLayout layout, VkDescriptorSet *set)
{
    VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                        .descriptorPool = s->pool,
                                        .descriptorSetCount = 1,
                                        .pSetLayouts = &layout};
    return DESCRIPTOR(vkAllocateDescriptorSets)(s->device, &info, set);
}

static void discard(const struct sets *s, VkDescriptorSet set)
{
    assert_int_equal(DESCRIPTOR(vkFreeDescriptorSets)(s->device, s->pool, 1, &set), VK_SUCCESS);
}

/* From now on the server answers calls with this, or not at all. */
static void answer(const struct sets *s, const VkResult *result)
{
    struct rig_server *server = &s->rig->server;
    struct wire_enc e;
    pthread_mutex_lock(&server->lock);
    wire_enc_init_fixed(&e, server->answer, sizeof(server->answer));
    if (result)
        wire_put_i32(&e, *result);
    server->answer_len = wire_enc_len(&e);
    pthread_mutex_unlock(&server->lock);
}

static VkDescriptorSet is_posted(const struct sets *s, VkDescriptorSetLayout layout)
{
    answer(s, NULL);
    VkDescriptorSet set;
    assert_int_equal(allocate(s, layout, &set), VK_SUCCESS);
    return set;
}

/* The driver refuses, and nothing is lost. */
static void is_asked(const struct sets *s, VkDescriptorSetLayout layout)
{
    VkResult refused = VK_ERROR_FRAGMENTED_POOL;
    VkDescriptorSet set;
    answer(s, &refused);
    assert_int_equal(allocate(s, layout, &set), refused);
    assert_true(set == VK_NULL_HANDLE);
    assert_int_equal(vnc_device_status(s->rig->device), VK_SUCCESS);
}

static void what_a_pool_promised_is_not_asked_for(void **state)
{
    struct sets s;
    start(&s, *state, 0);
    for (uint32_t i = 0; i < 2; i++) {
        (void)is_posted(&s, s.one);
        (void)is_posted(&s, s.two);
    }
    (void)is_posted(&s, s.two);
    is_asked(&s, s.one);
    end(&s);
}

static void equal_sets_leave_no_pieces(void **state)
{
    struct sets s;
    start(&s, *state, 0);
    VkDescriptorSet set = is_posted(&s, s.two);
    (void)is_posted(&s, s.two);
    for (uint32_t i = 0; i < MOST; i++) {
        discard(&s, set);
        set = is_posted(&s, s.two);
    }
    end(&s);
}

static void sets_that_differ_leave_pieces(void **state)
{
    struct sets s;
    start(&s, *state, 0);
    VkDescriptorSet set = is_posted(&s, s.one);
    (void)is_posted(&s, s.one);
    discard(&s, set);
    set = is_posted(&s, s.one);
    discard(&s, set);
    is_asked(&s, s.two);
    is_asked(&s, s.one); /* as it is not known how the driver went about it */
    assert_int_equal(DESCRIPTOR(vkResetDescriptorPool)(s.device, s.pool, 0), VK_SUCCESS);
    (void)is_posted(&s, s.one);
    (void)is_posted(&s, s.two);
    end(&s);
}

static void sets_updated_after_they_were_bound_leave_pieces(void **state)
{
    struct sets s;
    start(&s, *state, VK_DESCRIPTOR_POOL_CREATE_UPDATE_AFTER_BIND_BIT);
    (void)is_posted(&s, s.one);
    discard(&s, is_posted(&s, s.one));
    is_asked(&s, s.one);
    end(&s);
}

static void blocks_of_uniforms_are_counted(void **state)
{
    struct rig *rig = *state;
    VkDescriptorType type = VK_DESCRIPTOR_TYPE_INLINE_UNIFORM_BLOCK;
    VkDescriptorPoolInlineUniformBlockCreateInfo blocks = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_INLINE_UNIFORM_BLOCK_CREATE_INFO,
        .maxInlineUniformBlockBindings = 2};
    struct sets s = {rig, VNC_HANDLE(VkDevice, rig->device), layout_of(rig, type, 16),
                     layout_of(rig, type, 32), pool_of(rig, &blocks, 0, type, 16 * MOST)};
    (void)is_posted(&s, s.one);
    (void)is_posted(&s, s.two);
    is_asked(&s, s.one);
    end(&s);
}

static void mutable_descriptors_are_asked_for(void **state)
{
    struct rig *rig = *state;
    VkDescriptorType type = VK_DESCRIPTOR_TYPE_MUTABLE_VALVE;
    struct sets s = {rig, VNC_HANDLE(VkDevice, rig->device), layout_of(rig, type, 1),
                     layout_of(rig, type, 2), pool_of(rig, NULL, 0, type, MOST)};
    is_asked(&s, s.one);
    end(&s);
}

/* Each handle lies at a stride of the program's, between bytes that are nobody's. */
static void templates_take_acceleration_structures_of_both_kinds(void **state)
{
    enum { COUNT = 2, STRIDE = 16 };
    struct rig *rig = *state;
    VkDevice device = VNC_HANDLE(VkDevice, rig->device);
    uint64_t data[COUNT * STRIDE / sizeof(uint64_t)] = {0x1000, 1, 0x2000, 2};
    VkDescriptorUpdateTemplateEntry entries[] = {
        {0, 0, COUNT, VK_DESCRIPTOR_TYPE_ACCELERATION_STRUCTURE_NV, 0, STRIDE},
        {1, 0, COUNT, VK_DESCRIPTOR_TYPE_ACCELERATION_STRUCTURE_KHR, 0, STRIDE}};
    VkDescriptorUpdateTemplateCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_UPDATE_TEMPLATE_CREATE_INFO,
        .descriptorUpdateEntryCount = ARRAY_LEN(entries),
        .pDescriptorUpdateEntries = entries};
    VkDescriptorUpdateTemplate update;
    assert_int_equal(DESCRIPTOR(vkCreateDescriptorUpdateTemplate)(device, &info, NULL, &update),
                     VK_SUCCESS);
    struct vnc_writes writes;
    assert_true(vnc_template_writes(update, VK_NULL_HANDLE, data, &writes));
    const VkWriteDescriptorSetAccelerationStructureNV *nv = writes.writes[0].pNext;
    const VkWriteDescriptorSetAccelerationStructureKHR *khr = writes.writes[1].pNext;
    assert_non_null(nv);
    assert_int_equal(nv->sType, VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET_ACCELERATION_STRUCTURE_NV);
    assert_non_null(khr);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal((uintptr_t)nv->pAccelerationStructures[i], data[2 * i]);
        assert_int_equal((uintptr_t)khr->pAccelerationStructures[i], data[2 * i]);
    }
    vnc_writes_fini(&writes);
    DESCRIPTOR(vkDestroyDescriptorUpdateTemplate)(device, update, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_a_pool_promised_is_not_asked_for, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(equal_sets_leave_no_pieces, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(sets_that_differ_leave_pieces, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(sets_updated_after_they_were_bound_leave_pieces, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(blocks_of_uniforms_are_counted, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(mutable_descriptors_are_asked_for, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(templates_take_acceleration_structures_of_both_kinds,
                                        rig_start, rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
