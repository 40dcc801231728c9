/* Fields of OpenAI's interface, and of those of vLLM and llama.cpp, that this server does not have
 * and that would be missed in the answer.  Their values that change nothing are taken, since many
 * programs send all fields; other fields that nobody knows are ignored. */
#include "serve/http/request.h"

#include "base/attr.h"

#include <math.h>
#include <string.h>

#define ALWAYS 1, 0 /* no value is harmless */
#define UNLESS_0 0, 0
#define UNLESS_1 1, 1
#define ABOVE_0 -INFINITY, 0
#define BELOW_1 1, INFINITY

static const char by_format[] = "left out: use 'response_format' or 'grammar'";
static const char by_bias[] = "left out: use 'logit_bias'";
static const char not_sampled[] = "left out: this server does not sample in that way";
static const char no_numbers[] = "left out: ask for 'logprobs', or /tokenize the text";

static const struct {
    const char *name;
    double from, to; /* values that are harmless, as value_of tells */
    const char *expected;
} fields[] = {
    {"functions", UNLESS_0, "left out: use 'tools'"},
    {"function_call", ALWAYS, "left out: use 'tool_choice'"},
    {"suffix", UNLESS_0, "left out: this server only continues a text"},
    {"web_search_options", ALWAYS, "left out: this server does not search"},
    /* vLLM's */
    {"min_tokens", UNLESS_0, "0, or left out: 'ignore_eos' gives a text of 'max_tokens' tokens"},
    {"use_beam_search", UNLESS_0, not_sampled},
    {"logits_processors", UNLESS_0, not_sampled},
    {"allowed_token_ids", UNLESS_0, by_bias},
    {"bad_words", UNLESS_0, by_bias},
    {"include_stop_str_in_output", UNLESS_0, "left out: a stop text is never shown"},
    {"skip_special_tokens", UNLESS_1, "true, or left out: control tokens are never shown"},
    {"truncate_prompt_tokens", ALWAYS, "left out: send a shorter prompt"},
    {"prompt_logprobs", ALWAYS, "left out: a completion has them with 'echo' and 'logprobs'"},
    {"return_token_ids", UNLESS_0, no_numbers},
    {"return_tokens_as_token_ids", UNLESS_0, no_numbers},
    {"structured_outputs", UNLESS_0, by_format},
    {"guided_json", UNLESS_0, by_format},
    {"guided_regex", UNLESS_0, by_format},
    {"guided_choice", UNLESS_0, by_format},
    {"guided_grammar", UNLESS_0, by_format},
    {"chat_template", UNLESS_0, "left out: the model's own is used"},
    {"documents", UNLESS_0, "left out: send them in 'messages' or 'chat_template_kwargs'"},
    {"add_generation_prompt", UNLESS_1, "true, or left out"},
    {"continue_final_message", UNLESS_0, "left out: /v1/messages continues an answer"},
    /* llama.cpp's */
    {"json_schema", UNLESS_0, by_format},
    {"typical_p", BELOW_1, not_sampled},
    {"tfs_z", BELOW_1, not_sampled},
    {"top_a", UNLESS_0, not_sampled},
    {"top_n_sigma", ABOVE_0, not_sampled},
    {"mirostat", UNLESS_0, not_sampled},
    {"dynatemp_range", UNLESS_0, not_sampled},
    {"dry_multiplier", UNLESS_0, not_sampled},
    {"xtc_probability", UNLESS_0, not_sampled},
    {"n_probs", UNLESS_0, "left out: use 'logprobs'"},
    {"return_tokens", UNLESS_0, no_numbers},
    {"n_indent", UNLESS_0, "left out: use 'grammar'"},
    {"t_max_predict_ms", ABOVE_0, "left out: use 'max_tokens', or close the connection"},
    {"image_data", UNLESS_0, "left out: this server reads text only"},
    {"lora", UNLESS_0, "left out: this server applies no adapters"},
};

/* Of a text, a list or an object, its length. */
static double value_of(const json_t *value)
{
    if (json_is_number(value))
        return json_number_value(value);
    if (json_is_boolean(value))
        return json_is_true(value);
    return (double)(json_string_length(value) + json_array_size(value) + json_object_size(value));
}

bool http_request_is_served(const json_t *asked, struct http_error *why)
{
    static const char refusal[] = "'%s' must be %s";
    const json_t *modalities = json_object_get(asked, "modalities");
    const char *modality = json_string_value(json_array_get(modalities, 0));
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const json_t *value = json_object_get(asked, fields[i].name);
        bool harmless = !value || json_is_null(value) ||
                        (value_of(value) >= fields[i].from && value_of(value) <= fields[i].to);
        if (!harmless)
            return http_error_set(why, 400, fields[i].name, NULL, refusal, fields[i].name,
                                  fields[i].expected) == 0;
    }
    if (modalities && !json_is_null(modalities) &&
        (json_array_size(modalities) != 1 || !modality || strcmp(modality, "text") != 0))
        return http_error_set(why, 400, "modalities", NULL, refusal, "modalities",
                              "[\"text\"], or left out: this server answers with text") == 0;
    return true;
}
