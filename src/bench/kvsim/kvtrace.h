/* bench/kvsim/kvtrace.h - the trace that hawser kvreplay and kvscale are given.
 *
 * Trust: files may hold anything; an error names the line that is no trace.
 * Threads: any.  Lifetime: kv_trace_free, on CMD_DONE. */
#ifndef HAWSER_BENCH_KVSIM_KVTRACE_H
#define HAWSER_BENCH_KVSIM_KVTRACE_H

#include "bench/kvsim/trace.h"
#include "command/command.h"

/* Says what is wrong in the command's name. */
enum cmd_exit bench_trace_read(const char *command, const char *path,
                               struct kv_trace_file *out) MUST_CHECK;

#endif
