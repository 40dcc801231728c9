/* bench/kvsim/scale.h - a block cluster of thousands of members in virtual time, beside a closed
 * model of it.
 *
 * What is real: who owns a block (kv/cluster/view.h), every member's store with its policy, marks
 * and cached replicas (kv/store/blocks.h, with blocks of a few bytes), and the order in which
 * owners are asked.  What is modelled: links (a latency, and a bandwidth that transfers wait for),
 * messages (counted as the daemons send them; tests/unit/kv/test_scale.c holds the counts to real
 * daemons), and membership (leases, renewals and watches of etcd as docs/design/cluster.md has
 * them).
 *
 * Each block of a request is looked for, and put when it is missing, as in bench/kvsim/replay.h,
 * one after the other.  Stores change when a block is asked for; its bytes take their time after
 * that.
 *
 * Each figure stands beside what a formula says (docs/design/scaling.md); the formulas use the
 * trace and the options, and the hit rate of one store that holds as many different blocks as all
 * members together.
 *
 * Trust: traces and options may be anything; -EINVAL for what is out of range.
 * Threads: any.  Lifetime: nothing is kept. */
#ifndef HAWSER_BENCH_KVSIM_SCALE_H
#define HAWSER_BENCH_KVSIM_SCALE_H

#include "bench/kvsim/replay.h"
#include "kv/cluster/view.h"

enum {
    KV_SCALE_MEMBERS_MAX = 10000, /* a minute; placing a block looks at each of them */
    KV_SCALE_EVENTS_MAX = 16,     /* a table of owners each */
    KV_SCALE_IDS_MAX = 1 << 20,   /* different blocks: 136 MiB of tables with all events */
    KV_SCALE_TRIALS = 1000,       /* deaths that the time to notice one is taken from */
    KV_SCALE_EVENT_BYTES = 512,   /* of one change, as etcd tells it to one watch */
    KV_SCALE_BANDWIDTH_MIN = 1024 /* bytes a second; a block is then there after a day at most */
};
#define KV_SCALE_TIME_MAX (UINT64_C(1) << 62) /* ns: a century, and room to add to it */

enum kv_scale_spread {
    KV_SCALE_BY_SESSION, /* requests that share their second block come to one member */
    KV_SCALE_BY_TURNS,   /* each to the next one */
    KV_SCALE_SPREADS
};
extern const char *const kv_scale_spread_names[KV_SCALE_SPREADS + 1]; /* ended by NULL */

enum kv_scale_change {
    KV_SCALE_JOIN,
    KV_SCALE_LEAVE, /* in order: gives its lease back */
    KV_SCALE_KILL,  /* its lease must lapse */
    KV_SCALE_CHANGES
};
extern const char *const kv_scale_change_names[KV_SCALE_CHANGES];

struct kv_scale_event {
    enum kv_scale_change change;
    uint64_t at_ns;
};

struct kv_scale_options {
    const struct kv_trace *trace;
    const uint64_t *at_ns; /* when each request comes; never earlier than the one before */
    const struct kv_scale_event *events;
    uint32_t event_count;
    uint32_t members, copies;
    uint32_t member_blocks; /* that one member holds */
    uint32_t block_bytes;
    enum kv_policy_kind policy;
    enum kv_scale_spread spread;
    uint64_t ttl_ns, latency_ns, heartbeat_ns;
    uint64_t bandwidth; /* bytes a second of a member's link, each way */
    uint64_t seed;
};

struct kv_scale_figure {
    double simulated, model;
};

/* What a change of the members did, in the order in which etcd had them. */
struct kv_scale_effect {
    enum kv_scale_change change;
    uint64_t at_ns;
    struct kv_scale_figure propagated_ns; /* until every member has the view */
    struct kv_scale_figure keys_moved;    /* share of all keys */
    struct kv_scale_figure misses;        /* of blocks that were there and now have another owner */
    struct kv_scale_figure put_bytes;     /* because of these */
    struct kv_scale_figure lost;          /* requests for blocks of one that was dead: PEER_LOST */
};

struct kv_scale_result {
    double seconds;                                 /* of virtual time */
    uint64_t hit_count, asked, moved_blocks, stale; /* asked: requests of daemons to daemons */
    struct kv_scale_figure keys_balance;            /* the member with most, beside the mean */
    struct kv_scale_figure bytes_balance;           /* of blocks moved from and to owners */
    struct kv_scale_figure hits, prefix_hits;       /* shares of all blocks asked for */
    struct kv_scale_figure unmoved;                 /* share of hits that a cached replica served */
    struct kv_scale_figure messages, busiest;       /* a second: in all, at the busiest member */
    struct kv_scale_figure bytes;                   /* of blocks, a second */
    struct kv_scale_figure get_mean_ns, get_p99_ns; /* of gets that moved bytes */
    struct kv_scale_figure notice_mean_ns, notice_max_ns; /* that a member has died */
    struct kv_scale_figure view_bytes;                    /* as it lies in a daemon; packed */
    double pings; /* sent and received a second by an idle member, at most */
    uint32_t effect_count;
    struct kv_scale_effect effects[KV_SCALE_EVENTS_MAX];
};

/* 0, -EINVAL, -ENOMEM, -EIO when a hit had other bytes than were put. */
int kv_scale_run(const struct kv_scale_options *options, struct kv_scale_result *out) MUST_CHECK;

#endif
