/* venus/server/slice/slice.h - a session's part in time slices (schedule.h).
 *
 * While a GPU is free, a submission costs a look at the board and at the clock.
 *
 * Trust: the server's process is trusted.  Where its socket ends, or it does not answer within
 * seconds, the session submits without it.
 * Threads: any; enter on the executor only.  Lifetime: create/destroy. */
#ifndef HAWSER_VENUS_SERVER_SLICE_SLICE_H
#define HAWSER_VENUS_SERVER_SLICE_SLICE_H

#include "venus/server/slice/schedule.h"

struct vns_slice;

/* Takes the socket and the board, also on failure; id: as the arbiter knows the session.  0 or a
 * negative errno. */
int vns_slice_create(int socket, int board, uint32_t id, struct vns_slice **out) MUST_CHECK;
void vns_slice_destroy(struct vns_slice *slice);

/* All of these take NULL: nothing is sliced then. */

/* Whether the GPU is sliced.  If not, the session may submit; says now and then how busy it is. */
bool vns_slice_is_on(struct vns_slice *slice, unsigned gpu);
/* It is: whether this session may submit right away. */
bool vns_slice_has(struct vns_slice *slice, unsigned gpu);
/* Waits until it may, for a while.  pending: batches under way and those of this submission, which
 * are at_hand. */
void vns_slice_enter(struct vns_slice *slice, unsigned gpu, uint64_t at_hand,
                     const _Atomic uint64_t *pending);

/* The first batch is pending; one less is. */
void vns_slice_began(struct vns_slice *slice);
void vns_slice_left(struct vns_slice *slice, const _Atomic uint64_t *pending);
/* Whether the server waits to hear that nothing is under way. */
bool vns_slice_is_watched(const struct vns_slice *slice);
/* The executor has nothing more to submit for now. */
void vns_slice_rest(struct vns_slice *slice);
/* Tells how busy the session was, so that the figures are right when it rests. */
void vns_slice_tell(struct vns_slice *slice);

#endif
