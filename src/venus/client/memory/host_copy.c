/* Copies between images and the program's memory that no queue executes (VK_EXT_host_image_copy).
 *
 * The server's driver copies.  Texels travel packed, row by row of blocks, in parts that other
 * messages get through between.  A layout of memory that only VK_HOST_IMAGE_COPY_MEMCPY_BIT knows
 * is the driver's own business: ours is the packed one, whatever the driver has. */
#include "venus/client/memory/memory.h"

#include <stdlib.h>
#include <string.h>

#include "venus/client/object/local.h"
#include "venus/client/object/memo.h"
#include "venus/client/record/ranges.h"
#include "venus/client/submit/queue.h"
#include "venus/common/chain.h"
#include "venus/common/physical.h"
#include "venus/common/protocol.h"
#include "vn_client.gen.h"
#include "vn_structs.gen.h"

#ifdef VK_EXT_host_image_copy

enum {
    PART_BYTES = VN_WRITE_BYTES, /* at most, where a row of blocks is not longer */
    PARTS_UNDER_WAY = 8,         /* 2 MiB: what 10 Gbit/s carry in 1.6 ms */
};

/* A region of a copy.  Its slices are layers of the image, or its depth. */
struct region {
    const struct vnc_resource *image;
    VkImageSubresourceLayers layers;
    VkOffset3D offset;
    VkExtent3D extent;
    struct vn_block block;
    uint32_t rows, slices;
    size_t row_bytes;            /* packed */
    size_t row_step, slice_step; /* in the program's memory */
};

struct part {
    uint32_t slice, slices, row, rows;
};

static uint32_t blocks_in(uint32_t texels, uint32_t block)
{
    return texels / block + (texels % block != 0);
}

/* Of VkMemoryToImageCopy and VkImageToMemoryCopy, which are the same but for what they point to. */
static bool region_init(struct region *r, const struct vnc_resource *image,
                        VkHostImageCopyFlagsEXT flags, const VkImageToMemoryCopyEXT *from)
{
    *r = (struct region){.image = image,
                         .layers = from->imageSubresource,
                         .offset = from->imageOffset,
                         .extent = from->imageExtent};
    if (!vn_block_of(image->shape.format, from->imageSubresource.aspectMask, &r->block))
        return false;
    if (r->layers.layerCount == VK_REMAINING_ARRAY_LAYERS)
        r->layers.layerCount = image->shape.layers - r->layers.baseArrayLayer;
    bool packed = flags & VK_HOST_IMAGE_COPY_MEMCPY_EXT;
    uint32_t width = packed || !from->memoryRowLength ? r->extent.width : from->memoryRowLength;
    uint32_t height =
        packed || !from->memoryImageHeight ? r->extent.height : from->memoryImageHeight;
    r->rows = blocks_in(r->extent.height, r->block.height);
    r->slices = r->layers.layerCount > 1 ? r->layers.layerCount : r->extent.depth;
    r->row_bytes = (size_t)blocks_in(r->extent.width, r->block.width) * r->block.bytes;
    r->row_step = (size_t)blocks_in(width, r->block.width) * r->block.bytes;
    r->slice_step = r->row_step * blocks_in(height, r->block.height);
    return r->row_bytes > 0 && r->rows > 0;
}

/* Whole slices where one fits, else rows of a slice.  Starts with zeros; false behind the last. */
static bool next_part(const struct region *r, struct part *p)
{
    size_t slice_bytes = r->row_bytes * r->rows;
    bool within = p->row + p->rows < r->rows;
    p->slice += within ? 0 : p->slices;
    p->row = within ? p->row + p->rows : 0;
    uint32_t left = p->slice < r->slices ? r->slices - p->slice : 0;
    if (left == 0)
        return false;
    size_t slices = slice_bytes <= PART_BYTES ? PART_BYTES / slice_bytes : 1;
    size_t rows = slice_bytes <= PART_BYTES ? r->rows : PART_BYTES / r->row_bytes;
    rows = rows > 0 ? rows : 1;
    p->slices = slices < left ? (uint32_t)slices : left;
    p->rows = rows < r->rows - p->row ? (uint32_t)rows : r->rows - p->row;
    return true;
}

static uint32_t part_bytes(const struct region *r, const struct part *p)
{
    return (uint32_t)(r->row_bytes * p->rows * p->slices);
}

/* What of the image the part is. */
static void place_part(const struct region *r, const struct part *p, VkImageToMemoryCopyEXT *out)
{
    *out = (VkImageToMemoryCopyEXT){.sType = VK_STRUCTURE_TYPE_IMAGE_TO_MEMORY_COPY_EXT,
                                    .memoryRowLength = part_bytes(r, p), /* see spec/policy.json */
                                    .imageSubresource = r->layers,
                                    .imageOffset = r->offset,
                                    .imageExtent = r->extent};
    uint32_t above = p->row * r->block.height, height = p->rows * r->block.height;
    out->imageOffset.y += (int32_t)above;
    out->imageExtent.height = height < r->extent.height - above ? height : r->extent.height - above;
    if (r->layers.layerCount > 1) {
        out->imageSubresource.baseArrayLayer += p->slice;
        out->imageSubresource.layerCount = p->slices;
    } else {
        out->imageOffset.z += (int32_t)p->slice;
        out->imageExtent.depth = p->slices;
    }
}

typedef void row_fn(void *program, void *packed, size_t bytes);

static void pack_row(void *program, void *packed, size_t bytes)
{
    memcpy(packed, program, bytes);
}

static void unpack_row(void *program, void *packed, size_t bytes)
{
    memcpy(program, packed, bytes);
}

static void each_row(const struct region *r, const struct part *p, const void *program,
                     const void *packed, row_fn *fn)
{
    uint8_t *to = (uint8_t *)(uintptr_t)packed;
    for (uint32_t slice = p->slice; slice < p->slice + p->slices; slice++) {
        for (uint32_t row = p->row; row < p->row + p->rows; row++, to += r->row_bytes)
            fn((uint8_t *)(uintptr_t)program + slice * r->slice_step + row * r->row_step, to,
               r->row_bytes);
    }
}

/* ---- images in mapped memory ---- */

/* Both ends have the same bytes there afterwards, and the server keeps a shadow copy of them. */
static VkResult level(struct vnc_device *device, VkImage handle)
{
    struct vnc_memory *memory = VNC_OBJECT(vnc_resource, handle)->memory;
    struct vnc_link *link = vnc_device_link(device);
    if (!memory || !memory->region)
        return VK_SUCCESS;
    struct vnc_ranges all = {0};
    vnc_ranges_add_memory(&all, memory);
    vnc_ranges_merge(&all);
    struct wire_enc *e = all.failed ? NULL : vnc_link_begin(link);
    VkResult result = all.failed ? VK_ERROR_OUT_OF_HOST_MEMORY : VK_ERROR_DEVICE_LOST;
    if (e) {
        result = vnc_memory_expect(device, &all, false);
        if (result == VK_SUCCESS)
            result = vnc_memory_put_deltas(device, &all, e);
        if (result == VK_SUCCESS)
            result = vnc_link_post(link);
        else
            vnc_link_cancel(link);
    }
    if (result == VK_SUCCESS)
        result = vnc_device_read(device, &all);
    vnc_ranges_fini(&all);
    return result;
}

/* ---- commands ---- */

static VkResult write_part(VkDevice device, const VkCopyMemoryToImageInfoEXT *to,
                           const struct region *r, const struct part *p, const void *program)
{
    void *packed = malloc(part_bytes(r, p));
    if (!packed)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    each_row(r, p, program, packed, pack_row);
    VkImageToMemoryCopyEXT place;
    place_part(r, p, &place);
    VkMemoryToImageCopyEXT copy = {.sType = VK_STRUCTURE_TYPE_MEMORY_TO_IMAGE_COPY_EXT,
                                   .pHostPointer = packed,
                                   .memoryRowLength = place.memoryRowLength,
                                   .imageSubresource = place.imageSubresource,
                                   .imageOffset = place.imageOffset,
                                   .imageExtent = place.imageExtent};
    VkCopyMemoryToImageInfoEXT info = *to;
    info.flags &= ~(VkFlags)VK_HOST_IMAGE_COPY_MEMCPY_EXT;
    info.regionCount = 1;
    info.pRegions = &copy;
    VkResult result = vn_vkCopyMemoryToImageEXT(device, &info);
    free(packed);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL copy_memory_to_image(VkDevice handle,
                                                           const VkCopyMemoryToImageInfoEXT *info)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    VkResult result = level(device, info->dstImage);
    for (uint32_t i = 0; i < info->regionCount && result == VK_SUCCESS; i++) {
        const VkMemoryToImageCopyEXT *from = &info->pRegions[i];
        const VkImageToMemoryCopyEXT place = {.memoryRowLength = from->memoryRowLength,
                                              .memoryImageHeight = from->memoryImageHeight,
                                              .imageSubresource = from->imageSubresource,
                                              .imageOffset = from->imageOffset,
                                              .imageExtent = from->imageExtent};
        struct region r;
        struct part p = {0};
        if (!region_init(&r, VNC_OBJECT(vnc_resource, info->dstImage), info->flags, &place))
            return VK_ERROR_FORMAT_NOT_SUPPORTED;
        while (result == VK_SUCCESS && next_part(&r, &p))
            result = write_part(handle, info, &r, &p, from->pHostPointer);
    }
    return result == VK_SUCCESS ? level(device, info->dstImage) : result;
}

/* A copy from an image whose parts are asked for. */
struct reading {
    VkDevice device;
    const VkCopyImageToMemoryInfoEXT *from;
    struct region region;
    void *program;
};

/* One of its parts, whose bytes are under way. */
struct asked_part {
    struct part part;
    struct vnc_call *call;
};

/* The command that copies the part alone; *copy is its region. */
static VkCopyImageToMemoryInfoEXT info_of_part(const struct reading *reading, const struct part *p,
                                               VkImageToMemoryCopyEXT *copy)
{
    VkCopyImageToMemoryInfoEXT info = *reading->from;
    place_part(&reading->region, p, copy);
    info.flags &= ~(VkFlags)VK_HOST_IMAGE_COPY_MEMCPY_EXT;
    info.regionCount = 1;
    info.pRegions = copy;
    return info;
}

static VkResult ask_for_part(const struct reading *reading, struct asked_part *asked)
{
    struct vnc_link *link = vnc_link_of(reading->device);
    VkImageToMemoryCopyEXT copy;
    VkCopyImageToMemoryInfoEXT info = info_of_part(reading, &asked->part, &copy);
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return VK_ERROR_DEVICE_LOST;
    vn_enc_cmd_vkCopyImageToMemoryEXT(e, reading->device, &info);
    asked->call = vnc_link_call_start(link);
    return asked->call ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
}

static VkResult take_part(const struct reading *reading, const struct asked_part *asked)
{
    const struct region *r = &reading->region;
    VkImageToMemoryCopyEXT copy;
    VkCopyImageToMemoryInfoEXT info = info_of_part(reading, &asked->part, &copy);
    struct vn_decoder reply;
    VkResult result = vnc_link_call_end(asked->call, &reply);
    if (result != VK_SUCCESS)
        return result;
    /* A failure has no bytes. */
    const void *packed = wire_dec_left(&reply.in) > sizeof(uint32_t)
                             ? wire_get_bytes(&reply.in, part_bytes(r, &asked->part))
                             : NULL;
    result = vn_dec_reply_vkCopyImageToMemoryEXT(&reply, reading->device, &info);
    if (result == VK_SUCCESS && packed)
        each_row(r, &asked->part, reading->program, packed, unpack_row);
    return vnc_link_finish(vnc_link_of(reading->device), &reply) == VK_SUCCESS
               ? result
               : VK_ERROR_DEVICE_LOST;
}

/* Several parts at once, so that a round trip is waited for once in a while. */
static VkResult read_parts(const struct reading *reading)
{
    bool sync = vnc_link_client(vnc_link_of(reading->device))->sync;
    uint32_t most = sync ? 1 : PARTS_UNDER_WAY, asked = 0, taken = 0;
    struct asked_part under_way[PARTS_UNDER_WAY];
    struct part next = {0};
    VkResult result = VK_SUCCESS;
    bool more = next_part(&reading->region, &next);
    while (more || taken < asked) {
        if (more && asked - taken < most) {
            struct asked_part *part = &under_way[asked % PARTS_UNDER_WAY];
            part->part = next;
            result = ask_for_part(reading, part);
            asked += result == VK_SUCCESS;
            more = result == VK_SUCCESS && next_part(&reading->region, &next);
        } else {
            VkResult took = take_part(reading, &under_way[taken++ % PARTS_UNDER_WAY]);
            result = result == VK_SUCCESS ? took : result;
            more &= took == VK_SUCCESS;
        }
    }
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL copy_image_to_memory(VkDevice handle,
                                                           const VkCopyImageToMemoryInfoEXT *info)
{
    VkResult result = level(VNC_OBJECT(vnc_device, handle), info->srcImage);
    for (uint32_t i = 0; i < info->regionCount && result == VK_SUCCESS; i++) {
        struct reading reading = {handle, info, {0}, info->pRegions[i].pHostPointer};
        if (!region_init(&reading.region, VNC_OBJECT(vnc_resource, info->srcImage), info->flags,
                         &info->pRegions[i]))
            return VK_ERROR_FORMAT_NOT_SUPPORTED;
        result = read_parts(&reading);
    }
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL copy_image_to_image(VkDevice handle,
                                                          const VkCopyImageToImageInfoEXT *info)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    VkCopyImageToImageInfoEXT driver_info = *info;
    driver_info.flags &= ~(VkFlags)VK_HOST_IMAGE_COPY_MEMCPY_EXT;
    VkResult result = level(device, info->srcImage);
    if (result == VK_SUCCESS)
        result = level(device, info->dstImage);
    if (result == VK_SUCCESS)
        result = vn_vkCopyImageToImageEXT(handle, &driver_info);
    return result == VK_SUCCESS ? level(device, info->dstImage) : result;
}

static VKAPI_ATTR VkResult VKAPI_CALL transition_image_layout(
    VkDevice handle, uint32_t count, const VkHostImageLayoutTransitionInfoEXT *transitions)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    VkResult result = VK_SUCCESS;
    for (uint32_t i = 0; i < count && result == VK_SUCCESS; i++)
        result = level(device, transitions[i].image);
    if (result == VK_SUCCESS)
        result = vn_vkTransitionImageLayoutEXT(handle, count, transitions);
    for (uint32_t i = 0; i < count && result == VK_SUCCESS; i++)
        result = level(device, transitions[i].image);
    return result;
}

/* ---- how much memory a packed subresource takes ---- */

/* False where it is asked for and the driver alone knows it. */
static bool set_memcpy_size(const struct vnc_image_shape *shape,
                            const VkImageSubresource *subresource, VkSubresourceLayout2EXT *layout)
{
    VkSubresourceHostMemcpySizeEXT *out =
        (void *)vn_chain_find(layout->pNext, VK_STRUCTURE_TYPE_SUBRESOURCE_HOST_MEMCPY_SIZE_EXT);
    struct vn_block block;
    if (!out)
        return true;
    if (!vn_block_of(shape->format, subresource->aspectMask, &block))
        return false;
    uint32_t width = shape->extent.width / block.width_divisor >> subresource->mipLevel;
    uint32_t height = shape->extent.height / block.height_divisor >> subresource->mipLevel;
    uint32_t depth = shape->extent.depth >> subresource->mipLevel;
    out->size = (VkDeviceSize)blocks_in(width ? width : 1, block.width) *
                blocks_in(height ? height : 1, block.height) * (depth ? depth : 1) * block.bytes;
    return true;
}

/* Fills what is remembered or follows; false where the driver is to be asked. */
static bool find_layout(VkDevice device, const struct wire_enc *created,
                        const struct vnc_image_shape *shape,
                        const VkImageSubresource2EXT *subresource, VkSubresourceLayout2EXT *out)
{
    const VkImageSubresource *part = &subresource->imageSubresource;
    return !subresource->pNext &&
           !vn_chain_has_others(out->pNext, VK_STRUCTURE_TYPE_SUBRESOURCE_HOST_MEMCPY_SIZE_EXT) &&
           set_memcpy_size(shape, part, out) &&
           vnc_layout_find(device, created, part, &out->subresourceLayout);
}

/* The driver was asked, and wrote all of it. */
static void keep_layout(VkDevice device, const struct wire_enc *created,
                        const struct vnc_image_shape *shape,
                        const VkImageSubresource2EXT *subresource, VkSubresourceLayout2EXT *out)
{
    (void)set_memcpy_size(shape, &subresource->imageSubresource, out);
    if (!subresource->pNext)
        vnc_layout_keep(device, created, &subresource->imageSubresource, &out->subresourceLayout);
}

static VKAPI_ATTR void VKAPI_CALL get_image_subresource_layout(
    VkDevice device, VkImage image, const VkImageSubresource2EXT *subresource,
    VkSubresourceLayout2EXT *out)
{
    const struct vnc_resource *r = VNC_OBJECT(vnc_resource, image);
    if (find_layout(device, &r->created, &r->shape, subresource, out))
        return;
    vn_vkGetImageSubresourceLayout2EXT(device, image, subresource, out);
    keep_layout(device, &r->created, &r->shape, subresource, out);
}

#ifdef VK_KHR_maintenance5
static VKAPI_ATTR void VKAPI_CALL get_device_image_subresource_layout(
    VkDevice device, const VkDeviceImageSubresourceInfoKHR *info, VkSubresourceLayout2EXT *out)
{
    struct vnc_image_shape shape = vnc_image_shape(info->pCreateInfo);
    struct wire_enc created;
    wire_enc_init(&created, VNC_MEMO_KEY_BYTES);
    vn_enc_VkImageCreateInfo(&created, info->pCreateInfo);
    if (!find_layout(device, &created, &shape, info->pSubresource, out)) {
        vn_vkGetDeviceImageSubresourceLayoutKHR(device, info, out);
        keep_layout(device, &created, &shape, info->pSubresource, out);
    }
    wire_enc_fini(&created);
}
#endif

#endif

const struct vnc_entry vnc_entries_host_copy[] = {
#ifdef VK_EXT_host_image_copy
    VNC_ENTRY(vkCopyMemoryToImageEXT, copy_memory_to_image),
    VNC_ENTRY(vkCopyImageToMemoryEXT, copy_image_to_memory),
    VNC_ENTRY(vkCopyImageToImageEXT, copy_image_to_image),
    VNC_ENTRY(vkTransitionImageLayoutEXT, transition_image_layout),
    VNC_ENTRY(vkGetImageSubresourceLayout2EXT, get_image_subresource_layout),
#ifdef VK_KHR_maintenance5
    VNC_ENTRY(vkGetDeviceImageSubresourceLayoutKHR, get_device_image_subresource_layout),
#endif
#endif
    {NULL, NULL},
};
