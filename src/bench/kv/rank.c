/* One rank's part of a point: daemons, clients, warm-up, measurement, figures. */
#include "bench/kv/benchkv.h"

#include "kv/common/cpus.h"
#include "kv/daemon/host.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES_SPARE = 4 }; /* times the keys that are used */

struct unit {
    struct kv_host *host;
    pthread_t thread;
    bool started;
    int cpu;
    struct kv_probe probe;
    uint64_t before[KV_STATS_COUNT];
};

struct rank_run {
    const struct bkv_world *world;
    const struct bkv_point *point;
    char socket[KV_SOCKET_CHARS];
    struct unit units[KV_DAEMONS_MAX];
    uint32_t unit_count;
    struct bkv_load *load;
};

static void nap(uint64_t ns)
{
    struct timespec ts = hw_timespec(ns);
    while (nanosleep(&ts, &ts) && errno == EINTR)
        ;
}

static void *unit_main(void *user)
{
    struct unit *u = user;
    if (u->cpu >= 0)
        (void)kv_cpus_pin((uint32_t)u->cpu); /* a hint: it runs anywhere else */
    kv_host_run(u->host);
    return NULL;
}

static int core_of(const struct rank_run *r, uint32_t index)
{
    struct kv_cpus cpus;
    struct kv_cpus_share share = {
        .rank = r->world->rank_here, .ranks = r->world->ranks_here, .daemons = r->point->daemons};
    if (!r->point->numa || kv_cpus_init(&cpus))
        return -1;
    return (int)kv_cpus_of_daemon(&cpus, &share, index);
}

static int unit_start(struct rank_run *r, uint32_t index, char why[RPC_WHY_CHARS])
{
    const struct bkv_point *p = r->point;
    struct unit *u = &r->units[index];
    int rc = kv_probe_init(&u->probe, BKV_PROBE_EVERY);
    if (rc)
        return rc;
    r->unit_count++;
    uint64_t keys = (uint64_t)p->key_range * p->ranks;
    struct kv_host_options options = {
        .rank = r->world->rank,
        .ranks = p->ranks,
        .index = index,
        .daemons = p->daemons,
        .socket = r->socket,
        .addrs = r->world->addrs,
        .store_bytes = ENTRIES_SPARE * keys * (p->value_size + 1),
        .store_entries = (uint32_t)(ENTRIES_SPARE * keys),
        .max_clients = p->clients + 1,
        .flush = p->flush,
        .wait = p->wait,
        .probe = &u->probe,
    };
    rc = kv_host_create(&options, &u->host, why);
    if (rc)
        return rc;
    u->cpu = core_of(r, index);
    rc = -pthread_create(&u->thread, NULL, unit_main, u);
    u->started = rc == 0;
    return rc;
}

static void units_stop(struct rank_run *r)
{
    for (uint32_t i = 0; i < r->unit_count; i++) {
        struct unit *u = &r->units[i];
        if (u->started) {
            kv_host_stop(u->host);
            pthread_join(u->thread, NULL);
        }
        kv_host_destroy(u->host);
        kv_probe_fini(&u->probe);
    }
}

static void read_stats(const struct unit *u, uint64_t out[KV_STATS_COUNT])
{
    const _Atomic uint64_t *values = (const _Atomic uint64_t *)kv_host_stats(u->host);
    for (size_t i = 0; i < KV_STATS_COUNT; i++)
        out[i] = hw_counter_load(&values[i]);
}

static void probes_want(struct rank_run *r, bool on)
{
    for (uint32_t i = 0; i < r->unit_count; i++) {
        struct unit *u = &r->units[i];
        if (on)
            read_stats(u, u->before);
        kv_probe_want(&u->probe, on);
    }
}

/* A daemon answers at its next turn; idle ones turn a few times a second. */
static void await_probes(struct rank_run *r)
{
    for (uint32_t i = 0; i < r->unit_count; i++)
        while (!kv_probe_idle(&r->units[i].probe))
            nap(HW_MS);
}

static int add_unit(struct bkv_result *into, const struct unit *u, double *rtt_sum)
{
    uint64_t after[KV_STATS_COUNT];
    const struct kv_probe *p = &u->probe;
    read_stats(u, after);
    for (size_t i = 0; i < KV_STATS_COUNT; i++)
        into->stats[i] += after[i] - u->before[i];
    int rc = hw_hist_merge(&into->rtt, &p->rtt);
    if (rc == 0)
        rc = hw_hist_merge(&into->loop, &p->loop);
    for (int i = 0; i < KV_PHASES && rc == 0; i++)
        rc = hw_hist_merge(&into->phase[i], &p->phase[i]);
    for (int i = 0; i < KV_STAGES && rc == 0; i++)
        rc = hw_hist_merge(&into->stage[i], &p->stage[i]);
    into->useful_ns += p->useful_ns;
    into->empty_ns += p->empty_ns;
    into->in_flight_ns += p->in_flight_ns;
    if (p->took_ns > into->took_ns)
        into->took_ns = p->took_ns;
    *rtt_sum += hw_hist_mean(&p->rtt) * (double)p->rtt.count;
    return rc;
}

static int add_units(struct rank_run *r, struct bkv_result *into)
{
    double rtt_sum = 0;
    for (uint32_t i = 0; i < r->unit_count; i++) {
        int rc = add_unit(into, &r->units[i], &rtt_sum);
        if (rc)
            return rc;
    }
    into->rtt_mean = into->rtt.count ? rtt_sum / (double)into->rtt.count : 0;
    uint64_t below = 0;
    for (uint64_t i = 0; i < KV_RTT_LINES; i++) {
        uint64_t next = hw_hist_count_below(&into->rtt, (i + 1) * 1000);
        into->rtt_us[i] = next - below;
        below = next;
    }
    return 0;
}

/* Everybody measures at the same time. */
static int measure(struct rank_run *r, struct bkv_result *out)
{
    int rc = r->world->rank == 0 ? bkv_load_fill(r->load) : 0;
    if (rc == 0)
        rc = bkv_meet_wait(r->world->meet);
    if (rc == 0)
        rc = bkv_load_start(r->load);
    if (rc == 0) {
        nap(r->point->warmup_ns);
        rc = bkv_meet_wait(r->world->meet);
    }
    if (rc == 0) {
        probes_want(r, true);
        bkv_load_measure(r->load);
        nap(r->point->duration_ns);
        probes_want(r, false);
        await_probes(r);
    }
    int stopped = bkv_load_stop(r->load, out);
    rc = rc ? rc : stopped;
    return rc ? rc : add_units(r, out);
}

static int take_part(struct rank_run *r, struct bkv_result *out, char why[RPC_WHY_CHARS])
{
    int rc = 0;
    for (uint32_t i = 0; i < r->point->daemons && rc == 0; i++)
        rc = unit_start(r, i, why);
    if (rc == 0)
        rc = bkv_load_open(r->world, r->point, r->socket, &r->load, why);
    if (rc == 0) {
        rc = measure(r, out);
        if (rc)
            snprintf(why, RPC_WHY_CHARS, "rank %u: %s", r->world->rank, strerror(-rc));
    }
    /* Daemons stay until every rank has its figures: else the slower ones would lose a peer. */
    int met = rc ? 0 : bkv_meet_wait(r->world->meet);
    bkv_load_close(r->load);
    units_stop(r);
    return rc ? rc : met;
}

int bkv_rank_run(const struct bkv_world *world, const struct bkv_point *point,
                 struct bkv_result *out, char why[RPC_WHY_CHARS])
{
    struct rank_run *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->world = world;
    r->point = point;
    snprintf(r->socket, sizeof(r->socket), "%s/kvd%u", world->dir, world->rank);
    snprintf(why, RPC_WHY_CHARS, "out of memory");
    int rc = 0;
    if (world->rank < point->ranks) {
        rc = take_part(r, out, why);
    } else { /* watches: as many meetings as the others have */
        for (int i = 0; i < 3 && rc == 0; i++)
            rc = bkv_meet_wait(world->meet);
    }
    free(r);
    return rc;
}
