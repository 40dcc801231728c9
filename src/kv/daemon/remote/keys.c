/* remote/keys.c - which keys are there, and deleting: one exchange with each owner. */
#include "kv/daemon/remote/remote.h"

#include "kv/daemon/permits.h"
#include "kv/daemon/view_peers.h"

#include "wire/le.h"

/* ---- which keys are there ---- */

static uint32_t sub_to(struct kv_remote *remote, uint32_t place)
{
    uint64_t member = remote->daemon->view.members[place].id;
    for (uint32_t i = 0; i < remote->sub_count; i++)
        if (remote->subs[i].member == member)
            return i;
    (void)kv_remote_add_sub(remote, place);
    return remote->sub_count - 1;
}

static void key_begin(struct kv_remote *remote, uint32_t key)
{
    struct kv_daemon *d = remote->daemon;
    struct kv_key_state *state = &remote->states[key];
    uint32_t owners[KV_COPIES_MAX];
    uint32_t count =
        kv_view_owners(&d->view, kv_block_hash(&remote->keys[key]), d->config.copies, owners);
    *state = (struct kv_key_state){0};
    for (uint32_t i = 0; i < count; i++) {
        if (d->view.members[owners[i]].id == d->self)
            state->there = kv_blocks_owns(d->blocks, &remote->keys[key]);
        else
            state->subs[state->sub_count++] = (uint16_t)sub_to(remote, owners[i]);
    }
}

void kv_remote_keys_begin(struct kv_remote *remote)
{
    for (uint32_t i = 0; i < remote->request.key_count; i++)
        key_begin(remote, i);
}

int kv_remote_asked_as(const struct kv_remote *remote, uint32_t key, const struct kv_sub *sub)
{
    const struct kv_key_state *state = &remote->states[key];
    for (uint32_t i = 0; i < state->sub_count; i++)
        if (&remote->subs[state->subs[i]] == sub)
            return (int)i;
    return -1;
}

bool kv_remote_keys_step(struct kv_remote *remote, struct kv_sub *sub)
{
    struct kv_block_key *keys = remote->daemon->scratch->keys;
    struct kv_peer_request r = {.method = KV_PEER_EXISTS, .flag = remote->kind->asks_versions};
    if (sub->phase != KV_SUB_BEGIN)
        return false;
    for (uint32_t i = 0; i < remote->request.key_count; i++)
        if (kv_remote_asked_as(remote, i, sub) >= 0)
            keys[r.key_count++] = remote->keys[i];
    if (kv_sub_call(sub, &r, keys))
        sub->phase = KV_SUB_OPENING;
    return sub->phase != KV_SUB_BEGIN;
}

static void keys_answered(struct kv_sub *sub, const struct kv_peer_answer *a)
{
    struct kv_remote *remote = sub->remote;
    uint32_t n = 0;
    for (uint32_t i = 0; i < remote->request.key_count && a->result == KV_OK; i++)
        if (kv_remote_asked_as(remote, i, sub) >= 0) {
            remote->states[i].there |= n < a->payload_len && a->payload[n];
            n++;
        }
    kv_sub_done(sub, a->result == KV_OK && n != a->payload_len ? KV_REFUSED : a->result);
}

/* Why a key that was not found may still exist; KV_OK: it does not. */
static enum kv_result doubt(const struct kv_remote *remote, uint32_t key)
{
    const struct kv_key_state *state = &remote->states[key];
    for (uint32_t i = 0; i < state->sub_count; i++) {
        const struct kv_sub *sub = &remote->subs[state->subs[i]];
        if (sub->result != KV_OK && !sub->stale_view)
            return sub->result;
    }
    return remote->daemon->view.count ? KV_OK : KV_PEER_LOST;
}

static enum kv_result keys_finish(struct kv_remote *remote, uint32_t *answer_len)
{
    uint8_t *answer = remote->daemon->scratch->answer;
    for (uint32_t i = 0; i < remote->request.key_count; i++) {
        bool there = remote->states[i].there;
        enum kv_result result = there ? KV_OK : doubt(remote, i);
        if (result != KV_OK)
            return result;
        answer[i] = there;
    }
    *answer_len = remote->request.key_count;
    return KV_OK;
}

const struct kv_remote_kind kv_remote_kind_keys = {.begin = kv_remote_keys_begin,
                                                   .step = kv_remote_keys_step,
                                                   .answered = keys_answered,
                                                   .finish = keys_finish};

/* ---- looking at a named value ---- */

static void look_begin(struct kv_remote *remote)
{
    uint32_t owners[KV_COPIES_MAX];
    uint32_t count = kv_remote_owners(remote, owners);
    remote->look = (struct kv_blocks_look){0};
    for (uint32_t i = 0; i < count; i++)
        (void)kv_remote_add_sub(remote, owners[i]);
}

/* What an owner has. */
static void note_look(struct kv_sub *sub, const struct kv_blocks_look *is)
{
    struct kv_blocks_look *newest = &sub->remote->look;
    if (is->version > newest->version)
        *newest = *is;
    kv_sub_done(sub, KV_OK);
}

static bool look_step(struct kv_remote *remote, struct kv_sub *sub)
{
    struct kv_peer_request r = {.method = KV_PEER_LOOK, .key_count = 1};
    struct kv_blocks_look is;
    if (sub->phase != KV_SUB_BEGIN)
        return false;
    if (!sub->self) {
        if (kv_sub_call(sub, &r, remote->keys))
            sub->phase = KV_SUB_OPENING;
    } else if (kv_blocks_look(remote->daemon->blocks, remote->keys, &is)) {
        note_look(sub, &is);
    } else {
        kv_sub_done(sub, KV_MISS);
    }
    return sub->phase != KV_SUB_BEGIN;
}

static void look_answered(struct kv_sub *sub, const struct kv_peer_answer *a)
{
    if (a->result != KV_OK || a->payload_len != KV_PEER_LOOK_BYTES)
        kv_sub_done(sub, a->result == KV_OK ? KV_REFUSED : a->result);
    else
        note_look(sub, &(struct kv_blocks_look){.version = wire_load64(a->payload),
                                                .end_ms = wire_load64(a->payload + 8),
                                                .len = wire_load32(a->payload + 16)});
}

static enum kv_result look_finish(struct kv_remote *remote, uint32_t *answer_len)
{
    enum kv_result result = kv_remote_is_cut(remote) ? KV_PEER_LOST : kv_remote_found(remote);
    *answer_len =
        result == KV_OK ? kv_block_look_encode(&remote->look, remote->daemon->scratch->answer) : 0;
    return result;
}

const struct kv_remote_kind kv_remote_kind_look = {.subs_max = KV_COPIES_MAX,
                                                   .begin = look_begin,
                                                   .step = look_step,
                                                   .answered = look_answered,
                                                   .finish = look_finish};

/* ---- deleting ---- */

static void delete_begin(struct kv_remote *remote)
{
    struct kv_daemon *d = remote->daemon;
    uint32_t owners[KV_COPIES_MAX];
    uint32_t count = kv_remote_owners(remote, owners);
    const struct kv_block_request *r = &remote->request;
    remote->version = r->flag ? kv_blocks_version_of(d->blocks, &remote->keys[0], r->handle)
                              : kv_blocks_version(d->blocks, &remote->keys[0]);
    bool goes = !r->flag || remote->version;
    for (uint32_t i = 0; i < count; i++) {
        struct kv_sub *sub = kv_remote_add_sub(remote, owners[i]);
        if (!goes)
            kv_sub_done(sub, KV_MISS);
    }
    if (goes)
        (void)kv_blocks_drop_cached(d->blocks, &remote->keys[0]);
}

/* What an owner has; its version plus 1. */
static void note_version(struct kv_sub *sub, uint64_t version)
{
    struct kv_remote *remote = sub->remote;
    sub->handle = version;
    if (!remote->request.flag && version > remote->version + 1)
        remote->version = version - 1;
    sub->phase = KV_SUB_MOVING;
}

/* Asks an owner of a named value which version it has.  So the delete takes what was there when it
 * began, and nothing that was set meanwhile; and nothing where an owner cannot be reached: that one
 * could have the older value, which would be back. */
static bool ask_version(struct kv_remote *remote, struct kv_sub *sub)
{
    struct kv_peer_request r = {.method = KV_PEER_EXISTS, .flag = true, .key_count = 1};
    if (sub->self)
        note_version(sub, kv_blocks_version(remote->daemon->blocks, remote->keys) + 1);
    else if (kv_sub_call(sub, &r, remote->keys))
        sub->phase = KV_SUB_OPENING;
    return sub->phase != KV_SUB_BEGIN;
}

/* Whether all owners have answered, and older blocks than this owner's are gone: else one of them
 * could be read after the newest.  If an owner was not reached, the sub-request is done, too. */
static bool may_delete(const struct kv_remote *remote, struct kv_sub *sub)
{
    bool all = true;
    for (uint32_t i = 0; i < remote->sub_count && sub->phase != KV_SUB_DONE; i++) {
        const struct kv_sub *other = &remote->subs[i];
        all &= other->phase >= (other->handle < sub->handle ? KV_SUB_DONE : KV_SUB_MOVING);
        if (other->phase == KV_SUB_DONE && other->result != KV_OK && other->result != KV_MISS)
            kv_sub_done(sub, other->result);
    }
    return all && sub->phase != KV_SUB_DONE;
}

static bool delete_step(struct kv_remote *remote, struct kv_sub *sub)
{
    struct kv_blocks *b = remote->daemon->blocks;
    bool named = kv_block_key_is_named(&remote->keys[0]);
    enum kv_sub_phase before = sub->phase;
    struct kv_peer_request r = {.method = KV_PEER_DELETE,
                                .flag = named,
                                .handle = remote->version,
                                .len = sub->not_before_ns != 0,
                                .key_count = 1};
    if (before == KV_SUB_BEGIN && named)
        return ask_version(remote, sub);
    if (before != (named ? KV_SUB_MOVING : KV_SUB_BEGIN) || (named && !may_delete(remote, sub)))
        return sub->phase != before;
    if (sub->self && named && !sub->not_before_ns)
        sub->not_before_ns =
            remote->daemon->now_ns + kv_permit_wait(remote->daemon, remote->keys, false);
    if (remote->daemon->now_ns < sub->not_before_ns)
        return false;
    if (sub->self)
        kv_sub_done(sub, named ? kv_blocks_delete_old(b, remote->keys, remote->version,
                                                      remote->daemon->now_ns)
                               : kv_blocks_delete(b, remote->keys, remote->daemon->now_ns));
    else if (kv_sub_call(sub, &r, remote->keys))
        sub->phase = KV_SUB_CLOSING;
    return sub->phase != before;
}

static void delete_answered(struct kv_sub *sub, const struct kv_peer_answer *a)
{
    bool closing = sub->phase == KV_SUB_CLOSING;
    if (closing && kv_sub_put_off(sub, a))
        return;
    if (closing || a->result != KV_OK) {
        kv_sub_done(sub, a->result);
    } else if (a->payload_len != 8) {
        kv_sub_done(sub, KV_REFUSED);
    } else {
        note_version(sub, wire_load64(a->payload));
    }
}

/* What an owner has deleted stays so when the delete begins again with another view. */
static void delete_undo(struct kv_remote *remote, struct kv_sub *sub)
{
    remote->deleted |= sub->phase == KV_SUB_DONE && sub->result == KV_OK;
}

/* Of a named value a set takes the delete's place, if there is time for it (kv_named_delete). */
static bool delete_needs_all(const struct kv_remote *remote)
{
    return !kv_block_key_is_named(&remote->keys[0]);
}

/* A block is deleted only if every owner was reached. */
static enum kv_result delete_finish(struct kv_remote *remote, uint32_t *answer_len)
{
    bool named = kv_block_key_is_named(&remote->keys[0]);
    enum kv_result result = !remote->sub_count ? KV_PEER_LOST : remote->deleted ? KV_OK : KV_MISS;
    (void)answer_len;
    for (uint32_t i = 0; i < remote->sub_count; i++) {
        enum kv_result one = remote->subs[i].stale_view ? KV_MISS : remote->subs[i].result;
        if (one != KV_OK && one != KV_MISS)
            return named && one == KV_TIMEOUT ? KV_PEER_LOST : one;
        result = one == KV_OK ? KV_OK : result;
    }
    return result;
}

const struct kv_remote_kind kv_remote_kind_delete = {.subs_max = KV_COPIES_MAX,
                                                     .once = true,
                                                     .begin = delete_begin,
                                                     .step = delete_step,
                                                     .answered = delete_answered,
                                                     .undo = delete_undo,
                                                     .needs_all = delete_needs_all,
                                                     .finish = delete_finish};
