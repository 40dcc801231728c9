/* remote/get.c - reads a block of another daemon into a cached replica and leases that.
 *
 * A cached replica that is here already is used only if the owner says that it is the same
 * (OPEN_GET with its checksum).  So a deleted block is a miss everywhere at once.
 *
 * A named value is asked for at every owner that can be reached, one after the other, and the
 * newest is taken.  An owner that was away may have an older one.  Who has the newest is only asked
 * for that: no bytes move.
 *
 * Reads repair replicas: an owner that reads the block from another owner keeps it; an owner that
 * was asked and lacks the block, or sent corrupt bytes, is told to fetch it. */
#include "kv/daemon/remote/remote.h"

#include "kv/daemon/client_slots.h"
#include "kv/daemon/permits.h"
#include "kv/daemon/view_peers.h"

static void get_begin(struct kv_remote *remote)
{
    uint32_t owners[KV_COPIES_MAX];
    uint32_t count = kv_remote_owners(remote, owners);
    remote->same = false;
    remote->version = 0;
    for (uint32_t i = 0; i < count; i++)
        if (remote->daemon->view.members[owners[i]].id != remote->daemon->self)
            (void)kv_remote_add_sub(remote, owners[i]);
}

/* ---- one owner ---- */

/* Whether a client put the block here, as one of its owners. */
static bool is_put_here(const struct kv_remote *remote)
{
    return kv_blocks_owns(remote->daemon->blocks, &remote->keys[0]) &&
           kv_share_of(remote->daemon, &remote->keys[0]) != KV_SHARE_NONE;
}

static bool open_sub(struct kv_remote *remote, struct kv_sub *sub)
{
    const struct kv_blocks *b = remote->daemon->blocks;
    struct kv_peer_request r = {
        .method = KV_PEER_OPEN_GET, .key_count = 1, .handle = remote->version};
    (void)kv_blocks_peek(b, &remote->keys[0], &r.checksum);
    if (is_put_here(remote)) /* we are an owner, too */
        r.handle = kv_blocks_version(b, &remote->keys[0]);
    sub->sent_ns = kv_daemon_now(remote->daemon);
    sub->put_count = kv_blocks_opened(b, &remote->keys[0]);
    if (!kv_sub_call(sub, &r, remote->keys))
        return sub->phase == KV_SUB_DONE;
    sub->phase = KV_SUB_OPENING;
    return true;
}

static bool read_chunks(struct kv_remote *remote, struct kv_sub *sub)
{
    bool progress = false;
    while (sub->asked < remote->opened.len && kv_sub_may_move(sub)) {
        uint32_t rest = remote->opened.len - sub->asked;
        struct kv_peer_request r = {.method = KV_PEER_READ,
                                    .handle = sub->handle,
                                    .at = sub->asked,
                                    .len = rest < sub->chunk ? rest : sub->chunk};
        if (!kv_sub_call(sub, &r, NULL))
            return progress || sub->phase == KV_SUB_DONE;
        sub->asked += r.len;
        progress = true;
    }
    return progress;
}

static void tell(struct kv_remote *remote, struct kv_sub *sub, enum kv_peer_method what)
{
    struct kv_peer_request r = {.method = what, .epoch = remote->epoch, .len = remote->opened.len};
    kv_sub_post(sub, &r, &remote->keys[0]);
}

static void get_undo(struct kv_remote *remote, struct kv_sub *sub)
{
    struct kv_daemon *d = remote->daemon;
    struct kv_peer_request r = {.method = KV_PEER_CLOSE, .handle = sub->handle};
    if (sub->handle)
        kv_sub_post(sub, &r, NULL);
    sub->handle = 0;
    if (sub->corrupt)
        tell(remote, sub, KV_PEER_CORRUPT);
    sub->corrupt = false;
    if (remote->ticket)
        (void)kv_blocks_put_abort(d->blocks, &d->cache_holder, remote->ticket, d->now_ns);
    remote->ticket = 0;
}

static bool get_step(struct kv_remote *remote, struct kv_sub *sub)
{
    struct kv_sub *current = &remote->subs[remote->sub_at];
    if (sub != current) {
        if (current->phase != KV_SUB_DONE)
            return false;
        if (current->result == KV_OK && !kv_block_key_is_named(&remote->keys[0])) {
            kv_sub_done(sub, KV_OK); /* not needed */
            return true;
        }
        get_undo(remote, current);
        remote->sub_at = (uint32_t)(sub - remote->subs);
    }
    if (sub->phase == KV_SUB_BEGIN)
        return open_sub(remote, sub);
    return sub->phase == KV_SUB_MOVING && read_chunks(remote, sub);
}

/* Whether the owner's block need not be fetched: it was while the owner was asked, or a client put
 * one here that is not older. */
static bool is_here(const struct kv_remote *remote, const struct kv_peer_opened *theirs)
{
    const struct kv_blocks *b = remote->daemon->blocks;
    uint64_t checksum = 0;
    if (!kv_blocks_peek(b, &remote->keys[0], &checksum))
        return false;
    bool newer =
        theirs->version && kv_block_is_newer(theirs->version, theirs->checksum,
                                             kv_blocks_version(b, &remote->keys[0]), checksum);
    return checksum == theirs->checksum || (is_put_here(remote) && !newer);
}

static void on_opened(struct kv_sub *sub, const struct kv_peer_answer *a)
{
    struct kv_remote *remote = sub->remote;
    struct kv_daemon *d = remote->daemon;
    struct kv_peer_opened opened;
    if (kv_peer_opened_decode(a->payload, a->payload_len, &opened)) {
        kv_sub_done(sub, KV_REFUSED);
        return;
    }
    kv_permit_take(d, sub->peer, &remote->keys[0], &opened, sub->sent_ns, sub->put_count);
    if (opened.len == 0) {
        kv_sub_done(sub, KV_MISS);
        return;
    }
    remote->opened = opened;
    sub->handle = opened.same ? 0 : opened.lease;
    if (opened.version > remote->version)
        remote->version = opened.version;
    if (opened.same || is_here(remote, &opened)) {
        remote->same = true;
        kv_sub_done(sub, KV_OK);
        return;
    }
    sub->chunk = opened.chunk;
    enum kv_result result = kv_blocks_cache_start(d->blocks, &d->cache_holder, &remote->keys[0],
                                                  opened.len, d->now_ns, &remote->ticket);
    if (result == KV_OK)
        sub->phase = KV_SUB_MOVING;
    else
        kv_sub_done(sub, result);
}

/* Commits the cached replica: all its bytes are here. */
static enum kv_result publish_replica(struct kv_remote *remote, struct kv_sub *sub)
{
    struct kv_daemon *d = remote->daemon;
    enum kv_result result =
        kv_blocks_put_commit_as(d->blocks, &d->cache_holder, remote->ticket,
                                remote->opened.checksum, remote->opened.version, d->now_ns);
    remote->ticket = 0;
    sub->corrupt = result == KV_MISS;
    if (result == KV_PUT_EXPIRED)
        return KV_TIMEOUT;
    return result == KV_EXISTS ? KV_OK : result; /* another of our clients fetched it meanwhile */
}

static void on_chunk(struct kv_sub *sub, const struct kv_peer_answer *a)
{
    struct kv_remote *remote = sub->remote;
    struct kv_daemon *d = remote->daemon;
    uint32_t rest = remote->opened.len - sub->moved;
    enum kv_result result = KV_REFUSED;
    if (a->payload_len == (rest < sub->chunk ? rest : sub->chunk)) /* they come in order */
        result = kv_blocks_put_write(d->blocks, &d->cache_holder, remote->ticket, sub->moved,
                                     a->payload, a->payload_len, d->now_ns);
    d->turn_bytes += a->payload_len;
    sub->moved += a->payload_len;
    if (result == KV_OK && sub->moved == remote->opened.len)
        kv_sub_done(sub, publish_replica(remote, sub));
    else if (result != KV_OK)
        kv_sub_done(sub, result == KV_PUT_EXPIRED ? KV_TIMEOUT : result);
}

static void get_answered(struct kv_sub *sub, const struct kv_peer_answer *a)
{
    if (a->result != KV_OK) {
        /* The lease ended: the transfer took too long. */
        kv_sub_done(sub, a->result == KV_EXPIRED ? KV_TIMEOUT : a->result);
        return;
    }
    if (sub->phase == KV_SUB_OPENING)
        on_opened(sub, a);
    else
        on_chunk(sub, a);
}

/* ---- the end ---- */

/* The block was found: owners that lack it get it. */
static void restore_replicas(struct kv_remote *remote, bool ours)
{
    struct kv_daemon *d = remote->daemon;
    if (ours && kv_blocks_may_restore(d->blocks, &remote->keys[0], remote->opened.len))
        (void)kv_blocks_adopt(d->blocks, &remote->keys[0], remote->opened.tenant,
                              d->now_ns); /* else it stays a cached replica */
    for (uint32_t i = 0; i < remote->sub_count; i++)
        if (remote->subs[i].result == KV_MISS)
            tell(remote, &remote->subs[i],
                 KV_PEER_REPAIR); /* an owner that sent corrupt bytes was told before */
}

/* Whether an owner had none after another had one: it may have been deleted at both meanwhile. */
static bool is_doubtful(const struct kv_remote *remote)
{
    bool found = false, doubtful = false;
    for (uint32_t i = 0; i < remote->sub_count; i++) {
        doubtful |= found && remote->subs[i].result == KV_MISS;
        found |= remote->subs[i].result == KV_OK;
    }
    return doubtful;
}

static void ask_again(struct kv_remote *remote)
{
    bool all = kv_block_key_is_named(&remote->keys[0]);
    remote->same = false;
    remote->version = 0;
    remote->sub_at = all ? 0 : remote->sub_at;
    for (uint32_t i = remote->sub_at; i < (all ? remote->sub_count : remote->sub_at + 1); i++) {
        struct kv_sub *sub = &remote->subs[i];
        get_undo(remote, sub);
        sub->phase = KV_SUB_BEGIN;
        sub->asked = sub->moved = 0;
    }
}

static enum kv_result get_finish(struct kv_remote *remote, uint32_t *answer_len)
{
    struct kv_daemon *d = remote->daemon;
    enum kv_result result = kv_remote_found(remote);
    bool ours = kv_share_of(d, &remote->keys[0]) != KV_SHARE_NONE;
    bool named = kv_block_key_is_named(&remote->keys[0]);
    if (named && kv_remote_is_cut(remote))
        return KV_PEER_LOST; /* what is here may be old: the other owner will tell */
    if (named && is_doubtful(remote) && !remote->asked_twice) {
        remote->asked_twice = true;
        ask_again(remote);
        return KV_OK;
    }
    if (result == KV_OK)
        restore_replicas(remote, ours);
    if (result == KV_MISS) /* what was fetched while it was deleted */
        (void)kv_blocks_drop_cached(d->blocks, &remote->keys[0]);
    if (result == KV_OK || ours) {
        enum kv_result here = kv_client_slot_lease(d, remote->pending->client, &remote->keys[0],
                                                   result == KV_OK, answer_len);
        if (here == KV_MISS && result == KV_OK && (remote->same || named)) {
            /* Our replica was evicted while the owner was asked, or it gave way to a newer one that
             * then did not come: fetch it. */
            ask_again(remote);
            return KV_OK;
        }
        if (here != KV_MISS || remote->sub_count == 0)
            return here;
    }
    return result == KV_OK ? KV_MISS : result;
}

static void repair_begin(struct kv_remote *remote)
{
    const struct kv_block_key *key = &remote->keys[0];
    if (kv_block_key_is_named(key) || !kv_blocks_owns(remote->daemon->blocks, key))
        get_begin(remote);
}

static enum kv_result repair_finish(struct kv_remote *remote, uint32_t *answer_len)
{
    enum kv_result result = kv_remote_found(remote);
    (void)answer_len;
    if (result == KV_OK && kv_share_of(remote->daemon, &remote->keys[0]) != KV_SHARE_NONE)
        restore_replicas(remote, true);
    return result;
}

static const struct kv_remote_kind repair_kind = {.subs_max = KV_COPIES_MAX,
                                                  .one_by_one = true,
                                                  .begin = repair_begin,
                                                  .step = get_step,
                                                  .answered = get_answered,
                                                  .undo = get_undo,
                                                  .finish = repair_finish};

/* Whether another repair may begin: no two of one key, and not too many. */
static bool may_repair(const struct kv_daemon *d, const struct kv_block_key *key)
{
    uint32_t count = 0;
    for (const struct kv_remote *remote = d->remotes; remote; remote = remote->next) {
        if (remote->kind != &repair_kind)
            continue;
        if (kv_block_key_equal(&remote->keys[0], key))
            return false;
        count++;
    }
    return count < KV_REPAIRS_MAX;
}

bool kv_remote_has(const struct kv_daemon *d, const struct kv_block_key *key, uint64_t version)
{
    return kv_blocks_owns(d->blocks, key) && kv_blocks_version(d->blocks, key) >= version;
}

bool kv_remote_repair(struct kv_daemon *d, const struct kv_block_key *key, uint64_t version)
{
    struct kv_block_request r = {.op = KV_BLOCK_GET, .key_count = 1};
    if (d->alone || kv_share_of(d, key) != KV_SHARE_COPY || kv_remote_has(d, key, version))
        return true;
    return may_repair(d, key) &&
           kv_remote_add(d, &repair_kind, &r, key, d->now_ns + KV_PUT_LASTS_NS);
}

void kv_remote_tell_corrupt(struct kv_daemon *d, const struct kv_block_key *key)
{
    uint32_t owners[KV_COPIES_MAX];
    uint32_t count = kv_view_owners(&d->view, kv_block_hash(key), d->config.copies, owners);
    for (uint32_t i = 0; i < count; i++) {
        struct kv_peer *peer = kv_peer_of(d, d->view.members[owners[i]].id);
        struct kv_sub sub = {.peer = peer, .session = peer ? peer->session : 0};
        struct kv_peer_request r = {.method = KV_PEER_CORRUPT, .epoch = d->view.epoch};
        kv_sub_post(&sub, &r, key);
    }
}

const struct kv_remote_kind kv_remote_kind_get = {.subs_max = KV_COPIES_MAX,
                                                  .one_by_one = true,
                                                  .begin = get_begin,
                                                  .step = get_step,
                                                  .answered = get_answered,
                                                  .undo = get_undo,
                                                  .finish = get_finish};
