/* The worker behind a server, and clients of every kind: the modes agree, bytes are booked, handles
 * and limits hold, and what a client leaves behind is freed. */
#include "unit.h"

#include "failing.h"

#include "base/clock.h"
#include "base/counter.h"
#include "image.h"
#include "llm/modes/mode.h"
#include "worker_server.h"

#include <sys/socket.h>

enum { PROMPT = 20, STEPS = 6, SEQUENCES = 3, TOKENS = 100 };

static struct image model;
static struct llm_file *file;
static char why[LLM_WHY_CHARS];
static uint32_t prompt[PROMPT], expected[STEPS];

/* ---- a server in a thread ---- */

static struct llm_worker_options options_of(uint64_t grace_ns, uint64_t upload_bytes)
{
    return (struct llm_worker_options){.file = file,
                                       .engine = {.threads = 1, .kv_bytes = 8 << 20},
                                       .grace_ns = grace_ns,
                                       .upload_bytes = upload_bytes,
                                       .sequences = SEQUENCES,
                                       .tokens = TOKENS,
                                       .downloads = true};
}

static void start(struct worker_server *h, uint64_t grace_ns, uint64_t upload_bytes)
{
    struct llm_worker_options options = options_of(grace_ns, upload_bytes);
    server_start(h, &options);
}

/* ---- runs ---- */

static struct llm_mode *open_mode(const char *mode, struct llm_remote *remote, struct llm_wish wish,
                                  uint32_t tokens_per_request)
{
    struct llm_mode *m;
    struct llm_mode_config config = {.file = file,
                                     .engine = {.threads = 1},
                                     .sampling = {.temperature = 0.7f, .top_k = 9, .top_p = 1},
                                     .remote = remote,
                                     .wish = wish,
                                     .tokens_per_request = tokens_per_request};
    assert_int_equal(llm_mode_open(llm_mode_find(mode), &config, &m, why), 0);
    return m;
}

static void generate(struct llm_mode *m, uint32_t tokens[STEPS])
{
    assert_int_equal(llm_mode_prefill(m, prompt, PROMPT, tokens, why), 0);
    for (uint32_t done = 1, got; done < STEPS; done += got)
        assert_int_equal(llm_mode_decode(m, STEPS - done, tokens + done, &got, why), 0);
}

static void check_mode(struct worker_server *h, const char *mode, struct llm_wish wish,
                       uint32_t tokens_per_request)
{
    uint32_t tokens[STEPS];
    struct llm_remote *remote = server_join(h);
    struct llm_mode *m = open_mode(mode, remote, wish, tokens_per_request);
    generate(m, tokens);
    assert_memory_equal(tokens, expected, sizeof tokens);
    struct llm_counters counters;
    assert_int_equal(llm_remote_counters(remote, &counters, why), 0);
    const struct llm_byte_account *there = &counters.link;
    const struct llm_byte_account *here = llm_remote_account(remote);
    const struct rpc_stats *stats = llm_remote_stats(remote);
    assert_int_equal(llm_byte_account_total(here),
                     hw_counter_load(&stats->bytes_sent) + hw_counter_load(&stats->bytes_received));
    /* The worker has seen all that was sent but for a heartbeat that is still on the way. */
    uint64_t sent = 0, seen = 0;
    for (int c = 0; c < LLM_CLASSES; c++) {
        sent += here->sent[c];
        seen += there->received[c];
        assert_int_equal(here->sent[c] > 0, there->received[c] > 0);
    }
    assert_in_range(seen, sent - 64, sent);
    llm_mode_close(m);
    llm_remote_close(remote);
}

static void check_all_modes(struct worker_server *h)
{
    struct llm_wish tokens = {.kind = LLM_WISH_TOKENS};
    check_mode(h, "naive", tokens, 0);
    check_mode(h, "remote_cache", tokens, 0);
    check_mode(h, "semantic", tokens, 1);
    check_mode(h, "semantic", tokens, 4);
    check_mode(h, "semantic", (struct llm_wish){.kind = LLM_WISH_TOP_K, .top_k = 9}, 0);
    check_mode(h, "semantic", (struct llm_wish){.kind = LLM_WISH_LOGITS}, 0);
}

static void every_mode_generates_the_same(void **state)
{
    (void)state;
    struct worker_server h;
    start(&h, 0, UINT64_C(1) << 30);
    check_all_modes(&h);
    server_stop(&h);
}

/* By the worker's own, as above, only while the server's sleeps and says so. */
static void answers_go_by_the_servers_thread_too(void **state)
{
    (void)state;
    struct worker_server h;
    struct llm_worker_options options = options_of(0, UINT64_C(1) << 30);
    options.no_lend = true;
    server_start(&h, &options);
    check_all_modes(&h);
    server_stop(&h);
}

/* ---- bytes ---- */

static int append(void *user, const void *bytes, size_t size)
{
    struct image *image = user;
    image->bytes = realloc(image->bytes, image->size + size);
    memcpy(image->bytes + image->size, bytes, size);
    image->size += size;
    return 0;
}

static int refuse(void *user, const void *bytes, size_t size)
{
    (void)user;
    (void)bytes;
    (void)size;
    return -EIO;
}

static void the_served_file_can_be_fetched(void **state)
{
    (void)state;
    struct worker_server h;
    struct image got = {0};
    struct wire_dec d;
    start(&h, 0, 0);
    struct llm_remote *remote = server_join(&h);
    assert_int_equal(llm_remote_fetch_file(remote, append, &got, why), 0);
    assert_int_equal(got.size, model.size);
    assert_memory_equal(got.bytes, model.bytes, model.size);
    assert_true(llm_remote_account(remote)->received[LLM_WEIGHTS] >= model.size);
    assert_int_equal(llm_remote_fetch_file(remote, refuse, NULL, why), -EIO);
    struct llm_request r = {
        .method = LLM_METHOD_DOWNLOAD_WEIGHTS, .offset = model.size, .length = 1};
    why[0] = '\0';
    assert_int_equal(llm_remote_call(remote, &r, LLM_CONTROL, &d, why), -ERANGE);
    r = (struct llm_request){.method = LLM_METHOD_DOWNLOAD_KV};
    assert_int_equal(llm_remote_call(remote, &r, LLM_CONTROL, &d, why), -ERANGE); /* none */
    image_free(&got);
    llm_remote_close(remote);
    server_stop(&h);
}

/* More than it takes is not sent, and it hears so. */
static void a_client_with_little_room_is_answered(void **state)
{
    (void)state;
    struct llm_synth synth = image_tiny(LLM_LLAMA);
    struct llm_worker_options options = options_of(0, 0);
    struct rpc_client_options small = {.config = {.window_bytes = RPC_WINDOW_MIN}};
    struct llm_request r = {.method = LLM_METHOD_DOWNLOAD_WEIGHTS, .length = RPC_WINDOW_MIN / 2};
    struct worker_server h;
    struct llm_remote *remote;
    struct llm_file *large;
    struct wire_dec d;
    synth.config.vocab = 8192;
    struct image image = image_synth(&synth);
    assert_true(image.size >= RPC_WINDOW_MIN);
    assert_int_equal(llm_file_parse(image.bytes, image.size, &large, why), 0);
    options.file = large;
    server_start(&h, &options);
    assert_int_equal(
        llm_remote_open(&h.addr, &(struct rpc_net_options){0}, &small, 60 * HW_SEC, &remote, why),
        0);
    assert_int_equal(llm_remote_call(remote, &r, LLM_WEIGHTS, &d, why), 0);
    r.length = RPC_WINDOW_MIN;
    assert_int_equal(llm_remote_call(remote, &r, LLM_WEIGHTS, &d, why), -EMSGSIZE);
    llm_remote_close(remote);
    server_stop(&h);
    llm_file_close(large);
    image_free(&image);
}

static void a_semantic_step_is_small(void **state)
{
    (void)state;
    struct worker_server h;
    uint32_t token, got;
    start(&h, 0, 0);
    struct llm_remote *remote = server_join(&h);
    struct llm_mode *m =
        open_mode("semantic", remote, (struct llm_wish){.kind = LLM_WISH_TOKENS}, 1);
    assert_int_equal(llm_mode_prefill(m, prompt, PROMPT, &token, why), 0);
    struct llm_byte_account before = *llm_remote_account(remote);
    assert_int_equal(before.sent[LLM_WEIGHTS], 0);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(llm_mode_decode(m, 1, &token, &got, why), 0);
    const struct llm_byte_account *after = llm_remote_account(remote);
    assert_in_range(after->sent[LLM_TOKENS] - before.sent[LLM_TOKENS], 1, 16 * STEPS);
    assert_in_range(after->received[LLM_TOKENS] - before.received[LLM_TOKENS], 1, 16 * STEPS);
    llm_mode_close(m);
    llm_remote_close(remote);
    server_stop(&h);
}

/* ---- bad requests ---- */

static int call(struct llm_remote *remote, const struct llm_request *request, struct wire_dec *d)
{
    why[0] = '\0';
    return llm_remote_call(remote, request, LLM_CONTROL, d, why);
}

static void says(const char *text)
{
    if (!strstr(why, text))
        fail_msg("'%s' does not say '%s'", why, text);
}

static void unknown_handles_are_named(void **state)
{
    (void)state;
    struct worker_server h;
    struct wire_dec d;
    start(&h, 0, 0);
    struct llm_remote *remote = server_join(&h);
    struct llm_request r = {.method = LLM_METHOD_DECODE_HANDLE, .handle = {0xab, 0xcd}, .value = 1};
    assert_int_equal(call(remote, &r, &d), -ENOENT);
    says("abcd0000-0000-0000-0000-000000000000");
    r = (struct llm_request){.method = LLM_METHOD_RELEASE, .handle = {0x12}};
    assert_int_equal(call(remote, &r, &d), -ENOENT);
    says("12000000-");
    r = (struct llm_request){.method = LLM_METHOD_DECODE_SEMANTIC, .id = 77, .value = 1};
    assert_int_equal(call(remote, &r, &d), -ENOENT);
    says("no sequence 77");
    llm_remote_close(remote);
    server_stop(&h);
}

static int prefill(struct llm_remote *remote, uint32_t count, struct llm_request *decode)
{
    uint32_t tokens[2 * TOKENS] = {0};
    struct wire_dec d;
    struct llm_request r = {
        .method = LLM_METHOD_PREFILL_HANDLE, .tokens = tokens, .token_count = count};
    int rc = call(remote, &r, &d);
    *decode = (struct llm_request){.method = LLM_METHOD_DECODE_HANDLE, .value = 1};
    if (rc == 0)
        wire_get_copy(&d, decode->handle, sizeof decode->handle);
    return rc;
}

static void limits_hold(void **state)
{
    (void)state;
    struct worker_server h;
    struct wire_dec d;
    struct llm_request decode, reset = {.method = LLM_METHOD_RESET};
    uint8_t bytes[100] = {0};
    start(&h, 0, sizeof bytes - 1);
    struct llm_remote *remote = server_join(&h);
    assert_int_equal(prefill(remote, TOKENS + 1, &decode), -EMSGSIZE);
    for (int i = 0; i < SEQUENCES; i++)
        assert_int_equal(prefill(remote, 1, &decode), 0);
    assert_int_equal(prefill(remote, 1, &decode), -ENOSPC);
    says("3 sequences");
    assert_int_equal(call(remote, &reset, &d), 0);
    assert_int_equal(prefill(remote, 1, &decode), 0);
    decode.value = llm_file_config(file)->vocab; /* a token past the vocabulary */
    assert_int_equal(call(remote, &decode, &d), -EINVAL);
    /* An upload past the limit is told by the call that needs it, and by that one only. */
    struct llm_request load = {.method = LLM_METHOD_LOAD_WEIGHTS};
    assert_int_equal(llm_remote_upload(remote, LLM_UPLOAD_WEIGHTS, bytes, sizeof bytes, why), 0);
    assert_int_equal(call(remote, &load, &d), -ENOSPC);
    says("exceeds what this worker keeps");
    assert_int_equal(llm_remote_upload(remote, LLM_UPLOAD_WEIGHTS, bytes, 50, why), 0);
    assert_int_equal(call(remote, &load, &d), -EPROTO); /* fits, and is no model */
    assert_int_equal(call(remote, &load, &d), -EINVAL); /* nothing was sent */
    llm_remote_close(remote);
    server_stop(&h);
}

static void a_client_has_its_share_and_no_more(void **state)
{
    (void)state;
    struct worker_server h;
    struct wire_dec d;
    struct llm_worker_options options = options_of(0, 10000);
    struct llm_request decode, load = {.method = LLM_METHOD_LOAD_WEIGHTS};
    uint8_t bytes[101] = {0};
    options.share = 1; /* percent */
    options.sequences = LLM_SEQUENCES_MAX;
    server_start(&h, &options);
    struct llm_remote *remote = server_join(&h), *other = server_join(&h);
    int rc = prefill(remote, 1, &decode), begun = rc == 0;
    assert_int_equal(rc, 0); /* the first is never refused */
    while (rc == 0 && begun++ < LLM_SEQUENCES_MAX)
        rc = prefill(remote, 1, &decode);
    assert_int_equal(rc, -ENOSPC);
    says("its share of the KV memory");
    assert_int_equal(prefill(other, 1, &decode), 0);
    assert_int_equal(llm_remote_upload(remote, LLM_UPLOAD_WEIGHTS, bytes, 101, why), 0);
    assert_int_equal(call(remote, &load, &d), -ENOSPC);
    says("100 bytes of one");
    assert_int_equal(llm_remote_upload(remote, LLM_UPLOAD_WEIGHTS, bytes, 60, why), 0);
    assert_int_equal(llm_remote_upload(remote, LLM_UPLOAD_KV, bytes, 60, why), 0);
    assert_int_equal(call(remote, &load, &d), -ENOSPC); /* both count */
    assert_int_equal(llm_remote_upload(remote, LLM_UPLOAD_WEIGHTS, bytes, 60, why), 0);
    assert_int_equal(call(remote, &load, &d), -EPROTO); /* fits, and is no model */
    llm_remote_close(remote);
    llm_remote_close(other);
    server_stop(&h);
}

static void a_prompt_past_the_context_is_refused(void **state)
{
    (void)state;
    struct worker_server h;
    uint32_t context = llm_file_config(file)->context, next;
    assert_true(context < TOKENS);
    start(&h, 0, UINT64_C(1) << 30);
    struct llm_remote *remote = server_join(&h);
    struct llm_mode *m =
        open_mode("semantic", remote, (struct llm_wish){.kind = LLM_WISH_TOKENS}, 1);
    uint32_t tokens[TOKENS] = {0};
    assert_int_equal(llm_mode_prefill(m, tokens, context + 1, &next, why), -ERANGE);
    says("the context has");
    /* And a full context ends a run in order: what there is comes, then the error. */
    uint32_t got, more[STEPS];
    llm_mode_close(m);
    m = open_mode("semantic", remote, (struct llm_wish){.kind = LLM_WISH_TOKENS}, STEPS);
    assert_int_equal(llm_mode_prefill(m, tokens, context - 2, &next, why), 0);
    assert_int_equal(llm_mode_decode(m, STEPS, more, &got, why), 0);
    assert_int_equal(got, 2);
    assert_int_equal(llm_mode_decode(m, STEPS, more, &got, why), -ERANGE);
    llm_mode_close(m);
    llm_remote_close(remote);
    server_stop(&h);
}

/* ---- clients that go ---- */

static uint64_t metric(struct llm_remote *remote, enum llm_metric which)
{
    uint64_t values[LLM_METRICS];
    assert_int_equal(llm_remote_metrics(remote, values, why), 0);
    return values[which];
}

/* Breaks the protocol, which is how a client vanishes without a goodbye. */
static void vanish(struct worker_server *h, struct llm_request *decode)
{
    struct rpc_client *client;
    struct rpc_client_options options = {0};
    char cause[RPC_WHY_CHARS];
    uint8_t body[] = {1};
    struct iovec iov = {body, sizeof body};
    struct rpc_send send = {.method = LLM_METHOD_PREFILL_HANDLE, .iov = &iov, .iov_count = 1};
    struct rpc_answer answer;
    struct rpc_transport *transport;
    assert_int_equal(rpc_dial(&h->addr, &(struct rpc_net_options){0}, &transport, cause), 0);
    assert_int_equal(rpc_client_create(transport, &options, &client, cause), 0);
    assert_int_equal(rpc_client_call(client, &send, &answer), 0);
    assert_true(answer.len > LLM_HANDLE_BYTES);
    *decode = (struct llm_request){.method = LLM_METHOD_DECODE_HANDLE, .value = 1};
    memcpy(decode->handle, answer.data, LLM_HANDLE_BYTES);
    rpc_answer_fini(&answer);
    int fds[RPC_TRANSPORT_FDS];
    assert_int_equal(transport->ops->descriptors(transport, fds), 1);
    assert_int_equal(shutdown(fds[0], SHUT_RDWR), 0);
    rpc_client_destroy(client);
}

static void a_client_that_comes_back_goes_on(void **state)
{
    (void)state;
    struct worker_server h;
    struct wire_dec d;
    struct llm_request decode;
    start(&h, HW_SEC * 3600, 0);
    vanish(&h, &decode);
    struct llm_remote *remote = server_join(&h);
    while (metric(remote, LLM_METRIC_ORPHANS) == 0)
        ; /* until the server has noticed */
    assert_int_equal(metric(remote, LLM_METRIC_SEQUENCES), 1);
    assert_int_equal(call(remote, &decode, &d), 0);
    assert_int_equal(metric(remote, LLM_METRIC_ORPHANS), 0);
    assert_int_equal(metric(remote, LLM_METRIC_OWN_SEQUENCES), 1);
    llm_remote_close(remote);
    server_stop(&h);
}

static void what_a_vanished_client_left_is_freed(void **state)
{
    (void)state;
    struct worker_server h;
    struct wire_dec d;
    struct llm_request decode;
    start(&h, 20 * HW_MS, 0);
    vanish(&h, &decode);
    struct llm_remote *remote = server_join(&h);
    while (metric(remote, LLM_METRIC_SEQUENCES) > 0)
        ; /* until its grace is over */
    assert_int_equal(call(remote, &decode, &d), -ENOENT);
    llm_remote_close(remote);
    server_stop(&h);
}

static void a_goodbye_frees_at_once(void **state)
{
    (void)state;
    struct worker_server h;
    struct llm_request decode;
    start(&h, HW_SEC * 3600, 0);
    struct llm_remote *first = server_join(&h), *second = server_join(&h);
    assert_int_equal(prefill(first, 5, &decode), 0);
    assert_int_equal(metric(second, LLM_METRIC_SEQUENCES), 1);
    llm_remote_close(first);
    while (metric(second, LLM_METRIC_SEQUENCES) > 0)
        ; /* until the server has read the goodbye; with an hour of grace nothing else ends it */
    llm_remote_close(second);
    server_stop(&h);
}

/* ---- many at once ---- */

static void *client_run(void *user)
{
    uint32_t tokens[STEPS];
    struct llm_remote *remote = server_join(user);
    struct llm_mode *m =
        open_mode("semantic", remote, (struct llm_wish){.kind = LLM_WISH_TOKENS}, 3);
    bool same = true;
    for (int i = 0; i < SEQUENCES; i++) {
        generate(m, tokens);
        same = same && memcmp(tokens, expected, sizeof tokens) == 0;
        llm_mode_close(m);
        m = open_mode("semantic", remote, (struct llm_wish){.kind = LLM_WISH_TOKENS}, 3);
    }
    llm_mode_close(m);
    llm_remote_close(remote);
    return same ? user : NULL;
}

static uint64_t counted(const char *name)
{
    uint64_t total;
    assert_int_equal(hw_counters_total(name, &total), 0);
    return total;
}

static void clients_are_computed_together(void **state)
{
    (void)state;
    enum { CLIENTS = 4 };
    struct worker_server h;
    pthread_t threads[CLIENTS];
    start(&h, 0, 0);
    uint64_t rows = counted("llm_rows"), parts = counted("llm_step_sequences");
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, client_run, &h), 0);
    for (int i = 0; i < CLIENTS; i++) {
        void *same;
        pthread_join(threads[i], &same);
        assert_non_null(same);
    }
    /* Each run has its prompt and a row for every token but the last. */
    uint64_t runs = CLIENTS * SEQUENCES;
    assert_int_equal(counted("llm_rows") - rows, runs * (PROMPT + STEPS - 1));
    assert_in_range(counted("llm_step_sequences") - parts, runs * STEPS, runs * (PROMPT + STEPS));
    server_stop(&h);
}

/* A client that goes in the middle of its text, while others are in the same steps. */
static void a_client_that_dies_harms_nobody(void **state)
{
    (void)state;
    enum { CLIENTS = 3 };
    struct worker_server h;
    pthread_t threads[CLIENTS];
    struct llm_request decode;
    start(&h, 20 * HW_MS, 0);
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, client_run, &h), 0);
    for (int i = 0; i < CLIENTS; i++)
        vanish(&h, &decode);
    for (int i = 0; i < CLIENTS; i++) {
        void *same;
        pthread_join(threads[i], &same);
        assert_non_null(same);
    }
    server_stop(&h);
}

/* ---- uploads ---- */

/* While it is shut, the worker parses no upload. */
static struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool shut;
    int waiting;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

int __real_llm_file_parse(const void *bytes, uint64_t size, struct llm_file **out, char *cause);
int __wrap_llm_file_parse(const void *bytes, uint64_t size, struct llm_file **out, char *cause);
int __wrap_llm_file_parse(const void *bytes, uint64_t size, struct llm_file **out, char *cause)
{
    pthread_mutex_lock(&gate.lock);
    gate.waiting++;
    pthread_cond_broadcast(&gate.changed);
    while (gate.shut)
        pthread_cond_wait(&gate.changed, &gate.lock);
    gate.waiting--;
    pthread_mutex_unlock(&gate.lock);
    return __real_llm_file_parse(bytes, size, out, cause);
}

static void gate_set(bool shut)
{
    pthread_mutex_lock(&gate.lock);
    gate.shut = shut;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static void gate_await(void)
{
    pthread_mutex_lock(&gate.lock);
    while (gate.waiting == 0)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

struct uploader {
    struct worker_server *server;
    const char *mode;
    struct llm_file *file;
    int rc;
};

static void *upload_main(void *user)
{
    struct uploader *u = user;
    struct llm_remote *remote = server_join(u->server);
    struct llm_mode_config config = {.file = u->file, .sampling = {.top_p = 1}, .remote = remote};
    char cause[LLM_WHY_CHARS];
    struct llm_mode *m;
    uint32_t next;
    u->rc = llm_mode_open(llm_mode_find(u->mode), &config, &m, cause);
    if (u->rc == 0) {
        u->rc = llm_mode_prefill(m, prompt, PROMPT, &next, cause);
        llm_mode_close(m);
    }
    llm_remote_close(remote);
    return NULL;
}

static void ignore(void *user, int status, const struct rpc_msg *reply)
{
    (void)user, (void)status, (void)reply;
}

/* Sends weights, asks to load them and to use them, and goes while they are parsed. */
static void vanish_while_loading(struct worker_server *h, const struct image *other)
{
    struct rpc_client *client;
    struct rpc_client_options options = {0};
    char cause[RPC_WHY_CHARS];
    struct rpc_transport *transport;
    struct llm_request upload = {.method = LLM_METHOD_UPLOAD,
                                 .upload = LLM_UPLOAD_WEIGHTS,
                                 .total = other->size,
                                 .bytes = (const uint8_t *)other->bytes,
                                 .length = (uint32_t)other->size};
    struct wire_enc e;
    uint8_t token[] = {1};
    int fds[RPC_TRANSPORT_FDS];
    assert_int_equal(rpc_dial(&h->addr, &(struct rpc_net_options){0}, &transport, cause), 0);
    assert_int_equal(rpc_client_create(transport, &options, &client, cause), 0);
    wire_enc_init(&e, LLM_REQUEST_BYTES_MAX);
    llm_request_encode(&upload, &e);
    struct iovec weights = {(void *)(uintptr_t)wire_enc_data(&e), wire_enc_len(&e)};
    struct iovec one = {token, sizeof token};
    struct rpc_send sends[] = {
        {.method = LLM_METHOD_UPLOAD, .iov = &weights, .iov_count = 1},
        {.method = LLM_METHOD_LOAD_WEIGHTS},
        {.method = LLM_METHOD_PREFILL_HANDLE, .iov = &one, .iov_count = 1},
    };
    assert_int_equal(rpc_client_post(client, &sends[0]), 0);
    for (int i = 1; i <= 2; i++)
        assert_int_equal(rpc_client_call_async(client, &sends[i], ignore, NULL), 0);
    assert_int_equal(rpc_client_flush(client), 0);
    gate_await();
    assert_int_equal(transport->ops->descriptors(transport, fds), 1);
    assert_int_equal(shutdown(fds[0], SHUT_RDWR), 0);
    rpc_client_destroy(client);
    wire_enc_fini(&e);
}

/* Others' tokens go on while a model that a client uploaded is parsed. */
static void an_upload_holds_up_nobody(void **state)
{
    (void)state;
    static const char *const modes[] = {"naive", "remote_cache"};
    struct worker_server h;
    struct llm_synth synth = image_tiny(LLM_LLAMA);
    synth.config.context = 64;
    synth.seed++; /* the worker does not serve it */
    struct image other = image_synth(&synth);
    struct uploader u = {.server = &h};
    assert_int_equal(llm_file_parse(other.bytes, other.size, &u.file, why), 0);
    start(&h, 0, UINT64_C(1) << 30);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        pthread_t thread;
        gate_set(true);
        u.mode = modes[i];
        assert_int_equal(pthread_create(&thread, NULL, upload_main, &u), 0);
        gate_await();
        check_mode(&h, "semantic", (struct llm_wish){.kind = LLM_WISH_TOKENS}, 1);
        gate_set(false);
        pthread_join(thread, NULL);
        assert_int_equal(u.rc, 0);
    }
    struct llm_remote *remote = server_join(&h);
    while (metric(remote, LLM_METRIC_MODELS) > 1)
        ; /* until the server has read the goodbye */
    gate_set(true);
    vanish_while_loading(&h, &other);
    assert_int_equal(metric(remote, LLM_METRIC_MODELS), 1);
    gate_set(false);
    check_mode(&h, "remote_cache", (struct llm_wish){.kind = LLM_WISH_TOKENS}, 0);
    while (metric(remote, LLM_METRIC_MODELS) > 1 || metric(remote, LLM_METRIC_SEQUENCES) > 0)
        ; /* what the client left was freed, or never made */
    llm_remote_close(remote);
    server_stop(&h);
    llm_file_close(u.file);
    image_free(&other);
}

/* ---- no memory ---- */

static void creation_survives_every_failure(void **state)
{
    (void)state;
    struct llm_worker_options options = {.file = file, .engine = {.threads = 1}};
    struct llm_worker *worker;
    int rc = -ENOMEM;
    for (long n = 0; rc == -ENOMEM; n++) {
        allocations_left = n;
        counting = true;
        rc = llm_worker_create(&options, &worker, why);
        counting = false;
    }
    assert_int_equal(rc, 0);
    llm_worker_destroy(worker);
}

static int open_and_generate(struct llm_remote *remote, const char *mode)
{
    struct llm_mode *m;
    struct llm_mode_config config = {.file = file, .sampling = {.top_p = 1}, .remote = remote};
    uint32_t next, got;
    int rc = llm_mode_open(llm_mode_find(mode), &config, &m, why);
    if (rc)
        return rc;
    rc = llm_mode_prefill(m, prompt, PROMPT, &next, why);
    if (rc == 0)
        rc = llm_mode_decode(m, 1, &next, &got, why);
    llm_mode_close(m);
    return rc;
}

/* A client that runs out of memory gets an error, at any point, and nothing leaks at either end. */
static void clients_survive_every_failure(void **state)
{
    (void)state;
    static const char *const modes[] = {"naive", "remote_cache", "semantic"};
    struct worker_server h;
    start(&h, 0, UINT64_C(1) << 30);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        int rc = -ENOMEM;
        for (long n = 0; rc; n++) {
            struct llm_remote *remote = server_join(&h);
            allocations_left = n;
            counting = true;
            rc = open_and_generate(remote, modes[i]);
            counting = false;
            llm_remote_close(remote);
            assert_true(n < 1000);
        }
    }
    server_stop(&h);
}

static int make_model(void **state)
{
    (void)state;
    struct llm_synth synth = image_tiny(LLM_LLAMA);
    synth.config.layers = 2;
    synth.config.context = 64;
    model = image_synth(&synth);
    if (llm_file_parse(model.bytes, model.size, &file, why))
        return -1;
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = i * 7 % synth.config.vocab;
    struct llm_mode *m = open_mode("local", NULL, (struct llm_wish){0}, 0);
    generate(m, expected);
    llm_mode_close(m);
    return 0;
}

static int drop_model(void **state)
{
    (void)state;
    llm_file_close(file);
    image_free(&model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mode_generates_the_same),
        cmocka_unit_test(answers_go_by_the_servers_thread_too),
        cmocka_unit_test(a_client_with_little_room_is_answered),
        cmocka_unit_test(a_semantic_step_is_small),
        cmocka_unit_test(the_served_file_can_be_fetched),
        cmocka_unit_test(unknown_handles_are_named),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(a_client_has_its_share_and_no_more),
        cmocka_unit_test(a_prompt_past_the_context_is_refused),
        cmocka_unit_test(a_client_that_comes_back_goes_on),
        cmocka_unit_test(what_a_vanished_client_left_is_freed),
        cmocka_unit_test(a_goodbye_frees_at_once),
        cmocka_unit_test(clients_are_computed_together),
        cmocka_unit_test(a_client_that_dies_harms_nobody),
        cmocka_unit_test(an_upload_holds_up_nobody),
        cmocka_unit_test(creation_survives_every_failure),
        cmocka_unit_test(clients_survive_every_failure),
    };
    return cmocka_run_group_tests(tests, make_model, drop_model);
}
