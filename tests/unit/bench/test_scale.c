/* The simulated cluster: its counts against real daemons, its tables against placing all again, its
 * formulas against throwing balls, and what it says of members that come and go. */
#include "../kv/unit.h"

#include "../kv/cluster.h"
#include "base/log.h"
#include "bench/kvsim/scale_impl.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REAL_MEMBERS = 16,
    BLOCK = 576 << 10, /* three chunks; a size that an arena holds without waste */
    STORE_BLOCKS = 24, /* holds what its member has ... */
    TIGHT_BLOCKS = 4,  /* ... and does not */
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
                                     .heartbeat_ns = 2 * HW_SEC,
                                     .bandwidth = UINT64_C(3) << 30,
                                     .seed = 1};
}

/* ---- real daemons ---- */

static void swallow(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

static void open_real(struct cluster *c, uint32_t members, uint32_t copies, uint32_t blocks)
{
    struct cluster_options o = {.seed = 1,
                                .count = members,
                                .copies = copies,
                                .arena_bytes = (size_t)blocks * BLOCK,
                                .depth = 2,
                                .staging_bytes = BLOCK,
                                .heartbeat_ns = 2 * HW_SEC,
                                .net = {.seed = 1, .delay_ns = 10 * HW_US}};
    hw_log_set_sink(swallow, NULL);
    cluster_open(c, &o);
    for (int i = 0; i < 10000 && !cluster_all_connected(c); i++) {
        for (uint32_t m = 0; m < members; m++)
            cluster_turn(c, m);
        cluster_pass_time(c, 100 * HW_US);
    }
    assert_true(cluster_all_connected(c));
}

static void close_real(struct cluster *c)
{
    cluster_close(c);
    hw_log_set_sink(NULL, NULL);
}

static void turn_all(struct cluster *c, uint64_t ns)
{
    for (uint32_t m = 0; m < c->options.count; m++)
        cluster_turn(c, m);
    cluster_pass_time(c, ns);
}

/* One request, waited for; the handle that it gave, if any. */
static enum kv_result do_one(struct cluster *c, uint32_t m, const struct kv_block_request *r,
                             const struct kv_block_key *key, uint64_t *handle)
{
    struct kv_port *port = &c->members[m].port;
    struct kv_port_answer a;
    int got = 0;
    (void)cluster_submit(c, m, r, key, 5000000);
    for (int i = 0; i < 100000 && (got = kv_port_take(port, &a)) == 0; i++)
        turn_all(c, 10 * HW_US);
    assert_int_equal(got, 1);
    enum kv_result result = a.result;
    if (handle && result == KV_OK)
        memcpy(handle, a.value, sizeof(*handle));
    kv_port_free(port, a.slot);
    return result;
}

/* As a worker does: gets the block, or puts it.  Whether it was there. */
static bool access_real(struct cluster *c, uint32_t m, uint32_t id)
{
    struct kv_block_key key = kv_scale_key(id);
    uint64_t handle;
    struct kv_block_request get = {.op = KV_BLOCK_GET, .key_count = 1};
    struct kv_block_request start = {.op = KV_BLOCK_PUT_START, .key_count = 1, .len = BLOCK};
    enum kv_result result = do_one(c, m, &get, &key, &handle);
    if (result == KV_OK) {
        struct kv_block_request release = {.op = KV_BLOCK_RELEASE, .handle = handle};
        assert_int_equal(do_one(c, m, &release, NULL, NULL), KV_OK);
        return true;
    }
    assert_int_equal(result, KV_MISS);
    assert_int_equal(do_one(c, m, &start, &key, &handle), KV_OK);
    struct kv_block_request commit = {.op = KV_BLOCK_PUT_COMMIT, .handle = handle, .len = BLOCK};
    memset(c->members[m].port.region.staging, (int)id, BLOCK);
    assert_int_equal(do_one(c, m, &commit, NULL, NULL), KV_OK);
    return false;
}

/* How many blocks had to go. */
static uint64_t hold_against_daemons(uint32_t copies, uint32_t blocks)
{
    struct small_trace t;
    struct cluster c;
    struct kv_scale_result r;
    uint64_t before, after, writes, hits = 0, served = 0, evicted = 0;
    make_trace(&t);
    struct kv_scale_options o = options_of(&t, REAL_MEMBERS);
    o.copies = copies;
    o.member_blocks = blocks;
    assert_int_equal(kv_scale_run(&o, &r), 0);
    open_real(&c, REAL_MEMBERS, copies, blocks);
    cluster_sent(&c, &before, &writes);
    for (uint32_t i = 0; i < t.trace.id_count; i++)
        hits += access_real(&c, i / CHAIN % REAL_MEMBERS, t.ids[i]);
    turn_all(&c, HW_MS); /* what was posted last */
    cluster_sent(&c, &after, &writes);
    for (uint32_t m = 0; m < REAL_MEMBERS; m++) {
        const struct kv_stats *stats = kv_daemon_stats(c.members[m].daemon);
        served += hw_counter_load(&stats->block_served);
        evicted += hw_counter_load(&stats->block_evicted);
    }
    assert_int_equal(hits, r.hit_count);
    assert_int_equal(served, r.asked);
    assert_int_equal(after - before, llround(r.messages.simulated * r.seconds));
    assert_true(r.unmoved.simulated > 0 && r.hit_count > 50);
    close_real(&c);
    return evicted;
}

static void messages_are_those_of_real_daemons(void **state)
{
    (void)state;
    assert_int_equal(hold_against_daemons(1, STORE_BLOCKS), 0);
    assert_int_equal(hold_against_daemons(2, STORE_BLOCKS), 0);
    /* With one copy: real daemons restore evicted copies, which the simulator does not. */
    assert_true(hold_against_daemons(1, TIGHT_BLOCKS) > 20);
}

static void idle_daemons_ping_as_the_formula_says(void **state)
{
    (void)state;
    enum { FEW = 4, SECONDS = 20 };
    struct small_trace t;
    struct cluster c;
    struct kv_scale_result r;
    uint64_t messages, before, after;
    make_trace(&t);
    struct kv_scale_options o = options_of(&t, FEW);
    assert_int_equal(kv_scale_run(&o, &r), 0);
    open_real(&c, FEW, 1, STORE_BLOCKS);
    cluster_sent(&c, &messages, &before);
    uint64_t until = cluster_now(&c) + SECONDS * HW_SEC;
    while (cluster_now(&c) < until)
        turn_all(&c, 5 * HW_MS);
    cluster_sent(&c, &messages, &after);
    /* Each is sent by one member and received by another. */
    double real = 2 * (double)(after - before) / FEW / SECONDS;
    assert_true(real <= r.pings && real >= r.pings / 2); /* an answer may save a ping */
    close_real(&c);
}

/* ---- placing ---- */

static void check_view(const struct kv_scale_map *map, uint32_t view, const struct kv_member *all,
                       const bool *present, uint32_t count)
{
    static struct kv_member members[64];
    uint32_t numbers[64], n = 0, owners[KV_COPIES_MAX];
    for (uint32_t i = 0; i < count; i++)
        if (present[i]) {
            members[n] = all[i];
            numbers[n++] = i;
        }
    for (uint32_t id = 0; id < map->ids; id++) {
        struct kv_block_key key = kv_scale_key(id);
        uint32_t k = kv_owners_among(members, n, kv_block_hash(&key), map->copies, owners);
        const uint32_t *got = kv_scale_owners(map, view, id);
        for (uint32_t i = 0; i < map->copies; i++)
            assert_int_equal(got[i], i < k ? numbers[owners[i]] : KV_SCALE_NOBODY);
    }
}

static void small_steps_place_as_all_anew(void **state)
{
    (void)state;
    enum { MANY = 5000, START = 3, STEPS = 6 };
    static const struct kv_scale_step steps[STEPS] = {
        {.change = KV_SCALE_JOIN, .member = 3},  {.change = KV_SCALE_KILL, .member = 0},
        {.change = KV_SCALE_LEAVE, .member = 3}, {.change = KV_SCALE_LEAVE, .member = 1},
        {.change = KV_SCALE_JOIN, .member = 4},  {.change = KV_SCALE_JOIN, .member = 5}};
    struct kv_member all[START + STEPS] = {0};
    for (uint32_t i = 0; i < ARRAY_LEN(all); i++) {
        snprintf(all[i].name, sizeof(all[i].name), "member-%05u", i);
        all[i].id = kv_member_id(all[i].name);
    }
    for (uint32_t copies = 1; copies <= KV_COPIES_MAX; copies++) {
        bool present[START + STEPS] = {true, true, true};
        struct kv_scale_map map;
        assert_int_equal(kv_scale_map_init(&map, MANY, copies, START, steps, STEPS), 0);
        for (uint32_t view = 0; view <= STEPS; view++) {
            if (view > 0)
                present[steps[view - 1].member] = steps[view - 1].change == KV_SCALE_JOIN;
            check_view(&map, view, all, present, START + STEPS);
        }
        kv_scale_map_fini(&map);
    }
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
    assert_true(fabs(mean.simulated / mean.model - 1) < 0.03);
    assert_true(most.simulated <= most.model && most.simulated > 0.97 * most.model);
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
    assert_true(r.hits.simulated == r.hits.model && r.prefix_hits.simulated == r.prefix_hits.model);
    assert_true(r.asked == 0 && r.messages.simulated == 0 && r.keys_balance.simulated == 1);
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
    assert_true(a.asked == b.asked && a.get_mean_ns.simulated == b.get_mean_ns.simulated);
    o.seed = 2;
    assert_int_equal(kv_scale_run(&o, &other), 0);
    assert_true(other.notice_mean_ns.simulated != a.notice_mean_ns.simulated);
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
    assert_true(e->lost.simulated > 5 && e->lost.simulated < 11 * CHAIN);
    assert_true(e->misses.simulated > 5);
    assert_true(fabs(e->keys_moved.simulated - 0.5) < 0.2);
    assert_true(e->put_bytes.simulated == e->misses.simulated * BLOCK);
    o.copies = 2;
    assert_int_equal(kv_scale_run(&o, &r), 0);
    assert_true(r.effects[0].misses.simulated == 0);
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
        left -= r.effects[i].keys_moved.simulated;
    }
    assert_true(left < 0.2 && r.asked > 0); /* of the first one's keys, some that moved twice */
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
    o.block_bytes = 1;
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
    o.members = KV_SCALE_MEMBERS_MAX + 1;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_those_of_real_daemons),
        cmocka_unit_test(idle_daemons_ping_as_the_formula_says),
        cmocka_unit_test(small_steps_place_as_all_anew),
        cmocka_unit_test(the_fullest_bin_is_as_full_as_expected),
        cmocka_unit_test(a_death_is_noticed_within_a_lease_and_a_look),
        cmocka_unit_test(one_member_is_one_store),
        cmocka_unit_test(seeds_decide_everything),
        cmocka_unit_test(what_a_dead_member_had_is_lost_then_missed),
        cmocka_unit_test(those_who_join_at_the_same_time_all_get_their_share),
        cmocka_unit_test(views_that_differ_are_met),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(every_failed_allocation_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
