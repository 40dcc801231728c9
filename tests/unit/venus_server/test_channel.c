/* Threads that share one connection: order, room, heartbeats, and the end. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "duet.h"

enum { METHOD = 300, THREADS = 3, PUSHES = 200, BODY = 8 << 10 };

static struct duet duet;
static uint64_t next; /* under the turn */

/* Each push holds its number among all: the turn is held from making it to sending it. */
static void *push_numbers(void *arg)
{
    static __thread uint8_t body[BODY];
    (void)arg;
    for (int i = 0; i < PUSHES; i++) {
        vns_channel_turn(&duet.channel);
        wire_store64(body, next++);
        vns_channel_lock(&duet.channel);
        assert_int_equal(vns_channel_push(&duet.channel, METHOD, body, sizeof(body)), 0);
        vns_channel_unlock(&duet.channel);
        vns_channel_turn_end(&duet.channel);
    }
    vns_channel_lock(&duet.channel);
    vns_channel_flush(&duet.channel);
    vns_channel_unlock(&duet.channel);
    return NULL;
}

/* The client takes 64 KiB at a time, so that every thread runs out of credit again and again. */
static void pushes_arrive_in_the_order_of_turns(void **state)
{
    pthread_t threads[THREADS];
    (void)state;
    duet_start(&duet, RPC_WINDOW_MIN, 0);
    next = 0;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, push_numbers, NULL), 0);
    duet_wait(&duet, THREADS * PUSHES);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS * PUSHES; i++)
        assert_int_equal(wire_load64(duet.pushes[i].head), i);
    duet_end(&duet);
}

static void a_look_takes_what_is_there_and_does_not_wait(void **state)
{
    char body[] = "ab";
    struct iovec iov = {body, 2};
    struct rpc_send send = {.method = METHOD, .iov = &iov, .iov_count = 1};
    (void)state;
    duet_start(&duet, 0, 0);
    assert_null(vns_channel_poll(&duet.channel));
    for (int i = 0; i < 2; i++)
        assert_int_equal(rpc_client_post(duet.client, &send), 0);
    assert_int_equal(rpc_client_flush(duet.client), 0);
    for (int i = 0; i < 2; i++) { /* the second came with the first */
        struct rpc_msg *msg = vns_channel_poll(&duet.channel);
        assert_non_null(msg);
        assert_int_equal(msg->len, 2);
        vns_channel_lock(&duet.channel);
        rpc_release(duet.ep, msg);
        vns_channel_unlock(&duet.channel);
    }
    assert_null(vns_channel_poll(&duet.channel));
    duet_end(&duet);
}

static void *post_to_who_waits(void *arg)
{
    char body[] = "ab";
    struct iovec iov = {body, 2};
    struct rpc_send send = {.method = METHOD, .iov = &iov, .iov_count = 1};
    uint64_t end_ns = hw_now_ns() + DUET_PATIENCE_MS * HW_MS;
    (void)arg;
    for (bool waits = false; !waits; sched_yield()) {
        assert_true(hw_now_ns() < end_ns);
        vns_channel_lock(&duet.channel);
        waits = duet.channel.reading;
        vns_channel_unlock(&duet.channel);
    }
    assert_int_equal(rpc_client_post(duet.client, &send), 0);
    assert_int_equal(rpc_client_flush(duet.client), 0);
    return NULL;
}

static void a_client_is_heard_at_once(void **state)
{
    pthread_t poster;
    (void)state;
    duet_start(&duet, 0, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&poster, NULL, post_to_who_waits, NULL), 0);
        struct rpc_msg *msg = vns_channel_receive(&duet.channel);
        assert_non_null(msg);
        vns_channel_lock(&duet.channel);
        rpc_release(duet.ep, msg);
        vns_channel_unlock(&duet.channel);
        pthread_join(poster, NULL);
    }
    duet_end(&duet);
}

static void *answer_all(void *arg)
{
    struct rpc_msg *msg;
    int *answered = arg;
    while ((msg = vns_channel_receive(&duet.channel)) != NULL) {
        vns_channel_lock(&duet.channel);
        *answered += rpc_reply(duet.ep, msg, 0, NULL) == 0;
        rpc_release(duet.ep, msg);
        vns_channel_unlock(&duet.channel);
    }
    return NULL;
}

/* The executor sleeps in the transport while others push. */
static void pushes_pass_a_reader_that_waits(void **state)
{
    pthread_t executor, pusher;
    int answered = 0;
    struct rpc_send call = {.method = METHOD};
    (void)state;
    duet_start(&duet, RPC_WINDOW_MIN, 0);
    next = 0;
    assert_int_equal(pthread_create(&executor, NULL, answer_all, &answered), 0);
    assert_int_equal(pthread_create(&pusher, NULL, push_numbers, NULL), 0);
    for (int i = 0; i < 50; i++)
        assert_int_equal(rpc_client_call(duet.client, &call, NULL), 0);
    duet_wait(&duet, PUSHES);
    pthread_join(pusher, NULL);
    vns_channel_lock(&duet.channel);
    rpc_ep_shutdown(duet.ep, 0, NULL);
    vns_channel_unlock(&duet.channel);
    pthread_join(executor, NULL);
    assert_int_equal(answered, 50);
    duet_end(&duet);
}

static bool never(void *user)
{
    (void)user;
    return false;
}

/* Nobody receives, as while a driver compiles: the client still hears a heartbeat, or its own
 * would end the connection within the wait. */
static void the_keeper_answers_for_a_busy_executor(void **state)
{
    uint64_t heartbeat = 1500 * HW_MS; /* short, but not what a busy machine misses */
    (void)state;
    duet_start(&duet, RPC_WINDOW_MIN, heartbeat);
    assert_int_equal(rpc_client_wait(duet.client, never, NULL, 3 * heartbeat), -ETIMEDOUT);
    assert_int_equal(rpc_client_status(duet.client), 0);
    duet_end(&duet);
}

/* The client goes while a driver call lasts for ever: the process ends all the same. */
static void the_keeper_ends_a_process_that_is_stuck(void **state)
{
    int status;
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(DUET_PATIENCE_MS / 1000);
        duet_start(&duet, RPC_WINDOW_MIN, 0);
        rpc_client_destroy(duet.client);
        for (;;)
            pause();
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* What it does then, as keeping what the client uploaded last, may take longer than any driver. */
static void the_keeper_leaves_an_executor_alone_that_found_the_end(void **state)
{
    (void)state;
    duet_start(&duet, RPC_WINDOW_MIN, 0);
    rpc_client_destroy(duet.client);
    duet.client = NULL;
    assert_null(vns_channel_receive(&duet.channel));
    assert_false(duet.channel.executing);
    duet_end(&duet);
}

static void a_push_to_a_client_that_is_gone_ends(void **state)
{
    uint8_t body[BODY] = {0};
    int rc = 0;
    (void)state;
    duet_start(&duet, RPC_WINDOW_MIN, 0);
    rpc_client_destroy(duet.client);
    duet.client = NULL;
    while (rc == 0) /* credit or the transport ends it */
        rc = vns_channel_send(&duet.channel, METHOD, body, sizeof(body));
    assert_true(rc == -ESHUTDOWN || rc == -ECONNRESET);
    assert_null(vns_channel_receive(&duet.channel));
    duet_end(&duet);
}

static void a_client_that_is_turned_away_reads_why(void **state)
{
    char why[RPC_WHY_CHARS];
    struct iovec iov = {(void *)"still sending", 13};
    struct rpc_send post = {.method = METHOD, .iov = &iov, .iov_count = 1};
    (void)state;
    duet_start(&duet, RPC_WINDOW_MIN, 0);
    assert_int_equal(rpc_client_post(duet.client, &post), 0);
    (void)rpc_client_flush(duet.client);
    vns_channel_end(&duet.channel, -EDQUOT, "enough");
    assert_true(rpc_client_wait(duet.client, never, NULL, DUET_PATIENCE_MS * HW_MS) < 0);
    rpc_client_reason(duet.client, why);
    assert_non_null(strstr(why, "enough"));
    duet_end(&duet);
}

/* More than the socket holds, and no more than a duet keeps: the end may be long in coming. */
static void *push_until_it_ends(void *arg)
{
    static uint8_t body[BODY];
    struct vns_channel *channel = arg;
    for (int i = 0; i < DUET_PUSHES_MAX; i++)
        if (vns_channel_send(channel, METHOD, body, sizeof(body)) != 0)
            break;
    return NULL;
}

static void *end_and_close(void *arg)
{
    struct duet *d = arg;
    vns_channel_end(&d->channel, -EDQUOT, "enough");
    return NULL;
}

/* The socket is full of pushes that the client has not read, so there is no room for a goodbye. */
static void a_goodbye_waits_for_room(void **state)
{
    char why[RPC_WHY_CHARS];
    pthread_t pusher, ender;
    (void)state;
    duet_start(&duet, 16 << 20, 0);
    assert_int_equal(pthread_create(&pusher, NULL, push_until_it_ends, &duet.channel), 0);
    while (!rpc_send_blocked(duet.ep))
        sched_yield();
    assert_int_equal(pthread_create(&ender, NULL, end_and_close, &duet), 0);
    assert_true(rpc_client_wait(duet.client, never, NULL, DUET_PATIENCE_MS * HW_MS) < 0);
    rpc_client_reason(duet.client, why);
    assert_non_null(strstr(why, "enough"));
    pthread_join(pusher, NULL);
    pthread_join(ender, NULL);
    duet_end(&duet);
}

/* What a session gives up is not executed further, and the client reads why. */
static void a_client_that_is_given_up_reads_why(void **state)
{
    char why[RPC_WHY_CHARS];
    struct iovec iov = {(void *)"too late", 8};
    struct rpc_send post = {.method = METHOD, .iov = &iov, .iov_count = 1};
    (void)state;
    duet_start(&duet, RPC_WINDOW_MIN, 0);
    assert_int_equal(rpc_client_post(duet.client, &post), 0);
    (void)rpc_client_flush(duet.client);
    struct rpc_msg *msg = NULL;
    while (!msg)
        msg = vns_channel_poll(&duet.channel);
    assert_int_equal(rpc_client_post(duet.client, &post), 0);
    (void)rpc_client_flush(duet.client);
    vns_channel_lock(&duet.channel);
    while (rpc_wait(duet.ep, HW_NEVER) == 0 && rpc_poll(duet.ep) == 0)
        ;
    rpc_release(duet.ep, msg);
    vns_channel_unlock(&duet.channel);
    vns_channel_give_up(&duet.channel, -ENOMEM, "no thread for a queue");
    assert_null(vns_channel_receive(&duet.channel));
    vns_channel_leave(&duet.channel);
    assert_true(rpc_client_wait(duet.client, never, NULL, DUET_PATIENCE_MS * HW_MS) < 0);
    rpc_client_reason(duet.client, why);
    assert_non_null(strstr(why, "no thread for a queue"));
    duet_end(&duet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_takes_what_is_there_and_does_not_wait),
        cmocka_unit_test(a_client_is_heard_at_once),
        cmocka_unit_test(pushes_arrive_in_the_order_of_turns),
        cmocka_unit_test(pushes_pass_a_reader_that_waits),
        cmocka_unit_test(the_keeper_answers_for_a_busy_executor),
        cmocka_unit_test(the_keeper_ends_a_process_that_is_stuck),
        cmocka_unit_test(the_keeper_leaves_an_executor_alone_that_found_the_end),
        cmocka_unit_test(a_push_to_a_client_that_is_gone_ends),
        cmocka_unit_test(a_client_that_is_turned_away_reads_why),
        cmocka_unit_test(a_goodbye_waits_for_room),
        cmocka_unit_test(a_client_that_is_given_up_reads_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
