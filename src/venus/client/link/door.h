/* venus/client/link/door.h - how a client finds its session over UCX, whose connections cannot be
 * handed over.
 *
 * The server is asked for a door: a port where a session waits for this client, and a secret that
 * admits it (venus/common/protocol.h, docs/decisions/0012-ucx-sessions.md).
 *
 * Trust: the server, whose token was proved.  Threads: any.  Lifetime: -. */
#ifndef HAWSER_VENUS_CLIENT_LINK_DOOR_H
#define HAWSER_VENUS_CLIENT_LINK_DOOR_H

#include "rpc/transport/net.h"

/* Opens UCX's library and asks the server at `addr`.  *door and *admits are set only on 0; no fini
 * is needed.  0, or a negative errno with cause and remedy in why. */
int vnc_door_find(const struct rpc_addr *addr, const struct rpc_net_options *net,
                  struct rpc_addr *door, struct rpc_security *admits,
                  char why[RPC_WHY_CHARS]) MUST_CHECK;

#endif
