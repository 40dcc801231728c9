/* venus/client/object/ask.h - questions that the server answers at once, asked until it says yes.
 *
 * Threads: any.  Lifetime: of the call. */
#ifndef HAWSER_VENUS_CLIENT_OBJECT_ASK_H
#define HAWSER_VENUS_CLIENT_OBJECT_ASK_H

#include "venus/client/submit/queue.h"

/* Calls ask(user) until it returns something other than VK_NOT_READY, or the time is over: then
 * VK_NOT_READY.  Pauses in between, until a batch of the device is done at the longest.  What the
 * device has failed with comes first. */
VkResult vnc_ask(struct vnc_device *device, VkResult (*ask)(void *user), void *user,
                 uint64_t timeout_ns) MUST_CHECK;

#endif
