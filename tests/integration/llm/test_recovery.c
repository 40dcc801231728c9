/* Processes that end or stop at the wrong moment: a worker killed in the middle of an eviction, and
 * a KV daemon that stops answering.  Tokens do not change.
 *
 * Daemon and first worker are children of the test, made before it has threads. */
#include "../../unit/llm/unit.h"

#include "../../unit/llm/worker_host.h"

#include "base/clock.h"
#include "kv/host.h"
#include "llm/modes/mode.h"
#include "llm/synth.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum {
    VOCAB = 300,
    CONTEXT = 320,
    LAYERS = 6,
    PROMPT = 150,
    STEPS = 8,
    ARENA = 32 << 20,
    PUTS_BEFORE_THE_END = 5, /* of 12 chunks; the record is one of them */
};

static struct llm_file *file;
static char why[LLM_WHY_CHARS];
static char dir[] = "/tmp/hawser-recovery-XXXXXX", kvd_socket[64], worker_socket[64];
static pid_t daemon_pid, worker_pid;
static uint32_t prompt[PROMPT], expected[STEPS];
static const struct llm_sampling sampling = {
    .temperature = 0.8f, .top_k = 20, .top_p = 1, .seed = 3};

static struct llm_worker_options worker_options(void)
{
    return (struct llm_worker_options){.file = file,
                                       .engine = {.threads = 1, .kv_bytes = 8 << 20},
                                       .upload_bytes = 16 << 20,
                                       .shadow_ops = &llm_shadow_kvd,
                                       .shadow = {.socket = kvd_socket, .timeout_ns = 300 * HW_MS}};
}

/* ---- children ---- */

static void run_daemon(int ready)
{
    struct kv_host *host;
    char cause[RPC_WHY_CHARS] = "";
    struct kv_host_options options = {
        .ranks = 1,
        .daemons = 1,
        .socket = kvd_socket,
        .store_bytes = 1 << 20,
        .store_entries = 64,
        .arena_bytes = ARENA,
        .blocks = {.entries = 4096, .high_percent = 100, .low_percent = 100}};
    if (kv_host_create(&options, &host, cause)) {
        fprintf(stderr, "%s\n", cause);
        _exit(1);
    }
    if (write(ready, "r", 1) != 1)
        _exit(1);
    kv_host_run(host);
    _exit(0);
}

static _Atomic int puts_left = PUTS_BEFORE_THE_END;

static int last_put(struct llm_shadow_store *store, unsigned lane, const struct kv_block_key *key,
                    const void *bytes, uint32_t len)
{
    if (atomic_fetch_sub(&puts_left, 1) == 0)
        raise(SIGKILL);
    return llm_shadow_kvd.put(store, lane, key, bytes, len);
}

/* A worker that is killed while it moves layers out. */
static void run_worker(int ready)
{
    struct llm_shadow_ops ops = llm_shadow_kvd;
    struct llm_worker_options options = worker_options();
    struct host h;
    ops.put = last_put;
    options.shadow_ops = &ops;
    char byte;
    if (read(ready, &byte, 1) != 1) /* the daemon is there */
        _exit(1);
    host_start_at(&h, &options, worker_socket);
    if (write(ready, "r", 1) != 1)
        _exit(1);
    pthread_join(h.thread, NULL);
    _exit(0);
}

/* ---- runs ---- */

static void begin(struct llm_remote *remote, uint8_t handle[LLM_HANDLE_BYTES], uint64_t *slot)
{
    struct llm_request request = {.method = LLM_METHOD_PREFILL_SEMANTIC,
                                  .wish = {.kind = LLM_WISH_TOKENS, .sampling = sampling},
                                  .tokens = prompt,
                                  .token_count = PROMPT};
    struct wire_dec d;
    if (llm_remote_call(remote, &request, LLM_TOKENS, &d, why))
        fail_msg("%s", why);
    wire_get_copy(&d, handle, LLM_HANDLE_BYTES);
    *slot = wire_get_varint(&d);
    assert_int_equal(wire_get_varint(&d), expected[0]);
}

static void go_on(struct llm_remote *remote, uint64_t slot, uint32_t from, uint32_t to)
{
    struct llm_request request = {
        .method = LLM_METHOD_DECODE_SEMANTIC, .slot = slot, .value = to - from};
    struct wire_dec d;
    if (llm_remote_call(remote, &request, LLM_TOKENS, &d, why))
        fail_msg("%s", why);
    for (uint32_t i = from; i < to; i++)
        assert_int_equal(wire_get_varint(&d), expected[i]);
}

static void a_worker_killed_while_it_evicts_is_succeeded(void **state)
{
    (void)state;
    struct host second, first = {0};
    struct llm_worker_options options = worker_options();
    struct llm_layers all = llm_layers_first(LAYERS);
    uint8_t handle[LLM_HANDLE_BYTES];
    uint64_t slot, values[LLM_METRICS];
    uint32_t missing, length;
    char text[80], cause[RPC_WHY_CHARS];
    snprintf(text, sizeof text, "unix:%s", worker_socket);
    assert_int_equal(rpc_addr_parse(text, &first.addr, cause), 0);
    struct llm_remote *remote = host_join(&first);
    begin(remote, handle, &slot);
    go_on(remote, slot, 1, 3);
    assert_true(llm_remote_evict(remote, handle, &all, &missing, why) < 0);
    llm_remote_close(remote);
    int status;
    assert_int_equal(waitpid(worker_pid, &status, 0), worker_pid);
    worker_pid = 0;
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    host_start(&second, &options);
    remote = host_join(&second);
    assert_int_equal(llm_remote_resume(remote, handle, &slot, &length, why), 0);
    assert_int_equal(length, PROMPT + 2);
    go_on(remote, slot, 3, STEPS);
    assert_int_equal(llm_remote_metrics(remote, values, why), 0);
    assert_true(values[LLM_METRIC_KV_COMPUTED] > 0); /* what had not been stored */
    llm_remote_close(remote);
    host_stop(&second);
}

static void a_daemon_that_stops_costs_one_wait(void **state)
{
    (void)state;
    struct host h;
    struct llm_worker_options options = worker_options();
    struct llm_layers all = llm_layers_first(LAYERS);
    uint8_t handle[LLM_HANDLE_BYTES];
    uint64_t slot;
    uint32_t missing;
    host_start(&h, &options);
    struct llm_remote *remote = host_join(&h);
    begin(remote, handle, &slot);
    assert_int_equal(llm_remote_evict(remote, handle, &all, &missing, why), 0);
    assert_int_equal(missing, LAYERS);
    assert_int_equal(kill(daemon_pid, SIGSTOP), 0);
    go_on(remote, slot, 1, STEPS);
    assert_int_equal(kill(daemon_pid, SIGCONT), 0);
    llm_remote_close(remote);
    host_stop(&h);
}

/* ---- what all of it is compared with ---- */

static void make_model(void)
{
    struct llm_synth synth = {.config = {.arch = LLM_LLAMA,
                                         .layers = LAYERS,
                                         .width = 64,
                                         .heads = 2,
                                         .kv_heads = 1,
                                         .ffn = 64,
                                         .vocab = VOCAB,
                                         .context = CONTEXT},
                              .dtype = LLM_Q8_0,
                              .seed = 11};
    char path[64];
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    llm_synth_complete(&synth.config);
    assert_int_equal(llm_synth_write(&synth, path, why), 0);
    assert_int_equal(llm_file_open(path, &file, why), 0);
    unlink(path);
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = i * 7919 % VOCAB;
}

static void expect_tokens(void)
{
    struct llm_mode_config config = {.file = file, .engine = {.threads = 1}, .sampling = sampling};
    struct llm_mode *m;
    assert_int_equal(llm_mode_open(&llm_mode_local, &config, &m, why), 0);
    assert_int_equal(llm_mode_prefill(m, prompt, PROMPT, &expected[0], why), 0);
    for (uint32_t i = 1, got; i < STEPS; i++)
        assert_int_equal(llm_mode_decode(m, 1, &expected[i], &got, why), 0);
    llm_mode_close(m);
}

/* A child that says when it is ready, and ends with us. */
static pid_t start(void (*run)(int), int *to)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds[0]);
        run(fds[1]);
    }
    close(fds[1]);
    *to = fds[0];
    return pid;
}

static int set_up(void **state)
{
    (void)state;
    int daemon, worker;
    char byte;
    assert_non_null(mkdtemp(dir));
    snprintf(kvd_socket, sizeof kvd_socket, "%s/kvd", dir);
    snprintf(worker_socket, sizeof worker_socket, "%s/worker", dir);
    make_model();
    daemon_pid = start(run_daemon, &daemon);
    worker_pid = start(run_worker, &worker);
    assert_int_equal(read(daemon, &byte, 1), 1);
    assert_int_equal(write(worker, "d", 1), 1);
    assert_int_equal(read(worker, &byte, 1), 1);
    close(daemon);
    close(worker);
    expect_tokens();
    return 0;
}

static void end_child(pid_t pid)
{
    if (pid <= 0)
        return;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static int tear_down(void **state)
{
    (void)state;
    end_child(worker_pid);
    end_child(daemon_pid);
    llm_file_close(file);
    unlink(kvd_socket);
    unlink(worker_socket);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_killed_while_it_evicts_is_succeeded),
        cmocka_unit_test(a_daemon_that_stops_costs_one_wait),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
