/* llm/worker/kv_eviction.h - private to the worker: KV of its sequences that moves out and comes
 * back.
 *
 * With a store (llm/evict/shadow.h) each sequence has its tokens and a eviction
 * (llm/evict/eviction.h). Layers move out when memory is short, by a rule (llm_evict_rule), or
 * because a client asks; they come back in the next step of their sequence.  Rows that cannot come
 * back, or that are quicker to compute, are computed: the sequence is then behind its tokens, and
 * catches up in the next steps.
 *
 * At a store that other processes see, a sequence that moved out leaves a record
 * (llm/worker/record.h): another worker goes on with it when somebody comes with its handle.
 *
 * Without a store all of this does nothing.
 *
 * Threads: the worker's own, but for the fields that say otherwise.  Lifetime: of what they are in.
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
    struct llm_eviction *eviction; /* NULL: nothing of it moves out */
    uint32_t prompt;               /* tokens of it */
    uint32_t records;              /* that it left */
    uint32_t recorded_tokens;      /* by the last of them */
    uint32_t decoded;              /* tokens, for the rule */
    uint64_t used;                 /* the number of the last step that it was in */
    bool in_step;                  /* of the step that is being made */
    uint64_t stuck_until_ns;       /* it could not move out: it is not tried again before */
};

struct llm_client_kv_cache {
    struct llm_eviction_policy policy; /* zero: by the method that begins a sequence */
    struct llm_eviction_figures figures;
    uint64_t computed_rows, shared_rows;
    /* relaxed: the worker's thread adds, the server's reads */
    _Atomic uint64_t fetched[LLM_KV_KINDS], stored[LLM_KV_KINDS];
};

struct llm_worker_kv_cache {
    struct llm_shadow *shadow;         /* NULL: none */
    struct llm_client_kv_cache nobody; /* of sequences whose client is gone */
    uint64_t steps;                    /* numbers them */
};

int llm_worker_kv_open(struct llm_worker *w, char *why) MUST_CHECK;
void llm_worker_kv_close(struct llm_worker *w);

/* A sequence begins, with its request's tokens; ends.  0 or -ENOMEM. */
int llm_sequence_kv_begin(struct llm_worker *w, struct llm_client *c, struct llm_sequence *s,
                          const struct llm_request *r) MUST_CHECK;
void llm_sequence_kv_end(struct llm_sequence *s);

/* A prompt begins: how many of its first rows the store has.  They are missing, not to be computed.
 */
uint32_t llm_kv_shared_rows(struct llm_worker *w, struct llm_job *job);

/* Before its rows are chosen: decides whether missing layers are fetched or computed. */
void llm_kv_prepare(struct llm_worker *w, struct llm_job *job);
/* Fetches what the sequence lacks, its pages being reserved.  True: some of it has not come yet,
 * and the request should stay out of a step that others can be in. */
bool llm_kv_waits(struct llm_worker *w, struct llm_job *job);
/* True when a step need not wait for the store on this sequence's account. */
bool llm_kv_is_whole(const struct llm_sequence *s);
/* Rows to be computed before a decode goes on, and their tokens. */
uint32_t llm_kv_behind(const struct llm_sequence *s);
uint32_t llm_kv_token(const struct llm_sequence *s, uint32_t i);
/* When memory is short: moves layers out of a sequence that is not in the step, or frees one whose
 * client is gone.  False when there is nothing left to do. */
bool llm_kv_make_room(struct llm_worker *w, struct llm_model *m);
/* True when a request that finds no memory may wait for its turn: others can move out then. */
bool llm_kv_may_wait(const struct llm_worker *w);

/* A step of several sequences. */
struct llm_kv_step {
    struct llm_worker *w;
    struct llm_gate gate;
    struct llm_sequence **seqs; /* that lack layers */
    uint32_t count;
};

/* seqs: the step's, put in another order.  0 or -ENOMEM: then it is not begun. */
int llm_kv_step_begin(struct llm_kv_step *step, struct llm_worker *w, struct llm_sequence **seqs,
                      uint32_t count) MUST_CHECK;
void llm_kv_step_end(struct llm_kv_step *step);
/* Times a few rows of a model that was just loaded, so that the first choice between fetching and
 * computing knows what computing costs.  0; as llm_engine_time. */
int llm_kv_time(struct llm_worker *w, struct llm_model *m, char *why) MUST_CHECK;
/* What a step of so many rows took.  One that waited for layers says nothing of computing. */
void llm_kv_timed(const struct llm_kv_step *step, struct llm_model *m, uint32_t rows, uint64_t ns);
/* A row of a decode was computed. */
void llm_kv_decoded(struct llm_worker *w, struct llm_sequence *s, uint32_t token);
/* A prompt was computed. */
void llm_kv_prefilled(struct llm_worker *w, struct llm_sequence *s);
/* The step failed with `status`: true when rows were lost, and the sequence now is where they can
 * be computed from. */
bool llm_kv_lost(struct llm_worker *w, struct llm_sequence *s, int status, const char *why);

/* The requests about KV.  0, or a negative errno and the job's why. */
int llm_kv_request(struct llm_worker *w, struct llm_job *job) MUST_CHECK;
/* Goes on with a sequence that left a record in the store.  0; -ENOENT without a word. */
int llm_kv_adopt(struct llm_worker *w, struct llm_job *job, struct llm_sequence **out) MUST_CHECK;

#endif
