#include "unit.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "base/report/json.h"

static struct hw_json json;
static char *text;
static size_t text_len;
static FILE *stream;

static int begin(void **state)
{
    (void)state;
    stream = open_memstream(&text, &text_len);
    hw_json_begin(&json, stream);
    return stream ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    fclose(stream);
    free(text);
    return 0;
}

static json_t *parsed(void)
{
    assert_int_equal(hw_json_finish(&json), 0);
    json_error_t error;
    json_t *root = json_loadb(text, text_len, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (!root)
        fail_msg("%s in %s", error.text, text);
    return root;
}

static void every_kind_of_value_is_written(void **state)
{
    (void)state;
    hw_json_object_begin(&json);
    hw_json_put_u64(&json, "u", UINT64_MAX);
    hw_json_put_double(&json, "d", -0.5);
    hw_json_put_bool(&json, "b", true);
    hw_json_put_string(&json, "s", "text");
    hw_json_key(&json, "list");
    hw_json_array_begin(&json);
    hw_json_bool(&json, true);
    hw_json_bool(&json, false);
    hw_json_null(&json);
    hw_json_string(&json, NULL);
    hw_json_array_begin(&json);
    hw_json_array_end(&json);
    hw_json_object_begin(&json);
    hw_json_object_end(&json);
    hw_json_array_end(&json);
    hw_json_key(&json, "");
    hw_json_string(&json, "last");
    hw_json_object_end(&json);
    assert_int_equal(hw_json_finish(&json), 0);
    assert_string_equal(text, "{\"u\":18446744073709551615,\"d\":-0.5,\"b\":true,\"s\":\"text\","
                              "\"list\":[true,false,null,null,[],{}],\"\":\"last\"}\n");
}

static void doubles_come_back_equal_and_others_are_null(void **state)
{
    (void)state;
    static const double values[] = {0,       -0.0,    0.1,  1e300,   5e-324,
                                    1.0 / 3, 1234567, 1e21, -2.5e-7, 6.02e23};
    hw_json_array_begin(&json);
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        hw_json_double(&json, values[i]);
    hw_json_double(&json, NAN);
    hw_json_double(&json, INFINITY);
    hw_json_double(&json, -INFINITY);
    hw_json_array_end(&json);
    json_t *root = parsed();
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        assert_true(json_number_value(json_array_get(root, i)) == values[i]);
    for (size_t i = ARRAY_LEN(values); i < ARRAY_LEN(values) + 3; i++)
        assert_true(json_is_null(json_array_get(root, i)));
    json_decref(root);
}

static void every_byte_value_survives_or_is_replaced(void **state)
{
    (void)state;
    char bytes[128];
    for (int i = 0; i < 128; i++)
        bytes[i] = (char)i;
    hw_json_array_begin(&json);
    hw_json_string_n(&json, bytes, 128);
    hw_json_string(&json, "a\xff\xc0\x80z \xed\xa0\x80 \xe2\x82");
    hw_json_string(&json, "\xe2\x82\xac \xf0\x9f\x9a\xa2");
    hw_json_array_end(&json);
    json_t *root = parsed();
    assert_int_equal(json_string_length(json_array_get(root, 0)), 128);
    assert_memory_equal(json_string_value(json_array_get(root, 0)), bytes, 128);
#define R "\xef\xbf\xbd"
    assert_string_equal(json_string_value(json_array_get(root, 1)), "a" R R R "z " R R R " " R R);
    assert_string_equal(json_string_value(json_array_get(root, 2)),
                        "\xe2\x82\xac \xf0\x9f\x9a\xa2");
    json_decref(root);
}

static void no_control_character_is_written_as_it_is(void **state)
{
    (void)state;
    hw_json_string(&json, "\033\x7f\xc2\x80\xc2\x9f\xc2\xa0");
    json_t *root = parsed();
    assert_string_equal(text, "\"\\u001b\\u007f\\u0080\\u009f\xc2\xa0\"\n");
    json_decref(root);
}

static void keys_are_escaped_too(void **state)
{
    (void)state;
    hw_json_object_begin(&json);
    hw_json_key(&json, "a\"\\\n");
    hw_json_u64(&json, 1);
    hw_json_object_end(&json);
    json_t *root = parsed();
    assert_int_equal(json_integer_value(json_object_get(root, "a\"\\\n")), 1);
    json_decref(root);
}

static void deepest_nesting_is_written(void **state)
{
    (void)state;
    for (int i = 0; i < HW_JSON_DEPTH_MAX; i++)
        hw_json_array_begin(&json);
    for (int i = 0; i < HW_JSON_DEPTH_MAX; i++)
        hw_json_array_end(&json);
    json_t *root = parsed();
    assert_true(json_is_array(root));
    json_decref(root);
}

static void bare_value_is_a_document(void **state)
{
    (void)state;
    hw_json_string(&json, "x");
    json_t *root = parsed();
    assert_true(json_is_string(root));
    json_decref(root);
}

static void failed_write_is_sticky_and_told(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    struct hw_json other;
    hw_json_begin(&other, full);
    hw_json_array_begin(&other);
    for (int i = 0; i < 100000; i++)
        hw_json_u64(&other, 12345);
    hw_json_array_end(&other);
    assert_int_equal(hw_json_finish(&other), -ENOSPC);
    fclose(full);
}

static void write_that_fails_at_the_flush_is_told(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    struct hw_json other;
    hw_json_begin(&other, full);
    hw_json_null(&other);
    assert_int_equal(hw_json_finish(&other), -ENOSPC);
    fclose(full);
}

#define WITH_STREAM(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STREAM(every_kind_of_value_is_written),
        WITH_STREAM(doubles_come_back_equal_and_others_are_null),
        WITH_STREAM(every_byte_value_survives_or_is_replaced),
        WITH_STREAM(no_control_character_is_written_as_it_is),
        WITH_STREAM(keys_are_escaped_too),
        WITH_STREAM(deepest_nesting_is_written),
        WITH_STREAM(bare_value_is_a_document),
        cmocka_unit_test(failed_write_is_sticky_and_told),
        cmocka_unit_test(write_that_fails_at_the_flush_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
