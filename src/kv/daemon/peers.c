#include "kv/daemon/peers.h"

#include "base/log.h"
#include "kv/common/message.h"
#include "kv/daemon/client_slots.h"
#include "kv/daemon/permits.h"
#include "kv/daemon/view_peers.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
    QUIET_POLLS = 32,     /* after so many fruitless polls an endpoint is polled less often */
    QUIET_EVERY = 16,     /* namely in one turn of so many: a system call costs ten empty turns */
    QUIET_RESTS = 256,    /* after so many it rests until its descriptor says something, */
    AWAKE_MANY = 16,      /* where more are awake: to be woken takes a while */
    FAILURES_COUNTED = 6, /* most doublings of the pause between two dials */
    JOIN_STREAM = 0
};

/* Of a daemon whose name or rank another one claims. */
#define STILL_THERE                                                                                \
    "is connected: give each daemon a --name or --rank of its own (a daemon that was killed is "   \
    "forgotten within seconds)"

static const uint64_t dial_pause_ns = 20 * HW_MS; /* doubled with each failure, up to 1.28 s */
static const uint64_t join_timeout_ns = 5 * HW_SEC;
static const uint64_t idle_ns = 60 * HW_SEC;

static bool is_live(const struct rpc_ep *ep)
{
    int status = rpc_ep_status(ep);
    return status == 0 || status == -EINPROGRESS;
}

/* For logs. */
static const char *name_of(const struct kv_peer *peer)
{
    const struct kv_member *m = kv_view_find(&peer->daemon->view, peer->id);
    return m ? m->name : "a former member";
}

/* ---- rest ---- */

void kv_peer_wake(struct kv_peer *peer)
{
    struct kv_daemon *d = peer->daemon;
    peer->fresh = false;
    if (peer->awake || !peer->ep)
        return;
    peer->awake = true;
    d->awake_count++;
    peer->quiet = 0;
    peer->awake_prev = NULL;
    peer->awake_next = d->awake;
    if (d->awake)
        d->awake->awake_prev = peer;
    d->awake = peer;
}

void kv_daemon_wake(struct kv_daemon *d, uint32_t number)
{
    assert(number < d->peer_room);
    kv_peer_wake(&d->peers[number]);
}

static void unlist_awake(struct kv_daemon *d, struct kv_peer *peer)
{
    if (!peer->awake)
        return;
    *(peer->awake_prev ? &peer->awake_prev->awake_next : &d->awake) = peer->awake_next;
    if (peer->awake_next)
        peer->awake_next->awake_prev = peer->awake_prev;
    peer->awake = false;
    d->awake_count--;
}

/* Whether nothing is there to be read, so that the descriptor will say when there is. */
static bool is_armed(struct kv_daemon *d, struct kv_peer *peer)
{
    struct rpc_transport *t = rpc_ep_transport(peer->ep);
    bool to_send = rpc_send_blocked(peer->ep);
    if (peer->blocked != to_send && d->config.watch)
        d->config.watch(d->config.user, peer->ep, peer->number, to_send);
    peer->blocked = to_send;
    return !t->ops->arm || t->ops->arm(t, RPC_WAIT_RECV | (to_send ? RPC_WAIT_SEND : 0)) == 0;
}

/* False: something is there already.  Until the handshake and JOIN are done, and while requests
 * are queued, a connection stays awake. */
static bool rest(struct kv_daemon *d, struct kv_peer *peer)
{
    if (!is_armed(d, peer))
        return false;
    if (!d->config.watch || !peer->up || peer->queue)
        return true;
    uint64_t tick = rpc_next_tick(peer->ep);
    d->rest_until_ns = tick < d->rest_until_ns ? tick : d->rest_until_ns;
    unlist_awake(d, peer);
    return true;
}

/* Wakes those whose deadline or ping is due. */
static void wake_due(struct kv_daemon *d)
{
    d->rest_until_ns = HW_NEVER;
    for (struct kv_peer *peer = d->linked; peer; peer = peer->link_next) {
        uint64_t tick = peer->awake ? HW_NEVER : rpc_next_tick(peer->ep);
        if (tick <= d->now_ns)
            kv_peer_wake(peer);
        else if (tick < d->rest_until_ns)
            d->rest_until_ns = tick;
    }
}

/* ---- calls about values ---- */

static void queue_add(struct kv_peer *peer, struct kv_pending *p)
{
    p->state = PENDING_QUEUED;
    p->peer = peer;
    p->next = NULL;
    p->prev = peer->queue_last;
    *(peer->queue_last ? &peer->queue_last->next : &peer->queue) = p;
    peer->queue_last = p;
}

static void queue_unlink(struct kv_peer *peer, struct kv_pending *p)
{
    *(p->prev ? &p->prev->next : &peer->queue) = p->next;
    *(p->next ? &p->next->prev : &peer->queue_last) = p->prev;
}

static void queue_remove(struct kv_peer *peer, struct kv_pending *p)
{
    assert(p->state == PENDING_QUEUED);
    queue_unlink(peer, p);
    p->state = PENDING_IDLE;
}

void kv_peers_note_in_flight(struct kv_daemon *d, uint64_t now)
{
    if (!d->measuring)
        return;
    struct kv_probe *p = d->config.probe;
    p->in_flight_ns += (now - p->in_flight_seen_ns) * d->in_flight;
    p->in_flight_seen_ns = now;
}

static void in_flight_changed(struct kv_daemon *d, struct kv_peer *peer, int by, uint64_t now)
{
    kv_peers_note_in_flight(d, now);
    kv_peer_wake(peer);
    peer->used_ns = now;
    peer->in_flight += (uint32_t)by;
    d->in_flight += (uint32_t)by;
}

void kv_peer_in_flight(struct kv_peer *peer, int by)
{
    in_flight_changed(peer->daemon, peer, by, peer->daemon->now_ns);
}

enum kv_result kv_peer_status_result(const struct kv_peer *peer, int status)
{
    return kv_result_of_status(status, peer->up && is_live(peer->ep));
}

static void on_answer(void *user, int status, const struct rpc_msg *reply)
{
    struct kv_pending *p = user;
    struct kv_peer *peer = p->peer;
    struct kv_daemon *d = peer->daemon;
    assert(p->state == PENDING_CALLED);
    uint64_t now = d->measuring ? kv_daemon_now(d) : d->now_ns;
    in_flight_changed(d, peer, -1, now);
    p->state = PENDING_IDLE;
    if (!p->busy)
        return; /* the client is gone: kv_peer_forget cancelled the call */
    struct kv_value_answer answer = {.result = KV_REFUSED};
    if (status)
        answer.result = kv_peer_status_result(peer, status);
    else if (kv_value_answer_decode(reply->data, reply->len, &answer))
        answer.result = KV_REFUSED;
    else if (d->measuring)
        hw_hist_record(&d->config.probe->rtt, now - p->asked_ns);
    hw_counter_bump(&d->stats.responses, 1);
    kv_client_slot_answer(p, answer.result, answer.value, answer.value_len);
}

/* 0, or why it was not sent; after -ENOBUFS and -EAGAIN try again later. */
static int call(struct kv_daemon *d, struct kv_peer *peer, struct kv_pending *p)
{
    uint8_t key[KV_KEY_BYTES];
    kv_key_encode(p->key, key);
    const uint8_t *value =
        p->value_len <= KV_REQUEST_INLINE ? p->value : kv_region_slot(&p->client->region, p->slot);
    struct iovec iov[2] = {{key, sizeof(key)}, {(void *)(uintptr_t)value, p->value_len}};
    struct rpc_send send = {.method = p->op,
                            .iov = iov,
                            .iov_count = p->value_len ? 2 : 1,
                            .timeout_ns = p->deadline_ns - d->now_ns};
    uint64_t now = d->measuring ? kv_daemon_now(d) : d->now_ns;
    p->state = PENDING_CALLED;
    p->peer = peer;
    p->asked_ns = now;
    in_flight_changed(d, peer, 1, now);
    int rc = rpc_call(peer->ep, &send, on_answer, p, &p->call_id);
    if (rc) {
        in_flight_changed(d, peer, -1, now);
        p->state = PENDING_IDLE;
    }
    return rc;
}

void kv_peer_ask(struct kv_daemon *d, uint32_t rank, struct kv_pending *p)
{
    struct kv_peer *peer = &d->peers[rank];
    if (!peer->up) {
        kv_client_slot_answer(p, KV_PEER_LOST, NULL, 0);
        return;
    }
    int rc = peer->queue ? -EAGAIN : call(d, peer, p); /* queued requests go first */
    if (rc == -ENOBUFS || rc == -EAGAIN) {
        hw_counter_bump(&d->stats.ring_full, 1);
        queue_add(peer, p);
    } else if (rc) {
        /* The connection has ended; the next poll takes the peer down. */
        kv_client_slot_answer(p, rc == -EMSGSIZE ? KV_TOO_LARGE : KV_PEER_LOST, NULL, 0);
    }
}

void kv_peer_forget(struct kv_pending *p)
{
    p->busy = false;
    if (p->state == PENDING_QUEUED)
        queue_remove(p->peer, p);
    else if (p->state == PENDING_CALLED)
        (void)rpc_cancel(p->peer->ep,
                         p->call_id); /* runs on_answer, which sees that the request is not busy */
    assert(p->state == PENDING_IDLE);
}

/* Sends queued requests while there is room, and ends those past their deadline. */
static void advance_queue(struct kv_daemon *d, struct kv_peer *peer)
{
    bool room = true;
    for (struct kv_pending *p = peer->queue, *next; p; p = next) {
        next = p->next;
        if (d->now_ns >= p->deadline_ns) {
            queue_remove(peer, p);
            kv_client_slot_answer(p, KV_TIMEOUT, NULL, 0);
        } else if (room && call(d, peer, p) == 0) {
            queue_unlink(peer, p);
        } else {
            p->state = PENDING_QUEUED; /* the requests behind it wait, too */
            room = false;
        }
    }
}

/* ---- connect and disconnect ---- */

static void link_peer(struct kv_daemon *d, struct kv_peer *peer, struct rpc_ep *ep)
{
    peer->ep = ep;
    kv_peer_wake(peer);
    if (d->config.watch)
        d->config.watch(d->config.user, ep, peer->number, false);
    peer->link_prev = NULL;
    peer->link_next = d->linked;
    if (d->linked)
        d->linked->link_prev = peer;
    d->linked = peer;
}

static void unlink_peer(struct kv_daemon *d, struct kv_peer *peer)
{
    *(peer->link_prev ? &peer->link_prev->link_next : &d->linked) = peer->link_next;
    if (peer->link_next)
        peer->link_next->link_prev = peer->link_prev;
    unlist_awake(d, peer);
    peer->ep = NULL;
}

static void set_up(struct kv_daemon *d, struct kv_peer *peer, bool up)
{
    if (peer->up == up)
        return;
    peer->up = up;
    peer->session += up;
    peer->used_ns = d->now_ns;
    if (peer->caller)
        return;
    if (up && peer->lost)
        hw_warn(HW_CAT_KV, "%s is connected again", name_of(peer));
    else if (up)
        hw_info(HW_CAT_KV, "%s is connected", name_of(peer));
    peer->lost &= !up;
    d->peers_up += up ? 1 : (uint32_t)-1;
    kv_client_slots_publish(d);
}

/* After a failure: when it may be dialled again.  In a mesh it is, else when it is needed. */
static void back_off(struct kv_daemon *d, struct kv_peer *peer)
{
    uint32_t doublings = peer->failures < FAILURES_COUNTED ? peer->failures : FAILURES_COUNTED;
    peer->failures++;
    peer->dial_at_ns = d->now_ns + (dial_pause_ns << doublings);
    if (d->config.member && d->view.count > KV_MESH_MAX)
        peer->wanted = false;
    if (peer->wanted)
        kv_peer_want(peer);
}

/* The connection has ended, or nobody needs it any more. */
static void disconnect(struct kv_daemon *d, struct kv_peer *peer)
{
    struct rpc_ep *ep = peer->ep;
    set_up(d, peer, false);
    rpc_ep_destroy(ep); /* ends its calls: their clients get PEER_LOST */
    assert(peer->in_flight == 0 && peer->chunks == 0);
    if (d->blocks)
        kv_blocks_leave(d->blocks, &peer->holder, d->now_ns);
    while (peer->queue) {
        struct kv_pending *p = peer->queue;
        queue_remove(peer, p);
        kv_client_slot_answer(p, KV_PEER_LOST, NULL, 0);
    }
    unlink_peer(d, peer);
    peer->blocked = false;
    peer->incarnation = 0;
    if (peer->caller)
        kv_peer_free(peer);
}

static void peer_down(struct kv_daemon *d, struct kv_peer *peer)
{
    bool caller = peer->caller;
    if (!peer->ep)
        return;
    if (peer->up && !caller) {
        peer->missed_ns = d->now_ns;
        peer->lost = kv_view_find(&d->view, peer->id) != NULL; /* else it has left */
        if (peer->lost)
            hw_warn(HW_CAT_KV, "%s is lost: %s", name_of(peer), rpc_ep_reason(peer->ep));
        hw_counter_bump(&d->stats.peers_lost, 1);
    }
    disconnect(d, peer);
    if (!caller && peer->id)
        back_off(d, peer);
}

static uint32_t poll_peer(struct kv_daemon *d, struct kv_peer *peer)
{
    int n = rpc_poll(peer->ep);
    if (n < 0 && n != -EINPROGRESS) {
        peer_down(d, peer);
        return 1;
    }
    peer->quiet = n > 0 ? 0 : peer->quiet + 1;
    if (UNLIKELY(peer->queue != NULL))
        advance_queue(d, peer);
    return n > 0 ? (uint32_t)n : 0;
}

static void peer_leave(struct kv_daemon *d, struct kv_peer *peer)
{
    if (peer->ep)
        rpc_ep_shutdown(peer->ep, 0, "not in the view");
    peer_down(d, peer);
    if (peer->id)
        kv_peer_free(peer);
}

void kv_daemon_set_view(struct kv_daemon *d, const struct kv_view *view)
{
    assert(d->config.member);
    kv_permits_end(d);
    /* First: a remote request that loses a peer by it then sees another epoch. */
    kv_view_copy(&d->view, view);
    d->disowning = false;
    d->disown_from = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        struct kv_peer *peer = kv_peer_of(d, view->members[i].id);
        d->disowning |= d->blocks && view->members[i].id == d->self;
        if (peer && strcmp(view->members[i].address, peer->address) == 0)
            peer->in_view = view->epoch;
    }
    for (uint32_t i = 1; i < d->peer_count; i++)
        if (d->peers[i].id && !d->peers[i].caller && d->peers[i].in_view != view->epoch)
            peer_leave(d, &d->peers[i]);
    kv_view_peers_place(d);
    for (struct kv_peer *peer = d->linked, *next; peer; peer = next) {
        next = peer->link_next;
        if (peer->caller && !kv_peer_of(d, peer->id))
            peer_leave(d, peer);
    }
    hw_info(HW_CAT_KV, "view %llu: %u members", (unsigned long long)view->epoch, view->count);
}

/* Whether to say it again: who is refused dials on. */
static bool may_say(const struct kv_daemon *d, uint64_t *said_ns)
{
    bool may = *said_ns == 0 || d->now_ns - *said_ns >= 60 * HW_SEC;
    *said_ns = may ? d->now_ns : *said_ns;
    return may;
}

static void say_refused(struct kv_peer *peer, int status)
{
    if (status == -ENOENT) /* with members: its view is older, or we have left it */
        hw_debug(HW_CAT_KV, "%s does not know us yet", name_of(peer));
    else if (!may_say(peer->daemon, &peer->said_ns))
        return;
    else if (status == -EEXIST)
        hw_warn(HW_CAT_KV,
                "%s does not let us join: another daemon with our name or rank " STILL_THERE,
                name_of(peer));
    else if (status == -ETIMEDOUT)
        hw_warn(HW_CAT_KV, "%s does not answer our JOIN: it is stopped, or the network is cut",
                name_of(peer));
    else
        hw_warn(HW_CAT_KV,
                "%s does not let us join: %s; do all daemons have the same --daemons and --copies?",
                name_of(peer), strerror(-status));
}

static void on_joined(void *user, int status, const struct rpc_msg *reply)
{
    struct kv_peer *peer = user;
    struct kv_joined joined;
    if (status == 0 && kv_joined_decode(reply->data, reply->len, &joined))
        status = -EPROTO;
    if (status == 0 && peer->daemon->config.member && joined.member != peer->id) {
        hw_warn(HW_CAT_KV, "%s: another member answers at its address", name_of(peer));
        rpc_ep_shutdown(peer->ep, -EPROTO, "another member");
    } else if (status == 0) {
        peer->failures = 0;
        peer->said_ns = 0;
        peer->incarnation = joined.incarnation;
        set_up(peer->daemon, peer, true);
    } else if (is_live(peer->ep)) {
        say_refused(peer, status);
        rpc_ep_shutdown(peer->ep, 0, "cannot join");
    }
}

static int send_join(struct kv_daemon *d, struct kv_peer *peer)
{
    uint8_t payload[KV_JOIN_BYTES];
    kv_join_encode(&(struct kv_join){.ranks = d->config.ranks,
                                     .daemons = d->config.daemons,
                                     .rank = d->config.rank,
                                     .index = d->config.index,
                                     .incarnation = d->incarnation,
                                     .member = d->config.member,
                                     .copies = d->config.copies},
                   payload);
    struct iovec iov = {payload, sizeof(payload)};
    struct rpc_send send = {.method = KV_METHOD_JOIN,
                            .stream = JOIN_STREAM,
                            .iov = &iov,
                            .iov_count = 1,
                            .timeout_ns = join_timeout_ns};
    return rpc_call(peer->ep, &send, on_joined, peer, NULL);
}

static bool adopt_unjoined(struct kv_daemon *d, struct rpc_ep *ep)
{
    for (int i = 0; i < KV_UNJOINED_MAX; i++) {
        if (!d->unjoined[i]) {
            d->unjoined[i] = ep;
            /* Not now_ns: the last turn may be long ago. */
            d->join_until_ns[i] = kv_daemon_now(d) + join_timeout_ns;
            d->unjoined_count++;
            return true;
        }
    }
    return false;
}

void kv_daemon_adopt(struct kv_daemon *d, struct rpc_ep *ep, int rank)
{
    if (rank < 0) {
        if (!adopt_unjoined(d, ep)) {
            hw_warn(HW_CAT_KV, "%s: turned away: too many callers at once", rpc_ep_peer(ep));
            rpc_ep_destroy(ep);
        }
        return;
    }
    struct kv_peer *peer = &d->peers[rank];
    assert(peer->dialling && !peer->ep);
    peer->dialling = false;
    if (!peer->id) { /* it left while we dialled */
        rpc_ep_destroy(ep);
        kv_peer_free(peer);
        kv_view_peers_place(d);
        return;
    }
    link_peer(d, peer, ep);
    if (send_join(d, peer))
        rpc_ep_shutdown(ep, -EPROTO, "cannot join"); /* the next poll ends it */
}

int kv_daemon_dial_next(struct kv_daemon *d)
{
    for (struct kv_peer **link = &d->wanting, *peer; (peer = *link) != NULL;) {
        bool needless = !peer->wanted || peer->ep || peer->dialling;
        if (!needless && d->now_ns < peer->dial_at_ns) {
            link = &peer->want_next;
            continue;
        }
        *link = peer->want_next;
        peer->is_listed = false;
        if (!peer->id && peer->number < d->spare_from)
            d->spare_from = peer->number; /* it could not be given away while it was listed */
        if (needless)
            continue;
        peer->dialling = true;
        return (int)peer->number;
    }
    return -1;
}

void kv_daemon_dial_failed(struct kv_daemon *d, int rank)
{
    struct kv_peer *peer = &d->peers[rank];
    assert(peer->dialling);
    peer->dialling = false;
    if (peer->id) {
        back_off(d, peer);
    } else {
        kv_peer_free(peer);
        kv_view_peers_place(d);
    }
}

bool kv_daemon_peer_up(const struct kv_daemon *d, uint32_t rank)
{
    return d->peers[rank].up;
}

uint32_t kv_daemon_local_peers(const struct kv_daemon *d)
{
    uint32_t n = 0;
    for (const struct kv_peer *peer = d->linked; peer; peer = peer->link_next)
        n += peer->up && !peer->caller && rpc_ep_transport(peer->ep)->local;
    return n;
}

/* ---- joining ---- */

/* Whether another daemon is connected under the same name or rank.  Its connection may have ended
 * without our having noticed. */
static bool is_taken(struct kv_daemon *d, struct kv_peer *peer, uint64_t incarnation)
{
    if (peer->up && peer->incarnation != incarnation) {
        kv_peer_wake(peer);
        (void)poll_peer(d, peer);
    }
    return peer->up && peer->incarnation != incarnation;
}

static struct kv_peer *caller_of(struct kv_daemon *d, uint64_t member)
{
    for (struct kv_peer *peer = d->linked; peer; peer = peer->link_next)
        if (peer->caller && peer->id == member)
            return peer;
    return NULL;
}

static int name_is_taken(const char *name, char why[RPC_WHY_CHARS])
{
    snprintf(why, RPC_WHY_CHARS, "%s " STILL_THERE, name);
    return -EEXIST;
}

/* Who calls as a member.  The daemon that answers at the member's address is the member. */
static int judge_caller(struct kv_daemon *d, const struct kv_join *join, struct kv_peer **out,
                        char why[RPC_WHY_CHARS])
{
    if (join->member == d->self)
        return join->incarnation == d->incarnation ? -EINVAL : name_is_taken("this daemon", why);
    struct kv_peer *member = kv_peer_of(d, join->member), *caller = caller_of(d, join->member);
    if (!member)
        return -ENOENT;
    if (is_taken(d, member, join->incarnation) ||
        (caller && is_taken(d, caller, join->incarnation)))
        return name_is_taken(name_of(member), why);
    if (!caller || !caller->caller) /* it may have ended just now */
        caller = kv_peer_spare(d);
    if (!caller) {
        snprintf(why, RPC_WHY_CHARS, "too many callers");
        return -EUSERS;
    }
    *out = caller;
    return 0;
}

/* Which peer it is.  -ENOENT: a member that is not in our view (yet); -EEXIST: see is_taken; other
 * errors: the daemons' options differ.  Why in words, but for -ENOENT. */
static int judge_join(struct kv_daemon *d, const struct kv_join *join, struct kv_peer **out,
                      char why[RPC_WHY_CHARS])
{
    snprintf(why, RPC_WHY_CHARS, "%s", strerror(EINVAL));
    if (join->copies != d->config.copies) { /* else they would disagree about who owns a block */
        snprintf(why, RPC_WHY_CHARS, "it has --copies %u, this daemon %u: give all the same",
                 join->copies, d->config.copies);
        return -EINVAL;
    }
    bool members = d->config.member != 0;
    if (join->ranks != d->config.ranks || join->daemons != d->config.daemons ||
        join->index != d->config.index || members != (join->member != 0))
        return -EINVAL;
    if (members)
        return judge_caller(d, join, out, why);
    struct kv_peer *peer = &d->peers[join->rank];
    if (peer->we_dial || join->rank == d->config.rank)
        return -EINVAL;
    if (is_taken(d, peer, join->incarnation))
        return name_is_taken(name_of(peer), why);
    *out = peer;
    return 0;
}

static void answer_join(struct kv_daemon *d, struct rpc_ep *ep, struct rpc_msg *msg, int rc)
{
    uint8_t payload[KV_JOINED_BYTES];
    kv_joined_encode(&(struct kv_joined){.incarnation = d->incarnation, .member = d->config.member},
                     payload);
    struct iovec iov = {payload, sizeof(payload)};
    struct rpc_send send = {.iov = &iov, .iov_count = 1};
    (void)rpc_reply(ep, msg, rc, rc ? NULL : &send);
    rpc_release(ep, msg);
}

/* A connection says who it is.  It may be a daemon whose last connection we still hold: then the
 * old one ends. */
static void on_join(struct kv_daemon *d, struct rpc_ep **place, struct rpc_msg *msg)
{
    struct rpc_ep *ep = *place;
    struct kv_peer *peer = NULL;
    struct kv_join join;
    char why[RPC_WHY_CHARS];
    int rc = kv_join_decode(msg->data, msg->len, &join);
    snprintf(why, sizeof(why), "%s", strerror(-rc));
    if (rc == 0)
        rc = judge_join(d, &join, &peer, why);
    answer_join(d, ep, msg, rc);
    if (rc) {
        if (rc != -ENOENT && may_say(d, &d->refusal_said_ns))
            hw_warn(HW_CAT_KV, "%s: cannot join: %s", rpc_ep_peer(ep), why);
        return;
    }
    peer_down(d, peer);
    *place = NULL;
    d->unjoined_count--;
    if (join.member) {
        peer->id = join.member;
        peer->caller = true;
    }
    link_peer(d, peer, ep);
    peer->incarnation = join.incarnation;
    peer->failures = 0;
    set_up(d, peer, true);
}

void kv_peer_reply(struct rpc_ep *ep, struct rpc_msg *msg, const struct kv_outcome *o)
{
    uint8_t result = (uint8_t)o->result;
    struct iovec iov[2] = {{&result, 1}, {(void *)(uintptr_t)o->value, o->len}};
    struct rpc_send send = {.iov = iov, .iov_count = o->len ? 2 : 1};
    (void)rpc_reply(ep, msg, 0, &send); /* the next poll finds an ended connection */
}

uint32_t kv_peers_serve_unjoined(struct kv_daemon *d)
{
    uint32_t events = 0;
    for (int i = 0; i < KV_UNJOINED_MAX; i++) {
        struct rpc_msg *msg;
        while (d->unjoined[i] && (msg = rpc_recv(d->unjoined[i])) != NULL) {
            events++;
            if (msg->kind == RPC_CALL && msg->method == KV_METHOD_JOIN) {
                on_join(d, &d->unjoined[i], msg);
            } else {
                struct kv_outcome o = {.result = KV_REFUSED};
                if (msg->kind == RPC_CALL)
                    kv_peer_reply(d->unjoined[i], msg, &o);
                rpc_release(d->unjoined[i], msg);
            }
        }
    }
    return events;
}

/* ---- polling and flushing ---- */

static uint32_t poll_unjoined(struct kv_daemon *d)
{
    uint32_t events = 0;
    for (int i = 0; i < KV_UNJOINED_MAX; i++) {
        if (!d->unjoined[i])
            continue;
        int n = rpc_poll(d->unjoined[i]);
        bool late = n <= 0 && d->now_ns >= d->join_until_ns[i];
        if (late)
            rpc_ep_shutdown(d->unjoined[i], -ETIMEDOUT, "no JOIN came");
        if (late || (n < 0 && n != -EINPROGRESS)) {
            rpc_ep_destroy(d->unjoined[i]);
            d->unjoined[i] = NULL;
            d->unjoined_count--;
        } else if (n > 0) {
            events += (uint32_t)n;
        }
    }
    return events;
}

static bool may_skip(const struct kv_daemon *d, const struct kv_peer *peer)
{
    return peer->quiet >= QUIET_POLLS && peer->in_flight == 0 && !peer->queue &&
           hw_counter_load(&d->stats.loops) % QUIET_EVERY != 0;
}

static bool may_rest(const struct kv_daemon *d, const struct kv_peer *peer)
{
    return d->awake_count > AWAKE_MANY && peer->awake && peer->quiet >= QUIET_RESTS &&
           peer->in_flight == 0 && !rpc_pending(peer->ep);
}

/* Of many members only those are connected that are needed: ends what nobody has used for long.
 * What such a connection holds, a lease or a put, does not last as long. */
static void close_idle(struct kv_daemon *d)
{
    d->idle_at_ns = d->now_ns + idle_ns / 4;
    for (struct kv_peer *peer = d->linked, *next; peer; peer = next) {
        next = peer->link_next;
        if (peer->caller || !peer->up || peer->in_flight || peer->chunks || peer->queue ||
            d->now_ns - peer->used_ns < idle_ns)
            continue;
        peer->wanted = false;
        rpc_ep_shutdown(peer->ep, 0, "not needed");
        disconnect(d, peer);
    }
}

uint32_t kv_peers_poll(struct kv_daemon *d)
{
    uint32_t events = d->unjoined_count ? poll_unjoined(d) : 0;
    if (d->view.count > KV_MESH_MAX && d->config.member && d->now_ns >= d->idle_at_ns)
        close_idle(d);
    if (d->now_ns >= d->rest_until_ns)
        wake_due(d);
    for (struct kv_peer *peer = d->awake, *next; peer; peer = next) {
        next = peer->awake_next;
        peer->polled = !peer->fresh && !may_skip(d, peer);
        peer->fresh = false;
        if (!peer->polled)
            continue;
        uint32_t n = poll_peer(d, peer);
        peer->fresh = n > 0;
        events += n;
        if (may_rest(d, peer))
            (void)rest(d, peer);
    }
    return events;
}

static uint32_t flush_one(struct kv_daemon *d, struct rpc_ep *ep)
{
    if (!rpc_pending(ep))
        return 0;
    hw_counter_bump(&d->stats.flushes, 1);
    (void)rpc_flush(ep); /* the next poll finds a failure */
    return 1;
}

uint32_t kv_peers_flush(struct kv_daemon *d)
{
    uint32_t n = 0;
    for (int i = 0; i < KV_UNJOINED_MAX && d->unjoined_count > 0; i++)
        n += d->unjoined[i] ? flush_one(d, d->unjoined[i]) : 0;
    for (struct kv_peer *peer = d->awake; peer; peer = peer->awake_next) {
        uint32_t sent = flush_one(d, peer->ep);
        peer->fresh |= sent > 0 && peer->polled;
        n += sent;
    }
    return n;
}

/* ---- sleeping ---- */

bool kv_peers_arm(struct kv_daemon *d)
{
    bool ready = false;
    for (int i = 0; i < KV_UNJOINED_MAX; i++) {
        struct rpc_transport *t = d->unjoined[i] ? rpc_ep_transport(d->unjoined[i]) : NULL;
        ready |= t && t->ops->arm && t->ops->arm(t, RPC_WAIT_RECV) != 0;
    }
    for (struct kv_peer *peer = d->awake, *next; peer; peer = next) {
        next = peer->awake_next;
        peer->quiet = 0; /* poll it in the first turn after the sleep */
        ready |= !rest(d, peer);
    }
    return ready;
}

uint64_t kv_peers_next_tick(const struct kv_daemon *d)
{
    uint64_t next = HW_NEVER;
    for (int i = 0; i < KV_UNJOINED_MAX; i++) {
        uint64_t tick = d->unjoined[i] ? rpc_next_tick(d->unjoined[i]) : HW_NEVER;
        if (d->unjoined[i] && d->join_until_ns[i] < tick)
            tick = d->join_until_ns[i];
        next = tick < next ? tick : next;
    }
    next = d->rest_until_ns < next ? d->rest_until_ns : next;
    for (const struct kv_peer *peer = d->awake; peer; peer = peer->awake_next) {
        uint64_t tick = rpc_next_tick(peer->ep);
        if (peer->queue)
            tick = d->now_ns + HW_MS; /* when to look at their deadlines */
        next = tick < next ? tick : next;
    }
    for (const struct kv_peer *peer = d->wanting; peer; peer = peer->want_next)
        next = peer->dial_at_ns < next ? peer->dial_at_ns : next;
    if (d->linked && d->config.member && d->view.count > KV_MESH_MAX && d->idle_at_ns < next)
        next = d->idle_at_ns;
    return next;
}

void kv_peers_fini(struct kv_daemon *d)
{
    for (int i = 0; i < KV_UNJOINED_MAX; i++)
        rpc_ep_destroy(d->unjoined[i]);
    for (struct kv_peer *peer = d->linked; peer; peer = peer->link_next) {
        rpc_ep_shutdown(peer->ep, 0, "the daemon stops");
        rpc_ep_destroy(peer->ep);
    }
}
