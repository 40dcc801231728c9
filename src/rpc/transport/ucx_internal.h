/* rpc/transport/ucx_internal.h - what the two halves of the UCX transport share; private to ucx.c
 * and ucx_connect.c.
 *
 * ucx_connect.c sets UCX up, finds the peer and listens; ucx.c carries the bytes and speaks the
 * messages that begin and end a connection.  The first hands contexts and endpoint parameters to
 * the second and knows a connection only as an rpc_transport.
 *
 * Threads: a context is shared, its count is atomic.  The rpc_ucx_conn_ calls are for the one
 * thread that makes the connection, before anybody else knows of it. */
#ifndef HAWSER_RPC_TRANSPORT_UCX_INTERNAL_H
#define HAWSER_RPC_TRANSPORT_UCX_INTERNAL_H

#include "base/attr.h"
#include "base/clock.h"
#include "rpc/transport/transport.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <ucp/api/ucp.h>

/* ---- ucx_connect.c: UCX in our process ---- */

/* One for each dial; one for a listener and all that it accepted, which may outlive it. */
struct rpc_ucx_context {
    atomic_uint refs;
    ucp_context_h ucp;
    bool peer_failure; /* UCX tells of a dead peer, and does without shared memory */
};

struct rpc_ucx_context *rpc_ucx_context_ref(struct rpc_ucx_context *c);
void rpc_ucx_context_unref(struct rpc_ucx_context *c);

/* 0, or a negative errno.  The caller destroys the worker, before it lets go of the context; fd
 * is the worker's own. */
int rpc_ucx_worker_create(struct rpc_ucx_context *c, ucp_worker_h *worker_out,
                          int *fd_out) MUST_CHECK;

/* 0 for UCS_OK, -EIO for what has no errno of its own. */
int rpc_ucx_errno(ucs_status_t status);

/* ---- ucx.c: a connection ---- */

/* A connection that has no endpoint; its local and peer are the caller's to fill in.  Takes its
 * own reference to the context.  0, or a negative errno. */
int rpc_ucx_conn_create(struct rpc_ucx_context *context, struct rpc_transport **out) MUST_CHECK;

/* Ends a connection that connect or accept could not make, so without the farewell of
 * rpc_transport_destroy. */
void rpc_ucx_conn_destroy(struct rpc_transport *base);

/* Makes the endpoint towards the peer that `to` names and waits until it has accepted.  0,
 * -ETIMEDOUT, or what UCX says. */
int rpc_ucx_conn_connect(struct rpc_transport *base, const ucp_ep_params_t *to,
                         uint64_t deadline_ns) MUST_CHECK;

/* Makes the endpoint for the caller in `from`, whose request is used up whatever the outcome, and
 * tells it that it was accepted.  0, or what UCX says. */
int rpc_ucx_conn_accept(struct rpc_transport *base, const ucp_ep_params_t *from) MUST_CHECK;

#endif
