/* base/report/html.h - one self-contained HTML page: text, tables and SVG charts for reports.
 *
 * Every page names the machine, the commit and the date below its title.  No script, no font, no
 * file beside it; light and dark by the reader's setting, readable on a phone and on paper.  The
 * page is also well-formed XML.  A failed write is remembered and told by hw_html_end.
 *
 * Trust: all text is escaped; invalid UTF-8 becomes U+FFFD.  Threads: one at a time.
 * Lifetime: the struct and the stream are the caller's; charts borrow their data for the call. */
#ifndef HAWSER_BASE_REPORT_HTML_H
#define HAWSER_BASE_REPORT_HTML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/attr.h"
#include "base/hist.h"
#include "base/report/output.h"
#include "base/report/table.h"
#include "base/units.h"

enum {
    HW_CHART_SERIES_MAX = 8,       /* the palette; a reader cannot tell more lines apart */
    HW_CHART_BARS_MAX = 64,        /* a screen or two of bars */
    HW_CHART_NAMES_MAX = 32,       /* more names do not fit below a chart */
    HW_CHART_POINTS_MAX = 1 << 16, /* a line; keeps a page of a few charts under some MiB */
};

#define HW_CHART_VALUE_MAX 1e300 /* infinities and what overflows when an axis is widened */

struct hw_html {
    FILE *out;
    int error; /* negative errno, sticky */
};

void hw_html_begin(struct hw_html *html, FILE *out, const char *title);
/* Flushes.  0 or the first negative errno. */
int hw_html_end(struct hw_html *html) MUST_CHECK;

/* A page in a file, which appears whole or not at all. */
struct hw_page {
    struct hw_html html;
    struct hw_output file;
};
/* Whether begin would succeed, to be asked before a long measurement.  0 or a negative errno, with
 * a sentence that has the path in why. */
int hw_page_check(const char *path, char why[HW_OUTPUT_WHY_CHARS]) MUST_CHECK;
/* 0 or a negative errno; end only after 0.  path stays the caller's until then. */
int hw_page_begin(struct hw_page *page, const char *path, const char *title) MUST_CHECK;
/* rc: what went wrong meanwhile, or 0.  Returns the first error; on one the old file stays. */
int hw_page_end(struct hw_page *page, int rc) MUST_CHECK;

void hw_html_heading(struct hw_html *html, const char *text);
void hw_html_paragraph(struct hw_html *html, const char *fmt, ...) PRINTF_LIKE(2, 3);
void hw_html_table(struct hw_html *html, const struct hw_table *table);
/* A part of the page that the reader opens by its title. */
void hw_html_fold_begin(struct hw_html *html, const char *title, bool open);
void hw_html_fold_end(struct hw_html *html);

/* For pieces that this header lacks.  raw takes markup of ours only and is not escaped; text is
 * escaped for content and for attributes in double quotes; number has one decimal at most. */
void hw_html_raw(struct hw_html *html, const char *markup);
void hw_html_text(struct hw_html *html, const char *text);
void hw_html_number(struct hw_html *html, double value);

/* How a chart writes its values and ticks.  Each returns buf; NaN is "-". */
typedef const char *hw_show_fn(char buf[HW_FORMAT_CHARS], double value);
hw_show_fn hw_show_bytes; /* "512 B", "232.4 MB" */
hw_show_fn hw_show_us;    /* microseconds: "250 us", "1.5 ms" */

/* Horizontal bars, a label on the left (some 30 characters show, the tooltip has all) and the
 * value at the end.  On a log scale the bars begin at
 * the power of ten below the least value.  NaN is shown as "no value"; on a log scale zero and
 * negative values have no bar. */
struct hw_bar {
    const char *label;
    double value;
};
struct hw_bar_chart {
    const char *title;
    const char *unit;
    hw_show_fn *show; /* NULL: plain figures */
    bool log_scale;
    const struct hw_bar *bars;
    size_t count;
};
/* 0, or -EINVAL past a limit above: nothing is written then. */
int hw_html_bars(struct hw_html *html, const struct hw_bar_chart *chart) MUST_CHECK;

/* Lines over two axes.  A NaN breaks a line; what a log axis cannot show is left out. */
struct hw_series {
    const char *name;
    const double *x, *y;
    size_t count;
};
struct hw_line_chart {
    const char *title;
    const char *x_label, *y_label;
    hw_show_fn *show_x, *show_y; /* NULL: plain figures */
    /* Names of the x values 0, 1, 2 and so on, for points without a scale.  NULL: a scale. */
    const char *const *x_names;
    size_t x_name_count; /* at most HW_CHART_NAMES_MAX */
    bool log_x, log_y;
    bool points; /* a mark at each point: for sweeps of a few measured sizes */
    const struct hw_series *series;
    size_t count;
};
int hw_html_lines(struct hw_html *html, const struct hw_line_chart *chart) MUST_CHECK;

/* The share of values at or below x, for histograms of nanoseconds; x in microseconds. */
struct hw_cdf_series {
    const char *name;
    const struct hw_hist *hist;
};
struct hw_cdf_chart {
    const char *title;
    const char *x_label;
    hw_show_fn *show_x; /* NULL: plain figures */
    bool log_x;
    const struct hw_cdf_series *series;
    size_t count;
};
/* Also -ENOMEM. */
int hw_html_cdf(struct hw_html *html, const struct hw_cdf_chart *chart) MUST_CHECK;

#endif
