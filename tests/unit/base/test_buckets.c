#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/report/buckets.h"

static const double second_edges[] = {0.5, 1};
static const double row_edges[] = {1, 1 << 20};
static const struct hw_buckets_def defs[] = {
    {"wait_seconds", "vllm:wait_seconds", "time that passed", HW_EDGES(second_edges), 1e-9},
    {"rows", NULL, "rows of a step", HW_EDGES(row_edges), 1},
};

static void expect_print(const char *want)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    hw_buckets_print(out);
    fclose(out);
    assert_string_equal(text, want);
    free(text);
}

static void output_is_exact_and_equal_models_are_summed(void **state)
{
    static struct hw_buckets wait, rows[3];
    (void)state;
    hw_buckets_register(&rows[0], &defs[1], "a");
    hw_buckets_register(&wait, &defs[0], "q\"\\");
    hw_buckets_register(&rows[1], &defs[1], "b");
    hw_buckets_register(&rows[2], &defs[1], "a");
    hw_buckets_note(&wait, 500000000);
    hw_buckets_note(&wait, 1500000000);
    hw_buckets_note(&rows[0], 1);
    hw_buckets_note(&rows[2], 2);
#define WAIT(name)                                                                                 \
    "# HELP " name " time that passed\n# TYPE " name " histogram\n" name                           \
    "_bucket{model_name=\"q\\\"\\\\\",le=\"0.5\"} 1\n" name                                        \
    "_bucket{model_name=\"q\\\"\\\\\",le=\"1\"} 1\n" name                                          \
    "_bucket{model_name=\"q\\\"\\\\\",le=\"+Inf\"} 2\n" name                                       \
    "_sum{model_name=\"q\\\"\\\\\"} 2.000000000\n" name "_count{model_name=\"q\\\"\\\\\"} 2\n"
    expect_print("# HELP hawser_rows rows of a step\n# TYPE hawser_rows histogram\n"
                 "hawser_rows_bucket{model_name=\"a\",le=\"1\"} 1\n"
                 "hawser_rows_bucket{model_name=\"a\",le=\"1048576\"} 2\n"
                 "hawser_rows_bucket{model_name=\"a\",le=\"+Inf\"} 2\n"
                 "hawser_rows_sum{model_name=\"a\"} 3\nhawser_rows_count{model_name=\"a\"} 2\n"
                 "hawser_rows_bucket{model_name=\"b\",le=\"1\"} 0\n"
                 "hawser_rows_bucket{model_name=\"b\",le=\"1048576\"} 0\n"
                 "hawser_rows_bucket{model_name=\"b\",le=\"+Inf\"} 0\n"
                 "hawser_rows_sum{model_name=\"b\"} 0\nhawser_rows_count{model_name=\"b\"} "
                 "0\n" WAIT("hawser_wait_seconds") WAIT("vllm:wait_seconds"));
    for (int i = 0; i < 3; i++)
        hw_buckets_unregister(&rows[i]);
    hw_buckets_unregister(&rows[0]); /* again: left alone */
    expect_print(WAIT("hawser_wait_seconds") WAIT("vllm:wait_seconds"));
    hw_buckets_unregister(&wait);
    expect_print("");
}

static void mean_and_quantiles(void **state)
{
    static struct hw_buckets b;
    struct hw_buckets sum = {0};
    (void)state;
    assert_true(hw_buckets_quantile(&sum, 0.5) < 0);
    hw_buckets_register(&b, &defs[0], "a");
    assert_true(hw_buckets_mean(&b) == 0);
    for (int i = 0; i < 9; i++)
        hw_buckets_note(&b, 400000000);
    hw_buckets_note(&b, 6400000000);
    hw_buckets_add(&sum, &b);
    hw_buckets_add(&sum, &b);
    assert_int_equal(hw_buckets_count(&sum), 20);
    assert_true(hw_buckets_mean(&sum) == 1);
    assert_true(hw_buckets_quantile(&sum, 0.9) == 0.5);
    assert_true(hw_buckets_quantile(&sum, 0.95) < 0); /* behind the last edge */
    hw_buckets_unregister(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_is_exact_and_equal_models_are_summed),
        cmocka_unit_test(mean_and_quantiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
