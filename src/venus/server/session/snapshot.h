/* venus/server/session/snapshot.h - what a program may ask of the physical devices, asked once of
 * the driver; protocol.h has the layout.
 *
 * Which chained structures a driver knows is found by asking twice, with their recordings filled
 * differently: what it writes to in neither run is left out.  So are extensions that this build's
 * registry lacks or leaves out; a device's version is at most that of the registry.
 *
 * Trust: the driver is trusted.
 * Threads: any, as the driver allows.  Lifetime: nothing is kept. */
#ifndef HAWSER_VENUS_SERVER_SESSION_SNAPSHOT_H
#define HAWSER_VENUS_SERVER_SESSION_SNAPSHOT_H

#include "vn_commands.gen.h"

enum {
    VNS_SNAPSHOT_QUEUE_FAMILIES_MAX = 64, /* drivers have up to ten */
    VNS_SNAPSHOT_EXTENSIONS_MAX = 1024,   /* the registry has fewer than 500 */
};

/* Of devices of version 1.0 only the 1.0 queries are asked.  0, -ENOMEM, -ENOSYS when the driver
 * lacks a query, or -EIO when one failed; what was put then is of no use. */
int vns_snapshot_encode(const struct vn_driver *driver, uint32_t instance_version,
                        const VkPhysicalDevice *devices, uint32_t count,
                        struct wire_enc *e) MUST_CHECK;

#endif
