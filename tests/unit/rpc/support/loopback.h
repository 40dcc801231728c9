/* loopback.h - a network inside one process: virtual time, seeded faults, full
 * replay.
 *
 * Bytes written at time t can be read at t + delay (+ jitter), in order.  Time moves only when
 * rpc_loopnet_step is called or a write costs something, so a run is a function of its seed.
 * Transports of a loopnet never block: recv and wait answer at once, whatever the timeout.
 *
 * Threads: one for a net and all its transports.  Lifetime: transports before the net. */
#ifndef HAWSER_TESTS_LOOPBACK_H
#define HAWSER_TESTS_LOOPBACK_H

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
};

int rpc_loopnet_create(const struct rpc_loopnet_options *options,
                       struct rpc_loopnet **out) MUST_CHECK;
void rpc_loopnet_destroy(struct rpc_loopnet *net);

/* For rpc_config.clock. */
struct rpc_clock rpc_loopnet_clock(struct rpc_loopnet *net);
uint64_t rpc_loopnet_now(const struct rpc_loopnet *net);

int rpc_loopnet_pair(struct rpc_loopnet *net, struct rpc_transport *out[2]) MUST_CHECK;

/* Moves time to the next arrival, at most to `until`.  True when bytes arrived then. */
bool rpc_loopnet_step(struct rpc_loopnet *net, uint64_t until_ns);
/* Moves time, for work that is modelled to take it. */
void rpc_loopnet_spend(struct rpc_loopnet *net, uint64_t ns);

/* Faults, on the connection that t is an end of. */
void rpc_loopnet_cut(struct rpc_transport *t);   /* silence both ways, for ever */
void rpc_loopnet_reset(struct rpc_transport *t); /* both ends see -ECONNRESET */
void rpc_loopnet_freeze(struct rpc_transport *t, uint64_t until_ns); /* nothing arrives till then */

#endif
