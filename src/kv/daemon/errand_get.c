/* errand_get.c - a block of another daemon: read into a guest copy, which is then leased.
 *
 * A copy that is here already is used only on the owner's word that it is the same (OPEN_GET with
 * its checksum), so a deleted block is a miss everywhere at once.
 *
 * Copies are put right on the way: who should have the block and reads it from the other owner
 * keeps it; an owner that was asked and lacks it, or sent spoilt bytes, is told to fetch it. */
#include "kv/daemon/errand.h"

#include "wire/le.h"

#include <assert.h>

static void get_begin(struct kv_errand *e)
{
    uint32_t owners[KV_COPIES_MAX];
    uint32_t count = kv_errand_owners(e, owners);
    e->same = false;
    for (uint32_t i = 0; i < count; i++)
        if (e->daemon->view.members[owners[i]].id != e->daemon->self)
            (void)kv_errand_add_leg(e, owners[i]);
}

/* ---- one owner ---- */

static bool open_leg(struct kv_errand *e, struct kv_leg *leg)
{
    struct kv_peer_request r = {.method = KV_PEER_OPEN_GET, .key_count = 1};
    (void)kv_blocks_peek(e->daemon->blocks, &e->keys[0], &r.checksum);
    if (!kv_leg_call(leg, &r, e->keys))
        return leg->phase == KV_LEG_DONE;
    leg->phase = KV_LEG_OPENING;
    return true;
}

static bool read_pieces(struct kv_errand *e, struct kv_leg *leg)
{
    bool progress = false;
    while (leg->asked < e->opened.len && kv_leg_may_move(leg)) {
        uint32_t rest = e->opened.len - leg->asked;
        struct kv_peer_request r = {.method = KV_PEER_READ,
                                    .handle = leg->handle,
                                    .at = leg->asked,
                                    .len = rest < leg->piece ? rest : leg->piece};
        if (!kv_leg_call(leg, &r, NULL))
            return progress || leg->phase == KV_LEG_DONE;
        leg->asked += r.len;
        progress = true;
    }
    return progress;
}

static void tell(struct kv_errand *e, struct kv_leg *leg, enum kv_peer_method what)
{
    struct kv_peer_request r = {.method = what, .epoch = e->epoch};
    kv_leg_post(leg, &r, &e->keys[0]);
}

static void get_undo(struct kv_errand *e, struct kv_leg *leg)
{
    struct kv_daemon *d = e->daemon;
    struct kv_peer_request r = {.method = KV_PEER_CLOSE, .handle = leg->handle};
    if (leg->handle)
        kv_leg_post(leg, &r, NULL);
    leg->handle = 0;
    if (leg->spoilt)
        tell(e, leg, KV_PEER_SPOILT);
    leg->spoilt = false;
    if (e->ticket)
        (void)kv_blocks_put_abort(d->blocks, &d->guest_holder, e->ticket, d->now_ns);
    e->ticket = 0;
}

static bool get_step(struct kv_errand *e, struct kv_leg *leg)
{
    struct kv_leg *current = &e->legs[e->leg_at];
    if (leg != current) {
        if (current->phase != KV_LEG_DONE)
            return false;
        if (current->result == KV_OK) {
            kv_leg_done(leg, KV_OK); /* not needed */
            return true;
        }
        get_undo(e, current);
        e->leg_at = (uint32_t)(leg - e->legs);
    }
    if (leg->phase == KV_LEG_BEGIN)
        return open_leg(e, leg);
    return leg->phase == KV_LEG_MOVING && read_pieces(e, leg);
}

/* A block that is ours, and came while the other owner was asked, is as good as its. */
static bool is_put_here(const struct kv_errand *e)
{
    return kv_blocks_owns(e->daemon->blocks, &e->keys[0]) &&
           kv_share_of(e->daemon, &e->keys[0]) != KV_SHARE_NONE;
}

static void on_opened(struct kv_leg *leg, const struct kv_peer_answer *a)
{
    struct kv_errand *e = leg->errand;
    struct kv_daemon *d = e->daemon;
    struct kv_peer_opened opened;
    if (kv_peer_opened_decode(a->body, a->body_len, &opened)) {
        kv_leg_done(leg, KV_REFUSED);
        return;
    }
    e->opened = opened;
    leg->handle = opened.same ? 0 : opened.lease;
    if (opened.same || is_put_here(e)) {
        e->same = true;
        kv_leg_done(leg, KV_OK);
        return;
    }
    leg->piece = opened.piece;
    enum kv_result result = kv_blocks_guest_start(d->blocks, &d->guest_holder, &e->keys[0],
                                                  opened.len, d->now_ns, &e->ticket);
    if (result == KV_OK)
        leg->phase = KV_LEG_MOVING;
    else
        kv_leg_done(leg, result);
}

/* All bytes are here. */
static enum kv_result publish_guest(struct kv_errand *e, struct kv_leg *leg)
{
    struct kv_daemon *d = e->daemon;
    enum kv_result result = kv_blocks_put_commit_as(d->blocks, &d->guest_holder, e->ticket,
                                                    e->opened.checksum, d->now_ns);
    e->ticket = 0;
    leg->spoilt = result == KV_MISS;
    return result == KV_STALE ? KV_OK : result; /* another of our clients got it meanwhile */
}

static void on_piece(struct kv_leg *leg, const struct kv_peer_answer *a)
{
    struct kv_errand *e = leg->errand;
    struct kv_daemon *d = e->daemon;
    uint32_t rest = e->opened.len - leg->moved;
    enum kv_result result = KV_REFUSED;
    if (a->body_len == (rest < leg->piece ? rest : leg->piece)) /* they come as they were asked */
        result = kv_blocks_put_write(d->blocks, &d->guest_holder, e->ticket, leg->moved, a->body,
                                     a->body_len, d->now_ns);
    d->turn_bytes += a->body_len;
    leg->moved += a->body_len;
    if (result == KV_OK && leg->moved == e->opened.len)
        kv_leg_done(leg, publish_guest(e, leg));
    else if (result != KV_OK)
        kv_leg_done(leg, result == KV_STALE ? KV_TIMEOUT : result);
}

static void get_answered(struct kv_leg *leg, const struct kv_peer_answer *a)
{
    if (a->result != KV_OK) {
        /* A lease that ended under way is a transfer that took too long. */
        kv_leg_done(leg, a->result == KV_EXPIRED ? KV_TIMEOUT : a->result);
        return;
    }
    if (leg->phase == KV_LEG_OPENING)
        on_opened(leg, a);
    else
        on_piece(leg, a);
}

/* ---- the end ---- */

/* What cannot be known is no miss: a copy that was not reached may have it. */
static enum kv_result worst_result(const struct kv_errand *e)
{
    enum kv_result worst = e->leg_count ? KV_MISS : KV_PEER_LOST;
    for (uint32_t i = 0; i < e->leg_count; i++) {
        if (e->legs[i].result == KV_OK)
            return KV_OK;
        if (worst == KV_MISS && !e->legs[i].stale_view)
            worst = e->legs[i].result;
    }
    return worst;
}

/* The block was found: whoever should have it and does not gets it.  A store that has given blocks
 * up for others does without: it would give up another for this one. */
static void put_right(struct kv_errand *e, bool ours)
{
    struct kv_daemon *d = e->daemon;
    if (ours && !kv_blocks_has_evicted(d->blocks))
        (void)kv_blocks_adopt(d->blocks, &e->keys[0], e->opened.tenant); /* else it stays a guest */
    for (uint32_t i = 0; i < e->leg_count; i++)
        if (e->legs[i].result == KV_MISS)
            tell(e, &e->legs[i], KV_PEER_MEND); /* who sent spoilt bytes was told so before */
}

static enum kv_result get_finish(struct kv_errand *e, uint32_t *answer_len)
{
    struct kv_daemon *d = e->daemon;
    enum kv_result result = worst_result(e);
    bool ours = kv_share_of(d, &e->keys[0]) != KV_SHARE_NONE;
    if (result == KV_OK)
        put_right(e, ours);
    if (result == KV_MISS && !ours)
        (void)kv_blocks_drop_guest(d->blocks, &e->keys[0]);
    if (result == KV_OK || ours) {
        enum kv_result here = kv_seat_lease(d, e->pending->seat, &e->keys[0], answer_len);
        if (here == KV_MISS && result == KV_OK && e->same) {
            e->same = false; /* our copy went while the owner was asked: fetch it after all */
            e->legs[e->leg_at].phase = KV_LEG_BEGIN;
            return KV_OK;
        }
        if (here != KV_MISS || e->leg_count == 0)
            return here;
    }
    return result == KV_OK ? KV_MISS : result;
}

/* Of a block that we lack ourselves. */
static void mend_begin(struct kv_errand *e)
{
    if (!kv_blocks_owns(e->daemon->blocks, &e->keys[0]))
        get_begin(e);
}

static enum kv_result mend_finish(struct kv_errand *e, uint32_t *answer_len)
{
    enum kv_result result = worst_result(e);
    (void)answer_len;
    if (result == KV_OK && kv_share_of(e->daemon, &e->keys[0]) != KV_SHARE_NONE)
        put_right(e, true);
    return result;
}

void kv_errand_tell_spoilt(struct kv_daemon *d, const struct kv_block_key *key)
{
    uint32_t owners[KV_COPIES_MAX];
    uint32_t count = kv_view_owners(&d->view, kv_block_hash(key), d->config.copies, owners);
    for (uint32_t i = 0; i < count; i++) {
        struct kv_peer *peer = kv_peer_of(d, d->view.members[owners[i]].id);
        struct kv_leg leg = {.peer = peer, .session = peer ? peer->session : 0};
        struct kv_peer_request r = {.method = KV_PEER_SPOILT, .epoch = d->view.epoch};
        kv_leg_post(&leg, &r, key);
    }
}

const struct kv_errand_kind kv_errand_get = {.begin = get_begin,
                                             .step = get_step,
                                             .answered = get_answered,
                                             .undo = get_undo,
                                             .finish = get_finish};

const struct kv_errand_kind kv_errand_mending = {.begin = mend_begin,
                                                 .step = get_step,
                                                 .answered = get_answered,
                                                 .undo = get_undo,
                                                 .finish = mend_finish};
