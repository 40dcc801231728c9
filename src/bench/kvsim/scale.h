/* bench/kvsim/scale.h - a block cluster of up to a thousand daemons in virtual time on a recorded
 * trace, beside a closed model of it.
 *
 * What is real: the daemons (kv/daemon/daemon.h) with their stores, connections, remote requests,
 * copies and views, and the client side of a region at each.  They run in this process
 * (bench/kvsim/cluster.h).  What is modelled: links (a latency, and a bandwidth that transfers wait
 * for), and when etcd tells a member of a change (leases, renewals and watches as
 * docs/design/cluster.md has them).
 *
 * Each block of a request is looked for, and put when it is missing, as in bench/kvsim/replay.h,
 * one after the other, by the client of one member.
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

enum {
    KV_SCALE_EVENTS_MAX = 16,     /* a view each */
    KV_SCALE_IDS_MAX = 1 << 20,   /* different blocks; each is placed anew at every change */
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
    uint32_t members; /* at the start; with those that join at most KV_MEMBERS_MAX */
    uint32_t copies;
    uint32_t member_blocks; /* that one member holds */
    uint32_t block_bytes;   /* at least 4 */
    enum kv_scale_spread spread;
    uint64_t ttl_ns, latency_ns;
    uint64_t bandwidth; /* bytes a second of a member's link, each way */
    uint64_t seed;
};

struct kv_scale_figure {
    double measured, model;
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
    double seconds; /* of virtual time */
    uint64_t hit_count;
    uint64_t stale, evicted;              /* remote requests begun again, blocks that had to go */
    uint32_t connections;                 /* most at a time */
    struct kv_scale_figure keys_balance;  /* the member with most, beside the mean */
    struct kv_scale_figure bytes_balance; /* the same of bytes sent and received */
    struct kv_scale_figure hits, prefix_hits; /* shares of all blocks asked for */
    struct kv_scale_figure unmoved;           /* share of hits that a cached replica served */
    struct kv_scale_figure messages, busiest; /* a second: in all, at the busiest member */
    struct kv_scale_figure bytes;             /* a second; the model has those of blocks alone */
    struct kv_scale_figure get_mean_ns, get_p99_ns;       /* of gets that moved bytes */
    struct kv_scale_figure notice_mean_ns, notice_max_ns; /* that a member has died */
    struct kv_scale_figure view_bytes;                    /* as it lies in a daemon; packed */
    uint32_t effect_count;
    struct kv_scale_effect effects[KV_SCALE_EVENTS_MAX];
};

/* What the arena of a member takes. */
uint64_t kv_scale_arena_bytes(const struct kv_scale_options *options);
/* 0, -EINVAL, -ENOMEM, -EIO when a hit had other bytes than were put, -ETIMEDOUT when a request did
 * not end. */
int kv_scale_run(const struct kv_scale_options *options, struct kv_scale_result *out) MUST_CHECK;

#endif
