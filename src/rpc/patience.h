/* rpc/patience.h - how long to wait for an answer that may never come, before another attempt.
 *
 * Some attempts are lost, and waiting for them is lost time; others need longer than attempts did,
 * since the network or the machine has become slow.  Nobody knows which it is.  The order of Luby,
 * Sinclair and Zuckerman, 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ..., gives about as much time to each
 * length, and is never far from the best.
 *
 *     struct rpc_patience patience = RPC_PATIENCE;
 *     while (try(patience.units * unit_ns) fails)
 *         rpc_patience_next(&patience);
 *
 * Threads: one at a time.  Lifetime: a value. */
#ifndef HAWSER_RPC_PATIENCE_H
#define HAWSER_RPC_PATIENCE_H

#include <stdint.h>

struct rpc_patience {
    uint32_t round, units;
};

#define RPC_PATIENCE ((struct rpc_patience){1, 1})

static inline void rpc_patience_next(struct rpc_patience *p)
{
    if ((p->round & -p->round) == p->units)
        *p = (struct rpc_patience){p->round + 1, 1};
    else
        p->units *= 2;
}

#endif
