/* rpc/resume/rope.h - a transport whose connection can be cut and replaced by another one.
 *
 * It lies between an endpoint and a tcp or tls transport.  When that one fails, the rope is cut:
 * sends and receives answer -EAGAIN, waits sleep, and nothing is lost that the rope has counted.
 * Whoever resumes gives it a new connection.
 *
 * Trust: as the transport below.
 * Threads: as rpc/transport/transport.h, and any for sever and is_cut.  quiet and attach exclude
 * send, which the endpoint's lock does; threads that receive or wait are sent away first.
 * Lifetime: an endpoint's transport; destroy destroys the connection, too. */
#ifndef HAWSER_RPC_RESUME_ROPE_H
#define HAWSER_RPC_RESUME_ROPE_H

#include "rpc/transport/transport.h"

struct rpc_rope;

/* Takes the connection, not on failure.  0 or -ENOMEM. */
int rpc_rope_create(struct rpc_transport *connection, struct rpc_rope **out) MUST_CHECK;
struct rpc_transport *rpc_rope_transport(struct rpc_rope *rope);

/* Without an end that can be resumed a cut is an end: errors go up until this is called. */
void rpc_rope_hold(struct rpc_rope *rope);

/* Cuts it: threads that wait for the connection come back. */
void rpc_rope_sever(struct rpc_rope *rope, int why);
bool rpc_rope_is_cut(const struct rpc_rope *rope);
/* What the connection's end was: -ECONNRESET and the like.  Once it is cut. */
int rpc_rope_why(const struct rpc_rope *rope);

/* Bytes that were received, ever.  Once it is cut and quiet has returned, it does not change until
 * attach. */
uint64_t rpc_rope_received(const struct rpc_rope *rope);
/* Cuts it, and waits until no thread uses the connection. */
void rpc_rope_quiet(struct rpc_rope *rope);

/* Goes on with another connection, of which `early` has been received already.  Takes it, also on
 * failure.  0 or -ENOMEM.  After quiet. */
int rpc_rope_attach(struct rpc_rope *rope, struct rpc_transport *connection, const void *early,
                    size_t early_len) MUST_CHECK;

#endif
