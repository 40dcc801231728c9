/* Which worker a text goes to. */
#include "../base/unit.h"

#include "base/clock.h"
#include "serve/http/impl.h"

#include <string.h>

enum { WORKERS = 3 };

static struct http_model model;
static struct http_worker workers[WORKERS];
static struct http_prefix prefixes[HTTP_PREFIX_ENTRIES];
static struct http_front front = {
    .workers = workers, .worker_count = WORKERS, .prefixes = prefixes};

/* All are up, the first for the longest time and with the most to do. */
static void start(void)
{
    memset(workers, 0, sizeof workers);
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i] = (struct http_worker){.index = i,
                                          .state = HTTP_WORKER_UP,
                                          .served.model_count = 1,
                                          .served.models[0].context = 8,
                                          .models[0] = &model,
                                          .texts = 30 - 10 * i,
                                          .up_ns = 1 + i};
    }
}

static uint64_t waits_since;

static const struct http_worker *route(uint32_t losses)
{
    static uint32_t tokens[4];
    struct http_sequence s = {.model = &model,
                              .tokens = tokens,
                              .token_count = 4,
                              .prompt_count = 4,
                              .losses = losses,
                              .waits_ns = waits_since};
    return http_route(&front, &s);
}

static void a_text_goes_to_the_idlest(void **state)
{
    (void)state;
    start();
    assert_ptr_equal(route(0), &workers[2]);
    assert_ptr_equal(route(HTTP_LOSSES_STEADY - 1), &workers[2]);
    workers[2].texts = HTTP_WORKER_TEXTS_MAX;
    assert_ptr_equal(route(0), &workers[1]);
    workers[1].served.draining = true;
    assert_ptr_equal(route(0), &workers[0]);
}

/* Of workers with one file, those with enough context for the whole text. */
static void a_text_goes_where_it_fits(void **state)
{
    (void)state;
    static uint32_t tokens[4];
    struct http_sequence s = {
        .model = &model, .tokens = tokens, .token_count = 4, .prompt_count = 4, .most = 4};
    start();
    assert_ptr_equal(http_route(&front, &s), &workers[2]);
    workers[2].served.models[0].context = 7;
    assert_int_equal(http_model_context(&front, &model), 8);
    assert_ptr_equal(http_route(&front, &s), &workers[1]);
    s.token_count += 2; /* as much has come already */
    assert_ptr_equal(http_route(&front, &s), &workers[1]);
    s.most = 5;
    assert_null(http_route(&front, &s));
    assert_false(http_route_full(&front, &s));
    s.request.embed = true;
    assert_ptr_equal(http_route(&front, &s), &workers[2]);
    workers[0].served.draining = workers[1].served.draining = true;
    assert_int_equal(http_model_context(&front, &model), 7);
    workers[2].state = HTTP_WORKER_DOWN;
    assert_int_equal(http_model_context(&front, &model), 8);
    assert_true(http_route_full(&front, &s));
}

static void a_drained_worker_completes_what_no_other_one_can(void **state)
{
    (void)state;
    static uint32_t tokens[5];
    struct http_sequence s = {
        .model = &model, .tokens = tokens, .token_count = 5, .prompt_count = 4, .most = 4};
    start();
    workers[0].served.draining = true;
    workers[1].served.models[0].context = 7;
    assert_ptr_equal(http_route(&front, &s), &workers[2]);
    workers[2].texts = HTTP_WORKER_TEXTS_MAX; /* it will have room */
    assert_null(http_route(&front, &s));
    workers[2].state = HTTP_WORKER_DOWN;
    assert_ptr_equal(http_route(&front, &s), &workers[0]);
    workers[0].doubts = 1;
    assert_null(http_route(&front, &s));
    workers[0].doubts = 0;
    s.token_count = 4; /* it has not begun */
    assert_null(http_route(&front, &s));
}

static void one_that_lost_workers_waits_for_the_steadiest(void **state)
{
    (void)state;
    start();
    waits_since = hw_now_ns() + 1000 * HW_SEC; /* also for a machine that stands still */
    assert_ptr_equal(route(HTTP_LOSSES_STEADY), &workers[0]);
    workers[0].texts = HTTP_WORKER_TEXTS_MAX;
    assert_null(route(HTTP_LOSSES_STEADY));
    uint64_t since = waits_since;
    waits_since = hw_now_ns() - HTTP_STEADY_NS; /* long enough: any will do */
    assert_ptr_equal(route(HTTP_LOSSES_STEADY), &workers[2]);
    waits_since = since;
    workers[0].texts--;
    workers[0].busy_until = hw_now_ns() + 1000 * HW_SEC;
    assert_null(route(HTTP_LOSSES_STEADY));
    workers[0].state = HTTP_WORKER_DOWN; /* then there is another steadiest */
    assert_ptr_equal(route(HTTP_LOSSES_STEADY), &workers[1]);
    workers[1].models[0] = NULL;
    assert_ptr_equal(route(HTTP_LOSSES_STEADY), &workers[2]);
    workers[2].left = true;
    assert_null(route(HTTP_LOSSES_STEADY));
}

/* A connection that was cut is no loss once its worker is found alive; another process at its
 * address is one, and so is a worker that hung. */
static void a_worker_that_lives_was_not_lost(void **state)
{
    (void)state;
    start();
    struct http_sequence s = {.front = &front, .losses = 3};
    for (uint32_t i = 0; i < WORKERS; i++) {
        s.lost[i] = (struct http_place){.worker = i, .incarnation = 5 + i, .cuts = 2};
        workers[i].served.incarnation = 5 + i;
        workers[i].cuts = 2;
    }
    http_sequence_forgive(&s);
    assert_int_equal(s.losses, 3);
    workers[0].cuts = 3; /* up again, with the same process */
    workers[1].cuts = 3;
    workers[1].served.incarnation = 9;
    http_sequence_forgive(&s);
    assert_int_equal(s.losses, 2);
    assert_int_equal(s.lost[0].worker, 1);
    workers[2].cuts = 3;
    workers[2].doubts = 1; /* not looked at yet */
    http_sequence_forgive(&s);
    assert_int_equal(s.losses, 2);
    workers[2].looked = 1;
    http_sequence_forgive(&s);
    assert_int_equal(s.losses, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_goes_to_the_idlest),
        cmocka_unit_test(a_text_goes_where_it_fits),
        cmocka_unit_test(a_drained_worker_completes_what_no_other_one_can),
        cmocka_unit_test(one_that_lost_workers_waits_for_the_steadiest),
        cmocka_unit_test(a_worker_that_lives_was_not_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
