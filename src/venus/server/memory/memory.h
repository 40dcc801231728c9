/* venus/server/memory/memory.h - the client's allocations, and the shadow copies of those that it
 * has mapped.
 *
 * From the first map on both ends keep a shadow copy (memory/shadow.h).  What the client wrote
 * comes as a delta and is applied before the work that follows it; what a device changed is found
 * by comparing the ranges that the work could write, and pushed.
 *
 * Of memory that is demand-paged the client is told which pages it does not have any more, and asks
 * for those that the program touches.  Where the CPU caches the memory, these are held from then
 * on: only they have shadow copies, and they are compared.
 *
 * Trust: ids, offsets and deltas are a peer's.
 * Threads: the executor allocates, frees, maps and applies; any thread reads back, and those of
 * stripes store while the executor waits for them.  Each call takes
 * the channel's turn and lock as it needs them, so the caller holds neither.
 * Lifetime: create/destroy; the driver's memory is not touched.
 *
 * Limits: max_bytes of all allocations together, or a share of each heap; the driver keeps its own.
 */
#ifndef HAWSER_VENUS_SERVER_MEMORY_MEMORY_H
#define HAWSER_VENUS_SERVER_MEMORY_MEMORY_H

#include "venus/server/session/channel.h"
#include "venus/server/session/device.h"
#include "wire/dec.h"

struct vns_range {
    uint64_t memory;
    uint64_t offset;
    uint64_t bytes;
    bool filled;  /* the batch wrote every byte */
    bool awaited; /* and the client wants every byte of whole pages: it compares nothing there */
};

enum { VNS_RANGE_WIRE = 24 };

/* u32 count, then the ranges, at most VN_RANGES_MAX; NULL with *count 0 when there is none.  The
 * array is malloc'd.  An error sticks in the decoder. */
struct vns_range *vns_ranges_get(struct wire_dec *d, uint32_t *count);

struct vns_memories;

/* max_bytes 0: 90 % of each heap.  0 or -ENOMEM. */
int vns_memories_create(struct vns_channel *channel, uint64_t max_bytes,
                        struct vns_memories **out) MUST_CHECK;
void vns_memories_destroy(struct vns_memories *memories);

/* VK_SUCCESS; VK_ERROR_OUT_OF_DEVICE_MEMORY over the limit; or what the driver said. */
VkResult vns_memories_allocate(struct vns_memories *memories, struct vns_device *device,
                               uint64_t id, const VkMemoryAllocateInfo *info,
                               VkDeviceMemory *out) MUST_CHECK;
/* Forgets the shadow copy; the driver's memory is the caller's to free afterwards.  An unknown id
 * is none. */
void vns_memories_forget(struct vns_memories *memories, uint64_t id);
/* The memory was freed and is allocated again with another id, not mapped.  0, -ENOENT for an
 * unknown id, -ENOMEM. */
int vns_memories_renew(struct vns_memories *memories, uint64_t id, uint64_t new_id) MUST_CHECK;
/* Forgets and frees all that the client left of a device, whose queues have ended: a driver may
 * keep it, where no limit counts it. */
void vns_memories_free_device(struct vns_memories *memories, const struct vns_device *device);

/* From now on the memory has a shadow copy, and both are zero, or what a device could have written
 * is pushed.  A second call does nothing.  VK_ERROR_MEMORY_MAP_FAILED where it cannot be mapped,
 * also for an unknown id. */
VkResult vns_memories_map(struct vns_memories *memories, uint64_t id) MUST_CHECK;
/* The same, of memory that no device can have written, whatever was submitted: both are zero. */
VkResult vns_memories_map_new(struct vns_memories *memories, uint64_t id) MUST_CHECK;

/* From now on the client fetches pages of this memory.  0, -ENOENT for an unknown id, -EPROTO for
 * memory that is demand-paged, -ENOMEM. */
int vns_memories_set_demand_paged(struct vns_memories *memories, uint64_t id) MUST_CHECK;

/* Pushes what [off, off + len) of demand-paged memory holds.  0, also when the connection has
 * ended, which the next receive finds; -ENOENT for memory that is not mapped or not demand-paged,
 * -EPROTO for a range that does not begin with a page, ends past the memory or is longer than
 * VN_FETCH_MAX, -EMSGSIZE where the client takes no such message, -ENOMEM. */
int vns_memories_fetch(struct vns_memories *memories, uint64_t id, uint64_t off,
                       uint32_t len) MUST_CHECK;

/* Applies a delta of the client.  0, -ENOENT for memory that is not mapped, or what the delta's
 * decoder found. */
int vns_memories_apply(struct vns_memories *memories, uint64_t id, const void *data,
                       size_t len) MUST_CHECK;

/* Before work that can write these ranges is submitted.  How many are exposed now, until as many
 * are concealed, when such work is done and they have been read. */
uint64_t vns_memories_expose(struct vns_memories *memories, const struct vns_range *ranges,
                             uint32_t count);
void vns_memories_conceal(struct vns_memories *memories, uint32_t count);

/* Stores what whole pages hold at the client, which no device writes meanwhile.  0, -ENOENT for
 * memory that is not mapped, -EPROTO for a range that does not begin with a page or ends past the
 * memory. */
int vns_memories_store(struct vns_memories *memories, uint64_t id, uint64_t off, const void *bytes,
                       size_t len) MUST_CHECK;

/* The same for bytes that the caller receives there itself: where they go, or NULL when
 * vns_memories_store must have them, also for a range that it refuses. */
uint8_t *vns_memories_place(struct vns_memories *memories, uint64_t id, uint64_t off, size_t len);

/* Copies what the client has there, with the same answers; -ENODATA for demand-paged memory, which
 * is not read for a copy that nobody may ever want. */
int vns_memories_copy(struct vns_memories *memories, uint64_t id, uint64_t off, void *to,
                      size_t len) MUST_CHECK;

/* Pushes what differs from the shadow copies in these ranges, or that it may, and all of the pages
 * that work under way fills and the client awaits.  Ranges of memory that is not mapped, or is no
 * more, are none; one that ends past its memory is cut.  `own` of those that are exposed are the
 * caller's, whose work is done.  0, or what ended the connection. */
int vns_memories_read(struct vns_memories *memories, const struct vns_range *ranges, uint32_t count,
                      uint32_t own) MUST_CHECK;

#endif
