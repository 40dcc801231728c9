/* llm/worker_impl.h - what the two threads of a worker share.
 *
 * Private to worker.c (the server's thread) and worker_engine.c (the worker's own).
 *
 * Threads: each field says whose it is: (server), (engine), (lock) for both under the lock, or
 * (job) for whichever thread holds the job.  A job is the server's, then the queue's, then the
 * engine's, then the server's again.
 * Lifetime: a client outlives its jobs; it is freed when they and the job that announces its end
 * are back. */
#ifndef HAWSER_LLM_WORKER_IMPL_H
#define HAWSER_LLM_WORKER_IMPL_H

#include "llm/ledger.h"
#include "llm/result.h"
#include "llm/worker.h"

#include <pthread.h>
#include <stdatomic.h>

struct llm_model;
struct llm_sequence;

/* Bytes that a client sent or will fetch; counted against the worker's upload_bytes. */
struct llm_blob {
    uint8_t *data;
    uint64_t bytes, filled;
};

struct llm_client;

struct llm_job {
    struct llm_job *next;                 /* in a queue (lock) */
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

struct llm_client {
    struct llm_client *next, **to; /* (server) */
    struct rpc_ep *ep;             /* NULL when gone (server) */
    struct llm_ledger ledger;      /* (server) */
    struct llm_blob weights, kv;   /* arriving (server) */
    struct llm_blob cache;         /* of the last stateless forward, to fetch (server) */
    int upload_error;              /* of a post, told by the next call that needs it (server) */
    struct llm_job *jobs;          /* (server) */
    uint32_t job_count;            /* (server) */
    struct llm_job farewell;       /* cannot fail for want of memory */
    bool said_farewell;            /* (server) */
    /* relaxed: a job that misses it does one turn for nobody */
    _Atomic bool gone;          /* set by the server's thread, read by the engine's */
    _Atomic uint64_t serdes_ns; /* both threads add */
    struct llm_model *model;    /* NULL: the served one (engine) */
    uint64_t slots;             /* given out (engine) */
    uint32_t sequences;         /* (engine) */
    uint64_t kernel_ns, step_ns, steps, tokens; /* (engine) */
};

struct llm_worker {
    struct llm_worker_options options;
    int event_fd;
    pthread_t thread;
    bool thread_runs;
    struct llm_client *clients;  /* (server) */
    _Atomic uint64_t held_bytes; /* of all blobs; both threads */
    pthread_mutex_t lock;
    pthread_cond_t wake;                /* the engine's thread: a job, or stopping */
    struct llm_job *queue, **queue_end; /* (lock) */
    struct llm_job *ready, **ready_end; /* answered (lock) */
    bool stopping;                      /* (lock) */
    struct llm_model *models, *served;  /* (engine) */
    uint32_t model_count;               /* (engine) */
    struct llm_sequence *sequences;     /* (engine) */
    uint32_t sequence_count;            /* (engine) */
};

/* 0; -EDQUOT past the worker's limit; -ENOMEM. */
int llm_blob_make(struct llm_worker *w, struct llm_blob *blob, uint64_t bytes) MUST_CHECK;
void llm_blob_free(struct llm_worker *w, struct llm_blob *blob);

/* ---- worker_engine.c ---- */

int llm_worker_load_served(struct llm_worker *w, char *why) MUST_CHECK;
/* One turn of a job.  True when it needs another. */
bool llm_worker_turn(struct llm_worker *w, struct llm_job *job);
/* Frees sequences whose grace is over; when the next one is, HW_NEVER without any. */
uint64_t llm_worker_expire(struct llm_worker *w, uint64_t now_ns);
/* The models and sequences that are left, once the thread has ended. */
void llm_worker_unload(struct llm_worker *w);

#endif
