/* kv/daemon/daemon.h - the daemon as a state machine over {transport, clock, random, memory}.
 *
 * The daemon never waits, makes no system call of its own and reads only the clock it was given. So
 * the same code runs in the real loop (kv/daemon/host.h) and in a simulation from a seed.  A turn
 * has four phases, each counted and, with a probe, timed:
 *
 *   poll      read the endpoints; pass answers of other daemons to the clients that asked
 *   incoming  serve requests of other daemons
 *   scan      serve requests of local clients, or send them to the owner of the key
 *   flush     write what was sent; wake clients that sleep
 *
 * For each local client the daemon keeps a client slot: the client's region and the state of its
 * request slots.  A client slot that is idle for KV_PARK_NS is parked: it costs nothing until the
 * client rings its bell (kv_client_slot_wake).
 *
 * Two daemons of the same index on two ranks share one connection; the daemon of the higher rank
 * dials.  A connection begins with a JOIN, in which the accepting daemon checks that both have the
 * same options, and that no other daemon is connected under that rank.  Instead of ranks there can
 * be members, which come and go (kv_daemon_set_view).  Of two members the one with the greater id
 * dials. Each peer has a number: with ranks, its rank.
 *
 * Trust: clients: see kv/common/region.h.  A peer is trusted to own its keys; its messages are
 * decoded with bounds, and a key that is not ours is KV_REFUSED.  Threads: one.  Lifetime:
 * create/destroy; the daemon owns its endpoints. */
#ifndef HAWSER_KV_DAEMON_DAEMON_H
#define HAWSER_KV_DAEMON_DAEMON_H

#include "kv/cluster/view.h"
#include "kv/common/memory.h"
#include "kv/common/region.h"
#include "kv/daemon/stats.h"
#include "kv/store/blocks.h"
#include "rpc/rpc.h"

enum {
    KV_UNJOINED_MAX = 64, /* accepted connections that have not joined yet */
    KV_MESH_MAX = 16, /* members that are all connected at all times; of more, who is needed is */
    KV_RARE_HEARTBEAT_SECONDS = 20 /* at least, of the connections of more members */
};

#define KV_PARK_NS (2 * HW_MS) /* then the client must ring for its next request */

struct kv_daemon;
struct kv_client_slot;

struct kv_daemon_config {
    uint32_t rank, ranks;    /* of this daemon; how many there are */
    uint32_t index, daemons; /* of this daemon in its rank; how many a rank has */
    uint64_t member;     /* not 0: members instead of ranks, and our id among them; ranks is 1 */
    bool fixed_members;  /* they never change, and were the same in an earlier life, as ranks are */
    uint32_t copies;     /* replicas of a block, each at another member; 0: 1 */
    uint32_t min_copies; /* a put that reaches fewer fails; 0: 1 */
    uint64_t store_bytes;
    uint32_t store_entries;
    uint32_t value_max;   /* 0: KV_VALUE_MAX */
    uint32_t max_clients; /* 0: KV_CLIENTS_DEFAULT */
    /* The block store; without an arena there is none.  The daemon sets its secret and memory. */
    struct kv_blocks_config blocks;
    uint64_t seed;          /* random: the stores' secrets and our incarnation come from it */
    struct rpc_clock clock; /* now_ns NULL: hw_now_ns */
    struct kv_memory memory;
    struct kv_probe *probe; /* NULL: no timing */
    /* NULL: every turn looks at every endpoint.  Else those on which nothing happens rest, all of
     * them during a sleep: watch() is told which peer an endpoint is, and whether it waits to send,
     * and its driver calls kv_daemon_wake when the endpoint's descriptor says that it can read or
     * send. */
    void (*watch)(void *user, struct rpc_ep *ep, uint32_t peer, bool to_send);
    void *user;
};

/* 0, -EINVAL, -ENOMEM. */
int kv_daemon_create(const struct kv_daemon_config *config, struct kv_daemon **out) MUST_CHECK;
/* Says goodbye to the peers and detaches all clients.  Their regions stay the caller's. */
void kv_daemon_destroy(struct kv_daemon *daemon);

/* One turn.  How many requests, answers and messages it handled. */
uint32_t kv_daemon_turn(struct kv_daemon *daemon);
/* The time that the last turn read. */
uint64_t kv_daemon_time(const struct kv_daemon *daemon);

/* Before a sleep: parks every client slot and arms every endpoint.  True: something has come
 * already; turn again instead. */
bool kv_daemon_arm(struct kv_daemon *daemon);
/* When the next turn is due if nothing arrives. */
uint64_t kv_daemon_next_tick(const struct kv_daemon *daemon);

/* ---- local clients ---- */

/* Rings the client's bell; called in the flush phase. */
typedef void kv_ring_fn(void *user);

/* The map is of kv_region_bytes(shape), formatted.  0, -EINVAL, -EUSERS at max_clients, -ENOMEM. */
int kv_daemon_attach(struct kv_daemon *daemon, void *map, const struct kv_region_shape *shape,
                     kv_ring_fn *ring, void *user, struct kv_client_slot **out) MUST_CHECK;
/* Forgets the client's requests in flight; late answers are dropped. */
void kv_daemon_detach(struct kv_daemon *daemon, struct kv_client_slot *client);
/* The client rang. */
void kv_client_slot_wake(struct kv_daemon *daemon, struct kv_client_slot *client);
/* Unique among all client slots that the daemon ever had. */
uint32_t kv_client_slot_generation(const struct kv_client_slot *client);
/* True: the client broke the rules of its region.  The daemon reads nothing more from it; detach
 * it. */
bool kv_client_slot_broken(const struct kv_client_slot *client);
/* A part of the client's staging area whose memory nobody needs: the client is idle since then and
 * puts nothing.  *len: at most 1 MiB.  NULL: none; after a put there is again. */
uint8_t *kv_client_slot_unstage(struct kv_client_slot *client, uint64_t idle_since_ns,
                                uint32_t *len);
/* Whether some client has such parts, or will have when it is idle. */
bool kv_daemon_staging(const struct kv_daemon *daemon);
/* How many threads of this host are daemons or clients: clients decide by it whether to spin. */
void kv_daemon_set_crowd(struct kv_daemon *daemon, uint32_t threads);

/* ---- other ranks ---- */

/* Takes the endpoint.  peer: the number that kv_daemon_dial_next gave; -1: an accepted connection.
 */
void kv_daemon_adopt(struct kv_daemon *daemon, struct rpc_ep *ep, int peer);
/* The number of a peer to dial now, or -1.  The caller reports the outcome with kv_daemon_adopt or
 * kv_daemon_dial_failed. */
int kv_daemon_dial_next(struct kv_daemon *daemon);
void kv_daemon_dial_failed(struct kv_daemon *daemon, int peer);
bool kv_daemon_peer_up(const struct kv_daemon *daemon, uint32_t peer);
/* Any number that watch() was told, also of a connection that has ended. */
void kv_daemon_wake(struct kv_daemon *daemon, uint32_t peer);

/* With members only: the members from now on.  Epochs must grow. */
void kv_daemon_set_view(struct kv_daemon *daemon, const struct kv_view *view);
const struct kv_view *kv_daemon_view(const struct kv_daemon *daemon);
/* With members: the address of a peer that kv_daemon_dial_next gave. */
const char *kv_daemon_peer_address(const struct kv_daemon *daemon, int peer);
/* The peer number of a member, or -1. */
int kv_daemon_peer_of(const struct kv_daemon *daemon, uint64_t member);
/* How many connected peers are on this host, by their transport. */
uint32_t kv_daemon_local_peers(const struct kv_daemon *daemon);

/* ---- visitors ----
 *
 * Another thread of the process that uses the block store between two turns (kv_host_enter), where
 * a local client would send a request and wait. */

/* Begins and ends a visit: reads the clock, publishes figures. */
void kv_daemon_visit(struct kv_daemon *daemon);
void kv_daemon_visited(struct kv_daemon *daemon);
/* The block store, if a get or (change) a put or delete of the key needs no other daemon; else
 * NULL. */
struct kv_blocks *kv_daemon_sole_blocks(struct kv_daemon *daemon, const struct kv_block_key *key,
                                        bool change);
/* NULL: none.  For what a visitor has from kv_daemon_sole_blocks. */
struct kv_blocks *kv_daemon_blocks(struct kv_daemon *daemon);
/* Counts a request that a visitor has served. */
void kv_daemon_count_visit(struct kv_daemon *daemon, enum kv_result result);

const struct kv_stats *kv_daemon_stats(const struct kv_daemon *daemon);
/* Writable, for what the driver counts: sleeps. */
struct kv_stats *kv_daemon_count(struct kv_daemon *daemon);

#endif
