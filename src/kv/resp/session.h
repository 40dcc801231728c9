/* kv/resp/session.h - one connection of Redis' protocol: requests in, replies out.
 *
 * A value is a block of the cluster (kv/client/named.h).  A get sends it out of the arena under a
 * lease.  Before AUTH, where a password is wanted, a connection may send little and ask for
 * nothing.
 *
 * Trust: the peer may send anything.  Threads: one a session.  Lifetime: run returns when the
 * connection ends or its socket is shut down; the caller owns the socket. */
#ifndef HAWSER_KV_RESP_SESSION_H
#define HAWSER_KV_RESP_SESSION_H

#include "kv/resp/tenants.h"

struct resp_session_options {
    int fd;             /* blocking, with a limit for sends */
    const char *socket; /* of the KV daemon */
    uint64_t id;
    const uint8_t *password; /* NULL: none is wanted */
    size_t password_len;
    const struct resp_tenants *tenants; /* NULL: none */
    bool may_flush;                     /* FLUSHDB deletes the values of this host's daemons */
    bool open; /* without AUTH the session sees what belongs to no tenant */
};

void resp_session_run(const struct resp_session_options *options);

#endif
