/* tensors.txt: blocks encode to and decode from the committed bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "golden.h"
#include "wire/codec.h"

static const char *vectors_path;
static struct wire_codec_ctx *ctx;

static const char *const codec_names[] = {"", "raw", "shuffle_zstd", "half", "half_shuffle_zstd"};
static const char *const dtype_names[] = {"", "u8", "i32", "u32", "f16", "bf16", "f32"};

static unsigned index_of(const char *name, const char *const names[], size_t count)
{
    for (unsigned i = 1; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    fail_msg("no such name: %s", name);
    return 0;
}

static size_t bytes_or_none(const char *text, uint8_t *bytes)
{
    return strcmp(text, "-") == 0 ? 0 : golden_hex(text, bytes);
}

static void check_encode(const char *name, enum wire_codec codec, enum wire_dtype dtype,
                         const uint8_t *elems, size_t bytes, const uint8_t *want, size_t want_len)
{
    static const struct wire_codec_params lossy = {.allow_lossy = true};
    struct wire_enc e;
    wire_enc_init(&e, GOLDEN_BYTES_MAX);
    size_t count = bytes / wire_dtype_size(dtype);
    assert_int_equal(wire_codec_encode(ctx, codec, dtype, elems, count, &lossy, &e), 0);
    golden_equal(name, wire_enc_data(&e), wire_enc_len(&e), want, want_len);
    wire_enc_fini(&e);
}

static void check_decode(const char *name, enum wire_codec codec, enum wire_dtype dtype,
                         const uint8_t *stored, size_t stored_len, const uint8_t *want,
                         size_t bytes)
{
    uint8_t got[GOLDEN_BYTES_MAX];
    struct wire_dec d;
    struct wire_block block;
    wire_dec_init(&d, stored, stored_len);
    assert_int_equal(wire_codec_parse(&d, bytes, &block), 0);
    assert_int_equal(wire_dec_end(&d), 0);
    assert_int_equal(block.codec, codec);
    assert_int_equal(block.dtype, dtype);
    assert_int_equal(wire_codec_decode(ctx, &block, got, bytes), 0);
    golden_equal(name, got, bytes, want, bytes);
}

static void check_vector(char *fields[], size_t count)
{
    uint8_t elems[GOLDEN_BYTES_MAX], stored[GOLDEN_BYTES_MAX], want[GOLDEN_BYTES_MAX];
    assert_int_equal(count, 6);
    char *codec_name = strtok(fields[2], " "), *dtype_name = strtok(NULL, " ");
    assert_non_null(dtype_name);
    enum wire_codec codec = index_of(codec_name, codec_names, ARRAY_LEN(codec_names));
    enum wire_dtype dtype = index_of(dtype_name, dtype_names, ARRAY_LEN(dtype_names));
    size_t bytes = bytes_or_none(fields[3], elems);
    size_t stored_len = golden_hex(fields[4], stored);
    const char *yields = strcmp(fields[5], "=") == 0 ? fields[3] : fields[5];
    assert_int_equal(bytes_or_none(yields, want), bytes);

    check_decode(fields[1], codec, dtype, stored, stored_len, want, bytes);
    if (strcmp(fields[0], "both") == 0)
        check_encode(fields[1], codec, dtype, elems, bytes, stored, stored_len);
    else
        assert_string_equal(fields[0], "decode");
}

static void tensors_have_their_committed_bytes(void **state)
{
    (void)state;
    assert_int_equal(wire_codec_ctx_create(&ctx), 0);
    assert_true(golden_each(vectors_path, check_vector) >= 12);
    wire_codec_ctx_destroy(ctx);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tensors_have_their_committed_bytes)};
    if (argc != 2)
        return 2;
    vectors_path = argv[1];
    return cmocka_run_group_tests_name("golden/wire tensors", tests, NULL, NULL);
}
