#include "unit.h"

#include <stdbool.h>

#include "base/attr.h"
#include "base/looks.h"

/* The peer is judged after 2 s of silence, by a judge who looks twice in a second. */
enum { LOOKS_A_WINDOW = 4 };
static const uint64_t window_ns = 2 * HW_SEC, every_ns = 500 * HW_MS, start_ns = HW_SEC;

struct judge {
    struct hw_looks looks;
    uint64_t now_ns, heard_ns;
};

static struct judge judge_of(uint64_t every)
{
    struct judge j = {.now_ns = start_ns, .heard_ns = start_ns};
    hw_looks_init(&j.looks, every, start_ns);
    return j;
}

/* Looks again after so long.  Whether the peer counts as silent. */
static bool is_silent_after(struct judge *j, uint64_t ns)
{
    j->now_ns += ns;
    return hw_looks_at(&j->looks, j->now_ns) - j->heard_ns >= window_ns;
}

static void all_time_counts_while_looks_are_on_time(void **state)
{
    (void)state;
    static const uint64_t sleeps[] = {10 * HW_MS, 500 * HW_MS, 510 * HW_MS, 750 * HW_MS};
    for (size_t i = 0; i < ARRAY_LEN(sleeps); i++) {
        struct judge j = judge_of(every_ns);
        while (!is_silent_after(&j, sleeps[i]))
            assert_true(j.now_ns - start_ns < window_ns);
        assert_true(j.now_ns - start_ns >= window_ns);
    }
}

static void a_pause_of_the_judge_is_not_the_peers_silence(void **state)
{
    (void)state;
    static const uint64_t pauses[] = {751 * HW_MS, 2 * HW_SEC, 40 * HW_SEC, 3600 * HW_SEC};
    for (size_t i = 0; i < ARRAY_LEN(pauses); i++) {
        struct judge j = judge_of(every_ns);
        assert_false(is_silent_after(&j, pauses[i]));
        uint64_t woke_ns = j.now_ns;
        while (!is_silent_after(&j, every_ns))
            ;
        /* What is left of the window is the peer's, and no more. */
        assert_true(j.now_ns - woke_ns > window_ns - every_ns);
        assert_true(j.now_ns - woke_ns <= window_ns);
    }
}

/* Neither of the two gets the processor but for a moment now and then. */
static void a_starved_judge_takes_twice_as_many_looks(void **state)
{
    (void)state;
    struct judge j = judge_of(every_ns);
    int looks = 1;
    while (!is_silent_after(&j, 10 * HW_SEC))
        looks++;
    assert_int_equal(looks, 2 * LOOKS_A_WINDOW);
}

static void silence_before_and_after_a_pause_adds_up(void **state)
{
    (void)state;
    struct judge j = judge_of(every_ns);
    for (int i = 0; i < 3; i++)
        assert_false(is_silent_after(&j, every_ns));
    assert_false(is_silent_after(&j, HW_SEC * 60)); /* 1.75 s */
    assert_true(is_silent_after(&j, every_ns));
    /* A word makes all of it good. */
    j.heard_ns = hw_looks_at(&j.looks, j.now_ns);
    for (int i = 1; i < LOOKS_A_WINDOW; i++)
        assert_false(is_silent_after(&j, every_ns));
    assert_true(is_silent_after(&j, every_ns));
}

static void without_an_interval_all_time_counts(void **state)
{
    (void)state;
    struct judge j = judge_of(HW_NEVER);
    assert_false(is_silent_after(&j, window_ns - 1));
    assert_true(is_silent_after(&j, 1));
}

/* Two threads that look in turn may read clocks that differ a little. */
static void a_clock_that_steps_back_misses_nothing(void **state)
{
    (void)state;
    struct judge j = judge_of(every_ns);
    assert_false(is_silent_after(&j, every_ns));
    j.heard_ns = hw_looks_at(&j.looks, j.now_ns);
    j.now_ns -= 2;
    assert_false(is_silent_after(&j, 1));
    assert_int_equal(j.looks.missed_ns, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_time_counts_while_looks_are_on_time),
        cmocka_unit_test(a_pause_of_the_judge_is_not_the_peers_silence),
        cmocka_unit_test(a_starved_judge_takes_twice_as_many_looks),
        cmocka_unit_test(silence_before_and_after_a_pause_adds_up),
        cmocka_unit_test(without_an_interval_all_time_counts),
        cmocka_unit_test(a_clock_that_steps_back_misses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
