#include "bench/page/report.h"

#include "base/order.h"
#include "base/report/bench.h"
#include "base/report/out.h"
#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BAR_WIDTH = 50 };

static const char *const op_names[IPC_OPS] = {"map", "unmap"};

int ipc_series_init(struct ipc_series *s, const struct page_strategy *map,
                    const struct page_strategy *unmap, const size_t rooms[IPC_OPS])
{
    *s = (struct ipc_series){.map = map, .unmap = unmap};
    for (int op = 0; op < IPC_OPS; op++) {
        s->samples[op] = calloc(rooms[op] ? rooms[op] : 1, sizeof *s->samples[op]);
        if (!s->samples[op]) {
            ipc_series_fini(s);
            return -ENOMEM;
        }
    }
    return 0;
}

void ipc_series_fini(struct ipc_series *s)
{
    for (int op = 0; op < IPC_OPS; op++)
        free(s->samples[op]);
    *s = (struct ipc_series){0};
}

/* p95 between neighbours by linear interpolation; out of memory gives NaN. */
static struct ipc_stats stats_of(const struct ipc_series *s, int op)
{
    struct ipc_stats stats = {NAN, NAN, NAN, NAN, NAN, {NAN, NAN, NAN, NAN, NAN}};
    size_t count = s->counts[op];
    double *sorted = calloc(count ? count : 1, sizeof *sorted);
    double n = (double)count;
    if (!sorted || count == 0) {
        free(sorted);
        return stats;
    }
    struct page_times sum = {0};
    for (size_t i = 0; i < count; i++) {
        const struct page_times *t = &s->samples[op][i];
        sorted[i] = t->total_ns;
        sum.total_ns += t->total_ns / n;
        sum.driver_ns += t->driver_ns / n;
        sum.worker_ns += t->worker_ns / n;
        sum.transit_ns += t->transit_ns / n;
        sum.wait_ns += t->wait_ns / n;
    }
    hw_sort(sorted, count);
    stats = (struct ipc_stats){.mean = sum.total_ns,
                               .p95 = hw_percentile(sorted, count, 95),
                               .median = hw_percentile(sorted, count, 50),
                               .min = sorted[0],
                               .max = sorted[count - 1],
                               .parts = sum};
    free(sorted);
    return stats;
}

struct ipc_trace_sum ipc_trace_sum(const struct page_trace_file *trace, int op)
{
    struct ipc_trace_sum sum = {0};
    for (uint32_t i = 0; i < trace->batch_count; i++) {
        if (trace->batches[i].is_map != (op == IPC_MAP))
            continue;
        sum.batches++;
        sum.ids += trace->batches[i].count;
    }
    return sum;
}

/* Of a batch, on average. */
static double mean_pages(const struct ipc_setting *s, int op)
{
    if (!s->trace)
        return (double)s->pages_per_iter;
    struct ipc_trace_sum sum = ipc_trace_sum(s->trace, op);
    return (double)sum.ids / (double)sum.batches;
}

/* ---- one strategy ---- */

static void summary_row(FILE *out, const char *name, double map_ns, double unmap_ns)
{
    fprintf(out, "| %-13s | %9.2f | %10.2f |\n", name, map_ns / 1e6, unmap_ns / 1e6);
}

static void part_row(FILE *out, const char *name, double map_ns, double unmap_ns)
{
    fprintf(out, "  %-26s %10.1f %10.1f\n", name, map_ns / 1e3, unmap_ns / 1e3);
}

static void print_parts(FILE *out, const struct page_times *map, const struct page_times *unmap)
{
    fprintf(out, "Where the time went, mean    Map (us) Unmap (us)\n");
    part_row(out, "in the driver", map->driver_ns, unmap->driver_ns);
    part_row(out, "in the worker", map->worker_ns, unmap->worker_ns);
    part_row(out, "in transit", map->transit_ns, unmap->transit_ns);
    part_row(out, "waiting for the slowest", map->wait_ns, unmap->wait_ns);
}

static const char *layout_name(const struct page_geometry *g)
{
    return g->layout == PAGE_CONTIGUOUS ? "contiguous" : "per layer";
}

static const char fall_back[] = "no GPU was found, so pages are main memory";

static void print_setting(FILE *out, const struct ipc_setting *s)
{
    char size[HW_FORMAT_CHARS];
    const struct page_geometry *g = &s->worker->geometry;
    fprintf(out, "\nBackend                 : %s (%s)\n", s->worker->backend, s->worker->device);
    fprintf(out, "Layout                  : %s, %u layers, pages of %s\n", layout_name(g),
            g->layers, hw_format_size(size, g->page_bytes));
    fprintf(out, "Warm-up                 : %llu iterations, not counted\n",
            (unsigned long long)s->warmup);
    if (s->fell_back)
        fprintf(out, "Note                    : %s\n", fall_back);
}

static void print_trace(FILE *out, const struct ipc_setting *s)
{
    struct ipc_trace_sum map = ipc_trace_sum(s->trace, IPC_MAP);
    struct ipc_trace_sum unmap = ipc_trace_sum(s->trace, IPC_UNMAP);
    fprintf(out, "Trace                   : %s, as fast as possible\n", s->trace_path);
    fprintf(out, "Maps                    : %llu of %llu ids, %u mapped at most\n",
            (unsigned long long)map.batches, (unsigned long long)map.ids, s->trace->most);
    fprintf(out, "Unmaps                  : %llu of %llu ids\n\n",
            (unsigned long long)unmap.batches, (unsigned long long)unmap.ids);
}

void ipc_print_summary(FILE *out, const struct ipc_setting *setting, const struct ipc_series *s)
{
    static const char bound[] = "+---------------+-----------+------------+\n";
    static const char line[] = "|---------------|-----------|------------|\n";
    struct ipc_stats map = stats_of(s, IPC_MAP), unmap = stats_of(s, IPC_UNMAP);
    fprintf(out, "=== IPC Benchmark Summary ===\n");
    fprintf(out, "Broadcast impl       : %s (%s)\n", s->map->name, s->map->file);
    fprintf(out, "TP size                 : %u\n", setting->tp_size);
    fprintf(out, "Iterations              : %llu\n", (unsigned long long)setting->iters);
    if (setting->trace)
        print_trace(out, setting);
    else
        fprintf(out, "Pages Per Iteration     : %llu\n\n",
                (unsigned long long)setting->pages_per_iter);
    fprintf(out, "%s| Metric        |  Map (ms) | Unmap (ms) |\n%s", bound, line);
    summary_row(out, "mean", map.mean, unmap.mean);
    summary_row(out, "p95", map.p95, unmap.p95);
    summary_row(out, "max", map.max, unmap.max);
    summary_row(out, "min", map.min, unmap.min);
    fputs(line, out);
    summary_row(out, "per-page mean", map.mean / mean_pages(setting, IPC_MAP),
                unmap.mean / mean_pages(setting, IPC_UNMAP));
    fprintf(out, "%s\n", bound);
    print_parts(out, &map.parts, &unmap.parts);
    print_setting(out, setting);
}

/* ---- all strategies ---- */

static void compare_row(struct hw_table *t, const struct ipc_series *s, int op, double baseline)
{
    struct ipc_stats stats = stats_of(s, op);
    hw_table_cells(t, "%s\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.2f",
                   op == IPC_MAP ? s->map->name : s->unmap->name, op_names[op], stats.median / 1e3,
                   stats.p95 / 1e3, stats.mean / 1e3, stats.min / 1e3, stats.parts.driver_ns / 1e3,
                   stats.parts.worker_ns / 1e3, stats.parts.transit_ns / 1e3,
                   stats.parts.wait_ns / 1e3, baseline / stats.median);
}

static struct hw_table *compare_table(const struct ipc_series *all, size_t count)
{
    struct hw_table *t = hw_table_create();
    if (!t)
        return NULL;
    hw_table_head(t,
                  "strategy\t<operation\tmedian us\tp95\tmean\tmin\tdriver\tworker\ttransit\twait"
                  "\ttimes faster");
    for (int op = 0; op < IPC_OPS; op++) {
        double baseline = stats_of(&all[0], op).median;
        for (size_t i = 0; i < count; i++)
            compare_row(t, &all[i], op, baseline);
    }
    return t;
}

static void print_bars(FILE *out, const struct ipc_series *all, size_t count, int op)
{
    double most = 0;
    for (size_t i = 0; i < count; i++)
        most = fmax(most, stats_of(&all[i], op).median);
    fprintf(out, "\nMedian %s, us\n", op_names[op]);
    for (size_t i = 0; i < count; i++) {
        double median = stats_of(&all[i], op).median;
        int width = most > 0 ? (int)lround(median / most * BAR_WIDTH) : 0;
        fprintf(out, "  %-8s %.*s %.1f\n", all[i].map->name, width > 0 ? width : 1,
                "##################################################", median / 1e3);
    }
}

static void describe(char *text, size_t size, const struct ipc_setting *s)
{
    char what[160];
    if (s->trace)
        snprintf(what, sizeof what, "trace %.100s of %u batches", s->trace_path,
                 s->trace->batch_count);
    else
        snprintf(what, sizeof what, "pages an iteration: %llu",
                 (unsigned long long)s->pages_per_iter);
    snprintf(text, size,
             "%u workers, %s (%s), %s, %u layers, %s, %llu"
             " iterations after %llu of warm-up, strategies interleaved%s%s",
             s->tp_size, s->worker->backend, s->worker->device, layout_name(&s->worker->geometry),
             s->worker->geometry.layers, what, (unsigned long long)s->iters,
             (unsigned long long)s->warmup, s->fell_back ? "; " : "",
             s->fell_back ? fall_back : "");
}

int ipc_print_compare(FILE *out, const struct ipc_setting *setting, const struct ipc_series *all,
                      size_t count)
{
    char text[560];
    struct hw_table *t = compare_table(all, count);
    if (!t)
        return -ENOMEM;
    describe(text, sizeof text, setting);
    fprintf(out, "%s\n\n", text);
    int rc = hw_table_print(t, out);
    hw_table_destroy(t);
    for (int op = 0; op < IPC_OPS && rc == 0; op++)
        print_bars(out, all, count, op);
    return rc;
}

/* ---- for programs ---- */

static void json_row(struct hw_bench *bench, const struct ipc_setting *setting,
                     const struct ipc_series *s, int op, const char *figure, double ns,
                     double baseline_ns)
{
    char name[96];
    const struct page_strategy *strategy = op == IPC_MAP ? s->map : s->unmap;
    snprintf(name, sizeof name, "%s.%s.%s", strategy->name, op_names[op], figure);
    hw_bench_row(bench, name, ns / 1e3, "us", baseline_ns / 1e3);
    hw_bench_field(bench, "strategy", "%s", strategy->name);
    hw_bench_field(bench, "operation", "%s", op_names[op]);
    hw_bench_field(bench, "backend", "%s", setting->worker->backend);
    hw_bench_field(bench, "device", "%s", setting->worker->device);
    hw_bench_field(bench, "layout", "%s", layout_name(&setting->worker->geometry));
    hw_bench_field(bench, "layers", "%u", setting->worker->geometry.layers);
    hw_bench_field(bench, "workers", "%u", setting->tp_size);
    if (setting->trace)
        hw_bench_field(bench, "trace", "%s", setting->trace_path);
    else
        hw_bench_field(bench, "pages", "%llu", (unsigned long long)setting->pages_per_iter);
    hw_bench_field(bench, "iters", "%llu", (unsigned long long)setting->iters);
    hw_bench_field(bench, "warmup", "%llu", (unsigned long long)setting->warmup);
    if (setting->fell_back)
        hw_bench_field(bench, "note", "%s", fall_back);
}

static void json_series(struct hw_bench *bench, const struct ipc_setting *setting,
                        const struct ipc_series *s, const struct ipc_series *first, int op)
{
    struct ipc_stats stats = stats_of(s, op), base = stats_of(first, op);
    bool is_first = s == first;
    json_row(bench, setting, s, op, "median", stats.median, is_first ? NAN : base.median);
    json_row(bench, setting, s, op, "p95", stats.p95, stats.median);
    json_row(bench, setting, s, op, "mean", stats.mean, is_first ? NAN : base.mean);
    json_row(bench, setting, s, op, "max", stats.max, NAN);
    json_row(bench, setting, s, op, "min", stats.min, NAN);
    json_row(bench, setting, s, op, "per-page", stats.mean / mean_pages(setting, op), NAN);
    json_row(bench, setting, s, op, "driver", stats.parts.driver_ns, NAN);
    json_row(bench, setting, s, op, "worker", stats.parts.worker_ns, NAN);
    json_row(bench, setting, s, op, "transit", stats.parts.transit_ns, NAN);
    json_row(bench, setting, s, op, "wait", stats.parts.wait_ns, NAN);
}

int ipc_print_json(FILE *out, const struct ipc_setting *setting, const struct ipc_series *all,
                   size_t count)
{
    struct hw_bench bench;
    hw_bench_begin(&bench, "ipc");
    for (size_t i = 0; i < count; i++) {
        for (int op = 0; op < IPC_OPS; op++)
            json_series(&bench, setting, &all[i], &all[0], op);
    }
    int rc = hw_bench_print_json(&bench, out);
    hw_bench_end(&bench);
    return rc;
}

static void csv_sample(struct hw_csv *csv, const struct ipc_series *s, int op, size_t i)
{
    const struct page_times *t = &s->samples[op][i];
    hw_csv_field(csv, op == IPC_MAP ? s->map->name : s->unmap->name);
    hw_csv_field(csv, op_names[op]);
    hw_csv_u64(csv, i);
    hw_csv_double(csv, t->total_ns);
    hw_csv_double(csv, t->driver_ns);
    hw_csv_double(csv, t->worker_ns);
    hw_csv_double(csv, t->transit_ns);
    hw_csv_double(csv, t->wait_ns);
    hw_csv_end_row(csv);
}

int ipc_print_csv(FILE *out, const struct ipc_series *all, size_t count)
{
    static const char *const headings[] = {"strategy",  "operation", "iteration",  "total_ns",
                                           "driver_ns", "worker_ns", "transit_ns", "wait_ns"};
    struct hw_csv csv;
    hw_csv_begin(&csv, out);
    for (size_t i = 0; i < ARRAY_LEN(headings); i++)
        hw_csv_field(&csv, headings[i]);
    hw_csv_end_row(&csv);
    for (size_t s = 0; s < count; s++) {
        for (int op = 0; op < IPC_OPS; op++)
            for (size_t i = 0; i < all[s].counts[op]; i++)
                csv_sample(&csv, &all[s], op, i);
    }
    return hw_csv_finish(&csv);
}

/* ---- a page ---- */

static int html_bars(struct hw_html *html, const struct ipc_series *all, size_t count, int op)
{
    struct hw_bar bars[HW_CHART_BARS_MAX];
    size_t n = count < HW_CHART_BARS_MAX ? count : HW_CHART_BARS_MAX;
    for (size_t i = 0; i < n; i++)
        bars[i] = (struct hw_bar){all[i].map->name, stats_of(&all[i], op).median / 1e3};
    struct hw_bar_chart chart = {.title = op == IPC_MAP ? "Median map" : "Median unmap",
                                 .unit = "median",
                                 .show = hw_show_us,
                                 .bars = bars,
                                 .count = n};
    return hw_html_bars(html, &chart);
}

int ipc_write_html(const char *path, const struct ipc_setting *setting,
                   const struct ipc_series *all, size_t count)
{
    struct hw_page page;
    char text[560];
    struct hw_table *t = compare_table(all, count);
    if (!t)
        return -ENOMEM;
    int rc = hw_page_begin(&page, path, "hawser bench-ipc");
    if (rc == 0) {
        describe(text, sizeof text, setting);
        hw_html_paragraph(&page.html, "%s.", text);
        for (int op = 0; op < IPC_OPS && rc == 0; op++)
            rc = html_bars(&page.html, all, count, op);
        hw_html_table(&page.html, t);
        rc = hw_page_end(&page, rc);
    }
    hw_table_destroy(t);
    return rc;
}
