#include "rpc/endpoint/frame.h"

#include "rpc/rpc.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>

enum {
    HAS_LEN = 1,
    HAS_ID = 2,
    HAS_METHOD = 4,
    HAS_VALUE = 8,
    MAY_STREAM = 16,
    MAY_FIRST = 32,
};

static const uint8_t fields_of[RPC_FRAME_KINDS] = {
    [RPC_FRAME_CALL] = HAS_LEN | HAS_ID | HAS_METHOD | MAY_STREAM | MAY_FIRST,
    [RPC_FRAME_POST] = HAS_LEN | HAS_METHOD | MAY_STREAM | MAY_FIRST,
    [RPC_FRAME_PUSH] = HAS_LEN | HAS_METHOD | MAY_STREAM | MAY_FIRST,
    [RPC_FRAME_REPLY] = HAS_LEN | HAS_ID | MAY_STREAM | MAY_FIRST,
    [RPC_FRAME_ERROR] = HAS_LEN | HAS_ID | HAS_METHOD | MAY_STREAM,
    [RPC_FRAME_MORE] = HAS_LEN | MAY_STREAM,
    [RPC_FRAME_CREDIT] = HAS_VALUE,
    [RPC_FRAME_PING] = HAS_VALUE,
    [RPC_FRAME_PONG] = HAS_VALUE,
    [RPC_FRAME_CANCEL] = HAS_ID,
    [RPC_FRAME_BYE] = HAS_LEN | HAS_METHOD,
    [RPC_FRAME_OFFER] = HAS_LEN,
    [RPC_FRAME_ACK] = HAS_VALUE,
};

static inline uint8_t *put_varint(uint8_t *p, uint64_t v)
{
    while (UNLIKELY(v >= 0x80)) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

size_t rpc_frame_encode(const struct rpc_frame *f, uint8_t out[RPC_FRAME_HEADER_MAX])
{
    assert(f->kind > 0 && f->kind < RPC_FRAME_KINDS && f->stream < RPC_STREAMS);
    unsigned fields = fields_of[f->kind];
    uint8_t *p = out;
    *p++ = (uint8_t)(f->kind | (f->stream ? RPC_FRAME_STREAM : 0) |
                     (f->total ? RPC_FRAME_FIRST : 0) | (f->fds ? RPC_FRAME_FDS : 0));
    if (f->stream)
        *p++ = f->stream;
    if (fields & HAS_LEN)
        p = put_varint(p, f->len);
    if (fields & HAS_ID)
        p = put_varint(p, f->id);
    if (fields & HAS_METHOD)
        p = put_varint(p, f->method);
    if (f->total)
        p = put_varint(p, f->total);
    if (f->fds)
        p = put_varint(p, f->fds);
    if (fields & HAS_VALUE)
        p = put_varint(p, f->value);
    assert(p - out <= RPC_FRAME_HEADER_MAX);
    return (size_t)(p - out);
}

/* Not wire/dec.h: a header may be incomplete, which is an error there. */
struct cursor {
    const uint8_t *p, *end;
    bool more; /* ran out of bytes */
    bool bad;
};

static uint64_t get_varint(struct cursor *c, unsigned bits)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < bits; shift += 7) {
        if (c->p == c->end) {
            c->more = true;
            return 0;
        }
        uint64_t byte = *c->p++;
        uint64_t part = byte & 0x7f;
        if (shift + 7 > bits && part >> (bits - shift))
            break;
        v |= part << shift;
        if (byte < 0x80) {
            if (byte == 0 && shift > 0)
                break; /* not the shortest form */
            return v;
        }
    }
    c->bad = true;
    return 0;
}

/* The common case: a small message on stream 0 whose numbers take a byte each.  0 when this is
 * another frame, or incomplete. */
static int parse_common(const uint8_t *p, size_t n, struct rpc_frame *out)
{
    if (n < 4 || ((p[1] | p[2] | p[3]) & 0x80))
        return 0;
    switch (p[0]) {
    case RPC_FRAME_CALL:
        *out = (struct rpc_frame){.kind = p[0], .len = p[1], .id = p[2], .method = p[3]};
        return 4;
    case RPC_FRAME_REPLY:
        *out = (struct rpc_frame){.kind = p[0], .len = p[1], .id = p[2]};
        return 3;
    case RPC_FRAME_POST:
    case RPC_FRAME_PUSH:
        *out = (struct rpc_frame){.kind = p[0], .len = p[1], .method = p[2]};
        return 3;
    default:
        return 0;
    }
}

int rpc_frame_parse(const uint8_t *p, size_t n, struct rpc_frame *out)
{
    if (n == 0)
        return 0;
    int common = parse_common(p, n, out);
    if (LIKELY(common > 0))
        return common;
    struct cursor c = {.p = p + 1, .end = p + n};
    struct rpc_frame f = {.kind = p[0] & 0x0f};
    if (f.kind == 0 || f.kind >= RPC_FRAME_KINDS || (p[0] & 0x80))
        return -EPROTO;
    unsigned fields = fields_of[f.kind];
    if (p[0] & RPC_FRAME_STREAM) {
        uint64_t stream = get_varint(&c, 32);
        if (!(fields & MAY_STREAM) || (!c.more && (stream == 0 || stream >= RPC_STREAMS)))
            return -EPROTO;
        f.stream = (uint8_t)stream;
    }
    if (fields & HAS_LEN)
        f.len = (uint32_t)get_varint(&c, 32);
    if (fields & HAS_ID)
        f.id = (uint32_t)get_varint(&c, 32);
    if (fields & HAS_METHOD)
        f.method = (uint32_t)get_varint(&c, 32);
    if (p[0] & RPC_FRAME_FIRST) {
        f.total = (uint32_t)get_varint(&c, 32);
        if (!(fields & MAY_FIRST) || (!c.more && f.total <= f.len))
            return -EPROTO;
    }
    if (p[0] & RPC_FRAME_FDS) {
        f.fds = (uint32_t)get_varint(&c, 32);
        if (!(fields & MAY_FIRST) || f.total || (!c.more && (f.fds == 0 || f.fds > RPC_FDS_MAX)))
            return -EPROTO;
    }
    if (fields & HAS_VALUE)
        f.value = get_varint(&c, 64);
    if (c.bad)
        return -EPROTO;
    if (c.more)
        return 0;
    /* Chunks larger than the protocol's would let one message hold up another. */
    if (f.len > RPC_CHUNK_BYTES || (f.kind == RPC_FRAME_MORE && f.len == 0))
        return -EPROTO;
    *out = f;
    return (int)(c.p - p);
}

/* Wire codes never change their meaning; errno's numbers differ between systems. */
static const int wire_errors[] = {
    [1] = -EPERM,      [2] = -ENOENT,           [3] = -EIO,
    [4] = -ENOMEM,     [5] = -EACCES,           [6] = -EBUSY,
    [7] = -EEXIST,     [8] = -EINVAL,           [9] = -ENOSPC,
    [10] = -ERANGE,    [11] = -ENOSYS,          [12] = -EMSGSIZE,
    [13] = -EPROTO,    [14] = -ENOBUFS,         [15] = -ETIMEDOUT,
    [16] = -ECANCELED, [17] = -ESTALE,          [18] = -EUSERS,
    [19] = -ENODEV,    [20] = -ESHUTDOWN,       [21] = -EHOSTDOWN,
    [22] = -EAGAIN,    [23] = -EBADMSG,         [24] = -EFBIG,
    [25] = -ENOTSUP,   [26] = -ECONNRESET,      [27] = -EOVERFLOW,
    [28] = -EREMOTEIO, [29] = -EPROTONOSUPPORT,
};

uint32_t rpc_error_to_wire(int error)
{
    for (uint32_t code = 1; code < ARRAY_LEN(wire_errors); code++)
        if (wire_errors[code] == error)
            return code;
    return rpc_error_to_wire(-EREMOTEIO);
}

int rpc_error_from_wire(uint32_t code)
{
    return code > 0 && code < ARRAY_LEN(wire_errors) ? wire_errors[code] : -EREMOTEIO;
}
