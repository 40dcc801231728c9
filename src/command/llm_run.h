/* command/llm_run.h - one inference of `hawser llm`: from options to tokens and figures.
 *
 * Trust: the model file and the worker's answers are checked by the layers below.
 * Threads: one.  Lifetime: open/close; the struct is the caller's. */
#ifndef HAWSER_COMMAND_LLM_RUN_H
#define HAWSER_COMMAND_LLM_RUN_H

#include "command/command.h"
#include "command/connect.h"
#include "llm/modes/mode.h"
#include "llm/tokenizer/vocab.h"

#include <stdio.h>

enum { LLM_RUN_DECODE, LLM_RUN_PREFILL }; /* --phase */

struct llm_run_options {
    struct cmd_connect_options connect;
    const char *download, *model, *tokenizer, *prompt, *temperature, *top_p, *returns;
    const char *gpu_host; /* NULL: this machine */
    int mode, phase, backend, math;
    uint64_t decode_steps, threads, top_k, seed, context, prompt_tokens, tokens_per_request;
    uint64_t master_port; /* 0: the default one */
    uint64_t deadline_ns;
    bool ignore_end, lossy, trace, worker_metrics;
    const char *evict;
    /* Of a served model. */
    const char *file, *min_p, *presence, *frequency, *repetition;
    struct cmd_list stops;
    bool echo, stats, json;
};

extern const char *const llm_run_modes[]; /* NULL-terminated, as are these */
extern const char *const llm_run_phases[];
extern const char *const llm_run_backends[];

/* One exchange: the prompt's is the first. */
struct llm_run_step {
    uint64_t ns;
    uint64_t sent, received; /* bytes at the socket */
};

struct llm_run {
    const struct llm_run_options *o;
    struct llm_file *file;
    struct llm_vocab *vocab;
    struct rpc_security security;
    struct llm_remote *remote;
    struct llm_mode_config config;
    struct llm_evict_rule evict; /* at 0: never */
    struct llm_mode *mode;
    uint32_t *prompt;
    uint32_t prompt_count;
    uint32_t *tokens; /* generated; decode_steps of them fit */
    uint32_t token_count;
    struct llm_run_step *steps; /* as many */
    uint32_t step_count;
    FILE *text; /* where the text goes as it comes; NULL: nowhere */
    bool begun; /* some of it has been written */
    char shown; /* its last byte */
    char why[LLM_WHY_CHARS];
};

/* The options about sampling.  CMD_DONE, or the exit status after a message. */
enum cmd_exit llm_run_sampling(const struct llm_run_options *options, struct llm_sampling *out);

/* The worker's, of --gpu_host and --master_port. */
enum { LLM_RUN_ADDRESS_CHARS = RPC_ADDR_HOST_CHARS + 16 };
void llm_run_address(const struct llm_run_options *options, char out[LLM_RUN_ADDRESS_CHARS]);

/* CMD_DONE, or the exit status after a message. */
enum cmd_exit llm_run_open(struct llm_run *run, const struct llm_run_options *options, FILE *text);
void llm_run_close(struct llm_run *run);
/* The prompt, then tokens until there are enough, the text ends or the context is full. */
enum cmd_exit llm_run_generate(struct llm_run *run);
/* The figures, a line each: first for people, then the keys that the experiment reads.  With --json
 * those of a served model (command/llm_client.h) as an object on standard error instead. */
enum cmd_exit llm_run_report(struct llm_run *run, FILE *out);

/* Downloads the worker's model into the file of --download; whole or not at all. */
enum cmd_exit llm_run_download(const struct llm_run_options *options, FILE *out);
/* The worker's metrics, a line each; needs no model. */
enum cmd_exit llm_run_worker_metrics(const struct llm_run_options *options, FILE *out);

#endif
