/* Rows to tables and charts. */
#include "bench/llm/experiment.h"

#include "base/clock.h"
#include "base/report/bench.h"
#include "base/report/html.h"
#include "base/units.h"
#include "bench/llm/ttest.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRIALS_MAX = 1000, POINTS_MAX = CMD_LIST_MAX };

/* ---- choosing rows ---- */

/* A cell: what its rows have in common.  point NULL: any. */
struct cell {
    const char *mode, *phase;
    const struct experiment_point *point;
};

static bool is_in(const struct experiment_row *row, const struct cell *c)
{
    return strcmp(row->mode, c->mode) == 0 && strcmp(row->phase, c->phase) == 0 &&
           (!c->point || experiment_same_point(&row->point, c->point));
}

/* The points that the rows have, in the order they were run. */
static size_t points_of(const struct experiment_rows *rows,
                        struct experiment_point points[POINTS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < rows->count; i++) {
        bool known = false;
        for (size_t p = 0; p < count; p++)
            known |= experiment_same_point(&points[p], &rows->items[i].point);
        if (!known && count < POINTS_MAX)
            points[count++] = rows->items[i].point;
    }
    return count;
}

typedef double figure_fn(const struct experiment_row *row);

static double latency_ms(const struct experiment_row *row)
{
    return row->latency_s * 1e3;
}

static double net_bytes(const struct experiment_row *row)
{
    return row->net_bytes;
}

static double mean_after_first(const struct experiment_list *list)
{
    double sum = 0;
    for (size_t i = 1; i < list->count; i++)
        sum += list->values[i];
    return list->count > 1 ? sum / (double)(list->count - 1) : NAN;
}

/* Of one exchange after the prompt's. */
static double step_bytes(const struct experiment_row *row)
{
    return mean_after_first(&row->step_up) + mean_after_first(&row->step_down);
}

static double step_ms(const struct experiment_row *row)
{
    return mean_after_first(&row->step_us) / 1e3;
}

/* The exchange that finds layers missing. */
static double recovery_ms(const struct experiment_row *row)
{
    uint64_t at = experiment_evicts_at(&row->point);
    return at < row->step_us.count ? row->step_us.values[at] / 1e3 : NAN;
}

static double kv_fetched(const struct experiment_row *row)
{
    return row->kv_fetched;
}

static double kv_computed(const struct experiment_row *row)
{
    return row->kv_computed;
}

static double kernel_ms(const struct experiment_row *row)
{
    return row->kernel_ms;
}

static double server_serdes_ms(const struct experiment_row *row)
{
    return row->server_serdes_ms;
}

static double client_serdes_ms(const struct experiment_row *row)
{
    return row->client_serdes_ms;
}

static double waiting_ms(const struct experiment_row *row)
{
    double rest = row->rpc_ms - row->kernel_ms - row->server_serdes_ms;
    return rest > 0 ? rest : 0;
}

/* One value a trial, the mean of its clients, in the order of the trials. */
static size_t by_trial(const struct experiment_rows *rows, const struct cell *c, figure_fn *figure,
                       double values[TRIALS_MAX])
{
    size_t count = 0;
    for (uint64_t trial = 1; trial <= TRIALS_MAX; trial++) {
        double sum = 0;
        size_t found = 0;
        for (size_t i = 0; i < rows->count; i++) {
            const struct experiment_row *row = &rows->items[i];
            if (row->trial == trial && is_in(row, c)) {
                sum += figure(row);
                found++;
            }
        }
        if (found)
            values[count++] = sum / (double)found;
    }
    return count;
}

static double mean_of(const struct experiment_rows *rows, const struct cell *c, figure_fn *figure)
{
    double values[TRIALS_MAX];
    return ttest_mean(values, by_trial(rows, c, figure, values)).mean;
}

/* ---- agreement ---- */

static bool same_tokens(const struct experiment_row *a, const struct experiment_row *b,
                        char why[256])
{
    size_t shorter = a->tokens.count < b->tokens.count ? a->tokens.count : b->tokens.count;
    size_t i = 0;
    while (i < shorter && a->tokens.values[i] == b->tokens.values[i])
        i++;
    if (i == a->tokens.count && i == b->tokens.count)
        return true;
    if (i == shorter)
        snprintf(why, 256, "%s: mode %s (trial %llu) has %zu tokens, mode %s (trial %llu) %zu",
                 a->phase, b->mode, (unsigned long long)b->trial, b->tokens.count, a->mode,
                 (unsigned long long)a->trial, a->tokens.count);
    else
        snprintf(why, 256,
                 "%s: step %zu of mode %s (trial %llu) is token %.0f, of mode %s (trial %llu) "
                 "token %.0f",
                 a->phase, i, b->mode, (unsigned long long)b->trial, b->tokens.values[i], a->mode,
                 (unsigned long long)a->trial, a->tokens.values[i]);
    return false;
}

bool experiment_agrees(const struct experiment_rows *rows, char why[256])
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct experiment_row *row = &rows->items[i];
        size_t first = 0;
        while (strcmp(rows->items[first].phase, row->phase) != 0 ||
               rows->items[first].point.steps != row->point.steps)
            first++;
        if (!same_tokens(&rows->items[first], row, why))
            return false;
    }
    return true;
}

/* ---- the table ---- */

static const char *point_text(const struct experiment_report *r, const struct experiment_point *p,
                              char text[HW_FORMAT_CHARS])
{
    switch (r->sweep) {
    case EXPERIMENT_SWEEP_STEPS:
        snprintf(text, HW_FORMAT_CHARS, "%llu steps", (unsigned long long)p->steps);
        break;
    case EXPERIMENT_SWEEP_RTT:
        hw_format_duration(text, p->rtt_ns);
        break;
    case EXPERIMENT_SWEEP_RATE:
        snprintf(text, HW_FORMAT_CHARS, "%.4g Mbit/s", (double)p->bits_s / 1e6);
        break;
    case EXPERIMENT_SWEEP_CLIENTS:
        snprintf(text, HW_FORMAT_CHARS, "%llu clients", (unsigned long long)p->clients);
        break;
    case EXPERIMENT_SWEEP_PRESSURE:
        snprintf(text, HW_FORMAT_CHARS, "%llu layers out", (unsigned long long)p->evicted);
        break;
    default:
        text[0] = '\0';
    }
    return text;
}

static void add_row(struct hw_table *t, const struct experiment_rows *rows,
                    const struct experiment_report *r, const struct cell *c)
{
    double values[TRIALS_MAX], base[TRIALS_MAX];
    char text[HW_FORMAT_CHARS], half[HW_FORMAT_CHARS];
    size_t count = by_trial(rows, c, latency_ms, values);
    if (!count)
        return;
    struct cell first = {.mode = r->modes[0], .phase = c->phase, .point = c->point};
    size_t pairs = by_trial(rows, &first, latency_ms, base);
    struct ttest_mean m = ttest_mean(values, count);
    double p = pairs == count && strcmp(c->mode, first.mode) != 0
                   ? ttest_paired(values, base, count)
                   : NAN;
    hw_table_cell(t, "%s", c->phase);
    if (r->sweep)
        hw_table_cell(t, "%s", point_text(r, c->point, text));
    hw_table_cell(t, "%s", c->mode);
    hw_table_cell(t, "%zu", count);
    hw_table_cell(t, "%s", hw_format_figure(text, m.mean));
    hw_table_cell(t, "%s", hw_format_figure(half, m.half));
    hw_table_cell(t, "%s",
                  hw_format_figure(text, pairs ? m.mean / ttest_mean(base, pairs).mean : NAN));
    if (isnan(p))
        hw_table_cell(t, "-");
    else
        hw_table_cell(t, p < 0.001 ? "< 0.001" : "%.3f", p);
    hw_table_cell(t, "%s", hw_format_figure(text, mean_of(rows, c, net_bytes)));
    hw_table_cell(t, "%s", hw_format_figure(text, mean_of(rows, c, step_bytes)));
    if (r->sweep == EXPERIMENT_SWEEP_PRESSURE) {
        hw_table_cell(t, "%s", hw_format_figure(text, mean_of(rows, c, recovery_ms)));
        hw_table_cell(t, "%s", hw_format_figure(text, mean_of(rows, c, kv_fetched)));
        hw_table_cell(t, "%s", hw_format_figure(text, mean_of(rows, c, kv_computed)));
    }
}

static struct hw_table *make_table(const struct experiment_rows *rows,
                                   const struct experiment_report *r)
{
    static const char *const phases[] = {"prefill", "decode"};
    struct experiment_point points[POINTS_MAX];
    size_t point_count = points_of(rows, points);
    struct hw_table *t = hw_table_create();
    if (!t)
        return NULL;
    hw_table_column(t, "phase", HW_LEFT);
    if (r->sweep)
        hw_table_column(t, "point", HW_LEFT);
    hw_table_column(t, "mode", HW_LEFT);
    hw_table_column(t, "trials", HW_RIGHT);
    hw_table_column(t, "latency ms", HW_RIGHT);
    hw_table_column(t, "+- 95%", HW_RIGHT);
    hw_table_column(t, "x first", HW_RIGHT);
    hw_table_column(t, "p", HW_RIGHT);
    hw_table_column(t, "bytes", HW_RIGHT);
    hw_table_column(t, "bytes a step", HW_RIGHT);
    if (r->sweep == EXPERIMENT_SWEEP_PRESSURE) {
        hw_table_column(t, "recovery ms", HW_RIGHT);
        hw_table_column(t, "KV fetched", HW_RIGHT);
        hw_table_column(t, "rows computed", HW_RIGHT);
    }
    for (size_t f = 0; f < 2; f++) {
        for (size_t p = 0; p < point_count; p++) {
            for (const char *const *mode = r->modes; *mode; mode++)
                add_row(t, rows, r, &(struct cell){*mode, phases[f], &points[p]});
        }
    }
    return t;
}

int experiment_print(const struct experiment_rows *rows, const struct experiment_report *r,
                     FILE *out)
{
    struct hw_table *t = make_table(rows, r);
    int rc = t ? hw_table_print(t, out) : -ENOMEM;
    hw_table_destroy(t);
    return rc;
}

/* ---- charts ---- */

static size_t mode_count(const struct experiment_report *r)
{
    size_t count = 0;
    while (r->modes[count])
        count++;
    return count;
}

static int bars(struct hw_html *html, const struct experiment_rows *rows,
                const struct experiment_report *r, const char *phase, figure_fn *figure,
                const char *title)
{
    struct hw_bar items[CMD_LIST_MAX];
    size_t count = mode_count(r);
    for (size_t i = 0; i < count; i++)
        items[i] = (struct hw_bar){r->modes[i],
                                   mean_of(rows, &(struct cell){r->modes[i], phase, NULL}, figure)};
    struct hw_bar_chart chart = {
        .title = title, .unit = "bytes", .log_scale = true, .bars = items, .count = count};
    return hw_html_bars(html, &chart);
}

/* Mean over all rows of a cell, exchange by exchange. */
static size_t mean_steps(const struct experiment_rows *rows, const struct cell *c, double *y)
{
    size_t longest = 0;
    for (size_t i = 0; i < rows->count; i++) {
        if (is_in(&rows->items[i], c) && rows->items[i].step_us.count > longest)
            longest = rows->items[i].step_us.count;
    }
    for (size_t s = 1; s < longest; s++) {
        double sum = 0;
        size_t found = 0;
        for (size_t i = 0; i < rows->count; i++) {
            const struct experiment_row *row = &rows->items[i];
            if (is_in(row, c) && s < row->step_us.count) {
                sum += row->step_us.values[s];
                found++;
            }
        }
        y[s - 1] = sum / (double)found;
    }
    return longest ? longest - 1 : 0;
}

static int steps_chart(struct hw_html *html, const struct experiment_rows *rows,
                       const struct experiment_report *r)
{
    struct hw_series series[HW_CHART_SERIES_MAX];
    size_t count = mode_count(r), shown = 0;
    double *x = malloc(EXPERIMENT_STEPS_MAX * sizeof *x);
    double *y = malloc(HW_CHART_SERIES_MAX * (size_t)EXPERIMENT_STEPS_MAX * sizeof *y);
    int rc = x && y ? 0 : -ENOMEM;
    for (size_t i = 0; i < EXPERIMENT_STEPS_MAX && rc == 0; i++)
        x[i] = (double)(i + 1);
    for (size_t i = 0; i < count && shown < HW_CHART_SERIES_MAX && rc == 0; i++) {
        double *line = y + shown * EXPERIMENT_STEPS_MAX;
        size_t points = mean_steps(rows, &(struct cell){r->modes[i], "decode", NULL}, line);
        if (points)
            series[shown++] = (struct hw_series){r->modes[i], x, line, points};
    }
    struct hw_line_chart chart = {.title = "Latency of each exchange of a decode",
                                  .x_label = "exchange",
                                  .y_label = "us",
                                  .log_y = true,
                                  .series = series,
                                  .count = shown};
    if (rc == 0 && shown)
        rc = hw_html_lines(html, &chart);
    free(x);
    free(y);
    return rc;
}

static double point_value(const struct experiment_report *r, const struct experiment_point *p)
{
    return r->sweep == EXPERIMENT_SWEEP_STEPS      ? (double)p->steps
           : r->sweep == EXPERIMENT_SWEEP_RTT      ? (double)p->rtt_ns / 1e6
           : r->sweep == EXPERIMENT_SWEEP_RATE     ? (double)p->bits_s / 1e6
           : r->sweep == EXPERIMENT_SWEEP_PRESSURE ? (double)p->evicted
                                                   : (double)p->clients;
}

/* What a chart along the sweep shows. */
struct along {
    const char *title, *unit;
    figure_fn *figure;
    bool log;
};

static int along_chart(struct hw_html *html, const struct experiment_rows *rows,
                       const struct experiment_report *r, const struct along *along)
{
    static const char *const labels[] = {"",       "decode steps", "round trip, ms",
                                         "Mbit/s", "clients",      "layers that were out"};
    struct experiment_point points[POINTS_MAX];
    size_t point_count = points_of(rows, points), count = mode_count(r), shown = 0;
    double x[POINTS_MAX], y[HW_CHART_SERIES_MAX][POINTS_MAX];
    struct hw_series series[HW_CHART_SERIES_MAX];
    if (!r->sweep)
        return 0;
    for (size_t p = 0; p < point_count; p++)
        x[p] = point_value(r, &points[p]);
    for (size_t i = 0; i < count && shown < HW_CHART_SERIES_MAX; i++, shown++) {
        for (size_t p = 0; p < point_count; p++)
            y[shown][p] =
                mean_of(rows, &(struct cell){r->modes[i], "decode", &points[p]}, along->figure);
        series[shown] = (struct hw_series){r->modes[i], x, y[shown], point_count};
    }
    struct hw_line_chart chart = {.title = along->title,
                                  .x_label = labels[r->sweep],
                                  .y_label = along->unit,
                                  .log_x = r->sweep == EXPERIMENT_SWEEP_RATE,
                                  .log_y = along->log,
                                  .points = true,
                                  .series = series,
                                  .count = shown};
    return hw_html_lines(html, &chart);
}

static int sweep_charts(struct hw_html *html, const struct experiment_rows *rows,
                        const struct experiment_report *r)
{
    static const struct along always = {"Latency of an exchange along the sweep", "ms", step_ms,
                                        true};
    static const struct along pressure[] = {
        {"Bytes of KV that came back", "bytes", kv_fetched, false},
        {"Latency of the exchange that found layers missing", "ms", recovery_ms, false}};
    int rc = along_chart(html, rows, r, &always);
    for (size_t i = 0; i < 2 && rc == 0 && r->sweep == EXPERIMENT_SWEEP_PRESSURE; i++)
        rc = along_chart(html, rows, r, &pressure[i]);
    return rc;
}

static int fill_hist(struct hw_hist *hist, const struct experiment_rows *rows, const struct cell *c)
{
    int rc = hw_hist_init(hist);
    for (size_t i = 0; i < rows->count && rc == 0; i++) {
        const struct experiment_row *row = &rows->items[i];
        for (size_t s = 1; is_in(row, c) && s < row->step_us.count; s++)
            hw_hist_record(hist, (uint64_t)(row->step_us.values[s] * 1e3));
    }
    return rc;
}

static int cdf_chart(struct hw_html *html, const struct experiment_rows *rows,
                     const struct experiment_report *r)
{
    struct hw_hist hists[HW_CHART_SERIES_MAX];
    struct hw_cdf_series series[HW_CHART_SERIES_MAX];
    size_t count = mode_count(r), made = 0, shown = 0;
    int rc = 0;
    for (; made < count && made < HW_CHART_SERIES_MAX && rc == 0; made++) {
        rc = fill_hist(&hists[made], rows, &(struct cell){r->modes[made], "decode", NULL});
        if (rc)
            break;
        if (hists[made].count)
            series[shown++] = (struct hw_cdf_series){r->modes[made], &hists[made]};
    }
    struct hw_cdf_chart chart = {.title = "Exchanges of a decode at or below a latency",
                                 .x_label = "us",
                                 .log_x = true,
                                 .series = series,
                                 .count = shown};
    if (rc == 0 && shown)
        rc = hw_html_cdf(html, &chart);
    while (made > 0)
        hw_hist_fini(&hists[--made]);
    return rc;
}

/* ---- stacked time ---- */

static const struct part {
    const char *name, *color;
    figure_fn *figure;
} parts[] = {
    {"kernels", "#4477aa", kernel_ms},
    {"server: bytes and tensors", "#228833", server_serdes_ms},
    {"client: bytes and tensors", "#ccbb44", client_serdes_ms},
    {"network and waiting", "#ee6677", waiting_ms},
};
enum { PARTS = sizeof parts / sizeof *parts };

static void stack_bar(struct hw_html *html, const char *mode, const double values[PARTS],
                      double most)
{
    char figure[HW_FORMAT_CHARS];
    double total = 0;
    hw_html_raw(html, "<tr><td>");
    hw_html_text(html, mode);
    hw_html_raw(html, "</td><td style=\"width:70%\"><div style=\"display:flex;height:1.2em\">");
    for (size_t i = 0; i < PARTS; i++) {
        total += values[i];
        hw_html_raw(html, "<div title=\"");
        hw_html_text(html, parts[i].name);
        hw_html_raw(html, "\" style=\"background:");
        hw_html_raw(html, parts[i].color);
        hw_html_raw(html, ";width:");
        hw_html_number(html, most > 0 ? 100 * values[i] / most : 0);
        hw_html_raw(html, "%\"></div>");
    }
    hw_html_raw(html, "</div></td><td>");
    hw_html_text(html, hw_format_figure(figure, total));
    hw_html_raw(html, " ms</td></tr>\n");
}

static void stack_chart(struct hw_html *html, const struct experiment_rows *rows,
                        const struct experiment_report *r, const char *phase)
{
    double values[CMD_LIST_MAX][PARTS], most = 0;
    size_t count = mode_count(r);
    for (size_t m = 0; m < count; m++) {
        double total = 0;
        for (size_t i = 0; i < PARTS; i++) {
            double v = mean_of(rows, &(struct cell){r->modes[m], phase, NULL}, parts[i].figure);
            values[m][i] = isnan(v) ? 0 : v;
            total += values[m][i];
        }
        most = total > most ? total : most;
    }
    hw_html_raw(html, "<table>\n");
    for (size_t m = 0; m < count; m++)
        stack_bar(html, r->modes[m], values[m], most);
    hw_html_raw(html, "</table>\n<p>");
    for (size_t i = 0; i < PARTS; i++) {
        hw_html_raw(html, "<span style=\"background:");
        hw_html_raw(html, parts[i].color);
        hw_html_raw(html, ";padding:0 .6em;margin-right:.3em\"></span>");
        hw_html_text(html, parts[i].name);
        hw_html_raw(html, " &#160; ");
    }
    hw_html_raw(html, "</p>\n");
}

/* ---- the page ---- */

static bool has_phase(const struct experiment_rows *rows, const char *phase)
{
    for (size_t i = 0; i < rows->count; i++) {
        if (strcmp(rows->items[i].phase, phase) == 0)
            return true;
    }
    return false;
}

static int phase_charts(struct hw_html *html, const struct experiment_rows *rows,
                        const struct experiment_report *r, const char *phase)
{
    int rc = bars(html, rows, r, phase, net_bytes, "Bytes of a run, both ways");
    if (rc == 0 && strcmp(phase, "decode") == 0) {
        rc = bars(html, rows, r, phase, step_bytes, "Bytes of a decode step, both ways");
        if (rc == 0)
            rc = steps_chart(html, rows, r);
        if (rc == 0)
            rc = cdf_chart(html, rows, r);
        if (rc == 0)
            rc = sweep_charts(html, rows, r);
    }
    hw_html_paragraph(html, "Where the time of a run went:");
    stack_chart(html, rows, r, phase);
    return rc;
}

static int fill_page(struct hw_html *html, const struct experiment_rows *rows,
                     const struct experiment_report *r)
{
    static const char *const phases[] = {"prefill", "decode"};
    char host[HW_BENCH_HOST_CHARS], now[HW_UTC_CHARS];
    hw_bench_host(host);
    hw_utc(now);
    hw_html_paragraph(html, "Model %s, on %s, commit %s, %s; GPUs whose use was sampled: %s.",
                      r->title_model, host, hw_bench_commit(), now, r->gpu);
    hw_html_paragraph(html,
                      "All modes generated the same tokens.  Latency is that of the phase; "
                      "bytes are at the socket, framing included; p is of a paired t test "
                      "of the latency against mode %s.",
                      r->modes[0]);
    struct hw_table *t = make_table(rows, r);
    if (!t)
        return -ENOMEM;
    hw_html_table(html, t);
    int rc = hw_table_error(t);
    hw_table_destroy(t);
    for (size_t i = 0; i < 2 && rc == 0; i++) {
        if (!has_phase(rows, phases[i]))
            continue;
        hw_html_heading(html, phases[i]);
        rc = phase_charts(html, rows, r, phases[i]);
    }
    return rc;
}

int experiment_write_html(const struct experiment_rows *rows, const struct experiment_report *r,
                          const char *path)
{
    char *temporary;
    struct hw_html html;
    if (asprintf(&temporary, "%s.part", path) < 0)
        return -ENOMEM;
    FILE *out = fopen(temporary, "w");
    int rc = out ? 0 : -errno;
    if (out) {
        hw_html_begin(&html, out, "Hawser: what travels in each mode, and what it costs");
        rc = fill_page(&html, rows, r);
        int ended = hw_html_end(&html);
        rc = rc ? rc : ended;
        if (fclose(out) && rc == 0)
            rc = -errno;
        if (rc == 0 && rename(temporary, path))
            rc = -errno;
        if (rc)
            unlink(temporary);
    }
    free(temporary);
    return rc;
}
