/* venus/server/upload/arrivals.h - what arrives on stripes (transfer/stripe.h) is received where it
 * belongs.
 *
 * The executor reads the first stripe itself, and a thread each of the others, while it does; then
 * it helps those that are behind.  So memory stays where it is meanwhile.  Between uploads the
 * threads sleep, or look for the next one where there are cores for it.
 *
 * Trust: chunks are a peer's.  One that belongs to no upload, or not into its range, is a fault.
 * Threads: take on the executor; the others any.
 * Lifetime: create/destroy; stripes are taken with create, which also ends them when it fails. */
#ifndef HAWSER_VENUS_SERVER_UPLOAD_ARRIVALS_H
#define HAWSER_VENUS_SERVER_UPLOAD_ARRIVALS_H

#include "rpc/transport/transport.h"

#include <stddef.h>
#include <stdint.h>

struct vns_arrivals;

/* What belongs at [off, off + len) of the memory. */
struct vns_arrival_ops {
    /* Where to receive it; NULL: it is to be handed to store. */
    uint8_t *(*place)(void *user, uint64_t memory, uint64_t off, size_t len);
    /* 0 or a negative errno, which is a fault. */
    int (*store)(void *user, uint64_t memory, uint64_t off, const void *bytes, size_t len);
};

/* 0, -ENOMEM, or -EAGAIN where threads cannot be had.  `spins`: there are cores for it. */
int vns_arrivals_create(struct rpc_transport *const *stripes, unsigned count, bool spins,
                        const struct vns_arrival_ops *ops, void *user,
                        struct vns_arrivals **out) MUST_CHECK;
/* Ends the threads and the stripes.  NULL is none. */
void vns_arrivals_destroy(struct vns_arrivals *arrivals);

/* Receives the next upload, to [off, off + len) of the memory.  0; -EPROTO for a chunk that does
 * not belong there; or what a stripe ended with, or store.  After that, always the same. */
int vns_arrivals_take(struct vns_arrivals *arrivals, uint64_t memory, uint64_t off,
                      uint64_t len) MUST_CHECK;

/* That have arrived since the start. */
uint64_t vns_arrivals_bytes(const struct vns_arrivals *arrivals);

#endif
