#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/tokens.h"

static const uint32_t sample[] = {0, 1, 127, 128, 16383, 16384, 151935, UINT32_MAX};

static void tokens_return_in_order_and_ids_take_few_bytes(void **state)
{
    (void)state;
    uint8_t buf[64];
    uint32_t got[ARRAY_LEN(sample)];
    struct wire_enc e;
    struct wire_dec d;
    wire_enc_init_fixed(&e, buf, sizeof(buf));
    wire_put_tokens(&e, sample, ARRAY_LEN(sample));
    assert_int_equal(wire_enc_error(&e), 0);
    assert_int_equal(wire_enc_len(&e), 4 + 1 + 1 + 1 + 2 + 2 + 3 + 3 + 5);
    wire_dec_init(&d, buf, wire_enc_len(&e));
    assert_int_equal(wire_get_token_count(&d, 100), ARRAY_LEN(sample));
    wire_get_tokens(&d, got, ARRAY_LEN(sample));
    assert_int_equal(wire_dec_end(&d), 0);
    assert_memory_equal(got, sample, sizeof(sample));
}

static void more_tokens_than_the_limit_or_the_input_are_refused(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {3, 0, 0, 0, 1, 2};
    struct wire_dec d;
    wire_dec_init(&d, bytes, sizeof(bytes));
    assert_int_equal(wire_get_token_count(&d, 2), 0);
    assert_int_equal(wire_dec_error(&d), -EMSGSIZE);
    wire_dec_init(&d, bytes, sizeof(bytes));
    assert_int_equal(wire_get_token_count(&d, 3), 0);
    assert_int_equal(wire_dec_error(&d), -EPROTO);

    struct wire_enc e;
    wire_enc_init(&e, 1024);
    wire_put_tokens(&e, sample, WIRE_TOKENS_MAX + 1);
    assert_int_equal(wire_enc_error(&e), -EMSGSIZE);
    wire_enc_fini(&e);
}

static void an_id_past_32_bits_is_refused(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {2, 0, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x10, 5};
    uint32_t got[2] = {1, 1};
    struct wire_dec d;
    wire_dec_init(&d, bytes, sizeof(bytes));
    assert_int_equal(wire_get_token_count(&d, 2), 2);
    wire_get_tokens(&d, got, 2);
    assert_int_equal(wire_dec_error(&d), -EPROTO);
    assert_int_equal(got[0] | got[1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_return_in_order_and_ids_take_few_bytes),
        cmocka_unit_test(more_tokens_than_the_limit_or_the_input_are_refused),
        cmocka_unit_test(an_id_past_32_bits_is_refused),
    };
    return cmocka_run_group_tests_name("wire/tokens", tests, NULL, NULL);
}
