/* The client threads: closed loop with a fixed depth, or open loop at a fixed rate. */
#include "bench/kv/benchkv.h"

#include "base/rng.h"
#include "kv/client/client.h"
#include "kv/common/cpus.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILL_BATCH = 64 };

static const double zipf_theta = 0.99; /* as in YCSB */
static const uint64_t connect_ns = 20 * HW_SEC;
static const uint64_t open_loop_wait_ns = HW_MS; /* an idle client looks whether to stop */

/* A request in flight; found again by its answer's `user`. */
struct flight {
    uint64_t due_ns; /* open loop: when it should have been sent */
    bool remote;
    uint8_t *buffer;
};

struct runner {
    struct bkv_load *load;
    uint32_t id;
    pthread_t thread;
    bool started;
    struct kv_client *client;
    struct hw_rng rng;
    struct flight flights[KV_DEPTH_MAX];
    uint32_t idle[KV_DEPTH_MAX], idle_count;
    bool measuring;
    struct hw_hist latency, local, remote;
    double sum, local_sum, remote_sum;
    uint64_t results[KV_RESULT_COUNT], late;
    uint64_t from_ns, to_ns;
    int error;
    uint8_t *memory;
};

struct bkv_load {
    const struct bkv_world *world;
    struct bkv_point point;
    uint64_t keys;
    double *zipf;          /* cumulative shares; NULL: uniform */
    _Atomic uint32_t step; /* 0 warm-up, 1 measure, 2 stop */
    struct runner runners[];
};

/* ---- what to ask ---- */

static double *zipf_shares(uint64_t keys)
{
    double *shares = malloc(keys * sizeof(*shares)), sum = 0;
    for (uint64_t i = 0; shares && i < keys; i++)
        shares[i] = sum += 1 / pow((double)(i + 1), zipf_theta);
    for (uint64_t i = 0; shares && i < keys; i++)
        shares[i] /= sum;
    return shares;
}

static uint64_t pick_key(struct runner *r)
{
    const struct bkv_load *l = r->load;
    if (!l->zipf)
        return hw_rng_below(&r->rng, l->keys);
    double at = hw_rng_double(&r->rng);
    uint64_t low = 0, high = l->keys - 1;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (l->zipf[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* 0, or what kv_client_submit says. */
static int send_one(struct runner *r, uint64_t due_ns)
{
    const struct bkv_point *p = &r->load->point;
    assert(r->idle_count > 0);
    uint32_t at = r->idle[r->idle_count - 1];
    struct flight *f = &r->flights[at];
    struct kv_key key = kv_key_u64(pick_key(r));
    bool read = hw_rng_double(&r->rng) < p->read_ratio;
    struct kv_ask ask = {.op = read ? KV_GET : KV_PUT,
                         .key = key,
                         .value = f->buffer,
                         .value_len = p->value_size,
                         .buffer = f->buffer,
                         .buffer_len = p->value_size,
                         .user = f};
    int rc = kv_client_submit(r->client, &ask);
    if (rc)
        return rc;
    f->due_ns = due_ns;
    f->remote = kv_place_of(key, p->ranks, p->daemons).rank != r->load->world->rank;
    r->idle_count--;
    return 0;
}

/* ---- what came back ---- */

static void record(struct runner *r, const struct flight *f, const struct kv_answer *a,
                   uint64_t now)
{
    r->results[a->result]++;
    if (a->result != KV_OK && a->result != KV_MISS)
        return;
    /* Open loop: from the time it was due, so that waiting to be sent counts. */
    uint64_t ns = now - (f->due_ns ? f->due_ns : a->asked_ns);
    hw_hist_record(&r->latency, ns);
    hw_hist_record(f->remote ? &r->remote : &r->local, ns);
    r->sum += (double)ns;
    *(f->remote ? &r->remote_sum : &r->local_sum) += (double)ns;
}

static int receive(struct runner *r, uint64_t wait_ns)
{
    struct kv_answer answers[KV_DEPTH_MAX];
    int n = kv_client_wait(r->client, answers, KV_DEPTH_MAX, wait_ns);
    uint64_t now = hw_now_ns();
    for (int i = 0; i < n; i++) {
        struct flight *f = answers[i].user;
        if (r->measuring)
            record(r, f, &answers[i], now);
        r->idle[r->idle_count++] = (uint32_t)(f - r->flights);
    }
    return n;
}

static void follow_step(struct runner *r, uint32_t step)
{
    if (step == 1 && !r->measuring) {
        r->measuring = true;
        r->from_ns = hw_now_ns();
    }
}

static int closed_loop(struct runner *r)
{
    uint32_t step;
    while ((step = atomic_load_explicit(&r->load->step, memory_order_relaxed)) < 2) {
        follow_step(r, step);
        while (r->idle_count > 0) {
            int rc = send_one(r, 0);
            if (rc == -EAGAIN)
                break; /* the slots of one daemon are full */
            if (rc)
                return rc;
        }
        (void)receive(r, 100 * HW_MS);
    }
    return 0;
}

/* Requests fall due at fixed times, however late the answers are: nothing is left out because the
 * system was slow (coordinated omission). */
static int open_loop(struct runner *r)
{
    const struct bkv_point *p = &r->load->point;
    double gap_ns = 1e9 * p->clients / (double)p->rate;
    uint64_t start = hw_now_ns(), sent = 0;
    uint32_t step;
    while ((step = atomic_load_explicit(&r->load->step, memory_order_relaxed)) < 2) {
        follow_step(r, step);
        uint64_t now = hw_now_ns();
        uint64_t due = start + (uint64_t)((double)sent * gap_ns);
        while (due <= now && r->idle_count > 0) {
            int rc = send_one(r, due);
            if (rc == -EAGAIN)
                break;
            if (rc)
                return rc;
            r->late += r->measuring && now - due > (uint64_t)gap_ns;
            due = start + (uint64_t)((double)++sent * gap_ns);
        }
        uint64_t wait = due > now ? due - now : open_loop_wait_ns;
        if (receive(r, wait < open_loop_wait_ns ? wait : open_loop_wait_ns) == 0 &&
            kv_client_in_flight(r->client) == 0 && due > now) {
            struct timespec nap = {.tv_nsec = (long)(wait < open_loop_wait_ns ? wait : HW_MS)};
            nanosleep(&nap, NULL); /* no request is in flight: wait until the next one is due */
        }
    }
    return 0;
}

static void *runner_main(void *user)
{
    struct runner *r = user;
    const struct bkv_load *l = r->load;
    struct kv_cpus cpus;
    if (l->point.numa && kv_cpus_init(&cpus) == 0) {
        struct kv_cpus_share share = {.rank = l->world->rank_here,
                                      .ranks = l->world->ranks_here,
                                      .daemons = l->point.daemons};
        (void)kv_cpus_pin(kv_cpus_of_client(&cpus, &share, r->id)); /* a hint: runs anywhere else */
    }
    r->error = l->point.rate ? open_loop(r) : closed_loop(r);
    r->to_ns = hw_now_ns();
    r->measuring = false;
    for (int i = 0; i < 100 && kv_client_in_flight(r->client) > 0; i++)
        (void)receive(r, 100 * HW_MS);
    return NULL;
}

/* ---- coming and going ---- */

static int runner_open(struct runner *r, const char *socket, char why[RPC_WHY_CHARS])
{
    const struct bkv_point *p = &r->load->point;
    size_t size = p->value_size ? p->value_size : 1;
    struct kv_client_options options = {.socket = socket,
                                        .depth = p->depth,
                                        .value_max =
                                            p->value_size > KV_VALUE_DEFAULT ? p->value_size : 0,
                                        .wait = p->wait};
    hw_rng_seed(&r->rng, (p->seeded ? p->seed : r->load->world->rank * 1000) + r->id);
    r->memory = calloc(p->depth, size);
    if (!r->memory || hw_hist_init(&r->latency) || hw_hist_init(&r->local) ||
        hw_hist_init(&r->remote))
        return -ENOMEM;
    for (uint32_t i = 0; i < p->depth; i++) {
        r->flights[i].buffer = r->memory + i * size;
        r->idle[r->idle_count++] = i;
    }
    return kv_client_open(&options, &r->client, why);
}

static int wait_for_peers(struct runner *r)
{
    uint64_t until = hw_now_ns() + connect_ns;
    while (kv_client_peers_up(r->client) + 1 < r->load->point.ranks) {
        struct timespec pause = {.tv_nsec = (long)HW_MS};
        if (hw_now_ns() > until || kv_client_status(r->client))
            return -ETIMEDOUT;
        nanosleep(&pause, NULL);
    }
    return 0;
}

int bkv_load_open(const struct bkv_world *world, const struct bkv_point *point, const char *socket,
                  struct bkv_load **out, char why[RPC_WHY_CHARS])
{
    assert(point->clients <= BKV_CLIENTS_MAX && point->depth <= KV_DEPTH_MAX);
    struct bkv_load *l = calloc(1, sizeof(*l) + point->clients * sizeof(struct runner));
    if (!l)
        return -ENOMEM;
    l->world = world;
    l->point = *point;
    l->keys = (uint64_t)point->key_range * point->ranks;
    l->zipf = point->zipfian ? zipf_shares(l->keys) : NULL;
    snprintf(why, RPC_WHY_CHARS, "out of memory");
    int rc = point->zipfian && !l->zipf ? -ENOMEM : 0;
    for (uint32_t i = 0; i < point->clients && rc == 0; i++) {
        l->runners[i].load = l;
        l->runners[i].id = i;
        rc = runner_open(&l->runners[i], socket, why);
    }
    if (rc == 0) {
        rc = wait_for_peers(&l->runners[0]);
        if (rc)
            snprintf(why, RPC_WHY_CHARS, "the ranks do not reach each other");
    }
    if (rc) {
        bkv_load_close(l);
        return rc;
    }
    *out = l;
    return 0;
}

int bkv_load_fill(struct bkv_load *l)
{
    struct kv_ask asks[FILL_BATCH];
    struct kv_answer answers[FILL_BATCH];
    uint8_t *value = l->runners[0].memory;
    for (uint64_t at = 0; at < l->keys; at += FILL_BATCH) {
        uint32_t n = (uint32_t)(l->keys - at < FILL_BATCH ? l->keys - at : FILL_BATCH);
        for (uint32_t i = 0; i < n; i++)
            asks[i] = (struct kv_ask){.op = KV_PUT,
                                      .key = kv_key_u64(at + i),
                                      .value = value,
                                      .value_len = l->point.value_size};
        int rc = kv_client_batch(l->runners[0].client, asks, answers, n);
        for (uint32_t i = 0; i < n && rc == 0; i++)
            rc = answers[i].result == KV_OK ? 0 : -EIO;
        if (rc)
            return rc;
    }
    return 0;
}

int bkv_load_start(struct bkv_load *l)
{
    if (l->world->rank >= l->point.client_ranks)
        return 0;
    for (uint32_t i = 0; i < l->point.clients; i++) {
        int rc = -pthread_create(&l->runners[i].thread, NULL, runner_main, &l->runners[i]);
        if (rc)
            return rc;
        l->runners[i].started = true;
    }
    return 0;
}

void bkv_load_measure(struct bkv_load *l)
{
    atomic_store_explicit(&l->step, 1, memory_order_relaxed);
}

static int add_runner(struct bkv_result *into, const struct runner *r, double sums[3])
{
    int rc = hw_hist_merge(&into->latency, &r->latency);
    if (rc == 0)
        rc = hw_hist_merge(&into->local, &r->local);
    if (rc == 0)
        rc = hw_hist_merge(&into->remote, &r->remote);
    for (int i = 0; i < KV_RESULT_COUNT; i++)
        into->results[i] += r->results[i];
    into->late += r->late;
    sums[0] += r->sum;
    sums[1] += r->local_sum;
    sums[2] += r->remote_sum;
    if (r->to_ns - r->from_ns > into->elapsed_ns)
        into->elapsed_ns = r->to_ns - r->from_ns;
    return rc ? rc : r->error;
}

static double mean_of(double sum, uint64_t count)
{
    return count ? sum / (double)count : 0;
}

int bkv_load_stop(struct bkv_load *l, struct bkv_result *into)
{
    int rc = 0;
    double sums[3] = {0};
    atomic_store_explicit(&l->step, 2, memory_order_relaxed);
    for (uint32_t i = 0; i < l->point.clients; i++) {
        struct runner *r = &l->runners[i];
        if (!r->started)
            continue;
        pthread_join(r->thread, NULL);
        r->started = false;
        int one = add_runner(into, r, sums);
        rc = rc ? rc : one;
    }
    into->latency_mean = mean_of(sums[0], into->latency.count);
    into->local_mean = mean_of(sums[1], into->local.count);
    into->remote_mean = mean_of(sums[2], into->remote.count);
    return rc;
}

void bkv_load_close(struct bkv_load *l)
{
    if (!l)
        return;
    for (uint32_t i = 0; i < l->point.clients; i++) {
        struct runner *r = &l->runners[i];
        kv_client_close(r->client);
        hw_hist_fini(&r->latency);
        hw_hist_fini(&r->local);
        hw_hist_fini(&r->remote);
        free(r->memory);
    }
    free(l->zipf);
    free(l);
}
