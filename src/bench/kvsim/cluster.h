/* bench/kvsim/cluster.h - members with their daemons, a client each, and a network of virtual time,
 * all in one process and from a seed.
 *
 * The daemons are real; what is done with them, and which faults they meet, is the caller's:
 * kvscale and the deterministic tests.  Time passes in one of two ways.  A test turns members in an
 * order of its own (cluster_turn, cluster_pass_time).  cluster_run turns only a member that has
 * something to do, as kv/daemon/host.h does, and goes from one event to the next, so thousands of
 * members are few turns.
 *
 * Threads: one.  Lifetime: open/close. */
#ifndef HAWSER_BENCH_KVSIM_CLUSTER_H
#define HAWSER_BENCH_KVSIM_CLUSTER_H

#include "base/rng.h"
#include "bench/rpc/loopback.h"
#include "kv/common/blockmsg.h"
#include "kv/daemon/daemon.h"

struct cluster_options {
    uint64_t seed;
    uint32_t count;   /* members that may ever be; cluster_start starts those after `started` */
    uint32_t started; /* by cluster_open, and in the first view; 0: all */
    bool fixed;       /* no view is told but the first */
    uint32_t copies, min_copies;
    size_t arena_bytes;      /* each */
    uint32_t entries;        /* of a store; 0: 1,024 */
    uint64_t lease_lasts_ns; /* 0: as ever */
    uint64_t put_lasts_ns;
    uint32_t depth, staging_bytes; /* of a client */
    uint64_t heartbeat_ns;
    bool small_windows; /* of connections: some of them, at random */
    struct rpc_loopnet_options net;
    /* cluster_run's: the client of a member may have answers; it may ask again. */
    void (*answered)(void *user, uint32_t number);
    void *user;
};

struct cluster_member {
    struct kv_daemon *daemon; /* NULL: down */
    struct rpc_loopnet_host host;
    bool in_view; /* in the next one that cluster_tell_view tells */
    bool awake;   /* to be turned by cluster_run */
    uint8_t *arena;
    uint64_t stalled_until_ns;
    /* its client */
    bool attached;
    void *map;
    struct kv_port port;
    struct kv_client_slot *client_slot;
};

struct cluster {
    struct cluster_options options;
    struct hw_rng rng;
    struct rpc_loopnet *net;
    struct cluster_member *members; /* options.count */
    uint64_t *due_ns;               /* of each: when it must turn if nothing comes */
    uint32_t *awake, awake_count;   /* numbers */
    struct kv_view *view;           /* the one that was told last */
    uint64_t epoch;                 /* of the next one */
    uint32_t allocations_to_fail;
    uint32_t refused_dials; /* one of so many; 0: none */
};

/* 0, -EINVAL, -ENOMEM; after an error there is nothing to close. */
int cluster_open(struct cluster *c, const struct cluster_options *options) MUST_CHECK;
void cluster_close(struct cluster *c);
uint64_t cluster_below(struct cluster *c, uint64_t n);
uint64_t cluster_now(const struct cluster *c);

uint64_t cluster_member_id(uint32_t number);
/* The number of a member of a view. */
uint32_t cluster_number(const struct kv_member *member);
/* Starts a member that is down, and attaches its client.  0, or -ENOMEM: not all of it was done. */
int cluster_start(struct cluster *c, uint32_t number);
void cluster_stop(struct cluster *c, uint32_t number);
void cluster_detach(struct cluster *c, uint32_t number);
/* A view of those members that are in_view. */
void cluster_make_view(const struct cluster *c, uint64_t epoch, struct kv_view *out);
/* Tells a member the newest view, if it has another. */
void cluster_tell_view(struct cluster *c, uint32_t number);

/* A turn of one member, unless it is stalled or down, and a dial, if one is due. */
void cluster_turn(struct cluster *c, uint32_t number);
/* To the next arrival, or by `ns`. */
void cluster_pass_time(struct cluster *c, uint64_t ns);
bool cluster_all_connected(const struct cluster *c);
/* Until then, event by event; a member sleeps unless something has come or is due. */
void cluster_run(struct cluster *c, uint64_t until_ns);
/* For what came to a member from outside: a view. */
void cluster_wake(struct cluster *c, uint32_t number);

enum cluster_trouble { CLUSTER_CUT, CLUSTER_RESET, CLUSTER_FREEZE, CLUSTER_TROUBLES };
/* On a connection chosen at random; false: none was there. */
bool cluster_trouble(struct cluster *c, enum cluster_trouble what);
/* Sends a request of the member's client.  There must be a slot; the one it took. */
uint32_t cluster_submit(struct cluster *c, uint32_t number, const struct kv_block_request *request,
                        const struct kv_block_key *keys, uint32_t timeout_us);

#endif
