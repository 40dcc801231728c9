#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

static char lines[16][HW_LOG_LINE_MAX + 1];
static int line_count;

static void remember(void *user, const char *line, size_t len)
{
    (void)user;
    assert_true(len <= HW_LOG_LINE_MAX);
    if (line_count < (int)ARRAY_LEN(lines)) {
        memcpy(lines[line_count], line, len);
        lines[line_count][len] = '\0';
    }
    line_count++;
}

static void set_environment(const char *level, const char *categories)
{
    if (level)
        setenv("VENUS_LOG_LEVEL", level, 1);
    else
        unsetenv("VENUS_LOG_LEVEL");
    if (categories)
        setenv("VENUS_LOG_CATEGORIES", categories, 1);
    else
        unsetenv("VENUS_LOG_CATEGORIES");
    line_count = 0;
    hw_log_reload();
}

static int setup(void **state)
{
    (void)state;
    hw_log_set_sink(remember, NULL);
    set_environment(NULL, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    hw_log_set_sink(NULL, NULL);
    return 0;
}

static void default_is_warn(void **state)
{
    (void)state;
    for (int cat = 0; cat < HW_CAT_COUNT; cat++) {
        assert_true(hw_log_on(cat, HW_LOG_ERROR));
        assert_true(hw_log_on(cat, HW_LOG_WARN));
        assert_false(hw_log_on(cat, HW_LOG_INFO));
    }
    hw_warn(HW_CAT_NET, "peer %s gone", "a");
    hw_info(HW_CAT_NET, "not shown");
    assert_int_equal(line_count, 1);
    assert_string_equal(lines[0], "hawser: warn: net: peer a gone\n");
}

static void levels_in_any_case(void **state)
{
    (void)state;
    static const char *const names[] = {"NONE", "error", "Warn", "INFO", "dEBUG", "trace"};
    for (int level = 0; level < (int)ARRAY_LEN(names); level++) {
        set_environment(names[level], NULL);
        for (int asked = HW_LOG_ERROR; asked <= HW_LOG_TRACE; asked++)
            assert_int_equal(hw_log_on(HW_CAT_LLM, asked), asked <= level);
    }
    assert_int_equal(line_count, 0);
}

static void category_overrides_level_both_ways(void **state)
{
    (void)state;
    set_environment("ERROR", "memory=INFO,NET=none");
    assert_true(hw_log_on(HW_CAT_MEMORY, HW_LOG_INFO));
    assert_false(hw_log_on(HW_CAT_NET, HW_LOG_ERROR));
    assert_true(hw_log_on(HW_CAT_KV, HW_LOG_ERROR));
    assert_false(hw_log_on(HW_CAT_KV, HW_LOG_WARN));
    static const char *const every = "GENERAL=TRACE,NET=TRACE,MEMORY=TRACE,VULKAN=TRACE,"
                                     "PAGE=TRACE,KV=TRACE,LLM=TRACE";
    set_environment("NONE", every);
    for (int cat = 0; cat < HW_CAT_COUNT; cat++)
        assert_true(hw_log_on(cat, HW_LOG_TRACE));
    assert_int_equal(line_count, 0);
}

static void bad_level_is_one_warning_and_the_default(void **state)
{
    (void)state;
    set_environment("LOUD", NULL);
    assert_int_equal(line_count, 1);
    assert_string_equal(lines[0],
                        "hawser: warn: general: VENUS_LOG_LEVEL='LOUD' is not NONE, ERROR, WARN, "
                        "INFO, DEBUG or TRACE; using WARN\n");
    assert_true(hw_log_on(HW_CAT_NET, HW_LOG_WARN));
    assert_false(hw_log_on(HW_CAT_NET, HW_LOG_INFO));
}

static void bad_categories_are_one_warning_and_ignored(void **state)
{
    (void)state;
    static const char *const bad[] = {"NET",      "NET=",      "=INFO",
                                      "NET=LOUD", "WIRE=INFO", "KV=INFO,,KV=INFO",
                                      "NET INFO", "NETS=INFO", "NET=INFO;KV=INFO",
                                      "NE=INFO"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        set_environment(NULL, bad[i]);
        assert_int_equal(line_count, 1);
        assert_non_null(strstr(lines[0], "VENUS_LOG_CATEGORIES='"));
        assert_non_null(strstr(lines[0], bad[i]));
        assert_non_null(strstr(lines[0], "MEMORY=INFO,NET=DEBUG"));
        assert_false(hw_log_on(HW_CAT_NET, HW_LOG_INFO));
    }
}

static void a_bad_category_spares_the_others(void **state)
{
    (void)state;
    set_environment(NULL, "MEMORY=INFO,WIRE=INFO,NETWORK=DEBUG,KV");
    assert_int_equal(line_count, 1);
    assert_non_null(strstr(lines[0], "ignoring 'WIRE=INFO'"));
    assert_true(hw_log_on(HW_CAT_MEMORY, HW_LOG_INFO));
    assert_true(hw_log_on(HW_CAT_NET, HW_LOG_DEBUG));
    assert_false(hw_log_on(HW_CAT_KV, HW_LOG_INFO));
}

static int evaluated;

static int count_evaluation(void)
{
    return ++evaluated;
}

static void arguments_are_evaluated_only_when_on(void **state)
{
    (void)state;
    evaluated = 0;
    hw_debug(HW_CAT_KV, "%d", count_evaluation());
    hw_trace(HW_CAT_KV, "%d", count_evaluation());
    assert_int_equal(evaluated, 0);
    hw_error(HW_CAT_KV, "%d", count_evaluation());
    assert_int_equal(evaluated, 1);
}

static void debug_lines_carry_time_and_thread(void **state)
{
    (void)state;
    regex_t form;
    regcomp(&form,
            "^[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9]{6} \\[[0-9]+\\] hawser: warn: net: x\n$",
            REG_EXTENDED | REG_NOSUB);
    set_environment(NULL, "NET=DEBUG");
    hw_warn(HW_CAT_NET, "x");
    hw_warn(HW_CAT_KV, "x");
    assert_int_equal(regexec(&form, lines[0], 0, NULL, 0), 0);
    assert_string_equal(lines[1], "hawser: warn: kv: x\n");
    regfree(&form);
}

static void long_text_is_cut_and_marked(void **state)
{
    (void)state;
    char text[3 * HW_LOG_LINE_MAX];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    hw_warn(HW_CAT_NET, "%s", text);
    size_t len = strlen(lines[0]);
    assert_in_range(len, HW_LOG_LINE_MAX - 2, HW_LOG_LINE_MAX);
    assert_string_equal(lines[0] + len - 5, "a...\n");
}

static void every_length_around_the_limit_stays_one_line(void **state)
{
    (void)state;
    char text[HW_LOG_LINE_MAX + 16];
    for (int n = HW_LOG_LINE_MAX - 40; n < HW_LOG_LINE_MAX + 8; n++) {
        memset(text, 'b', sizeof text);
        text[n] = '\0';
        line_count = 0;
        hw_warn(HW_CAT_NET, "%s", text);
        assert_int_equal(strchr(lines[0], '\n') - lines[0], strlen(lines[0]) - 1);
    }
}

static void control_characters_cannot_forge_a_line(void **state)
{
    (void)state;
    hw_warn(HW_CAT_NET, "bad token from %s",
            "x\nhawser: warn: net: all is well\x1b[2J\x7f\xc2\x9b"
            "2J\xc3\x9b");
    assert_string_equal(lines[0], "hawser: warn: net: bad token from x?hawser: warn: net: all is "
                                  "well?[2J???2J\xc3\x9b\n");
}

static void errno_survives_and_can_be_printed(void **state)
{
    (void)state;
    errno = ENOENT;
    hw_warn(HW_CAT_NET, "%m");
    assert_int_equal(errno, ENOENT);
    assert_string_equal(lines[0], "hawser: warn: net: No such file or directory\n");
}

enum { WRITERS = 4, LINES_EACH = 200 };

static void *write_lines(void *arg)
{
    char text[301];
    memset(text, *(char *)arg, 300);
    text[300] = '\0';
    for (int i = 0; i < LINES_EACH; i++)
        hw_warn(HW_CAT_NET, "%s", text);
    return NULL;
}

static void write_from_threads(void)
{
    static char letters[] = "abcd";
    pthread_t threads[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, &letters[i]), 0);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
}

/* Every line is one writer's letter from end to end. */
static int whole_lines(FILE *in)
{
    char line[1024];
    int count = 0;
    while (fgets(line, sizeof line, in)) {
        static const char prefix[] = "hawser: warn: net: ";
        assert_memory_equal(line, prefix, sizeof prefix - 1);
        const char *text = line + sizeof prefix - 1;
        assert_int_equal(strlen(text), 301);
        for (int i = 1; i < 300; i++)
            assert_int_equal(text[i], text[0]);
        count++;
    }
    return count;
}

static void lines_of_threads_and_processes_do_not_mix(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    assert_non_null(file);
    hw_log_set_sink(NULL, NULL);
    dup2(fileno(file), STDERR_FILENO);
    pid_t child = fork();
    if (child == 0) {
        char letter = 'e';
        write_lines(&letter);
        _exit(0);
    }
    write_from_threads();
    int status;
    waitpid(child, &status, 0);
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_int_equal(status, 0);
    rewind(file);
    assert_int_equal(whole_lines(file), (WRITERS + 1) * LINES_EACH);
    fclose(file);
}

static void *ask_first(void *arg)
{
    *(bool *)arg = hw_log_on(HW_CAT_PAGE, HW_LOG_INFO) && !hw_log_on(HW_CAT_PAGE, HW_LOG_DEBUG);
    return NULL;
}

/* Runs before anything else has read the environment. */
static void first_use_is_safe_from_many_threads(void **state)
{
    (void)state;
    pthread_t threads[WRITERS];
    bool right[WRITERS] = {false};
    setenv("VENUS_LOG_LEVEL", "INFO", 1);
    assert_int_equal(hw_log_levels[HW_CAT_PAGE], HW_LOG_UNREAD);
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_first, &right[i]), 0);
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(right[i]);
    }
}

#define WITH_SINK(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    unsetenv("VENUS_LOG_LEVEL");
    unsetenv("VENUS_LOG_CATEGORIES");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_use_is_safe_from_many_threads),
        WITH_SINK(default_is_warn),
        WITH_SINK(levels_in_any_case),
        WITH_SINK(category_overrides_level_both_ways),
        WITH_SINK(bad_level_is_one_warning_and_the_default),
        WITH_SINK(bad_categories_are_one_warning_and_ignored),
        WITH_SINK(a_bad_category_spares_the_others),
        WITH_SINK(arguments_are_evaluated_only_when_on),
        WITH_SINK(debug_lines_carry_time_and_thread),
        WITH_SINK(long_text_is_cut_and_marked),
        WITH_SINK(every_length_around_the_limit_stays_one_line),
        WITH_SINK(control_characters_cannot_forge_a_line),
        WITH_SINK(errno_survives_and_can_be_printed),
        WITH_SINK(lines_of_threads_and_processes_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
