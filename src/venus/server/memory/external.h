/* venus/server/memory/external.h - descriptors of memory, semaphores and fences that clients of
 * this host share.
 *
 * Trust: the descriptor is anything that the client has.  The kinds that no driver exports are
 * refused here, and so is a file that is shorter than the memory or could become so: a driver would
 * map it, and the process end with SIGBUS.
 * Threads: the executor's.  Lifetime: the descriptor stays the caller's. */
#ifndef HAWSER_VENUS_SERVER_MEMORY_EXTERNAL_H
#define HAWSER_VENUS_SERVER_MEMORY_EXTERNAL_H

#include <stdbool.h>
#include <vulkan/vulkan_core.h>

/* Puts a copy of the descriptor where the allocation imports one.  True, also where nothing is
 * imported; false when there is no descriptor or a wrong one. */
bool vns_external_give(const VkMemoryAllocateInfo *info, int fd);
/* After the allocation. */
void vns_external_given(const VkMemoryAllocateInfo *info, VkResult result, int fd);

/* The same for a semaphore or a fence.  *copy is at first what the client said: -1 without a
 * descriptor is a sync file that is signalled. */
bool vns_external_give_sync(bool sync_file, int fd, int *copy);

#endif
