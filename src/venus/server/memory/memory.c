/* Allocations and their shadow copies; see memory.h. */
#include "venus/server/memory/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "venus/common/chain.h"
#include "venus/common/keymap.h"
#include "venus/common/protocol.h"
#include "venus/memory/shadow.h"
#include "venus/memory/unshadowed.h"
#include "venus/server/memory/bus.h"
#include "venus/server/memory/clear.h"

enum {
    /* Pages compared before the lock is given to others: 2 MiB, a fifth of a millisecond where the
     * CPU caches them. */
    PAGES_A_HOLD = 512,
    /* Pages of one PAGES message: the client stores one message while the server writes the next.
     */
    PAGES_MOST = 16,
    PAGES_LEAST = 8, /* fewer gather in a delta */
    PAGES_HEAD = 2 * sizeof(uint64_t),
    /* The same of awaited pages, which the client receives in place: one frame of the RPC. */
    AWAITED_MOST = (RPC_CHUNK_BYTES - PAGES_HEAD) / VN_PAGE_BYTES,
    /* PAGES of demand-paged memory are such blocks: the largest host pages. */
    BLOCK_PAGES = (64 << 10) / VN_PAGE_BYTES,
    /* Of one demand-paged memory, compared in a fifth of a millisecond: a fetch is a round trip. */
    HELD_MOST = (2 << 20) / VN_PAGE_BYTES,
    /* Bytes of changes pushed for held pages until the client has to ask for them again, if it
     * still reads them: about what a line of 1 Gbit/s and 10 ms carries in a round trip.  Each time
     * it asks twice as many, so that a program that reads on hardly waits. */
    HELD_PUSHES = 1 << 20,
    HELD_PUSHES_MOST = 64 << 20,
    /* Percent of a heap that one client may have.  The rest lets another client start, and keeps
     * the machine working where the heap is its main memory. */
    HEAP_SHARE = 90,
};

/* The CPU reads memory behind a bus a hundred times slower.  A thread that held the lock for this
 * long sleeps before it takes the lock again.  Without that sleep the waiting threads would never
 * find the lock free, and one of them must answer heartbeats. */
static const uint64_t long_hold_ns = 5 * HW_MS;
static const struct timespec nap = {.tv_nsec = 200 * HW_US};

/* What all devices of the client have allocated from the heaps of one physical device. */
struct heaps {
    struct heaps *next;
    VkPhysicalDevice of;
    uint64_t bytes[VK_MAX_MEMORY_HEAPS]; /* the executor's */
};

struct memory {
    uint64_t id;
    VkDeviceMemory handle;
    struct vns_device *device;
    uint64_t size;
    bool visible, coherent, cached, demand_paged;
    bool dedicated; /* to one image or buffer */
    uint32_t type;
    uint64_t *counted;    /* where its heap's bytes are */
    uint64_t submissions; /* of the device when it was allocated */
    bool cleared;         /* when it was taken over */
    uint8_t *mapped;      /* by the driver; NULL: not yet */
    uint8_t *live;        /* the same while the client has mapped it */
    /* Of demand-paged memory it is that of held pages, and only where the CPU caches them. */
    struct vn_shadow shadow;
    /* Pages that work under way fills and the client awaits: what it has of them is not known. */
    struct vn_pageset awaited;
    /* Of demand-paged memory: pages that the client does not have; under the turn. */
    struct vn_pageset gone;
    /* And pages that it has because it asked for them: the program mostly touches them again, so
     * they are compared and not dropped. */
    struct vn_pageset held;
    uint64_t pushed, push_limit; /* for held pages since the client had to ask */
};

struct vns_memories {
    struct vns_channel *channel;
    struct vn_keymap by_id; /* the channel's lock guards it, shadow copies, codec and out */
    struct vn_delta_codec *codec;
    struct wire_enc out;
    bool near;          /* the client is on this machine */
    uint64_t max_bytes; /* 0: a share of each heap */
    uint64_t bytes;     /* of all; the executor's */
    struct heaps *heaps;
    bool told_limit;
    /* Ranges that work under way can write.  It grows under the lock only.  Loads are relaxed: a
     * thread that relies on a small value holds the lock. */
    _Atomic uint64_t exposed;
};

struct vns_range *vns_ranges_get(struct wire_dec *d, uint32_t *count)
{
    *count = wire_dec_count(d, VNS_RANGE_WIRE, VN_RANGES_MAX);
    struct vns_range *ranges = *count ? malloc(*count * sizeof(*ranges)) : NULL;
    if (*count && !ranges) {
        wire_dec_fail(d, -ENOMEM);
        *count = 0;
    }
    for (uint32_t i = 0; i < *count; i++) {
        ranges[i].memory = wire_get_u64(d);
        ranges[i].offset = wire_get_u64(d);
        uint64_t bytes = wire_get_u64(d);
        ranges[i].bytes = bytes & ~(VN_RANGE_FILLED | VN_RANGE_AWAITED);
        ranges[i].filled = bytes & VN_RANGE_FILLED;
        ranges[i].awaited = bytes & VN_RANGE_AWAITED;
    }
    return ranges;
}

static bool line_is_behind(void *user)
{
    return rpc_ep_is_behind(user);
}

int vns_memories_create(struct vns_channel *channel, uint64_t max_bytes, struct vns_memories **out)
{
    struct vns_memories *m = calloc(1, sizeof(*m));
    /* On one machine, sending bytes is quicker than compressing them. */
    bool near = rpc_ep_transport(channel->ep)->local;
    if (!m || vn_delta_codec_create(near ? 0 : VN_DELTA_ZSTD_MIN, &m->codec)) {
        free(m);
        return -ENOMEM;
    }
    vn_delta_codec_watch(m->codec, line_is_behind, channel->ep);
    m->near = near;
    m->channel = channel;
    m->max_bytes = max_bytes;
    vn_keymap_init(&m->by_id);
    wire_enc_init(&m->out, 2 * VN_DELTA_BYTES);
    *out = m;
    return 0;
}

static void fini_books(struct memory *memory)
{
    vn_shadow_fini(&memory->shadow);
    vn_pageset_fini(&memory->awaited);
    vn_pageset_fini(&memory->gone);
    vn_pageset_fini(&memory->held);
}

static void memory_free(struct memory *memory)
{
    fini_books(memory);
    free(memory);
}

void vns_memories_destroy(struct vns_memories *m)
{
    struct memory *memory;
    for (size_t at = 0; (memory = vn_keymap_next(&m->by_id, &at)) != NULL;)
        memory_free(memory);
    while (m->heaps) {
        struct heaps *heaps = m->heaps;
        m->heaps = heaps->next;
        free(heaps);
    }
    vn_keymap_fini(&m->by_id);
    vn_delta_codec_destroy(m->codec);
    wire_enc_fini(&m->out);
    free(m);
}

/* ---- the driver's caches ---- */

static VkMappedMemoryRange whole(const struct memory *memory)
{
    return (VkMappedMemoryRange){.sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE,
                                 .memory = memory->handle,
                                 .size = VK_WHOLE_SIZE};
}

/* The driver fails here only when it runs out of memory; the next wait on the device fails too. */
static void flush_caches(const struct memory *memory)
{
    VkMappedMemoryRange range = whole(memory);
    if (!memory->coherent)
        (void)memory->device->flush_memory(memory->device->handle, 1, &range);
}

static void invalidate_caches(const struct memory *memory)
{
    VkMappedMemoryRange range = whole(memory);
    if (!memory->coherent)
        (void)memory->device->invalidate_memory(memory->device->handle, 1, &range);
}

/* ---- allocations ---- */

static struct heaps *heaps_of(struct vns_memories *m, const struct vns_device *device)
{
    struct heaps *heaps = m->heaps;
    while (heaps && heaps->of != device->physical)
        heaps = heaps->next;
    if (heaps || !(heaps = calloc(1, sizeof(*heaps))))
        return heaps;
    *heaps = (struct heaps){.next = m->heaps, .of = device->physical};
    return m->heaps = heaps;
}

static bool over_limit(struct vns_memories *m, const struct vns_device *device, uint32_t heap,
                       uint64_t in_heap, uint64_t bytes)
{
    uint64_t has = m->max_bytes ? m->bytes : in_heap;
    uint64_t max =
        m->max_bytes ? m->max_bytes : device->memory.memoryHeaps[heap].size / 100 * HEAP_SHARE;
    if (bytes <= max && has <= max - bytes)
        return false;
    if (!m->told_limit)
        hw_warn(HW_CAT_MEMORY,
                "%s: refused %llu bytes of memory: it has %llu of %llu "
                "(--max-memory)",
                rpc_ep_peer(m->channel->ep), (unsigned long long)bytes, (unsigned long long)has,
                (unsigned long long)max);
    m->told_limit = true;
    return true;
}

static int enter(struct vns_memories *m, const struct memory *made)
{
    struct memory *memory = malloc(sizeof(*memory));
    if (!memory)
        return -ENOMEM;
    *memory = *made;
    vns_channel_lock(m->channel);
    int rc = vn_keymap_put(&m->by_id, made->id, memory);
    vns_channel_unlock(m->channel);
    if (rc) {
        free(memory);
        return rc;
    }
    m->bytes += made->size;
    *made->counted += made->size;
    return 0;
}

static bool is_dedicated(const VkMemoryAllocateInfo *info)
{
    const VkMemoryDedicatedAllocateInfo *own =
        vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO);
    return own && (own->image || own->buffer);
}

VkResult vns_memories_allocate(struct vns_memories *m, struct vns_device *device, uint64_t id,
                               const VkMemoryAllocateInfo *info, VkDeviceMemory *out)
{
    if (info->memoryTypeIndex >= device->memory.memoryTypeCount)
        return VK_ERROR_UNKNOWN;
    const VkMemoryType *type = &device->memory.memoryTypes[info->memoryTypeIndex];
    struct heaps *heaps = heaps_of(m, device);
    if (!heaps)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    uint64_t *counted = &heaps->bytes[type->heapIndex];
    if (over_limit(m, device, type->heapIndex, *counted, info->allocationSize))
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    VkMemoryPropertyFlags flags = type->propertyFlags;
    struct memory made = {.id = id,
                          .device = device,
                          .size = info->allocationSize,
                          .visible = flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT,
                          .coherent = flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                          .cached = flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
                          .dedicated = is_dedicated(info),
                          .type = info->memoryTypeIndex,
                          .counted = counted,
                          .submissions = device->submissions};
    VkResult result = device->driver.vkAllocateMemory(device->handle, info, NULL, &made.handle);
    if (result < 0)
        return result;
    if (enter(m, &made)) {
        device->driver.vkFreeMemory(device->handle, made.handle, NULL);
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    *out = made.handle;
    return VK_SUCCESS;
}

static void discard(struct vns_memories *m, struct memory *memory)
{
    m->bytes -= memory->size;
    *memory->counted -= memory->size;
    memory_free(memory);
}

/* It takes the turn, so no thread is sending bytes of this memory. */
void vns_memories_forget(struct vns_memories *m, uint64_t id)
{
    vns_channel_turn(m->channel);
    vns_channel_lock(m->channel);
    struct memory *memory = vn_keymap_take(&m->by_id, id);
    if (memory)
        discard(m, memory);
    vns_channel_unlock(m->channel);
    vns_channel_turn_end(m->channel);
}

int vns_memories_renew(struct vns_memories *m, uint64_t id, uint64_t new_id)
{
    const struct memory *old = vn_keymap_get(&m->by_id, id); /* only the executor puts and takes */
    if (!old)
        return -ENOENT;
    struct memory made = {.id = new_id,
                          .handle = old->handle,
                          .device = old->device,
                          .size = old->size,
                          .visible = old->visible,
                          .coherent = old->coherent,
                          .cached = old->cached,
                          .dedicated = old->dedicated,
                          .type = old->type,
                          .counted = old->counted,
                          .submissions = old->device->submissions,
                          .cleared = old->mapped,
                          .mapped = old->mapped};
    int rc = enter(m, &made);
    if (rc)
        return rc;
    vns_memories_forget(m, id);
    if (made.mapped) { /* or a mapping behind other work would send what it held before */
        vns_clear(made.mapped, made.size);
        flush_caches(&made);
    }
    return 0;
}

void vns_memories_free_device(struct vns_memories *m, const struct vns_device *device)
{
    struct memory *memory;
    vns_channel_turn(m->channel);
    vns_channel_lock(m->channel);
    for (size_t at = 0; (memory = vn_keymap_next(&m->by_id, &at)) != NULL;) {
        if (memory->device != device)
            continue;
        (void)vn_keymap_take(&m->by_id, memory->id);
        device->driver.vkFreeMemory(device->handle, memory->handle, NULL);
        discard(m, memory);
        at = 0; /* others have moved */
    }
    vns_channel_unlock(m->channel);
    vns_channel_turn_end(m->channel);
}

/* ---- the client's writes ---- */

static bool is_held(const struct memory *memory, size_t page)
{
    return memory->held.count && vn_pageset_has(&memory->held, page);
}

/* With a delta; only held pages have shadow copies. */
static int overwrite_demand_paged(struct vns_memories *m, struct memory *memory, const void *data,
                                  size_t len)
{
    struct vn_delta_in in;
    struct vn_change change;
    int rc = vn_delta_open(m->codec, data, len, memory->size, &in);
    while (rc == 0 && vn_delta_next(&in, &change)) {
        if (is_held(memory, change.page)) {
            vn_shadow_make(&memory->shadow, memory->live, change.page, change.page + 1);
            vn_shadow_overwrite(&memory->shadow, memory->live, &change);
        } else {
            vn_unshadowed_store(memory->live, &change);
        }
    }
    return rc;
}

int vns_memories_apply(struct vns_memories *m, uint64_t id, const void *data, size_t len)
{
    vns_channel_lock(m->channel);
    struct memory *memory = vn_keymap_get(&m->by_id, id);
    int rc = -ENOENT;
    if (memory && memory->live && memory->demand_paged)
        rc = overwrite_demand_paged(m, memory, data, len);
    else if (memory && memory->live)
        rc = vn_shadow_apply(&memory->shadow, memory->live, m->codec, data, len);
    if (rc == 0)
        flush_caches(memory);
    vns_channel_unlock(m->channel);
    return rc;
}

/* Under the lock: 0 when the range is of mapped memory. */
static int check_range(const struct memory *memory, uint64_t off, size_t len)
{
    if (!memory || !memory->live)
        return -ENOENT;
    bool inside = off <= memory->size && len <= memory->size - off;
    return inside && off % VN_PAGE_BYTES == 0 ? 0 : -EPROTO;
}

static void copy_in(const struct memory *memory, size_t off, const void *bytes, size_t len)
{
    if (!memory->shadow.bytes)
        memcpy(memory->live + off, bytes, len);
    else
        vn_shadow_store_copy(&memory->shadow, memory->live, off, bytes, len, memory->cached);
}

/* The executor copies the bytes without the lock, so that other threads receive and report
 * meanwhile.  The memory stays mapped, because only the executor maps and frees.  No other thread
 * writes to live, and threads that compare skip pages that are being stored.  Only the executor
 * reads memory without a shadow copy.  Where the driver's caches must be invalidated the executor
 * keeps the lock: an invalidation would drop bytes that are not flushed yet. */
int vns_memories_store(struct vns_memories *m, uint64_t id, uint64_t off, const void *bytes,
                       size_t len)
{
    vns_channel_lock(m->channel);
    struct memory *memory = vn_keymap_get(&m->by_id, id);
    int rc = check_range(memory, off, len);
    if (rc) {
        vns_channel_unlock(m->channel);
        return rc;
    }
    bool is_skipped = !memory->shadow.bytes ||
                      vn_shadow_store_begin(&memory->shadow, memory->live, (size_t)off, len);
    bool apart = is_skipped && memory->coherent;
    if (apart)
        vns_channel_unlock(m->channel);
    copy_in(memory, (size_t)off, bytes, len);
    if (apart)
        vns_channel_lock(m->channel);
    if (memory->shadow.bytes)
        vn_shadow_store_end(&memory->shadow, (size_t)off, len, memory->cached);
    flush_caches(memory);
    vns_channel_unlock(m->channel);
    return 0;
}

/* For whole pages of coherent, cached memory: the caller receives the bytes there, and no step
 * follows. */
uint8_t *vns_memories_place(struct vns_memories *m, uint64_t id, uint64_t off, size_t len)
{
    uint8_t *place = NULL;
    vns_channel_lock(m->channel);
    struct memory *memory = vn_keymap_get(&m->by_id, id);
    bool plain = len % VN_PAGE_BYTES == 0 && check_range(memory, off, len) == 0 &&
                 memory->coherent && (!memory->shadow.bytes || memory->cached);
    if (plain && (!memory->shadow.bytes ||
                  vn_shadow_store_begin(&memory->shadow, memory->live, (size_t)off, len)))
        place = memory->live + off;
    vns_channel_unlock(m->channel);
    return place;
}

int vns_memories_copy(struct vns_memories *m, uint64_t id, uint64_t off, void *to, size_t len)
{
    vns_channel_lock(m->channel);
    const struct memory *memory = vn_keymap_get(&m->by_id, id);
    int rc = check_range(memory, off, len);
    if (rc == 0 && memory->demand_paged)
        rc = -ENODATA;
    if (rc == 0)
        vn_shadow_read(&memory->shadow, memory->live, (size_t)off, len, to);
    vns_channel_unlock(m->channel);
    return rc;
}

/* ---- the devices' writes ---- */

/* The pages that the device wrote as a whole. */
static struct vn_pages filled_pages(const struct memory *memory, const struct vns_range *range)
{
    if (!range->filled)
        return (struct vn_pages){0};
    uint64_t left = memory->size - range->offset;
    uint64_t end = range->offset + (range->bytes < left ? range->bytes : left);
    return (struct vn_pages){
        .first = (size_t)((range->offset + VN_PAGE_BYTES - 1) / VN_PAGE_BYTES),
        .end = (size_t)(end / VN_PAGE_BYTES),
    };
}

/* Which pages may go as they are, looking from `page` on.  Awaited ones do, whoever asks; *until
 * becomes where they end or begin. */
static struct vn_pages pages_to_send(const struct memory *memory, const struct vns_range *range,
                                     size_t page, size_t *until)
{
    size_t run = vn_pageset_run(&memory->awaited, page, *until - page);
    size_t stop = run ? page + run : vn_pageset_next(&memory->awaited, page);
    if (*until > stop)
        *until = stop;
    return run ? (struct vn_pages){page, stop, .awaited = true} : filled_pages(memory, range);
}

/* How many filled pages from `page` on go in one message as they are; 0: too few, or the client
 * compares them and more than half of them seem to have been written with what they had, so that
 * their changes are shorter. */
static size_t count_whole(struct vns_memories *m, const struct memory *memory, size_t page,
                          const struct vn_pages *filled)
{
    size_t room = (rpc_ep_message_max(m->channel->ep) - PAGES_HEAD) / VN_PAGE_BYTES;
    size_t most = filled->awaited ? AWAITED_MOST : PAGES_MOST - page % PAGES_MOST;
    size_t stop = page + (most < room ? most : room), rewritten = 0;
    stop = stop < filled->end ? stop : filled->end;
    if (stop - page < PAGES_LEAST)
        return 0;
    for (size_t at = page; at < stop; at++)
        rewritten += filled->awaited || vn_shadow_is_rewritten(&memory->shadow, memory->live, at);
    if (rewritten < (stop - page) / 2 ||
        vn_delta_shrinks(m->codec, memory->live + page * VN_PAGE_BYTES))
        return 0;
    return stop - page;
}

/* Pushes whole pages, from where their bytes are. */
static int push_whole(struct vns_memories *m, const struct memory *memory, size_t page,
                      uint8_t *bytes, size_t len)
{
    uint8_t head[PAGES_HEAD];
    struct wire_enc e;
    wire_enc_init_fixed(&e, head, sizeof(head));
    wire_put_u64(&e, memory->id);
    wire_put_u64(&e, page * VN_PAGE_BYTES);
    assert(wire_enc_error(&e) == 0);
    struct iovec iov[] = {{head, sizeof(head)}, {bytes, len}};
    return vns_channel_push_bulk(m->channel, VN_PUSH_PAGES, iov, ARRAY_LEN(iov));
}

/* The address to send whole pages from.  Where no other work can write the pages, the memory itself
 * is sent, and it stands in for the shadow copy until some work may write it. */
static uint8_t *source_of(struct memory *memory, size_t page, size_t count, bool still)
{
    size_t off = page * VN_PAGE_BYTES;
    if (still && memory->coherent && memory->cached && vn_shadow_omit(&memory->shadow, page, count))
        return memory->live + off;
    vn_shadow_take_whole(&memory->shadow, memory->live, off, count * VN_PAGE_BYTES);
    return memory->shadow.bytes + off;
}

/* The turn keeps the memory from being freed meanwhile. */
static int push_pages(struct vns_memories *m, struct memory *memory, size_t page, size_t count,
                      bool still)
{
    return push_whole(m, memory, page, source_of(memory, page, count, still),
                      count * VN_PAGE_BYTES);
}

/* With the turn and the lock: pushes what differs in pages *page up to end, and moves *page on. */
static int push_changes(struct vns_memories *m, struct memory *memory, struct vn_pages filled,
                        size_t *page, size_t end)
{
    uint32_t most = rpc_ep_message_max(m->channel->ep) - (uint32_t)sizeof(uint64_t);
    size_t budget = most < VN_DELTA_BYTES ? most : VN_DELTA_BYTES;
    wire_enc_reset(&m->out);
    wire_put_u64(&m->out, memory->id);
    int changes = vn_shadow_encode(&memory->shadow, memory->live, filled, page, end, m->codec,
                                   &m->out, budget);
    if (changes <= 0)
        return changes;
    memory->pushed += wire_enc_len(&m->out);
    return vns_channel_push(m->channel, VN_PUSH_DELTA, wire_enc_data(&m->out),
                            wire_enc_len(&m->out));
}

/* With the turn and the lock: compares and pushes some pages, and moves *page on. */
static int read_some(struct vns_memories *m, struct memory *memory, const struct vns_range *range,
                     size_t *page, size_t end, bool still)
{
    size_t until = end - *page > PAGES_A_HOLD ? *page + PAGES_A_HOLD : end;
    struct vn_pages filled = pages_to_send(memory, range, *page, &until);
    if (*page < filled.first && until > filled.first) {
        until = filled.first;
    } else if (*page >= filled.first && *page < filled.end) {
        size_t count = count_whole(m, memory, *page, &filled);
        if (count) {
            *page += count;
            return push_pages(m, memory, *page - count, count, still);
        }
        size_t next = (*page / PAGES_MOST + 1) * PAGES_MOST; /* where one that is full may begin */
        until = until > next ? next : until;
    }
    return push_changes(m, memory, filled, page, until);
}

/* The pages of a range in memory as it is now; false when there are none. */
static bool pages_of(const struct memory *memory, const struct vns_range *range, size_t *first,
                     size_t *end)
{
    if (!memory || !memory->live || range->bytes == 0 || range->offset >= memory->size)
        return false;
    uint64_t left = memory->size - range->offset;
    uint64_t bytes = range->bytes < left ? range->bytes : left;
    *first = (size_t)(range->offset / VN_PAGE_BYTES);
    *end = (size_t)((range->offset + bytes - 1) / VN_PAGE_BYTES) + 1;
    return true;
}

/* Of demand-paged memory: the first held page from `page` on; `end` when there is none before. */
static size_t next_held(const struct memory *memory, size_t page, size_t end)
{
    size_t held = memory->held.count ? vn_pageset_next(&memory->held, page) : end;
    return held < end ? held : end;
}

static void expose_held(struct memory *memory, size_t first, size_t end)
{
    for (size_t page = first; (page = next_held(memory, page, end)) < end; page++)
        vn_shadow_make(&memory->shadow, memory->live, page, page + 1);
}

uint64_t vns_memories_expose(struct vns_memories *m, const struct vns_range *ranges, uint32_t count)
{
    size_t first, end;
    vns_channel_lock(m->channel);
    uint64_t exposed = atomic_fetch_add_explicit(&m->exposed, count, memory_order_relaxed) + count;
    for (uint32_t i = 0; i < count; i++) {
        struct memory *memory = vn_keymap_get(&m->by_id, ranges[i].memory);
        if (!pages_of(memory, &ranges[i], &first, &end))
            continue;
        if (memory->demand_paged) {
            expose_held(memory, first, end);
            continue;
        }
        struct vn_pages filled = filled_pages(memory, &ranges[i]);
        bool apart = ranges[i].awaited && filled.first < filled.end;
        vn_shadow_make(&memory->shadow, memory->live, first, apart ? filled.first : end);
        if (!apart)
            continue;
        vn_shadow_make(&memory->shadow, memory->live, filled.end, end);
        vn_pageset_add_span(&memory->awaited, filled.first, filled.end - filled.first);
    }
    vns_channel_unlock(m->channel);
    return exposed;
}

void vns_memories_conceal(struct vns_memories *m, uint32_t count)
{
    atomic_fetch_sub_explicit(&m->exposed, count, memory_order_relaxed);
}

static uint64_t exposed_now(const struct vns_memories *m)
{
    return atomic_load_explicit(&m->exposed, memory_order_relaxed);
}

/* With the turn and the lock: tells the client that its copies of these pages are old. */
static int tell_gone(struct vns_memories *m, struct memory *memory, size_t first, size_t end)
{
    first += vn_pageset_run(&memory->gone, first, end - first);
    while (end > first && vn_pageset_has(&memory->gone, end - 1))
        end--;
    if (first == end)
        return 0;
    vn_pageset_add_span(&memory->gone, first, end - first);
    uint64_t off = (uint64_t)first * VN_PAGE_BYTES, stop = (uint64_t)end * VN_PAGE_BYTES;
    wire_enc_reset(&m->out);
    wire_put_u64(&m->out, memory->id);
    wire_put_u64(&m->out, off);
    wire_put_u64(&m->out, (stop < memory->size ? stop : memory->size) - off);
    if (wire_enc_error(&m->out))
        return wire_enc_error(&m->out);
    return vns_channel_push(m->channel, VN_PUSH_DROP, wire_enc_data(&m->out),
                            wire_enc_len(&m->out));
}

/* The pages of demand-paged memory that are pushed although nobody asked: a device wrote each of
 * their bytes, so the program will read them. */
static struct vn_pages eager_pages(const struct vns_memories *m, const struct memory *memory,
                                   const struct vns_range *range)
{
    struct vn_pages pages = filled_pages(memory, range);
    bool fits = rpc_ep_message_max(m->channel->ep) >= PAGES_HEAD + BLOCK_PAGES * VN_PAGE_BYTES;
    if (!fits || !memory->cached || !memory->coherent)
        return (struct vn_pages){0};
    pages.first = (pages.first + BLOCK_PAGES - 1) / BLOCK_PAGES * BLOCK_PAGES;
    pages.end = pages.end / BLOCK_PAGES * BLOCK_PAGES;
    return pages.first < pages.end ? pages : (struct vn_pages){0};
}

/* Under the lock: these pages are not compared any more. */
static void release_held(struct memory *memory, size_t first, size_t count)
{
    vn_pageset_remove_span(&memory->held, first, count);
    vn_shadow_release(&memory->shadow, first, count);
}

/* With the turn and the lock: pushes some pages of demand-paged memory, what changed in held ones,
 * or which the client does not have any more, and moves *page on.  Memory that was not demand-paged
 * when the read began may be read up to the midst of a block: the client asks for the rest. */
static int tell_some(struct vns_memories *m, struct memory *memory, const struct vns_range *range,
                     size_t *page, size_t end)
{
    struct vn_pages eager = eager_pages(m, memory, range);
    size_t first = *page;
    if (first >= eager.first && first < eager.end && first % BLOCK_PAGES == 0) {
        *page += BLOCK_PAGES;
        vn_pageset_remove_span(&memory->gone, first, BLOCK_PAGES);
        if (next_held(memory, first, *page) < *page)
            release_held(memory, first, BLOCK_PAGES);
        return push_whole(m, memory, first, memory->live + first * VN_PAGE_BYTES,
                          BLOCK_PAGES * VN_PAGE_BYTES);
    }
    size_t until = first < eager.first ? eager.first : end, held = next_held(memory, first, until);
    if (held == first) {
        size_t run = vn_pageset_run(&memory->held, first, until - first);
        int rc = push_changes(m, memory, (struct vn_pages){0}, page, first + run);
        if (memory->pushed > memory->push_limit)
            release_held(memory, 0, memory->held.pages);
        return rc;
    }
    *page = held;
    return tell_gone(m, memory, first, held);
}

/* The thread gives the lock back between two parts.  The memory may be freed meanwhile. */
static int read_range(struct vns_memories *m, const struct vns_range *range, uint32_t own)
{
    size_t page = 0, first = 0, end = 0;
    int rc = 0;
    for (bool more = true; more && rc == 0;) {
        vns_channel_turn(m->channel);
        vns_channel_lock(m->channel);
        uint64_t start = hw_now_ns();
        struct memory *memory = vn_keymap_get(&m->by_id, range->memory);
        more = pages_of(memory, range, &first, &end);
        size_t from = page = page > first ? page : first;
        more = more && page < end;
        if (more && memory->demand_paged)
            rc = tell_some(m, memory, range, &page, end);
        else if (more && page == first)
            invalidate_caches(memory);
        if (more && !memory->demand_paged)
            rc = read_some(m, memory, range, &page, end, exposed_now(m) == own);
        if (more && !memory->demand_paged && range->awaited) /* they were filled by this work */
            vn_pageset_remove_span(&memory->awaited, from, page - from);
        more = more && page < end;
        bool was_long = hw_now_ns() - start > long_hold_ns;
        vns_channel_unlock(m->channel);
        vns_channel_turn_end(m->channel);
        if (was_long)
            (void)nanosleep(&nap, NULL);
    }
    return rc;
}

int vns_memories_read(struct vns_memories *m, const struct vns_range *ranges, uint32_t count,
                      uint32_t own)
{
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = read_range(m, &ranges[i], own);
    return rc;
}

/* ---- demand-paged memory ---- */

/* Whether pages of it are held, if it is demand-paged. */
static bool may_hold(const struct memory *memory)
{
    return memory->cached && memory->coherent;
}

static int init_gone_and_held(struct memory *memory)
{
    uint64_t pages = (memory->size + VN_PAGE_BYTES - 1) / VN_PAGE_BYTES;
    int rc = pages <= VN_PAGES_MAX ? vn_pageset_init(&memory->gone, (size_t)pages) : -EINVAL;
    memory->pushed = 0;
    memory->push_limit = HELD_PUSHES;
    return rc || !may_hold(memory) ? rc : vn_pageset_init(&memory->held, (size_t)pages);
}

static int init_demand_paged(const struct vns_memories *m, struct memory *memory)
{
    int rc = init_gone_and_held(memory);
    if (rc || !may_hold(memory))
        return rc;
    rc = vn_shadow_init(&memory->shadow, memory->size);
    if (rc == 0)
        vn_shadow_thin(&memory->shadow);
    memory->shadow.near = m->near;
    return rc;
}

/* The client has all that was pushed. */
static int give_up_shadow(struct vns_memories *m, struct memory *memory)
{
    vns_channel_turn(m->channel);
    vns_channel_lock(m->channel);
    int rc = init_gone_and_held(memory);
    if (rc == 0) {
        if (may_hold(memory))
            vn_shadow_thin(&memory->shadow);
        else
            vn_shadow_fini(&memory->shadow);
        vn_pageset_fini(&memory->awaited);
        memory->demand_paged = true;
    }
    vns_channel_unlock(m->channel);
    vns_channel_turn_end(m->channel);
    return rc;
}

int vns_memories_set_demand_paged(struct vns_memories *m, uint64_t id)
{
    struct memory *memory = vn_keymap_get(&m->by_id, id); /* as in vns_memories_map */
    if (!memory || memory->demand_paged)
        return memory ? -EPROTO : -ENOENT;
    if (memory->live)
        return give_up_shadow(m, memory);
    memory->demand_paged = true;
    return 0;
}

static void read_live(struct memory *memory, uint64_t off, uint8_t *to, uint32_t len)
{
    struct vns_bus_source source = {.memory = memory->handle,
                                    .type = memory->type,
                                    .size = memory->size,
                                    .cached = memory->cached,
                                    .shared = !memory->dedicated};
    if (vns_bus_read(memory->device, &source, off, to, len))
        return;
    invalidate_caches(memory);
    vn_unshadowed_read(to, memory->live + off, len);
}

/* Under the lock: these bytes are on their way to the client.  Of too many pages, those that it
 * asked for first are not held any more: they are dropped with the next work that can write them.
 */
static void hold(struct memory *memory, uint64_t off, const uint8_t *bytes, uint32_t len)
{
    size_t first = (size_t)(off / VN_PAGE_BYTES), count = len / VN_PAGE_BYTES;
    if (!memory->held.words || count == 0)
        return;
    if (memory->held.count + count > HELD_MOST)
        release_held(memory, 0, memory->held.pages);
    if (memory->pushed > memory->push_limit) {
        memory->pushed = 0;
        if (memory->push_limit < HELD_PUSHES_MOST)
            memory->push_limit *= 2;
    }
    memcpy(memory->shadow.bytes + off, bytes, count * VN_PAGE_BYTES);
    vn_shadow_store_end(&memory->shadow, (size_t)off, count * VN_PAGE_BYTES, false);
    vn_pageset_add_span(&memory->held, first, count);
}

/* The caller holds the turn from reading to sending: writes of a device meanwhile are told of
 * afterwards. */
static int push_fill(struct vns_memories *m, struct memory *memory, uint64_t off, uint32_t len)
{
    size_t first = (size_t)(off / VN_PAGE_BYTES), pages = (len + VN_PAGE_BYTES - 1) / VN_PAGE_BYTES;
    struct wire_enc e;
    wire_enc_init(&e, 2 * VN_FETCH_MAX);
    wire_put_u64(&e, memory->id);
    wire_put_u64(&e, off);
    uint8_t *to = wire_enc_space(&e, len);
    int rc = wire_enc_error(&e);
    if (to) {
        read_live(memory, off, to, len);
        vns_channel_lock(m->channel);
        vn_pageset_remove_span(&memory->gone, first, pages);
        hold(memory, off, to, len);
        rc = vns_channel_push(m->channel, VN_PUSH_FILL, wire_enc_data(&e), wire_enc_len(&e));
        vns_channel_unlock(m->channel);
    }
    wire_enc_fini(&e);
    return rc;
}

int vns_memories_fetch(struct vns_memories *m, uint64_t id, uint64_t off, uint32_t len)
{
    struct memory *memory = vn_keymap_get(&m->by_id, id); /* likewise */
    int rc = memory && memory->demand_paged ? check_range(memory, off, len) : -ENOENT;
    if (rc == 0 && (len == 0 || len > VN_FETCH_MAX))
        rc = -EPROTO;
    if (rc)
        return rc;
    vns_channel_turn(m->channel);
    rc = push_fill(m, memory, off, len);
    vns_channel_turn_end(m->channel);
    return rc == -ENOMEM || rc == -EMSGSIZE ? rc : 0;
}

/* ---- mapping ---- */

/* At the start the client's copy is all zeros. */
static int init_books(const struct vns_memories *m, struct memory *memory)
{
    if (memory->demand_paged)
        return init_demand_paged(m, memory);
    int rc = vn_shadow_init(&memory->shadow, memory->size);
    if (rc == 0)
        rc = vn_pageset_init(&memory->awaited, vn_shadow_pages(&memory->shadow));
    memory->shadow.near = m->near;
    return rc;
}

static VkResult map(struct vns_memories *m, struct memory *memory, bool written)
{
    struct vns_device *device = memory->device;
    void *live = memory->mapped;
    /* Nobody looks at the books before live is set. */
    VkResult result = init_books(m, memory) ? VK_ERROR_MEMORY_MAP_FAILED : VK_SUCCESS;
    if (result == VK_SUCCESS && !live)
        result = device->map_memory(device->handle, memory->handle, 0, VK_WHOLE_SIZE, 0, &live);
    if (result < 0) {
        fini_books(memory);
        return result;
    }
    memory->mapped = live;
    bool clears = !written && !memory->cleared;
    if (clears)
        vns_clear(live, memory->size);
    vns_channel_lock(m->channel);
    memory->live = live;
    if (clears)
        flush_caches(memory);
    vns_channel_unlock(m->channel);
    struct vns_range all = {.memory = memory->id, .bytes = memory->size};
    return written && vns_memories_read(m, &all, 1, 0) ? VK_ERROR_DEVICE_LOST : VK_SUCCESS;
}

/* Only the executor, which is here, puts and takes. */
static struct memory *find_visible(struct vns_memories *m, uint64_t id)
{
    struct memory *memory = vn_keymap_get(&m->by_id, id);
    return memory && memory->visible ? memory : NULL;
}

VkResult vns_memories_map(struct vns_memories *m, uint64_t id)
{
    struct memory *memory = find_visible(m, id);
    if (!memory)
        return VK_ERROR_MEMORY_MAP_FAILED;
    bool written = memory->device->submissions != memory->submissions;
    return memory->live ? VK_SUCCESS : map(m, memory, written);
}

VkResult vns_memories_map_new(struct vns_memories *m, uint64_t id)
{
    struct memory *memory = find_visible(m, id);
    if (!memory)
        return VK_ERROR_MEMORY_MAP_FAILED;
    return memory->live ? VK_SUCCESS : map(m, memory, false);
}
