/* Rows to tables and charts. */
#include "bench/llm/experiment.h"

#include "base/attr.h"
#include "base/report/bench.h"
#include "base/report/html.h"
#include "base/units.h"
#include "bench/llm/ttest.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIALS_MAX = 1000, POINTS_MAX = CMD_LIST_MAX };
#define SURE 0.05 /* a p below it shows a difference */

/* ---- choosing rows ---- */

/* A cell: what its rows have in common. */
struct cell {
    const char *mode, *phase;
    const struct experiment_point *point;
};

static bool is_in(const struct experiment_row *row, const struct cell *c)
{
    return strcmp(row->mode, c->mode) == 0 && strcmp(row->phase, c->phase) == 0 &&
           experiment_same_point(&row->point, c->point);
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

static double weights(const struct experiment_row *row)
{
    return row->bytes[LLM_WEIGHTS];
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

static double exchanges_ms(const struct experiment_row *row)
{
    double sum = 0;
    for (size_t i = 0; i < row->step_us.count; i++)
        sum += row->step_us.values[i] / 1e3;
    return sum;
}

/* Of the calls before the prompt, an upload of weights among them: a mode that sends weights with
 * every exchange has none.  Those of a Vulkan driver are not timed. */
static double before_ms(const struct experiment_row *row)
{
    if (isnan(weights(row)))
        return NAN;
    double calls = row->rpc_ms + row->client_serdes_ms;
    return fmax(calls - exchanges_ms(row), 0);
}

/* Of the exchanges: what no other part of the time explains.  Negative when the parts took more
 * time than the exchanges, since the calls before the prompt have a share in them, too. */
static double unexplained_ms(const struct experiment_row *row)
{
    return exchanges_ms(row) - row->server_serdes_ms - row->client_serdes_ms -
           (isnan(row->kernel_ms) ? 0 : row->kernel_ms);
}

static double rest_ms(const struct experiment_row *row)
{
    return fmax(unexplained_ms(row), 0);
}

/* What is left of the calls before the prompt without that share. */
static double rest_before_ms(const struct experiment_row *row)
{
    return fmax(before_ms(row) + fmin(unexplained_ms(row), 0), 0);
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

static size_t mode_count(const struct experiment_report *r)
{
    size_t count = 0;
    while (r->modes[count])
        count++;
    return count;
}

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

static bool is_lossy(const struct experiment_report *r, const char *mode)
{
    return r->lossy && strcmp(mode, "semantic") == 0;
}

/* The first row whose tokens a row should have: its own, when there is no other. */
static const struct experiment_row *reference_of(const struct experiment_rows *rows,
                                                 const struct experiment_report *r,
                                                 const struct experiment_row *row)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct experiment_row *other = &rows->items[i];
        if (!is_lossy(r, other->mode) && strcmp(other->phase, row->phase) == 0 &&
            other->point.steps == row->point.steps)
            return other;
    }
    return row;
}

bool experiment_agrees(const struct experiment_rows *rows, const struct experiment_report *r,
                       char why[256])
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct experiment_row *row = &rows->items[i];
        if (!is_lossy(r, row->mode) && !same_tokens(reference_of(rows, r, row), row, why))
            return false;
    }
    return true;
}

/* How many tokens of a cell stand where the others have them, of how many. */
static size_t agreeing(const struct experiment_rows *rows, const struct experiment_report *r,
                       const struct cell *c, size_t *all)
{
    size_t same = 0;
    *all = 0;
    for (size_t i = 0; i < rows->count; i++) {
        const struct experiment_row *row = &rows->items[i];
        if (!is_in(row, c))
            continue;
        const struct experiment_list *right = &reference_of(rows, r, row)->tokens;
        for (size_t t = 0; t < row->tokens.count && t < right->count; t++)
            same += row->tokens.values[t] == right->values[t];
        *all += row->tokens.count;
    }
    return same;
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

/* The latency of a cell, and whether it differs from the first mode's. */
struct latency {
    size_t trials;
    struct ttest_mean ms;
    double first_ms; /* NaN: the first mode has no row */
    char difference[48];
};

static void compare(const struct experiment_rows *rows, const struct experiment_report *r,
                    const struct cell *c, struct latency *out)
{
    double values[TRIALS_MAX], base[TRIALS_MAX];
    struct cell first = {.mode = r->modes[0], .phase = c->phase, .point = c->point};
    size_t count = by_trial(rows, c, latency_ms, values);
    size_t pairs = by_trial(rows, &first, latency_ms, base);
    *out = (struct latency){.trials = count,
                            .ms = ttest_mean(values, count),
                            .first_ms = ttest_mean(base, pairs).mean,
                            .difference = "-"};
    if (pairs != count || strcmp(c->mode, first.mode) == 0)
        return;
    double p = ttest_paired(values, base, count);
    char *text = out->difference;
    size_t size = sizeof out->difference;
    if (isnan(p))
        snprintf(text, size, "not tested: 1 trial");
    else if (p >= SURE)
        snprintf(text, size, "no difference shown (p %.2f)", p);
    else if (p < 0.001)
        snprintf(text, size, "p < 0.001");
    else
        snprintf(text, size, "p %.3f", p);
}

static void add_latency(struct hw_table *t, const struct experiment_rows *rows,
                        const struct experiment_report *r, const struct cell *c)
{
    char text[HW_FORMAT_CHARS];
    struct latency l;
    compare(rows, r, c, &l);
    hw_table_cell(t, "%zu", l.trials);
    hw_table_cell(t, "%s", hw_format_figure(text, l.ms.mean));
    hw_table_cell(t, "%s", hw_format_figure(text, l.ms.half));
    hw_table_cell(t, "%s", hw_format_figure(text, l.ms.mean / l.first_ms));
    hw_table_cell(t, "%s", l.difference);
}

/* A column whose cell is the mean of a figure. */
struct column {
    const char *heading;
    figure_fn *figure;
    hw_show_fn *show; /* NULL: plain figures */
};

static const struct column columns[] = {{"upload", weights, hw_show_bytes},
                                        {"before prompt ms", before_ms, NULL},
                                        {"bytes", net_bytes, hw_show_bytes},
                                        {"bytes a step", step_bytes, hw_show_bytes}};
static const struct column pressure_columns[] = {{"recovery ms", recovery_ms, NULL},
                                                 {"KV fetched", kv_fetched, hw_show_bytes},
                                                 {"rows computed", kv_computed, NULL}};

static const char *value_text(char text[HW_FORMAT_CHARS], const struct column *column, double value)
{
    return column->show ? column->show(text, value) : hw_format_figure(text, value);
}

static void add_means(struct hw_table *t, const struct experiment_rows *rows, const struct cell *c,
                      const struct column *from, size_t count)
{
    char text[HW_FORMAT_CHARS];
    for (size_t i = 0; i < count; i++)
        hw_table_cell(t, "%s", value_text(text, &from[i], mean_of(rows, c, from[i].figure)));
}

static void add_row(void *user, const struct experiment_rows *rows,
                    const struct experiment_report *r, const struct cell *c)
{
    struct hw_table *t = user;
    char text[HW_FORMAT_CHARS];
    size_t all, same = agreeing(rows, r, c, &all);
    hw_table_cell(t, "%s", c->phase);
    if (r->sweep)
        hw_table_cell(t, "%s", point_text(r, c->point, text));
    hw_table_cell(t, "%s", c->mode);
    add_latency(t, rows, r, c);
    add_means(t, rows, c, columns, ARRAY_LEN(columns));
    if (r->lossy)
        hw_table_cell(t, "%zu of %zu", same, all);
    if (r->sweep == EXPERIMENT_SWEEP_PRESSURE)
        add_means(t, rows, c, pressure_columns, ARRAY_LEN(pressure_columns));
}

typedef void cell_fn(void *user, const struct experiment_rows *rows,
                     const struct experiment_report *r, const struct cell *c);

/* Those that have rows, by phase, point and mode. */
static void for_each_cell(const struct experiment_rows *rows, const struct experiment_report *r,
                          cell_fn *call, void *user)
{
    static const char *const phases[] = {"prefill", "decode"};
    size_t modes = mode_count(r), all;
    for (size_t i = 0; i < ARRAY_LEN(phases) * r->point_count * modes; i++) {
        struct cell c = {.mode = r->modes[i % modes],
                         .phase = phases[i / modes / r->point_count],
                         .point = &r->points[i / modes % r->point_count]};
        (void)agreeing(rows, r, &c, &all);
        if (all)
            call(user, rows, r, &c);
    }
}

static struct hw_table *make_table(const struct experiment_rows *rows,
                                   const struct experiment_report *r)
{
    static const char *const latency[] = {"trials", "latency ms", "+- 95%", "x first"};
    struct hw_table *t = hw_table_create();
    if (!t)
        return NULL;
    hw_table_column(t, "phase", HW_LEFT);
    if (r->sweep)
        hw_table_column(t, "point", HW_LEFT);
    hw_table_column(t, "mode", HW_LEFT);
    for (size_t i = 0; i < ARRAY_LEN(latency); i++)
        hw_table_column(t, latency[i], HW_RIGHT);
    hw_table_column(t, "difference", HW_LEFT);
    for (size_t i = 0; i < ARRAY_LEN(columns); i++)
        hw_table_column(t, columns[i].heading, HW_RIGHT);
    if (r->lossy)
        hw_table_column(t, "tokens that agree", HW_RIGHT);
    for (size_t i = 0; i < ARRAY_LEN(pressure_columns); i++)
        if (r->sweep == EXPERIMENT_SWEEP_PRESSURE)
            hw_table_column(t, pressure_columns[i].heading, HW_RIGHT);
    for_each_cell(rows, r, add_row, t);
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

static void add_fields(struct hw_bench *bench, const struct experiment_rows *rows,
                       const struct cell *c, const struct column *from, size_t count)
{
    char text[HW_FORMAT_CHARS];
    for (size_t i = 0; i < count; i++)
        hw_bench_field(bench, from[i].heading, "%s",
                       value_text(text, &from[i], mean_of(rows, c, from[i].figure)));
}

static void add_json(void *user, const struct experiment_rows *rows,
                     const struct experiment_report *r, const struct cell *c)
{
    struct hw_bench *bench = user;
    struct latency l;
    char name[128], text[HW_FORMAT_CHARS];
    size_t all, same = agreeing(rows, r, c, &all);
    compare(rows, r, c, &l);
    snprintf(name, sizeof name, "%s.%s%s%s", c->phase, c->mode, r->sweep ? "." : "",
             point_text(r, c->point, text));
    hw_bench_row(bench, name, l.ms.mean, "ms", l.first_ms);
    hw_bench_field(bench, "trials", "%zu", l.trials);
    hw_bench_field(bench, "interval", "%.4g", l.ms.half);
    hw_bench_field(bench, "difference", "%s", l.difference);
    add_fields(bench, rows, c, columns, ARRAY_LEN(columns));
    hw_bench_field(bench, "tokens that agree", "%zu of %zu", same, all);
    if (r->sweep == EXPERIMENT_SWEEP_PRESSURE)
        add_fields(bench, rows, c, pressure_columns, ARRAY_LEN(pressure_columns));
}

int experiment_print_json(const struct experiment_rows *rows, const struct experiment_report *r,
                          FILE *out)
{
    struct hw_bench bench;
    hw_bench_begin(&bench, "experiment");
    for_each_cell(rows, r, add_json, &bench);
    int rc = hw_bench_print_json(&bench, out);
    hw_bench_end(&bench);
    return rc;
}

/* ---- charts ---- */

/* What the charts of one phase at one point of the sweep are made of. */
struct view {
    const struct experiment_rows *rows;
    const struct experiment_report *r;
    const char *phase;
    const struct experiment_point *point;
};

static struct cell cell_of(const struct view *v, size_t mode)
{
    return (struct cell){v->r->modes[mode], v->phase, v->point};
}

static int bars(struct hw_html *html, const struct view *v, figure_fn *figure, const char *title)
{
    struct hw_bar items[CMD_LIST_MAX];
    size_t count = mode_count(v->r);
    for (size_t i = 0; i < count; i++) {
        struct cell c = cell_of(v, i);
        items[i] = (struct hw_bar){c.mode, mean_of(v->rows, &c, figure)};
    }
    struct hw_bar_chart chart = {.title = title,
                                 .unit = "bytes, both ways",
                                 .show = hw_show_bytes,
                                 .log_scale = true,
                                 .bars = items,
                                 .count = count};
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

static int steps_chart(struct hw_html *html, const struct view *v)
{
    struct hw_series series[HW_CHART_SERIES_MAX];
    size_t count = mode_count(v->r), shown = 0;
    double *x = malloc(EXPERIMENT_STEPS_MAX * sizeof *x);
    double *y = malloc(HW_CHART_SERIES_MAX * (size_t)EXPERIMENT_STEPS_MAX * sizeof *y);
    int rc = x && y ? 0 : -ENOMEM;
    for (size_t i = 0; i < EXPERIMENT_STEPS_MAX && rc == 0; i++)
        x[i] = (double)(i + 1);
    for (size_t i = 0; i < count && shown < HW_CHART_SERIES_MAX && rc == 0; i++) {
        double *line = y + shown * EXPERIMENT_STEPS_MAX;
        struct cell c = cell_of(v, i);
        size_t points = mean_steps(v->rows, &c, line);
        if (points)
            series[shown++] = (struct hw_series){c.mode, x, line, points};
    }
    struct hw_line_chart chart = {.title = "Latency of each exchange of a decode",
                                  .x_label = "exchange",
                                  .y_label = "latency",
                                  .show_y = hw_show_us,
                                  .log_y = true,
                                  .series = series,
                                  .count = shown};
    if (rc == 0 && shown)
        rc = hw_html_lines(html, &chart);
    free(x);
    free(y);
    return rc;
}

/* What a chart along the sweep shows. */
struct along {
    const char *title, *unit;
    figure_fn *figure; /* of times: in us */
    hw_show_fn *show;
    bool log;
};

static int along_chart(struct hw_html *html, const struct view *v, const struct along *along)
{
    static const char *const labels[] = {"",          "decode steps", "round trip added",
                                         "link rate", "clients",      "layers that were out"};
    const struct experiment_report *r = v->r;
    size_t count = mode_count(r), shown = 0;
    double x[POINTS_MAX], y[HW_CHART_SERIES_MAX][POINTS_MAX];
    char texts[POINTS_MAX][HW_FORMAT_CHARS];
    const char *names[POINTS_MAX];
    struct hw_series series[HW_CHART_SERIES_MAX];
    for (size_t p = 0; p < r->point_count; p++) {
        x[p] = (double)p;
        names[p] = point_text(r, &r->points[p], texts[p]);
    }
    for (size_t i = 0; i < count && shown < HW_CHART_SERIES_MAX; i++, shown++) {
        for (size_t p = 0; p < r->point_count; p++)
            y[shown][p] = mean_of(v->rows, &(struct cell){r->modes[i], v->phase, &r->points[p]},
                                  along->figure);
        series[shown] = (struct hw_series){r->modes[i], x, y[shown], r->point_count};
    }
    struct hw_line_chart chart = {.title = along->title,
                                  .x_label = labels[r->sweep],
                                  .y_label = along->unit,
                                  .show_y = along->show,
                                  .x_names = names,
                                  .x_name_count = r->point_count,
                                  .log_y = along->log,
                                  .points = true,
                                  .series = series,
                                  .count = shown};
    return hw_html_lines(html, &chart);
}

static double latency_us(const struct experiment_row *row)
{
    return row->latency_s * 1e6;
}

static double step_us(const struct experiment_row *row)
{
    return mean_after_first(&row->step_us);
}

static double recovery_us(const struct experiment_row *row)
{
    return recovery_ms(row) * 1e3;
}

static int sweep_charts(struct hw_html *html, const struct view *v)
{
    static const struct along prefill = {"Latency of the prompt along the sweep", "latency",
                                         latency_us, hw_show_us, true};
    static const struct along decode = {"Latency of an exchange along the sweep", "latency",
                                        step_us, hw_show_us, true};
    static const struct along pressure[] = {
        {"Bytes of KV that came back", "bytes", kv_fetched, hw_show_bytes, false},
        {"Latency of the exchange that found layers missing", "latency", recovery_us, hw_show_us,
         false}};
    int rc = along_chart(html, v, strcmp(v->phase, "decode") == 0 ? &decode : &prefill);
    for (size_t i = 0; i < 2 && rc == 0 && v->r->sweep == EXPERIMENT_SWEEP_PRESSURE; i++)
        rc = along_chart(html, v, &pressure[i]);
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

static int cdf_chart(struct hw_html *html, const struct view *v)
{
    struct hw_hist hists[HW_CHART_SERIES_MAX];
    struct hw_cdf_series series[HW_CHART_SERIES_MAX];
    size_t count = mode_count(v->r), made = 0, shown = 0;
    int rc = 0;
    for (; made < count && made < HW_CHART_SERIES_MAX && rc == 0; made++) {
        struct cell c = cell_of(v, made);
        rc = fill_hist(&hists[made], v->rows, &c);
        if (rc)
            break;
        if (hists[made].count)
            series[shown++] = (struct hw_cdf_series){c.mode, &hists[made]};
    }
    struct hw_cdf_chart chart = {.title = "Exchanges of a decode at or below a latency",
                                 .x_label = "latency",
                                 .show_x = hw_show_us,
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
    const char *name;
    figure_fn *figure;
} parts[] = {
    {"calls before the prompt, uploads among them", rest_before_ms},
    {"GPU kernels", kernel_ms},
    {"server: bytes and tensors", server_serdes_ms},
    {"client: bytes and tensors", client_serdes_ms},
    {"the rest: network, waiting, and computing without a GPU", rest_ms},
};
enum { PARTS = sizeof parts / sizeof *parts };

/* A box in the colour of a part, so wide; both a piece of a bar and a mark in the legend. */
static void stack_box(struct hw_html *html, size_t part, double width, const char *unit)
{
    char class[8];
    snprintf(class, sizeof class, "c%zu", part);
    hw_html_raw(html, "<i class=\"");
    hw_html_raw(html, class);
    hw_html_raw(html, "\" title=\"");
    hw_html_text(html, parts[part].name);
    hw_html_raw(html, "\" style=\"display:inline-block;height:1.2em;width:");
    hw_html_number(html, width);
    hw_html_raw(html, unit);
    hw_html_raw(html, "\"></i>");
}

static void stack_bar(struct hw_html *html, const char *mode, const double values[PARTS],
                      double most)
{
    char figure[HW_FORMAT_CHARS];
    double total = 0;
    hw_html_raw(html, "<tr><td>");
    hw_html_text(html, mode);
    hw_html_raw(html, "</td><td style=\"width:70%;min-width:12rem;line-height:0\">");
    for (size_t i = 0; i < PARTS; i++) {
        total += values[i];
        stack_box(html, i, most > 0 ? 100 * values[i] / most : 0, "%");
    }
    hw_html_raw(html, "</td><td class=\"r\">");
    hw_html_text(html, hw_show_us(figure, total * 1e3));
    hw_html_raw(html, "</td></tr>\n");
}

static void stack_chart(struct hw_html *html, const struct view *v)
{
    double values[CMD_LIST_MAX][PARTS], most = 0, sums[PARTS] = {0};
    size_t count = mode_count(v->r);
    for (size_t m = 0; m < count; m++) {
        struct cell c = cell_of(v, m);
        double total = 0;
        for (size_t i = 0; i < PARTS; i++) {
            double mean = mean_of(v->rows, &c, parts[i].figure);
            values[m][i] = isnan(mean) ? 0 : mean;
            sums[i] += values[m][i];
            total += values[m][i];
        }
        most = total > most ? total : most;
    }
    hw_html_paragraph(html, "Where the time of a run went, from the first call to the last token:");
    hw_html_raw(html, "<div class=\"wide\"><table style=\"width:46rem\"><tbody>\n");
    for (size_t m = 0; m < count; m++)
        stack_bar(html, v->r->modes[m], values[m], most);
    hw_html_raw(html, "</tbody></table></div>\n<div class=\"legend\">");
    for (size_t i = 0; i < PARTS; i++) {
        if (sums[i] == 0)
            continue;
        hw_html_raw(html, "<span>");
        stack_box(html, i, 1, "em");
        hw_html_text(html, parts[i].name);
        hw_html_raw(html, "</span>");
    }
    hw_html_raw(html, "</div>\n");
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

static int point_charts(struct hw_html *html, const struct view *v)
{
    int rc = bars(html, v, net_bytes, "Bytes of a run");
    if (rc == 0 && strcmp(v->phase, "decode") == 0) {
        rc = bars(html, v, step_bytes, "Bytes of a decode step");
        if (rc == 0)
            rc = steps_chart(html, v);
        if (rc == 0)
            rc = cdf_chart(html, v);
    }
    stack_chart(html, v);
    return rc;
}

/* The charts along a sweep, then those of each of its points, which do not mix with others. */
static int phase_charts(struct hw_html *html, const struct view *v)
{
    char text[HW_FORMAT_CHARS], title[64];
    struct view at = *v;
    int rc = v->r->sweep ? sweep_charts(html, v) : 0;
    for (size_t p = 0; p < v->r->point_count && rc == 0; p++) {
        at.point = &v->r->points[p];
        snprintf(title, sizeof title, "%s at %s", v->phase, point_text(v->r, at.point, text));
        if (v->r->sweep)
            hw_html_fold_begin(html, title, p == 0);
        rc = point_charts(html, &at);
        if (v->r->sweep)
            hw_html_fold_end(html);
    }
    return rc;
}

/* The link that every point has, where it was made longer or narrower. */
static void say_link(struct hw_html *html, const struct experiment_report *r)
{
    char rtt[HW_FORMAT_CHARS];
    const struct experiment_point *p = &r->points[0];
    if (p->rtt_ns && r->sweep != EXPERIMENT_SWEEP_RTT)
        hw_html_paragraph(html, "A relay adds %s to every round trip of the remote modes.",
                          hw_format_duration(rtt, p->rtt_ns));
    if (p->bits_s && r->sweep != EXPERIMENT_SWEEP_RATE)
        hw_html_paragraph(html, "A relay lets %.4g Mbit/s pass each way in the remote modes.",
                          (double)p->bits_s / 1e6);
}

static void say_all(struct hw_html *html, const struct experiment_report *r)
{
    hw_html_paragraph(html, "Model %s.  %s.", r->title_model, r->gpu);
    say_link(html, r);
    if (r->lossy)
        hw_html_paragraph(html, "Mode semantic may lose digits of logits: the table counts its "
                                "tokens that agree.  All other modes generated the same tokens.");
    else
        hw_html_paragraph(html, "All modes generated the same tokens.");
    hw_html_paragraph(html,
                      "Latency is that of the phase, a mean of the trials with its 95%% interval.  "
                      "Upload is what a run sends of the weights.  The calls before the prompt, an "
                      "upload among them, are no part of the latency and stand beside it.  Bytes "
                      "are counted at the socket, "
                      "framing included.  Difference is a paired t test of the latency against "
                      "mode %s: from p %.2f on the trials show none.",
                      r->modes[0], SURE);
    if (mode_count(r) > HW_CHART_SERIES_MAX)
        hw_html_paragraph(html, "Line charts show the first %d modes.", HW_CHART_SERIES_MAX);
}

static int fill_page(struct hw_html *html, const struct experiment_rows *rows,
                     const struct experiment_report *r)
{
    static const char *const phases[] = {"prefill", "decode"};
    say_all(html, r);
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
        rc = phase_charts(html, &(struct view){.rows = rows, .r = r, .phase = phases[i]});
    }
    return rc;
}

int experiment_write_html(const struct experiment_rows *rows, const struct experiment_report *r,
                          const char *path)
{
    struct hw_page page;
    int rc = hw_page_begin(&page, path, "Hawser: what travels in each mode, and what it costs");
    return rc ? rc : hw_page_end(&page, fill_page(&page.html, rows, r));
}
