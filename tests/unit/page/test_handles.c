/* Handles that are used again, with and without the limit. */
#include "unit.h"

#include "folder.h"
#include "page/handles.h"

#include <errno.h>
#include <stdio.h>

enum { PIECE = 4096 };

static struct page_backend *open_null(uint64_t pieces)
{
    struct page_backend *b;
    struct page_error why;
    struct page_backend_config config = {.memory_bytes = pieces * PIECE};
    assert_int_equal(page_backend_null.open(&config, &b, &why), 0);
    assert_int_equal(page_backend_null.reserve(b, pieces * PIECE, PIECE, &why), 0);
    return b;
}

static struct page_handles *make_cache(struct page_backend *b, struct page_limit *limit,
                                       uint32_t high)
{
    struct page_handles *p;
    struct page_error why;
    struct page_handles_config config = {
        .backend = b, .limit = limit, .piece_bytes = PIECE, .high = high};
    if (page_handles_create(&config, &p, &why))
        fail_msg("%s", why.text);
    return p;
}

static struct page_handles_stats stats_of(struct page_handles *p)
{
    struct page_handles_stats s;
    page_handles_stats(p, &s);
    return s;
}

static void takes_are_served_from_what_was_given(void **state)
{
    (void)state;
    struct page_backend *b = open_null(8);
    struct page_handles *p = make_cache(b, NULL, 3);
    page_handle h[4];
    struct page_error why;
    size_t made;
    assert_int_equal(page_handles_take(p, h, 4, &made, &why), 0);
    page_handles_give(p, h, 4);
    assert_int_equal(stats_of(p).kept, 3); /* the high mark */
    assert_int_equal(stats_of(p).released, 1);
    assert_int_equal(page_handles_take(p, h, 4, &made, &why), 0);
    assert_int_equal(stats_of(p).reused, 3);
    assert_int_equal(stats_of(p).created, 5);
    page_handles_give(p, h, 4);
    assert_int_equal(page_handles_trim(p, 1), 2);
    page_handles_destroy(p);
    page_backend_null.close(b);
}

static void a_take_that_fails_takes_nothing(void **state)
{
    (void)state;
    struct page_backend *b = open_null(5);
    struct page_handles *p = make_cache(b, NULL, 8);
    page_handle h[8];
    struct page_error why;
    size_t made = 0;
    assert_int_equal(page_handles_take(p, h, 2, &made, &why), 0);
    assert_int_equal(page_handles_take(p, h + 2, 4, &made, &why), -ENOMEM);
    assert_int_equal(made, 3);
    assert_int_equal(stats_of(p).kept, 3);
    assert_int_equal(page_handles_take(p, h + 2, 3, &made, &why), 0);
    page_handles_give(p, h, 5);
    page_handles_destroy(p);
    page_backend_null.close(b);
}

static void the_limit_counts_what_is_kept_and_lowering_it_empties_the_cache(void **state)
{
    (void)state;
    char base[FOLDER_CHARS], path[64];
    struct page_limit *l;
    struct page_error why;
    page_handle h[8];
    size_t made;
    folder_make(base);
    snprintf(path, sizeof path, "%s/limit", base);
    assert_int_equal(page_limit_open(path, &l, &why), 0);
    assert_int_equal(page_limit_claim(l, 0, &why), 0);
    page_limit_set(l, 6 * PIECE);
    struct page_backend *b = open_null(64);
    struct page_handles *p = make_cache(b, l, 8);
    assert_int_equal(page_handles_take(p, h, 7, &made, &why), -ENOSPC);
    assert_int_equal(page_handles_take(p, h, 6, &made, &why), 0);
    page_handles_give(p, h + 2, 4);
    page_limit_set(l, 3 * PIECE); /* 6 are charged: 2 in use, 4 kept */
    assert_int_equal(page_limit_excess(l), 3 * PIECE);
    assert_int_equal(page_handles_take(p, h + 2, 1, &made, &why), 0); /* after emptying */
    assert_int_equal(page_limit_excess(l), 0);
    assert_int_equal(page_handles_take(p, h + 3, 1, &made, &why), -ENOSPC);
    page_limit_set(l, 6 * PIECE);
    page_handles_give(p, h, 2);
    page_limit_ask_trim(l);
    page_handles_give(p, h + 2, 1); /* which sees that it was asked */
    assert_int_equal(stats_of(p).kept, 0);
    page_handles_destroy(p);
    page_backend_null.close(b);
    page_limit_close(l);
    unlink(path);
    folder_remove(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_are_served_from_what_was_given),
        cmocka_unit_test(a_take_that_fails_takes_nothing),
        cmocka_unit_test(the_limit_counts_what_is_kept_and_lowering_it_empties_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
