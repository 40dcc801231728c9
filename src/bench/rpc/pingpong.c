/* hawser pingpong - copyrpc_pingpong: the bare limit of one endpoint, beside the raw transport. */
#include "base/order.h"
#include "bench/bench.h"
#include "bench/rpc/link.h"
#include "command/kvranks.h"

#include "base/report/bench.h"
#include "base/units.h"
#include "command/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REPS_MAX = 101 };

struct pingpong_options {
    int transport, wait;
    uint64_t size, depth, count, reps;
    bool no_pin, json;
};

#define AT(field) offsetof(struct pingpong_options, field)
static const struct cmd_option options[] = {
    {"transport", 't', CMD_CHOICE, AT(transport), "between the two processes", NULL, "shm", 0, 0,
     bench_transport_names},
    {"wait", 0, CMD_CHOICE, AT(wait), "how both sides wait, raw and ours", NULL, "adaptive", 0, 0,
     cmd_wait_names},
    {"size", 0, CMD_SIZE, AT(size), "of a message, each way", "SIZE", "64", 1, BENCH_MESSAGE_MAX},
    {"queue-depth", 'q', CMD_U64, AT(depth), "calls in flight", "N", "1", 1, 1024},
    {"count", 0, CMD_U64, AT(count), "calls of a repetition", "N", "20000", 100, 10000000},
    {"reps", 'r', CMD_U64, AT(reps), "repetitions; figures are their medians", "N", "5", 1,
     REPS_MAX},
    {"no-pin", 0, CMD_FLAG, AT(no_pin), "let the kernel place the two; without it each has a core"},
    {"json", 'j', CMD_FLAG, AT(json), "print one JSON object instead of a table"},
    {NULL},
};

struct figures {
    double p50_us[REPS_MAX], p99_us[REPS_MAX], rate[REPS_MAX];
};

typedef int shoot_fn(struct bench_link *link, const struct bench_shot *shot, uint64_t *elapsed_ns);

/* Both sides in turn, so that other work of the machine falls on both. */
static int measure(const struct pingpong_options *o, struct bench_link *link, struct figures out[2])
{
    static shoot_fn *const sides[2] = {bench_link_raw_ping, bench_link_calls};
    struct hw_hist hist;
    int rc = hw_hist_init(&hist);
    for (uint64_t i = 0; i < 2 * o->reps && rc == 0; i++) {
        struct bench_shot shot = {.size = (uint32_t)o->size,
                                  .depth = (uint32_t)o->depth,
                                  .count = o->count,
                                  .hist = &hist};
        uint64_t elapsed = 1;
        hw_hist_reset(&hist);
        rc = sides[i % 2](link, &shot, &elapsed);
        out[i % 2].p50_us[i / 2] = (double)hw_hist_percentile(&hist, 50) / 1e3;
        out[i % 2].p99_us[i / 2] = (double)hw_hist_percentile(&hist, 99) / 1e3;
        out[i % 2].rate[i / 2] = (double)o->count * 1e9 / (double)elapsed;
    }
    hw_hist_fini(&hist);
    return rc;
}

static enum cmd_exit print(const struct pingpong_options *o, struct figures f[2],
                           const char *raw_name)
{
    struct hw_bench bench;
    char text[HW_FORMAT_CHARS];
    hw_bench_begin(&bench, "pingpong");
    const struct {
        const char *name, *unit;
        double *ours, *raw;
    } rows[] = {{"copyrpc.p50", "us", f[1].p50_us, f[0].p50_us},
                {"copyrpc.p99", "us", f[1].p99_us, f[0].p99_us},
                {"copyrpc.rate", "calls/s", f[1].rate, f[0].rate}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        double ours = hw_median(rows[i].ours, o->reps);
        /* Raw links have one exchange in flight: its bytes are those of `depth` calls. */
        double raw = i == 2 && o->depth > 1 ? NAN : hw_median(rows[i].raw, o->reps);
        hw_bench_row(&bench, rows[i].name, ours, rows[i].unit, raw);
        hw_bench_field(&bench, "transport", "%s", bench_transport_names[o->transport]);
        hw_bench_field(&bench, "wait", "%s", cmd_wait_names[o->wait]);
        hw_bench_field(&bench, "size", "%s", hw_format_size(text, o->size));
        hw_bench_field(&bench, "depth", "%llu", (unsigned long long)o->depth);
        hw_bench_field(&bench, "against", "%s", raw_name);
    }
    enum cmd_exit code = measure_print("pingpong", &bench, o->json, false);
    hw_bench_end(&bench);
    return code;
}

static enum cmd_exit run_in(const struct pingpong_options *o, const struct bench_dir *dir)
{
    char why[RPC_WHY_CHARS] = "";
    struct bench_link *link;
    struct bench_spec spec = {.transport = (enum bench_transport)o->transport,
                              .wait = (enum rpc_wait_mode)o->wait,
                              .place = o->no_pin ? BENCH_UNPINNED : BENCH_TWO_CORES,
                              .dir = dir};
    struct figures *f = calloc(2, sizeof(*f));
    if (!f)
        return cmd_fail(CMD_FAILED, "out of memory");
    enum cmd_exit code;
    int rc = bench_link_open(&spec, &link, why);
    if (rc) {
        code = cmd_fail(CMD_FAILED, "pingpong: %s", why[0] ? why : strerror(-rc));
    } else {
        rc = measure(o, link, f);
        code = rc ? cmd_fail(CMD_FAILED, "pingpong: %s", strerror(-rc))
                  : print(o, f, bench_link_raw_name(link));
        bench_link_close(link);
    }
    free(f);
    return code;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    (void)operands;
    const struct pingpong_options *o = values;
    char why[RPC_WHY_CHARS];
    struct bench_dir dir;
    /* As many calls are timed together: fewer have no time. */
    if (o->count < o->depth)
        return cmd_fail(CMD_USAGE, "pingpong: --count %llu is less than --queue-depth %llu",
                        (unsigned long long)o->count, (unsigned long long)o->depth);
    setenv("UCX_TLS", "tcp", 0); /* it is compared with our tcp, so it uses TCP, too */
    if (bench_dir_make(&dir, why))
        return cmd_fail(CMD_FAILED, "pingpong: %s", why);
    enum cmd_exit code = run_in(o, &dir);
    bench_dir_remove(&dir);
    return code;
}

const struct cmd_command cmd_pingpong = {
    .name = "pingpong",
    .summary = "copyrpc_pingpong: one endpoint's round trip beside the raw transport",
    .operands = "",
    .description =
        "Two processes, one endpoint, calls back and forth in a tight loop: what copyrpc can do at "
        "best, and what the bare transport does in the same run with the same way of waiting.",
    .options = options,
    .environment =
        (const struct cmd_env[]){{"UCX_TLS", "what UCX may use [default here: tcp]"}, {NULL}},
    .examples = "hawser pingpong\n"
                "hawser pingpong --transport tcp --wait busy --queue-depth 16",
    .values_size = sizeof(struct pingpong_options),
    .run = run,
};
