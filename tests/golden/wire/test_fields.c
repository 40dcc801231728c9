/* fields.txt: what is put gives the committed bytes, and the bytes give it back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden.h"
#include "wire/dec.h"
#include "wire/enc.h"

static const char *vectors_path;

/* The text after the kind, when op is of that kind: "u8:7" is of kind "u8:". */
static const char *arg_of(const char *op, const char *kind)
{
    size_t n = strlen(kind);
    return strncmp(op, kind, n) == 0 ? op + n : NULL;
}

static uint64_t number(const char *text)
{
    return text[0] == '-' ? (uint64_t)strtoll(text, NULL, 0) : strtoull(text, NULL, 0);
}

static float f32_of(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float f;
    memcpy(&f, &low, sizeof(f));
    return f;
}

static double f64_of(uint64_t bits)
{
    double f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static void put_number(struct wire_enc *e, const char *op)
{
    const char *a;
    if ((a = arg_of(op, "u8:")))
        wire_put_u8(e, (uint8_t)number(a));
    else if ((a = arg_of(op, "u16:")))
        wire_put_u16(e, (uint16_t)number(a));
    else if ((a = arg_of(op, "u32:")))
        wire_put_u32(e, (uint32_t)number(a));
    else if ((a = arg_of(op, "u64:")))
        wire_put_u64(e, number(a));
    else if ((a = arg_of(op, "i32:")))
        wire_put_i32(e, (int32_t)number(a));
    else if ((a = arg_of(op, "i64:")))
        wire_put_i64(e, (int64_t)number(a));
    else if ((a = arg_of(op, "f32:")))
        wire_put_f32(e, f32_of(number(a)));
    else if ((a = arg_of(op, "f64:")))
        wire_put_f64(e, f64_of(number(a)));
    else if ((a = arg_of(op, "varint:")))
        wire_put_varint(e, number(a));
    else
        fail_msg("no such field: %s", op);
}

static void put(struct wire_enc *e, const char *op)
{
    uint8_t bytes[GOLDEN_BYTES_MAX];
    const char *a;
    if ((a = arg_of(op, "bytes:")))
        wire_put_bytes(e, bytes, golden_hex(a, bytes));
    else if ((a = arg_of(op, "blob:")))
        wire_put_blob(e, bytes, golden_hex(a, bytes));
    else if ((a = arg_of(op, "str:")))
        wire_put_str(e, a);
    else
        put_number(e, op);
}

static void check_number(struct wire_dec *d, const char *op)
{
    const char *a;
    if ((a = arg_of(op, "u8:")))
        assert_int_equal(wire_get_u8(d), number(a));
    else if ((a = arg_of(op, "u16:")))
        assert_int_equal(wire_get_u16(d), number(a));
    else if ((a = arg_of(op, "u32:")))
        assert_int_equal(wire_get_u32(d), number(a));
    else if ((a = arg_of(op, "u64:")))
        assert_int_equal(wire_get_u64(d), number(a));
    else if ((a = arg_of(op, "i32:")))
        assert_int_equal(wire_get_i32(d), (int64_t)number(a));
    else if ((a = arg_of(op, "i64:")))
        assert_int_equal(wire_get_i64(d), number(a));
    else if ((a = arg_of(op, "varint:")))
        assert_int_equal(wire_get_varint(d), number(a));
    else
        fail_msg("no such field: %s", op);
}

static void check_f32(struct wire_dec *d, uint64_t bits)
{
    float want = f32_of(bits), got = wire_get_f32(d);
    assert_memory_equal(&got, &want, sizeof(want));
}

static void check_f64(struct wire_dec *d, uint64_t bits)
{
    double want = f64_of(bits), got = wire_get_f64(d);
    assert_memory_equal(&got, &want, sizeof(want));
}

static void check(struct wire_dec *d, const char *op)
{
    uint8_t want[GOLDEN_BYTES_MAX];
    size_t len;
    const char *a;
    if ((a = arg_of(op, "bytes:"))) {
        size_t n = golden_hex(a, want);
        golden_equal(op, wire_get_bytes(d, n), n, want, n);
    } else if ((a = arg_of(op, "blob:"))) {
        const uint8_t *got = wire_get_blob(d, GOLDEN_BYTES_MAX, &len);
        golden_equal(op, got, len, want, golden_hex(a, want));
    } else if ((a = arg_of(op, "str:"))) {
        const char *got = wire_get_str(d, WIRE_STR_MAX, &len);
        golden_equal(op, (const uint8_t *)got, len, (const uint8_t *)a, strlen(a));
    } else if ((a = arg_of(op, "f32:"))) {
        check_f32(d, number(a));
    } else if ((a = arg_of(op, "f64:"))) {
        check_f64(d, number(a));
    } else {
        check_number(d, op);
    }
}

/* Braces nest; what stands between them is put, then its length. */
static void put_all(struct wire_enc *e, char **save)
{
    for (char *op; (op = strtok_r(NULL, " ", save));) {
        if (strcmp(op, "}") == 0)
            return;
        if (strcmp(op, "len{") != 0) {
            put(e, op);
            continue;
        }
        size_t hole = wire_put_hole_u32(e);
        put_all(e, save);
        wire_fill_len(e, hole);
    }
}

static void check_all(struct wire_dec *d, char **save)
{
    for (char *op; (op = strtok_r(NULL, " ", save));) {
        if (strcmp(op, "}") == 0)
            return;
        if (strcmp(op, "len{") != 0) {
            check(d, op);
            continue;
        }
        size_t len = wire_get_u32(d);
        size_t after = wire_dec_left(d) - len;
        check_all(d, save);
        assert_int_equal(wire_dec_left(d), after);
    }
}

static void check_vector(char *fields[], size_t count)
{
    uint8_t want[GOLDEN_BYTES_MAX];
    assert_int_equal(count, 3);
    size_t want_len = golden_hex(fields[2], want);

    char *puts = strdup(fields[1]), *save = puts;
    struct wire_enc e;
    wire_enc_init(&e, GOLDEN_BYTES_MAX);
    put_all(&e, &save);
    assert_int_equal(wire_enc_error(&e), 0);
    golden_equal(fields[0], wire_enc_data(&e), wire_enc_len(&e), want, want_len);
    wire_enc_fini(&e);
    free(puts);

    struct wire_dec d;
    wire_dec_init(&d, want, want_len);
    save = fields[1];
    check_all(&d, &save);
    assert_int_equal(wire_dec_end(&d), 0);
}

static void fields_have_their_committed_bytes(void **state)
{
    (void)state;
    assert_true(golden_each(vectors_path, check_vector) >= 15);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fields_have_their_committed_bytes)};
    if (argc != 2)
        return 2;
    vectors_path = argv[1];
    return cmocka_run_group_tests_name("golden/wire fields", tests, NULL, NULL);
}
