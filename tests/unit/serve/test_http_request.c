#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "serve/http/request.h"

static void parse(const char *body, enum http_api api, struct http_request *r)
{
    struct http_error why;
    int rc = http_request_parse(body, strlen(body), api, r, &why);
    if (rc)
        print_message("%s: %s\n", body, why.message);
    assert_int_equal(rc, 0);
}

/* Refused with this status, for this field. */
static void refused(const char *body, enum http_api api, const char *param)
{
    struct http_request r;
    struct http_error why;
    if (http_request_parse(body, strlen(body), api, &r, &why) == 0) {
        print_message("taken: %s\n", body);
        fail();
    }
    assert_int_equal(why.status, 400);
    assert_string_equal(why.param, param);
    assert_true(param[0] == '\0' || strstr(why.message, param) != NULL);
}

static void defaults_are_openais(void **state)
{
    (void)state;
    struct http_request r;
    parse("{\"prompt\": \"And\", \"temperature\": null, \"no such field\": {}}", HTTP_COMPLETIONS,
          &r);
    assert_int_equal(r.prompt_count, 1);
    assert_string_equal(r.prompts[0].text, "And");
    assert_int_equal(r.max_tokens, 16);
    assert_int_equal(r.n, 1);
    assert_true(r.sampling.temperature == 1 && r.sampling.top_p == 1);
    assert_false(r.stream || r.has_seed || r.logprobs || r.echo);
    assert_null(r.model);
    http_request_fini(&r);
}

#define FOUR "\"a\", \"b\", \"c\", \"d\""
#define SIXTEEN FOUR ", " FOUR ", " FOUR ", " FOUR

static void a_body_may_begin_with_a_byte_order_mark(void **state)
{
    (void)state;
    struct http_request r;
    parse("\xef\xbb\xbf{\"prompt\": \"And\", \"stop\": [" SIXTEEN "]}", HTTP_COMPLETIONS, &r);
    assert_string_equal(r.prompts[0].text, "And");
    assert_int_equal(r.stops.count, 16);
    http_request_fini(&r);
}

static void every_field_is_read(void **state)
{
    (void)state;
    struct http_request r;
    parse("{\"model\": \"m\", \"prompt\": [[1, 2], [3]], \"max_tokens\": 5, \"temperature\": 0.5,"
          "\"top_p\": 0.25, \"top_k\": 40, \"min_p\": 0.125, \"presence_penalty\": 1,"
          "\"frequency_penalty\": -1, \"repetition_penalty\": 1.5, \"logit_bias\": {\"7\": -100},"
          "\"stop\": [\"a\", \"bc\"], \"seed\": -3, \"n\": 2, \"logprobs\": 3, \"stream\": true,"
          "\"stream_options\": {\"include_usage\": true}, \"user\": \"me\"}",
          HTTP_COMPLETIONS, &r);
    assert_string_equal(r.model, "m");
    assert_int_equal(r.prompt_count, 2);
    assert_int_equal(r.prompts[0].token_count, 2);
    assert_int_equal(r.prompts[0].tokens[1], 2);
    assert_int_equal(r.prompts[1].tokens[0], 3);
    assert_int_equal(r.max_tokens, 5);
    assert_true(r.sampling.temperature == 0.5f && r.sampling.top_p == 0.25f);
    assert_int_equal(r.sampling.top_k, 40);
    assert_true(r.sampling.min_p == 0.125f && r.sampling.presence == 1.0f);
    assert_true(r.sampling.frequency == -1.0f && r.sampling.repetition == 1.5f);
    assert_int_equal(r.sampling.bias_count, 1);
    assert_int_equal(r.sampling.biases[0].token, 7);
    assert_true(r.sampling.biases[0].bias == -100.0f);
    assert_int_equal(r.stops.count, 2);
    assert_int_equal(r.stops.items[1].len, 2);
    assert_true(r.has_seed && r.sampling.seed == (uint64_t)-3);
    assert_int_equal(r.n, 2);
    assert_true(r.logprobs && r.stream && r.include_usage);
    assert_int_equal(r.top_logprobs, 3);
    http_request_fini(&r);
}

static void messages_are_read(void **state)
{
    (void)state;
    struct http_request r;
    parse(
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"},"
        "{\"type\": \"text\", \"text\": \"b\"}], \"name\": \"x\"},"
        "{\"role\": \"assistant\", \"content\": null}], \"max_completion_tokens\": 9,"
        "\"logprobs\": true, \"top_logprobs\": 20, \"response_format\": {\"type\": \"text\"}}",
        HTTP_CHAT, &r);
    assert_int_equal(json_array_size(r.messages), 2);
    assert_int_equal(r.max_tokens, 9);
    assert_int_equal(r.top_logprobs, 20);
    http_request_fini(&r);
}

static void bad_fields_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param;
    } cases[] = {
        {"", ""},
        {"[]", ""},
        {"{\"prompt\": \"a\"", ""},
        {"{\"prompt\": \"\\u0000\"}", ""},
        {"{}", "prompt"},
        {"{\"prompt\": 3}", "prompt"},
        {"{\"prompt\": [1, \"a\"]}", "prompt"},
        {"{\"prompt\": [\"a\", 1]}", "prompt"},
        {"{\"prompt\": [-1]}", "prompt"},
        {"{\"prompt\": \"a\", \"model\": 3}", "model"},
        {"{\"prompt\": \"a\", \"max_tokens\": 0}", "max_tokens"},
        {"{\"prompt\": \"a\", \"max_tokens\": 1.5}", "max_tokens"},
        {"{\"prompt\": \"a\", \"max_tokens\": \"3\"}", "max_tokens"},
        {"{\"prompt\": \"a\", \"temperature\": -0.1}", "temperature"},
        {"{\"prompt\": \"a\", \"temperature\": \"hot\"}", "temperature"},
        {"{\"prompt\": \"a\", \"temperature\": 2.5}", "temperature"},
        {"{\"prompt\": \"a\", \"top_p\": 1.01}", "top_p"},
        {"{\"prompt\": \"a\", \"min_p\": 2}", "min_p"},
        {"{\"prompt\": \"a\", \"top_k\": -2}", "top_k"},
        {"{\"prompt\": \"a\", \"presence_penalty\": 3}", "presence_penalty"},
        {"{\"prompt\": \"a\", \"frequency_penalty\": -3}", "frequency_penalty"},
        {"{\"prompt\": \"a\", \"repetition_penalty\": 0}", "repetition_penalty"},
        {"{\"prompt\": \"a\", \"logit_bias\": {\"x\": 1}}", "logit_bias"},
        {"{\"prompt\": \"a\", \"logit_bias\": {\"1\": 101}}", "logit_bias"},
        {"{\"prompt\": \"a\", \"logit_bias\": []}", "logit_bias"},
        {"{\"prompt\": \"a\", \"stop\": \"\"}", "stop"},
        {"{\"prompt\": \"a\", \"stop\": [" SIXTEEN ", \"q\"]}", "stop"},
        {"{\"prompt\": \"a\", \"seed\": 0.5}", "seed"},
        {"{\"prompt\": \"a\", \"n\": 0}", "n"},
        {"{\"prompt\": [\"a\", \"b\"], \"n\": 33}", "n"},
        {"{\"prompt\": \"a\", \"best_of\": 2}", "best_of"},
        {"{\"prompt\": \"a\", \"logprobs\": 21}", "logprobs"},
        {"{\"prompt\": \"a\", \"echo\": 1}", "echo"},
        {"{\"prompt\": \"a\", \"echo\": false, \"max_tokens\": 0}", "max_tokens"},
        {"{\"prompt\": \"a\", \"suffix\": \"b\"}", "suffix"},
        {"{\"prompt\": \"a\", \"stream\": \"yes\"}", "stream"},
        {"{\"prompt\": \"a\", \"stream_options\": {}}", "stream_options"},
        {"{\"prompt\": \"a\", \"response_format\": {\"type\": \"xml\"}}", "response_format"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        refused(cases[i].body, HTTP_COMPLETIONS, cases[i].param);
    refused("{}", HTTP_CHAT, "messages");
    refused("{\"messages\": []}", HTTP_CHAT, "messages");
    refused("{\"messages\": [{\"content\": \"a\"}]}", HTTP_CHAT, "messages");
    refused("{\"messages\": [{\"role\": \"user\", \"content\": 3}]}", HTTP_CHAT, "messages");
    refused("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
            HTTP_CHAT, "messages");
    refused("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"top_logprobs\": 1}",
            HTTP_CHAT, "top_logprobs");
    refused("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{}]}",
            HTTP_CHAT, "tools");
    refused("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tool_choice\": "
            "\"required\"}",
            HTTP_CHAT, "tools");
    refused("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tool_choice\": {}}",
            HTTP_CHAT, "tool_choice");
    refused("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"grammar\": \"root ::= "
            "\\\"a\\\"\", \"tool_choice\": \"required\", \"tools\": [{\"function\": {\"name\": "
            "\"f\"}}]}",
            HTTP_CHAT, "grammar");
    refused("{\"prompt\": \"a\", \"grammar\": \"root ::= (\"}", HTTP_COMPLETIONS, "grammar");
    refused("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"functions\": [{}]}",
            HTTP_CHAT, "functions");
    refused("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"function_call\": \"f\"}",
            HTTP_CHAT, "function_call");
    refused("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"modalities\": "
            "[\"text\", \"audio\"]}",
            HTTP_CHAT, "modalities");
    refused("{\"input\": \"\"}", HTTP_EMBEDDINGS, "input");
    refused("{\"input\": [\"a\", \"\"]}", HTTP_EMBEDDINGS, "input");
}

#define TOOL(name) "{\"type\": \"function\", \"function\": {\"name\": \"" name "\"}}"
#define ALLOWED(mode, names)                                                                       \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [" TOOL("f") ", " TOOL( \
        "g") "], \"tool_choice\": {\"type\": \"allowed_tools\", \"allowed_tools\": "               \
             "{\"mode\": " mode ", \"tools\": [" names "]}}}"

static void tools_that_are_not_allowed_are_left_out(void **state)
{
    (void)state;
    struct http_request r;
    for (int must = 0; must < 2; must++) {
        parse(must ? ALLOWED("\"required\"", TOOL("g")) : ALLOWED("\"auto\"", TOOL("g")), HTTP_CHAT,
              &r);
        assert_int_equal(json_array_size(r.tools), 1);
        assert_int_equal(r.must_call, must);
        assert_null(r.must_call_name);
        http_request_fini(&r);
    }
    refused(ALLOWED("\"auto\"", TOOL("h")), HTTP_CHAT, "tool_choice");
    refused(ALLOWED("\"auto\"", ""), HTTP_CHAT, "tool_choice");
    refused(ALLOWED("\"auto\"", "3"), HTTP_CHAT, "tool_choice");
    refused(ALLOWED("\"now\"", TOOL("g")), HTTP_CHAT, "tool_choice");
    refused(ALLOWED("{}", TOOL("g")), HTTP_CHAT, "tool_choice");
}

#define FLAT(name) "{\"type\": \"function\", \"name\": \"" name "\"}"

static void a_body_that_is_missing_is_told(void **state)
{
    (void)state;
    struct http_request r;
    struct http_error why;
    assert_int_equal(http_request_parse("", 0, HTTP_CHAT, &r, &why), -1);
    assert_int_equal(why.status, 400);
    assert_string_equal(why.message, "the request has no body: send a JSON object");
}

static const char *completion_with(const char *field)
{
    static char body[256];
    snprintf(body, sizeof body, "{\"prompt\": \"a\", %s}", field);
    return body;
}

static void fields_of_other_servers_are_read(void **state)
{
    (void)state;
    struct http_request r;
    parse(completion_with("\"n_predict\": 7, \"repeat_penalty\": 1.25, \"ignore_eos\": true, "
                          "\"stop_token_ids\": [5, 9]"),
          HTTP_COMPLETIONS, &r);
    assert_int_equal(r.max_tokens, 7);
    assert_true(r.sampling.repetition == 1.25f);
    assert_true(r.ignore_end);
    assert_int_equal(r.stop_tokens.token_count, 2);
    assert_int_equal(r.stop_tokens.tokens[1], 9);
    http_request_fini(&r);
    refused(completion_with("\"ignore_eos\": 1"), HTTP_COMPLETIONS, "ignore_eos");
    refused(completion_with("\"stop_token_ids\": 3"), HTTP_COMPLETIONS, "stop_token_ids");
    refused(completion_with("\"stop_token_ids\": [-3]"), HTTP_COMPLETIONS, "stop_token_ids");
}

/* Programs send all fields that a server has, most with the values that it has for them anyway. */
static void fields_that_would_be_missed_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *harmless, *refused, *param;
    } cases[] = {
        {"\"min_tokens\": 0", "\"min_tokens\": 3", "min_tokens"},
        {"\"skip_special_tokens\": true", "\"skip_special_tokens\": false", "skip_special_tokens"},
        {"\"guided_json\": null", "\"guided_json\": {\"type\": \"object\"}", "guided_json"},
        {"\"bad_words\": []", "\"bad_words\": [\"x\"]", "bad_words"},
        {"\"typical_p\": 1.0", "\"typical_p\": 0.5", "typical_p"},
        {"\"top_n_sigma\": -1", "\"top_n_sigma\": 2", "top_n_sigma"},
        {"\"mirostat\": 0", "\"mirostat\": 2", "mirostat"},
        {"\"prompt_logprobs\": null", "\"prompt_logprobs\": 0", "prompt_logprobs"},
        {"\"suffix\": \"\"", "\"suffix\": \"b\"", "suffix"},
        {"\"cache_prompt\": false", "\"best_of\": 2", "best_of"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_request r;
        parse(completion_with(cases[i].harmless), HTTP_COMPLETIONS, &r);
        http_request_fini(&r);
        refused(completion_with(cases[i].refused), HTTP_COMPLETIONS, cases[i].param);
    }
    refused("{\"input\": \"a\", \"truncate_prompt_tokens\": 4}", HTTP_EMBEDDINGS,
            "truncate_prompt_tokens");
    refused("{\"input\": \"a\", \"min_tokens\": 4}", HTTP_RESPONSES, "min_tokens");
    refused("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"echo\": true}", HTTP_CHAT,
            "echo");
}

static const char *effort_of(const struct http_request *r)
{
    return json_string_value(json_object_get(r->variables, "reasoning_effort"));
}

static void the_effort_is_a_variable_of_the_template(void **state)
{
    static const char chat[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], %s}";
    char body[256];
    struct http_request r;
    (void)state;
    snprintf(body, sizeof(body), chat,
             "\"reasoning_effort\": \"low\", \"chat_template_kwargs\": {\"x\": 1}");
    parse(body, HTTP_CHAT, &r);
    assert_string_equal(effort_of(&r), "low");
    assert_int_equal(json_object_size(r.variables), 2);
    http_request_fini(&r);
    snprintf(body, sizeof(body), chat,
             "\"reasoning_effort\": \"low\", "
             "\"chat_template_kwargs\": {\"reasoning_effort\": \"high\"}");
    parse(body, HTTP_CHAT, &r);
    assert_string_equal(effort_of(&r), "high");
    http_request_fini(&r);
    parse("{\"input\": \"a\", \"reasoning\": {\"effort\": \"high\", \"summary\": \"auto\"}}",
          HTTP_RESPONSES, &r);
    assert_string_equal(effort_of(&r), "high");
    http_request_fini(&r);
    snprintf(body, sizeof(body), chat, "\"reasoning_effort\": null");
    parse(body, HTTP_CHAT, &r);
    assert_null(effort_of(&r));
    http_request_fini(&r);
    snprintf(body, sizeof(body), chat, "\"reasoning_effort\": 5");
    refused(body, HTTP_CHAT, "reasoning_effort");
}

static void a_wrong_length_is_told_that_minus_one_is_none(void **state)
{
    (void)state;
    static const char *const bodies[] = {"{\"prompt\": \"a\", \"max_tokens\": 0}",
                                         "{\"prompt\": \"a\", \"max_tokens\": -2}",
                                         "{\"prompt\": \"a\", \"max_tokens\": 2147483648}"};
    struct http_request r;
    struct http_error why;
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        assert_int_equal(
            http_request_parse(bodies[i], strlen(bodies[i]), HTTP_COMPLETIONS, &r, &why), -1);
        assert_string_equal(why.message,
                            "'max_tokens' must be -1 or a whole number from 1 to 2147483647");
    }
}

static void responses_become_chats(void **state)
{
    (void)state;
    struct http_request r;
    parse(
        "{\"instructions\": \"i\", \"input\": ["
        "{\"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\": \"a\"}]},"
        "{\"type\": \"reasoning\", \"summary\": []},"
        "{\"type\": \"reasoning\", \"content\": [{\"type\": \"reasoning_text\", \"text\": \"r\"}]},"
        "{\"type\": \"message\", \"role\": \"assistant\", \"content\": \"b\"},"
        "{\"type\": \"function_call\", \"call_id\": \"1\", \"name\": \"f\", "
        "\"arguments\": \"{}\"},"
        "{\"type\": \"function_call\", \"call_id\": \"2\", \"name\": \"g\", "
        "\"arguments\": \"{}\"},"
        "{\"type\": \"function_call_output\", \"call_id\": \"1\", \"output\": \"c\"}],"
        "\"max_output_tokens\": 9, \"n\": 3, \"tools\": [" FLAT("f") ", " FLAT(
            "g") "], "
                 "\"tool_choice\": " FLAT(
                     "g") ", \"text\": {\"format\": {\"type\": \"json_schema\", "
                          "\"name\": \"s\", \"schema\": {}}}}",
        HTTP_RESPONSES, &r);
    char *messages = json_dumps(r.messages, JSON_COMPACT);
    assert_string_equal(
        messages,
        "[{\"role\":\"system\",\"content\":\"i\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},"
        "{\"role\":\"assistant\",\"content\":\"b\",\"reasoning_content\":\"r\",\"tool_calls\":["
        "{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":\"{}\"}},"
        "{\"id\":\"2\",\"type\":\"function\",\"function\":{\"name\":\"g\","
        "\"arguments\":\"{}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"c\"}]");
    free(messages);
    assert_int_equal(r.api, HTTP_CHAT);
    assert_int_equal(r.max_tokens, 9);
    assert_int_equal(r.n, 1);
    assert_int_equal(json_array_size(r.tools), 2);
    assert_string_equal(r.must_call_name, "g");
    assert_int_equal(r.format, HTTP_FORMAT_SCHEMA);
    http_request_fini(&r);
    refused("{}", HTTP_RESPONSES, "input");
    refused("{\"input\": [{\"role\": \"god\", \"content\": \"a\"}]}", HTTP_RESPONSES, "input");
    refused("{\"input\": [{\"type\": \"function_call\"}]}", HTTP_RESPONSES, "input");
    refused("{\"input\": [{\"type\": \"function_call_output\"}]}", HTTP_RESPONSES, "input");
    refused("{\"input\": \"a\", \"conversation\": \"b\"}", HTTP_RESPONSES, "conversation");
    refused("{\"input\": \"a\", \"prompt\": {\"id\": \"b\"}}", HTTP_RESPONSES, "prompt");
    refused("{\"input\": \"a\", \"instructions\": 3}", HTTP_RESPONSES, "instructions");
    refused("{\"input\": \"a\", \"text\": {\"format\": {\"type\": \"x\"}}}", HTTP_RESPONSES,
            "text.format");
    refused("{\"input\": \"a\", \"tools\": [{\"type\": \"web_search\"}]}", HTTP_RESPONSES, "tools");
}

static void messages_become_chats(void **state)
{
    (void)state;
    struct http_request r;
    static const char asked[] =
        "{\"max_tokens\": 9, \"n\": 3, \"system\": [{\"type\": \"text\", \"text\": \"s\"}],"
        "\"stop_sequences\": [\"x\"], \"top_k\": 4, \"thinking\": {\"type\": \"disabled\"},"
        "\"tools\": [{\"name\": \"f\", \"input_schema\": {}}, {\"type\": \"custom\", \"name\": "
        "\"g\"}],"
        "\"tool_choice\": {\"type\": \"tool\", \"name\": \"g\", \"disable_parallel_tool_use\": "
        "true},"
        "\"messages\": [{\"role\": \"user\", \"content\": \"a\"},"
        "{\"role\": \"assistant\", \"content\": ["
        "{\"type\": \"thinking\", \"thinking\": \"r\", \"signature\": \"\"},"
        "{\"type\": \"redacted_thinking\", \"data\": \"x\"},"
        "{\"type\": \"text\", \"text\": \"b\"},"
        "{\"type\": \"tool_use\", \"id\": \"1\", \"name\": \"f\", \"input\": {}},"
        "{\"type\": \"tool_use\", \"id\": \"2\", \"name\": \"g\", \"input\": {}}]},"
        "{\"role\": \"user\", \"content\": ["
        "{\"type\": \"tool_result\", \"tool_use_id\": \"1\", \"content\": \"c\"},"
        "{\"type\": \"tool_result\", \"tool_use_id\": \"2\", \"content\": \"no\", \"is_error\": "
        "true},"
        "{\"type\": \"text\", \"text\": \"d\"}]},"
        "{\"role\": \"assistant\", \"content\": \"e\"}]}";
    parse(asked, HTTP_MESSAGES, &r);
    char *messages = json_dumps(r.messages, JSON_COMPACT);
    assert_string_equal(messages,
                        "[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"s\"}]},"
                        "{\"role\":\"user\",\"content\":\"a\"},"
                        "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"b\"}],"
                        "\"reasoning_content\":\"r\",\"tool_calls\":["
                        "{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                        "\"arguments\":{}}},"
                        "{\"id\":\"2\",\"type\":\"function\",\"function\":{\"name\":\"g\","
                        "\"arguments\":{}}}]},"
                        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"c\"},"
                        "{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":["
                        "{\"type\":\"text\",\"text\":\"Error:\"},"
                        "{\"type\":\"text\",\"text\":\"no\"}]},"
                        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"d\"}]}]");
    free(messages);
    assert_int_equal(r.api, HTTP_CHAT);
    assert_int_equal(r.max_tokens, 9);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.sampling.top_k, 4);
    assert_int_equal(r.stops.count, 1);
    assert_string_equal(r.must_call_name, "g");
    assert_false(r.parallel_calls);
    assert_string_equal(r.prefill, "e");
    assert_true(json_is_false(json_object_get(r.variables, "enable_thinking")));
    http_request_fini(&r);
    parse("{\"messages\": [{\"role\": \"user\", \"content\": []}], \"tools\": [{\"name\": \"f\"}],"
          "\"tool_choice\": {\"type\": \"any\"}}",
          HTTP_COUNT_TOKENS, &r);
    assert_true(r.must_call && !r.must_call_name && r.parallel_calls);
    http_request_fini(&r);
}

static void turns_of_one_role_become_one(void **state)
{
    (void)state;
    struct http_request r;
    static const char asked[] =
        "{\"max_tokens\": 9, \"output_format\": {\"type\": \"json_schema\", \"schema\": {}},"
        "\"messages\": [{\"role\": \"user\", \"content\": \"a\"},"
        "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"b\"}]},"
        "{\"role\": \"assistant\", \"content\": ["
        "{\"type\": \"thinking\", \"thinking\": \"r\", \"signature\": \"\"},"
        "{\"type\": \"tool_use\", \"id\": \"1\", \"name\": \"f\", \"input\": {}}]},"
        "{\"role\": \"assistant\", \"content\": ["
        "{\"type\": \"thinking\", \"thinking\": \"s\", \"signature\": \"\"},"
        "{\"type\": \"text\", \"text\": \"c\"},"
        "{\"type\": \"tool_use\", \"id\": \"2\", \"name\": \"g\", \"input\": {}}]},"
        "{\"role\": \"user\", \"content\": ["
        "{\"type\": \"tool_result\", \"tool_use_id\": \"1\", \"content\": \"d\"}]},"
        "{\"role\": \"user\", \"content\": ["
        "{\"type\": \"tool_result\", \"tool_use_id\": \"2\", \"content\": \"e\"}]},"
        "{\"role\": \"assistant\", \"content\": ["
        "{\"type\": \"text\", \"text\": \"h\"}, {\"type\": \"text\", \"text\": \"i\"}]},"
        "{\"role\": \"assistant\", \"content\": \"j\"}]}";
    parse(asked, HTTP_MESSAGES, &r);
    char *messages = json_dumps(r.messages, JSON_COMPACT);
    assert_string_equal(messages,
                        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                        "{\"type\":\"text\",\"text\":\"b\"}]},"
                        "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"c\"}],"
                        "\"reasoning_content\":\"r\\n\\ns\",\"tool_calls\":["
                        "{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                        "\"arguments\":{}}},"
                        "{\"id\":\"2\",\"type\":\"function\",\"function\":{\"name\":\"g\","
                        "\"arguments\":{}}}]},"
                        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"d\"},"
                        "{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"e\"}]");
    free(messages);
    assert_string_equal(r.prefill, "h\ni\nj");
    assert_int_equal(r.format, HTTP_FORMAT_SCHEMA);
    http_request_fini(&r);
}

static void texts_and_tokens_are_read(void **state)
{
    (void)state;
    struct http_tokenize r;
    struct http_error why;
    static const char text[] = "{\"content\": \"a\", \"add_special_tokens\": false}";
    assert_int_equal(http_tokenize_parse(text, strlen(text), false, &r, &why), 0);
    assert_string_equal(r.prompt.text, "a");
    assert_false(r.add_special);
    http_tokenize_fini(&r);
    static const char tokens[] = "{\"tokens\": [5, 6]}";
    assert_int_equal(http_tokenize_parse(tokens, strlen(tokens), true, &r, &why), 0);
    assert_int_equal(r.prompt.token_count, 2);
    http_tokenize_fini(&r);
    assert_int_equal(http_tokenize_parse(text, strlen(text), true, &r, &why), -1);
    assert_string_equal(why.param, "tokens");
    assert_int_equal(http_tokenize_parse(tokens, strlen(tokens), false, &r, &why), -1);
    assert_string_equal(why.param, "prompt");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_openais),
        cmocka_unit_test(every_field_is_read),
        cmocka_unit_test(tools_that_are_not_allowed_are_left_out),
        cmocka_unit_test(messages_are_read),
        cmocka_unit_test(bad_fields_are_named),
        cmocka_unit_test(a_body_that_is_missing_is_told),
        cmocka_unit_test(fields_of_other_servers_are_read),
        cmocka_unit_test(fields_that_would_be_missed_are_refused),
        cmocka_unit_test(the_effort_is_a_variable_of_the_template),
        cmocka_unit_test(a_wrong_length_is_told_that_minus_one_is_none),
        cmocka_unit_test(responses_become_chats),
        cmocka_unit_test(messages_become_chats),
        cmocka_unit_test(turns_of_one_role_become_one),
        cmocka_unit_test(texts_and_tokens_are_read),
        cmocka_unit_test(a_body_may_begin_with_a_byte_order_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
