/* hawser bench-ipc - what it costs to map KV pages at all tensor-parallel workers at once. */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/report/html.h"
#include "bench/page/report.h"
#include "command/interrupt.h"
#include "page/broadcast/processes.h"
#include "page/group.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ITERS_MAX = 1000000,
    WARMUP_MAX = 1000,
    SERIES_MAX = 16,        /* strategies in a comparison */
    SAMPLES_MAX = 16 << 20, /* of a replayed trace, in memory */
};

struct bench_ipc_options {
    uint64_t tp_size, pages_per_iter, iters, warmup, num_layers, block_size;
    uint64_t memory, page_size, first_id, timeout_ns;
    const char *map_impl, *unmap_impl, *backend, *html, *group, *trace;
    bool verbose, async_sched, not_contiguous, compare, json, csv;
    bool no_reuse, no_join, no_huge;
};

#define AT(member) offsetof(struct bench_ipc_options, member)

static const struct cmd_option options[] = {
    {"tp-size", 0, CMD_U64, AT(tp_size), "tensor-parallel workers, a process each; required", "N",
     NULL, 1, PAGE_RANKS_MAX},
    {"pages-per-iter", 0, CMD_U64, AT(pages_per_iter), "pages that an iteration maps and unmaps",
     "N", "1", 1, PAGE_BATCH_MAX},
    {"iters", 0, CMD_U64, AT(iters), "iterations", "N", "20", 1, ITERS_MAX},
    {"trace", 0, CMD_STRING, AT(trace),
     "an iteration replays the maps and unmaps of a served model, which serve writes with "
     "HAWSER_PAGE_TRACE=FILE; ids and their memory are the trace's, so --pages-per-iter, "
     "--first-id and --num-layers do not matter",
     "FILE"},
    {"warmup", 0, CMD_U64, AT(warmup),
     "iterations before them that are not counted: the first ones set devices up", "N", "2", 0,
     WARMUP_MAX},
    {"map-impl", 0, CMD_STRING, AT(map_impl),
     "how the map reaches the workers: seq, thread, async, epoll or shm", "NAME", "seq"},
    {"unmap-impl", 0, CMD_STRING, AT(unmap_impl), "how the unmap does; without it as the map",
     "NAME"},
    {"verbose", 'v', CMD_FLAG, AT(verbose), "a line for each iteration"},
    {"num-layers", 0, CMD_U64, AT(num_layers),
     "layers; with the memory they give the number of pages", "N", "32", 1, PAGE_LAYERS_MAX},
    {"async-sched", 0, CMD_FLAG, AT(async_sched),
     "finish work that may use a page before it is unmapped"},
    {"block-size", 0, CMD_U64, AT(block_size), "tokens in a cache block; changes no figure here",
     "N", "16", 1, PAGE_BLOCK_TOKENS_MAX},
    {"not-contiguous", 0, CMD_FLAG, AT(not_contiguous),
     "a piece for K and V of each layer instead of one for all"},
    {"backend", 0, CMD_STRING, AT(backend),
     "host, cuda, vulkan or null, which does nothing; without it cuda where there is a GPU, else "
     "host",
     "NAME"},
    {"memory", 0, CMD_SIZE, AT(memory), "memory of a worker instead of all that its device has",
     "SIZE"},
    {"page-size", 0, CMD_SIZE, AT(page_size), "of one page of one tensor", "SIZE", "2MiB", 4096,
     PAGE_BYTES_MAX},
    {"first-id", 0, CMD_U64, AT(first_id), "page ids go up from here", "N", "50", 0,
     PAGE_COUNT_MAX},
    {"timeout", 0, CMD_DURATION, AT(timeout_ns), "a worker that has not answered by then is stuck",
     "TIME", "5s", HW_MS, 600 * HW_SEC},
    {"no-reuse", 0, CMD_FLAG, AT(no_reuse),
     "memory is created by each map and released after each unmap"},
    {"no-join", 0, CMD_FLAG, AT(no_join),
     "a driver call for each piece also where one would do for many"},
    {"no-huge", 0, CMD_FLAG, AT(no_huge), "host: no huge pages even where they are allowed"},
    {"compare", 0, CMD_FLAG, AT(compare),
     "all strategies in one run, one iteration of each in turn"},
    {"group", 0, CMD_STRING, AT(group), "name of the group of workers; without it bench-ipc-PID",
     "NAME"},
    {"html", 0, CMD_STRING, AT(html), "also write tables and charts to FILE", "FILE"},
    {"csv", 0, CMD_FLAG, AT(csv), "print every iteration as CSV instead of a summary"},
    {"json", 'j', CMD_FLAG, AT(json), "print one JSON object instead of a summary"},
    {NULL},
};

static const struct cmd_env environment[] = {
    {"HAWSER_RUNTIME_DIR",
     "folder of the workers' sockets [default: XDG_RUNTIME_DIR/hawser, else /tmp/hawser-UID]"},
    {NULL},
};

struct run {
    const struct bench_ipc_options *o;
    char group_name[PAGE_GROUP_CHARS];
    const struct page_backend_ops *backend;
    bool fell_back; /* to main memory, since there is no GPU */
    struct page_processes *processes;
    struct page_group *group;
    uint32_t *ids;
    struct page_trace_file trace; /* with --trace */
    bool *mapped;                 /* of each id of the trace */
    struct ipc_series series[SERIES_MAX];
    size_t series_count;
};

/* ---- what is asked for ---- */

static enum cmd_exit find_strategy(const char *option, const char *name,
                                   const struct page_strategy **out)
{
    *out = page_strategy_find(name);
    if (*out)
        return CMD_DONE;
    char names[160] = "";
    for (const struct page_strategy *const *s = page_strategies; *s; s++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                 s == page_strategies ? "" : ", ", (*s)->name);
    return cmd_fail(CMD_USAGE, "bench-ipc: --%s: '%s' is not one of %s", option, name, names);
}

static enum cmd_exit add_series(struct run *r, const struct page_strategy *map,
                                const struct page_strategy *unmap)
{
    assert(r->series_count < SERIES_MAX);
    size_t rooms[IPC_OPS] = {r->o->iters, r->o->iters};
    for (int op = 0; op < IPC_OPS && r->o->trace; op++)
        rooms[op] *= ipc_trace_sum(&r->trace, op).batches;
    if (ipc_series_init(&r->series[r->series_count], map, unmap, rooms))
        return cmd_fail(CMD_FAILED, "out of memory for %llu iterations",
                        (unsigned long long)r->o->iters);
    r->series_count++;
    return CMD_DONE;
}

static enum cmd_exit read_trace(struct run *r)
{
    const char *path = r->o->trace;
    size_t line = 0;
    if (!path)
        return CMD_DONE;
    FILE *file = fopen(path, "re");
    int rc = file ? page_trace_read(file, &r->trace, &line) : -errno;
    if (file)
        fclose(file);
    if (rc == -EPROTO)
        return cmd_fail(CMD_FAILED,
                        "bench-ipc: %s:%zu: no page trace; HAWSER_PAGE_TRACE=FILE hawser serve "
                        "writes one",
                        path, line);
    if (rc == -ENODATA)
        return cmd_fail(CMD_FAILED, "bench-ipc: %s: nothing was mapped", path);
    if (rc)
        return cmd_fail(CMD_FAILED, "bench-ipc: %s:%zu: %s", path, line, strerror(-rc));
    if (r->trace.batch_count * r->o->iters > SAMPLES_MAX)
        return cmd_fail(
            CMD_USAGE,
            "bench-ipc: --iters %llu is too many for a trace of %u batches; give at most %llu",
            (unsigned long long)r->o->iters, r->trace.batch_count,
            (unsigned long long)SAMPLES_MAX / r->trace.batch_count);
    r->mapped = calloc(r->trace.id_limit, sizeof *r->mapped);
    return r->mapped ? CMD_DONE : cmd_fail(CMD_FAILED, "out of memory");
}

static enum cmd_exit plan_series(struct run *r)
{
    const struct page_strategy *map, *unmap;
    if (r->o->compare) {
        enum cmd_exit code = CMD_DONE;
        for (size_t i = 0; page_strategies[i] && code == CMD_DONE; i++)
            code = add_series(r, page_strategies[i], page_strategies[i]);
        return code;
    }
    enum cmd_exit code = find_strategy("map-impl", r->o->map_impl, &map);
    if (code == CMD_DONE)
        code = find_strategy("unmap-impl", r->o->unmap_impl ? r->o->unmap_impl : r->o->map_impl,
                             &unmap);
    return code == CMD_DONE ? add_series(r, map, unmap) : code;
}

static enum cmd_exit choose_backend(struct run *r)
{
    if (r->o->backend) {
        r->backend = page_backend_find(r->o->backend);
        return r->backend ? CMD_DONE
                          : cmd_fail(CMD_USAGE,
                                     "bench-ipc: --backend: '%s' is not one of host, cuda, vulkan,"
                                     " null",
                                     r->o->backend);
    }
    /* Not by opening it: a CUDA driver that was opened does not survive the fork of the workers. */
    bool gpu = access("/dev/nvidiactl", R_OK | W_OK) == 0;
    r->fell_back = !gpu;
    r->backend = gpu ? &page_backend_cuda : &page_backend_host;
    return CMD_DONE;
}

static enum cmd_exit check_options(const struct bench_ipc_options *o)
{
    if (o->tp_size == 0)
        return cmd_fail(CMD_USAGE, "bench-ipc: --tp-size N is required: the number of workers");
    if (o->json && o->csv)
        return cmd_fail(CMD_USAGE, "bench-ipc: --json and --csv exclude each other");
    char why[HW_OUTPUT_WHY_CHARS];
    int rc = o->html ? hw_page_check(o->html, why) : 0;
    return rc ? cmd_fail(CMD_FAILED, "bench-ipc: --html: %s", why) : CMD_DONE;
}

/* ---- workers ---- */

/* An id is one piece, as an engine's slab, and each worker has its share of it. */
static void use_trace(const struct run *r, struct page_tensors_config *tensors)
{
    uint64_t unit = r->o->page_size, share = 2 * r->o->tp_size; /* K and V */
    uint64_t page = (r->trace.id_bytes + share - 1) / share, ids = 0;
    for (uint32_t i = 0; i < r->trace.id_count; i++)
        ids = r->trace.ids[i] >= ids ? r->trace.ids[i] + UINT64_C(1) : ids;
    tensors->layers = 1;
    tensors->page_bytes = (page + unit - 1) / unit * unit;
    if (!r->o->memory)
        tensors->device.memory_bytes = 2 * tensors->page_bytes * ids;
}

static enum cmd_exit start_workers(struct run *r)
{
    const struct bench_ipc_options *o = r->o;
    struct page_error why;
    struct page_worker_config config = {
        .group = r->group_name,
        .tensors = {
            .backend = r->backend,
            .device = {.memory_bytes = o->memory, .not_joined = o->no_join, .no_huge = o->no_huge},
            .layers = (uint32_t)o->num_layers,
            .page_bytes = o->page_size,
            .layout = o->not_contiguous ? PAGE_PER_LAYER : PAGE_CONTIGUOUS,
            .async_sched = o->async_sched,
            .no_reuse = o->no_reuse}};
    if (o->trace)
        use_trace(r, &config.tensors);
    if (page_processes_start(&config, (uint32_t)o->tp_size, &r->processes, &why))
        return cmd_fail(CMD_FAILED, "bench-ipc: %s", why.text);
    struct page_group_config group = {.group = r->group_name,
                                      .scheduler = "bench-ipc",
                                      .ranks = (uint32_t)o->tp_size,
                                      .timeout_ns = o->timeout_ns,
                                      .map = r->series[0].map,
                                      .unmap = r->series[0].unmap};
    if (page_group_open(&group, &r->group, &why))
        return cmd_fail(CMD_FAILED, "bench-ipc: %s", why.text);
    return CMD_DONE;
}

static enum cmd_exit check_trace(const struct run *r)
{
    struct page_error why;
    const struct page_geometry *g = page_group_geometry(r->group);
    if (page_geometry_check(g, r->trace.ids, r->trace.id_count, &why) == 0)
        return CMD_DONE;
    return cmd_fail(CMD_USAGE, "bench-ipc: %s: %s; use more --memory or a smaller --page-size",
                    r->o->trace, why.text);
}

static enum cmd_exit make_ids(struct run *r)
{
    struct page_error why;
    if (r->o->trace)
        return check_trace(r);
    size_t count = r->o->pages_per_iter;
    r->ids = calloc(count, sizeof *r->ids);
    if (!r->ids)
        return cmd_fail(CMD_FAILED, "out of memory");
    for (size_t i = 0; i < count; i++)
        r->ids[i] = (uint32_t)(r->o->first_id + i);
    const struct page_geometry *g = page_group_geometry(r->group);
    if (page_geometry_check(g, r->ids, count, &why) == 0)
        return CMD_DONE;
    char remedy[80];
    if (count <= g->pages)
        snprintf(remedy, sizeof remedy, "use --first-id %u or less, more --memory or",
                 g->pages - (uint32_t)count);
    else
        snprintf(remedy, sizeof remedy, "use --pages-per-iter %u or less, more --memory or",
                 g->pages);
    return cmd_fail(CMD_USAGE,
                    "bench-ipc: --first-id %llu, --pages-per-iter %zu: %s; %s a smaller"
                    " --num-layers or --page-size",
                    (unsigned long long)r->o->first_id, count, why.text, remedy);
}

/* ---- measuring ---- */

/* One map and one unmap, which are kept as a sample when they count. */
static enum cmd_exit iterate(struct run *r, struct ipc_series *s, uint64_t iter, bool counts)
{
    struct page_verdict map, unmap;
    struct page_error why;
    size_t count = r->o->pages_per_iter;
    if (page_group_use(r->group, s->map, s->unmap, &why))
        return cmd_fail(CMD_FAILED, "bench-ipc: %s: %s", s->map->name, why.text);
    if (page_group_map(r->group, r->ids, count, &map))
        return cmd_fail(CMD_FAILED, "bench-ipc: map: %s", map.why.text);
    if (page_group_unmap(r->group, r->ids, count, &unmap))
        return cmd_fail(CMD_FAILED, "bench-ipc: unmap: %s", unmap.why.text);
    if (!counts)
        return CMD_DONE;
    s->samples[IPC_MAP][s->counts[IPC_MAP]++] = map.times;
    s->samples[IPC_UNMAP][s->counts[IPC_UNMAP]++] = unmap.times;
    if (r->o->verbose)
        printf("[iter %02llu] map=%.6fs  unmap=%.6fs%s%s\n", (unsigned long long)iter,
               map.times.total_ns / 1e9, unmap.times.total_ns / 1e9, r->o->compare ? "  " : "",
               r->o->compare ? s->map->name : "");
    return CMD_DONE;
}

static enum cmd_exit replay_batch(struct run *r, struct ipc_series *s, bool is_map,
                                  const uint32_t *ids, uint32_t count, bool counts)
{
    struct page_verdict v;
    int op = is_map ? IPC_MAP : IPC_UNMAP;
    if (is_map ? page_group_map(r->group, ids, count, &v)
               : page_group_unmap(r->group, ids, count, &v))
        return cmd_fail(CMD_FAILED, "bench-ipc: %s: %s", is_map ? "map" : "unmap", v.why.text);
    for (uint32_t i = 0; i < count; i++)
        r->mapped[ids[i]] = is_map;
    if (!counts)
        return CMD_DONE;
    s->samples[op][s->counts[op]++] = v.times;
    if (r->o->verbose)
        printf("%s %u ids: %.6fs%s%s\n", is_map ? "map" : "unmap", count, v.times.total_ns / 1e9,
               r->o->compare ? "  " : "", r->o->compare ? s->map->name : "");
    return CMD_DONE;
}

/* The whole trace; what it leaves mapped is unmapped, and does not count. */
static enum cmd_exit replay(struct run *r, struct ipc_series *s, bool counts)
{
    struct page_error why;
    enum cmd_exit code = CMD_DONE;
    if (page_group_use(r->group, s->map, s->unmap, &why))
        return cmd_fail(CMD_FAILED, "bench-ipc: %s: %s", s->map->name, why.text);
    for (uint32_t i = 0; i < r->trace.batch_count && code == CMD_DONE; i++) {
        const struct page_trace_batch *b = &r->trace.batches[i];
        if (cmd_interrupted())
            return cmd_fail(CMD_FAILED, "bench-ipc: interrupted");
        code = replay_batch(r, s, b->is_map, r->trace.ids + b->first, b->count, counts);
    }
    for (uint32_t id = 0; id < r->trace.id_limit && code == CMD_DONE; id++) {
        if (r->mapped[id])
            code = replay_batch(r, s, false, &id, 1, false);
    }
    return code;
}

static enum cmd_exit once(struct run *r, struct ipc_series *s, uint64_t iter, bool counts)
{
    return r->o->trace ? replay(r, s, counts) : iterate(r, s, iter, counts);
}

static enum cmd_exit warm_up(struct run *r)
{
    enum cmd_exit code = CMD_DONE;
    for (uint64_t i = 0; i < r->o->warmup * r->series_count && code == CMD_DONE; i++)
        code = once(r, &r->series[i % r->series_count], i, false);
    return code;
}

/* One iteration of each in turn, beginning with another one each time, so that what the machine
 * does meanwhile falls on all.  In a comparison each is preceded by one that is not counted, which
 * pays for coming after another strategy. */
static enum cmd_exit measure(struct run *r)
{
    enum cmd_exit code = CMD_DONE;
    for (uint64_t i = 0; i < r->o->iters; i++) {
        for (size_t k = 0; k < r->series_count && code == CMD_DONE; k++) {
            struct ipc_series *s = &r->series[(i + k) % r->series_count];
            if (cmd_interrupted())
                return cmd_fail(CMD_FAILED, "bench-ipc: interrupted");
            if (r->o->compare)
                code = once(r, s, i, false);
            if (code == CMD_DONE)
                code = once(r, s, i, true);
        }
    }
    return code;
}

/* ---- telling ---- */

static enum cmd_exit write_html(const struct run *r, const struct ipc_setting *setting)
{
    int rc = r->o->html ? ipc_write_html(r->o->html, setting, r->series, r->series_count) : 0;
    return rc ? cmd_fail(CMD_FAILED, "bench-ipc: cannot write %s: %s", r->o->html, strerror(-rc))
              : CMD_DONE;
}

static enum cmd_exit report(const struct run *r)
{
    struct ipc_setting setting = {.tp_size = (uint32_t)r->o->tp_size,
                                  .iters = r->o->iters,
                                  .pages_per_iter = r->o->pages_per_iter,
                                  .warmup = r->o->warmup,
                                  .trace = r->o->trace ? &r->trace : NULL,
                                  .trace_path = r->o->trace,
                                  .fell_back = r->fell_back,
                                  .worker = page_group_info(r->group)};
    int rc = 0;
    if (r->o->json)
        rc = ipc_print_json(stdout, &setting, r->series, r->series_count);
    else if (r->o->csv)
        rc = ipc_print_csv(stdout, r->series, r->series_count);
    else if (r->o->compare)
        rc = ipc_print_compare(stdout, &setting, r->series, r->series_count);
    else
        ipc_print_summary(stdout, &setting, &r->series[0]);
    if (rc)
        return cmd_output_lost(rc);
    return write_html(r, &setting);
}

static enum cmd_exit run_all(struct run *r)
{
    enum cmd_exit code = check_options(r->o);
    if (code == CMD_DONE)
        code = read_trace(r);
    if (code == CMD_DONE)
        code = plan_series(r);
    if (code == CMD_DONE)
        code = choose_backend(r);
    if (code == CMD_DONE)
        code = start_workers(r);
    if (code == CMD_DONE)
        code = make_ids(r);
    if (code == CMD_DONE)
        code = warm_up(r);
    if (code == CMD_DONE)
        code = measure(r);
    return code == CMD_DONE ? report(r) : code;
}

static enum cmd_exit run(const void *values, const struct cmd_operands *operands)
{
    (void)operands;
    struct run r = {.o = values};
    cmd_catch_interrupts(); /* workers and files are gone before we are */
    if (r.o->group)
        snprintf(r.group_name, sizeof r.group_name, "%s", r.o->group);
    else
        snprintf(r.group_name, sizeof r.group_name, "bench-ipc-%d", (int)getpid());
    enum cmd_exit code = run_all(&r);
    page_group_close(r.group);
    page_processes_stop(r.processes);
    for (size_t i = 0; i < r.series_count; i++)
        ipc_series_fini(&r.series[i]);
    free(r.ids);
    free(r.mapped);
    page_trace_free(&r.trace);
    return code;
}

const struct cmd_command cmd_bench_ipc = {
    .name = "bench-ipc",
    .summary = "measure how KV pages are mapped at all tensor-parallel workers",
    .operands = "",
    .description =
        "Starts --tp-size workers, each with the K and V tensors of --num-layers layers, and for "
        "each iteration broadcasts a map of --pages-per-iter page ids and then an unmap.  Prints "
        "mean, p95, max, min and per-page mean, and where the time went: the driver, the worker, "
        "transit, and waiting for the slowest worker.",
    .options = options,
    .environment = environment,
    .examples = "hawser bench-ipc --tp-size 4 --pages-per-iter 1 --iters 20 --map-impl async\n"
                "hawser bench-ipc --tp-size 4 --backend null --iters 1000 --compare\n"
                "hawser bench-ipc --tp-size 1 --backend cuda --not-contiguous --json\n"
                "hawser bench-ipc --tp-size 2 --trace FILE --page-size 4KiB --iters 3",
    .values_size = sizeof(struct bench_ipc_options),
    .run = run,
};
