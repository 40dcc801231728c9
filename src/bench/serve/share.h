/* bench/serve/share.h - models in one memory: beside models with fixed parts of it, with one of
 * them first beside equals, or with weights that leave.
 *
 * Threads: one at a time.  Lifetime: values. */
#ifndef HAWSER_BENCH_SERVE_SHARE_H
#define HAWSER_BENCH_SERVE_SHARE_H

#include "command/command.h"
#include "llm/model/file.h"

enum { BENCH_SHARE_MODELS_MAX = 8 };

struct bench_share {
    const char *model; /* its file; each model is this one */
    const char *backend, *math;
    const struct llm_file *file;
    const char *dir; /* for sockets */
    const uint32_t *prompt;
    uint32_t prompt_count;
    uint32_t tokens; /* to generate for a request */
    uint32_t models, clients, reps;
    uint64_t threads;
    uint64_t kv_bytes; /* 0: what the texts of all clients take; with is_first half of it */
    uint64_t deadline_ns;
    bool is_first;    /* the first model has priority, and the baseline is a server of equals */
    uint64_t idle_ns; /* not 0: measure weights that come back after so long without a request */
    bool json, check;
};

/* Prints the rows.  CMD_DONE, or the exit status after a message. */
enum cmd_exit bench_share_run(const struct bench_share *config);

#endif
