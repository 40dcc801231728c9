#include "unit.h"

#include "kv/common/message.h"
#include "kv/common/peerblock.h"

#include <errno.h>
#include <string.h>

static void a_join_comes_back_as_it_was(void **state)
{
    (void)state;
    uint8_t bytes[KV_JOIN_BYTES];
    struct kv_join join = {.ranks = 4,
                           .daemons = 2,
                           .rank = 3,
                           .index = 1,
                           .incarnation = 99,
                           .member = 7,
                           .copies = 2};
    struct kv_join got;
    kv_join_encode(&join, bytes);
    assert_int_equal(kv_join_decode(bytes, sizeof(bytes), &got), 0);
    assert_true(got.ranks == 4 && got.daemons == 2 && got.rank == 3 && got.index == 1);
    assert_true(got.incarnation == 99 && got.member == 7 && got.copies == 2);
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
    struct kv_value_request r;
    kv_key_encode((struct kv_key){.hi = 7, .lo = 8}, bytes);
    memcpy(bytes + KV_KEY_BYTES, "data", 4);
    assert_int_equal(kv_value_request_decode(KV_METHOD_PUT, bytes, sizeof(bytes), &r), 0);
    assert_int_equal(r.op, KV_PUT);
    assert_int_equal(r.key.hi, 7);
    assert_int_equal(r.key.lo, 8);
    assert_int_equal(r.value_len, 4);
    assert_memory_equal(r.value, "data", 4);
    assert_int_equal(kv_value_request_decode(KV_METHOD_GET, bytes, KV_KEY_BYTES, &r), 0);
    assert_int_equal(kv_value_request_decode(KV_METHOD_GET, bytes, sizeof(bytes), &r), -EPROTO);
    assert_int_equal(kv_value_request_decode(KV_METHOD_PUT, bytes, 15, &r), -EPROTO);
    assert_int_equal(kv_value_request_decode(0, bytes, KV_KEY_BYTES, &r), -EPROTO);
    assert_int_equal(kv_value_request_decode(KV_OP_END, bytes, KV_KEY_BYTES, &r), -EPROTO);
}

static void no_result_can_stand_for_another(void **state)
{
    (void)state;
    struct kv_value_answer a;
    for (int result = 0; result < 256; result++) {
        uint8_t bytes[3] = {(uint8_t)result, 'v', 'w'};
        bool takes = result == KV_OK || result == KV_MISS || result == KV_FULL ||
                     result == KV_TOO_LARGE || result == KV_REFUSED;
        assert_int_equal(kv_value_answer_decode(bytes, 1, &a), takes ? 0 : -EPROTO);
        assert_int_equal(kv_value_answer_decode(bytes, 3, &a), result == KV_OK ? 0 : -EPROTO);
    }
    assert_int_equal(kv_value_answer_decode(NULL, 0, &a), -EPROTO);
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
}

static void requests_about_blocks_are_laid_out_as_said(void **state)
{
    (void)state;
    uint8_t bytes[KV_PEER_HEAD_BYTES + 3 + 4] = {0};
    struct kv_block_key key = {.len = 2, .bytes = {'k', 'y'}}, keys[KV_BLOCK_CHAIN_MAX];
    struct kv_peer_request r = {.method = KV_PEER_EXISTS, .epoch = 1, .flag = true, .key_count = 1};
    static const uint8_t exists[KV_PEER_HEAD_BYTES + 3] = {
        [0] = 1, [40] = 1, [42] = 1, [44] = 2, [45] = 'k', [46] = 'y'};
    assert_int_equal(kv_peer_request_encode(&r, &key, bytes, sizeof(bytes)), sizeof(exists));
    assert_memory_equal(bytes, exists, sizeof(exists));
    assert_int_equal(kv_peer_request_decode(KV_PEER_EXISTS, bytes, sizeof(exists), &r, keys), 0);
    assert_true(r.epoch == 1 && r.flag && kv_block_key_equal(&keys[0], &key));
    for (size_t len = 0; len < sizeof(exists); len++)
        assert_int_equal(kv_peer_request_decode(KV_PEER_EXISTS, bytes, len, &r, keys), -EPROTO);
    assert_int_equal(kv_peer_request_decode(KV_PEER_READ, bytes, sizeof(exists), &r, keys),
                     -EPROTO);
    assert_int_equal(kv_peer_request_decode(KV_PEER_EXISTS, bytes, sizeof(bytes), &r, keys),
                     -EPROTO);
    assert_int_equal(kv_peer_request_encode(&r, &key, bytes, 46), -EMSGSIZE);
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(kv_peer_request_decode(KV_PEER_WRITE, bytes, sizeof(bytes), &r, keys), 0);
    assert_true(r.byte_count == 7 && r.bytes == bytes + KV_PEER_HEAD_BYTES);
    assert_int_equal(kv_peer_request_decode(KV_PEER_WRITE, bytes, KV_PEER_HEAD_BYTES, &r, keys),
                     -EPROTO);
    assert_int_equal(kv_peer_request_decode(KV_PEER_METHOD_END, bytes, 44, &r, keys), -EPROTO);
}

static void answers_about_blocks_are_told_apart(void **state)
{
    (void)state;
    struct kv_peer_answer a;
    uint8_t bytes[9] = {0};
    for (int result = 0; result < 256; result++) {
        bytes[0] = (uint8_t)result;
        bool takes = result < KV_RESULT_COUNT && result != KV_PEER_LOST && result != KV_TIMEOUT;
        bool stale = result == KV_PEER_STALE_VIEW;
        assert_int_equal(kv_peer_answer_decode(bytes, 1, &a), takes ? 0 : -EPROTO);
        assert_int_equal(kv_peer_answer_decode(bytes, 9, &a),
                         stale || result == KV_OK ? 0 : -EPROTO);
        assert_true(!stale || a.stale_view);
    }
    assert_int_equal(kv_peer_answer_decode(bytes, 0, &a), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_join_comes_back_as_it_was),
        cmocka_unit_test(requests_are_taken_apart),
        cmocka_unit_test(no_result_can_stand_for_another),
        cmocka_unit_test(requests_about_blocks_are_laid_out_as_said),
        cmocka_unit_test(answers_about_blocks_are_told_apart),
        cmocka_unit_test(every_result_and_operation_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
