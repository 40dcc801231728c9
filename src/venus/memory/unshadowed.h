/* venus/memory/unshadowed.h - the driver's memory at the server, where no shadow copy is kept of
 * it.
 *
 * For memory that the CPU reads across a bus, a hundred times slower than its own: it is written as
 * the client says, and read only where the client asks (docs/mapped-memory.md).
 *
 * Trust: vn_unshadowed_apply takes a peer's bytes, see delta.h.
 * Threads: any; the memory may be written by a device meanwhile.  Lifetime: nothing is kept. */
#ifndef HAWSER_VENUS_MEMORY_UNSHADOWED_H
#define HAWSER_VENUS_MEMORY_UNSHADOWED_H

#include "venus/memory/delta.h"

/* Stores the bytes that a delta names, all of them or, on -EPROTO, -EMSGSIZE and -ENOMEM, none of
 * them.  memory has size bytes. */
int vn_unshadowed_apply(uint8_t *memory, size_t size, struct vn_delta_codec *codec,
                        const void *data, size_t len) MUST_CHECK;

/* Copies to memory that the CPU caches; `from` is the start of a page. */
void vn_unshadowed_read(uint8_t *to, const uint8_t *from, size_t len);

#endif
