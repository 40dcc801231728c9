/* venus/server/stream/pending.h - command buffers that the driver may still execute though the
 * program was told that they are done (docs/design/fences.md), and others in their place.
 *
 * A program that was told so records such a buffer again.  Rather than wait for the device, the
 * server gives it another command buffer of the driver's, from the same pool; the old one is spare
 * until it is done and somebody needs it.  Submissions do not run far ahead, so no more than a few
 * are.
 *
 * Trust: none needed.  Threads: the executor's only.
 * Lifetime: spares end with their pool, whose end frees them at the driver. */
#ifndef HAWSER_VENUS_SERVER_STREAM_PENDING_H
#define HAWSER_VENUS_SERVER_STREAM_PENDING_H

#include "venus/server/session/objects.h"

struct vns_queue;

/* A submission that this queue was told to expect names the buffer. */
void vns_pending_note(struct vns_thing *buffer, struct vns_queue *queue);

/* Whether the device may still execute it, or, of a pool, one of its spares.  Always for a
 * secondary one, and for one that was on two queues at a time until it is recorded again: whose
 * submissions it is part of is not followed. */
bool vns_pending_is(const struct vns_thing *buffer);
bool vns_pending_has_spares(const struct vns_thing *pool);

/* Gives the buffer another one of the driver's, which is not pending.  False where there is none to
 * be had, and for those that are not followed: nothing has changed then. */
bool vns_pending_renew(struct vns_objects *objects, struct vns_thing *buffer) MUST_CHECK;

/* For objects.c. */
void vns_pending_free(struct vns_thing *pool);

#endif
