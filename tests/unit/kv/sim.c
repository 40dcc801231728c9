#include "sim.h"

#include "base/log.h"
#include "base/rng.h"
#include "bench/rpc/loopback.h"
#include "kv/daemon/daemon.h"
#include "lincheck.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
    RANKS_MAX = 5,
    CLIENTS_MAX = 6,
    KEYS_MAX = 6,
    OPS_MAX = 400,
    ENDS_MAX = 128,  /* of connections; a fault that draws a number past the last does nothing */
    VALUE_MAX = 200, /* more than fits into a line */
    STEPS = 500,
    OPS_A_KEY = LIN_OPS_MAX - 12 /* and a few restarts */
};

struct op {
    enum kv_op op;
    uint32_t key;
    uint64_t value; /* written, or read */
    uint64_t asked, answered;
    enum kv_result result;
    bool ended;
};

struct client {
    bool attached, asleep;
    uint32_t rank;
    struct kv_region_shape shape;
    void *map;
    struct kv_port port;
    struct kv_client_slot *client_slot;
    uint32_t ops[KV_DEPTH_MAX]; /* by slot */
};

struct rank {
    struct kv_daemon *daemon; /* NULL: down */
    bool asleep;
    uint64_t stalled_until_ns;
};

struct sim {
    struct hw_rng rng;
    struct rpc_loopnet *net;
    uint32_t ranks, clients, keys;
    bool faults;
    enum rpc_flush_policy flush;
    uint64_t clock; /* counts events: the order of the history */
    struct rank rank[RANKS_MAX];
    struct client client[CLIENTS_MAX];
    struct op ops[OPS_MAX];
    uint32_t op_count, open;
    struct lin_op history[KEYS_MAX][LIN_OPS_MAX];
    uint32_t asked_of[KEYS_MAX];  /* operations and restarts; bounds the history */
    uint32_t resets_of[KEYS_MAX]; /* entries of history that are resets already */
    uint32_t allocations_to_fail;
    struct sim_report report;
};

static uint64_t below(struct sim *s, uint64_t n)
{
    return hw_rng_below(&s->rng, n);
}

static void note(struct sim *s, uint64_t what, uint64_t a, uint64_t b)
{
    uint64_t event[5] = {s->report.log, what, a, b, rpc_loopnet_now(s->net)};
    s->report.log = XXH3_64bits(event, sizeof(event));
}

static void check(struct sim *s, bool holds, const char *what)
{
    if (!holds && !s->report.failure[0])
        snprintf(s->report.failure, sizeof(s->report.failure), "%s", what);
}

/* ---- transports ---- */

static struct rpc_ep *ep_create(struct sim *s, struct rpc_transport *t, bool accepting)
{
    struct rpc_config config = {.accepting = accepting,
                                .window_bytes = RPC_WINDOW_MIN,
                                .max_calls = 16 + (uint32_t)below(s, 64),
                                .send_queue_bytes =
                                    below(s, 2) ? 100 : 0, /* requests wait for room */
                                .heartbeat_ns = 200 * HW_MS,
                                .flush = s->flush,
                                .clock = rpc_loopnet_clock(s->net)};
    struct rpc_ep *ep;
    int rc = rpc_ep_create(t, &config, &ep);
    assert(rc == 0);
    (void)rc;
    return ep;
}

static void wake_rank(struct sim *s, uint32_t r)
{
    s->rank[r].asleep = false;
}

static void dial(struct sim *s, uint32_t from)
{
    int to = kv_daemon_dial_next(s->rank[from].daemon);
    if (to < 0)
        return;
    struct rpc_transport *pair[2];
    bool fails = !s->rank[to].daemon || (s->faults && below(s, 8) == 0);
    if (fails || rpc_loopnet_pair(s->net, pair)) {
        kv_daemon_dial_failed(s->rank[from].daemon, to);
        return;
    }
    note(s, 1, from, (uint64_t)to);
    wake_rank(s, (uint32_t)to); /* its listener */
    kv_daemon_adopt(s->rank[to].daemon, ep_create(s, pair[1], true), -1);
    kv_daemon_adopt(s->rank[from].daemon, ep_create(s, pair[0], false), to);
}

/* ---- daemons ---- */

static void *sim_alloc(void *user, size_t bytes)
{
    struct sim *s = user;
    if (s->allocations_to_fail > 0) {
        s->allocations_to_fail--;
        return NULL;
    }
    return calloc(1, bytes);
}

static void sim_release(void *user, void *block)
{
    (void)user;
    free(block);
}

/* See pass_time. */
static void watch_peer(void *user, struct rpc_ep *ep, uint32_t peer, bool to_send)
{
    (void)user, (void)ep, (void)peer, (void)to_send;
}

static void rank_start(struct sim *s, uint32_t r)
{
    struct kv_daemon_config config = {
        .rank = r,
        .ranks = s->ranks,
        .daemons = 1,
        .store_bytes = 200 + below(s, 2000),
        .store_entries = 16,
        .seed = below(s, UINT64_MAX),
        .clock = rpc_loopnet_clock(s->net),
        .memory = {.alloc = sim_alloc, .release = sim_release, .user = s},
        .watch = below(s, 4) == 0 ? NULL : watch_peer,
    };
    int rc = kv_daemon_create(&config, &s->rank[r].daemon);
    assert(rc == 0);
    (void)rc;
    kv_daemon_set_crowd(s->rank[r].daemon, s->clients);
    s->rank[r].asleep = false;
    note(s, 2, r, 0);
}

static struct kv_key key_of(uint32_t key)
{
    return kv_key_u64(1000 + key);
}

static uint32_t owner_of(const struct sim *s, uint32_t key)
{
    return kv_place_of(key_of(key), s->ranks, 1).rank;
}

/* ---- clients ---- */

static void end_op(struct sim *s, uint32_t index, enum kv_result result)
{
    struct op *op = &s->ops[index];
    check(s, !op->ended, "a request has ended twice");
    op->ended = true;
    op->result = result;
    op->answered = ++s->clock;
    s->open--;
    s->report.results[result]++;
    note(s, 3, index, result);
}

static void ring(void *user)
{
    ((struct client *)user)->asleep = false;
}

static void client_attach(struct sim *s, struct client *c)
{
    size_t bytes = kv_region_bytes(&c->shape);
    c->map =
        aligned_alloc(HW_CACHE_LINE, (bytes + HW_CACHE_LINE - 1) / HW_CACHE_LINE * HW_CACHE_LINE);
    assert(c->map);
    memset(c->map, 0, bytes);
    kv_region_format(c->map, &c->shape);
    struct kv_daemon *d = s->rank[c->rank].daemon;
    if (kv_daemon_attach(d, c->map, &c->shape, ring, c, &c->client_slot)) {
        free(c->map); /* out of memory, on purpose: tries again later */
        return;
    }
    kv_port_init(&c->port, c->map, &c->shape);
    c->attached = true;
    c->asleep = false;
    wake_rank(s, c->rank); /* its socket */
    note(s, 4, (uint64_t)(c - s->client), 0);
}

/* Its process is gone (dies), or its daemon's is: what it had asked has an unknown end. */
static void client_detach(struct sim *s, struct client *c, bool daemon_lives)
{
    if (!c->attached)
        return;
    if (daemon_lives) {
        kv_daemon_detach(s->rank[c->rank].daemon, c->client_slot);
        wake_rank(s, c->rank);
    }
    c->attached = false;
    for (uint32_t i = 0; i < s->op_count; i++)
        if (!s->ops[i].ended && c->port.busy > 0)
            for (uint32_t k = 0; k < c->shape.depth; k++)
                if (c->ops[k] == i)
                    end_op(s, i, KV_PEER_LOST);
    free(c->map);
}

static void forget_ops(struct client *c)
{
    for (uint32_t k = 0; k < KV_DEPTH_MAX; k++)
        c->ops[k] = UINT32_MAX;
}

/* The bytes of value `number`, and back. */
static uint32_t value_bytes(uint64_t number, uint8_t out[VALUE_MAX])
{
    uint32_t len = 8 + (uint32_t)(kv_mix(number) % (VALUE_MAX - 7));
    memcpy(out, &number, 8);
    for (uint32_t i = 8; i < len; i++)
        out[i] = (uint8_t)(number * 31 + i);
    return len;
}

static uint64_t value_number(struct sim *s, const uint8_t *bytes, uint32_t len)
{
    uint8_t expected[VALUE_MAX];
    uint64_t number = 0;
    if (len >= 8)
        memcpy(&number, bytes, 8);
    uint32_t expected_len = value_bytes(number, expected);
    check(s, number != 0 && len == expected_len && memcmp(bytes, expected, len) == 0,
          "a value is not what was written");
    return number;
}

static void client_submit(struct sim *s, struct client *c)
{
    uint32_t key = (uint32_t)below(s, s->keys);
    if (!c->attached || c->asleep || s->op_count == OPS_MAX || s->asked_of[key] >= OPS_A_KEY)
        return;
    struct op op = {.op = (enum kv_op)(KV_GET + below(s, 3)), .key = key, .asked = ++s->clock};
    if (op.op == KV_DELETE && below(s, 2))
        op.op = KV_PUT;
    uint8_t bytes[VALUE_MAX];
    op.value = op.op == KV_PUT ? s->op_count + 1 : 0;
    struct kv_port_request request = {.op = op.op,
                                      .key = key_of(key),
                                      .value = bytes,
                                      .value_len = value_bytes(op.value, bytes),
                                      .timeout_us =
                                          s->faults ? 1000 + (uint32_t)below(s, 300000) : 8000000};
    uint32_t slot;
    if (kv_port_submit(&c->port, &request, &slot))
        return;
    c->ops[slot] = s->op_count;
    s->ops[s->op_count++] = op;
    s->asked_of[key]++;
    s->open++;
    s->report.requests++;
    note(s, 5, key, op.op);
    if (kv_port_must_ring(&c->port)) {
        kv_client_slot_wake(s->rank[c->rank].daemon, c->client_slot);
        wake_rank(s, c->rank);
    }
}

static void client_poll(struct sim *s, struct client *c)
{
    struct kv_port_answer a;
    if (!c->attached || c->asleep)
        return;
    while (kv_port_take(&c->port, &a) > 0) {
        uint32_t index = c->ops[a.slot];
        check(s, index != UINT32_MAX, "an answer without a request");
        if (index == UINT32_MAX)
            return;
        if (s->ops[index].op == KV_GET && a.result == KV_OK)
            s->ops[index].value = value_number(s, a.value, a.value_len);
        end_op(s, index, a.result);
        c->ops[a.slot] = UINT32_MAX;
        kv_port_free(&c->port, a.slot);
    }
}

static void client_sleep(struct sim *s, struct client *c)
{
    if (!c->attached || c->asleep || c->port.busy == 0)
        return;
    if (kv_port_arm(&c->port)) {
        kv_port_disarm(&c->port);
        return;
    }
    c->asleep = true;
    s->report.naps++;
}

/* ---- what must hold at every moment ---- */

static void check_wakeups(struct sim *s)
{
    for (uint32_t i = 0; i < s->clients; i++) {
        struct client *c = &s->client[i];
        if (!c->attached)
            continue;
        const struct kv_region *r = &c->port.region;
        bool asleep = s->rank[c->rank].asleep;
        check(s, !(c->asleep && kv_port_has_answer(&c->port)), "a client sleeps on an answer");
        bool armed = atomic_load(&r->daemon->sleeps) != 0;
        check(s, !asleep || armed, "a daemon sleeps where nobody would ring");
    }
}

/* ---- turning ---- */

static void rank_turn(struct sim *s, uint32_t r)
{
    struct rank *rank = &s->rank[r];
    if (!rank->daemon || rank->asleep || rank->stalled_until_ns > rpc_loopnet_now(s->net))
        return;
    uint32_t events = kv_daemon_turn(rank->daemon);
    note(s, 6, r, events);
    dial(s, r);
    check_wakeups(s);
}

static void rank_sleep(struct sim *s, uint32_t r)
{
    struct rank *rank = &s->rank[r];
    if (!rank->daemon || rank->asleep)
        return;
    if (kv_daemon_arm(rank->daemon))
        return;
    rank->asleep = true;
    s->report.naps++;
}

/* Bytes that arrive, and times that are due, end a sleep.  Times wake no connection: the daemon
 * must know itself which is concerned. */
static void pass_time(struct sim *s, uint64_t ns)
{
    uint64_t before = rpc_loopnet_now(s->net);
    bool arrived = rpc_loopnet_step(s->net, before + ns);
    if (rpc_loopnet_now(s->net) == before)
        rpc_loopnet_spend(s->net, ns); /* bytes that a stalled rank leaves unread hold time up */
    bool carries = rpc_loopnet_carries(s->net);
    for (uint32_t r = 0; r < s->ranks; r++) {
        struct rank *rank = &s->rank[r];
        for (uint32_t k = 0; carries && rank->daemon && k < s->ranks; k++)
            kv_daemon_wake(rank->daemon, k);
        if (rank->daemon && rank->asleep &&
            (arrived || kv_daemon_next_tick(rank->daemon) <= rpc_loopnet_now(s->net)))
            rank->asleep = false;
    }
}

/* ---- faults ---- */

static void rank_stop(struct sim *s, uint32_t r)
{
    if (!s->rank[r].daemon)
        return;
    note(s, 7, r, 0);
    kv_daemon_destroy(s->rank[r].daemon);
    s->rank[r].daemon = NULL;
    s->report.restarts++;
    for (uint32_t i = 0; i < s->clients; i++) {
        if (s->client[i].rank == r && s->client[i].attached) {
            client_detach(s, &s->client[i], false);
            forget_ops(&s->client[i]);
        }
    }
    for (uint32_t k = 0; k < s->keys; k++) {
        if (owner_of(s, k) != r)
            continue;
        assert(s->resets_of[k] < LIN_OPS_MAX);
        uint64_t now = ++s->clock;
        s->history[k][s->resets_of[k]++] = (struct lin_op){LIN_RESET, now, now, LIN_ABSENT};
    }
}

static void fault_on_network(struct sim *s)
{
    uint32_t end = (uint32_t)below(s, ENDS_MAX);
    if (end >= rpc_loopnet_ends(s->net))
        return;
    struct rpc_transport *t = rpc_loopnet_end(s->net, end);
    s->report.cuts++;
    note(s, 8, end, 0);
    switch (below(s, 3)) {
    case 0:
        rpc_loopnet_cut(t);
        break;
    case 1:
        rpc_loopnet_reset(t);
        break;
    default:
        rpc_loopnet_freeze(t, rpc_loopnet_now(s->net) + below(s, 300 * HW_MS));
    }
}

static void fault(struct sim *s)
{
    uint32_t r = (uint32_t)below(s, s->ranks);
    struct client *c = &s->client[below(s, s->clients)];
    switch (below(s, 24)) {
    case 0:
        if (s->report.restarts < 6)
            rank_stop(s, r);
        break;
    case 1:
    case 2:
        client_detach(s, c, true);
        forget_ops(c);
        s->report.deaths++;
        break;
    case 3:
    case 4:
        s->rank[r].stalled_until_ns = rpc_loopnet_now(s->net) + below(s, 400 * HW_MS);
        s->report.stalls++;
        break;
    case 5:
        s->allocations_to_fail = (uint32_t)below(s, 3);
        break;
    default:
        fault_on_network(s);
    }
}

/* What is down comes back, now and then. */
static void recover(struct sim *s)
{
    for (uint32_t r = 0; r < s->ranks; r++)
        if (!s->rank[r].daemon && s->allocations_to_fail == 0)
            rank_start(s, r);
    for (uint32_t i = 0; i < s->clients; i++)
        if (!s->client[i].attached && s->rank[s->client[i].rank].daemon)
            client_attach(s, &s->client[i]);
}

/* ---- a run ---- */

static void sim_open(struct sim *s, uint64_t seed, bool faults)
{
    hw_rng_seed(&s->rng, seed);
    s->faults = faults;
    s->ranks = 2 + (uint32_t)below(s, RANKS_MAX - 1);
    s->clients = 1 + (uint32_t)below(s, CLIENTS_MAX);
    s->keys = 2 + (uint32_t)below(s, KEYS_MAX - 1);
    s->flush = (enum rpc_flush_policy)below(s, 3);
    struct rpc_loopnet_options net = {
        .seed = seed,
        .delay_ns = below(s, 200 * HW_US),
        .jitter_ns = below(s, 2) ? below(s, 100 * HW_US) : 0,
        .write_cost_ns = below(s, 5 * HW_US),
        .piece_max = below(s, 3) ? 0 : 16 + (uint32_t)below(s, 200),
        .stall_percent = below(s, 3) ? 0 : (uint32_t)below(s, 30),
    };
    int rc = rpc_loopnet_create(&net, &s->net);
    assert(rc == 0);
    (void)rc;
    for (uint32_t r = 0; r < s->ranks; r++)
        rank_start(s, r);
    for (uint32_t i = 0; i < s->clients; i++) {
        struct client *c = &s->client[i];
        c->rank = (uint32_t)below(s, s->ranks);
        c->shape = (struct kv_region_shape){1 + (uint32_t)below(s, 4), VALUE_MAX};
        forget_ops(c);
        client_attach(s, c);
    }
}

static void act(struct sim *s)
{
    struct client *c = &s->client[below(s, s->clients)];
    uint32_t r = (uint32_t)below(s, s->ranks);
    switch (below(s, 12)) {
    case 0:
    case 1:
    case 2:
        client_submit(s, c);
        break;
    case 3:
        client_poll(s, c);
        break;
    case 4:
        client_sleep(s, c);
        break;
    case 5:
        rank_sleep(s, r);
        break;
    case 6:
    case 7:
        pass_time(s, below(s, 300 * HW_US));
        break;
    default:
        rank_turn(s, r);
    }
}

static void turn_all(struct sim *s)
{
    recover(s);
    for (uint32_t r = 0; r < s->ranks; r++)
        rank_turn(s, r);
    for (uint32_t i = 0; i < s->clients; i++)
        client_poll(s, &s->client[i]);
    pass_time(s, 100 * HW_US);
}

static bool all_connected(const struct sim *s)
{
    for (uint32_t r = 0; r < s->ranks; r++)
        for (uint32_t p = 0; p < s->ranks; p++)
            if (p != r && !kv_daemon_peer_up(s->rank[r].daemon, p))
                return false;
    return true;
}

static void connect_all(struct sim *s)
{
    uint64_t until = rpc_loopnet_now(s->net) + 10 * HW_SEC;
    while (!all_connected(s) && rpc_loopnet_now(s->net) < until)
        turn_all(s);
    check(s, all_connected(s), "ranks do not find each other");
}

/* Nothing new; what was asked must end. */
static void drain(struct sim *s)
{
    uint64_t until = rpc_loopnet_now(s->net) + 10 * HW_SEC;
    while (s->open > 0 && rpc_loopnet_now(s->net) < until)
        turn_all(s);
}

static enum lin_kind kind_of(enum kv_op op)
{
    return op == KV_GET ? LIN_READ : op == KV_PUT ? LIN_WRITE : LIN_REMOVE;
}

static void add_to_history(struct sim *s, const struct op *op, struct lin_op *out, uint32_t *count)
{
    bool unknown = op->result == KV_PEER_LOST || op->result == KV_TIMEOUT;
    check(s, op->result != KV_REFUSED && op->result != KV_TOO_LARGE, "a request was refused");
    check(s, op->result != KV_FULL || op->op == KV_PUT, "FULL for what needs no room");
    if (op->result == KV_FULL || (unknown && op->op == KV_GET))
        return;
    struct lin_op lin = {.kind = kind_of(op->op),
                         .asked = op->asked,
                         .answered = unknown ? LIN_NEVER : op->answered,
                         .value = op->value};
    if (op->op == KV_GET && op->result == KV_MISS)
        lin.value = LIN_ABSENT;
    if (op->op == KV_DELETE)
        lin.value = op->result == KV_OK ? 1 : LIN_ABSENT;
    out[(*count)++] = lin;
}

static void judge(struct sim *s)
{
    check(s, s->open == 0, "a request has not ended");
    for (uint32_t k = 0; k < s->keys; k++) {
        uint32_t count = s->resets_of[k];
        for (uint32_t i = 0; i < s->op_count; i++)
            if (s->ops[i].key == k && s->ops[i].ended)
                add_to_history(s, &s->ops[i], s->history[k], &count);
        check(s, lin_check(s->history[k], count), "a key's history is not linearizable");
    }
}

static void sim_close(struct sim *s)
{
    for (uint32_t i = 0; i < s->clients; i++)
        client_detach(s, &s->client[i], s->rank[s->client[i].rank].daemon != NULL);
    for (uint32_t r = 0; r < s->ranks; r++)
        kv_daemon_destroy(s->rank[r].daemon);
    rpc_loopnet_destroy(s->net);
}

static void swallow(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

struct sim_report sim_run(uint64_t seed, bool faults)
{
    struct sim *s = calloc(1, sizeof(*s));
    assert(s);
    hw_log_set_sink(swallow, NULL); /* lost connections are what this is about */
    sim_open(s, seed, faults);
    connect_all(s);
    for (int i = 0; i < STEPS; i++) {
        act(s);
        if (faults && below(s, 20) == 0)
            fault(s);
        if (below(s, 20) == 0)
            recover(s);
    }
    s->allocations_to_fail = 0;
    drain(s);
    judge(s);
    struct sim_report report = s->report;
    sim_close(s);
    hw_log_set_sink(NULL, NULL);
    free(s);
    return report;
}
