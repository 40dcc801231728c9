/* venus/server/memory/clear.h - zeroes memory without touching what was never touched.
 *
 * A driver in software gives out fresh pages, which are zero and cost nothing until they are
 * written; clearing gigabytes of them would make them real.
 *
 * Trust: none needed.  Threads: any.  Lifetime: nothing is kept. */
#ifndef HAWSER_VENUS_SERVER_MEMORY_CLEAR_H
#define HAWSER_VENUS_SERVER_MEMORY_CLEAR_H

#include <stddef.h>

/* Private memory: only pages that hold some are written.  A memfd's: its pages are given back.
 * Anything else, such as memory of a device, and what is small: all is written. */
void vns_clear(void *memory, size_t size);

#endif
