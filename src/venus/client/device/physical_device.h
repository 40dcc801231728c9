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
int vn_physical_device_create(struct vn_instance *instance, struct vn_link *link, uint64_t id,
                              uint32_t index, struct vn_snapshot *snapshot,
                              struct vn_physical_device **out, char why[RPC_WHY_CHARS]) MUST_CHECK;
void vn_physical_device_destroy(struct vn_physical_device *device);

/* Whether the device offers the extension. */
bool vn_physical_device_has(const struct vn_physical_device *device, const char *extension);

extern const struct vn_entry vn_entries_physical_device[];

#endif
