#include "kv/daemon/copies.h"

#include "kv/daemon/remote/remote.h"
#include "kv/daemon/view_peers.h"

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

void kv_copies_counted(struct kv_daemon *d, uint32_t below)
{
    struct kv_copies *c = d->copies_kept;
    c->below += below;
    if (c->last)
        publish(d);
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
    if (kv_remote_counts_copies(d))
        return; /* the part before is not answered yet */
    if (c->place == 0)
        c->below = 0;
    uint32_t next = kv_blocks_walk(d->blocks, c->place, WALK_STEPS, keys, &count);
    count = keep_owned(d, keys, count);
    if (count > 0 && !d->alone && !kv_remote_count_copies(d, keys, count))
        return;
    c->place = next;
    c->last = next == 0;
    if (d->alone)
        kv_copies_counted(d, count); /* nobody else has any */
    else if (count == 0)
        kv_copies_counted(d, 0);
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
