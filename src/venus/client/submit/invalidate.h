/* venus/client/submit/invalidate.h - which mapped memory the server reads back by itself when a
 * batch is done.
 *
 * Without knobs that is all, and only changed bytes travel.  Memory that a knob leaves out is
 * demand-paged (memory/fetch.h): its pages are fetched when the program touches them.  Where that
 * cannot be, the knob has no effect.  So mapped memory is exact in any case:
 *
 *   VENUS_INVALIDATE_ON_WAIT=0        no memory is read back
 *   VENUS_INVALIDATE_MAX_BYTES=SIZE   allocations larger than this are not
 *   VENUS_INVALIDATE_HANDLES=0x9,11   only these allocations are, by the handles of the trace
 *
 * Trust: the environment is the user's.  Threads: any.  Lifetime: read once a process. */
#ifndef HAWSER_VENUS_CLIENT_SUBMIT_INVALIDATE_H
#define HAWSER_VENUS_CLIENT_SUBMIT_INVALIDATE_H

#include "venus/client/record/ranges.h"

struct vnc_invalidate_counts {
    uint64_t eligible; /* ranges that a batch can write */
    uint64_t skipped_large;
    uint64_t skipped_handle;
};

/* Whether no knob leaves the memory out. */
bool vnc_invalidate_includes(const struct vnc_memory *memory);
/* For the trace: adds what a batch of the device can write, and what of that is demand-paged for a
 * knob's sake. */
void vnc_invalidate_count(struct vnc_device *device, const struct vnc_ranges *ranges,
                          struct vnc_invalidate_counts *counts);
/* VENUS_INVALIDATE_MAX_BYTES, or UINT64_MAX. */
uint64_t vnc_invalidate_cap(void);

#endif
