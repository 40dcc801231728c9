/* llm/vulkan/pipelines.h - private to src/llm: the shaders, compiled for a device when first used.
 *
 * All take their arguments, with device addresses, as push constants of one layout; there are no
 * descriptors.
 *
 * Threads and lifetime: as the device's. */
#ifndef HAWSER_LLM_VULKAN_PIPELINES_H
#define HAWSER_LLM_VULKAN_PIPELINES_H

#include "llm/vulkan/device.h"
#include "llm/vulkan/shaders.h"

enum {
    LLM_VK_PUSH_BYTES = 128, /* Vulkan's minimum */
    LLM_VK_CONSTANTS = 7,    /* of a shader, at most */
    LLM_VK_PIPELINES_MAX =
        512, /* 16 types by twelve shapes, some aligned or not, and about twenty others */
};

/* A variant of a shader; constants that it lacks are 0. */
struct llm_vk_variant {
    enum llm_vk_shader shader;
    enum llm_dtype dtype; /* LLM_F32 where it has no type */
    uint32_t constants[LLM_VK_CONSTANTS];
};

struct llm_vk_pipelines {
    struct llm_vk_device *device;
    VkPipelineLayout layout;
    uint32_t count;
    struct {
        struct llm_vk_variant variant;
        VkPipeline pipeline;
    } made[LLM_VK_PIPELINES_MAX];
};

int llm_vk_pipelines_init(struct llm_vk_pipelines *p, struct llm_vk_device *d,
                          char *why) MUST_CHECK;
void llm_vk_pipelines_fini(struct llm_vk_pipelines *p); /* zero is fine */

/* 0, -ENOMEM, -EIO. */
int llm_vk_pipeline(struct llm_vk_pipelines *p, const struct llm_vk_variant *variant,
                    VkPipeline *out, char *why) MUST_CHECK;

#endif
