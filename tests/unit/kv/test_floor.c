/* A crowd of clients and one daemon, turn by turn in virtual time: who is served, and when. */
#include "unit.h"

#include "kv/daemon.h"

#include <stdlib.h>
#include <string.h>

enum { CLIENTS_MAX = 64 };

static const uint64_t turn_ns = 300; /* what a turn and a client's next request take together */

struct client {
    struct kv_seat *seat;
    struct kv_port port;
    void *map;
    bool sleeps; /* before every turn, if it waits */
    uint32_t answers;
    uint64_t asked_ns, waited_ns; /* waited: the longest */
};

struct hall {
    struct kv_daemon *daemon;
    struct client clients[CLIENTS_MAX];
    uint32_t count;
    uint64_t now;
};

static uint64_t hall_now(void *user)
{
    return ((struct hall *)user)->now;
}

static void hall_ring(void *user)
{
    kv_port_disarm(&((struct client *)user)->port);
}

static void enter(struct hall *h, struct client *c)
{
    const struct kv_region_shape shape = {.depth = 1, .value_max = 64};
    size_t bytes = (kv_region_bytes(&shape) + 63) / 64 * 64;
    c->map = aligned_alloc(64, bytes);
    assert_non_null(c->map);
    memset(c->map, 0, bytes);
    kv_region_format(c->map, &shape);
    assert_int_equal(kv_daemon_attach(h->daemon, c->map, &shape, hall_ring, c, &c->seat), 0);
    kv_port_init(&c->port, c->map, &shape);
}

static void hall_open(struct hall *h, uint32_t clients, uint32_t floor_seats)
{
    *h = (struct hall){.count = clients, .now = HW_SEC};
    struct kv_daemon_config config = {.ranks = 1,
                                      .daemons = 1,
                                      .store_bytes = 10000,
                                      .store_entries = 100,
                                      .max_clients = CLIENTS_MAX,
                                      .seed = 1,
                                      .clock = {hall_now, h}};
    assert_int_equal(kv_daemon_create(&config, &h->daemon), 0);
    for (uint32_t i = 0; i < clients; i++)
        enter(h, &h->clients[i]);
    kv_daemon_set_crowd(h->daemon, clients + 1, floor_seats);
}

static void hall_close(struct hall *h)
{
    kv_daemon_destroy(h->daemon);
    for (uint32_t i = 0; i < h->count; i++)
        free(h->clients[i].map);
}

static enum kv_floor floor_of(const struct client *c)
{
    return (enum kv_floor)atomic_load(&c->port.region.daemon->floor);
}

static void ask(struct hall *h, struct client *c)
{
    struct kv_port_request r = {.op = KV_GET, .key = kv_key_u64(1)};
    uint32_t slot;
    assert_int_equal(kv_port_submit(&c->port, &r, &slot), 0);
    c->asked_ns = h->now;
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
    hall_open(&h, 4, 0);
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
        hall_open(&h, 4, seats);
        assert_int_equal(floor_of(&h.clients[0]), KV_FLOOR_OTHERS);
        ask_all(&h, 4);
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
    static const uint32_t crowds[] = {3, 16, CLIENTS_MAX};
    for (size_t k = 0; k < ARRAY_LEN(crowds); k++) {
        struct hall h;
        hall_open(&h, crowds[k], 1);
        ask_all(&h, crowds[k]);
        for (uint64_t end = h.now + 20 * HW_MS; h.now < end;)
            (void)step(&h, crowds[k]);
        for (uint32_t i = 0; i < crowds[k]; i++) {
            assert_in_range(h.clients[i].waited_ns, 1, HW_MS + HW_MS / 4);
            assert_true(h.clients[i].answers > 20 * HW_MS / turn_ns / crowds[k] / 2);
        }
        hall_close(&h);
    }
}

static void a_daemon_lingers_for_who_has_the_floor_but_not_for_long(void **state)
{
    (void)state;
    struct hall h;
    hall_open(&h, 2, 1);
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

static void who_alone_wants_something_keeps_the_floor(void **state)
{
    (void)state;
    struct hall h;
    hall_open(&h, 8, 1);
    ask_all(&h, 1);
    for (uint64_t end = h.now + 10 * HW_MS; h.now < end;) {
        assert_int_equal(step(&h, 1), 1);
        assert_int_equal(floor_of(&h.clients[0]), KV_FLOOR_YOURS);
    }
    hall_close(&h);
}

/* As when there is no core for them beside the daemon's. */
static void clients_that_sleep_after_each_request_are_served_alike(void **state)
{
    (void)state;
    struct hall h;
    hall_open(&h, 4, 1);
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

static void who_leaves_with_the_floor_leaves_it_to_others(void **state)
{
    (void)state;
    struct hall h;
    hall_open(&h, 3, 1);
    ask_all(&h, 3);
    assert_int_equal(kv_daemon_turn(h.daemon), 1);
    for (uint32_t i = 0; i < 3; i++)
        if (floor_of(&h.clients[i]) == KV_FLOOR_YOURS)
            kv_daemon_detach(h.daemon, h.clients[i].seat);
    assert_int_equal(kv_daemon_turn(h.daemon), 1);
    hall_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_room_for_all_everybody_is_served_in_every_turn),
        cmocka_unit_test(in_a_crowd_as_many_are_served_at_a_time_as_have_the_floor),
        cmocka_unit_test(everybody_has_the_floor_within_a_round),
        cmocka_unit_test(a_daemon_lingers_for_who_has_the_floor_but_not_for_long),
        cmocka_unit_test(who_alone_wants_something_keeps_the_floor),
        cmocka_unit_test(clients_that_sleep_after_each_request_are_served_alike),
        cmocka_unit_test(who_leaves_with_the_floor_leaves_it_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
