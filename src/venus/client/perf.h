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
    VN_PERF_UPLOAD_CACHE, /* large writes that the server has are not sent again */
    VN_PERF_COUNT,
};

/* Whether the optimisation is on. */
bool vn_perf(enum vn_perf which);

#endif
