/* remote/put.c - puts of blocks that other daemons own, alone or together with this one.
 *
 * A start asks every owner for room and keeps their promises as a remote put; a bit in its ticket
 * tells it from a local put.  A commit sends the staged bytes to all owners in chunks, hashes them
 * once, and commits with that checksum.  An owner that has other bytes refuses.  So all replicas
 * are the same, whatever the client does to its staging area meanwhile.
 *
 * The owners of a named value tell with their promise which version they have.  The put gets a
 * newer one, and an owner that has a newer one still by the commit keeps that: so all owners end
 * with the same value, in whatever order commits reach them.  An owner that cannot be reached gets
 * the value later (copies.c); its version tells that its own is old. */
#include "kv/daemon/remote/remote.h"

#include "kv/daemon/client_slots.h"
#include "kv/daemon/permits.h"
#include "kv/daemon/view_peers.h"
#include "wire/le.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static const uint64_t remote_bit = UINT64_C(1) << 31; /* in a ticket; no place is so large */

/* ---- remote puts ---- */

int kv_remote_put_init(struct kv_daemon *d)
{
    const struct kv_memory *m = &d->config.memory;
    uint64_t lasts = d->config.blocks.put_lasts_ns;
    d->remote_puts = m->alloc(m->user, KV_REMOTE_PUTS_MAX * sizeof(*d->remote_puts));
    return d->remote_puts ? kv_claims_create(KV_REMOTE_PUTS_MAX, lasts ? lasts : KV_PUT_LASTS_NS, m,
                                             &d->remote_put_claims)
                          : -ENOMEM;
}

void kv_remote_put_fini(struct kv_daemon *d)
{
    kv_chunks_fini(d);
    kv_claims_destroy(d->remote_put_claims);
    d->config.memory.release(d->config.memory.user, d->remote_puts);
}

/* Drops what is overdue.  The owners drop it, too: a put lasts as long there. */
static void puts_tick(struct kv_daemon *d)
{
    uint32_t place;
    while ((place = kv_claims_next(d->remote_put_claims)) != KV_CLAIM_NONE &&
           d->now_ns >= kv_claims_expires_ns(d->remote_put_claims, place))
        kv_claims_drop(d->remote_put_claims, place);
}

static void abort_target(struct kv_daemon *d, struct kv_client_slot *s,
                         const struct kv_remote_target *t)
{
    struct kv_sub sub = {.peer = kv_peer_of(d, t->member), .session = t->session};
    struct kv_peer_request r = {.method = KV_PEER_ABORT, .handle = t->ticket};
    if (t->member == d->self)
        (void)kv_blocks_put_abort(d->blocks, &s->holder, t->ticket, d->now_ns);
    else
        kv_sub_post(&sub, &r, NULL);
}

static void put_drop(struct kv_daemon *d, struct kv_client_slot *s, uint32_t place)
{
    const struct kv_remote_put *put = &d->remote_puts[place];
    for (uint32_t i = 0; i < put->target_count; i++)
        abort_target(d, s, &put->targets[i]);
    kv_claims_drop(d->remote_put_claims, place);
}

void kv_remote_put_leave(struct kv_daemon *d, struct kv_client_slot *s)
{
    for (struct kv_remote *remote = d->remotes, *next; remote; remote = next) {
        next = remote->next;
        if (remote->early && remote->client == s)
            kv_remote_drop(remote);
    }
    while (s->remote_puts.count > 0)
        put_drop(d, s, s->remote_puts.first);
}

bool kv_remote_put_is(uint64_t ticket)
{
    return ticket & remote_bit;
}

static enum kv_result find_put(struct kv_daemon *d, struct kv_client_slot *s, uint64_t ticket,
                               uint32_t *place)
{
    puts_tick(d);
    int rc = kv_claims_find(d->remote_put_claims, &s->remote_puts, ticket & ~remote_bit, place);
    return rc == 0 ? KV_OK : rc == -ESTALE ? KV_PUT_EXPIRED : KV_REFUSED;
}

/* ---- sub-requests ---- */

uint64_t kv_put_over(const struct kv_daemon *d, const struct kv_block_request *r,
                     const struct kv_block_key *key)
{
    if (r->flag)
        return KV_OVER_ANY;
    return kv_block_key_is_named(key) ? kv_blocks_version_of(d->blocks, key, r->handle) : 0;
}

static void ask_owners(struct kv_remote *remote)
{
    uint32_t owners[KV_COPIES_MAX];
    uint32_t count = kv_remote_owners(remote, owners);
    for (uint32_t i = 0; i < count; i++)
        (void)kv_remote_add_sub(remote, owners[i]);
}

static void start_begin(struct kv_remote *remote)
{
    remote->put.over = kv_put_over(remote->daemon, &remote->request, &remote->keys[0]);
    ask_owners(remote);
}

/* There is room at an owner whose block, if it has one, has that version. */
static void promised(struct kv_sub *sub, uint64_t version)
{
    struct kv_remote *remote = sub->remote;
    uint64_t newer = kv_blocks_next_version(remote->daemon->blocks, &remote->keys[0], version,
                                            remote->daemon->now_ns);
    if (newer > remote->put.version)
        remote->put.version = newer;
    sub->phase = KV_SUB_MOVING;
}

static void open_here(struct kv_remote *remote, struct kv_sub *sub)
{
    struct kv_daemon *d = remote->daemon;
    const struct kv_block_request *r = &remote->request;
    uint64_t version = kv_blocks_version(d->blocks, &remote->keys[0]);
    enum kv_result result =
        kv_blocks_swap_start(d->blocks, &remote->client->holder, &remote->keys[0], r->tenant,
                             r->len, remote->put.over, d->now_ns, &sub->handle);
    if (result == KV_OK)
        promised(sub, version);
    else
        kv_sub_done(sub, result);
}

static bool open_sub(struct kv_remote *remote, struct kv_sub *sub)
{
    struct kv_peer_request r = {.method = KV_PEER_OPEN_PUT,
                                .tenant = remote->request.tenant,
                                .len = remote->request.len,
                                .handle = remote->put.over,
                                .key_count = 1};
    if (sub->self)
        open_here(remote, sub);
    else if (kv_sub_call(sub, &r, remote->keys))
        sub->phase = KV_SUB_OPENING;
    return sub->phase != KV_SUB_BEGIN;
}

static void on_opened(struct kv_sub *sub, const struct kv_peer_answer *a)
{
    if (a->payload_len != KV_PEER_TICKET_BYTES) {
        kv_sub_done(sub, KV_REFUSED);
        return;
    }
    sub->handle = wire_load64(a->payload);
    promised(sub, wire_load64(a->payload + 8));
}

static void put_undo(struct kv_remote *remote, struct kv_sub *sub)
{
    struct kv_daemon *d = remote->daemon;
    struct kv_peer_request r = {.method = KV_PEER_ABORT, .handle = sub->handle};
    if (sub->handle && sub->self)
        (void)kv_blocks_put_abort(d->blocks, &remote->client->holder, sub->handle, d->now_ns);
    else if (sub->handle)
        kv_sub_post(sub, &r, NULL);
    sub->handle = 0;
}

/* One replica is enough, and one that exists already counts.  Of a named value the one that exists
 * is another: a put that must not replace it fails wherever it is. */
static enum kv_result best_result(const struct kv_remote *remote)
{
    static const enum kv_result order[] = {KV_EXISTS, KV_OK, KV_EXISTS};
    for (size_t k = !kv_block_key_is_named(&remote->keys[0]); k < ARRAY_LEN(order); k++)
        for (uint32_t i = 0; i < remote->sub_count; i++)
            if (remote->subs[i].result == order[k])
                return order[k];
    return remote->sub_count ? remote->subs[0].result : KV_PEER_LOST;
}

static uint32_t count_results(const struct kv_remote *remote, enum kv_result result)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < remote->sub_count; i++)
        count += remote->subs[i].phase == KV_SUB_DONE && remote->subs[i].result == result;
    return count;
}

/* Owners that have the block, or have promised room for it. */
static uint32_t copies_of(const struct kv_remote *remote)
{
    return count_results(remote, KV_OK) + count_results(remote, KV_EXISTS);
}

static enum kv_result judge_copies(const struct kv_remote *remote, enum kv_result result,
                                   uint32_t copies)
{
    bool few = copies < remote->daemon->config.min_copies;
    return few && (result == KV_OK || result == KV_EXISTS) ? KV_TOO_FEW : result;
}

static bool needs_all(const struct kv_remote *remote)
{
    return remote->daemon->config.min_copies > 1;
}

/* ---- starting ---- */

static bool start_step(struct kv_remote *remote, struct kv_sub *sub)
{
    bool progress = sub->phase == KV_SUB_BEGIN && open_sub(remote, sub);
    if (sub->phase == KV_SUB_MOVING) { /* it has its ticket */
        kv_sub_done(sub, KV_OK);
        return true;
    }
    return progress;
}

static void start_answered(struct kv_sub *sub, const struct kv_peer_answer *a)
{
    if (a->result == KV_OK)
        on_opened(sub, a);
    else
        kv_sub_done(sub, a->result);
}

static struct kv_remote_put promises_of(const struct kv_remote *remote)
{
    struct kv_remote_put put = {.key = remote->keys[0],
                                .tenant = remote->request.tenant,
                                .len = remote->request.len,
                                .epoch = remote->epoch,
                                .over = remote->put.over,
                                .version = remote->put.version};
    for (uint32_t i = 0; i < remote->sub_count; i++) {
        const struct kv_sub *sub = &remote->subs[i];
        if (sub->result == KV_OK)
            put.targets[put.target_count++] = (struct kv_remote_target){
                .member = sub->member, .ticket = sub->handle, .session = sub->session};
        else if (sub->result == KV_EXISTS)
            put.there = sub->member;
    }
    return put;
}

static enum kv_result start_finish(struct kv_remote *remote, uint32_t *answer_len)
{
    struct kv_daemon *d = remote->daemon;
    enum kv_result result = judge_copies(remote, best_result(remote), copies_of(remote));
    if (result != KV_OK)
        return result;
    puts_tick(d);
    uint32_t place =
        kv_claims_take(d->remote_put_claims, &remote->client->remote_puts, 0, d->now_ns);
    if (place == KV_CLAIM_NONE)
        return KV_FULL;
    d->remote_puts[place] = promises_of(remote);
    for (uint32_t i = 0; i < remote->sub_count; i++)
        remote->subs[i].handle = 0; /* the remote put owns the tickets now */
    wire_store64(remote->daemon->scratch->answer,
                 kv_claims_handle(d->remote_put_claims, place) | remote_bit);
    *answer_len = KV_BLOCK_TICKET_BYTES;
    return KV_OK;
}

const struct kv_remote_kind kv_remote_kind_put_start = {.subs_max = KV_COPIES_MAX,
                                                        .begin = start_begin,
                                                        .step = start_step,
                                                        .answered = start_answered,
                                                        .undo = put_undo,
                                                        .needs_all = needs_all,
                                                        .finish = start_finish};

/* ---- committing ---- */

/* The owner's place in the view, or UINT32_MAX. */
static uint32_t owner_place(const struct kv_remote *remote, uint64_t member)
{
    uint32_t owners[KV_COPIES_MAX];
    uint32_t count = kv_remote_owners(remote, owners);
    for (uint32_t i = 0; i < count; i++)
        if (remote->daemon->view.members[owners[i]].id == member)
            return owners[i];
    return UINT32_MAX;
}

/* Whether all daemons that promised room are still owners. */
static bool promises_hold(const struct kv_remote *remote)
{
    for (uint32_t i = 0; i < remote->put.target_count; i++)
        if (owner_place(remote, remote->put.targets[i].member) == UINT32_MAX)
            return false;
    return remote->put.target_count > 0;
}

static void commit_begin(struct kv_remote *remote)
{
    bool resume = promises_hold(remote);
    remote->sum = remote->summed = 0;
    for (uint32_t i = 0; i < remote->put.target_count; i++) {
        const struct kv_remote_target *t = &remote->put.targets[i];
        if (!resume) {
            abort_target(remote->daemon, remote->client, t);
            continue;
        }
        struct kv_sub *sub = kv_remote_add_sub(remote, owner_place(remote, t->member));
        sub->session = t->session;
        sub->waits = false;
        sub->handle = t->ticket;
        sub->phase = KV_SUB_MOVING;
    }
    remote->put.target_count = 0;
    if (!resume) {
        remote->put.there = 0; /* all owners are asked again */
        ask_owners(remote);
    }
}

static const uint8_t *staged(const struct kv_remote *remote)
{
    return remote->client->region.staging + remote->request.at;
}

/* Adds to the checksum what of the chunk at `at` no sub-request has added yet. */
static void count(struct kv_remote *remote, uint32_t at, const uint8_t *bytes, uint32_t n)
{
    assert(remote->summed >= at);
    uint32_t counted = remote->summed - at;
    if (counted >= n)
        return;
    remote->sum = kv_checksum_add(remote->sum, bytes + counted, n - counted);
    remote->summed += n - counted;
}

/* Whether an owner of a named value has promised no room, and so may serve its old one. */
static bool is_alone(const struct kv_remote *remote)
{
    uint32_t owners[KV_COPIES_MAX];
    uint32_t without = kv_remote_owners(remote, owners);
    for (uint32_t i = 0; i < remote->sub_count; i++)
        without -= remote->subs[i].phase != KV_SUB_DONE || remote->subs[i].result == KV_OK;
    return without > 0 && kv_block_key_is_named(&remote->keys[0]);
}

/* A named value that replaces none, or the one that its client has seen, is committed at one owner
 * after the other, in the order of the view: so the first one decides between two of them. */
static bool is_in_order(const struct kv_remote *remote)
{
    return remote->put.over != KV_OVER_ANY && kv_block_key_is_named(&remote->keys[0]);
}

static bool is_decided(const struct kv_remote *remote)
{
    return is_in_order(remote) && count_results(remote, KV_OK) > 0;
}

static bool commit_sub(struct kv_remote *remote, struct kv_sub *sub)
{
    struct kv_daemon *d = remote->daemon;
    struct kv_peer_request r = {.method = KV_PEER_COMMIT,
                                .handle = sub->handle,
                                .checksum = remote->sum,
                                .tenant = remote->put.version,
                                .flag = !sub->not_before_ns && is_alone(remote),
                                .at = is_decided(remote),
                                .len = sub->not_before_ns != 0};
    if (d->now_ns < sub->not_before_ns)
        return false;
    if (!sub->self) {
        sub->sent_ns = kv_daemon_now(d);
        sub->put_count = kv_blocks_opened(d->blocks, remote->keys);
        sub->commits = kv_sub_call(sub, &r, NULL);
        if (sub->commits)
            sub->phase = KV_SUB_CLOSING;
        return sub->phase != KV_SUB_MOVING;
    }
    uint64_t wait =
        kv_block_key_is_named(remote->keys) ? kv_permit_wait(d, remote->keys, r.flag) : 0;
    if (wait) {
        sub->not_before_ns = d->now_ns + wait;
        return true;
    }
    if (!r.at)
        remote->put.version = kv_blocks_put_version(d->blocks, &remote->client->holder, sub->handle,
                                                    remote->put.version);
    enum kv_result result = (r.at ? kv_blocks_put_commit_decided : kv_blocks_put_commit_as)(
        d->blocks, &remote->client->holder, sub->handle, r.checksum, remote->put.version,
        d->now_ns);
    sub->handle = 0;
    kv_sub_done(sub, result == KV_MISS ? KV_REFUSED : result);
    return true;
}

static uint32_t chunk_of(const struct kv_sub *sub)
{
    uint32_t most = KV_PEER_CHUNK;
    if (!sub->self) {
        uint32_t max = rpc_ep_message_max(sub->peer->ep) - KV_PEER_HEAD_BYTES;
        most = max < most ? max : most;
    }
    uint32_t rest = sub->remote->request.len - sub->asked;
    return rest < most ? rest : most;
}

static void keep_chunk(struct kv_remote *remote, struct kv_sub *sub, uint32_t n)
{
    struct kv_daemon *d = remote->daemon;
    const uint8_t *bytes = staged(remote) + sub->asked;
    count(remote, sub->asked, bytes, n);
    enum kv_result result = kv_blocks_put_write(d->blocks, &remote->client->holder, sub->handle,
                                                sub->asked, bytes, n, d->now_ns);
    sub->moved += n;
    if (result != KV_OK)
        kv_sub_done(sub, result);
}

static bool send_chunk(struct kv_remote *remote, struct kv_sub *sub, uint32_t n)
{
    struct kv_chunk *chunk = kv_chunk_take(remote->daemon);
    struct kv_peer_request r = {
        .method = KV_PEER_WRITE, .handle = sub->handle, .at = sub->asked, .byte_count = n};
    if (!chunk)
        return false;
    uint8_t *bytes = chunk->data + KV_PEER_HEAD_BYTES;
    memcpy(bytes, staged(remote) + sub->asked,
           n); /* through the cache: the bytes are hashed and sent next */
    count(remote, sub->asked, bytes, n);
    return kv_sub_write(sub, &r, chunk);
}

/* Moves one chunk; false: not now. */
static bool move_chunk(struct kv_remote *remote, struct kv_sub *sub)
{
    struct kv_daemon *d = remote->daemon;
    uint32_t n = chunk_of(sub);
    if (sub->self)
        keep_chunk(remote, sub, n);
    else if (!send_chunk(remote, sub, n))
        return sub->phase == KV_SUB_DONE;
    sub->asked += n;
    d->turn_bytes += n;
    return true;
}

/* A daemon that no longer owns the block would keep bytes that nobody finds. */
static bool still_owner(const struct kv_remote *remote, const struct kv_sub *sub)
{
    return remote->daemon->view.epoch == remote->epoch ||
           owner_place(remote, sub->member) != UINT32_MAX;
}

/* Whether the next chunk is staged and may be sent. */
static bool may_move(const struct kv_remote *remote, const struct kv_sub *sub)
{
    return sub->phase == KV_SUB_MOVING && sub->asked < remote->staged &&
           chunk_of(sub) <= remote->staged - sub->asked && kv_sub_may_move(sub);
}

/* Whether every owner has said which version it has and, where that matters, those before this one
 * have committed.  If one of them has refused, this one does not commit, either. */
static bool may_commit(const struct kv_remote *remote, struct kv_sub *sub)
{
    bool may = true;
    for (uint32_t i = 0; i < remote->sub_count; i++) {
        const struct kv_sub *other = &remote->subs[i];
        may &= other->phase >= (other < sub && is_in_order(remote) ? KV_SUB_DONE : KV_SUB_MOVING);
    }
    if (may && is_in_order(remote) && count_results(remote, KV_EXISTS) > 0)
        kv_sub_done(sub, KV_EXISTS);
    return may && sub->phase != KV_SUB_DONE;
}

static bool commit_step(struct kv_remote *remote, struct kv_sub *sub)
{
    bool progress = false;
    if (sub->phase == KV_SUB_BEGIN)
        progress = open_sub(remote, sub);
    if (sub->phase != KV_SUB_MOVING)
        return progress;
    if (!still_owner(remote, sub)) {
        sub->stale_view = true;
        kv_sub_done(sub, KV_NOT_OWNER);
        return true;
    }
    if (!sub->self && (!sub->peer || !sub->peer->up)) {
        kv_sub_done(sub, KV_PEER_LOST);
        return true;
    }
    /* What moved early has the time of the put, not that of the commit. */
    if (!remote->early && sub->busy > 0 && kv_sub_is_late(sub)) {
        kv_sub_done(sub, KV_TIMEOUT);
        return true;
    }
    while (may_move(remote, sub)) {
        if (!move_chunk(remote, sub))
            return progress;
        progress = true;
    }
    if (sub->phase != KV_SUB_MOVING || sub->moved < remote->request.len || remote->early)
        return progress;
    if (may_commit(remote, sub))
        progress |= commit_sub(remote, sub);
    return progress || sub->phase == KV_SUB_DONE;
}

/* The other owner has committed what we, as an owner, have or will have. */
static void take_permit(struct kv_sub *sub, const struct kv_peer_answer *a)
{
    struct kv_remote *remote = sub->remote;
    if (a->payload_len != KV_PEER_PERMIT_BYTES)
        return;
    struct kv_peer_opened opened = {.permit = wire_load64(a->payload),
                                    .agreed = a->payload[8],
                                    .version = remote->put.version,
                                    .checksum = remote->sum};
    kv_permit_take(remote->daemon, sub->peer, remote->keys, &opened, sub->sent_ns, sub->put_count);
}

static void commit_answered(struct kv_sub *sub, const struct kv_peer_answer *a)
{
    uint32_t len = sub->remote->request.len;
    sub->until_ns = 0;
    if (a->result != KV_OK) {
        kv_sub_done(sub, a->result);
    } else if (sub->phase == KV_SUB_OPENING) {
        on_opened(sub, a);
    } else if (sub->phase == KV_SUB_CLOSING && kv_sub_put_off(sub, a)) {
        sub->commits = false;
        if (wire_load64(a->payload) == 0) /* only another version is wanted */
            sub->remote->put.version = sub->remote->put.over + 1;
    } else if (sub->phase == KV_SUB_CLOSING) {
        take_permit(sub, a);
        sub->handle = 0;
        kv_sub_done(sub, KV_OK);
    } else if (sub->busy == 0 && sub->asked == len) {
        sub->moved = len;
    }
}

/* Whether an owner may have committed the put without our knowing. */
static bool is_in_doubt(const struct kv_sub *sub)
{
    return sub->commits && (sub->result == KV_PEER_LOST || sub->result == KV_TIMEOUT);
}

/* Begun again, a put of a new name would find its own value there, and take it for another's. */
static bool commit_is_final(const struct kv_remote *remote)
{
    bool final = is_decided(remote);
    for (uint32_t i = 0; i < remote->sub_count && is_in_order(remote); i++)
        final |= remote->subs[i].phase == KV_SUB_CLOSING || is_in_doubt(&remote->subs[i]);
    return final;
}

/* Owners by the view of now that have the block: others may have left meanwhile. */
static uint32_t copies_kept(const struct kv_remote *remote)
{
    uint32_t copies = remote->put.there && owner_place(remote, remote->put.there) != UINT32_MAX;
    for (uint32_t i = 0; i < remote->sub_count; i++) {
        const struct kv_sub *sub = &remote->subs[i];
        bool has = sub->phase == KV_SUB_DONE && (sub->result == KV_OK || sub->result == KV_EXISTS);
        copies += has && still_owner(remote, sub);
    }
    return copies;
}

static enum kv_result commit_finish(struct kv_remote *remote, uint32_t *answer_len)
{
    uint32_t copies = copies_kept(remote);
    enum kv_result result = judge_copies(remote, best_result(remote), copies);
    for (uint32_t i = 0; i < remote->sub_count && is_in_order(remote); i++)
        if (result == KV_EXISTS && is_in_doubt(&remote->subs[i]))
            result = remote->subs[i].result; /* it may be ours that is there */
    uint32_t owners[KV_COPIES_MAX];
    uint32_t wanted = kv_remote_owners(remote, owners);
    if (result == KV_OK && copies < wanted)
        hw_counter_bump(&remote->daemon->stats.block_copies_lost, wanted - copies);
    wire_store32(remote->daemon->scratch->answer, copies);
    *answer_len = result == KV_OK ? KV_BLOCK_COUNT_BYTES : 0;
    return result;
}

static const struct kv_remote_kind commit_kind = {.subs_max = KV_COPIES_MAX,
                                                  .begin = commit_begin,
                                                  .step = commit_step,
                                                  .answered = commit_answered,
                                                  .undo = put_undo,
                                                  .is_final = commit_is_final,
                                                  .needs_all = needs_all,
                                                  .finish = commit_finish};

/* ---- what clients ask of a remote put ---- */

/* The remote request that already moves the staged bytes of this put; NULL: none. */
static struct kv_remote *find_early(const struct kv_daemon *d, const struct kv_client_slot *s,
                                    uint64_t ticket)
{
    for (struct kv_remote *remote = d->remotes; remote; remote = remote->next)
        if (remote->early && remote->client == s && remote->request.handle == ticket)
            return remote;
    return NULL;
}

/* One that nobody waits for until kv_remote_attach.  NULL: too many, or no memory. */
static struct kv_remote *start_early(struct kv_daemon *d, struct kv_client_slot *s,
                                     const struct kv_remote_kind *kind,
                                     const struct kv_block_request *r,
                                     const struct kv_block_key *keys)
{
    uint64_t lasts = d->config.blocks.put_lasts_ns;
    struct kv_remote *remote =
        kv_remote_add(d, kind, r, keys, d->now_ns + (lasts ? lasts : KV_PUT_LASTS_NS));
    if (!remote)
        return NULL;
    remote->client = s;
    remote->early = true;
    hw_counter_bump(&d->stats.block_remote, 1);
    return remote;
}

/* The put becomes a remote request to commit the bytes at r->at; *out is written with KV_OK only.
 */
static enum kv_result take_put(struct kv_daemon *d, struct kv_client_slot *s,
                               const struct kv_block_request *r, struct kv_remote **out)
{
    uint32_t place = 0;
    enum kv_result result = find_put(d, s, r->handle, &place);
    if (result != KV_OK)
        return result;
    struct kv_remote_put put = d->remote_puts[place];
    struct kv_block_request request = {.op = KV_BLOCK_PUT_COMMIT,
                                       .key_count = 1,
                                       .len = put.len,
                                       .tenant = put.tenant,
                                       .handle = r->handle,
                                       .at = r->at};
    uint64_t room = s->region.staging_bytes;
    if (r->len > put.len || put.len > room || r->at > room - put.len)
        return KV_REFUSED;
    struct kv_remote *remote = start_early(d, s, &commit_kind, &request, &put.key);
    if (!remote)
        return KV_FULL;
    kv_claims_drop(d->remote_put_claims, place);
    remote->put = put;
    *out = remote;
    return KV_OK;
}

/* Bounds early commits, so that they do not use up all remote requests. */
static bool may_begin_early(const struct kv_daemon *d)
{
    uint32_t count = 0;
    for (const struct kv_remote *remote = d->remotes; remote; remote = remote->next)
        count += remote->early;
    return count < KV_REMOTE_PUTS_MAX;
}

enum kv_result kv_remote_put_staged(struct kv_daemon *d, struct kv_client_slot *s,
                                    const struct kv_block_request *r)
{
    struct kv_remote *remote = find_early(d, s, r->handle);
    if (!remote && !may_begin_early(d))
        return KV_FULL;
    enum kv_result result = remote ? KV_OK : take_put(d, s, r, &remote);
    if (result != KV_OK)
        return result;
    if (r->at != remote->request.at || r->len > remote->request.len)
        return KV_REFUSED;
    remote->staged = r->len > remote->staged ? r->len : remote->staged;
    return KV_OK;
}

void kv_remote_put_commit(struct kv_daemon *d, struct kv_pending *p,
                          const struct kv_block_request *r)
{
    struct kv_remote *remote = find_early(d, p->client, r->handle);
    enum kv_result result = remote ? KV_OK : take_put(d, p->client, r, &remote);
    if (result == KV_OK && (r->at != remote->request.at || r->len != remote->request.len)) {
        kv_remote_drop(remote);
        result = KV_REFUSED;
    }
    if (result != KV_OK) {
        kv_client_slot_answer(p, result, NULL, 0);
        return;
    }
    remote->staged = r->len;
    kv_remote_attach(remote, p);
}

void kv_remote_put_move(struct kv_daemon *d, struct kv_pending *p, const struct kv_blocks_put *put)
{
    const struct kv_block_copy *copy = &p->copy;
    const struct kv_block_request request = {.op = KV_BLOCK_PUT_COMMIT,
                                             .key_count = 1,
                                             .len = put->len,
                                             .tenant = put->tenant,
                                             .handle = copy->ticket,
                                             .at = copy->at};
    struct kv_remote *remote = NULL;
    (void)kv_blocks_put_abort(d->blocks, &p->client->holder, copy->ticket, d->now_ns);
    if (copy->len == put->len)
        remote = kv_remote_add(d, &commit_kind, &request, &put->key, p->deadline_ns);
    if (!remote) {
        kv_client_slot_answer(p, copy->len == put->len ? KV_FULL : KV_REFUSED, NULL, 0);
        return;
    }
    remote->put = (struct kv_remote_put){.key = put->key,
                                         .tenant = put->tenant,
                                         .len = put->len,
                                         .epoch = d->view.epoch,
                                         .over = put->over};
    remote->staged = put->len;
    kv_remote_attach(remote, p);
    hw_counter_bump(&d->stats.block_remote, 1);
}

enum kv_result kv_remote_put_abort(struct kv_daemon *d, struct kv_client_slot *s, uint64_t ticket)
{
    uint32_t place;
    struct kv_remote *remote = find_early(d, s, ticket);
    if (remote) {
        kv_remote_drop(remote);
        return KV_OK;
    }
    enum kv_result result = find_put(d, s, ticket, &place);
    if (result != KV_OK)
        return result;
    put_drop(d, s, place);
    return KV_OK;
}
