/* A server and a client that run out of memory at each allocation in turn, over every transport.
 *
 * Each round lets the next allocation, mapping or thread of either fail, once or from then on.
 * Calls may say so or find the connection ended; what succeeds must be right, no descriptor stays
 * open, and a server that lives serves the next client.  A sanitizer build finds leaks. */
#include "unit.h"

#include "base/clock.h"
#include "base/log.h"
#include "duo.h"
#include "rpc/client.h"
#include "rpc/methods.h"
#include "rpc/security/security.h"
#include "rpc/server.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LARGE = 300000,   /* bytes of a message that is sent in parts */
    ROUNDS_MAX = 400, /* far more than a round allocates */
    SAMPLE = 3,       /* of the allocations after which all fail, each so many-th */
};

/* ---- memory that runs out ---- */

static _Atomic long left = -1; /* allocations until one fails; below 0: none shall */
static _Atomic bool failed, for_good;

static bool fails(void)
{
    if (atomic_load(&left) < 0 || atomic_fetch_sub(&left, 1) != 0)
        return false;
    atomic_store(&failed, true);
    if (atomic_load(&for_good))
        atomic_store(&left, 0);
    return true;
}

#define WRAP(type, name, parameters, arguments, otherwise)                                         \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return fails() ? otherwise : __real_##name arguments;                                      \
    }
WRAP(void *, malloc, (size_t n), (n), (errno = ENOMEM, NULL))
WRAP(void *, calloc, (size_t n, size_t size), (n, size), (errno = ENOMEM, NULL))
WRAP(void *, realloc, (void *p, size_t n), (p, n), (errno = ENOMEM, NULL))
/* What mmap is where files may be large, everywhere in Hawser. */
WRAP(void *, mmap64, (void *addr, size_t len, int prot, int flags, int fd, off64_t off),
     (addr, len, prot, flags, fd, off), (errno = ENOMEM, MAP_FAILED))
WRAP(int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg),
     (thread, attr, run, arg), EAGAIN)

/* ---- the two ends ---- */

struct over {
    const char *name, *listen;
    bool tls, resumes;
};

static char folder[] = "/tmp/hawser-starved-XXXXXX";
static char certificate[64], key[64], fingerprint[2 * RPC_FINGERPRINT_BYTES + 1];

struct ends {
    const struct over *over;
    struct rpc_security security[2];
    struct rpc_server *server;
    struct rpc_addr at;
    pthread_t thread;
};

/* Whether to go on: only a lack of memory is an excuse. */
static bool ok(int rc, const char *what)
{
    if (rc < 0 && !atomic_load(&failed))
        fail_msg("%s: %s", what, strerror(-rc));
    return rc == 0;
}
#define OK(call) ok((call), #call)

static void on_message(void *user, struct rpc_ep *ep, struct rpc_msg *msg)
{
    struct ends *e = user;
    struct iovec iov = {(void *)(uintptr_t)msg->data, msg->len};
    struct rpc_send echo = {.iov = &iov, .iov_count = 1};
    int status = msg->method == RPC_METHOD_RESUME ? -ENOENT : 0; /* that session has ended */
    if (e->over->resumes && status == 0)
        rpc_server_offer_resume(e->server, ep);
    (void)rpc_reply(ep, msg, status, status ? NULL : &echo);
    rpc_release(ep, msg);
}

static void *server_main(void *arg)
{
    rpc_server_run(arg);
    return NULL;
}

static bool load_security(struct ends *e)
{
    struct rpc_security_files server = {.certificate = certificate, .key = key};
    struct rpc_security_files client = {.fingerprint = fingerprint};
    char why[RPC_WHY_CHARS];
    return !e->over->tls || (OK(rpc_security_load(&e->security[SERVER], &server, true, why)) &&
                             OK(rpc_security_load(&e->security[CLIENT], &client, false, why)));
}

static bool start_server(struct ends *e)
{
    static const struct rpc_server_ops ops = {.message = on_message};
    struct rpc_server_options options = {
        .ops = &ops, .user = e, .resume_window_ns = e->over->resumes ? HW_SEC : 0};
    struct rpc_net_options net = {.security = &e->security[SERVER]};
    struct rpc_addr addr;
    char text[96], why[RPC_WHY_CHARS];
    const char *bound;
    snprintf(text, sizeof text, e->over->listen, folder);
    assert_int_equal(rpc_addr_parse(text, &addr, why), 0);
    if (!load_security(e) || !OK(rpc_server_create(&options, &e->server)) ||
        !OK(rpc_server_listen(e->server, &addr, &net, &bound, why)))
        return false;
    assert_int_equal(rpc_addr_parse(bound, &e->at, why), 0);
    assert_int_equal(__real_pthread_create(&e->thread, NULL, server_main, e->server), 0);
    return true;
}

static bool echo(struct rpc_client *client, size_t len, uint64_t seed)
{
    static uint8_t data[LARGE];
    struct iovec iov;
    struct rpc_answer answer = {0};
    pattern_fill(data, len, seed);
    struct rpc_send send = send_of(METHOD_ECHO, &iov, data, len);
    send.timeout_ns = 240 * HW_SEC;
    if (!OK(rpc_client_call(client, &send, &answer)))
        return false;
    assert_int_equal(answer.len, len);
    assert_memory_equal(answer.data, data, len);
    rpc_answer_fini(&answer);
    return true;
}

/* True when all of it worked. */
static bool use_server(const struct ends *e)
{
    struct rpc_net_options net = {.security = &e->security[CLIENT]};
    struct rpc_client_options options = {.config.resumes = e->over->resumes};
    struct rpc_client *client;
    char why[RPC_WHY_CHARS];
    if (!OK(rpc_client_connect(&e->at, &net, &options, &client, why)))
        return false;
    bool worked = echo(client, 100, 1) && echo(client, LARGE, 2);
    rpc_client_destroy(client);
    return worked;
}

/* ---- rounds ---- */

/* Whether the allocation was reached. */
static bool starve_once(const struct over *over, long n)
{
    struct ends e = {.over = over};
    int before = open_descriptors();
    atomic_store(&failed, false);
    atomic_store(&left, n);
    bool serves = start_server(&e);
    bool worked = serves && use_server(&e);
    atomic_store(&left, -1);
    bool reached = atomic_exchange(&failed, false);
    assert_true(worked || reached);
    if (serves) {
        assert_true(use_server(&e));
        rpc_server_stop(e.server);
        pthread_join(e.thread, NULL);
    }
    rpc_server_destroy(e.server);
    for (int i = 0; i < 2; i++)
        rpc_security_fini(&e.security[i]);
    assert_int_equal(open_descriptors(), before);
    return reached;
}

static void starve(const struct over *over, bool all_after, long step)
{
    long n = 0;
    atomic_store(&for_good, all_after);
    while (starve_once(over, n)) {
        n += step;
        assert_true(n < ROUNDS_MAX);
    }
    assert_true(n > 10); /* the wrappers are in use */
}

static void every_allocation_may_fail(void **state)
{
    const struct over *over = *state;
    starve(over, false, 1);
    starve(over, true, SAMPLE);
}

static int set_up(void **state)
{
    (void)state;
    char why[RPC_WHY_CHARS];
    assert_non_null(mkdtemp(folder));
    snprintf(certificate, sizeof certificate, "%s/server.crt", folder);
    snprintf(key, sizeof key, "%s/server.key", folder);
    return rpc_keygen(folder, NULL, 0, 2, fingerprint, why);
}

static int tear_down(void **state)
{
    (void)state;
    char token[64];
    snprintf(token, sizeof token, "%s/token", folder);
    unlink(certificate);
    unlink(key);
    unlink(token);
    return rmdir(folder);
}

static void say_nothing(void *user, const char *line, size_t len)
{
    (void)user, (void)line, (void)len;
}

static struct over overs[] = {
    {.name = "unix", .listen = "unix:%s/socket"},
    {.name = "shm", .listen = "shm:%s/socket"},
    {.name = "tcp", .listen = "127.0.0.1:0"},
    {.name = "tls", .listen = "127.0.0.1:0", .tls = true},
    {.name = "tcp, resuming", .listen = "127.0.0.1:0", .resumes = true},
};

int main(void)
{
    hw_log_set_sink(say_nothing, NULL);
    struct CMUnitTest tests[ARRAY_LEN(overs)];
    for (size_t i = 0; i < ARRAY_LEN(overs); i++)
        tests[i] =
            (struct CMUnitTest){overs[i].name, every_allocation_may_fail, NULL, NULL, &overs[i]};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
