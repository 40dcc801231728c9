/* venus/server/slice/arbiter.h - the server's thread that gives sessions their time slices.
 *
 * A session has a socket to it, and a board that it can read and not write (slice.h).  While GPUs
 * are free, the thread hears from a session that keeps one busy 50 times a second; while they are
 * sliced, about twice a slice.  It keeps the accounts, by the server's clock.
 *
 * Trust: as schedule.h; a session whose message is none, or that does not take its answers, is left
 * out, and waits for nobody and is waited for by nobody from then on.
 * Threads: one for these calls, beside its own thread.  Lifetime: create/destroy; sessions end
 * before it, tenants after it. */
#ifndef HAWSER_VENUS_SERVER_SLICE_ARBITER_H
#define HAWSER_VENUS_SERVER_SLICE_ARBITER_H

#include "venus/server/slice/schedule.h"

struct vns_arbiter;

/* 0 or a negative errno. */
int vns_arbiter_create(uint64_t slice_ns, struct vns_arbiter **out) MUST_CHECK;
void vns_arbiter_destroy(struct vns_arbiter *arbiter);

/* A session's end of a new socket, the caller's to pass on and close; or a negative errno.  id: the
 * session's own, neither VNS_SLICE_FREE nor VNS_SLICE_NOBODY. */
int vns_arbiter_invite(struct vns_arbiter *arbiter, uint32_t id, struct vns_slice_tenant *tenant);
/* The board, to be passed on with it; the arbiter's. */
int vns_arbiter_board(const struct vns_arbiter *arbiter);

#endif
