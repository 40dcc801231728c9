/* See kit.h. */
#include "kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- talk ---- */

void kit_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

void kit_await(const char *line)
{
    char text[64];
    if (!fgets(text, sizeof(text), stdin))
        vkt_fail("the test has gone; waited for '%s'", line);
    text[strcspn(text, "\n")] = '\0';
    if (strcmp(text, line) != 0)
        vkt_fail("the test says '%s', not '%s'", text, line);
}

int kit_main(int argc, char **argv, const struct kit_case *cases, size_t count)
{
    for (size_t i = 0; argc == 2 && i < count; i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: %s CASE\n", argv[0]);
    return 2;
}

/* ---- instances and devices ---- */

VkInstance kit_instance(void)
{
    VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                             .pApplicationName = getenv("KIT_NAME"),
                             .apiVersion = VK_API_VERSION_1_3};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &app};
    VkInstance instance;
    VKT(vkCreateInstance(&info, NULL, &instance));
    return instance;
}

uint32_t kit_devices(VkInstance instance, VkPhysicalDevice out[KIT_DEVICES_MAX])
{
    uint32_t count = KIT_DEVICES_MAX;
    VkResult result = vkEnumeratePhysicalDevices(instance, &count, out);
    if (result == VK_ERROR_INITIALIZATION_FAILED) /* older loaders say so of none */
        return 0;
    VKT(result);
    return count;
}

uint32_t kit_coherent_type(VkPhysicalDevice physical)
{
    const VkMemoryPropertyFlags wanted =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    VkPhysicalDeviceMemoryProperties memory;
    vkGetPhysicalDeviceMemoryProperties(physical, &memory);
    for (uint32_t i = 0; i < memory.memoryTypeCount; i++) {
        if ((memory.memoryTypes[i].propertyFlags & wanted) == wanted)
            return i;
    }
    vkt_fail("no memory is visible and coherent");
}

VkResult kit_try_device(VkPhysicalDevice physical, VkDevice *out)
{
    const float priority = 1.0f;
    VkPhysicalDeviceTimelineSemaphoreFeatures timelines = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES,
        .timelineSemaphore = VK_TRUE};
    /* Family 0 can compute on all drivers that these programs run on. */
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = &timelines,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue};
    return vkCreateDevice(physical, &info, NULL, out);
}

VkCommandBuffer kit_command(const struct gpu *gpu)
{
    VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandPool = gpu->pool,
                                        .commandBufferCount = 1};
    VkCommandBuffer commands;
    VKT(vkAllocateCommandBuffers(gpu->device, &info, &commands));
    return commands;
}

void kit_open(struct gpu *gpu, VkPhysicalDevice physical)
{
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT};
    VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    *gpu = (struct gpu){.physical = physical};
    VKT(kit_try_device(physical, &gpu->device));
    vkGetDeviceQueue(gpu->device, 0, 0, &gpu->queue);
    VKT(vkCreateCommandPool(gpu->device, &pool, NULL, &gpu->pool));
    VKT(vkCreateFence(gpu->device, &fence, NULL, &gpu->fence));
    kit_buffer_open(gpu, &gpu->out, KIT_BYTES);
    gpu->commands = kit_command(gpu);
}

void kit_close(struct gpu *gpu)
{
    kit_buffer_close(gpu, &gpu->out);
    vkDestroyFence(gpu->device, gpu->fence, NULL);
    vkDestroyCommandPool(gpu->device, gpu->pool, NULL);
    vkDestroyDevice(gpu->device, NULL);
}

VkInstance kit_open_first(struct gpu *gpu)
{
    VkPhysicalDevice devices[KIT_DEVICES_MAX];
    VkInstance instance = kit_instance();
    VKT_EXPECT(kit_devices(instance, devices) > 0);
    kit_open(gpu, devices[0]);
    return instance;
}

void kit_close_all(struct gpu *gpu, VkInstance instance)
{
    kit_close(gpu);
    vkDestroyInstance(instance, NULL);
}

void kit_buffer_open(const struct gpu *gpu, struct buffer *buffer, VkDeviceSize size)
{
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = size,
                               .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkMemoryRequirements needs;
    buffer->size = size;
    VKT(vkCreateBuffer(gpu->device, &info, NULL, &buffer->handle));
    vkGetBufferMemoryRequirements(gpu->device, buffer->handle, &needs);
    VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                   .allocationSize = needs.size,
                                   .memoryTypeIndex = kit_coherent_type(gpu->physical)};
    VKT(vkAllocateMemory(gpu->device, &memory, NULL, &buffer->memory));
    VKT(vkBindBufferMemory(gpu->device, buffer->handle, buffer->memory, 0));
    VKT(vkMapMemory(gpu->device, buffer->memory, 0, VK_WHOLE_SIZE, 0, (void **)&buffer->map));
}

void kit_buffer_close(const struct gpu *gpu, struct buffer *buffer)
{
    vkUnmapMemory(gpu->device, buffer->memory);
    vkDestroyBuffer(gpu->device, buffer->handle, NULL);
    vkFreeMemory(gpu->device, buffer->memory, NULL);
}

VkSemaphore kit_timeline(const struct gpu *gpu)
{
    VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                      .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    VkSemaphore semaphore;
    VKT(vkCreateSemaphore(gpu->device, &info, NULL, &semaphore));
    return semaphore;
}

/* ---- work ---- */

VkResult kit_record_fill(VkCommandBuffer commands, const struct buffer *buffer, uint32_t value)
{
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkResult result = vkBeginCommandBuffer(commands, &begin);
    if (result != VK_SUCCESS)
        return result;
    vkCmdFillBuffer(commands, buffer->handle, 0, VK_WHOLE_SIZE, value);
    vkt_barrier(commands);
    return vkEndCommandBuffer(commands);
}

VkResult kit_submit(const struct gpu *gpu, VkCommandBuffer commands, VkFence fence)
{
    VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .commandBufferCount = commands != VK_NULL_HANDLE,
                           .pCommandBuffers = &commands};
    return vkQueueSubmit(gpu->queue, 1, &submit, fence);
}

VkResult kit_submit_after(const struct gpu *gpu, VkSemaphore timeline, uint64_t value,
                          VkFence fence)
{
    const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    const uint64_t after = value + 1;
    VkTimelineSemaphoreSubmitInfo values = {.sType =
                                                VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                            .waitSemaphoreValueCount = 1,
                                            .pWaitSemaphoreValues = &value,
                                            .signalSemaphoreValueCount = 1,
                                            .pSignalSemaphoreValues = &after};
    VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .pNext = &values,
                           .waitSemaphoreCount = 1,
                           .pWaitSemaphores = &timeline,
                           .pWaitDstStageMask = &stage,
                           .signalSemaphoreCount = 1,
                           .pSignalSemaphores = &timeline};
    return vkQueueSubmit(gpu->queue, 1, &submit, fence);
}

VkResult kit_work(struct gpu *gpu, uint32_t value)
{
    VkResult result = kit_record_fill(gpu->commands, &gpu->out, value);
    if (result == VK_SUCCESS)
        result = kit_submit(gpu, gpu->commands, gpu->fence);
    if (result == VK_SUCCESS)
        result = vkWaitForFences(gpu->device, 1, &gpu->fence, VK_TRUE, UINT64_MAX);
    if (result != VK_SUCCESS)
        return result;
    for (uint32_t i = 0; i < KIT_WORDS; i++) {
        if (gpu->out.map[i] != value)
            vkt_fail("word %u is %08x, not %08x", i, gpu->out.map[i], value);
    }
    return vkResetFences(gpu->device, 1, &gpu->fence);
}

void kit_must_work(struct gpu *gpu, uint32_t value)
{
    vkt_check(kit_work(gpu, value), "kit_work");
}

void kit_check_new_instance(uint32_t value)
{
    struct gpu gpu;
    VkInstance instance = kit_open_first(&gpu);
    kit_must_work(&gpu, value);
    kit_close_all(&gpu, instance);
}
