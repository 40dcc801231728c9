#include "serve/http/stats.h"

#include <string.h>

static const struct hw_counter_def defs[HTTP_COUNTS] = {
    {"http_texts", "texts begun for HTTP clients", "", HW_COUNTER},
    {"http_texts_stopped", "of these: ended by the model or a stop string", "", HW_COUNTER},
    {"http_texts_full", "of these: ended at max_tokens or at the end of the context", "",
     HW_COUNTER},
    {"http_texts_left", "of these: given up by their client", "", HW_COUNTER},
    {"http_texts_failed", "of these: ended with an error", "", HW_COUNTER},
    {"http_prompt_tokens", "tokens of prompts", "", HW_COUNTER},
    {"http_prompt_tokens_cached",
     "of these: a worker had their KV; not known of texts that a stop string or their client ended",
     "", HW_COUNTER},
    {"http_generated_tokens", "tokens generated for HTTP clients", "", HW_COUNTER},
    {"http_texts_moved", "times that a text went on at another worker", "", HW_COUNTER},
    {"http_texts_running", "texts that a worker has now", "", HW_GAUGE},
    {"http_texts_waiting", "texts that wait for a worker now", "", HW_GAUGE},
};

/* The same under the names of vLLM's exporter. */
static const struct alias {
    const char *name, *type, *help, *labels;
    enum http_count count;
} aliases[] = {
    {"vllm:num_requests_running", "gauge", "texts that a worker has now", "", HTTP_COUNT_RUNNING},
    {"vllm:num_requests_waiting", "gauge", "texts that wait for a worker now", "",
     HTTP_COUNT_WAITING},
    {"vllm:prompt_tokens_total", "counter", "tokens of prompts", "", HTTP_COUNT_PROMPT},
    {"vllm:prefix_cache_queries_total", "counter", "tokens of prompts", "", HTTP_COUNT_PROMPT},
    {"vllm:prefix_cache_hits_total", "counter", "tokens of prompts whose KV a worker had", "",
     HTTP_COUNT_CACHED},
    {"vllm:generation_tokens_total", "counter", "tokens generated", "", HTTP_COUNT_GENERATED},
    {"vllm:request_success_total", "counter", "texts that ended well, by reason",
     ",finished_reason=\"stop\"", HTTP_COUNT_STOPPED},
    {"vllm:request_success_total", NULL, NULL, ",finished_reason=\"length\"", HTTP_COUNT_FULL},
    {"vllm:request_success_total", NULL, NULL, ",finished_reason=\"abort\"", HTTP_COUNT_LEFT},
};

static const double second_edges[] = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
                                      0.2,    0.5,   1,     2,     5,    10,   60};
static const double token_edges[] = {0,   1,    16,   32,   64,   128,  256,
                                     512, 1024, 2048, 4096, 8192, 16384};

static const struct hw_buckets_def note_defs[HTTP_NOTES] = {
    [HTTP_NOTE_FIRST] = {"http_first_token_seconds", "vllm:time_to_first_token_seconds",
                         "from a request to its first token", HW_EDGES(second_edges), 1e-9},
    [HTTP_NOTE_BETWEEN] = {"http_between_tokens_seconds", "vllm:inter_token_latency_seconds",
                           "from a token to the next", HW_EDGES(second_edges), 1e-9},
    [HTTP_NOTE_QUEUE] = {"http_queue_seconds", "vllm:request_queue_time_seconds",
                         "from a request until a worker has it, where it may wait for KV memory "
                         "(llm_text_wait_seconds)",
                         HW_EDGES(second_edges), 1e-9},
    [HTTP_NOTE_TOTAL] = {"http_text_seconds", "vllm:e2e_request_latency_seconds",
                         "from a request to the end of its text", HW_EDGES(second_edges), 1e-9},
    [HTTP_NOTE_PROMPT] = {"http_text_prompt_tokens", "vllm:request_prompt_tokens",
                          "tokens of a text's prompt", HW_EDGES(token_edges), 1},
    [HTTP_NOTE_GENERATED] = {"http_text_generated_tokens", "vllm:request_generation_tokens",
                             "tokens generated for a text", HW_EDGES(token_edges), 1},
    [HTTP_NOTE_CACHED] = {"http_text_cached_tokens", NULL,
                          "tokens of a text's prompt whose KV a worker had", HW_EDGES(token_edges),
                          1},
};

int http_model_stats_init(struct http_model_stats *s, const char *model)
{
    s->set = (struct hw_counter_set){.defs = defs, .values = s->counts, .count = HTTP_COUNTS};
    char label[64];
    snprintf(label, sizeof(label), "%s", model);
    int rc = hw_counter_set_label(&s->set, "model", label);
    if (rc == 0)
        rc = hw_counter_set_register(&s->set);
    for (int i = 0; rc == 0 && i < HTTP_NOTES; i++)
        hw_buckets_register(&s->notes[i], &note_defs[i], model);
    return rc;
}

void http_model_stats_fini(struct http_model_stats *s)
{
    hw_counter_set_unregister(&s->set);
    for (int i = 0; i < HTTP_NOTES; i++)
        hw_buckets_unregister(&s->notes[i]);
}

void http_count(struct http_model_stats *s, enum http_count count, int64_t by)
{
    hw_counter_bump(&s->counts[count], (uint64_t)by);
}

void http_note(struct http_model_stats *s, enum http_note note, uint64_t value)
{
    hw_buckets_note(&s->notes[note], value);
}

/* Of all models of this name. */
static uint64_t count_of(const struct http_stats_line *lines, size_t count, const char *model,
                         enum http_count which)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(lines[i].model, model) == 0)
            sum += hw_counter_load(&lines[i].stats->counts[which]);
    }
    return sum;
}

void http_stats_print(FILE *out, const struct http_stats_line *lines, size_t count)
{
    for (size_t a = 0; a < ARRAY_LEN(aliases); a++) {
        if (aliases[a].type)
            fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", aliases[a].name, aliases[a].help,
                    aliases[a].name, aliases[a].type);
        for (size_t i = 0; i < count; i++) {
            const char *model = lines[i].model;
            if (!lines[i].is_first)
                continue;
            fprintf(out, "%s{", aliases[a].name);
            hw_counters_print_label(out, "model_name", model);
            fprintf(out, "%s} %llu\n", aliases[a].labels,
                    (unsigned long long)count_of(lines, count, model, aliases[a].count));
        }
    }
}
