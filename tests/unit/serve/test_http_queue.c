/* Texts that wait for a worker: whose turn it is, and how long they wait. */
#include "../base/unit.h"

#include "base/clock.h"
#include "serve/http/impl.h"

#include <stdlib.h>
#include <string.h>

enum { TEXTS = 2 * HTTP_WORKER_TEXTS_MAX, WORKERS = 2, PROMPT = 4, CONTEXT = 8 };
#define WAIT_NS (30 * HW_SEC)

static struct http_model models[2];
static struct http_worker workers[WORKERS];
static struct http_prefix prefixes[HTTP_PREFIX_ENTRIES];
static struct http_key key, other;
static struct http_siblings siblings[TEXTS];
static struct http_sequence texts[TEXTS];
static struct http_front front;
static unsigned ended;

static void on_end(struct http_sequence *s, enum http_finish finish)
{
    assert_int_equal(finish, HTTP_FINISH_ERROR);
    assert_int_equal(s->error.status, 503);
    ended++;
}

static const struct http_sequence_ops ops = {.on_end = on_end};

static struct http_worker worker(uint32_t index, struct http_model *m)
{
    return (struct http_worker){.front = &front,
                                .index = index,
                                .served.model_count = 1,
                                .served.models[0].context = CONTEXT,
                                .models[0] = m};
}

/* The first model is at both workers, of which the second is down; the other model at none. */
static int start(void **state)
{
    (void)state;
    memset(workers, 0, sizeof workers);
    memset(texts, 0, sizeof texts);
    memset(siblings, 0, sizeof siblings);
    key = other = (struct http_key){0};
    ended = 0;
    models[0].full = models[1].full = 0;
    front = (struct http_front){.workers = workers,
                                .worker_count = WORKERS,
                                .prefixes = prefixes,
                                .models = {&models[0], &models[1]},
                                .model_count = 2,
                                .config.limits = {.wait_ns = WAIT_NS, .share_per_key = 100},
                                .assign.act = http_assign_waiting,
                                .actions_end = &front.actions};
    for (uint32_t i = 0; i < WORKERS; i++)
        workers[i] = worker(i, &models[0]);
    workers[0].state = HTTP_WORKER_UP;
    return 0;
}

/* What would be done without the front's lock, at workers that are not connected. */
static void act_all(void)
{
    while (front.actions) {
        struct http_action *a = front.actions;
        front.actions = a->next;
        if (!front.actions)
            front.actions_end = &front.actions;
        a->act(&front, a);
    }
}

static int stop(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < TEXTS; i++) {
        if (texts[i].front)
            http_sequence_drop(&texts[i]);
        http_sequence_fini(&texts[i]);
    }
    act_all();
    assert_int_equal(workers[0].texts, 0);
    assert_int_equal(key.texts + other.texts, 0);
    assert_null(front.waiting);
    return 0;
}

/* Text i, of that request. */
static struct http_sequence *make(uint32_t i, uint32_t request)
{
    struct http_sequence *s = &texts[i];
    *s = (struct http_sequence){.front = &front,
                                .ops = &ops,
                                .model = &models[0],
                                .key = &key,
                                .siblings = &siblings[request],
                                .tokens = calloc(PROMPT, sizeof(uint32_t)),
                                .token_count = PROMPT,
                                .token_room = PROMPT,
                                .prompt_count = PROMPT,
                                .most = 1};
    return s;
}

static unsigned at_workers(void)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < TEXTS; i++)
        count += texts[i].attempt != NULL;
    return count;
}

static void start_texts(uint32_t from, uint32_t count, uint32_t request, bool alike)
{
    for (uint32_t i = from; i < from + count; i++)
        http_sequence_start(make(i, alike ? request : i));
    http_assign(&front);
}

/* A worker that gets texts will get to this one. */
static void a_text_waits_while_its_worker_gets_others(void **state)
{
    (void)state;
    start_texts(0, HTTP_WORKER_TEXTS_MAX + 1, 0, false);
    assert_int_equal(at_workers(), HTTP_WORKER_TEXTS_MAX);
    uint64_t now = hw_now_ns();
    workers[0].took_ns = now + 20 * HW_SEC;
    assert_true(http_sequences_expire(&front, now + 31 * HW_SEC) > now + 31 * HW_SEC);
    assert_int_equal(ended, 0);
    workers[0].state = HTTP_WORKER_DOWN; /* for a moment */
    (void)http_sequences_expire(&front, now + 49 * HW_SEC);
    assert_int_equal(ended, 0);
    (void)http_sequences_expire(&front, now + 51 * HW_SEC);
    assert_int_equal(ended, 1);
}

static void a_text_that_its_worker_cannot_compute_does_not_wait_for_it(void **state)
{
    (void)state;
    struct http_sequence *s = make(0, 0);
    s->model = &models[1];
    http_sequence_start(s);
    start_texts(1, 3, 1, true);
    assert_int_equal(at_workers(), 3);
    uint64_t now = hw_now_ns();
    workers[0].took_ns = now + 20 * HW_SEC;
    (void)http_sequences_expire(&front, now + 31 * HW_SEC);
    assert_int_equal(ended, 1);
}

/* The texts at the worker take longer than a text waits for one. */
static void texts_wait_while_one_of_their_request_is_at_a_worker(void **state)
{
    (void)state;
    front.config.limits.share_per_key = 75;
    start_texts(0, HTTP_WORKER_TEXTS_MAX, 0, true);
    assert_int_equal(at_workers(), HTTP_WORKER_TEXTS_MAX * 3 / 4);
    uint64_t now = hw_now_ns();
    (void)http_sequences_expire(&front, now + 1000 * HW_SEC);
    assert_int_equal(ended, 0);
    for (uint32_t i = 0; i < HTTP_WORKER_TEXTS_MAX * 3 / 4; i++)
        http_sequence_drop(&texts[i]); /* no place is given out again */
    (void)http_sequences_expire(&front, now + 1029 * HW_SEC);
    assert_int_equal(ended, 0);
    (void)http_sequences_expire(&front, now + 2000 * HW_SEC);
    assert_int_equal(ended, HTTP_WORKER_TEXTS_MAX / 4);
}

static int start_all(void **state)
{
    (void)state;
    return http_model_stats_init(&models[0].stats, "a") ||
           http_model_stats_init(&models[1].stats, "b");
}

static int stop_all(void **state)
{
    (void)state;
    for (uint32_t m = 0; m < 2; m++)
        http_model_stats_fini(&models[m].stats);
    return 0;
}

/* Its worker was lost, and those that are left have the share of its key. */
static void a_text_that_has_begun_goes_on_beyond_the_share(void **state)
{
    (void)state;
    const uint32_t share = HTTP_WORKER_TEXTS_MAX * 3 / 4;
    front.config.limits.share_per_key = 75;
    start_texts(0, share + 1, 0, true);
    assert_int_equal(at_workers(), share);
    struct http_sequence *s = make(share + 1, 1);
    s->prompt_count--;
    s->most++;
    http_queue_add(s, true);
    http_assign(&front);
    assert_non_null(s->attempt);
    assert_null(texts[share].attempt);
}

/* A request of many texts costs what its places do, whatever waits behind. */
static void texts_that_wait_are_not_looked_at(void **state)
{
    (void)state;
    start_texts(0, TEXTS, 0, true);
    assert_int_equal(at_workers(), HTTP_WORKER_TEXTS_MAX);
    assert_int_equal(front.looks, HTTP_WORKER_TEXTS_MAX + 1);
    http_assign(&front);
    assert_int_equal(front.looks, HTTP_WORKER_TEXTS_MAX + 2);
    workers[1].state = HTTP_WORKER_UP;
    http_assign(&front);
    assert_int_equal(at_workers(), TEXTS);
}

/* Behind a request whose model has no place. */
static void a_request_for_another_model_is_found(void **state)
{
    (void)state;
    start_texts(0, TEXTS - 1, 0, true);
    workers[1] = worker(1, &models[1]);
    workers[1].state = HTTP_WORKER_UP;
    struct http_sequence *s = make(TEXTS - 1, 1);
    s->model = &models[1];
    http_sequence_start(s);
    front.looks = 0;
    http_assign(&front);
    assert_non_null(s->attempt);
    assert_int_equal(front.looks, 3); /* at the first text of each request, and again at one */
}

/* So a text that comes back does not wait for its own request's others. */
static void a_text_that_was_lost_goes_first(void **state)
{
    (void)state;
    start_texts(0, HTTP_WORKER_TEXTS_MAX, 0, true);
    start_texts(HTTP_WORKER_TEXTS_MAX, 2, 1, true);
    start_texts(HTTP_WORKER_TEXTS_MAX + 2, 2, 2, true);
    struct http_sequence *s = make(TEXTS - 1, 2);
    s->attempts = 1;
    http_queue_add(s, true);
    assert_ptr_equal(http_queue_first(&front), s);
    unsigned count = 0;
    for (s = http_queue_first(&front); s; s = http_queue_next(s))
        count++;
    assert_int_equal(count, 5);
    workers[0].texts--; /* a place */
    http_assign(&front);
    workers[0].texts++;
    assert_non_null(texts[TEXTS - 1].attempt);
    assert_null(texts[HTTP_WORKER_TEXTS_MAX].attempt);
}

/* The worker with enough context has no place; the other one takes what is shorter. */
static void a_long_text_does_not_hold_up_a_short_one(void **state)
{
    (void)state;
    workers[1].state = HTTP_WORKER_UP;
    workers[1].served.models[0].context = CONTEXT - 1;
    workers[0].busy_until = hw_now_ns() + 1000 * HW_SEC;
    struct http_sequence *s = make(0, 0);
    s->most = CONTEXT - PROMPT;
    http_sequence_start(s);
    start_texts(1, 1, 1, true);
    assert_null(s->attempt);
    assert_ptr_equal(texts[1].attempt->worker, &workers[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_text_waits_while_its_worker_gets_others, start, stop),
        cmocka_unit_test_setup_teardown(a_text_that_its_worker_cannot_compute_does_not_wait_for_it,
                                        start, stop),
        cmocka_unit_test_setup_teardown(texts_wait_while_one_of_their_request_is_at_a_worker, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_text_that_has_begun_goes_on_beyond_the_share, start,
                                        stop),
        cmocka_unit_test_setup_teardown(texts_that_wait_are_not_looked_at, start, stop),
        cmocka_unit_test_setup_teardown(a_request_for_another_model_is_found, start, stop),
        cmocka_unit_test_setup_teardown(a_text_that_was_lost_goes_first, start, stop),
        cmocka_unit_test_setup_teardown(a_long_text_does_not_hold_up_a_short_one, start, stop),
    };
    return cmocka_run_group_tests(tests, start_all, stop_all);
}
