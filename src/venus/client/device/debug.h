/* venus/client/device/debug.h - debug messengers and report callbacks, which stay at the client.
 *
 * The server pushes what its layers and driver say; the program's own messages never travel.
 * Those that are chained to VkInstanceCreateInfo hear only what is said while the instance is
 * being created or destroyed.
 *
 * Trust: callbacks are the program's; messages may be the server's.
 * Threads: any; callbacks run one at a time, under a lock, so they must not create or destroy
 * messengers (Vulkan lets them call nothing at all).
 * Lifetime: create/destroy; messengers that the program leaked are freed with it. */
#ifndef HAWSER_VENUS_CLIENT_DEVICE_DEBUG_H
#define HAWSER_VENUS_CLIENT_DEVICE_DEBUG_H

#include "venus/client/icd.h"

struct vnc_debug;

/* chain is that of VkInstanceCreateInfo.  NULL when out of memory. */
struct vnc_debug *vnc_debug_create(const void *chain);
void vnc_debug_destroy(struct vnc_debug *debug);

/* Whether the instance is being created or destroyed; it is after vnc_debug_create. */
void vnc_debug_set_changing(struct vnc_debug *debug, bool changing);

/* Tells all that want such messages.  severity and types are those of VK_EXT_debug_utils. */
void vnc_debug_message(struct vnc_debug *debug, uint32_t severity, uint32_t types, int32_t number,
                       const char *name, const char *text);

extern const struct vnc_entry vnc_entries_debug[];

#endif
