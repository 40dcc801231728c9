/* Chains for queries of physical devices; see physical.h. */
#include "venus/common/physical.h"

#include <assert.h>
#include <string.h>

void *vn_chain_build(const struct vn_chain *chain, struct hw_arena *arena, uint8_t fill)
{
    VkBaseOutStructure *first = NULL, **link = &first;
    for (size_t i = 0; i < chain->count; i++) {
        VkBaseOutStructure *node = hw_arena_calloc(arena, 1, chain->nodes[i].bytes);
        if (!node)
            return NULL;
        if (i > 0 && !chain->nodes[i].has_arrays)
            memset(node + 1, fill, chain->nodes[i].bytes - sizeof(*node));
        node->sType = (VkStructureType)chain->nodes[i].stype;
        node->pNext = NULL;
        *link = node;
        link = &node->pNext;
    }
    return first;
}

static bool is_filled_with(const VkBaseOutStructure *node, uint32_t bytes, uint8_t fill)
{
    const uint8_t *body = (const uint8_t *)(node + 1);
    for (uint32_t i = 0; i < bytes - sizeof(*node); i++) {
        if (body[i] != fill)
            return false;
    }
    return true;
}

void vn_chain_keep_written(const struct vn_chain *chain, void *zeros, const void *marks,
                           uint8_t fill)
{
    VkBaseOutStructure *kept = zeros, *node = kept->pNext;
    const VkBaseOutStructure *mark = ((const VkBaseOutStructure *)marks)->pNext;
    for (size_t i = 1; i < chain->count; i++) {
        assert(node && mark && node->sType == mark->sType);
        VkBaseOutStructure *next = node->pNext;
        uint32_t bytes = chain->nodes[i].bytes;
        uint8_t was = chain->nodes[i].has_arrays ? 0 : fill;
        if (!is_filled_with(node, bytes, 0) || !is_filled_with(mark, bytes, was)) {
            kept->pNext = node;
            kept = node;
        }
        node = next;
        mark = mark->pNext;
    }
    kept->pNext = NULL;
}

static const struct vn_format_block *find_block(VkFormat format)
{
    for (size_t i = 0; i < vn_block_count; i++) {
        if (vn_block_table[i].format == format)
            return &vn_block_table[i];
    }
    return NULL;
}

bool vn_block_of(VkFormat format, VkImageAspectFlags aspect, struct vn_block *out)
{
    const struct vn_format_block *b = find_block(format);
    if (!b)
        return false;
    *out = (struct vn_block){b->bytes, b->width, b->height, b->depth, 1, 1};
    uint32_t plane = aspect == VK_IMAGE_ASPECT_PLANE_1_BIT   ? 1
                     : aspect == VK_IMAGE_ASPECT_PLANE_2_BIT ? 2
                                                             : 0;
    switch (aspect) {
    case VK_IMAGE_ASPECT_DEPTH_BIT:
        out->bytes = b->depth_bytes;
        break;
    case VK_IMAGE_ASPECT_STENCIL_BIT:
        out->bytes = b->stencil_bytes;
        break;
    case VK_IMAGE_ASPECT_PLANE_0_BIT:
    case VK_IMAGE_ASPECT_PLANE_1_BIT:
    case VK_IMAGE_ASPECT_PLANE_2_BIT:
        out->bytes = b->planes[plane].bytes;
        out->width_divisor = b->planes[plane].width_divisor;
        out->height_divisor = b->planes[plane].height_divisor;
        break;
    default:
        break;
    }
    return out->bytes > 0;
}

const VkExtensionProperties *vn_extension_among(const VkExtensionProperties *list, uint32_t count,
                                                const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i].extensionName, name) == 0)
            return &list[i];
    }
    return NULL;
}
