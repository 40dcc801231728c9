/* failures.c - differential programs: what a program must be told at once. */
#include "vkt.h"

#include <string.h>

static VkDeviceQueueCreateInfo first_queue(void)
{
    static const float priority = 1.0f;
    return (VkDeviceQueueCreateInfo){
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueCount = 1,
        .pQueuePriorities = &priority,
    };
}

/* Tries a device; prints the result and destroys what came. */
static void try_device(const char *name, const VkPhysicalDeviceFeatures *features,
                       uint32_t extension_count, const char *const *extensions)
{
    VkDeviceQueueCreateInfo queue = first_queue();
    VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .queueCreateInfoCount = 1,
        .pQueueCreateInfos = &queue,
        .enabledExtensionCount = extension_count,
        .ppEnabledExtensionNames = extensions,
        .pEnabledFeatures = features,
    };
    VkDevice device;
    VkResult result = vkCreateDevice(vkt.physical, &info, NULL, &device);
    vkt_out_result(name, result);
    if (result == VK_SUCCESS)
        vkDestroyDevice(device, NULL);
}

static void missing_feature(void)
{
    enum { FEATURES = sizeof(VkPhysicalDeviceFeatures) / sizeof(VkBool32) };
    VkBool32 have[FEATURES], want[FEATURES] = {0};
    memcpy(have, &vkt.f10, sizeof(have));
    uint32_t missing = 0;
    while (missing < FEATURES && have[missing])
        missing++;
    VKT_NEED(missing < FEATURES);
    vkt_out_u64("feature", missing);
    VkPhysicalDeviceFeatures features;
    memcpy(&features, want, sizeof(want));
    try_device("without", &features, 0, NULL);
    want[missing] = VK_TRUE;
    memcpy(&features, want, sizeof(want));
    try_device("with", &features, 0, NULL);
}

static void missing_extension(void)
{
    const char *const names[] = {"VK_HAWSER_no_such_extension"};
    try_device("device", NULL, 1, names);
    VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .enabledExtensionCount = 1,
        .ppEnabledExtensionNames = names,
    };
    VkInstance instance;
    vkt_out_result("instance", vkCreateInstance(&info, NULL, &instance));
}

static void missing_layer(void)
{
    const char *const names[] = {"VK_LAYER_HAWSER_no_such_layer"};
    VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .enabledLayerCount = 1,
        .ppEnabledLayerNames = names,
    };
    VkInstance instance;
    vkt_out_result("instance", vkCreateInstance(&info, NULL, &instance));
}

/* Four times what the heap holds: each within the rules, together impossible. */
static void out_of_memory(void)
{
    vkt_open();
    uint32_t type = vkt_memory_type(UINT32_MAX, VKT_DEVICE);
    uint32_t heap = vkt.memory.memoryTypes[type].heapIndex;
    VkMemoryAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .allocationSize = vkt.memory.memoryHeaps[heap].size,
        .memoryTypeIndex = type,
    };
    VkResult result = VK_SUCCESS;
    for (int i = 0; i < 4 && result == VK_SUCCESS; i++) {
        VkDeviceMemory memory;
        result = vkAllocateMemory(vkt.device, &info, NULL, &memory);
        if (result == VK_SUCCESS)
            VKT_KEEP(DEVICE_MEMORY, memory);
    }
    if (result == VK_SUCCESS)
        vkt_skip("the driver grants memory that it does not have");
    vkt_out_result("refused", result);
    /* The device goes on. */
    struct vkt_buffer after = vkt_buffer(4096, 0, VKT_COHERENT);
    VkCommandBuffer command = vkt_begin();
    vkCmdFillBuffer(command, after.handle, 0, 4096, 0x0ddba11);
    vkt_finish(command);
    vkt_out_buffer("after", &after);
}

static void unsupported_image(void)
{
    VkImageFormatProperties found;
    vkt_out_result("undefined usage",
                   vkGetPhysicalDeviceImageFormatProperties(
                       vkt.physical, VK_FORMAT_R64G64B64A64_SFLOAT, VK_IMAGE_TYPE_2D,
                       VK_IMAGE_TILING_OPTIMAL, VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT, 0, &found));
    vkt_out_result("depth of colour", vkGetPhysicalDeviceImageFormatProperties(
                                          vkt.physical, VK_FORMAT_R8G8B8A8_UNORM, VK_IMAGE_TYPE_2D,
                                          VK_IMAGE_TILING_OPTIMAL,
                                          VK_IMAGE_USAGE_DEPTH_STENCIL_ATTACHMENT_BIT, 0, &found));
}

static void bad_shader(void)
{
    vkt_open();
    /* A header of SPIR-V and nothing valid behind it. */
    const uint32_t code[] = {0x07230203, 0x00010000, 0, 8, 0, 0xffffffff, 0xffffffff};
    VkShaderModuleCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
        .codeSize = sizeof(code),
        .pCode = code,
    };
    VkShaderModule module;
    VkResult result = vkCreateShaderModule(vkt.device, &info, NULL, &module);
    vkt_out_result("module", result);
    if (result != VK_SUCCESS)
        return;
    VKT_KEEP(SHADER_MODULE, module);
    VkComputePipelineCreateInfo pipeline_info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main"},
        .layout = vkt_layout(VK_NULL_HANDLE, 0),
    };
    VkPipeline pipeline = VK_NULL_HANDLE;
    result =
        vkCreateComputePipelines(vkt.device, VK_NULL_HANDLE, 1, &pipeline_info, NULL, &pipeline);
    vkt_out_result("pipeline", result);
    VKT_EXPECT(result != VK_SUCCESS && pipeline == VK_NULL_HANDLE);
}

static void missing_entry(void)
{
    vkt_open();
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = vkt_shader("fill.comp"),
                  .pName = "no_such_entry"},
        .layout = vkt_layout(vkt_set_layout("s", 0), 8),
    };
    VkPipeline pipeline = VK_NULL_HANDLE;
    vkt_out_result("pipeline",
                   vkCreateComputePipelines(vkt.device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline));
}

static const struct vkt_case cases[] = {
    {"missing_feature", missing_feature, NULL},
    {"missing_extension", missing_extension, NULL},
    {"missing_layer", missing_layer, NULL},
    {"out_of_memory", out_of_memory, NULL},
    {"unsupported_image", unsupported_image, NULL},
    {"bad_shader", bad_shader, "a shader that is no SPIR-V"},
    {"missing_entry", missing_entry, "an entry point that the shader lacks"},
};

VKT_MAIN(cases)
