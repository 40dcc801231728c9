/* rpc/resume/attempt.h - a connector's attempt to resume: a handshake and one call over a new
 * connection, by an endpoint of their own.
 *
 * Trust: as rpc/rpc.h.  Threads: one.  Lifetime: create/destroy. */
#ifndef HAWSER_RPC_RESUME_ATTEMPT_H
#define HAWSER_RPC_RESUME_ATTEMPT_H

#include "rpc/resume/resume.h"

struct rpc_attempt;

/* config: of the endpoint that resumes.  Takes the connection, also on failure.  0 or a negative
 * errno. */
int rpc_attempt_create(struct rpc_transport *connection, const struct rpc_config *config,
                       const struct rpc_resume_request *request,
                       struct rpc_attempt **out) MUST_CHECK;
void rpc_attempt_destroy(struct rpc_attempt *attempt);

/* -EINPROGRESS, 0 once the acceptor has answered, or why it did not: -ENOENT when it says that
 * there is no such session. */
int rpc_attempt_poll(struct rpc_attempt *attempt);
/* Waits for something to poll for, at most so long. */
void rpc_attempt_wait(struct rpc_attempt *attempt, uint64_t timeout_ns);
const char *rpc_attempt_reason(const struct rpc_attempt *attempt);

/* After 0: the endpoint goes on with the connection.  As rpc_ep_resume.  Destroys the attempt. */
int rpc_attempt_finish(struct rpc_attempt *attempt, struct rpc_ep *ep) MUST_CHECK;

#endif
