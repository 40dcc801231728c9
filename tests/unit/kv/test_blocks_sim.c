/* Blocks of clusters with every fault they can have, from a seed: members that come, go, restart,
 * stall until they are given up, and have different views; clients that die; memory that runs out.
 * Whatever happens: every request ends, no byte is read that was not put, and once all is well
 * again every member reads every block, and nothing is held that nobody holds.
 *
 *   test-kv-blocks-sim              every seed
 *   test-kv-blocks-sim SEED         one, with what happened */
#include "unit.h"

#include "base/log.h"
#include "base/rng.h"
#include "kv/blockmsg.h"
#include "kv/daemon.h"
#include "rpc/loopback.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CALM_SEEDS = 10, FAULTY_SEEDS = 60 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { CALM_SEEDS = 10, FAULTY_SEEDS = 60 };
#else
enum { CALM_SEEDS = 30, FAULTY_SEEDS = 250 };
#endif
#else
enum { CALM_SEEDS = 30, FAULTY_SEEDS = 250 };
#endif

enum {
    MEMBERS_MAX = 4,
    KEYS = 6,
    DEPTH = 3,
    BLOCK_MAX = 150 << 10, /* three pieces where windows are smallest */
    ARENA = 2 << 20,
    SLOT_STAGING = 160 << 10,
    STEPS = 400
};

enum step_of { IDLE, STARTING, COMMITTING, GETTING, RELEASING, ASKING };

struct slot {
    enum step_of at;
    uint32_t key;
    enum kv_block_op op;
};

struct member {
    struct kv_daemon *daemon; /* NULL: down */
    uint8_t *arena;
    uint64_t stalled_until_ns;
    /* its client */
    bool attached;
    void *map;
    struct kv_port port;
    struct kv_seat *seat;
    struct slot slots[DEPTH];
};

struct sim {
    struct hw_rng rng;
    struct rpc_loopnet *net;
    struct member members[MEMBERS_MAX];
    uint32_t count, copies;
    uint32_t in_view; /* a bit a member */
    uint64_t epoch;
    uint32_t results[KV_RESULT_COUNT], open, allocations_to_fail;
    uint64_t stale_views;
    bool faults;
    char failure[128];
};

static uint64_t below(struct sim *s, uint64_t n)
{
    return hw_rng_below(&s->rng, n);
}

static void check(struct sim *s, bool holds, const char *what)
{
    if (!holds && !s->failure[0])
        snprintf(s->failure, sizeof(s->failure), "%s", what);
}

/* ---- blocks: their bytes follow from their keys ---- */

static struct kv_block_key key_of(uint32_t n)
{
    return (struct kv_block_key){.len = 5, .bytes = {'b', 'l', 'k', (uint8_t)n, 0}};
}

static uint32_t len_of(uint32_t n)
{
    static const uint32_t lens[KEYS] = {1, 777, 20000, 65536, 100001, BLOCK_MAX};
    return lens[n];
}

static uint8_t byte_of(uint32_t n, uint32_t at)
{
    return (uint8_t)(at * 7 + at / 1021 + n * 31);
}

static void check_bytes(struct sim *s, uint32_t n, const uint8_t *data, uint32_t len)
{
    check(s, len == len_of(n), "a block has another length");
    for (uint32_t i = 0; i < len && i < len_of(n); i++)
        if (data[i] != byte_of(n, i)) {
            check(s, false, "a block has other bytes");
            return;
        }
}

/* ---- members ---- */

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

static void name_of(uint32_t m, char out[KV_MEMBER_NAME_CHARS])
{
    snprintf(out, KV_MEMBER_NAME_CHARS, "m%u", m);
}

static void tell_view(struct sim *s, struct member *m)
{
    char names[MEMBERS_MAX][KV_MEMBER_NAME_CHARS], addresses[MEMBERS_MAX][16], why[RPC_WHY_CHARS];
    struct kv_member_info infos[MEMBERS_MAX];
    struct kv_view view;
    uint32_t n = 0;
    if (!m->daemon || kv_daemon_view(m->daemon)->epoch >= s->epoch)
        return;
    for (uint32_t i = 0; i < s->count; i++) {
        if (!(s->in_view & 1u << i))
            continue;
        name_of(i, names[n]);
        snprintf(addresses[n], sizeof(addresses[n]), "h:%u", 7000 + i);
        infos[n] = (struct kv_member_info){names[n], addresses[n]};
        n++;
    }
    assert_int_equal(kv_view_make(s->epoch, infos, n, &view, why), 0);
    kv_daemon_set_view(m->daemon, &view);
}

static void member_start(struct sim *s, struct member *m)
{
    char name[KV_MEMBER_NAME_CHARS];
    name_of((uint32_t)(m - s->members), name);
    struct kv_daemon_config config = {
        .ranks = 1,
        .daemons = 1,
        .member = kv_member_id(name),
        .copies = s->copies,
        .store_bytes = 4096,
        .store_entries = 16,
        .blocks = {.arena = m->arena, .arena_bytes = ARENA, .entries = 64},
        .seed = below(s, UINT64_MAX),
        .clock = rpc_loopnet_clock(s->net),
        .memory = {.alloc = sim_alloc, .release = sim_release, .user = s},
    };
    assert_int_equal(kv_daemon_create(&config, &m->daemon), 0);
    tell_view(s, m);
}

static void ring(void *user)
{
    (void)user;
}

static void client_attach(struct member *m)
{
    struct kv_region_shape shape = {
        .depth = DEPTH, .value_max = 1024, .staging_bytes = DEPTH * SLOT_STAGING};
    size_t bytes = (kv_region_bytes(&shape) + 4095) / 4096 * 4096;
    m->map = aligned_alloc(4096, bytes);
    assert_non_null(m->map);
    memset(m->map, 0, bytes);
    kv_region_format(m->map, &shape);
    m->attached = kv_daemon_attach(m->daemon, m->map, &shape, ring, NULL, &m->seat) == 0;
    if (m->attached)
        kv_port_init(&m->port, m->map, &shape);
    else
        free(m->map); /* out of memory, on purpose: tries again later */
}

static void client_leave(struct sim *s, struct member *m, bool daemon_lives)
{
    if (!m->attached)
        return;
    if (daemon_lives)
        kv_daemon_detach(m->daemon, m->seat);
    for (uint32_t i = 0; i < DEPTH; i++) {
        s->open -= m->slots[i].at != IDLE;
        m->slots[i].at = IDLE;
    }
    m->attached = false;
    free(m->map);
}

static void member_stop(struct sim *s, struct member *m)
{
    if (!m->daemon)
        return;
    client_leave(s, m, true);
    s->stale_views += hw_counter_load(&kv_daemon_stats(m->daemon)->block_stale_views);
    kv_daemon_destroy(m->daemon);
    m->daemon = NULL;
}

static struct rpc_ep *ep_create(struct sim *s, struct rpc_transport *t, bool accepting)
{
    struct rpc_config config = {.accepting = accepting,
                                .window_bytes = below(s, 2) ? RPC_WINDOW_MIN : 0,
                                .heartbeat_ns = 200 * HW_MS,
                                .clock = rpc_loopnet_clock(s->net)};
    struct rpc_ep *ep;
    assert_int_equal(rpc_ep_create(t, &config, &ep), 0);
    return ep;
}

static void dial(struct sim *s, struct member *from)
{
    int slot = kv_daemon_dial_next(from->daemon);
    if (slot < 0)
        return;
    unsigned port = 0;
    struct rpc_transport *pair[2];
    assert_int_equal(sscanf(kv_daemon_slot_address(from->daemon, slot), "h:%u", &port), 1);
    struct member *to = &s->members[port - 7000];
    if (!to->daemon || (s->faults && below(s, 8) == 0) || rpc_loopnet_pair(s->net, pair)) {
        kv_daemon_dial_failed(from->daemon, slot);
        return;
    }
    kv_daemon_adopt(to->daemon, ep_create(s, pair[1], true), -1);
    kv_daemon_adopt(from->daemon, ep_create(s, pair[0], false), slot);
}

/* ---- requests ---- */

static void submit(struct sim *s, struct member *m, const struct kv_block_request *r,
                   const struct kv_block_key *keys, struct slot what)
{
    uint8_t body[1024];
    uint32_t slot;
    int len = kv_block_request_encode(r, keys, body, sizeof(body));
    assert_true(len > 0);
    struct kv_port_request request = {.op = KV_BLOCK,
                                      .value = body,
                                      .value_len = (uint32_t)len,
                                      .timeout_us =
                                          s->faults ? 1000 + (uint32_t)below(s, 400000) : 8000000};
    assert_int_equal(kv_port_submit(&m->port, &request, &slot), 0);
    if (kv_port_must_ring(&m->port))
        kv_seat_wake(m->daemon, m->seat);
    what.op = r->op;
    m->slots[slot] = what;
    s->open++;
}

static bool has_slot(const struct member *m)
{
    return m->attached && m->port.busy < DEPTH;
}

static void ask(struct sim *s, struct member *m)
{
    uint32_t n = (uint32_t)below(s, KEYS);
    struct kv_block_key keys[KEYS];
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = key_of(i);
    struct kv_block_request r = {.key_count = 1};
    if (!has_slot(m))
        return;
    switch (below(s, 8)) {
    case 0:
    case 1:
        r.op = KV_BLOCK_PUT_START;
        r.len = len_of(n);
        r.tenant = 1;
        submit(s, m, &r, &keys[n], (struct slot){.at = STARTING, .key = n});
        return;
    case 2:
        r.op = KV_BLOCK_DELETE;
        submit(s, m, &r, &keys[n], (struct slot){.at = ASKING, .key = n});
        return;
    case 3:
        r.op = below(s, 2) ? KV_BLOCK_EXISTS : KV_BLOCK_MATCH;
        r.key_count = KEYS;
        submit(s, m, &r, keys, (struct slot){.at = ASKING});
        return;
    default:
        r.op = KV_BLOCK_GET;
        submit(s, m, &r, &keys[n], (struct slot){.at = GETTING, .key = n});
    }
}

/* The staging area has a place for each slot; a commit takes another slot than its start had. */
static void commit(struct sim *s, struct member *m, uint32_t place, uint32_t key, uint64_t ticket)
{
    uint64_t at = (uint64_t)place * SLOT_STAGING;
    uint8_t *staged = m->port.region.staging + at;
    for (uint32_t i = 0; i < len_of(key); i++)
        staged[i] = byte_of(key, i);
    struct kv_block_request r = {
        .op = KV_BLOCK_PUT_COMMIT, .handle = ticket, .at = at, .len = len_of(key)};
    submit(s, m, &r, NULL, (struct slot){.at = COMMITTING, .key = key});
}

static void check_result(struct sim *s, const struct slot *slot, enum kv_result result)
{
    bool put = slot->at == STARTING || slot->at == COMMITTING;
    check(s, result != KV_REFUSED, "a request was refused");
    check(s, result != KV_TOO_LARGE, "TOO_LARGE");
    check(s, result != KV_EXISTS || slot->at == STARTING, "EXISTS where nothing was begun");
    check(s, result != KV_STALE || put, "STALE where nothing was put");
    check(s, result != KV_MISS || !put, "MISS for a put");
}

static void on_answer(struct sim *s, struct member *m, const struct kv_port_answer *a)
{
    struct slot slot = m->slots[a->slot];
    struct kv_block_granted g = {0};
    uint64_t ticket = 0;
    check(s, slot.at != IDLE, "an answer without a request");
    check_result(s, &slot, a->result);
    s->results[a->result]++;
    s->open--;
    m->slots[a->slot].at = IDLE;
    if (a->result == KV_OK && slot.at == GETTING) {
        assert_int_equal(kv_block_granted_decode(a->value, a->value_len, ARENA, &g), 0);
        check_bytes(s, slot.key, m->arena + g.offset, g.len);
    } else if (a->result == KV_OK && slot.at == STARTING) {
        memcpy(&ticket, a->value, sizeof(ticket));
    }
    uint32_t place = a->slot;
    kv_port_free(&m->port, a->slot);
    struct kv_block_request release = {.op = KV_BLOCK_RELEASE, .handle = g.handle};
    if (a->result == KV_OK && slot.at == GETTING)
        submit(s, m, &release, NULL, (struct slot){.at = RELEASING});
    else if (a->result == KV_OK && slot.at == STARTING && (!s->faults || below(s, 8)))
        commit(s, m, place, slot.key, ticket); /* or it never does */
}

static void poll_client(struct sim *s, struct member *m)
{
    struct kv_port_answer a;
    while (m->attached && kv_port_take(&m->port, &a) > 0)
        on_answer(s, m, &a);
}

/* ---- turning ---- */

static void turn(struct sim *s, struct member *m)
{
    if (!m->daemon || m->stalled_until_ns > rpc_loopnet_now(s->net))
        return;
    (void)kv_daemon_turn(m->daemon);
    dial(s, m);
}

static void pass_time(struct sim *s, uint64_t ns)
{
    uint64_t before = rpc_loopnet_now(s->net);
    (void)rpc_loopnet_step(s->net, before + ns);
    if (rpc_loopnet_now(s->net) == before)
        rpc_loopnet_spend(s->net, ns);
}

static void turn_all(struct sim *s, uint64_t ns)
{
    for (uint32_t i = 0; i < s->count; i++) {
        turn(s, &s->members[i]);
        poll_client(s, &s->members[i]);
    }
    pass_time(s, ns);
}

static void recover(struct sim *s)
{
    for (uint32_t i = 0; i < s->count && s->allocations_to_fail == 0; i++) {
        struct member *m = &s->members[i];
        if (!m->daemon)
            member_start(s, m);
        if (!m->attached)
            client_attach(m);
    }
}

static void fault(struct sim *s)
{
    struct member *m = &s->members[below(s, s->count)];
    switch (below(s, 10)) {
    case 0:
        member_stop(s, m);
        break;
    case 1:
        client_leave(s, m, m->daemon != NULL);
        break;
    case 2:
        m->stalled_until_ns = rpc_loopnet_now(s->net) + below(s, 400 * HW_MS);
        break;
    case 3:
        s->allocations_to_fail = (uint32_t)below(s, 3);
        break;
    case 4:
    case 5:
    case 6: /* somebody comes or goes; the others hear of it one by one */
        s->in_view ^= 1u << below(s, s->count);
        s->epoch++;
        break;
    default:
        tell_view(s, m);
    }
}

static void open_sim(struct sim *s, uint64_t seed, bool faults)
{
    hw_rng_seed(&s->rng, seed);
    s->faults = faults;
    s->count = 2 + (uint32_t)below(s, MEMBERS_MAX - 1);
    s->copies = 1 + (uint32_t)below(s, 2);
    s->in_view = (1u << s->count) - 1;
    s->epoch = 1;
    struct rpc_loopnet_options net = {.seed = seed,
                                      .delay_ns = below(s, 200 * HW_US),
                                      .piece_max = below(s, 3) ? 0 : 5000,
                                      .stall_percent = below(s, 3) ? 0 : (uint32_t)below(s, 30)};
    assert_int_equal(rpc_loopnet_create(&net, &s->net), 0);
    for (uint32_t i = 0; i < s->count; i++) {
        s->members[i].arena = aligned_alloc(64, ARENA);
        assert_non_null(s->members[i].arena);
    }
    recover(s);
}

static void close_sim(struct sim *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        member_stop(s, &s->members[i]);
        free(s->members[i].arena);
    }
    rpc_loopnet_destroy(s->net);
}

static bool all_connected(const struct sim *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        for (uint32_t k = 0; k < s->count; k++) {
            char name[KV_MEMBER_NAME_CHARS];
            name_of(k, name);
            int slot = kv_daemon_slot_of(s->members[i].daemon, kv_member_id(name));
            if (i != k && (slot < 0 || !kv_daemon_peer_up(s->members[i].daemon, (uint32_t)slot)))
                return false;
        }
    }
    return true;
}

static void heal(struct sim *s)
{
    s->allocations_to_fail = 0;
    s->faults = false;
    s->in_view = (1u << s->count) - 1;
    s->epoch++;
    recover(s);
    for (uint32_t i = 0; i < s->count; i++)
        tell_view(s, &s->members[i]);
    uint64_t until = rpc_loopnet_now(s->net) + 20 * HW_SEC;
    while ((s->open > 0 || !all_connected(s)) && rpc_loopnet_now(s->net) < until)
        turn_all(s, 100 * HW_US);
    check(s, s->open == 0, "a request has not ended");
    check(s, all_connected(s), "members do not find each other");
}

/* One request, waited for. */
static enum kv_result do_one(struct sim *s, struct member *m, enum kv_block_op op, uint32_t n)
{
    uint32_t before[KV_RESULT_COUNT];
    struct kv_block_key key = key_of(n);
    struct kv_block_request r = {.op = op, .key_count = 1, .len = len_of(n), .tenant = 1};
    enum step_of at = op == KV_BLOCK_GET ? GETTING : op == KV_BLOCK_PUT_START ? STARTING : ASKING;
    memcpy(before, s->results, sizeof(before));
    submit(s, m, &r, &key, (struct slot){.at = at, .key = n});
    for (int i = 0; i < 100000 && s->open > 0; i++)
        turn_all(s, 20 * HW_US);
    check(s, s->open == 0, "a request has not ended");
    for (int i = KV_RESULT_COUNT - 1; i > KV_OK; i--)
        if (s->results[i] != before[i])
            return (enum kv_result)i;
    return KV_OK;
}

/* All is well again: what is put is read by everybody, what is deleted by nobody. */
static void prove(struct sim *s)
{
    for (uint32_t n = 0; n < KEYS && !s->failure[0]; n++) {
        enum kv_result put = do_one(s, &s->members[n % s->count], KV_BLOCK_PUT_START, n);
        check(s, put == KV_OK || put == KV_EXISTS, "a put failed for no reason");
        for (uint32_t i = 0; i < s->count; i++)
            check(s, do_one(s, &s->members[i], KV_BLOCK_GET, n) == KV_OK, "a block is not found");
        check(s, do_one(s, &s->members[0], KV_BLOCK_DELETE, n) == KV_OK, "a delete failed");
        for (uint32_t i = 0; i < s->count; i++)
            check(s, do_one(s, &s->members[i], KV_BLOCK_GET, n) == KV_MISS, "a deleted block");
    }
    /* What was promised to those who are gone ends by its time. */
    uint64_t until = rpc_loopnet_now(s->net) + KV_LEASE_LASTS_NS + KV_PUT_LASTS_NS;
    while (rpc_loopnet_now(s->net) < until)
        turn_all(s, 20 * HW_MS);
    for (uint32_t i = 0; i < s->count; i++) {
        const struct kv_stats *stats = kv_daemon_stats(s->members[i].daemon);
        (void)do_one(s, &s->members[i], KV_BLOCK_GET, 0);
        for (int k = 0; k < 50; k++)
            turn_all(s, 100 * HW_US);
        check(s, hw_counter_load(&stats->block_leases) == 0, "a lease is held for nobody");
    }
}

static void swallow(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

/* How many errands began again. */
static uint64_t run(uint64_t seed, uint32_t sum[KV_RESULT_COUNT])
{
    struct sim s = {0};
    bool faults = seed % 2 == 1; /* so that a seed alone says all */
    hw_log_set_sink(swallow, NULL);
    open_sim(&s, seed, faults);
    uint64_t until = rpc_loopnet_now(s.net) + 20 * HW_SEC;
    while (!all_connected(&s) && rpc_loopnet_now(s.net) < until)
        turn_all(&s, 100 * HW_US);
    for (int i = 0; i < STEPS && !s.failure[0]; i++) {
        ask(&s, &s.members[below(&s, s.count)]);
        for (uint64_t k = below(&s, 6); k > 0; k--)
            turn(&s, &s.members[below(&s, s.count)]);
        poll_client(&s, &s.members[below(&s, s.count)]);
        pass_time(&s, below(&s, 300 * HW_US));
        if (faults && below(&s, 12) == 0)
            fault(&s);
        if (below(&s, 20) == 0)
            recover(&s);
    }
    heal(&s);
    for (int i = 0; i < KV_RESULT_COUNT; i++)
        sum[i] += s.results[i];
    if (!s.failure[0])
        prove(&s);
    close_sim(&s);
    hw_log_set_sink(NULL, NULL);
    if (s.failure[0])
        fail_msg("seed %llu: %s; again with: test-kv-blocks-sim %llu", (unsigned long long)seed,
                 s.failure, (unsigned long long)seed);
    return s.stale_views;
}

static void print(const uint32_t sum[KV_RESULT_COUNT])
{
    for (int i = 0; i < KV_RESULT_COUNT; i++)
        printf("%s %u%s", kv_result_name((enum kv_result)i), sum[i],
               i + 1 < KV_RESULT_COUNT ? ", " : "\n");
}

static void without_faults_nothing_is_lost(void **state)
{
    (void)state;
    uint32_t sum[KV_RESULT_COUNT] = {0};
    for (uint64_t i = 1; i <= CALM_SEEDS; i++)
        assert_int_equal(run(2 * i, sum), 0);
    print(sum);
    assert_int_equal(sum[KV_PEER_LOST] + sum[KV_TIMEOUT] + sum[KV_EXPIRED] + sum[KV_REFUSED], 0);
    assert_true(sum[KV_OK] > 0 && sum[KV_MISS] > 0 && sum[KV_EXISTS] > 0 && sum[KV_STALE] > 0);
}

static void with_faults_requests_end_and_bytes_are_right(void **state)
{
    (void)state;
    uint32_t sum[KV_RESULT_COUNT] = {0};
    uint64_t stale_views = 0;
    for (uint64_t i = 0; i < FAULTY_SEEDS; i++)
        stale_views += run(2 * i + 1, sum);
    print(sum);
    /* Trouble must be among them, or this shows less than it says. */
    assert_true(sum[KV_PEER_LOST] > 0 && sum[KV_TIMEOUT] > 0 && sum[KV_OK] > 0);
    assert_true(stale_views > FAULTY_SEEDS);
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
    if (argc > 1) {
        uint32_t sum[KV_RESULT_COUNT] = {0};
        (void)run(strtoull(argv[1], NULL, 10), sum);
        print(sum);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_faults_nothing_is_lost),
        cmocka_unit_test(every_failed_allocation_is_an_answer),
        cmocka_unit_test(with_faults_requests_end_and_bytes_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
