/* Replaying traces: the optimum against every possible choice, and the store against the optimum.
 */
#include "../kv/unit.h"

#include "base/rng.h"
#include "bench/kvsim/replay.h"

#include <errno.h>
#include <string.h>

enum { LENGTH = 14, IDS = 5 };

/* The most hits that any choice can have from `at` on, by trying all of them. */
static uint64_t best(const struct kv_trace *t, uint32_t at, unsigned kept, uint32_t capacity)
{
    if (at == t->id_count)
        return 0;
    unsigned bit = 1u << t->ids[at];
    uint64_t hit = (kept & bit) != 0;
    uint64_t most = best(t, at + 1, kept, capacity); /* also: not keeping it */
    if (!hit && (uint32_t)__builtin_popcount(kept) < capacity)
        most = best(t, at + 1, kept | bit, capacity);
    for (unsigned gone = 1; !hit && gone < 1u << IDS; gone *= 2) {
        uint64_t other = kept & gone ? best(t, at + 1, (kept & ~gone) | bit, capacity) : 0;
        most = other > most ? other : most;
    }
    return hit + most;
}

static void the_optimum_is_the_best_of_all_choices(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        uint32_t ids[LENGTH], end = LENGTH, capacity = 1 + (uint32_t)(seed % 3);
        struct hw_rng rng;
        hw_rng_seed(&rng, seed);
        for (int i = 0; i < LENGTH; i++)
            ids[i] = (uint32_t)hw_rng_below(&rng, IDS);
        struct kv_trace trace = {ids, &end, LENGTH, 1};
        struct kv_replay_result r;
        assert_int_equal(kv_replay_optimum(&trace, capacity, &r), 0);
        assert_int_equal(r.hits, best(&trace, 0, 0, capacity));
    }
}

static void no_policy_beats_the_optimum(void **state)
{
    (void)state;
    enum { MANY = 3000 };
    static uint32_t ids[MANY];
    uint32_t ends[MANY / 10];
    struct hw_rng rng;
    hw_rng_seed(&rng, 1);
    for (uint32_t i = 0; i < MANY; i++) {
        ids[i] = (uint32_t)(hw_rng_below(&rng, 30) * hw_rng_below(&rng, 30));
        ends[i / 10] = i + 1;
    }
    struct kv_trace trace = {ids, ends, MANY, MANY / 10};
    struct kv_replay_result best_one, r;
    for (uint32_t capacity = 10; capacity <= 320; capacity *= 2) {
        assert_int_equal(kv_replay_optimum(&trace, capacity, &best_one), 0);
        for (int kind = 0; kind < KV_POLICY_KINDS; kind++) {
            assert_int_equal(kv_replay_store(&trace, (enum kv_policy_kind)kind, capacity, &r), 0);
            assert_true(r.hits > 0 && r.hits <= best_one.hits && r.prefix_hits <= r.hits);
        }
    }
}

static void a_store_that_holds_all_misses_each_block_once(void **state)
{
    (void)state;
    uint32_t ids[] = {0, 1, 2, 0, 1, 2, 0, 3, 2}, ends[] = {3, 6, 9};
    struct kv_trace trace = {ids, ends, 9, 3};
    struct kv_replay_result r;
    for (int kind = 0; kind < KV_POLICY_KINDS; kind++) {
        assert_int_equal(kv_replay_store(&trace, (enum kv_policy_kind)kind, 100, &r), 0);
        assert_int_equal(r.hits, 5);
        assert_int_equal(r.prefix_hits, 4); /* 3 was missing before the last 2 */
    }
    assert_int_equal(kv_replay_optimum(&trace, 100, &r), 0);
    assert_int_equal(r.hits, 5);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    uint32_t ids[] = {0, 1}, ends[] = {1}, over[] = {3}, high[] = {KV_TRACE_IDS_MAX}, one[] = {1};
    struct kv_replay_result r;
    struct kv_trace short_end = {ids, ends, 2, 1}, past = {ids, over, 2, 1}, id = {high, one, 1, 1};
    assert_int_equal(kv_replay_optimum(&short_end, 1, &r), -EINVAL);
    assert_int_equal(kv_replay_optimum(&past, 1, &r), -EINVAL);
    assert_int_equal(kv_replay_store(&id, KV_POLICY_LRU, 1, &r), -EINVAL);
    struct kv_trace good = {ids, one, 1, 1};
    assert_int_equal(kv_replay_store(&good, KV_POLICY_LRU, 0, &r), -EINVAL);
    assert_int_equal(kv_replay_store(&good, KV_POLICY_LRU, 1, &r), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_optimum_is_the_best_of_all_choices),
        cmocka_unit_test(no_policy_beats_the_optimum),
        cmocka_unit_test(a_store_that_holds_all_misses_each_block_once),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
