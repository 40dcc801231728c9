/* llm/engine.h - a model that runs: weights on a backend, sequences with paged KV, forward steps.
 *
 * A sequence is a run of positions whose keys and values the engine holds.  A step takes rows
 * (sequence, token), any number of rows of any sequences, computes them together and appends each
 * row's K and V to its sequence.  What a row yields does not depend on what else is in the step:
 * the same bits alone, in a batch, or in a longer prompt.
 *
 * Trust: tokens and lengths are checked (-EINVAL, -ERANGE); weights were checked by llm/file.h.
 * Threads: one thread at a time for an engine and its sequences; backends use threads of their own.
 * Lifetime: create/destroy; sequences go before their engine, the engine before its file. */
#ifndef HAWSER_LLM_ENGINE_H
#define HAWSER_LLM_ENGINE_H

#include "llm/file.h"

enum {
    LLM_ROWS_MAX = 4096,      /* of one step; a longer prompt is several steps */
    LLM_SEQUENCES_MAX = 1024, /* of one engine */
};

struct llm_engine_options {
    const char *backend; /* "cpu", "vulkan"; NULL: cpu */
    unsigned threads;    /* of the cpu backend; 0: the cores there are */
    uint32_t context;    /* positions of a sequence at most; 0: the model's own */
    uint64_t kv_bytes;   /* for all sequences together; 0: one sequence of full context */
};

struct llm_engine;
struct llm_seq;

int llm_engine_create(const struct llm_file *file, const struct llm_engine_options *options,
                      struct llm_engine **out, char *why) MUST_CHECK;
void llm_engine_destroy(struct llm_engine *engine);
const struct llm_config *llm_engine_config(const struct llm_engine *engine);
uint32_t llm_engine_context(const struct llm_engine *engine);

/* 0; -ENOSPC past LLM_SEQUENCES_MAX; -ENOMEM. */
int llm_seq_create(struct llm_engine *engine, struct llm_seq **out) MUST_CHECK;
void llm_seq_destroy(struct llm_seq *seq);
uint32_t llm_seq_length(const struct llm_seq *seq);
/* Forgets all positions from length on. */
void llm_seq_truncate(struct llm_seq *seq, uint32_t length);

/* Rows of one sequence stand in order of position; the first continues where the sequence ends. */
struct llm_row {
    struct llm_seq *seq;
    uint32_t token;
    bool logits; /* wanted for this row */
};

/* Computes count rows.  logits receives vocab floats for each row that wants them, in row order.
 * 0; -EINVAL (no rows, too many, a token past the vocabulary); -ERANGE (past the context);
 * -ENOSPC (no KV page free); -ENOMEM, -EIO (the backend; why says).  On an error every sequence is
 * as before. */
int llm_engine_step(struct llm_engine *engine, const struct llm_row *rows, uint32_t count,
                    float *logits, char *why) MUST_CHECK;

/* Time on the backend's device in the last step, as it measured it; 0 when it cannot. */
uint64_t llm_engine_kernel_ns(const struct llm_engine *engine);

/* ---- KV as bytes: what travels, is evicted, and comes back ----
 *
 * A layer's rows as little-endian binary16, K then V: for positions from..to, first all K rows
 * (kv_heads * head_dim values each), then all V rows. */
uint64_t llm_kv_row_bytes(const struct llm_engine *engine); /* of one position of one layer */
int llm_seq_read_kv(struct llm_seq *seq, uint32_t layer, uint32_t from, uint32_t to,
                    void *dst) MUST_CHECK;
/* Positions at or below the length are overwritten; writing past it extends the sequence once every
 * layer has been written as far: call llm_seq_set_length then. */
int llm_seq_write_kv(struct llm_seq *seq, uint32_t layer, uint32_t from, uint32_t to,
                     const void *src) MUST_CHECK;
int llm_seq_set_length(struct llm_seq *seq, uint32_t length) MUST_CHECK;

#endif
