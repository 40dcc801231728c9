/* rpc/stats.h - what an endpoint counts; the one definition that traces, /metrics and top read.
 *
 * Threads: written by the endpoint's thread, read by any (relaxed). */
#ifndef HAWSER_RPC_STATS_H
#define HAWSER_RPC_STATS_H

#include "base/counter.h"

#include <stdatomic.h>
#include <stdint.h>

/* X(field, name, unit, kind, help) */
#define RPC_STATS_LIST(X)                                                                          \
    X(calls, "rpc_calls", "", HW_COUNTER, "calls made")                                            \
    X(replies, "rpc_replies", "", HW_COUNTER, "replies received")                                  \
    X(timeouts, "rpc_timeouts", "", HW_COUNTER, "calls that passed their deadline")                \
    X(no_credit, "rpc_no_credit", "", HW_COUNTER, "sends refused for want of credit")              \
    X(queue_full, "rpc_queue_full", "", HW_COUNTER, "sends refused because the queue was full")    \
    X(msgs_sent, "rpc_messages_sent", "", HW_COUNTER, "messages sent")                             \
    X(msgs_received, "rpc_messages_received", "", HW_COUNTER, "messages received")                 \
    X(batches_sent, "rpc_batches_sent", "", HW_COUNTER, "flushes that wrote all there was")        \
    X(writes, "rpc_writes", "", HW_COUNTER, "writes to the transport that took bytes")             \
    X(reads, "rpc_reads", "", HW_COUNTER, "reads from the transport that gave bytes")              \
    X(bytes_sent, "rpc_bytes_sent", "bytes", HW_COUNTER, "bytes written, framing included")        \
    X(bytes_received, "rpc_bytes_received", "bytes", HW_COUNTER, "bytes read, framing included")   \
    X(credit_frames_sent, "rpc_credit_frames_sent", "", HW_COUNTER, "credit returns sent")         \
    X(resumes, "rpc_resumes", "", HW_COUNTER, "connections replaced after a cut")                  \
    X(bytes_replayed, "rpc_bytes_replayed", "bytes", HW_COUNTER, "bytes sent again after a cut")   \
    X(queue_ns, "rpc_queue_nanoseconds", "ns", HW_COUNTER,                                         \
      "from queueing to the write, first of a batch")                                              \
    X(queue_max_ns, "rpc_queue_max_nanoseconds", "ns", HW_GAUGE, "longest of these")               \
    X(write_ns, "rpc_write_nanoseconds", "ns", HW_COUNTER, "inside the transport's send")          \
    X(write_max_ns, "rpc_write_max_nanoseconds", "ns", HW_GAUGE, "longest of these")               \
    X(rtt_ns, "rpc_rtt_nanoseconds", "ns", HW_COUNTER, "from call to reply")                       \
    X(rtt_max_ns, "rpc_rtt_max_nanoseconds", "ns", HW_GAUGE, "longest of these")

struct rpc_stats {
#define X(field, name, unit, kind, help) _Atomic uint64_t field;
    RPC_STATS_LIST(X)
#undef X
};

extern const struct hw_counter_def rpc_stats_defs[];
enum { RPC_STATS_COUNT = sizeof(struct rpc_stats) / sizeof(_Atomic uint64_t) };

#endif
