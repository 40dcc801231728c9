/* remote_keys.c - which keys are there, and deleting: one exchange with each owner. */
#include "kv/daemon/remote.h"

#include "kv/daemon/copies.h"
#include "kv/daemon/view_peers.h"

#include "wire/le.h"

#include <assert.h>

/* ---- which keys are there ---- */

static const struct kv_remote_kind count_kind;

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
            state->there = kv_blocks_exists(d->blocks, &remote->keys[key]);
        else
            state->subs[state->sub_count++] = (uint16_t)sub_to(remote, owners[i]);
    }
}

static void keys_begin(struct kv_remote *remote)
{
    for (uint32_t i = 0; i < remote->request.key_count; i++)
        key_begin(remote, i);
}

/* Which of the owners that are asked for a key the sub-request goes to; -1: none. */
static int asked_as(const struct kv_remote *remote, uint32_t key, const struct kv_sub *sub)
{
    const struct kv_key_state *state = &remote->states[key];
    for (uint32_t i = 0; i < state->sub_count; i++)
        if (&remote->subs[state->subs[i]] == sub)
            return (int)i;
    return -1;
}

static bool keys_step(struct kv_remote *remote, struct kv_sub *sub)
{
    struct kv_block_key *keys = remote->daemon->scratch->keys;
    struct kv_peer_request r = {.method = KV_PEER_EXISTS, .flag = remote->kind == &count_kind};
    if (sub->phase != KV_SUB_BEGIN)
        return false;
    for (uint32_t i = 0; i < remote->request.key_count; i++)
        if (asked_as(remote, i, sub) >= 0)
            keys[r.key_count++] = remote->keys[i];
    if (kv_sub_call(sub, &r, keys))
        sub->phase = KV_SUB_OPENING;
    return sub->phase != KV_SUB_BEGIN;
}

static void keys_answered(struct kv_sub *sub, const struct kv_peer_answer *a)
{
    struct kv_remote *remote = sub->remote;
    uint32_t n = 0;
    for (uint32_t i = 0; i < remote->request.key_count && a->result == KV_OK; i++) {
        int owner = asked_as(remote, i, sub);
        if (owner < 0)
            continue;
        if (n < a->payload_len && a->payload[n])
            remote->states[i].there = true;
        else
            remote->states[i].lacks |= (uint8_t)(1u << owner);
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

const struct kv_remote_kind kv_remote_kind_keys = {
    .begin = keys_begin, .step = keys_step, .answered = keys_answered, .finish = keys_finish};

/* ---- counting copies ---- */

static void tell_to_repair(struct kv_remote *remote, uint32_t key, struct kv_sub *sub)
{
    struct kv_peer_request r = {.method = KV_PEER_REPAIR,
                                .epoch = remote->epoch,
                                .len = kv_blocks_len(remote->daemon->blocks, &remote->keys[key])};
    kv_sub_post(sub, &r, &remote->keys[key]);
}

/* An owner that was not reached has no copy, as far as anybody knows. */
static bool is_below(struct kv_remote *remote, uint32_t key)
{
    struct kv_key_state *state = &remote->states[key];
    bool below = state->sub_count + 1u < remote->daemon->config.copies;
    for (uint32_t i = 0; i < state->sub_count; i++) {
        struct kv_sub *sub = &remote->subs[state->subs[i]];
        if (state->lacks & 1u << i)
            tell_to_repair(remote, key, sub);
        below |= sub->result != KV_OK || state->lacks & 1u << i;
    }
    return below;
}

static enum kv_result count_finish(struct kv_remote *remote, uint32_t *answer_len)
{
    struct kv_daemon *d = remote->daemon;
    uint32_t below = 0;
    (void)answer_len;
    for (uint32_t i = 0; i < remote->request.key_count; i++)
        if (kv_blocks_owns(d->blocks, &remote->keys[i]) &&
            kv_share_of(d, &remote->keys[i]) != KV_SHARE_NONE)
            below += is_below(remote, i);
    kv_copies_counted(d, below);
    return KV_OK;
}

static const struct kv_remote_kind count_kind = {
    .begin = keys_begin, .step = keys_step, .answered = keys_answered, .finish = count_finish};

bool kv_remote_counts_copies(const struct kv_daemon *d)
{
    const struct kv_remote *remote = d->remotes;
    while (remote && remote->kind != &count_kind)
        remote = remote->next;
    return remote != NULL;
}

bool kv_remote_count_copies(struct kv_daemon *d, const struct kv_block_key *keys, uint32_t count)
{
    struct kv_block_request r = {.op = KV_BLOCK_EXISTS, .key_count = (uint16_t)count};
    return kv_remote_add(d, &count_kind, &r, keys, d->now_ns + KV_PUT_LASTS_NS);
}

/* ---- deleting ---- */

static void delete_begin(struct kv_remote *remote)
{
    uint32_t owners[KV_COPIES_MAX];
    uint32_t count = kv_remote_owners(remote, owners);
    for (uint32_t i = 0; i < count; i++)
        (void)kv_remote_add_sub(remote, owners[i]);
    (void)kv_blocks_drop_cached(remote->daemon->blocks, &remote->keys[0]);
}

static bool delete_step(struct kv_remote *remote, struct kv_sub *sub)
{
    struct kv_peer_request r = {.method = KV_PEER_DELETE, .key_count = 1};
    if (sub->phase != KV_SUB_BEGIN)
        return false;
    if (sub->self)
        kv_sub_done(sub, kv_blocks_delete(remote->daemon->blocks, &remote->keys[0]));
    else if (kv_sub_call(sub, &r, remote->keys))
        sub->phase = KV_SUB_OPENING;
    return sub->phase != KV_SUB_BEGIN;
}

static void delete_answered(struct kv_sub *sub, const struct kv_peer_answer *a)
{
    kv_sub_done(sub, a->result);
}

/* A block is deleted only if every owner was reached. */
static enum kv_result delete_finish(struct kv_remote *remote, uint32_t *answer_len)
{
    enum kv_result result = remote->sub_count ? KV_MISS : KV_PEER_LOST;
    (void)answer_len;
    for (uint32_t i = 0; i < remote->sub_count; i++) {
        enum kv_result one = remote->subs[i].stale_view ? KV_MISS : remote->subs[i].result;
        if (one != KV_OK && one != KV_MISS)
            return one;
        result = one == KV_OK ? KV_OK : result;
    }
    return result;
}

const struct kv_remote_kind kv_remote_kind_delete = {.subs_max = KV_COPIES_MAX,
                                                     .once = true,
                                                     .begin = delete_begin,
                                                     .step = delete_step,
                                                     .answered = delete_answered,
                                                     .finish = delete_finish};
