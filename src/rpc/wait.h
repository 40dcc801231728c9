/* rpc/wait.h - how to wait for bytes: sleep, spin, or spin while that pays.
 *
 * Adaptive spins only when there is a second core to make progress on, and stops as soon as the
 * spinning shows that it does not pay: each fruitless spin doubles the number of waits that go
 * straight to sleep, and a spin that was interrupted (somebody else wants this core) counts
 * double.  So without a spare core it costs what blocking costs.  Spins that are longer than a few
 * round trips are for those who wait for a GPU with the program's own thread; they want four cores.
 *
 * Threads: one at a time.  Lifetime: a value. */
#ifndef HAWSER_RPC_WAIT_H
#define HAWSER_RPC_WAIT_H

#include "rpc/rpc.h"

struct rpc_waiter {
    enum rpc_wait_mode mode;
    uint64_t spin_ns;        /* at most; 0: not at all */
    uint64_t looks_ns;       /* the least that some looks in a row took */
    uint64_t interrupted_ns; /* so much more is an interruption */
    uint8_t distrust;        /* grows with fruitless spins */
    uint32_t rest;           /* waits to go before spinning is tried again */
};

/* patience_ns: of a spin; 0: a few round trips on one machine. */
void rpc_waiter_init(struct rpc_waiter *waiter, enum rpc_wait_mode mode, uint64_t patience_ns);

/* As the transport's recv, waiting in the waiter's way. */
ssize_t rpc_waiter_recv(struct rpc_waiter *waiter, struct rpc_transport *t, const struct iovec *iov,
                        int count, uint64_t timeout_ns);

#endif
