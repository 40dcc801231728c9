#include "rpc/resume/pipe.h"

#include "base/looks.h"
#include "rpc/resume/kept.h"
#include "wire/le.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { NUMBER_BYTES = 8 };

static const uint64_t redial_first_ns = 20 * HW_MS;
static const uint64_t redial_most_ns = HW_SEC;
static const uint64_t give_up_ns = 60 * HW_SEC;
static const uint64_t dial_every_ns = 10 * HW_SEC; /* more than the slowest dial and its pause */
static const uint64_t silent_ns = 2 * HW_SEC;      /* as a client's heartbeat */
static const uint64_t look_ns = 5 * HW_MS;         /* for a connection that is given */

static void nap(uint64_t ns)
{
    struct timespec t = hw_timespec(ns);
    nanosleep(&t, NULL);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- the sender ---- */

struct sender {
    struct rpc_transport base;
    struct rpc_transport *connection; /* NULL: it is cut */
    rpc_pipe_dial_fn *dial;
    void *user;
    struct rpc_kept *kept;
    uint64_t next; /* number of the byte to write; less than written: it is written again */
    uint8_t number[NUMBER_BYTES];
    size_t have;
    bool hears;            /* the receiver's first number on this connection is not there yet */
    bool waits;            /* for a number, not for room */
    int end;               /* sticky */
    struct hw_looks looks; /* since the cut, whose time is theirs */
    uint64_t cut_ns, dial_ns, nap_ns;
};

static void sender_cut(struct sender *s)
{
    rpc_transport_destroy(s->connection);
    s->connection = NULL;
    s->cut_ns = hw_now_ns();
    hw_looks_init(&s->looks, dial_every_ns, s->cut_ns);
    s->nap_ns = redial_first_ns;
    s->dial_ns = s->cut_ns;
}

static void sender_redial(struct sender *s)
{
    uint64_t now = hw_now_ns();
    if (now < s->dial_ns)
        return;
    int rc = s->dial(s->user, &s->connection);
    struct iovec hello = {s->number, 1}; /* any byte */
    if (rc == 0 && s->connection->ops->send(s->connection, &hello, 1) == 1) {
        s->have = 0;
        s->hears = true;
        return;
    }
    if (rc == 0)
        rpc_transport_destroy(s->connection);
    s->connection = NULL;
    now = hw_now_ns();
    if (rc == -ENOENT || hw_looks_at(&s->looks, now) - s->cut_ns > give_up_ns)
        s->end = rc == -ENOENT ? -ECONNRESET : -EHOSTDOWN;
    s->dial_ns = now + s->nap_ns;
    s->nap_ns = least(2 * s->nap_ns, redial_most_ns);
}

/* Numbers that have come.  0, -EPROTO, or what ended the connection. */
static int sender_listen(struct sender *s)
{
    for (;;) {
        struct iovec iov = {s->number + s->have, sizeof s->number - s->have};
        ssize_t n = s->connection->ops->recv(s->connection, &iov, 1, 0);
        if (n == -EAGAIN)
            return 0;
        if (n < 0)
            return n == -EPROTO ? -ECONNRESET : (int)n;
        s->have += (size_t)n;
        if (s->have < sizeof s->number)
            continue;
        s->have = 0;
        uint64_t number = wire_load64(s->number);
        if ((!s->hears && number > s->next) || rpc_kept_ack(s->kept, number))
            return -EPROTO;
        if (s->hears)
            s->next = number;
        s->hears = false;
    }
}

/* What the receiver lacks.  0 when that is all, -EAGAIN, or what ended the connection. */
static int sender_repeat(struct sender *s)
{
    while (s->next < rpc_kept_written(s->kept)) {
        struct iovec iov[RPC_IOV_MAX];
        int count = rpc_kept_gather(s->kept, s->next, iov, RPC_IOV_MAX);
        ssize_t n = s->connection->ops->send(s->connection, iov, count);
        if (n < 0)
            return (int)n;
        s->next += (uint64_t)n;
    }
    return 0;
}

static void sender_keep(struct sender *s, const struct iovec *iov, size_t n)
{
    for (; n > 0; iov++) {
        size_t part = n < iov->iov_len ? n : iov->iov_len;
        rpc_kept_copy(s->kept, iov->iov_base, part);
        n -= part;
    }
    s->next = rpc_kept_written(s->kept);
}

/* As much as fits into what may be kept. */
static ssize_t sender_write(struct sender *s, const struct iovec *iov, int count)
{
    struct iovec part[RPC_IOV_MAX];
    uint64_t room = RPC_PIPE_KEPT_BYTES - (rpc_kept_written(s->kept) - rpc_kept_acked(s->kept));
    int n = 0;
    for (; n < count && room > 0; n++) {
        part[n] = iov[n];
        part[n].iov_len = (size_t)least(part[n].iov_len, room);
        room -= part[n].iov_len;
    }
    s->waits = n == 0 && count > 0;
    return n == 0 ? -EAGAIN : s->connection->ops->send(s->connection, part, n);
}

static ssize_t sender_send(struct rpc_transport *t, const struct iovec *iov, int count)
{
    struct sender *s = (struct sender *)t;
    if (!s->connection && s->end == 0)
        sender_redial(s);
    if (s->end || !s->connection)
        return s->end ? s->end : -EAGAIN;
    ssize_t n = sender_listen(s);
    s->waits = s->hears;
    if (n == 0 && s->hears)
        return -EAGAIN;
    if (n == 0)
        n = sender_repeat(s);
    if (n == 0)
        n = sender_write(s, iov, count);
    if (n > 0)
        sender_keep(s, iov, (size_t)n);
    if (rpc_kept_is_broken(s->kept))
        return s->end = -ENOMEM;
    if (n > 0 || n == -EAGAIN)
        return n;
    if (n == -EPROTO)
        return s->end = -EPROTO;
    sender_cut(s);
    return -EAGAIN;
}

int rpc_pipe_poll_fd(const struct rpc_transport *t)
{
    struct rpc_transport *c = ((const struct sender *)t)->connection;
    return c ? c->ops->poll_fd(c) : -1;
}

int rpc_pipe_tend(struct rpc_transport *t, bool cut)
{
    struct sender *s = (struct sender *)t;
    struct rpc_transport *c = s->connection;
    if (c && (cut || (c->ops->host_answers && !c->ops->host_answers(c, silent_ns))))
        sender_cut(s);
    ssize_t n = sender_send(t, NULL, 0);
    return n == -EAGAIN && s->connection ? 0 : (int)n;
}

static int sender_wait(struct rpc_transport *t, unsigned events, uint64_t timeout_ns)
{
    struct sender *s = (struct sender *)t;
    if (s->connection)
        return s->connection->ops->wait(s->connection, s->waits ? RPC_WAIT_RECV : events,
                                        timeout_ns);
    uint64_t now = hw_now_ns();
    nap(s->dial_ns > now ? least(timeout_ns, s->dial_ns - now) : 0);
    return 0;
}

static void sender_destroy(struct rpc_transport *t)
{
    struct sender *s = (struct sender *)t;
    rpc_transport_destroy(s->connection);
    rpc_kept_destroy(s->kept);
    free(s);
}

static void nothing_to_drop(void *owner)
{
    (void)owner;
}

int rpc_pipe_sender(struct rpc_transport *connection, rpc_pipe_dial_fn *dial, void *user,
                    struct rpc_transport **out)
{
    static const struct rpc_transport_ops ops = {
        .name = "pipe", .send = sender_send, .wait = sender_wait, .destroy = sender_destroy};
    struct sender *s = calloc(1, sizeof *s);
    if (s)
        s->kept = rpc_kept_create(RPC_PIPE_KEPT_BYTES, nothing_to_drop);
    if (!s || !s->kept) {
        free(s);
        return -ENOMEM;
    }
    s->base = *connection;
    s->base.ops = &ops;
    s->connection = connection;
    s->dial = dial;
    s->user = user;
    *out = &s->base;
    return 0;
}

/* ---- the receiver ---- */

struct receiver {
    struct rpc_transport base;
    struct rpc_transport *connection; /* NULL: it is cut */
    /* Given, not yet used; looked for between waits, since the old one may be silent.  Exchanged
     * with acquire and release: what was made of it is seen. */
    struct rpc_transport *_Atomic next;
    uint64_t received, told;
    uint8_t number[NUMBER_BYTES];
    size_t untold; /* bytes of the number that are not written */
    bool listens;  /* for the first byte of a connection that was given */
};

static void receiver_cut(struct receiver *r)
{
    rpc_transport_destroy(r->connection);
    r->connection = NULL;
}

/* Says how many it has, as far as the connection takes it. */
static void receiver_tell(struct receiver *r)
{
    while (r->connection && r->untold > 0) {
        struct iovec iov = {r->number + sizeof r->number - r->untold, r->untold};
        ssize_t n = r->connection->ops->send(r->connection, &iov, 1);
        if (n == -EAGAIN)
            return;
        if (n < 0)
            receiver_cut(r);
        else
            r->untold -= (size_t)n;
    }
}

static void receiver_note(struct receiver *r)
{
    wire_store64(r->number, r->received);
    r->told = r->received;
    r->untold = sizeof r->number;
}

static void receiver_take(struct receiver *r)
{
    if (LIKELY(!atomic_load_explicit(&r->next, memory_order_relaxed)))
        return;
    rpc_transport_destroy(r->connection);
    r->connection = atomic_exchange_explicit(&r->next, NULL, memory_order_acquire);
    r->listens = true;
    r->untold = 0;
}

/* What recv gives.  A connection that has ended is cut. */
static ssize_t receiver_read(struct receiver *r, const struct iovec *iov, int count,
                             uint64_t timeout_ns)
{
    ssize_t n = r->connection->ops->recv(r->connection, iov, count, timeout_ns);
    if (n >= 0 || n == -EAGAIN)
        return n;
    receiver_cut(r);
    return -EAGAIN;
}

static void receiver_listen(struct receiver *r, uint64_t timeout_ns)
{
    uint8_t byte;
    struct iovec iov = {&byte, 1};
    if (receiver_read(r, &iov, 1, timeout_ns) != 1)
        return;
    r->listens = false;
    receiver_note(r);
}

static ssize_t receiver_recv(struct rpc_transport *t, const struct iovec *iov, int count,
                             uint64_t timeout_ns)
{
    struct receiver *r = (struct receiver *)t;
    receiver_take(r);
    if (r->connection && r->listens)
        receiver_listen(r, timeout_ns);
    receiver_tell(r);
    if (!r->connection)
        nap(least(timeout_ns, look_ns));
    if (!r->connection || r->listens)
        return -EAGAIN;
    ssize_t n = receiver_read(r, iov, count, timeout_ns);
    if (n > 0) {
        r->received += (uint64_t)n;
        if (r->received - r->told >= RPC_PIPE_TELL_BYTES && r->untold == 0)
            receiver_note(r);
        receiver_tell(r);
    }
    return n;
}

static void receiver_destroy(struct rpc_transport *t)
{
    struct receiver *r = (struct receiver *)t;
    rpc_transport_destroy(r->connection);
    rpc_transport_destroy(atomic_load(&r->next));
    free(r);
}

int rpc_pipe_receiver(struct rpc_transport *connection, struct rpc_transport **out)
{
    static const struct rpc_transport_ops ops = {
        .name = "pipe", .recv = receiver_recv, .destroy = receiver_destroy};
    struct receiver *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    r->base = *connection;
    r->base.ops = &ops;
    r->connection = connection;
    *out = &r->base;
    return 0;
}

void rpc_pipe_give(struct rpc_transport *receiver, struct rpc_transport *connection)
{
    struct receiver *r = (struct receiver *)receiver;
    rpc_transport_destroy(atomic_exchange_explicit(&r->next, connection, memory_order_acq_rel));
}
