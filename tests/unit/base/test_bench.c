#include "unit.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/report/bench.h"

static char *printed(const struct hw_bench *bench, int (*print)(const struct hw_bench *, FILE *))
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    assert_int_equal(print(bench, out), 0);
    fclose(out);
    return text;
}

static void sample(struct hw_bench *bench)
{
    hw_bench_begin(bench, "rpc");
    hw_bench_row(bench, "round trip", 6.9, "us", 6);
    hw_bench_field(bench, "transport", "%s", "tcp");
    hw_bench_field(bench, "size", "%d", 32);
    hw_bench_field(bench, "size", "%d", 64);
    hw_bench_row(bench, "calls", 1234567, "calls/s", NAN);
    hw_bench_field(bench, "size", "%d", 128);
    hw_bench_field(bench, "depth", "%d", 64);
    hw_bench_field(bench, "made", "%d", 2);
}

static void table_has_columns_of_what_most_rows_say(void **state)
{
    (void)state;
    struct hw_bench bench;
    sample(&bench);
    char *text = printed(&bench, hw_bench_print_table);
    assert_string_equal(text,
                        "name        size    value  unit     baseline  ratio  also\n"
                        "round trip    64      6.9  us              6   1.15  transport tcp\n"
                        "calls        128  1234567  calls/s         -      -  depth 64, made 2\n");
    free(text);
    hw_bench_end(&bench);
}

static void json_is_one_object_with_null_where_there_is_no_baseline(void **state)
{
    (void)state;
    struct hw_bench bench;
    sample(&bench);
    char *text = printed(&bench, hw_bench_print_json);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    assert_int_equal(json_object_size(root), 6);
    assert_string_equal(json_string_value(json_object_get(root, "benchmark")), "rpc");
    assert_true(strlen(json_string_value(json_object_get(root, "commit"))) > 0);
    assert_non_null(strstr(json_string_value(json_object_get(root, "host")), " CPU"));
    assert_int_equal(strlen(json_string_value(json_object_get(root, "date"))), 20);
    json_t *rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 2);
    json_t *first = json_array_get(rows, 0), *second = json_array_get(rows, 1);
    assert_string_equal(json_string_value(json_object_get(first, "name")), "round trip");
    assert_string_equal(json_string_value(json_object_get(first, "size")), "64");
    assert_true(json_real_value(json_object_get(first, "value")) == 6.9);
    assert_true(json_real_value(json_object_get(first, "ratio")) == 6.9 / 6);
    assert_null(json_object_get(first, "depth"));
    assert_true(json_is_null(json_object_get(second, "baseline")));
    assert_true(json_is_null(json_object_get(second, "ratio")));
    json_decref(root);
    free(text);
    hw_bench_end(&bench);
}

static void zero_baseline_has_no_ratio_in_json(void **state)
{
    (void)state;
    struct hw_bench bench;
    hw_bench_begin(&bench, "x");
    hw_bench_row(&bench, "x", 1, "us", 0);
    char *text = printed(&bench, hw_bench_print_json);
    assert_non_null(strstr(text, "\"baseline\":0,\"ratio\":null"));
    free(text);
    hw_bench_end(&bench);
}

static void too_many_columns_are_told_by_the_print(void **state)
{
    (void)state;
    struct hw_bench bench;
    char key[16];
    hw_bench_begin(&bench, "wide");
    hw_bench_row(&bench, "x", 1, "us", NAN);
    for (int i = 0; i <= HW_BENCH_FIELDS_MAX; i++) {
        snprintf(key, sizeof key, "k%d", i);
        hw_bench_field(&bench, key, "%d", i);
    }
    assert_int_equal(hw_bench_print_table(&bench, stderr), -E2BIG);
    assert_int_equal(hw_bench_print_json(&bench, stderr), -E2BIG);
    hw_bench_end(&bench);
}

static void benchmark_without_rows_prints(void **state)
{
    (void)state;
    struct hw_bench bench;
    hw_bench_begin(&bench, "none");
    char *text = printed(&bench, hw_bench_print_json);
    assert_non_null(strstr(text, "\"rows\":[]"));
    free(text);
    hw_bench_end(&bench);
}

/* Under load a difference of two times came out as -1486 us and "met" its target of at most 1.3. */
static void an_impossible_figure_is_invalid_and_meets_no_target(void **state)
{
    (void)state;
    static const struct hw_bench_target targets[] = {{"delay.", true, 1.3}, {"tcp.", false, 0.9}};
    struct hw_bench bench;
    hw_bench_begin(&bench, "x");
    hw_bench_row(&bench, "delay.calls", -1486, "us", 1150);
    hw_bench_judge(&bench, targets, 2);
    assert_true(hw_bench_failed(&bench));
    char *text = printed(&bench, hw_bench_print_json);
    json_t *root = json_loads(text, 0, NULL);
    json_t *row = json_array_get(json_object_get(root, "rows"), 0);
    assert_true(json_is_null(json_object_get(row, "value")));
    assert_true(json_is_null(json_object_get(row, "ratio")));
    assert_true(json_is_false(json_object_get(row, "valid")));
    assert_non_null(strstr(json_string_value(json_object_get(row, "reason")), "-1486 us"));
    assert_string_equal(json_string_value(json_object_get(row, "met")), "invalid");
    json_decref(root);
    free(text);
    text = printed(&bench, hw_bench_print_table);
    assert_null(strstr(text, "yes"));
    assert_null(strstr(text, "-1.3"));
    assert_non_null(strstr(text, "\ninvalid: delay.calls: -1486 us"));
    free(text);
    hw_bench_end(&bench);
}

/* A line of 10 ms whose raw round trip was measured as 45 ms made a ratio of 0.23, "met". */
static void a_value_beyond_its_limit_is_invalid(void **state)
{
    (void)state;
    static const struct hw_bench_target targets[] = {
        {"cycle.10ms", true, 1.05, true}, {"rate.", false, 0.97, true}, {"cycle.", true, 1.3}};
    static const struct {
        const char *name;
        double value, baseline;
        bool invalid;
    } rows[] = {{"cycle.10ms", 10453, 44978, true},  {"cycle.10ms", 10453, 10100, false},
                {"cycle.10ms", 10453, 11000, false}, {"rate.http", 2882, 2237, true},
                {"rate.http", 2882, 2837, false},    {"cycle.unix", 10, 20, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hw_bench bench;
        hw_bench_begin(&bench, "x");
        hw_bench_row(&bench, rows[i].name, rows[i].value, "us", rows[i].baseline);
        hw_bench_judge(&bench, targets, 3);
        char *text = printed(&bench, hw_bench_print_table);
        assert_int_equal(strstr(text, "is impossible") != NULL, rows[i].invalid);
        assert_int_equal(strstr(text, "yes") == NULL, rows[i].invalid);
        assert_int_equal(hw_bench_failed(&bench), rows[i].invalid);
        free(text);
        hw_bench_end(&bench);
    }
}

static void infinite_figures_and_negative_baselines_are_invalid(void **state)
{
    (void)state;
    static const double rows[][2] = {{INFINITY, NAN}, {-INFINITY, NAN}, {1, -1}, {1, INFINITY}};
    for (size_t i = 0; i < 4; i++) {
        struct hw_bench bench;
        hw_bench_begin(&bench, "x");
        hw_bench_row(&bench, "x", rows[i][0], "us", rows[i][1]);
        assert_true(hw_bench_failed(&bench));
        hw_bench_end(&bench);
    }
}

static void a_row_that_its_benchmark_calls_invalid_is_invalid(void **state)
{
    (void)state;
    static const struct hw_bench_target targets[] = {{"x", true, 10}};
    struct hw_bench bench;
    hw_bench_begin(&bench, "x");
    hw_bench_row(&bench, "x", 1, "us", NAN);
    hw_bench_invalid(&bench, "shorter than %d us", 2);
    hw_bench_judge(&bench, targets, 1);
    char *text = printed(&bench, hw_bench_print_table);
    assert_string_equal(text, "name  target      met    value  unit  baseline  ratio\n"
                              "x      <= 10  invalid  invalid  us           -      -\n"
                              "invalid: x: shorter than 2 us\n");
    free(text);
    hw_bench_end(&bench);
}

static void targets_judge_the_ratio_or_else_the_value(void **state)
{
    (void)state;
    static const struct hw_bench_target targets[] = {{"a.", true, 2}, {"b.", false, 0.5}};
    static const struct {
        const char *name;
        double value, baseline;
        const char *met;
    } rows[] = {{"a.1", 4, 2, "yes"},  {"a.1", 4.1, 2, "NO"},  {"a.1", 2, NAN, "yes"},
                {"a.1", 3, NAN, "NO"}, {"b.1", 1, 2, "yes"},   {"b.1", 1, 2.1, "NO"},
                {"c.1", 100, 1, "-"},  {"a.1", NAN, NAN, "NO"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hw_bench bench;
        hw_bench_begin(&bench, "x");
        hw_bench_row(&bench, rows[i].name, rows[i].value, "us", rows[i].baseline);
        hw_bench_judge(&bench, targets, 2);
        char *text = printed(&bench, hw_bench_print_json), met[32];
        snprintf(met, sizeof met, "\"met\":\"%s\"", rows[i].met);
        assert_non_null(strstr(text, met));
        assert_int_equal(hw_bench_failed(&bench), strcmp(rows[i].met, "NO") == 0);
        free(text);
        hw_bench_end(&bench);
    }
}

static void rows_left_out_are_said_by_reason(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d"};
    struct hw_bench bench;
    hw_bench_begin(&bench, "x");
    hw_bench_row(&bench, "x", 1, "us", NAN);
    hw_bench_leave_out(&bench, "slow", "--limit");
    for (size_t i = 0; i < 4; i++)
        hw_bench_leave_out(&bench, names[i], "--quick");
    assert_false(hw_bench_failed(&bench));
    char *text = printed(&bench, hw_bench_print_table);
    assert_non_null(strstr(text, "\nleft out by --quick: 4 rows: a, b, c and others\n"));
    assert_non_null(strstr(text, "\nleft out by --limit: 1 row: slow\n"));
    free(text);
    text = printed(&bench, hw_bench_print_json);
    assert_non_null(strstr(text, "{\"why\":\"--quick\",\"rows\":[\"a\",\"b\",\"c\",\"d\"]}"));
    free(text);
    hw_bench_end(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_has_columns_of_what_most_rows_say),
        cmocka_unit_test(json_is_one_object_with_null_where_there_is_no_baseline),
        cmocka_unit_test(zero_baseline_has_no_ratio_in_json),
        cmocka_unit_test(too_many_columns_are_told_by_the_print),
        cmocka_unit_test(benchmark_without_rows_prints),
        cmocka_unit_test(an_impossible_figure_is_invalid_and_meets_no_target),
        cmocka_unit_test(a_value_beyond_its_limit_is_invalid),
        cmocka_unit_test(infinite_figures_and_negative_baselines_are_invalid),
        cmocka_unit_test(a_row_that_its_benchmark_calls_invalid_is_invalid),
        cmocka_unit_test(targets_judge_the_ratio_or_else_the_value),
        cmocka_unit_test(rows_left_out_are_said_by_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
