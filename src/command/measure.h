/* command/measure.h - calls, round trips and streams over an endpoint, timed, for info and
 * bench-rpc; and how every benchmark prints its rows.
 *
 * These drive the endpoint themselves (flush, wait, poll), because where they flush and how they
 * wait is part of what is measured.
 *
 * Threads: the endpoint's.  Lifetime: nothing is kept between calls.
 * Errors: those of rpc/rpc.h; -ETIMEDOUT when nothing moved for timeout_ns. */
#ifndef HAWSER_COMMAND_MEASURE_H
#define HAWSER_COMMAND_MEASURE_H

#include "base/attr.h"
#include "base/clock.h"
#include "base/hist.h"
#include "base/report/bench.h"
#include "command/command.h"
#include "rpc/rpc.h"

#include <stddef.h>
#include <stdint.h>

enum {
    MEASURE_STREAM_SLICE = 4,   /* messages timed together: credit comes back in such steps */
    MEASURE_STREAM_LEAD = 16,   /* first messages of a stream, which only fill buffers: not timed */
    MEASURE_DEPTH_MAX = 4096,   /* calls in flight: RPC_CALLS_DEFAULT */
    MEASURE_BYTES_MAX = 4 << 20 /* of one message */
};

/* Drives the endpoint until the handshake is done: 0, its error, or -ETIMEDOUT. */
int measure_ready(struct rpc_ep *ep, uint64_t timeout_ns) MUST_CHECK;

/* One call without a payload; up to `size` bytes of the answer are copied and its whole length
 * stored. */
int measure_call(struct rpc_ep *ep, uint32_t method, void *reply, size_t size, size_t *len,
                 uint64_t timeout_ns) MUST_CHECK;

/* `count` calls, `depth` of them in flight, each with a payload of `payload_len` bytes. */
struct measure_calls {
    uint32_t method;
    const void *payload;
    size_t payload_len;
    size_t expect_len; /* every answer must have this length, else -EPROTO */
    uint32_t depth;
    uint64_t count;
    uint64_t timeout_ns;
    /* Nanoseconds of each call when depth is 1, else of each `depth` answers in turn, whose median
     * leaves out other work of the machine.  NULL: not wanted. */
    struct hw_hist *hist;
};
int measure_calls(struct rpc_ep *ep, const struct measure_calls *m,
                  uint64_t *elapsed_ns) MUST_CHECK;

/* `count` posts of `len` bytes to the sink, without copying, until the server has seen them all.
 * On an error the endpoint may still refer to `data`: destroy it before freeing them.
 * hist (NULL: not wanted) gets the nanoseconds of each MEASURE_STREAM_SLICE messages. */
int measure_upload(struct rpc_ep *ep, const void *data, size_t len, uint64_t count,
                   uint64_t timeout_ns, struct hw_hist *hist, uint64_t *elapsed_ns) MUST_CHECK;

/* Times the slices of a stream: call it after each message, i counting from 0. */
static inline void measure_slice(struct hw_hist *hist, uint64_t i, uint64_t *last_ns)
{
    if (!hist || i < MEASURE_STREAM_LEAD || i % MEASURE_STREAM_SLICE)
        return;
    uint64_t now = hw_now_ns();
    if (i > MEASURE_STREAM_LEAD)
        hw_hist_record(hist, now - *last_ns);
    *last_ns = now;
}

/* Prints the rows of a benchmark, which stay the caller's.  CMD_DONE; CMD_FAILED after a message
 * where they cannot be written, or with `check` where a row missed its target. */
enum cmd_exit measure_print(const char *command, const struct hw_bench *bench, bool json,
                            bool check) MUST_CHECK;

#endif
