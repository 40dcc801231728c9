/* A chat template that a model file gives, with the conversation of the corpus. */
#include "fuzz.h"

#include "llm/chat/template.h"

#include <string.h>

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": "
    "\"h\\u00e9 {}\"}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": "
    "\"1\", "
    "\"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, true, null]}}}]}], \"tools\": "
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}], "
    "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"time_now\": 1753500000}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *variables;
    char why[LLM_WHY_CHARS], *out;
    struct llm_template *t;
    size_t bytes;
    if (!variables)
        variables = json_loads(conversation, 0, NULL);
    if (llm_template_parse((const char *)data, size, &t, why))
        return 0;
    if (!llm_template_render(t, variables, &out, &bytes, why)) {
        require(bytes <= LLM_TEMPLATE_OUTPUT_MAX && out[bytes] == 0);
        free(out);
    }
    llm_template_free(t);
    return 0;
}
