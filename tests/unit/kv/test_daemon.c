/* One daemon and its clients' regions, turn by turn, without any process or socket. */
#include "unit.h"

#include "base/log.h"
#include "kv/daemon/daemon.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
    struct kv_daemon *daemon;
    struct kv_client_slot *client_slot;
    struct kv_port port;
    struct kv_region_shape shape;
    void *map;
    int rings;
    uint64_t now;
};

static uint64_t fixture_now(void *user)
{
    return ((struct fixture *)user)->now += 100;
}

static void fixture_ring(void *user)
{
    ((struct fixture *)user)->rings++;
}

static void fixture_open(struct fixture *k, uint32_t depth, uint32_t ranks, struct kv_probe *probe)
{
    *k = (struct fixture){.shape = {.depth = depth, .value_max = 128}, .now = HW_SEC};
    struct kv_daemon_config config = {.ranks = ranks,
                                      .daemons = 1,
                                      .store_bytes = 10000,
                                      .store_entries = 100,
                                      .max_clients = 2,
                                      .seed = 1,
                                      .clock = {fixture_now, k},
                                      .probe = probe};
    assert_int_equal(kv_daemon_create(&config, &k->daemon), 0);
    size_t bytes = (kv_region_bytes(&k->shape) + 63) / 64 * 64;
    k->map = aligned_alloc(64, bytes);
    assert_non_null(k->map);
    memset(k->map, 0, bytes);
    kv_region_format(k->map, &k->shape);
    assert_int_equal(
        kv_daemon_attach(k->daemon, k->map, &k->shape, fixture_ring, k, &k->client_slot), 0);
    kv_port_init(&k->port, k->map, &k->shape);
}

static void fixture_close(struct fixture *k)
{
    kv_daemon_destroy(k->daemon);
    free(k->map);
}

static uint32_t ask(struct fixture *k, enum kv_op op, uint64_t key, const char *value)
{
    struct kv_port_request r = {.op = op,
                                .key = kv_key_u64(key),
                                .value = value,
                                .value_len = value ? (uint32_t)strlen(value) : 0};
    uint32_t slot = UINT32_MAX;
    assert_int_equal(kv_port_submit(&k->port, &r, &slot), 0);
    return slot;
}

static struct kv_port_answer take(struct fixture *k)
{
    struct kv_port_answer a;
    assert_int_equal(kv_port_take(&k->port, &a), 1);
    kv_port_free(&k->port, a.slot);
    return a;
}

static void a_ring_goes_round_many_times(void **state)
{
    (void)state;
    struct fixture k;
    fixture_open(&k, 3, 1, NULL); /* a ring of 4 lines for 3 slots */
    for (int i = 0; i < 50; i++) {
        uint32_t first =
            ask(&k, KV_PUT, 1, i % 2 ? "odd" : "even, and longer than a line can hold");
        uint32_t second = ask(&k, KV_GET, 1, NULL);
        assert_true(kv_daemon_turn(k.daemon) > 0);
        assert_int_equal(take(&k).slot, first);
        struct kv_port_answer a = take(&k);
        assert_int_equal(a.slot, second);
        assert_int_equal(a.result, KV_OK);
        assert_int_equal(a.value_len, i % 2 ? 3 : 37);
        assert_memory_equal(a.value, i % 2 ? "odd" : "even", 3);
        assert_int_equal(kv_daemon_turn(k.daemon), 0);
    }
    fixture_close(&k);
}

static void all_slots_taken_is_told_before_anything_is_overwritten(void **state)
{
    (void)state;
    struct fixture k;
    fixture_open(&k, 2, 1, NULL);
    struct kv_port_request r = {.op = KV_GET, .key = kv_key_u64(1)};
    uint32_t slot;
    (void)ask(&k, KV_GET, 1, NULL);
    (void)ask(&k, KV_GET, 2, NULL);
    assert_int_equal(kv_port_submit(&k.port, &r, &slot), -EAGAIN);
    r = (struct kv_port_request){.op = KV_PUT, .value = "", .value_len = 129};
    assert_int_equal(kv_port_submit(&k.port, &r, &slot), -EMSGSIZE);
    fixture_close(&k);
}

static void a_sleeping_client_is_rung_and_a_waking_one_is_not(void **state)
{
    (void)state;
    struct fixture k;
    fixture_open(&k, 2, 1, NULL);
    (void)ask(&k, KV_GET, 1, NULL);
    assert_false(kv_port_must_ring(&k.port)); /* the daemon is awake */
    (void)kv_daemon_turn(k.daemon);
    assert_int_equal(k.rings, 0);
    (void)take(&k);
    (void)ask(&k, KV_GET, 1, NULL);
    assert_false(kv_port_arm(&k.port));
    (void)kv_daemon_turn(k.daemon);
    assert_int_equal(k.rings, 1);
    assert_true(kv_port_arm(&k.port)); /* an answer is there: it must not sleep */
    fixture_close(&k);
}

static void a_daemon_does_not_sleep_on_a_request(void **state)
{
    (void)state;
    struct fixture k;
    fixture_open(&k, 2, 1, NULL);
    (void)ask(&k, KV_GET, 1, NULL);
    assert_true(kv_daemon_arm(k.daemon));
    (void)kv_daemon_turn(k.daemon);
    (void)take(&k);
    assert_false(kv_daemon_arm(k.daemon));
    (void)ask(&k, KV_GET, 1, NULL);
    assert_true(kv_port_must_ring(&k.port));
    assert_int_equal(kv_daemon_turn(k.daemon), 0); /* parked: it costs nothing until it rings */
    kv_client_slot_wake(k.daemon, k.client_slot);
    assert_int_equal(kv_daemon_turn(k.daemon), 1);
    fixture_close(&k);
}

static void an_idle_client_is_parked_while_another_works(void **state)
{
    (void)state;
    struct fixture busy;
    fixture_open(&busy, 1, 1, NULL);
    size_t bytes = (kv_region_bytes(&busy.shape) + 63) / 64 * 64;
    void *map = aligned_alloc(64, bytes);
    assert_non_null(map);
    memset(map, 0, bytes);
    struct kv_client_slot *idle, *third;
    struct kv_port port;
    assert_int_equal(kv_daemon_attach(busy.daemon, map, &busy.shape, fixture_ring, &busy, &idle),
                     0);
    assert_int_equal(kv_daemon_attach(busy.daemon, map, &busy.shape, fixture_ring, &busy, &third),
                     -EUSERS); /* max_clients is 2 */
    kv_port_init(&port, map, &busy.shape);
    assert_false(kv_port_must_ring(&port));
    for (int i = 0; i < 20; i++) {
        (void)ask(&busy, KV_GET, 1, NULL);
        busy.now += KV_PARK_NS / 8;
        (void)kv_daemon_turn(busy.daemon);
        (void)take(&busy);
    }
    assert_true(kv_port_must_ring(&port));
    assert_false(kv_port_must_ring(&busy.port));
    kv_daemon_detach(busy.daemon, idle);
    free(map);
    fixture_close(&busy);
}

/* Two clients of one daemon; while the daemon wakes one, the other takes its answer, asks again and
 * sleeps. */
struct pair {
    struct fixture first;
    struct fixture second; /* of the first one's daemon */
    struct fixture *meanwhile;
};

static void pair_ring(void *user)
{
    struct pair *p = user;
    if (!p->meanwhile)
        return;
    (void)take(p->meanwhile);
    (void)ask(p->meanwhile, KV_GET, 1, NULL);
    assert_false(kv_port_arm(&p->meanwhile->port));
    p->meanwhile = NULL;
}

static void a_client_that_found_its_answer_and_sleeps_for_the_next_is_not_woken_for_it(void **state)
{
    (void)state;
    struct pair p = {.meanwhile = NULL};
    fixture_open(&p.first, 1, 1, NULL);
    kv_daemon_detach(p.first.daemon, p.first.client_slot);
    struct fixture *both[2] = {&p.first, &p.second};
    p.second = (struct fixture){.shape = p.first.shape};
    size_t bytes = (kv_region_bytes(&p.first.shape) + 63) / 64 * 64;
    p.second.map = aligned_alloc(64, bytes);
    assert_non_null(p.second.map);
    for (int i = 0; i < 2; i++) {
        memset(both[i]->map, 0, bytes);
        kv_region_format(both[i]->map, &p.first.shape);
        assert_int_equal(kv_daemon_attach(p.first.daemon, both[i]->map, &p.first.shape, pair_ring,
                                          &p, &both[i]->client_slot),
                         0);
        kv_port_init(&both[i]->port, both[i]->map, &p.first.shape);
    }
    const struct kv_stats *stats = kv_daemon_stats(p.first.daemon);
    for (int sleeper = 0; sleeper < 2; sleeper++) { /* in both orders of being woken */
        struct fixture *asleep = both[sleeper], *awake = both[!sleeper];
        uint64_t wakeups = hw_counter_load(&stats->wakeups);
        (void)ask(asleep, KV_GET, 1, NULL);
        (void)ask(awake, KV_GET, 1, NULL);
        assert_false(kv_port_arm(&asleep->port));
        p.meanwhile = awake;
        assert_int_equal(kv_daemon_turn(p.first.daemon), 2);
        assert_int_equal(hw_counter_load(&stats->wakeups), wakeups + 1);
        assert_int_equal(kv_daemon_turn(p.first.daemon), 1);
        assert_int_equal(hw_counter_load(&stats->wakeups), wakeups + 2); /* for the next it is */
        for (int i = 0; i < 2; i++) {
            (void)take(both[i]);
            kv_port_disarm(&both[i]->port);
        }
    }
    free(p.second.map);
    fixture_close(&p.first);
}

static void swallow(void *user, const char *line, size_t len)
{
    (void)line, (void)len;
    ++*(int *)user;
}

static void a_client_that_names_a_slot_it_does_not_have_is_dropped(void **state)
{
    (void)state;
    int lines = 0;
    struct fixture k;
    hw_log_set_sink(swallow, &lines);
    fixture_open(&k, 2, 1, NULL);
    (void)ask(&k, KV_GET, 1, NULL);
    (void)ask(&k, KV_GET, 2, NULL);
    k.port.region.requests[1].slot = 2;
    assert_int_equal(kv_daemon_turn(k.daemon), 2);
    assert_true(kv_client_slot_broken(k.client_slot));
    assert_int_equal(take(&k).result, KV_MISS);   /* what it asked rightly was answered */
    kv_client_slot_wake(k.daemon, k.client_slot); /* it rings in vain */
    assert_int_equal(kv_daemon_turn(k.daemon), 0);
    fixture_close(&k);
    hw_log_set_sink(NULL, NULL);
    assert_int_equal(lines, 1);
}

static void nonsense_in_a_line_is_refused_not_guessed(void **state)
{
    (void)state;
    struct fixture k;
    fixture_open(&k, 4, 1, NULL);
    (void)ask(&k, KV_GET, 1, NULL);
    k.port.region.requests[0].op = 99;
    (void)ask(&k, KV_GET, 1, NULL);
    k.port.region.requests[1].value_len = 5; /* a get carries no value */
    (void)ask(&k, KV_PUT, 1, "x");
    k.port.region.requests[2].value_len = UINT32_MAX;
    (void)kv_daemon_turn(k.daemon);
    assert_int_equal(take(&k).result, KV_REFUSED);
    assert_int_equal(take(&k).result, KV_REFUSED);
    assert_int_equal(take(&k).result, KV_TOO_LARGE);
    fixture_close(&k);
}

static void a_rank_that_never_came_is_lost_not_a_miss(void **state)
{
    (void)state;
    struct fixture k;
    fixture_open(&k, 1, 2, NULL);
    uint64_t remote = 0;
    while (kv_place_of(kv_key_u64(remote), 2, 1).rank == 0)
        remote++;
    (void)ask(&k, KV_GET, remote, NULL);
    (void)kv_daemon_turn(k.daemon);
    assert_int_equal(take(&k).result, KV_PEER_LOST);
    fixture_close(&k);
}

static void a_value_larger_than_the_asker_s_slots_is_too_large(void **state)
{
    (void)state;
    struct fixture k;
    fixture_open(&k, 1, 1, NULL);
    char value[129];
    memset(value, 'x', 128);
    value[128] = '\0';
    (void)ask(&k, KV_PUT, 1, value);
    (void)kv_daemon_turn(k.daemon);
    assert_int_equal(take(&k).result, KV_OK);
    struct kv_region_shape small = {.depth = 1, .value_max = 64};
    void *map = aligned_alloc(64, 4096);
    assert_non_null(map);
    memset(map, 0, 4096);
    struct kv_client_slot *client_slot;
    struct kv_port port;
    struct kv_port_answer a;
    uint32_t slot;
    assert_int_equal(kv_daemon_attach(k.daemon, map, &small, fixture_ring, &k, &client_slot), 0);
    kv_port_init(&port, map, &small);
    struct kv_port_request r = {.op = KV_GET, .key = kv_key_u64(1)};
    assert_int_equal(kv_port_submit(&port, &r, &slot), 0);
    (void)kv_daemon_turn(k.daemon);
    assert_int_equal(kv_port_take(&port, &a), 1);
    assert_int_equal(a.result, KV_TOO_LARGE);
    kv_daemon_detach(k.daemon, client_slot);
    free(map);
    fixture_close(&k);
}

static void every_phase_is_counted_and_timed(void **state)
{
    (void)state;
    struct kv_probe probe;
    struct fixture k;
    assert_int_equal(kv_probe_init(&probe, 1), 0);
    fixture_open(&k, 4, 1, &probe);
    kv_probe_want(&probe, true);
    for (int i = 0; i < 10; i++) {
        (void)ask(&k, KV_PUT, (uint64_t)i, "v");
        (void)kv_daemon_turn(k.daemon);
        (void)kv_daemon_turn(k.daemon);
        (void)take(&k);
    }
    assert_false(kv_probe_idle(&probe));
    kv_probe_want(&probe, false);
    (void)kv_daemon_turn(k.daemon);
    assert_true(kv_probe_idle(&probe));
    const struct kv_stats *s = kv_daemon_stats(k.daemon);
    assert_int_equal(hw_counter_load(&s->requests), 10);
    assert_int_equal(hw_counter_load(&s->local), 10);
    assert_int_equal(hw_counter_load(&s->ok), 10);
    assert_int_equal(hw_counter_load(&s->loops), 21);
    assert_int_equal(hw_counter_load(&s->useful_loops), 10);
    assert_int_equal(probe.loop.count, 20);
    for (int i = 0; i < KV_PHASES; i++) {
        assert_int_equal(probe.phase[i].count, 20);
        assert_int_equal(probe.phase[i].max, 100); /* one step of the clock */
    }
    assert_int_equal(probe.useful_ns, probe.empty_ns);
    fixture_close(&k);
    kv_probe_fini(&probe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_goes_round_many_times),
        cmocka_unit_test(all_slots_taken_is_told_before_anything_is_overwritten),
        cmocka_unit_test(a_sleeping_client_is_rung_and_a_waking_one_is_not),
        cmocka_unit_test(a_daemon_does_not_sleep_on_a_request),
        cmocka_unit_test(an_idle_client_is_parked_while_another_works),
        cmocka_unit_test(
            a_client_that_found_its_answer_and_sleeps_for_the_next_is_not_woken_for_it),
        cmocka_unit_test(a_client_that_names_a_slot_it_does_not_have_is_dropped),
        cmocka_unit_test(nonsense_in_a_line_is_refused_not_guessed),
        cmocka_unit_test(a_rank_that_never_came_is_lost_not_a_miss),
        cmocka_unit_test(a_value_larger_than_the_asker_s_slots_is_too_large),
        cmocka_unit_test(every_phase_is_counted_and_timed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
