/* hawser bench-rpc - our RPC beside the raw limit of the same machine, measured in the same run. */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/order.h"
#include "base/report/bench.h"
#include "base/report/progress.h"
#include "base/units.h"
#include "bench/rpc/link.h"
#include "command/interrupt.h"
#include "command/kvranks.h"
#include "command/measure.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REPS_MAX = 101,
    PLAN_MAX = 512,
    NAME_CHARS = 64,
    SMALL = 64,      /* the message whose cost is all overhead */
    LARGE = 1 << 20, /* the message whose cost is all bytes */
    MANY = 1000,     /* calls or posts at once, over a long line */
    CALIBRATION_SHOTS = 16,
    COUNT_MAX = 200000
};

#define LINE_SHARE 0.9 /* of a line's round trip: the time that bytes take is only estimated */

static const uint32_t sizes[] = {SMALL, 1 << 10, 16 << 10, LARGE};
static const uint32_t depths[] = {1, 8, 64};
static const enum rpc_wait_mode waits[] = {RPC_WAIT_BLOCK, RPC_WAIT_BUSY, RPC_WAIT_ADAPTIVE};

struct bench_rpc_options {
    struct cmd_list only;
    uint64_t reps;
    uint64_t time_ns;
    uint64_t rtt_ns;
    uint64_t limit_ns;
    bool quick, no_pin, resume, check, json;
};

#define AT(field) offsetof(struct bench_rpc_options, field)
static const struct cmd_option options[] = {
    {"quick", 'q', CMD_FLAG, AT(quick),
     "adaptive waiting only, 64 B and the stream, 3 repetitions: a few seconds"},
    {"only", 'o', CMD_LIST, AT(only), "only rows whose name holds TEXT: tcp, .d1., stream, shm.64B",
     "TEXT"},
    {"reps", 'r', CMD_U64, AT(reps), "repetitions; figures are their medians", "N", "5", 1,
     REPS_MAX},
    {"time", 't', CMD_DURATION, AT(time_ns), "how long one repetition of one side lasts", "TIME",
     "10ms", HW_MS, 10 * HW_SEC},
    {"limit", 0, CMD_DURATION, AT(limit_ns),
     "leave out the rows that are not begun by then, and say so", "TIME", "170s", HW_SEC,
     86400 * HW_SEC},
    {"via-delay", 0, CMD_DURATION, AT(rtt_ns),
     "round trip of the long link that calls and posts at once are measured over, through a delay "
     "relay; 0 leaves those rows out",
     "RTT", "1ms", 0, HW_SEC},
    {"no-pin", 0, CMD_FLAG, AT(no_pin),
     "let the kernel place client and server; without it each has a core"},
    {"resume", 0, CMD_FLAG, AT(resume),
     "over tcp and tls, keep what is sent as a connection does that can be resumed after a cut: "
     "shows what that costs"},
    {"check", 0, CMD_FLAG, AT(check), "exit 1 when a row misses its target or is invalid"},
    {"json", 'j', CMD_FLAG, AT(json), "print one JSON object instead of a table"},
    {NULL},
};

static const struct cmd_env environment[] = {
    {"VENUS_SOCKET_BUFFER_BYTES", "kernel buffer of a TCP socket, each way [default: 4MiB]"},
    {"UCX_TLS", "what UCX may use [default here: tcp]"},
    {NULL},
};

/* ---- what is promised ---- */

static const struct hw_bench_target targets[] = {
    {"tcp.64B.d1.", true, 1.15},         {"unix.64B.d1.", true, 1.15}, {"shm.64B.d1.", true, 2.0},
    {"tcp.64B.d64-over-d1.", false, 15}, {"tcp.stream.", false, 0.9},  {"tls.stream.", false, 0.9},
    {"delay.calls", true, 1.3, true},    {"delay.posts", true, 4},     {"one-core.", true, 1.05},
};

/* ---- the plan ---- */

enum kind {
    KIND_CALLS,
    KIND_STREAM,
    KIND_DEPTH_GAIN,
    KIND_LONG_CALLS,
    KIND_LONG_POSTS,
    KIND_ONE_CORE
};

struct item {
    enum kind kind;
    enum bench_transport transport;
    enum rpc_wait_mode wait;
    uint32_t size, depth;
    char name[NAME_CHARS];
};

struct plan {
    const struct bench_rpc_options *o;
    struct hw_bench *bench; /* told of the rows that are left out */
    struct item items[PLAN_MAX];
    size_t count;
};

static bool wanted(const struct plan *plan, const char *name)
{
    const struct cmd_list *only = &plan->o->only;
    for (size_t i = 0; i < only->count; i++) {
        if (strstr(name, only->items[i]))
            return true;
    }
    return only->count == 0;
}

/* What --quick keeps: adaptive waiting, the smallest message, and the rows with a target. */
static bool is_quick(const struct item *item)
{
    return item->wait == RPC_WAIT_ADAPTIVE &&
           (item->kind != KIND_CALLS || (item->size == SMALL && item->depth != 8));
}

static void plan_add(struct plan *plan, const struct item *item)
{
    bool is_long = item->kind == KIND_LONG_CALLS || item->kind == KIND_LONG_POSTS;
    assert(plan->count < PLAN_MAX);
    if (!wanted(plan, item->name))
        hw_bench_leave_out(plan->bench, item->name, "--only");
    else if (plan->o->quick && !is_quick(item))
        hw_bench_leave_out(plan->bench, item->name, "--quick");
    else if (is_long && plan->o->rtt_ns == 0)
        hw_bench_leave_out(plan->bench, item->name, "--via-delay 0");
    else
        plan->items[plan->count++] = *item;
}

static void plan_calls(struct plan *plan, enum bench_transport transport, enum rpc_wait_mode wait,
                       uint32_t size, uint32_t depth)
{
    char text[HW_FORMAT_CHARS];
    struct item item = {KIND_CALLS, transport, wait, size, depth, ""};
    snprintf(item.name, sizeof(item.name), "%s.%s.d%u.%s", bench_transport_names[transport],
             hw_format_size(text, size), depth, cmd_wait_names[wait]);
    plan_add(plan, &item);
}

/* Everything on one link.  All calls in flight together have at most LARGE bytes; the stream shows
 * more. */
static void plan_link(struct plan *plan, enum bench_transport transport, enum rpc_wait_mode wait)
{
    const char *name = bench_transport_names[transport];
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        for (size_t d = 0; d < ARRAY_LEN(depths); d++) {
            if (sizes[s] * depths[d] <= LARGE)
                plan_calls(plan, transport, wait, sizes[s], depths[d]);
        }
    }
    struct item stream = {KIND_STREAM, transport, wait, LARGE, 1, ""};
    snprintf(stream.name, sizeof(stream.name), "%s.stream.%s", name, cmd_wait_names[wait]);
    plan_add(plan, &stream);
    if (transport == BENCH_TCP) {
        struct item gain = {KIND_DEPTH_GAIN, transport, wait, SMALL, 64, ""};
        snprintf(gain.name, sizeof(gain.name), "%s.64B.d64-over-d1.%s", name, cmd_wait_names[wait]);
        plan_add(plan, &gain);
    }
}

/* UCX comes last: its library leaves threads and hooks in a process that forks afterwards. */
static void plan_all(struct plan *plan)
{
    plan_add(plan, &(struct item){KIND_LONG_CALLS, BENCH_TCP, RPC_WAIT_ADAPTIVE, SMALL, MANY,
                                  "delay.calls"});
    plan_add(plan, &(struct item){KIND_LONG_POSTS, BENCH_TCP, RPC_WAIT_ADAPTIVE, SMALL, MANY,
                                  "delay.posts"});
    plan_add(plan, &(struct item){KIND_ONE_CORE, BENCH_TCP, RPC_WAIT_ADAPTIVE, SMALL, 1,
                                  "one-core.adaptive-over-block"});
    for (int t = 0; t < BENCH_TRANSPORTS; t++) {
        for (size_t w = 0; w < ARRAY_LEN(waits); w++)
            plan_link(plan, (enum bench_transport)t, waits[w]);
    }
}

/* ---- measuring ---- */

struct run {
    const struct bench_rpc_options *o;
    uint64_t reps, time_ns;
    struct bench_dir dir;
    struct hw_bench bench;
    struct hw_hist hist;
    struct bench_link *link; /* of the last spec */
    struct bench_spec spec;
    char why[RPC_WHY_CHARS];
};

/* One side of a comparison. */
struct probe {
    int (*shoot)(struct bench_link *link, const struct bench_shot *shot, uint64_t *elapsed_ns);
    struct bench_link *link;
    uint32_t size, depth;
    enum figure_kind {
        FIGURE_US,    /* median time of an exchange */
        FIGURE_CALLS, /* calls in a second, from the median time of `depth` of them */
        FIGURE_GB     /* GB in a second, from the median time of a slice of the stream */
    } kind;
    uint64_t count;
    double figures[REPS_MAX];
};

struct figure {
    double value, baseline;
    double spread; /* (highest - lowest) / median of our repetitions */
    double least;  /* a smaller value cannot be true; 0: none */
};

/* Medians within a repetition, so that other work of the machine does not count. */
static double figure_of(const struct run *r, const struct probe *p)
{
    double median_ns = (double)hw_hist_percentile(&r->hist, 50);
    switch (p->kind) {
    case FIGURE_US:
        return median_ns / 1000;
    case FIGURE_CALLS:
        return p->depth * 1e9 / median_ns;
    case FIGURE_GB:
        return (double)p->size * MEASURE_STREAM_SLICE / median_ns;
    }
    return 0;
}

static int shoot(struct run *r, struct probe *p, double *figure)
{
    struct bench_shot shot = {
        .size = p->size, .depth = p->depth, .count = p->count, .hist = &r->hist};
    uint64_t elapsed = 1;
    hw_hist_reset(&r->hist);
    int rc = p->shoot(p->link, &shot, &elapsed);
    if (rc == 0)
        *figure = figure_of(r, p);
    return rc;
}

/* Finds the number of messages that takes about the time of one repetition. */
static int calibrate(struct run *r, struct probe *p)
{
    uint64_t least = p->kind == FIGURE_GB ? 3 * MEASURE_STREAM_LEAD : (uint64_t)p->depth * 4;
    uint64_t elapsed = 1;
    struct bench_shot shot = {.size = p->size, .depth = p->depth, .count = CALIBRATION_SHOTS};
    if (shot.count < least)
        shot.count = least;
    int rc = p->shoot(p->link, &shot, &elapsed);
    if (rc)
        return rc;
    double fits = (double)r->time_ns * (double)shot.count / (double)(elapsed ? elapsed : 1);
    p->count = fits > COUNT_MAX ? COUNT_MAX : fits < (double)least ? least : (uint64_t)fits;
    return 0;
}

static double spread_of(const double *sorted, size_t count)
{
    double middle = hw_percentile(sorted, count, 50);
    return middle > 0 ? (sorted[count - 1] - sorted[0]) / middle : 0;
}

/* Measures the two in turn and swaps their order each time, so that other work of the machine falls
 * on both. */
static int compare(struct run *r, struct probe *ours, struct probe *raw, struct figure *out)
{
    int rc = calibrate(r, raw);
    if (rc == 0)
        rc = calibrate(r, ours);
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        struct probe *first = i % 2 ? ours : raw, *second = i % 2 ? raw : ours;
        rc = cmd_interrupted() ? -EINTR : shoot(r, first, &first->figures[i]);
        if (rc == 0)
            rc = shoot(r, second, &second->figures[i]);
    }
    if (rc)
        return rc;
    out->value = hw_median(ours->figures, r->reps);
    out->spread = spread_of(ours->figures, r->reps);
    out->baseline = hw_median(raw->figures, r->reps);
    return 0;
}

/* ---- links ---- */

static bool same_spec(const struct bench_spec *a, const struct bench_spec *b)
{
    return a->transport == b->transport && a->wait == b->wait && a->place == b->place &&
           a->line.one_way_ns == b->line.one_way_ns && a->line.bits_s == b->line.bits_s;
}

/* The link of the last item serves the next one when it is of the same kind. */
static int use_link(struct run *r, const struct bench_spec *spec)
{
    if (r->link && same_spec(&r->spec, spec))
        return 0;
    bench_link_close(r->link);
    r->link = NULL;
    r->spec = *spec;
    return bench_link_open(spec, &r->link, r->why);
}

static struct bench_spec spec_of(const struct run *r, const struct item *item)
{
    struct bench_spec spec = {.transport = item->transport,
                              .wait = item->wait,
                              .place = r->o->no_pin ? BENCH_UNPINNED : BENCH_TWO_CORES,
                              .resumes = r->o->resume,
                              .dir = &r->dir};
    if (item->kind == KIND_LONG_CALLS || item->kind == KIND_LONG_POSTS)
        spec.line.one_way_ns = r->o->rtt_ns / 2;
    if (item->kind == KIND_ONE_CORE)
        spec.place = BENCH_ONE_CORE;
    return spec;
}

/* ---- rows ---- */

static void add_row(struct run *r, const struct item *item, const struct figure *f,
                    const char *unit, const char *against)
{
    char size[HW_FORMAT_CHARS];
    hw_bench_row(&r->bench, item->name, f->value, unit, f->baseline);
    if (f->value < f->least)
        hw_bench_invalid(&r->bench,
                         "%.4g %s is less than the line alone takes: measure again while "
                         "the machine is idle",
                         f->value, unit);
    hw_bench_field(&r->bench, "transport", "%s", bench_transport_names[item->transport]);
    hw_bench_field(&r->bench, "wait", "%s", cmd_wait_names[item->wait]);
    hw_bench_field(&r->bench, "size", "%s", hw_format_size(size, item->size));
    hw_bench_field(&r->bench, "depth", "%u", item->depth);
    hw_bench_field(&r->bench, "against", "%s", against);
    hw_bench_field(&r->bench, "spread", "%.1f%%", f->spread * 100);
    hw_bench_judge(&r->bench, targets, ARRAY_LEN(targets));
}

static int row_calls(struct run *r, const struct item *item)
{
    bool single = item->depth == 1;
    struct probe ours = {.shoot = bench_link_calls,
                         .link = r->link,
                         .size = item->size,
                         .depth = item->depth,
                         .kind = single ? FIGURE_US : FIGURE_CALLS};
    struct probe raw = ours;
    struct figure f = {0};
    raw.shoot = bench_link_raw_ping;
    int rc = compare(r, &ours, &raw, &f);
    if (rc == 0)
        add_row(r, item, &f, single ? "us" : "calls/s", bench_link_raw_name(r->link));
    return rc;
}

static int row_stream(struct run *r, const struct item *item)
{
    struct probe ours = {.shoot = bench_link_stream,
                         .link = r->link,
                         .size = item->size,
                         .depth = 1,
                         .kind = FIGURE_GB};
    struct probe raw = ours;
    struct figure f = {0};
    raw.shoot = bench_link_raw_stream;
    int rc = compare(r, &ours, &raw, &f);
    if (rc == 0)
        add_row(r, item, &f, "GB/s", bench_link_raw_name(r->link));
    return rc;
}

static int row_depth_gain(struct run *r, const struct item *item)
{
    struct probe deep = {.shoot = bench_link_calls,
                         .link = r->link,
                         .size = item->size,
                         .depth = item->depth,
                         .kind = FIGURE_CALLS};
    struct probe single = deep;
    struct figure f = {0};
    single.depth = 1;
    int rc = compare(r, &deep, &single, &f);
    if (rc == 0)
        add_row(r, item, &f, "calls/s", "one call in flight");
    return rc;
}

/* All calls at once over a long line: their time less the time that the same bytes take, beside
 * one round trip of a plain socket over the same line. */
static int row_long_calls(struct run *r, const struct item *item)
{
    double rtt[REPS_MAX], took[REPS_MAX];
    struct probe one = {.shoot = bench_link_raw_ping,
                        .link = r->link,
                        .size = item->size,
                        .depth = 1,
                        .count = CALIBRATION_SHOTS};
    struct probe burst = one;
    burst.depth = item->depth;
    burst.count = CALIBRATION_SHOTS / 4;
    struct bench_shot all = {.size = item->size, .depth = item->depth, .count = item->depth};
    int rc = 0;
    for (uint64_t i = 0; i < r->reps && rc == 0; i++) {
        double burst_us = 0;
        uint64_t elapsed = 0;
        rc = cmd_interrupted() ? -EINTR : shoot(r, &one, &rtt[i]);
        if (rc == 0)
            rc = shoot(r, &burst, &burst_us);
        if (rc == 0)
            rc = bench_link_calls(r->link, &all, &elapsed);
        double transfer_us = burst_us > rtt[i] ? burst_us - rtt[i] : 0;
        took[i] = (double)elapsed / 1000 - transfer_us;
    }
    if (rc)
        return rc;
    struct figure f = {.value = hw_median(took, r->reps),
                       .baseline = hw_median(rtt, r->reps),
                       .least = (double)r->o->rtt_ns / 1000 * LINE_SHARE};
    f.spread = spread_of(took, r->reps);
    add_row(r, item, &f, "us", "one round trip of a plain socket");
    return 0;
}

static int row_long_posts(struct run *r, const struct item *item)
{
    double counts[REPS_MAX];
    struct bench_shot all = {.size = item->size, .depth = 1, .count = item->depth};
    for (uint64_t i = 0; i < r->reps; i++) {
        uint64_t writes = 0;
        int rc = cmd_interrupted() ? -EINTR : bench_link_posts(r->link, &all, &writes);
        if (rc)
            return rc;
        counts[i] = (double)writes;
    }
    struct figure f = {.value = hw_median(counts, r->reps), .baseline = NAN};
    f.spread = f.value > 0 ? spread_of(counts, r->reps) : 0;
    add_row(r, item, &f, "writes", "-");
    return 0;
}

static int row_one_core(struct run *r, const struct item *item)
{
    struct bench_link *block = NULL;
    struct bench_spec spec = r->spec;
    spec.wait = RPC_WAIT_BLOCK;
    int rc = bench_link_open(&spec, &block, r->why);
    if (rc)
        return rc;
    struct probe adaptive = {
        .shoot = bench_link_calls, .link = r->link, .size = item->size, .depth = 1};
    struct probe blocking = adaptive;
    struct figure f = {0};
    blocking.link = block;
    rc = compare(r, &adaptive, &blocking, &f);
    if (rc == 0)
        add_row(r, item, &f, "us", "block, same core");
    bench_link_close(block);
    return rc;
}

static int row(struct run *r, const struct item *item)
{
    static int (*const rows[])(struct run *, const struct item *) = {
        [KIND_CALLS] = row_calls,           [KIND_STREAM] = row_stream,
        [KIND_DEPTH_GAIN] = row_depth_gain, [KIND_LONG_CALLS] = row_long_calls,
        [KIND_LONG_POSTS] = row_long_posts, [KIND_ONE_CORE] = row_one_core,
    };
    struct bench_spec spec = spec_of(r, item);
    int rc = use_link(r, &spec);
    return rc ? rc : rows[item->kind](r, item);
}

/* ---- the command ---- */

static enum cmd_exit measure_plan(struct run *r, const struct plan *plan)
{
    struct hw_progress progress;
    int rc = 0;
    size_t i;
    uint64_t end = hw_now_ns() + r->o->limit_ns;
    hw_progress_begin(&progress, "bench-rpc", plan->count);
    for (i = 0; i < plan->count && rc == 0 && hw_now_ns() < end; i++) {
        hw_progress_update(&progress, i);
        r->why[0] = '\0';
        rc = cmd_interrupted() ? -EINTR : row(r, &plan->items[i]);
        if (rc == -EOPNOTSUPP && plan->items[i].transport == BENCH_UCX) {
            hw_bench_leave_out(&r->bench, plan->items[i].name, "a build without UCX");
            rc = 0;
        }
    }
    hw_progress_end(&progress);
    bench_link_close(r->link);
    for (size_t rest = i; rc == 0 && rest < plan->count; rest++)
        hw_bench_leave_out(&r->bench, plan->items[rest].name, "--limit");
    if (rc == 0)
        return CMD_DONE;
    if (cmd_interrupted())
        return cmd_fail(CMD_FAILED, "bench-rpc: interrupted");
    const char *cause = r->why[0] ? r->why : strerror(-rc);
    return cmd_fail(CMD_FAILED, "bench-rpc: %s: %s", plan->items[i - 1].name, cause);
}

static enum cmd_exit run_plan(struct run *r, const struct plan *plan)
{
    if (hw_hist_init(&r->hist))
        return cmd_fail(CMD_FAILED, "out of memory");
    enum cmd_exit code = CMD_FAILED;
    if (bench_dir_make(&r->dir, r->why)) {
        cmd_fail(CMD_FAILED, "bench-rpc: %s", r->why);
    } else {
        code = measure_plan(r, plan);
        bench_dir_remove(&r->dir);
    }
    if (code == CMD_DONE)
        code = measure_print("bench-rpc", &r->bench, r->o->json, r->o->check);
    hw_hist_fini(&r->hist);
    return code;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    (void)operands;
    const struct bench_rpc_options *o = values;
    struct run r = {.o = o, .reps = o->reps, .time_ns = o->time_ns};
    struct plan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return cmd_fail(CMD_FAILED, "out of memory");
    if (o->quick) {
        r.reps = r.reps < 3 ? r.reps : 3;
        r.time_ns = r.time_ns < 10 * HW_MS ? r.time_ns : 10 * HW_MS;
    }
    cmd_catch_interrupts();      /* files and processes are gone before we are */
    setenv("UCX_TLS", "tcp", 0); /* it is compared with our tcp, so it uses TCP, too */
    hw_bench_begin(&r.bench, "rpc");
    plan->o = o;
    plan->bench = &r.bench;
    plan_all(plan);
    enum cmd_exit code =
        plan->count
            ? run_plan(&r, plan)
            : cmd_fail(CMD_USAGE, "bench-rpc: --only: no row's name holds '%s'", o->only.items[0]);
    hw_bench_end(&r.bench);
    free(plan);
    return code;
}

const struct cmd_command cmd_bench_rpc = {
    .name = "bench-rpc",
    .summary = "measure the RPC beside the raw limits of this machine",
    .operands = "",
    .description =
        "Measures calls and streams over every transport (tcp, unix, shm, tls, and ucx where it is "
        "built in), by size, depth and way of waiting, between two processes on a core each. "
        "Beside each figure stand the raw limit of the same run (plain sockets, a flag in shared "
        "memory, bare OpenSSL, with the same waiting), the ratio, and the target where there is "
        "one.  Rows are named TRANSPORT.SIZE.dDEPTH.WAITING.",
    .options = options,
    .environment = environment,
    .examples = "hawser bench-rpc --quick\n"
                "hawser bench-rpc --only tcp.64B,unix.64B --reps 11\n"
                "hawser bench-rpc --json > rpc.json",
    .values_size = sizeof(struct bench_rpc_options),
    .run = run,
};
