/* venus/client/memory/external.h - memory that processes on one host share as a descriptor, and
 * memory of the program that a device uses.
 *
 * The descriptor is the one of the server's driver: it travels on the Unix socket to the program
 * that exports memory, and back to the server when a program imports it.  Such memory is of types
 * that the host cannot map: the client would not learn what other processes write there.
 *
 * An imported host pointer is mapped memory whose address the program chose: the server's driver
 * has memory of its own behind it, and the bytes travel as those of other mappings do.
 *
 * Trust: a descriptor of the program is anything; the server and its driver judge it.
 * Threads: any.  Lifetime: an import takes the descriptor on success only. */
#ifndef HAWSER_VENUS_CLIENT_MEMORY_EXTERNAL_H
#define HAWSER_VENUS_CLIENT_MEMORY_EXTERNAL_H

#include "venus/client/device/device.h"
#include "venus/client/icd.h"

/* Whether memory of the device can be shared by handles of this type. */
bool vnc_external_has(const struct vnc_physical_device *device,
                      VkExternalMemoryHandleTypeFlagBits type);
/* Leaves of the driver's answer what is offered. */
void vnc_external_offer(VkExternalMemoryProperties *properties);

/* Whether what is created with this chain is to be shared: a buffer, an image, or memory.  Not
 * where the device does not offer it. */
bool vnc_external_is_chained(const struct vnc_physical_device *device, const void *chain);

/* As vn_vkAllocateMemory, for a chain that is: types the host can map are refused. */
VkResult vnc_external_allocate(VkDevice device, const VkMemoryAllocateInfo *info, bool host_visible,
                               VkDeviceMemory *out) MUST_CHECK;

/* The program's memory that an allocation imports, or NULL. */
void *vnc_external_host_pointer(const void *chain);
/* Whether memory of this type can stand behind it. */
bool vnc_external_is_host_type(const struct vnc_physical_device *device, uint32_t type);

extern const struct vnc_entry vnc_entries_external[];

#endif
