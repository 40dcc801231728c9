/* Messages to a prompt: what is checked, how templates are served, and one bos. */
#include "unit.h"

#include "byte_vocab.h"
#include "failing.h"
#include "llm/chat/chat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static char why[LLM_WHY_CHARS];

static struct llm_chat *make(const char *text)
{
    struct llm_chat *chat;
    if (llm_chat_create_text(text, strlen(text), "<s>", "</s>", &chat, why))
        fail_msg("%s", why);
    return chat;
}

/* The prompt of messages and tools given as JSON; NULL and *err after a refusal. */
static char *prompt(const struct llm_chat *chat, const char *messages, const char *tools, int *err)
{
    struct llm_chat_request request = {.open = true, .time_now = 1753500000};
    char *out = NULL;
    size_t bytes;
    json_t *m = json_loads(messages, JSON_DECODE_ANY, NULL);
    json_t *t = tools ? json_loads(tools, JSON_DECODE_ANY, NULL) : NULL;
    request.messages = m;
    request.tools = t;
    *err = llm_chat_prompt(chat, &request, &out, &bytes, why);
    json_decref(m);
    json_decref(t);
    return *err ? NULL : out;
}

static void expect(const char *text, const char *messages, const char *tools, const char *wanted)
{
    struct llm_chat *chat = make(text);
    int err;
    char *out = prompt(chat, messages, tools, &err);
    if (err)
        fail_msg("%s", why);
    assert_string_equal(out, wanted);
    free(out);
    llm_chat_destroy(chat);
}

static void a_wrong_field_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *messages, *tools, *says;
    } cases[] = {
        {"{}", NULL, "messages: an array"},
        {"[]", NULL, "messages: an array of at least one"},
        {"[1]", NULL, "messages[0]: an object"},
        {"[{\"content\": \"x\"}]", NULL, "messages[0].role: a string"},
        {"[{\"role\": \"king\", \"content\": \"x\"}]", NULL, "messages[0].role: \"king\""},
        {"[{\"role\": \"user\"}]", NULL, "messages[0].content: a string"},
        {"[{\"role\": \"user\", \"content\": \"\"}, {\"role\": \"tool\", \"content\": 1}]", NULL,
         "messages[1].content"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]", NULL,
         "messages[0].content[0].type: \"image_url\" is not supported"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]", NULL,
         "messages[0].content[0].text"},
        {"[{\"role\": \"user\", \"content\": \"\", \"tool_calls\": []}]", NULL,
         "messages[0].tool_calls: only an assistant"},
        {"[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\"}}]}]", NULL,
         "messages[0].tool_calls[0].function.arguments"},
        {"[{\"role\": \"user\", \"content\": \"\"}]", "{}", "tools: an array"},
        {"[{\"role\": \"user\", \"content\": \"\"}]", "[{\"type\": \"code\"}]", "tools[0].type"},
        {"[{\"role\": \"user\", \"content\": \"\"}]", "[{\"type\": \"function\"}]",
         "tools[0].function.name"},
    };
    struct llm_chat *chat = make("{{ messages }}");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int err;
        assert_null(prompt(chat, cases[i].messages, cases[i].tools, &err));
        assert_int_equal(err, -EINVAL);
        if (!strstr(why, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", why, cases[i].says);
    }
    llm_chat_destroy(chat);
}

static void parts_of_text_are_joined(void **state)
{
    (void)state;
    expect("{{ messages[0].content }}",
           "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
           "\"text\", \"text\": \"b\"}]}]",
           NULL, "a\nb");
}

static const char calls[] =
    "[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"1\", \"type\": "
    "\"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": [1]}\"}}]}]";

static void arguments_come_as_the_template_takes_them(void **state)
{
    (void)state;
    expect("{{ messages[0].tool_calls[0].function.arguments | tojson }}", calls, NULL,
           "{\"a\": [1]}");
    expect("{{ 'args: ' + messages[0].tool_calls[0].function.arguments }}", calls, NULL,
           "args: {\"a\": [1]}");
    expect("{{ messages[0].content is none }}", calls, NULL, "True");
    expect("{{ '[' + messages[0].content + ']' }}", calls, NULL, "[]");
}

static void a_developer_is_the_system_where_the_template_knows_none(void **state)
{
    (void)state;
    static const char messages[] = "[{\"role\": \"developer\", \"content\": \"\"}]";
    expect("{{ messages[0].role }}", messages, NULL, "system");
    expect("{# developer #}{{ messages[0].role }}", messages, NULL, "developer");
}

static void the_template_gets_its_variables(void **state)
{
    (void)state;
    static const char hello[] = "[{\"role\": \"user\", \"content\": \"x\"}]";
    expect("{{ bos_token ~ eos_token ~ add_generation_prompt ~ strftime_now('%Y') }}", hello, NULL,
           "<s></s>True2025");
    expect("{{ tools is defined }}", hello, "[]", "False");
    expect("{{ tools[0].function.name }}", hello,
           "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]", "f");
}

static void a_refusal_of_the_template_is_told(void **state)
{
    (void)state;
    int err;
    struct llm_chat *chat = make("{{ raise_exception('no calls, please') }}");
    assert_null(prompt(chat, calls, NULL, &err));
    assert_int_equal(err, -EINVAL);
    assert_non_null(strstr(why, "no calls, please"));
    llm_chat_destroy(chat);
}

static void a_file_brings_its_templates(void **state)
{
    (void)state;
    static const char hello[] = "[{\"role\": \"user\", \"content\": \"x\"}]";
    static const char tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]";
    static const char *const keys[] = {"tokenizer.chat_template", "{{ bos_token }}plain",
                                       "tokenizer.chat_template.tool_use",
                                       "<tool_call>{{ eos_token }}"};
    struct byte_vocab made = byte_vocab_make(true, NULL, 0, keys, 2);
    struct llm_chat *chat;
    int err;
    assert_int_equal(llm_chat_create_gguf(&made.gguf, made.vocab, false, &chat, why), 0);
    assert_false(llm_chat_is_fallback(chat));
    assert_int_equal(llm_chat_tools_form(chat), LLM_TOOLS_HERMES);
    char *out = prompt(chat, hello, NULL, &err);
    assert_string_equal(out, "<s>plain");
    free(out);
    out = prompt(chat, hello, tools, &err);
    assert_string_equal(out, "<tool_call></s>");
    free(out);
    llm_chat_destroy(chat);
    byte_vocab_drop(&made);
}

static void a_bad_template_for_tools_refuses_only_tools(void **state)
{
    (void)state;
    static const char hello[] = "[{\"role\": \"user\", \"content\": \"x\"}]";
    static const char tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]";
    static const char *const keys[] = {"tokenizer.chat_template", "plain",
                                       "tokenizer.chat_template.tool_use", "{{ unfinished"};
    struct byte_vocab made = byte_vocab_make(true, NULL, 0, keys, 2);
    struct llm_chat *chat;
    int err;
    assert_int_equal(llm_chat_create_gguf(&made.gguf, made.vocab, false, &chat, why), 0);
    char *out = prompt(chat, hello, NULL, &err);
    assert_string_equal(out, "plain");
    free(out);
    assert_null(prompt(chat, hello, tools, &err));
    assert_int_equal(err, -EINVAL);
    assert_non_null(strstr(why, "tools: the model's template"));
    llm_chat_destroy(chat);
    byte_vocab_drop(&made);
}

static void marks_of_reasoning_are_told_from_the_template(void **state)
{
    (void)state;
    static const struct {
        const char *template, *open, *ends_open, *ends_closed;
    } cases[] = {{"{{ '</think>' }}", "<think>", "a<think>\n", "<think>\n\n</think>\n\n"},
                 {"[THINK][/THINK]", "[THINK]", "[THINK]", "THINK]"},
                 {"<|END_THINKING|>", "<|START_THINKING|>", "<|START_THINKING|> ", ""},
                 {"<think>", NULL, NULL, NULL}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct llm_chat *chat;
        const char *text = cases[i].template;
        assert_int_equal(llm_chat_create_text(text, strlen(text), "", "", &chat, why), 0);
        const struct llm_chat_marks *marks = llm_chat_reasoning(chat);
        assert_int_equal(marks != NULL, cases[i].open != NULL);
        if (marks) {
            assert_string_equal(marks->open, cases[i].open);
            text = cases[i].ends_open;
            assert_true(llm_chat_ends_open(marks, text, strlen(text)));
            text = cases[i].ends_closed;
            assert_false(llm_chat_ends_open(marks, text, strlen(text)));
        }
        llm_chat_destroy(chat);
    }
}

static void reasoning_goes_back_to_a_template_that_calls_it_thinking(void **state)
{
    (void)state;
    static const char text[] = "{% for m in messages %}[{{ m.thinking }}]{% endfor %}";
    expect(text,
           "[{\"role\": \"user\", \"content\": \"a\"},"
           " {\"role\": \"assistant\", \"content\": null, \"reasoning_content\": \"b\"},"
           " {\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": "
           "\"c\"}], \"reasoning_content\": \"d\"}]",
           NULL, "[][b][]");
}

static void chatml_stands_in_when_asked(void **state)
{
    (void)state;
    struct byte_vocab made = byte_vocab_make(true, NULL, 0, NULL, 0);
    struct llm_chat *chat;
    int err;
    assert_int_equal(llm_chat_create_gguf(&made.gguf, made.vocab, false, &chat, why), -ENOENT);
    assert_non_null(strstr(why, "tokenizer.chat_template"));
    assert_int_equal(llm_chat_create_gguf(&made.gguf, made.vocab, true, &chat, why), 0);
    assert_true(llm_chat_is_fallback(chat));
    char *out = prompt(
        chat, "[{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\"}]", NULL, &err);
    assert_string_equal(out, "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
                             "<|im_start|>assistant\n");
    free(out);
    llm_chat_destroy(chat);
    byte_vocab_drop(&made);
}

static void a_prompt_begins_with_one_bos(void **state)
{
    (void)state;
    struct byte_vocab made = byte_vocab_make(true, NULL, 0, NULL, 0);
    uint32_t tokens[64];
    static const char *const prompts[] = {"<s>ab", "ab"};
    for (int i = 0; i < 2; i++) {
        int64_t n = llm_chat_encode(made.vocab, prompts[i], strlen(prompts[i]), tokens, 64);
        assert_true(n > 2);
        assert_int_equal(tokens[0], 1);
        assert_int_not_equal(tokens[1], 1);
        assert_int_equal(tokens[n - 1], 3 + 'b');
        uint32_t exact[64];
        assert_int_equal(llm_chat_encode(made.vocab, prompts[i], strlen(prompts[i]), exact, n), n);
        assert_memory_equal(exact, tokens, n * sizeof *exact);
        /* A count is told without room, too. */
        assert_int_equal(llm_chat_encode(made.vocab, prompts[i], strlen(prompts[i]), NULL, 0), n);
    }
    byte_vocab_drop(&made);
    made = byte_vocab_make(false, NULL, 0, NULL, 0);
    llm_chat_encode(made.vocab, "ab", 2, tokens, 64);
    assert_int_not_equal(tokens[0], 1);
    byte_vocab_drop(&made);
}

/* The prompt of a template's text and of what the answer begins with. */
static void expect_begun(const char *text, const char *answer, const char *wanted, size_t length)
{
    json_t *messages = json_loads("[{\"role\": \"user\", \"content\": \"x\"}]", 0, NULL);
    struct llm_chat_request request = {.messages = messages, .open = true, .answer = answer};
    struct llm_chat *chat = make(text);
    char *out;
    size_t bytes;
    assert_int_equal(llm_chat_prompt(chat, &request, &out, &bytes, why), 0);
    assert_int_equal(bytes, length);
    assert_memory_equal(out, wanted, bytes + 1);
    free(out);
    llm_chat_destroy(chat);
    json_decref(messages);
}

static void an_answer_that_is_begun_follows_the_whole_prompt(void **state)
{
    (void)state;
    expect_begun("{{ messages[0].content }}", "so", "xso", 3);
    expect_begun("a{{ '\\0' }}b", "so", "a\0bso", 5);
}

static void an_answer_that_is_begun_is_content(void **state)
{
    (void)state;
    static const struct {
        const char *template, *wanted;
    } cases[] = {
        {"<a>\n{# </think> #}", "<a>\nso"},
        {"<a><think>{# </think> #}", "<a><think></think>so"},
        {"<a>\n{{ '<think>\\n' }}{# </think> #}", "<a>\n<think>\n\n</think>\n\nso"},
        {"<a>\n{{ '<think>\\n\\n</think>\\n\\n' }}", "<a>\n<think>\n\n</think>\n\nso"},
        {"[THINK]{# [/THINK] #}", "[THINK][/THINK]so"},
        {"<|start|>assistant{# <|channel|>analysis #}",
         "<|start|>assistant<|channel|>final<|message|>so"},
        {"<|begin|>assistant{# <|tool_call:begin|> #}", "<|begin|>assistant<|content|>so"},
        {"<|begin|>assistant<|think|>{# <|tool_call:begin|> #}",
         "<|begin|>assistant<|think|><|end|><|begin|>assistant<|content|>so"},
        {"<|open|>think<|sep|>",
         "<|open|>think<|sep|><|close|>think<|sep|><|open|>response<|sep|>so"},
        {"<|open|>response<|sep|>", "<|open|>response<|sep|>so"},
        {"{# >>>${recipient} #}>>>", ">>>all\nso"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect_begun(cases[i].template, "so", cases[i].wanted, strlen(cases[i].wanted));
}

static void running_out_of_memory_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    json_t *messages = json_loads(calls, 0, NULL);
    static const char text[] = "{{ messages[0].tool_calls[0].function.arguments | tojson }}";
    int err = -ENOMEM;
    for (long granted = 0; err; granted++) {
        struct llm_chat_request request = {.messages = messages, .answer = "so"};
        struct llm_chat *chat = NULL;
        char *out = NULL;
        size_t bytes;
        allocations_left = granted;
        counting = true;
        err = llm_chat_create_text(text, sizeof text - 1, "", "", &chat, why);
        if (!err)
            err = llm_chat_prompt(chat, &request, &out, &bytes, why);
        counting = false;
        assert_true(err == 0 || err == -ENOMEM);
        free(out);
        llm_chat_destroy(chat);
        assert_true(granted < 10000);
    }
    json_decref(messages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_field_is_named),
        cmocka_unit_test(parts_of_text_are_joined),
        cmocka_unit_test(arguments_come_as_the_template_takes_them),
        cmocka_unit_test(a_developer_is_the_system_where_the_template_knows_none),
        cmocka_unit_test(the_template_gets_its_variables),
        cmocka_unit_test(a_refusal_of_the_template_is_told),
        cmocka_unit_test(a_file_brings_its_templates),
        cmocka_unit_test(chatml_stands_in_when_asked),
        cmocka_unit_test(a_bad_template_for_tools_refuses_only_tools),
        cmocka_unit_test(marks_of_reasoning_are_told_from_the_template),
        cmocka_unit_test(reasoning_goes_back_to_a_template_that_calls_it_thinking),
        cmocka_unit_test(a_prompt_begins_with_one_bos),
        cmocka_unit_test(an_answer_that_is_begun_follows_the_whole_prompt),
        cmocka_unit_test(an_answer_that_is_begun_is_content),
        cmocka_unit_test(running_out_of_memory_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
