/* venus/client/object/descriptor.h - descriptor set layouts, pools, sets and update templates.
 *
 * A set remembers which buffers shaders can reach through it; images in host-visible memory are
 * the device's business (device.h).  A pool counts what it gave, so that an allocation needs no
 * answer until the pool is exhausted.
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

struct vn_descriptor_set;

/* Adds what shaders can reach through the set, or only what they can write. */
void vn_descriptor_set_ranges(const struct vn_descriptor_set *set, bool writes,
                              struct vn_ranges *ranges);
/* What they can reach through one binding. */
void vn_descriptor_set_binding_ranges(const struct vn_descriptor_set *set, uint32_t binding,
                                      struct vn_ranges *ranges);
struct vn_descriptor_set *vn_descriptor_set_ref(struct vn_descriptor_set *set);
void vn_descriptor_set_unref(struct vn_descriptor_set *set);

/* Writes of our own making, or the program's own where they need no change. */
struct vn_writes {
    VkWriteDescriptorSet *writes;
    uint32_t count;
    struct hw_arena *arena; /* what they point to; NULL: they are the program's */
};

/* Of our own, empty.  False when out of memory. */
bool vn_writes_init(struct vn_writes *writes, uint32_t count) MUST_CHECK;
void vn_writes_fini(struct vn_writes *writes);

/* The writes to set number `set` of the layout, without the samplers that are ignored
 * because the layout has immutable ones.  False when out of memory. */
bool vn_pipeline_layout_clean(VkPipelineLayout layout, uint32_t set, uint32_t count,
                              const VkWriteDescriptorSet *writes, struct vn_writes *out) MUST_CHECK;
/* The same for pushed descriptors. */
void vn_descriptor_write_ranges(const VkWriteDescriptorSet *write, bool writes,
                                struct vn_ranges *ranges);

/* The writes that a template makes of data, to a set or (VK_NULL_HANDLE) to be pushed.  False when
 * out of memory. */
bool vn_template_writes(VkDescriptorUpdateTemplate handle, VkDescriptorSet set, const void *data,
                        struct vn_writes *out) MUST_CHECK;
VkPipelineBindPoint vn_template_bind_point(VkDescriptorUpdateTemplate handle);

/* For objects.c: 0 when the type is none of this file's. */
size_t vn_descriptor_size(uint32_t type);
/* Gives up the handle and frees. */
void vn_descriptor_fini(struct vn_object *object);

extern const struct vn_entry vn_entries_descriptor[];

#endif
