#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "wire/dec.h"
#include "wire/enc.h"

struct sample {
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    int32_t i32;
    int64_t i64;
    float f32;
    double f64;
    uint64_t varint;
    char bytes[3];
    size_t blob_len;
    char str[8];
    uint32_t count;
    uint16_t elems[3];
};

static const struct sample sample = {
    .u8 = 0xa5,
    .u16 = 0x1234,
    .u32 = 0xdeadbeef,
    .u64 = UINT64_C(0x0123456789abcdef),
    .i32 = -2,
    .i64 = INT64_MIN,
    .f32 = -1.5f,
    .f64 = 0.1,
    .varint = UINT64_MAX,
    .bytes = {'x', 'y', 'z'},
    .blob_len = 4,
    .str = "name",
    .count = 3,
    .elems = {7, 8, 9},
};

static void put_sample(struct wire_enc *e)
{
    wire_put_u8(e, sample.u8);
    wire_put_u16(e, sample.u16);
    wire_put_u32(e, sample.u32);
    wire_put_u64(e, sample.u64);
    wire_put_i32(e, sample.i32);
    wire_put_i64(e, sample.i64);
    wire_put_f32(e, sample.f32);
    wire_put_f64(e, sample.f64);
    wire_put_varint(e, sample.varint);
    wire_put_bytes(e, sample.bytes, 3);
    wire_put_blob(e, "blob", 4);
    wire_put_str(e, sample.str);
    wire_put_u32(e, sample.count);
    for (size_t i = 0; i < 3; i++)
        wire_put_u16(e, sample.elems[i]);
}

static void get_sample(struct wire_dec *d, struct sample *s)
{
    memset(s, 0, sizeof(*s));
    s->u8 = wire_get_u8(d);
    s->u16 = wire_get_u16(d);
    s->u32 = wire_get_u32(d);
    s->u64 = wire_get_u64(d);
    s->i32 = wire_get_i32(d);
    s->i64 = wire_get_i64(d);
    s->f32 = wire_get_f32(d);
    s->f64 = wire_get_f64(d);
    s->varint = wire_get_varint(d);
    wire_get_copy(d, s->bytes, 3);
    const uint8_t *blob = wire_get_blob(d, 16, &s->blob_len);
    assert_true(!blob == (wire_dec_error(d) != 0));
    wire_get_str_copy(d, s->str, sizeof(s->str));
    s->count = wire_dec_count(d, 2, 3);
    for (uint32_t i = 0; i < s->count; i++)
        s->elems[i] = wire_get_u16(d);
}

static void every_get_returns_what_was_put(void **state)
{
    (void)state;
    uint8_t buf[256];
    struct wire_enc e;
    wire_enc_init_fixed(&e, buf, sizeof(buf));
    put_sample(&e);
    struct wire_dec d;
    struct sample got;
    wire_dec_init(&d, buf, wire_enc_len(&e));
    get_sample(&d, &got);
    assert_int_equal(wire_dec_end(&d), 0);
    assert_int_equal(got.u8, sample.u8);
    assert_int_equal(got.u16, sample.u16);
    assert_int_equal(got.u32, sample.u32);
    assert_int_equal(got.u64, sample.u64);
    assert_int_equal(got.i32, sample.i32);
    assert_int_equal(got.i64, sample.i64);
    assert_true(got.f32 == sample.f32 && got.f64 == sample.f64);
    assert_int_equal(got.varint, sample.varint);
    assert_memory_equal(got.bytes, sample.bytes, 3);
    assert_int_equal(got.blob_len, sample.blob_len);
    assert_string_equal(got.str, sample.str);
    assert_int_equal(got.count, sample.count);
    assert_memory_equal(got.elems, sample.elems, sizeof(got.elems));
}

/* Each prefix lies in memory of exactly its length, so that a sanitizer sees one byte too far. */
static void truncation_at_every_byte_is_an_error_that_yields_zeros(void **state)
{
    (void)state;
    uint8_t buf[256];
    struct wire_enc e;
    wire_enc_init_fixed(&e, buf, sizeof(buf));
    put_sample(&e);
    for (size_t len = 0; len < wire_enc_len(&e); len++) {
        uint8_t *part = malloc(len ? len : 1);
        assert_non_null(part);
        memcpy(part, buf, len);
        struct wire_dec d;
        struct sample got;
        wire_dec_init(&d, part, len);
        get_sample(&d, &got);
        assert_int_equal(wire_dec_end(&d), -EPROTO);
        assert_int_equal(wire_dec_left(&d), 0);
        assert_int_equal(wire_get_u64(&d), 0);
        assert_int_equal(got.elems[2], 0);
        free(part);
    }
}

static void a_get_fails_at_every_length_short_of_its_own(void **state)
{
    (void)state;
    static const uint8_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (size_t len = 0; len <= 8; len++) {
        struct wire_dec d;
        wire_dec_init(&d, ones, len);
        assert_int_equal(wire_get_u8(&d), len >= 1 ? 1 : 0);
        assert_int_equal(wire_dec_error(&d), len >= 1 ? 0 : -EPROTO);
        wire_dec_init(&d, ones, len);
        assert_int_equal(wire_get_u16(&d), len >= 2 ? 0x0101 : 0);
        assert_int_equal(wire_dec_error(&d), len >= 2 ? 0 : -EPROTO);
        wire_dec_init(&d, ones, len);
        assert_int_equal(wire_get_u32(&d), len >= 4 ? 0x01010101 : 0);
        assert_int_equal(wire_dec_error(&d), len >= 4 ? 0 : -EPROTO);
        wire_dec_init(&d, ones, len);
        assert_int_equal(wire_get_u64(&d), len >= 8 ? UINT64_C(0x0101010101010101) : 0);
        assert_int_equal(wire_dec_error(&d), len >= 8 ? 0 : -EPROTO);
    }
}

static void the_first_error_sticks(void **state)
{
    (void)state;
    uint8_t bytes[16] = {9};
    struct wire_dec d;
    wire_dec_init(&d, bytes, sizeof(bytes));
    assert_int_equal(wire_get_u8(&d), 9);
    wire_dec_fail(&d, -EMSGSIZE);
    wire_dec_fail(&d, -EPROTO);
    assert_int_equal(wire_get_u8(&d), 0);
    assert_null(wire_get_bytes(&d, 0));
    assert_int_equal(wire_get_varint(&d), 0);
    uint8_t copy[2] = {1, 1};
    wire_get_copy(&d, copy, 2);
    assert_int_equal(copy[0] | copy[1], 0);
    assert_int_equal(wire_dec_end(&d), -EMSGSIZE);
}

static void bytes_left_over_are_an_error(void **state)
{
    (void)state;
    struct wire_dec d;
    wire_dec_init(&d, "ab", 2);
    (void)wire_get_u8(&d);
    assert_int_equal(wire_dec_error(&d), 0);
    assert_int_equal(wire_dec_end(&d), -EPROTO);
    (void)wire_get_u8(&d);
    assert_int_equal(wire_dec_end(&d), 0);
}

static void an_empty_input_is_complete(void **state)
{
    (void)state;
    struct wire_dec d;
    wire_dec_init(&d, NULL, 0);
    assert_non_null(wire_get_bytes(&d, 0));
    assert_int_equal(wire_dec_end(&d), 0);
}

static void varints_of_every_width_return(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t values[] = {UINT64_C(1) << bit, (UINT64_C(1) << bit) - 1, UINT64_MAX >> bit};
        for (size_t i = 0; i < ARRAY_LEN(values); i++) {
            uint8_t buf[WIRE_VARINT_MAX];
            struct wire_enc e;
            struct wire_dec d;
            wire_enc_init_fixed(&e, buf, sizeof(buf));
            wire_put_varint(&e, values[i]);
            wire_dec_init(&d, buf, wire_enc_len(&e));
            assert_int_equal(wire_get_varint(&d), values[i]);
            assert_int_equal(wire_dec_end(&d), 0);
        }
    }
}

static void varints_that_are_not_canonical_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
    } bad[] = {
        {"\x80", 1},                                          /* unfinished */
        {"\x80\x00", 2},                                      /* 0 in two bytes */
        {"\xff\x80\x00", 3},                                  /* 127 in three */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10},     /* bit 64 */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10},     /* bits 64 to 69 */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x81\x00", 11}, /* an eleventh byte */
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 10},     /* 0 in ten */
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct wire_dec d;
        wire_dec_init(&d, bad[i].bytes, bad[i].len);
        assert_int_equal(wire_get_varint(&d), 0);
        assert_int_equal(wire_dec_error(&d), -EPROTO);
    }
}

static void a_count_is_held_against_what_remains(void **state)
{
    (void)state;
    static const struct {
        uint32_t count;
        size_t elem;
        uint32_t limit;
        int error;
    } cases[] = {
        {0, 8, 0, 0},
        {2, 4, 2, 0},
        {3, 4, 3, -EPROTO},
        {8, 1, 7, -EMSGSIZE},
        {UINT32_MAX, 1, UINT32_MAX, -EPROTO},
        {UINT32_C(1) << 29, 8, UINT32_MAX, -EPROTO}, /* the product is 0 modulo 2^32 */
        {2, SIZE_MAX / 2 + 1, UINT32_MAX, -EPROTO},  /* and here modulo 2^64 */
        {1000, 0, 1000, 0},
        {1001, 0, 1000, -EMSGSIZE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t buf[12] = {0}; /* the count, then 8 bytes */
        wire_store32(buf, cases[i].count);
        struct wire_dec d;
        wire_dec_init(&d, buf, sizeof(buf));
        uint32_t n = wire_dec_count(&d, cases[i].elem, cases[i].limit);
        assert_int_equal(wire_dec_error(&d), cases[i].error);
        assert_int_equal(n, cases[i].error ? 0 : cases[i].count);
    }
}

static void blobs_obey_limit_and_input(void **state)
{
    (void)state;
    struct wire_dec d;
    size_t len = 99;
    wire_dec_init(&d,
                  "\x03"
                  "abc",
                  4);
    const uint8_t *p = wire_get_blob(&d, 3, &len);
    assert_non_null(p);
    assert_int_equal(len, 3);
    assert_memory_equal(p, "abc", 3);

    wire_dec_init(&d,
                  "\x03"
                  "abc",
                  4);
    assert_null(wire_get_blob(&d, 2, &len));
    assert_int_equal(len, 0);
    assert_int_equal(wire_dec_error(&d), -EMSGSIZE);

    wire_dec_init(&d,
                  "\x04"
                  "abc",
                  4);
    assert_null(wire_get_blob(&d, 100, &len));
    assert_int_equal(wire_dec_error(&d), -EPROTO);

    wire_dec_init(&d, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10);
    assert_null(wire_get_blob(&d, SIZE_MAX, &len));
    assert_int_equal(wire_dec_error(&d), -EPROTO);

    wire_dec_init(&d, "\x00", 1);
    assert_non_null(wire_get_blob(&d, 0, &len));
    assert_int_equal(len, 0);
    assert_int_equal(wire_dec_end(&d), 0);
}

static void strings_hold_no_nul_and_fit_their_buffer(void **state)
{
    (void)state;
    struct wire_dec d;
    size_t len;
    char dst[4] = "zzz";
    wire_dec_init(&d,
                  "\x03"
                  "a\0b",
                  4);
    assert_null(wire_get_str(&d, 10, &len));
    assert_int_equal(len, 0);
    assert_int_equal(wire_dec_error(&d), -EPROTO);

    wire_dec_init(&d,
                  "\x03"
                  "abc",
                  4);
    wire_get_str_copy(&d, dst, sizeof(dst));
    assert_string_equal(dst, "abc");
    assert_int_equal(wire_dec_end(&d), 0);

    wire_dec_init(&d,
                  "\x04"
                  "abcd",
                  5);
    wire_get_str_copy(&d, dst, sizeof(dst));
    assert_string_equal(dst, "");
    assert_int_equal(wire_dec_error(&d), -EMSGSIZE);
}

static void a_part_cannot_read_past_its_end(void **state)
{
    (void)state;
    struct wire_dec d, part;
    wire_dec_init(&d, "abcdef", 6);
    part = wire_dec_sub(&d, 2);
    assert_int_equal(wire_get_u32(&part), 0);
    assert_int_equal(wire_dec_end(&part), -EPROTO);
    assert_int_equal(wire_dec_error(&d), 0);
    assert_int_equal(wire_get_u8(&d), 'c');
    part = wire_dec_sub(&d, 4);
    assert_int_equal(wire_dec_error(&part), -EPROTO);
    assert_int_equal(wire_dec_error(&d), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_get_returns_what_was_put),
        cmocka_unit_test(truncation_at_every_byte_is_an_error_that_yields_zeros),
        cmocka_unit_test(a_get_fails_at_every_length_short_of_its_own),
        cmocka_unit_test(the_first_error_sticks),
        cmocka_unit_test(bytes_left_over_are_an_error),
        cmocka_unit_test(an_empty_input_is_complete),
        cmocka_unit_test(varints_of_every_width_return),
        cmocka_unit_test(varints_that_are_not_canonical_are_refused),
        cmocka_unit_test(a_count_is_held_against_what_remains),
        cmocka_unit_test(blobs_obey_limit_and_input),
        cmocka_unit_test(strings_hold_no_nul_and_fit_their_buffer),
        cmocka_unit_test(a_part_cannot_read_past_its_end),
    };
    return cmocka_run_group_tests_name("wire/dec", tests, NULL, NULL);
}
