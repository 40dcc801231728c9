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

static void what_nobody_needs_stays_with_the_last_that_was_busy(void **state)
{
    (void)state;
    struct page_share m[2] = {{.held_bytes = 50, .idle_ns = 900},
                              {.held_bytes = 50, .used_bytes = 10, .wanted_bytes = 20}};
    uint64_t t[2];
    page_share_targets(m, 2, 100, t);
    assert_int_equal(t[1], 70); /* 30, and 40 that it keeps for texts to come */
    assert_int_equal(t[0], 30);
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
            m[k] = (struct page_share){.min_bytes = hw_rng_below(&rng, 200),
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

struct line { /* of one model */
    uint32_t came[QUEUE], first, count;
    uint32_t ends[QUEUE], running; /* unordered */
    uint32_t idle;
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
    return (struct page_share){.held_bytes = l->running * PAGES_EACH,
                               .used_bytes = l->running * PAGES_EACH,
                               .wanted_bytes = waiting * PAGES_EACH,
                               .oldest_bytes = waiting || l->running ? PAGES_EACH : 0,
                               .oldest_ns = waiting ? now - l->came[l->first] : 0,
                               .idle_ns = l->idle};
}

/* How many are in time.  A model's load in bursts of `period` ticks, in turn, or both at once. */
static uint32_t simulate(bool shared, bool alternate, uint64_t seed)
{
    static struct line lines[2];
    struct hw_rng rng;
    uint32_t in_time = 0;
    memset(lines, 0, sizeof lines);
    hw_rng_seed(&rng, seed);
    for (uint32_t now = 0; now < TICKS; now++) {
        struct page_share m[2];
        uint64_t t[2] = {LIMIT / 2, LIMIT / 2}, held = 0;
        for (uint32_t k = 0; k < 2; k++) {
            bool bursts = alternate ? now / 200 % 2 == k : true;
            uint64_t per_mille = bursts ? (alternate ? 900 : 450) : 0;
            finish(&lines[k], now);
            if (hw_rng_below(&rng, 1000) < per_mille && lines[k].count < QUEUE)
                lines[k].came[lines[k].count++] = now;
            m[k] = share_of(&lines[k], now);
        }
        if (shared)
            page_share_targets(m, 2, LIMIT, t);
        for (int k = 0; k < 2; k++) {
            uint64_t other = (uint64_t)lines[1 - k].running * PAGES_EACH;
            uint64_t room = shared && t[k] > LIMIT - other ? LIMIT - other : t[k];
            in_time += start(&lines[k], now, room);
            held += (uint64_t)lines[k].running * PAGES_EACH;
        }
        assert_true(held <= LIMIT);
    }
    return in_time;
}

static void shared_memory_serves_more_where_loads_alternate(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        uint32_t halves = simulate(false, true, seed), one = simulate(true, true, seed);
        assert_true(one >= 3 * halves / 2);
        halves = simulate(false, false, seed);
        one = simulate(true, false, seed);
        assert_true(100 * one >= 95 * halves);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_alone_may_have_everything),
        cmocka_unit_test(an_idle_model_gives_way_down_to_its_minimum),
        cmocka_unit_test(busy_models_share_alike_and_divide_what_one_does_not_need),
        cmocka_unit_test(the_oldest_request_has_all_that_it_needs),
        cmocka_unit_test(what_nobody_needs_stays_with_the_last_that_was_busy),
        cmocka_unit_test(minimums_past_the_limit_count_for_nothing),
        cmocka_unit_test(random_targets_fit_the_limit_and_the_minimums),
        cmocka_unit_test(shared_memory_serves_more_where_loads_alternate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
