/* vkt_image.h - images, render targets and graphics pipelines of the Vulkan differential programs.
 *
 * Trust, threads, lifetime and errors: as in vkt.h. */
#ifndef HAWSER_TESTS_VULKAN_VKT_IMAGE_H
#define HAWSER_TESTS_VULKAN_VKT_IMAGE_H

#include "vkt.h"

enum {
    VKT_STAGES_MAX = 5,   /* vertex, two of tessellation, geometry, fragment */
    VKT_COLORS_MAX = 4,   /* colour attachments of one pipeline here */
    VKT_TARGET_SIZE = 32, /* pixels a side: enough for every edge rule, quick on a CPU */
};

struct vkt_image {
    VkImage handle;
    VkDeviceMemory memory;
    VkImageView view; /* all levels and layers; VK_NULL_HANDLE for transfer-only images */
    VkImageCreateInfo info;
    VkImageAspectFlags aspect;
};

/* Missing fields of info are those of a one-level, one-layer, one-sample optimal 2D image; usage
 * gains TRANSFER_SRC and TRANSFER_DST.  Skips where the device does not offer it. */
struct vkt_image vkt_image(VkImageCreateInfo info);
struct vkt_image vkt_image_2d(VkFormat format, uint32_t width, uint32_t height,
                              VkImageUsageFlags usage);
VkImageAspectFlags vkt_aspect(VkFormat format);
bool vkt_format_has(VkFormat format, VkFormatFeatureFlags optimal);
VkImageSubresourceRange vkt_range(const struct vkt_image *image);
VkImageSubresourceLayers vkt_layers(const struct vkt_image *image, uint32_t level);
VkExtent3D vkt_level_extent(const struct vkt_image *image, uint32_t level);

/* A full barrier and a change of layout of the whole image. */
void vkt_transition(VkCommandBuffer command, const struct vkt_image *image, VkImageLayout from,
                    VkImageLayout to);
/* Fills every level and layer with vkt_pattern and leaves the image in layout `to`. */
void vkt_image_fill(const struct vkt_image *image, uint32_t seed, VkImageLayout to);
/* vkt_out of each level and aspect, read back from layout `from`, where the image stays. */
void vkt_out_image(const char *name, const struct vkt_image *image, VkImageLayout from);

/* A colour image, and depth where depth_format is not UNDEFINED, in a render pass that clears them
 * and leaves both in TRANSFER_SRC_OPTIMAL. */
struct vkt_target {
    struct vkt_image color, depth, resolved;
    bool has_depth, has_resolve;
    VkRenderPass pass;
    VkFramebuffer framebuffer;
};

struct vkt_target vkt_target(VkFormat depth_format, VkSampleCountFlagBits samples);
void vkt_target_begin(VkCommandBuffer command, const struct vkt_target *target,
                      VkSubpassContents contents);
void vkt_out_target(const char *name, const struct vkt_target *target);

struct vkt_pipeline {
    const char *shaders[VKT_STAGES_MAX]; /* by suffix: .vert .tesc .tese .geom .frag */
    VkPipelineLayout layout;
    VkRenderPass pass; /* VK_NULL_HANDLE with `next`, for dynamic rendering */
    const void *next;
    VkPipelineCreateFlags flags;
    uint32_t subpass;
    VkPrimitiveTopology topology;
    bool restart;
    VkSampleCountFlagBits samples; /* 0: one */
    uint32_t patch_points;
    const VkPipelineVertexInputStateCreateInfo *vertices;
    const VkPipelineDepthStencilStateCreateInfo *depth;
    const VkPipelineRasterizationStateCreateInfo *raster;
    const VkPipelineColorBlendStateCreateInfo *blend; /* NULL: overwrite `colors` (0: one) */
    uint32_t colors;
    uint32_t dynamic_count;
    const VkDynamicState *dynamic;
    const VkSpecializationInfo *constants; /* for every stage */
};

VkPipeline vkt_pipeline(const struct vkt_pipeline *wanted);
VkPipelineRasterizationStateCreateInfo vkt_raster(void);
VkPipelineColorBlendAttachmentState vkt_overwrite(void);

VkSampler vkt_sampler(VkFilter filter, VkSamplerAddressMode mode);

#endif
