/* llm/vulkan/device.h - private to src/llm: one Vulkan device, its queue, and two submissions at
 * most.
 *
 * Needs Vulkan 1.2 with buffer device addresses; uses integer dot products where the device has
 * them. The loader is opened at run time.  Among usable devices discrete ones come first.
 *
 * Trust: the driver; its limits are kept.
 * Threads: one at a time.  Lifetime: open/close; destroy what was made of it before. */
#ifndef HAWSER_LLM_VULKAN_DEVICE_H
#define HAWSER_LLM_VULKAN_DEVICE_H

#include "base/attr.h"
#include "base/driver_counts.h"

#include <stdbool.h>
#include <stdint.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#define LLM_VK_INSTANCE_CALLS(X)                                                                   \
    X(DestroyInstance)                                                                             \
    X(EnumeratePhysicalDevices)                                                                    \
    X(GetPhysicalDeviceProperties)                                                                 \
    X(GetPhysicalDeviceProperties2)                                                                \
    X(GetPhysicalDeviceFeatures2)                                                                  \
    X(GetPhysicalDeviceMemoryProperties)                                                           \
    X(GetPhysicalDeviceQueueFamilyProperties)                                                      \
    X(CreateDevice)                                                                                \
    X(GetDeviceProcAddr)

#define LLM_VK_DEVICE_CALLS(X)                                                                     \
    X(DestroyDevice)                                                                               \
    X(GetDeviceQueue)                                                                              \
    X(CreateBuffer)                                                                                \
    X(DestroyBuffer)                                                                               \
    X(GetBufferMemoryRequirements)                                                                 \
    X(GetBufferDeviceAddress)                                                                      \
    X(AllocateMemory)                                                                              \
    X(FreeMemory)                                                                                  \
    X(BindBufferMemory)                                                                            \
    X(MapMemory)                                                                                   \
    X(QueueSubmit)                                                                                 \
    X(CreateFence)                                                                                 \
    X(DestroyFence)                                                                                \
    X(ResetFences)                                                                                 \
    X(WaitForFences)                                                                               \
    X(GetFenceStatus)                                                                              \
    X(CreateCommandPool)                                                                           \
    X(DestroyCommandPool)                                                                          \
    X(AllocateCommandBuffers)                                                                      \
    X(BeginCommandBuffer)                                                                          \
    X(EndCommandBuffer)                                                                            \
    X(CreateQueryPool)                                                                             \
    X(DestroyQueryPool)                                                                            \
    X(CreateShaderModule)                                                                          \
    X(DestroyShaderModule)                                                                         \
    X(CreatePipelineLayout)                                                                        \
    X(DestroyPipelineLayout)                                                                       \
    X(CreateComputePipelines)                                                                      \
    X(DestroyPipeline)                                                                             \
    X(CmdBindPipeline)                                                                             \
    X(CmdPushConstants)                                                                            \
    X(CmdDispatch)                                                                                 \
    X(CmdCopyBuffer)                                                                               \
    X(CmdUpdateBuffer)                                                                             \
    X(CmdFillBuffer)                                                                               \
    X(CmdPipelineBarrier)                                                                          \
    X(CmdResetQueryPool)                                                                           \
    X(CmdWriteTimestamp)                                                                           \
    X(CmdCopyQueryPoolResults)

struct llm_vk_api {
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
#define X(name) PFN_vk##name name;
    LLM_VK_INSTANCE_CALLS(X)
    LLM_VK_DEVICE_CALLS(X)
#undef X
};

/* Two, so that a recorded step survives a copy. */
enum llm_vk_commands { LLM_VK_MOVES, LLM_VK_STEP, LLM_VK_COMMANDS };

/* What a workgroup of mul_tile.comp takes at most. */
enum { LLM_VK_TILE_SUBGROUPS = 8, LLM_VK_TILE_SHARED = 48 * 1024 };

struct llm_vk_device {
    void *library;
    struct llm_vk_api vk;
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    uint32_t family;
    hw_driver_counts_fn *counts; /* NULL: the driver is not Hawser's */
    VkPhysicalDeviceProperties properties;
    VkPhysicalDeviceMemoryProperties memory;
    uint64_t allocation_max; /* bytes of one allocation, and of one buffer */
    bool has_dot;            /* integer dot products of packed bytes */
    bool has_tiles;          /* products of 16 x 16 halves on matrix units, and they are wanted */
    uint32_t subgroup;       /* lanes of one */
    bool replays;            /* a step with the last one's ops is submitted again, not recorded */

    VkCommandPool pool;
    VkCommandBuffer buffers[LLM_VK_COMMANDS];
    VkCommandBuffer commands; /* the one being recorded */
    VkFence fences[LLM_VK_COMMANDS];
    bool runs[LLM_VK_COMMANDS]; /* started, and not waited for */
    VkQueryPool stamps;         /* two; VK_NULL_HANDLE: the queue has no timestamps */
    uint64_t taken;             /* bytes of device memory, for messages */
    uint64_t made;              /* pipelines and blocks of memory so far */
    bool lost;                  /* a submission failed: no more are made */
};

/* index: modulo the number of usable devices.  fast: with matrix units, or -ENOTSUP.  0; -ENODEV,
 * -ENOMEM, -EIO, and why.  Call close also after a failure. */
int llm_vk_device_open(struct llm_vk_device *d, uint32_t index, bool fast, char *why) MUST_CHECK;
void llm_vk_device_close(struct llm_vk_device *d);

/* Begins and ends a command buffer; it runs after all earlier submissions.  0, -ENOMEM, -EIO. */
int llm_vk_record(struct llm_vk_device *d, enum llm_vk_commands which, char *why) MUST_CHECK;
int llm_vk_end(struct llm_vk_device *d, char *why) MUST_CHECK;

/* Submits the recorded commands, any number of times.  0, -ENOMEM, -EIO. */
int llm_vk_start(struct llm_vk_device *d, enum llm_vk_commands which, char *why) MUST_CHECK;

/* Waits for their end; fine if they were not started.  expected_ns: about how long they take; 0:
 * not known.  Until then they are not recorded again.  0, -ENOMEM, -EIO. */
int llm_vk_wait(struct llm_vk_device *d, enum llm_vk_commands which, uint64_t expected_ns,
                char *why) MUST_CHECK;

/* Orders all shaders and copies before it against those after it. */
void llm_vk_barrier(struct llm_vk_device *d);

/* Makes the copies' writes visible to the host after the submission. */
void llm_vk_host_barrier(struct llm_vk_device *d);

/* -ENOMEM for want of memory, else -EIO, and why. */
int llm_vk_fail(const char *call, VkResult result, char *why);

#endif
