/* Ids and requests of fuzzed streams; see venus_script.h. */
#include "venus_script.h"

const uint32_t script_types[] = {
    VK_OBJECT_TYPE_SEMAPHORE,
    VK_OBJECT_TYPE_FENCE,
    VK_OBJECT_TYPE_BUFFER,
    VK_OBJECT_TYPE_IMAGE,
    VK_OBJECT_TYPE_EVENT,
    VK_OBJECT_TYPE_QUERY_POOL,
    VK_OBJECT_TYPE_BUFFER_VIEW,
    VK_OBJECT_TYPE_IMAGE_VIEW,
    VK_OBJECT_TYPE_SHADER_MODULE,
    VK_OBJECT_TYPE_PIPELINE_CACHE,
    VK_OBJECT_TYPE_PIPELINE_LAYOUT,
    VK_OBJECT_TYPE_RENDER_PASS,
    VK_OBJECT_TYPE_PIPELINE,
    VK_OBJECT_TYPE_DESCRIPTOR_SET_LAYOUT,
    VK_OBJECT_TYPE_SAMPLER,
    VK_OBJECT_TYPE_DESCRIPTOR_POOL,
    VK_OBJECT_TYPE_DESCRIPTOR_SET,
    VK_OBJECT_TYPE_FRAMEBUFFER,
    VK_OBJECT_TYPE_COMMAND_POOL,
    VK_OBJECT_TYPE_COMMAND_BUFFER,
    VK_OBJECT_TYPE_SAMPLER_YCBCR_CONVERSION,
    VK_OBJECT_TYPE_ACCELERATION_STRUCTURE_KHR,
    VK_OBJECT_TYPE_ACCELERATION_STRUCTURE_NV,
    VK_OBJECT_TYPE_MICROMAP_EXT,
    VK_OBJECT_TYPE_VALIDATION_CACHE_EXT,
    VK_OBJECT_TYPE_INDIRECT_COMMANDS_LAYOUT_NV,
};
const size_t script_type_count = ARRAY_LEN(script_types);

static struct vn_object object(uint32_t type, uint32_t number)
{
    return (struct vn_object){.id = script_id(type, number), .type = type};
}

void script_create_device(struct wire_enc *e, uint32_t physical, uint32_t device)
{
    static const float priorities[SCRIPT_QUEUES] = {1, 0.5f};
    static const char *const extensions[] = {VK_KHR_MAINTENANCE_1_EXTENSION_NAME,
                                             VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME};
    struct vn_object objects[] = {object(VK_OBJECT_TYPE_PHYSICAL_DEVICE, physical),
                                  object(VK_OBJECT_TYPE_DEVICE, device)};
    VkDevice out = (VkDevice)(void *)&objects[1];
    VkDeviceQueueCreateInfo queues[] = {
        {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
         .queueCount = SCRIPT_QUEUES,
         .pQueuePriorities = priorities},
        {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
         .flags = VK_DEVICE_QUEUE_CREATE_PROTECTED_BIT,
         .queueFamilyIndex = 1,
         .queueCount = SCRIPT_QUEUES,
         .pQueuePriorities = priorities},
    };
    VkPhysicalDeviceVulkan12Features features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .pNext = device % 2 ? &features : NULL,
        .queueCreateInfoCount = ARRAY_LEN(queues),
        .pQueueCreateInfos = queues,
        .enabledExtensionCount = device % 3,
        .ppEnabledExtensionNames = extensions,
    };
    vn_enc_cmd_vkCreateDevice(e, (VkPhysicalDevice)(void *)&objects[0], &info, NULL, &out);
}

void script_get_queue(struct wire_enc *e, uint32_t device, uint32_t index, uint32_t queue)
{
    struct vn_object objects[] = {object(VK_OBJECT_TYPE_DEVICE, device),
                                  object(VK_OBJECT_TYPE_QUEUE, queue)};
    VkQueue out = (VkQueue)(void *)&objects[1];
    vn_enc_cmd_vkGetDeviceQueue(e, (VkDevice)(void *)&objects[0], 0, index, &out);
}

void script_get_queue2(struct wire_enc *e, uint32_t device, uint32_t index, uint32_t queue)
{
    struct vn_object objects[] = {object(VK_OBJECT_TYPE_DEVICE, device),
                                  object(VK_OBJECT_TYPE_QUEUE, queue)};
    VkDeviceQueueInfo2 info = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_INFO_2,
                               .flags = VK_DEVICE_QUEUE_CREATE_PROTECTED_BIT,
                               .queueFamilyIndex = 1,
                               .queueIndex = index};
    VkQueue out = (VkQueue)(void *)&objects[1];
    vn_enc_cmd_vkGetDeviceQueue2(e, (VkDevice)(void *)&objects[0], &info, &out);
}

void script_allocate(struct wire_enc *e, uint32_t device, uint32_t memory, uint64_t bytes,
                     uint32_t memory_type)
{
    struct vn_object objects[] = {object(VK_OBJECT_TYPE_DEVICE, device),
                                  object(VK_OBJECT_TYPE_DEVICE_MEMORY, memory)};
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = bytes,
                                 .memoryTypeIndex = memory_type};
    VkDeviceMemory out = (VkDeviceMemory)(void *)&objects[1];
    vn_enc_cmd_vkAllocateMemory(e, (VkDevice)(void *)&objects[0], &info, NULL, &out);
}

void script_bind_set(struct wire_enc *e, uint32_t commands, uint32_t layout, uint32_t set)
{
    struct vn_object objects[] = {object(VK_OBJECT_TYPE_COMMAND_BUFFER, commands),
                                  object(VK_OBJECT_TYPE_PIPELINE_LAYOUT, layout),
                                  object(VK_OBJECT_TYPE_DESCRIPTOR_SET, set)};
    VkDescriptorSet bound = (VkDescriptorSet)(void *)&objects[2];
    vn_enc_cmd_vkCmdBindDescriptorSets(
        e, (VkCommandBuffer)(void *)&objects[0], VK_PIPELINE_BIND_POINT_COMPUTE,
        (VkPipelineLayout)(void *)&objects[1], 0, 1, &bound, 0, NULL);
}

void script_update_set(struct wire_enc *e, uint32_t device, uint32_t set, uint32_t buffer)
{
    struct vn_object objects[] = {object(VK_OBJECT_TYPE_DEVICE, device),
                                  object(VK_OBJECT_TYPE_DESCRIPTOR_SET, set),
                                  object(VK_OBJECT_TYPE_BUFFER, buffer)};
    VkDescriptorBufferInfo info = {(VkBuffer)(void *)&objects[2], 0, VK_WHOLE_SIZE};
    VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                  .dstSet = (VkDescriptorSet)(void *)&objects[1],
                                  .descriptorCount = 1,
                                  .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                  .pBufferInfo = &info};
    vn_enc_cmd_vkUpdateDescriptorSets(e, (VkDevice)(void *)&objects[0], 1, &write, 0, NULL);
}
