/* How the front is, for people and for Prometheus. */
#include "serve/http/impl.h"

static void print_worker(FILE *out, const struct http_worker *w)
{
    if (w->state != HTTP_WORKER_UP) {
        fprintf(out, "worker %s: down%s%s\n", w->name, w->why[0] ? ": " : "", w->why);
        return;
    }
    fprintf(out,
            "worker %s: %s, %u texts of ours, %u running and %u waiting in all, lost %llu times\n",
            w->name, w->served.draining ? "drains" : "up", w->texts, w->served.running,
            w->served.waiting, (unsigned long long)w->losses);
    for (uint32_t i = 0; i < w->served.model_count; i++)
        fprintf(out, "  model %s (%s), context %u\n", w->served.models[i].name,
                w->served.models[i].arch, w->served.models[i].context);
}

static double mean_ms(const struct http_times *t)
{
    return t->count ? (double)t->sum_ns / (double)t->count / (double)HW_MS : 0;
}

static void print_text(FILE *out, struct http_front *f)
{
    fprintf(out, "requests under way: %u of %llu\n", f->running,
            (unsigned long long)f->limits.max_requests);
    for (size_t i = 0; i < f->worker_count; i++)
        print_worker(out, &f->workers[i]);
    for (size_t i = 0; i < f->model_count; i++) {
        const struct http_model_stats *s = &f->models[i]->stats;
        fprintf(out,
                "model %s: on average %.2f ms to the first token, %.2f ms between tokens, "
                "%.2f ms in the queue\n",
                f->models[i]->name, mean_ms(&s->times[HTTP_TIME_FIRST]),
                mean_ms(&s->times[HTTP_TIME_BETWEEN]), mean_ms(&s->times[HTTP_TIME_QUEUE]));
    }
    fputc('\n', out);
}

void http_state_print(void *front, enum hw_counters_format format, FILE *out)
{
    struct http_front *f = front;
    struct http_stats_line lines[HTTP_MODELS_MAX];
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < f->model_count; i++)
        lines[i] = (struct http_stats_line){f->models[i]->name, &f->models[i]->stats};
    if (format == HW_COUNTERS_PROMETHEUS)
        http_stats_print(out, lines, f->model_count);
    else if (format == HW_COUNTERS_TEXT)
        print_text(out, f);
    pthread_mutex_unlock(&f->lock);
}
