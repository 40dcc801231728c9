/* hawser benchkv - the key-value store measured as a whole: ranks, daemons, clients, tables. */
#include "bench/kv/benchkv.h"

#include "base/order.h"
#include "base/report/bench.h"
#include "base/report/html.h"
#include "base/report/progress.h"
#include "base/units.h"
#include "bench/bench.h"
#include "bench/serve/child.h"
#include "command/interrupt.h"
#include "command/kvranks.h"
#include "command/measure.h"
#include "kv/daemon/host.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RUNS_MAX = 101,
    PORTS_A_RANK = 2 * KV_DAEMONS_MAX, /* its daemons', and where rank 0 is met */
    PING_COUNT = 2000,
    PING_BYTES = 64
};

struct benchkv_options {
    struct cmd_list clients, peers;
    const char *rank;
    uint64_t ranks, client_ranks, daemons, depth, key_range, value_size, runs, rate;
    uint64_t duration_ns, warmup_ns;
    const char *read_ratio, *report, *seed_text;
    int distribution, transport, flush, wait;
    bool numa, json, optimisations, no_single;
};

static const char *const transport_names[] = {[RPC_SCHEME_TCP] = "tcp",
                                              [RPC_SCHEME_UNIX] = "unix",
                                              [RPC_SCHEME_SHM] = "shm",
                                              [RPC_SCHEME_UCX] = "ucx",
                                              NULL};
static const char *const distribution_names[] = {"uniform", "zipfian", NULL};

#define AT(field) offsetof(struct benchkv_options, field)
static const struct cmd_option options[] = {
    {"duration", 'd', CMD_DURATION, AT(duration_ns), "how long each point is measured", "TIME",
     "10s", HW_MS, 3600 * HW_SEC},
    {"runs", 'r', CMD_U64, AT(runs), "runs of each point; the one of median rate is shown", "N",
     "1", 1, RUNS_MAX},
    {"warmup", 0, CMD_DURATION, AT(warmup_ns), "before each measurement", "TIME", "200ms", 0,
     60 * HW_SEC},
    {"client-threads", 'c', CMD_LIST, AT(clients),
     "client threads of a rank; a point for each number", "N", "1,2,4,8,16"},
    {"daemons", 0, CMD_U64, AT(daemons), "daemon threads of a rank", "N", "1", 1, KV_DAEMONS_MAX},
    {"queue-depth", 'q', CMD_U64, AT(depth), "requests in flight from each client", "N", "1", 1,
     KV_DEPTH_MAX},
    {"key-range", 0, CMD_U64, AT(key_range), "keys for each rank", "N", "1024", 1, 1 << 20},
    {"read-ratio", 0, CMD_STRING, AT(read_ratio), "share of gets; the rest are puts", "X", "0.5"},
    {"distribution", 0, CMD_CHOICE, AT(distribution), "how often each key is asked for", NULL,
     "uniform", 0, 0, distribution_names},
    {"value-size", 0, CMD_SIZE, AT(value_size), "of every value", "SIZE", "32", 0, KV_VALUE_MAX},
    {"transport", 't', CMD_CHOICE, AT(transport),
     "between ranks on this host; --peers says it by itself", NULL, "shm", 0, 0, transport_names},
    {"flush", 0, CMD_CHOICE, AT(flush), "when messages to other ranks are written", NULL,
     "adaptive", 0, 0, cmd_flush_names},
    {"numa-isolate", 0, CMD_FLAG, AT(numa),
     "pin daemons and clients to cores of their own, near each other"},
    {"wait", 0, CMD_CHOICE, AT(wait), "how daemons and clients wait", NULL, "adaptive", 0, 0,
     cmd_wait_names},
    {"seed", 0, CMD_STRING, AT(seed_text), "of client 0; client i has N + i [default: rank * 1000]",
     "N"},
    {"rate", 0, CMD_U64, AT(rate),
     "open loop: so many requests a second from each rank, and latency counted from the time each "
     "was due; 0 is the closed loop",
     "N", NULL, 0, 100000000},
    {"ranks", 'n', CMD_U64, AT(ranks), "ranks to start on this host", "N", "2", 1, 16},
    {"client-ranks", 0, CMD_U64, AT(client_ranks),
     "the first N ranks have clients that ask; the others only serve", "N", "64", 1, KV_RANKS_MAX},
    {"rank", 0, CMD_STRING, AT(rank),
     "with --peers: which of them this is [default: what mpirun or srun says; 0]", "N"},
    {"peers", 0, CMD_LIST, AT(peers),
     "the address of every rank, this one too, in order; all ranks get the same options", "ADDR"},
    {"optimisations", 0, CMD_FLAG, AT(optimisations),
     "also measure each optimisation alone, all together, and all but each"},
    {"no-single", 0, CMD_FLAG, AT(no_single), "leave out the comparison with one rank"},
    {"json", 'j', CMD_FLAG, AT(json), "print one JSON object instead of tables"},
    {"report", 0, CMD_STRING, AT(report), "also write an HTML page with tables and plots", "FILE"},
    {NULL},
};

static const struct cmd_env environment[] = {
    CMD_ENV_OF(cmd_rank_env),
    {"OMPI_COMM_WORLD_SIZE", "set by mpirun: how many ranks; with several --peers is needed"},
    {"PMI_SIZE", "the same by mpiexec of MPICH"},
    {"SLURM_STEP_NUM_TASKS", "the same by srun"},
    {"UCX_TLS", "what UCX may use"},
    {NULL},
};

/* ---- the plan ---- */

struct plan {
    struct bkv_point points[BKV_POINTS_MAX];
    uint32_t count, sweep, others;
    int single;
};

static struct bkv_point *add_point(struct plan *plan, const struct bkv_point *like,
                                   const char *name)
{
    struct bkv_point *p = &plan->points[plan->count++];
    *p = *like;
    snprintf(p->name, sizeof(p->name), "%s", name);
    return p;
}

static void flush_at_once(struct bkv_point *p)
{
    p->flush = RPC_FLUSH_INCREMENTAL;
}
static void flush_as_it_pays(struct bkv_point *p)
{
    p->flush = RPC_FLUSH_ADAPTIVE;
}
static void go_deep(struct bkv_point *p)
{
    p->depth = 16;
}
static void two_daemons(struct bkv_point *p)
{
    p->daemons = 2;
}
static void place_by_node(struct bkv_point *p)
{
    p->numa = true;
}

/* Each one is a change of the base; of two for the same thing only one is among all of them. */
static const struct {
    const char *name;
    void (*apply)(struct bkv_point *point);
    bool among_all;
} optimisations[] = {
    {"incremental flush", flush_at_once, false},
    {"adaptive flush", flush_as_it_pays, true},
    {"depth 16", go_deep, true},
    {"2 daemons", two_daemons, true},
    {"numa placement", place_by_node, true},
};

_Static_assert(CMD_LIST_MAX + 3 + 2 * ARRAY_LEN(optimisations) <= BKV_POINTS_MAX, "all together");

static void plan_all_but(struct plan *plan, const struct bkv_point *base, size_t left_out)
{
    char name[BKV_NAME_CHARS] = "all together";
    if (left_out < ARRAY_LEN(optimisations))
        snprintf(name, sizeof(name), "all but %s", optimisations[left_out].name);
    struct bkv_point *p = add_point(plan, base, name);
    for (size_t i = 0; i < ARRAY_LEN(optimisations); i++)
        if (i != left_out && optimisations[i].among_all)
            optimisations[i].apply(p);
}

/* Nothing, each alone, all, and all but each. */
static void plan_optimisations(struct plan *plan, const struct bkv_point *like)
{
    struct bkv_point base = *like;
    base.flush = RPC_FLUSH_BATCH;
    base.depth = base.daemons = 1;
    base.numa = false;
    plan->others = plan->count;
    add_point(plan, &base, "base");
    for (size_t i = 0; i < ARRAY_LEN(optimisations); i++)
        optimisations[i].apply(add_point(plan, &base, optimisations[i].name));
    plan_all_but(plan, &base, ARRAY_LEN(optimisations));
    for (size_t i = 0; i < ARRAY_LEN(optimisations); i++)
        if (optimisations[i].among_all)
            plan_all_but(plan, &base, i);
}

static enum cmd_exit common_point(const struct benchkv_options *o, uint32_t ranks,
                                  struct bkv_point *out)
{
    struct bkv_point p = {
        .ranks = ranks,
        .client_ranks = (uint32_t)o->client_ranks,
        .daemons = (uint32_t)o->daemons,
        .depth = (uint32_t)o->depth,
        .key_range = (uint32_t)o->key_range,
        .value_size = (uint32_t)o->value_size,
        .zipfian = o->distribution == 1,
        .numa = o->numa,
        .flush = (enum rpc_flush_policy)o->flush,
        .wait = (enum rpc_wait_mode)o->wait,
        .duration_ns = o->duration_ns,
        .warmup_ns = o->warmup_ns,
        .rate = o->rate,
    };
    if (hw_parse_double(o->read_ratio, 0, 1, &p.read_ratio))
        return cmd_fail(CMD_USAGE, "benchkv: --read-ratio: '%s' is not a number from 0 to 1",
                        o->read_ratio);
    if (o->seed_text) {
        p.seeded = true;
        if (hw_parse_u64(o->seed_text, 0, UINT64_MAX, &p.seed))
            return cmd_fail(CMD_USAGE, "benchkv: --seed: '%s' is not a whole number", o->seed_text);
    }
    *out = p;
    return CMD_DONE;
}

static enum cmd_exit make_plan(const struct benchkv_options *o, uint32_t ranks, struct plan *plan)
{
    struct bkv_point common;
    enum cmd_exit code = common_point(o, ranks, &common);
    if (code != CMD_DONE)
        return code;
    *plan = (struct plan){.single = -1};
    for (size_t i = 0; i < o->clients.count; i++) {
        uint64_t n;
        char name[BKV_NAME_CHARS];
        if (hw_parse_u64(o->clients.items[i], 1, BKV_CLIENTS_MAX, &n))
            return cmd_fail(CMD_USAGE,
                            "benchkv: --client-threads: '%s' is not a number from 1 to %d",
                            o->clients.items[i], BKV_CLIENTS_MAX);
        common.clients = (uint32_t)n;
        snprintf(name, sizeof(name), "c%u.d%u", common.clients, common.depth);
        add_point(plan, &common, name);
    }
    plan->sweep = plan->count;
    if (ranks > 1 && !o->no_single) {
        plan->single = (int)plan->count;
        add_point(plan, &common, "one-rank")->ranks = 1;
    }
    plan->others = plan->count;
    if (o->optimisations)
        plan_optimisations(plan, &common);
    return CMD_DONE;
}

struct bench {
    const struct benchkv_options *o;
    struct plan plan;
    struct bkv_world world;
    struct bkv_result (*results)[KV_RANKS_MAX];
    struct bkv_summary summaries[BKV_POINTS_MAX];
    double pingpong_us, raw_us;
    struct bkv_chain chain;
    char why[RPC_WHY_CHARS];
};

/* ---- the bare limit of the same run ---- */

static void measure_pingpong(const struct bench *b, double *ours_us, double *raw_us)
{
    static const enum bench_transport of[] = {[RPC_SCHEME_TCP] = BENCH_TCP,
                                              [RPC_SCHEME_UNIX] = BENCH_UNIX,
                                              [RPC_SCHEME_SHM] = BENCH_SHM,
                                              [RPC_SCHEME_UCX] = BENCH_UCX};
    struct bench_dir dir;
    struct hw_hist hist;
    char why[RPC_WHY_CHARS];
    struct bench_link *link = NULL;
    uint64_t elapsed;
    if (hw_hist_init(&hist))
        return;
    if (bench_dir_make(&dir, why)) {
        hw_hist_fini(&hist);
        return;
    }
    struct bench_spec spec = {.transport = of[b->world.addrs[0].scheme],
                              .wait = (enum rpc_wait_mode)b->o->wait,
                              .place = BENCH_TWO_CORES,
                              .dir = &dir};
    struct bench_shot shot = {.size = PING_BYTES, .depth = 1, .count = PING_COUNT, .hist = &hist};
    if (bench_link_open(&spec, &link, why) == 0) {
        if (bench_link_raw_ping(link, &shot, &elapsed) == 0)
            *raw_us = (double)hw_hist_percentile(&hist, 50) / 1e3;
        hw_hist_reset(&hist);
        if (bench_link_calls(link, &shot, &elapsed) == 0)
            *ours_us = (double)hw_hist_percentile(&hist, 50) / 1e3;
    }
    bench_link_close(link);
    bench_dir_remove(&dir);
    hw_hist_fini(&hist);
}

/* Where it cannot be had the report does without it. */
static void measure_chain(struct bench *b)
{
    if (b->world.ranks > 1 &&
        bkv_chain_measure(b->world.addrs[0].scheme, (enum rpc_wait_mode)b->o->wait, &b->chain))
        b->chain = (struct bkv_chain){0};
}

/* ---- one rank, all points ---- */

static void fini_results(struct bkv_result results[KV_RANKS_MAX])
{
    for (uint32_t i = 0; i < KV_RANKS_MAX; i++)
        bkv_result_fini(&results[i]);
}

/* Runs a point once; on rank 0 every rank's result is in `out` then. */
static int run_once(struct bench *b, const struct bkv_point *p, struct bkv_result *out)
{
    struct bkv_result mine;
    uint8_t *data = NULL;
    size_t len = 0;
    int rc = bkv_result_init(&mine);
    if (rc)
        return rc;
    rc = bkv_rank_run(&b->world, p, &mine, b->why);
    if (rc == 0)
        rc = bkv_result_encode(&mine, &data, &len);
    if (rc == 0)
        rc = bkv_meet_give(b->world.meet, data, len);
    free(data);
    bkv_result_fini(&mine);
    for (uint32_t i = 0; i < p->ranks && rc == 0 && b->world.rank == 0; i++) {
        rc = bkv_result_init(&out[i]);
        data = rc ? NULL : bkv_meet_take(b->world.meet, i, &len);
        if (rc == 0)
            rc = data ? bkv_result_decode(data, len, &out[i]) : -EPROTO;
        free(data);
    }
    return rc;
}

/* All runs of a point; the one of median rate stays. */
static int run_point(struct bench *b, uint32_t at)
{
    const struct bkv_point *p = &b->plan.points[at];
    uint64_t runs = b->o->runs;
    double rates[RUNS_MAX], sorted[RUNS_MAX];
    struct bkv_result(*all)[KV_RANKS_MAX] = calloc(runs, sizeof(*all));
    int rc = all ? 0 : -ENOMEM;
    uint64_t done = 0;
    for (; done < runs && rc == 0; done++) {
        rc = run_once(b, p, all[done]);
        if (rc == 0 && b->world.rank == 0)
            sorted[done] = rates[done] = bkv_summarise(p, all[done], p->ranks).total_rps;
    }
    if (rc == 0 && b->world.rank == 0) {
        uint64_t best = 0;
        hw_sort(sorted, runs);
        while (rates[best] != sorted[runs / 2])
            best++;
        memcpy(b->results[at], all[best], sizeof(all[best]));
        memset(all[best], 0, sizeof(all[best])); /* its histograms have moved */
        b->summaries[at] = bkv_summarise(p, b->results[at], p->ranks);
    }
    for (uint64_t i = 0; all && i < runs; i++)
        fini_results(all[i]);
    free(all);
    return rc;
}

static enum cmd_exit write_page(const char *path, const struct bkv_set *set)
{
    int rc = path ? bkv_report_html(set, path) : 0;
    return rc ? cmd_fail(CMD_FAILED, "benchkv: %s: %s", path, strerror(-rc)) : CMD_DONE;
}

/* Before the measurement: a path that cannot be written must not cost its minutes. */
static enum cmd_exit check_page(const struct benchkv_options *o)
{
    char why[HW_OUTPUT_WHY_CHARS];
    int rc = o->report ? hw_page_check(o->report, why) : 0;
    return rc ? cmd_fail(CMD_FAILED, "benchkv: --report: %s", why) : CMD_DONE;
}

static enum cmd_exit report(struct bench *b)
{
    struct bkv_set set = {.points = b->plan.points,
                          .results = b->results,
                          .summaries = b->summaries,
                          .count = b->plan.count,
                          .sweep = b->plan.sweep,
                          .single = b->plan.single,
                          .others = b->plan.others,
                          .pingpong_us = b->pingpong_us,
                          .raw_us = b->raw_us,
                          .chain = b->chain,
                          .transport = transport_names[b->world.addrs[0].scheme]};
    hw_bench_host(set.host);
    int rc = b->o->json ? bkv_report_json(&set, stdout) : bkv_report_text(&set, stdout);
    if (rc)
        return cmd_output_lost(rc);
    return write_page(b->o->report, &set);
}

static enum cmd_exit run_points(struct bench *b)
{
    struct hw_progress progress;
    int rc = 0;
    uint32_t i = 0;
    b->results = calloc(b->plan.count, sizeof(*b->results));
    if (!b->results)
        return cmd_fail(CMD_FAILED, "out of memory");
    hw_progress_begin(&progress, "benchkv", b->plan.count);
    for (; i < b->plan.count && rc == 0; i++) {
        if (b->world.rank == 0)
            hw_progress_update(&progress, i);
        rc = run_point(b, i);
    }
    hw_progress_end(&progress);
    enum cmd_exit code = CMD_DONE;
    if (rc)
        code = cmd_fail(CMD_FAILED, "benchkv: %s: %s", b->plan.points[i - 1].name,
                        b->why[0] ? b->why : strerror(-rc));
    else if (b->world.rank == 0)
        code = report(b);
    for (uint32_t k = 0; k < b->plan.count; k++)
        fini_results(b->results[k]);
    free(b->results);
    return code;
}

static enum cmd_exit run_rank(struct bench *b)
{
    struct rpc_addr meet;
    if (kv_address_of(&b->world.addrs[0], KV_DAEMONS_MAX, &meet))
        return cmd_fail(CMD_USAGE, "benchkv: rank 0 has no address to meet at");
    if (meet.scheme == RPC_SCHEME_SHM)
        meet.scheme = RPC_SCHEME_UNIX;
    if (meet.scheme == RPC_SCHEME_UCX)
        meet.scheme = RPC_SCHEME_TCP;
    if (bkv_meet_open(&meet, b->world.rank, b->world.ranks, &b->world.meet, b->why))
        return cmd_fail(CMD_UNREACHABLE, "benchkv: rank %u: %s", b->world.rank, b->why);
    enum cmd_exit code = run_points(b);
    bkv_meet_close(b->world.meet);
    return code;
}

/* ---- ranks on this host ---- */

/* Ranks whose addresses say that they are where this one is: they share its cores. */
static void find_neighbours(struct bkv_world *w)
{
    const struct rpc_addr *mine = &w->addrs[w->rank];
    bool paths = mine->scheme == RPC_SCHEME_UNIX || mine->scheme == RPC_SCHEME_SHM;
    w->ranks_here = w->rank_here = 0;
    for (uint32_t i = 0; i < w->ranks; i++) {
        if (!paths && strcmp(w->addrs[i].host, mine->host) != 0)
            continue;
        w->rank_here += i < w->rank;
        w->ranks_here++;
    }
}

static void local_addresses(struct bench *b)
{
    unsigned base = 20000 + (unsigned)getpid() * PORTS_A_RANK % 10000; /* below the kernel's own */
    for (uint32_t r = 0; r < b->world.ranks; r++) {
        struct rpc_addr *a = &b->world.addrs[r];
        *a = (struct rpc_addr){.scheme = (enum rpc_scheme)b->o->transport, .host = "127.0.0.1"};
        a->port = (uint16_t)(base + r * PORTS_A_RANK);
        snprintf(a->path, sizeof(a->path), "%s/peer%u", b->world.dir, r);
    }
}

static void remove_dir(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    char file[512];
    while (dir && (entry = readdir(dir)) != NULL) {
        snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            (void)unlink(file);
    }
    if (dir)
        closedir(dir);
    (void)rmdir(path);
}

/* Waits for every rank; when one fails the run has no result. */
static enum cmd_exit await_ranks(const pid_t *pids, uint32_t count)
{
    enum cmd_exit code = CMD_DONE;
    for (uint32_t left = count; left > 0;) {
        int status;
        pid_t pid = wait(&status);
        if (pid < 0)
            break;
        bool ours = false;
        for (uint32_t i = 0; i < count; i++)
            ours |= pids[i] == pid;
        if (!ours)
            continue;
        left--;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            continue;
        if (code == CMD_DONE)
            code = WIFEXITED(status) ? (enum cmd_exit)WEXITSTATUS(status)
                                     : cmd_fail(CMD_FAILED, "benchkv: a rank was killed");
        for (uint32_t i = 0; i < count; i++)
            if (pids[i] != pid)
                (void)kill(pids[i], SIGTERM);
    }
    return code;
}

static enum cmd_exit run_here(struct bench *b)
{
    pid_t pids[KV_RANKS_MAX];
    enum cmd_exit code = check_page(b->o);
    if (code != CMD_DONE)
        return code;
    b->world.ranks = (uint32_t)b->o->ranks;
    if (bench_folder_make(b->world.dir, b->why))
        return cmd_fail(CMD_FAILED, "benchkv: %s", b->why);
    local_addresses(b);
    measure_pingpong(b, &b->pingpong_us, &b->raw_us);
    measure_chain(b);
    fflush(NULL);
    uint32_t started = 0;
    for (; started < b->world.ranks; started++) {
        pids[started] = bench_fork();
        if (pids[started] < 0)
            break;
        if (pids[started] == 0) {
            b->world.rank = started;
            find_neighbours(&b->world);
            return run_rank(b);
        }
    }
    cmd_catch_interrupts(); /* the ranks get the signal, too, and end: we clear up behind them */
    if (started < b->world.ranks)
        for (uint32_t i = 0; i < started; i++)
            (void)kill(pids[i], SIGTERM);
    code = await_ranks(pids, started);
    remove_dir(b->world.dir);
    if (started < b->world.ranks)
        return cmd_fail(CMD_FAILED, "benchkv: cannot start a rank: %s", strerror(EAGAIN));
    return cmd_interrupted() ? cmd_fail(CMD_FAILED, "benchkv: interrupted") : code;
}

/* ---- ranks started by hand or by a launcher ---- */

static enum cmd_exit run_as_rank(struct bench *b)
{
    b->world.ranks = (uint32_t)b->o->peers.count;
    enum cmd_exit code = cmd_rank("benchkv", b->o->rank, &b->world.rank);
    if (code != CMD_DONE)
        return code;
    if (b->world.rank >= b->world.ranks)
        return cmd_fail(CMD_USAGE,
                        "benchkv: --rank %u, but --peers names %u ranks; name all of them",
                        b->world.rank, b->world.ranks);
    for (uint32_t i = 0; i < b->world.ranks; i++) {
        if (rpc_addr_parse(b->o->peers.items[i], &b->world.addrs[i], b->why))
            return cmd_fail(CMD_USAGE, "benchkv: --peers: %s", b->why);
    }
    if (b->world.rank == 0)
        code = check_page(b->o);
    if (code != CMD_DONE)
        return code;
    find_neighbours(&b->world);
    if (bench_folder_make(b->world.dir, b->why))
        return cmd_fail(CMD_FAILED, "benchkv: %s", b->why);
    if (b->world.rank == 0)
        measure_pingpong(b, &b->pingpong_us, &b->raw_us);
    code = run_rank(b);
    remove_dir(b->world.dir);
    return code;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    (void)operands;
    struct bench *b = calloc(1, sizeof(*b));
    if (!b)
        return cmd_fail(CMD_FAILED, "out of memory");
    b->o = values;
    bool by_hand = b->o->peers.count > 0;
    uint32_t ranks = by_hand ? (uint32_t)b->o->peers.count : (uint32_t)b->o->ranks;
    enum cmd_exit code = make_plan(b->o, ranks, &b->plan);
    if (code == CMD_DONE && !by_hand && cmd_launched_ranks() > 1)
        code = cmd_fail(CMD_USAGE, "benchkv: under mpirun or srun give --peers, the same to all: "
                                   "the address of every rank, in order");
    if (code == CMD_DONE)
        code = by_hand ? run_as_rank(b) : run_here(b);
    free(b);
    return code;
}

const struct cmd_command cmd_benchkv = {
    .name = "benchkv",
    .summary = "measure the key-value store: round trips, models, limits",
    .operands = "",
    .description =
        "Starts ranks with daemons and client threads, measures them for each number of clients, "
        "and prints what follows: round trips against clients, Little's law, the distribution and "
        "its modes, the cycle model, events and times of the daemon's loop, its utilisation, local "
        "and remote times, one rank against all.  A derivation that does not hold says so.",
    .options = options,
    .environment = environment,
    .examples = "hawser benchkv\n"
                "hawser benchkv --duration 1s --runs 5 --transport tcp --report kv.html\n"
                "hawser benchkv --ranks 1 --queue-depth 16 --client-threads 1 --read-ratio 1\n"
                "mpirun -n 2 --bind-to none hawser benchkv --peers host1:28200,host2:28200",
    .values_size = sizeof(struct benchkv_options),
    .run = run,
};
