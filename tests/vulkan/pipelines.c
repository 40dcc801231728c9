/* pipelines.c - differential programs: pipelines, their caches, layouts and shader modules. */
#include "vkt.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS = 256, BYTES = WORDS * 4, GROUPS = WORDS / 64 };

static VkPipelineCache cache(size_t size, const void *bytes)
{
    VkPipelineCacheCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
        .initialDataSize = size,
        .pInitialData = bytes,
    };
    VkPipelineCache made;
    VKT(vkCreatePipelineCache(vkt.device, &info, NULL, &made));
    VKT_KEEP(PIPELINE_CACHE, made);
    return made;
}

static VkComputePipelineCreateInfo compute(const char *shader, VkPipelineLayout layout)
{
    return (VkComputePipelineCreateInfo){
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = vkt_shader(shader),
                  .pName = "main"},
        .layout = layout,
        .basePipelineIndex = -1,
    };
}

/* A kernel whose pipeline the case makes itself. */
static struct vkt_kernel bare(const struct vkt_buffer *out)
{
    struct vkt_kernel kernel = {.push_bytes = 8};
    kernel.set_layout = vkt_set_layout("s", 0);
    kernel.layout = vkt_layout(kernel.set_layout, 8);
    kernel.set = vkt_set(kernel.set_layout, "s");
    vkt_kernel_bind(&kernel, 0, out);
    return kernel;
}

static void run(const char *name, struct vkt_kernel kernel, VkPipeline pipeline,
                const struct vkt_buffer *out, uint32_t base)
{
    kernel.pipeline = pipeline;
    vkt_kernel_run(&kernel, (const uint32_t[]){base, 5}, GROUPS);
    vkt_out_buffer(name, out);
}

static VkPipeline make(VkPipelineCache with, const VkComputePipelineCreateInfo *info)
{
    VkPipeline pipeline;
    VKT(vkCreateComputePipelines(vkt.device, with, 1, info, NULL, &pipeline));
    VKT_KEEP(PIPELINE, pipeline);
    return pipeline;
}

/* The data of a cache, which the caller frees. */
static void *cache_data(VkPipelineCache from, size_t *size_out)
{
    VKT(vkGetPipelineCacheData(vkt.device, from, size_out, NULL));
    void *bytes = malloc(*size_out);
    VKT_EXPECT(bytes != NULL);
    VKT(vkGetPipelineCacheData(vkt.device, from, size_out, bytes));
    return bytes;
}

static void cache_header(void)
{
    vkt_open();
    size_t size;
    void *bytes = cache_data(cache(0, NULL), &size);
    VkPipelineCacheHeaderVersionOne header;
    VKT_NEED(size >= sizeof(header)); /* lavapipe 26.2 writes 20 bytes of an empty cache */
    memcpy(&header, bytes, sizeof(header));
    VKT_EXPECT(!memcmp(header.pipelineCacheUUID, vkt.props.pipelineCacheUUID, VK_UUID_SIZE));
    VKT_EXPECT(header.vendorID == vkt.props.vendorID && header.deviceID == vkt.props.deviceID);
    vkt_out("header", &header, sizeof(header));
    free(bytes);
}

static void cache_reused(void)
{
    vkt_open();
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = bare(&out);
    VkComputePipelineCreateInfo info = compute("fill.comp", kernel.layout);
    VkPipelineCache first = cache(0, NULL);
    run("cold", kernel, make(first, &info), &out, 1);
    run("warm", kernel, make(first, &info), &out, 2);
    size_t size;
    void *bytes = cache_data(first, &size);
    VkPipelineCache second = cache(size, bytes);
    free(bytes);
    run("from data", kernel, make(second, &info), &out, 3);
}

static void cache_refused_data(void)
{
    vkt_open();
    /* Data of another driver is not an error: it is ignored. */
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = bare(&out);
    VkPipelineCacheHeaderVersionOne header = {
        .headerSize = sizeof(header),
        .headerVersion = VK_PIPELINE_CACHE_HEADER_VERSION_ONE,
        .vendorID = 0xdead,
        .deviceID = 0xbeef,
    };
    VkComputePipelineCreateInfo info = compute("fill.comp", kernel.layout);
    run("foreign", kernel, make(cache(sizeof(header), &header), &info), &out, 4);
}

static void cache_merged(void)
{
    vkt_open();
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = bare(&out);
    VkComputePipelineCreateInfo fill = compute("fill.comp", kernel.layout);
    VkComputePipelineCreateInfo step = compute("step.comp", kernel.layout);
    VkPipelineCache sources[2] = {cache(0, NULL), cache(0, NULL)}, all = cache(0, NULL);
    make(sources[0], &fill);
    make(sources[1], &step);
    VKT(vkMergePipelineCaches(vkt.device, all, 2, sources));
    run("fill", kernel, make(all, &fill), &out, 5);
    run("step", kernel, make(all, &step), &out, 6);
}

static void cache_incomplete(void)
{
    vkt_open();
    VkPipelineCache one = cache(0, NULL);
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = bare(&out);
    VkComputePipelineCreateInfo info = compute("fill.comp", kernel.layout);
    make(one, &info);
    unsigned char bytes[8];
    size_t size = sizeof(bytes); /* less than a header: nothing may be written */
    vkt_out_result("short", vkGetPipelineCacheData(vkt.device, one, &size, bytes));
    vkt_out_u64("size", size);
}

/* What is in no message, and is no more than advice. */
static void cache_with_much_data(void)
{
    vkt_open();
    size_t size;
    const size_t large = (size_t)24 << 20;
    void *good = cache_data(cache(0, NULL), &size), *data = calloc(1, large);
    VKT_EXPECT(data != NULL && size <= large);
    memcpy(data, good, size);
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = bare(&out);
    VkComputePipelineCreateInfo info = compute("fill.comp", kernel.layout);
    run("run", kernel, make(cache(large, data), &info), &out, 5);
    /* What a message just holds, behind what has gathered. */
    const size_t most = ((size_t)16 << 20) - (64 << 10);
    for (int i = 0; i < 2; i++)
        (void)cache(50 << 10, data);
    run("run", kernel, make(cache(most, data), &info), &out, 6);
    free(good);
    free(data);
}

/* Room for more than a program can be sent at once. */
static void cache_with_much_room(void)
{
    vkt_open();
    VkPipelineCache made = cache(0, NULL);
    size_t size = (size_t)100 << 20;
    void *data = malloc(size);
    VKT_EXPECT(data != NULL);
    VKT(vkGetPipelineCacheData(vkt.device, made, &size, data));
    vkt_out("header", data, size < 32 ? size : 32); /* some drivers say that they filled all */
    free(data);
    VKT(vkDeviceWaitIdle(vkt.device));
}

static void several_at_once(void)
{
    vkt_open();
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = bare(&out);
    const VkComputePipelineCreateInfo infos[] = {compute("fill.comp", kernel.layout),
                                                 compute("step.comp", kernel.layout),
                                                 compute("fill.comp", kernel.layout)};
    VkPipeline pipelines[3];
    VKT(vkCreateComputePipelines(vkt.device, VK_NULL_HANDLE, 3, infos, NULL, pipelines));
    for (uint32_t i = 0; i < 3; i++) {
        VKT_KEEP(PIPELINE, pipelines[i]);
        run("run", kernel, pipelines[i], &out, i);
    }
}

static void derivatives(void)
{
    vkt_open();
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = bare(&out);
    VkComputePipelineCreateInfo infos[2] = {compute("fill.comp", kernel.layout),
                                            compute("step.comp", kernel.layout)};
    infos[0].flags = VK_PIPELINE_CREATE_ALLOW_DERIVATIVES_BIT;
    infos[0].basePipelineHandle = (VkPipeline)(uintptr_t)16; /* not read: no derivative */
    infos[1].flags = VK_PIPELINE_CREATE_DERIVATIVE_BIT;
    infos[1].basePipelineIndex = 0; /* in the same call */
    VkPipeline pipelines[2];
    VKT(vkCreateComputePipelines(vkt.device, VK_NULL_HANDLE, 2, infos, NULL, pipelines));
    VKT_KEEP(PIPELINE, pipelines[0]);
    VKT_KEEP(PIPELINE, pipelines[1]);
    run("base", kernel, pipelines[0], &out, 10);
    run("by index", kernel, pipelines[1], &out, 11);
    infos[1].basePipelineIndex = -1;
    infos[1].basePipelineHandle = pipelines[0];
    run("by handle", kernel, make(VK_NULL_HANDLE, &infos[1]), &out, 12);
}

static void compile_required(void)
{
    VKT_NEED(vkt.f13.pipelineCreationCacheControl);
    vkt_open();
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = bare(&out);
    VkComputePipelineCreateInfo info = compute("fill.comp", kernel.layout);
    info.flags = VK_PIPELINE_CREATE_FAIL_ON_PIPELINE_COMPILE_REQUIRED_BIT;
    VkPipeline pipeline = (VkPipeline)(uintptr_t)16;
    VkResult result =
        vkCreateComputePipelines(vkt.device, cache(0, NULL), 1, &info, NULL, &pipeline);
    vkt_out_result("empty cache", result);
    VKT_EXPECT((pipeline == VK_NULL_HANDLE) == (result != VK_SUCCESS));
    if (result == VK_SUCCESS)
        VKT_KEEP(PIPELINE, pipeline);
}

static void feedback(void)
{
    vkt_open();
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = bare(&out);
    VkComputePipelineCreateInfo info = compute("fill.comp", kernel.layout);
    VkPipelineCreationFeedback whole = {0}, stage = {0};
    VkPipelineCreationFeedbackCreateInfo wanted = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_CREATION_FEEDBACK_CREATE_INFO,
        .pPipelineCreationFeedback = &whole,
        .pipelineStageCreationFeedbackCount = 1,
        .pPipelineStageCreationFeedbacks = &stage,
    };
    info.pNext = &wanted;
    run("run", kernel, make(VK_NULL_HANDLE, &info), &out, 20);
    vkt_out_u64("valid", whole.flags & VK_PIPELINE_CREATION_FEEDBACK_VALID_BIT);
}

static void layout_destroyed_early(void)
{
    vkt_open();
    /* A layout may go as soon as the pipeline exists; a compatible one binds the sets. */
    struct vkt_buffer out = vkt_storage(BYTES, NULL);
    struct vkt_kernel kernel = bare(&out);
    VkPipelineLayoutCreateInfo layout_info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .setLayoutCount = 1,
        .pSetLayouts = &kernel.set_layout,
        .pushConstantRangeCount = 1,
        .pPushConstantRanges = &(VkPushConstantRange){VK_SHADER_STAGE_ALL, 0, 8},
    };
    VkPipelineLayout temporary;
    VKT(vkCreatePipelineLayout(vkt.device, &layout_info, NULL, &temporary));
    VkComputePipelineCreateInfo info = compute("fill.comp", temporary);
    VkPipeline pipeline = make(VK_NULL_HANDLE, &info);
    vkDestroyPipelineLayout(vkt.device, temporary, NULL);
    run("run", kernel, pipeline, &out, 30);
}

static const struct vkt_case cases[] = {
    {"cache_header", cache_header, NULL},
    {"cache_reused", cache_reused, NULL},
    {"cache_refused_data", cache_refused_data, NULL},
    {"cache_merged", cache_merged, NULL},
    {"cache_incomplete", cache_incomplete, NULL},
    {"cache_with_much_data", cache_with_much_data, NULL},
    {"cache_with_much_room", cache_with_much_room, NULL},
    {"several_at_once", several_at_once, NULL},
    {"derivatives", derivatives, NULL},
    {"compile_required", compile_required, NULL},
    {"feedback", feedback, NULL},
    {"layout_destroyed_early", layout_destroyed_early, NULL},
};

VKT_MAIN(cases)
