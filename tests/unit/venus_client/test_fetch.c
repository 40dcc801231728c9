/* When memory of which little changes is fetched, not compared: by the link's round trip. */
#include "rig.h"

#include "base/clock.h"
#include "venus/client/memory/fetch.h"

uint64_t __wrap_vnc_link_quickest_ns(const struct vnc_link *link);

static uint64_t round_trip_ns;

uint64_t __wrap_vnc_link_quickest_ns(const struct vnc_link *link)
{
    (void)link;
    return round_trip_ns;
}

static const uint64_t few = 16 << 20, many = 64 << 20;

/* After so many comparisons of the bytes, which found this. */
static bool pays(struct rig *rig, uint64_t ns, uint64_t bytes, uint64_t comparisons,
                 uint64_t changed)
{
    struct vnc_memory memory = {
        .device = rig->device, .compared = comparisons * bytes, .changed = changed};
    round_trip_ns = ns;
    return vnc_fetch_pays_now(&memory, bytes);
}

static void near_a_round_trip_is_cheaper_than_comparing(void **state)
{
    assert_true(pays(*state, 50 * HW_US, few, 4, 4096));
    assert_false(pays(*state, 10 * HW_MS, few, 4, 4096));
    assert_true(pays(*state, 10 * HW_MS, many, 4, 4096));
}

static void what_changes_is_compared(void **state)
{
    assert_false(pays(*state, 50 * HW_US, few, 3, 4096));
    assert_false(pays(*state, 50 * HW_US, few, 4, few));
    assert_false(pays(*state, 50 * HW_US, 1 << 20, 4, 4096));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(near_a_round_trip_is_cheaper_than_comparing, rig_start,
                                        rig_end),
        cmocka_unit_test_setup_teardown(what_changes_is_compared, rig_start, rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
