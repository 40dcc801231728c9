/* rpc/transport/transport.h - the byte stream under an endpoint, and the ops that every transport
 * fills in.
 *
 * A transport carries bytes in order between two peers and knows nothing of messages.  tcp,
 * unix, shm, loopback, ucx and tls are all this and nothing more, so one test suite runs on all.
 *
 * Trust: none in the peer; a transport reports what the peer did as a negative errno.
 * Threads: one thread may be in send or wait for room to send while another is in recv or waits
 * for bytes; otherwise one at a time.
 * Lifetime: created by rpc_dial, by a listener or by a pair call; destroyed by its endpoint. */
#ifndef HAWSER_RPC_TRANSPORT_TRANSPORT_H
#define HAWSER_RPC_TRANSPORT_TRANSPORT_H

#include "base/attr.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
    RPC_IOV_MAX = 16,          /* segments in one send or recv; more gain nothing measurable */
    RPC_BINDING_BYTES = 32,    /* a TLS exporter value, mixed into the token proof */
    RPC_PEER_NAME_CHARS = 128, /* fits any numeric address or a full Unix socket path */
    RPC_TRANSPORT_FDS = 5,     /* that one is made of: shm has a socket, bells, an epoll, a memfd */
    RPC_FDS_MAX = 4,           /* descriptors with one message: a memfd and its doorbells */
    RPC_FDS_QUEUED_MAX = 32    /* on their way, either side: bounds what a peer can leave open */
};

enum rpc_wait_events { RPC_WAIT_RECV = 1, RPC_WAIT_SEND = 2 };

/* What the kernel says of the peer's user: root counts as the same, since it could be anyway. */
enum rpc_peer_user { RPC_USER_UNKNOWN, RPC_USER_SAME, RPC_USER_OTHER };

struct rpc_transport;

/* n bytes of the segments are sent: how many segments are done.  The next one begins with the rest.
 */
static inline int rpc_iov_advance(struct iovec *iov, int count, size_t n)
{
    int done = 0;
    for (; done < count && n >= iov[done].iov_len; done++)
        n -= iov[done].iov_len;
    assert(done < count || n == 0);
    if (done < count) {
        iov[done].iov_base = (uint8_t *)iov[done].iov_base + n;
        iov[done].iov_len -= n;
    }
    return done;
}

/* What another process needs beside the descriptors to go on with a connection.  Fixed in size, for
 * processes of the same program. */
struct rpc_transport_state {
    char name[8]; /* of the transport */
    bool local;
    char peer[RPC_PEER_NAME_CHARS];
    uint32_t ring_bytes; /* shm, as are those that follow */
    uint64_t tail, head;
};

struct rpc_transport_ops {
    const char *name;

    /* Takes as many bytes as fit now, in order.  Bytes taken (> 0), -EAGAIN when none fit,
     * -EPIPE once the stream from the peer has ended, -ECONNRESET and the like when it is gone. */
    ssize_t (*send)(struct rpc_transport *t, const struct iovec *iov, int count);

    /* Reads what has arrived, waiting up to timeout_ns for the first byte (0: not at all).
     * Bytes read (> 0), -EAGAIN when nothing came in time, -ESHUTDOWN at an orderly end of the
     * stream, -EPIPE when it ended so below TLS alone, -ECONNRESET and the like when the peer is
     * gone, -EPROTO when it broke the
     * transport's own rules.  May return -EAGAIN early (a spurious wake-up). */
    ssize_t (*recv)(struct rpc_transport *t, const struct iovec *iov, int count,
                    uint64_t timeout_ns);

    /* As send, with descriptors that arrive no later than the bytes; once any byte is taken they
     * are.  NULL where descriptors cannot travel. */
    ssize_t (*send_fds)(struct rpc_transport *t, const struct iovec *iov, int count, const int *fds,
                        int fd_count);
    /* From now on descriptors are looked for in every read, which costs a little; without it they
     * are lost.  Before the first recv. */
    void (*expect_fds)(struct rpc_transport *t);
    /* The next descriptor that came, now the caller's, or -1.  With recv's thread rules. */
    int (*take_fd)(struct rpc_transport *t);

    /* Waits until one of `events` may succeed, or timeout_ns passes.  0 or -ETIMEDOUT.  An end
     * or failure of the stream counts as both events. */
    int (*wait)(struct rpc_transport *t, unsigned events, uint64_t timeout_ns);

    /* A descriptor that polls readable when recv may succeed after arm() returned 0, or -1. */
    int (*poll_fd)(struct rpc_transport *t);

    /* Announces that the owner is about to sleep on poll_fd until one of `events` may succeed.
     * 1 when one would right now (do not sleep), 0 when armed.  NULL when the descriptor alone is
     * enough.  Where poll_fd is a socket the owner also asks it for POLLOUT. */
    int (*arm)(struct rpc_transport *t, unsigned events);

    /* Whether the peer's kernel has acknowledged what it was sent, or had nothing to acknowledge,
     * within the time.  NULL: the peer's end is always told as the end of the stream. */
    bool (*host_answers)(struct rpc_transport *t, uint64_t within_ns);

    /* Whether the line has more than it can carry at once: bytes wait in this host's kernel.  From
     * any thread.  NULL: nobody knows. */
    bool (*is_behind)(struct rpc_transport *t);

    /* 32 bytes that both ends of this very channel share and nobody else can make; only a
     * transport with its own cryptography has one.  NULL: none. */
    int (*binding)(struct rpc_transport *t, uint8_t out[RPC_BINDING_BYTES]);

    /* A sentence for a failure that its errno alone does not explain; NULL, or answers NULL:
     * there is none. */
    const char *(*reason)(struct rpc_transport *t);

    /* The descriptors that a process needs which takes the connection over after fork; how many.
     * NULL: it cannot go to another process. */
    int (*descriptors)(struct rpc_transport *t, int fds[RPC_TRANSPORT_FDS]);

    /* What a process needs that was executed, not forked: fills the state and the descriptors,
     * which stay this transport's.  How many, or -EBUSY when it is not at rest.  NULL: it cannot
     * be. */
    int (*hand_over)(struct rpc_transport *t, struct rpc_transport_state *state,
                     int fds[RPC_TRANSPORT_FDS]);

    void (*destroy)(struct rpc_transport *t);
    /* The same without telling the peer, since another process goes on with the connection.
     * NULL: destroy says none. */
    void (*abandon)(struct rpc_transport *t);
};

/* Embedded first in each transport's own struct. */
struct rpc_transport {
    const struct rpc_transport_ops *ops;
    bool local; /* the peer is on this host, by the kernel's word */
    enum rpc_peer_user user;
    char peer[RPC_PEER_NAME_CHARS]; /* for messages: "127.0.0.1:4711", "unix pid 12 uid 0" */
    /* Where it cannot be handed over, of an accepted one: our address that the peer came to,
     * without a port. */
    char reached[RPC_PEER_NAME_CHARS];
};

static inline void rpc_transport_destroy(struct rpc_transport *t)
{
    if (t)
        t->ops->destroy(t);
}

static inline void rpc_transport_abandon(struct rpc_transport *t)
{
    if (t->ops->abandon)
        t->ops->abandon(t);
    else
        t->ops->destroy(t);
}

/* ---- listeners ---- */

struct rpc_listener;

struct rpc_listener_ops {
    /* 0 and a transport whose own set-up (TLS, say) may still be under way: its recv and send
     * answer -EAGAIN until it is done.  -EAGAIN when nobody waits; another negative errno when
     * one caller was turned away (the listener goes on). */
    int (*accept)(struct rpc_listener *l, struct rpc_transport **out);
    int (*poll_fd)(struct rpc_listener *l);
    void (*destroy)(struct rpc_listener *l); /* removes a socket file it made */
};

struct rpc_listener {
    const struct rpc_listener_ops *ops;
    char address[RPC_PEER_NAME_CHARS]; /* as bound, with the port the kernel chose */
};

static inline void rpc_listener_destroy(struct rpc_listener *l)
{
    if (l)
        l->ops->destroy(l);
}

#endif
