/* Device memory and its mappings; see memory.h. */
#include "venus/client/memory/memory.h"

#include "base/log.h"
#include "venus/client/link/stripes.h"
#include "venus/client/memory/external.h"
#include "venus/client/memory/fetch.h"
#include "venus/client/memory/progress.h"
#include "venus/client/memory/recycled.h"
#include "venus/client/memory/upload.h"
#include "venus/client/perf.h"
#include "venus/client/record/ranges.h"
#include "venus/client/submit/queue.h"
#include "venus/client/submit/trace.h"
#include "venus/common/chain.h"
#include "venus/common/protocol.h"
#include "vn_client.gen.h"

#include <errno.h>
#include <stdlib.h>

struct vnc_memory *vnc_memory_ref(struct vnc_memory *memory)
{
    atomic_fetch_add_explicit(&memory->refs, 1, memory_order_relaxed);
    return memory;
}

void vnc_memory_unref(struct vnc_memory *memory)
{
    /* Release and acquire: the last one frees after all others are finished with it. */
    if (memory && atomic_fetch_sub_explicit(&memory->refs, 1, memory_order_acq_rel) == 1)
        free(memory);
}

/* ---- lists of the device ---- */

static void list_visible(struct vnc_device *device, struct vnc_memory *memory)
{
    pthread_mutex_lock(&device->lock);
    memory->next_visible = device->visible;
    memory->visible_at = &device->visible;
    if (device->visible)
        device->visible->visible_at = &memory->next_visible;
    device->visible = memory;
    pthread_mutex_unlock(&device->lock);
}

void vnc_memory_share(struct vnc_device *device, struct vnc_memory *memory)
{
    if (vnc_link_is_foreign(vnc_device_link(device)))
        return;
    pthread_mutex_lock(&device->lock);
    if (!memory->shared && memory->host_visible) {
        memory->shared = true;
        memory->next_shared = device->shared_memory;
        memory->shared_at = &device->shared_memory;
        if (device->shared_memory)
            device->shared_memory->shared_at = &memory->next_shared;
        device->shared_memory = memory;
    }
    pthread_mutex_unlock(&device->lock);
}

static void unlist(struct vnc_device *device, struct vnc_memory *memory)
{
    if (vnc_link_is_foreign(vnc_device_link(device)))
        return;
    pthread_mutex_lock(&device->lock);
    while (memory->sending)
        pthread_cond_wait(&device->sent, &device->lock);
    if (memory->visible_at) {
        *memory->visible_at = memory->next_visible;
        if (memory->next_visible)
            memory->next_visible->visible_at = memory->visible_at;
        memory->visible_at = NULL;
    }
    if (memory->shared_at) {
        *memory->shared_at = memory->next_shared;
        if (memory->next_shared)
            memory->next_shared->shared_at = memory->shared_at;
        memory->shared_at = NULL;
    }
    pthread_mutex_unlock(&device->lock);
}

void vnc_memory_all_ranges(struct vnc_device *device, struct vnc_ranges *ranges)
{
    pthread_mutex_lock(&device->lock);
    for (struct vnc_memory *m = device->visible; m; m = m->next_visible)
        vnc_ranges_add_memory(ranges, m);
    pthread_mutex_unlock(&device->lock);
}

void vnc_memory_shared_ranges(struct vnc_device *device, enum vnc_access access, bool images,
                              bool addresses, struct vnc_ranges *ranges)
{
    pthread_mutex_lock(&device->lock);
    struct vnc_resource *r = images || addresses ? device->shared : NULL;
    for (; r; r = r->next_shared) {
        bool reached = r->object.type == VK_OBJECT_TYPE_IMAGE ? images : addresses;
        if (reached && (access == VNC_READ || !r->only_read))
            vnc_ranges_add(ranges, r, 0, VK_WHOLE_SIZE);
    }
    for (struct vnc_memory *m = device->shared_memory; m; m = m->next_shared)
        vnc_ranges_add_memory(ranges, m);
    pthread_mutex_unlock(&device->lock);
}

/* ---- the first map ---- */

/* Imported memory is told of before the program can bind it: another thread's submission in between
 * must not look to the server as if it could have written it. */
static VkResult tell_mapped(struct vnc_device *device, struct vnc_memory *memory, bool imported)
{
    struct vnc_link *link = vnc_device_link(device);
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return VK_ERROR_DEVICE_LOST;
    if (memory->demand_paged)
        vnc_fetch_put_demand_paged(memory, e);
    size_t hole = vn_put_command(e, imported ? VN_OP_MAP_NEW : VN_OP_MAP);
    wire_put_u64(e, memory->object.id);
    wire_fill_len(e, hole);
    /* No device can have written it: there is nothing to wait for. */
    bool fresh = imported || memory->submissions ==
                                 atomic_load_explicit(&device->submissions, memory_order_relaxed);
    if (fresh && !vnc_link_client(link)->sync)
        return vnc_link_post(link);
    struct vn_decoder reply;
    VkResult result = vnc_link_call(link, &reply);
    if (result != VK_SUCCESS)
        return result;
    result = (VkResult)wire_get_u32(&reply.in);
    return vnc_link_finish(link, &reply) == VK_SUCCESS ? result : VK_ERROR_DEVICE_LOST;
}

/* Whether the program may choose where memory is: pages that are dropped stay where they are. */
static bool may_place(const struct vnc_device *device)
{
#ifdef VK_EXT_map_memory_placed
    for (uint32_t i = 0; i < device->extension_count; i++) {
        if (strcmp(device->extensions[i], VK_EXT_MAP_MEMORY_PLACED_EXTENSION_NAME) == 0)
            return true;
    }
#else
    (void)device;
#endif
    return false;
}

/* `borrowed`: of memory that is imported, the program's. */
static VkResult first_map(struct vnc_device *device, struct vnc_memory *memory, void *borrowed)
{
    struct vn_region_params params = {
        .size = memory->size,
        .borrowed = borrowed,
        .alignment = device->physical->limits.minMemoryMapAlignment,
        .fetch = vnc_fetch_wanted(memory) && !may_place(device) ? vnc_fetch_pages : NULL,
        .user = memory,
        .near = device->physical->near,
        .moves = may_place(device),
    };
    int rc = vn_region_create(&params, &memory->region);
    if (rc) {
        hw_warn(HW_CAT_MEMORY, "cannot map %llu bytes: %s", (unsigned long long)memory->size,
                strerror(-rc));
        return rc == -ENOMEM ? VK_ERROR_OUT_OF_HOST_MEMORY
               : borrowed    ? VK_ERROR_INVALID_EXTERNAL_HANDLE
                             : VK_ERROR_MEMORY_MAP_FAILED;
    }
    VkResult result = VK_ERROR_OUT_OF_HOST_MEMORY;
    memory->demand_paged = vn_region_can_drop(memory->region);
    if (vnc_pushes_add_memory(device->pushes, memory))
        goto destroy_region;
    result = tell_mapped(device, memory, borrowed);
    if (result != VK_SUCCESS)
        goto remove_memory;
    pthread_mutex_lock(&device->lock);
    memory->tracked = true;
    pthread_mutex_unlock(&device->lock);
    vnc_trace_map(memory);
    return VK_SUCCESS;

remove_memory:
    vnc_pushes_remove_memory(device->pushes, memory);
destroy_region:
    vn_region_destroy(memory->region);
    memory->region = NULL;
    return result;
}

/* ---- allocation ---- */

static VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice handle, VkDeviceMemory memory_handle,
                                              const VkAllocationCallbacks *allocator)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    struct vnc_memory *memory = VNC_OBJECT(vnc_memory, memory_handle);
    if (!memory)
        return;
    unlist(device, memory);
    atomic_store_explicit(&memory->leaving, true, memory_order_relaxed);
    if (memory->region)
        vnc_pushes_remove_memory(device->pushes, memory);
    vn_region_destroy(memory->region);
    memory->region = NULL;
    atomic_store_explicit(&memory->dead, true, memory_order_relaxed);
    atomic_fetch_add_explicit(&device->retired, 1, memory_order_relaxed);
    if (!vnc_recycled_put(memory)) {
        vn_vkFreeMemory(handle, memory_handle, allocator);
        vnc_budget_change(&device->physical->budget);
    }
    /* Others may be waiting for the memory, or for what was destroyed before it. */
    (void)vnc_link_flush(vnc_device_link(device));
}

static VkResult ask_for_memory(VkDevice handle, const VkMemoryAllocateInfo *info,
                               VkMemoryPropertyFlags flags, bool shared, VkDeviceMemory *out)
{
    VkResult result =
        shared
            ? vnc_external_allocate(handle, info, flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT, out)
            : vn_vkAllocateMemory(handle, info, NULL, out);
    vnc_budget_change(&VNC_OBJECT(vnc_device, handle)->physical->budget);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL allocate_memory(VkDevice handle,
                                                      const VkMemoryAllocateInfo *info,
                                                      const VkAllocationCallbacks *allocator,
                                                      VkDeviceMemory *out)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    const struct vnc_memory_types *types = &device->physical->types;
    if (info->memoryTypeIndex >= types->offered.memoryTypeCount)
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    VkMemoryAllocateInfo driver_info = *info;
    driver_info.memoryTypeIndex = types->driver_type[info->memoryTypeIndex];
    /* Before the call: what others submit meanwhile may come behind it at the server. */
    uint64_t submissions = atomic_load_explicit(&device->submissions, memory_order_relaxed);
    VkMemoryPropertyFlags flags = types->offered.memoryTypes[info->memoryTypeIndex].propertyFlags;
    void *borrowed = vnc_external_host_pointer(info->pNext);
    if (borrowed && !vnc_external_is_host_type(device->physical, info->memoryTypeIndex))
        return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    bool shared = vnc_external_is_chained(device->physical, info->pNext);
    struct vnc_memory_kind kind = vnc_memory_kind(info);
    VkResult result = VK_SUCCESS;
    if (!vnc_recycled_take(device, &kind, out)) {
        result = ask_for_memory(handle, &driver_info, flags, shared, out);
        bool full = result == VK_ERROR_OUT_OF_DEVICE_MEMORY ||
                    result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_TOO_MANY_OBJECTS;
        if (full && vnc_recycled_free(device))
            result = ask_for_memory(handle, &driver_info, flags, shared, out);
        if (result != VK_SUCCESS)
            return result;
        struct vnc_memory *made = VNC_OBJECT(vnc_memory, *out);
        made->address = vnc_pushes_take_address(device->pushes, made->object.id);
    }
    struct vnc_memory *memory = VNC_OBJECT(vnc_memory, *out);
    memory->size = info->allocationSize;
    memory->kind = kind;
    memory->host_visible = flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
    memory->cached = vnc_memory_types_is_cached(types, info->memoryTypeIndex);
    memory->submissions = submissions;
    if (memory->host_visible)
        list_visible(device, memory);
    if (borrowed)
        result = first_map(device, memory, borrowed);
    if (result != VK_SUCCESS)
        free_memory(handle, *out, allocator);
    return result;
}

#ifdef VK_EXT_pageable_device_local_memory
/* The next allocation would inherit it. */
static VKAPI_ATTR void VKAPI_CALL set_priority(VkDevice device, VkDeviceMemory memory,
                                               float priority)
{
    VNC_OBJECT(vnc_memory, memory)->kind.plain = false;
    vn_vkSetDeviceMemoryPriorityEXT(device, memory, priority);
}
#endif

/* ---- mapping ---- */

static VKAPI_ATTR VkResult VKAPI_CALL map_memory(VkDevice handle, VkDeviceMemory memory_handle,
                                                 VkDeviceSize offset, VkDeviceSize size,
                                                 VkMemoryMapFlags flags, void **data)
{
    (void)size;
    (void)flags;
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    struct vnc_memory *memory = VNC_OBJECT(vnc_memory, memory_handle);
    if (!memory->host_visible || offset >= memory->size)
        return VK_ERROR_MEMORY_MAP_FAILED;
    VkResult result = memory->region ? VK_SUCCESS : first_map(device, memory, NULL);
    if (result == VK_SUCCESS)
        *data = (uint8_t *)vn_region_memory(memory->region) + offset;
    return result;
}

/* To where the program wants it, or (NULL) away from there.  Others read the memory under the
 * stream's lock only. */
static VkResult move_region(struct vnc_device *device, struct vnc_memory *memory, void *to,
                            bool reserve)
{
    struct vnc_link *link = vnc_device_link(device);
    bool locked = vnc_link_begin(link) != NULL; /* a lost link has nothing to send */
    int rc = vn_region_move(memory->region, to, reserve);
    if (locked)
        vnc_link_cancel(link);
    if (rc)
        hw_warn(HW_CAT_MEMORY, "cannot move %llu bytes of mapped memory: %s",
                (unsigned long long)memory->size, strerror(-rc));
    else
        memory->placed = to != NULL;
    return rc ? VK_ERROR_MEMORY_MAP_FAILED : VK_SUCCESS;
}

static VkResult unmap(VkDevice handle, VkDeviceMemory memory_handle, bool reserve)
{
    struct vnc_memory *memory = VNC_OBJECT(vnc_memory, memory_handle);
    return memory->placed ? move_region(VNC_OBJECT(vnc_device, handle), memory, NULL, reserve)
                          : VK_SUCCESS;
}

/* The shadow stays: what the program wrote must still travel, and it may map again. */
static VKAPI_ATTR void VKAPI_CALL unmap_memory(VkDevice device, VkDeviceMemory memory)
{
    (void)unmap(device, memory, false);
}

#ifdef VK_KHR_map_memory2
static VKAPI_ATTR VkResult VKAPI_CALL map_memory2(VkDevice device, const VkMemoryMapInfoKHR *info,
                                                  void **data)
{
    void *at = NULL;
    VkResult result = map_memory(device, info->memory, info->offset, info->size, info->flags, &at);
#ifdef VK_EXT_map_memory_placed
    const VkMemoryMapPlacedInfoEXT *place =
        vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_MEMORY_MAP_PLACED_INFO_EXT);
    if (result == VK_SUCCESS && place && (info->flags & VK_MEMORY_MAP_PLACED_BIT_EXT)) {
        at = place->pPlacedAddress;
        result = move_region(VNC_OBJECT(vnc_device, device), VNC_OBJECT(vnc_memory, info->memory),
                             at, false);
    }
#endif
    if (result == VK_SUCCESS)
        *data = at;
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL unmap_memory2(VkDevice device,
                                                    const VkMemoryUnmapInfoKHR *info)
{
    bool reserve = false;
#ifdef VK_EXT_map_memory_placed
    reserve = info->flags & VK_MEMORY_UNMAP_RESERVE_BIT_EXT;
#endif
    return unmap(device, info->memory, reserve);
}
#endif

/* ---- deltas ---- */

bool vnc_memory_is_still(const struct vnc_memory *memory)
{
    const struct vnc_device *device = memory->device;
    for (uint32_t i = 0; i < device->queue_count; i++) {
        if (vnc_queue_can_write(device->queues[i], memory->object.id))
            return false;
    }
    return true;
}

static int collect(struct vnc_memory *memory, const struct vnc_ranges *ranges)
{
    if (!ranges)
        return vn_region_collect(memory->region, 0, SIZE_MAX);
    int rc = 0;
    for (size_t i = vnc_ranges_first(ranges, memory->object.id);
         rc == 0 && i < ranges->count && ranges->items[i].memory == memory->object.id; i++)
        rc = vn_region_collect(memory->region, ranges->items[i].offset, ranges->items[i].bytes);
    return rc;
}

/* Pages that are smaller as a delta travel as one: compressed, or as runs of equal words. */
static VkResult put_shrinking(struct vnc_device *device, const struct vnc_memory *memory,
                              size_t off, size_t len, const uint8_t *bytes, struct wire_enc *e)
{
    struct vn_delta_out out;
    size_t hole = vn_put_command(e, VN_OP_DELTA);
    wire_put_u64(e, memory->object.id);
    vn_delta_begin(&out, e);
    for (size_t at = 0; at < len; at += VN_PAGE_BYTES)
        vn_delta_put_page(&out, (off + at) / VN_PAGE_BYTES, bytes + at);
    if (vn_delta_end(&out, device->codec))
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    wire_fill_len(e, hole);
    return vnc_link_checkpoint(vnc_device_link(device));
}

/* From where the bytes are to the socket. */
static VkResult put_write(struct vnc_memory *memory, size_t off, size_t len, const uint8_t *bytes,
                          struct wire_enc *e)
{
    wire_put_u32(e, VN_OP_WRITE);
    wire_put_u32(e, (uint32_t)(2 * sizeof(uint64_t) + len));
    wire_put_u64(e, memory->object.id);
    wire_put_u64(e, off);
    return vnc_link_put_bulk(vnc_device_link(memory->device), bytes, len);
}

/* This message precedes the bytes: the server reads no stripe before it. */
static VkResult put_spread(struct vnc_memory *memory, size_t off, size_t len, const uint8_t *bytes,
                           struct wire_enc *e)
{
    struct vnc_link *link = vnc_device_link(memory->device);
    size_t hole = vn_put_command(e, VN_OP_SPREAD);
    wire_put_u64(e, memory->object.id);
    wire_put_u64(e, off);
    wire_put_u64(e, len);
    wire_fill_len(e, hole);
    VkResult result = vnc_link_put_bulk(link, NULL, 0);
    if (result == VK_SUCCESS && vnc_stripes_send(vnc_link_stripes(link), bytes, off, len)) {
        vnc_link_lose(link, "a stripe of its uploads broke");
        result = VK_ERROR_DEVICE_LOST;
    }
    vnc_progress_sent(len);
    return result;
}

static bool is_smaller(struct vnc_device *device, const uint8_t *bytes, size_t len)
{
    return vn_delta_is_few_words(bytes, len) || vn_delta_shrinks(device->codec, bytes);
}

static VkResult put_run(struct vnc_memory *memory, size_t off, size_t len, const uint8_t *bytes,
                        struct wire_enc *e)
{
    struct vnc_device *device = memory->device;
    VkResult result = VK_SUCCESS;
    if (len >= VNC_SPREAD_LEAST && vnc_link_stripes(vnc_device_link(device)) &&
        !is_smaller(device, bytes, len))
        return put_spread(memory, off, len, bytes, e);
    for (size_t at = 0, part; result == VK_SUCCESS && at < len; at += part) {
        part = len - at < VN_WRITE_BYTES ? len - at : VN_WRITE_BYTES;
        if (is_smaller(device, bytes + at, part))
            result = put_shrinking(device, memory, off + at, part, bytes + at, e);
        else
            result = put_write(memory, off + at, part, bytes + at, e);
        vnc_progress_sent(part);
    }
    return result;
}

/* Puts pages that were written as a whole, where the server writes nothing meanwhile: their bytes
 * go to the socket from where they are.  Without stripes the first are few, so that the server
 * begins soon. */
static VkResult put_whole(struct vnc_device *device, struct vnc_memory *memory, struct wire_enc *e)
{
    bool spreads = vnc_link_stripes(vnc_device_link(device));
    size_t most = spreads ? VNC_SPREAD_MOST : 2 * VN_WHOLE_MIN;
    VkResult result = VK_SUCCESS;
    const uint8_t *bytes;
    size_t len;
    for (size_t off = 0; result == VK_SUCCESS &&
                         vn_region_take_whole(memory->region, vnc_upload_most(device->upload, most),
                                              &off, &len, &bytes);
         off += len, most = spreads ? VNC_SPREAD_MOST : VN_WRITE_BYTES)
        result = vnc_upload_put(device->upload, memory, off, len, bytes, e, put_run);
    vnc_upload_end(device->upload, memory, e);
    return result;
}

static VkResult put_changes(struct vnc_device *device, struct vnc_memory *memory,
                            struct wire_enc *e)
{
    VkResult result = VK_SUCCESS;
    enum vn_server_side server =
        vnc_memory_is_still(memory) ? VN_SERVER_IS_STILL : VN_SERVER_WRITES;
    if (server == VN_SERVER_IS_STILL && vnc_perf(VNC_PERF_WHOLE_PAGES))
        result = put_whole(device, memory, e);
    int rc = result == VK_SUCCESS ? 1 : -ENOMEM;
    while (rc == 1) {
        size_t start = wire_enc_len(e), changes;
        size_t hole = vn_put_command(e, VN_OP_DELTA);
        wire_put_u64(e, memory->object.id);
        rc = vn_region_encode(memory->region, device->codec, e, VN_DELTA_BYTES, server, &changes);
        if (rc < 0)
            break;
        if (changes == 0)
            wire_enc_trim(e, start);
        else
            wire_fill_len(e, hole);
        result = vnc_link_checkpoint(vnc_device_link(device));
        if (result != VK_SUCCESS)
            return result;
    }
    if (rc < 0)
        vnc_link_lose(vnc_device_link(device), "mapped memory could not be sent");
    return rc < 0 ? VK_ERROR_DEVICE_LOST : VK_SUCCESS;
}

/* The pages that are pending; all of it where that is not known. */
static struct vnc_ranges pending_of(struct vnc_memory *memory)
{
    struct vnc_ranges pending = {0};
    size_t len;
    if (vn_region_has_saved_writes(memory->region))
        vnc_ranges_add_memory(&pending, memory);
    for (size_t off = 0; vn_region_next_pending(memory->region, &off, &len); off += len)
        vnc_ranges_add_range(&pending,
                             &(struct vnc_range){memory->object.id, off, len, false, false});
    vnc_ranges_merge(&pending);
    return pending;
}

/* A page of demand-paged memory may be dropped meanwhile.  What the program wrote there is sent
 * then, too. */
static void put_waits(struct vnc_device *device, struct vnc_memory *memory, struct wire_enc *e)
{
    struct vnc_ranges all = {0};
    vnc_ranges_add_memory(&all, memory);
    if (memory->demand_paged) {
        vnc_queue_put_waits(device, &all, e);
    } else if (vnc_queue_has_readers(device, &all)) {
        struct vnc_ranges pending = pending_of(memory);
        vnc_queue_put_waits(device, &pending, e);
        vnc_ranges_fini(&pending);
    }
    vnc_ranges_fini(&all);
}

static VkResult put_region(struct vnc_device *device, struct vnc_memory *memory, struct wire_enc *e)
{
    size_t off = 0, len;
    if (!vn_region_next_pending(memory->region, &off, &len) &&
        !vn_region_has_saved_writes(memory->region))
        return VK_SUCCESS;
    put_waits(device, memory, e);
    if (!memory->demand_paged)
        return put_changes(device, memory, e);
    /* A page may be dropped and asked for before this is on its way: the answer must have it. */
    vnc_link_hold_asides(vnc_device_link(device));
    VkResult result = put_changes(device, memory, e);
    VkResult posted = vnc_link_release_asides(vnc_device_link(device));
    return result == VK_SUCCESS ? posted : result;
}

static void fetch_from_now_on(struct vnc_memory *memory, struct wire_enc *e)
{
    if (memory->demand_paged || !vn_region_set_fetch(memory->region, vnc_fetch_pages))
        return;
    memory->demand_paged = true;
    vnc_fetch_put_demand_paged(memory, e);
}

/* Notes what the server will compare after work that can write the ranges. */
static void fetch_unchanged(struct vnc_memory *memory, const struct vnc_ranges *ranges,
                            struct wire_enc *e)
{
    uint64_t bytes = 0;
    for (size_t i = vnc_ranges_first(ranges, memory->object.id);
         i < ranges->count && ranges->items[i].memory == memory->object.id; i++)
        bytes += ranges->items[i].filled ? 0 : ranges->items[i].bytes;
    if (vnc_fetch_pays_now(memory, bytes) && vnc_memory_is_still(memory))
        fetch_from_now_on(memory, e);
    memory->compared += bytes;
}

void vnc_memory_choose_fetched(struct vnc_device *device, const struct vnc_ranges *ranges,
                               struct wire_enc *e)
{
    if (ranges->count == 0 || may_place(device))
        return;
    pthread_mutex_lock(&device->lock);
    for (struct vnc_memory *m = device->visible; m; m = m->next_visible) {
        if (m->tracked && !m->demand_paged)
            fetch_unchanged(m, ranges, e);
    }
    for (const struct vnc_resource *r = ranges->by_address ? device->shared : NULL; r;
         r = r->next_shared) {
        struct vnc_memory *memory = r->object.type == VK_OBJECT_TYPE_IMAGE ? NULL : r->memory;
        if (memory && memory->visible_at && memory->tracked && vnc_fetch_pays(memory))
            fetch_from_now_on(memory, e);
    }
    pthread_mutex_unlock(&device->lock);
}

/* Whether the whole pages of a range are awaited.  Where only its first ones can be, they become a
 * range of their own. */
static bool choose_awaited(const struct vnc_memory *memory, struct vnc_ranges *ranges, size_t at)
{
    const struct vnc_range *range = &ranges->items[at];
    struct vnc_range pages = vnc_range_pages(range);
    if (!range->filled || pages.offset + pages.bytes > memory->size)
        return false;
    size_t bytes = vn_region_may_await(memory->region, pages.offset, pages.bytes);
    return bytes && (bytes == pages.bytes ||
                     vnc_ranges_split(ranges, at, pages.offset + bytes - range->offset));
}

static int expect(const struct vnc_memory *memory, struct vnc_ranges *ranges, size_t at,
                  bool may_await)
{
    bool awaited = may_await && choose_awaited(memory, ranges, at);
    struct vnc_range *range = &ranges->items[at], pages = vnc_range_pages(range);
    struct vn_region *region = memory->region;
    uint64_t left = range->offset < memory->size ? memory->size - range->offset : 0;
    uint64_t end = range->offset + (range->bytes < left ? range->bytes : left);
    range->awaited = awaited;
    if (!awaited)
        return left ? vn_region_expect(region, range->offset, end - range->offset, range->filled)
                    : 0;
    int rc = vn_region_expect(region, range->offset, pages.offset - range->offset, false);
    uint64_t behind = pages.offset + pages.bytes;
    return rc ? rc : vn_region_expect(region, behind, end - behind, false);
}

VkResult vnc_memory_expect(struct vnc_device *device, struct vnc_ranges *ranges, bool may_await)
{
    int rc = 0;
    pthread_mutex_lock(&device->lock);
    for (struct vnc_memory *m = device->visible; m && rc == 0; m = m->next_visible) {
        size_t i = m->tracked ? vnc_ranges_first(ranges, m->object.id) : ranges->count;
        for (; rc == 0 && i < ranges->count && ranges->items[i].memory == m->object.id; i++) {
            rc = expect(m, ranges, i, may_await);
            m->expected = true;
        }
    }
    pthread_mutex_unlock(&device->lock);
    return rc ? VK_ERROR_DEVICE_LOST : VK_SUCCESS;
}

void vnc_memory_await(struct vnc_device *device, const struct vnc_ranges *ranges)
{
    pthread_mutex_lock(&device->lock);
    for (const struct vnc_memory *m = device->visible; m; m = m->next_visible) {
        size_t i = m->tracked ? vnc_ranges_first(ranges, m->object.id) : ranges->count;
        for (; i < ranges->count && ranges->items[i].memory == m->object.id; i++) {
            struct vnc_range pages = vnc_range_pages(&ranges->items[i]);
            if (ranges->items[i].awaited)
                vn_region_await(m->region, pages.offset, pages.bytes);
        }
    }
    pthread_mutex_unlock(&device->lock);
}

/* Whether something of it must be sent now.  What else is pending waits for work that reads it. */
static bool is_due(const struct vnc_memory *memory, const struct vnc_ranges *ranges)
{
    if (!memory->tracked || !ranges || memory->expected)
        return memory->tracked;
    return vnc_ranges_has(ranges, memory->object.id);
}

VkResult vnc_memory_put_deltas(struct vnc_device *device, const struct vnc_ranges *ranges,
                               struct wire_enc *e)
{
    VkResult result = VK_SUCCESS;
    pthread_mutex_lock(&device->lock);
    for (struct vnc_memory *m = device->visible; m && result == VK_SUCCESS; m = m->next_visible) {
        if (!is_due(m, ranges))
            continue;
        m->expected = false;
        m->sending = true; /* so that it stays in the list, without the lock */
        pthread_mutex_unlock(&device->lock);
        result = collect(m, ranges) ? VK_ERROR_DEVICE_LOST : put_region(device, m, e);
        pthread_mutex_lock(&device->lock);
        m->sending = false;
        pthread_cond_broadcast(&device->sent);
    }
    pthread_mutex_unlock(&device->lock);
    return result;
}

/* Merged; `failed` when out of memory. */
static struct vnc_ranges ranges_of(uint32_t count, const VkMappedMemoryRange *ranges)
{
    struct vnc_ranges asked = {0};
    for (uint32_t i = 0; i < count; i++) {
        const struct vnc_memory *memory = VNC_OBJECT(vnc_memory, ranges[i].memory);
        uint64_t left = memory->size - ranges[i].offset;
        vnc_ranges_add_range(&asked,
                             &(struct vnc_range){memory->object.id, ranges[i].offset,
                                                 ranges[i].size < left ? ranges[i].size : left,
                                                 false, false});
    }
    vnc_ranges_merge(&asked);
    return asked;
}

/* With nothing under way the next submission is early enough.  Under the stream's lock: a
 * submission is all before this, and then known, or all behind. */
static VkResult flush(struct vnc_device *device, const struct vnc_ranges *ranges)
{
    struct vnc_link *link = vnc_device_link(device);
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return VK_SUCCESS; /* the next call that can fail reports a lost device */
    bool urgent = vnc_link_client(link)->sync ||
                  (vnc_device_is_watched(device) && vnc_device_is_busy(device));
    if (!urgent || vnc_memory_put_deltas(device, ranges, e) != VK_SUCCESS) {
        vnc_link_cancel(link);
        return urgent ? VK_ERROR_OUT_OF_HOST_MEMORY : VK_SUCCESS;
    }
    return vnc_link_send(link) == VK_ERROR_OUT_OF_HOST_MEMORY ? VK_ERROR_OUT_OF_HOST_MEMORY
                                                              : VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL flush_ranges(VkDevice handle, uint32_t count,
                                                   const VkMappedMemoryRange *ranges)
{
    struct vnc_ranges asked = ranges_of(count, ranges);
    VkResult result =
        asked.failed ? VK_ERROR_OUT_OF_HOST_MEMORY : flush(VNC_OBJECT(vnc_device, handle), &asked);
    vnc_ranges_fini(&asked);
    return result;
}

/* Whether work under way can write there; other processes may at any time. */
static bool can_be_written(const struct vnc_device *device, const struct vnc_ranges *ranges)
{
    bool can = atomic_load_explicit(&device->shares_memory, memory_order_relaxed);
    for (uint32_t i = 0; i < device->queue_count && !can; i++)
        can = vnc_queue_can_write_in(device->queues[i], ranges);
    return can;
}

/* What is done was read back; what is under way is read now. */
static VKAPI_ATTR VkResult VKAPI_CALL invalidate_ranges(VkDevice handle, uint32_t count,
                                                        const VkMappedMemoryRange *ranges)
{
    struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    if (!vnc_device_is_busy(device))
        return VK_SUCCESS;
    struct vnc_ranges asked = ranges_of(count, ranges);
    VkResult result = asked.failed                     ? VK_ERROR_OUT_OF_HOST_MEMORY
                      : can_be_written(device, &asked) ? vnc_device_read(device, &asked)
                                                       : VK_SUCCESS;
    vnc_ranges_fini(&asked);
    /* The next call that can fail reports a lost device. */
    return result == VK_ERROR_DEVICE_LOST ? VK_SUCCESS : result;
}

const struct vnc_entry vnc_entries_memory[] = {
    VNC_ENTRY(vkAllocateMemory, allocate_memory),
    VNC_ENTRY(vkFreeMemory, free_memory),
#ifdef VK_EXT_pageable_device_local_memory
    VNC_ENTRY(vkSetDeviceMemoryPriorityEXT, set_priority),
#endif
    VNC_ENTRY(vkMapMemory, map_memory),
    VNC_ENTRY(vkUnmapMemory, unmap_memory),
#ifdef VK_KHR_map_memory2
    VNC_ENTRY(vkMapMemory2KHR, map_memory2),
    VNC_ENTRY(vkUnmapMemory2KHR, unmap_memory2),
#endif
    VNC_ENTRY(vkFlushMappedMemoryRanges, flush_ranges),
    VNC_ENTRY(vkInvalidateMappedMemoryRanges, invalidate_ranges),
    {NULL, NULL},
};
