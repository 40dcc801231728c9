/* Buffers, images and their views; see memory.h. */
#include "venus/client/link/pushes.h"
#include "venus/client/memory/external.h"
#include "venus/client/memory/memory.h"
#include "venus/common/rules.h"
#include "vn_client.gen.h"
#include "vn_structs.gen.h"

#include <stdlib.h>

struct vnc_resource *vnc_resource_ref(struct vnc_resource *resource)
{
    atomic_fetch_add_explicit(&resource->refs, 1, memory_order_relaxed);
    return resource;
}

void vnc_resource_unref(struct vnc_resource *resource)
{
    /* Release and acquire: the last one frees after all others are finished with it. */
    if (!resource || atomic_fetch_sub_explicit(&resource->refs, 1, memory_order_acq_rel) > 1)
        return;
    vnc_memory_unref(resource->memory);
    vnc_resource_unref(resource->base);
    wire_enc_fini(&resource->created);
    free(resource);
}

/* ---- what commands can read or write without naming it ---- */

static void list_shared(struct vnc_resource *resource)
{
    struct vnc_device *device = resource->device;
    if (vnc_link_is_foreign(vnc_device_link(device)))
        return;
    pthread_mutex_lock(&device->lock);
    if (!resource->shared) {
        resource->shared = true;
        resource->next_shared = device->shared;
        resource->shared_at = &device->shared;
        if (device->shared)
            device->shared->shared_at = &resource->next_shared;
        device->shared = resource;
    }
    pthread_mutex_unlock(&device->lock);
}

static void leave_shared(struct vnc_resource *resource)
{
    struct vnc_device *device = resource->device;
    if (vnc_link_is_foreign(vnc_device_link(device)))
        return;
    pthread_mutex_lock(&device->lock);
    if (resource->shared) {
        *resource->shared_at = resource->next_shared;
        if (resource->next_shared)
            resource->next_shared->shared_at = resource->shared_at;
        resource->shared = false;
    }
    pthread_mutex_unlock(&device->lock);
}

/* ---- creation ---- */

static VKAPI_ATTR VkResult VKAPI_CALL create_buffer(VkDevice device, const VkBufferCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator,
                                                    VkBuffer *out)
{
    VkResult result = vn_vkCreateBuffer(device, info, allocator, out);
    if (result != VK_SUCCESS)
        return result;
    struct vnc_resource *buffer = VNC_OBJECT(vnc_resource, *out);
    buffer->size = info->size;
    buffer->plain_usage = vn_plain_usage(info);
    buffer->plain_address = vn_has_plain_address(info);
    buffer->external = vnc_external_is_chained(buffer->device->physical, info->pNext);
    vn_enc_VkBufferCreateInfo(&buffer->created, info);
    return VK_SUCCESS;
}

/* Stencils may have usages of their own. */
static bool is_only_read(const VkImageCreateInfo *info)
{
    const VkImageUsageFlags reads = VK_IMAGE_USAGE_SAMPLED_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT;
    return info->tiling == VK_IMAGE_TILING_LINEAR && !(info->usage & ~reads) &&
           !vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_IMAGE_STENCIL_USAGE_CREATE_INFO);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_image(VkDevice device, const VkImageCreateInfo *info,
                                                   const VkAllocationCallbacks *allocator,
                                                   VkImage *out)
{
    VkResult result = vn_vkCreateImage(device, info, allocator, out);
    if (result != VK_SUCCESS)
        return result;
    struct vnc_resource *image = VNC_OBJECT(vnc_resource, *out);
    image->shape = vnc_image_shape(info);
    image->external = vnc_external_is_chained(image->device->physical, info->pNext);
    image->only_read = is_only_read(info);
    vn_enc_VkImageCreateInfo(&image->created, info);
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_buffer_view(VkDevice device,
                                                         const VkBufferViewCreateInfo *info,
                                                         const VkAllocationCallbacks *allocator,
                                                         VkBufferView *out)
{
    VkResult result = vn_vkCreateBufferView(device, info, allocator, out);
    if (result != VK_SUCCESS)
        return result;
    struct vnc_resource *view = VNC_OBJECT(vnc_resource, *out);
    struct vnc_resource *buffer = VNC_OBJECT(vnc_resource, info->buffer);
    view->base = vnc_resource_ref(buffer);
    view->offset = info->offset;
    view->size = info->range == VK_WHOLE_SIZE ? buffer->size - info->offset : info->range;
    return VK_SUCCESS;
}

void vnc_resource_retire(struct vnc_resource *resource)
{
    leave_shared(resource);
    atomic_store_explicit(&resource->dead, true, memory_order_relaxed);
    atomic_fetch_add_explicit(&resource->device->retired, 1, memory_order_relaxed);
    vnc_resource_unref(resource);
}

/* ---- requirements ---- */

struct requirements {
    VkMemoryRequirements memory;
    VkBool32 prefers_dedicated, requires_dedicated;
};

typedef void ask_fn(VkDevice device, const void *info, VkMemoryRequirements2 *out);

static void ask_buffer(VkDevice device, const void *info, VkMemoryRequirements2 *out)
{
    vn_vkGetBufferMemoryRequirements2(device, info, out);
}

static void ask_image(VkDevice device, const void *info, VkMemoryRequirements2 *out)
{
    vn_vkGetImageMemoryRequirements2(device, info, out);
}

/* What other processes use is not mapped; see external.h. */
static void hide_mappable(const struct vnc_device *d, VkMemoryRequirements2 *out)
{
    out->memoryRequirements.memoryTypeBits &= vnc_memory_types_unmappable(&d->physical->types);
}

static void translate(VkDevice device, VkMemoryRequirements *requirements)
{
    const struct vnc_device *d = VNC_OBJECT(vnc_device, device);
    requirements->memoryTypeBits =
        vnc_memory_types_translate(&d->physical->types, requirements->memoryTypeBits);
}

/* Whether what a buffer needs follows from what the server told of its kind. */
static bool follows(VkDevice handle, uint32_t plain_usage, VkDeviceSize size,
                    struct requirements *out)
{
    const struct vnc_device *device = VNC_OBJECT(vnc_device, handle);
    struct vnc_regular kind;
    if (!plain_usage ||
        !vnc_pushes_find_regular(device->pushes, device->object.id, plain_usage, &kind) ||
        size > kind.size)
        return false;
    *out = (struct requirements){.memory = {.size = (size + kind.grain - 1) & ~(kind.grain - 1),
                                            .alignment = kind.alignment,
                                            .memoryTypeBits = kind.types}};
    translate(handle, &out->memory);
    return true;
}

static struct requirements ask_for(VkDevice device, const void *info, ask_fn *ask)
{
    VkMemoryDedicatedRequirements dedicated = {.sType =
                                                   VK_STRUCTURE_TYPE_MEMORY_DEDICATED_REQUIREMENTS};
    VkMemoryRequirements2 out = {.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2,
                                 .pNext = &dedicated};
    ask(device, info, &out);
    translate(device, &out.memoryRequirements);
    struct requirements answer;
    memset(&answer, 0, sizeof(answer));
    answer.memory = out.memoryRequirements;
    answer.prefers_dedicated = dedicated.prefersDedicatedAllocation;
    answer.requires_dedicated = dedicated.requiresDedicatedAllocation;
    return answer;
}

/* Asks once for each way of creation; `created` is it, and NULL what has no such key. */
static struct requirements remembered(VkDevice device, const struct wire_enc *created,
                                      const void *info, ask_fn *ask)
{
    struct vnc_device *d = VNC_OBJECT(vnc_device, device);
    bool keyed = created && !wire_enc_error(created);
    const uint8_t *key = keyed ? wire_enc_data(created) : NULL;
    size_t key_len = keyed ? wire_enc_len(created) : 0;
    struct requirements answer;
    if (keyed && vnc_memo_find(&d->requirements, key, key_len, &answer, sizeof(answer)))
        return answer;
    answer = ask_for(device, info, ask);
    if (keyed && answer.memory.size) /* nothing is known from a lost server */
        vnc_memo_add(&d->requirements, key, key_len, &answer, sizeof(answer));
    return answer;
}

static struct requirements requirements_of(VkDevice device, struct vnc_resource *resource,
                                           const void *info, ask_fn *ask)
{
    bool keyed = !((const VkBaseInStructure *)info)->pNext;
    struct requirements answer;
    if (keyed && follows(device, resource->plain_usage, resource->size, &answer))
        return answer;
    return remembered(device, keyed ? &resource->created : NULL, info, ask);
}

static void fill_requirements(VkMemoryRequirements2 *out, const struct requirements *r)
{
    out->memoryRequirements = r->memory;
    VkMemoryDedicatedRequirements *dedicated =
        (void *)vn_chain_find(out->pNext, VK_STRUCTURE_TYPE_MEMORY_DEDICATED_REQUIREMENTS);
    if (dedicated) {
        dedicated->prefersDedicatedAllocation = r->prefers_dedicated;
        dedicated->requiresDedicatedAllocation = r->requires_dedicated;
    }
}

/* Whether the chain asks for more than we remember. */
static bool asks_more(const VkMemoryRequirements2 *out)
{
    return vn_chain_has_others(out->pNext, VK_STRUCTURE_TYPE_MEMORY_DEDICATED_REQUIREMENTS);
}

static void get_requirements2(VkDevice device, struct vnc_resource *resource, const void *info,
                              ask_fn *ask, VkMemoryRequirements2 *out)
{
    if (asks_more(out)) {
        ask(device, info, out);
        translate(device, &out->memoryRequirements);
    } else {
        struct requirements r = requirements_of(device, resource, info, ask);
        fill_requirements(out, &r);
        if (resource->object.type == VK_OBJECT_TYPE_IMAGE)
            resource->size = r.memory.size;
    }
    if (resource->external)
        hide_mappable(resource->device, out);
}

static VKAPI_ATTR void VKAPI_CALL get_buffer_requirements2(
    VkDevice device, const VkBufferMemoryRequirementsInfo2 *info, VkMemoryRequirements2 *out)
{
    get_requirements2(device, VNC_OBJECT(vnc_resource, info->buffer), info, ask_buffer, out);
}

static VKAPI_ATTR void VKAPI_CALL get_buffer_requirements(VkDevice device, VkBuffer buffer,
                                                          VkMemoryRequirements *out)
{
    VkBufferMemoryRequirementsInfo2 info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_REQUIREMENTS_INFO_2, .buffer = buffer};
    VkMemoryRequirements2 requirements = {.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2};
    get_buffer_requirements2(device, &info, &requirements);
    *out = requirements.memoryRequirements;
}

static VKAPI_ATTR void VKAPI_CALL get_image_requirements2(
    VkDevice device, const VkImageMemoryRequirementsInfo2 *info, VkMemoryRequirements2 *out)
{
    get_requirements2(device, VNC_OBJECT(vnc_resource, info->image), info, ask_image, out);
}

static VKAPI_ATTR void VKAPI_CALL get_image_requirements(VkDevice device, VkImage image,
                                                         VkMemoryRequirements *out)
{
    VkImageMemoryRequirementsInfo2 info = {
        .sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_REQUIREMENTS_INFO_2, .image = image};
    VkMemoryRequirements2 requirements = {.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2};
    get_image_requirements2(device, &info, &requirements);
    *out = requirements.memoryRequirements;
}

/* ---- requirements of what is not created yet ---- */

static void ask_planned_buffer(VkDevice device, const void *info, VkMemoryRequirements2 *out)
{
    vn_vkGetDeviceBufferMemoryRequirements(device, info, out);
}

static void ask_planned_image(VkDevice device, const void *info, VkMemoryRequirements2 *out)
{
    vn_vkGetDeviceImageMemoryRequirements(device, info, out);
}

/* What is created in the same way needs the same, so both have one memory. */
static void get_planned(VkDevice device, const struct wire_enc *created, const void *info,
                        ask_fn *ask, VkMemoryRequirements2 *out)
{
    if (asks_more(out)) {
        ask(device, info, out);
        translate(device, &out->memoryRequirements);
        return;
    }
    struct requirements r = remembered(device, created, info, ask);
    fill_requirements(out, &r);
}

static VKAPI_ATTR void VKAPI_CALL get_device_buffer_requirements(
    VkDevice device, const VkDeviceBufferMemoryRequirements *info, VkMemoryRequirements2 *out)
{
    const VkBufferCreateInfo *planned = info->pCreateInfo;
    struct requirements r;
    if (!info->pNext && !asks_more(out) &&
        follows(device, vn_plain_usage(planned), planned->size, &r)) {
        fill_requirements(out, &r);
        return;
    }
    struct wire_enc created;
    wire_enc_init(&created, VNC_MEMO_KEY_BYTES);
    vn_enc_VkBufferCreateInfo(&created, planned);
    get_planned(device, info->pNext ? NULL : &created, info, ask_planned_buffer, out);
    const struct vnc_device *d = VNC_OBJECT(vnc_device, device);
    if (vnc_external_is_chained(d->physical, planned->pNext))
        hide_mappable(d, out);
    wire_enc_fini(&created);
}

/* A plane of an image that is bound plane by plane has requirements of its own. */
static VKAPI_ATTR void VKAPI_CALL get_device_image_requirements(
    VkDevice device, const VkDeviceImageMemoryRequirements *info, VkMemoryRequirements2 *out)
{
    bool whole = !info->pNext && !(info->pCreateInfo->flags & VK_IMAGE_CREATE_DISJOINT_BIT);
    struct wire_enc created;
    wire_enc_init(&created, VNC_MEMO_KEY_BYTES);
    vn_enc_VkImageCreateInfo(&created, info->pCreateInfo);
    get_planned(device, whole ? &created : NULL, info, ask_planned_image, out);
    const struct vnc_device *d = VNC_OBJECT(vnc_device, device);
    if (vnc_external_is_chained(d->physical, info->pCreateInfo->pNext))
        hide_mappable(d, out);
    wire_enc_fini(&created);
}

/* ---- binding ---- */

static void bind(struct vnc_resource *resource, VkDeviceMemory handle, VkDeviceSize offset)
{
    struct vnc_memory *memory = VNC_OBJECT(vnc_memory, handle);
    if (!resource || !memory || resource->memory)
        return; /* planes of an image are bound one by one: shared below, as a whole */
    resource->memory = vnc_memory_ref(memory);
    resource->offset = offset;
    if (resource->object.type != VK_OBJECT_TYPE_IMAGE || !memory->host_visible)
        return;
    if (resource->size == 0 && offset < memory->size)
        resource->size = memory->size - offset;
    list_shared(resource);
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_buffer_memory(VkDevice device, VkBuffer buffer,
                                                         VkDeviceMemory memory, VkDeviceSize offset)
{
    bind(VNC_OBJECT(vnc_resource, buffer), memory, offset);
    return vn_vkBindBufferMemory(device, buffer, memory, offset);
}

/* Where a program asks for the result of each binding: the one of all. */
static void tell_status(const void *chain, VkResult result)
{
#ifdef VK_KHR_maintenance6
    const VkBindMemoryStatusKHR *status =
        vn_chain_find(chain, VK_STRUCTURE_TYPE_BIND_MEMORY_STATUS_KHR);
    if (status && status->pResult)
        *status->pResult = result;
#else
    (void)chain, (void)result;
#endif
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_buffer_memory2(VkDevice device, uint32_t count,
                                                          const VkBindBufferMemoryInfo *infos)
{
    for (uint32_t i = 0; i < count; i++)
        bind(VNC_OBJECT(vnc_resource, infos[i].buffer), infos[i].memory, infos[i].memoryOffset);
    VkResult result = vn_vkBindBufferMemory2(device, count, infos);
    for (uint32_t i = 0; i < count; i++)
        tell_status(infos[i].pNext, result);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_image_memory(VkDevice device, VkImage image,
                                                        VkDeviceMemory memory, VkDeviceSize offset)
{
    bind(VNC_OBJECT(vnc_resource, image), memory, offset);
    return vn_vkBindImageMemory(device, image, memory, offset);
}

/* A plane has memory of its own, whose whole counts as written. */
static void bind_image(struct vnc_device *device, const VkBindImageMemoryInfo *info)
{
    struct vnc_memory *memory = VNC_OBJECT(vnc_memory, info->memory);
    if (memory && vn_chain_find(info->pNext, VK_STRUCTURE_TYPE_BIND_IMAGE_PLANE_MEMORY_INFO))
        vnc_memory_share(device, memory);
    else
        bind(VNC_OBJECT(vnc_resource, info->image), info->memory, info->memoryOffset);
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_image_memory2(VkDevice device, uint32_t count,
                                                         const VkBindImageMemoryInfo *infos)
{
    for (uint32_t i = 0; i < count; i++)
        bind_image(VNC_OBJECT(vnc_device, device), &infos[i]);
    VkResult result = vn_vkBindImageMemory2(device, count, infos);
    for (uint32_t i = 0; i < count; i++)
        tell_status(infos[i].pNext, result);
    return result;
}

/* That the program knows the address: there are drivers and layers that find a buffer by an address
 * only when they were asked for it.  False when it could not be put. */
static bool tell_asked(VkDevice device, const VkBufferDeviceAddressInfo *info)
{
    struct vnc_link *link = vnc_device_link(VNC_OBJECT(vnc_device, device));
    struct wire_enc *e = vnc_link_begin(link);
    if (!e)
        return false;
    vn_enc_cmd_vkGetBufferDeviceAddress(e, device, info);
    return vnc_link_post(link) == VK_SUCCESS;
}

static VKAPI_ATTR VkDeviceAddress VKAPI_CALL
get_buffer_device_address(VkDevice device, const VkBufferDeviceAddressInfo *info)
{
    struct vnc_resource *buffer = VNC_OBJECT(vnc_resource, info->buffer);
    if (buffer->address)
        return buffer->address;
    if (buffer->plain_address && buffer->memory && buffer->memory->address &&
        tell_asked(device, info))
        buffer->address = buffer->memory->address + buffer->offset;
    else
        buffer->address = vn_vkGetBufferDeviceAddress(device, info);
    if (buffer->memory && buffer->memory->host_visible)
        list_shared(buffer);
    return buffer->address;
}

const struct vnc_entry vnc_entries_resource[] = {
    VNC_ENTRY(vkCreateBuffer, create_buffer),
    VNC_ENTRY(vkCreateImage, create_image),
    VNC_ENTRY(vkCreateBufferView, create_buffer_view),
    VNC_ENTRY(vkGetBufferMemoryRequirements, get_buffer_requirements),
    VNC_ENTRY(vkGetBufferMemoryRequirements2, get_buffer_requirements2),
    VNC_ENTRY(vkGetImageMemoryRequirements, get_image_requirements),
    VNC_ENTRY(vkGetImageMemoryRequirements2, get_image_requirements2),
    VNC_ENTRY(vkGetDeviceBufferMemoryRequirements, get_device_buffer_requirements),
    VNC_ENTRY(vkGetDeviceImageMemoryRequirements, get_device_image_requirements),
    VNC_ENTRY(vkBindBufferMemory, bind_buffer_memory),
    VNC_ENTRY(vkBindBufferMemory2, bind_buffer_memory2),
    VNC_ENTRY(vkBindImageMemory, bind_image_memory),
    VNC_ENTRY(vkBindImageMemory2, bind_image_memory2),
    VNC_ENTRY(vkGetBufferDeviceAddress, get_buffer_device_address),
    {NULL, NULL},
};
