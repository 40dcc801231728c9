/* Streams whose bytes gather in memory. */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/gather.h"

static size_t most = SIZE_MAX; /* bytes that an allocation gets */

void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

void *__wrap_realloc(void *old, size_t bytes)
{
    return bytes > most ? NULL : __real_realloc(old, bytes);
}

static FILE *write_lines(struct hw_gathered *g, int count)
{
    FILE *out = hw_gather(g);
    assert_non_null(out);
    for (int i = 0; i < count; i++)
        fprintf(out, "line %05d\n", i);
    return out;
}

static void all_that_is_written_is_there(void **state)
{
    (void)state;
    struct hw_gathered g;
    assert_int_equal(hw_gather_end(write_lines(&g, 5000), &g), 0);
    assert_int_equal(g.len, 5000 * 11);
    assert_int_equal(strlen(g.text), g.len);
    assert_string_equal(g.text + g.len - 11, "line 04999\n");
    free(g.text);
    assert_int_equal(hw_gather_end(write_lines(&g, 0), &g), 0);
    assert_string_equal(g.text, "");
    free(g.text);
}

/* Also where later writes would have had room again. */
static void a_part_is_nothing(void **state)
{
    (void)state;
    struct hw_gathered g;
    FILE *out = write_lines(&g, 100);
    most = 20000;
    for (int i = 0; i < 5000; i++)
        fprintf(out, "line %05d\n", i);
    most = SIZE_MAX;
    fprintf(out, "the last line\n");
    assert_int_equal(hw_gather_end(out, &g), -ENOMEM);
    assert_null(g.text);
    assert_int_equal(g.len, 0);
}

static void without_a_stream_there_is_nothing(void **state)
{
    (void)state;
    struct hw_gathered g = {.text = NULL};
    assert_int_equal(hw_gather_end(NULL, &g), -ENOMEM);
    assert_null(g.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_is_written_is_there),
        cmocka_unit_test(a_part_is_nothing),
        cmocka_unit_test(without_a_stream_there_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
