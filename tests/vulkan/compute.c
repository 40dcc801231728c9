/* compute.c - differential programs: dispatches and what shaders compute. */
#include "vkt.h"

#include <string.h>

enum { WORDS = 1024, BYTES = WORDS * 4 };

static void dispatch(void)
{
    vkt_open();
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = vkt_kernel("fill.comp", "s", 8);
    vkt_kernel_bind(&kernel, 0, &out);
    vkt_kernel_run(&kernel, (const uint32_t[]){7, 3}, WORDS / 64);
    VKT_EXPECT(((uint32_t *)out.map)[100] == 307);
    vkt_out_buffer("out", &out);
}

static void dispatch_3d(void)
{
    vkt_open();
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = vkt_kernel("groups.comp", "s", 0);
    vkt_kernel_bind(&kernel, 0, &out);
    VkCommandBuffer command = vkt_begin();
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
    vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1,
                            &kernel.set, 0, NULL);
    vkCmdDispatch(command, 16, 4, 5);
    vkt_barrier(command);
    vkt_finish(command);
    vkt_out_buffer("out", &out);
}

/* With a shader that no other case uses: a driver was seen that gives a pipeline without the flag
 * to who asks for one with it. */
static void dispatch_base(void)
{
    vkt_open();
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    VkDescriptorSetLayout set_layout = vkt_set_layout("s", 0);
    VkDescriptorSet set = vkt_set(set_layout, "s");
    vkt_write_buffer(set, 0, vkt_type('s'), out.handle, 0, VK_WHOLE_SIZE);
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .flags = VK_PIPELINE_CREATE_DISPATCH_BASE_BIT,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = vkt_shader("based.comp"),
                  .pName = "main"},
        .layout = vkt_layout(set_layout, 0),
    };
    VkPipeline pipeline;
    VKT(vkCreateComputePipelines(vkt.device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline));
    VKT_KEEP(PIPELINE, pipeline);
    VkCommandBuffer command = vkt_begin();
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, info.layout, 0, 1, &set, 0,
                            NULL);
    vkCmdDispatchBase(command, 3, 1, 2, 4, 2, 3);
    vkt_barrier(command);
    vkt_finish(command);
    VKT_EXPECT(((uint32_t *)out.map)[4 * (3 + 8 * 1 + 32 * 2)] == 3);
    vkt_out_buffer("out", &out);
}

static void indirect(void)
{
    vkt_open();
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_buffer sizes = vkt_buffer(
        256, VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT | VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, VKT_DEVICE);
    struct vkt_kernel kernel = vkt_kernel("groups.comp", "s", 0);
    vkt_kernel_bind(&kernel, 0, &out);
    VkCommandBuffer command = vkt_begin();
    /* The sizes come from the GPU, at an offset. */
    vkCmdUpdateBuffer(command, sizes.handle, 20, 12, (const uint32_t[]){5, 3, 2});
    vkt_barrier(command);
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
    vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1,
                            &kernel.set, 0, NULL);
    vkCmdDispatchIndirect(command, sizes.handle, 20);
    vkt_finish(command);
    vkt_out_buffer("out", &out);
}

static void large(void)
{
    vkt_open();
    enum { GROUPS = 16384, LARGE = GROUPS * 64 * 4 };
    struct vkt_buffer out = vkt_buffer(LARGE, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, VKT_DEVICE);
    struct vkt_kernel kernel = vkt_kernel("fill.comp", "s", 8);
    vkt_kernel_bind(&kernel, 0, &out);
    vkt_kernel_run(&kernel, (const uint32_t[]){1, 2654435761u}, GROUPS);
    vkt_out_buffer("out", &out);
}

static void dependent(void)
{
    vkt_open();
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = vkt_kernel("step.comp", "s", 4);
    vkt_kernel_bind(&kernel, 0, &out);
    VkCommandBuffer command = vkt_begin();
    for (uint32_t i = 0; i < 200; i++)
        vkt_kernel_record(command, &kernel, &i, WORDS / 64);
    vkt_finish(command);
    vkt_out_buffer("out", &out);
}

/* Runs a kernel of one input and one output over WORDS patterned words. */
static void in_out(const char *shader, uint32_t group, uint32_t out_bytes)
{
    struct vkt_buffer in = vkt_storage(BYTES, NULL);
    struct vkt_buffer out = vkt_storage(out_bytes, NULL);
    vkt_pattern(in.map, BYTES, 11);
    struct vkt_kernel kernel = vkt_kernel(shader, "ss", 0);
    vkt_kernel_bind(&kernel, 0, &in);
    vkt_kernel_bind(&kernel, 1, &out);
    vkt_kernel_run(&kernel, NULL, WORDS / group);
    vkt_out_buffer("out", &out);
}

static void shared_memory(void)
{
    vkt_open();
    in_out("shared.comp", 256, BYTES);
}

static void subgroups(void)
{
    VkPhysicalDeviceVulkan11Properties have = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES,
    };
    VkPhysicalDeviceProperties2 all = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
        .pNext = &have,
    };
    vkGetPhysicalDeviceProperties2(vkt.physical, &all);
    const VkSubgroupFeatureFlags need =
        VK_SUBGROUP_FEATURE_VOTE_BIT | VK_SUBGROUP_FEATURE_BALLOT_BIT |
        VK_SUBGROUP_FEATURE_ARITHMETIC_BIT | VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
    VKT_NEED((have.subgroupSupportedOperations & need) == need);
    VKT_NEED(have.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT);
    vkt_open();
    in_out("subgroup.comp", 64, BYTES * 4);
}

static void floats(void)
{
    vkt_open();
    float values[WORDS];
    for (int i = 0; i < WORDS; i++)
        values[i] = (float)(i - WORDS / 2) / 37.0f;
    struct vkt_buffer in = vkt_storage(BYTES, values), out = vkt_storage(BYTES * 4, NULL);
    struct vkt_kernel kernel = vkt_kernel("floats.comp", "ss", 0);
    vkt_kernel_bind(&kernel, 0, &in);
    vkt_kernel_bind(&kernel, 1, &out);
    vkt_kernel_run(&kernel, NULL, WORDS / 64);
    vkt_out_buffer("out", &out);
}

static void halves(void)
{
    VKT_NEED(vkt.f12.shaderFloat16);
    VKT_NEED(vkt.f11.storageBuffer16BitAccess);
    vkt_open();
    uint16_t values[WORDS];
    for (uint32_t i = 0; i < WORDS; i++)
        values[i] = (uint16_t)(i * 29u); /* stays below infinity: a NaN's payload is anyone's */
    struct vkt_buffer in = vkt_storage(WORDS * 2, values), out = vkt_storage(WORDS * 2, NULL);
    struct vkt_kernel kernel = vkt_kernel("half.comp", "ss", 0);
    vkt_kernel_bind(&kernel, 0, &in);
    vkt_kernel_bind(&kernel, 1, &out);
    vkt_kernel_run(&kernel, NULL, WORDS / 64);
    vkt_out_buffer("out", &out);
}

static void small_integers(void)
{
    VKT_NEED(vkt.f12.shaderInt8);
    VKT_NEED(vkt.f10.shaderInt16);
    VKT_NEED(vkt.f12.storageBuffer8BitAccess);
    VKT_NEED(vkt.f11.storageBuffer16BitAccess);
    vkt_open();
    struct vkt_buffer bytes = vkt_storage(512, NULL), shorts = vkt_storage(1024, NULL);
    vkt_pattern(bytes.map, bytes.size, 1);
    vkt_pattern(shorts.map, shorts.size, 2);
    struct vkt_kernel kernel = vkt_kernel("bytes.comp", "ss", 0);
    vkt_kernel_bind(&kernel, 0, &bytes);
    vkt_kernel_bind(&kernel, 1, &shorts);
    vkt_kernel_run(&kernel, NULL, 4);
    vkt_out_buffer("bytes", &bytes);
    vkt_out_buffer("shorts", &shorts);
}

static void wide_numbers(void)
{
    VKT_NEED(vkt.f10.shaderInt64);
    VKT_NEED(vkt.f10.shaderFloat64);
    vkt_open();
    struct vkt_buffer ints = vkt_storage(2048, NULL), reals = vkt_storage(2048, NULL);
    vkt_pattern(ints.map, ints.size, 6);
    struct vkt_kernel kernel = vkt_kernel("wide.comp", "ss", 0);
    vkt_kernel_bind(&kernel, 0, &ints);
    vkt_kernel_bind(&kernel, 1, &reals);
    vkt_kernel_run(&kernel, NULL, 4);
    vkt_out_buffer("ints", &ints);
    vkt_out_buffer("reals", &reals);
}

static void atomics(void)
{
    vkt_open();
    uint32_t start[70] = {[1] = UINT32_MAX, [3] = UINT32_MAX};
    struct vkt_buffer out = vkt_storage(sizeof(start), start);
    struct vkt_kernel kernel = vkt_kernel("atomics.comp", "s", 0);
    vkt_kernel_bind(&kernel, 0, &out);
    vkt_kernel_run(&kernel, NULL, 64);
    VKT_EXPECT(((uint32_t *)out.map)[0] == 4096u * 4095u / 2);
    vkt_out_buffer("out", &out);
}

static void atomics64(void)
{
    VKT_NEED(vkt.f12.shaderBufferInt64Atomics);
    VKT_NEED(vkt.f10.shaderInt64);
    vkt_open();
    struct vkt_buffer out = vkt_storage(16, NULL);
    struct vkt_kernel kernel = vkt_kernel("atomics64.comp", "s", 0);
    vkt_kernel_bind(&kernel, 0, &out);
    vkt_kernel_run(&kernel, NULL, 16);
    vkt_out_buffer("out", &out);
}

static const struct vkt_case cases[] = {
    {"dispatch", dispatch, NULL},
    {"dispatch_3d", dispatch_3d, NULL},
    {"dispatch_base", dispatch_base, NULL},
    {"indirect", indirect, NULL},
    {"large", large, NULL},
    {"dependent", dependent, NULL},
    {"shared_memory", shared_memory, NULL},
    {"subgroups", subgroups, NULL},
    {"floats", floats, NULL},
    {"halves", halves, NULL},
    {"small_integers", small_integers, NULL},
    {"wide_numbers", wide_numbers, NULL},
    {"atomics", atomics, NULL},
    {"atomics64", atomics64, NULL},
};

VKT_MAIN(cases)
