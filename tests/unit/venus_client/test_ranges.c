/* What ranges are joined: those whose pages touch, but for pages that are filled. */
#include "unit.h"

#include "venus/client/record/ranges.h"
#include "venus/common/protocol.h"

enum { PAGE = 4096 };

static void add(struct vnc_ranges *ranges, uint64_t memory, uint64_t offset, uint64_t bytes,
                bool filled)
{
    struct vnc_range range = {memory, offset, bytes, filled, false};
    vnc_ranges_add_range(ranges, &range);
}

static void expect(const struct vnc_ranges *ranges, size_t i, uint64_t offset, uint64_t bytes,
                   bool filled)
{
    assert_true(i < ranges->count);
    assert_int_equal(ranges->items[i].offset, offset);
    assert_int_equal(ranges->items[i].bytes, bytes);
    assert_int_equal(ranges->items[i].filled, filled);
}

static void many_in_a_row_are_one(void **state)
{
    struct vnc_ranges r = {0};
    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        add(&r, 1, (i * 7919 % 1000) * 256, 64, true);
    vnc_ranges_merge(&r);
    assert_int_equal(r.count, 1);
    expect(&r, 0, 0, 999 * 256 + 64, false);
    vnc_ranges_fini(&r);
}

static void no_page_is_named_for_its_neighbours(void **state)
{
    struct vnc_ranges r = {0};
    (void)state;
    add(&r, 1, 10, 20, false);
    add(&r, 1, 2 * PAGE + 10, 20, false); /* a page lies between */
    add(&r, 1, 3 * PAGE, 1, false);
    add(&r, 2, 3 * PAGE, 1, false); /* of another memory */
    vnc_ranges_merge(&r);
    assert_int_equal(r.count, 3);
    expect(&r, 0, 10, 20, false);
    expect(&r, 1, 2 * PAGE + 10, PAGE - 10 + 1, false);
    expect(&r, 2, 3 * PAGE, 1, false);
    vnc_ranges_fini(&r);
}

static void filled_pages_stay_filled(void **state)
{
    struct vnc_ranges r = {0};
    (void)state;
    add(&r, 1, 0, 2 * PAGE - 8, true);
    add(&r, 1, 2 * PAGE, 4 * PAGE, true); /* eight bytes between them are not */
    add(&r, 1, 6 * PAGE + 8, 8, false);
    add(&r, 1, 6 * PAGE + 32, 8, false);
    vnc_ranges_merge(&r);
    assert_int_equal(r.count, 3);
    expect(&r, 0, 0, 2 * PAGE - 8, true);
    expect(&r, 1, 2 * PAGE, 4 * PAGE, true);
    expect(&r, 2, 6 * PAGE + 8, 32, false);
    vnc_ranges_fini(&r);
}

static void a_range_is_split_in_its_place(void **state)
{
    struct vnc_ranges r = {0};
    (void)state;
    add(&r, 1, 8, 9 * PAGE, true);
    add(&r, 2, 0, PAGE, false);
    vnc_ranges_merge(&r);
    assert_true(vnc_ranges_split(&r, 0, 3 * PAGE - 8));
    assert_int_equal(r.count, 3);
    expect(&r, 0, 8, 3 * PAGE - 8, true);
    expect(&r, 1, 3 * PAGE, 6 * PAGE + 8, true);
    expect(&r, 2, 0, PAGE, false);
    while (r.count < VN_RANGES_MAX)
        add(&r, 3 + r.count, 0, PAGE, false);
    assert_false(vnc_ranges_split(&r, 1, PAGE));
    assert_int_equal(r.count, VN_RANGES_MAX);
    vnc_ranges_fini(&r);
}

static bool meet(uint64_t memory, uint64_t offset, uint64_t bytes)
{
    struct vnc_ranges a = {0}, b = {0};
    add(&a, 2, PAGE, PAGE, false);
    add(&a, 2, 8 * PAGE, PAGE, false);
    add(&a, 4, 0, PAGE, false);
    add(&b, 1, 0, PAGE, false);
    add(&b, memory, offset, bytes, false);
    vnc_ranges_merge(&a);
    vnc_ranges_merge(&b);
    bool met = vnc_ranges_meet(&a, &b);
    assert_int_equal(met, vnc_ranges_meet(&b, &a));
    vnc_ranges_fini(&a);
    vnc_ranges_fini(&b);
    return met;
}

static void ranges_meet_where_they_share_a_byte(void **state)
{
    (void)state;
    assert_false(meet(2, 0, PAGE));
    assert_true(meet(2, 0, PAGE + 1));
    assert_true(meet(2, 2 * PAGE - 1, PAGE));
    assert_false(meet(2, 2 * PAGE, 6 * PAGE));
    assert_true(meet(2, 0, 16 * PAGE));
    assert_false(meet(3, 0, 16 * PAGE));
    assert_true(meet(4, PAGE - 1, 1));
    assert_false(meet(5, 0, PAGE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_in_a_row_are_one),
        cmocka_unit_test(no_page_is_named_for_its_neighbours),
        cmocka_unit_test(filled_pages_stay_filled),
        cmocka_unit_test(a_range_is_split_in_its_place),
        cmocka_unit_test(ranges_meet_where_they_share_a_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
