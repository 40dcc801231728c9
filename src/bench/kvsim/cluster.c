#include "bench/kvsim/cluster.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PORT_BASE = 7000,
    PAYLOAD_MAX = 1024,
    NAME_PREFIX = 7,     /* "member-" */
    TURNS_AT_ONCE = 1024 /* of one member, before the others have theirs */
};

static const uint64_t round_ns = HW_US; /* so that time goes on whatever members leave unread */

uint64_t cluster_below(struct cluster *c, uint64_t n)
{
    return hw_rng_below(&c->rng, n);
}

uint64_t cluster_now(const struct cluster *c)
{
    return rpc_loopnet_now(c->net);
}

/* ---- connections ---- */

/* NULL: no memory. */
static struct rpc_ep *ep_create(struct cluster *c, struct rpc_transport *t, bool accepting,
                                struct rpc_loopnet_host *host)
{
    bool small = c->options.small_windows && cluster_below(c, 2);
    struct rpc_config config = {.accepting = accepting,
                                .window_bytes = small ? RPC_WINDOW_MIN : 0,
                                .heartbeat_ns = c->options.heartbeat_ns,
                                .clock = rpc_loopnet_clock(c->net)};
    struct rpc_ep *ep;
    if (rpc_ep_create(t, &config, &ep))
        return NULL;
    rpc_loopnet_place(t, host, rpc_ep_stats(ep));
    return ep;
}

/* The one that listens first, then the one that dials. */
static bool connect_pair(struct cluster *c, struct cluster_member *from, struct cluster_member *to,
                         struct rpc_ep *eps[2])
{
    struct rpc_transport *pair[2];
    if (rpc_loopnet_pair(c->net, pair))
        return false;
    eps[0] = ep_create(c, pair[1], true, &to->host);
    eps[1] = ep_create(c, pair[0], false, &from->host);
    if (eps[0] && eps[1])
        return true;
    rpc_ep_destroy(eps[0]);
    rpc_ep_destroy(eps[1]);
    return false;
}

/* False: no connection is to be dialled now. */
static bool dial(struct cluster *c, struct cluster_member *from)
{
    int slot = kv_daemon_dial_next(from->daemon);
    if (slot < 0)
        return false;
    unsigned port = PORT_BASE;
    struct rpc_ep *eps[2];
    (void)sscanf(kv_daemon_peer_address(from->daemon, slot), "h:%u", &port);
    assert(port - PORT_BASE < c->options.count);
    struct cluster_member *to = &c->members[port - PORT_BASE];
    bool refused = c->refused_dials && cluster_below(c, c->refused_dials) == 0;
    if (!to->daemon || refused || !connect_pair(c, from, to, eps)) {
        kv_daemon_dial_failed(from->daemon, slot);
        return true;
    }
    kv_daemon_adopt(to->daemon, eps[0], -1);
    kv_daemon_adopt(from->daemon, eps[1], slot);
    cluster_wake(c, port - PORT_BASE);
    return true;
}

bool cluster_trouble(struct cluster *c, enum cluster_trouble what)
{
    uint32_t ends = rpc_loopnet_ends(c->net);
    if (ends == 0)
        return false;
    struct rpc_transport *t = rpc_loopnet_end(c->net, (uint32_t)cluster_below(c, ends));
    if (what == CLUSTER_CUT)
        rpc_loopnet_cut(t);
    else if (what == CLUSTER_RESET)
        rpc_loopnet_reset(t);
    else
        rpc_loopnet_freeze(t, cluster_now(c) + cluster_below(c, 300 * HW_MS));
    return true;
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
    snprintf(out, KV_MEMBER_NAME_CHARS, "member-%05u", number);
}

uint64_t cluster_member_id(uint32_t number)
{
    char name[KV_MEMBER_NAME_CHARS];
    name_of(number, name);
    return kv_member_id(name);
}

uint32_t cluster_number(const struct kv_member *member)
{
    return (uint32_t)strtoul(member->name + NAME_PREFIX, NULL, 10);
}

void cluster_make_view(const struct cluster *c, uint64_t epoch, struct kv_view *out)
{
    char names[KV_MEMBERS_MAX][KV_MEMBER_NAME_CHARS], addresses[KV_MEMBERS_MAX][16];
    char why[RPC_WHY_CHARS];
    struct kv_member_info infos[KV_MEMBERS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->options.count; i++) {
        if (!c->members[i].in_view)
            continue;
        name_of(i, names[n]);
        snprintf(addresses[n], sizeof(addresses[n]), "h:%u", PORT_BASE + i);
        infos[n] = (struct kv_member_info){names[n], addresses[n]};
        n++;
    }
    int rc = kv_view_make(epoch, infos, n, out, why);
    assert(rc == 0);
    (void)rc;
}

void cluster_tell_view(struct cluster *c, uint32_t number)
{
    struct cluster_member *m = &c->members[number];
    if (!m->daemon || kv_daemon_view(m->daemon)->epoch >= c->epoch)
        return;
    if (c->view->epoch != c->epoch)
        cluster_make_view(c, c->epoch, c->view);
    kv_daemon_set_view(m->daemon, c->view);
    cluster_wake(c, number);
}

static int start_daemon(struct cluster *c, uint32_t number)
{
    struct cluster_member *m = &c->members[number];
    const struct cluster_options *o = &c->options;
    struct kv_daemon_config config = {
        .ranks = 1,
        .daemons = 1,
        .member = cluster_member_id(number),
        .fixed_members = o->fixed,
        .copies = o->copies,
        .min_copies = o->min_copies,
        .store_bytes = 4096,
        .store_entries = 16,
        .blocks = {.arena = m->arena,
                   .arena_bytes = o->arena_bytes,
                   .entries = o->entries ? o->entries : 1024,
                   .lease_lasts_ns = o->lease_lasts_ns,
                   .put_lasts_ns = o->put_lasts_ns},
        .seed = cluster_below(c, UINT64_MAX),
        .clock = rpc_loopnet_clock(c->net),
        .memory = {.alloc = cluster_alloc, .release = cluster_release, .user = c},
    };
    int rc = kv_daemon_create(&config, &m->daemon);
    if (rc)
        return rc;
    cluster_wake(c, number);
    cluster_tell_view(c, number);
    return 0;
}

static void ring(void *user)
{
    (void)user;
}

static int attach(struct cluster *c, struct cluster_member *m)
{
    struct kv_region_shape shape = {.depth = c->options.depth,
                                    .value_max = PAYLOAD_MAX,
                                    .staging_bytes = c->options.staging_bytes};
    size_t bytes = (kv_region_bytes(&shape) + 4095) / 4096 * 4096;
    m->map = aligned_alloc(4096, bytes);
    if (!m->map)
        return -ENOMEM;
    memset(m->map, 0, kv_region_slots_bytes(&shape));
    kv_region_format(m->map, &shape);
    m->attached = kv_daemon_attach(m->daemon, m->map, &shape, ring, NULL, &m->client_slot) == 0;
    if (!m->attached) {
        free(m->map);
        return -ENOMEM;
    }
    kv_port_init(&m->port, m->map, &shape);
    return 0;
}

int cluster_start(struct cluster *c, uint32_t number)
{
    struct cluster_member *m = &c->members[number];
    int rc = m->daemon ? 0 : start_daemon(c, number);
    return rc || m->attached ? rc : attach(c, m);
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
    c->due_ns[number] = HW_NEVER;
}

static int open_members(struct cluster *c)
{
    const struct cluster_options *o = &c->options;
    uint32_t started = o->started ? o->started : o->count;
    int rc = rpc_loopnet_create(&o->net, &c->net);
    for (uint32_t i = 0; i < o->count; i++) {
        c->members[i].host.number = i;
        c->members[i].in_view = i < started;
        c->due_ns[i] = HW_NEVER;
    }
    for (uint32_t i = 0; i < o->count && rc == 0; i++) {
        c->members[i].arena = aligned_alloc(64, (o->arena_bytes + 63) / 64 * 64);
        rc = !c->members[i].arena ? -ENOMEM : i < started ? cluster_start(c, i) : 0;
    }
    return rc;
}

int cluster_open(struct cluster *c, const struct cluster_options *o)
{
    if (o->count < 1 || o->count > KV_MEMBERS_MAX || o->started > o->count)
        return -EINVAL;
    *c = (struct cluster){.options = *o, .epoch = 1};
    hw_rng_seed(&c->rng, o->seed);
    c->members = calloc(o->count, sizeof(*c->members));
    c->due_ns = calloc(o->count, sizeof(*c->due_ns));
    c->awake = calloc(o->count, sizeof(*c->awake));
    c->view = calloc(1, sizeof(*c->view));
    int rc = c->members && c->due_ns && c->awake && c->view ? open_members(c) : -ENOMEM;
    if (rc)
        cluster_close(c);
    return rc;
}

void cluster_close(struct cluster *c)
{
    for (uint32_t i = 0; c->members && i < c->options.count; i++) {
        cluster_stop(c, i);
        free(c->members[i].arena);
    }
    rpc_loopnet_destroy(c->net);
    free(c->members);
    free(c->due_ns);
    free(c->awake);
    free(c->view);
}

/* ---- turning ---- */

void cluster_turn(struct cluster *c, uint32_t number)
{
    struct cluster_member *m = &c->members[number];
    if (!m->daemon || m->stalled_until_ns > cluster_now(c))
        return;
    (void)kv_daemon_turn(m->daemon);
    (void)dial(c, m);
}

void cluster_pass_time(struct cluster *c, uint64_t ns)
{
    uint64_t before = cluster_now(c);
    (void)rpc_loopnet_step(c->net, before + ns);
    if (cluster_now(c) == before)
        rpc_loopnet_spend(c->net, ns);
}

void cluster_wake(struct cluster *c, uint32_t number)
{
    struct cluster_member *m = &c->members[number];
    if (m->awake)
        return;
    m->awake = true;
    c->awake[c->awake_count++] = number;
}

static void wake_host(void *user, struct rpc_loopnet_host *host)
{
    cluster_wake(user, host->number);
}

/* As the loop of kv/daemon/host.c: turns until there is nothing to do, then sleeps. */
static void work(struct cluster *c, uint32_t number)
{
    struct cluster_member *m = &c->members[number];
    uint64_t now = cluster_now(c);
    bool busy = true;
    if (!m->daemon)
        return;
    for (int i = 0; i < TURNS_AT_ONCE && busy; i++) {
        busy = kv_daemon_turn(m->daemon) > 0;
        busy = dial(c, m) || busy || kv_daemon_arm(m->daemon);
    }
    uint64_t tick = busy ? now : kv_daemon_next_tick(m->daemon);
    c->due_ns[number] = tick > now ? tick : now + round_ns;
    if (m->attached && kv_port_has_answer(&m->port))
        c->options.answered(c->options.user, number);
}

static void work_all(struct cluster *c)
{
    while (c->awake_count > 0) { /* more may be woken meanwhile */
        uint32_t number = c->awake[--c->awake_count];
        c->members[number].awake = false;
        work(c, number);
    }
}

static uint64_t wake_due(struct cluster *c, uint64_t now)
{
    uint64_t next = HW_NEVER;
    for (uint32_t i = 0; i < c->options.count; i++) {
        if (c->due_ns[i] <= now)
            cluster_wake(c, i);
        else
            next = c->due_ns[i] < next ? c->due_ns[i] : next;
    }
    return next;
}

void cluster_run(struct cluster *c, uint64_t until_ns)
{
    uint64_t now;
    while ((now = cluster_now(c)) < until_ns) {
        uint64_t next = wake_due(c, now);
        rpc_loopnet_visit(c->net, wake_host, c);
        if (c->awake_count == 0)
            (void)rpc_loopnet_step(c->net, next < until_ns ? next : until_ns);
        else
            work_all(c);
        if (cluster_now(c) == now)
            rpc_loopnet_spend(c->net, round_ns);
    }
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
    assert(len > 0);
    struct kv_port_request request = {
        .op = KV_BLOCK, .value = payload, .value_len = (uint32_t)len, .timeout_us = timeout_us};
    int rc = kv_port_submit(&m->port, &request, &slot);
    assert(rc == 0);
    (void)rc;
    if (kv_port_must_ring(&m->port))
        kv_client_slot_wake(m->daemon, m->client_slot);
    cluster_wake(c, number);
    return slot;
}
