/* venus/server/memory/bus.h - a device copies its own memory to where the CPU reads it quickly.
 *
 * For pages that a client fetches of memory that the CPU does not cache: the device writes across
 * the bus a hundred times faster than the CPU reads.  The copy is submitted to a queue of the
 * client's, and waited for.  So it is done only while no queue of the device has work: that work
 * might wait for what the client has yet to send, and the copy for it.
 *
 *   VENUS_BUS_COPY=1   also for memory that the CPU caches, and few bytes: for tests
 *   VENUS_BUS_COPY=0   never
 *
 * Trust: the range was checked.
 * Threads: the executor.  Lifetime: create/destroy, with a device. */
#ifndef HAWSER_VENUS_SERVER_MEMORY_BUS_H
#define HAWSER_VENUS_SERVER_MEMORY_BUS_H

#include "venus/server/session/device.h"

enum {
    VNS_BUS_MOST = 1 << 20, /* bytes of one copy, which are kept for a device once it made one */

    /* Below it the CPU has read the bytes before a submission is through. */
    VNS_BUS_LEAST = 64 << 10,
};

struct vns_bus;

struct vns_bus_source {
    VkDeviceMemory memory;
    uint32_t type; /* of memory, at the driver */
    uint64_t size;
    bool cached; /* by the CPU */
    bool shared; /* other buffers may be bound to it: it is no image's or buffer's own */
};

/* Copies [off, off + len).  False when it cannot be done, or not now: nothing has happened then. */
bool vns_bus_read(struct vns_device *device, const struct vns_bus_source *from, uint64_t off,
                  uint8_t *to, size_t len) MUST_CHECK;

void vns_bus_destroy(struct vns_bus *bus, const struct vns_device *device);

#endif
