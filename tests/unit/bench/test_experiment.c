/* The experiment's statistics against tables, and its file: rows come back as they went, a cut line
 * is run again, another's file is left alone. */
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
    return experiment_file_open(path, settings, &rows, &file);
}

static void append(uint64_t trial, uint64_t settings)
{
    struct experiment_row row = {
        .trial = trial,
        .phase = "decode",
        .mode = "naive",
        .latency_s = 0.125,
        .net_bytes = 1e9,
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
    assert_int_equal(reopen(UINT64_MAX), 0);
    assert_int_equal(rows.count, 1); /* the other has other settings */
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
        cmocka_unit_test(lists_are_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
