/* llm/worker/impl.h - what the two threads of a worker share.
 *
 * Private to worker.c (the server's thread) and to what the worker's own thread runs:
 *
 *   worker_engine.c   requests that are answered at once, and who joins the steps
 *   worker_batch.c    steps: rows of many requests computed together
 *   worker_seq.c      sequences: by handle, by id, kept for a client that is gone
 *   worker_model.c    models: the served one, and those that clients brought
 *   worker_kv.c       KV that moves out to a store and comes back
 *
 * Threads: each field says whose it is: (server), (engine), (lock) for both under the lock, or
 * (job) for whichever thread holds the job.  What is the server's is the engine's while it is lent.
 * A job is the server's, then the queue's, then the engine's, then the server's again. Lifetime: a
 * client outlives its jobs; it is freed when they and the job that announces its end are back. */
#ifndef HAWSER_LLM_WORKER_IMPL_H
#define HAWSER_LLM_WORKER_IMPL_H

#include "base/counter.h"
#include "llm/worker/byte_account.h"
#include "llm/worker/kv_eviction.h"
#include "llm/worker/result.h"
#include "llm/worker/worker.h"

#include <pthread.h>
#include <stdatomic.h>

struct llm_client;

/* Bytes that a client sent or will fetch; counted against the worker's upload_bytes. */
struct llm_blob {
    uint8_t *data;
    uint64_t bytes, filled;
};

struct llm_model {
    struct llm_model *next;
    uint32_t refs; /* clients that chose it, sequences, and one for the served */
    struct llm_blob blob;
    struct llm_file *own; /* of an upload */
    const struct llm_file *file;
    struct llm_engine *engine;
    float *logits;        /* of a step: a row for each sequence that wants them */
    uint32_t logits_rows; /* that there is room for */
    uint64_t decoded_ns;  /* when it last decoded */
    uint64_t decode_ns;   /* how long a step took that only decoded */
    uint32_t mixed_rows;  /* of prompts, for the next step that also decodes */
    uint32_t mixed_steps; /* since one only decoded */
    bool hashed;
    uint8_t hash[LLM_HASH_BYTES];
    struct llm_evictor *evictor; /* NULL until a sequence needs it */
    uint64_t row_ns;             /* of a prompt, timed at load; 0: not known */
};

struct llm_sequence {
    struct llm_sequence *next;
    uint8_t handle[LLM_HANDLE_BYTES];
    uint64_t id;              /* on its owner's connection */
    struct llm_client *owner; /* NULL: its client is gone */
    uint64_t due_ns;          /* then: when its grace is over */
    struct llm_job *job;      /* that is at it; NULL: idle */
    struct llm_model *model;
    struct llm_seq *seq;
    struct llm_wish wish;
    struct llm_sampler *sampler; /* of a wish for tokens */
    uint32_t last;               /* the token sampled, not yet computed */
    struct llm_packer packer;
    struct llm_sequence_kv_cache kv;
};

struct llm_job {
    struct llm_job *next;                 /* in a list of jobs: whose, the list says */
    struct llm_job *peer_next, **peer_to; /* among its client's (server) */
    struct llm_client *client;
    struct rpc_msg *msg; /* to answer; NULL once its endpoint is gone (server) */
    struct llm_request request;
    struct llm_blob weights, kv; /* (job); kv also carries the answer's cache */
    struct llm_sequence *seq;    /* (engine) */
    uint32_t done;               /* tokens so far (engine) */
    struct wire_enc answer;      /* (job) */
    int status;
    char why[LLM_WHY_CHARS];
};

/* First in, first out. */
struct llm_jobs {
    struct llm_job *first, **end;
};

static inline void llm_jobs_init(struct llm_jobs *jobs)
{
    jobs->first = NULL;
    jobs->end = &jobs->first;
}

static inline void llm_jobs_append(struct llm_jobs *jobs, struct llm_job *job)
{
    job->next = NULL;
    *jobs->end = job;
    jobs->end = &job->next;
}

/* The first, which must be there. */
static inline struct llm_job *llm_jobs_take(struct llm_jobs *jobs)
{
    struct llm_job *job = jobs->first;
    jobs->first = job->next;
    if (!jobs->first)
        jobs->end = &jobs->first;
    return job;
}

/* All of `from`, behind what `to` has. */
static inline void llm_jobs_move(struct llm_jobs *from, struct llm_jobs *to)
{
    if (!from->first)
        return;
    *to->end = from->first;
    to->end = from->end;
    llm_jobs_init(from);
}

struct llm_client {
    struct llm_client *next, **to;   /* (server) */
    struct rpc_ep *ep;               /* NULL when gone (server) */
    struct llm_byte_account account; /* (server) */
    struct llm_blob weights, kv;     /* arriving (server) */
    struct llm_blob cache;           /* of the last stateless forward, to fetch (server) */
    int upload_error;                /* of a post, told by the next call that needs it (server) */
    struct llm_job *jobs;            /* (server) */
    uint32_t job_count;              /* (server) */
    struct llm_job farewell;         /* cannot fail for want of memory */
    bool said_farewell;              /* (server) */
    /* relaxed: a job that misses it is in one step for nobody */
    _Atomic bool gone;          /* set by the server's thread, read by the engine's */
    _Atomic uint64_t serdes_ns; /* both threads add */
    struct llm_model *model;    /* NULL: the served one (engine) */
    uint64_t ids_given;         /* to sequences (engine) */
    uint32_t sequences;         /* (engine) */
    uint64_t kernel_ns, step_ns, steps, tokens; /* (engine) */
    struct llm_client_kv_cache moved;           /* (engine) */
};

/* What the process's counters hold of a worker; each has one writer. */
enum llm_worker_count {
    LLM_COUNT_REQUESTS,    /* (server) */
    LLM_COUNT_STEPS,       /* this and all below (engine) */
    LLM_COUNT_ROWS,        /* of all steps */
    LLM_COUNT_PROMPT_ROWS, /* of those, of prompts */
    LLM_COUNT_PARTS,       /* sequences in steps: over the steps, the mean batch */
    LLM_COUNT_BATCH,       /* steps of 1, 2 to 3, 4 to 7 and so on sequences */
    LLM_COUNT_BATCH_LAST = LLM_COUNT_BATCH + 6, /* LLM_WORKER_BATCH_MAX has a place of its own */
    LLM_COUNT_SPLITS,                           /* steps that failed and were taken one by one */
    LLM_COUNT_STEP_NS,
    LLM_COUNT_KERNEL_NS,
    LLM_COUNT_SEQUENCES,
    LLM_COUNT_ORPHANS,
    LLM_COUNT_MODELS,
    LLM_COUNT_KV_EVICTED,  /* layers */
    LLM_COUNT_KV_RESTORED, /* layers */
    LLM_COUNT_KV_STORED,   /* bytes */
    LLM_COUNT_KV_FETCHED,  /* bytes */
    LLM_COUNT_KV_LOST,     /* chunks */
    LLM_COUNT_KV_COMPUTED, /* rows */
    LLM_COUNTS
};

struct llm_worker {
    struct llm_worker_options options;
    int event_fd;
    pthread_t thread;
    bool thread_runs;
    struct llm_client *clients;  /* (server) */
    _Atomic uint64_t held_bytes; /* of all blobs; both threads */
    pthread_mutex_t lock;
    pthread_cond_t wake;     /* the engine's thread: a job, or stopping */
    struct llm_jobs queue;   /* (lock) */
    _Atomic uint32_t queued; /* jobs in it; written under the lock, also looked at without */
    struct llm_jobs ready;   /* answered (lock) */
    bool stopping;           /* (lock) */
    bool server_sleeps;      /* the server's thread, which then needs no endpoint (lock) */
    bool lent;               /* those are in use by the engine's thread (lock) */
    pthread_cond_t returned; /* the server's thread: lent no more */
    bool spins;              /* there are cores to spare */
    struct llm_jobs arrived; /* taken from the queue, not looked at yet (engine) */
    struct llm_jobs running; /* take part in steps, those that waited longest first (engine) */
    struct llm_jobs done;    /* to be handed over (engine) */
    struct llm_model *models, *served; /* (engine) */
    uint32_t model_count;              /* (engine) */
    struct llm_sequence *sequences;    /* (engine) */
    uint32_t sequence_count;           /* (engine) */
    struct llm_worker_kv_cache kv;     /* (engine) */
    uint32_t answered;                 /* requests, by the last step (engine) */
    uint64_t step_ns;                  /* it took (engine) */
    uint64_t stepped_ns;               /* when it ended (engine) */
    _Atomic uint64_t counts[LLM_COUNTS];
    struct hw_counter_set count_set;
};

/* 0; -EDQUOT past the worker's limit; -ENOMEM. */
int llm_blob_make(struct llm_worker *w, struct llm_blob *blob, uint64_t bytes) MUST_CHECK;
void llm_blob_free(struct llm_worker *w, struct llm_blob *blob);

/* ---- worker_model.c ---- */

/* Of the served file, or of an upload, which it takes on success.  0, or what llm_file_parse and
 * llm_engine_create say, and why. */
int llm_model_create(struct llm_worker *w, struct llm_blob *upload, struct llm_model **out,
                     char *why) MUST_CHECK;
/* Makes its first steps no slower than others, and known in what they cost.  0; as llm_engine_warm
 * and llm_kv_time. */
int llm_model_warm(struct llm_worker *w, struct llm_model *m, char *why) MUST_CHECK;
void llm_model_free(struct llm_worker *w, struct llm_model *m); /* one that is not listed */
uint32_t llm_model_vocab(const struct llm_model *m);
/* Makes it one of the worker's, which goes with its last reference. */
void llm_model_list(struct llm_worker *w, struct llm_model *m);
void llm_model_unref(struct llm_worker *w, struct llm_model *m); /* NULL: nothing */
void llm_model_hash(const void *bytes, uint64_t size, uint8_t out[LLM_HASH_BYTES]);
/* Of its file; computed when first asked for. */
const uint8_t *llm_model_own_hash(struct llm_model *m);
/* The listed one with these bytes, or NULL. */
struct llm_model *llm_model_find(struct llm_worker *w, const uint8_t hash[LLM_HASH_BYTES],
                                 uint64_t size);
/* NULL: back to the served one. */
void llm_client_choose(struct llm_worker *w, struct llm_client *c, struct llm_model *m);
int llm_worker_load_served(struct llm_worker *w, char *why) MUST_CHECK;

/* ---- worker_seq.c ---- */

/* A new sequence of the client, of the model that it chose.  0; -ENOENT without a model, -ENOSPC
 * past a limit, -EINVAL for bad sampling, -ENOMEM, and why. */
int llm_sequence_create(struct llm_worker *w, struct llm_client *c, const struct llm_request *r,
                        struct llm_sequence **out, char *why) MUST_CHECK;
void llm_sequence_free(struct llm_worker *w, struct llm_sequence *s);
/* By what the job's request names; -ENOENT and the job's why.  A sequence whose client is gone
 * becomes that of who has its handle. */
int llm_sequence_by_handle(struct llm_worker *w, struct llm_job *job,
                           struct llm_sequence **out) MUST_CHECK;
int llm_sequence_by_id(struct llm_worker *w, struct llm_job *job,
                       struct llm_sequence **out) MUST_CHECK;
/* When memory is short: frees the idle sequence of that model whose grace ends first of those that
 * wait for a client.  False when there is none. */
bool llm_worker_free_orphan(struct llm_worker *w, const struct llm_model *m);
/* Frees sequences whose grace is over, and counts what is left; when the next one is over, HW_NEVER
 * without any. */
uint64_t llm_worker_expire(struct llm_worker *w, uint64_t now_ns);

/* ---- worker_batch.c ---- */

/* True for requests that take part in steps. */
bool llm_job_steps(const struct llm_job *job);
/* True for those of them that decode. */
bool llm_job_decodes(const struct llm_job *job);
/* One engine step with rows of as many running jobs as fit; what is answered is put with the done.
 * Does nothing when no job runs.  send (NULL: nothing) is called when answers are there and the
 * step's books are not done yet. */
void llm_worker_step(struct llm_worker *w, void (*send)(struct llm_worker *w));
/* The next rows of a prompt that shares its model with nobody: job->seq need not be listed. */
int llm_worker_step_alone(struct llm_worker *w, struct llm_job *job) MUST_CHECK;
/* Tokens, length and place of the job's prompt.  0, -EMSGSIZE, -ERANGE, -EINVAL, and its why. */
int llm_worker_check_prompt(const struct llm_worker *w, struct llm_job *job,
                            const struct llm_engine *engine) MUST_CHECK;
void llm_worker_put_logits(struct wire_enc *e, const float *logits, uint32_t vocab);

/* ---- worker_engine.c ---- */

/* Looks at what arrived, in order: steps join those that run, all else is answered. */
void llm_worker_admit(struct llm_worker *w);
/* The models and sequences that are left, once the thread has ended. */
void llm_worker_unload(struct llm_worker *w);

#endif
