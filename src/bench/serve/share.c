#include "bench/serve/share.h"

#include "base/clock.h"
#include "base/order.h"
#include "base/report/bench.h"
#include "bench/serve/child.h"
#include "bench/serve/load.h"
#include "command/measure.h"
#include "llm/engine/backend.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_CHARS = 8,
    DISTINCT = 2 /* tokens before the prompt, so that no two requests share a prefix */
};

/* Fixed parts are minimums that leave nothing to share: all else is the same program. */
enum way { WAY_FIXED, WAY_SHARED, WAYS };
enum load { LOAD_ALTERNATING, LOAD_EVEN, LOADS };

static const char *const load_names[LOADS] = {"alternating", "even"};

static const struct hw_bench_target targets[] = {
    {"in_time.alternating", false, 1.0},
    {"in_time.even", false, 0.95},
};

struct server {
    struct bench_child child;
    struct llm_connection *conn;
};

/* What one server did under one load, all repetitions together. */
struct tally {
    double *first_ms;
    size_t count;
    uint64_t in_time, ns;
};

struct share_run {
    const struct bench_share *c;
    struct server servers[WAYS];
    struct tally tallies[LOADS][WAYS];
    char names[BENCH_SHARE_MODELS_MAX][NAME_CHARS];
    uint64_t asked; /* requests so far: numbers them */
};

/* ---- servers ---- */

static uint64_t kv_bytes(const struct bench_share *c)
{
    const struct llm_config *m = llm_file_config(c->file);
    uint64_t positions = DISTINCT + c->prompt_count + c->tokens + LLM_KV_POSITIONS;
    positions -= positions % LLM_KV_POSITIONS;
    uint64_t one = 4 * positions * m->layers * m->kv_heads * m->head_dim;
    uint64_t pages = c->clients * (uint64_t)m->layers * LLM_KV_POSITIONS * m->kv_heads *
                     m->head_dim * 4; /* the next page of each, which may_begin sets aside */
    return c->kv_bytes ? c->kv_bytes : c->clients * one + pages;
}

static enum cmd_exit start(struct share_run *r, enum way way)
{
    const struct bench_share *c = r->c;
    struct server *s = &r->servers[way];
    char listen[80], threads[24], kv[24], min[24], models[BENCH_SHARE_MODELS_MAX][512];
    char why[LLM_WHY_CHARS];
    const char *argv[16 + 2 * BENCH_SHARE_MODELS_MAX] = {"hawser", "serve", "--no-devices"};
    size_t n = 3;
    uint64_t bytes = kv_bytes(c);
    snprintf(listen, sizeof listen, "unix:%.60s/%d", c->dir, (int)way);
    snprintf(threads, sizeof threads, "%llu", (unsigned long long)c->threads);
    snprintf(kv, sizeof kv, "%llu", (unsigned long long)bytes);
    snprintf(min, sizeof min, "%llu", (unsigned long long)(bytes / c->models));
    for (uint32_t i = 0; i < c->models; i++) {
        snprintf(r->names[i], NAME_CHARS, "m%u", i);
        snprintf(models[i], sizeof models[i], "%s=%.490s", r->names[i], c->model);
        argv[n++] = "--model";
        argv[n++] = models[i];
    }
    const char *const rest[] = {"--listen",    listen, "--threads",       threads,
                                "--kv-memory", kv,     "--max-sequences", "1024"};
    for (size_t i = 0; i < ARRAY_LEN(rest); i++)
        argv[n++] = rest[i];
    if (way == WAY_FIXED) {
        argv[n++] = "--kv-min";
        argv[n++] = min;
    }
    if (bench_child_start(&s->child, argv, "listening on "))
        return cmd_fail(CMD_FAILED, "bench-serve: hawser serve did not start");
    struct rpc_addr addr;
    struct rpc_net_options net = {0};
    if (rpc_addr_parse(listen, &addr, why) || llm_connection_open(&addr, &net, NULL, &s->conn, why))
        return cmd_fail(CMD_FAILED, "bench-serve: %s", why);
    return CMD_DONE;
}

static void stop(struct server *s)
{
    if (s->conn)
        llm_connection_close(s->conn);
    bench_child_stop(&s->child);
}

/* ---- requests ---- */

struct request {
    struct llm_connection *conn;
    struct llm_generate generate;
    uint32_t *tokens;
    pthread_t thread;
    int status;
    struct bench_load_figures figures;
    char why[BENCH_LOAD_WHY];
};

static void *request_main(void *user)
{
    struct request *q = user;
    q->status = bench_load_engine(q->conn, &q->generate, &q->figures, q->why);
    return NULL;
}

static int prepare(struct share_run *r, struct request *q, enum way way, uint32_t model)
{
    const struct bench_share *c = r->c;
    uint32_t vocab = llm_file_config(c->file)->vocab, count = DISTINCT + c->prompt_count;
    uint64_t number = r->asked++;
    *q =
        (struct request){.conn = r->servers[way].conn, .tokens = malloc(count * sizeof *q->tokens)};
    if (!q->tokens)
        return -1;
    q->tokens[0] = (uint32_t)(number % vocab);
    q->tokens[1] = (uint32_t)(number / vocab % vocab);
    memcpy(q->tokens + DISTINCT, c->prompt, c->prompt_count * sizeof *q->tokens);
    q->generate = (struct llm_generate){
        .model = r->names[model], .tokens = q->tokens, .token_count = count, .most = c->tokens};
    return 0;
}

static void note(struct share_run *r, struct tally *t, const struct request *q)
{
    t->first_ms[t->count++] = (double)q->figures.first_ns / HW_MS;
    t->in_time += q->figures.first_ns <= r->c->deadline_ns;
}

/* A request of each client at once: to one model, or to all in turn (model == models). */
static enum cmd_exit burst(struct share_run *r, enum way way, uint32_t model, struct tally *t)
{
    const struct bench_share *c = r->c;
    struct request *all = calloc(c->clients, sizeof *all);
    uint32_t ready = 0, started = 0;
    enum cmd_exit code = all ? CMD_DONE : cmd_fail(CMD_FAILED, "out of memory");
    while (code == CMD_DONE && ready < c->clients) {
        uint32_t to = model < c->models ? model : ready % c->models;
        if (prepare(r, &all[ready++], way, to))
            code = cmd_fail(CMD_FAILED, "out of memory");
    }
    uint64_t begin = hw_now_ns();
    for (; code == CMD_DONE && started < c->clients; started++) {
        if (pthread_create(&all[started].thread, NULL, request_main, &all[started])) {
            code = cmd_fail(CMD_FAILED, "bench-serve: no thread for a client");
            break;
        }
    }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(all[i].thread, NULL);
    if (t)
        t->ns += hw_now_ns() - begin;
    for (uint32_t i = 0; i < started && code == CMD_DONE; i++) {
        if (all[i].status)
            code = cmd_fail(CMD_FAILED, "bench-serve: %s", all[i].why);
        else if (t)
            note(r, t, &all[i]);
    }
    for (uint32_t i = 0; i < ready; i++)
        free(all[i].tokens);
    free(all);
    return code;
}

static enum cmd_exit play(struct share_run *r, enum load load, enum way way, struct tally *t)
{
    const struct bench_share *c = r->c;
    enum cmd_exit code = CMD_DONE;
    for (uint32_t i = 0; i < c->models && code == CMD_DONE; i++)
        code = burst(r, way, load == LOAD_ALTERNATING ? i : c->models, t);
    return code;
}

/* ---- rows ---- */

static void add_rows(struct share_run *r, struct hw_bench *bench, enum load load)
{
    char name[64];
    struct tally *tallies = r->tallies[load];
    double rates[WAYS], median[WAYS], p99[WAYS];
    for (int way = 0; way < WAYS; way++) {
        struct tally *t = &tallies[way];
        rates[way] = (double)t->in_time * HW_SEC / (double)t->ns;
        median[way] = hw_median(t->first_ms, t->count); /* sorts */
        p99[way] = hw_percentile(t->first_ms, t->count, 99);
    }
    snprintf(name, sizeof name, "in_time.%s", load_names[load]);
    hw_bench_row(bench, name, rates[WAY_SHARED], "req/s", rates[WAY_FIXED]);
    hw_bench_field(bench, "in_time", "%llu of %zu", (unsigned long long)tallies[WAY_SHARED].in_time,
                   tallies[WAY_SHARED].count);
    hw_bench_field(bench, "fixed_in_time", "%llu of %zu",
                   (unsigned long long)tallies[WAY_FIXED].in_time, tallies[WAY_FIXED].count);
    hw_bench_judge(bench, targets, ARRAY_LEN(targets));
    snprintf(name, sizeof name, "first.median.%s", load_names[load]);
    hw_bench_row(bench, name, median[WAY_SHARED], "ms", median[WAY_FIXED]);
    snprintf(name, sizeof name, "first.p99.%s", load_names[load]);
    hw_bench_row(bench, name, p99[WAY_SHARED], "ms", p99[WAY_FIXED]);
}

/* The first repetition warms up; then servers and loads are interleaved. */
static enum cmd_exit measure(struct share_run *r)
{
    enum cmd_exit code = CMD_DONE;
    for (uint32_t rep = 0; rep <= r->c->reps; rep++) {
        for (int i = 0; i < LOADS * WAYS && code == CMD_DONE; i++) {
            enum load load = (enum load)(i / WAYS);
            enum way way = (enum way)((i + rep) % WAYS);
            code = play(r, load, way, rep ? &r->tallies[load][way] : NULL);
        }
    }
    return code;
}

static enum cmd_exit print(struct share_run *r)
{
    struct hw_bench bench;
    hw_bench_begin(&bench, "serve-share");
    for (int load = 0; load < LOADS; load++)
        add_rows(r, &bench, (enum load)load);
    enum cmd_exit code = measure_print("bench-serve", &bench, r->c->json, r->c->check);
    hw_bench_end(&bench);
    return code;
}

enum cmd_exit bench_share_run(const struct bench_share *config)
{
    struct share_run r = {.c = config};
    size_t most = (size_t)config->clients * config->models * config->reps;
    enum cmd_exit code = CMD_DONE;
    for (int i = 0; i < LOADS * WAYS; i++) {
        struct tally *t = &r.tallies[i / WAYS][i % WAYS];
        t->first_ms = calloc(most, sizeof *t->first_ms);
        code = t->first_ms ? code : CMD_FAILED;
    }
    if (code != CMD_DONE)
        (void)cmd_fail(CMD_FAILED, "out of memory");
    for (int way = 0; way < WAYS && code == CMD_DONE; way++)
        code = start(&r, (enum way)way);
    if (code == CMD_DONE)
        code = measure(&r);
    if (code == CMD_DONE)
        code = print(&r);
    for (int i = 0; i < LOADS * WAYS; i++)
        free(r.tallies[i / WAYS][i % WAYS].first_ms);
    for (int way = 0; way < WAYS; way++)
        stop(&r.servers[way]);
    return code;
}
