/* Tool calls in an answer: each form, whole and byte by byte, what only looks like a call, and the
 * grammars that make a model write calls. */
#include "unit.h"

#include "base/rng.h"
#include "byte_vocab.h"
#include "failing.h"
#include "llm/chat/grammar.h"
#include "llm/chat/tools.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": "
    "{\"type\": \"object\", \"required\": [\"city\"], \"properties\": {\"city\": {\"enum\": "
    "[\"Rom\", \"K\u00f6ln}\"]}}}}},"
    " {\"type\": \"function\", \"function\": {\"name\": \"noop\"}}]";

struct answer {
    char content[512];
    size_t bytes;
    json_t *calls;
};

static void take(struct answer *a, const char *content, size_t bytes)
{
    assert_true(a->bytes + bytes < sizeof a->content);
    memcpy(a->content + a->bytes, content, bytes);
    a->bytes += bytes;
    a->content[a->bytes] = 0;
}

/* Feeds the text in pieces of `step` bytes. */
static void parse(enum llm_tools_form form, const char *text, size_t step, struct answer *a)
{
    json_t *offered = json_loads(tools_text, 0, NULL);
    struct llm_tools *t;
    const char *content;
    size_t bytes, length = strlen(text);
    memset(a, 0, sizeof *a);
    assert_int_equal(llm_tools_create(form, offered, &t), 0);
    for (size_t at = 0; at < length; at += step) {
        size_t n = length - at < step ? length - at : step;
        assert_int_equal(llm_tools_feed(t, text + at, n, &content, &bytes), 0);
        take(a, content, bytes);
    }
    assert_int_equal(llm_tools_end(t, &content, &bytes), 0);
    take(a, content, bytes);
    a->calls = json_array();
    for (size_t i = 0; i < llm_tools_count(t); i++)
        json_array_append_new(a->calls, llm_tools_call(t, i, false));
    llm_tools_destroy(t);
    json_decref(offered);
}

/* calls: names and arguments as "name(arguments) ...". */
static void expect(enum llm_tools_form form, const char *text, const char *content,
                   const char *calls)
{
    static const size_t steps[] = {1, 3, 7, 4096};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct answer a;
        char found[512] = "";
        parse(form, text, steps[i], &a);
        for (size_t k = 0; k < json_array_size(a.calls); k++) {
            const json_t *call = json_array_get(a.calls, k);
            const json_t *function = json_object_get(call, "function");
            if (form != LLM_TOOLS_KIMI)
                assert_int_equal(strlen(json_string_value(json_object_get(call, "id"))), 9);
            snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s(%s)", k ? " " : "",
                     json_string_value(json_object_get(function, "name")),
                     json_string_value(json_object_get(function, "arguments")));
        }
        assert_string_equal(a.content, content);
        assert_string_equal(found, calls);
        json_decref(a.calls);
    }
}

static void hermes_writes_tags(void **state)
{
    (void)state;
    expect(LLM_TOOLS_HERMES,
           "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
           "\"K\u00f6ln}\"}}\n</tool_call>\n<tool_call>{\"name\": \"noop\"}</tool_call>",
           "Let me see.\n", "get_weather({\"city\": \"K\u00f6ln}\"}) noop({})");
    expect(LLM_TOOLS_HERMES, "<tool_call>{\"name\": \"noop\", \"arguments\": {}}", "", "noop({})");
    expect(LLM_TOOLS_HERMES,
           "<tool_call>{\"arguments\": {\"a\":1}, \"name\": \"noop\"}</tool_call>\n<tool_call>[{"
           "\"name\":\"noop\",\"arguments\":\"{}\"}, {\"name\": \"noop\"}]</tool_call> ok",
           "ok", "noop({\"a\": 1}) noop({}) noop({})");
    expect(LLM_TOOLS_HERMES, "<tool_call>{\"name\":\"noop\",\"arguments\":{\"a\":[\"}\\\"", "",
           "noop({\"a\":[\"}\\\")");
    expect(LLM_TOOLS_HERMES, "a < b and <tool> are no calls <tool_cal",
           "a < b and <tool> are no calls <tool_cal", "");
    expect(LLM_TOOLS_HERMES, "<tool_call>{\"name\": \"unknown\"}</tool_call>",
           "<tool_call>{\"name\": \"unknown\"}</tool_call>", "");
    expect(LLM_TOOLS_HERMES, "<tool_call>{broken}</tool_call>x", "<tool_call>{broken}</tool_call>x",
           "");
}

static void parameters_are_tagged(void **state)
{
    (void)state;
    expect(
        LLM_TOOLS_HERMES,
        "So.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nK\u00f6ln}\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n<parameter=note>\n<b> and\n\n\"more\"\n</parameter>\n"
        "</function>\n</tool_call>\n<tool_call>\n<function=noop>\n</function>\n</tool_call>",
        "So.\n",
        "get_weather({\"city\": \"K\u00f6ln}\", \"days\": 3, \"note\": \"<b> "
        "and\\n\\n\\\"more\\\"\"}) "
        "noop({})");
    expect(LLM_TOOLS_HERMES,
           "<tool_call><function=noop><parameter=a>[1, {}]</parameter></function>", "",
           "noop({\"a\": [1, {}]})");
    expect(LLM_TOOLS_HERMES, "<tool_call><function=noop><parameter=zip>007</parameter></function>",
           "", "noop({\"zip\": \"007\"})");
    expect(LLM_TOOLS_HERMES, "<tool_call><function=other></function></tool_call>",
           "<tool_call><function=other></function></tool_call>", "");
    expect(LLM_TOOLS_HERMES, "<tool_call><function=noop><parameter=a>1",
           "<tool_call><function=noop><parameter=a>1", "");
    expect(LLM_TOOLS_HERMES, "<tool_call><function=</function></tool_call>",
           "<tool_call><function=</function></tool_call>", "");
}

static void llama_writes_json(void **state)
{
    (void)state;
    expect(LLM_TOOLS_LLAMA, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rom\"}}", "",
           "get_weather({\"city\": \"Rom\"})");
    expect(LLM_TOOLS_LLAMA,
           "<|python_tag|>{\"name\": \"noop\", \"parameters\": {}}; {\"name\": \"noop\", "
           "\"parameters\": {\"a\": 1}}",
           "", "noop({}) noop({\"a\": 1})");
    expect(LLM_TOOLS_LLAMA, "It is {\"name\": \"noop\"} warm.", "It is {\"name\": \"noop\"} warm.",
           "");
    expect(LLM_TOOLS_LLAMA, "{\"temperature\": 21}", "{\"temperature\": 21}", "");
}

static void mistral_writes_a_list(void **state)
{
    (void)state;
    expect(LLM_TOOLS_MISTRAL,
           "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"X\"}, \"id\": "
           "\"abcdefghi\"}, {\"name\": \"noop\", \"arguments\": {}}]",
           "", "get_weather({\"city\": \"X\"}) noop({})");
    expect(LLM_TOOLS_MISTRAL,
           "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"X\"}[TOOL_CALLS]noop[ARGS]{}", "",
           "get_weather({\"city\": \"X\"}) noop({})");
    expect(LLM_TOOLS_MISTRAL,
           "[TOOL_CALLS][{\"name\": \"noop\", \"arguments\": {}}, {\"name\": \"other\"}]",
           ", {\"name\": \"other\"}]", "noop({})");
    expect(LLM_TOOLS_MISTRAL, "[TOOL_CALLS]\x95[ARGS]{}", "[TOOL_CALLS]\x95[ARGS]{}", "");
    expect(LLM_TOOLS_MISTRAL, "[TOOL] [TOOL_CALLS] []", "[TOOL] [TOOL_CALLS] []", "");
}

static void functions_are_tagged(void **state)
{
    (void)state;
    expect(LLM_TOOLS_TAGGED, "Yes. <function=get_weather>{\"city\": \"X\"}</function>", "Yes. ",
           "get_weather({\"city\": \"X\"})");
    expect(LLM_TOOLS_TAGGED, "<function=other>{}</function>", "<function=other>{}</function>", "");
}

static void lists_are_tagged(void **state)
{
    (void)state;
    expect(
        LLM_TOOLS_GRANITE,
        "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rom\"}}, {\"name\": "
        "\"noop\", \"arguments\": {}}]",
        "", "get_weather({\"city\": \"Rom\"}) noop({})");
    expect(LLM_TOOLS_GRANITE,
           "Yes.<|tool_call|>[{\"name\": \"noop\", \"arguments\": {}}]<|/tool_call|>", "Yes.",
           "noop({})");
    expect(LLM_TOOLS_NEMOTRON, "<TOOLCALL>[{\"name\": \"noop\", \"arguments\": {}}]</TOOLCALL>\n",
           "", "noop({})");
    expect(LLM_TOOLS_APRIEL,
           "<tool_calls>[\n{\"name\": \"noop\", \"arguments\": {}}\n]</tool_calls>", "",
           "noop({})");
    expect(LLM_TOOLS_COMMAND,
           "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", "
           "\"parameters\": {\"city\": \"Rom\"}},\n    {\"tool_call_id\": \"1\", \"tool_name\": "
           "\"noop\", \"parameters\": {}}\n]<|END_ACTION|>",
           "", "get_weather({\"city\": \"Rom\"}) noop({})");
    expect(LLM_TOOLS_COMMAND, "<|START_ACTION|>[{\"tool_name\": \"other\"}]<|END_ACTION|>",
           "<|START_ACTION|>[{\"tool_name\": \"other\"}]<|END_ACTION|>", "");
}

/* What models of these forms write, two calls after a sentence; `calls` are the same of all. */
static const struct {
    enum llm_tools_form form;
    const char *text;
} written[] = {
    {LLM_TOOLS_HARMONY,
     " to=functions.get_weather<|channel|>commentary json<|message|>{\"city\": \"Rom\", "
     "\"days\": 3}<|call|><|channel|>commentary to=functions.noop "
     "<|constrain|>json<|message|>{}"},
    {LLM_TOOLS_DSML,
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
     "name=\"city\" string=\"true\">Rom</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
     "string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
     "name=\"noop\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
    {LLM_TOOLS_DSML,
     "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
     "name=\"city\" string=\"true\">Rom</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
     "string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
     "name=\"noop\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"},
    {LLM_TOOLS_DEEPSEEK_FENCED,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
     "{\"city\": \"Rom\", \"days\": 3}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function"
     "<｜tool▁sep｜>noop\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {LLM_TOOLS_DEEPSEEK,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Rom\", "
     "\"days\": 3}<｜tool▁call▁end｜><｜tool▁call▁begin｜>noop<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>"},
    {LLM_TOOLS_KIMI,
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
     "<|tool_call_argument_begin|>{\"city\": \"Rom\", \"days\": 3}<|tool_call_end|>"
     "<|tool_call_begin|>functions.noop:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>"},
    {LLM_TOOLS_KIMI_TAGGED,
     "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|><|open|>argument "
     "key=\"city\" type=\"string\"<|sep|>Rom<|close|>argument<|sep|><|open|>argument "
     "key=\"days\" type=\"number\"<|sep|>3<|close|>argument<|sep|><|close|>call<|sep|><|open|>call "
     "tool=\"noop\" index=\"2\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message"
     "<|sep|>"},
    {LLM_TOOLS_SOLAR,
     "<|tool_calls|><|tool_call:begin|>abc<|tool_call:name|>get_weather<|tool_call:args|>"
     "{\"city\": \"Rom\", \"days\": 3}<|tool_call:end|><|tool_call:begin|>def<|tool_call:name|>"
     "noop<|tool_call:args|>{}<|tool_call:end|>"},
    {LLM_TOOLS_HUNYUAN,
     "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n"
     "<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Rom"
     "</arg_value:opensource>\n<arg_key:opensource>days</arg_key:opensource>\n"
     "<arg_value:opensource>3</arg_value:opensource>\n</tool_call:opensource>\n"
     "<tool_call:opensource>noop<tool_sep:opensource>\n</tool_call:opensource>\n"
     "</tool_calls:opensource>"},
    {LLM_TOOLS_GLM,
     "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rom</arg_value>\n"
     "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>noop\n"
     "</tool_call>"},
    {LLM_TOOLS_GLM, "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rom</arg_value>"
                    "<arg_key>days</arg_key><arg_value>3</arg_value></tool_call><tool_call>noop"
                    "</tool_call>"},
    {LLM_TOOLS_MINIMAX,
     "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Rom"
     "</parameter>\n<parameter name=\"days\">3</parameter>\n</invoke>\n<invoke name=\"noop\">\n"
     "</invoke>\n</minimax:tool_call>"},
    {LLM_TOOLS_MINIMAX_TREE,
     "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"get_weather\">]<]minimax[>[<city>Rom"
     "]<]minimax[>[</city>]<]minimax[>[<days>3]<]minimax[>[</days>]<]minimax[>[</invoke>\n"
     "]<]minimax[>[<invoke name=\"noop\">]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>"},
    {LLM_TOOLS_GEMMA, "<|tool_call>call:get_weather{city:<|\"|>Rom<|\"|>,days:3}<tool_call|>"
                      "<|tool_call>call:noop{}<tool_call|>"},
    {LLM_TOOLS_LFM,
     "<|tool_call_start|>[get_weather(city='Rom', days=3), noop()]<|tool_call_end|>"},
    {LLM_TOOLS_RECIPIENT, ">>>get_weather\n{\"city\": \"Rom\", \"days\": 3}>>>noop\n{}"},
    {LLM_TOOLS_SEED,
     "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Rom</parameter>\n"
     "<parameter=days>3</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n"
     "<function=noop>\n</function>\n</seed:tool_call>"},
    {LLM_TOOLS_MINICPM, "<function name=\"get_weather\"><param name=\"city\">Rom</param><param "
                        "name=\"days\">3</param></function>\n<function name=\"noop\"></function>"},
    {LLM_TOOLS_APERTUS, "<|tools_prefix|>[{\"get_weather\": {\"city\": \"Rom\", \"days\": 3}}, "
                        "{\"noop\": {}}]<|tools_suffix|>"},
    {LLM_TOOLS_GIGACHAT,
     "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"get_weather\", \"arguments\": "
     "{\"city\": \"Rom\", \"days\": 3}}<|function_call|>{\"name\": \"noop\", \"arguments\": {}}"
     "<|message_sep|>\n\n"},
    {LLM_TOOLS_LINES,
     "<tool_calls>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rom\", \"days\": "
     "3}}\n{\"name\": \"noop\", \"arguments\": {}}\n</tool_calls>"},
    {LLM_TOOLS_MISTRAL_NAMED, "[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{\"city\": \"Rom\", "
                              "\"days\": 3}[TOOL_CALLS]noop[CALL_ID]abcdefghj[ARGS]{}"},
    {LLM_TOOLS_FUNCTOOLS, "functools[{\"name\": \"get_weather\", \"arguments\": {\"city\": "
                          "\"Rom\", \"days\": 3}}, {\"name\": \"noop\", \"arguments\": {}}]"},
    {LLM_TOOLS_COMMAND_FENCED,
     "Action:\n```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        "
     "\"parameters\": {\"city\": \"Rom\", \"days\": 3}\n    },\n    {\n        \"tool_name\": "
     "\"noop\",\n        \"parameters\": {}\n    }\n]```"},
};

static void models_of_other_families_write_calls(void **state)
{
    (void)state;
    static const char calls[] = "get_weather({\"city\": \"Rom\", \"days\": 3}) noop({})";
    for (size_t i = 0; i < ARRAY_LEN(written); i++) {
        char text[1024], want[1024];
        snprintf(text, sizeof text, "Well.%s", written[i].text);
        expect(written[i].form, text, "Well.", calls);
        snprintf(text, sizeof text, "%s\n", written[i].text);
        expect(written[i].form, text, "", calls);
        /* A name that is not offered: no byte is lost. */
        char *name = strstr(strcpy(want, written[i].text), "get_weather");
        *name = 'b';
        char *second = strstr(want, "noop");
        *second = 'b';
        expect(written[i].form, want, want, "");
        /* Cut off in the name. */
        name[4] = 0;
        expect(written[i].form, want, want, "");
    }
}

static void a_schema_says_what_a_tagged_value_is(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *text, *value;
    } cases[] = {
        {"{\"type\": \"string\"}", "3", "\"3\""},
        {"{\"type\": [\"null\", \"string\"]}", "3", "\"3\""},
        {"{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}", "3", "\"3\""},
        {"{\"enum\": [\"3\", \"4\"]}", "3", "\"3\""},
        {"{\"enum\": [3, 4]}", "3", "3"},
        {"{\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"null\"}]}", "3", "3"},
        {"{\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"null\"}]}", "None", "null"},
        {"{\"type\": \"boolean\"}", "True", "true"},
        {"{\"type\": \"boolean\"}", "\nFalse\n", "false"},
        {"{\"type\": \"object\"}", "{'a'", "\"{'a'\""},
        {"{}", "True", "\"True\""},
        {"{}", "true", "true"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char tools[512], text[256], wanted[64];
        const char *content, *arguments;
        size_t bytes;
        struct llm_tools *t;
        snprintf(tools, sizeof tools,
                 "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": "
                 "%s}}}}]",
                 cases[i].schema);
        snprintf(text, sizeof text,
                 "<tool_call><function=f><parameter=a>%s</parameter></function></tool_call>",
                 cases[i].text);
        snprintf(wanted, sizeof wanted, "{\"a\": %s}", cases[i].value);
        json_t *offered = json_loads(tools, 0, NULL);
        assert_int_equal(llm_tools_create(LLM_TOOLS_HERMES, offered, &t), 0);
        assert_int_equal(llm_tools_feed(t, text, strlen(text), &content, &bytes), 0);
        assert_int_equal(llm_tools_count(t), 1);
        bytes = llm_tools_arguments(t, 0, &arguments);
        assert_int_equal(bytes, strlen(wanted));
        assert_memory_equal(arguments, wanted, bytes);
        llm_tools_destroy(t);
        json_decref(offered);
    }
}

static void values_of_other_syntaxes_become_json(void **state)
{
    (void)state;
    static const struct {
        enum llm_tools_form form;
        const char *before, *text, *after, *arguments; /* NULL: it is no call */
    } cases[] = {
#define LFM LLM_TOOLS_LFM, "<|tool_call_start|>[noop("
#define LFM_END ")]<|tool_call_end|>"
        {LFM, "a=-1.5, b=True, c=None, d='it\\'s', e=\"\\u00e4\\n\"", LFM_END,
         "{\"a\": -1.5, \"b\": true, \"c\": null, \"d\": \"it's\", \"e\": \"\u00e4\\n\"}"},
        {LFM, "a='it's, or (not)', b = [1, 'x', {\"k\": [ ]}], c={'k': False}", LFM_END,
         "{\"a\": \"it's, or (not)\", \"b\": [1, \"x\", {\"k\": []}], \"c\": {\"k\": false}}"},
        {LFM, "a='C:\\q\n\"', b=word", LFM_END, "{\"a\": \"C:\\\\q\\n\\\"\", \"b\": \"word\"}"},
        {LFM, "a='x\ty\\n\"z\"'", LFM_END, "{\"a\": \"x\\ty\\n\\\"z\\\"\"}"},
        {LFM, "a='x\\\ny\n\\'z'", LFM_END, "{\"a\": \"xy\\n'z\"}"},
        {LFM, "a='x\\\ty\\n'", LFM_END, "{\"a\": \"x\\\\\\ty\\n\"}"},
        {LFM, "a", LFM_END, NULL},
        {LFM, "a='b", LFM_END, NULL},
        {LFM, "=1", LFM_END, NULL},
        {LFM, "a='<|tool_call_end|>'", LFM_END, NULL},
        {LFM, "a=1 b=2]", LFM_END, NULL},
#define GEMMA LLM_TOOLS_GEMMA, "<|tool_call>call:noop{"
#define GEMMA_END "}<tool_call|>"
        {GEMMA, "a:<|\"|>\"{}', <|\"|>,b:[1,<|\"|>x<|\"|>],c:{<|\"|>k<|\"|>:true},d:null",
         GEMMA_END, "{\"a\": \"\\\"{}', \", \"b\": [1, \"x\"], \"c\": {\"k\": true}, \"d\": null}"},
        {GEMMA, "a:<|\"|>b", GEMMA_END, NULL},
        {GEMMA, "a:<|\"|>x<tool_call|>y<|\"|>", GEMMA_END, NULL},
        {GEMMA, "a:{b:1", GEMMA_END, NULL},
#define NS "]<]minimax[>["
#define TREE LLM_TOOLS_MINIMAX_TREE, NS "<tool_call>\n" NS "<invoke name=\"noop\">"
#define TREE_END NS "</invoke>\n" NS "</tool_call>"
        {TREE,
         NS "<a>" NS "<k>1" NS "</k>" NS "<l>" NS "<item>x" NS "</item>" NS "<item>2" NS
            "</item>" NS "</l>" NS "</a>\n" NS "<b>" NS "</b>",
         TREE_END, "{\"a\": {\"k\": 1, \"l\": [\"x\", 2]}, \"b\": \"\"}"},
        {TREE, NS "<item>x" NS "</item>", TREE_END, "{\"item\": \"x\"}"},
        {TREE, NS "<a>" NS "<item>" NS "<item>x" NS "</item>" NS "</item>" NS "</a>", TREE_END,
         "{\"a\": [[\"x\"]]}"},
        {TREE, NS "<a>\n" NS "<k>1" NS "</k>" NS "</a>", TREE_END, "{\"a\": {\"k\": 1}}"},
        {TREE, NS "<a>x" NS "<k>1" NS "</k>" NS "</a>", TREE_END, NULL},
        {TREE, NS "<a>" NS "<k>1" NS "</k>x" NS "</a>", TREE_END, NULL},
        {TREE, NS "<a>1" NS "</b>", TREE_END, NULL},
        {TREE, NS "<\xff>1" NS "</\xff>", TREE_END, NULL},
        {TREE, "x" NS "<a>1" NS "</a>", TREE_END, NULL},
        {TREE, NS "<a>1", TREE_END, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[512], calls[256] = "";
        snprintf(text, sizeof text, "%s%s%s", cases[i].before, cases[i].text, cases[i].after);
        if (cases[i].arguments)
            snprintf(calls, sizeof calls, "noop(%s)", cases[i].arguments);
        expect(cases[i].form, text, cases[i].arguments ? "" : text, calls);
    }
}

static void a_member_may_have_the_name_of_items(void **state)
{
    (void)state;
    static const char tools[] =
        "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": "
        "{\"properties\": {\"item\": {\"type\": \"string\"}}}}}}}]";
    static const char text[] = NS "<tool_call>" NS "<invoke name=\"f\">" NS "<a>" NS "<item>7" NS
                                  "</item>" NS "</a>" NS "</invoke>" NS "</tool_call>";
    static const char wanted[] = "{\"a\": {\"item\": \"7\"}}";
    const char *content, *arguments;
    size_t bytes;
    struct llm_tools *t;
    json_t *offered = json_loads(tools, 0, NULL);
    assert_int_equal(llm_tools_create(LLM_TOOLS_MINIMAX_TREE, offered, &t), 0);
    assert_int_equal(llm_tools_feed(t, text, sizeof text - 1, &content, &bytes), 0);
    assert_int_equal(llm_tools_count(t), 1);
    bytes = llm_tools_arguments(t, 0, &arguments);
    assert_int_equal(bytes, sizeof wanted - 1);
    assert_memory_equal(arguments, wanted, bytes);
    llm_tools_destroy(t);
    json_decref(offered);
}

static void values_that_are_too_deep_are_text(void **state)
{
    (void)state;
    char text[512] = "<|tool_call>call:noop{a:";
    for (int i = 0; i < 40; i++)
        strcat(text, "[");
    for (int i = 0; i < 40; i++)
        strcat(text, "]");
    strcat(text, "}<tool_call|>");
    expect(LLM_TOOLS_GEMMA, text, text, "");
}

static void an_answer_begins_with_its_recipient(void **state)
{
    (void)state;
    expect(LLM_TOOLS_RECIPIENT, "all\nWell. >>>noop\n{}", "Well. ", "noop({})");
    expect(LLM_TOOLS_RECIPIENT, "noop\n{\"a\": 1}>>>all\nSo.", "So.", "noop({\"a\": 1})");
    expect(LLM_TOOLS_RECIPIENT, "Well.", "Well.", "");
    expect(LLM_TOOLS_RECIPIENT, "all", "all", "");
    expect(LLM_TOOLS_RECIPIENT, "other\n{}", "other\n{}", "");
    expect(LLM_TOOLS_RECIPIENT, "all\na >>> b >> c", "a >>> b >> c", "");
    expect(LLM_TOOLS_RECIPIENT, "all\n>>> noop\n{}", ">>> noop\n{}", "");
    expect(LLM_TOOLS_RECIPIENT, "all\n>>>noop {}", ">>>noop {}", "");
    expect(LLM_TOOLS_RECIPIENT, "all\n>>>\nnoop\n{}", ">>>\nnoop\n{}", "");
}

static void within_content_no_recipient_is_expected(void **state)
{
    (void)state;
    struct llm_tools *t;
    const char *content;
    size_t bytes;
    assert_int_equal(llm_tools_create(LLM_TOOLS_RECIPIENT, NULL, &t), 0);
    llm_tools_begin_in_content(t);
    assert_int_equal(llm_tools_feed(t, "noop\n{}", 7, &content, &bytes), 0);
    assert_int_equal(bytes, 7);
    assert_memory_equal(content, "noop\n{}", 7);
    assert_int_equal(llm_tools_feed(t, ">>>noop\n{}", 10, &content, &bytes), 0);
    assert_int_equal(bytes, 0);
    assert_int_equal(llm_tools_count(t), 1);
    llm_tools_destroy(t);
}

static void what_is_among_tagged_arguments_makes_them_text(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "<tool_call>noop and more</tool_call>",
        "<tool_call>noop<arg_key>a</arg_key>1</tool_call>",
        "<tool_call>noop<arg_key>a</arg_key><arg_value>1</tool_call>",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        expect(LLM_TOOLS_GLM, texts[i], texts[i], "");
}

static void an_id_that_the_template_shows_names_the_function(void **state)
{
    (void)state;
    static const char text[] =
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.noop:7<|tool_call_argument_begin|"
        ">"
        "{}<|tool_call_end|><|tool_call_begin|>functions.noop:8<|tool_call_argument_begin|>{}";
    struct answer a;
    parse(LLM_TOOLS_KIMI, text, 5, &a);
    assert_int_equal(json_array_size(a.calls), 2);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(a.calls, i), "id")),
                            i ? "functions.noop:1" : "functions.noop:0");
    json_decref(a.calls);
}

static void without_a_form_all_is_content(void **state)
{
    (void)state;
    expect(LLM_TOOLS_NONE, "<tool_call>{\"name\": \"noop\"}</tool_call>",
           "<tool_call>{\"name\": \"noop\"}</tool_call>", "");
}

static void text_is_held_back_only_while_it_may_be_a_call(void **state)
{
    (void)state;
    struct llm_tools *t;
    const char *content;
    size_t bytes;
    assert_int_equal(llm_tools_create(LLM_TOOLS_HERMES, NULL, &t), 0);
    assert_int_equal(llm_tools_feed(t, "Hi <to", 6, &content, &bytes), 0);
    assert_int_equal(bytes, 3);
    assert_memory_equal(content, "Hi ", 3);
    assert_int_equal(llm_tools_feed(t, "ol", 2, &content, &bytes), 0);
    assert_int_equal(bytes, 0);
    assert_int_equal(llm_tools_feed(t, "s>", 2, &content, &bytes), 0);
    assert_memory_equal(content, "<tools>", bytes);
    assert_int_equal(bytes, 7);
    llm_tools_destroy(t);
}

static void arguments_come_out_as_they_are_written(void **state)
{
    (void)state;
    struct llm_tools *t;
    const char *content, *arguments;
    size_t bytes;
    static const char head[] = "<tool_call>{\"name\": \"f\", \"arguments\": ";
    assert_int_equal(llm_tools_create(LLM_TOOLS_HERMES, NULL, &t), 0);
    assert_int_equal(llm_tools_feed(t, head, sizeof head - 1, &content, &bytes), 0);
    assert_int_equal(llm_tools_count(t), 0);
    assert_int_equal(llm_tools_feed(t, "{\"a\"", 4, &content, &bytes), 0);
    assert_int_equal(llm_tools_count(t), 1);
    assert_int_equal(llm_tools_arguments(t, 0, &arguments), 4);
    assert_memory_equal(arguments, "{\"a\"", 4);
    json_t *begun = llm_tools_call(t, 0, true);
    json_t *function = json_object_get(begun, "function");
    assert_string_equal(json_string_value(json_object_get(function, "name")), "f");
    assert_string_equal(json_string_value(json_object_get(function, "arguments")), "");
    json_decref(begun);
    assert_int_equal(llm_tools_feed(t, ": 1}}</tool_call> ", 18, &content, &bytes), 0);
    assert_int_equal(llm_tools_arguments(t, 0, &arguments), 8);
    assert_int_equal(bytes, 0);
    llm_tools_destroy(t);
}

/* ---- grammars ---- */

static const char *const marks[] = {"[TOOL_CALLS]",
                                    "[ARGS]",
                                    "<tool_call>",
                                    "\": \"",
                                    "}}",
                                    "<|channel|>",
                                    "<|message|>",
                                    "<|constrain|>",
                                    "<｜tool▁calls▁begin｜>",
                                    "<｜tool▁sep｜>",
                                    "]<]minimax[>["};

/* The text of a random walk through the grammar. */
static void walk(const struct llm_vocab *vocab, enum llm_tools_form form, const char *gbnf,
                 size_t gbnf_bytes, struct hw_rng *rng, char *text, size_t room)
{
    char why[LLM_WHY_CHARS];
    struct llm_grammar *g;
    struct llm_pieces *sorted;
    struct llm_matcher *m;
    uint32_t count = llm_vocab_size(vocab), allowed[600];
    float logits[600];
    size_t at = 0;
    assert_true(count <= ARRAY_LEN(logits));
    assert_int_equal(llm_grammar_parse(gbnf, gbnf_bytes, &g, why), 0);
    assert_int_equal(llm_pieces_create(vocab, &sorted), 0);
    assert_int_equal(llm_matcher_create(g, sorted, &m), 0);
    for (;;) {
        uint32_t n = 0;
        memset(logits, 0, sizeof logits);
        llm_matcher_mask(m, logits, count);
        for (uint32_t i = 0; i < count; i++) {
            if (!isinf(logits[i]))
                allowed[n++] = i;
        }
        assert_true(n > 0);
        uint32_t token = allowed[hw_rng_u64(rng) % n];
        if (llm_vocab_ends(vocab, token))
            break;
        size_t bytes;
        const char *piece = llm_tools_piece(form, vocab, token, &bytes);
        assert_true(bytes > 0 && at + bytes < room);
        memcpy(text + at, piece, bytes);
        at += bytes;
        llm_matcher_accept(m, token);
    }
    assert_false(llm_matcher_is_dead(m) && !llm_matcher_may_end(m));
    text[at] = 0;
    llm_matcher_destroy(m);
    llm_pieces_destroy(sorted);
    llm_grammar_destroy(g);
}

static void check_call(const json_t *call, const char *name)
{
    const json_t *function = json_object_get(call, "function");
    const char *found = json_string_value(json_object_get(function, "name"));
    json_t *arguments =
        json_loads(json_string_value(json_object_get(function, "arguments")), 0, NULL);
    assert_true(json_is_object(arguments));
    if (name)
        assert_string_equal(found, name);
    if (strcmp(found, "get_weather") == 0)
        assert_non_null(json_string_value(json_object_get(arguments, "city")));
    else
        assert_int_equal(json_object_size(arguments), 0);
    json_decref(arguments);
}

/* What the grammar of a form writes is read back as calls and nothing else. */
static void a_grammar_writes_calls_that_are_read_back(void **state)
{
    (void)state;
    static const char *const names[] = {NULL, "get_weather", "noop"};
    struct byte_vocab vocab = byte_vocab_make(false, marks, ARRAY_LEN(marks), NULL, 0);
    json_t *offered = json_loads(tools_text, 0, NULL);
    enum { FORMS = LLM_TOOLS_FORMS - LLM_TOOLS_HERMES };
    for (int i = 0; i < FORMS * 3 * 6; i++) {
        enum llm_tools_form form = LLM_TOOLS_HERMES + i % FORMS;
        const char *name = names[i / FORMS % 3];
        struct hw_rng rng;
        hw_rng_seed(&rng, (uint64_t)i);
        char *gbnf, why[LLM_WHY_CHARS], text[16384];
        size_t bytes;
        assert_int_equal(
            llm_tools_grammar(form, vocab.vocab, offered, name, i % 2, &gbnf, &bytes, why), 0);
        walk(vocab.vocab, form, gbnf, bytes, &rng, text, sizeof text);
        free(gbnf);
        struct answer a;
        parse(form, text, 1 + (size_t)i % 7, &a);
        assert_string_equal(a.content, "");
        assert_true(json_array_size(a.calls) > 0);
        if (name || i % 2 == 0)
            assert_int_equal(json_array_size(a.calls), 1);
        for (size_t k = 0; k < json_array_size(a.calls); k++)
            check_call(json_array_get(a.calls, k), name);
        json_decref(a.calls);
    }
    json_decref(offered);
    byte_vocab_drop(&vocab);
}

static void a_mark_with_brackets_is_one_token(void **state)
{
    (void)state;
    struct byte_vocab vocab = byte_vocab_make(false, marks, ARRAY_LEN(marks), NULL, 0);
    json_t *offered = json_loads(tools_text, 0, NULL);
    char *gbnf, why[LLM_WHY_CHARS];
    size_t bytes;
    assert_int_equal(llm_tools_grammar(LLM_TOOLS_MINIMAX_TREE, vocab.vocab, offered, NULL, false,
                                       &gbnf, &bytes, why),
                     0);
    assert_null(strstr(gbnf, "minimax"));
    assert_non_null(strstr(gbnf, "]> \"<tool_call>"));
    assert_non_null(strstr(gbnf, "]> \"</tool_call>"));
    free(gbnf);
    json_decref(offered);
    byte_vocab_drop(&vocab);
}

static void a_grammar_names_what_it_cannot_write(void **state)
{
    (void)state;
    char *gbnf, why[LLM_WHY_CHARS];
    size_t bytes;
    json_t *offered = json_loads(tools_text, 0, NULL);
    assert_int_equal(
        llm_tools_grammar(LLM_TOOLS_LLAMA, NULL, offered, "other", true, &gbnf, &bytes, why),
        -ENOENT);
    assert_non_null(strstr(why, "'other'"));
    json_t *function = json_object_get(json_array_get(offered, 1), "function");
    json_object_set_new(function, "parameters", json_pack("{s:{}}", "not"));
    assert_int_equal(
        llm_tools_grammar(LLM_TOOLS_LLAMA, NULL, offered, NULL, true, &gbnf, &bytes, why),
        -EOPNOTSUPP);
    assert_non_null(strstr(why, "'noop'"));
    assert_non_null(strstr(why, "\"not\""));
    json_decref(offered);
}

static void a_call_that_never_ends_becomes_content(void **state)
{
    (void)state;
    struct llm_tools *t;
    const char *content;
    size_t bytes, all = 0;
    char text[4096];
    memset(text, 'x', sizeof text);
    assert_int_equal(llm_tools_create(LLM_TOOLS_HERMES, NULL, &t), 0);
    assert_int_equal(llm_tools_feed(t, "<tool_call>{\"", 13, &content, &bytes), 0);
    for (size_t i = 0; i < LLM_TOOL_CALL_BYTES_MAX / sizeof text + 1 && !all; i++) {
        assert_int_equal(llm_tools_feed(t, text, sizeof text, &content, &bytes), 0);
        all += bytes;
    }
    assert_true(all > LLM_TOOL_CALL_BYTES_MAX);
    llm_tools_destroy(t);
}

static void nor_does_the_second_of_a_list(void **state)
{
    (void)state;
    static const char head[] = "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"x\": \"";
    struct llm_tools *t;
    const char *content;
    size_t bytes, all = 0;
    char text[4096];
    memset(text, 'x', sizeof text);
    assert_int_equal(llm_tools_create(LLM_TOOLS_MISTRAL, NULL, &t), 0);
    assert_int_equal(llm_tools_feed(t, head, sizeof head - 1, &content, &bytes), 0);
    for (size_t i = 0; i < LLM_TOOL_CALL_BYTES_MAX / sizeof text + 1 && !all; i++) {
        assert_int_equal(llm_tools_feed(t, text, sizeof text, &content, &bytes), 0);
        all += bytes;
    }
    assert_true(all > LLM_TOOL_CALL_BYTES_MAX);
    assert_int_equal(llm_tools_count(t), 1);
    llm_tools_destroy(t);
}

/* Each opening would have the whole rest read: minutes. */
static void openings_without_calls_do_not_cost_their_square(void **state)
{
    (void)state;
    static const struct {
        enum llm_tools_form form;
        const char *first, *again, *last;
    } cases[] = {
        {LLM_TOOLS_GEMMA, "", "<|tool_call>call:noop{a:", "<tool_call|>"},
        {LLM_TOOLS_GEMMA, "", "<|tool_call>call:noop{a:", ""},
        {LLM_TOOLS_LFM, "", "<|tool_call_start|>[noop(a='", "<|tool_call_end|>"},
        {LLM_TOOLS_HERMES, "", "<tool_call>{\"a\":", ""},
        {LLM_TOOLS_HERMES, "<tool_call>{", "<tool_call>x", ""},
        {LLM_TOOLS_HERMES, "", "<tool_call><function=noop><parameter=a>", "</function>"},
        {LLM_TOOLS_KIMI, "<|tool_call_begin|>{", "<|tool_call_begin|>f:", ""},
        {LLM_TOOLS_MINIMAX_TREE, "", NS "<tool_call>" NS "<invoke name=\"noop\">" NS "<a>1",
         NS "</invoke>"},
    };
    enum { BYTES = 1000000 };
    char *text = malloc(BYTES + 256);
    assert_non_null(text);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct llm_tools *t;
        const char *content;
        size_t bytes, given, length = strlen(cases[i].first), n = strlen(cases[i].again);
        memcpy(text, cases[i].first, length);
        for (; length < BYTES; length += n)
            memcpy(text + length, cases[i].again, n);
        length += (size_t)snprintf(text + length, 100, "%s", cases[i].last);
        assert_int_equal(llm_tools_create(cases[i].form, NULL, &t), 0);
        assert_int_equal(llm_tools_feed(t, text, length, &content, &given), 0);
        assert_memory_equal(content, text, given);
        assert_int_equal(llm_tools_end(t, &content, &bytes), 0);
        assert_memory_equal(content, text + given, bytes);
        assert_int_equal(given + bytes, length);
        assert_int_equal(llm_tools_count(t), 0);
        llm_tools_destroy(t);
    }
    free(text);
}

/* But as long as that costs little. */
static void a_call_may_follow_many_openings(void **state)
{
    (void)state;
    struct llm_tools *t;
    const char *content;
    size_t bytes;
    assert_int_equal(llm_tools_create(LLM_TOOLS_GEMMA, NULL, &t), 0);
    for (int i = 0; i < 10000; i++) {
        static const char text[] = "<|tool_call>call:noop{a:<tool_call|>";
        assert_int_equal(llm_tools_feed(t, text, sizeof text - 1, &content, &bytes), 0);
        assert_int_equal(bytes, sizeof text - 1);
    }
    assert_int_equal(llm_tools_feed(t, "<|tool_call>call:f{}<tool_call|>", 32, &content, &bytes),
                     0);
    assert_int_equal(llm_tools_count(t), 1);
    llm_tools_destroy(t);
}

static void a_template_tells_its_form(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum llm_tools_form form;
    } cases[] = {
        {"x '<tool_call>\\n' y", LLM_TOOLS_HERMES},
        {"[TOOL_CALLS]", LLM_TOOLS_MISTRAL},
        {"[TOOL_CALLS]' + name + '[ARGS]", LLM_TOOLS_MISTRAL_NAMED},
        {"<|python_tag|>", LLM_TOOLS_LLAMA},
        {"<function=", LLM_TOOLS_TAGGED},
        {"<|tool_call|> followed by a JSON list", LLM_TOOLS_GRANITE},
        {"<TOOLCALL>[", LLM_TOOLS_NEMOTRON},
        {"<tool_call> '\\n<tool_calls>['", LLM_TOOLS_APRIEL},
        {"<|START_ACTION|>[ \"parameters\": ", LLM_TOOLS_COMMAND},
        {"<|channel|>analysis<|message|>", LLM_TOOLS_HARMONY},
        {"<｜tool▁sep｜>' + name + '\\n```json", LLM_TOOLS_DEEPSEEK_FENCED},
        {"<｜tool▁sep｜>", LLM_TOOLS_DEEPSEEK},
        {"```json", LLM_TOOLS_NONE},
        {"<tool_call>name<arg_key>", LLM_TOOLS_GLM},
        {"<|im_start|>", LLM_TOOLS_NONE},
        {"in this format:\\n>>>${recipient}", LLM_TOOLS_RECIPIENT},
        {"']<]minimax[>[' ~ '<tool_call>'", LLM_TOOLS_MINIMAX_TREE},
        {"'<|tool_call>call:'", LLM_TOOLS_GEMMA},
        {"\"List of tools: <|tool_list_start|>[\"", LLM_TOOLS_LFM},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(llm_tools_form_of(cases[i].text, strlen(cases[i].text)), cases[i].form);
}

static void running_out_of_memory_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    static const char text[] = "x <tool_call>{\"name\": \"noop\", \"arguments\": {}}</tool_call>";
    json_t *offered = json_loads(tools_text, 0, NULL);
    int err = -ENOMEM;
    for (long granted = 0; err; granted++) {
        struct llm_tools *t = NULL;
        const char *content;
        size_t bytes;
        allocations_left = granted;
        counting = true;
        err = llm_tools_create(LLM_TOOLS_HERMES, offered, &t);
        if (!err)
            err = llm_tools_feed(t, text, sizeof text - 1, &content, &bytes);
        if (!err)
            err = llm_tools_end(t, &content, &bytes);
        counting = false;
        /* Calls within jansson cannot fail here: it is linked as a shared object. */
        assert_true(err == 0 || err == -ENOMEM);
        llm_tools_destroy(t);
        assert_true(granted < 10000);
    }
    json_decref(offered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hermes_writes_tags),
        cmocka_unit_test(llama_writes_json),
        cmocka_unit_test(mistral_writes_a_list),
        cmocka_unit_test(functions_are_tagged),
        cmocka_unit_test(lists_are_tagged),
        cmocka_unit_test(parameters_are_tagged),
        cmocka_unit_test(models_of_other_families_write_calls),
        cmocka_unit_test(a_schema_says_what_a_tagged_value_is),
        cmocka_unit_test(values_of_other_syntaxes_become_json),
        cmocka_unit_test(a_member_may_have_the_name_of_items),
        cmocka_unit_test(values_that_are_too_deep_are_text),
        cmocka_unit_test(an_answer_begins_with_its_recipient),
        cmocka_unit_test(within_content_no_recipient_is_expected),
        cmocka_unit_test(what_is_among_tagged_arguments_makes_them_text),
        cmocka_unit_test(an_id_that_the_template_shows_names_the_function),
        cmocka_unit_test(without_a_form_all_is_content),
        cmocka_unit_test(text_is_held_back_only_while_it_may_be_a_call),
        cmocka_unit_test(arguments_come_out_as_they_are_written),
        cmocka_unit_test(a_grammar_writes_calls_that_are_read_back),
        cmocka_unit_test(a_mark_with_brackets_is_one_token),
        cmocka_unit_test(a_grammar_names_what_it_cannot_write),
        cmocka_unit_test(a_call_that_never_ends_becomes_content),
        cmocka_unit_test(nor_does_the_second_of_a_list),
        cmocka_unit_test(openings_without_calls_do_not_cost_their_square),
        cmocka_unit_test(a_call_may_follow_many_openings),
        cmocka_unit_test(a_template_tells_its_form),
        cmocka_unit_test(running_out_of_memory_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
