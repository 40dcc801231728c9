#include "unit.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/units.h"

struct sample {
    const char *text;
    int rc;
    uint64_t value;
};

static void check(int (*parse)(const char *, uint64_t *), const struct sample *samples,
                  size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value = 77; /* stays on failure */
        int rc = parse(samples[i].text, &value);
        if (rc != samples[i].rc || value != (rc == 0 ? samples[i].value : 77))
            fail_msg("'%s': rc %d, value %llu", samples[i].text, rc, (unsigned long long)value);
    }
}

static void sizes_are_read(void **state)
{
    (void)state;
    static const struct sample samples[] = {
        {"0", 0, 0},
        {"4096", 0, 4096},
        {"4096B", 0, 4096},
        {"256KiB", 0, 256 << 10},
        {"256kib", 0, 256 << 10},
        {"4MiB", 0, 4 << 20},
        {"2 GiB", 0, UINT64_C(2) << 30},
        {"1TiB", 0, UINT64_C(1) << 40},
        {"1K", 0, 1024},
        {"1m", 0, 1 << 20},
        {"1G", 0, 1 << 30},
        {"1KB", 0, 1000},
        {"3MB", 0, 3000000},
        {"1GB", 0, 1000000000},
        {"1TB", 0, UINT64_C(1000000000000)},
        {"1.5MiB", 0, 3 << 19},
        {"0.5KiB", 0, 512},
        {"0.0001KiB", 0, 0},
        {"0.3KiB", 0, 307},
        {"0.12345678901234567890123KB", 0, 123},
        {"18446744073709551615", 0, UINT64_MAX},
        {"16777215.99999999TiB", 0, UINT64_MAX - 10994},
        {"00012", 0, 12},
    };
    check(hw_parse_size, samples, ARRAY_LEN(samples));
}

static void malformed_sizes_are_refused(void **state)
{
    (void)state;
    static const struct sample samples[] = {
        {"", -EINVAL, 0},
        {" ", -EINVAL, 0},
        {" 1", -EINVAL, 0},
        {"1 ", -EINVAL, 0},
        {"1  KiB", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {"+1", -EINVAL, 0},
        {"KiB", -EINVAL, 0},
        {"1.KiB", -EINVAL, 0},
        {".5KiB", -EINVAL, 0},
        {"1.5", -EINVAL, 0},
        {"1.5B", -EINVAL, 0},
        {"1.2.3KiB", -EINVAL, 0},
        {"1,5KiB", -EINVAL, 0},
        {"1e3", -EINVAL, 0},
        {"0x10", -EINVAL, 0},
        {"1KiBs", -EINVAL, 0},
        {"1PiB", -EINVAL, 0},
        {"1KiB\n", -EINVAL, 0},
        {"99999999999999999999999bananas", -EINVAL, 0},
        {"18446744073709551616", -ERANGE, 0},
        {"99999999999999999999999", -ERANGE, 0},
        {"16777216TiB", -ERANGE, 0},
        {"16777215.9999999999999TiB", -ERANGE, 0},
    };
    check(hw_parse_size, samples, ARRAY_LEN(samples));
}

static void durations_need_a_unit(void **state)
{
    (void)state;
    static const struct sample samples[] = {
        {"0", 0, 0},
        {"0s", 0, 0},
        {"500us", 0, 500 * HW_US},
        {"850ns", 0, 850},
        {"20ms", 0, 20 * HW_MS},
        {"20 MS", 0, 20 * HW_MS},
        {"1.5s", 0, 1500 * HW_MS},
        {"2m", 0, 120 * HW_SEC},
        {"0.1us", 0, 100},
        {"1", -EINVAL, 0},
        {"0.0", -EINVAL, 0},
        {"1.5ns", -EINVAL, 0},
        {"1h", -EINVAL, 0},
        {"-1s", -EINVAL, 0},
        {"", -EINVAL, 0},
        {"s", -EINVAL, 0},
        {"18446744074s", -ERANGE, 0},
        {"99999999999999999999", -EINVAL, 0},
        {"99999999999999999999ns", -ERANGE, 0},
    };
    check(hw_parse_duration, samples, ARRAY_LEN(samples));
}

static void whole_numbers_keep_their_range(void **state)
{
    (void)state;
    uint64_t value = 77;
    assert_int_equal(hw_parse_u64("18446744073709551615", 0, UINT64_MAX, &value), 0);
    assert_int_equal(value, UINT64_MAX);
    assert_int_equal(hw_parse_u64("5", 5, 5, &value), 0);
    assert_int_equal(value, 5);
    assert_int_equal(hw_parse_u64("4", 5, 9, &value), -ERANGE);
    assert_int_equal(hw_parse_u64("10", 5, 9, &value), -ERANGE);
    assert_int_equal(hw_parse_u64("18446744073709551616", 0, UINT64_MAX, &value), -ERANGE);
    static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "1.0", "1K", "0x1", "one"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(hw_parse_u64(bad[i], 0, 100, &value), -EINVAL);
    assert_int_equal(value, 5);
}

static void decimals_are_read_strictly(void **state)
{
    (void)state;
    double value = 77;
    assert_int_equal(hw_parse_double("-1.5e-3", -1, 1, &value), 0);
    assert_true(value == -0.0015);
    static const char *const bad[] = {"", "nan", "inf", "0x1p3", " 1", "1 ", "1,5", "1e", "--1"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(hw_parse_double(bad[i], -HUGE_VAL, HUGE_VAL, &value), -EINVAL);
    assert_int_equal(hw_parse_double("1e999", -HUGE_VAL, HUGE_VAL, &value), -ERANGE);
    assert_int_equal(hw_parse_double("2", 0, 1, &value), -ERANGE);
    assert_true(value == -0.0015);
}

static void formats_are_short(void **state)
{
    (void)state;
    char buf[HW_FORMAT_CHARS];
    assert_string_equal(hw_format_size(buf, 0), "0B");
    assert_string_equal(hw_format_size(buf, 1023), "1023B");
    assert_string_equal(hw_format_size(buf, 256 << 10), "256KiB");
    assert_string_equal(hw_format_size(buf, 3 << 19), "1.5MiB");
    assert_string_equal(hw_format_size(buf, (1 << 20) - 1), "1024KiB");
    assert_string_equal(hw_format_size(buf, 1100), "1.07KiB");
    assert_string_equal(hw_format_size(buf, UINT64_MAX), "16777215.99TiB"); /* reads back */
    assert_string_equal(hw_format_duration(buf, 0), "0s");
    assert_string_equal(hw_format_duration(buf, 850), "850ns");
    assert_string_equal(hw_format_duration(buf, 12340), "12.34us");
    assert_string_equal(hw_format_duration(buf, 100 * HW_SEC), "100s");
    assert_string_equal(hw_format_duration(buf, UINT64_MAX), "18446744073.7s");
    assert_string_equal(hw_format_figure(buf, 0.0012345678), "0.001235");
    assert_string_equal(hw_format_figure(buf, 12.3456), "12.35");
    assert_string_equal(hw_format_figure(buf, 1234567.8), "1234568");
    assert_string_equal(hw_format_figure(buf, NAN), "-");
}

static void exact_multiples_read_back(void **state)
{
    (void)state;
    char buf[HW_FORMAT_CHARS];
    struct hw_rng rng;
    hw_rng_seed(&rng, 7);
    for (int i = 0; i < 1000; i++) {
        uint64_t size = hw_rng_below(&rng, 1000) << (10 * hw_rng_below(&rng, 5));
        uint64_t back;
        assert_int_equal(hw_parse_size(hw_format_size(buf, size), &back), 0);
        assert_int_equal(back, size);
    }
}

static void doubles_read_back_and_are_short(void **state)
{
    (void)state;
    char buf[HW_FORMAT_CHARS];
    struct hw_rng rng;
    hw_rng_seed(&rng, 8);
    for (int i = 0; i < 5000; i++) {
        uint64_t bits = hw_rng_u64(&rng);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value))
            assert_true(strtod(hw_format_double(buf, value), NULL) == value);
    }
    assert_string_equal(hw_format_double(buf, 0.1), "0.1");
    assert_string_equal(hw_format_double(buf, 1234567), "1234567");
    assert_string_equal(hw_format_double(buf, 0.1 + 0.2), "0.30000000000000004");
    assert_string_equal(hw_format_double(buf, -INFINITY), "-inf");
}

/* The locale is built by hand: none with a decimal comma need be installed, so where there is
 * none this shows only that a locale in force is left in force. */
static void locale_of_the_program_is_left_alone(void **state)
{
    (void)state;
    char buf[HW_FORMAT_CHARS];
    double value;
    setlocale(LC_ALL, "de_DE.UTF-8");
    char before[64];
    snprintf(before, sizeof before, "%.1f", 1.5);
    assert_string_equal(hw_format_double(buf, 1.5), "1.5");
    assert_string_equal(hw_format_figure(buf, 1.5), "1.5");
    assert_int_equal(hw_parse_double("1.5", 0, 2, &value), 0);
    assert_true(value == 1.5);
    char after[64];
    snprintf(after, sizeof after, "%.1f", 1.5);
    assert_string_equal(before, after);
    setlocale(LC_ALL, "C");
}

/* Of a Turkish program "i" is no lower case of "I"; the same as above where it is not installed. */
static void letters_of_the_program_are_left_alone(void **state)
{
    (void)state;
    uint64_t value = 0;
    setlocale(LC_ALL, "tr_TR.UTF-8");
    assert_int_equal(hw_parse_size("3mIb", &value), 0);
    assert_int_equal(value, 3 << 20);
    assert_int_equal(hw_parse_size("3m\xc4\xb1"
                                   "b",
                                   &value),
                     -EINVAL);
    setlocale(LC_ALL, "C");
}

/* Lines the code under test logged. */
static char logged[4096];
static int logged_lines;

static void remember(void *user, const char *line, size_t len)
{
    (void)user;
    logged_lines++;
    snprintf(logged, sizeof logged, "%.*s", (int)len, line);
}

static int log_begin(void **state)
{
    (void)state;
    logged_lines = 0;
    hw_log_set_sink(remember, NULL);
    return 0;
}

static int log_end(void **state)
{
    (void)state;
    hw_log_set_sink(NULL, NULL);
    unsetenv("VENUS_TEST");
    return 0;
}

static void unset_or_empty_variable_is_the_default(void **state)
{
    (void)state;
    uint64_t value;
    bool flag;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(hw_env_size("VENUS_TEST", 9, 1, 10, &value), 0);
        assert_int_equal(value, 9);
        assert_int_equal(hw_env_u64("VENUS_TEST", 7, 1, 10, &value), 0);
        assert_int_equal(value, 7);
        assert_int_equal(hw_env_bool("VENUS_TEST", true, &flag), 0);
        assert_true(flag);
        setenv("VENUS_TEST", "", 1);
    }
    assert_int_equal(logged_lines, 0);
}

static void set_variable_is_read(void **state)
{
    (void)state;
    uint64_t value;
    bool flag = true;
    setenv("VENUS_TEST", "4MiB", 1);
    assert_int_equal(hw_env_size("VENUS_TEST", 9, 0, UINT64_MAX, &value), 0);
    assert_int_equal(value, 4 << 20);
    setenv("VENUS_TEST", "off", 1);
    assert_int_equal(hw_env_bool("VENUS_TEST", true, &flag), 0);
    assert_false(flag);
    assert_int_equal(logged_lines, 0);
}

static void bad_variable_is_named_with_value_and_form(void **state)
{
    (void)state;
    uint64_t value = 0;
    bool flag = false;
    setenv("VENUS_TEST", "4 bananas", 1);
    assert_int_equal(hw_env_size("VENUS_TEST", 4096, 1024, 1 << 20, &value), -EINVAL);
    assert_int_equal(value, 4096);
    assert_string_equal(logged, "hawser: warn: general: VENUS_TEST='4 bananas' is not a size like "
                                "4096, 256KiB or 4MiB from 1KiB to 1MiB; using 4KiB\n");
    assert_int_equal(hw_env_u64("VENUS_TEST", 3, 1, 5, &value), -EINVAL);
    assert_string_equal(logged, "hawser: warn: general: VENUS_TEST='4 bananas' is not a whole "
                                "number from 1 to 5; using 3\n");
    assert_int_equal(hw_env_bool("VENUS_TEST", true, &flag), -EINVAL);
    assert_true(flag);
    assert_int_equal(logged_lines, 3);
    setenv("VENUS_TEST", "2MiB", 1); /* well-formed, too large */
    assert_int_equal(hw_env_size("VENUS_TEST", 4096, 1024, 1 << 20, &value), -EINVAL);
    assert_int_equal(value, 4096);
    assert_int_equal(logged_lines, 4);
}

static void *format_many(void *arg)
{
    char buf[HW_FORMAT_CHARS];
    double value;
    for (int i = 0; i < 1000; i++)
        if (hw_parse_double(hw_format_double(buf, i / 8.0), 0, 1000, &value) < 0 ||
            value != i / 8.0)
            return arg;
    return NULL;
}

static void threads_share_the_locale(void **state)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, format_many, state), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

int main(void)
{
    unsetenv("VENUS_LOG_LEVEL");
    unsetenv("VENUS_LOG_CATEGORIES");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_the_locale), /* first: it makes the locale */
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(malformed_sizes_are_refused),
        cmocka_unit_test(durations_need_a_unit),
        cmocka_unit_test(whole_numbers_keep_their_range),
        cmocka_unit_test(decimals_are_read_strictly),
        cmocka_unit_test(formats_are_short),
        cmocka_unit_test(exact_multiples_read_back),
        cmocka_unit_test(doubles_read_back_and_are_short),
        cmocka_unit_test(locale_of_the_program_is_left_alone),
        cmocka_unit_test(letters_of_the_program_are_left_alone),
        cmocka_unit_test_setup_teardown(unset_or_empty_variable_is_the_default, log_begin, log_end),
        cmocka_unit_test_setup_teardown(set_variable_is_read, log_begin, log_end),
        cmocka_unit_test_setup_teardown(bad_variable_is_named_with_value_and_form, log_begin,
                                        log_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
