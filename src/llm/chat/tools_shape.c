#include "llm/chat/tools_shape.h"

#include <string.h>

/* Calls that a grammar makes of a form whose own arguments are no JSON. */
#define OBJECT "{\"name\": \"\1\", \"arguments\": \2}"

static const struct tools_shape shapes[] = {
    [LLM_TOOLS_NONE] = {.open = {NULL}},
    /* OpenAI's gpt-oss: a header of a message names the function. */
    [LLM_TOOLS_HARMONY] = {.tells = {"<|channel|>analysis"},
                           .open = {"<|channel|>commentary", "<|channel|>analysis",
                                    " to=functions."},
                           .heads = {"\1\4<|message|>"},
                           .close = {"<|call|>"},
                           .call = "<|channel|>commentary to=functions.\1 <|constrain|>json"
                                   "<|message|>\2"},
    [LLM_TOOLS_DSML] = {.tells = {"DSML"}, /* DeepSeek V3.2 and V4 */
                        .open = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>",
                                 "<｜DSML｜invoke name=\""},
                        .heads = {"\1\">"},
                        .tag = "<｜DSML｜parameter name=\"\3\"\4>\2</｜DSML｜parameter>",
                        .tag_end = "</｜DSML｜invoke>",
                        .close = {"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"},
                        .begin = "<｜DSML｜function_calls>",
                        .call = OBJECT,
                        .between = "\n",
                        .end = "</｜DSML｜function_calls>"},
    [LLM_TOOLS_DEEPSEEK_FENCED] = {.tells = {"<｜tool▁sep｜>", "```json"}, /* V3, R1 */
                                   .open = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
                                   .heads = {"function<｜tool▁sep｜>\1 ```json",
                                             "\1<｜tool▁sep｜>"},
                                   .close = {"```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
                                   .begin = "<｜tool▁calls▁begin｜>",
                                   .call =
                                       "<｜tool▁call▁begin｜>function<｜tool▁sep｜>\1\n```json\n"
                                       "\2\n```<｜tool▁call▁end｜>",
                                   .between = "\n",
                                   .end = "<｜tool▁calls▁end｜>"},
    [LLM_TOOLS_DEEPSEEK] = {.tells = {"<｜tool▁sep｜>"}, /* V3.1 */
                            .open = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
                            .heads = {"function<｜tool▁sep｜>\1 ```json", "\1<｜tool▁sep｜>"},
                            .close = {"```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
                            .begin = "<｜tool▁calls▁begin｜>",
                            .call = "<｜tool▁call▁begin｜>\1<｜tool▁sep｜>\2<｜tool▁call▁end｜>",
                            .between = "",
                            .end = "<｜tool▁calls▁end｜>"},
    [LLM_TOOLS_KIMI] = {.tells = {"<|tool_call_begin|>"},
                        .open = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
                        .heads = {"functions.\1:\4<|tool_call_argument_begin|>",
                                  "\1:\4<|tool_call_argument_begin|>"},
                        .close = {"<|tool_call_end|>", "<|tool_calls_section_end|>"},
                        .id = "functions.\1:\2", /* its template shows the id in place of a name */
                        .begin = "<|tool_calls_section_begin|>",
                        .call = "<|tool_call_begin|>functions.\1:0<|tool_call_argument_begin|>\2"
                                "<|tool_call_end|>",
                        .between = "",
                        .end = "<|tool_calls_section_end|>"},
    [LLM_TOOLS_KIMI_TAGGED] = {.tells = {"<|open|>", "<|sep|>"}, /* K3 */
                               .open = {"<|open|>tools<|sep|>", "<|open|>call tool=\""},
                               .heads = {"\1\"\4<|sep|>"},
                               .tag = "<|open|>argument key=\"\3\"\4<|sep|>\2"
                                      "<|close|>argument<|sep|>",
                               .tag_end = "<|close|>call<|sep|>",
                               .close = {"<|close|>tools<|sep|>", "<|close|>message<|sep|>"},
                               .begin = "<|open|>tools<|sep|>",
                               .call = OBJECT,
                               .between = "\n",
                               .end = "<|close|>tools<|sep|>"},
    [LLM_TOOLS_SOLAR] = {.tells = {"<|tool_call:begin|>"},
                         .open = {"<|tool_calls|>", "<|tool_call:begin|>"},
                         .heads = {"\4<|tool_call:name|>\1<|tool_call:args|>"},
                         .close = {"<|tool_call:end|>", "<|calls|>"},
                         .begin = "<|tool_calls|>",
                         .call = "<|tool_call:begin|>0<|tool_call:name|>\1<|tool_call:args|>\2"
                                 "<|tool_call:end|>",
                         .between = ""},
    [LLM_TOOLS_HUNYUAN] = {.tells = {":opensource"},
                           .open = {"<tool_calls:opensource>", "<tool_call:opensource>"},
                           .heads = {"\1<tool_sep:opensource>"},
                           .tag = "<arg_key:opensource>\3</arg_key:opensource> "
                                  "<arg_value:opensource>\2</arg_value:opensource>",
                           .tag_end = "</tool_call:opensource>",
                           .close = {"</tool_calls:opensource>"},
                           .begin = "<tool_calls:opensource>",
                           .call = OBJECT,
                           .between = "\n",
                           .end = "</tool_calls:opensource>"},
    [LLM_TOOLS_GLM] = {.tells = {"<arg_key>"}, /* Laguna, too */
                       .open = {"<tool_call>"},
                       .heads = {"\1"},
                       .tag = "<arg_key>\3</arg_key> <arg_value>\2</arg_value>",
                       .tag_end = "</tool_call>",
                       .close = {"</tool_call>"},
                       .call = "<tool_call>" OBJECT "</tool_call>",
                       .between = "\n"},
    [LLM_TOOLS_MINIMAX_TREE] = {.tells = {"]<]minimax[>["}, /* M3 */
                                .open = {"]<]minimax[>[<tool_call>",
                                         "]<]minimax[>[<invoke name=\""},
                                .heads = {"\1\">"},
                                .tree = "]<]minimax[>[",
                                .tag_end = "]<]minimax[>[</invoke>",
                                .close = {"]<]minimax[>[</tool_call>"},
                                .begin = "]<]minimax[>[<tool_call>",
                                .call = OBJECT,
                                .between = "\n",
                                .end = "]<]minimax[>[</tool_call>"},
    [LLM_TOOLS_MINIMAX] = {.tells = {"<minimax:tool_call>"},
                           .open = {"<minimax:tool_call>", "<invoke name=\""},
                           .heads = {"\1\">"},
                           .tag = "<parameter name=\"\3\">\2</parameter>",
                           .tag_end = "</invoke>",
                           .close = {"</minimax:tool_call>"},
                           .begin = "<minimax:tool_call>",
                           .call = OBJECT,
                           .between = "\n",
                           .end = "</minimax:tool_call>"},
    [LLM_TOOLS_SEED] = {.tells = {"<seed:tool_call>"},
                        .open = {"<seed:tool_call>"},
                        .heads = {"<function=\1>"},
                        .tag = "<parameter=\3>\2</parameter>",
                        .tag_end = "</function>",
                        .close = {"</function>", "</seed:tool_call>"},
                        .call = "<seed:tool_call>" OBJECT "</seed:tool_call>",
                        .between = "\n"},
    [LLM_TOOLS_MINICPM] = {.tells = {"<function name=\"", "<param name=\""},
                           .open = {"<function name=\""},
                           .heads = {"\1\">"},
                           .tag = "<param name=\"\3\">\2</param>",
                           .tag_end = "</function>",
                           .close = {"</function>"},
                           .call = "<function name=\"\1\">\2</function>",
                           .between = "\n"},
    [LLM_TOOLS_GEMMA] = {.tells = {"<|tool_call>"}, /* 4 */
                         .open = {"<|tool_call>"},
                         .heads = {"call:\1{"},
                         .loose = "}<|\"|>",
                         .close = {"<tool_call|>", "<|tool_response>"},
                         .call = "<|tool_call>" OBJECT "<tool_call|>",
                         .between = ""},
    [LLM_TOOLS_LFM] = {.tells = {"List of tools: "},
                       .open = {"<|tool_call_start|>"},
                       .heads = {"\1("},
                       .loose = ")",
                       .close = {"<|tool_call_end|>"},
                       .list = true,
                       .begin = "<|tool_call_start|>[",
                       .call = OBJECT,
                       .between = ", ",
                       .end = "]<|tool_call_end|>"},
    [LLM_TOOLS_APERTUS] = {.tells = {"<|tools_prefix|>"},
                           .open = {"<|tools_prefix|>"},
                           .heads = {"{ \"\1\" :"},
                           .close = {"<|tools_suffix|>"},
                           .list = true,
                           .begin = "<|tools_prefix|>[",
                           .call = "{\"\1\": \2}",
                           .between = ", ",
                           .end = "]<|tools_suffix|>"},
    [LLM_TOOLS_GIGACHAT] = {.tells = {"<|message_sep|>"},
                            .open = {"<|message_sep|>", "function call<|role_sep|>",
                                     "<|function_call|>"},
                            .close = {"<|message_sep|>"},
                            .call = "<|function_call|>" OBJECT},
    [LLM_TOOLS_APRIEL] = {.tells = {"<tool_calls>["},
                          .open = {"<tool_calls>"},
                          .close = {"</tool_calls>"},
                          .list = true,
                          .begin = "<tool_calls>[",
                          .call = OBJECT,
                          .between = ", ",
                          .end = "]</tool_calls>"},
    [LLM_TOOLS_HERMES] = {.tells = {"<tool_call>"},
                          .open = {"<tool_call>"},
                          .heads = {"<function=\1>"}, /* Qwen 3 Coder */
                          .tag = "<parameter=\3>\2</parameter>",
                          .tag_end = "</function>",
                          .close = {"</function>", "</tool_call>"},
                          .list = true,
                          .call = "<tool_call>\n" OBJECT "\n</tool_call>",
                          .between = "\n"},
    [LLM_TOOLS_LINES] = {.tells = {"<tool_calls>"}, /* MiniMax M1 */
                         .open = {"<tool_calls>"},
                         .close = {"</tool_calls>"},
                         .list = true,
                         .begin = "<tool_calls>\n",
                         .call = OBJECT,
                         .between = "\n",
                         .end = "\n</tool_calls>"},
    [LLM_TOOLS_MISTRAL_NAMED] = {.tells = {"[ARGS]"},
                                 .open = {"[TOOL_CALLS]"},
                                 .heads = {"\1[ARGS]", "\1[CALL_ID]\4[ARGS]"},
                                 .list = true,
                                 .call = "[TOOL_CALLS]\1[ARGS]\2",
                                 .between = ""},
    [LLM_TOOLS_MISTRAL] = {.tells = {"[TOOL_CALLS]"},
                           .open = {"[TOOL_CALLS]"},
                           .heads = {"\1[ARGS]", "\1[CALL_ID]\4[ARGS]"},
                           .list = true,
                           .begin = "[TOOL_CALLS][",
                           .call = "{\"name\": \"\1\", \"arguments\": \2\3}",
                           .between = ", ",
                           .end = "]"},
    [LLM_TOOLS_TAGGED] = {.tells = {"<function="},
                          .open = {"<function="},
                          .heads = {"\1>"},
                          .close = {"</function>"},
                          .call = "<function=\1>\2</function>",
                          .between = "\n"},
    [LLM_TOOLS_GRANITE] = {.tells = {"<|tool_call|>"}, /* Phi-4 mini, too, which closes it */
                           .open = {"<|tool_call|>"},
                           .close = {"<|/tool_call|>"},
                           .list = true,
                           .begin = "<|tool_call|>[",
                           .call = OBJECT,
                           .between = ", ",
                           .end = "]"},
    [LLM_TOOLS_NEMOTRON] = {.tells = {"<TOOLCALL>"},
                            .open = {"<TOOLCALL>"},
                            .close = {"</TOOLCALL>"},
                            .list = true,
                            .begin = "<TOOLCALL>[",
                            .call = OBJECT,
                            .between = ", ",
                            .end = "]</TOOLCALL>"},
    [LLM_TOOLS_FUNCTOOLS] = {.tells = {"functools["}, /* Firefunction */
                             .open = {"functools"},
                             .list = true,
                             .begin = "functools[",
                             .call = OBJECT,
                             .between = ", ",
                             .end = "]"},
    [LLM_TOOLS_COMMAND] = {.tells = {"<|START_ACTION|>"},
                           .open = {"<|START_ACTION|>"},
                           .close = {"<|END_ACTION|>"},
                           .list = true,
                           .begin = "<|START_ACTION|>[\n",
                           .call = "    {\"tool_call_id\": \"0\", \"tool_name\": \"\1\", "
                                   "\"parameters\": \2}",
                           .between = ",\n",
                           .end = "\n]<|END_ACTION|>"},
    [LLM_TOOLS_COMMAND_FENCED] = {.tells = {"Action:", "```json"}, /* Command R+ */
                                  .open = {"Action:", "```json"},
                                  .close = {"```"},
                                  .list = true,
                                  .begin = "Action:\n```json\n[\n",
                                  .call = "    {\n        \"tool_name\": \"\1\",\n        "
                                          "\"parameters\": \2\n    }",
                                  .between = ",\n",
                                  .end = "\n]```"},
    [LLM_TOOLS_RECIPIENT] = {.tells = {">>>${recipient}"}, /* Functionary 3.2 */
                             .open = {">>>"},
                             .heads = {"\1\n"},
                             .prompt = ">>>",
                             .text = ">>>all\n",
                             .call = "\1\n\2",
                             .between = ">>>"},
    /* Its templates refuse an answer with several calls. */
    [LLM_TOOLS_LLAMA] = {.tells = {"<|python_tag|>", "\"parameters\": "},
                         .tells_alone = true,
                         .open = {"<|python_tag|>"},
                         .list = true,
                         .whole_text = true,
                         .call = "{\"name\": \"\1\", \"parameters\": \2}"},
};

const struct tools_shape *llm_tools_shape(enum llm_tools_form form)
{
    return &shapes[form];
}

static bool is_told(const struct tools_shape *shape, const char *text, size_t bytes)
{
    size_t marks = 0, found = 0;
    for (; marks < ARRAY_LEN(shape->tells) && shape->tells[marks]; marks++)
        found += memmem(text, bytes, shape->tells[marks], strlen(shape->tells[marks])) != NULL;
    return shape->tells_alone ? found > 0 : found == marks;
}

bool llm_tools_marks_text(enum llm_tools_form form)
{
    return shapes[form].text != NULL;
}

enum llm_tools_form llm_tools_form_of(const char *text, size_t bytes)
{
    for (enum llm_tools_form form = LLM_TOOLS_NONE + 1; form < LLM_TOOLS_FORMS; form++) {
        if (is_told(&shapes[form], text, bytes))
            return form;
    }
    return LLM_TOOLS_NONE;
}
