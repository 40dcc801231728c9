/* Clusters of daemons on a trace: their figures against the formulas, the formulas against throwing
 * balls, and what a run says of members that come and go. */
#include "../kv/unit.h"

#include "base/log.h"
#include "bench/kvsim/scale_impl.h"
#include "kv/daemon/daemon.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 4096,
    LARGE_BLOCK = 576 << 10, /* three pieces */
    STORE_BLOCKS = 24,       /* holds what its member has ... */
    TIGHT_BLOCKS = 4,        /* ... and does not */
    REQUESTS = 60,
    IDS = 80,
    CHAIN = 4
};

/* Chains of a few blocks that are asked for again and again. */
struct small_trace {
    uint32_t ids[REQUESTS * CHAIN], ends[REQUESTS];
    uint64_t at_ns[REQUESTS];
    struct kv_trace trace;
};

static void make_trace(struct small_trace *t)
{
    struct hw_rng rng;
    hw_rng_seed(&rng, 7);
    for (uint32_t r = 0; r < REQUESTS; r++) {
        uint32_t first = (uint32_t)(hw_rng_below(&rng, IDS / CHAIN) * hw_rng_below(&rng, 2));
        for (uint32_t i = 0; i < CHAIN; i++)
            t->ids[r * CHAIN + i] = i ? first * CHAIN + i : 0;
        t->ends[r] = (r + 1) * CHAIN;
        t->at_ns[r] = r * HW_SEC;
    }
    t->trace = (struct kv_trace){t->ids, t->ends, REQUESTS * CHAIN, REQUESTS};
}

static struct kv_scale_options options_of(const struct small_trace *t, uint32_t members)
{
    return (struct kv_scale_options){.trace = &t->trace,
                                     .at_ns = t->at_ns,
                                     .members = members,
                                     .copies = 1,
                                     .member_blocks = STORE_BLOCKS,
                                     .block_bytes = BLOCK,
                                     .spread = KV_SCALE_BY_TURNS,
                                     .ttl_ns = 10 * HW_SEC,
                                     .latency_ns = 50 * HW_US,
                                     .bandwidth = UINT64_C(3) << 30,
                                     .seed = 1};
}

/* ---- formulas ---- */

static void the_fullest_bin_is_as_full_as_expected(void **state)
{
    (void)state;
    static const struct {
        uint32_t balls, bins;
    } cases[] = {{100, 10}, {5000, 100}, {20000, 1000}, {300, 1000}};
    struct hw_rng rng;
    hw_rng_seed(&rng, 3);
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        enum { THROWS = 60 };
        double sum = 0;
        for (int i = 0; i < THROWS; i++) {
            uint32_t bins[1000] = {0}, most = 0;
            for (uint32_t b = 0; b < cases[k].balls; b++) {
                uint32_t n = ++bins[hw_rng_below(&rng, cases[k].bins)];
                most = n > most ? n : most;
            }
            sum += most;
        }
        double model = kv_scale_most(cases[k].balls, cases[k].bins);
        assert_true(fabs(sum / THROWS / model - 1) < 0.06);
    }
    assert_true(kv_scale_most(1000, 1) == 1000);
    assert_true(fabs(kv_scale_most(1e6, 10) / 1e5 - 1) < 0.01);
}

static void a_death_is_noticed_within_a_lease_and_a_look(void **state)
{
    (void)state;
    struct small_trace t;
    struct hw_rng rng;
    make_trace(&t);
    hw_rng_seed(&rng, 5);
    struct kv_scale_options o = options_of(&t, 1000);
    uint64_t told = kv_scale_heard_ns(&o, 0, o.members - 1) + o.latency_ns;
    for (int i = 0; i < 2000; i++) {
        uint64_t died = hw_rng_below(&rng, 100 * HW_SEC), phase = hw_rng_u64(&rng);
        uint64_t commit = kv_scale_commit_ns(&o, KV_SCALE_KILL, died, phase);
        uint64_t took = kv_scale_heard_ns(&o, commit, o.members - 1) - died;
        assert_true(took <= o.ttl_ns + 500 * HW_MS + told);
        assert_true(died < o.ttl_ns || took >= o.ttl_ns - o.ttl_ns / 3);
    }
    struct kv_scale_figure mean, most;
    kv_scale_notice(&o, &rng, &mean, &most);
    assert_true(fabs(mean.measured / mean.model - 1) < 0.03);
    assert_true(most.measured <= most.model && most.measured > 0.97 * most.model);
}

/* ---- whole runs ---- */

static void one_member_is_one_store(void **state)
{
    (void)state;
    struct small_trace t;
    struct kv_scale_result r;
    make_trace(&t);
    struct kv_scale_options o = options_of(&t, 1);
    assert_int_equal(kv_scale_run(&o, &r), 0);
    assert_true(r.hits.measured == r.hits.model && r.prefix_hits.measured == r.prefix_hits.model);
    assert_true(r.messages.measured == 0 && r.keys_balance.measured == 1);
}

/* Daemons send what the formulas say: a look, pieces and a close for a hit, a look and a put for a
 * miss; where all are connected before. */
static void messages_are_what_the_formulas_say(void **state)
{
    (void)state;
    struct small_trace t;
    struct kv_scale_result r;
    make_trace(&t);
    struct kv_scale_options o = options_of(&t, KV_MESH_MAX);
    for (o.copies = 1; o.copies <= KV_COPIES_MAX; o.copies++) {
        for (o.block_bytes = BLOCK; o.block_bytes <= LARGE_BLOCK;
             o.block_bytes += LARGE_BLOCK - BLOCK) {
            assert_int_equal(kv_scale_run(&o, &r), 0);
            assert_int_equal(r.evicted, 0);
            assert_true(r.hit_count > 50 && r.hits.measured == r.hits.model);
            if (o.block_bytes == LARGE_BLOCK) /* beside which pings are nothing */
                assert_true(fabs(r.bytes.measured / r.bytes.model - 1) < 0.1);
            /* With two copies each also asks the other owner every 5 s whether it has its own. */
            double ratio = r.messages.measured / r.messages.model;
            assert_true(ratio > 0.95 && ratio < (o.copies == 1 ? 1.05 : 2));
            assert_int_equal(r.connections, KV_MESH_MAX * (KV_MESH_MAX - 1));
        }
    }
    o.copies = 1;
    o.block_bytes = BLOCK;
    o.member_blocks = TIGHT_BLOCKS;
    assert_int_equal(kv_scale_run(&o, &r), 0);
    assert_true(r.evicted > 20);
}

/* Of more than a mesh holds, who asks another connects to it then. */
static void of_many_members_few_are_connected(void **state)
{
    (void)state;
    struct small_trace t;
    struct kv_scale_result r;
    make_trace(&t);
    struct kv_scale_options o = options_of(&t, 100);
    assert_int_equal(kv_scale_run(&o, &r), 0);
    assert_true(r.connections > 0 && r.connections < 100 * 99 / 10);
    assert_true(r.hits.measured == r.hits.model);
    /* A get that must connect first takes longer than the two exchanges of the formula. */
    assert_true(r.get_mean_ns.measured > r.get_mean_ns.model);
}

static void seeds_decide_everything(void **state)
{
    (void)state;
    struct small_trace t;
    struct kv_scale_result a, b, other;
    struct kv_scale_event kill = {KV_SCALE_KILL, 20 * HW_SEC};
    make_trace(&t);
    struct kv_scale_options o = options_of(&t, 8);
    o.events = &kill;
    o.event_count = 1;
    o.spread = KV_SCALE_BY_SESSION;
    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));
    assert_int_equal(kv_scale_run(&o, &a), 0);
    assert_int_equal(kv_scale_run(&o, &b), 0);
    assert_memory_equal(a.effects, b.effects, sizeof(a.effects));
    assert_true(a.messages.measured == b.messages.measured &&
                a.get_mean_ns.measured == b.get_mean_ns.measured);
    o.seed = 2;
    assert_int_equal(kv_scale_run(&o, &other), 0);
    assert_true(other.notice_mean_ns.measured != a.notice_mean_ns.measured);
}

/* Two members of which one dies half way: its half of the blocks cannot be had until the other
 * knows, and must be put again after that; with two copies they are there. */
static void what_a_dead_member_had_is_lost_then_missed(void **state)
{
    (void)state;
    struct small_trace t;
    struct kv_scale_result r;
    struct kv_scale_event kill = {KV_SCALE_KILL, 30 * HW_SEC};
    make_trace(&t);
    struct kv_scale_options o = options_of(&t, 2);
    o.member_blocks = 2 * IDS;
    o.events = &kill;
    o.event_count = 1;
    assert_int_equal(kv_scale_run(&o, &r), 0);
    const struct kv_scale_effect *e = &r.effects[0];
    assert_true(e->lost.measured > 5 && e->lost.measured < 11 * CHAIN);
    assert_true(e->misses.measured > 5);
    assert_true(fabs(e->keys_moved.measured - 0.5) < 0.2);
    assert_true(e->put_bytes.measured == e->misses.measured * BLOCK);
    o.copies = 2;
    assert_int_equal(kv_scale_run(&o, &r), 0);
    assert_true(r.effects[0].misses.measured == 0);
}

static void those_who_join_at_the_same_time_all_get_their_share(void **state)
{
    (void)state;
    struct small_trace t;
    struct kv_scale_result r;
    struct kv_scale_event joins[KV_SCALE_EVENTS_MAX];
    make_trace(&t);
    struct kv_scale_options o = options_of(&t, 1);
    for (uint32_t i = 0; i < KV_SCALE_EVENTS_MAX; i++)
        joins[i] = (struct kv_scale_event){KV_SCALE_JOIN, 10 * HW_SEC};
    o.events = joins;
    o.event_count = KV_SCALE_EVENTS_MAX;
    assert_int_equal(kv_scale_run(&o, &r), 0);
    assert_int_equal(r.effect_count, KV_SCALE_EVENTS_MAX);
    double left = 1;
    for (uint32_t i = 0; i < r.effect_count; i++) {
        assert_true(fabs(r.effects[i].keys_moved.model - 1.0 / (i + 2)) < 1e-9);
        left -= r.effects[i].keys_moved.measured;
    }
    assert_true(left < 0.2 && r.messages.measured > 0); /* some keys of the first moved twice */
}

/* Requests that come while a change travels find owners that do not agree. */
static void views_that_differ_are_met(void **state)
{
    (void)state;
    struct small_trace t;
    struct kv_scale_result r;
    struct kv_scale_event join = {KV_SCALE_JOIN, 0};
    make_trace(&t);
    for (uint32_t i = 0; i < REQUESTS; i++)
        t.at_ns[i] = i * HW_MS;
    struct kv_scale_options o = options_of(&t, 8);
    o.latency_ns = 0;
    o.bandwidth = KV_SCALE_EVENT_BYTES * 100; /* 10 ms from one member to the next */
    o.block_bytes = sizeof(uint32_t);
    o.events = &join;
    o.event_count = 1;
    assert_int_equal(kv_scale_run(&o, &r), 0);
    assert_true(r.stale > 0);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    struct small_trace t;
    struct kv_scale_result r;
    struct kv_scale_event late[] = {{KV_SCALE_JOIN, 5}, {KV_SCALE_JOIN, 4}};
    struct kv_scale_event kills[] = {{KV_SCALE_KILL, 4}, {KV_SCALE_LEAVE, 5}};
    make_trace(&t);
    struct kv_scale_options good = options_of(&t, 2), o = good;
    o.members = 0;
    assert_int_equal(kv_scale_run(&o, &r), -EINVAL);
    o.members = KV_MEMBERS_MAX + 1;
    assert_int_equal(kv_scale_run(&o, &r), -EINVAL);
    o = good;
    o.copies = KV_COPIES_MAX + 1;
    assert_int_equal(kv_scale_run(&o, &r), -EINVAL);
    o = good;
    o.events = late;
    o.event_count = 2;
    assert_int_equal(kv_scale_run(&o, &r), -EINVAL);
    o.events = kills;
    assert_int_equal(kv_scale_run(&o, &r), -EINVAL);
    t.ids[3] = KV_SCALE_IDS_MAX;
    assert_int_equal(kv_scale_run(&good, &r), -EINVAL);
    t.ids[3] = 0;
    t.at_ns[5] = 0;
    assert_int_equal(kv_scale_run(&good, &r), -EINVAL);
    t.at_ns[5] = 5 * HW_SEC;
    assert_int_equal(kv_scale_run(&good, &r), 0);
}

/* ---- memory that runs out ---- */

static int allocations_left = -1; /* less than 0: as many as are asked for */

static bool may_allocate(void)
{
    if (allocations_left == 0)
        return false;
    allocations_left -= allocations_left > 0;
    return true;
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    return may_allocate() ? __real_calloc(count, size) : NULL;
}

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return may_allocate() ? __real_aligned_alloc(alignment, size) : NULL;
}

static void every_failed_allocation_is_an_answer(void **state)
{
    (void)state;
    struct small_trace t;
    struct kv_scale_event join = {KV_SCALE_JOIN, 5 * HW_SEC};
    struct kv_scale_result r = {.seconds = -1};
    int failures = 0, rc;
    make_trace(&t);
    struct kv_scale_options o = options_of(&t, 2);
    o.events = &join;
    o.event_count = 1;
    do {
        allocations_left = failures++;
        rc = kv_scale_run(&o, &r);
        assert_true(rc == 0 || (rc == -ENOMEM && r.seconds == -1));
    } while (rc);
    allocations_left = -1;
    assert_true(failures > 20 && r.seconds > 0);
}

static void swallow(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

int main(void)
{
    hw_log_set_sink(swallow, NULL); /* members that go are what this is about */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fullest_bin_is_as_full_as_expected),
        cmocka_unit_test(a_death_is_noticed_within_a_lease_and_a_look),
        cmocka_unit_test(one_member_is_one_store),
        cmocka_unit_test(messages_are_what_the_formulas_say),
        cmocka_unit_test(of_many_members_few_are_connected),
        cmocka_unit_test(seeds_decide_everything),
        cmocka_unit_test(what_a_dead_member_had_is_lost_then_missed),
        cmocka_unit_test(those_who_join_at_the_same_time_all_get_their_share),
        cmocka_unit_test(views_that_differ_are_met),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(every_failed_allocation_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
