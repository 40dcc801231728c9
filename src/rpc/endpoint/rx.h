/* rpc/endpoint/rx.h - the receiving half of an endpoint: from bytes to messages, without copies.
 *
 * Bytes land in blocks.  A small message is a pointer into its block, which lives as long as a
 * message in it is held.  A larger one gets a buffer of its own, and its bytes are read from the
 * transport straight into it; buffers are kept for reuse, since fresh ones cost page faults.  The
 * bytes of a large push may be read to where the user wants them (struct rpc_landing).
 *
 * What a peer can make us hold is about three windows: messages, blocks pinned by them, and
 * buffers kept for reuse.
 *
 * Trust: none in the bytes; -EPROTO for what breaks the rules, -ENOBUFS for what overruns the
 * window that the peer was given.
 * Threads: rpc_rx_space and rpc_rx_filled may run in one thread while another releases messages;
 * everything else under the endpoint's rule of one thread at a time.
 * Lifetime: init/fini; all messages released before fini. */
#ifndef HAWSER_RPC_ENDPOINT_RX_H
#define HAWSER_RPC_ENDPOINT_RX_H

#include "rpc/endpoint/frame.h"
#include "rpc/rpc.h"

enum {
    RPC_RX_BLOCK_BYTES = 128 << 10, /* holds a burst; many times the largest inline payload */
    /* Read behind a large message: little, because another large message often follows, and its
     * bytes in the block must be copied. */
    RPC_RX_BEHIND_BYTES = 4 << 10,
    RPC_RX_KEPT_BUFFERS = 4 /* large buffers kept for reuse */
};

struct rpc_rx_block;

/* A received message, with what the endpoint needs to know of it. */
struct rpc_rx_msg {
    struct rpc_msg msg; /* first: what the user sees */
    struct rpc_rx_msg *next;
    struct rpc_rx_block *block; /* holds the payload, or NULL */
    uint8_t *buffer;            /* or this does */
    size_t buffer_bytes;
    uint8_t head[RPC_LANDING_HEAD]; /* or this, and the rest is at `placed` */
    uint8_t *placed;
    void *owner;
    uint32_t id;
    uint32_t got;         /* bytes so far, while it is being put together */
    int error;            /* a reply that is an error */
    int fds[RPC_FDS_MAX]; /* msg.fd_count of them; -1: taken */
    bool answered, cancelled;
};

struct rpc_rx {
    struct rpc_rx_block *block; /* being filled */
    size_t parsed;              /* bytes of it that have been looked at */
    struct rpc_rx_msg *partial[RPC_STREAMS];
    struct rpc_rx_msg *direct; /* its bytes come next, straight from the transport */
    uint32_t direct_left;
    bool starved; /* the bytes at hand begin a frame that needs more */
    struct rpc_rx_msg *free_msgs;
    struct rpc_rx_block *spare;
    struct {
        uint8_t *data;
        size_t bytes;
    } kept[RPC_RX_KEPT_BUFFERS];
    uint32_t blocks;                   /* in use: being filled, or held by messages */
    uint64_t window, held;             /* credit given; part of it in use */
    uint64_t held_placed;              /* the same, of messages that are placed */
    const struct rpc_landing *landing; /* NULL: none */
};

int rpc_rx_init(struct rpc_rx *rx, uint64_t window, const struct rpc_landing *landing) MUST_CHECK;
void rpc_rx_fini(struct rpc_rx *rx);

/* Where the next bytes go; the number of segments, 1 or 2.  Then say how many came. */
int rpc_rx_space(struct rpc_rx *rx, struct iovec iov[2]);
void rpc_rx_filled(struct rpc_rx *rx, size_t n);

/* True when there are bytes to parse; not for the beginning of a frame that needs more. */
bool rpc_rx_unparsed(const struct rpc_rx *rx);

/* Raw bytes, for the handshake: look at them, then say how many were used and whether the rest
 * needs more to make sense. */
const uint8_t *rpc_rx_peek(const struct rpc_rx *rx, size_t *len);
void rpc_rx_skip(struct rpc_rx *rx, size_t n, bool starved);

/* The next thing: 1 with a control frame in *frame and *msg NULL, or with a whole message in
 * *msg; 0 when more bytes are needed; -EPROTO, -ENOBUFS (overran its window), -ENOMEM. */
int rpc_rx_next(struct rpc_rx *rx, struct rpc_frame *frame, struct rpc_rx_msg **msg) MUST_CHECK;

/* Frees the message; the credit that it held. */
uint32_t rpc_rx_release(struct rpc_rx *rx, struct rpc_rx_msg *msg);

#endif
