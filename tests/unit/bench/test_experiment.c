/* The experiment's statistics against tables, and its file: rows come back as they went, a cut line
 * is run again, another's file is left alone; and what its report says. */
#include "../llm/unit.h"

#include "bench/llm/experiment.h"
#include "bench/llm/ttest.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void near(double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance))
        fail_msg("%g is not %g", a, b);
}

/* Quantiles of Student's t for 95%, two-sided, as every table has them. */
static void quantiles_are_those_of_the_tables(void **state)
{
    (void)state;
    near(ttest_quantile(0.05, 1), 12.706, 5e-4);
    near(ttest_quantile(0.05, 2), 4.303, 5e-4);
    near(ttest_quantile(0.05, 4), 2.776, 5e-4);
    near(ttest_quantile(0.05, 30), 2.042, 5e-4);
    near(ttest_quantile(0.01, 10), 3.169, 5e-4);
    near(ttest_quantile(0.05, 1e6), 1.960, 5e-4);
    near(ttest_two_sided(0, 5), 1, 1e-12);
}

static void means_have_intervals(void **state)
{
    (void)state;
    const double values[] = {1, 2, 3, 4, 5};
    struct ttest_mean m = ttest_mean(values, 5);
    near(m.mean, 3, 1e-12);
    near(m.half, 2.776 * sqrt(2.5 / 5), 1e-3);
    assert_true(isnan(ttest_mean(values, 1).half));
    assert_true(isnan(ttest_mean(values, 0).mean));
}

static void pairs_are_compared(void **state)
{
    (void)state;
    const double a[] = {10, 12, 9, 11}, b[] = {11, 13.5, 10, 12.5}, c[] = {11, 13, 10, 12};
    near(ttest_paired(a, a, 4), 1, 0);
    near(ttest_paired(a, c, 4), 0, 0);           /* always exactly 1 less */
    near(ttest_paired(a, b, 4), 0.003239, 1e-6); /* t = 5 sqrt 3, by the closed form for 3 */
    assert_true(isnan(ttest_paired(a, b, 1)));
}

/* ---- the file ---- */

static char path[] = "/tmp/hawser-experiment-XXXXXX";
static FILE *file;
static struct experiment_rows rows;
static size_t others; /* rows of other settings */

static int setup(void **state)
{
    (void)state;
    strcpy(path + strlen(path) - 6, "XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 || close(fd);
}

static int teardown(void **state)
{
    (void)state;
    experiment_rows_fini(&rows);
    return unlink(path);
}

static int reopen(uint64_t settings)
{
    experiment_rows_fini(&rows);
    return experiment_file_open(path, settings, &rows, &others, &file);
}

static void append(uint64_t trial, uint64_t settings)
{
    struct experiment_row row = {
        .trial = trial,
        .phase = "decode",
        .mode = "naive",
        .latency_s = 0.125,
        .net_bytes = 1e9,
        .kernel_ms = trial == 1 ? NAN : 3.5,
        .avg_sm = NAN,
        .point = {.steps = 3, .rtt_ns = 1000500, .clients = 2, .evicted = 4, .bits_s = 1000000007},
        .kv_fetched = 5,
        .kv_recovered = 6,
        .kv_computed = 7,
        .store_regular = 8,
        .store_delta = 9,
        .client = 1,
        .settings = settings};
    row.bytes[LLM_KV_REGULAR] = 77;
    assert_int_equal(experiment_list_parse("5 6 70000", &row.tokens), 0);
    assert_int_equal(experiment_list_parse(" 1.5  2.25 3", &row.step_us), 0);
    assert_int_equal(experiment_file_append(file, &row), 0);
    experiment_row_fini(&row);
}

static void rows_come_back(void **state)
{
    (void)state;
    assert_int_equal(reopen(UINT64_MAX), 0);
    assert_int_equal(rows.count, 0);
    append(1, UINT64_MAX);
    append(2, 9);
    fclose(file);
    assert_int_equal(reopen(9), 0);
    assert_true(rows.items[0].kernel_ms == 3.5);
    fclose(file);
    assert_int_equal(reopen(UINT64_MAX), 0);
    assert_int_equal(rows.count, 1); /* the other has other settings */
    assert_int_equal(others, 1);
    assert_true(isnan(rows.items[0].kernel_ms)); /* no GPU, so no figure of one */
    const struct experiment_row *r = &rows.items[0];
    assert_string_equal(r->mode, "naive");
    assert_true(r->latency_s == 0.125 && r->net_bytes == 1e9 && isnan(r->avg_sm));
    assert_true(r->bytes[LLM_KV_REGULAR] == 77);
    assert_int_equal(r->point.rtt_ns, 1000500);
    assert_int_equal(r->point.evicted, 4);
    assert_int_equal(r->point.bits_s, 1000000007);
    assert_true(r->kv_fetched == 5 && r->kv_recovered == 6 && r->kv_computed == 7);
    assert_true(r->store_regular == 8 && r->store_delta == 9);
    assert_int_equal(r->tokens.count, 3);
    assert_true(r->tokens.values[2] == 70000 && r->step_us.values[1] == 2.25);
    fclose(file);
}

static void a_cut_line_is_dropped(void **state)
{
    (void)state;
    assert_int_equal(reopen(9), 0);
    append(1, 9);
    append(2, 9);
    long whole = ftell(file);
    fclose(file);
    assert_int_equal(truncate(path, whole - 5), 0);
    assert_int_equal(reopen(9), 0);
    assert_int_equal(rows.count, 1);
    append(2, 9);
    assert_int_equal(ftell(file), whole);
    fclose(file);
    assert_int_equal(reopen(9), 0);
    assert_int_equal(rows.count, 2);
    fclose(file);
}

static void another_file_is_left_alone(void **state)
{
    (void)state;
    static const char *const texts[] = {"my notes\n", "no end of line", "trial,phase\n1,2\n"};
    for (size_t i = 0; i < 3; i++) {
        char back[64] = {0};
        FILE *out = fopen(path, "w");
        fputs(texts[i], out);
        fclose(out);
        assert_int_equal(reopen(9), -EEXIST);
        out = fopen(path, "r");
        assert_int_equal(fread(back, 1, sizeof back - 1, out), strlen(texts[i]));
        assert_string_equal(back, texts[i]);
        fclose(out);
    }
}

/* ---- the report ---- */

/* A row of the phase decode with these latencies and tokens. */
static void add(const char *mode, uint64_t trial, double latency_s, uint64_t rtt_ns,
                const char *tokens)
{
    struct experiment_row row = {.trial = trial,
                                 .phase = "decode",
                                 .latency_s = latency_s,
                                 .net_bytes = 232387215,
                                 .rpc_ms = latency_s * 1e3 + 25,
                                 .kernel_ms = NAN,
                                 .avg_sm = NAN,
                                 .point = {.steps = 3, .rtt_ns = rtt_ns, .clients = 1}};
    row.bytes[LLM_WEIGHTS] = 4300000;
    snprintf(row.mode, sizeof row.mode, "%s", mode);
    char steps[64];
    snprintf(steps, sizeof steps, "0 %g", latency_s * 1e6);
    assert_int_equal(experiment_list_parse(tokens, &row.tokens), 0);
    assert_int_equal(experiment_list_parse(steps, &row.step_us), 0);
    assert_int_equal(experiment_list_parse("1 1", &row.step_up), 0);
    assert_int_equal(experiment_list_parse("1 1", &row.step_down), 0);
    assert_int_equal(experiment_rows_add(&rows, &row), 0);
}

static const char *const modes[] = {"local", "semantic", NULL};
static const struct experiment_point points[] = {{.steps = 3, .rtt_ns = 0, .clients = 1},
                                                 {.steps = 3, .rtt_ns = 5000000, .clients = 1}};
static const struct experiment_report report = {
    .title_model = "m", .modes = modes, .points = points, .point_count = 1, .gpu = "none"};

static char *printed(const struct experiment_report *r)
{
    static char *text;
    static size_t len;
    FILE *out = open_memstream(&text, &len);
    assert_int_equal(experiment_print(&rows, r, out), 0);
    fclose(out);
    return text;
}

static char *page_of(const struct experiment_report *r)
{
    static char text[1 << 20];
    assert_int_equal(experiment_write_html(&rows, r, path), 0);
    FILE *in = fopen(path, "r");
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    fclose(in);
    return text;
}

static void no_difference_is_said_in_words(void **state)
{
    (void)state;
    for (uint64_t trial = 1; trial <= 4; trial++) {
        add("local", trial, trial % 2 ? 0.1 : 0.2, 0, "1 2 3");
        add("semantic", trial, trial % 2 ? 0.2 : 0.1, 0, "1 2 3");
    }
    char *text = printed(&report);
    assert_non_null(strstr(text, "no difference shown (p 1.00)"));
    free(text);
    for (size_t i = 0; i < rows.count; i++)
        if (strcmp(rows.items[i].mode, "semantic") == 0)
            rows.items[i].latency_s += 1 + (double)i / 1000;
    text = printed(&report);
    assert_null(strstr(text, "no difference shown"));
    assert_non_null(strstr(text, "p < 0.001"));
    free(text);
}

static void bytes_have_units_and_uploads_stand_beside_the_latency(void **state)
{
    (void)state;
    add("local", 1, 0.1, 0, "1 2 3");
    add("semantic", 1, 0.1, 0, "1 2 3");
    char *text = printed(&report);
    assert_null(strstr(text, "232387215"));
    assert_non_null(strstr(text, "232.4 MB"));
    assert_non_null(strstr(text, "  upload  "));
    assert_non_null(strstr(text, "  4.3 MB  "));
    assert_non_null(strstr(text, "  25  ")); /* ms of calls before the prompt */
    free(text);
    /* Parts that took longer than the exchanges were parts of the upload: the sum stays as it is.
     */
    rows.items[0].server_serdes_ms = rows.items[1].server_serdes_ms = 110;
    const char *page = page_of(&report);
    assert_non_null(strstr(page, ">125 ms<"));
    assert_non_null(strstr(page, "server: bytes and tensors</span>"));
    assert_null(strstr(page, "GPU kernels</span>"));
}

static void points_of_a_sweep_do_not_mix(void **state)
{
    (void)state;
    struct experiment_report sweep = report;
    sweep.sweep = EXPERIMENT_SWEEP_RTT;
    sweep.point_count = 2;
    for (int p = 0; p < 2; p++) {
        add("local", 1, p ? 3 : 1, points[p].rtt_ns, "1 2 3");
        add("semantic", 1, p ? 3 : 1, points[p].rtt_ns, "1 2 3");
    }
    char *page = page_of(&sweep);
    char *first = strstr(page, "<summary>decode at 0s</summary>");
    char *second = strstr(page, "<summary>decode at 5ms</summary>");
    assert_true(first && second && first < second);
    assert_non_null(strstr(second, "3.025 s<"));
    *second = '\0';
    assert_non_null(strstr(first, "1.025 s<"));
    assert_null(strstr(first, "2.025 s<")); /* their mean */
    assert_non_null(strstr(page, ">5ms</text>"));
}

static void a_lossy_mode_is_counted_and_others_must_agree(void **state)
{
    (void)state;
    char why[256];
    struct experiment_report lossy = report;
    lossy.lossy = true;
    add("semantic", 1, 0.1, 0, "1 9 3");
    add("local", 1, 0.1, 0, "1 2 3");
    assert_false(experiment_agrees(&rows, &report, why));
    assert_non_null(strstr(why, "step 1"));
    assert_true(experiment_agrees(&rows, &lossy, why));
    char *text = printed(&lossy);
    assert_non_null(strstr(text, "tokens that agree"));
    assert_non_null(strstr(text, " 2 of 3\n"));
    assert_non_null(strstr(text, " 3 of 3\n"));
    free(text);
    add("naive", 1, 0.1, 0, "1 2 4");
    assert_false(experiment_agrees(&rows, &lossy, why));
}

static void lists_are_numbers(void **state)
{
    (void)state;
    struct experiment_list list;
    assert_int_equal(experiment_list_parse("1 x", &list), -EINVAL);
    assert_int_equal(experiment_list_parse("-1", &list), -EINVAL);
    assert_int_equal(experiment_list_parse("1111111111111111111111111111111111111111", &list),
                     -EINVAL);
    assert_int_equal(experiment_list_parse("", &list), 0);
    assert_int_equal(list.count, 0);
    free(list.values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_those_of_the_tables),
        cmocka_unit_test(means_have_intervals),
        cmocka_unit_test(pairs_are_compared),
        cmocka_unit_test_setup_teardown(rows_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(a_cut_line_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(another_file_is_left_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(no_difference_is_said_in_words, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_have_units_and_uploads_stand_beside_the_latency,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(points_of_a_sweep_do_not_mix, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lossy_mode_is_counted_and_others_must_agree, setup,
                                        teardown),
        cmocka_unit_test(lists_are_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
