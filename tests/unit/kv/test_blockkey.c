/* Names of blocks: the same bytes on every machine, and different for whatever differs. */
#include "unit.h"

#include "kv/common/blockkey.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const uint32_t tokens[600] = {1, 2, 3, 0xffffffff, 5};

static void made_keys_have_golden_bytes(void **state)
{
    (void)state;
    static const char golden[] = "7a0fd9d207c42d7fcb81c8a3a05398080700000000000000"
                                 "78cc3caad4d10eb52043ccd89f7cfd3860997b1a18c26a422512247bfd4e3d70";
    struct kv_prefix first = kv_prefix_next((struct kv_prefix){0}, tokens, 5);
    struct kv_prefix second = kv_prefix_next(first, tokens, 600);
    struct kv_block_key key = kv_block_key_make("gpt-j-6b", "f16 28x16x256 512", 7, second);
    char hex[2 * KV_BLOCK_KEY_MAX + 1];
    for (int i = 0; i < key.len; i++)
        snprintf(hex + 2 * i, 3, "%02x", key.bytes[i]);
    assert_int_equal(key.len, KV_BLOCK_KEY_MADE);
    assert_string_equal(hex, golden);
}

static void whatever_differs_changes_the_key(void **state)
{
    (void)state;
    struct kv_prefix none = {0};
    struct kv_prefix p = kv_prefix_next(none, tokens, 5), q = kv_prefix_next(none, tokens, 4);
    struct kv_prefix r = kv_prefix_next(p, tokens, 5);
    struct kv_block_key keys[] = {
        kv_block_key_make("m", "l", 1, p),    kv_block_key_make("n", "l", 1, p),
        kv_block_key_make("m", "k", 1, p),    kv_block_key_make("m", "l", 2, p),
        kv_block_key_make("m", "l", 1, q),    kv_block_key_make("m", "l", 1, r),
        kv_block_key_make("m", "l", 1, none),
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        for (size_t k = 0; k < ARRAY_LEN(keys); k++)
            assert_int_equal(kv_block_key_equal(&keys[i], &keys[k]), i == k);
}

static void keys_have_one_to_64_bytes(void **state)
{
    (void)state;
    struct kv_block_key a, b;
    char bytes[KV_BLOCK_KEY_MAX + 1] = "x";
    assert_int_equal(kv_block_key_set(&a, bytes, 0), -EINVAL);
    assert_int_equal(kv_block_key_set(&a, bytes, KV_BLOCK_KEY_MAX + 1), -EINVAL);
    assert_int_equal(kv_block_key_set(&a, bytes, KV_BLOCK_KEY_MAX), 0);
    assert_int_equal(kv_block_key_set(&b, bytes, KV_BLOCK_KEY_MAX - 1), 0);
    assert_false(kv_block_key_equal(&a, &b)); /* the same bytes, another length */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(made_keys_have_golden_bytes),
        cmocka_unit_test(whatever_differs_changes_the_key),
        cmocka_unit_test(keys_have_one_to_64_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
