#include "loopback.h"

#include "base/clock.h"
#include "base/rng.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_DEFAULT = 1 << 20 };

/* Bytes of one send, under way. */
struct flight {
    struct flight *next;
    uint64_t due_ns;
    size_t len, taken;
    uint8_t data[];
};

struct link;

struct end {
    struct rpc_transport base;
    struct link *link;
    struct flight *head, *tail; /* towards this end */
    size_t in_flight;
    uint64_t last_due_ns;
    bool destroyed;
};

struct link {
    struct link *next;
    struct rpc_loopnet *net;
    struct end ends[2];
    bool cut, reset;
    uint64_t frozen_until_ns;
};

struct rpc_loopnet {
    struct rpc_loopnet_options options;
    struct hw_rng rng;
    uint64_t now_ns;
    struct link *links;
};

int rpc_loopnet_create(const struct rpc_loopnet_options *options, struct rpc_loopnet **out)
{
    struct rpc_loopnet *net = calloc(1, sizeof *net);
    if (!net)
        return -ENOMEM;
    net->options = *options;
    if (net->options.buffer_bytes == 0)
        net->options.buffer_bytes = BUFFER_DEFAULT;
    hw_rng_seed(&net->rng, options->seed);
    net->now_ns = HW_SEC; /* not 0, which means "unset" in places */
    *out = net;
    return 0;
}

void rpc_loopnet_destroy(struct rpc_loopnet *net)
{
    if (!net)
        return;
    assert(!net->links); /* transports go first */
    free(net);
}

static uint64_t clock_now(void *user)
{
    return ((struct rpc_loopnet *)user)->now_ns;
}

struct rpc_clock rpc_loopnet_clock(struct rpc_loopnet *net)
{
    return (struct rpc_clock){clock_now, net};
}

uint64_t rpc_loopnet_now(const struct rpc_loopnet *net)
{
    return net->now_ns;
}

static struct end *other(struct end *e)
{
    return e == &e->link->ends[0] ? &e->link->ends[1] : &e->link->ends[0];
}

static bool stalled(struct rpc_loopnet *net)
{
    return net->options.stall_percent && hw_rng_below(&net->rng, 100) < net->options.stall_percent;
}

static size_t piece(struct rpc_loopnet *net, size_t n)
{
    if (net->options.piece_max == 0 || n <= 1)
        return n;
    size_t most = n < net->options.piece_max ? n : net->options.piece_max;
    return 1 + (size_t)hw_rng_below(&net->rng, most);
}

static uint64_t arrival(struct rpc_loopnet *net, struct end *to)
{
    uint64_t due = net->now_ns + net->options.delay_ns;
    if (net->options.jitter_ns)
        due += hw_rng_below(&net->rng, net->options.jitter_ns);
    if (due < to->last_due_ns)
        due = to->last_due_ns; /* order is kept */
    to->last_due_ns = due;
    return due;
}

static ssize_t loop_send(struct rpc_transport *t, const struct iovec *iov, int count)
{
    struct end *from = (struct end *)t, *to = other(from);
    struct rpc_loopnet *net = from->link->net;
    /* What it sent before it went is read first, as a real network's reset comes behind it. */
    if (from->link->reset || (to->destroyed && !from->head))
        return -ECONNRESET;
    size_t total = 0;
    for (int i = 0; i < count; i++)
        total += iov[i].iov_len;
    size_t room = net->options.buffer_bytes - to->in_flight;
    size_t n = piece(net, total < room ? total : room);
    if (n == 0 || stalled(net))
        return -EAGAIN;
    net->now_ns += net->options.write_cost_ns;
    if (to->destroyed)
        return (ssize_t)n;
    struct flight *f = malloc(sizeof *f + n);
    if (!f)
        return -ENOMEM;
    *f = (struct flight){.due_ns = arrival(net, to), .len = n};
    size_t at = 0;
    for (int i = 0; i < count && at < n; i++) {
        size_t part = iov[i].iov_len < n - at ? iov[i].iov_len : n - at;
        memcpy(f->data + at, iov[i].iov_base, part);
        at += part;
    }
    if (to->tail)
        to->tail->next = f;
    else
        to->head = f;
    to->tail = f;
    to->in_flight += n;
    return (ssize_t)n;
}

static bool has_arrived(const struct end *e)
{
    const struct link *link = e->link;
    return e->head && !link->cut && e->head->due_ns <= link->net->now_ns &&
           link->frozen_until_ns <= link->net->now_ns;
}

static void pop(struct end *e)
{
    struct flight *f = e->head;
    e->head = f->next;
    if (!e->head)
        e->tail = NULL;
    free(f);
}

static ssize_t loop_recv(struct rpc_transport *t, const struct iovec *iov, int count,
                         uint64_t timeout_ns)
{
    (void)timeout_ns; /* time moves only by rpc_loopnet_step */
    struct end *e = (struct end *)t;
    struct rpc_loopnet *net = e->link->net;
    if (e->link->reset)
        return -ECONNRESET;
    if (has_arrived(e) && stalled(net))
        return -EAGAIN;
    ssize_t got = 0;
    size_t offset = 0;
    for (int i = 0; has_arrived(e) && i < count;) {
        struct flight *f = e->head;
        size_t want = iov[i].iov_len - offset;
        size_t n = f->len - f->taken < want ? f->len - f->taken : want;
        memcpy((uint8_t *)iov[i].iov_base + offset, f->data + f->taken, n);
        f->taken += n;
        offset += n;
        got += (ssize_t)n;
        e->in_flight -= n;
        if (f->taken == f->len)
            pop(e);
        if (offset == iov[i].iov_len) {
            i++;
            offset = 0;
        }
        if (net->options.piece_max)
            break;
    }
    if (got > 0)
        return got;
    return other(e)->destroyed && !e->head ? -ESHUTDOWN : -EAGAIN;
}

static int loop_wait(struct rpc_transport *t, unsigned events, uint64_t timeout_ns)
{
    (void)timeout_ns;
    struct end *e = (struct end *)t;
    bool send_ok = other(e)->in_flight < e->link->net->options.buffer_bytes;
    bool ready = e->link->reset || other(e)->destroyed ||
                 (events & RPC_WAIT_RECV && has_arrived(e)) || (events & RPC_WAIT_SEND && send_ok);
    return ready ? 0 : -ETIMEDOUT;
}

static int loop_poll_fd(struct rpc_transport *t)
{
    (void)t;
    return -1;
}

static void loop_destroy(struct rpc_transport *t)
{
    struct end *e = (struct end *)t;
    struct link *link = e->link;
    while (e->head)
        pop(e);
    e->destroyed = true;
    if (!other(e)->destroyed)
        return;
    for (struct link **at = &link->net->links; *at; at = &(*at)->next) {
        if (*at == link) {
            *at = link->next;
            break;
        }
    }
    free(link);
}

static const struct rpc_transport_ops loop_ops = {
    .name = "loopback",
    .send = loop_send,
    .recv = loop_recv,
    .wait = loop_wait,
    .poll_fd = loop_poll_fd,
    .destroy = loop_destroy,
};

int rpc_loopnet_pair(struct rpc_loopnet *net, struct rpc_transport *out[2])
{
    struct link *link = calloc(1, sizeof *link);
    if (!link)
        return -ENOMEM;
    link->net = net;
    link->next = net->links;
    net->links = link;
    for (int i = 0; i < 2; i++) {
        struct end *e = &link->ends[i];
        e->link = link;
        e->base = (struct rpc_transport){.ops = &loop_ops, .local = true};
        snprintf(e->base.peer, sizeof e->base.peer, "loopback %s", i ? "connector" : "acceptor");
        out[i] = &e->base;
    }
    return 0;
}

static uint64_t next_arrival(const struct rpc_loopnet *net)
{
    uint64_t next = HW_NEVER;
    for (const struct link *link = net->links; link; link = link->next) {
        for (int i = 0; i < 2 && !link->cut; i++) {
            const struct flight *f = link->ends[i].head;
            if (!f)
                continue;
            uint64_t due = f->due_ns > link->frozen_until_ns ? f->due_ns : link->frozen_until_ns;
            if (due < next)
                next = due;
        }
    }
    return next;
}

bool rpc_loopnet_step(struct rpc_loopnet *net, uint64_t until_ns)
{
    uint64_t next = next_arrival(net);
    bool arrives = next <= until_ns;
    uint64_t to = arrives ? next : until_ns;
    if (to > net->now_ns)
        net->now_ns = to;
    return arrives;
}

void rpc_loopnet_spend(struct rpc_loopnet *net, uint64_t ns)
{
    net->now_ns += ns;
}

void rpc_loopnet_cut(struct rpc_transport *t)
{
    ((struct end *)t)->link->cut = true;
}

void rpc_loopnet_reset(struct rpc_transport *t)
{
    ((struct end *)t)->link->reset = true;
}

void rpc_loopnet_freeze(struct rpc_transport *t, uint64_t until_ns)
{
    ((struct end *)t)->link->frozen_until_ns = until_ns;
}
