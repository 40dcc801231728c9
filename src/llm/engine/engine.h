/* llm/engine/engine.h - runs a model: weights on a backend, sequences with paged KV, forward steps.
 *
 * A sequence is a run of positions whose keys and values the engine holds.  A step takes rows
 * (sequence, token) of any sequences, computes them together and appends each row's K and V to its
 * sequence.  A row yields the same bits alone, in a batch, or in a longer prompt.
 *
 * Each layer of a sequence has its own pages.  An evicted layer's memory is free at once; the layer
 * is missing until its rows are written back.
 *
 * Trust: tokens and lengths are checked (-EINVAL, -ERANGE); llm/model/file.h has checked
 * the weights.
 * Threads: one at a time for an engine and its sequences; backends have their own threads.
 * Lifetime: create/destroy.  Destroy sequences before their engine, the engine before its file. */
#ifndef HAWSER_LLM_ENGINE_ENGINE_H
#define HAWSER_LLM_ENGINE_ENGINE_H

#include "llm/engine/backend.h"
#include "llm/model/layers.h"

enum {
    LLM_ROWS_MAX = 4096,      /* of one step; a longer prompt takes several */
    LLM_SEQUENCES_MAX = 1024, /* of one engine */
    LLM_PART_MIN = 8,         /* rows that are copied: a GPU computes fewer in the time of a copy */
};

struct llm_engine_options {
    const char *backend; /* "cpu", "vulkan"; NULL: cpu */
    unsigned threads;    /* of the cpu backend; 0: one for each core */
    enum llm_math math;  /* fast is of vulkan alone */
    uint32_t device;     /* which GPU, modulo their number */
    uint32_t context;    /* positions of a sequence at most; 0: the model's own */
    uint64_t kv_bytes;   /* for all sequences together, in whole slabs; 0: one of full context */
    uint64_t kv_most;    /* of these bytes, whatever the context; 0: no bound */
    /* That KV memory counts against, and that gets the slabs that are mapped; both outlive the
     * engine; NULL: none. */
    struct page_limit *kv_limit;
    struct page_trace *kv_trace;
    uint32_t tp;      /* tensor-parallel workers, each with so many threads; 0, 1: none */
    const char *path; /* of the file, where there are: each opens it */
    const struct llm_pipeline_config *pipeline; /* stages of layers; NULL: one; not with tp */
    const struct llm_shares_config *shares; /* tp workers at other servers; NULL: on this host */
    bool keep_prefixes; /* pages of computed tokens stay for llm_seq_adopt while memory lasts */
};

struct llm_engine;
struct llm_seq;
struct page_limit;
struct page_trace;
struct llm_pipeline_config;
struct llm_shares_config;

int llm_engine_create(const struct llm_file *file, const struct llm_engine_options *options,
                      struct llm_engine **out, char *why) MUST_CHECK;
void llm_engine_destroy(struct llm_engine *engine);
const struct llm_config *llm_engine_config(const struct llm_engine *engine);
uint32_t llm_engine_context(const struct llm_engine *engine);
/* Engines with the same text compute the same bits: the backend's, and ", long" where the context
 * makes a model take longrope's long factors. */
void llm_engine_arithmetic(const struct llm_engine *engine, char text[LLM_ARITHMETIC_CHARS]);

/* KV pages of all layers and sequences: in use, and all that the limit allows now.  Pages that are
 * only kept for sequences to come are not in use.  A sequence needs llm_engine_pages_for of its
 * length. */
void llm_engine_kv_pages(const struct llm_engine *engine, uint32_t *used, uint32_t *all);
/* All that there are, whatever the limit says. */
uint32_t llm_engine_kv_most(const struct llm_engine *engine);
/* The memory that so many pages take. */
uint64_t llm_engine_kv_bytes(const struct llm_engine *engine, uint64_t pages);
/* Gives back memory in which no page is. */
void llm_engine_kv_trim(struct llm_engine *engine);
/* Drops pages that are only kept.  False: there are none. */
bool llm_engine_kv_drop(struct llm_engine *engine);
uint32_t llm_engine_pages_for(const struct llm_engine *engine, uint32_t positions);

/* 0; -ENOSPC past LLM_SEQUENCES_MAX; -ENOMEM. */
int llm_seq_create(struct llm_engine *engine, struct llm_seq **out) MUST_CHECK;
void llm_seq_destroy(struct llm_seq *seq);
uint32_t llm_seq_length(const struct llm_seq *seq);
/* Drops all positions from length on, in every layer. */
void llm_seq_truncate(struct llm_seq *seq, uint32_t length);
/* Reserves KV pages for so many positions.  A step that fails and llm_seq_truncate give back those
 * past the length.  0; -ERANGE (past the context), -ENOSPC, -ENOMEM, -EIO and why: nothing changed.
 */
int llm_seq_reserve(struct llm_seq *seq, uint32_t positions, char *why) MUST_CHECK;

/* Its rows can be those of others: all are there, and were computed. */
bool llm_seq_may_share(const struct llm_seq *seq);
/* Appends the rows of as many of these tokens as the engine has pages of, computed by any sequence
 * after the tokens that this one has.  The pages are shared.  Yields the number of rows, after
 * which the length is a multiple of LLM_KV_POSITIONS; 0 also where llm_seq_may_share says no. */
uint32_t llm_seq_adopt(struct llm_seq *seq, const uint32_t *tokens, uint32_t count);
/* The same for less than a page, where a sequence has rows of these tokens in the same page, or had
 * them when it was destroyed: at least LLM_PART_MIN rows, which are copied. */
uint32_t llm_seq_adopt_part(struct llm_seq *seq, const uint32_t *tokens, uint32_t count);

/* Whether the servers that compute with this one are there.  0; -EAGAIN: one was lost and is asked
 * again, look again soon; else why it is not expected any more.  Never waits. */
int llm_engine_reach(struct llm_engine *engine, char *why) MUST_CHECK;

/* The device gives back the memory of the weights; sequences and their KV stay.  Until they have
 * returned there is no step.  Yields the bytes; 0: it has no memory of its own for them. */
uint64_t llm_engine_weights_leave(struct llm_engine *engine);
/* Brings the next one back.  0: all are there; -EAGAIN: call again; -ENOMEM, -EIO and why: call
 * again, or leave.  The file's bytes must be those that it was loaded with (llm_file_check). */
int llm_engine_weights_return(struct llm_engine *engine, char *why) MUST_CHECK;

/* Rows of one sequence are in order of position, from the sequence's end on. */
struct llm_row {
    struct llm_seq *seq;
    uint32_t token;
    bool logits; /* needed for this row */
};

/* Computes count rows.  logits receives vocab floats for each row that needs them, in row order.
 * 0; -EINVAL (no rows, too many, a token past the vocabulary); -ERANGE (past the context);
 * -ENOSPC (no KV page free); -ENODATA (a layer is missing, or the backend lost the KV of all
 * sequences: then all their layers are missing); -EAGAIN (as llm_engine_reach); -ENOMEM, -EIO (the
 * backend; why says).
 * On another error every sequence is as before. */
int llm_engine_step(struct llm_engine *engine, const struct llm_row *rows, uint32_t count,
                    float *logits, char *why) MUST_CHECK;

/* The same with logits where they are: *at is `room`, which has space for them, or memory of the
 * backend, until the engine's next step. */
int llm_engine_step_at(struct llm_engine *engine, const struct llm_row *rows, uint32_t count,
                       float *room, const float **at, char *why) MUST_CHECK;

/* A step that yields every row's hidden state, after the last layer and the output norm: width
 * floats each.  No row may ask for logits.  As llm_engine_step. */
int llm_engine_step_states(struct llm_engine *engine, const struct llm_row *rows, uint32_t count,
                           float *states, char *why) MUST_CHECK;

/* Makes the programs and memory that steps of all sizes need on the device, and computes a few
 * rows: the first step then takes no longer than others.  Optional: a step makes what it needs.  0;
 * -ENOMEM, -EIO and why. */
int llm_engine_warm(struct llm_engine *engine, char *why) MUST_CHECK;
/* Times a prompt of `rows` rows, at most LLM_ROWS_MAX and the context; a row computed before brings
 * the weights into memory.  0, with *ns_out 0 where there is no memory for so many; -ENOMEM, -EIO
 * and why. */
int llm_engine_time(struct llm_engine *engine, uint32_t rows, uint64_t *ns_out,
                    char *why) MUST_CHECK;
/* Programs and blocks of memory made for the device so far, by warming or by steps. */
uint64_t llm_engine_made(const struct llm_engine *engine);

/* A step of more rows is computed in several parts. */
uint32_t llm_engine_batch_rows(const struct llm_engine *engine);

/* Time on the device in the last step; 0 when the device cannot measure. */
uint64_t llm_engine_kernel_ns(const struct llm_engine *engine);
/* Bytes that the backend's driver sent and received over a network so far; 0 where it has none. */
void llm_engine_traffic(const struct llm_engine *engine, uint64_t *sent, uint64_t *received);

/* What rank 0 of tensor-parallel workers has done so far; zeros without such workers. */
struct llm_tp_stats {
    uint64_t meetings;  /* of the ranks */
    uint64_t wait_ns;   /* for the others */
    uint64_t gather_ns; /* in gathers: copying, and of the waiting what is for them */
    uint64_t bytes;     /* given to the others */
    uint64_t losses;    /* times that the ranks were started again */
};
void llm_engine_tp_stats(const struct llm_engine *engine, struct llm_tp_stats *out);

/* ---- KV as bytes, to send, evict and restore ----
 *
 * A layer's rows as little-endian binary16, K then V: for positions from..to, first all K rows
 * (kv_heads * head_dim values each), then all V rows. */
uint64_t llm_kv_row_bytes(const struct llm_engine *engine); /* of one position of one layer */
/* `layers` of them from `layer` on, one behind the other.  -EINVAL past the rows that one has. */
int llm_seq_read_kv(struct llm_seq *seq, uint32_t layer, uint32_t layers, uint32_t from,
                    uint32_t to, void *dst) MUST_CHECK;
/* from is at most the number of rows that the layer has; rows that it had are overwritten.  The
 * sequence's length does not change; llm_seq_set_length changes it.  -EINVAL; -ERANGE past the
 * context; -ENOSPC, -ENOMEM, -EIO: the layer has what it had, but the rows to overwrite are
 * undefined. */
int llm_seq_write_kv(struct llm_seq *seq, uint32_t layer, uint32_t from, uint32_t to,
                     const void *src) MUST_CHECK;
/* Layers with fewer rows become missing, those with more are truncated.  -ERANGE past the context.
 */
int llm_seq_set_length(struct llm_seq *seq, uint32_t length) MUST_CHECK;

/* Frees a layer's pages and rows.  Fine for a missing layer. */
void llm_seq_evict(struct llm_seq *seq, uint32_t layer);
/* Rows that a layer has; it is missing when they are fewer than the length. */
uint32_t llm_seq_layer_rows(const struct llm_seq *seq, uint32_t layer);
struct llm_layers llm_seq_missing(const struct llm_seq *seq);

#endif
