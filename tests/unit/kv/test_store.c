#include "unit.h"

#include "base/rng.h"
#include "kv/store/store.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 4000, ENTRIES = 200, MODEL_KEYS = 300, STEPS = 60000 };

static struct kv_store *create(uint64_t bytes, uint32_t entries)
{
    struct kv_store_config config = {
        .bytes = bytes, .entries = entries, .value_max = 1000, .secret = 42, .memory = kv_heap()};
    struct kv_store *s = NULL;
    assert_int_equal(kv_store_create(&config, &s), 0);
    return s;
}

/* The reference: an array indexed by the key. */
struct model {
    uint8_t values[MODEL_KEYS][128];
    uint32_t len[MODEL_KEYS];
    bool used[MODEL_KEYS];
    uint32_t count;
    uint64_t bytes;
};

static void model_put(struct model *m, struct kv_store *s, uint64_t k, struct hw_rng *rng)
{
    uint8_t value[128];
    uint32_t len = (uint32_t)hw_rng_below(rng, sizeof(value) + 1);
    memset(value, (int)hw_rng_below(rng, 256), len);
    uint64_t after = m->bytes - (m->used[k] ? m->len[k] : 0) + len;
    bool fits = after <= BYTES && (m->used[k] || m->count < ENTRIES);
    assert_int_equal(kv_store_put(s, kv_key_u64(k), value, len), fits ? KV_OK : KV_FULL);
    if (!fits)
        return;
    m->count += !m->used[k];
    m->bytes = after;
    m->used[k] = true;
    m->len[k] = len;
    memcpy(m->values[k], value, len);
}

static void model_delete(struct model *m, struct kv_store *s, uint64_t k)
{
    assert_int_equal(kv_store_delete(s, kv_key_u64(k)), m->used[k] ? KV_OK : KV_MISS);
    if (!m->used[k])
        return;
    m->used[k] = false;
    m->count--;
    m->bytes -= m->len[k];
}

static void model_get(struct model *m, struct kv_store *s, uint64_t k)
{
    const void *value = NULL;
    uint32_t len = 0;
    assert_int_equal(kv_store_get(s, kv_key_u64(k), &value, &len), m->used[k] ? KV_OK : KV_MISS);
    if (m->used[k]) {
        assert_int_equal(len, m->len[k]);
        assert_memory_equal(value, m->values[k], len);
    }
}

static void behaves_like_an_array_by_key(void **state)
{
    (void)state;
    static struct model m;
    struct kv_store *s = create(BYTES, ENTRIES);
    struct hw_rng rng;
    hw_rng_seed(&rng, 7);
    for (int i = 0; i < STEPS; i++) {
        uint64_t k = hw_rng_below(&rng, MODEL_KEYS);
        switch (hw_rng_below(&rng, 5)) {
        case 0:
        case 1:
            model_put(&m, s, k, &rng);
            break;
        case 2:
            model_delete(&m, s, k);
            break;
        default:
            model_get(&m, s, k);
        }
        assert_int_equal(kv_store_count(s), m.count);
        assert_int_equal(kv_store_bytes(s), m.bytes);
    }
    for (uint64_t k = 0; k < MODEL_KEYS; k++)
        model_get(&m, s, k);
    kv_store_destroy(s);
}

static void keys_are_compared_whole(void **state)
{
    (void)state;
    struct kv_store *s = create(1000, 16);
    struct kv_key a = {.hi = 1, .lo = 2}, b = {.hi = 2, .lo = 2}, c = {.hi = 1, .lo = 1};
    const void *value;
    uint32_t len;
    assert_int_equal(kv_store_put(s, a, "a", 1), KV_OK);
    assert_int_equal(kv_store_get(s, b, &value, &len), KV_MISS);
    assert_int_equal(kv_store_get(s, c, &value, &len), KV_MISS);
    kv_store_destroy(s);
}

static void limits_are_exact(void **state)
{
    (void)state;
    struct kv_store *s = create(1500, 16);
    char value[1001] = {0};
    assert_int_equal(kv_store_put(s, kv_key_u64(1), value, 1001), KV_TOO_LARGE);
    assert_int_equal(kv_store_put(s, kv_key_u64(1), value, 1000), KV_OK);
    assert_int_equal(kv_store_put(s, kv_key_u64(2), value, 501), KV_FULL);
    assert_int_equal(kv_store_put(s, kv_key_u64(2), value, 500), KV_OK);
    assert_int_equal(kv_store_put(s, kv_key_u64(1), value, 1000), KV_OK); /* its own room counts */
    kv_store_destroy(s);
    s = create(1000, 16);
    for (uint64_t i = 0; i < 16; i++)
        assert_int_equal(kv_store_put(s, kv_key_u64(i), "", 0), KV_OK);
    assert_int_equal(kv_store_put(s, kv_key_u64(16), "", 0), KV_FULL);
    assert_int_equal(kv_store_put(s, kv_key_u64(3), "x", 1), KV_OK);
    kv_store_destroy(s);
}

/* ---- out of memory ---- */

static int allocations_left;

static void *scarce(void *user, size_t bytes)
{
    (void)user;
    return allocations_left-- > 0 ? calloc(1, bytes) : NULL;
}

static void running_out_of_memory_changes_nothing(void **state)
{
    (void)state;
    struct kv_store_config config = {.bytes = 100000,
                                     .entries = 16,
                                     .value_max = 1000,
                                     .memory = {.alloc = scarce, .release = kv_heap_release}};
    struct kv_store *s;
    for (int n = 0; n < 2; n++) {
        allocations_left = n;
        assert_int_equal(kv_store_create(&config, &s), -ENOMEM);
    }
    allocations_left = 3;
    assert_int_equal(kv_store_create(&config, &s), 0);
    char value[600];
    memset(value, 'v', sizeof(value));
    assert_int_equal(kv_store_put(s, kv_key_u64(1), value, 500), KV_OK);
    assert_int_equal(kv_store_put(s, kv_key_u64(1), value, 600), KV_FULL);
    assert_int_equal(kv_store_put(s, kv_key_u64(2), value, 600), KV_FULL);
    const void *got;
    uint32_t len;
    assert_int_equal(kv_store_get(s, kv_key_u64(1), &got, &len), KV_OK);
    assert_int_equal(len, 500);
    assert_memory_equal(got, value, 500);
    assert_int_equal(kv_store_get(s, kv_key_u64(2), &got, &len), KV_MISS);
    kv_store_destroy(s);
}

static void bad_configurations_are_refused(void **state)
{
    (void)state;
    struct kv_store *s;
    struct kv_store_config config = {.entries = 0, .value_max = 10, .memory = kv_heap()};
    assert_int_equal(kv_store_create(&config, &s), -EINVAL);
    config.entries = 10;
    config.value_max = KV_VALUE_MAX + 1;
    assert_int_equal(kv_store_create(&config, &s), -EINVAL);
}

static void every_rank_and_daemon_gets_its_share_of_keys(void **state)
{
    (void)state;
    enum { KEYS = 60000 };
    for (uint32_t ranks = 1; ranks <= 5; ranks++) {
        for (uint32_t daemons = 1; daemons <= 4; daemons++) {
            uint32_t counts[5][4] = {{0}};
            for (uint64_t k = 0; k < KEYS; k++) {
                struct kv_place p = kv_place_of(kv_key_u64(k), ranks, daemons);
                assert_true(p.rank < ranks && p.daemon < daemons);
                counts[p.rank][p.daemon]++;
            }
            uint32_t fair = KEYS / (ranks * daemons);
            for (uint32_t r = 0; r < ranks; r++)
                for (uint32_t d = 0; d < daemons; d++)
                    assert_in_range(counts[r][d], fair - fair / 10, fair + fair / 10);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(behaves_like_an_array_by_key),
        cmocka_unit_test(keys_are_compared_whole),
        cmocka_unit_test(limits_are_exact),
        cmocka_unit_test(running_out_of_memory_changes_nothing),
        cmocka_unit_test(bad_configurations_are_refused),
        cmocka_unit_test(every_rank_and_daemon_gets_its_share_of_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
