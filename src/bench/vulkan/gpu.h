/* bench/vulkan/gpu.h - a Vulkan device with little around it, for the job processes of
 * bench-vulkan.
 *
 * The loader is opened at run time and finds its drivers by the environment, so a process that sets
 * that first decides which driver it measures.
 *
 * Trust: the driver is this machine's or our own.  Threads: one.
 * Lifetime: open/close, in a process that ends soon after: what a failure leaves behind is not
 * taken apart.
 * Errors: false, with the call and its VkResult in why; nothing works afterwards. */
#ifndef HAWSER_BENCH_VULKAN_GPU_H
#define HAWSER_BENCH_VULKAN_GPU_H

#include "base/attr.h"
#include "base/driver_counts.h"

#include <stdbool.h>
#include <stdint.h>

#include <vulkan/vulkan_core.h>

#define BENCH_GPU_INSTANCE_FUNCTIONS(X)                                                            \
    X(vkDestroyInstance)                                                                           \
    X(vkEnumeratePhysicalDevices)                                                                  \
    X(vkGetPhysicalDeviceProperties)                                                               \
    X(vkGetPhysicalDeviceMemoryProperties)                                                         \
    X(vkGetPhysicalDeviceQueueFamilyProperties)                                                    \
    X(vkCreateDevice)                                                                              \
    X(vkGetDeviceProcAddr)

#define BENCH_GPU_DEVICE_FUNCTIONS(X)                                                              \
    X(vkDestroyDevice)                                                                             \
    X(vkDestroyCommandPool)                                                                        \
    X(vkDestroyFence)                                                                              \
    X(vkDestroyDescriptorPool)                                                                     \
    X(vkDestroyDescriptorSetLayout)                                                                \
    X(vkDestroyPipelineLayout)                                                                     \
    X(vkDestroyPipeline)                                                                           \
    X(vkDestroyShaderModule)                                                                       \
    X(vkGetDeviceQueue)                                                                            \
    X(vkCreateCommandPool)                                                                         \
    X(vkAllocateCommandBuffers)                                                                    \
    X(vkBeginCommandBuffer)                                                                        \
    X(vkEndCommandBuffer)                                                                          \
    X(vkCreateFence)                                                                               \
    X(vkResetFences)                                                                               \
    X(vkWaitForFences)                                                                             \
    X(vkGetFenceStatus)                                                                            \
    X(vkQueueSubmit)                                                                               \
    X(vkDeviceWaitIdle)                                                                            \
    X(vkCreateBuffer)                                                                              \
    X(vkDestroyBuffer)                                                                             \
    X(vkGetBufferMemoryRequirements)                                                               \
    X(vkAllocateMemory)                                                                            \
    X(vkFreeMemory)                                                                                \
    X(vkBindBufferMemory)                                                                          \
    X(vkMapMemory)                                                                                 \
    X(vkCreateDescriptorSetLayout)                                                                 \
    X(vkCreatePipelineLayout)                                                                      \
    X(vkCreateShaderModule)                                                                        \
    X(vkCreateComputePipelines)                                                                    \
    X(vkCreateDescriptorPool)                                                                      \
    X(vkAllocateDescriptorSets)                                                                    \
    X(vkUpdateDescriptorSets)                                                                      \
    X(vkCmdBindPipeline)                                                                           \
    X(vkCmdBindDescriptorSets)                                                                     \
    X(vkCmdPushConstants)                                                                          \
    X(vkCmdDispatch)                                                                               \
    X(vkCmdPipelineBarrier)                                                                        \
    X(vkCmdCopyBuffer)                                                                             \
    X(vkCmdFillBuffer)

enum { BENCH_GPU_WHY_CHARS = 160, BENCH_GPU_DEVICES_MAX = 16 };

struct bench_buffer {
    VkBuffer handle;
    VkDeviceMemory memory;
    uint8_t *map; /* coherent; NULL: the device's own */
    uint64_t bytes;
};

struct bench_gpu {
    VkInstance instance;
    VkPhysicalDevice physical;
    VkPhysicalDeviceMemoryProperties memory;
    char name[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
    VkDevice device;
    VkQueue queue;
    VkCommandPool pool;
    VkCommandBuffer commands;
    VkFence fence;
    VkShaderModule module, busy_module;
    VkDescriptorSetLayout set_layout;
    VkDescriptorPool sets;
    VkPipelineLayout layout;
    VkPipeline pipeline, busy_pipeline;
    VkDescriptorSet set;
    struct bench_buffer in, out; /* of the pipelines: the device's own, and mapped */
    hw_driver_counts_fn *counts; /* NULL where the driver is not ours */
    char why[BENCH_GPU_WHY_CHARS];
#define X(name) PFN_##name name;
    PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
    BENCH_GPU_INSTANCE_FUNCTIONS(X)
    BENCH_GPU_DEVICE_FUNCTIONS(X)
#undef X
};

/* The index-th device that can compute, its pipelines, and in[0] = 0. */
bool bench_gpu_open(struct bench_gpu *gpu, uint32_t index) MUST_CHECK;
void bench_gpu_close(struct bench_gpu *gpu);

bool bench_gpu_buffer(struct bench_gpu *gpu, uint64_t bytes, bool mapped,
                      struct bench_buffer *out) MUST_CHECK;
/* Harmless on one that was never made. */
void bench_gpu_drop(struct bench_gpu *gpu, struct bench_buffer *buffer);

/* Whether the call succeeded; if not, why says so. */
bool bench_gpu_ok(struct bench_gpu *gpu, VkResult result, const char *call) MUST_CHECK;

bool bench_gpu_begin(struct bench_gpu *gpu) MUST_CHECK;
/* out[0] = in[0] + value, visible to the host. */
void bench_gpu_put_work(struct bench_gpu *gpu, uint32_t value);
/* out[0] = so many steps of bench_busy.comp's generator from in[0] + value, by every stripe of a
 * large device. */
void bench_gpu_put_busy(struct bench_gpu *gpu, uint32_t value, uint32_t rounds);
void bench_gpu_put_copy(struct bench_gpu *gpu, const struct bench_buffer *from,
                        const struct bench_buffer *to);
/* Ends the recording and submits it with the fence. */
bool bench_gpu_submit(struct bench_gpu *gpu) MUST_CHECK;
bool bench_gpu_wait(struct bench_gpu *gpu) MUST_CHECK;

#endif
