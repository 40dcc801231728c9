/* tests/unit/kv/sim.h - a cluster of daemons, their clients and the network, in virtual time from a
 * seed.
 *
 * The daemons are the real ones, over loopback transports; clients are the real client side of a
 * region.  Whatever happens, in which order, follows from the seed, so a failing seed fails again.
 * A run checks as it goes that no wake-up is lost and that values arrive whole, and at the end that
 * every request has ended and every key's history is linearizable. */
#ifndef HAWSER_TESTS_KV_SIM_H
#define HAWSER_TESTS_KV_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/common/kv.h"

struct sim_report {
    uint64_t log; /* hash of all that happened */
    uint64_t requests;
    uint64_t results[KV_RESULT_COUNT];
    uint64_t restarts, deaths, cuts, stalls, naps;
    char failure[160]; /* "" when all held */
};

/* faults: cuts, resets, freezes, stalls, restarts and deaths of clients happen. */
struct sim_report sim_run(uint64_t seed, bool faults);

#endif
