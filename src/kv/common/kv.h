/* kv/common/kv.h - keys, operations and results of the key-value store, and who owns a key.
 *
 * A rank is a host; it runs one or more daemons; each daemon owns a share of the keys.  The owner
 * of a key follows from the key and the numbers of ranks and daemons alone.
 *
 * Threads: any (no state).  Lifetime: values. */
#ifndef HAWSER_KV_COMMON_KV_H
#define HAWSER_KV_COMMON_KV_H

#include "base/attr.h"
#include "base/clock.h"

#include <stddef.h>
#include <stdint.h>

enum {
    KV_KEY_BYTES = 16,
    KV_VALUE_MAX = 64 << 10,  /* a larger value would delay small ones for too long */
    KV_VALUE_DEFAULT = 4096,  /* of a request slot, unless the client asks for more */
    KV_DEPTH_MAX = 256,       /* requests in flight from one client to one daemon */
    KV_RANKS_MAX = 64,        /* every rank is connected with every other */
    KV_DAEMONS_MAX = 16,      /* a rank; a thread each */
    KV_CLIENTS_DEFAULT = 256, /* attached to one daemon at a time */
    KV_CLIENTS_MAX = 4096     /* two descriptors and a region each */
};

#define KV_TIMEOUT_DEFAULT_NS (2 * HW_SEC)
#define KV_TIMEOUT_MAX_NS (3600 * HW_SEC) /* fits the 32 bits of microseconds in a request */

/* 128 bits, compared whole.  Longer names are hashed into it (kv_key_of). */
struct kv_key {
    uint64_t hi, lo;
};

enum kv_op {
    KV_GET = 1,
    KV_PUT = 2,
    KV_DELETE = 3,
    KV_OP_END = 4, /* the end of the operations on values */
    KV_BLOCK = 8   /* about blocks: the value says what (kv/common/blockmsg.h) */
};

/* How a request ends. */
enum kv_result {
    KV_OK,
    KV_MISS,      /* the owner lives and has no such key */
    KV_FULL,      /* the owner's limit of bytes or entries is reached; nothing was changed */
    KV_TOO_LARGE, /* the value exceeds a limit of the owner, or the buffer it was to go into */
    KV_PEER_LOST, /* the owner, or the daemon on the way to it, is gone: a change may have happened
                   */
    KV_TIMEOUT,   /* the deadline passed: a change may have happened or may still happen */
    KV_REFUSED,   /* the owner does not take it: malformed, or not its key */
    /* Of blocks only (kv/store/blocks.h). */
    KV_EXPIRED,     /* the lease has ended: what was read under it may be anything */
    KV_PUT_EXPIRED, /* the put took too long and has ended: nothing was stored */
    KV_EXISTS,      /* the key has its block already, perhaps by a put that was first */
    KV_NOT_OWNER,   /* members disagree about who owns the key: nothing was stored, try again */
    KV_TOO_FEW,     /* fewer owners than --min-copies took the block; some may have it */
    KV_RESULT_COUNT
};

/* "OK", "MISS" and so on; "?": no result. */
const char *kv_result_name(enum kv_result result);

/* The key of a name of any length: its 128-bit hash (XXH3), the same on every machine. */
struct kv_key kv_key_of(const void *name, size_t len);

static inline struct kv_key kv_key_u64(uint64_t number)
{
    return (struct kv_key){.hi = 0, .lo = number};
}

static inline uint64_t kv_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

struct kv_place {
    uint32_t rank, daemon;
};

/* Both counts at least 1.  Ranks and daemons take different bits, so each share is even. */
static inline struct kv_place kv_place_of(struct kv_key key, uint32_t ranks, uint32_t daemons)
{
    uint64_t h = kv_mix(key.lo + UINT64_C(0x9e3779b97f4a7c15) + kv_mix(key.hi));
    return (struct kv_place){.rank = (uint32_t)(((h >> 32) * ranks) >> 32),
                             .daemon = (uint32_t)(((h & UINT32_MAX) * daemons) >> 32)};
}

#endif
