/* base/report/bench.h - the figures of one benchmark run, as a table or as the JSON all benchmarks
 * share.
 *
 *     {"benchmark": "rpc", "commit": "...", "host": "...", "date": "2026-01-31T12:00:00Z",
 *      "rows": [{"name": "...", "value": 1.5, "unit": "us", "baseline": 1.2, "ratio": 1.25}]}
 *
 * ratio is value / baseline; both are null without a baseline.  A row may carry more columns
 * (transport, size, depth), which stand after these as strings.  Failure to allocate is remembered
 * and told by the print, so a benchmark's loop needs no checks.
 *
 * Threads: one at a time.  Lifetime: begin/end; the struct is the caller's, text is copied. */
#ifndef HAWSER_BASE_REPORT_BENCH_H
#define HAWSER_BASE_REPORT_BENCH_H

#include <stddef.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/attr.h"

enum {
    HW_BENCH_BYTES_MAX = 64 << 20, /* some 100,000 rows; a runaway sweep stops with -ENOMEM */
    HW_BENCH_FIELDS_MAX = 16,      /* different extra columns in one run */
};

struct hw_bench_row;

struct hw_bench { /* private */
    struct hw_arena arena;
    const char *name;
    struct hw_bench_row *first, *last;
    const char *keys[HW_BENCH_FIELDS_MAX]; /* extra columns in the order they first came */
    size_t key_count;
    int error;
};

void hw_bench_begin(struct hw_bench *bench, const char *name);
void hw_bench_end(struct hw_bench *bench);

/* baseline is NAN when there is none. */
void hw_bench_row(struct hw_bench *bench, const char *name, double value, const char *unit,
                  double baseline);
/* One more column of the last row; a key that the row has is replaced.  Keys of the five columns
 * above are refused by assertion. */
void hw_bench_field(struct hw_bench *bench, const char *key, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* 0, -ENOMEM from building, -E2BIG past HW_BENCH_FIELDS_MAX, or the errno of the failed write. */
int hw_bench_print_table(const struct hw_bench *bench, FILE *out) MUST_CHECK;
int hw_bench_print_json(const struct hw_bench *bench, FILE *out) MUST_CHECK;

/* "aarch64, 2 CPUs, Neoverse-V2": what a figure was measured on, without the machine's name. */
enum { HW_BENCH_HOST_CHARS = 160 };
void hw_bench_host(char buf[HW_BENCH_HOST_CHARS]);
/* The commit this was built from, or "unknown". */
const char *hw_bench_commit(void);

#endif
