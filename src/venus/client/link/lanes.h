/* venus/client/link/lanes.h - the client's end of lanes (common/lane.h), over which large uploads
 * go.
 *
 * The caller sends on the first lane, and a thread on each of the others.  None is given a part of
 * its own: whoever is free takes the next, so one that wakes late delays nothing.
 *
 * Trust: none needed; a lane takes bytes and says nothing.
 * Threads: dial, open, destroy on one; send under the stream's lock.
 * Lifetime: dial/destroy.  In a child after fork nothing of it may be used. */
#ifndef HAWSER_VENUS_CLIENT_LINK_LANES_H
#define HAWSER_VENUS_CLIENT_LINK_LANES_H

#include "rpc/client.h"
#include "rpc/transport/net.h"
#include "venus/common/lane.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VNC_SPREAD_LEAST = 256 << 10, /* below it a message is as good */
    VNC_SPREAD_MOST = 4 << 20,    /* of one SPREAD: still in the caches when it is sent */
};

struct vnc_lanes;

/* Dials `count` lanes.  0, or a negative errno with cause and remedy in why.  has_ended(user): the
 * session is over, so sending is pointless. */
int vnc_lanes_dial(const struct rpc_addr *addr, const struct rpc_net_options *net, unsigned count,
                   bool (*has_ended)(void *user), void *user, struct vnc_lanes **out,
                   char why[RPC_WHY_CHARS]) MUST_CHECK;
/* NULL is none. */
void vnc_lanes_destroy(struct vnc_lanes *lanes);

/* What OPEN says. */
const uint8_t *vnc_lanes_key(const struct vnc_lanes *lanes);
/* OPEN was answered by a server that has so many of them.  0, and uploads may be spread; -ENOTCONN
 * where that is not all, -EAGAIN where threads cannot be had. */
int vnc_lanes_open(struct vnc_lanes *lanes, uint32_t at_server) MUST_CHECK;

/* Sends these bytes, which the stream's next SPREAD says belong to `off`; they are the caller's
 * again when it returns.  0, or what ended a lane: the session is lost then. */
int vnc_lanes_send(struct vnc_lanes *lanes, const uint8_t *bytes, uint64_t off,
                   size_t len) MUST_CHECK;

/* Sent since the start. */
uint64_t vnc_lanes_bytes(const struct vnc_lanes *lanes);

#endif
