/* Stages of layers, and shares of every layer, at several servers: the same bits as one server, for
 * any number of them and kinds of models; prefixes, layers written back, hidden states; a server
 * that is lost between steps or within one and comes back, or does not, or is silent; who is
 * refused; messages that are not a front's.  `test-llm-stage vulkan`: on a GPU. */
#include "bits.h"

#include "base/clock.h"
#include "llm/client/remote.h"
#include "llm/engine/split.h"
#include "llm/stage/link.h"
#include "llm/stage/pipeline.h"
#include "llm/stage/shares.h"
#include "llm/stage/stage.h"
#include "llm/tp/command.h"
#include "llm/tp/tp.h"
#include "rpc/resume/resume.h"
#include "rpc/server.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- servers ---- */

struct stage_server {
    struct rpc_server *server;
    struct llm_stage *stage;
    pthread_t thread;
    _Atomic uint32_t deaf_after; /* parts of gathers that it gets; 0: all */
    _Atomic bool dies;           /* and not only falls silent */
    _Atomic bool intrudes;       /* it pushes before its next answer to a read */
};

/* The servers' clock goes as the machine's, and that much ahead. */
static _Atomic uint64_t ahead_ns;

static uint64_t now_ns(void *user)
{
    (void)user;
    return hw_now_ns() + ahead_ns;
}

static char folder[] = "/tmp/hawser-stage-XXXXXX";

static void on_message(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct stage_server *s = user;
    if (msg->method == LLM_STAGE_READ && s->intrudes) {
        s->intrudes = false;
        if (rpc_push(ep, &(struct rpc_send){.method = LLM_STAGE_GATHER}))
            rpc_ep_shutdown(ep, -EIO, "the push was not sent");
    }
    if (msg->method == LLM_STAGE_GATHER && s->deaf_after == 1) {
        if (s->dies)
            rpc_ep_shutdown(ep, -EIO, "it died");
        rpc_release(ep, msg);
        return;
    }
    if (msg->method == LLM_STAGE_GATHER && s->deaf_after > 1)
        s->deaf_after--;
    if (!llm_stage_handle(s->stage, ep, msg)) {
        (void)rpc_reply(ep, msg, -ENOSYS, &(struct rpc_send){0});
        rpc_release(ep, msg);
    }
}

static void on_closed(void *user, struct rpc_ep *ep, int status)
{
    (void)status;
    llm_stage_closed(((struct stage_server *)user)->stage, ep);
}

static void on_sleeps(void *user, bool begins)
{
    llm_stage_server_sleeps(((struct stage_server *)user)->stage, begins);
}

static const struct rpc_server_ops server_ops = {
    .message = on_message, .closed = on_closed, .sleeps = on_sleeps};

static void *serve(void *user)
{
    rpc_server_run(((struct stage_server *)user)->server);
    return NULL;
}

static void listen_at(struct stage_server *s, const struct llm_stage_options *options,
                      uint32_t number)
{
    struct rpc_server_options server = {.ops = &server_ops,
                                        .user = s,
                                        .config = {.clock = {.now_ns = now_ns},
                                                   .heartbeat_ns = 60 * HW_SEC,
                                                   .tolerates_silence = true}};
    struct rpc_addr addr;
    char text[80], cause[RPC_WHY_CHARS] = "";
    s->deaf_after = 0;
    s->dies = s->intrudes = false;
    snprintf(text, sizeof text, "unix:%s/%u", folder, number);
    assert_int_equal(rpc_addr_parse(text, &addr, cause), 0);
    if (llm_stage_create(options, &s->stage, why))
        fail_msg("%s", why);
    assert_int_equal(rpc_server_create(&server, &s->server), 0);
    assert_int_equal(
        rpc_server_watch(s->server, llm_stage_event_fd(s->stage), llm_stage_deliver, s->stage), 0);
    if (rpc_server_listen(s->server, &addr, &(struct rpc_net_options){0}, NULL, cause))
        fail_msg("%s", cause);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

/* At a socket that is named for the first layer. */
static void start(struct stage_server *s, const struct model *m, uint32_t first, uint32_t end,
                  uint64_t kv_bytes)
{
    struct llm_stage_options options = {.file = m->file,
                                        .backend = backend,
                                        .config = {.threads = 1},
                                        .layers = {.first = first, .end = end},
                                        .kv_bytes = kv_bytes};
    listen_at(s, &options, first);
}

static void stop(struct stage_server *s)
{
    rpc_server_stop(s->server);
    pthread_join(s->thread, NULL);
    rpc_server_destroy(s->server);
    llm_stage_destroy(s->stage);
}

/* A share, for rank `rank` as the test sees it: servers do not know it before a front comes. */
static void start_share(struct stage_server *s, const struct model *m, uint32_t rank,
                        uint64_t kv_bytes)
{
    struct llm_stage_options options = {
        .file = m->file, .backend = backend, .config = {.threads = 1}, .kv_bytes = kv_bytes};
    listen_at(s, &options, 100 + rank);
}

/* ---- fronts ---- */

/* How long a server may stay away; most tests that want one back have started it. */
static uint64_t away_ns = 1;

/* "0@local,1-2@" and so on: a place that is empty is the socket of that layer. */
static void describe(const char *layers, struct llm_pipeline_config *config)
{
    char text[256] = "";
    for (const char *at = layers; *at;) {
        size_t len = strcspn(at, ","), used = strlen(text);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.*s", used ? "," : "",
                                 (int)len, at);
        if (at[len - 1] == '@')
            snprintf(text + used, sizeof text - used, "unix:%s/%d", folder, atoi(at));
        at += len + (at[len] == ',');
    }
    if (llm_pipeline_parse(text, config, why))
        fail_msg("%s: %s", text, why);
    config->away_ns = away_ns;
}

/* "2" and so on: so many ranks. */
static void describe_shares(uint32_t ranks, struct llm_shares_config *config)
{
    char text[512] = "";
    for (uint32_t r = 1; r < ranks; r++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%sunix:%s/%u", used ? "," : "", folder, 100 + r);
    }
    if (llm_shares_parse(text, config, why))
        fail_msg("%s: %s", text, why);
    config->away_ns = away_ns;
}

static int open_front(const struct model *m, const char *layers, uint32_t rows_bytes,
                      struct llm_engine **out)
{
    struct llm_pipeline_config config;
    struct llm_shares_config shares;
    bool staged = layers && strchr(layers, '@');
    struct llm_engine_options options = {.backend = backend,
                                         .threads = 1,
                                         .kv_bytes = 1 << 20,
                                         .pipeline = staged ? &config : NULL,
                                         .shares = layers && !staged ? &shares : NULL,
                                         .keep_prefixes = true};
    if (staged)
        describe(layers, &config);
    else if (layers)
        describe_shares((uint32_t)atoi(layers), &shares);
    config.rows_bytes = rows_bytes;
    return llm_engine_create(m->file, &options, out, why);
}

static struct llm_engine *front(const struct model *m, const char *layers, uint32_t rows_bytes)
{
    struct llm_engine *engine;
    if (open_front(m, layers, rows_bytes, &engine))
        fail_msg("%s: %s", layers ? layers : "alone", why);
    return engine;
}

static void states_of(struct llm_engine *engine, float *states)
{
    struct llm_seq *seq = seq_open(engine);
    struct llm_row rows[5];
    for (uint32_t i = 0; i < 5; i++)
        rows[i] = (struct llm_row){.seq = seq, .token = token_at(i)};
    assert_int_equal(llm_engine_step_states(engine, rows, 5, states, why), 0);
    llm_seq_destroy(seq);
}

static float wanted_states[5 * 256], got_states[5 * 256];

static void compute_alone(const struct model *m)
{
    struct llm_engine *alone = front(m, NULL, 0);
    forget(&wanted);
    compute(alone, &wanted);
    states_of(alone, wanted_states);
    llm_engine_destroy(alone);
}

/* Until those that were lost, and are started, are open again. */
static void await_servers(struct llm_engine *engine)
{
    while (llm_engine_reach(engine, why))
        (void)poll(NULL, 0, 1);
}

/* ---- the same bits ---- */

static void same_bits_of(const struct model *m, const char *layers, uint32_t rows_bytes)
{
    struct llm_engine *engine = front(m, layers, rows_bytes);
    forget(&got);
    compute(engine, &got);
    llm_engine_destroy(engine);
    if (memcmp(&wanted, &got, sizeof got) != 0)
        fail_msg("%s: layers %s compute other bits", llm_arch_name(llm_file_config(m->file)->arch),
                 layers);
}

/* One stage is the front's, or none is; a step of one message or of several. */
static void any_number_of_stages_computes_the_same_bits(void **state)
{
    struct model m;
    struct stage_server first, second, third, rest;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    compute_alone(&m);
    start(&first, &m, 0, 1, 0);
    start(&second, &m, 1, 2, 0);
    start(&third, &m, 2, 3, 0);
    same_bits_of(&m, "0-2@local", 0);
    same_bits_of(&m, "0@local,1@,2@", 0);
    same_bits_of(&m, "0@,1@local,2@", 7 * 1024);
    stop(&second);
    start(&rest, &m, 1, 3, 0);
    same_bits_of(&m, "0@local,1-2@", 100 * 1024);
    stop(&first);
    stop(&third);
    stop(&rest);
    start(&rest, &m, 0, 3, 0); /* the front has none */
    same_bits_of(&m, "0-2@", 0);
    stop(&rest);
    model_close(&m);
}

/* Experts, two tables of angles, none, tied outputs. */
static void every_kind_of_model_can_be_staged(void **state)
{
    static const enum llm_arch archs[] = {LLM_QWEN2MOE, LLM_GEMMA3, LLM_GPT2, LLM_GPT_OSS};
    size_t count = ONLY_THREADS ? 1 : SANITIZED ? 2 : sizeof archs / sizeof archs[0];
    (void)state;
    for (size_t i = 0; i < count; i++) {
        struct model m;
        struct stage_server rest;
        model_open(&m, archs[i], i % 2 ? LLM_F16 : LLM_Q4_K);
        compute_alone(&m);
        start(&rest, &m, 1, 3, 0);
        same_bits_of(&m, "0@local,1-2@", 0);
        stop(&rest);
        start_share(&rest, &m, 1, 0);
        same_bits_of(&m, "2", 0);
        stop(&rest);
        model_close(&m);
    }
}

/* Rank 0 gives half of what the arithmetic says, and its logits; over the connection go as many,
 * and little more. */
static void check_bytes(const struct model *m, const struct llm_engine *engine)
{
    const struct llm_config *c = llm_file_config(m->file);
    uint64_t rows = PROMPT + 2 * DECODED, half = llm_tp_layer_cost(c).values / 2, sent, received;
    uint32_t logits = llm_share_of(c->vocab, LLM_SPLIT_UNIT, 0, 2).count;
    uint64_t layers = rows * c->layers * half * sizeof(float);
    struct llm_tp_stats stats;
    llm_engine_tp_stats(engine, &stats);
    assert_int_equal(stats.bytes, layers + rows * logits * sizeof(float));
    llm_engine_traffic(engine, &sent, &received);
    assert_true(sent > layers && sent < layers + layers / 4);
    assert_true(received > layers + rows * (c->vocab - logits) * sizeof(float));
}

static void any_number_of_shares_computes_the_same_bits(void **state)
{
    struct model m;
    struct stage_server servers[3];
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    compute_alone(&m);
    for (uint32_t r = 1; r <= 3; r++)
        start_share(&servers[r - 1], &m, r, 0);
    same_bits_of(&m, "4", 0);
    same_bits_of(&m, "2", 0); /* the first server gets another share */
    same_bits_of(&m, "3", 0);
    struct llm_engine *engine = front(&m, "2", 0);
    compute(engine, &got);
    check_bytes(&m, engine);
    llm_engine_destroy(engine);
    for (uint32_t r = 0; r < 3; r++)
        stop(&servers[r]);
    model_close(&m);
}

/* Rows of logits that take several messages: nothing but the front can slow the other down. */
static void many_logits_are_gathered(void **state)
{
    enum { LARGE = 40000 };
    struct llm_synth synth = {.config = {.arch = LLM_LLAMA,
                                         .layers = 1,
                                         .width = 64,
                                         .heads = 2,
                                         .kv_heads = 2,
                                         .ffn = 64,
                                         .vocab = LARGE,
                                         .context = CONTEXT},
                              .dtype = LLM_Q8_0,
                              .seed = 5};
    struct model m = {.path = "/tmp/hawser-bits-XXXXXX"};
    struct stage_server server;
    float *logits[2];
    (void)state;
    close(mkstemp(m.path));
    llm_synth_complete(&synth.config);
    if (llm_synth_write(&synth, m.path, why) || llm_file_open(m.path, &m.file, why))
        fail_msg("%s", why);
    start_share(&server, &m, 1, 0);
    for (int i = 0; i < 2; i++) {
        struct llm_engine *engine = front(&m, i ? "2" : NULL, 0);
        struct llm_seq *seq = seq_open(engine);
        logits[i] = malloc(sizeof(float) * PROMPT * LARGE);
        assert_int_equal(feed(engine, seq, 0, PROMPT, logits[i]), 0);
        llm_seq_destroy(seq);
        llm_engine_destroy(engine);
    }
    assert_memory_equal(logits[0], logits[1], sizeof(float) * PROMPT * LARGE);
    free(logits[0]);
    free(logits[1]);
    stop(&server);
    model_close(&m);
}

/* ---- what an engine does with KV ---- */

static void check_next(struct llm_engine *engine, struct llm_seq *seq)
{
    assert_int_equal(feed(engine, seq, PROMPT, PROMPT + 1, got.logits), 0);
    assert_memory_equal(got.logits, wanted.logits + PROMPT * VOCAB, VOCAB * sizeof(float));
}

static void use_all_of(const struct model *m, const char *layers)
{
    uint32_t tokens[PROMPT];
    for (uint32_t i = 0; i < PROMPT; i++)
        tokens[i] = token_at(i);
    struct llm_engine *engine = front(m, layers, 0);
    states_of(engine, got_states);
    assert_memory_equal(wanted_states, got_states, sizeof got_states);
    struct llm_seq *seq = seq_open(engine), *alike = seq_open(engine);
    assert_int_equal(feed(engine, seq, 0, PROMPT, got.logits), 0);
    uint32_t adopted = llm_seq_adopt(alike, tokens, PROMPT);
    assert_int_equal(adopted, PROMPT / LLM_KV_POSITIONS * LLM_KV_POSITIONS);
    assert_int_equal(feed(engine, alike, adopted, PROMPT, got.logits), 0);
    check_next(engine, alike);
    for (uint32_t l = 0; l < LAYERS; l++) {
        assert_int_equal(llm_seq_read_kv(seq, l, 1, 0, PROMPT, got.kv[l]), 0);
        llm_seq_evict(seq, l);
        assert_int_equal(llm_seq_write_kv(seq, l, 0, PROMPT, got.kv[l]), 0);
    }
    check_next(engine, seq);
    llm_seq_truncate(seq, 70);
    assert_int_equal(feed(engine, seq, 70, PROMPT, got.logits), 0);
    check_next(engine, seq);
    llm_seq_destroy(seq);
    llm_seq_destroy(alike);
    seq = seq_open(engine); /* with rows of a page, also of servers that are elsewhere */
    assert_int_equal(llm_seq_adopt_part(seq, tokens, 50), 50);
    assert_int_equal(feed(engine, seq, 50, PROMPT, got.logits), 0);
    check_next(engine, seq);
    llm_seq_destroy(seq);
    llm_engine_destroy(engine);
}

static void prefixes_restored_layers_and_states_are_as_with_one_server(void **state)
{
    struct model m;
    struct stage_server rest, share;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    compute_alone(&m);
    start(&rest, &m, 1, 3, 0);
    use_all_of(&m, "0@local,1-2@");
    stop(&rest);
    start_share(&share, &m, 1, 0);
    use_all_of(&m, "2");
    stop(&share);
    model_close(&m);
}

/* A page of a layer is 32 KiB: K and V of 64 rows of 128 values. */
static void a_stage_bounds_its_own_memory(void **state)
{
    struct model m;
    struct stage_server rest;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    start(&rest, &m, 1, 3, 4 * 32 << 10);
    struct llm_engine *engine = front(&m, "0@local,1-2@", 0);
    struct llm_seq *seq = seq_open(engine);
    assert_int_equal(llm_seq_reserve(seq, 2 * LLM_KV_POSITIONS, why), 0);
    assert_int_equal(llm_seq_reserve(seq, 3 * LLM_KV_POSITIONS, why), -ENOSPC);
    assert_non_null(strstr(why, "stage 1-2@"));
    assert_non_null(strstr(why, "is full (--kv-memory)"));
    assert_int_equal(feed(engine, seq, 0, LLM_KV_POSITIONS, got.logits), 0);
    llm_seq_destroy(seq);
    llm_engine_destroy(engine);
    stop(&rest);
    model_close(&m);
}

/* ---- a stage is lost ---- */

static void a_stage_that_is_lost_is_named_and_comes_back(void **state)
{
    struct model m;
    struct stage_server second, third;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    compute_alone(&m);
    start(&second, &m, 1, 2, 0);
    start(&third, &m, 2, 3, 0);
    struct llm_engine *engine = front(&m, "0@local,1@,2@", 0);
    struct llm_seq *seq = seq_open(engine), *fresh = seq_open(engine);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(feed(engine, seq, 0, PROMPT, got.logits), 0);
        stop(&third);
        if (again) { /* it is away: no step, whoever asks */
            assert_int_equal(feed(engine, seq, PROMPT, PROMPT + 1, got.logits), -ENODATA);
            assert_non_null(strstr(why, "stage 2@unix:"));
            assert_non_null(strstr(why, "is lost"));
            assert_true(feed(engine, fresh, 0, 1, got.logits) < 0);
            assert_non_null(strstr(why, "stage 2@unix:"));
            assert_int_equal(llm_seq_length(fresh), 0);
        }
        start(&third, &m, 2, 3, 0);
        assert_int_equal(feed(engine, seq, PROMPT, PROMPT + 1, got.logits), -ENODATA);
        struct llm_layers missing = llm_seq_missing(seq);
        assert_int_equal(llm_layers_count(&missing), LAYERS);
        await_servers(engine);
        llm_seq_truncate(seq, 0);
        assert_int_equal(feed(engine, seq, 0, PROMPT, got.logits), 0);
        assert_memory_equal(wanted.logits, got.logits, sizeof(float) * PROMPT * VOCAB);
        check_next(engine, seq);
        llm_seq_truncate(seq, 0);
    }
    /* Sequences without rows lose none: the step is repeated. */
    stop(&second);
    start(&second, &m, 1, 2, 0);
    assert_int_equal(feed(engine, fresh, 0, PROMPT, got.logits), 0);
    assert_memory_equal(wanted.logits, got.logits, sizeof(float) * PROMPT * VOCAB);
    llm_seq_destroy(seq);
    llm_seq_destroy(fresh);
    llm_engine_destroy(engine);
    stop(&second);
    stop(&third);
    model_close(&m);
}

/* ---- a share is lost ---- */

static void compute_again(struct llm_engine *engine, struct llm_seq *seq)
{
    struct llm_layers missing = llm_seq_missing(seq);
    assert_int_equal(llm_layers_count(&missing), LAYERS);
    await_servers(engine);
    llm_seq_truncate(seq, 0);
    assert_int_equal(feed(engine, seq, 0, PROMPT, got.logits), 0);
    assert_memory_equal(wanted.logits, got.logits, sizeof(float) * PROMPT * VOCAB);
    check_next(engine, seq);
    llm_seq_truncate(seq, PROMPT);
}

static void a_share_that_is_lost_or_silent_is_named_and_comes_back(void **state)
{
    struct model m;
    struct stage_server first, second;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    compute_alone(&m);
    start_share(&first, &m, 1, 0);
    start_share(&second, &m, 2, 0);
    setenv("HAWSER_TP_TIMEOUT_S", "1", 1);
    struct llm_engine *engine = front(&m, "3", 0);
    unsetenv("HAWSER_TP_TIMEOUT_S");
    struct llm_seq *seq = seq_open(engine), *fresh = seq_open(engine);
    struct llm_tp_stats stats;
    assert_int_equal(feed(engine, seq, 0, PROMPT, got.logits), 0);
    /* Between steps, and it is away: no step, whoever asks. */
    stop(&second);
    assert_int_equal(feed(engine, seq, PROMPT, PROMPT + 1, got.logits), -ENODATA);
    assert_non_null(strstr(why, "tensor-parallel worker 2 at unix:"));
    assert_non_null(strstr(why, "is lost"));
    assert_true(feed(engine, fresh, 0, 1, got.logits) < 0);
    assert_non_null(strstr(why, "tensor-parallel worker 2 at unix:"));
    start_share(&second, &m, 2, 0);
    compute_again(engine, seq);
    /* Within a step: in its fifth gather. */
    second.dies = true;
    second.deaf_after = 10;
    assert_int_equal(feed(engine, seq, PROMPT, PROMPT + 1, got.logits), -ENODATA);
    assert_non_null(strstr(why, "worker 2 at"));
    assert_non_null(strstr(why, "it died"));
    second.deaf_after = 0;
    compute_again(engine, seq);
    first.deaf_after = 6;
    assert_int_equal(feed(engine, seq, PROMPT, PROMPT + 1, got.logits), -ENODATA);
    assert_non_null(strstr(why, "worker 1 at"));
    assert_non_null(strstr(why, "no answer within 1 s (HAWSER_TP_TIMEOUT_S)"));
    first.deaf_after = 0;
    compute_again(engine, seq);
    /* Noticed by reading; sequences without rows lose none. */
    stop(&first);
    start_share(&first, &m, 1, 0);
    assert_int_equal(llm_seq_read_kv(seq, 0, 1, 0, PROMPT, got.kv[0]), -EOWNERDEAD);
    assert_int_equal(feed(engine, fresh, 0, PROMPT, got.logits), 0);
    assert_memory_equal(wanted.logits, got.logits, sizeof(float) * PROMPT * VOCAB);
    llm_engine_tp_stats(engine, &stats);
    assert_true(stats.losses >= 4);
    llm_seq_destroy(seq);
    llm_seq_destroy(fresh);
    llm_engine_destroy(engine);
    stop(&first);
    stop(&second);
    model_close(&m);
}

static void a_share_that_pushes_between_steps_is_lost(void **state)
{
    struct model m;
    struct stage_server share;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    compute_alone(&m);
    start_share(&share, &m, 1, 0);
    struct llm_engine *engine = front(&m, "2", 0);
    struct llm_seq *seq = seq_open(engine);
    assert_int_equal(feed(engine, seq, 0, PROMPT, got.logits), 0);
    share.intrudes = true;
    assert_int_equal(llm_seq_read_kv(seq, 0, 1, 0, PROMPT, got.kv[0]), 0);
    assert_int_equal(feed(engine, seq, PROMPT, PROMPT + 1, got.logits), -ENODATA);
    assert_non_null(strstr(why, "tensor-parallel worker 1 at unix:"));
    assert_non_null(strstr(why, "is lost: it pushed what nobody asked for"));
    compute_again(engine, seq);
    llm_seq_destroy(seq);
    llm_engine_destroy(engine);
    stop(&share);
    model_close(&m);
}

/* A process that is stopped takes connections and says nothing.  Steps do not wait for it: they are
 * refused until it answers, and whoever holds the engine goes on with other work. */
static void nobody_waits_for_a_server_that_says_nothing(void **state)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)state;
    away_ns = 1000 * HW_SEC; /* also for a machine that stands still */
    for (int shares = 0; shares < 2; shares++) {
        struct model m;
        struct stage_server second;
        struct llm_row row = {.token = 1, .logits = true};
        model_open(&m, LLM_LLAMA, LLM_Q8_0);
        compute_alone(&m);
        shares ? start_share(&second, &m, 1, 0) : start(&second, &m, 1, 3, 0);
        struct llm_engine *engine = front(&m, shares ? "2" : "0@local,1-2@", 0);
        struct llm_seq *seq = seq_open(engine);
        assert_int_equal(feed(engine, seq, 0, PROMPT, got.logits), 0);
        stop(&second);
        assert_int_equal(feed(engine, seq, PROMPT, PROMPT + 1, got.logits), -ENODATA);
        snprintf(at.sun_path, sizeof at.sun_path, "%s/%d", folder, shares ? 101 : 1);
        (void)unlink(at.sun_path);
        int silent = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(silent, (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(listen(silent, 8), 0);
        row.seq = seq_open(engine);
        for (int i = 0; i < 3; i++)
            assert_int_equal(llm_engine_step(engine, &row, 1, got.logits, why), -EAGAIN);
        assert_int_equal(llm_engine_reach(engine, why), -EAGAIN);
        int client = accept(silent, NULL, NULL); /* it has come, and waits for our hello */
        assert_true(client >= 0);
        for (int i = 0; i < 3; i++)
            assert_int_equal(llm_engine_step(engine, &row, 1, got.logits, why), -EAGAIN);
        close(client);
        close(silent);
        (void)unlink(at.sun_path);
        shares ? start_share(&second, &m, 1, 0) : start(&second, &m, 1, 3, 0);
        await_servers(engine);
        llm_seq_truncate(seq, 0);
        assert_int_equal(feed(engine, seq, 0, PROMPT, got.logits), 0);
        assert_memory_equal(wanted.logits, got.logits, sizeof(float) * PROMPT * VOCAB);
        llm_seq_destroy(row.seq);
        llm_seq_destroy(seq);
        llm_engine_destroy(engine);
        stop(&second);
        model_close(&m);
    }
    away_ns = 1;
}

/* Of three ranks the last one is full: the others give back what they mapped. */
static void shares_map_at_all_ranks_or_at_none(void **state)
{
    struct model m;
    struct stage_server first, second;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    compute_alone(&m);
    start_share(&first, &m, 1, 0);
    start_share(&second, &m, 2, 13 * 16 << 10); /* two heads of four, 64 rows, K and V */
    struct llm_engine *engine = front(&m, "3", 0);
    struct llm_seq *seq = seq_open(engine);
    assert_int_equal(feed(engine, seq, 0, PROMPT, got.logits), 0);
    struct llm_seq *other = seq_open(engine);
    int rc = 0;
    for (uint32_t rows = 1; rows <= CONTEXT && rc == 0; rows += LLM_KV_POSITIONS)
        rc = llm_seq_reserve(other, rows, why);
    assert_int_equal(rc, -ENOSPC);
    assert_non_null(strstr(why, "worker 2 at"));
    assert_non_null(strstr(why, "is full (--kv-memory)"));
    check_next(engine, seq);
    llm_seq_destroy(other);
    llm_seq_destroy(seq);
    llm_engine_destroy(engine);
    stop(&first);
    stop(&second);
    model_close(&m);
}

/* ---- refusals ---- */

static void refused(const struct model *m, const char *layers, int status, const char *text)
{
    struct llm_engine *engine;
    assert_int_equal(open_front(m, layers, 0, &engine), status);
    if (!strstr(why, text))
        fail_msg("'%s' does not say '%s'", why, text);
}

static void who_is_no_stage_of_the_model_is_refused(void **state)
{
    struct model m, other;
    struct stage_server rest, last;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    model_open(&other, LLM_LLAMA, LLM_F16);
    refused(&m, "0@local,1-2@", -ENOENT, "stage 1-2@unix:");
    start(&rest, &m, 1, 3, 0);
    refused(&other, "0@local,1-2@", -ESTALE, "other bytes: give both servers the same file");
    start(&last, &m, 2, 3, 0);
    refused(&m, "0@local,1@,2@", -ESTALE, "it has layers 1-2, not 1-1");
    stop(&last);
    refused(&m, "0@local,1-3@", -EINVAL, "layer 3; the model has layers 0 to 2");
    struct llm_engine *engine = front(&m, "0@local,1-2@", 0);
    refused(&m, "0@local,1-2@", -EBUSY, "/1: it has another front");
    llm_engine_destroy(engine);
    llm_engine_destroy(front(&m, "0@local,1-2@", 0)); /* the place is free again */
    stop(&rest);
    model_close(&other);
    model_close(&m);
}

static void who_has_no_share_of_the_model_is_refused(void **state)
{
    struct model m, other;
    struct stage_server share, stage;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    model_open(&other, LLM_LLAMA, LLM_F16);
    refused(&m, "2", -ENOENT, "tensor-parallel worker 1 at unix:");
    start_share(&share, &m, 1, 0);
    refused(&other, "2", -ESTALE, "other bytes: give both servers the same file");
    refused(&m, "5", -EINVAL, "--tp 4 or less");
    struct llm_engine *engine = front(&m, "2", 0);
    refused(&m, "2", -EBUSY, "it has another front");
    llm_engine_destroy(engine);
    stop(&share);
    listen_at(&stage,
              &(struct llm_stage_options){.file = m.file,
                                          .backend = backend,
                                          .config = {.threads = 1},
                                          .layers = {.first = 1, .end = 3}},
              101);
    refused(&m, "2", -ENOSYS, "start it with --model FILE --tp-share");
    stop(&stage);
    model_close(&other);
    model_close(&m);
}

static void bad_peers_are_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "no server is named"},
        {",", "no server is named"},
        {"h:1,:x:y", "':x:y'"},
        {"h:1,g:1,h:1", "'h:1' is named twice"},
        {"h,h:28100", "'h:28100' is named twice"},
        {"a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "more than 16 servers"},
    };
    struct llm_shares_config c;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int rc = llm_shares_parse(bad[i].text, &c, why);
        if (rc != -EINVAL || !strstr(why, bad[i].why))
            fail_msg("%s: %d, %s", bad[i].text, rc, why);
    }
    assert_int_equal(llm_shares_parse("h:1,[::1]:2", &c, why), 0);
    assert_int_equal(c.count, 2);
    assert_int_equal(c.addrs[1].port, 2);
}

static void bad_stages_are_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "each stage has a place"},
        {"0-3,4-7@local", "each stage has a place"},
        {"x@local", "'x' is no run of layers"},
        {"3-1@local", "'3-1' is no run of layers"},
        {"0-@local", "'0-' is no run of layers"},
        {"0-99999@local", "is no run of layers"},
        {"0-3@local,4-7@:x:y", "':x:y'"},
        {"0-3@local,5-7@local", "layer 4 has none"},
        {"0-3@local,3-7@local", "layer 3 has two"},
        {"1-7@local", "layer 0 has none"},
        {"0-3@local,4-5@h:1,6-7@local", "2 stages are local; one at most can be"},
        {"0-6@local", "layer 7 has none"},
        {"0-8@local", "layer 8; the model has layers 0 to 7"},
        {"5-8", "layer 8; the model has layers 0 to 7"},
    };
    struct llm_pipeline_config c;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int rc = llm_pipeline_parse(bad[i].text, &c, why);
        if (rc == 0)
            rc = llm_pipeline_check(&c, 8, why);
        if (rc != -EINVAL || !strstr(why, bad[i].why))
            fail_msg("%s: %d, %s", bad[i].text, rc, why);
    }
    assert_int_equal(llm_pipeline_parse("4-7", &c, why), 0);
    assert_true(c.is_stage);
    assert_int_equal(llm_pipeline_check(&c, 8, why), 0);
    assert_int_equal(llm_pipeline_parse("0-3@h:1,4@local,5-7@[::1]:2", &c, why), 0);
    assert_int_equal(llm_pipeline_check(&c, 8, why), 0);
    assert_int_equal(c.stages[2].layers.first, 5);
    assert_int_equal(c.stages[2].addr.port, 2);
    assert_true(c.stages[1].layers.is_local && !c.stages[2].layers.is_local);
}

/* ---- messages ---- */

static int send_bytes(struct llm_remote *r, uint32_t method, const struct wire_enc *e)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)wire_enc_data(e),
                        .iov_len = wire_enc_len(e)};
    struct wire_dec answer;
    return llm_remote_exchange(r, method, &iov, 1, &answer, why);
}

static int send_slabs(struct llm_remote *r, uint32_t method, uint32_t a, uint32_t b)
{
    struct wire_enc e;
    uint8_t bytes[32];
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    llm_stage_slabs_put(&e, (uint32_t[]){a, b}, a == b ? 1 : 2);
    return send_bytes(r, method, &e);
}

static int send_row(struct llm_remote *r, uint32_t page)
{
    static uint32_t zeros[2];
    static float rope[32], x[256];
    struct llm_batch batch = {.rows = 1,
                              .positions = zeros,
                              .seqs = zeros,
                              .seq_count = 1,
                              .page_first = zeros,
                              .pages = (uint32_t[]){page, page + 1},
                              .page_count = 1,
                              .rope = rope,
                              .rope_pairs = 16,
                              .rope_tables = 1};
    struct llm_stage_part part = {
        .batch = &batch, .rows = 1, .end_layer = 2, .wanted = zeros, .wanted_count = 1};
    struct wire_enc e;
    wire_enc_init(&e, 1 << 20);
    llm_stage_step_put(&e, &part);
    wire_put_bytes(&e, x, sizeof x);
    int rc = send_bytes(r, LLM_STAGE_STEP, &e);
    wire_enc_fini(&e);
    return rc;
}

/* What a step names must be mapped, and nobody may write before he has opened. */
static void a_stage_checks_what_a_front_says(void **state)
{
    struct model m;
    struct stage_server rest;
    struct llm_remote *r;
    struct llm_pipeline_config config;
    struct rpc_client_options options = {0};
    struct llm_stage_open open = {.first = 1, .end = 3, .row_values = 128, .pages = 64, .run = 4};
    uint8_t bytes[64], again[64];
    struct wire_enc e;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    start(&rest, &m, 1, 3, 0);
    describe("0@local,1-2@", &config);
    if (llm_remote_open(&config.stages[1].addr, &(struct rpc_net_options){0}, &options,
                        UINT64_C(60) * 1000000000, &r, why))
        fail_msg("%s", why);
    assert_int_equal(send_slabs(r, LLM_STAGE_MAP, 0, 1), -EPERM);
    llm_tp_hash(m.file, &open.size, open.hash);
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    llm_stage_open_put(&e, &open);
    struct wire_enc cut = e;
    wire_enc_trim(&cut, wire_enc_len(&e) - 1);
    assert_int_equal(send_bytes(r, LLM_STAGE_OPEN, &cut), -EPROTO);
    open.run = 3;
    wire_enc_init_fixed(&cut, again, sizeof again);
    llm_stage_open_put(&cut, &open);
    assert_int_equal(send_bytes(r, LLM_STAGE_OPEN, &cut), -EPROTO);
    assert_int_equal(send_bytes(r, LLM_STAGE_OPEN, &e), 0);
    assert_int_equal(send_row(r, 4), -EPROTO);
    assert_int_equal(send_slabs(r, LLM_STAGE_MAP, 1, 1), 0);
    assert_int_equal(send_row(r, 4), 0);
    assert_int_equal(send_row(r, 7), -EPROTO); /* the second layer's page is in the next slab */
    assert_int_equal(send_row(r, UINT32_MAX), -EPROTO);
    assert_int_equal(send_slabs(r, LLM_STAGE_UNMAP, 1, 1), 0);
    assert_int_equal(send_row(r, 4), -EPROTO);
    assert_int_equal(send_slabs(r, LLM_STAGE_MAP, 1, 16), -EPROTO); /* 16 slabs, 0 to 15 */
    assert_int_equal(send_slabs(r, LLM_STAGE_MAP, 1, 2), -EPERM);   /* that ended the front */
    llm_remote_close(r);
    stop(&rest);
    model_close(&m);
}

/* The model has no embedding for the position after its context. */
static void a_share_has_no_positions_past_a_learned_context(void **state)
{
    enum { PAGES = CONTEXT / LLM_KV_POSITIONS + 1 };
    struct model m;
    struct stage_server share;
    struct llm_remote *r;
    struct llm_shares_config config;
    struct rpc_client_options options = {0};
    struct llm_stage_open open = {
        .end = LAYERS, .row_values = 256, .pages = 64, .run = 4, .rank = 1, .ranks = 2};
    static uint32_t zeros[1], pages[LAYERS * PAGES];
    struct llm_batch batch = {.rows = 1,
                              .positions = (uint32_t[]){CONTEXT},
                              .seqs = zeros,
                              .seq_count = 1,
                              .page_first = zeros,
                              .pages = pages,
                              .page_count = PAGES,
                              .rope_tables = 1};
    struct llm_stage_part part = {.batch = &batch, .rows = 1, .end_layer = LAYERS};
    struct wire_enc e;
    (void)state;
    model_open(&m, LLM_GPT2, LLM_Q8_0);
    start_share(&share, &m, 1, 0);
    describe_shares(2, &config);
    if (llm_remote_open(&config.addrs[0], &(struct rpc_net_options){0}, &options,
                        UINT64_C(60) * HW_SEC, &r, why))
        fail_msg("%s", why);
    llm_tp_hash(m.file, &open.size, open.hash);
    wire_enc_init(&e, 1 << 20);
    llm_stage_open_put(&e, &open);
    assert_int_equal(send_bytes(r, LLM_STAGE_SHARE, &e), 0);
    assert_int_equal(send_slabs(r, LLM_STAGE_MAP, 0, 0), 0);
    wire_enc_reset(&e);
    llm_stage_step_put(&e, &part);
    wire_put_u32(&e, 0); /* a token */
    assert_int_equal(send_bytes(r, LLM_STAGE_STEP, &e), -EPROTO);
    wire_enc_fini(&e);
    llm_remote_close(r);
    stop(&share);
    model_close(&m);
}

/* A front without pings, as one whose address has changed: another one is refused while the first
 * may be there. */
static void a_front_that_is_silent_gives_way(void **state)
{
    struct model m;
    struct stage_server rest;
    struct llm_remote *r;
    struct llm_pipeline_config config;
    struct rpc_client_options options = {.config = {.heartbeat_ns = HW_NEVER}};
    struct llm_stage_open open = {.first = 1, .end = 3, .row_values = 128, .pages = 64, .run = 4};
    uint8_t bytes[64];
    struct wire_enc e;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    start(&rest, &m, 1, 3, 0);
    describe("0@local,1-2@", &config);
    if (llm_remote_open(&config.stages[1].addr, &(struct rpc_net_options){0}, &options,
                        UINT64_C(60) * 1000000000, &r, why))
        fail_msg("%s", why);
    llm_tp_hash(m.file, &open.size, open.hash);
    wire_enc_init_fixed(&e, bytes, sizeof bytes);
    llm_stage_open_put(&e, &open);
    assert_int_equal(send_bytes(r, LLM_STAGE_OPEN, &e), 0);
    refused(&m, "0@local,1-2@", -EBUSY, "it has another front");
    ahead_ns += RPC_RESUME_TOLD_NS;
    llm_engine_destroy(front(&m, "0@local,1-2@", 0));
    int rc = send_slabs(r, LLM_STAGE_MAP, 1, 1);
    assert_true(rc == -ESHUTDOWN || rc == -ECONNRESET);
    llm_remote_close(r);
    stop(&rest);
    model_close(&m);
}

static void ignore_reply(void *user, int status, const struct rpc_msg *reply)
{
    (void)user, (void)status, (void)reply;
}

static void send_async(struct llm_remote *r, uint32_t method, const struct wire_enc *e)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)wire_enc_data(e),
                        .iov_len = wire_enc_len(e)};
    struct rpc_send send = {.method = method, .iov = &iov, .iov_count = 1};
    assert_int_equal(rpc_client_call_async(llm_remote_client(r), &send, ignore_reply, NULL), 0);
}

/* It opens a share, begins a step and leaves without waiting for an answer; in every second round
 * it also sends more parts than a front can be ahead. */
static void a_front_that_leaves_at_once_harms_nobody(void **state)
{
    struct model m;
    struct stage_server share;
    struct llm_shares_config config;
    struct rpc_client_options options = {0};
    struct llm_stage_open open = {
        .end = 3, .row_values = 128, .pages = 64, .run = 4, .rank = 1, .ranks = 2};
    static uint32_t zeros[2];
    static float rope[32];
    struct llm_batch batch = {.rows = 1,
                              .positions = zeros,
                              .seqs = zeros,
                              .seq_count = 1,
                              .page_first = zeros,
                              .pages = (uint32_t[]){4, 5, 6},
                              .page_count = 1,
                              .rope = rope,
                              .rope_pairs = 16,
                              .rope_tables = 1};
    struct llm_stage_part part = {.batch = &batch, .rows = 1, .end_layer = 3};
    struct wire_enc e;
    (void)state;
    model_open(&m, LLM_LLAMA, LLM_Q8_0);
    compute_alone(&m);
    start_share(&share, &m, 1, 0);
    describe_shares(2, &config);
    llm_tp_hash(m.file, &open.size, open.hash);
    wire_enc_init(&e, 1 << 20);
    for (uint32_t round = 0; round < 20; round++) {
        struct llm_remote *r;
        if (llm_remote_open(&config.addrs[0], &(struct rpc_net_options){0}, &options,
                            UINT64_C(60) * HW_SEC, &r, why))
            fail_msg("%s", why);
        open.ranks = 2 + round % 3 / 2; /* the share is read again now and then */
        wire_enc_reset(&e);
        llm_stage_open_put(&e, &open);
        send_async(r, LLM_STAGE_SHARE, &e);
        wire_enc_reset(&e);
        llm_stage_slabs_put(&e, (uint32_t[]){1}, 1);
        send_async(r, LLM_STAGE_MAP, &e);
        wire_enc_reset(&e);
        llm_stage_step_put(&e, &part);
        wire_put_u32(&e, 0); /* a token */
        send_async(r, LLM_STAGE_STEP, &e);
        for (int i = 0; i < 6 && round % 2; i++)
            assert_int_equal(rpc_client_post(llm_remote_client(r),
                                             &(struct rpc_send){.method = LLM_STAGE_GATHER}),
                             0);
        assert_int_equal(rpc_client_flush(llm_remote_client(r)), 0);
        llm_remote_close(r);
    }
    wire_enc_fini(&e);
    same_bits_of(&m, "2", 0);
    stop(&share);
    model_close(&m);
}

int main(int argc, char **argv)
{
    if (argc == 2)
        backend = argv[1];
    if (!mkdtemp(folder))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_stages_computes_the_same_bits),
        cmocka_unit_test(any_number_of_shares_computes_the_same_bits),
        cmocka_unit_test(many_logits_are_gathered),
        cmocka_unit_test(every_kind_of_model_can_be_staged),
        cmocka_unit_test(prefixes_restored_layers_and_states_are_as_with_one_server),
        cmocka_unit_test(a_stage_bounds_its_own_memory),
        cmocka_unit_test(a_stage_that_is_lost_is_named_and_comes_back),
        cmocka_unit_test(a_share_that_is_lost_or_silent_is_named_and_comes_back),
        cmocka_unit_test(a_share_that_pushes_between_steps_is_lost),
        cmocka_unit_test(shares_map_at_all_ranks_or_at_none),
        cmocka_unit_test(nobody_waits_for_a_server_that_says_nothing),
        cmocka_unit_test(who_is_no_stage_of_the_model_is_refused),
        cmocka_unit_test(who_has_no_share_of_the_model_is_refused),
        cmocka_unit_test(bad_peers_are_refused),
        cmocka_unit_test(bad_stages_are_refused),
        cmocka_unit_test(a_stage_checks_what_a_front_says),
        cmocka_unit_test(a_share_has_no_positions_past_a_learned_context),
        cmocka_unit_test(a_front_that_is_silent_gives_way),
        cmocka_unit_test(a_front_that_leaves_at_once_harms_nobody),
    };
    const struct CMUnitTest on_gpu[] = {
        cmocka_unit_test(prefixes_restored_layers_and_states_are_as_with_one_server),
    };
    int failed = argc == 2 ? cmocka_run_group_tests(on_gpu, NULL, NULL)
                           : cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
