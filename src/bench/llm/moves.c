#include "bench/llm/moves.h"

#include "base/clock.h"
#include "base/order.h"
#include "base/rng.h"
#include "bench/llm/rig.h"
#include "bench/llm/store_line.h"
#include "bench/rpc/link.h"
#include "kv/daemon/host.h"
#include "llm/engine/backend.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 4 }; /* that a worker has room for: one at a time, and those that it keeps */

/* ---- workers and their store ---- */

enum { FIRST, SECOND, WORKERS };

struct moves {
    const struct bench_moves *o;
    struct hw_bench *bench;
    struct bench_dir dir;
    char socket[KV_SOCKET_CHARS];
    struct kv_host *host;
    pthread_t thread;
    bool runs;
    struct llm_shadow_ops ops;
    struct bench_rig rigs[WORKERS];
    struct llm_remote *remotes[WORKERS];
    uint32_t layers;
    uint32_t *prompt;
    struct hw_rng rng;
    double plain_ms, cold_ms; /* an exchange that finds all layers, a prompt that is computed */
};

/* Of one sequence as long as they get. */
static uint64_t kv_bytes(const struct moves *m)
{
    const struct llm_config *c = llm_file_config(m->o->file);
    uint64_t rows = m->o->prefill + m->o->decode + UINT64_C(2) * LLM_KV_POSITIONS;
    return rows * c->layers * c->kv_heads * c->head_dim * 2 * sizeof(uint16_t);
}

static void *run_host(void *user)
{
    kv_host_run(user);
    return NULL;
}

/* Room for every sequence of the run, so that the store evicts none. */
static int start_store(struct moves *m, char *why)
{
    char cause[RPC_WHY_CHARS] = "";
    uint64_t sequences = 4 + 3 * UINT64_C(1) * m->o->repeats;
    struct kv_host_options host = {.ranks = 1,
                                   .daemons = 1,
                                   .socket = m->socket,
                                   .store_bytes = 4096,
                                   .store_entries = 16,
                                   .arena_bytes = sequences * kv_bytes(m) + (1 << 20),
                                   .blocks = {.entries = 1 << 16}};
    snprintf(m->socket, sizeof(m->socket), "%s/kvd", m->dir.path);
    int rc = kv_host_create(&host, &m->host, cause);
    if (rc) {
        snprintf(why, LLM_WHY_CHARS, "%s", cause);
        return rc;
    }
    rc = -pthread_create(&m->thread, NULL, run_host, m->host);
    m->runs = rc == 0;
    return rc;
}

static int start_workers(struct moves *m, char *why)
{
    struct llm_worker_options worker = {.file = m->o->file,
                                        .engine = m->o->engine,
                                        .shadow_ops = &m->ops,
                                        .shadow = {.socket = m->socket, .timeout_ns = 60 * HW_SEC},
                                        .share_prefixes = true};
    worker.engine.context = m->o->prefill + m->o->decode;
    worker.engine.kv_bytes = SEQUENCES * kv_bytes(m);
    int rc = 0;
    for (int i = 0; i < WORKERS && rc == 0; i++) {
        rc = bench_rig_start(&worker, 1, &m->rigs[i], why);
        if (rc == 0)
            rc = bench_rig_connect(&m->rigs[i], &m->remotes[i], why);
    }
    return rc;
}

static void stop(struct moves *m)
{
    for (int i = 0; i < WORKERS; i++) {
        llm_remote_close(m->remotes[i]);
        bench_rig_stop(&m->rigs[i]);
    }
    if (m->runs) {
        kv_host_stop(m->host);
        pthread_join(m->thread, NULL);
    }
    kv_host_destroy(m->host);
    bench_dir_remove(&m->dir);
    free(m->prompt);
}

/* ---- a sequence ---- */

struct sequence {
    struct llm_remote *remote;
    uint8_t handle[LLM_HANDLE_BYTES];
    uint64_t id;
};

/* Tokens that no prompt had before, so nothing of it is in the store. */
static void new_prompt(struct moves *m)
{
    for (uint32_t i = 0; i < m->o->prefill; i++)
        m->prompt[i] = (uint32_t)hw_rng_below(&m->rng, llm_file_config(m->o->file)->vocab);
}

static double ms_since(uint64_t began)
{
    return (double)(hw_now_ns() - began) / 1e6;
}

static int begin(struct moves *m, struct sequence *s, double *ms, char *why)
{
    struct llm_request prefill = {.method = LLM_METHOD_PREFILL_SEMANTIC,
                                  .wish = {.kind = LLM_WISH_TOKENS},
                                  .tokens = m->prompt,
                                  .token_count = m->o->prefill};
    struct wire_dec d;
    *s = (struct sequence){.remote = m->remotes[FIRST]};
    uint64_t began = hw_now_ns();
    int rc = llm_remote_call(s->remote, &prefill, LLM_TOKENS, &d, why);
    if (rc)
        return rc;
    *ms = ms_since(began);
    wire_get_copy(&d, s->handle, sizeof s->handle);
    s->id = wire_get_varint(&d);
    return wire_dec_error(&d);
}

static int decode(const struct sequence *s, double *ms, char *why)
{
    struct llm_request one = {.method = LLM_METHOD_DECODE_SEMANTIC, .id = s->id, .value = 1};
    struct wire_dec d;
    uint64_t began = hw_now_ns();
    int rc = llm_remote_call(s->remote, &one, LLM_TOKENS, &d, why);
    *ms = ms_since(began);
    return rc;
}

static int release(const struct sequence *s, char *why)
{
    struct llm_request request = {.method = LLM_METHOD_RELEASE};
    struct wire_dec d;
    memcpy(request.handle, s->handle, sizeof request.handle);
    return llm_remote_call(s->remote, &request, LLM_CONTROL, &d, why);
}

static int evict_last(struct moves *m, const struct sequence *s, uint32_t count, char *why)
{
    struct llm_layers layers = {0};
    uint32_t missing;
    for (uint32_t l = m->layers - count; l < m->layers; l++)
        llm_layers_add(&layers, l);
    return llm_remote_evict(s->remote, s->handle, &layers, &missing, why);
}

/* ---- figures ---- */

struct figures {
    double ms[BENCH_MOVES_REPEATS_MAX];
    uint64_t bytes,
        computed; /* that came from the store, rows that were computed again; together */
};

static int count(struct llm_remote *remote, int sign, struct figures *f, char *why)
{
    uint64_t values[LLM_METRICS];
    int rc = llm_remote_metrics(remote, values, why);
    if (rc)
        return rc;
    f->bytes += (uint64_t)sign * values[LLM_METRIC_KV_PLAIN_BYTES];
    f->computed += (uint64_t)sign * values[LLM_METRIC_KV_COMPUTED];
    return 0;
}

static void report(struct moves *m, const char *what, struct figures *f, double base)
{
    char name[96];
    snprintf(name, sizeof name, "%s: %s", m->o->link, what);
    hw_bench_row(m->bench, name, hw_median(f->ms, m->o->repeats), "ms", base);
    hw_bench_field(m->bench, "fetched_mb", "%.2f", (double)f->bytes / m->o->repeats / 1e6);
    hw_bench_field(m->bench, "computed_rows", "%llu",
                   (unsigned long long)(f->computed / m->o->repeats));
}

/* ---- what is measured ---- */

/* The time of a token after so many layers were evicted, for each repetition. */
static int recover(struct moves *m, const struct sequence *s, uint32_t layers, const char *what,
                   char *why)
{
    struct figures f = {.bytes = 0};
    double warm;
    int rc = evict_last(m, s, layers, why); /* what is stored once is not sent again */
    if (rc == 0)
        rc = decode(s, &warm, why);
    if (rc == 0)
        rc = count(s->remote, -1, &f, why);
    for (uint32_t i = 0; i < m->o->repeats && rc == 0; i++) {
        rc = evict_last(m, s, layers, why);
        if (rc == 0)
            rc = decode(s, &f.ms[i], why);
    }
    if (rc == 0)
        rc = count(s->remote, 1, &f, why);
    if (rc == 0)
        report(m, what, &f, m->plain_ms);
    return rc;
}

static int begin_with(struct moves *m, enum llm_recovery recovery, struct sequence *s, char *why)
{
    double ms;
    struct llm_eviction_policy policy = {.recovery = recovery, .pack = LLM_PACK_NEVER};
    int rc = llm_remote_set_recovery(m->remotes[FIRST], policy, why);
    new_prompt(m);
    return rc ? rc : begin(m, s, &ms, why);
}

static int plain_steps(struct moves *m, const struct sequence *s, char *why)
{
    struct figures f = {.bytes = 0};
    int rc = decode(s, &f.ms[0], why);
    for (uint32_t i = 0; i < m->o->repeats && rc == 0; i++)
        rc = decode(s, &f.ms[i], why);
    if (rc)
        return rc;
    m->plain_ms = hw_median(f.ms, m->o->repeats);
    report(m, "a token, all layers there", &f, NAN);
    return 0;
}

static int recoveries(struct moves *m, char *why)
{
    const uint32_t parts[] = {m->layers / 4, m->layers / 2, m->layers};
    struct sequence s;
    char what[64];
    int rc = begin_with(m, LLM_RECOVER_DELTA, &s, why);
    if (rc == 0)
        rc = plain_steps(m, &s, why);
    for (size_t i = 0; i < ARRAY_LEN(parts) && rc == 0; i++) {
        snprintf(what, sizeof what, "a token, %u of %u layers missing", parts[i], m->layers);
        rc = parts[i] ? recover(m, &s, parts[i], what, why) : 0;
    }
    if (rc == 0)
        rc = release(&s, why);
    if (rc == 0)
        rc = begin_with(m, LLM_RECOVER_ALL, &s, why);
    if (rc == 0)
        rc = recover(m, &s, 1, "a token, whole cache reloaded", why);
    if (rc == 0)
        rc = release(&s, why);
    if (rc == 0)
        rc = begin_with(m, LLM_RECOVER_COMPUTE, &s, why);
    if (rc == 0)
        rc = recover(m, &s, 1, "a token, all computed again", why);
    return rc ? rc : release(&s, why);
}

/* The same prompts twice: the second time their rows are in the store. */
static int prefixes(struct moves *m, char *why)
{
    struct figures cold = {.bytes = 0}, warm = {.bytes = 0};
    struct sequence s;
    int rc = llm_remote_set_recovery(
        m->remotes[FIRST], (struct llm_eviction_policy){LLM_RECOVER_DELTA, LLM_PACK_NEVER}, why);
    for (uint32_t i = 0; i < m->o->repeats && rc == 0; i++) {
        new_prompt(m);
        rc = begin(m, &s, &cold.ms[i], why);
        if (rc == 0)
            rc = evict_last(m, &s, m->layers, why); /* waits until the store has all of it */
        if (rc == 0)
            rc = release(&s, why);
        if (rc == 0)
            rc = count(m->remotes[FIRST], -1, &warm, why);
        if (rc == 0)
            rc = begin(m, &s, &warm.ms[i], why);
        if (rc == 0)
            rc = count(m->remotes[FIRST], 1, &warm, why);
        if (rc == 0)
            rc = release(&s, why);
    }
    if (rc)
        return rc;
    m->cold_ms = hw_median(cold.ms, m->o->repeats);
    report(m, "first token of a new prompt", &cold, NAN);
    report(m, "first token of a known prompt", &warm, m->cold_ms);
    return 0;
}

/* A sequence that begins at one worker and goes on at the other. */
static int migrate(struct moves *m, struct figures *f, double *ms, char *why)
{
    struct sequence s;
    uint32_t length;
    double unused;
    int rc = begin_with(m, LLM_RECOVER_DELTA, &s, why);
    if (rc == 0)
        rc = decode(&s, &unused, why);
    if (rc == 0)
        rc = evict_last(m, &s, m->layers, why);
    if (rc == 0)
        rc = count(m->remotes[SECOND], -1, f, why);
    struct sequence there = s;
    there.remote = m->remotes[SECOND];
    uint64_t began = hw_now_ns();
    if (rc == 0)
        rc = llm_remote_resume(there.remote, s.handle, &there.id, &length, why);
    if (rc == 0)
        rc = decode(&there, &unused, why);
    *ms = ms_since(began);
    if (rc == 0)
        rc = count(m->remotes[SECOND], 1, f, why);
    if (rc == 0)
        rc = release(&s, why);
    return rc ? rc : release(&there, why);
}

static int migrations(struct moves *m, char *why)
{
    struct figures f = {.bytes = 0};
    int rc = 0;
    for (uint32_t i = 0; i < m->o->repeats && rc == 0; i++)
        rc = migrate(m, &f, &f.ms[i], why);
    if (rc == 0)
        report(m, "next token at another worker", &f, m->cold_ms);
    return rc;
}

static int measure(struct moves *m, char *why)
{
    int rc = start_store(m, why);
    if (rc == 0)
        rc = start_workers(m, why);
    if (rc == 0)
        rc = recoveries(m, why);
    if (rc == 0)
        rc = prefixes(m, why);
    return rc ? rc : migrations(m, why);
}

int bench_moves_run(const struct bench_moves *options, struct hw_bench *bench, char *why)
{
    struct moves m = {
        .o = options,
        .bench = bench,
        .ops = store_line_over(&llm_shadow_kvd, (struct bench_line){.bits_s = options->bits_s}),
        .layers = llm_file_config(options->file)->layers,
        .prompt = malloc(options->prefill * sizeof *m.prompt)};
    char cause[RPC_WHY_CHARS];
    assert(options->repeats >= 1 && options->repeats <= BENCH_MOVES_REPEATS_MAX);
    why[0] = '\0';
    hw_rng_seed(&m.rng, 1);
    int rc = m.prompt ? bench_dir_make(&m.dir, cause) : -ENOMEM;
    if (rc) {
        free(m.prompt);
        snprintf(why, LLM_WHY_CHARS, "%s", rc == -ENOMEM ? "out of memory" : cause);
        return rc;
    }
    rc = measure(&m, why);
    stop(&m);
    if (rc && !why[0])
        snprintf(why, LLM_WHY_CHARS, "%s", strerror(-rc));
    return rc;
}
