/* llm/worker/worker.h - the remote worker: runs models for the clients of a server.
 *
 * A service over the endpoints of one server.  The server's thread hands it messages and carries
 * its answers; the worker's own thread, the engine's, computes, so that a long prefill does not
 * delay heartbeats.  A step computes requests of all clients together: one row of each sequence
 * that decodes, and some rows of prompts.  Requests join before any step and leave after any.  A
 * request yields the same bits alone and beside others.
 *
 * A handle names a sequence: 128 random bits, never used twice.  Whoever knows the handle may use
 * the sequence.  The sequences of a client that vanished are kept for the grace time, or until
 * their memory is needed; a client that comes back uses its handles again.
 *
 * A text (generate) is a sequence without a handle: the worker samples, pushes the tokens of each
 * step, and answers when the text ends.  Texts that KV memory cannot hold wait their turn.  Where
 * memory runs out nevertheless, the youngest text loses its rows and computes them again later: its
 * tokens do not change.
 *
 * A model that a client uploads is computed by a process of that client, where the options say how
 * to start one (`outside`): another worker there gets it as descriptors (`takes_files`), and all
 * later requests about it.  What is uploaded is only stored and hashed here.
 *
 * Trust: clients are peers.  Every message is checked, every handle looked up; the options bound
 * what a client can make the worker hold.  Uploaded weights are checked by llm/model/file.h, in
 * that process.
 * Threads: all calls from the server's thread.  While the server's thread sleeps, and has said so,
 * the engine's thread answers on the endpoints itself. Lifetime: create/destroy.  Destroy after the
 * server, whose last closed() calls come here; the event descriptor stays open until then.  The
 * worker uses the endpoints' user pointers. */
#ifndef HAWSER_LLM_WORKER_WORKER_H
#define HAWSER_LLM_WORKER_WORKER_H

#include "base/counter.h"
#include "llm/engine/engine.h"
#include "llm/evict/shadow.h"
#include "llm/worker/message.h"
#include "rpc/rpc.h"

enum {
    LLM_WORKER_REQUESTS_MAX = 64, /* of one client, waiting or running, but for texts */
    LLM_WORKER_TEXTS_MAX = 1024,  /* of one client, which may be a gateway; more are refused */
    LLM_WORKER_BATCH_MAX = 64,    /* sequences in a step: 32 MiB of logits of a large
                                   * vocabulary; weights are reused enough; more take turns */
    LLM_WORKER_STEP_ROWS = 1024,  /* of a step.  Where nobody decodes it is one batch of the engine,
                                   * which bounds how long a new request waits */
    LLM_WORKER_SCORES_MAX = 64,   /* of those that are scored: each has a row of logits */
    LLM_WORKER_MIXED_MIN = 16,    /* of prompts where somebody decodes: fewer are not worth
                                   * reading all weights */
    LLM_WORKER_MIXED_MAX = 448,   /* and at most: one batch of the engine with the decoding */
    LLM_WORKER_STRETCH = 2,       /* between the two, as many as make a step that decodes take
                                   * so many times as long: half of it is for prompts */
    LLM_WORKER_LOOK_AGAIN = 16,   /* steps between those without prompts, which are timed */
    LLM_WORKER_GATHER = 2,        /* a step waits for clients just answered, at most 1/2 of the
                                   * last step's time */
    LLM_WORKER_GATHER_LATE = 8,   /* 1/8 when they were late for the last one */
    LLM_WORKER_SAMPLERS = 8,      /* threads that sample: beyond, they wait for memory */
    LLM_WORKER_SAMPLE_ALONE = 1 << 17, /* logits that one thread reads before others wake */
    LLM_WORKER_SPIN_CORES = 4,         /* for a client, the server, the engine and others */
    LLM_WORKER_MODELS_MAX = 16,        /* each has an engine with its threads */
};

/* After a decode the next request may be on its way for so long: a round trip over an ocean. */
#define LLM_WORKER_RECENT_NS (UINT64_C(250) * 1000000)

/* The spin budget of the engine's thread where there are cores to spare: a round trip within a
 * building, and never more than the last step's time. */
#define LLM_WORKER_SPIN_NS (UINT64_C(1) * 1000000)
/* Between looks at whether servers that were lost are back: nothing beside what a start takes. */
#define LLM_WORKER_LOOK_NS (UINT64_C(50) * 1000000)

/* A model that a worker serves. */
struct llm_worker_model {
    const char *name; /* outlives the worker; NULL: general.name, or "model" */
    const struct llm_file *file;
    const char *path;  /* of the file, for tensor-parallel workers; NULL: it has none */
    uint64_t kv_bytes; /* 0: as the engine's options say */
    uint32_t device;   /* which GPU; models of one number share its memory */
    /* A user of the limit that the served models share, claimed and named; outlives the worker.
     * NULL: the model's KV is kv_bytes at most. */
    struct page_limit *kv_limit;
    struct page_trace *kv_trace; /* that gets the slabs that are mapped; NULL: none */
};

/* A worker's counters; each has one writer. */
enum llm_worker_count {
    LLM_COUNT_REQUESTS,     /* (server) */
    LLM_COUNT_STEPS,        /* this and all below (engine) */
    LLM_COUNT_ROWS,         /* of all steps */
    LLM_COUNT_PROMPT_ROWS,  /* of those, of prompts */
    LLM_COUNT_ADOPTED_ROWS, /* not computed: taken from pages of a text that begins alike */
    LLM_COUNT_PARTS,        /* sequences in steps; divided by the steps: the mean batch */
    LLM_COUNT_SPLITS,       /* steps that failed and were repeated request by request */
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
    LLM_COUNT_KV_GIVEN,    /* bytes */
    LLM_COUNT_TEXTS,       /* under way now */
    LLM_COUNT_TEXTS_WAITING,
    LLM_COUNT_GENERATED, /* tokens */
    LLM_COUNT_PREEMPTED, /* texts */
    LLM_COUNT_UPLOADS,   /* models */
    LLM_COUNT_UPLOADS_FOUND,
    LLM_COUNT_WEIGHTS_ASIDE, /* bytes now */
    LLM_COUNTS
};

/* Where models are computed that clients upload. */
struct llm_worker_outside {
    /* A process for a model of this client: a stream socket to it, and its number; or a negative
     * errno. */
    int (*start)(void *user, const struct rpc_ep *client, uint64_t *process);
    /* Its socket is closed: it must end, whatever it does.  broken: not by this side, so that what
     * it died of is of interest. */
    void (*stop)(void *user, uint64_t process, bool broken);
    void *user;
    uint64_t begin_ns; /* in which it must say hello; 0: a minute, since machines may be slow */
};

struct llm_worker_options {
    const struct llm_file *file; /* the only one that is served; NULL: see models */
    /* Those that are served, the first is the default; none: clients upload their weights.  Names
     * are unique. */
    const struct llm_worker_model *models;
    uint32_t model_count;
    struct llm_engine_options engine;
    uint64_t grace_ns;
    uint64_t idle_weights_ns; /* without a request for so long, a served model's weights leave the
                               * device until the next; 0: they stay */
    uint64_t upload_bytes;    /* weights and KV of all clients together */
    uint32_t share;        /* of upload_bytes and of KV memory, that one client may have at a time:
                            * percent; 0: all */
    uint32_t sequences;    /* of one client; 0: LLM_SEQUENCES_MAX */
    uint64_t first_id;     /* of a client's sequences, which are numbered from here on */
    uint32_t tokens;       /* of one request; 0: WIRE_TOKENS_MAX */
    uint32_t batch;        /* sequences in a step; 0: LLM_WORKER_BATCH_MAX; 1: one at a time */
    uint32_t sample_alone; /* logits that one thread samples; 0: LLM_WORKER_SAMPLE_ALONE */
    uint32_t mixed_rows;   /* of prompts in a step that decodes, at most
                            * LLM_WORKER_MIXED_MAX; 0: found by timing */
    bool downloads;        /* clients may fetch the served file */
    bool no_prefixes;      /* texts that begin alike do not share pages */
    bool no_gather;        /* a step does not wait for clients just answered */
    bool no_lend;          /* the server's thread carries all answers */
    /* Eviction of KV (llm/worker/kv_eviction.h). */
    const struct llm_shadow_ops *shadow_ops; /* NULL: no eviction */
    struct llm_shadow_config shadow;
    struct llm_evict_rule evict;              /* for every sequence */
    bool share_prefixes;                      /* store prompts as soon as they are computed */
    const struct llm_worker_outside *outside; /* outlives the worker; NULL: here */
    bool takes_files;         /* clients are workers that give uploads as descriptors */
    _Atomic uint64_t *counts; /* where to count, LLM_COUNTS; NULL: the worker's own counters */
    bool untimed; /* do not time models: missing layers are fetched, whatever it costs */
};

struct llm_worker;

/* 0; as llm_engine_create for the served file; -ENOMEM, or the errno of a thread or descriptor. why
 * holds LLM_WHY_CHARS. */
int llm_worker_create(const struct llm_worker_options *options, struct llm_worker **out,
                      char *why) MUST_CHECK;
void llm_worker_destroy(struct llm_worker *worker);

/* True when the message is the worker's, which releases it now or when it answers.  False: not one
 * of its methods; nothing was done. */
bool llm_worker_handle(struct llm_worker *worker, struct rpc_ep *ep, struct rpc_msg *msg);
/* The endpoint is about to close; fine for one that never sent anything.  status as the server
 * tells it: after -ESHUTDOWN, a goodbye, the client's sequences are freed without a grace time. */
void llm_worker_closed(struct llm_worker *worker, struct rpc_ep *ep, int status);

/* Readable when answers are ready: then call deliver (rpc_server_watch). */
int llm_worker_event_fd(const struct llm_worker *worker);
void llm_worker_deliver(void *worker);
/* The same for answers of other processes; -1 without `outside`. */
int llm_worker_links_fd(const struct llm_worker *worker);
void llm_worker_links(void *worker);
/* Does for those what is due (rpc_server_ops.swept). */
void llm_worker_swept(struct llm_worker *worker);

/* What a worker counts, in the order of `counts`. */
extern const struct hw_counter_def llm_worker_count_defs[LLM_COUNTS];
/* The server's thread is about to sleep, or is awake again (rpc_server_ops.sleeps); then it waits
 * until the engine's thread has written its answer.  A server that never calls this carries all
 * answers. */
void llm_worker_server_sleeps(struct llm_worker *worker, bool begins);

#endif
