/* Evicted and restored KV as a worker's clients see it: tokens do not change, bytes are counted by
 * kind, and a store that loses, garbles, stalls or ends costs only time. */
#include "unit.h"

#include "failing.h"
#include "worker_server.h"

#include "llm/worker/impl.h"
#include "reference.h"

enum {
    STORE = 64 << 20,
    KV_MEMORY = 8 << 20,
};

static _Thread_local char why[LLM_WHY_CHARS];
static uint64_t row_bytes; /* of one row of one layer */

/* What is evicted is fetched: whether that is quicker than computing it is the machine's to say. */
static struct llm_worker_options plain_options(void)
{
    return (struct llm_worker_options){.file = reference.file,
                                       .engine = {.threads = 1, .kv_bytes = KV_MEMORY},
                                       .upload_bytes = 64 << 20,
                                       .untimed = true,
                                       .shadow_ops = &llm_shadow_memory,
                                       .shadow = {.bytes = STORE}};
}

/* ---- a KV daemon in a thread ---- */

struct daemon {
    char dir[64], socket[96];
    struct kv_host *host;
    pthread_t thread;
};

static void *run_daemon(void *user)
{
    kv_host_run(user);
    return NULL;
}

/* put_lasts_ns: 0: the daemon's default. */
static void daemon_start_with(struct daemon *d, uint64_t put_lasts_ns)
{
    char cause[RPC_WHY_CHARS] = "";
    snprintf(d->dir, sizeof d->dir, "/tmp/hawser-wkv-XXXXXX");
    assert_non_null(mkdtemp(d->dir));
    snprintf(d->socket, sizeof d->socket, "%s/kvd", d->dir);
    struct kv_host_options options = reference_daemon(d->socket, STORE);
    options.blocks.put_lasts_ns = put_lasts_ns;
    if (kv_host_create(&options, &d->host, cause))
        fail_msg("%s", cause);
    assert_int_equal(pthread_create(&d->thread, NULL, run_daemon, d->host), 0);
}

static void daemon_start(struct daemon *d)
{
    daemon_start_with(d, 0);
}

static void daemon_stop(struct daemon *d)
{
    kv_host_stop(d->host);
    pthread_join(d->thread, NULL);
    kv_host_destroy(d->host);
    rmdir(d->dir);
}

static struct llm_worker_options daemon_options(const struct daemon *d)
{
    struct llm_worker_options options = plain_options();
    options.shadow_ops = &llm_shadow_kvd;
    options.shadow = (struct llm_shadow_config){.socket = d->socket};
    return options;
}

/* ---- runs ---- */

static struct llm_mode *open_mode(const char *name, struct llm_remote *remote)
{
    struct llm_mode *m;
    struct llm_mode_config config = {.file = reference.file,
                                     .engine = {.threads = 1},
                                     .sampling = reference_sampling,
                                     .remote = remote};
    if (llm_mode_open(llm_mode_find(name), &config, &m, why))
        fail_msg("%s: %s", name, why);
    return m;
}

static void begin(struct llm_mode *m)
{
    uint32_t token;
    if (llm_mode_prefill(m, reference.prompt, PROMPT, &token, why))
        fail_msg("%s", why);
    assert_int_equal(token, reference.expected[0]);
}

static void go_on(struct llm_mode *m, uint32_t from, uint32_t to)
{
    for (uint32_t i = from, got; i < to; i++) {
        uint32_t token;
        if (llm_mode_decode(m, 1, &token, &got, why))
            fail_msg("%s", why);
        assert_int_equal(token, reference.expected[i]);
    }
}

static void evict_last(struct llm_mode *m, uint32_t k)
{
    struct llm_layers layers = {0};
    for (uint32_t l = LAYERS - k; l < LAYERS; l++)
        llm_layers_add(&layers, l);
    if (llm_mode_evict(m, &layers, why))
        fail_msg("%s", why);
}

static struct llm_mode_figures figures_of(struct llm_mode *m)
{
    struct llm_mode_figures f;
    assert_int_equal(llm_mode_figures(m, &f, why), 0);
    return f;
}

/* A worker with one client. */
struct pair {
    struct worker_server server;
    struct llm_remote *remote;
    struct llm_mode *mode;
};

static struct llm_mode *pair_open(struct pair *p, const struct llm_worker_options *options,
                                  const char *mode)
{
    server_start(&p->server, options);
    p->remote = server_join(&p->server);
    p->mode = open_mode(mode, p->remote);
    return p->mode;
}

static void pair_close(struct pair *p)
{
    llm_mode_close(p->mode);
    llm_remote_close(p->remote);
    server_stop(&p->server);
}

/* ---- what travels ---- */

struct expectation {
    const char *mode;
    bool whole, packed, computed;
};

static void check_mode(struct worker_server *h, const struct expectation *e, uint32_t k)
{
    struct llm_remote *remote = server_join(h);
    struct llm_mode *m = open_mode(e->mode, remote);
    begin(m);
    go_on(m, 1, 3); /* 152 rows */
    evict_last(m, k);
    go_on(m, 3, STEPS);
    struct llm_mode_figures f = figures_of(m);
    uint64_t layers = e->computed ? 0 : e->whole && k ? LAYERS : k, rows = PROMPT + 2;
    assert_int_equal(f.kv_layers, layers);
    assert_int_equal(f.kv_plain, layers * rows * row_bytes);
    assert_int_equal(f.kv_computed, e->computed && k ? rows : 0);
    /* Of each layer two chunks went and came, and 24 rows stayed here; what was there already, from
     * the runs before, was not sent again. */
    uint64_t came = layers * (rows * row_bytes + 2 * 16),
             went = layers * (2 * 64 * row_bytes + 2 * 16);
    uint64_t kind = e->whole ? f.kv_regular : f.kv_delta;
    assert_int_equal(e->whole ? f.kv_delta : f.kv_regular, 0);
    if (e->packed)
        assert_in_range(kind, layers ? 1 : 0, layers ? came + went - 1 : 0);
    else
        assert_in_range(kind, layers ? 1 : 0, came + went);
    llm_mode_close(m);
    llm_remote_close(remote);
}

static void every_mode_recovers_in_its_way(void **state)
{
    (void)state;
    static const struct expectation modes[] = {
        {.mode = "remote_cache", .whole = true},
        {.mode = "remote_cache_compressed", .whole = true, .packed = true},
        {.mode = "remote_cache_delta_raw"},
        {.mode = "remote_cache_delta_compressed", .packed = true},
        {.mode = "remote_cache_recompute", .computed = true},
        {.mode = "semantic"},
    };
    struct worker_server h;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct llm_worker_options options = plain_options();
        server_start(&h, &options);
        for (uint32_t k = 0; k <= LAYERS; k += 2)
            check_mode(&h, &modes[i], k);
        server_stop(&h);
    }
}

struct fetched {
    uint8_t *rows[LAYERS];
    uint64_t bytes;
};

static int keep_rows(void *user, uint32_t layer, const void *rows, uint64_t bytes)
{
    struct fetched *f = user;
    f->rows[layer] = malloc(bytes);
    assert_non_null(f->rows[layer]);
    memcpy(f->rows[layer], rows, bytes);
    f->bytes = bytes;
    return 0;
}

static struct llm_request prefill_request(void)
{
    return (struct llm_request){
        .method = LLM_METHOD_PREFILL_HANDLE, .tokens = reference.prompt, .token_count = PROMPT};
}

static void begin_by_handle(struct llm_remote *remote, uint8_t handle[LLM_HANDLE_BYTES])
{
    struct llm_request request = prefill_request();
    struct wire_dec d;
    assert_int_equal(llm_remote_call(remote, &request, LLM_LOGITS, &d, why), 0);
    wire_get_copy(&d, handle, LLM_HANDLE_BYTES);
}

static void layers_are_fetched_by_mask(void **state)
{
    (void)state;
    struct worker_server h;
    struct llm_worker_options options = plain_options();
    struct llm_layers some = {.words = {0x15}}, out = {.words = {0x3}};
    struct fetched f = {0};
    uint8_t handle[LLM_HANDLE_BYTES];
    uint32_t missing, length = 0;
    server_start(&h, &options);
    struct llm_remote *remote = server_join(&h);
    assert_int_equal(
        llm_remote_set_recovery(
            remote, (struct llm_eviction_policy){LLM_RECOVER_DELTA, LLM_PACK_ALWAYS}, why),
        0);
    begin_by_handle(remote, handle);
    assert_int_equal(llm_remote_evict(remote, handle, &out, &missing, why), 0);
    assert_int_equal(missing, 2);
    assert_int_equal(
        llm_remote_fetch_layers(remote, handle, &some, 100, row_bytes, keep_rows, &f, &length, why),
        0);
    assert_int_equal(length, PROMPT);
    assert_int_equal(f.bytes, 50 * row_bytes);
    /* As an engine here has them. */
    struct llm_engine *engine;
    struct llm_seq *seq;
    struct llm_row rows[PROMPT];
    float nothing; /* no row wants logits */
    uint8_t *want = malloc(f.bytes);
    assert_non_null(want);
    assert_int_equal(llm_engine_create(reference.file, &options.engine, &engine, why), 0);
    assert_int_equal(llm_seq_create(engine, &seq), 0);
    for (uint32_t i = 0; i < PROMPT; i++)
        rows[i] = (struct llm_row){.seq = seq, .token = reference.prompt[i]};
    assert_int_equal(llm_engine_step(engine, rows, PROMPT, &nothing, why), 0);
    for (uint32_t l = 0; l < LAYERS; l++) {
        assert_int_equal(f.rows[l] != NULL, llm_layers_has(&some, l));
        if (f.rows[l]) {
            assert_int_equal(llm_seq_read_kv(seq, l, 1, 100, PROMPT, want), 0);
            assert_memory_equal(want, f.rows[l], f.bytes);
        }
        free(f.rows[l]);
    }
    free(want);
    llm_seq_destroy(seq);
    llm_engine_destroy(engine);
    /* What cannot be is told. */
    struct llm_layers beyond = {.words = {UINT64_C(1) << LAYERS}};
    assert_int_equal(llm_remote_evict(remote, handle, &beyond, &missing, why), -ERANGE);
    handle[0] ^= 1;
    assert_int_equal(llm_remote_evict(remote, handle, &some, &missing, why), -ENOENT);
    llm_remote_close(remote);
    server_stop(&h);
}

static void without_a_store_nothing_moves_out(void **state)
{
    (void)state;
    struct worker_server h;
    struct llm_worker_options options = plain_options();
    struct llm_layers some = {.words = {1}};
    uint8_t handle[LLM_HANDLE_BYTES];
    uint32_t missing;
    options.shadow_ops = NULL;
    server_start(&h, &options);
    struct llm_remote *remote = server_join(&h);
    begin_by_handle(remote, handle);
    assert_int_equal(llm_remote_evict(remote, handle, &some, &missing, why), -EOPNOTSUPP);
    assert_non_null(strstr(why, "--shadow"));
    llm_remote_close(remote);
    server_stop(&h);
}

/* ---- rules and pressure ---- */

static void a_rule_evicts_after_every_few_tokens(void **state)
{
    (void)state;
    struct pair p;
    struct llm_worker_options options = plain_options();
    assert_int_equal(llm_evict_rule_parse("1,3-4@2", LAYERS, &options.evict), 0);
    struct llm_mode *m = pair_open(&p, &options, "semantic");
    begin(m);
    go_on(m, 1, STEPS); /* 7 rows: after the second, the fourth and the sixth */
    struct llm_mode_figures f = figures_of(m);
    assert_int_equal(f.kv_layers, 3 * 3);
    pair_close(&p);
}

/* Memory for one sequence and a half, and three of them. */
static void sequences_that_do_not_fit_take_turns(void **state)
{
    (void)state;
    enum { CLIENTS = 3 };
    struct worker_server h;
    struct llm_worker_options options = plain_options();
    struct llm_remote *remotes[CLIENTS];
    struct llm_mode *modes[CLIENTS];
    uint64_t moved = 0;
    options.engine.kv_bytes = (3 * LAYERS + LAYERS / 2) * LLM_CHUNK_ROWS * row_bytes;
    server_start(&h, &options);
    for (int i = 0; i < CLIENTS; i++) {
        remotes[i] = server_join(&h);
        modes[i] = open_mode(i ? "semantic" : "remote_cache_delta_raw", remotes[i]);
        begin(modes[i]);
    }
    for (uint32_t s = 1; s < STEPS; s++) {
        for (int i = 0; i < CLIENTS; i++)
            go_on(modes[i], s, s + 1);
    }
    for (int i = 0; i < CLIENTS; i++) {
        struct llm_mode_figures f = figures_of(modes[i]);
        moved += f.kv_layers;
        llm_mode_close(modes[i]);
        llm_remote_close(remotes[i]);
    }
    assert_true(moved >= STEPS);
    server_stop(&h);
}

static void *generate(void *user)
{
    struct llm_mode *m = user;
    begin(m);
    go_on(m, 1, STEPS);
    return NULL;
}

static void take_turns(const struct llm_shadow_ops *ops)
{
    enum { CLIENTS = 4 };
    struct worker_server h;
    struct llm_worker_options options = plain_options();
    struct llm_remote *remotes[CLIENTS];
    struct llm_mode *modes[CLIENTS];
    pthread_t threads[CLIENTS];
    options.shadow_ops = ops;
    options.engine.kv_bytes = (3 * LAYERS + LAYERS / 2) * LLM_CHUNK_ROWS * row_bytes;
    server_start(&h, &options);
    for (int i = 0; i < CLIENTS; i++) {
        remotes[i] = server_join(&h);
        modes[i] = open_mode(i % 2 ? "semantic" : "remote_cache_delta_raw", remotes[i]);
    }
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, generate, modes[i]), 0);
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < CLIENTS; i++) {
        llm_mode_close(modes[i]);
        llm_remote_close(remotes[i]);
    }
    server_stop(&h);
}

static void those_that_ask_at_once_take_turns_too(void **state)
{
    (void)state;
    take_turns(&llm_shadow_memory);
}

static _Atomic uint32_t gets;

static int get_often(struct llm_shadow_store *store, unsigned channel,
                     const struct kv_block_key *key, llm_shadow_take *take, void *user)
{
    return gets++ % 8 ? llm_shadow_memory.get(store, channel, key, take, user) : -ENOENT;
}

/* A fetch fails in a step that others want memory for, too. */
static void those_whose_rows_are_lost_take_turns(void **state)
{
    (void)state;
    struct llm_shadow_ops ops = llm_shadow_memory;
    ops.get = get_often;
    take_turns(&ops);
}

static void a_full_store_refuses_and_harms_nothing(void **state)
{
    (void)state;
    struct pair p;
    struct llm_worker_options options = plain_options();
    struct llm_layers all = llm_layers_first(LAYERS);
    options.shadow.bytes = 100;
    struct llm_mode *m = pair_open(&p, &options, "remote_cache_delta_raw");
    begin(m);
    assert_int_equal(llm_mode_evict(m, &all, why), -ENOSPC);
    go_on(m, 1, STEPS);
    pair_close(&p);
}

/* ---- others ---- */

/* A store that stops answering until the test lets it go on, or its time limit passes. */
static pthread_mutex_t stall_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stall_wake = PTHREAD_COND_INITIALIZER;
static bool stalls, times_out; /* (stall_lock) */

static int stall(void)
{
    pthread_mutex_lock(&stall_lock);
    while (stalls)
        pthread_cond_wait(&stall_wake, &stall_lock);
    int rc = times_out ? -ETIMEDOUT : 0;
    pthread_mutex_unlock(&stall_lock);
    return rc;
}

static void stall_set(bool on, bool ends_in_time_out)
{
    pthread_mutex_lock(&stall_lock);
    stalls = on;
    times_out = ends_in_time_out;
    pthread_cond_broadcast(&stall_wake);
    pthread_mutex_unlock(&stall_lock);
}

static int stall_put(struct llm_shadow_store *store, unsigned channel,
                     const struct kv_block_key *key, const void *bytes, uint32_t len)
{
    int rc = stall();
    return rc ? rc : llm_shadow_memory.put(store, channel, key, bytes, len);
}

static int stall_get(struct llm_shadow_store *store, unsigned channel,
                     const struct kv_block_key *key, llm_shadow_take *take, void *user)
{
    int rc = stall();
    return rc ? rc : llm_shadow_memory.get(store, channel, key, take, user);
}

static int stall_has(struct llm_shadow_store *store, unsigned channel,
                     const struct kv_block_key *keys, uint32_t count, bool *there)
{
    int rc = stall();
    return rc ? rc : llm_shadow_memory.has(store, channel, keys, count, there);
}

/* A worker that is turned by hand. */
struct rig {
    struct llm_worker w;
    struct llm_client clients[2];
};

static int rig_open(struct rig *r, const struct llm_worker_options *options)
{
    *r = (struct rig){.w = {.options = *options}};
    r->w.options.sequences = LLM_SEQUENCES_MAX;
    r->w.options.tokens = CONTEXT;
    r->w.options.batch = LLM_WORKER_BATCH_MAX;
    r->w.counts = r->w.own_counts;
    llm_jobs_init(&r->w.arrived);
    llm_jobs_init(&r->w.running);
    llm_jobs_init(&r->w.done);
    int rc = llm_worker_kv_open(&r->w, why);
    return rc ? rc : llm_worker_load_served(&r->w, why);
}

static void rig_close(struct rig *r)
{
    llm_worker_unload(&r->w);
    llm_worker_kv_close(&r->w);
}

static void ask(struct rig *r, int client, struct llm_job *job, const struct llm_request *request)
{
    *job = (struct llm_job){.client = &r->clients[client], .request = *request};
    wire_enc_init(&job->answer, WIRE_MESSAGE_MAX);
    llm_jobs_append(&r->w.arrived, job);
}

static void turn(struct rig *r)
{
    llm_worker_admit(&r->w);
    llm_worker_step(&r->w, NULL);
}

static bool is_done(struct rig *r, const struct llm_job *job)
{
    for (const struct llm_job *j = r->w.done.first; j; j = j->next) {
        if (j == job)
            return true;
    }
    return false;
}

/* Asks and turns until it is answered; the job's status. */
static int call(struct rig *r, int client, struct llm_job *job, const struct llm_request *request)
{
    ask(r, client, job, request);
    while (!is_done(r, job))
        turn(r);
    llm_jobs_init(&r->w.done);
    return job->status;
}

static int begin_by_hand(struct rig *r, int client, uint8_t handle[LLM_HANDLE_BYTES])
{
    struct llm_request request = reference_request();
    struct llm_job job;
    struct wire_dec d;
    int rc = call(r, client, &job, &request);
    wire_dec_init(&d, wire_enc_data(&job.answer), wire_enc_len(&job.answer));
    wire_get_copy(&d, handle, LLM_HANDLE_BYTES);
    wire_enc_fini(&job.answer);
    return rc;
}

static int evict_by_hand(struct rig *r, int client, const uint8_t handle[LLM_HANDLE_BYTES])
{
    struct llm_request request = {.method = LLM_METHOD_EVICT_KV,
                                  .layers = llm_layers_first(LAYERS)};
    struct llm_job job;
    memcpy(request.handle, handle, LLM_HANDLE_BYTES);
    int rc = call(r, client, &job, &request);
    wire_enc_fini(&job.answer);
    return rc;
}

/* Tokens from the second on; how many. */
static uint32_t check_tokens(struct llm_job *job)
{
    struct wire_dec d;
    uint32_t i = 0;
    wire_dec_init(&d, wire_enc_data(&job->answer), wire_enc_len(&job->answer));
    for (; wire_dec_left(&d) > 0; i++)
        assert_int_equal(wire_get_varint(&d), reference.expected[i + 1]);
    return i;
}

/* Requests that need the store, each in its own way, beside one that does not. */
static void stall_beside_another(bool ends_in_time_out)
{
    static struct rig r;
    struct llm_shadow_ops ops = llm_shadow_memory;
    struct llm_worker_options options = plain_options();
    struct llm_request decode = {.method = LLM_METHOD_DECODE_SEMANTIC, .value = 2};
    struct llm_request evict = {.method = LLM_METHOD_EVICT_KV, .layers = llm_layers_first(LAYERS)};
    struct llm_request resume = {.method = LLM_METHOD_RESUME};
    struct llm_request prompt = reference_request();
    struct llm_job jobs[4], other;
    uint8_t handle[LLM_HANDLE_BYTES];
    ops.shared = true; /* evicted sequences leave records */
    ops.put = stall_put;
    ops.get = stall_get;
    ops.has = stall_has;
    options.shadow_ops = &ops;
    stall_set(false, false);
    assert_int_equal(rig_open(&r, &options), 0);
    assert_int_equal(begin_by_hand(&r, 1, handle), 0); /* the one beside it */
    assert_int_equal(begin_by_hand(&r, 0, handle), 0);
    assert_int_equal(evict_by_hand(&r, 0, handle), 0);
    assert_int_equal(begin_by_hand(&r, 0, evict.handle), 0);
    r.w.options.share_prefixes = true;
    stall_set(true, false);
    ask(&r, 0, &jobs[0], &decode); /* fetches layers */
    ask(&r, 0, &jobs[1], &evict);  /* stores rows and a record */
    ask(&r, 0, &jobs[2], &resume); /* looks for a record */
    ask(&r, 0, &jobs[3], &prompt); /* looks for rows */
    decode.value = STEPS - 1;
    ask(&r, 1, &other, &decode);
    for (int turns = 0; !is_done(&r, &other); turns++) {
        assert_true(turns < 3 * STEPS);
        turn(&r);
    }
    assert_int_equal(check_tokens(&other), STEPS - 1);
    for (int i = 0; i < 4; i++)
        assert_false(is_done(&r, &jobs[i]));
    stall_set(false, ends_in_time_out);
    for (int i = 0; i < 4; i++) {
        while (!is_done(&r, &jobs[i]))
            turn(&r);
    }
    /* The sequence goes on, with rows that were fetched or computed anew. */
    assert_int_equal(check_tokens(&jobs[0]), 2);
    assert_true(r.clients[0].moved.computed_rows > 0 || !ends_in_time_out);
    assert_int_equal(jobs[1].status == 0, !ends_in_time_out);
    assert_int_equal(jobs[2].status, -ENOENT);
    assert_int_equal(jobs[3].status, 0);
    for (int i = 0; i < 4; i++)
        wire_enc_fini(&jobs[i].answer);
    wire_enc_fini(&other.answer);
    rig_close(&r);
    stall_set(false, false);
}

static void a_stalled_store_holds_up_nobody_else(void **state)
{
    (void)state;
    stall_beside_another(false);
    stall_beside_another(true);
}

/* One life of a worker; an error, never a wrong token, where an allocation fails. */
static int short_life(struct rig *r)
{
    struct llm_request request = {.method = LLM_METHOD_DECODE_SEMANTIC, .value = 2};
    struct llm_worker_options options = plain_options();
    struct llm_job job;
    uint8_t handle[LLM_HANDLE_BYTES];
    int rc = rig_open(r, &options);
    if (rc == 0)
        rc = begin_by_hand(r, 0, handle);
    int evicted = rc ? 0 : evict_by_hand(r, 0, handle);
    if (rc == 0) {
        rc = call(r, 0, &job, &request);
        if (rc == 0) /* fewer when memory was out after the first */
            assert_in_range(check_tokens(&job), 1, 2);
        wire_enc_fini(&job.answer);
    }
    rig_close(r);
    return rc ? rc : evicted;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static struct rig r;
    int rc = -ENOMEM;
    for (long allowed = 0; rc; allowed++) {
        assert_true(allowed < 5000);
        allocations_left = allowed;
        counting = true;
        rc = short_life(&r);
        counting = false;
        assert_true(rc == 0 || rc == -ENOMEM || rc == -EAGAIN);
    }
}

/* ---- prefixes ---- */

static void a_prompt_starts_from_what_another_computed(void **state)
{
    (void)state;
    struct worker_server h;
    struct llm_worker_options options = plain_options();
    uint64_t values[LLM_METRICS];
    options.share_prefixes = true;
    server_start(&h, &options);
    for (int i = 0; i < 2; i++) {
        struct llm_remote *remote = server_join(&h);
        struct llm_mode *m = open_mode("semantic", remote);
        begin(m);
        go_on(m, 1, STEPS);
        assert_int_equal(llm_remote_metrics(remote, values, why), 0);
        assert_int_equal(values[LLM_METRIC_KV_SHARED], i ? 128 : 0);
        assert_int_equal(values[LLM_METRIC_TOKENS], PROMPT + STEPS - 1 - (i ? 128 : 0));
        llm_mode_close(m);
        llm_remote_close(remote);
    }
    server_stop(&h);
}

/* ---- two workers, one store ---- */

static void another_worker_goes_on(void **state)
{
    (void)state;
    struct daemon d;
    struct worker_server first, second;
    daemon_start(&d);
    struct llm_worker_options options = daemon_options(&d);
    struct llm_layers some = {.words = {0x5}}, all = llm_layers_first(LAYERS);
    uint8_t handle[LLM_HANDLE_BYTES];
    uint64_t id = 99, values[LLM_METRICS];
    uint32_t missing, length = 0;
    server_start(&first, &options);
    server_start(&second, &options);
    struct llm_remote *remote = server_join(&first);
    reference_begin(remote, handle, &id);
    reference_go_on(remote, id, 1, 3);
    assert_int_equal(llm_remote_evict(remote, handle, &all, &missing, why), 0);
    reference_go_on(remote, id, 3, 5);
    assert_int_equal(llm_remote_evict(remote, handle, &some, &missing, why), 0);
    llm_remote_close(remote);
    server_stop(&first);
    remote = server_join(&second);
    assert_int_equal(llm_remote_resume(remote, handle, &id, &length, why), 0);
    assert_int_equal(length, PROMPT + 4);
    reference_go_on(remote, id, 5, STEPS);
    assert_int_equal(llm_remote_metrics(remote, values, why), 0);
    assert_int_equal(values[LLM_METRIC_KV_RESTORED], LAYERS);
    /* Two chunks of each layer were there; the rows past them were computed. */
    assert_int_equal(values[LLM_METRIC_TOKENS], PROMPT + 4 - 128 + 3);
    handle[3] ^= 1;
    assert_int_equal(llm_remote_resume(remote, handle, &id, &length, why), -ENOENT);
    llm_remote_close(remote);
    server_stop(&second);
    daemon_stop(&d);
}

/* A sequence of another worker, all of whose layers are at the daemon: the next token of it here;
 * what came back. */
static struct llm_client_kv_cache take_over(struct rig *r, const uint8_t handle[LLM_HANDLE_BYTES])
{
    struct llm_request resume = {.method = LLM_METHOD_RESUME};
    struct llm_request decode = {.method = LLM_METHOD_DECODE_SEMANTIC, .value = 1};
    struct llm_job job;
    memcpy(resume.handle, handle, LLM_HANDLE_BYTES);
    assert_int_equal(call(r, 0, &job, &resume), 0);
    wire_enc_fini(&job.answer);
    assert_int_equal(call(r, 0, &job, &decode), 0);
    assert_int_equal(check_tokens(&job), 1);
    wire_enc_fini(&job.answer);
    return r->clients[0].moved;
}

static void a_worker_knows_what_computing_costs_before_it_computed(void **state)
{
    (void)state;
    static struct rig first, second;
    struct daemon d;
    uint8_t handle[LLM_HANDLE_BYTES];
    daemon_start(&d);
    struct llm_worker_options options = daemon_options(&d);
    options.untimed = false;
    assert_int_equal(rig_open(&first, &options), 0);
    assert_int_equal(begin_by_hand(&first, 0, handle), 0);
    assert_int_equal(evict_by_hand(&first, 0, handle), 0);

    assert_int_equal(rig_open(&second, &options), 0);
    assert_true(second.w.served[0]->row_ns > 0);
    second.w.served[0]->row_ns = 1; /* nothing fetches that quickly */
    struct llm_client_kv_cache moved = take_over(&second, handle);
    assert_int_equal(moved.figures.restored_layers, 1);
    assert_int_equal(moved.computed_rows, PROMPT / 64 * 64);
    rig_close(&second);

    options.untimed = true;
    assert_int_equal(rig_open(&second, &options), 0);
    assert_int_equal(second.w.served[0]->row_ns, 0);
    moved = take_over(&second, handle);
    assert_int_equal(moved.figures.restored_layers, LAYERS);
    assert_int_equal(moved.computed_rows, 0);
    rig_close(&second);
    rig_close(&first);
    daemon_stop(&d);
}

/* ---- daemons that fail ---- */

/* A client all of whose layers are at the daemon. */
static void pair_open_evicted(struct pair *p, struct daemon *d)
{
    daemon_start(d);
    struct llm_worker_options options = daemon_options(d);
    struct llm_mode *m = pair_open(p, &options, "remote_cache_delta_raw");
    begin(m);
    go_on(m, 1, 3);
    evict_last(m, LAYERS);
}

/* The rest of it, with nothing that the daemon has. */
static void finish_by_computing(struct pair *p)
{
    go_on(p->mode, 3, STEPS);
    assert_int_equal(figures_of(p->mode).kv_computed, PROMPT + 2);
    pair_close(p);
}

static void a_daemon_that_is_gone_costs_computing(void **state)
{
    (void)state;
    struct daemon d;
    struct pair p;
    pair_open_evicted(&p, &d);
    daemon_stop(&d);
    finish_by_computing(&p);
}

/* The daemon's thread has written it through another mapping, where ThreadSanitizer sees no order.
 */
__attribute__((no_sanitize("thread"))) static void damage(volatile uint8_t *arena)
{
    for (size_t i = 32; i < 1 << 20; i += 256)
        arena[i] ^= 0x10;
}

static void a_corrupt_block_is_never_used(void **state)
{
    (void)state;
    struct daemon d;
    struct pair p;
    pair_open_evicted(&p, &d);
    damage(kv_host_arena(d.host));
    finish_by_computing(&p);
    daemon_stop(&d);
}

/* What expired was not stored, so the rows must not be freed. */
static void a_put_that_expired_is_not_taken_for_stored(void **state)
{
    (void)state;
    struct daemon d;
    struct llm_shadow *shadow;
    uint16_t values[32] = {1, 2, 3};
    struct kv_block_key key = {.len = 3, .bytes = "key"};
    struct llm_shadow_task task = {.key = key, .values = values, .bytes = sizeof values};
    bool there = true;
    daemon_start_with(&d, 1);
    struct llm_shadow_config config = {.socket = d.socket};
    if (llm_shadow_create(&llm_shadow_kvd, &config, &shadow, why))
        fail_msg("%s", why);
    llm_shadow_store(shadow, &task);
    while (!llm_shadow_is_done(shadow, &task))
        sched_yield();
    assert_int_equal(task.status, -ETIMEDOUT);
    assert_false(llm_shadow_takes(shadow));
    llm_shadow_destroy(shadow);
    if (llm_shadow_create(&llm_shadow_kvd, &config, &shadow, why))
        fail_msg("%s", why);
    assert_int_equal(llm_shadow_has(shadow, &key, 1, &there), 0);
    assert_false(there);
    llm_shadow_destroy(shadow);
    daemon_stop(&d);
}

static void a_daemon_that_is_not_there_is_named(void **state)
{
    (void)state;
    struct llm_worker_options options = plain_options();
    struct llm_worker *worker;
    options.shadow_ops = &llm_shadow_kvd;
    options.shadow.socket = "/tmp/hawser-no-such-daemon";
    assert_true(llm_worker_create(&options, &worker, why) < 0);
    assert_non_null(strstr(why, "hawser-no-such-daemon"));
}

/* ---- what all of it is compared with ---- */

static int set_up(void **state)
{
    (void)state;
    struct llm_engine *engine;
    struct llm_engine_options options = {.threads = 1};
    reference_open();
    reference_generate();
    assert_int_equal(llm_engine_create(reference.file, &options, &engine, why), 0);
    row_bytes = llm_kv_row_bytes(engine);
    llm_engine_destroy(engine);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    reference_close();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mode_recovers_in_its_way),
        cmocka_unit_test(layers_are_fetched_by_mask),
        cmocka_unit_test(without_a_store_nothing_moves_out),
        cmocka_unit_test(a_rule_evicts_after_every_few_tokens),
        cmocka_unit_test(sequences_that_do_not_fit_take_turns),
        cmocka_unit_test(those_that_ask_at_once_take_turns_too),
        cmocka_unit_test(those_whose_rows_are_lost_take_turns),
        cmocka_unit_test(a_full_store_refuses_and_harms_nothing),
        cmocka_unit_test(a_stalled_store_holds_up_nobody_else),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_prompt_starts_from_what_another_computed),
        cmocka_unit_test(another_worker_goes_on),
        cmocka_unit_test(a_worker_knows_what_computing_costs_before_it_computed),
        cmocka_unit_test(a_daemon_that_is_gone_costs_computing),
        cmocka_unit_test(a_corrupt_block_is_never_used),
        cmocka_unit_test(a_put_that_expired_is_not_taken_for_stored),
        cmocka_unit_test(a_daemon_that_is_not_there_is_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
