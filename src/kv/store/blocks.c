#include "kv/store/blocks.h"

#include "kv/store/extents.h"
#include "wire/le.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

enum {
    NONE = UINT32_MAX,
    CACHED = KV_BLOCK_TENANTS_MAX,
    OPENED_PLACES = 256,
    ABSENT_PLACES = 1024,  /* names without a value on which owners agree, 16 KiB */
    DELETED_PLACES = 1024, /* remembered deletes, 24 KiB: the last at each place */
    HIGH = 98,
    LOW = 96
};

enum entry_state {
    ENTRY_FREE,
    ENTRY_OPEN,  /* a put is in progress */
    ENTRY_READY, /* in the index; known to the policy unless it is a cached replica */
    ENTRY_GONE   /* in neither, but still leased */
};

struct entry {
    struct kv_block_key key;
    uint8_t state;
    bool is_name, ends; /* it counts as one, and as one with an end: see kv_blocks_names */
    uint32_t len, extent, tenant, leases;
    uint64_t offset, checksum, hash, version;
    uint64_t agreed;       /* see kv_blocks_agree; 0: not */
    uint32_t chain;        /* the next in its bucket; free: the next free one */
    uint32_t older, newer; /* of one tenant, by commit */
};

struct tenant {
    uint64_t id, bytes;
    uint32_t entries; /* 0: the place is free */
    uint32_t names, ends;
    uint32_t oldest, newest;
};

/* A put in progress, at the place of its claim. */
struct put {
    uint64_t written, sum; /* bytes, and their checksum */
    uint64_t over;         /* see kv_blocks_swap_start; 0 where there is no put */
    uint64_t hash;         /* of its key */
};

/* Puts of all keys whose hash has the same place. */
struct opened {
    uint32_t ever, now;
};

/* The last delete at its place, as long as a replica that is older may be on its way here. */
struct deleted {
    uint64_t hash, until_ns; /* 0: none */
    bool several;            /* of other keys, too, which are not known any more */
};

/* A key without a block on which owners agree. */
struct absent {
    uint64_t hash, agreed;
};

struct kv_blocks {
    struct kv_blocks_config config;
    struct opened opened[OPENED_PLACES];
    struct absent absent[ABSENT_PLACES];
    uint64_t doubt_until_ns; /* see kv_blocks_agree */
    uint8_t *arena;
    struct kv_extents *extents;
    struct kv_policy *policy;
    struct kv_claims *open_puts, *leases;
    struct entry *entries;
    struct put *put_states;
    uint32_t *buckets;
    uint32_t bucket_mask, spare;
    struct tenant tenants[KV_BLOCK_TENANTS_MAX + 1]; /* the last: cached replicas, no limit */
    struct deleted deleted[DELETED_PLACES];
    uint64_t *evicted; /* hashes of keys of our own that were evicted, each at its bucket */
    struct kv_blocks_stat stat; /* counts; the rest is filled in when asked for */
};

/* ---- the index ---- */

static uint64_t hash_of(const struct kv_blocks *b, const struct kv_block_key *key)
{
    return XXH3_64bits_withSeed(key->bytes, key->len, b->config.secret);
}

static uint32_t find_hashed(const struct kv_blocks *b, const struct kv_block_key *key,
                            uint64_t hash)
{
    uint32_t at = b->buckets[hash & b->bucket_mask];
    while (at != NONE &&
           (b->entries[at].hash != hash || !kv_block_key_equal(&b->entries[at].key, key)))
        at = b->entries[at].chain;
    return at;
}

static uint32_t find(const struct kv_blocks *b, const struct kv_block_key *key)
{
    if (key->len < 1 || key->len > KV_BLOCK_KEY_MAX)
        return NONE;
    return find_hashed(b, key, hash_of(b, key));
}

static void index_add(struct kv_blocks *b, uint32_t at)
{
    uint32_t *bucket = &b->buckets[b->entries[at].hash & b->bucket_mask];
    b->entries[at].chain = *bucket;
    *bucket = at;
}

static void index_remove(struct kv_blocks *b, uint32_t at)
{
    uint32_t *link = &b->buckets[b->entries[at].hash & b->bucket_mask];
    while (*link != at)
        link = &b->entries[*link].chain;
    *link = b->entries[at].chain;
}

/* ---- tenants ---- */

/* The tenant's place, or one for it; NONE when all are taken. */
static uint32_t tenant_place(struct kv_blocks *b, uint64_t id)
{
    uint32_t free_place = NONE;
    for (uint32_t i = 0; i < KV_BLOCK_TENANTS_MAX; i++) {
        struct tenant *t = &b->tenants[i];
        if (t->entries > 0 && t->id == id)
            return i;
        if (t->entries == 0 && free_place == NONE)
            free_place = i;
    }
    if (free_place != NONE)
        b->tenants[free_place] = (struct tenant){.id = id, .oldest = NONE, .newest = NONE};
    return free_place;
}

static void tenant_list_add(struct kv_blocks *b, uint32_t at)
{
    struct entry *e = &b->entries[at];
    struct tenant *t = &b->tenants[e->tenant];
    e->newer = NONE;
    e->older = t->newest;
    *(t->newest == NONE ? &t->oldest : &b->entries[t->newest].newer) = at;
    t->newest = at;
}

static void tenant_list_remove(struct kv_blocks *b, uint32_t at)
{
    struct entry *e = &b->entries[at];
    struct tenant *t = &b->tenants[e->tenant];
    *(e->older == NONE ? &t->oldest : &b->entries[e->older].newer) = e->newer;
    *(e->newer == NONE ? &t->newest : &b->entries[e->newer].older) = e->older;
}

static bool is_cached(const struct entry *e)
{
    return e->tenant == CACHED;
}

/* ---- the end of a block ---- */

static void entry_free(struct kv_blocks *b, uint32_t at)
{
    struct entry *e = &b->entries[at];
    struct tenant *t = &b->tenants[e->tenant];
    assert(e->leases == 0 && e->state != ENTRY_FREE);
    t->bytes -= kv_extents_size(e->len);
    t->entries--;
    kv_extents_give(b->extents, e->extent);
    e->state = ENTRY_FREE;
    e->chain = b->spare;
    b->spare = at;
}

/* Takes the entry out of the index; the policy has dropped it before. */
static void entry_retire(struct kv_blocks *b, uint32_t at)
{
    struct entry *e = &b->entries[at];
    assert(e->state == ENTRY_READY);
    index_remove(b, at);
    tenant_list_remove(b, at);
    b->stat.blocks--;
    b->stat.bytes -= e->len;
    b->stat.cached -= is_cached(e);
    b->tenants[e->tenant].names -= e->is_name;
    b->tenants[e->tenant].ends -= e->ends;
    e->state = ENTRY_GONE;
    if (e->leases == 0)
        entry_free(b, at);
}

static void entry_drop(struct kv_blocks *b, uint32_t at)
{
    if (!is_cached(&b->entries[at]))
        kv_policy_remove(b->policy, at);
    entry_retire(b, at);
}

static void lease_end(struct kv_blocks *b, uint32_t place)
{
    uint32_t at = kv_claims_entry(b->leases, place);
    struct entry *e = &b->entries[at];
    kv_claims_drop(b->leases, place);
    assert(e->leases > 0);
    e->leases--;
    if (e->leases == 0 && e->state == ENTRY_GONE)
        entry_free(b, at);
}

/* The entry of a put that ends. */
static uint32_t put_close(struct kv_blocks *b, uint32_t place)
{
    uint32_t at = kv_claims_entry(b->open_puts, place);
    b->opened[b->entries[at].hash % OPENED_PLACES].now--;
    b->put_states[place].over = 0;
    kv_claims_drop(b->open_puts, place);
    return at;
}

static void put_end(struct kv_blocks *b, uint32_t place)
{
    entry_free(b, put_close(b, place));
}

/* The end of a put that nobody asked for: its block may be committed at another owner still. */
static void put_lose(struct kv_blocks *b, uint32_t place, uint64_t now)
{
    if (!is_cached(&b->entries[kv_claims_entry(b->open_puts, place)]))
        b->doubt_until_ns = now + 2 * b->config.put_lasts_ns;
    put_end(b, place);
}

void kv_blocks_tick(struct kv_blocks *b, uint64_t now)
{
    uint32_t place;
    while ((place = kv_claims_next(b->open_puts)) != NONE &&
           now >= kv_claims_expires_ns(b->open_puts, place)) {
        put_lose(b, place, now);
        b->stat.puts_expired++;
    }
    while ((place = kv_claims_next(b->leases)) != NONE &&
           now >= kv_claims_expires_ns(b->leases, place)) {
        lease_end(b, place);
        b->stat.leases_expired++;
    }
}

uint64_t kv_blocks_next_tick(const struct kv_blocks *b)
{
    uint32_t put = kv_claims_next(b->open_puts), lease = kv_claims_next(b->leases);
    uint64_t put_at = put == NONE ? HW_NEVER : kv_claims_expires_ns(b->open_puts, put);
    uint64_t lease_at = lease == NONE ? HW_NEVER : kv_claims_expires_ns(b->leases, lease);
    return put_at < lease_at ? put_at : lease_at;
}

void kv_blocks_leave(struct kv_blocks *b, struct kv_block_holder *holder, uint64_t now)
{
    while (holder->open_puts.count > 0)
        put_lose(b, holder->open_puts.first, now);
    while (holder->leases.count > 0)
        lease_end(b, holder->leases.first);
}

/* ---- making room ---- */

static bool is_held(void *user, uint32_t at)
{
    const struct entry *e = &((const struct kv_blocks *)user)->entries[at];
    return e->leases > 0;
}

static void note_evicted(struct kv_blocks *b, const struct entry *e)
{
    b->stat.evicted++;
    if (!is_cached(e))
        b->evicted[e->hash & b->bucket_mask] = e->hash;
}

static bool evict_of_tenant(struct kv_blocks *b, uint32_t tenant)
{
    uint32_t at = b->tenants[tenant].oldest;
    while (at != NONE && is_held(b, at))
        at = b->entries[at].newer;
    if (at == NONE)
        return false;
    note_evicted(b, &b->entries[at]);
    entry_drop(b, at);
    return true;
}

/* Cached replicas go first, the least recently used one before the others. */
static bool evict_one(struct kv_blocks *b)
{
    if (evict_of_tenant(b, CACHED))
        return true;
    uint32_t at = kv_policy_evict(b->policy, is_held, b);
    if (at == NONE)
        return false;
    note_evicted(b, &b->entries[at]);
    entry_retire(b, at);
    return true;
}

static uint64_t percent(uint64_t bytes, uint32_t percent)
{
    return bytes / 100 * percent + bytes % 100 * percent / 100;
}

static int take_room(struct kv_blocks *b, uint32_t len, uint32_t *extent, uint64_t *offset)
{
    const struct kv_blocks_config *c = &b->config;
    uint64_t size = kv_extents_size(len);
    bool more = true;
    if (kv_extents_used(b->extents) + size > percent(c->arena_bytes, c->high_percent))
        while (more && kv_extents_used(b->extents) + size > percent(c->arena_bytes, c->low_percent))
            more = evict_one(b);
    while (b->spare == NONE && more)
        more = evict_one(b);
    if (b->spare == NONE)
        return -ENOSPC;
    int rc = kv_extents_take(b->extents, len, extent, offset);
    while (rc && more) { /* there are holes, but none is large enough */
        more = evict_one(b);
        rc = kv_extents_take(b->extents, len, extent, offset);
    }
    return rc;
}

static bool tenant_room(struct kv_blocks *b, uint32_t tenant, uint64_t size)
{
    struct tenant *t = &b->tenants[tenant];
    while (t->bytes + size > b->config.tenant_bytes)
        if (!evict_of_tenant(b, tenant))
            return false;
    return true;
}

/* ---- putting ---- */

static void entry_open(struct kv_blocks *b, const struct entry *start)
{
    uint32_t at = b->spare;
    struct entry *e = &b->entries[at];
    b->spare = e->chain;
    *e = *start;
    e->state = ENTRY_OPEN;
    b->tenants[e->tenant].entries++;
    b->tenants[e->tenant].bytes += kv_extents_size(e->len);
}

static enum kv_result start_put(struct kv_blocks *b, struct kv_block_holder *holder,
                                struct entry *e, uint64_t over, uint64_t now, uint64_t *ticket)
{
    if (kv_claims_count(b->open_puts) == b->config.open_puts ||
        take_room(b, e->len, &e->extent, &e->offset))
        return KV_FULL;
    uint32_t place = kv_claims_take(b->open_puts, &holder->open_puts, b->spare, now);
    assert(place != NONE);
    entry_open(b, e);
    b->opened[e->hash % OPENED_PLACES].ever++;
    b->opened[e->hash % OPENED_PLACES].now++;
    b->absent[e->hash % ABSENT_PLACES].agreed = 0;
    b->put_states[place] = (struct put){.over = over, .hash = e->hash};
    *ticket = kv_claims_handle(b->open_puts, place);
    return KV_OK;
}

static enum kv_result check_put(const struct kv_blocks *b, const struct kv_block_key *key,
                                uint64_t len)
{
    if (key->len < 1 || key->len > KV_BLOCK_KEY_MAX || len < 1)
        return KV_REFUSED;
    return len > KV_BLOCK_MAX || kv_extents_size(len) > b->config.arena_bytes ? KV_TOO_LARGE
                                                                              : KV_OK;
}

/* Whether a put over that version takes the block's place. */
static bool gives_way(const struct entry *e, uint64_t over)
{
    return over > 0 && e->version <= over;
}

static enum kv_result open_put(struct kv_blocks *b, struct kv_block_holder *holder,
                               const struct kv_block_key *key, uint64_t tenant, uint64_t len,
                               uint64_t over, uint64_t now, uint64_t *ticket)
{
    kv_blocks_tick(b, now);
    enum kv_result result = check_put(b, key, len);
    if (result != KV_OK)
        return result;
    if (kv_extents_size(len) > b->config.tenant_bytes)
        return KV_TOO_LARGE;
    struct entry e = {.key = *key, .len = (uint32_t)len, .hash = hash_of(b, key)};
    uint32_t there = find_hashed(b, key, e.hash);
    if (there != NONE && !is_cached(&b->entries[there]) && !gives_way(&b->entries[there], over))
        return KV_EXISTS;
    if (there != NONE)
        b->entries[there].agreed = 0;
    if (there != NONE && is_cached(&b->entries[there]))
        entry_drop(b, there); /* the put replaces the cached replica */
    e.tenant = tenant_place(b, tenant);
    if (e.tenant == NONE || kv_claims_count(b->open_puts) == b->config.open_puts ||
        !tenant_room(b, e.tenant, kv_extents_size(len)))
        return KV_FULL;
    return start_put(b, holder, &e, over, now, ticket);
}

enum kv_result kv_blocks_put_start(struct kv_blocks *b, struct kv_block_holder *holder,
                                   const struct kv_block_key *key, uint64_t tenant, uint64_t len,
                                   uint64_t now, uint64_t *ticket)
{
    return open_put(b, holder, key, tenant, len, 0, now, ticket);
}

enum kv_result kv_blocks_swap_start(struct kv_blocks *b, struct kv_block_holder *holder,
                                    const struct kv_block_key *key, uint64_t tenant, uint64_t len,
                                    uint64_t over, uint64_t now, uint64_t *ticket)
{
    enum kv_result result = open_put(b, holder, key, tenant, len, over, now, ticket);
    if (result != KV_FULL || over != KV_OVER_ANY || kv_blocks_delete(b, key, now) != KV_OK)
        return result;
    return open_put(b, holder, key, tenant, len, over, now, ticket);
}

enum kv_result kv_blocks_replace_start(struct kv_blocks *b, struct kv_block_holder *holder,
                                       const struct kv_block_key *key, uint64_t tenant,
                                       uint64_t len, uint64_t now, uint64_t *ticket)
{
    return kv_blocks_swap_start(b, holder, key, tenant, len, KV_OVER_ANY, now, ticket);
}

enum kv_result kv_blocks_cache_start(struct kv_blocks *b, struct kv_block_holder *holder,
                                     const struct kv_block_key *key, uint64_t len, uint64_t now,
                                     uint64_t *ticket)
{
    kv_blocks_tick(b, now);
    enum kv_result result = check_put(b, key, len);
    if (result != KV_OK)
        return result;
    struct entry e = {.key = *key, .len = (uint32_t)len, .hash = hash_of(b, key), .tenant = CACHED};
    uint32_t there = find_hashed(b, key, e.hash);
    if (there != NONE)
        entry_drop(b, there); /* the owner has other bytes, and the owner decides */
    return start_put(b, holder, &e, 0, now, ticket);
}

static enum kv_result find_put(struct kv_blocks *b, struct kv_block_holder *holder, uint64_t ticket,
                               uint64_t now, uint32_t *place)
{
    kv_blocks_tick(b, now);
    int rc = kv_claims_find(b->open_puts, &holder->open_puts, ticket, place);
    b->stat.stale += rc == -ESTALE;
    return rc == 0 ? KV_OK : rc == -ESTALE ? KV_PUT_EXPIRED : KV_REFUSED;
}

enum kv_result kv_blocks_put_write(struct kv_blocks *b, struct kv_block_holder *holder,
                                   uint64_t ticket, uint64_t at, const void *data, uint64_t len,
                                   uint64_t now)
{
    uint32_t place;
    enum kv_result result = find_put(b, holder, ticket, now, &place);
    if (result != KV_OK)
        return result;
    const struct entry *e = &b->entries[kv_claims_entry(b->open_puts, place)];
    struct put *put = &b->put_states[place];
    if (at != put->written || len > e->len - at)
        return KV_REFUSED;
    put->sum = kv_checksum_copy(put->sum, b->arena + e->offset + at, data, len);
    put->written += len;
    return KV_OK;
}

enum kv_result kv_blocks_put_written(struct kv_blocks *b, struct kv_block_holder *holder,
                                     uint64_t ticket, uint64_t now, uint64_t *written)
{
    uint32_t place;
    enum kv_result result = find_put(b, holder, ticket, now, &place);
    if (result == KV_OK)
        *written = b->put_states[place].written;
    return result;
}

/* The key has a block of our own again. */
static void forget_absence(struct kv_blocks *b, uint64_t hash)
{
    uint64_t *evicted = &b->evicted[hash & b->bucket_mask];
    *evicted = *evicted == hash ? 0 : *evicted;
}

/* A block of our own can be found from now on. */
static void count_name(struct kv_blocks *b, struct entry *e)
{
    bool named = kv_block_key_is_named(&e->key) && e->len >= KV_NAMED_HEAD;
    uint64_t end_ms = named ? wire_load64(b->arena + e->offset) : 0;
    e->is_name = named && end_ms != KV_NAMED_DELETED;
    e->ends = e->is_name && end_ms;
    b->tenants[e->tenant].names += e->is_name;
    b->tenants[e->tenant].ends += e->ends;
}

static void publish(struct kv_blocks *b, uint32_t at)
{
    struct entry *e = &b->entries[at];
    if (!is_cached(e))
        forget_absence(b, e->hash);
    e->state = ENTRY_READY;
    index_add(b, at);
    tenant_list_add(b, at);
    if (!is_cached(e)) {
        kv_policy_add(b->policy, at, e->hash, kv_extents_size(e->len));
        count_name(b, e);
    }
    b->stat.cached += is_cached(e);
    b->stat.blocks++;
    b->stat.bytes += e->len;
    b->stat.committed++;
}

/* What came with the bytes of another daemon. */
struct expected {
    uint64_t checksum, version;
    bool decided;
};

uint64_t kv_blocks_next_version(const struct kv_blocks *b, const struct kv_block_key *key,
                                uint64_t seen, uint64_t now)
{
    /* The version between is for kv_blocks_put_version. */
    uint64_t time = now + b->config.wall_ns, next = seen < UINT64_MAX - 1 ? seen + 2 : seen;
    if (!kv_block_key_is_named(key))
        return 0;
    return time > next ? time : next;
}

static uint64_t version_beside(const struct kv_blocks *b, const struct entry *e,
                               const struct put *put, uint64_t version)
{
    if (put->over == KV_OVER_ANY || b->opened[e->hash % OPENED_PLACES].now < 2)
        return version;
    for (uint32_t i = 0; i < b->config.open_puts; i++)
        if (b->put_states[i].over == KV_OVER_ANY && b->put_states[i].hash == e->hash)
            return put->over + 1;
    return version;
}

uint64_t kv_blocks_put_version(const struct kv_blocks *b, const struct kv_block_holder *holder,
                               uint64_t ticket, uint64_t version)
{
    uint32_t place;
    if (kv_claims_find(b->open_puts, &holder->open_puts, ticket, &place))
        return version;
    const struct entry *e = &b->entries[kv_claims_entry(b->open_puts, place)];
    return version_beside(b, e, &b->put_states[place], version);
}

/* What becomes of a put that has all its bytes and the entry's version.  KV_OK with *stays: a newer
 * block is there already. */
static enum kv_result judge_put(struct kv_blocks *b, const struct entry *e, const struct put *put,
                                const struct expected *expected, bool *stays)
{
    if (put->written < e->len)
        return KV_REFUSED;
    if (expected && put->sum != expected->checksum) {
        b->stat.corrupt++;
        return KV_MISS;
    }
    uint32_t there = find_hashed(b, &e->key, e->hash);
    if (there == NONE)
        return KV_OK;
    const struct entry *old = &b->entries[there];
    if (is_cached(old) && !is_cached(e)) {
        entry_drop(b, there);
        return KV_OK;
    }
    bool decided = expected && expected->decided;
    if (!gives_way(old, put->over) && !decided && !(is_cached(e) && e->version)) {
        b->stat.stale++;
        return KV_EXISTS;
    }
    *stays = e->version && !kv_block_is_newer(e->version, put->sum, old->version, old->checksum);
    if (!*stays) {
        entry_drop(b, there);
        b->stat.deleted++;
    }
    return KV_OK;
}

static uint64_t version_here(struct kv_blocks *b, const struct entry *e, const struct put *put,
                             uint64_t now)
{
    uint32_t there = find_hashed(b, &e->key, e->hash);
    uint64_t seen = there == NONE ? 0 : b->entries[there].version;
    return version_beside(b, e, put, kv_blocks_next_version(b, &e->key, seen, now));
}

/* `expected` NULL: any. */
static enum kv_result commit(struct kv_blocks *b, struct kv_block_holder *holder, uint64_t ticket,
                             const struct expected *expected, uint64_t now)
{
    bool stays = false;
    uint32_t place;
    enum kv_result result = find_put(b, holder, ticket, now, &place);
    if (result != KV_OK)
        return result;
    uint32_t at = kv_claims_entry(b->open_puts, place);
    struct entry *e = &b->entries[at];
    const struct put *put = &b->put_states[place];
    assert(expected || !is_cached(e));
    e->version = expected ? expected->version : version_here(b, e, put, now);
    result = judge_put(b, e, put, expected, &stays);
    if (result != KV_OK || stays) {
        put_end(b, place);
        return result;
    }
    e->checksum = put->sum;
    publish(b, put_close(b, place));
    return KV_OK;
}

enum kv_result kv_blocks_put_commit(struct kv_blocks *b, struct kv_block_holder *holder,
                                    uint64_t ticket, uint64_t now)
{
    return commit(b, holder, ticket, NULL, now);
}

enum kv_result kv_blocks_put_commit_as(struct kv_blocks *b, struct kv_block_holder *holder,
                                       uint64_t ticket, uint64_t checksum, uint64_t version,
                                       uint64_t now)
{
    struct expected expected = {.checksum = checksum, .version = version};
    return commit(b, holder, ticket, &expected, now);
}

enum kv_result kv_blocks_put_commit_decided(struct kv_blocks *b, struct kv_block_holder *holder,
                                            uint64_t ticket, uint64_t checksum, uint64_t version,
                                            uint64_t now)
{
    struct expected expected = {.checksum = checksum, .version = version, .decided = true};
    return commit(b, holder, ticket, &expected, now);
}

enum kv_result kv_blocks_room_start(struct kv_blocks *b, struct kv_block_holder *holder,
                                    const struct kv_block_key *key, uint64_t tenant, uint64_t len,
                                    uint64_t now, struct kv_block_room *out)
{
    uint32_t place;
    uint64_t ticket;
    assert(holder->open_puts.lasting); /* nobody else gets the room meanwhile */
    enum kv_result result = open_put(b, holder, key, tenant, len, KV_OVER_ANY, now, &ticket);
    if (result != KV_OK || (result = find_put(b, holder, ticket, now, &place)) != KV_OK)
        return result;
    const struct entry *e = &b->entries[kv_claims_entry(b->open_puts, place)];
    *out = (struct kv_block_room){.ticket = ticket,
                                  .expires_ns = kv_claims_expires_ns(b->open_puts, place),
                                  .bytes = b->arena + e->offset};
    return KV_OK;
}

enum kv_result kv_blocks_room_commit(struct kv_blocks *b, struct kv_block_holder *holder,
                                     uint64_t ticket, uint64_t checksum, bool replaces,
                                     uint64_t now)
{
    uint32_t place;
    enum kv_result result = find_put(b, holder, ticket, now, &place);
    if (result != KV_OK)
        return result;
    struct put *put = &b->put_states[place];
    put->written = b->entries[kv_claims_entry(b->open_puts, place)].len;
    put->sum = checksum;
    put->over = replaces ? KV_OVER_ANY : 0;
    return commit(b, holder, ticket, NULL, now);
}

enum kv_result kv_blocks_put_abort(struct kv_blocks *b, struct kv_block_holder *holder,
                                   uint64_t ticket, uint64_t now)
{
    uint32_t place;
    enum kv_result result = find_put(b, holder, ticket, now, &place);
    if (result == KV_OK)
        put_end(b, place);
    return result;
}

/* ---- reading ---- */

static void note_use(struct kv_blocks *b, uint32_t at)
{
    if (!is_cached(&b->entries[at])) {
        kv_policy_use(b->policy, at);
        return;
    }
    tenant_list_remove(b, at);
    tenant_list_add(b, at);
}

static enum kv_result take_lease(struct kv_blocks *b, struct kv_block_holder *holder,
                                 const struct kv_block_key *key, bool confirmed, uint64_t now,
                                 struct kv_block_lease *out)
{
    kv_blocks_tick(b, now);
    uint32_t at = find(b, key);
    if (at == NONE || (is_cached(&b->entries[at]) && !confirmed)) {
        b->stat.misses++;
        return KV_MISS;
    }
    if (holder->leases.count >= b->config.holder_leases)
        return KV_FULL;
    uint32_t place = kv_claims_take(b->leases, &holder->leases, at, now);
    if (place == NONE)
        return KV_FULL;
    struct entry *e = &b->entries[at];
    e->leases++;
    b->stat.hits++;
    note_use(b, at);
    *out = (struct kv_block_lease){.handle = kv_claims_handle(b->leases, place),
                                   .offset = e->offset,
                                   .checksum = e->checksum,
                                   .expires_ns = kv_claims_expires_ns(b->leases, place),
                                   .tenant = is_cached(e) ? 0 : b->tenants[e->tenant].id,
                                   .version = e->version,
                                   .len = e->len};
    return KV_OK;
}

enum kv_result kv_blocks_get(struct kv_blocks *b, struct kv_block_holder *holder,
                             const struct kv_block_key *key, uint64_t now,
                             struct kv_block_lease *out)
{
    return take_lease(b, holder, key, false, now, out);
}

enum kv_result kv_blocks_get_confirmed(struct kv_blocks *b, struct kv_block_holder *holder,
                                       const struct kv_block_key *key, uint64_t now,
                                       struct kv_block_lease *out)
{
    return take_lease(b, holder, key, true, now, out);
}

static enum kv_result find_lease(struct kv_blocks *b, struct kv_block_holder *holder,
                                 uint64_t lease, uint64_t now, uint32_t *place)
{
    kv_blocks_tick(b, now);
    int rc = kv_claims_find(b->leases, &holder->leases, lease, place);
    return rc == 0 ? KV_OK : rc == -ESTALE ? KV_EXPIRED : KV_REFUSED;
}

enum kv_result kv_blocks_bytes(struct kv_blocks *b, struct kv_block_holder *holder, uint64_t lease,
                               uint32_t at, uint32_t len, uint64_t now, const uint8_t **out)
{
    uint32_t place;
    enum kv_result result = find_lease(b, holder, lease, now, &place);
    if (result != KV_OK)
        return result;
    const struct entry *e = &b->entries[kv_claims_entry(b->leases, place)];
    if (len > e->len || at > e->len - len)
        return KV_REFUSED;
    *out = b->arena + e->offset + at;
    return KV_OK;
}

bool kv_blocks_leased_key(const struct kv_blocks *b, const struct kv_block_holder *holder,
                          uint64_t lease, struct kv_block_key *out)
{
    uint32_t place;
    if (kv_claims_find(b->leases, &holder->leases, lease, &place))
        return false;
    *out = b->entries[kv_claims_entry(b->leases, place)].key;
    return true;
}

enum kv_result kv_blocks_verify(struct kv_blocks *b, struct kv_block_holder *holder, uint64_t lease,
                                uint64_t now)
{
    uint32_t place;
    enum kv_result result = find_lease(b, holder, lease, now, &place);
    if (result != KV_OK)
        return result;
    uint32_t at = kv_claims_entry(b->leases, place);
    const struct entry *e = &b->entries[at];
    if (kv_checksum_add(0, b->arena + e->offset, e->len) == e->checksum)
        return KV_OK;
    b->stat.corrupt++;
    if (e->state == ENTRY_READY)
        entry_drop(b, at);
    lease_end(b, place);
    return KV_MISS;
}

enum kv_result kv_blocks_renew(struct kv_blocks *b, struct kv_block_holder *holder, uint64_t lease,
                               uint64_t now, uint64_t *expires_ns)
{
    uint32_t place;
    enum kv_result result = find_lease(b, holder, lease, now, &place);
    if (result != KV_OK)
        return result;
    if (b->entries[kv_claims_entry(b->leases, place)].state == ENTRY_GONE)
        return KV_MISS; /* else a reader could renew for ever */
    kv_claims_renew(b->leases, place, now);
    *expires_ns = kv_claims_expires_ns(b->leases, place);
    return KV_OK;
}

enum kv_result kv_blocks_release(struct kv_blocks *b, struct kv_block_holder *holder,
                                 uint64_t lease, uint64_t now)
{
    uint32_t place;
    enum kv_result result = find_lease(b, holder, lease, now, &place);
    if (result == KV_OK)
        lease_end(b, place);
    return result;
}

/* ---- blocks that came from elsewhere and stay ---- */

bool kv_blocks_owns(const struct kv_blocks *b, const struct kv_block_key *key)
{
    uint32_t at = find(b, key);
    return at != NONE && !is_cached(&b->entries[at]);
}

/* Or may have been. */
static bool was_deleted(const struct kv_blocks *b, uint64_t hash, uint64_t now)
{
    const struct deleted *d = &b->deleted[hash % DELETED_PLACES];
    return d->until_ns > now && (d->several || d->hash == hash);
}

/* Also of a key without a block: a replica of it may be on its way here.  It comes no later than
 * its owner's lease and its own put last. */
static void note_deleted(struct kv_blocks *b, const struct kv_block_key *key, uint64_t now)
{
    const struct kv_blocks_config *c = &b->config;
    if (key->len < 1 || key->len > KV_BLOCK_KEY_MAX)
        return;
    uint64_t hash = hash_of(b, key);
    struct deleted *d = &b->deleted[hash % DELETED_PLACES];
    d->several = d->until_ns > now && (d->several || d->hash != hash);
    d->hash = hash;
    d->until_ns = now + c->lease_lasts_ns + c->put_lasts_ns;
}

/* From the cached replicas to a tenant that has room. */
static void move_in(struct kv_blocks *b, uint32_t at, uint32_t tenant)
{
    struct entry *e = &b->entries[at];
    struct tenant *from = &b->tenants[CACHED], *to = &b->tenants[tenant];
    uint64_t size = kv_extents_size(e->len);
    tenant_list_remove(b, at);
    from->entries--;
    from->bytes -= size;
    e->tenant = tenant;
    to->entries++;
    to->bytes += size;
    tenant_list_add(b, at);
    kv_policy_add(b->policy, at, e->hash, size);
    count_name(b, e);
    forget_absence(b, e->hash);
    b->stat.cached--;
    b->stat.repaired++;
}

enum kv_result kv_blocks_adopt(struct kv_blocks *b, const struct kv_block_key *key, uint64_t tenant,
                               uint64_t now)
{
    uint32_t at = find(b, key);
    if (at == NONE)
        return KV_MISS;
    if (!is_cached(&b->entries[at]))
        return KV_OK;
    if (was_deleted(b, b->entries[at].hash, now))
        return KV_REFUSED;
    uint64_t size = kv_extents_size(b->entries[at].len);
    if (size > b->config.tenant_bytes)
        return KV_TOO_LARGE;
    uint32_t place = tenant_place(b, tenant);
    if (place == NONE || !tenant_room(b, place, size))
        return KV_FULL;
    move_in(b, at, place);
    return KV_OK;
}

/* ---- keys ---- */

bool kv_blocks_peek(const struct kv_blocks *b, const struct kv_block_key *key, uint64_t *checksum)
{
    uint32_t at = find(b, key);
    if (at != NONE)
        *checksum = b->entries[at].checksum;
    return at != NONE;
}

bool kv_blocks_look(const struct kv_blocks *b, const struct kv_block_key *key,
                    struct kv_blocks_look *out)
{
    uint32_t at = kv_block_key_is_named(key) ? find(b, key) : NONE;
    const struct entry *e = &b->entries[at == NONE ? 0 : at];
    if (at == NONE || is_cached(e) || e->len < KV_NAMED_HEAD)
        return false;
    *out = (struct kv_blocks_look){
        .version = e->version, .end_ms = wire_load64(b->arena + e->offset), .len = e->len};
    return true;
}

uint64_t kv_blocks_version(const struct kv_blocks *b, const struct kv_block_key *key)
{
    uint32_t at = find(b, key);
    return at == NONE ? 0 : b->entries[at].version;
}

uint64_t kv_blocks_version_of(const struct kv_blocks *b, const struct kv_block_key *key,
                              uint64_t checksum)
{
    uint32_t at = find(b, key);
    return at != NONE && b->entries[at].checksum == checksum ? b->entries[at].version : 0;
}

bool kv_blocks_put_look(const struct kv_blocks *b, const struct kv_block_holder *holder,
                        uint64_t ticket, struct kv_blocks_put *out)
{
    uint32_t place;
    if (kv_claims_find(b->open_puts, &holder->open_puts, ticket, &place))
        return false;
    const struct entry *e = &b->entries[kv_claims_entry(b->open_puts, place)];
    *out = (struct kv_blocks_put){.key = e->key,
                                  .tenant = is_cached(e) ? 0 : b->tenants[e->tenant].id,
                                  .over = b->put_states[place].over,
                                  .len = e->len};
    return true;
}

uint32_t kv_blocks_opened(const struct kv_blocks *b, const struct kv_block_key *key)
{
    return b->opened[hash_of(b, key) % OPENED_PLACES].ever;
}

bool kv_blocks_may_agree(const struct kv_blocks *b, const struct kv_block_key *key,
                         uint64_t version, uint64_t checksum, uint64_t now)
{
    uint64_t hash = hash_of(b, key);
    uint32_t at = find_hashed(b, key, hash);
    const struct entry *e = &b->entries[at == NONE ? 0 : at];
    bool same = at == NONE ? !version && !checksum
                           : !is_cached(e) && e->version == version && e->checksum == checksum;
    return same && b->opened[hash % OPENED_PLACES].now == 0 && now >= b->doubt_until_ns;
}

void kv_blocks_agree(struct kv_blocks *b, const struct kv_block_key *key, uint64_t number)
{
    uint64_t hash = hash_of(b, key);
    uint32_t at = find_hashed(b, key, hash);
    if (at != NONE)
        b->entries[at].agreed = number;
    else
        b->absent[hash % ABSENT_PLACES] = (struct absent){hash, number};
}

uint64_t kv_blocks_agreed(const struct kv_blocks *b, const struct kv_block_key *key)
{
    uint64_t hash = hash_of(b, key);
    uint32_t at = find_hashed(b, key, hash);
    const struct absent *absent = &b->absent[hash % ABSENT_PLACES];
    return at != NONE ? b->entries[at].agreed : absent->hash == hash ? absent->agreed : 0;
}

uint32_t kv_blocks_len(const struct kv_blocks *b, const struct kv_block_key *key)
{
    uint32_t at = find(b, key);
    return at == NONE ? 0 : b->entries[at].len;
}

void kv_blocks_disown(struct kv_blocks *b, const struct kv_block_key *key)
{
    uint32_t at = find(b, key);
    if (at != NONE)
        entry_drop(b, at);
}

bool kv_blocks_drop_cached(struct kv_blocks *b, const struct kv_block_key *key)
{
    uint32_t at = find(b, key);
    bool cached = at != NONE && is_cached(&b->entries[at]);
    if (cached)
        entry_drop(b, at);
    return cached;
}

/* Whether it is a named value past its end: nobody can read it any more. */
static bool is_ended(const struct kv_blocks *b, const struct entry *e, uint64_t now)
{
    bool named = kv_block_key_is_named(&e->key) && e->len >= KV_NAMED_HEAD;
    uint64_t end_ms = named ? wire_load64(b->arena + e->offset) : 0;
    return end_ms && end_ms <= (now + b->config.wall_ns) / HW_MS;
}

enum kv_result kv_blocks_delete(struct kv_blocks *b, const struct kv_block_key *key, uint64_t now)
{
    uint32_t at = find(b, key);
    note_deleted(b, key, now);
    if (at == NONE)
        return KV_MISS;
    bool ended = is_ended(b, &b->entries[at], now);
    entry_drop(b, at);
    b->stat.deleted++;
    return ended ? KV_MISS : KV_OK;
}

enum kv_result kv_blocks_delete_old(struct kv_blocks *b, const struct kv_block_key *key,
                                    uint64_t version, uint64_t now)
{
    return kv_blocks_version(b, key) <= version ? kv_blocks_delete(b, key, now) : KV_MISS;
}

bool kv_blocks_may_restore(const struct kv_blocks *b, const struct kv_block_key *key, uint64_t len)
{
    uint64_t hash = hash_of(b, key);
    uint64_t own = kv_extents_used(b->extents) - b->tenants[CACHED].bytes;
    return check_put(b, key, len) == KV_OK &&
           (own + kv_extents_size(len) <= percent(b->config.arena_bytes, b->config.high_percent) ||
            b->evicted[hash & b->bucket_mask] != hash);
}

uint32_t kv_blocks_walk(const struct kv_blocks *b, uint32_t from, uint32_t steps,
                        struct kv_block_key *keys, uint32_t *count)
{
    enum { HEADS = 16 }; /* of buckets in a cache line: that many empty ones are a step */
    uint32_t bucket = from, max = *count, n = 0;
    for (uint32_t looked = 0; bucket <= b->bucket_mask && looked < steps; bucket++) {
        uint32_t before = n, at = b->buckets[bucket];
        looked += bucket % HEADS == 0;
        for (; at != NONE && n < max; at = b->entries[at].chain, looked++)
            if (!is_cached(&b->entries[at]))
                keys[n++] = b->entries[at].key;
        if (at != NONE && before > 0) {
            n = before; /* the next call has all of this bucket */
            break;
        }
    }
    *count = n;
    return bucket <= b->bucket_mask ? bucket : 0;
}

/* ---- figures ---- */

#define FIGURE(name, field)                                                                        \
    {                                                                                              \
        name, offsetof(struct kv_blocks_stat, field)                                               \
    }
const struct kv_blocks_figure kv_blocks_figures[KV_BLOCKS_FIGURES] = {
    FIGURE("blocks", blocks),
    FIGURE("names", names),
    FIGURE("bytes", bytes),
    FIGURE("room", room),
    FIGURE("room_used", room_used),
    FIGURE("cached_replicas", cached),
    FIGURE("below_copies", below_copies),
    FIGURE("repaired", repaired),
    FIGURE("hits", hits),
    FIGURE("misses", misses),
    FIGURE("committed", committed),
    FIGURE("evicted", evicted),
    FIGURE("deleted", deleted),
    FIGURE("corrupt", corrupt),
    FIGURE("leases", leases),
    FIGURE("open_puts", open_puts),
    FIGURE("puts_expired", puts_expired),
    FIGURE("leases_expired", leases_expired),
};

void kv_blocks_stat(const struct kv_blocks *b, struct kv_blocks_stat *out)
{
    *out = b->stat;
    out->room = b->config.arena_bytes;
    out->room_used = kv_extents_used(b->extents);
    out->open_puts = kv_claims_count(b->open_puts);
    out->leases = kv_claims_count(b->leases);
}

static const struct tenant *find_tenant(const struct kv_blocks *b, uint64_t id)
{
    static const struct tenant none;
    for (uint32_t i = 0; i < KV_BLOCK_TENANTS_MAX; i++)
        if (b->tenants[i].entries > 0 && b->tenants[i].id == id)
            return &b->tenants[i];
    return &none;
}

uint64_t kv_blocks_tenant_bytes(const struct kv_blocks *b, uint64_t tenant)
{
    return find_tenant(b, tenant)->bytes;
}

uint64_t kv_blocks_names(const struct kv_blocks *b, uint64_t tenant, uint64_t *ends)
{
    const struct tenant *t = find_tenant(b, tenant);
    *ends = t->ends;
    return t->names;
}

/* ---- coming and going ---- */

static int config_complete(struct kv_blocks_config *c)
{
    c->arena_bytes -= c->arena_bytes % KV_GRANULE;
    c->open_puts = c->open_puts ? c->open_puts : KV_BLOCK_PUTS_DEFAULT;
    c->leases = c->leases ? c->leases : KV_BLOCK_LEASES_DEFAULT;
    c->holder_leases = c->holder_leases ? c->holder_leases : c->leases;
    c->tenant_bytes = c->tenant_bytes ? c->tenant_bytes : c->arena_bytes;
    c->high_percent = c->high_percent ? c->high_percent : HIGH;
    c->low_percent = c->low_percent ? c->low_percent : LOW;
    c->put_lasts_ns = c->put_lasts_ns ? c->put_lasts_ns : KV_PUT_LASTS_NS;
    c->lease_lasts_ns = c->lease_lasts_ns ? c->lease_lasts_ns : KV_LEASE_LASTS_NS;
    bool ok = c->arena && (uintptr_t)c->arena % KV_GRANULE == 0 && c->entries >= 1 &&
              c->entries <= KV_BLOCK_ENTRIES_MAX && c->open_puts <= KV_BLOCK_PUTS_MAX &&
              c->leases <= KV_BLOCK_LEASES_MAX && c->high_percent <= 100 &&
              c->low_percent <= c->high_percent;
    return ok ? 0 : -EINVAL;
}

static uint32_t bucket_count(uint32_t entries)
{
    uint32_t n = 1;
    while (n < entries)
        n *= 2;
    return n;
}

static int make_tables(struct kv_blocks *b)
{
    const struct kv_blocks_config *c = &b->config;
    const struct kv_memory *m = &c->memory;
    uint32_t buckets = bucket_count(c->entries);
    b->entries = m->alloc(m->user, (size_t)c->entries * sizeof(struct entry));
    b->buckets = m->alloc(m->user, (size_t)buckets * sizeof(uint32_t));
    b->put_states = m->alloc(m->user, (size_t)c->open_puts * sizeof(struct put));
    b->evicted = m->alloc(m->user, (size_t)buckets * sizeof(uint64_t));
    if (!b->entries || !b->buckets || !b->put_states || !b->evicted)
        return -ENOMEM;
    b->bucket_mask = buckets - 1;
    for (uint32_t i = 0; i < buckets; i++)
        b->buckets[i] = NONE;
    for (uint32_t i = 0; i < c->entries; i++)
        b->entries[i].chain = i + 1 < c->entries ? i + 1 : NONE;
    return 0;
}

int kv_blocks_create(const struct kv_blocks_config *config, struct kv_blocks **out)
{
    struct kv_blocks_config c = *config;
    int rc = config_complete(&c);
    if (rc)
        return rc;
    struct kv_blocks *b = c.memory.alloc(c.memory.user, sizeof(*b));
    if (!b)
        return -ENOMEM;
    b->config = c;
    b->arena = c.arena;
    b->tenants[CACHED] = (struct tenant){.oldest = NONE, .newest = NONE};
    rc = make_tables(b);
    if (rc == 0)
        rc = kv_extents_create(c.arena_bytes, c.entries, &c.memory, &b->extents);
    if (rc == 0)
        rc = kv_policy_create(c.policy, c.entries, &c.memory, &b->policy);
    if (rc == 0)
        rc = kv_claims_create(c.open_puts, c.put_lasts_ns, &c.memory, &b->open_puts);
    if (rc == 0)
        rc = kv_claims_create(c.leases, c.lease_lasts_ns, &c.memory, &b->leases);
    if (rc) {
        kv_blocks_destroy(b);
        return rc;
    }
    *out = b;
    return 0;
}

void kv_blocks_destroy(struct kv_blocks *b)
{
    if (!b)
        return;
    const struct kv_memory m = b->config.memory;
    kv_claims_destroy(b->leases);
    kv_claims_destroy(b->open_puts);
    kv_policy_destroy(b->policy);
    kv_extents_destroy(b->extents);
    m.release(m.user, b->evicted);
    m.release(m.user, b->put_states);
    m.release(m.user, b->buckets);
    m.release(m.user, b->entries);
    m.release(m.user, b);
}
