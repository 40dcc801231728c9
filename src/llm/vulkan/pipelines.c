#include "llm/vulkan/pipelines.h"

#include <assert.h>
#include <string.h>

int llm_vk_pipelines_init(struct llm_vk_pipelines *p, struct llm_vk_device *d, char *why)
{
    VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
                                 .size = LLM_VK_PUSH_BYTES};
    VkPipelineLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                       .pushConstantRangeCount = 1,
                                       .pPushConstantRanges = &range};
    *p = (struct llm_vk_pipelines){.device = d};
    VkResult result = d->vk.CreatePipelineLayout(d->device, &info, NULL, &p->layout);
    return result ? llm_vk_fail("vkCreatePipelineLayout", result, why) : 0;
}

void llm_vk_pipelines_fini(struct llm_vk_pipelines *p)
{
    struct llm_vk_device *d = p->device;
    if (!d)
        return;
    for (uint32_t i = 0; i < p->count; i++)
        d->vk.DestroyPipeline(d->device, p->made[i].pipeline, NULL);
    d->vk.DestroyPipelineLayout(d->device, p->layout, NULL);
}

static VkResult create(struct llm_vk_pipelines *p, const struct llm_vk_variant *variant,
                       VkShaderModule module, VkPipeline *out)
{
    VkSpecializationMapEntry entries[LLM_VK_CONSTANTS];
    for (uint32_t i = 0; i < LLM_VK_CONSTANTS; i++)
        entries[i] = (VkSpecializationMapEntry){
            .constantID = i, .offset = i * (uint32_t)sizeof(uint32_t), .size = sizeof(uint32_t)};
    VkSpecializationInfo constants = {.mapEntryCount = LLM_VK_CONSTANTS,
                                      .pMapEntries = entries,
                                      .dataSize = sizeof variant->constants,
                                      .pData = variant->constants};
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main",
                  .pSpecializationInfo = &constants},
        .layout = p->layout};
    struct llm_vk_device *d = p->device;
    return d->vk.CreateComputePipelines(d->device, VK_NULL_HANDLE, 1, &info, NULL, out);
}

int llm_vk_pipeline(struct llm_vk_pipelines *p, const struct llm_vk_variant *variant,
                    VkPipeline *out, char *why)
{
    struct llm_vk_device *d = p->device;
    for (uint32_t i = 0; i < p->count; i++) {
        if (memcmp(&p->made[i].variant, variant, sizeof *variant) == 0) {
            *out = p->made[i].pipeline;
            return 0;
        }
    }
    assert(p->count < LLM_VK_PIPELINES_MAX);
    const struct llm_vk_code *code = llm_vk_code(variant->shader, variant->dtype, d->has_dot);
    VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                     .codeSize = code->bytes,
                                     .pCode = code->words};
    VkShaderModule module;
    VkPipeline pipeline;
    VkResult result = d->vk.CreateShaderModule(d->device, &info, NULL, &module);
    if (result)
        return llm_vk_fail("vkCreateShaderModule", result, why);
    result = create(p, variant, module, &pipeline);
    d->vk.DestroyShaderModule(d->device, module, NULL);
    if (result)
        return llm_vk_fail("vkCreateComputePipelines", result, why);
    d->made++;
    p->made[p->count].variant = *variant;
    p->made[p->count++].pipeline = pipeline;
    *out = pipeline;
    return 0;
}
