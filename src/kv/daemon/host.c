#include "kv/daemon/host.h"

#include "base/log.h"
#include "kv/cluster/dialer.h"
#include "kv/common/attach.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    EVENTS_A_LOOK = 64,
    ACCEPTS_A_LOOK = 16 /* many new connections must not starve attached clients */
};

static const uint64_t look_every_ns = 50 * HW_US; /* looks at bells and sockets while busy */
static const uint64_t sweep_every_ns = 500 * HW_MS;
static const uint64_t unstage_every_ns = 10 * HW_MS; /* while there is more of it */
static const uint64_t unstage_ns = 200 * HW_US;      /* at most: no turn is longer */
static const uint64_t idle_ns_default = 5 * HW_SEC;
static const uint64_t rare_heartbeat_ns = KV_RARE_HEARTBEAT_SECONDS * HW_SEC;
static const uint64_t accept_pause_ns = 100 * HW_MS; /* when descriptors run out */

/* What an epoll event points at. */
struct watched {
    enum {
        WATCH_STOP,
        WATCH_ATTACH, /* the socket that clients attach to */
        WATCH_LISTEN, /* the socket that other daemons dial */
        WATCH_DIALER,
        WATCH_VIEW,
        WATCH_CALLER, /* nothing to do: the next turn polls it */
        WATCH_SOCKET,
        WATCH_BELL
    } kind;
};

struct client {
    struct watched socket_watch, bell_watch;
    struct client *next, *prev;
    struct rpc_transport *socket;
    struct kv_client_slot *slot; /* NULL: not attached yet */
    struct kv_attachment attachment;
    uint64_t since_ns;
    uint8_t request[KV_ATTACH_BYTES];
    size_t received;
    bool leaves;
};

struct kv_host {
    struct kv_host_options options;
    struct kv_daemon *daemon;
    pthread_mutex_t state;    /* guards the daemon: the host's thread has it, except in its sleep */
    pthread_mutex_t next;     /* of those who wait for it: whoever has it gets `state` next */
    _Atomic uint32_t waiting; /* visitors; so the host's thread lets them in between two turns */
    struct hw_counter_set counters;
    int epoll, stop_fd, view_fd;
    pthread_mutex_t view_lock; /* guards next_view and view_due */
    struct kv_view next_view;  /* the last one set */
    bool view_due;             /* the daemon has an older one */
    struct kv_arena arena;
    struct rpc_listener *attach, *listen;
    struct kv_dialer *dialer;
    struct rpc_addr addrs[KV_RANKS_MAX]; /* of the daemon with our index at each rank */
    struct hw_wait wait;
    struct client *clients;
    uint32_t attaching;
    bool clients_leave, stopped, resting;
    uint64_t looked_ns, sweep_at_ns, rest_until_ns;
    uint64_t broken_seen; /* the daemon's counter at the last sweep */
    uint64_t peers_seen;  /* peers that were up when the crowd was counted */
    struct watched watch_stop, watch_attach, watch_listen, watch_dialer, watch_view, watch_caller;
};

int kv_address_of(const struct rpc_addr *base, uint32_t index, struct rpc_addr *out)
{
    struct rpc_addr addr = *base;
    if (base->scheme == RPC_SCHEME_UNIX || base->scheme == RPC_SCHEME_SHM) {
        int rc = kv_socket_path(base->path, index, addr.path);
        if (rc)
            return rc;
    } else if (base->port) {
        if (base->port + index > UINT16_MAX)
            return -ERANGE;
        addr.port = (uint16_t)(base->port + index);
    }
    *out = addr;
    return 0;
}

static int watch(struct kv_host *h, int op, int fd, uint32_t events, struct watched *w)
{
    struct epoll_event event = {.events = events, .data.ptr = w};
    return epoll_ctl(h->epoll, op, fd, &event) ? -errno : 0;
}

/* ---- local clients ---- */

static void client_ring(void *user)
{
    (void)eventfd_write(((struct client *)user)->attachment.client_bell, 1);
}

static void update_crowd(struct kv_host *h)
{
    uint32_t hosts = 1 + kv_daemon_local_peers(h->daemon);
    uint32_t clients = (uint32_t)hw_counter_load(&kv_daemon_stats(h->daemon)->clients);
    uint32_t crowd = hosts * (h->options.daemons + clients);
    h->peers_seen = hw_counter_load(&kv_daemon_stats(h->daemon)->peers_up);
    h->wait.threads = crowd;
    kv_daemon_set_crowd(h->daemon, crowd);
}

/* Later: events of this look may still point at the client. */
static void client_leave(struct kv_host *h, struct client *c)
{
    c->leaves = true;
    h->clients_leave = true;
}

static void client_destroy(struct kv_host *h, struct client *c)
{
    if (c->slot)
        kv_daemon_detach(h->daemon, c->slot);
    else
        h->attaching--;
    *(c->prev ? &c->prev->next : &h->clients) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    /* The client has the same eventfd: closing our descriptor alone would leave it in the epoll
     * set. */
    if (c->slot)
        (void)watch(h, EPOLL_CTL_DEL, c->attachment.daemon_bell, 0, &c->bell_watch);
    kv_attachment_fini(&c->attachment);
    rpc_transport_destroy(c->socket);
    free(c);
}

static void clients_clear(struct kv_host *h)
{
    h->clients_leave = false;
    for (struct client *c = h->clients, *next; c; c = next) {
        next = c->next;
        if (c->leaves)
            client_destroy(h, c);
    }
    update_crowd(h);
}

static struct kv_offer offer_of(const struct kv_host *h, int error,
                                const struct kv_region_shape *shape)
{
    return (struct kv_offer){.error = (uint32_t)-error,
                             .shape = *shape,
                             .ranks = h->options.ranks,
                             .daemons = h->options.daemons,
                             .rank = h->options.rank,
                             .index = h->options.index,
                             .arena_bytes = shape->staging_bytes ? h->arena.bytes : 0};
}

static int send_offer(struct kv_host *h, struct client *c, const struct kv_offer *offer)
{
    uint8_t payload[KV_OFFER_BYTES];
    kv_offer_encode(offer, payload);
    struct iovec iov = {payload, sizeof(payload)};
    const struct kv_attachment *a = &c->attachment;
    const int fds[KV_OFFER_FDS_BLOCKS] = {a->memfd, a->daemon_bell, a->client_bell, h->arena.fd};
    int fd_count = offer->arena_bytes ? KV_OFFER_FDS_BLOCKS : KV_OFFER_FDS;
    const struct rpc_transport_ops *ops = c->socket->ops;
    ssize_t n = offer->error ? ops->send(c->socket, &iov, 1)
                             : ops->send_fds(c->socket, &iov, 1, fds, fd_count);
    return n == sizeof(payload) ? 0 : -EPROTO;
}

/* Gives the client its region and its slot. */
static int attach_client(struct kv_host *h, struct client *c, const struct kv_region_shape *shape)
{
    struct kv_client_slot *slot;
    int rc = kv_attachment_make(shape, &c->attachment);
    if (rc)
        return rc;
    rc = kv_daemon_attach(h->daemon, c->attachment.map, shape, client_ring, c, &slot);
    if (rc)
        return rc;
    /* Edge-triggered: the bell need not be read. */
    rc = watch(h, EPOLL_CTL_ADD, c->attachment.daemon_bell, EPOLLIN | EPOLLET, &c->bell_watch);
    if (rc) {
        kv_daemon_detach(h->daemon, slot);
        return rc;
    }
    c->slot = slot;
    h->attaching--;
    return 0;
}

static void on_attach_request(struct kv_host *h, struct client *c)
{
    struct kv_region_shape shape = {0};
    int rc = kv_attach_decode(c->request, sizeof(c->request), &shape);
    if (rc == 0)
        rc = attach_client(h, c, &shape);
    struct kv_offer offer = offer_of(h, rc, &shape);
    offer.generation = rc ? 0 : kv_client_slot_generation(c->slot);
    if (send_offer(h, c, &offer) || rc) {
        if (rc)
            hw_warn(HW_CAT_KV, "%s: not attached: %s", c->socket->peer, strerror(-rc));
        client_leave(h, c);
        return;
    }
    kv_attachment_close_memfd(&c->attachment);
    hw_debug(HW_CAT_KV, "%s: attached, depth %u", c->socket->peer, shape.depth);
    update_crowd(h);
}

/* Reads the attach request.  Once the client is attached, any byte ends the connection, as its
 * close does. */
static void client_speaks(struct kv_host *h, struct client *c)
{
    if (c->slot) {
        hw_debug(HW_CAT_KV, "%s: left", c->socket->peer);
        client_leave(h, c);
        return;
    }
    struct iovec iov = {c->request + c->received, sizeof(c->request) - c->received};
    ssize_t n = c->socket->ops->recv(c->socket, &iov, 1, 0);
    if (n == -EAGAIN)
        return;
    if (n < 0) {
        client_leave(h, c);
        return;
    }
    c->received += (size_t)n;
    if (c->received == sizeof(c->request))
        on_attach_request(h, c);
}

static int client_create(struct kv_host *h, struct rpc_transport *socket)
{
    struct client *c = calloc(1, sizeof(*c));
    int rc = c ? 0 : -ENOMEM;
    if (c) {
        c->socket_watch.kind = WATCH_SOCKET;
        c->bell_watch.kind = WATCH_BELL;
        rc = watch(h, EPOLL_CTL_ADD, socket->ops->poll_fd(socket), EPOLLIN, &c->socket_watch);
    }
    if (rc) {
        free(c);
        rpc_transport_destroy(socket);
        return rc;
    }
    c->socket = socket;
    c->attachment = (struct kv_attachment){.memfd = -1, .daemon_bell = -1, .client_bell = -1};
    c->since_ns = hw_now_ns();
    c->next = h->clients;
    if (h->clients)
        h->clients->prev = c;
    h->clients = c;
    h->attaching++;
    return 0;
}

/* ---- connections ---- */

/* In a mesh connections tell who has gone.  Of many members etcd tells it, and a request's
 * deadline: pings on thousands of connections would cost more than they tell. */
static uint64_t heartbeat_of(const struct kv_host *h)
{
    bool many = h->options.member && kv_daemon_view(h->daemon)->count > KV_MESH_MAX;
    return many && h->options.heartbeat_ns < rare_heartbeat_ns ? rare_heartbeat_ns
                                                               : h->options.heartbeat_ns;
}

static struct rpc_config ep_config(const struct kv_host *h, bool accepting)
{
    return (struct rpc_config){
        .accepting = accepting,
        .security = accepting ? h->options.listen_security : h->options.dial_security,
        .heartbeat_ns = heartbeat_of(h),
        .flush = h->options.flush,
        .wait = h->options.wait,
        .name = "hawser kvd",
    };
}

static int peer_create(struct kv_host *h, struct rpc_transport *t, int rank)
{
    struct rpc_config config = ep_config(h, rank < 0);
    struct rpc_ep *ep;
    int rc = rpc_ep_create(t, &config, &ep);
    if (rc)
        return rc;
    rc = watch(h, EPOLL_CTL_ADD, t->ops->poll_fd(t), EPOLLIN, &h->watch_caller);
    if (rc) {
        rpc_ep_destroy(ep);
        return rc;
    }
    kv_daemon_adopt(h->daemon, ep, rank);
    return 0;
}

static void listeners_rest(struct kv_host *h, bool rest)
{
    uint32_t events = rest ? 0 : EPOLLIN;
    (void)watch(h, EPOLL_CTL_MOD, h->attach->ops->poll_fd(h->attach), events, &h->watch_attach);
    if (h->listen)
        (void)watch(h, EPOLL_CTL_MOD, h->listen->ops->poll_fd(h->listen), events, &h->watch_listen);
    h->resting = rest;
    h->rest_until_ns = hw_now_ns() + accept_pause_ns;
}

static void accept_callers(struct kv_host *h, struct rpc_listener *l, bool local)
{
    for (int i = 0; i < ACCEPTS_A_LOOK; i++) {
        if (local && h->attaching >= KV_ATTACHING_MAX) {
            listeners_rest(h, true);
            return;
        }
        struct rpc_transport *t;
        int rc = l->ops->accept(l, &t);
        if (rc == -EAGAIN)
            return;
        if (rc == 0)
            rc = local ? client_create(h, t) : peer_create(h, t, -1);
        if (rc == 0)
            continue;
        hw_warn(HW_CAT_KV, "%s: a caller was turned away: %s", l->address, hw_strerror(rc));
        if (rc == -EMFILE || rc == -ENFILE || rc == -ENOBUFS || rc == -ENOMEM) {
            listeners_rest(h,
                           true); /* the connection stays in the listen queue: do not spin on it */
            return;
        }
    }
}

static void dials_ended(struct kv_host *h)
{
    uint32_t rank;
    struct rpc_transport *t;
    while (kv_dialer_take(h->dialer, &rank, &t))
        if (!t || peer_create(h, t, (int)rank))
            kv_daemon_dial_failed(h->daemon, (int)rank);
}

/* Where the daemon with our index is at a member. */
static int member_address(const struct kv_host *h, int peer, struct rpc_addr *out)
{
    char why[RPC_WHY_CHARS];
    struct rpc_addr base;
    int rc = rpc_addr_parse(kv_daemon_peer_address(h->daemon, peer), &base, why);
    return rc ? rc : kv_address_of(&base, h->options.index, out);
}

static void start_dials(struct kv_host *h)
{
    int rank;
    while (h->dialer && (rank = kv_daemon_dial_next(h->daemon)) >= 0) {
        struct rpc_addr addr;
        int rc = 0;
        if (h->options.member)
            rc = member_address(h, rank, &addr);
        else
            addr = h->addrs[rank];
        if (rc || kv_dialer_ask(h->dialer, (uint32_t)rank, &addr))
            kv_daemon_dial_failed(h->daemon, rank);
    }
}

/* ---- views ---- */

int kv_host_set_view(struct kv_host *h, const struct kv_view *view)
{
    if (!h->options.member)
        return -EINVAL;
    pthread_mutex_lock(&h->view_lock);
    bool newer = view->epoch > h->next_view.epoch;
    if (newer) {
        kv_view_copy(&h->next_view, view);
        h->view_due = true;
    }
    pthread_mutex_unlock(&h->view_lock);
    if (!newer)
        return -ESTALE;
    (void)eventfd_write(h->view_fd, 1);
    return 0;
}

static void take_view(struct kv_host *h)
{
    pthread_mutex_lock(&h->view_lock);
    if (h->view_due)
        kv_daemon_set_view(h->daemon, &h->next_view);
    h->view_due = false;
    pthread_mutex_unlock(&h->view_lock);
}

/* ---- visitors ---- */

/* Without `next` the host's thread would have `state` again before a visitor wakes up. */
static void take_state(struct kv_host *h)
{
    pthread_mutex_lock(&h->next);
    pthread_mutex_lock(&h->state);
    pthread_mutex_unlock(&h->next);
}

void kv_host_enter(struct kv_host *h)
{
    atomic_fetch_add_explicit(&h->waiting, 1, memory_order_relaxed);
    take_state(h);
    atomic_fetch_sub_explicit(&h->waiting, 1, memory_order_relaxed);
    kv_daemon_visit(h->daemon);
}

void kv_host_leave(struct kv_host *h)
{
    kv_daemon_visited(h->daemon);
    pthread_mutex_unlock(&h->state);
}

struct kv_daemon *kv_host_daemon(struct kv_host *h)
{
    return h->daemon;
}

static void let_visitors_in(struct kv_host *h)
{
    if (atomic_load_explicit(&h->waiting, memory_order_relaxed) == 0)
        return;
    pthread_mutex_unlock(&h->state);
    take_state(h);
}

/* ---- the loop ---- */

static void handle(struct kv_host *h, struct watched *w)
{
    switch (w->kind) {
    case WATCH_STOP:
        h->stopped = true;
        break;
    case WATCH_ATTACH:
        accept_callers(h, h->attach, true);
        break;
    case WATCH_LISTEN:
        accept_callers(h, h->listen, false);
        break;
    case WATCH_DIALER:
        dials_ended(h);
        break;
    case WATCH_VIEW:
        take_view(h);
        break;
    case WATCH_CALLER:
        break;
    case WATCH_SOCKET:
        client_speaks(h, CONTAINER_OF(w, struct client, socket_watch));
        break;
    case WATCH_BELL: {
        struct client *c = CONTAINER_OF(w, struct client, bell_watch);
        if (c->slot && !c->leaves)
            kv_client_slot_wake(h->daemon, c->slot);
        break;
    }
    }
}

/* Gives memory of idle clients' staging areas back to the kernel.  False: there is more. */
static bool unstage(struct kv_host *h, uint64_t now)
{
    uint64_t idle_ns = h->options.idle_ns ? h->options.idle_ns : idle_ns_default;
    uint32_t len;
    for (struct client *c = kv_daemon_staging(h->daemon) ? h->clients : NULL; c; c = c->next) {
        uint8_t *at;
        while (c->slot && (at = kv_client_slot_unstage(c->slot, now - idle_ns, &len))) {
            (void)madvise(at, len, MADV_REMOVE);
            if (hw_now_ns() - now > unstage_ns)
                return false;
        }
    }
    return true;
}

/* Drops silent connections and clients that broke the rules. */
static void sweep(struct kv_host *h, uint64_t now)
{
    h->sweep_at_ns = now + (unstage(h, now) ? sweep_every_ns : unstage_every_ns);
    for (struct client *c = h->clients; c; c = c->next)
        if (c->slot ? kv_client_slot_broken(c->slot) : now - c->since_ns >= KV_ATTACH_NS)
            client_leave(h, c);
    if (h->resting && now >= h->rest_until_ns)
        listeners_rest(h, false);
    update_crowd(h);
}

/* Whether a client broke the rules since the last call: it is dropped at once. */
static bool client_broke(struct kv_host *h)
{
    uint64_t broken = hw_counter_load(&kv_daemon_stats(h->daemon)->broken);
    bool any = broken != h->broken_seen;
    h->broken_seen = broken;
    return any;
}

static void look(struct kv_host *h, uint64_t timeout_ns)
{
    struct epoll_event events[EVENTS_A_LOOK];
    if (timeout_ns)
        pthread_mutex_unlock(&h->state);
    int n = hw_epoll_wait(h->epoll, events, EVENTS_A_LOOK, timeout_ns);
    if (timeout_ns)
        take_state(h);
    for (int i = 0; i < n; i++)
        if (events[i].data.u64 & 1) /* see watch_peer */
            kv_daemon_wake(h->daemon, (uint32_t)(events[i].data.u64 >> 1));
        else
            handle(h, events[i].data.ptr);
    h->looked_ns = hw_now_ns();
    if (h->looked_ns >= h->sweep_at_ns || client_broke(h))
        sweep(h, h->looked_ns);
    if (h->clients_leave)
        clients_clear(h);
    if (hw_counter_load(&kv_daemon_stats(h->daemon)->peers_up) != h->peers_seen)
        update_crowd(h);
    start_dials(h);
}

static void sleep_a_while(struct kv_host *h)
{
    if (kv_daemon_arm(h->daemon))
        return;
    if (hw_counter_load(&kv_daemon_stats(h->daemon)->broken) != h->broken_seen) {
        look(h, 0);
        return;
    }
    uint64_t now = hw_now_ns(), tick = kv_daemon_next_tick(h->daemon);
    bool to_sweep = h->attaching > 0 || h->resting || h->listen || kv_daemon_staging(h->daemon);
    if (to_sweep && h->sweep_at_ns < tick)
        tick = h->sweep_at_ns;
    hw_counter_bump(&kv_daemon_count(h->daemon)->sleeps, 1);
    look(h, tick == HW_NEVER ? HW_NEVER : tick > now ? tick - now : 0);
}

void kv_host_run(struct kv_host *h)
{
    hw_wait_init(&h->wait, rpc_spin_budget(h->options.wait));
    take_state(h);
    update_crowd(h);
    while (!h->stopped) {
        let_visitors_in(h);
        bool useful = kv_daemon_turn(h->daemon) > 0;
        uint64_t now = kv_daemon_time(h->daemon);
        if (useful)
            hw_wait_came(&h->wait);
        if (!useful && !hw_wait_spin(&h->wait, now))
            sleep_a_while(h);
        else if (now - h->looked_ns >= look_every_ns)
            look(h, 0);
        else if (!useful)
            hw_cpu_relax();
    }
    pthread_mutex_unlock(&h->state);
}

void kv_host_stop(struct kv_host *h)
{
    (void)eventfd_write(h->stop_fd, 1);
}

/* ---- create and destroy ---- */

/* Events of peers have their number, with an odd end: a peer ends without the host. */
static void watch_peer(void *user, struct rpc_ep *ep, uint32_t peer, bool to_send)
{
    struct kv_host *h = user;
    struct rpc_transport *t = rpc_ep_transport(ep);
    struct epoll_event event = {.events = EPOLLIN | (to_send ? EPOLLOUT : 0),
                                .data.u64 = (uint64_t)peer << 1 | 1};
    (void)epoll_ctl(h->epoll, EPOLL_CTL_MOD, t->ops->poll_fd(t), &event);
}

/* What our clock lacks to be the time since 1970. */
static uint64_t wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * HW_SEC + (uint64_t)t.tv_nsec - hw_now_ns();
}

static int create_daemon(struct kv_host *h)
{
    const struct kv_host_options *o = &h->options;
    struct kv_daemon_config config = {
        .rank = o->rank,
        .ranks = o->ranks,
        .index = o->index,
        .daemons = o->daemons,
        .member = o->member ? kv_member_id(o->member) : 0,
        .fixed_members = o->fixed_members,
        .copies = o->copies,
        .min_copies = o->min_copies,
        .store_bytes = o->store_bytes,
        .store_entries = o->store_entries,
        .max_clients = o->max_clients,
        .blocks = o->blocks,
        .seed = o->seed,
        .probe = o->probe,
        .watch = watch_peer,
        .user = h,
    };
    if (config.seed == 0 && getrandom(&config.seed, sizeof(config.seed), 0) != sizeof(config.seed))
        return -EIO;
    int rc = o->arena_bytes ? kv_arena_make(o->arena_bytes, &h->arena) : 0;
    if (rc)
        return rc;
    config.blocks.arena = h->arena.map;
    config.blocks.arena_bytes = h->arena.bytes;
    config.blocks.wall_ns = wall_ns();
    rc = kv_daemon_create(&config, &h->daemon);
    if (rc)
        return rc;
    char index[16];
    snprintf(index, sizeof(index), "%u", o->index);
    h->counters = (struct hw_counter_set){.defs = kv_stats_defs,
                                          .values = (_Atomic uint64_t *)kv_daemon_count(h->daemon),
                                          .count = KV_METRICS_COUNT};
    (void)hw_counter_set_label(&h->counters, "daemon", index);
    return hw_counter_set_register(&h->counters);
}

static int listen_attach(struct kv_host *h, char why[RPC_WHY_CHARS])
{
    struct rpc_addr addr = {.scheme = RPC_SCHEME_UNIX};
    int rc = kv_socket_path(h->options.socket, h->options.index, addr.path);
    if (rc) {
        snprintf(why, RPC_WHY_CHARS, "%.80s...: a socket's path has at most %d characters",
                 h->options.socket, KV_SOCKET_CHARS - 1);
        return rc;
    }
    rc = rpc_listen(&addr, NULL, &h->attach, why);
    if (rc == 0)
        rc = watch(h, EPOLL_CTL_ADD, h->attach->ops->poll_fd(h->attach), EPOLLIN, &h->watch_attach);
    return rc;
}

static int listen_and_dial(struct kv_host *h, char why[RPC_WHY_CHARS])
{
    const struct kv_host_options *o = &h->options;
    for (uint32_t i = 0; i < o->ranks; i++) {
        int rc = kv_address_of(&o->addrs[i], o->index, &h->addrs[i]);
        if (rc) {
            snprintf(why, RPC_WHY_CHARS, "rank %u has no address for daemon %u: %s", i, o->index,
                     strerror(-rc));
            return rc;
        }
    }
    struct rpc_net_options net = {.security = o->listen_security};
    int rc = rpc_listen(&h->addrs[o->rank], &net, &h->listen, why);
    if (rc == 0)
        rc = watch(h, EPOLL_CTL_ADD, h->listen->ops->poll_fd(h->listen), EPOLLIN, &h->watch_listen);
    if (rc || (o->rank == 0 && !o->member))
        return rc; /* all other ranks dial rank 0 */
    net.security = o->dial_security;
    rc = kv_dialer_create(&net, &h->dialer);
    if (rc == 0)
        rc = watch(h, EPOLL_CTL_ADD, kv_dialer_fd(h->dialer), EPOLLIN, &h->watch_dialer);
    return rc;
}

static int make_bells(struct kv_host *h)
{
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    h->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->view_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->epoll < 0 || h->stop_fd < 0 || h->view_fd < 0)
        return -errno;
    int rc = watch(h, EPOLL_CTL_ADD, h->stop_fd, EPOLLIN, &h->watch_stop);
    /* Edges: the bell need not be read. */
    return rc ? rc : watch(h, EPOLL_CTL_ADD, h->view_fd, EPOLLIN | EPOLLET, &h->watch_view);
}

int kv_host_create(const struct kv_host_options *options, struct kv_host **out,
                   char why[RPC_WHY_CHARS])
{
    struct kv_host *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->options = *options;
    h->arena.fd = -1;
    h->watch_stop.kind = WATCH_STOP;
    h->watch_attach.kind = WATCH_ATTACH;
    h->watch_listen.kind = WATCH_LISTEN;
    h->watch_dialer.kind = WATCH_DIALER;
    h->watch_view.kind = WATCH_VIEW;
    h->watch_caller.kind = WATCH_CALLER;
    why[0] = '\0';
    pthread_mutex_init(&h->view_lock, NULL);
    pthread_mutex_init(&h->state, NULL);
    pthread_mutex_init(&h->next, NULL);
    int rc = make_bells(h);
    if (rc == 0)
        rc = create_daemon(h);
    if (rc == 0)
        rc = listen_attach(h, why);
    if (rc == 0 && (options->ranks > 1 || options->member))
        rc = listen_and_dial(h, why);
    if (rc) {
        if (!why[0])
            snprintf(why, RPC_WHY_CHARS, "cannot start the daemon: %s", strerror(-rc));
        kv_host_destroy(h);
        return rc;
    }
    *out = h;
    return 0;
}

void kv_host_destroy(struct kv_host *h)
{
    if (!h)
        return;
    kv_dialer_destroy(h->dialer);
    while (h->clients)
        client_destroy(h, h->clients);
    if (h->daemon) {
        hw_counter_set_unregister(&h->counters);
        kv_daemon_destroy(h->daemon);
    }
    kv_arena_fini(&h->arena);
    rpc_listener_destroy(h->listen);
    rpc_listener_destroy(h->attach);
    if (h->epoll >= 0)
        close(h->epoll);
    if (h->stop_fd >= 0)
        close(h->stop_fd);
    if (h->view_fd >= 0)
        close(h->view_fd);
    pthread_mutex_destroy(&h->next);
    pthread_mutex_destroy(&h->state);
    pthread_mutex_destroy(&h->view_lock);
    free(h);
}

const struct kv_stats *kv_host_stats(const struct kv_host *h)
{
    return kv_daemon_stats(h->daemon);
}

uint8_t *kv_host_arena(struct kv_host *h)
{
    return h->arena.map;
}

const char *kv_host_address(const struct kv_host *h)
{
    return h->listen ? h->listen->address : "";
}
