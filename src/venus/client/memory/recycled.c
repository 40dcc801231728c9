/* Memory that waits for another allocation; see recycled.h. */
#include "venus/client/memory/recycled.h"

#include "venus/client/object/objects.h"
#include "venus/client/perf.h"
#include "venus/common/protocol.h"
#include "vn_client.gen.h"

struct vnc_memory_kind vnc_memory_kind(const VkMemoryAllocateInfo *info)
{
    struct vnc_memory_kind kind = {.size = info->allocationSize, .type = info->memoryTypeIndex};
    bool plain = true;
    for (const VkBaseInStructure *s = info->pNext; s; s = s->pNext) {
        const VkMemoryAllocateFlagsInfo *flags = (const void *)s;
        const VkMemoryDedicatedAllocateInfo *own = (const void *)s;
        const VkExportMemoryAllocateInfo *shared = (const void *)s;
        switch (s->sType) {
        case VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT: /* it is mapped there, no more
                                                                     */
            break;
        case VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO:
            kind.addressed = flags->flags & VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
            plain &= !(flags->flags & ~(VkFlags)VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT);
            break;
        case VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO:
            plain &= !own->image && !own->buffer;
            break;
        case VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO:
            plain &= !shared->handleTypes;
            break;
        default:
            plain = false;
        }
    }
    kind.plain = plain;
    return kind;
}

static bool same_kind(const struct vnc_memory_kind *a, const struct vnc_memory_kind *b)
{
    return a->size == b->size && a->type == b->type && a->addressed == b->addressed;
}

/* The driver's: two offered heaps may be one. */
static uint32_t heap_of(const struct vnc_memory *memory)
{
    const struct vnc_memory_types *types = &memory->device->physical->types;
    return types->heap_of[types->offered.memoryTypes[memory->kind.type].heapIndex];
}

static _Atomic uint64_t *counted(const struct vnc_memory *memory)
{
    return &memory->device->physical->recycled[heap_of(memory)];
}

/* As what follows: the device's lock is held. */
static struct vnc_memory *remove_at(struct vnc_memory **at)
{
    struct vnc_memory *memory = *at;
    atomic_fetch_sub_explicit(counted(memory), memory->size, memory_order_relaxed);
    *at = memory->next_recycled;
    memory->next_recycled = NULL;
    return memory;
}

/* Takes out, behind one another, the oldest ones that are too many or too much for their heap. */
static struct vnc_memory *remove_over(struct vnc_device *device, uint32_t heap, VkDeviceSize limit)
{
    VkDeviceSize bytes = 0;
    uint32_t kept = 0;
    struct vnc_memory *removed = NULL, **at = &device->recycled;
    while (*at) { /* the newest first */
        bool here = heap_of(*at) == heap;
        bytes += here ? (*at)->size : 0;
        if ((!here || bytes <= limit) && kept < VNC_RECYCLED_MAX) {
            at = &(*at)->next_recycled;
            kept++;
            continue;
        }
        struct vnc_memory *memory = remove_at(at);
        memory->next_recycled = removed;
        removed = memory;
    }
    return removed;
}

static void free_all(struct vnc_device *device, struct vnc_memory *memory)
{
    if (!memory)
        return;
    while (memory) {
        struct vnc_memory *next = memory->next_recycled;
        vn_vkFreeMemory(VNC_HANDLE(VkDevice, device), VNC_HANDLE(VkDeviceMemory, memory), NULL);
        memory = next;
    }
    vnc_budget_change(&device->physical->budget);
}

bool vnc_recycled_put(struct vnc_memory *memory)
{
    struct vnc_device *device = memory->device;
    struct vnc_link *link = vnc_device_link(device);
    uint32_t heap = heap_of(memory);
    VkDeviceSize part = device->physical->types.offered.memoryHeaps[heap].size / VNC_RECYCLED_PART;
    VkDeviceSize limit = part < VNC_RECYCLED_BYTES ? part : VNC_RECYCLED_BYTES;
    if (!memory->kind.plain || memory->size > limit || !vnc_perf(VNC_PERF_RECYCLED_MEMORY) ||
        vnc_link_client(link)->sync || vnc_link_is_lost(link))
        return false;
    pthread_mutex_lock(&device->lock);
    memory->next_recycled = device->recycled;
    device->recycled = memory;
    atomic_fetch_add_explicit(counted(memory), memory->size, memory_order_relaxed);
    struct vnc_memory *over = remove_over(device, heap, limit);
    pthread_mutex_unlock(&device->lock);
    free_all(device, over);
    return true;
}

static struct vnc_memory *take(struct vnc_device *device, const struct vnc_memory_kind *kind)
{
    pthread_mutex_lock(&device->lock);
    struct vnc_memory **at = &device->recycled;
    while (*at && !same_kind(&(*at)->kind, kind))
        at = &(*at)->next_recycled;
    struct vnc_memory *memory = *at ? remove_at(at) : NULL;
    pthread_mutex_unlock(&device->lock);
    return memory;
}

bool vnc_recycled_take(struct vnc_device *device, const struct vnc_memory_kind *kind,
                       VkDeviceMemory *out)
{
    struct vnc_link *link = vnc_device_link(device);
    struct vnc_memory *old = kind->plain && !vnc_link_is_lost(link) ? take(device, kind) : NULL;
    if (!old)
        return false;
    VkDevice handle = VNC_HANDLE(VkDevice, device);
    bool made = vn_client_new(handle, VK_OBJECT_TYPE_DEVICE_MEMORY, 1, out);
    struct wire_enc *e = made ? vnc_link_begin(link) : NULL;
    bool put = false;
    if (e) {
        size_t hole = vn_put_command(e, VN_OP_RENEW);
        wire_put_u64(e, old->object.id);
        wire_put_u64(e, VNC_OBJECT(vnc_memory, *out)->object.id);
        wire_fill_len(e, hole);
        put = vnc_link_post(link) == VK_SUCCESS;
    }
    if (put) {
        VNC_OBJECT(vnc_memory, *out)->address = old->address;
        vnc_object_destroy(&old->object);
        return true;
    }
    if (made)
        vn_client_undo(vnc_link_client(link), 1, out);
    vn_vkFreeMemory(handle, VNC_HANDLE(VkDeviceMemory, old), NULL);
    return false;
}

void vnc_recycled_leave_out(const struct vnc_physical_device *physical,
                            VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget)
{
    for (uint32_t i = 0; i < VK_MAX_MEMORY_HEAPS; i++) {
        uint64_t bytes = atomic_load_explicit(&physical->recycled[physical->types.heap_of[i]],
                                              memory_order_relaxed);
        budget->heapUsage[i] -= bytes < budget->heapUsage[i] ? bytes : budget->heapUsage[i];
    }
}

bool vnc_recycled_free(struct vnc_device *device)
{
    if (vnc_link_is_foreign(vnc_device_link(device)))
        return false;
    struct vnc_memory *all = NULL;
    pthread_mutex_lock(&device->lock);
    while (device->recycled) {
        struct vnc_memory *memory = remove_at(&device->recycled);
        memory->next_recycled = all;
        all = memory;
    }
    pthread_mutex_unlock(&device->lock);
    bool freed = all;
    free_all(device, all);
    return freed;
}
