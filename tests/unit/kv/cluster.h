/* tests/unit/kv/cluster.h - members with their daemons, a client each, and a network of virtual
 * time, all in one process and from a seed.
 *
 * The daemons are real; what a test does with them, and which faults they meet, is the test's.
 * Failures of the harness itself end the test.  Threads: one.  Lifetime: open/close. */
#ifndef HAWSER_TESTS_UNIT_KV_CLUSTER_H
#define HAWSER_TESTS_UNIT_KV_CLUSTER_H

#include "base/rng.h"
#include "kv/common/blockmsg.h"
#include "kv/daemon/daemon.h"
#include "tap.h"
#include "unit/rpc/support/loopback.h"

enum {
    CLUSTER_MEMBERS_MAX = 20, /* more than a mesh has */
    CLUSTER_TAPS_MAX = 1024 /* ends of connections, those that nobody has noticed to be dead too */
};

struct cluster_options {
    uint64_t seed;
    uint32_t count, copies, min_copies;
    size_t arena_bytes;
    uint64_t lease_lasts_ns; /* 0: as ever */
    uint64_t put_lasts_ns;
    uint32_t depth, staging_bytes; /* of a client */
    uint64_t heartbeat_ns;
    bool small_windows; /* of connections: some of them, at random */
    struct rpc_loopnet_options net;
};

struct cluster_member {
    struct kv_daemon *daemon; /* NULL: down */
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
    struct cluster_member members[CLUSTER_MEMBERS_MAX];
    uint32_t in_view; /* a bit a member */
    uint64_t epoch;
    uint32_t allocations_to_fail;
    uint32_t refused_dials; /* one of so many; 0: none */
    struct tap *taps[CLUSTER_TAPS_MAX];
};

void cluster_open(struct cluster *c, const struct cluster_options *options);
void cluster_close(struct cluster *c);
uint64_t cluster_below(struct cluster *c, uint64_t n);
uint64_t cluster_now(const struct cluster *c);

uint64_t cluster_member_id(uint32_t number);
/* Starts a member that is down, and attaches its client. */
void cluster_start(struct cluster *c, uint32_t number);
void cluster_stop(struct cluster *c, uint32_t number);
void cluster_detach(struct cluster *c, uint32_t number);
/* Tells a member the newest view, if it has another. */
void cluster_tell_view(struct cluster *c, uint32_t number);

/* A turn of one member, unless it is stalled or down, and a dial, if one is due. */
void cluster_turn(struct cluster *c, uint32_t number);
/* To the next arrival, or by `ns`. */
void cluster_pass_time(struct cluster *c, uint64_t ns);
bool cluster_all_connected(const struct cluster *c);

enum cluster_trouble { CLUSTER_CUT, CLUSTER_RESET, CLUSTER_FREEZE, CLUSTER_TROUBLES };
/* On a connection chosen at random; false: none was there. */
bool cluster_trouble(struct cluster *c, enum cluster_trouble what);
/* What all ends that still are have sent: messages, and writes, which pings are too. */
void cluster_sent(const struct cluster *c, uint64_t *messages, uint64_t *writes);

/* Sends a request of the member's client; the slot it took. */
uint32_t cluster_submit(struct cluster *c, uint32_t number, const struct kv_block_request *request,
                        const struct kv_block_key *keys, uint32_t timeout_us);

#endif
