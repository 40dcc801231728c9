#include "kv/client/client_impl.h"

#include "kv/common/attach.h"
#include "rpc/transport/net.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    DEPTH_DEFAULT = 16,
    STAGED_MAX = 4096,    /* blocks being put at a time: as many as a daemon allows */
    DEATH_LOOKS = 1 << 14 /* busy waiting: rounds between two looks at the sockets */
};

struct slot {
    void *user, *buffer;
    uint32_t buffer_len;
    bool waited_for; /* else the caller has given up, and a late answer is dropped */
    uint64_t asked_ns, deadline_ns;
};

/* The connection with one daemon. */
struct link {
    struct rpc_transport *socket;
    struct kv_attachment attachment;
    struct kv_port port;
    struct kv_block_link blocks;
    uint32_t waited_for; /* slots */
    bool lost, unrung;
    struct slot slots[KV_DEPTH_MAX];
};

struct kv_client {
    struct kv_client_options options;
    struct hw_wait wait;
    int epoll;
    uint32_t ranks, daemons;
    uint32_t link_count;
    uint32_t waited_for;
    uint32_t rounds;
    uint64_t next_deadline_ns; /* no later than the first deadline */
    struct link *links[KV_DAEMONS_MAX];
};

int kv_socket_path(const char *base, uint32_t index, char out[KV_SOCKET_CHARS])
{
    int n = index ? snprintf(out, KV_SOCKET_CHARS, "%s.%u", base, index)
                  : snprintf(out, KV_SOCKET_CHARS, "%s", base);
    return n < KV_SOCKET_CHARS ? 0 : -ENAMETOOLONG;
}

static int no_memory(char why[RPC_WHY_CHARS])
{
    snprintf(why, RPC_WHY_CHARS, "out of memory");
    return -ENOMEM;
}

/* ---- attaching ---- */

static int send_attach(struct rpc_transport *t, const struct kv_region_shape *shape)
{
    uint8_t payload[KV_ATTACH_BYTES];
    kv_attach_encode(shape, payload);
    struct iovec iov = {payload, sizeof(payload)};
    ssize_t n = t->ops->send(t, &iov, 1);
    return n == sizeof(payload) ? 0 : n < 0 ? (int)n : -EPROTO;
}

static int receive_offer(struct rpc_transport *t, uint64_t until, struct kv_offer *offer,
                         int fds[KV_OFFER_FDS_BLOCKS])
{
    uint8_t payload[KV_OFFER_BYTES];
    size_t have = 0;
    while (have < sizeof(payload)) {
        uint64_t now = hw_now_ns();
        struct iovec iov = {payload + have, sizeof(payload) - have};
        ssize_t n = now < until ? t->ops->recv(t, &iov, 1, until - now) : -ETIMEDOUT;
        if (n < 0 && n != -EAGAIN)
            return (int)n;
        have += n > 0 ? (size_t)n : 0;
    }
    int rc = kv_offer_decode(payload, sizeof(payload), offer);
    if (rc)
        return rc;
    if (offer->error)
        return -(int)offer->error;
    int count = offer->arena_bytes ? KV_OFFER_FDS_BLOCKS : KV_OFFER_FDS;
    for (int i = 0; i < count; i++)
        fds[i] = t->ops->take_fd(t);
    for (int i = 0; i < count; i++)
        rc = fds[i] < 0 ? -EPROTO : rc;
    for (int i = 0; rc && i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return rc;
}

static int watch_link(struct kv_client *c, struct link *l)
{
    /* Edge-triggered: the bell need not be read, and the socket reports its end once. */
    struct epoll_event bell = {.events = EPOLLIN | EPOLLET, .data.u32 = UINT32_MAX};
    struct epoll_event socket = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET,
                                 .data.u32 = c->link_count};
    if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, l->attachment.client_bell, &bell) ||
        epoll_ctl(c->epoll, EPOLL_CTL_ADD, l->socket->ops->poll_fd(l->socket), &socket))
        return -errno;
    return 0;
}

/* The offer's descriptors become the link's, also on failure. */
static int take_offered(struct link *l, const struct kv_offer *offer,
                        const struct kv_region_shape *shape, const int fds[KV_OFFER_FDS_BLOCKS])
{
    int rc = kv_attachment_take(fds, shape, &l->attachment);
    if (offer->arena_bytes == 0)
        return rc;
    int arena_rc = kv_arena_take(fds[KV_OFFER_FDS], offer->arena_bytes, &l->blocks.arena);
    if (rc || arena_rc)
        return rc ? rc : arena_rc;
    const struct kv_memory heap = kv_heap();
    return kv_extents_create(shape->staging_bytes, STAGED_MAX, &heap, &l->blocks.staged);
}

static void link_destroy(struct link *l)
{
    kv_extents_destroy(l->blocks.staged);
    kv_arena_fini(&l->blocks.arena);
    kv_attachment_fini(&l->attachment);
    rpc_transport_destroy(l->socket);
    free(l);
}

static struct kv_region_shape shape_of(const struct kv_client *c)
{
    return (struct kv_region_shape){.depth = c->options.depth,
                                    .value_max = c->options.value_max,
                                    .staging_bytes = c->options.staging_bytes};
}

/* Connects to daemon `index` and fills in what its offer says. */
static int link_open(struct kv_client *c, uint32_t index, uint64_t until, char why[RPC_WHY_CHARS])
{
    struct rpc_addr addr = {.scheme = RPC_SCHEME_UNIX};
    int rc = kv_socket_path(c->options.socket, index, addr.path);
    if (rc) {
        snprintf(why, RPC_WHY_CHARS, "%s: %s", c->options.socket, strerror(-rc));
        return rc;
    }
    struct link *l = calloc(1, sizeof(*l));
    if (!l)
        return no_memory(why);
    l->attachment = (struct kv_attachment){.memfd = -1, .daemon_bell = -1, .client_bell = -1};
    l->blocks.arena.fd = -1;
    rc = rpc_dial(&addr, NULL, &l->socket, why);
    if (rc) {
        if (rc == -ENOENT || rc == -ECONNREFUSED)
            snprintf(why, RPC_WHY_CHARS, "cannot reach unix:%s: %s; is \"hawser kvd\" running?",
                     addr.path, strerror(-rc));
        free(l);
        return rc;
    }
    const struct kv_region_shape shape = shape_of(c);
    struct kv_offer offer;
    int fds[KV_OFFER_FDS_BLOCKS];
    l->socket->ops->expect_fds(l->socket);
    rc = send_attach(l->socket, &shape);
    if (rc == 0)
        rc = receive_offer(l->socket, until, &offer, fds);
    if (rc == 0)
        rc = take_offered(l, &offer, &shape, fds);
    if (rc == 0)
        rc = offer.index == index ? watch_link(c, l) : -EPROTO;
    if (rc) {
        snprintf(why, RPC_WHY_CHARS, "cannot attach to %s: %s", addr.path, strerror(-rc));
        link_destroy(l);
        return rc;
    }
    kv_port_init(&l->port, l->attachment.map, &shape);
    l->blocks.staging = l->port.region.staging;
    c->ranks = offer.ranks;
    c->daemons = offer.daemons;
    c->links[c->link_count++] = l;
    return 0;
}

int kv_client_open(const struct kv_client_options *options, struct kv_client **out,
                   char why[RPC_WHY_CHARS])
{
    struct kv_client *c = calloc(1, sizeof(*c));
    if (!c)
        return no_memory(why);
    c->options = *options;
    if (c->options.depth == 0)
        c->options.depth = DEPTH_DEFAULT;
    if (c->options.value_max == 0)
        c->options.value_max = KV_VALUE_DEFAULT;
    if (c->options.timeout_ns == 0)
        c->options.timeout_ns = KV_TIMEOUT_DEFAULT_NS;
    if (c->options.timeout_ns > KV_TIMEOUT_MAX_NS)
        c->options.timeout_ns = KV_TIMEOUT_MAX_NS;
    c->next_deadline_ns = HW_NEVER;
    c->daemons = 1;
    hw_wait_init(&c->wait, rpc_spin_budget(options->wait));
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    int rc = c->epoll < 0 ? -errno : 0;
    uint64_t until = hw_now_ns() + c->options.timeout_ns;
    const struct kv_region_shape shape = shape_of(c);
    if (rc == 0 && !kv_shape_ok(&shape))
        rc = -EINVAL;
    if (rc)
        snprintf(why, RPC_WHY_CHARS, "cannot set the client up: %s", strerror(-rc));
    for (uint32_t i = 0; i < c->daemons && rc == 0; i++)
        rc = link_open(c, i, until, why);
    if (rc) {
        kv_client_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void kv_client_close(struct kv_client *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->link_count; i++)
        link_destroy(c->links[i]);
    if (c->epoll >= 0)
        close(c->epoll);
    free(c);
}

/* ---- asking ---- */

/* As kv_client_submit; also gives the request slot. */
static int submit(struct kv_client *c, const struct kv_ask *ask, struct link **link, uint32_t *slot)
{
    bool known = (ask->op >= KV_GET && ask->op < KV_OP_END) || ask->op == KV_BLOCK;
    if (!known || ask->timeout_ns > KV_TIMEOUT_MAX_NS)
        return -EINVAL;
    struct link *l = c->links[kv_place_of(ask->key, c->ranks, c->daemons).daemon];
    if (UNLIKELY(l->lost))
        return -ECONNRESET;
    uint64_t timeout = ask->timeout_ns ? ask->timeout_ns : c->options.timeout_ns;
    struct kv_port_request request = {.op = ask->op,
                                      .key = ask->key,
                                      .value = ask->value,
                                      .value_len = ask->value_len,
                                      .timeout_us = (uint32_t)(timeout / HW_US)};
    uint64_t now = hw_now_ns();
    uint32_t at;
    int rc = kv_port_submit(&l->port, &request, &at);
    if (rc)
        return rc;
    l->slots[at] = (struct slot){.user = ask->user,
                                 .buffer = ask->buffer,
                                 .buffer_len = ask->buffer_len,
                                 .waited_for = true,
                                 .asked_ns = now,
                                 .deadline_ns = now + timeout};
    if (now + timeout < c->next_deadline_ns)
        c->next_deadline_ns = now + timeout;
    l->waited_for++;
    c->waited_for++;
    l->unrung = true;
    *link = l;
    *slot = at;
    return 0;
}

int kv_client_submit(struct kv_client *c, const struct kv_ask *ask)
{
    struct link *l;
    uint32_t slot;
    return submit(c, ask, &l, &slot);
}

static void wake_daemons(struct kv_client *c)
{
    for (uint32_t i = 0; i < c->link_count; i++) {
        struct link *l = c->links[i];
        if (!l->unrung)
            continue;
        l->unrung = false;
        if (kv_port_must_ring(&l->port))
            (void)eventfd_write(l->attachment.daemon_bell, 1);
    }
}

/* ---- answers ---- */

static void end_slot(struct kv_client *c, struct link *l, struct slot *s, enum kv_result result,
                     struct kv_answer *out)
{
    assert(s->waited_for);
    s->waited_for = false;
    l->waited_for--;
    c->waited_for--;
    *out = (struct kv_answer){.user = s->user, .result = result, .asked_ns = s->asked_ns};
}

static void give(const struct kv_port_answer *from, const struct slot *s, struct kv_answer *out)
{
    out->value_len = from->value_len;
    if (!s->buffer || from->value_len == 0)
        return;
    if (from->value_len <= s->buffer_len)
        memcpy(s->buffer, from->value, from->value_len);
    else
        out->result = KV_TOO_LARGE;
}

/* The daemon is gone or broke the rules: wait for nothing more from it. */
static void lose(struct link *l)
{
    l->lost = true;
    l->unrung = false;
}

static int collect_link(struct kv_client *c, struct link *l, struct kv_answer *answers, int max)
{
    int n = 0;
    struct kv_port_answer got;
    while (n < max) {
        int rc = kv_port_take(&l->port, &got);
        if (rc < 0)
            lose(l);
        if (rc <= 0)
            break;
        struct slot *s = &l->slots[got.slot];
        if (s->waited_for) {
            end_slot(c, l, s, got.result, &answers[n]);
            give(&got, s, &answers[n]);
            n++;
        }
        kv_port_free(&l->port, got.slot);
    }
    return n;
}

static int collect(struct kv_client *c, struct kv_answer *answers, int max)
{
    int n = 0;
    for (uint32_t i = 0; i < c->link_count && n < max; i++) {
        struct link *l = c->links[i];
        if (l->port.busy > 0)
            n += collect_link(c, l, answers + n, max - n);
    }
    return n;
}

/* Ends overdue requests, and all requests to a lost daemon. */
static int expire(struct kv_client *c, struct kv_answer *answers, int max, uint64_t now)
{
    int n = 0;
    uint64_t next = HW_NEVER;
    for (uint32_t i = 0; i < c->link_count; i++) {
        struct link *l = c->links[i];
        for (uint32_t k = 0; k < c->options.depth && l->waited_for > 0; k++) {
            struct slot *s = &l->slots[k];
            if (!s->waited_for)
                continue;
            bool over = l->lost || now >= s->deadline_ns;
            if (over && n < max)
                end_slot(c, l, s, l->lost ? KV_PEER_LOST : KV_TIMEOUT, &answers[n++]);
            else if (s->deadline_ns < next)
                next = over ? now : s->deadline_ns;
        }
    }
    c->next_deadline_ns = next;
    return n;
}

static bool any_lost(const struct kv_client *c)
{
    for (uint32_t i = 0; i < c->link_count; i++)
        if (c->links[i]->lost && c->links[i]->waited_for > 0)
            return true;
    return false;
}

/* ---- waiting ---- */

static bool arm_all(struct kv_client *c)
{
    bool ready = false;
    for (uint32_t i = 0; i < c->link_count; i++)
        if (c->links[i]->port.busy > 0)
            ready |= kv_port_arm(&c->links[i]->port);
    return ready;
}

static void disarm_all(struct kv_client *c)
{
    for (uint32_t i = 0; i < c->link_count; i++)
        kv_port_disarm(&c->links[i]->port);
}

static void look_at_sockets(struct kv_client *c, uint64_t timeout_ns)
{
    struct epoll_event events[2 * KV_DAEMONS_MAX];
    int n = hw_epoll_wait(c->epoll, events, (int)ARRAY_LEN(events), timeout_ns);
    for (int i = 0; i < n; i++)
        if (events[i].data.u32 != UINT32_MAX)
            lose(c->links[events[i].data.u32]); /* a byte on the socket would break the rules: the
                                                   same as its end */
}

static void sleep_until(struct kv_client *c, uint64_t until, uint64_t now)
{
    if (!arm_all(c))
        look_at_sockets(c, until == HW_NEVER ? HW_NEVER : until - now);
    disarm_all(c);
}

static uint32_t crowd(const struct kv_client *c)
{
    return atomic_load_explicit(&c->links[0]->port.region.daemon->crowd, memory_order_relaxed);
}

static bool spin_on(struct kv_client *c, uint64_t now)
{
    c->wait.threads = crowd(c);
    return hw_wait_spin(&c->wait, now);
}

int kv_client_wait(struct kv_client *c, struct kv_answer *answers, int max, uint64_t timeout_ns)
{
    uint64_t until = 0;
    wake_daemons(c);
    for (;;) {
        for (int i = 0; i < HW_LOOKS_A_CLOCK; i++) {
            int n = collect(c, answers, max);
            if (n > 0) {
                hw_wait_came(&c->wait);
                return n;
            }
            hw_cpu_relax();
        }
        if (c->waited_for == 0)
            return 0;
        uint64_t now = hw_now_ns();
        if (now >= c->next_deadline_ns || any_lost(c)) {
            int n = expire(c, answers, max, now);
            if (n > 0)
                return n;
        }
        if (until == 0)
            until = timeout_ns > HW_NEVER - now ? HW_NEVER : now + timeout_ns;
        if (now >= until)
            return 0;
        if (!spin_on(c, now))
            sleep_until(c, until < c->next_deadline_ns ? until : c->next_deadline_ns, now);
        else if (++c->rounds % DEATH_LOOKS == 0)
            look_at_sockets(c, 0);
    }
}

/* ---- many together ---- */

static enum kv_result result_of_refusal(int rc)
{
    switch (rc) {
    case -ECONNRESET:
        return KV_PEER_LOST;
    case -EMSGSIZE:
        return KV_TOO_LARGE;
    case -EAGAIN: /* no request slot was free until the deadline */
        return KV_TIMEOUT;
    default:
        return KV_REFUSED;
    }
}

/* Every request slot waits for a late answer: sleeps until one has come. */
static void await_late(struct kv_client *c, uint64_t until)
{
    struct kv_answer none;
    uint64_t now = hw_now_ns();
    if (now < until)
        sleep_until(c, until, now);
    for (uint32_t i = 0; i < c->link_count; i++)
        (void)collect_link(c, c->links[i], &none, 1); /* only frees slots */
}

/* Takes answers and stores each at its request's place. */
static uint32_t file_answers(struct kv_client *c, struct kv_answer *answers)
{
    struct kv_answer got[16];
    int n = kv_client_wait(c, got, (int)ARRAY_LEN(got), HW_NEVER);
    for (int i = 0; i < n; i++)
        answers[(uintptr_t)got[i].user] = got[i];
    return (uint32_t)n;
}

int kv_client_batch(struct kv_client *c, const struct kv_ask *asks, struct kv_answer *answers,
                    uint32_t count)
{
    if (c->waited_for > 0)
        return -EBUSY;
    uint64_t start = hw_now_ns();
    uint32_t done = 0;
    for (uint32_t i = 0; i < count;) {
        struct kv_ask ask = asks[i];
        ask.user = (void *)(uintptr_t)i;
        int rc = kv_client_submit(c, &ask);
        uint64_t until = start + (ask.timeout_ns ? ask.timeout_ns : c->options.timeout_ns);
        if (rc == -EAGAIN && c->waited_for > 0) {
            done += file_answers(c, answers);
            continue;
        }
        if (rc == -EAGAIN && hw_now_ns() < until) {
            await_late(c, until);
            continue;
        }
        if (rc) {
            answers[i] = (struct kv_answer){.result = result_of_refusal(rc), .asked_ns = start};
            done++;
        }
        i++;
    }
    while (done < count)
        done += file_answers(c, answers);
    for (uint32_t i = 0; i < count; i++)
        answers[i].user = asks[i].user;
    return 0;
}

/* ---- state ---- */

uint64_t kv_client_tenant(const struct kv_client *c)
{
    return c->options.tenant;
}

int kv_client_status(const struct kv_client *c)
{
    for (uint32_t i = 0; i < c->link_count; i++)
        if (c->links[i]->lost)
            return -ECONNRESET;
    return 0;
}

uint32_t kv_client_in_flight(const struct kv_client *c)
{
    return c->waited_for;
}

uint32_t kv_client_ranks(const struct kv_client *c)
{
    return c->ranks;
}

uint32_t kv_client_daemons(const struct kv_client *c)
{
    return c->daemons;
}

uint32_t kv_client_peers_up(const struct kv_client *c)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < c->link_count; i++) {
        struct kv_daemon_line *line = c->links[i]->port.region.daemon;
        uint32_t up = atomic_load_explicit(&line->peers_up, memory_order_relaxed);
        least = up < least ? up : least;
    }
    return least;
}

/* ---- for blocks.c ---- */

struct kv_block_link *kv_client_block_link(struct kv_client *c, struct kv_key key)
{
    return &c->links[kv_place_of(key, c->ranks, c->daemons).daemon]->blocks;
}

uint32_t kv_client_value_max(const struct kv_client *c)
{
    return c->options.value_max;
}

enum kv_result kv_client_block_ask(struct kv_client *c, struct kv_key key, const void *payload,
                                   uint32_t len, void *answer, uint32_t size, uint32_t *answer_len,
                                   uint64_t *asked_ns)
{
    struct kv_ask ask = {.op = KV_BLOCK,
                         .key = key,
                         .value = payload,
                         .value_len = len,
                         .buffer = answer,
                         .buffer_len = size};
    struct kv_answer end;
    *asked_ns = hw_now_ns();
    if (kv_client_batch(c, &ask, &end, 1))
        return KV_REFUSED;
    if (answer_len && end.result == KV_OK)
        *answer_len = end.value_len;
    return end.result;
}

bool kv_client_block_tell(struct kv_client *c, struct kv_key key, const void *payload, uint32_t len)
{
    struct kv_ask ask = {.op = KV_BLOCK, .key = key, .value = payload, .value_len = len};
    struct kv_answer none;
    struct link *l;
    uint32_t slot;
    if (submit(c, &ask, &l, &slot))
        return false;
    end_slot(c, l, &l->slots[slot], KV_OK, &none); /* its answer is dropped like a late one */
    wake_daemons(c);
    return true;
}
