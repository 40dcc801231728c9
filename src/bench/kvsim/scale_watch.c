/* scale_watch.c - when members hear that the members have changed: leases, renewals and watches as
 * docs/design/cluster.md has them, on links with a latency and etcd's bandwidth. */
#include "bench/kvsim/scale_impl.h"

static const uint64_t lapse_look_ns = 500 * HW_MS; /* etcd looks for lapsed leases that often */
enum { RENEWALS = 3 };                             /* in a lease's time */

static uint64_t event_ns(const struct kv_scale_options *o)
{
    return KV_SCALE_EVENT_BYTES * HW_SEC / o->bandwidth;
}

/* The lease runs from when the last renewal reached etcd. */
static uint64_t lapsed_ns(const struct kv_scale_options *o, uint64_t died_ns, uint64_t phase)
{
    uint64_t every = o->ttl_ns / RENEWALS, asked = phase % every;
    if (asked > died_ns) /* it had registered before the time that is simulated */
        asked = 0;
    asked += (died_ns - asked) / every * every;
    return asked + o->latency_ns + o->ttl_ns;
}

uint64_t kv_scale_commit_ns(const struct kv_scale_options *o, enum kv_scale_change change,
                            uint64_t at_ns, uint64_t phase)
{
    switch (change) {
    case KV_SCALE_JOIN: /* asks for a lease, then registers with it */
        return at_ns + 3 * o->latency_ns;
    case KV_SCALE_LEAVE:
        return at_ns + o->latency_ns;
    case KV_SCALE_KILL:
    case KV_SCALE_CHANGES:
        break;
    }
    uint64_t look = (phase >> 32) % lapse_look_ns, lapsed = lapsed_ns(o, at_ns, phase);
    uint64_t late = (lapsed + lapse_look_ns - look) % lapse_look_ns;
    return lapsed + (late ? lapse_look_ns - late : 0);
}

uint64_t kv_scale_heard_ns(const struct kv_scale_options *o, uint64_t commit_ns, uint32_t turn)
{
    return commit_ns + o->latency_ns + (turn + 1) * event_ns(o);
}

double kv_scale_propagated_model_ns(const struct kv_scale_options *o, enum kv_scale_change change)
{
    double latency = (double)o->latency_ns, ttl = (double)o->ttl_ns;
    double told = latency + (double)o->members * KV_SCALE_EVENT_BYTES * 1e9 / (double)o->bandwidth;
    switch (change) {
    case KV_SCALE_JOIN:
        return 3 * latency + told;
    case KV_SCALE_LEAVE:
        return latency + told;
    case KV_SCALE_KILL:
    case KV_SCALE_CHANGES:
        break;
    }
    /* A death is half of a renewal's time after the last one, in the mean. */
    return ttl - ttl / (2 * RENEWALS) + latency + (double)lapse_look_ns / 2 + told;
}

void kv_scale_notice(const struct kv_scale_options *o, struct hw_rng *rng,
                     struct kv_scale_figure *mean_ns, struct kv_scale_figure *max_ns)
{
    double sum = 0, most = 0;
    for (uint32_t i = 0; i < KV_SCALE_TRIALS; i++) {
        uint64_t died = o->ttl_ns + hw_rng_below(rng, 4 * o->ttl_ns);
        uint64_t commit = kv_scale_commit_ns(o, KV_SCALE_KILL, died, hw_rng_u64(rng));
        double took = (double)(kv_scale_heard_ns(o, commit, o->members - 1) - died);
        sum += took;
        most = took > most ? took : most;
    }
    double mean = kv_scale_propagated_model_ns(o, KV_SCALE_KILL);
    *mean_ns = (struct kv_scale_figure){sum / KV_SCALE_TRIALS, mean};
    *max_ns = (struct kv_scale_figure){most, mean + (double)o->ttl_ns / (2 * RENEWALS) +
                                                 (double)lapse_look_ns / 2};
}
