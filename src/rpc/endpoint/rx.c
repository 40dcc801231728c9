#include "rpc/endpoint/rx.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rpc_rx_block {
    uint32_t refs; /* messages in it, and one while it is being filled */
    uint32_t fill;
    uint8_t data[RPC_RX_BLOCK_BYTES];
};

static struct rpc_rx_block *block_get(struct rpc_rx *rx)
{
    struct rpc_rx_block *block = rx->spare;
    rx->spare = NULL;
    if (!block)
        block = malloc(sizeof *block);
    if (block) {
        block->refs = 1;
        block->fill = 0;
        rx->blocks++;
    }
    return block;
}

static void block_unref(struct rpc_rx *rx, struct rpc_rx_block *block)
{
    assert(block->refs > 0);
    if (--block->refs > 0)
        return;
    rx->blocks--;
    if (rx->spare)
        free(block);
    else
        rx->spare = block;
}

int rpc_rx_init(struct rpc_rx *rx, uint64_t window, const struct rpc_landing *landing)
{
    *rx = (struct rpc_rx){.window = window, .landing = landing};
    rx->block = block_get(rx);
    return rx->block ? 0 : -ENOMEM;
}

void rpc_rx_fini(struct rpc_rx *rx)
{
    for (int i = 0; i < RPC_STREAMS; i++)
        if (rx->partial[i])
            rpc_rx_release(rx, rx->partial[i]);
    assert(rx->held == 0);
    if (rx->block) {
        assert(rx->block->refs == 1);
        block_unref(rx, rx->block);
    }
    free(rx->spare);
    for (int i = 0; i < RPC_RX_KEPT_BUFFERS; i++)
        free(rx->kept[i].data);
    while (rx->free_msgs) {
        struct rpc_rx_msg *msg = rx->free_msgs;
        rx->free_msgs = msg->next;
        free(msg);
    }
    *rx = (struct rpc_rx){0};
}

/* Where the next bytes of a large message go. */
static uint8_t *next_of(const struct rpc_rx_msg *msg)
{
    return msg->placed ? msg->placed + (msg->got - RPC_LANDING_HEAD) : msg->buffer + msg->got;
}

int rpc_rx_space(struct rpc_rx *rx, struct iovec iov[2])
{
    struct rpc_rx_block *block = rx->block;
    int count = 0;
    size_t room = RPC_RX_BLOCK_BYTES - block->fill;
    assert(room > 0);
    if (rx->direct) {
        assert(rx->direct_left > 0);
        iov[count++] = (struct iovec){next_of(rx->direct), rx->direct_left};
        if (room > RPC_RX_BEHIND_BYTES)
            room = RPC_RX_BEHIND_BYTES;
    }
    iov[count++] = (struct iovec){block->data + block->fill, room};
    return count;
}

void rpc_rx_filled(struct rpc_rx *rx, size_t n)
{
    if (rx->direct) {
        uint32_t part = n < rx->direct_left ? (uint32_t)n : rx->direct_left;
        rx->direct->got += part;
        rx->direct_left -= part;
        n -= part;
    }
    assert(n <= RPC_RX_BLOCK_BYTES - rx->block->fill);
    rx->block->fill += (uint32_t)n;
    rx->starved = false;
}

bool rpc_rx_unparsed(const struct rpc_rx *rx)
{
    return !rx->starved && (rx->parsed < rx->block->fill || (rx->direct && rx->direct_left == 0));
}

const uint8_t *rpc_rx_peek(const struct rpc_rx *rx, size_t *len)
{
    *len = rx->block->fill - rx->parsed;
    return rx->block->data + rx->parsed;
}

void rpc_rx_skip(struct rpc_rx *rx, size_t n, bool starved)
{
    assert(n <= rx->block->fill - rx->parsed);
    rx->parsed += n;
    rx->starved = starved;
}

/* Makes room behind an unfinished frame: reuses the block when no message in it is held, else moves
 * the rest to a new one. */
static int make_room(struct rpc_rx *rx)
{
    rx->starved = true;
    struct rpc_rx_block *block = rx->block;
    size_t rest = block->fill - rx->parsed;
    if (block->refs == 1) {
        if (rest > 0 && rx->parsed > 0)
            memmove(block->data, block->data + rx->parsed, rest);
        block->fill = (uint32_t)rest;
        rx->parsed = 0;
        return 0;
    }
    if (RPC_RX_BLOCK_BYTES - block->fill >= RPC_RX_BLOCK_BYTES / 4)
        return 0;
    struct rpc_rx_block *fresh = block_get(rx);
    if (!fresh)
        return -ENOMEM;
    memcpy(fresh->data, block->data + rx->parsed, rest);
    fresh->fill = (uint32_t)rest;
    rx->block = fresh;
    rx->parsed = 0;
    block_unref(rx, block);
    return 0;
}

static struct rpc_rx_msg *msg_get(struct rpc_rx *rx)
{
    struct rpc_rx_msg *msg = rx->free_msgs;
    if (msg)
        rx->free_msgs = msg->next;
    else
        msg = malloc(sizeof *msg);
    return msg;
}

static uint8_t *buffer_get(struct rpc_rx *rx, size_t need, size_t *bytes_out)
{
    for (int i = 0; i < RPC_RX_KEPT_BUFFERS; i++) {
        /* Not one so large that a small message would pin it. */
        if (rx->kept[i].bytes < need || rx->kept[i].bytes / 4 > need)
            continue;
        uint8_t *data = rx->kept[i].data;
        *bytes_out = rx->kept[i].bytes;
        rx->kept[i].data = NULL;
        rx->kept[i].bytes = 0;
        return data;
    }
    *bytes_out = need;
    return malloc(need);
}

static void buffer_put(struct rpc_rx *rx, uint8_t *data, size_t bytes)
{
    int smallest = 0;
    size_t others = 0;
    for (int i = 0; i < RPC_RX_KEPT_BUFFERS; i++) {
        others += rx->kept[i].bytes;
        if (rx->kept[i].bytes < rx->kept[smallest].bytes)
            smallest = i;
    }
    others -= rx->kept[smallest].bytes;
    if (bytes < rx->kept[smallest].bytes || others + bytes > rx->window) {
        free(data);
        return;
    }
    free(rx->kept[smallest].data);
    rx->kept[smallest].data = data;
    rx->kept[smallest].bytes = bytes;
}

int rpc_msg_take_fd(const struct rpc_msg *msg, int index)
{
    assert(index >= 0 && index < msg->fd_count);
    struct rpc_rx_msg *m = (struct rpc_rx_msg *)msg;
    int fd = m->fds[index];
    m->fds[index] = -1;
    return fd;
}

uint32_t rpc_rx_release(struct rpc_rx *rx, struct rpc_rx_msg *msg)
{
    for (int i = 0; i < msg->msg.fd_count; i++)
        if (msg->fds[i] >= 0)
            close(msg->fds[i]);
    uint32_t cost = (uint32_t)msg->msg.len + RPC_MESSAGE_COST;
    if (msg->block)
        block_unref(rx, msg->block);
    if (msg->buffer)
        buffer_put(rx, msg->buffer, msg->buffer_bytes);
    if (msg->placed) {
        rx->held_placed -= cost;
        rx->landing->leave(msg->owner);
    }
    assert(rx->held >= cost);
    rx->held -= cost;
    msg->next = rx->free_msgs;
    rx->free_msgs = msg;
    return cost;
}

/* Starts a message of `bytes` payload; takes its credit. */
static int msg_start(struct rpc_rx *rx, const struct rpc_frame *f, uint32_t bytes,
                     struct rpc_rx_msg **out)
{
    uint64_t cost = (uint64_t)bytes + RPC_MESSAGE_COST;
    if (cost > rx->window - rx->held)
        return -ENOBUFS;
    struct rpc_rx_msg *msg = msg_get(rx);
    if (!msg)
        return -ENOMEM;
    bool error = f->kind == RPC_FRAME_ERROR;
    *msg = (struct rpc_rx_msg){
        .msg = {.kind = error ? RPC_REPLY : (enum rpc_kind)f->kind,
                .stream = f->stream,
                .method = error ? 0 : f->method,
                .len = bytes,
                .fd_count = (int)f->fds},
        .id = f->id,
        .error = error ? rpc_error_from_wire(f->method) : 0,
    };
    for (uint32_t i = 0; i < f->fds; i++)
        msg->fds[i] = -1;
    rx->held += cost;
    *out = msg;
    return 0;
}

/* Takes the payload that begins at `parsed` into the message's own buffer; what is not here yet
 * is read straight into it. */
static void take_direct(struct rpc_rx *rx, struct rpc_rx_msg *msg, uint32_t len)
{
    size_t here = rx->block->fill - rx->parsed;
    uint32_t part = here < len ? (uint32_t)here : len;
    memcpy(next_of(msg), rx->block->data + rx->parsed, part);
    msg->got += part;
    rx->parsed += part;
    rx->direct = msg;
    rx->direct_left = len - part;
}

/* Whether it may be received where it belongs: what is handled later must not have come before. */
static bool may_land(const struct rpc_rx *rx, const struct rpc_frame *f)
{
    return rx->landing && f->kind == RPC_FRAME_PUSH && f->len > RPC_LANDING_HEAD && f->fds == 0 &&
           rx->held == rx->held_placed;
}

/* The head is at `parsed`; false where the user wants the message in one piece. */
static bool land(struct rpc_rx *rx, struct rpc_rx_msg *msg)
{
    const uint8_t *head = rx->block->data + rx->parsed;
    size_t len = msg->msg.len - RPC_LANDING_HEAD;
    msg->placed = rx->landing->place(rx->landing->user, msg->msg.method, head, len, &msg->owner);
    if (!msg->placed)
        return false;
    memcpy(msg->head, head, RPC_LANDING_HEAD);
    msg->msg.data = msg->head;
    msg->msg.placed = msg->placed;
    msg->got = RPC_LANDING_HEAD;
    rx->parsed += RPC_LANDING_HEAD;
    rx->held_placed += msg->msg.len + RPC_MESSAGE_COST;
    return true;
}

static int start_large(struct rpc_rx *rx, const struct rpc_frame *f)
{
    if (rx->partial[f->stream])
        return -EPROTO; /* the stream's last message is not finished */
    struct rpc_rx_msg *msg;
    bool may = may_land(rx, f);
    int rc = msg_start(rx, f, f->total ? f->total : f->len, &msg);
    if (rc)
        return rc;
    if (!may || !land(rx, msg)) {
        msg->buffer = buffer_get(rx, msg->msg.len, &msg->buffer_bytes);
        msg->msg.data = msg->buffer;
    }
    if (!msg->msg.data) {
        rpc_rx_release(rx, msg);
        return -ENOMEM;
    }
    rx->partial[f->stream] = msg;
    take_direct(rx, msg, f->len - msg->got);
    return 0;
}

static int continue_large(struct rpc_rx *rx, const struct rpc_frame *f)
{
    struct rpc_rx_msg *msg = rx->partial[f->stream];
    if (!msg || f->len > msg->msg.len - msg->got)
        return -EPROTO;
    take_direct(rx, msg, f->len);
    return 0;
}

/* A frame of a large message is complete; 1 when the message is. */
static int finish_direct(struct rpc_rx *rx, struct rpc_rx_msg **out)
{
    struct rpc_rx_msg *msg = rx->direct;
    rx->direct = NULL;
    if (msg->got < msg->msg.len)
        return 0;
    rx->partial[msg->msg.stream] = NULL;
    *out = msg;
    return 1;
}

static bool is_message(uint8_t kind)
{
    return kind >= RPC_FRAME_CALL && kind <= RPC_FRAME_ERROR;
}

/* A held message keeps its whole block.  Past this many blocks a message gets a buffer of its own.
 */
static bool blocks_are_pinned(const struct rpc_rx *rx)
{
    return rx->blocks > rx->window / RPC_RX_BLOCK_BYTES + 2;
}

static int take_small(struct rpc_rx *rx, const struct rpc_frame *f, struct rpc_rx_msg **out)
{
    if (rx->partial[f->stream])
        return -EPROTO;
    struct rpc_rx_msg *msg;
    int rc = msg_start(rx, f, f->len, &msg);
    if (rc)
        return rc;
    const uint8_t *payload = rx->block->data + rx->parsed;
    if (UNLIKELY(blocks_are_pinned(rx)) && f->len > 0) {
        msg->buffer = buffer_get(rx, f->len, &msg->buffer_bytes);
        if (!msg->buffer) {
            rpc_rx_release(rx, msg);
            return -ENOMEM;
        }
        memcpy(msg->buffer, payload, f->len);
        msg->msg.data = msg->buffer;
    } else {
        msg->block = rx->block;
        msg->msg.data = payload;
        rx->block->refs++;
    }
    rx->parsed += f->len;
    *out = msg;
    return 1;
}

int rpc_rx_next(struct rpc_rx *rx, struct rpc_frame *f, struct rpc_rx_msg **msg)
{
    *msg = NULL;
    for (;;) {
        if (rx->direct) {
            if (rx->direct_left > 0)
                return make_room(rx);
            if (finish_direct(rx, msg))
                return 1;
        }
        size_t have = rx->block->fill - rx->parsed;
        if (have == 0)
            return make_room(rx);
        int header = rpc_frame_parse(rx->block->data + rx->parsed, have, f);
        if (header < 0)
            return header;
        if (header == 0)
            return make_room(rx);
        bool large = f->total || f->len > RPC_INLINE_BYTES || f->kind == RPC_FRAME_MORE;
        size_t needed = !large ? f->len : may_land(rx, f) ? RPC_LANDING_HEAD : 0;
        if (have - (size_t)header < needed)
            return make_room(rx);
        rx->parsed += (size_t)header;
        if (!large && !is_message(f->kind)) { /* BYE alone has a payload: left at `parsed` */
            return 1;
        }
        if (!large)
            return take_small(rx, f, msg);
        if (!is_message(f->kind) && f->kind != RPC_FRAME_MORE)
            return -EPROTO;
        int rc = f->kind == RPC_FRAME_MORE ? continue_large(rx, f) : start_large(rx, f);
        if (rc)
            return rc;
    }
}
