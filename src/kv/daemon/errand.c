/* errand.c - the life of errands: calls, views that change, deadlines, ends. */
#include "kv/daemon/errand.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { PIECE_STREAM = 1 }; /* small messages pass pieces by */

/* For the view to come that another daemon has already: watches tell all within milliseconds. */
static const uint64_t view_wait_ns = 100 * HW_MS;
static const uint64_t mend_lasts_ns = KV_PUT_LASTS_NS; /* it is a put, made by ourselves */

uint8_t *kv_errand_answer(struct kv_errand *e)
{
    return kv_desk_answer(e->daemon);
}

/* ---- pieces ---- */

struct kv_piece *kv_piece_take(struct kv_daemon *d)
{
    const struct kv_memory *m = &d->config.memory;
    struct kv_piece *piece = d->pieces;
    if (piece) {
        d->pieces = piece->next;
        d->piece_count--;
        return piece;
    }
    piece = m->alloc(m->user, sizeof(*piece));
    if (piece)
        piece->daemon = d;
    else
        d->errands_blocked = true;
    return piece;
}

/* It is sent, or is not to be. */
static void piece_give(void *user)
{
    struct kv_piece *piece = user;
    struct kv_daemon *d = piece->daemon;
    if (d->piece_count == KV_PIECES_KEPT) {
        d->config.memory.release(d->config.memory.user, piece);
        return;
    }
    piece->next = d->pieces;
    d->pieces = piece;
    d->piece_count++;
}

void kv_pieces_fini(struct kv_daemon *d)
{
    for (struct kv_piece *piece = d->pieces, *next; piece; piece = next) {
        next = piece->next;
        d->config.memory.release(d->config.memory.user, piece);
    }
    d->pieces = NULL;
    d->piece_count = 0;
}

/* ---- calls ---- */

static bool is_connected(const struct kv_leg *leg)
{
    return leg->peer && leg->peer->up && leg->peer->session == leg->session;
}

void kv_leg_done(struct kv_leg *leg, enum kv_result result)
{
    assert(leg->phase != KV_LEG_DONE);
    leg->phase = KV_LEG_DONE;
    leg->result = result;
}

static void piece_count(struct kv_leg *leg, int by)
{
    leg->busy += (uint32_t)by;
    leg->peer->pieces += (uint32_t)by;
    kv_peer_in_flight(leg->peer, by);
}

static void on_answer(void *user, int status, const struct rpc_msg *reply)
{
    struct kv_leg_call *call = user;
    struct kv_leg *leg = call->leg;
    struct kv_peer_answer answer = {.result = KV_REFUSED};
    assert(call->busy);
    call->busy = false;
    piece_count(leg, -1);
    if (leg->errand->over || leg->phase == KV_LEG_DONE)
        return;
    if (status) {
        kv_leg_done(leg, kv_peer_status_result(leg->peer, status));
    } else if (kv_peer_answer_decode(reply->data, reply->len, &answer)) {
        kv_leg_done(leg, KV_REFUSED);
    } else if (answer.stale_view) {
        leg->stale_view = true;
        kv_leg_done(leg, KV_STALE);
    } else {
        leg->errand->kind->answered(leg, &answer);
    }
}

static struct kv_leg_call *spare_call(struct kv_leg *leg)
{
    for (uint32_t i = 0; i < KV_LEG_CALLS; i++)
        if (!leg->calls[i].busy)
            return &leg->calls[i];
    return NULL;
}

bool kv_leg_may_move(const struct kv_leg *leg)
{
    const struct kv_daemon *d = leg->errand->daemon;
    return leg->busy < KV_LEG_CALLS && (!leg->peer || leg->peer->pieces < KV_PEER_PIECES) &&
           d->turn_bytes < KV_TURN_BYTES;
}

static uint64_t time_left(const struct kv_errand *e)
{
    uint64_t now = e->daemon->now_ns;
    return e->deadline_ns > now ? e->deadline_ns - now : 1;
}

/* Where there is another copy it must still get its chance. */
static uint64_t call_timeout(const struct kv_errand *e)
{
    bool in_turn = e->kind == &kv_errand_get || e->kind == &kv_errand_mending;
    bool another = in_turn && e->leg_at + 1 < e->leg_count;
    return another ? time_left(e) / 2 : time_left(e);
}

/* `send` has the payload. */
static bool send_call(struct kv_leg *leg, enum kv_peer_method method, struct rpc_send *send)
{
    struct kv_errand *e = leg->errand;
    struct kv_leg_call *call = spare_call(leg);
    assert(call);
    send->method = method;
    send->stream = PIECE_STREAM;
    send->timeout_ns = call_timeout(e);
    int rc = rpc_call(leg->peer->ep, send, on_answer, call, &call->id);
    if (rc == 0) {
        call->busy = true;
        piece_count(leg, 1);
    } else if (rc != -EAGAIN && rc != -ENOBUFS) {
        kv_leg_done(leg, rc == -EMSGSIZE ? KV_TOO_LARGE : KV_PEER_LOST);
    } else {
        e->daemon->errands_blocked = true;
    }
    return rc == 0;
}

/* False: the leg is done. */
static bool reach(struct kv_leg *leg)
{
    if (!is_connected(leg))
        kv_leg_done(leg, KV_PEER_LOST);
    return leg->phase != KV_LEG_DONE;
}

bool kv_leg_call(struct kv_leg *leg, struct kv_peer_request *request,
                 const struct kv_block_key *keys)
{
    struct kv_errand *e = leg->errand;
    uint8_t *body = kv_desk_body(e->daemon);
    request->epoch = e->epoch;
    int len = kv_peer_request_encode(request, keys, body, KV_PEER_REQUEST_MAX);
    assert(len > 0);
    struct iovec iov = {body, (size_t)len};
    struct rpc_send send = {.iov = &iov, .iov_count = 1};
    return reach(leg) && send_call(leg, request->method, &send);
}

bool kv_leg_write(struct kv_leg *leg, struct kv_peer_request *request, struct kv_piece *piece)
{
    request->epoch = leg->errand->epoch;
    int len = kv_peer_request_encode(request, NULL, piece->data, KV_PEER_HEAD_BYTES);
    assert(len == KV_PEER_HEAD_BYTES);
    struct iovec iov = {piece->data, (size_t)len + request->byte_count};
    struct rpc_send send = {.iov = &iov, .iov_count = 1, .sent = piece_give, .sent_user = piece};
    bool goes = reach(leg) && send_call(leg, request->method, &send);
    if (!goes)
        piece_give(piece);
    return goes;
}

void kv_leg_post(struct kv_leg *leg, struct kv_peer_request *request,
                 const struct kv_block_key *key)
{
    uint8_t body[KV_PEER_HEAD_BYTES + 1 + KV_BLOCK_KEY_MAX];
    if (!is_connected(leg))
        return;
    request->key_count = key ? 1 : 0;
    int len = kv_peer_request_encode(request, key, body, sizeof(body));
    assert(len > 0);
    struct iovec iov = {body, (size_t)len};
    struct rpc_send send = {
        .method = request->method, .stream = PIECE_STREAM, .iov = &iov, .iov_count = 1};
    int rc = rpc_post(leg->peer->ep, &send);
    (void)rc; /* what it would have given back ends by its time */
}

/* ---- legs ---- */

struct kv_leg *kv_errand_add_leg(struct kv_errand *e, uint32_t place)
{
    struct kv_daemon *d = e->daemon;
    struct kv_leg *leg = &e->legs[e->leg_count++];
    *leg = (struct kv_leg){.errand = e, .member = d->view.members[place].id};
    leg->self = leg->member == d->self;
    if (!leg->self && d->slot_of[place] != KV_SLOT_NONE) {
        leg->peer = &d->peers[d->slot_of[place]];
        leg->session = leg->peer->session;
    }
    for (uint32_t i = 0; i < KV_LEG_CALLS; i++)
        leg->calls[i].leg = leg;
    return leg;
}

uint32_t kv_errand_owners(const struct kv_errand *e, uint32_t owners[KV_COPIES_MAX])
{
    const struct kv_daemon *d = e->daemon;
    return kv_view_owners(&d->view, kv_block_hash(&e->keys[0]), d->config.copies, owners);
}

static void legs_end(struct kv_errand *e)
{
    e->over = true; /* what cancelling calls back with is of no interest */
    for (uint32_t i = 0; i < e->leg_count; i++) {
        struct kv_leg *leg = &e->legs[i];
        for (uint32_t k = 0; k < KV_LEG_CALLS; k++)
            if (leg->calls[k].busy)
                (void)rpc_cancel(leg->peer->ep, leg->calls[k].id);
        assert(leg->busy == 0);
        if (e->kind->undo)
            e->kind->undo(e, leg);
    }
    e->leg_count = 0;
    e->over = false;
}

/* ---- coming and going ---- */

static size_t legs_of(const struct kv_errand_kind *kind)
{
    return kind == &kv_errand_keys ? KV_MEMBERS_MAX : KV_COPIES_MAX;
}

/* In one piece: the errand, its legs, keys and states. */
static struct kv_errand *errand_alloc(struct kv_daemon *d, const struct kv_errand_kind *kind,
                                      uint32_t keys)
{
    const struct kv_memory *m = &d->config.memory;
    size_t legs = legs_of(kind) * sizeof(struct kv_leg);
    size_t bytes = sizeof(struct kv_errand) + legs +
                   keys * (sizeof(struct kv_block_key) + sizeof(struct kv_key_state));
    struct kv_errand *e = m->alloc(m->user, bytes);
    if (!e)
        return NULL;
    e->legs = (struct kv_leg *)(e + 1);
    e->states = (struct kv_key_state *)((uint8_t *)e->legs + legs);
    e->keys = (struct kv_block_key *)(e->states + keys);
    return e;
}

/* NULL: too many, or no memory. */
static struct kv_errand *errand_add(struct kv_daemon *d, const struct kv_errand_kind *kind,
                                    const struct kv_block_request *r,
                                    const struct kv_block_key *keys, uint64_t deadline_ns)
{
    struct kv_errand *e =
        d->errand_count < KV_ERRANDS_MAX ? errand_alloc(d, kind, r->key_count) : NULL;
    if (!e)
        return NULL;
    e->kind = kind;
    e->daemon = d;
    e->deadline_ns = deadline_ns;
    e->request = *r;
    e->epoch = d->view.epoch;
    memcpy(e->keys, keys, r->key_count * sizeof(keys[0]));
    e->prev = d->errands_last;
    *(d->errands_last ? &d->errands_last->next : &d->errands) = e;
    d->errands_last = e;
    d->errand_count++;
    return e;
}

void kv_errand_start(struct kv_daemon *d, struct kv_pending *p, const struct kv_errand_kind *kind,
                     const struct kv_block_request *r, const struct kv_block_key *keys)
{
    struct kv_errand *e = errand_add(d, kind, r, keys, p->deadline_ns);
    if (!e) {
        kv_seat_answer(p, KV_FULL, NULL, 0);
        return;
    }
    kv_errand_attach(e, p);
    hw_counter_bump(&d->stats.block_errands, 1);
}

void kv_errand_attach(struct kv_errand *e, struct kv_pending *p)
{
    assert(!e->pending);
    e->seat = p->seat;
    e->pending = p;
    e->deadline_ns = p->deadline_ns;
    e->early = false;
    p->state = PENDING_ERRAND;
    p->errand = e;
}

struct kv_errand *kv_errand_start_early(struct kv_daemon *d, struct kv_seat *s,
                                        const struct kv_errand_kind *kind,
                                        const struct kv_block_request *r,
                                        const struct kv_block_key *keys)
{
    uint64_t lasts = d->config.blocks.put_lasts_ns;
    struct kv_errand *e =
        errand_add(d, kind, r, keys, d->now_ns + (lasts ? lasts : KV_PUT_LASTS_NS));
    if (!e)
        return NULL;
    e->seat = s;
    e->early = true;
    hw_counter_bump(&d->stats.block_errands, 1);
    return e;
}

/* Whether another may begin: not of the same key, and not too many. */
static bool may_mend(const struct kv_daemon *d, const struct kv_block_key *key)
{
    uint32_t count = 0;
    for (const struct kv_errand *e = d->errands; e; e = e->next) {
        if (e->kind != &kv_errand_mending)
            continue;
        if (kv_block_key_equal(&e->keys[0], key))
            return false;
        count++;
    }
    return count < KV_MENDS_MAX;
}

void kv_errand_mend(struct kv_daemon *d, const struct kv_block_key *key)
{
    struct kv_block_request r = {.op = KV_BLOCK_GET, .key_count = 1};
    if (d->alone || kv_share_of(d, key) != KV_SHARE_COPY || kv_blocks_owns(d->blocks, key) ||
        !may_mend(d, key))
        return;
    (void)errand_add(d, &kv_errand_mending, &r, key, d->now_ns + mend_lasts_ns);
}

static void errand_free(struct kv_errand *e)
{
    struct kv_daemon *d = e->daemon;
    legs_end(e);
    *(e->prev ? &e->prev->next : &d->errands) = e->next;
    *(e->next ? &e->next->prev : &d->errands_last) = e->prev;
    d->errand_count--;
    if (e->pending) {
        e->pending->state = PENDING_IDLE;
        e->pending->errand = NULL;
    }
    d->config.memory.release(d->config.memory.user, e);
}

void kv_errand_drop(struct kv_errand *e)
{
    assert(!e->pending);
    errand_free(e);
}

void kv_errand_forget(struct kv_pending *p)
{
    p->busy = false;
    errand_free(p->errand);
}

static void errand_end(struct kv_errand *e, enum kv_result result, uint32_t answer_len)
{
    struct kv_pending *p = e->pending;
    struct kv_daemon *d = e->daemon;
    errand_free(e);
    if (p)
        kv_seat_answer(p, result, kv_desk_answer(d), answer_len);
}

void kv_errands_fini(struct kv_daemon *d)
{
    while (d->errands) {
        assert(!d->errands->pending); /* clients are gone before their daemon */
        errand_free(d->errands);
    }
}

/* ---- steps ---- */

static bool all_done(const struct kv_errand *e)
{
    for (uint32_t i = 0; i < e->leg_count; i++)
        if (e->legs[i].phase != KV_LEG_DONE)
            return false;
    return true;
}

/* Whether what went wrong may be because the members are others than it thought. */
static bool is_misled(const struct kv_errand *e)
{
    bool changed = e->daemon->view.epoch != e->epoch;
    for (uint32_t i = 0; i < e->leg_count; i++) {
        const struct kv_leg *leg = &e->legs[i];
        if (leg->phase == KV_LEG_DONE &&
            (leg->stale_view || (changed && leg->result == KV_PEER_LOST)))
            return true;
    }
    return false;
}

static void begin(struct kv_errand *e)
{
    e->epoch = e->daemon->view.epoch;
    e->wait_until_ns = 0;
    e->leg_at = 0;
    e->kind->begin(e);
}

/* The second time at once where there is another view already, else when there is, or after a
 * while: it may be the other side that is behind. */
static void begin_again(struct kv_errand *e)
{
    struct kv_daemon *d = e->daemon;
    hw_counter_bump(&d->stats.block_stale_views, 1);
    legs_end(e);
    e->retried = true;
    if (d->view.epoch != e->epoch)
        begin(e);
    else
        e->wait_until_ns = d->now_ns + view_wait_ns;
}

static bool waits(const struct kv_errand *e)
{
    const struct kv_daemon *d = e->daemon;
    return e->wait_until_ns && d->view.epoch == e->epoch && d->now_ns < e->wait_until_ns;
}

/* True: something was done. */
static bool errand_step(struct kv_errand *e)
{
    uint32_t answer_len = 0;
    bool progress = e->wait_until_ns != 0 || e->leg_count == 0;
    if (e->daemon->now_ns >= e->deadline_ns) {
        errand_end(e, KV_TIMEOUT, 0);
        return true;
    }
    if (waits(e))
        return false;
    if (e->wait_until_ns || e->leg_count == 0)
        begin(e);
    for (uint32_t i = 0; i < e->leg_count; i++)
        if (e->legs[i].phase != KV_LEG_DONE)
            progress |= e->kind->step(e, &e->legs[i]);
    if (!e->retried && is_misled(e)) {
        begin_again(e);
        return true;
    }
    if (!all_done(e) || e->early)
        return progress;
    enum kv_result result = e->kind->finish(e, &answer_len);
    if (all_done(e)) /* or it goes on, with another leg */
        errand_end(e, result, answer_len);
    return true;
}

uint32_t kv_errands_step(struct kv_daemon *d)
{
    uint32_t events = 0;
    d->errands_blocked = false;
    for (struct kv_errand *e = d->errands, *next; e; e = next) {
        next = e->next;
        events += errand_step(e);
    }
    return events;
}

uint64_t kv_errands_next_tick(const struct kv_daemon *d)
{
    uint64_t next = d->errands_blocked ? d->now_ns + HW_MS : HW_NEVER;
    for (const struct kv_errand *e = d->errands; e; e = e->next) {
        uint64_t due = e->deadline_ns;
        if (e->wait_until_ns && e->wait_until_ns < due)
            due = e->wait_until_ns;
        next = due < next ? due : next;
    }
    return next;
}
