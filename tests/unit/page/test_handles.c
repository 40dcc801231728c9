/* Handles made ahead and used again, with and without the reserve thread and the limit. */
#include "unit.h"

#include "folder.h"
#include "page/handles.h"
#include "page/reserve.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
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
                                       uint32_t low, uint32_t high, bool reserve_thread)
{
    struct page_handles *p;
    struct page_error why;
    struct page_handles_config config = {.backend = b,
                                         .limit = limit,
                                         .piece_bytes = PIECE,
                                         .low = low,
                                         .high = high,
                                         .step = 1,
                                         .reserve_thread = reserve_thread};
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

/* The reserve thread works by itself; waiting for it has no limit but the test's own. */
static void wait_for_kept(struct page_handles *p, uint32_t kept)
{
    while (stats_of(p).kept != kept)
        sched_yield();
}

static void takes_are_served_from_what_was_given(void **state)
{
    (void)state;
    struct page_backend *b = open_null(8);
    struct page_handles *p = make_cache(b, NULL, 0, 3, false);
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
    struct page_handles *p = make_cache(b, NULL, 0, 8, false);
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

static void the_thread_keeps_between_the_marks(void **state)
{
    (void)state;
    struct page_backend *b = open_null(64);
    struct page_handles *p = make_cache(b, NULL, 4, 8, true);
    page_handle h[16];
    struct page_error why;
    size_t made;
    wait_for_kept(p, 4);
    assert_int_equal(page_handles_take(p, h, 16, &made, &why), 0);
    wait_for_kept(p, 4);
    assert_true(stats_of(p).made_ahead >= 8);
    page_handles_give(p, h, 16);
    wait_for_kept(p, 8);
    page_handles_destroy(p);
    page_backend_null.close(b);
}

static void the_thread_gives_up_on_a_full_device_until_something_comes_back(void **state)
{
    (void)state;
    struct page_backend *b = open_null(4);
    struct page_handles *p = make_cache(b, NULL, 2, 3, true);
    page_handle h[4];
    struct page_error why;
    size_t made;
    wait_for_kept(p, 2);
    assert_int_equal(page_handles_take(p, h, 4, &made, &why), 0);
    assert_int_equal(page_handles_take(p, h, 1, &made, &why), -ENOMEM);
    page_handles_give(p, h, 4);
    wait_for_kept(p, 3);
    page_handles_destroy(p);
    page_backend_null.close(b);
}

/* A device that is slow for takers: by the time they are served the reserve thread has taken the
 * rest. */
static struct {
    struct page_backend_ops ops;
    pthread_t taker;
    struct page_handles *cache; /* this and the next are the taker's */
    bool waited;
} slow;

static int slow_create(struct page_backend *b, page_handle *out, struct page_error *why)
{
    if (pthread_equal(pthread_self(), slow.taker) && slow.cache && !slow.waited) {
        slow.waited = true;
        wait_for_kept(slow.cache, 2);
    }
    return page_backend_null.create(b, out, why);
}

static void a_take_gets_what_the_thread_took_before_it(void **state)
{
    (void)state;
    struct page_backend *b = open_null(4);
    page_handle h[4];
    struct page_error why;
    size_t made;
    slow.ops = page_backend_null;
    slow.ops.create = slow_create;
    slow.taker = pthread_self();
    b->ops = &slow.ops;
    struct page_handles *p = make_cache(b, NULL, 2, 3, true);
    wait_for_kept(p, 2);
    slow.cache = p;
    assert_int_equal(page_handles_take(p, h, 4, &made, &why), 0);
    assert_true(slow.waited);
    assert_int_equal(stats_of(p).reused, 4);
    page_handles_give(p, h, 4);
    page_handles_destroy(p);
    slow.cache = NULL;
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
    for (int threaded = 0; threaded < 2; threaded++) {
        struct page_backend *b = open_null(64);
        struct page_handles *p = make_cache(b, l, 0, 8, threaded);
        assert_int_equal(page_handles_take(p, h, 7, &made, &why), -ENOSPC);
        assert_int_equal(page_handles_take(p, h, 6, &made, &why), 0);
        page_handles_give(p, h + 2, 4);
        page_limit_set(l, 3 * PIECE); /* 6 are charged: 2 in use, 4 kept */
        if (!threaded)                /* else it may have given them back by now */
            assert_int_equal(page_limit_excess(l), 3 * PIECE);
        assert_int_equal(page_handles_take(p, h + 2, 1, &made, &why), 0); /* after emptying */
        assert_int_equal(page_limit_excess(l), 0);
        assert_int_equal(page_handles_take(p, h + 3, 1, &made, &why), -ENOSPC);
        page_limit_set(l, 6 * PIECE);
        page_handles_give(p, h, 3);
        page_limit_ask_trim(l);
        if (threaded)
            wait_for_kept(p, 0);
        page_handles_destroy(p);
        page_backend_null.close(b);
    }
    page_limit_close(l);
    unlink(path);
    folder_remove(base);
}

/* ---- the reserve thread by itself ---- */

struct counter {
    _Atomic int steps;
    int most;
};

static bool count(void *user)
{
    struct counter *c = user;
    return atomic_fetch_add(&c->steps, 1) + 1 < c->most;
}

static void the_thread_stops_at_once_and_wakes_when_told(void **state)
{
    (void)state;
    struct page_reserve k;
    struct counter c = {.most = 5};
    assert_int_equal(page_reserve_start(&k, count, &c, 0), 0);
    while (atomic_load(&c.steps) < 5)
        sched_yield();
    page_reserve_wake(&k); /* it sleeps for ever otherwise */
    while (atomic_load(&c.steps) < 6)
        sched_yield();
    page_reserve_stop(&k);
    assert_int_equal(c.steps, 6);
    page_reserve_stop(&k); /* harmless */
    page_reserve_wake(&k);
    struct counter endless = {.most = INT32_MAX};
    assert_int_equal(page_reserve_start(&k, count, &endless, 0), 0);
    page_reserve_stop(&k);
}

static void marks_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    struct page_handles *p = NULL;
    struct page_error why;
    struct page_handles_config config = {.low = 2, .high = 1};
    assert_int_equal(page_handles_create(&config, &p, &why), -EINVAL);
    config = (struct page_handles_config){.low = 1, .high = 2, .reserve_thread = true};
    assert_int_equal(page_handles_create(&config, &p, &why), -EINVAL);
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_are_served_from_what_was_given),
        cmocka_unit_test(a_take_that_fails_takes_nothing),
        cmocka_unit_test(the_thread_keeps_between_the_marks),
        cmocka_unit_test(the_thread_gives_up_on_a_full_device_until_something_comes_back),
        cmocka_unit_test(a_take_gets_what_the_thread_took_before_it),
        cmocka_unit_test(the_limit_counts_what_is_kept_and_lowering_it_empties_the_cache),
        cmocka_unit_test(the_thread_stops_at_once_and_wakes_when_told),
        cmocka_unit_test(marks_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
