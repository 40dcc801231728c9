/* venus/client/object/pipeline.h - shader modules and pipelines: what they can write, and whether
 * their creation needs an answer.
 *
 * A pipeline of well-formed modules, or code in their place, with the entry points it names is
 * created without an answer.
 * Any other, and one whose creation the program wants to hear about, is created by a call, so that
 * the driver's failure is told where it happens.
 *
 * The server compiles beside the stream, and a command that names a pipeline waits there until it
 * is compiled, with all that follows.  So its thread waits here instead where that may stop others:
 * before it binds the pipeline, if several threads record, and before it asks about it, if others
 * are not compiled yet either.
 *
 * Trust: the program's own.  Threads: as Vulkan.  Lifetime: of the handles. */
#ifndef HAWSER_VENUS_CLIENT_OBJECT_PIPELINE_H
#define HAWSER_VENUS_CLIENT_OBJECT_PIPELINE_H

#include "venus/client/device/device.h"
#include "venus/client/icd.h"
#include "venus/client/object/objects.h"
#include "venus/common/shader.h"

struct vnc_pipeline {
    struct vn_object object;
    struct vnc_pushes *pushes;
    _Atomic bool compiled; /* or failed; relaxed: it carries nothing else */
    bool known; /* a compute pipeline whose shader could be read; the rest is valid then */
    bool uses_addresses;
    bool writes_addresses;
    bool uses_images;
    bool writes_images;
    uint32_t write_count;
    struct vn_shader_binding *writes;
};

void vnc_pipeline_init(struct vnc_pipeline *pipeline, struct vnc_device *device);
void vnc_pipeline_fini(struct vnc_pipeline *pipeline);
/* This thread will bind it. */
void vnc_pipeline_await(struct vnc_pipeline *pipeline);

extern const struct vnc_entry vnc_entries_pipeline[];

#endif
