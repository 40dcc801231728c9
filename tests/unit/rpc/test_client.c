/* The blocking client: many threads on one connection, and a server in a thread of its own. */
#include "unit.h"

#include "base/clock.h"
#include "duo.h"
#include "rpc/client.h"
#include "rpc/server.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { METHOD_PUSH_ME = 10, METHOD_NEVER, METHOD_GIVE_FD };

struct service {
    struct rpc_server *server;
    pthread_t thread;
    atomic_ullong posts;
    struct rpc_msg *kept[64]; /* never answered */
    int kept_count;
};

static int gift; /* what METHOD_GIVE_FD is answered with; set before the server's thread starts */

static void serve(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct service *service = user;
    struct iovec iov = {(void *)msg->data, msg->len};
    struct rpc_send echo = {.method = 5, .iov = &iov, .iov_count = 1};
    if (msg->kind == RPC_POST)
        atomic_fetch_add(&service->posts, 1);
    if (msg->method == METHOD_NEVER) {
        service->kept[service->kept_count++] = msg;
        return;
    }
    if (msg->method == METHOD_GIVE_FD) {
        echo.fds = &gift;
        echo.fd_count = 1;
    }
    if (msg->method == METHOD_PUSH_ME)
        assert_int_equal(rpc_push(ep, &echo), 0);
    if (msg->kind == RPC_CALL)
        (void)rpc_reply(ep, msg, 0, &echo);
    rpc_release(ep, msg);
}

static void closed(void *user, struct rpc_ep *ep, int status)
{
    struct service *service = user;
    (void)status;
    while (service->kept_count > 0)
        rpc_release(ep, service->kept[--service->kept_count]);
}

static const struct rpc_server_ops ops = {.message = serve, .closed = closed};

static void *server_main(void *arg)
{
    rpc_server_run(arg);
    return NULL;
}

static struct rpc_client *connect_over(struct service *service, enum link_kind kind,
                                       const struct rpc_client_options *options,
                                       const struct rpc_config *server_config)
{
    *service = (struct service){0};
    struct rpc_server_options server = {.ops = &ops, .user = service};
    if (server_config)
        server.config = *server_config;
    assert_int_equal(rpc_server_create(&server, &service->server), 0);
    struct rpc_transport *t[2];
    struct rpc_loopnet *net;
    link_make(kind, t, &net);
    assert_int_equal(rpc_server_adopt(service->server, t[SERVER]), 0);
    assert_int_equal(pthread_create(&service->thread, NULL, server_main, service->server), 0);
    struct rpc_client *client;
    char why[RPC_WHY_CHARS] = "";
    if (rpc_client_create(t[CLIENT], options, &client, why))
        fail_msg("%s", why);
    return client;
}

static void stop(struct service *service)
{
    rpc_server_stop(service->server);
    pthread_join(service->thread, NULL);
    rpc_server_destroy(service->server);
}

static const struct rpc_client_options plain;

static enum link_kind kind_of(void **state)
{
    return (enum link_kind)(uintptr_t)*state;
}

/* ---- descriptors ---- */

static void answer_may_bring_a_descriptor(void **state)
{
    (void)state;
    struct service service;
    struct rpc_client_options options = {.config.takes_fds = true};
    int ends[2];
    char byte = 0;
    assert_int_equal(pipe(ends), 0);
    gift = ends[1];
    struct rpc_client *client = connect_over(&service, LINK_UNIX, &options, NULL);
    struct rpc_answer answer;
    struct rpc_send ask = {.method = METHOD_GIVE_FD};
    assert_int_equal(rpc_client_call(client, &ask, &answer), 0);
    assert_int_equal(answer.fd_count, 1);
    assert_int_equal(write(answer.fds[0], "x", 1), 1);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    rpc_answer_fini(&answer);
    rpc_client_destroy(client);
    stop(&service);
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 0); /* the answer's copy is closed too */
    close(ends[0]);
}

/* ---- many threads ---- */

enum { THREADS = 6, ROUNDS = 150 };

struct worker {
    struct rpc_client *client;
    int number;
    int failures;
};

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    uint8_t *data = malloc(40000);
    for (int i = 0; i < ROUNDS; i++) {
        size_t len = i % 10 == 9 ? 40000 : 8 + (size_t)i;
        pattern_fill(data, len, (uint64_t)(w->number * ROUNDS + i));
        struct iovec iov;
        struct rpc_send send = send_of(METHOD_ECHO, &iov, data, len);
        send.stream = (uint8_t)w->number;
        struct rpc_answer answer = {0};
        int rc = rpc_client_call(w->client, &send, &answer);
        w->failures += rc || answer.len != len || memcmp(answer.data, data, len) != 0;
        rpc_answer_fini(&answer);
        w->failures += rpc_client_post(w->client, &send) != 0;
        if (i % 16 == 0)
            w->failures += rpc_client_flush(w->client) != 0;
    }
    free(data);
    return NULL;
}

static bool all_posts(void *user)
{
    return atomic_load(&((struct service *)user)->posts) == THREADS * ROUNDS;
}

static void many_threads_share_one_connection(void **state)
{
    struct service service;
    struct rpc_client *client = connect_over(&service, kind_of(state), &plain, NULL);
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){client, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, worker_main, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].failures, 0);
    }
    assert_int_equal(rpc_client_flush(client), 0);
    assert_int_equal(rpc_client_call(client, &(struct rpc_send){.method = METHOD_ECHO}, NULL), 0);
    uint64_t limit = hw_now_ns() + 240 * HW_SEC;
    while (!all_posts(&service) && hw_now_ns() < limit)
        assert_int_equal(rpc_client_call(client, &(struct rpc_send){.method = METHOD_ECHO}, NULL),
                         0);
    assert_true(all_posts(&service));
    rpc_client_destroy(client);
    stop(&service);
}

/* ---- pushes and asynchronous calls ---- */

struct seen {
    uint64_t pushes, answers;
};

static void on_push(void *user, const struct rpc_msg *push)
{
    struct seen *seen = user;
    seen->pushes += push->method == 5 && push->len == 4;
}

static void on_answer(void *user, int status, const struct rpc_msg *reply)
{
    struct seen *seen = user;
    (void)reply;
    seen->answers += status == 0;
}

static bool seen_all(void *user)
{
    const struct seen *seen = user;
    return seen->pushes == 100 && seen->answers == 100;
}

static void ask_for_pushes(struct rpc_client *client, struct seen *seen)
{
    for (int i = 0; i < 100; i++) {
        struct iovec iov;
        struct rpc_send send = send_of(METHOD_PUSH_ME, &iov, "push", 4);
        assert_int_equal(rpc_client_call_async(client, &send, on_answer, seen), 0);
    }
}

static void pushes_and_async_answers_reach_whoever_waits(void **state)
{
    struct seen seen = {0};
    struct rpc_client_options options = {.on_push = on_push, .push_user = &seen};
    struct service service;
    struct rpc_client *client = connect_over(&service, kind_of(state), &options, NULL);
    ask_for_pushes(client, &seen);
    assert_int_equal(rpc_client_wait(client, seen_all, &seen, 240 * HW_SEC), 0);
    rpc_client_destroy(client);
    stop(&service);
}

static bool never(void *user)
{
    (void)user;
    return false;
}

static void waits_and_calls_end_at_their_deadline(void **state)
{
    struct service service;
    struct rpc_client *client = connect_over(&service, kind_of(state), &plain, NULL);
    assert_int_equal(rpc_client_wait(client, never, NULL, 20 * HW_MS), -ETIMEDOUT);
    struct rpc_send send = {.method = METHOD_NEVER, .timeout_ns = 20 * HW_MS};
    assert_int_equal(rpc_client_call(client, &send, NULL), -ETIMEDOUT);
    assert_int_equal(rpc_client_call(client, &(struct rpc_send){.method = METHOD_ECHO}, NULL), 0);
    assert_int_equal(rpc_client_status(client), 0);
    rpc_client_destroy(client);
    stop(&service);
}

/* No other thread reads: what such a wait does not take in, nobody does. */
static void waits_without_time_see_what_has_arrived(void **state)
{
    struct seen seen = {0};
    struct rpc_client_options options = {
        .on_push = on_push, .push_user = &seen, .config.heartbeat_ns = HW_NEVER};
    struct service service;
    struct rpc_client *client = connect_over(&service, kind_of(state), &options, NULL);
    ask_for_pushes(client, &seen);
    int rc = -ETIMEDOUT;
    uint64_t end = hw_now_ns() + 60 * HW_SEC;
    while (rc == -ETIMEDOUT && hw_now_ns() < end) {
        rc = rpc_client_wait(client, seen_all, &seen, 0);
        sched_yield();
    }
    assert_int_equal(rc, 0);
    rpc_client_destroy(client);
    stop(&service);
}

/* ---- a full transport while another thread reads ---- */

struct reader {
    struct rpc_client *client;
    atomic_bool done;
    int rc;
};

static bool reader_done(void *user)
{
    return atomic_load(&((struct reader *)user)->done);
}

static void *reader_main(void *arg)
{
    struct reader *r = arg;
    r->rc = rpc_client_wait(r->client, reader_done, r, 240 * HW_SEC);
    return NULL;
}

static void blocked_sends_go_on_beside_a_reader(void **state)
{
    struct service service;
    struct rpc_client *client = connect_over(&service, kind_of(state), &plain, NULL);
    struct reader reader = {.client = client};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, reader_main, &reader), 0);
    size_t bytes = 2 << 20;
    uint8_t *data = malloc(bytes);
    pattern_fill(data, bytes, 1);
    for (int i = 0; i < 20; i++) {
        struct iovec iov;
        struct rpc_send send = send_of(METHOD_ECHO, &iov, data, bytes);
        struct rpc_answer answer = {0};
        assert_int_equal(rpc_client_post(client, &send), 0);
        assert_int_equal(rpc_client_call(client, &send, &answer), 0);
        assert_int_equal(answer.len, bytes);
        assert_memory_equal(answer.data, data, bytes);
        rpc_answer_fini(&answer);
    }
    atomic_store(&reader.done, true);
    pthread_join(thread, NULL);
    assert_int_equal(reader.rc, 0);
    free(data);
    rpc_client_destroy(client);
    stop(&service);
}

/* ---- fork, the end, signals, the heartbeat ---- */

static void connection_stays_the_parents_after_fork(void **state)
{
    struct service service;
    struct rpc_client *client = connect_over(&service, kind_of(state), &plain, NULL);
    /* Its thread has started by then, and a sanitizer's allocator is not copied while it is locked.
     */
    assert_int_equal(rpc_client_call(client, &(struct rpc_send){.method = METHOD_ECHO}, NULL), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct rpc_send send = {.method = METHOD_ECHO};
        bool good = rpc_client_call(client, &send, NULL) == -ESHUTDOWN &&
                    rpc_client_post(client, &send) == -ESHUTDOWN &&
                    rpc_client_flush(client) == -ESHUTDOWN &&
                    rpc_client_status(client) == -ESHUTDOWN;
        rpc_client_destroy(client);
        _exit(good ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(rpc_client_call(client, &(struct rpc_send){.method = METHOD_ECHO}, NULL),
                         0);
    rpc_client_destroy(client);
    stop(&service);
}

static const uint64_t hang_ns = 2 * HW_SEC; /* threads of a busy machine pause for less */

static void note_status(void *user, int status, const struct rpc_msg *reply)
{
    (void)reply;
    *(int *)user = status;
}

static void destroy_ends_what_is_pending(void **state)
{
    struct service service;
    struct rpc_client *client = connect_over(&service, kind_of(state), &plain, NULL);
    int ended = 1;
    struct rpc_send send = {.method = METHOD_NEVER};
    assert_int_equal(rpc_client_call_async(client, &send, note_status, &ended), 0);
    assert_int_equal(rpc_client_flush(client), 0);
    rpc_client_destroy(client);
    assert_true(ended == -ESHUTDOWN || ended == -ECANCELED);
    stop(&service);
}

static void server_that_stops_ends_the_calls(void **state)
{
    struct service service;
    struct rpc_client *client = connect_over(&service, kind_of(state), &plain, NULL);
    int ended = 1;
    struct rpc_send send = {.method = METHOD_NEVER};
    assert_int_equal(rpc_client_call_async(client, &send, note_status, &ended), 0);
    assert_int_equal(rpc_client_call(client, &(struct rpc_send){.method = METHOD_ECHO}, NULL), 0);
    stop(&service);
    assert_int_equal(rpc_client_wait(client, never, NULL, 240 * HW_SEC), -ESHUTDOWN);
    assert_int_equal(ended, -ESHUTDOWN);
    char why[RPC_WHY_CHARS];
    rpc_client_reason(client, why);
    assert_non_null(strstr(why, "the server stops"));
    rpc_client_destroy(client);
}

struct end {
    atomic_int times;
    int status; /* written before times */
};

static void note_end(void *user, int status, const char *reason)
{
    struct end *end = user;
    assert_non_null(strstr(reason, "the server stops"));
    end->status = status;
    atomic_fetch_add(&end->times, 1);
}

static void the_end_is_told_once_though_no_thread_calls(void **state)
{
    struct end end = {0};
    struct rpc_client_options options = {
        .config = {.heartbeat_ns = hang_ns}, .on_end = note_end, .push_user = &end};
    struct service service;
    struct rpc_client *client = connect_over(&service, kind_of(state), &options, NULL);
    stop(&service);
    uint64_t limit = hw_now_ns() + 240 * HW_SEC;
    while (atomic_load(&end.times) == 0 && hw_now_ns() < limit)
        sched_yield();
    assert_int_equal(atomic_load(&end.times), 1);
    assert_int_equal(end.status, -ESHUTDOWN);
    assert_int_equal(rpc_client_wait(client, never, NULL, 240 * HW_SEC), -ESHUTDOWN);
    rpc_client_destroy(client);
    assert_int_equal(atomic_load(&end.times), 1);
}

/* The server drops a client that it has not heard of for this long, and no thread calls. */
enum { TASKS_MAX = 64 };

/* The threads of this process. */
static size_t list_tasks(unsigned long tasks[TASKS_MAX])
{
    size_t count = 0;
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder)) && count < TASKS_MAX;) {
        if (e->d_name[0] != '.')
            tasks[count++] = strtoul(e->d_name, NULL, 10);
    }
    closedir(folder);
    return count;
}

/* Of a thread that sleeps: one that has just been made blocks all signals until it runs. */
static bool takes(unsigned long task, int signal)
{
    char path[64], line[256], run_state = 0;
    unsigned long long blocked = 0;
    snprintf(path, sizeof path, "/proc/self/task/%lu/status", task);
    while (run_state != 'S') {
        FILE *status = fopen(path, "r");
        assert_non_null(status);
        while (fgets(line, sizeof line, status)) {
            (void)!sscanf(line, "State: %c", &run_state);
            (void)!sscanf(line, "SigBlk: %llx", &blocked);
        }
        fclose(status);
        sched_yield();
    }
    return !(blocked >> (signal - 1) & 1);
}

/* Of the new threads, the test's server takes signals; the client's heartbeat must not. */
static void signals_are_for_the_programs_own_threads(void **state)
{
    unsigned long before[TASKS_MAX], after[TASKS_MAX];
    struct service service;
    size_t old = list_tasks(before), takers = 0, made = 0;
    struct rpc_client *client = connect_over(&service, kind_of(state), &plain, NULL);
    size_t now = list_tasks(after);
    for (size_t i = 0; i < now; i++) {
        bool known = false;
        for (size_t k = 0; k < old; k++)
            known |= before[k] == after[i];
        made += !known;
        takers += !known && takes(after[i], SIGUSR1);
    }
    assert_int_equal(made, 2);
    assert_int_equal(takers, 1);
    rpc_client_destroy(client);
    stop(&service);
}

static void heartbeats_keep_an_idle_connection(void **state)
{
    struct rpc_config config = {.heartbeat_ns = hang_ns};
    struct rpc_client_options options = {.config = config};
    struct service service;
    struct rpc_client *client = connect_over(&service, kind_of(state), &options, &config);
    const struct rpc_stats *stats = rpc_client_stats(client);
    /* Pings of the server, of which it sends four in that time, show that it has passed. */
    uint64_t limit = hw_now_ns() + 240 * HW_SEC, first = hw_counter_load(&stats->reads);
    while (hw_counter_load(&stats->reads) < first + 5 && hw_now_ns() < limit)
        poll(NULL, 0, 10);
    assert_true(hw_counter_load(&stats->reads) >= first + 5);
    assert_int_equal(rpc_client_call(client, &(struct rpc_send){.method = METHOD_ECHO}, NULL), 0);
    assert_int_equal(rpc_client_status(client), 0);
    rpc_client_destroy(client);
    stop(&service);
}

#define ON(kind, test)                                                                             \
    {                                                                                              \
#test " over " #kind, test, NULL, NULL, (void *)(uintptr_t)LINK_##kind                     \
    }
#define ON_ALL(test) ON(UNIX, test), ON(SHM, test), ON(TCP4, test)

int main(void)
{
    setenv("VENUS_LOG_LEVEL", "ERROR", 0);
    const struct CMUnitTest tests[] = {
        ON_ALL(many_threads_share_one_connection),
        ON_ALL(pushes_and_async_answers_reach_whoever_waits),
        ON_ALL(waits_and_calls_end_at_their_deadline),
        ON_ALL(waits_without_time_see_what_has_arrived),
        ON_ALL(blocked_sends_go_on_beside_a_reader),
        ON_ALL(connection_stays_the_parents_after_fork),
        ON_ALL(destroy_ends_what_is_pending),
        ON_ALL(server_that_stops_ends_the_calls),
        ON_ALL(the_end_is_told_once_though_no_thread_calls),
        ON_ALL(heartbeats_keep_an_idle_connection),
        ON_ALL(signals_are_for_the_programs_own_threads),
        cmocka_unit_test(answer_may_bring_a_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
