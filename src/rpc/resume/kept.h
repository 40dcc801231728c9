/* rpc/resume/kept.h - what was sent and the peer has not acknowledged, for a resumption.
 *
 * Bytes are numbered in the order in which they were written.  Small ones are copied into a ring;
 * payloads are referred to, and their owner is told when the last reference has gone.
 *
 * Trust: a peer that acknowledges more than it was sent gets -EPROTO; one that acknowledges nothing
 * ends the keeping at its limit, not the connection.
 * Threads: one.  Lifetime: create/destroy. */
#ifndef HAWSER_RPC_RESUME_KEPT_H
#define HAWSER_RPC_RESUME_KEPT_H

#include "base/attr.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct rpc_kept;

/* One reference to this owner has gone. */
typedef void rpc_kept_drop_fn(void *owner);

/* limit: bytes that are kept at most.  NULL when out of memory. */
struct rpc_kept *rpc_kept_create(uint64_t limit, rpc_kept_drop_fn *drop);
void rpc_kept_destroy(struct rpc_kept *kept);
void rpc_kept_set_limit(struct rpc_kept *kept, uint64_t limit);

/* The next `skip` bytes that are written have no number. */
void rpc_kept_skip(struct rpc_kept *kept, uint64_t skip);

/* Bytes were written: copied here, or referred to in the memory of `owner`, which must stay as it
 * is.  True when that made a reference to drop. */
void rpc_kept_copy(struct rpc_kept *kept, const void *data, size_t len);
bool rpc_kept_refer(struct rpc_kept *kept, const void *data, size_t len, void *owner);
/* Copies what still refers to the owner and drops those references. */
void rpc_kept_own(struct rpc_kept *kept, void *owner);

/* True when bytes are missing: the limit was reached, or memory ran out. */
bool rpc_kept_is_broken(const struct rpc_kept *kept);

uint64_t rpc_kept_written(const struct rpc_kept *kept); /* numbered bytes */
uint64_t rpc_kept_acked(const struct rpc_kept *kept);
/* The peer has all before this number.  0, or -EPROTO when it cannot. */
int rpc_kept_ack(struct rpc_kept *kept, uint64_t number) MUST_CHECK;

/* Lays out what is to be written again, from this number on; how many segments. */
int rpc_kept_gather(const struct rpc_kept *kept, uint64_t from, struct iovec *iov, int max);

#endif
