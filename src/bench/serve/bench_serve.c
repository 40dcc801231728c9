/* hawser bench-serve - what HTTP and a gateway cost, beside the worker alone. */
#include "base/clock.h"
#include "base/order.h"
#include "base/report/bench.h"
#include "base/units.h"
#include "bench/bench.h"
#include "bench/rpc/link.h"
#include "bench/serve/child.h"
#include "bench/serve/load.h"
#include "bench/serve/share.h"
#include "command/measure.h"
#include "llm/chat/chat.h"
#include "llm/engine/backend.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CLIENTS_MAX = 256,
    REPS_MAX = 31,
    PROMPT_TOKENS_MAX = 65536,
    NEWCOMER_TOKENS = 4, /* the first may have no text yet */
    DISTINCT = 2,        /* tokens at the beginning of a prompt that no other begins with */
    PEER_SECONDS = 120,  /* until a peer has loaded its model */
    WAYS = 4             /* to ask */
};

#define KV_BYTES (UINT64_C(256) << 20)

struct bench_serve_options {
    const char *model, *prompt, *peer;
    struct cmd_list clients;
    uint64_t tokens, beside, reps, threads, kv_bytes, share, deadline_ns, idle_ns;
    int backend, math;
    bool first, json, check;
};

static const char *const backend_names[] = {"cpu", "vulkan", NULL};

#define AT(field) offsetof(struct bench_serve_options, field)
static const struct cmd_option options[] = {
    {"model", 'm', CMD_STRING, AT(model), "a GGUF file, which the worker serves", "FILE"},
    {"clients", 'c', CMD_LIST, AT(clients), "at a time; a row for each", "N", "1,4,16,64"},
    {"prompt", 'p', CMD_STRING, AT(prompt), "what each client sends", "TEXT",
     "And it came to pass, when the people were gathered together, that"},
    {"tokens", 'n', CMD_U64, AT(tokens), "to generate for each", "N", "64", 2, 65536},
    {"beside", 0, CMD_U64, AT(beside),
     "also measure the first token of a prompt of N tokens while the clients' texts are generated; "
     "the baseline is the same alone",
     "N", NULL, DISTINCT + 1, PROMPT_TOKENS_MAX},
    {"reps", 0, CMD_U64, AT(reps), "repetitions, interleaved; medians are shown", "N", "5", 1,
     REPS_MAX},
    {"threads", 't', CMD_U64, AT(threads), "of the worker; 0: one for each core", "N", "0", 0, 256},
    {"backend", 0, CMD_CHOICE, AT(backend), "of the worker", NULL, "cpu", 0, 0, backend_names},
    {"math", 0, CMD_CHOICE, AT(math), "of the worker", NULL, "exact", 0, 0, llm_math_names},
    {"kv-memory", 0, CMD_SIZE, AT(kv_bytes),
     "of the worker [default: 256MiB; with --share what the texts of --clients take]", "SIZE", NULL,
     1 << 20, INT64_MAX},
    {"share", 0, CMD_U64, AT(share),
     "measure N models under one KV memory instead, beside fixed parts of it", "N", NULL, 2,
     BENCH_SHARE_MODELS_MAX},
    {"deadline", 0, CMD_DURATION, AT(deadline_ns),
     "of --share: a request whose first token comes by then is in time", "TIME", "1s", HW_MS,
     3600 * HW_SEC},
    {"priority", 0, CMD_FLAG, AT(first),
     "of --share: the first model has a higher --kv-priority, half of the memory is there, and the "
     "baseline is a server of equals"},
    {"idle-weights", 0, CMD_DURATION, AT(idle_ns),
     "of --share with --backend vulkan: measure the first token of models whose weights have left "
     "after so long without a request, beside the same when they are there",
     "TIME", NULL, HW_MS, 3600 * HW_SEC},
    {"peer", 0, CMD_STRING, AT(peer),
     "another server of the same model, llama-server for example, measured beside ours: "
     "http://host:port, or a command that starts it, with $MODEL and $PORT",
     "URL|COMMAND"},
    {"check", 0, CMD_FLAG, AT(check), "status 1 when a target is missed"},
    {"json", 'j', CMD_FLAG, AT(json), "one JSON object instead of a table"},
    {NULL},
};

static const struct hw_bench_target targets[] = {
    {"rate.http.", false, 0.97},
    {"rate.gateway.", false, 0.97},
    {"over-peer.", false, 1},
    {"beside.", true, 3},
};

/* ---- a run of some clients ---- */

enum way { WAY_ENGINE, WAY_HTTP, WAY_GATEWAY, WAY_PEER };

static const char *const way_names[WAYS] = {"engine", "http", "gateway", "peer"};

/* What a client asks for. */
struct ask {
    uint32_t *tokens, count, most;
    char *body; /* the same as an HTTP request */
};

struct bench_run {
    const struct bench_serve_options *o;
    struct bench_dir dir;
    struct bench_child worker, gateway, peer;
    struct bench_load_peer at[WAYS];
    struct llm_file *file;
    struct llm_vocab *vocab;
    struct llm_connection *conn;
    struct ask ask;     /* what --clients ask for */
    uint64_t newcomers; /* so far: numbers them */
};

struct member {
    struct bench_run *run;
    enum way way;
    const struct ask *ask;
    struct crowd *crowd; /* NULL: alone */
    pthread_t thread;
    int fd, status;
    uint64_t begin;
    struct bench_load_figures figures;
    char why[BENCH_LOAD_WHY];
};

/* Clients that ask for the same, each in a thread. */
struct crowd {
    enum way way;
    struct member *members;
    uint32_t ready, started;
    pthread_barrier_t line;
    sem_t begun; /* posted for each text that has its first token */
    uint64_t begin, ns;
    const char *why;
};

struct figures {
    double rate, first_ms;
};

/* The request of a text that has all its tokens; consumes `prompt`. */
static char *make_body(json_t *prompt, uint32_t most)
{
    json_t *body = json_pack("{s:o, s:I, s:i, s:b, s:b, s:{s:b}}", "prompt", prompt, "max_tokens",
                             (json_int_t)most, "temperature", 0, "ignore_eos", 1, "stream", 1,
                             "stream_options", "include_usage", 1);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

static void *member_main(void *user)
{
    struct member *m = user;
    const struct ask *ask = m->ask;
    struct llm_generate request = {
        .tokens = ask->tokens, .token_count = ask->count, .most = ask->most};
    if (m->crowd)
        pthread_barrier_wait(&m->crowd->line);
    sem_t *begun = m->crowd ? &m->crowd->begun : NULL;
    m->begin = hw_now_ns();
    if (m->way == WAY_ENGINE)
        m->status = bench_load_engine(m->run->conn, &request, begun, &m->figures, m->why);
    else
        m->status = bench_load_http(m->fd, ask->body, begun, &m->figures, m->why);
    return NULL;
}

static int connect_member(struct member *m)
{
    m->fd = -1;
    return m->way == WAY_ENGINE ? 0 : (m->fd = bench_load_connect(&m->run->at[m->way], m->why));
}

static void sum_up(const struct member *members, uint32_t count, uint64_t ns, struct figures *out)
{
    double firsts[CLIENTS_MAX];
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < count; i++) {
        tokens += members[i].figures.tokens;
        firsts[i] = (double)members[i].figures.first_ns / 1e6;
    }
    out->rate = (double)tokens * 1e9 / (double)ns;
    out->first_ms = hw_median(firsts, count);
}

/* All ask at once, over connections that are there already. */
static enum cmd_exit crowd_start(struct bench_run *r, enum way way, uint32_t count,
                                 struct crowd *crowd)
{
    *crowd = (struct crowd){.way = way, .members = calloc(count, sizeof(*crowd->members))};
    if (!crowd->members)
        return cmd_fail(CMD_FAILED, "out of memory");
    for (; crowd->ready < count && !crowd->why; crowd->ready++) {
        struct member *m = &crowd->members[crowd->ready];
        *m = (struct member){.run = r, .way = way, .ask = &r->ask, .crowd = crowd};
        if (connect_member(m) < 0)
            crowd->why = m->why;
    }
    pthread_barrier_init(&crowd->line, NULL, count + 1);
    sem_init(&crowd->begun, 0, 0);
    for (; !crowd->why && crowd->started < count; crowd->started++) {
        struct member *m = &crowd->members[crowd->started];
        /* A barrier that lacks a thread would hold the others for ever. */
        if (pthread_create(&m->thread, NULL, member_main, m))
            abort();
    }
    crowd->begin = hw_now_ns();
    if (crowd->started)
        pthread_barrier_wait(&crowd->line);
    return CMD_DONE;
}

static void crowd_join(struct crowd *crowd)
{
    for (uint32_t i = 0; i < crowd->started; i++)
        pthread_join(crowd->members[i].thread, NULL);
    crowd->ns = hw_now_ns() - crowd->begin;
}

/* After crowd_join. */
static enum cmd_exit crowd_end(struct crowd *crowd, struct figures *out)
{
    for (uint32_t i = 0; i < crowd->started; i++)
        crowd->why = crowd->members[i].status ? crowd->members[i].why : crowd->why;
    enum cmd_exit code = CMD_DONE;
    if (crowd->why)
        code = cmd_fail(CMD_FAILED, "bench-serve: %s: %s", way_names[crowd->way], crowd->why);
    else
        sum_up(crowd->members, crowd->started, crowd->ns, out);
    for (uint32_t i = 0; i < crowd->ready; i++) {
        if (crowd->members[i].fd >= 0)
            close(crowd->members[i].fd);
    }
    sem_destroy(&crowd->begun);
    pthread_barrier_destroy(&crowd->line);
    free(crowd->members);
    return code;
}

static enum cmd_exit ask_all(struct bench_run *r, enum way way, uint32_t count, struct figures *out)
{
    struct crowd crowd;
    enum cmd_exit code = crowd_start(r, way, count, &crowd);
    if (code != CMD_DONE)
        return code;
    crowd_join(&crowd);
    return crowd_end(&crowd, out);
}

/* ---- a prompt beside texts ---- */

/* A prompt of its own: nobody has computed its beginning. */
static enum cmd_exit make_newcomer(struct bench_run *r, struct ask *out)
{
    uint32_t count = (uint32_t)r->o->beside, vocab = llm_file_config(r->file)->vocab;
    json_t *prompt = json_array();
    *out = (struct ask){
        .tokens = calloc(count, sizeof(*out->tokens)), .count = count, .most = NEWCOMER_TOKENS};
    for (uint32_t i = 0; out->tokens && i < count; i++) {
        out->tokens[i] = r->ask.tokens[i % r->ask.count];
        if (i < DISTINCT)
            out->tokens[i] = (uint32_t)(r->newcomers / (i ? vocab : 1) % vocab);
        (void)json_array_append_new(prompt, json_integer(out->tokens[i]));
    }
    r->newcomers++;
    out->body = make_body(prompt, out->most);
    return out->tokens && out->body ? CMD_DONE : cmd_fail(CMD_FAILED, "out of memory");
}

/* Milliseconds from its prompt to its first token, which came at *first_at. */
static enum cmd_exit ask_newcomer(struct bench_run *r, enum way way, double *first_ms,
                                  uint64_t *first_at)
{
    struct ask ask;
    struct member m = {.run = r, .way = way, .ask = &ask, .fd = -1};
    enum cmd_exit code = make_newcomer(r, &ask);
    if (code == CMD_DONE) {
        if (connect_member(&m) >= 0)
            member_main(&m);
        else
            m.status = -1;
        if (m.status)
            code = cmd_fail(CMD_FAILED, "bench-serve: %s: %s", way_names[way], m.why);
    }
    if (m.fd >= 0)
        close(m.fd);
    *first_ms = (double)m.figures.first_ns / 1e6;
    *first_at = m.begin + m.figures.first_ns;
    free(ask.tokens);
    free(ask.body);
    return code;
}

/* Those that had ended by then. */
static uint32_t count_ended(const struct crowd *crowd, uint64_t then)
{
    uint32_t ended = 0;
    for (uint32_t i = 0; i < crowd->started; i++)
        ended += crowd->members[i].begin + crowd->members[i].figures.total_ns <= then;
    return ended;
}

/* The same once each of `count` texts has begun, and before one has ended. */
static enum cmd_exit ask_beside(struct bench_run *r, enum way way, uint32_t count, double *first_ms)
{
    struct crowd crowd;
    struct figures figures;
    uint64_t first_at = 0;
    enum cmd_exit code = crowd_start(r, way, count, &crowd);
    if (code != CMD_DONE)
        return code;
    for (uint32_t i = 0; i < crowd.started; i++) {
        while (sem_wait(&crowd.begun))
            continue;
    }
    code = crowd.started ? ask_newcomer(r, way, first_ms, &first_at) : CMD_DONE;
    crowd_join(&crowd);
    uint32_t ended = count_ended(&crowd, first_at);
    enum cmd_exit end = crowd_end(&crowd, &figures);
    if (code == CMD_DONE && end == CMD_DONE && ended > 0)
        return cmd_fail(
            CMD_FAILED,
            "bench-serve: %s: %u of %u texts ended before the first token of the prompt "
            "beside them: more --tokens are needed",
            way_names[way], ended, count);
    return code == CMD_DONE ? end : code;
}

/* ---- rows ---- */

static void add_rows(struct bench_run *r, struct hw_bench *bench, uint32_t clients,
                     const struct figures medians[WAYS])
{
    char name[64], text[HW_FORMAT_CHARS];
    for (int way = 0; way < WAYS; way++) {
        const struct figures *f = &medians[way], *base = &medians[WAY_ENGINE];
        if (way == WAY_PEER && !r->o->peer)
            continue;
        snprintf(name, sizeof(name), "rate.%s.%u", way_names[way], clients);
        hw_bench_row(bench, name, f->rate, "tok/s", way == WAY_ENGINE ? NAN : base->rate);
        hw_bench_field(bench, "first", "%s ms", hw_format_figure(text, f->first_ms));
        /* A further hop cannot save time: a negative difference is noise. */
        if (way == WAY_ENGINE)
            hw_bench_field(bench, "first_over_engine", "-");
        else if (way != WAY_PEER && f->first_ms < base->first_ms)
            hw_bench_field(bench, "first_over_engine", "none shown");
        else
            hw_bench_field(bench, "first_over_engine", "%+.3f ms", f->first_ms - base->first_ms);
        hw_bench_judge(bench, targets, ARRAY_LEN(targets));
    }
    const struct figures *peer = &medians[WAY_PEER];
    for (int way = WAY_HTTP; r->o->peer && way <= WAY_GATEWAY; way++) {
        const struct figures *f = &medians[way];
        snprintf(name, sizeof(name), "over-peer.%s.%u", way_names[way], clients);
        hw_bench_row(bench, name, f->rate, "tok/s", peer->rate);
        hw_bench_field(bench, "first_over_peer", "%+.3f ms", f->first_ms - peer->first_ms);
        hw_bench_judge(bench, targets, ARRAY_LEN(targets));
    }
}

static enum cmd_exit measure(struct bench_run *r, struct hw_bench *bench, uint32_t clients)
{
    static double rates[WAYS][REPS_MAX], firsts[WAYS][REPS_MAX];
    struct figures medians[WAYS] = {{0}};
    /* The first repetition warms up. */
    for (uint64_t rep = 0; rep <= r->o->reps; rep++) {
        for (int way = 0; way < (r->o->peer ? WAYS : WAYS - 1); way++) {
            struct figures f = {0};
            enum cmd_exit code = ask_all(r, (enum way)way, clients, &f);
            if (code != CMD_DONE)
                return code;
            if (rep > 0) {
                rates[way][rep - 1] = f.rate;
                firsts[way][rep - 1] = f.first_ms;
            }
        }
    }
    for (int way = 0; way < WAYS; way++)
        medians[way] = (struct figures){.rate = hw_median(rates[way], r->o->reps),
                                        .first_ms = hw_median(firsts[way], r->o->reps)};
    add_rows(r, bench, clients, medians);
    return CMD_DONE;
}

static enum cmd_exit measure_beside(struct bench_run *r, struct hw_bench *bench, uint32_t clients)
{
    static double alone[WAYS][REPS_MAX + 1], beside[WAYS][REPS_MAX + 1];
    char name[64];
    int ways = r->o->peer ? WAYS : WAYS - 1;
    /* The first repetition warms up. */
    for (uint64_t rep = 0; rep <= r->o->reps; rep++) {
        for (int way = 0; way < ways; way++) {
            uint64_t at;
            enum cmd_exit code = ask_newcomer(r, (enum way)way, &alone[way][rep], &at);
            if (code == CMD_DONE)
                code = ask_beside(r, (enum way)way, clients, &beside[way][rep]);
            if (code != CMD_DONE)
                return code;
        }
    }
    for (int way = 0; way < ways; way++) {
        snprintf(name, sizeof(name), "beside.%s.%u", way_names[way], clients);
        hw_bench_row(bench, name, hw_median(beside[way] + 1, r->o->reps), "ms",
                     hw_median(alone[way] + 1, r->o->reps));
        hw_bench_field(bench, "prompt", "%u tokens", (unsigned)r->o->beside);
        if (way != WAY_PEER)
            hw_bench_judge(bench, targets, ARRAY_LEN(targets));
    }
    return CMD_DONE;
}

static enum cmd_exit measure_all(struct bench_run *r)
{
    struct hw_bench bench;
    enum cmd_exit code = CMD_DONE;
    hw_bench_begin(&bench, "serve");
    for (size_t i = 0; i < r->o->clients.count && code == CMD_DONE; i++) {
        char *end;
        unsigned long clients = strtoul(r->o->clients.items[i], &end, 10);
        if (*end || clients < 1 || clients > CLIENTS_MAX)
            code = cmd_fail(CMD_USAGE, "bench-serve: --clients: '%s' is not 1 to %d",
                            r->o->clients.items[i], CLIENTS_MAX);
        else
            code = measure(r, &bench, (uint32_t)clients);
        if (code == CMD_DONE && r->o->beside)
            code = measure_beside(r, &bench, (uint32_t)clients);
    }
    if (code == CMD_DONE)
        code = measure_print("bench-serve", &bench, r->o->json, r->o->check);
    hw_bench_end(&bench);
    return code;
}

/* ---- the whole ---- */

static enum cmd_exit read_prompt(struct bench_run *r)
{
    char why[LLM_WHY_CHARS];
    size_t bytes = strlen(r->o->prompt);
    if (llm_file_open(r->o->model, &r->file, why) ||
        llm_vocab_create(r->file, NULL, &r->vocab, why))
        return cmd_fail(CMD_FAILED, "bench-serve: %s", why);
    uint32_t *tokens = calloc(PROMPT_TOKENS_MAX, sizeof(*tokens));
    int64_t count = tokens
                        ? llm_chat_encode(r->vocab, r->o->prompt, bytes, tokens, PROMPT_TOKENS_MAX)
                        : -ENOMEM;
    r->ask = (struct ask){.tokens = tokens, .most = (uint32_t)r->o->tokens};
    if (count < 1 || count > PROMPT_TOKENS_MAX)
        return cmd_fail(CMD_FAILED, "bench-serve: --prompt: has no tokens, or too many");
    r->ask.count = (uint32_t)count;
    r->ask.body = make_body(json_string(r->o->prompt), r->ask.most);
    return r->ask.body ? CMD_DONE : cmd_fail(CMD_USAGE, "bench-serve: --prompt: is not UTF-8");
}

/* Until it answers a request, or has ended. */
static enum cmd_exit await_peer(struct bench_run *r)
{
    uint64_t end = hw_now_ns() + PEER_SECONDS * HW_SEC;
    char why[BENCH_LOAD_WHY] = "";
    for (;;) {
        struct bench_load_figures figures;
        int fd = bench_load_connect(&r->at[WAY_PEER], why);
        int rc = fd < 0 ? fd : bench_load_http(fd, r->ask.body, NULL, &figures, why);
        if (fd >= 0)
            close(fd);
        if (rc == 0)
            return CMD_DONE;
        if (waitpid(r->peer.pid, NULL, WNOHANG) == r->peer.pid) {
            r->peer.pid = 0;
            return cmd_fail(CMD_FAILED, "bench-serve: --peer: the command ended");
        }
        if (hw_now_ns() >= end)
            return cmd_fail(CMD_FAILED, "bench-serve: --peer: no answer for %d s: %s", PEER_SECONDS,
                            why);
        usleep(100000);
    }
}

static enum cmd_exit find_peer(struct bench_run *r)
{
    if (!r->o->peer || bench_load_parse(r->o->peer, &r->at[WAY_PEER]) == 0)
        return CMD_DONE;
    if (strncmp(r->o->peer, "http://", 7) == 0)
        return cmd_fail(CMD_USAGE, "bench-serve: --peer: '%s' is not http://host:port", r->o->peer);
    enum cmd_exit code = bench_child_start_peer(&r->peer, r->o->peer, r->o->model);
    if (code != CMD_DONE)
        return code;
    if (bench_load_parse(r->peer.url, &r->at[WAY_PEER]))
        return cmd_fail(CMD_FAILED, "bench-serve: --peer: no port");
    return await_peer(r);
}

static enum cmd_exit start_programs(struct bench_run *r)
{
    char listen[80], threads[24], kv[24], why[LLM_WHY_CHARS];
    snprintf(listen, sizeof(listen), "unix:%.60s/w", r->dir.path);
    snprintf(threads, sizeof(threads), "%llu", (unsigned long long)r->o->threads);
    uint64_t kv_bytes = r->o->kv_bytes ? r->o->kv_bytes : KV_BYTES;
    snprintf(kv, sizeof(kv), "%llu", (unsigned long long)kv_bytes);
    const char *const serve[] = {"hawser",
                                 "serve",
                                 "--no-devices",
                                 "--model",
                                 r->o->model,
                                 "--listen",
                                 listen,
                                 "--http",
                                 "127.0.0.1:0",
                                 "--threads",
                                 threads,
                                 "--kv-memory",
                                 kv,
                                 "--max-requests",
                                 "1024",
                                 "--backend",
                                 backend_names[r->o->backend],
                                 "--math",
                                 llm_math_names[r->o->math],
                                 NULL};
    const char *const gateway[] = {"hawser",      "gateway",        "--servers", listen, "--http",
                                   "127.0.0.1:0", "--max-requests", "1024",      NULL};
    if (bench_child_start(&r->worker, serve, "listening on "))
        return cmd_fail(CMD_FAILED, "bench-serve: hawser serve did not start");
    if (bench_child_start(&r->gateway, gateway, "answering on "))
        return cmd_fail(CMD_FAILED, "bench-serve: hawser gateway did not start");
    struct rpc_addr addr;
    struct rpc_net_options net = {0};
    if (bench_load_parse(r->worker.url, &r->at[WAY_HTTP]) ||
        bench_load_parse(r->gateway.url, &r->at[WAY_GATEWAY]))
        return cmd_fail(CMD_FAILED, "bench-serve: hawser serve does not say where it listens");
    if (rpc_addr_parse(listen, &addr, why) || llm_connection_open(&addr, &net, NULL, &r->conn, why))
        return cmd_fail(CMD_FAILED, "bench-serve: %s", why);
    return find_peer(r);
}

/* The first of --clients is the size of a burst. */
static enum cmd_exit share(struct bench_run *r)
{
    char *end;
    unsigned long clients = strtoul(r->o->clients.items[0], &end, 10);
    if (*end || clients < r->o->share || clients > CLIENTS_MAX)
        return cmd_fail(CMD_USAGE, "bench-serve: --clients: '%s' is not %llu to %d",
                        r->o->clients.items[0], (unsigned long long)r->o->share, CLIENTS_MAX);
    struct bench_share config = {.model = r->o->model,
                                 .backend = backend_names[r->o->backend],
                                 .math = llm_math_names[r->o->math],
                                 .is_first = r->o->first,
                                 .idle_ns = r->o->idle_ns,
                                 .file = r->file,
                                 .dir = r->dir.path,
                                 .prompt = r->ask.tokens,
                                 .prompt_count = r->ask.count,
                                 .tokens = (uint32_t)r->o->tokens,
                                 .models = (uint32_t)r->o->share,
                                 .clients = (uint32_t)clients,
                                 .reps = (uint32_t)r->o->reps,
                                 .threads = r->o->threads,
                                 .kv_bytes = r->o->kv_bytes,
                                 .deadline_ns = r->o->deadline_ns,
                                 .json = r->o->json,
                                 .check = r->o->check};
    return bench_share_run(&config);
}

static enum cmd_exit run_in(struct bench_run *r)
{
    enum cmd_exit code = read_prompt(r);
    if (code == CMD_DONE && !r->o->share)
        code = start_programs(r);
    if (code == CMD_DONE)
        code = r->o->share ? share(r) : measure_all(r);
    if (r->conn)
        llm_connection_close(r->conn);
    bench_child_stop(&r->peer);
    bench_child_stop(&r->gateway);
    bench_child_stop(&r->worker);
    free(r->ask.body);
    free(r->ask.tokens);
    llm_vocab_destroy(r->vocab);
    llm_file_close(r->file);
    return code;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    (void)operands;
    char why[RPC_WHY_CHARS];
    struct bench_run r = {.o = values};
    if (!r.o->model)
        return cmd_fail(CMD_USAGE, "bench-serve: --model FILE is needed");
    if (r.o->beside && r.o->share)
        return cmd_fail(CMD_USAGE, "bench-serve: --beside and --share cannot be combined");
    if ((r.o->first || r.o->idle_ns) && !r.o->share)
        return cmd_fail(CMD_USAGE, "bench-serve: %s is about several models: --share N",
                        r.o->first ? "--priority" : "--idle-weights");
    if (r.o->first && r.o->idle_ns)
        return cmd_fail(CMD_USAGE, "bench-serve: --priority and --idle-weights cannot be combined");
    if (bench_dir_make(&r.dir, why))
        return cmd_fail(CMD_FAILED, "bench-serve: %s", why);
    enum cmd_exit code = run_in(&r);
    bench_dir_remove(&r.dir);
    return code;
}

const struct cmd_command cmd_bench_serve = {
    .name = "bench-serve",
    .summary = "tokens a second and time to the first token over HTTP, beside the worker alone",
    .operands = "",
    .description =
        "Starts a server with a model and an HTTP address, and a gateway before it.  Clients ask "
        "for the same text all at once: straight from the worker (engine), over HTTP, through the "
        "gateway, and from --peer.  The engine is the baseline of each row; --peer adds rows that "
        "have the peer as theirs.  With --share, bursts of the first of --clients requests go to "
        "one model after the other (alternating), or to all at once (even).  The baseline is a "
        "server whose models each have a fixed part of the same memory.",
    .options = options,
    .examples = "hawser bench-serve --model models/kjv.gguf\n"
                "hawser bench-serve --model model.gguf --peer http://127.0.0.1:8080 --json\n"
                "hawser bench-serve --model model.gguf \\\n"
                "    --peer 'exec llama-server -m \"$MODEL\" --port \"$PORT\" -np 16'\n"
                "hawser bench-serve --model model.gguf --clients 16 --tokens 400 --beside 512\n"
                "hawser bench-serve --model models/kjv.gguf --share 3 --clients 24\n"
                "hawser bench-serve --model models/kjv.gguf --share 3 --clients 24 --priority\n"
                "hawser bench-serve --model m.gguf --share 3 --idle-weights 300ms",
    .values_size = sizeof(struct bench_serve_options),
    .run = run,
};
