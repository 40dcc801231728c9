/* Commands, answers and infos as bytes: what is sent is what arrives, and nothing else is taken. */
#include "unit.h"

#include "page/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct page_command sent, got;
static struct page_answer told, heard;
static uint8_t bytes[PAGE_COMMAND_BYTES_MAX];

static size_t encode_command(void)
{
    struct wire_enc e;
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    page_command_encode(&sent, &e);
    assert_int_equal(wire_enc_error(&e), 0);
    return wire_enc_len(&e);
}

static size_t encode_answer(void)
{
    struct wire_enc e;
    wire_enc_init_fixed(&e, bytes, PAGE_ANSWER_BYTES_MAX);
    page_answer_encode(&told, &e);
    assert_int_equal(wire_enc_error(&e), 0);
    return wire_enc_len(&e);
}

static void command_bytes_are_these(void **state)
{
    (void)state;
    sent = (struct page_command){.epoch = 1, .seq = 2, .deadline = 3, .op = PAGE_OP_UNMAP};
    sent.count = 2;
    sent.ids[0] = 50;
    sent.ids[1] = 0x01020304;
    const uint8_t wanted[] = {1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0,  0, 0, 0, 3, 0, 0, 0,
                              0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 50, 0, 0, 0, 4, 3, 2, 1};
    assert_int_equal(encode_command(), sizeof wanted);
    assert_memory_equal(bytes, wanted, sizeof wanted);
}

static void the_largest_command_arrives(void **state)
{
    (void)state;
    sent = (struct page_command){.epoch = ~0ull, .seq = 9, .op = PAGE_OP_MAP};
    sent.count = PAGE_BATCH_MAX;
    for (uint32_t i = 0; i < PAGE_BATCH_MAX; i++)
        sent.ids[i] = i * 3;
    size_t len = encode_command();
    assert_int_equal(len, PAGE_COMMAND_BYTES_MAX);
    assert_int_equal(page_command_decode(bytes, len, &got), 0);
    assert_memory_equal(got.ids, sent.ids, sizeof got.ids);
    assert_int_equal(got.epoch, sent.epoch);
}

static void any_cut_and_any_excess_is_refused(void **state)
{
    (void)state;
    sent = (struct page_command){.op = PAGE_OP_MAP, .count = 3, .ids = {1, 2, 3}};
    size_t len = encode_command();
    for (size_t n = 0; n < len; n++)
        assert_int_equal(page_command_decode(bytes, n, &got), -EPROTO);
    assert_int_equal(page_command_decode(bytes, len + 1, &got), -EPROTO);
    bytes[29] = 0xff; /* a count of 65,283 that the bytes do not hold */
    assert_true(page_command_decode(bytes, len, &got) < 0);
    encode_command();
    bytes[24] = 9; /* no such operation */
    assert_int_equal(page_command_decode(bytes, len, &got), -EPROTO);
    sent.count = 0; /* a map of nothing */
    assert_int_equal(page_command_decode(bytes, encode_command(), &got), -EPROTO);
    sent = (struct page_command){.op = PAGE_OP_CANCEL, .count = 1}; /* a cancel of something */
    assert_int_equal(page_command_decode(bytes, encode_command(), &got), -EPROTO);
}

static void too_many_ids_are_told_apart_from_nonsense(void **state)
{
    (void)state;
    size_t len = 32 + 4 * (PAGE_BATCH_MAX + 1);
    uint8_t *big = calloc(1, len);
    assert_non_null(big);
    big[24] = PAGE_OP_MAP;
    wire_store32(big + 28, PAGE_BATCH_MAX + 1);
    assert_int_equal(page_command_decode(big, len, &got), -EMSGSIZE);
    free(big);
}

static void answers_carry_a_code_for_each_id_when_one_failed(void **state)
{
    (void)state;
    told = (struct page_answer){.began = 5, .ended = 7};
    told.outcome.count = 3;
    told.outcome.driver_ns = 11;
    assert_int_equal(page_answer_decode(bytes, encode_answer(), 3, &heard), 0);
    assert_int_equal(heard.outcome.count, 3);
    assert_int_equal(heard.outcome.codes[2], PAGE_DONE);
    assert_int_equal(heard.ended, 7);

    page_fail(&told.outcome.why, -EIO, 999, "cuMemMap: unknown error");
    memcpy(told.outcome.codes, (uint8_t[]){PAGE_SKIPPED, PAGE_DRIVER_ERROR, PAGE_SKIPPED}, 3);
    size_t len = encode_answer();
    assert_int_equal(page_answer_decode(bytes, len, 3, &heard), 0);
    assert_int_equal(heard.outcome.why.rc, -EIO);
    assert_int_equal(heard.outcome.why.driver, 999);
    assert_string_equal(heard.outcome.why.text, "cuMemMap: unknown error");
    assert_memory_equal(heard.outcome.codes, told.outcome.codes, 3);
    /* Not the number of ids that was asked about, and a code that is none. */
    assert_int_equal(page_answer_decode(bytes, len, 2, &heard), -EPROTO);
    bytes[len - 1] = PAGE_CODES;
    assert_int_equal(page_answer_decode(bytes, len, 3, &heard), -EPROTO);
    for (size_t n = 0; n < len; n++)
        assert_int_equal(page_answer_decode(bytes, n, 3, &heard), -EPROTO);
}

static void info_must_add_up(void **state)
{
    (void)state;
    struct page_info info = {.rank = 3, .backend = "host", .device = "main memory"}, back;
    struct page_error why;
    struct wire_enc e;
    assert_int_equal(
        page_geometry_init(&info.geometry, UINT64_C(1) << 30, 4, 2 << 20, PAGE_CONTIGUOUS, &why),
        0);
    info.mapped = info.geometry.pages;
    wire_enc_init_fixed(&e, bytes, PAGE_INFO_BYTES_MAX);
    page_info_encode(&info, &e);
    size_t len = wire_enc_len(&e);
    assert_int_equal(page_info_decode(bytes, len, &back), 0);
    assert_memory_equal(&back.geometry, &info.geometry, sizeof info.geometry);
    assert_string_equal(back.device, info.device);
    bytes[4]++; /* pages that the memory does not give */
    assert_int_equal(page_info_decode(bytes, len, &back), -EPROTO);
    for (size_t n = 0; n < len; n++)
        assert_int_equal(page_info_decode(bytes, n, &back), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_bytes_are_these),
        cmocka_unit_test(the_largest_command_arrives),
        cmocka_unit_test(any_cut_and_any_excess_is_refused),
        cmocka_unit_test(too_many_ids_are_told_apart_from_nonsense),
        cmocka_unit_test(answers_carry_a_code_for_each_id_when_one_failed),
        cmocka_unit_test(info_must_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
