/* venus/client/object/sync_fd.h - semaphores and fences that processes on one host share as a
 * descriptor.
 *
 * The descriptor is the one of the server's driver, as with memory (memory/external.h).  What is
 * shared is the driver's: a fence that may be exported or was imported lives at the server, which
 * is asked for its status, and so is the value of a timeline from the first export or import on.
 * Work that signals or waits for any of them is never reported early.
 *
 * Trust: a descriptor of the program is anything; the server and its driver judge it.
 * Threads: any.  Lifetime: an import takes the descriptor on success only. */
#ifndef HAWSER_VENUS_CLIENT_OBJECT_SYNC_FD_H
#define HAWSER_VENUS_CLIENT_OBJECT_SYNC_FD_H

#include "venus/client/icd.h"

extern const struct vnc_entry vnc_entries_sync_fd[];

#endif
