#include "kv/daemon/remote/remote.h"

#include "kv/daemon/client_slots.h"
#include "kv/daemon/peers.h"
#include "kv/daemon/view_peers.h"
#include "wire/le.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { BLOCK_STREAM = 1 }; /* so that small messages overtake chunks */

/* How long to wait for a view that another daemon has already; watches deliver it within
 * milliseconds. */
static const uint64_t view_wait_ns = 100 * HW_MS;

/* How long, and for how many dials, a request waits for a connection that was cut no longer ago: an
 * owner that lives is there after 20 ms, and one that does not shall not hold up its clients. */
static const uint64_t again_ns = 250 * HW_MS;
enum { AGAIN_DIALS = 3 };

/* ---- chunks ---- */

struct kv_chunk *kv_chunk_take(struct kv_daemon *d)
{
    const struct kv_memory *m = &d->config.memory;
    struct kv_chunk *chunk = d->chunks;
    if (chunk) {
        d->chunks = chunk->next;
        d->chunk_count--;
        return chunk;
    }
    chunk = m->alloc(m->user, sizeof(*chunk));
    if (chunk)
        chunk->daemon = d;
    else
        d->remotes_blocked = true;
    return chunk;
}

/* The chunk was sent, or will not be. */
static void chunk_give(void *user)
{
    struct kv_chunk *chunk = user;
    struct kv_daemon *d = chunk->daemon;
    if (d->chunk_count == KV_CHUNKS_KEPT) {
        d->config.memory.release(d->config.memory.user, chunk);
        return;
    }
    chunk->next = d->chunks;
    d->chunks = chunk;
    d->chunk_count++;
}

void kv_chunks_fini(struct kv_daemon *d)
{
    for (struct kv_chunk *chunk = d->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        d->config.memory.release(d->config.memory.user, chunk);
    }
    d->chunks = NULL;
    d->chunk_count = 0;
}

/* ---- calls ---- */

static bool is_connected(const struct kv_sub *sub)
{
    return sub->peer && sub->peer->up && sub->peer->session == sub->session;
}

void kv_sub_done(struct kv_sub *sub, enum kv_result result)
{
    assert(sub->phase != KV_SUB_DONE);
    sub->phase = KV_SUB_DONE;
    sub->result = result;
}

static void chunk_count(struct kv_sub *sub, int by)
{
    sub->busy += (uint32_t)by;
    sub->peer->chunks += (uint32_t)by;
    kv_peer_in_flight(sub->peer, by);
}

static void on_answer(void *user, int status, const struct rpc_msg *reply)
{
    struct kv_sub_call *call = user;
    struct kv_sub *sub = call->sub;
    struct kv_peer_answer answer = {.result = KV_REFUSED};
    assert(call->busy);
    call->busy = false;
    chunk_count(sub, -1);
    if (sub->remote->over || sub->phase == KV_SUB_DONE)
        return;
    if (status) {
        kv_sub_done(sub, kv_peer_status_result(sub->peer, status));
    } else if (kv_peer_answer_decode(reply->data, reply->len, &answer)) {
        kv_sub_done(sub, KV_REFUSED);
    } else if (answer.stale_view) {
        sub->stale_view = true;
        kv_sub_done(sub, KV_NOT_OWNER);
    } else {
        sub->remote->kind->answered(sub, &answer);
    }
}

static struct kv_sub_call *spare_call(struct kv_sub *sub)
{
    for (uint32_t i = 0; i < KV_SUB_CALLS; i++)
        if (!sub->calls[i].busy)
            return &sub->calls[i];
    return NULL;
}

bool kv_sub_may_move(const struct kv_sub *sub)
{
    const struct kv_daemon *d = sub->remote->daemon;
    return sub->busy < KV_SUB_CALLS && (!sub->peer || sub->peer->chunks < KV_PEER_CHUNKS) &&
           d->turn_bytes < KV_TURN_BYTES;
}

static uint64_t time_left(const struct kv_remote *remote)
{
    uint64_t now = remote->daemon->now_ns;
    return remote->deadline_ns > now ? remote->deadline_ns - now : 1;
}

/* Whether the request can be served without this owner: by another one or, of those that are asked
 * one after the other, by one that is asked later or, unless this one is known to have something
 * newer, by what an earlier one gave or this daemon has as one. */
static bool has_another(const struct kv_remote *remote, const struct kv_sub *sub)
{
    const struct kv_daemon *d = remote->daemon;
    if (!remote->kind->one_by_one)
        return !(remote->kind->needs_all && remote->kind->needs_all(remote)) &&
               (remote->sub_count > 1 || kv_share_of(d, &remote->keys[0]) != KV_SHARE_NONE);
    bool found = kv_blocks_owns(d->blocks, &remote->keys[0]) &&
                 kv_share_of(d, &remote->keys[0]) != KV_SHARE_NONE;
    for (const struct kv_sub *other = remote->subs; other < sub; other++)
        found |= other->result == KV_OK;
    return sub + 1 < remote->subs + remote->sub_count || (found && sub->phase == KV_SUB_BEGIN);
}

/* How long an owner is waited for: half of the time where another can serve.  Of a named value the
 * other's may be old, so an owner that lives gets the time to say so. */
static uint64_t owner_timeout(const struct kv_sub *sub)
{
    const struct kv_remote *remote = sub->remote;
    uint64_t left = time_left(remote);
    uint64_t least = kv_block_key_is_named(&remote->keys[0]) ? again_ns : 1;
    if (!has_another(remote, sub) || left <= least)
        return left;
    return left / 2 > least ? left / 2 : least;
}

/* `send` has the payload. */
static bool send_call(struct kv_sub *sub, enum kv_peer_method method, struct rpc_send *send)
{
    struct kv_remote *remote = sub->remote;
    struct kv_sub_call *call = spare_call(sub);
    assert(call);
    send->method = method;
    send->stream = BLOCK_STREAM;
    send->timeout_ns = owner_timeout(sub);
    int rc = rpc_call(sub->peer->ep, send, on_answer, call, &call->id);
    if (rc == 0) {
        call->busy = true;
        chunk_count(sub, 1);
    } else if (rc != -EAGAIN && rc != -ENOBUFS) {
        kv_sub_done(sub, rc == -EMSGSIZE ? KV_TOO_LARGE : KV_PEER_LOST);
    } else {
        remote->daemon->remotes_blocked = true;
    }
    return rc == 0;
}

/* Whether there is a connection to begin with, or soon: one that failed lately is waited for only
 * by a request that nobody else could serve. */
static bool may_connect(struct kv_sub *sub)
{
    struct kv_peer *peer = sub->peer;
    if (!sub->waits || !peer || peer->id != sub->member)
        return false;
    if (peer->up) {
        sub->session = peer->session;
        sub->waits = false;
        sub->until_ns = 0;
        return true;
    }
    if (peer->we_dial && sub->remote->daemon->now_ns >= peer->dial_at_ns)
        kv_peer_want(peer);
    bool again =
        sub->remote->daemon->now_ns < sub->remote->again_until_ns && peer->failures <= AGAIN_DIALS;
    return peer->we_dial && ((peer->wanted && peer->failures == 0) || again);
}

bool kv_sub_is_late(struct kv_sub *sub)
{
    uint64_t now = sub->remote->daemon->now_ns;
    if (sub->until_ns == 0)
        sub->until_ns = now + owner_timeout(sub);
    return now >= sub->until_ns;
}

/* False: the sub-request waits, or is done. */
static bool reach(struct kv_sub *sub)
{
    if (!is_connected(sub) && !may_connect(sub))
        kv_sub_done(sub, KV_PEER_LOST);
    else if (sub->waits && kv_sub_is_late(sub)) /* who was stopped takes a dial and says nothing */
        kv_sub_done(sub, KV_TIMEOUT);
    return is_connected(sub) && sub->phase != KV_SUB_DONE;
}

bool kv_sub_call(struct kv_sub *sub, struct kv_peer_request *request,
                 const struct kv_block_key *keys)
{
    struct kv_remote *remote = sub->remote;
    uint8_t *payload = remote->daemon->scratch->payload;
    request->epoch = remote->epoch;
    int len = kv_peer_request_encode(request, keys, payload, KV_PEER_REQUEST_MAX);
    assert(len > 0);
    struct iovec iov = {payload, (size_t)len};
    struct rpc_send send = {.iov = &iov, .iov_count = 1};
    return reach(sub) && send_call(sub, request->method, &send);
}

bool kv_sub_write(struct kv_sub *sub, struct kv_peer_request *request, struct kv_chunk *chunk)
{
    request->epoch = sub->remote->epoch;
    int len = kv_peer_request_encode(request, NULL, chunk->data, KV_PEER_HEAD_BYTES);
    assert(len == KV_PEER_HEAD_BYTES);
    struct iovec iov = {chunk->data, (size_t)len + request->byte_count};
    struct rpc_send send = {.iov = &iov, .iov_count = 1, .sent = chunk_give, .sent_user = chunk};
    bool goes = reach(sub) && send_call(sub, request->method, &send);
    if (!goes)
        chunk_give(chunk);
    return goes;
}

bool kv_sub_put_off(struct kv_sub *sub, const struct kv_peer_answer *a)
{
    if (a->result != KV_OK || a->payload_len != KV_PEER_WAIT_BYTES)
        return false;
    sub->not_before_ns = sub->remote->daemon->now_ns + wire_load64(a->payload);
    sub->phase = KV_SUB_MOVING;
    return true;
}

void kv_sub_post(struct kv_sub *sub, struct kv_peer_request *request,
                 const struct kv_block_key *key)
{
    uint8_t payload[KV_PEER_HEAD_BYTES + 1 + KV_BLOCK_KEY_MAX];
    if (!is_connected(sub))
        return;
    request->key_count = key ? 1 : 0;
    int len = kv_peer_request_encode(request, key, payload, sizeof(payload));
    assert(len > 0);
    struct iovec iov = {payload, (size_t)len};
    struct rpc_send send = {
        .method = request->method, .stream = BLOCK_STREAM, .iov = &iov, .iov_count = 1};
    int rc = rpc_post(sub->peer->ep, &send);
    (void)rc; /* the owner ends it by its own deadline */
    kv_peer_wake(sub->peer);
}

/* ---- sub-requests ---- */

struct kv_sub *kv_remote_add_sub(struct kv_remote *remote, uint32_t place)
{
    struct kv_daemon *d = remote->daemon;
    struct kv_sub *sub = &remote->subs[remote->sub_count++];
    *sub = (struct kv_sub){.remote = remote, .member = d->view.members[place].id};
    sub->self = sub->member == d->self;
    if (!sub->self && d->peer_of[place] != KV_PEER_NONE) {
        sub->peer = &d->peers[d->peer_of[place]];
        sub->session = sub->peer->session;
        sub->waits = !sub->peer->up;
    }
    for (uint32_t i = 0; i < KV_SUB_CALLS; i++)
        sub->calls[i].sub = sub;
    return sub;
}

uint32_t kv_remote_owners(const struct kv_remote *remote, uint32_t owners[KV_COPIES_MAX])
{
    const struct kv_daemon *d = remote->daemon;
    return kv_view_owners(&d->view, kv_block_hash(&remote->keys[0]), d->config.copies, owners);
}

static void subs_end(struct kv_remote *remote)
{
    remote->over = true; /* on_answer ignores cancelled calls */
    for (uint32_t i = 0; i < remote->sub_count; i++) {
        struct kv_sub *sub = &remote->subs[i];
        for (uint32_t k = 0; k < KV_SUB_CALLS; k++)
            if (sub->calls[k].busy)
                (void)rpc_cancel(sub->peer->ep, sub->calls[k].id);
        assert(sub->busy == 0);
        if (remote->kind->undo)
            remote->kind->undo(remote, sub);
    }
    remote->sub_count = 0;
    remote->over = false;
}

/* ---- start and end ---- */

/* One allocation for the remote request, its sub-requests, keys and states. */
static struct kv_remote *remote_alloc(struct kv_daemon *d, const struct kv_remote_kind *kind,
                                      uint32_t keys)
{
    const struct kv_memory *m = &d->config.memory;
    size_t subs =
        (kind->subs_max ? kind->subs_max : keys * d->config.copies) * sizeof(struct kv_sub);
    size_t bytes = sizeof(struct kv_remote) + subs +
                   keys * (sizeof(struct kv_block_key) + sizeof(struct kv_key_state));
    struct kv_remote *remote = m->alloc(m->user, bytes);
    if (!remote)
        return NULL;
    remote->subs = (struct kv_sub *)(remote + 1);
    remote->states = (struct kv_key_state *)((uint8_t *)remote->subs + subs);
    remote->keys = (struct kv_block_key *)(remote->states + keys);
    return remote;
}

struct kv_remote *kv_remote_add(struct kv_daemon *d, const struct kv_remote_kind *kind,
                                const struct kv_block_request *r, const struct kv_block_key *keys,
                                uint64_t deadline_ns)
{
    struct kv_remote *remote =
        d->remote_count < KV_REMOTES_MAX ? remote_alloc(d, kind, r->key_count) : NULL;
    if (!remote)
        return NULL;
    remote->kind = kind;
    remote->daemon = d;
    remote->deadline_ns = deadline_ns;
    remote->request = *r;
    remote->epoch = d->view.epoch;
    memcpy(remote->keys, keys, r->key_count * sizeof(keys[0]));
    remote->prev = d->remotes_last;
    *(d->remotes_last ? &d->remotes_last->next : &d->remotes) = remote;
    d->remotes_last = remote;
    d->remote_count++;
    return remote;
}

void kv_remote_start(struct kv_daemon *d, struct kv_pending *p, const struct kv_remote_kind *kind,
                     const struct kv_block_request *r, const struct kv_block_key *keys)
{
    struct kv_remote *remote = kv_remote_add(d, kind, r, keys, p->deadline_ns);
    if (!remote) {
        kv_client_slot_answer(p, KV_FULL, NULL, 0);
        return;
    }
    kv_remote_attach(remote, p);
    hw_counter_bump(&d->stats.block_remote, 1);
}

void kv_remote_attach(struct kv_remote *remote, struct kv_pending *p)
{
    assert(!remote->pending);
    remote->client = p->client;
    remote->pending = p;
    remote->deadline_ns = p->deadline_ns;
    remote->early = false;
    p->state = PENDING_REMOTE;
    p->remote = remote;
}

static void remote_free(struct kv_remote *remote)
{
    struct kv_daemon *d = remote->daemon;
    subs_end(remote);
    *(remote->prev ? &remote->prev->next : &d->remotes) = remote->next;
    *(remote->next ? &remote->next->prev : &d->remotes_last) = remote->prev;
    d->remote_count--;
    if (remote->pending) {
        remote->pending->state = PENDING_IDLE;
        remote->pending->remote = NULL;
    }
    d->config.memory.release(d->config.memory.user, remote);
}

void kv_remote_drop(struct kv_remote *remote)
{
    assert(!remote->pending);
    remote_free(remote);
}

void kv_remote_forget(struct kv_pending *p)
{
    p->busy = false;
    remote_free(p->remote);
}

static void remote_end(struct kv_remote *remote, enum kv_result result, uint32_t answer_len)
{
    struct kv_pending *p = remote->pending;
    struct kv_daemon *d = remote->daemon;
    remote_free(remote);
    if (p)
        kv_client_slot_answer(p, result, d->scratch->answer, answer_len);
}

void kv_remotes_fini(struct kv_daemon *d)
{
    while (d->remotes) {
        assert(!d->remotes->pending); /* clients are gone before their daemon */
        remote_free(d->remotes);
    }
}

/* ---- steps ---- */

static bool all_done(const struct kv_remote *remote)
{
    for (uint32_t i = 0; i < remote->sub_count; i++)
        if (remote->subs[i].phase != KV_SUB_DONE)
            return false;
    return true;
}

static bool is_final(const struct kv_remote *remote)
{
    return remote->kind->is_final && remote->kind->is_final(remote);
}

/* Whether a sub-request may have failed because the view was old, and it may begin again. */
static bool is_misled(const struct kv_remote *remote)
{
    bool changed = remote->daemon->view.epoch != remote->epoch, final = is_final(remote);
    for (uint32_t i = 0; i < remote->sub_count && !final; i++) {
        const struct kv_sub *sub = &remote->subs[i];
        if (sub->phase == KV_SUB_DONE &&
            (sub->stale_view || (changed && sub->result == KV_PEER_LOST)))
            return true;
    }
    return false;
}

bool kv_remote_is_cut(const struct kv_remote *remote)
{
    bool repeats = remote->client && !remote->kind->once && !is_final(remote);
    for (uint32_t i = 0; i < remote->sub_count && repeats; i++) {
        const struct kv_sub *sub = &remote->subs[i];
        const struct kv_peer *peer = sub->peer;
        if (sub->result == KV_PEER_LOST && !(sub->waits && remote->again_until_ns) && peer &&
            peer->id == sub->member && peer->we_dial && peer->failures <= AGAIN_DIALS &&
            remote->daemon->now_ns < peer->missed_ns + again_ns)
            return true;
    }
    return false;
}

enum kv_result kv_remote_found(const struct kv_remote *remote)
{
    enum kv_result worst = remote->sub_count ? KV_MISS : KV_PEER_LOST;
    for (uint32_t i = 0; i < remote->sub_count; i++) {
        if (remote->subs[i].result == KV_OK)
            return KV_OK;
        if (worst == KV_MISS && !remote->subs[i].stale_view)
            worst = remote->subs[i].result;
    }
    return worst;
}

static void begin(struct kv_remote *remote)
{
    remote->epoch = remote->daemon->view.epoch;
    remote->wait_until_ns = 0;
    remote->sub_at = 0;
    remote->kind->begin(remote);
}

/* Begins again at once if there is a newer view, else when one comes, or after a while: the other
 * daemon's view may be the old one. */
static void begin_again(struct kv_remote *remote)
{
    struct kv_daemon *d = remote->daemon;
    hw_counter_bump(&d->stats.block_stale_views, 1);
    subs_end(remote);
    remote->retried = true;
    if (d->view.epoch != remote->epoch)
        begin(remote);
    else
        remote->wait_until_ns = d->now_ns + view_wait_ns;
}

static bool waits(const struct kv_remote *remote)
{
    const struct kv_daemon *d = remote->daemon;
    return remote->wait_until_ns && d->view.epoch == remote->epoch &&
           d->now_ns < remote->wait_until_ns;
}

/* True: progress. */
static bool remote_step(struct kv_remote *remote)
{
    uint32_t answer_len = 0;
    bool progress = remote->wait_until_ns != 0 || remote->sub_count == 0;
    if (remote->daemon->now_ns >= remote->deadline_ns) {
        remote_end(remote, KV_TIMEOUT, 0);
        return true;
    }
    if (waits(remote))
        return false;
    if (remote->wait_until_ns || remote->sub_count == 0)
        begin(remote);
    for (uint32_t i = 0; i < remote->sub_count; i++)
        if (remote->subs[i].phase != KV_SUB_DONE)
            progress |= remote->kind->step(remote, &remote->subs[i]);
    if (!remote->retried && is_misled(remote)) {
        begin_again(remote);
        return true;
    }
    if (!all_done(remote) || remote->early)
        return progress;
    enum kv_result result = remote->kind->finish(remote, &answer_len);
    if (!all_done(remote))
        return true; /* it goes on with another sub-request */
    if (result == KV_PEER_LOST && kv_remote_is_cut(remote)) {
        subs_end(remote); /* the next turn begins it again */
        remote->again_until_ns = remote->daemon->now_ns + again_ns;
    } else {
        remote_end(remote, result, answer_len);
    }
    return true;
}

uint32_t kv_remotes_step(struct kv_daemon *d)
{
    uint32_t events = 0;
    d->remotes_blocked = false;
    for (struct kv_remote *remote = d->remotes, *next; remote; remote = next) {
        next = remote->next;
        events += remote_step(remote);
    }
    return events;
}

/* When a sub-request that waits for a connection gives up, or one that was put off goes on, if that
 * is earlier. */
static uint64_t wait_end(const struct kv_sub *sub, uint64_t due)
{
    uint64_t end = 0;
    if ((sub->phase == KV_SUB_BEGIN && sub->waits) || sub->busy > 0)
        end = sub->until_ns;
    else if (sub->phase == KV_SUB_MOVING)
        end = sub->not_before_ns;
    return end && end < due ? end : due;
}

uint64_t kv_remotes_next_tick(const struct kv_daemon *d)
{
    uint64_t next = d->remotes_blocked ? d->now_ns + HW_MS : HW_NEVER;
    for (const struct kv_remote *remote = d->remotes; remote; remote = remote->next) {
        uint64_t due = remote->deadline_ns;
        if (remote->wait_until_ns && remote->wait_until_ns < due)
            due = remote->wait_until_ns;
        if (remote->again_until_ns > d->now_ns && remote->again_until_ns < due)
            due = remote->again_until_ns;
        for (uint32_t i = 0; i < remote->sub_count; i++)
            due = wait_end(&remote->subs[i], due);
        next = due < next ? due : next;
    }
    return next;
}
