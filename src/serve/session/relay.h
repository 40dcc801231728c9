/* serve/session/relay.h - carries a session's TLS connections to its process.
 *
 * A TLS connection is keys and counters in OpenSSL's memory, which an executed process cannot take
 * over.  So a fork of the server, which has them, decrypts and encrypts for it, and does nothing
 * else (docs/decisions/0008-sessions-are-executed.md).
 *
 * Trust: both sides' bytes are only copied.  Threads: two for each connection.
 * Lifetime: the process ends with the session's, or when a connection has ended both ways. */
#ifndef HAWSER_SERVE_SESSION_RELAY_H
#define HAWSER_SERVE_SESSION_RELAY_H

#include "rpc/transport/transport.h"

#include <stdatomic.h>

enum { RELAY_CONNECTIONS_MAX = 16 }; /* a session's, with its stripes */

struct relay_connection {
    struct rpc_transport *far; /* to the client */
    int near;                  /* to the session: a Unix socket */
    _Atomic bool cut;          /* a send has found an error of the network; relaxed: a hint */
};

/* In the forked process; never returns.  A host that does not answer for host_ns is cut off: the
 * session finds its end resume_ns later, since its client may resume until then. */
void relay_run(struct relay_connection *connections, unsigned count, uint64_t host_ns,
               uint64_t resume_ns) __attribute__((noreturn));

#endif
