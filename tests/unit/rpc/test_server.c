/* The server loop: several clients over every local transport, its limits, and how it stops. */
#include "unit.h"

#include "base/clock.h"
#include "duo.h"
#include "rpc/client.h"
#include "rpc/server.h"
#include "rpc/transport/sock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 5, METHOD_LATER = 20, METHOD_ASIDE };

struct service {
    struct rpc_server *server;
    pthread_t thread;
    char dir[64];
    const char *bound;
    atomic_int opened, closed;
    struct rpc_msg *later; /* answered with the next message of its client */
    struct rpc_ep *later_ep;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool sleeps, lent;     /* (lock) */
    struct rpc_msg *aside; /* answered by another thread while this one sleeps */
    struct rpc_ep *aside_ep;
};

static int on_open(void *user, struct rpc_ep *ep)
{
    struct service *s = user;
    if (strcmp(rpc_ep_peer_name(ep), "unwelcome") == 0)
        return -EPERM;
    atomic_fetch_add(&s->opened, 1);
    return 0;
}

static void answer(struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct iovec iov = {(void *)msg->data, msg->len};
    struct rpc_send echo = {.iov = &iov, .iov_count = 1};
    if (msg->kind == RPC_CALL)
        (void)rpc_reply(ep, msg, 0, &echo);
    rpc_release(ep, msg);
}

static void on_message(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct service *s = user;
    if (msg->method == METHOD_LATER) {
        s->later = msg;
        s->later_ep = ep;
        return;
    }
    if (msg->method == METHOD_ASIDE) {
        s->aside = msg;
        s->aside_ep = ep;
        return;
    }
    answer(ep, msg);
    if (s->later && s->later_ep == ep) {
        answer(ep, s->later);
        s->later = NULL;
    }
}

static void on_close(void *user, struct rpc_ep *ep, int status)
{
    struct service *s = user;
    assert_true(status < 0);
    if (s->later && s->later_ep == ep) {
        rpc_release(ep, s->later);
        s->later = NULL;
    }
    atomic_fetch_add(&s->closed, 1);
}

static void on_sleep(void *user, bool begins)
{
    struct service *s = user;
    pthread_mutex_lock(&s->lock);
    assert_int_equal(s->sleeps, !begins);
    while (s->lent)
        pthread_cond_wait(&s->changed, &s->lock);
    s->sleeps = begins;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static const struct rpc_server_ops ops = {
    .opened = on_open, .message = on_message, .closed = on_close, .sleeps = on_sleep};

static void *server_main(void *arg)
{
    rpc_server_run(arg);
    return NULL;
}

static void service_start_with(struct service *s, enum rpc_scheme scheme,
                               const struct rpc_server_options *with)
{
    *s = (struct service){.dir = "/tmp/hawser-server-XXXXXX"};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    assert_non_null(mkdtemp(s->dir));
    struct rpc_server_options options = *with;
    options.ops = &ops;
    options.user = s;
    assert_int_equal(rpc_server_create(&options, &s->server), 0);
    struct rpc_addr addr = {.scheme = scheme, .host = "127.0.0.1"};
    if (scheme != RPC_SCHEME_TCP)
        snprintf(addr.path, sizeof addr.path, "%s/socket", s->dir);
    char why[RPC_WHY_CHARS] = "";
    if (rpc_server_listen(s->server, &addr, NULL, &s->bound, why))
        fail_msg("%s", why);
    assert_int_equal(pthread_create(&s->thread, NULL, server_main, s->server), 0);
}

static void service_start(struct service *s, enum rpc_scheme scheme, uint32_t max_clients)
{
    service_start_with(s, scheme, &(struct rpc_server_options){.max_clients = max_clients});
}

static void service_stop(struct service *s)
{
    rpc_server_stop(s->server);
    pthread_join(s->thread, NULL);
    rpc_server_destroy(s->server);
    assert_false(s->sleeps);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    assert_int_equal(rmdir(s->dir), 0); /* no socket file is left in it */
}

static int dial_as(const struct service *s, const struct rpc_config *config,
                   struct rpc_client **out, char why[RPC_WHY_CHARS])
{
    struct rpc_addr addr;
    assert_int_equal(rpc_addr_parse(s->bound, &addr, why), 0);
    struct rpc_client_options options = {.config = *config};
    return rpc_client_connect(&addr, NULL, &options, out, why);
}

static int dial(const struct service *s, const char *name, struct rpc_client **out,
                char why[RPC_WHY_CHARS])
{
    return dial_as(s, &(struct rpc_config){.name = name}, out, why);
}

static struct rpc_client *dial_well(const struct service *s)
{
    struct rpc_client *client;
    char why[RPC_WHY_CHARS] = "";
    if (dial(s, NULL, &client, why))
        fail_msg("%s", why);
    return client;
}

static void expect_echo(struct rpc_client *client, uint64_t value)
{
    struct iovec iov;
    struct rpc_send send = send_of(METHOD_ECHO, &iov, &value, sizeof value);
    struct rpc_answer got = {0};
    assert_int_equal(rpc_client_call(client, &send, &got), 0);
    assert_int_equal(got.len, sizeof value);
    assert_memory_equal(got.data, &value, sizeof value);
    rpc_answer_fini(&got);
}

static enum rpc_scheme scheme_of(void **state)
{
    return (enum rpc_scheme)(uintptr_t)*state;
}

static void several_clients_are_served(void **state)
{
    struct service s;
    service_start(&s, scheme_of(state), 0);
    struct rpc_client *clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = dial_well(&s);
    for (uint64_t round = 0; round < 50; round++)
        for (uint64_t i = 0; i < CLIENTS; i++)
            expect_echo(clients[i], round * CLIENTS + i);
    assert_int_equal(atomic_load(&s.opened), CLIENTS);
    for (int i = 0; i < CLIENTS; i++)
        rpc_client_destroy(clients[i]);
    service_stop(&s);
    assert_int_equal(atomic_load(&s.closed), CLIENTS);
}

struct flood {
    struct rpc_client *client;
    atomic_bool stop;
    int failures;
};

static void *flood_main(void *arg)
{
    struct flood *f = arg;
    while (!atomic_load(&f->stop))
        f->failures +=
            rpc_client_call(f->client, &(struct rpc_send){.method = METHOD_ECHO}, NULL) != 0;
    return NULL;
}

static void busy_client_does_not_starve_a_new_one(void **state)
{
    struct service s;
    service_start(&s, scheme_of(state), 0);
    struct flood flood = {.client = dial_well(&s)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, flood_main, &flood), 0);
    struct rpc_client *other = dial_well(&s);
    for (uint64_t i = 0; i < 50; i++)
        expect_echo(other, i);
    atomic_store(&flood.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(flood.failures, 0);
    rpc_client_destroy(other);
    rpc_client_destroy(flood.client);
    service_stop(&s);
}

static void client_past_the_limit_is_told_so(void **state)
{
    struct service s;
    service_start(&s, scheme_of(state), 2);
    struct rpc_client *first = dial_well(&s), *second = dial_well(&s), *third;
    char why[RPC_WHY_CHARS] = "";
    assert_int_equal(dial(&s, NULL, &third, why), -EUSERS);
    assert_non_null(strstr(why, "limit of 2 clients"));
    expect_echo(first, 1);
    rpc_client_destroy(second);
    /* The place is free once the server has noticed. */
    uint64_t limit = hw_now_ns() + 240 * HW_SEC;
    int rc;
    while ((rc = dial(&s, NULL, &second, why)) == -EUSERS && hw_now_ns() < limit)
        expect_echo(first, 2);
    assert_int_equal(rc, 0);
    expect_echo(second, 3);
    rpc_client_destroy(first);
    rpc_client_destroy(second);
    service_stop(&s);
}

static void unwelcome_client_is_turned_away(void **state)
{
    struct service s;
    service_start(&s, scheme_of(state), 0);
    struct rpc_client *client;
    char why[RPC_WHY_CHARS] = "";
    int rc = dial(&s, "unwelcome", &client, why);
    if (rc == 0) { /* the handshake was over before the refusal */
        rc = rpc_client_call(client, &(struct rpc_send){.method = METHOD_ECHO}, NULL);
        rpc_client_destroy(client);
    }
    assert_int_equal(rc, -EPERM);
    service_stop(&s);
    assert_int_equal(atomic_load(&s.opened), 0);
    assert_int_equal(atomic_load(&s.closed), 0);
}

static void note_done(void *user, int status, const struct rpc_msg *reply)
{
    (void)reply;
    *(int *)user = status;
}

static bool is_done(void *user)
{
    return *(int *)user != 1;
}

static void handler_may_answer_later(void **state)
{
    struct service s;
    service_start(&s, scheme_of(state), 0);
    struct rpc_client *client = dial_well(&s), *other = dial_well(&s);
    int status = 1;
    struct rpc_send send = {.method = METHOD_LATER};
    assert_int_equal(rpc_client_call_async(client, &send, note_done, &status), 0);
    assert_int_equal(rpc_client_flush(client), 0);
    expect_echo(other, 1);
    expect_echo(client, 2); /* with this the later one is answered */
    assert_int_equal(rpc_client_wait(client, is_done, &status, 240 * HW_SEC), 0);
    assert_int_equal(status, 0);
    rpc_client_destroy(client);
    rpc_client_destroy(other);
    service_stop(&s);
}

static void client_that_goes_leaves_nothing_behind(void **state)
{
    struct service s;
    service_start(&s, scheme_of(state), 0);
    struct rpc_client *client = dial_well(&s), *other = dial_well(&s);
    int status = 1;
    struct rpc_send send = {.method = METHOD_LATER};
    assert_int_equal(rpc_client_call_async(client, &send, note_done, &status), 0);
    expect_echo(client, 1);
    assert_int_equal(rpc_client_call_async(client, &send, note_done, &status), 0);
    assert_int_equal(rpc_client_flush(client), 0);
    rpc_client_destroy(client); /* with a call that the handler holds */
    uint64_t limit = hw_now_ns() + 240 * HW_SEC;
    while (atomic_load(&s.closed) == 0 && hw_now_ns() < limit)
        expect_echo(other, 2);
    assert_int_equal(atomic_load(&s.closed), 1);
    rpc_client_destroy(other);
    service_stop(&s);
}

static void stopping_says_goodbye(void **state)
{
    struct service s;
    service_start(&s, scheme_of(state), 0);
    struct rpc_client *client = dial_well(&s);
    expect_echo(client, 1);
    service_stop(&s);
    int status = 1;
    assert_int_equal(rpc_client_wait(client, is_done, &status, 240 * HW_SEC), -ESHUTDOWN);
    rpc_client_destroy(client);
}

static void address_in_use_is_named(void **state)
{
    struct service s;
    service_start(&s, scheme_of(state), 0);
    struct rpc_addr addr;
    struct rpc_listener *l;
    char why[RPC_WHY_CHARS] = "";
    assert_int_equal(rpc_addr_parse(s.bound, &addr, why), 0);
    assert_int_equal(rpc_listen(&addr, NULL, &l, why), -EADDRINUSE);
    assert_non_null(strstr(why, "another server has it"));
    struct rpc_client *client = dial_well(&s);
    expect_echo(client, 1);
    rpc_client_destroy(client);
    service_stop(&s);
}

#define ON(scheme, test)                                                                           \
    {                                                                                              \
#test " over " #scheme, test, NULL, NULL, (void *)(uintptr_t)RPC_SCHEME_##scheme           \
    }
#define ON_ALL(test) ON(UNIX, test), ON(SHM, test), ON(TCP, test)

static void note_status(void *user, int status, const struct rpc_msg *reply)
{
    (void)reply;
    *(int *)user = status;
}

static bool is_noted(void *user)
{
    return *(int *)user <= 0;
}

/* Waits until the server sleeps with the message, which it does once it has nothing else to do. */
static void answer_aside(struct service *s)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 240;
    pthread_mutex_lock(&s->lock);
    while (!s->sleeps || !s->aside)
        assert_int_equal(pthread_cond_timedwait(&s->changed, &s->lock, &end), 0);
    s->lent = true;
    pthread_mutex_unlock(&s->lock);
    answer(s->aside_ep, s->aside);
    assert_int_equal(rpc_flush(s->aside_ep), 0);
    pthread_mutex_lock(&s->lock);
    s->aside = NULL;
    s->lent = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void another_thread_answers_while_it_sleeps(void **state)
{
    struct service s;
    service_start(&s, scheme_of(state), 0);
    struct rpc_client *client = dial_well(&s);
    for (int i = 0; i < 20; i++) {
        int status = 1;
        struct rpc_send send = {.method = METHOD_ASIDE};
        assert_int_equal(rpc_client_call_async(client, &send, note_status, &status), 0);
        assert_int_equal(rpc_client_flush(client), 0);
        answer_aside(&s);
        assert_int_equal(rpc_client_wait(client, is_noted, &status, 240 * HW_SEC), 0);
        assert_int_equal(status, 0);
        expect_echo(client, (uint64_t)i);
    }
    rpc_client_destroy(client);
    service_stop(&s);
}

/* No heartbeat tells that its client has gone, and it may be one too many. */
static void who_comes_to_resume_and_does_not_is_dropped(void **state)
{
    (void)state;
    struct service s;
    service_start_with(&s, RPC_SCHEME_TCP, &(struct rpc_server_options){.mute_ns = 100 * HW_MS});
    struct rpc_client *other = dial_well(&s), *client;
    char why[RPC_WHY_CHARS];
    assert_int_equal(dial_as(&s, &(struct rpc_config){.resuming = true}, &client, why), 0);
    uint64_t limit = hw_now_ns() + 240 * HW_SEC;
    while (atomic_load(&s.closed) == 0 && hw_now_ns() < limit)
        expect_echo(other, 2);
    assert_int_equal(atomic_load(&s.closed), 1);
    rpc_client_destroy(client);
    rpc_client_destroy(other);
    service_stop(&s);
}

/* Also where that one never was open, and `closed` is not called. */
static void it_stops_with_its_last_connection(void **state)
{
    (void)state;
    struct service s = {0};
    struct rpc_server_options options = {.ops = &ops, .user = &s, .until_empty = true};
    struct rpc_transport *transport;
    int ends[2];
    assert_int_equal(rpc_server_create(&options, &s.server), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(rpc_sock_wrap(ends[0], "unix", true, "peer", &transport), 0);
    assert_int_equal(rpc_server_adopt(s.server, transport), 0);
    close(ends[1]);
    rpc_server_run(s.server);
    assert_int_equal(atomic_load(&s.opened), 0);
    assert_int_equal(atomic_load(&s.closed), 0);
    rpc_server_destroy(s.server);
}

int main(void)
{
    setenv("VENUS_LOG_LEVEL", "ERROR", 0);
    const struct CMUnitTest tests[] = {
        ON_ALL(several_clients_are_served),
        ON_ALL(busy_client_does_not_starve_a_new_one),
        ON_ALL(client_past_the_limit_is_told_so),
        ON_ALL(unwelcome_client_is_turned_away),
        ON_ALL(handler_may_answer_later),
        ON_ALL(another_thread_answers_while_it_sleeps),
        ON_ALL(client_that_goes_leaves_nothing_behind),
        ON_ALL(stopping_says_goodbye),
        ON_ALL(address_in_use_is_named),
        cmocka_unit_test(who_comes_to_resume_and_does_not_is_dropped),
        cmocka_unit_test(it_stops_with_its_last_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
