#include "serve/http/stats.h"

#include "base/clock.h"

#include <assert.h>

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

static const struct time_def {
    const char *name, *alias, *help;
} time_defs[HTTP_TIMES] = {
    {"hawser_http_first_token_seconds", "vllm:time_to_first_token_seconds",
     "from a request to its first token"},
    {"hawser_http_between_tokens_seconds", "vllm:inter_token_latency_seconds",
     "from a token to the next"},
    {"hawser_http_queue_seconds", "vllm:request_queue_time_seconds",
     "from a request until a worker has it"},
    {"hawser_http_text_seconds", "vllm:e2e_request_latency_seconds",
     "from a request to the end of its text"},
};

/* Upper edges; the last has no limit. */
static const double edges[HTTP_EDGES - 1] = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
                                             0.2,    0.5,   1,     2,     5,    10,   60};

int http_model_stats_init(struct http_model_stats *s, const char *model)
{
    s->set = (struct hw_counter_set){.defs = defs, .values = s->counts, .count = HTTP_COUNTS};
    char label[64];
    snprintf(label, sizeof(label), "%s", model);
    int rc = hw_counter_set_label(&s->set, "model", label);
    return rc ? rc : hw_counter_set_register(&s->set);
}

void http_model_stats_fini(struct http_model_stats *s)
{
    if (s->set.defs)
        hw_counter_set_unregister(&s->set);
}

void http_count(struct http_model_stats *s, enum http_count count, int64_t by)
{
    hw_counter_bump(&s->counts[count], (uint64_t)by);
}

void http_time_note(struct http_model_stats *s, enum http_time time, uint64_t ns)
{
    struct http_times *t = &s->times[time];
    double seconds = (double)ns / HW_SEC;
    size_t i = 0;
    while (i < HTTP_EDGES - 1 && seconds > edges[i])
        i++;
    t->below[i]++;
    t->count++;
    t->sum_ns += ns;
}

double http_time_quantile(const struct http_times *t, double q)
{
    uint64_t below = 0;
    for (size_t i = 0; i < HTTP_EDGES - 1; i++) {
        below += t->below[i];
        if (below > 0 && (double)below >= q * (double)t->count)
            return edges[i];
    }
    return -1;
}

/* A label's value as Prometheus quotes it. */
static void print_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        if (*text == '\n')
            fputs("\\n", out);
        else
            fputc(*text, out);
    }
    fputc('"', out);
}

static void print_label(FILE *out, const char *name, const char *suffix, const char *model)
{
    fprintf(out, "%s%s{model_name=", name, suffix);
    print_quoted(out, model);
}

static void print_times(FILE *out, const char *name, const char *model, const struct http_times *t)
{
    uint64_t below = 0;
    for (size_t i = 0; i < HTTP_EDGES; i++) {
        below += t->below[i];
        print_label(out, name, "_bucket", model);
        if (i < HTTP_EDGES - 1)
            fprintf(out, ",le=\"%g\"} %llu\n", edges[i], (unsigned long long)below);
        else
            fprintf(out, ",le=\"+Inf\"} %llu\n", (unsigned long long)below);
    }
    print_label(out, name, "_sum", model);
    fprintf(out, "} %.9f\n", (double)t->sum_ns / HW_SEC);
    print_label(out, name, "_count", model);
    fprintf(out, "} %llu\n", (unsigned long long)t->count);
}

static void print_histogram(FILE *out, const char *name, const char *help, enum http_time time,
                            const struct http_stats_line *lines, size_t count)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name);
    for (size_t i = 0; i < count; i++)
        print_times(out, name, lines[i].model, &lines[i].stats->times[time]);
}

void http_stats_print(FILE *out, const struct http_stats_line *lines, size_t count)
{
    for (int t = 0; t < HTTP_TIMES; t++) {
        print_histogram(out, time_defs[t].name, time_defs[t].help, (enum http_time)t, lines, count);
        print_histogram(out, time_defs[t].alias, time_defs[t].help, (enum http_time)t, lines,
                        count);
    }
    for (size_t a = 0; a < ARRAY_LEN(aliases); a++) {
        if (aliases[a].type)
            fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", aliases[a].name, aliases[a].help,
                    aliases[a].name, aliases[a].type);
        for (size_t i = 0; i < count; i++) {
            print_label(out, aliases[a].name, "", lines[i].model);
            fprintf(out, "%s} %llu\n", aliases[a].labels,
                    (unsigned long long)hw_counter_load(&lines[i].stats->counts[aliases[a].count]));
        }
    }
}
