/* kv/daemon/stats.h - counters of a daemon, and the times that a probe takes while benchkv
 * measures.
 *
 * Threads: the daemon's thread writes the counters, any thread may read them (relaxed).  A probe's
 * figures belong to the daemon's thread while `measuring` is set; see kv_probe_want.  Lifetime: the
 * caller's. */
#ifndef HAWSER_KV_DAEMON_STATS_H
#define HAWSER_KV_DAEMON_STATS_H

#include "base/counter.h"
#include "base/hist.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(field, name, unit, kind, help) */
#define KV_STATS_LIST(X)                                                                           \
    X(loops, "kv_loops", "", HW_COUNTER, "turns of the daemon's loop")                             \
    X(useful_loops, "kv_useful_loops", "", HW_COUNTER, "turns that found something to do")         \
    X(requests, "kv_requests", "", HW_COUNTER, "requests of local clients")                        \
    X(flushes, "kv_flushes", "", HW_COUNTER, "flushes that had something to write")                \
    X(wakeups, "kv_wakeups", "", HW_COUNTER, "sleeping clients woken")                             \
    X(sleeps, "kv_sleeps", "", HW_COUNTER, "times that the daemon slept")                          \
    X(attached, "kv_attached", "", HW_COUNTER, "clients attached since the start")                 \
    X(broken, "kv_broken", "", HW_COUNTER, "clients that broke the rules of their region")         \
    X(peers_lost, "kv_peers_lost", "", HW_COUNTER, "connections to other ranks that ended")        \
    X(ok, "kv_result_ok", "", HW_COUNTER, "answers to clients: OK")                                \
    X(miss, "kv_result_miss", "", HW_COUNTER, "answers to clients: MISS")                          \
    X(full, "kv_result_full", "", HW_COUNTER, "answers to clients: FULL")                          \
    X(too_large, "kv_result_too_large", "", HW_COUNTER, "answers to clients: TOO_LARGE")           \
    X(peer_lost, "kv_result_peer_lost", "", HW_COUNTER, "answers to clients: PEER_LOST")           \
    X(timeout, "kv_result_timeout", "", HW_COUNTER, "answers to clients: TIMEOUT")                 \
    X(refused, "kv_result_refused", "", HW_COUNTER, "answers to clients: REFUSED")                 \
    X(expired, "kv_result_expired", "", HW_COUNTER, "answers to clients: EXPIRED")                 \
    X(put_expired, "kv_result_put_expired", "", HW_COUNTER, "answers to clients: PUT_EXPIRED")     \
    X(not_owner, "kv_result_not_owner", "", HW_COUNTER, "answers to clients: NOT_OWNER")           \
    X(too_few, "kv_result_too_few", "", HW_COUNTER, "answers to clients: TOO_FEW")                 \
    X(exists, "kv_result_exists", "", HW_COUNTER, "answers to clients: EXISTS")                    \
    X(block_hits, "kv_block_hits", "", HW_COUNTER, "blocks looked for and found")                  \
    X(block_misses, "kv_block_misses", "", HW_COUNTER, "blocks looked for and not found")          \
    X(block_evicted, "kv_block_evicted", "", HW_COUNTER, "blocks that had to go")                  \
    X(block_corrupt, "kv_block_corrupt", "", HW_COUNTER, "blocks unlike their checksum: dropped")  \
    X(block_repaired, "kv_block_repaired", "", HW_COUNTER, "replicas restored from another owner") \
    X(block_below_copies, "kv_block_below_copies", "", HW_GAUGE, "blocks that lack copies")        \
    X(block_copies_lost, "kv_block_copies_lost", "", HW_COUNTER,                                   \
      "copies that puts could not make")                                                           \
    X(block_remote, "kv_block_remote", "", HW_COUNTER, "requests about blocks of other daemons")   \
    X(block_stale_views, "kv_block_stale_views", "", HW_COUNTER, "of these, begun again")          \
    X(block_served, "kv_block_served", "", HW_COUNTER, "messages of other daemons about blocks")   \
    X(block_cached, "kv_block_cached", "", HW_GAUGE, "of the blocks, cached replicas")             \
    X(view_epoch, "kv_view_epoch", "", HW_GAUGE, "number of the view of the members")              \
    X(view_members, "kv_view_members", "", HW_GAUGE, "members in it")                              \
    X(blocks, "kv_blocks", "", HW_GAUGE, "blocks held")                                            \
    X(block_bytes, "kv_block_bytes", "bytes", HW_GAUGE, "of these blocks")                         \
    X(block_leases, "kv_block_leases", "", HW_GAUGE, "leases on blocks now")                       \
    X(clients, "kv_clients", "", HW_GAUGE, "clients attached now")                                 \
    X(peers_up, "kv_peers_up", "", HW_GAUGE, "other ranks reached now")                            \
    X(in_flight, "kv_in_flight", "", HW_GAUGE, "requests at other ranks now")

struct kv_stats {
#define X(field, name, unit, kind, help) _Atomic uint64_t field;
    KV_STATS_LIST(X)
#undef X
    /* Of values: nobody but benchkv asks for any, so these are no metrics. */
    _Atomic uint64_t local;     /* requests for keys of this daemon */
    _Atomic uint64_t remote;    /* requests sent to another rank */
    _Atomic uint64_t responses; /* answers of other ranks */
    _Atomic uint64_t incoming;  /* requests of other ranks */
    _Atomic uint64_t ring_full; /* requests that had to wait for room to send */
};

enum { KV_STATS_COUNT = sizeof(struct kv_stats) / sizeof(_Atomic uint64_t) };

/* The metrics: what comes first in struct kv_stats. */
enum { KV_METRICS_COUNT = offsetof(struct kv_stats, local) / sizeof(_Atomic uint64_t) };
extern const struct hw_counter_def kv_stats_defs[KV_METRICS_COUNT];

enum kv_phase { KV_PHASE_POLL, KV_PHASE_INCOMING, KV_PHASE_SCAN, KV_PHASE_FLUSH, KV_PHASES };
extern const char *const kv_phase_names[KV_PHASES];

/* What a remote request goes through at the two daemons.  A timed turn counts for a stage where its
 * phase did nothing else. */
enum kv_stage {
    KV_STAGE_ASK,    /* scan: take it from the client's region and call */
    KV_STAGE_DECODE, /* poll at the owner: read the batch */
    KV_STAGE_SERVE,  /* incoming: look up and reply */
    KV_STAGE_ANSWER, /* poll at the asker: read the batch, write the client's answer */
    KV_STAGES
};

enum { KV_RTT_LINES = 4096 }; /* exact 1 us lines of the round-trip histogram */

/* What benchkv reads.  One turn in `every` is timed, since five looks at the clock take as long as
 * an empty turn.  Round trips and requests in flight are always counted. */
struct kv_probe {
    _Atomic bool want;      /* set by the measuring thread; relaxed: it orders nothing else */
    _Atomic bool measuring; /* set by the daemon; release when it ends, acquire by the reader */
    uint32_t every;
    struct hw_hist phase[KV_PHASES];
    struct hw_hist stage[KV_STAGES]; /* ns of the phase by request */
    struct hw_hist loop;
    struct hw_hist rtt;           /* from rpc_call to its callback, as the daemon sees it */
    uint64_t useful_ns, empty_ns; /* of the loops that were timed */
    uint64_t in_flight_ns;        /* requests in flight, integrated over time */
    uint64_t since_ns, took_ns;   /* start; whole length once it has ended */
    uint64_t in_flight_seen_ns;
};

/* 0 or -ENOMEM. */
int kv_probe_init(struct kv_probe *probe, uint32_t every) MUST_CHECK;
void kv_probe_fini(struct kv_probe *probe);
/* Called by the measuring thread.  The figures may be read once kv_probe_idle says so; the daemon
 * answers at its next turn.  Starting forgets the figures of the last time. */
void kv_probe_want(struct kv_probe *probe, bool on);
bool kv_probe_idle(const struct kv_probe *probe);

#endif
