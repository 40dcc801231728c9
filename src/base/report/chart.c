/* The SVG charts of base/report/html.h.  Coordinates are units of the view box, which the page
 * scales to its width; colours are classes of the page's style. */
#include <assert.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/report/html.h"
#include "base/units.h"

enum {
    VIEW_WIDTH = 640,
    PLOT_HEIGHT = 260,
    PLOT_LEFT = 62, /* room for the ticks of the y axis: "500 ms" */
    CHAR_WIDTH = 8, /* of the 13 px face, wide ones included; for margins only */
    TICKS_WANTED = 6,
    TICKS_MAX = 40, /* decades of a double over two, with room */
    BAR_PITCH = 26,
    BAR_HEIGHT = 16,
};
_Static_assert((int)HW_CHART_NAMES_MAX <= (int)TICKS_MAX, "every name is a tick");

/* NaN, which is left out, or a size whose next decade and whose span are finite. */
static bool is_drawable(double value)
{
    return isnan(value) || fabs(value) <= HW_CHART_VALUE_MAX;
}

/* Maps [lo, hi] of the data to [from, to] of the view box. */
struct axis {
    double lo, hi;
    double from, to;
    bool log;
    bool whole_decades; /* of a log axis that bars begin at */
    double ticks[TICKS_MAX];
    size_t tick_count;
};

static bool axis_shows(const struct axis *axis, double value)
{
    return isfinite(value) && (!axis->log || value >= DBL_MIN);
}

static double axis_at(const struct axis *axis, double value)
{
    double lo = axis->lo, hi = axis->hi;
    if (axis->log) {
        lo = log10(lo);
        hi = log10(hi);
        value = log10(value);
    }
    return axis->from + (value - lo) / (hi - lo) * (axis->to - axis->from);
}

static void axis_include(struct axis *axis, double value)
{
    if (!axis_shows(axis, value))
        return;
    axis->lo = fmin(axis->lo, value);
    axis->hi = fmax(axis->hi, value);
}

static struct axis axis_empty(bool log)
{
    return (struct axis){.lo = INFINITY, .hi = -INFINITY, .log = log};
}

static void add_tick(struct axis *axis, double value)
{
    if (axis->tick_count < TICKS_MAX && value >= axis->lo * (1 - 1e-9) - DBL_MIN &&
        value <= axis->hi + fabs(axis->hi) * 1e-9)
        axis->ticks[axis->tick_count++] = value;
}

/* The greatest of 1, 2 and 5 times powers of ten that is at most value; the least that is at least
 * value when up. */
static double round_tick(double value, bool up)
{
    static const double digits[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(value) + 1e-9));
    size_t i = 0;
    while (i < 3 && digits[i + !up] * power <= value * (1 + (up ? -1e-9 : 1e-9)))
        i++;
    return digits[i] * power;
}

/* Widens to the next ticks: 1, 2 and 5 of each decade when there are few, else whole decades. */
static void fit_log(struct axis *axis)
{
    bool few = log10(axis->hi) - log10(axis->lo) <= 2;
    bool narrow = few && !axis->whole_decades && axis->lo < axis->hi;
    int first = (int)floor(log10(axis->lo) + 1e-9);
    int last = (int)ceil(log10(axis->hi) - 1e-9);
    if (last <= first)
        last = first + 1;
    axis->lo = narrow ? round_tick(axis->lo, false) : pow(10, first);
    axis->hi = narrow ? round_tick(axis->hi, true) : pow(10, last);
    if (axis->hi <= axis->lo) /* values that are the same but for rounding */
        axis->hi = pow(10, last);
    int step = (last - first) / (TICKS_WANTED + 2) + 1;
    for (int decade = first; decade <= last; decade += step) {
        add_tick(axis, pow(10, decade));
        if (few) {
            add_tick(axis, 2 * pow(10, decade));
            add_tick(axis, 5 * pow(10, decade));
        }
    }
}

/* The least of 1, 2, 5 times a power of ten that cuts the span into TICKS_WANTED or fewer. */
static double nice_step(double span)
{
    double rough = span / TICKS_WANTED;
    double power = pow(10, floor(log10(rough)));
    double digit = rough / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

static void fit_linear(struct axis *axis)
{
    if (axis->hi <= axis->lo)
        axis->hi = axis->lo + (axis->lo != 0 ? fabs(axis->lo) : 1);
    double step = nice_step(axis->hi - axis->lo);
    axis->lo = floor(axis->lo / step + 1e-9) * step;
    axis->hi = ceil(axis->hi / step - 1e-9) * step;
    for (int i = 0; axis->lo + i * step <= axis->hi + step / 2 && i < TICKS_MAX; i++)
        axis->ticks[axis->tick_count++] = axis->lo + i * step;
}

/* Chooses the range and ticks for the values included so far. */
static void axis_fit(struct axis *axis, double from, double to)
{
    if (axis->lo > axis->hi) { /* nothing to show */
        axis->lo = axis->log ? 1 : 0;
        axis->hi = axis->log ? 10 : 1;
    }
    axis->from = from;
    axis->to = to;
    if (axis->log)
        fit_log(axis);
    else
        fit_linear(axis);
    assert(axis->lo < axis->hi);
}

/* The value in the largest unit that leaves a whole part; each unit is 1000 of the one before. */
static const char *show_in(char buf[HW_FORMAT_CHARS], double value, const char *const *units,
                           size_t count)
{
    double size = fabs(value);
    size_t i = 0;
    while (size >= 999.9999 && i + 1 < count) {
        size /= 1000;
        i++;
    }
    hw_format_figure(buf, copysign(size, value));
    if (size < 1e-12)
        strcpy(buf, "0");
    if (!isnan(value))
        strncat(buf, units[i], HW_FORMAT_CHARS - strlen(buf) - 1);
    return buf;
}

const char *hw_show_bytes(char buf[HW_FORMAT_CHARS], double value)
{
    static const char *const units[] = {" B", " kB", " MB", " GB", " TB", " PB"};
    return show_in(buf, value, units, ARRAY_LEN(units));
}

const char *hw_show_us(char buf[HW_FORMAT_CHARS], double value)
{
    static const char *const units[] = {" us", " ms", " s"};
    return show_in(buf, value, units, ARRAY_LEN(units));
}

/* 1500 as 1.5k: ticks must stay short. */
static const char *tick_text(char buf[HW_FORMAT_CHARS], double value, hw_show_fn *show)
{
    static const char *const suffixes[] = {"", "k", "M", "G", "T", "P"};
    return show ? show(buf, value) : show_in(buf, value, suffixes, ARRAY_LEN(suffixes));
}

static const char *value_text(char buf[HW_FORMAT_CHARS], double value, hw_show_fn *show)
{
    return show ? show(buf, value) : hw_format_figure(buf, value);
}

static void attribute(struct hw_html *html, const char *name, double value)
{
    hw_html_raw(html, " ");
    hw_html_raw(html, name);
    hw_html_raw(html, "=\"");
    hw_html_number(html, value);
    hw_html_raw(html, "\"");
}

static void segment(struct hw_html *html, const char *class, double x1, double y1, double x2,
                    double y2)
{
    hw_html_raw(html, "<line class=\"");
    hw_html_raw(html, class);
    hw_html_raw(html, "\"");
    attribute(html, "x1", x1);
    attribute(html, "y1", y1);
    attribute(html, "x2", x2);
    attribute(html, "y2", y2);
    hw_html_raw(html, "/>\n");
}

/* anchor: start, middle or end. */
static void label(struct hw_html *html, const char *class, const char *anchor, double x, double y,
                  const char *text)
{
    hw_html_raw(html, "<text class=\"");
    hw_html_raw(html, class);
    hw_html_raw(html, "\" text-anchor=\"");
    hw_html_raw(html, anchor);
    hw_html_raw(html, "\"");
    attribute(html, "x", x);
    attribute(html, "y", y);
    hw_html_raw(html, ">");
    hw_html_text(html, text);
    hw_html_raw(html, "</text>\n");
}

/* What an axis shows, and that its steps are factors where they are. */
static void axis_label(struct hw_html *html, const char *anchor, double x, double y,
                       const char *text, bool log)
{
    char whole[160];
    snprintf(whole, sizeof whole, "%s%s", text, log ? " (log scale)" : "");
    label(html, "axis", anchor, x, y, whole);
}

static void tooltip(struct hw_html *html, const char *name, const char *value)
{
    hw_html_raw(html, "<title>");
    hw_html_text(html, name);
    hw_html_raw(html, ": ");
    hw_html_text(html, value);
    hw_html_raw(html, "</title>");
}

static void figure_begin(struct hw_html *html, const char *title)
{
    hw_html_raw(html, "<figure><figcaption>");
    hw_html_text(html, title);
    hw_html_raw(html, "</figcaption>\n");
}

static void svg_begin(struct hw_html *html, const char *title, double height)
{
    hw_html_raw(html, "<div class=\"wide\"><svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" "
                      "aria-label=\"");
    hw_html_text(html, title);
    hw_html_raw(html, "\" viewBox=\"0 0 ");
    hw_html_number(html, VIEW_WIDTH);
    hw_html_raw(html, " ");
    hw_html_number(html, height);
    hw_html_raw(html, "\">\n");
}

static void figure_end(struct hw_html *html)
{
    hw_html_raw(html, "</svg></div></figure>\n");
}

static void color_class(char buf[8], size_t series)
{
    snprintf(buf, 8, "c%u", (unsigned)(series % HW_CHART_SERIES_MAX));
}

/* -- bars -- */

static double text_pixels(const char *text)
{
    return (double)hw_text_width(text) * CHAR_WIDTH;
}

static double bars_margin(const struct hw_bar_chart *chart)
{
    double widest = 0;
    for (size_t i = 0; i < chart->count; i++)
        widest = fmax(widest, text_pixels(chart->bars[i].label));
    return fmin(widest + 10, VIEW_WIDTH * 0.4);
}

/* Room for the values after the bars. */
static double bars_room(const struct hw_bar_chart *chart)
{
    char text[HW_FORMAT_CHARS];
    double widest = text_pixels("no value");
    for (size_t i = 0; i < chart->count; i++)
        widest = fmax(widest, text_pixels(value_text(text, chart->bars[i].value, chart->show)));
    return widest + 6;
}

static void bars_grid(struct hw_html *html, const struct axis *axis, double bottom,
                      hw_show_fn *show)
{
    char text[HW_FORMAT_CHARS];
    for (size_t i = 0; i < axis->tick_count; i++) {
        double x = axis_at(axis, axis->ticks[i]);
        segment(html, "grid", x, 0, x, bottom);
        label(html, "tick", "middle", x, bottom + 16, tick_text(text, axis->ticks[i], show));
    }
}

static void bar(struct hw_html *html, const struct axis *axis, const struct hw_bar *bar,
                hw_show_fn *show, double margin, double y)
{
    char text[HW_FORMAT_CHARS];
    double zero = axis->log ? axis->from : axis_at(axis, 0);
    double end = axis_shows(axis, bar->value) ? axis_at(axis, bar->value) : zero;
    const char *value = isnan(bar->value) ? "no value" : value_text(text, bar->value, show);
    double baseline = y + BAR_HEIGHT - 3;
    hw_html_raw(html, "<g>");
    tooltip(html, bar->label, value);
    label(html, "name", "end", margin - 8, baseline, bar->label);
    hw_html_raw(html, "<rect class=\"c0\" stroke=\"none\" rx=\"2\"");
    attribute(html, "x", fmin(zero, end));
    attribute(html, "y", y);
    attribute(html, "width", fabs(end - zero));
    attribute(html, "height", BAR_HEIGHT);
    hw_html_raw(html, "/>");
    label(html, "value", "start", fmax(zero, end) + 6, baseline, value);
    hw_html_raw(html, "</g>\n");
}

int hw_html_bars(struct hw_html *html, const struct hw_bar_chart *chart)
{
    if (chart->count > HW_CHART_BARS_MAX)
        return -EINVAL;
    struct axis axis = axis_empty(chart->log_scale);
    axis.whole_decades = true;
    for (size_t i = 0; i < chart->count; i++) {
        if (!is_drawable(chart->bars[i].value))
            return -EINVAL;
        axis_include(&axis, chart->bars[i].value);
    }
    /* A log bar of the least value has a length, too. */
    axis_include(&axis, axis.lo * (1 - 1e-6));
    axis_include(&axis, 0); /* a linear bar is read by its length; a log axis leaves it out */
    double margin = bars_margin(chart);
    axis_fit(&axis, margin, VIEW_WIDTH - bars_room(chart));
    double bottom = (double)chart->count * BAR_PITCH + 4;
    figure_begin(html, chart->title);
    svg_begin(html, chart->title, bottom + 40);
    bars_grid(html, &axis, bottom, chart->show);
    for (size_t i = 0; i < chart->count; i++)
        bar(html, &axis, &chart->bars[i], chart->show, margin, 5 + (double)i * BAR_PITCH);
    axis_label(html, "middle", (axis.from + axis.to) / 2, bottom + 34, chart->unit, axis.log);
    figure_end(html);
    return 0;
}

/* -- lines -- */

static void legend(struct hw_html *html, const struct hw_series *series, size_t count)
{
    char class[8];
    hw_html_raw(html, "<div class=\"legend\">");
    for (size_t i = 0; i < count; i++) {
        color_class(class, i);
        hw_html_raw(html, "<span><i class=\"");
        hw_html_raw(html, class);
        hw_html_raw(html, "\"></i>");
        hw_html_text(html, series[i].name);
        hw_html_raw(html, "</span>");
    }
    hw_html_raw(html, "</div>\n");
}

static void lines_grid(struct hw_html *html, const struct hw_line_chart *chart,
                       const struct axis *x, const struct axis *y)
{
    char text[HW_FORMAT_CHARS];
    for (size_t i = 0; i < y->tick_count; i++) {
        double at = axis_at(y, y->ticks[i]);
        segment(html, "grid", x->from, at, x->to, at);
        label(html, "tick", "end", x->from - 8, at + 4,
              tick_text(text, y->ticks[i], chart->show_y));
    }
    for (size_t i = 0; i < x->tick_count; i++) {
        double at = axis_at(x, x->ticks[i]);
        segment(html, "grid", at, y->to, at, y->from);
        label(html, "tick", "middle", at, y->from + 18,
              chart->x_names ? chart->x_names[i] : tick_text(text, x->ticks[i], chart->show_x));
    }
    segment(html, "base", x->from, y->from, x->to, y->from);
}

static void curve(struct hw_html *html, const struct axis *x, const struct axis *y,
                  const struct hw_series *series, const char *class)
{
    bool pen_down = false;
    hw_html_raw(html, "<path class=\"");
    hw_html_raw(html, class);
    hw_html_raw(html, " curve\" d=\"");
    for (size_t i = 0; i < series->count; i++) {
        if (!axis_shows(x, series->x[i]) || !axis_shows(y, series->y[i])) {
            pen_down = false;
            continue;
        }
        hw_html_raw(html, pen_down ? "L" : "M");
        hw_html_number(html, axis_at(x, series->x[i]));
        hw_html_raw(html, " ");
        hw_html_number(html, axis_at(y, series->y[i]));
        pen_down = true;
    }
    hw_html_raw(html, "\"/>\n");
}

static void marks(struct hw_html *html, const struct axis *x, const struct axis *y,
                  const struct hw_series *series, hw_show_fn *show, const char *class)
{
    char value[HW_FORMAT_CHARS];
    for (size_t i = 0; i < series->count; i++) {
        if (!axis_shows(x, series->x[i]) || !axis_shows(y, series->y[i]))
            continue;
        hw_html_raw(html, "<circle r=\"3.5\" class=\"");
        hw_html_raw(html, class);
        hw_html_raw(html, "\"");
        attribute(html, "cx", axis_at(x, series->x[i]));
        attribute(html, "cy", axis_at(y, series->y[i]));
        hw_html_raw(html, ">");
        tooltip(html, series->name, value_text(value, series->y[i], show));
        hw_html_raw(html, "</circle>\n");
    }
}

static bool line_chart_ok(const struct hw_line_chart *chart)
{
    if (chart->count > HW_CHART_SERIES_MAX || chart->x_name_count > HW_CHART_NAMES_MAX)
        return false;
    for (size_t s = 0; s < chart->count; s++) {
        if (chart->series[s].count > HW_CHART_POINTS_MAX)
            return false;
        for (size_t i = 0; i < chart->series[s].count; i++)
            if (!is_drawable(chart->series[s].x[i]) || !is_drawable(chart->series[s].y[i]))
                return false;
    }
    return true;
}

/* A tick for each name, with half a step beside the first and the last. */
static void fit_names(struct axis *axis, size_t count, double from, double to)
{
    *axis =
        (struct axis){.lo = -0.5, .hi = (double)(count ? count : 1) - 0.5, .from = from, .to = to};
    for (; axis->tick_count < count; axis->tick_count++)
        axis->ticks[axis->tick_count] = (double)axis->tick_count;
}

static void fit_axes(const struct hw_line_chart *chart, struct axis *x, struct axis *y)
{
    *x = axis_empty(chart->log_x);
    *y = axis_empty(chart->log_y);
    for (size_t s = 0; s < chart->count; s++) {
        const struct hw_series *series = &chart->series[s];
        for (size_t i = 0; i < series->count; i++) {
            if (!axis_shows(x, series->x[i]) || !axis_shows(y, series->y[i]))
                continue;
            axis_include(x, series->x[i]);
            axis_include(y, series->y[i]);
        }
    }
    axis_include(y, 0); /* heights compare honestly from zero; a log axis leaves it out */
    axis_fit(y, PLOT_HEIGHT + 26, 26);
    if (chart->x_names)
        fit_names(x, chart->x_name_count, PLOT_LEFT, VIEW_WIDTH - 20);
    else
        axis_fit(x, PLOT_LEFT, VIEW_WIDTH - 20);
}

int hw_html_lines(struct hw_html *html, const struct hw_line_chart *chart)
{
    if (!line_chart_ok(chart))
        return -EINVAL;
    struct axis x, y;
    char class[8];
    fit_axes(chart, &x, &y);
    figure_begin(html, chart->title);
    legend(html, chart->series, chart->count);
    svg_begin(html, chart->title, PLOT_HEIGHT + 70);
    lines_grid(html, chart, &x, &y);
    axis_label(html, "start", 0, 13, chart->y_label, y.log);
    axis_label(html, "middle", (x.from + x.to) / 2, y.from + 38, chart->x_label, x.log);
    for (size_t s = 0; s < chart->count; s++) {
        color_class(class, s);
        curve(html, &x, &y, &chart->series[s], class);
        if (chart->points)
            marks(html, &x, &y, &chart->series[s], chart->show_y, class);
    }
    figure_end(html);
    return 0;
}

/* -- CDF -- */

enum { CDF_POINTS = HW_HIST_BUCKETS + 1 };

/* From the least value at 0% through the upper end of each bucket to the greatest at 100%. */
static size_t cdf_points(const struct hw_hist *hist, double *x, double *y)
{
    struct hw_hist_range range;
    size_t count = 0;
    uint64_t seen = 0;
    for (uint32_t at = 0; hw_hist_next(hist, &at, &range);) {
        if (count == 0) {
            x[count] = (double)range.low / HW_US;
            y[count++] = 0;
        }
        seen += range.count;
        x[count] = (double)range.high / HW_US;
        y[count++] = 100.0 * (double)seen / (double)hist->count;
        assert(count <= CDF_POINTS);
    }
    return count;
}

int hw_html_cdf(struct hw_html *html, const struct hw_cdf_chart *chart)
{
    if (chart->count > HW_CHART_SERIES_MAX)
        return -EINVAL;
    struct hw_series series[HW_CHART_SERIES_MAX];
    double *points = calloc(chart->count * 2 * CDF_POINTS + 1, sizeof *points);
    if (!points)
        return -ENOMEM;
    for (size_t s = 0; s < chart->count; s++) {
        double *x = points + s * 2 * CDF_POINTS, *y = x + CDF_POINTS;
        size_t count = cdf_points(chart->series[s].hist, x, y);
        series[s] = (struct hw_series){chart->series[s].name, x, y, count};
    }
    int rc = hw_html_lines(html, &(struct hw_line_chart){
                                     .title = chart->title,
                                     .x_label = chart->x_label,
                                     .y_label = "% of values at or below",
                                     .show_x = chart->show_x,
                                     .log_x = chart->log_x,
                                     .series = series,
                                     .count = chart->count,
                                 });
    free(points);
    return rc;
}
