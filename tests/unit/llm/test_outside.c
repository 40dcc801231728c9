/* A worker that computes no model that clients send, in the place of the processes that do: what a
 * hostile client sends reaches neither its parser nor an assertion. */
#include "unit.h"

#include "image.h"
#include "worker_server.h"

#include <stdatomic.h>

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
    int error; /* of a start */
    _Atomic uint32_t starts;
};

static int start_process(void *user, const struct rpc_ep *client)
{
    struct outside *o = user;
    (void)client;
    atomic_fetch_add(&o->starts, 1);
    return o->error;
}

static void start(struct worker_server *h, const struct llm_worker_outside *outside)
{
    struct llm_worker_options options = {.file = file,
                                         .engine = {.threads = 1},
                                         .upload_bytes = UINT64_C(1) << 30,
                                         .outside = outside};
    server_start(h, &options);
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
    const struct llm_worker_outside outside = {.start = start_process, .user = &o};
    struct worker_server h;
    uint32_t token = 1;
    start(&h, &outside);
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
    };
    return cmocka_run_group_tests(tests, make_models, drop_models);
}
