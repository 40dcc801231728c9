/* bench/kvsim/trace.h - recorded requests in a file, for bench/kvsim/replay.h and
 * bench/kvsim/scale.h.
 *
 * A line is a request, a JSON object: "hash_ids" are the blocks of its prompt, by number;
 * "timestamp", if it is there, says in milliseconds when it came.  Empty lines are skipped.
 *
 * Trust: files may hold anything.  Threads: any.  Lifetime: read/free. */
#ifndef HAWSER_BENCH_KVSIM_TRACE_H
#define HAWSER_BENCH_KVSIM_TRACE_H

#include "bench/kvsim/replay.h"
#include "command/command.h"

#include <stddef.h>
#include <stdio.h>

enum { KV_TRACE_LINE_MAX = 16 << 20 }; /* a million blocks of one request */

struct kv_trace_file {
    struct kv_trace trace;
    uint64_t *at_ms; /* of each request, up to a century; 0 without a timestamp */
};

/* 0; -EPROTO for a line that is no request; -E2BIG past the limits here and in
 * bench/kvsim/replay.h; -ENODATA when no request has a block; -ENOMEM; -EIO.  `line` is where
 * reading ended, from 1 on; `out` is set, and to be freed, on 0 only. */
int kv_trace_read(FILE *file, struct kv_trace_file *out, size_t *line) MUST_CHECK;
void kv_trace_free(struct kv_trace_file *trace);

/* The trace that a command is given; says what is wrong in the command's name. */
enum cmd_exit bench_trace_read(const char *command, const char *path,
                               struct kv_trace_file *out) MUST_CHECK;

#endif
