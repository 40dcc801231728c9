#include "unit.h"

#include "kv/common/spin.h"

static struct kv_spin spin_of(uint32_t cores, uint32_t crowd)
{
    return (struct kv_spin){.mode = RPC_WAIT_ADAPTIVE, .cores = cores, .crowd = crowd};
}

/* How long a wait in which nothing comes spins, looking every microsecond. */
static uint64_t fruitless(struct kv_spin *s, uint64_t *now)
{
    uint64_t start = *now;
    while (kv_spin_on(s, *now))
        *now += HW_US;
    return *now - start;
}

static void without_a_second_core_nobody_spins(void **state)
{
    (void)state;
    struct kv_spin s = spin_of(1, 2);
    uint64_t now = HW_SEC;
    for (int i = 0; i < 100; i++)
        assert_int_equal(fruitless(&s, &now), 0);
}

static void how_long_a_spin_lasts_follows_from_the_crowd(void **state)
{
    (void)state;
    struct kv_spin roomy = spin_of(16, 16), crowded = spin_of(16, 40), small = spin_of(4, 5);
    uint64_t now = HW_SEC;
    uint64_t alone = fruitless(&roomy, &now), many = fruitless(&crowded, &now);
    assert_true(alone > 0 && many > alone); /* as long as waking all the others may take */
    assert_int_equal(fruitless(&small, &now), alone);
    struct kv_spin throng = spin_of(4, 17), wide_throng = spin_of(16, 65);
    assert_in_range(fruitless(&throng, &now), 1, alone - 1);
    assert_true(fruitless(&wide_throng, &now) > many); /* on many cores it pays */
}

static void fruitless_spins_become_rare(void **state)
{
    (void)state;
    struct kv_spin s = spin_of(2, 2);
    uint64_t now = 16 * HW_SEC; /* the start of a window */
    int spins = 0;
    for (int i = 0; i < 100; i++)
        spins += fruitless(&s, &now) > 0;
    assert_in_range(spins, 2, 8);
}

static void success_keeps_it_going(void **state)
{
    (void)state;
    struct kv_spin s = spin_of(2, 2);
    uint64_t now = 16 * HW_SEC;
    for (int i = 0; i < 1000; i++) {
        assert_true(kv_spin_on(&s, now++));
        kv_spin_won(&s);
    }
}

/* Else a crowd that once went to sleep would never find out that it need not. */
static void all_is_forgiven_after_a_while(void **state)
{
    (void)state;
    struct kv_spin s = spin_of(2, 2);
    uint64_t now = 16 * HW_SEC;
    for (int i = 0; i < 100; i++)
        (void)fruitless(&s, &now);
    assert_int_equal(fruitless(&s, &now), 0);
    now += 20 * HW_MS;
    assert_true(fruitless(&s, &now) > 0);
}

static void an_interrupted_spin_counts_double(void **state)
{
    (void)state;
    struct kv_spin s = spin_of(2, 2);
    assert_true(kv_spin_on(&s, 16 * HW_SEC));
    assert_false(kv_spin_on(&s, 16 * HW_SEC + HW_MS));
    assert_int_equal(s.distrust, 2);
}

/* Who has the floor is answered at once or has lost it: what went before says nothing about it. */
static void who_has_the_floor_spins_each_time_but_briefly(void **state)
{
    (void)state;
    struct kv_spin s = spin_of(2, 3), crowded = s;
    uint64_t now = 16 * HW_SEC;
    uint64_t many = fruitless(&crowded, &now);
    s.floor = 1;
    for (int i = 0; i < 100; i++)
        assert_in_range(fruitless(&s, &now), 1, many - 1);
    s.floor = 0;
    assert_int_equal(fruitless(&s, &now), 0);
}

/* One wake-up of another, or a request of each of them, comes before the answer. */
static void who_shares_the_floor_spins_for_as_long_as_the_others_may_take(void **state)
{
    (void)state;
    struct kv_spin alone = spin_of(16, 65), shared = spin_of(16, 65);
    uint64_t now = 16 * HW_SEC;
    alone.floor = 1;
    shared.floor = 8;
    uint64_t brief = fruitless(&alone, &now);
    assert_in_range(fruitless(&shared, &now), 7 * brief, 9 * brief);
}

static void the_other_modes_do_as_they_say(void **state)
{
    (void)state;
    struct kv_spin s;
    kv_spin_init(&s, RPC_WAIT_BLOCK);
    assert_false(kv_spin_on(&s, 1));
    kv_spin_init(&s, RPC_WAIT_BUSY);
    for (uint64_t now = 0; now < HW_SEC; now += 100 * HW_MS)
        assert_true(kv_spin_on(&s, now));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_second_core_nobody_spins),
        cmocka_unit_test(how_long_a_spin_lasts_follows_from_the_crowd),
        cmocka_unit_test(fruitless_spins_become_rare),
        cmocka_unit_test(success_keeps_it_going),
        cmocka_unit_test(all_is_forgiven_after_a_while),
        cmocka_unit_test(an_interrupted_spin_counts_double),
        cmocka_unit_test(who_has_the_floor_spins_each_time_but_briefly),
        cmocka_unit_test(who_shares_the_floor_spins_for_as_long_as_the_others_may_take),
        cmocka_unit_test(the_other_modes_do_as_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
