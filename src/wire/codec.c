#include "wire/codec.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <zstd.h>

#include "wire/half.h"
#include "wire/shuffle.h"

enum {
    ZSTD_LEVEL = 1,    /* the fastest ordinary level: the link waits while it runs */
    ZSTD_TRY_MIN = 64, /* below this the frame's own header eats the gain */
    GAIN_MIN = 32,     /* a frame must save one part in this many, about 3% */
};

struct scratch {
    uint8_t *data;
    size_t cap;
};

struct wire_codec_ctx {
    ZSTD_CCtx *cctx;
    ZSTD_DCtx *dctx;
    struct scratch plain;    /* elements as the codec stores them, before the shuffle */
    struct scratch shuffled; /* what zstd reads or writes */
};

/* What the elements of a block look like under its codec, before zstd. */
struct layout {
    bool half;
    bool zstd;
    size_t elem;
};

int wire_codec_ctx_create(struct wire_codec_ctx **ctx_out)
{
    struct wire_codec_ctx *ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return -ENOMEM;
    ctx->cctx = ZSTD_createCCtx();
    ctx->dctx = ZSTD_createDCtx();
    if (!ctx->cctx || !ctx->dctx) {
        wire_codec_ctx_destroy(ctx);
        return -ENOMEM;
    }
    *ctx_out = ctx;
    return 0;
}

void wire_codec_ctx_destroy(struct wire_codec_ctx *ctx)
{
    if (!ctx)
        return;
    ZSTD_freeCCtx(ctx->cctx);
    ZSTD_freeDCtx(ctx->dctx);
    free(ctx->plain.data);
    free(ctx->shuffled.data);
    free(ctx);
}

size_t wire_dtype_size(enum wire_dtype dtype)
{
    switch (dtype) {
    case WIRE_DTYPE_U8:
        return 1;
    case WIRE_DTYPE_F16:
    case WIRE_DTYPE_BF16:
        return 2;
    case WIRE_DTYPE_I32:
    case WIRE_DTYPE_U32:
    case WIRE_DTYPE_F32:
        return 4;
    }
    return 0;
}

bool wire_codec_is_lossy(enum wire_codec codec)
{
    return codec == WIRE_CODEC_HALF || codec == WIRE_CODEC_HALF_SHUFFLE_ZSTD;
}

/* False for a codec or dtype that does not exist and for halves of anything but f32. */
static bool layout_of(enum wire_codec codec, enum wire_dtype dtype, struct layout *out)
{
    size_t elem = wire_dtype_size(dtype);
    bool known = codec >= WIRE_CODEC_RAW && codec <= WIRE_CODEC_HALF_SHUFFLE_ZSTD;
    bool half = wire_codec_is_lossy(codec);
    if (!known || !elem || (half && dtype != WIRE_DTYPE_F32))
        return false;
    *out = (struct layout){
        .half = half,
        .zstd = codec == WIRE_CODEC_SHUFFLE_ZSTD || codec == WIRE_CODEC_HALF_SHUFFLE_ZSTD,
        .elem = half ? 2 : elem,
    };
    return true;
}

/* The old content is not kept.  NULL when there is no memory. */
static uint8_t *scratch_get(struct scratch *s, size_t bytes)
{
    assert(bytes > 0 && bytes <= WIRE_TENSOR_MAX);
    if (bytes <= s->cap)
        return s->data;
    uint8_t *data = malloc(bytes);
    if (!data)
        return NULL;
    free(s->data);
    *s = (struct scratch){.data = data, .cap = bytes};
    return data;
}

static void write_header(uint8_t *at, const struct wire_block *block)
{
    at[0] = (uint8_t)block->codec;
    at[1] = (uint8_t)block->dtype;
    at[2] = block->lossy ? WIRE_BLOCK_LOSSY : 0;
    at[3] = 0;
    wire_store32(at + 4, block->count);
    wire_store32(at + 8, block->raw_bytes);
    wire_store32(at + 12, block->payload_bytes);
}

/* Bytes of the frame written to dst, or 0 when it would not gain enough.  The gain asked for is
 * the room given, so that zstd gives up as soon as it is out of reach. */
static size_t compress(struct wire_codec_ctx *ctx, uint8_t *dst, const void *src, size_t bytes)
{
    if (bytes < ZSTD_TRY_MIN)
        return 0;
    size_t room = bytes - bytes / GAIN_MIN;
    size_t n = ZSTD_compressCCtx(ctx->cctx, dst, room, src, bytes, ZSTD_LEVEL);
    return ZSTD_isError(n) ? 0 : n;
}

/* Points *out at the elements as the codec stores them: src itself or halves of it. */
static int plain_of(struct wire_codec_ctx *ctx, const struct layout *lay, const void *src,
                    uint32_t count, const void **out)
{
    *out = src;
    if (!lay->half || count == 0)
        return 0;
    uint8_t *halves = scratch_get(&ctx->plain, 2 * (size_t)count);
    if (!halves)
        return -ENOMEM;
    wire_half_from_f32(halves, src, count);
    *out = halves;
    return 0;
}

/* As plain_of, but shuffled when that moves anything. */
static int shuffled_of(struct wire_codec_ctx *ctx, const struct layout *lay, const void *plain,
                       uint32_t count, const void **out)
{
    *out = plain;
    if (lay->elem == 1)
        return 0;
    uint8_t *shuffled = scratch_get(&ctx->shuffled, count * lay->elem);
    if (!shuffled)
        return -ENOMEM;
    wire_shuffle(shuffled, plain, count, lay->elem);
    *out = shuffled;
    return 0;
}

/* Fills the payload at dst, of stored bytes, and says in *block how it was stored. */
static int fill_payload(struct wire_codec_ctx *ctx, const struct layout *lay, const void *plain,
                        uint8_t *dst, size_t stored, struct wire_block *block)
{
    size_t n = 0;
    if (lay->zstd && stored) {
        const void *shuffled;
        int rc = shuffled_of(ctx, lay, plain, block->count, &shuffled);
        if (rc)
            return rc;
        n = compress(ctx, dst, shuffled, stored);
    }
    block->payload_bytes = (uint32_t)(n ? n : stored);
    if (n)
        return 0;
    block->codec = lay->half ? WIRE_CODEC_HALF : WIRE_CODEC_RAW;
    if (stored)
        memcpy(dst, plain, stored);
    return 0;
}

int wire_codec_encode(struct wire_codec_ctx *ctx, enum wire_codec codec, enum wire_dtype dtype,
                      const void *src, size_t count, const struct wire_codec_params *params,
                      struct wire_enc *e)
{
    struct layout lay;
    if (!layout_of(codec, dtype, &lay))
        return -EINVAL;
    if (lay.half && !(params && params->allow_lossy))
        return -EPERM;
    size_t elem = wire_dtype_size(dtype);
    if (count > WIRE_TENSOR_MAX / elem)
        return -EMSGSIZE;

    struct wire_block block = {
        .codec = codec,
        .dtype = dtype,
        .lossy = lay.half,
        .count = (uint32_t)count,
        .raw_bytes = (uint32_t)(count * elem),
    };
    const void *plain;
    int rc = plain_of(ctx, &lay, src, block.count, &plain);
    if (rc)
        return rc;

    size_t start = wire_enc_len(e);
    size_t stored = count * lay.elem;
    uint8_t *at = wire_enc_space(e, WIRE_BLOCK_HEADER_BYTES + stored);
    if (!at)
        return wire_enc_error(e);
    rc = fill_payload(ctx, &lay, plain, at + WIRE_BLOCK_HEADER_BYTES, stored, &block);
    if (rc) {
        wire_enc_trim(e, start);
        return rc;
    }
    write_header(at, &block);
    wire_enc_trim(e, start + WIRE_BLOCK_HEADER_BYTES + block.payload_bytes);
    return 0;
}

static void read_header(struct wire_dec *d, struct wire_block *block)
{
    block->codec = (enum wire_codec)wire_get_u8(d);
    block->dtype = (enum wire_dtype)wire_get_u8(d);
    uint8_t flags = wire_get_u8(d);
    block->lossy = flags & WIRE_BLOCK_LOSSY;
    if ((flags & ~WIRE_BLOCK_LOSSY) || wire_get_u8(d) != 0)
        wire_dec_fail(d, -EPROTO);
    block->count = wire_get_u32(d);
    block->raw_bytes = wire_get_u32(d);
    block->payload_bytes = wire_get_u32(d);
}

/* The frame fills the payload exactly and states that it holds `stored` bytes.  This is all that
 * a frame can be asked without decompressing it. */
static bool frame_is_honest(const struct wire_block *block, size_t stored)
{
    return block->payload_bytes < stored &&
           ZSTD_getFrameContentSize(block->payload, block->payload_bytes) == stored &&
           ZSTD_findFrameCompressedSize(block->payload, block->payload_bytes) ==
               block->payload_bytes;
}

static int check_block(const struct wire_block *block, size_t raw_limit)
{
    struct layout lay;
    if (!layout_of(block->codec, block->dtype, &lay) || block->lossy != lay.half)
        return -EPROTO;
    if (block->raw_bytes != (uint64_t)block->count * wire_dtype_size(block->dtype))
        return -EPROTO;
    if (block->raw_bytes > raw_limit || block->raw_bytes > WIRE_TENSOR_MAX)
        return -EMSGSIZE;
    size_t stored = block->count * lay.elem;
    bool fits = lay.zstd ? frame_is_honest(block, stored) : block->payload_bytes == stored;
    return fits ? 0 : -EPROTO;
}

int wire_codec_parse(struct wire_dec *d, size_t raw_limit, struct wire_block *block)
{
    struct wire_block b;
    read_header(d, &b);
    b.payload = wire_get_bytes(d, b.payload_bytes);
    if (!b.payload)
        return wire_dec_error(d);
    int rc = check_block(&b, raw_limit);
    if (rc) {
        wire_dec_fail(d, rc);
        return rc;
    }
    *block = b;
    return 0;
}

static int decompress(struct wire_codec_ctx *ctx, const struct wire_block *block, void *dst,
                      size_t bytes)
{
    size_t n = ZSTD_decompressDCtx(ctx->dctx, dst, bytes, block->payload, block->payload_bytes);
    return n == bytes ? 0 : -EPROTO; /* errors are sizes that no block can have */
}

/* Writes the elements as the codec stores them, zstd and shuffle undone. */
static int unpack(struct wire_codec_ctx *ctx, const struct wire_block *block, size_t elem,
                  void *dst)
{
    size_t bytes = block->count * elem;
    if (elem == 1)
        return decompress(ctx, block, dst, bytes);
    uint8_t *shuffled = scratch_get(&ctx->shuffled, bytes);
    if (!shuffled)
        return -ENOMEM;
    int rc = decompress(ctx, block, shuffled, bytes);
    if (rc == 0)
        wire_unshuffle(dst, shuffled, block->count, elem);
    return rc;
}

static int decode_half(struct wire_codec_ctx *ctx, const struct wire_block *block, bool zstd,
                       void *dst)
{
    if (!zstd) {
        wire_half_to_f32(dst, block->payload, block->count);
        return 0;
    }
    uint8_t *halves = scratch_get(&ctx->plain, 2 * (size_t)block->count);
    if (!halves)
        return -ENOMEM;
    int rc = unpack(ctx, block, 2, halves);
    if (rc == 0)
        wire_half_to_f32(dst, halves, block->count);
    return rc;
}

int wire_codec_decode(struct wire_codec_ctx *ctx, const struct wire_block *block, void *dst,
                      size_t dst_bytes)
{
    struct layout lay;
    if (dst_bytes != block->raw_bytes || !layout_of(block->codec, block->dtype, &lay))
        return -EINVAL;
    if (block->count == 0)
        return 0;
    if (lay.half)
        return decode_half(ctx, block, lay.zstd, dst);
    if (lay.zstd)
        return unpack(ctx, block, lay.elem, dst);
    memcpy(dst, block->payload, dst_bytes);
    return 0;
}
