#include "rpc/resume/rope.h"

#include "base/clock.h"
#include "base/wait.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

struct rpc_rope {
    struct rpc_transport base;
    struct rpc_transport_ops ops;     /* a copy, for the name */
    struct rpc_transport *connection; /* changes while it is cut and nobody uses it */
    /* In one order for all threads: who has entered is seen by quiet, or sees the cut. */
    _Atomic bool cut;
    _Atomic unsigned users;
    _Atomic bool receives; /* the one thread in recv, which need not count */
    _Atomic bool hold;
    _Atomic int why;
    _Atomic int sent_why; /* what a send has found, but for an end in order; 0: nothing */
    _Atomic uint64_t
        received;   /* written by the reader before it leaves; relaxed: receives orders it */
    uint8_t *early; /* received with the answer to the resumption, by another endpoint */
    size_t early_len;
    _Atomic size_t early_at; /* the receiver's; relaxed: who waits beside it only looks */
    pthread_mutex_t lock;
    pthread_cond_t attached;
};

static struct rpc_rope *rope_of(struct rpc_transport *t)
{
    return (struct rpc_rope *)t;
}

struct rpc_transport *rpc_rope_transport(struct rpc_rope *rope)
{
    return &rope->base;
}

/* The connection, until leave; NULL, and no leave, while it is cut. */
static struct rpc_transport *enter(struct rpc_rope *r)
{
    atomic_fetch_add(&r->users, 1);
    if (LIKELY(!atomic_load(&r->cut)))
        return r->connection;
    atomic_fetch_sub(&r->users, 1);
    return NULL;
}

static void leave(struct rpc_rope *r)
{
    atomic_fetch_sub(&r->users, 1);
}

void rpc_rope_hold(struct rpc_rope *r)
{
    atomic_store_explicit(&r->hold, true, memory_order_relaxed);
}

/* Between enter and leave.  What the endpoint is told: the error, or that nothing fits or came. */
static ssize_t failed(struct rpc_rope *r, ssize_t rc)
{
    if (rc == -EPROTO || rc == -ENOMEM || !atomic_load_explicit(&r->hold, memory_order_relaxed))
        return rc;
    int why = atomic_load_explicit(&r->sent_why, memory_order_relaxed);
    atomic_store_explicit(&r->why, why ? why : (int)rc, memory_order_relaxed);
    atomic_store(&r->cut, true);
    return -EAGAIN;
}

bool rpc_rope_is_cut(const struct rpc_rope *r)
{
    return atomic_load(&r->cut);
}

int rpc_rope_why(const struct rpc_rope *r)
{
    return atomic_load_explicit(&r->why, memory_order_relaxed);
}

uint64_t rpc_rope_received(const struct rpc_rope *r)
{
    return atomic_load_explicit(&r->received, memory_order_relaxed);
}

void rpc_rope_sever(struct rpc_rope *r, int why)
{
    struct rpc_transport *t = enter(r);
    if (!t)
        return;
    int fd = t->ops->poll_fd(t);
    atomic_store_explicit(&r->why, why, memory_order_relaxed);
    atomic_store(&r->cut, true);
    if (fd >= 0)
        (void)shutdown(fd, SHUT_RDWR); /* wakes who waits for it */
    leave(r);
}

void rpc_rope_quiet(struct rpc_rope *r)
{
    struct timespec nap = {.tv_nsec = (long)(100 * HW_US)};
    rpc_rope_sever(r, -ECONNRESET);
    /* One that failed by itself still has threads that wait for it. */
    int fd = r->connection->ops->poll_fd(r->connection);
    if (fd >= 0)
        (void)shutdown(fd, SHUT_RDWR);
    while (atomic_load(&r->users) > 0 || atomic_load(&r->receives))
        nanosleep(&nap, NULL);
}

int rpc_rope_attach(struct rpc_rope *r, struct rpc_transport *connection, const void *early,
                    size_t early_len)
{
    assert(rpc_rope_is_cut(r));
    uint8_t *kept = early_len ? malloc(early_len) : NULL;
    if (early_len && !kept) {
        rpc_transport_destroy(connection);
        return -ENOMEM;
    }
    if (early_len)
        memcpy(kept, early, early_len);
    free(r->early);
    r->early = kept;
    r->early_len = early_len;
    r->early_at = 0;
    rpc_transport_destroy(r->connection);
    pthread_mutex_lock(&r->lock);
    r->connection = connection;
    atomic_store_explicit(&r->sent_why, 0, memory_order_relaxed);
    atomic_store(&r->cut, false);
    pthread_cond_broadcast(&r->attached);
    pthread_mutex_unlock(&r->lock);
    return 0;
}

/* ---- the transport ---- */

/* Until it is attached again, at most for as long. */
static void sleep_while_cut(struct rpc_rope *r, uint64_t timeout_ns)
{
    if (timeout_ns == 0)
        return;
    uint64_t until = hw_after(timeout_ns < HW_SEC ? timeout_ns : HW_SEC); /* early is allowed */
    pthread_mutex_lock(&r->lock);
    if (rpc_rope_is_cut(r))
        (void)hw_cond_wait(&r->attached, &r->lock, until);
    pthread_mutex_unlock(&r->lock);
}

static ssize_t rope_send(struct rpc_transport *t, const struct iovec *iov, int count)
{
    struct rpc_rope *r = rope_of(t);
    struct rpc_transport *c = r->connection; /* not replaced meanwhile: see the header */
    if (UNLIKELY(rpc_rope_is_cut(r)))
        return -EAGAIN;
    ssize_t n = c->ops->send(c, iov, count);
    /* A goodbye may lie unread: the next recv finds the end behind it, but no more the cause, which
     * only the first send is told. */
    if (n < 0 && n != -EAGAIN && atomic_load_explicit(&r->hold, memory_order_relaxed)) {
        if (n != -EPIPE && atomic_load_explicit(&r->sent_why, memory_order_relaxed) == 0)
            atomic_store_explicit(&r->sent_why, (int)n, memory_order_relaxed);
        n = -EAGAIN;
    }
    return n;
}

static size_t early_left(struct rpc_rope *r)
{
    return r->early_len - atomic_load_explicit(&r->early_at, memory_order_relaxed);
}

static ssize_t take_early(struct rpc_rope *r, const struct iovec *iov, int count)
{
    size_t got = 0, left = early_left(r), at = r->early_len - left;
    for (int i = 0; i < count && got < left; i++) {
        size_t n = iov[i].iov_len < left - got ? iov[i].iov_len : left - got;
        memcpy(iov[i].iov_base, r->early + at + got, n);
        got += n;
    }
    atomic_store_explicit(&r->early_at, at + got, memory_order_relaxed);
    return (ssize_t)got;
}

static ssize_t rope_recv(struct rpc_transport *t, const struct iovec *iov, int count,
                         uint64_t timeout_ns)
{
    struct rpc_rope *r = rope_of(t);
    atomic_store(&r->receives, true);
    if (UNLIKELY(rpc_rope_is_cut(r))) {
        atomic_store_explicit(&r->receives, false, memory_order_release);
        sleep_while_cut(r, timeout_ns);
        return -EAGAIN;
    }
    struct rpc_transport *c = r->connection;
    ssize_t n = UNLIKELY(early_left(r) > 0) ? take_early(r, iov, count)
                                            : c->ops->recv(c, iov, count, timeout_ns);
    if (n > 0) {
        uint64_t total = rpc_rope_received(r) + (uint64_t)n;
        atomic_store_explicit(&r->received, total, memory_order_relaxed);
    } else if (n != -EAGAIN) {
        n = failed(r, n);
    }
    atomic_store_explicit(&r->receives, false, memory_order_release);
    return n;
}

static int rope_wait(struct rpc_transport *t, unsigned events, uint64_t timeout_ns)
{
    struct rpc_rope *r = rope_of(t);
    struct rpc_transport *c = enter(r);
    if (!c) {
        sleep_while_cut(r, timeout_ns);
        return 0;
    }
    int rc = early_left(r) > 0 ? 0 : c->ops->wait(c, events, timeout_ns);
    leave(r);
    return rc;
}

static int rope_poll_fd(struct rpc_transport *t)
{
    struct rpc_rope *r = rope_of(t);
    struct rpc_transport *c = enter(r);
    int fd = c ? c->ops->poll_fd(c) : -1;
    if (c)
        leave(r);
    return fd;
}

static int rope_arm(struct rpc_transport *t, unsigned events)
{
    struct rpc_rope *r = rope_of(t);
    struct rpc_transport *c = enter(r);
    if (!c)
        return 0;
    int rc = early_left(r) > 0 ? 1 : c->ops->arm ? c->ops->arm(c, events) : 0;
    leave(r);
    return rc;
}

static bool rope_host_answers(struct rpc_transport *t, uint64_t within_ns)
{
    struct rpc_rope *r = rope_of(t);
    struct rpc_transport *c = enter(r);
    bool answers = !c || !c->ops->host_answers || c->ops->host_answers(c, within_ns);
    if (c)
        leave(r);
    return answers;
}

static bool rope_is_behind(struct rpc_transport *t)
{
    struct rpc_rope *r = rope_of(t);
    struct rpc_transport *c = enter(r);
    bool behind = c && c->ops->is_behind && c->ops->is_behind(c);
    if (c)
        leave(r);
    return behind;
}

static int rope_binding(struct rpc_transport *t, uint8_t out[RPC_BINDING_BYTES])
{
    struct rpc_transport *c = rope_of(t)->connection; /* of a handshake, which is never cut */
    return c->ops->binding(c, out);
}

static const char *rope_reason(struct rpc_transport *t)
{
    struct rpc_rope *r = rope_of(t);
    struct rpc_transport *c = enter(r);
    const char *why = c && c->ops->reason ? c->ops->reason(c) : NULL;
    if (c)
        leave(r);
    return why;
}

static void rope_free(struct rpc_rope *r)
{
    pthread_cond_destroy(&r->attached);
    pthread_mutex_destroy(&r->lock);
    free(r->early);
    free(r);
}

static void rope_destroy(struct rpc_transport *t)
{
    rpc_transport_destroy(rope_of(t)->connection);
    rope_free(rope_of(t));
}

static void rope_abandon(struct rpc_transport *t)
{
    rpc_transport_abandon(rope_of(t)->connection);
    rope_free(rope_of(t));
}

int rpc_rope_create(struct rpc_transport *connection, struct rpc_rope **out)
{
    struct rpc_rope *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    pthread_cond_init(&r->attached, NULL);
    pthread_mutex_init(&r->lock, NULL);
    r->connection = connection;
    r->base = *connection;
    r->ops = (struct rpc_transport_ops){
        .name = connection->ops->name,
        .send = rope_send,
        .recv = rope_recv,
        .wait = rope_wait,
        .poll_fd = rope_poll_fd,
        .arm = rope_arm,
        .host_answers = connection->ops->host_answers ? rope_host_answers : NULL,
        .is_behind = rope_is_behind,
        .binding = connection->ops->binding ? rope_binding : NULL,
        .reason = rope_reason,
        .destroy = rope_destroy,
        .abandon = rope_abandon,
    };
    r->base.ops = &r->ops;
    *out = r;
    return 0;
}
