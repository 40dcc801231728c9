/* Arrays that grow. */
#include "unit.h"

#include "base/grow.h"

static void an_array_grows_and_keeps_what_it_has(void **state)
{
    (void)state;
    uint32_t *items = NULL;
    size_t room = 0, moves = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        size_t before = room;
        assert_true(hw_grow(&items, &room, i + 1, sizeof *items));
        assert_true(room > i && room >= before);
        moves += room != before;
        items[i] = i;
    }
    for (uint32_t i = 0; i < 100000; i++)
        assert_int_equal(items[i], i);
    assert_true(moves < 20); /* it doubles */
    free(items);
}

static void what_nobody_has_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    uint64_t *items = NULL;
    size_t room = 0;
    assert_true(hw_grow(&items, &room, 3, sizeof *items));
    uint64_t *before = items;
    size_t room_before = room;
    assert_false(hw_grow(&items, &room, SIZE_MAX, sizeof *items)); /* its bytes do not fit */
    assert_ptr_equal(items, before);
    assert_int_equal(room, room_before);
    assert_true(hw_grow(&items, &room, 0, sizeof *items));
    free(items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_array_grows_and_keeps_what_it_has),
        cmocka_unit_test(what_nobody_has_is_refused_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
