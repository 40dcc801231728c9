/* venus/client/link/stripes.h - the client's end of stripes (transfer/stripe.h), over which large
 * uploads go.
 *
 * The caller sends on the first stripe, and a thread on each of the others.  None is given a part
 * of its own: whoever is free takes the next, so one that wakes late delays nothing.
 *
 * Trust: none needed; a stripe takes bytes and says nothing.
 * Threads: dial, open, destroy on one; send under the stream's lock.
 * Lifetime: dial/destroy.  In a child after fork nothing of it may be used. */
#ifndef HAWSER_VENUS_CLIENT_LINK_STRIPES_H
#define HAWSER_VENUS_CLIENT_LINK_STRIPES_H

#include "rpc/client.h"
#include "rpc/transport/net.h"
#include "venus/common/transfer/stripe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VNC_SPREAD_LEAST = 256 << 10, /* below it a message is as good */
    VNC_SPREAD_MOST = 4 << 20,    /* of one SPREAD: still in the caches when it is sent */
};

struct vnc_stripes;

/* Dials `count` stripes.  0, or a negative errno with cause and remedy in why.  has_ended(user):
 * the session is over, so sending is pointless. */
int vnc_stripes_dial(const struct rpc_addr *addr, const struct rpc_net_options *net, unsigned count,
                     bool (*has_ended)(void *user), void *user, struct vnc_stripes **out,
                     char why[RPC_WHY_CHARS]) MUST_CHECK;
/* NULL is none. */
void vnc_stripes_destroy(struct vnc_stripes *stripes);

/* What OPEN says. */
const uint8_t *vnc_stripes_key(const struct vnc_stripes *stripes);
/* OPEN was answered by a server that has so many of them, with VN_STRIPES_RESUME where they may be
 * dialled again.  stats: of the session's own connection; lose: for one that cannot be, from a
 * thread of theirs.  0, and uploads may be spread; -ENOTCONN where that is not all, -EAGAIN where
 * threads cannot be had. */
int vnc_stripes_open(struct vnc_stripes *stripes, uint32_t at_server, const struct rpc_stats *stats,
                     void (*lose)(void *user, const char *why)) MUST_CHECK;

/* Sends these bytes, which the stream's next SPREAD says belong to `off`; they are the caller's
 * again when it returns.  0, or what ended a stripe: the session is lost then. */
int vnc_stripes_send(struct vnc_stripes *stripes, const uint8_t *bytes, uint64_t off,
                     size_t len) MUST_CHECK;

/* Sent since the start. */
uint64_t vnc_stripes_bytes(const struct vnc_stripes *stripes);

#endif
