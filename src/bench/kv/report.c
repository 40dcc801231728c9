/* The tables of a run, once as data; text, HTML and JSON print the same ones. */
#include "bench/kv/benchkv.h"

#include "base/report/bench.h"
#include "base/report/html.h"
#include "base/report/json.h"
#include "base/report/table.h"
#include "command/kvranks.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

enum {
    NOTE_CHARS = 1600,
    HISTOGRAM_ROWS = 40 /* of the 1 us table: what a person reads */
};

struct section {
    const char *title;
    /* Fills the table's columns and rows, and a note in plain words ("" for none). */
    void (*build)(const struct bkv_set *set, struct hw_table *table, char note[NOTE_CHARS]);
};

static void add_note(char note[NOTE_CHARS], const char *fmt, ...) PRINTF_LIKE(2, 3);
static void add_note(char note[NOTE_CHARS], const char *fmt, ...)
{
    size_t at = strlen(note);
    va_list args;
    va_start(args, fmt);
    vsnprintf(note + at, NOTE_CHARS - at, fmt, args);
    va_end(args);
}

/* The last point of the sweep: the most clients. */
static uint32_t top(const struct bkv_set *s)
{
    return s->sweep - 1;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* A derived figure, or "-" where the derivation does not hold. */
static void PRINTF_LIKE(3, 0) cell_if(struct hw_table *t, bool holds, const char *fmt, double value)
{
    if (holds)
        hw_table_cell(t, fmt, value);
    else
        hw_table_cell(t, "-");
}

/* ---- the tables ---- */

static void build_conditions(const struct bkv_set *s, struct hw_table *t, char note[NOTE_CHARS])
{
    const struct bkv_point *p = &s->points[top(s)];
    (void)note;
    hw_table_head(t, "Parameter\t<Value");
    hw_table_cells(t, "Machine\t%s", s->host);
    hw_table_cells(t, "Ranks\t%u", p->ranks);
    hw_table_cells(t, "Daemon threads\t%u per rank", p->daemons);
    hw_table_cells(t, "Client threads\t%u-%u per rank", s->points[0].clients, p->clients);
    hw_table_cells(t, "Queue depth\t%u", p->depth);
    hw_table_cells(t, "Key range\t%u per rank", p->key_range);
    hw_table_cells(t, "Read ratio\t%g", p->read_ratio);
    hw_table_cells(t, "Value size\t%u", p->value_size);
    hw_table_cells(t, "Distribution\t%s", p->zipfian ? "zipfian" : "uniform");
    hw_table_cells(t, "Transport\tcopyrpc %s", s->transport);
    hw_table_cells(t, "Flush\t%s", cmd_flush_names[p->flush]);
    hw_table_cell(t, "Loop");
    if (p->rate)
        hw_table_cell(t, "open, %llu/s per rank", (unsigned long long)p->rate);
    else
        hw_table_cell(t, "closed");
    hw_table_cells(t, "Duration\t%g s", (double)p->duration_ns / 1e9);
}

static void build_scaling(const struct bkv_set *s, struct hw_table *t, char note[NOTE_CHARS])
{
    hw_table_head(t, "Clients/rank\tcopyrpc_rtt p50 (us)\tcopyrpc_rtt mean (us)\tTotal "
                     "RPS\tRemote/rank\tclient p50 (us)\tclient p99 (us)\tp99.9 (us)");
    for (uint32_t i = 0; i < s->sweep; i++) {
        const struct bkv_summary *m = &s->summaries[i];
        hw_table_cells(t, "%u\t%.2f\t%.2f\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f", m->point->clients,
                       m->rtt_p50_us, m->rtt_mean_us, m->total_rps, m->remote_rps, m->client_p50_us,
                       m->client_p99_us, m->client_p999_us);
    }
    const struct bkv_summary *first = &s->summaries[0], *last = &s->summaries[top(s)];
    if (s->pingpong_us > 0)
        add_note(note,
                 "Reference: copyrpc_pingpong of the same run, depth 1, one endpoint: %.2f us; the "
                 "bare transport: %.2f us. ",
                 s->pingpong_us, s->raw_us);
    if (s->chain.rtt_us > 0)
        add_note(note,
                 "A bare chain of client, daemon and daemon, waiting as ours do: %.2f us between "
                 "the daemons, %.2f us for the client. ",
                 s->chain.rtt_us, s->chain.client_us);
    if (last->rtt_p50_us > 0)
        add_note(note,
                 "From %u to %u clients the round trip grows %.2f times, the remote rate %.2f "
                 "times.",
                 first->point->clients, last->point->clients,
                 ratio(last->rtt_p50_us, first->rtt_p50_us),
                 ratio(last->remote_rps, first->remote_rps));
    uint64_t errors = 0;
    for (uint32_t i = 0; i < s->count; i++)
        errors += s->summaries[i].errors;
    if (errors)
        add_note(note, " %llu requests ended neither in OK nor in MISS.",
                 (unsigned long long)errors);
}

static void build_little(const struct bkv_set *s, struct hw_table *t, char note[NOTE_CHARS])
{
    hw_table_head(t, "Clients\tGQ size (mean)\tIn flight (mean)\tlambda_remote (/s)\tRTT predicted "
                     "(us)\tRTT measured mean (us)\tRTT measured p50 (us)\tpredicted/measured");
    double worst = 1;
    for (uint32_t i = 0; i < s->sweep; i++) {
        const struct bkv_summary *m = &s->summaries[i];
        double predicted = m->remote_rps > 0 ? m->in_flight / m->remote_rps * 1e6 : 0;
        double held = ratio(predicted, m->rtt_mean_us);
        hw_table_cells(t, "%u\t%.2f\t%.2f\t%.0f\t%.2f\t%.2f\t%.2f\t%.3f", m->point->clients,
                       m->grounded, m->in_flight, m->remote_rps, predicted, m->rtt_mean_us,
                       m->rtt_p50_us, held);
        if (held > 0 && fabs(held - 1) > fabs(worst - 1))
            worst = held;
    }
    add_note(note,
             "GQ size: request slots of a rank's clients that are not at another rank. "
             "L = lambda x W, with L integrated over time by the daemon. %s: the worst ratio "
             "is %.3f. It speaks of means; where the mean is far from p50 the distribution has a "
             "tail, and the law says nothing about p50.",
             fabs(worst - 1) <= 0.05 ? "It holds" : "It does not hold within 5% on this data",
             worst);
}

/* Where the 1 us lines begin: a few early birds would push the bulk off the table. */
static uint32_t first_line(const struct bkv_result *r)
{
    uint64_t us = hw_hist_percentile(&r->rtt, 0.5) / 1000;
    return (uint32_t)(us < KV_RTT_LINES ? us : KV_RTT_LINES);
}

static void build_histogram(const struct bkv_set *s, struct hw_table *t, char note[NOTE_CHARS])
{
    hw_table_head(t, "us\tcount (rank 0)\t<");
    const struct bkv_result *r = &s->results[top(s)][0];
    struct bkv_mode modes[BKV_MODES_MAX];
    uint32_t n = bkv_find_modes(r->rtt_us, KV_RTT_LINES, modes);
    uint32_t first = first_line(r), dominant = 0, rows = 0;
    uint64_t shown = 0;
    for (uint32_t i = 0; i < first; i++)
        shown += r->rtt_us[i];
    if (shown) {
        hw_table_cells(t, "0-%u\t%llu\t", first - 1, (unsigned long long)shown);
    }
    for (uint32_t k = 0; k < n; k++)
        if (modes[k].count > modes[dominant].count)
            dominant = k;
    for (uint32_t i = first; i < KV_RTT_LINES && rows < HISTOGRAM_ROWS; i++, rows++) {
        hw_table_cells(t, "%u\t%llu", i, (unsigned long long)r->rtt_us[i]);
        const char *mark = "";
        for (uint32_t k = 0; k < n; k++)
            if (modes[k].us == i)
                mark = k == dominant ? "<- peak (dominant)" : "<- peak";
        hw_table_cell(t, "%s", mark);
        shown += r->rtt_us[i];
    }
    if (r->rtt.count > shown) {
        hw_table_cells(t, "%u+\t%llu\ttail", first + rows,
                       (unsigned long long)(r->rtt.count - shown));
    }
    add_note(note, "%s: ",
             n == 0   ? "No remote requests"
             : n == 1 ? "One population"
             : n == 2 ? "Two populations"
                      : "Several populations");
    for (uint32_t k = 0; k < n; k++)
        add_note(note, "%s%.0f%% around %u us", k ? ", " : "", modes[k].share * 100, modes[k].us);
    add_note(note, ".");
}

static void build_stages(const struct bkv_set *s, struct hw_table *t, char note[NOTE_CHARS])
{
    static const struct {
        const char *name, *what;
    } stages[KV_STAGES] = {
        [KV_STAGE_ASK] = {"Source scan", "request from shared memory, decode, call()"},
        [KV_STAGE_DECODE] = {"Remote batch decode", "read the batch, message headers"},
        [KV_STAGE_SERVE] = {"Remote incoming", "recv(), look up, reply()"},
        [KV_STAGE_ANSWER] = {"Source callback", "read the batch, answer to shared memory"},
    };
    hw_table_head(t, "Stage\t1st point (ns)\tlast point (ns)\t<Description");
    const struct bkv_summary *at[] = {&s->summaries[0], &s->summaries[top(s)]};
    double sum[2] = {0};
    bool all[2] = {true, true};
    for (int k = 0; k < KV_STAGES; k++) {
        hw_table_cell(t, "%s", stages[k].name);
        for (int i = 0; i < 2; i++) {
            sum[i] += at[i]->stage_ns[k];
            all[i] = all[i] && at[i]->stage_ns[k] > 0;
            cell_if(t, at[i]->stage_ns[k] > 0, "%.0f", at[i]->stage_ns[k]);
        }
        hw_table_cell(t, "%s", stages[k].what);
    }
    hw_table_cell(t, "Total");
    for (int i = 0; i < 2; i++)
        cell_if(t, all[i], "%.0f", sum[i]);
    hw_table_cell(t, "both daemons, without the writes of the flush");
    add_note(
        note,
        "Cost per request: a phase's time by the requests in it, medians of the timed loops in "
        "which the phase did only this; each includes one look at the clock. \"-\": too few "
        "such loops. ");
    if (all[1] && at[1]->remote_rps > 0)
        add_note(note, "One remote request of a rank ends every %.0f ns at %u clients.",
                 1e9 / at[1]->remote_rps, at[1]->point->clients);
}

static double cycle_us(const struct bkv_summary *m)
{
    return m->remote_rps > 0 ? m->in_flight / m->remote_rps * 1e6 : 0;
}

/* What a further request costs between two points; 0: they are too near each other to tell. */
static double slope_ns(const struct bkv_summary *a, const struct bkv_summary *b)
{
    double more = b->in_flight - a->in_flight;
    return more > 0.1 && a->remote_rps > 0 && b->remote_rps > 0
               ? (cycle_us(b) - cycle_us(a)) / more * 1e3
               : 0;
}

static void build_model(const struct bkv_set *s, struct hw_table *t, char note[NOTE_CHARS])
{
    struct bkv_fit fit;
    hw_table_head(
        t, "Clients\tIn flight (N)\tT_cycle predicted (us)\tT_cycle measured (us)\tThroughput "
           "predicted\tThroughput measured\tmeasured/predicted\tT_per_req of the range (ns)");
    if (!bkv_fit_cycle(s->summaries, s->sweep, &fit)) {
        add_note(note, "No fit: it takes two points with remote requests.");
        return;
    }
    /* A line that falls, or begins below nothing, predicts nothing. */
    bool line = fit.fixed_us >= 0 && fit.per_request_us > 0 && s->sweep > 2;
    double worst = 1;
    for (uint32_t i = 0; i < s->sweep; i++) {
        const struct bkv_summary *m = &s->summaries[i];
        double cycle = fit.fixed_us + fit.per_request_us * m->in_flight;
        double predicted = cycle > 0 ? m->in_flight / cycle * 1e6 : 0;
        double held = ratio(m->remote_rps, predicted);
        hw_table_cells(t, "%u\t%.2f", m->point->clients, m->in_flight);
        cell_if(t, line, "%.2f", cycle);
        hw_table_cell(t, "%.2f", cycle_us(m));
        cell_if(t, line, "%.0f", predicted);
        hw_table_cell(t, "%.0f", m->remote_rps);
        cell_if(t, line, "%.2f", held);
        double slope = i ? slope_ns(m - 1, m) : 0;
        cell_if(t, slope > 0, "%.0f", slope);
        if (held > 0 && fabs(log(held)) > fabs(log(worst)))
            worst = held;
    }
    if (s->sweep < 3) {
        add_note(note,
                 "No model: two points always lie on a line, so it takes a third to test it.");
        return;
    }
    if (!line) {
        add_note(note,
                 "T_cycle = T_fixed + T_per_req x N does not hold on this data: the line that "
                 "fits best has a negative part, so nothing follows from it.");
        return;
    }
    if (fit.r2 < 0.9 || fabs(log(worst)) > log(1.25)) {
        add_note(note,
                 "T_cycle = T_fixed + T_per_req x N does not hold on this data: R2 = %.3f, and the "
                 "worst point is off by a factor of %.2f. A line through points at %u and %u "
                 "clients cannot show both the latency of one request and the queue of many; the "
                 "last column has T_per_req by range of N.",
                 fit.r2, worst, s->points[0].clients, s->points[top(s)].clients);
        return;
    }
    add_note(note,
             "T_cycle = T_fixed + T_per_req x N: T_fixed = %.2f us, T_per_req = %.0f ns, "
             "R2 = %.3f; the ceiling would be %.0f requests/s a rank. The model holds: the worst "
             "point is off by a factor of %.2f.",
             fit.fixed_us, fit.per_request_us * 1e3, fit.r2, 1e6 / fit.per_request_us, worst);
}

static void build_events(const struct bkv_set *s, struct hw_table *t, char note[NOTE_CHARS])
{
    static const struct {
        const char *name;
        size_t at;
    } rows[] = {
        {"shm_req/loop", offsetof(struct kv_stats, requests) / 8},
        {"shm_local/loop", offsetof(struct kv_stats, local) / 8},
        {"shm_remote/loop", offsetof(struct kv_stats, remote) / 8},
        {"cqe_resp/loop", offsetof(struct kv_stats, responses) / 8},
        {"incoming_req/loop", offsetof(struct kv_stats, incoming) / 8},
        {"flush/loop", offsetof(struct kv_stats, flushes) / 8},
        {"ringfull/loop", offsetof(struct kv_stats, ring_full) / 8},
        {"wakeups/loop", offsetof(struct kv_stats, wakeups) / 8},
        {"sleeps/loop", offsetof(struct kv_stats, sleeps) / 8},
    };
    const struct bkv_summary *m = &s->summaries[top(s)];
    const struct bkv_result *r = s->results[top(s)];
    hw_table_column(t, "Counter", HW_LEFT);
    for (uint32_t k = 0; k < m->ranks; k++) {
        char name[16];
        snprintf(name, sizeof(name), "rank %u", k);
        hw_table_column(t, name, HW_RIGHT);
    }
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        hw_table_cell(t, "%s", rows[i].name);
        for (uint32_t k = 0; k < m->ranks; k++)
            hw_table_cell(t, "%.6f",
                          ratio((double)r[k].stats[rows[i].at], (double)BKV_STAT(&r[k], loops)));
    }
    hw_table_cell(t, "total loops");
    for (uint32_t k = 0; k < m->ranks; k++)
        hw_table_cell(t, "%llu", (unsigned long long)BKV_STAT(&r[k], loops));
    double flushes = (double)BKV_STAT(&r[0], flushes);
    double messages = (double)(BKV_STAT(&r[0], remote) + BKV_STAT(&r[0], incoming));
    if (flushes > 0)
        add_note(note, "A flush of rank 0 carries %.2f messages on average.", messages / flushes);
}

static void build_phases(const struct bkv_set *s, struct hw_table *t, char note[NOTE_CHARS])
{
    const struct bkv_result *r = &s->results[top(s)][0];
    hw_table_head(t, "Phase (ns)\tp50\tp90\tp99\tmean");
    for (int i = 0; i < KV_PHASES; i++) {
        hw_table_cells(t, "%s\t%llu\t%llu\t%llu\t%.0f", kv_phase_names[i],
                       (unsigned long long)hw_hist_percentile(&r->phase[i], 50),
                       (unsigned long long)hw_hist_percentile(&r->phase[i], 90),
                       (unsigned long long)hw_hist_percentile(&r->phase[i], 99),
                       hw_hist_mean(&r->phase[i]));
    }
    add_note(note, "Rank 0, one loop in %d timed; each time includes one look at the clock.",
             BKV_PROBE_EVERY);
}

static void build_loop(const struct bkv_set *s, struct hw_table *t, char note[NOTE_CHARS])
{
    static const uint64_t edges[] = {100, 300, 1000, 3000, 10000, 100000, 1000000};
    const struct hw_hist *h = &s->results[top(s)][0].loop;
    hw_table_head(t, "Loop time\tshare");
    uint64_t before = 0;
    for (size_t i = 0; i < ARRAY_LEN(edges); i++) {
        uint64_t below = hw_hist_count_below(h, edges[i]);
        hw_table_cells(t, "below %llu ns\t%.2f%%", (unsigned long long)edges[i],
                       100 * ratio((double)(below - before), (double)h->count));
        before = below;
    }
    hw_table_cells(t, "longer\t%.2f%%", 100 * ratio((double)(h->count - before), (double)h->count));
    add_note(note, "p50=%lluns p90=%lluns p99=%lluns mean=%.0fns",
             (unsigned long long)hw_hist_percentile(h, 50),
             (unsigned long long)hw_hist_percentile(h, 90),
             (unsigned long long)hw_hist_percentile(h, 99), hw_hist_mean(h));
}

static void build_use(const struct bkv_set *s, struct hw_table *t, char note[NOTE_CHARS])
{
    hw_table_head(t, "Clients\tuseful\tempty polling\tasleep");
    for (uint32_t i = 0; i < s->sweep; i++) {
        const struct bkv_summary *m = &s->summaries[i];
        double asleep = 1 - m->useful - m->empty;
        hw_table_cells(t, "%u\t%.1f%%\t%.1f%%\t%.1f%%", m->point->clients, 100 * m->useful,
                       100 * m->empty, 100 * (asleep > 0 ? asleep : 0));
    }
    const struct bkv_summary *m = &s->summaries[top(s)];
    add_note(note,
             "Shares of the daemons' time, from the loops that were timed; time in which the "
             "kernel ran something else on the daemon's core counts where it fell. The daemon %s "
             "the bottleneck at %u clients.",
             m->useful > 0.8 ? "is" : "is not", m->point->clients);
}

static void part_row(struct hw_table *t, const char *name, bool holds, double us, const char *from)
{
    hw_table_cell(t, "%s", name);
    cell_if(t, holds, "%.2f", us);
    hw_table_cell(t, "%s", from);
}

static void build_derived(const struct bkv_set *s, struct hw_table *t, char note[NOTE_CHARS])
{
    const struct bkv_summary *m = &s->summaries[top(s)];
    const struct bkv_point *p = m->point;
    hw_table_head(t, "Quantity\tus\t<from");
    double average = m->rank_rps > 0 ? p->clients * p->depth / m->rank_rps * 1e6 : 0;
    double remote_share = m->rank_rps > 0 ? m->remote_rps / m->rank_rps : 0;
    double overhead = m->remote_mean_us - m->rtt_mean_us;
    double local =
        remote_share < 1 ? (average - remote_share * m->remote_mean_us) / (1 - remote_share) : 0;
    bool holds = !p->rate && m->local_mean_us > 0 &&
                 fabs(local - m->local_mean_us) <= 0.25 * m->local_mean_us;
    part_row(t, "T_avg", true, average, "in flight / rate of a rank");
    part_row(t, "T_remote_copyrpc", true, m->rtt_mean_us, "mean, measured by the daemon");
    part_row(t, "SHM overhead", overhead >= 0, overhead, "client's remote mean less the daemon's");
    part_row(t, "T_remote_client", true, m->remote_mean_us, "mean, measured by clients");
    part_row(t, "T_local derived", holds, local, "(T_avg - share x T_remote) / (1 - share)");
    part_row(t, "T_local measured", true, m->local_mean_us, "mean, measured by clients");
    if (p->rate)
        add_note(note,
                 "Open loop: clients are not always waiting, so T_avg is no response time and "
                 "the derivation does not apply.");
    else if (holds)
        add_note(note, "The derivation holds within 25%%: %.0f%% of the requests are remote.",
                 100 * remote_share);
    else
        add_note(note,
                 "The derivation does not hold on this data: it subtracts two large numbers, "
                 "and what a client does between an answer and its next request is in T_avg, too.");
}

static void build_ranks(const struct bkv_set *s, struct hw_table *t, char note[NOTE_CHARS])
{
    hw_table_head(t, "Metric\t1 rank\tall ranks");
    if (s->single < 0) {
        add_note(note, "Not measured (--no-single).");
        return;
    }
    const struct bkv_summary *one = &s->summaries[s->single], *all = &s->summaries[top(s)];
    const struct bkv_result *r1 = &s->results[s->single][0], *r2 = &s->results[top(s)][0];
    hw_table_cells(t, "Total RPS\t%.0f\t%.0f", one->total_rps, all->total_rps);
    hw_table_cells(t, "T_avg per client (us)\t%.2f\t%.2f", one->client_mean_us,
                   all->client_mean_us);
    hw_table_cells(t, "Daemon loop time (ns)\t%.0f\t%.0f", one->loop_mean_ns, all->loop_mean_ns);
    hw_table_cells(t, "SHM req/loop\t%.2f\t%.2f",
                   ratio((double)BKV_STAT(r1, requests), (double)BKV_STAT(r1, loops)),
                   ratio((double)BKV_STAT(r2, requests), (double)BKV_STAT(r2, loops)));
    hw_table_cells(t, "GQ size (mean)\t%.2f\t%.2f", one->grounded, all->grounded);
    hw_table_cells(t, "In flight at other ranks\t%.2f\t%.2f", one->in_flight, all->in_flight);
    hw_table_cells(t, "Daemon useful\t%.0f%%\t%.0f%%", 100 * one->useful, 100 * all->useful);
    double remote_part = ratio(all->remote_rps, all->rank_rps) * all->remote_mean_us;
    add_note(note,
             "%u clients a rank. One rank does %.2f times the requests of all ranks together. "
             "Of the %.2f us of a request on several ranks %.2f us are the remote share.",
             all->point->clients, ratio(one->total_rps, all->total_rps), all->client_mean_us,
             remote_part);
}

static void build_gap(const struct bkv_set *s, struct hw_table *t, char note[NOTE_CHARS])
{
    hw_table_head(t, "Part\tus\t<from");
    const struct bkv_summary *m = &s->summaries[top(s)];
    struct bkv_gap g = bkv_find_gap(&s->summaries[0], m);
    bool several = s->sweep > 1 && g.holds;
    part_row(t, "local share x T_local", g.holds, (1 - g.remote_share) * g.local_us,
             "measured by clients");
    part_row(t, "remote share x T_remote", g.holds, g.remote_share * g.remote_us,
             "measured by clients");
    part_row(t, "T_avg", g.holds, g.average_us, "their sum");
    part_row(t, "T_remote: base copyrpc RTT", several, g.base_us, "mean at the fewest clients");
    part_row(t, "T_remote: batch processing", several, g.queue_us, "what more clients add to it");
    part_row(t, "T_remote: shared memory", g.holds, g.shm_us,
             "the clients' mean less the daemon's");
    if (!g.holds) {
        add_note(note, "No breakdown: %s.",
                 m->point->rate       ? "clients of an open loop are not always waiting"
                 : m->remote_rps <= 0 ? "there are no remote requests"
                                      : "the parts do not give the rate that was measured");
        return;
    }
    add_note(note,
             "RPS a rank = request slots / T_avg = %.0f, measured %.0f (%.2f). %.0f%% of the "
             "requests are remote. ",
             g.predicted_rps, m->rank_rps, g.predicted_rps / m->rank_rps, 100 * g.remote_share);
    if (several)
        add_note(note, "Batch processing is %.2f us for each of %.2f requests in flight.",
                 ratio(g.queue_us, m->in_flight), m->in_flight);
}

static void build_optimisations(const struct bkv_set *s, struct hw_table *t, char note[NOTE_CHARS])
{
    hw_table_head(t, "Setting\tTotal RPS\tx base\tcopyrpc_rtt p50 (us)\tclient p50 (us)\tclient "
                     "p99 (us)\tp99.9 (us)");
    if (s->others >= s->count) {
        add_note(note, "Not measured: --optimisations does.");
        return;
    }
    for (uint32_t i = s->others; i < s->count; i++) {
        const struct bkv_summary *m = &s->summaries[i];
        hw_table_cells(t, "%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f", m->point->name, m->total_rps,
                       ratio(m->total_rps, s->summaries[s->others].total_rps), m->rtt_p50_us,
                       m->client_p50_us, m->client_p99_us, m->client_p999_us);
    }
    add_note(note,
             "Base: batch flush, depth 1, one daemon, threads anywhere; %u "
             "clients a rank.",
             s->points[s->others].clients);
}

static const struct section sections[] = {
    {"1. Measurement conditions", build_conditions},
    {"2. copyrpc RTT scaling", build_scaling},
    {"3. Little's law", build_little},
    {"4. RTT distribution at most clients (1 us lines)", build_histogram},
    {"5.2 Cost of a remote request by stage", build_stages},
    {"5.4 Per-cycle model", build_model},
    {"6.1 Events per loop", build_events},
    {"6.2 Phase times", build_phases},
    {"6.3 Loop time distribution", build_loop},
    {"6.4 Daemon utilisation", build_use},
    {"7. T_local and T_remote", build_derived},
    {"8. One rank against all", build_ranks},
    {"9.2 Breakdown of the gap", build_gap},
    {"9.3 Optimisations", build_optimisations},
};

/* ---- text ---- */

int bkv_report_text(const struct bkv_set *s, FILE *out)
{
    for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
        char note[NOTE_CHARS] = "";
        struct hw_table *t = hw_table_create();
        if (!t)
            return -ENOMEM;
        sections[i].build(s, t, note);
        fprintf(out, "%s%s\n\n", i ? "\n" : "", sections[i].title);
        int rc = hw_table_rows(t) ? hw_table_print(t, out) : 0;
        hw_table_destroy(t);
        if (rc)
            return rc;
        if (note[0])
            fprintf(out, "%s\n", note);
    }
    return ferror(out) ? -EIO : 0;
}

/* ---- JSON ---- */

static void json_row(struct hw_json *j, const char *name, double value, const char *unit,
                     double baseline)
{
    hw_json_object_begin(j);
    hw_json_put_string(j, "name", name);
    hw_json_put_double(j, "value", value);
    hw_json_put_string(j, "unit", unit);
    hw_json_put_double(j, "baseline", baseline);
    hw_json_put_double(j, "ratio", value / baseline);
    hw_json_object_end(j);
}

static void json_rows(struct hw_json *j, const struct bkv_set *s)
{
    const double raw = s->raw_us > 0 ? s->raw_us : NAN;
    const bool chain = s->chain.rtt_us > 0;
    if (s->raw_us > 0)
        json_row(j, "pingpong.p50", s->pingpong_us, "us", s->raw_us);
    if (chain)
        json_row(j, "chain.rtt_p50", s->chain.rtt_us, "us", raw);
    for (uint32_t i = 0; i < s->count; i++) {
        const struct bkv_summary *m = &s->summaries[i];
        const struct {
            const char *name, *unit;
            double value, baseline;
        } rows[] = {
            {"rps", "requests/s", m->total_rps, s->summaries[0].total_rps},
            {"remote_rps", "requests/s/rank", m->remote_rps, NAN},
            {"rtt_p50", "us", m->rtt_p50_us, chain ? s->chain.rtt_us : raw},
            {"client_p50", "us", m->client_p50_us, raw},
            {"client_p99", "us", m->client_p99_us, NAN},
            {"client_p999", "us", m->client_p999_us, NAN},
            {"local_mean", "us", m->local_mean_us, NAN},
            {"remote_mean", "us", m->remote_mean_us, NAN},
            {"remote_p50", "us", m->remote_p50_us, chain ? s->chain.client_us : NAN},
            {"errors", "requests", (double)m->errors, NAN},
        };
        for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
            char name[BKV_NAME_CHARS + 32];
            snprintf(name, sizeof(name), "%s.%s", m->point->name, rows[k].name);
            json_row(j, name, rows[k].value, rows[k].unit, rows[k].baseline);
        }
    }
}

static int json_table(struct hw_json *j, const struct bkv_set *s, const struct section *section)
{
    char note[NOTE_CHARS] = "";
    struct hw_table *t = hw_table_create();
    if (!t)
        return -ENOMEM;
    section->build(s, t, note);
    hw_json_object_begin(j);
    hw_json_put_string(j, "title", section->title);
    hw_json_array_at(j, "columns");
    for (size_t c = 0; c < hw_table_columns(t); c++)
        hw_json_string(j, hw_table_heading(t, c));
    hw_json_array_end(j);
    hw_json_array_at(j, "rows");
    for (size_t r = 0; r < hw_table_rows(t); r++) {
        hw_json_array_begin(j);
        for (size_t c = 0; c < hw_table_columns(t); c++)
            hw_json_string(j, hw_table_text(t, r, c));
        hw_json_array_end(j);
    }
    hw_json_array_end(j);
    hw_json_put_string(j, "note", note);
    hw_json_object_end(j);
    int rc = hw_table_error(t);
    hw_table_destroy(t);
    return rc;
}

int bkv_report_json(const struct bkv_set *s, FILE *out)
{
    struct hw_json j;
    char date[HW_UTC_CHARS];
    hw_utc(date);
    hw_json_begin(&j, out);
    hw_json_object_begin(&j);
    hw_json_put_string(&j, "benchmark", "kv");
    hw_json_put_string(&j, "commit", hw_bench_commit());
    hw_json_put_string(&j, "host", s->host);
    hw_json_put_string(&j, "date", date);
    hw_json_array_at(&j, "rows");
    json_rows(&j, s);
    hw_json_array_end(&j);
    hw_json_array_at(&j, "tables");
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(sections) && rc == 0; i++)
        rc = json_table(&j, s, &sections[i]);
    hw_json_array_end(&j);
    hw_json_object_end(&j);
    int written = hw_json_finish(&j);
    return rc ? rc : written;
}

/* ---- HTML ---- */

static int chart_rtt(struct hw_html *html, const struct bkv_set *s)
{
    double x[BKV_POINTS_MAX], p50[BKV_POINTS_MAX], mean[BKV_POINTS_MAX], client[BKV_POINTS_MAX];
    for (uint32_t i = 0; i < s->sweep; i++) {
        x[i] = s->points[i].clients;
        p50[i] = s->summaries[i].rtt_p50_us;
        mean[i] = s->summaries[i].rtt_mean_us;
        client[i] = s->summaries[i].client_p50_us;
    }
    const struct hw_series series[] = {{"copyrpc p50", x, p50, s->sweep},
                                       {"copyrpc mean", x, mean, s->sweep},
                                       {"client p50", x, client, s->sweep}};
    return hw_html_lines(html, &(struct hw_line_chart){.title = "Round trip against clients",
                                                       .x_label = "clients a rank",
                                                       .y_label = "us",
                                                       .log_x = true,
                                                       .points = true,
                                                       .series = series,
                                                       .count = ARRAY_LEN(series)});
}

static int chart_rate(struct hw_html *html, const struct bkv_set *s)
{
    double x[BKV_POINTS_MAX], rate[BKV_POINTS_MAX], model[BKV_POINTS_MAX];
    struct bkv_fit fit = {0};
    bool fitted = bkv_fit_cycle(s->summaries, s->sweep, &fit);
    for (uint32_t i = 0; i < s->sweep; i++) {
        const struct bkv_summary *m = &s->summaries[i];
        x[i] = s->points[i].clients;
        rate[i] = m->remote_rps;
        model[i] = m->in_flight / (fit.fixed_us + fit.per_request_us * m->in_flight) * 1e6;
    }
    const struct hw_series series[] = {{"measured", x, rate, s->sweep},
                                       {"model", x, model, s->sweep}};
    return hw_html_lines(html, &(struct hw_line_chart){.title = "Remote requests a rank",
                                                       .x_label = "clients a rank",
                                                       .y_label = "requests/s",
                                                       .log_x = true,
                                                       .points = true,
                                                       .series = series,
                                                       .count = fitted ? 2 : 1});
}

static int chart_histogram(struct hw_html *html, const struct bkv_set *s)
{
    const uint64_t *us = s->results[top(s)][0].rtt_us;
    struct hw_bar bars[HISTOGRAM_ROWS];
    char labels[HISTOGRAM_ROWS][16];
    uint32_t first = first_line(&s->results[top(s)][0]), n = 0;
    for (; n < HISTOGRAM_ROWS && first + n < KV_RTT_LINES; n++) {
        snprintf(labels[n], sizeof(labels[n]), "%u us", first + n);
        bars[n] = (struct hw_bar){labels[n], (double)us[first + n]};
    }
    if (n == 0)
        return 0;
    return hw_html_bars(
        html, &(struct hw_bar_chart){
                  .title = "Round trips of rank 0", .unit = "requests", .bars = bars, .count = n});
}

static int chart_latency(struct hw_html *html, const struct bkv_set *s)
{
    const struct bkv_result *r = &s->results[top(s)][0];
    const struct hw_cdf_series series[] = {{"local", &r->local}, {"remote", &r->remote}};
    return hw_html_cdf(html, &(struct hw_cdf_chart){.title = "Latency as clients see it",
                                                    .x_label = "us",
                                                    .log_x = true,
                                                    .series = series,
                                                    .count = r->remote.count ? 2 : 1});
}

static int html_sections(struct hw_html *html, const struct bkv_set *s)
{
    for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
        char note[NOTE_CHARS] = "";
        struct hw_table *t = hw_table_create();
        if (!t)
            return -ENOMEM;
        sections[i].build(s, t, note);
        hw_html_heading(html, sections[i].title);
        if (hw_table_rows(t))
            hw_html_table(html, t);
        if (note[0])
            hw_html_paragraph(html, "%s", note);
        int rc = sections[i].build == build_scaling     ? chart_rtt(html, s)
                 : sections[i].build == build_histogram ? chart_histogram(html, s)
                 : sections[i].build == build_model     ? chart_rate(html, s)
                 : sections[i].build == build_derived   ? chart_latency(html, s)
                                                        : 0;
        hw_table_destroy(t);
        if (rc)
            return rc;
    }
    return 0;
}

int bkv_report_html(const struct bkv_set *s, const char *path)
{
    struct hw_page page;
    int rc = hw_page_begin(&page, path, "benchkv");
    return rc ? rc : hw_page_end(&page, html_sections(&page.html, s));
}
