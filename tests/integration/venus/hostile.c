/* hostile.c - programs that attack: their own session may die of it, nobody else's.
 *
 * None of what they do is valid Vulkan, so any answer of the driver is right, and so is a lost
 * device.  What counts is what happens to others, which the test looks at. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"

enum {
    MUTANTS = 24,         /* shaders: most are refused, a few reach deep into the compiler */
    WORDS_MAX = 4096,     /* of a shader */
    CRASHES = 4,          /* one after the other */
    MEMORY_MIB = 16,      /* of one allocation */
    ALLOCATIONS_MAX = 64, /* far past the test's --max-memory */
    HELD_OBJECTS = 900,   /* of --max-objects 1000 */
    HELD_PIPELINES = 8,   /* of --max-pipelines 8 */
    HELD_BATCHES = 96,    /* of --max-pending 100 */
};

/* ---- copies far outside of buffers ---- */

static VkResult copy(struct gpu *gpu, VkDeviceSize from, VkDeviceSize to, VkDeviceSize size)
{
    const VkBufferCopy part = {.srcOffset = from, .dstOffset = to, .size = size};
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkResult result = vkBeginCommandBuffer(gpu->commands, &begin);
    if (result == VK_SUCCESS) {
        vkCmdCopyBuffer(gpu->commands, gpu->out.handle, gpu->out.handle, 1, &part);
        vkCmdFillBuffer(gpu->commands, gpu->out.handle, to, size & ~UINT64_C(3), 0x55555555);
        result = vkEndCommandBuffer(gpu->commands);
    }
    if (result == VK_SUCCESS)
        result = kit_submit(gpu, gpu->commands, gpu->fence);
    if (result == VK_SUCCESS)
        result = vkWaitForFences(gpu->device, 1, &gpu->fence, VK_TRUE, UINT64_MAX);
    return result == VK_SUCCESS ? vkResetFences(gpu->device, 1, &gpu->fence) : result;
}

/* Whether the device survived it. */
static bool copy_at(VkDeviceSize place)
{
    struct gpu gpu;
    VkInstance instance = kit_open_first(&gpu);
    bool lives = copy(&gpu, 0, place, KIT_BYTES) == VK_SUCCESS &&
                 copy(&gpu, place, 0, KIT_BYTES) == VK_SUCCESS &&
                 copy(&gpu, 0, 4096, place) == VK_SUCCESS;
    kit_close_all(&gpu, instance);
    return lives;
}

static void copies(void)
{
    static const VkDeviceSize places[] = {
        KIT_BYTES, 1 << 20, UINT64_C(1) << 40, UINT64_C(1) << 63, UINT64_MAX - 4095,
    };
    for (size_t i = 0; i < VKT_COUNT(places); i++)
        (void)copy_at(places[i]);
    kit_say("done");
}

/* The driver's process dies, again and again. */
static void crashes(void)
{
    for (int i = 0; i < CRASHES; i++)
        VKT_EXPECT(!copy_at(1 << 30));
    kit_say("done");
}

/* ---- shaders that are none ---- */

static size_t read_shader(const char *name, uint32_t words[WORDS_MAX])
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/shaders/%s.comp.spv", getenv("VKT_PROGRAMS"), name);
    FILE *file = fopen(path, "rb");
    if (!file)
        vkt_fail("%s: %m", path);
    size_t count = fread(words, sizeof(*words), WORDS_MAX, file);
    fclose(file);
    return count;
}

/* Words are exchanged for others, for small numbers (which are ids and lengths), or cut off. */
static size_t mutate(uint32_t *words, size_t count, uint32_t *seed)
{
    for (int i = 0; i < 3; i++) {
        *seed = *seed * 1664525 + 1013904223;
        size_t at = 5 + (*seed >> 8) % (count - 5);
        words[at] = *seed >> 28 ? (*seed >> 16) % 64 : words[*seed % count] ^ *seed;
    }
    return *seed >> 24 & 7 ? count : 5 + *seed % (count - 5);
}

/* Enough for the shader as it was: what fails is the shader. */
static VkResult make_layout(const struct gpu *gpu, VkDescriptorSetLayout *set,
                            VkPipelineLayout *layout)
{
    VkDescriptorSetLayoutBinding bindings[4];
    for (uint32_t i = 0; i < VKT_COUNT(bindings); i++)
        bindings[i] =
            (VkDescriptorSetLayoutBinding){.binding = i,
                                           .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                           .descriptorCount = 1,
                                           .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    VkDescriptorSetLayoutCreateInfo of_set = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .bindingCount = VKT_COUNT(bindings),
        .pBindings = bindings};
    VkPushConstantRange constants = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = 128};
    VkPipelineLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                       .setLayoutCount = 1,
                                       .pSetLayouts = set,
                                       .pushConstantRangeCount = 1,
                                       .pPushConstantRanges = &constants};
    VkResult result = vkCreateDescriptorSetLayout(gpu->device, &of_set, NULL, set);
    if (result == VK_SUCCESS)
        result = vkCreatePipelineLayout(gpu->device, &info, NULL, layout);
    return result;
}

/* A pipeline of that shader, if it is one. */
static VkPipeline compile(const struct gpu *gpu, const uint32_t *words, size_t count)
{
    VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                     .codeSize = count * sizeof(*words),
                                     .pCode = words};
    VkDescriptorSetLayout set;
    VkShaderModule module;
    VkPipelineLayout layout;
    VkPipeline pipeline = VK_NULL_HANDLE;
    if (vkCreateShaderModule(gpu->device, &info, NULL, &module) != VK_SUCCESS)
        return VK_NULL_HANDLE;
    if (make_layout(gpu, &set, &layout) == VK_SUCCESS) {
        VkComputePipelineCreateInfo compute = {
            .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
            .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                      .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                      .module = module,
                      .pName = "main"},
            .layout = layout};
        if (vkCreateComputePipelines(gpu->device, VK_NULL_HANDLE, 1, &compute, NULL, &pipeline))
            pipeline = VK_NULL_HANDLE;
        vkDestroyPipelineLayout(gpu->device, layout, NULL);
        vkDestroyDescriptorSetLayout(gpu->device, set, NULL);
    }
    vkDestroyShaderModule(gpu->device, module, NULL);
    return pipeline;
}

static void shaders(void)
{
    static uint32_t words[WORDS_MAX], mutant[WORDS_MAX];
    size_t count = read_shader("shared", words);
    uint32_t seed = 1;
    struct gpu gpu;
    VkInstance instance = kit_open_first(&gpu);
    for (int i = 0; i < MUTANTS; i++) {
        memcpy(mutant, words, count * sizeof(*words));
        size_t left = mutate(mutant, count, &seed);
        vkDestroyPipeline(gpu.device, compile(&gpu, mutant, left), NULL);
        if (kit_work(&gpu, 1) == VK_SUCCESS)
            continue;
        kit_close_all(&gpu, instance);
        instance = kit_open_first(&gpu);
    }
    kit_close_all(&gpu, instance);
    kit_say("done");
}

/* ---- shaders that write anywhere ---- */

/* A shader that reads and writes at this address of its process.  Whether the device survived it.
 */
static bool write_at(const uint32_t *words, size_t count, uint64_t address)
{
    const struct {
        uint64_t first, target;
        uint32_t count;
    } push = {address, address, 1};
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkDescriptorSetLayout set;
    VkPipelineLayout layout;
    struct gpu gpu;
    VkInstance instance = kit_open_first(&gpu);
    VkPipeline pipeline = compile(&gpu, words, count);
    VKT_EXPECT(pipeline != VK_NULL_HANDLE);
    VkCommandBuffer commands = kit_command(&gpu);
    VKT(make_layout(&gpu, &set, &layout));
    VKT(vkBeginCommandBuffer(commands, &begin));
    vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(push), &push);
    vkCmdDispatch(commands, 1, 1, 1);
    VKT(vkEndCommandBuffer(commands));
    bool lives = kit_submit(&gpu, commands, VK_NULL_HANDLE) == VK_SUCCESS &&
                 kit_work(&gpu, 1) == VK_SUCCESS; /* behind it */
    vkDestroyPipelineLayout(gpu.device, layout, NULL);
    vkDestroyDescriptorSetLayout(gpu.device, set, NULL);
    vkDestroyPipeline(gpu.device, pipeline, NULL);
    kit_close_all(&gpu, instance);
    return lives;
}

static void addresses(void)
{
    static const uint64_t places[] = {16, UINT64_C(1) << 44, UINT64_MAX - 4095};
    static uint32_t words[WORDS_MAX];
    size_t count = read_shader("address", words);
    for (size_t i = 0; i < VKT_COUNT(places); i++)
        VKT_EXPECT(!write_at(words, count, places[i]));
    kit_say("done");
}

/* ---- memory ---- */

/* An allocation more, and every byte of it written. */
static VkResult fill(struct gpu *gpu)
{
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = (VkDeviceSize)MEMORY_MIB << 20,
                               .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkMemoryAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                     .allocationSize = info.size,
                                     .memoryTypeIndex = kit_coherent_type(gpu->physical)};
    struct buffer buffer = {.size = info.size};
    VkResult result = vkAllocateMemory(gpu->device, &allocate, NULL, &buffer.memory);
    if (result == VK_SUCCESS)
        result = vkCreateBuffer(gpu->device, &info, NULL, &buffer.handle);
    if (result == VK_SUCCESS)
        result = vkBindBufferMemory(gpu->device, buffer.handle, buffer.memory, 0);
    if (result == VK_SUCCESS)
        result = kit_record_fill(gpu->commands, &buffer, 1);
    if (result == VK_SUCCESS)
        result = kit_submit(gpu, gpu->commands, gpu->fence);
    if (result == VK_SUCCESS)
        result = vkWaitForFences(gpu->device, 1, &gpu->fence, VK_TRUE, UINT64_MAX);
    return result == VK_SUCCESS ? vkResetFences(gpu->device, 1, &gpu->fence) : result;
}

static VkResult fill_all(struct gpu *gpu)
{
    VkResult result = fill(gpu);
    VKT(result);
    for (int i = 1; i < ALLOCATIONS_MAX && result == VK_SUCCESS; i++)
        result = fill(gpu);
    return result;
}

/* As much as the server gives; with it the session is killed. */
static void memory(void)
{
    struct gpu gpu;
    (void)kit_open_first(&gpu);
    VKT_EXPECT(fill_all(&gpu) == VK_ERROR_OUT_OF_DEVICE_MEMORY);
    kit_say("full");
    kit_await("end");
}

/* More than the host has: the kernel ends the session. */
static void main_memory(void)
{
    struct gpu gpu;
    VkInstance instance = kit_open_first(&gpu);
    kit_say("ready");
    kit_await("fill");
    VKT_EXPECT(fill_all(&gpu) == VK_ERROR_DEVICE_LOST);
    kit_say("lost");
    kit_close_all(&gpu, instance);
}

/* ---- every limit ---- */

/* Nearly as much of everything as the test's limits allow, at the same time: all of the memory, and
 * objects, pipelines and batches that wait for something that never comes. */
static void limits(void)
{
    static uint32_t words[WORDS_MAX];
    size_t count = read_shader("shared", words);
    struct gpu gpu;
    VkBuffer buffer;
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = 64,
                               .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    (void)kit_open_first(&gpu);
    VKT_EXPECT(fill_all(&gpu) == VK_ERROR_OUT_OF_DEVICE_MEMORY);
    for (int i = 0; i < HELD_PIPELINES; i++)
        VKT_EXPECT(compile(&gpu, words, count) != VK_NULL_HANDLE);
    for (int i = 0; i < HELD_OBJECTS; i++)
        VKT(vkCreateBuffer(gpu.device, &info, NULL, &buffer));
    VKT(kit_record_fill(gpu.commands, &gpu.out, 1));
    VKT(kit_submit_after(&gpu, kit_timeline(&gpu), 1, VK_NULL_HANDLE));
    for (int i = 1; i < HELD_BATCHES; i++)
        VKT(kit_submit(&gpu, gpu.commands, VK_NULL_HANDLE));
    VKT_EXPECT(fill(&gpu) == VK_ERROR_OUT_OF_DEVICE_MEMORY); /* not lost: no limit was passed */
    kit_say("held");
    kit_await("end");
}

static const struct kit_case cases[] = {
    {"copies", copies},       {"crashes", crashes}, {"shaders", shaders},
    {"addresses", addresses}, {"memory", memory},   {"main_memory", main_memory},
    {"limits", limits},
};

KIT_MAIN(cases)
