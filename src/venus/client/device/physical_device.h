/* venus/client/device/physical_device.h - a GPU of a server, as programs see it.
 *
 * Trust: the snapshot is the server's; a device whose snapshot does not make sense is left out.
 * Threads: any; constant once created, but for the memo.
 * Lifetime: create/destroy, by its instance. */
#ifndef HAWSER_VENUS_CLIENT_DEVICE_PHYSICAL_DEVICE_H
#define HAWSER_VENUS_CLIENT_DEVICE_PHYSICAL_DEVICE_H

#include "venus/client/device/instance.h"

/* Takes the snapshot on 0.  -ENOTSUP when the device cannot be served, with the reason in why;
 * -EPROTO when the snapshot makes no sense; -ENOMEM. */
int vnc_physical_device_create(struct vnc_instance *instance, struct vnc_link *link, uint64_t id,
                               uint32_t index, struct vnc_snapshot *snapshot,
                               struct vnc_physical_device **out,
                               char why[RPC_WHY_CHARS]) MUST_CHECK;
void vnc_physical_device_destroy(struct vnc_physical_device *device);

/* Whether the device offers the extension. */
bool vnc_physical_device_has(const struct vnc_physical_device *device, const char *extension);
/* Whether its driver can render several samples a pixel into images that have one. */
bool vnc_physical_device_renders_samples(const struct vnc_physical_device *device);

extern const struct vnc_entry vnc_entries_physical_device[];

/* Vulkan's call for a list, made twice: of `have` things *copied go into the program's array, which
 * has room for *count; without an array *count becomes `have`.  VK_SUCCESS or VK_INCOMPLETE. */
VkResult vnc_fit(uint32_t have, uint32_t *count, const void *array, uint32_t *copied);

#endif
