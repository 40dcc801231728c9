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

static size_t read_shader(uint32_t words[WORDS_MAX])
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/shaders/shared.comp.spv", getenv("VKT_PROGRAMS"));
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

static void compile(const struct gpu *gpu, const uint32_t *words, size_t count)
{
    VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                     .codeSize = count * sizeof(*words),
                                     .pCode = words};
    VkDescriptorSetLayout set;
    VkShaderModule module;
    VkPipelineLayout layout;
    VkPipeline pipeline;
    if (vkCreateShaderModule(gpu->device, &info, NULL, &module) != VK_SUCCESS)
        return;
    if (make_layout(gpu, &set, &layout) == VK_SUCCESS) {
        VkComputePipelineCreateInfo compute = {
            .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
            .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                      .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                      .module = module,
                      .pName = "main"},
            .layout = layout};
        if (vkCreateComputePipelines(gpu->device, VK_NULL_HANDLE, 1, &compute, NULL, &pipeline) ==
            VK_SUCCESS)
            vkDestroyPipeline(gpu->device, pipeline, NULL);
        vkDestroyPipelineLayout(gpu->device, layout, NULL);
        vkDestroyDescriptorSetLayout(gpu->device, set, NULL);
    }
    vkDestroyShaderModule(gpu->device, module, NULL);
}

static void shaders(void)
{
    static uint32_t words[WORDS_MAX], mutant[WORDS_MAX];
    size_t count = read_shader(words);
    uint32_t seed = 1;
    struct gpu gpu;
    VkInstance instance = kit_open_first(&gpu);
    for (int i = 0; i < MUTANTS; i++) {
        memcpy(mutant, words, count * sizeof(*words));
        compile(&gpu, mutant, mutate(mutant, count, &seed));
        if (kit_work(&gpu, 1) == VK_SUCCESS)
            continue;
        kit_close_all(&gpu, instance);
        instance = kit_open_first(&gpu);
    }
    kit_close_all(&gpu, instance);
    kit_say("done");
}

/* ---- memory ---- */

/* As much as there is, and every byte of it written; with it the session is killed. */
static void memory(void)
{
    struct gpu gpu;
    int count = 0;
    VkResult result = VK_SUCCESS;
    (void)kit_open_first(&gpu);
    while (count < ALLOCATIONS_MAX && result == VK_SUCCESS) {
        VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                   .size = (VkDeviceSize)MEMORY_MIB << 20,
                                   .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
        VkMemoryAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                         .allocationSize = info.size,
                                         .memoryTypeIndex = kit_coherent_type(gpu.physical)};
        struct buffer buffer = {.size = info.size};
        result = vkAllocateMemory(gpu.device, &allocate, NULL, &buffer.memory);
        if (result != VK_SUCCESS)
            break;
        VKT(vkCreateBuffer(gpu.device, &info, NULL, &buffer.handle));
        VKT(vkBindBufferMemory(gpu.device, buffer.handle, buffer.memory, 0));
        VKT(kit_record_fill(gpu.commands, &buffer, 1));
        VKT(kit_submit(&gpu, gpu.commands, gpu.fence));
        VKT(vkWaitForFences(gpu.device, 1, &gpu.fence, VK_TRUE, UINT64_MAX));
        VKT(vkResetFences(gpu.device, 1, &gpu.fence));
        count++;
    }
    VKT_EXPECT(result == VK_ERROR_OUT_OF_DEVICE_MEMORY && count > 0);
    kit_say("full");
    kit_await("end");
}

static const struct kit_case cases[] = {
    {"copies", copies},
    {"crashes", crashes},
    {"shaders", shaders},
    {"memory", memory},
};

KIT_MAIN(cases)
