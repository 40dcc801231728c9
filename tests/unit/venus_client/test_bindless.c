/* Sets of many descriptors.  One thread updates them while another submits commands that use their
 * set: allowed where a binding is UPDATE_AFTER_BIND and UPDATE_UNUSED_WHILE_PENDING.  The
 * sanitizers judge.  And a submission looks at what they reach, not at each of them. */
#include "rig.h"

#include <malloc.h>
#include <stdlib.h>

#include "venus/client/object/descriptor.h"
#include "venus/client/object/descriptor_layout.h"
#include "venus/client/object/objects.h"

enum { SLOTS = 512, UPDATES = 4000, SUBMISSIONS_LEAST = 200, UPDATERS = 2 };

#define DESCRIPTOR(name) ((PFN_##name)rig_entry(vnc_entries_descriptor, #name))

struct bindless {
    struct rig *rig;
    struct rig_copy copy; /* its memory and its command buffer */
    VkDescriptorSetLayout layout;
    VkPipelineLayout pipeline_layout;
    VkDescriptorPool pool;
    VkDescriptorSet set;
    _Atomic int updating;
};

struct updater {
    struct bindless *bindless;
    uint32_t first, count; /* slots, its own */
};

static void make_set(struct bindless *b)
{
    VkDevice device = VNC_HANDLE(VkDevice, b->rig->device);
    VkDescriptorSetLayoutBinding binding = {.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                            .descriptorCount = SLOTS,
                                            .stageFlags = VK_SHADER_STAGE_ALL};
    VkDescriptorBindingFlags flags = VK_DESCRIPTOR_BINDING_UPDATE_AFTER_BIND_BIT |
                                     VK_DESCRIPTOR_BINDING_UPDATE_UNUSED_WHILE_PENDING_BIT |
                                     VK_DESCRIPTOR_BINDING_PARTIALLY_BOUND_BIT;
    VkDescriptorSetLayoutBindingFlagsCreateInfo flags_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_BINDING_FLAGS_CREATE_INFO,
        .bindingCount = 1,
        .pBindingFlags = &flags};
    VkDescriptorSetLayoutCreateInfo layout_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .pNext = &flags_info,
        .flags = VK_DESCRIPTOR_SET_LAYOUT_CREATE_UPDATE_AFTER_BIND_POOL_BIT,
        .bindingCount = 1,
        .pBindings = &binding};
    PFN_vkCreateDescriptorSetLayout create_layout = (PFN_vkCreateDescriptorSetLayout)rig_entry(
        vnc_entries_descriptor_layout, "vkCreateDescriptorSetLayout");
    assert_int_equal(create_layout(device, &layout_info, NULL, &b->layout), VK_SUCCESS);
    VkPipelineLayoutCreateInfo pipeline_info = {.sType =
                                                    VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                                .setLayoutCount = 1,
                                                .pSetLayouts = &b->layout};
    PFN_vkCreatePipelineLayout create_pipeline_layout = (PFN_vkCreatePipelineLayout)rig_entry(
        vnc_entries_descriptor_layout, "vkCreatePipelineLayout");
    assert_int_equal(create_pipeline_layout(device, &pipeline_info, NULL, &b->pipeline_layout),
                     VK_SUCCESS);
    VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, SLOTS};
    VkDescriptorPoolCreateInfo pool_info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                            .maxSets = 1,
                                            .poolSizeCount = 1,
                                            .pPoolSizes = &size};
    assert_int_equal(DESCRIPTOR(vkCreateDescriptorPool)(device, &pool_info, NULL, &b->pool),
                     VK_SUCCESS);
    VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                        .descriptorPool = b->pool,
                                        .descriptorSetCount = 1,
                                        .pSetLayouts = &b->layout};
    assert_int_equal(DESCRIPTOR(vkAllocateDescriptorSets)(device, &info, &b->set), VK_SUCCESS);
}

static void record(struct bindless *b)
{
    VkCommandBuffer commands = VNC_HANDLE(VkCommandBuffer, b->copy.commands);
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    assert_int_equal(RIG_COMMAND(vkBeginCommandBuffer)(commands, &begin), VK_SUCCESS);
    RIG_COMMAND(vkCmdBindDescriptorSets)
    (commands, VK_PIPELINE_BIND_POINT_GRAPHICS, b->pipeline_layout, 0, 1, &b->set, 0, NULL);
    assert_int_equal(RIG_COMMAND(vkEndCommandBuffer)(commands), VK_SUCCESS);
}

static struct vnc_resource *buffer_new(const struct bindless *b)
{
    struct vnc_resource *buffer =
        vnc_object_create(b->rig->link, VK_OBJECT_TYPE_BUFFER, &b->rig->device->object);
    buffer->size = 256;
    buffer->memory = vnc_memory_ref(b->copy.memory);
    return buffer;
}

/* Each slot gets a new buffer again and again, and its old one is destroyed. */
static void *update(void *arg)
{
    const struct updater *u = arg;
    struct bindless *b = u->bindless;
    VkDevice device = VNC_HANDLE(VkDevice, b->rig->device);
    struct vnc_resource *buffers[SLOTS] = {0};
    for (uint32_t i = 0; i < UPDATES; i++) {
        uint32_t slot = i % u->count;
        struct vnc_resource *buffer = buffer_new(b);
        VkDescriptorBufferInfo info = {VNC_HANDLE(VkBuffer, buffer), 0, VK_WHOLE_SIZE};
        VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                      .dstSet = b->set,
                                      .dstArrayElement = u->first + slot,
                                      .descriptorCount = 1,
                                      .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                      .pBufferInfo = &info};
        VkCopyDescriptorSet copy = {.sType = VK_STRUCTURE_TYPE_COPY_DESCRIPTOR_SET,
                                    .srcSet = b->set,
                                    .srcArrayElement = u->first + slot,
                                    .dstSet = b->set,
                                    .dstArrayElement = u->first + (slot + 1) % u->count,
                                    .descriptorCount = 1};
        DESCRIPTOR(vkUpdateDescriptorSets)(device, 1, &write, i % 3 == 0, &copy);
        vnc_object_destroy(buffers[slot] ? &buffers[slot]->object : NULL);
        buffers[slot] = buffer;
    }
    for (uint32_t i = 0; i < u->count; i++)
        vnc_object_destroy(buffers[i] ? &buffers[i]->object : NULL);
    b->updating--;
    return NULL;
}

static void start(struct bindless *b, struct rig *rig)
{
    *b = (struct bindless){.rig = rig};
    rig_copy_make(rig, &b->copy, 4096);
    make_set(b);
}

static void end(struct bindless *b)
{
    rig_copy_free(b->rig, &b->copy);
    vnc_object_destroy(VNC_OBJECT(vn_object, b->pool));
    vnc_object_destroy(VNC_OBJECT(vn_object, b->pipeline_layout));
    vnc_object_destroy(VNC_OBJECT(vn_object, b->layout));
}

static void sets_are_updated_while_others_submit(void **state)
{
    struct bindless b;
    start(&b, *state);
    pthread_t threads[UPDATERS];
    struct updater updaters[UPDATERS];
    b.updating = UPDATERS;
    record(&b);
    for (uint32_t i = 0; i < UPDATERS; i++) {
        updaters[i] = (struct updater){&b, i * SLOTS / UPDATERS, SLOTS / UPDATERS};
        assert_int_equal(pthread_create(&threads[i], NULL, update, &updaters[i]), 0);
    }
    uint32_t submissions = 0;
    while (b.updating || submissions < SUBMISSIONS_LEAST) {
        rig_submit(b.rig, 0, b.copy.commands, NULL, NULL, NULL);
        submissions++;
    }
    for (uint32_t i = 0; i < UPDATERS; i++)
        pthread_join(threads[i], NULL);
    end(&b);
}

/* ---- what a set reaches ---- */

static void point(const struct bindless *b, uint32_t slot, struct vnc_resource *buffer,
                  VkDeviceSize offset)
{
    VkDescriptorBufferInfo info = {VNC_HANDLE(VkBuffer, buffer), offset, 256};
    VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                  .dstSet = b->set,
                                  .dstArrayElement = slot,
                                  .descriptorCount = 1,
                                  .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                  .pBufferInfo = &info};
    DESCRIPTOR(vkUpdateDescriptorSets)
    (VNC_HANDLE(VkDevice, b->rig->device), 1, &write, 0, NULL);
}

/* All that is reached, and nothing else, in so many ranges before they are joined. */
static void expect_reach(const struct bindless *b, size_t ranges, uint64_t first, uint64_t end)
{
    struct vnc_ranges reach = {0};
    vnc_descriptor_set_ranges(VNC_OBJECT(vnc_descriptor_set, b->set), true, &reach);
    assert_int_equal(reach.count, ranges);
    vnc_ranges_merge(&reach);
    assert_int_equal(reach.count, 1);
    assert_int_equal(reach.items[0].offset, first);
    assert_int_equal(reach.items[0].bytes, end - first);
    vnc_ranges_fini(&reach);
}

static void many_descriptors_are_one_range(void **state)
{
    struct bindless b;
    start(&b, *state);
    for (uint32_t i = 0; i < SLOTS; i++)
        point(&b, i, b.copy.from, 256 * (i % 8));
    expect_reach(&b, 1, 0, 8 * 256);
    point(&b, 3, b.copy.from, 8 * 256); /* found at once */
    expect_reach(&b, 1, 0, 9 * 256);
    for (uint32_t i = 0; i < SLOTS; i++) /* and what it was before is forgotten in the end */
        point(&b, i, b.copy.from, 256 * (4 + i % 4));
    expect_reach(&b, 1, 4 * 256, 8 * 256);
    end(&b);
}

static void what_is_bound_late_is_reached(void **state)
{
    struct bindless b;
    start(&b, *state);
    for (uint32_t i = 0; i < SLOTS; i++)
        point(&b, i, b.copy.from, 0);
    expect_reach(&b, 1, 0, 256);
    struct vnc_resource *late = buffer_new(&b);
    vnc_memory_unref(late->memory);
    late->memory = NULL;
    late->offset = 256;
    point(&b, 7, late, 0);
    expect_reach(&b, 1, 0, 256);
    late->memory = vnc_memory_ref(b.copy.memory);
    expect_reach(&b, 1, 0, 512);
    vnc_object_destroy(&late->object);
    end(&b);
}

/* ---- a set of which the program chose the size ---- */

enum { LARGEST = 1 << 20, CHOSEN = 4 };

static size_t allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void point_range(const struct bindless *b, VkDescriptorSet set, uint32_t binding,
                        uint32_t slot, VkDeviceSize offset)
{
    VkDescriptorBufferInfo info = {VNC_HANDLE(VkBuffer, b->copy.from), offset, 256};
    VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                  .dstSet = set,
                                  .dstBinding = binding,
                                  .dstArrayElement = slot,
                                  .descriptorCount = 1,
                                  .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                  .pBufferInfo = &info};
    DESCRIPTOR(vkUpdateDescriptorSets)
    (VNC_HANDLE(VkDevice, b->rig->device), 1, &write, 0, NULL);
}

static VkDescriptorSetLayout variable_layout(VkDevice device)
{
    VkDescriptorSetLayoutBinding bindings[] = {
        {0, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_ALL, NULL},
        {1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, LARGEST, VK_SHADER_STAGE_ALL, NULL}};
    VkDescriptorBindingFlags flags[] = {0, VK_DESCRIPTOR_BINDING_VARIABLE_DESCRIPTOR_COUNT_BIT};
    VkDescriptorSetLayoutBindingFlagsCreateInfo flags_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_BINDING_FLAGS_CREATE_INFO,
        .bindingCount = ARRAY_LEN(flags),
        .pBindingFlags = flags};
    VkDescriptorSetLayoutCreateInfo info = {.sType =
                                                VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                            .pNext = &flags_info,
                                            .bindingCount = ARRAY_LEN(bindings),
                                            .pBindings = bindings};
    VkDescriptorSetLayout layout;
    PFN_vkCreateDescriptorSetLayout create_layout = (PFN_vkCreateDescriptorSetLayout)rig_entry(
        vnc_entries_descriptor_layout, "vkCreateDescriptorSetLayout");
    assert_int_equal(create_layout(device, &info, NULL, &layout), VK_SUCCESS);
    return layout;
}

/* The client remembers as much as it has, not as the layout could have. */
static void a_set_costs_what_was_chosen(void **state)
{
    struct bindless b;
    start(&b, *state);
    VkDevice device = VNC_HANDLE(VkDevice, b.rig->device);
    VkDescriptorSetLayout layout = variable_layout(device);
    VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1 + CHOSEN};
    VkDescriptorPoolCreateInfo pool_info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                            .maxSets = 1,
                                            .poolSizeCount = 1,
                                            .pPoolSizes = &size};
    VkDescriptorPool pool;
    assert_int_equal(DESCRIPTOR(vkCreateDescriptorPool)(device, &pool_info, NULL, &pool),
                     VK_SUCCESS);
    uint32_t chosen = CHOSEN;
    VkDescriptorSetVariableDescriptorCountAllocateInfo variable = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_VARIABLE_DESCRIPTOR_COUNT_ALLOCATE_INFO,
        .descriptorSetCount = 1,
        .pDescriptorCounts = &chosen};
    VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                        .pNext = &variable,
                                        .descriptorPool = pool,
                                        .descriptorSetCount = 1,
                                        .pSetLayouts = &layout};
    VkDescriptorSet set, unused = b.set;
    size_t before = allocated();
    assert_int_equal(DESCRIPTOR(vkAllocateDescriptorSets)(device, &info, &set), VK_SUCCESS);
    assert_true(allocated() - before < LARGEST);
    b.set = set;
    point_range(&b, set, 0, 0, 0);
    for (uint32_t i = 0; i < CHOSEN; i++)
        point_range(&b, set, 1, i, 256 * (1 + i));
    expect_reach(&b, 1 + CHOSEN, 0, 256 * (1 + CHOSEN));
    point_range(&b, set, 1, CHOSEN, 256 * 9); /* it has none: a mistake that does no harm */
    expect_reach(&b, 1 + CHOSEN, 0, 256 * (1 + CHOSEN));
    b.set = unused;
    vnc_object_destroy(VNC_OBJECT(vn_object, pool));
    vnc_object_destroy(VNC_OBJECT(vn_object, layout));
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sets_are_updated_while_others_submit, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(many_descriptors_are_one_range, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(what_is_bound_late_is_reached, rig_start, rig_end),
        cmocka_unit_test_setup_teardown(a_set_costs_what_was_chosen, rig_start, rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
