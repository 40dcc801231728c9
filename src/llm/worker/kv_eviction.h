/* llm/worker/kv_eviction.h - evicts and restores the KV of a worker's sequences.
 *
 * Private to the worker.  With a shadow store (llm/evict/shadow.h) each sequence keeps its tokens
 * and an eviction (llm/evict/eviction.h).  Layers are evicted when memory is short, by a rule
 * (llm_evict_rule), or when a client asks; the next step of the sequence restores them.  Rows that
 * the store has lost, or that are faster to compute, are computed: the sequence then has fewer rows
 * than tokens, and the next steps compute the difference.
 *
 * Nothing here waits for the store.  A sequence whose rows, record or look-up are on their way
 * stays out of the steps; the store's time limit bounds that.
 *
 * In a store that other processes share, an evicted sequence leaves a record (llm/worker/record.h):
 * another worker continues it for a client that has its handle.
 *
 * Without a store all of this does nothing.
 *
 * Threads: the engine's, but for fields that say otherwise.  Lifetime: of the struct they are in.
 */
#ifndef HAWSER_LLM_WORKER_KV_EVICTION_H
#define HAWSER_LLM_WORKER_KV_EVICTION_H

#include "llm/evict/eviction.h"

#include <stdatomic.h>

struct llm_worker;
struct llm_client;
struct llm_model;
struct llm_sequence;
struct llm_job;
struct llm_request;

/* Bytes to and from the store: of whole caches, and of parts of them. */
enum llm_kv_kind { LLM_KV_WHOLE, LLM_KV_PARTS, LLM_KV_KINDS };

struct llm_sequence_kv_cache {
    struct llm_eviction *eviction; /* NULL: without a store */
    uint32_t prompt;               /* its tokens */
    uint32_t records;              /* left in the store */
    uint32_t recorded_tokens;      /* in the last of them */
    struct llm_leaving *leaving;   /* the record on its way there; NULL: none */
    bool leaves_again;             /* after it: the sequence has more tokens since */
    bool looks;                    /* the store was asked which rows it has */
    bool evicts;                   /* by the rule, and some layers are still to go */
    bool shares;                   /* its prompt, and some chunks are still to go */
    uint32_t decoded;              /* tokens, for the rule */
    uint64_t used;                 /* the number of its last step */
    bool in_step;                  /* of the step that is planned or computed */
    uint64_t stuck_until_ns;       /* the store refused it: not evicted before */
};

struct llm_client_kv_cache {
    struct llm_eviction_policy policy; /* zero: the method that begins a sequence decides */
    struct llm_eviction_figures figures;
    uint64_t computed_rows, shared_rows;
    /* relaxed: the engine's thread adds, the server's reads */
    _Atomic uint64_t fetched[LLM_KV_KINDS], stored[LLM_KV_KINDS];
};

struct llm_worker_kv_cache {
    struct llm_shadow *shadow;         /* NULL: none */
    struct llm_client_kv_cache nobody; /* of sequences whose client is gone */
    uint64_t steps;                    /* so far */
    bool waits; /* a sequence could not be evicted yet, in this plan: the store is behind */
};

int llm_worker_kv_open(struct llm_worker *w, char *why) MUST_CHECK;
void llm_worker_kv_close(struct llm_worker *w);

/* A sequence begins with its request's tokens.  0 or -ENOMEM. */
int llm_sequence_kv_begin(struct llm_worker *w, struct llm_client *c, struct llm_sequence *s,
                          const struct llm_request *r) MUST_CHECK;
void llm_sequence_kv_end(struct llm_worker *w, struct llm_sequence *s);

/* A prompt begins: asks the store which of its first rows it has.  Those become missing rows, and
 * are not computed. */
void llm_kv_look(struct llm_worker *w, struct llm_job *job);
/* True while the sequence waits for an answer or for its eviction. */
bool llm_kv_is_busy(struct llm_worker *w, struct llm_sequence *s);

/* Before the rows of a step are chosen: decides whether missing layers are fetched or computed. */
void llm_kv_prepare(struct llm_worker *w, struct llm_job *job);
/* Fetches the missing layers; their pages are reserved.  True: some have not arrived, and the
 * request stays out of the step. */
bool llm_kv_waits(struct llm_worker *w, struct llm_job *job);
/* True when no layer is missing. */
bool llm_kv_is_whole(const struct llm_sequence *s);
/* Rows to compute before the sequence can decode, and their tokens. */
uint32_t llm_kv_behind(const struct llm_sequence *s);
uint32_t llm_kv_token(const struct llm_sequence *s, uint32_t i);
/* When memory is short: evicts layers of a sequence that is not in the step, or frees a sequence
 * whose client is gone.  False when there is none. */
bool llm_kv_make_room(struct llm_worker *w, struct llm_model *m);
/* True when a request that finds no memory may wait until other sequences can be evicted. */
bool llm_kv_may_wait(const struct llm_worker *w);
/* The same where the step has no rows. */
bool llm_kv_must_wait(const struct llm_worker *w);

/* A step begins. */
void llm_kv_step(struct llm_worker *w, struct llm_sequence *const *seqs, uint32_t count);
/* Times a few rows of a model that was just loaded, for the first choice between fetching and
 * computing.  0; as llm_engine_time. */
int llm_kv_time(struct llm_worker *w, struct llm_model *m, char *why) MUST_CHECK;
/* A step of so many rows took so long. */
void llm_kv_timed(const struct llm_worker *w, struct llm_model *m, uint32_t rows, uint64_t ns);
/* A row of a decode was computed. */
void llm_kv_decoded(struct llm_worker *w, struct llm_sequence *s, uint32_t token);
/* A prompt was computed. */
void llm_kv_prefilled(struct llm_worker *w, struct llm_sequence *s);
/* The step failed with `status`.  True when rows are lost; the sequence is truncated, so that they
 * are computed. */
bool llm_kv_lost(struct llm_worker *w, struct llm_sequence *s, int status, const char *why);
/* Records and prompts that wait for their turn go on. */
void llm_kv_go_on(struct llm_worker *w);

/* The requests about KV.  0; -EAGAIN: call again when the store has answered; others and the job's
 * why. */
int llm_kv_request(struct llm_worker *w, struct llm_job *job) MUST_CHECK;
/* Continues a sequence that left a record in the store.  0; -EAGAIN, as above; -ENOENT without a
 * why; others with. */
int llm_kv_adopt(struct llm_worker *w, struct llm_job *job, struct llm_sequence **out) MUST_CHECK;
/* The job ends. */
void llm_kv_adopt_end(struct llm_worker *w, struct llm_job *job);

#endif
