/* bench/rpc/loopback.h - a network inside one process: virtual time, seeded faults, full replay.
 * Tests run endpoints over it, and kvscale whole clusters.
 *
 * Bytes written at time t can be read at t + delay (+ jitter), in order.  Time moves only when
 * rpc_loopnet_step is called or a write costs something, so a run is a function of its seed.
 * Transports of a loopnet never block: recv and wait answer at once, whatever the timeout.
 *
 * Threads: one for a net and all its transports.  Lifetime: transports before the net. */
#ifndef HAWSER_BENCH_RPC_LOOPBACK_H
#define HAWSER_BENCH_RPC_LOOPBACK_H

#include "rpc/rpc.h"

struct rpc_loopnet;

struct rpc_loopnet_options {
    uint64_t seed;
    uint64_t delay_ns;      /* one way */
    uint64_t jitter_ns;     /* added, uniform; order is kept */
    uint64_t write_cost_ns; /* what a send takes: moves the clock */
    uint32_t buffer_bytes;  /* in flight a direction; 0: 1 MiB */
    uint32_t piece_max;     /* a send or recv moves 1 to this many bytes at random; 0: all */
    uint32_t stall_percent; /* of sends and recvs that answer -EAGAIN for no reason */
    uint64_t bandwidth;     /* of a host each way, bytes a second; 0: any */
};

/* The owner of ends of connections: its link, and what went over it. */
struct rpc_loopnet_host {
    uint32_t number;                  /* the caller's */
    uint64_t out_free_ns, in_free_ns; /* when its link is */
    uint64_t messages_sent, messages_received, bytes_sent, bytes_received;
};

int rpc_loopnet_create(const struct rpc_loopnet_options *options,
                       struct rpc_loopnet **out) MUST_CHECK;
void rpc_loopnet_destroy(struct rpc_loopnet *net);

/* For rpc_config.clock. */
struct rpc_clock rpc_loopnet_clock(struct rpc_loopnet *net);
uint64_t rpc_loopnet_now(const struct rpc_loopnet *net);

int rpc_loopnet_pair(struct rpc_loopnet *net, struct rpc_transport *out[2]) MUST_CHECK;
/* Says whose end it is, and where its endpoint counts. */
void rpc_loopnet_place(struct rpc_transport *t, struct rpc_loopnet_host *host,
                       const struct rpc_stats *stats);
/* The ends that are not destroyed; their numbers change when one is. */
uint32_t rpc_loopnet_ends(const struct rpc_loopnet *net);
struct rpc_transport *rpc_loopnet_end(const struct rpc_loopnet *net, uint32_t index);
/* Whether bytes are on the way, or wait to be read, on a connection that is not cut. */
bool rpc_loopnet_carries(const struct rpc_loopnet *net);
/* Calls `arrived` for each end with a host that has bytes to read, may send again, or whose
 * connection ended. */
void rpc_loopnet_visit(struct rpc_loopnet *net,
                       void (*arrived)(void *user, struct rpc_loopnet_host *host), void *user);

/* Moves time to the next arrival, at most to `until`.  True when bytes arrived then. */
bool rpc_loopnet_step(struct rpc_loopnet *net, uint64_t until_ns);
/* Moves time, for work that is modelled to take it. */
void rpc_loopnet_spend(struct rpc_loopnet *net, uint64_t ns);

/* Faults, on the connection that t is an end of. */
void rpc_loopnet_cut(struct rpc_transport *t);   /* silence both ways, for ever */
void rpc_loopnet_reset(struct rpc_transport *t); /* both ends see -ECONNRESET */
void rpc_loopnet_freeze(struct rpc_transport *t, uint64_t until_ns); /* nothing arrives till then */

#endif
