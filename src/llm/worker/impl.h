/* llm/worker/impl.h - what the two threads of a worker share.
 *
 * Private to worker.c, which runs on the server's thread, and to the files of the engine's thread:
 *
 *   engine.c        requests that are answered at once; admits others to the steps
 *   batch.c         steps: rows of many requests computed together
 *   text.c          texts that are generated: which may run, their tokens, their ends
 *   seq.c           sequences: by handle, by id, kept for a client that is gone
 *   model.c         models: the served one, and those that clients uploaded
 *   loader.c        the thread that parses and makes ready what clients uploaded
 *   session/        what clients upload; the processes that compute it, where there are such
 *   kv_eviction.c   evicts and restores the sequences' KV
 *   kv_share.c      served models share KV memory
 *   weights.c       weights of idle models leave the device and come back
 *
 * The engine's thread never waits for the KV store (llm/worker/kv_eviction.h).
 *
 * Threads: each field says who may use it: (server), (engine), (lock) for both under the lock,
 * (job) for the thread that holds the job.  While the endpoints are lent, the engine's thread uses
 * the server's fields.  A job belongs to the server, then the queue, the engine, and the server
 * again. Lifetime: a client outlives its jobs; it is freed when its jobs and its farewell are back.
 */
#ifndef HAWSER_LLM_WORKER_IMPL_H
#define HAWSER_LLM_WORKER_IMPL_H

#include "base/counter.h"
#include "base/report/buckets.h"
#include "llm/chat/grammar.h"
#include "llm/cpu/pool.h"
#include "llm/engine/pooling.h"
#include "llm/worker/byte_account.h"
#include "llm/worker/kv_eviction.h"
#include "llm/worker/result.h"
#include "llm/worker/worker.h"

#include <pthread.h>
#include <stdatomic.h>

struct llm_client;

/* Bytes that a client uploaded or will download, in a file of memory; counted against the worker's
 * upload_bytes. */
struct llm_blob {
    bool is_made;
    bool is_given; /* by the worker that has the client, which counts it; not counted here */
    int fd;
    uint8_t *data; /* mapped; NULL: it is not */
    uint64_t bytes, filled;
    struct llm_client *client; /* whose share it counts against; NULL: nobody's any more */
};

/* Weights that clients sent, for those who send them next (lock). */
struct llm_kept {
    struct llm_kept *next; /* that was used before it */
    uint8_t hash[LLM_HASH_BYTES];
    struct llm_blob blob; /* sealed; does not change */
    uint32_t users;       /* links that gave it to their process, and jobs */
};

struct llm_model {
    struct llm_model *next;
    uint32_t refs; /* of clients that chose it, of sequences, and one of a served model */
    struct llm_blob blob;
    struct llm_file *own; /* of an upload */
    const struct llm_file *file;
    struct llm_engine *engine;
    float *logits;        /* of a step: a row for each sequence that needs them */
    uint32_t logits_rows; /* allocated */
    float *states;        /* of a step that embeds: LLM_WORKER_STEP_ROWS rows; made on demand */
    enum llm_pooling pooling;
    uint64_t decoded_ns;      /* when a step last decoded for a client that asks for each token */
    uint64_t decode_ns;       /* time of a step that only decoded */
    uint32_t mixed_rows;      /* rows of prompts in the next step that also decodes */
    uint32_t mixed_steps;     /* steps since one that only decoded */
    uint64_t planned[2];      /* the last plan that looked at its requests; [1]: those that embed */
    struct hw_buckets *notes; /* LLM_NOTES of the worker's */
    bool is_away; /* a server that computes with this one was lost, and may be on its way back */
    bool hashed;
    uint8_t hash[LLM_HASH_BYTES];
    struct llm_evictor *evictor; /* made on demand */
    uint64_t row_ns;             /* of a prompt's row, timed at load; 0: not known */
    /* Of a served one; do not change after the load, so any thread reads them. */
    const char *name;
    char arithmetic[LLM_ARITHMETIC_CHARS];
    struct llm_vocab *vocab;   /* NULL: the file has none */
    struct llm_pieces *pieces; /* of the vocabulary, for grammars */
    /* relaxed: the engine's thread writes, the server's reads */
    _Atomic uint32_t kv_used, kv_pages;
    struct page_limit *limit; /* that its KV counts against; NULL: none */
    uint64_t budget;          /* of that limit at the start */
    uint64_t busy_ns;         /* page_host_ns when it last had a request */
    uint32_t trims;           /* requests to trim that were answered */
    uint32_t device;          /* which GPU */
    /* Of weights that may be put aside; times by hw_now_ns. */
    bool is_aside;      /* they are; no step before they are back */
    bool is_blocked;    /* they find no memory */
    bool is_warned;     /* why they could not come back was logged */
    uint64_t asked_ns;  /* when it last had a request, or was loaded */
    uint64_t ran_ns;    /* when it last had one that was under way */
    uint64_t return_ns; /* since when they are asked back; 0: they are not */
    uint64_t aside_bytes;
    /* Texts under way, while they are admitted. */
    uint32_t texts, text_pages; /* pages that they will need for what they have */
    bool texts_blocked;         /* one that waits does not fit: none overtakes it */
};

struct llm_sequence {
    struct llm_sequence *next;
    uint8_t handle[LLM_HANDLE_BYTES];
    uint64_t id;              /* on its owner's connection */
    struct llm_client *owner; /* NULL: the client is gone */
    uint64_t due_ns;          /* then: when the grace time ends */
    struct llm_job *job;      /* that uses it; NULL: idle */
    struct llm_model *model;
    struct llm_seq *seq;
    struct llm_wish wish;
    struct llm_sampler *sampler; /* where the wish is for tokens */
    uint32_t last;               /* the last token, sampled and not yet computed */
    bool is_text;                /* nobody has its handle */
    struct llm_packer packer;
    struct llm_sequence_kv_cache kv;
};

/* A text that a generate asked for (engine). */
struct llm_text {
    struct llm_model *model;
    uint32_t *tokens; /* of the request, then those generated */
    uint32_t count;
    size_t room;
    uint32_t score, scores_end;  /* tokens of the request to score; as many as are left */
    uint64_t came_ns;            /* hw_now_ns when it arrived */
    uint64_t number;             /* texts begin in this order */
    bool decodes;                /* the request's tokens are computed, a token was sampled */
    bool waits;                  /* began, and lost its rows to another: until there is memory */
    uint32_t losses;             /* of its rows, with a worker that computed some of them */
    struct llm_grammar *grammar; /* NULL: any text */
    struct llm_matcher *matcher;
    double *sums; /* of an embedding: of the states of rows that are done */
    struct llm_generate_end end;
};

/* Tokens of a step for one client, to push. */
struct llm_push {
    struct llm_push *next;
    struct llm_client *client;
    struct wire_enc message;
};

struct llm_pushes {
    struct llm_push *first, **end;
};

/* What the loader does for a job. */
enum llm_load_phase {
    LLM_LOAD_NONE,
    LLM_LOAD_HASH, /* of weights to keep */
    LLM_LOAD_MAKE, /* a model of them */
    LLM_LOAD_RUN,  /* one forward pass of weights that are not kept */
};

struct llm_load {
    enum llm_load_phase phase;
    uint8_t hash[LLM_HASH_BYTES];
    struct llm_model *model; /* made, not listed yet */
    struct llm_kept *kept;   /* to go outside with; NULL: none */
    uint64_t steps, step_ns, kernel_ns;
};

/* Where a job's client has its model, once the job is done. */
enum llm_home {
    LLM_HOME_SAME,
    LLM_HOME_OUTSIDE, /* another process has it, and answers the job */
    LLM_HOME_HERE,    /* a served one is its choice now */
};

struct llm_job {
    struct llm_job *next;                 /* in the list that holds it */
    struct llm_job *peer_next, **peer_to; /* in its client's list (server) */
    struct llm_client *client;
    struct rpc_msg *msg; /* to answer; NULL when the endpoint is gone (server) */
    struct llm_request request;
    struct llm_blob weights, kv;   /* (job); kv also holds the cache to answer */
    struct llm_sequence *seq;      /* (engine) */
    uint32_t done;                 /* tokens computed so far (engine) */
    uint64_t came_ns;              /* page_host_ns, where models share memory (engine) */
    uint64_t short_ns;             /* the same, when it first found no memory; 0: it has (engine) */
    struct llm_text text;          /* of a generate */
    struct llm_adoption *adoption; /* the search for its sequence in the store; NULL: none */
    struct llm_load load;          /* (job) */
    enum llm_home home;            /* (job) */
    /* relaxed: a text that misses it takes one step more */
    _Atomic bool cancelled; /* set by the server's thread, read by the engine's */
    struct wire_enc answer; /* (job) */
    int status;
    char why[LLM_WHY_CHARS];
};

/* First in, first out, but for what is put first. */
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

static inline void llm_jobs_put_first(struct llm_jobs *jobs, struct llm_job *job)
{
    job->next = jobs->first;
    jobs->first = job;
    if (!job->next)
        jobs->end = &job->next;
}

/* The list is not empty. */
static inline struct llm_job *llm_jobs_take(struct llm_jobs *jobs)
{
    struct llm_job *job = jobs->first;
    jobs->first = job->next;
    if (!jobs->first)
        jobs->end = &jobs->first;
    return job;
}

/* Appends all of `from` to `to`. */
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
    _Atomic uint64_t held_bytes;     /* of its blobs; both threads */
    struct llm_blob cache;           /* of the last stateless forward, to download (server) */
    struct llm_link *link;           /* to the process of its own model; NULL: none (server) */
    uint32_t relayed_count;          /* requests that go there and back (server) */
    bool is_closing;                 /* the endpoint takes no answers any more (server) */
    int upload_error;        /* of a post; the next call that needs the upload tells it (server) */
    struct llm_job *jobs;    /* (server) */
    uint32_t job_count;      /* (server) */
    uint32_t text_count;     /* of those: generates (server) */
    struct llm_job farewell; /* announces the client's end; embedded, so that it needs no memory */
    bool said_farewell;      /* (server) */
    /* relaxed: a job that misses it is computed once in vain */
    _Atomic bool gone;          /* set by the server's thread, read by the engine's */
    _Atomic bool unread;        /* a push did not fit: the client does not read; the same */
    _Atomic uint64_t serdes_ns; /* both threads add */
    struct llm_model *model;    /* NULL: the served one (engine) */
    bool is_outside;            /* its choice is a model of another process (engine) */
    uint64_t ids_given;         /* to sequences (engine) */
    uint32_t sequences;         /* (engine) */
    uint32_t texts;             /* of those: under way (engine) */
    bool loads;                 /* the loader has a job of it (engine) */
    struct llm_push *push;      /* of this step (engine) */
    uint64_t kernel_ns, step_ns, steps, tokens; /* (engine) */
    struct llm_client_kv_cache moved;           /* (engine) */
};

/* Histograms of a model, or of all that were uploaded (engine). */
enum llm_model_note {
    LLM_NOTE_SEQUENCES, /* of a step */
    LLM_NOTE_ROWS,      /* of a step */
    LLM_NOTE_STORED,    /* bytes of a sequence, at once */
    LLM_NOTE_FETCHED,   /* bytes of a sequence, at once */
    LLM_NOTE_WAITED,    /* ns of a text until there was memory for it */
    LLM_NOTE_RETURNED,  /* ns until weights that were put aside were back */
    LLM_NOTES
};

/* The thread for uploads; it is started by the first one. */
struct llm_loader {
    pthread_t thread;
    bool runs;                /* (engine) */
    pthread_cond_t wake;      /* a job, a model, or stopping */
    struct llm_jobs jobs;     /* (lock) */
    struct llm_model *models; /* to free (lock) */
};

struct llm_worker {
    struct llm_worker_options options;
    uint64_t incarnation;
    int event_fd;
    pthread_t thread;
    bool thread_runs;
    struct llm_client *clients;  /* (server) */
    _Atomic uint64_t held_bytes; /* of all blobs; both threads */
    int links;                   /* epoll: of the clients' links (server); -1: there are none */
    struct llm_kept *kept;       /* the last used first (lock) */
    uint32_t kept_count;         /* (lock) */
    bool moves;     /* a job in `done` changes where its client has its model (engine) */
    bool has_moves; /* one in `ready` does: it is for the server's thread (lock) */
    pthread_mutex_t lock;
    pthread_cond_t wake;            /* the engine's thread: a job, or stopping */
    struct llm_jobs queue;          /* (lock) */
    _Atomic uint32_t queued;        /* jobs in it; written under the lock, also read without */
    struct llm_jobs ready;          /* answered (lock) */
    struct llm_pushes ready_pushes; /* before the answers (lock) */
    bool stopping;                  /* (lock) */
    bool stored;                    /* the KV store has done something since the last look (lock) */
    bool server_sleeps;             /* the server's thread sleeps and uses no endpoint (lock) */
    bool lent;                      /* the engine's thread uses the endpoints (lock) */
    pthread_cond_t returned;        /* the server's thread: the endpoints are back */
    bool spins;                     /* there are cores to spare */
    struct llm_jobs arrived;        /* taken from the queue, not admitted yet (engine) */
    struct llm_jobs held; /* of these: until the loader is done for their client (engine) */
    struct llm_loader loader;
    struct llm_jobs running;  /* take part in steps; the longest waiting first (engine) */
    struct llm_jobs done;     /* to hand over to the server (engine) */
    struct llm_pushes pushes; /* and these, before them (engine) */
    struct llm_model *models; /* (engine) */
    struct llm_model *served[LLM_SERVED_MODELS_MAX]; /* does not change after the load */
    uint32_t served_count;
    uint32_t model_count;           /* (engine) */
    struct llm_sequence *sequences; /* (engine) */
    uint32_t sequence_count;        /* (engine) */
    struct llm_worker_kv_cache kv;  /* (engine) */
    bool shares;                    /* a served model has a limit; does not change */
    bool is_short;                  /* a request found no memory since the last review (engine) */
    bool is_stalled;                /* requests run, and none could take a step (engine) */
    bool returns;                   /* weights are being brought back (engine) */
    struct llm_model *turn;         /* texts of others of its GPU begin when it is back (engine) */
    uint64_t weighed_ns;            /* when idle weights were last looked for (engine) */
    uint64_t plans;                 /* of steps, so far (engine) */
    struct llm_pool *samplers;      /* made on demand (engine) */
    bool samples_alone;             /* there could be none (engine) */
    uint64_t reviewed_ns;           /* page_host_ns when memory was last reviewed (engine) */
    uint64_t refused_ns;            /* and when the device last had none for KV (engine) */
    uint64_t refused_bytes;         /* what the group held then (engine) */
    uint32_t answered;              /* requests that the last step answered (engine) */
    uint32_t awaited;               /* requests there if each of them brings another (engine) */
    bool are_late;                  /* not all came in time (engine) */
    uint64_t step_ns;               /* time of the last step (engine) */
    uint64_t stepped_ns;            /* when it ended (engine) */
    _Atomic uint64_t step_began_ns; /* 0: no step; relaxed, the engine's thread writes */
    _Atomic bool draining;          /* relaxed; the server's thread writes */
    _Atomic uint32_t aside;  /* bit i: the weights of served[i] are; relaxed, the engine's thread
                              * writes it */
    _Atomic bool incomplete; /* a model lacks a server: look again soon; relaxed, the engine's
                              * thread writes */
    uint64_t texts_begun;    /* (engine) */
    _Atomic uint64_t *counts, own_counts[LLM_COUNTS];
    struct hw_counter_set count_set;
    struct hw_buckets notes[LLM_SERVED_MODELS_MAX + 1][LLM_NOTES]; /* the first: of uploads */
};

/* ---- session/blob.c ---- */

/* Of upload_bytes, what one client may have. */
uint64_t llm_upload_share(const struct llm_worker *w);
/* 0; -EDQUOT past the worker's limit or the client's share of it; -ENOMEM, or the errno of a
 * descriptor. */
int llm_blob_make(struct llm_worker *w, struct llm_client *c, struct llm_blob *blob,
                  uint64_t bytes) MUST_CHECK;
void llm_blob_free(struct llm_worker *w, struct llm_blob *blob);
/* Of a descriptor, which is taken, also on failure.  0, or -EPROTO: it has another size. */
int llm_blob_take(int fd, uint64_t bytes, struct llm_blob *blob) MUST_CHECK;
/* The next bytes; not more than there is room for.  0 or a negative errno. */
int llm_blob_append(struct llm_blob *blob, const void *data, size_t len) MUST_CHECK;
/* Nobody can change it any more; 0 or a negative errno. */
int llm_blob_seal(const struct llm_blob *blob) MUST_CHECK;
/* Fills `data`, unless it is there or the blob is empty.  0 or a negative errno. */
int llm_blob_map(struct llm_blob *blob, bool writable) MUST_CHECK;
void llm_blob_unmap(struct llm_blob *blob);
/* Whether all of the weights came.  0, or -EINVAL and why. */
int llm_blob_is_whole(const struct llm_blob *weights, char *why) MUST_CHECK;
/* It becomes the worker's own. */
void llm_blob_keep(struct llm_blob *blob);

/* Those with these bytes, with one user more; NULL: they are not here.  Any thread. */
struct llm_kept *llm_kept_take(struct llm_worker *w, const uint8_t hash[LLM_HASH_BYTES],
                               uint64_t bytes);
/* Sealed weights of that hash, which are taken, with one user.  0, -ENOMEM, or -ENOSPC: as many as
 * there may be are in use. */
int llm_kept_add(struct llm_worker *w, const uint8_t hash[LLM_HASH_BYTES], struct llm_blob *blob,
                 struct llm_kept **out) MUST_CHECK;
void llm_kept_drop(struct llm_worker *w, struct llm_kept *kept); /* one user less; NULL: nothing */
void llm_kept_fini(struct llm_worker *w);

/* ---- worker.c ---- */

/* Answers a call, with an error's text where the status is one, and releases the message; one that
 * is no call is only released.  By the thread that has the endpoints. */
void llm_answer(struct llm_client *c, struct rpc_msg *msg, int status, const void *data,
                size_t len);
void llm_answer_error(struct llm_client *c, struct rpc_msg *msg, int status, const char *text);

/* Of a worker, from any thread: the engine's thread looks again at what waits for the store. */
void llm_worker_wake(void *worker);

/* ---- model.c ---- */

/* Of all models: their histograms. */
void llm_model_notes_end(struct llm_worker *w);

/* Of an upload, taken on success, or of a file that is served.  0, or as llm_file_parse and
 * llm_engine_create, and why. */
int llm_model_create(struct llm_worker *w, struct llm_blob *upload,
                     const struct llm_worker_model *served, struct llm_model **out,
                     char *why) MUST_CHECK;
/* Warms the engine and times it.  0; as llm_engine_warm and llm_kv_time. */
int llm_model_warm(struct llm_worker *w, struct llm_model *m, char *why) MUST_CHECK;
void llm_model_free(struct llm_worker *w, struct llm_model *m); /* one that is not listed */
uint32_t llm_model_vocab(const struct llm_model *m);
/* Adds it to the worker's models; the last unref removes it. */
void llm_model_list(struct llm_worker *w, struct llm_model *m);
void llm_model_unref(struct llm_worker *w, struct llm_model *m); /* NULL: nothing */
/* Of its file; computed on demand. */
const uint8_t *llm_model_own_hash(struct llm_model *m);
/* The listed one with these bytes, or NULL. */
struct llm_model *llm_model_find(struct llm_worker *w, const uint8_t hash[LLM_HASH_BYTES],
                                 uint64_t size);
/* NULL: back to the served one. */
void llm_client_choose(struct llm_worker *w, struct llm_client *c, struct llm_model *m);
/* Of a job that takes steps, also of one that has not begun; NULL: there is none. */
struct llm_model *llm_job_model(const struct llm_worker *w, const struct llm_job *job);
/* What the client chose, or the first that is served; NULL: none is. */
struct llm_model *llm_client_model(const struct llm_worker *w, const struct llm_client *c);
/* A served one by its name, "" or NULL: the first.  NULL and why: there is none. */
struct llm_model *llm_model_named(const struct llm_worker *w, const char *name, char *why);
int llm_worker_load_served(struct llm_worker *w, char *why) MUST_CHECK;

/* ---- loader.c ---- */

void llm_loader_init(struct llm_worker *w);
/* A job with an upload.  -EINPROGRESS: it comes back through the queue; others and the job's why.
 */
int llm_loader_start(struct llm_worker *w, struct llm_job *job) MUST_CHECK;
/* It is back.  The same, or 0: it is done. */
int llm_loader_returned(struct llm_worker *w, struct llm_job *job) MUST_CHECK;
/* Frees a model that is not listed, which may take long. */
void llm_loader_free(struct llm_worker *w, struct llm_model *m);
/* Waits for its thread, after `stopping` is set. */
void llm_loader_fini(struct llm_worker *w);

/* ---- seq.c ---- */

/* A new sequence of the client's model, or of a given one.  0; -ENOENT without a model, -ENOSPC
 * past a limit, -EINVAL for bad sampling, -ENOMEM, and why. */
int llm_sequence_create(struct llm_worker *w, struct llm_client *c, struct llm_model *model,
                        const struct llm_request *r, struct llm_sequence **out,
                        char *why) MUST_CHECK;
void llm_sequence_free(struct llm_worker *w, struct llm_sequence *s);
/* The sequence that the job's request names; -ENOENT and the job's why.  A sequence whose client is
 * gone becomes the job's client's. */
int llm_sequence_by_handle(struct llm_worker *w, struct llm_job *job,
                           struct llm_sequence **out) MUST_CHECK;
/* Whether so many pages more are within the client's share of the model's KV memory.  One without
 * rows of it may always begin. */
bool llm_client_may_have(const struct llm_worker *w, const struct llm_client *c,
                         const struct llm_model *m, uint64_t pages);
int llm_sequence_by_id(struct llm_worker *w, struct llm_job *job,
                       struct llm_sequence **out) MUST_CHECK;
/* Whether the job may use the sequence: 0; -EAGAIN while a request about its KV does; -EBUSY and
 * the job's why. */
int llm_sequence_is_free(const struct llm_sequence *s, struct llm_job *job) MUST_CHECK;
/* When memory is short: of the idle sequences of that model whose client is gone, frees the one
 * whose grace time ends first.  False when there is none. */
bool llm_worker_free_orphan(struct llm_worker *w, const struct llm_model *m);
/* Frees sequences whose grace time is over, and counts the rest.  When the next grace time ends;
 * HW_NEVER without any. */
uint64_t llm_worker_expire(struct llm_worker *w, uint64_t now_ns);

/* ---- kv_share.c ---- */

/* Before a step, and while there is none: tells the group what the models have and need, and gives
 * back what others shall have.  Does nothing where no model has a limit. */
void llm_kv_share_review(struct llm_worker *w);
/* Tells the group of one model. */
void llm_kv_share_tell(struct llm_worker *w, struct llm_model *m);
/* When the next review is due without a request; HW_NEVER: none is. */
uint64_t llm_kv_share_due(const struct llm_worker *w);
/* A model may have so many pages, if not now. */
bool llm_kv_share_holds(const struct llm_model *m, uint64_t pages);
/* A job found no page: true when it shall wait for one. */
bool llm_kv_share_waits(struct llm_worker *w, struct llm_job *job);
/* The device has no memory for a page that the limit allows.  True: others under way hold some, and
 * for a while what all hold now is the limit. */
bool llm_kv_share_refused(struct llm_worker *w, const struct llm_job *job);
/* Gives back KV memory of a GPU that no request uses, of the model that was idle for longest.
 * False: there is none. */
bool llm_kv_share_give_kept(struct llm_worker *w, uint32_t device);

/* ---- weights.c ---- */

/* Before a step: puts weights of idle models aside and brings those back that requests wait for.
 * Requests of a model that cannot come back fail.  Does nothing without idle_weights_ns. */
void llm_weights_review(struct llm_worker *w,
                        void (*fail)(struct llm_worker *w, struct llm_job *job, int status));
/* A GPU is short of memory: puts a model of it aside that computes nothing, another than `but`
 * (NULL: any), or gives KV back that no request uses.  False: there is none. */
bool llm_weights_make_room(struct llm_worker *w, uint32_t device, const struct llm_model *but);
/* When the next model may be put aside; HW_NEVER: none. */
uint64_t llm_weights_due(const struct llm_worker *w);

/* ---- batch.c ---- */

/* True for requests that take part in steps. */
bool llm_job_steps(const struct llm_job *job);
/* True for those of them that decode. */
bool llm_job_decodes(const struct llm_job *job);
/* One engine step with rows of as many running jobs as fit; answered jobs go to done.  Does nothing
 * when no job runs.  send (NULL: nothing) is called before the step's evictions are done, so that
 * clients do not wait for them. */
void llm_worker_step(struct llm_worker *w, void (*send)(struct llm_worker *w));
/* Checks tokens, length and position of the job's prompt.  0, -EMSGSIZE, -ERANGE, -EINVAL, and the
 * job's why. */
int llm_worker_check_prompt(const struct llm_worker *w, struct llm_job *job,
                            const struct llm_engine *engine) MUST_CHECK;
void llm_worker_put_logits(struct wire_enc *e, const float *logits, uint32_t vocab);

/* ---- text.c ---- */

static inline bool llm_job_is_text(const struct llm_job *job)
{
    return job->request.method == LLM_METHOD_GENERATE;
}

/* No text is wanted of it, but the vector of its tokens. */
static inline bool llm_job_embeds(const struct llm_job *job)
{
    return llm_job_is_text(job) && job->request.generate.embed;
}

/* Some of its request's tokens are still to be scored. */
static inline bool llm_text_scores(const struct llm_job *job)
{
    return llm_job_is_text(job) && job->text.score < job->text.scores_end;
}

/* A text that has no rows because it waits for memory or its turn. */
static inline bool llm_text_waits(const struct llm_job *job)
{
    return llm_job_is_text(job) && (!job->seq || job->text.waits);
}

/* A text arrives: finds its model and checks its tokens and options.  0; -ENOENT, -EMSGSIZE,
 * -EINVAL, -ENOSPC, -EOPNOTSUPP, -ENOMEM and the job's why. */
int llm_text_check(struct llm_worker *w, struct llm_job *job) MUST_CHECK;
/* Before a step.  0: the text goes on; 1: it has ended; a negative errno and the job's why. */
int llm_text_review(struct llm_worker *w, struct llm_job *job) MUST_CHECK;
/* Begins texts that wait, as far as memory reaches; those that cannot begin end. */
void llm_texts_admit(struct llm_worker *w,
                     void (*end)(struct llm_worker *w, struct llm_job *job, int status));
/* Tells how many texts there are. */
void llm_texts_publish(struct llm_worker *w);
/* Takes the next rows of a text from pages that the engine has, instead of computing them; yields
 * their number.  parts: also of a page that only begins alike. */
uint32_t llm_text_adopt(struct llm_worker *w, struct llm_job *job, bool parts);
/* Rows of a text under way that were lost and precede its last token. */
uint32_t llm_text_behind(const struct llm_job *job);
/* Takes the next token, sampled from the logits, and queues it to be pushed.  As llm_text_review.
 */
int llm_text_add(struct llm_worker *w, struct llm_job *job, uint32_t token,
                 const float *logits) MUST_CHECK;
/* Takes the logprobs of the next tokens of the request, and queues them to be pushed.  As
 * llm_text_review. */
int llm_text_score(struct llm_worker *w, struct llm_job *job, const struct llm_generated *scores,
                   uint32_t count) MUST_CHECK;
/* Takes the states of the next rows of an embedding.  As llm_text_review. */
int llm_text_embed(struct llm_job *job, const float *states, uint32_t rows) MUST_CHECK;
/* Memory is short for `job`: takes the rows of the youngest text that is not in the step, and
 * younger than the job where that is a text.  False when there is none. */
bool llm_texts_make_room(struct llm_worker *w, const struct llm_job *job);
/* The same of the model's youngest text. */
bool llm_texts_give_way(struct llm_worker *w, const struct llm_model *m);
/* Pages that a text needs for the tokens that it has and the next one. */
uint32_t llm_text_pages(const struct llm_job *job);
/* The same of the job itself, where other texts of the model hold memory. */
bool llm_text_gives_way(struct llm_worker *w, struct llm_job *job);
/* The step failed with `status`.  True when the engine lost the rows of a text that no store has:
 * it will compute them again. */
bool llm_text_lost(struct llm_worker *w, struct llm_job *job, int status);
/* The job has no sequence any more, or never had one: encodes how its text ended. */
void llm_text_end(struct llm_job *job);
void llm_text_fini(struct llm_job *job);

static inline void llm_pushes_init(struct llm_pushes *pushes)
{
    pushes->first = NULL;
    pushes->end = &pushes->first;
}

/* Appends all of `from` to `to`. */
static inline void llm_pushes_move(struct llm_pushes *from, struct llm_pushes *to)
{
    if (!from->first)
        return;
    *to->end = from->first;
    to->end = from->end;
    llm_pushes_init(from);
}

/* ---- engine.c ---- */

/* The job changes where its client has its model, or goes there. */
void llm_job_put(struct llm_worker *w, struct llm_job *job, enum llm_home home);
/* Takes the arrived jobs in order: some join the steps, the others are answered. */
void llm_worker_admit(struct llm_worker *w);
/* Answers a request that takes no step.  0; -EAGAIN: call again when the store has answered;
 * -EINPROGRESS: the loader has it; others and the job's why. */
int llm_worker_respond(struct llm_worker *w, struct llm_job *job) MUST_CHECK;
/* Frees what models and sequences are left, after the thread has ended. */
void llm_worker_unload(struct llm_worker *w);

#endif
