/* venus/client/object/descriptor_layout.h - private to the descriptor files: set layouts and
 * pipeline layouts as the client remembers them.
 *
 * Trust: the program's own.  Threads: constant after creation; refs are atomic.
 * Lifetime: ref/unref. */
#ifndef HAWSER_VENUS_CLIENT_OBJECT_DESCRIPTOR_LAYOUT_H
#define HAWSER_VENUS_CLIENT_OBJECT_DESCRIPTOR_LAYOUT_H

#include "venus/client/icd.h"
#include "venus/client/object/descriptor.h"

struct vnc_binding {
    uint32_t number;
    VkDescriptorType type;
    uint32_t count;
    bool immutable;      /* samplers in writes are ignored */
    bool variable;       /* the count is chosen at allocation */
    uint32_t first_slot; /* of what is remembered in a set */
    uint32_t slots;      /* 0: nothing is */
};

struct vnc_set_layout {
    struct vn_object object;
    _Atomic uint32_t refs;
    uint32_t count;
    uint32_t slots;
    struct vnc_binding *bindings; /* by number */
};

struct vnc_pipeline_layout {
    struct vn_object object;
    uint32_t count;
    struct vnc_set_layout **sets; /* references; NULL where a set was left out */
};

void vnc_set_layout_unref(struct vnc_set_layout *layout);
void vnc_pipeline_layout_fini(struct vnc_pipeline_layout *layout);

static inline struct vnc_set_layout *vnc_set_layout_ref(struct vnc_set_layout *layout)
{
    atomic_fetch_add_explicit(&layout->refs, 1, memory_order_relaxed);
    return layout;
}

/* NULL when there is none. */
const struct vnc_binding *vnc_set_layout_binding(const struct vnc_set_layout *layout,
                                                 uint32_t number);

/* Whether shaders can write a buffer through a descriptor of this type. */
bool vnc_descriptor_writes_buffer(VkDescriptorType type);

/* The writes, each cleaned by the layout that layout_of gives it. */
typedef const struct vnc_set_layout *vnc_layout_of_fn(const void *user,
                                                      const VkWriteDescriptorSet *write);
bool vnc_writes_clean(uint32_t count, const VkWriteDescriptorSet *writes,
                      vnc_layout_of_fn *layout_of, const void *user,
                      struct vnc_writes *out) MUST_CHECK;

extern const struct vnc_entry vnc_entries_descriptor_layout[];

#endif
