/* bench/page/report.h - the figures of bench-ipc, and the forms in which they are told.
 *
 * Threads: one.  Lifetime: a series owns its samples, init/fini. */
#ifndef HAWSER_BENCH_PAGE_REPORT_H
#define HAWSER_BENCH_PAGE_REPORT_H

#include "base/attr.h"
#include "page/broadcast/broadcast.h"
#include "page/group.h"
#include "page/trace/trace.h"

#include <stdbool.h>
#include <stdio.h>

enum { IPC_MAP, IPC_UNMAP, IPC_OPS };

/* What one strategy took: the times of every map and unmap, in order. */
struct ipc_series {
    const struct page_strategy *map, *unmap;
    size_t counts[IPC_OPS];
    struct page_times *samples[IPC_OPS];
};

/* What was measured, for headings. */
struct ipc_setting {
    uint32_t tp_size;
    uint64_t iters, pages_per_iter, warmup;
    const struct page_trace_file *trace; /* that an iteration replays; NULL: none */
    const char *trace_path;
    bool fell_back;                 /* to main memory, without --backend host: there is no GPU */
    const struct page_info *worker; /* rank 0: backend, device, geometry */
};

/* What the summary shows of one operation. */
struct ipc_stats {
    double mean, p95, max, min, median; /* ns */
    struct page_times parts;            /* means */
};

/* rooms: samples of each operation.  0 or -ENOMEM. */
int ipc_series_init(struct ipc_series *s, const struct page_strategy *map,
                    const struct page_strategy *unmap, const size_t rooms[IPC_OPS]) MUST_CHECK;
void ipc_series_fini(struct ipc_series *s);

/* Batches and page ids of one operation of a trace. */
struct ipc_trace_sum {
    uint64_t batches, ids;
};
struct ipc_trace_sum ipc_trace_sum(const struct page_trace_file *trace, int op);

/* The original's table, then where the time went and what it was measured on. */
void ipc_print_summary(FILE *out, const struct ipc_setting *setting, const struct ipc_series *s);
/* One table and a plot of all. */
int ipc_print_compare(FILE *out, const struct ipc_setting *setting, const struct ipc_series *all,
                      size_t count) MUST_CHECK;
/* 0 or the negative errno of the failed write. */
int ipc_print_json(FILE *out, const struct ipc_setting *setting, const struct ipc_series *all,
                   size_t count) MUST_CHECK;
int ipc_print_csv(FILE *out, const struct ipc_series *all, size_t count) MUST_CHECK;
/* The page at path, whole or not at all. */
int ipc_write_html(const char *path, const struct ipc_setting *setting,
                   const struct ipc_series *all, size_t count) MUST_CHECK;

#endif
