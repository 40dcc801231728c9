#include "unit.h"

#include <stdlib.h>

#include "base/visible.h"

static const char variable[] = "HAWSER_VISIBLE_DEVICES";
static const uint8_t one[HW_UUID_BYTES] = {0x01, 0xab}, two[HW_UUID_BYTES] = {0x02},
                     three[HW_UUID_BYTES] = {0x03};

static void all_may_be_used_unless_some_are_chosen(void **state)
{
    (void)state;
    assert_int_equal(unsetenv(variable), 0);
    assert_false(hw_visible_are_chosen());
    assert_int_equal(hw_visible_place(three), 0);
    assert_int_equal(setenv(variable, "", 1), 0);
    assert_false(hw_visible_are_chosen());
}

static void those_that_are_chosen_have_an_order(void **state)
{
    (void)state;
    uint8_t chosen[2][HW_UUID_BYTES] = {{0x02}, {0x01, 0xab}};
    assert_int_equal(hw_visible_choose(chosen, 2), 0);
    assert_true(hw_visible_are_chosen());
    assert_string_equal(getenv(variable),
                        "02000000000000000000000000000000,01ab0000000000000000000000000000");
    assert_int_equal(hw_visible_place(two), 0);
    assert_int_equal(hw_visible_place(one), 1);
    assert_int_equal(hw_visible_place(three), -1);
}

static void what_is_no_uuid_names_no_device(void **state)
{
    (void)state;
    assert_int_equal(setenv(variable, "x,,01AB0000000000000000000000000000,02", 1), 0);
    assert_int_equal(hw_visible_place(one), 2);
    assert_int_equal(hw_visible_place(two), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_may_be_used_unless_some_are_chosen),
        cmocka_unit_test(those_that_are_chosen_have_an_order),
        cmocka_unit_test(what_is_no_uuid_names_no_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
