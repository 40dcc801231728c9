/* A side that dies or stops in the middle of a call: the other gets a distinct error, and nothing
 * is left behind. */
#include "base/clock.h"
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { CYCLES = 200 };

static const uint64_t heartbeat_ns = 1500 * HW_MS; /* short, but not what a busy machine misses */

static char folder[64];
static struct rpc_security tls_server, tls_client;
static char fingerprint[2 * RPC_FINGERPRINT_BYTES + 1]; /* of the server */

/* The transport that a test runs over. */
struct over {
    const char *name;
    bool tls;
};
static struct over over_tcp = {"tcp", false}, over_unix = {"unix", false},
                   over_shm = {"shm", false}, over_tls = {"tcp", true};

static void start_with(struct server *s, const struct over *over, const struct rpc_config *config)
{
    char address[RPC_PEER_NAME_CHARS];
    snprintf(address, sizeof address, "%s:%s/death", over->name, folder);
    struct server_spec spec = {.listen = strcmp(over->name, "tcp") == 0 ? NULL : address,
                               .config = *config,
                               .security = over->tls ? &tls_server : NULL};
    server_start(s, &spec);
}

static void start(struct server *s, const struct over *over, uint64_t heartbeat)
{
    start_with(s, over, &(struct rpc_config){.heartbeat_ns = heartbeat});
}

static struct rpc_client *open_client(const struct server *s, const struct over *over,
                                      uint64_t heartbeat)
{
    return client_open(s, &(struct client_spec){.config.heartbeat_ns = heartbeat,
                                                .security = over->tls ? &tls_client : NULL});
}

/* ---- a call in the middle ---- */

struct pending {
    bool done;
    int status;
};

static void on_answer(void *user, int status, const struct rpc_msg *reply)
{
    (void)reply;
    *(struct pending *)user = (struct pending){true, status};
}

static bool is_done(void *user)
{
    return ((struct pending *)user)->done;
}

/* A call that the server holds. */
static void begin_call(struct server *s, struct rpc_client *c, struct pending *p)
{
    *p = (struct pending){0};
    assert_int_equal(
        rpc_client_call_async(c, &(struct rpc_send){.method = METHOD_HOLD}, on_answer, p), 0);
    assert_int_equal(rpc_client_flush(c), 0);
    server_wait_held(s);
}

static int end_call(struct rpc_client *c, struct pending *p)
{
    int rc = rpc_client_wait(c, is_done, p, HANG_MS * HW_MS);
    assert_true(p->done && (rc == 0 || rc == p->status));
    return p->status;
}

/* A client in a process of its own, whose call the server holds.  It exits with 0 when the call
 * ended because the server is gone.
 *
 * The process is executed: a test that has a connection has its thread, and a sanitizer's allocator
 * may be locked for ever in a fork of such a process. */
enum { ARG_ADDRESS = 1, ARG_HEARTBEAT, ARG_FINGERPRINT, ARGS };

static void become_client(const char *address, const char *heartbeat, const char *pin)
{
    int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && dup2(quiet, STDERR_FILENO) >= 0)
        execl("/proc/self/exe", "client", address, heartbeat, pin, (char *)NULL);
    _exit(127);
}

static pid_t fork_client(struct server *s, const struct over *over, uint64_t heartbeat)
{
    char number[24];
    snprintf(number, sizeof number, "%llu", (unsigned long long)heartbeat);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        become_client(s->text, number, over->tls ? fingerprint : "");
    server_wait_held(s);
    return pid;
}

/* The whole program, when it is executed by fork_client. */
static int client_main(char **argv)
{
    struct rpc_addr addr;
    struct rpc_security security = {0};
    struct rpc_client *c;
    char why[RPC_WHY_CHARS];
    struct rpc_client_options options = {.config.heartbeat_ns =
                                             strtoull(argv[ARG_HEARTBEAT], NULL, 10)};
    struct rpc_net_options net = {.security = argv[ARG_FINGERPRINT][0] ? &security : NULL};
    struct rpc_security_files files = {.fingerprint = argv[ARG_FINGERPRINT]};
    if ((net.security && rpc_security_load(&security, &files, false, why)) ||
        rpc_addr_parse(argv[ARG_ADDRESS], &addr, why) ||
        rpc_client_connect(&addr, &net, &options, &c, why))
        return 2;
    int rc = client_call_u32(c, METHOD_HOLD, 0, HANG_MS * HW_MS);
    rpc_client_destroy(c);
    rpc_security_fini(&security);
    return rc == -ECONNRESET || rc == -EHOSTDOWN ? 0 : 1;
}

static int wait_exit(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* ---- kill -9 ---- */

static void test_server_killed(void **state)
{
    const struct over *over = *state;
    struct server s;
    struct pending p;
    start(&s, over, 0);
    struct rpc_client *c = open_client(&s, over, 0);
    begin_call(&s, c, &p);
    server_kill(&s);
    assert_int_equal(end_call(c, &p), -ECONNRESET);
    assert_int_equal(client_echo(c, HW_SEC), -ECONNRESET); /* sticky */
    rpc_client_destroy(c);
}

static void test_client_killed(void **state)
{
    const struct over *over = *state;
    struct server s;
    start(&s, over, 0);
    struct rpc_client *healthy = open_client(&s, over, 0);
    client_works(healthy);
    unsigned descriptors = server_descriptors(&s);
    pid_t pid = fork_client(&s, over, 0);
    assert_true(server_descriptors(&s) > descriptors);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(server_wait_closed(&s), -ECONNRESET);
    wait_exit(pid);
    client_works(healthy);
    assert_int_equal(server_descriptors(&s), descriptors);
    rpc_client_destroy(healthy);
    server_stop(&s, 1);
}

/* ---- stopped, not dead ---- */

static void test_server_stopped(void **state)
{
    const struct over *over = *state;
    struct server s;
    struct pending p;
    start(&s, over, heartbeat_ns);
    struct rpc_client *c = open_client(&s, over, heartbeat_ns);
    begin_call(&s, c, &p);
    assert_int_equal(kill(s.pid, SIGSTOP), 0);
    assert_int_equal(end_call(c, &p), -EHOSTDOWN);
    rpc_client_destroy(c);
    assert_int_equal(kill(s.pid, SIGCONT), 0);
    struct rpc_client *next = open_client(&s, over, heartbeat_ns);
    client_works(next);
    assert_true(server_wait_closed(&s) < 0);
    rpc_client_destroy(next);
    server_stop(&s, 1);
}

static void test_client_stopped(void **state)
{
    const struct over *over = *state;
    struct server s;
    start(&s, over, heartbeat_ns);
    struct rpc_client *healthy = open_client(&s, over, 0);
    pid_t pid = fork_client(&s, over, heartbeat_ns);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(server_wait_closed(&s), -EHOSTDOWN);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(wait_exit(pid), 0);
    client_works(healthy);
    rpc_client_destroy(healthy);
    server_stop(&s, 1);
}

/* A server that tolerates silence waits for a stopped client, and still notices that it died. */
static void test_client_stopped_and_waited_for(void **state)
{
    const struct over *over = *state;
    struct server s;
    start_with(
        &s, over,
        &(struct rpc_config){.heartbeat_ns = RPC_HEARTBEAT_MIN_NS, .tolerates_silence = true});
    struct rpc_client *healthy = open_client(&s, over, 0);
    pid_t pid = fork_client(&s, over, 0);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    /* Fifty heartbeats, as seen by a client that the server answers. */
    for (uint64_t start = now_ms(); now_ms() - start < 50 * RPC_HEARTBEAT_MIN_NS / HW_MS;)
        client_works(healthy);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(server_wait_closed(&s), -ECONNRESET); /* not -EHOSTDOWN, nor before */
    wait_exit(pid);
    rpc_client_destroy(healthy);
    server_stop(&s, 1);
}

/* ---- what is left behind ---- */

static void test_killed_clients_leave_no_descriptors(void **state)
{
    const struct over *over = *state;
    struct server s;
    start(&s, over, 0);
    struct rpc_client *healthy = open_client(&s, over, 0);
    client_works(healthy);
    unsigned descriptors = server_descriptors(&s);
    uint64_t before = server_rss(&s);
    for (unsigned i = 0; i < CYCLES; i++) {
        pid_t pid = fork_client(&s, over, 0);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(server_wait_closed(&s), -ECONNRESET);
        wait_exit(pid);
        server_expect_log(&s, ": warn: ", i + 1);
    }
    client_works(healthy);
    assert_int_equal(server_descriptors(&s), descriptors);
    if (memory_is_measurable())
        assert_true(server_rss(&s) < before + (8 << 20)); /* 200 clients held far more */
    rpc_client_destroy(healthy);
    server_stop(&s, CYCLES);
}

/* A region that both ends map has no name, so that nothing is left when both are killed. */
static void test_nothing_in_dev_shm(void **state)
{
    (void)state;
    struct server s;
    start(&s, &over_shm, 0);
    pid_t pid = fork_client(&s, &over_shm, 0);
    const pid_t ends[] = {s.pid, pid};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        char path[64], line[512];
        int regions = 0;
        snprintf(path, sizeof path, "/proc/%d/maps", (int)ends[i]);
        FILE *maps = fopen(path, "r");
        assert_non_null(maps);
        while (fgets(line, sizeof line, maps)) {
            assert_null(strstr(line, "/dev/shm/"));
            regions += strstr(line, "/memfd:hawser-shm") != NULL;
        }
        fclose(maps);
        assert_true(regions > 0);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    wait_exit(pid);
    server_kill(&s);
}

static void test_stale_socket_does_not_block_the_next_start(void **state)
{
    const struct over *over = *state;
    struct server s;
    struct stat st;
    char path[96];
    snprintf(path, sizeof path, "%s/death", folder);
    start(&s, over, 0);
    server_kill(&s);
    assert_int_equal(stat(path, &st), 0); /* kill -9 leaves the file: that is the case at hand */
    start(&s, over, 0);
    struct rpc_client *c = open_client(&s, over, 0);
    client_works(c);
    rpc_client_destroy(c);
    server_stop(&s, 0);
    assert_int_equal(stat(path, &st), -1); /* an orderly end removes it */
}

static void test_live_socket_is_refused_by_name(void **state)
{
    const struct over *over = *state;
    struct server s;
    start(&s, over, 0);
    struct rpc_client *c = open_client(&s, over, 0);
    struct rpc_listener *second = NULL;
    char why[RPC_WHY_CHARS];
    assert_int_equal(rpc_listen(&s.addr, NULL, &second, why), -EADDRINUSE);
    assert_null(second);
    assert_non_null(strstr(why, s.addr.path));
    assert_non_null(strstr(why, "another server has it"));
    client_works(c);
    rpc_client_destroy(c);
    server_expect_log(&s, ": warn: ", 1);
    server_stop(&s, 1); /* the look at whether somebody listens is a caller that says nothing */
}

static void test_foreign_file_is_not_removed(void **state)
{
    (void)state;
    struct rpc_addr addr = {.scheme = RPC_SCHEME_UNIX};
    struct rpc_listener *l = NULL;
    char why[RPC_WHY_CHARS];
    snprintf(addr.path, sizeof addr.path, "%s/precious", folder);
    int fd = open(addr.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(rpc_listen(&addr, NULL, &l, why), -EADDRINUSE);
    assert_int_equal(access(addr.path, F_OK), 0);
}

static int set_up(void **state)
{
    (void)state;
    char why[RPC_WHY_CHARS], crt[96], key[96];
    make_folder(folder);
    if (rpc_keygen(folder, NULL, 0, 1, fingerprint, why))
        return -1;
    snprintf(crt, sizeof crt, "%s/server.crt", folder);
    snprintf(key, sizeof key, "%s/server.key", folder);
    if (rpc_security_load(&tls_server, &(struct rpc_security_files){.certificate = crt, .key = key},
                          true, why))
        return -1;
    return rpc_security_load(&tls_client, &(struct rpc_security_files){.fingerprint = fingerprint},
                             false, why);
}

static int tear_down(void **state)
{
    (void)state;
    rpc_security_fini(&tls_server);
    rpc_security_fini(&tls_client);
    rm_folder(folder);
    return 0;
}

#define OVER(test, transport)                                                                      \
    {                                                                                              \
#test " over " #transport, test, NULL, NULL, &over_##transport                             \
    }
#define OVER_ALL(test) OVER(test, tcp), OVER(test, unix), OVER(test, shm), OVER(test, tls)

int main(int argc, char **argv)
{
    setenv("VENUS_LOG_LEVEL", "WARN", 1);
    if (argc == ARGS)
        return client_main(argv);
    const struct CMUnitTest tests[] = {
        OVER_ALL(test_server_killed),
        OVER_ALL(test_client_killed),
        OVER_ALL(test_server_stopped),
        OVER_ALL(test_client_stopped),
        OVER_ALL(test_client_stopped_and_waited_for),
        OVER(test_killed_clients_leave_no_descriptors, tcp),
        OVER(test_killed_clients_leave_no_descriptors, shm),
        cmocka_unit_test(test_nothing_in_dev_shm),
        OVER(test_stale_socket_does_not_block_the_next_start, unix),
        OVER(test_stale_socket_does_not_block_the_next_start, shm),
        OVER(test_live_socket_is_refused_by_name, unix),
        OVER(test_live_socket_is_refused_by_name, shm),
        cmocka_unit_test(test_foreign_file_is_not_removed),
    };
    return cmocka_run_group_tests_name("rpc-death", tests, set_up, tear_down);
}
