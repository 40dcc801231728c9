/* rpc/rpc.h - copyrpc: calls, posts, pushes and replies over one byte stream.
 *
 * An endpoint is one end of one connection.  Messages gather in a send batch; a flush writes the
 * batch once.  Streams 0 to 15 are each in order; a small message of one stream waits for at
 * most one chunk of a large message of another.
 *
 * Trust: the peer may send anything.  What breaks the rules ends the connection with -EPROTO and
 * one log line; memory held for a peer is bounded by the limits below.
 * Threads: one thread at a time for an endpoint, except rpc_wait (see there).  rpc/client.h adds
 * locks for programs that only want to call.
 * Lifetime: an endpoint owns its transport.  A message from rpc_recv is the caller's until
 * rpc_release; a reply is valid inside its callback only.
 *
 * Errors, negative errno, each with one meaning here:
 *   -ENOBUFS     the send queue is full: flush, or wait for the peer to read
 *   -EAGAIN      no credit: the peer still holds what it got
 *   -EMSGSIZE    larger than the peer said it takes
 *   -ETIMEDOUT   the deadline passed        -ECANCELED  rpc_cancel
 *   -ECONNRESET  the peer died              -ESHUTDOWN  it closed in order
 *   -EHOSTDOWN   it fell silent (heartbeat) -EPROTO     it broke the protocol
 *   -EACCES      refused: token or TLS      -EPROTONOSUPPORT  no common version
 *   -EUSERS      refused: the peer's limits are reached
 *   anything else is what the peer's handler answered. */
#ifndef HAWSER_RPC_RPC_H
#define HAWSER_RPC_RPC_H

#include "base/wait.h"
#include "rpc/stats.h"
#include "rpc/transport/transport.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct rpc_security;

enum {
    RPC_VERSION_MIN = 1,
    RPC_VERSION_MAX = 1,
    RPC_STREAMS = 16,            /* one nibble; more would need fairness, not a list */
    RPC_CHUNK_BYTES = 256 << 10, /* 35 us at 7.6 GB/s: what a small message may wait for */
    RPC_INLINE_BYTES = 16 << 10, /* smaller payloads are copied into the batch */
    RPC_WINDOW_MIN = 64 << 10,
    RPC_WINDOW_DEFAULT = 16 << 20, /* what one peer can make us hold */
    RPC_WINDOW_MAX = 1 << 30,
    RPC_MESSAGE_COST = 64,    /* credit that a message takes beside its payload */
    RPC_CALLS_DEFAULT = 4096, /* in flight from one side */
    RPC_CALLS_MIN = 16,       /* what every peer takes, also before its hello says more */
    RPC_CALLS_MAX = 65536,
    RPC_LANDING_HEAD = 16, /* bytes of a push that say where the others belong */
    RPC_ERROR_TEXT_MAX = 240
};

#define RPC_HEARTBEAT_DEFAULT_NS (UINT64_C(2) * 1000 * 1000 * 1000) /* silence that means death */
#define RPC_HEARTBEAT_MIN_NS (UINT64_C(40) * 1000 * 1000)           /* four pings of 10 ms */
#define RPC_TIMEOUT_DEFAULT_NS (UINT64_C(30) * 1000 * 1000 * 1000)
#define RPC_HANDSHAKE_DEFAULT_NS (UINT64_C(5) * 1000 * 1000 * 1000)

enum rpc_flush_policy {
    RPC_FLUSH_ADAPTIVE,    /* a message waits at most as long as one write takes, a post as eight */
    RPC_FLUSH_INCREMENTAL, /* every message is written at once */
    RPC_FLUSH_BATCH        /* only rpc_flush writes */
};

enum rpc_wait_mode {
    RPC_WAIT_ADAPTIVE, /* spins while that pays, then sleeps (base/wait.h) */
    RPC_WAIT_BLOCK,    /* sleeps at once */
    RPC_WAIT_BUSY      /* never sleeps */
};

/* The spin budget of a mode, for hw_wait_init. */
static inline uint64_t rpc_spin_budget(enum rpc_wait_mode mode)
{
    return mode == RPC_WAIT_BLOCK ? 0 : mode == RPC_WAIT_BUSY ? HW_NEVER : HW_SPIN_NS;
}

struct rpc_clock {
    uint64_t (*now_ns)(void *user);
    void *user;
};

/* Lets the bytes of large pushes be received where they belong, without a copy. */
struct rpc_landing {
    /* The first RPC_LANDING_HEAD bytes of a push of len bytes more are here, and all that came
     * before it was handled.  Where the rest goes, which stays there until leave(owner); NULL: into
     * the message. */
    uint8_t *(*place)(void *user, uint32_t method, const uint8_t *head, size_t len, void **owner);
    void (*leave)(void *owner); /* the message was released; not before all of it was handled */
    void *user;
};

struct rpc_config {
    bool accepting;                      /* this side listened */
    const struct rpc_security *security; /* token; NULL or no token: none asked for, none given */
    uint32_t window_bytes;               /* 0: RPC_WINDOW_DEFAULT; what we hold for the peer */
    uint32_t max_calls;                  /* 0: RPC_CALLS_DEFAULT; the peer's calls in flight */
    uint32_t send_queue_bytes;           /* 0: the smaller of both windows; more is -ENOBUFS */
    uint64_t heartbeat_ns;               /* 0: default; HW_NEVER: none */
    uint64_t handshake_ns;               /* 0: default; whole handshake, however slow the bytes */
    enum rpc_flush_policy flush;
    enum rpc_wait_mode wait;
    uint64_t spin_ns; /* budget of an adaptive wait; 0: HW_SPIN_NS */
    bool takes_fds;   /* descriptors may come with messages, on a Unix socket */
    /* A peer that is silent is not dead while its host answers: heartbeat_ns is for the host.  For
     * a server, whose clients may be stopped; a peer that somebody waits for needs the other. */
    bool tolerates_silence;
    /* A connector's, over tcp and tls: may go on after a cut (rpc/resume/resume.h). */
    bool resumes;
    uint64_t resumes_ns; /* how long after a cut at most; 0: as long as the acceptor waits */
    bool owner_tells;    /* the owner tells people rpc_ep_reason when it fails; no warning here */
    bool resuming; /* a connector's: this connection is to take the place of one that was cut */
    /* A connector's: the connection will carry other bytes than frames.  As rpc_ep_mute from
     * the start; resuming means this, too. */
    bool mute;
    uint32_t capabilities;      /* ours; the layers above define the bits */
    const char *name;           /* says who we are in the peer's log; NULL: "hawser" */
    struct rpc_clock clock;     /* now_ns NULL: hw_now_ns */
    struct rpc_landing landing; /* a connector's; place NULL: none */
};

struct rpc_ep;

/* Takes the transport, also on failure.  0, -EINVAL, -ENOMEM. */
int rpc_ep_create(struct rpc_transport *transport, const struct rpc_config *config,
                  struct rpc_ep **out) MUST_CHECK;
/* Ends every call in flight with -ECANCELED, then frees all.  Messages from rpc_recv must have
 * been released.  Not from inside a callback. */
void rpc_ep_destroy(struct rpc_ep *ep);

/* The same without telling the peer: a forked process goes on with the connection. */
void rpc_ep_abandon(struct rpc_ep *ep);

/* The same, and the transport is the caller's. */
struct rpc_transport *rpc_ep_strip(struct rpc_ep *ep);

/* Says goodbye to the peer, so that its calls end with -ESHUTDOWN rather than -ECONNRESET. */
void rpc_ep_shutdown(struct rpc_ep *ep, int reason, const char *text);
/* After that, where the transport had no room for the goodbye: writes on.  0, -EAGAIN while there
 * is none, or what the connection failed with. */
int rpc_ep_flush_goodbye(struct rpc_ep *ep);

/* The acceptor's, before it has polled: a connector that does not resume is refused with this text,
 * which must live as long as the endpoint. */
void rpc_ep_refuse_others(struct rpc_ep *ep, const char *full);
/* Whether the connector may want to resume. */
bool rpc_ep_peer_resumes(const struct rpc_ep *ep);
/* Whether the connector says that it will take the place of a connection that was cut. */
bool rpc_ep_peer_resuming(const struct rpc_ep *ep);

/* Both ends of a connection that will carry other bytes than frames: from now on this one sends
 * nothing but what its owner says, neither a heartbeat nor the answer to one, which the peer might
 * take for those bytes.  Nor is the peer's silence its end.  An acceptor does so by itself where
 * the connector says that it is resuming. */
void rpc_ep_mute(struct rpc_ep *ep);
bool rpc_ep_is_mute(const struct rpc_ep *ep);

/* 0 once the handshake is done, -EINPROGRESS during it, else the sticky error that ended it. */
int rpc_ep_status(const struct rpc_ep *ep);
/* A sentence for that error: what, why, remedy.  Never NULL. */
const char *rpc_ep_reason(const struct rpc_ep *ep);
const char *rpc_ep_peer(const struct rpc_ep *ep); /* the transport's word */
bool rpc_ep_proved(const struct rpc_ep *ep);      /* that both ends know the token */
/* Which of the server's tenants the client is, from 1 on; 0: it knows the server's own token. */
size_t rpc_ep_tenant(const struct rpc_ep *ep);
const char *rpc_ep_peer_name(const struct rpc_ep *ep); /* the peer's own word: for logs only */
uint32_t rpc_ep_peer_capabilities(const struct rpc_ep *ep);
uint32_t rpc_ep_message_max(const struct rpc_ep *ep); /* largest payload the peer takes */
struct rpc_transport *rpc_ep_transport(struct rpc_ep *ep);
/* Whether descriptors can go to the peer; known once the handshake is done. */
bool rpc_ep_passes_fds(const struct rpc_ep *ep);

/* Whether the line has more than it can carry at once; false where nobody knows.  Any thread. */
bool rpc_ep_is_behind(const struct rpc_ep *ep);
const struct rpc_stats *rpc_ep_stats(const struct rpc_ep *ep);
void *rpc_ep_user(const struct rpc_ep *ep);
void rpc_ep_set_user(struct rpc_ep *ep, void *user);

/* ---- sending ---- */

struct rpc_send {
    uint32_t method;
    uint8_t stream;          /* 0 to 15 */
    const struct iovec *iov; /* the payload; copied before return unless `sent` is set */
    int iov_count;           /* at most RPC_IOV_MAX */
    uint64_t timeout_ns;     /* call: 0 means RPC_TIMEOUT_DEFAULT_NS; HW_NEVER: none */
    /* Descriptors to pass along, at most RPC_FDS_MAX, on a Unix socket only and with a payload of
     * at most RPC_INLINE_BYTES.  Duplicated before return. */
    const int *fds;
    int fd_count;
    /* When set, a payload larger than RPC_INLINE_BYTES is not copied: the memory must stay as
     * it is until sent(sent_user), which is called exactly once unless the send failed. */
    void (*sent)(void *user);
    void *sent_user;
    /* With sent: where the connection resumes, the memory stays as it is until the peer has
     * acknowledged it, and sent is called then.  Else it is copied when it is written. */
    bool lasting;
};

struct rpc_msg;

/* status 0: reply is the answer, valid during the callback.  Negative: no reply (NULL), or, for
 * an error the peer's handler answered, a reply whose payload is its text. */
typedef void rpc_reply_fn(void *user, int status, const struct rpc_msg *reply);

/* 0, -ENOBUFS, -EAGAIN, -EMSGSIZE, -EINVAL, -EOPNOTSUPP (descriptors on another transport, or
 * to a peer that does not take them), or the endpoint's status.  During the handshake
 * messages queue up and go out when it is done. */
int rpc_post(struct rpc_ep *ep, const struct rpc_send *send) MUST_CHECK;
int rpc_push(struct rpc_ep *ep, const struct rpc_send *send) MUST_CHECK; /* accepting side */
/* fn is called exactly once for each call that returned 0, from rpc_poll, rpc_cancel or
 * rpc_ep_destroy.  id_out may be NULL. */
int rpc_call(struct rpc_ep *ep, const struct rpc_send *send, rpc_reply_fn *fn, void *user,
             uint32_t *id_out) MUST_CHECK;
/* Ends the call with -ECANCELED at once; a late answer is dropped.  -ENOENT when it has ended. */
int rpc_cancel(struct rpc_ep *ep, uint32_t id);
/* Answers a call, once.  Never refused for want of credit or room: it waits in its stream.  The
 * message stays the caller's to release.  status 0, or a negative errno with an optional text
 * as payload.  0 or the endpoint's status; with descriptors also what rpc_post says. */
int rpc_reply(struct rpc_ep *ep, struct rpc_msg *call, int status, const struct rpc_send *send);

/* Writes all that is pending, once.  0, -EAGAIN when the transport took only a part (rpc_wait
 * or a later flush goes on), or the endpoint's status. */
int rpc_flush(struct rpc_ep *ep);
/* True while bytes wait to be written. */
bool rpc_pending(const struct rpc_ep *ep);
/* True when they wait because the transport took no more. */
bool rpc_send_blocked(const struct rpc_ep *ep);

/* ---- receiving ---- */

enum rpc_kind { RPC_CALL = 1, RPC_POST = 2, RPC_PUSH = 3, RPC_REPLY = 4 };

struct rpc_msg {
    enum rpc_kind kind;
    uint8_t stream;
    uint32_t method; /* not for replies */
    const uint8_t *data;
    size_t len;
    const uint8_t *placed; /* where all behind the first RPC_LANDING_HEAD bytes is; NULL: in data */
    int fd_count;          /* descriptors that came with it */
};

/* Descriptor `index` of a message, from now on the caller's; -1 when it was taken.  What is not
 * taken is closed with the message. */
int rpc_msg_take_fd(const struct rpc_msg *msg, int index);

/* Reads what has arrived, ends calls (their callbacks run here), ends what is overdue, keeps the
 * heartbeat.  The number of messages read, or the endpoint's status. */
int rpc_poll(struct rpc_ep *ep);
/* The next call, post or push; NULL when there is none, and, on the accepting side, while more
 * than send_queue_bytes of answers wait for the peer to take them. */
struct rpc_msg *rpc_recv(struct rpc_ep *ep);
/* Whether so many answers wait.  Who gets them from somewhere else leaves the next ones there. */
bool rpc_answers_wait(const struct rpc_ep *ep);
/* Lets go of the data: its credit goes back to the peer. */
void rpc_release(struct rpc_ep *ep, struct rpc_msg *msg);

/* Waits for something to poll for: bytes, room to send what is pending, a deadline, or
 * timeout_ns.  Writes nothing: flush first.  0, also early and for no reason, or -ETIMEDOUT when
 * timeout_ns has passed. */
int rpc_wait(struct rpc_ep *ep, uint64_t timeout_ns);
/* The same, but ignores deadlines and the heartbeat.  One thread may be in here while another,
 * under the caller's lock, is in any other function but rpc_poll. */
int rpc_wait_bytes(struct rpc_ep *ep, uint64_t timeout_ns);
/* When rpc_poll must run again even if nothing arrives; HW_NEVER when there is no such time. */
uint64_t rpc_next_tick(const struct rpc_ep *ep);

#endif
