/* serve/metrics.h - the counters of this process as a small web page.
 *
 *   /         text, for people      /metrics  Prometheus      /json  JSON
 *
 * Trust: anybody who reaches the address may read; nothing can be changed through it.  Requests
 * with a body and methods other than GET and HEAD are refused.
 * Threads: start makes one of its own.  Lifetime: start/stop. */
#ifndef HAWSER_SERVE_METRICS_H
#define HAWSER_SERVE_METRICS_H

#include "base/attr.h"
#include "rpc/transport/addr.h"

#include <stdint.h>

enum {
    METRICS_CLIENTS_MAX = 16,    /* scrapers and a person or two */
    METRICS_TIMEOUT_SECONDS = 10 /* for one that connects and says nothing */
};

struct metrics;

/* 0, or a negative errno with a sentence in why.  *port_out is the port as bound. */
int metrics_start(const struct rpc_addr *addr, struct metrics **out, uint16_t *port_out,
                  char why[RPC_WHY_CHARS]) MUST_CHECK;
void metrics_stop(struct metrics *metrics);

#endif
