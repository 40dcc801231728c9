/* kv/resp/session.h - one connection of Redis' protocol: requests in, replies out.
 *
 * A value is a block of the cluster (kv/client/named.h).  A session begins in the loop that it
 * shares with others: there it serves what this process's daemons have and what is short, without
 * waiting.  When something else comes (a key of another daemon, a long value, a peer that does not
 * read), the session goes on in a thread of its own, where it may wait.  One over TLS has a thread
 * from its beginning.  Before AUTH, where a password is wanted, a connection may send little and
 * ask for nothing, and it has 10 s for it.
 *
 * Trust: the peer may send anything.  Threads: one at a time.  Lifetime: create/destroy; the caller
 * owns the socket, the transport and the hosts. */
#ifndef HAWSER_KV_RESP_SESSION_H
#define HAWSER_KV_RESP_SESSION_H

#include "kv/resp/tenants.h"
#include "kv/store/policy.h"
#include "rpc/transport/transport.h"

#include <stdatomic.h>

enum {
    RESP_SESSIONS_MAX = 1024, /* at a time; each may have a thread.  A client's pool has 150 */
    RESP_LEASES_MAX = 24      /* of a session, at one daemon; and one put */
};

struct kv_host;

/* What CONFIG GET tells of the store. */
struct resp_store {
    uint64_t room;
    enum kv_policy_kind policy;
};

/* Of all connections: what INFO tells of them. */
struct resp_counts {
    uint64_t started_ns; /* does not change */
    _Atomic uint64_t connected, received, commands;
};

struct resp_session_options {
    int fd;                          /* blocking */
    struct rpc_transport *transport; /* NULL: the socket itself.  Else there are no turns */
    const char *socket;              /* of the KV daemon */
    struct kv_host **hosts;          /* every daemon of this process, by index */
    uint32_t host_count;
    uint64_t id;
    const uint8_t *password; /* NULL: none is wanted */
    size_t password_len;
    const struct resp_tenants *tenants; /* NULL: none */
    bool may_flush;                     /* FLUSHDB deletes the values of this host's daemons */
    bool open;           /* without AUTH the session sees what belongs to no tenant */
    uint64_t auth_ns;    /* for AUTH; 0: 10 s */
    uint64_t timeout_ns; /* of a request to the KV daemon; 0: KV_TIMEOUT_DEFAULT_NS */
    struct resp_store store;
    struct resp_counts *counts; /* must stay */
};

struct resp_session;

/* NULL: no memory. */
struct resp_session *resp_session_create(const struct resp_session_options *options);
void resp_session_destroy(struct resp_session *session);
/* When the session must end unless it is authenticated by then; HW_NEVER: it is, or need not be.
 * The caller sees to it between turns, resp_session_run by itself. */
uint64_t resp_session_auth_end(const struct resp_session *session);

enum resp_turn {
    RESP_TURN_MORE, /* call again when the socket can be read */
    RESP_TURN_WAIT, /* what comes next needs a thread: resp_session_run */
    RESP_TURN_END
};
/* Serves what has come, without waiting. */
enum resp_turn resp_session_turn(struct resp_session *session);
/* The same with waiting, until the connection ends or its socket is shut down. */
void resp_session_run(struct resp_session *session);

#endif
