/* bench/rpc/delay.h - a relay on loopback that adds latency to a line and limits its rate.
 *
 * The relay is a process of its own, carries one connection, and ends with it.  A rate holds for
 * each direction by itself, as on a full-duplex line.  Where the machine has cores to spare
 * the relay spins while bytes move, since a real line needs no time to wake up.
 *
 * Trust: both ends are ours.  Threads: start forks, so call it before starting any.
 * Lifetime: start/stop; the struct is the caller's. */
#ifndef HAWSER_BENCH_RPC_DELAY_H
#define HAWSER_BENCH_RPC_DELAY_H

#include "base/attr.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    BENCH_DELAY_BYTES = 16 << 20, /* on the way, each direction: 10 Gbit/s for 12 ms */
    BENCH_DELAY_MARKS = 4096      /* reads on the way */
};

#define BENCH_DELAY_RATE_MIN UINT64_C(1000000)       /* a packet still takes no more than 12 ms */
#define BENCH_DELAY_RATE_MAX UINT64_C(1000000000000) /* past what loopback does by far */

struct bench_line {
    uint64_t one_way_ns;
    uint64_t bits_s; /* 0: no limit */
};

static inline bool bench_delay_is_needed(const struct bench_line *line)
{
    return line->one_way_ns || line->bits_s;
}

struct bench_delay {
    pid_t pid; /* 0: not running */
    uint16_t port;
};

/* "100Mbit", "2.5Gbit", or "0" for no limit.  0, -EINVAL, -ERANGE. */
int bench_delay_parse_rate(const char *text, uint64_t *bits_s) MUST_CHECK;

/* Listens on a free port of 127.0.0.1 and relays to target_port.  0 or a negative errno; *out is
 * written only on 0. */
int bench_delay_start(uint16_t target_port, struct bench_line line,
                      struct bench_delay *out) MUST_CHECK;
/* Waits until the relay has carried all bytes and ended, which it does once both ends have closed.
 */
void bench_delay_finish(struct bench_delay *delay);
/* Ends the relay now.  Both calls do nothing when none runs. */
void bench_delay_stop(struct bench_delay *delay);

#endif
