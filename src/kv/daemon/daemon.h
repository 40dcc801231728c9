/* kv/daemon/daemon.h - the daemon as a state machine over {transport, clock, random, memory}.
 *
 * It never waits, never makes a system call of its own and reads no clock but the one it is given,
 * so the same code runs under the real loop (kv/daemon/host.h) and in a simulation from a seed.  A
 * turn has four phases, each counted and, for a probe, timed:
 *
 *   poll      endpoints are read; answers of other ranks go to the clients that asked
 *   incoming  requests of other ranks are served and answered
 *   scan      requests of local clients are served, or sent to the rank that owns the key
 *   flush     what was sent is written; clients that sleep are woken
 *
 * A client's place is a seat: its region, and the state of its slots.  A seat that has been idle
 * for a while is parked: it costs nothing until its bell is rung (kv_client_slot_wake).
 *
 * Two daemons of the same index on two ranks share one connection; the one of the higher rank
 * dials.  It begins with a JOIN, in which both check that they count ranks and daemons alike.
 * Instead of ranks there can be members, which come and go (kv_daemon_set_view); of two the one
 * with the greater id dials, and each peer has a slot where a rank would have its number.
 *
 * Trust: clients see kv/common/region.h.  A peer is trusted to own its keys; its messages are
 * decoded with bounds, and a key that is not ours is KV_REFUSED. Threads: one.  Lifetime:
 * create/destroy; endpoints become the daemon's. */
#ifndef HAWSER_KV_DAEMON_DAEMON_H
#define HAWSER_KV_DAEMON_DAEMON_H

#include "kv/cluster/view.h"
#include "kv/common/memory.h"
#include "kv/common/region.h"
#include "kv/daemon/stats.h"
#include "kv/store/blocks.h"
#include "rpc/rpc.h"

enum {
    KV_UNJOINED_MAX = 16 /* accepted connections that have not said JOIN yet */
};

#define KV_PARK_NS (2 * HW_MS) /* a client idle for so long rings when it comes back */

struct kv_daemon;
struct kv_client_slot;

struct kv_daemon_config {
    uint32_t rank, ranks;    /* this one, of so many */
    uint32_t index, daemons; /* this daemon of the rank, of so many */
    uint64_t member;         /* not 0: our id among members; then there is one rank */
    uint32_t copies;         /* of a block, each at another member; 0: 1 */
    uint64_t store_bytes;
    uint32_t store_entries;
    uint32_t value_max;   /* 0: KV_VALUE_MAX */
    uint32_t max_clients; /* 0: KV_CLIENTS_DEFAULT */
    /* The block store; no arena: none.  Its secret and memory are set here. */
    struct kv_blocks_config blocks;
    uint64_t seed;          /* random: the store's secret and this incarnation's number */
    struct rpc_clock clock; /* now_ns NULL: hw_now_ns */
    struct kv_memory memory;
    struct kv_probe *probe; /* NULL: nothing is timed */
    /* The reference for the measurements: every endpoint is polled in every turn, every answer has
     * its own fence, the next request's entry is not fetched ahead. */
    bool plain;
    /* Whether a sleep must also end when the endpoint can send again; NULL: the driver polls. */
    void (*blocked)(void *user, struct rpc_ep *ep, bool blocked);
    void *user;
};

/* 0, -EINVAL, -ENOMEM. */
int kv_daemon_create(const struct kv_daemon_config *config, struct kv_daemon **out) MUST_CHECK;
/* Says goodbye to the peers.  Seats and regions are let go of, not freed: they are the caller's. */
void kv_daemon_destroy(struct kv_daemon *daemon);

/* One turn.  The number of things that it did; 0 when there was nothing. */
uint32_t kv_daemon_turn(struct kv_daemon *daemon);
/* The clock as the last turn read it. */
uint64_t kv_daemon_time(const struct kv_daemon *daemon);

/* About to sleep: parks every seat and arms every endpoint.  True when something is there already:
 * then turn again.  After the sleep turn as usual. */
bool kv_daemon_arm(struct kv_daemon *daemon);
/* When a turn is due although nothing arrives. */
uint64_t kv_daemon_next_tick(const struct kv_daemon *daemon);

/* ---- local clients ---- */

/* Rings the client's bell; called in the flush phase. */
typedef void kv_ring_fn(void *user);

/* The map is of kv_region_bytes(shape), formatted.  0, -EINVAL, -EUSERS at max_clients, -ENOMEM. */
int kv_daemon_attach(struct kv_daemon *daemon, void *map, const struct kv_region_shape *shape,
                     kv_ring_fn *ring, void *user, struct kv_client_slot **out) MUST_CHECK;
/* Its requests in flight are forgotten; late answers find nobody. */
void kv_daemon_detach(struct kv_daemon *daemon, struct kv_client_slot *client);
/* The client rang. */
void kv_client_slot_wake(struct kv_daemon *daemon, struct kv_client_slot *client);
/* Unique among all seats that the daemon ever had: an answer for another generation is dropped. */
uint32_t kv_client_slot_generation(const struct kv_client_slot *client);
/* It broke the rules of its region: nothing is read from it any more; detach it. */
bool kv_client_slot_broken(const struct kv_client_slot *client);
/* Threads of this host that take part: tells clients whether spinning pays. */
void kv_daemon_set_crowd(struct kv_daemon *daemon, uint32_t threads);

/* ---- other ranks ---- */

/* Takes the endpoint.  rank: the one we dialled; -1: it called us and will say who it is. */
void kv_daemon_adopt(struct kv_daemon *daemon, struct rpc_ep *ep, int rank);
/* A rank (with members: a slot) that should be dialled now, or -1.  It counts as being dialled
 * until kv_daemon_adopt or kv_daemon_dial_failed says how that ended. */
int kv_daemon_dial_next(struct kv_daemon *daemon);
void kv_daemon_dial_failed(struct kv_daemon *daemon, int rank);
bool kv_daemon_peer_up(const struct kv_daemon *daemon, uint32_t rank);

/* With members only: who they are from now on.  The caller sees to it that epochs grow. */
void kv_daemon_set_view(struct kv_daemon *daemon, const struct kv_view *view);
const struct kv_view *kv_daemon_view(const struct kv_daemon *daemon);
/* The address of the member at a slot that kv_daemon_dial_next gave. */
const char *kv_daemon_peer_address(const struct kv_daemon *daemon, int peer);
/* The slot of a member, or -1. */
int kv_daemon_peer_of(const struct kv_daemon *daemon, uint64_t member);
/* Peers on this host, by the transports' word. */
uint32_t kv_daemon_local_peers(const struct kv_daemon *daemon);

const struct kv_stats *kv_daemon_stats(const struct kv_daemon *daemon);
/* For the driver's own events: sleeps. */
struct kv_stats *kv_daemon_count(struct kv_daemon *daemon);

#endif
