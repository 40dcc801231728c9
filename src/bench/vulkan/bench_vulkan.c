/* hawser bench-vulkan - a GPU across a connection beside the same GPU without one and beside the
 * raw limit of the connection, measured in the same run. */
#include "bench/vulkan/bench_vulkan.h"
#include "bench/bench.h"

#include "base/clock.h"
#include "command/drivers.h"
#include "command/interrupt.h"
#include "command/measure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct bench_vk_options, field)
static const struct cmd_option options[] = {
    {"quick", 'q', CMD_FLAG, AT(quick),
     "one repetition of 20 ms, transfers of 16 MiB: some seconds"},
    {"only", 'o', CMD_LIST, AT(only),
     "only rows whose name holds TEXT, and what is measured with them: .tcp, two-, Gbit, upload",
     "TEXT"},
    {"native", 'n', CMD_FLAG, AT(native),
     "only the drivers of this machine, without any connection"},
    {"software", 0, CMD_FLAG, AT(software),
     "use a software GPU, here and at the server that is started"},
    {"device", 'd', CMD_U64, AT(device), "the N-th device of the driver", "N", "0", 0, 15},
    {"size", 's', CMD_SIZE, AT(size),
     "of a transfer; six times as much memory is needed here and there", "BYTES", "256MiB", 1 << 20,
     UINT64_C(4) << 30},
    {"reps", 'r', CMD_U64, AT(reps), "repetitions; figures are their medians", "N", "5", 1,
     BENCH_VK_REPS_MAX},
    {"time", 't', CMD_DURATION, AT(time_ns), "how long one repetition of one side lasts", "TIME",
     "200ms", HW_MS, 10 * HW_SEC},
    {"check", 0, CMD_FLAG, AT(check), "exit 1 when a row misses its target or is invalid"},
    {"json", 'j', CMD_FLAG, AT(json), "print one JSON object instead of a table"},
    {NULL},
};

static const struct cmd_env environment[] = {
    {"VK_DRIVER_FILES", "Vulkan drivers to use instead of the system's"},
    {"HAWSER_ICD", "the manifest of Hawser's driver, where it is not beside this program"},
    {"VENUS_TLS_CA, VENUS_TLS_FINGERPRINT, VENUS_TOKEN_FILE", "how to trust ADDR, as for info"},
    {NULL},
};

/* ---- what is measured ---- */

#define ON(kind) (1u << (kind))

enum { NEEDS_LATE = 1, NEEDS_SECOND = 2, NEEDS_SWITCHES = 4, NEEDS_MANY = 8 };

/* Rows that are measured together: on which lines, and what they need besides one job process. */
static const struct rows {
    const char *kinds[BENCH_VK_SWITCHES + 1];
    unsigned on, needs;
    bench_vk_rows_fn *measure;
} all_rows[] = {
    {{"cycle", "exchanges", "messages", "writes", "bytes-up", "bytes-down"},
     ON(BENCH_VK_UNIX) | ON(BENCH_VK_TCP) | ON(BENCH_VK_LONG),
     0,
     bench_vk_cycle},
    {{"early"},
     ON(BENCH_VK_UNIX) | ON(BENCH_VK_TCP) | ON(BENCH_VK_LONG),
     NEEDS_LATE,
     bench_vk_chain},
    {{"polled", "fence-status"}, ON(BENCH_VK_TCP), 0, bench_vk_polls},
    {{"record"}, ON(BENCH_VK_TCP), 0, bench_vk_record},
    {{"dirty-page"}, ON(BENCH_VK_TCP), 0, bench_vk_dirty},
    {{"upload", "readback"},
     ON(BENCH_VK_UNIX) | ON(BENCH_VK_TCP) | ON(BENCH_VK_RATE),
     0,
     bench_vk_transfers},
    {{"coalescing", "pipelining", "transport_tuning", "quiet_batches", "small_uploads",
      "whole_pages", "references", "stripes"},
     ON(BENCH_VK_TCP),
     NEEDS_SWITCHES,
     bench_vk_optimisations},
    {{"two-clients", "two-tiny"}, ON(BENCH_VK_TCP), NEEDS_SECOND, bench_vk_two},
    {{"four-clients", "eight-clients"}, ON(BENCH_VK_TCP), NEEDS_MANY, bench_vk_many},
};

static bool is_wanted(const struct bench_vk_options *o, const char *kind, const char *site)
{
    char name[64];
    snprintf(name, sizeof(name), "%s.%s", kind, site);
    for (size_t i = 0; i < o->only.count; i++) {
        if (strstr(name, o->only.items[i]))
            return true;
    }
    return o->only.count == 0;
}

/* Starting so many programs takes longer than all that is quick. */
static bool is_too_long(const struct bench_vk_options *o, const struct rows *rows)
{
    return o->quick && o->only.count == 0 && rows->needs & NEEDS_MANY;
}

static bool are_wanted(const struct bench_vk_options *o, const struct rows *rows,
                       const struct bench_vk_site *site)
{
    bool wanted = false;
    for (size_t i = 0; rows->kinds[i]; i++)
        wanted |= is_wanted(o, rows->kinds[i], site->name);
    return wanted && rows->on & ON(site->kind) && !is_too_long(o, rows);
}

/* Tells the report that these rows of a site are not measured. */
static void leave_out(struct bench_vk_run *r, const struct rows *rows,
                      const struct bench_vk_site *site, const char *why)
{
    char name[64];
    bool counts = rows->measure != bench_vk_cycle || site->kind == BENCH_VK_TCP;
    for (size_t i = 0; rows->on & ON(site->kind) && rows->kinds[i] && (i == 0 || counts); i++) {
        snprintf(name, sizeof(name), "%s.%s", rows->kinds[i], site->name);
        hw_bench_leave_out(&r->bench, name, why);
    }
}

/* What the rows of a site need together; negative: there are none. */
static int needs_of(const struct bench_vk_options *o, const struct bench_vk_site *site)
{
    int needs = -1;
    for (size_t i = 0; i < ARRAY_LEN(all_rows); i++) {
        if (are_wanted(o, &all_rows[i], site))
            needs = (needs < 0 ? 0 : needs) | (int)all_rows[i].needs;
    }
    return needs;
}

static int measure_site(struct bench_vk_run *r, struct bench_vk_site *site)
{
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(all_rows) && rc == 0; i++) {
        if (are_wanted(r->o, &all_rows[i], site))
            rc = all_rows[i].measure(r, site);
        else
            leave_out(r, &all_rows[i], site,
                      is_too_long(r->o, &all_rows[i]) ? "--quick" : "--only");
    }
    return rc;
}

/* ---- the sides ---- */

static int start_process(struct bench_vk_run *r, struct bench_vk_site *site, const char *perf,
                         struct bench_delay *relay, struct bench_process *process)
{
    char address[RPC_ADDR_HOST_CHARS + 16], why[BENCH_PROCESS_WHY] = "";
    bool far = bench_delay_is_needed(&site->line);
    snprintf(address, sizeof(address), "%s", site->address);
    int rc = 0;
    if (far) {
        rc = bench_delay_start(r->serve.port, site->line, relay);
        snprintf(address, sizeof(address), "127.0.0.1:%u", relay->port);
    }
    struct bench_process_params params = {.manifest = r->manifest,
                                          .servers = address,
                                          .perf = perf,
                                          .far = far,
                                          .device = (uint32_t)r->o->device};
    if (rc == 0)
        rc = bench_process_start(&params, process, why);
    if (rc)
        snprintf(r->why, sizeof(r->why), "%s: %s", site->name, why[0] ? why : strerror(-rc));
    return rc;
}

static int start_native(struct bench_vk_run *r, struct bench_process *process)
{
    char why[BENCH_PROCESS_WHY] = "";
    struct bench_process_params params = {.device = (uint32_t)r->o->device};
    int rc = bench_process_start(&params, process, why);
    if (rc)
        snprintf(r->why, sizeof(r->why),
                 "the drivers of this machine: %.120s; --software uses a software GPU", why);
    return rc;
}

static int start_others(struct bench_vk_run *r, struct bench_vk_site *site, int needs)
{
    unsigned count = needs & NEEDS_MANY ? BENCH_VK_CLIENTS_MAX - 1 : 1;
    int rc = 0;
    for (unsigned i = 0; i < count && rc == 0; i++)
        rc = start_process(r, site, "", &site->relay, &site->others[i]);
    return rc || !r->has_native || !(needs & NEEDS_SECOND) ? rc
                                                           : start_native(r, &r->native_second);
}

static int open_peer(struct bench_vk_site *site)
{
    struct cmd_connect_options connect = {.timeout_ns = 5 * HW_SEC};
    return cmd_link_open(&site->peer, &connect, site->address) == CMD_DONE ? 0 : -ECONNREFUSED;
}

/* The raw link last: it pins this process and its own to a core each, so that neither spins in the
 * other's way, and job processes must not inherit that. */
static int open_site(struct bench_vk_run *r, struct bench_vk_site *site, int needs)
{
    struct bench_spec spec = {.transport = site->kind == BENCH_VK_UNIX ? BENCH_UNIX : BENCH_TCP,
                              .wait = RPC_WAIT_ADAPTIVE,
                              .place = BENCH_TWO_CORES,
                              .line = site->line,
                              .dir = &r->dir};
    int rc = start_process(r, site, "", &site->relay, &site->process);
    if (rc == 0 && needs & NEEDS_LATE)
        rc = start_process(r, site, "no_early_fences", &site->late_relay, &site->late);
    for (size_t i = 0; i < BENCH_VK_SWITCHES && rc == 0 && needs & NEEDS_SWITCHES; i++)
        rc = start_process(r, site, bench_vk_switches[i].name, &site->relay, &site->without[i]);
    if (rc == 0 && needs & (NEEDS_SECOND | NEEDS_MANY))
        rc = start_others(r, site, needs);
    if (rc == 0)
        rc = r->serve.pid ? bench_link_open(&spec, &site->raw, r->why) : open_peer(site);
    return rc;
}

/* Once all has gone well, relays carry the last words, too. */
static void close_site(struct bench_vk_run *r, struct bench_vk_site *site, bool well)
{
    bench_process_stop(&site->process);
    bench_process_stop(&site->late);
    for (size_t i = 0; i < ARRAY_LEN(site->others); i++)
        bench_process_stop(&site->others[i]);
    bench_process_stop(&r->native_second);
    for (size_t i = 0; i < BENCH_VK_SWITCHES; i++)
        bench_process_stop(&site->without[i]);
    if (well) {
        bench_delay_finish(&site->relay);
        bench_delay_finish(&site->late_relay);
    }
    bench_delay_stop(&site->relay);
    bench_delay_stop(&site->late_relay);
    bench_link_close(site->raw);
    if (site->peer.ep)
        cmd_link_close(&site->peer);
}

/* The ways to a server of our own. */
static const struct bench_vk_site own_sites[] = {
    {.name = "unix", .kind = BENCH_VK_UNIX},
    {.name = "tcp", .kind = BENCH_VK_TCP},
    {.name = "1ms", .kind = BENCH_VK_LONG, .line.one_way_ns = HW_MS / 2},
    {.name = "10ms", .kind = BENCH_VK_LONG, .line.one_way_ns = 5 * HW_MS},
    {.name = "1Gbit", .kind = BENCH_VK_RATE, .line.bits_s = UINT64_C(1000000000)},
    {.name = "10Gbit", .kind = BENCH_VK_RATE, .line.bits_s = UINT64_C(10000000000)},
    {.name = "25Gbit", .kind = BENCH_VK_RATE, .line.bits_s = UINT64_C(25000000000)},
};
_Static_assert(ARRAY_LEN(own_sites) <= BENCH_VK_SITES_MAX, "a run has room for all");

static int plan_own(struct bench_vk_run *r)
{
    char socket[sizeof(r->dir.path) + 16];
    snprintf(socket, sizeof(socket), "unix:%s/gpu", r->dir.path);
    const char *const argv[] = {"hawser",      "serve",    "--no-devices", "--listen",
                                "127.0.0.1:0", "--listen", socket,         NULL};
    int rc = bench_child_start(&r->serve, argv, "listening on ");
    if (rc) {
        snprintf(r->why, sizeof(r->why), "the server did not start");
        return rc;
    }
    for (size_t i = 0; i < ARRAY_LEN(own_sites); i++) {
        struct bench_vk_site *site = &r->sites[r->site_count++];
        *site = own_sites[i];
        if (site->kind == BENCH_VK_UNIX)
            snprintf(site->address, sizeof(site->address), "%s", socket);
        else
            snprintf(site->address, sizeof(site->address), "127.0.0.1:%u", r->serve.port);
    }
    return 0;
}

/* A server that is there already.  It is called again once the job processes are there: one that is
 * forked while this one uses UCX cannot use it. */
static enum cmd_exit plan_peer(struct bench_vk_run *r, const char *operand)
{
    struct bench_vk_site *site = &r->sites[r->site_count++];
    struct cmd_connect_options connect = {.timeout_ns = 5 * HW_SEC};
    *site = (struct bench_vk_site){.name = "remote", .kind = BENCH_VK_TCP};
    struct cmd_link peer;
    enum cmd_exit code = cmd_link_open(&peer, &connect, operand);
    if (code != CMD_DONE)
        return code;
    snprintf(site->address, sizeof(site->address), "%s", peer.address);
    cmd_link_close(&peer);
    return CMD_DONE;
}

static int measure_sites(struct bench_vk_run *r)
{
    int rc = 0;
    for (size_t i = 0; i < r->site_count && rc == 0; i++) {
        struct bench_vk_site *site = &r->sites[i];
        int needs = needs_of(r->o, site);
        if (needs >= 0)
            rc = open_site(r, site, needs);
        if (rc == 0)
            rc = measure_site(r, site);
        close_site(r, site, rc == 0);
    }
    return rc;
}

/* ---- the command ---- */

/* With ADDR the GPU is somewhere else: one here is worth a comparison, but not needed. */
static enum cmd_exit measure(struct bench_vk_run *r, const char *operand)
{
    int rc = start_native(r, &r->native);
    r->has_native = rc == 0;
    if (rc && operand)
        rc = 0;
    bool wanted = is_wanted(r->o, "cycle", "native");
    if (rc == 0 && r->has_native && wanted)
        rc = bench_vk_native_cycle(r);
    else if (rc == 0)
        hw_bench_leave_out(&r->bench, "cycle.native",
                           wanted ? "a machine without a Vulkan driver" : "--only");
    for (size_t s = 0; s < ARRAY_LEN(own_sites) && r->o->native; s++) {
        for (size_t i = 0; i < ARRAY_LEN(all_rows); i++)
            leave_out(r, &all_rows[i], &own_sites[s], "--native");
    }
    if (rc == 0 && operand && !r->o->native) {
        enum cmd_exit code = plan_peer(r, operand);
        if (code != CMD_DONE)
            return code;
    } else if (rc == 0 && !r->o->native) {
        rc = plan_own(r);
    }
    if (rc == 0)
        rc = measure_sites(r);
    if (rc == 0 && r->row_count == 0)
        return cmd_fail(CMD_USAGE, "bench-vulkan: --only: no row's name holds '%s'",
                        r->o->only.items[0]);
    if (rc == 0)
        return CMD_DONE;
    if (cmd_interrupted())
        return cmd_fail(CMD_FAILED, "bench-vulkan: interrupted");
    return cmd_fail(CMD_FAILED, "bench-vulkan: %s", r->why[0] ? r->why : strerror(-rc));
}

static enum cmd_exit run_all(struct bench_vk_run *r, const char *operand)
{
    if (hw_hist_init(&r->hist))
        return cmd_fail(CMD_FAILED, "out of memory");
    hw_bench_begin(&r->bench, "vulkan");
    enum cmd_exit code = CMD_FAILED;
    if (bench_dir_make(&r->dir, r->why)) {
        cmd_fail(CMD_FAILED, "bench-vulkan: %s", r->why);
    } else {
        code = measure(r, operand);
        bench_process_stop(&r->native);
        bench_child_stop(&r->serve);
        bench_dir_remove(&r->dir);
    }
    if (code == CMD_DONE)
        code = measure_print("bench-vulkan", &r->bench, r->o->json, r->o->check);
    hw_bench_end(&r->bench);
    hw_hist_fini(&r->hist);
    return code;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    const struct bench_vk_options *o = values;
    const char *operand = operands->count ? operands->items[0] : NULL;
    if (o->native && operand)
        return cmd_fail(CMD_USAGE, "bench-vulkan: --native measures no server: leave ADDR out");
    enum cmd_exit code = o->software ? cmd_software() : CMD_DONE;
    if (code != CMD_DONE)
        return code;
    struct bench_vk_run *r = calloc(1, sizeof(*r));
    if (!r)
        return cmd_fail(CMD_FAILED, "out of memory");
    *r = (struct bench_vk_run){.o = o, .reps = o->reps, .time_ns = o->time_ns, .size = o->size};
    if (o->quick) {
        r->reps = 1;
        r->time_ns = r->time_ns < 20 * HW_MS ? r->time_ns : 20 * HW_MS;
        r->size = r->size < (16 << 20) ? r->size : 16 << 20;
    }
    cmd_catch_interrupts(); /* files and processes are gone before we are */
    if (!o->native && !cmd_find_manifest(r->manifest))
        code = cmd_fail(CMD_FAILED, "bench-vulkan: the driver's manifest, hawser_icd.json, is not "
                                    "where this program was built or installed; set HAWSER_ICD to "
                                    "its path");
    else
        code = run_all(r, operand);
    free(r);
    return code;
}

const struct cmd_command cmd_bench_vulkan = {
    .name = "bench-vulkan",
    .summary = "measure remote Vulkan beside native Vulkan and the raw limits",
    .operands = "[ADDR]",
    .operands_max = 1,
    .description =
        "Measures a GPU through Hawser's driver over a Unix socket, over TCP, and over lines of 1 "
        "ms, 10 ms, 1, 10 and 25 Gbit/s, beside the same GPU through its own driver and the raw "
        "limit of each line: record-submit-wait, what a cycle sends, recording, polling, uploads, "
        "readbacks, written pages, early fences, two to eight programs at once.  The server is "
        "started for the run; with ADDR it is the one there, and the limit is our RPC's.",
    .options = options,
    .environment = environment,
    .examples = "hawser bench-vulkan --software --quick\n"
                "hawser bench-vulkan --json > vulkan.json\n"
                "hawser bench-vulkan --only upload,readback\n"
                "hawser bench-vulkan gpu1:28100",
    .values_size = sizeof(struct bench_vk_options),
    .run = run,
};
