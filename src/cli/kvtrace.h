/* cli/kvtrace.h - the trace that hawser kvreplay and kvscale are given.
 *
 * Trust: files may hold anything; what is no trace is told with its line.
 * Threads: any.  Lifetime: kv_trace_free, on CLI_DONE. */
#ifndef HAWSER_CLI_KVTRACE_H
#define HAWSER_CLI_KVTRACE_H

#include "cli/cli.h"
#include "kv/trace.h"

/* Says what is wrong in the command's name. */
enum cli_exit cli_trace_read(const char *command, const char *path,
                             struct kv_trace_file *out) MUST_CHECK;

#endif
