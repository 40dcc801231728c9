/* cli/delay.h - a relay on loopback that makes a line longer: bytes arrive a fixed time later.
 *
 * The relay is a process of its own, carries one connection, and ends with it.
 *
 * Trust: both ends are ours.  Threads: start forks, so call it before starting any.
 * Lifetime: start/stop; the struct is the caller's. */
#ifndef HAWSER_CLI_DELAY_H
#define HAWSER_CLI_DELAY_H

#include "base/attr.h"

#include <stdint.h>
#include <sys/types.h>

enum {
    CLI_DELAY_BYTES = 16 << 20, /* on the way, each direction: 10 Gbit/s for 12 ms */
    CLI_DELAY_MARKS = 4096      /* reads on the way */
};

struct cli_delay {
    pid_t pid; /* 0: not running */
    uint16_t port;
};

/* Listens on a free port of 127.0.0.1 and relays to target_port.  0 or a negative errno; *out is
 * written only on 0. */
int cli_delay_start(uint16_t target_port, uint64_t one_way_ns, struct cli_delay *out) MUST_CHECK;
/* Waits until it has carried all and ended by itself, which it does once both ends have closed. */
void cli_delay_finish(struct cli_delay *delay);
/* Ends it now.  Both are harmless when not running. */
void cli_delay_stop(struct cli_delay *delay);

#endif
