/* samplers.c - differential programs: samplers over images of every shape. */
#include "vkt_image.h"

#include <stdio.h>

enum { GRID = 32, OUT_BYTES = GRID * GRID * 16 };

static const VkImageLayout READ = VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL;

static void dispatch_grid(const struct vkt_kernel *kernel, const float *push)
{
    VkCommandBuffer command = vkt_begin();
    vkCmdBindPipeline(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel->pipeline);
    vkCmdBindDescriptorSets(command, VK_PIPELINE_BIND_POINT_COMPUTE, kernel->layout, 0, 1,
                            &kernel->set, 0, NULL);
    if (push)
        vkCmdPushConstants(command, kernel->layout, VK_SHADER_STAGE_ALL, 0, sizeof(*push), push);
    vkCmdDispatch(command, GRID / 8, GRID / 8, 1);
    vkt_finish(command);
}

/* Samples a patterned image on a grid and prints what came. */
static void sample(const char *name, const char *shader, const struct vkt_image *image,
                   VkSampler sampler, float lod_step)
{
    struct vkt_buffer out = vkt_storage(OUT_BYTES, NULL);
    struct vkt_kernel kernel = vkt_kernel(shader, "cs", sizeof(lod_step));
    vkt_write_image(kernel.set, 0, vkt_type('c'), sampler, image->view, READ);
    vkt_write_buffer(kernel.set, 1, vkt_type('s'), out.handle, 0, VK_WHOLE_SIZE);
    dispatch_grid(&kernel, &lod_step);
    vkt_out_buffer(name, &out);
}

static struct vkt_image image(VkImageType type, VkExtent3D extent, uint32_t levels, uint32_t layers,
                              VkImageCreateFlags flags)
{
    struct vkt_image made = vkt_image((VkImageCreateInfo){
        .flags = flags,
        .imageType = type,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .extent = extent,
        .mipLevels = levels,
        .arrayLayers = layers,
        .usage = VK_IMAGE_USAGE_SAMPLED_BIT,
    });
    vkt_image_fill(&made, 31, READ);
    return made;
}

static struct vkt_image square(uint32_t levels)
{
    return image(VK_IMAGE_TYPE_2D, (VkExtent3D){16, 16, 1}, levels, 1, 0);
}

static void filters(void)
{
    vkt_open();
    struct vkt_image texels = square(1);
    const VkSamplerAddressMode edge = VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_EDGE;
    sample("nearest", "sample.comp", &texels, vkt_sampler(VK_FILTER_NEAREST, edge), 0);
    sample("linear", "sample.comp", &texels, vkt_sampler(VK_FILTER_LINEAR, edge), 0);
}

static void address_modes(void)
{
    VKT_NEED(vkt.f12.samplerMirrorClampToEdge);
    vkt_open();
    struct vkt_image texels = square(1);
    const VkSamplerAddressMode modes[] = {
        VK_SAMPLER_ADDRESS_MODE_REPEAT, VK_SAMPLER_ADDRESS_MODE_MIRRORED_REPEAT,
        VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_EDGE, VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER,
        VK_SAMPLER_ADDRESS_MODE_MIRROR_CLAMP_TO_EDGE};
    for (size_t i = 0; i < VKT_COUNT(modes); i++) {
        char name[16];
        snprintf(name, sizeof(name), "mode%zu", i);
        sample(name, "sample.comp", &texels, vkt_sampler(VK_FILTER_LINEAR, modes[i]), 0);
    }
}

static void mipmaps(void)
{
    vkt_open();
    struct vkt_image texels = square(5);
    const VkSamplerAddressMode mode = VK_SAMPLER_ADDRESS_MODE_REPEAT;
    sample("nearest", "sample.comp", &texels, vkt_sampler(VK_FILTER_NEAREST, mode), 0.15f);
    sample("linear", "sample.comp", &texels, vkt_sampler(VK_FILTER_LINEAR, mode), 0.15f);
    VkSamplerCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_SAMPLER_CREATE_INFO,
        .magFilter = VK_FILTER_LINEAR,
        .minFilter = VK_FILTER_LINEAR,
        .mipmapMode = VK_SAMPLER_MIPMAP_MODE_LINEAR,
        .mipLodBias = 0.75f,
        .minLod = 0.5f,
        .maxLod = 2.25f,
    };
    VkSampler clamped;
    VKT(vkCreateSampler(vkt.device, &info, NULL, &clamped));
    VKT_KEEP(SAMPLER, clamped);
    sample("clamped", "sample.comp", &texels, clamped, 0.15f);
}

static void one_d(void)
{
    vkt_open();
    struct vkt_image texels = image(VK_IMAGE_TYPE_1D, (VkExtent3D){32, 1, 1}, 3, 1, 0);
    sample("line", "sample_d1.comp", &texels,
           vkt_sampler(VK_FILTER_LINEAR, VK_SAMPLER_ADDRESS_MODE_MIRRORED_REPEAT), 0.1f);
}

static void three_d(void)
{
    vkt_open();
    struct vkt_image texels = image(VK_IMAGE_TYPE_3D, (VkExtent3D){8, 8, 8}, 2, 1, 0);
    sample("solid", "sample_d3.comp", &texels,
           vkt_sampler(VK_FILTER_LINEAR, VK_SAMPLER_ADDRESS_MODE_REPEAT), 0.05f);
}

static void cube(void)
{
    vkt_open();
    struct vkt_image texels =
        image(VK_IMAGE_TYPE_2D, (VkExtent3D){8, 8, 1}, 2, 6, VK_IMAGE_CREATE_CUBE_COMPATIBLE_BIT);
    sample("cube", "sample_cube.comp", &texels,
           vkt_sampler(VK_FILTER_LINEAR, VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_EDGE), 0.03f);
}

static void array(void)
{
    vkt_open();
    struct vkt_image texels = image(VK_IMAGE_TYPE_2D, (VkExtent3D){16, 16, 1}, 1, 3, 0);
    sample("array", "sample_array.comp", &texels,
           vkt_sampler(VK_FILTER_LINEAR, VK_SAMPLER_ADDRESS_MODE_REPEAT), 0);
}

static void swizzled(void)
{
    vkt_open();
    struct vkt_image texels = square(1);
    VkImageViewCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,
        .image = texels.handle,
        .viewType = VK_IMAGE_VIEW_TYPE_2D,
        .format = VK_FORMAT_R8G8B8A8_UNORM,
        .components = {VK_COMPONENT_SWIZZLE_B, VK_COMPONENT_SWIZZLE_ONE, VK_COMPONENT_SWIZZLE_R,
                       VK_COMPONENT_SWIZZLE_ZERO},
        .subresourceRange = vkt_range(&texels),
    };
    VKT(vkCreateImageView(vkt.device, &info, NULL, &texels.view));
    VKT_KEEP(IMAGE_VIEW, texels.view);
    sample("swizzled", "sample.comp", &texels,
           vkt_sampler(VK_FILTER_NEAREST, VK_SAMPLER_ADDRESS_MODE_REPEAT), 0);
}

static void compared(void)
{
    vkt_open();
    const VkFormatFeatureFlags need =
        VK_FORMAT_FEATURE_SAMPLED_IMAGE_BIT | VK_FORMAT_FEATURE_DEPTH_STENCIL_ATTACHMENT_BIT;
    if (!vkt_format_has(VK_FORMAT_D16_UNORM, need))
        vkt_skip("no depth to sample");
    struct vkt_image depth = vkt_image_2d(VK_FORMAT_D16_UNORM, 16, 16, VK_IMAGE_USAGE_SAMPLED_BIT);
    vkt_image_fill(&depth, 6, READ);
    VkSamplerCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_SAMPLER_CREATE_INFO,
        .magFilter = VK_FILTER_LINEAR,
        .compareEnable = VK_TRUE,
        .compareOp = VK_COMPARE_OP_LESS_OR_EQUAL,
    };
    VkSampler sampler;
    VKT(vkCreateSampler(vkt.device, &info, NULL, &sampler));
    VKT_KEEP(SAMPLER, sampler);
    struct vkt_buffer out = vkt_storage(OUT_BYTES, NULL);
    struct vkt_kernel kernel = vkt_kernel("sample_shadow.comp", "cs", 0);
    vkt_write_image(kernel.set, 0, vkt_type('c'), sampler, depth.view, READ);
    vkt_write_buffer(kernel.set, 1, vkt_type('s'), out.handle, 0, VK_WHOLE_SIZE);
    dispatch_grid(&kernel, NULL);
    vkt_out_buffer("compared", &out);
}

static void separate(void)
{
    vkt_open();
    struct vkt_image texels = square(1);
    VkSampler sampler = vkt_sampler(VK_FILTER_LINEAR, VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER);
    struct vkt_buffer out = vkt_storage(OUT_BYTES, NULL);
    struct vkt_kernel kernel = vkt_kernel("separate.comp", "dps", 0);
    vkt_write_image(kernel.set, 0, vkt_type('d'), VK_NULL_HANDLE, texels.view, READ);
    vkt_write_image(kernel.set, 1, vkt_type('p'), sampler, VK_NULL_HANDLE, 0);
    vkt_write_buffer(kernel.set, 2, vkt_type('s'), out.handle, 0, VK_WHOLE_SIZE);
    dispatch_grid(&kernel, NULL);
    vkt_out_buffer("separate", &out);
}

/* Samples the view through a sampler that is part of the set's layout.  pool_types: what the set
 * takes from its pool. */
static void sample_immutable(const char *name, VkSampler sampler, VkImageView view,
                             const char *pool_types)
{
    const VkDescriptorSetLayoutBinding bindings[] = {
        {0, VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER, 1, VK_SHADER_STAGE_COMPUTE_BIT, &sampler},
        {1, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL},
    };
    VkDescriptorSetLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .bindingCount = 2,
        .pBindings = bindings,
    };
    struct vkt_kernel kernel;
    VKT(vkCreateDescriptorSetLayout(vkt.device, &info, NULL, &kernel.set_layout));
    VKT_KEEP(DESCRIPTOR_SET_LAYOUT, kernel.set_layout);
    kernel.layout = vkt_layout(kernel.set_layout, 4);
    kernel.pipeline = vkt_compute_pipeline("sample.comp", kernel.layout, NULL);
    kernel.set = vkt_set(kernel.set_layout, pool_types);
    struct vkt_buffer out = vkt_storage(OUT_BYTES, NULL);
    vkt_write_image(kernel.set, 0, vkt_type('c'), VK_NULL_HANDLE, view, READ);
    vkt_write_buffer(kernel.set, 1, vkt_type('s'), out.handle, 0, VK_WHOLE_SIZE);
    dispatch_grid(&kernel, &(float){0});
    vkt_out_buffer(name, &out);
}

static void immutable(void)
{
    vkt_open();
    struct vkt_image texels = square(1);
    VkSampler sampler = vkt_sampler(VK_FILTER_NEAREST, VK_SAMPLER_ADDRESS_MODE_MIRRORED_REPEAT);
    sample_immutable("immutable", sampler, texels.view, "cs");
}

/* --- planes -----------------------------------------------------------------------------------
 */

enum { PLANES = 3, PLANE_SIZE = 16 };

static void fill_planes(const struct vkt_image *image)
{
    struct vkt_buffer staging = vkt_buffer(PLANES * PLANE_SIZE * PLANE_SIZE, 0, VKT_COHERENT);
    vkt_pattern(staging.map, staging.size, 19);
    VkBufferImageCopy regions[PLANES];
    for (uint32_t i = 0; i < PLANES; i++) {
        uint32_t size = i ? PLANE_SIZE / 2 : PLANE_SIZE;
        regions[i] = (VkBufferImageCopy){
            .bufferOffset = i * PLANE_SIZE * PLANE_SIZE,
            .imageSubresource = {VK_IMAGE_ASPECT_PLANE_0_BIT << i, 0, 0, 1},
            .imageExtent = {size, size, 1},
        };
    }
    VkCommandBuffer command = vkt_begin();
    vkt_transition(command, image, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL);
    vkCmdCopyBufferToImage(command, staging.handle, image->handle,
                           VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, PLANES, regions);
    vkt_transition(command, image, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, READ);
    vkt_finish(command);
}

/* Three planes, converted by the sampler. */
static void ycbcr(void)
{
    VKT_NEED(vkt.f11.samplerYcbcrConversion);
    vkt_open();
    const VkFormat format = VK_FORMAT_G8_B8_R8_3PLANE_420_UNORM;
    if (!vkt_format_has(format,
                        VK_FORMAT_FEATURE_SAMPLED_IMAGE_BIT | VK_FORMAT_FEATURE_TRANSFER_DST_BIT))
        vkt_skip("no image of three planes");
    bool midpoint = vkt_format_has(format, VK_FORMAT_FEATURE_MIDPOINT_CHROMA_SAMPLES_BIT);
    VkChromaLocation where =
        midpoint ? VK_CHROMA_LOCATION_MIDPOINT : VK_CHROMA_LOCATION_COSITED_EVEN;
    VkSamplerYcbcrConversionCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_SAMPLER_YCBCR_CONVERSION_CREATE_INFO,
        .format = format,
        .ycbcrModel = VK_SAMPLER_YCBCR_MODEL_CONVERSION_YCBCR_601,
        .xChromaOffset = where,
        .yChromaOffset = where,
    };
    VkSamplerYcbcrConversion conversion;
    VKT(vkCreateSamplerYcbcrConversion(vkt.device, &info, NULL, &conversion));
    VKT_KEEP(SAMPLER_YCBCR_CONVERSION, conversion);
    VkSamplerYcbcrConversionInfo by = {
        .sType = VK_STRUCTURE_TYPE_SAMPLER_YCBCR_CONVERSION_INFO,
        .conversion = conversion,
    };
    VkSamplerCreateInfo sampler_info = {
        .sType = VK_STRUCTURE_TYPE_SAMPLER_CREATE_INFO,
        .pNext = &by,
        .addressModeU = VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_EDGE,
        .addressModeV = VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_EDGE,
        .addressModeW = VK_SAMPLER_ADDRESS_MODE_CLAMP_TO_EDGE,
    };
    VkSampler sampler;
    VKT(vkCreateSampler(vkt.device, &sampler_info, NULL, &sampler));
    VKT_KEEP(SAMPLER, sampler);
    VkImageCreateInfo image_info = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
        .imageType = VK_IMAGE_TYPE_2D,
        .format = format,
        .extent = {PLANE_SIZE, PLANE_SIZE, 1},
        .mipLevels = 1,
        .arrayLayers = 1,
        .samples = VK_SAMPLE_COUNT_1_BIT,
        .usage = VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT,
    };
    struct vkt_image image = {.info = image_info, .aspect = VK_IMAGE_ASPECT_COLOR_BIT};
    VKT(vkCreateImage(vkt.device, &image_info, NULL, &image.handle));
    VKT_KEEP(IMAGE, image.handle);
    VkMemoryRequirements needs;
    vkGetImageMemoryRequirements(vkt.device, image.handle, &needs);
    VKT(vkBindImageMemory(vkt.device, image.handle, vkt_allocate(needs, VKT_DEVICE, NULL), 0));
    fill_planes(&image);
    VkImageViewCreateInfo view_info = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,
        .pNext = &by,
        .image = image.handle,
        .viewType = VK_IMAGE_VIEW_TYPE_2D,
        .format = format,
        .subresourceRange = vkt_range(&image),
    };
    VkImageView view;
    VKT(vkCreateImageView(vkt.device, &view_info, NULL, &view));
    VKT_KEEP(IMAGE_VIEW, view);
    sample_immutable("planes", sampler, view, "cccs"); /* at most a descriptor a plane */
}

static const struct vkt_case cases[] = {
    {"filters", filters, NULL},     {"address_modes", address_modes, NULL},
    {"mipmaps", mipmaps, NULL},     {"one_d", one_d, NULL},
    {"three_d", three_d, NULL},     {"cube", cube, NULL},
    {"array", array, NULL},         {"swizzled", swizzled, NULL},
    {"compared", compared, NULL},   {"separate", separate, NULL},
    {"immutable", immutable, NULL}, {"ycbcr", ycbcr, NULL},
};

VKT_MAIN(cases)
