#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/report/table.h"

static char *printed(const struct hw_table *table)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    assert_int_equal(hw_table_print(table, out), 0);
    fclose(out);
    return text;
}

static void columns_are_aligned_left_and_right(void **state)
{
    (void)state;
    struct hw_table *table = hw_table_create();
    hw_table_column(table, "name", HW_LEFT);
    hw_table_column(table, "count", HW_RIGHT);
    hw_table_column(table, "unit", HW_LEFT);
    hw_table_cell(table, "%s", "a long name");
    hw_table_cell(table, "%d", 7);
    hw_table_cell(table, "us");
    hw_table_cell(table, "b");
    hw_table_cell(table, "%d", 1234567);
    hw_table_cell(table, "calls/s");
    char *text = printed(table);
    assert_string_equal(text, "name           count  unit\n"
                              "a long name        7  us\n"
                              "b            1234567  calls/s\n");
    free(text);
    hw_table_destroy(table);
}

static void heads_and_rows_are_written_at_once(void **state)
{
    (void)state;
    struct hw_table *table = hw_table_create();
    hw_table_head(table, "name\tcount\t<unit");
    hw_table_cells(table, "%s\t%d\tus", "a long name", 7);
    hw_table_cell(table, "b");
    hw_table_cells(table, "%d\t", 1234567);
    assert_int_equal(hw_table_rows(table), 2);
    char *text = printed(table);
    assert_string_equal(text, "name           count  unit\n"
                              "a long name        7  us\n"
                              "b            1234567\n");
    free(text);
    hw_table_destroy(table);
}

static void width_counts_what_a_terminal_shows(void **state)
{
    (void)state;
    assert_int_equal(hw_text_width(""), 0);
    assert_int_equal(hw_text_width("abc"), 3);
    assert_int_equal(hw_text_width("\xce\xbcs"), 2);                /* mu s */
    assert_int_equal(hw_text_width("e\xcc\x81"), 1);                /* e and combining acute */
    assert_int_equal(hw_text_width("\xe6\xbc\xa2\xe5\xad\x97"), 4); /* two ideographs */
    assert_int_equal(hw_text_width("\xf0\x9f\x9a\xa2"), 2);         /* a ship */
    assert_int_equal(hw_text_width("\xff\xfe"), 2);                 /* invalid bytes */
    struct hw_table *table = hw_table_create();
    hw_table_column(table, "\xce\xbcs", HW_RIGHT);
    hw_table_column(table, "x", HW_LEFT);
    hw_table_cell(table, "123");
    hw_table_cell(table, "y");
    char *text = printed(table);
    assert_string_equal(text, " \xce\xbcs  x\n123  y\n");
    free(text);
    hw_table_destroy(table);
}

static void unfinished_row_and_control_characters_are_harmless(void **state)
{
    (void)state;
    struct hw_table *table = hw_table_create();
    hw_table_column(table, "a", HW_LEFT);
    hw_table_column(table, "b", HW_LEFT);
    hw_table_cell(table, "x\ny\033[2J\xc2\x9b"
                         "2J\xc2\xa0");
    assert_int_equal(hw_table_rows(table), 1);
    assert_string_equal(hw_table_text(table, 0, 1), "");
    char *text = printed(table);
    assert_string_equal(text, "a             b\nx?y?[2J??2J\xc2\xa0\n");
    free(text);
    hw_table_destroy(table);
}

static void empty_tables_print_their_heading(void **state)
{
    (void)state;
    struct hw_table *table = hw_table_create();
    char *text = printed(table);
    assert_string_equal(text, "");
    free(text);
    hw_table_column(table, "a", HW_LEFT);
    text = printed(table);
    assert_string_equal(text, "a\n");
    free(text);
    hw_table_destroy(table);
    hw_table_destroy(NULL);
}

static void text_past_the_limit_is_told_by_the_print(void **state)
{
    (void)state;
    struct hw_table *table = hw_table_create();
    hw_table_column(table, "a", HW_LEFT);
    for (int i = 0; i < 70; i++)
        hw_table_cell(table, "%*s", 1 << 20, "x");
    assert_int_equal(hw_table_error(table), -ENOMEM);
    assert_int_equal(hw_table_print(table, stderr), -ENOMEM);
    hw_table_destroy(table);
}

static void failed_write_is_told(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    struct hw_table *table = hw_table_create();
    hw_table_column(table, "a", HW_LEFT);
    assert_int_equal(hw_table_print(table, full), -ENOSPC);
    hw_table_destroy(table);
    fclose(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_aligned_left_and_right),
        cmocka_unit_test(heads_and_rows_are_written_at_once),
        cmocka_unit_test(width_counts_what_a_terminal_shows),
        cmocka_unit_test(unfinished_row_and_control_characters_are_harmless),
        cmocka_unit_test(empty_tables_print_their_heading),
        cmocka_unit_test(text_past_the_limit_is_told_by_the_print),
        cmocka_unit_test(failed_write_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
