/* What every backend must do, in both layouts; the backend is the program's argument. */
#include "suite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct page_outcome outcome;

static enum page_layout layout_of(void **state)
{
    return *(enum page_layout *)*state;
}

static void mapped_pages_hold_what_is_written(void **state)
{
    struct page_tensors *t = suite_tensors(layout_of(state));
    uint32_t all[PAGES];
    for (uint32_t i = 0; i < PAGES; i++)
        all[i] = i;
    suite_map(t, all, PAGES);
    assert_int_equal(page_tensors_mapped(t), PAGES);
    for (uint32_t id = 0; id < PAGES; id++)
        suite_fill(t, id, 7);
    for (uint32_t id = 0; id < PAGES; id++)
        suite_expect(t, id, 7);
    page_tensors_destroy(t);
}

static void others_keep_their_content_while_pages_come_and_go(void **state)
{
    struct page_tensors *t = suite_tensors(layout_of(state));
    const uint32_t stays[] = {0, 3, 4, PAGES - 1}, moves[] = {5, 1, 2};
    suite_map(t, stays, 4);
    for (int i = 0; i < 4; i++)
        suite_fill(t, stays[i], 1);
    for (uint64_t round = 0; round < 4; round++) {
        suite_map(t, moves, 3);
        for (int i = 0; i < 3; i++)
            suite_fill(t, moves[i], 100 + round);
        for (int i = 0; i < 3; i++)
            suite_expect(t, moves[i], 100 + round);
        suite_unmap(t, moves, 3);
        for (int i = 0; i < 4; i++)
            suite_expect(t, stays[i], 1);
    }
    page_tensors_destroy(t);
}

static void unmapped_pages_do_what_the_backend_says(void **state)
{
    struct page_tensors *t = suite_tensors(layout_of(state));
    const uint32_t ids[] = {2, 3};
    uint64_t word;
    struct page_error why;
    struct page_place at = {.id = 5};
    suite_map(t, ids, 2);
    suite_fill(t, 2, 1);
    suite_fill(t, 3, 2);
    suite_unmap(t, &ids[1], 1);
    if (suite_stray() == PAGE_STRAY_FAULTS) {
        assert_int_equal(page_tensors_read(t, &at, &word, sizeof word, &why), -EFAULT);
        assert_int_equal(page_tensors_write(t, &at, &word, sizeof word, &why), -EFAULT);
    } else {
        suite_expect_zero(t, 3);
        suite_expect_zero(t, 5);
        suite_fill(t, 5, 9); /* stray: must not harm a mapped page */
        suite_expect(t, 2, 1);
    }
    suite_expect(t, 2, 1);
    page_tensors_destroy(t);
}

static void expect_codes(const uint8_t *codes, size_t count)
{
    assert_int_equal(outcome.count, count);
    assert_memory_equal(outcome.codes, codes, count);
}

static void a_bad_id_stops_the_whole_batch(void **state)
{
    struct page_tensors *t = suite_tensors(layout_of(state));
    const uint32_t two[] = {1, 2};
    suite_map(t, two, 2);
    suite_fill(t, 1, 1);
    suite_fill(t, 2, 2);

    const uint32_t twice[] = {3, 2, 4};
    assert_int_equal(page_tensors_map(t, twice, 3, &outcome), -EEXIST);
    expect_codes((uint8_t[]){PAGE_SKIPPED, PAGE_MAPPED_TWICE, PAGE_SKIPPED}, 3);
    assert_string_equal(outcome.why.text, "page id 2: mapped twice");
    const uint32_t twins[] = {3, 4, 3};
    assert_int_equal(page_tensors_map(t, twins, 3, &outcome), -EEXIST);
    expect_codes((uint8_t[]){PAGE_SKIPPED, PAGE_SKIPPED, PAGE_MAPPED_TWICE}, 3);
    const uint32_t outside[] = {PAGES, 3, UINT32_MAX};
    assert_int_equal(page_tensors_map(t, outside, 3, &outcome), -ERANGE);
    expect_codes((uint8_t[]){PAGE_OUT_OF_RANGE, PAGE_SKIPPED, PAGE_OUT_OF_RANGE}, 3);

    const uint32_t unmapped[] = {2, 3};
    assert_int_equal(page_tensors_unmap(t, unmapped, 2, &outcome), -ENOENT);
    expect_codes((uint8_t[]){PAGE_SKIPPED, PAGE_UNMAPPED_TWICE}, 2);
    const uint32_t again[] = {2, 2};
    assert_int_equal(page_tensors_unmap(t, again, 2, &outcome), -ENOENT);
    expect_codes((uint8_t[]){PAGE_SKIPPED, PAGE_UNMAPPED_TWICE}, 2);

    assert_int_equal(page_tensors_map(t, NULL, 0, &outcome), -EINVAL);
    static uint32_t many[PAGE_BATCH_MAX + 1];
    assert_int_equal(page_tensors_map(t, many, PAGE_BATCH_MAX + 1, &outcome), -E2BIG);

    assert_int_equal(page_tensors_mapped(t), 2);
    suite_expect(t, 1, 1);
    suite_expect(t, 2, 2);
    page_tensors_destroy(t);
}

static void the_last_batch_can_be_taken_back(void **state)
{
    struct page_tensors *t = suite_tensors(layout_of(state));
    const uint32_t ids[] = {4, 2, 3};
    assert_int_equal(page_tensors_undo(t, &outcome), -ENOENT);
    suite_map(t, ids, 3);
    for (int i = 0; i < 3; i++)
        suite_fill(t, ids[i], 5);
    suite_unmap(t, ids, 2);
    assert_int_equal(page_tensors_undo(t, &outcome), 0);
    assert_int_equal(page_tensors_mapped(t), 3);
    for (int i = 0; i < 3; i++)
        suite_expect(t, ids[i], 5); /* an unmap that was undone lost nothing */
    assert_int_equal(page_tensors_undo(t, &outcome), -ENOENT);

    const uint32_t more[] = {6, 7};
    suite_map(t, more, 2);
    assert_int_equal(page_tensors_undo(t, &outcome), 0);
    assert_false(page_tensors_is_mapped(t, 6));
    assert_int_equal(page_tensors_mapped(t), 3);
    suite_map(t, more, 2);
    page_tensors_commit(t);
    assert_int_equal(page_tensors_undo(t, &outcome), -ENOENT);
    for (int i = 0; i < 3; i++)
        suite_expect(t, ids[i], 5);
    page_tensors_destroy(t);
}

static void memory_is_used_again_or_not_as_told(void **state)
{
    struct page_tensors_config config = suite_config(layout_of(state));
    struct page_handles_stats stats;
    const uint32_t ids[] = {1, 2};
    for (int no_reuse = 0; no_reuse < 2; no_reuse++) {
        config.no_reuse = no_reuse;
        struct page_tensors *t = suite_make(&config);
        uint64_t pieces = page_tensors_geometry(t)->pieces;
        for (int round = 0; round < 3; round++) {
            suite_map(t, ids, 2);
            suite_unmap(t, ids, 2);
        }
        page_tensors_commit(t);
        page_tensors_stats(t, &stats);
        assert_int_equal(stats.created, no_reuse ? 6 * pieces : 2 * pieces);
        assert_int_equal(stats.kept, no_reuse ? 0 : 2 * pieces);
        assert_int_equal(page_tensors_trim(t), stats.kept * page_tensors_geometry(t)->piece_bytes);
        page_tensors_stats(t, &stats);
        assert_int_equal(stats.kept, 0);
        assert_int_equal(stats.released, stats.created);
        page_tensors_destroy(t);
    }
}

static void joined_and_single_calls_give_the_same(void **state)
{
    struct page_tensors_config config = suite_config(layout_of(state));
    const uint32_t ids[] = {3, 4, 5, 6, 9, 10};
    for (int single = 0; single < 2; single++) {
        config.device.not_joined = single;
        struct page_tensors *t = suite_make(&config);
        suite_map(t, ids, 6);
        for (int i = 0; i < 6; i++)
            suite_fill(t, ids[i], 3);
        suite_unmap(t, ids + 1, 2);
        suite_expect(t, 3, 3);
        suite_expect(t, 6, 3);
        suite_expect(t, 10, 3);
        suite_map(t, ids + 1, 2);
        suite_fill(t, 4, 8);
        suite_expect(t, 4, 8);
        suite_expect(t, 3, 3);
        page_tensors_destroy(t);
    }
}

static void a_full_device_says_so_and_recovers(void **state)
{
    uint64_t piece = suite_page_bytes();
    struct page_backend_config config = {.memory_bytes = 5 * piece, .library = suite_library()};
    const struct page_backend_ops *ops = suite_backend();
    struct page_backend *b;
    struct page_error why;
    page_handle handles[8];
    (void)state;
    assert_int_equal(ops->open(&config, &b, &why), 0);
    assert_int_equal(ops->reserve(b, 5 * piece, piece, &why), 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 5; i++)
            assert_int_equal(ops->create(b, &handles[i], &why), 0);
        assert_int_equal(ops->create(b, &handles[5], &why), -ENOMEM);
        assert_true(strlen(why.text) > 10);
        for (int i = 0; i < 5; i++)
            ops->release(b, handles[i]);
    }
    ops->close(b);
}

static void pages_that_do_not_fit_the_device_are_refused(void **state)
{
    struct page_tensors_config config = suite_config(layout_of(state));
    struct page_tensors *t = NULL;
    struct page_error why;
    config.page_bytes = suite_page_bytes() + 1;
    int wanted = suite_backend() == &page_backend_null ? 0 : -EINVAL;
    assert_int_equal(page_tensors_create(&config, &t, &why), wanted);
    page_tensors_destroy(t);
    config = suite_config(layout_of(state));
    config.device.memory_bytes = suite_page_bytes();
    assert_int_equal(page_tensors_create(&config, &t, &why), -ENOMEM);
}

int main(int argc, char **argv)
{
    static enum page_layout layouts[] = {PAGE_PER_LAYER, PAGE_CONTIGUOUS};
    int rc = suite_begin(argc, argv);
    if (rc)
        return rc;
    for (int i = 0; i < 2; i++) {
        void *l = &layouts[i];
        const struct CMUnitTest tests[] = {
            cmocka_unit_test_prestate(mapped_pages_hold_what_is_written, l),
            cmocka_unit_test_prestate(others_keep_their_content_while_pages_come_and_go, l),
            cmocka_unit_test_prestate(unmapped_pages_do_what_the_backend_says, l),
            cmocka_unit_test_prestate(a_bad_id_stops_the_whole_batch, l),
            cmocka_unit_test_prestate(the_last_batch_can_be_taken_back, l),
            cmocka_unit_test_prestate(memory_is_used_again_or_not_as_told, l),
            cmocka_unit_test_prestate(joined_and_single_calls_give_the_same, l),
            cmocka_unit_test_prestate(a_full_device_says_so_and_recovers, l),
            cmocka_unit_test_prestate(pages_that_do_not_fit_the_device_are_refused, l),
        };
        rc |= cmocka_run_group_tests_name(i ? "contiguous" : "per layer", tests, NULL, NULL);
    }
    return rc;
}
