/* venus/server/stream/recordings.h - what command buffers were recorded with, for programs that
 * record it again.
 *
 * The client names a recording that it sent before instead of sending it again.  Where the driver's
 * command buffer still holds that recording, nothing is recorded either: the program's reset of it
 * has not reached the driver, and its next submission executes what is there.  A driver's command
 * buffer stands for its recording while no descriptor set that it binds has been updated, nothing
 * that a set can hold has been destroyed (in a binding that no shader reads it may be), and where
 * it executes no other command buffer; else the bytes are executed again.  The same bytes name the
 * same objects: ids are not given twice.  docs/design/vulkan.md, "Recordings".
 *
 * Trust: bytes are a peer's, bounded by VN_KEPT_RECORDING_MAX and VN_KEPT_RECORDINGS_MAX.
 * Threads: the executor's only.  Lifetime: a recording ends with its command buffer. */
#ifndef HAWSER_VENUS_SERVER_STREAM_RECORDINGS_H
#define HAWSER_VENUS_SERVER_STREAM_RECORDINGS_H

#include "base/attr.h"
#include "venus/server/session/objects.h"

struct vns_set_seen {
    uint64_t id;
    uint64_t version;
};

struct vns_recording {
    uint8_t *bytes;
    size_t len, cap;
    struct vns_set_seen *sets; /* that it binds, as they were */
    size_t set_count, set_cap;
    uint64_t ended; /* of vns_objects, when its recording began */
    bool whole;     /* from its beginning to its end */
    bool unfit;     /* the driver's command buffer cannot stand for it */
    bool once;      /* that one was recorded to be submitted once */
    bool stands;    /* that one holds it, unless a set was updated */
    bool repeats;   /* it was named: record it so that it can be submitted again */
    bool used;      /* since its pool was last reset */
    unsigned idle;  /* resets of its pool since it was used */
};

/* A recording begins whose bytes are kept (keeps) or not: what was kept before is dropped.  -ENOMEM
 * when there is no memory for keeping. */
int vns_recording_begin(struct vns_objects *objects, struct vns_thing *buffer,
                        bool keeps) MUST_CHECK;
/* Keeps more of it.  0, -EDQUOT over a limit, -EPROTO without a beginning that is kept, -ENOMEM. */
int vns_recording_append(struct vns_objects *objects, struct vns_thing *buffer, const void *bytes,
                         size_t len) MUST_CHECK;
/* The kept bytes are about to be executed from the first on. */
void vns_recording_restart(const struct vns_objects *objects, struct vns_recording *recording);
/* A command of the recording under way names a set or a command buffer. */
void vns_recording_names(struct vns_thing *buffer, const struct vns_thing *thing);
/* The recording was ended. */
void vns_recording_end(struct vns_thing *buffer);

/* Whether the driver's command buffer stands for what is kept. */
bool vns_recording_stands(const struct vns_objects *objects, const struct vns_thing *buffer);

/* The program resets a pool of command buffers, or one of them.  Of a pool the driver keeps what
 * stands for a recording that is in use; and, where some may be pending, those (its next recording
 * resets such a buffer, too).  Not with VK_COMMAND_POOL_RESET_RELEASE_RESOURCES_BIT while some may
 * be. */
VkResult vns_recordings_reset_pool(struct vns_thing *pool, VkCommandPoolResetFlags flags,
                                   bool may_be_pending);
VkResult vns_recording_reset(struct vns_thing *buffer, VkCommandBufferResetFlags flags);

/* The buffer is another one of the driver's, which was never recorded. */
void vns_recording_moved(struct vns_thing *buffer);

/* For objects.c. */
void vns_recording_free(struct vns_objects *objects, struct vns_thing *buffer);

#endif
