/* llm/vulkan/shaders.h - private to src/llm: the shaders of shaders/llm as SPIR-V.
 *
 * Threads: any; constant. */
#ifndef HAWSER_LLM_VULKAN_SHADERS_H
#define HAWSER_LLM_VULKAN_SHADERS_H

#include "llm/model/dtype.h"

enum llm_vk_shader {
    LLM_VK_EMBED,    /* of a type */
    LLM_VK_MUL,      /* of a type */
    LLM_VK_MUL_TILE, /* of a type; where the device has tiles */
    LLM_VK_PICK,
    LLM_VK_NORM,
    LLM_VK_ROUND,
    LLM_VK_ROPE,
    LLM_VK_APPEND,
    LLM_VK_ATTEND,
    LLM_VK_ATTEND_TILE, /* where the device has tiles */
    LLM_VK_ACTIVATE,
    LLM_VK_ROUTE,
    LLM_VK_BUNCH,
    LLM_VK_ADD,
    LLM_VK_SCALE,
    LLM_VK_MOVE,
};

struct llm_vk_code {
    enum llm_vk_shader shader;
    enum llm_dtype dtype; /* LLM_F32 where it has no type */
    bool dot;             /* needs integer dot products */
    const uint32_t *words;
    size_t bytes;
};

/* The code of a shader for a device, with dot products if it has them. */
const struct llm_vk_code *llm_vk_code(enum llm_vk_shader shader, enum llm_dtype dtype,
                                      bool has_dot);

#endif
