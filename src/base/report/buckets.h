/* base/report/buckets.h - histograms with fixed edges, by model, as Prometheus wants them.
 *
 * A module defines its histograms once, as data, and owns one struct hw_buckets for each and each
 * model.  hw_counters_print prints all that are registered, under our name and, where there is one,
 * under the name that vLLM's users have in their dashboards.
 *
 * Threads: register, unregister and print from any.  Of one struct, one thread at a time notes;
 * printers load relaxed, so a print may lack what is noted meanwhile.
 * Lifetime: the struct is the owner's and stays put while registered; defs are static. */
#ifndef HAWSER_BASE_REPORT_BUCKETS_H
#define HAWSER_BASE_REPORT_BUCKETS_H

#include "base/attr.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    HW_BUCKETS_MAX = 16,         /* with the last, which has no upper edge */
    HW_BUCKETS_LABEL_BYTES = 64, /* a model's name; a longer one is cut */
};

struct hw_buckets_def {
    const char *name;  /* [a-z][a-z0-9_]*, unique in the process, without prefix */
    const char *alias; /* vLLM's name; NULL: it has none */
    const char *help;  /* one line */
    const double *edges;
    size_t edge_count; /* at most HW_BUCKETS_MAX - 1; ascending */
    double unit;       /* of a noted value, in the unit of the edges: 1e-9 of ns in seconds */
};

/* For a def: the edges, and how many. */
#define HW_EDGES(array) (array), ARRAY_LEN(array)

struct hw_buckets {
    const struct hw_buckets_def *def;
    char model[HW_BUCKETS_LABEL_BYTES];
    _Atomic uint64_t counts[HW_BUCKETS_MAX]; /* not cumulative */
    _Atomic uint64_t sum;                    /* of noted values */
    /* Private to the registry. */
    struct hw_buckets *next, **link; /* NULL: it is not registered */
};

/* `b` is zeroed. */
void hw_buckets_register(struct hw_buckets *b, const struct hw_buckets_def *def, const char *model);
/* After the last note.  One that is not registered is left alone. */
void hw_buckets_unregister(struct hw_buckets *b);

void hw_buckets_note(struct hw_buckets *b, uint64_t value);

uint64_t hw_buckets_count(const struct hw_buckets *b);
/* In the unit of the edges; 0 of none. */
double hw_buckets_mean(const struct hw_buckets *b);
/* Adds what `from`, of the same def, has; `to` need not be registered. */
void hw_buckets_add(struct hw_buckets *to, const struct hw_buckets *from);
/* What a share of the notes, q of 0 to 1, did not pass: the upper edge of its bucket.  Negative:
 * there is no note, or it lies behind the last edge. */
double hw_buckets_quantile(const struct hw_buckets *b, double q);

/* All that are registered, in Prometheus' format; hw_counters_print calls it. */
void hw_buckets_print(FILE *out);

#endif
