/* Blocks of clusters with every fault they can have, from a seed: members that come, go, restart,
 * stall until they are given up, and have different views; connections that are cut, reset or
 * frozen; clients that die; leases that end while they are read; arenas that are too small; memory
 * that runs out.  Each seed has its own mixture.
 * Whatever happens: every request ends, no byte is read that was not put, and once all is well
 * again every member reads every block, and nothing is held that nobody holds.  While no member
 * comes or goes, nobody finds a block after its delete, until it is put again.
 *
 *   test-kv-blocks-sim              every seed
 *   test-kv-blocks-sim SEED         one, with what happened
 *   test-kv-blocks-sim SEED COUNT   so many from there on */
#include "unit.h"

#include "../../sanitized.h"

#include "base/log.h"
#include "bench/kvsim/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALM_SEEDS = SANITIZED ? 20 : 60,
    RESET_SEEDS = SANITIZED ? 40 : 150,
    FAULTY_SEEDS = SANITIZED ? 150 : 1200,
    MEMBERS_MAX = 4,
    KEYS = 6,
    DEPTH = 3,
    HELD = 4,              /* leases that a client keeps */
    BLOCK_MAX = 150 << 10, /* three chunks where windows are smallest */
    ARENA = 2 << 20,
    TIGHT_ARENA = 240 << 10, /* the largest block, and not the next one beside it */
    SLOT_STAGING = 160 << 10,
    STEPS = 160
};

enum fault {
    STOPS,   /* daemons */
    LEAVES,  /* clients */
    STALLS,  /* daemons that do not turn for a while */
    MEMORY,  /* allocations that fail */
    VIEWS,   /* members come and go, and hear of it one by one */
    LINKS,   /* single connections: cut, reset, frozen */
    WAITING, /* nothing happens for so long that leases and puts end */
    FAULTS
};

enum step_of {
    IDLE,
    STARTING,
    COMMITTING,
    GETTING,
    RENEWING,
    VERIFYING,
    RELEASING,
    ASKING,
    STAGING,
    ABORTING
};

struct slot {
    enum step_of at;
    uint32_t key, held;
    bool change; /* a delete: done twice, it would answer something else */
    uint64_t asked_ns;
    uint64_t ticket; /* STAGING: of the put, where its bytes are, and how many are there */
    uint32_t place, staged;
};

/* A lease as a client counts it. */
struct held {
    bool used, ending; /* ending: its release is on the way */
    uint32_t key;
    struct kv_block_granted granted;
    uint64_t lasts_ns, until_ns;
};

struct client {
    struct slot slots[DEPTH];
    struct held held[HELD];
};

/* Of a key. */
struct history {
    uint32_t puts;       /* in progress */
    uint64_t put_end_ns; /* of the last one */
    uint64_t gone_ns;    /* the end of a delete since which there was no put; 0: none */
};

struct sim {
    struct cluster cluster;
    struct history history[KEYS];
    struct client clients[MEMBERS_MAX];
    uint32_t faults; /* a bit each; 0: calm */
    bool resets;     /* the one fault there is: connections are reset */
    bool exact;      /* none but that: what was deleted stays so */
    bool keeping;    /* clients keep some of their leases */
    uint32_t open;
    enum kv_result last; /* of what was not about a lease */
    struct figures *sum;
    char failure[128];
};

/* Of all seeds. */
struct figures {
    uint64_t results[KV_RESULT_COUNT];
    uint64_t stale_views, evicted, troubles;
    uint64_t late;    /* reads that came after the lease's time */
    uint64_t corrupt; /* reads whose checksum did not fit */
    uint64_t early;   /* puts of which a part was moved before the commit */
};

static uint64_t below(struct sim *s, uint64_t n)
{
    return cluster_below(&s->cluster, n);
}

static uint64_t now_of(const struct sim *s)
{
    return cluster_now(&s->cluster);
}

static void check(struct sim *s, bool holds, const char *what)
{
    if (!holds && !s->failure[0])
        snprintf(s->failure, sizeof(s->failure), "%s", what);
}

/* ---- blocks: their bytes follow from their keys ---- */

static uint8_t contents[KEYS][BLOCK_MAX];

static void fill_contents(void)
{
    for (uint32_t n = 0; n < KEYS; n++)
        for (uint32_t at = 0; at < BLOCK_MAX; at++)
            contents[n][at] = (uint8_t)(at * 7 + at / 1021 + n * 31);
}

static struct kv_block_key key_of(uint32_t n)
{
    return (struct kv_block_key){.len = 5, .bytes = {'b', 'l', 'k', (uint8_t)n, 0}};
}

static uint32_t len_of(uint32_t n)
{
    static const uint32_t lens[KEYS] = {1, 777, 20000, 65536, 100001, BLOCK_MAX};
    return lens[n];
}

/* ---- histories ---- */

static void begin_put(struct sim *s, uint32_t n)
{
    s->history[n].puts++;
    s->history[n].gone_ns = 0;
}

static void check_found(struct sim *s, uint32_t n, uint64_t asked_ns)
{
    uint64_t gone_ns = s->history[n].gone_ns;
    check(s, !s->exact || !gone_ns || asked_ns < gone_ns, "a block after its delete");
}

static void note_answer(struct sim *s, const struct slot *slot, const struct kv_port_answer *a)
{
    struct history *h = &s->history[slot->key < KEYS ? slot->key : 0];
    bool done = a->result == KV_OK || a->result == KV_MISS;
    if (slot->at == COMMITTING || slot->at == ABORTING ||
        (slot->at == STARTING && a->result != KV_OK)) {
        h->puts--;
        h->put_end_ns = now_of(s);
    } else if (slot->change && done && h->puts == 0 && h->put_end_ns < slot->asked_ns) {
        h->gone_ns = now_of(s);
    } else if (slot->at == GETTING && a->result == KV_OK) {
        check_found(s, slot->key, slot->asked_ns);
    }
    for (uint32_t n = 0; slot->at == ASKING && !slot->change && n < a->value_len; n++)
        if (((const uint8_t *)a->value)[n])
            check_found(s, n, slot->asked_ns);
}

/* ---- requests ---- */

static void submit(struct sim *s, uint32_t m, const struct kv_block_request *r,
                   const struct kv_block_key *keys, struct slot what)
{
    uint32_t timeout_us = s->faults ? 1000 + (uint32_t)below(s, 400000) : 8000000;
    what.asked_ns = now_of(s);
    s->clients[m].slots[cluster_submit(&s->cluster, m, r, keys, timeout_us)] = what;
    s->open++;
}

static bool has_slot(const struct sim *s, uint32_t m)
{
    const struct cluster_member *member = &s->cluster.members[m];
    return member->attached && member->port.busy < DEPTH;
}

static void ask(struct sim *s, uint32_t m)
{
    uint32_t n = (uint32_t)below(s, KEYS);
    struct kv_block_key keys[KEYS];
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = key_of(i);
    struct kv_block_request r = {.key_count = 1};
    if (!has_slot(s, m))
        return;
    switch (below(s, 8)) {
    case 0:
    case 1:
        r.op = KV_BLOCK_PUT_START;
        r.len = len_of(n);
        r.tenant = 1;
        begin_put(s, n);
        submit(s, m, &r, &keys[n], (struct slot){.at = STARTING, .key = n});
        return;
    case 2:
        r.op = KV_BLOCK_DELETE;
        submit(s, m, &r, &keys[n], (struct slot){.at = ASKING, .key = n, .change = true});
        return;
    case 3:
        r.op = KV_BLOCK_EXISTS;
        r.key_count = KEYS;
        submit(s, m, &r, keys, (struct slot){.at = ASKING, .key = KEYS});
        return;
    default:
        r.op = KV_BLOCK_GET;
        submit(s, m, &r, &keys[n], (struct slot){.at = GETTING, .key = n});
    }
}

/* The staging area has a place for each slot; a commit takes another slot than its start had. */
static void commit(struct sim *s, uint32_t m, uint32_t place, uint32_t key, uint64_t ticket)
{
    uint64_t at = (uint64_t)place * SLOT_STAGING;
    memcpy(s->cluster.members[m].port.region.staging + at, contents[key], len_of(key));
    struct kv_block_request r = {
        .op = KV_BLOCK_PUT_COMMIT, .handle = ticket, .at = at, .len = len_of(key)};
    submit(s, m, &r, NULL, (struct slot){.at = COMMITTING, .key = key});
}

/* More of the bytes are there than were; what is not there yet is something else. */
static void stage(struct sim *s, uint32_t m, struct slot put)
{
    uint32_t len = len_of(put.key), more = 1 + (uint32_t)below(s, len - put.staged);
    uint64_t at = (uint64_t)put.place * SLOT_STAGING;
    uint8_t *staging = s->cluster.members[m].port.region.staging + at;
    put.staged += more;
    memcpy(staging, contents[put.key], put.staged);
    memset(staging + put.staged, 0xee, len - put.staged);
    struct kv_block_request r = {
        .op = KV_BLOCK_PUT_STAGED, .handle = put.ticket, .at = at, .len = put.staged};
    put.at = STAGING;
    submit(s, m, &r, NULL, put);
}

/* A put whose room is promised goes on, whatever came of a part of it, or never does. */
static void put_on(struct sim *s, uint32_t m, struct slot put)
{
    struct kv_block_request r = {.op = KV_BLOCK_PUT_ABORT, .handle = put.ticket};
    uint64_t what = below(s, s->faults ? 16 : 14);
    if (what < 7 && put.staged < len_of(put.key))
        stage(s, m, put);
    else if (what < 14)
        commit(s, m, put.place, put.key, put.ticket);
    else if (what == 14)
        submit(s, m, &r, NULL, (struct slot){.at = ABORTING, .key = put.key});
}

/* ---- leases ---- */

static void about_lease(struct sim *s, uint32_t m, uint32_t held, enum kv_block_op op,
                        enum step_of at)
{
    struct held *h = &s->clients[m].held[held];
    struct kv_block_request r = {.op = op, .handle = h->granted.handle};
    h->ending = at == RELEASING;
    submit(s, m, &r, NULL, (struct slot){.at = at, .held = held, .key = h->key});
}

/* As kv_block_get does: what was read counts if the lease lasted and the checksum fits. */
static void read_held(struct sim *s, uint32_t m, uint32_t held)
{
    const struct held *h = &s->clients[m].held[held];
    const uint8_t *data = s->cluster.members[m].arena + h->granted.offset;
    uint32_t len = h->granted.len;
    if (now_of(s) >= h->until_ns) {
        s->sum->late++;
        return;
    }
    if (len == len_of(h->key) && memcmp(data, contents[h->key], len) == 0)
        return;
    check(s, kv_checksum_add(0, data, len) != h->granted.checksum, "a block has other bytes");
    s->sum->corrupt++;
    if (has_slot(s, m))
        about_lease(s, m, held, KV_BLOCK_VERIFY, VERIFYING);
}

static void use_held(struct sim *s, uint32_t m)
{
    uint32_t i = (uint32_t)below(s, HELD);
    const struct held *h = &s->clients[m].held[i];
    if (!s->cluster.members[m].attached || !h->used || h->ending)
        return;
    uint64_t what = below(s, 4);
    if (what < 2 || !has_slot(s, m))
        read_held(s, m, i);
    else if (what == 2)
        about_lease(s, m, i, KV_BLOCK_RENEW, RENEWING);
    else
        about_lease(s, m, i, KV_BLOCK_RELEASE, RELEASING);
}

/* It is read at once, and again later if there is a place to remember it. */
static void hold(struct sim *s, uint32_t m, const struct slot *slot,
                 const struct kv_block_granted *g)
{
    struct client *c = &s->clients[m];
    uint32_t i = 0;
    uint64_t lasts_ns = g->lasts_ms * HW_MS;
    while (i + 1 < HELD && c->held[i].used)
        i++;
    struct held kept = c->held[i];
    lasts_ns -= lasts_ns / 8;
    c->held[i] = (struct held){.used = true,
                               .key = slot->key,
                               .granted = *g,
                               .lasts_ns = lasts_ns,
                               .until_ns = slot->asked_ns + lasts_ns};
    read_held(s, m, i);
    if (s->keeping && !kept.used && below(s, 2))
        return;
    if (has_slot(s, m))
        about_lease(s, m, i, KV_BLOCK_RELEASE, RELEASING);
    c->held[i] = kept; /* the answer to a release needs no lease */
}

/* ---- answers ---- */

static void check_result(struct sim *s, const struct slot *slot, enum kv_result result)
{
    bool put = slot->at == STARTING || slot->at == COMMITTING || slot->at == STAGING ||
               slot->at == ABORTING;
    bool lease = slot->at == RENEWING || slot->at == VERIFYING || slot->at == RELEASING;
    check(s, result != KV_REFUSED, "a request was refused");
    check(s, result != KV_TOO_LARGE, "TOO_LARGE");
    check(s, result != KV_EXISTS || slot->at == STARTING || slot->at == COMMITTING,
          "EXISTS where nothing was put");
    check(s, result != KV_PUT_EXPIRED || put, "PUT_EXPIRED where nothing was put");
    check(s, result != KV_NOT_OWNER || put, "NOT_OWNER where nothing was put");
    check(s, result != KV_MISS || !put, "MISS for a put");
    check(s, result != KV_EXPIRED || lease, "EXPIRED without a lease");
    check(s, result != KV_PEER_LOST || !s->resets || slot->change,
          "a connection that was cut failed a request");
}

static void on_lease_answer(struct sim *s, uint32_t m, const struct slot *slot,
                            enum kv_result result)
{
    struct held *h = &s->clients[m].held[slot->held];
    if (slot->at == RENEWING && result == KV_OK)
        h->until_ns = slot->asked_ns + h->lasts_ns;
    else if (slot->at == RELEASING ? h->ending : result == KV_EXPIRED)
        h->used = false;
    else if (slot->at == VERIFYING && result == KV_MISS)
        h->used = false;
}

static void on_answer(struct sim *s, uint32_t m, const struct kv_port_answer *a)
{
    struct slot slot = s->clients[m].slots[a->slot];
    struct kv_block_granted g = {0};
    uint64_t ticket = 0;
    uint32_t place = a->slot;
    bool ok = a->result == KV_OK;
    check(s, slot.at != IDLE, "an answer without a request");
    check_result(s, &slot, a->result);
    note_answer(s, &slot, a);
    s->sum->results[a->result]++;
    s->open--;
    s->clients[m].slots[a->slot].at = IDLE;
    if (ok && slot.at == GETTING)
        assert_int_equal(
            kv_block_granted_decode(a->value, a->value_len, s->cluster.options.arena_bytes, &g), 0);
    else if (ok && slot.at == STARTING)
        memcpy(&ticket, a->value, sizeof(ticket));
    if (slot.at < RENEWING || slot.at == ASKING)
        s->last = a->result;
    enum kv_result result = a->result;
    kv_port_free(&s->cluster.members[m].port, a->slot);
    if (slot.at == RENEWING || slot.at == VERIFYING || slot.at == RELEASING)
        on_lease_answer(s, m, &slot, result);
    else if (ok && slot.at == GETTING)
        hold(s, m, &slot, &g);
    else if (ok && slot.at == STARTING)
        put_on(s, m, (struct slot){.key = slot.key, .ticket = ticket, .place = place});
    else if (slot.at == STAGING)
        put_on(s, m, slot);
    s->sum->early += ok && slot.at == STAGING;
}

static void poll_client(struct sim *s, uint32_t m)
{
    struct kv_port_answer a;
    while (s->cluster.members[m].attached && kv_port_take(&s->cluster.members[m].port, &a) > 0)
        on_answer(s, m, &a);
}

/* ---- coming and going ---- */

static void forget_client(struct sim *s, uint32_t m)
{
    for (uint32_t i = 0; i < DEPTH; i++)
        s->open -= s->clients[m].slots[i].at != IDLE;
    s->clients[m] = (struct client){0};
}

static void stop(struct sim *s, uint32_t m)
{
    const struct kv_daemon *d = s->cluster.members[m].daemon;
    if (!d)
        return;
    s->sum->stale_views += hw_counter_load(&kv_daemon_stats(d)->block_stale_views);
    s->sum->evicted += hw_counter_load(&kv_daemon_stats(d)->block_evicted);
    forget_client(s, m);
    cluster_stop(&s->cluster, m);
}

static void turn_all(struct sim *s, uint64_t ns)
{
    for (uint32_t i = 0; i < s->cluster.options.count; i++) {
        cluster_turn(&s->cluster, i);
        poll_client(s, i);
    }
    cluster_pass_time(&s->cluster, ns);
}

static void wait_for(struct sim *s, uint64_t ns)
{
    uint64_t until = now_of(s) + ns;
    while (now_of(s) < until)
        turn_all(s, 5 * HW_MS);
}

static void recover(struct sim *s)
{
    for (uint32_t i = 0; i < s->cluster.options.count && s->cluster.allocations_to_fail == 0; i++)
        (void)cluster_start(&s->cluster, i); /* without memory: again later */
}

static void change_view(struct sim *s, uint32_t m)
{
    if (below(s, 2)) {
        cluster_tell_view(&s->cluster, m);
        return;
    }
    bool *in_view = &s->cluster.members[below(s, s->cluster.options.count)].in_view;
    *in_view = !*in_view;
    s->cluster.epoch++;
}

static void fault(struct sim *s)
{
    struct cluster *c = &s->cluster;
    uint32_t m = (uint32_t)below(s, c->options.count), kind;
    do {
        kind = (uint32_t)below(s, FAULTS);
    } while (!(s->faults & 1u << kind));
    switch ((enum fault)kind) {
    case STOPS:
        stop(s, m);
        break;
    case LEAVES:
        forget_client(s, m);
        cluster_detach(c, m);
        break;
    case STALLS:
        c->members[m].stalled_until_ns = now_of(s) + below(s, 400 * HW_MS);
        break;
    case MEMORY:
        c->allocations_to_fail = (uint32_t)below(s, 3);
        break;
    case VIEWS:
        change_view(s, m);
        break;
    case LINKS:
        s->sum->troubles += cluster_trouble(c, (enum cluster_trouble)below(s, CLUSTER_TROUBLES));
        break;
    case WAITING:
        wait_for(s, below(s, 100 * HW_MS));
        break;
    case FAULTS:
        break;
    }
}

/* ---- a run ---- */

static void open_sim(struct sim *s, uint64_t seed, bool faulty)
{
    struct hw_rng rng;
    hw_rng_seed(&rng, seed);
    s->faults = faulty ? 1 + (uint32_t)hw_rng_below(&rng, (1u << FAULTS) - 1) : 0;
    bool short_lived = s->faults & 1u << WAITING;
    struct cluster_options o = {
        .seed = seed,
        .count = 2 + (uint32_t)hw_rng_below(&rng, MEMBERS_MAX - 1),
        .copies = 1 + (uint32_t)hw_rng_below(&rng, 2),
        .arena_bytes = hw_rng_below(&rng, 3) ? ARENA : TIGHT_ARENA,
        .lease_lasts_ns = short_lived ? 60 * HW_MS : 500 * HW_MS,
        .put_lasts_ns = short_lived ? 60 * HW_MS : 500 * HW_MS,
        .depth = DEPTH,
        .staging_bytes = DEPTH * SLOT_STAGING,
        .heartbeat_ns = 200 * HW_MS,
        .small_windows = true,
        .net = {.seed = seed,
                .delay_ns = hw_rng_below(&rng, 200 * HW_US),
                .piece_max = hw_rng_below(&rng, 3) ? 0 : 5000,
                .stall_percent = hw_rng_below(&rng, 3) ? 0 : (uint32_t)hw_rng_below(&rng, 30)}};
    assert_int_equal(cluster_open(&s->cluster, &o), 0);
    s->cluster.refused_dials = faulty ? 8 : 0;
}

static void connect_all(struct sim *s)
{
    uint64_t until = now_of(s) + 20 * HW_SEC;
    while ((s->open > 0 || !cluster_all_connected(&s->cluster)) && now_of(s) < until)
        turn_all(s, 100 * HW_US);
    check(s, s->open == 0, "a request has not ended");
    check(s, cluster_all_connected(&s->cluster), "members do not find each other");
}

/* All faults are over.  Connections that are cut are found by their silence, those that are frozen
 * thaw; then what is still on the way arrives, piece by piece; then what was promised to those who
 * are gone ends by its time. */
static void heal(struct sim *s)
{
    struct cluster *c = &s->cluster;
    s->faults = 0;
    s->keeping = false;
    c->allocations_to_fail = c->refused_dials = 0;
    for (uint32_t i = 0; i < c->options.count; i++)
        c->members[i].in_view = true;
    c->epoch++;
    recover(s);
    for (uint32_t i = 0; i < c->options.count; i++)
        cluster_tell_view(c, i);
    connect_all(s);
    wait_for(s, 3 * c->options.heartbeat_ns);
    connect_all(s);
    /* A delete that nobody waits for any more may be behind a long block.  Some sends stall. */
    for (uint32_t i = 0, quiet = 0; i < 1000000 && quiet < 20; i++) {
        turn_all(s, 100 * HW_US);
        quiet = rpc_loopnet_carries(c->net) ? 0 : quiet + 1;
    }
    check(s, !rpc_loopnet_carries(c->net), "connections do not fall silent");
    for (uint32_t i = 0; i < c->options.count; i++)
        memset(s->clients[i].held, 0, sizeof(s->clients[i].held));
    wait_for(s, c->options.lease_lasts_ns + c->options.put_lasts_ns);
}

/* One request, waited for; with its commit, where it is a put. */
static enum kv_result do_one(struct sim *s, uint32_t m, enum kv_block_op op, uint32_t n)
{
    struct kv_block_key key = key_of(n);
    struct kv_block_request r = {.op = op, .key_count = 1, .len = len_of(n), .tenant = 1};
    enum step_of at = op == KV_BLOCK_GET ? GETTING : op == KV_BLOCK_PUT_START ? STARTING : ASKING;
    if (op == KV_BLOCK_PUT_START)
        begin_put(s, n);
    submit(s, m, &r, &key, (struct slot){.at = at, .key = n, .change = op == KV_BLOCK_DELETE});
    for (int i = 0; i < 100000 && s->open > 0; i++)
        turn_all(s, 20 * HW_US);
    check(s, s->open == 0, "a request has not ended");
    return s->last;
}

/* All is well again: what is put is read by everybody, what is deleted by nobody. */
static void prove(struct sim *s)
{
    uint32_t count = s->cluster.options.count, from = (uint32_t)below(s, KEYS);
    for (uint32_t k = 0; k < 2 && !s->failure[0]; k++) {
        uint32_t n = (from + k * KEYS / 2) % KEYS;
        enum kv_result put = do_one(s, n % count, KV_BLOCK_PUT_START, n);
        check(s, put == KV_OK || put == KV_EXISTS, "a put failed for no reason");
        for (uint32_t i = 0; i < count; i++)
            check(s, do_one(s, i, KV_BLOCK_GET, n) == KV_OK, "a block is not found");
        enum kv_result gone = do_one(s, 0, KV_BLOCK_DELETE, n);
        if (s->resets && gone == KV_PEER_LOST) /* which the next one may find done */
            gone = do_one(s, 0, KV_BLOCK_DELETE, n) == KV_PEER_LOST ? KV_PEER_LOST : KV_OK;
        check(s, gone == KV_OK, "a delete failed");
        for (uint32_t i = 0; i < count; i++)
            check(s, do_one(s, i, KV_BLOCK_GET, n) == KV_MISS, "a deleted block");
    }
    wait_for(s, s->cluster.options.lease_lasts_ns + 10 * HW_MS);
    for (uint32_t i = 0; i < count; i++) {
        const struct kv_stats *stats = kv_daemon_stats(s->cluster.members[i].daemon);
        (void)do_one(s, i, KV_BLOCK_DELETE, 0);
        for (int k = 0; k < 50; k++) /* idle turns bring figures up to date */
            turn_all(s, 100 * HW_US);
        check(s, hw_counter_load(&stats->block_leases) == 0, "a lease is held for nobody");
    }
}

static void swallow(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

static void run_with(uint64_t seed, bool resets, struct figures *sum)
{
    struct sim s = {.sum = sum, .keeping = true, .resets = resets};
    uint64_t pause_ns = resets ? 3 * HW_MS : 300 * HW_US; /* some longer than a dial's */
    hw_log_set_sink(swallow, NULL);
    s.exact = seed % 2 == 0; /* so that a seed alone says all */
    open_sim(&s, seed, !s.exact);
    connect_all(&s);
    for (int i = 0; i < STEPS && !s.failure[0]; i++) {
        uint32_t count = s.cluster.options.count;
        ask(&s, (uint32_t)below(&s, count));
        use_held(&s, (uint32_t)below(&s, count));
        for (uint64_t k = below(&s, 6); k > 0; k--)
            cluster_turn(&s.cluster, (uint32_t)below(&s, count));
        poll_client(&s, (uint32_t)below(&s, count));
        cluster_pass_time(&s.cluster, below(&s, pause_ns));
        if (s.resets && cluster_all_connected(&s.cluster) && below(&s, 5) == 0)
            sum->troubles += cluster_trouble(&s.cluster, CLUSTER_RESET);
        if (s.faults && below(&s, 12) == 0)
            fault(&s);
        if (below(&s, 20) == 0)
            recover(&s);
    }
    heal(&s);
    if (!s.failure[0])
        prove(&s);
    for (uint32_t i = 0; i < s.cluster.options.count; i++)
        stop(&s, i);
    cluster_close(&s.cluster);
    hw_log_set_sink(NULL, NULL);
    if (s.failure[0])
        fail_msg("seed %llu: %s; again with: test-kv-blocks-sim %llu", (unsigned long long)seed,
                 s.failure, (unsigned long long)seed);
}

static void run(uint64_t seed, struct figures *sum)
{
    run_with(seed, false, sum);
}

static void print(const struct figures *f)
{
    for (int i = 0; i < KV_RESULT_COUNT; i++)
        printf("%s %llu, ", kv_result_name((enum kv_result)i), (unsigned long long)f->results[i]);
    printf("stale views %llu, evicted %llu, cut %llu, late %llu, corrupt %llu, early %llu\n",
           (unsigned long long)f->stale_views, (unsigned long long)f->evicted,
           (unsigned long long)f->troubles, (unsigned long long)f->late,
           (unsigned long long)f->corrupt, (unsigned long long)f->early);
}

static void without_faults_nothing_is_lost(void **state)
{
    (void)state;
    struct figures f = {0};
    const uint64_t *n = f.results;
    for (uint64_t i = 1; i <= CALM_SEEDS; i++)
        run(2 * i, &f);
    print(&f);
    assert_int_equal(n[KV_PEER_LOST] + n[KV_TIMEOUT] + n[KV_EXPIRED] + n[KV_REFUSED], 0);
    assert_true(n[KV_OK] > 0 && n[KV_MISS] > 0 && n[KV_EXISTS] > 0);
    assert_int_equal(f.stale_views + f.corrupt, 0);
    assert_true(f.early > 0);
}

static void a_connection_that_is_reset_costs_no_request(void **state)
{
    (void)state;
    struct figures f = {0};
    const uint64_t *n = f.results;
    for (uint64_t i = 1; i <= RESET_SEEDS; i++)
        run_with(2 * i, true, &f);
    print(&f);
    assert_int_equal(n[KV_TIMEOUT] + n[KV_EXPIRED] + n[KV_REFUSED], 0);
    assert_true(n[KV_PEER_LOST] < f.troubles && f.troubles > 3 * RESET_SEEDS);
    assert_true(n[KV_OK] > 0 && n[KV_MISS] > 0 && n[KV_EXISTS] > 0 && f.early > 0);
}

static void with_faults_requests_end_and_bytes_are_right(void **state)
{
    (void)state;
    struct figures f = {0};
    const uint64_t *n = f.results;
    for (uint64_t i = 0; i < FAULTY_SEEDS; i++)
        run(2 * i + 1, &f);
    print(&f);
    /* Trouble must be among them, or this shows less than it says. */
    assert_true(n[KV_PEER_LOST] > 0 && n[KV_TIMEOUT] > 0 && n[KV_FULL] > 0 && n[KV_OK] > 0);
    assert_true(n[KV_EXPIRED] > 0 && f.late > 0);
    assert_true(f.stale_views > FAULTY_SEEDS / 2 && f.evicted > FAULTY_SEEDS / 2);
    assert_true(f.troubles > FAULTY_SEEDS / 2);
}

struct counted {
    int left, live; /* allocations that succeed, and blocks that are out */
};

static void *counted_alloc(void *user, size_t bytes)
{
    struct counted *c = user;
    if (c->left == 0)
        return NULL;
    c->left--;
    c->live++;
    return calloc(1, bytes);
}

static void counted_release(void *user, void *block)
{
    ((struct counted *)user)->live -= block != NULL;
    free(block);
}

static void every_failed_allocation_is_an_answer(void **state)
{
    (void)state;
    static _Alignas(64) uint8_t arena[4096];
    struct counted memory = {0};
    struct kv_daemon_config config = {
        .ranks = 1,
        .daemons = 1,
        .member = 1,
        .store_bytes = 4096,
        .store_entries = 16,
        .blocks = {.arena = arena, .arena_bytes = sizeof(arena), .entries = 4},
        .memory = {.alloc = counted_alloc, .release = counted_release, .user = &memory},
    };
    struct kv_daemon *d = NULL;
    int failures = 0;
    while (kv_daemon_create(&config, &d) != 0) {
        assert_int_equal(memory.live, 0);
        memory.left = ++failures;
    }
    assert_true(failures > 8);
    kv_daemon_destroy(d);
    assert_int_equal(memory.live, 0);
}

int main(int argc, char **argv)
{
    fill_contents();
    if (argc > 1) {
        struct figures f = {0};
        uint64_t seed = strtoull(argv[1], NULL, 10);
        uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
        for (uint64_t i = 0; i < count; i++)
            run(seed + i, &f);
        print(&f);
        printf("%llu histories, all hold\n", (unsigned long long)count);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_faults_nothing_is_lost),
        cmocka_unit_test(a_connection_that_is_reset_costs_no_request),
        cmocka_unit_test(every_failed_allocation_is_an_answer),
        cmocka_unit_test(with_faults_requests_end_and_bytes_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
