/* serve/http/stats.h - what the front counts, for each model.
 *
 * Counters are in the process's registry (base/counter.h).  Times are histograms with fixed edges,
 * as Prometheus wants them.  Both are also printed under the names that vLLM's users have in their
 * dashboards.
 *
 * Threads: the front's lock.  Lifetime: init/fini. */
#ifndef HAWSER_SERVE_HTTP_STATS_H
#define HAWSER_SERVE_HTTP_STATS_H

#include "base/counter.h"

#include <stdint.h>
#include <stdio.h>

enum http_time {
    HTTP_TIME_FIRST,   /* from the request to the first token */
    HTTP_TIME_BETWEEN, /* from a token to the next */
    HTTP_TIME_QUEUE,   /* from the request until a worker has it */
    HTTP_TIME_TOTAL,   /* from the request to its end */
    HTTP_TIMES
};

enum http_count {
    HTTP_COUNT_TEXTS,     /* begun */
    HTTP_COUNT_STOPPED,   /* ended by the model or a stop string */
    HTTP_COUNT_FULL,      /* ended at max_tokens or the context's end */
    HTTP_COUNT_LEFT,      /* the client left */
    HTTP_COUNT_FAILED,    /* ended with an error */
    HTTP_COUNT_PROMPT,    /* tokens */
    HTTP_COUNT_CACHED,    /* of those: a worker had their KV */
    HTTP_COUNT_GENERATED, /* tokens */
    HTTP_COUNT_MOVED,     /* to another worker */
    HTTP_COUNT_RUNNING,   /* at a worker now */
    HTTP_COUNT_WAITING,   /* for one now */
    HTTP_COUNTS
};

enum { HTTP_EDGES = 16 };

struct http_times {
    uint64_t below[HTTP_EDGES]; /* not cumulative */
    uint64_t count, sum_ns;
};

struct http_model_stats {
    struct http_times times[HTTP_TIMES];
    _Atomic uint64_t counts[HTTP_COUNTS];
    struct hw_counter_set set;
};

/* Registers the counters under the model's name.  0 or as hw_counter_set_register. */
int http_model_stats_init(struct http_model_stats *s, const char *model) MUST_CHECK;
void http_model_stats_fini(struct http_model_stats *s);

void http_count(struct http_model_stats *s, enum http_count count, int64_t by);
void http_time_note(struct http_model_stats *s, enum http_time time, uint64_t ns);

/* The time that a share of the notes, q of 0 to 1, did not pass: the upper edge of its bucket, in
 * seconds.  Negative: there is no note, or it lies behind the last edge. */
double http_time_quantile(const struct http_times *t, double q);

/* For Prometheus: the histograms, and the counters under vLLM's names. */
struct http_stats_line {
    const char *model;
    const struct http_model_stats *stats;
};
void http_stats_print(FILE *out, const struct http_stats_line *lines, size_t count);

#endif
