/* venus/client/record/command.h - command pools and command buffers, recorded here.
 *
 * A recording goes into the stream when it is ended, or in parts while it is recorded, so that
 * whatever the program destroys afterwards is destroyed after it at the server too.  What remains
 * here is what the recording can write.  A recording of a few small copies is held back until it is
 * submitted: where their bytes can travel in its place it is not sent at all.
 *
 * Trust: the program's own.
 * Threads: Vulkan lets one thread at a time use a pool and its buffers.
 * Lifetime: of the handles; a pool frees its buffers. */
#ifndef HAWSER_VENUS_CLIENT_RECORD_COMMAND_H
#define HAWSER_VENUS_CLIENT_RECORD_COMMAND_H

#include "venus/client/icd.h"
#include "venus/client/object/query.h"
#include "venus/client/record/ranges.h"

struct vnc_command_buffer;

/* Where the next command is put, behind whole ones; never NULL: a failure is kept and told by
 * vkEndCommandBuffer.  Until vnc_command_buffer_recorded no other thread looks at the recording. */
struct wire_enc *vnc_command_buffer_recording(struct vnc_command_buffer *commands,
                                              unsigned effects);
void vnc_command_buffer_recorded(struct vnc_command_buffer *commands);
/* What vnc_query_uses_add notes, before the command is recorded. */
void vnc_command_buffer_queries(struct vnc_command_buffer *commands, struct vnc_query_pool *pool,
                                uint32_t first, uint32_t count, bool written);

/* Sends what recordings under way have so far, where they name one of the objects or it is a pool:
 * they end with the next command.  From any thread, also while others record. */
void vnc_recordings_precede(struct vnc_device *device, uint64_t count,
                            struct vn_object *const *objects);

/* Adds what the recording can write. */
void vnc_command_buffer_ranges(const struct vnc_command_buffer *commands,
                               struct vnc_ranges *ranges);
/* Adds what it can read; false when that is not known. */
bool vnc_command_buffer_reads(const struct vnc_command_buffer *commands, struct vnc_ranges *ranges);
/* Whether the host can see its execution other than by what it writes: queries and events. */
bool vnc_command_buffer_is_watched(const struct vnc_command_buffer *commands);
/* It is submitted next: forgets the results of its queries; once all of its batch have, asks for
 * the new ones. */
void vnc_command_buffer_forget_queries(const struct vnc_command_buffer *commands,
                                       const struct vnc_queue *queue);
void vnc_command_buffer_put_queries(const struct vnc_command_buffer *commands,
                                    const struct vnc_queue *queue, uint64_t batch,
                                    struct wire_enc *e);

/* A copy between buffers. */
struct vnc_copy {
    const struct vnc_resource *from; /* there as long as the recording can be submitted */
    VkDeviceSize from_offset;
    uint64_t to; /* the buffer's id */
    VkDeviceSize to_offset;
    uint32_t bytes; /* a multiple of 4, as the offset is */
};

/* The copies of a recording that is held back, which fit one UPDATE; 0: it was sent. */
uint32_t vnc_command_buffer_copies(const struct vnc_command_buffer *commands,
                                   const struct vnc_copy **copies);
/* Puts the recording if it is held back.  With the stream's lock; the encoder's error tells. */
void vnc_command_buffer_put_held(struct vnc_command_buffer *commands, struct wire_enc *e);

/* For objects.c: what a fresh or a freed one needs. */
size_t vnc_command_buffer_size(void);
void vnc_command_buffer_init(struct vnc_command_buffer *commands, struct vnc_device *device);
void vnc_command_buffer_fini(struct vnc_command_buffer *commands);
size_t vnc_command_pool_size(void);
void vnc_command_pool_fini(struct vn_object *pool);

extern const struct vnc_entry vnc_entries_command[];

#endif
