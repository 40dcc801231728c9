#include "bench/llm/serving.h"

#include "base/clock.h"
#include "base/counter.h"
#include "base/hist.h"
#include "base/rng.h"
#include "base/units.h"
#include "bench/llm/rig.h"
#include "llm/engine/backend.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct serving;

/* One connection, and what its thread does with it. */
struct member {
    struct serving *all;
    struct llm_remote *remote;
    pthread_t thread;
    struct hw_hist gaps; /* between two tokens */
    uint32_t *prompt;
    uint64_t began_ns, ended_ns;
    int status;
    char why[LLM_WHY_CHARS];
};

/* What the worker has done. */
struct counts {
    uint64_t steps, parts;
};

struct serving {
    const struct bench_serving *o;
    struct bench_rig rig;
    struct member *members;
    uint32_t member_count;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t waiting;         /* at the start line (lock) */
    bool started;             /* (lock) */
    struct counts start, end; /* when the clients began to decode, and when all had ended */
};

/* ---- a server with a worker ---- */

static int start_server(struct serving *s, char *why)
{
    const struct llm_config *c = llm_file_config(s->o->file);
    uint32_t longest = s->o->prefill + s->o->decode;
    uint64_t rows = (longest + UINT64_C(2) * LLM_KV_POSITIONS) * s->member_count;
    struct llm_worker_options worker = {.file = s->o->file,
                                        .engine = s->o->engine,
                                        .batch = s->o->batch,
                                        .no_gather = s->o->no_gather};
    worker.engine.context = longest;
    worker.engine.kv_bytes = rows * c->layers * c->kv_heads * c->head_dim * 2 * sizeof(uint16_t);
    int rc = bench_rig_start(&worker, s->member_count, &s->rig, why);
    for (uint32_t i = 0; rc == 0 && i < s->member_count; i++)
        rc = bench_rig_connect(&s->rig, &s->members[i].remote, why);
    return rc;
}

static void stop(struct serving *s)
{
    for (uint32_t i = 0; s->members && i < s->member_count; i++) {
        llm_remote_close(s->members[i].remote);
        hw_hist_fini(&s->members[i].gaps);
        free(s->members[i].prompt);
    }
    free(s->members);
    bench_rig_stop(&s->rig);
}

/* ---- a start line ---- */

static void line_up(struct serving *s)
{
    pthread_mutex_lock(&s->lock);
    s->waiting++;
    pthread_cond_broadcast(&s->changed);
    while (!s->started)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static uint64_t counted(const char *name)
{
    uint64_t value = 0;
    int rc = hw_counters_total(name, &value);
    assert(rc == 0);
    (void)rc;
    return value;
}

static struct counts count_worker(void)
{
    return (struct counts){.steps = counted("llm_steps"), .parts = counted("llm_step_sequences")};
}

static void start_all(struct serving *s, uint32_t count)
{
    pthread_mutex_lock(&s->lock);
    while (s->waiting < count)
        pthread_cond_wait(&s->changed, &s->lock);
    s->start = count_worker(); /* their prompts are done */
    s->started = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* ---- a client ---- */

/* A sequence with the prompt; how to go on with it, and how to end it. */
static int begin_sequence(struct member *m, struct llm_request *decode, struct llm_request *release)
{
    struct llm_request prefill = {.method = LLM_METHOD_PREFILL_SEMANTIC,
                                  .wish = {.kind = LLM_WISH_TOKENS},
                                  .tokens = m->prompt,
                                  .token_count = m->all->o->prefill};
    struct wire_dec d;
    int rc = llm_remote_call(m->remote, &prefill, LLM_TOKENS, &d, m->why);
    if (rc)
        return rc;
    *release = (struct llm_request){.method = LLM_METHOD_RELEASE};
    wire_get_copy(&d, release->handle, sizeof release->handle);
    *decode = (struct llm_request){
        .method = LLM_METHOD_DECODE_SEMANTIC, .id = wire_get_varint(&d), .value = 1};
    return wire_dec_error(&d);
}

static int end_sequence(struct member *m, const struct llm_request *release)
{
    struct wire_dec d;
    return llm_remote_call(m->remote, release, LLM_CONTROL, &d, m->why);
}

static int decode_tokens(struct member *m, const struct llm_request *decode)
{
    struct wire_dec d;
    uint64_t at = hw_now_ns();
    int rc = 0;
    m->began_ns = at;
    for (uint32_t i = 0; i < m->all->o->decode && rc == 0; i++) {
        rc = llm_remote_call(m->remote, decode, LLM_TOKENS, &d, m->why);
        m->ended_ns = hw_now_ns();
        hw_hist_record(&m->gaps, m->ended_ns - at);
        at = m->ended_ns;
    }
    return rc;
}

static void *chat(void *user)
{
    struct member *m = user;
    struct llm_request decode, release;
    int rc = begin_sequence(m, &decode, &release);
    line_up(m->all); /* also after an error: start_all waits for all */
    if (rc == 0)
        rc = decode_tokens(m, &decode);
    if (rc == 0)
        rc = end_sequence(m, &release);
    m->status = rc;
    return NULL;
}

/* ---- a measurement ---- */

struct figures {
    double rate;          /* tokens a second, all clients together */
    double median, worst; /* of the gaps between two tokens, seconds; worst: of 1 in 100 */
    double batch;         /* sequences in a step, on average */
};

static int start_member(struct member *m)
{
    m->status = 0;
    hw_hist_reset(&m->gaps);
    return -pthread_create(&m->thread, NULL, chat, m);
}

/* Lets clients run from start to end. */
static int run_members(struct serving *s, uint32_t clients, char *why)
{
    uint32_t count = 0;
    int rc = 0;
    s->waiting = 0;
    s->started = false;
    for (; count < clients && rc == 0; count += rc == 0)
        rc = start_member(&s->members[count]);
    start_all(s, count);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(s->members[i].thread, NULL);
    s->end = count_worker();
    for (uint32_t i = 0; i < s->member_count && rc == 0; i++) {
        rc = s->members[i].status;
        if (rc)
            snprintf(why, LLM_WHY_CHARS, "%s", s->members[i].why);
    }
    return rc;
}

static int measure(struct serving *s, uint32_t clients, struct figures *out, char *why)
{
    uint64_t first = UINT64_MAX, last = 0;
    int rc = run_members(s, clients, why);
    if (rc)
        return rc;
    struct hw_hist *gaps = &s->members[0].gaps;
    for (uint32_t i = 0; i < clients; i++) {
        const struct member *m = &s->members[i];
        first = m->began_ns < first ? m->began_ns : first;
        last = m->ended_ns > last ? m->ended_ns : last;
        if (i > 0 && rc == 0)
            rc = hw_hist_merge(gaps, &m->gaps);
    }
    double seconds = (double)(last - first) / 1e9;
    *out = (struct figures){.rate = (double)clients * s->o->decode / seconds,
                            .median = (double)hw_hist_percentile(gaps, 50) / 1e9,
                            .worst = (double)hw_hist_percentile(gaps, 99) / 1e9,
                            .batch = (double)(s->end.parts - s->start.parts) /
                                     (double)(s->end.steps - s->start.steps)};
    return rc;
}

/* ---- the report ---- */

static int by_rate(const void *a, const void *b)
{
    double x = ((const struct figures *)a)->rate, y = ((const struct figures *)b)->rate;
    return x < y ? -1 : x > y;
}

static void report(struct hw_bench *bench, uint32_t clients, const struct figures *f, double one)
{
    char name[64], text[HW_FORMAT_CHARS];
    snprintf(name, sizeof name, "%u client%s", clients, clients == 1 ? "" : "s");
    hw_bench_row(bench, name, f->rate, "tok/s", one);
    hw_bench_field(bench, "each", "%s tok/s", hw_format_figure(text, f->rate / clients));
    hw_bench_field(bench, "batch", "%.2f", f->batch);
    hw_bench_field(bench, "gap_p50", "%.3g ms", f->median * 1e3);
    hw_bench_field(bench, "gap_p99", "%.3g ms", f->worst * 1e3);
}

/* Each repetition measures all counts in turn, so that other work of the machine falls on all. */
static int measure_all(struct serving *s, struct hw_bench *bench, char *why)
{
    const struct bench_serving *o = s->o;
    struct figures *figures = calloc(o->client_counts * o->repeats, sizeof *figures), warm;
    if (!figures)
        return -ENOMEM;
    int rc = measure(s, 1, &warm, why); /* the first run reads the file */
    for (uint32_t r = 0; r < o->repeats && rc == 0; r++) {
        for (size_t i = 0; i < o->client_counts && rc == 0; i++)
            rc = measure(s, o->clients[i], &figures[i * o->repeats + r], why);
    }
    double one = NAN;
    for (size_t i = 0; i < o->client_counts && rc == 0; i++) {
        struct figures *runs = &figures[i * o->repeats];
        qsort(runs, o->repeats, sizeof *runs, by_rate);
        if (i == 0)
            one = runs[o->repeats / 2].rate;
        report(bench, o->clients[i], &runs[o->repeats / 2], one);
    }
    free(figures);
    return rc;
}

/* ---- life ---- */

static int make_members(struct serving *s)
{
    uint32_t vocab = llm_file_config(s->o->file)->vocab, most = 0;
    for (size_t i = 0; i < s->o->client_counts; i++)
        most = s->o->clients[i] > most ? s->o->clients[i] : most;
    assert(most >= 1 && most <= BENCH_SERVING_CLIENTS_MAX);
    s->member_count = most;
    s->members = calloc(s->member_count, sizeof *s->members);
    if (!s->members)
        return -ENOMEM;
    struct hw_rng rng;
    hw_rng_seed(&rng, 1);
    for (uint32_t i = 0; i < s->member_count; i++) {
        struct member *m = &s->members[i];
        m->all = s;
        m->prompt = malloc(s->o->prefill * sizeof *m->prompt);
        if (!m->prompt || hw_hist_init(&m->gaps))
            return -ENOMEM;
        for (uint32_t t = 0; t < s->o->prefill; t++)
            m->prompt[t] = (uint32_t)hw_rng_below(&rng, vocab);
    }
    return 0;
}

int bench_serving_run(const struct bench_serving *options, struct hw_bench *bench, char *why)
{
    struct serving s = {
        .o = options, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    why[0] = '\0';
    int rc = make_members(&s);
    if (rc == 0)
        rc = start_server(&s, why);
    if (rc == 0)
        rc = measure_all(&s, bench, why);
    stop(&s);
    if (rc && !why[0])
        snprintf(why, LLM_WHY_CHARS, "%s", strerror(-rc));
    return rc;
}
