/* What Vulkan reads and what it ignores; see rules.h. */
#include "venus/common/rules.h"

#include "venus/common/shader.h"

#include <stddef.h>

/* VkPipelineCreateFlags2CreateInfo and VkBufferUsageFlags2CreateInfo of later registries than the
 * floor: their flags replace those of the structure that they extend. */
enum { PIPELINE_CREATE_FLAGS_2 = 1000470005, BUFFER_USAGE_FLAGS_2 = 1000470006 };

struct flags2 {
    VkStructureType type;
    const void *next;
    uint64_t flags;
};

static const void *find(const void *chain, uint32_t type)
{
    const VkBaseInStructure *node = chain;
    while (node && (uint32_t)node->sType != type)
        node = node->pNext;
    return node;
}

static uint64_t create_flags(VkPipelineCreateFlags flags, const void *chain)
{
    const struct flags2 *wide = find(chain, PIPELINE_CREATE_FLAGS_2);
    return wide ? wide->flags : flags;
}

bool vn_reads_images(VkDescriptorType type)
{
    switch ((int)type) {
    case VK_DESCRIPTOR_TYPE_SAMPLER:
    case VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER:
    case VK_DESCRIPTOR_TYPE_SAMPLED_IMAGE:
    case VK_DESCRIPTOR_TYPE_STORAGE_IMAGE:
    case VK_DESCRIPTOR_TYPE_INPUT_ATTACHMENT:
    case VK_DESCRIPTOR_TYPE_SAMPLE_WEIGHT_IMAGE_QCOM:
    case VK_DESCRIPTOR_TYPE_BLOCK_MATCH_IMAGE_QCOM:
        return true;
    default:
        return false;
    }
}

bool vn_reads_buffers(VkDescriptorType type)
{
    switch (type) {
    case VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER:
    case VK_DESCRIPTOR_TYPE_STORAGE_BUFFER:
    case VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER_DYNAMIC:
    case VK_DESCRIPTOR_TYPE_STORAGE_BUFFER_DYNAMIC:
        return true;
    default:
        return false;
    }
}

bool vn_reads_texels(VkDescriptorType type)
{
    return type == VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER ||
           type == VK_DESCRIPTOR_TYPE_STORAGE_TEXEL_BUFFER;
}

bool vn_reads_samplers(VkDescriptorType type)
{
    return type == VK_DESCRIPTOR_TYPE_SAMPLER || type == VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER;
}

VkDescriptorImageInfo vn_clean_image_info(const VkWriteDescriptorSet *s, VkDescriptorImageInfo v)
{
    if (!vn_reads_samplers(s->descriptorType))
        v.sampler = VK_NULL_HANDLE;
    if (s->descriptorType == VK_DESCRIPTOR_TYPE_SAMPLER)
        v.imageView = VK_NULL_HANDLE;
    return v;
}

VkDescriptorImageInfo vn_clean_image(const VkDescriptorGetInfoEXT *s, VkDescriptorImageInfo v)
{
    (void)s;
    v.sampler = VK_NULL_HANDLE;
    return v;
}

bool vn_is_derivative(VkPipelineCreateFlags flags, const void *chain, int32_t index)
{
    return (create_flags(flags, chain) & VK_PIPELINE_CREATE_DERIVATIVE_BIT) && index == -1;
}

static bool is_dynamic(const VkGraphicsPipelineCreateInfo *s, VkDynamicState state)
{
    const VkPipelineDynamicStateCreateInfo *dynamic = s->pDynamicState;
    for (uint32_t i = 0; dynamic && i < dynamic->dynamicStateCount; i++) {
        if (dynamic->pDynamicStates[i] == state)
            return true;
    }
    return false;
}

/* VkGraphicsPipelineLibraryFlagsEXT: the subsets that this structure states. */
static uint32_t subsets(const VkGraphicsPipelineCreateInfo *s)
{
    const VkGraphicsPipelineLibraryCreateInfoEXT *own =
        find(s->pNext, VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_LIBRARY_CREATE_INFO_EXT);
    if (own)
        return own->flags;
    const VkPipelineLibraryCreateInfoKHR *linked =
        find(s->pNext, VK_STRUCTURE_TYPE_PIPELINE_LIBRARY_CREATE_INFO_KHR);
    if ((create_flags(s->flags, s->pNext) & VK_PIPELINE_CREATE_LIBRARY_BIT_KHR) ||
        (linked && linked->libraryCount > 0))
        return 0;
    return UINT32_MAX;
}

static bool has_stage(const VkGraphicsPipelineCreateInfo *s, uint32_t stages)
{
    for (uint32_t i = 0; s->pStages && i < s->stageCount; i++) {
        if (s->pStages[i].stage & stages)
            return true;
    }
    return false;
}

static bool rasterizes(const VkGraphicsPipelineCreateInfo *s, uint32_t have)
{
    bool stated = have & VK_GRAPHICS_PIPELINE_LIBRARY_PRE_RASTERIZATION_SHADERS_BIT_EXT;
    if (!stated || !s->pRasterizationState)
        return true;
    return !s->pRasterizationState->rasterizerDiscardEnable ||
           is_dynamic(s, VK_DYNAMIC_STATE_RASTERIZER_DISCARD_ENABLE);
}

/* What the subpass, or dynamic rendering, writes to. */
static struct vn_subpass_facts attachments(const VkGraphicsPipelineCreateInfo *s, uint32_t have)
{
    struct vn_subpass_facts facts = {.color = true, .depth_stencil = true};
    if (s->renderPass) {
        const struct vn_render_pass_facts *pass = vn_object_of(s->renderPass)->facts;
        return pass && s->subpass < pass->count ? pass->subpasses[s->subpass] : facts;
    }
    const VkPipelineRenderingCreateInfo *rendering =
        find(s->pNext, VK_STRUCTURE_TYPE_PIPELINE_RENDERING_CREATE_INFO);
    if (!rendering && have == UINT32_MAX)
        return (struct vn_subpass_facts){0}; /* it counts as one of zeros */
    /* Of a library without its output interface the formats are not read: it may have them all. */
    if (rendering && (have & VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_OUTPUT_INTERFACE_BIT_EXT)) {
        facts.color = rendering->colorAttachmentCount > 0;
        facts.depth_stencil = rendering->depthAttachmentFormat != VK_FORMAT_UNDEFINED ||
                              rendering->stencilAttachmentFormat != VK_FORMAT_UNDEFINED;
    }
    return facts;
}

static bool reads_fragments(const VkGraphicsPipelineCreateInfo *s, uint32_t have,
                            enum vn_graphics_part part)
{
    const uint32_t shader = VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_SHADER_BIT_EXT;
    const uint32_t output = VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_OUTPUT_INTERFACE_BIT_EXT;
    if (!rasterizes(s, have))
        return false;
    if (part == VN_MULTISAMPLE)
        return have & (shader | output);
    /* A library without its render pass knows no attachments: what is stated is read. */
    if (part == VN_DEPTH_STENCIL)
        return (have & shader) && attachments(s, have).depth_stencil;
    return (have & output) && attachments(s, have).color;
}

static bool reads_vertices(const VkGraphicsPipelineCreateInfo *s, uint32_t have,
                           enum vn_graphics_part part)
{
    const uint32_t mesh = VK_SHADER_STAGE_MESH_BIT_EXT | VK_SHADER_STAGE_TASK_BIT_EXT;
    if (!(have & VK_GRAPHICS_PIPELINE_LIBRARY_VERTEX_INPUT_INTERFACE_BIT_EXT))
        return false;
    bool has_shaders = have & VK_GRAPHICS_PIPELINE_LIBRARY_PRE_RASTERIZATION_SHADERS_BIT_EXT;
    if (has_shaders && has_stage(s, mesh))
        return false;
    return part == VN_INPUT_ASSEMBLY || !is_dynamic(s, VK_DYNAMIC_STATE_VERTEX_INPUT_EXT);
}

bool vn_graphics_reads(const VkGraphicsPipelineCreateInfo *s, enum vn_graphics_part part)
{
    const uint32_t vertex = VK_GRAPHICS_PIPELINE_LIBRARY_PRE_RASTERIZATION_SHADERS_BIT_EXT;
    const uint32_t fragment = VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_SHADER_BIT_EXT;
    const uint32_t output = VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_OUTPUT_INTERFACE_BIT_EXT;
    const uint32_t tess =
        VK_SHADER_STAGE_TESSELLATION_CONTROL_BIT | VK_SHADER_STAGE_TESSELLATION_EVALUATION_BIT;
    uint32_t have = subsets(s);
    switch (part) {
    case VN_STAGES:
        return have & (vertex | fragment);
    case VN_VERTEX_INPUT:
    case VN_INPUT_ASSEMBLY:
        return reads_vertices(s, have, part);
    case VN_TESSELLATION:
        return (have & vertex) && has_stage(s, tess);
    case VN_VIEWPORT:
        return (have & vertex) && rasterizes(s, have);
    case VN_RASTERIZATION:
        return have & vertex;
    case VN_LAYOUT: /* also read when libraries are linked, which state no subset */
        return have == 0 || (have & (vertex | fragment));
    case VN_RENDER_PASS:
        return have & (vertex | fragment | output);
    default:
        return reads_fragments(s, have, part);
    }
}

static _Thread_local const VkGraphicsPipelineCreateInfo *graphics_parent;
static _Thread_local const VkCommandBufferBeginInfo *begin_parent;

const VkGraphicsPipelineCreateInfo *vn_graphics_parent(const VkGraphicsPipelineCreateInfo *s)
{
    const VkGraphicsPipelineCreateInfo *outer = graphics_parent;
    graphics_parent = s;
    return outer;
}

const VkCommandBufferBeginInfo *vn_begin_parent(const VkCommandBufferBeginInfo *s)
{
    const VkCommandBufferBeginInfo *outer = begin_parent;
    begin_parent = s;
    return outer;
}

bool vn_parent_sets(VkDynamicState state)
{
    return graphics_parent && is_dynamic(graphics_parent, state);
}

bool vn_reads_formats(void)
{
    const uint32_t output = VK_GRAPHICS_PIPELINE_LIBRARY_FRAGMENT_OUTPUT_INTERFACE_BIT_EXT;
    const VkGraphicsPipelineCreateInfo *s = graphics_parent;
    if (!s)
        return true;
    return (subsets(s) & output) && !(vn_graphics_reads(s, VN_RENDER_PASS) && s->renderPass);
}

bool vn_inherits_rendering(void)
{
    const VkCommandBufferBeginInfo *s = begin_parent;
    if (!s || !s->pInheritanceInfo)
        return true;
    return (s->flags & VK_COMMAND_BUFFER_USAGE_RENDER_PASS_CONTINUE_BIT) &&
           !s->pInheritanceInfo->renderPass;
}

VkPipelineViewportStateCreateInfo vn_clean_viewport_state(const VkGraphicsPipelineCreateInfo *s,
                                                          VkPipelineViewportStateCreateInfo v)
{
    if (is_dynamic(s, VK_DYNAMIC_STATE_VIEWPORT) ||
        is_dynamic(s, VK_DYNAMIC_STATE_VIEWPORT_WITH_COUNT))
        v.pViewports = NULL;
    if (is_dynamic(s, VK_DYNAMIC_STATE_SCISSOR) ||
        is_dynamic(s, VK_DYNAMIC_STATE_SCISSOR_WITH_COUNT))
        v.pScissors = NULL;
    return v;
}

VkPipelineMultisampleStateCreateInfo
vn_clean_multisample_state(const VkGraphicsPipelineCreateInfo *s,
                           VkPipelineMultisampleStateCreateInfo v)
{
    if (is_dynamic(s, VK_DYNAMIC_STATE_SAMPLE_MASK_EXT))
        v.pSampleMask = NULL;
    return v;
}

/* Zeros, not NULL, for attachments that nobody reads: Khronos' layers of 1.3.239 at the server read
 * them all the same. */
VkPipelineColorBlendStateCreateInfo vn_clean_blend_state(const VkGraphicsPipelineCreateInfo *s,
                                                         VkPipelineColorBlendStateCreateInfo v)
{
    static const VkPipelineColorBlendAttachmentState none[32]; /* drivers have 8 */
    if (is_dynamic(s, VK_DYNAMIC_STATE_COLOR_BLEND_ENABLE_EXT) &&
        is_dynamic(s, VK_DYNAMIC_STATE_COLOR_WRITE_MASK_EXT) &&
        is_dynamic(s, VK_DYNAMIC_STATE_COLOR_BLEND_EQUATION_EXT))
        v.pAttachments = v.attachmentCount <= ARRAY_LEN(none) ? none : NULL;
    return v;
}

VkCommandBufferInheritanceInfo vn_clean_inheritance(const VkCommandBufferBeginInfo *s,
                                                    VkCommandBufferInheritanceInfo v)
{
    if (!(s->flags & VK_COMMAND_BUFFER_USAGE_RENDER_PASS_CONTINUE_BIT)) {
        v.renderPass = VK_NULL_HANDLE;
        v.framebuffer = VK_NULL_HANDLE;
    }
    return v;
}

VkCommandBufferBeginInfo vn_clean_begin_info(VkCommandBuffer commands, VkCommandBufferBeginInfo v)
{
    if (!(vn_object_of(commands)->flags & VN_OBJECT_SECONDARY))
        v.pInheritanceInfo = NULL;
    return v;
}

VkWriteDescriptorSet vn_clean_push_write(VkCommandBuffer commands, VkWriteDescriptorSet v)
{
    (void)commands;
    v.dstSet = VK_NULL_HANDLE;
    return v;
}

VkAccelerationStructureBuildGeometryInfoKHR
vn_clean_build_sizes(VkDevice device, VkAccelerationStructureBuildGeometryInfoKHR v)
{
    (void)device;
    v.srcAccelerationStructure = VK_NULL_HANDLE;
    v.dstAccelerationStructure = VK_NULL_HANDLE;
    return v;
}

bool vn_has_plain_address(const VkBufferCreateInfo *info)
{
    const VkBaseInStructure *node = info->pNext;
    while (node && (uint32_t)node->sType == BUFFER_USAGE_FLAGS_2)
        node = node->pNext;
    return !info->flags && !node;
}

uint32_t vn_plain_usage(const VkBufferCreateInfo *info)
{
    const struct flags2 *wide = find(info->pNext, BUFFER_USAGE_FLAGS_2);
    uint64_t usage = wide ? wide->flags : info->usage;
    bool plain = vn_has_plain_address(info) && info->sharingMode == VK_SHARING_MODE_EXCLUSIVE &&
                 usage <= UINT32_MAX;
    return plain ? (uint32_t)usage : 0;
}

bool vn_specialization_fits(const VkSpecializationInfo *s)
{
    for (uint32_t i = 0; s->pMapEntries && i < s->mapEntryCount; i++) {
        const VkSpecializationMapEntry *entry = &s->pMapEntries[i];
        if (entry->size > s->dataSize || entry->offset > s->dataSize - entry->size)
            return false;
    }
    return true;
}

static bool needs_result(VkPipelineCreateFlags flags, const void *chain)
{
    const uint64_t told = VK_PIPELINE_CREATE_FAIL_ON_PIPELINE_COMPILE_REQUIRED_BIT |
                          VK_PIPELINE_CREATE_EARLY_RETURN_ON_FAILURE_BIT;
    return (create_flags(flags, chain) & told) ||
           find(chain, VK_STRUCTURE_TYPE_PIPELINE_CREATION_FEEDBACK_CREATE_INFO);
}

/* SPIR-V's number for a stage; UINT32_MAX for those that have several or are not known here. */
static uint32_t model_of(VkShaderStageFlagBits stage)
{
    switch ((int)stage) {
    case VK_SHADER_STAGE_VERTEX_BIT:
        return 0;
    case VK_SHADER_STAGE_TESSELLATION_CONTROL_BIT:
        return 1;
    case VK_SHADER_STAGE_TESSELLATION_EVALUATION_BIT:
        return 2;
    case VK_SHADER_STAGE_GEOMETRY_BIT:
        return 3;
    case VK_SHADER_STAGE_FRAGMENT_BIT:
        return 4;
    case VK_SHADER_STAGE_COMPUTE_BIT:
        return 5;
    default:
        return UINT32_MAX;
    }
}

const struct vn_shader *vn_stage_shader(const VkPipelineShaderStageCreateInfo *stage,
                                        struct vn_shader **own)
{
    *own = NULL;
    if (stage->module)
        return vn_object_of(stage->module)->facts;
    const VkShaderModuleCreateInfo *code =
        find(stage->pNext, VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO);
    bool read = code && vn_shader_create(code->pCode, code->codeSize, own) == 0;
    return read ? *own : NULL;
}

/* Whether the driver may well refuse the stage: code that cannot be read, or no such entry. */
static bool is_doubtful(const VkPipelineShaderStageCreateInfo *stage)
{
    struct vn_shader *own;
    const struct vn_shader *shader = vn_stage_shader(stage, &own);
    uint32_t model = model_of(stage->stage);
    bool doubtful =
        !shader || (model != UINT32_MAX && !vn_shader_has_entry(shader, model, stage->pName));
    vn_shader_destroy(own);
    return doubtful;
}

bool vn_graphics_needs_result(uint32_t count, const VkGraphicsPipelineCreateInfo *infos)
{
    for (uint32_t i = 0; i < count; i++) {
        if (needs_result(infos[i].flags, infos[i].pNext))
            return true;
        bool staged = vn_graphics_reads(&infos[i], VN_STAGES);
        for (uint32_t j = 0; staged && j < infos[i].stageCount; j++) {
            if (is_doubtful(&infos[i].pStages[j]))
                return true;
        }
    }
    return false;
}

bool vn_compute_needs_result(uint32_t count, const VkComputePipelineCreateInfo *infos)
{
    for (uint32_t i = 0; i < count; i++) {
        if (needs_result(infos[i].flags, infos[i].pNext) || is_doubtful(&infos[i].stage))
            return true;
    }
    return false;
}

#ifdef VK_EXT_shader_object
/* A driver answers INCOMPATIBLE_SHADER_BINARY to a binary that it did not make. */
bool vn_shaders_need_result(uint32_t count, const VkShaderCreateInfoEXT *infos)
{
    for (uint32_t i = 0; i < count; i++) {
        if (infos[i].codeType == VK_SHADER_CODE_TYPE_BINARY_EXT)
            return true;
    }
    return false;
}
#endif

void vn_clear_feedback(const void *chain)
{
    const VkPipelineCreationFeedbackCreateInfo *feedback =
        find(chain, VK_STRUCTURE_TYPE_PIPELINE_CREATION_FEEDBACK_CREATE_INFO);
    if (!feedback)
        return;
    *feedback->pPipelineCreationFeedback = (VkPipelineCreationFeedback){0};
    for (uint32_t i = 0; i < feedback->pipelineStageCreationFeedbackCount; i++)
        feedback->pPipelineStageCreationFeedbacks[i] = (VkPipelineCreationFeedback){0};
}
