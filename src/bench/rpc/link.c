#include "bench/rpc/link.h"

#include "base/clock.h"
#include "bench/rpc/raw_limits.h"
#include "bench/serve/child.h"
#include "command/interrupt.h"
#include "command/measure.h"
#include "rpc/methods.h"
#include "rpc/resume/resume.h"
#include "rpc/transport/net.h"
#include "serve/server_info.h"
#include "serve/service_basic.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SILENCE_NS (10 * HW_SEC) /* a measurement in which nothing moves so long has failed */

enum { WARM_UP = 8, GREETING_CHARS = RPC_WHY_CHARS };

const char *const bench_transport_names[BENCH_TRANSPORTS + 1] = {"tcp", "unix", "shm",
                                                                 "tls", "ucx",  NULL};

/* UCX runs over TCP here, so its raw limit is that of TCP. */
static const struct raw_ops *const raw_of[BENCH_TRANSPORTS] = {
    [BENCH_TCP] = &raw_tcp, [BENCH_UNIX] = &raw_unix, [BENCH_SHM] = &raw_shm,
    [BENCH_TLS] = &raw_tls, [BENCH_UCX] = &raw_tcp,
};

enum job { JOB_RAW_PONG, JOB_RAW_DRAIN, JOB_ANSWER };

/* Told to the server before each measurement. */
struct order {
    uint32_t job;
    uint32_t size;  /* raw: bytes of one message */
    uint64_t count; /* messages */
};

struct bench_link {
    struct bench_spec spec;
    pid_t pid;
    int control;
    struct raw_link *raw;
    struct rpc_ep *ep;
    struct bench_delay relay;
    uint8_t *buf; /* BENCH_MESSAGE_MAX */
    cpu_set_t before;
    bool pinned;
};

/* ---- the run's folder ---- */

enum { TMPDIR_CHARS = 40 }; /* a longer one leaves too little of a Unix socket's path */

int bench_folder_make(char path[BENCH_PATH_CHARS], char why[RPC_WHY_CHARS])
{
    const char *tmp = getenv("TMPDIR");
    snprintf(path, BENCH_PATH_CHARS, "%s/hawser-bench-XXXXXX",
             tmp && tmp[0] && strlen(tmp) <= TMPDIR_CHARS ? tmp : "/tmp");
    if (mkdtemp(path))
        return 0;
    int rc = -errno;
    snprintf(why, RPC_WHY_CHARS, "cannot make a folder %s: %s", path, strerror(-rc));
    return rc;
}

/* What keys and benchmarks put into the folder of a run: sockets of servers, also of such that are
 * killed with this process. */
static const char *const files[] = {"server.crt", "server.key", "token", "socket", "gpu", "kvd",
                                    "near",       "far",        "w",     "0",      "1"};

/* For a signal that ends the process: of the one folder that there is, and of the process that made
 * it, whose children must not remove it. */
static char doomed_files[ARRAY_LEN(files)][BENCH_PATH_CHARS + 16], doomed[BENCH_PATH_CHARS];
static volatile sig_atomic_t owner;

static void remove_and_end(int number)
{
    if (owner == getpid()) {
        for (size_t i = 0; i < ARRAY_LEN(files); i++)
            unlink(doomed_files[i]);
        rmdir(doomed);
    }
    (void)raise(number); /* its action is the default one again */
}

static void remove_at_end(const struct bench_dir *dir)
{
    assert(owner != getpid());
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        snprintf(doomed_files[i], sizeof(doomed_files[i]), "%s/%s", dir->path, files[i]);
    snprintf(doomed, sizeof(doomed), "%s", dir->path);
    owner = getpid();
    cmd_before_end(remove_and_end);
}

int bench_dir_make(struct bench_dir *dir, char why[RPC_WHY_CHARS])
{
    static const char *const names[] = {"localhost", "127.0.0.1"};
    char fingerprint[2 * RPC_FINGERPRINT_BYTES + 1];
    *dir = (struct bench_dir){0};
    int rc = bench_folder_make(dir->path, why);
    if (rc)
        return rc;
    remove_at_end(dir);
    snprintf(dir->certificate, sizeof(dir->certificate), "%s/server.crt", dir->path);
    snprintf(dir->key, sizeof(dir->key), "%s/server.key", dir->path);
    rc = rpc_keygen(dir->path, names, ARRAY_LEN(names), 1, fingerprint, why);
    struct rpc_security_files server = {.certificate = dir->certificate, .key = dir->key};
    struct rpc_security_files client = {.fingerprint = fingerprint};
    if (rc == 0)
        rc = rpc_security_load(&dir->server, &server, true, why);
    if (rc == 0)
        rc = rpc_security_load(&dir->client, &client, false, why);
    if (rc)
        bench_dir_remove(dir);
    return rc;
}

void bench_dir_remove(struct bench_dir *dir)
{
    assert(strcmp(doomed, dir->path) == 0);
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        unlink(doomed_files[i]);
    rmdir(doomed);
    owner = 0;
    rpc_security_fini(&dir->server);
    rpc_security_fini(&dir->client);
}

/* ---- cores ---- */

/* The n-th core that this process may use, or -1. */
static int nth_core(const cpu_set_t *allowed, int n)
{
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, allowed) && n-- == 0)
            return core;
    }
    return -1;
}

static bool pin(enum bench_place place, bool server)
{
    cpu_set_t allowed, one;
    if (place == BENCH_UNPINNED || sched_getaffinity(0, sizeof(allowed), &allowed))
        return false;
    int core = nth_core(&allowed, server && place == BENCH_TWO_CORES);
    if (core < 0)
        return false;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    return sched_setaffinity(0, sizeof(one), &one) == 0;
}

/* ---- the server process ---- */

static void address_of(const struct bench_spec *spec, char *out, size_t size)
{
    switch (spec->transport) {
    case BENCH_UNIX:
        snprintf(out, size, "unix:%s/socket", spec->dir->path);
        break;
    case BENCH_SHM:
        snprintf(out, size, "shm:%s/socket", spec->dir->path);
        break;
    case BENCH_UCX:
        snprintf(out, size, "ucx:127.0.0.1:0");
        break;
    default:
        snprintf(out, size, "127.0.0.1:0");
    }
}

static int accept_one(struct rpc_listener *listener, struct rpc_transport **out)
{
    uint64_t deadline = hw_now_ns() + SILENCE_NS;
    int rc;
    while ((rc = listener->ops->accept(listener, out)) == -EAGAIN) {
        if (hw_now_ns() > deadline)
            return -ETIMEDOUT;
        struct pollfd p = {.fd = listener->ops->poll_fd(listener), .events = POLLIN};
        poll(&p, 1, 10); /* short: a transport without a descriptor is asked again */
    }
    return rc;
}

/* Nobody takes it, but from here on both ends do what it costs. */
static int offer_to_resume(struct rpc_ep *ep)
{
    struct rpc_resume_key key;
    int rc = rpc_resume_key_make(1, &key);
    if (rc == 0)
        rc = rpc_ep_offer_resume(ep, &key, SILENCE_NS, 0);
    (void)rpc_flush(ep); /* a failure is the endpoint's status */
    return rc == -EOPNOTSUPP ? 0 : rc;
}

static int serve_one(int control, const struct bench_spec *spec, struct rpc_ep **out)
{
    const struct rpc_security *security = spec->transport == BENCH_TLS ? &spec->dir->server : NULL;
    struct rpc_net_options net = {.security = security};
    struct rpc_config config = {
        .accepting = true, .security = security, .heartbeat_ns = HW_NEVER, .wait = spec->wait};
    char text[128], greeting[GREETING_CHARS] = "";
    struct rpc_addr addr;
    struct rpc_listener *listener = NULL;
    struct rpc_transport *transport;

    address_of(spec, text, sizeof(text));
    int rc = rpc_addr_parse(text, &addr, greeting);
    if (rc == 0)
        rc = rpc_listen(&addr, &net, &listener, greeting);
    if (rc == 0)
        snprintf(greeting, sizeof(greeting), "%s", listener->address);
    /* The first byte tells which: an address never begins with '!'. */
    char said[GREETING_CHARS + 1];
    snprintf(said, sizeof(said), "%s%s", rc ? "!" : "", greeting);
    if (send(control, said, sizeof(said), MSG_NOSIGNAL) != (ssize_t)sizeof(said))
        rc = -EPIPE;
    if (rc == 0)
        rc = accept_one(listener, &transport);
    if (rc == 0)
        rc = rpc_ep_create(transport, &config, out);
    rpc_listener_destroy(listener);
    if (rc == 0)
        rc = measure_ready(*out, SILENCE_NS);
    return rc || !spec->resumes ? rc : offer_to_resume(*out);
}

/* Answers `count` messages, then makes sure that the answers have left. */
static int answer(struct rpc_ep *ep, const struct service_basic *service, uint64_t count)
{
    while (count > 0) {
        int rc = rpc_wait(ep, SILENCE_NS);
        if (rc)
            return rc;
        rc = rpc_poll(ep);
        if (rc < 0)
            return rc;
        struct rpc_msg *msg;
        while (count > 0 && (msg = rpc_recv(ep)) != NULL) {
            rc = service_basic_handle(service, ep, msg);
            rpc_release(ep, msg);
            if (rc)
                return rc;
            count--;
        }
        rc = rpc_flush(ep);
        if (rc && rc != -EAGAIN)
            return rc;
    }
    while (rpc_pending(ep)) {
        int rc = rpc_wait(ep, SILENCE_NS);
        if (rc == 0)
            rc = rpc_flush(ep);
        if (rc && rc != -EAGAIN)
            return rc;
    }
    return 0;
}

static int obey(struct bench_link *l, struct rpc_ep *ep, const struct service_basic *service)
{
    struct order order;
    for (;;) {
        ssize_t n = recv(l->control, &order, sizeof(order), MSG_WAITALL);
        if (n != (ssize_t)sizeof(order))
            return 0; /* the client is done */
        int rc = order.job == JOB_RAW_PONG    ? raw_pong(l->raw, l->buf, order.size, order.count)
                 : order.job == JOB_RAW_DRAIN ? raw_drain(l->raw, l->buf, order.size, order.count)
                                              : answer(ep, service, order.count);
        if (rc)
            return rc;
    }
}

/* In the child; never returns. */
static void server_process(struct bench_link *l)
{
    struct rpc_ep *ep = NULL;
    struct service_basic service;
    struct server_info *info = calloc(1, sizeof(*info));
    signal(SIGINT, SIG_IGN); /* the client ends us, in order */
    if (!info)
        _exit(1);
    server_info_self(info);
    int rc = service_basic_init(&service, info);
    if (rc == 0)
        rc = l->raw->ops->begin(l->raw, true);
    if (rc == 0)
        rc = serve_one(l->control, &l->spec, &ep);
    /* After the endpoint is made: it counts the cores, and must find what a user's would find. */
    pin(l->spec.place, true);
    if (rc == 0)
        rc = obey(l, ep, &service);
    rpc_ep_destroy(ep);
    _exit(rc ? 1 : 0);
}

/* ---- the client ---- */

static int hear_address(struct bench_link *l, struct rpc_addr *addr, char why[RPC_WHY_CHARS])
{
    char said[GREETING_CHARS + 1];
    struct timeval limit = {.tv_sec = SILENCE_NS / HW_SEC};
    setsockopt(l->control, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (recv(l->control, said, sizeof(said), MSG_WAITALL) != (ssize_t)sizeof(said)) {
        snprintf(why, RPC_WHY_CHARS, "the server process ended before it listened");
        return -EPIPE;
    }
    said[GREETING_CHARS] = '\0';
    if (said[0] == '!') {
        snprintf(why, RPC_WHY_CHARS, "%s", said + 1);
        return -EIO;
    }
    return rpc_addr_parse(said, addr, why);
}

static int await_offer(struct bench_link *l)
{
    bool comes = l->spec.transport == BENCH_TCP || l->spec.transport == BENCH_TLS;
    int rc = 0;
    while (rc >= 0 && comes && !rpc_ep_can_resume(l->ep)) {
        rc = rpc_wait(l->ep, SILENCE_NS);
        if (rc == 0)
            rc = rpc_poll(l->ep);
    }
    return rc < 0 ? rc : 0;
}

static int join_rpc(struct bench_link *l, char why[RPC_WHY_CHARS])
{
    const struct rpc_security *security =
        l->spec.transport == BENCH_TLS ? &l->spec.dir->client : NULL;
    struct rpc_net_options net = {.security = security};
    struct rpc_config config = {.security = security,
                                .heartbeat_ns = HW_NEVER,
                                .wait = l->spec.wait,
                                .resumes = l->spec.resumes};
    struct rpc_addr addr;
    struct rpc_transport *transport;
    int rc = hear_address(l, &addr, why);
    if (rc == 0 && bench_delay_is_needed(&l->spec.line)) {
        rc = bench_delay_start(addr.port, l->spec.line, &l->relay);
        addr.port = l->relay.port;
    }
    if (rc == 0)
        rc = rpc_dial(&addr, &net, &transport, why);
    if (rc == 0)
        rc = rpc_ep_create(transport, &config, &l->ep);
    if (rc == 0)
        rc = measure_ready(l->ep, SILENCE_NS);
    if (rc == 0 && l->spec.resumes)
        rc = await_offer(l);
    if (rc && l->ep)
        snprintf(why, RPC_WHY_CHARS, "%s", rpc_ep_reason(l->ep));
    return rc;
}

static int open_raw(struct bench_link *l)
{
    struct raw_options options = {
        .spin_ns = l->spec.wait == RPC_WAIT_BLOCK  ? 0
                   : l->spec.wait == RPC_WAIT_BUSY ? HW_NEVER
                                                   : RAW_ADAPTIVE_SPIN_NS,
        .certificate = l->spec.dir->certificate,
        .key = l->spec.dir->key,
        .line = l->spec.line,
    };
    return raw_of[l->spec.transport]->create(&options, &l->raw);
}

static int start_server(struct bench_link *l)
{
    int control[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control))
        return -errno;
    l->pid = bench_fork();
    if (l->pid == 0) {
        close(control[0]);
        l->control = control[1];
        server_process(l);
    }
    close(control[1]);
    l->control = control[0];
    return l->pid < 0 ? -errno : 0;
}

static int open_all(struct bench_link *l, char why[RPC_WHY_CHARS])
{
    l->buf = calloc(1, BENCH_MESSAGE_MAX);
    int rc = l->buf ? open_raw(l) : -ENOMEM;
    if (rc == 0)
        rc = start_server(l);
    if (rc == 0)
        rc = l->raw->ops->begin(l->raw, false);
    if (rc == 0)
        rc = join_rpc(l, why);
    /* Last, as in the server, and so that relays started on the way run where there is room. */
    if (rc == 0 && sched_getaffinity(0, sizeof(l->before), &l->before) == 0)
        l->pinned = pin(l->spec.place, false);
    return rc;
}

int bench_link_open(const struct bench_spec *spec, struct bench_link **out, char why[RPC_WHY_CHARS])
{
#ifndef HAWSER_UCX
    if (spec->transport == BENCH_UCX)
        return -EOPNOTSUPP;
#endif
    struct bench_link *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    l->spec = *spec;
    l->control = -1;
    why[0] = '\0';
    int rc = open_all(l, why);
    if (rc) {
        if (!why[0])
            snprintf(why, RPC_WHY_CHARS, "%s", strerror(-rc));
        bench_link_close(l);
        return rc;
    }
    *out = l;
    return 0;
}

void bench_link_close(struct bench_link *l)
{
    if (!l)
        return;
    if (l->pinned)
        sched_setaffinity(0, sizeof(l->before), &l->before);
    rpc_ep_destroy(l->ep);
    if (l->control >= 0)
        close(l->control);
    if (l->raw)
        l->raw->ops->destroy(l->raw);
    bench_delay_stop(&l->relay);
    if (l->pid > 0) {
        kill(l->pid, SIGKILL); /* after a failure it may wait for what will not come */
        waitpid(l->pid, NULL, 0);
    }
    free(l->buf);
    free(l);
}

const char *bench_link_raw_name(const struct bench_link *l)
{
    return l->raw->ops->name;
}

/* ---- measurements ---- */

static int tell(struct bench_link *l, enum job job, uint32_t size, uint64_t count)
{
    struct order order = {.job = job, .size = size, .count = count};
    ssize_t n = send(l->control, &order, sizeof(order), MSG_NOSIGNAL);
    return n == (ssize_t)sizeof(order) ? 0 : -EPIPE;
}

int bench_link_raw_ping(struct bench_link *l, const struct bench_shot *s, uint64_t *elapsed_ns)
{
    uint32_t bytes = s->size * s->depth;
    assert(bytes <= BENCH_MESSAGE_MAX);
    int rc = tell(l, JOB_RAW_PONG, bytes, s->count + WARM_UP);
    if (rc == 0)
        rc = raw_ping(l->raw, l->buf, bytes, WARM_UP, NULL);
    uint64_t start = hw_now_ns();
    if (rc == 0)
        rc = raw_ping(l->raw, l->buf, bytes, s->count, s->hist);
    if (rc == 0)
        *elapsed_ns = hw_now_ns() - start;
    return rc;
}

int bench_link_raw_stream(struct bench_link *l, const struct bench_shot *s, uint64_t *elapsed_ns)
{
    int rc = tell(l, JOB_RAW_DRAIN, s->size, WARM_UP);
    if (rc == 0)
        rc = raw_pour(l->raw, l->buf, s->size, WARM_UP, NULL);
    if (rc == 0)
        rc = tell(l, JOB_RAW_DRAIN, s->size, s->count);
    uint64_t start = hw_now_ns();
    if (rc == 0)
        rc = raw_pour(l->raw, l->buf, s->size, s->count, s->hist);
    if (rc == 0)
        *elapsed_ns = hw_now_ns() - start;
    return rc;
}

int bench_link_calls(struct bench_link *l, const struct bench_shot *s, uint64_t *elapsed_ns)
{
    struct measure_calls m = {.method = RPC_METHOD_ECHO,
                              .payload = l->buf,
                              .payload_len = s->size,
                              .expect_len = s->size,
                              .depth = s->depth,
                              .count = WARM_UP,
                              .timeout_ns = SILENCE_NS};
    int rc = tell(l, JOB_ANSWER, 0, s->count + WARM_UP);
    if (rc == 0)
        rc = measure_calls(l->ep, &m, elapsed_ns);
    m.count = s->count;
    m.hist = s->hist;
    return rc ? rc : measure_calls(l->ep, &m, elapsed_ns);
}

int bench_link_stream(struct bench_link *l, const struct bench_shot *s, uint64_t *elapsed_ns)
{
    int rc = tell(l, JOB_ANSWER, 0, WARM_UP + 1 + s->count + 1);
    if (rc == 0)
        rc = measure_upload(l->ep, l->buf, s->size, WARM_UP, SILENCE_NS, NULL, elapsed_ns);
    return rc ? rc
              : measure_upload(l->ep, l->buf, s->size, s->count, SILENCE_NS, s->hist, elapsed_ns);
}

int bench_link_posts(struct bench_link *l, const struct bench_shot *s, uint64_t *writes)
{
    struct iovec iov = {.iov_base = l->buf, .iov_len = s->size};
    struct rpc_send send = {.method = RPC_METHOD_SINK, .iov = &iov, .iov_count = 1};
    const struct rpc_stats *stats = rpc_ep_stats(l->ep);
    uint64_t before = hw_counter_load(&stats->writes);
    int rc = tell(l, JOB_ANSWER, 0, s->count + 1);
    for (uint64_t i = 0; i < s->count && rc == 0; i++)
        rc = rpc_post(l->ep, &send);
    if (rc == 0)
        rc = rpc_flush(l->ep);
    while (rc == -EAGAIN) {
        rc = rpc_wait(l->ep, SILENCE_NS);
        if (rc == 0)
            rc = rpc_flush(l->ep);
    }
    uint64_t after = hw_counter_load(&stats->writes);
    size_t unused;
    if (rc == 0)
        rc = measure_call(l->ep, RPC_METHOD_PING, NULL, 0, &unused, SILENCE_NS);
    if (rc == 0)
        *writes = after - before;
    return rc;
}
