/* Answers of the Messages API: blocks in their order, and calls whose arguments are no object. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "serve/http/impl.h"

static struct http_model model = {.name = "m"};

/* A request with one choice, which calls a tool as Hermes' models do. */
static struct http_exchange *begin(void)
{
    struct http_exchange *x = calloc(1, sizeof *x);
    assert_non_null(x);
    x->choices = calloc(1, sizeof *x->choices);
    assert_non_null(x->choices);
    x->model = &model;
    x->choice_count = 1;
    x->choices->exchange = x;
    wire_enc_init(&x->out, HTTP_CHUNKS_BYTES_MAX);
    assert_int_equal(llm_tools_create(LLM_TOOLS_HERMES, NULL, &x->choices->tools), 0);
    return x;
}

static void end(struct http_exchange *x)
{
    llm_tools_destroy(x->choices->tools);
    http_text_fini(&x->choices->reasoning);
    http_text_fini(&x->choices->content);
    wire_enc_fini(&x->out);
    free(x->choices);
    free(x);
}

static void call(struct http_exchange *x, const char *text)
{
    const char *content;
    size_t bytes;
    assert_int_equal(llm_tools_feed(x->choices->tools, text, strlen(text), &content, &bytes), 0);
    assert_int_equal(bytes, 0);
}

/* The events so far, as text. */
static char *events(struct http_exchange *x)
{
    http_messages_events(x);
    size_t bytes = wire_enc_len(&x->out);
    char *text = calloc(1, bytes + 1);
    assert_non_null(text);
    memcpy(text, wire_enc_data(&x->out), bytes);
    return text;
}

static void the_rest_of_a_call_precedes_later_reasoning(void **state)
{
    (void)state;
    static const struct http_stops none;
    struct http_exchange *x = begin();
    call(x, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"");
    free(events(x));
    call(x, ": 1}}</tool_call>");
    assert_int_equal(http_text_add(&x->choices->reasoning, &none, "Hm.", 3), 0);
    char *text = events(x);
    const char *use = strstr(text, "\"tool_use\""), *rest = strstr(text, "\": 1}\""),
               *stop = strstr(text, "event: content_block_stop"),
               *thinking = strstr(text, "\"thinking\"");
    assert_true(use && rest && stop && thinking);
    assert_true(use < rest && rest < stop && stop < thinking);
    free(text);
    end(x);
}

static void arguments_become_an_input_or_no_call(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *input; /* NULL: it is no call */
    } cases[] = {
        {"{}", "{}"},
        {"{\"id\": 9223372036854775807}", "{\"id\":9223372036854775807}"},
        {"{\"id\": 18446744073709551615}", "{\"id\":1.8446744073709552e19}"},
        {"{\"a\": \"\\u0000\"}", "{\"a\":\"\\u0000\"}"},
        {"{\"a\": 1e999}", NULL},
        {"{a: 1}", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_exchange *x = begin();
        char text[256];
        snprintf(text, sizeof text, "<tool_call>{\"name\": \"f\", \"arguments\": %s}</tool_call>",
                 cases[i].arguments);
        call(x, text);
        x->choices->finish = HTTP_FINISH_STOP;
        json_t *answer = http_messages_whole(x), *content = json_object_get(answer, "content");
        assert_string_equal(json_string_value(json_object_get(answer, "stop_reason")),
                            cases[i].input ? "tool_use" : "end_turn");
        assert_int_equal(json_array_size(content), cases[i].input ? 1 : 0);
        char *input = json_dumps(json_object_get(json_array_get(content, 0), "input"),
                                 JSON_COMPACT | JSON_REAL_PRECISION(17));
        if (cases[i].input)
            assert_string_equal(input, cases[i].input);
        free(input);
        json_decref(answer);
        end(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rest_of_a_call_precedes_later_reasoning),
        cmocka_unit_test(arguments_become_an_input_or_no_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
