/* How the front is, for people and for Prometheus. */
#include "serve/http/impl.h"

#include <jansson.h>
#include <string.h>

static void print_worker(FILE *out, const struct http_worker *w)
{
    if (w->state != HTTP_WORKER_UP) {
        fprintf(out, "worker %s: down%s%s\n", w->name, w->why[0] ? ": " : "", w->why);
        return;
    }
    fprintf(out,
            "worker %s: %s, %u texts of ours, %u running and %u waiting in all, lost %llu times\n",
            w->name, llm_served_state(&w->served), w->texts, w->served.running, w->served.waiting,
            (unsigned long long)w->losses);
    for (uint32_t i = 0; i < w->served.model_count; i++)
        fprintf(out, "  model %s (%s), context %u\n", w->served.models[i].name,
                w->served.models[i].arch, w->served.models[i].context);
}

static double mean_ms(const struct http_model_stats *s, enum http_note note)
{
    return hw_buckets_mean(&s->notes[note]) * 1000;
}

static void print_text(FILE *out, struct http_front *f)
{
    fprintf(out, "requests under way: %u of %llu\n", f->running,
            (unsigned long long)f->config.limits.max_requests);
    for (size_t i = 0; i < f->worker_count; i++) {
        if (!f->workers[i].left)
            print_worker(out, &f->workers[i]);
    }
    for (size_t i = 0; i < f->model_count; i++) {
        const struct http_model_stats *s = &f->models[i]->stats;
        fprintf(out,
                "model %s: on average %.2f ms to the first token, %.2f ms between tokens, "
                "%.2f ms in the queue\n",
                f->models[i]->name, mean_ms(s, HTTP_NOTE_FIRST), mean_ms(s, HTTP_NOTE_BETWEEN),
                mean_ms(s, HTTP_NOTE_QUEUE));
    }
    fputc('\n', out);
}

/* What all workers that serve a model have of it. */
struct holdings {
    uint64_t kv_used, kv_pages;
    uint32_t aside;
};

static struct holdings holdings_of(const struct http_front *f, const char *model)
{
    struct holdings all = {0};
    for (size_t i = 0; i < f->worker_count; i++) {
        const struct http_worker *w = &f->workers[i];
        uint32_t count = w->state == HTTP_WORKER_UP ? w->served.model_count : 0;
        for (uint32_t k = 0; k < count; k++) {
            if (strcmp(w->served.models[k].name, model) == 0) {
                all.kv_used += w->served.models[k].kv_used;
                all.kv_pages += w->served.models[k].kv_pages;
                all.aside += w->served.models[k].is_aside;
            }
        }
    }
    return all;
}

/* The share of KV as vLLM's users expect it. */
static double kv_share(const struct holdings *h)
{
    return h->kv_pages ? (double)h->kv_used / (double)h->kv_pages : 0;
}

static double aside_at(const struct holdings *h)
{
    return h->aside;
}

static void print_gauge(FILE *out, const struct http_front *f, const struct http_stats_line *lines,
                        const char *name, const char *help, double (*of)(const struct holdings *h))
{
    fprintf(out, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
    for (size_t m = 0; m < f->model_count; m++) {
        if (!lines[m].is_first)
            continue;
        struct holdings all = holdings_of(f, lines[m].model);
        fprintf(out, "%s{", name);
        hw_counters_print_label(out, "model_name", lines[m].model);
        fprintf(out, "} %g\n", of(&all));
    }
}

void http_state_print(void *front, enum hw_counters_format format, FILE *out)
{
    struct http_front *f = front;
    struct http_stats_line lines[HTTP_MODELS_MAX];
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < f->model_count; i++) {
        lines[i] = (struct http_stats_line){f->models[i]->name, &f->models[i]->stats, true};
        for (size_t k = 0; k < i; k++)
            lines[i].is_first &= strcmp(lines[k].model, lines[i].model) != 0;
    }
    if (format == HW_COUNTERS_PROMETHEUS) {
        http_stats_print(out, lines, f->model_count);
        print_gauge(out, f, lines, "vllm:kv_cache_usage_perc", "KV pages in use; 1 is all",
                    kv_share);
        print_gauge(out, f, lines, "hawser_http_weights_aside",
                    "workers that have put the model's weights aside", aside_at);
    } else if (format == HW_COUNTERS_TEXT)
        print_text(out, f);
    pthread_mutex_unlock(&f->lock);
}

/* ---- for the page ---- */

static const char *state_name(const struct http_worker *w)
{
    return w->state == HTTP_WORKER_UP ? llm_served_state(&w->served) : "down";
}

static json_t *cells_json(const struct llm_kv_map *m, const uint32_t *cells)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < m->rows * m->columns; i++)
        json_array_append_new(list, json_integer(cells[i]));
    return list;
}

/* What only people who look need; the worker was asked for it. */
static void add_inspection(json_t *worker, const struct http_worker *w)
{
    const struct llm_inspection *i = w->inspection;
    json_t *maps = json_array();
    for (uint32_t k = 0; k < i->map_count && k < w->served.model_count; k++) {
        const struct llm_kv_map *m = &i->maps[k];
        json_array_append_new(
            maps,
            json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:o, s:o}", "model", w->served.models[k].name,
                      "layers", (int)m->layers, "pages", (int)m->pages, "rows", (int)m->rows,
                      "columns", (int)m->columns, "sequences", (int)m->sequences, "resident",
                      cells_json(m, m->resident), "missing", cells_json(m, m->missing)));
    }
    json_object_set_new(worker, "kv_maps", maps);
    json_object_set_new(worker, "uploads",
                        json_pack("{s:I, s:I}", "sent", (json_int_t)i->uploads, "found",
                                  (json_int_t)i->uploads_found));
}

/* The connection to the worker: sums since it was made. */
static json_t *rope_json(const struct http_worker *w)
{
    struct llm_connection_traffic t;
    if (!w->conn)
        return json_null();
    llm_connection_traffic(w->conn, &t);
    return json_pack("{s:I, s:I, s:I, s:I}", "bytes_sent", (json_int_t)t.sent, "bytes_received",
                     (json_int_t)t.received, "messages_sent", (json_int_t)t.messages_sent,
                     "messages_received", (json_int_t)t.messages_received);
}

static json_t *worker_json(const struct http_worker *w, bool map)
{
    uint64_t pages = 0, used = 0;
    json_t *models = json_array(), *aside = json_array();
    bool up = w->state == HTTP_WORKER_UP;
    for (uint32_t i = 0; up && i < w->served.model_count; i++) {
        pages += w->served.models[i].kv_pages;
        used += w->served.models[i].kv_used;
        json_array_append_new(models, json_string(w->served.models[i].name));
        if (w->served.models[i].is_aside)
            json_array_append_new(aside, json_string(w->served.models[i].name));
    }
    json_t *worker =
        json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:o, s:o, s:o}", "address", w->name, "state",
                  state_name(w), "running", up ? (int)w->served.running : 0, "waiting",
                  up ? (int)w->served.waiting : 0, "kv_pages", (json_int_t)pages, "kv_used",
                  (json_int_t)used, "losses", (json_int_t)w->losses, "models", models,
                  "weights_aside", aside, "rope", rope_json(w));
    if (worker && !up && w->why[0])
        json_object_set_new(worker, "why", json_string(w->why));
    if (worker && map && up && w->inspection)
        add_inspection(worker, w);
    return worker;
}

static json_t *seconds_json(double seconds)
{
    return seconds < 0 ? json_null() : json_real(seconds);
}

static json_t *times_json(const struct http_front *f, enum http_note note)
{
    struct hw_buckets sum = {0};
    for (size_t i = 0; i < f->model_count; i++)
        hw_buckets_add(&sum, &f->models[i]->stats.notes[note]);
    return json_pack("{s:o, s:o, s:I}", "p50", seconds_json(hw_buckets_quantile(&sum, 0.5)), "p95",
                     seconds_json(hw_buckets_quantile(&sum, 0.95)), "count",
                     (json_int_t)hw_buckets_count(&sum));
}

char *http_state_json(struct http_front *f, bool map, size_t *len)
{
    json_int_t counts[HTTP_COUNTS] = {0};
    json_t *workers = json_array();
    if (map)
        f->watched_ns = hw_now_ns();
    for (size_t i = 0; i < f->worker_count; i++) {
        if (!f->workers[i].left)
            json_array_append_new(workers, worker_json(&f->workers[i], map));
    }
    for (size_t i = 0; i < f->model_count; i++) {
        struct http_model_stats *s = &f->models[i]->stats;
        for (size_t c = 0; c < HTTP_COUNTS; c++)
            counts[c] += (json_int_t)s->counts[c];
    }
    json_t *json =
        json_pack("{s:o, s:{s:i, s:I, s:I, s:I}, s:{s:I, s:I}, s:o, s:o, s:o}", "workers", workers,
                  "requests", "running", (int)f->running, "answered",
                  counts[HTTP_COUNT_STOPPED] + counts[HTTP_COUNT_FULL], "failed",
                  counts[HTTP_COUNT_FAILED], "moved", counts[HTTP_COUNT_MOVED], "tokens", "prompt",
                  counts[HTTP_COUNT_PROMPT], "generated", counts[HTTP_COUNT_GENERATED],
                  "first_token", times_json(f, HTTP_NOTE_FIRST), "between_tokens",
                  times_json(f, HTTP_NOTE_BETWEEN), "queue", times_json(f, HTTP_NOTE_QUEUE));
    return http_json_text(json, len);
}
