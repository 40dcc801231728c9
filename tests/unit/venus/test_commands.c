/* Every command of the registry: client to server to fake driver and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sanitized.h"
#include "unit/venus/support/trip.h"

enum { ROUNDS = 24 };

static void run_all(enum trip_damage damage, uint64_t rounds)
{
    struct trip t;
    trip_init(&t);
    for (size_t i = 0; i < trip_test_count; i++) {
        for (uint64_t seed = 0; seed < rounds; seed++) {
            const char *problem = trip_run(&t, &trip_tests[i], seed, damage);
            if (problem)
                fail_msg("%s, seed %d: %s", trip_tests[i].name, (int)seed, problem);
        }
    }
    trip_fini(&t);
}

static void test_every_command_reaches_the_driver_and_answers(void **state)
{
    (void)state;
    run_all(TRIP_WHOLE, ROUNDS);
}

static void test_every_cut_is_refused_before_the_driver(void **state)
{
    (void)state;
    run_all(TRIP_CUT, 2);
}

static void test_no_changed_byte_leads_out_of_bounds(void **state)
{
    (void)state;
    run_all(TRIP_FLIP, SANITIZED ? 1 : 2); /* fuzz_venus_dec goes on */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_command_reaches_the_driver_and_answers),
        cmocka_unit_test(test_every_cut_is_refused_before_the_driver),
        cmocka_unit_test(test_no_changed_byte_leads_out_of_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
