/* Descriptor pools, sets and update templates; see descriptor.h. */
#include "venus/client/object/descriptor.h"
#include "venus/client/perf.h"

#include "base/arena.h"
#include "venus/client/object/descriptor_layout.h"
#include "venus/client/object/objects.h"
#include "venus/common/rules.h"
#include "vn_client.gen.h"

#include <stdlib.h>

/* What one descriptor lets shaders reach. */
struct slot {
    struct vnc_resource *resource; /* a reference, or NULL */
    VkDeviceSize offset, range;
};

/* What the descriptors of one binding let shaders reach, joined: at least that.  A submission looks
 * at this, not at each of many thousand descriptors. */
struct reach {
    struct vnc_ranges ranges; /* joined, but for `loose` at their end */
    size_t loose;
    uint64_t retired;  /* of the device's resources, when it was made */
    uint32_t replaced; /* descriptors since */
    bool is_made;
};

enum {
    REACH_SLOTS = 256,  /* of a binding; fewer are looked at one by one */
    REACH_PART = 16,    /* made anew when a part like this of it may be of the past */
    SENT_MAX = 1 << 10, /* bytes of an update that is remembered: some dozens of buffers */
    /* Writes, their descriptors, and copies of one command: a message holds it. */
    UPDATE_PARTS = 4 << 10,
};

struct vnc_descriptor_set {
    struct vn_object object;
    _Atomic uint32_t refs;
    struct vnc_set_layout *layout; /* a reference */
    uint32_t variable_count;
    struct vnc_device *device;
    struct descriptor_pool *pool;
    struct vnc_descriptor_set *next, **at; /* in the pool's list */
    /* With the device's lock: while one thread submits what uses the set, others may update
     * descriptors that the work does not use. */
    struct slot *slots;
    uint32_t slot_count;   /* of the binding whose count was chosen, the last, only so many */
    struct reach *reaches; /* of each binding; NULL: all have few slots */
    /* The command that last updated it, where that updated nothing else; with the stream's lock. */
    uint8_t *sent;
    size_t sent_len, sent_cap;
};

struct descriptor_pool {
    struct vn_object object;
    struct vnc_descriptor_set *first;
    uint32_t max_sets, sets;
    uint64_t max_blocks, blocks; /* bindings of inline uniform blocks; their sizes count bytes */
    /* Since the last reset.  The driver may only fail to find room in what is free, because it is
     * in pieces, where sets were freed and not all had as many descriptors of each type. */
    bool freed, mixed, shaped;
    bool after_bind; /* for sets that are updated after they were bound: then where sets were freed
                      */
    uint32_t size_count;
    struct pool_size {
        VkDescriptorType type;
        uint64_t max, used;
        uint64_t each; /* of the first set, once `shaped` */
    } * sizes;
};

struct update_template {
    struct vn_object object;
    VkPipelineBindPoint point;
    uint32_t count;
    VkDescriptorUpdateTemplateEntry *entries;
};

size_t vnc_descriptor_size(uint32_t type)
{
    switch (type) {
    case VK_OBJECT_TYPE_DESCRIPTOR_SET_LAYOUT:
        return sizeof(struct vnc_set_layout);
    case VK_OBJECT_TYPE_PIPELINE_LAYOUT:
        return sizeof(struct vnc_pipeline_layout);
    case VK_OBJECT_TYPE_DESCRIPTOR_POOL:
        return sizeof(struct descriptor_pool);
    case VK_OBJECT_TYPE_DESCRIPTOR_SET:
        return sizeof(struct vnc_descriptor_set);
    case VK_OBJECT_TYPE_DESCRIPTOR_UPDATE_TEMPLATE:
        return sizeof(struct update_template);
    default:
        return 0;
    }
}

/* ---- sets ---- */

struct vnc_descriptor_set *vnc_descriptor_set_ref(struct vnc_descriptor_set *set)
{
    atomic_fetch_add_explicit(&set->refs, 1, memory_order_relaxed);
    return set;
}

void vnc_descriptor_set_unref(struct vnc_descriptor_set *set)
{
    /* Release and acquire: the last one frees after all others are finished with it. */
    if (atomic_fetch_sub_explicit(&set->refs, 1, memory_order_acq_rel) > 1)
        return;
    for (uint32_t i = 0; set->slots && i < set->slot_count; i++)
        vnc_resource_unref(set->slots[i].resource);
    for (uint32_t i = 0; set->reaches && i < set->layout->count; i++)
        vnc_ranges_fini(&set->reaches[i].ranges);
    free(set->reaches);
    free(set->slots);
    free(set->sent);
    vnc_set_layout_unref(set->layout);
    free(set);
}

/* Of a binding; the layout has the most that there can be. */
static uint32_t slots_of(const struct vnc_descriptor_set *set, const struct vnc_binding *b)
{
    uint32_t left = set->slot_count - b->first_slot;
    return b->slots < left ? b->slots : left;
}

/* With the device's lock, as all of this.  False where something is not bound yet. */
static bool add_slots(const struct vnc_descriptor_set *set, const struct vnc_binding *b,
                      struct vnc_ranges *ranges)
{
    bool bound = true;
    for (uint32_t i = b->first_slot; i < b->first_slot + slots_of(set, b); i++) {
        const struct slot *slot = &set->slots[i];
        if (!slot->resource || vnc_resource_is_dead(slot->resource))
            continue;
        vnc_ranges_add(ranges, slot->resource, slot->offset, slot->range);
        bound = bound && vnc_resource_is_bound(slot->resource);
    }
    return bound;
}

static struct reach *reach_of(const struct vnc_descriptor_set *set, const struct vnc_binding *b)
{
    return set->reaches && slots_of(set, b) >= REACH_SLOTS
               ? &set->reaches[b - set->layout->bindings]
               : NULL;
}

static void reach_make(const struct vnc_descriptor_set *set, const struct vnc_binding *b,
                       struct reach *reach)
{
    vnc_ranges_fini(&reach->ranges);
    reach->retired = atomic_load_explicit(&set->device->retired, memory_order_relaxed);
    reach->replaced = 0;
    reach->loose = 0;
    reach->is_made = add_slots(set, b, &reach->ranges) && !reach->ranges.failed;
    vnc_ranges_merge(&reach->ranges);
}

/* Whether little enough of it is of the past: of descriptors or resources that are no more. */
static bool reach_is_good(const struct vnc_descriptor_set *set, const struct vnc_binding *b,
                          const struct reach *reach)
{
    uint64_t retired = atomic_load_explicit(&set->device->retired, memory_order_relaxed);
    return reach->is_made &&
           retired - reach->retired + reach->replaced <= slots_of(set, b) / REACH_PART;
}

/* The slot has changed: what it leads to now is added. */
static void reach_add(const struct vnc_descriptor_set *set, const struct slot *slot)
{
    const struct vnc_binding *b = set->layout->bindings;
    while (slot - set->slots >= (ptrdiff_t)(b->first_slot + b->slots))
        b++;
    struct reach *reach = reach_of(set, b);
    if (!reach || !reach->is_made)
        return;
    reach->replaced++;
    if (!slot->resource)
        return;
    size_t before = reach->ranges.count;
    vnc_ranges_add(&reach->ranges, slot->resource, slot->offset, slot->range);
    reach->loose += reach->ranges.count - before;
    reach->is_made = vnc_resource_is_bound(slot->resource) && !reach->ranges.failed;
}

static void add_binding(const struct vnc_descriptor_set *set, const struct vnc_binding *b,
                        struct vnc_ranges *ranges)
{
    struct reach *reach = reach_of(set, b);
    if (reach && !reach_is_good(set, b, reach))
        reach_make(set, b, reach);
    if (!reach || !reach->is_made) {
        (void)add_slots(set, b, ranges);
        return;
    }
    if (reach->loose)
        vnc_ranges_merge(&reach->ranges);
    reach->loose = 0;
    for (size_t i = 0; i < reach->ranges.count; i++)
        vnc_ranges_add_range(ranges, &reach->ranges.items[i]);
}

void vnc_descriptor_set_ranges(const struct vnc_descriptor_set *set, bool writes,
                               struct vnc_ranges *ranges)
{
    if (!set->slots)
        return;
    pthread_mutex_lock(&set->device->lock);
    for (uint32_t i = 0; i < set->layout->count; i++) {
        const struct vnc_binding *b = &set->layout->bindings[i];
        if (!writes || vnc_descriptor_writes_buffer(b->type))
            add_binding(set, b, ranges);
    }
    pthread_mutex_unlock(&set->device->lock);
}

void vnc_descriptor_set_binding_ranges(const struct vnc_descriptor_set *set, uint32_t number,
                                       struct vnc_ranges *ranges)
{
    const struct vnc_binding *binding = vnc_set_layout_binding(set->layout, number);
    if (!binding || !set->slots)
        return;
    pthread_mutex_lock(&set->device->lock);
    add_binding(set, binding, ranges);
    pthread_mutex_unlock(&set->device->lock);
}

/* Of a type; 0 where the layout has none. */
static uint64_t descriptors_of(const struct vnc_set_layout *layout, uint32_t variable_count,
                               VkDescriptorType type)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < layout->count; i++) {
        const struct vnc_binding *b = &layout->bindings[i];
        if (b->type == type)
            count += b->variable ? variable_count : b->count;
    }
    return count;
}

static uint64_t blocks_of(const struct vnc_set_layout *layout)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < layout->count; i++)
        count += layout->bindings[i].type == VK_DESCRIPTOR_TYPE_INLINE_UNIFORM_BLOCK;
    return count;
}

/* What the set takes from its pool, or gives back. */
static void charge(struct descriptor_pool *pool, const struct vnc_set_layout *layout,
                   uint32_t variable_count, bool back)
{
    for (uint32_t i = 0; i < pool->size_count; i++) {
        struct pool_size *size = &pool->sizes[i];
        uint64_t count = descriptors_of(layout, variable_count, size->type);
        size->used = back ? size->used - count : size->used + count;
        if (!pool->shaped)
            size->each = count;
        pool->mixed |= size->each != count;
    }
    pool->shaped = true;
    pool->blocks = back ? pool->blocks - blocks_of(layout) : pool->blocks + blocks_of(layout);
    pool->sets = back ? pool->sets - 1 : pool->sets + 1;
}

static void leave_pool(struct vnc_descriptor_set *set)
{
    if (!set->at)
        return;
    *set->at = set->next;
    if (set->next)
        set->next->at = set->at;
    set->at = NULL;
    charge(set->pool, set->layout, set->variable_count, true);
}

void vnc_descriptor_fini(struct vn_object *object)
{
    switch (object->type) {
    case VK_OBJECT_TYPE_DESCRIPTOR_SET_LAYOUT:
        vnc_set_layout_unref((struct vnc_set_layout *)object);
        return;
    case VK_OBJECT_TYPE_PIPELINE_LAYOUT:
        vnc_pipeline_layout_fini((struct vnc_pipeline_layout *)object);
        return;
    case VK_OBJECT_TYPE_DESCRIPTOR_SET: {
        struct vnc_descriptor_set *set = (struct vnc_descriptor_set *)object;
        leave_pool(set);
        vnc_descriptor_set_unref(set);
        return;
    }
    case VK_OBJECT_TYPE_DESCRIPTOR_POOL: {
        struct descriptor_pool *pool = (struct descriptor_pool *)object;
        while (pool->first)
            vnc_object_destroy(&pool->first->object);
        free(pool->sizes);
        break;
    }
    case VK_OBJECT_TYPE_DESCRIPTOR_UPDATE_TEMPLATE:
        free(((struct update_template *)object)->entries);
        break;
    default:
        break;
    }
    free(object);
}

/* ---- pools ---- */

static void add_size(struct descriptor_pool *pool, const VkDescriptorPoolSize *size)
{
    for (uint32_t i = 0; i < pool->size_count; i++) {
        if (pool->sizes[i].type == size->type) {
            pool->sizes[i].max += size->descriptorCount;
            return;
        }
    }
    pool->sizes[pool->size_count++] =
        (struct pool_size){.type = size->type, .max = size->descriptorCount};
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pool(VkDevice device,
                                                  const VkDescriptorPoolCreateInfo *info,
                                                  const VkAllocationCallbacks *allocator,
                                                  VkDescriptorPool *out)
{
    VkResult result = vn_vkCreateDescriptorPool(device, info, allocator, out);
    if (result != VK_SUCCESS)
        return result;
    struct descriptor_pool *pool = VNC_OBJECT(descriptor_pool, *out);
    pool->sizes = calloc(info->poolSizeCount ? info->poolSizeCount : 1, sizeof(*pool->sizes));
    if (!pool->sizes) {
        vn_vkDestroyDescriptorPool(device, *out, allocator);
        *out = VK_NULL_HANDLE;
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    const VkDescriptorPoolInlineUniformBlockCreateInfo *blocks = vn_chain_find(
        info->pNext, VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_INLINE_UNIFORM_BLOCK_CREATE_INFO);
    pool->max_blocks = blocks ? blocks->maxInlineUniformBlockBindings : 0;
    pool->after_bind = info->flags & VK_DESCRIPTOR_POOL_CREATE_UPDATE_AFTER_BIND_BIT;
    pool->max_sets = info->maxSets;
    for (uint32_t i = 0; i < info->poolSizeCount; i++)
        add_size(pool, &info->pPoolSizes[i]);
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL reset_pool(VkDevice device, VkDescriptorPool handle,
                                                 VkDescriptorPoolResetFlags flags)
{
    struct descriptor_pool *pool = VNC_OBJECT(descriptor_pool, handle);
    VkResult result = vn_vkResetDescriptorPool(device, handle, flags);
    while (pool->first)
        vnc_object_destroy(&pool->first->object);
    pool->freed = pool->mixed = pool->shaped = false;
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL free_sets(VkDevice device, VkDescriptorPool handle,
                                                uint32_t count, const VkDescriptorSet *sets)
{
    VNC_OBJECT(descriptor_pool, handle)->freed = true;
    return vn_vkFreeDescriptorSets(device, handle, count, sets);
}

static bool is_within(const struct descriptor_pool *pool)
{
    bool within = pool->sets <= pool->max_sets && pool->blocks <= pool->max_blocks;
    for (uint32_t i = 0; i < pool->size_count; i++)
        within = within && pool->sizes[i].used <= pool->sizes[i].max;
    return within;
}

/* False where it has none of a type.  Of mutable ones the pool's sizes may each have other types,
 * so that the sum says nothing. */
static bool pool_knows(const struct descriptor_pool *pool, const struct vnc_set_layout *layout)
{
    for (uint32_t i = 0; i < layout->count; i++) {
        VkDescriptorType type = layout->bindings[i].type;
        bool found = layout->bindings[i].count == 0;
        for (uint32_t j = 0; j < pool->size_count; j++)
            found =
                found || (pool->sizes[j].type == type && type != VK_DESCRIPTOR_TYPE_MUTABLE_VALVE);
        if (!found)
            return false;
    }
    return true;
}

static uint32_t count_slots(const struct vnc_set_layout *layout, uint32_t variable_count)
{
    const struct vnc_binding *last = layout->count ? &layout->bindings[layout->count - 1] : NULL;
    bool fewer = last && last->variable && variable_count < last->slots;
    return fewer ? last->first_slot + variable_count : layout->slots;
}

static bool set_init(struct vnc_descriptor_set *set, struct vnc_device *device,
                     const VkDescriptorSetAllocateInfo *info, uint32_t i)
{
    const VkDescriptorSetVariableDescriptorCountAllocateInfo *variable = vn_chain_find(
        info->pNext, VK_STRUCTURE_TYPE_DESCRIPTOR_SET_VARIABLE_DESCRIPTOR_COUNT_ALLOCATE_INFO);
    struct descriptor_pool *pool = VNC_OBJECT(descriptor_pool, info->descriptorPool);
    set->refs = 1;
    set->device = device;
    set->layout = vnc_set_layout_ref(VNC_OBJECT(vnc_set_layout, info->pSetLayouts[i]));
    set->pool = pool;
    if (variable && i < variable->descriptorSetCount)
        set->variable_count = variable->pDescriptorCounts[i];
    set->slot_count = count_slots(set->layout, set->variable_count);
    if (set->slot_count)
        set->slots = calloc(set->slot_count, sizeof(*set->slots));
    if (set->slot_count >= REACH_SLOTS)
        set->reaches = calloc(set->layout->count, sizeof(*set->reaches));
    if (set->slot_count && !set->slots)
        return false;
    charge(pool, set->layout, set->variable_count, false);
    set->next = pool->first;
    set->at = &pool->first;
    if (pool->first)
        pool->first->at = &set->next;
    pool->first = set;
    return true;
}

static bool sets_init(struct vnc_device *device, const VkDescriptorSetAllocateInfo *info,
                      const VkDescriptorSet *sets)
{
    for (uint32_t i = 0; i < info->descriptorSetCount; i++) {
        if (!set_init(VNC_OBJECT(vnc_descriptor_set, sets[i]), device, info, i))
            return false;
    }
    return true;
}

/* Whether the pool, which was charged already, has what was asked for, and Vulkan promises that the
 * driver finds it. */
static bool is_granted(const VkDescriptorSetAllocateInfo *info)
{
    struct descriptor_pool *pool = VNC_OBJECT(descriptor_pool, info->descriptorPool);
    bool known = true;
    for (uint32_t i = 0; i < info->descriptorSetCount; i++)
        known = known && pool_knows(pool, VNC_OBJECT(vnc_set_layout, info->pSetLayouts[i]));
    pool->mixed |= !known; /* of what was not counted there may be any number */
    bool in_pieces = pool->freed && (pool->mixed || pool->after_bind);
    return known && is_within(pool) && !in_pieces;
}

static VkResult send_allocation(VkDevice device, const VkDescriptorSetAllocateInfo *info,
                                VkDescriptorSet *sets)
{
    struct vnc_link *link = vnc_link_of(device);
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return VK_ERROR_DEVICE_LOST;
    vn_enc_cmd_vkAllocateDescriptorSets(e, device, info, sets);
    /* Past what is promised the driver may still agree: ask. */
    if (is_granted(info) && !vnc_link_client(link)->sync)
        return vnc_link_post(link);
    struct vn_decoder reply;
    VkResult result = vnc_link_call(link, &reply);
    if (result != VK_SUCCESS)
        return result;
    result = (VkResult)wire_get_u32(&reply.in);
    (void)wire_get_bytes(&reply.in, wire_dec_left(&reply.in)); /* all were made, or none */
    return vnc_link_finish(link, &reply) == VK_SUCCESS ? result : VK_ERROR_DEVICE_LOST;
}

static VKAPI_ATTR VkResult VKAPI_CALL allocate_sets(VkDevice device,
                                                    const VkDescriptorSetAllocateInfo *info,
                                                    VkDescriptorSet *sets)
{
    uint32_t count = info->descriptorSetCount;
    if (!vn_client_new(device, VK_OBJECT_TYPE_DESCRIPTOR_SET, count, sets))
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    VkResult result = sets_init(VNC_OBJECT(vnc_device, device), info, sets)
                          ? send_allocation(device, info, sets)
                          : VK_ERROR_OUT_OF_HOST_MEMORY;
    if (result != VK_SUCCESS)
        vn_client_undo(vn_client_of(device), count, sets);
    return result;
}

/* ---- updates ---- */

static void slot_set(const struct vnc_descriptor_set *set, struct slot *slot,
                     struct vnc_resource *resource, VkDeviceSize offset, VkDeviceSize range)
{
    if (resource)
        vnc_resource_ref(resource);
    vnc_resource_unref(slot->resource);
    *slot = (struct slot){resource, offset, range};
    if (set->reaches)
        reach_add(set, slot);
}

/* What the i-th descriptor of a write lets shaders reach: a resource and a part of it. */
static struct slot slot_of(const VkWriteDescriptorSet *write, uint32_t i)
{
    struct slot slot = {NULL, 0, VK_WHOLE_SIZE};
    switch (write->descriptorType) {
    case VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER:
    case VK_DESCRIPTOR_TYPE_STORAGE_BUFFER:
        slot.range = write->pBufferInfo[i].range;
        /* fallthrough */
    case VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER_DYNAMIC:
    case VK_DESCRIPTOR_TYPE_STORAGE_BUFFER_DYNAMIC:
        slot.resource = VNC_OBJECT(vnc_resource, write->pBufferInfo[i].buffer);
        slot.offset = write->pBufferInfo[i].offset;
        break;
    case VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER:
    case VK_DESCRIPTOR_TYPE_STORAGE_TEXEL_BUFFER:
        slot.resource = VNC_OBJECT(vnc_resource, write->pTexelBufferView[i]);
        break;
    default:
        break;
    }
    return slot;
}

void vnc_descriptor_write_ranges(const VkWriteDescriptorSet *write, bool writes,
                                 struct vnc_ranges *ranges)
{
    if (writes && !vnc_descriptor_writes_buffer(write->descriptorType))
        return;
    for (uint32_t i = 0; i < write->descriptorCount; i++) {
        struct slot slot = slot_of(write, i);
        if (slot.resource)
            vnc_ranges_add(ranges, slot.resource, slot.offset, slot.range);
    }
}

/* The slot of an element of a binding, counting on into the next bindings as Vulkan does; NULL
 * where nothing is remembered, or the set has no such element. */
static struct slot *slot_at(struct vnc_descriptor_set *set, uint32_t number, uint32_t element)
{
    const struct vnc_set_layout *layout = set->layout;
    const struct vnc_binding *b = vnc_set_layout_binding(layout, number);
    const struct vnc_binding *end = layout->bindings + layout->count;
    while (b && b < end && element >= b->count) {
        element -= b->count;
        b++;
    }
    bool found = b && b < end && set->slots && element < slots_of(set, b);
    return found ? &set->slots[b->first_slot + element] : NULL;
}

/* Both with the device's lock. */
static void remember_write(const VkWriteDescriptorSet *write)
{
    struct vnc_descriptor_set *set = VNC_OBJECT(vnc_descriptor_set, write->dstSet);
    if (!set->slots)
        return;
    for (uint32_t i = 0; i < write->descriptorCount; i++) {
        struct slot *slot = slot_at(set, write->dstBinding, write->dstArrayElement + i);
        struct slot now = slot_of(write, i);
        if (slot)
            slot_set(set, slot, now.resource, now.offset, now.range);
    }
}

static void remember_copy(const VkCopyDescriptorSet *copy)
{
    struct vnc_descriptor_set *from = VNC_OBJECT(vnc_descriptor_set, copy->srcSet);
    struct vnc_descriptor_set *to = VNC_OBJECT(vnc_descriptor_set, copy->dstSet);
    for (uint32_t i = 0; i < copy->descriptorCount; i++) {
        struct slot *src = slot_at(from, copy->srcBinding, copy->srcArrayElement + i);
        struct slot *dst = slot_at(to, copy->dstBinding, copy->dstArrayElement + i);
        if (dst && src)
            slot_set(to, dst, src->resource, src->offset, src->range);
    }
}

static const struct vnc_set_layout *layout_of_write(const void *user,
                                                    const VkWriteDescriptorSet *write)
{
    (void)user;
    return VNC_OBJECT(vnc_descriptor_set, write->dstSet)->layout;
}

/* The set of all writes, or NULL. */
static struct vnc_descriptor_set *only_set(uint32_t count, const VkWriteDescriptorSet *writes)
{
    for (uint32_t i = 1; i < count; i++) {
        if (writes[i].dstSet != writes[0].dstSet)
            return NULL;
    }
    return count ? VNC_OBJECT(vnc_descriptor_set, writes[0].dstSet) : NULL;
}

static void forget_sent(VkDescriptorSet set)
{
    VNC_OBJECT(vnc_descriptor_set, set)->sent_len = 0;
}

static void remember_sent(struct vnc_descriptor_set *set, const uint8_t *command, size_t len)
{
    if (len > set->sent_cap) {
        uint8_t *larger = len <= SENT_MAX ? realloc(set->sent, len) : NULL;
        if (!larger)
            return;
        set->sent = larger;
        set->sent_cap = len;
    }
    memcpy(set->sent, command, len);
    set->sent_len = len;
}

/* Whether a command of writes alone leaves its one set as the last one did.  Notes it otherwise. */
static bool is_sent_already(uint32_t write_count, const VkWriteDescriptorSet *writes,
                            uint32_t copy_count, const VkCopyDescriptorSet *copies,
                            const uint8_t *command, size_t len)
{
    struct vnc_descriptor_set *set = copy_count ? NULL : only_set(write_count, writes);
    if (set && set->sent_len == len && memcmp(set->sent, command, len) == 0)
        return true;
    for (uint32_t i = 0; i < write_count; i++)
        forget_sent(writes[i].dstSet);
    for (uint32_t i = 0; i < copy_count; i++)
        forget_sent(copies[i].dstSet);
    if (set)
        remember_sent(set, command, len);
    return false;
}

static void send_update(VkDevice device, uint32_t write_count, const VkWriteDescriptorSet *writes,
                        uint32_t copy_count, const VkCopyDescriptorSet *copies)
{
    struct vnc_link *link = vnc_link_of(device);
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return;
    size_t start = wire_enc_len(e);
    vn_enc_cmd_vkUpdateDescriptorSets(e, device, write_count, writes, copy_count, copies);
    if (!vnc_link_client(link)->sync) {
        if (vnc_perf(VNC_PERF_REFERENCES) && !wire_enc_error(e) &&
            is_sent_already(write_count, writes, copy_count, copies, wire_enc_data(e) + start,
                            wire_enc_len(e) - start))
            vnc_link_cancel(link);
        else if (vnc_link_post(link) == VK_ERROR_OUT_OF_HOST_MEMORY)
            vnc_link_lose(link, "a descriptor update could not be sent: out of memory");
        return;
    }
    struct vn_decoder reply;
    if (vnc_link_call(link, &reply) == VK_SUCCESS)
        (void)vnc_link_finish(link, &reply);
}

/* `count` descriptors of a write from `at` on.  Chained ones are as many as the write says. */
static VkWriteDescriptorSet part_of(const VkWriteDescriptorSet *write, uint32_t at, uint32_t count)
{
    VkWriteDescriptorSet part = *write;
    part.dstArrayElement += at;
    part.descriptorCount = count;
    if (vn_reads_images(write->descriptorType))
        part.pImageInfo += at;
    if (vn_reads_buffers(write->descriptorType))
        part.pBufferInfo += at;
    if (vn_reads_texels(write->descriptorType))
        part.pTexelBufferView += at;
    return part;
}

static bool can_be_parted(const VkWriteDescriptorSet *write)
{
    return vn_reads_images(write->descriptorType) || vn_reads_buffers(write->descriptorType) ||
           vn_reads_texels(write->descriptorType);
}

/* In as many commands as messages need, in order: writes come before copies. */
static void send_updates(VkDevice device, uint32_t write_count, const VkWriteDescriptorSet *writes,
                         uint32_t copy_count, const VkCopyDescriptorSet *copies)
{
    uint32_t first = 0;
    uint64_t parts = 0;
    for (uint32_t i = 0; i < write_count; i++) {
        uint32_t count = writes[i].descriptorCount;
        if (parts && parts + count >= UPDATE_PARTS) {
            send_update(device, i - first, writes + first, 0, NULL);
            first = i;
            parts = 0;
        }
        if (count >= UPDATE_PARTS && can_be_parted(&writes[i])) {
            for (uint32_t at = 0; at < count; at += UPDATE_PARTS) {
                uint32_t left = count - at;
                VkWriteDescriptorSet part =
                    part_of(&writes[i], at, left < UPDATE_PARTS ? left : UPDATE_PARTS);
                send_update(device, 1, &part, 0, NULL);
            }
            first = i + 1;
        } else {
            parts += 1 + (uint64_t)count;
        }
    }
    for (; copy_count > UPDATE_PARTS; copy_count -= UPDATE_PARTS, copies += UPDATE_PARTS) {
        send_update(device, write_count - first, writes + first, UPDATE_PARTS, copies);
        first = write_count;
    }
    if (first < write_count || copy_count)
        send_update(device, write_count - first, writes + first, copy_count, copies);
}

static VKAPI_ATTR void VKAPI_CALL update_sets(VkDevice device, uint32_t write_count,
                                              const VkWriteDescriptorSet *writes,
                                              uint32_t copy_count,
                                              const VkCopyDescriptorSet *copies)
{
    struct vnc_writes clean;
    if (!vnc_writes_clean(write_count, writes, layout_of_write, NULL, &clean)) {
        vnc_link_lose(vnc_link_of(device), "a descriptor update could not be sent: out of memory");
        return;
    }
    struct vnc_device *d = VNC_OBJECT(vnc_device, device);
    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < write_count; i++)
        remember_write(&clean.writes[i]);
    for (uint32_t i = 0; i < copy_count; i++)
        remember_copy(&copies[i]);
    pthread_mutex_unlock(&d->lock);
    send_updates(device, write_count, clean.writes, copy_count, copies);
    vnc_writes_fini(&clean);
}

/* ---- templates ---- */

static VKAPI_ATTR VkResult VKAPI_CALL
create_template(VkDevice device, const VkDescriptorUpdateTemplateCreateInfo *info,
                const VkAllocationCallbacks *allocator, VkDescriptorUpdateTemplate *out)
{
    (void)allocator;
    struct update_template *update = vnc_object_create(
        vnc_link_of(device), VK_OBJECT_TYPE_DESCRIPTOR_UPDATE_TEMPLATE, (struct vn_object *)device);
    if (!update)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    update->count = info->descriptorUpdateEntryCount;
    update->point = info->pipelineBindPoint;
    update->entries = malloc((update->count ? update->count : 1) * sizeof(*update->entries));
    if (!update->entries) {
        vnc_object_destroy(&update->object);
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    memcpy(update->entries, info->pDescriptorUpdateEntries,
           update->count * sizeof(*update->entries));
    *out = VNC_HANDLE(VkDescriptorUpdateTemplate, update);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_template(VkDevice device,
                                                   VkDescriptorUpdateTemplate update,
                                                   const VkAllocationCallbacks *allocator)
{
    (void)device;
    (void)allocator;
    vnc_object_destroy(VNC_OBJECT(vn_object, update));
}

VkPipelineBindPoint vnc_template_bind_point(VkDescriptorUpdateTemplate handle)
{
    return VNC_OBJECT(update_template, handle)->point;
}

/* Elements of `size` bytes, a stride apart, side by side. */
static void *gather(struct hw_arena *arena, const VkDescriptorUpdateTemplateEntry *entry,
                    const void *data, size_t size)
{
    const uint8_t *from = (const uint8_t *)data + entry->offset;
    uint8_t *to = hw_arena_alloc(arena, entry->descriptorCount * size, 8);
    for (uint32_t i = 0; to && i < entry->descriptorCount; i++)
        memcpy(to + i * size, from + i * entry->stride, size);
    return to;
}

static bool write_blob(struct hw_arena *arena, const VkDescriptorUpdateTemplateEntry *entry,
                       const void *data, VkWriteDescriptorSet *write)
{
    VkWriteDescriptorSetInlineUniformBlock *block = hw_arena_calloc(arena, 1, sizeof(*block));
    if (!block)
        return false;
    *block = (VkWriteDescriptorSetInlineUniformBlock){
        .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET_INLINE_UNIFORM_BLOCK,
        .dataSize = entry->descriptorCount,
        .pData = (const uint8_t *)data + entry->offset};
    write->pNext = block;
    return true;
}

static bool write_structures(struct hw_arena *arena, const VkDescriptorUpdateTemplateEntry *entry,
                             const void *data, VkWriteDescriptorSet *write)
{
    VkWriteDescriptorSetAccelerationStructureKHR *s = hw_arena_calloc(arena, 1, sizeof(*s));
    if (!s)
        return false;
    *s = (VkWriteDescriptorSetAccelerationStructureKHR){
        .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET_ACCELERATION_STRUCTURE_KHR,
        .accelerationStructureCount = entry->descriptorCount,
        .pAccelerationStructures = gather(arena, entry, data, sizeof(VkAccelerationStructureKHR))};
    write->pNext = s;
    return s->pAccelerationStructures != NULL;
}

static bool write_structures_nv(struct hw_arena *arena,
                                const VkDescriptorUpdateTemplateEntry *entry, const void *data,
                                VkWriteDescriptorSet *write)
{
    VkWriteDescriptorSetAccelerationStructureNV *s = hw_arena_calloc(arena, 1, sizeof(*s));
    if (!s)
        return false;
    *s = (VkWriteDescriptorSetAccelerationStructureNV){
        .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET_ACCELERATION_STRUCTURE_NV,
        .accelerationStructureCount = entry->descriptorCount,
        .pAccelerationStructures = gather(arena, entry, data, sizeof(VkAccelerationStructureNV))};
    write->pNext = s;
    return s->pAccelerationStructures != NULL;
}

static bool write_entry(struct hw_arena *arena, const VkDescriptorUpdateTemplateEntry *entry,
                        const void *data, VkWriteDescriptorSet *write)
{
    switch (entry->descriptorType) {
    case VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER:
    case VK_DESCRIPTOR_TYPE_STORAGE_TEXEL_BUFFER:
        write->pTexelBufferView = gather(arena, entry, data, sizeof(VkBufferView));
        return write->pTexelBufferView != NULL;
    case VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER:
    case VK_DESCRIPTOR_TYPE_STORAGE_BUFFER:
    case VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER_DYNAMIC:
    case VK_DESCRIPTOR_TYPE_STORAGE_BUFFER_DYNAMIC:
        write->pBufferInfo = gather(arena, entry, data, sizeof(VkDescriptorBufferInfo));
        return write->pBufferInfo != NULL;
    case VK_DESCRIPTOR_TYPE_INLINE_UNIFORM_BLOCK:
        return write_blob(arena, entry, data, write);
    case VK_DESCRIPTOR_TYPE_ACCELERATION_STRUCTURE_KHR:
        return write_structures(arena, entry, data, write);
    case VK_DESCRIPTOR_TYPE_ACCELERATION_STRUCTURE_NV:
        return write_structures_nv(arena, entry, data, write);
    default:
        write->pImageInfo = gather(arena, entry, data, sizeof(VkDescriptorImageInfo));
        return write->pImageInfo != NULL;
    }
}

bool vnc_template_writes(VkDescriptorUpdateTemplate handle, VkDescriptorSet set, const void *data,
                         struct vnc_writes *out)
{
    const struct update_template *update = VNC_OBJECT(update_template, handle);
    struct vnc_writes made;
    bool ok = vnc_writes_init(&made, update->count);
    if (!ok)
        return false;
    for (uint32_t i = 0; ok && i < update->count; i++) {
        const VkDescriptorUpdateTemplateEntry *entry = &update->entries[i];
        made.writes[i] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                                .dstSet = set,
                                                .dstBinding = entry->dstBinding,
                                                .dstArrayElement = entry->dstArrayElement,
                                                .descriptorCount = entry->descriptorCount,
                                                .descriptorType = entry->descriptorType};
        ok = write_entry(made.arena, entry, data, &made.writes[i]);
    }
    if (ok)
        *out = made;
    else
        vnc_writes_fini(&made);
    return ok;
}

static VKAPI_ATTR void VKAPI_CALL update_with_template(VkDevice device, VkDescriptorSet set,
                                                       VkDescriptorUpdateTemplate update,
                                                       const void *data)
{
    struct vnc_writes writes;
    if (!vnc_template_writes(update, set, data, &writes)) {
        vnc_link_lose(vnc_link_of(device), "a descriptor update could not be sent: out of memory");
        return;
    }
    update_sets(device, writes.count, writes.writes, 0, NULL);
    vnc_writes_fini(&writes);
}

const struct vnc_entry vnc_entries_descriptor[] = {
    VNC_ENTRY(vkCreateDescriptorPool, create_pool),
    VNC_ENTRY(vkResetDescriptorPool, reset_pool),
    VNC_ENTRY(vkAllocateDescriptorSets, allocate_sets),
    VNC_ENTRY(vkFreeDescriptorSets, free_sets),
    VNC_ENTRY(vkUpdateDescriptorSets, update_sets),
    VNC_ENTRY(vkCreateDescriptorUpdateTemplate, create_template),
    VNC_ENTRY(vkDestroyDescriptorUpdateTemplate, destroy_template),
    VNC_ENTRY(vkUpdateDescriptorSetWithTemplate, update_with_template),
    {NULL, NULL},
};
