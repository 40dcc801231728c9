/* Who may have how much of a shared memory: the policy by itself, then simulated on traces. */
#include "unit.h"

#include "base/rng.h"
#include "page/share.h"

#include <stdbool.h>
#include <string.h>

enum { MODELS = 3 };

static void a_model_alone_may_have_everything(void **state)
{
    (void)state;
    struct page_share one = {.used_bytes = 10, .held_bytes = 20, .idle_ns = PAGE_SHARE_IDLE_NS};
    uint64_t target;
    page_share_targets(&one, 1, 100, &target);
    assert_int_equal(target, 100);
    page_share_targets(&one, 1, 0, &target); /* no limit */
    assert_int_equal(target, UINT64_MAX);
    page_share_targets(&one, 1, 5, &target);
    assert_int_equal(target, 5);
}

static void an_idle_model_gives_way_down_to_its_minimum(void **state)
{
    (void)state;
    struct page_share m[2] = {
        {.min_bytes = 10, .held_bytes = 90, .used_bytes = 60, .idle_ns = PAGE_SHARE_IDLE_NS},
        {.min_bytes = 10, .held_bytes = 10, .used_bytes = 10, .wanted_bytes = 500}};
    uint64_t t[2];
    page_share_targets(m, 2, 100, t);
    assert_int_equal(t[0], 10);
    assert_int_equal(t[1], 90);
    m[1].wanted_bytes = 20; /* it gives no more than is asked for */
    page_share_targets(m, 2, 100, t);
    assert_int_equal(t[0], 70);
    assert_int_equal(t[1], 30);
}

static void busy_models_share_alike_and_divide_what_one_does_not_need(void **state)
{
    (void)state;
    struct page_share m[MODELS] = {
        {.used_bytes = 80, .held_bytes = 80}, {.wanted_bytes = 70}, {.wanted_bytes = 10}};
    uint64_t t[MODELS];
    page_share_targets(m, MODELS, 100, t);
    assert_int_equal(t[0], 45);
    assert_int_equal(t[1], 45);
    assert_int_equal(t[2], 10);
}

/* Two requests that need more than half: one of them runs. */
static void the_oldest_request_has_all_that_it_needs(void **state)
{
    (void)state;
    struct page_share m[2] = {{.wanted_bytes = 60, .oldest_bytes = 60, .oldest_ns = 5},
                              {.wanted_bytes = 80, .oldest_bytes = 70, .oldest_ns = 9}};
    uint64_t t[2];
    page_share_targets(m, 2, 100, t);
    assert_int_equal(t[1], 80);
    assert_int_equal(t[0], 20);
    m[1].oldest_bytes = 200; /* never fits: it does not stand in the way */
    m[1].wanted_bytes = 200;
    page_share_targets(m, 2, 100, t);
    assert_int_equal(t[0], 60);
    assert_int_equal(t[1], 40);
}

static void a_higher_priority_is_met_first_down_to_the_minimum(void **state)
{
    (void)state;
    struct page_share m[MODELS] = {
        {.min_bytes = 10, .used_bytes = 60, .held_bytes = 60, .oldest_bytes = 60, .oldest_ns = 9},
        {.priority = 1, .wanted_bytes = 500, .oldest_bytes = 50, .oldest_ns = 1},
        {.priority = 1, .wanted_bytes = 30}};
    uint64_t t[MODELS];
    page_share_targets(m, MODELS, 100, t);
    assert_int_equal(t[0], 10);
    assert_int_equal(t[1], 70); /* 50, then equal shares of what is left to the two */
    assert_int_equal(t[2], 20);
    m[1].wanted_bytes = 50;
    m[2].wanted_bytes = 0; /* it has what it needs: the rest goes down */
    page_share_targets(m, MODELS, 100, t);
    assert_int_equal(t[1], 50);
    assert_int_equal(t[0], 50);
    m[1].idle_ns = PAGE_SHARE_IDLE_NS; /* nobody waits there any more */
    m[1].oldest_bytes = 0;
    page_share_targets(m, MODELS, 100, t);
    assert_true(t[0] >= 60);
}

static void what_nobody_needs_stays_with_the_last_that_was_busy(void **state)
{
    (void)state;
    struct page_share m[2] = {{.held_bytes = 50, .idle_ns = PAGE_SHARE_IDLE_NS},
                              {.held_bytes = 50, .used_bytes = 10, .wanted_bytes = 20}};
    uint64_t t[2];
    page_share_targets(m, 2, 100, t);
    assert_int_equal(t[1], 70); /* 30, and 40 that it keeps for texts to come */
    assert_int_equal(t[0], 30);
}

/* What it wants it has: only its own prefixes are in the way. */
static void a_request_takes_the_place_of_its_own_models_prefixes(void **state)
{
    (void)state;
    struct page_share m[2] = {{.held_bytes = 50, .idle_ns = PAGE_SHARE_IDLE_NS - 1},
                              {.held_bytes = 50, .used_bytes = 10, .wanted_bytes = 20}};
    uint64_t t[2];
    page_share_targets(m, 2, 100, t);
    assert_int_equal(t[0], 50);
    assert_int_equal(t[1], 50);
    m[1].wanted_bytes = 60; /* more than it holds */
    page_share_targets(m, 2, 100, t);
    assert_int_equal(t[0], 30);
    assert_int_equal(t[1], 70);
}

static void minimums_past_the_limit_count_for_nothing(void **state)
{
    (void)state;
    struct page_share m[2] = {{.min_bytes = 60, .wanted_bytes = 10},
                              {.min_bytes = 60, .wanted_bytes = 90}};
    uint64_t t[2];
    page_share_targets(m, 2, 100, t);
    assert_int_equal(t[0], 10);
    assert_int_equal(t[1], 90);
}

static void random_targets_fit_the_limit_and_the_minimums(void **state)
{
    (void)state;
    struct hw_rng rng;
    hw_rng_seed(&rng, 4);
    for (int i = 0; i < 20000; i++) {
        struct page_share m[MODELS];
        uint64_t t[MODELS], limit = 1 + hw_rng_below(&rng, 1000), mins = 0, claims = 0;
        for (int k = 0; k < MODELS; k++) {
            m[k] = (struct page_share){.priority = (uint32_t)hw_rng_below(&rng, 3),
                                       .min_bytes = hw_rng_below(&rng, 200),
                                       .held_bytes = hw_rng_below(&rng, 800),
                                       .wanted_bytes = hw_rng_below(&rng, 400),
                                       .idle_ns = hw_rng_below(&rng, 2 * PAGE_SHARE_IDLE_NS)};
            m[k].used_bytes = hw_rng_below(&rng, m[k].held_bytes + 1);
            if (m[k].idle_ns < PAGE_SHARE_IDLE_NS)
                m[k].oldest_bytes = hw_rng_below(&rng, m[k].used_bytes + m[k].wanted_bytes + 1);
            mins += m[k].min_bytes;
        }
        page_share_targets(m, MODELS, limit, t);
        uint64_t least_free = UINT64_MAX;
        for (int k = 0; k < MODELS; k++) {
            bool idle = m[k].idle_ns >= PAGE_SHARE_IDLE_NS;
            uint64_t use = m[k].held_bytes + (idle ? 0 : m[k].wanted_bytes);
            if (mins <= limit && use < m[k].min_bytes)
                use = m[k].min_bytes;
            assert_true(t[k] <= limit);
            assert_true(mins > limit || t[k] >= m[k].min_bytes);
            uint64_t more = t[k] > use ? t[k] - use : 0;
            least_free = more < least_free ? more : least_free;
            claims += t[k] < use ? t[k] : use;
        }
        assert_int_equal(claims + least_free, limit); /* all of it, and nothing twice */
    }
}

/* ---- simulated ----
 *
 * Requests of two models come by a trace; each takes PAGES_EACH pages for DURATION ticks, begins
 * when its model has room, and is in time when it began within PATIENCE. */

enum { TICKS = 4000, PAGES_EACH = 4, DURATION = 20, PATIENCE = 30, LIMIT = 80, QUEUE = 4096 };
#define TICK_NS (PAGE_SHARE_IDLE_NS / 100)

struct line { /* of one model */
    uint32_t came[QUEUE], first, count;
    uint32_t ends[QUEUE], running; /* unordered */
    uint64_t held;                 /* pages: also of requests that have ended, as prefixes */
    uint64_t busy;                 /* when it last had a request */
};

static void finish(struct line *l, uint32_t now)
{
    for (uint32_t i = 0; i < l->running;) {
        if (l->ends[i] <= now)
            l->ends[i] = l->ends[--l->running];
        else
            i++;
    }
}

static uint32_t start(struct line *l, uint32_t now, uint64_t room)
{
    uint32_t in_time = 0;
    while (l->first < l->count && (l->running + 1) * PAGES_EACH <= room) {
        in_time += now - l->came[l->first++] <= PATIENCE;
        l->ends[l->running++] = now + DURATION;
    }
    return in_time;
}

static struct page_share share_of(const struct line *l, uint32_t now)
{
    uint32_t waiting = l->count - l->first;
    return (struct page_share){.held_bytes = l->held,
                               .used_bytes = l->running * PAGES_EACH,
                               .wanted_bytes = waiting * PAGES_EACH,
                               .oldest_bytes = waiting || l->running ? PAGES_EACH : 0,
                               .oldest_ns = waiting ? now - l->came[l->first] : 0,
                               .idle_ns = (now - l->busy) * TICK_NS};
}

struct outcome {
    uint32_t in_time;
    uint32_t of_each[2]; /* of those */
    uint64_t moved;      /* pages that a model gave back */
};

/* A model's load in bursts, in turn, or both at once, steadily or in bursts; or more than fits. */
enum load { ALTERNATES, STEADY, BOTH_BURST, OVERLOAD };

static bool comes(enum load load, uint32_t model, uint32_t now, struct hw_rng *rng)
{
    uint64_t per_mille = load == STEADY           ? 450
                         : load == OVERLOAD       ? 700
                         : load == BOTH_BURST     ? (now % 100 < 10 ? 1000 : 0)
                         : now / 200 % 2 == model ? 900
                                                  : 0;
    return hw_rng_below(rng, 1000) < per_mille;
}

/* The first model's priority and the second one's minimum. */
static uint32_t priority, min_pages;

static struct outcome simulate(bool shared, enum load load, uint64_t seed)
{
    static struct line lines[2];
    struct hw_rng rng;
    struct outcome o = {0};
    memset(lines, 0, sizeof lines);
    hw_rng_seed(&rng, seed);
    for (uint32_t now = 0; now < TICKS; now++) {
        struct page_share m[2];
        uint64_t t[2] = {LIMIT / 2, LIMIT / 2};
        for (uint32_t k = 0; k < 2; k++) {
            struct line *l = &lines[k];
            finish(l, now);
            if (comes(load, k, now, &rng) && l->count < QUEUE)
                l->came[l->count++] = now;
            l->busy = l->running || l->first < l->count ? now : l->busy;
            m[k] = share_of(l, now);
        }
        m[0].priority = priority;
        m[1].min_bytes = min_pages;
        if (shared)
            page_share_targets(m, 2, LIMIT, t);
        for (int k = 0; k < 2; k++) {
            struct line *l = &lines[k];
            uint64_t used = (uint64_t)l->running * PAGES_EACH, least = used > t[k] ? used : t[k];
            o.moved += l->held > least ? l->held - least : 0;
            l->held = l->held > least ? least : l->held;
        }
        for (int k = 0; k < 2; k++) {
            struct line *l = &lines[k];
            uint64_t free = LIMIT - lines[1 - k].held, room = t[k] < free ? t[k] : free;
            uint32_t running = l->running;
            o.of_each[k] += start(l, now, room);
            uint64_t grown = l->held + (uint64_t)(l->running - running) * PAGES_EACH;
            l->held = grown < room ? grown : room > l->held ? room : l->held;
            assert_true(l->held >= (uint64_t)l->running * PAGES_EACH);
        }
        assert_true(lines[0].held + lines[1].held <= LIMIT);
    }
    o.in_time = o.of_each[0] + o.of_each[1];
    return o;
}

static void shared_memory_serves_more_where_loads_alternate(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct outcome halves = simulate(false, ALTERNATES, seed);
        struct outcome one = simulate(true, ALTERNATES, seed);
        assert_true(one.in_time >= 3 * halves.in_time / 2);
        halves = simulate(false, STEADY, seed);
        one = simulate(true, STEADY, seed);
        assert_true(100 * one.in_time >= 95 * halves.in_time);
    }
}

/* What moves has to be mapped and filled with zeros again. */
static void little_moves_between_models_that_are_equally_busy(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct outcome halves = simulate(false, BOTH_BURST, seed);
        struct outcome one = simulate(true, BOTH_BURST, seed);
        assert_true(one.in_time >= halves.in_time);
        assert_true(one.moved <= LIMIT);
    }
}

/* Where both want more than there is, the first has nearly all of its requests in time, the second
 * as many as its minimum lets run; where there is enough for both, nothing changes. */
static void a_priority_decides_only_where_memory_is_short(void **state)
{
    (void)state;
    min_pages = LIMIT / 4;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct outcome equal = simulate(true, OVERLOAD, seed);
        struct outcome steady = simulate(true, STEADY, seed);
        priority = 1;
        struct outcome first = simulate(true, OVERLOAD, seed);
        struct outcome same = simulate(true, STEADY, seed);
        priority = 0;
        assert_true(first.of_each[0] > 2 * equal.of_each[0]);
        assert_true(100 * first.of_each[0] >= 95 * (TICKS * 7 / 10));
        assert_true(100 * same.in_time >= 99 * steady.in_time);
    }
    min_pages = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_alone_may_have_everything),
        cmocka_unit_test(an_idle_model_gives_way_down_to_its_minimum),
        cmocka_unit_test(busy_models_share_alike_and_divide_what_one_does_not_need),
        cmocka_unit_test(the_oldest_request_has_all_that_it_needs),
        cmocka_unit_test(a_higher_priority_is_met_first_down_to_the_minimum),
        cmocka_unit_test(what_nobody_needs_stays_with_the_last_that_was_busy),
        cmocka_unit_test(a_request_takes_the_place_of_its_own_models_prefixes),
        cmocka_unit_test(minimums_past_the_limit_count_for_nothing),
        cmocka_unit_test(random_targets_fit_the_limit_and_the_minimums),
        cmocka_unit_test(shared_memory_serves_more_where_loads_alternate),
        cmocka_unit_test(little_moves_between_models_that_are_equally_busy),
        cmocka_unit_test(a_priority_decides_only_where_memory_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
