/* Runs the checks; with a path as argument, writes the sample page of all pieces there first, for
 * check_html.py and for a person's eyes. */
#include "unit.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "base/report/bench.h"
#include "base/report/html.h"
#include "base/rng.h"

static const char nasty[] = "<b>&\"'\xff\x01</b> ]]> \xe6\xbc\xa2";

static void sample_bars(struct hw_html *html)
{
    static const struct hw_bar modes[] = {
        {"local", 41.2},    {"semantic, delta KV", 38.9},
        {"semantic", 36.1}, {"naive", 0.82},
        {"vulkan", NAN},    {nasty, 12},
    };
    static const struct hw_bar bytes[] = {
        {"weights", 548e6}, {"kv_regular", 31e6}, {"logits", 6.4e6}, {"tokens", 512}, {"none", 0}};
    assert_int_equal(hw_html_bars(html, &(struct hw_bar_chart){.title = "Tokens per second",
                                                               .unit = "tokens/s",
                                                               .bars = modes,
                                                               .count = ARRAY_LEN(modes)}),
                     0);
    assert_int_equal(hw_html_bars(html, &(struct hw_bar_chart){.title = "Bytes on the wire",
                                                               .unit = "bytes",
                                                               .show = hw_show_bytes,
                                                               .log_scale = true,
                                                               .bars = bytes,
                                                               .count = ARRAY_LEN(bytes)}),
                     0);
}

static void sample_lines(struct hw_html *html)
{
    double size[8], tcp[8], unix_socket[8], shm[8];
    for (int i = 0; i < 8; i++) {
        size[i] = 64 * pow(8, i);
        tcp[i] = 5.9 + size[i] / 7600;
        unix_socket[i] = 4.1 + size[i] / 8200;
        shm[i] = i == 3 ? NAN : 0.4 + size[i] / 11000;
    }
    const struct hw_series series[] = {
        {"tcp", size, tcp, 8}, {"unix", size, unix_socket, 8}, {nasty, size, shm, 8}};
    assert_int_equal(hw_html_lines(html, &(struct hw_line_chart){.title = "Round trip by size",
                                                                 .x_label = "bytes",
                                                                 .y_label = "us",
                                                                 .log_x = true,
                                                                 .log_y = true,
                                                                 .points = true,
                                                                 .series = series,
                                                                 .count = 3}),
                     0);
    assert_int_equal(hw_html_lines(html, &(struct hw_line_chart){.title = "Linear axes",
                                                                 .x_label = "bytes",
                                                                 .y_label = "us",
                                                                 .series = series,
                                                                 .count = 3}),
                     0);
}

static void sample_names(struct hw_html *html)
{
    static const char *const names[] = {"0", "100us", "1ms", "10ms"};
    static const double x[] = {0, 1, 2, 3}, y[] = {310, 420, 1350, 10400};
    const struct hw_series series = {"semantic", x, y, 4};
    assert_int_equal(hw_html_lines(html, &(struct hw_line_chart){.title = "Points with names",
                                                                 .x_label = "round trip",
                                                                 .y_label = "a token",
                                                                 .show_y = hw_show_us,
                                                                 .x_names = names,
                                                                 .x_name_count = 4,
                                                                 .log_y = true,
                                                                 .points = true,
                                                                 .series = &series,
                                                                 .count = 1}),
                     0);
}

static void sample_cdf(struct hw_html *html)
{
    struct hw_hist fast, slow;
    struct hw_rng rng;
    hw_rng_seed(&rng, 1);
    assert_int_equal(hw_hist_init(&fast), 0);
    assert_int_equal(hw_hist_init(&slow), 0);
    for (int i = 0; i < 20000; i++) {
        hw_hist_record(&fast, 4000 + hw_rng_below(&rng, 2500) + hw_rng_below(&rng, 2500));
        hw_hist_record(&slow, (hw_rng_below(&rng, 5) ? 13000 : 6000) + hw_rng_below(&rng, 3000));
    }
    const struct hw_cdf_series series[] = {{"1 client", &fast}, {"16 clients", &slow}};
    struct hw_cdf_chart chart = {
        .title = "Round trip, share of calls", .x_label = "us", .series = series, .count = 2};
    assert_int_equal(hw_html_cdf(html, &chart), 0);
    chart.log_x = true;
    assert_int_equal(hw_html_cdf(html, &chart), 0);
    hw_hist_fini(&fast);
    hw_hist_fini(&slow);
}

static void sample_table(struct hw_html *html)
{
    struct hw_table *table = hw_table_create();
    hw_table_column(table, "mode", HW_LEFT);
    hw_table_column(table, "tokens/s", HW_RIGHT);
    hw_table_column(table, "p50 latency (us)", HW_RIGHT);
    hw_table_column(table, "bytes moved", HW_RIGHT);
    hw_table_column(table, "note", HW_LEFT);
    for (int i = 0; i < 5; i++) {
        hw_table_cell(table, "mode %d", i);
        hw_table_cell(table, "%.1f", 40.0 / (i + 1));
        hw_table_cell(table, "%d", 1000 * (i + 1));
        hw_table_cell(table, "%d", 123456 * i);
        hw_table_cell(table, "%s", i == 2 ? nasty : "agrees with local");
    }
    hw_html_table(html, table);
    hw_table_destroy(table);
}

static int write_page(FILE *out)
{
    struct hw_html html;
    hw_html_begin(&html, out, "Sample report");
    hw_html_paragraph(&html, "Every piece of a report, with %s in it.", nasty);
    hw_html_heading(&html, "Table");
    sample_table(&html);
    hw_html_heading(&html, "Bars");
    sample_bars(&html);
    hw_html_heading(&html, "Lines");
    sample_lines(&html);
    hw_html_fold_begin(&html, "More lines", true);
    sample_names(&html);
    hw_html_fold_end(&html);
    hw_html_heading(&html, "CDF");
    sample_cdf(&html);
    return hw_html_end(&html);
}

static char *text_of_page(void)
{
    static char *text; /* the caller's, until the next page */
    static size_t len;
    FILE *out = open_memstream(&text, &len);
    assert_int_equal(write_page(out), 0);
    fclose(out);
    return text;
}

static void text_is_escaped_everywhere(void **state)
{
    (void)state;
    char *text = text_of_page();
    assert_null(strstr(text, "<b>"));
    assert_null(strchr(text, '\xff'));
    assert_null(strchr(text, '\x01'));
    assert_non_null(strstr(text, "&lt;b&gt;&amp;&quot;'\xef\xbf\xbd\xef\xbf\xbd&lt;/b&gt;"));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    free(text);
}

static void every_page_names_machine_commit_and_date(void **state)
{
    (void)state;
    char *text = text_of_page(), host[HW_BENCH_HOST_CHARS], commit[64];
    hw_bench_host(host);
    snprintf(commit, sizeof commit, "; commit %s; 20", hw_bench_commit());
    const char *where = strstr(text, "<p class=\"where\">");
    assert_non_null(where);
    assert_non_null(strstr(where, commit));
    assert_non_null(strstr(where, " CPU"));
    assert_memory_equal(where + strlen("<p class=\"where\">"), host, strcspn(host, "<>&\""));
    free(text);
}

static void ticks_have_units_and_log_axes_say_so(void **state)
{
    (void)state;
    char *text = text_of_page();
    static const char *const shown[] = {
        ">548 MB<",
        ">512 B<",
        ">100 MB<", /* values of bars, and a tick */
        ">10 ms<",
        ">1 ms<",
        ">200 us<", /* ticks of a line chart */
        ">100us<",
        ">10ms<", /* names of points */
        ">bytes (log scale)<",
        ">a token (log scale)<" /* axes */
    };
    for (size_t i = 0; i < ARRAY_LEN(shown); i++)
        if (!strstr(text, shown[i]))
            fail_msg("%s is not there", shown[i]);
    assert_null(strstr(text, "548000000"));
    free(text);
}

static void figures_are_shown_with_units(void **state)
{
    (void)state;
    char text[HW_FORMAT_CHARS];
    assert_string_equal(hw_show_bytes(text, 232387215), "232.4 MB");
    assert_string_equal(hw_show_bytes(text, 0), "0 B");
    assert_string_equal(hw_show_bytes(text, NAN), "-");
    assert_string_equal(hw_show_us(text, 0.25), "0.25 us");
    assert_string_equal(hw_show_us(text, 1500), "1.5 ms");
    assert_string_equal(hw_show_us(text, 4.2e9), "4200 s");
}

static void charts_past_their_limits_write_nothing(void **state)
{
    (void)state;
    static struct hw_bar bars[HW_CHART_BARS_MAX + 1];
    static struct hw_series series[HW_CHART_SERIES_MAX + 1];
    static struct hw_cdf_series cdf[HW_CHART_SERIES_MAX + 1];
    static const struct hw_bar infinite = {"x", INFINITY};
    static const double far[] = {INFINITY};
    char *text;
    size_t len;
    struct hw_html html = {.out = open_memstream(&text, &len)};
    assert_int_equal(
        hw_html_bars(&html, &(struct hw_bar_chart){.bars = bars, .count = ARRAY_LEN(bars)}),
        -EINVAL);
    assert_int_equal(hw_html_bars(&html, &(struct hw_bar_chart){.bars = &infinite, .count = 1}),
                     -EINVAL);
    assert_int_equal(
        hw_html_lines(&html, &(struct hw_line_chart){.series = series, .count = ARRAY_LEN(series)}),
        -EINVAL);
    series[0] = (struct hw_series){"x", far, far, 1};
    assert_int_equal(hw_html_lines(&html, &(struct hw_line_chart){.series = series, .count = 1}),
                     -EINVAL);
    assert_int_equal(
        hw_html_lines(&html, &(struct hw_line_chart){.x_name_count = HW_CHART_NAMES_MAX + 1}),
        -EINVAL);
    series[0].count = HW_CHART_POINTS_MAX + 1;
    assert_int_equal(hw_html_lines(&html, &(struct hw_line_chart){.series = series, .count = 1}),
                     -EINVAL);
    assert_int_equal(
        hw_html_cdf(&html, &(struct hw_cdf_chart){.series = cdf, .count = ARRAY_LEN(cdf)}),
        -EINVAL);
    fclose(html.out);
    assert_int_equal(len, 0);
    free(text);
}

/* Data that leaves an axis without a span, or with a huge one, must still give finite numbers. */
static void odd_ranges_give_finite_coordinates(void **state)
{
    (void)state;
    static const double samples[][2] = {{0, 0},           {5, 5},          {-3, -3},
                                        {-5, 5},          {1e-300, 1e300}, {1e-300, 2e-300},
                                        {1e15, 1e15 + 1}, {NAN, NAN},      {5e-324, 1},
                                        {-1e300, 1e300},  {999.99, 1000}};
    for (size_t i = 0; i < 4 * ARRAY_LEN(samples); i++) {
        const double *v = samples[i / 4];
        const struct hw_series series = {"s", v, v, 2};
        const struct hw_bar bars[] = {{"a", v[0]}, {"b", v[1]}};
        char *text;
        size_t len;
        struct hw_html html = {.out = open_memstream(&text, &len)};
        assert_int_equal(hw_html_lines(&html, &(struct hw_line_chart){.title = "",
                                                                      .x_label = "",
                                                                      .y_label = "",
                                                                      .log_x = i & 1,
                                                                      .log_y = i & 2,
                                                                      .series = &series,
                                                                      .count = 1}),
                         0);
        assert_int_equal(hw_html_bars(&html, &(struct hw_bar_chart){.title = "",
                                                                    .unit = "",
                                                                    .log_scale = i & 1,
                                                                    .bars = bars,
                                                                    .count = 2}),
                         0);
        fclose(html.out);
        if (strstr(text, "nan") || strstr(text, "inf"))
            fail_msg("%g %g: %s", v[0], v[1], text);
        free(text);
    }
}

static void empty_charts_are_drawn(void **state)
{
    (void)state;
    struct hw_hist hist;
    char *text;
    size_t len;
    struct hw_html html = {.out = open_memstream(&text, &len)};
    assert_int_equal(hw_hist_init(&hist), 0);
    const struct hw_cdf_series series = {"empty", &hist};
    assert_int_equal(hw_html_cdf(&html,
                                 &(struct hw_cdf_chart){
                                     .title = "", .x_label = "", .series = &series, .count = 1}),
                     0);
    assert_int_equal(hw_html_bars(&html, &(struct hw_bar_chart){.title = "", .unit = ""}), 0);
    fclose(html.out);
    assert_null(strstr(text, "nan"));
    assert_non_null(strstr(text, "</svg></div></figure>\n<figure>"));
    free(text);
    hw_hist_fini(&hist);
}

static void failed_write_is_told_at_the_end(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_int_equal(write_page(full), -ENOSPC);
    fclose(full);
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        FILE *out = fopen(argv[1], "w");
        if (!out || write_page(out) != 0 || fclose(out) != 0)
            return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_escaped_everywhere),
        cmocka_unit_test(every_page_names_machine_commit_and_date),
        cmocka_unit_test(ticks_have_units_and_log_axes_say_so),
        cmocka_unit_test(figures_are_shown_with_units),
        cmocka_unit_test(charts_past_their_limits_write_nothing),
        cmocka_unit_test(odd_ranges_give_finite_coordinates),
        cmocka_unit_test(empty_charts_are_drawn),
        cmocka_unit_test(failed_write_is_told_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
