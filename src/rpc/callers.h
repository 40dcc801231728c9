/* rpc/callers.h - log lines about callers that were turned away, at most one a second.
 *
 * Anybody can connect to a port, as often as he likes.  The first caller that is turned away gets
 * a line at once; those of the next second are counted, and one line tells their number.  With
 * VENUS_LOG_CATEGORIES=NET=DEBUG each has a line of its own all the same.
 *
 * Trust: text may hold a caller's bytes, as base/log.h.  Threads: any.  Lifetime: the process's. */
#ifndef HAWSER_RPC_CALLERS_H
#define HAWSER_RPC_CALLERS_H

#include "base/attr.h"

#include <stdbool.h>

/* A caller was turned away; `peer` says who. */
void rpc_callers_warn(const char *peer, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Tells the number of those counted: once a second has passed, or, at the end, now. */
void rpc_callers_tell(bool now);
/* True while there are some to tell of. */
bool rpc_callers_untold(void);

#endif
