/* texels.c - differential programs: buffer views and texel buffers. */
#include "vkt.h"

enum { TEXELS = 256, BYTES = TEXELS * 4 };

static VkBufferView view(const struct vkt_buffer *buffer, VkFormat format, VkDeviceSize offset,
                         VkDeviceSize range)
{
    VkBufferViewCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO,
        .buffer = buffer->handle,
        .format = format,
        .offset = offset,
        .range = range,
    };
    VkBufferView made;
    VKT(vkCreateBufferView(vkt.device, &info, NULL, &made));
    VKT_KEEP(BUFFER_VIEW, made);
    return made;
}

static void need_texels(VkFormat format, VkFormatFeatureFlags flags)
{
    VkFormatProperties properties;
    vkGetPhysicalDeviceFormatProperties(vkt.physical, format, &properties);
    if ((properties.bufferFeatures & flags) != flags)
        vkt_skip("no texel buffer of format %d", (int)format);
}

/* Reads source as `format` at `offset`, writes rgba8. */
static void through(VkFormat format, VkDeviceSize offset, VkDeviceSize range)
{
    need_texels(format, VK_FORMAT_FEATURE_UNIFORM_TEXEL_BUFFER_BIT);
    need_texels(VK_FORMAT_R8G8B8A8_UNORM, VK_FORMAT_FEATURE_STORAGE_TEXEL_BUFFER_BIT);
    struct vkt_buffer source =
        vkt_buffer(BYTES + offset, VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT, VKT_COHERENT);
    struct vkt_buffer target =
        vkt_buffer(BYTES, VK_BUFFER_USAGE_STORAGE_TEXEL_BUFFER_BIT, VKT_COHERENT);
    vkt_pattern(source.map, source.size, 9);
    struct vkt_kernel kernel = vkt_kernel("texel.comp", "tT", 0);
    vkt_write_texel(kernel.set, 0, vkt_type('t'), view(&source, format, offset, range));
    vkt_write_texel(kernel.set, 1, vkt_type('T'),
                    view(&target, VK_FORMAT_R8G8B8A8_UNORM, 0, VK_WHOLE_SIZE));
    vkt_kernel_run(&kernel, NULL, TEXELS / 64);
    vkt_out_buffer("target", &target);
}

static void unorm(void)
{
    vkt_open();
    through(VK_FORMAT_R8G8B8A8_UNORM, 0, VK_WHOLE_SIZE);
}

static void snorm(void)
{
    vkt_open();
    through(VK_FORMAT_R8G8B8A8_SNORM, 0, VK_WHOLE_SIZE);
}

static void halves(void)
{
    vkt_open();
    through(VK_FORMAT_R16G16_SFLOAT, 0, VK_WHOLE_SIZE);
}

static void offset_at_limit(void)
{
    vkt_open();
    through(VK_FORMAT_R8G8B8A8_UNORM, vkt.props.limits.minTexelBufferOffsetAlignment, 400);
}

static const struct vkt_case cases[] = {
    {"unorm", unorm, NULL},
    {"snorm", snorm, NULL},
    {"halves", halves, NULL},
    {"offset_at_limit", offset_at_limit, NULL},
};

VKT_MAIN(cases)
