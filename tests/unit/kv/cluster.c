#include "cluster.h"

#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT_BASE = 7000, PAYLOAD_MAX = 1024 };

uint64_t cluster_below(struct cluster *c, uint64_t n)
{
    return hw_rng_below(&c->rng, n);
}

uint64_t cluster_now(const struct cluster *c)
{
    return rpc_loopnet_now(c->net);
}

/* ---- connections ---- */

static struct rpc_ep *ep_create(struct cluster *c, struct rpc_transport *t, bool accepting)
{
    bool small = c->options.small_windows && cluster_below(c, 2);
    struct rpc_config config = {.accepting = accepting,
                                .window_bytes = small ? RPC_WINDOW_MIN : 0,
                                .heartbeat_ns = c->options.heartbeat_ns,
                                .clock = rpc_loopnet_clock(c->net)};
    struct tap *tap = tap_create(t, c->taps, CLUSTER_TAPS_MAX);
    assert_int_equal(rpc_ep_create(&tap->base, &config, &tap->ep), 0);
    return tap->ep;
}

static void dial(struct cluster *c, struct cluster_member *from)
{
    int slot = kv_daemon_dial_next(from->daemon);
    if (slot < 0)
        return;
    unsigned port = 0;
    struct rpc_transport *pair[2];
    assert_int_equal(sscanf(kv_daemon_peer_address(from->daemon, slot), "h:%u", &port), 1);
    struct cluster_member *to = &c->members[port - PORT_BASE];
    bool refused = c->refused_dials && cluster_below(c, c->refused_dials) == 0;
    if (!to->daemon || refused || rpc_loopnet_pair(c->net, pair)) {
        kv_daemon_dial_failed(from->daemon, slot);
        return;
    }
    kv_daemon_adopt(to->daemon, ep_create(c, pair[1], true), -1);
    kv_daemon_adopt(from->daemon, ep_create(c, pair[0], false), slot);
}

bool cluster_trouble(struct cluster *c, enum cluster_trouble what)
{
    uint32_t first = (uint32_t)cluster_below(c, 4 * CLUSTER_MEMBERS_MAX), i = 0;
    while (i < CLUSTER_TAPS_MAX && !c->taps[(first + i) % CLUSTER_TAPS_MAX])
        i++;
    if (i == CLUSTER_TAPS_MAX)
        return false;
    struct rpc_transport *t = c->taps[(first + i) % CLUSTER_TAPS_MAX]->inner;
    if (what == CLUSTER_CUT)
        rpc_loopnet_cut(t);
    else if (what == CLUSTER_RESET)
        rpc_loopnet_reset(t);
    else
        rpc_loopnet_freeze(t, cluster_now(c) + cluster_below(c, 300 * HW_MS));
    return true;
}

void cluster_sent(const struct cluster *c, uint64_t *messages, uint64_t *writes)
{
    *messages = *writes = 0;
    for (uint32_t i = 0; i < CLUSTER_TAPS_MAX; i++) {
        if (!c->taps[i])
            continue;
        const struct rpc_stats *stats = rpc_ep_stats(c->taps[i]->ep);
        *messages += hw_counter_load(&stats->msgs_sent);
        *writes += hw_counter_load(&stats->writes);
    }
}

/* ---- members ---- */

static void *cluster_alloc(void *user, size_t bytes)
{
    struct cluster *c = user;
    if (c->allocations_to_fail > 0) {
        c->allocations_to_fail--;
        return NULL;
    }
    return calloc(1, bytes);
}

static void cluster_release(void *user, void *block)
{
    (void)user;
    free(block);
}

static void name_of(uint32_t number, char out[KV_MEMBER_NAME_CHARS])
{
    snprintf(out, KV_MEMBER_NAME_CHARS, "member-%05u",
             number); /* as bench/kvsim/scale.h names them */
}

uint64_t cluster_member_id(uint32_t number)
{
    char name[KV_MEMBER_NAME_CHARS];
    name_of(number, name);
    return kv_member_id(name);
}

void cluster_tell_view(struct cluster *c, uint32_t number)
{
    char names[CLUSTER_MEMBERS_MAX][KV_MEMBER_NAME_CHARS], addresses[CLUSTER_MEMBERS_MAX][16];
    char why[RPC_WHY_CHARS];
    struct kv_member_info infos[CLUSTER_MEMBERS_MAX];
    struct cluster_member *m = &c->members[number];
    struct kv_view view;
    uint32_t n = 0;
    if (!m->daemon || kv_daemon_view(m->daemon)->epoch >= c->epoch)
        return;
    for (uint32_t i = 0; i < c->options.count; i++) {
        if (!(c->in_view & 1u << i))
            continue;
        name_of(i, names[n]);
        snprintf(addresses[n], sizeof(addresses[n]), "h:%u", PORT_BASE + i);
        infos[n] = (struct kv_member_info){names[n], addresses[n]};
        n++;
    }
    assert_int_equal(kv_view_make(c->epoch, infos, n, &view, why), 0);
    kv_daemon_set_view(m->daemon, &view);
}

static void start_daemon(struct cluster *c, uint32_t number)
{
    struct cluster_member *m = &c->members[number];
    const struct cluster_options *o = &c->options;
    struct kv_daemon_config config = {
        .ranks = 1,
        .daemons = 1,
        .member = cluster_member_id(number),
        .copies = o->copies,
        .min_copies = o->min_copies,
        .store_bytes = 4096,
        .store_entries = 16,
        .blocks = {.arena = m->arena,
                   .arena_bytes = o->arena_bytes,
                   .entries = 1024,
                   .lease_lasts_ns = o->lease_lasts_ns,
                   .put_lasts_ns = o->put_lasts_ns},
        .seed = cluster_below(c, UINT64_MAX),
        .clock = rpc_loopnet_clock(c->net),
        .memory = {.alloc = cluster_alloc, .release = cluster_release, .user = c},
    };
    assert_int_equal(kv_daemon_create(&config, &m->daemon), 0);
    cluster_tell_view(c, number);
}

static void ring(void *user)
{
    (void)user;
}

static void attach(struct cluster *c, struct cluster_member *m)
{
    struct kv_region_shape shape = {.depth = c->options.depth,
                                    .value_max = PAYLOAD_MAX,
                                    .staging_bytes = c->options.staging_bytes};
    size_t bytes = (kv_region_bytes(&shape) + 4095) / 4096 * 4096;
    m->map = aligned_alloc(4096, bytes);
    assert_non_null(m->map);
    memset(m->map, 0, kv_region_slots_bytes(&shape));
    kv_region_format(m->map, &shape);
    m->attached = kv_daemon_attach(m->daemon, m->map, &shape, ring, NULL, &m->client_slot) == 0;
    if (m->attached)
        kv_port_init(&m->port, m->map, &shape);
    else
        free(m->map); /* out of memory, on purpose: tries again later */
}

void cluster_start(struct cluster *c, uint32_t number)
{
    struct cluster_member *m = &c->members[number];
    if (!m->daemon)
        start_daemon(c, number);
    if (!m->attached)
        attach(c, m);
}

void cluster_detach(struct cluster *c, uint32_t number)
{
    struct cluster_member *m = &c->members[number];
    if (!m->attached)
        return;
    kv_daemon_detach(m->daemon, m->client_slot);
    m->attached = false;
    free(m->map);
}

void cluster_stop(struct cluster *c, uint32_t number)
{
    struct cluster_member *m = &c->members[number];
    if (!m->daemon)
        return;
    cluster_detach(c, number);
    kv_daemon_destroy(m->daemon);
    m->daemon = NULL;
}

void cluster_open(struct cluster *c, const struct cluster_options *o)
{
    assert_true(o->count <= CLUSTER_MEMBERS_MAX);
    *c = (struct cluster){.options = *o, .in_view = (1u << o->count) - 1, .epoch = 1};
    hw_rng_seed(&c->rng, o->seed);
    assert_int_equal(rpc_loopnet_create(&o->net, &c->net), 0);
    for (uint32_t i = 0; i < o->count; i++) {
        c->members[i].arena = aligned_alloc(64, o->arena_bytes);
        assert_non_null(c->members[i].arena);
        cluster_start(c, i);
    }
}

void cluster_close(struct cluster *c)
{
    for (uint32_t i = 0; i < c->options.count; i++) {
        cluster_stop(c, i);
        free(c->members[i].arena);
    }
    rpc_loopnet_destroy(c->net);
}

/* ---- turning ---- */

void cluster_turn(struct cluster *c, uint32_t number)
{
    struct cluster_member *m = &c->members[number];
    if (!m->daemon || m->stalled_until_ns > cluster_now(c))
        return;
    (void)kv_daemon_turn(m->daemon);
    dial(c, m);
}

void cluster_pass_time(struct cluster *c, uint64_t ns)
{
    uint64_t before = cluster_now(c);
    (void)rpc_loopnet_step(c->net, before + ns);
    if (cluster_now(c) == before)
        rpc_loopnet_spend(c->net, ns);
}

bool cluster_all_connected(const struct cluster *c)
{
    for (uint32_t i = 0; i < c->options.count; i++) {
        const struct kv_daemon *d = c->members[i].daemon;
        for (uint32_t k = 0; k < c->options.count; k++) {
            int slot = d ? kv_daemon_peer_of(d, cluster_member_id(k)) : -1;
            if (i != k && (slot < 0 || !kv_daemon_peer_up(d, (uint32_t)slot)))
                return false;
        }
    }
    return true;
}

uint32_t cluster_submit(struct cluster *c, uint32_t number, const struct kv_block_request *r,
                        const struct kv_block_key *keys, uint32_t timeout_us)
{
    struct cluster_member *m = &c->members[number];
    uint8_t payload[PAYLOAD_MAX];
    uint32_t slot;
    int len = kv_block_request_encode(r, keys, payload, sizeof(payload));
    assert_true(len > 0);
    struct kv_port_request request = {
        .op = KV_BLOCK, .value = payload, .value_len = (uint32_t)len, .timeout_us = timeout_us};
    assert_int_equal(kv_port_submit(&m->port, &request, &slot), 0);
    if (kv_port_must_ring(&m->port))
        kv_client_slot_wake(m->daemon, m->client_slot);
    return slot;
}
