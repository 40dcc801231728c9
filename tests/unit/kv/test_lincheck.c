/* The checker itself: a checker that accepts everything would make every simulation pass. */
#include "lincheck.h"
#include "unit.h"

static void check(struct lin_op *ops, uint32_t count, bool verdict)
{
    assert_int_equal(lin_check(ops, count), verdict);
}

static void a_read_after_a_write_sees_it(void **state)
{
    (void)state;
    struct lin_op good[] = {{LIN_WRITE, 1, 2, 7}, {LIN_READ, 3, 4, 7}};
    struct lin_op stale[] = {{LIN_WRITE, 1, 2, 7}, {LIN_READ, 3, 4, LIN_ABSENT}};
    struct lin_op future[] = {{LIN_READ, 1, 2, 7}, {LIN_WRITE, 3, 4, 7}};
    check(good, 2, true);
    check(stale, 2, false);
    check(future, 2, false);
}

static void operations_at_the_same_time_may_go_either_way(void **state)
{
    (void)state;
    struct lin_op before[] = {{LIN_WRITE, 1, 5, 7}, {LIN_READ, 2, 4, LIN_ABSENT}};
    struct lin_op after[] = {{LIN_WRITE, 1, 5, 7}, {LIN_READ, 2, 4, 7}};
    check(before, 2, true);
    check(after, 2, true);
}

static void a_value_does_not_flicker(void **state)
{
    (void)state;
    struct lin_op back[] = {
        {LIN_WRITE, 1, 2, 7}, {LIN_WRITE, 3, 9, 8}, {LIN_READ, 4, 5, 8}, {LIN_READ, 6, 7, 7}};
    check(back, 4, false);
}

static void an_unknown_write_may_happen_late_or_never_but_not_twice(void **state)
{
    (void)state;
    struct lin_op never[] = {{LIN_WRITE, 1, LIN_NEVER, 7}, {LIN_READ, 8, 9, LIN_ABSENT}};
    struct lin_op late[] = {
        {LIN_WRITE, 1, LIN_NEVER, 7}, {LIN_READ, 4, 5, LIN_ABSENT}, {LIN_READ, 8, 9, 7}};
    struct lin_op twice[] = {{LIN_WRITE, 1, LIN_NEVER, 7},
                             {LIN_READ, 4, 5, 7},
                             {LIN_REMOVE, 6, 7, 1},
                             {LIN_READ, 8, 9, 7}};
    check(never, 2, true);
    check(late, 3, true);
    check(twice, 4, false);
}

static void removing_tells_whether_it_was_there(void **state)
{
    (void)state;
    struct lin_op there[] = {{LIN_WRITE, 1, 2, 7}, {LIN_REMOVE, 3, 4, 1}, {LIN_REMOVE, 5, 6, 0}};
    struct lin_op missed[] = {{LIN_WRITE, 1, 2, 7}, {LIN_REMOVE, 3, 4, 0}};
    check(there, 3, true);
    check(missed, 2, false);
}

static void a_restart_forgets_at_its_moment_only(void **state)
{
    (void)state;
    struct lin_op good[] = {
        {LIN_WRITE, 1, 2, 7}, {LIN_RESET, 3, 3, 0}, {LIN_READ, 4, 5, LIN_ABSENT}};
    struct lin_op kept[] = {{LIN_WRITE, 1, 2, 7}, {LIN_RESET, 3, 3, 0}, {LIN_READ, 4, 5, 7}};
    struct lin_op early[] = {
        {LIN_WRITE, 1, 2, 7}, {LIN_READ, 3, 4, LIN_ABSENT}, {LIN_RESET, 5, 5, 0}};
    check(good, 3, true);
    check(kept, 3, false);
    check(early, 3, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_after_a_write_sees_it),
        cmocka_unit_test(operations_at_the_same_time_may_go_either_way),
        cmocka_unit_test(a_value_does_not_flicker),
        cmocka_unit_test(an_unknown_write_may_happen_late_or_never_but_not_twice),
        cmocka_unit_test(removing_tells_whether_it_was_there),
        cmocka_unit_test(a_restart_forgets_at_its_moment_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
