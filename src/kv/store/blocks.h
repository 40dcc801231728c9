/* kv/store/blocks.h - the block store: immutable blocks of up to 64 MiB in one arena.
 *
 * The life of a block:
 *
 *   put_start  the store reserves room and gives a ticket
 *   write      bytes are copied into the arena in order and hashed there
 *   commit     the block can be found.  If the putter aborts, dies or is late, its room is free
 *              again.  Of two puts of one key the first commit wins, the other is KV_EXISTS; one
 *              that began with replace_start takes the place of a block that is there
 *   get        a lease: the block keeps its place and its bytes until the lease ends
 *   end        the block is evicted, deleted, or found corrupt.  From then on it cannot be found;
 * its room is free when the last lease has ended
 *
 * When the arena is fuller than a high mark, a policy (kv/store/policy.h) evicts blocks down to a
 * low mark; leased blocks stay.  Each tenant has a limit of bytes; a tenant at its limit
 * loses its own oldest blocks, never another tenant's.
 *
 * A cached replica is a copy of a block that another daemon owns, with the owner's checksum.  It is
 * read once its owner has confirmed it, counts for no tenant, and is evicted before all others.
 *
 * The block of a named value (kv_block_key_is_named) has a version: the time of its set, or a
 * little more than the version before.  Of two blocks of one key the newer one counts, at every
 * owner alike; of equal versions the larger checksum.  Other blocks have version 0.
 *
 * The store uses no clock, no system call and no memory but what it is given.  Clients may map the
 * arena read-only; the store keeps no data of its own in it.
 *
 * Trust: keys, lengths and handles may be anything.  Threads: one.  Lifetime: create/destroy; every
 * holder has left before that. */
#ifndef HAWSER_KV_STORE_BLOCKS_H
#define HAWSER_KV_STORE_BLOCKS_H

#include "kv/common/blockkey.h"
#include "kv/common/checksum.h"
#include "kv/common/kv.h"
#include "kv/common/memory.h"
#include "kv/store/claims.h"
#include "kv/store/policy.h"

enum {
    KV_BLOCK_MAX = 64 << 20,        /* a layer of a long sequence; bounds the time of a copy */
    KV_BLOCK_ENTRIES_MAX = 1 << 22, /* about 1 GiB of entries */
    KV_BLOCK_PUTS_MAX = 4096,       /* in progress; each holds room that nobody can evict */
    KV_BLOCK_PUTS_DEFAULT = 256,
    KV_BLOCK_LEASES_MAX = 1 << 20,
    KV_BLOCK_LEASES_DEFAULT = 4096,
    KV_BLOCK_TENANTS_MAX = 256, /* with blocks at a time; searched one by one */
    KV_BLOCK_CHAIN_MAX = 1024   /* keys of one request: half a million tokens of 512 a block */
};

struct kv_blocks_config {
    void *arena; /* at a multiple of 64 */
    uint64_t arena_bytes;
    uint32_t entries;           /* blocks and puts together */
    uint32_t open_puts, leases; /* at a time; 0: the defaults */
    uint32_t holder_leases;     /* of one holder; 0: all */
    uint64_t tenant_bytes;      /* of one tenant; 0: all */
    uint32_t high_percent;      /* fuller than this: evict ...; 0: 98 */
    uint32_t low_percent;       /* ... down to this; 0: 96 */
    uint64_t put_lasts_ns;      /* 0: KV_PUT_LASTS_NS */
    uint64_t lease_lasts_ns;    /* 0: KV_LEASE_LASTS_NS */
    enum kv_policy_kind policy;
    uint64_t secret;  /* random: nobody can choose keys that collide */
    uint64_t wall_ns; /* what now_ns lacks to be nanoseconds since 1970: for versions, and for ends
                         when deleting */
    struct kv_memory memory;
};

#define KV_PUT_LASTS_NS (10 * HW_SEC)   /* a slow link moves 64 MiB in less */
#define KV_LEASE_LASTS_NS (10 * HW_SEC) /* how long a stopped reader can keep room */

struct kv_blocks;

/* A client or a peer, with its puts and leases.  With `lasting` in both lists these do not expire:
 * for one in this process, which may write to the arena and ends each of them itself. */
struct kv_block_holder {
    struct kv_claim_list open_puts, leases;
};
#define KV_BLOCK_HOLDER_INIT                                                                       \
    {                                                                                              \
        .open_puts = KV_CLAIM_LIST_INIT, .leases = KV_CLAIM_LIST_INIT                              \
    }

/* 0, -EINVAL, -ENOMEM. */
int kv_blocks_create(const struct kv_blocks_config *config, struct kv_blocks **out) MUST_CHECK;
void kv_blocks_destroy(struct kv_blocks *blocks);

/* Ends puts and leases that are overdue.  Every call with a now_ns does that first. */
void kv_blocks_tick(struct kv_blocks *blocks, uint64_t now_ns);
/* When the next one is overdue; HW_NEVER: none. */
uint64_t kv_blocks_next_tick(const struct kv_blocks *blocks);
/* Ends all puts and leases of a holder that goes. */
void kv_blocks_leave(struct kv_blocks *blocks, struct kv_block_holder *holder, uint64_t now_ns);

/* ---- putting ---- */

/* KV_OK; KV_EXISTS; KV_TOO_LARGE past KV_BLOCK_MAX, the arena or the tenant's limit; KV_FULL when
 * the limits of entries, puts, tenants or bytes are reached by what cannot be evicted; KV_REFUSED
 * for an empty key or block. */
enum kv_result kv_blocks_put_start(struct kv_blocks *blocks, struct kv_block_holder *holder,
                                   const struct kv_block_key *key, uint64_t tenant, uint64_t len,
                                   uint64_t now_ns, uint64_t *ticket);
/* The same for a key that may have a block: one that is not newer than version `over` (0: none)
 * does not count, neither now nor at the commit.  It stays until then. */
#define KV_OVER_ANY UINT64_MAX
enum kv_result kv_blocks_swap_start(struct kv_blocks *blocks, struct kv_block_holder *holder,
                                    const struct kv_block_key *key, uint64_t tenant, uint64_t len,
                                    uint64_t over, uint64_t now_ns, uint64_t *ticket);
/* The same over any version, also of blocks that have none; never KV_EXISTS.  The block that is
 * there goes at once if its room is needed. */
enum kv_result kv_blocks_replace_start(struct kv_blocks *blocks, struct kv_block_holder *holder,
                                       const struct kv_block_key *key, uint64_t tenant,
                                       uint64_t len, uint64_t now_ns, uint64_t *ticket);
/* Starts a put of a cached replica; it replaces a block of the key.  KV_OK, KV_TOO_LARGE, KV_FULL,
 * KV_REFUSED. */
enum kv_result kv_blocks_cache_start(struct kv_blocks *blocks, struct kv_block_holder *holder,
                                     const struct kv_block_key *key, uint64_t len, uint64_t now_ns,
                                     uint64_t *ticket);
/* The bytes from `at` on, which must be as many as were written before.  KV_OK; KV_PUT_EXPIRED
 * when the put has ended; KV_REFUSED out of order, past the end, or for a ticket that was never
 * given. */
enum kv_result kv_blocks_put_write(struct kv_blocks *blocks, struct kv_block_holder *holder,
                                   uint64_t ticket, uint64_t at, const void *data, uint64_t len,
                                   uint64_t now_ns);
/* How many bytes were written.  As put_write. */
enum kv_result kv_blocks_put_written(struct kv_blocks *blocks, struct kv_block_holder *holder,
                                     uint64_t ticket, uint64_t now_ns, uint64_t *written);
/* The put ends.  KV_OK; KV_PUT_EXPIRED when it had ended; KV_EXISTS when the key got a block
 * meanwhile; KV_REFUSED when bytes are missing, or for a ticket that was never given. */
enum kv_result kv_blocks_put_commit(struct kv_blocks *blocks, struct kv_block_holder *holder,
                                    uint64_t ticket, uint64_t now_ns);
/* The same for bytes of another daemon: KV_MISS, counted as corrupt, when they differ from the
 * checksum that came with them.  With a version: KV_OK also where a newer block is there, which
 * then stays; KV_EXISTS only for a put that is not over the block's version and is no cached
 * replica. */
enum kv_result kv_blocks_put_commit_as(struct kv_blocks *blocks, struct kv_block_holder *holder,
                                       uint64_t ticket, uint64_t checksum, uint64_t version,
                                       uint64_t now_ns);
/* The same where another owner has decided that the put takes place: never KV_EXISTS. */
enum kv_result kv_blocks_put_commit_decided(struct kv_blocks *blocks,
                                            struct kv_block_holder *holder, uint64_t ticket,
                                            uint64_t checksum, uint64_t version, uint64_t now_ns);
/* A put of a lasting holder that writes into the arena itself: `len` bytes at room.bytes, until the
 * commit.  As kv_blocks_replace_start, but the key's block is not deleted to make room. */
struct kv_block_room {
    uint64_t ticket, expires_ns; /* when the holder should be done */
    uint8_t *bytes;
};
enum kv_result kv_blocks_room_start(struct kv_blocks *blocks, struct kv_block_holder *holder,
                                    const struct kv_block_key *key, uint64_t tenant, uint64_t len,
                                    uint64_t now_ns, struct kv_block_room *out);
/* All bytes are there, with this checksum.  As kv_blocks_put_commit; KV_EXISTS only if !replaces.
 */
enum kv_result kv_blocks_room_commit(struct kv_blocks *blocks, struct kv_block_holder *holder,
                                     uint64_t ticket, uint64_t checksum, bool replaces,
                                     uint64_t now_ns);
/* KV_OK, KV_PUT_EXPIRED, KV_REFUSED. */
enum kv_result kv_blocks_put_abort(struct kv_blocks *blocks, struct kv_block_holder *holder,
                                   uint64_t ticket, uint64_t now_ns);

/* ---- reading ---- */

struct kv_block_lease {
    uint64_t handle;
    uint64_t offset;   /* in the arena */
    uint64_t checksum; /* kv/common/checksum.h */
    uint64_t expires_ns;
    uint64_t tenant; /* 0: a cached replica */
    uint64_t version;
    uint32_t len;
};

/* KV_OK; KV_MISS, also where a cached replica is: its owner may have deleted the block; KV_FULL
 * when all leases are in use.  The reader compares the checksum with what it read; on a mismatch it
 * calls kv_blocks_verify and treats the block as missing. */
enum kv_result kv_blocks_get(struct kv_blocks *blocks, struct kv_block_holder *holder,
                             const struct kv_block_key *key, uint64_t now_ns,
                             struct kv_block_lease *out);
/* The same once an owner has said that it has this block: also of a cached replica. */
enum kv_result kv_blocks_get_confirmed(struct kv_blocks *blocks, struct kv_block_holder *holder,
                                       const struct kv_block_key *key, uint64_t now_ns,
                                       struct kv_block_lease *out);
/* Where bytes of a leased block are.  KV_OK, KV_EXPIRED; KV_REFUSED for a lease that was never
 * given and past the end. */
enum kv_result kv_blocks_bytes(struct kv_blocks *blocks, struct kv_block_holder *holder,
                               uint64_t lease, uint32_t at, uint32_t len, uint64_t now_ns,
                               const uint8_t **out);
/* The key of a leased block; false: no such lease. */
bool kv_blocks_leased_key(const struct kv_blocks *blocks, const struct kv_block_holder *holder,
                          uint64_t lease, struct kv_block_key *out);
/* Compares the bytes with the checksum.  KV_OK; KV_MISS when they differ: the store counts it,
 * drops the block and ends the lease; KV_EXPIRED; KV_REFUSED for a lease that was never given. */
enum kv_result kv_blocks_verify(struct kv_blocks *blocks, struct kv_block_holder *holder,
                                uint64_t lease, uint64_t now_ns);
/* KV_OK; KV_EXPIRED; KV_MISS when the block has been deleted: the lease holds until its time;
 * KV_REFUSED. */
enum kv_result kv_blocks_renew(struct kv_blocks *blocks, struct kv_block_holder *holder,
                               uint64_t lease, uint64_t now_ns, uint64_t *expires_ns);
/* KV_OK, KV_EXPIRED, KV_REFUSED. */
enum kv_result kv_blocks_release(struct kv_blocks *blocks, struct kv_block_holder *holder,
                                 uint64_t lease, uint64_t now_ns);

/* ---- keys ---- */

/* The version of the key's block if it has this checksum; else 0. */
uint64_t kv_blocks_version_of(const struct kv_blocks *blocks, const struct kv_block_key *key,
                              uint64_t checksum);
/* The checksum of the key's block, also of a cached replica; false: there is none. */
bool kv_blocks_peek(const struct kv_blocks *blocks, const struct kv_block_key *key,
                    uint64_t *checksum);
/* What a put in progress was started with; false: it has ended, or is another holder's. */
struct kv_blocks_put {
    struct kv_block_key key;
    uint64_t tenant, over; /* see kv_blocks_swap_start */
    uint32_t len;
};
bool kv_blocks_put_look(const struct kv_blocks *blocks, const struct kv_block_holder *holder,
                        uint64_t ticket, struct kv_blocks_put *out);

/* Two owners agree on a named value: both have the same block, or none, and whoever sets it will
 * have asked both for room, or have waited (kv/daemon/permits.h).  The start of a put of the key
 * ends that.  A put that ends without a word, with its connection or its time, may be committed at
 * the other owner still: until that cannot be any more nothing is agreed on.
 *
 * Whether the key's block is this one (0 and 0: it has none), and no put of it is in progress or in
 * doubt. */
bool kv_blocks_may_agree(const struct kv_blocks *blocks, const struct kv_block_key *key,
                         uint64_t version, uint64_t checksum, uint64_t now_ns);
/* Another number if a put of the key was started meanwhile. */
uint32_t kv_blocks_opened(const struct kv_blocks *blocks, const struct kv_block_key *key);
/* Notes on the key's block, or on its absence, a number that the other owner gave; what was noted
 * last (0: nothing). */
void kv_blocks_agree(struct kv_blocks *blocks, const struct kv_block_key *key, uint64_t number);
uint64_t kv_blocks_agreed(const struct kv_blocks *blocks, const struct kv_block_key *key);
/* What is known of a named value of our own without its bytes.  False: there is none. */
struct kv_blocks_look {
    uint64_t version, end_ms;
    uint32_t len; /* of the block */
};
bool kv_blocks_look(const struct kv_blocks *blocks, const struct kv_block_key *key,
                    struct kv_blocks_look *out);
/* The version of the key's block; 0: none, or no block. */
uint64_t kv_blocks_version(const struct kv_blocks *blocks, const struct kv_block_key *key);
/* What a block of the key gets that is newer than version `seen`; 0 unless it is a named value. */
uint64_t kv_blocks_next_version(const struct kv_blocks *blocks, const struct kv_block_key *key,
                                uint64_t seen, uint64_t now_ns);
/* What the block of a put gets for that version.  If the put is not over any version, and one of
 * its key that is is in progress, it takes place before that one, or not at all: then it gets the
 * first version after what it replaces, and the other one's is newer. */
uint64_t kv_blocks_put_version(const struct kv_blocks *blocks, const struct kv_block_holder *holder,
                               uint64_t ticket, uint64_t version);
/* Whether one block of a key is newer than another. */
static inline bool kv_block_is_newer(uint64_t version, uint64_t checksum, uint64_t than_version,
                                     uint64_t than_checksum)
{
    return version > than_version || (version == than_version && checksum > than_checksum);
}
/* Whether the key has a block that is not a cached replica. */
bool kv_blocks_owns(const struct kv_blocks *blocks, const struct kv_block_key *key);
/* Makes the key's cached replica a block of our own, of that tenant.  KV_OK, also when it is one
 * already; KV_MISS; KV_REFUSED when the key was deleted here lately, so that a deleted block does
 * not come back; KV_TOO_LARGE, KV_FULL as for a put: then it stays a cached replica. */
enum kv_result kv_blocks_adopt(struct kv_blocks *blocks, const struct kv_block_key *key,
                               uint64_t tenant, uint64_t now_ns);
/* Whether a lost copy of the key's block should come back: there is room for it beside all blocks
 * of our own, or it is not one that was evicted here, so that two full stores do not take turns.
 * The length may be foreign: none of which there is no block comes back. */
bool kv_blocks_may_restore(const struct kv_blocks *blocks, const struct kv_block_key *key,
                           uint64_t len);
/* The keys of blocks of our own, at most *count, from a place on (0: the first); looks at some
 * `steps` blocks.  *count: how many; returns the next place, 0: that was the last.  A key that has
 * a block all the time is told of once, also if that one was replaced: places are buckets.  Of one
 * bucket *count are told of at most; more than 15 in one are less likely than 1 in 10^7 for the
 * largest store, and nobody can choose keys for it. */
uint32_t kv_blocks_walk(const struct kv_blocks *blocks, uint32_t from, uint32_t steps,
                        struct kv_block_key *keys, uint32_t *count);
/* Of the key's block; 0: none. */
uint32_t kv_blocks_len(const struct kv_blocks *blocks, const struct kv_block_key *key);
/* Drops the key's block as if it had never been here. */
void kv_blocks_disown(struct kv_blocks *blocks, const struct kv_block_key *key);
/* Drops the key's block if it is a cached replica; whether it was. */
bool kv_blocks_drop_cached(struct kv_blocks *blocks, const struct kv_block_key *key);
/* KV_OK or KV_MISS, also for a named value past its end, which goes all the same. */
enum kv_result kv_blocks_delete(struct kv_blocks *blocks, const struct kv_block_key *key,
                                uint64_t now_ns);
/* The same unless the block is newer than that version; then KV_MISS. */
enum kv_result kv_blocks_delete_old(struct kv_blocks *blocks, const struct kv_block_key *key,
                                    uint64_t version, uint64_t now_ns);

/* ---- figures ---- */

struct kv_blocks_stat {
    uint64_t blocks, bytes; /* blocks that can be found */
    uint64_t room_used;     /* of the arena, with puts, and deleted blocks that are still leased */
    uint64_t room;
    uint64_t open_puts, leases; /* now */
    uint64_t hits, misses, committed, evicted, deleted;
    uint64_t corrupt; /* found to differ from their checksum */
    uint64_t stale, puts_expired, leases_expired;
    uint64_t cached;       /* of the blocks: cached replicas */
    uint64_t repaired;     /* cached replicas that became our own blocks */
    uint64_t below_copies; /* filled in by the daemon (kv/daemon/copies.h) */
    uint64_t names, ends;  /* the same (kv_blocks_names) */
};

void kv_blocks_stat(const struct kv_blocks *blocks, struct kv_blocks_stat *out);
/* What users are shown of it: each is a uint64_t at `at`. */
struct kv_blocks_figure {
    const char *name;
    size_t at;
};
enum { KV_BLOCKS_FIGURES = 18 };
extern const struct kv_blocks_figure kv_blocks_figures[KV_BLOCKS_FIGURES];
static inline uint64_t *kv_blocks_figure(struct kv_blocks_stat *stat, unsigned i)
{
    return (uint64_t *)(void *)((char *)stat + kv_blocks_figures[i].at);
}
/* What a tenant has in the arena. */
uint64_t kv_blocks_tenant_bytes(const struct kv_blocks *blocks, uint64_t tenant);
/* How many blocks of our own are named values of a tenant, with those past their end, without
 * deletes; *ends: how many of them have an end. */
uint64_t kv_blocks_names(const struct kv_blocks *blocks, uint64_t tenant, uint64_t *ends);

#endif
