/* Chat templates: forms that the other test (jinja_test.py) cannot show: errors, bounds, memory. */
#include "unit.h"

#include "failing.h"
#include "llm/chat/template.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static char why[LLM_WHY_CHARS];

/* Renders with variables as JSON text; the result is to be freed, NULL after an error. */
static char *render(const char *text, const char *variables, int *err)
{
    struct llm_template *t;
    char *out = NULL;
    size_t bytes;
    *err = llm_template_parse(text, strlen(text), &t, why);
    if (*err)
        return NULL;
    json_t *json = json_loads(variables, 0, NULL);
    *err = json ? llm_template_render(t, json, &out, &bytes, why) : -ENOMEM;
    json_decref(json);
    llm_template_free(t);
    if (!*err)
        assert_int_equal(strlen(out), bytes);
    return *err ? NULL : out;
}

static void expect(const char *text, const char *variables, const char *wanted)
{
    int err;
    char *out = render(text, variables, &err);
    if (err)
        fail_msg("%s", why);
    assert_string_equal(out, wanted);
    free(out);
}

static void expect_error(const char *text, int wanted, const char *says)
{
    int err;
    char *out = render(text, "{\"none\": null, \"list\": [1, 2]}", &err);
    free(out);
    assert_int_equal(err, wanted);
    if (!strstr(why, says))
        fail_msg("\"%s\" does not say \"%s\"", why, says);
}

static const char chatml[] = "{%- for m in messages %}\n"
                             "<|im_start|>{{ m.role }}\n{{ m['content'] | trim }}<|im_end|>\n"
                             "{%- endfor %}\n"
                             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
static const char talk[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" Be brief. \"},"
    "{\"role\": \"user\", \"content\": \"H\\u00ef\"}], \"add_generation_prompt\": true}";

static void a_conversation_becomes_a_prompt(void **state)
{
    (void)state;
    expect(chatml, talk,
           "<|im_start|>system\nBe brief.<|im_end|>"
           "<|im_start|>user\nH\u00ef<|im_end|><|im_start|>assistant\n");
}

static void time_comes_from_the_caller(void **state)
{
    (void)state;
    expect("{{ strftime_now('%d %b %Y') }}", "{\"time_now\": 1753500000}", "26 Jul 2025");
    expect("{{ strftime_now is defined }}", "{}", "False");
}

static void errors_name_line_and_cause(void **state)
{
    (void)state;
    expect_error("a\n{% if %}", -EINVAL, "line 2");
    expect_error("{% if x %}", -EINVAL, "elif else endif");
    expect_error("{{ x", -EINVAL, "not ended");
    expect_error("{{ 'a }}", -EINVAL, "not ended");
    expect_error("{{ (1 }}", -EINVAL, "bracket");
    expect_error("{{ 1) }}", -EINVAL, "bracket");
    expect_error("{% endif %}", -EINVAL, "name of a tag");
    expect_error("{% break %}", -EINVAL, "outside of a loop");
    expect_error("\n\n{{ raise_exception('roles must alternate') }}", -EINVAL,
                 "line 3 of the chat template: roles must alternate");
    expect_error("{{ x.y }}", -EINVAL, "'x' is undefined");
    expect_error("{{ 'a' + 1 }}", -EINVAL, "unsupported operand");
    expect_error("{{ 1 // 0 }}", -EINVAL, "division by zero");
    expect_error("{% for x in none %}{% endfor %}", -EINVAL, "not iterable");
    expect_error("\xff", -EINVAL, "UTF-8");
}

static void what_is_not_here_is_refused_by_name(void **state)
{
    (void)state;
    expect_error("{% include 'x' %}", -EOPNOTSUPP, "'include'");
    expect_error("{{ list | groupby('x') }}", -EOPNOTSUPP, "'groupby'");
    expect_error("{{ 'x'.encode() }}", -EOPNOTSUPP, "str.encode()");
    expect_error("{{ '%s' % 1 }}", -EOPNOTSUPP, "text % values");
    expect_error("{{ '%s' | format(1) }}", -EOPNOTSUPP, "'format'");
    expect_error("{{ '{:>3}'.format(1) }}", -EOPNOTSUPP, "in a field of format()");
    expect_error("{{ '{1}'.format(1) }}", -EINVAL, "index 1");
    expect_error("{{ '{a}'.format(1) }}", -EINVAL, "no value for 'a'");
    expect_error("{% for x in list recursive %}{% endfor %}", -EOPNOTSUPP, "recursive");
    expect_error("{{ 2 ** 64 }}", -EOPNOTSUPP, "64 bits");
    expect_error("{{ 9223372036854775807 + 1 }}", -EOPNOTSUPP, "64 bits");
}

static void repeat(char *to, const char *what, int times)
{
    *to = 0;
    for (size_t n = strlen(what); times-- > 0; to += n)
        memcpy(to, what, n + 1);
}

static void a_template_is_bounded(void **state)
{
    (void)state;
    char *text = malloc(LLM_TEMPLATE_BYTES_MAX + 16);
    expect_error("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                 -E2BIG, "256 MiB");
    expect_error("{% set s = 'x' * 8000000 %}{% for a in range(999) %}{{ 'y' in s }}{% endfor %}",
                 -E2BIG, "steps");
    static const char *const long_compares[] = {"s == t",
                                                "s < t",
                                                "s is sameas t",
                                                "s in [t]",
                                                "s.startswith(t)",
                                                "s.endswith(t)",
                                                "d[t]",
                                                "s.removeprefix(t)",
                                                "s.rfind(u)",
                                                "s.rsplit(u)",
                                                "s.rpartition(u)",
                                                "s.count('y')",
                                                "s.partition('y')",
                                                "s.strip('y' * 1000 + 'x')"};
    for (size_t i = 0; i < sizeof long_compares / sizeof *long_compares; i++) {
        snprintf(text, 500,
                 "{%% set s = 'x' * 8000000 %%}{%% set t = 'x' * 8000000 %%}{%% set d = {s: 1} %%}"
                 "{%% set u = 'x' * 4000000 + 'y' %%}"
                 "{%% for a in range(999) %%}{%% set b = %s %%}{%% endfor %%}",
                 long_compares[i]);
        expect_error(text, -E2BIG, "steps");
    }
    expect_error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", -E2BIG, "deeper");
    expect_error("{% set ns = namespace(x='x') %}{% for a in range(40) %}{% set ns.x = ns.x + ns.x "
                 "%}{% endfor %}",
                 -E2BIG, "longer than");
    expect_error("{{ 'x' * 99999999 }}", -E2BIG, "longer than");
    expect_error("{{ range(100001) }}", -E2BIG, "range of more");
    expect_error("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", -E2BIG, "deeper");
    expect_error("{% set l = [] %}{% for a in range(99999) %}{% for b in range(99999) %}"
                 "{% set _ = l.append('x' * 1000) %}{% endfor %}{% endfor %}",
                 -E2BIG, "chat template");
    repeat(text, "{% if 1 %}", 1000);
    expect_error(text, -E2BIG, "nested");
    memcpy(text, "{{ ", 4);
    repeat(text + 3, "- ", 1000);
    memcpy(text + strlen(text), "1 }}", 5);
    expect_error(text, -E2BIG, "nested");
    memset(text, 'x', LLM_TEMPLATE_BYTES_MAX + 1);
    text[LLM_TEMPLATE_BYTES_MAX + 1] = 0;
    expect_error(text, -E2BIG, "bytes");
    free(text);
}

static void running_out_of_memory_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    struct llm_template *t;
    json_t *json = json_loads(talk, 0, NULL);
    int err = -ENOMEM;
    for (long granted = 0; err; granted++) {
        char *out = NULL;
        size_t bytes;
        allocations_left = granted;
        counting = true;
        err = llm_template_parse(chatml, sizeof chatml - 1, &t, why);
        if (!err) {
            err = llm_template_render(t, json, &out, &bytes, why);
            llm_template_free(t);
        }
        counting = false;
        assert_true(err == 0 || err == -ENOMEM);
        free(out);
        assert_true(granted < 10000);
    }
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_becomes_a_prompt),
        cmocka_unit_test(time_comes_from_the_caller),
        cmocka_unit_test(errors_name_line_and_cause),
        cmocka_unit_test(what_is_not_here_is_refused_by_name),
        cmocka_unit_test(a_template_is_bounded),
        cmocka_unit_test(running_out_of_memory_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
