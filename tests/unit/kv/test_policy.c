/* Which block goes: order, second chances, scans, ghosts, and those that are held. */
#include "unit.h"

#include "base/rng.h"
#include "kv/store/policy.h"

#include <string.h>

enum { ITEMS = 64 };

static bool held_items[ITEMS];

static bool is_held(void *user, uint32_t item)
{
    (void)user;
    return held_items[item];
}

static struct kv_policy *create(enum kv_policy_kind kind)
{
    struct kv_policy *p = NULL;
    struct kv_memory heap = kv_heap();
    memset(held_items, 0, sizeof(held_items));
    assert_int_equal(kv_policy_create(kind, ITEMS, &heap, &p), 0);
    return p;
}

static uint32_t evict(struct kv_policy *p)
{
    return kv_policy_evict(p, is_held, NULL);
}

static void add(struct kv_policy *p, uint32_t item)
{
    kv_policy_add(p, item, (item + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15), 1);
}

static void lru_lets_go_of_what_was_used_longest_ago(void **state)
{
    (void)state;
    struct kv_policy *p = create(KV_POLICY_LRU);
    for (uint32_t i = 0; i < 4; i++)
        add(p, i);
    kv_policy_use(p, 0);
    kv_policy_remove(p, 2);
    assert_int_equal(evict(p), 1);
    assert_int_equal(evict(p), 3);
    assert_int_equal(evict(p), 0);
    assert_int_equal(evict(p), KV_POLICY_NONE);
    kv_policy_destroy(p);
}

/* Blocks that are used again and again, and a scan of blocks that are used once. */
static uint32_t survivors_of_a_scan(enum kv_policy_kind kind)
{
    enum { HOT = 10, CAPACITY = 32 };
    struct kv_policy *p = create(kind);
    uint32_t count = 0, alive = 0;
    for (uint32_t i = 0; i < HOT; i++, count++)
        add(p, i);
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < HOT; i++)
            kv_policy_use(p, i);
    bool in[ITEMS] = {0};
    memset(in, 1, HOT);
    for (uint32_t n = 0; n < 45; n++) { /* items 10 to 63 in turn, none used twice */
        uint32_t item = HOT + n % (ITEMS - HOT);
        add(p, item);
        in[item] = true;
        if (++count > CAPACITY) {
            in[evict(p)] = false;
            count--;
        }
    }
    for (uint32_t i = 0; i < HOT; i++)
        alive += in[i];
    kv_policy_destroy(p);
    return alive;
}

static void a_scan_pushes_all_out_of_lru_only(void **state)
{
    (void)state;
    assert_int_equal(survivors_of_a_scan(KV_POLICY_LRU), 0);
    assert_int_equal(survivors_of_a_scan(KV_POLICY_S3FIFO), 10);
}

static void who_comes_back_soon_goes_to_the_main_queue(void **state)
{
    (void)state;
    struct kv_policy *p = create(KV_POLICY_S3FIFO);
    for (uint32_t i = 0; i < 20; i++)
        add(p, i);
    for (uint32_t i = 1; i < 10; i++)
        kv_policy_use(p, i); /* these will be in the main queue */
    assert_int_equal(evict(p), 0);
    assert_int_equal(evict(p), 10); /* 1 to 9 were moved */
    add(p, 0);                      /* remembered: behind them in the main queue */
    for (int i = 0; i < 18; i++)
        assert_int_not_equal(evict(p), 0);
    assert_int_equal(evict(p), 0); /* the main queue's last outlives the first queue */
    kv_policy_destroy(p);
}

static void held_items_stay(void **state)
{
    (void)state;
    for (int kind = 0; kind < KV_POLICY_KINDS; kind++) {
        struct kv_policy *p = create((enum kv_policy_kind)kind);
        for (uint32_t i = 0; i < ITEMS; i++) {
            add(p, i);
            held_items[i] = i != 40;
        }
        assert_int_equal(evict(p), 40);
        assert_int_equal(evict(p), KV_POLICY_NONE);
        held_items[7] = false;
        assert_int_equal(evict(p), 7);
        kv_policy_destroy(p);
    }
}

/* Whatever is done to it, each item that is in comes out exactly once. */
static void every_item_comes_out_once(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct kv_policy *p = create((enum kv_policy_kind)(seed % KV_POLICY_KINDS));
        struct hw_rng rng;
        bool in[ITEMS] = {0};
        uint32_t count = 0, at;
        hw_rng_seed(&rng, seed);
        for (int i = 0; i < 400; i++) {
            at = (uint32_t)hw_rng_below(&rng, ITEMS);
            if (!in[at]) {
                kv_policy_add(p, at, hw_rng_below(&rng, 90) << 32, 1 + hw_rng_below(&rng, 9));
                in[at] = true;
                count++;
            } else if (hw_rng_below(&rng, 3)) {
                kv_policy_use(p, at);
            } else if (hw_rng_below(&rng, 2)) {
                kv_policy_remove(p, at);
                in[at] = false;
                count--;
            } else {
                at = evict(p);
                assert_true(at < ITEMS && in[at]);
                in[at] = false;
                count--;
            }
        }
        for (; count > 0; count--) {
            at = evict(p);
            assert_true(at < ITEMS && in[at]);
            in[at] = false;
        }
        assert_int_equal(evict(p), KV_POLICY_NONE);
        kv_policy_destroy(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lru_lets_go_of_what_was_used_longest_ago),
        cmocka_unit_test(a_scan_pushes_all_out_of_lru_only),
        cmocka_unit_test(who_comes_back_soon_goes_to_the_main_queue),
        cmocka_unit_test(held_items_stay),
        cmocka_unit_test(every_item_comes_out_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
