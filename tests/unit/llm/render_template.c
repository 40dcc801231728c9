/* Renders templates for jinja_test.py: a line of JSON in, {"template", "variables"}; a line out,
 * {"text"} or {"error", "code"}. */
#include "llm/chat/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *answer(const json_t *request)
{
    char why[LLM_WHY_CHARS] = "", *text = NULL;
    size_t bytes = 0;
    struct llm_template *t = NULL;
    const json_t *template = json_object_get(request, "template");
    int err =
        llm_template_parse(json_string_value(template), json_string_length(template), &t, why);
    if (!err)
        err = llm_template_render(t, json_object_get(request, "variables"), &text, &bytes, why);
    llm_template_free(t);
    json_t *result = err ? json_pack("{s:s, s:i}", "error", why, "code", err)
                         : json_pack("{s:s%}", "text", text, bytes);
    free(text);
    return result;
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        json_t *request = json_loads(line, JSON_ALLOW_NUL, NULL);
        json_t *result = answer(request);
        json_dumpf(result, stdout, 0);
        putchar('\n');
        fflush(stdout);
        json_decref(result);
        json_decref(request);
    }
    free(line);
    return 0;
}
