/* venus/server/session/facts.h - what a client would ask next, told before it asks.
 *
 * Buffers: the first one of a kind (its usage; without flags, for one queue family, with nothing
 * chained but usages) makes us try several sizes.  As far as they need their size rounded up in one
 * way, in the same types of memory, and no allocation of their own, the client is told so (REGULAR)
 * and works out what others of the kind need.
 *
 * Memory: where the address of a buffer is that of its memory plus the offset, which is tried with
 * the first allocation that is large enough, the client is told the address of each (ADDRESS).
 *
 * Trust: infos are a peer's, decoded.  Threads: the executor's.  Lifetime: with the device. */
#ifndef HAWSER_VENUS_SERVER_SESSION_FACTS_H
#define HAWSER_VENUS_SERVER_SESSION_FACTS_H

#include <stdint.h>
#include <vulkan/vulkan_core.h>

enum { VNS_FACT_KINDS_MAX = 64 }; /* of one device; programs use a handful */

struct vns_facts {
    VkBufferUsageFlags tried[VNS_FACT_KINDS_MAX];
    uint32_t tried_count;
    enum { VNS_ADDRESSES_UNTRIED, VNS_ADDRESSES_ADD_UP, VNS_ADDRESSES_DO_NOT } addresses;
};

struct vns_session;

/* A buffer was created that way on the session's device. */
void vns_facts_of_buffer(struct vns_session *s, const VkBufferCreateInfo *info);
/* Memory was allocated that way. */
void vns_facts_of_memory(struct vns_session *s, uint64_t id, VkDeviceMemory memory,
                         const VkMemoryAllocateInfo *info);

#endif
