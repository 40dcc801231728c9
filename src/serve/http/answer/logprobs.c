/* Logarithms of probability in an answer.  json_pack's "o" takes a reference, also when it fails.
 */
#include "serve/http/impl.h"

#include <math.h>
#include <stdlib.h>

static json_t *token_string(const struct http_model *m, uint32_t token)
{
    size_t bytes, len;
    const char *piece = llm_vocab_piece(m->vocab, token, false, &bytes);
    char *clean = http_text_clean(piece, bytes, &len);
    json_t *string = clean ? json_stringn(clean, len) : NULL;
    free(clean);
    return string;
}

static json_t *token_bytes(const struct http_model *m, uint32_t token)
{
    size_t bytes;
    const char *piece = llm_vocab_piece(m->vocab, token, false, &bytes);
    json_t *list = json_array();
    for (size_t i = 0; i < bytes; i++)
        json_array_append_new(list, json_integer((unsigned char)piece[i]));
    return list;
}

static json_t *chat_logprob(const struct http_model *m, uint32_t token, float logprob)
{
    return json_pack("{s:o, s:f, s:o}", "token", token_string(m, token), "logprob", (double)logprob,
                     "bytes", token_bytes(m, token));
}

json_t *http_chat_logprobs(const struct http_choice *choice, uint32_t from, uint32_t to)
{
    const struct http_model *m = choice->sequence.model;
    json_t *content = json_array();
    for (uint32_t i = from; i < to; i++) {
        const struct http_logprob *entry = &choice->logprobs[i];
        json_t *top = json_array();
        for (uint32_t t = 0; t < entry->top_count; t++)
            json_array_append_new(top, chat_logprob(m, entry->top[t].token, entry->top[t].logprob));
        json_t *item = chat_logprob(m, entry->token, entry->logprob);
        json_object_set_new(item, "top_logprobs", top);
        json_array_append_new(content, item);
    }
    return content;
}

/* Of several tokens with the same text the likeliest counts. */
static json_t *top_logprobs(const struct http_model *m, const struct http_logprob *entry)
{
    json_t *top = json_object();
    for (uint32_t t = 0; t < entry->top_count; t++) {
        json_t *name = token_string(m, entry->top[t].token);
        if (name && !json_object_get(top, json_string_value(name)))
            json_object_set_new(top, json_string_value(name),
                                json_real((double)entry->top[t].logprob));
        json_decref(name);
    }
    return top;
}

/* The older form, of completions: parallel lists. */
json_t *http_text_logprobs(const struct http_choice *choice, uint32_t from, uint32_t to)
{
    const struct http_model *m = choice->sequence.model;
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array(),
           *offsets = json_array();
    for (uint32_t i = from; i < to; i++) {
        const struct http_logprob *entry = &choice->logprobs[i];
        bool none = isnan(entry->logprob);
        json_array_append_new(tokens, token_string(m, entry->token));
        json_array_append_new(values, none ? json_null() : json_real((double)entry->logprob));
        json_array_append_new(tops, none ? json_null() : top_logprobs(m, entry));
        json_array_append_new(offsets, json_integer((json_int_t)entry->offset));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values,
                     "top_logprobs", tops, "text_offset", offsets);
}

uint32_t http_logprobs_due(const struct http_choice *choice, uint32_t from, size_t shown, bool last)
{
    uint32_t i = from;
    while (i < choice->logprob_count &&
           (i < choice->prompt_logprobs || choice->logprobs[i].start < shown ||
            (last && !choice->text.stopped)))
        i++;
    return i;
}
