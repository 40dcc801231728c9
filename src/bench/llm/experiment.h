/* bench/llm/experiment.h - what the parts of `hawser experiment` share: rows, their file, trials,
 * report.
 *
 * One row is one client of one trial of one cell; a cell is a mode, a phase and a point of the
 * sweep.  Rows go to the CSV as they come, so an interrupted experiment goes on where it stopped.
 *
 * Trust: the CSV is the user's; a file that is not ours is refused, not overwritten.
 * Threads: one; trials fork.  Lifetime: as said below. */
#ifndef HAWSER_BENCH_LLM_EXPERIMENT_H
#define HAWSER_BENCH_LLM_EXPERIMENT_H

#include "bench/llm/gpu_use.h"
#include "bench/rpc/delay.h"
#include "bench/serve/child.h"
#include "command/command.h"
#include "llm/worker/byte_account.h"

#include <stdio.h>
#include <sys/types.h>

enum {
    EXPERIMENT_NAME_CHARS = 32,
    EXPERIMENT_CLIENTS_MAX = 64,    /* processes at a time */
    EXPERIMENT_STEPS_MAX = 1 << 16, /* exchanges of one run that are kept */
    EXPERIMENT_ROWS_MAX = 1 << 20,  /* of one file: a year of trials */
    EXPERIMENT_LINE_MAX = 16 << 20, /* of the file, and of what a run prints */
};

/* Numbers of one run, one for each exchange. */
struct experiment_list {
    double *values; /* heap */
    size_t count;
};

struct experiment_point {
    uint64_t steps, rtt_ns, clients;
    uint64_t bits_s;  /* of the link, each way; 0: as it is */
    uint64_t evicted; /* layers, before the exchange in the middle of a decode */
};

bool experiment_same_point(const struct experiment_point *a, const struct experiment_point *b);
/* The number of that exchange: the prompt's is 0. */
uint64_t experiment_evicts_at(const struct experiment_point *point);

struct experiment_row {
    uint64_t trial, client;
    char phase[EXPERIMENT_NAME_CHARS], mode[EXPERIMENT_NAME_CHARS];
    double latency_s, wall_s, net_bytes, server_serdes_ms, client_serdes_ms, rpc_ms;
    double kernel_ms; /* of a server's GPU; NaN without one */
    double avg_sm;    /* of the GPUs of this machine; NaN: not sampled */
    double bytes[LLM_CLASSES];
    struct experiment_point point;
    uint64_t settings; /* of all that the row does not say: model, prompt, options */
    struct experiment_list tokens, step_us, step_up, step_down;
    /* KV that the worker moved out: bytes that came back, the same before packing, rows computed
     * again, and all bytes between the worker and its store by kind. */
    double kv_fetched, kv_recovered, kv_computed, store_regular, store_delta;
};

struct experiment_rows {
    struct experiment_row *items;
    size_t count, room;
};

void experiment_row_fini(struct experiment_row *row);
void experiment_rows_fini(struct experiment_rows *rows);
/* Takes the row, also on failure.  0, -ENOMEM, -E2BIG. */
int experiment_rows_add(struct experiment_rows *rows, struct experiment_row *row) MUST_CHECK;
/* "1 2 3" into a list: 0, -EINVAL, -E2BIG, -ENOMEM. */
int experiment_list_parse(const char *text, struct experiment_list *out) MUST_CHECK;

/* ---- the file ---- */

/* Opens or begins the file, keeps the rows with these settings in *rows, counts the others, and
 * cuts off a last line that was not finished.  0; -EEXIST when the file is not one of ours; another
 * negative errno. */
int experiment_file_open(const char *path, uint64_t settings, struct experiment_rows *rows,
                         size_t *others, FILE **out) MUST_CHECK;
/* Appends and flushes. */
int experiment_file_append(FILE *file, const struct experiment_row *row) MUST_CHECK;

/* ---- trials ---- */

/* What every run of an experiment gets, beside its cell. */
struct experiment_setup {
    const char *model, *tokenizer, *prompt, *returns, *gpu_host;
    uint64_t port, prompt_tokens, seed, threads, tokens_per_request;
    const char *backend;          /* of local and of our server */
    uint32_t layers;              /* of the model */
    const char *shadow;           /* where our server moves KV when it is told to; NULL: nowhere */
    bool own_server;              /* the server runs on this machine, because we start it */
    bool lossy;                   /* mode semantic may lose digits of logits */
    struct bench_line store_link; /* to where it moves */
    struct gpu_use gpu;
};

/* `hawser serve` with KV memory for so many clients; ready on return.  0 or a negative errno. */
int experiment_server_start(const struct experiment_setup *setup, uint64_t kv_bytes,
                            struct bench_child *out) MUST_CHECK;

/* Runs the point's clients at once and fills a row for each; the names, trial, point and settings
 * of cell are copied.  CMD_DONE, or the exit status of the run that failed, which has said why. */
enum cmd_exit experiment_trial(struct experiment_setup *setup, const struct experiment_row *cell,
                               struct experiment_row rows[]) MUST_CHECK;

/* ---- the report ---- */

/* As in --sweep. */
enum experiment_sweep {
    EXPERIMENT_SWEEP_NONE,
    EXPERIMENT_SWEEP_STEPS,
    EXPERIMENT_SWEEP_RTT,
    EXPERIMENT_SWEEP_RATE,
    EXPERIMENT_SWEEP_CLIENTS,
    EXPERIMENT_SWEEP_PRESSURE
};

struct experiment_report {
    const char *title_model;
    const char *const *modes; /* in order, NULL-terminated */
    const struct experiment_point *points;
    size_t point_count;
    const char *gpu; /* a sentence about the GPUs whose use was sampled */
    enum experiment_sweep sweep;
    bool lossy;
};

/* Whether all rows of a phase and length have the same tokens, but for those of a mode that may
 * lose digits; else the sentence in why names the step and the modes. */
bool experiment_agrees(const struct experiment_rows *rows, const struct experiment_report *report,
                       char why[256]);

/* The table on out; 0 or a negative errno. */
int experiment_print(const struct experiment_rows *rows, const struct experiment_report *report,
                     FILE *out) MUST_CHECK;
/* The same as the JSON that all benchmarks share. */
int experiment_print_json(const struct experiment_rows *rows,
                          const struct experiment_report *report, FILE *out) MUST_CHECK;
/* The page; replaces a file, whole or not at all. */
int experiment_write_html(const struct experiment_rows *rows,
                          const struct experiment_report *report, const char *path) MUST_CHECK;

#endif
