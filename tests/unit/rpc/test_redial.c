/* A blocking client that dials again, and a server that lets it resume, through a relay that cuts:
 * many threads call meanwhile.  And who may not resume. */
#include "unit.h"

#include "base/clock.h"
#include "base/log.h"
#include "duo.h"
#include "rpc/client.h"
#include "rpc/methods.h"
#include "rpc/resume/resume.h"
#include "rpc/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, CALLS = 120, PAYLOAD_MAX = 300 << 10, CUTS = 25, PAIRS_MAX = 8 };

/* ---- the relay ---- */

struct relay {
    pthread_t thread;
    int listener, target_port, port;
    _Atomic int cuts; /* wanted; the thread follows */
    _Atomic bool stop;
    _Atomic int found; /* how a connection ended: 0, or an errno */
    _Atomic int mute;  /* so many connections, beginning with the present one, carry nothing more */
    int pairs[PAIRS_MAX][2];
    int count;
};

static int dial_port(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void drop_pair(struct relay *r, int i)
{
    close(r->pairs[i][0]);
    close(r->pairs[i][1]);
    r->count--;
    memmove(r->pairs[i], r->pairs[i + 1], (size_t)(r->count - i) * sizeof r->pairs[0]);
}

/* What one end has goes to the other.  False at an end, whose errno is then set: 0 for FIN. */
static bool carry(int from, int to)
{
    static uint8_t bytes[64 << 10];
    ssize_t n = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN;
    errno = 0;
    return n > 0 && send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static void *relay_main(void *arg)
{
    struct relay *r = arg;
    int done = 0;
    while (!atomic_load(&r->stop)) {
        struct pollfd p[1 + 2 * PAIRS_MAX] = {{.fd = r->listener, .events = POLLIN}};
        for (int i = 0; i < 2 * r->count; i++)
            p[1 + i] = (struct pollfd){.fd = r->pairs[i / 2][i % 2], .events = POLLIN};
        (void)poll(p, 1 + 2 * (nfds_t)r->count, 5);
        if (done < atomic_load(&r->cuts)) {
            done = atomic_load(&r->cuts);
            while (r->count > 0)
                drop_pair(r, 0);
        }
        for (int i = r->count - 1; i >= 0 && i >= atomic_load(&r->mute); i--) {
            if (carry(r->pairs[i][0], r->pairs[i][1]) && carry(r->pairs[i][1], r->pairs[i][0]))
                continue;
            atomic_store(&r->found, errno ? errno : ESHUTDOWN);
            drop_pair(r, i);
        }
        if ((p[0].revents & POLLIN) && r->count < PAIRS_MAX) {
            r->pairs[r->count][0] = accept(r->listener, NULL, NULL);
            r->pairs[r->count][1] = dial_port(r->target_port);
            r->count++;
        }
    }
    while (r->count > 0)
        drop_pair(r, 0);
    close(r->listener);
    return NULL;
}

static void relay_start(struct relay *r, int target_port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    *r = (struct relay){.target_port = target_port};
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(r->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(r->listener, 8), 0);
    assert_int_equal(getsockname(r->listener, (struct sockaddr *)&at, &len), 0);
    r->port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(&r->thread, NULL, relay_main, r), 0);
}

static void relay_stop(struct relay *r)
{
    atomic_store(&r->stop, true);
    pthread_join(r->thread, NULL);
}

/* ---- the server ---- */

struct service {
    struct rpc_server *server;
    pthread_t thread;
    int port;
    _Atomic int opened, closed;
};

static int on_opened(void *user, struct rpc_ep *ep)
{
    (void)ep;
    atomic_fetch_add(&((struct service *)user)->opened, 1);
    return 0;
}

static void on_closed(void *user, struct rpc_ep *ep, int status)
{
    (void)ep, (void)status;
    atomic_fetch_add(&((struct service *)user)->closed, 1);
}

static void on_message(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct service *s = user;
    struct iovec iov = {(void *)(uintptr_t)msg->data, msg->len};
    struct rpc_send echo = {.stream = msg->stream, .iov = &iov, .iov_count = 1};
    int status = msg->method == RPC_METHOD_RESUME ? -ENOENT : 0;
    if (status == 0)
        rpc_server_offer_resume(s->server, ep);
    (void)rpc_reply(ep, msg, status, status ? NULL : &echo);
    rpc_release(ep, msg);
}

static void *server_main(void *arg)
{
    rpc_server_run(arg);
    return NULL;
}

static void serve(struct service *s, uint64_t window_ns, uint32_t max_clients)
{
    static const struct rpc_server_ops ops = {
        .opened = on_opened, .message = on_message, .closed = on_closed};
    struct rpc_server_options options = {.ops = &ops,
                                         .user = s,
                                         .config = {.tolerates_silence = true},
                                         .max_clients = max_clients,
                                         .resume_window_ns = window_ns};
    struct rpc_addr addr;
    char why[RPC_WHY_CHARS];
    const char *bound;
    *s = (struct service){0};
    assert_int_equal(rpc_server_create(&options, &s->server), 0);
    assert_int_equal(rpc_addr_parse("127.0.0.1:0", &addr, why), 0);
    assert_int_equal(rpc_server_listen(s->server, &addr, NULL, &bound, why), 0);
    s->port = atoi(strrchr(bound, ':') + 1);
    assert_int_equal(pthread_create(&s->thread, NULL, server_main, s->server), 0);
}

static void serve_end(struct service *s)
{
    rpc_server_stop(s->server);
    pthread_join(s->thread, NULL);
    rpc_server_destroy(s->server);
}

static struct rpc_client *open_as(int port, const struct rpc_config *config)
{
    struct rpc_client_options options = {.config = *config};
    struct rpc_addr addr;
    struct rpc_client *client;
    char text[32], why[RPC_WHY_CHARS];
    snprintf(text, sizeof text, "127.0.0.1:%d", port);
    assert_int_equal(rpc_addr_parse(text, &addr, why), 0);
    assert_int_equal(rpc_client_connect(&addr, NULL, &options, &client, why), 0);
    return client;
}

static struct rpc_client *open_at(int port, bool resumes)
{
    return open_as(port, &(struct rpc_config){.resumes = resumes});
}

static int echo_once(struct rpc_client *c, uint8_t *data, size_t len, uint64_t seed)
{
    struct iovec iov;
    struct rpc_answer answer;
    pattern_fill(data, len, seed);
    struct rpc_send send = send_of(METHOD_ECHO, &iov, data, len);
    send.stream = (uint8_t)(seed % RPC_STREAMS);
    send.timeout_ns = 240 * HW_SEC;
    int rc = rpc_client_call(c, &send, &answer);
    if (rc)
        return rc;
    rc = answer.len == len && (len == 0 || memcmp(answer.data, data, len) == 0) ? 0 : -EBADMSG;
    rpc_answer_fini(&answer);
    return rc;
}

/* It comes before the first answer. */
static void await_offer(struct rpc_client *c)
{
    uint8_t byte[1];
    assert_int_equal(echo_once(c, byte, 1, 0), 0);
}

static void note_status(void *user, int status, const struct rpc_msg *reply)
{
    (void)reply;
    *(int *)user = status;
}

/* ---- tests ---- */

struct caller {
    struct rpc_client *client;
    uint64_t number;
    int failures;
    _Atomic int *done;
};

static void *call_on(void *arg)
{
    struct caller *c = arg;
    uint8_t *data = malloc(PAYLOAD_MAX);
    for (uint64_t i = 0; data && i < CALLS; i++) {
        uint64_t seed = c->number * CALLS + i;
        c->failures += echo_once(c->client, data, (size_t)(seed * 7919 % PAYLOAD_MAX), seed) != 0;
    }
    free(data);
    atomic_fetch_add(c->done, 1);
    return NULL;
}

/* As long as they call; each cut waits until the one before it is mended. */
static void cut_until(struct relay *r, const struct rpc_client *client, _Atomic int *done)
{
    const struct rpc_stats *stats = rpc_client_stats(client);
    for (int i = 0; i < CUTS && atomic_load(done) < THREADS; i++) {
        atomic_fetch_add(&r->cuts, 1);
        uint64_t before = hw_counter_load(&stats->resumes);
        while (atomic_load(done) < THREADS && hw_counter_load(&stats->resumes) == before)
            sched_yield();
    }
}

/* The one client that may come in may come back. */
static void threads_call_through_cuts(void **state)
{
    (void)state;
    struct service service;
    struct relay relay;
    struct caller callers[THREADS];
    pthread_t threads[THREADS];
    _Atomic int done = 0;
    serve(&service, 60 * HW_SEC, 1);
    relay_start(&relay, service.port);
    struct rpc_client *client = open_at(relay.port, true);
    await_offer(client);
    for (uint64_t i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){.client = client, .number = i, .done = &done};
        assert_int_equal(pthread_create(&threads[i], NULL, call_on, &callers[i]), 0);
    }
    cut_until(&relay, client, &done);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(callers[i].failures, 0);
    }
    assert_true(hw_counter_load(&rpc_client_stats(client)->resumes) > 0);
    rpc_client_destroy(client);
    relay_stop(&relay);
    while (atomic_load(&service.opened) != atomic_load(&service.closed))
        sched_yield(); /* its goodbye has come, or it is known to be gone */
    serve_end(&service);
}

/* A network swallows what it carries, and then attempts to resume: each is given up soon enough
 * that one comes through within the window. */
static void attempts_that_are_swallowed_leave_time_for_others(void **state)
{
    (void)state;
    struct service service;
    struct relay relay;
    uint8_t byte[1];
    serve(&service, 12 * HW_SEC, 0);
    relay_start(&relay, service.port);
    struct rpc_client *client = open_at(relay.port, true);
    await_offer(client);
    atomic_store(&relay.mute, PAIRS_MAX - 1);
    assert_int_equal(echo_once(client, byte, 1, 1), 0);
    assert_int_equal(hw_counter_load(&rpc_client_stats(client)->resumes), 1);
    rpc_client_destroy(client);
    relay_stop(&relay);
    serve_end(&service);
}

static void a_cut_before_the_offer_is_the_end(void **state)
{
    (void)state;
    struct service service;
    struct relay relay;
    uint8_t byte[1];
    serve(&service, 60 * HW_SEC, 0);
    relay_start(&relay, service.port);
    struct rpc_client *client = open_at(relay.port, true);
    atomic_fetch_add(&relay.cuts, 1);
    while (rpc_client_status(client) == 0)
        sched_yield();
    assert_int_equal(echo_once(client, byte, 1, 0), -ECONNRESET);
    rpc_client_destroy(client);
    relay_stop(&relay);
    serve_end(&service);
}

/* The session's number is easily guessed; its secret is not.  Who guesses disturbs nobody. */
static void a_wrong_secret_resumes_nothing(void **state)
{
    (void)state;
    struct service service;
    uint8_t bytes[RPC_RESUME_REQUEST_BYTES], byte[1];
    serve(&service, 60 * HW_SEC, 0);
    struct rpc_client *client = open_at(service.port, true);
    await_offer(client);
    for (uint64_t number = 0; number < 4; number++) {
        struct rpc_resume_request request = {0};
        struct iovec iov;
        assert_int_equal(rpc_resume_key_make(number, &request.key), 0);
        rpc_resume_put_request(&request, bytes);
        struct rpc_send send = send_of(RPC_METHOD_RESUME, &iov, bytes, sizeof bytes);
        struct rpc_client *stranger = open_at(service.port, false);
        assert_int_equal(rpc_client_call(stranger, &send, NULL), -ENOENT);
        assert_int_equal(echo_once(stranger, byte, 1, 0), 0);
        rpc_client_destroy(stranger);
    }
    assert_int_equal(echo_once(client, byte, 1, 0), 0);
    assert_int_equal(hw_counter_load(&rpc_client_stats(client)->resumes), 0);
    rpc_client_destroy(client);
    serve_end(&service);
}

/* There is room for those who come back, and for nobody who says so and asks for something else. */
static void who_says_that_it_resumes_may_do_nothing_else(void **state)
{
    (void)state;
    struct service service;
    uint8_t byte[1];
    serve(&service, 60 * HW_SEC, 1);
    struct rpc_client *client = open_at(service.port, true);
    await_offer(client);
    struct rpc_client *other = open_as(service.port, &(struct rpc_config){.resuming = true});
    assert_int_equal(echo_once(other, byte, 1, 0), -EPROTO);
    rpc_client_destroy(other);
    assert_int_equal(echo_once(client, byte, 1, 0), 0);
    rpc_client_destroy(client);
    serve_end(&service);
}

/* A connection that is resumable, with what it takes to resume it.  It is cut here, and the server
 * need not know yet. */
static struct rpc_ep *open_and_cut(int port, struct rpc_resume_request *request)
{
    struct rpc_addr addr = {.scheme = RPC_SCHEME_TCP, .host = "127.0.0.1", .port = (uint16_t)port};
    struct rpc_config config = {.resumes = true};
    struct rpc_send ping = {.method = METHOD_ECHO};
    struct rpc_transport *transport;
    struct rpc_ep *ep;
    int status = 1;
    char why[RPC_WHY_CHARS];
    assert_int_equal(rpc_dial(&addr, NULL, &transport, why), 0);
    assert_int_equal(rpc_ep_create(transport, &config, &ep), 0);
    while (rpc_ep_status(ep) == -EINPROGRESS)
        assert_true(rpc_poll(ep) >= 0);
    assert_int_equal(rpc_call(ep, &ping, note_status, &status, NULL), 0);
    while (status > 0)
        assert_true(rpc_poll(ep) >= 0);
    assert_true(rpc_ep_can_resume(ep));
    rpc_ep_resume_request(ep, request);
    return ep;
}

/* Its numbered bytes are not those of a new connection. */
static void who_may_resume_itself_takes_nobodys_place(void **state)
{
    (void)state;
    struct service service;
    struct rpc_resume_request request;
    uint8_t bytes[RPC_RESUME_REQUEST_BYTES], byte[1];
    struct iovec iov;
    serve(&service, 60 * HW_SEC, 0);
    struct rpc_ep *cut = open_and_cut(service.port, &request);
    struct rpc_client *client = open_at(service.port, true);
    await_offer(client);
    rpc_resume_put_request(&request, bytes);
    struct rpc_send send = send_of(RPC_METHOD_RESUME, &iov, bytes, sizeof bytes);
    assert_int_equal(rpc_client_call(client, &send, NULL), -EOPNOTSUPP);
    assert_int_equal(echo_once(client, byte, 1, 0), 0);
    rpc_client_destroy(client);
    rpc_ep_destroy(cut);
    serve_end(&service);
}

/* How a client in another process ends, which says when it is ready for that, and for its kill. */
enum end {
    IS_KILLED,
    LEAVES,
    LEAVES_UNHEARD, /* nobody reads, so its goodbye is not written */
    ENDS
};

static void be_a_client(int orders, int says, enum end end)
{
    int port;
    char byte;
    struct iovec iov;
    assert_int_equal(setenv("VENUS_SOCKET_BUFFER_BYTES", "64KiB", 1), 0);
    assert_int_equal(read(orders, &port, sizeof port), sizeof port);
    struct rpc_client *client = open_at(port, true);
    await_offer(client);
    assert_int_equal(write(says, "", 1), 1);
    assert_int_equal(read(orders, &byte, 1), 1);
    struct rpc_send much = send_of(METHOD_SINK, &iov, calloc(1, 12 << 20), 12 << 20);
    if (end == LEAVES_UNHEARD)
        assert_int_equal(rpc_client_post(client, &much), 0);
    if (end != IS_KILLED)
        rpc_client_leave(client);
    assert_int_equal(write(says, "", 1), 1);
    pause();
    _exit(0);
}

/* What the relay finds. */
static int end_of_client(enum end end)
{
    int orders[2], says[2];
    char byte;
    struct service service;
    struct relay relay;
    assert_true(pipe(orders) == 0 && pipe(says) == 0);
    pid_t pid = fork(); /* before there are threads */
    assert_true(pid >= 0);
    if (pid == 0)
        be_a_client(orders[0], says[1], end);
    serve(&service, 60 * HW_SEC, 0);
    relay_start(&relay, service.port);
    assert_int_equal(write(orders[1], &relay.port, sizeof relay.port), sizeof relay.port);
    assert_int_equal(read(says[0], &byte, 1), 1);
    atomic_store(&relay.mute, end == LEAVES_UNHEARD ? PAIRS_MAX : 0);
    assert_int_equal(write(orders[1], "", 1), 1);
    assert_int_equal(read(says[0], &byte, 1), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    atomic_store(&relay.mute, 0);
    while (atomic_load(&relay.found) == 0)
        sched_yield();
    relay_stop(&relay);
    serve_end(&service);
    for (int i = 0; i < 2; i++) {
        close(orders[i]);
        close(says[i]);
    }
    return atomic_load(&relay.found);
}

/* What a server relies on when it waits for the window after FIN, and not after RST. */
static void the_kernel_of_a_client_without_a_goodbye_resets(void **state)
{
    (void)state;
    static const int found[ENDS] = {
        [IS_KILLED] = ECONNRESET, [LEAVES] = ESHUTDOWN, [LEAVES_UNHEARD] = ECONNRESET};
    for (enum end end = 0; end < ENDS; end++)
        assert_int_equal(end_of_client(end), found[end]);
}

static void say_nothing(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

int main(void)
{
    hw_log_set_sink(say_nothing, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_of_a_client_without_a_goodbye_resets),
        cmocka_unit_test(threads_call_through_cuts),
        cmocka_unit_test(attempts_that_are_swallowed_leave_time_for_others),
        cmocka_unit_test(a_cut_before_the_offer_is_the_end),
        cmocka_unit_test(a_wrong_secret_resumes_nothing),
        cmocka_unit_test(who_says_that_it_resumes_may_do_nothing_else),
        cmocka_unit_test(who_may_resume_itself_takes_nobodys_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
