/* Uploads over several connections; see stripes.h. */
#include "venus/client/link/stripes.h"

#include "base/clock.h"
#include "base/thread.h"
#include "rpc/resume/pipe.h"
#include "rpc/security/security.h"
#include "venus/client/locks.h"
#include "venus/common/protocol.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* The longest that a thread waits for room before it looks whether the session is over. */
static const uint64_t slice_ns = 50 * HW_MS;
/* The uploads of a large one follow each other within some 50 us. */
static const uint64_t awake_ns = 300 * HW_US;
/* Between two looks for a stripe whose host is silent. */
static const uint64_t tend_ns = 250 * HW_MS;

/* A server that has answered once answers again at once; a relay for one connection never. */
static const uint64_t dial_ns = 2 * HW_SEC;

struct stripe {
    struct vnc_stripes *all;
    uint32_t number;
    struct rpc_transport *transport;
    uint64_t resumes;     /* of the session's own connection, when this one was last tended */
    pthread_mutex_t turn; /* of who uses the transport */
    pthread_t thread;     /* but for the first, which is the caller's */
};

struct vnc_stripes {
    uint8_t key[VN_STRIPE_KEY_BYTES];
    struct rpc_addr addr; /* to dial again, as are the next two */
    struct rpc_net_options net;
    struct rpc_security security;
    bool (*has_ended)(void *user);
    void *user;
    bool spins;
    pthread_mutex_t lock;
    pthread_cond_t wakes; /* stripes wait for an upload */
    pthread_cond_t idle;  /* the caller waits for stripes */
    /* The upload; written under the lock while no stripe is busy. */
    const uint8_t *bytes;
    uint64_t off;
    size_t len;
    uint32_t upload;
    /* Change under the lock, and are looked at without: relaxed, who acts on them looks again. */
    _Atomic bool active;
    _Atomic bool stopping;
    _Atomic unsigned busy;  /* stripes that work on it */
    _Atomic size_t next;    /* part that nobody has taken; relaxed: it only divides the upload */
    _Atomic uint64_t total; /* relaxed: a figure */
    _Atomic int fault;      /* the first one; released with busy */
    unsigned count;
    unsigned ready; /* of them: the first, and those that have a thread */
    void (*lose)(void *user, const char *why);
    const struct rpc_stats *stats; /* of the session's own connection */
    pthread_t tender;              /* mends stripes that are cut between uploads */
    bool tended;                   /* it runs: they are pipes; written before there are threads */
    struct stripe stripes[VN_STRIPES_MAX];
};

static bool is_set(const _Atomic bool *flag)
{
    return atomic_load_explicit(flag, memory_order_relaxed);
}

/* ---- sending ---- */

/* With the turn.  Where the session's own connection was silent, so is this one.  0, -EAGAIN while
 * it is cut, or its end. */
static int tend(struct stripe *stripe)
{
    struct vnc_stripes *l = stripe->all;
    uint64_t now = hw_counter_load(&l->stats->resumes);
    int rc = rpc_pipe_tend(stripe->transport, now != stripe->resumes);
    stripe->resumes = now;
    return rc;
}

static int send_all(struct stripe *stripe, struct iovec *iov, int count)
{
    struct rpc_transport *t = stripe->transport;
    while (count > 0) {
        ssize_t n = t->ops->send(t, iov, count);
        if (n == -EAGAIN) {
            if (is_set(&stripe->all->stopping) || stripe->all->has_ended(stripe->all->user))
                return -ESHUTDOWN;
            /* The tender leaves a stripe alone that sends.  An end is what the next send says. */
            if (t->ops->wait(t, RPC_WAIT_SEND, slice_ns) && stripe->all->tended)
                (void)tend(stripe);
            continue;
        }
        if (n < 0)
            return (int)n;
        int sent = rpc_iov_advance(iov, count, (size_t)n);
        iov += sent;
        count -= sent;
    }
    return 0;
}

static int send_chunk(struct stripe *stripe, size_t at, size_t len)
{
    struct vnc_stripes *l = stripe->all;
    uint8_t head[VN_CHUNK_HEAD];
    struct vn_chunk chunk = {l->upload, (uint32_t)len, l->off + at};
    struct iovec iov[] = {{head, sizeof(head)}, {(void *)(uintptr_t)(l->bytes + at), len}};
    vn_chunk_put(head, &chunk);
    pthread_mutex_lock(&stripe->turn);
    int rc = send_all(stripe, iov, len ? 2 : 1);
    pthread_mutex_unlock(&stripe->turn);
    return rc;
}

/* Parts of the upload that nobody has taken, until there is none. */
static int send_parts(struct stripe *stripe)
{
    struct vnc_stripes *l = stripe->all;
    int rc = 0;
    for (size_t at; rc == 0;) {
        at = atomic_fetch_add_explicit(&l->next, VN_CHUNK_BYTES, memory_order_relaxed);
        if (at >= l->len)
            break;
        rc = send_chunk(stripe, at, l->len - at < VN_CHUNK_BYTES ? l->len - at : VN_CHUNK_BYTES);
    }
    int none = 0;
    if (rc)
        (void)atomic_compare_exchange_strong(&l->fault, &none, rc); /* the first stays */
    return rc;
}

/* ---- the threads ---- */

/* With the lock, which is given back meanwhile. */
static void await_upload(struct vnc_stripes *l)
{
    pthread_mutex_unlock(&l->lock);
    uint64_t since = hw_now_ns();
    while (l->spins && !is_set(&l->active) && !is_set(&l->stopping) &&
           hw_now_ns() - since < awake_ns)
        hw_cpu_relax();
    pthread_mutex_lock(&l->lock);
    while (!is_set(&l->active) && !is_set(&l->stopping))
        pthread_cond_wait(&l->wakes, &l->lock);
}

static void *stripe_main(void *arg)
{
    struct stripe *stripe = arg;
    struct vnc_stripes *l = stripe->all;
    pthread_mutex_lock(&l->lock);
    while (!is_set(&l->stopping)) {
        if (!is_set(&l->active)) {
            await_upload(l);
            continue;
        }
        atomic_fetch_add_explicit(&l->busy, 1, memory_order_relaxed);
        pthread_mutex_unlock(&l->lock);
        (void)send_parts(stripe);
        pthread_mutex_lock(&l->lock);
        atomic_store_explicit(&l->active, false, memory_order_relaxed); /* no part is left */
        atomic_fetch_sub_explicit(&l->busy, 1, memory_order_release);
        pthread_cond_signal(&l->idle);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- an upload ---- */

static void begin(struct vnc_stripes *l, const uint8_t *bytes, uint64_t off, size_t len)
{
    pthread_mutex_lock(&l->lock);
    assert(!is_set(&l->active) && l->busy == 0);
    l->bytes = bytes;
    l->off = off;
    l->len = len;
    l->upload++;
    atomic_store_explicit(&l->next, 0, memory_order_relaxed);
    atomic_store_explicit(&l->active, true, memory_order_relaxed);
    pthread_cond_broadcast(&l->wakes);
    pthread_mutex_unlock(&l->lock);
}

static bool is_busy(const struct vnc_stripes *l)
{
    return atomic_load_explicit(&l->busy, memory_order_acquire) > 0;
}

/* Until the others have sent theirs. */
static void end(struct vnc_stripes *l)
{
    pthread_mutex_lock(&l->lock);
    atomic_store_explicit(&l->active, false, memory_order_relaxed);
    pthread_mutex_unlock(&l->lock);
    uint64_t since = hw_now_ns();
    while (l->spins && is_busy(l) && hw_now_ns() - since < awake_ns)
        hw_cpu_relax();
    pthread_mutex_lock(&l->lock);
    while (is_busy(l))
        pthread_cond_wait(&l->idle, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

int vnc_stripes_send(struct vnc_stripes *l, const uint8_t *bytes, uint64_t off, size_t len)
{
    begin(l, bytes, off, len);
    int rc = send_parts(&l->stripes[0]);
    if (rc == 0)
        rc = send_chunk(&l->stripes[0], 0, 0);
    end(l);
    atomic_fetch_add_explicit(&l->total, len, memory_order_relaxed);
    return rc ? rc : atomic_load_explicit(&l->fault, memory_order_relaxed);
}

uint64_t vnc_stripes_bytes(const struct vnc_stripes *l)
{
    return atomic_load_explicit(&l->total, memory_order_relaxed);
}

/* ---- life ---- */

/* say: the key, and for one that was cut its number. */
static int dial_stripe(const struct vnc_stripes *l, const void *say, size_t len,
                       struct rpc_transport **out, char why[RPC_WHY_CHARS])
{
    struct iovec iov = {(void *)(uintptr_t)say, len};
    struct rpc_send send = {
        .method = VN_METHOD_STRIPE, .iov = &iov, .iov_count = 1, .timeout_ns = dial_ns};
    struct rpc_client_options options = {.config = {.security = l->net.security,
                                                    .name = "vulkan stripe",
                                                    .handshake_ns = dial_ns,
                                                    .heartbeat_ns = HW_NEVER,
                                                    .mute = true,
                                                    .resuming = len > VN_STRIPE_KEY_BYTES}};
    struct rpc_client *client;
    int rc = rpc_client_connect(&l->addr, &l->net, &options, &client, why);
    if (rc)
        return rc;
    rc = rpc_client_call(client, &send, NULL);
    if (rc) {
        snprintf(why, RPC_WHY_CHARS, "%s", strerror(-rc));
        rpc_client_destroy(client);
        return rc;
    }
    *out = rpc_client_strip(client);
    return 0;
}

static int dial_again(void *user, struct rpc_transport **out)
{
    const struct stripe *stripe = user;
    char why[RPC_WHY_CHARS];
    uint8_t say[VN_STRIPE_AGAIN_BYTES];
    memcpy(say, stripe->all->key, VN_STRIPE_KEY_BYTES);
    wire_store32(say + VN_STRIPE_KEY_BYTES, stripe->number);
    return dial_stripe(stripe->all, say, sizeof(say), out, why);
}

static int dial_one(struct vnc_stripes *l, char why[RPC_WHY_CHARS])
{
    struct stripe *stripe = &l->stripes[l->count];
    *stripe = (struct stripe){.all = l, .number = l->count};
    vnc_lock_init(&stripe->turn);
    int rc = dial_stripe(l, l->key, sizeof(l->key), &stripe->transport, why);
    if (rc)
        vnc_lock_fini(&stripe->turn);
    l->count += rc == 0;
    return rc;
}

int vnc_stripes_dial(const struct rpc_addr *addr, const struct rpc_net_options *net, unsigned count,
                     bool (*has_ended)(void *user), void *user, struct vnc_stripes **out,
                     char why[RPC_WHY_CHARS])
{
    assert(count <= VN_STRIPES_MAX);
    struct vnc_stripes *l = calloc(1, sizeof(*l));
    if (!l || getrandom(l->key, sizeof(l->key), 0) != (ssize_t)sizeof(l->key)) {
        snprintf(why, RPC_WHY_CHARS, "out of memory");
        free(l);
        return -ENOMEM;
    }
    l->addr = *addr;
    l->net = *net;
    l->net.timeout_ns = dial_ns;
    rpc_security_copy(&l->security, net->security);
    l->net.security = &l->security;
    l->has_ended = has_ended;
    l->user = user;
    l->spins = hw_cores() >= VN_STRIPES_CORES;
    vnc_lock_init(&l->lock);
    pthread_cond_init(&l->wakes, NULL);
    pthread_cond_init(&l->idle, NULL);
    int rc = 0;
    while (rc == 0 && l->count < count)
        rc = dial_one(l, why);
    if (rc) {
        vnc_stripes_destroy(l);
        return rc;
    }
    *out = l;
    return 0;
}

void vnc_stripes_destroy(struct vnc_stripes *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    atomic_store_explicit(&l->stopping, true, memory_order_relaxed);
    pthread_cond_broadcast(&l->wakes);
    pthread_mutex_unlock(&l->lock);
    for (unsigned i = 1; i < l->ready; i++)
        pthread_join(l->stripes[i].thread, NULL);
    if (l->tended)
        pthread_join(l->tender, NULL);
    for (unsigned i = 0; i < l->count; i++) {
        rpc_transport_destroy(l->stripes[i].transport);
        vnc_lock_fini(&l->stripes[i].turn);
    }
    pthread_cond_destroy(&l->idle);
    pthread_cond_destroy(&l->wakes);
    vnc_lock_fini(&l->lock);
    rpc_security_fini(&l->security);
    free(l);
}

const uint8_t *vnc_stripes_key(const struct vnc_stripes *l)
{
    return l->key;
}

static void tend_all(struct vnc_stripes *l)
{
    struct pollfd fds[VN_STRIPES_MAX];
    bool whole = true;
    for (unsigned i = 0; i < l->count; i++) {
        struct stripe *stripe = &l->stripes[i];
        fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
        if (pthread_mutex_trylock(&stripe->turn))
            continue; /* who sends on it tends it */
        int rc = tend(stripe);
        whole = whole && rc == 0;
        if (rc && rc != -EAGAIN)
            l->lose(l->user, "an upload stripe was cut and cannot be resumed");
        fds[i].fd = rpc_pipe_poll_fd(stripe->transport);
        pthread_mutex_unlock(&stripe->turn);
    }
    (void)poll(fds, l->count, (int)((whole ? tend_ns : slice_ns) / HW_MS));
}

static void *tend_main(void *arg)
{
    struct vnc_stripes *l = arg;
    while (!is_set(&l->stopping) && !l->has_ended(l->user))
        tend_all(l);
    return NULL;
}

/* What a cut stripe carried is sent again. */
static int make_pipes(struct vnc_stripes *l)
{
    int rc = 0;
    for (unsigned i = 0; i < l->count && rc == 0; i++) {
        struct stripe *stripe = &l->stripes[i];
        stripe->resumes = hw_counter_load(&l->stats->resumes);
        rc = rpc_pipe_sender(stripe->transport, dial_again, stripe, &stripe->transport);
    }
    if (rc == 0)
        rc = hw_thread_start(&l->tender, tend_main, l);
    l->tended = rc == 0;
    return rc;
}

int vnc_stripes_open(struct vnc_stripes *l, uint32_t at_server, const struct rpc_stats *stats,
                     void (*lose)(void *user, const char *why))
{
    l->stats = stats;
    l->lose = lose;
    if ((at_server & ~(uint32_t)VN_STRIPES_RESUME) != l->count)
        return -ENOTCONN;
    if (at_server & VN_STRIPES_RESUME && make_pipes(l))
        return -EAGAIN;
    for (l->ready = 1; l->ready < l->count; l->ready++) {
        struct stripe *stripe = &l->stripes[l->ready];
        if (hw_thread_start(&stripe->thread, stripe_main, stripe))
            return -EAGAIN;
    }
    return 0;
}
