/* base/counter.h - every figure the process counts, in one registry, printed from one definition.
 *
 * A module defines its counters once, as data, and owns sets of values: one set a connection, a
 * daemon, a worker.  The owner registers a set, updates the values, and unregisters it.
 *
 *     static const struct hw_counter_def defs[] = {
 *         {"rpc_bytes_sent", "Bytes written to transports", "bytes", HW_COUNTER},
 *     };
 *
 * Threads: register, unregister and print from any.  A value has one writer, which uses
 * hw_counter_bump or hw_counter_store; printers load relaxed, so a print is no snapshot of one
 * instant: each value is right, their relation may be off by what happened in between.
 * Lifetime: the set and its values are the owner's and stay put while registered; defs are static.
 * When a set goes, its monotone values are folded into a total kept for its defs, so no total ever
 * goes back; its gauges are forgotten. */
#ifndef HAWSER_BASE_COUNTER_H
#define HAWSER_BASE_COUNTER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/attr.h"

enum hw_counter_kind {
    HW_COUNTER, /* only grows */
    HW_GAUGE,
};

struct hw_counter_def {
    const char *name; /* [a-z][a-z0-9_]*, unique in the process, without prefix or _total */
    const char *help; /* one line */
    const char *unit; /* "bytes", "ns", "" */
    enum hw_counter_kind kind;
};

enum {
    HW_COUNTER_LABEL_BYTES = 96, /* a transport, a peer and a role, with their names */
    HW_COUNTER_SETS_MAX = 4096,  /* bounds the time of a print; a daemon has tens */
    HW_COUNTER_TABLES_MAX = 64,  /* tables of defs; each module has one or two */
};

/* The caller fills defs, values and count and zeroes the rest; labels come from
 * hw_counter_set_label.  Two sets of one table with equal labels are printed as one, summed. */
struct hw_counter_set {
    const struct hw_counter_def *defs;
    _Atomic uint64_t *values; /* count of them */
    size_t count;
    char labels[HW_COUNTER_LABEL_BYTES]; /* private: name NUL value NUL ... */
    size_t labels_len;
    /* Private to the registry. */
    struct hw_counter_set *next, **link; /* what points to it; NULL: it is not registered */
};

/* Before registering.  name is [a-z_]+, value any text.  0, -EINVAL (bad name), -ENOSPC. */
int hw_counter_set_label(struct hw_counter_set *set, const char *name, const char *value);

/* 0; -EINVAL for a malformed definition; -EEXIST when a name is in another table of defs, the
 * table was registered with another count, or the set is registered; -ENOSPC at a limit above;
 * -ENOMEM. */
int hw_counter_set_register(struct hw_counter_set *set) MUST_CHECK;
/* After the last update.  A set that is not registered is left alone. */
void hw_counter_set_unregister(struct hw_counter_set *set);

/* For the one writer of a value: no locked instruction. */
static inline void hw_counter_bump(_Atomic uint64_t *value, uint64_t by)
{
    uint64_t old = atomic_load_explicit(value, memory_order_relaxed);
    atomic_store_explicit(value, old + by, memory_order_relaxed);
}

static inline void hw_counter_store(_Atomic uint64_t *value, uint64_t to)
{
    atomic_store_explicit(value, to, memory_order_relaxed);
}

static inline uint64_t hw_counter_load(const _Atomic uint64_t *value)
{
    return atomic_load_explicit((_Atomic uint64_t *)value, memory_order_relaxed);
}

enum hw_counters_format {
    HW_COUNTERS_TEXT,       /* an aligned table of totals and series */
    HW_COUNTERS_JSON,       /* {"counters":[{name, help, unit, kind, total, series:[...]}]} */
    HW_COUNTERS_PROMETHEUS, /* exposition format 0.0.4; names are hawser_NAME, and _total */
};

/* In Prometheus and JSON the folded total of gone sets is a series labelled retired="true", so
 * that a sum over series is right; Prometheus gets the histograms (base/report/buckets.h), too.  0,
 * -ENOMEM, or the negative errno of the failed write. The registry is not locked while `out` is
 * written, so a slow reader stops no other thread. */
int hw_counters_print(FILE *out, enum hw_counters_format format) MUST_CHECK;

/* NAME="VALUE" as Prometheus quotes it. */
void hw_counters_print_label(FILE *out, const char *name, const char *value);

/* Live values and the folded total of one counter together: 0 or -ENOENT. */
int hw_counters_total(const char *name, uint64_t *total_out) MUST_CHECK;

#endif
