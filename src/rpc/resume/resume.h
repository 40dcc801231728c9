/* rpc/resume/resume.h - an endpoint goes on after its connection was cut.
 *
 * The acceptor offers it, to a connector whose hello says that it resumes: an OFFER frame names the
 * session, a secret of it, how long the acceptor waits after a cut, and how many bytes of frames it
 * has received.  From there on each side numbers the bytes of frames that it sends, the connector
 * from its first frame, the acceptor from behind the offer.  It keeps them until the peer
 * acknowledges them (ACK).
 *
 * After a cut the connector dials again and shakes hands as ever.  Its first call is
 * RPC_METHOD_RESUME with the session, the secret and how many bytes it has; the answer says how
 * many the acceptor has.  Both send again what the other lacks and go on: a frame may begin on one
 * connection and end on the next.
 *
 * How long a side waits depends on how it ended (docs/decisions/0010-cuts-and-ends.md).  After
 * silence, or an error that a network makes, it is the acceptor's window.  So it is after FIN: a
 * connector's socket is set so that its kernel sends RST when the process is killed, and a process
 * that ends in order says goodbye; what closes in order without one is something between.  RST is
 * most often the end of a process: one that lives comes back at once, so that is waited for
 * RPC_RESUME_TOLD_NS only.  Not so when the connection was resumed within the window before: then
 * something between the two ends connections.
 *
 * Trust: a peer that has the secret and tells numbers that cannot be ends the session (-EPROTO).
 * What is kept for a peer is bounded by its window.
 * Threads: the endpoint's, as rpc/rpc.h.  Lifetime: the endpoint's. */
#ifndef HAWSER_RPC_RESUME_RESUME_H
#define HAWSER_RPC_RESUME_RESUME_H

#include "rpc/endpoint/frame.h"
#include "rpc/rpc.h"
#include "rpc/transport/addr.h"

enum {
    RPC_RESUME_SECRET_BYTES = 32,
    RPC_RESUME_REQUEST_BYTES = 8 + RPC_RESUME_SECRET_BYTES + 8,
    RPC_RESUME_ANSWER_BYTES = 8,
    RPC_RESUME_OFFER_BYTES = 8 + RPC_RESUME_SECRET_BYTES + 4 + 8,
};

/* More than a connector needs to notice the cut by silence, and to dial. */
#define RPC_RESUME_TOLD_NS (UINT64_C(5) * 1000 * 1000 * 1000)

/* Whether a connection that ended so most likely ended with the peer's process.  Where both ends
 * have one kernel, as a session and its relay, each end is told so. */
bool rpc_resume_is_told(const struct rpc_transport *t, int why);

/* rpc_config.resumes for a connection to that address, by VENUS_RESUME.  Without it, to other
 * hosts: on one host no network is cut, and a program's memory shall be free as soon as it is
 * killed. */
bool rpc_resume_is_wanted(const struct rpc_addr *addr);

/* A session's name and secret. */
struct rpc_resume_key {
    uint64_t session;
    uint8_t secret[RPC_RESUME_SECRET_BYTES];
};

/* The payload of RPC_METHOD_RESUME. */
struct rpc_resume_request {
    struct rpc_resume_key key;
    uint64_t received; /* bytes that the connector has */
};

/* All numbers are little-endian.  get: 0 or -EPROTO. */
void rpc_resume_put_request(const struct rpc_resume_request *request,
                            uint8_t out[RPC_RESUME_REQUEST_BYTES]);
int rpc_resume_get_request(const void *data, size_t len, struct rpc_resume_request *out) MUST_CHECK;

/* A new session's key.  0 or -EIO. */
int rpc_resume_key_make(uint64_t session, struct rpc_resume_key *out) MUST_CHECK;
/* Whether they are the same, in a time that does not tell how much of them is. */
bool rpc_resume_key_equal(const struct rpc_resume_key *a, const struct rpc_resume_key *b);

/* The acceptor's, once the handshake is done, and once only: its peer may resume within window_ns
 * after a cut.  Flush to send it.  `before` bytes of frames were received by another process.  0,
 * -ENOMEM, or -EOPNOTSUPP when the peer does not resume or its transport cannot be replaced. */
int rpc_ep_offer_resume(struct rpc_ep *ep, const struct rpc_resume_key *key, uint64_t window_ns,
                        uint64_t before) MUST_CHECK;

/* Whether the connection could be resumed if it were cut now. */
bool rpc_ep_can_resume(const struct rpc_ep *ep);
/* Whether the connection is cut and can be resumed: messages queue up meanwhile. */
bool rpc_ep_is_cut(const struct rpc_ep *ep);
/* For how long nothing has come from the peer, which sends pings while it runs. */
uint64_t rpc_ep_unheard_ns(const struct rpc_ep *ep);

/* The connector's, after a cut.  When it returns, no thread uses the old connection. */
void rpc_ep_resume_request(struct rpc_ep *ep, struct rpc_resume_request *out);
/* Goes on with a connection over which the acceptor answered that it has `received` bytes, and of
 * which `early` was read behind the answer.  Takes it, also on failure.  0, or the status that
 * ended the endpoint. */
int rpc_ep_resume(struct rpc_ep *ep, struct rpc_transport *connection, const void *early,
                  size_t early_len, uint64_t received) MUST_CHECK;
/* The acceptor's: answers call `id` on that connection and goes on with it, whether the old one is
 * known to be cut or not.  As rpc_ep_resume. */
int rpc_ep_resume_accept(struct rpc_ep *ep, struct rpc_transport *connection, uint32_t id,
                         uint64_t received) MUST_CHECK;
/* The connector's, when an attempt has failed with this error.  Only a host that refuses the
 * connection tells that the peer is gone: what was taken and then ended may have been cut again. */
void rpc_ep_resume_failed(struct rpc_ep *ep, int error);
/* The connector's, when the acceptor says that there is nothing to resume. */
void rpc_ep_resume_refused(struct rpc_ep *ep, const char *why);

/* ---- for the endpoint's own files ---- */

struct rpc_resume;

/* Puts a rope under a connector that resumes, where the transport can be replaced. */
int rpc_resume_init(struct rpc_ep *ep) MUST_CHECK;
void rpc_resume_fini(struct rpc_ep *ep);
void rpc_resume_opened(struct rpc_ep *ep);
int rpc_resume_on_frame(struct rpc_ep *ep, const struct rpc_frame *frame) MUST_CHECK;
/* After a goodbye was written. */
void rpc_resume_leave(struct rpc_ep *ep);
/* Queues an ACK when one is due. */
void rpc_resume_acknowledge(struct rpc_ep *ep);

/* Cuts the connection; false when it cannot be resumed. */
bool rpc_resume_sever(struct rpc_resume *resume);
bool rpc_resume_is_cut(const struct rpc_resume *resume);
/* While it is cut: ends the endpoint once the window has passed. */
int rpc_resume_tick(struct rpc_ep *ep, uint64_t now);
/* When to call it. */
uint64_t rpc_resume_next_tick(const struct rpc_resume *resume);

/* What the peer lacks goes first. */
bool rpc_resume_replays(const struct rpc_resume *resume);
int rpc_resume_gather(const struct rpc_ep *ep, struct iovec iov[RPC_IOV_MAX]);
void rpc_resume_replayed(struct rpc_ep *ep, size_t n);

#endif
