#include "bench/rpc/loopback.h"

#include "base/clock.h"
#include "base/grow.h"
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
    uint32_t index; /* among the net's ends */
    bool destroyed;
    bool blocked; /* a send had no room; and then there was some */
    bool unblocked;
    bool has_news; /* it is in the net's list: bytes come, it may send, the connection has ended */
    struct end *news_next, *news_prev;
    struct rpc_loopnet_host *host;
    const struct rpc_stats *stats;
    uint64_t sent, received; /* messages that the host has counted */
};

struct link {
    struct rpc_loopnet *net;
    struct end ends[2];
    bool cut, reset;
    uint64_t frozen_until_ns;
};

struct rpc_loopnet {
    struct rpc_loopnet_options options;
    struct hw_rng rng;
    uint64_t now_ns;
    struct end **ends; /* that are not destroyed */
    uint32_t end_count;
    size_t end_room;
    uint32_t links;
    struct end *news; /* so that time passes without a look at every connection */
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
    assert(net->links == 0); /* transports go first */
    free(net->ends);
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

static void news_add(struct end *e)
{
    struct rpc_loopnet *net = e->link->net;
    if (e->has_news || e->destroyed)
        return;
    e->has_news = true;
    e->news_prev = NULL;
    e->news_next = net->news;
    if (net->news)
        net->news->news_prev = e;
    net->news = e;
}

static bool has_ended(struct end *e)
{
    return e->link->reset || (other(e)->destroyed && !e->head);
}

static void news_update(struct end *e)
{
    struct rpc_loopnet *net = e->link->net;
    if (!e->has_news || (!e->destroyed && (e->head || e->unblocked || has_ended(e))))
        return;
    e->has_news = false;
    *(e->news_prev ? &e->news_prev->news_next : &net->news) = e->news_next;
    if (e->news_next)
        e->news_next->news_prev = e->news_prev;
}

static void count_messages(struct end *e)
{
    if (!e->stats)
        return;
    uint64_t sent = hw_counter_load(&e->stats->msgs_sent);
    uint64_t received = hw_counter_load(&e->stats->msgs_received);
    e->host->messages_sent += sent - e->sent;
    e->host->messages_received += received - e->received;
    e->sent = sent;
    e->received = received;
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

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* When the last byte is there: one link after the other is busy with them. */
static uint64_t carried(const struct rpc_loopnet *net, const struct end *from, const struct end *to,
                        size_t bytes)
{
    uint64_t takes = (uint64_t)((double)bytes * 1e9 / (double)net->options.bandwidth);
    from->host->out_free_ns = later(net->now_ns, from->host->out_free_ns) + takes;
    uint64_t first = from->host->out_free_ns - takes + net->options.delay_ns;
    to->host->in_free_ns = later(first, to->host->in_free_ns) + takes;
    return to->host->in_free_ns;
}

static uint64_t arrival(struct rpc_loopnet *net, const struct end *from, struct end *to,
                        size_t bytes)
{
    bool limited = net->options.bandwidth && from->host && to->host;
    uint64_t due = limited ? carried(net, from, to, bytes) : net->now_ns + net->options.delay_ns;
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
    from->blocked = from->blocked || total > room;
    if (n == 0 || stalled(net))
        return -EAGAIN;
    net->now_ns += net->options.write_cost_ns;
    count_messages(from);
    if (from->host)
        from->host->bytes_sent += n;
    if (to->destroyed)
        return (ssize_t)n;
    struct flight *f = malloc(sizeof *f + n);
    if (!f)
        return -ENOMEM;
    *f = (struct flight){.due_ns = arrival(net, from, to, n), .len = n};
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
    news_add(to);
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
    count_messages(e);
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
    news_update(e);
    if (got > 0 && other(e)->blocked) {
        other(e)->blocked = false;
        other(e)->unblocked = true;
        news_add(other(e));
    }
    if (got > 0 && e->host)
        e->host->bytes_received += (uint64_t)got;
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
    struct rpc_loopnet *net = link->net;
    while (e->head)
        pop(e);
    e->destroyed = true;
    news_update(e);
    net->ends[e->index] = net->ends[--net->end_count];
    net->ends[e->index]->index = e->index;
    if (!other(e)->destroyed) {
        news_add(other(e));
        return;
    }
    net->links--;
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
    if (!hw_grow(&net->ends, &net->end_room, (size_t)net->end_count + 2, sizeof(struct end *)))
        return -ENOMEM;
    struct link *link = calloc(1, sizeof *link);
    if (!link)
        return -ENOMEM;
    link->net = net;
    net->links++;
    for (int i = 0; i < 2; i++) {
        struct end *e = &link->ends[i];
        e->link = link;
        e->base = (struct rpc_transport){.ops = &loop_ops, .local = true};
        snprintf(e->base.peer, sizeof e->base.peer, "loopback %s", i ? "connector" : "acceptor");
        e->index = net->end_count++;
        net->ends[e->index] = e;
        out[i] = &e->base;
    }
    return 0;
}

void rpc_loopnet_place(struct rpc_transport *t, struct rpc_loopnet_host *host,
                       const struct rpc_stats *stats)
{
    struct end *e = (struct end *)t;
    e->host = host;
    e->stats = stats;
}

uint32_t rpc_loopnet_ends(const struct rpc_loopnet *net)
{
    return net->end_count;
}

struct rpc_transport *rpc_loopnet_end(const struct rpc_loopnet *net, uint32_t index)
{
    assert(index < net->end_count);
    return &net->ends[index]->base;
}

void rpc_loopnet_visit(struct rpc_loopnet *net,
                       void (*arrived)(void *user, struct rpc_loopnet_host *host), void *user)
{
    for (struct end *e = net->news, *next; e; e = next) {
        next = e->news_next;
        if (e->host && (has_arrived(e) || e->unblocked || has_ended(e)))
            arrived(user, e->host);
        e->unblocked = false;
        news_update(e);
    }
}

static uint64_t next_arrival(const struct rpc_loopnet *net)
{
    uint64_t next = HW_NEVER;
    for (const struct end *e = net->news; e; e = e->news_next) {
        if (!e->head || e->link->cut)
            continue;
        uint64_t due = later(e->head->due_ns, e->link->frozen_until_ns);
        next = due < next ? due : next;
    }
    return next;
}

bool rpc_loopnet_carries(const struct rpc_loopnet *net)
{
    return next_arrival(net) != HW_NEVER;
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
    struct end *e = (struct end *)t;
    e->link->reset = true;
    news_add(e);
    news_add(other(e));
}

void rpc_loopnet_freeze(struct rpc_transport *t, uint64_t until_ns)
{
    ((struct end *)t)->link->frozen_until_ns = until_ns;
}
