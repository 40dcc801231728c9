#include "unit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/report/csv.h"

static void fields_are_quoted_only_where_needed(void **state)
{
    (void)state;
    char *text;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    struct hw_csv csv;
    hw_csv_begin(&csv, out);
    hw_csv_field(&csv, "name");
    hw_csv_field(&csv, "a,b");
    hw_csv_field(&csv, "say \"hi\"");
    hw_csv_field(&csv, "two\nlines");
    hw_csv_field(&csv, "cr\r");
    hw_csv_field(&csv, "");
    hw_csv_end_row(&csv);
    hw_csv_u64(&csv, UINT64_MAX);
    hw_csv_double(&csv, 0.1);
    hw_csv_double(&csv, NAN);
    hw_csv_double(&csv, -1e300);
    hw_csv_field(&csv, " spaced ");
    hw_csv_field(&csv, "\"");
    hw_csv_end_row(&csv);
    assert_int_equal(hw_csv_finish(&csv), 0);
    assert_string_equal(text, "name,\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\",\"cr\r\",\n"
                              "18446744073709551615,0.1,,-1e+300, spaced ,\"\"\"\"\n");
    fclose(out);
    free(text);
}

static void failed_write_is_told(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    struct hw_csv csv;
    hw_csv_begin(&csv, full);
    hw_csv_field(&csv, "x");
    hw_csv_end_row(&csv);
    assert_int_equal(hw_csv_finish(&csv), -ENOSPC);
    fclose(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_quoted_only_where_needed),
        cmocka_unit_test(failed_write_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
