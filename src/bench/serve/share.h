/* bench/serve/share.h - models under one KV memory, beside models with fixed parts of it.
 *
 * Threads: one at a time.  Lifetime: values. */
#ifndef HAWSER_BENCH_SERVE_SHARE_H
#define HAWSER_BENCH_SERVE_SHARE_H

#include "command/command.h"
#include "llm/model/file.h"

enum { BENCH_SHARE_MODELS_MAX = 8 };

struct bench_share {
    const char *model; /* its file; each model is this one */
    const struct llm_file *file;
    const char *dir; /* for sockets */
    const uint32_t *prompt;
    uint32_t prompt_count;
    uint32_t tokens; /* to generate for a request */
    uint32_t models, clients, reps;
    uint64_t threads;
    uint64_t kv_bytes; /* 0: what the texts of all clients take */
    uint64_t deadline_ns;
    bool json, check;
};

/* Prints the rows.  CMD_DONE, or the exit status after a message. */
enum cmd_exit bench_share_run(const struct bench_share *config);

#endif
