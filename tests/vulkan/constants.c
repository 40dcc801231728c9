/* constants.c - differential programs: push and specialization constants. */
#include "vkt_image.h"

enum { BLOCK = 32, BLOCK_BYTES = BLOCK * 4, GROUP = 32 };

static void push_partial(void)
{
    vkt_open();
    struct vkt_buffer out = vkt_storage(BLOCK_BYTES * 3, NULL);
    struct vkt_kernel kernel = vkt_kernel("block.comp", "s", BLOCK_BYTES);
    vkt_kernel_bind(&kernel, 0, &out);
    uint32_t block[BLOCK];
    vkt_pattern(block, sizeof(block), 1);
    VkCommandBuffer command = vkt_begin();
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
    vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.layout, 0, 1,
                            &kernel.set, 0, NULL);
    vkCmdPushConstants(command, kernel.layout, VK_SHADER_STAGE_ALL, 0, BLOCK_BYTES, block);
    const uint32_t some[2] = {111, 222};
    vkCmdPushConstants(command, kernel.layout, VK_SHADER_STAGE_ALL, 20, sizeof(some), some);
    vkCmdDispatch(command, 3, 1, 1);
    vkt_finish(command);
    VKT_EXPECT(((uint32_t *)out.map)[5] == 111);
    vkt_out_buffer("out", &out);
}

static void push_between(void)
{
    vkt_open();
    /* Each dispatch keeps what was pushed before it, and the caller's array may change at once. */
    struct vkt_buffer out = vkt_storage(4096, NULL);
    struct vkt_kernel kernel = vkt_kernel("step.comp", "s", 4);
    vkt_kernel_bind(&kernel, 0, &out);
    VkCommandBuffer command = vkt_begin();
    uint32_t add = 0;
    for (int i = 0; i < 10; i++) {
        add = add * 7 + 1;
        vkt_kernel_record(command, &kernel, &add, 16);
    }
    add = 0;
    vkt_finish(command);
    vkt_out_buffer("out", &out);
}

struct push {
    float color[4];
    float depth;
};

static void push_stages(void)
{
    vkt_open();
    /* Two ranges over the same bytes, one a stage, pushed in two parts. */
    const VkPushConstantRange ranges[] = {
        {VK_SHADER_STAGE_VERTEX_BIT, 0, sizeof(struct push)},
        {VK_SHADER_STAGE_FRAGMENT_BIT, 0, sizeof(struct push)},
    };
    VkPipelineLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .pushConstantRangeCount = 2,
        .pPushConstantRanges = ranges,
    };
    VkPipelineLayout layout;
    VKT(vkCreatePipelineLayout(vkt.device, &info, NULL, &layout));
    VKT_KEEP(PIPELINE_LAYOUT, layout);
    struct vkt_target target = vkt_target(VK_FORMAT_UNDEFINED, VK_SAMPLE_COUNT_1_BIT);
    VkPipeline pipeline = vkt_pipeline(&(struct vkt_pipeline){
        .shaders = {"screen.vert", "pushed.frag"},
        .layout = layout,
        .pass = target.pass,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
    });
    const struct push push = {{0.75f, 0.5f, 0.25f, 1.0f}, 0.5f};
    const VkShaderStageFlags both = VK_SHADER_STAGE_VERTEX_BIT | VK_SHADER_STAGE_FRAGMENT_BIT;
    VkCommandBuffer command = vkt_begin();
    vkt_target_begin(command, &target, VK_SUBPASS_CONTENTS_INLINE);
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline);
    vkCmdPushConstants(command, layout, both, 0, 16, push.color);
    vkCmdPushConstants(command, layout, both, 16, 4, &push.depth);
    vkCmdDraw(command, 3, 1, 0, 0);
    vkCmdEndRenderPass(command);
    vkt_finish(command);
    vkt_out_target("target", &target);
}

struct constants {
    uint32_t group, word;
    int32_t number;
    float real;
    VkBool32 flag;
    uint32_t length;
};

static void run_special(const char *name, const VkSpecializationInfo *info, uint32_t groups)
{
    struct vkt_buffer out = vkt_storage(4096, NULL);
    VkDescriptorSetLayout set_layout = vkt_set_layout("s", 0);
    struct vkt_kernel kernel = {
        .set_layout = set_layout,
        .layout = vkt_layout(set_layout, 0),
        .set = vkt_set(set_layout, "s"),
    };
    kernel.pipeline = vkt_compute_pipeline("spec.comp", kernel.layout, info);
    vkt_kernel_bind(&kernel, 0, &out);
    vkt_kernel_run(&kernel, NULL, groups);
    vkt_out_buffer(name, &out);
}

static void specialized(void)
{
    vkt_open();
    const struct constants values = {GROUP, 9, -20, 1.25f, VK_TRUE, 7};
    VkSpecializationMapEntry entries[6];
    for (uint32_t i = 0; i < 6; i++)
        entries[i] = (VkSpecializationMapEntry){i, i * 4, 4};
    VkSpecializationInfo all = {6, entries, sizeof(values), &values};
    run_special("all", &all, 4);
    VkSpecializationInfo group_only = {1, entries, sizeof(values), &values};
    run_special("group only", &group_only, 4);
    /* Unused ids are ignored, order is free, entries may share bytes. */
    const VkSpecializationMapEntry odd[] = {{77, 0, 4}, {5, 20, 4}, {1, 20, 4}, {0, 0, 4}};
    VkSpecializationInfo mixed = {4, odd, sizeof(values), &values};
    run_special("mixed", &mixed, 4);
}

static void specialized_stages(void)
{
    vkt_open();
    struct vkt_target target = vkt_target(VK_FORMAT_UNDEFINED, VK_SAMPLE_COUNT_1_BIT);
    const struct {
        float red;
        VkBool32 discards;
    } values = {0.5f, VK_TRUE};
    const VkSpecializationMapEntry entries[] = {{0, 0, 4}, {1, 4, 4}};
    VkSpecializationInfo constants = {2, entries, sizeof(values), &values};
    const struct push push = {{0}, 0.0f};
    VkPipelineLayout layout = vkt_layout(VK_NULL_HANDLE, sizeof(push));
    VkPipeline pipeline = vkt_pipeline(&(struct vkt_pipeline){
        .shaders = {"screen.vert", "spec.frag"},
        .layout = layout,
        .pass = target.pass,
        .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST,
        .constants = &constants,
    });
    VkCommandBuffer command = vkt_begin();
    vkt_target_begin(command, &target, VK_SUBPASS_CONTENTS_INLINE);
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline);
    vkCmdPushConstants(command, layout, VK_SHADER_STAGE_ALL, 0, sizeof(push), &push);
    vkCmdDraw(command, 3, 1, 0, 0);
    vkCmdEndRenderPass(command);
    vkt_finish(command);
    vkt_out_target("target", &target);
}

static const struct vkt_case cases[] = {
    {"push_partial", push_partial, NULL},
    {"push_between", push_between, NULL},
    {"push_stages", push_stages, NULL},
    {"specialized", specialized, NULL},
    {"specialized_stages", specialized_stages, NULL},
};

VKT_MAIN(cases)
