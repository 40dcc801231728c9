/* serve/metrics.h - the counters of this process as a small web page.
 *
 *   /         text, for people      /metrics  Prometheus      /json  JSON
 *
 * Trust: anybody who reaches the address may read; nothing can be changed through it.  Requests
 * with a body and methods other than GET and HEAD are refused.
 * Threads: start makes one of its own.  Lifetime: start/stop. */
#ifndef HAWSER_SERVE_METRICS_H
#define HAWSER_SERVE_METRICS_H

#include "command/command.h"
#include "rpc/transport/addr.h"

enum {
    METRICS_CLIENTS_MAX = 16,    /* scrapers and a person or two */
    METRICS_TIMEOUT_SECONDS = 10 /* for one that connects and says nothing */
};

struct metrics;

/* Whether the text of --metrics is an address that may have the page; what it is not, is said in
 * the command's name.  NULL: no page, CMD_DONE. */
enum cmd_exit metrics_check(const char *command, const char *text, bool insecure,
                            struct rpc_addr *out);
/* Prints where the page is. */
enum cmd_exit metrics_start(const char *command, const struct rpc_addr *addr, struct metrics **out);
void metrics_stop(struct metrics *metrics);

#endif
