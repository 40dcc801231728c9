/* A crowd of clients and one daemon, turn by turn in virtual time: who is served, and when. */
#include "unit.h"

#include "base/wait.h"
#include "kv/daemon/daemon.h"
#include "rpc/transport/loopback.h"

#include <stdlib.h>
#include <string.h>

enum { CLIENTS_MAX = 128 };

static const uint64_t turn_ns = 300; /* what a turn and a client's next request take together */

struct client {
    struct hall *hall;
    struct kv_seat *seat;
    struct kv_port port;
    void *map;
    bool sleeps; /* before every turn, if it waits */
    uint32_t answers;
    uint64_t asked_ns, waited_ns; /* waited: the longest */
    uint32_t rings;
    struct client *meanwhile; /* who goes on while this one is woken */
};

struct hall {
    struct kv_daemon *daemon;
    struct client clients[CLIENTS_MAX];
    uint32_t count;
    uint64_t now;
    struct rpc_loopnet *net; /* with another rank: its clock is everybody's */
    struct kv_daemon *other;
};

static uint64_t hall_now(void *user)
{
    struct hall *h = user;
    return h->net ? rpc_loopnet_now(h->net) : h->now;
}

static void go_on(struct client *c);

static void hall_ring(void *user)
{
    struct client *c = user;
    c->rings++;
    kv_port_disarm(&c->port);
    if (c->meanwhile)
        go_on(c->meanwhile);
}

static void enter(struct hall *h, struct client *c)
{
    const struct kv_region_shape shape = {.depth = 1, .value_max = 64};
    size_t bytes = (kv_region_bytes(&shape) + 63) / 64 * 64;
    c->hall = h;
    c->map = aligned_alloc(64, bytes);
    assert_non_null(c->map);
    memset(c->map, 0, bytes);
    kv_region_format(c->map, &shape);
    assert_int_equal(kv_daemon_attach(h->daemon, c->map, &shape, hall_ring, c, &c->seat), 0);
    kv_port_init(&c->port, c->map, &shape);
}

static struct kv_daemon *daemon_of(struct hall *h, uint32_t rank, uint32_t ranks)
{
    struct kv_daemon_config config = {.rank = rank,
                                      .ranks = ranks,
                                      .daemons = 1,
                                      .store_bytes = 10000,
                                      .store_entries = 100,
                                      .max_clients = CLIENTS_MAX,
                                      .seed = 1,
                                      .clock = {hall_now, h}};
    struct kv_daemon *d;
    assert_int_equal(kv_daemon_create(&config, &d), 0);
    return d;
}

static struct rpc_ep *ep_of(struct hall *h, struct rpc_transport *t, bool accepting)
{
    struct rpc_config config = {
        .accepting = accepting, .heartbeat_ns = HW_NEVER, .clock = rpc_loopnet_clock(h->net)};
    struct rpc_ep *ep;
    assert_int_equal(rpc_ep_create(t, &config, &ep), 0);
    return ep;
}

/* Another rank joins, one millisecond away. */
static void open_other_rank(struct hall *h)
{
    const struct rpc_loopnet_options options = {.seed = 1, .delay_ns = HW_MS};
    struct rpc_transport *pair[2];
    assert_int_equal(rpc_loopnet_create(&options, &h->net), 0);
    assert_int_equal(rpc_loopnet_pair(h->net, pair), 0);
    h->daemon = daemon_of(h, 0, 2);
    h->other = daemon_of(h, 1, 2);
    assert_int_equal(kv_daemon_dial_next(h->other), 0);
    kv_daemon_adopt(h->daemon, ep_of(h, pair[1], true), -1);
    kv_daemon_adopt(h->other, ep_of(h, pair[0], false), 0);
    for (int i = 0; i < 100 && !kv_daemon_peer_up(h->daemon, 1); i++) {
        (void)kv_daemon_turn(h->daemon);
        (void)kv_daemon_turn(h->other);
        (void)rpc_loopnet_step(h->net, HW_NEVER);
    }
    assert_true(kv_daemon_peer_up(h->daemon, 1));
}

static void hall_open(struct hall *h, uint32_t clients, uint32_t floor_seats, uint32_t ranks)
{
    *h = (struct hall){.count = clients, .now = HW_SEC};
    if (ranks > 1)
        open_other_rank(h);
    else
        h->daemon = daemon_of(h, 0, 1);
    for (uint32_t i = 0; i < clients; i++)
        enter(h, &h->clients[i]);
    kv_daemon_set_crowd(h->daemon, clients + 1, floor_seats);
}

static void hall_close(struct hall *h)
{
    kv_daemon_destroy(h->daemon);
    kv_daemon_destroy(h->other);
    rpc_loopnet_destroy(h->net);
    for (uint32_t i = 0; i < h->count; i++)
        free(h->clients[i].map);
}

static enum kv_floor floor_of(const struct client *c)
{
    return (enum kv_floor)atomic_load(&c->port.region.daemon->floor);
}

static void ask_for(struct hall *h, struct client *c, struct kv_key key)
{
    struct kv_port_request r = {.op = KV_GET, .key = key};
    uint32_t slot;
    assert_int_equal(kv_port_submit(&c->port, &r, &slot), 0);
    c->asked_ns = h->now;
}

static void ask(struct hall *h, struct client *c)
{
    ask_for(h, c, kv_key_u64(1));
}

static bool take(struct hall *h, struct client *c)
{
    struct kv_port_answer a;
    if (kv_port_take(&c->port, &a) == 0)
        return false;
    kv_port_free(&c->port, a.slot);
    c->answers++;
    if (h->now - c->asked_ns > c->waited_ns)
        c->waited_ns = h->now - c->asked_ns;
    return true;
}

/* Takes its answer, asks again, and sleeps. */
static void go_on(struct client *c)
{
    assert_true(take(c->hall, c));
    ask(c->hall, c);
    assert_false(kv_port_arm(&c->port));
}

/* One turn, after which who has an answer asks again; how many had one. */
static uint32_t step(struct hall *h, uint32_t asking)
{
    uint32_t answered = 0;
    for (uint32_t i = 0; i < asking; i++)
        if (h->clients[i].sleeps)
            (void)kv_port_arm(&h->clients[i].port);
    (void)kv_daemon_turn(h->daemon);
    h->now += turn_ns;
    for (uint32_t i = 0; i < asking; i++) {
        if (!take(h, &h->clients[i]))
            continue;
        answered++;
        ask(h, &h->clients[i]);
    }
    return answered;
}

static void ask_all(struct hall *h, uint32_t asking)
{
    for (uint32_t i = 0; i < asking; i++)
        ask(h, &h->clients[i]);
}

static void with_room_for_all_everybody_is_served_in_every_turn(void **state)
{
    (void)state;
    struct hall h;
    hall_open(&h, 4, 0, 1);
    ask_all(&h, 4);
    for (int i = 0; i < 10; i++)
        assert_int_equal(step(&h, 4), 4);
    assert_int_equal(floor_of(&h.clients[0]), KV_FLOOR_OPEN);
    hall_close(&h);
}

static void in_a_crowd_as_many_are_served_at_a_time_as_have_the_floor(void **state)
{
    (void)state;
    for (uint32_t seats = 1; seats <= 2; seats++) {
        struct hall h;
        hall_open(&h, 4, seats, 1);
        assert_int_equal(floor_of(&h.clients[0]), KV_FLOOR_OTHERS);
        ask_all(&h, 4);
        for (uint32_t i = 1; i < seats; i++)
            assert_int_equal(step(&h, 4), i); /* one more a turn */
        for (uint32_t i = 0; i < 4; i++)
            h.clients[i].answers = 0;
        for (int i = 0; i < 10; i++)
            assert_int_equal(step(&h, 4), seats);
        uint32_t served = 0;
        for (uint32_t i = 0; i < 4; i++) {
            bool yours = floor_of(&h.clients[i]) == KV_FLOOR_YOURS;
            assert_int_equal(h.clients[i].answers, yours ? 10 : 0);
            served += yours;
        }
        assert_int_equal(served, seats);
        hall_close(&h);
    }
}

static void everybody_has_the_floor_within_a_round(void **state)
{
    (void)state;
    static const struct {
        uint32_t clients;
        uint64_t round_ns;
    } crowds[] = {{3, HW_MS}, {16, HW_MS}, {64, HW_MS}, {CLIENTS_MAX, 2 * HW_MS}};
    for (size_t k = 0; k < ARRAY_LEN(crowds); k++) {
        uint32_t n = crowds[k].clients;
        struct hall h;
        hall_open(&h, n, 1, 1);
        ask_all(&h, n);
        for (uint64_t end = h.now + 20 * HW_MS; h.now < end;)
            (void)step(&h, n);
        for (uint32_t i = 0; i < n; i++) {
            assert_in_range(h.clients[i].waited_ns, 1, crowds[k].round_ns * 5 / 4);
            assert_true(h.clients[i].answers > 20 * HW_MS / turn_ns / n / 2);
        }
        hall_close(&h);
    }
}

static void a_daemon_lingers_for_who_has_the_floor_but_not_for_long(void **state)
{
    (void)state;
    struct hall h;
    hall_open(&h, 2, 1, 1);
    ask_all(&h, 2);
    assert_int_equal(kv_daemon_turn(h.daemon), 1);
    assert_false(kv_daemon_lingers(h.daemon));
    bool first = floor_of(&h.clients[0]) == KV_FLOOR_YOURS;
    struct client *silent = &h.clients[!first], *waits = &h.clients[first];
    h.now += HW_US;
    assert_int_equal(kv_daemon_turn(h.daemon), 0);
    assert_true(kv_daemon_lingers(h.daemon));
    assert_false(take(&h, waits));
    h.now += 100 * HW_US;
    assert_int_equal(kv_daemon_turn(h.daemon), 1);
    assert_true(take(&h, waits));
    assert_int_equal(floor_of(silent), KV_FLOOR_OTHERS);
    h.now += 100 * HW_US;
    assert_int_equal(kv_daemon_turn(h.daemon), 0); /* nobody wants anything: it may sleep */
    assert_false(kv_daemon_lingers(h.daemon));
    hall_close(&h);
}

static void who_keeps_nobody_waiting_keeps_the_floor(void **state)
{
    (void)state;
    for (uint32_t seats = 1; seats <= 2; seats++) {
        struct hall h;
        hall_open(&h, 8, seats, 1);
        ask_all(&h, seats);
        for (uint32_t i = 1; i < seats; i++)
            (void)step(&h, seats);
        for (uint64_t end = h.now + 10 * HW_MS; h.now < end;) {
            assert_int_equal(step(&h, seats), seats);
            assert_int_equal(floor_of(&h.clients[0]), KV_FLOOR_YOURS);
        }
        hall_close(&h);
    }
}

/* As when there is no core for them beside the daemon's. */
static void clients_that_sleep_after_each_request_are_served_alike(void **state)
{
    (void)state;
    struct hall h;
    hall_open(&h, 4, 1, 1);
    ask_all(&h, 4);
    for (uint32_t i = 0; i < 4; i++)
        h.clients[i].sleeps = true;
    for (uint64_t end = h.now + 2 * HW_MS; h.now < end;)
        (void)step(&h, 4);
    assert_int_equal(step(&h, 4), 4);
    assert_int_equal(floor_of(&h.clients[0]), KV_FLOOR_OPEN);
    for (uint32_t i = 0; i < 4; i++)
        h.clients[i].sleeps = false;
    for (uint64_t end = h.now + 100 * HW_MS; h.now < end;)
        (void)step(&h, 4);
    assert_int_equal(step(&h, 4), 1); /* it was tried again, and now it pays */
    hall_close(&h);
}

static void as_many_have_the_floor_as_cores_are_left_but_no_more_than_pays(void **state)
{
    (void)state;
    assert_int_equal(kv_floor_seats(16, 1, 15), 0);
    assert_int_equal(kv_floor_seats(2, 1, 16), 1);
    assert_int_equal(kv_floor_seats(4, 1, 16), 2); /* one is left to wake up on */
    assert_int_equal(kv_floor_seats(2, 4, 16), 1);
    assert_int_equal(kv_floor_seats(16, 2, 64), 4); /* for each of the two */
    assert_int_equal(kv_floor_seats(16, 1, 64), 8);
    assert_int_equal(kv_floor_seats(64, 1, 128), 8);
}

static void who_leaves_with_the_floor_leaves_it_to_others(void **state)
{
    (void)state;
    struct hall h;
    hall_open(&h, 3, 1, 1);
    ask_all(&h, 3);
    assert_int_equal(kv_daemon_turn(h.daemon), 1);
    for (uint32_t i = 0; i < 3; i++)
        if (floor_of(&h.clients[i]) == KV_FLOOR_YOURS)
            kv_daemon_detach(h.daemon, h.clients[i].seat);
    assert_int_equal(kv_daemon_turn(h.daemon), 1);
    hall_close(&h);
}

static void who_has_its_answer_and_sleeps_for_the_next_is_not_woken_for_it(void **state)
{
    (void)state;
    struct hall h;
    hall_open(&h, 2, 0, 1);
    for (uint32_t sleeper = 0; sleeper < 2; sleeper++) { /* whoever is woken first */
        struct client *s = &h.clients[sleeper], *awake = &h.clients[!sleeper];
        s->meanwhile = awake;
        ask_all(&h, 2);
        assert_false(kv_port_arm(&s->port));
        assert_int_equal(kv_daemon_turn(h.daemon), 2);
        assert_int_equal(s->rings, 1);
        assert_int_equal(awake->rings, 0);
        assert_int_equal(kv_daemon_turn(h.daemon), 1);
        assert_int_equal(awake->rings, 1); /* for the next one it is */
        assert_true(take(&h, s) && take(&h, awake));
        s->meanwhile = NULL;
        s->rings = awake->rings = 0;
    }
    hall_close(&h);
}

static struct kv_key key_of_other_rank(void)
{
    uint64_t i = 0;
    while (kv_place_of(kv_key_u64(i), 2, 1).rank != 1)
        i++;
    return kv_key_u64(i);
}

/* Where others have the floor, too, they are served meanwhile, and the answer may be near. */
static void who_waits_for_another_rank_has_the_floor_for_a_while_but_never_alone(void **state)
{
    (void)state;
    for (uint32_t seats = 1; seats <= 2; seats++) {
        struct hall h;
        hall_open(&h, 4, seats, 2);
        ask_for(&h, &h.clients[0], key_of_other_rank());
        assert_int_equal(kv_daemon_turn(h.daemon), 1);
        assert_int_equal(floor_of(&h.clients[0]), seats > 1 ? KV_FLOOR_YOURS : KV_FLOOR_OTHERS);
        rpc_loopnet_spend(h.net, 100 * HW_US);
        (void)kv_daemon_turn(h.daemon);
        assert_int_equal(floor_of(&h.clients[0]), KV_FLOOR_OTHERS); /* it is not near */
        for (int i = 0; i < 10 && !kv_port_has_answer(&h.clients[0].port); i++) {
            (void)rpc_loopnet_step(h.net, HW_NEVER);
            (void)kv_daemon_turn(h.other);
            (void)kv_daemon_turn(h.daemon);
        }
        assert_true(take(&h, &h.clients[0]));
        hall_close(&h);
    }
}

/* ---- many cores ---- */

/* Clients with a core each whenever they are awake, which wait as a real one does.  The daemon pays
 * for every request and every wake-up. */
struct wide {
    struct hall hall;
    struct hw_wait waits[CLIENTS_MAX];
    uint64_t awake_ns[CLIENTS_MAX]; /* since then; HW_NEVER: asleep */
    uint32_t wakeups, seats;
};

static const uint64_t wide_request_ns = 200;
static const uint64_t wide_wakeup_ns = 2200;      /* the daemon's part */
static const uint64_t wide_awake_ns = 25 * HW_US; /* until the client runs */
static const uint32_t wide_cores = 16;

static void wide_client(struct wide *w, uint32_t i)
{
    struct hall *h = &w->hall;
    struct client *c = &h->clients[i];
    struct hw_wait *wait = &w->waits[i];
    if (w->awake_ns[i] == HW_NEVER && !atomic_load(&c->port.region.client->sleeps)) {
        w->awake_ns[i] = h->now + wide_awake_ns; /* it was rung */
        h->now += wide_wakeup_ns;
        w->wakeups++;
    }
    if (w->awake_ns[i] > h->now)
        return;
    if (take(h, c)) {
        hw_wait_came(wait);
        ask(h, c);
        return;
    }
    enum kv_floor floor = floor_of(c);
    wait->expected_ns = floor == KV_FLOOR_YOURS ? w->seats * HW_SPIN_BRIEF_NS : 0;
    if (floor == KV_FLOOR_OTHERS)
        hw_wait_stop(wait);
    else if (hw_wait_spin(wait, h->now))
        return;
    if (!kv_port_arm(&c->port))
        w->awake_ns[i] = HW_NEVER;
    else
        kv_port_disarm(&c->port);
}

/* Requests a wake-up, after a while. */
static uint64_t wide_run(struct wide *w, uint32_t clients)
{
    struct hall *h = &w->hall;
    uint64_t before = 0, end = h->now + 100 * HW_MS, half = h->now + 50 * HW_MS;
    while (h->now < end) {
        uint32_t served = kv_daemon_turn(h->daemon);
        h->now += wide_request_ns * (1 + served);
        for (uint32_t i = 0; i < clients; i++)
            wide_client(w, i);
        if (before == 0 && h->now >= half) {
            before = hw_counter_load(&kv_daemon_stats(h->daemon)->requests);
            w->wakeups = 0;
        }
    }
    uint64_t requests = hw_counter_load(&kv_daemon_stats(h->daemon)->requests) - before;
    return requests / (w->wakeups + 1);
}

/* Else each is woken for every request, and waits while all the others are: it stays so for ever.
 */
static void a_throng_on_many_cores_is_not_woken_for_every_request(void **state)
{
    (void)state;
    static const uint32_t crowds[] = {32, 64, CLIENTS_MAX};
    for (size_t k = 0; k < ARRAY_LEN(crowds); k++) {
        struct wide *w = calloc(1, sizeof(*w));
        assert_non_null(w);
        w->seats = kv_floor_seats(wide_cores, 1, crowds[k]);
        hall_open(&w->hall, crowds[k], w->seats, 1);
        for (uint32_t i = 0; i < crowds[k]; i++) {
            hw_wait_init_cores(&w->waits[i], HW_SPIN_NS, wide_cores);
            w->waits[i].threads = crowds[k] + 1;
        }
        ask_all(&w->hall, crowds[k]);
        assert_true(wide_run(w, crowds[k]) >= 20);
        for (uint32_t i = 0; i < crowds[k]; i++)
            assert_in_range(w->hall.clients[i].waited_ns, 1, 4 * HW_MS); /* two rounds */
        hall_close(&w->hall);
        free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_room_for_all_everybody_is_served_in_every_turn),
        cmocka_unit_test(in_a_crowd_as_many_are_served_at_a_time_as_have_the_floor),
        cmocka_unit_test(everybody_has_the_floor_within_a_round),
        cmocka_unit_test(a_daemon_lingers_for_who_has_the_floor_but_not_for_long),
        cmocka_unit_test(who_keeps_nobody_waiting_keeps_the_floor),
        cmocka_unit_test(clients_that_sleep_after_each_request_are_served_alike),
        cmocka_unit_test(as_many_have_the_floor_as_cores_are_left_but_no_more_than_pays),
        cmocka_unit_test(who_leaves_with_the_floor_leaves_it_to_others),
        cmocka_unit_test(who_has_its_answer_and_sleeps_for_the_next_is_not_woken_for_it),
        cmocka_unit_test(who_waits_for_another_rank_has_the_floor_for_a_while_but_never_alone),
        cmocka_unit_test(a_throng_on_many_cores_is_not_woken_for_every_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
