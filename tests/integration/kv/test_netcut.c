/* A network that is cut between two ranks under load: requests end with their own errors, never as
 * misses, and the ranks find each other again.
 *
 * Each rank lives in a network namespace of its own, with a veth pair between them.  The namespaces
 * have no names, so they vanish with the processes.  Needs root and iproute2; skipped without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kv/client/client.h"
#include "kv/daemon/host.h"
#include "unit/kv/value_calls.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_SKIP = 77, PORT = 28250 };

/* Far longer than the command that cuts the line and a request that is to time out before the rank
 * behind it is lost. */
static const uint64_t heartbeat_ns = 3 * HW_SEC;

static const struct rpc_addr addrs[2] = {
    {.scheme = RPC_SCHEME_TCP, .host = "10.118.0.1", .port = PORT},
    {.scheme = RPC_SCHEME_TCP, .host = "10.118.0.2", .port = PORT}};

static bool succeeds(const char *fmt, ...) PRINTF_LIKE(1, 2);
static bool succeeds(const char *fmt, ...)
{
    char command[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);
    return system(command) == 0;
}

struct rank {
    pid_t pid;
    int go[2], ready[2];
    char socket[96];
};

/* Starts when told to: its network is not there before its process is. */
static void rank_process(struct rank *r, uint32_t number)
{
    struct kv_host_options options = {.rank = number,
                                      .ranks = 2,
                                      .daemons = 1,
                                      .socket = r->socket,
                                      .addrs = addrs,
                                      .store_bytes = 1 << 16,
                                      .store_entries = 100,
                                      .heartbeat_ns = heartbeat_ns};
    struct kv_host *host;
    char why[RPC_WHY_CHARS], byte;
    setenv("VENUS_LOG_LEVEL", "ERROR", 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    if ((number == 1 && unshare(CLONE_NEWNET)) || write(r->ready[1], "u", 1) != 1 ||
        read(r->go[0], &byte, 1) != 1)
        _exit(1);
    if (kv_host_create(&options, &host, why)) {
        fprintf(stderr, "%s\n", why);
        _exit(1);
    }
    if (write(r->ready[1], "r", 1) != 1)
        _exit(1);
    kv_host_run(host);
    _exit(0);
}

static void await(struct rank *r)
{
    char byte;
    assert_int_equal(read(r->ready[0], &byte, 1), 1);
}

static void rank_prepare(struct rank *r, const char *dir, uint32_t number)
{
    snprintf(r->socket, sizeof(r->socket), "%s/kvd%u", dir, number);
    assert_int_equal(pipe(r->go) | pipe(r->ready), 0);
    r->pid = fork();
    assert_true(r->pid >= 0);
    if (r->pid == 0)
        rank_process(r, number);
    await(r);
}

static void rank_go(struct rank *r)
{
    assert_int_equal(write(r->go[1], "g", 1), 1);
    await(r);
}

static void rank_end(struct rank *r)
{
    assert_int_equal(kill(r->pid, SIGKILL), 0);
    assert_int_equal(waitpid(r->pid, NULL, 0), r->pid);
    (void)unlink(r->socket);
}

static enum kv_result ask_until(struct kv_client *client, struct kv_key key, enum kv_result wanted,
                                uint32_t misses_seen[1])
{
    enum kv_result result;
    uint64_t until = hw_now_ns() + 240 * HW_SEC;
    do {
        result = value_get(client, key, NULL, 0, NULL);
        *misses_seen += result == KV_MISS;
    } while (result != wanted && hw_now_ns() < until);
    return result;
}

static void a_cut_is_no_miss_and_heals(void **state)
{
    (void)state;
    char dir[] = "/tmp/hawser-kvn-XXXXXX";
    struct rank ranks[2];
    assert_non_null(mkdtemp(dir));
    for (uint32_t i = 0; i < 2; i++)
        rank_prepare(&ranks[i], dir, i);
    pid_t far = ranks[1].pid;
    assert_true(succeeds("ip link add kv0 type veth peer name kv1 netns %d", (int)far));
    assert_true(succeeds("ip addr add 10.118.0.1/24 dev kv0 && ip link set kv0 up"));
    assert_true(succeeds("nsenter -t %d -n ip addr add 10.118.0.2/24 dev kv1", (int)far));
    assert_true(succeeds("nsenter -t %d -n ip link set kv1 up", (int)far));
    for (uint32_t i = 0; i < 2; i++)
        rank_go(&ranks[i]);

    struct kv_client_options options = {.socket = ranks[0].socket, .timeout_ns = 100 * HW_MS};
    struct kv_client_options patience = {.socket = ranks[0].socket, .timeout_ns = 240 * HW_SEC};
    struct kv_client *client, *patient;
    char why[RPC_WHY_CHARS];
    uint32_t misses = 0;
    uint64_t n = 0;
    assert_int_equal(hasty_client_open(&options, &client, why), 0);
    assert_int_equal(kv_client_open(&patience, &patient, why), 0);
    while (kv_place_of(kv_key_u64(n), 2, 1).rank != 1)
        n++;
    struct kv_key there = kv_key_u64(n);
    assert_int_equal(ask_until(client, there, KV_MISS, &misses), KV_MISS);
    assert_int_equal(value_put(patient, there, "kept", 4), KV_OK);
    assert_true(succeeds("ip link set kv0 down"));
    misses = 0;
    assert_int_equal(ask_until(client, there, KV_TIMEOUT, &misses), KV_TIMEOUT);
    assert_int_equal(ask_until(client, there, KV_PEER_LOST, &misses), KV_PEER_LOST);
    assert_true(succeeds("ip link set kv0 up"));
    assert_int_equal(ask_until(client, there, KV_OK, &misses), KV_OK);
    assert_int_equal(misses, 0); /* the value was there all the time */
    kv_client_close(client);
    kv_client_close(patient);
    for (uint32_t i = 0; i < 2; i++)
        rank_end(&ranks[i]);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    if (geteuid() != 0 || !succeeds("command -v ip >/dev/null && command -v nsenter >/dev/null") ||
        unshare(CLONE_NEWNET) || !succeeds("ip link add kv2 type veth 2>/dev/null")) {
        fprintf(stderr, "skipped: needs root, iproute2 and network namespaces\n");
        return EXIT_SKIP;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_cut_is_no_miss_and_heals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
