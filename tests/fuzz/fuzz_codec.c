/* The tensor codecs, from both sides.  An even first byte: the rest is a block from a peer, which
 * decodes in bounds or is refused.  An odd one: the rest is a codec, a type and elements, which
 * must return, exactly where the codec is lossless and as a fixed point where it is not. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RAW_LIMIT = 1 << 16 }; /* so that a declared size cannot slow the fuzzer down */

static struct wire_codec_ctx *ctx;

static void require(int holds)
{
    if (!holds)
        abort();
}

static void decode_any(const uint8_t *data, size_t size)
{
    struct wire_dec d;
    struct wire_block block;
    wire_dec_init(&d, data, size);
    while (wire_dec_left(&d) && wire_codec_parse(&d, RAW_LIMIT, &block) == 0) {
        require(block.raw_bytes <= RAW_LIMIT);
        uint8_t *dst = malloc(block.raw_bytes ? block.raw_bytes : 1);
        require(dst != NULL);
        int rc = wire_codec_decode(ctx, &block, dst, block.raw_bytes);
        require(rc <= 0);
        free(dst);
    }
}

/* Encodes and decodes count elements at src to dst; false when the codec does not take them. */
static int through(enum wire_codec codec, enum wire_dtype dtype, const uint8_t *src, size_t count,
                   uint8_t *dst, size_t bytes)
{
    static const struct wire_codec_params lossy = {.allow_lossy = true};
    struct wire_enc e;
    struct wire_dec d;
    struct wire_block block;
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    int rc = wire_codec_encode(ctx, codec, dtype, src, count, &lossy, &e);
    if (rc == 0) {
        wire_dec_init(&d, wire_enc_data(&e), wire_enc_len(&e));
        require(wire_codec_parse(&d, bytes, &block) == 0);
        require(wire_dec_end(&d) == 0);
        require(wire_codec_decode(ctx, &block, dst, bytes) == 0);
    }
    wire_enc_fini(&e);
    return rc == 0;
}

static void round_trip(const uint8_t *data, size_t size)
{
    if (size < 2)
        return;
    enum wire_codec codec = (enum wire_codec)(data[0] % 6);
    enum wire_dtype dtype = (enum wire_dtype)(data[1] % 8);
    size_t elem = wire_dtype_size(dtype) ? wire_dtype_size(dtype) : 1;
    size_t count = (size - 2) / elem, bytes = count * elem;
    uint8_t *once = malloc(bytes + 1), *twice = malloc(bytes + 1);
    require(once && twice);
    if (through(codec, dtype, data + 2, count, once, bytes)) {
        if (!wire_codec_is_lossy(codec))
            require(memcmp(once, data + 2, bytes) == 0);
        require(through(codec, dtype, once, count, twice, bytes));
        require(memcmp(once, twice, bytes) == 0);
    }
    free(once);
    free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!ctx && wire_codec_ctx_create(&ctx) != 0)
        abort();
    if (size == 0)
        return 0;
    if (data[0] & 1)
        round_trip(data + 1, size - 1);
    else
        decode_any(data + 1, size - 1);
    return 0;
}
