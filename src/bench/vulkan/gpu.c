#include "bench/vulkan/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const uint32_t shader[] =
#include "bench.spv.inc"
    ;

static const uint32_t busy_shader[] =
#include "bench_busy.spv.inc"
    ;

enum {
    OUT_BYTES = 4096,
    FAMILIES_MAX = 16,
    BUSY_GROUPS =
        1024, /* of 256 stripes each: as many stripes as the largest GPUs hold at a time */
};

struct push {
    uint32_t value, rounds;
};

bool bench_gpu_ok(struct bench_gpu *g, VkResult result, const char *call)
{
    if (result != VK_SUCCESS)
        snprintf(g->why, sizeof(g->why), "%s: VkResult %d", call, result);
    return result == VK_SUCCESS;
}

#define TRY(call, ...)                                                                             \
    do {                                                                                           \
        if (!bench_gpu_ok(g, g->call(__VA_ARGS__), #call))                                         \
            return false;                                                                          \
    } while (0)

/* ---- the device ---- */

static bool open_loader(struct bench_gpu *g)
{
    void *loader = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (loader)
        *(void **)&g->vkGetInstanceProcAddr = dlsym(loader, "vkGetInstanceProcAddr");
    if (!g->vkGetInstanceProcAddr)
        snprintf(g->why, sizeof(g->why), "no Vulkan loader (libvulkan.so.1) on this machine");
    return g->vkGetInstanceProcAddr != NULL;
}

static bool open_instance(struct bench_gpu *g)
{
    PFN_vkCreateInstance create =
        (PFN_vkCreateInstance)g->vkGetInstanceProcAddr(NULL, "vkCreateInstance");
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                             .pApplicationName = "hawser bench-vulkan",
                             .apiVersion = VK_API_VERSION_1_2};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &app};
    if (!bench_gpu_ok(g, create(&info, NULL, &g->instance), "vkCreateInstance"))
        return false;
#define X(name) g->name = (PFN_##name)g->vkGetInstanceProcAddr(g->instance, #name);
    BENCH_GPU_INSTANCE_FUNCTIONS(X)
#undef X
    return true;
}

static bool choose_device(struct bench_gpu *g, uint32_t index)
{
    VkPhysicalDevice devices[BENCH_GPU_DEVICES_MAX];
    uint32_t count = BENCH_GPU_DEVICES_MAX;
    VkResult result = g->vkEnumeratePhysicalDevices(g->instance, &count, devices);
    if (result < 0 || index >= count) {
        snprintf(g->why, sizeof(g->why), "no Vulkan device %u: there are %u (VkResult %d)", index,
                 result < 0 ? 0 : count, result);
        return false;
    }
    VkPhysicalDeviceProperties properties;
    g->physical = devices[index];
    g->vkGetPhysicalDeviceProperties(g->physical, &properties);
    g->vkGetPhysicalDeviceMemoryProperties(g->physical, &g->memory);
    memcpy(g->name, properties.deviceName, sizeof(g->name));
    return true;
}

static uint32_t compute_family(const struct bench_gpu *g)
{
    VkQueueFamilyProperties families[FAMILIES_MAX];
    uint32_t count = FAMILIES_MAX, family = 0;
    g->vkGetPhysicalDeviceQueueFamilyProperties(g->physical, &count, families);
    while (family < count && !(families[family].queueFlags & VK_QUEUE_COMPUTE_BIT))
        family++;
    return family < count ? family : 0;
}

static bool open_device(struct bench_gpu *g)
{
    const float priority = 1.0f;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueFamilyIndex = compute_family(g),
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue};
    TRY(vkCreateDevice, g->physical, &info, NULL, &g->device);
#define X(name) g->name = (PFN_##name)g->vkGetDeviceProcAddr(g->device, #name);
    BENCH_GPU_DEVICE_FUNCTIONS(X)
#undef X
    g->counts = (hw_driver_counts_fn *)g->vkGetDeviceProcAddr(g->device, HW_DRIVER_COUNTS_NAME);
    g->vkGetDeviceQueue(g->device, queue.queueFamilyIndex, 0, &g->queue);
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                    .queueFamilyIndex = queue.queueFamilyIndex};
    TRY(vkCreateCommandPool, g->device, &pool, NULL, &g->pool);
    VkCommandBufferAllocateInfo commands = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = g->pool,
        .commandBufferCount = 1,
    };
    TRY(vkAllocateCommandBuffers, g->device, &commands, &g->commands);
    VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    TRY(vkCreateFence, g->device, &fence, NULL, &g->fence);
    return true;
}

/* ---- buffers ---- */

/* A type with all of `with` and, where there is one, none of `without`; UINT32_MAX: none. */
static uint32_t memory_type(const struct bench_gpu *g, uint32_t allowed, VkMemoryPropertyFlags with,
                            VkMemoryPropertyFlags without)
{
    uint32_t second = UINT32_MAX;
    for (uint32_t i = 0; i < g->memory.memoryTypeCount; i++) {
        VkMemoryPropertyFlags flags = g->memory.memoryTypes[i].propertyFlags;
        if (!(allowed & (1u << i)) || (flags & with) != with)
            continue;
        if (!(flags & without))
            return i;
        second = second == UINT32_MAX ? i : second;
    }
    return second;
}

bool bench_gpu_buffer(struct bench_gpu *g, uint64_t bytes, bool mapped, struct bench_buffer *out)
{
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = bytes,
                               .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkMemoryRequirements needs;
    *out = (struct bench_buffer){.bytes = bytes};
    TRY(vkCreateBuffer, g->device, &info, NULL, &out->handle);
    g->vkGetBufferMemoryRequirements(g->device, out->handle, &needs);
    const VkMemoryPropertyFlags host =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    VkMemoryAllocateInfo memory = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .allocationSize = needs.size,
        .memoryTypeIndex = memory_type(g, needs.memoryTypeBits, mapped ? host : local,
                                       mapped ? local : VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT),
    };
    TRY(vkAllocateMemory, g->device, &memory, NULL, &out->memory);
    TRY(vkBindBufferMemory, g->device, out->handle, out->memory, 0);
    if (mapped)
        TRY(vkMapMemory, g->device, out->memory, 0, VK_WHOLE_SIZE, 0, (void **)&out->map);
    return true;
}

void bench_gpu_drop(struct bench_gpu *g, struct bench_buffer *buffer)
{
    if (!buffer->handle)
        return;
    g->vkDestroyBuffer(g->device, buffer->handle, NULL);
    g->vkFreeMemory(g->device, buffer->memory, NULL);
    *buffer = (struct bench_buffer){0};
}

/* ---- the pipeline ---- */

static bool make_set(struct bench_gpu *g)
{
    VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 2};
    VkDescriptorPoolCreateInfo pool_info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                            .maxSets = 1,
                                            .poolSizeCount = 1,
                                            .pPoolSizes = &size};
    TRY(vkCreateDescriptorPool, g->device, &pool_info, NULL, &g->sets);
    VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                        .descriptorPool = g->sets,
                                        .descriptorSetCount = 1,
                                        .pSetLayouts = &g->set_layout};
    TRY(vkAllocateDescriptorSets, g->device, &info, &g->set);
    VkDescriptorBufferInfo buffers[2] = {{g->in.handle, 0, VK_WHOLE_SIZE},
                                         {g->out.handle, 0, VK_WHOLE_SIZE}};
    VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                  .dstSet = g->set,
                                  .descriptorCount = 2,
                                  .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                  .pBufferInfo = buffers};
    g->vkUpdateDescriptorSets(g->device, 1, &write, 0, NULL);
    return true;
}

static bool make_layout(struct bench_gpu *g)
{
    VkDescriptorSetLayoutBinding bindings[2];
    for (uint32_t i = 0; i < 2; i++)
        bindings[i] =
            (VkDescriptorSetLayoutBinding){.binding = i,
                                           .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                           .descriptorCount = 1,
                                           .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    VkDescriptorSetLayoutCreateInfo set_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .bindingCount = 2,
        .pBindings = bindings,
    };
    TRY(vkCreateDescriptorSetLayout, g->device, &set_info, NULL, &g->set_layout);
    VkPushConstantRange push = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
                                .size = sizeof(struct push)};
    VkPipelineLayoutCreateInfo layout_info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .setLayoutCount = 1,
        .pSetLayouts = &g->set_layout,
        .pushConstantRangeCount = 1,
        .pPushConstantRanges = &push,
    };
    TRY(vkCreatePipelineLayout, g->device, &layout_info, NULL, &g->layout);
    return true;
}

static bool make_pipeline(struct bench_gpu *g, const uint32_t *code, size_t bytes,
                          VkShaderModule *module, VkPipeline *pipeline)
{
    VkShaderModuleCreateInfo module_info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = bytes, .pCode = code};
    TRY(vkCreateShaderModule, g->device, &module_info, NULL, module);
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = *module,
                  .pName = "main"},
        .layout = g->layout,
    };
    TRY(vkCreateComputePipelines, g->device, VK_NULL_HANDLE, 1, &info, NULL, pipeline);
    return true;
}

static bool make_pipelines(struct bench_gpu *g)
{
    return make_layout(g) && make_pipeline(g, shader, sizeof(shader), &g->module, &g->pipeline) &&
           make_pipeline(g, busy_shader, sizeof(busy_shader), &g->busy_module, &g->busy_pipeline) &&
           make_set(g);
}

/* ---- work ---- */

bool bench_gpu_begin(struct bench_gpu *g)
{
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                     .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    TRY(vkBeginCommandBuffer, g->commands, &info);
    return true;
}

static void put_barrier(struct bench_gpu *g)
{
    const VkPipelineStageFlags stages =
        VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT;
    VkMemoryBarrier all = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                           .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
                           .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT};
    g->vkCmdPipelineBarrier(g->commands, stages, stages, 0, 1, &all, 0, NULL, 0, NULL);
}

static void put_dispatch(struct bench_gpu *g, VkPipeline pipeline, const struct push *push,
                         uint32_t push_bytes, uint32_t groups)
{
    const VkPipelineBindPoint compute = VK_PIPELINE_BIND_POINT_COMPUTE;
    g->vkCmdBindPipeline(g->commands, compute, pipeline);
    g->vkCmdBindDescriptorSets(g->commands, compute, g->layout, 0, 1, &g->set, 0, NULL);
    g->vkCmdPushConstants(g->commands, g->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, push_bytes, push);
    g->vkCmdDispatch(g->commands, groups, 1, 1);
    put_barrier(g);
}

void bench_gpu_put_work(struct bench_gpu *g, uint32_t value)
{
    put_dispatch(g, g->pipeline, &(struct push){.value = value}, sizeof(value), 1);
}

void bench_gpu_put_busy(struct bench_gpu *g, uint32_t value, uint32_t rounds)
{
    put_dispatch(g, g->busy_pipeline, &(struct push){value, rounds}, sizeof(struct push),
                 BUSY_GROUPS);
}

void bench_gpu_put_copy(struct bench_gpu *g, const struct bench_buffer *from,
                        const struct bench_buffer *to)
{
    VkBufferCopy region = {.size = from->bytes < to->bytes ? from->bytes : to->bytes};
    g->vkCmdCopyBuffer(g->commands, from->handle, to->handle, 1, &region);
    put_barrier(g);
}

bool bench_gpu_submit(struct bench_gpu *g)
{
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .commandBufferCount = 1,
                         .pCommandBuffers = &g->commands};
    TRY(vkEndCommandBuffer, g->commands);
    TRY(vkResetFences, g->device, 1, &g->fence);
    TRY(vkQueueSubmit, g->queue, 1, &info, g->fence);
    return true;
}

bool bench_gpu_wait(struct bench_gpu *g)
{
    TRY(vkWaitForFences, g->device, 1, &g->fence, VK_TRUE, UINT64_MAX);
    return true;
}

/* ---- life ---- */

static bool clear_input(struct bench_gpu *g)
{
    if (!bench_gpu_begin(g))
        return false;
    g->vkCmdFillBuffer(g->commands, g->in.handle, 0, VK_WHOLE_SIZE, 0);
    put_barrier(g);
    return bench_gpu_submit(g) && bench_gpu_wait(g);
}

bool bench_gpu_open(struct bench_gpu *g, uint32_t index)
{
    *g = (struct bench_gpu){0};
    return open_loader(g) && open_instance(g) && choose_device(g, index) && open_device(g) &&
           bench_gpu_buffer(g, OUT_BYTES, false, &g->in) &&
           bench_gpu_buffer(g, OUT_BYTES, true, &g->out) && make_pipelines(g) && clear_input(g);
}

void bench_gpu_close(struct bench_gpu *g)
{
    (void)g->vkDeviceWaitIdle(g->device);
    bench_gpu_drop(g, &g->in);
    bench_gpu_drop(g, &g->out);
    g->vkDestroyPipeline(g->device, g->pipeline, NULL);
    g->vkDestroyPipeline(g->device, g->busy_pipeline, NULL);
    g->vkDestroyPipelineLayout(g->device, g->layout, NULL);
    g->vkDestroyShaderModule(g->device, g->module, NULL);
    g->vkDestroyShaderModule(g->device, g->busy_module, NULL);
    g->vkDestroyDescriptorPool(g->device, g->sets, NULL);
    g->vkDestroyDescriptorSetLayout(g->device, g->set_layout, NULL);
    g->vkDestroyFence(g->device, g->fence, NULL);
    g->vkDestroyCommandPool(g->device, g->pool, NULL);
    g->vkDestroyDevice(g->device, NULL);
    g->vkDestroyInstance(g->instance, NULL);
}
