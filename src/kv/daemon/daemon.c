#include "kv/daemon/client_slots.h"
#include "kv/daemon/copies.h"
#include "kv/daemon/local_requests.h"
#include "kv/daemon/peer_requests.h"
#include "kv/daemon/peers.h"
#include "kv/daemon/permits.h"
#include "kv/daemon/remote/remote.h"
#include "kv/daemon/view_peers.h"

#include "base/rng.h"

#include <errno.h>
#include <string.h>

enum { GAUGES_EVERY = 1024 }; /* turns between two updates of the gauges while the daemon is busy */

static uint64_t real_clock(void *user)
{
    (void)user;
    return hw_now_ns();
}

static int config_complete(struct kv_daemon_config *c)
{
    if (!c->clock.now_ns)
        c->clock.now_ns = real_clock;
    if (!c->memory.alloc)
        c->memory = kv_heap();
    if (c->value_max == 0)
        c->value_max = KV_VALUE_MAX;
    if (c->max_clients == 0)
        c->max_clients = KV_CLIENTS_DEFAULT;
    if (c->copies == 0)
        c->copies = 1;
    if (c->min_copies == 0)
        c->min_copies = 1;
    bool ok = c->ranks >= 1 && c->ranks <= KV_RANKS_MAX && c->rank < c->ranks && c->daemons >= 1 &&
              c->daemons <= KV_DAEMONS_MAX && c->index < c->daemons &&
              c->value_max <= KV_VALUE_MAX && c->max_clients <= KV_CLIENTS_MAX &&
              c->copies <= KV_COPIES_MAX && c->min_copies <= c->copies &&
              (!c->member || c->ranks == 1);
    return ok ? 0 : -EINVAL;
}

static int blocks_init(struct kv_daemon *d)
{
    struct kv_blocks_config c = d->config.blocks;
    if (!c.arena)
        return 0;
    c.memory = d->config.memory;
    d->scratch = c.memory.alloc(c.memory.user, sizeof(*d->scratch));
    d->cache_holder = (struct kv_block_holder)KV_BLOCK_HOLDER_INIT;
    int rc = d->scratch ? kv_blocks_create(&c, &d->blocks) : -ENOMEM;
    if (rc == 0)
        rc = kv_remote_put_init(d);
    return rc ? rc : kv_copies_init(d);
}

static void blocks_fini(struct kv_daemon *d)
{
    kv_copies_fini(d);
    kv_remote_put_fini(d);
    kv_blocks_destroy(d->blocks);
    d->config.memory.release(d->config.memory.user, d->scratch);
}

int kv_daemon_create(const struct kv_daemon_config *config, struct kv_daemon **out)
{
    struct kv_daemon_config c = *config;
    int rc = config_complete(&c);
    if (rc)
        return rc;
    size_t peers = c.member ? 2 * KV_MEMBERS_MAX : c.ranks; /* each may call, too */
    struct kv_daemon *d =
        c.memory.alloc(c.memory.user, sizeof(*d) + peers * sizeof(struct kv_peer));
    if (!d)
        return -ENOMEM;
    struct hw_rng rng;
    hw_rng_seed(&rng, c.seed);
    d->config = c;
    d->peer_room = (uint32_t)peers;
    do
        d->incarnation = hw_rng_u64(&rng);
    while (d->incarnation == 0);
    d->now_ns = kv_daemon_now(d);
    struct kv_store_config store = {.bytes = c.store_bytes,
                                    .entries = c.store_entries,
                                    .value_max = c.value_max,
                                    .secret = hw_rng_u64(&rng),
                                    .memory = c.memory};
    rc = kv_store_create(&store, &d->store);
    d->config.blocks.secret = hw_rng_u64(&rng);
    d->permits = hw_rng_u64(&rng);
    d->lives_until_ns = c.copies > 1 ? d->now_ns + KV_PERMIT_NS : 0;
    d->permits_until_ns = c.fixed_members || !c.member ? 0 : d->lives_until_ns;
    if (rc == 0)
        rc = blocks_init(d);
    if (rc) {
        blocks_fini(d);
        kv_store_destroy(d->store);
        c.memory.release(c.memory.user, d);
        return rc;
    }
    kv_view_peers_init(d);
    *out = d;
    return 0;
}

void kv_daemon_destroy(struct kv_daemon *d)
{
    if (!d)
        return;
    while (d->clients)
        kv_daemon_detach(d, d->clients);
    kv_remotes_fini(d);
    kv_peers_fini(d);
    blocks_fini(d);
    kv_store_destroy(d->store);
    struct kv_memory m = d->config.memory;
    m.release(m.user, d);
}

/* ---- measuring ---- */

static void probe_start(struct kv_daemon *d, struct kv_probe *p)
{
    for (int i = 0; i < KV_PHASES; i++)
        hw_hist_reset(&p->phase[i]);
    for (int i = 0; i < KV_STAGES; i++)
        hw_hist_reset(&p->stage[i]);
    hw_hist_reset(&p->loop);
    hw_hist_reset(&p->rtt);
    p->useful_ns = p->empty_ns = p->in_flight_ns = p->took_ns = 0;
    p->since_ns = p->in_flight_seen_ns = d->now_ns;
}

/* Starts or ends measuring as the measuring thread asked. */
static void probe_follow(struct kv_daemon *d)
{
    struct kv_probe *p = d->config.probe;
    bool want = p && atomic_load_explicit(&p->want, memory_order_relaxed);
    if (LIKELY(want == d->measuring))
        return;
    if (want) {
        probe_start(d, p);
    } else {
        kv_peers_note_in_flight(d, d->now_ns);
        p->took_ns = d->now_ns - p->since_ns;
    }
    d->measuring = want;
    /* Pairs with the acquire in kv_probe_idle: the figures are written before it. */
    atomic_store_explicit(&p->measuring, want, memory_order_release);
}

/* ---- the loop ---- */

typedef uint32_t phase_fn(struct kv_daemon *d);

static uint32_t scan_phase(struct kv_daemon *d)
{
    uint32_t n = kv_local_requests_serve(d);
    if (d->blocks) {
        kv_blocks_tick(d->blocks, d->now_ns);
        n += kv_local_copies_advance(d);
        n += d->copies_kept ? kv_copies_step(d) : 0;
        n += d->disowning ? kv_view_disown(d) : 0;
        n += d->remotes ? kv_remotes_step(d) : 0;
    }
    return n;
}

static uint32_t flush_phase(struct kv_daemon *d)
{
    uint32_t n = kv_peers_flush(d);
    if (d->wake)
        kv_client_slots_wake(d);
    return n;
}

static phase_fn *const phases[KV_PHASES] = {
    [KV_PHASE_POLL] = kv_peers_poll,
    [KV_PHASE_INCOMING] = kv_peer_requests_serve,
    [KV_PHASE_SCAN] = scan_phase,
    [KV_PHASE_FLUSH] = flush_phase,
};

/* What a turn handled, to tell which stages its phases were. */
struct handled {
    uint64_t requests, remote, incoming, responses;
};

static struct handled handled_so_far(const struct kv_daemon *d)
{
    return (struct handled){hw_counter_load(&d->stats.requests), hw_counter_load(&d->stats.remote),
                            hw_counter_load(&d->stats.incoming),
                            hw_counter_load(&d->stats.responses)};
}

static void note_stages(const struct kv_daemon *d, struct handled before,
                        const uint64_t at[KV_PHASES + 1])
{
    struct hw_hist *stage = d->config.probe->stage;
    struct handled now = handled_so_far(d);
    uint64_t remote = now.remote - before.remote, incoming = now.incoming - before.incoming;
    uint64_t responses = now.responses - before.responses;
    uint64_t poll_ns = at[KV_PHASE_POLL + 1] - at[KV_PHASE_POLL];
    if (remote > 0 && remote == now.requests - before.requests)
        hw_hist_record(&stage[KV_STAGE_ASK], (at[KV_PHASE_SCAN + 1] - at[KV_PHASE_SCAN]) / remote);
    if (incoming > 0)
        hw_hist_record(&stage[KV_STAGE_SERVE],
                       (at[KV_PHASE_INCOMING + 1] - at[KV_PHASE_INCOMING]) / incoming);
    if (incoming > 0 && responses == 0)
        hw_hist_record(&stage[KV_STAGE_DECODE], poll_ns / incoming);
    if (responses > 0 && incoming == 0)
        hw_hist_record(&stage[KV_STAGE_ANSWER], poll_ns / responses);
}

static uint32_t timed_turn(struct kv_daemon *d)
{
    struct kv_probe *p = d->config.probe;
    struct handled before = handled_so_far(d);
    uint64_t at[KV_PHASES + 1] = {kv_daemon_now(d)};
    uint32_t events = 0;
    for (int i = 0; i < KV_PHASES; i++) {
        uint32_t n = phases[i](d);
        at[i + 1] = kv_daemon_now(d);
        events += i == KV_PHASE_FLUSH ? 0 : n;
    }
    for (int i = 0; i < KV_PHASES; i++)
        hw_hist_record(&p->phase[i], at[i + 1] - at[i]);
    note_stages(d, before, at);
    uint64_t took = at[KV_PHASES] - at[0];
    hw_hist_record(&p->loop, took);
    *(events ? &p->useful_ns : &p->empty_ns) += took;
    return events;
}

static uint32_t plain_turn(struct kv_daemon *d)
{
    uint32_t events = kv_peers_poll(d);
    events += kv_peer_requests_serve(d);
    events += scan_phase(d);
    (void)flush_phase(d);
    return events;
}

static void publish_blocks(struct kv_daemon *d)
{
    struct kv_stats *s = &d->stats;
    struct kv_blocks_stat b;
    kv_blocks_stat(d->blocks, &b);
    atomic_store_explicit(&s->block_hits, b.hits, memory_order_relaxed);
    atomic_store_explicit(&s->block_misses, b.misses, memory_order_relaxed);
    atomic_store_explicit(&s->block_evicted, b.evicted, memory_order_relaxed);
    atomic_store_explicit(&s->block_corrupt, b.corrupt, memory_order_relaxed);
    atomic_store_explicit(&s->block_repaired, b.repaired, memory_order_relaxed);
    atomic_store_explicit(&s->blocks, b.blocks, memory_order_relaxed);
    atomic_store_explicit(&s->block_bytes, b.bytes, memory_order_relaxed);
    atomic_store_explicit(&s->block_leases, b.leases, memory_order_relaxed);
    atomic_store_explicit(&s->block_cached, b.cached, memory_order_relaxed);
}

static void publish_gauges(struct kv_daemon *d)
{
    struct kv_stats *s = &d->stats;
    d->gauges_stale = false;
    atomic_store_explicit(&s->in_flight, d->in_flight, memory_order_relaxed);
    if (d->blocks)
        publish_blocks(d);
}

uint32_t kv_daemon_turn(struct kv_daemon *d)
{
    uint64_t loops = hw_counter_load(&d->stats.loops);
    d->now_ns = kv_daemon_now(d);
    d->turn_bytes = 0;
    probe_follow(d);
    bool timed = d->measuring && loops % d->config.probe->every == 0;
    uint32_t events = UNLIKELY(timed) ? timed_turn(d) : plain_turn(d);
    hw_counter_bump(&d->stats.loops, 1);
    if (events) {
        hw_counter_bump(&d->stats.useful_loops, 1);
        d->gauges_stale = true;
    }
    if (d->gauges_stale && (events == 0 || loops % GAUGES_EVERY == 0))
        publish_gauges(d);
    return events;
}

void kv_daemon_visit(struct kv_daemon *d)
{
    d->now_ns = kv_daemon_now(d);
}

void kv_daemon_visited(struct kv_daemon *d)
{
    publish_gauges(d);
}

struct kv_blocks *kv_daemon_blocks(struct kv_daemon *d)
{
    return d->blocks;
}

uint64_t kv_daemon_time(const struct kv_daemon *d)
{
    return d->now_ns;
}

bool kv_daemon_arm(struct kv_daemon *d)
{
    bool ready = d->copying || d->more_to_serve || kv_peers_arm(d);
    return !kv_client_slots_park(d) || ready;
}

uint64_t kv_daemon_next_tick(const struct kv_daemon *d)
{
    uint64_t peers = kv_peers_next_tick(d);
    uint64_t blocks = d->blocks ? kv_blocks_next_tick(d->blocks) : HW_NEVER;
    uint64_t remotes = d->remotes ? kv_remotes_next_tick(d) : HW_NEVER;
    uint64_t copies = d->copies_kept ? kv_copies_next_tick(d) : HW_NEVER;
    if (d->disowning)
        return d->now_ns;
    blocks = remotes < blocks ? remotes : blocks;
    blocks = copies < blocks ? copies : blocks;
    return peers < blocks ? peers : blocks;
}

const struct kv_stats *kv_daemon_stats(const struct kv_daemon *d)
{
    return &d->stats;
}

struct kv_stats *kv_daemon_count(struct kv_daemon *d)
{
    return &d->stats;
}
