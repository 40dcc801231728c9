/* Messages to a prompt, by the template that the model's file holds. */
#include "serve/http/impl.h"

#include "llm/chat/template.h"
#include "llm/model/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of a model without a template: ChatML, which most models have seen. */
static const char plain[] = "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
                            "{{ message['content'] }}<|im_end|>\n{% endfor %}"
                            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

void http_chat_load(struct http_model *m)
{
    char why[LLM_WHY_CHARS];
    struct gguf_string text = {.text = plain, .bytes = sizeof plain - 1};
    const struct gguf *metadata = m->file ? llm_file_metadata(m->file) : NULL;
    int rc = metadata ? gguf_get_string(metadata, "tokenizer.chat_template", &text, why) : -ENOENT;
    if (rc == 0 || rc == -ENOENT)
        rc = llm_template_parse(text.text, text.bytes, &m->chat, m->no_chat);
    else
        memcpy(m->no_chat, why, sizeof(why));
    if (rc)
        m->chat = NULL;
}

void http_chat_free(struct http_model *m)
{
    llm_template_free(m->chat);
}

int http_chat_render(const struct http_model *m, const struct http_request *r, char **text,
                     size_t *bytes, struct http_error *why)
{
    char problem[LLM_WHY_CHARS] = "";
    if (!m->chat)
        return http_error_set(why, 400, "model", NULL,
                              "the model's chat template cannot be used: %.300s; ask with "
                              "/v1/completions",
                              m->no_chat);
    json_t *variables =
        json_pack("{s:O, s:b, s:s, s:s, s:I}", "messages", r->messages, "add_generation_prompt", 1,
                  "bos_token", m->bos, "eos_token", m->eos, "time_now", (json_int_t)time(NULL));
    if (variables && r->tools)
        json_object_set(variables, "tools", (json_t *)r->tools);
    int rc = variables ? llm_template_render(m->chat, variables, text, bytes, problem) : -ENOMEM;
    json_decref(variables);
    if (rc == 0)
        return 0;
    if (rc == -ENOMEM)
        return http_error_set(why, 500, NULL, NULL, "out of memory");
    return http_error_set(why, 400, "messages", NULL,
                          "the model's chat template does not take these messages: %.300s",
                          problem);
}
