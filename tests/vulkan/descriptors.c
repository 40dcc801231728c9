/* descriptors.c - differential programs: descriptor layouts, pools, sets and ways to fill them. */
#include "vkt.h"

#include <stdlib.h>

enum { WORDS = 256, BYTES = WORDS * 4, GROUPS = WORDS / 64 };

static VkDescriptorPool pool(uint32_t sets, char type, uint32_t count,
                             VkDescriptorPoolCreateFlags flags)
{
    VkDescriptorPoolSize size = {vkt_type(type), count};
    VkDescriptorPoolCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
        .flags = flags,
        .maxSets = sets,
        .poolSizeCount = 1,
        .pPoolSizes = &size,
    };
    VkDescriptorPool made;
    VKT(vkCreateDescriptorPool(vkt.device, &info, NULL, &made));
    VKT_KEEP(DESCRIPTOR_POOL, made);
    return made;
}

static VkResult take(VkDescriptorPool from, VkDescriptorSetLayout layout, VkDescriptorSet *set)
{
    VkDescriptorSetAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
        .descriptorPool = from,
        .descriptorSetCount = 1,
        .pSetLayouts = &layout,
    };
    return vkAllocateDescriptorSets(vkt.device, &info, set);
}

static void bind_and_run(const struct vkt_kernel *kernel, VkDescriptorSet set, uint32_t push,
                         uint32_t offsets_count, const uint32_t *offsets, uint32_t groups)
{
    VkCommandBuffer command = vkt_begin();
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel->pipeline);
    vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel->layout, 0, 1, &set,
                            offsets_count, offsets);
    if (kernel->push_bytes)
        vkCmdPushConstants(command, kernel->layout, VK_SHADER_STAGE_ALL, 0, sizeof(push), &push);
    vkCmdDispatch(command, groups, 1, 1);
    vkt_finish(command);
}

/* --- pools ------------------------------------------------------------------------------------ */

/* What a pool was made for it gives, also after a reset; past that it may refuse, and then says so
 * in one of two ways. */
static void pool_promises(void)
{
    vkt_open();
    VkDescriptorSetLayout layout = vkt_set_layout("ss", 0);
    VkDescriptorPool few = pool(3, 's', 6, 0);
    VkDescriptorSet set;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++)
            VKT(take(few, layout, &set));
        VkResult more = take(few, layout, &set);
        VKT_EXPECT(more == VK_SUCCESS || more == VK_ERROR_OUT_OF_POOL_MEMORY ||
                   more == VK_ERROR_FRAGMENTED_POOL);
        VKT(vkResetDescriptorPool(vkt.device, few, 0));
    }
    vkt_out_u64("rounds", 2);
}

/* Since 1.1 a driver may give more than the pool was made for, and then nothing can be compared:
 * a remote device that counts at the client refuses.  Takes sets until one is refused. */
static void take_all(VkDescriptorPool from, VkDescriptorSetLayout layout, int promised)
{
    for (int i = 0; i < promised; i++) {
        VkDescriptorSet set;
        VKT(take(from, layout, &set));
    }
    VkDescriptorSet extra;
    VkResult result = take(from, layout, &extra);
    if (result == VK_SUCCESS)
        vkt_skip("the driver's pools have no limit");
    vkt_out_result("full", result);
}

static void exhaustion_of_sets(void)
{
    vkt_open();
    VkDescriptorSetLayout layout = vkt_set_layout("s", 0);
    VkDescriptorPool few = pool(3, 's', 100, 0);
    take_all(few, layout, 3);
    VKT(vkResetDescriptorPool(vkt.device, few, 0));
    take_all(few, layout, 3);
}

static void exhaustion_of_descriptors(void)
{
    vkt_open();
    take_all(pool(100, 's', 5, 0), vkt_set_layout("ss", 0), 2);
}

static void exhaustion_midway(void)
{
    vkt_open();
    /* All or nothing: a driver that refuses the fourth of five gives null handles for all. */
    VkDescriptorSetLayout layout = vkt_set_layout("s", 0), layouts[5];
    for (int i = 0; i < 5; i++)
        layouts[i] = layout;
    VkDescriptorPool few = pool(3, 's', 3, 0);
    VkDescriptorSetAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
        .descriptorPool = few,
        .descriptorSetCount = 5,
        .pSetLayouts = layouts,
    };
    VkDescriptorSet sets[5];
    VkResult result = vkAllocateDescriptorSets(vkt.device, &info, sets);
    if (result == VK_SUCCESS)
        vkt_skip("the driver's pools have no limit");
    vkt_out_result("five", result);
    for (int i = 0; i < 5; i++)
        VKT_EXPECT(sets[i] == VK_NULL_HANDLE);
    info.descriptorSetCount = 3;
    vkt_out_result("three", vkAllocateDescriptorSets(vkt.device, &info, sets));
}

static void freed_and_taken(void)
{
    vkt_open();
    VkDescriptorSetLayout layout = vkt_set_layout("s", 0);
    VkDescriptorPool few = pool(4, 's', 4, VK_DESCRIPTOR_POOL_CREATE_FREE_DESCRIPTOR_SET_BIT);
    VkDescriptorSet sets[4];
    for (int i = 0; i < 4; i++)
        VKT(take(few, layout, &sets[i]));
    VkDescriptorSet some[3] = {sets[0], VK_NULL_HANDLE, sets[2]};
    VKT(vkFreeDescriptorSets(vkt.device, few, 3, some));
    vkt_out_result("first again", take(few, layout, &sets[0]));
    vkt_out_result("second again", take(few, layout, &sets[2]));
    VKT(vkFreeDescriptorSets(vkt.device, few, 4, sets));
    for (int i = 0; i < 4; i++)
        vkt_out_result("all again", take(few, layout, &sets[i]));
}

static void fragmented(void)
{
    vkt_open();
    /* Small sets, every other one freed, then large ones: what fits is the driver's to say. */
    VkDescriptorSetLayout small = vkt_set_layout("s", 0), large = vkt_set_layout("ssss", 0);
    VkDescriptorPool from = pool(64, 's', 32, VK_DESCRIPTOR_POOL_CREATE_FREE_DESCRIPTOR_SET_BIT);
    VkDescriptorSet sets[32], big;
    for (int i = 0; i < 32; i++)
        VKT(take(from, small, &sets[i]));
    for (int i = 0; i < 32; i += 2)
        VKT(vkFreeDescriptorSets(vkt.device, from, 1, &sets[i]));
    for (int i = 0; i < 4; i++)
        vkt_out_result("large", take(from, large, &big));
    take_all(from, large, 0);
}

static void many_sets(void)
{
    vkt_open();
    enum { SETS = 200 };
    struct vkt_kernel kernel = vkt_kernel("step.comp", "s", 4);
    VkDescriptorPool from = pool(SETS, 's', SETS, 0);
    struct vkt_buffer all = vkt_storage(SETS * 256, NULL);
    VkCommandBuffer command = vkt_begin();
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
    for (uint32_t i = 0; i < SETS; i++) {
        VkDescriptorSet set;
        VKT(take(from, kernel.set_layout, &set));
        vkt_write_buffer(set, 0, vkt_type('s'), all.handle, i * 256, 256);
        vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1, &set,
                                0, NULL);
        vkCmdPushConstants(command, kernel.layout, VK_SHADER_STAGE_ALL, 0, 4, &i);
        vkCmdDispatch(command, 1, 1, 1);
    }
    vkt_finish(command);
    vkt_out_buffer("all", &all);
}

/* --- filling sets ----------------------------------------------------------------------------- */

static VkDescriptorSetLayout sparse_layout(uint32_t array)
{
    const VkDescriptorSetLayoutBinding bindings[] = {
        {1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL},
        {0, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, array, VK_SHADER_STAGE_COMPUTE_BIT,
         (const VkSampler *)(uintptr_t)16}, /* not read: no sampler type */
        {5, VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER, 0, VK_SHADER_STAGE_COMPUTE_BIT, NULL},
    };
    VkDescriptorSetLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .bindingCount = VKT_COUNT(bindings),
        .pBindings = bindings,
    };
    VkDescriptorSetLayout layout;
    VKT(vkCreateDescriptorSetLayout(vkt.device, &info, NULL, &layout));
    VKT_KEEP(DESCRIPTOR_SET_LAYOUT, layout);
    return layout;
}

/* The array kernel over four inputs, with a set that `layout` describes. */
struct arrayed {
    struct vkt_kernel kernel;
    struct vkt_buffer in[4], out;
    VkDescriptorPool pool;
};

static struct arrayed arrayed(void)
{
    struct arrayed made = {.pool = pool(4, 's', 20, 0), .out = vkt_storage(BYTES, NULL)};
    made.kernel.set_layout = sparse_layout(4);
    made.kernel.layout = vkt_layout(made.kernel.set_layout, 0);
    made.kernel.pipeline = vkt_compute_pipeline("array.comp", made.kernel.layout, NULL);
    for (uint32_t i = 0; i < 4; i++) {
        made.in[i] = vkt_storage(BYTES, NULL);
        vkt_pattern(made.in[i].map, BYTES, i);
    }
    return made;
}

static VkWriteDescriptorSet write_buffers(VkDescriptorSet set, uint32_t binding, uint32_t first,
                                          uint32_t count, const VkDescriptorBufferInfo *infos)
{
    return (VkWriteDescriptorSet){
        .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
        .dstSet = set,
        .dstBinding = binding,
        .dstArrayElement = first,
        .descriptorCount = count,
        .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
        .pImageInfo = (const VkDescriptorImageInfo *)(uintptr_t)16, /* not read */
        .pBufferInfo = infos,
        .pTexelBufferView = (const VkBufferView *)(uintptr_t)16, /* not read */
    };
}

static void arrays(void)
{
    vkt_open();
    struct arrayed a = arrayed();
    VkDescriptorSet set;
    VKT(take(a.pool, a.kernel.set_layout, &set));
    VkDescriptorBufferInfo infos[5];
    for (int i = 0; i < 4; i++)
        infos[i] = (VkDescriptorBufferInfo){a.in[i].handle, 0, VK_WHOLE_SIZE};
    infos[4] = (VkDescriptorBufferInfo){a.out.handle, 0, BYTES};
    /* One write that runs on from element 2 of binding 0 into binding 1. */
    const VkWriteDescriptorSet writes[] = {write_buffers(set, 0, 0, 2, infos),
                                           write_buffers(set, 0, 2, 3, infos + 2)};
    vkUpdateDescriptorSets(vkt.device, 2, writes, 0, NULL);
    bind_and_run(&a.kernel, set, 0, 0, NULL, GROUPS);
    vkt_out_buffer("out", &a.out);
}

static void copied(void)
{
    vkt_open();
    struct arrayed a = arrayed();
    VkDescriptorSet from, to;
    VKT(take(a.pool, a.kernel.set_layout, &from));
    VKT(take(a.pool, a.kernel.set_layout, &to));
    VkDescriptorBufferInfo infos[5];
    for (int i = 0; i < 4; i++)
        infos[i] = (VkDescriptorBufferInfo){a.in[3 - i].handle, 0, BYTES};
    infos[4] = (VkDescriptorBufferInfo){a.out.handle, 0, BYTES};
    const VkWriteDescriptorSet write = write_buffers(from, 0, 0, 5, infos);
    vkUpdateDescriptorSets(vkt.device, 1, &write, 0, NULL);
    const VkCopyDescriptorSet copies[] = {
        {VK_STRUCTURE_TYPE_COPY_DESCRIPTOR_SET, NULL, from, 0, 2, to, 0, 0, 2},
        {VK_STRUCTURE_TYPE_COPY_DESCRIPTOR_SET, NULL, from, 0, 0, to, 0, 2, 2},
        {VK_STRUCTURE_TYPE_COPY_DESCRIPTOR_SET, NULL, from, 1, 0, to, 1, 0, 1},
    };
    vkUpdateDescriptorSets(vkt.device, 0, NULL, VKT_COUNT(copies), copies);
    bind_and_run(&a.kernel, to, 0, 0, NULL, GROUPS);
    vkt_out_buffer("out", &a.out);
}

static VkDescriptorUpdateTemplate make_template(VkDescriptorUpdateTemplateCreateInfo info)
{
    info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_UPDATE_TEMPLATE_CREATE_INFO;
    VkDescriptorUpdateTemplate made;
    VKT(vkCreateDescriptorUpdateTemplate(vkt.device, &info, NULL, &made));
    VKT_KEEP(DESCRIPTOR_UPDATE_TEMPLATE, made);
    return made;
}

static void templated(void)
{
    vkt_open();
    struct arrayed a = arrayed();
    VkDescriptorSet set;
    VKT(take(a.pool, a.kernel.set_layout, &set));
    /* The program's own layout: strides and padding are part of the template. */
    struct {
        uint32_t padding[3];
        VkDescriptorBufferInfo out;
        struct {
            VkDescriptorBufferInfo info;
            uint64_t other;
        } in[4];
    } raw = {.out = {a.out.handle, 0, BYTES}};
    for (int i = 0; i < 4; i++)
        raw.in[i].info = (VkDescriptorBufferInfo){a.in[i].handle, 0, BYTES};
    const VkDescriptorUpdateTemplateEntry entries[] = {
        {0, 0, 4, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, (size_t)((char *)&raw.in - (char *)&raw),
         sizeof(raw.in[0])},
        {1, 0, 1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, (size_t)((char *)&raw.out - (char *)&raw), 0},
    };
    VkDescriptorUpdateTemplate by = make_template((VkDescriptorUpdateTemplateCreateInfo){
        .descriptorUpdateEntryCount = VKT_COUNT(entries),
        .pDescriptorUpdateEntries = entries,
        .templateType = VK_DESCRIPTOR_UPDATE_TEMPLATE_TYPE_DESCRIPTOR_SET,
        .descriptorSetLayout = a.kernel.set_layout,
    });
    vkUpdateDescriptorSetWithTemplate(vkt.device, set, by, &raw);
    bind_and_run(&a.kernel, set, 0, 0, NULL, GROUPS);
    vkt_out_buffer("out", &a.out);
}

static void rewritten(void)
{
    vkt_open();
    struct vkt_kernel kernel = vkt_kernel("step.comp", "s", 4);
    struct vkt_buffer buffers[6];
    for (uint32_t i = 0; i < 6; i++) { /* one set, rewritten after each wait */
        buffers[i] = vkt_storage(BYTES, NULL);
        vkt_kernel_bind(&kernel, 0, &buffers[i]);
        vkt_kernel_run(&kernel, &i, GROUPS);
    }
    for (int i = 0; i < 6; i++)
        vkt_out_buffer("buffer", &buffers[i]);
}

/* --- dynamic offsets -------------------------------------------------------------------------- */

static void dynamic_offsets(void)
{
    vkt_open();
    const VkPhysicalDeviceLimits *limits = &vkt.props.limits;
    uint32_t in_step = (uint32_t)limits->minUniformBufferOffsetAlignment;
    uint32_t out_step = (uint32_t)limits->minStorageBufferOffsetAlignment;
    in_step = in_step < 16 ? 16 : in_step; /* a uvec4 */
    out_step = out_step < 16 ? 16 : out_step;
    struct vkt_buffer in =
        vkt_buffer(in_step * 8 + 16, VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT, VKT_COHERENT);
    struct vkt_buffer out = vkt_storage(out_step * 8 + 64, NULL);
    vkt_pattern(in.map, in.size, 4);
    struct vkt_kernel kernel = vkt_kernel("uniform.comp", "US", 4);
    vkt_write_buffer(kernel.set, 0, vkt_type('U'), in.handle, 0, 16);
    vkt_write_buffer(kernel.set, 1, vkt_type('S'), out.handle, 0, 64);
    for (uint32_t i = 0; i < 8; i++)
        bind_and_run(&kernel, kernel.set, 0, 2, (const uint32_t[]){in_step * (8 - i), out_step * i},
                     1);
    vkt_out_buffer("out", &out);
}

/* --- push descriptors, inline blocks, indexing ------------------------------------------------ */

static void pushed(void)
{
    VKT_OPEN_WITH(NULL, VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME);
    PFN_vkCmdPushDescriptorSetKHR push_set = VKT_PROC(vkCmdPushDescriptorSetKHR);
    VkDescriptorSetLayout layout =
        vkt_set_layout("ss", VK_DESCRIPTOR_SET_LAYOUT_CREATE_PUSH_DESCRIPTOR_BIT_KHR);
    VkPipelineLayout pipeline_layout = vkt_layout(layout, 4);
    VkPipeline pipeline = vkt_compute_pipeline("mix.comp", pipeline_layout, NULL);
    struct vkt_buffer buffers[5];
    for (uint32_t i = 0; i < 5; i++)
        buffers[i] = vkt_storage(BYTES, NULL);
    vkt_pattern(buffers[0].map, BYTES, 3);
    VkCommandBuffer command = vkt_begin();
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t factor = i + 2;
        const VkDescriptorBufferInfo infos[2] = {{buffers[i].handle, 0, BYTES},
                                                 {buffers[i + 1].handle, 0, BYTES}};
        const VkWriteDescriptorSet writes[2] = {write_buffers(VK_NULL_HANDLE, 0, 0, 1, infos),
                                                write_buffers(VK_NULL_HANDLE, 1, 0, 1, infos + 1)};
        push_set(command, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline_layout, 0, 2, writes);
        vkCmdPushConstants(command, pipeline_layout, VK_SHADER_STAGE_ALL, 0, 4, &factor);
        vkCmdDispatch(command, GROUPS, 1, 1);
        vkt_barrier(command);
    }
    vkt_finish(command);
    vkt_out_buffer("last", &buffers[4]);
}

static void pushed_by_template(void)
{
    VKT_OPEN_WITH(NULL, VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME);
    PFN_vkCmdPushDescriptorSetWithTemplateKHR push_set =
        VKT_PROC(vkCmdPushDescriptorSetWithTemplateKHR);
    VkDescriptorSetLayout layout =
        vkt_set_layout("ss", VK_DESCRIPTOR_SET_LAYOUT_CREATE_PUSH_DESCRIPTOR_BIT_KHR);
    VkPipelineLayout pipeline_layout = vkt_layout(layout, 4);
    VkPipeline pipeline = vkt_compute_pipeline("mix.comp", pipeline_layout, NULL);
    struct vkt_buffer in = vkt_storage(BYTES, NULL), out = vkt_storage(BYTES, NULL);
    vkt_pattern(in.map, BYTES, 30);
    const VkDescriptorUpdateTemplateEntry entries[] = {
        {0, 0, 1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, sizeof(VkDescriptorBufferInfo), 0},
        {1, 0, 1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 0, 0},
    };
    VkDescriptorUpdateTemplate by = make_template((VkDescriptorUpdateTemplateCreateInfo){
        .descriptorUpdateEntryCount = VKT_COUNT(entries),
        .pDescriptorUpdateEntries = entries,
        .templateType = VK_DESCRIPTOR_UPDATE_TEMPLATE_TYPE_PUSH_DESCRIPTORS_KHR,
        .pipelineBindPoint = VK_PIPELINE_BIND_POINT_COMPUTE,
        .pipelineLayout = pipeline_layout,
    });
    const VkDescriptorBufferInfo raw[2] = {{out.handle, 0, BYTES}, {in.handle, 0, BYTES}};
    const uint32_t factor = 13;
    VkCommandBuffer command = vkt_begin();
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    push_set(command, by, pipeline_layout, 0, raw);
    vkCmdPushConstants(command, pipeline_layout, VK_SHADER_STAGE_ALL, 0, 4, &factor);
    vkCmdDispatch(command, GROUPS, 1, 1);
    vkt_finish(command);
    vkt_out_buffer("out", &out);
}

#ifdef VK_KHR_maintenance6

/* The same buffers three times: bound as a set, pushed, and pushed by a template. */
static void by_structures(void)
{
    VkPhysicalDeviceMaintenance6FeaturesKHR feature = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_6_FEATURES_KHR,
        .maintenance6 = VK_TRUE};
    VKT_OPEN_WITH(&feature, VK_KHR_MAINTENANCE_6_EXTENSION_NAME,
                  VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME);
    PFN_vkCmdBindDescriptorSets2KHR bind_sets = VKT_PROC(vkCmdBindDescriptorSets2KHR);
    PFN_vkCmdPushDescriptorSet2KHR push_set = VKT_PROC(vkCmdPushDescriptorSet2KHR);
    PFN_vkCmdPushDescriptorSetWithTemplate2KHR push_by =
        VKT_PROC(vkCmdPushDescriptorSetWithTemplate2KHR);
    PFN_vkCmdPushConstants2KHR push_constants = VKT_PROC(vkCmdPushConstants2KHR);
    VkDescriptorSetLayout layouts[2] = {
        vkt_set_layout("ss", 0),
        vkt_set_layout("ss", VK_DESCRIPTOR_SET_LAYOUT_CREATE_PUSH_DESCRIPTOR_BIT_KHR)};
    VkPipelineLayout bound = vkt_layout(layouts[0], 4), pushed_to = vkt_layout(layouts[1], 4);
    VkPipeline pipelines[2] = {vkt_compute_pipeline("mix.comp", bound, NULL),
                               vkt_compute_pipeline("mix.comp", pushed_to, NULL)};
    struct vkt_buffer buffers[4];
    for (uint32_t i = 0; i < 4; i++)
        buffers[i] = vkt_storage(BYTES, NULL);
    vkt_pattern(buffers[0].map, BYTES, 7);
    VkDescriptorBufferInfo infos[3][2];
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t k = 0; k < 2; k++)
            infos[i][k] = (VkDescriptorBufferInfo){buffers[i + k].handle, 0, BYTES};
    VkDescriptorSet set = vkt_set(layouts[0], "ss");
    const VkWriteDescriptorSet writes[2] = {write_buffers(set, 0, 0, 1, infos[0]),
                                            write_buffers(set, 1, 0, 1, infos[0] + 1)};
    vkUpdateDescriptorSets(vkt.device, 2, writes, 0, NULL);
    const VkWriteDescriptorSet pushes[2] = {write_buffers(VK_NULL_HANDLE, 0, 0, 1, infos[1]),
                                            write_buffers(VK_NULL_HANDLE, 1, 0, 1, infos[1] + 1)};
    const VkDescriptorUpdateTemplateEntry entry = {
        0, 0, 2, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 0, sizeof(VkDescriptorBufferInfo)};
    VkDescriptorUpdateTemplate by = make_template((VkDescriptorUpdateTemplateCreateInfo){
        .descriptorUpdateEntryCount = 1,
        .pDescriptorUpdateEntries = &entry,
        .templateType = VK_DESCRIPTOR_UPDATE_TEMPLATE_TYPE_PUSH_DESCRIPTORS_KHR,
        .pipelineBindPoint = VK_PIPELINE_BIND_POINT_COMPUTE,
        .pipelineLayout = pushed_to,
    });
    VkCommandBuffer command = vkt_begin();
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t factor = i + 3;
        vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, pipelines[i > 0]);
        if (i == 0)
            bind_sets(command, &(VkBindDescriptorSetsInfoKHR){
                                   .sType = VK_STRUCTURE_TYPE_BIND_DESCRIPTOR_SETS_INFO_KHR,
                                   .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
                                   .layout = bound,
                                   .descriptorSetCount = 1,
                                   .pDescriptorSets = &set});
        else if (i == 1)
            push_set(command, &(VkPushDescriptorSetInfoKHR){
                                  .sType = VK_STRUCTURE_TYPE_PUSH_DESCRIPTOR_SET_INFO_KHR,
                                  .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
                                  .layout = pushed_to,
                                  .descriptorWriteCount = 2,
                                  .pDescriptorWrites = pushes});
        else
            push_by(command,
                    &(VkPushDescriptorSetWithTemplateInfoKHR){
                        .sType = VK_STRUCTURE_TYPE_PUSH_DESCRIPTOR_SET_WITH_TEMPLATE_INFO_KHR,
                        .descriptorUpdateTemplate = by,
                        .layout = pushed_to,
                        .pData = infos[2]});
        push_constants(command,
                       &(VkPushConstantsInfoKHR){.sType = VK_STRUCTURE_TYPE_PUSH_CONSTANTS_INFO_KHR,
                                                 .layout = i ? pushed_to : bound,
                                                 .stageFlags = VK_SHADER_STAGE_ALL,
                                                 .size = 4,
                                                 .pValues = &factor});
        vkCmdDispatch(command, GROUPS, 1, 1);
        vkt_barrier(command);
    }
    vkt_finish(command);
    for (uint32_t i = 1; i < 4; i++)
        vkt_out_buffer("out", &buffers[i]);
}

#endif

static void inline_block(void)
{
    VKT_NEED(vkt.f13.inlineUniformBlock);
    vkt_open();
    const VkDescriptorType block = VK_DESCRIPTOR_TYPE_INLINE_UNIFORM_BLOCK;
    const VkDescriptorSetLayoutBinding bindings[] = {
        {0, block, 16, VK_SHADER_STAGE_COMPUTE_BIT, NULL},
        {1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL},
    };
    VkDescriptorSetLayoutCreateInfo layout_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .bindingCount = 2,
        .pBindings = bindings,
    };
    struct vkt_kernel kernel = {.push_bytes = 4};
    VKT(vkCreateDescriptorSetLayout(vkt.device, &layout_info, NULL, &kernel.set_layout));
    VKT_KEEP(DESCRIPTOR_SET_LAYOUT, kernel.set_layout);
    kernel.layout = vkt_layout(kernel.set_layout, 4);
    kernel.pipeline = vkt_compute_pipeline("uniform.comp", kernel.layout, NULL);
    VkDescriptorPoolInlineUniformBlockCreateInfo blocks = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_INLINE_UNIFORM_BLOCK_CREATE_INFO,
        .maxInlineUniformBlockBindings = 1,
    };
    const VkDescriptorPoolSize sizes[] = {{block, 16}, {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1}};
    VkDescriptorPoolCreateInfo pool_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
        .pNext = &blocks,
        .maxSets = 1,
        .poolSizeCount = 2,
        .pPoolSizes = sizes,
    };
    VkDescriptorPool from;
    VKT(vkCreateDescriptorPool(vkt.device, &pool_info, NULL, &from));
    VKT_KEEP(DESCRIPTOR_POOL, from);
    VKT(take(from, kernel.set_layout, &kernel.set));
    struct vkt_buffer out = vkt_storage(64, NULL);
    vkt_write_buffer(kernel.set, 1, vkt_type('s'), out.handle, 0, VK_WHOLE_SIZE);
    /* All sixteen bytes, then four of them at an offset. */
    const uint32_t all[4] = {10, 20, 30, 40}, one = 99;
    VkWriteDescriptorSetInlineUniformBlock bytes[2] = {
        {VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET_INLINE_UNIFORM_BLOCK, NULL, sizeof(all), all},
        {VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET_INLINE_UNIFORM_BLOCK, NULL, sizeof(one), &one},
    };
    VkWriteDescriptorSet writes[2];
    for (uint32_t i = 0; i < 2; i++)
        writes[i] = (VkWriteDescriptorSet){
            .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
            .pNext = &bytes[i],
            .dstSet = kernel.set,
            .dstArrayElement = i * 8,
            .descriptorCount = bytes[i].dataSize,
            .descriptorType = block,
        };
    vkUpdateDescriptorSets(vkt.device, 2, writes, 0, NULL);
    bind_and_run(&kernel, kernel.set, 2, 0, NULL, 1);
    vkt_out_buffer("out", &out);
}

static VkDescriptorSetLayout unbounded_layout(uint32_t most)
{
    const VkDescriptorSetLayoutBinding bindings[] = {
        {0, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL},
        {1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, most, VK_SHADER_STAGE_COMPUTE_BIT, NULL},
    };
    const VkDescriptorBindingFlags flags[] = {
        0, VK_DESCRIPTOR_BINDING_PARTIALLY_BOUND_BIT | VK_DESCRIPTOR_BINDING_UPDATE_AFTER_BIND_BIT |
               VK_DESCRIPTOR_BINDING_VARIABLE_DESCRIPTOR_COUNT_BIT};
    VkDescriptorSetLayoutBindingFlagsCreateInfo flags_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_BINDING_FLAGS_CREATE_INFO,
        .bindingCount = 2,
        .pBindingFlags = flags,
    };
    VkDescriptorSetLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .pNext = &flags_info,
        .flags = VK_DESCRIPTOR_SET_LAYOUT_CREATE_UPDATE_AFTER_BIND_POOL_BIT,
        .bindingCount = 2,
        .pBindings = bindings,
    };
    VkDescriptorSetLayout layout;
    VKT(vkCreateDescriptorSetLayout(vkt.device, &info, NULL, &layout));
    VKT_KEEP(DESCRIPTOR_SET_LAYOUT, layout);
    return layout;
}

static void need_indexing(void)
{
    VKT_NEED(vkt.f12.descriptorIndexing);
    VKT_NEED(vkt.f12.shaderStorageBufferArrayNonUniformIndexing);
    VKT_NEED(vkt.f12.descriptorBindingStorageBufferUpdateAfterBind);
    VKT_NEED(vkt.f12.descriptorBindingPartiallyBound);
    VKT_NEED(vkt.f12.descriptorBindingVariableDescriptorCount);
    VKT_NEED(vkt.f12.runtimeDescriptorArray);
    vkt_open();
}

/* A kernel that reads an array of at most so many inputs, and its set with fewer. */
static struct vkt_kernel indexed(uint32_t most, uint32_t taken)
{
    struct vkt_kernel kernel = {.set_layout = unbounded_layout(most), .push_bytes = 4};
    kernel.layout = vkt_layout(kernel.set_layout, 4);
    kernel.pipeline = vkt_compute_pipeline("indexing.comp", kernel.layout, NULL);
    VkDescriptorSetVariableDescriptorCountAllocateInfo counts = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_VARIABLE_DESCRIPTOR_COUNT_ALLOCATE_INFO,
        .descriptorSetCount = 1,
        .pDescriptorCounts = &taken,
    };
    VkDescriptorSetAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
        .pNext = &counts,
        .descriptorPool = pool(1, 's', taken + 1, VK_DESCRIPTOR_POOL_CREATE_UPDATE_AFTER_BIND_BIT),
        .descriptorSetCount = 1,
        .pSetLayouts = &kernel.set_layout,
    };
    VKT(vkAllocateDescriptorSets(vkt.device, &info, &kernel.set));
    return kernel;
}

enum { INDEXED = 12 };

static void make_indexed(VkDescriptorBufferInfo infos[INDEXED])
{
    for (uint32_t i = 0; i < INDEXED; i++) {
        struct vkt_buffer in = vkt_storage(BYTES, NULL);
        vkt_pattern(in.map, BYTES, 50 + i);
        infos[i] = (VkDescriptorBufferInfo){in.handle, 0, VK_WHOLE_SIZE};
    }
}

static void indexing(void)
{
    need_indexing();
    struct vkt_kernel kernel = indexed(100, 20);
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    VkDescriptorBufferInfo infos[INDEXED];
    vkt_write_buffer(kernel.set, 0, vkt_type('s'), out.handle, 0, VK_WHOLE_SIZE);
    VkCommandBuffer command = vkt_begin();
    vkt_kernel_record(command, &kernel, &(uint32_t){INDEXED}, GROUPS);
    /* The inputs are written after the set was bound. */
    make_indexed(infos);
    const VkWriteDescriptorSet write = write_buffers(kernel.set, 1, 0, INDEXED, infos);
    vkUpdateDescriptorSets(vkt.device, 1, &write, 0, NULL);
    vkt_finish(command);
    vkt_out_buffer("out", &out);
}

/* More descriptors, writes and copies at once than a server takes. */
static void large_update(void)
{
    enum { MANY = 700000 };
    need_indexing();
    struct vkt_kernel kernel = indexed(MANY, MANY);
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    VkDescriptorBufferInfo few[INDEXED], *infos = calloc(MANY, sizeof(*infos));
    VkWriteDescriptorSet *writes = calloc(MANY, sizeof(*writes));
    VkCopyDescriptorSet *copies = calloc(MANY, sizeof(*copies));
    VKT_EXPECT(infos && writes && copies);
    make_indexed(few);
    for (uint32_t i = 0; i < MANY; i++)
        infos[i] = few[i % 1000 % INDEXED];
    writes[0] = write_buffers(kernel.set, 1, 0, MANY, infos);
    vkUpdateDescriptorSets(vkt.device, 1, writes, 0, NULL);
    /* Of those at the end, one by one: what is last is what counts. */
    for (uint32_t i = 0; i < MANY; i++)
        copies[i] = (VkCopyDescriptorSet){VK_STRUCTURE_TYPE_COPY_DESCRIPTOR_SET,
                                          NULL,
                                          kernel.set,
                                          1,
                                          MANY - 2 * INDEXED + i % INDEXED,
                                          kernel.set,
                                          1,
                                          i * 7 % INDEXED,
                                          1};
    for (uint32_t i = 0; i < MANY; i++)
        writes[i] = write_buffers(kernel.set, 1, MANY - INDEXED + i % 5, 1, &few[i % 11]);
    writes[MANY - 1] =
        write_buffers(kernel.set, 0, 0, 1, &(VkDescriptorBufferInfo){out.handle, 0, VK_WHOLE_SIZE});
    vkUpdateDescriptorSets(vkt.device, MANY, writes, MANY, copies);
    vkt_kernel_run(&kernel, &(uint32_t){INDEXED}, GROUPS);
    vkt_out_buffer("out", &out);
    free(infos);
    free(writes);
    free(copies);
}

static const struct vkt_case cases[] = {
    {"pool_promises", pool_promises, NULL},
    {"exhaustion_of_sets", exhaustion_of_sets, NULL},
    {"exhaustion_of_descriptors", exhaustion_of_descriptors, NULL},
    {"exhaustion_midway", exhaustion_midway, NULL},
    {"freed_and_taken", freed_and_taken, NULL},
    {"fragmented", fragmented, NULL},
    {"many_sets", many_sets, NULL},
    {"arrays", arrays, NULL},
    {"copied", copied, NULL},
    {"templated", templated, NULL},
    {"rewritten", rewritten, NULL},
    {"dynamic_offsets", dynamic_offsets, NULL},
    {"pushed", pushed, NULL},
    {"pushed_by_template", pushed_by_template, NULL},
#ifdef VK_KHR_maintenance6
    {"by_structures", by_structures, "the layer may be older than the extension"},
#endif
    {"inline_block", inline_block, NULL},
    {"indexing", indexing, NULL},
    {"large_update", large_update, NULL},
};

VKT_MAIN(cases)
