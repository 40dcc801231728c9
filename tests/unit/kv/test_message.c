#include "unit.h"

#include "kv/message.h"

#include <errno.h>
#include <string.h>

static void a_join_comes_back_as_it_was(void **state)
{
    (void)state;
    uint8_t bytes[KV_JOIN_BYTES];
    struct kv_join join = {.ranks = 4, .daemons = 2, .rank = 3, .index = 1, .incarnation = 99};
    struct kv_join got;
    kv_join_encode(&join, bytes);
    assert_int_equal(kv_join_decode(bytes, sizeof(bytes), &got), 0);
    assert_memory_equal(&got, &join, sizeof(got));
    assert_int_equal(kv_join_decode(bytes, sizeof(bytes) - 1, &got), -EPROTO);
    join.rank = 4;
    kv_join_encode(&join, bytes);
    assert_int_equal(kv_join_decode(bytes, sizeof(bytes), &got), -EPROTO);
    bytes[0]++;
    assert_int_equal(kv_join_decode(bytes, sizeof(bytes), &got), -EPROTONOSUPPORT);
}

static void requests_are_taken_apart(void **state)
{
    (void)state;
    uint8_t bytes[KV_KEY_BYTES + 4];
    struct kv_remote_request r;
    kv_key_encode((struct kv_key){.hi = 7, .lo = 8}, bytes);
    memcpy(bytes + KV_KEY_BYTES, "data", 4);
    assert_int_equal(kv_remote_request_decode(KV_METHOD_PUT, bytes, sizeof(bytes), &r), 0);
    assert_int_equal(r.op, KV_PUT);
    assert_int_equal(r.key.hi, 7);
    assert_int_equal(r.key.lo, 8);
    assert_int_equal(r.value_len, 4);
    assert_memory_equal(r.value, "data", 4);
    assert_int_equal(kv_remote_request_decode(KV_METHOD_GET, bytes, KV_KEY_BYTES, &r), 0);
    assert_int_equal(kv_remote_request_decode(KV_METHOD_GET, bytes, sizeof(bytes), &r), -EPROTO);
    assert_int_equal(kv_remote_request_decode(KV_METHOD_PUT, bytes, 15, &r), -EPROTO);
    assert_int_equal(kv_remote_request_decode(0, bytes, KV_KEY_BYTES, &r), -EPROTO);
    assert_int_equal(kv_remote_request_decode(KV_OP_END, bytes, KV_KEY_BYTES, &r), -EPROTO);
}

static void no_result_can_stand_for_another(void **state)
{
    (void)state;
    struct kv_remote_answer a;
    for (int result = 0; result < 256; result++) {
        uint8_t bytes[3] = {(uint8_t)result, 'v', 'w'};
        bool takes = result == KV_OK || result == KV_MISS || result == KV_FULL ||
                     result == KV_TOO_LARGE || result == KV_REFUSED;
        assert_int_equal(kv_remote_answer_decode(bytes, 1, &a), takes ? 0 : -EPROTO);
        assert_int_equal(kv_remote_answer_decode(bytes, 3, &a), result == KV_OK ? 0 : -EPROTO);
    }
    assert_int_equal(kv_remote_answer_decode(NULL, 0, &a), -EPROTO);
    assert_int_equal(kv_result_of_status(-ETIMEDOUT, true), KV_TIMEOUT);
    assert_int_equal(kv_result_of_status(-ETIMEDOUT, false), KV_PEER_LOST);
    assert_int_equal(kv_result_of_status(-ECONNRESET, false), KV_PEER_LOST);
    assert_int_equal(kv_result_of_status(-EINVAL, true), KV_REFUSED);
}

static void every_result_and_operation_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i < KV_RESULT_COUNT; i++)
        assert_string_not_equal(kv_result_name((enum kv_result)i), "?");
    assert_string_equal(kv_result_name(KV_RESULT_COUNT), "?");
    assert_string_equal(kv_op_name(KV_DELETE), "delete");
    assert_string_equal(kv_op_name(KV_OP_END), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_join_comes_back_as_it_was),
        cmocka_unit_test(requests_are_taken_apart),
        cmocka_unit_test(no_result_can_stand_for_another),
        cmocka_unit_test(every_result_and_operation_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
