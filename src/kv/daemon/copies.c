#include "kv/daemon/copies.h"

#include "kv/daemon/remote/remote.h"
#include "kv/daemon/view_peers.h"

#include "wire/le.h"

#include <errno.h>

enum {
    WALK_KEYS = 256,   /* asked for at once: some 20 KiB of keys */
    WALK_STEPS = 8192, /* entries looked at in one turn: some 100 us */
    QUEUE = 1024,      /* blocks to be fetched; more are dropped and told of again */
    RATE = 128 << 20   /* bytes a second that are fetched: a tenth of a fast link */
};

static const uint64_t step_ns = 100 * HW_MS; /* between two parts of a walk */
static const uint64_t round_ns = 5 * HW_SEC; /* between two walks */
static const uint64_t retry_ns = 10 * HW_MS; /* while as many fetches as allowed are under way */

struct wanted {
    struct kv_block_key key;
    uint32_t len;
    uint64_t version;
};

struct kv_copies {
    uint64_t walk_at_ns, epoch;
    uint32_t peers_seen; /* connected at the last turn */
    uint32_t place;      /* of the walk in the store */
    uint32_t below;      /* found by this walk */
    bool last;           /* the walk ends with what is asked for now */
    uint64_t fetch_at_ns;
    uint32_t first, count; /* of the queue */
    struct wanted queue[QUEUE];
};

int kv_copies_init(struct kv_daemon *d)
{
    const struct kv_memory *m = &d->config.memory;
    if (d->config.copies < 2)
        return 0;
    d->copies_kept = m->alloc(m->user, sizeof(*d->copies_kept));
    return d->copies_kept ? 0 : -ENOMEM;
}

void kv_copies_fini(struct kv_daemon *d)
{
    d->config.memory.release(d->config.memory.user, d->copies_kept);
}

/* ---- counting ---- */

static void publish(struct kv_daemon *d)
{
    struct kv_copies *c = d->copies_kept;
    atomic_store_explicit(&d->stats.block_below_copies, c->below, memory_order_relaxed);
    c->last = false;
    /* Of many members each has a part of the same keys, and all would ask all others. */
    uint32_t rounds = c->below ? 1 : 1 + d->view.count / KV_MESH_MAX;
    c->walk_at_ns = d->now_ns + round_ns * rounds;
}

/* So many of the blocks that were asked for lack a copy. */
static void add_counted(struct kv_daemon *d, uint32_t below)
{
    struct kv_copies *c = d->copies_kept;
    c->below += below;
    if (c->last)
        publish(d);
}

static void tell_to_repair(struct kv_remote *remote, uint32_t key, struct kv_sub *sub)
{
    const struct kv_blocks *b = remote->daemon->blocks;
    const struct kv_block_key *k = &remote->keys[key];
    struct kv_peer_request r = {.method = KV_PEER_REPAIR,
                                .epoch = remote->epoch,
                                .len = kv_blocks_len(b, k),
                                .checksum = kv_blocks_version(b, k)};
    kv_sub_post(sub, &r, k);
}

/* What an owner has of a key: nothing, or the version plus 1. */
static void compare(struct kv_remote *remote, uint32_t key, uint32_t owner, uint64_t theirs)
{
    struct kv_daemon *d = remote->daemon;
    const struct kv_block_key *k = &remote->keys[key];
    uint64_t ours = kv_blocks_owns(d->blocks, k) ? kv_blocks_version(d->blocks, k) + 1 : 0;
    if (theirs < ours)
        remote->states[key].lacks |= (uint8_t)(1u << owner);
    else if (theirs > ours && ours > 0)
        kv_copies_restore(d, k, kv_blocks_len(d->blocks, k), theirs - 1);
}

static void count_answered(struct kv_sub *sub, const struct kv_peer_answer *a)
{
    struct kv_remote *remote = sub->remote;
    uint32_t n = 0;
    for (uint32_t i = 0; i < remote->request.key_count && a->result == KV_OK; i++) {
        int owner = kv_remote_asked_as(remote, i, sub);
        if (owner < 0)
            continue;
        if (n + 8 <= a->payload_len)
            compare(remote, i, (uint32_t)owner, wire_load64(a->payload + n));
        n += 8;
    }
    kv_sub_done(sub, a->result == KV_OK && n != a->payload_len ? KV_REFUSED : a->result);
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
    add_counted(d, below);
    return KV_OK;
}

static const struct kv_remote_kind count_kind = {.asks_versions = true,
                                                 .begin = kv_remote_keys_begin,
                                                 .step = kv_remote_keys_step,
                                                 .answered = count_answered,
                                                 .finish = count_finish};

bool kv_copies_counting(const struct kv_daemon *d)
{
    const struct kv_remote *remote = d->remotes;
    while (remote && remote->kind != &count_kind)
        remote = remote->next;
    return remote != NULL;
}

/* Asks the other owners.  False: too many requests. */
static bool begin_counting(struct kv_daemon *d, const struct kv_block_key *keys, uint32_t count)
{
    struct kv_block_request r = {.op = KV_BLOCK_EXISTS, .key_count = (uint16_t)count};
    return kv_remote_add(d, &count_kind, &r, keys, d->now_ns + KV_PUT_LASTS_NS);
}

/* Keeps those of the keys that we own by the view; how many. */
static uint32_t keep_owned(struct kv_daemon *d, struct kv_block_key *keys, uint32_t count)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        if (kv_share_of(d, &keys[i]) != KV_SHARE_NONE)
            keys[n++] = keys[i];
    return n;
}

static void walk(struct kv_daemon *d)
{
    struct kv_copies *c = d->copies_kept;
    struct kv_block_key *keys = d->scratch->keys;
    uint32_t count = WALK_KEYS;
    _Static_assert((int)WALK_KEYS <= (int)KV_BLOCK_CHAIN_MAX, "one request");
    c->walk_at_ns = d->now_ns + step_ns;
    if (kv_copies_counting(d))
        return; /* the part before is not answered yet */
    if (c->place == 0)
        c->below = 0;
    uint32_t next = kv_blocks_walk(d->blocks, c->place, WALK_STEPS, keys, &count);
    count = keep_owned(d, keys, count);
    if (count > 0 && !d->alone && !begin_counting(d, keys, count))
        return;
    c->place = next;
    c->last = next == 0;
    if (d->alone)
        add_counted(d, count); /* nobody else has any */
    else if (count == 0)
        add_counted(d, 0);
}

/* ---- fetching ---- */

static bool is_queued(const struct kv_copies *c, const struct kv_block_key *key)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (kv_block_key_equal(&c->queue[(c->first + i) % QUEUE].key, key))
            return true;
    return false;
}

void kv_copies_restore(struct kv_daemon *d, const struct kv_block_key *key, uint32_t len,
                       uint64_t version)
{
    struct kv_copies *c = d->copies_kept;
    if (!c || c->count == QUEUE || kv_remote_has(d, key, version) || is_queued(c, key))
        return;
    c->queue[(c->first + c->count++) % QUEUE] =
        (struct wanted){.key = *key, .len = len, .version = version};
}

static uint64_t cost_ns(uint32_t len)
{
    return (uint64_t)len * HW_SEC / RATE;
}

static uint32_t fetch(struct kv_daemon *d)
{
    struct kv_copies *c = d->copies_kept;
    uint32_t started = 0;
    while (c->count > 0 && d->now_ns >= c->fetch_at_ns) {
        const struct wanted *w = &c->queue[c->first];
        if (!kv_remote_repair(d, &w->key, w->version)) {
            c->fetch_at_ns = d->now_ns + retry_ns;
            break;
        }
        c->fetch_at_ns = d->now_ns + cost_ns(w->len);
        c->first = (c->first + 1) % QUEUE;
        c->count--;
        started++;
    }
    return started;
}

/* ---- turns ---- */

uint32_t kv_copies_step(struct kv_daemon *d)
{
    struct kv_copies *c = d->copies_kept;
    /* In a mesh: one that comes back may have lost its blocks.  Of more members the view tells. */
    bool returned = d->peers_up > c->peers_seen && d->view.count <= KV_MESH_MAX;
    c->peers_seen = d->peers_up;
    if (c->epoch != d->view.epoch || returned) { /* from the start, at once */
        c->epoch = d->view.epoch;
        c->place = 0;
        c->last = false; /* what is asked for now ends no walk */
        c->walk_at_ns = d->now_ns;
    }
    if (d->now_ns >= c->walk_at_ns)
        walk(d);
    return c->count > 0 ? fetch(d) : 0;
}

uint64_t kv_copies_next_tick(const struct kv_daemon *d)
{
    const struct kv_copies *c = d->copies_kept;
    return c->count > 0 && c->fetch_at_ns < c->walk_at_ns ? c->fetch_at_ns : c->walk_at_ns;
}
