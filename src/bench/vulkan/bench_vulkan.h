/* bench/vulkan/bench_vulkan.h - one run of bench-vulkan: its sides, its lines, and the rows made of
 * them.
 *
 * bench_vulkan.c reads the options, starts the sides and calls the rows, which are in rows.c,
 * transfers.c and two.c.  A side is a job process with its driver.  Rows let their sides work in
 * turn, repetition by repetition, and show medians.
 *
 * Trust: all sides are ours; drivers may fail.  Threads: one.
 * Lifetime: the run is the command's; rows keep nothing.
 * Errors: negative errno, with what a side said in run->why. */
#ifndef HAWSER_BENCH_VULKAN_BENCH_VULKAN_H
#define HAWSER_BENCH_VULKAN_BENCH_VULKAN_H

#include "base/report/bench.h"
#include "bench/rpc/delay.h"
#include "bench/rpc/link.h"
#include "bench/serve/child.h"
#include "bench/vulkan/job_process.h"
#include "command/command.h"
#include "command/connect.h"

#include <limits.h>

enum {
    BENCH_VK_REPS_MAX = 101,
    BENCH_VK_SITES_MAX = 8,
    BENCH_VK_SWITCHES = 8,
    BENCH_VK_CLIENTS_MAX = 8, /* programs at once */
};

struct bench_vk_options {
    uint64_t reps, time_ns, size, device;
    struct cmd_list only;
    bool quick, native, software, check, json;
};

/* Optimisations that are turned off one by one; early fences have rows of their own. */
struct bench_vk_switch {
    const char *name;
    enum bench_job job; /* that shows what it is worth */
};
extern const struct bench_vk_switch bench_vk_switches[BENCH_VK_SWITCHES];

enum bench_vk_kind {
    BENCH_VK_UNIX,
    BENCH_VK_TCP,  /* as it is; also a server that is not ours */
    BENCH_VK_LONG, /* through a relay that holds bytes back */
    BENCH_VK_RATE, /* through one that lets so many a second pass */
};

/* A way to the server.  Only those job processes run that the rows of the site need. */
struct bench_vk_site {
    const char *name;
    enum bench_vk_kind kind;
    struct bench_line line;
    char address[RPC_ADDR_HOST_CHARS + 16]; /* of the server */
    struct bench_delay relay, late_relay;
    struct bench_process process, late;                    /* with early fences, and without */
    struct bench_process others[BENCH_VK_CLIENTS_MAX - 1]; /* as the first, beside it */
    struct bench_process without[BENCH_VK_SWITCHES];       /* the others */
    struct bench_link *raw;                                /* NULL: the server is not ours */
    struct cmd_link peer;                                  /* then this */
};

struct bench_vk_run {
    const struct bench_vk_options *o;
    uint64_t reps, time_ns, size;
    struct bench_dir dir;
    struct bench_child serve;
    struct bench_process native, native_second; /* the second runs while its rows are measured */
    bool has_native;
    struct bench_vk_site sites[BENCH_VK_SITES_MAX];
    size_t site_count;
    struct hw_bench bench;
    size_t row_count;
    struct hw_hist hist;
    char manifest[PATH_MAX];
    char why[RPC_WHY_CHARS];
};

/* ---- for rows ---- */

/* -EINTR after an interrupt. */
int bench_vk_order(struct bench_vk_run *run, struct bench_process *process,
                   const struct bench_order *what, struct bench_answer *answer) MUST_CHECK;
/* All with the same order, at the same time. */
int bench_vk_order_all(struct bench_vk_run *run, struct bench_process *const *processes,
                       unsigned count, const struct bench_order *what,
                       struct bench_answer *answers) MUST_CHECK;
/* The row KIND.SITE, judged by its target; columns may follow.  baseline and native are NAN where
 * they say nothing. */
void bench_vk_add_row(struct bench_vk_run *run, const char *kind, const char *site, double value,
                      const char *unit, double baseline, const char *against, double native);
/* Frees what transfers used. */
int bench_vk_forget(struct bench_vk_run *run, struct bench_process *process) MUST_CHECK;
/* What stands beside ours on this line, in words. */
const char *bench_vk_raw_name(const struct bench_vk_site *site);

/* ---- rows ---- */

typedef int bench_vk_rows_fn(struct bench_vk_run *run, struct bench_vk_site *site);

int bench_vk_native_cycle(struct bench_vk_run *run) MUST_CHECK;
/* Record, submit, wait, and what that sends. */
bench_vk_rows_fn bench_vk_cycle;
/* Upload, fence, compute, fence, read: with early fences beside without. */
bench_vk_rows_fn bench_vk_chain;
/* The cycle by a program that does not wait but looks. */
bench_vk_rows_fn bench_vk_polls;
bench_vk_rows_fn bench_vk_record;
/* What a cycle costs more for each page that the program wrote into before it. */
bench_vk_rows_fn bench_vk_dirty;
/* Uploads and readbacks. */
bench_vk_rows_fn bench_vk_transfers;
/* Jobs with each optimisation, and with one of them turned off. */
bench_vk_rows_fn bench_vk_optimisations;
/* Two programs at once, beside one alone; ours, and natively. */
bench_vk_rows_fn bench_vk_two;
/* Four and eight of them. */
bench_vk_rows_fn bench_vk_many;

#endif
