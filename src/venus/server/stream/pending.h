/* venus/server/stream/pending.h - command buffers that the driver may still execute though the
 * program was told that they are done (docs/early-fences.md), and others in their place.
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

struct vn_queue;

/* A submission that this queue was told to expect names the buffer. */
void vn_pending_note(struct vn_thing *buffer, struct vn_queue *queue);

/* Whether the device may still execute it, or, of a pool, one of its spares.  Always for a
 * secondary one: whose submissions it is part of is not followed. */
bool vn_pending_is(const struct vn_thing *buffer);
bool vn_pending_has_spares(const struct vn_thing *pool);

/* Gives the buffer another one of the driver's, which is not pending.  False where there is none to
 * be had, and for secondary ones: nothing has changed then. */
bool vn_pending_renew(struct vn_objects *objects, struct vn_thing *buffer) MUST_CHECK;

/* For objects.c. */
void vn_pending_free(struct vn_thing *pool);

#endif
