/* Each getter reads one field: false after a refusal, which it has written to the error. */
#include "serve/http/request.h"

#include "llm/chat/chat.h"
#include "llm/chat/grammar.h"
#include "llm/model/why.h"
#include "serve/http/forms/translate.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOP_LOGPROBS_MAX = 20 }; /* as OpenAI's servers */

struct reader {
    json_t *root;
    struct http_error *why;
};

static bool refuse(struct reader *in, const char *field, const char *expected)
{
    (void)http_error_set(in->why, 400, field, NULL, "'%s' must be %s", field, expected);
    return false;
}

/* NULL: missing or null. */
static json_t *field(struct reader *in, const char *name)
{
    json_t *value = json_object_get(in->root, name);
    return json_is_null(value) ? NULL : value;
}

static bool get_bool(struct reader *in, const char *name, bool *out)
{
    json_t *value = field(in, name);
    if (value && !json_is_boolean(value))
        return refuse(in, name, "true or false");
    if (value)
        *out = json_is_true(value);
    return true;
}

static bool get_string(struct reader *in, const char *name, const char **out)
{
    json_t *value = field(in, name);
    if (value && !json_is_string(value))
        return refuse(in, name, "a string");
    if (value)
        *out = json_string_value(value);
    return true;
}

static bool get_number(struct reader *in, const char *name, double min, double max, float *out)
{
    char expected[80];
    json_t *value = field(in, name);
    if (!value)
        return true;
    snprintf(expected, sizeof(expected), "a number from %g to %g", min, max);
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= min && number <= max))
        return refuse(in, name, expected);
    *out = (float)number;
    return true;
}

/* Clients of other languages write whole numbers as 3.0. */
static bool whole_number(const json_t *value, int64_t *out)
{
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    double number = json_number_value(value);
    if (!json_is_real(value) || floor(number) != number || fabs(number) > 9e15)
        return false;
    *out = (int64_t)number;
    return true;
}

static bool get_integer(struct reader *in, const char *name, int64_t min, int64_t max, int64_t *out)
{
    char expected[80];
    int64_t number;
    json_t *value = field(in, name);
    if (!value)
        return true;
    snprintf(expected, sizeof(expected), "a whole number from %" PRId64 " to %" PRId64, min, max);
    if (!whole_number(value, &number) || number < min || number > max)
        return refuse(in, name, expected);
    *out = number;
    return true;
}

/* ---- prompts ---- */

static bool read_tokens(struct reader *in, const char *name, const json_t *list,
                        struct http_prompt *out)
{
    size_t count = json_array_size(list);
    out->tokens = calloc(count ? count : 1, sizeof(*out->tokens));
    if (!out->tokens)
        return http_no_memory(in->why);
    for (size_t i = 0; i < count; i++) {
        int64_t token;
        if (!whole_number(json_array_get(list, i), &token) || token < 0 || token > INT32_MAX)
            return refuse(in, name, "made of token numbers");
        out->tokens[i] = (uint32_t)token;
    }
    out->token_count = (uint32_t)count;
    return true;
}

static bool read_prompt(struct reader *in, const char *name, const json_t *value,
                        struct http_prompt *out)
{
    if (json_is_string(value)) {
        *out = (struct http_prompt){.text = json_string_value(value),
                                    .bytes = json_string_length(value)};
        return true;
    }
    if (json_is_array(value))
        return read_tokens(in, name, value, out);
    return refuse(in, name, "a string, a list of strings, or a list of token numbers");
}

static bool read_prompts(struct reader *in, const char *name, uint32_t most, struct http_request *r)
{
    char expected[48];
    json_t *value = field(in, name);
    if (!value)
        return refuse(in, name, "given");
    bool many = json_is_array(value) && json_array_size(value) > 0 &&
                !json_is_number(json_array_get(value, 0));
    size_t count = many ? json_array_size(value) : 1;
    snprintf(expected, sizeof(expected), "a list of at most %u", most);
    if (count > most)
        return refuse(in, name, expected);
    r->prompts = calloc(count, sizeof(*r->prompts));
    if (!r->prompts)
        return http_no_memory(in->why);
    for (size_t i = 0; i < count; i++, r->prompt_count++) {
        if (!read_prompt(in, name, many ? json_array_get(value, i) : value, &r->prompts[i])) {
            free(r->prompts[i].tokens);
            return false;
        }
    }
    return true;
}

/* ---- embeddings ---- */

static bool read_embeddings(struct reader *in, struct http_request *r)
{
    const char *format = "float";
    int64_t dimensions = 0;
    r->n = 1;
    if (!get_string(in, "encoding_format", &format) ||
        !get_integer(in, "dimensions", 1, INT32_MAX, &dimensions))
        return false;
    r->base64 = strcmp(format, "base64") == 0;
    r->dimensions = (uint32_t)dimensions;
    if (!r->base64 && strcmp(format, "float") != 0)
        return refuse(in, "encoding_format", "\"float\" or \"base64\"");
    if (!read_prompts(in, "input", HTTP_INPUTS_MAX, r))
        return false;
    for (uint32_t i = 0; i < r->prompt_count; i++) {
        if (r->prompts[i].text && r->prompts[i].bytes == 0)
            return refuse(in, "input", "made of texts that are not empty");
    }
    return true;
}

/* ---- messages ---- */

static bool read_messages(struct reader *in, struct http_request *r)
{
    char why[LLM_WHY_CHARS];
    r->messages = field(in, "messages");
    if (!json_is_array(r->messages))
        return refuse(in, "messages", "a list of messages");
    if (llm_chat_check(r->messages, r->tools, why) == 0)
        return true;
    (void)http_error_set(in->why, 400, http_request_name(r, "messages"), NULL, "%s", why);
    return false;
}

static const char *tool_name(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

/* Of the tools only those that are allowed stay.  The mode; NULL: it says something else. */
static const json_t *keep_allowed(struct reader *in, const json_t *allowed, struct http_request *r)
{
    json_t *kept = json_array(), *names = json_object_get(allowed, "tools"), *tool;
    size_t i, wanted;
    bool known = kept && json_array_size(names) > 0;
    for (wanted = 0; known && wanted < json_array_size(names); wanted++) {
        const char *name = tool_name(json_array_get(names, wanted));
        known = false;
        json_array_foreach((json_t *)r->tools, i, tool)
        {
            if (name && strcmp(tool_name(tool), name) == 0)
                known = json_array_append(kept, tool) == 0;
        }
    }
    if (json_object_set_new(in->root, "tools", kept) == 0)
        r->tools = kept;
    return known ? json_object_get(allowed, "mode") : NULL;
}

/* After `tools`. */
static bool read_tool_choice(struct reader *in, const json_t *choice, struct http_request *r)
{
    static const char expected[] =
        "\"none\", \"auto\", \"required\", {\"type\": \"function\", \"function\": "
        "{\"name\": ...}} or {\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": ..., "
        "\"tools\": [...]}} with some of 'tools'";
    const json_t *allowed = json_object_get(choice, "allowed_tools");
    if (allowed && !(choice = keep_allowed(in, allowed, r)))
        return refuse(in, "tool_choice", expected);
    const char *word = json_string_value(choice);
    const json_t *function = json_object_get(choice, "function");
    r->must_call_name = json_string_value(json_object_get(function, "name"));
    r->must_call = r->must_call_name || (word && strcmp(word, "required") == 0);
    if (choice && !r->must_call && (!word || (strcmp(word, "none") && strcmp(word, "auto"))))
        return refuse(in, "tool_choice", expected);
    if (r->must_call && r->grammar)
        return refuse(in, "grammar", "left out where 'tool_choice' asks for a call");
    if (r->must_call && !r->tools)
        return refuse(in, "tools", "a list of functions, because 'tool_choice' asks for a call");
    if (word && strcmp(word, "none") == 0)
        r->tools = NULL;
    return true;
}

static bool read_tools(struct reader *in, struct http_request *r)
{
    json_t *tools = field(in, "tools"), *choice = field(in, "tool_choice");
    size_t index;
    json_t *tool;
    if (tools && !json_is_array(tools))
        return refuse(in, "tools", "a list of functions");
    json_array_foreach(tools, index, tool)
    {
        if (!tool_name(tool))
            return refuse(in, "tools",
                          "a list of {\"type\": \"function\", \"function\": {\"name\": ...}}");
    }
    bool some = json_array_size(tools) > 0;
    r->tools = some ? tools : NULL;
    r->parallel_calls = true;
    return read_tool_choice(in, choice, r) &&
           get_bool(in, "parallel_tool_calls", &r->parallel_calls);
}

/* OpenAI's field for what templates know as a variable; one that is given as such stays. */
static bool read_effort(struct reader *in, json_t *variables)
{
    const char *effort = NULL;
    if (!get_string(in, "reasoning_effort", &effort) || !effort)
        return !field(in, "reasoning_effort");
    json_t *all = json_pack("{s:s}", "reasoning_effort", effort);
    (void)json_object_update(all, variables);
    return json_object_set_new(in->root, "chat_template_kwargs", all) == 0 ||
           http_no_memory(in->why);
}

/* As vLLM's and llama.cpp's clients say it. */
static bool read_template(struct reader *in, struct http_request *r)
{
    static const char name[] = "chat_template_kwargs";
    const char *format = "auto";
    json_t *variables = field(in, name);
    if (variables && !json_is_object(variables))
        return refuse(in, name, "an object");
    if (!read_effort(in, variables) || !get_string(in, "reasoning_format", &format) ||
        (r->form > HTTP_RESPONSES && !get_string(in, "prefill", &r->prefill)))
        return false;
    r->variables = field(in, name);
    r->keep_reasoning = strcmp(format, "none") == 0;
    return true;
}

/* ---- sampling ---- */

static bool read_biases(struct reader *in, struct http_request *r)
{
    static const char name[] = "logit_bias";
    static const char expected[] =
        "an object of at most 1024 token numbers, each with a number from -100 to 100";
    json_t *map = field(in, name), *value;
    const char *key;
    if (!map)
        return true;
    size_t count = json_object_size(map);
    if (!json_is_object(map) || count > LLM_BIASES_MAX)
        return refuse(in, name, expected);
    r->biases = calloc(count ? count : 1, sizeof(*r->biases));
    if (!r->biases)
        return http_no_memory(in->why);
    json_object_foreach(map, key, value)
    {
        char *end;
        errno = 0;
        unsigned long token = strtoul(key, &end, 10);
        double bias = json_number_value(value);
        if (key[0] < '0' || key[0] > '9' || *end || errno || token > INT32_MAX ||
            !json_is_number(value) || !(bias >= -100 && bias <= 100))
            return refuse(in, name, expected);
        r->biases[r->sampling.bias_count++] =
            (struct llm_bias){.token = (uint32_t)token, .bias = (float)bias};
    }
    r->sampling.biases = r->biases;
    return true;
}

static bool read_sampling(struct reader *in, struct http_request *r)
{
    struct llm_sampling *s = &r->sampling;
    int64_t top_k = 0, seed = 0;
    *s = (struct llm_sampling){.temperature = 1, .top_p = 1, .repetition = 1};
    bool fine = get_number(in, "temperature", 0, 2, &s->temperature) &&
                get_number(in, "top_p", 0, 1, &s->top_p) &&
                get_number(in, "min_p", 0, 1, &s->min_p) &&
                get_integer(in, "top_k", -1, INT32_MAX, &top_k) &&
                get_number(in, "presence_penalty", -2, 2, &s->presence) &&
                get_number(in, "frequency_penalty", -2, 2, &s->frequency) &&
                get_number(in, "repeat_penalty", 0.01, 100, &s->repetition) && /* llama.cpp's */
                get_number(in, "repetition_penalty", 0.01, 100, &s->repetition) &&
                get_integer(in, "seed", INT64_MIN, INT64_MAX, &seed) && read_biases(in, r);
    s->top_k = top_k < 0 ? 0 : (uint32_t)top_k; /* -1 is vLLM's word for all */
    s->seed = (uint64_t)seed;
    r->has_seed = field(in, "seed") != NULL;
    return fine;
}

/* ---- the rest ---- */

static bool add_stop(struct reader *in, struct http_request *r, const json_t *value)
{
    size_t len = json_string_length(value);
    if (!json_is_string(value) || len == 0 || len > HTTP_STOP_BYTES_MAX ||
        r->stops.count == HTTP_STOPS_MAX)
        return refuse(in, http_request_name(r, "stop"),
                      "a string of 1 to 1024 bytes, or a list of at most 16");
    r->stops.items[r->stops.count].bytes = json_string_value(value);
    r->stops.items[r->stops.count++].len = len;
    return true;
}

/* As vLLM's clients say it. */
static bool read_stop_tokens(struct reader *in, struct http_request *r)
{
    static const char name[] = "stop_token_ids";
    json_t *list = field(in, name);
    if (!get_bool(in, "ignore_eos", &r->ignore_end))
        return false;
    if (!list)
        return true;
    if (!json_is_array(list) || json_array_size(list) > LLM_STOPS_MAX)
        return refuse(in, name, "a list of at most 64 token numbers");
    return read_tokens(in, name, list, &r->stop_tokens);
}

static bool read_stops(struct reader *in, struct http_request *r)
{
    json_t *stop = field(in, "stop"), *item;
    size_t index;
    if (!read_stop_tokens(in, r))
        return false;
    if (!stop)
        return true;
    if (!json_is_array(stop))
        return add_stop(in, r, stop);
    json_array_foreach(stop, index, item)
    {
        if (!add_stop(in, r, item))
            return false;
    }
    return true;
}

static bool read_stream(struct reader *in, struct http_request *r)
{
    json_t *options = field(in, "stream_options");
    if (!get_bool(in, "stream", &r->stream))
        return false;
    if (!options)
        return true;
    if (!json_is_object(options))
        return refuse(in, "stream_options", "an object");
    if (!r->stream)
        return refuse(in, "stream_options", "left out where 'stream' is not true");
    json_t *usage = json_object_get(options, "include_usage");
    if (usage && !json_is_boolean(usage) && !json_is_null(usage))
        return refuse(in, "stream_options.include_usage", "true or false");
    r->include_usage = json_is_true(usage);
    return true;
}

/* Here, and not only at the worker: whose refusal does not say which field is wrong. */
static bool check_grammar(struct reader *in, const char *text)
{
    struct llm_grammar *grammar;
    char why[LLM_WHY_CHARS];
    int rc = llm_grammar_parse(text, strlen(text), &grammar, why);
    if (rc == 0)
        llm_grammar_destroy(grammar);
    else
        (void)http_error_set(in->why, rc == -ENOMEM ? 503 : 400, "grammar", NULL, "%s", why);
    return rc == 0;
}

static bool read_format(struct reader *in, struct http_request *r)
{
    const char *name = http_request_name(r, "response_format");
    json_t *format = field(in, "response_format");
    if (!get_string(in, "grammar", &r->grammar) || (r->grammar && !check_grammar(in, r->grammar)))
        return false;
    if (!format)
        return true;
    const char *type = json_string_value(json_object_get(format, "type"));
    if (type && strcmp(type, "text") == 0) {
        r->format = HTTP_FORMAT_TEXT;
    } else if (type && strcmp(type, "json_object") == 0) {
        r->format = HTTP_FORMAT_JSON;
    } else if (type && strcmp(type, "json_schema") == 0) {
        r->format = HTTP_FORMAT_SCHEMA;
        r->schema = json_object_get(json_object_get(format, "json_schema"), "schema");
        if (!json_is_object(r->schema))
            return refuse(in, http_request_name(r, "response_format.json_schema.schema"),
                          "a schema");
    } else {
        return refuse(in, name, "an object with type \"text\", \"json_object\" or \"json_schema\"");
    }
    if (r->format != HTTP_FORMAT_TEXT && r->grammar)
        return refuse(in, "grammar", "left out where the answer's format is JSON");
    return true;
}

static bool read_logprobs(struct reader *in, struct http_request *r)
{
    int64_t top = 0;
    if (r->api == HTTP_COMPLETIONS) {
        r->logprobs = field(in, "logprobs") != NULL;
        if (!get_integer(in, "logprobs", 0, TOP_LOGPROBS_MAX, &top))
            return false;
    } else if (!get_bool(in, "logprobs", &r->logprobs) ||
               !get_integer(in, "top_logprobs", 0, TOP_LOGPROBS_MAX, &top)) {
        return false;
    } else if (top && !r->logprobs) {
        return refuse(in, "top_logprobs", "left out where 'logprobs' is not true");
    }
    r->top_logprobs = (uint32_t)top;
    return true;
}

/* -1, as llama.cpp's clients say it, is as many as the context holds. */
static bool get_length(struct reader *in, const char *name, int64_t least, int64_t *max)
{
    char expected[80];
    int64_t number;
    json_t *value = field(in, name);
    if (!value)
        return true;
    snprintf(expected, sizeof(expected), "-1 or a whole number from %" PRId64 " to %d", least,
             INT32_MAX);
    if (!whole_number(value, &number) || (number != -1 && number < least) || number > INT32_MAX)
        return refuse(in, name, expected);
    *max = number == -1 ? INT32_MAX : number;
    return true;
}

static bool read_lengths(struct reader *in, struct http_request *r)
{
    int64_t max = r->api == HTTP_COMPLETIONS ? HTTP_MAX_TOKENS_DEFAULT : 0, n = 1;
    if (!get_bool(in, "echo", &r->echo))
        return false;
    if (r->echo && r->api == HTTP_CHAT)
        return refuse(in, "echo", "left out: a chat has no text to repeat");
    int64_t least = r->echo ? 0 : 1; /* the prompt alone is an answer, with its logprobs */
    if (!get_length(in, "n_predict", least, &max) || /* llama.cpp's */
        !get_length(in, "max_tokens", least, &max) ||
        !get_length(in, "max_completion_tokens", least, &max) ||
        (r->form == HTTP_RESPONSES && !get_length(in, "max_output_tokens", least, &max)) ||
        !get_integer(in, "n", 1, HTTP_CHOICES_MAX, &n))
        return false;
    r->max_tokens = (uint32_t)max;
    r->n = (uint32_t)n;
    int64_t best_of = n;
    if (!get_integer(in, "best_of", 1, HTTP_CHOICES_MAX, &best_of))
        return false;
    if (best_of != n)
        return refuse(in, "best_of", "left out, or the same as 'n'");
    return true;
}

/* What only one of the two has. */
static bool read_own(struct reader *in, struct http_request *r)
{
    if (r->api == HTTP_CHAT)
        return read_template(in, r) && read_tools(in, r) && read_messages(in, r);
    if (!read_prompts(in, "prompt", HTTP_CHOICES_MAX, r))
        return false;
    if (r->prompt_count * r->n > HTTP_CHOICES_MAX)
        return refuse(in, "n", "so small that prompts times n is at most 64");
    return true;
}

/* NULL after a refusal. */
static json_t *load(const char *body, size_t bytes, struct http_error *why)
{
    static const char mark[] = "\xef\xbb\xbf"; /* some programs begin UTF-8 with it */
    json_error_t error;
    size_t skip = bytes >= 3 && memcmp(body, mark, 3) == 0 ? 3 : 0;
    (void)http_json_failed(); /* for what was before */
    json_t *json = json_loadb(body + skip, bytes - skip, 0, &error);
    *why = (struct http_error){0};
    if (!json && bytes == skip)
        (void)http_error_set(why, 400, NULL, NULL, "the request has no body: send a JSON object");
    else if (!json && http_json_failed())
        (void)http_no_memory(why);
    else if (!json && json_error_code(&error) == json_error_null_character)
        (void)http_error_set(
            why, 400, NULL, NULL,
            "a string in line %d, column %d of the body has \\u0000, which no text "
            "may have",
            error.line, error.column);
    else if (!json && json_error_code(&error) == json_error_numeric_overflow)
        (void)http_error_set(why, 400, NULL, NULL,
                             "a number in line %d, column %d of the body is too large", error.line,
                             error.column);
    else if (!json)
        (void)http_error_set(why, 400, NULL, NULL,
                             "the body is not JSON: %.160s (line %d, column %d)", error.text,
                             error.line, error.column);
    else if (!json_is_object(json))
        (void)http_error_set(why, 400, NULL, NULL, "the body must be a JSON object");
    if (why->status) {
        json_decref(json);
        return NULL;
    }
    return json;
}

int http_request_parse(const char *body, size_t bytes, enum http_api api, struct http_request *out,
                       struct http_error *why)
{
    struct http_request r = {.json = load(body, bytes, why), .form = api, .api = api};
    if (r.json && api >= HTTP_RESPONSES) {
        r.api = HTTP_CHAT;
        r.asked = r.json;
        r.json = api == HTTP_RESPONSES
                     ? http_responses_to_chat(r.asked, why)
                     : http_messages_to_chat(r.asked, api == HTTP_COUNT_TOKENS, why);
    }
    struct reader in = {.root = r.json, .why = why};
    bool fine = r.json && http_request_is_served(r.asked ? r.asked : r.json, why) &&
                get_string(&in, "model", &r.model) &&
                (api == HTTP_EMBEDDINGS
                     ? read_embeddings(&in, &r)
                     : read_lengths(&in, &r) && read_sampling(&in, &r) && read_logprobs(&in, &r) &&
                           read_stops(&in, &r) && read_stream(&in, &r) && read_format(&in, &r) &&
                           read_own(&in, &r));
    if (http_json_failed()) /* a part of a chat may be missing, whatever was found */
        fine = http_no_memory(why);
    if (!fine) {
        http_request_fini(&r);
        return -1;
    }
    *out = r;
    return 0;
}

void http_request_fini(struct http_request *r)
{
    for (uint32_t i = 0; i < r->prompt_count; i++)
        free(r->prompts[i].tokens);
    free(r->prompts);
    free(r->stop_tokens.tokens);
    free(r->biases);
    json_decref(r->json);
    json_decref(r->asked);
    *r = (struct http_request){0};
}

const char *http_request_name(const struct http_request *r, const char *name)
{
    static const struct {
        const char *name, *of_responses, *of_messages;
    } names[] = {{"messages", "input", "messages"},
                 {"stop", "stop", "stop_sequences"},
                 {"response_format", "text.format", "output_config.format"},
                 {"response_format.json_schema.schema", "text.format.schema",
                  "output_config.format.schema"}};
    for (size_t i = 0; r->asked && i < ARRAY_LEN(names); i++) {
        if (strcmp(name, names[i].name) == 0)
            return r->form == HTTP_RESPONSES ? names[i].of_responses : names[i].of_messages;
    }
    return name;
}

int http_tokenize_parse(const char *body, size_t bytes, bool reverse, struct http_tokenize *out,
                        struct http_error *why)
{
    struct http_tokenize r = {.json = load(body, bytes, why), .add_special = true};
    struct reader in = {.root = r.json, .why = why};
    if (!r.json)
        return -1;
    bool fine =
        get_string(&in, "model", &r.model) && get_bool(&in, "add_special_tokens", &r.add_special);
    /* "prompt" is vLLM's name, "content" llama.cpp's. */
    json_t *value = field(&in, reverse ? "tokens" : "prompt");
    if (!value && !reverse)
        value = field(&in, "content");
    if (fine && reverse)
        fine = json_is_array(value) ? read_tokens(&in, "tokens", value, &r.prompt)
                                    : refuse(&in, "tokens", "a list of token numbers");
    else if (fine && !json_is_string(value))
        fine = refuse(&in, "prompt", "a string");
    else if (fine)
        r.prompt = (struct http_prompt){.text = json_string_value(value),
                                        .bytes = json_string_length(value)};
    if (!fine) {
        http_tokenize_fini(&r);
        return -1;
    }
    *out = r;
    return 0;
}

void http_tokenize_fini(struct http_tokenize *r)
{
    free(r->prompt.tokens);
    json_decref(r->json);
    *r = (struct http_tokenize){0};
}
