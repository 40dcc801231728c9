/* What follows from the figures: Little's law, the cycle model, the modes of a histogram. */
#include "bench/kv/benchkv.h"

#include <math.h>

static double per_second(uint64_t count, uint64_t ns)
{
    return ns ? (double)count * 1e9 / (double)ns : 0;
}

/* Round trips and latencies of all ranks together. */
static void add_times(struct bkv_summary *s, const struct bkv_result *results, uint32_t ranks)
{
    struct hw_hist rtt = {0}, latency = {0}, remote_hist = {0};
    double rtt_sum = 0, sum = 0, local = 0, remote = 0;
    uint64_t local_count = 0;
    if (hw_hist_init_linear(&rtt, 1000, KV_RTT_LINES) || hw_hist_init(&latency) ||
        hw_hist_init(&remote_hist))
        goto fini;
    for (uint32_t i = 0; i < ranks; i++) {
        const struct bkv_result *r = &results[i];
        if (hw_hist_merge(&rtt, &r->rtt) || hw_hist_merge(&latency, &r->latency) ||
            hw_hist_merge(&remote_hist, &r->remote))
            goto fini;
        rtt_sum += r->rtt_mean * (double)r->rtt.count;
        sum += r->latency_mean * (double)r->latency.count;
        local += r->local_mean * (double)r->local.count;
        remote += r->remote_mean * (double)r->remote.count;
        local_count += r->local.count;
    }
    s->rtt_p50_us = (double)hw_hist_percentile(&rtt, 50) / 1e3;
    s->rtt_mean_us = rtt.count ? rtt_sum / (double)rtt.count / 1e3 : 0;
    s->client_p50_us = (double)hw_hist_percentile(&latency, 50) / 1e3;
    s->client_p99_us = (double)hw_hist_percentile(&latency, 99) / 1e3;
    s->client_p999_us = (double)hw_hist_percentile(&latency, 99.9) / 1e3;
    s->client_mean_us = latency.count ? sum / (double)latency.count / 1e3 : 0;
    s->local_mean_us = local_count ? local / (double)local_count / 1e3 : 0;
    s->remote_mean_us = remote_hist.count ? remote / (double)remote_hist.count / 1e3 : 0;
    s->remote_p50_us = (double)hw_hist_percentile(&remote_hist, 50) / 1e3;
fini:
    hw_hist_fini(&rtt);
    hw_hist_fini(&latency);
    hw_hist_fini(&remote_hist);
}

/* Medians: a turn in which the kernel ran something else must not count. */
static void add_stages(struct bkv_summary *s, const struct bkv_result *results, uint32_t ranks)
{
    static const uint64_t enough = 20; /* samples for a median */
    for (int k = 0; k < KV_STAGES; k++) {
        struct hw_hist all;
        int rc = hw_hist_init(&all);
        if (rc)
            return;
        for (uint32_t i = 0; i < ranks && rc == 0; i++)
            rc = hw_hist_merge(&all, &results[i].stage[k]);
        if (rc == 0 && all.count >= enough)
            s->stage_ns[k] = (double)hw_hist_percentile(&all, 50);
        hw_hist_fini(&all);
    }
}

struct bkv_summary bkv_summarise(const struct bkv_point *point, const struct bkv_result *results,
                                 uint32_t ranks)
{
    struct bkv_summary s = {.point = point, .ranks = ranks};
    uint32_t asking = point->client_ranks < ranks ? point->client_ranks : ranks;
    double loops = 0;
    for (uint32_t i = 0; i < ranks; i++) {
        const struct bkv_result *r = &results[i];
        double daemon_ns = (double)r->took_ns * point->daemons;
        s.seconds += (double)r->elapsed_ns / 1e9 / asking;
        s.total_rps += per_second(bkv_result_requests(r), r->elapsed_ns);
        s.remote_rps += per_second(r->rtt.count, r->took_ns) / asking;
        s.in_flight += r->took_ns ? (double)r->in_flight_ns / (double)r->took_ns / asking : 0;
        if (r->took_ns) {
            s.useful += (double)r->useful_ns * BKV_PROBE_EVERY / daemon_ns / ranks;
            s.empty += (double)r->empty_ns * BKV_PROBE_EVERY / daemon_ns / ranks;
        }
        s.loop_mean_ns += hw_hist_mean(&r->loop) * (double)r->loop.count;
        loops += (double)r->loop.count;
        for (int k = KV_FULL; k < KV_RESULT_COUNT; k++)
            s.errors += r->results[k];
    }
    s.rank_rps = s.total_rps / asking;
    /* Timed loops are a little longer than the others, which are counted as if they were not. */
    double awake = s.useful + s.empty;
    if (awake > 1) {
        s.useful /= awake;
        s.empty /= awake;
    }
    s.loop_mean_ns = loops > 0 ? s.loop_mean_ns / loops : 0;
    s.grounded = fmax((double)point->clients * point->depth - s.in_flight, 0);
    add_times(&s, results, ranks);
    add_stages(&s, results, ranks);
    return s;
}

struct bkv_gap bkv_find_gap(const struct bkv_summary *base, const struct bkv_summary *loaded)
{
    const struct bkv_point *p = loaded->point;
    struct bkv_gap g = {.local_us = loaded->local_mean_us,
                        .remote_us = loaded->remote_mean_us,
                        .base_us = base->rtt_mean_us,
                        .queue_us = loaded->rtt_mean_us - base->rtt_mean_us,
                        .shm_us = loaded->remote_mean_us - loaded->rtt_mean_us};
    if (loaded->rank_rps <= 0 || loaded->remote_rps <= 0 || p->rate > 0)
        return g;
    g.remote_share = loaded->remote_rps / loaded->rank_rps;
    g.average_us = (1 - g.remote_share) * g.local_us + g.remote_share * g.remote_us;
    g.predicted_rps = g.average_us > 0 ? p->clients * p->depth / g.average_us * 1e6 : 0;
    g.holds =
        fabs(g.predicted_rps / loaded->rank_rps - 1) <= 0.1 && g.queue_us >= 0 && g.shm_us >= 0;
    return g;
}

bool bkv_fit_cycle(const struct bkv_summary *points, uint32_t count, struct bkv_fit *out)
{
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0, syy = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (points[i].remote_rps <= 0)
            continue;
        double x = points[i].in_flight, y = x / points[i].remote_rps * 1e6;
        n++;
        sx += x;
        sy += y;
        sxx += x * x;
        sxy += x * y;
        syy += y * y;
    }
    double spread = n * sxx - sx * sx, vertical = n * syy - sy * sy;
    if (n < 2 || spread <= 0)
        return false;
    double slope = (n * sxy - sx * sy) / spread;
    double r = vertical > 0 ? (n * sxy - sx * sy) / sqrt(spread * vertical) : 1;
    *out =
        (struct bkv_fit){.fixed_us = (sy - slope * sx) / n, .per_request_us = slope, .r2 = r * r};
    return true;
}

/* ---- modes ---- */

static double smooth(const uint64_t *us, uint32_t count, uint32_t at)
{
    double sum = 2 * (double)us[at], weight = 2;
    if (at > 0) {
        sum += (double)us[at - 1];
        weight++;
    }
    if (at + 1 < count) {
        sum += (double)us[at + 1];
        weight++;
    }
    return sum / weight;
}

static uint32_t lowest_between(const uint64_t *us, uint32_t count, uint32_t from, uint32_t to)
{
    uint32_t best = from;
    for (uint32_t i = from; i <= to; i++)
        if (smooth(us, count, i) < smooth(us, count, best))
            best = i;
    return best;
}

static bool is_peak(const uint64_t *us, uint32_t count, uint32_t at, double least)
{
    double here = smooth(us, count, at);
    double left = at > 0 ? smooth(us, count, at - 1) : 0;
    double right = at + 1 < count ? smooth(us, count, at + 1) : 0;
    return here >= least && here > left && here >= right;
}

/* A bump of fewer than this share is noise, and goes to its neighbour. */
static const double least_share = 0.03;

static uint32_t drop_small(struct bkv_mode *modes, uint32_t n)
{
    uint32_t kept = 0;
    double carried = 0;
    for (uint32_t k = 0; k < n; k++) {
        if (modes[k].share < least_share && n > 1) {
            carried += modes[k].share;
            continue;
        }
        modes[kept] = modes[k];
        modes[kept++].share += carried;
        carried = 0;
    }
    if (kept > 0)
        modes[kept - 1].share += carried;
    return kept;
}

static void share_out(const uint64_t *us, uint32_t count, struct bkv_mode *modes, uint32_t n)
{
    uint64_t all = 0;
    uint32_t from = 0;
    for (uint32_t i = 0; i < count; i++)
        all += us[i];
    for (uint32_t k = 0; k < n; k++) {
        uint32_t to = k + 1 < n ? lowest_between(us, count, modes[k].us, modes[k + 1].us) : count;
        uint64_t part = 0;
        for (uint32_t i = from; i < to; i++)
            part += us[i];
        modes[k].share = all ? (double)part / (double)all : 0;
        from = to;
    }
}

uint32_t bkv_find_modes(const uint64_t *us, uint32_t count, struct bkv_mode out[BKV_MODES_MAX])
{
    static const double worth_a_name = 0.02; /* of the highest */
    static const double valley = 0.75;       /* of the lower of its two peaks */
    double highest = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        highest = fmax(highest, smooth(us, count, i));
    for (uint32_t i = 0; i < count && highest > 0; i++) {
        if (!is_peak(us, count, i, worth_a_name * highest))
            continue;
        double here = smooth(us, count, i);
        bool apart = n == 0;
        if (n > 0) {
            double last = smooth(us, count, out[n - 1].us);
            double low = smooth(us, count, lowest_between(us, count, out[n - 1].us, i));
            apart = low < valley * fmin(last, here);
            if (!apart && here > last)
                out[n - 1] = (struct bkv_mode){.us = i, .count = us[i]};
        }
        if (apart && n < BKV_MODES_MAX)
            out[n++] = (struct bkv_mode){.us = i, .count = us[i]};
    }
    share_out(us, count, out, n);
    return drop_small(out, n);
}
