/* venus/memory/unshadowed.h - the driver's memory at the server where no shadow copy of it is kept.
 *
 * For memory that the CPU reads across a bus, a hundred times slower than its own.  The server
 * stores what the client sends, and reads only what the client requests
 * (docs/design/mapped-memory.md).
 *
 * Trust: vn_unshadowed_apply takes a peer's bytes, see delta.h.
 * Threads: any; a device may write the memory meanwhile.  Lifetime: nothing is kept. */
#ifndef HAWSER_VENUS_MEMORY_UNSHADOWED_H
#define HAWSER_VENUS_MEMORY_UNSHADOWED_H

#include "venus/memory/delta.h"

/* Stores the bytes that a delta names: all of them or, on -EPROTO, -EMSGSIZE and -ENOMEM, none.
 * `memory` has size bytes. */
int vn_unshadowed_apply(uint8_t *memory, size_t size, struct vn_delta_codec *codec,
                        const void *data, size_t len) MUST_CHECK;

/* Copies to memory that the CPU caches; `from` is the start of a page. */
void vn_unshadowed_read(uint8_t *to, const uint8_t *from, size_t len);

#endif
