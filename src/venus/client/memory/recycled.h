/* venus/client/memory/recycled.h - memory that the program has freed and the server still has.
 *
 * An allocation is an exchange: programs handle its failure.  Many programs free memory and
 * allocate the same again in each step.  Freed memory is therefore kept, and an allocation of the
 * same kind takes it over (RENEW): it cannot fail, so nobody waits for an answer.  To the program
 * it is new memory: another id, mapped anew, with no content that it may count on.
 *
 * Trust: the program's own.
 * Threads: any; the device's lock guards the list.
 * Lifetime: the list is the device's; vnc_recycled_free before it is destroyed.
 *
 * Limits: of each heap one part in VNC_RECYCLED_PART and VNC_RECYCLED_BYTES at most, and
 * VNC_RECYCLED_MAX allocations; the oldest leave first.  All leave when an allocation fails. */
#ifndef HAWSER_VENUS_CLIENT_MEMORY_RECYCLED_H
#define HAWSER_VENUS_CLIENT_MEMORY_RECYCLED_H

#include "venus/client/memory/memory.h"

enum {
    VNC_RECYCLED_PART = 256,       /* 16 MiB of 4 GiB: little to miss */
    VNC_RECYCLED_BYTES = 64 << 20, /* several pictures; other clients may want the rest */
    VNC_RECYCLED_MAX = 64,         /* drivers allow some thousands */
};

/* What the allocation asks for.  Only what says no more than that can be taken over. */
struct vnc_memory_kind vnc_memory_kind(const VkMemoryAllocateInfo *info);

/* The program has freed the memory.  false: the server must be told. */
bool vnc_recycled_put(struct vnc_memory *memory) MUST_CHECK;
/* Memory that is there already, as *out.  false: the server must be asked. */
bool vnc_recycled_take(struct vnc_device *device, const struct vnc_memory_kind *kind,
                       VkDeviceMemory *out) MUST_CHECK;
/* To the program it is free: takes it out of what heaps are used. */
void vnc_recycled_leave_out(const struct vnc_physical_device *physical,
                            VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget);
/* Frees all there is; whether there was any. */
bool vnc_recycled_free(struct vnc_device *device);

#endif
