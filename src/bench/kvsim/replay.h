/* bench/kvsim/replay.h - what share of a recorded trace the block store would have had.
 *
 * A trace is requests; a request is the chain of blocks of its prompt, by number.  Each block is
 * looked for, and put when it is missing.  The store that is replayed is the real one, policy,
 * marks and limits included, with blocks of a few bytes; each hit is held against what was put.
 *
 *   hits         blocks that were there
 *   prefix_hits  of these, before the first one of their request that was not: what a worker that
 *                needs whole prefixes can use
 *
 * The optimum knows the future (Belady): it drops what is needed last, and does not keep what is
 * needed later than all it has.  No policy has more hits.
 *
 * Threads: any.  Lifetime: nothing is kept. */
#ifndef HAWSER_BENCH_KVSIM_REPLAY_H
#define HAWSER_BENCH_KVSIM_REPLAY_H

#include "base/attr.h"
#include "kv/common/blockkey.h"
#include "kv/store/policy.h"

#include <stdint.h>

enum {
    KV_TRACE_IDS_MAX = 1 << 24, /* different blocks: a table of 4 bytes each */
    KV_TRACE_BLOCKS_MAX = 1 << 28
};

struct kv_trace {
    const uint32_t *ids;  /* of all requests, one after the other; below KV_TRACE_IDS_MAX */
    const uint32_t *ends; /* where each request ends in ids */
    uint32_t id_count, request_count;
};

/* What a block of a trace is called in a store. */
struct kv_block_key kv_trace_key(uint32_t id);

struct kv_replay_result {
    uint64_t hits, prefix_hits;
};

/* In a store of so many blocks.  0, -EINVAL, -ENOMEM, -EIO when a hit had other bytes. */
int kv_replay_store(const struct kv_trace *trace, enum kv_policy_kind policy, uint32_t capacity,
                    struct kv_replay_result *out) MUST_CHECK;
int kv_replay_optimum(const struct kv_trace *trace, uint32_t capacity,
                      struct kv_replay_result *out) MUST_CHECK;

#endif
