/* venus/client/object/pipeline.h - shader modules and pipelines: what they can write, and whether
 * their creation needs an answer.
 *
 * A pipeline of well-formed modules, or code in their place, with the entry points it names is
 * created without an answer.
 * Any other, and one whose creation the program wants to hear about, is created by a call, so that
 * the driver's failure is told where it happens.
 *
 * Trust: the program's own.  Threads: as Vulkan.  Lifetime: of the handles. */
#ifndef HAWSER_VENUS_CLIENT_OBJECT_PIPELINE_H
#define HAWSER_VENUS_CLIENT_OBJECT_PIPELINE_H

#include "venus/client/icd.h"
#include "venus/client/object/objects.h"
#include "venus/common/shader.h"

struct vnc_pipeline {
    struct vn_object object;
    bool known; /* a compute pipeline whose shader could be read; the rest is valid then */
    bool uses_addresses;
    bool writes_addresses;
    bool uses_images;
    bool writes_images;
    uint32_t write_count;
    struct vn_shader_binding *writes;
};

extern const struct vnc_entry vnc_entries_pipeline[];

#endif
