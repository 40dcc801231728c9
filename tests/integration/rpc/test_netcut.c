/* A network that is cut in the middle of a call: both ends get -EHOSTDOWN within the heartbeat, an
 * end that tolerates silence too.
 *
 * The test and its server each live in a network namespace of their own, with a veth pair between
 * them.  The namespaces have no names, so they vanish with the two processes, whatever happens.
 * Needs root and iproute2; skipped without. */
#include "base/clock.h"
#include "harness.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { EXIT_SKIP = 77 };

static const uint64_t heartbeat_ns = 1500 * HW_MS; /* short, but not what a busy machine misses */

/* Runs a shell command; true when it succeeded. */
static bool succeeds(const char *fmt, ...) PRINTF_LIKE(1, 2);
static bool succeeds(const char *fmt, ...)
{
    char command[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(command, sizeof command, fmt, args);
    va_end(args);
    return system(command) == 0;
}

static void connect_namespaces(struct server *s)
{
    assert_true(succeeds("ip link add cut0 type veth peer name cut1 netns %d", (int)s->pid));
    assert_true(succeeds("ip addr add 10.117.0.1/24 dev cut0 && ip link set cut0 up"));
    assert_true(succeeds("nsenter -t %d -n ip addr add 10.117.0.2/24 dev cut1", (int)s->pid));
    assert_true(succeeds("nsenter -t %d -n ip link set cut1 up", (int)s->pid));
    strcpy(s->addr.host, "10.117.0.2");
}

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

static void notice_cut(bool tolerates_silence)
{
    struct server s;
    struct pending p = {0};
    server_start(&s, &(struct server_spec){.listen = "*:0",
                                           .own_network = true,
                                           .config.tolerates_silence = tolerates_silence,
                                           .config.heartbeat_ns = heartbeat_ns});
    connect_namespaces(&s);
    struct rpc_client *c =
        client_open(&s, &(struct client_spec){.config.heartbeat_ns = heartbeat_ns});
    client_works(c);
    assert_int_equal(
        rpc_client_call_async(c, &(struct rpc_send){.method = METHOD_HOLD}, on_answer, &p), 0);
    assert_int_equal(rpc_client_flush(c), 0);
    server_wait_held(&s);
    assert_true(succeeds("ip link set cut0 down"));
    int rc = rpc_client_wait(c, is_done, &p, HANG_MS * HW_MS);
    assert_true(p.done && (rc == 0 || rc == -EHOSTDOWN));
    assert_int_equal(p.status, -EHOSTDOWN);
    assert_int_equal(server_wait_closed(&s), -EHOSTDOWN);
    rpc_client_destroy(c);
    server_stop(&s, 1);
    assert_true(succeeds("ip link del cut0"));
}

static void test_cut_is_noticed_at_both_ends(void **state)
{
    (void)state;
    notice_cut(false);
}

static void test_cut_is_noticed_by_a_server_that_tolerates_silence(void **state)
{
    (void)state;
    notice_cut(true);
}

int main(void)
{
    if (geteuid() != 0 || !succeeds("command -v ip >/dev/null && command -v nsenter >/dev/null") ||
        unshare(CLONE_NEWNET) || !succeeds("ip link add cut2 type veth 2>/dev/null")) {
        fprintf(stderr, "skipped: needs root, iproute2 and network namespaces\n");
        return EXIT_SKIP;
    }
    setenv("VENUS_LOG_LEVEL", "WARN", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_is_noticed_at_both_ends),
        cmocka_unit_test(test_cut_is_noticed_by_a_server_that_tolerates_silence),
    };
    return cmocka_run_group_tests_name("rpc-netcut", tests, NULL, NULL);
}
