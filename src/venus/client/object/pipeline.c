/* Shader modules and pipelines; see pipeline.h. */
#include "venus/client/object/pipeline.h"

#include "base/clock.h"
#include "venus/common/rules.h"
#include "venus/common/shader.h"
#include "vn_client.gen.h"

#include <stdlib.h>

/* Where it cannot be noted, nobody waits for it. */
void vnc_pipeline_init(struct vnc_pipeline *pipeline, struct vnc_device *device)
{
    pipeline->pushes = device->pushes;
    if (vnc_pushes_add_pipeline(device->pushes, pipeline))
        atomic_store_explicit(&pipeline->compiled, true, memory_order_relaxed);
}

void vnc_pipeline_fini(struct vnc_pipeline *pipeline)
{
    vnc_pushes_remove_pipeline(pipeline->pushes, pipeline);
    free(pipeline->writes);
}

static bool is_compiled(void *user)
{
    struct vnc_pipeline *pipeline = user;
    return atomic_load_explicit(&pipeline->compiled, memory_order_relaxed);
}

/* A lost server, which nothing else would tell here, is told by what follows. */
static bool is_decided(void *user)
{
    return is_compiled(user) || vnc_link_is_lost(vnc_link_of(user));
}

static void await(struct vnc_pipeline *pipeline)
{
    (void)!vnc_link_wait(vnc_link_of(pipeline), is_decided, pipeline, HW_NEVER);
}

void vnc_pipeline_await(struct vnc_pipeline *pipeline)
{
    if (!is_compiled(pipeline) && vnc_link_is_shared(vnc_link_of(pipeline)))
        await(pipeline);
}

/* Programs that compile with several threads ask in each of them. */
static void await_beside_others(VkPipeline handle)
{
    struct vnc_pipeline *pipeline = VNC_OBJECT(vnc_pipeline, handle);
    if (!is_compiled(pipeline) && vnc_pushes_pipelines(pipeline->pushes) > 1)
        await(pipeline);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_shader_module(VkDevice device,
                                                           const VkShaderModuleCreateInfo *info,
                                                           const VkAllocationCallbacks *allocator,
                                                           VkShaderModule *out)
{
    VkResult result = vn_vkCreateShaderModule(device, info, allocator, out);
    struct vn_shader *shader;
    if (result == VK_SUCCESS && vn_shader_create(info->pCode, info->codeSize, &shader) == 0)
        VNC_OBJECT(vn_object, *out)->facts = shader;
    return result;
}

/* What no message holds is left out: a cache may be empty. */
static VKAPI_ATTR VkResult VKAPI_CALL create_pipeline_cache(VkDevice device,
                                                            const VkPipelineCacheCreateInfo *info,
                                                            const VkAllocationCallbacks *allocator,
                                                            VkPipelineCache *out)
{
    VkPipelineCacheCreateInfo sent = *info;
    if (info->initialDataSize > VN_OUTPUT_MAX)
        sent.initialDataSize = 0;
    return vn_vkCreatePipelineCache(device, &sent, allocator, out);
}

/* What the program asked to be told.  The time is what it waited: what the driver itself noted does
 * not travel. */
static void fill_feedback(const void *chain, uint64_t ns)
{
    const VkPipelineCreationFeedbackCreateInfo *feedback =
        vn_chain_find(chain, VK_STRUCTURE_TYPE_PIPELINE_CREATION_FEEDBACK_CREATE_INFO);
    if (feedback)
        *feedback->pPipelineCreationFeedback = (VkPipelineCreationFeedback){
            .flags = VK_PIPELINE_CREATION_FEEDBACK_VALID_BIT, .duration = ns};
}

static void remember_writes(struct vnc_pipeline *pipeline, const struct vn_shader *shader)
{
    size_t bytes = shader->write_count * sizeof(*shader->writes);
    pipeline->writes = malloc(bytes ? bytes : 1);
    if (!pipeline->writes)
        return; /* not known: counts as writing all */
    if (bytes)
        memcpy(pipeline->writes, shader->writes, bytes);
    pipeline->write_count = shader->write_count;
    pipeline->uses_addresses = shader->uses_addresses;
    pipeline->writes_addresses = shader->writes_addresses;
    pipeline->uses_images = shader->uses_images;
    pipeline->writes_images = shader->writes_images;
    pipeline->known = true;
}

static VKAPI_ATTR VkResult VKAPI_CALL
create_compute_pipelines(VkDevice device, VkPipelineCache cache, uint32_t count,
                         const VkComputePipelineCreateInfo *infos,
                         const VkAllocationCallbacks *allocator, VkPipeline *out)
{
    uint64_t start = hw_now_ns();
    VkResult result = vn_vkCreateComputePipelines(device, cache, count, infos, allocator, out);
    for (uint32_t i = 0; i < count; i++)
        fill_feedback(infos[i].pNext, hw_now_ns() - start);
    for (uint32_t i = 0; result >= 0 && i < count; i++) {
        struct vn_shader *own;
        const struct vn_shader *shader = vn_stage_shader(&infos[i].stage, &own);
        if (out[i] && shader)
            remember_writes(VNC_OBJECT(vnc_pipeline, out[i]), shader);
        vn_shader_destroy(own);
    }
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL
create_graphics_pipelines(VkDevice device, VkPipelineCache cache, uint32_t count,
                          const VkGraphicsPipelineCreateInfo *infos,
                          const VkAllocationCallbacks *allocator, VkPipeline *out)
{
    uint64_t start = hw_now_ns();
    VkResult result = vn_vkCreateGraphicsPipelines(device, cache, count, infos, allocator, out);
    for (uint32_t i = 0; i < count; i++)
        fill_feedback(infos[i].pNext, hw_now_ns() - start);
    return result;
}

/* ---- questions about a pipeline ---- */

static VKAPI_ATTR VkResult VKAPI_CALL
get_executable_properties(VkDevice device, const VkPipelineInfoKHR *info, uint32_t *count,
                          VkPipelineExecutablePropertiesKHR *out)
{
    await_beside_others(info->pipeline);
    return vn_vkGetPipelineExecutablePropertiesKHR(device, info, count, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL
get_executable_statistics(VkDevice device, const VkPipelineExecutableInfoKHR *info, uint32_t *count,
                          VkPipelineExecutableStatisticKHR *out)
{
    await_beside_others(info->pipeline);
    return vn_vkGetPipelineExecutableStatisticsKHR(device, info, count, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL
get_executable_representations(VkDevice device, const VkPipelineExecutableInfoKHR *info,
                               uint32_t *count, VkPipelineExecutableInternalRepresentationKHR *out)
{
    await_beside_others(info->pipeline);
    return vn_vkGetPipelineExecutableInternalRepresentationsKHR(device, info, count, out);
}

const struct vnc_entry vnc_entries_pipeline[] = {
    VNC_ENTRY(vkGetPipelineExecutablePropertiesKHR, get_executable_properties),
    VNC_ENTRY(vkGetPipelineExecutableStatisticsKHR, get_executable_statistics),
    VNC_ENTRY(vkGetPipelineExecutableInternalRepresentationsKHR, get_executable_representations),
    VNC_ENTRY(vkCreateShaderModule, create_shader_module),
    VNC_ENTRY(vkCreatePipelineCache, create_pipeline_cache),
    VNC_ENTRY(vkCreateComputePipelines, create_compute_pipelines),
    VNC_ENTRY(vkCreateGraphicsPipelines, create_graphics_pipelines),
    {NULL, NULL},
};
