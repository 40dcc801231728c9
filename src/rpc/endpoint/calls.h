/* rpc/endpoint/calls.h - the calls in flight on one endpoint: ids, callbacks, deadlines.
 *
 * An id is an index, so it is small on the wire.  It is reused only after the peer answered:
 * a call that ended early (deadline, cancel) keeps its id as a zombie until the late answer
 * comes, so that no answer can reach the wrong call.
 *
 * Deadlines sit in a wheel of one-millisecond buckets: add and remove are O(1).
 *
 * Trust: ids from the peer are checked.  Threads: one.  Lifetime: init/fini. */
#ifndef HAWSER_RPC_ENDPOINT_CALLS_H
#define HAWSER_RPC_ENDPOINT_CALLS_H

#include "base/clock.h"
#include "rpc/rpc.h"

enum { RPC_WHEEL_BUCKETS = 512, RPC_WHEEL_WORDS = RPC_WHEEL_BUCKETS / 64 };

struct rpc_pending_call {
    rpc_reply_fn *fn; /* NULL: free or zombie */
    void *user;
    uint64_t sent_ns;
    uint64_t deadline_ns; /* HW_NEVER: in no wheel bucket */
    uint32_t next, prev;  /* wheel list, or the free list through next */
    bool zombie;
};

struct rpc_calls {
    struct rpc_pending_call *entries;
    uint32_t capacity, limit; /* allocated; most at once */
    uint32_t free_head;
    uint32_t in_flight; /* with a callback waiting */
    uint32_t used;      /* these and the zombies: what the peer has yet to answer */
    uint32_t wheel[RPC_WHEEL_BUCKETS];
    uint64_t occupied[RPC_WHEEL_WORDS];
    uint64_t swept_ms; /* buckets up to here have been looked at */
};

/* False when rpc_calls_expire would find nothing. */
static inline bool rpc_calls_overdue(const struct rpc_calls *calls, uint64_t now_ns)
{
    return calls->in_flight > 0 && now_ns >= (calls->swept_ms + 1) * HW_MS;
}

void rpc_calls_init(struct rpc_calls *calls, uint32_t limit, uint64_t now_ns);
void rpc_calls_fini(struct rpc_calls *calls);

/* 0, -ENOBUFS when `limit` are in flight, -ENOMEM. */
int rpc_calls_add(struct rpc_calls *calls, rpc_reply_fn *fn, void *user, uint64_t now_ns,
                  uint64_t timeout_ns, uint32_t *id_out) MUST_CHECK;

/* The answer to `id` came: frees the id.  0 with the call in *out (fn NULL for a zombie), or
 * -ENOENT when no such call is in flight: the peer made it up. */
int rpc_calls_answer(struct rpc_calls *calls, uint32_t id, struct rpc_pending_call *out) MUST_CHECK;

/* True while an answer to `id` is awaited, zombie or not. */
bool rpc_calls_known(const struct rpc_calls *calls, uint32_t id);

/* Ends the call early; its id becomes a zombie.  0 with the call, -ENOENT. */
int rpc_calls_end(struct rpc_calls *calls, uint32_t id, struct rpc_pending_call *out) MUST_CHECK;

/* The id was never sent: gives it back at once. */
void rpc_calls_forget(struct rpc_calls *calls, uint32_t id);

/* One call whose deadline has passed (its id becomes a zombie), or -ENOENT. */
int rpc_calls_expire(struct rpc_calls *calls, uint64_t now_ns, uint32_t *id_out,
                     struct rpc_pending_call *out) MUST_CHECK;

/* Any call still waiting from id *cursor on, ended; -ENOENT when none is left.  Start with 0. */
int rpc_calls_drain(struct rpc_calls *calls, uint32_t *cursor,
                    struct rpc_pending_call *out) MUST_CHECK;

/* When rpc_calls_expire must run: at the latest in the millisecond after the earliest deadline.
 * HW_NEVER when there is none. */
uint64_t rpc_calls_next_deadline(const struct rpc_calls *calls);

#endif
