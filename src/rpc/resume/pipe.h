/* rpc/resume/pipe.h - a one-way stream of bytes that outlives its connections.
 *
 * For connections without messages.  The receiver says now and then how many bytes it has ever
 * received (u64, little-endian), and the sender keeps those that it has not heard of.  After a cut
 * the sender dials again and says one byte, for which the receiver waits, since what it said
 * earlier might be taken for a part of how the connection was made.  It answers with its number,
 * and the sender goes on from there.
 *
 * Trust: a receiver that says a number that cannot be ends its pipe (-EPROTO); one that says none
 * stops the sender at its limit.
 * Threads: one at a time; rpc_pipe_give any.  Lifetime: a transport each; destroy. */
#ifndef HAWSER_RPC_RESUME_PIPE_H
#define HAWSER_RPC_RESUME_PIPE_H

#include "rpc/transport/transport.h"

enum {
    RPC_PIPE_TELL_BYTES = 256 << 10, /* received, before the receiver says so */
    RPC_PIPE_KEPT_BYTES = 4 << 20    /* that a sender keeps: as much as a socket's buffer */
};

/* Another connection, made within seconds.  0; -ENOENT when there is no such receiver any more; or
 * another negative errno, and it is tried again. */
typedef int rpc_pipe_dial_fn(void *user, struct rpc_transport **out);

/* The sender's end: send and wait.  A cut is -EAGAIN until it is resumed, at most for a minute.
 * Takes the connection, not on failure.  0 or -ENOMEM. */
int rpc_pipe_sender(struct rpc_transport *connection, rpc_pipe_dial_fn *dial, void *user,
                    struct rpc_transport **out) MUST_CHECK;

/* Between sends: hears what the receiver says, and resumes after a cut.  `cut`: cuts it, also one
 * that seems well; a connection whose host does not answer is cut, too.  -EAGAIN while it is cut,
 * else 0 or its end. */
int rpc_pipe_tend(struct rpc_transport *sender, bool cut);
/* Readable when there is something to tend to; -1 while it is cut. */
int rpc_pipe_poll_fd(const struct rpc_transport *sender);

/* The receiver's end: recv.  A cut is -EAGAIN until another connection is given.  Takes the
 * connection, not on failure.  0 or -ENOMEM. */
int rpc_pipe_receiver(struct rpc_transport *connection, struct rpc_transport **out) MUST_CHECK;
/* Goes on with this connection, which is taken, at the next recv. */
void rpc_pipe_give(struct rpc_transport *receiver, struct rpc_transport *connection);

#endif
