/* Messages to a prompt. */
#include "serve/http/impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void http_chat_load(struct http_model *m)
{
    m->chat = NULL;
}

void http_chat_free(struct http_model *m)
{
    (void)m;
}

/* Of a model without a template: ChatML, which most models have seen. */
static int render_plain(const struct http_request *r, FILE *out)
{
    size_t index;
    json_t *message;
    json_array_foreach(r->messages, index, message)
    {
        json_t *content = json_object_get(message, "content");
        fprintf(out, "<|im_start|>%s\n", json_string_value(json_object_get(message, "role")));
        fwrite(json_string_value(content), 1, json_string_length(content), out);
        fputs("<|im_end|>\n", out);
    }
    fputs("<|im_start|>assistant\n", out);
    return ferror(out);
}

int http_chat_render(const struct http_model *m, const struct http_request *r, char **text,
                     size_t *bytes, struct http_error *why)
{
    char *prompt = NULL;
    size_t len = 0;
    (void)m;
    FILE *out = open_memstream(&prompt, &len);
    int failed = out ? render_plain(r, out) : -1;
    if (out && fclose(out))
        failed = -1;
    if (failed) {
        free(prompt);
        return http_error_set(why, 500, NULL, NULL, "out of memory");
    }
    *text = prompt;
    *bytes = len;
    return 0;
}
