#include "unit.h"

#include <string.h>

#include "base/attr.h"
#include "base/text/utf8.h"

struct sample {
    const char *bytes;
    size_t used;
    uint32_t code;
};

static void check(const struct sample *samples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t code;
        assert_int_equal(hw_utf8_next(samples[i].bytes, strlen(samples[i].bytes), &code),
                         samples[i].used);
        assert_int_equal(code, samples[i].code);
    }
}

static void valid_sequences_are_read(void **state)
{
    (void)state;
    static const struct sample samples[] = {
        {"a", 1, 'a'},
        {"\x7f", 1, 0x7f},
        {"\xc2\x80", 2, 0x80},
        {"\xdf\xbf", 2, 0x7ff},
        {"\xe0\xa0\x80", 3, 0x800},
        {"\xed\x9f\xbf", 3, 0xd7ff},
        {"\xee\x80\x80", 3, 0xe000},
        {"\xef\xbf\xbf", 3, 0xffff},
        {"\xf0\x90\x80\x80", 4, 0x10000},
        {"\xf4\x8f\xbf\xbf", 4, 0x10ffff},
    };
    check(samples, ARRAY_LEN(samples));
}

static void invalid_bytes_take_one_and_are_replaced(void **state)
{
    (void)state;
    static const struct sample samples[] = {
        {"\x80", 1, HW_UTF8_REPLACEMENT},             /* continuation alone */
        {"\xc0\x80", 1, HW_UTF8_REPLACEMENT},         /* overlong */
        {"\xc1\xbf", 1, HW_UTF8_REPLACEMENT},         /* overlong */
        {"\xe0\x9f\xbf", 1, HW_UTF8_REPLACEMENT},     /* overlong */
        {"\xf0\x8f\xbf\xbf", 1, HW_UTF8_REPLACEMENT}, /* overlong */
        {"\xed\xa0\x80", 1, HW_UTF8_REPLACEMENT},     /* surrogate */
        {"\xf4\x90\x80\x80", 1, HW_UTF8_REPLACEMENT}, /* past the end */
        {"\xf5\x80\x80\x80", 1, HW_UTF8_REPLACEMENT},
        {"\xff", 1, HW_UTF8_REPLACEMENT},
        {"\xe2\x82", 1, HW_UTF8_REPLACEMENT}, /* cut short */
        {"\xe2x", 1, HW_UTF8_REPLACEMENT},
    };
    check(samples, ARRAY_LEN(samples));
}

static void zero_byte_is_a_character(void **state)
{
    (void)state;
    uint32_t code = 1;
    assert_int_equal(hw_utf8_next("", 1, &code), 1);
    assert_int_equal(code, 0);
}

static void a_name_that_was_cut_is_mended(void **state)
{
    (void)state;
    char name[] = "\xe2\x82\xac\xff\xc3\xa4 \xe2\x82";
    hw_utf8_mend(name);
    assert_string_equal(name, "\xe2\x82\xac?\xc3\xa4 ??");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_sequences_are_read),
        cmocka_unit_test(invalid_bytes_take_one_and_are_replaced),
        cmocka_unit_test(zero_byte_is_a_character),
        cmocka_unit_test(a_name_that_was_cut_is_mended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
