#include "rpc/endpoint/tx.h"

#include "rpc/resume/kept.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH_FIRST_BYTES = 4 << 10 };

/* Posts, pushes and calls leave this part of the window to replies, so that two sides full of
 * each other's requests can still answer them. */
static uint64_t reply_reserve(uint64_t window)
{
    return window / 8;
}

/* The payload is refs[0..ref_count): the caller's memory (sent is set) or the copy behind it. */
struct rpc_tx_item {
    struct rpc_tx_item *next;
    struct rpc_frame frame;
    uint32_t payload, done;
    bool lasting;  /* sent is called once all is acknowledged */
    bool paid;     /* its credit has been taken */
    bool written;  /* and waits for `kept` */
    uint32_t kept; /* references of what is not acknowledged */
    void (*sent)(void *user);
    void *sent_user;
    int ref_count;
    struct iovec refs[];
};

void rpc_tx_init(struct rpc_tx *tx, uint64_t credit, uint64_t queue_limit)
{
    *tx = (struct rpc_tx){.credit = credit, .queue_limit = queue_limit};
}

static void item_finish(struct rpc_tx_item *item)
{
    if (item->sent)
        item->sent(item->sent_user);
    free(item);
}

/* All is written.  The caller's memory is the caller's again, unless it lasts. */
static void item_written(struct rpc_tx *tx, struct rpc_tx_item *item)
{
    if (item->kept > 0 && item->sent && !item->lasting)
        rpc_kept_own(tx->kept, item);
    if (item->kept == 0)
        item_finish(item);
    else
        item->written = true;
}

static void item_unkeep(void *owner)
{
    struct rpc_tx_item *item = owner;
    assert(item->kept > 0);
    if (--item->kept == 0 && item->written)
        item_finish(item);
}

int rpc_tx_keep(struct rpc_tx *tx, uint64_t limit)
{
    assert(!tx->kept);
    tx->kept = rpc_kept_create(limit, item_unkeep);
    return tx->kept ? 0 : -ENOMEM;
}

uint64_t rpc_tx_ahead(const struct rpc_tx *tx)
{
    uint64_t bytes = tx->batch.len;
    for (int i = tx->gather_at; i < tx->gather_count; i++)
        bytes += tx->gather[i].iov_len;
    return bytes;
}

void rpc_tx_keep_batch(struct rpc_tx *tx)
{
    rpc_kept_copy(tx->kept, tx->batch.data, tx->batch.len);
}

/* n bytes of the gather were taken. */
static void keep_written(struct rpc_tx *tx, size_t n)
{
    struct rpc_tx_item *item = tx->chunk_item;
    for (int i = tx->gather_at; n > 0; i++) {
        const struct iovec *v = &tx->gather[i];
        size_t part = n < v->iov_len ? n : v->iov_len;
        if (!item || i <= tx->chunk_at)
            rpc_kept_copy(tx->kept, v->iov_base, part);
        else if (rpc_kept_refer(tx->kept, v->iov_base, part, item))
            item->kept++;
        n -= part;
    }
}

void rpc_tx_fini(struct rpc_tx *tx)
{
    rpc_kept_destroy(tx->kept);
    for (int i = 0; i < RPC_STREAMS; i++) {
        while (tx->head[i]) {
            struct rpc_tx_item *item = tx->head[i];
            tx->head[i] = item->next;
            item_finish(item);
        }
    }
    rpc_tx_fds_drop(tx, tx->fd_count);
    free(tx->batch.data);
    free(tx->writing.data);
    *tx = (struct rpc_tx){0};
}

static uint8_t *batch_space(struct rpc_tx_batch *batch, size_t need)
{
    if (UNLIKELY(need > batch->capacity - batch->len)) {
        size_t capacity = batch->capacity ? batch->capacity : BATCH_FIRST_BYTES;
        while (capacity - batch->len < need)
            capacity *= 2;
        uint8_t *data = realloc(batch->data, capacity);
        if (!data)
            return NULL;
        batch->data = data;
        batch->capacity = capacity;
    }
    return batch->data + batch->len;
}

static void copy_payload(uint8_t *to, const struct rpc_send *send)
{
    for (int i = 0; i < send->iov_count; i++) {
        if (send->iov[i].iov_len > 0)
            memcpy(to, send->iov[i].iov_base, send->iov[i].iov_len);
        to += send->iov[i].iov_len;
    }
}

static void take_credit(struct rpc_tx *tx, uint64_t cost)
{
    assert(tx->credit >= cost);
    tx->credit -= cost;
    tx->outstanding += cost;
}

static int append_small(struct rpc_tx *tx, const struct rpc_frame *frame,
                        const struct rpc_send *send, uint32_t payload)
{
    uint8_t *to = batch_space(&tx->batch, RPC_FRAME_HEADER_MAX + payload);
    if (!to)
        return -ENOMEM;
    size_t header = rpc_frame_encode(frame, to);
    copy_payload(to + header, send);
    tx->batch.len += header + payload;
    tx->queued_bytes += header + payload;
    if (send->sent)
        send->sent(send->sent_user);
    return 0;
}

static int append_item(struct rpc_tx *tx, const struct rpc_frame *frame,
                       const struct rpc_send *send, uint32_t payload, bool paid)
{
    bool refer = send->sent && payload > RPC_INLINE_BYTES;
    int refs = refer ? send->iov_count : 1;
    size_t fixed = sizeof(struct rpc_tx_item) + (size_t)refs * sizeof(struct iovec);
    struct rpc_tx_item *item = malloc(fixed + (refer ? 0 : payload));
    if (!item)
        return -ENOMEM;
    *item = (struct rpc_tx_item){.frame = *frame, .payload = payload, .paid = paid};
    item->ref_count = refs;
    if (refer) {
        memcpy(item->refs, send->iov, (size_t)refs * sizeof(struct iovec));
        item->sent = send->sent;
        item->sent_user = send->sent_user;
        item->lasting = send->lasting;
    } else {
        item->refs[0] = (struct iovec){(uint8_t *)item + fixed, payload};
        copy_payload(item->refs[0].iov_base, send);
    }
    uint8_t stream = frame->stream;
    if (tx->head[stream])
        tx->tail[stream]->next = item;
    else
        tx->head[stream] = item;
    tx->tail[stream] = item;
    tx->busy_streams |= 1u << stream;
    tx->queued_bytes += RPC_FRAME_HEADER_MAX + payload;
    if (send->sent && !refer)
        send->sent(send->sent_user);
    return 0;
}

int rpc_tx_message(struct rpc_tx *tx, const struct rpc_frame *frame, const struct rpc_send *send,
                   uint32_t payload, bool must)
{
    uint64_t cost = (uint64_t)payload + RPC_MESSAGE_COST;
    uint64_t reserve = must ? 0 : reply_reserve(tx->credit + tx->outstanding);
    bool affordable = tx->credit >= cost + reserve;
    bool idle = !(tx->busy_streams & 1u << frame->stream);
    /* A message that only fits an empty window may use all of it. */
    if (!affordable && !must && tx->outstanding == 0 && tx->credit >= cost)
        affordable = true;
    if (!must && !affordable)
        return -EAGAIN;
    if (!must && tx->queued_bytes + payload + RPC_FRAME_HEADER_MAX > tx->queue_limit &&
        tx->queued_bytes > 0)
        return -ENOBUFS;
    int rc;
    if (idle && affordable && payload <= RPC_INLINE_BYTES) {
        struct rpc_frame whole = *frame;
        whole.len = payload;
        rc = append_small(tx, &whole, send, payload);
    } else {
        /* A reply behind one that waits for credit waits, too: streams are in order. */
        affordable = affordable && (idle || tx->tail[frame->stream]->paid);
        rc = append_item(tx, frame, send, payload, affordable);
    }
    if (rc == 0 && affordable)
        take_credit(tx, cost);
    return rc;
}

int rpc_tx_control(struct rpc_tx *tx, const struct rpc_frame *frame, const void *text)
{
    uint8_t *to = batch_space(&tx->batch, RPC_FRAME_HEADER_MAX + frame->len);
    if (!to)
        return -ENOMEM;
    size_t len = rpc_frame_encode(frame, to);
    if (frame->len > 0)
        memcpy(to + len, text, frame->len);
    len += frame->len;
    tx->batch.len += len;
    tx->queued_bytes += len;
    return 0;
}

int rpc_tx_fds(struct rpc_tx *tx, const int *fds, int count)
{
    if (count > RPC_FDS_QUEUED_MAX - tx->fd_count)
        return -ENOBUFS;
    for (int i = 0; i < count; i++) {
        int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (fd < 0) {
            int rc = -errno;
            rpc_tx_fds_drop(tx, i);
            return rc;
        }
        tx->fds[tx->fd_count++] = fd;
    }
    return 0;
}

void rpc_tx_fds_drop(struct rpc_tx *tx, int count)
{
    assert(count <= tx->fd_count);
    while (count-- > 0)
        close(tx->fds[--tx->fd_count]);
}

void rpc_tx_fds_sent(struct rpc_tx *tx)
{
    rpc_tx_fds_drop(tx, tx->fd_count);
}

int rpc_tx_credit(struct rpc_tx *tx, uint64_t n)
{
    if (n > tx->outstanding)
        return -EPROTO;
    tx->outstanding -= n;
    tx->credit += n;
    return 0;
}

static uint64_t item_cost(const struct rpc_tx_item *item)
{
    return (uint64_t)item->payload + RPC_MESSAGE_COST;
}

/* The stream whose turn it is, among those whose head can be paid for; -1 when there is none. */
static int next_stream(const struct rpc_tx *tx)
{
    for (int i = 0; tx->busy_streams && i < RPC_STREAMS; i++) {
        int stream = (tx->turn + i) % RPC_STREAMS;
        const struct rpc_tx_item *item = tx->head[stream];
        if (item && (item->paid || tx->credit >= item_cost(item)))
            return stream;
    }
    return -1;
}

bool rpc_tx_short(const struct rpc_tx *tx)
{
    for (uint32_t left = tx->busy_streams; left; left &= left - 1) {
        const struct rpc_tx_item *item = tx->head[__builtin_ctz(left)];
        if (!item->paid && tx->credit < item_cost(item))
            return true;
    }
    return false;
}

bool rpc_tx_item_ready(const struct rpc_tx *tx)
{
    return next_stream(tx) >= 0;
}

/* Adds [done, done + len) of the item's payload to the gather; the length that fitted. */
static uint32_t gather_payload(struct rpc_tx *tx, const struct rpc_tx_item *item, uint32_t len)
{
    size_t skip = item->done, left = len;
    for (int i = 0; i < item->ref_count && left > 0 && tx->gather_count < RPC_IOV_MAX; i++) {
        size_t n = item->refs[i].iov_len;
        if (skip >= n) {
            skip -= n;
            continue;
        }
        size_t part = n - skip < left ? n - skip : left;
        tx->gather[tx->gather_count++] =
            (struct iovec){(uint8_t *)item->refs[i].iov_base + skip, part};
        skip = 0;
        left -= part;
    }
    return len - (uint32_t)left;
}

static void gather_chunk(struct rpc_tx *tx, struct rpc_tx_item *item)
{
    if (!item->paid)
        take_credit(tx, item_cost(item));
    item->paid = true;
    tx->turn = (uint8_t)((item->frame.stream + 1) % RPC_STREAMS);
    uint32_t left = item->payload - item->done;
    int header_at = tx->chunk_at = tx->gather_count++;
    uint32_t len = gather_payload(tx, item, left < RPC_CHUNK_BYTES ? left : RPC_CHUNK_BYTES);
    struct rpc_frame frame = item->frame;
    frame.len = len;
    if (item->done > 0)
        frame = (struct rpc_frame){.kind = RPC_FRAME_MORE, .stream = frame.stream, .len = len};
    else if (len < item->payload)
        frame.total = item->payload;
    size_t header = rpc_frame_encode(&frame, tx->chunk_header);
    tx->gather[header_at] = (struct iovec){tx->chunk_header, header};
    tx->chunk_item = item;
    tx->chunk_len = len;
}

int rpc_tx_gather(struct rpc_tx *tx, const struct iovec **iov)
{
    if (tx->gather_count == 0) {
        tx->gather_at = 0;
        if (tx->batch.len > 0) {
            struct rpc_tx_batch empty = tx->writing;
            tx->writing = tx->batch;
            tx->batch = empty;
            tx->gather[tx->gather_count++] = (struct iovec){tx->writing.data, tx->writing.len};
        }
        int stream = next_stream(tx);
        if (stream >= 0)
            gather_chunk(tx, tx->head[stream]);
    }
    *iov = tx->gather + tx->gather_at;
    return tx->gather_count - tx->gather_at;
}

static void batch_recycle(struct rpc_tx_batch *batch)
{
    if (batch->capacity > RPC_TX_BATCH_KEPT) {
        free(batch->data);
        *batch = (struct rpc_tx_batch){0};
    }
    batch->len = 0;
}

static void gather_finish(struct rpc_tx *tx)
{
    struct rpc_tx_item *item = tx->chunk_item;
    tx->queued_bytes -= tx->writing.len;
    tx->gather_count = tx->gather_at = 0;
    batch_recycle(&tx->writing);
    if (!item)
        return;
    tx->chunk_item = NULL;
    item->done += tx->chunk_len;
    tx->queued_bytes -= tx->chunk_len;
    if (item->done < item->payload)
        return;
    uint8_t stream = item->frame.stream;
    tx->queued_bytes -= RPC_FRAME_HEADER_MAX;
    tx->head[stream] = item->next;
    if (!item->next) {
        tx->tail[stream] = NULL;
        tx->busy_streams &= ~(1u << stream);
    }
    item_written(tx, item);
}

void rpc_tx_written(struct rpc_tx *tx, size_t n)
{
    if (tx->kept)
        keep_written(tx, n);
    tx->gather_at +=
        rpc_iov_advance(&tx->gather[tx->gather_at], tx->gather_count - tx->gather_at, n);
    if (tx->gather_at == tx->gather_count)
        gather_finish(tx);
}
