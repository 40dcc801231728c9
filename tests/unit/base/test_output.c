#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/report/output.h"

static char folder[64], path[96], other[160];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/hawser-output-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/file", folder);
    return 0;
}

/* Fails where anything else was left behind. */
static int teardown(void **state)
{
    (void)state;
    (void)unlink(path);
    (void)unlink(other);
    return rmdir(folder);
}

static int write_text(const char *text)
{
    struct hw_output o;
    int rc = hw_output_open(&o, path, true, 0, NULL);
    if (rc)
        return rc;
    assert_true(fputs(text, o.stream) >= 0);
    return hw_output_finish(&o, 0, NULL);
}

static void expect_text(const char *name, const char *text)
{
    char buf[64] = "";
    FILE *in = fopen(name, "re");
    assert_non_null(in);
    assert_int_equal(fread(buf, 1, sizeof(buf) - 1, in), strlen(text));
    assert_string_equal(buf, text);
    (void)fclose(in);
}

static void a_file_appears_and_is_replaced(void **state)
{
    struct hw_output o;
    (void)state;
    assert_int_equal(write_text("one"), 0);
    expect_text(path, "one");
    assert_int_equal(hw_output_open(&o, path, false, 0, NULL), -EEXIST);
    assert_int_equal(write_text("two"), 0);
    expect_text(path, "two");
}

/* In a container the process that was killed and the next one may have the same id. */
static void a_part_left_behind_is_not_in_the_way(void **state)
{
    (void)state;
    snprintf(other, sizeof(other), "%s.%d.part", path, (int)getpid());
    FILE *left = fopen(other, "wxe");
    assert_non_null(left);
    (void)fclose(left);
    assert_int_equal(write_text("one"), 0);
    expect_text(path, "one");
}

static void what_is_no_plain_file_is_not_replaced(void **state)
{
    char why[HW_OUTPUT_WHY_CHARS] = "";
    struct hw_output o;
    struct stat st;
    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(hw_output_open(&o, path, true, 0, why), -EINVAL);
    assert_non_null(strstr(why, path));
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
}

static void the_file_behind_a_link_is_replaced(void **state)
{
    struct stat st;
    (void)state;
    snprintf(other, sizeof(other), "%s/other", folder);
    FILE *behind = fopen(other, "wxe");
    assert_non_null(behind);
    (void)fclose(behind);
    assert_int_equal(symlink("other", path), 0);
    assert_int_equal(write_text("one"), 0);
    expect_text(other, "one");
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_appears_and_is_replaced),
        TEST(a_part_left_behind_is_not_in_the_way),
        TEST(what_is_no_plain_file_is_not_replaced),
        TEST(the_file_behind_a_link_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
