/* rpc/endpoint/frame.h - how messages look on the wire.
 *
 * A frame is one byte of kind and flags, then varints, then its payload:
 *
 *   byte 0   kind in the low four bits; STREAM and FIRST above
 *   stream   varint, only with STREAM; else stream 0
 *   len      varint: payload bytes in this frame         (not for CREDIT, PING, PONG, CANCEL)
 *   id       varint: CALL, REPLY, ERROR, CANCEL          (chosen by the caller; small, reused)
 *   method   varint: CALL, POST, PUSH; the error code for ERROR and BYE
 *   total    varint, only with FIRST: payload bytes of the whole message, more than len
 *   fds      varint, only with FDS: descriptors of the message; they come beside the bytes
 *   value    varint: CREDIT (bytes let go), PING and PONG (opaque), ACK (bytes received)
 *
 * A message larger than RPC_CHUNK_BYTES starts with FIRST and goes on in MORE frames of the same
 * stream.  A small call takes four bytes of framing.
 *
 * Trust: parse takes hostile bytes and reads only [p, p + n).  Threads: any (pure). */
#ifndef HAWSER_RPC_ENDPOINT_FRAME_H
#define HAWSER_RPC_ENDPOINT_FRAME_H

#include "base/attr.h"

#include <stddef.h>
#include <stdint.h>

enum rpc_frame_kind {
    RPC_FRAME_CALL = 1,
    RPC_FRAME_POST = 2,
    RPC_FRAME_PUSH = 3,
    RPC_FRAME_REPLY = 4,
    RPC_FRAME_ERROR = 5, /* a reply whose handler failed: code, and text as payload */
    RPC_FRAME_MORE = 6,
    RPC_FRAME_CREDIT = 7,
    RPC_FRAME_PING = 8,
    RPC_FRAME_PONG = 9,
    RPC_FRAME_CANCEL = 10,
    RPC_FRAME_BYE = 11,
    RPC_FRAME_OFFER = 12, /* from the acceptor: how to resume (rpc/resume/resume.h) */
    RPC_FRAME_ACK = 13,   /* bytes received; between peers that can resume */
    RPC_FRAME_KINDS = 14
};

enum {
    RPC_FRAME_STREAM = 0x10,
    RPC_FRAME_FIRST = 0x20,
    RPC_FRAME_FDS = 0x40,
    RPC_FRAME_HEADER_MAX = 32 /* 1 + 1 + 5 x 5, or 1 + 10; rounded up */
};

struct rpc_frame {
    uint8_t kind;
    uint8_t stream;
    uint32_t len; /* payload bytes that follow */
    uint32_t id;
    uint32_t method; /* or the error code */
    uint32_t total;  /* 0 unless this is the first of several frames */
    uint32_t fds;    /* descriptors; only with a message in one frame */
    uint64_t value;
};

/* Header bytes written to out. */
size_t rpc_frame_encode(const struct rpc_frame *frame, uint8_t out[RPC_FRAME_HEADER_MAX]);

/* Header bytes read (> 0), 0 when more are needed, -EPROTO when no frame begins like this. */
int rpc_frame_parse(const uint8_t *p, size_t n, struct rpc_frame *out) MUST_CHECK;

/* Error codes on the wire are ours, not errno's numbers.  An unknown code is -EREMOTEIO. */
uint32_t rpc_error_to_wire(int error);
int rpc_error_from_wire(uint32_t code);

#endif
