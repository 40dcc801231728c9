/* A worker that computes no model that clients send, in the place of the processes that do: what a
 * hostile client sends reaches neither its parser nor an assertion. */
#include "unit.h"

#include "base/clock.h"
#include "image.h"
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
    int error;     /* of a start; 0: it gives `near` */
    int near, far; /* a socket to a process that does nothing, and the process's end */
    int copy;      /* of near, as a process has that was forked meanwhile */
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
    close(o->far);
    close(o->copy);
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
static void ask_for_own_model(struct llm_remote *remote, int *status)
{
    struct rpc_client *client = llm_remote_client(remote);
    uint8_t body[] = {0, 0, 0, 0, 1}; /* no cache, one token */
    struct iovec iov = {body, sizeof body};
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
    };
    return cmocka_run_group_tests(tests, make_models, drop_models);
}
