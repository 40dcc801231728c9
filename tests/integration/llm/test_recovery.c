/* Processes that end or stop at the wrong moment: a worker killed in the middle of an eviction, and
 * a KV daemon that stops answering.  Tokens do not change.
 *
 * Daemon and first worker are children of the test, made before it has threads. */
#include "../../unit/llm/unit.h"

#include "../../unit/llm/reference.h"
#include "../../unit/llm/worker_server.h"

#include "base/clock.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum {
    ARENA = 32 << 20,
    PUTS_BEFORE_THE_END = 5, /* of 12 chunks; the record is one of them */
};

static char why[LLM_WHY_CHARS];
static char dir[] = "/tmp/hawser-recovery-XXXXXX", kvd_socket[64], worker_socket[64];
static pid_t daemon_pid, worker_pid;

static struct llm_worker_options worker_options(void)
{
    return (struct llm_worker_options){
        .file = reference.file,
        .engine = {.threads = 1, .kv_bytes = 8 << 20},
        .upload_bytes = 16 << 20,
        .shadow_ops = &llm_shadow_kvd,
        .shadow = {.socket = kvd_socket, .timeout_ns = 240 * HW_SEC}};
}

/* ---- children ---- */

static void run_daemon(int ready)
{
    struct kv_host *host;
    char cause[RPC_WHY_CHARS] = "";
    struct kv_host_options options = reference_daemon(kvd_socket, ARENA);
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

static int last_put(struct llm_shadow_store *store, unsigned channel,
                    const struct kv_block_key *key, const void *bytes, uint32_t len)
{
    if (atomic_fetch_sub(&puts_left, 1) == 0)
        raise(SIGKILL);
    return llm_shadow_kvd.put(store, channel, key, bytes, len);
}

/* A worker that is killed while it moves layers out. */
static void run_worker(int ready)
{
    struct llm_shadow_ops ops = llm_shadow_kvd;
    struct llm_worker_options options = worker_options();
    struct worker_server h;
    ops.put = last_put;
    options.shadow_ops = &ops;
    char byte;
    if (read(ready, &byte, 1) != 1) /* the daemon is there */
        _exit(1);
    server_start_at(&h, &options, worker_socket);
    if (write(ready, "r", 1) != 1)
        _exit(1);
    pthread_join(h.thread, NULL);
    _exit(0);
}

/* ---- runs ---- */

static void a_worker_killed_while_it_evicts_is_succeeded(void **state)
{
    (void)state;
    struct worker_server second, first = {0};
    struct llm_worker_options options = worker_options();
    struct llm_layers all = llm_layers_first(LAYERS);
    uint8_t handle[LLM_HANDLE_BYTES];
    uint64_t id, values[LLM_METRICS];
    uint32_t missing, length;
    char text[80], cause[RPC_WHY_CHARS];
    snprintf(text, sizeof text, "unix:%s", worker_socket);
    assert_int_equal(rpc_addr_parse(text, &first.addr, cause), 0);
    struct llm_remote *remote = server_join(&first);
    reference_begin(remote, handle, &id);
    reference_go_on(remote, id, 1, 3);
    assert_true(llm_remote_evict(remote, handle, &all, &missing, why) < 0);
    llm_remote_close(remote);
    int status;
    assert_int_equal(waitpid(worker_pid, &status, 0), worker_pid);
    worker_pid = 0;
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    server_start(&second, &options);
    remote = server_join(&second);
    assert_int_equal(llm_remote_resume(remote, handle, &id, &length, why), 0);
    assert_int_equal(length, PROMPT + 2);
    reference_go_on(remote, id, 3, STEPS);
    assert_int_equal(llm_remote_metrics(remote, values, why), 0);
    assert_true(values[LLM_METRIC_KV_COMPUTED] > 0); /* what had not been stored */
    llm_remote_close(remote);
    server_stop(&second);
}

struct waiting {
    struct llm_remote *remote;
    uint64_t id;
    _Atomic bool done;
};

static void *go_on_waiting(void *user)
{
    struct waiting *a = user;
    reference_go_on(a->remote, a->id, 1, STEPS);
    atomic_store(&a->done, true);
    return NULL;
}

/* The daemon answers nothing until the other client has all its tokens. */
static void a_daemon_that_stops_holds_up_nobody_else(void **state)
{
    (void)state;
    struct worker_server h;
    struct llm_worker_options options = worker_options();
    struct llm_layers all = llm_layers_first(LAYERS);
    struct waiting a = {0};
    uint8_t handle[LLM_HANDLE_BYTES];
    uint64_t other_id;
    uint32_t missing;
    pthread_t thread;
    options.untimed = true; /* what is evicted is fetched */
    server_start(&h, &options);
    a.remote = server_join(&h);
    struct llm_remote *other = server_join(&h);
    reference_begin(other, handle, &other_id);
    reference_begin(a.remote, handle, &a.id);
    assert_int_equal(llm_remote_evict(a.remote, handle, &all, &missing, why), 0);
    assert_int_equal(kill(daemon_pid, SIGSTOP), 0);
    assert_int_equal(pthread_create(&thread, NULL, go_on_waiting, &a), 0);
    reference_go_on(other, other_id, 1, STEPS);
    assert_false(atomic_load(&a.done));
    assert_int_equal(kill(daemon_pid, SIGCONT), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    llm_remote_close(a.remote);
    llm_remote_close(other);
    server_stop(&h);
}

static void a_daemon_that_stops_costs_one_wait(void **state)
{
    (void)state;
    struct worker_server h;
    struct llm_worker_options options = worker_options();
    struct llm_layers all = llm_layers_first(LAYERS);
    uint8_t handle[LLM_HANDLE_BYTES];
    uint64_t id;
    uint32_t missing;
    options.shadow.timeout_ns = HW_SEC;
    server_start(&h, &options);
    struct llm_remote *remote = server_join(&h);
    reference_begin(remote, handle, &id);
    assert_int_equal(llm_remote_evict(remote, handle, &all, &missing, why), 0);
    assert_int_equal(missing, LAYERS);
    assert_int_equal(kill(daemon_pid, SIGSTOP), 0);
    reference_go_on(remote, id, 1, STEPS);
    assert_int_equal(kill(daemon_pid, SIGCONT), 0);
    llm_remote_close(remote);
    server_stop(&h);
}

/* ---- set up ---- */

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
    reference_open();
    daemon_pid = start(run_daemon, &daemon);
    worker_pid = start(run_worker, &worker);
    assert_int_equal(read(daemon, &byte, 1), 1);
    assert_int_equal(write(worker, "d", 1), 1);
    assert_int_equal(read(worker, &byte, 1), 1);
    close(daemon);
    close(worker);
    reference_generate();
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
    reference_close();
    unlink(kvd_socket);
    unlink(worker_socket);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_killed_while_it_evicts_is_succeeded),
        cmocka_unit_test(a_daemon_that_stops_holds_up_nobody_else),
        cmocka_unit_test(a_daemon_that_stops_costs_one_wait),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
