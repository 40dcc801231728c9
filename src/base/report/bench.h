/* base/report/bench.h - the figures of one benchmark run, as a table or as the JSON all benchmarks
 * share.
 *
 *     {"benchmark": "rpc", "commit": "...", "host": "...", "date": "2026-01-31T12:00:00Z",
 *      "rows": [{"name": "...", "value": 1.5, "unit": "us", "baseline": 1.2, "ratio": 1.25}],
 *      "left_out": [{"why": "--quick", "rows": ["..."]}]}
 *
 * ratio is value / baseline; both are null without a baseline.  A row may carry more columns
 * (transport, size, depth), which stand after these as strings.  The figure of an invalid row
 * cannot be true: its value and ratio are null, "valid" is false and "reason" says why; a valid row
 * has neither of the two.  Failure to allocate is remembered and told by the print, so a
 * benchmark's loop needs no checks.
 *
 * Threads: one at a time.  Lifetime: begin/end; the struct is the caller's, text is copied. */
#ifndef HAWSER_BASE_REPORT_BENCH_H
#define HAWSER_BASE_REPORT_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/attr.h"

enum {
    HW_BENCH_BYTES_MAX = 64 << 20, /* some 100,000 rows; a runaway sweep stops with -ENOMEM */
    HW_BENCH_FIELDS_MAX = 16,      /* different extra columns in one run */
};

struct hw_bench_row;
struct hw_bench_left;

/* A promise for rows whose name begins with prefix: about the ratio, or about the value where there
 * is no baseline. */
struct hw_bench_target {
    const char *prefix;
    bool at_most; /* else at least */
    double bound;
    /* The baseline is a part of what is measured: a value a tenth beyond it says that the baseline
     * was disturbed, and is invalid. */
    bool is_limit;
};

struct hw_bench { /* private */
    struct hw_arena arena;
    const char *name;
    struct hw_bench_row *first, *last;
    const char *keys[HW_BENCH_FIELDS_MAX]; /* extra columns in the order they first came */
    size_t key_count;
    struct hw_bench_left *left_out; /* by reason, newest first */
    bool failed;
    int error;
};

void hw_bench_begin(struct hw_bench *bench, const char *name);
void hw_bench_end(struct hw_bench *bench);

/* baseline is NAN when there is none.  A row with a negative or infinite figure is invalid. */
void hw_bench_row(struct hw_bench *bench, const char *name, double value, const char *unit,
                  double baseline);
/* One more column of the last row; a key that the row has is replaced.  Keys of the columns above
 * are refused by assertion. */
void hw_bench_field(struct hw_bench *bench, const char *key, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
/* Marks the last row as invalid; the first reason counts. */
void hw_bench_invalid(struct hw_bench *bench, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Adds the columns target and met to the last row: "yes", "NO", "invalid", or "-" when no target is
 * for it.  A row that the caller knows to be invalid must be marked before. */
void hw_bench_judge(struct hw_bench *bench, const struct hw_bench_target *targets, size_t count);
/* A row that this run does not measure.  Table and JSON list such rows by reason. */
void hw_bench_leave_out(struct hw_bench *bench, const char *name, const char *why);
/* Whether a row is invalid or missed its target. */
bool hw_bench_failed(const struct hw_bench *bench);

/* 0, -ENOMEM from building, -E2BIG past HW_BENCH_FIELDS_MAX, or the errno of the failed write. */
int hw_bench_print_table(const struct hw_bench *bench, FILE *out) MUST_CHECK;
int hw_bench_print_json(const struct hw_bench *bench, FILE *out) MUST_CHECK;
/* One of them. */
int hw_bench_print(const struct hw_bench *bench, bool json, FILE *out) MUST_CHECK;

/* "aarch64, 2 CPUs, Neoverse-V2": what a figure was measured on, without the machine's name. */
enum { HW_BENCH_HOST_CHARS = 160 };
void hw_bench_host(char buf[HW_BENCH_HOST_CHARS]);
/* The commit this was built from, or "unknown". */
const char *hw_bench_commit(void);

#endif
