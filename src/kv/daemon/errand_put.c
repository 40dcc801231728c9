/* errand_put.c - puts of blocks that other daemons own, alone or beside this one.
 *
 * A start asks every owner for room and keeps what they promised as an away put; its ticket is told
 * from a local one by a bit that no place has.  A commit sends the staged bytes to all of them in
 * pieces, hashes them once, and commits with that checksum: an owner that has other bytes refuses,
 * so all copies are alike whatever the client does to its staging area meanwhile. */
#include "kv/daemon/errand.h"

#include "wire/le.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static const uint64_t away_bit = UINT64_C(1) << 31; /* of the place: there are KV_AWAY_PUTS */

/* ---- away puts ---- */

int kv_away_init(struct kv_daemon *d)
{
    const struct kv_memory *m = &d->config.memory;
    uint64_t lasts = d->config.blocks.put_lasts_ns;
    d->away = m->alloc(m->user, KV_AWAY_PUTS * sizeof(*d->away));
    return d->away
               ? kv_claims_create(KV_AWAY_PUTS, lasts ? lasts : KV_PUT_LASTS_NS, m, &d->away_claims)
               : -ENOMEM;
}

void kv_away_fini(struct kv_daemon *d)
{
    kv_pieces_fini(d);
    kv_claims_destroy(d->away_claims);
    d->config.memory.release(d->config.memory.user, d->away);
}

/* Owners forget by themselves: a put lasts as long there. */
static void away_tick(struct kv_daemon *d)
{
    uint32_t place;
    while ((place = kv_claims_next(d->away_claims)) != KV_CLAIM_NONE &&
           d->now_ns >= kv_claims_expires_ns(d->away_claims, place))
        kv_claims_drop(d->away_claims, place);
}

static void abort_target(struct kv_daemon *d, struct kv_seat *s, const struct kv_away_target *t)
{
    struct kv_leg leg = {.peer = kv_peer_of(d, t->member), .session = t->session};
    struct kv_peer_request r = {.method = KV_PEER_ABORT, .handle = t->ticket};
    if (t->member == d->self)
        (void)kv_blocks_put_abort(d->blocks, &s->holder, t->ticket, d->now_ns);
    else
        kv_leg_post(&leg, &r, NULL);
}

static void away_drop(struct kv_daemon *d, struct kv_seat *s, uint32_t place)
{
    const struct kv_away *away = &d->away[place];
    for (uint32_t i = 0; i < away->target_count; i++)
        abort_target(d, s, &away->targets[i]);
    kv_claims_drop(d->away_claims, place);
}

void kv_away_leave(struct kv_daemon *d, struct kv_seat *s)
{
    for (struct kv_errand *e = d->errands, *next; e; e = next) {
        next = e->next;
        if (e->early && e->seat == s)
            kv_errand_drop(e);
    }
    while (s->away_puts.count > 0)
        away_drop(d, s, s->away_puts.first);
}

bool kv_away_is(uint64_t ticket)
{
    return ticket & away_bit;
}

static enum kv_result find_away(struct kv_daemon *d, struct kv_seat *s, uint64_t ticket,
                                uint32_t *place)
{
    away_tick(d);
    int rc = kv_claims_find(d->away_claims, &s->away_puts, ticket & ~away_bit, place);
    return rc == 0 ? KV_OK : rc == -ESTALE ? KV_STALE : KV_REFUSED;
}

/* ---- legs ---- */

static void start_begin(struct kv_errand *e)
{
    uint32_t owners[KV_COPIES_MAX];
    uint32_t count = kv_errand_owners(e, owners);
    for (uint32_t i = 0; i < count; i++)
        (void)kv_errand_add_leg(e, owners[i]);
}

static void open_here(struct kv_errand *e, struct kv_leg *leg)
{
    struct kv_daemon *d = e->daemon;
    enum kv_result result =
        kv_blocks_put_start(d->blocks, &e->seat->holder, &e->keys[0], e->request.tenant,
                            e->request.len, d->now_ns, &leg->handle);
    if (result == KV_OK)
        leg->phase = KV_LEG_MOVING;
    else
        kv_leg_done(leg, result);
}

static bool open_leg(struct kv_errand *e, struct kv_leg *leg)
{
    struct kv_peer_request r = {.method = KV_PEER_OPEN_PUT,
                                .tenant = e->request.tenant,
                                .len = e->request.len,
                                .key_count = 1};
    if (leg->self)
        open_here(e, leg);
    else if (kv_leg_call(leg, &r, e->keys))
        leg->phase = KV_LEG_OPENING;
    return leg->phase != KV_LEG_BEGIN;
}

static void on_opened(struct kv_leg *leg, const struct kv_peer_answer *a)
{
    if (a->body_len != KV_PEER_TICKET_BYTES) {
        kv_leg_done(leg, KV_REFUSED);
        return;
    }
    leg->handle = wire_load64(a->body);
    leg->phase = KV_LEG_MOVING;
}

static void put_undo(struct kv_errand *e, struct kv_leg *leg)
{
    struct kv_daemon *d = e->daemon;
    struct kv_peer_request r = {.method = KV_PEER_ABORT, .handle = leg->handle};
    if (leg->handle && leg->self)
        (void)kv_blocks_put_abort(d->blocks, &e->seat->holder, leg->handle, d->now_ns);
    else if (leg->handle)
        kv_leg_post(leg, &r, NULL);
    leg->handle = 0;
}

/* One copy is enough; that it is there already is as good, for whoever asks. */
static enum kv_result best_result(const struct kv_errand *e)
{
    static const enum kv_result order[] = {KV_OK, KV_EXISTS};
    for (size_t k = 0; k < ARRAY_LEN(order); k++)
        for (uint32_t i = 0; i < e->leg_count; i++)
            if (e->legs[i].result == order[k])
                return order[k];
    return e->leg_count ? e->legs[0].result : KV_PEER_LOST;
}

/* ---- starting ---- */

static bool start_step(struct kv_errand *e, struct kv_leg *leg)
{
    bool progress = leg->phase == KV_LEG_BEGIN && open_leg(e, leg);
    if (leg->phase == KV_LEG_MOVING) { /* it has what it came for */
        kv_leg_done(leg, KV_OK);
        return true;
    }
    return progress;
}

static void start_answered(struct kv_leg *leg, const struct kv_peer_answer *a)
{
    if (a->result == KV_OK)
        on_opened(leg, a);
    else
        kv_leg_done(leg, a->result);
}

static struct kv_away promises_of(const struct kv_errand *e)
{
    struct kv_away away = {
        .key = e->keys[0], .tenant = e->request.tenant, .len = e->request.len, .epoch = e->epoch};
    for (uint32_t i = 0; i < e->leg_count; i++) {
        const struct kv_leg *leg = &e->legs[i];
        if (leg->result == KV_OK)
            away.targets[away.target_count++] = (struct kv_away_target){
                .member = leg->member, .ticket = leg->handle, .session = leg->session};
    }
    return away;
}

static enum kv_result start_finish(struct kv_errand *e, uint32_t *answer_len)
{
    struct kv_daemon *d = e->daemon;
    enum kv_result result = best_result(e);
    if (result != KV_OK)
        return result;
    away_tick(d);
    uint32_t place = kv_claims_take(d->away_claims, &e->seat->away_puts, 0, d->now_ns);
    if (place == KV_CLAIM_NONE)
        return KV_FULL;
    d->away[place] = promises_of(e);
    for (uint32_t i = 0; i < e->leg_count; i++)
        e->legs[i].handle = 0; /* the away put has them now */
    wire_store64(kv_errand_answer(e), kv_claims_handle(d->away_claims, place) | away_bit);
    *answer_len = KV_BLOCK_TICKET_BYTES;
    return KV_OK;
}

const struct kv_errand_kind kv_errand_put_start = {.begin = start_begin,
                                                   .step = start_step,
                                                   .answered = start_answered,
                                                   .undo = put_undo,
                                                   .finish = start_finish};

/* ---- committing ---- */

/* The owner's place in the view, or UINT32_MAX. */
static uint32_t owner_place(const struct kv_errand *e, uint64_t member)
{
    uint32_t owners[KV_COPIES_MAX];
    uint32_t count = kv_errand_owners(e, owners);
    for (uint32_t i = 0; i < count; i++)
        if (e->daemon->view.members[owners[i]].id == member)
            return owners[i];
    return UINT32_MAX;
}

/* Whether all who promised room are owners still. */
static bool promises_hold(const struct kv_errand *e)
{
    for (uint32_t i = 0; i < e->away.target_count; i++)
        if (owner_place(e, e->away.targets[i].member) == UINT32_MAX)
            return false;
    return e->away.target_count > 0;
}

static void commit_begin(struct kv_errand *e)
{
    bool resume = promises_hold(e);
    e->sum = e->summed = 0;
    for (uint32_t i = 0; i < e->away.target_count; i++) {
        const struct kv_away_target *t = &e->away.targets[i];
        if (!resume) {
            abort_target(e->daemon, e->seat, t);
            continue;
        }
        struct kv_leg *leg = kv_errand_add_leg(e, owner_place(e, t->member));
        leg->session = t->session;
        leg->handle = t->ticket;
        leg->phase = KV_LEG_MOVING;
    }
    e->away.target_count = 0;
    if (!resume)
        start_begin(e);
}

static const uint8_t *staged(const struct kv_errand *e)
{
    return e->seat->region.staging + e->request.at;
}

/* Counts a piece at `at`, or what of it no leg has counted yet. */
static void count(struct kv_errand *e, uint32_t at, const uint8_t *bytes, uint32_t n)
{
    assert(e->summed >= at);
    uint32_t counted = e->summed - at;
    if (counted >= n)
        return;
    e->sum = kv_checksum_add(e->sum, bytes + counted, n - counted);
    e->summed += n - counted;
}

static bool commit_leg(struct kv_errand *e, struct kv_leg *leg)
{
    struct kv_daemon *d = e->daemon;
    struct kv_peer_request r = {
        .method = KV_PEER_COMMIT, .handle = leg->handle, .checksum = e->sum};
    if (!leg->self) {
        if (kv_leg_call(leg, &r, NULL))
            leg->phase = KV_LEG_CLOSING;
        return leg->phase != KV_LEG_MOVING;
    }
    enum kv_result result =
        kv_blocks_put_commit_as(d->blocks, &e->seat->holder, leg->handle, r.checksum, d->now_ns);
    leg->handle = 0;
    kv_leg_done(leg, result == KV_MISS ? KV_REFUSED : result);
    return true;
}

static uint32_t piece_of(const struct kv_leg *leg)
{
    uint32_t most = KV_PEER_PIECE;
    if (!leg->self) {
        uint32_t max = rpc_ep_message_max(leg->peer->ep) - KV_PEER_HEAD_BYTES;
        most = max < most ? max : most;
    }
    uint32_t rest = leg->errand->request.len - leg->asked;
    return rest < most ? rest : most;
}

static void keep_piece(struct kv_errand *e, struct kv_leg *leg, uint32_t n)
{
    struct kv_daemon *d = e->daemon;
    const uint8_t *bytes = staged(e) + leg->asked;
    count(e, leg->asked, bytes, n);
    enum kv_result result = kv_blocks_put_write(d->blocks, &e->seat->holder, leg->handle,
                                                leg->asked, bytes, n, d->now_ns);
    leg->moved += n;
    if (result != KV_OK)
        kv_leg_done(leg, result);
}

static bool send_piece(struct kv_errand *e, struct kv_leg *leg, uint32_t n)
{
    struct kv_piece *piece = kv_piece_take(e->daemon);
    struct kv_peer_request r = {
        .method = KV_PEER_WRITE, .handle = leg->handle, .at = leg->asked, .byte_count = n};
    if (!piece)
        return false;
    uint8_t *bytes = piece->data + KV_PEER_HEAD_BYTES;
    memcpy(bytes, staged(e) + leg->asked, n); /* not past the cache: it is counted and sent next */
    count(e, leg->asked, bytes, n);
    return kv_leg_write(leg, &r, piece);
}

/* One piece; false when it did not go. */
static bool move_piece(struct kv_errand *e, struct kv_leg *leg)
{
    struct kv_daemon *d = e->daemon;
    uint32_t n = piece_of(leg);
    if (leg->self)
        keep_piece(e, leg, n);
    else if (!send_piece(e, leg, n))
        return leg->phase == KV_LEG_DONE;
    leg->asked += n;
    d->turn_bytes += n;
    return true;
}

/* Bytes that went to one that is no owner any more would not be found. */
static bool still_owner(const struct kv_errand *e, const struct kv_leg *leg)
{
    return e->daemon->view.epoch == e->epoch || owner_place(e, leg->member) != UINT32_MAX;
}

/* Whether the next piece is staged, and may be under way. */
static bool may_move(const struct kv_errand *e, const struct kv_leg *leg)
{
    return leg->phase == KV_LEG_MOVING && leg->asked < e->staged &&
           piece_of(leg) <= e->staged - leg->asked && kv_leg_may_move(leg);
}

static bool commit_step(struct kv_errand *e, struct kv_leg *leg)
{
    bool progress = false;
    if (leg->phase == KV_LEG_BEGIN)
        progress = open_leg(e, leg);
    if (leg->phase != KV_LEG_MOVING)
        return progress;
    if (!still_owner(e, leg)) {
        leg->stale_view = true;
        kv_leg_done(leg, KV_STALE);
        return true;
    }
    if (!leg->self && (!leg->peer || !leg->peer->up)) {
        kv_leg_done(leg, KV_PEER_LOST);
        return true;
    }
    while (may_move(e, leg)) {
        if (!move_piece(e, leg))
            return progress;
        progress = true;
    }
    if (leg->phase == KV_LEG_MOVING && leg->moved == e->request.len && !e->early)
        progress |= commit_leg(e, leg);
    return progress;
}

static void commit_answered(struct kv_leg *leg, const struct kv_peer_answer *a)
{
    uint32_t len = leg->errand->request.len;
    if (a->result != KV_OK) {
        kv_leg_done(leg, a->result);
    } else if (leg->phase == KV_LEG_OPENING) {
        on_opened(leg, a);
    } else if (leg->phase == KV_LEG_CLOSING) {
        leg->handle = 0;
        kv_leg_done(leg, KV_OK);
    } else if (leg->busy == 0 && leg->asked == len) {
        leg->moved = len;
    }
}

static enum kv_result commit_finish(struct kv_errand *e, uint32_t *answer_len)
{
    (void)answer_len;
    enum kv_result result = best_result(e);
    return result == KV_EXISTS ? KV_STALE : result; /* as where another put was first */
}

const struct kv_errand_kind kv_errand_put_commit = {.begin = commit_begin,
                                                    .step = commit_step,
                                                    .answered = commit_answered,
                                                    .undo = put_undo,
                                                    .finish = commit_finish};

/* ---- what clients ask of an away put ---- */

/* One that moves what is staged of the put already; NULL: none. */
static struct kv_errand *find_early(const struct kv_daemon *d, const struct kv_seat *s,
                                    uint64_t ticket)
{
    for (struct kv_errand *e = d->errands; e; e = e->next)
        if (e->early && e->seat == s && e->request.handle == ticket)
            return e;
    return NULL;
}

/* The put becomes an errand to commit the bytes at r->at; *out is written with KV_OK only. */
static enum kv_result take_away(struct kv_daemon *d, struct kv_seat *s,
                                const struct kv_block_request *r, struct kv_errand **out)
{
    uint32_t place = 0;
    enum kv_result result = find_away(d, s, r->handle, &place);
    if (result != KV_OK)
        return result;
    struct kv_away away = d->away[place];
    struct kv_block_request request = {.op = KV_BLOCK_PUT_COMMIT,
                                       .key_count = 1,
                                       .len = away.len,
                                       .tenant = away.tenant,
                                       .handle = r->handle,
                                       .at = r->at};
    uint64_t room = s->region.staging_bytes;
    if (r->len > away.len || away.len > room || r->at > room - away.len)
        return KV_REFUSED;
    struct kv_errand *e = kv_errand_start_early(d, s, &kv_errand_put_commit, &request, &away.key);
    if (!e)
        return KV_FULL;
    kv_claims_drop(d->away_claims, place);
    e->away = away;
    *out = e;
    return KV_OK;
}

/* As many as could be started: they must not take up all errands. */
static bool may_begin_early(const struct kv_daemon *d)
{
    uint32_t count = 0;
    for (const struct kv_errand *e = d->errands; e; e = e->next)
        count += e->early;
    return count < KV_AWAY_PUTS;
}

enum kv_result kv_away_staged(struct kv_daemon *d, struct kv_seat *s,
                              const struct kv_block_request *r)
{
    struct kv_errand *e = find_early(d, s, r->handle);
    if (!e && !may_begin_early(d))
        return KV_FULL;
    enum kv_result result = e ? KV_OK : take_away(d, s, r, &e);
    if (result != KV_OK)
        return result;
    if (r->at != e->request.at || r->len > e->request.len)
        return KV_REFUSED;
    e->staged = r->len > e->staged ? r->len : e->staged;
    return KV_OK;
}

void kv_away_commit(struct kv_daemon *d, struct kv_pending *p, const struct kv_block_request *r)
{
    struct kv_errand *e = find_early(d, p->seat, r->handle);
    enum kv_result result = e ? KV_OK : take_away(d, p->seat, r, &e);
    if (result == KV_OK && (r->at != e->request.at || r->len != e->request.len)) {
        kv_errand_drop(e);
        result = KV_REFUSED;
    }
    if (result != KV_OK) {
        kv_seat_answer(p, result, NULL, 0);
        return;
    }
    e->staged = r->len;
    kv_errand_attach(e, p);
}

enum kv_result kv_away_abort(struct kv_daemon *d, struct kv_seat *s, uint64_t ticket)
{
    uint32_t place;
    struct kv_errand *e = find_early(d, s, ticket);
    if (e) {
        kv_errand_drop(e);
        return KV_OK;
    }
    enum kv_result result = find_away(d, s, ticket, &place);
    if (result != KV_OK)
        return result;
    away_drop(d, s, place);
    return KV_OK;
}
