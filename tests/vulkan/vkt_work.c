/* vkt_work.c - memory, commands, descriptors and kernels of the Vulkan differential programs. */
#include "vkt.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- memory and buffers ----------------------------------------------------------------------- */

static bool find_type(uint32_t allowed, VkMemoryPropertyFlags with, VkMemoryPropertyFlags without,
                      uint32_t *type_out)
{
    for (uint32_t i = 0; i < vkt.memory.memoryTypeCount; i++) {
        VkMemoryPropertyFlags flags = vkt.memory.memoryTypes[i].propertyFlags;
        if ((allowed & (1u << i)) && (flags & with) == with && !(flags & without)) {
            *type_out = i;
            return true;
        }
    }
    return false;
}

uint32_t vkt_memory_type(uint32_t allowed, enum vkt_memory kind)
{
    const VkMemoryPropertyFlags visible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT,
                                coherent = VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                                cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
                                local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                                odd = VK_MEMORY_PROPERTY_PROTECTED_BIT |
                                      VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT |
                                      VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD;
    uint32_t type = 0;
    if (kind == VKT_DEVICE) {
        if (!find_type(allowed, local, visible | odd, &type) &&
            !find_type(allowed, local, odd, &type))
            vkt_skip("no device-local memory");
        return type;
    }
    if (kind == VKT_CACHED && (find_type(allowed, visible | cached, coherent | odd, &type) ||
                               find_type(allowed, visible | cached, odd, &type)))
        return type;
    if (!find_type(allowed, visible | coherent, odd, &type))
        vkt_skip("no coherent memory");
    return type;
}

VkDeviceMemory vkt_allocate(VkMemoryRequirements needs, enum vkt_memory kind, const void *next)
{
    VkMemoryAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .pNext = next,
        .allocationSize = needs.size,
        .memoryTypeIndex = vkt_memory_type(needs.memoryTypeBits, kind),
    };
    VkDeviceMemory memory;
    VKT(vkAllocateMemory(vkt.device, &info, NULL, &memory));
    VKT_KEEP(DEVICE_MEMORY, memory);
    return memory;
}

VkBuffer vkt_buffer_only(VkDeviceSize size, VkBufferUsageFlags usage)
{
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = size,
        .usage = usage | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
        .sharingMode = VK_SHARING_MODE_EXCLUSIVE,
    };
    VkBuffer buffer;
    VKT(vkCreateBuffer(vkt.device, &info, NULL, &buffer));
    VKT_KEEP(BUFFER, buffer);
    return buffer;
}

struct vkt_buffer vkt_buffer(VkDeviceSize size, VkBufferUsageFlags usage, enum vkt_memory kind)
{
    struct vkt_buffer buffer = {.handle = vkt_buffer_only(size, usage), .size = size};
    VkMemoryAllocateFlagsInfo address = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
        .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT,
    };
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(vkt.device, buffer.handle, &needs);
    bool addressed = usage & VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    buffer.memory = vkt_allocate(needs, kind, addressed ? &address : NULL);
    VKT(vkBindBufferMemory(vkt.device, buffer.handle, buffer.memory, 0));
    if (kind != VKT_DEVICE) {
        VKT(vkMapMemory(vkt.device, buffer.memory, 0, VK_WHOLE_SIZE, 0, &buffer.map));
        memset(buffer.map, 0, size);
        vkt_flush(&buffer);
    }
    return buffer;
}

struct vkt_buffer vkt_storage(VkDeviceSize size, const void *bytes)
{
    struct vkt_buffer buffer = vkt_buffer(size, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, VKT_COHERENT);
    if (bytes)
        memcpy(buffer.map, bytes, size);
    return buffer;
}

static VkMappedMemoryRange whole(const struct vkt_buffer *buffer)
{
    return (VkMappedMemoryRange){
        .sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE,
        .memory = buffer->memory,
        .size = VK_WHOLE_SIZE,
    };
}

void vkt_flush(const struct vkt_buffer *buffer)
{
    VkMappedMemoryRange range = whole(buffer);
    VKT(vkFlushMappedMemoryRanges(vkt.device, 1, &range));
}

void vkt_invalidate(const struct vkt_buffer *buffer)
{
    VkMappedMemoryRange range = whole(buffer);
    VKT(vkInvalidateMappedMemoryRanges(vkt.device, 1, &range));
}

void vkt_out_buffer(const char *name, const struct vkt_buffer *buffer)
{
    struct vkt_buffer staging = *buffer;
    if (!buffer->map) {
        staging = vkt_buffer(buffer->size, 0, VKT_COHERENT);
        VkCommandBuffer command = vkt_begin();
        vkt_barrier(command);
        vkt_copy(command, buffer, &staging);
        vkt_finish(command);
    }
    vkt_out(name, staging.map, staging.size);
}

void vkt_pattern(void *words, size_t bytes, uint32_t seed)
{
    uint32_t *out = words;
    for (uint32_t i = 0; i < bytes / sizeof(*out); i++) {
        uint32_t x = (i + seed * 0x9e3779b9u) * 0x85ebca6bu;
        out[i] = (x ^ x >> 13) * 0xc2b2ae35u;
    }
}

/* --- commands --------------------------------------------------------------------------------- */

VkCommandPool vkt_command_pool(uint32_t family, VkCommandPoolCreateFlags flags)
{
    VkCommandPoolCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = flags,
        .queueFamilyIndex = family,
    };
    VkCommandPool pool;
    VKT(vkCreateCommandPool(vkt.device, &info, NULL, &pool));
    VKT_KEEP(COMMAND_POOL, pool);
    return pool;
}

VkCommandBuffer vkt_command(VkCommandPool pool, VkCommandBufferLevel level)
{
    VkCommandBufferAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = pool,
        .level = level,
        .commandBufferCount = 1,
    };
    VkCommandBuffer command;
    VKT(vkAllocateCommandBuffers(vkt.device, &info, &command));
    return command;
}

void vkt_record(VkCommandBuffer command, VkCommandBufferUsageFlags flags)
{
    VkCommandBufferBeginInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = flags,
    };
    VKT(vkBeginCommandBuffer(command, &info));
}

VkCommandBuffer vkt_begin(void)
{
    VkCommandBuffer command = vkt_command(vkt.pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY);
    vkt_record(command, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
    return command;
}

void vkt_submit(VkCommandBuffer command, VkFence fence)
{
    VkSubmitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = command != NULL,
        .pCommandBuffers = &command,
    };
    VKT(vkQueueSubmit(vkt.queue, 1, &info, fence));
}

void vkt_wait(VkFence fence)
{
    VKT(vkWaitForFences(vkt.device, 1, &fence, VK_TRUE, VKT_WAIT_NS));
}

void vkt_finish(VkCommandBuffer command)
{
    vkt_barrier(command);
    VKT(vkEndCommandBuffer(command));
    VkFence fence = vkt_fence(false);
    vkt_submit(command, fence);
    vkt_wait(fence);
    vkFreeCommandBuffers(vkt.device, vkt.pool, 1, &command);
}

VkFence vkt_fence(bool signaled)
{
    VkFenceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO,
        .flags = signaled ? VK_FENCE_CREATE_SIGNALED_BIT : 0,
    };
    VkFence fence;
    VKT(vkCreateFence(vkt.device, &info, NULL, &fence));
    VKT_KEEP(FENCE, fence);
    return fence;
}

static VkSemaphore make_semaphore(const void *next)
{
    VkSemaphoreCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
        .pNext = next,
    };
    VkSemaphore semaphore;
    VKT(vkCreateSemaphore(vkt.device, &info, NULL, &semaphore));
    VKT_KEEP(SEMAPHORE, semaphore);
    return semaphore;
}

VkSemaphore vkt_semaphore(void)
{
    return make_semaphore(NULL);
}

VkSemaphore vkt_timeline(uint64_t value)
{
    VkSemaphoreTypeCreateInfo type = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
        .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
        .initialValue = value,
    };
    return make_semaphore(&type);
}

void vkt_barrier(VkCommandBuffer command)
{
    VkMemoryBarrier all = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT,
    };
    const VkPipelineStageFlags stages =
        VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT;
    vkCmdPipelineBarrier(command, stages, stages, 0, 1, &all, 0, NULL, 0, NULL);
}

void vkt_copy(VkCommandBuffer command, const struct vkt_buffer *from, const struct vkt_buffer *to)
{
    VkBufferCopy region = {.size = from->size < to->size ? from->size : to->size};
    vkCmdCopyBuffer(command, from->handle, to->handle, 1, &region);
}

/* --- shaders and descriptors ------------------------------------------------------------------ */

VkShaderModuleCreateInfo vkt_code(const char *name)
{
    uint32_t *code = malloc(VKT_SHADER_BYTES_MAX);
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (!code || length < 0)
        vkt_fail("/proc/self/exe: %m");
    path[length] = '\0';
    size_t folder = (size_t)(strrchr(path, '/') - path);
    snprintf(path + folder, sizeof(path) - folder, "/shaders/%s.spv", name);
    FILE *file = fopen(path, "rb");
    if (!file)
        vkt_fail("%s: %m", path);
    size_t bytes = fread(code, 1, VKT_SHADER_BYTES_MAX, file);
    fclose(file);
    return (VkShaderModuleCreateInfo){
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
        .codeSize = bytes,
        .pCode = code,
    };
}

VkShaderModule vkt_shader(const char *name)
{
    VkShaderModuleCreateInfo info = vkt_code(name);
    VkShaderModule module;
    VKT(vkCreateShaderModule(vkt.device, &info, NULL, &module));
    VKT_KEEP(SHADER_MODULE, module);
    free((void *)info.pCode);
    return module;
}

VkDescriptorType vkt_type(char letter)
{
    switch (letter) {
    case 's':
        return VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    case 'S':
        return VK_DESCRIPTOR_TYPE_STORAGE_BUFFER_DYNAMIC;
    case 'u':
        return VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER;
    case 'U':
        return VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER_DYNAMIC;
    case 't':
        return VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER;
    case 'T':
        return VK_DESCRIPTOR_TYPE_STORAGE_TEXEL_BUFFER;
    case 'i':
        return VK_DESCRIPTOR_TYPE_STORAGE_IMAGE;
    case 'c':
        return VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER;
    case 'd':
        return VK_DESCRIPTOR_TYPE_SAMPLED_IMAGE;
    case 'p':
        return VK_DESCRIPTOR_TYPE_SAMPLER;
    case 'a':
        return VK_DESCRIPTOR_TYPE_INPUT_ATTACHMENT;
    case 'r':
        return VK_DESCRIPTOR_TYPE_ACCELERATION_STRUCTURE_KHR;
    default:
        vkt_fail("no descriptor type '%c'", letter);
    }
}

VkDescriptorSetLayout vkt_set_layout(const char *types, VkDescriptorSetLayoutCreateFlags flags)
{
    VkDescriptorSetLayoutBinding bindings[VKT_BINDINGS_MAX];
    uint32_t count = 0;
    for (; types[count]; count++) {
        bool attachment = types[count] == 'a'; /* legal in one stage only */
        bindings[count] = (VkDescriptorSetLayoutBinding){
            .binding = count,
            .descriptorType = vkt_type(types[count]),
            .descriptorCount = 1,
            .stageFlags = attachment ? VK_SHADER_STAGE_FRAGMENT_BIT : VK_SHADER_STAGE_ALL,
        };
    }
    VkDescriptorSetLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .flags = flags,
        .bindingCount = count,
        .pBindings = bindings,
    };
    VkDescriptorSetLayout layout;
    VKT(vkCreateDescriptorSetLayout(vkt.device, &info, NULL, &layout));
    VKT_KEEP(DESCRIPTOR_SET_LAYOUT, layout);
    return layout;
}

VkDescriptorSet vkt_set(VkDescriptorSetLayout layout, const char *types)
{
    VkDescriptorPoolSize sizes[VKT_BINDINGS_MAX];
    uint32_t count = 0;
    for (; types[count]; count++)
        sizes[count] = (VkDescriptorPoolSize){vkt_type(types[count]), 1};
    VkDescriptorPoolCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
        .maxSets = 1,
        .poolSizeCount = count,
        .pPoolSizes = sizes,
    };
    VkDescriptorPool pool;
    VKT(vkCreateDescriptorPool(vkt.device, &info, NULL, &pool));
    VKT_KEEP(DESCRIPTOR_POOL, pool);
    VkDescriptorSetAllocateInfo allocate = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
        .descriptorPool = pool,
        .descriptorSetCount = 1,
        .pSetLayouts = &layout,
    };
    VkDescriptorSet set;
    VKT(vkAllocateDescriptorSets(vkt.device, &allocate, &set));
    return set;
}

VkPipelineLayout vkt_layout(VkDescriptorSetLayout set_layout, uint32_t push_bytes)
{
    VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_ALL, .size = push_bytes};
    VkPipelineLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .setLayoutCount = set_layout != VK_NULL_HANDLE,
        .pSetLayouts = &set_layout,
        .pushConstantRangeCount = push_bytes > 0,
        .pPushConstantRanges = &range,
    };
    VkPipelineLayout layout;
    VKT(vkCreatePipelineLayout(vkt.device, &info, NULL, &layout));
    VKT_KEEP(PIPELINE_LAYOUT, layout);
    return layout;
}

static void write_one(VkWriteDescriptorSet write, VkDescriptorSet set, uint32_t binding,
                      VkDescriptorType type)
{
    write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
    write.dstSet = set;
    write.dstBinding = binding;
    write.descriptorCount = 1;
    write.descriptorType = type;
    vkUpdateDescriptorSets(vkt.device, 1, &write, 0, NULL);
}

void vkt_write_buffer(VkDescriptorSet set, uint32_t binding, VkDescriptorType type, VkBuffer buffer,
                      VkDeviceSize offset, VkDeviceSize range)
{
    VkDescriptorBufferInfo info = {buffer, offset, range};
    write_one((VkWriteDescriptorSet){.pBufferInfo = &info}, set, binding, type);
}

void vkt_write_image(VkDescriptorSet set, uint32_t binding, VkDescriptorType type,
                     VkSampler sampler, VkImageView view, VkImageLayout layout)
{
    VkDescriptorImageInfo info = {sampler, view, layout};
    write_one((VkWriteDescriptorSet){.pImageInfo = &info}, set, binding, type);
}

void vkt_write_texel(VkDescriptorSet set, uint32_t binding, VkDescriptorType type,
                     VkBufferView view)
{
    write_one((VkWriteDescriptorSet){.pTexelBufferView = &view}, set, binding, type);
}

/* --- kernels ---------------------------------------------------------------------------------- */

VkPipeline vkt_compute_pipeline(const char *shader, VkPipelineLayout layout,
                                const VkSpecializationInfo *constants)
{
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage =
            {
                .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .module = vkt_shader(shader),
                .pName = "main",
                .pSpecializationInfo = constants,
            },
        .layout = layout,
    };
    VkPipeline pipeline;
    VKT(vkCreateComputePipelines(vkt.device, VK_NULL_HANDLE, 1, &info, NULL, &pipeline));
    VKT_KEEP(PIPELINE, pipeline);
    return pipeline;
}

struct vkt_kernel vkt_kernel(const char *shader, const char *types, uint32_t push_bytes)
{
    struct vkt_kernel kernel = {.push_bytes = push_bytes};
    if (types[0]) {
        kernel.set_layout = vkt_set_layout(types, 0);
        kernel.set = vkt_set(kernel.set_layout, types);
    }
    kernel.layout = vkt_layout(kernel.set_layout, push_bytes);
    kernel.pipeline = vkt_compute_pipeline(shader, kernel.layout, NULL);
    return kernel;
}

void vkt_kernel_bind(const struct vkt_kernel *kernel, uint32_t binding,
                     const struct vkt_buffer *buffer)
{
    vkt_write_buffer(kernel->set, binding, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, buffer->handle, 0,
                     VK_WHOLE_SIZE);
}

void vkt_kernel_record(VkCommandBuffer command, const struct vkt_kernel *kernel, const void *push,
                       uint32_t groups)
{
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel->pipeline);
    if (kernel->set)
        vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel->layout, 0, 1,
                                &kernel->set, 0, NULL);
    if (push)
        vkCmdPushConstants(command, kernel->layout, VK_SHADER_STAGE_ALL, 0, kernel->push_bytes,
                           push);
    vkCmdDispatch(command, groups, 1, 1);
    vkt_barrier(command);
}

void vkt_kernel_run(const struct vkt_kernel *kernel, const void *push, uint32_t groups)
{
    VkCommandBuffer command = vkt_begin();
    vkt_kernel_record(command, kernel, push, groups);
    vkt_finish(command);
}
