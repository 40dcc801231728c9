#include "rpc/stats.h"

#include "base/log.h"
#include "rpc/endpoint/ep.h"

#include <inttypes.h>

enum { TRACE_EVERY = 100 }; /* messages a direction, as the seeds' traces print */

const struct hw_counter_def rpc_stats_defs[] = {
#define X(field, name, unit, kind, help) {name, help, unit, kind},
    RPC_STATS_LIST(X)
#undef X
};

static double mean_us(const _Atomic uint64_t *sum_ns, const _Atomic uint64_t *count)
{
    uint64_t n = hw_counter_load(count);
    return n ? (double)hw_counter_load(sum_ns) / (double)n / 1e3 : 0.0;
}

static uint64_t mean(const _Atomic uint64_t *sum, const _Atomic uint64_t *count)
{
    uint64_t n = hw_counter_load(count);
    return n ? hw_counter_load(sum) / n : 0;
}

static double us(const _Atomic uint64_t *ns)
{
    return (double)hw_counter_load(ns) / 1e3;
}

/* Explicitly asked for by VENUS_TRACE_NET, so printed whatever the log level.  A line ends with the
 * three figures of the seeds' traces: a write's or an answer's time, and bytes a message. */
static void trace_sent(const struct rpc_ep *ep)
{
    const struct rpc_stats *s = &ep->stats;
    hw_log_write(HW_CAT_NET, HW_LOG_INFO,
                 "trace %s: send calls=%" PRIu64 " messages=%" PRIu64 " batches=%" PRIu64
                 " writes=%" PRIu64 " bytes=%" PRIu64
                 " queue_avg_us=%.1f queue_max_us=%.1f write_avg_us=%.1f write_max_us=%.1f"
                 " avg_us=%.1f max_us=%.1f avg_bytes=%" PRIu64,
                 ep->transport->peer, hw_counter_load(&s->calls), hw_counter_load(&s->msgs_sent),
                 hw_counter_load(&s->batches_sent), hw_counter_load(&s->writes),
                 hw_counter_load(&s->bytes_sent), mean_us(&s->queue_ns, &s->batches_sent),
                 us(&s->queue_max_ns), mean_us(&s->write_ns, &s->writes), us(&s->write_max_ns),
                 mean_us(&s->write_ns, &s->writes), us(&s->write_max_ns),
                 mean(&s->bytes_sent, &s->msgs_sent));
}

static void trace_received(const struct rpc_ep *ep)
{
    const struct rpc_stats *s = &ep->stats;
    hw_log_write(HW_CAT_NET, HW_LOG_INFO,
                 "trace %s: recv replies=%" PRIu64 " messages=%" PRIu64 " reads=%" PRIu64
                 " bytes=%" PRIu64 " rtt_avg_us=%.1f rtt_max_us=%.1f"
                 " avg_us=%.1f max_us=%.1f avg_bytes=%" PRIu64,
                 ep->transport->peer, hw_counter_load(&s->replies),
                 hw_counter_load(&s->msgs_received), hw_counter_load(&s->reads),
                 hw_counter_load(&s->bytes_received), mean_us(&s->rtt_ns, &s->replies),
                 us(&s->rtt_max_ns), mean_us(&s->rtt_ns, &s->replies), us(&s->rtt_max_ns),
                 mean(&s->bytes_received, &s->msgs_received));
}

void rpc_ep_trace(struct rpc_ep *ep)
{
    uint64_t sent = hw_counter_load(&ep->stats.msgs_sent) / TRACE_EVERY;
    if (sent > ep->traced_sent) {
        ep->traced_sent = sent;
        trace_sent(ep);
    }
    uint64_t received = hw_counter_load(&ep->stats.msgs_received) / TRACE_EVERY;
    if (received > ep->traced_received) {
        ep->traced_received = received;
        trace_received(ep);
    }
}
