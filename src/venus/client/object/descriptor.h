/* venus/client/object/descriptor.h - descriptor set layouts, pools, sets and update templates.
 *
 * A set remembers which buffers shaders can reach through it; images in host-visible memory are
 * the device's business (device.h).  A pool counts what it gave, so that an allocation needs no
 * answer until the pool is exhausted, or what is free may be in pieces.
 *
 * Trust: the program's own.
 * Threads: as Vulkan: a pool is one thread's; sets may be updated by several when their bindings
 * allow it, on different descriptors.
 * Lifetime: of the handles; a layout lives while a set or pipeline layout needs it, a set while a
 * command buffer does; a pool frees its sets. */
#ifndef HAWSER_VENUS_CLIENT_OBJECT_DESCRIPTOR_H
#define HAWSER_VENUS_CLIENT_OBJECT_DESCRIPTOR_H

#include "venus/client/icd.h"
#include "venus/client/record/ranges.h"

struct vnc_descriptor_set;

/* Adds what shaders can reach through the set, or only what they can write. */
void vnc_descriptor_set_ranges(const struct vnc_descriptor_set *set, bool writes,
                               struct vnc_ranges *ranges);
/* What they can reach through one binding. */
void vnc_descriptor_set_binding_ranges(const struct vnc_descriptor_set *set, uint32_t binding,
                                       struct vnc_ranges *ranges);
struct vnc_descriptor_set *vnc_descriptor_set_ref(struct vnc_descriptor_set *set);
void vnc_descriptor_set_unref(struct vnc_descriptor_set *set);

/* Writes of our own making, or the program's own where they need no change. */
struct vnc_writes {
    VkWriteDescriptorSet *writes;
    uint32_t count;
    struct hw_arena *arena; /* what they point to; NULL: they are the program's */
};

/* Of our own, empty.  False when out of memory. */
bool vnc_writes_init(struct vnc_writes *writes, uint32_t count) MUST_CHECK;
void vnc_writes_fini(struct vnc_writes *writes);

/* The writes to set number `set` of the layout, without the samplers that are ignored
 * because the layout has immutable ones.  False when out of memory. */
bool vnc_pipeline_layout_clean(VkPipelineLayout layout, uint32_t set, uint32_t count,
                               const VkWriteDescriptorSet *writes,
                               struct vnc_writes *out) MUST_CHECK;
/* The same for pushed descriptors. */
void vnc_descriptor_write_ranges(const VkWriteDescriptorSet *write, bool writes,
                                 struct vnc_ranges *ranges);

/* The writes that a template makes of data, to a set or (VK_NULL_HANDLE) to be pushed.  False when
 * out of memory. */
bool vnc_template_writes(VkDescriptorUpdateTemplate handle, VkDescriptorSet set, const void *data,
                         struct vnc_writes *out) MUST_CHECK;
VkPipelineBindPoint vnc_template_bind_point(VkDescriptorUpdateTemplate handle);

/* For objects.c: 0 when the type is none of this file's. */
size_t vnc_descriptor_size(uint32_t type);
/* Gives up the handle and frees. */
void vnc_descriptor_fini(struct vn_object *object);

extern const struct vnc_entry vnc_entries_descriptor[];

#endif
