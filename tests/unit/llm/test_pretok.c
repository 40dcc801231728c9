/* Pre-tokenizers against the published regular expressions, as an engine of its own ran them on
 * difficult texts: pretok_golden.py. */
#include "unit.h"

#include "llm/tokenizer/pretok.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 64 };

struct golden {
    const char *rule, *text;
    size_t bytes;
    size_t words[WORDS_MAX]; /* the bytes of each; 0 ends them */
};

/* clang-format off */
static const struct golden goldens[] = {
#include "pretok_golden.inc"
};
/* clang-format on */

struct found {
    size_t words[WORDS_MAX + 1];
    size_t count;
};

static int note(void *user, const char *text, size_t bytes)
{
    struct found *found = user;
    (void)text;
    assert_in_range(found->count, 0, WORDS_MAX - 1);
    found->words[found->count++] = bytes;
    return 0;
}

static void texts_are_cut_as_the_expressions_say(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
        const struct golden *golden = &goldens[i];
        const struct llm_pretok *rule = llm_pretok_find(golden->rule, strlen(golden->rule));
        struct found found = {0};
        assert_non_null(rule);
        if (golden->bytes > 0)
            assert_int_equal(llm_pretok_split(rule, golden->text, golden->bytes, note, &found), 0);
        for (size_t w = 0; w <= found.count; w++) {
            if (found.words[w] == golden->words[w])
                continue;
            print_error("%s: '%s': word %zu has %zu bytes, not %zu\n", golden->rule, golden->text,
                        w, found.words[w], golden->words[w]);
            wrong++;
            break;
        }
    }
    assert_int_equal(wrong, 0);
}

/* A name that a file may give is checked above, or is another name of a rule that is. */
static void every_name_is_checked(void **state)
{
    (void)state;
    const char *name;
    for (size_t i = 0; (name = llm_pretok_name(i)); i++) {
        const struct llm_pretok *rule = llm_pretok_find(name, strlen(name));
        bool checked = false;
        for (size_t g = 0; g < sizeof goldens / sizeof goldens[0] && !checked; g++) {
            const char *other = goldens[g].rule;
            checked = llm_pretok_find(other, strlen(other))->stages == rule->stages;
        }
        if (!checked)
            fail_msg("pretok_golden.py has no expression for %s", name);
    }
}

static int count_bytes(void *user, const char *text, size_t bytes)
{
    (void)text;
    *(size_t *)user += bytes;
    return 0;
}

/* Runs that no rule reads again from each of their characters: else this takes hours. */
static void a_long_run_is_read_a_few_times(void **state)
{
    (void)state;
    enum { BYTES = 1 << 18 };
    static const char fills[] = {' ', '\n', '1'};
    char *text = malloc(BYTES + 1);
    for (size_t f = 0; f < sizeof fills; f++) {
        memset(text, fills[f], BYTES);
        text[BYTES] = fills[f] == '1' ? 'x' : '5';
        const char *name;
        for (size_t i = 0; (name = llm_pretok_name(i)); i++) {
            size_t bytes = 0;
            const struct llm_pretok *rule = llm_pretok_find(name, strlen(name));
            assert_int_equal(llm_pretok_split(rule, text, BYTES + 1, count_bytes, &bytes), 0);
            assert_int_equal(bytes, BYTES + 1);
        }
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_cut_as_the_expressions_say),
        cmocka_unit_test(every_name_is_checked),
        cmocka_unit_test(a_long_run_is_read_a_few_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
