/* Bodies of hostile HTTP clients: read as each request that the front takes. */
#include "fuzz.h"
#include "serve/http/request.h"

#include <string.h>

static void check(const struct http_request *r)
{
    require(r->n >= 1 && r->n <= HTTP_CHOICES_MAX);
    if (r->api == HTTP_EMBEDDINGS) {
        require(r->prompt_count >= 1 && r->prompt_count <= HTTP_INPUTS_MAX);
        return;
    }
    require(r->api == HTTP_CHAT || (r->prompt_count && r->prompt_count * r->n <= HTTP_CHOICES_MAX));
    require(r->stops.count <= HTTP_STOPS_MAX && r->top_logprobs <= 20);
    require(r->sampling.temperature >= 0 && r->sampling.top_p >= 0 && r->sampling.top_p <= 1);
    require(r->sampling.bias_count <= LLM_BIASES_MAX);
    for (size_t i = 0; i < r->stops.count; i++)
        require(r->stops.items[i].len > 0 && r->stops.items[i].bytes);
}

/* A refusal says why, as JSON that holds any bytes. */
static void check_refusal(const struct http_error *why)
{
    require(why->status >= 400 && why->message[0]);
    for (int anthropic = 0; anthropic < 2; anthropic++) {
        json_t *json = http_error_json(why, anthropic);
        require(json != NULL);
        json_decref(json);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_request r;
    struct http_tokenize t;
    struct http_error why;
    for (int api = HTTP_COMPLETIONS; api <= HTTP_COUNT_TOKENS; api++) {
        if (http_request_parse((const char *)data, size, (enum http_api)api, &r, &why)) {
            check_refusal(&why);
            continue;
        }
        check(&r);
        http_request_fini(&r);
    }
    for (int reverse = 0; reverse < 2; reverse++) {
        if (http_tokenize_parse((const char *)data, size, reverse, &t, &why))
            check_refusal(&why);
        else
            http_tokenize_fini(&t);
    }
    return 0;
}
