/* errand_keys.c - which keys are there, deleting and pinning: one exchange with each owner. */
#include "kv/daemon/errand.h"

#include "wire/le.h"

#include <assert.h>

/* ---- which keys are there ---- */

static uint32_t leg_to(struct kv_errand *e, uint32_t place)
{
    uint64_t member = e->daemon->view.members[place].id;
    for (uint32_t i = 0; i < e->leg_count; i++)
        if (e->legs[i].member == member)
            return i;
    (void)kv_errand_add_leg(e, place);
    return e->leg_count - 1;
}

static void key_begin(struct kv_errand *e, uint32_t key)
{
    struct kv_daemon *d = e->daemon;
    struct kv_key_state *state = &e->states[key];
    uint32_t owners[KV_COPIES_MAX];
    uint32_t count =
        kv_view_owners(&d->view, kv_block_hash(&e->keys[key]), d->config.copies, owners);
    *state = (struct kv_key_state){0};
    for (uint32_t i = 0; i < count; i++) {
        if (d->view.members[owners[i]].id == d->self)
            state->there = kv_blocks_exists(d->blocks, &e->keys[key]);
        else
            state->legs[state->leg_count++] = (uint8_t)leg_to(e, owners[i]);
    }
}

static void keys_begin(struct kv_errand *e)
{
    for (uint32_t i = 0; i < e->request.key_count; i++)
        key_begin(e, i);
}

static bool is_asked(const struct kv_errand *e, uint32_t key, const struct kv_leg *leg)
{
    const struct kv_key_state *state = &e->states[key];
    for (uint32_t i = 0; i < state->leg_count; i++)
        if (&e->legs[state->legs[i]] == leg)
            return true;
    return false;
}

static bool keys_step(struct kv_errand *e, struct kv_leg *leg)
{
    struct kv_block_key *keys = kv_desk_keys(e->daemon);
    struct kv_peer_request r = {.method = KV_PEER_EXISTS};
    if (leg->phase != KV_LEG_BEGIN)
        return false;
    for (uint32_t i = 0; i < e->request.key_count; i++)
        if (is_asked(e, i, leg))
            keys[r.key_count++] = e->keys[i];
    if (kv_leg_call(leg, &r, keys))
        leg->phase = KV_LEG_OPENING;
    return leg->phase != KV_LEG_BEGIN;
}

static void keys_answered(struct kv_leg *leg, const struct kv_peer_answer *a)
{
    struct kv_errand *e = leg->errand;
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->request.key_count && a->result == KV_OK; i++) {
        if (!is_asked(e, i, leg))
            continue;
        if (n < a->body_len && a->body[n])
            e->states[i].there = true;
        n++;
    }
    kv_leg_done(leg, a->result == KV_OK && n != a->body_len ? KV_REFUSED : a->result);
}

/* Why a key that was not found may be there all the same; KV_OK: it is not. */
static enum kv_result doubt(const struct kv_errand *e, uint32_t key)
{
    const struct kv_key_state *state = &e->states[key];
    for (uint32_t i = 0; i < state->leg_count; i++) {
        const struct kv_leg *leg = &e->legs[state->legs[i]];
        if (leg->result != KV_OK && !leg->stale_view)
            return leg->result;
    }
    return e->daemon->view.count ? KV_OK : KV_PEER_LOST;
}

static enum kv_result keys_finish(struct kv_errand *e, uint32_t *answer_len)
{
    bool match = e->request.op == KV_BLOCK_MATCH;
    uint8_t *answer = kv_errand_answer(e);
    uint32_t count = 0;
    bool gap = false;
    for (uint32_t i = 0; i < e->request.key_count && !(match && gap); i++) {
        bool there = e->states[i].there;
        enum kv_result result = there ? KV_OK : doubt(e, i);
        if (result != KV_OK)
            return result;
        gap |= !there;
        count += !gap;
        if (!match)
            answer[i] = there;
    }
    if (match)
        wire_store32(answer, count);
    *answer_len = match ? KV_BLOCK_COUNT_BYTES : e->request.key_count;
    return KV_OK;
}

const struct kv_errand_kind kv_errand_keys = {
    .begin = keys_begin, .step = keys_step, .answered = keys_answered, .finish = keys_finish};

/* ---- deleting and pinning ---- */

static void change_begin(struct kv_errand *e)
{
    uint32_t owners[KV_COPIES_MAX];
    uint32_t count = kv_errand_owners(e, owners);
    for (uint32_t i = 0; i < count; i++)
        (void)kv_errand_add_leg(e, owners[i]);
    if (e->request.op == KV_BLOCK_DELETE)
        (void)kv_blocks_drop_guest(e->daemon->blocks, &e->keys[0]);
}

static bool change_step(struct kv_errand *e, struct kv_leg *leg)
{
    bool pin = e->request.op == KV_BLOCK_PIN;
    struct kv_blocks *b = e->daemon->blocks;
    struct kv_peer_request r = {
        .method = pin ? KV_PEER_PIN : KV_PEER_DELETE, .flag = e->request.flag, .key_count = 1};
    if (leg->phase != KV_LEG_BEGIN)
        return false;
    if (leg->self)
        kv_leg_done(leg, pin ? kv_blocks_pin(b, &e->keys[0], e->request.flag)
                             : kv_blocks_delete(b, &e->keys[0]));
    else if (kv_leg_call(leg, &r, e->keys))
        leg->phase = KV_LEG_OPENING;
    return leg->phase != KV_LEG_BEGIN;
}

static void change_answered(struct kv_leg *leg, const struct kv_peer_answer *a)
{
    kv_leg_done(leg, a->result);
}

/* Where one owner was not reached the change is not whole. */
static enum kv_result change_finish(struct kv_errand *e, uint32_t *answer_len)
{
    enum kv_result result = e->leg_count ? KV_MISS : KV_PEER_LOST;
    (void)answer_len;
    for (uint32_t i = 0; i < e->leg_count; i++) {
        enum kv_result one = e->legs[i].stale_view ? KV_MISS : e->legs[i].result;
        if (one != KV_OK && one != KV_MISS)
            return one;
        result = one == KV_OK ? KV_OK : result;
    }
    return result;
}

const struct kv_errand_kind kv_errand_change = {.begin = change_begin,
                                                .step = change_step,
                                                .answered = change_answered,
                                                .finish = change_finish};
