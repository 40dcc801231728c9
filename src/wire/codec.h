/* wire/codec.h - tensor blocks: raw, byte-shuffled zstd, and half precision where allowed.
 *
 * A block describes itself.  16 bytes, little-endian, then the payload:
 *
 *    0  u8   codec          as stored, after any fallback
 *    1  u8   dtype          of the elements that decoding yields
 *    2  u8   flags          bit 0: lossy, set exactly when the codec is
 *    3  u8   0
 *    4  u32  count          elements
 *    8  u32  raw bytes      count * size of dtype
 *   12  u32  payload bytes
 *
 * RAW holds the elements little-endian.  SHUFFLE_ZSTD holds one zstd frame, which states its
 * content size, over the shuffled elements.  HALF holds binary16 for binary32; HALF_SHUFFLE_ZSTD
 * a zstd frame over those, shuffled.  A frame that would gain less than about 3% is not worth its
 * decoding: the block is then stored without it, as RAW or HALF, and says so.
 *
 * No checksum: TLS or TCP covers bytes in flight and the store sums what it keeps, so a sum here
 * would be a second pass over every tensor to learn what is already known.
 *
 * Trust: decoding takes a peer's bytes.  Every size is checked against its limit and against the
 * others before anything is allocated or decompressed, and a frame never yields more than the
 * block declared.
 * Threads: a context serves one thread at a time.  Lifetime: contexts create/destroy. */
#ifndef HAWSER_WIRE_CODEC_H
#define HAWSER_WIRE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "wire/dec.h"
#include "wire/enc.h"

/* Values are the wire's: never renumbered, 0 is never valid. */
enum wire_codec {
    WIRE_CODEC_RAW = 1,
    WIRE_CODEC_SHUFFLE_ZSTD = 2,
    WIRE_CODEC_HALF = 3,              /* lossy; f32 only */
    WIRE_CODEC_HALF_SHUFFLE_ZSTD = 4, /* lossy; f32 only */
};

enum wire_dtype {
    WIRE_DTYPE_U8 = 1,
    WIRE_DTYPE_I32 = 2,
    WIRE_DTYPE_U32 = 3,
    WIRE_DTYPE_F16 = 4,
    WIRE_DTYPE_BF16 = 5,
    WIRE_DTYPE_F32 = 6,
};

enum {
    WIRE_BLOCK_HEADER_BYTES = 16,
    WIRE_BLOCK_LOSSY = 1 << 0,
};

/* A decoded header and where the payload lies in the decoder's input. */
struct wire_block {
    enum wire_codec codec;
    enum wire_dtype dtype;
    bool lossy;
    uint32_t count;
    uint32_t raw_bytes;
    uint32_t payload_bytes;
    const uint8_t *payload;
};

struct wire_codec_params {
    bool allow_lossy; /* without it a lossy codec is refused, so that loss is always a choice */
};

struct wire_codec_ctx;

/* 0 or -ENOMEM.  *ctx_out is set only on 0; free with wire_codec_ctx_destroy.  Holds the zstd
 * states and scratch that grows to the largest block seen, at most WIRE_TENSOR_MAX bytes twice. */
int wire_codec_ctx_create(struct wire_codec_ctx **ctx_out) MUST_CHECK;
void wire_codec_ctx_destroy(struct wire_codec_ctx *ctx);

/* Bytes of an element; 0 for a value that is no dtype. */
size_t wire_dtype_size(enum wire_dtype dtype);

bool wire_codec_is_lossy(enum wire_codec codec);

/* Appends one block of count elements at src to e, which must have room for the header and the
 * elements stored without zstd.  params may be NULL: nothing allowed.
 * 0; -EINVAL for an unknown codec or dtype, or a half codec on anything but f32; -EPERM for a
 * lossy codec that is not allowed; -EMSGSIZE past WIRE_TENSOR_MAX: these leave e as it was.
 * -ENOMEM; or the error of e, which sticks there. */
int wire_codec_encode(struct wire_codec_ctx *ctx, enum wire_codec codec, enum wire_dtype dtype,
                      const void *src, size_t count, const struct wire_codec_params *params,
                      struct wire_enc *e) MUST_CHECK;

/* Takes one block's header and payload off d and checks them; allocates nothing.  raw_limit is
 * the most bytes the caller would decode to.
 * 0; -EPROTO; -EMSGSIZE past raw_limit or WIRE_TENSOR_MAX.  Errors stick in d. *block is set only
 * on 0. */
int wire_codec_parse(struct wire_dec *d, size_t raw_limit, struct wire_block *block) MUST_CHECK;

/* Decodes a parsed block into dst, which holds exactly block->raw_bytes.
 * 0; -EINVAL when dst_bytes differs; -EPROTO for a bad frame; -ENOMEM.  On error dst holds
 * nothing of meaning. */
int wire_codec_decode(struct wire_codec_ctx *ctx, const struct wire_block *block, void *dst,
                      size_t dst_bytes) MUST_CHECK;

#endif
