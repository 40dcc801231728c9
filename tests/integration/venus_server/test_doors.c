/* Doors: how a client comes to its session over UCX, whose connections cannot be handed over. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "rpc/resume/resume.h"
#include "rpc/transport/ucx.h"
#include "wire/le.h"

static const char *const plain[] = {NULL};
static struct server server;

struct door {
    char address[sizeof(server.address)];
    struct rpc_security admits;
};

static int ask(struct client *c, struct rpc_answer *answer)
{
    struct rpc_send send = {.method = VN_METHOD_DOOR, .timeout_ns = PATIENCE_MS * HW_MS};
    return rpc_client_call(c->rpc, &send, answer);
}

static void find(struct client *c, struct door *door)
{
    struct rpc_answer answer;
    assert_int_equal(ask(c, &answer), 0);
    assert_int_equal(answer.len, 2 + RPC_RESUME_SECRET_BYTES);
    snprintf(door->address, sizeof(door->address), "ucx:127.0.0.1:%u", wire_load16(answer.data));
    door->admits = (struct rpc_security){.token_len = RPC_RESUME_SECRET_BYTES};
    memcpy(door->admits.token, answer.data + 2, RPC_RESUME_SECRET_BYTES);
    rpc_answer_fini(&answer);
}

static void find_one(struct door *door)
{
    struct client c;
    client_connect(&c, server.address, NULL);
    find(&c, door);
    client_end(&c);
}

/* What a client gets that cannot connect; 0: it can. */
static int knock(const struct door *door)
{
    struct rpc_net_options net = {.security = &door->admits};
    struct rpc_client_options options = {.config = {.security = &door->admits}};
    struct rpc_addr addr;
    struct rpc_client *client;
    char why[RPC_WHY_CHARS];
    assert_int_equal(rpc_addr_parse(door->address, &addr, why), 0);
    int rc = rpc_client_connect(&addr, &net, &options, &client, why);
    if (rc == 0)
        rpc_client_destroy(client);
    return rc;
}

static void a_door_admits_one_client_that_has_its_secret(void **state)
{
    struct client c;
    struct door door, other;
    (void)state;
    server_start(&server, "ucx:127.0.0.1:0", plain);
    find_one(&door);
    find_one(&other);
    assert_memory_not_equal(door.admits.token, other.admits.token, RPC_RESUME_SECRET_BYTES);

    struct door wrong = door;
    wrong.admits = other.admits;
    assert_int_equal(knock(&wrong), -EACCES);
    server_expect_log(&server, "not the client that this session waits for", 1);

    client_connect(&c, door.address, &door.admits);
    assert_int_equal(client_open(&c), 0);
    assert_true(c.devices >= 1);
    assert_true(knock(&door) < 0);
    client_end(&c);
    server_stop(&server);
}

static void a_session_that_nobody_comes_to_ends(void **state)
{
    struct door door;
    (void)state;
    server_start(&server, "ucx:127.0.0.1:0", plain);
    find_one(&door);
    server_expect_log(&server, "the client did not come to ucx:127.0.0.1:", 1);
    server_expect_sessions(&server, 0);
    server_stop(&server);
}

static void ignore(void *user, int status, const struct rpc_msg *reply)
{
    (void)user, (void)status, (void)reply;
}

static void a_client_may_leave_before_its_door_is_open(void **state)
{
    struct rpc_send send = {.method = VN_METHOD_DOOR};
    struct client c;
    (void)state;
    server_start(&server, "ucx:127.0.0.1:0", plain);
    for (int i = 0; i < 4; i++) {
        client_connect(&c, server.address, NULL);
        assert_int_equal(rpc_client_call_async(c.rpc, &send, ignore, NULL), 0);
        assert_int_equal(rpc_client_flush(c.rpc), 0);
        client_end(&c);
    }
    server_stop(&server);
}

static void a_connection_that_is_handed_over_has_no_door(void **state)
{
    struct client c;
    (void)state;
    server_start(&server, "unix:%s/s", plain);
    client_connect(&c, server.address, NULL);
    assert_int_equal(ask(&c, NULL), -EOPNOTSUPP);
    server_expect_log(&server, "it needs no door", 1);
    assert_int_equal(client_open(&c), 0);
    client_end(&c);
    server_stop(&server);
}

static void doors_count_as_clients(void **state)
{
    static const char *const one[] = {"--max-clients", "1", NULL};
    struct client c;
    struct door door;
    (void)state;
    server_start(&server, "ucx:127.0.0.1:0", one);
    client_connect(&c, server.address, NULL);
    find(&c, &door);
    assert_int_equal(ask(&c, NULL), -EUSERS);
    client_end(&c);
    client_connect(&c, door.address, &door.admits);
    assert_int_equal(client_open(&c), 0);
    snprintf(door.address, sizeof(door.address), "%s", server.address);
    door.admits = *own_security();
    assert_int_equal(knock(&door), -EUSERS);
    client_end(&c);
    server_expect_sessions(&server, 0);
    find_one(&door);
    server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_door_admits_one_client_that_has_its_secret),
        cmocka_unit_test(a_session_that_nobody_comes_to_ends),
        cmocka_unit_test(a_client_may_leave_before_its_door_is_open),
        cmocka_unit_test(a_connection_that_is_handed_over_has_no_door),
        cmocka_unit_test(doors_count_as_clients),
    };
    rpc_ucx_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
