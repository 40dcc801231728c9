/* Facts for the client; see facts.h. */
#include "venus/server/session/facts.h"

#include "base/attr.h"
#include "venus/common/chain.h"
#include "venus/common/protocol.h"
#include "venus/common/rules.h"
#include "venus/server/session/state.h"

#include <assert.h>

/* ---- buffers ---- */

struct need {
    VkMemoryRequirements memory;
    bool dedicated; /* wanted or required */
};

static VkBuffer make_buffer(const struct vns_device *d, VkDeviceSize size, VkBufferUsageFlags usage,
                            struct need *need)
{
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = size, .usage = usage};
    VkBuffer buffer = VK_NULL_HANDLE;
    if (d->driver.vkCreateBuffer(d->handle, &info, NULL, &buffer) < 0)
        return VK_NULL_HANDLE;
    VkMemoryDedicatedRequirements dedicated = {.sType =
                                                   VK_STRUCTURE_TYPE_MEMORY_DEDICATED_REQUIREMENTS};
    VkMemoryRequirements2 out = {.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2,
                                 .pNext = &dedicated};
    VkBufferMemoryRequirementsInfo2 of = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_REQUIREMENTS_INFO_2, .buffer = buffer};
    d->driver.vkGetBufferMemoryRequirements2(d->handle, &of, &out);
    *need = (struct need){out.memoryRequirements, dedicated.prefersDedicatedAllocation ||
                                                      dedicated.requiresDedicatedAllocation};
    return buffer;
}

static bool is_power_of_two(VkDeviceSize n)
{
    return n && !(n & (n - 1));
}

/* The largest size up to which all buffers need what their size says; 0 where none do.  *rule is
 * what one byte needs: its size is what all are rounded up to. */
static VkDeviceSize regular_size(const struct vns_device *d, VkBufferUsageFlags usage,
                                 VkMemoryRequirements *rule)
{
    static const VkDeviceSize sizes[] = {
        1,      255, 4096, 65537, (1 << 20) + 1, (16 << 20) + 1, (64 << 20) - 1, (256 << 20) + 3,
        1 << 30};
    VkDeviceSize regular = 0;
    *rule = (VkMemoryRequirements){0};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct need need;
        VkBuffer buffer = make_buffer(d, sizes[i], usage, &need);
        if (!buffer)
            break;
        d->driver.vkDestroyBuffer(d->handle, buffer, NULL);
        if (i == 0)
            *rule = need.memory;
        if (need.dedicated || !is_power_of_two(rule->alignment) || !is_power_of_two(rule->size) ||
            need.memory.alignment != rule->alignment ||
            need.memory.memoryTypeBits != rule->memoryTypeBits ||
            need.memory.size != ((sizes[i] + rule->size - 1) & ~(rule->size - 1)))
            break;
        regular = sizes[i];
    }
    return regular;
}

static bool is_new_kind(struct vns_facts *facts, VkBufferUsageFlags usage)
{
    for (uint32_t i = 0; i < facts->tried_count; i++) {
        if (facts->tried[i] == usage)
            return false;
    }
    if (facts->tried_count == VNS_FACT_KINDS_MAX)
        return false;
    facts->tried[facts->tried_count++] = usage;
    return true;
}

void vns_facts_of_buffer(struct vns_session *s, const VkBufferCreateInfo *info)
{
    struct vns_device *d = s->command.device;
    VkMemoryRequirements rule;
    uint32_t usage = vn_plain_usage(info);
    if (!usage || !d->driver.vkGetBufferMemoryRequirements2 || !is_new_kind(&d->facts, usage))
        return;
    s->messages.muted = true;
    VkDeviceSize regular = regular_size(d, usage, &rule);
    s->messages.muted = false;
    if (!regular)
        return;
    uint8_t payload[8 + 4 + 4 + 8 + 8 + 8];
    struct wire_enc e;
    wire_enc_init_fixed(&e, payload, sizeof(payload));
    wire_put_u64(&e, d->id);
    wire_put_u32(&e, usage);
    wire_put_u32(&e, rule.memoryTypeBits);
    wire_put_u64(&e, rule.alignment);
    wire_put_u64(&e, rule.size);
    wire_put_u64(&e, regular);
    assert(wire_enc_error(&e) == 0);
    vns_channel_send(&s->channel, VN_PUSH_REGULAR, payload, sizeof(payload));
}

/* ---- addresses ---- */

/* The address of a buffer bound there; 0 when it does not fit. */
static VkDeviceAddress address_at(const struct vns_device *d, VkDeviceMemory memory,
                                  const VkMemoryAllocateInfo *info, VkDeviceSize offset)
{
    struct need need;
    VkDeviceAddress address = 0;
    VkBuffer buffer = make_buffer(
        d, 1, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
        &need);
    if (!buffer)
        return 0;
    bool fits = !need.dedicated && (need.memory.memoryTypeBits >> info->memoryTypeIndex & 1) &&
                need.memory.alignment && offset % need.memory.alignment == 0 &&
                offset <= info->allocationSize && need.memory.size <= info->allocationSize - offset;
    if (fits && d->driver.vkBindBufferMemory(d->handle, buffer, memory, offset) >= 0) {
        VkBufferDeviceAddressInfo of = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                        .buffer = buffer};
        address = d->driver.vkGetBufferDeviceAddress(d->handle, &of);
    }
    d->driver.vkDestroyBuffer(d->handle, buffer, NULL);
    return address;
}

/* Allocations of their own can be bound to nothing else. */
static bool has_address(const VkMemoryAllocateInfo *info)
{
    const VkMemoryAllocateFlagsInfo *flags =
        vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO);
    return flags && (flags->flags & VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT) &&
           !vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO);
}

/* In the middle of the memory, or at what is enough for any alignment of buffers. */
static VkDeviceSize second_probe_offset(const VkMemoryAllocateInfo *info)
{
    VkDeviceSize offset = 64 << 10;
    while (offset > info->allocationSize / 2)
        offset /= 2;
    return offset;
}

void vns_facts_of_memory(struct vns_session *s, uint64_t id, VkDeviceMemory memory,
                         const VkMemoryAllocateInfo *info)
{
    struct vns_device *d = s->command.device;
    if (d->facts.addresses == VNS_ADDRESSES_DO_NOT || !d->driver.vkGetBufferDeviceAddress ||
        !d->driver.vkGetBufferMemoryRequirements2 || !has_address(info))
        return;
    s->messages.muted = true;
    VkDeviceAddress address = address_at(d, memory, info, 0);
    if (address && d->facts.addresses == VNS_ADDRESSES_UNTRIED) {
        VkDeviceSize offset = second_probe_offset(info);
        VkDeviceAddress second = address_at(d, memory, info, offset);
        if (second)
            d->facts.addresses =
                second == address + offset ? VNS_ADDRESSES_ADD_UP : VNS_ADDRESSES_DO_NOT;
    }
    s->messages.muted = false;
    if (!address || d->facts.addresses != VNS_ADDRESSES_ADD_UP)
        return;
    uint8_t payload[8 + 8];
    struct wire_enc e;
    wire_enc_init_fixed(&e, payload, sizeof(payload));
    wire_put_u64(&e, id);
    wire_put_u64(&e, address);
    assert(wire_enc_error(&e) == 0);
    vns_channel_send(&s->channel, VN_PUSH_ADDRESS, payload, sizeof(payload));
}
