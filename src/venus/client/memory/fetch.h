/* venus/client/memory/fetch.h - mapped memory whose pages stay at the server until they are
 * touched.
 *
 * A GPU's own memory is read across a bus by the server's CPU, so it is not compared after each
 * batch.  The server says which pages a batch may have written; they are dropped here, and fetched
 * when the program touches them (docs/design/mapped-memory.md).
 *
 *   VENUS_FETCH=auto   memory that the server's CPU does not cache, or that a knob wants so
 *                      (submit/invalidate.h); and large memory, once work writes by device address,
 *                      or if comparing it found little
 *   VENUS_FETCH=all    all mapped memory; for tests
 *   VENUS_FETCH=none   nothing: it is compared and pushed, however slow that is
 *
 * Where touching a page that is not there cannot be noticed (VENUS_TRACK, rights), it is none.
 *
 * Trust: the environment is the user's; the server's bytes are checked by the region.
 * Threads: any.  Lifetime: the knob is read once a process. */
#ifndef HAWSER_VENUS_CLIENT_MEMORY_FETCH_H
#define HAWSER_VENUS_CLIENT_MEMORY_FETCH_H

#include "venus/client/memory/memory.h"

/* Whether pages of the memory are to be fetched, if they can be. */
bool vnc_fetch_wanted(const struct vnc_memory *memory);

/* Whether fetching what the program touches takes less time than comparing all of the memory, as
 * after work that may have written any of it. */
bool vnc_fetch_pays(const struct vnc_memory *memory);

/* The same after work that may have written so many bytes of it: comparisons found next to nothing
 * until now. */
bool vnc_fetch_pays_now(const struct vnc_memory *memory, uint64_t bytes);

/* Says so to the server. */
void vnc_fetch_put_demand_paged(const struct vnc_memory *memory, struct wire_enc *e);

/* A vn_fetch_fn whose user is the struct vnc_memory.  Waits for the answer: while a program waits
 * for a page no other thread may be reading. */
int vnc_fetch_pages(void *user, size_t off, size_t len);

#endif
