/* venus/client/submit/trace.h - what submits, waits and readbacks cost, for people who tune.
 *
 * VENUS_TRACE_MEM=1 prints a line for each map, one for each wait, and summaries every hundred
 * submits and waits, whatever the log level.
 *
 * Trust: none needed.  Threads: any.  Lifetime: the process. */
#ifndef HAWSER_VENUS_CLIENT_SUBMIT_TRACE_H
#define HAWSER_VENUS_CLIENT_SUBMIT_TRACE_H

#include "venus/client/submit/invalidate.h"

bool vnc_trace_is_on(void);
void vnc_trace_map(const struct vnc_memory *memory);
/* A submission took so long; its batches can write so much. */
void vnc_trace_submit(uint64_t ns, const struct vnc_invalidate_counts *counts);
/* Bytes came back for an allocation. */
void vnc_trace_delta(size_t bytes);
/* A wait for fences or semaphores. */
void vnc_trace_wait(uint64_t ns);

#endif
