/* venus/client/memory/memory.h - device memory, and the buffers and images bound to it.
 *
 * Trust: the program's own.
 * Threads: as Vulkan.  `refs` counts the handle and whatever may look at the struct later
 * (bindings, descriptors), so that a look at something freed finds it dead, not gone.
 * Lifetime: see refs. */
#ifndef HAWSER_VENUS_CLIENT_MEMORY_MEMORY_H
#define HAWSER_VENUS_CLIENT_MEMORY_MEMORY_H

#include "venus/client/device/device.h"
#include "venus/client/icd.h"
#include "venus/memory/region.h"

struct vnc_ranges;

/* What an allocation asks for; see client/memory/recycled.h. */
struct vnc_memory_kind {
    VkDeviceSize size;
    uint32_t type;
    bool addressed; /* buffers in it have addresses */
    bool plain;     /* it asks for nothing else */
};

struct vnc_memory {
    struct vn_object object;
    struct vnc_device *device;
    _Atomic uint32_t refs;
    /* Freed by the program.  Relaxed: work that uses it is not submitted meanwhile, but descriptors
     * that nothing uses may still name it. */
    _Atomic bool dead;
    /* Being freed: pages that are asked for are not waited for.  Relaxed: looked at again with each
     * message. */
    _Atomic bool leaving;
    bool host_visible;
    bool cached;       /* at the server's CPU */
    bool demand_paged; /* pages are fetched; see client/memory/fetch.h */
    bool shared;       /* see vnc_memory_share */
    VkDeviceSize size;
    struct vnc_memory_kind kind;
    VkDeviceAddress address;  /* of its first byte; 0: not known */
    uint64_t submissions;     /* of the device, before it was allocated */
    struct vn_region *region; /* from the first map to the end */
    bool tracked;             /* the server knows of the map: deltas may be sent */
    bool expected;            /* a device may write it after the next deltas */
    bool sending;             /* what the program wrote there: it is freed afterwards */
    bool placed;              /* the program chose where its region is */
    /* Bytes that the server compared after work that could write them, and those of them that had
     * changed, however short their deltas.  The first belongs to the holder of the stream's lock.
     * Relaxed: a guess. */
    uint64_t compared;
    _Atomic uint64_t changed;
    struct vnc_memory *next_visible, **visible_at; /* the device's list */
    struct vnc_memory *next_shared, **shared_at;   /* likewise */
    struct vnc_memory *next_recycled;              /* likewise, once it is freed */
};

/* What the texels of an image need. */
struct vnc_image_shape {
    VkFormat format;
    VkExtent3D extent;
    uint32_t layers;
};

static inline struct vnc_image_shape vnc_image_shape(const VkImageCreateInfo *info)
{
    return (struct vnc_image_shape){info->format, info->extent, info->arrayLayers};
}

/* A buffer, an image, or a view of either (whose base is what it views). */
struct vnc_resource {
    struct vn_object object;
    struct vnc_device *device;
    _Atomic uint32_t refs;
    _Atomic bool dead;         /* as of memory */
    bool shared;               /* in the device's list */
    struct vnc_memory *memory; /* a reference; NULL before it is bound */
    VkDeviceSize offset;       /* in memory */
    VkDeviceSize size;         /* of a buffer; what an image needs; of a view, its range */
    struct vnc_resource *base; /* of a view: a reference */
    VkDeviceAddress address;   /* once it was asked for */
    uint32_t plain_usage;      /* of a buffer with nothing else about it; 0: something is */
    bool plain_address;        /* of a buffer: its memory's plus the offset */
    bool external;             /* to be bound to memory that other processes use */
    bool only_read;            /* by devices: a linear image whose usages are such */
    struct vnc_image_shape shape;
    struct wire_enc created; /* how, as a key for requirements; empty for views */
    struct vnc_resource *next_shared, **shared_at;
};

static inline bool vnc_memory_is_dead(const struct vnc_memory *memory)
{
    return atomic_load_explicit(&memory->dead, memory_order_relaxed);
}

/* Sparse ones never are. */
static inline bool vnc_resource_is_bound(const struct vnc_resource *resource)
{
    return resource->base ? resource->base->memory : resource->memory;
}

static inline bool vnc_resource_is_dead(const struct vnc_resource *resource)
{
    return atomic_load_explicit(&resource->dead, memory_order_relaxed);
}

struct vnc_memory *vnc_memory_ref(struct vnc_memory *memory);
void vnc_memory_unref(struct vnc_memory *memory);
struct vnc_resource *vnc_resource_ref(struct vnc_resource *resource);
void vnc_resource_unref(struct vnc_resource *resource);
/* The handle is gone. */
void vnc_resource_retire(struct vnc_resource *resource);

/* From now on every batch is taken to write all of it. */
void vnc_memory_share(struct vnc_device *device, struct vnc_memory *memory);
/* Adds all host-visible memory. */
void vnc_memory_all_ranges(struct vnc_device *device, struct vnc_ranges *ranges);
/* Adds all that batches can read, or write, without naming it in a command. */
enum vnc_access { VNC_READ, VNC_WRITE };
void vnc_memory_shared_ranges(struct vnc_device *device, enum vnc_access access, bool images,
                              bool addresses, struct vnc_ranges *ranges);

/* Whether no work under way can write the memory, so that no delta for it can come from the server
 * before it has executed what is put now: both ends' shadow copies are equal then.  For the holder
 * of the stream's lock. */
bool vnc_memory_is_still(const struct vnc_memory *memory);

/* Work that can write the ranges, which are merged, is put next: memory becomes demand-paged, where
 * it can, if comparing it would take longer (fetch.h).  For the holder of the stream's lock, before
 * vnc_memory_expect. */
void vnc_memory_choose_fetched(struct vnc_device *device, const struct vnc_ranges *ranges,
                               struct wire_enc *e);

/* Work that can write the ranges, which are merged, is put next, behind what vnc_memory_put_deltas
 * puts.  For the holder of the stream's lock.  `may_await`: the host touches nothing that the work
 * fills before it is done.  Ranges whose whole pages can then come without a comparison become
 * awaited, and vnc_memory_await follows when the work is put. */
VkResult vnc_memory_expect(struct vnc_device *device, struct vnc_ranges *ranges,
                           bool may_await) MUST_CHECK;
void vnc_memory_await(struct vnc_device *device, const struct vnc_ranges *ranges);

/* Puts what the program wrote into mapped memory of the device into the stream, whose lock the
 * caller has: within the ranges, which are merged, or (NULL) everywhere. */
VkResult vnc_memory_put_deltas(struct vnc_device *device, const struct vnc_ranges *ranges,
                               struct wire_enc *e) MUST_CHECK;

extern const struct vnc_entry vnc_entries_memory[];
extern const struct vnc_entry vnc_entries_resource[];
extern const struct vnc_entry vnc_entries_host_copy[];

#endif
