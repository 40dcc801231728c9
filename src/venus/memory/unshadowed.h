/* venus/memory/unshadowed.h - the driver's memory at the server where no shadow copy of it is kept.
 *
 * For memory that the CPU reads across a bus, a hundred times slower than its own.  The server
 * stores what the client sends, and reads only what the client requests
 * (docs/design/mapped-memory.md).
 *
 * Trust: a change is of a delta that was opened, see delta.h.
 * Threads: any; a device may write the memory meanwhile.  Lifetime: nothing is kept. */
#ifndef HAWSER_VENUS_MEMORY_UNSHADOWED_H
#define HAWSER_VENUS_MEMORY_UNSHADOWED_H

#include "venus/memory/delta.h"

/* Stores the bytes that are named. */
void vn_unshadowed_store(uint8_t *memory, const struct vn_change *change);

/* Copies to memory that the CPU caches; `from` is the start of a page. */
void vn_unshadowed_read(uint8_t *to, const uint8_t *from, size_t len);

#endif
