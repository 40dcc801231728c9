/* venus/client/submit/invalidate.h - what is read back when a batch is done.
 *
 * Without knobs everything that the batch can write is, and mapped memory is exact.  The knobs
 * leave memory stale until vkInvalidateMappedMemoryRanges, which always reads:
 *
 *   VENUS_INVALIDATE_ON_WAIT=0        nothing is read back
 *   VENUS_INVALIDATE_MAX_BYTES=SIZE   ranges larger than this are not
 *   VENUS_INVALIDATE_HANDLES=0x9,11   only these allocations are, by the handles of the trace
 *
 * Each warns once when it is set so that memory can be stale.
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

/* Removes the ranges that knobs exclude, and counts. */
void vnc_invalidate_choose(struct vnc_ranges *ranges, struct vnc_invalidate_counts *counts);
/* Whether no knob leaves anything out. */
bool vnc_invalidate_is_exact(void);
/* VENUS_INVALIDATE_MAX_BYTES, or UINT64_MAX. */
uint64_t vnc_invalidate_cap(void);

#endif
