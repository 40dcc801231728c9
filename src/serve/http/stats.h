/* serve/http/stats.h - what the front counts, for each model.
 *
 * Counters and histograms are in the process's registries (base/counter.h, base/report/buckets.h).
 * Both are also printed under the names that vLLM's users have in their dashboards.
 *
 * Threads: the front's lock.  Lifetime: init/fini. */
#ifndef HAWSER_SERVE_HTTP_STATS_H
#define HAWSER_SERVE_HTTP_STATS_H

#include "base/counter.h"
#include "base/report/buckets.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum http_note {
    HTTP_NOTE_FIRST,     /* ns from the request to the first token */
    HTTP_NOTE_BETWEEN,   /* ns from a token to the next */
    HTTP_NOTE_QUEUE,     /* ns from the request until a worker has it */
    HTTP_NOTE_TOTAL,     /* ns from the request to its end */
    HTTP_NOTE_PROMPT,    /* tokens */
    HTTP_NOTE_GENERATED, /* tokens */
    HTTP_NOTE_CACHED,    /* tokens of the prompt: a worker had their KV */
    HTTP_NOTES
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

struct http_model_stats {
    struct hw_buckets notes[HTTP_NOTES];
    _Atomic uint64_t counts[HTTP_COUNTS];
    struct hw_counter_set set;
};

/* Registers both under the model's name.  0 or as hw_counter_set_register. */
int http_model_stats_init(struct http_model_stats *s, const char *model) MUST_CHECK;
void http_model_stats_fini(struct http_model_stats *s);

void http_count(struct http_model_stats *s, enum http_count count, int64_t by);
void http_note(struct http_model_stats *s, enum http_note note, uint64_t value);

/* For Prometheus: the counters under vLLM's names. */
struct http_stats_line {
    const char *model;
    const struct http_model_stats *stats;
    bool is_first; /* of this name: a worker may bring another model under a known name */
};
void http_stats_print(FILE *out, const struct http_stats_line *lines, size_t count);

#endif
