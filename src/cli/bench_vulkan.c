/* hawser bench-vulkan - a GPU across a connection beside the same GPU without one and beside the
 * raw limit of the connection, measured in the same run. */
#include "cli/cli.h"

#include "base/bench.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/bench_link.h"
#include "cli/bench_serve.h"
#include "cli/bench_worker.h"
#include "cli/connect.h"
#include "cli/delay.h"
#include "cli/manifest.h"
#include "cli/measure.h"
#include "cli/methods.h"
#include "cli/software.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REPS_MAX = 101,
    COUNT_MAX = 5000, /* cycles of a repetition */
    CALIBRATION_CYCLES = 8,
    DISPATCHES = 10000, /* of one body: what a large model records for a token, fifty times */
    PING_BYTES = 64,
    STREAM_BYTES = 1 << 20, /* of one message of a raw stream */
    NAME_CHARS = 48,
    SITES_MAX = 4,
};

struct bench_vulkan_options {
    uint64_t reps, time_ns, size, device;
    bool quick, native, software, check, json;
};

static const struct cli_option options[] = {
    {.name = "quick",
     .letter = 'q',
     .kind = CLI_FLAG,
     .offset = offsetof(struct bench_vulkan_options, quick),
     .help = "one repetition of 20 ms, transfers of 16 MiB: some seconds"},
    {.name = "native",
     .letter = 'n',
     .kind = CLI_FLAG,
     .offset = offsetof(struct bench_vulkan_options, native),
     .help = "only the drivers of this machine, without any connection"},
    {.name = "software",
     .kind = CLI_FLAG,
     .offset = offsetof(struct bench_vulkan_options, software),
     .help = "use a software GPU, here and at the server that is started"},
    {.name = "device",
     .letter = 'd',
     .kind = CLI_U64,
     .argument = "N",
     .offset = offsetof(struct bench_vulkan_options, device),
     .def = "0",
     .max = 15,
     .help = "the N-th device of the driver"},
    {.name = "size",
     .letter = 's',
     .kind = CLI_SIZE,
     .argument = "BYTES",
     .offset = offsetof(struct bench_vulkan_options, size),
     .def = "256MiB",
     .min = 1 << 20,
     .max = UINT64_C(4) << 30,
     .help = "of a transfer; six times as much memory is needed here and there"},
    {.name = "reps",
     .letter = 'r',
     .kind = CLI_U64,
     .argument = "N",
     .offset = offsetof(struct bench_vulkan_options, reps),
     .def = "5",
     .min = 1,
     .max = REPS_MAX,
     .help = "repetitions; figures are their medians"},
    {.name = "time",
     .letter = 't',
     .kind = CLI_DURATION,
     .argument = "TIME",
     .offset = offsetof(struct bench_vulkan_options, time_ns),
     .def = "200ms",
     .min = HW_MS,
     .max = 10 * HW_SEC,
     .help = "how long one repetition of one side lasts"},
    {.name = "check",
     .kind = CLI_FLAG,
     .offset = offsetof(struct bench_vulkan_options, check),
     .help = "exit 1 when a row misses its target"},
    {.name = "json",
     .letter = 'j',
     .kind = CLI_FLAG,
     .offset = offsetof(struct bench_vulkan_options, json),
     .help = "print one JSON object instead of a table"},
    {NULL},
};

static const struct cli_env environment[] = {
    {"VK_DRIVER_FILES", "Vulkan drivers to use instead of the system's"},
    {"HAWSER_ICD", "the manifest of Hawser's driver, where it is not beside this program"},
    {"VENUS_TLS_CA, VENUS_TLS_FINGERPRINT, VENUS_TOKEN_FILE", "how to trust ADDR, as for info"},
    {"VENUS_LOG_LEVEL", "NONE, ERROR, WARN, INFO, DEBUG or TRACE [default: WARN]"},
    {NULL},
};

/* ---- what is promised ---- */

/* For rows of this name; the ratio, or the value where there is no baseline. */
static const struct target {
    const char *name;
    bool at_most;
    double bound;
} targets[] = {
    {"cycle.unix", true, 1.3},   {"cycle.tcp", true, 1.3},   {"cycle.1ms", true, 1.05},
    {"cycle.10ms", true, 1.05},  {"exchanges.tcp", true, 1}, {"fence-status.tcp", true, 0},
    {"upload.unix", false, 0.8}, {"upload.tcp", false, 0.8}, {"two-clients.tcp", false, 0.95},
};

/* ---- a run ---- */

/* Optimisations that are turned off one by one; early fences have rows of their own. */
static const struct {
    const char *name;
    enum bench_job job; /* that shows what it is worth */
} switches[] = {
    {"no_coalescing", BENCH_CHAIN},        {"no_pipelining", BENCH_CHAIN},
    {"no_batched_transfers", BENCH_CHAIN}, {"no_transport_tuning", BENCH_CHAIN},
    {"no_quiet_batches", BENCH_CHAIN},     {"no_whole_pages", BENCH_UPLOAD},
};

/* A way to the server. */
struct site {
    const char *name;
    enum bench_transport transport;
    uint64_t one_way_ns;
    char address[128]; /* of our own server */
    struct cli_delay relay, late_relay;
    struct bench_worker worker, late;                 /* with early fences, and without */
    struct bench_worker second;                       /* as the first, beside it */
    struct bench_worker without[ARRAY_LEN(switches)]; /* the others */
    struct bench_link *raw;                           /* NULL: the server is not ours */
    struct cli_link peer;                             /* then this */
};

struct run {
    const struct bench_vulkan_options *o;
    uint64_t reps, time_ns, size;
    struct bench_dir dir;
    struct bench_serve serve;
    struct bench_worker native;
    bool has_native;
    struct site sites[SITES_MAX];
    size_t site_count;
    struct hw_bench bench;
    struct hw_hist hist;
    bool missed;
    char manifest[PATH_MAX];
    char why[RPC_WHY_CHARS];
};

/* Set by SIGINT and SIGTERM: what was made for the run is removed before leaving. */
static volatile sig_atomic_t interrupted;

/* ---- one side, once ---- */

static int order(struct run *r, struct bench_worker *worker, const struct bench_order *what,
                 struct bench_answer *answer)
{
    char why[BENCH_WORKER_WHY] = "";
    int rc = interrupted ? -EINTR : bench_worker_do(worker, what, answer, why);
    if (rc)
        snprintf(r->why, sizeof(r->why), "%s", why);
    return rc;
}

/* How many repetitions of a job last about as long as they should. */
static int calibrate(struct run *r, struct bench_worker *worker, struct bench_order *what)
{
    struct bench_answer answer;
    what->count = CALIBRATION_CYCLES;
    int rc = order(r, worker, what, &answer);
    double fits = rc == 0 ? (double)r->time_ns / answer.median_ns : 0;
    what->count = fits > COUNT_MAX            ? COUNT_MAX
                  : fits < CALIBRATION_CYCLES ? CALIBRATION_CYCLES
                                              : (uint32_t)fits;
    return rc;
}

static int raw_rtt(struct run *r, struct site *site, double *us)
{
    uint8_t data[PING_BYTES] = {0};
    uint64_t elapsed = 0, count = site->one_way_ns ? 8 : 200;
    int rc;
    hw_hist_reset(&r->hist);
    if (site->raw) {
        struct bench_shot shot = {.size = PING_BYTES, .depth = 1, .count = count, .hist = &r->hist};
        rc = bench_link_raw_ping(site->raw, &shot, &elapsed);
    } else {
        struct measure_calls calls = {.method = CLI_METHOD_ECHO,
                                      .payload = data,
                                      .payload_len = sizeof(data),
                                      .expect_len = sizeof(data),
                                      .depth = 1,
                                      .count = count,
                                      .timeout_ns = site->peer.timeout_ns,
                                      .hist = &r->hist};
        rc = measure_calls(site->peer.ep, &calls, &elapsed);
    }
    *us = (double)hw_hist_percentile(&r->hist, 50) / 1e3;
    return rc;
}

static int raw_bandwidth(struct run *r, struct site *site, double *gb)
{
    uint64_t elapsed = 1, count = r->size / STREAM_BYTES;
    int rc;
    if (site->raw) {
        struct bench_shot shot = {.size = STREAM_BYTES, .depth = 1, .count = count};
        rc = bench_link_raw_stream(site->raw, &shot, &elapsed);
    } else {
        uint8_t *data = calloc(1, STREAM_BYTES);
        rc = data ? measure_upload(site->peer.ep, data, STREAM_BYTES, count, site->peer.timeout_ns,
                                   NULL, &elapsed)
                  : -ENOMEM;
        if (rc == 0)
            free(data); /* after a failure the endpoint may still refer to it */
    }
    *gb = (double)(count * STREAM_BYTES) / (double)(elapsed ? elapsed : 1);
    return rc;
}

static const char *raw_name(const struct site *site)
{
    return site->raw ? bench_link_raw_name(site->raw) : "our RPC to the same server";
}

/* ---- rows ---- */

static void judge(struct run *r, const char *name, double value, double baseline)
{
    for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
        const struct target *t = &targets[i];
        if (strcmp(name, t->name) != 0)
            continue;
        double judged = isnan(baseline) ? value : value / baseline;
        bool met = t->at_most ? judged <= t->bound : judged >= t->bound;
        r->missed |= !met;
        hw_bench_field(&r->bench, "target", "%s %g", t->at_most ? "<=" : ">=", t->bound);
        hw_bench_field(&r->bench, "met", "%s", met ? "yes" : "NO");
        return;
    }
    hw_bench_field(&r->bench, "target", "-");
    hw_bench_field(&r->bench, "met", "-");
}

/* `native`: NAN where it says nothing. */
static void add_row(struct run *r, const char *kind, const char *site, double value,
                    const char *unit, double baseline, const char *against, double native)
{
    char name[NAME_CHARS];
    snprintf(name, sizeof(name), "%s.%s", kind, site);
    hw_bench_row(&r->bench, name, value, unit, baseline);
    hw_bench_field(&r->bench, "against", "%s", against);
    if (isnan(native))
        hw_bench_field(&r->bench, "native", "-");
    else
        hw_bench_field(&r->bench, "native", "%.4g", native);
    judge(r, name, value, baseline);
}

static void add_counts(struct run *r, const struct site *site, const struct vn_counts *c,
                       uint32_t cycles)
{
    const struct {
        const char *kind, *unit;
        uint64_t count;
    } rows[] = {
        {"exchanges", "a cycle", c->exchanges},
        {"messages", "a cycle", c->messages_sent + c->messages_received},
        {"writes", "a cycle", c->writes},
        {"bytes-up", "B a cycle", c->bytes_sent},
        {"bytes-down", "B a cycle", c->bytes_received},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        add_row(r, rows[i].kind, site->name, (double)rows[i].count / cycles, rows[i].unit, NAN, "-",
                NAN);
}

static int row_native_cycle(struct run *r)
{
    double us[REPS_MAX];
    struct bench_order what = {.job = BENCH_CYCLES};
    struct bench_answer answer;
    int rc = calibrate(r, &r->native, &what);
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        rc = order(r, &r->native, &what, &answer);
        us[i] = answer.median_ns / 1e3;
    }
    if (rc == 0)
        add_row(r, "cycle", "native", measure_median(us, r->reps), "us", NAN, "-", NAN);
    return rc;
}

/* Record, submit, wait: beside one round trip of the raw link and the same without a link. */
static int row_cycle(struct run *r, struct site *site)
{
    double raw[REPS_MAX], native[REPS_MAX], ours[REPS_MAX];
    struct bench_order here = {.job = BENCH_CYCLES}, there = here;
    struct bench_answer answer = {0};
    int rc = calibrate(r, &site->worker, &there);
    if (rc == 0 && r->has_native)
        rc = calibrate(r, &r->native, &here);
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        native[i] = 0;
        rc = raw_rtt(r, site, &raw[i]);
        if (rc == 0 && r->has_native) {
            rc = order(r, &r->native, &here, &answer);
            native[i] = answer.median_ns / 1e3;
        }
        if (rc == 0)
            rc = order(r, &site->worker, &there, &answer);
        ours[i] = answer.median_ns / 1e3;
    }
    if (rc)
        return rc;
    double local = r->has_native ? measure_median(native, r->reps) : NAN;
    double rtt = measure_median(raw, r->reps), value = measure_median(ours, r->reps);
    add_row(r, "cycle", site->name, value, "us", rtt + (r->has_native ? local : 0),
            !r->has_native ? raw_name(site)
            : site->raw    ? "raw round trip + native"
                           : "our RPC's round trip + native",
            local);
    hw_bench_field(&r->bench, "raw", "%.4g", rtt);
    hw_bench_field(&r->bench, "over_rtt", "%.3g", (value - (r->has_native ? local : 0)) / rtt);
    if (site->transport == BENCH_TCP && site->one_way_ns == 0)
        add_counts(r, site, &answer.counts, there.count);
    return 0;
}

/* The same cycle by a program that does not wait but looks. */
static int row_polls(struct run *r, struct site *site)
{
    double waits[REPS_MAX], polls[REPS_MAX];
    struct bench_order wait = {.job = BENCH_CYCLES}, poll = {.job = BENCH_POLLS};
    struct bench_answer answer = {0};
    uint64_t looks = 0, messages = 0;
    int rc = calibrate(r, &site->worker, &wait);
    poll.count = wait.count;
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        rc = order(r, &site->worker, &wait, &answer);
        waits[i] = answer.median_ns / 1e3;
        if (rc == 0)
            rc = order(r, &site->worker, &poll, &answer);
        polls[i] = answer.median_ns / 1e3;
        looks += answer.looks;
        messages += answer.look_messages;
    }
    if (rc)
        return rc;
    add_row(r, "polled", site->name, measure_median(polls, r->reps), "us",
            measure_median(waits, r->reps), "the same with vkWaitForFences", NAN);
    hw_bench_field(&r->bench, "looks", "%.3g", (double)looks / (double)(r->reps * poll.count));
    add_row(r, "fence-status", site->name, (double)messages, "messages", NAN, "-", NAN);
    hw_bench_field(&r->bench, "looks", "%llu", (unsigned long long)looks);
    return 0;
}

static int row_record(struct run *r, struct site *site)
{
    double native[REPS_MAX], ours[REPS_MAX];
    struct bench_order what = {.job = BENCH_RECORD, .count = 4, .size = DISPATCHES};
    struct bench_answer answer = {0};
    int rc = 0;
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        if (r->has_native)
            rc = order(r, &r->native, &what, &answer);
        native[i] = DISPATCHES * 1e3 / answer.median_ns;
        if (rc == 0)
            rc = order(r, &site->worker, &what, &answer);
        ours[i] = DISPATCHES * 1e3 / answer.median_ns;
    }
    if (rc)
        return rc;
    double local = r->has_native ? measure_median(native, r->reps) : NAN;
    add_row(r, "record", site->name, measure_median(ours, r->reps), "M/s", local,
            r->has_native ? "native" : "-", local);
    return 0;
}

static int transfer(struct run *r, struct bench_worker *worker, enum bench_job job, double *gb)
{
    struct bench_order what = {.job = job, .count = 1, .size = r->size};
    struct bench_answer answer;
    int rc = order(r, worker, &what, &answer);
    if (rc == 0)
        *gb = (double)r->size / answer.median_ns;
    return rc;
}

static int row_transfer(struct run *r, struct site *site, enum bench_job job)
{
    double raw[REPS_MAX], native[REPS_MAX], ours[REPS_MAX];
    int rc = 0;
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        rc = raw_bandwidth(r, site, &raw[i]);
        native[i] = 0;
        if (rc == 0 && r->has_native)
            rc = transfer(r, &r->native, job, &native[i]);
        if (rc == 0)
            rc = transfer(r, &site->worker, job, &ours[i]);
    }
    if (rc == 0)
        add_row(r, job == BENCH_UPLOAD ? "upload" : "readback", site->name,
                measure_median(ours, r->reps), "GB/s", measure_median(raw, r->reps), raw_name(site),
                r->has_native ? measure_median(native, r->reps) : NAN);
    return rc;
}

static int forget_transfers(struct run *r, struct bench_worker *worker)
{
    struct bench_order what = {.job = BENCH_FORGET, .count = 1};
    struct bench_answer answer;
    return order(r, worker, &what, &answer);
}

static int rows_of_transfers(struct run *r, struct site *site)
{
    int rc = row_transfer(r, site, BENCH_UPLOAD);
    if (rc == 0)
        rc = row_transfer(r, site, BENCH_READBACK);
    if (rc == 0 && r->has_native)
        rc = forget_transfers(r, &r->native);
    return rc ? rc : forget_transfers(r, &site->worker);
}

/* What a cycle costs more for each page that the program wrote into before it. */
static int row_dirty(struct run *r, struct site *site)
{
    double clean[REPS_MAX], dirty[REPS_MAX];
    struct bench_order without = {.job = BENCH_DIRTY},
                       with = {.job = BENCH_DIRTY, .size = BENCH_DIRTY_PAGES};
    struct bench_answer answer = {0}, base = {0};
    int rc = calibrate(r, &site->worker, &with);
    without.count = with.count;
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        rc = order(r, &site->worker, &without, &base);
        clean[i] = base.median_ns / 1e3;
        if (rc == 0)
            rc = order(r, &site->worker, &with, &answer);
        dirty[i] = answer.median_ns / 1e3;
    }
    if (rc)
        return rc;
    double pages = (double)with.count * BENCH_DIRTY_PAGES;
    add_row(r, "dirty-page", site->name,
            (measure_median(dirty, r->reps) - measure_median(clean, r->reps)) / BENCH_DIRTY_PAGES,
            "us", NAN, "-", NAN);
    hw_bench_field(&r->bench, "bytes", "%.3g",
                   ((double)answer.counts.bytes_sent - (double)base.counts.bytes_sent) / pages);
    return 0;
}

/* Upload, fence, compute, fence, read: with early fences beside without. */
static int row_chain(struct run *r, struct site *site)
{
    double native[REPS_MAX], early[REPS_MAX], late[REPS_MAX];
    struct bench_order here = {.job = BENCH_CHAIN}, there = here;
    struct bench_answer answer = {0}, with = {0}, without = {0};
    int rc = calibrate(r, &site->late, &there);
    if (rc == 0 && r->has_native)
        rc = calibrate(r, &r->native, &here);
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        if (r->has_native)
            rc = order(r, &r->native, &here, &answer);
        native[i] = answer.median_ns / 1e3;
        if (rc == 0)
            rc = order(r, &site->worker, &there, &with);
        if (rc == 0)
            rc = order(r, &site->late, &there, &without);
        early[i] = with.median_ns / 1e3;
        late[i] = without.median_ns / 1e3;
    }
    if (rc)
        return rc;
    add_row(r, "early", site->name, measure_median(early, r->reps), "us",
            measure_median(late, r->reps), "VENUS_PERF=no_early_fences",
            r->has_native ? measure_median(native, r->reps) : NAN);
    hw_bench_field(&r->bench, "exchanges", "%.3g of %.3g",
                   (double)with.counts.exchanges / there.count,
                   (double)without.counts.exchanges / there.count);
    return 0;
}

/* The connection itself is not ours to change on the other transports. */
static bool has_switches(const struct site *site)
{
    return site->transport == BENCH_TCP && site->one_way_ns == 0;
}

/* The same job with each optimisation, and with that one turned off. */
static int row_switch(struct run *r, struct site *site, size_t which)
{
    double on[REPS_MAX], off[REPS_MAX];
    struct bench_order job = {.job = switches[which].job, .count = 1, .size = r->size};
    struct bench_answer with = {0}, without = {0};
    char label[64];
    bool uploads = job.job == BENCH_UPLOAD;
    int rc = uploads ? 0 : calibrate(r, &site->without[which], &job);
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        rc = order(r, &site->worker, &job, &with);
        if (rc == 0)
            rc = order(r, &site->without[which], &job, &without);
        on[i] = with.median_ns / 1e3;
        off[i] = without.median_ns / 1e3;
    }
    if (rc)
        return rc;
    snprintf(label, sizeof(label), "VENUS_PERF=%s", switches[which].name);
    add_row(r, switches[which].name + strlen("no_"), site->name, measure_median(on, r->reps), "us",
            measure_median(off, r->reps), label, NAN);
    hw_bench_field(&r->bench, "messages", "%.3g of %.3g",
                   (double)with.counts.messages_sent / job.count,
                   (double)without.counts.messages_sent / job.count);
    if (uploads)
        rc = forget_transfers(r, &site->worker);
    return rc || !uploads ? rc : forget_transfers(r, &site->without[which]);
}

/* Two workers, each with the same order, at the same time. */
static int order_both(struct run *r, struct site *site, const struct bench_order *what,
                      struct bench_answer answers[2])
{
    char why[BENCH_WORKER_WHY] = "";
    int rc = interrupted ? -EINTR : bench_worker_ask(&site->worker, what, why);
    if (rc == 0)
        rc = bench_worker_ask(&site->second, what, why);
    if (rc == 0)
        rc = bench_worker_hear(&site->worker, &answers[0], why);
    if (rc == 0)
        rc = bench_worker_hear(&site->second, &answers[1], why);
    if (rc)
        snprintf(r->why, sizeof(r->why), "%s", why);
    return rc;
}

/* Two programs at once: what both get together, beside one alone. */
static int row_two(struct run *r, struct site *site)
{
    double alone[REPS_MAX], both[REPS_MAX], share[REPS_MAX];
    struct bench_order what = {.job = BENCH_CYCLES};
    struct bench_answer answers[2] = {0};
    int rc = calibrate(r, &site->worker, &what);
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        rc = order(r, &site->worker, &what, &answers[0]);
        alone[i] = 1e9 / answers[0].median_ns;
        if (rc == 0)
            rc = order_both(r, site, &what, answers);
        double first = 1e9 / answers[0].median_ns, second = 1e9 / answers[1].median_ns;
        both[i] = first + second;
        share[i] = (first < second ? first : second) / both[i];
    }
    if (rc)
        return rc;
    add_row(r, "two-clients", site->name, measure_median(both, r->reps), "cycles/s",
            measure_median(alone, r->reps), "one client alone", NAN);
    hw_bench_field(&r->bench, "share", "%.2f", measure_median(share, r->reps));
    return 0;
}

static int measure_site(struct run *r, struct site *site)
{
    bool near = site->one_way_ns == 0;
    int rc = row_cycle(r, site);
    if (rc == 0)
        rc = row_chain(r, site);
    if (rc == 0 && site->transport == BENCH_TCP && near)
        rc = row_polls(r, site);
    if (rc == 0 && site->transport == BENCH_TCP && near)
        rc = row_record(r, site);
    if (rc == 0 && site->transport == BENCH_TCP && near)
        rc = row_dirty(r, site);
    if (rc == 0 && near)
        rc = rows_of_transfers(r, site);
    for (size_t i = 0; i < ARRAY_LEN(switches) && rc == 0 && has_switches(site); i++)
        rc = row_switch(r, site, i);
    if (rc == 0 && has_switches(site))
        rc = row_two(r, site);
    return rc;
}

/* ---- what is measured ---- */

static int start_worker(struct run *r, struct site *site, const char *perf, struct cli_delay *relay,
                        struct bench_worker *worker)
{
    char address[RPC_ADDR_HOST_CHARS + 16], why[BENCH_WORKER_WHY] = "";
    snprintf(address, sizeof(address), "%s", site->peer.ep ? site->peer.address : site->address);
    int rc = 0;
    if (site->one_way_ns) {
        rc = cli_delay_start(r->serve.port, (struct cli_delay_line){.one_way_ns = site->one_way_ns},
                             relay);
        snprintf(address, sizeof(address), "127.0.0.1:%u", relay->port);
    }
    struct bench_worker_params params = {.manifest = r->manifest,
                                         .servers = address,
                                         .perf = perf,
                                         .device = (uint32_t)r->o->device};
    if (rc == 0)
        rc = bench_worker_start(&params, worker, why);
    if (rc)
        snprintf(r->why, sizeof(r->why), "%s: %s", site->name, why[0] ? why : strerror(-rc));
    return rc;
}

/* The raw link last: it pins this process and its own to a core each, so that neither spins in the
 * other's way, and workers must not inherit that. */
static int open_site(struct run *r, struct site *site)
{
    struct bench_spec spec = {.transport = site->transport,
                              .wait = RPC_WAIT_ADAPTIVE,
                              .place = BENCH_TWO_CORES,
                              .one_way_ns = site->one_way_ns,
                              .dir = &r->dir};
    int rc = start_worker(r, site, "", &site->relay, &site->worker);
    if (rc == 0)
        rc = start_worker(r, site, "no_early_fences", &site->late_relay, &site->late);
    for (size_t i = 0; i < ARRAY_LEN(switches) && rc == 0 && has_switches(site); i++)
        rc = start_worker(r, site, switches[i].name, &site->relay, &site->without[i]);
    if (rc == 0 && has_switches(site))
        rc = start_worker(r, site, "", &site->relay, &site->second);
    if (rc == 0 && r->serve.pid)
        rc = bench_link_open(&spec, &site->raw, r->why);
    return rc;
}

/* Once all has gone well, relays carry the last words, too. */
static void close_site(struct site *site, bool well)
{
    bench_worker_stop(&site->worker);
    bench_worker_stop(&site->late);
    bench_worker_stop(&site->second);
    for (size_t i = 0; i < ARRAY_LEN(switches); i++)
        bench_worker_stop(&site->without[i]);
    if (well) {
        cli_delay_finish(&site->relay);
        cli_delay_finish(&site->late_relay);
    }
    cli_delay_stop(&site->relay);
    cli_delay_stop(&site->late_relay);
    bench_link_close(site->raw);
    if (site->peer.ep)
        cli_link_close(&site->peer);
}

/* A server of our own, and the ways to it. */
static int plan_own(struct run *r)
{
    char path[sizeof(r->dir.path) + 16], why[BENCH_SERVE_WHY] = "";
    snprintf(path, sizeof(path), "%s/gpu", r->dir.path);
    int rc = bench_serve_start(path, &r->serve, why);
    if (rc) {
        snprintf(r->why, sizeof(r->why), "%s", why);
        return rc;
    }
    const struct site sites[] = {
        {.name = "unix", .transport = BENCH_UNIX},
        {.name = "tcp", .transport = BENCH_TCP},
        {.name = "1ms", .transport = BENCH_TCP, .one_way_ns = HW_MS / 2},
        {.name = "10ms", .transport = BENCH_TCP, .one_way_ns = 5 * HW_MS},
    };
    for (size_t i = 0; i < ARRAY_LEN(sites); i++) {
        struct site *site = &r->sites[r->site_count++];
        *site = sites[i];
        if (site->transport == BENCH_UNIX)
            snprintf(site->address, sizeof(site->address), "unix:%s", path);
        else
            snprintf(site->address, sizeof(site->address), "127.0.0.1:%u", r->serve.port);
    }
    return 0;
}

/* A server that is there already. */
static enum cli_exit plan_peer(struct run *r, const char *operand)
{
    struct site *site = &r->sites[r->site_count++];
    struct cli_connect_options connect = {.timeout_ns = 5 * HW_SEC};
    *site = (struct site){.name = "remote", .transport = BENCH_TCP};
    return cli_link_open(&site->peer, &connect, operand);
}

static int start_native(struct run *r)
{
    char why[BENCH_WORKER_WHY] = "";
    struct bench_worker_params params = {.device = (uint32_t)r->o->device};
    int rc = bench_worker_start(&params, &r->native, why);
    r->has_native = rc == 0;
    if (rc)
        snprintf(r->why, sizeof(r->why),
                 "the drivers of this machine: %.120s; --software uses a software GPU", why);
    return rc;
}

static int measure_sites(struct run *r)
{
    int rc = 0;
    for (size_t i = 0; i < r->site_count && rc == 0; i++) {
        rc = open_site(r, &r->sites[i]);
        if (rc == 0)
            rc = measure_site(r, &r->sites[i]);
        close_site(&r->sites[i], rc == 0);
    }
    return rc;
}

/* ---- the command ---- */

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

static enum cli_exit report(const struct run *r)
{
    int rc = r->o->json ? hw_bench_print_json(&r->bench, stdout)
                        : hw_bench_print_table(&r->bench, stdout);
    if (rc)
        return cli_fail(CLI_FAILED, "cannot write the output: %s", strerror(-rc));
    if (r->o->check && r->missed)
        return cli_fail(CLI_FAILED, "bench-vulkan: a target was missed");
    return CLI_DONE;
}

/* With ADDR the GPU is somewhere else: one here is worth a comparison, but not needed. */
static enum cli_exit measure(struct run *r, const char *operand)
{
    int rc = start_native(r);
    if (rc && operand)
        rc = 0;
    if (rc == 0 && r->has_native)
        rc = row_native_cycle(r);
    if (rc == 0 && operand && !r->o->native) {
        enum cli_exit code = plan_peer(r, operand);
        if (code != CLI_DONE)
            return code;
    } else if (rc == 0 && !r->o->native) {
        rc = plan_own(r);
    }
    if (rc == 0)
        rc = measure_sites(r);
    if (rc == 0)
        return CLI_DONE;
    return cli_fail(CLI_FAILED, "bench-vulkan: %s", r->why[0] ? r->why : strerror(-rc));
}

static enum cli_exit run_all(struct run *r, const char *operand)
{
    if (hw_hist_init(&r->hist))
        return cli_fail(CLI_FAILED, "out of memory");
    hw_bench_begin(&r->bench, "vulkan");
    enum cli_exit code = CLI_FAILED;
    if (bench_dir_make(&r->dir, r->why)) {
        cli_fail(CLI_FAILED, "bench-vulkan: %s", r->why);
    } else {
        code = measure(r, operand);
        bench_worker_stop(&r->native);
        bench_serve_stop(&r->serve);
        bench_dir_remove(&r->dir);
    }
    if (code == CLI_DONE)
        code = report(r);
    hw_bench_end(&r->bench);
    hw_hist_fini(&r->hist);
    return code;
}

static enum cli_exit run(const void *values, const struct cli_operands *operands)
{
    const struct bench_vulkan_options *o = values;
    const char *operand = operands->count ? operands->items[0] : NULL;
    struct sigaction action = {.sa_handler = on_signal};
    if (o->native && operand)
        return cli_fail(CLI_USAGE, "bench-vulkan: --native measures no server: leave ADDR out");
    enum cli_exit code = o->software ? cli_software() : CLI_DONE;
    if (code != CLI_DONE)
        return code;
    struct run *r = calloc(1, sizeof(*r));
    if (!r)
        return cli_fail(CLI_FAILED, "out of memory");
    *r = (struct run){.o = o, .reps = o->reps, .time_ns = o->time_ns, .size = o->size};
    if (o->quick) {
        r->reps = 1;
        r->time_ns = r->time_ns < 20 * HW_MS ? r->time_ns : 20 * HW_MS;
        r->size = r->size < (16 << 20) ? r->size : 16 << 20;
    }
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (!o->native && !cli_find_manifest(r->manifest))
        code = cli_fail(CLI_FAILED, "bench-vulkan: the driver's manifest, hawser_icd.json, is not "
                                    "where this program was built or installed; set HAWSER_ICD to "
                                    "its path");
    else
        code = run_all(r, operand);
    free(r);
    return code;
}

const struct cli_command cli_bench_vulkan = {
    .name = "bench-vulkan",
    .summary = "measure remote Vulkan beside native Vulkan and the raw limits",
    .operands = "[ADDR]",
    .operands_max = 1,
    .description =
        "Measures a GPU through Hawser's driver over a Unix socket, over TCP, and over lines of\n"
        "1 ms and 10 ms, beside the same GPU through its own driver and the raw limit of each\n"
        "line: record-submit-wait, what a cycle sends, recording, polling, uploads, readbacks,\n"
        "written pages, early fences, two programs at once.  The server is started for the run; "
        "with ADDR it is the one\n"
        "there, and the limit is our RPC's.",
    .options = options,
    .environment = environment,
    .examples = "hawser bench-vulkan --software --quick\n"
                "hawser bench-vulkan --json > vulkan.json\n"
                "hawser bench-vulkan gpu1:28100",
    .values_size = sizeof(struct bench_vulkan_options),
    .run = run,
};
