#include "bench/serve/share.h"

#include "base/clock.h"
#include "base/order.h"
#include "base/report/bench.h"
#include "base/units.h"
#include "bench/serve/child.h"
#include "bench/serve/load.h"
#include "command/measure.h"
#include "llm/engine/backend.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    NAME_CHARS = 8,
    ASIDE_SECONDS = 60, /* after their time, until weights must have left */
    DISTINCT = 2        /* tokens before the prompt, so that no two requests share a prefix */
};

/* The baseline has fixed parts: minimums that leave nothing to share.  Where the first model has
 * priority, it has equals.  All else is the same program. */
enum way { WAY_BASE, WAY_TRIED, WAYS };
enum load { LOAD_ALTERNATING, LOAD_EVEN, LOADS };
enum group { GROUP_FIRST, GROUP_OTHERS, GROUPS }; /* without a first model: all in one */

static const char *const load_names[LOADS] = {"alternating", "even"};
static const char *const group_names[GROUPS] = {".first", ".others"};

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
    struct tally tallies[LOADS][WAYS][GROUPS];
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
    uint64_t all = c->clients * one + pages;
    return c->kv_bytes ? c->kv_bytes : c->is_first ? all / 2 : all;
}

static enum cmd_exit start(struct share_run *r, enum way way)
{
    const struct bench_share *c = r->c;
    struct server *s = &r->servers[way];
    char listen[80], threads[24], kv[24], min[24], idle[24], models[BENCH_SHARE_MODELS_MAX][512];
    char why[LLM_WHY_CHARS];
    const char *argv[24 + 2 * BENCH_SHARE_MODELS_MAX] = {"hawser", "serve", "--no-devices"};
    size_t n = 3;
    uint64_t bytes = kv_bytes(c);
    snprintf(listen, sizeof listen, "unix:%.60s/%d", c->dir, (int)way);
    snprintf(threads, sizeof threads, "%llu", (unsigned long long)c->threads);
    snprintf(kv, sizeof kv, "%llu", (unsigned long long)bytes);
    snprintf(min, sizeof min, "%llu", (unsigned long long)(bytes / c->models));
    snprintf(idle, sizeof idle, "%lluus", (unsigned long long)(c->idle_ns / HW_US));
    for (uint32_t i = 0; i < c->models; i++) {
        snprintf(r->names[i], NAME_CHARS, "m%u", i);
        snprintf(models[i], sizeof models[i], "%s=%.490s", r->names[i], c->model);
        argv[n++] = "--model";
        argv[n++] = models[i];
    }
    const char *const rest[] = {"--listen",    listen,     "--threads",       threads,
                                "--kv-memory", kv,         "--max-sequences", "1024",
                                "--backend",   c->backend, "--math",          c->math};
    for (size_t i = 0; i < ARRAY_LEN(rest); i++)
        argv[n++] = rest[i];
    if (c->idle_ns) {
        argv[n++] = "--idle-weights";
        argv[n++] = idle;
    } else if (c->is_first ? way == WAY_TRIED : way == WAY_BASE) {
        argv[n++] = c->is_first ? "--kv-priority" : "--kv-min";
        argv[n++] = c->is_first ? "m0=1" : min;
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
    uint32_t model;
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
    q->status = bench_load_engine(q->conn, &q->generate, NULL, &q->figures, q->why);
    return NULL;
}

static int prepare(struct share_run *r, struct request *q, enum way way, uint32_t model)
{
    const struct bench_share *c = r->c;
    uint32_t vocab = llm_file_config(c->file)->vocab, count = DISTINCT + c->prompt_count;
    uint64_t number = r->asked++;
    *q = (struct request){
        .conn = r->servers[way].conn, .model = model, .tokens = malloc(count * sizeof *q->tokens)};
    if (!q->tokens)
        return -1;
    q->tokens[0] = (uint32_t)(number % vocab);
    q->tokens[1] = (uint32_t)(number / vocab % vocab);
    memcpy(q->tokens + DISTINCT, c->prompt, c->prompt_count * sizeof *q->tokens);
    q->generate = (struct llm_generate){
        .model = r->names[model], .tokens = q->tokens, .token_count = count, .most = c->tokens};
    return 0;
}

static void note(struct share_run *r, struct tally *groups, const struct request *q)
{
    struct tally *t = &groups[r->c->is_first && q->model ? GROUP_OTHERS : GROUP_FIRST];
    t->first_ms[t->count++] = (double)q->figures.first_ns / HW_MS;
    t->in_time += q->figures.first_ns <= r->c->deadline_ns;
}

/* A request of each client at once: to one model, or to all in turn (model == models). */
static enum cmd_exit burst(struct share_run *r, enum way way, uint32_t model, struct tally *groups)
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
    uint64_t ns = hw_now_ns() - begin;
    for (int g = 0; groups && g < GROUPS; g++)
        groups[g].ns += ns;
    for (uint32_t i = 0; i < started && code == CMD_DONE; i++) {
        if (all[i].status)
            code = cmd_fail(CMD_FAILED, "bench-serve: %s", all[i].why);
        else if (groups)
            note(r, groups, &all[i]);
    }
    for (uint32_t i = 0; i < ready; i++)
        free(all[i].tokens);
    free(all);
    return code;
}

static enum cmd_exit play(struct share_run *r, enum load load, enum way way, struct tally *groups)
{
    const struct bench_share *c = r->c;
    enum cmd_exit code = CMD_DONE;
    for (uint32_t i = 0; i < c->models && code == CMD_DONE; i++)
        code = burst(r, way, load == LOAD_ALTERNATING ? i : c->models, groups);
    return code;
}

/* ---- rows ---- */

static void add_rows(struct share_run *r, struct hw_bench *bench, enum load load, enum group group)
{
    char name[64], of[32];
    struct tally *base = &r->tallies[load][WAY_BASE][group];
    struct tally *tried = &r->tallies[load][WAY_TRIED][group];
    double rates[WAYS], median[WAYS], p99[WAYS];
    for (int way = 0; way < WAYS; way++) {
        struct tally *t = &r->tallies[load][way][group];
        rates[way] = (double)t->in_time * HW_SEC / (double)t->ns;
        median[way] = hw_median(t->first_ms, t->count); /* sorts */
        p99[way] = hw_percentile(t->first_ms, t->count, 99);
    }
    snprintf(of, sizeof of, "%s%s", load_names[load], r->c->is_first ? group_names[group] : "");
    snprintf(name, sizeof name, "in_time.%s", of);
    hw_bench_row(bench, name, rates[WAY_TRIED], "req/s", rates[WAY_BASE]);
    hw_bench_field(bench, "in_time", "%llu of %zu", (unsigned long long)tried->in_time,
                   tried->count);
    hw_bench_field(bench, r->c->is_first ? "equals_in_time" : "fixed_in_time", "%llu of %zu",
                   (unsigned long long)base->in_time, base->count);
    if (!r->c->is_first)
        hw_bench_judge(bench, targets, ARRAY_LEN(targets));
    snprintf(name, sizeof name, "first.median.%s", of);
    hw_bench_row(bench, name, median[WAY_TRIED], "ms", median[WAY_BASE]);
    snprintf(name, sizeof name, "first.p99.%s", of);
    hw_bench_row(bench, name, p99[WAY_TRIED], "ms", p99[WAY_BASE]);
}

/* The first repetition warms up; then servers and loads are interleaved. */
static enum cmd_exit measure(struct share_run *r)
{
    enum cmd_exit code = CMD_DONE;
    for (uint32_t rep = 0; rep <= r->c->reps; rep++) {
        for (int i = 0; i < LOADS * WAYS && code == CMD_DONE; i++) {
            enum load load = (enum load)(i / WAYS);
            enum way way = (enum way)((i + rep) % WAYS);
            code = play(r, load, way, rep ? r->tallies[load][way] : NULL);
        }
    }
    return code;
}

static enum cmd_exit print(struct share_run *r)
{
    struct hw_bench bench;
    hw_bench_begin(&bench, "serve-share");
    for (int i = 0; i < LOADS * GROUPS; i++) {
        if (r->c->is_first || i % GROUPS == GROUP_FIRST)
            add_rows(r, &bench, (enum load)(i / GROUPS), (enum group)(i % GROUPS));
    }
    enum cmd_exit code = measure_print("bench-serve", &bench, r->c->json, r->c->check);
    hw_bench_end(&bench);
    return code;
}

/* ---- weights that come back ---- */

/* Until the model's weights have left. */
static enum cmd_exit await_aside(struct share_run *r, uint32_t model)
{
    static struct llm_served served;
    char why[LLM_WHY_CHARS];
    uint64_t end = hw_now_ns() + r->c->idle_ns + ASIDE_SECONDS * HW_SEC;
    while (hw_now_ns() < end) {
        if (llm_connection_describe(r->servers[WAY_TRIED].conn, 0, &served, why))
            return cmd_fail(CMD_FAILED, "bench-serve: %s", why);
        if (model < served.model_count && served.models[model].is_aside)
            return CMD_DONE;
        usleep(10000);
    }
    return cmd_fail(CMD_FAILED, "bench-serve: the weights of %s do not leave", r->names[model]);
}

/* Each model in turn: a request that finds its weights aside, and one that finds them there. */
static enum cmd_exit measure_returns(struct share_run *r, double *aside_ms, double *there_ms)
{
    enum cmd_exit code = CMD_DONE;
    for (uint32_t i = 0; i < r->c->models * r->c->reps && code == CMD_DONE; i++) {
        code = await_aside(r, i % r->c->models);
        for (int k = 0; k < 2 && code == CMD_DONE; k++) {
            struct request q;
            if (prepare(r, &q, WAY_TRIED, i % r->c->models))
                return cmd_fail(CMD_FAILED, "out of memory");
            request_main(&q);
            free(q.tokens);
            (k ? there_ms : aside_ms)[i] = (double)q.figures.first_ns / HW_MS;
            if (q.status)
                code = cmd_fail(CMD_FAILED, "bench-serve: %s", q.why);
        }
    }
    return code;
}

static enum cmd_exit run_returns(struct share_run *r)
{
    size_t count = (size_t)r->c->models * r->c->reps;
    double *aside_ms = calloc(2 * count, sizeof *aside_ms);
    double *there_ms = aside_ms + count;
    if (!aside_ms)
        return cmd_fail(CMD_FAILED, "out of memory");
    enum cmd_exit code = start(r, WAY_TRIED);
    if (code == CMD_DONE)
        code = measure_returns(r, aside_ms, there_ms);
    if (code == CMD_DONE) {
        struct hw_bench bench;
        uint64_t size;
        char text[HW_FORMAT_CHARS];
        (void)llm_file_bytes(r->c->file, &size);
        double aside = hw_median(aside_ms, count), there = hw_median(there_ms, count);
        hw_bench_begin(&bench, "serve-weights");
        hw_bench_row(&bench, "first.aside", aside, "ms", there);
        hw_bench_field(&bench, "file", "%s", hw_format_size(text, size));
        hw_bench_row(&bench, "first.aside.p99", hw_percentile(aside_ms, count, 99), "ms", there);
        code = measure_print("bench-serve", &bench, r->c->json, r->c->check);
        hw_bench_end(&bench);
    }
    free(aside_ms);
    stop(&r->servers[WAY_TRIED]);
    return code;
}

enum cmd_exit bench_share_run(const struct bench_share *config)
{
    struct share_run r = {.c = config};
    size_t most = (size_t)config->clients * config->models * config->reps;
    struct tally *tallies = &r.tallies[0][0][0];
    enum cmd_exit code = CMD_DONE;
    if (config->idle_ns)
        return run_returns(&r);
    for (int i = 0; i < LOADS * WAYS * GROUPS; i++) {
        tallies[i].first_ms = calloc(most, sizeof *tallies[i].first_ms);
        code = tallies[i].first_ms ? code : CMD_FAILED;
    }
    if (code != CMD_DONE)
        (void)cmd_fail(CMD_FAILED, "out of memory");
    for (int way = 0; way < WAYS && code == CMD_DONE; way++)
        code = start(&r, (enum way)way);
    if (code == CMD_DONE)
        code = measure(&r);
    if (code == CMD_DONE)
        code = print(&r);
    for (int i = 0; i < LOADS * WAYS * GROUPS; i++)
        free(tallies[i].first_ms);
    for (int way = 0; way < WAYS; way++)
        stop(&r.servers[way]);
    return code;
}
