/* rpc/endpoint/tx.h - the sending half of an endpoint: from messages to one gathered write.
 *
 * Small messages are appended to a batch.  Large ones, and those behind them in their stream,
 * are items in a queue for each stream.  A gather is what one flush writes: the batch as it
 * stands, then one chunk of one stream; it does not change until it is all written, while new
 * messages fill the other batch.  So a small message waits for at most one chunk.
 *
 * Threads: one.  Lifetime: init/fini; fini calls `sent` of what it drops. */
#ifndef HAWSER_RPC_ENDPOINT_TX_H
#define HAWSER_RPC_ENDPOINT_TX_H

#include "rpc/endpoint/frame.h"
#include "rpc/rpc.h"

enum { RPC_TX_BATCH_KEPT = 256 << 10 }; /* a burst's larger buffer is freed once written */

struct rpc_kept;
struct rpc_tx_item;

struct rpc_tx_batch {
    uint8_t *data;
    size_t len, capacity;
};

struct rpc_tx {
    struct rpc_tx_batch batch;   /* being filled */
    struct rpc_tx_batch writing; /* part of the gather */
    struct rpc_tx_item *head[RPC_STREAMS], *tail[RPC_STREAMS];
    uint32_t busy_streams; /* bit i: head[i] is set */
    uint8_t turn;          /* the stream whose chunk goes next */
    struct iovec gather[RPC_IOV_MAX];
    int gather_count, gather_at;
    struct rpc_tx_item *chunk_item; /* whose chunk is in the gather */
    uint32_t chunk_len;
    int chunk_at; /* of its header, in the gather; its payload is behind it */
    uint8_t chunk_header[RPC_FRAME_HEADER_MAX];
    int fds[RPC_FDS_QUEUED_MAX]; /* ours; go with the next write */
    int fd_count;
    uint64_t credit;       /* what the peer can still take */
    uint64_t outstanding;  /* credit that the peer has not returned */
    uint64_t queued_bytes; /* payload and headers not yet written */
    uint64_t queue_limit;
    struct rpc_kept *kept; /* what the peer has not acknowledged; NULL: nothing is kept */
};

void rpc_tx_init(struct rpc_tx *tx, uint64_t credit, uint64_t queue_limit);
void rpc_tx_fini(struct rpc_tx *tx);

/* Queues one message with the payload of `send` behind the header fields of `frame` (kind,
 * stream, id, method).  `must` is for replies: never refused for credit or room, but held back
 * in its stream until there is credit.  0, -EAGAIN (credit), -ENOBUFS (queue), -ENOMEM. */
int rpc_tx_message(struct rpc_tx *tx, const struct rpc_frame *frame, const struct rpc_send *send,
                   uint32_t payload, bool must) MUST_CHECK;

/* A frame that takes no credit and no turn: credit, ping, pong, cancel, bye (text may be NULL).
 * 0 or -ENOMEM. */
int rpc_tx_control(struct rpc_tx *tx, const struct rpc_frame *frame, const void *text) MUST_CHECK;

/* Duplicates descriptors for the message that is queued next.  0, or a negative errno and nothing
 * is kept.  rpc_tx_fds_sent closes them once they are on their way. */
int rpc_tx_fds(struct rpc_tx *tx, const int *fds, int count) MUST_CHECK;
void rpc_tx_fds_drop(struct rpc_tx *tx, int count); /* the last `count`: the message was refused */
void rpc_tx_fds_sent(struct rpc_tx *tx);

/* The peer let go of n bytes.  0, or -EPROTO when it never had them. */
int rpc_tx_credit(struct rpc_tx *tx, uint64_t n) MUST_CHECK;

/* What to write now; the number of segments, 0 when there is nothing.  Then say how many bytes
 * were taken; `sent` callbacks run there. */
int rpc_tx_gather(struct rpc_tx *tx, const struct iovec **iov);
void rpc_tx_written(struct rpc_tx *tx, size_t n);

/* The common case of both: only a batch waits, and one write takes it all. */
static inline bool rpc_tx_batch_only(const struct rpc_tx *tx)
{
    return tx->batch.len > 0 && tx->batch.capacity <= RPC_TX_BATCH_KEPT && tx->gather_count == 0 &&
           tx->busy_streams == 0;
}
void rpc_tx_keep_batch(struct rpc_tx *tx);
static inline void rpc_tx_batch_written(struct rpc_tx *tx)
{
    if (tx->kept)
        rpc_tx_keep_batch(tx);
    tx->queued_bytes -= tx->batch.len;
    tx->batch.len = 0;
}

/* From now on what is written is kept until it is acknowledged, at most `limit` bytes; `sent` means
 * as before that the memory is the caller's again.  Callbacks of `lasting` payloads run from
 * whatever lets go of what is kept.  0 or -ENOMEM. */
int rpc_tx_keep(struct rpc_tx *tx, uint64_t limit) MUST_CHECK;
/* Bytes that will be written before what is queued next. */
uint64_t rpc_tx_ahead(const struct rpc_tx *tx);

/* True when a queued item can be paid for. */
bool rpc_tx_item_ready(const struct rpc_tx *tx);

/* True when a message waits in its stream for credit. */
bool rpc_tx_short(const struct rpc_tx *tx);

/* True when rpc_tx_gather would give something.  Items that wait for credit do not count. */
static inline bool rpc_tx_pending(const struct rpc_tx *tx)
{
    return tx->batch.len > 0 || tx->gather_count > 0 ||
           (UNLIKELY(tx->busy_streams) && rpc_tx_item_ready(tx));
}

#endif
