#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <zstd.h>

#include <cmocka.h>

#include "wire/codec.h"
#include "wire/half.h"

static int allocations_left = -1; /* negative: no limit */

static bool allocation_fails(void)
{
    if (allocations_left > 0)
        allocations_left--;
    else if (allocations_left == 0)
        return true;
    return false;
}

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
    return allocation_fails() ? NULL : __real_malloc(n);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return allocation_fails() ? NULL : __real_calloc(n, size);
}

static const enum wire_codec codecs[] = {WIRE_CODEC_RAW, WIRE_CODEC_SHUFFLE_ZSTD, WIRE_CODEC_HALF,
                                         WIRE_CODEC_HALF_SHUFFLE_ZSTD};
static const enum wire_dtype dtypes[] = {WIRE_DTYPE_U8,  WIRE_DTYPE_I32,  WIRE_DTYPE_U32,
                                         WIRE_DTYPE_F16, WIRE_DTYPE_BF16, WIRE_DTYPE_F32};
static const struct wire_codec_params lossy = {.allow_lossy = true};

enum { ELEMS = 1000, RAW_MAX = 4 * ELEMS };

static struct wire_codec_ctx *ctx;

static int make_ctx(void **state)
{
    (void)state;
    return wire_codec_ctx_create(&ctx);
}

static int drop_ctx(void **state)
{
    (void)state;
    wire_codec_ctx_destroy(ctx);
    return 0;
}

/* Floats that halves hold exactly and zstd packs well. */
static void fill_smooth(float *f, size_t count)
{
    for (size_t i = 0; i < count; i++)
        f[i] = (float)(i % 50) * 0.25f;
}

static void fill_noise(uint8_t *p, size_t bytes)
{
    uint64_t x = 7;
    for (size_t i = 0; i < bytes; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        p[i] = (uint8_t)(x >> 56);
    }
}

/* Encodes and decodes; returns the codec that was stored. */
static enum wire_codec round_trip(enum wire_codec codec, enum wire_dtype dtype, const void *src,
                                  size_t count, void *dst)
{
    struct wire_enc e;
    struct wire_dec d;
    struct wire_block block;
    size_t raw = count * wire_dtype_size(dtype);
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    assert_int_equal(wire_codec_encode(ctx, codec, dtype, src, count, &lossy, &e), 0);
    assert_true(wire_enc_len(&e) <= WIRE_BLOCK_HEADER_BYTES + raw);
    wire_dec_init(&d, wire_enc_data(&e), wire_enc_len(&e));
    assert_int_equal(wire_codec_parse(&d, raw, &block), 0);
    assert_int_equal(wire_dec_end(&d), 0);
    assert_int_equal(block.dtype, dtype);
    assert_int_equal(block.count, count);
    assert_int_equal(block.raw_bytes, raw);
    assert_int_equal(block.lossy, wire_codec_is_lossy(codec));
    assert_int_equal(wire_codec_decode(ctx, &block, dst, raw), 0);
    wire_enc_fini(&e);
    return block.codec;
}

static void every_codec_and_type_returns_what_it_took(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 15, 16, 17, 63, 64, 65, ELEMS};
    float src[ELEMS], dst[ELEMS];
    fill_smooth(src, ELEMS);
    for (size_t c = 0; c < ARRAY_LEN(codecs); c++) {
        for (size_t t = 0; t < ARRAY_LEN(dtypes); t++) {
            if (wire_codec_is_lossy(codecs[c]) && dtypes[t] != WIRE_DTYPE_F32)
                continue;
            for (size_t n = 0; n < ARRAY_LEN(counts); n++) {
                memset(dst, 0xee, sizeof(dst));
                round_trip(codecs[c], dtypes[t], src, counts[n], dst);
                assert_memory_equal(dst, src, counts[n] * wire_dtype_size(dtypes[t]));
            }
        }
    }
}

static void halves_lose_what_half_precision_loses(void **state)
{
    (void)state;
    float src[ELEMS], dst[ELEMS], want[ELEMS];
    uint16_t halves[ELEMS];
    for (size_t i = 0; i < ELEMS; i++)
        src[i] = (float)i * 0.001f - 70.0f;
    wire_half_from_f32(halves, src, ELEMS);
    wire_half_to_f32(want, halves, ELEMS);
    assert_memory_not_equal(want, src, sizeof(src));
    round_trip(WIRE_CODEC_HALF, WIRE_DTYPE_F32, src, ELEMS, dst);
    assert_memory_equal(dst, want, sizeof(dst));
    round_trip(WIRE_CODEC_HALF_SHUFFLE_ZSTD, WIRE_DTYPE_F32, src, ELEMS, dst);
    assert_memory_equal(dst, want, sizeof(dst));
}

static void noise_is_stored_without_zstd(void **state)
{
    (void)state;
    uint8_t src[RAW_MAX], dst[RAW_MAX];
    fill_noise(src, sizeof(src));
    assert_int_equal(round_trip(WIRE_CODEC_SHUFFLE_ZSTD, WIRE_DTYPE_U32, src, ELEMS, dst),
                     WIRE_CODEC_RAW);
    assert_memory_equal(dst, src, sizeof(src));
    for (size_t i = 3; i < RAW_MAX; i += 4) /* finite, so that halves keep some noise */
        src[i] = 0x3f;
    assert_int_equal(round_trip(WIRE_CODEC_HALF_SHUFFLE_ZSTD, WIRE_DTYPE_F32, src, 20, dst),
                     WIRE_CODEC_HALF);
}

static void smooth_data_is_stored_with_zstd_and_smaller(void **state)
{
    (void)state;
    float src[ELEMS];
    fill_smooth(src, ELEMS);
    struct wire_enc e;
    wire_enc_init(&e, WIRE_MESSAGE_MAX);
    assert_int_equal(
        wire_codec_encode(ctx, WIRE_CODEC_SHUFFLE_ZSTD, WIRE_DTYPE_F32, src, ELEMS, NULL, &e), 0);
    assert_int_equal(wire_enc_data(&e)[0], WIRE_CODEC_SHUFFLE_ZSTD);
    assert_true(wire_enc_len(&e) < RAW_MAX / 2);
    wire_enc_fini(&e);
}

static void loss_must_be_asked_for_and_integers_are_never_halved(void **state)
{
    (void)state;
    float src[4] = {1, 2, 3, 4};
    static const struct wire_codec_params strict = {.allow_lossy = false};
    struct wire_enc e;
    wire_enc_init(&e, 1024);
    wire_put_u8(&e, 1);
    for (size_t c = 2; c < 4; c++) {
        assert_int_equal(wire_codec_encode(ctx, codecs[c], WIRE_DTYPE_F32, src, 4, NULL, &e),
                         -EPERM);
        assert_int_equal(wire_codec_encode(ctx, codecs[c], WIRE_DTYPE_F32, src, 4, &strict, &e),
                         -EPERM);
        for (size_t t = 0; t < ARRAY_LEN(dtypes) - 1; t++)
            assert_int_equal(wire_codec_encode(ctx, codecs[c], dtypes[t], src, 4, &lossy, &e),
                             -EINVAL);
    }
    assert_int_equal(wire_codec_encode(ctx, 0, WIRE_DTYPE_F32, src, 4, &lossy, &e), -EINVAL);
    assert_int_equal(wire_codec_encode(ctx, 5, WIRE_DTYPE_F32, src, 4, &lossy, &e), -EINVAL);
    assert_int_equal(wire_codec_encode(ctx, WIRE_CODEC_RAW, 0, src, 4, &lossy, &e), -EINVAL);
    assert_int_equal(wire_codec_encode(ctx, WIRE_CODEC_RAW, 7, src, 4, &lossy, &e), -EINVAL);
    assert_int_equal(wire_codec_encode(ctx, WIRE_CODEC_RAW, WIRE_DTYPE_F32, src,
                                       WIRE_TENSOR_MAX / 4 + 1, &lossy, &e),
                     -EMSGSIZE);
    assert_int_equal(wire_enc_error(&e), 0);
    assert_int_equal(wire_enc_len(&e), 1);
    wire_enc_fini(&e);
}

static void an_encoder_without_room_says_so(void **state)
{
    (void)state;
    float src[ELEMS];
    uint8_t buf[WIRE_BLOCK_HEADER_BYTES + 15];
    fill_smooth(src, ELEMS);
    struct wire_enc e;
    wire_enc_init_fixed(&e, buf, sizeof(buf));
    assert_int_equal(wire_codec_encode(ctx, WIRE_CODEC_RAW, WIRE_DTYPE_F32, src, 4, NULL, &e),
                     -EMSGSIZE);
    assert_int_equal(wire_enc_error(&e), -EMSGSIZE);
}

/* A good block to spoil: 16 bytes of header, then a frame. */
struct good {
    uint8_t bytes[WIRE_BLOCK_HEADER_BYTES + RAW_MAX];
    size_t len;
};

static void make_good(struct good *g, enum wire_codec codec)
{
    float src[ELEMS];
    fill_smooth(src, ELEMS);
    struct wire_enc e;
    wire_enc_init_fixed(&e, g->bytes, sizeof(g->bytes));
    assert_int_equal(wire_codec_encode(ctx, codec, WIRE_DTYPE_F32, src, ELEMS, &lossy, &e), 0);
    g->len = wire_enc_len(&e);
    assert_int_equal(g->bytes[0], codec);
}

static int parse(const uint8_t *bytes, size_t len, size_t limit, struct wire_block *block)
{
    struct wire_dec d;
    wire_dec_init(&d, bytes, len);
    int rc = wire_codec_parse(&d, limit, block);
    assert_int_equal(rc, wire_dec_error(&d));
    return rc;
}

static void every_field_of_a_header_is_checked(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint32_t value;
        int error;
    } spoilers[] = {
        {0, 0, -EPROTO},
        {0, 5, -EPROTO},
        {0, 255, -EPROTO},
        {1, 0, -EPROTO},
        {1, 7, -EPROTO},
        {1, WIRE_DTYPE_F16, -EPROTO}, /* count and raw bytes disagree */
        {2, 2, -EPROTO},
        {2, 0x80, -EPROTO},
        {3, 1, -EPROTO},
        {4, ELEMS - 1, -EPROTO},
        {4, UINT32_MAX, -EPROTO},
        {4, 0x40000000 + ELEMS, -EPROTO}, /* times 4 is right modulo 2^32 */
        {8, RAW_MAX + 1, -EPROTO},
        {8, 0, -EPROTO},
        {12, 0, -EPROTO},
        {12, UINT32_MAX, -EPROTO},
    };
    for (size_t c = 0; c < ARRAY_LEN(codecs); c++) {
        struct good g;
        struct wire_block block;
        make_good(&g, codecs[c]);
        assert_int_equal(parse(g.bytes, g.len, RAW_MAX, &block), 0);
        assert_int_equal(parse(g.bytes, g.len, RAW_MAX - 1, &block), -EMSGSIZE);
        for (size_t i = 0; i < ARRAY_LEN(spoilers); i++) {
            struct good bad = g;
            if (spoilers[i].at < 4)
                bad.bytes[spoilers[i].at] = (uint8_t)spoilers[i].value;
            else
                wire_store32(bad.bytes + spoilers[i].at, spoilers[i].value);
            assert_int_equal(parse(bad.bytes, bad.len, SIZE_MAX, &block), spoilers[i].error);
        }
        struct good bad = g;
        bad.bytes[2] ^= WIRE_BLOCK_LOSSY;
        assert_int_equal(parse(bad.bytes, bad.len, SIZE_MAX, &block), -EPROTO);
    }
}

static void a_block_past_the_tensor_limit_is_refused(void **state)
{
    (void)state;
    uint8_t header[WIRE_BLOCK_HEADER_BYTES] = {WIRE_CODEC_RAW, WIRE_DTYPE_U8};
    struct wire_block block;
    wire_store32(header + 4, WIRE_TENSOR_MAX + 1);
    wire_store32(header + 8, WIRE_TENSOR_MAX + 1);
    assert_int_equal(parse(header, sizeof(header), SIZE_MAX, &block), -EMSGSIZE);
}

static void truncation_at_every_byte_is_refused(void **state)
{
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(codecs); c++) {
        struct good g;
        make_good(&g, codecs[c]);
        for (size_t len = 0; len < g.len; len++) {
            struct wire_block block;
            assert_int_equal(parse(g.bytes, len, SIZE_MAX, &block), -EPROTO);
        }
    }
}

/* Puts a frame that zstd made behind a header that declares count u8 elements. */
static int parse_frame(const void *frame, size_t frame_len, uint32_t declared,
                       struct wire_block *block)
{
    static uint8_t bytes[WIRE_BLOCK_HEADER_BYTES + 8192];
    assert_true(frame_len <= 8192);
    memset(bytes, 0, WIRE_BLOCK_HEADER_BYTES);
    bytes[0] = WIRE_CODEC_SHUFFLE_ZSTD;
    bytes[1] = WIRE_DTYPE_U8;
    wire_store32(bytes + 4, declared);
    wire_store32(bytes + 8, declared);
    wire_store32(bytes + 12, (uint32_t)frame_len);
    memcpy(bytes + WIRE_BLOCK_HEADER_BYTES, frame, frame_len);
    return parse(bytes, WIRE_BLOCK_HEADER_BYTES + frame_len, SIZE_MAX, block);
}

static void a_frame_must_state_the_size_the_block_declares(void **state)
{
    (void)state;
    enum { BOMB = 1 << 20 };
    uint8_t *zeros = calloc(1, BOMB), frame[8192];
    assert_non_null(zeros);
    struct wire_block block;
    size_t n = ZSTD_compress(frame, sizeof(frame), zeros, BOMB, 1);
    assert_false(ZSTD_isError(n));
    assert_int_equal(parse_frame(frame, n, BOMB, &block), 0);
    assert_int_equal(parse_frame(frame, n, 4096, &block), -EPROTO);
    assert_int_equal(parse_frame(frame, n, BOMB + 1, &block), -EPROTO);
    frame[n] = 0; /* a byte behind the frame */
    assert_int_equal(parse_frame(frame, n + 1, BOMB, &block), -EPROTO);

    ZSTD_CCtx *cctx = ZSTD_createCCtx();
    assert_non_null(cctx);
    ZSTD_CCtx_setParameter(cctx, ZSTD_c_contentSizeFlag, 0);
    n = ZSTD_compress2(cctx, frame, sizeof(frame), zeros, BOMB);
    assert_false(ZSTD_isError(n));
    assert_int_equal(parse_frame(frame, n, BOMB, &block), -EPROTO);
    ZSTD_freeCCtx(cctx);
    free(zeros);
}

/* The header may be honest and the frame's inside not: found when decoding, never out of
 * bounds.  Flipping every bit of the payload in turn reaches every part of a frame. */
static void a_spoiled_frame_decodes_to_an_error_or_in_bounds(void **state)
{
    (void)state;
    struct good g;
    make_good(&g, WIRE_CODEC_SHUFFLE_ZSTD);
    uint8_t *dst = malloc(RAW_MAX);
    assert_non_null(dst);
    size_t refused = 0;
    for (size_t bit = 8 * WIRE_BLOCK_HEADER_BYTES; bit < 8 * g.len; bit++) {
        struct wire_block block;
        g.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        int rc = parse(g.bytes, g.len, RAW_MAX, &block);
        if (rc == 0)
            rc = wire_codec_decode(ctx, &block, dst, RAW_MAX);
        assert_true(rc == 0 || rc == -EPROTO);
        refused += rc != 0;
        g.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_true(refused > 0);
    free(dst);
}

static void a_buffer_of_another_size_is_refused(void **state)
{
    (void)state;
    struct good g;
    struct wire_block block;
    float dst[ELEMS];
    make_good(&g, WIRE_CODEC_RAW);
    assert_int_equal(parse(g.bytes, g.len, RAW_MAX, &block), 0);
    assert_int_equal(wire_codec_decode(ctx, &block, dst, RAW_MAX - 4), -EINVAL);
    assert_int_equal(wire_codec_decode(ctx, &block, dst, RAW_MAX), 0);
}

static void blocks_follow_each_other_in_one_message(void **state)
{
    (void)state;
    float src[ELEMS], dst[ELEMS];
    fill_smooth(src, ELEMS);
    struct wire_enc e;
    struct wire_dec d;
    wire_enc_init(&e, 1 << 20);
    for (size_t c = 0; c < ARRAY_LEN(codecs); c++)
        assert_int_equal(wire_codec_encode(ctx, codecs[c], WIRE_DTYPE_F32, src, ELEMS, &lossy, &e),
                         0);
    wire_put_u32(&e, 42);
    wire_dec_init(&d, wire_enc_data(&e), wire_enc_len(&e));
    for (size_t c = 0; c < ARRAY_LEN(codecs); c++) {
        struct wire_block block;
        assert_int_equal(wire_codec_parse(&d, RAW_MAX, &block), 0);
        assert_int_equal(block.codec, codecs[c]);
        assert_int_equal(wire_codec_decode(ctx, &block, dst, RAW_MAX), 0);
        assert_memory_equal(dst, src, RAW_MAX);
    }
    assert_int_equal(wire_get_u32(&d), 42);
    assert_int_equal(wire_dec_end(&d), 0);
    wire_enc_fini(&e);
}

/* One complete use with the allocator failing at its n-th call, for every n until none fails. */
static int use_once(int allocations)
{
    static float src[ELEMS], dst[ELEMS];
    static uint8_t buf[WIRE_BLOCK_HEADER_BYTES + RAW_MAX];
    struct wire_codec_ctx *c = NULL;
    struct wire_enc e;
    struct wire_dec d;
    struct wire_block block;
    fill_smooth(src, ELEMS);
    wire_enc_init_fixed(&e, buf, sizeof(buf));
    allocations_left = allocations;
    int rc = wire_codec_ctx_create(&c);
    if (rc == 0)
        rc = wire_codec_encode(c, WIRE_CODEC_HALF_SHUFFLE_ZSTD, WIRE_DTYPE_F32, src, ELEMS, &lossy,
                               &e);
    if (rc == 0) {
        wire_dec_init(&d, buf, wire_enc_len(&e));
        rc = wire_codec_parse(&d, RAW_MAX, &block);
        assert_int_equal(rc, 0);
        rc = wire_codec_decode(c, &block, dst, RAW_MAX);
    } else {
        assert_int_equal(wire_enc_len(&e), 0);
    }
    allocations_left = -1;
    wire_codec_ctx_destroy(c);
    return rc;
}

static void a_failed_allocation_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    int n = 0;
    while (use_once(n) == -ENOMEM)
        n++;
    assert_true(n >= 3); /* the context and both scratch buffers */
    assert_int_equal(use_once(n), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_codec_and_type_returns_what_it_took),
        cmocka_unit_test(halves_lose_what_half_precision_loses),
        cmocka_unit_test(noise_is_stored_without_zstd),
        cmocka_unit_test(smooth_data_is_stored_with_zstd_and_smaller),
        cmocka_unit_test(loss_must_be_asked_for_and_integers_are_never_halved),
        cmocka_unit_test(an_encoder_without_room_says_so),
        cmocka_unit_test(every_field_of_a_header_is_checked),
        cmocka_unit_test(a_block_past_the_tensor_limit_is_refused),
        cmocka_unit_test(truncation_at_every_byte_is_refused),
        cmocka_unit_test(a_frame_must_state_the_size_the_block_declares),
        cmocka_unit_test(a_spoiled_frame_decodes_to_an_error_or_in_bounds),
        cmocka_unit_test(a_buffer_of_another_size_is_refused),
        cmocka_unit_test(blocks_follow_each_other_in_one_message),
        cmocka_unit_test(a_failed_allocation_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests_name("wire/codec", tests, make_ctx, drop_ctx);
}
