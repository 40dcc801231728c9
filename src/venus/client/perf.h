/* venus/client/perf.h - a switch for each optimisation.
 *
 * VENUS_PERF=no_upload_cache,... turns the named ones off.  Each has the slow way beside it, which
 * gives the same results; tests and bench-vulkan compare the two.
 *
 * Trust: the environment is the user's; a name that is unknown costs a warning.
 * Threads: any.  Lifetime: read once a process. */
#ifndef HAWSER_VENUS_CLIENT_PERF_H
#define HAWSER_VENUS_CLIENT_PERF_H

#include <stdbool.h>

enum vnc_perf {
    VNC_PERF_COALESCING,       /* commands gather until something waits for them */
    VNC_PERF_PIPELINING,       /* commands do not wait for each other's answers */
    VNC_PERF_TRANSPORT_TUNING, /* sockets that do not hold small messages back, large buffers */
    VNC_PERF_EARLY_FENCES,     /* as VENUS_EARLY_FENCE */
    VNC_PERF_EARLY_RECORDINGS, /* an idle server gets recordings while they are recorded */
    VNC_PERF_REFERENCES, /* recordings and descriptor writes that the server has are not sent again
                          */
    VNC_PERF_QUIET_BATCHES,   /* batches that nobody waits for are not reported */
    VNC_PERF_PACKING,         /* as VENUS_COMPRESS */
    VNC_PERF_WHOLE_PAGES,     /* pages written as a whole travel without a look at each byte */
    VNC_PERF_SMALL_UPLOADS,   /* small copies from mapped memory travel with their bytes */
    VNC_PERF_STRIPES,         /* as VENUS_UPLOAD_STRIPES */
    VNC_PERF_UPLOAD_CACHE,    /* large writes that the server has are not sent again */
    VNC_PERF_KEPT_BUDGETS,    /* an answer about budgets is good for a moment */
    VNC_PERF_KEPT_SESSIONS,   /* the next instance takes over an unused session */
    VNC_PERF_QUERY_RESULTS,   /* results of queries come with the batch that made them */
    VNC_PERF_RECYCLED_MEMORY, /* an allocation takes over memory that was freed */
    VNC_PERF_COUNT,
};

/* Whether the optimisation is on. */
bool vnc_perf(enum vnc_perf which);

#endif
