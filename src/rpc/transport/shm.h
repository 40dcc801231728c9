/* rpc/transport/shm.h - two byte rings in a sealed memfd, handed over a Unix socket.
 *
 *   offset 0             ring from the connecting side to the accepting side: 4 control lines
 *   RPC_SHM_CONTROL      the other ring's control lines
 *   2 * RPC_SHM_CONTROL  data of the first ring, then of the second
 *
 * Each control line has one writer:
 *   line 0  tail             producer   bytes ever written
 *   line 1  head             consumer   bytes ever read
 *   line 2  consumer sleeps  consumer   ring the doorbell after writing
 *   line 3  producer sleeps  producer   ring the doorbell after reading
 *
 * A doorbell is an eventfd.  The Unix socket stays open: its end tells of the peer's death.
 *
 * Trust: the peer may write anything anywhere in the region; each of its indices is read once,
 * then checked, and data is copied out before it is looked at.  The region cannot shrink under
 * us (sealed), so a peer cannot cause SIGBUS.
 * Threads: as rpc/transport/transport.h.  Lifetime: the transport owns mapping and descriptors. */
#ifndef HAWSER_RPC_TRANSPORT_SHM_H
#define HAWSER_RPC_TRANSPORT_SHM_H

#include "base/attr.h"

#include <stddef.h>
#include <stdint.h>

enum {
    RPC_SHM_RING_MIN = 64 << 10,
    RPC_SHM_RING_DEFAULT = 1 << 20,
    RPC_SHM_RING_MAX = 16 << 20, /* bounds what one client can pin */
    RPC_SHM_CONTROL = 4 * HW_CACHE_LINE,
    RPC_SHM_OFFER_BYTES = 16,
    RPC_SHM_OFFER_FDS = 3 /* memfd, the connector's doorbell, the acceptor's */
};

struct rpc_shm_offer {
    uint32_t ring_bytes; /* a power of two */
};

void rpc_shm_offer_encode(const struct rpc_shm_offer *offer, uint8_t out[RPC_SHM_OFFER_BYTES]);
/* 0, -EPROTO, or -EPROTONOSUPPORT for another version's offer. */
int rpc_shm_offer_decode(const uint8_t *p, size_t n, struct rpc_shm_offer *out) MUST_CHECK;

static inline size_t rpc_shm_region_bytes(uint32_t ring_bytes)
{
    return 2 * (size_t)RPC_SHM_CONTROL + 2 * (size_t)ring_bytes;
}

#endif
