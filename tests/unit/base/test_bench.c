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
    hw_bench_field(bench, "depth", "%d", 64);
}

static void table_has_every_column(void **state)
{
    (void)state;
    struct hw_bench bench;
    sample(&bench);
    char *text = printed(&bench, hw_bench_print_table);
    assert_string_equal(text,
                        "name        transport  size  depth    value  unit     baseline  ratio\n"
                        "round trip        tcp    64             6.9  us              6   1.15\n"
                        "calls                           64  1234567  calls/s         -      -\n");
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
    assert_int_equal(json_object_size(root), 5);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_has_every_column),
        cmocka_unit_test(json_is_one_object_with_null_where_there_is_no_baseline),
        cmocka_unit_test(zero_baseline_has_no_ratio_in_json),
        cmocka_unit_test(too_many_columns_are_told_by_the_print),
        cmocka_unit_test(benchmark_without_rows_prints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
