/* rpc/handover.h - an open connection goes on in another process of the same program, which was
 * executed and so shares no memory with this one.
 *
 * The state is a plain structure, to be written to a file of memory.  What has been received and
 * not been dealt with goes along as bytes: the other process receives it as if it had just come.
 *
 * Trust: both processes trust each other; the bytes in it are a peer's and are parsed again.
 * Threads: the endpoint's.  Lifetime: the state is the caller's. */
#ifndef HAWSER_RPC_HANDOVER_H
#define HAWSER_RPC_HANDOVER_H

#include "rpc/endpoint/handshake.h"
#include "rpc/endpoint/rx.h"

struct rpc_handover {
    struct rpc_transport_state transport;
    char peer_name[RPC_HS_NAME_CHARS];
    uint32_t peer_capabilities, message_max, max_calls;
    bool peer_takes_fds, peer_resumes, credit_asked, credit_wanted;
    uint64_t credit, outstanding, queue_limit, credit_due;
    uint64_t ping_every_ns, silent_ns;
    uint64_t received; /* bytes of frames */
    uint32_t byte_count;
    uint8_t bytes[RPC_RX_BLOCK_BYTES];
};

/* Fills all of *out but the transport.  `first` is a call from rpc_recv that the other process
 * shall answer.  0; -EBUSY when more is under way than that call, -EMSGSIZE when it is too large.
 */
int rpc_ep_hand_over(struct rpc_ep *ep, const struct rpc_msg *first,
                     struct rpc_handover *out) MUST_CHECK;
/* For a call of RPC_METHOD_RESUME, whose connection goes to the process of that session: its id in
 * *id.  0, or -EBUSY when more is under way than that call. */
int rpc_ep_hand_over_resume(struct rpc_ep *ep, const struct rpc_msg *call, uint32_t *id) MUST_CHECK;
/* Fills *out, and fds with descriptors that stay the transport's; how many, or -EBUSY when it is
 * not at rest, -EOPNOTSUPP when it cannot go; then *out is for a Unix socket that stands for it. */
int rpc_transport_hand_over(struct rpc_transport *t, struct rpc_transport_state *out,
                            int fds[RPC_TRANSPORT_FDS]) MUST_CHECK;

/* In the other process, with the configuration of the first.  Both take the descriptors, also on
 * failure.  0, -EINVAL, -ENOMEM. */
int rpc_ep_take_over(const struct rpc_handover *state, const int *fds, int count,
                     const struct rpc_config *config, struct rpc_ep **out) MUST_CHECK;
int rpc_transport_take_over(const struct rpc_transport_state *state, const int *fds, int count,
                            struct rpc_transport **out) MUST_CHECK;

#endif
