/* rpc/client.h - an endpoint for programs that only want to call: blocking, any thread.
 *
 * One of the waiting threads reads the socket for all of them, so an answer needs no hop through
 * another thread.  A heartbeat thread sends pings while no thread waits.
 *
 * Trust: as rpc/rpc.h.
 * Threads: any number in any function but destroy.  Callbacks run with the client's lock held:
 * they must not call rpc_client_*.  After fork the child's calls answer -ESHUTDOWN: the
 * connection is the parent's.
 * Lifetime: create/destroy. */
#ifndef HAWSER_RPC_CLIENT_H
#define HAWSER_RPC_CLIENT_H

#include "rpc/rpc.h"
#include "rpc/transport/net.h"

#include <stdlib.h>
#include <unistd.h>

struct rpc_client;

/* A push from the server.  The message is valid during the call. */
typedef void rpc_push_fn(void *user, const struct rpc_msg *push);

/* The connection has ended, not by destroy: its status, and the reason in words.  Called once, by
 * the thread that finds out; not when connecting failed. */
typedef void rpc_end_fn(void *user, int status, const char *reason);

struct rpc_client_options {
    struct rpc_config config; /* accepting must be false */
    rpc_push_fn *on_push;     /* NULL: pushes are dropped */
    rpc_end_fn *on_end;       /* NULL: found out by the next call */
    void *push_user;          /* of both */
};

/* Dials and shakes hands.  0, or a negative errno with cause and remedy in why.  With
 * config.resumes the client dials again after a cut, where the server offers it: calls and waits
 * then only take longer. */
int rpc_client_connect(const struct rpc_addr *addr, const struct rpc_net_options *net,
                       const struct rpc_client_options *options, struct rpc_client **out,
                       char why[RPC_WHY_CHARS]) MUST_CHECK;
/* The same over a transport that is already there; takes it, also on failure. */
int rpc_client_create(struct rpc_transport *transport, const struct rpc_client_options *options,
                      struct rpc_client **out, char why[RPC_WHY_CHARS]) MUST_CHECK;
/* Says goodbye; no other thread may be inside. */
void rpc_client_destroy(struct rpc_client *client);

/* Says goodbye and ends the connection, but frees nothing: for a process that ends while other
 * threads may be inside.  Says nothing when one of them holds the lock for a tenth of a second. */
void rpc_client_leave(struct rpc_client *client);

/* Frees the client and gives its transport to the caller, without telling the peer: for two ends
 * that have agreed to go on without messages.  Nothing may be under way. */
struct rpc_transport *rpc_client_strip(struct rpc_client *client);

struct rpc_answer {
    uint8_t *data; /* malloc'd, NULL when empty */
    size_t len;
    int fds[RPC_FDS_MAX]; /* fd_count of them; set one to -1 to keep it */
    int fd_count;
};

static inline void rpc_answer_fini(struct rpc_answer *answer)
{
    for (int i = 0; i < answer->fd_count; i++)
        if (answer->fds[i] >= 0)
            close(answer->fds[i]);
    free(answer->data);
    *answer = (struct rpc_answer){0};
}

/* One call, flushed at once, and its answer.  *answer (may be NULL) is filled on 0 only, and
 * freed by rpc_answer_fini.  Waits for credit and room within the call's deadline. */
int rpc_client_call(struct rpc_client *client, const struct rpc_send *send,
                    struct rpc_answer *answer) MUST_CHECK;

/* Queues a call; fn runs in some thread that waits.  Flush to send it. */
int rpc_client_call_async(struct rpc_client *client, const struct rpc_send *send, rpc_reply_fn *fn,
                          void *user) MUST_CHECK;

/* Queues a post; waits for credit and room, at most send->timeout_ns (0: the default). */
int rpc_client_post(struct rpc_client *client, const struct rpc_send *send) MUST_CHECK;

/* Writes all that is queued; waits for the transport to take it. */
int rpc_client_flush(struct rpc_client *client);

/* Flushes, then waits until done(user) is true; it is asked under the client's lock, whenever
 * something has arrived, by whichever thread read it.  0, -ETIMEDOUT, or the connection's status.
 */
int rpc_client_wait(struct rpc_client *client, bool (*done)(void *user), void *user,
                    uint64_t timeout_ns) MUST_CHECK;

/* Takes in what has arrived, without waiting. */
void rpc_client_poll(struct rpc_client *client);

int rpc_client_status(struct rpc_client *client);
/* A copy of the endpoint's reason. */
void rpc_client_reason(struct rpc_client *client, char why[RPC_WHY_CHARS]);
const struct rpc_stats *rpc_client_stats(const struct rpc_client *client);
/* For figures that do not change after the handshake: peer, names, limits, transport. */
const struct rpc_ep *rpc_client_ep(const struct rpc_client *client);

#endif
