#include "rpc/server.h"

#include "base/log.h"
#include "base/looks.h"
#include "rpc/callers.h"
#include "rpc/handover.h"
#include "rpc/methods.h"
#include "rpc/resume/resume.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    EVENTS_A_TURN = 64,
    ACCEPTS_A_TURN = 16, /* a flood of callers must not starve those who are served */
    LOOKS_A_STALL = 4
};

static const uint64_t stalled_default_ns = 10 * HW_SEC;
static const uint64_t mute_default_ns = 30 * HW_SEC; /* a client dials several, each within 4 s */
static const uint64_t linger_ns = HW_SEC;            /* for a refusal to be read */
static const uint64_t sweep_at_most_ns = 50 * HW_MS; /* how late a deadline may be noticed */
static const uint64_t scarce_every_ns = 10 * HW_SEC;
static const uint64_t accept_pause_ns = 100 * HW_MS; /* when descriptors run out */

enum conn_state { CONN_HANDSHAKE, CONN_OPEN, CONN_LINGER };

struct conn {
    struct conn *next, *prev;
    struct rpc_ep *ep;
    enum conn_state state;
    int fd;                        /* that epoll watches; -1: it is cut */
    unsigned events;               /* what epoll watches for */
    uint64_t since_ns;             /* of this state */
    uint64_t bytes_sent, taken_ns; /* that the peer took, and when, by the server's looks */
    bool told;                     /* `opened` was called and accepted it */
    bool detached;                 /* another process has it */
    bool offered;                  /* it may resume, with the key */
    struct rpc_resume_key key;
    /* It takes the place of a connection that was cut, by this call. */
    struct conn *heir_of;
    uint32_t resume_call;
    uint64_t resume_received;
};

/* What an epoll event points at. */
struct watched {
    enum { WATCH_STOP, WATCH_LISTENER, WATCH_OTHER, WATCH_CONN } kind;
    void *object;
};

struct other {
    void (*ready)(void *user);
    void *user;
};

struct rpc_server {
    struct rpc_server_options options;
    int epoll, stop_fd;
    struct rpc_listener *listeners[RPC_SERVER_LISTENERS_MAX];
    int listener_count;
    struct other others[RPC_SERVER_WATCHES_MAX];
    int other_count;
    uint64_t accept_again_ns; /* listeners rest until then; 0: they do not */
    struct conn *first, *last;
    uint32_t open, handshakes, lingering;
    uint32_t away;    /* detached, not yet returned */
    uint32_t offered; /* of those that are open */
    uint64_t offers;  /* ever: names of sessions */
    uint64_t sweep_at_ns;
    struct hw_looks looks;   /* for peers that take nothing */
    uint64_t scarce_said_ns; /* when a want of descriptors or memory was last logged; 0: never */
    bool stopped;
    char full[80]; /* what a client is told that is one too many */
};

/* The epoll tag: an index for listeners and, behind theirs, for other descriptors; an address for
 * connections; 0 for the stop bell. */
static struct watched watched_of(struct rpc_server *s, uint64_t tag)
{
    if (tag == 0)
        return (struct watched){WATCH_STOP, NULL};
    if (tag <= RPC_SERVER_LISTENERS_MAX)
        return (struct watched){WATCH_LISTENER, s->listeners[tag - 1]};
    if (tag <= RPC_SERVER_LISTENERS_MAX + RPC_SERVER_WATCHES_MAX)
        return (struct watched){WATCH_OTHER, &s->others[tag - RPC_SERVER_LISTENERS_MAX - 1]};
    return (struct watched){WATCH_CONN, (void *)(uintptr_t)tag};
}

static int watch(struct rpc_server *s, int op, int fd, uint32_t events, uint64_t tag)
{
    struct epoll_event event = {.events = events, .data.u64 = tag};
    return epoll_ctl(s->epoll, op, fd, &event) ? -errno : 0;
}

int rpc_server_create(const struct rpc_server_options *options, struct rpc_server **out)
{
    struct rpc_server *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->options = *options;
    s->options.config.accepting = true;
    if (s->options.max_clients == 0)
        s->options.max_clients = RPC_SERVER_CLIENTS_DEFAULT;
    if (s->options.stalled_ns == 0)
        s->options.stalled_ns = stalled_default_ns;
    if (s->options.mute_ns == 0)
        s->options.mute_ns = mute_default_ns;
    hw_looks_init(&s->looks, s->options.stalled_ns / LOOKS_A_STALL, hw_now_ns());
    snprintf(s->full, sizeof s->full, "the server has its limit of %u clients (--max-clients)",
             s->options.max_clients);
    s->stop_fd = -1;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll >= 0)
        s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = s->stop_fd < 0 ? -errno : watch(s, EPOLL_CTL_ADD, s->stop_fd, EPOLLIN, 0);
    if (rc) {
        if (s->stop_fd >= 0)
            close(s->stop_fd);
        if (s->epoll >= 0)
            close(s->epoll);
        free(s);
        return rc;
    }
    *out = s;
    return 0;
}

static uint32_t *conns_in(struct rpc_server *s, enum conn_state state)
{
    return state == CONN_OPEN ? &s->open : state == CONN_LINGER ? &s->lingering : &s->handshakes;
}

static void conn_unlink(struct rpc_server *s, struct conn *c)
{
    (*conns_in(s, c->state))--;
    s->offered -= c->offered;
    *(c->prev ? &c->prev->next : &s->first) = c->next;
    *(c->next ? &c->next->prev : &s->last) = c->prev;
    if (!s->first && s->options.until_empty)
        rpc_server_stop(s);
}

static void tell_closed(struct rpc_server *s, struct conn *c, int status)
{
    if (c->told && s->options.ops->closed)
        s->options.ops->closed(s->options.user, c->ep, status);
}

static void conn_remove(struct rpc_server *s, struct conn *c)
{
    conn_unlink(s, c);
    tell_closed(s, c, rpc_ep_status(c->ep));
    rpc_ep_destroy(c->ep); /* closes the descriptor, which leaves epoll by itself */
    free(c);
}

/* The descriptor stays open in the other process, so epoll must be told. */
static void conn_abandon(struct rpc_server *s, struct conn *c)
{
    conn_unlink(s, c);
    (void)watch(s, EPOLL_CTL_DEL, c->fd, 0, 0);
    rpc_ep_abandon(c->ep);
    free(c);
    s->away++;
}

static struct conn *conn_of(const struct rpc_server *s, const struct rpc_ep *ep)
{
    struct conn *c = s->first;
    while (c->ep != ep)
        c = c->next;
    return c;
}

void rpc_server_detach(struct rpc_server *s, struct rpc_ep *ep)
{
    struct conn *c = conn_of(s, ep);
    assert(c->state == CONN_OPEN);
    c->detached = true;
}

int rpc_server_reserve(struct rpc_server *s)
{
    if (s->open + s->away > s->options.max_clients)
        return -EUSERS;
    s->away++;
    return 0;
}

void rpc_server_returned(struct rpc_server *s)
{
    assert(s->away > 0);
    s->away--;
}

int rpc_server_watch(struct rpc_server *s, int fd, void (*ready)(void *user), void *user)
{
    if (s->other_count == RPC_SERVER_WATCHES_MAX)
        return -ENOSPC;
    uint64_t tag = RPC_SERVER_LISTENERS_MAX + 1 + (uint64_t)s->other_count;
    int rc = watch(s, EPOLL_CTL_ADD, fd, EPOLLIN, tag);
    if (rc == 0)
        s->others[s->other_count++] = (struct other){ready, user};
    return rc;
}

void rpc_server_destroy(struct rpc_server *s)
{
    if (!s)
        return;
    while (s->first) {
        if (s->first->detached) {
            conn_abandon(s, s->first);
            continue;
        }
        rpc_ep_shutdown(s->first->ep, 0, "the server stops");
        conn_remove(s, s->first);
    }
    for (int i = 0; i < s->listener_count; i++)
        rpc_listener_destroy(s->listeners[i]);
    rpc_callers_tell(true);
    close(s->stop_fd);
    close(s->epoll);
    free(s);
}

int rpc_server_listen(struct rpc_server *s, const struct rpc_addr *addr,
                      const struct rpc_net_options *net, const char **bound,
                      char why[RPC_WHY_CHARS])
{
    if (s->listener_count == RPC_SERVER_LISTENERS_MAX) {
        snprintf(why, RPC_WHY_CHARS, "more than %d addresses to listen on",
                 RPC_SERVER_LISTENERS_MAX);
        return -ENOSPC;
    }
    struct rpc_listener *l;
    int rc = rpc_listen(addr, net, &l, why);
    if (rc)
        return rc;
    rc = watch(s, EPOLL_CTL_ADD, l->ops->poll_fd(l), EPOLLIN, (uint64_t)s->listener_count + 1);
    if (rc) {
        snprintf(why, RPC_WHY_CHARS, "cannot watch %s: %s", l->address, strerror(-rc));
        rpc_listener_destroy(l);
        return rc;
    }
    s->listeners[s->listener_count++] = l;
    if (bound)
        *bound = l->address;
    return 0;
}

static void conn_set_state(struct rpc_server *s, struct conn *c, enum conn_state state)
{
    (*conns_in(s, c->state))--;
    (*conns_in(s, state))++;
    c->state = state;
    c->since_ns = hw_now_ns();
}

/* Closes the oldest connection that is silent or lingers after a refusal, to let others in. */
static void drop_oldest(struct rpc_server *s, enum conn_state state)
{
    struct conn *oldest = NULL;
    for (struct conn *c = s->first; c; c = c->next)
        if (c->state == state && (!oldest || c->since_ns < oldest->since_ns))
            oldest = c;
    if (state == CONN_HANDSHAKE)
        rpc_callers_warn(rpc_ep_peer(oldest->ep),
                         "dropped in the handshake: too many callers at once");
    conn_remove(s, oldest);
}

static void conn_refuse(struct rpc_server *s, struct conn *c, int error, const char *text)
{
    rpc_callers_warn(rpc_ep_peer(c->ep), "refused: %s", text);
    rpc_ep_shutdown(c->ep, error, text);
    conn_set_state(s, c, CONN_LINGER);
}

static bool is_full(const struct rpc_server *s)
{
    return s->open + s->away >= s->options.max_clients;
}

static void conn_refuse_full(struct rpc_server *s, struct conn *c)
{
    conn_refuse(s, c, -EUSERS, s->full);
}

int rpc_server_adopt(struct rpc_server *s, struct rpc_transport *transport)
{
    struct conn *c = calloc(1, sizeof *c);
    if (!c) {
        rpc_transport_destroy(transport);
        return -ENOMEM;
    }
    int rc = rpc_ep_create(transport, &s->options.config, &c->ep);
    if (rc) {
        free(c);
        return rc;
    }
    if (s->handshakes >= RPC_SERVER_HANDSHAKES_MAX)
        drop_oldest(s, CONN_HANDSHAKE);
    if (s->lingering >= RPC_SERVER_HANDSHAKES_MAX)
        drop_oldest(s, CONN_LINGER);
    c->events = EPOLLIN;
    c->fd = transport->ops->poll_fd(transport);
    rc = watch(s, EPOLL_CTL_ADD, c->fd, c->events, (uint64_t)(uintptr_t)c);
    if (rc) {
        rpc_ep_destroy(c->ep);
        free(c);
        return rc;
    }
    c->prev = s->last;
    *(s->last ? &s->last->next : &s->first) = c;
    s->last = c;
    c->state = CONN_HANDSHAKE;
    c->since_ns = hw_now_ns();
    s->handshakes++;
    if (is_full(s) && s->away + s->offered > 0)
        rpc_ep_refuse_others(c->ep, s->full); /* one that is away may want to come back */
    else if (is_full(s))
        conn_refuse_full(s, c);
    s->sweep_at_ns = 0; /* our hello goes out, and its deadline counts */
    return 0;
}

static void listeners_rest(struct rpc_server *s, bool rest)
{
    for (int i = 0; i < s->listener_count; i++) {
        struct rpc_listener *l = s->listeners[i];
        (void)watch(s, EPOLL_CTL_MOD, l->ops->poll_fd(l), rest ? 0 : EPOLLIN, (uint64_t)i + 1);
    }
    s->accept_again_ns = rest ? hw_now_ns() + accept_pause_ns : 0;
}

/* Logs a shortage now and then, however often clients meet it. */
static bool said_lately(struct rpc_server *s)
{
    uint64_t now = hw_now_ns();
    if (s->scarce_said_ns && now - s->scarce_said_ns < scarce_every_ns)
        return true;
    s->scarce_said_ns = now;
    return false;
}

static void accept_callers(struct rpc_server *s, struct rpc_listener *l)
{
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        struct rpc_transport *t;
        int rc = l->ops->accept(l, &t);
        if (rc == -EAGAIN)
            return;
        if (rc == 0)
            rc = rpc_server_adopt(s, t);
        bool scarce = rc == -EMFILE || rc == -ENFILE || rc == -ENOBUFS || rc == -ENOMEM;
        if (rc && !(scarce && said_lately(s)))
            rpc_callers_warn(l->address, "a caller was turned away: %s", hw_strerror(rc));
        if (scarce) {
            listeners_rest(s, true); /* the caller stays in the queue: do not spin on it */
            return;
        }
    }
}

static void conn_open(struct rpc_server *s, struct conn *c)
{
    if (is_full(s) && !rpc_ep_peer_resuming(c->ep)) {
        conn_refuse_full(s, c);
        return;
    }
    int rc = s->options.ops->opened ? s->options.ops->opened(s->options.user, c->ep) : 0;
    if (rc) {
        conn_refuse(s, c, rc, strerror(-rc));
        return;
    }
    c->told = true;
    conn_set_state(s, c, CONN_OPEN);
}

/* Reads on until the peer has read our refusal and closed. */
static bool linger_is_over(struct conn *c, uint64_t now)
{
    uint8_t scrap[4096];
    struct iovec iov = {scrap, sizeof scrap};
    struct rpc_transport *t = rpc_ep_transport(c->ep);
    for (int i = 0; i < 16; i++) {
        ssize_t n = t->ops->recv(t, &iov, 1, 0);
        if (n == -EAGAIN)
            return now - c->since_ns >= linger_ns;
        if (n < 0)
            return true;
    }
    return now - c->since_ns >= linger_ns;
}

/* A peer that reads nothing holds memory here; after stalled_ns the connection ends. */
static bool is_stalled(struct rpc_server *s, struct conn *c, uint64_t now)
{
    uint64_t sent = hw_counter_load(&rpc_ep_stats(c->ep)->bytes_sent);
    uint64_t looked = hw_looks_at(&s->looks, now);
    if (!rpc_pending(c->ep) || sent != c->bytes_sent) {
        c->bytes_sent = sent;
        c->taken_ns = looked;
        return false;
    }
    return looked - c->taken_ns >= s->options.stalled_ns;
}

/* What it is there for follows at once; no heartbeat tells whether its peer still lives. */
static bool is_forgotten(const struct rpc_server *s, const struct conn *c, uint64_t now)
{
    return rpc_ep_is_mute(c->ep) && now >= c->since_ns + s->options.mute_ns;
}

static const char *why_drop(struct rpc_server *s, struct conn *c, uint64_t now)
{
    if (c->state != CONN_OPEN)
        return NULL;
    if (is_forgotten(s, c, now))
        return "it came to be handed over, and nothing followed";
    return is_stalled(s, c, now) ? "it reads nothing of what it asked for" : NULL;
}

static void watch_for(struct rpc_server *s, struct conn *c)
{
    bool sends = c->state != CONN_LINGER && rpc_send_blocked(c->ep);
    unsigned events = EPOLLIN | (sends ? EPOLLOUT : 0);
    if (events != c->events && watch(s, EPOLL_CTL_MOD, c->fd, events, (uint64_t)(uintptr_t)c) == 0)
        c->events = events;
}

/* ---- resuming ---- */

void rpc_server_offer_resume(struct rpc_server *s, struct rpc_ep *ep)
{
    if (s->options.resume_window_ns == 0 || !rpc_ep_peer_resumes(ep) || rpc_ep_status(ep) != 0)
        return;
    struct conn *c = conn_of(s, ep);
    if (c->offered)
        return;
    c->offered = true;
    s->offered++;
    int rc = rpc_resume_key_make(++s->offers, &c->key);
    if (rc == 0)
        rc = rpc_ep_offer_resume(ep, &c->key, s->options.resume_window_ns, 0);
    if (rc)
        hw_debug(HW_CAT_NET, "%s: cannot resume: %s", rpc_ep_peer(ep), strerror(-rc));
}

static struct conn *find_cut(struct rpc_server *s, const struct rpc_resume_key *key)
{
    struct conn *c = s->first;
    while (c && !(c->offered && rpc_resume_key_equal(&c->key, key)))
        c = c->next;
    return c && rpc_ep_can_resume(c->ep) ? c : NULL;
}

/* Whether the message is a call to resume one of this server's connections; it is released then.
 * Others are for who serves. */
static bool take_resume(struct rpc_server *s, struct conn *c, struct rpc_msg *msg)
{
    struct rpc_resume_request request;
    if (msg->kind != RPC_CALL || msg->method != RPC_METHOD_RESUME ||
        rpc_resume_get_request(msg->data, msg->len, &request))
        return false;
    struct conn *cut = find_cut(s, &request.key);
    if (!cut || cut == c)
        return false;
    /* One that may resume itself is a rope, not a connection to give away. */
    bool is_connection = rpc_ep_transport(c->ep)->ops->descriptors != NULL;
    int rc = is_connection ? rpc_ep_hand_over_resume(c->ep, msg, &c->resume_call) : -EOPNOTSUPP;
    if (rc)
        (void)rpc_reply(c->ep, msg, rc, NULL);
    else
        c->heir_of = cut;
    c->resume_received = request.received;
    rpc_release(c->ep, msg);
    return true;
}

/* Its connection goes to the endpoint that was cut. */
static void conn_inherit(struct rpc_server *s, struct conn *c)
{
    struct conn *old = c->heir_of;
    conn_unlink(s, c);
    tell_closed(s, c, -ESHUTDOWN); /* in order: it goes on as another's */
    struct rpc_transport *t = rpc_ep_strip(c->ep);
    if (old->fd >= 0)
        (void)watch(s, EPOLL_CTL_DEL, old->fd, 0, 0);
    old->fd = c->fd;
    old->events = EPOLLIN;
    int rc = watch(s, EPOLL_CTL_MOD, old->fd, old->events, (uint64_t)(uintptr_t)old);
    if (rc == 0)
        rc = rpc_ep_resume_accept(old->ep, t, c->resume_call, c->resume_received);
    else
        rpc_transport_destroy(t);
    if (rc || rpc_ep_is_cut(old->ep))
        old->fd = -1; /* it is closed already */
    free(c);
    s->sweep_at_ns = 0; /* what the peer lacks goes out */
}

/* A descriptor at its end would wake us for ever. */
static void conn_rest(struct rpc_server *s, struct conn *c)
{
    if (c->fd >= 0)
        (void)watch(s, EPOLL_CTL_DEL, c->fd, 0, 0);
    c->fd = -1;
}

/* Room was made for what resumes; nobody else may take it. */
static bool may_ask(const struct rpc_server *s, const struct conn *c, const struct rpc_msg *msg)
{
    const struct rpc_server_ops *ops = s->options.ops;
    if (LIKELY(!rpc_ep_peer_resuming(c->ep)))
        return true;
    return (msg->kind == RPC_CALL && msg->method == RPC_METHOD_RESUME) ||
           (ops->resumes && ops->resumes(s->options.user, msg));
}

static void refuse_message(struct rpc_server *s, struct conn *c, struct rpc_msg *msg)
{
    rpc_release(c->ep, msg);
    conn_refuse(s, c, -EPROTO, "it came to resume, and asks for something else");
}

/* Gives requests to the handler and sends answers, in turns: requests wait while too many answers
 * do. */
static void conn_deliver(struct rpc_server *s, struct conn *c)
{
    struct rpc_msg *msg;
    while ((msg = rpc_recv(c->ep)) != NULL) {
        do {
            if (UNLIKELY(!may_ask(s, c, msg))) {
                refuse_message(s, c, msg);
                return;
            }
            if (UNLIKELY(msg->method == RPC_METHOD_RESUME) && take_resume(s, c, msg))
                return;
            s->options.ops->message(s->options.user, c->ep, msg);
        } while (!c->detached && (msg = rpc_recv(c->ep)) != NULL);
        if (c->detached || rpc_flush(c->ep))
            return;
    }
    (void)rpc_flush(c->ep);
}

/* Serves one connection.  False when it is gone. */
static bool conn_serve(struct rpc_server *s, struct conn *c, uint64_t now)
{
    if (c->state == CONN_LINGER) {
        if (!linger_is_over(c, now))
            return true;
        conn_remove(s, c);
        return false;
    }
    if (!c->detached)
        (void)rpc_poll(c->ep); /* a failure is the endpoint's status */
    if (c->state == CONN_HANDSHAKE && rpc_ep_status(c->ep) == 0)
        conn_open(s, c);
    if (c->state == CONN_OPEN && !c->detached)
        conn_deliver(s, c);
    if (c->detached) {
        conn_abandon(s, c);
        return false;
    }
    if (c->heir_of) {
        conn_inherit(s, c);
        return false;
    }
    if (UNLIKELY(c->offered) && rpc_ep_is_cut(c->ep)) {
        conn_rest(s, c);
        return true;
    }
    int rc = rpc_ep_status(c->ep);
    if (rc == -EACCES || rc == -EPROTONOSUPPORT || rc == -EPROTO || rc == -EUSERS) {
        conn_set_state(s, c, CONN_LINGER); /* the reason is on its way to the peer */
        watch_for(s, c);
        return true;
    }
    if (c->state != CONN_LINGER && rc != 0 && rc != -EINPROGRESS) {
        conn_remove(s, c);
        return false;
    }
    const char *why = why_drop(s, c, now);
    if (why) {
        rpc_callers_warn(rpc_ep_peer(c->ep), "dropped: %s", why);
        rpc_ep_shutdown(c->ep, -ETIMEDOUT, why);
        conn_remove(s, c);
        return false;
    }
    watch_for(s, c);
    return true;
}

/* Deadlines, heartbeats and lingering of all, a few times a second. */
static void sweep(struct rpc_server *s, uint64_t now)
{
    if (s->accept_again_ns && now >= s->accept_again_ns)
        listeners_rest(s, false);
    for (struct conn *c = s->first, *next; c; c = next) {
        next = c->next;
        (void)conn_serve(s, c, now);
    }
    rpc_callers_tell(false);
    if (s->options.ops->swept)
        s->options.ops->swept(s->options.user);
    s->sweep_at_ns = now + sweep_at_most_ns;
}

/* Announces the sleep to transports that need it.  False when one has something already. */
static bool arm_all(struct rpc_server *s)
{
    bool idle = true;
    for (struct conn *c = s->first, *next; c; c = next) {
        next = c->next;
        struct rpc_transport *t = rpc_ep_transport(c->ep);
        if (c->detached) {
            conn_abandon(s, c);
            continue;
        }
        if (!t->ops->arm)
            continue;
        unsigned events = RPC_WAIT_RECV | (rpc_send_blocked(c->ep) ? RPC_WAIT_SEND : 0);
        if (t->ops->arm(t, events)) {
            (void)conn_serve(s, c, hw_now_ns());
            idle = false; /* on to the others: a busy client must not keep them waiting */
        }
    }
    return idle;
}

static int wait_ms(const struct rpc_server *s, uint64_t timeout_ns, uint64_t now)
{
    uint64_t left = s->sweep_at_ns > now ? s->sweep_at_ns - now : 0;
    if (!s->first && !s->accept_again_ns && !rpc_callers_untold())
        left = timeout_ns; /* nobody to sweep */
    if (timeout_ns < left)
        left = timeout_ns;
    return left >= UINT64_C(1) << 40 ? -1 : (int)((left + HW_MS - 1) / HW_MS);
}

int rpc_server_turn(struct rpc_server *s, uint64_t timeout_ns)
{
    struct epoll_event events[EVENTS_A_TURN];
    uint64_t now = hw_now_ns();
    if (now >= s->sweep_at_ns)
        sweep(s, now);
    int wait = arm_all(s) ? wait_ms(s, timeout_ns, now) : 0;
    void (*sleeps)(void *user, bool begins) = wait ? s->options.ops->sleeps : NULL;
    if (sleeps)
        sleeps(s->options.user, true);
    int n = epoll_wait(s->epoll, events, EVENTS_A_TURN, wait);
    if (sleeps)
        sleeps(s->options.user, false);
    now = hw_now_ns();
    /* New connections come last: what ends in this turn makes room for them. */
    for (int i = 0; i < n; i++) {
        struct watched w = watched_of(s, events[i].data.u64);
        struct conn *c = s->first;
        if (w.kind == WATCH_STOP)
            s->stopped |= eventfd_read(s->stop_fd, &(eventfd_t){0}) == 0;
        else if (w.kind == WATCH_OTHER)
            ((struct other *)w.object)->ready(((struct other *)w.object)->user);
        while (w.kind == WATCH_CONN && c && c != w.object)
            c = c->next;
        if (w.kind == WATCH_CONN && c)
            (void)conn_serve(s, c, now);
    }
    for (int i = 0; i < n; i++) {
        struct watched w = watched_of(s, events[i].data.u64);
        if (w.kind == WATCH_LISTENER)
            accept_callers(s, w.object);
    }
    return s->stopped ? -ECANCELED : 0;
}

void rpc_server_run(struct rpc_server *s)
{
    s->stopped = false;
    while (rpc_server_turn(s, HW_NEVER) == 0)
        ;
}

void rpc_server_stop(struct rpc_server *s)
{
    (void)eventfd_write(s->stop_fd, 1);
}

uint32_t rpc_server_clients(const struct rpc_server *s)
{
    return s->open + s->away;
}

const struct rpc_config *rpc_server_config(const struct rpc_server *s)
{
    return &s->options.config;
}
