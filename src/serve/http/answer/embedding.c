/* The answer of /v1/embeddings.  Written without a JSON tree: a batch has millions of numbers. */
#include "serve/http/impl.h"

#include "base/text/base64.h"
#include "base/text/gather.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 9 digits tell any binary32 from its neighbours. */
static void put_numbers(FILE *out, const float *vector, uint32_t width)
{
    fputc('[', out);
    for (uint32_t i = 0; i < width; i++)
        fprintf(out, "%s%.9g", i ? "," : "", (double)vector[i]);
    fputc(']', out);
}

/* Little-endian binary32. */
static int put_base64(FILE *out, const float *vector, uint32_t width)
{
    uint8_t *bytes = malloc((size_t)width * 4);
    char *text = malloc(HW_BASE64_CHARS((size_t)width * 4));
    int rc = bytes && text ? 0 : -1;
    for (uint32_t i = 0; i < width && rc == 0; i++) {
        uint32_t bits;
        memcpy(&bits, &vector[i], sizeof bits);
        for (unsigned b = 0; b < 4; b++)
            bytes[4 * i + b] = (uint8_t)(bits >> 8 * b);
    }
    if (rc == 0) {
        hw_base64_encode(bytes, (size_t)width * 4, text);
        fprintf(out, "\"%s\"", text);
    }
    free(text);
    free(bytes);
    return rc;
}

static int put_one(FILE *out, const struct http_choice *choice)
{
    const struct http_sequence *s = &choice->sequence;
    int rc = 0;
    fprintf(out,
            "%s{\"object\":\"embedding\",\"index\":%u,\"embedding\":", choice->index ? "," : "",
            choice->index);
    if (choice->exchange->request.base64)
        rc = put_base64(out, s->vector, s->width);
    else
        put_numbers(out, s->vector, s->width);
    fputc('}', out);
    return rc;
}

char *http_answer_embeddings(const struct http_exchange *x, size_t *len)
{
    struct hw_gathered text;
    char *name = NULL;
    FILE *out = hw_gather(&text);
    json_t *model = json_string(x->model->name);
    int rc = out && model ? 0 : -1;
    if (rc == 0)
        name = json_dumps(model, JSON_ENCODE_ANY);
    if (rc == 0 && name) {
        fprintf(out, "{\"object\":\"list\",\"model\":%s,\"data\":[", name);
        for (uint32_t i = 0; i < x->choice_count && rc == 0; i++)
            rc = put_one(out, &x->choices[i]);
        fprintf(out, "],\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%u}}", x->prompt_tokens,
                x->prompt_tokens);
    }
    if (hw_gather_end(out, &text) == 0 && (rc || !name)) {
        free(text.text);
        text = (struct hw_gathered){.text = NULL};
    }
    free(name);
    json_decref(model);
    *len = text.len;
    return text.text;
}
