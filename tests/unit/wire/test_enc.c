#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "wire/enc.h"

static bool no_memory;

void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n)
{
    return no_memory ? NULL : __real_realloc(p, n);
}

static void assert_bytes(const struct wire_enc *e, const char *bytes, size_t n)
{
    assert_int_equal(wire_enc_error(e), 0);
    assert_int_equal(wire_enc_len(e), n);
    assert_memory_equal(wire_enc_data(e), bytes, n);
}

/* Every put once, in an order that leaves most of them unaligned. */
static void put_everything(struct wire_enc *e)
{
    size_t outer = wire_put_hole_u32(e);
    wire_put_u8(e, 0xa5);
    wire_put_u16(e, 0x1234);
    size_t inner = wire_put_hole_u32(e);
    wire_put_u32(e, 0xdeadbeef);
    wire_put_u64(e, UINT64_C(0x0123456789abcdef));
    wire_fill_len(e, inner);
    wire_put_i32(e, -2);
    wire_put_i64(e, INT64_MIN);
    wire_put_f32(e, -1.5f);
    wire_put_f64(e, 0.1);
    wire_put_varint(e, 300);
    wire_put_bytes(e, "xyz", 3);
    wire_put_blob(e, "blob", 4);
    wire_put_str(e, "name");
    wire_fill_len(e, outer);
}

static void fixed_width_puts_are_little_endian(void **state)
{
    (void)state;
    uint8_t buf[32];
    struct wire_enc e;
    wire_enc_init_fixed(&e, buf, sizeof(buf));
    wire_put_u8(&e, 0x01);
    wire_put_u16(&e, 0x0302);
    wire_put_u32(&e, 0x07060504);
    wire_put_u64(&e, UINT64_C(0x0f0e0d0c0b0a0908));
    wire_put_i32(&e, -2);
    wire_put_i64(&e, -3);
    assert_bytes(&e,
                 "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
                 "\xfe\xff\xff\xff\xfd\xff\xff\xff\xff\xff\xff\xff",
                 27);
}

static void floats_keep_their_bits(void **state)
{
    (void)state;
    uint8_t buf[12];
    struct wire_enc e;
    wire_enc_init_fixed(&e, buf, sizeof(buf));
    wire_put_f32(&e, -1.5f);
    wire_put_f64(&e, 1.0);
    assert_bytes(&e, "\x00\x00\xc0\xbf\x00\x00\x00\x00\x00\x00\xf0\x3f", 12);
}

static void varints_are_as_short_as_their_value(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++) {
        uint8_t buf[WIRE_VARINT_MAX];
        struct wire_enc e;
        wire_enc_init_fixed(&e, buf, sizeof(buf));
        wire_put_varint(&e, UINT64_C(1) << bit);
        assert_int_equal(wire_enc_error(&e), 0);
        assert_int_equal(wire_enc_len(&e), bit / 7 + 1);
    }
}

static void holes_nest_and_survive_growth(void **state)
{
    (void)state;
    struct wire_enc e;
    wire_enc_init(&e, 1 << 20);
    size_t outer = wire_put_hole_u32(&e);
    size_t inner = wire_put_hole_u32(&e);
    for (uint32_t i = 0; i < 1000; i++)
        wire_put_u32(&e, i);
    wire_fill_len(&e, inner);
    size_t marker = wire_put_hole_u32(&e);
    wire_fill_len(&e, outer);
    wire_fill_u32(&e, marker, 77);
    assert_int_equal(wire_enc_error(&e), 0);
    assert_int_equal(wire_load32(wire_enc_data(&e)), 4 + 4000 + 4);
    assert_int_equal(wire_load32(wire_enc_data(&e) + 4), 4000);
    assert_int_equal(wire_load32(wire_enc_data(&e) + 8 + 4000), 77);
    wire_enc_fini(&e);
}

static void a_message_is_refused_at_every_size_short_of_its_own(void **state)
{
    (void)state;
    struct wire_enc whole;
    wire_enc_init(&whole, 4096);
    put_everything(&whole);
    size_t len = wire_enc_len(&whole);
    assert_int_equal(wire_enc_error(&whole), 0);

    for (size_t max = 0; max <= len; max++) {
        struct wire_enc growing, fixed;
        uint8_t *buf = malloc(max + 1);
        assert_non_null(buf);
        buf[max] = 0x5a;
        wire_enc_init(&growing, max);
        wire_enc_init_fixed(&fixed, buf, max);
        put_everything(&growing);
        put_everything(&fixed);
        assert_int_equal(wire_enc_error(&growing), max < len ? -EMSGSIZE : 0);
        assert_int_equal(wire_enc_error(&fixed), max < len ? -EMSGSIZE : 0);
        assert_true(wire_enc_len(&growing) <= max);
        assert_int_equal(buf[max], 0x5a);
        wire_enc_fini(&growing);
        wire_enc_fini(&fixed);
        free(buf);
    }
    wire_enc_fini(&whole);
}

static void growing_and_fixed_write_the_same(void **state)
{
    (void)state;
    uint8_t buf[256];
    struct wire_enc growing, fixed;
    wire_enc_init(&growing, sizeof(buf));
    wire_enc_init_fixed(&fixed, buf, sizeof(buf));
    put_everything(&growing);
    put_everything(&fixed);
    assert_bytes(&growing, (const char *)buf, wire_enc_len(&fixed));
    wire_enc_fini(&growing);
}

static void an_error_sticks_until_reset(void **state)
{
    (void)state;
    struct wire_enc e;
    wire_enc_init(&e, 6);
    wire_put_u32(&e, 1);
    wire_put_u32(&e, 2);
    assert_int_equal(wire_enc_error(&e), -EMSGSIZE);
    wire_put_u8(&e, 3); /* would fit */
    wire_enc_fail(&e, -EIO);
    assert_int_equal(wire_enc_error(&e), -EMSGSIZE);
    assert_int_equal(wire_enc_len(&e), 4);
    assert_null(wire_enc_space(&e, 1));
    wire_enc_trim(&e, 0);
    wire_fill_u32(&e, 100, 0);
    wire_fill_len(&e, 100);
    assert_false(wire_enc_room(&e, 0));

    wire_enc_reset(&e);
    wire_put_u16(&e, 0x0201);
    assert_bytes(&e, "\x01\x02", 2);
    wire_enc_fini(&e);
}

static void no_memory_sticks(void **state)
{
    (void)state;
    struct wire_enc e;
    wire_enc_init(&e, 4096);
    no_memory = true;
    wire_put_u32(&e, 1);
    no_memory = false;
    wire_put_u32(&e, 2);
    assert_int_equal(wire_enc_error(&e), -ENOMEM);
    assert_int_equal(wire_enc_len(&e), 0);

    wire_enc_reset(&e);
    for (int i = 0; i < 256; i++)
        wire_put_u8(&e, (uint8_t)i);
    no_memory = true;
    wire_put_u8(&e, 0);
    no_memory = false;
    assert_int_equal(wire_enc_error(&e), -ENOMEM);
    assert_int_equal(wire_enc_len(&e), 256);
    wire_enc_fini(&e);
}

static void trim_forgets_the_tail(void **state)
{
    (void)state;
    struct wire_enc e;
    wire_enc_init(&e, 64);
    wire_put_u32(&e, 0x04030201);
    wire_put_u64(&e, 9);
    wire_enc_trim(&e, 4);
    wire_put_u8(&e, 5);
    assert_bytes(&e, "\x01\x02\x03\x04\x05", 5);
    wire_enc_fini(&e);
}

static void space_is_the_callers_to_fill(void **state)
{
    (void)state;
    struct wire_enc e;
    wire_enc_init(&e, 64);
    assert_true(wire_enc_room(&e, 64));
    uint8_t *p = wire_enc_space(&e, 3);
    assert_non_null(p);
    memcpy(p, "abc", 3);
    assert_bytes(&e, "abc", 3);
    assert_null(wire_enc_space(&e, SIZE_MAX));
    assert_int_equal(wire_enc_error(&e), -EMSGSIZE);
    wire_enc_fini(&e);
}

static void a_string_past_the_limit_is_refused(void **state)
{
    (void)state;
    char s[WIRE_STR_MAX + 2];
    memset(s, 'a', sizeof(s));
    s[WIRE_STR_MAX] = '\0';
    struct wire_enc e;
    wire_enc_init(&e, 1 << 20);
    wire_put_str(&e, s);
    assert_int_equal(wire_enc_error(&e), 0);
    s[WIRE_STR_MAX] = 'a';
    s[WIRE_STR_MAX + 1] = '\0';
    wire_put_str(&e, s);
    assert_int_equal(wire_enc_error(&e), -EMSGSIZE);
    wire_enc_fini(&e);
}

static void nothing_put_is_an_empty_message(void **state)
{
    (void)state;
    struct wire_enc e;
    wire_enc_init_fixed(&e, NULL, 0);
    wire_put_bytes(&e, NULL, 0);
    assert_bytes(&e, "", 0);
    wire_enc_init(&e, 16);
    wire_put_bytes(&e, NULL, 0);
    wire_enc_trim(&e, 0);
    assert_bytes(&e, "", 0);
    wire_enc_fini(&e);
    wire_enc_fini(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_width_puts_are_little_endian),
        cmocka_unit_test(floats_keep_their_bits),
        cmocka_unit_test(varints_are_as_short_as_their_value),
        cmocka_unit_test(holes_nest_and_survive_growth),
        cmocka_unit_test(a_message_is_refused_at_every_size_short_of_its_own),
        cmocka_unit_test(growing_and_fixed_write_the_same),
        cmocka_unit_test(an_error_sticks_until_reset),
        cmocka_unit_test(no_memory_sticks),
        cmocka_unit_test(trim_forgets_the_tail),
        cmocka_unit_test(space_is_the_callers_to_fill),
        cmocka_unit_test(a_string_past_the_limit_is_refused),
        cmocka_unit_test(nothing_put_is_an_empty_message),
    };
    return cmocka_run_group_tests_name("wire/enc", tests, NULL, NULL);
}
