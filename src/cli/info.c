/* hawser info - which server is at the other end, and how far away. */
#include "cli/commands.h"
#include "cli/survey.h"

#include "base/clock.h"
#include "base/report/bench.h"
#include "base/report/json.h"
#include "base/report/progress.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

enum { BAR_WIDTH = 40, BAR_ROWS = 12 };

struct info_options {
    struct cmd_connect_options connect;
    uint64_t duration_ns;
    bool no_bench;
    bool json;
};

#define AT(field) offsetof(struct info_options, field)
static const struct cmd_option options[] = {
    CMD_GROUP_AT(struct info_options, connect, cmd_connect_table),
    {"duration", 'd', CMD_DURATION, AT(duration_ns),
     "how long to measure each of round trip, upload and download", "TIME", "500ms", HW_MS,
     60 * HW_SEC},
    {"no-bench", 0, CMD_FLAG, AT(no_bench), "measure nothing: connect, describe, leave"},
    {"json", 'j', CMD_FLAG, AT(json),
     "print one JSON object: the figures as every benchmark of hawser prints them, and the details "
     "under \"server\" and \"connection\""},
    {NULL},
};

static const struct cmd_env environment[] = {
    CMD_ENV_OF(cmd_connect_env),
    {"VENUS_EARLY_FENCE", "only said: how programs that this environment starts find fences"},
    {"VENUS_TRACE_NET", "1: a summary of the traffic every 100 messages"},
    {NULL},
};

/* ---- measuring ---- */

static int measure_all(struct survey *r, uint64_t duration_ns)
{
    struct hw_progress progress;
    hw_progress_begin(&progress, "measuring", 3);
    int rc = survey_rtt(r, duration_ns);
    hw_progress_update(&progress, 1);
    if (rc == 0)
        rc = survey_up(r, duration_ns);
    hw_progress_update(&progress, 2);
    if (rc == 0)
        rc = survey_down(r, duration_ns);
    hw_progress_end(&progress);
    return rc;
}

/* ---- as text ---- */

static const char *transport_name(const struct survey *r)
{
    return rpc_ep_transport(r->link.ep)->ops->name;
}

static void print_heaps(const struct serve_device *d)
{
    char size[HW_FORMAT_CHARS];
    for (uint32_t i = 0; i < d->heap_count; i++)
        printf("%s%s%s", i ? ", " : "", hw_format_size(size, d->heaps[i].bytes),
               d->heaps[i].device_local ? " device-local" : "");
}

static void print_devices(const struct serve_devices *devices)
{
    if (devices->count == 0)
        printf("devices     none: %s\n", devices->note);
    for (uint32_t i = 0; i < devices->count; i++) {
        const struct serve_device *d = &devices->items[i];
        printf("device %-4u %s (%s), Vulkan %u.%u.%u\n", i, d->name,
               serve_device_type_name(d->type), d->api_version >> 22 & 0x7f,
               d->api_version >> 12 & 0x3ff, d->api_version & 0xfff);
        printf("            driver %s; memory ", *d->driver ? d->driver : "unnamed");
        print_heaps(d);
        putchar('\n');
    }
}

static void print_models(const struct llm_served *s)
{
    for (uint32_t i = 0; i < s->model_count; i++)
        printf("model       %s (%s), context %u, %s%s\n", s->models[i].name, s->models[i].arch,
               s->models[i].context, llm_served_state(s),
               s->models[i].is_aside ? ", weights aside" : "");
}

/* Equal steps from the least value to the 99th percentile, so that one late answer does not
 * squeeze all others into one row; the last row has the rest. */
static void print_bars(const struct hw_hist *h)
{
    uint64_t low = h->min, high = hw_hist_percentile(h, 99);
    uint64_t width = (high - low) / (BAR_ROWS - 1) + 1;
    uint64_t counts[BAR_ROWS], most = 1, below = 0;
    for (int i = 0; i < BAR_ROWS; i++) {
        uint64_t upto =
            i == BAR_ROWS - 1 ? h->count : hw_hist_count_below(h, low + (uint64_t)(i + 1) * width);
        counts[i] = upto - below;
        below = upto;
        if (counts[i] > most)
            most = counts[i];
    }
    for (int i = 0; i < BAR_ROWS; i++) {
        int bar = (int)(counts[i] * BAR_WIDTH / most);
        printf("  %s%9.2f us %8llu  %.*s\n", i == BAR_ROWS - 1 ? ">=" : "  ",
               (double)(low + (uint64_t)i * width) / 1000, (unsigned long long)counts[i], bar,
               "########################################");
    }
}

static void print_rtt(const struct hw_hist *h)
{
    static const double at[] = {0, 50, 90, 99, 99.9, 100};
    static const char *const names[] = {"min", "p50", "p90", "p99", "p99.9", "max"};
    printf("\nround trip, 64 B, one at a time, %llu samples\n  us:", (unsigned long long)h->count);
    for (size_t i = 0; i < ARRAY_LEN(at); i++)
        printf("%s %s %.2f", i ? "," : "", names[i], (double)hw_hist_percentile(h, at[i]) / 1000);
    printf("\n");
    print_bars(h);
}

/* What a program that times its fences must know. */
static void print_fences(void)
{
    bool early = true;
    (void)hw_env_bool("VENUS_EARLY_FENCE", true, &early);
    if (early)
        printf("fences      early where no result can be seen; to measure time: "
               "hawser run --honest-fences\n");
    else
        printf("fences      honest: VENUS_EARLY_FENCE=0\n");
}

static void print_text(const struct survey *r)
{
    const struct server_info *s = &r->server;
    char time[HW_FORMAT_CHARS];
    printf("server      %s, hawser %s (commit %s, protocol %u to %u)\n", r->link.address,
           s->version, s->commit, s->protocol_min, s->protocol_max);
    printf("client      hawser %s (commit %s, protocol %d to %d, Vulkan %s)\n", HAWSER_VERSION,
           hw_bench_commit(), RPC_VERSION_MIN, RPC_VERSION_MAX, HAWSER_VULKAN_VERSION);
    printf("host        %s: %s\n", s->node, s->host);
    printf("connection  %s to %s, %s, %s, made in %s\n", transport_name(r), rpc_ep_peer(r->link.ep),
           r->link.tls ? "TLS 1.3" : "not encrypted", r->link.token ? "token" : "no token",
           hw_format_duration(time, r->link.connect_ns));
    print_devices(&s->devices);
    if (s->devices.count > 0)
        print_fences();
    print_models(&r->served);
    if (r->rtt.count == 0)
        return;
    print_rtt(&r->rtt);
    printf("\nbandwidth   up %.2f GB/s, down %.2f GB/s, in messages of 1 MiB\n",
           r->up_bytes_s / 1e9, r->down_bytes_s / 1e9);
}

/* ---- as JSON ---- */

static void json_row(struct hw_json *j, const char *name, double value, const char *unit)
{
    hw_json_object_begin(j);
    hw_json_put_string(j, "name", name);
    hw_json_put_double(j, "value", value);
    hw_json_put_string(j, "unit", unit);
    hw_json_key(j, "baseline");
    hw_json_null(j);
    hw_json_key(j, "ratio");
    hw_json_null(j);
    hw_json_object_end(j);
}

static void json_rows(struct hw_json *j, const struct survey *r)
{
    hw_json_array_at(j, "rows");
    if (r->rtt.count > 0) {
        static const double at[] = {0, 50, 90, 99, 99.9, 100};
        static const char *const names[] = {"rtt min", "rtt p50",   "rtt p90",
                                            "rtt p99", "rtt p99.9", "rtt max"};
        for (size_t i = 0; i < ARRAY_LEN(at); i++)
            json_row(j, names[i], (double)hw_hist_percentile(&r->rtt, at[i]) / 1000, "us");
        json_row(j, "upload", r->up_bytes_s / 1e9, "GB/s");
        json_row(j, "download", r->down_bytes_s / 1e9, "GB/s");
    }
    json_row(j, "connect", (double)r->link.connect_ns / 1000, "us");
    hw_json_array_end(j);
}

static void json_device(struct hw_json *j, const struct serve_device *d)
{
    char version[32];
    snprintf(version, sizeof(version), "%u.%u.%u", d->api_version >> 22 & 0x7f,
             d->api_version >> 12 & 0x3ff, d->api_version & 0xfff);
    hw_json_object_begin(j);
    hw_json_put_string(j, "name", d->name);
    hw_json_put_string(j, "type", serve_device_type_name(d->type));
    hw_json_put_string(j, "vulkan", version);
    hw_json_put_string(j, "driver", d->driver);
    hw_json_array_at(j, "heaps");
    for (uint32_t i = 0; i < d->heap_count; i++) {
        hw_json_object_begin(j);
        hw_json_put_u64(j, "bytes", d->heaps[i].bytes);
        hw_json_put_bool(j, "device_local", d->heaps[i].device_local);
        hw_json_object_end(j);
    }
    hw_json_array_end(j);
    hw_json_object_end(j);
}

static void json_models(struct hw_json *j, const struct llm_served *s)
{
    hw_json_array_at(j, "models");
    for (uint32_t i = 0; i < s->model_count; i++) {
        hw_json_object_begin(j);
        hw_json_put_string(j, "name", s->models[i].name);
        hw_json_put_string(j, "arch", s->models[i].arch);
        hw_json_put_u64(j, "context", s->models[i].context);
        hw_json_put_bool(j, "weights_aside", s->models[i].is_aside);
        hw_json_object_end(j);
    }
    hw_json_array_end(j);
}

static void json_server(struct hw_json *j, const struct server_info *s,
                        const struct llm_served *served)
{
    hw_json_object_at(j, "server");
    hw_json_put_string(j, "version", s->version);
    hw_json_put_string(j, "commit", s->commit);
    hw_json_put_string(j, "node", s->node);
    hw_json_put_string(j, "host", s->host);
    hw_json_array_at(j, "devices");
    for (uint32_t i = 0; i < s->devices.count; i++)
        json_device(j, &s->devices.items[i]);
    hw_json_array_end(j);
    hw_json_put_string(j, "devices_note", s->devices.note);
    json_models(j, served);
    hw_json_object_end(j);
}

static int print_json(const struct survey *r)
{
    struct hw_json j;
    char host[HW_BENCH_HOST_CHARS], date[HW_UTC_CHARS];
    hw_bench_host(host);
    hw_utc(date);
    hw_json_begin(&j, stdout);
    hw_json_object_begin(&j);
    hw_json_put_string(&j, "benchmark", "info");
    hw_json_put_string(&j, "commit", hw_bench_commit());
    hw_json_put_string(&j, "host", host);
    hw_json_put_string(&j, "date", date);
    json_rows(&j, r);
    hw_json_object_at(&j, "connection");
    hw_json_put_string(&j, "address", r->link.address);
    hw_json_put_string(&j, "transport", transport_name(r));
    hw_json_put_string(&j, "peer", rpc_ep_peer(r->link.ep));
    hw_json_put_bool(&j, "tls", r->link.tls);
    hw_json_put_bool(&j, "token", r->link.token);
    hw_json_object_end(&j);
    json_server(&j, &r->server, &r->served);
    hw_json_object_end(&j);
    return hw_json_finish(&j);
}

/* ---- the command ---- */

static enum cmd_exit examine(struct survey *r, const struct info_options *o)
{
    int rc = survey_ask(r);
    if (rc == 0 && !o->no_bench)
        rc = measure_all(r, o->duration_ns);
    if (rc)
        return cmd_fail(cmd_exit_for(rc), "%s: %s; %s", r->link.address, strerror(-rc),
                        rpc_ep_reason(r->link.ep));
    if (!o->json) {
        print_text(r);
        return CMD_DONE;
    }
    rc = print_json(r);
    return rc ? cmd_output_lost(rc) : CMD_DONE;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    const struct info_options *o = values;
    struct survey *r = survey_create();
    if (!r)
        return cmd_fail(CMD_FAILED, "out of memory");
    enum cmd_exit code =
        cmd_link_open(&r->link, &o->connect, operands->count ? operands->items[0] : NULL);
    if (code == CMD_DONE)
        code = examine(r, o);
    survey_destroy(r);
    return code;
}

const struct cmd_command cmd_info = {
    .name = "info",
    .summary = "describe a server: versions, devices, round trip, bandwidth",
    .operands = "[ADDR]",
    .operands_max = 1,
    .description =
        "Connects to the server at ADDR (host:port, unix:/path, shm:/path, ucx:host:port) and "
        "prints the versions of both sides, how the connection is made and secured, the server's "
        "devices, the round trip as percentiles and a histogram, and the bandwidth up and down.",
    .options = options,
    .environment = environment,
    .examples = "hawser info\n"
                "hawser info unix:/run/hawser.sock --json\n"
                "hawser info gpu1.example:28100 --fingerprint HEX --token-file token",
    .values_size = sizeof(struct info_options),
    .run = run,
};
