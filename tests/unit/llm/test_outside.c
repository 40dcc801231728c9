/* A worker that computes no model that clients send, in the place of the processes that do: what a
 * hostile client sends reaches neither its parser nor an assertion. */
#include "unit.h"

#include "base/clock.h"
#include "base/counter.h"
#include "image.h"
#include "rpc/transport/sock.h"
#include "worker_server.h"

#include <stdatomic.h>
#include <sys/socket.h>

static struct image model, other;
static struct llm_file *file;
static char why[LLM_WHY_CHARS];
static _Atomic uint32_t parsed; /* uploads */

int __real_llm_file_parse(const void *bytes, uint64_t size, struct llm_file **out, char *cause);
int __wrap_llm_file_parse(const void *bytes, uint64_t size, struct llm_file **out, char *cause);
int __wrap_llm_file_parse(const void *bytes, uint64_t size, struct llm_file **out, char *cause)
{
    atomic_fetch_add(&parsed, 1);
    return __real_llm_file_parse(bytes, size, out, cause);
}

/* ---- the processes ---- */

struct outside {
    struct llm_worker_outside ops;
    int error;             /* of a start; 0: it gives `near` */
    int near, far;         /* a socket to a process that does nothing, and the process's end */
    uint32_t window_bytes; /* of the process; 0: the usual */
    int copy;              /* of near, as a process has that was forked meanwhile */
    bool serves;           /* in this thread: then far is its own */
    pthread_t thread;
    _Atomic uint32_t starts, stops, breaks;
};

static int start_process(void *user, const struct rpc_ep *client, uint64_t *process)
{
    struct outside *o = user;
    (void)client;
    *process = 100 + atomic_fetch_add(&o->starts, 1);
    return o->error ? o->error : o->near;
}

static void stop_process(void *user, uint64_t process, bool broken)
{
    struct outside *o = user;
    assert_int_equal(process, 100 + atomic_fetch_add(&o->stops, 1));
    atomic_fetch_add(&o->breaks, broken);
}

static void start(struct worker_server *h, struct outside *o)
{
    int ends[2];
    struct llm_worker_options options = {.file = file,
                                         .engine = {.threads = 1},
                                         .upload_bytes = UINT64_C(1) << 30,
                                         .outside = &o->ops};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    o->near = ends[0];
    o->far = ends[1];
    o->copy = dup(o->near);
    assert_true(o->copy >= 0);
    o->ops.start = start_process;
    o->ops.stop = stop_process;
    o->ops.user = o;
    server_start(h, &options);
}

static void stop(struct worker_server *h, struct outside *o)
{
    server_stop(h);
    if (atomic_load(&o->starts) == 0 || o->error)
        close(o->near);
    close(o->copy);
    if (o->serves)
        pthread_join(o->thread, NULL);
    else
        close(o->far);
}

/* ---- requests ---- */

static void post(struct llm_remote *remote, const struct llm_request *request)
{
    struct wire_enc e;
    wire_enc_init(&e, LLM_REQUEST_BYTES_MAX);
    llm_request_encode(request, &e);
    struct iovec iov = {(void *)(uintptr_t)wire_enc_data(&e), wire_enc_len(&e)};
    struct rpc_send send = {.method = request->method, .iov = &iov, .iov_count = iov.iov_len > 0};
    assert_int_equal(rpc_client_post(llm_remote_client(remote), &send), 0);
    wire_enc_fini(&e);
}

/* Waits for all that this client has sent before. */
static void settle(struct llm_remote *remote)
{
    uint64_t values[LLM_METRICS];
    assert_int_equal(llm_remote_metrics(remote, values, why), 0);
}

/* Nobody would hear what comes of it, and it must not be parsed here. */
static void a_request_that_is_no_call_is_dropped(void **state)
{
    (void)state;
    static const uint32_t methods[] = {
        LLM_METHOD_STATELESS,        LLM_METHOD_LOAD_WEIGHTS,   LLM_METHOD_FIND_WEIGHTS,
        LLM_METHOD_PREFILL_HANDLE,   LLM_METHOD_RELEASE,        LLM_METHOD_DOWNLOAD_KV,
        LLM_METHOD_PREFILL_SEMANTIC, LLM_METHOD_DECODE_HANDLE,  LLM_METHOD_METRICS,
        LLM_METHOD_DESCRIBE,         LLM_METHOD_DECODE_SEMANTIC};
    struct outside o = {.error = -EAGAIN};
    struct worker_server h;
    uint32_t token = 1;
    start(&h, &o);
    atomic_store(&parsed, 0);
    struct llm_remote *remote = server_join(&h);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct llm_request request = {.method = methods[i],
                                      .tokens = &token,
                                      .token_count = 1,
                                      .wish = {.kind = LLM_WISH_LOGITS}};
        assert_int_equal(
            llm_remote_upload(remote, LLM_UPLOAD_WEIGHTS, other.bytes, other.size, why), 0);
        post(remote, &request);
        settle(remote);
        assert_int_equal(atomic_load(&parsed), 0);
        assert_int_equal(atomic_load(&o.starts), 0);
    }
    llm_remote_close(remote);
    stop(&h, &o);
}

static void note_status(void *user, int status, const struct rpc_msg *reply)
{
    (void)reply;
    *(int *)user = status;
}

static bool is_noted(void *user)
{
    return *(int *)user != 1;
}

/* A model, and a request about it; *status is 1 until it is answered. */
static void ask_with_tokens(struct llm_remote *remote, size_t tokens, int *status)
{
    struct rpc_client *client = llm_remote_client(remote);
    static const uint8_t body[4 + RPC_WINDOW_MIN]; /* no cache, and zeros */
    struct iovec iov = {(void *)(uintptr_t)body, 4 + tokens};
    struct rpc_send send = {.method = LLM_METHOD_STATELESS, .iov = &iov, .iov_count = 1};
    *status = 1;
    assert_int_equal(llm_remote_upload(remote, LLM_UPLOAD_WEIGHTS, other.bytes, other.size, why),
                     0);
    assert_int_equal(rpc_client_call_async(client, &send, note_status, status), 0);
    assert_int_equal(rpc_client_flush(client), 0);
}

static void await(const _Atomic uint32_t *count, uint32_t least, struct llm_remote *remote)
{
    while (atomic_load(count) < least)
        settle(remote); /* the server's turns */
}

static void ask_for_own_model(struct llm_remote *remote, int *status)
{
    ask_with_tokens(remote, 1, status);
}

/* Whatever it does, and though a process that is being forked has its socket open as well. */
static void a_process_is_stopped_with_its_link(void **state)
{
    (void)state;
    struct outside o = {0};
    struct worker_server h;
    uint8_t hello[4096];
    int status;
    start(&h, &o);
    struct llm_remote *client = server_join(&h), *beside = server_join(&h);
    ask_for_own_model(client, &status);
    await(&o.starts, 1, beside);
    assert_true(read(o.far, hello, sizeof hello) > 0);
    llm_remote_close(client);
    await(&o.stops, 1, beside);
    assert_int_equal(atomic_load(&o.breaks), 0);
    assert_int_equal(write(o.far, "x", 1), 1); /* which no link is there to read */
    settle(beside);
    settle(beside);
    llm_remote_close(beside);
    stop(&h, &o);
}

/* Nothing arrives on its link, so only its deadline ends the wait. */
static void a_process_that_says_nothing_is_given_up(void **state)
{
    (void)state;
    struct outside o = {.ops.begin_ns = 50 * HW_MS};
    struct worker_server h;
    int status;
    start(&h, &o);
    struct llm_remote *remote = server_join(&h);
    ask_for_own_model(remote, &status);
    assert_int_equal(rpc_client_wait(llm_remote_client(remote), is_noted, &status, 240 * HW_SEC),
                     0);
    assert_int_equal(status, -EIO);
    await(&o.breaks, 1, remote);
    llm_remote_close(remote);
    stop(&h, &o);
}

/* Those that were passed on count like those that are computed here. */
static void requests_of_a_client_are_bounded(void **state)
{
    (void)state;
    struct outside o = {0};
    struct worker_server h;
    int statuses[LLM_WORKER_REQUESTS_MAX + 1];
    uint8_t piece[12] = {0};
    struct iovec iov = {piece, sizeof piece};
    struct rpc_send send = {.method = LLM_METHOD_DOWNLOAD_KV, .iov = &iov, .iov_count = 1};
    start(&h, &o);
    struct llm_remote *remote = server_join(&h);
    struct rpc_client *client = llm_remote_client(remote);
    ask_for_own_model(remote, &statuses[0]);
    for (int i = 1; i <= LLM_WORKER_REQUESTS_MAX; i++) {
        statuses[i] = 1;
        assert_int_equal(rpc_client_call_async(client, &send, note_status, &statuses[i]), 0);
    }
    int *last = &statuses[LLM_WORKER_REQUESTS_MAX];
    assert_int_equal(rpc_client_wait(client, is_noted, last, 240 * HW_SEC), 0);
    assert_int_equal(*last, -EBUSY);
    assert_int_equal(statuses[LLM_WORKER_REQUESTS_MAX - 1], 1);
    llm_remote_close(remote);
    stop(&h, &o);
}

/* ---- a process that answers with many bytes, at once ---- */

enum { LARGE = 4 << 20 };

static uint8_t large[LARGE];

static void answer_large(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct iovec iov = {large, sizeof large};
    struct rpc_send send = {.stream = msg->stream, .iov = &iov, .iov_count = 1};
    (void)user;
    if (msg->kind == RPC_CALL)
        assert_int_equal(rpc_reply(ep, msg, 0, &send), 0);
    rpc_release(ep, msg);
}

static void *process_main(void *user)
{
    static const struct rpc_server_ops ops = {.message = answer_large};
    struct outside *o = user;
    struct rpc_server_options options = {
        .ops = &ops,
        .config = {.takes_fds = true, .window_bytes = o->window_bytes},
        .stalled_ns = HW_NEVER,
        .until_empty = true};
    struct rpc_transport *transport;
    struct rpc_server *server;
    assert_int_equal(rpc_server_create(&options, &server), 0);
    assert_int_equal(rpc_sock_wrap(o->far, "unix", true, "server", &transport), 0);
    assert_int_equal(rpc_server_adopt(server, transport), 0);
    rpc_server_run(server);
    rpc_server_destroy(server);
    return NULL;
}

static void serve_process(struct outside *o)
{
    o->serves = true;
    assert_int_equal(pthread_create(&o->thread, NULL, process_main, o), 0);
}

static void count_answer(void *user, int status, const struct rpc_msg *reply)
{
    assert_int_equal(status, 0);
    assert_int_equal(reply->len, LARGE);
    ++*(int *)user;
}

/* Shakes hands and asks, but reads nothing behind the handshake. */
static struct rpc_ep *ask_much(struct worker_server *h, int calls, int *answered)
{
    struct rpc_config config = {.heartbeat_ns = HW_NEVER};
    struct rpc_transport *transport;
    struct rpc_ep *ep;
    uint8_t piece[12] = {0};
    struct iovec iov = {piece, sizeof piece};
    struct rpc_send send = {.method = LLM_METHOD_DOWNLOAD_KV,
                            .iov = &iov,
                            .iov_count = 1,
                            .timeout_ns = HW_NEVER}; /* busy machines take their time */
    assert_int_equal(rpc_dial(&h->addr, &(struct rpc_net_options){0}, &transport, why), 0);
    assert_int_equal(rpc_ep_create(transport, &config, &ep), 0);
    while (rpc_ep_status(ep) == -EINPROGRESS) {
        (void)rpc_poll(ep);
        (void)rpc_flush(ep);
    }
    struct wire_enc e;
    struct llm_request upload = {.method = LLM_METHOD_UPLOAD,
                                 .upload = LLM_UPLOAD_WEIGHTS,
                                 .total = 1,
                                 .bytes = piece,
                                 .length = 1};
    wire_enc_init(&e, LLM_REQUEST_BYTES_MAX);
    llm_request_encode(&upload, &e);
    struct iovec weights = {(void *)(uintptr_t)wire_enc_data(&e), wire_enc_len(&e)};
    struct rpc_send post = {.method = upload.method, .iov = &weights, .iov_count = 1};
    assert_int_equal(rpc_post(ep, &post), 0);
    wire_enc_fini(&e);
    for (int i = 0; i < calls; i++) {
        send.method = i ? LLM_METHOD_DOWNLOAD_KV : LLM_METHOD_STATELESS;
        iov.iov_len = i ? sizeof piece : 5;
        assert_int_equal(rpc_call(ep, &send, count_answer, answered, NULL), 0);
    }
    assert_int_equal(rpc_flush(ep), 0);
    return ep;
}

static void check_size(uint32_t process_window, uint32_t client_window, size_t tokens)
{
    struct outside o = {.window_bytes = process_window};
    struct rpc_client_options options = {.config = {.window_bytes = client_window}};
    struct worker_server h;
    struct llm_remote *remote;
    int status;
    start(&h, &o);
    serve_process(&o);
    assert_int_equal(llm_remote_open(&h.addr, &(struct rpc_net_options){0}, &options, 240 * HW_SEC,
                                     &remote, why),
                     0);
    ask_with_tokens(remote, tokens, &status);
    assert_int_equal(rpc_client_wait(llm_remote_client(remote), is_noted, &status, 240 * HW_SEC),
                     0);
    assert_int_equal(status, -EMSGSIZE);
    assert_int_equal(atomic_load(&o.stops), 0);
    llm_remote_close(remote);
    stop(&h, &o);
}

/* It does not pass for the end of the process, and nobody waits for ever. */
static void what_is_too_large_is_said_to_be(void **state)
{
    (void)state;
    check_size(RPC_WINDOW_MIN, 0, RPC_WINDOW_MIN);
    check_size(0, RPC_WINDOW_MIN, 1);
}

/* Received by all endpoints of this program. */
static uint64_t count_replies(void)
{
    uint64_t total;
    assert_int_equal(hw_counters_total("rpc_replies", &total), 0);
    return total;
}

/* The answers stay with the process until their client reads; then all of them come. */
static void a_client_that_does_not_read_makes_the_server_hold_little(void **state)
{
    (void)state;
    enum { CALLS = LLM_WORKER_REQUESTS_MAX, MOST = CALLS / 2, TURNS = 400 };
    struct outside o = {0};
    struct worker_server h;
    int answered = 0;
    uint64_t turns = 0;
    start(&h, &o);
    serve_process(&o);
    struct llm_remote *beside = server_join(&h);
    uint64_t before = count_replies();
    struct rpc_ep *ep = ask_much(&h, CALLS, &answered);
    while (count_replies() == before + turns) { /* but for those to the one beside */
        settle(beside);
        turns++;
    }
    for (int i = 0; i < TURNS; i++)
        settle(beside);
    assert_in_range(count_replies() - before - turns - TURNS, 1, MOST);
    while (answered < CALLS) {
        assert_true(rpc_poll(ep) >= 0);
        (void)rpc_flush(ep);
        assert_int_equal(rpc_ep_status(ep), 0);
        (void)rpc_wait(ep, HW_SEC);
    }
    rpc_ep_shutdown(ep, 0, NULL);
    rpc_ep_destroy(ep);
    await(&o.stops, 1, beside);
    llm_remote_close(beside);
    stop(&h, &o);
}

/* ---- in such a process ---- */

static int decode(struct llm_remote *remote, uint64_t id)
{
    struct llm_request request = {.method = LLM_METHOD_DECODE_SEMANTIC, .id = id, .value = 1};
    struct wire_dec answer;
    return llm_remote_call(remote, &request, LLM_TOKENS, &answer, why);
}

/* So that a sequence of another process, or of a served model, is not taken for one of this. */
static void slots_begin_where_they_are_told_to(void **state)
{
    (void)state;
    static const uint64_t first = UINT64_C(7) << 32;
    struct llm_worker_options options = {
        .file = file, .engine = {.threads = 1, .kv_bytes = 8 << 20}, .first_id = first};
    uint32_t token = 1;
    struct llm_request request = {.method = LLM_METHOD_PREFILL_SEMANTIC,
                                  .tokens = &token,
                                  .token_count = 1,
                                  .wish = {.kind = LLM_WISH_TOKENS, .sampling = {.top_p = 1}}};
    uint8_t handle[LLM_HANDLE_BYTES];
    struct worker_server h;
    struct wire_dec answer;
    server_start(&h, &options);
    struct llm_remote *remote = server_join(&h);
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(llm_remote_call(remote, &request, LLM_TOKENS, &answer, why), 0);
        wire_get_copy(&answer, handle, sizeof handle);
        assert_int_equal(wire_get_varint(&answer), first + i);
        assert_int_equal(decode(remote, i), -ENOENT);
        assert_int_equal(decode(remote, first + i), 0);
    }
    llm_remote_close(remote);
    server_stop(&h);
}

static int make_models(void **state)
{
    (void)state;
    struct llm_synth synth = image_tiny(LLM_LLAMA);
    synth.config.layers = 2;
    synth.config.context = 64;
    model = image_synth(&synth);
    synth.seed++; /* the worker does not serve it */
    other = image_synth(&synth);
    return llm_file_parse(model.bytes, model.size, &file, why) ? -1 : 0;
}

static int drop_models(void **state)
{
    (void)state;
    llm_file_close(file);
    image_free(&model);
    image_free(&other);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_that_is_no_call_is_dropped),
        cmocka_unit_test(a_process_is_stopped_with_its_link),
        cmocka_unit_test(a_process_that_says_nothing_is_given_up),
        cmocka_unit_test(requests_of_a_client_are_bounded),
        cmocka_unit_test(what_is_too_large_is_said_to_be),
        cmocka_unit_test(a_client_that_does_not_read_makes_the_server_hold_little),
        cmocka_unit_test(slots_begin_where_they_are_told_to),
    };
    return cmocka_run_group_tests(tests, make_models, drop_models);
}
