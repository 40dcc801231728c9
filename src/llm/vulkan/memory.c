#include "llm/vulkan/memory.h"

#include "base/log.h"
#include "base/units.h"
#include "llm/model/why.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_BYTES_MIN (UINT64_C(4) << 20)  /* for small models */
#define SLAB_BYTES_MAX (UINT64_C(64) << 20) /* 4096 of them are 256 GiB */

#define MAPPED_BYTES (2 * LLM_VK_MOVED_BYTES)

enum {
    PIECE_ALIGN = 256,
    QUAD = 16,
    GROUP_QUADS = 1024, /* of a workgroup of move.comp */
};

struct llm_vk_slab {
    struct llm_vk_slab *next;
    struct llm_vk_block block;
    uint64_t used;
    uint32_t pieces;
};

/* ---- blocks ---- */

struct kind_facts {
    VkBufferUsageFlags usage;
    VkMemoryPropertyFlags needs, likes;
};

static const struct kind_facts kinds[] = {
    [LLM_VK_LOCAL] = {.usage = VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                               VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                               VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
                      .likes = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT},
    [LLM_VK_STAGING] = {.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT,
                        .needs = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                 VK_MEMORY_PROPERTY_HOST_COHERENT_BIT},
    [LLM_VK_READBACK] = {.usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT,
                         .needs = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                  VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                         .likes = VK_MEMORY_PROPERTY_HOST_CACHED_BIT},
};

/* The first type with all preferred flags, else with the required ones; UINT32_MAX: none. */
static uint32_t memory_type(const struct llm_vk_device *d, uint32_t bits,
                            const struct kind_facts *kind)
{
    uint32_t second = UINT32_MAX;
    for (uint32_t i = 0; i < d->memory.memoryTypeCount; i++) {
        VkMemoryPropertyFlags flags = d->memory.memoryTypes[i].propertyFlags;
        if (!(bits >> i & 1) || (flags & kind->needs) != kind->needs)
            continue;
        if ((flags & kind->likes) == kind->likes)
            return i;
        second = second < i ? second : i;
    }
    return second;
}

static int no_memory(const struct llm_vk_device *d, uint64_t bytes, uint32_t type, const char *what,
                     char *why)
{
    char wanted[HW_FORMAT_CHARS], taken[HW_FORMAT_CHARS], has[HW_FORMAT_CHARS];
    uint64_t heap = d->memory.memoryHeaps[d->memory.memoryTypes[type].heapIndex].size;
    return llm_why(why, -ENOMEM,
                   "%s needs %s on %s, whose memory of %s holds %s of this process; use a smaller "
                   "model or context",
                   what, hw_format_size(wanted, bytes), d->properties.deviceName,
                   hw_format_size(has, heap), hw_format_size(taken, d->taken));
}

static int bind_memory(struct llm_vk_device *d, enum llm_vk_kind kind, const char *what,
                       struct llm_vk_block *b, char *why)
{
    VkMemoryRequirements needs;
    d->vk.GetBufferMemoryRequirements(d->device, b->buffer, &needs);
    VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                       .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .pNext = kind == LLM_VK_LOCAL ? &flags : NULL,
                                 .allocationSize = needs.size,
                                 .memoryTypeIndex =
                                     memory_type(d, needs.memoryTypeBits, &kinds[kind])};
    if (info.memoryTypeIndex == UINT32_MAX)
        return llm_why(why, -EIO, "%s: the device has no memory for it", what);
    VkResult result = d->vk.AllocateMemory(d->device, &info, NULL, &b->memory);
    if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY)
        return no_memory(d, needs.size, info.memoryTypeIndex, what, why);
    if (result)
        return llm_vk_fail("vkAllocateMemory", result, why);
    b->taken = needs.size;
    d->taken += b->taken;
    result = d->vk.BindBufferMemory(d->device, b->buffer, b->memory, 0);
    if (result == VK_SUCCESS && kind != LLM_VK_LOCAL)
        result = d->vk.MapMemory(d->device, b->memory, 0, VK_WHOLE_SIZE, 0, &b->map);
    return result ? llm_vk_fail(what, result, why) : 0;
}

int llm_vk_block_create(struct llm_vk_device *d, uint64_t bytes, enum llm_vk_kind kind,
                        const char *what, struct llm_vk_block *out, char *why)
{
    assert(bytes > 0);
    if (bytes > d->allocation_max) {
        char wanted[HW_FORMAT_CHARS], most[HW_FORMAT_CHARS];
        return llm_why(why, -ENOMEM, "%s needs %s in one piece; %s allows %s", what,
                       hw_format_size(wanted, bytes), d->properties.deviceName,
                       hw_format_size(most, d->allocation_max));
    }
    struct llm_vk_block b = {.bytes = bytes};
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = bytes,
                               .usage = kinds[kind].usage,
                               .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
    VkResult result = d->vk.CreateBuffer(d->device, &info, NULL, &b.buffer);
    if (result)
        return llm_vk_fail("vkCreateBuffer", result, why);
    int rc = bind_memory(d, kind, what, &b, why);
    if (rc) {
        llm_vk_block_destroy(d, &b);
        return rc;
    }
    if (kind == LLM_VK_LOCAL) {
        VkBufferDeviceAddressInfo of = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                        .buffer = b.buffer};
        b.address = d->vk.GetBufferDeviceAddress(d->device, &of);
    }
    d->made++;
    *out = b;
    return 0;
}

void llm_vk_block_destroy(struct llm_vk_device *d, struct llm_vk_block *block)
{
    if (!block->buffer)
        return;
    d->vk.DestroyBuffer(d->device, block->buffer, NULL);
    d->vk.FreeMemory(d->device, block->memory, NULL);
    d->taken -= block->taken;
    *block = (struct llm_vk_block){0};
}

/* ---- pieces ---- */

static uint64_t slab_bytes_for(const struct llm_vk_memory *m, uint64_t bytes)
{
    uint64_t size = m->device->taken; /* doubles what there is */
    size = size < SLAB_BYTES_MIN ? SLAB_BYTES_MIN : size > SLAB_BYTES_MAX ? SLAB_BYTES_MAX : size;
    return size < bytes ? bytes : size;
}

static int add_slab(struct llm_vk_memory *m, uint64_t bytes, const char *what, char *why)
{
    struct llm_vk_slab *slab = calloc(1, sizeof *slab);
    if (!slab)
        return llm_why(why, -ENOMEM, "no memory for %s", what);
    int rc = llm_vk_block_create(m->device, slab_bytes_for(m, bytes), LLM_VK_LOCAL, what,
                                 &slab->block, why);
    if (rc == -ENOMEM) /* there may be just enough */
        rc = llm_vk_block_create(m->device, bytes, LLM_VK_LOCAL, what, &slab->block, why);
    if (rc) {
        free(slab);
        return rc;
    }
    slab->next = m->slabs;
    m->slabs = slab;
    return 0;
}

int llm_vk_piece_take(struct llm_vk_memory *m, uint64_t bytes, const char *what,
                      struct llm_vk_piece *out, char *why)
{
    uint64_t size = (bytes + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
    if (!m->slabs || m->slabs->block.bytes - m->slabs->used < size) {
        int rc = add_slab(m, size, what, why);
        if (rc)
            return rc;
    }
    struct llm_vk_slab *slab = m->slabs;
    *out = (struct llm_vk_piece){.slab = slab, .offset = slab->used, .bytes = bytes};
    slab->used += size;
    slab->pieces++;
    return 0;
}

void llm_vk_piece_give(struct llm_vk_memory *m, struct llm_vk_piece *piece)
{
    struct llm_vk_slab *slab = piece->slab;
    *piece = (struct llm_vk_piece){0};
    if (!slab || --slab->pieces > 0)
        return;
    struct llm_vk_slab **at = &m->slabs;
    while (*at != slab)
        at = &(*at)->next;
    *at = slab->next;
    llm_vk_block_destroy(m->device, &slab->block);
    free(slab);
}

VkBuffer llm_vk_piece_buffer(const struct llm_vk_piece *piece)
{
    return piece->slab->block.buffer;
}

VkDeviceAddress llm_vk_piece_address(const struct llm_vk_piece *piece)
{
    return piece->slab->block.address + piece->offset;
}

/* ---- life ---- */

/* About as long as a link of 32 GB/s takes: so the thread spins for short copies. */
static int wait_for_moves(struct llm_vk_memory *m, char *why)
{
    return llm_vk_wait(m->device, LLM_VK_MOVES, m->moving_bytes / 32 + 1, why);
}

int llm_vk_memory_init(struct llm_vk_memory *m, struct llm_vk_pipelines *p, char *why)
{
    struct llm_vk_device *d = p->device;
    *m = (struct llm_vk_memory){.device = d, .pipelines = p};
    int rc = llm_vk_block_create(d, MAPPED_BYTES, LLM_VK_STAGING, "uploading", &m->staging, why);
    if (rc == 0)
        rc = llm_vk_block_create(d, MAPPED_BYTES, LLM_VK_READBACK, "reading back", &m->readback,
                                 why);
    if (rc)
        llm_vk_memory_fini(m);
    return rc;
}

void llm_vk_memory_fini(struct llm_vk_memory *m)
{
    char why[LLM_WHY_CHARS];
    assert(!m->slabs);
    if (!m->device)
        return;
    if (wait_for_moves(m, why)) /* after an error some may be under way */
        hw_info(HW_CAT_LLM, "moves did not end: %s", why);
    llm_vk_block_destroy(m->device, &m->staging);
    llm_vk_block_destroy(m->device, &m->readback);
    llm_vk_block_destroy(m->device, &m->packed);
}

/* ---- bytes ---- */

static int end_and_start(struct llm_vk_memory *m, uint64_t bytes, char *why)
{
    int rc = llm_vk_end(m->device, why);
    m->moving_bytes = bytes;
    return rc ? rc : llm_vk_start(m->device, LLM_VK_MOVES, why);
}

/* Each a region, one behind the other in the mapped block from `at` on. */
static void record_regions(struct llm_vk_device *d, const struct llm_vk_block *mapped, uint64_t at,
                           bool to_mapped, const struct llm_vk_move *moves, uint32_t count)
{
    VkBufferCopy regions[LLM_VK_MOVES_MAX];
    for (uint32_t i = 0; i < count; i++) {
        regions[i] = (VkBufferCopy){.srcOffset = to_mapped ? moves[i].offset : at,
                                    .dstOffset = to_mapped ? at : moves[i].offset,
                                    .size = moves[i].bytes};
        at += moves[i].bytes;
    }
    for (uint32_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && moves[next].buffer == moves[i].buffer; next++)
            ;
        d->vk.CmdCopyBuffer(d->commands, to_mapped ? moves[i].buffer : mapped->buffer,
                            to_mapped ? mapped->buffer : moves[i].buffer, next - i, &regions[i]);
    }
}

/* A piece in the list of move.comp; in quads of 16 bytes. */
struct piece {
    VkDeviceAddress address;
    uint32_t at, quads;
};

struct move_push {
    VkDeviceAddress block, list;
    uint32_t to_block, none;
};

static void record_pieces(struct llm_vk_memory *m, VkPipeline pipeline, uint64_t at, bool to_mapped,
                          const struct llm_vk_move *moves, uint32_t count)
{
    struct piece list[LLM_VK_MOVES_MAX];
    struct llm_vk_device *d = m->device;
    struct move_push push = {.block = m->packed.address,
                             .list = m->packed.address + LLM_VK_MOVED_BYTES,
                             .to_block = to_mapped};
    VkBufferCopy all = {.srcOffset = to_mapped ? 0 : at, .dstOffset = to_mapped ? at : 0};
    uint32_t largest = 0;
    for (uint32_t i = 0; i < count; i++) {
        list[i] = (struct piece){.address = moves[i].address,
                                 .at = (uint32_t)(all.size / QUAD),
                                 .quads = (uint32_t)(moves[i].bytes / QUAD)};
        largest = list[i].quads > largest ? list[i].quads : largest;
        all.size += moves[i].bytes;
    }
    d->vk.CmdUpdateBuffer(d->commands, m->packed.buffer, LLM_VK_MOVED_BYTES, count * sizeof list[0],
                          list);
    if (!to_mapped)
        d->vk.CmdCopyBuffer(d->commands, m->staging.buffer, m->packed.buffer, 1, &all);
    llm_vk_barrier(d);
    d->vk.CmdBindPipeline(d->commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    d->vk.CmdPushConstants(d->commands, m->pipelines->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                           sizeof push, &push);
    d->vk.CmdDispatch(d->commands, (largest + GROUP_QUADS - 1) / GROUP_QUADS, count, 1);
    if (to_mapped) {
        llm_vk_barrier(d);
        d->vk.CmdCopyBuffer(d->commands, m->packed.buffer, m->readback.buffer, 1, &all);
    }
}

static bool are_pieces(const struct llm_vk_move *moves, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!moves[i].address)
            return false;
    }
    return count > 1;
}

/* Starts moves whose bytes lie one behind the other in half a mapped block, after those before. */
static int start_moves(struct llm_vk_memory *m, uint32_t half, bool to_mapped,
                       const struct llm_vk_move *moves, uint32_t count, char *why)
{
    struct llm_vk_device *d = m->device;
    struct llm_vk_variant variant = {.shader = LLM_VK_MOVE};
    VkPipeline pipeline = VK_NULL_HANDLE;
    uint64_t bytes = 0, at = half * LLM_VK_MOVED_BYTES;
    int rc = wait_for_moves(m, why);
    assert(count <= LLM_VK_MOVES_MAX);
    for (uint32_t i = 0; i < count; i++)
        bytes += moves[i].bytes;
    if (rc == 0 && are_pieces(moves, count)) {
        uint64_t room = LLM_VK_MOVED_BYTES + LLM_VK_MOVES_MAX * sizeof(struct piece);
        if (!m->packed.buffer)
            rc = llm_vk_block_create(d, room, LLM_VK_LOCAL, "moving KV", &m->packed, why);
        if (rc == 0)
            rc = llm_vk_pipeline(m->pipelines, &variant, &pipeline, why);
    }
    if (rc == 0)
        rc = llm_vk_record(d, LLM_VK_MOVES, why);
    if (rc)
        return rc;
    if (pipeline)
        record_pieces(m, pipeline, at, to_mapped, moves, count);
    else
        record_regions(d, to_mapped ? &m->readback : &m->staging, at, to_mapped, moves, count);
    llm_vk_host_barrier(d);
    return end_and_start(m, bytes, why);
}

static bool meet(const struct llm_vk_move *a, const struct llm_vk_move *b)
{
    return a->buffer == b->buffer && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* The next ones are queued in the other half. */
static int start_queued(struct llm_vk_memory *m, char *why)
{
    uint32_t count = m->queued_count, half = m->half;
    m->queued_count = 0;
    m->queued_bytes = 0;
    m->half = 1 - half;
    return count ? start_moves(m, half, false, m->queued, count, why) : 0;
}

int llm_vk_flush(struct llm_vk_memory *m, char *why)
{
    int rc = start_queued(m, why);
    return rc ? rc : wait_for_moves(m, why);
}

int llm_vk_queue(struct llm_vk_memory *m, const struct llm_vk_move *to, uint8_t **room, char *why)
{
    assert(to->bytes <= LLM_VK_MOVED_BYTES);
    bool fits =
        m->queued_count < LLM_VK_MOVES_MAX && to->bytes <= LLM_VK_MOVED_BYTES - m->queued_bytes;
    for (uint32_t i = 0; i < m->queued_count && fits; i++)
        fits = !meet(to, &m->queued[i]); /* copies of one submission have no order */
    int rc = fits ? 0 : start_queued(m, why);
    if (rc)
        return rc;
    *room = (uint8_t *)m->staging.map + m->half * LLM_VK_MOVED_BYTES + m->queued_bytes;
    m->queued[m->queued_count++] = *to;
    m->queued_bytes += to->bytes;
    return 0;
}

int llm_vk_gather(struct llm_vk_memory *m, const struct llm_vk_move *from, uint32_t count,
                  uint32_t half, char *why)
{
    int rc = llm_vk_flush(m, why);
    return rc ? rc : start_moves(m, half, true, from, count, why);
}

int llm_vk_gathered(struct llm_vk_memory *m, uint32_t half, const uint8_t **bytes_out, char *why)
{
    *bytes_out = (const uint8_t *)m->readback.map + half * LLM_VK_MOVED_BYTES;
    return wait_for_moves(m, why);
}

int llm_vk_upload(struct llm_vk_memory *m, VkBuffer to, uint64_t offset, uint64_t bytes,
                  uint64_t unit, llm_vk_fill *fill, const void *user, char *why)
{
    uint64_t most = LLM_VK_MOVED_BYTES / unit * unit;
    assert(most > 0);
    for (uint64_t at = 0; at < bytes;) {
        struct llm_vk_move part = {
            .buffer = to, .offset = offset + at, .bytes = bytes - at < most ? bytes - at : most};
        uint8_t *room;
        int rc = llm_vk_queue(m, &part, &room, why);
        if (rc)
            return rc;
        fill(user, at, part.bytes, room);
        at += part.bytes;
    }
    return llm_vk_flush(m, why);
}

int llm_vk_download(struct llm_vk_memory *m, VkBuffer from, uint64_t offset, uint64_t bytes,
                    void *dst, char *why)
{
    for (uint64_t at = 0; at < bytes;) {
        uint64_t left = bytes - at, most = LLM_VK_MOVED_BYTES;
        struct llm_vk_move part = {
            .buffer = from, .offset = offset + at, .bytes = left < most ? left : most};
        const uint8_t *there;
        int rc = llm_vk_gather(m, &part, 1, 0, why);
        if (rc == 0)
            rc = llm_vk_gathered(m, 0, &there, why);
        if (rc)
            return rc;
        memcpy((uint8_t *)dst + at, there, part.bytes);
        at += part.bytes;
    }
    return 0;
}

int llm_vk_zero(struct llm_vk_memory *m, const struct llm_vk_block *block, char *why)
{
    struct llm_vk_device *d = m->device;
    int rc = wait_for_moves(m, why);
    if (rc == 0)
        rc = llm_vk_record(d, LLM_VK_MOVES, why);
    if (rc)
        return rc;
    d->vk.CmdFillBuffer(d->commands, block->buffer, 0, VK_WHOLE_SIZE, 0);
    rc = end_and_start(m, 0, why);
    return rc ? rc : wait_for_moves(m, why);
}

void llm_vk_fill_copy(const void *user, uint64_t at, uint64_t bytes, uint8_t *dst)
{
    memcpy(dst, (const uint8_t *)user + at, bytes);
}
