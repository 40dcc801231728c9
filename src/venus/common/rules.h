/* venus/common/rules.h - what Vulkan reads and what it ignores, where the registry does not say.
 *
 * Programs may leave garbage in pointers and handles that the specification calls ignored, so the
 * encoder must not follow them.  spec/policy.json names the rule of each such member.
 *
 * "reads" rules are asked before a pointer or handle is followed.  "clean" rules return a copy of
 * a structure without what its parent makes ignored.
 *
 * Trust: the program's structures, valid but for what is ignored.  Rules on descriptor types and
 * flags are asked of decoded structures too; the rest only at the client.
 * Threads: any; no state. */
#ifndef HAWSER_VENUS_COMMON_RULES_H
#define HAWSER_VENUS_COMMON_RULES_H

#include <stdbool.h>

#include "venus/common/object.h"

/* Parts of a graphics pipeline. */
enum vn_graphics_part {
    VN_STAGES,
    VN_VERTEX_INPUT,
    VN_INPUT_ASSEMBLY,
    VN_TESSELLATION,
    VN_VIEWPORT,
    VN_RASTERIZATION,
    VN_MULTISAMPLE,
    VN_DEPTH_STENCIL,
    VN_COLOR_BLEND,
    VN_LAYOUT,
    VN_RENDER_PASS,
};

/* What the client remembers of a render pass, in vn_object.facts; NULL counts as "uses all". */
struct vn_subpass_facts {
    bool color;
    bool depth_stencil;
};

struct vn_render_pass_facts {
    uint32_t count;
    struct vn_subpass_facts subpasses[];
};

struct vn_shader;

bool vn_reads_images(VkDescriptorType type);
bool vn_reads_buffers(VkDescriptorType type);
bool vn_reads_texels(VkDescriptorType type);
bool vn_reads_samplers(VkDescriptorType type);
bool vn_graphics_reads(const VkGraphicsPipelineCreateInfo *s, enum vn_graphics_part part);
/* Whether basePipelineHandle is read. */
bool vn_is_derivative(VkPipelineCreateFlags flags, const void *chain, int32_t index);

/* Rules of chained structures depend on the structure that is encoded around them: the encoder of
 * that one says so before and after, with what these return.  Without one all is read.
 * Threads: each has its own. */
const VkGraphicsPipelineCreateInfo *vn_graphics_parent(const VkGraphicsPipelineCreateInfo *s);
const VkCommandBufferBeginInfo *vn_begin_parent(const VkCommandBufferBeginInfo *s);
bool vn_parent_sets(VkDynamicState state);
bool vn_reads_formats(void);
bool vn_inherits_rendering(void);

VkDescriptorImageInfo vn_clean_image_info(const VkWriteDescriptorSet *s, VkDescriptorImageInfo v);
VkDescriptorImageInfo vn_clean_image(const VkDescriptorGetInfoEXT *s, VkDescriptorImageInfo v);
VkPipelineViewportStateCreateInfo vn_clean_viewport_state(const VkGraphicsPipelineCreateInfo *s,
                                                          VkPipelineViewportStateCreateInfo v);
VkPipelineMultisampleStateCreateInfo
vn_clean_multisample_state(const VkGraphicsPipelineCreateInfo *s,
                           VkPipelineMultisampleStateCreateInfo v);
VkPipelineColorBlendStateCreateInfo vn_clean_blend_state(const VkGraphicsPipelineCreateInfo *s,
                                                         VkPipelineColorBlendStateCreateInfo v);
VkCommandBufferInheritanceInfo vn_clean_inheritance(const VkCommandBufferBeginInfo *s,
                                                    VkCommandBufferInheritanceInfo v);
VkCommandBufferBeginInfo vn_clean_begin_info(VkCommandBuffer commands, VkCommandBufferBeginInfo v);
VkWriteDescriptorSet vn_clean_push_write(VkCommandBuffer commands, VkWriteDescriptorSet v);
VkAccelerationStructureBuildGeometryInfoKHR
vn_clean_build_sizes(VkDevice device, VkAccelerationStructureBuildGeometryInfoKHR v);

/* Whether each constant lies inside the data; else a driver would read behind it.  Of a decoded
 * structure. */
bool vn_specialization_fits(const VkSpecializationInfo *s);

/* The usage of a buffer that nothing else makes special: what it needs follows from it and from the
 * size.  0 where something does.  Of decoded structures, too. */
uint32_t vn_plain_usage(const VkBufferCreateInfo *info);
/* Whether the buffer's address is where it lies in its memory, whatever its usage, and whichever
 * queues share it. */
bool vn_has_plain_address(const VkBufferCreateInfo *info);

/* What is known of a stage's code, at the client: of its module, or of the code that is chained in
 * the module's place.  NULL where it could not be read, or where there is only an identifier.  *own
 * is the caller's to destroy, and may be NULL. */
const struct vn_shader *vn_stage_shader(const VkPipelineShaderStageCreateInfo *stage,
                                        struct vn_shader **own);

/* Whether the program acts on the result of creation, which then cannot be posted. */
bool vn_graphics_needs_result(uint32_t count, const VkGraphicsPipelineCreateInfo *infos);
bool vn_compute_needs_result(uint32_t count, const VkComputePipelineCreateInfo *infos);
#ifdef VK_EXT_shader_object
bool vn_shaders_need_result(uint32_t count, const VkShaderCreateInfoEXT *infos);
#endif
/* Marks creation feedback in a chain as not valid. */
void vn_clear_feedback(const void *chain);

#endif
