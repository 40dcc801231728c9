/* Two daemons with one name, in virtual time: the one that is connected keeps the name. */
#include "unit.h"

#include "base/log.h"
#include "bench/kvsim/cluster.h"

#include <stdlib.h>
#include <string.h>

enum { ARENA = 1 << 16 };

/* A cluster of two, and a daemon that claims the name of the one that dials. */
struct fixture {
    struct cluster cluster;
    uint32_t dials, listens; /* of the two, by number */
    struct kv_daemon *claimant;
    uint8_t *arena;
    char log[4096];
    uint32_t lines;
};

static void keep_log(void *user, const char *line, size_t len)
{
    struct fixture *f = user;
    size_t used = strlen(f->log);
    f->lines++;
    if (used + len < sizeof(f->log))
        memcpy(f->log + used, line, len);
}

static void claimant_start(struct fixture *f, uint64_t seed)
{
    struct kv_daemon_config config = {
        .ranks = 1,
        .daemons = 1,
        .member = cluster_member_id(f->dials),
        .copies = 1,
        .store_bytes = 4096,
        .store_entries = 16,
        .blocks = {.arena = f->arena, .arena_bytes = ARENA, .entries = 16},
        .seed = seed,
        .clock = rpc_loopnet_clock(f->cluster.net)};
    assert_int_equal(kv_daemon_create(&config, &f->claimant), 0);
    kv_daemon_set_view(f->claimant, kv_daemon_view(f->cluster.members[f->dials].daemon));
}

static struct rpc_ep *ep_create(struct fixture *f, struct rpc_transport *t, bool accepting)
{
    struct rpc_config config = {.accepting = accepting,
                                .heartbeat_ns = f->cluster.options.heartbeat_ns,
                                .clock = rpc_loopnet_clock(f->cluster.net)};
    struct rpc_ep *ep;
    assert_int_equal(rpc_ep_create(t, &config, &ep), 0);
    return ep;
}

static void claimant_turn(struct fixture *f)
{
    struct kv_daemon *listener = f->cluster.members[f->listens].daemon;
    struct rpc_transport *pair[2];
    (void)kv_daemon_turn(f->claimant);
    int peer = kv_daemon_dial_next(f->claimant);
    if (peer < 0)
        return;
    assert_int_equal(rpc_loopnet_pair(f->cluster.net, pair), 0);
    kv_daemon_adopt(listener, ep_create(f, pair[1], true), -1);
    kv_daemon_adopt(f->claimant, ep_create(f, pair[0], false), peer);
}

static void turn_for(struct fixture *f, uint64_t ns)
{
    uint64_t until = cluster_now(&f->cluster) + ns;
    while (cluster_now(&f->cluster) < until) {
        for (uint32_t i = 0; i < 2; i++)
            cluster_turn(&f->cluster, i);
        if (f->claimant)
            claimant_turn(f);
        cluster_pass_time(&f->cluster, HW_MS);
    }
}

static void fixture_open(struct fixture *f)
{
    const struct cluster_options options = {.seed = 1,
                                            .count = 2,
                                            .copies = 1,
                                            .arena_bytes = ARENA,
                                            .depth = 1,
                                            .heartbeat_ns = 200 * HW_MS,
                                            .net = {.seed = 1, .delay_ns = 100 * HW_US}};
    *f = (struct fixture){.dials = cluster_member_id(1) > cluster_member_id(0)};
    f->listens = !f->dials;
    f->arena = aligned_alloc(64, ARENA);
    assert_non_null(f->arena);
    hw_log_set_sink(keep_log, f);
    assert_int_equal(cluster_open(&f->cluster, &options), 0);
    turn_for(f, HW_SEC);
    assert_true(cluster_all_connected(&f->cluster));
}

static void fixture_close(struct fixture *f)
{
    kv_daemon_destroy(f->claimant);
    cluster_close(&f->cluster);
    free(f->arena);
    hw_log_set_sink(NULL, NULL);
}

static bool claimant_is_up(const struct fixture *f)
{
    int peer = kv_daemon_peer_of(f->claimant, cluster_member_id(f->listens));
    return kv_daemon_peer_up(f->claimant, (uint32_t)peer);
}

static uint64_t lost_of(const struct fixture *f)
{
    const struct kv_stats *stats = kv_daemon_stats(f->cluster.members[f->listens].daemon);
    return hw_counter_load(&stats->peers_lost);
}

static void a_second_daemon_of_a_name_is_refused_and_both_sides_say_why(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    claimant_start(&f, 77);
    turn_for(&f, 50 * HW_SEC);
    assert_in_range(f.lines, 2, 6); /* it dials every second; others read the log, too */
    assert_false(claimant_is_up(&f));
    assert_true(cluster_all_connected(&f.cluster));
    assert_int_equal(lost_of(&f), 0); /* the first one did not notice */
    assert_non_null(strstr(f.log, "cannot join: member-"));
    assert_non_null(strstr(f.log, "does not let us join: another daemon with our name or rank is "
                                  "connected: give each daemon a --name or --rank of its own"));
    fixture_close(&f);
}

static void a_restarted_daemon_joins_once_the_first_is_known_to_be_gone(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    claimant_start(&f, 77);
    cluster_stop(&f.cluster, f.dials); /* with a goodbye */
    turn_for(&f, HW_SEC / 2);
    assert_true(claimant_is_up(&f));
    assert_int_equal(lost_of(&f), 1);
    fixture_close(&f);
}

static void a_daemon_whose_host_died_is_replaced_after_its_heartbeat(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    f.cluster.members[f.dials].stalled_until_ns = HW_NEVER; /* it says nothing any more */
    claimant_start(&f, 77);
    turn_for(&f, 50 * HW_MS);
    assert_false(claimant_is_up(&f));
    turn_for(&f, 3 * HW_SEC);
    assert_true(claimant_is_up(&f));
    fixture_close(&f);
}

/* Its host takes the dial; the options of the daemons are not the reason. */
static void a_stopped_daemon_is_said_to_be_silent(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    f.cluster.members[f.listens].stalled_until_ns = HW_NEVER;
    turn_for(&f, 20 * HW_SEC);
    assert_null(strstr(f.log, "does not let us join"));
    assert_non_null(
        strstr(f.log, "does not answer our JOIN: it is stopped, or the network is cut"));
    fixture_close(&f);
}

/* They are connected, and never say who they are. */
static void callers_that_do_not_join_leave_their_places(void **state)
{
    (void)state;
    struct fixture f;
    struct rpc_transport *pair[2];
    struct rpc_ep *callers[KV_UNJOINED_MAX];
    fixture_open(&f);
    for (uint32_t i = 0; i < KV_UNJOINED_MAX; i++) {
        assert_int_equal(rpc_loopnet_pair(f.cluster.net, pair), 0);
        kv_daemon_adopt(f.cluster.members[f.listens].daemon, ep_create(&f, pair[1], true), -1);
        callers[i] = ep_create(&f, pair[0], false);
    }
    claimant_start(&f, 77);
    cluster_stop(&f.cluster, f.dials);
    for (uint64_t until = cluster_now(&f.cluster) + 10 * HW_SEC; cluster_now(&f.cluster) < until;) {
        for (uint32_t i = 0; i < KV_UNJOINED_MAX; i++)
            (void)rpc_poll(callers[i]);
        turn_for(&f, 10 * HW_MS);
    }
    assert_true(claimant_is_up(&f));
    for (uint32_t i = 0; i < KV_UNJOINED_MAX; i++)
        rpc_ep_destroy(callers[i]);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_daemon_of_a_name_is_refused_and_both_sides_say_why),
        cmocka_unit_test(a_restarted_daemon_joins_once_the_first_is_known_to_be_gone),
        cmocka_unit_test(a_daemon_whose_host_died_is_replaced_after_its_heartbeat),
        cmocka_unit_test(a_stopped_daemon_is_said_to_be_silent),
        cmocka_unit_test(callers_that_do_not_join_leave_their_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
