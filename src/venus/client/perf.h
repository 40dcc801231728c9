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

enum vn_perf {
    VN_PERF_COALESCING,        /* commands gather until something waits for them */
    VN_PERF_PIPELINING,        /* commands do not wait for each other's answers */
    VN_PERF_BATCHED_TRANSFERS, /* changed pages travel together */
    VN_PERF_TRANSPORT_TUNING,  /* sockets that do not hold small messages back, large buffers */
    VN_PERF_EARLY_FENCES,      /* as VENUS_EARLY_FENCE */
    VN_PERF_EARLY_BODIES,      /* an idle server gets bodies while they are recorded */
    VN_PERF_REFERENCES,    /* bodies and descriptor writes that the server has are not sent again */
    VN_PERF_QUIET_BATCHES, /* batches that nobody waits for are not reported */
    VN_PERF_PACKING,       /* as VENUS_COMPRESS */
    VN_PERF_WHOLE_PAGES,   /* pages written as a whole are sent without a look at each byte */
    VN_PERF_SMALL_UPLOADS, /* small copies from mapped memory travel with their bytes */
    VN_PERF_COPIES,        /* others travel in place of their bodies */
    VN_PERF_LANES,         /* as VENUS_LANES */
    VN_PERF_UPLOAD_CACHE,  /* large writes that the server has are not sent again */
    VN_PERF_KEPT_BUDGETS,  /* an answer about budgets is good for a moment */
    VN_PERF_COUNT,
};

/* Whether the optimisation is on. */
bool vn_perf(enum vn_perf which);

#endif
