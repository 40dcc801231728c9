/* What three parties can do without us: a client, its daemon, and the daemon of another rank.
 *
 *   client (thread) -- flag in shared memory -- near (thread) -- raw transport -- far (process)
 *
 * As many threads and processes as a get of another rank's key takes, each waiting by the same
 * rules (base/wait.h), and as there half of the requests end at the near one.  Two parties
 * that spin on two cores would be a limit of another machine: there are three. */
#include "bench/kv/benchkv.h"

#include "base/order.h"
#include "base/rng.h"
#include "base/wait.h"
#include "bench/rpc/raw_limits.h"
#include "bench/serve/child.h"
#include "command/measure.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PARTIES = 3,
    CHAINS = 5,  /* where threads share cores, the kernel places each at the start */
    COUNT = 800, /* half of them go all the way; in all, as many as in the ping-pong */
    WARM_UP = 8,
    MESSAGE_BYTES = 64
};
static const uint64_t longest_ns = 60 * HW_MS; /* three that never sleep, on two cores */

enum kind { KIND_NEAR, KIND_FAR, KIND_STOP };

/* One direction of a flag.  `count` is written last (release) and polled (acquire). */
struct cell {
    _Alignas(HW_CACHE_LINE) _Atomic uint32_t count;
    uint8_t kind;
    _Alignas(HW_CACHE_LINE) _Atomic uint32_t sleeps; /* the reader's */
};

/* One end of a connection: a socket, or a cell each way. */
struct end {
    int fd; /* -1: cells */
    struct cell *in, *out;
    uint32_t taken;
};

struct chain {
    struct cell *cells;          /* four: client and near, near and far */
    int fds[2];                  /* near and far, of a socket; -1: cells */
    struct end client, near_end; /* of the flag between the two */
    struct end to_far, far_end;
    enum rpc_wait_mode wait;
    struct hw_hist client_hist, rtt;
    int client_rc;
};

/* ---- one message ---- */

static int send_one(struct end *e, enum kind kind)
{
    if (e->fd >= 0) {
        uint8_t message[MESSAGE_BYTES] = {(uint8_t)kind};
        ssize_t n = send(e->fd, message, sizeof(message), MSG_NOSIGNAL);
        return n == sizeof(message) ? 0 : -EPIPE;
    }
    e->out->kind = (uint8_t)kind;
    uint32_t count = atomic_load_explicit(&e->out->count, memory_order_relaxed);
    atomic_store_explicit(&e->out->count, count + 1, memory_order_release);
    /* Pairs with the one in sleep_on: either we see that it sleeps, or it sees the count. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&e->out->sleeps, memory_order_relaxed))
        hw_futex_wake(&e->out->count, 1, HW_FUTEX_SHARED);
    return 0;
}

/* 1 with the message's kind, 0 when there is none yet, -EPIPE. */
static int look(struct end *e, enum kind *kind)
{
    if (e->fd >= 0) {
        uint8_t message[MESSAGE_BYTES];
        ssize_t n = recv(e->fd, message, sizeof(message), MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n != sizeof(message))
            return -EPIPE;
        *kind = (enum kind)message[0];
        return 1;
    }
    if (atomic_load_explicit(&e->in->count, memory_order_acquire) == e->taken)
        return 0;
    e->taken++;
    *kind = (enum kind)e->in->kind;
    return 1;
}

/* Until something may have come; -ETIMEDOUT after a silence in which nothing can. */
static int sleep_on(struct end *e)
{
    if (e->fd >= 0) {
        struct pollfd p = {.fd = e->fd, .events = POLLIN};
        return poll(&p, 1, RAW_SILENCE_NS / HW_MS) == 0 ? -ETIMEDOUT : 0;
    }
    atomic_store_explicit(&e->in->sleeps, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* as in send_one */
    /* It compares the count once more, so that none is lost. */
    int rc = hw_futex_wait(&e->in->count, e->taken, RAW_SILENCE_NS, HW_FUTEX_SHARED);
    atomic_store_explicit(&e->in->sleeps, 0, memory_order_relaxed);
    return rc;
}

static int receive(struct end *e, struct hw_wait *wait, enum kind *kind)
{
    uint64_t until = 0;
    for (;;) {
        for (int i = 0; i < HW_LOOKS_A_CLOCK; i++) {
            int rc = look(e, kind);
            if (rc) {
                hw_wait_came(wait);
                return rc < 0 ? rc : 0;
            }
            hw_cpu_relax();
        }
        uint64_t now = hw_now_ns();
        if (until == 0)
            until = now + RAW_SILENCE_NS;
        int rc = now >= until ? -ETIMEDOUT : hw_wait_spin(wait, now) ? 0 : sleep_on(e);
        if (rc)
            return rc;
    }
}

static struct hw_wait wait_of(const struct chain *c)
{
    struct hw_wait wait;
    hw_wait_init(&wait, rpc_spin_budget(c->wait));
    wait.threads = PARTIES;
    return wait;
}

/* ---- the three ---- */

static int far_loop(struct chain *c)
{
    struct hw_wait wait = wait_of(c);
    enum kind kind = KIND_FAR;
    int rc = 0;
    while (rc == 0 && kind != KIND_STOP) {
        rc = receive(&c->far_end, &wait, &kind);
        if (rc == 0 && kind != KIND_STOP)
            rc = send_one(&c->far_end, kind);
    }
    return rc;
}

static int ask_far(struct chain *c, struct hw_wait *wait)
{
    enum kind kind;
    uint64_t start = hw_now_ns();
    int rc = send_one(&c->to_far, KIND_FAR);
    if (rc == 0)
        rc = receive(&c->to_far, wait, &kind);
    if (rc == 0)
        hw_hist_record(&c->rtt, hw_now_ns() - start);
    return rc;
}

static int near_loop(struct chain *c)
{
    struct hw_wait wait = wait_of(c);
    enum kind kind = KIND_NEAR;
    int rc = 0;
    while (rc == 0 && kind != KIND_STOP) {
        rc = receive(&c->near_end, &wait, &kind);
        if (rc == 0 && kind == KIND_FAR)
            rc = ask_far(c, &wait);
        if (rc == 0 && kind != KIND_STOP)
            rc = send_one(&c->near_end, kind);
    }
    (void)send_one(&c->to_far, KIND_STOP); /* also after a failure: it must end */
    return rc;
}

static void *client_main(void *user)
{
    struct chain *c = user;
    struct hw_wait wait = wait_of(c);
    struct hw_rng rng;
    enum kind kind;
    hw_rng_seed(&rng, 1);
    uint64_t start = hw_now_ns(), until = start + longest_ns;
    for (uint32_t i = 0; i < WARM_UP + COUNT && c->client_rc == 0; i++) {
        if (c->client_hist.count > 0 && start >= until)
            break;
        start = hw_now_ns();
        int rc = send_one(&c->client, hw_rng_below(&rng, 2) ? KIND_FAR : KIND_NEAR);
        if (rc == 0)
            rc = receive(&c->client, &wait, &kind);
        if (rc == 0 && i >= WARM_UP && kind == KIND_FAR)
            hw_hist_record(&c->client_hist, hw_now_ns() - start);
        c->client_rc = rc;
    }
    (void)send_one(&c->client, KIND_STOP);
    return NULL;
}

/* ---- coming and going ---- */

static int make_hops(struct chain *c, enum rpc_scheme transport)
{
    void *map = mmap(NULL, 4 * sizeof(struct cell), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return -ENOMEM;
    struct cell *l = c->cells = map;
    int rc = 0;
    if (transport == RPC_SCHEME_TCP)
        rc = raw_tcp_pair(c->fds);
    else if (transport == RPC_SCHEME_UNIX)
        rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, c->fds) ? -errno : 0;
    c->client = (struct end){.fd = -1, .out = &l[0], .in = &l[1]};
    c->near_end = (struct end){.fd = -1, .out = &l[1], .in = &l[0]};
    c->to_far = (struct end){.fd = c->fds[0], .out = &l[2], .in = &l[3]};
    c->far_end = (struct end){.fd = c->fds[1], .out = &l[3], .in = &l[2]};
    return rc;
}

static void chain_fini(struct chain *c)
{
    for (int i = 0; i < 2; i++)
        if (c->fds[i] >= 0)
            close(c->fds[i]);
    if (c->cells)
        munmap(c->cells, 4 * sizeof(struct cell));
    hw_hist_fini(&c->client_hist);
    hw_hist_fini(&c->rtt);
}

static pid_t start_far(struct chain *c)
{
    pid_t pid = bench_fork();
    if (pid != 0)
        return pid;
    if (c->fds[0] >= 0)
        close(c->fds[0]); /* so that the end of the near one is seen */
    _exit(far_loop(c) ? 1 : 0);
}

static int run_all(struct chain *c)
{
    pthread_t client;
    pid_t far = start_far(c);
    if (far < 0)
        return -errno;
    int rc = -pthread_create(&client, NULL, client_main, c);
    if (rc == 0) {
        rc = near_loop(c);
        pthread_join(client, NULL);
    } else {
        (void)send_one(&c->to_far, KIND_STOP);
    }
    waitpid(far, NULL, 0);
    return rc ? rc : c->client_rc;
}

static int measure_one(enum rpc_scheme transport, enum rpc_wait_mode wait, double *rtt_us,
                       double *client_us)
{
    struct chain c = {.fds = {-1, -1}, .wait = wait};
    int rc = hw_hist_init(&c.client_hist) || hw_hist_init(&c.rtt) ? -ENOMEM : 0;
    if (rc == 0)
        rc = make_hops(&c, transport);
    if (rc == 0)
        rc = run_all(&c);
    if (rc == 0) {
        *rtt_us = (double)hw_hist_percentile(&c.rtt, 50) / 1e3;
        *client_us = (double)hw_hist_percentile(&c.client_hist, 50) / 1e3;
    }
    chain_fini(&c);
    return rc;
}

int bkv_chain_measure(enum rpc_scheme transport, enum rpc_wait_mode wait, struct bkv_chain *out)
{
    double rtt_us[CHAINS], client_us[CHAINS];
    int rc = transport == RPC_SCHEME_UCX ? -EOPNOTSUPP : 0;
    for (int i = 0; i < CHAINS && rc == 0; i++)
        rc = measure_one(transport, wait, &rtt_us[i], &client_us[i]);
    if (rc)
        return rc;
    *out = (struct bkv_chain){.rtt_us = hw_median(rtt_us, CHAINS),
                              .client_us = hw_median(client_us, CHAINS)};
    return 0;
}
